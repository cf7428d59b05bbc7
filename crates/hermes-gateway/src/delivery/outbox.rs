//! Sends one chunk from the store to its platform. Scheduling: [`super::lanes`].

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use hermes_core::clock::{Clock, Rng};
use hermes_core::store::StoreError;
use hermes_platforms::{
    Button, DeliveryLookup, Markup, OutMedia, OutboundAdapter, OutgoingMessage, Recourse,
    SendError, render,
};
use hermes_store::delivery::{Chunk, ChunkPhase, Delivery, Final, NewChunk, NewReply, Settled};
use serde::{Deserialize, Serialize};

/// Prefix of a text that may be a duplicate. Splitting leaves space for it.
pub const DUPLICATE_MARK: &str =
    "♻️ Sent again after an interruption, perhaps you have it already:\n\n";

/// Prefix of the turn id of a notice about an incompletely delivered turn.
const NOTICE: &str = "undelivered-";

/// Data of a chunk besides its text.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChunkExtras {
    /// The message to edit: a streamed preview.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub edits: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reply_to: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub media: Option<OutMedia>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub buttons: Vec<Vec<Button>>,
}

#[derive(Clone, Copy, Debug)]
pub struct OutboxPolicy {
    /// Concurrent chats per account.
    pub parallel: usize,
    /// After this long a send has no answer.
    pub deadline: Duration,
    /// The same with a file: longer than the upload timeout of any platform.
    pub upload: Duration,
    /// The first pause after a failure; it doubles.
    pub pause: Duration,
    pub longest_pause: Duration,
    /// How long to look for a message on the platform before it is sent again with the mark.
    pub patience: Duration,
    /// A chunk with an uncertain outcome is abandoned after this many attempts and after
    /// `patience`: it blocks its chat, and each attempt may create another copy.
    pub unclear: u32,
}

impl Default for OutboxPolicy {
    fn default() -> Self {
        Self {
            parallel: 16,
            deadline: Duration::from_mins(1),
            upload: Duration::from_mins(10),
            pause: Duration::from_secs(2),
            longest_pause: Duration::from_mins(5),
            patience: Duration::from_mins(10),
            unclear: 5,
        }
    }
}

/// A platform and an account.
pub(super) type AccountKey = (String, String);

/// Sends stored chunks.
pub struct Outbox {
    pub(super) delivery: Delivery,
    /// Those that are not connected are not in it.
    platforms: Mutex<HashMap<AccountKey, Arc<dyn OutboundAdapter>>>,
    pub(super) clock: Arc<dyn Clock>,
    rng: Arc<dyn Rng>,
    pub(super) policy: OutboxPolicy,
}

impl Outbox {
    pub fn new(
        delivery: Delivery,
        clock: Arc<dyn Clock>,
        rng: Arc<dyn Rng>,
        policy: OutboxPolicy,
    ) -> Self {
        Self {
            delivery,
            platforms: Mutex::default(),
            clock,
            rng,
            policy,
        }
    }

    /// From now on chunks for this account can be sent.
    pub fn connect(&self, platform: &str, account: &str, outbound: Arc<dyn OutboundAdapter>) {
        self.platforms()
            .insert((platform.to_owned(), account.to_owned()), outbound);
    }

    /// From now on chunks for this account wait.
    pub fn disconnect(&self, platform: &str, account: &str) {
        self.platforms()
            .remove(&(platform.to_owned(), account.to_owned()));
    }

    /// The account's way to send, while it is connected.
    pub fn platform(&self, platform: &str, account: &str) -> Option<Arc<dyn OutboundAdapter>> {
        let account_key = (platform.to_owned(), account.to_owned());
        self.platforms().get(&account_key).cloned()
    }

    pub(super) fn places(&self) -> Vec<AccountKey> {
        self.platforms().keys().cloned().collect()
    }

    fn platforms(&self) -> MutexGuard<'_, HashMap<AccountKey, Arc<dyn OutboundAdapter>>> {
        // A panic while holding this lock cannot leave the map half changed.
        self.platforms
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// The next thing to do about a chunk. Errors of the platform are recorded with it.
    pub(super) async fn step(&self, chunk: Chunk) -> Result<(), StoreError> {
        let account_key = (chunk.target.platform.clone(), chunk.target.account.clone());
        let Some(platform) = self.platforms().get(&account_key).cloned() else {
            return Ok(());
        };
        let extra = match &chunk.extra {
            None => Ok(ChunkExtras::default()),
            Some(value) => ChunkExtras::deserialize(value),
        };
        let settled = match (chunk.phase, &extra) {
            (ChunkPhase::Ambiguous, Ok(extra)) => {
                self.resolve_uncertain(platform.as_ref(), &chunk, extra)
                    .await
            }
            (ChunkPhase::Ambiguous, Err(error)) => unreadable(&chunk, error),
            (ChunkPhase::Pending { marked }, extra) => {
                self.delivery.begin_send(chunk.seq).await?;
                match extra {
                    Ok(extra) => self.send(platform.as_ref(), &chunk, extra, marked).await,
                    Err(error) => unreadable(&chunk, error),
                }
            }
        };
        if let Settled::GiveUp { error } = &settled {
            tracing::warn!(
                platform = chunk.target.platform,
                chat = chunk.target.chat_id,
                "a message cannot be delivered: {error}"
            );
            self.send_notice(&chunk, &extra.unwrap_or_default()).await?;
        }
        self.record(|| self.delivery.settle(chunk.seq, settled.clone()))
            .await
    }

    /// Retries until stored: a chunk in an intermediate state would block its chat.
    async fn record<T, F>(&self, write: impl Fn() -> F) -> Result<T, StoreError>
    where
        F: Future<Output = Result<T, StoreError>>,
    {
        let mut tries = 0;
        loop {
            match write().await {
                Err(error @ (StoreError::Busy { .. } | StoreError::Database { .. })) => {
                    tracing::error!("delivery: {error}");
                    tokio::time::sleep(self.pause(tries)).await;
                    tries += 1;
                }
                other => return other,
            }
        }
    }

    /// Stores a notice about an abandoned chunk, once per turn. The notice is stored first: after a
    /// crash in between, the chunk is abandoned again and the notice exists already.
    async fn send_notice(&self, chunk: &Chunk, extra: &ChunkExtras) -> Result<(), StoreError> {
        if chunk.turn.starts_with(NOTICE) {
            return Ok(());
        }
        let end = Final {
            turn: format!("{NOTICE}{}", chunk.turn),
            replies: vec![NewReply {
                session_key: chunk.session_key.clone(),
                target: chunk.target.clone(),
                chunks: vec![NewChunk {
                    text: notice(chunk, extra),
                    extra: None,
                }],
            }],
            ..Final::default()
        };
        match self.record(|| self.delivery.finish(end.clone())).await {
            Ok(_) | Err(StoreError::Ended(_)) => Ok(()),
            Err(error) => Err(error),
        }
    }

    async fn send(
        &self,
        platform: &dyn OutboundAdapter,
        chunk: &Chunk,
        extra: &ChunkExtras,
        marked: bool,
    ) -> Settled {
        // A file cannot be added to an existing message.
        let edits = extra.edits.as_deref().filter(|_| extra.media.is_none());
        let mut result = self.deliver(platform, chunk, extra, edits, marked).await;
        if let (Some(_), Err(SendError::Refused(error) | SendError::Markup(error))) =
            (edits, &result)
        {
            tracing::debug!(chunk = chunk.seq, "sent as a new message: {error}");
            let marked = match self.send_if_new(platform, chunk, extra).await {
                Settled::Resend { marked: again } => marked || again,
                known => return known,
            };
            result = self.deliver(platform, chunk, extra, None, marked).await;
        }
        match result {
            Ok(id) => Settled::Sent { id },
            Err(SendError::NotSent { error, retry_after }) => {
                let pause = retry_after.unwrap_or_else(|| self.pause(chunk.tries));
                Settled::Retry {
                    error,
                    at: self.clock.epoch_seconds() + pause.as_secs_f64(),
                }
            }
            Err(SendError::Refused(error) | SendError::Markup(error)) => Settled::GiveUp { error },
            // Four times as long each time: the next attempt may create a copy.
            Err(SendError::Unclear(error)) => Settled::Ambiguous {
                error,
                at: self.clock.epoch_seconds()
                    + self.pause(chunk.unclear.saturating_mul(2)).as_secs_f64(),
            },
        }
    }

    /// The edit was refused: an earlier attempt may exist as the edit or as a separate message.
    async fn send_if_new(
        &self,
        platform: &dyn OutboundAdapter,
        chunk: &Chunk,
        extra: &ChunkExtras,
    ) -> Settled {
        if chunk.unclear == 0 {
            return Settled::Resend { marked: false };
        }
        self.find_sent(platform, chunk, extra).await
    }

    /// One attempt, in the platform's markup or else plain.
    async fn deliver(
        &self,
        platform: &dyn OutboundAdapter,
        chunk: &Chunk,
        extra: &ChunkExtras,
        edits: Option<&str>,
        marked: bool,
    ) -> Result<Option<String>, SendError> {
        let markup = platform.capabilities().markup;
        let message = outgoing(chunk, extra, markup, marked);
        let result = self.attempt(platform, &message, edits).await;
        let Err(SendError::Markup(error)) = &result else {
            return result;
        };
        tracing::debug!(chunk = chunk.seq, "sent plain: {error}");
        let message = outgoing(chunk, extra, Markup::Plain, marked);
        self.attempt(platform, &message, edits).await
    }

    async fn attempt(
        &self,
        platform: &dyn OutboundAdapter,
        message: &OutgoingMessage,
        edits: Option<&str>,
    ) -> Result<Option<String>, SendError> {
        let call = async {
            match edits {
                Some(id) => (platform.edit(id, message).await).map(|()| Some(id.to_owned())),
                None => platform.send(message).await,
            }
        };
        let deadline = match message.media {
            Some(_) => self.policy.upload.max(self.policy.deadline),
            None => self.policy.deadline,
        };
        within(deadline, call).await
    }

    /// Resolves a chunk whose delivery is uncertain.
    async fn resolve_uncertain(
        &self,
        platform: &dyn OutboundAdapter,
        chunk: &Chunk,
        extra: &ChunkExtras,
    ) -> Settled {
        let settled = if extra.edits.is_some() && extra.media.is_none() {
            // The same text in the same message, twice, is once.
            Settled::Resend { marked: false }
        } else {
            self.find_sent(platform, chunk, extra).await
        };
        let age = self.since(chunk.first_attempt_at);
        let enough = chunk.unclear >= self.policy.unclear && age >= self.policy.patience;
        match settled {
            Settled::Resend { .. } if enough => Settled::GiveUp {
                error: format!(
                    "{} attempts, and it is unknown whether it arrived",
                    chunk.unclear
                ),
            },
            settled => settled,
        }
    }

    /// Searches for the chunk as a separate message.
    async fn find_sent(
        &self,
        platform: &dyn OutboundAdapter,
        chunk: &Chunk,
        extra: &ChunkExtras,
    ) -> Settled {
        let grace = match platform.capabilities().recourse {
            Recourse::Idempotent { window } => {
                return Settled::Resend {
                    marked: self.since(chunk.first_attempt_at) > window,
                };
            }
            Recourse::Mark => return Settled::Resend { marked: true },
            Recourse::History { grace } => grace,
        };
        let now = self.clock.epoch_seconds();
        let age = self.since(chunk.last_attempt_at);
        if age < grace {
            return Settled::Ambiguous {
                error: "waiting for a request that may be on its way".to_owned(),
                at: now + grace.saturating_sub(age).as_secs_f64(),
            };
        }
        let message = outgoing(chunk, extra, platform.capabilities().markup, false);
        match within(self.policy.deadline, platform.look_up(&message)).await {
            Ok(DeliveryLookup::Yes(id)) => Settled::Sent { id },
            Ok(DeliveryLookup::No) => Settled::Resend { marked: false },
            Ok(DeliveryLookup::Unknown) => Settled::Resend { marked: true },
            Err(_) if age > grace + self.policy.patience => Settled::Resend { marked: true },
            Err(error) => Settled::Ambiguous {
                error: error.to_string(),
                at: self.clock.epoch_seconds() + self.pause(chunk.tries).as_secs_f64(),
            },
        }
    }

    fn since(&self, at: Option<f64>) -> Duration {
        let now = self.clock.epoch_seconds();
        Duration::from_secs_f64((now - at.unwrap_or(now)).max(0.0))
    }

    /// Doubles with every attempt, with jitter to spread the retries.
    pub(super) fn pause(&self, tries: u32) -> Duration {
        let doubled = self.policy.pause.saturating_mul(1 << tries.min(16));
        doubled
            .min(self.policy.longest_pause)
            .mul_f64(0.5 + self.rng.unit() / 2.0)
    }
}

/// A call that does not return has no result.
async fn within<T>(
    deadline: Duration,
    call: impl Future<Output = Result<T, SendError>>,
) -> Result<T, SendError> {
    tokio::time::timeout(deadline, call)
        .await
        .unwrap_or_else(|_| Err(SendError::Unclear(format!("nothing within {deadline:?}"))))
}

/// Names what is missing without the reason, which may reveal details of this machine.
fn notice(chunk: &Chunk, extra: &ChunkExtras) -> String {
    let file = extra
        .media
        .as_ref()
        .and_then(|media| media.path.file_name());
    let what = match file {
        Some(name) => format!("The file {}", name.to_string_lossy()),
        None => "A part of my answer".to_owned(),
    };
    if chunk.unclear > 0 {
        format!(
            "⚠️ {what} may not have arrived; I gave up trying. The log of the gateway says why."
        )
    } else {
        format!("⚠️ {what} could not be delivered here. The log of the gateway says why.")
    }
}

/// It would never become readable and would block its chat forever.
fn unreadable(chunk: &Chunk, error: &serde_json::Error) -> Settled {
    tracing::error!(chunk = chunk.seq, "given up, it is not readable: {error}");
    Settled::GiveUp {
        error: format!("not readable: {error}"),
    }
}

fn outgoing(chunk: &Chunk, extra: &ChunkExtras, markup: Markup, marked: bool) -> OutgoingMessage {
    let mark = if marked { DUPLICATE_MARK } else { "" };
    let text = render(markup, &format!("{mark}{}", chunk.text));
    OutgoingMessage {
        key: chunk.key.clone(),
        target: chunk.target.clone(),
        text,
        markup,
        reply_to: extra.reply_to.clone(),
        media: extra.media.clone(),
        buttons: extra.buttons.clone(),
    }
}

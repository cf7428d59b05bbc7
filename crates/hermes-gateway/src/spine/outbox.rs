//! From the store to the platforms.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures_util::StreamExt as _;
use hermes_core::clock::{Clock, Rng};
use hermes_core::store::StoreError;
use hermes_store::db::delivery::{Chunk, Phase, Settled};
use serde::{Deserialize, Serialize};
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use super::Ledger;
use crate::platform::{Button, Found, Markup, OutMedia, Outbound, Outgoing, Recourse, SendError};
use crate::render::render;

/// Put before a text that the person may have already. Splitting leaves room for it.
pub const MARK: &str = "♻️ Sent again after an interruption, perhaps you have it already:\n\n";

/// What a chunk carries besides its text.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Extra {
    /// The message of ours that this chunk completes: a streamed preview.
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
pub struct Policy {
    /// Chats that are sent to at the same time.
    pub parallel: usize,
    /// After this long a send has no answer.
    pub deadline: Duration,
    /// The first pause after a failure; it doubles.
    pub pause: Duration,
    pub longest_pause: Duration,
    /// How long a platform is asked about a message before it is sent again with the mark.
    pub patience: Duration,
}

impl Default for Policy {
    fn default() -> Self {
        Self {
            parallel: 16,
            deadline: Duration::from_mins(1),
            pause: Duration::from_secs(2),
            longest_pause: Duration::from_mins(5),
            patience: Duration::from_mins(10),
        }
    }
}

/// Sends what is owed.
pub struct Outbox<L> {
    ledger: L,
    /// By platform and account. Those that are not connected are not in it.
    platforms: Mutex<HashMap<(String, String), Arc<dyn Outbound>>>,
    clock: Arc<dyn Clock>,
    rng: Arc<dyn Rng>,
    policy: Policy,
}

/// What a round did.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Pumped {
    /// Chunks that were due. After a round with some there may be more.
    pub due: usize,
    /// When the first of the others is due (seconds since the epoch).
    pub next_at: Option<f64>,
}

impl<L: Ledger> Outbox<L> {
    pub fn new(ledger: L, clock: Arc<dyn Clock>, rng: Arc<dyn Rng>, policy: Policy) -> Self {
        Self {
            ledger,
            platforms: Mutex::default(),
            clock,
            rng,
            policy,
        }
    }

    /// From now on chunks for this account can be sent.
    pub fn connect(&self, platform: &str, account: &str, outbound: Arc<dyn Outbound>) {
        self.platforms()
            .insert((platform.to_owned(), account.to_owned()), outbound);
    }

    /// From now on chunks for this account wait.
    pub fn disconnect(&self, platform: &str, account: &str) {
        self.platforms()
            .remove(&(platform.to_owned(), account.to_owned()));
    }

    /// The account's way to send, while it is connected.
    pub fn platform(&self, platform: &str, account: &str) -> Option<Arc<dyn Outbound>> {
        let place = (platform.to_owned(), account.to_owned());
        self.platforms().get(&place).cloned()
    }

    fn platforms(&self) -> MutexGuard<'_, HashMap<(String, String), Arc<dyn Outbound>>> {
        // A panic while holding this lock cannot leave the map half changed.
        self.platforms
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// Sends until cancelled. `wake` is for whoever stores chunks or connects a platform. `Err`:
    /// another process delivers now; other failures of the store pass, and are tried again.
    pub async fn run(&self, wake: &Notify, cancel: &CancellationToken) -> Result<(), StoreError> {
        while !cancel.is_cancelled() {
            let pause = match self.pump().await {
                Ok(round) if round.due > 0 => continue,
                Ok(round) => self.until(round.next_at),
                Err(error @ StoreError::NotOwner { .. }) => return Err(error),
                Err(error) => {
                    tracing::error!("delivery: {error}");
                    Some(self.policy.pause)
                }
            };
            tokio::select! {
                () = cancel.cancelled() => {}
                () = wake.notified() => {}
                () = sleep(pause) => {}
            }
        }
        Ok(())
    }

    fn until(&self, at: Option<f64>) -> Option<Duration> {
        let seconds = at? - self.clock.epoch_seconds();
        // Bounded: the wall clock may be set back.
        Some(Duration::from_secs_f64(seconds.max(0.0)).min(self.policy.longest_pause))
    }

    /// One round: the next chunk of every chat that has one. Errors of a platform are recorded
    /// with the chunk; an error of the store ends the round.
    pub async fn pump(&self) -> Result<Pumped, StoreError> {
        const ROUND: usize = 256;
        let reachable = self.platforms().keys().cloned().collect();
        let due = self.ledger.due(reachable, ROUND).await?;
        let pumped = Pumped {
            due: due.chunks.len(),
            next_at: due.next_at,
        };
        let mut steps =
            futures_util::stream::iter(due.chunks.into_iter().map(|chunk| self.step(chunk)))
                .buffer_unordered(self.policy.parallel.max(1));
        let mut result = Ok(());
        while let Some(step) = steps.next().await {
            result = result.and(step);
        }
        result.map(|()| pumped)
    }

    async fn step(&self, chunk: Chunk) -> Result<(), StoreError> {
        let place = (chunk.target.platform.clone(), chunk.target.account.clone());
        let Some(platform) = self.platforms().get(&place).cloned() else {
            return Ok(());
        };
        let extra = match &chunk.extra {
            None => Ok(Extra::default()),
            Some(value) => Extra::deserialize(value),
        };
        let settled = match (chunk.phase, extra) {
            (Phase::Ambiguous, Ok(extra)) => {
                self.look_into(platform.as_ref(), &chunk, &extra).await
            }
            (Phase::Ambiguous, Err(error)) => unreadable(&chunk, &error),
            (Phase::Pending { marked }, extra) => {
                self.ledger.begin_send(chunk.seq).await?;
                match extra {
                    Ok(extra) => self.send(platform.as_ref(), &chunk, &extra, marked).await,
                    Err(error) => unreadable(&chunk, &error),
                }
            }
        };
        self.ledger.settle(chunk.seq, settled).await
    }

    async fn send(
        &self,
        platform: &dyn Outbound,
        chunk: &Chunk,
        extra: &Extra,
        marked: bool,
    ) -> Settled {
        let markup = platform.capabilities().markup;
        let mut message = outgoing(chunk, extra, markup, marked);
        let mut result = self.attempt(platform, &message, extra).await;
        if let Err(SendError::Markup(error)) = &result {
            tracing::debug!(chunk = chunk.seq, "sent plain: {error}");
            message = outgoing(chunk, extra, Markup::Plain, marked);
            result = self.attempt(platform, &message, extra).await;
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
            Err(SendError::Refused(error) | SendError::Markup(error)) => {
                tracing::warn!(
                    platform = chunk.target.platform,
                    chat = chunk.target.chat_id,
                    "a message cannot be delivered: {error}"
                );
                Settled::GiveUp { error }
            }
            Err(SendError::Unclear(error)) => Settled::Ambiguous {
                error,
                at: self.clock.epoch_seconds(),
            },
        }
    }

    async fn attempt(
        &self,
        platform: &dyn Outbound,
        message: &Outgoing,
        extra: &Extra,
    ) -> Result<Option<String>, SendError> {
        let call = async {
            match &extra.edits {
                Some(id) => platform.edit(id, message).await.map(|()| Some(id.clone())),
                None => platform.send(message).await,
            }
        };
        tokio::time::timeout(self.policy.deadline, call)
            .await
            .unwrap_or_else(|_| {
                Err(SendError::Unclear(format!(
                    "nothing within {:?}",
                    self.policy.deadline
                )))
            })
    }

    /// Decides about a chunk of which nobody knows whether it arrived.
    async fn look_into(&self, platform: &dyn Outbound, chunk: &Chunk, extra: &Extra) -> Settled {
        let now = self.clock.epoch_seconds();
        let since = |at: Option<f64>| Duration::from_secs_f64((now - at.unwrap_or(now)).max(0.0));
        if extra.edits.is_some() {
            // The same text in the same message, twice, is once.
            return Settled::Resend { marked: false };
        }
        match platform.capabilities().recourse {
            Recourse::Idempotent { window } => Settled::Resend {
                marked: since(chunk.first_attempt_at) > window,
            },
            Recourse::Mark => Settled::Resend { marked: true },
            Recourse::History { grace } => {
                let age = since(chunk.last_attempt_at);
                if age < grace {
                    return Settled::Ambiguous {
                        error: "waiting for a request that may be on its way".to_owned(),
                        at: now + grace.saturating_sub(age).as_secs_f64(),
                    };
                }
                let message = outgoing(chunk, extra, platform.capabilities().markup, false);
                match platform.look_up(&message).await {
                    Ok(Found::Yes(id)) => Settled::Sent { id },
                    Ok(Found::No) => Settled::Resend { marked: false },
                    Ok(Found::Unknown) => Settled::Resend { marked: true },
                    Err(_) if age > grace + self.policy.patience => {
                        Settled::Resend { marked: true }
                    }
                    Err(error) => Settled::Ambiguous {
                        error: error.to_string(),
                        at: now + self.pause(chunk.tries).as_secs_f64(),
                    },
                }
            }
        }
    }

    /// Doubles with every attempt, with jitter so that chats do not come back all at once.
    fn pause(&self, tries: u32) -> Duration {
        let doubled = self.policy.pause.saturating_mul(1 << tries.min(16));
        doubled
            .min(self.policy.longest_pause)
            .mul_f64(0.5 + self.rng.unit() / 2.0)
    }
}

async fn sleep(pause: Option<Duration>) {
    match pause {
        Some(pause) => tokio::time::sleep(pause).await,
        None => std::future::pending().await,
    }
}

/// Waiting would not make it readable, and it would hold its chat for ever.
fn unreadable(chunk: &Chunk, error: &serde_json::Error) -> Settled {
    tracing::error!(chunk = chunk.seq, "given up, it is not readable: {error}");
    Settled::GiveUp {
        error: format!("not readable: {error}"),
    }
}

fn outgoing(chunk: &Chunk, extra: &Extra, markup: Markup, marked: bool) -> Outgoing {
    let mark = if marked { MARK } else { "" };
    let text = render(markup, &format!("{mark}{}", chunk.text));
    Outgoing {
        key: chunk.key.clone(),
        target: chunk.target.clone(),
        text,
        markup,
        reply_to: extra.reply_to.clone(),
        media: extra.media.clone(),
        buttons: extra.buttons.clone(),
    }
}

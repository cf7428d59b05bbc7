//! Long polling. An update is confirmed by the next poll, after it was stored; after any failure in
//! between it is delivered again. Every poll has a deadline, so that a dead connection is noticed,
//! and its successor has new connections.

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};

use super::TelegramShared;
use super::api::{TelegramApi, TelegramCallError};
use super::read::{UpdateContent, UpdateReader};
use super::wire::{TelegramUser, WebhookInfo};
use crate::platform::{AdapterLink, FatalPlatformError, PlatformState};

/// How long Telegram may hold a poll without updates.
const POLL_TIMEOUT: Duration = Duration::from_secs(30);
/// Additional time for its answer.
const ANSWER_GRACE: Duration = Duration::from_secs(15);
/// Timeout of every other call.
pub(super) const CALL_TIMEOUT: Duration = Duration::from_secs(20);
/// Timeout of the last poll, which confirms stored updates.
const LAST_POLL_TIMEOUT: Duration = Duration::from_secs(2);
/// Empty polls after which the number of pending updates is checked.
const EMPTY_POLLS_BEFORE_CHECK: u32 = 10;
const FIRST_PAUSE: Duration = Duration::from_secs(1);
const MAX_PAUSE: Duration = Duration::from_mins(1);
/// Pause while another program polls.
const CONFLICT_PAUSE: Duration = Duration::from_secs(10);
/// Consecutive refusals after which the token counts as invalid.
pub(super) const MAX_REFUSALS: u32 = 2;

/// The requested kinds of updates.
pub(super) const UPDATES: [&str; 3] = ["message", "channel_post", "callback_query"];

/// Why a connection ended.
pub(super) enum PollError {
    /// The token is bad.
    Refused(String),
    /// For people, and how long to wait at least.
    Other(String, Duration),
}

impl From<TelegramCallError> for PollError {
    fn from(error: TelegramCallError) -> Self {
        match error.code() {
            Some(401 | 404) => Self::Refused(error.to_string()),
            Some(409) if has_webhook(&error) => Self::Other(
                "another program sets a webhook for this bot again and again".to_owned(),
                FIRST_PAUSE,
            ),
            Some(409) => Self::Other(
                "another program polls with the same token, and Telegram lets only one: stop the \
                 other one, or give this one a bot of its own"
                    .to_owned(),
                CONFLICT_PAUSE,
            ),
            _ => {
                let pause = error.retry_after().unwrap_or(FIRST_PAUSE);
                Self::Other(error.to_string(), pause)
            }
        }
    }
}

/// Polling is not possible while a webhook is set.
fn has_webhook(error: &TelegramCallError) -> bool {
    error.code() == Some(409) && error.says("webhook is active")
}

/// Retry delays, unlimited and increasing.
pub(super) struct RetryPauses {
    failures: u32,
    refusals: u32,
}

impl RetryPauses {
    pub(super) fn new() -> Self {
        Self {
            failures: 0,
            refusals: 0,
        }
    }

    pub(super) fn progress(&mut self) {
        *self = Self::new();
    }

    /// Publishes the condition and waits. `Err`: retrying is pointless. `Ok(false)`: cancelled.
    pub(super) async fn wait(
        &mut self,
        parts: &TelegramShared,
        link: &AdapterLink,
        trouble: PollError,
    ) -> Result<bool, FatalPlatformError> {
        let (error, least) = match trouble {
            PollError::Other(error, least) => {
                self.refusals = 0;
                (error, least)
            }
            PollError::Refused(error) => {
                self.refusals += 1;
                if self.refusals >= MAX_REFUSALS {
                    return Err(hopeless(parts, &error));
                }
                (error, FIRST_PAUSE)
            }
        };
        tracing::warn!("telegram: {error}");
        link.health.is(PlatformState::Retrying, Some(error));
        let doubled = FIRST_PAUSE.saturating_mul(1 << self.failures.min(10));
        self.failures += 1;
        let pause = doubled
            .min(MAX_PAUSE)
            .mul_f64(0.5 + parts.rng.unit() / 2.0)
            .max(least);
        Ok(tokio::select! {
            () = link.cancel.cancelled() => false,
            () = tokio::time::sleep(pause) => true,
        })
    }
}

fn hopeless(parts: &TelegramShared, error: &str) -> FatalPlatformError {
    let own_server = if parts.settings.own_server {
        ", or telegram.base_url is not the address of a Bot API server"
    } else {
        ""
    };
    FatalPlatformError(format!(
        "Telegram does not accept the token: {error}. Get a new one from @BotFather and set \
         TELEGRAM_BOT_TOKEN{own_server}"
    ))
}

pub(super) async fn run(
    parts: &Arc<TelegramShared>,
    link: &AdapterLink,
) -> Result<(), FatalPlatformError> {
    let mut patience = RetryPauses::new();
    // The first unconfirmed update. 0: everything is confirmed.
    let mut offset = 0;
    loop {
        let ended = tokio::select! {
            () = link.cancel.cancelled() => break,
            ended = connection(parts, link, &mut offset, &mut patience) => ended,
        };
        if !patience.wait(parts, link, ended).await? {
            break;
        }
    }
    if offset > 0 {
        confirm(parts, offset).await;
    }
    Ok(())
}

/// Confirms stored updates. If this fails, they are delivered again and recognised as duplicates.
async fn confirm(parts: &TelegramShared, offset: i64) {
    let Ok(client) = parts.http.client() else {
        return;
    };
    let api = TelegramApi::new(client, &parts.settings.base);
    let params = json!({"offset": offset, "timeout": 0, "limit": 1, "allowed_updates": UPDATES});
    if let Err(error) = api
        .call::<Value>("getUpdates", &params, LAST_POLL_TIMEOUT)
        .await
    {
        tracing::debug!("the last updates were not confirmed: {error}");
    }
}

/// A new client per connection: nothing of a broken one is reused, and polls never wait behind
/// outgoing messages.
pub(super) fn fresh(parts: &TelegramShared) -> Result<TelegramApi, PollError> {
    let client = parts.http.client();
    let client = client.map_err(|error| PollError::Other(error.to_string(), FIRST_PAUSE))?;
    Ok(TelegramApi::new(client, &parts.settings.base))
}

/// Polls until something breaks.
async fn connection(
    parts: &TelegramShared,
    link: &AdapterLink,
    offset: &mut i64,
    patience: &mut RetryPauses,
) -> PollError {
    match poll_for_ever(parts, link, offset, patience).await {
        Ok(never) => match never {},
        Err(trouble) => trouble,
    }
}

enum Never {}

async fn poll_for_ever(
    parts: &TelegramShared,
    link: &AdapterLink,
    offset: &mut i64,
    patience: &mut RetryPauses,
) -> Result<Never, PollError> {
    let api = fresh(parts)?;
    let bot: TelegramUser = api.call("getMe", &json!({}), CALL_TIMEOUT).await?;
    let mut webhook_removed = false;
    let mut reader = UpdateReader::new(&parts.settings.groups, bot);
    // The first poll returns immediately and shows that receiving works.
    let mut hold = Duration::ZERO;
    let mut quiet = 0;
    let mut doubts = 0;
    loop {
        let params = json!({
            "offset": offset, "timeout": hold.as_secs(), "limit": 100, "allowed_updates": UPDATES,
        });
        let polled = api.call("getUpdates", &params, hold + ANSWER_GRACE).await;
        let updates: Vec<Value> = match polled {
            Ok(updates) => updates,
            // Only the answer to a poll tells for certain whether a webhook is set, so nothing else
            // is queried first.
            Err(error) if has_webhook(&error) && !webhook_removed => {
                webhook_removed = true;
                remove_webhook(&api).await?;
                continue;
            }
            Err(error) => return Err(error.into()),
        };
        link.health.received(parts.clock.epoch_seconds());
        patience.progress();
        // The offset is no longer needed. After a week without updates, Telegram restarts the
        // numbers at random, and an old offset could skip updates.
        *offset = 0;
        hold = POLL_TIMEOUT;
        if updates.is_empty() {
            quiet += 1;
            if quiet % EMPTY_POLLS_BEFORE_CHECK == 0 {
                // A failure here is no reason to stop receiving.
                doubts = match pending(&api).await {
                    Ok(count) => doubt(count, doubts)?,
                    Err(error) => {
                        tracing::debug!("telegram: getWebhookInfo: {error}");
                        doubts
                    }
                };
            }
        } else {
            (quiet, doubts) = (0, 0);
        }
        for update in updates {
            take(parts, link, &mut reader, &update).await?;
            if let Some(id) = update["update_id"].as_i64() {
                *offset = id + 1;
            }
        }
    }
}

/// Delivers one update. `Err`: not stored; it must be delivered again.
async fn take(
    parts: &TelegramShared,
    link: &AdapterLink,
    reader: &mut UpdateReader,
    update: &Value,
) -> Result<(), PollError> {
    match reader.read(update) {
        UpdateContent::Message(message) => {
            if !link.deliver(*message).await {
                let why = "a message was not stored; it will be requested again";
                return Err(PollError::Other(why.to_owned(), FIRST_PAUSE));
            }
        }
        UpdateContent::Moved { from, to } => parts.memory.moved(from, to),
        UpdateContent::Nothing => {}
    }
    Ok(())
}

/// Pending updates are kept.
async fn remove_webhook(api: &TelegramApi) -> Result<(), TelegramCallError> {
    tracing::warn!(
        "telegram: the bot had a webhook; it is removed, since this gateway polls \
         (TELEGRAM_WEBHOOK_URL is not set)"
    );
    let params = json!({"drop_pending_updates": false});
    api.call::<Value>("deleteWebhook", &params, CALL_TIMEOUT)
        .await?;
    Ok(())
}

/// The number of pending updates.
async fn pending(api: &TelegramApi) -> Result<u64, TelegramCallError> {
    let info: WebhookInfo = api.call("getWebhookInfo", &json!({}), CALL_TIMEOUT).await?;
    Ok(info.pending_update_count)
}

/// Twice something, and polls that bring nothing: deaf.
fn doubt(pending: u64, doubts: u32) -> Result<u32, PollError> {
    if pending == 0 {
        return Ok(0);
    }
    if doubts == 0 {
        return Ok(1);
    }
    Err(PollError::Other(
        format!("Telegram has {pending} updates for us and polls return none; reconnecting"),
        FIRST_PAUSE,
    ))
}

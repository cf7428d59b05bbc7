//! Receives updates by webhook. Each is stored before the response; anything but 200 is delivered
//! again.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use axum::Router;
use axum::body::Bytes;
use axum::extract::{DefaultBodyLimit, State};
use axum::http::{HeaderMap, StatusCode};
use axum::routing::post;
use serde_json::{Value, json};
use tokio::net::TcpListener;

use super::TelegramShared;
use super::api::TelegramApi;
use super::polling::{CALL_TIMEOUT, PollError, RetryPauses, UPDATES, fresh};
use super::read::{UpdateContent, UpdateReader};
use super::settings::WebhookSettings;
use super::wire::{TelegramUser, WebhookInfo};
use crate::platform::{AdapterLink, FatalPlatformError, PlatformState};
use hermes_core::bytes::same;

const SECRET: &str = "x-telegram-bot-api-secret-token";
/// An update is far smaller.
const MAX_BODY: usize = 1024 * 1024;
/// How often the webhook status is checked.
const CHECK_INTERVAL: Duration = Duration::from_mins(1);

pub(super) async fn run(
    parts: &Arc<TelegramShared>,
    hook: &WebhookSettings,
    link: &AdapterLink,
) -> Result<(), FatalPlatformError> {
    let mut patience = RetryPauses::new();
    loop {
        let ended = tokio::select! {
            () = link.cancel.cancelled() => return Ok(()),
            ended = serve(parts, hook, link, &mut patience) => ended,
        };
        let trouble = ended.err().unwrap_or_else(|| {
            PollError::Other("the server for the webhook ended".to_owned(), CALL_TIMEOUT)
        });
        if !patience.wait(parts, link, trouble).await? {
            return Ok(());
        }
    }
}

async fn serve(
    parts: &Arc<TelegramShared>,
    hook: &WebhookSettings,
    link: &AdapterLink,
    patience: &mut RetryPauses,
) -> Result<(), PollError> {
    let api = fresh(parts)?;
    let bot: TelegramUser = api.call("getMe", &json!({}), CALL_TIMEOUT).await?;
    let address = (hook.host.as_str(), hook.port);
    let listener = TcpListener::bind(address).await.map_err(|error| {
        let why = format!("cannot listen on {}:{}: {error}", hook.host, hook.port);
        PollError::Other(why, Duration::from_secs(5))
    })?;
    let webhook = Arc::new(TelegramWebhook {
        parts: Arc::clone(parts),
        link: link.clone(),
        secret: hook.secret.clone(),
        reader: Mutex::new(UpdateReader::new(&parts.settings.groups, bot)),
    });
    let router = Router::new()
        .route(&hook.path, post(arrived))
        .layer(DefaultBodyLimit::max(MAX_BODY))
        .with_state(webhook);
    let stop = link.cancel.child_token();
    let _stop_when_dropped = stop.clone().drop_guard();
    tokio::select! {
        served = crate::serve::serve(listener, router, stop) => {
            served.map_err(|error| PollError::Other(error.to_string(), CALL_TIMEOUT))
        }
        trouble = watch(parts, hook, link, &api, patience) => Err(trouble),
    }
}

/// Registers the webhook and checks its status periodically.
async fn watch(
    parts: &TelegramShared,
    hook: &WebhookSettings,
    link: &AdapterLink,
    api: &TelegramApi,
    patience: &mut RetryPauses,
) -> PollError {
    let params = json!({
        "url": hook.url, "secret_token": hook.secret, "allowed_updates": UPDATES,
        // Sequentially, to keep the order.
        "max_connections": 1,
        "drop_pending_updates": false,
    });
    if let Err(error) = api.call::<Value>("setWebhook", &params, CALL_TIMEOUT).await {
        return error.into();
    }
    loop {
        let info: WebhookInfo = match api.call("getWebhookInfo", &json!({}), CALL_TIMEOUT).await {
            Ok(info) => info,
            Err(error) => return error.into(),
        };
        if info.url != hook.url {
            let why = "another program took the webhook of this bot; it is set again";
            return PollError::Other(why.to_owned(), CHECK_INTERVAL);
        }
        match info.last_error_message {
            Some(error) if info.pending_update_count > 0 => {
                let why = format!(
                    "Telegram does not reach {}: {error} ({} updates wait)",
                    hook.url, info.pending_update_count
                );
                link.health.is(PlatformState::Retrying, Some(why));
            }
            _ => {
                link.health.received(parts.clock.epoch_seconds());
                patience.progress();
            }
        }
        tokio::time::sleep(CHECK_INTERVAL).await;
    }
}

struct TelegramWebhook {
    parts: Arc<TelegramShared>,
    link: AdapterLink,
    secret: String,
    reader: Mutex<UpdateReader>,
}

async fn arrived(
    State(webhook): State<Arc<TelegramWebhook>>,
    headers: HeaderMap,
    body: Bytes,
) -> StatusCode {
    let given = headers
        .get(SECRET)
        .map_or(&[][..], |value| value.as_bytes());
    if !same(given, webhook.secret.as_bytes()) {
        return StatusCode::UNAUTHORIZED;
    }
    let Ok(update) = serde_json::from_slice::<Value>(&body) else {
        return StatusCode::BAD_REQUEST;
    };
    let read = {
        let mut reader = webhook
            .reader
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        reader.read(&update)
    };
    match read {
        UpdateContent::Message(message) => {
            if !webhook.link.deliver(*message).await {
                return StatusCode::SERVICE_UNAVAILABLE;
            }
        }
        UpdateContent::Moved { from, to } => webhook.parts.memory.moved(from, to),
        UpdateContent::Nothing => {}
    }
    let now = webhook.parts.clock.epoch_seconds();
    webhook.link.health.received(now);
    StatusCode::OK
}

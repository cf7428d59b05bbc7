//! Webhooks: calls of other services start a turn or are forwarded to a chat.
//!
//! `POST /webhooks/<route>`. Routes are defined in config.yaml (`platforms.webhook.extra.routes`)
//! or in `webhook_subscriptions.json`, which `hermes webhook` writes and which is reloaded when it
//! changes. A call is answered with 202 only after it is stored; repeated calls are recognised by
//! their id, also after a restart, before they count against the rate limit.

mod definition;
mod deliver;
mod filter;
mod recent;
mod replay;
mod routes;
mod script;
mod server;
mod signature;
mod subscriptions;
mod template;

use std::sync::Arc;

use hermes_config::{Config, Home};
use hermes_core::BoxFuture;
use hermes_core::clock::Clock;
use hermes_core::store::StoreError;
use hermes_store::delivery::Target;
use hermes_store::skills::SkillView;

use crate::platform::{IncomingMessage, Platform};
use crate::posting::{PostError, Posting};
use crate::settings::PlatformSettings;

pub use definition::DEFINITION;
pub use routes::{WebhookRoute, parse_name};
pub use signature::sign_github;
pub use subscriptions::{Subscriptions, call, new_secret};

/// The default port.
pub const DEFAULT_PORT: u16 = 8644;
/// The name in sessions, settings and files.
pub const NAME: &str = "webhook";

/// The services that webhooks need from the gateway.
pub trait WebhookHost: Send + Sync {
    /// Whether a call with this id was received before, by this or an earlier process.
    fn received<'a>(
        &'a self,
        chat_id: &'a str,
        id: &'a str,
    ) -> BoxFuture<'a, Result<bool, StoreError>>;

    /// Resolves a target: `telegram`, `telegram:123`.
    fn target(&self, text: &str) -> Result<Target, PostError>;

    /// Stores a message to a chat, once per id.
    fn post(&self, posting: Posting) -> BoxFuture<'_, Result<usize, PostError>>;

    /// The text of a skill as a route uses it: commands in it are run where that is switched on.
    fn skill_text(&self, skill: SkillView) -> BoxFuture<'_, String> {
        Box::pin(std::future::ready(skill.content))
    }

    /// Every call is a conversation of its own: those that are answered are over.
    fn close_answered(&self) -> BoxFuture<'_, ()> {
        Box::pin(std::future::ready(()))
    }
}

/// The configured server. `Err`: what is wrong, for display.
pub fn platform(
    home: &Home,
    config: &Config,
    settings: &PlatformSettings,
    host: Arc<dyn WebhookHost>,
    clock: Arc<dyn Clock>,
) -> Result<Platform, String> {
    let server = server::WebhookServer::new(home, config, settings, host, clock)?;
    Ok(Platform {
        name: NAME,
        account: String::new(),
        exclusive: None,
        inbound: Box::new(server),
        outbound: Arc::new(deliver::WebhookSender::default()),
    })
}

/// The target of the answer to a call, by its route: a chat, a comment, the log.
pub fn answer_to(incoming: &IncomingMessage) -> Option<Target> {
    if incoming.source.platform != NAME {
        return None;
    }
    let destination = incoming.native.get("answer_to")?;
    let text = |name: &str| destination.get(name).and_then(serde_json::Value::as_str);
    Some(Target {
        platform: text("platform")?.to_owned(),
        account: text("account").unwrap_or_default().to_owned(),
        chat_id: text("chat_id")?.to_owned(),
        thread_id: text("thread_id").map(str::to_owned),
    })
}

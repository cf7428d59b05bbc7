//! Webhooks: other services call, and the agent acts on it or a person is told.
//!
//! `POST /webhooks/<route>`. Routes stand in config.yaml (`platforms.webhook.extra.routes`) or in
//! `webhook_subscriptions.json`, which `hermes webhook` writes and which is read again when it
//! changes. A call is answered with 202 only after it is stored; the same call again is recognised
//! by its id, also after a restart, before it counts against the rate limit.

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
use hermes_store::db::delivery::Target;
use hermes_store::skills::SkillView;

use crate::platform::{IncomingMessage, Platform};
use crate::posting::{PostError, Posting};
use crate::settings::PlatformSettings;

pub(crate) use definition::DEFINITION;
pub use routes::{SUBSCRIPTIONS, WebhookRoute, parse_name};
pub use signature::sign_github;
pub use subscriptions::{Subscriptions, call, new_secret};

/// Where the server listens unless it is told otherwise.
pub const PORT: u16 = 8644;
/// The name in sessions, settings and files.
pub const NAME: &str = "webhook";

/// What webhooks need of the gateway.
pub trait WebhookHost: Send + Sync {
    /// Whether a call with this id came before, in this life or an earlier one.
    fn received<'a>(
        &'a self,
        chat_id: &'a str,
        id: &'a str,
    ) -> BoxFuture<'a, Result<bool, StoreError>>;

    /// What a target means: `telegram`, `telegram:123`.
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

/// The server that the settings describe. `Err`: what is wrong, for the person who set it up.
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

/// Where the answer to a call goes, as its route says: a chat somewhere, a comment, the log.
pub fn answer_to(incoming: &IncomingMessage) -> Option<Target> {
    if incoming.source.platform != NAME {
        return None;
    }
    let place = incoming.native.get("answer_to")?;
    let text = |name: &str| place.get(name).and_then(serde_json::Value::as_str);
    Some(Target {
        platform: text("platform")?.to_owned(),
        account: text("account").unwrap_or_default().to_owned(),
        chat_id: text("chat_id")?.to_owned(),
        thread_id: text("thread_id").map(str::to_owned),
    })
}

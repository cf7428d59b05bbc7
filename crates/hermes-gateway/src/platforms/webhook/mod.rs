//! Webhooks: other services call, and the agent acts on it or a person is told.
//!
//! `POST /webhooks/<route>`. Routes stand in config.yaml (`platforms.webhook.extra.routes`) or in
//! `webhook_subscriptions.json`, which `hermes webhook` writes and which is read again when it
//! changes. A call is answered with 202 only after it is stored; the same call again is recognised
//! by its id, also after a restart, before it counts against the rate limit.

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

use hermes_agent::tools::{RunInline, expand_inline};
use hermes_core::BoxFuture;
use hermes_core::clock::Clock;
use hermes_core::store::StoreError;
use hermes_store::Store;
use hermes_store::db::delivery::Target;
use hermes_store::skills::SkillView;

use crate::gateway::{Post, PostError, Posting};
use crate::platform::{Incoming, Platform};
use crate::settings::{GatewaySettings, PlatformSettings};

pub use routes::{Route, SUBSCRIPTIONS, parse_name};
pub use signature::sign_github;
pub use subscriptions::{Subscriptions, call, new_secret};

/// Where the server listens unless it is told otherwise.
pub const PORT: u16 = 8644;
const NAME: &str = "webhook";

/// What webhooks need of the gateway.
pub trait Desk: Send + Sync {
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

/// The desk of a gateway.
pub struct GatewayDesk {
    pub store: Store,
    pub post: Post,
    /// Runs commands in skills; `None`: they stay as they are written.
    pub inline: Option<RunInline>,
}

impl Desk for GatewayDesk {
    fn received<'a>(
        &'a self,
        chat_id: &'a str,
        id: &'a str,
    ) -> BoxFuture<'a, Result<bool, StoreError>> {
        Box::pin(self.store.was_received(NAME, "", chat_id, id))
    }

    fn target(&self, text: &str) -> Result<Target, PostError> {
        self.post.target(text, None)
    }

    fn post(&self, posting: Posting) -> BoxFuture<'_, Result<usize, PostError>> {
        Box::pin(self.post.send(posting))
    }

    fn skill_text(&self, skill: SkillView) -> BoxFuture<'_, String> {
        Box::pin(async move {
            expand_inline(skill.content, skill.dir.as_deref(), self.inline.as_ref()).await
        })
    }

    fn close_answered(&self) -> BoxFuture<'_, ()> {
        Box::pin(async {
            match self.post.close_answered(NAME).await {
                Ok(0) => {}
                Ok(count) => tracing::debug!("webhook: {count} conversations are over"),
                Err(error) => tracing::warn!("webhook: conversations cannot be ended: {error}"),
            }
        })
    }
}

/// The server that the settings describe. `Err`: what is wrong, for the person who set it up.
pub fn platform(
    gateway: &GatewaySettings,
    settings: &PlatformSettings,
    desk: Arc<dyn Desk>,
    clock: Arc<dyn Clock>,
) -> Result<Platform, String> {
    let server = server::Server::new(gateway, settings, desk, clock)?;
    Ok(Platform {
        name: NAME,
        account: String::new(),
        exclusive: None,
        inbound: Box::new(server),
        outbound: Arc::new(deliver::Deliver::default()),
    })
}

/// Where the answer to a call goes, as its route says: a chat somewhere, a comment, the log.
pub(crate) fn answer_to(incoming: &Incoming) -> Option<Target> {
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

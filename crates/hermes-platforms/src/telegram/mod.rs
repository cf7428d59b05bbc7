//! Telegram, over the Bot API.
//!
//! | module | what it does |
//! |---|---|
//! | [`settings`] | what the home says |
//! | [`api`] | calls, and what their failures mean |
//! | [`wire`] | what the Bot API says, as far as it matters here |
//! | [`groups`] | which messages of a group are meant for us |
//! | [`read`] | an update becomes a message |
//! | [`polling`], [`webhook`] | the two ways in |
//! | [`outbound`], [`upload`], [`download`] | the way out, and files both ways |

mod api;
mod definition;
mod download;
mod groups;
mod outbound;
mod polling;
mod read;
mod settings;
mod upload;
mod webhook;
mod wire;

use std::sync::Arc;

use hermes_core::BoxFuture;
use hermes_core::clock::{Clock, Rng};

pub(crate) use definition::DEFINITION;
pub use settings::{Bots, Receive, TelegramSettings, WebhookSettings};

use super::http::Http;
use crate::platform::{Hopeless, Inbound, Link, Platform};
use crate::settings::PlatformSettings;

/// The name in sessions, settings and files.
pub const NAME: &str = "telegram";

/// What both directions share.
struct Parts {
    settings: TelegramSettings,
    http: Http,
    clock: Arc<dyn Clock>,
    rng: Arc<dyn Rng>,
    memory: outbound::Memory,
}

/// Telegram as the settings want it. `Err`: what is wrong with them, for people.
pub fn platform(
    settings: &PlatformSettings,
    clock: Arc<dyn Clock>,
    rng: Arc<dyn Rng>,
) -> Result<Platform, String> {
    let settings = TelegramSettings::from_settings(settings)?;
    for problem in &settings.problems {
        tracing::warn!("{problem}");
    }
    let http = Http::new(&settings.env, settings.proxy.as_deref());
    let token = settings.token.clone();
    let parts = Arc::new(Parts {
        settings,
        http,
        clock,
        rng,
        memory: outbound::Memory::default(),
    });
    let outbound = outbound::Sender::new(Arc::clone(&parts)).map_err(|error| error.to_string())?;
    Ok(Platform {
        name: NAME,
        account: String::new(),
        exclusive: Some(token),
        inbound: Box::new(Receiver(parts)),
        outbound: Arc::new(outbound),
    })
}

struct Receiver(Arc<Parts>);

impl Inbound for Receiver {
    fn run(self: Box<Self>, link: Link) -> BoxFuture<'static, Result<(), Hopeless>> {
        Box::pin(async move {
            match &self.0.settings.receive {
                Receive::Polling => polling::run(&self.0, &link).await,
                Receive::Webhook(hook) => webhook::run(&self.0, hook, &link).await,
            }
        })
    }
}

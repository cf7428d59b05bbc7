//! Telegram, over the Bot API.
//!
//! | module | what it does |
//! |---|---|
//! | [`settings`] | settings |
//! | [`api`] | calls and their failures |
//! | [`wire`] | the Bot API's data structures |
//! | [`groups`] | which messages of a group are addressed to us |
//! | [`read`] | converts updates to messages |
//! | [`polling`], [`webhook`] | receiving |
//! | [`outbound`], [`upload`], [`download`] | sending, and files in both directions |

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
pub(crate) use settings::{ReceiveMode, TelegramSettings};

use super::http::PlatformHttp;
use crate::platform::{AdapterLink, FatalPlatformError, InboundAdapter, Platform};
use crate::settings::PlatformSettings;

/// The name in sessions, settings and files.
pub const NAME: &str = "telegram";

/// State shared by both directions.
struct TelegramShared {
    settings: TelegramSettings,
    http: PlatformHttp,
    clock: Arc<dyn Clock>,
    rng: Arc<dyn Rng>,
    memory: outbound::TelegramMemory,
}

/// Builds the adapter from the settings. `Err`: what is wrong with them, for display.
pub fn platform(
    settings: &PlatformSettings,
    clock: Arc<dyn Clock>,
    rng: Arc<dyn Rng>,
) -> Result<Platform, String> {
    let settings = TelegramSettings::from_settings(settings)?;
    for problem in &settings.problems {
        tracing::warn!("{problem}");
    }
    let http = PlatformHttp::new(&settings.env, settings.proxy.as_deref());
    let token = settings.token.clone();
    let parts = Arc::new(TelegramShared {
        settings,
        http,
        clock,
        rng,
        memory: outbound::TelegramMemory::default(),
    });
    let outbound =
        outbound::TelegramSender::new(Arc::clone(&parts)).map_err(|error| error.to_string())?;
    Ok(Platform {
        name: NAME,
        account: String::new(),
        exclusive: Some(token),
        inbound: Box::new(TelegramReceiver(parts)),
        outbound: Arc::new(outbound),
    })
}

struct TelegramReceiver(Arc<TelegramShared>);

impl InboundAdapter for TelegramReceiver {
    fn run(
        self: Box<Self>,
        link: AdapterLink,
    ) -> BoxFuture<'static, Result<(), FatalPlatformError>> {
        Box::pin(async move {
            match &self.0.settings.receive {
                ReceiveMode::Polling => polling::run(&self.0, &link).await,
                ReceiveMode::Webhook(hook) => webhook::run(&self.0, hook, &link).await,
            }
        })
    }
}

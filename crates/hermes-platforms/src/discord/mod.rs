//! Discord, over its gateway socket and REST API.
//!
//! The sequence number is Discord's acknowledgement: heartbeats and resumes contain the number up
//! to which everything is stored here, so that the rest is sent again. After an outage that cannot
//! be resumed, channels are read from the last seen message. Every outgoing message contains its
//! key as an enforced nonce: sent twice, it exists once.
//!
//! | module | what it does |
//! |---|---|
//! | [`settings`] | settings |
//! | `api`, `limits` | REST calls and their failures; rate limits |
//! | `wire` | Discord's data structures |
//! | `socket`, `link`, `progress` | one connection; reconnecting; stored sequence numbers |
//! | `rules` | which messages are addressed to us |
//! | `intake`, `read`, `missed` | from events to messages; missed messages |
//! | `channels`, `memory` | channels; state that survives a restart |
//! | `outbound`, `files`, `menu` | sending; files in both directions; the command menu |

mod api;
mod channels;
mod definition;
mod files;
mod intake;
mod limits;
mod link;
mod memory;
mod menu;
mod missed;
mod outbound;
mod progress;
mod read;
mod rules;
mod settings;
mod socket;
mod wire;

use std::sync::Arc;
use std::time::Duration;

use hermes_core::BoxFuture;
use hermes_core::clock::{Clock, Rng};

pub(crate) use definition::DEFINITION;
pub use settings::DiscordSettings;

use super::http::PlatformHttp;
use crate::PlatformDeps;
use crate::platform::{AdapterLink, Admission, FatalPlatformError, InboundAdapter, Platform};
use crate::settings::PlatformSettings;
use api::DiscordApi;
use channels::ChannelDirectory;
use memory::DiscordMemory;

/// The name in sessions, settings and files.
pub const NAME: &str = "discord";

/// Timeouts of the adapter.
#[derive(Clone, Copy, Debug)]
pub struct DiscordTiming {
    /// One call of REST.
    pub call: Duration,
    /// Sending or fetching a file.
    pub transfer: Duration,
    /// From the beginning of a connection to its hello.
    pub hello: Duration,
    /// The first pause after a failure; it doubles up to the second.
    pub pause: Duration,
    pub longest_pause: Duration,
    /// After this uptime, earlier failures no longer count. Discord revokes tokens that start too
    /// many sessions.
    pub settled: Duration,
    /// Pause before a new session after an invalid one; up to five times as long.
    pub anew: Duration,
    /// Timeout for looking up details of a message before it is stored.
    pub details: Duration,
    /// Timeout for creating a thread.
    pub thread: Duration,
    /// How often the memory is written when nothing happens, and when something does.
    pub remember: Duration,
    pub remember_news: Duration,
}

impl Default for DiscordTiming {
    fn default() -> Self {
        Self {
            call: Duration::from_secs(20),
            transfer: Duration::from_mins(5),
            hello: Duration::from_secs(20),
            pause: Duration::from_secs(1),
            longest_pause: Duration::from_mins(1),
            settled: Duration::from_secs(30),
            anew: Duration::from_secs(1),
            details: Duration::from_secs(5),
            thread: Duration::from_secs(10),
            remember: Duration::from_mins(5),
            remember_news: Duration::from_secs(5),
        }
    }
}

/// State shared by both directions.
struct DiscordShared {
    settings: DiscordSettings,
    timing: DiscordTiming,
    api: DiscordApi,
    places: ChannelDirectory,
    memory: DiscordMemory,
    admission: Arc<dyn Admission>,
    clock: Arc<dyn Clock>,
    rng: Arc<dyn Rng>,
}

impl DiscordShared {
    fn now(&self) -> f64 {
        self.clock.epoch_seconds()
    }
}

/// Builds the adapter from the settings. `Err`: what is wrong with them, for display.
pub fn platform(settings: &PlatformSettings, deps: &PlatformDeps) -> Result<Platform, String> {
    let settings = DiscordSettings::from_settings(settings)?;
    for problem in &settings.problems {
        tracing::warn!("discord: {problem}");
    }
    platform_with(settings, deps, DiscordTiming::default())
}

/// The same with other patience.
pub fn platform_with(
    settings: DiscordSettings,
    deps: &PlatformDeps,
    timing: DiscordTiming,
) -> Result<Platform, String> {
    let http = PlatformHttp::new(&settings.written.env, settings.proxy.as_deref());
    let token = settings.token.clone();
    let api = DiscordApi::new(&settings.base, &token, http, timing.call, timing.transfer)
        .map_err(|error| error.to_string())?;
    let shared = Arc::new(DiscordShared {
        settings,
        timing,
        api,
        places: ChannelDirectory::default(),
        memory: DiscordMemory::open(&deps.home),
        admission: Arc::clone(&deps.admission),
        clock: Arc::clone(&deps.clock),
        rng: Arc::clone(&deps.rng),
    });
    Ok(Platform {
        name: NAME,
        account: String::new(),
        exclusive: Some(token),
        inbound: Box::new(DiscordReceiver(Arc::clone(&shared))),
        outbound: Arc::new(outbound::DiscordSender::new(shared)),
    })
}

struct DiscordReceiver(Arc<DiscordShared>);

impl InboundAdapter for DiscordReceiver {
    fn run(
        self: Box<Self>,
        link: AdapterLink,
    ) -> BoxFuture<'static, Result<(), FatalPlatformError>> {
        Box::pin(async move { link::run(&self.0, &link).await })
    }
}

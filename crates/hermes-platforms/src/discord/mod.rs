//! Discord, by its gateway's socket and REST.
//!
//! A sequence number is Discord's acknowledgement: the number that heartbeats and resumes carry is
//! the one up to which everything is stored here, so that what was not stored comes again. After
//! an outage that a resume does not bridge, channels are read from the last message that was
//! seen. Every message out carries its key as a nonce that Discord enforces: sent twice, it is
//! there once.
//!
//! | module | what it does |
//! |---|---|
//! | [`settings`] | what the home says |
//! | `api`, `limits` | calls of REST, and what their failures mean; rate limits |
//! | `wire` | what Discord says, as far as it matters here |
//! | `socket`, `link`, `progress` | one connection; connections one after the other; what is stored |
//! | `rules` | which messages are meant for us |
//! | `intake`, `read`, `missed` | from events to messages, and what no event told us of |
//! | `channels`, `memory` | channels; what must survive a restart |
//! | `outbound`, `files`, `menu` | from messages to calls; files both ways; the menu of commands |

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

/// How patient the adapter is.
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
    /// A connection that lived this long has nothing to do with the failure before. Discord takes
    /// a token away that begins too many sessions.
    pub settled: Duration,
    /// Before a new session after one that is over; up to five times as long.
    pub anew: Duration,
    /// What may be asked about a message before it is stored: its channel, what was said before.
    pub details: Duration,
    /// How long a thread may take to be made.
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

/// What both directions share.
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

/// Discord as the settings want it. `Err`: what is wrong with them, for people.
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

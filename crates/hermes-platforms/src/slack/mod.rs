//! Slack, over Socket Mode and the Web API.
//!
//! One connection receives the messages of all workspaces with the app; messages are sent through
//! the workspace of the conversation. An envelope is acknowledged after its message is stored. A
//! message with an uncertain outcome is looked up by the key in its metadata.
//!
//! | module | what it does |
//! |---|---|
//! | [`settings`] | settings |
//! | `api` | Web API calls and their failures |
//! | `team` | workspaces: our identity, conversations, names of people |
//! | `memory` | state that survives a restart |
//! | `socket`, `link` | one connection; reconnecting |
//! | `message`, `text`, `intake`, `interact`, `missed` | from events to messages; missed messages |
//! | `outbound`, `files`, `blocks`, `lookup` | sending |

mod api;
mod blocks;
mod definition;
mod files;
mod intake;
mod interact;
mod link;
mod lookup;
mod memory;
mod message;
mod missed;
mod outbound;
mod rich;
mod settings;
mod socket;
mod team;
mod text;

use std::collections::HashMap;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use hermes_core::clock::{Clock, Rng};

pub(crate) use definition::DEFINITION;
pub use settings::SlackSettings;
pub(crate) use settings::SlackSettingsError;

use super::http::PlatformHttp;
use crate::platform::Platform;
use crate::settings::PlatformSettings;
use api::SlackApi;
use memory::SlackMemory;
use team::SlackTeams;

/// The name in sessions, settings and files.
pub(crate) const NAME: &str = "slack";

/// Timeouts of the adapter.
#[derive(Clone, Copy, Debug)]
pub struct SlackTiming {
    /// One call of the Web API.
    pub call: Duration,
    /// Sending or fetching a file.
    pub transfer: Duration,
    /// From the beginning of a connection to its hello.
    pub hello: Duration,
    /// Ping interval.
    pub ping: Duration,
    /// A connection without data for this long is dead.
    pub silence: Duration,
    /// How long a closing connection may stay open alongside its replacement.
    pub retire: Duration,
    /// The first pause after a failure; it doubles up to the second.
    pub pause: Duration,
    pub longest_pause: Duration,
    /// Timeout for looking up details of a message before it is stored.
    pub details: Duration,
    /// Pause between an uncertain send and the lookup in history.
    pub grace: Duration,
    /// Slack retries an event for about six minutes; after a longer outage history is read.
    pub gap: Duration,
}

impl Default for SlackTiming {
    fn default() -> Self {
        Self {
            call: Duration::from_secs(20),
            transfer: Duration::from_mins(5),
            hello: Duration::from_secs(15),
            ping: Duration::from_secs(10),
            silence: Duration::from_secs(30),
            retire: Duration::from_mins(1),
            pause: Duration::from_secs(1),
            longest_pause: Duration::from_mins(1),
            details: Duration::from_secs(2),
            grace: Duration::from_secs(10),
            gap: Duration::from_mins(4),
        }
    }
}

/// State shared by both directions.
struct SlackShared {
    settings: SlackSettings,
    timing: SlackTiming,
    http: PlatformHttp,
    api: SlackApi,
    teams: SlackTeams,
    memory: SlackMemory,
    clock: Arc<dyn Clock>,
    rng: Arc<dyn Rng>,
    /// Names of commands, for `!name`.
    commands: Mutex<Vec<String>>,
    /// Response addresses of slash commands by conversation, with their expiry.
    responses: Mutex<HashMap<String, (String, f64)>>,
}

impl SlackShared {
    fn responses(&self) -> MutexGuard<'_, HashMap<String, (String, f64)>> {
        self.responses
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    fn knows_command(&self, name: &str) -> bool {
        const ALWAYS: [&str; 8] = [
            "help", "new", "reset", "stop", "status", "approve", "deny", "restart",
        ];
        let commands = self.commands.lock().unwrap_or_else(PoisonError::into_inner);
        ALWAYS.contains(&name) || commands.iter().any(|command| command == name)
    }
}

/// The configured adapter; `None`: no token.
pub fn platform(
    settings: &PlatformSettings,
    home: &Path,
    clock: Arc<dyn Clock>,
    rng: Arc<dyn Rng>,
) -> Result<Option<Platform>, SlackSettingsError> {
    let Some(settings) = SlackSettings::read(settings, home)? else {
        return Ok(None);
    };
    platform_with(settings, home, clock, rng, SlackTiming::default()).map(Some)
}

/// The same from settings that were read, in other timing.
pub fn platform_with(
    settings: SlackSettings,
    home: &Path,
    clock: Arc<dyn Clock>,
    rng: Arc<dyn Rng>,
    timing: SlackTiming,
) -> Result<Platform, SlackSettingsError> {
    let http = PlatformHttp::new(&settings.env, None);
    let api = SlackApi::new(&settings.base_url, http.clone(), timing.call)?;
    let exclusive = Some(settings.app_token.clone());
    let shared = Arc::new(SlackShared {
        teams: SlackTeams::new(&settings.bot_tokens),
        memory: SlackMemory::open(home.join("state/slack.json")),
        http,
        api,
        settings,
        timing,
        clock,
        rng,
        commands: Mutex::default(),
        responses: Mutex::default(),
    });
    Ok(Platform {
        name: NAME,
        account: String::new(),
        exclusive,
        inbound: Box::new(link::SlackReceiver::new(Arc::clone(&shared))),
        outbound: Arc::new(outbound::SlackSender::new(shared)),
    })
}

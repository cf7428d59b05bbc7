//! Slack, by Socket Mode and the Web API.
//!
//! One connection brings what is said in every workspace that has the app; what is sent leaves
//! through the workspace that the conversation belongs to. An envelope is acknowledged after its
//! message is stored. A message that may or may not have arrived is looked for by the key that
//! every message of ours carries in its metadata.
//!
//! | module | what it does |
//! |---|---|
//! | [`settings`] | what the home says |
//! | `api` | calls of the Web API, and what their failures mean |
//! | `team` | workspaces: who we are there, which conversation is whose, names of people |
//! | `memory` | what must survive a restart: threads that we are in, conversations, the last sign of life |
//! | `socket`, `link` | one connection; connections one after the other, for ever |
//! | `message`, `text`, `intake`, `interact`, `missed` | from events to messages, and what no event told us of |
//! | `outbound`, `files`, `blocks`, `look` | from messages to calls |

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
pub use settings::{SlackSettings, SlackSettingsError};

use super::http::PlatformHttp;
use crate::platform::Platform;
use crate::settings::PlatformSettings;
use api::SlackApi;
use memory::SlackMemory;
use team::SlackTeams;

/// The name in sessions, settings and files.
pub(crate) const NAME: &str = "slack";

/// How patient the adapter is.
#[derive(Clone, Copy, Debug)]
pub struct SlackTiming {
    /// One call of the Web API.
    pub call: Duration,
    /// Sending or fetching a file.
    pub transfer: Duration,
    /// From the beginning of a connection to its hello.
    pub hello: Duration,
    /// How often a connection is asked whether it lives.
    pub ping: Duration,
    /// A connection that says nothing for this long is dead.
    pub silence: Duration,
    /// How long a connection that will end may go on beside the one that replaces it.
    pub retire: Duration,
    /// The first pause after a failure; it doubles up to the second.
    pub pause: Duration,
    pub longest_pause: Duration,
    /// What may be asked about a message before it is stored: names, earlier replies.
    pub details: Duration,
    /// After an ambiguous send, before history is asked.
    pub grace: Duration,
    /// Slack tries an event for about six minutes; after a longer silence history is asked.
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

/// What both directions share.
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
    /// Where the answer to a slash command can go, by conversation, and until when.
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

/// Slack as the home has it; `None` where there is no token for it.
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

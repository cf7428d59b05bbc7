//! Discord, against the fake that discord.py takes for the real one.

mod hearing;
mod links;
mod missed;
mod once;
mod proxy;
mod speaking;

use std::sync::Arc;
use std::time::Duration;

use hermes_config::Home;
use hermes_core::clock::{SystemClock, SystemRng};
use hermes_core::task;
use hermes_gateway::Pairing;
use hermes_gateway::platforms::HomeAdmission;
use hermes_platforms::discord::{DiscordSettings, DiscordTiming, platform_with};
use hermes_platforms::{
    AdapterLink, Arrival, FatalPlatformError, HealthReporter, IncomingMessage, Markup,
    OutboundAdapter, OutgoingMessage, Platform, PlatformCondition, PlatformDeps, PlatformSettings,
    PlatformState,
};
use hermes_store::delivery::Target;
use hermes_testkit::discord::{BOT, FakeDiscord, TOKEN};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

/// Longer than any test needs.
const PATIENCE: Duration = Duration::from_secs(20);

fn timing() -> DiscordTiming {
    DiscordTiming {
        call: Duration::from_secs(5),
        transfer: Duration::from_secs(5),
        hello: Duration::from_secs(5),
        pause: Duration::from_millis(10),
        longest_pause: Duration::from_millis(50),
        settled: Duration::from_secs(30),
        anew: Duration::from_millis(5),
        details: Duration::from_secs(2),
        thread: Duration::from_secs(2),
        remember: Duration::ZERO,
        remember_news: Duration::ZERO,
    }
}

/// A server with a channel, a person who is on the list and one who is not.
struct DiscordHarness {
    discord: FakeDiscord,
    home: TempDir,
    extra: Value,
    ann: u64,
    stranger: u64,
    room: u64,
}

impl DiscordHarness {
    fn new() -> Self {
        let discord = FakeDiscord::start();
        let ann = discord.user("ann", false);
        Self {
            ann,
            stranger: discord.user("eve", false),
            room: discord.channel("general"),
            home: TempDir::new().unwrap(),
            extra: json!({}),
            discord,
        }
    }

    fn with(extra: Value) -> Self {
        Self {
            extra,
            ..Self::new()
        }
    }

    fn platform(&self) -> Platform {
        let mut from = PlatformSettings {
            name: "discord".to_owned(),
            token: Some(TOKEN.to_owned()),
            ..PlatformSettings::default()
        };
        from.extra = self.extra.as_object().cloned().unwrap_or_default();
        let base = json!(self.discord.api_url());
        from.extra.entry("base_url").or_insert(base);
        let users = ("DISCORD_ALLOWED_USERS".to_owned(), self.ann.to_string());
        from.env.extend([users]);
        let settings = DiscordSettings::from_settings(&from).unwrap();
        let home = Home::at(self.home.path());
        let admission = HomeAdmission {
            platforms: vec![from],
            pairing: Pairing::new(&home, Arc::new(SystemClock)),
        };
        let deps = PlatformDeps {
            home,
            admission: Arc::new(admission),
            clock: Arc::new(SystemClock),
            rng: Arc::new(SystemRng),
        };
        platform_with(settings, &deps, timing()).unwrap()
    }

    fn start(&self) -> RunningAdapter {
        let platform = self.platform();
        let (sender, arrivals) = mpsc::channel(8);
        let (health, condition) = HealthReporter::new();
        let cancel = CancellationToken::new();
        let link = AdapterLink {
            arrivals: sender,
            health,
            cancel: cancel.clone(),
        };
        RunningAdapter {
            arrivals,
            condition,
            cancel,
            task: task::spawn("discord", platform.inbound.run(link)),
            outbound: platform.outbound,
        }
    }

    /// A platform that is connected.
    async fn up(&self) -> RunningAdapter {
        let mut running = self.start();
        soon(running.until(PlatformState::Connected)).await;
        running
    }

    fn mention(&self, text: &str) -> u64 {
        self.discord
            .say(self.room, self.ann, &format!("<@{BOT}> {text}"))
    }
}

/// A platform that receives.
struct RunningAdapter {
    arrivals: mpsc::Receiver<Arrival>,
    condition: watch::Receiver<PlatformCondition>,
    cancel: CancellationToken,
    task: JoinHandle<Result<Result<(), FatalPlatformError>, task::Panicked>>,
    outbound: Arc<dyn OutboundAdapter>,
}

impl RunningAdapter {
    /// The next message, not stored yet.
    async fn arrival(&mut self) -> Arrival {
        soon(self.arrivals.recv()).await.expect("a message")
    }

    /// The next message, stored.
    async fn next(&mut self) -> IncomingMessage {
        let arrival = self.arrival().await;
        arrival.stored.send(true).unwrap();
        arrival.message
    }

    async fn until(&mut self, state: PlatformState) -> PlatformCondition {
        let reached = self.condition.wait_for(|now| now.state == state).await;
        reached.unwrap().clone()
    }

    async fn stop(self) -> Result<(), FatalPlatformError> {
        self.cancel.cancel();
        soon(self.task).await.unwrap().unwrap()
    }

    async fn ended(self) -> Result<(), FatalPlatformError> {
        soon(self.task).await.unwrap().unwrap()
    }
}

/// Fails a test that waits for something that does not come.
async fn soon<T>(work: impl Future<Output = T>) -> T {
    tokio::time::timeout(PATIENCE, work).await.expect("in time")
}

fn target(channel: u64) -> Target {
    Target {
        platform: "discord".to_owned(),
        account: String::new(),
        chat_id: channel.to_string(),
        thread_id: None,
    }
}

fn outgoing(channel: u64, key: &str, text: &str) -> OutgoingMessage {
    OutgoingMessage {
        key: format!("{key:0>24}"),
        target: target(channel),
        text: text.to_owned(),
        markup: Markup::Discord,
        reply_to: None,
        media: None,
        buttons: Vec::new(),
    }
}

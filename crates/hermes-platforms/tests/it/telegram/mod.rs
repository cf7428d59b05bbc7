//! Telegram, against the fake that two SDKs of others take for the real one.

mod markup;
mod receive;
mod restarts;
mod send;
mod webhook;

use std::sync::Arc;
use std::time::Duration;

use hermes_core::clock::{SystemClock, SystemRng};
use hermes_core::task;
use hermes_platforms::{
    AdapterLink, Arrival, FatalPlatformError, HealthReporter, IncomingMessage, Markup,
    OutboundAdapter, OutgoingMessage, Platform, PlatformCondition, PlatformSettings, PlatformState,
    telegram,
};
use hermes_store::delivery::Target;
use hermes_testkit::telegram::{FakeTelegram, TOKEN};
use serde_json::{Value, json};
use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

/// Longer than any test needs.
const PATIENCE: Duration = Duration::from_secs(20);

const ADA: i64 = 7;
const GROUP: i64 = -50;

fn telegram_with_people() -> FakeTelegram {
    let telegram = FakeTelegram::start();
    telegram.person(ADA, "Ada");
    telegram.group(GROUP, "Club", "group");
    telegram
}

fn settings(telegram: &FakeTelegram, extra: &Value) -> PlatformSettings {
    let mut all = json!({"base_url": telegram.base_url()});
    for (name, value) in extra.as_object().into_iter().flatten() {
        all[name] = value.clone();
    }
    PlatformSettings {
        name: "telegram".to_owned(),
        token: Some(TOKEN.to_owned()),
        extra: all.as_object().cloned().unwrap_or_default(),
        ..PlatformSettings::default()
    }
}

fn platform(telegram: &FakeTelegram, extra: &Value) -> Platform {
    let settings = settings(telegram, extra);
    telegram::platform(&settings, Arc::new(SystemClock), Arc::new(SystemRng)).unwrap()
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
    fn start(telegram: &FakeTelegram, extra: &Value) -> Self {
        let platform = platform(telegram, extra);
        let (sender, arrivals) = mpsc::channel(8);
        let (health, condition) = HealthReporter::new();
        let cancel = CancellationToken::new();
        let link = AdapterLink {
            arrivals: sender,
            health,
            cancel: cancel.clone(),
        };
        Self {
            arrivals,
            condition,
            cancel,
            task: task::spawn("telegram", platform.inbound.run(link)),
            outbound: platform.outbound,
        }
    }

    /// The next message, not stored yet.
    async fn arrival(&mut self) -> Arrival {
        self.arrivals.recv().await.expect("a message")
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
        self.task.await.unwrap().unwrap()
    }
}

/// Fails a test that waits for something that does not come.
async fn soon<T>(work: impl Future<Output = T>) -> T {
    tokio::time::timeout(PATIENCE, work).await.expect("in time")
}

/// Time stands still until the test moves it, though sockets are real: with nothing to do but wait
/// for one, tokio would move its clock by itself; a blocking task that runs forbids that.
struct FixedClock(
    #[expect(dead_code, reason = "dropping it ends the blocking task")] std::sync::mpsc::Sender<()>,
);

impl FixedClock {
    fn new() -> Self {
        tokio::time::pause();
        let (release, held) = std::sync::mpsc::channel();
        tokio::task::spawn_blocking(move || held.recv());
        Self(release)
    }
}

fn target(chat: i64) -> Target {
    Target {
        platform: "telegram".to_owned(),
        account: String::new(),
        chat_id: chat.to_string(),
        thread_id: None,
    }
}

fn outgoing(chat: i64, text: &str) -> OutgoingMessage {
    OutgoingMessage {
        key: "0123456789abcdef01234567".to_owned(),
        target: target(chat),
        text: text.to_owned(),
        markup: Markup::Plain,
        reply_to: None,
        media: None,
        buttons: Vec::new(),
    }
}

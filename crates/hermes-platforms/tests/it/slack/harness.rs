//! A run of the adapter over a real store.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use hermes_core::clock::{SystemClock, SystemRng};
use hermes_core::task;
use hermes_gateway::MessageInbox;
use hermes_gateway::SessionSharing;
use hermes_platforms::slack::{SlackSettings, SlackTiming, platform_with};
use hermes_platforms::{
    AdapterLink, Arrival, FatalPlatformError, HealthReporter, IncomingMessage, Markup,
    OutboundAdapter, OutgoingMessage, PlatformCondition, PlatformSettings, PlatformState,
};
use hermes_store::Store;
use hermes_store::delivery::{Accepted, Delivery, Owner, Processes, Target};
use hermes_testkit::slack::{APP_TOKEN, FakeSlack};
use tempfile::TempDir;
use tokio::sync::{mpsc, watch};
use tokio_util::sync::CancellationToken;

/// Much longer than anything takes; nothing waits for it to pass.
pub(crate) const PATIENCE: Duration = Duration::from_secs(20);

pub(crate) fn timing() -> SlackTiming {
    SlackTiming {
        call: Duration::from_secs(5),
        transfer: Duration::from_secs(5),
        hello: Duration::from_secs(5),
        ping: Duration::from_millis(50),
        silence: Duration::from_millis(600),
        retire: Duration::from_secs(1),
        pause: Duration::from_millis(10),
        longest_pause: Duration::from_millis(100),
        details: Duration::from_secs(5),
        grace: Duration::ZERO,
        gap: Duration::from_hours(1),
    }
}

pub(crate) struct SlackHarness {
    pub slack: FakeSlack,
    pub home: TempDir,
    pub timing: SlackTiming,
    pub tokens: Vec<&'static str>,
    pub vars: Vec<(&'static str, &'static str)>,
    lives: u32,
}

impl SlackHarness {
    /// One workspace with alice, bob, a direct conversation of alice and a channel.
    pub(crate) fn new() -> Self {
        let slack = FakeSlack::start();
        slack.add_user("T1", "U1", "alice");
        slack.add_user("T1", "U2", "bob");
        slack.add_channel("T1", "D1", "im");
        slack.add_channel("T1", "C1", "channel");
        slack.retry_after(Duration::from_millis(300));
        Self {
            slack,
            home: TempDir::new().unwrap(),
            timing: timing(),
            tokens: vec!["xoxb-T1"],
            vars: Vec::new(),
            lives: 0,
        }
    }

    pub(crate) fn settings(&self) -> SlackSettings {
        let mut settings = PlatformSettings {
            name: "slack".to_owned(),
            ..PlatformSettings::default()
        };
        let tokens = self.tokens.join(",");
        let url = self.slack.api_url();
        let given = [
            ("SLACK_BOT_TOKEN", tokens.as_str()),
            ("SLACK_APP_TOKEN", APP_TOKEN),
            ("SLACK_BASE_URL", url.as_str()),
        ];
        for (name, value) in given.into_iter().chain(self.vars.iter().copied()) {
            settings.env.insert(name.to_owned(), value.to_owned());
        }
        SlackSettings::read(&settings, self.home.path())
            .unwrap()
            .unwrap()
    }

    /// Starts a run, and waits until it is connected.
    pub(crate) async fn live(&mut self) -> RunningAdapter {
        let life = self.begin().await;
        life.connected().await;
        life
    }

    pub(crate) async fn begin(&mut self) -> RunningAdapter {
        self.lives += 1;
        let delivery = delivery(self.home.path(), self.lives).await;
        let platform = platform_with(
            self.settings(),
            self.home.path(),
            Arc::new(SystemClock),
            Arc::new(SystemRng),
            self.timing,
        )
        .unwrap();
        let (arrivals, mut coming) = mpsc::channel::<Arrival>(8);
        let (health, condition) = HealthReporter::new();
        let cancel = CancellationToken::new();
        let link = AdapterLink {
            arrivals,
            health,
            cancel: cancel.clone(),
        };
        let inbound = task::spawn("inbound", platform.inbound.run(link));
        let (tell, heard) = mpsc::channel(1000);
        let inbox = MessageInbox::new(delivery.clone(), SessionSharing::default());
        let storing = task::spawn("inbox", async move {
            while let Some(arrival) = coming.recv().await {
                let accepted = inbox.store(&arrival.message).await.unwrap();
                let _ = arrival.stored.send(true);
                if matches!(accepted, Accepted::New(_)) {
                    tell.send(arrival.message).await.unwrap();
                }
            }
        });
        RunningAdapter {
            outbound: platform.outbound,
            delivery,
            heard,
            condition,
            cancel,
            inbound,
            storing,
        }
    }
}

struct NoProcesses;

impl Processes for NoProcesses {
    fn alive(&self, _: u32, _: Option<i64>) -> bool {
        false
    }
}

async fn delivery(home: &Path, life: u32) -> Delivery {
    let store = Store::open(home.join("state.db"), Arc::new(SystemClock)).unwrap();
    let owner = Owner {
        pid: life,
        started_at: Some(1),
        instance: format!("life {life}"),
    };
    let owned = store.own_delivery(owner, Duration::from_mins(1), Arc::new(NoProcesses));
    owned.await.unwrap().0
}

type Inbound = tokio::task::JoinHandle<Result<Result<(), FatalPlatformError>, task::Panicked>>;

pub(crate) struct RunningAdapter {
    pub outbound: Arc<dyn OutboundAdapter>,
    pub delivery: Delivery,
    heard: mpsc::Receiver<IncomingMessage>,
    condition: watch::Receiver<PlatformCondition>,
    cancel: CancellationToken,
    inbound: Inbound,
    storing: tokio::task::JoinHandle<Result<(), task::Panicked>>,
}

impl RunningAdapter {
    pub(crate) async fn connected(&self) {
        let mut condition = self.condition.clone();
        let connected = condition.wait_for(|now| now.state == PlatformState::Connected);
        soon(connected).await.unwrap();
    }

    /// The next new message.
    pub(crate) async fn hear(&mut self) -> IncomingMessage {
        soon(self.heard.recv()).await.expect("a message")
    }

    /// Everything new that was heard and nobody asked for yet.
    pub(crate) fn rest(&mut self) -> Vec<String> {
        let mut rest = Vec::new();
        while let Ok(message) = self.heard.try_recv() {
            rest.push(message.text);
        }
        rest
    }

    pub(crate) async fn end(self) {
        self.cancel.cancel();
        soon(self.inbound).await.unwrap().unwrap().unwrap();
        self.storing.abort();
    }

    /// As a process that is killed.
    pub(crate) async fn kill(self) {
        self.inbound.abort();
        self.storing.abort();
        // Both end at their next step; what they were is of no interest.
        let _ = tokio::join!(self.inbound, self.storing);
    }

    /// How it gave up.
    pub(crate) async fn hopeless(self) -> String {
        let ended = soon(self.inbound).await.unwrap().unwrap();
        ended.unwrap_err().to_string()
    }
}

pub(crate) async fn soon<T>(what: impl Future<Output = T>) -> T {
    let done = tokio::time::timeout(PATIENCE, what).await;
    done.expect("it happens soon")
}

/// A message to a conversation, or to a thread of it.
pub(crate) fn outgoing(channel: &str, thread: Option<&str>, text: &str) -> OutgoingMessage {
    OutgoingMessage {
        key: format!("{:0>24}", text.len()),
        target: Target {
            platform: "slack".to_owned(),
            account: String::new(),
            chat_id: channel.to_owned(),
            thread_id: thread.map(str::to_owned),
        },
        text: text.to_owned(),
        markup: Markup::SlackMrkdwn,
        reply_to: None,
        media: None,
        buttons: Vec::new(),
    }
}

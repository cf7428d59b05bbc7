//! A day on which nobody writes: what keeps the gateway alive beats as configured, and nothing else
//! happens or grows.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use hermes_app::front::{OpenedConversation, Refusal, RefusalKind};
use hermes_app::wiring::unattended::CommandOutput;
use hermes_config::env::ProcessEnv;
use hermes_config::{Config, Env, Home};
use hermes_core::BoxFuture;
use hermes_core::ids::SessionId;
use hermes_core::store::StoreError;
use hermes_core::task;
use hermes_gateway::authorize::pairing::Pairing;
use hermes_gateway::gateway::{Calls, Deps, Gateway};
use hermes_gateway::platform::{Hopeless, Inbound, Link, Offer, Platform, Recourse};
use hermes_gateway::program::{ConversationHost, Opening, Script};
use hermes_gateway::seats::{Bounds, Seats};
use hermes_gateway::settings::GatewaySettings;
use hermes_gateway::spine::Ledger;
use hermes_store::Store;
use hermes_store::db::delivery::{
    Accepted, Due, Final, Foreign, Inbound as Stored, NewChunk, Processes, Progress, Settled,
    Spoken, StoredQuestion, Waiting,
};
use hermes_testkit::clock::{ManualClock, SeqRng};
use tempfile::TempDir;
use tokio_util::sync::CancellationToken;

use crate::world::{FakePlatform, Fuse};

const LEASE: Duration = Duration::from_mins(1);
const DAY: Duration = Duration::from_hours(24);

/// A ledger in which nothing is, and how often it was asked. Everything else is a surprise. It has
/// no thread of its own: virtual time does not wait for another thread.
#[derive(Clone, Default)]
struct Empty {
    asked: Arc<Mutex<BTreeMap<&'static str, usize>>>,
}

impl Empty {
    fn count(&self, what: &'static str) {
        *self.asked.lock().unwrap().entry(what).or_default() += 1;
    }

    fn surprise<T>(&self, what: &'static str) -> Result<T, StoreError> {
        self.count(what);
        Err(StoreError::Invalid(format!("{what}: nobody wrote")))
    }
}

impl Ledger for Empty {
    async fn open_after(&self, _: i64, _: usize) -> Result<Vec<(i64, String)>, StoreError> {
        self.count("open_after");
        Ok(Vec::new())
    }

    async fn due(&self, _: Vec<(String, String)>, _: usize) -> Result<Due, StoreError> {
        self.count("due");
        Ok(Due {
            chunks: Vec::new(),
            next_at: None,
        })
    }

    async fn foreign(&self, _: Arc<dyn Processes>) -> Result<Vec<Foreign>, StoreError> {
        self.count("foreign");
        Ok(Vec::new())
    }

    async fn heartbeat(&self) -> Result<(), StoreError> {
        self.count("heartbeat");
        Ok(())
    }

    async fn prune(&self) -> Result<usize, StoreError> {
        self.count("prune");
        Ok(0)
    }

    async fn accept(&self, _: Stored) -> Result<Accepted, StoreError> {
        self.surprise("accept")
    }

    async fn waiting(&self, _: usize) -> Result<Vec<Waiting>, StoreError> {
        self.surprise("waiting")
    }

    async fn claim(&self, _: &[i64], _: &str) -> Result<(), StoreError> {
        self.surprise("claim")
    }

    async fn finish(&self, _: Final) -> Result<usize, StoreError> {
        self.surprise("finish")
    }

    async fn begin_send(&self, _: i64) -> Result<(), StoreError> {
        self.surprise("begin_send")
    }

    async fn settle(&self, _: i64, _: Settled) -> Result<(), StoreError> {
        self.surprise("settle")
    }

    async fn waiting_of(&self, _: &str, _: i64, _: usize) -> Result<Vec<Waiting>, StoreError> {
        self.surprise("waiting_of")
    }

    async fn open_messages(&self) -> Result<usize, StoreError> {
        self.surprise("open_messages")
    }

    async fn note(&self, _: i64, _: &str, _: Option<&str>) -> Result<(), StoreError> {
        self.surprise("note")
    }

    async fn notes(&self, _: i64) -> Result<HashMap<String, String>, StoreError> {
        self.surprise("notes")
    }

    async fn progress(&self, _: &SessionId, _: &str) -> Result<Progress, StoreError> {
        self.surprise("progress")
    }

    async fn progress_of(&self, _: &SessionId, _: &str, _: f64) -> Result<Progress, StoreError> {
        self.surprise("progress_of")
    }

    async fn spoken_after(&self, _: &SessionId, _: &str) -> Result<Vec<Spoken>, StoreError> {
        self.surprise("spoken_after")
    }

    async fn spoken_after_words(
        &self,
        _: &SessionId,
        _: &str,
        _: f64,
    ) -> Result<Vec<Spoken>, StoreError> {
        self.surprise("spoken_after_words")
    }

    async fn sent(&self, _: &str) -> Result<Vec<String>, StoreError> {
        self.surprise("sent")
    }

    async fn question(&self, _: &str) -> Result<Option<StoredQuestion>, StoreError> {
        self.surprise("question")
    }

    async fn questions_of(&self, _: &str) -> Result<Vec<StoredQuestion>, StoreError> {
        self.surprise("questions_of")
    }

    async fn answer_question(&self, _: &str, _: &serde_json::Value) -> Result<bool, StoreError> {
        self.surprise("answer_question")
    }

    async fn reopen_question(&self, _: &str) -> Result<(), StoreError> {
        self.surprise("reopen_question")
    }

    async fn adopt(&self, _: Foreign, _: Vec<NewChunk>) -> Result<usize, StoreError> {
        self.surprise("adopt")
    }
}

struct NobodyTalks;

impl ConversationHost for NobodyTalks {
    fn ready(&self) -> Result<(), Refusal> {
        Ok(())
    }

    fn open(&self, _: Opening) -> BoxFuture<'_, Result<OpenedConversation, Refusal>> {
        let refusal = Refusal::new(RefusalKind::Failed, "nobody wrote");
        Box::pin(std::future::ready(Err(refusal)))
    }

    fn script(&self, _: Script) -> BoxFuture<'_, Result<CommandOutput, Refusal>> {
        let refusal = Refusal::new(RefusalKind::Failed, "there are no scripts");
        Box::pin(std::future::ready(Err(refusal)))
    }

    fn commands(&self) -> Vec<Offer> {
        Vec::new()
    }
}

/// A platform on which nothing happens.
struct Silent;

impl Inbound for Silent {
    fn run(self: Box<Self>, link: Link) -> BoxFuture<'static, Result<(), Hopeless>> {
        Box::pin(async move {
            link.health.received(1.0);
            link.cancel.cancelled().await;
            Ok(())
        })
    }
}

async fn gateway(dir: &TempDir, ledger: Empty, cancel: &CancellationToken) -> Gateway<Empty> {
    let home = Home::at(dir.path());
    let env = Env::from_process(&ProcessEnv::from_vars([("FAKE_ALLOW_ALL_USERS", "true")]));
    let loaded = Config::load(&home, &env).unwrap();
    let clock = Arc::new(ManualClock::default());
    let deps = Deps {
        settings: Arc::new(GatewaySettings::load(&home, loaded, &env).unwrap()),
        store: Store::open(dir.path().join("state.db"), clock.clone()).unwrap(),
        ledger,
        lease: LEASE,
        seats: Seats::new(Arc::new(NobodyTalks), Bounds::default(), cancel.clone()),
        pairing: Pairing::new(&home, clock.clone()),
        clock,
        rng: Arc::new(SeqRng::new(1)),
        transcriber: None,
        speaker: None,
        calls: Calls::default(),
    };
    Gateway::new(deps).await.unwrap()
}

fn files(dir: &std::path::Path) -> Vec<(std::path::PathBuf, u64)> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(dir).unwrap().flatten() {
        let about = entry.metadata().unwrap();
        if about.is_dir() {
            found.extend(files(&entry.path()));
        } else {
            found.push((entry.path(), about.len()));
        }
    }
    found.sort();
    found
}

#[tokio::test]
async fn a_day_without_a_message_leaves_nothing_behind() {
    let dir = TempDir::new().unwrap();
    std::fs::write(dir.path().join("config.yaml"), "").unwrap();
    let (ledger, cancel) = (Empty::default(), CancellationToken::new());
    let gateway = gateway(&dir, ledger.clone(), &cancel).await;
    let recourse = Recourse::Mark;
    let platform = Platform {
        name: "fake",
        account: String::new(),
        exclusive: None,
        inbound: Box::new(Silent),
        outbound: Arc::new(FakePlatform::new(Arc::default(), Fuse::new(1), recourse)),
    };
    // The store has opened; from here on nothing waits for another thread.
    tokio::time::pause();
    let (running, token) = (gateway.clone(), cancel.clone());
    let ended = task::spawn("gateway", async move {
        running
            .run(vec![platform], Vec::new(), token)
            .await
            .unwrap();
    });
    tokio::time::sleep(LEASE).await;
    let metrics = tokio::runtime::Handle::current().metrics();
    let asked = || ledger.asked.lock().unwrap().clone();
    let look = || {
        (
            metrics.num_alive_tasks(),
            gateway.status(),
            files(dir.path()),
        )
    };
    let (before, parked, asked_before) = (look(), metrics.worker_park_count(0), asked());

    tokio::time::sleep(DAY).await;

    assert_eq!(look(), before);
    let mut expected = asked_before.clone();
    *expected.entry("heartbeat").or_default() += 24 * 60 * 3;
    *expected.entry("prune").or_default() += 24;
    assert_eq!(asked(), expected);
    // It woke for its beats and its housekeeping, and for nothing else; a long sleep takes the timer
    // of the runtime a few looks.
    let woke = metrics.worker_park_count(0) - parked;
    assert!(woke <= 10 * (24 * 60 * 3 + 24), "{woke}");
    cancel.cancel();
    ended.await.unwrap().unwrap();
}

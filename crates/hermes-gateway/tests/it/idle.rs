//! A day on which nobody writes: what keeps the gateway alive beats as configured, and nothing else
//! happens or grows.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use hermes_app::wiring::CommandOutput;
use hermes_app::{
    ConversationHost, HomeScript, HostError, HostErrorKind, OpenedConversation, OpeningRequest,
};
use hermes_config::env::ProcessEnv;
use hermes_config::{Config, Env, Home};
use hermes_core::BoxFuture;
use hermes_core::store::StoreError;
use hermes_core::task;
use hermes_gateway::GatewaySettings;
use hermes_gateway::Pairing;
use hermes_gateway::{ConversationPool, PoolLimits};
use hermes_gateway::{Gateway, GatewayCallbacks, GatewayDeps};
use hermes_platforms::{
    AdapterLink, FatalPlatformError, InboundAdapter, Offer, Platform, Recourse,
};
use hermes_store::Store;
use hermes_store::delivery::{DeliveryAccess, DeliveryHook, Owner, Processes};
use hermes_testkit::clock::{ManualClock, SeqRng};
use tempfile::TempDir;
use tokio_util::sync::CancellationToken;

use crate::harness::{FakePlatform, Fuse};

const LEASE: Duration = Duration::from_mins(1);
const HOUR: Duration = Duration::from_hours(1);
const DAY: Duration = Duration::from_hours(24);

/// How often the database was used, and for what. Virtual time stands still meanwhile: it would not wait
/// for the thread that writes.
#[derive(Default)]
struct Counted {
    accesses: Mutex<BTreeMap<&'static str, usize>>,
    /// One for each access that has begun. A blocking task holds virtual time until its sender is gone.
    holds: Mutex<Vec<std::sync::mpsc::Sender<()>>>,
}

impl Counted {
    fn accesses(&self) -> BTreeMap<&'static str, usize> {
        self.accesses.lock().unwrap().clone()
    }
}

impl DeliveryHook for Counted {
    fn before(&self, access: DeliveryAccess) -> BoxFuture<'_, Result<(), StoreError>> {
        let (DeliveryAccess::Read(what) | DeliveryAccess::Write(what)) = access;
        *self.accesses.lock().unwrap().entry(what).or_default() += 1;
        let (hold, held) = std::sync::mpsc::channel();
        self.holds.lock().unwrap().push(hold);
        drop(tokio::task::spawn_blocking(move || held.recv()));
        Box::pin(std::future::ready(Ok(())))
    }

    fn after(&self, _: DeliveryAccess) -> BoxFuture<'_, ()> {
        // Any of them will do: the clock advances when none is left.
        drop(self.holds.lock().unwrap().pop());
        Box::pin(std::future::ready(()))
    }
}

struct NoOtherProcesses;

impl Processes for NoOtherProcesses {
    fn alive(&self, _: u32, _: Option<i64>) -> bool {
        false
    }
}

struct NoConversations;

impl ConversationHost for NoConversations {
    fn ready(&self) -> Result<(), HostError> {
        Ok(())
    }

    fn open(&self, _: OpeningRequest) -> BoxFuture<'_, Result<OpenedConversation, HostError>> {
        let refusal = HostError::new(HostErrorKind::Failed, "nobody wrote");
        Box::pin(std::future::ready(Err(refusal)))
    }

    fn script(&self, _: HomeScript) -> BoxFuture<'_, Result<CommandOutput, HostError>> {
        let refusal = HostError::new(HostErrorKind::Failed, "there are no scripts");
        Box::pin(std::future::ready(Err(refusal)))
    }

    fn commands(&self) -> Vec<Offer> {
        Vec::new()
    }
}

/// A platform on which nothing happens.
struct Silent;

impl InboundAdapter for Silent {
    fn run(
        self: Box<Self>,
        link: AdapterLink,
    ) -> BoxFuture<'static, Result<(), FatalPlatformError>> {
        Box::pin(async move {
            link.health.received(1.0);
            link.cancel.cancelled().await;
            Ok(())
        })
    }
}

async fn gateway(dir: &TempDir, hook: Arc<Counted>, cancel: &CancellationToken) -> Gateway {
    let home = Home::at(dir.path());
    let env = Env::from_process(&ProcessEnv::from_vars([("FAKE_ALLOW_ALL_USERS", "true")]));
    let loaded = Config::load(&home, &env).unwrap();
    let clock = Arc::new(ManualClock::default());
    let store = Store::open(dir.path().join("state.db"), clock.clone()).unwrap();
    let owner = Owner {
        pid: 1,
        started_at: None,
        instance: "only".to_owned(),
    };
    let owned = store.own_delivery(owner, LEASE, Arc::new(NoOtherProcesses));
    let (delivery, _) = owned.await.unwrap();
    let deps = GatewayDeps {
        settings: Arc::new(GatewaySettings::load(&home, loaded, &env).unwrap()),
        store,
        delivery: delivery.with_hook(hook),
        lease: LEASE,
        pool: ConversationPool::new(
            Arc::new(NoConversations),
            PoolLimits::default(),
            cancel.clone(),
        ),
        pairing: Pairing::new(&home, clock.clone()),
        clock,
        rng: Arc::new(SeqRng::new(1)),
        transcriber: None,
        speaker: None,
        callbacks: GatewayCallbacks::default(),
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
    let (counted, cancel) = (Arc::<Counted>::default(), CancellationToken::new());
    let gateway = gateway(&dir, Arc::clone(&counted), &cancel).await;
    let recourse = Recourse::Mark;
    let platform = Platform {
        name: "fake",
        account: String::new(),
        exclusive: None,
        inbound: Box::new(Silent),
        outbound: Arc::new(FakePlatform::new(Arc::default(), Fuse::new(1), recourse)),
    };
    // The store has opened; from here on time waits for what it does.
    tokio::time::pause();
    let (running, token) = (gateway.clone(), cancel.clone());
    let ended = task::spawn("gateway", async move {
        running
            .run(vec![platform], Vec::new(), token)
            .await
            .unwrap();
    });
    // Long enough for the log of the database to be written from its beginning again, and between two
    // heartbeats.
    tokio::time::sleep(2 * HOUR + LEASE / 6).await;
    let metrics = tokio::runtime::Handle::current().metrics();
    let look = || {
        (
            metrics.num_alive_tasks(),
            gateway.status(),
            files(dir.path()),
        )
    };
    let (before, parked, mut expected) = (look(), metrics.worker_park_count(0), counted.accesses());

    tokio::time::sleep(DAY).await;

    assert_eq!(look(), before);
    *expected.get_mut("heartbeat of delivery").unwrap() += 24 * 60 * 3;
    *expected.get_mut("forgetting what was delivered").unwrap() += 24;
    assert_eq!(counted.accesses(), expected);
    // It woke for its beats and its housekeeping, and for nothing else; a long sleep takes the timer
    // of the runtime a few looks.
    let woke = metrics.worker_park_count(0) - parked;
    assert!(woke <= 10 * (24 * 60 * 3 + 24), "{woke}");
    cancel.cancel();
    ended.await.unwrap().unwrap();
}

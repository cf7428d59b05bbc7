use std::collections::HashMap;

use hermes_config::{Env, Home, ProcessEnv};
use hermes_core::BoxFuture;
use hermes_core::clock::{SystemClock, SystemRng};
use pretty_assertions::assert_eq;
use serde_json::{Value, json};
use tokio::time::sleep;

use super::*;
use crate::actor::op::{Op, OpOutput};
use crate::config;
use crate::failure::{Certainty, FailureClass, McpFailure};
use crate::transport::link::{ConnectRequest, Era, Link, LinkCall, LinkFacts};

/// How the test servers react to a connect, by name.
type ConnectBehaviours = Arc<Mutex<HashMap<String, ConnectBehaviour>>>;

#[derive(Clone)]
enum ConnectBehaviour {
    UpAfter(Duration),
    FailsAfter(Duration),
    /// Accepts and never answers.
    BlackHole,
}

struct Fake {
    name: String,
    behaviours: ConnectBehaviours,
}

impl Connector for Fake {
    fn connect(&self, _: ConnectRequest) -> BoxFuture<'_, Result<Arc<dyn Link>, McpFailure>> {
        let behaviour = self.behaviours.lock().unwrap()[&self.name].clone();
        Box::pin(async move {
            match behaviour {
                ConnectBehaviour::UpAfter(time) => sleep(time).await,
                ConnectBehaviour::BlackHole => std::future::pending().await,
                ConnectBehaviour::FailsAfter(time) => {
                    sleep(time).await;
                    let class = FailureClass::NotSent;
                    return Err(McpFailure::new(class, Certainty::NotSent, "refused"));
                }
            }
            Ok(Arc::new(FakeLink::new()) as Arc<dyn Link>)
        })
    }
}

struct FakeLink(LinkFacts);

impl FakeLink {
    fn new() -> Self {
        Self(LinkFacts {
            era: Era::Legacy,
            protocol_version: "2025-11-25".to_owned(),
            server_name: "fake".to_owned(),
            server_version: "1".to_owned(),
            capabilities: json!({"tools": {}}),
            instructions: None,
            session: false,
            child_pid: None,
            handshake: Duration::ZERO,
        })
    }
}

impl Link for FakeLink {
    fn facts(&self) -> &LinkFacts {
        &self.0
    }

    fn request<'a>(
        &'a self,
        _: &'a Op,
        _: LinkCall,
    ) -> BoxFuture<'a, Result<OpOutput, McpFailure>> {
        let tool = json!({"name": "t", "inputSchema": {"type": "object"}});
        let output = OpOutput {
            result: json!({"tools": [tool]}),
        };
        Box::pin(std::future::ready(Ok(output)))
    }

    fn closed(&self) -> BoxFuture<'_, McpFailure> {
        Box::pin(std::future::pending())
    }

    fn last_activity(&self) -> Instant {
        Instant::now()
    }

    fn close(&self) -> BoxFuture<'_, ()> {
        Box::pin(std::future::ready(()))
    }
}

fn entry(name: &str, more: &Value) -> ServerEntry {
    let mut entry = json!({"url": format!("http://{name}.invalid/mcp"), "connect_timeout": 60});
    for (key, value) in more.as_object().unwrap() {
        entry[key] = value.clone();
    }
    let env = Env::from_process(&ProcessEnv::from_vars([("A", "b")]));
    config::server(name, &entry, &env, &Home::at("/nowhere"))
}

fn entries(names: &[&str]) -> Vec<ServerEntry> {
    names.iter().map(|name| entry(name, &json!({}))).collect()
}

struct TestToolbox {
    toolbox: Toolbox,
    behaviours: ConnectBehaviours,
    _media: tempfile::TempDir,
}

impl TestToolbox {
    fn start(servers: &[(&str, ConnectBehaviour)]) -> Self {
        let behaviours: ConnectBehaviours = Arc::default();
        let names: Vec<&str> = servers.iter().map(|(name, _)| *name).collect();
        for (name, behaviour) in servers {
            behaviours
                .lock()
                .unwrap()
                .insert((*name).to_owned(), behaviour.clone());
        }
        let known = Arc::clone(&behaviours);
        let media = tempfile::tempdir().unwrap();
        let parts = ToolboxParts {
            make_access: Box::new(move |config| {
                Ok(ServerAccess {
                    connector: Arc::new(Fake {
                        name: config.name.clone(),
                        behaviours: Arc::clone(&known),
                    }),
                    oauth: None,
                })
            }),
            media: MediaStore::new(media.path().to_owned()),
            known: KnownTools::default(),
            clock: Arc::new(SystemClock),
            rng: Arc::new(SystemRng),
        };
        Self {
            toolbox: Toolbox::start(entries(&names), parts),
            behaviours,
            _media: media,
        }
    }

    fn set(&self, name: &str, behaviour: ConnectBehaviour) {
        self.behaviours
            .lock()
            .unwrap()
            .insert(name.to_owned(), behaviour);
    }

    fn tools(&self) -> Vec<String> {
        let tools = self.toolbox.tools();
        tools.iter().map(|tool| tool.spec().name.clone()).collect()
    }

    /// The notices of a turn, and how long it waited.
    async fn turn(&self) -> (Vec<String>, Duration) {
        let started = Instant::now();
        let notices = self.toolbox.await_turn(TURN, TURN).await;
        (notices, started.elapsed())
    }
}

const TURN: Duration = Duration::from_millis(300);
const BLACK_HOLES: [&str; 12] = [
    "h01", "h02", "h03", "h04", "h05", "h06", "h07", "h08", "h09", "h10", "h11", "h12",
];

fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

fn with_holes(server: (&'static str, ConnectBehaviour)) -> Vec<(&'static str, ConnectBehaviour)> {
    let holes = BLACK_HOLES
        .iter()
        .map(|name| (*name, ConnectBehaviour::BlackHole));
    std::iter::once(server).chain(holes).collect()
}

#[tokio::test(start_paused = true)]
async fn a_turn_waits_for_slow_servers_once_and_says_so_once() {
    let test = TestToolbox::start(&[
        ("quick", ConnectBehaviour::UpAfter(ms(100))),
        ("slow", ConnectBehaviour::UpAfter(ms(4000))),
        ("down", ConnectBehaviour::FailsAfter(ms(50))),
    ]);
    let (notices, took) = test.turn().await;
    assert_eq!(took, TURN);
    assert_eq!(
        notices,
        [
            "MCP server slow is still starting; its tools join as soon as it is ready",
            "MCP server down is not there yet (refused); it is tried again, and its tools join \
             as soon as it is ready",
        ]
    );
    assert_eq!(test.tools(), ["mcp__quick__t"]);
    assert_eq!(test.turn().await, (Vec::new(), Duration::ZERO));
    sleep(ms(4000)).await;
    assert_eq!(test.tools(), ["mcp__quick__t", "mcp__slow__t"]);
}

#[tokio::test(start_paused = true)]
async fn a_turn_goes_on_as_soon_as_all_are_ready() {
    let test = TestToolbox::start(&[
        ("a", ConnectBehaviour::UpAfter(ms(20))),
        ("b", ConnectBehaviour::UpAfter(ms(40))),
    ]);
    let (notices, took) = test.turn().await;
    assert_eq!(notices, [""; 0]);
    assert!(took < ms(100), "{took:?}");
    assert_eq!(test.tools().len(), 2);
}

#[tokio::test(start_paused = true)]
async fn sessions_that_begin_together_wait_together() {
    let test = TestToolbox::start(&[("hole", ConnectBehaviour::BlackHole)]);
    let started = Instant::now();
    let (one, other) = tokio::join!(test.turn(), async {
        sleep(ms(200)).await;
        test.turn().await
    });
    assert_eq!(started.elapsed(), TURN);
    assert_eq!(one.0.len() + other.0.len(), 1, "told once");
}

#[tokio::test(start_paused = true)]
async fn a_server_that_was_parked_and_one_that_starts_share_the_wait() {
    let test = TestToolbox::start(&[("down", ConnectBehaviour::FailsAfter(ms(1)))]);
    sleep(Duration::from_mins(2)).await;
    let state = test
        .toolbox
        .server("down")
        .unwrap()
        .connection_status()
        .state;
    assert_eq!(state.name(), "parked");
    test.set("down", ConnectBehaviour::UpAfter(ms(250)));
    test.set("hole", ConnectBehaviour::BlackHole);
    test.toolbox.apply(entries(&["down", "hole"]));
    let (notices, took) = test.turn().await;
    assert_eq!(took, TURN);
    assert_eq!(test.tools(), ["mcp__down__t"]);
    assert_eq!(notices.len(), 1, "{notices:?}");
}

#[tokio::test(start_paused = true)]
async fn an_added_server_is_in_the_turn_that_notices_it() {
    let test = TestToolbox::start(&[("a", ConnectBehaviour::UpAfter(ms(10)))]);
    test.turn().await;
    test.set("b", ConnectBehaviour::UpAfter(ms(200)));
    test.toolbox.apply(entries(&["a", "b"]));
    let (notices, took) = test.turn().await;
    assert_eq!(notices, [""; 0]);
    assert!(took >= ms(200) && took < TURN, "{took:?}");
    assert_eq!(test.tools(), ["mcp__a__t", "mcp__b__t"]);
}

#[tokio::test(start_paused = true)]
async fn a_server_that_is_switched_on_is_in_the_turn_that_notices_it() {
    let test = TestToolbox::start(&[("a", ConnectBehaviour::UpAfter(ms(10)))]);
    test.turn().await;
    test.toolbox
        .apply(vec![entry("a", &json!({"enabled": false}))]);
    assert_eq!(test.turn().await, (Vec::new(), Duration::ZERO));
    assert_eq!(test.tools(), [""; 0]);
    test.toolbox.apply(entries(&["a"]));
    let (_, took) = test.turn().await;
    assert!(took < TURN, "{took:?}");
    assert_eq!(test.tools(), ["mcp__a__t"]);
}

#[tokio::test(start_paused = true)]
async fn other_filters_are_no_reason_to_wait() {
    let test = TestToolbox::start(&[("a", ConnectBehaviour::UpAfter(ms(10)))]);
    test.turn().await;
    let filtered = entry("a", &json!({"tools": {"exclude": ["x"]}}));
    test.toolbox.apply(vec![filtered]);
    assert_eq!(test.turn().await, (Vec::new(), Duration::ZERO));
}

#[tokio::test(start_paused = true)]
async fn a_run_that_nobody_watches_waits_for_every_server() {
    let test = TestToolbox::start(&[
        ("quick", ConnectBehaviour::UpAfter(ms(10))),
        ("slow", ConnectBehaviour::UpAfter(ms(4000))),
        ("down", ConnectBehaviour::FailsAfter(ms(50))),
    ]);
    let started = Instant::now();
    let waiting = test.toolbox.await_all();
    tokio::pin!(waiting);
    tokio::select! {
        _ = &mut waiting => panic!("it did not wait"),
        () = sleep(ms(1500)) => assert_eq!(test.toolbox.awaited(), ["slow"]),
    }
    let notices = waiting.await;
    assert!(started.elapsed() >= ms(4000) && started.elapsed() < ms(4100));
    assert_eq!(test.tools(), ["mcp__quick__t", "mcp__slow__t"]);
    assert_eq!(notices.len(), 1, "{notices:?}");
    assert!(notices[0].contains("down is not there"), "{notices:?}");
}

#[tokio::test(start_paused = true)]
async fn each_server_is_waited_for_as_long_as_its_own_connect_may_take() {
    let test = TestToolbox::start(&[("slow", ConnectBehaviour::UpAfter(ms(4000)))]);
    test.set("hole", ConnectBehaviour::BlackHole);
    test.toolbox.apply(vec![
        entry("slow", &json!({})),
        entry("hole", &json!({"connect_timeout": 2})),
    ]);
    let started = Instant::now();
    let notices = test.toolbox.await_all().await;
    assert!(started.elapsed() < ms(4100), "{:?}", started.elapsed());
    assert_eq!(test.tools(), ["mcp__slow__t"]);
    assert!(notices[0].contains("hole is not there yet"), "{notices:?}");
}

#[tokio::test(start_paused = true)]
async fn a_turn_that_did_not_wait_leaves_the_wait_to_a_job() {
    let test = TestToolbox::start(&[("slow", ConnectBehaviour::UpAfter(ms(4000)))]);
    test.turn().await;
    test.toolbox.await_all().await;
    assert_eq!(test.tools(), ["mcp__slow__t"]);
}

#[tokio::test(start_paused = true)]
async fn black_holes_add_no_more_than_a_lull_to_a_list() {
    let test = TestToolbox::start(&with_holes(("good", ConnectBehaviour::UpAfter(ms(80)))));
    let started = Instant::now();
    test.toolbox
        .settle_soon(TURN, Duration::from_secs(10))
        .await;
    assert!(
        started.elapsed() <= ms(80) + TURN,
        "{:?}",
        started.elapsed()
    );
    assert_eq!(test.tools(), ["mcp__good__t"]);
}

#[tokio::test(start_paused = true)]
async fn where_nothing_settles_a_list_waits_to_the_end() {
    let test = TestToolbox::start(&[("hole", ConnectBehaviour::BlackHole)]);
    test.set("off", ConnectBehaviour::BlackHole);
    let off = entry("off", &json!({"enabled": false}));
    test.toolbox.apply(vec![entry("hole", &json!({})), off]);
    let started = Instant::now();
    let limit = Duration::from_secs(10);
    test.toolbox.settle_soon(TURN, limit).await;
    assert_eq!(started.elapsed(), limit);
}

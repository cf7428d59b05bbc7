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

/// How the servers of a test take a connect, by name.
type Ways = Arc<Mutex<HashMap<String, Way>>>;

#[derive(Clone)]
enum Way {
    UpAfter(Duration),
    FailsAfter(Duration),
    /// Accepts and never answers.
    BlackHole,
}

struct Fake {
    name: String,
    ways: Ways,
}

impl Connector for Fake {
    fn connect(&self, _: ConnectRequest) -> BoxFuture<'_, Result<Arc<dyn Link>, McpFailure>> {
        let way = self.ways.lock().unwrap()[&self.name].clone();
        Box::pin(async move {
            match way {
                Way::UpAfter(time) => sleep(time).await,
                Way::BlackHole => std::future::pending().await,
                Way::FailsAfter(time) => {
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

    fn last_heard(&self) -> Instant {
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

struct World {
    toolbox: Toolbox,
    ways: Ways,
    _media: tempfile::TempDir,
}

impl World {
    fn start(servers: &[(&str, Way)]) -> Self {
        let ways: Ways = Arc::default();
        let names: Vec<&str> = servers.iter().map(|(name, _)| *name).collect();
        for (name, way) in servers {
            ways.lock().unwrap().insert((*name).to_owned(), way.clone());
        }
        let known = Arc::clone(&ways);
        let media = tempfile::tempdir().unwrap();
        let parts = ToolboxParts {
            reach: Box::new(move |config| {
                Ok(Reach {
                    connector: Arc::new(Fake {
                        name: config.name.clone(),
                        ways: Arc::clone(&known),
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
            ways,
            _media: media,
        }
    }

    fn set(&self, name: &str, way: Way) {
        self.ways.lock().unwrap().insert(name.to_owned(), way);
    }

    fn tools(&self) -> Vec<String> {
        let tools = self.toolbox.tools();
        tools.iter().map(|tool| tool.spec().name.clone()).collect()
    }

    /// What a turn is told, and how long it waited.
    async fn turn(&self) -> (Vec<String>, Duration) {
        let begun = Instant::now();
        let told = self.toolbox.await_turn(TURN, TURN).await;
        (told, begun.elapsed())
    }
}

const TURN: Duration = Duration::from_millis(300);
const HOLES: [&str; 12] = [
    "h01", "h02", "h03", "h04", "h05", "h06", "h07", "h08", "h09", "h10", "h11", "h12",
];

fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

fn with_holes(server: (&'static str, Way)) -> Vec<(&'static str, Way)> {
    let holes = HOLES.iter().map(|name| (*name, Way::BlackHole));
    std::iter::once(server).chain(holes).collect()
}

#[tokio::test(start_paused = true)]
async fn a_turn_waits_for_slow_servers_once_and_says_so_once() {
    let world = World::start(&[
        ("quick", Way::UpAfter(ms(100))),
        ("slow", Way::UpAfter(ms(4000))),
        ("down", Way::FailsAfter(ms(50))),
    ]);
    let (told, took) = world.turn().await;
    assert_eq!(took, TURN);
    assert_eq!(
        told,
        [
            "MCP server slow is still starting; its tools join as soon as it is ready",
            "MCP server down is not there yet (refused); it is tried again, and its tools join \
             as soon as it is ready",
        ]
    );
    assert_eq!(world.tools(), ["mcp__quick__t"]);
    assert_eq!(world.turn().await, (Vec::new(), Duration::ZERO));
    sleep(ms(4000)).await;
    assert_eq!(world.tools(), ["mcp__quick__t", "mcp__slow__t"]);
}

#[tokio::test(start_paused = true)]
async fn a_turn_goes_on_as_soon_as_all_are_ready() {
    let world = World::start(&[("a", Way::UpAfter(ms(20))), ("b", Way::UpAfter(ms(40)))]);
    let (told, took) = world.turn().await;
    assert_eq!(told, [""; 0]);
    assert!(took < ms(100), "{took:?}");
    assert_eq!(world.tools().len(), 2);
}

#[tokio::test(start_paused = true)]
async fn sessions_that_begin_together_wait_together() {
    let world = World::start(&[("hole", Way::BlackHole)]);
    let begun = Instant::now();
    let (one, other) = tokio::join!(world.turn(), async {
        sleep(ms(200)).await;
        world.turn().await
    });
    assert_eq!(begun.elapsed(), TURN);
    assert_eq!(one.0.len() + other.0.len(), 1, "told once");
}

#[tokio::test(start_paused = true)]
async fn a_server_that_was_parked_and_one_that_starts_share_the_wait() {
    let world = World::start(&[("down", Way::FailsAfter(ms(1)))]);
    sleep(Duration::from_mins(2)).await;
    let state = world.toolbox.server("down").unwrap().standing().state;
    assert_eq!(state.name(), "parked");
    world.set("down", Way::UpAfter(ms(250)));
    world.set("hole", Way::BlackHole);
    world.toolbox.apply(entries(&["down", "hole"]));
    let (told, took) = world.turn().await;
    assert_eq!(took, TURN);
    assert_eq!(world.tools(), ["mcp__down__t"]);
    assert_eq!(told.len(), 1, "{told:?}");
}

#[tokio::test(start_paused = true)]
async fn an_added_server_is_in_the_turn_that_notices_it() {
    let world = World::start(&[("a", Way::UpAfter(ms(10)))]);
    world.turn().await;
    world.set("b", Way::UpAfter(ms(200)));
    world.toolbox.apply(entries(&["a", "b"]));
    let (told, took) = world.turn().await;
    assert_eq!(told, [""; 0]);
    assert!(took >= ms(200) && took < TURN, "{took:?}");
    assert_eq!(world.tools(), ["mcp__a__t", "mcp__b__t"]);
}

#[tokio::test(start_paused = true)]
async fn a_server_that_is_switched_on_is_in_the_turn_that_notices_it() {
    let world = World::start(&[("a", Way::UpAfter(ms(10)))]);
    world.turn().await;
    world
        .toolbox
        .apply(vec![entry("a", &json!({"enabled": false}))]);
    assert_eq!(world.turn().await, (Vec::new(), Duration::ZERO));
    assert_eq!(world.tools(), [""; 0]);
    world.toolbox.apply(entries(&["a"]));
    let (_, took) = world.turn().await;
    assert!(took < TURN, "{took:?}");
    assert_eq!(world.tools(), ["mcp__a__t"]);
}

#[tokio::test(start_paused = true)]
async fn other_filters_are_no_reason_to_wait() {
    let world = World::start(&[("a", Way::UpAfter(ms(10)))]);
    world.turn().await;
    let filtered = entry("a", &json!({"tools": {"exclude": ["x"]}}));
    world.toolbox.apply(vec![filtered]);
    assert_eq!(world.turn().await, (Vec::new(), Duration::ZERO));
}

#[tokio::test(start_paused = true)]
async fn a_run_that_nobody_watches_waits_for_every_server() {
    let world = World::start(&[
        ("quick", Way::UpAfter(ms(10))),
        ("slow", Way::UpAfter(ms(4000))),
        ("down", Way::FailsAfter(ms(50))),
    ]);
    let begun = Instant::now();
    let waiting = world.toolbox.await_all();
    tokio::pin!(waiting);
    tokio::select! {
        _ = &mut waiting => panic!("it did not wait"),
        () = sleep(ms(1500)) => assert_eq!(world.toolbox.awaited(), ["slow"]),
    }
    let told = waiting.await;
    assert!(begun.elapsed() >= ms(4000) && begun.elapsed() < ms(4100));
    assert_eq!(world.tools(), ["mcp__quick__t", "mcp__slow__t"]);
    assert_eq!(told.len(), 1, "{told:?}");
    assert!(told[0].contains("down is not there"), "{told:?}");
}

#[tokio::test(start_paused = true)]
async fn each_server_is_waited_for_as_long_as_its_own_connect_may_take() {
    let world = World::start(&[("slow", Way::UpAfter(ms(4000)))]);
    world.set("hole", Way::BlackHole);
    world.toolbox.apply(vec![
        entry("slow", &json!({})),
        entry("hole", &json!({"connect_timeout": 2})),
    ]);
    let begun = Instant::now();
    let told = world.toolbox.await_all().await;
    assert!(begun.elapsed() < ms(4100), "{:?}", begun.elapsed());
    assert_eq!(world.tools(), ["mcp__slow__t"]);
    assert!(told[0].contains("hole is not there yet"), "{told:?}");
}

#[tokio::test(start_paused = true)]
async fn a_turn_that_did_not_wait_leaves_the_wait_to_a_job() {
    let world = World::start(&[("slow", Way::UpAfter(ms(4000)))]);
    world.turn().await;
    world.toolbox.await_all().await;
    assert_eq!(world.tools(), ["mcp__slow__t"]);
}

#[tokio::test(start_paused = true)]
async fn black_holes_add_no_more_than_a_lull_to_a_list() {
    let world = World::start(&with_holes(("good", Way::UpAfter(ms(80)))));
    let begun = Instant::now();
    world
        .toolbox
        .settle_soon(TURN, Duration::from_secs(10))
        .await;
    assert!(begun.elapsed() <= ms(80) + TURN, "{:?}", begun.elapsed());
    assert_eq!(world.tools(), ["mcp__good__t"]);
}

#[tokio::test(start_paused = true)]
async fn where_nothing_settles_a_list_waits_to_the_end() {
    let world = World::start(&[("hole", Way::BlackHole)]);
    world.set("off", Way::BlackHole);
    let off = entry("off", &json!({"enabled": false}));
    world.toolbox.apply(vec![entry("hole", &json!({})), off]);
    let begun = Instant::now();
    let longest = Duration::from_secs(10);
    world.toolbox.settle_soon(TURN, longest).await;
    assert_eq!(begun.elapsed(), longest);
}

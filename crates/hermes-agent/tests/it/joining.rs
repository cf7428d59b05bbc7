//! Tools that come and go while a turn runs.

use std::sync::{Arc, Mutex};

use hermes_agent::subagent::{
    ParentTools, ReportQueue, SubagentDeps, SubagentLimits, delegate_task,
};
use hermes_agent::{AgentSettings, ToolSource};
use hermes_config::Config;
use hermes_core::BoxFuture;
use hermes_core::event::{AgentCommand, TurnExit};
use hermes_core::model::ModelRequest;
use hermes_core::tool::{Effects, Registry, Tool, ToolOutcome};
use hermes_store::Store;
use hermes_testkit::clock::{FixedRng, ManualClock};
use pretty_assertions::assert_eq;
use serde_json::json;
use tokio_util::sync::CancellationToken;

use crate::support::{FakeTool, MemoryStore, Reply, ScriptedClient, ScriptedRouter, Setup};

/// Tools that a test changes.
#[derive(Default)]
struct Changing {
    tools: Mutex<Vec<Arc<dyn Tool>>>,
    /// Whether preparing a turn never ends.
    hangs: bool,
}

impl Changing {
    fn add(&self, tool: impl Tool + 'static) {
        self.add_shared(Arc::new(tool));
    }

    fn add_shared(&self, tool: Arc<dyn Tool>) {
        self.tools.lock().unwrap().push(tool);
    }

    fn drop_last(&self) {
        self.tools.lock().unwrap().pop();
    }
}

impl ToolSource for Changing {
    fn prepare(&self) -> BoxFuture<'_, Vec<String>> {
        Box::pin(async {
            if self.hangs {
                std::future::pending::<()>().await;
            }
            Vec::new()
        })
    }

    fn registry(&self) -> Registry {
        Registry::new(self.tools.lock().unwrap().clone())
    }
}

fn plain(name: &str) -> FakeTool {
    FakeTool::saying(name, Effects::ReadOnly, &format!("{name} did it"))
}

fn names(request: &ModelRequest) -> Vec<&str> {
    request
        .tools
        .iter()
        .map(|spec| spec.name.as_str())
        .collect()
}

/// Calling it makes `change` happen, as a server that becomes ready meanwhile would.
fn changing(
    name: &str,
    source: &Arc<Changing>,
    change: impl Fn(&Changing) + Send + Sync + 'static,
) -> FakeTool {
    let source = Arc::downgrade(source);
    FakeTool::new(name, Effects::Exclusive, move |_, _| {
        change(&source.upgrade().unwrap());
        Box::pin(std::future::ready(ToolOutcome::Done("done".into())))
    })
}

#[tokio::test]
async fn a_tool_that_joins_is_offered_and_run_in_the_same_turn() {
    let source = Arc::new(Changing::default());
    source.add(changing("begin", &source, |source| {
        source.add(plain("arrived"));
    }));
    let mut setup = Setup::new([
        Reply::call("begin", "{}"),
        Reply::call("arrived", "{}"),
        Reply::text("ok"),
    ]);
    let store = Arc::new(MemoryStore::default());
    setup.source = Some(source);
    let mut session = setup.store(store.clone()).start();
    let summary = session.turn("go").await;
    assert_eq!(summary.exit, TurnExit::Answered);
    let requests = session.router.requests();
    assert_eq!(names(&requests[0]), ["begin"]);
    assert_eq!(names(&requests[1]), ["arrived", "begin"]);
    assert!(
        store
            .messages()
            .iter()
            .any(|message| { format!("{message:?}").contains("arrived did it") })
    );
}

#[tokio::test]
async fn the_list_is_the_same_object_until_a_tool_really_changes() {
    let source = Arc::new(Changing::default());
    source.add(plain("stays"));
    source.add(changing("drop_it", &source, Changing::drop_last));
    source.add(plain("zz_leaves"));
    let mut setup = Setup::new([
        Reply::call("stays", "{}"),
        Reply::call("drop_it", "{}"),
        Reply::text("ok"),
    ]);
    setup.source = Some(source);
    let mut session = setup.start();
    session.turn("go").await;
    let requests = session.router.requests();
    assert!(Arc::ptr_eq(&requests[0].tools, &requests[1].tools));
    assert_eq!(names(&requests[1]), ["drop_it", "stays", "zz_leaves"]);
    assert_eq!(names(&requests[2]), ["drop_it", "stays"]);
}

#[tokio::test]
async fn a_turn_that_waits_for_its_tools_can_be_interrupted() {
    let mut setup = Setup::new([]);
    setup.source = Some(Arc::new(Changing {
        hangs: true,
        ..Changing::default()
    }));
    let mut session = setup.start();
    session.send(AgentCommand::Submit("go".into())).await;
    session.send(AgentCommand::Interrupt).await;
    let summary = session.finish().await;
    assert_eq!(summary.exit, TurnExit::Interrupted);
    assert_eq!(session.router.requests().len(), 0);
}

#[tokio::test]
async fn a_subagent_gets_the_tools_that_join_while_it_works() {
    const CHILD: &str = "You are a child.";
    let source = Arc::new(Changing::default());
    source.add(changing("begin", &source, |source| {
        source.add(plain("arrived"));
    }));
    let seen = Arc::new(Mutex::new(Vec::new()));
    let calls = Arc::clone(&seen);
    let client = ScriptedClient::new("main", []).answering(move |request| {
        let mut seen = calls.lock().unwrap();
        let by_child = &*request.system == CHILD;
        seen.push((
            by_child,
            request.tools.iter().any(|spec| spec.name == "arrived"),
        ));
        let turns = seen.iter().filter(|(child, _)| *child == by_child).count();
        match (by_child, turns) {
            (false, 1) => Reply::call("delegate_task", &json!({"goal": "g"}).to_string()),
            (true, 1) => Reply::call("begin", "{}"),
            _ => Reply::text("ok"),
        }
    });
    let dir = tempfile::tempdir().unwrap();
    let clock = Arc::new(ManualClock::default());
    let store = Store::open(dir.path().join("state.db"), clock).unwrap();
    let mut setup = Setup::with_router(ScriptedRouter::new(client)).store(Arc::new(store));
    let parent = ParentTools::default();
    source.add_shared(delegate_task(SubagentDeps {
        router: setup.router.clone(),
        store: setup.store.clone(),
        tools: parent.clone(),
        prompt: Arc::new(CHILD.to_owned()),
        settings: AgentSettings::default(),
        limits: SubagentLimits::from_config(&Config::default()),
        spill_dir: None,
        clock: Arc::new(ManualClock::default()),
        rng: Arc::new(FixedRng(0)),
        cancel: CancellationToken::new(),
        post: ReportQueue::default(),
    }));
    let source: Arc<dyn ToolSource> = source;
    parent.set(&source);
    setup.source = Some(source);
    let mut session = setup.start();
    session.turn("go").await;
    let seen = seen.lock().unwrap().clone();
    let child: Vec<bool> = seen
        .iter()
        .filter(|(child, _)| *child)
        .map(|s| s.1)
        .collect();
    assert_eq!(child, [false, true]);
    assert_eq!(seen.last(), Some(&(false, true)), "the parent has it too");
}

//! Delegated work: children in sessions of their own, on a real database.

use std::sync::{Arc, Mutex};

use hermes_agent::subagent::{
    ParentTools, ReportQueue, SubagentDeps, SubagentLimits, child_id, delegate_task,
};
use hermes_agent::tools::{TodoList, clarify_tool, todo_tool};
use hermes_agent::{AgentSettings, SessionStart};
use hermes_config::Config;
use hermes_core::approval::{ApprovalRequest, DenyAll, Verdict};
use hermes_core::event::{AgentCommand, AgentEvent, TurnExit};
use hermes_core::ids::SessionId;
use hermes_core::message::{AssistantMessage, Message, ToolCall};
use hermes_core::model::{ErrorClass, ModelRequest};
use hermes_core::store::{NewItem, NewSession, SessionStore};
use hermes_core::tool::{Effects, ToolErrorKind, ToolOutcome};
use hermes_store::Store;
use hermes_testkit::clock::{FixedRng, ManualClock};
use pretty_assertions::assert_eq;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use crate::support::{FakeTool, Reply, ScriptedClient, ScriptedRouter, Setup};

const CHILD: &str = "You are a child.";

struct Bench {
    dir: tempfile::TempDir,
    store: Store,
    limits: SubagentLimits,
    post: ReportQueue,
    tools: ParentTools,
}

impl Bench {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::open(
            dir.path().join("state.db"),
            Arc::new(ManualClock::default()),
        );
        Self {
            store: store.unwrap(),
            limits: SubagentLimits::from_config(&Config::default()),
            dir,
            post: ReportQueue::default(),
            tools: ParentTools::default(),
        }
    }

    /// A parent that says `first`, then what `script` says; children are answered by `child`.
    fn parent(
        &self,
        script: impl IntoIterator<Item = Reply>,
        child: impl Fn(&str, &ModelRequest) -> Reply + Send + Sync + 'static,
    ) -> Setup {
        let script = Mutex::new(
            script
                .into_iter()
                .collect::<std::collections::VecDeque<_>>(),
        );
        let client = ScriptedClient::new("main", []).answering(move |request| {
            if &*request.system == CHILD {
                child(&said(&request.messages[0]), request)
            } else {
                script
                    .lock()
                    .unwrap()
                    .pop_front()
                    .expect("a call of the parent")
            }
        });
        let mut setup =
            Setup::with_router(ScriptedRouter::new(client)).store(Arc::new(self.store.clone()));
        let deps = SubagentDeps {
            router: setup.router.clone(),
            store: Arc::new(self.store.clone()),
            tools: self.tools.clone(),
            prompt: Arc::new(CHILD.to_owned()),
            settings: AgentSettings::default(),
            limits: self.limits.clone(),
            spill_dir: Some(self.dir.path().join("delegation")),
            clock: Arc::new(ManualClock::default()),
            rng: Arc::new(FixedRng(0)),
            cancel: CancellationToken::new(),
            post: self.post.clone(),
        };
        setup.tools.push(delegate_task(deps));
        setup
    }

    /// The result of the nth call of the parent.
    async fn result(&self, nth: usize) -> Value {
        let text = self.results().await.remove(nth);
        serde_json::from_str(&text).unwrap_or_else(|_| panic!("{text}"))
    }

    async fn results(&self) -> Vec<String> {
        let stored = self
            .store
            .load(&SessionId::from("s1"))
            .await
            .unwrap()
            .unwrap();
        let results = stored.items.iter().filter_map(|item| match &item.message {
            Message::Tool(tool) => Some(tool.content.text().into_owned()),
            _ => None,
        });
        results.collect()
    }
}

fn said(message: &Message) -> String {
    match message {
        Message::User(user) => user.content.text().into_owned(),
        Message::Assistant(answer) => answer.text.clone(),
        Message::Tool(tool) => tool.content.text().into_owned(),
    }
}

fn delegate(args: &Value) -> Reply {
    Reply::call("delegate_task", &args.to_string())
}

fn tasks(goals: &[&str]) -> Value {
    let tasks: Vec<Value> = goals.iter().map(|goal| json!({ "goal": goal })).collect();
    json!({ "tasks": tasks })
}

#[tokio::test]
async fn three_children_work_side_by_side_and_one_fails_alone() {
    let bench = Bench::new();
    let meet = Arc::new(tokio::sync::Barrier::new(2));
    let look = FakeTool::new("look", Effects::ReadOnly, move |_, _| {
        let meet = meet.clone();
        Box::pin(async move {
            // Neither gets on before the other is here.
            meet.wait().await;
            ToolOutcome::Done("seen".into())
        })
    });
    let mut session = bench
        .parent(
            [
                delegate(&tasks(&["one", "two", "three"])),
                Reply::text("all told"),
            ],
            |goal, request| match (goal, request.messages.len()) {
                ("three", _) => Reply::error(ErrorClass::Auth),
                (_, 1) => Reply::call("look", "{}"),
                (goal, _) => Reply::text(&format!("report of {goal}")),
            },
        )
        .tool(look)
        .start();
    let summary = session.turn("go").await;
    assert_eq!(summary.text, "all told");
    // Two calls of the parent and two of each child that worked; 110 tokens each.
    assert_eq!((summary.usage.input, summary.usage.output), (600, 60));
    let result = bench.result(0).await;
    let results = result["results"].as_array().unwrap();
    let statuses: Vec<&str> = results
        .iter()
        .map(|one| one["status"].as_str().unwrap())
        .collect();
    assert_eq!(statuses, ["completed", "completed", "failed"]);
    assert_eq!(results[1]["summary"], "report of two");
    assert_eq!(results[1]["error"], Value::Null);
    assert_eq!(results[1]["tokens"], json!({ "input": 200, "output": 20 }));
    assert_eq!(results[1]["api_calls"], 2);
    assert_eq!(
        results[1]["tool_trace"],
        json!([{ "tool": "look", "args_bytes": 2, "result_bytes": 4, "status": "ok" }])
    );
    assert!(results[2]["error"].as_str().unwrap().contains("Auth"));
    for (index, entry) in results.iter().enumerate().take(2) {
        let id = SessionId::from(entry["session_id"].as_str().unwrap());
        let child = bench.store.load(&id).await.unwrap().unwrap();
        assert_eq!(child.source, "subagent", "{index}");
        assert_eq!(child.parent, Some(SessionId::from("s1")));
        assert_eq!(child.model_config.unwrap()["_delegate_from"], "s1");
        assert!(child.ended);
    }
    let progress: Vec<&String> = session
        .seen
        .iter()
        .filter_map(|event| match event {
            AgentEvent::ToolProgress { text, .. } => Some(text),
            _ => None,
        })
        .collect();
    assert!(
        progress.iter().any(|text| text.starts_with("[1/3] look")),
        "{progress:?}"
    );
}

#[tokio::test]
async fn an_interrupt_stops_the_children_and_the_result_says_so() {
    let bench = Bench::new();
    let wait = FakeTool::new("wait", Effects::Exclusive, |_, cx| {
        Box::pin(async move {
            cx.cancel.cancelled().await;
            ToolOutcome::error(ToolErrorKind::Cancelled, "stopped")
        })
    });
    let mut session = bench
        .parent([delegate(&tasks(&["one", "two"]))], |_, _| {
            Reply::call("wait", "{}")
        })
        .tool(wait)
        .start();
    session.send(AgentCommand::Submit("go".into())).await;
    // Either may be the first.
    let mut missing = vec!["[1/2] wait", "[2/2] wait"];
    while !missing.is_empty() {
        let place = session
            .until(|event| match event {
                AgentEvent::ToolProgress { text, .. } => {
                    missing.iter().position(|child| text.starts_with(child))
                }
                _ => None,
            })
            .await;
        missing.remove(place);
    }
    session.send(AgentCommand::Interrupt).await;
    assert_eq!(session.finish().await.exit, TurnExit::Interrupted);
    let result = bench.result(0).await;
    assert!(
        result["note"]
            .as_str()
            .unwrap()
            .contains("subagents with it"),
        "{result}"
    );
    for entry in result["results"].as_array().unwrap() {
        assert_eq!(entry["status"], "interrupted");
        let id = SessionId::from(entry["session_id"].as_str().unwrap());
        assert!(bench.store.load(&id).await.unwrap().is_some());
    }
}

#[tokio::test]
async fn children_get_what_they_may_use_and_a_list_of_their_own() {
    let bench = Bench::new();
    let todos = TodoList::default();
    let add = r#"{"todos":[{"id":"1","content":"of the child","status":"pending"}]}"#;
    let mut setup = bench
        .parent(
            [
                delegate(&json!({"goal": "plan", "role": "orchestrator"})),
                Reply::text("ok"),
            ],
            move |_, request| {
                let names: Vec<&str> = request
                    .tools
                    .iter()
                    .map(|tool| tool.name.as_str())
                    .collect();
                assert_eq!(names, ["look", "todo"]);
                if request.messages.len() == 1 {
                    Reply::call("todo", add)
                } else {
                    Reply::text("planned")
                }
            },
        )
        .tool(FakeTool::saying("look", Effects::ReadOnly, "x"))
        .tool(FakeTool::saying("memory", Effects::Exclusive, "x"))
        .tool(FakeTool::saying("execute_code", Effects::Exclusive, "x"));
    setup.tools.push(todo_tool(todos.clone()));
    setup.tools.push(clarify_tool(None));
    let mut session = setup.start();
    session.turn("go").await;
    assert_eq!(bench.result(0).await["results"][0]["summary"], "planned");
    assert_eq!(todos.items(), []);
}

#[tokio::test]
async fn depth_is_limited() {
    let mut bench = Bench::new();
    bench.limits.max_depth = 2;
    let down = json!({"goal": "deeper", "role": "orchestrator"});
    let mut session = bench
        .parent([delegate(&down), Reply::text("ok")], move |_, request| {
            let may = request
                .tools
                .iter()
                .any(|tool| tool.name == "delegate_task");
            match (may, request.messages.len()) {
                (true, 1) => delegate(&down),
                (true, _) => {
                    Reply::text(&format!("told: {}", said(request.messages.last().unwrap())))
                }
                (false, _) => Reply::text("the ground"),
            }
        })
        .start();
    let summary = session.turn("go").await;
    let report = bench.result(0).await["results"][0]["summary"]
        .as_str()
        .unwrap()
        .to_owned();
    assert!(report.contains("the ground"), "{report}");
    // Grandchildren count too: two calls each of parent and child, one of the grandchild.
    assert_eq!(summary.usage.input, 500);
}

#[tokio::test]
async fn bad_requests_are_refused() {
    let bench = Bench::new();
    let wrong = [
        json!({}),
        json!({"tasks": [{"goal": "a"}, {"context": "no goal"}]}),
        tasks(&["a", "b", "c", "d"]),
    ];
    let mut script: Vec<Reply> = wrong.iter().map(delegate).collect();
    script.push(Reply::text("ok"));
    let mut session = bench.parent(script, |_, _| panic!("no child runs")).start();
    session.turn("go").await;
    let results = bench.results().await;
    for (result, why) in results
        .iter()
        .zip(["give a goal", "task 2 has no goal", "at most 3"])
    {
        assert!(result.contains(why), "{result}");
    }
}

fn asking() -> FakeTool {
    FakeTool::new("risky", Effects::Exclusive, |_, cx| {
        Box::pin(async move {
            let verdict = cx.approver.decide(ApprovalRequest {
                kind: hermes_core::approval::ApprovalKind::Action,
                id: cx.call_id.clone(),
                tool: "risky".into(),
                action: "rm -rf build".into(),
                reasons: vec!["it deletes".into()],
                rule: None,
                posture: None,
            });
            match verdict.await {
                Verdict::Deny { why } => {
                    ToolOutcome::error(ToolErrorKind::Denied, why.unwrap_or_default())
                }
                _ => ToolOutcome::Done("done".into()),
            }
        })
    })
}

fn one_risk(_: &str, request: &ModelRequest) -> Reply {
    match request.messages.len() {
        1 => Reply::call("risky", "{}"),
        _ => Reply::text(&said(request.messages.last().unwrap())),
    }
}

#[tokio::test]
async fn the_person_is_asked_for_a_child_by_its_name() {
    let bench = Bench::new();
    let script = [delegate(&json!({"goal": "clean up"})), Reply::text("ok")];
    let mut session = bench.parent(script, one_risk).tool(asking()).start();
    session.send(AgentCommand::Submit("go".into())).await;
    let request = session
        .until(|event| match event {
            AgentEvent::ApprovalNeeded { request } => Some(request.clone()),
            _ => None,
        })
        .await;
    assert_eq!(
        request.reasons,
        ["asked by subagent 1 of 1: clean up", "it deletes"]
    );
    session
        .send(AgentCommand::Answer {
            request: request.id,
            verdict: Verdict::Once,
        })
        .await;
    session.finish().await;
    assert_eq!(bench.result(0).await["results"][0]["summary"], "done");
}

#[tokio::test]
async fn with_nobody_there_children_are_denied_unless_told_otherwise() {
    for auto in [false, true] {
        let mut bench = Bench::new();
        bench.limits.auto_approve = auto;
        let script = [delegate(&json!({"goal": "clean up"})), Reply::text("ok")];
        let mut setup = bench.parent(script, one_risk).tool(asking());
        setup.approver = Some(Arc::new(DenyAll));
        setup.start().turn("go").await;
        let summary = bench.result(0).await["results"][0]["summary"].clone();
        let done = summary == "done";
        assert_eq!(done, auto, "{summary}");
    }
}

#[tokio::test]
async fn a_long_report_is_cut_and_kept_in_a_file() {
    let mut bench = Bench::new();
    bench.limits.max_summary_chars = 100;
    let long = "ä".repeat(5_000);
    let report = long.clone();
    let script = [delegate(&json!({"goal": "write"})), Reply::text("ok")];
    let mut session = bench
        .parent(script, move |_, _| Reply::text(&report))
        .start();
    session.turn("go").await;
    let entry = bench.result(0).await["results"][0].clone();
    assert_eq!(entry["summary_truncated"], true);
    let summary = entry["summary"].as_str().unwrap();
    assert_eq!(summary.matches('ä').count(), 100);
    let file = entry["summary_full_path"].as_str().unwrap();
    assert_eq!(std::fs::read_to_string(file).unwrap(), long);
}

#[tokio::test]
async fn work_in_the_background_reports_when_it_is_done() {
    for wakes in [false, true] {
        let bench = Bench::new();
        let gate = Arc::new(tokio::sync::Semaphore::new(0));
        let open = gate.clone();
        let wait = FakeTool::new("wait", Effects::ReadOnly, move |_, _| {
            let gate = gate.clone();
            Box::pin(async move {
                let _permit = gate.acquire().await;
                ToolOutcome::Done("waited".into())
            })
        });
        let script = [
            delegate(&json!({"goal": "later", "background": true})),
            Reply::text("it is on its way"),
            Reply::text("here it is"),
        ];
        let mut session = bench
            .parent(script, |_, request| match request.messages.len() {
                1 => Reply::call("wait", "{}"),
                _ => Reply::text("the work is done"),
            })
            .tool(wait)
            .start();
        if wakes {
            bench.post.attach_waking(&session.handle);
        } else {
            bench.post.attach(&session.handle);
        }
        assert_eq!(session.turn("go").await.text, "it is on its way");
        let dispatched = bench.result(0).await;
        assert_eq!(dispatched["status"], "dispatched");
        open.add_permits(1);
        if !wakes {
            let told = |event: &AgentEvent| match event {
                AgentEvent::Notice { text, .. } if text.contains("is done") => Some(()),
                _ => None,
            };
            session.until(told).await;
            session.send(AgentCommand::Submit("well?".into())).await;
        }
        let summary = session.finish().await;
        assert_eq!(summary.text, "here it is");
        // One call of its own, two of the child.
        assert_eq!((summary.usage.input, summary.usage.output), (300, 30));
        let last = session.router.request(session.router.requests().len() - 1);
        let message = last.last().unwrap();
        let id = dispatched["delegation_id"].as_str().unwrap();
        assert!(message.contains(&format!("[delegation {id}:")), "{message}");
        assert!(message.contains("the work is done"), "{message}");
        assert!(message.contains("not words of the person"), "{message}");
    }
}

#[tokio::test]
async fn without_a_way_back_background_work_is_waited_for() {
    let bench = Bench::new();
    let script = [
        delegate(&json!({"goal": "later", "background": true})),
        Reply::text("ok"),
    ];
    let mut session = bench.parent(script, |_, _| Reply::text("done")).start();
    session.turn("go").await;
    let result = bench.result(0).await;
    assert_eq!(result["results"][0]["summary"], "done");
    assert!(result["note"].as_str().unwrap().contains("waited for"));
}

fn item(message: Message) -> NewItem {
    NewItem {
        message,
        at: 1.0,
        token_count: None,
        platform_message_id: None,
    }
}

/// A conversation as a killed process left it: `result` is what its only call got.
async fn killed(bench: &Bench, result: Option<&str>) -> SessionStart {
    let id = SessionId::from("s1");
    let call = ToolCall {
        id: "call-1".into(),
        name: "delegate_task".into(),
        arguments: tasks(&["one", "two"]).to_string(),
        ..ToolCall::default()
    };
    let asked = AssistantMessage {
        tool_calls: vec![call.clone()],
        ..AssistantMessage::default()
    };
    let mut items = vec![item(Message::user("go")), item(Message::Assistant(asked))];
    if let Some(result) = result {
        items.push(item(Message::tool(&call, result)));
        items.push(item(Message::assistant("it is on its way")));
    }
    let children = [
        (id.clone(), "test", items),
        (
            child_id(&id, "call-1", 0, 0),
            "subagent",
            vec![
                item(Message::user("one")),
                item(Message::assistant("found it")),
            ],
        ),
        (
            child_id(&id, "call-1", 1, 0),
            "subagent",
            vec![item(Message::user("two"))],
        ),
    ];
    for (id, source, items) in children {
        let new = NewSession {
            id: Some(id.clone()),
            source: source.into(),
            ..NewSession::default()
        };
        bench.store.begin(new).await.unwrap();
        bench.store.append(&id, items).await.unwrap();
    }
    SessionStart::Resume {
        session: Box::new(bench.store.load(&id).await.unwrap().unwrap()),
        cwd: "/nowhere".into(),
    }
}

#[tokio::test]
async fn a_killed_parent_learns_what_its_children_had_done() {
    let bench = Bench::new();
    let start = killed(&bench, None).await;
    let mut setup = bench.parent([Reply::text("good"), Reply::text("again")], |_, _| {
        panic!("no child runs")
    });
    setup.start = Some(start);
    let mut session = setup.start();
    session.turn("go on").await;
    let request = session.router.request(0);
    assert!(request[2].contains("found it"), "{request:?}");
    assert!(request[2].contains("it was cut off"), "{request:?}");
    assert_eq!(request[3], "user: go on");
    let result = bench.result(0).await;
    assert_eq!(result["results"][0]["status"], "completed");
    assert_eq!(result["results"][1]["status"], "interrupted");
    session.turn("and on").await;
    assert_eq!(bench.results().await.len(), 1, "it is told once");
}

#[tokio::test]
async fn reports_that_never_arrived_come_with_the_next_message() {
    let bench = Bench::new();
    let dispatched = json!({ "status": "dispatched", "delegation_id": "deleg_1" }).to_string();
    let start = killed(&bench, Some(&dispatched)).await;
    let mut setup = bench.parent([Reply::text("good"), Reply::text("again")], |_, _| {
        panic!("no child runs")
    });
    setup.start = Some(start);
    let mut session = setup.start();
    session.turn("go on").await;
    session.turn("and on").await;
    let told = |request: Vec<String>| {
        let marks = request
            .iter()
            .filter(|text| text.contains("[delegation deleg_1:"));
        marks.count()
    };
    assert_eq!(told(session.router.request(0)), 1);
    assert_eq!(told(session.router.request(1)), 1, "not a second time");
}

#[tokio::test]
async fn what_a_child_reads_from_outside_taints_its_parent() {
    let bench = Bench::new();
    let page = FakeTool::saying(
        "page",
        Effects::ReadOnly,
        "a page of the web, long enough to be fenced",
    )
    .spec(|spec| spec.untrusted = true);
    let tainted = Arc::new(Mutex::new(Vec::new()));
    let seen = tainted.clone();
    let probe = FakeTool::new("probe", Effects::Exclusive, move |_, cx| {
        seen.lock().unwrap().push(cx.taint.is_marked());
        Box::pin(std::future::ready(ToolOutcome::Done("ok".into())))
    });
    let script = [
        Reply::call("probe", "{}"),
        delegate(&json!({"goal": "read"})),
        Reply::call("probe", "{}"),
        Reply::text("ok"),
    ];
    let mut session = bench
        .parent(script, |_, request| match request.messages.len() {
            1 => Reply::call("page", "{}"),
            _ => Reply::text("the page says hello to everybody here"),
        })
        .tool(page)
        .tool(probe)
        .start();
    session.turn("go").await;
    assert_eq!(*tainted.lock().unwrap(), [false, true]);
    let summary = bench.result(1).await["results"][0]["summary"].clone();
    assert!(
        summary
            .as_str()
            .unwrap()
            .starts_with("<untrusted_tool_result"),
        "{summary}"
    );
    // A summary that is too short for a fence says it here.
    assert_eq!(bench.result(1).await["results"][0]["from_outside"], true);
}

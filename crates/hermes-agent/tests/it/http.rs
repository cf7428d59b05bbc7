//! End to end: session, router, HTTP client, wire formats, a server, state.db.

use std::sync::Arc;

use hermes_agent::SessionStart;
use hermes_config::env::{Env, ProcessEnv};
use hermes_config::home::Home;
use hermes_config::schema::{Config, Fallback, Secret};
use hermes_core::event::{AgentEvent, TurnExit};
use hermes_core::ids::SessionId;
use hermes_core::message::Message;
use hermes_core::store::SessionStore;
use hermes_core::tool::{Effects, ToolOutcome};
use hermes_models::{Overrides, Router, RouterDeps};
use hermes_store::Store;
use hermes_testkit::clock::{ManualClock, SeqRng};
use hermes_testkit::model_server::{ModelServer, Reply, ScriptedCall};
use pretty_assertions::assert_eq;
use serde_json::json;

use crate::support::{FakeTool, Running, Setup};

pub(crate) struct Rig {
    pub(crate) home: tempfile::TempDir,
    pub(crate) server: ModelServer,
    pub(crate) store: Store,
    pub(crate) config: Config,
}

impl Rig {
    pub(crate) fn new(format: &str) -> Self {
        let home = tempfile::tempdir().unwrap();
        let server = ModelServer::start();
        let clock = Arc::new(ManualClock::default());
        let store = Store::open(home.path().join("state.db"), clock).unwrap();
        let mut config = Config::default();
        config.model.provider = "custom".into();
        config.model.default = "main-model".into();
        config.model.base_url = server.base_url();
        config.model.api_key = Secret::new("sk-test");
        config.model.api_mode = format.into();
        config.model.context_length = Some(200_000);
        Self {
            home,
            server,
            store,
            config,
        }
    }

    pub(crate) fn start(&self) -> Running {
        self.start_at(None)
    }

    /// The stored conversation, loaded by a new process.
    pub(crate) async fn resume(&self) -> Running {
        let session = self
            .store
            .load(&SessionId::from("s1"))
            .await
            .unwrap()
            .unwrap();
        self.start_at(Some(SessionStart::Resume {
            session: Box::new(session),
            cwd: "/nowhere".into(),
        }))
    }

    fn start_at(&self, start: Option<SessionStart>) -> Running {
        let router = Router::new(
            RouterDeps {
                config: Arc::new(self.config.clone()),
                env: Arc::new(Env::from_process(&ProcessEnv::from_vars(Vec::<(
                    String,
                    String,
                )>::new(
                )))),
                home: Home::at(self.home.path()),
                clock: Arc::new(ManualClock::default()),
                rng: Arc::new(SeqRng::new(0)),
            },
            Overrides::default(),
        );
        let add = FakeTool::new("add", Effects::ReadOnly, |args, _| {
            let sum: i64 = args.values().filter_map(serde_json::Value::as_i64).sum();
            Box::pin(std::future::ready(ToolOutcome::Done(
                sum.to_string().into(),
            )))
        });
        let mut setup = Setup::new([]).tool(add).store(Arc::new(self.store.clone()));
        setup.other_router = Some(Arc::new(router));
        setup.start = start;
        setup.start()
    }

    pub(crate) async fn rows(&self) -> Vec<Message> {
        let id = SessionId::from("s1");
        let stored = self.store.load(&id).await.unwrap().unwrap();
        stored.items.into_iter().map(|item| item.message).collect()
    }
}

pub(crate) const FORMATS: [&str; 3] = ["chat_completions", "anthropic_messages", "codex_responses"];

#[tokio::test]
async fn a_turn_with_parallel_tools_in_every_format() {
    for format in FORMATS {
        let rig = Rig::new(format);
        rig.server.push(
            Reply::text("I add.")
                .and_call(ScriptedCall::new("c1", "add", &json!({"a": 1, "b": 2})))
                .and_call(ScriptedCall::new("c2", "add", &json!({"a": 40, "b": 2}))),
        );
        rig.server.push(Reply::text("3 and 42"));
        let mut session = rig.start();
        let summary = session.turn("add these").await;
        assert_eq!(summary.exit, TurnExit::Answered, "{format}");
        assert_eq!(summary.text, "3 and 42", "{format}");
        assert_eq!((summary.calls, summary.tool_calls), (2, 2), "{format}");
        assert!(summary.usage.prompt_tokens() > 0, "{format}");
        let sent: Vec<String> = rig
            .server
            .last_request()
            .tool_results()
            .into_iter()
            .map(|result| result.text)
            .collect();
        assert_eq!(sent, ["3", "42"], "{format}");
        session.close().await;
        let roles: Vec<&str> = rig.rows().await.iter().map(Message::role).collect();
        assert_eq!(
            roles,
            ["user", "assistant", "tool", "tool", "assistant"],
            "{format}"
        );
    }
}

#[tokio::test]
async fn each_request_begins_with_the_one_before() {
    for format in FORMATS {
        let rig = Rig::new(format);
        rig.server.answer_with(|request| {
            if request.ends_with_tool_result() {
                Reply::text("sum")
            } else {
                let n = request.messages().len();
                Reply::text("adding").and_call(ScriptedCall::new("", "add", &json!({"a": n})))
            }
        });
        let mut session = rig.start();
        for n in 0..4 {
            let summary = session.turn(&format!("question {n}")).await;
            assert_eq!(summary.exit, TurnExit::Answered, "{format}");
        }
        session.close().await;
        let requests = rig.server.model_requests();
        assert_eq!(requests.len(), 8, "{format}");
        for pair in requests.windows(2) {
            let (before, after) = (plain(pair[0].messages()), plain(pair[1].messages()));
            assert!(after.len() > before.len(), "{format}");
            assert_eq!(before[..], after[..before.len()], "{format}");
            assert_eq!(pair[0].system(), pair[1].system(), "{format}");
            assert_eq!(pair[0].tool_names(), pair[1].tool_names(), "{format}");
        }
    }
}

/// Messages without cache marks, which move with the end of the conversation.
pub(crate) fn plain(messages: Vec<serde_json::Value>) -> Vec<serde_json::Value> {
    fn strip(value: &mut serde_json::Value) {
        match value {
            serde_json::Value::Object(map) => {
                map.remove("cache_control");
                map.values_mut().for_each(strip);
            }
            serde_json::Value::Array(items) => items.iter_mut().for_each(strip),
            _ => {}
        }
    }
    messages
        .into_iter()
        .map(|mut message| {
            strip(&mut message);
            message
        })
        .collect()
}

#[tokio::test]
async fn faults_of_real_servers_are_survived() {
    let rig = Rig::new("chat_completions");
    rig.server.push(Reply::rate_limited(0));
    rig.server.push(
        Reply::text("half an answer, ")
            .deltas(4)
            .no_finish()
            .no_done(),
    );
    rig.server.push(
        Reply::tool_calls([ScriptedCall::raw("c1", "Add", "{'a': 1, 'b': 2,}")]).repeat_names(),
    );
    rig.server.push(Reply::text("<think>easy</think>three"));
    let mut session = rig.start();
    let summary = session.turn("go").await;
    assert_eq!(summary.exit, TurnExit::Answered);
    assert_eq!(summary.text, "three");
    assert_eq!(rig.server.last_request().tool_results()[0].text, "3");
    let retried = session
        .seen
        .iter()
        .any(|event| matches!(event, AgentEvent::Retrying { .. }));
    assert!(retried);
}

#[tokio::test]
async fn an_account_without_credit_falls_back_to_the_next_model() {
    let mut rig = Rig::new("chat_completions");
    rig.config.fallback_providers.push(Fallback {
        provider: "custom".into(),
        model: "spare-model".into(),
        base_url: rig.server.base_url(),
        api_key: Secret::new("sk-other"),
        ..Fallback::default()
    });
    rig.server
        .push_for_model("main-model", Reply::error(402, "insufficient credits"));
    rig.server
        .push_for_model("spare-model", Reply::text("standing in"));
    let mut session = rig.start();
    let summary = session.turn("go").await;
    assert_eq!(summary.text, "standing in");
}

#[tokio::test]
async fn a_wrong_key_is_explained() {
    let rig = Rig::new("chat_completions");
    rig.server.push(Reply::error(401, "invalid api key"));
    let mut session = rig.start();
    let summary = session.turn("go").await;
    let words = hermes_agent::turn::explain(&summary.exit, None).unwrap();
    assert!(
        words.contains("invalid api key") && words.contains("hermes config set"),
        "{words}"
    );
}

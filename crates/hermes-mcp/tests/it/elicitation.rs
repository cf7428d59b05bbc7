//! Servers that ask the user during a call, through the production actor.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use hermes_config::{Env, Home, ProcessEnv};
use hermes_core::BoxFuture;
use hermes_core::ask::{Answer, Asker, DeclineAll, FieldKind, Question, Want};
use hermes_mcp::config::ServerConfig;
use hermes_mcp::{
    CallError, CallOptions, CallOrigin, Children, McpConnector, MemoryEraCache,
    ServerRequestHandler, ServerSettings, ServerSpec, ServerTarget, StdioTarget, config,
};
use serde_json::{Value, json};
use tokio::sync::Notify;

use crate::rig::{Rig, call};

/// `ask` asks and continues serving; `$FORM` is the requested form.
const LEGACY: &str = r#"
answer() { printf '{"jsonrpc":"2.0","id":%s,"result":%s}\n' "$id" "$1"; }
while read -r line; do
  id=$(printf '%s' "$line" | sed -n 's/.*"id":\([0-9][0-9]*\).*/\1/p')
  case $line in
    *'"initialize"'*) hello=$line; answer '{"protocolVersion":"2025-11-25","capabilities":{"tools":{}},"serverInfo":{"name":"asking","version":"1"}}' ;;
    *'"tools/list"'*) answer '{"tools":[{"name":"ask","inputSchema":{"type":"object"}},{"name":"echo","inputSchema":{"type":"object"}}]}' ;;
    *'"name":"ask"'*) asked=$id; printf '{"jsonrpc":"2.0","id":"q","method":"elicitation/create","params":%s}\n' "$FORM" ;;
    *'"name":"echo"'*) answer "{\"content\":[],\"structuredContent\":$hello}" ;;
    *'"id":"q"'*) id=$asked; answer "{\"content\":[],\"structuredContent\":$line}" ;;
    *'"ping"'*) answer '{}' ;;
  esac
done
"#;

/// Stateless: asks by returning a result that requests input.
const MODERN: &str = r#"
answer() { printf '{"jsonrpc":"2.0","id":%s,"result":%s}\n' "$id" "$1"; }
while read -r line; do
  id=$(printf '%s' "$line" | sed -n 's/.*"id":\([0-9][0-9]*\).*/\1/p')
  case $line in
    *'"server/discover"'*) answer '{"resultType":"complete","supportedVersions":["2026-07-28"],"capabilities":{"tools":{}},"serverInfo":{"name":"modern","version":"1"},"ttlMs":0,"cacheScope":"private"}' ;;
    *'"tools/list"'*) answer '{"resultType":"complete","tools":[{"name":"ask","inputSchema":{"type":"object"}}],"ttlMs":0,"cacheScope":"private"}' ;;
    *'"inputResponses"'*) answer "{\"resultType\":\"complete\",\"content\":[],\"structuredContent\":$line}" ;;
    *'"tools/call"'*) answer "{\"resultType\":\"input_required\",\"requestState\":\"s\",\"inputRequests\":{\"one\":{\"method\":\"elicitation/create\",\"params\":$FORM},\"two\":{\"method\":\"elicitation/create\",\"params\":{\"mode\":\"url\",\"elicitationId\":\"e\",\"url\":\"https://example.org/go\",\"message\":\"Visit\"}}}}" ;;
  esac
done
"#;

const FORM: &str = r#"{"message":"Who are you?","requestedSchema":{"type":"object","properties":{"name":{"type":"string","title":"Name","minLength":2},"age":{"type":"integer","minimum":0},"vip":{"type":"boolean","default":true},"size":{"type":"string","enum":["s","l"],"enumNames":["Small","Large"]},"colour":{"type":"string","oneOf":[{"const":"r","title":"Red"},{"const":"g","title":"Green"}],"default":"g"},"likes":{"type":"array","items":{"anyOf":[{"const":"a","title":"Apples"},{"const":"b","title":"Bees"}]},"default":["a"]}},"required":["name"]}}"#;

struct World {
    rig: Rig,
    _home: tempfile::TempDir,
}

fn server_config(entry: &Value, home: &std::path::Path) -> ServerConfig {
    let home = Home::at(home);
    let env = Env::load(&home, &ProcessEnv::default()).unwrap();
    let entry = config::server("asking", entry, &env, &home);
    assert!(entry.config.is_some(), "{:?}", entry.problems);
    entry.config.unwrap()
}

impl World {
    async fn new(script: &str, form: &str, more: Value) -> Self {
        let home = tempfile::tempdir().unwrap();
        let mut entry = json!({"command": "/bin/sh", "timeout": 60});
        for (key, value) in more.as_object().into_iter().flatten() {
            entry[key] = value.clone();
        }
        let config = server_config(&entry, home.path());
        let target = ServerTarget::Stdio(StdioTarget {
            command: "/bin/sh".into(),
            args: vec!["-c".into(), script.into()],
            env: [("FORM".to_owned(), form.to_owned())].into(),
            cwd: None,
            children: Children::new(home.path(), std::env::vars()),
        });
        let mut connector =
            McpConnector::new("asking", target, Arc::new(MemoryEraCache::default()));
        connector.protocol = config.protocol;
        connector.requests = Some(Arc::new(ServerRequestHandler::new(&config, None)));
        let settings: ServerSettings = config.settings();
        let mut rig = Rig::start(ServerSpec {
            settings,
            connector: Arc::new(connector),
        });
        rig.ready().await;
        Self { rig, _home: home }
    }

    async fn ask_for(&self, session: &str, asker: Arc<dyn Asker>) -> Result<Value, CallError> {
        let options = CallOptions {
            origin: Some(CallOrigin {
                session: session.to_owned(),
                asker,
            }),
            ..CallOptions::default()
        };
        let output = self.rig.server.call(call("ask", json!({})), options).await;
        output.map(|output| output.result["structuredContent"].clone())
    }

    fn audit(&self, label: &str) -> u64 {
        let status = self.rig.server.status();
        status.requests.get(label).copied().unwrap_or_default()
    }
}

/// A user with prepared answers.
struct Scripted {
    asked: Mutex<Vec<Question>>,
    answer: Box<dyn Fn(&Question) -> Answer + Send + Sync>,
    delay: Duration,
}

fn scripted(answer: impl Fn(&Question) -> Answer + Send + Sync + 'static) -> Arc<Scripted> {
    Arc::new(Scripted {
        asked: Mutex::default(),
        answer: Box::new(answer),
        delay: Duration::ZERO,
    })
}

impl Asker for Scripted {
    fn ask(&self, question: Question) -> BoxFuture<'_, Answer> {
        Box::pin(async move {
            tokio::time::sleep(self.delay).await;
            let answer = (self.answer)(&question);
            self.asked.lock().unwrap().push(question);
            answer
        })
    }
}

fn form(values: Value) -> Answer {
    let Value::Object(values) = values else {
        panic!("{values}")
    };
    Answer::Form { values }
}

#[tokio::test]
async fn a_form_reaches_the_user_and_its_values_the_server() {
    let world = World::new(LEGACY, FORM, json!({})).await;
    let hello = world.rig.call("echo", json!({})).await.unwrap();
    let offered = &hello["structuredContent"]["params"]["capabilities"]["elicitation"];
    assert_eq!(*offered, json!({"form": {}, "url": {}}));
    let user = scripted(|_| form(json!({"name": "Ada", "age": 36, "size": "l"})));
    let reply = world.ask_for("s1", Arc::clone(&user) as _).await.unwrap();
    assert_eq!(
        reply["result"],
        json!({"action": "accept", "content": {
            "name": "Ada", "age": 36, "vip": true, "size": "l", "colour": "g", "likes": ["a"],
        }})
    );
    let asked = user.asked.lock().unwrap().clone();
    assert_eq!(asked[0].from, "MCP server asking");
    assert_eq!(asked[0].text, "Who are you?");
    let Want::Form { fields } = &asked[0].want else {
        panic!("{asked:?}")
    };
    let by_name = |name: &str| fields.iter().find(|field| field.name == name).unwrap();
    assert!(by_name("name").required);
    assert!(!by_name("age").required);
    let FieldKind::One { options } = &by_name("size").kind else {
        panic!("{fields:?}")
    };
    assert_eq!(options[1].title, "Large");
    assert_eq!(world.audit("elicitation/form/accept"), 1);
    world.rig.stop().await;
}

#[tokio::test]
async fn a_refusal_and_a_missing_user_decline() {
    let world = World::new(LEGACY, FORM, json!({})).await;
    let refusing = scripted(|_| Answer::Declined { why: None });
    let reply = world.ask_for("s1", refusing).await.unwrap();
    assert_eq!(reply["result"], json!({"action": "decline"}));
    let reply = world.ask_for("s1", Arc::new(DeclineAll)).await.unwrap();
    assert_eq!(reply["result"]["action"], "decline");
    let why = reply["result"]["_meta"]["hermes/reason"].as_str().unwrap();
    assert!(why.contains("nobody is here"), "{why}");
    // A call without a user.
    let reply = world.rig.call("ask", json!({})).await.unwrap();
    assert_eq!(reply["structuredContent"]["result"]["action"], "decline");
    // Invalid values never reach the server as an answer.
    let wrong = scripted(|_| form(json!({"name": "A"})));
    let reply = world.ask_for("s1", wrong).await.unwrap();
    assert_eq!(reply["error"]["code"], -32603);
    world.rig.stop().await;
}

#[tokio::test]
async fn questions_can_be_turned_off_and_end_after_their_time() {
    let off = World::new(LEGACY, FORM, json!({"elicitation": {"enabled": false}})).await;
    let never = scripted(|_| panic!("was asked"));
    let reply = off.ask_for("s1", never).await.unwrap();
    assert_eq!(reply["result"]["action"], "decline");
    let hello = off.rig.call("echo", json!({})).await.unwrap();
    let capabilities = &hello["structuredContent"]["params"]["capabilities"];
    assert!(capabilities["elicitation"].is_null(), "{capabilities}");
    off.rig.stop().await;
    let brief = World::new(LEGACY, FORM, json!({"elicitation": {"timeout": 0.05}})).await;
    let reply = brief.ask_for("s1", Arc::new(WaitingAsker::default())).await;
    let reply = reply.unwrap();
    assert_eq!(reply["result"]["action"], "cancel");
    assert_eq!(brief.audit("elicitation/form/cancel"), 1);
    brief.rig.stop().await;
}

/// Waits until the test continues it.
#[derive(Default)]
struct WaitingAsker {
    asked: Notify,
    go_on: Notify,
}

impl Asker for WaitingAsker {
    fn ask(&self, _question: Question) -> BoxFuture<'_, Answer> {
        Box::pin(async {
            self.asked.notify_one();
            self.go_on.notified().await;
            form(json!({"name": "Ada"}))
        })
    }
}

#[tokio::test]
async fn a_question_holds_up_no_other_call_and_goes_only_to_its_own_conversation() {
    // One call at a time, as for every local server.
    let world = World::new(LEGACY, FORM, json!({})).await;
    let user = Arc::new(WaitingAsker::default());
    let asking = world.ask_for("s1", Arc::clone(&user) as _);
    let meanwhile = async {
        user.asked.notified().await;
        world.rig.call("echo", json!({})).await.unwrap();
        assert_eq!(world.rig.server.status().inflight, 1);
        user.go_on.notify_one();
    };
    let (reply, ()) = tokio::join!(asking, meanwhile);
    assert_eq!(reply.unwrap()["result"]["action"], "accept");
    // The slot is taken again: still one call at a time.
    world.rig.call("echo", json!({})).await.unwrap();
    world.rig.stop().await;

    // Two conversations at once: the server does not say which of them it asks.
    let parallel = json!({"supports_parallel_tool_calls": true});
    let world = World::new(LEGACY, FORM, parallel).await;
    let user = Arc::new(WaitingAsker::default());
    let first = world.ask_for("s1", Arc::clone(&user) as _);
    let second = async {
        user.asked.notified().await;
        let never = scripted(|_| panic!("was asked"));
        let refused = world.ask_for("s2", never).await.unwrap();
        let why = refused["result"]["_meta"]["hermes/reason"].as_str();
        assert!(why.unwrap().contains("several conversations"), "{why:?}");
    };
    tokio::select! {
        _ = first => panic!("answered"),
        () = second => {}
    }
    world.rig.stop().await;
}

#[tokio::test]
async fn the_clock_of_a_call_stops_while_the_user_is_asked() {
    let more = json!({"timeout": 2, "max_timeout": 2});
    let world = World::new(LEGACY, FORM, more).await;
    let user = Arc::new(Scripted {
        asked: Mutex::default(),
        answer: Box::new(|_| form(json!({"name": "Ada"}))),
        delay: Duration::from_millis(3500),
    });
    let reply = world.ask_for("s1", user).await.unwrap();
    assert_eq!(reply["result"]["action"], "accept");
    world.rig.stop().await;
}

#[tokio::test]
async fn a_stateless_server_asks_by_its_answer_and_is_asked_again() {
    let more = json!({"protocol": "modern"});
    let world = World::new(MODERN, FORM, more.clone()).await;
    let user = scripted(|question| match &question.want {
        Want::Visit { url } if url == "https://example.org/go" => Answer::Agreed,
        Want::Form { .. } => form(json!({"name": "Ada"})),
        other => panic!("{other:?}"),
    });
    let second = world.ask_for("s1", user).await.unwrap();
    let params = &second["params"];
    assert_eq!(params["requestState"], "s");
    assert_eq!(params["inputResponses"]["one"]["content"]["name"], "Ada");
    assert_eq!(params["inputResponses"]["two"], json!({"action": "accept"}));
    // Without a user the server gets a refusal, and continues as it likes.
    let second = world.ask_for("s1", Arc::new(DeclineAll)).await.unwrap();
    let inputs = &second["params"]["inputResponses"];
    assert_eq!(inputs["one"]["action"], "decline");
    assert_eq!(inputs["two"]["action"], "decline");
    world.rig.stop().await;
}

#[tokio::test]
async fn pages_that_are_no_pages_and_forms_that_are_no_forms_are_refused() {
    for odd in [
        r#"{"mode":"url","elicitationId":"e","url":"file:///etc/passwd","message":"m"}"#,
        r#"{"mode":"url","elicitationId":"e","url":"https://bank.example@evil.example/","message":"m"}"#,
        r#"{"message":"m","requestedSchema":{"type":"object","properties":{"o":{"type":"object","properties":{}}}}}"#,
    ] {
        let world = World::new(LEGACY, odd, json!({})).await;
        let never = scripted(|_| panic!("was asked"));
        let reply = world.ask_for("s1", never).await.unwrap();
        assert_eq!(reply["error"]["code"], -32602, "{odd}: {reply}");
        world.rig.stop().await;
    }
}

/// Refuses until a page was visited.
const VISIT: &str = r#"
answer() { printf '{"jsonrpc":"2.0","id":%s,"result":%s}\n' "$id" "$1"; }
while read -r line; do
  id=$(printf '%s' "$line" | sed -n 's/.*"id":\([0-9][0-9]*\).*/\1/p')
  case $line in
    *'"initialize"'*) answer '{"protocolVersion":"2025-11-25","capabilities":{"tools":{}},"serverInfo":{"name":"visit","version":"1"}}' ;;
    *'"tools/list"'*) answer '{"tools":[{"name":"ask","inputSchema":{"type":"object"}}]}' ;;
    *'"tools/call"'*) printf '{"jsonrpc":"2.0","id":%s,"error":{"code":-32042,"message":"Authorise first","data":{"elicitations":[{"mode":"url","elicitationId":"e","url":"https://example.org/grant","message":"Grant access"}]}}}\n' "$id" ;;
  esac
done
"#;

#[tokio::test]
async fn a_call_that_needs_a_visit_first_asks_for_it() {
    let world = World::new(VISIT, "", json!({})).await;
    let user = scripted(|question| {
        let wanted = Want::Visit {
            url: "https://example.org/grant".into(),
        };
        assert_eq!(question.want, wanted);
        Answer::Agreed
    });
    let error = world.ask_for("s1", user).await.unwrap_err();
    let text = error.to_string();
    assert!(
        text.contains("agreed to visit https://example.org/grant"),
        "{text}"
    );
    assert!(!error.outcome_unknown && !error.retried, "{error:?}");
    let error = world.ask_for("s1", Arc::new(DeclineAll)).await.unwrap_err();
    assert!(error.to_string().contains("did not agree"), "{error}");
    world.rig.stop().await;
}

//! Runs that ask for a permission that nobody gives, or that is no longer needed.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt as _;
use hermes_api::{ApiDeps, ApiServer, GatewayFacts};
use hermes_app::{
    ConversationHost, ConversationRequest, ConversationUpdate, HostError, OpenedConversation,
    OpeningRequest,
};
use hermes_config::{Config, Home};
use hermes_core::approval::ApprovalRequest;
use hermes_core::clock::SystemClock;
use hermes_core::event::{AgentCommand, AgentEvent, TurnExit};
use hermes_core::{BoxFuture, task};
use hermes_gateway::{ConversationPool, PoolLimits};
use hermes_platforms::{Offer, PlatformSettings};
use hermes_store::Store;
use pretty_assertions::assert_eq;
use reqwest::{Method, RequestBuilder};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use crate::fake_conversation::{self, FakeSide};
use crate::harness::{KEY, StreamedEvent, answer, events};

/// Longer than any test needs.
const PATIENCE: Duration = Duration::from_secs(20);
/// `approvals.gateway_timeout`.
const TIMEOUT: u64 = 60;

/// Asks for what the words name, one after the other; `-name`: that is no longer needed. The turn
/// ends with the first answer.
struct ApprovalHost;

impl ConversationHost for ApprovalHost {
    fn ready(&self) -> Result<(), HostError> {
        Ok(())
    }

    fn open(
        &self,
        opening: OpeningRequest,
    ) -> BoxFuture<'_, Result<OpenedConversation, HostError>> {
        let (opened, side) = fake_conversation::open(&opening.id);
        drop(task::spawn("asks", talk(opening.id, side)));
        Box::pin(std::future::ready(Ok(opened)))
    }

    fn commands(&self) -> Vec<Offer> {
        Vec::new()
    }
}

async fn talk(id: String, mut side: FakeSide) {
    while let Some(request) = side.requests.recv().await {
        let ConversationRequest::Input(input) = request else {
            continue;
        };
        let route = fake_conversation::route();
        let session = id.as_str().into();
        let mut told = vec![AgentEvent::TurnStarted { session, route }];
        told.extend(input.text.split_whitespace().map(asks));
        for event in told {
            let _ = side.updates.send(ConversationUpdate::Event(event)).await;
        }
        let text = loop {
            match side.requests.recv().await {
                Some(ConversationRequest::Agent(AgentCommand::Answer { request, verdict })) => {
                    break format!("{request}: {verdict:?}");
                }
                Some(_) => {}
                None => return,
            }
        };
        let summary = fake_conversation::summary(TurnExit::Answered, text);
        let end = AgentEvent::TurnFinished { summary };
        let _ = side.updates.send(ConversationUpdate::Event(end)).await;
    }
}

fn asks(word: &str) -> AgentEvent {
    if let Some(question) = word.strip_prefix('-') {
        return AgentEvent::QuestionClosed {
            question: question.to_owned(),
        };
    }
    AgentEvent::ApprovalNeeded {
        request: ApprovalRequest {
            kind: hermes_core::approval::ApprovalKind::Action,
            id: word.to_owned(),
            tool: "terminal".to_owned(),
            action: format!("rm -rf {word}"),
            reasons: Vec::new(),
            rule: None,
            posture: None,
        },
    }
}

struct NoFacts;

impl GatewayFacts for NoFacts {
    fn status(&self) -> Value {
        json!({})
    }

    fn draining(&self) -> bool {
        false
    }

    fn toolsets(&self) -> Vec<Value> {
        Vec::new()
    }

    fn jobs_changed(&self) {}
}

struct AskingHarness {
    url: String,
    client: reqwest::Client,
    _home: tempfile::TempDir,
}

impl AskingHarness {
    async fn new() -> Self {
        let home = tempfile::tempdir().unwrap();
        let mut settings = PlatformSettings {
            name: "api_server".to_owned(),
            ..PlatformSettings::default()
        };
        let extra = [("port", json!(0)), ("key", json!(KEY))];
        let extra = extra.map(|(name, value)| (name.to_owned(), value));
        settings.extra.extend(extra);
        let mut config = Config::default();
        config.approvals.gateway_timeout = Some(TIMEOUT);
        let server = ApiServer::from_settings(&settings, &config, None);
        let (server, cancel) = (server.unwrap().unwrap(), CancellationToken::new());
        let store = Store::open(home.path().join("state.db"), Arc::new(SystemClock)).unwrap();
        let deps = ApiDeps {
            pool: ConversationPool::new(
                Arc::new(ApprovalHost),
                PoolLimits::default(),
                cancel.clone(),
            ),
            store,
            home: Home::at(home.path()),
            config: Arc::new(config),
            clock: Arc::new(SystemClock),
            facts: Arc::new(NoFacts),
        };
        let listener = server.bind().await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        drop(task::spawn("server", server.serve(listener, deps, cancel)));
        let http = hermes_platforms::PlatformHttp::new(&HashMap::new(), None);
        let client = http.client().unwrap();
        Self {
            url,
            client,
            _home: home,
        }
    }

    fn request(&self, method: Method, path: &str) -> RequestBuilder {
        let url = format!("{}{path}", self.url);
        self.client.request(method, url).bearer_auth(KEY)
    }

    async fn post(&self, path: &str, body: &Value) -> (u16, Value) {
        let request = self.request(Method::POST, path).body(body.to_string());
        answer(request.send().await.unwrap()).await
    }

    async fn start(&self, input: &str) -> FollowedRun {
        let (status, started) = self.post("/v1/runs", &json!({"input": input})).await;
        assert_eq!(status, 202, "{started}");
        let path = format!("/v1/runs/{}", started["run_id"].as_str().unwrap());
        let request = self.request(Method::GET, &format!("{path}/events"));
        let bytes = request.send().await.unwrap().bytes_stream();
        FollowedRun {
            path,
            bytes: bytes.map(|bytes| bytes.unwrap().to_vec()).boxed(),
            text: String::new(),
        }
    }
}

struct FollowedRun {
    path: String,
    bytes: futures_util::stream::BoxStream<'static, Vec<u8>>,
    text: String,
}

impl FollowedRun {
    /// Reads on until there is an event of this kind.
    async fn until(&mut self, kind: &str) -> StreamedEvent {
        let reading = async {
            loop {
                let all = events(&self.text);
                let found = all.into_iter().rfind(|one| one.data["event"] == kind);
                if let Some(found) = found {
                    return found;
                }
                let more = self.bytes.next().await.expect("more events");
                self.text.push_str(&String::from_utf8_lossy(&more));
            }
        };
        let waited = tokio::time::timeout(PATIENCE, reading).await;
        waited.unwrap_or_else(|_| panic!("no {kind}: {}", self.text))
    }
}

#[tokio::test]
async fn a_request_that_nobody_answers_is_denied_in_time() {
    let desk = AskingHarness::new().await;
    let mut run = desk.start("alone").await;
    run.until("approval.request").await;
    tokio::time::pause();
    tokio::time::advance(Duration::from_secs(TIMEOUT)).await;
    tokio::time::resume();
    let told = run.until("approval.responded").await;
    assert_eq!(told.data["choice"], "deny");
    assert_eq!(told.data["request_id"], "alone");
    let end = run.until("run.completed").await;
    let denied = "alone: Deny { why: Some(\"no one answered in time\") }";
    assert_eq!(end.data["output"], denied);
}

#[tokio::test]
async fn a_request_that_is_no_longer_needed_is_not_answered_for_another() {
    let desk = AskingHarness::new().await;
    let mut run = desk.start("dead -dead live").await;
    let closed = run.until("approval.closed").await;
    assert_eq!(closed.data["request_id"], "dead");
    while run.until("approval.request").await.data["request_id"] != "live" {
        let more = run.bytes.next().await.expect("more events");
        run.text.push_str(&String::from_utf8_lossy(&more));
    }
    let path = format!("{}/approval", run.path);
    let dead = json!({"choice": "once", "request_id": "dead"});
    let (status, body) = desk.post(&path, &dead).await;
    let code = &body["error"]["code"];
    assert_eq!((status, code), (409, &json!("approval_not_pending")));
    let (status, body) = desk.post(&path, &json!({"choice": "once"})).await;
    assert_eq!((status, &body["resolved"]), (200, &json!(1)), "{body}");
    let end = run.until("run.completed").await;
    assert_eq!(end.data["output"], "live: Once");
}

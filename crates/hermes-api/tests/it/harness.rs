//! A server on loopback before a program that does what it is told.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use hermes_api::{ActiveTurns, ApiDeps, ApiServer, GatewayFacts};
use hermes_app::{
    ConversationHost, ConversationRequest, ConversationUpdate, HostError, HostErrorKind,
    OpenedConversation, OpeningRequest,
};
use hermes_config::{Config, Home};
use hermes_core::approval::{ApprovalRequest, Rule, Verdict};
use hermes_core::ask::{Answer, Question, Want};
use hermes_core::clock::{Clock, SystemClock};
use hermes_core::event::{AgentCommand, AgentEvent, TurnExit, TurnSummary, UserInput};
use hermes_core::message::Message;
use hermes_core::model::ErrorClass;
use hermes_core::store::{NewItem, NewSession, SessionStore as _};
use hermes_core::usage::Usage;
use hermes_core::{BoxFuture, task};
use hermes_gateway::{ConversationPool, PoolLimits};
use hermes_platforms::{Offer, PlatformSettings};
use hermes_store::Store;
use reqwest::{Method, RequestBuilder, Response};
use serde_json::{Value, json};
use tokio::sync::{Notify, mpsc};
use tokio_util::sync::CancellationToken;

use crate::fake_conversation;

pub(crate) const KEY: &str = "test-key-0123456789abcdef";

/// What tests see of the program.
#[derive(Default)]
pub(crate) struct SeenOpening {
    pub openings: Mutex<Vec<OpeningRequest>>,
    pub inputs: Mutex<Vec<UserInput>>,
    pub interrupted: Notify,
    /// Opened by the test, for those who said "door".
    pub door: Notify,
    pub jobs_changed: AtomicUsize,
    pub draining: AtomicBool,
}

impl SeenOpening {
    /// Waits until so many conversations were opened.
    pub(crate) async fn openings_at_least(&self, count: usize) {
        while self.openings.lock().unwrap().len() < count {
            tokio::task::yield_now().await;
        }
    }
}

/// Answers by the first word of what is said.
struct FakeHost {
    store: Store,
    seen: Arc<SeenOpening>,
}

impl ConversationHost for FakeHost {
    fn ready(&self) -> Result<(), HostError> {
        Ok(())
    }

    fn open(
        &self,
        opening: OpeningRequest,
    ) -> BoxFuture<'_, Result<OpenedConversation, HostError>> {
        Box::pin(async move {
            self.seen.openings.lock().unwrap().push(opening.clone());
            if opening.id.starts_with("refused") {
                let message = "no model is set up";
                return Err(HostError::new(HostErrorKind::NotConfigured, message));
            }
            let session = NewSession {
                id: Some(opening.id.as_str().into()),
                source: opening.source.clone(),
                system_prompt: opening.system.clone(),
                started_at: SystemClock.epoch_seconds(),
                ..NewSession::default()
            };
            let stored = self.store.load(&opening.id.as_str().into()).await.unwrap();
            self.store.begin(session).await.unwrap();
            let past = match stored {
                Some(stored) => stored.items.into_iter().map(|item| item.message).collect(),
                None => opening.history.clone(),
            };
            let (opened, side) = fake_conversation::open(&opening.id);
            let talk = FakeConversation {
                id: opening.id.clone(),
                unattended: opening.unattended,
                past,
                requests: side.requests,
                updates: side.updates,
                store: self.store.clone(),
                seen: Arc::clone(&self.seen),
            };
            task::spawn("talk", talk.run());
            Ok(opened)
        })
    }

    fn commands(&self) -> Vec<Offer> {
        Vec::new()
    }
}

struct FakeConversation {
    id: String,
    unattended: bool,
    past: Vec<Message>,
    requests: mpsc::Receiver<ConversationRequest>,
    updates: mpsc::Sender<ConversationUpdate>,
    store: Store,
    seen: Arc<SeenOpening>,
}

impl FakeConversation {
    async fn run(mut self) {
        while let Some(request) = self.requests.recv().await {
            if let ConversationRequest::Input(input) = request {
                self.seen.inputs.lock().unwrap().push(input.clone());
                self.turn(&input).await;
            }
        }
    }

    async fn tell(&self, event: AgentEvent) {
        // Nobody listens any more: the conversation is being closed.
        let _ = self.updates.send(ConversationUpdate::Event(event)).await;
    }

    async fn text(&self, text: &str) {
        // In pieces, as models write.
        for word in text.split_inclusive(' ') {
            let text = word.to_owned();
            self.tell(AgentEvent::TextDelta { text }).await;
        }
    }

    async fn turn(&mut self, input: &UserInput) {
        let route = fake_conversation::route();
        let session = self.id.as_str().into();
        self.tell(AgentEvent::TurnStarted { session, route }).await;
        let (verb, rest) = input.text.split_once(' ').unwrap_or((&input.text, ""));
        let (exit, text) = match verb {
            "tool" => (TurnExit::Answered, self.tool(rest).await),
            "wait" => self.wait().await,
            "door" => {
                self.text("before ").await;
                self.seen.door.notified().await;
                self.text("after").await;
                (TurnExit::Answered, "before after".to_owned())
            }
            "danger" => (TurnExit::Answered, self.danger().await),
            "ask" => (TurnExit::Answered, self.ask().await),
            "again" => (TurnExit::Answered, self.again().await),
            "past" => (TurnExit::Answered, self.say(&self.recall()).await),
            "quiet" => (TurnExit::Answered, "told at the end".to_owned()),
            "half" => {
                let why = "the answer was cut at the length limit".to_owned();
                (TurnExit::Partial { why }, self.say("half of").await)
            }
            "long" => {
                let message = "the conversation does not fit the model".to_owned();
                (TurnExit::ContextFull { message }, String::new())
            }
            "fail" => {
                let message = "no credit left, key sk-proj-abcdefghijklmnopqrstuvwxyz012345";
                let exit = TurnExit::Failed {
                    class: ErrorClass::Billing,
                    message: message.to_owned(),
                };
                (exit, String::new())
            }
            _ => {
                let answer = format!("You said: {}", input.text);
                (TurnExit::Answered, self.say(&answer).await)
            }
        };
        self.store_turn(input, &text).await;
        let summary = TurnSummary {
            usage: Usage {
                input: 7,
                output: 5,
                cache_read: 3,
                ..Usage::default()
            },
            ..fake_conversation::summary(exit, text)
        };
        self.tell(AgentEvent::TurnFinished { summary }).await;
    }

    async fn say(&self, text: &str) -> String {
        self.text(text).await;
        text.to_owned()
    }

    async fn tool(&self, command: &str) -> String {
        self.text("I look. ").await;
        let arguments = json!({"command": command}).to_string();
        self.tell(AgentEvent::ToolStarted {
            call_id: "call_1".to_owned(),
            name: "terminal".to_owned(),
            arguments,
        })
        .await;
        self.tell(AgentEvent::ToolFinished {
            call_id: "call_1".to_owned(),
            name: "terminal".to_owned(),
            error: None,
            preview: "a.txt".to_owned(),
            millis: 12,
        })
        .await;
        self.say("There is a.txt.").await
    }

    /// Until somebody interrupts.
    async fn wait(&mut self) -> (TurnExit, String) {
        self.text("waiting").await;
        while let Some(request) = self.requests.recv().await {
            if matches!(request, ConversationRequest::Agent(AgentCommand::Interrupt)) {
                self.seen.interrupted.notify_one();
                break;
            }
        }
        (TurnExit::Interrupted, "waiting".to_owned())
    }

    async fn danger(&mut self) -> String {
        if self.unattended {
            return self.say("denied: nobody is here").await;
        }
        let request = ApprovalRequest {
            kind: hermes_core::approval::ApprovalKind::Action,
            id: "request-1".to_owned(),
            tool: "terminal".to_owned(),
            action: "rm -rf build".to_owned(),
            reasons: vec!["it deletes".to_owned()],
            rule: Some(Rule("rm".to_owned())),
            posture: None,
        };
        self.tell(AgentEvent::ApprovalNeeded { request }).await;
        while let Some(request) = self.requests.recv().await {
            match request {
                ConversationRequest::Agent(AgentCommand::Answer { request, verdict }) => {
                    assert_eq!(request, "request-1");
                    let text = match verdict {
                        Verdict::Deny { .. } => "denied".to_owned(),
                        other => format!("allowed: {other:?}"),
                    };
                    return self.say(&text).await;
                }
                ConversationRequest::Agent(AgentCommand::Interrupt) => return "stopped".to_owned(),
                _ => {}
            }
        }
        String::new()
    }

    async fn ask(&mut self) -> String {
        let question = Question {
            id: "q".to_owned(),
            from: "clarify".to_owned(),
            text: "Which?".to_owned(),
            want: Want::Text,
        };
        self.tell(AgentEvent::QuestionAsked { question }).await;
        while let Some(request) = self.requests.recv().await {
            if let ConversationRequest::Agent(AgentCommand::Reply { answer, .. }) = request {
                assert!(matches!(answer, Answer::Unanswered { .. }));
                return self.say("I decided myself").await;
            }
        }
        String::new()
    }

    async fn again(&self) -> String {
        self.text("It was a dark").await;
        let why = "the stream broke".to_owned();
        self.tell(AgentEvent::StepDiscarded { why }).await;
        self.say("It was a dark night").await
    }

    fn recall(&self) -> String {
        let texts: Vec<String> = self
            .past
            .iter()
            .map(|message| match message {
                Message::User(user) => format!("user={}", user.content.text()),
                Message::Assistant(assistant) => format!("assistant={}", assistant.text),
                Message::Tool(result) => format!("tool={}", result.content.text()),
            })
            .collect();
        format!("[{}]", texts.join("|"))
    }

    async fn store_turn(&mut self, input: &UserInput, text: &str) {
        let new = [
            Message::user(input.text.clone()),
            Message::assistant(text.to_owned()),
        ];
        let at = SystemClock.epoch_seconds();
        let items = new.iter().map(|message| NewItem {
            message: message.clone(),
            at,
            token_count: None,
            platform_message_id: None,
        });
        let id = self.id.as_str().into();
        self.store.append(&id, items.collect()).await.unwrap();
        self.past.extend(new);
    }
}

struct TestFacts(Arc<SeenOpening>);

impl GatewayFacts for TestFacts {
    fn status(&self) -> Value {
        json!({"gateway_state": "running", "active_agents": 1, "updated_at": "now",
               "platforms": {"telegram": {"state": "connected"}, "slack": {"state": "retrying"}}})
    }

    fn draining(&self) -> bool {
        self.0.draining.load(Ordering::SeqCst)
    }

    fn toolsets(&self) -> Vec<Value> {
        vec![json!({"name": "terminal", "enabled": true, "tools": ["terminal"]})]
    }

    fn jobs_changed(&self) {
        self.0.jobs_changed.fetch_add(1, Ordering::SeqCst);
    }
}

/// A running server.
pub(crate) struct ApiHarness {
    pub url: String,
    pub seen: Arc<SeenOpening>,
    pub home: PathBuf,
    pub work: ActiveTurns,
    client: reqwest::Client,
    cancel: CancellationToken,
    served: tokio::task::JoinHandle<Result<std::io::Result<()>, task::Panicked>>,
    dir: tempfile::TempDir,
}

impl ApiHarness {
    pub(crate) async fn new() -> Self {
        Self::with(json!({})).await
    }

    pub(crate) async fn with(extra: Value) -> Self {
        Self::at(tempfile::tempdir().unwrap(), extra).await
    }

    /// The next process, in the same home.
    pub(crate) async fn again(self) -> Self {
        self.cancel.cancel();
        self.served.await.unwrap().unwrap().unwrap();
        Self::at(self.dir, json!({})).await
    }

    async fn at(dir: tempfile::TempDir, extra: Value) -> Self {
        let home = dir.path().to_owned();
        let store = Store::open(home.join("state.db"), Arc::new(SystemClock)).unwrap();
        let seen = Arc::new(SeenOpening::default());
        let (server, cancel) = (server(&extra), CancellationToken::new());
        let program = Arc::new(FakeHost {
            store: store.clone(),
            seen: Arc::clone(&seen),
        });
        let deps = ApiDeps {
            pool: ConversationPool::new(program, PoolLimits::default(), cancel.clone()),
            store: store.clone(),
            home: Home::at(&home),
            config: Arc::new(Config::default()),
            clock: Arc::new(SystemClock),
            facts: Arc::new(TestFacts(Arc::clone(&seen))),
        };
        let listener = server.bind().await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let work = server.work();
        let served = task::spawn("server", server.serve(listener, deps, cancel.clone()));
        let http = hermes_platforms::PlatformHttp::new(&HashMap::new(), None);
        Self {
            url,
            seen,
            home,
            work,
            client: http.client().unwrap(),
            cancel,
            served,
            dir,
        }
    }

    pub(crate) fn request(&self, method: Method, path: &str) -> RequestBuilder {
        let url = format!("{}{path}", self.url);
        self.client.request(method, url).bearer_auth(KEY)
    }

    /// Without a key.
    pub(crate) fn stranger(&self, method: Method, path: &str) -> RequestBuilder {
        self.client.request(method, format!("{}{path}", self.url))
    }

    pub(crate) async fn get(&self, path: &str) -> (u16, Value) {
        answer(self.request(Method::GET, path).send().await.unwrap()).await
    }

    pub(crate) async fn post(&self, path: &str, body: Value) -> (u16, Value) {
        let request = self.request(Method::POST, path).body(body.to_string());
        answer(request.send().await.unwrap()).await
    }

    /// A chat completion of one message; the answer's text.
    pub(crate) async fn say(&self, text: &str) -> String {
        let body = json!({"messages": [{"role": "user", "content": text}]});
        let (status, answer) = self.post("/v1/chat/completions", body).await;
        assert_eq!(status, 200, "{answer}");
        let text = &answer["choices"][0]["message"]["content"];
        text.as_str().unwrap().to_owned()
    }

    pub(crate) async fn stop(self) {
        self.cancel.cancel();
        self.served.await.unwrap().unwrap().unwrap();
    }
}

pub(crate) async fn answer(response: Response) -> (u16, Value) {
    let status = response.status().as_u16();
    let text = response.text().await.unwrap();
    let body = serde_json::from_str(&text).unwrap_or(Value::String(text));
    (status, body)
}

fn server(extra: &Value) -> ApiServer {
    let mut extra = extra.as_object().cloned().unwrap();
    extra.insert("port".to_owned(), json!(0));
    extra.insert("key".to_owned(), json!(KEY));
    let settings = PlatformSettings {
        name: "api_server".to_owned(),
        extra,
        ..PlatformSettings::default()
    };
    let server = ApiServer::from_settings(&settings, &Config::default(), None);
    server.unwrap().unwrap()
}

/// Events of a stream: name (if any), id (if any), data.
#[derive(Debug)]
pub(crate) struct StreamedEvent {
    pub name: Option<String>,
    pub id: Option<String>,
    pub data: Value,
}

pub(crate) fn events(text: &str) -> Vec<StreamedEvent> {
    let blocks = text.split("\n\n").filter(|block| !block.is_empty());
    let event = |block: &str| {
        let line = |start: &str| {
            let found = block.lines().find_map(|line| line.strip_prefix(start));
            found.map(str::to_owned)
        };
        let data = line("data: ")?;
        Some(StreamedEvent {
            name: line("event: "),
            id: line("id: "),
            data: serde_json::from_str(&data).unwrap_or(Value::String(data)),
        })
    };
    blocks.filter_map(event).collect()
}

pub(crate) async fn stream(request: RequestBuilder) -> Vec<StreamedEvent> {
    let response = request.send().await.unwrap();
    let kind = response.headers()["content-type"]
        .to_str()
        .unwrap()
        .to_owned();
    assert!(kind.starts_with("text/event-stream"), "{kind}");
    events(&response.text().await.unwrap())
}

/// The interpreter of an SDK's installation, and the file that says what to run with it.
pub(crate) fn sdk(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../hermes-testkit/sdk/openai")
        .join(name)
}

//! A scripted model server on loopback: OpenAI chat completions, Anthropic messages and OpenAI
//! responses, with the faults of real servers on demand.
//!
//! It runs on a thread of its own with its own clock, so that a test may pause tokio's time, block,
//! or start other programs against it.
//!
//! ```
//! use hermes_testkit::model_server::{ModelServer, Reply};
//! use serde_json::json;
//!
//! let server = ModelServer::start();
//! // One answer after the other …
//! server.push(Reply::tool_call("call_1", "read_file", &json!({"path": "a.txt"})));
//! server.push(Reply::text("The file says hello."));
//! // … or an agent by rule.
//! server.answer_with(|request| {
//!     if request.ends_with_tool_result() {
//!         Reply::text("done")
//!     } else {
//!         Reply::tool_call("call_1", "todo", &json!({}))
//!     }
//! });
//! assert!(server.base_url().ends_with("/v1"));
//! ```

mod encode;
pub(crate) mod http;
mod reply;
mod request;
mod script;
mod serve;

use std::net::SocketAddr;
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use serde_json::Value;
use tokio::runtime::Handle;
use tokio::sync::watch;

use crate::server_thread::{ServerThread, listen};

pub use reply::{ReasoningField, Reply, ReplyGate, ReplyUsage, ScriptedCall, UsagePlace};
pub use request::{Format, RecordedRequest, ToolResult};
pub use script::{load_script, reply_from_json};

type Predicate = Arc<dyn Fn(&RecordedRequest) -> bool + Send + Sync>;
type ReplyRule = Arc<dyn Fn(&RecordedRequest) -> Option<Reply> + Send + Sync>;

/// The server. It stops when dropped.
pub struct ModelServer {
    address: SocketAddr,
    shared: Arc<ModelServerShared>,
    handle: Handle,
    _thread: ServerThread,
}

pub(crate) struct ModelServerShared {
    script: Mutex<ModelScript>,
    requests: Mutex<Vec<RecordedRequest>>,
    answers: Mutex<Vec<AnsweredAt>>,
    progress: watch::Sender<ModelServerProgress>,
}

/// When the last byte of an answer was handed to the system.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AnsweredAt {
    /// [`RecordedRequest::index`] of the request.
    pub index: usize,
    /// Wall-clock nanoseconds.
    pub ns: u128,
}

/// Counts of what happened so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ModelServerProgress {
    pub connections: usize,
    pub requests: usize,
    /// Answers sent to their planned end.
    pub answered: usize,
    /// Clients that went away before their answer was sent.
    pub disconnects: usize,
}

#[derive(Default)]
struct ModelScript {
    rules: Vec<ReplyRule>,
    matched: Vec<(Predicate, Reply)>,
    queue: std::collections::VecDeque<Reply>,
    default: Option<ReplyRule>,
    /// Fixed answers by method and path (without the query).
    routes: Vec<(String, String, Reply)>,
    models: Vec<ServedModel>,
}

/// A model in the server's lists.
#[derive(Clone, Debug)]
pub struct ServedModel {
    pub id: String,
    pub context_length: Option<u32>,
    /// Further fields of its entry in `/v1/models`.
    pub fields: Value,
}

impl ServedModel {
    pub fn new(id: &str) -> Self {
        Self {
            id: id.to_owned(),
            context_length: None,
            fields: Value::Null,
        }
    }

    #[must_use]
    pub fn context_length(mut self, tokens: u32) -> Self {
        self.context_length = Some(tokens);
        self
    }

    #[must_use]
    pub fn fields(mut self, fields: Value) -> Self {
        self.fields = fields;
        self
    }
}

impl ModelServer {
    /// Starts on a free port of loopback. Works inside and outside a tokio runtime.
    pub fn start() -> Self {
        Self::start_on(SocketAddr::from(([127, 0, 0, 1], 0)))
    }

    /// Starts on this address.
    pub fn start_on(address: SocketAddr) -> Self {
        let shared = Arc::new(ModelServerShared {
            script: Mutex::default(),
            requests: Mutex::default(),
            answers: Mutex::default(),
            progress: watch::Sender::new(ModelServerProgress::default()),
        });
        let served = Arc::clone(&shared);
        let (thread, (address, handle)) =
            ServerThread::start("model-server", move |ready, stop| async move {
                let (listener, bound) = listen(address).await;
                let started = (bound, Handle::current());
                ready.send(started).expect("the starter waits");
                serve::accept(listener, served, stop).await;
            });
        Self {
            address,
            shared,
            handle,
            _thread: thread,
        }
    }

    /// The base of the OpenAI-style endpoints: `http://127.0.0.1:<port>/v1`.
    pub fn base_url(&self) -> String {
        format!("http://{}/v1", self.address)
    }

    /// The same without `/v1`, as Anthropic's and Ollama's clients want it.
    pub fn root_url(&self) -> String {
        format!("http://{}", self.address)
    }

    pub fn address(&self) -> SocketAddr {
        self.address
    }

    fn script(&self) -> MutexGuard<'_, ModelScript> {
        self.shared.script()
    }

    /// Queues an answer for the next model request that nothing else answers.
    pub fn push(&self, reply: Reply) -> &Self {
        self.script().queue.push_back(reply);
        self
    }

    pub fn push_all(&self, replies: impl IntoIterator<Item = Reply>) -> &Self {
        self.script().queue.extend(replies);
        self
    }

    /// Queues an answer for the next request that `matches`; used once, before the queue.
    pub fn push_when(
        &self,
        matches: impl Fn(&RecordedRequest) -> bool + Send + Sync + 'static,
        reply: Reply,
    ) -> &Self {
        self.script().matched.push((Arc::new(matches), reply));
        self
    }

    /// Queues an answer for the next request to this model (an auxiliary one, say).
    pub fn push_for_model(&self, model: &str, reply: Reply) -> &Self {
        let model = model.to_owned();
        self.push_when(move |request| request.model() == model, reply)
    }

    /// What is answered when the queue is empty.
    pub fn push_default(&self, reply: Reply) -> &Self {
        self.answer_with(move |_| reply.clone())
    }

    /// Answers by rule whatever the queue does not.
    pub fn answer_with(
        &self,
        answer: impl Fn(&RecordedRequest) -> Reply + Send + Sync + 'static,
    ) -> &Self {
        self.script().default = Some(Arc::new(move |request| Some(answer(request))));
        self
    }

    /// A rule asked before everything else; `None` passes the request on. Rules are asked in
    /// the order given.
    pub fn rule(
        &self,
        rule: impl Fn(&RecordedRequest) -> Option<Reply> + Send + Sync + 'static,
    ) -> &Self {
        self.script().rules.push(Arc::new(rule));
        self
    }

    /// Answers requests without tools (titles, summaries, other side work) with this, always.
    pub fn side_work(&self, reply: Reply) -> &Self {
        self.rule(move |request| (!request.offers_tools()).then(|| reply.clone()))
    }

    /// A fixed answer for another path, e.g. `GET /props`. Replaces the built-in lists too.
    pub fn route(&self, method: &str, path: &str, reply: Reply) -> &Self {
        let mut script = self.script();
        script
            .routes
            .insert(0, (method.to_owned(), path.to_owned(), reply));
        drop(script);
        self
    }

    /// What `/v1/models`, `/api/tags` and `/api/show` list.
    pub fn serve_models(&self, models: impl IntoIterator<Item = ServedModel>) -> &Self {
        self.script().models = models.into_iter().collect();
        self
    }

    /// Every request so far, of any path.
    pub fn requests(&self) -> Vec<RecordedRequest> {
        self.shared.requests().clone()
    }

    /// One value for each of these requests. Nothing is copied: a long run has many large ones.
    pub fn map_requests<T>(
        &self,
        which: Range<usize>,
        value: impl FnMut(&RecordedRequest) -> T,
    ) -> Vec<T> {
        self.shared.requests()[which].iter().map(value).collect()
    }

    /// The model calls so far.
    pub fn model_requests(&self) -> Vec<RecordedRequest> {
        let requests = self.shared.requests();
        requests
            .iter()
            .filter(|request| request.format().is_some())
            .cloned()
            .collect()
    }

    /// The newest model call.
    pub fn last_request(&self) -> RecordedRequest {
        self.model_requests().pop().expect("a model call was made")
    }

    /// Forgets what was asked so far: for tests of thousands of turns.
    pub fn forget_requests(&self) -> &Self {
        self.shared.requests().clear();
        self
    }

    /// When each answer was complete, in the order they were.
    pub fn answers(&self) -> Vec<AnsweredAt> {
        self.shared.answers().clone()
    }

    /// Queued answers that nothing asked for yet.
    pub fn unused(&self) -> usize {
        let script = self.script();
        script.queue.len() + script.matched.len()
    }

    pub fn progress(&self) -> ModelServerProgress {
        *self.shared.progress.borrow()
    }

    /// Waits until the counts satisfy `enough`.
    pub async fn wait_for(
        &self,
        enough: impl Fn(&ModelServerProgress) -> bool,
    ) -> ModelServerProgress {
        let mut seen = self.shared.progress.subscribe();
        let progress = seen.wait_for(|progress| enough(progress)).await;
        *progress.expect("the server outlives its handle")
    }

    /// The same for a test without a runtime.
    pub fn block_until(
        &self,
        enough: impl Fn(&ModelServerProgress) -> bool,
    ) -> ModelServerProgress {
        self.handle.block_on(self.wait_for(enough))
    }
}

impl ModelServerShared {
    fn script(&self) -> MutexGuard<'_, ModelScript> {
        self.script.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn requests(&self) -> MutexGuard<'_, Vec<RecordedRequest>> {
        self.requests.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn answers(&self) -> MutexGuard<'_, Vec<AnsweredAt>> {
        self.answers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn answered(&self, index: usize) {
        let at = AnsweredAt {
            index,
            ns: http::now_ns(),
        };
        self.answers().push(at);
        self.count(|progress| progress.answered += 1);
    }

    fn count(&self, change: impl FnOnce(&mut ModelServerProgress)) {
        self.progress.send_modify(change);
    }

    /// The answer to a model request. Closures run without any lock held.
    fn decide(&self, request: &RecordedRequest) -> Reply {
        let rules = self.script().rules.clone();
        if let Some(reply) = rules.iter().find_map(|rule| rule(request)) {
            return reply;
        }
        let matchers: Vec<Predicate> = {
            let script = self.script();
            script
                .matched
                .iter()
                .map(|(matches, _)| matches.clone())
                .collect()
        };
        if let Some(at) = matchers.iter().position(|matches| matches(request)) {
            let mut script = self.script();
            if at < script.matched.len() {
                return script.matched.remove(at).1;
            }
        }
        let default = {
            let mut script = self.script();
            if let Some(reply) = script.queue.pop_front() {
                return reply;
            }
            script.default.clone()
        };
        default.and_then(|rule| rule(request)).unwrap_or_else(|| {
            let what = format!(
                "the script has no answer left for request {} ({} {})",
                request.index, request.method, request.path
            );
            Reply::error(400, &what)
        })
    }
}

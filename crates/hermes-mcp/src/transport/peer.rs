//! Our end of a connection: what the transports, the handler of the server's messages and the
//! link have in common.

mod active_calls;
mod changes;
mod handler;
mod inbox;
mod initialized;
mod link;
mod listening;
mod outcomes;
mod progress;
mod subscribe;
mod user_wait;
mod wire;

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use rmcp::model::{RequestId, ServerJsonRpcMessage};
use serde_json::Value;
use tokio::sync::{mpsc, watch};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::failure::McpFailure;
use crate::failure::classify::{self, LinkSituation, RequestPhase, SessionMarkers, TransportBreak};
use crate::transport::link::{Era, LinkEvent, TransportKind};

use active_calls::ActiveCalls;
use changes::ListChanges;
pub(crate) use handler::{Handler, client_info};
pub(crate) use inbox::{PeerInbox, PlainAnswer, is_call, plain_id, store_raw_result};
pub(crate) use initialized::InitializedNotice;
pub(crate) use link::{LinkParts, RmcpLink, era_of};
pub(crate) use listening::ReadOptions;
use listening::{ListeningStream, OnStream};
use outcomes::RequestOutcomes;
use progress::ProgressReports;
pub(crate) use subscribe::subscribe;
use user_wait::UserWait;

/// What the parts of one connection share.
pub(crate) struct ConnectionShared {
    server: String,
    epoch: u64,
    kind: TransportKind,
    markers: SessionMarkers,
    state: ConnectionState,
    events: mpsc::Sender<LinkEvent>,
    changes: ListChanges,
    /// Counts the times the machine woke up.
    resumes: watch::Sender<u64>,
    outcomes: RequestOutcomes,
    active_calls: Arc<ActiveCalls>,
    user_wait: Arc<UserWait>,
    pub(crate) progress: ProgressReports,
    pub(crate) initialized: InitializedNotice,
    pub(crate) stream: Arc<ListeningStream>,
    /// Ends everything that belongs to the connection.
    pub(crate) stop: CancellationToken,
}

/// How far the connection has come, and what is known of its end.
struct ConnectionState {
    session: AtomicBool,
    /// The handshake is over.
    ready: AtomicBool,
    modern: AtomicBool,
    /// A request on this link has succeeded.
    proven: AtomicBool,
    last_activity_at: Mutex<Instant>,
    refusal: Mutex<Option<McpFailure>>,
    failure: watch::Sender<Option<McpFailure>>,
}

impl ConnectionState {
    fn new() -> Self {
        Self {
            session: AtomicBool::new(false),
            ready: AtomicBool::new(false),
            modern: AtomicBool::new(false),
            proven: AtomicBool::new(false),
            last_activity_at: Mutex::new(Instant::now()),
            refusal: Mutex::default(),
            failure: watch::Sender::new(None),
        }
    }
}

impl ConnectionShared {
    pub(crate) fn new(
        server: &str,
        epoch: u64,
        kind: TransportKind,
        markers: SessionMarkers,
        events: mpsc::Sender<LinkEvent>,
    ) -> Arc<Self> {
        let shared = Arc::new(Self {
            server: server.to_owned(),
            epoch,
            kind,
            markers,
            state: ConnectionState::new(),
            events,
            changes: ListChanges::default(),
            resumes: watch::Sender::new(0),
            outcomes: RequestOutcomes::default(),
            active_calls: Arc::default(),
            user_wait: Arc::default(),
            progress: ProgressReports::default(),
            initialized: InitializedNotice::default(),
            stream: Arc::default(),
            stop: CancellationToken::new(),
        });
        let forward = forward_changes(Arc::clone(&shared));
        drop(hermes_core::task::spawn("mcp-changes", forward));
        shared
    }

    pub(crate) fn server(&self) -> &str {
        &self.server
    }

    pub(crate) fn kind(&self) -> TransportKind {
        self.kind
    }

    /// The handshake is over: from now on requests are the user's.
    pub(crate) fn mark_ready(&self, era: Era) {
        self.state
            .modern
            .store(era == Era::Modern, Ordering::Relaxed);
        self.state.ready.store(true, Ordering::Relaxed);
    }

    /// What the classifier has to know. `session`: whether the request carried a session id.
    pub(crate) fn situation(&self, session: bool) -> LinkSituation<'_> {
        let ready = self.state.ready.load(Ordering::Relaxed);
        LinkSituation {
            transport: self.kind,
            era: if self.state.modern.load(Ordering::Relaxed) {
                Era::Modern
            } else {
                Era::Legacy
            },
            session,
            phase: if ready {
                RequestPhase::Request
            } else {
                RequestPhase::Connect
            },
            markers: &self.markers,
        }
    }

    /// A failure below the protocol, for a request of this link.
    pub(crate) fn transport_failure(&self, what: TransportBreak, cause: &str) -> McpFailure {
        classify::io(what, cause, &self.situation(self.has_session()))
    }

    /// The server showed that it is there: an answer, or bytes of the stream that carries them.
    pub(crate) fn record_activity(&self) {
        *self
            .state
            .last_activity_at
            .lock()
            .unwrap_or_else(PoisonError::into_inner) = Instant::now();
    }

    pub(crate) fn last_activity(&self) -> Instant {
        *self
            .state
            .last_activity_at
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn mark_session(&self) {
        self.state.session.store(true, Ordering::Relaxed);
    }

    pub(crate) fn has_session(&self) -> bool {
        self.state.session.load(Ordering::Relaxed)
    }

    /// The connection is gone for good. The first reason stays.
    pub(crate) fn fail(&self, why: McpFailure) {
        self.state.failure.send_if_modified(|dead| {
            if dead.is_some() {
                return false;
            }
            tracing::info!(server = self.server, epoch = self.epoch, "link lost: {why}");
            *dead = Some(why);
            true
        });
    }

    /// During the handshake rmcp may forget why it failed; the reason is kept here.
    pub(crate) fn record_refusal(&self, why: &McpFailure) {
        if !self.state.ready.load(Ordering::Relaxed) {
            let mut refusal = self
                .state
                .refusal
                .lock()
                .unwrap_or_else(PoisonError::into_inner);
            *refusal = Some(why.clone());
        }
    }

    /// Why the handshake failed, if it is known.
    pub(crate) fn refusal(&self) -> Option<McpFailure> {
        let noted = self
            .state
            .refusal
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        noted.clone().or_else(|| self.failure())
    }

    pub(crate) fn failure(&self) -> Option<McpFailure> {
        self.state.failure.borrow().clone()
    }

    pub(crate) async fn failed(&self) -> McpFailure {
        let mut dead = self.state.failure.subscribe();
        // The sender lives in `self`, so waiting cannot fail.
        match dead
            .wait_for(Option::is_some)
            .await
            .map(|dead| dead.clone())
        {
            Ok(Some(why)) => why,
            _ => std::future::pending().await,
        }
    }

    /// Why a request failed, where rmcp would not say.
    pub(crate) fn set_request_failure(&self, id: RequestId, why: McpFailure) {
        self.record_refusal(&why);
        self.outcomes.fail(id, why);
    }

    /// Keeps the result of an operation for its caller; returns whether it was kept.
    pub(crate) fn store_result(&self, id: RequestId, result: Value) -> bool {
        self.state.ready.load(Ordering::Relaxed) && self.outcomes.store_result(id, result)
    }

    /// Tells the actor, unless it is far behind: logs are droppable, and a suspicion that finds a
    /// full queue is not the only one.
    pub(crate) fn send_event(&self, event: LinkEvent) {
        if let Err(error) = self.events.try_send(event) {
            tracing::debug!(server = self.server, "event dropped: {error}");
        }
    }

    /// Takes an answer to this request from the listening stream while the guard lives; `None`
    /// where no such stream is open or about to be.
    pub(crate) fn await_on_stream(&self, id: &RequestId) -> Option<OnStream> {
        let is_legacy = !self.state.modern.load(Ordering::Relaxed);
        let opening = self.has_session()
            && self.state.ready.load(Ordering::Relaxed)
            && is_legacy
            && !self.stream.is_settled();
        (opening || self.stream.is_open()).then(|| self.stream.expect(id))
    }

    /// What rmcp gets of this message, if it is an answer that is awaited on the listening stream.
    pub(crate) fn take_from_stream(&self, text: &[u8]) -> Option<ServerJsonRpcMessage> {
        if !self.stream.expects_any() {
            return None;
        }
        let answer = PlainAnswer::read(text)?;
        if !self.stream.take(&plain_id(&answer.id)) {
            return None;
        }
        self.record_activity();
        answer.deliver(self)
    }

    /// The machine slept: streams may be dead without a word.
    pub(crate) fn notify_resumed(&self) {
        self.resumes.send_modify(|count| *count += 1);
    }

    pub(crate) fn resumes(&self) -> watch::Receiver<u64> {
        self.resumes.subscribe()
    }

    pub(crate) fn list_changed(&self, what: &LinkEvent) {
        self.changes.record(what);
    }
}

async fn forward_changes(shared: Arc<ConnectionShared>) {
    tokio::select! {
        () = shared.stop.cancelled() => {}
        () = shared.changes.forward(&shared.events) => {}
    }
}

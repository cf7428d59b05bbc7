//! Our end of a connection: the state shared by the transports, the handler of server messages and
//! the link.

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

/// The state shared by the parts of one connection.
pub(crate) struct ConnectionShared {
    server: String,
    epoch: u64,
    kind: TransportKind,
    markers: SessionMarkers,
    state: ConnectionState,
    events: mpsc::Sender<LinkEvent>,
    changes: ListChanges,
    /// Number of times the machine resumed from sleep.
    resumes: watch::Sender<u64>,
    outcomes: RequestOutcomes,
    active_calls: Arc<ActiveCalls>,
    user_wait: Arc<UserWait>,
    pub(crate) progress: ProgressReports,
    pub(crate) initialized: InitializedNotice,
    pub(crate) stream: Arc<ListeningStream>,
    /// Stops everything that belongs to the connection.
    pub(crate) stop: CancellationToken,
}

/// The progress of the connection, and the reason for its end.
struct ConnectionState {
    session: AtomicBool,
    /// The handshake is complete.
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

    /// The handshake is complete: from now on requests are the user's.
    pub(crate) fn mark_ready(&self, era: Era) {
        self.state
            .modern
            .store(era == Era::Modern, Ordering::Relaxed);
        self.state.ready.store(true, Ordering::Relaxed);
    }

    /// The context for the classifier. `session`: whether the request carried a session id.
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

    /// The server is alive: it sent an answer, or bytes on the stream that carries answers.
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

    /// The connection has failed permanently. The first reason is kept.
    pub(crate) fn fail(&self, why: McpFailure) {
        self.state.failure.send_if_modified(|failure| {
            if failure.is_some() {
                return false;
            }
            tracing::info!(server = self.server, epoch = self.epoch, "link lost: {why}");
            *failure = Some(why);
            true
        });
    }

    /// rmcp may lose the reason for a failed handshake, so it is stored here.
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

    /// Why the handshake failed, if known.
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
        let mut failure = self.state.failure.subscribe();
        // The sender is owned by `self`, so waiting cannot fail.
        match failure
            .wait_for(Option::is_some)
            .await
            .map(|failure| failure.clone())
        {
            Ok(Some(why)) => why,
            _ => std::future::pending().await,
        }
    }

    /// Why a request failed, where rmcp does not report it.
    pub(crate) fn set_request_failure(&self, id: RequestId, why: McpFailure) {
        self.record_refusal(&why);
        self.outcomes.fail(id, why);
    }

    /// Stores the result of an operation for its caller; returns whether it was stored.
    pub(crate) fn store_result(&self, id: RequestId, result: Value) -> bool {
        self.state.ready.load(Ordering::Relaxed) && self.outcomes.store_result(id, result)
    }

    /// Notifies the actor, unless its queue is full: logs may be dropped, and other suspicions will
    /// follow.
    pub(crate) fn send_event(&self, event: LinkEvent) {
        if let Err(error) = self.events.try_send(event) {
            tracing::debug!(server = self.server, "event dropped: {error}");
        }
    }

    /// Accepts an answer to this request from the listening stream while the guard exists; `None`
    /// where no such stream is open or being opened.
    pub(crate) fn await_on_stream(&self, id: &RequestId) -> Option<OnStream> {
        let is_legacy = !self.state.modern.load(Ordering::Relaxed);
        let opening = self.has_session()
            && self.state.ready.load(Ordering::Relaxed)
            && is_legacy
            && !self.stream.is_settled();
        (opening || self.stream.is_open()).then(|| self.stream.expect(id))
    }

    /// The message for rmcp, if this is an answer that is awaited on the listening stream.
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

    /// The machine slept: streams may be dead without notice.
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

//! Our end of a connection: what the transports, the handler of the server's messages and the
//! link have in common.

mod callers;
mod changes;
mod greeting;
mod handler;
mod inbox;
mod link;
mod listening;
mod outcomes;
mod person;
mod progress;
mod subscribe;
mod wire;

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use rmcp::model::{RequestId, ServerJsonRpcMessage};
use serde_json::Value;
use tokio::sync::{mpsc, watch};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::failure::McpFailure;
use crate::failure::classify::{self, Break, LinkSituation, RequestPhase, SessionMarkers};
use crate::transport::link::{Era, LinkEvent, TransportKind};

use callers::CallsUnderWay;
use changes::ListChanges;
pub(crate) use greeting::Greeting;
pub(crate) use handler::{Handler, client_info};
pub(crate) use inbox::{PeerInbox, PlainAnswer, is_call, keep, plain_id};
pub(crate) use link::{LinkParts, RmcpLink, era_of};
pub(crate) use listening::ReadOptions;
use listening::{ListeningStream, OnStream};
use outcomes::RequestOutcomes;
use person::PersonWait;
use progress::ProgressReports;
pub(crate) use subscribe::subscribe;

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
    wakes: watch::Sender<u64>,
    outcomes: RequestOutcomes,
    callers: Arc<CallsUnderWay>,
    person: Arc<PersonWait>,
    pub(crate) progress: ProgressReports,
    pub(crate) greeting: Greeting,
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
    heard: Mutex<Instant>,
    refusal: Mutex<Option<McpFailure>>,
    dead: watch::Sender<Option<McpFailure>>,
}

impl ConnectionState {
    fn new() -> Self {
        Self {
            session: AtomicBool::new(false),
            ready: AtomicBool::new(false),
            modern: AtomicBool::new(false),
            proven: AtomicBool::new(false),
            heard: Mutex::new(Instant::now()),
            refusal: Mutex::default(),
            dead: watch::Sender::new(None),
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
            wakes: watch::Sender::new(0),
            outcomes: RequestOutcomes::default(),
            callers: Arc::default(),
            person: Arc::default(),
            progress: ProgressReports::default(),
            greeting: Greeting::default(),
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
    pub(crate) fn ready(&self, era: Era) {
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
    pub(crate) fn broke(&self, what: Break, cause: &str) -> McpFailure {
        classify::io(what, cause, &self.situation(self.has_session()))
    }

    /// The server showed that it is there: an answer, or bytes of the stream that carries them.
    pub(crate) fn hear(&self) {
        *self
            .state
            .heard
            .lock()
            .unwrap_or_else(PoisonError::into_inner) = Instant::now();
    }

    pub(crate) fn last_heard(&self) -> Instant {
        *self
            .state
            .heard
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn session_seen(&self) {
        self.state.session.store(true, Ordering::Relaxed);
    }

    pub(crate) fn has_session(&self) -> bool {
        self.state.session.load(Ordering::Relaxed)
    }

    /// The connection is gone for good. The first reason stays.
    pub(crate) fn die(&self, why: McpFailure) {
        self.state.dead.send_if_modified(|dead| {
            if dead.is_some() {
                return false;
            }
            tracing::info!(server = self.server, epoch = self.epoch, "link lost: {why}");
            *dead = Some(why);
            true
        });
    }

    /// During the handshake rmcp may forget why it failed; the reason is kept here.
    pub(crate) fn note_refusal(&self, why: &McpFailure) {
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
        noted.clone().or_else(|| self.dead())
    }

    pub(crate) fn dead(&self) -> Option<McpFailure> {
        self.state.dead.borrow().clone()
    }

    pub(crate) async fn died(&self) -> McpFailure {
        let mut dead = self.state.dead.subscribe();
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
    pub(crate) fn fault(&self, id: RequestId, why: McpFailure) {
        self.note_refusal(&why);
        self.outcomes.fail(id, why);
    }

    /// Keeps the result of an operation for its caller; returns whether it was kept.
    pub(crate) fn keep_result(&self, id: RequestId, result: Value) -> bool {
        self.state.ready.load(Ordering::Relaxed) && self.outcomes.keep_result(id, result)
    }

    /// Tells the actor, unless it is far behind: logs are droppable, and a suspicion that finds a
    /// full queue is not the only one.
    pub(crate) fn tell(&self, event: LinkEvent) {
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
        self.hear();
        answer.hand_over(self)
    }

    /// The machine slept: streams may be dead without a word.
    pub(crate) fn woke(&self) {
        self.wakes.send_modify(|count| *count += 1);
    }

    pub(crate) fn wakes(&self) -> watch::Receiver<u64> {
        self.wakes.subscribe()
    }

    pub(crate) fn changed(&self, what: &LinkEvent) {
        self.changes.note(what);
    }
}

async fn forward_changes(shared: Arc<ConnectionShared>) {
    tokio::select! {
        () = shared.stop.cancelled() => {}
        () = shared.changes.forward(&shared.events) => {}
    }
}

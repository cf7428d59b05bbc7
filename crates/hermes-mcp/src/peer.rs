//! Our end of a connection: what the transports, the handler of the server's messages and the
//! link have in common.

mod greeting;
mod handler;
mod inbox;
mod link;
mod subscribe;
mod wire;

use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use rmcp::model::{ProgressToken, RequestId, ServerJsonRpcMessage};
use serde_json::Value;
use tokio::sync::{Notify, mpsc, watch};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::behalf::{Behalf, Slot};
use crate::classify::{self, Break, LinkSituation, Phase, SessionMarkers};
use crate::failure::McpFailure;
use crate::link::{Call, Era, LinkEvent, TransportKind};

pub(crate) use greeting::Greeting;
pub(crate) use handler::{Handler, client_info};
pub(crate) use inbox::{Answer, Inbox, is_call, keep, plain_id};
pub(crate) use link::{LinkParts, RmcpLink, era_of};
pub(crate) use subscribe::subscribe;

/// What the parts of one connection share.
pub(crate) struct Shared {
    server: String,
    epoch: u64,
    heard: Mutex<Instant>,
    progress: Mutex<HashMap<ProgressToken, mpsc::Sender<String>>>,
    /// What a transport knows about the end of a request that rmcp reports without its reason.
    faults: Mutex<HashMap<RequestId, McpFailure>>,
    raw: Mutex<Raw>,
    refusal: Mutex<Option<McpFailure>>,
    session: AtomicBool,
    /// The handshake is over.
    ready: AtomicBool,
    modern: AtomicBool,
    /// A request on this link has succeeded.
    proven: AtomicBool,
    kind: TransportKind,
    markers: SessionMarkers,
    dead: watch::Sender<Option<McpFailure>>,
    pub(crate) greeting: Greeting,
    events: mpsc::Sender<LinkEvent>,
    changes: Changes,
    /// Questions that a person is being asked right now.
    asking: Mutex<Thinking>,
    /// Who has calls under way.
    callers: Mutex<Callers>,
    /// Counts the times the machine woke up.
    wakes: watch::Sender<u64>,
    /// Whether the listening stream is settled: open, or refused.
    listening: watch::Sender<bool>,
    stream_open: AtomicBool,
    /// Requests that were accepted without an answer, which may come on the listening stream.
    on_stream: Mutex<HashSet<RequestId>>,
    /// What the config says about streams and answers.
    manners: Mutex<Manners>,
    /// Ends everything that belongs to the connection.
    pub(crate) stop: CancellationToken,
}

/// Results as the server sent them. rmcp's types would lose what they do not know, and all of a
/// list in which one entry is odd.
#[derive(Default)]
struct Raw {
    results: HashMap<RequestId, Value>,
    /// Requests that nobody waits for any more.
    unwanted: HashSet<RequestId>,
}

#[derive(Default)]
struct Changes {
    tools: AtomicBool,
    resources: AtomicBool,
    prompts: AtomicBool,
    some: Notify,
}

/// A burst of "list changed" within this time is one event.
const COALESCE: Duration = Duration::from_millis(100);

/// What is kept for requests that nobody waits for any more is little; this keeps it so.
const FAULTS_KEPT: usize = 256;

impl Shared {
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
            ready: AtomicBool::new(false),
            modern: AtomicBool::new(false),
            proven: AtomicBool::new(false),
            heard: Mutex::new(Instant::now()),
            progress: Mutex::default(),
            faults: Mutex::default(),
            raw: Mutex::default(),
            refusal: Mutex::default(),
            session: AtomicBool::new(false),
            dead: watch::Sender::new(None),
            greeting: Greeting::default(),
            events,
            changes: Changes::default(),
            asking: Mutex::default(),
            callers: Mutex::default(),
            wakes: watch::Sender::new(0),
            listening: watch::Sender::new(false),
            stream_open: AtomicBool::new(false),
            on_stream: Mutex::default(),
            manners: Mutex::default(),
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
        self.modern.store(era == Era::Modern, Ordering::Relaxed);
        self.ready.store(true, Ordering::Relaxed);
    }

    /// What the classifier has to know. `session`: whether the request carried a session id.
    pub(crate) fn situation(&self, session: bool) -> LinkSituation<'_> {
        let ready = self.ready.load(Ordering::Relaxed);
        LinkSituation {
            transport: self.kind,
            era: if self.modern.load(Ordering::Relaxed) {
                Era::Modern
            } else {
                Era::Legacy
            },
            session,
            phase: if ready {
                Phase::Request
            } else {
                Phase::Connect
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
        *self.heard.lock().unwrap_or_else(PoisonError::into_inner) = Instant::now();
    }

    pub(crate) fn last_heard(&self) -> Instant {
        *self.heard.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn session_seen(&self) {
        self.session.store(true, Ordering::Relaxed);
    }

    pub(crate) fn has_session(&self) -> bool {
        self.session.load(Ordering::Relaxed)
    }

    /// The connection is gone for good. The first reason stays.
    pub(crate) fn die(&self, why: McpFailure) {
        self.dead.send_if_modified(|dead| {
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
        if !self.ready.load(Ordering::Relaxed) {
            let mut refusal = self.refusal.lock().unwrap_or_else(PoisonError::into_inner);
            *refusal = Some(why.clone());
        }
    }

    /// Why the handshake failed, if it is known.
    pub(crate) fn refusal(&self) -> Option<McpFailure> {
        let noted = self.refusal.lock().unwrap_or_else(PoisonError::into_inner);
        noted.clone().or_else(|| self.dead())
    }

    pub(crate) fn dead(&self) -> Option<McpFailure> {
        self.dead.borrow().clone()
    }

    pub(crate) async fn died(&self) -> McpFailure {
        let mut dead = self.dead.subscribe();
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

    pub(crate) fn fault(&self, id: RequestId, why: McpFailure) {
        self.note_refusal(&why);
        let mut faults = self.faults.lock().unwrap_or_else(PoisonError::into_inner);
        if faults.len() < FAULTS_KEPT {
            faults.insert(id, why);
        }
    }

    pub(crate) fn take_fault(&self, id: &RequestId) -> Option<McpFailure> {
        let mut faults = self.faults.lock().unwrap_or_else(PoisonError::into_inner);
        faults.remove(id)
    }

    /// Keeps the result of an operation for whoever waits for it; says whether it did.
    pub(crate) fn keep_result(&self, id: RequestId, result: Value) -> bool {
        if !self.ready.load(Ordering::Relaxed) {
            return false;
        }
        let mut raw = self.raw.lock().unwrap_or_else(PoisonError::into_inner);
        let kept = !raw.unwanted.remove(&id) && raw.results.len() < FAULTS_KEPT;
        if kept {
            raw.results.insert(id, result);
        }
        kept
    }

    pub(crate) fn take_result(&self, id: &RequestId) -> Option<Value> {
        let mut raw = self.raw.lock().unwrap_or_else(PoisonError::into_inner);
        raw.results.remove(id)
    }

    /// Nobody waits for this request any more.
    fn forget(&self, id: &RequestId) {
        let _ = self.take_fault(id);
        let mut raw = self.raw.lock().unwrap_or_else(PoisonError::into_inner);
        if raw.results.remove(id).is_none() {
            // Most are never answered, so the list would only grow.
            if raw.unwanted.len() >= FAULTS_KEPT {
                raw.unwanted.clear();
            }
            raw.unwanted.insert(id.clone());
        }
    }

    pub(crate) fn watch_progress(&self, token: ProgressToken, to: mpsc::Sender<String>) {
        let mut progress = self.progress.lock().unwrap_or_else(PoisonError::into_inner);
        progress.insert(token, to);
    }

    pub(crate) fn forget_progress(&self, token: &ProgressToken) {
        let mut progress = self.progress.lock().unwrap_or_else(PoisonError::into_inner);
        progress.remove(token);
    }

    /// A report that finds the reader busy is dropped: the next one says more.
    pub(crate) fn report_progress(&self, token: &ProgressToken, text: String) {
        let progress = self.progress.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(to) = progress.get(token) {
            let _ = to.try_send(text);
        }
    }

    /// Tells the actor, unless it is far behind: logs are droppable, and a suspicion that finds a
    /// full queue is not the only one.
    pub(crate) fn tell(&self, event: LinkEvent) {
        if let Err(error) = self.events.try_send(event) {
            tracing::debug!(server = self.server, "event dropped: {error}");
        }
    }

    /// A person is being asked while the guard lives.
    pub(crate) fn asking(self: &Arc<Self>) -> Asking {
        let mut thinking = self.asking.lock().unwrap_or_else(PoisonError::into_inner);
        thinking.questions += 1;
        thinking.since.get_or_insert_with(Instant::now);
        Asking(Arc::clone(self))
    }

    pub(crate) fn waits_for_person(&self) -> bool {
        self.person().questions > 0
    }

    /// How long it has waited for a person so far, in all.
    pub(crate) fn person_time(&self) -> Duration {
        let thinking = self.person();
        let now = thinking.since.map(|since| since.elapsed());
        thinking.before + now.unwrap_or_default()
    }

    fn person(&self) -> Thinking {
        *self.asking.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A call is under way while the guard lives.
    pub(crate) fn calling(self: &Arc<Self>, call: &Call) -> Calling {
        let mut callers = self.callers.lock().unwrap_or_else(PoisonError::into_inner);
        callers.last += 1;
        let key = callers.last;
        if let Some(behalf) = &call.behalf {
            let entry = (key, behalf.clone(), call.slot.clone());
            callers.calls.push(entry);
        }
        Calling(Arc::clone(self), key)
    }

    /// Who is asked by a server that does not say about which call: whoever has calls under way,
    /// where that is one conversation. The slot is that of the latest call.
    pub(crate) fn caller(&self) -> Result<(Behalf, Option<Slot>), String> {
        let callers = self.callers.lock().unwrap_or_else(PoisonError::into_inner);
        let Some((_, last, slot)) = callers.calls.last() else {
            return Err("no call of a person is under way".to_owned());
        };
        if callers
            .calls
            .iter()
            .any(|(_, other, _)| other.session != last.session)
        {
            // The next question can be asked.
            if let Some(slot) = slot {
                slot.keep_conversations_apart();
            }
            return Err(
                "several conversations use this server now, and it does not say which of them \
                 it asks"
                    .to_owned(),
            );
        }
        Ok((last.clone(), slot.clone()))
    }

    pub(crate) fn set_manners(&self, manners: Manners) {
        *self.manners.lock().unwrap_or_else(PoisonError::into_inner) = manners;
    }

    pub(crate) fn manners(&self) -> Manners {
        *self.manners.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The listening stream is open, or will not be.
    pub(crate) fn listens(&self) {
        self.listening.send_replace(true);
    }

    pub(crate) async fn listening(&self) {
        let mut listening = self.listening.subscribe();
        // The sender lives in `self`.
        let _ = listening.wait_for(|settled| *settled).await;
    }

    pub(crate) fn set_stream_open(&self, open: bool) {
        self.stream_open.store(open, Ordering::Relaxed);
    }

    /// Takes an answer to this request from the listening stream while the guard lives; `None`
    /// where no such stream is open or about to be.
    pub(crate) fn await_on_stream(self: &Arc<Self>, id: &RequestId) -> Option<OnStream> {
        let is_legacy = !self.modern.load(Ordering::Relaxed);
        let opening = self.has_session()
            && self.ready.load(Ordering::Relaxed)
            && is_legacy
            && !*self.listening.borrow();
        if !opening && !self.stream_open.load(Ordering::Relaxed) {
            return None;
        }
        let mut waiting = self
            .on_stream
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        waiting.insert(id.clone());
        Some(OnStream(Arc::clone(self), id.clone()))
    }

    /// What rmcp gets of this message, if it is an answer that is awaited on the listening stream.
    pub(crate) fn take_from_stream(&self, text: &[u8]) -> Option<ServerJsonRpcMessage> {
        {
            let waiting = self
                .on_stream
                .lock()
                .unwrap_or_else(PoisonError::into_inner);
            if waiting.is_empty() {
                return None;
            }
        }
        let answer = Answer::read(text)?;
        let mut waiting = self
            .on_stream
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        if !waiting.remove(&plain_id(&answer.id)) {
            return None;
        }
        drop(waiting);
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
        let flag = match what {
            LinkEvent::ToolsChanged => &self.changes.tools,
            LinkEvent::ResourcesChanged => &self.changes.resources,
            LinkEvent::PromptsChanged => &self.changes.prompts,
            _ => return,
        };
        flag.store(true, Ordering::Release);
        self.changes.some.notify_one();
    }
}

/// See [`Shared::asking`].
pub(crate) struct Asking(Arc<Shared>);

impl Drop for Asking {
    fn drop(&mut self) {
        let mut thinking = self.0.asking.lock().unwrap_or_else(PoisonError::into_inner);
        thinking.questions = thinking.questions.saturating_sub(1);
        if thinking.questions == 0
            && let Some(since) = thinking.since.take()
        {
            thinking.before += since.elapsed();
        }
    }
}

/// See [`Shared::await_on_stream`].
pub(crate) struct OnStream(Arc<Shared>, RequestId);

impl Drop for OnStream {
    fn drop(&mut self) {
        let waiting = self.0.on_stream.lock();
        waiting
            .unwrap_or_else(PoisonError::into_inner)
            .remove(&self.1);
    }
}

/// How a server's streams and answers are read.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Manners {
    /// A listening stream that is silent for so long is opened again.
    pub(crate) silence: Option<Duration>,
    /// Answers count by what they are, not by the type they claim to be.
    pub(crate) any_content_type: bool,
    /// How long an answer may take on the listening stream once its request was accepted.
    pub(crate) late_answer: Duration,
}

/// How long people have been asked.
#[derive(Clone, Copy, Debug, Default)]
struct Thinking {
    questions: usize,
    since: Option<Instant>,
    before: Duration,
}

#[derive(Default)]
struct Callers {
    last: u64,
    calls: Vec<(u64, Behalf, Option<Slot>)>,
}

/// See [`Shared::calling`].
pub(crate) struct Calling(Arc<Shared>, u64);

impl Drop for Calling {
    fn drop(&mut self) {
        let mut callers = self
            .0
            .callers
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        callers.calls.retain(|(key, ..)| *key != self.1);
    }
}

/// Turns bursts of changes into one event each; unlike logs they are never dropped.
async fn forward_changes(shared: Arc<Shared>) {
    let work = async {
        loop {
            shared.changes.some.notified().await;
            tokio::time::sleep(COALESCE).await;
            for (flag, event) in [
                (&shared.changes.tools, LinkEvent::ToolsChanged),
                (&shared.changes.resources, LinkEvent::ResourcesChanged),
                (&shared.changes.prompts, LinkEvent::PromptsChanged),
            ] {
                if flag.swap(false, Ordering::AcqRel) && shared.events.send(event).await.is_err() {
                    return;
                }
            }
        }
    };
    tokio::select! {
        () = shared.stop.cancelled() => {}
        () = work => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_flood_of_changes_is_one_event_each() {
        let (sender, mut events) = mpsc::channel(4);
        let shared = Shared::new(
            "flood",
            1,
            TransportKind::Http,
            SessionMarkers::default(),
            sender,
        );
        for _ in 0..1000 {
            shared.changed(&LinkEvent::ToolsChanged);
            shared.changed(&LinkEvent::PromptsChanged);
        }
        assert_eq!(events.recv().await, Some(LinkEvent::ToolsChanged));
        assert_eq!(events.recv().await, Some(LinkEvent::PromptsChanged));
        tokio::time::sleep(COALESCE * 3).await;
        assert!(events.try_recv().is_err());
        shared.changed(&LinkEvent::ToolsChanged);
        assert_eq!(events.recv().await, Some(LinkEvent::ToolsChanged));
        shared.stop.cancel();
    }
}

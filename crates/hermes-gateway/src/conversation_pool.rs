//! Conversations that are open: one per session, held by one at a time, closed when nobody has
//! used them for a while, when there are too many, or when they hold too much memory. What they
//! are is in the store: whoever wants one again has it opened anew.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures_util::future::join_all;
use hermes_agent::weight::Weight;
use hermes_app::front::{
    ConversationRequest, ConversationUpdate, HostError, HostErrorKind, OpenedConversation,
};
use hermes_core::task;
use serde_json::Value;
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore, mpsc};
use tokio::task::JoinHandle;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::program::{ConversationHost, OpeningRequest};
use crate::settings::GatewaySettings;

/// How many conversations are kept, and for how long.
#[derive(Clone, Copy, Debug)]
pub struct PoolLimits {
    /// Those that nobody holds. The one that was unused longest goes first.
    pub idle: usize,
    /// What all of them may hold in memory, about. Those at work count and are never closed: the
    /// others make room for them.
    pub bytes: usize,
    /// An unused one is closed after this.
    pub age: Duration,
}

impl Default for PoolLimits {
    fn default() -> Self {
        Self {
            idle: 32,
            bytes: 8 << 20,
            age: Duration::from_mins(10),
        }
    }
}

impl PoolLimits {
    /// As the home says: `session_cache_mb` and `session_cache_count`.
    pub fn of(settings: &GatewaySettings) -> Self {
        let number = |name: &str| settings.setting(name).and_then(Value::as_u64);
        let number = |name: &str| usize::try_from(number(name)?).ok();
        let plain = Self::default();
        Self {
            idle: number("session_cache_count").unwrap_or(plain.idle),
            bytes: number("session_cache_mb").map_or(plain.bytes, |mb| mb.saturating_mul(1 << 20)),
            ..plain
        }
    }
}

/// The open conversations of a process.
#[derive(Clone)]
pub struct ConversationPool {
    inner: Arc<PoolInner>,
}

struct PoolInner {
    program: Arc<dyn ConversationHost>,
    bounds: PoolLimits,
    rows: Mutex<HashMap<String, PoolEntry>>,
    changed: Notify,
    cancel: CancellationToken,
}

/// A session that is held, waited for, or kept.
struct PoolEntry {
    /// One permit: whoever has it holds the conversation.
    turn: Arc<Semaphore>,
    /// Told when somebody else wants it.
    wanted: Arc<Notify>,
    waiting: usize,
    /// Open and held by nobody.
    kept: Option<IdleConversation>,
    /// What it holds in memory. `None`: it is not open.
    weight: Option<Weight>,
    /// When it was last used.
    used: Instant,
}

struct IdleConversation {
    line: ConversationChannels,
    terms: OpenedWith,
    since: Instant,
}

/// What a conversation was opened with and cannot change while it is open. Whoever comes with
/// other terms gets it opened anew.
#[derive(Clone, Debug, PartialEq, Eq)]
struct OpenedWith {
    unattended: bool,
    cwd: Option<PathBuf>,
    model: Option<String>,
    provider: Option<String>,
    toolsets: Option<Vec<String>>,
}

impl OpenedWith {
    fn of(opening: &OpeningRequest) -> Self {
        Self {
            unattended: opening.unattended,
            cwd: opening.cwd.clone(),
            model: opening.model.clone(),
            provider: opening.provider.clone(),
            toolsets: opening.toolsets.clone(),
        }
    }
}

/// Both ends of a conversation.
struct ConversationChannels {
    wishes: mpsc::Sender<ConversationRequest>,
    news: mpsc::Receiver<ConversationUpdate>,
}

impl ConversationPool {
    /// Idle conversations are closed until `cancel`.
    pub fn new(
        program: Arc<dyn ConversationHost>,
        bounds: PoolLimits,
        cancel: CancellationToken,
    ) -> Self {
        let inner = Arc::new(PoolInner {
            program,
            bounds,
            rows: Mutex::default(),
            changed: Notify::new(),
            cancel,
        });
        task::spawn("idle conversations", sweep(Arc::clone(&inner)));
        Self { inner }
    }

    pub fn program(&self) -> &Arc<dyn ConversationHost> {
        &self.inner.program
    }

    /// How many conversations are open, held or kept.
    pub fn open(&self) -> usize {
        self.inner.rows().len()
    }

    /// What all of them hold in memory, about.
    pub fn bytes(&self) -> usize {
        let rows = self.inner.rows();
        rows.values().map(PoolEntry::bytes).sum()
    }

    /// A conversation was used, or has grown: perhaps there are too many now.
    pub(crate) fn used(&self, id: &str) {
        if let Some(row) = self.inner.rows().get_mut(id) {
            row.used = Instant::now();
        }
        self.inner.changed.notify_one();
    }

    /// Takes the conversation of a session, waiting for whoever holds it. Opened with `opening`
    /// unless it is open already, on the same terms.
    pub async fn sit(&self, opening: OpeningRequest) -> Result<PooledConversation, HostError> {
        let id = opening.id.clone();
        let waiting = PoolWaiter::new(&self.inner, &id);
        let permit = tokio::select! {
            () = self.inner.cancel.cancelled() => return Err(stopping()),
            permit = Arc::clone(&waiting.turn).acquire_owned() => permit.map_err(|_| stopping())?,
        };
        let kept = self
            .inner
            .rows()
            .get_mut(&id)
            .and_then(|row| row.kept.take());
        let mut seat = PooledConversation {
            id: id.clone(),
            line: None,
            terms: OpenedWith::of(&opening),
            wanted: Arc::clone(&waiting.wanted),
            permit: Some(permit),
            inner: Arc::clone(&self.inner),
        };
        match kept {
            // One that ended by itself is opened anew.
            Some(kept) if kept.terms == seat.terms && !kept.line.wishes.is_closed() => {
                seat.line = Some(kept.line);
                Ok(seat)
            }
            // Whoever waits here may go away at any moment, and must not leave the place to
            // another while the old conversation ends or the new one begins.
            old => {
                let opening = seat.open(old, opening);
                match task::spawn("opening a conversation", opening).await {
                    Ok(Ok(opened)) => opened,
                    Ok(Err(panic)) => Err(broke(&panic)),
                    Err(error) => Err(broke(&error)),
                }
            }
        }
    }

    /// Closes the conversation of a session, if it is open; `false`: somebody holds it.
    pub async fn close(&self, id: &str) -> bool {
        let closing = {
            let mut rows = self.inner.rows();
            match rows.get_mut(id) {
                Some(row) if row.turn.available_permits() == 0 => return false,
                Some(row) => row.give_up(),
                None => None,
            }
        };
        if let Some(closing) = closing {
            let _ = self.inner.end(closing).await;
        }
        self.inner.forget_empty();
        true
    }

    /// Waits until nobody holds the conversation of a session, closes it, and keeps it closed as
    /// long as the answer lives: for whoever writes into its transcript. `None`: all is stopping.
    pub async fn still(&self, id: &str) -> Option<OwnedSemaphorePermit> {
        let waiting = PoolWaiter::new(&self.inner, id);
        let permit = tokio::select! {
            () = self.inner.cancel.cancelled() => return None,
            permit = Arc::clone(&waiting.turn).acquire_owned() => permit.ok()?,
        };
        let kept = self
            .inner
            .rows()
            .get_mut(id)
            .and_then(|row| row.kept.take());
        let Some(kept) = kept else {
            return Some(permit);
        };
        let (inner, id) = (Arc::clone(&self.inner), id.to_owned());
        let closed = task::spawn("closing a conversation", async move {
            kept.line.close().await;
            inner.closed(&id);
            permit
        });
        closed.await.ok()?.ok()
    }

    /// Closes what nobody holds.
    pub async fn close_idle(&self) {
        let kept: Vec<ClosingConversation> = {
            let mut rows = self.inner.rows();
            rows.values_mut().filter_map(PoolEntry::give_up).collect()
        };
        join_all(kept.into_iter().map(|one| self.inner.end(one))).await;
        self.inner.forget_empty();
    }
}

fn stopping() -> HostError {
    HostError::new(HostErrorKind::Failed, "the gateway is stopping")
}

fn broke(why: &dyn std::fmt::Display) -> HostError {
    let message = format!("the conversation could not be opened: {why}");
    HostError::new(HostErrorKind::Failed, message)
}

impl PoolEntry {
    fn bytes(&self) -> usize {
        self.weight.as_ref().map_or(0, Weight::bytes)
    }

    /// What is kept, to be closed; whoever wants the session meanwhile waits until it has ended.
    fn give_up(&mut self) -> Option<ClosingConversation> {
        self.kept.as_ref()?;
        let place = Arc::clone(&self.turn).try_acquire_owned().ok()?;
        let line = self.kept.take()?.line;
        self.weight = None;
        Some(ClosingConversation { line, place })
    }
}

/// A conversation on its way out.
struct ClosingConversation {
    line: ConversationChannels,
    place: OwnedSemaphorePermit,
}

impl ConversationChannels {
    /// Returns when it has ended.
    async fn close(self) {
        let Self { wishes, mut news } = self;
        drop(wishes);
        while news.recv().await.is_some() {}
    }
}

impl PoolInner {
    fn rows(&self) -> MutexGuard<'_, HashMap<String, PoolEntry>> {
        // A panic while holding this lock cannot leave the map half changed.
        self.rows.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn forget_empty(&self) {
        self.rows().retain(|_, row| {
            row.kept.is_some() || row.waiting > 0 || row.turn.available_permits() == 0
        });
    }

    /// Ends a conversation whether somebody waits for that or not; until it has ended, its place
    /// is taken.
    fn end(
        self: &Arc<Self>,
        closing: ClosingConversation,
    ) -> JoinHandle<Result<(), task::Panicked>> {
        let inner = Arc::clone(self);
        task::spawn("closing a conversation", async move {
            let ClosingConversation { line, place } = closing;
            line.close().await;
            drop(place);
            inner.forget_empty();
        })
    }

    fn closed(&self, id: &str) {
        if let Some(row) = self.rows().get_mut(id) {
            row.weight = None;
        }
    }

    fn opened(&self, id: &str, weight: Weight) {
        if let Some(row) = self.rows().get_mut(id) {
            row.weight = Some(weight);
            row.used = Instant::now();
        }
    }

    /// What is too old, too many or too much, and when to look again.
    fn overdue(&self) -> (Vec<ClosingConversation>, Option<Instant>) {
        let mut rows = self.rows();
        // Every weight is read once: it may change at any moment.
        let mut bytes = 0_usize;
        let mut kept: Vec<(Instant, String, usize)> = Vec::new();
        for (id, row) in rows.iter() {
            let weight = row.bytes();
            bytes = bytes.saturating_add(weight);
            if let Some(one) = &row.kept {
                kept.push((one.since, id.clone(), weight));
            }
        }
        kept.sort();
        let now = Instant::now();
        let surplus = kept.len().saturating_sub(self.bounds.idle);
        let mut closing = Vec::new();
        let mut next = None;
        for (place, (since, id, weight)) in kept.iter().enumerate() {
            let old = *since + self.bounds.age <= now;
            if place >= surplus && !old && bytes <= self.bounds.bytes {
                next = Some(*since + self.bounds.age);
                break;
            }
            let Some(row) = rows.get_mut(id) else {
                continue;
            };
            if let Some(one) = row.give_up() {
                bytes = bytes.saturating_sub(*weight);
                closing.push(one);
            }
        }
        if bytes > self.bounds.bytes {
            ask_holders(&rows, bytes - self.bounds.bytes);
        }
        (closing, next)
    }
}

/// Those that hold a conversation although nothing happens in it give it up, the one that was
/// unused longest first; whoever works does so at the end.
fn ask_holders(rows: &HashMap<String, PoolEntry>, mut surplus: usize) {
    let held = rows.values().filter(|row| row.kept.is_none());
    let mut held: Vec<&PoolEntry> = held.filter(|row| row.weight.is_some()).collect();
    held.sort_by_key(|row| row.used);
    for row in held {
        row.wanted.notify_one();
        surplus = surplus.saturating_sub(row.bytes());
        if surplus == 0 {
            return;
        }
    }
}

async fn sweep(inner: Arc<PoolInner>) {
    loop {
        let (closing, next) = inner.overdue();
        // One that does not end holds up no other.
        for one in closing {
            drop(inner.end(one));
        }
        inner.forget_empty();
        let later = async {
            match next {
                Some(at) => tokio::time::sleep_until(at).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            () = inner.cancel.cancelled() => return,
            () = inner.changed.notified() => {}
            () = later => {}
        }
    }
}

/// Somebody who waits for a session: its row stays while he does.
struct PoolWaiter<'a> {
    inner: &'a PoolInner,
    id: &'a str,
    turn: Arc<Semaphore>,
    wanted: Arc<Notify>,
}

impl<'a> PoolWaiter<'a> {
    fn new(inner: &'a PoolInner, id: &'a str) -> Self {
        let mut rows = inner.rows();
        let row = rows.entry(id.to_owned()).or_insert_with(|| PoolEntry {
            turn: Arc::new(Semaphore::new(1)),
            wanted: Arc::new(Notify::new()),
            waiting: 0,
            kept: None,
            weight: None,
            used: Instant::now(),
        });
        row.waiting += 1;
        if row.turn.available_permits() == 0 {
            row.wanted.notify_one();
        }
        Self {
            inner,
            id,
            turn: Arc::clone(&row.turn),
            wanted: Arc::clone(&row.wanted),
        }
    }
}

impl Drop for PoolWaiter<'_> {
    fn drop(&mut self) {
        if let Some(row) = self.inner.rows().get_mut(self.id) {
            row.waiting -= 1;
        }
        self.inner.changed.notify_one();
    }
}

/// What happens to whoever holds a conversation.
pub enum HolderEvent {
    /// `None`: it has ended.
    News(Option<Box<ConversationUpdate>>),
    /// Somebody else waits for it.
    Wanted,
}

/// A conversation, held. Dropping it keeps the conversation open for the next one.
pub struct PooledConversation {
    id: String,
    line: Option<ConversationChannels>,
    terms: OpenedWith,
    wanted: Arc<Notify>,
    permit: Option<OwnedSemaphorePermit>,
    inner: Arc<PoolInner>,
}

impl PooledConversation {
    /// Opens the conversation of this seat, after the old one has ended.
    async fn open(
        mut self,
        old: Option<IdleConversation>,
        opening: OpeningRequest,
    ) -> Result<Self, HostError> {
        if let Some(old) = old {
            old.line.close().await;
            self.inner.closed(&self.id);
        }
        let OpenedConversation {
            wishes,
            news,
            weight,
            ..
        } = self.inner.program.open(opening).await?;
        self.inner.opened(&self.id, weight);
        self.line = Some(ConversationChannels { wishes, news });
        Ok(self)
    }

    /// The session that was asked for; commands may have moved the conversation on from it.
    pub fn id(&self) -> &str {
        &self.id
    }

    /// `false`: the conversation has ended.
    pub async fn wish(&self, wish: ConversationRequest) -> bool {
        match &self.line {
            Some(line) => line.wishes.send(wish).await.is_ok(),
            None => false,
        }
    }

    /// For whoever wishes while another reads the news.
    pub fn wishes(&self) -> Option<mpsc::Sender<ConversationRequest>> {
        self.line.as_ref().map(|line| line.wishes.clone())
    }

    /// `None`: the conversation has ended.
    pub async fn news(&mut self) -> Option<ConversationUpdate> {
        self.line.as_mut()?.news.recv().await
    }

    /// What comes first: news, or somebody else who waits for this session.
    pub async fn next(&mut self) -> HolderEvent {
        let wanted = Arc::clone(&self.wanted);
        tokio::select! {
            biased;
            news = self.news() => HolderEvent::News(news.map(Box::new)),
            () = wanted.notified() => HolderEvent::Wanted,
        }
    }

    /// Gives up a conversation that does not end: the next one opens it anew, whatever this one
    /// still does.
    pub fn abandon(mut self) {
        if let Some(line) = self.line.take() {
            self.inner.closed(&self.id);
            drop(task::spawn("abandoned conversation", line.close()));
        }
    }

    /// Returns when somebody else waits for this session: between turns it should be given up.
    pub async fn wanted(&self) {
        self.wanted.notified().await;
    }

    /// Closes the conversation instead of keeping it; returns when it has ended.
    pub async fn close(mut self) {
        let Some(line) = self.line.take() else {
            return;
        };
        // The seat goes along, so that it is taken until then, whoever waits here or not.
        let closed = task::spawn("closing a conversation", async move {
            line.close().await;
            self.inner.closed(&self.id);
        });
        let _ = closed.await;
    }
}

impl Drop for PooledConversation {
    fn drop(&mut self) {
        if let Some(line) = self.line.take()
            && let Some(row) = self.inner.rows().get_mut(&self.id)
        {
            if line.wishes.is_closed() {
                row.weight = None;
            } else {
                let since = Instant::now();
                let terms = self.terms.clone();
                row.kept = Some(IdleConversation { line, terms, since });
            }
        }
        // Only now may the next one look for it.
        drop(self.permit.take());
        self.inner.changed.notify_one();
    }
}

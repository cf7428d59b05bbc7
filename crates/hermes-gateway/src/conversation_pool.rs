//! Open conversations: one per session, used by one holder at a time. They are closed when unused
//! for a while, when there are too many, or when they use too much memory. Everything is in the
//! store, so a closed one can be opened again.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures_util::future::join_all;
use hermes_agent::ConversationMemory;
use hermes_app::{
    ConversationHost, ConversationRequest, ConversationUpdate, HostError, HostErrorKind,
    LiveConversation, OpenedConversation, OpeningRequest,
};
use hermes_core::event::AgentCommand;
use hermes_core::task;
use serde_json::Value;
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore};
use tokio::task::JoinHandle;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::settings::GatewaySettings;

/// Limits on idle conversations.
#[derive(Clone, Copy, Debug)]
pub struct PoolLimits {
    /// Maximum number of idle conversations; the least recently used is closed first.
    pub idle: usize,
    /// Approximate memory limit for all of them. Active ones count but are never closed; idle ones
    /// are closed to make space.
    pub bytes: usize,
    /// Idle conversations are closed after this time.
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
    /// From `session_cache_mb` and `session_cache_count`.
    pub fn from_settings(settings: &GatewaySettings) -> Self {
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
    host: Arc<dyn ConversationHost>,
    limits: PoolLimits,
    entries: Mutex<HashMap<String, PoolEntry>>,
    changed: Notify,
    cancel: CancellationToken,
}

/// A session that is in use, waited for, or idle.
struct PoolEntry {
    /// One permit: its owner uses the conversation.
    lock: Arc<Semaphore>,
    /// Notified when another holder waits for it.
    wanted: Arc<Notify>,
    waiting: usize,
    /// Open and unused.
    idle: Option<IdleConversation>,
    /// Its memory use. `None`: it is not open.
    weight: Option<ConversationMemory>,
    /// When it was last used.
    used: Instant,
}

struct IdleConversation {
    conversation: LiveConversation,
    opened_with: OpenedWith,
    since: Instant,
}

/// Options that cannot change while a conversation is open. With other options it is closed and
/// opened again.
#[derive(Clone, Debug, PartialEq, Eq)]
struct OpenedWith {
    unattended: bool,
    cwd: Option<PathBuf>,
    model: Option<String>,
    provider: Option<String>,
    toolsets: Option<Vec<String>>,
}

impl OpenedWith {
    fn from_request(opening: &OpeningRequest) -> Self {
        Self {
            unattended: opening.unattended,
            cwd: opening.cwd.clone(),
            model: opening.model.clone(),
            provider: opening.provider.clone(),
            toolsets: opening.toolsets.clone(),
        }
    }
}

impl ConversationPool {
    /// Idle conversations are closed until `cancel`.
    pub fn new(
        program: Arc<dyn ConversationHost>,
        bounds: PoolLimits,
        cancel: CancellationToken,
    ) -> Self {
        let inner = Arc::new(PoolInner {
            host: program,
            limits: bounds,
            entries: Mutex::default(),
            changed: Notify::new(),
            cancel,
        });
        task::spawn("idle conversations", sweep(Arc::clone(&inner)));
        Self { inner }
    }

    pub fn host(&self) -> &Arc<dyn ConversationHost> {
        &self.inner.host
    }

    /// The number of open conversations.
    pub fn open(&self) -> usize {
        self.inner.rows().len()
    }

    /// Approximate memory use of all conversations.
    pub fn bytes(&self) -> usize {
        let rows = self.inner.rows();
        rows.values().map(PoolEntry::bytes).sum()
    }

    /// Notes that a conversation was used or has grown, so that the limits are checked.
    pub(crate) fn used(&self, id: &str) {
        if let Some(row) = self.inner.rows().get_mut(id) {
            row.used = Instant::now();
        }
        self.inner.changed.notify_one();
    }

    /// Acquires the conversation of a session, waiting for its current holder. Opens it unless it
    /// is open with the same options.
    pub async fn acquire(&self, opening: OpeningRequest) -> Result<PooledConversation, HostError> {
        let id = opening.id.clone();
        let waiting = PoolWaiter::new(&self.inner, &id);
        let permit = tokio::select! {
            () = self.inner.cancel.cancelled() => return Err(stopping_error()),
            permit = Arc::clone(&waiting.lock).acquire_owned() => permit.map_err(|_| stopping_error())?,
        };
        let idle = self
            .inner
            .rows()
            .get_mut(&id)
            .and_then(|row| row.idle.take());
        let mut conversation = PooledConversation {
            id: id.clone(),
            live: None,
            opened_with: OpenedWith::from_request(&opening),
            wanted: Arc::clone(&waiting.wanted),
            permit: Some(permit),
            inner: Arc::clone(&self.inner),
        };
        match idle {
            // One that ended by itself is opened again.
            Some(idle)
                if idle.opened_with == conversation.opened_with
                    && !idle.conversation.has_ended() =>
            {
                conversation.live = Some(idle.conversation);
                Ok(conversation)
            }
            // In a task of its own: the caller may be dropped at any moment, and the permit must be
            // held until the old conversation has ended and the new one is open.
            old => {
                let opening = conversation.open(old, opening);
                match task::spawn("opening a conversation", opening).await {
                    Ok(Ok(opened)) => opened,
                    Ok(Err(panic)) => Err(open_failed(&panic)),
                    Err(error) => Err(open_failed(&error)),
                }
            }
        }
    }

    /// Closes the conversation of a session, if it is open; `false`: it is in use.
    pub async fn close(&self, id: &str) -> bool {
        let closing = {
            let mut rows = self.inner.rows();
            match rows.get_mut(id) {
                Some(row) if row.lock.available_permits() == 0 => return false,
                Some(row) => row.take_idle(),
                None => None,
            }
        };
        if let Some(closing) = closing {
            let _ = self.inner.close_in_background(closing).await;
        }
        self.inner.remove_unused();
        true
    }

    /// Waits until the conversation is unused, closes it, and keeps it closed while the returned
    /// permit exists: for writers of its transcript. `None`: the pool is stopping.
    pub async fn close_exclusively(&self, id: &str) -> Option<OwnedSemaphorePermit> {
        let waiting = PoolWaiter::new(&self.inner, id);
        let permit = tokio::select! {
            () = self.inner.cancel.cancelled() => return None,
            permit = Arc::clone(&waiting.lock).acquire_owned() => permit.ok()?,
        };
        let idle = self
            .inner
            .rows()
            .get_mut(id)
            .and_then(|row| row.idle.take());
        let Some(idle) = idle else {
            return Some(permit);
        };
        let (inner, id) = (Arc::clone(&self.inner), id.to_owned());
        let closed = task::spawn("closing a conversation", async move {
            idle.conversation.close().await;
            inner.closed(&id);
            permit
        });
        closed.await.ok()?.ok()
    }

    /// Closes all idle conversations.
    pub async fn close_idle(&self) {
        let idle_conversations: Vec<ClosingConversation> = {
            let mut rows = self.inner.rows();
            rows.values_mut().filter_map(PoolEntry::take_idle).collect()
        };
        join_all(
            idle_conversations
                .into_iter()
                .map(|one| self.inner.close_in_background(one)),
        )
        .await;
        self.inner.remove_unused();
    }
}

fn stopping_error() -> HostError {
    HostError::new(HostErrorKind::Failed, "the gateway is stopping")
}

fn open_failed(why: &dyn std::fmt::Display) -> HostError {
    let message = format!("the conversation could not be opened: {why}");
    HostError::new(HostErrorKind::Failed, message)
}

impl PoolEntry {
    fn bytes(&self) -> usize {
        match &self.idle {
            // A turn that started by itself may have made it larger.
            Some(idle) => idle.conversation.bytes(),
            None => self.weight.as_ref().map_or(0, ConversationMemory::bytes),
        }
    }

    /// Takes the idle conversation in order to close it; other holders wait until it has ended.
    fn take_idle(&mut self) -> Option<ClosingConversation> {
        self.idle.as_ref()?;
        let permit = Arc::clone(&self.lock).try_acquire_owned().ok()?;
        let conversation = self.idle.take()?.conversation;
        self.weight = None;
        Some(ClosingConversation {
            conversation,
            permit,
        })
    }
}

/// A conversation that is being closed.
struct ClosingConversation {
    conversation: LiveConversation,
    permit: OwnedSemaphorePermit,
}

impl PoolInner {
    fn rows(&self) -> MutexGuard<'_, HashMap<String, PoolEntry>> {
        // A panic while holding this lock cannot leave the map half changed.
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn remove_unused(&self) {
        self.rows().retain(|_, row| {
            row.idle.is_some() || row.waiting > 0 || row.lock.available_permits() == 0
        });
    }

    /// Closes a conversation in a task of its own; its permit is held until it has ended.
    fn close_in_background(
        self: &Arc<Self>,
        closing: ClosingConversation,
    ) -> JoinHandle<Result<(), task::Panicked>> {
        let inner = Arc::clone(self);
        task::spawn("closing a conversation", async move {
            let ClosingConversation {
                conversation,
                permit,
            } = closing;
            conversation.close().await;
            drop(permit);
            inner.remove_unused();
        })
    }

    fn closed(&self, id: &str) {
        if let Some(row) = self.rows().get_mut(id) {
            row.weight = None;
        }
    }

    fn opened(&self, id: &str, weight: ConversationMemory) {
        if let Some(row) = self.rows().get_mut(id) {
            row.weight = Some(weight);
            row.used = Instant::now();
        }
    }

    /// Conversations over the limits, and when to check again.
    fn overdue(&self) -> (Vec<ClosingConversation>, Option<Instant>) {
        let mut rows = self.rows();
        // Each weight is read once: it can change at any moment.
        let mut bytes = 0_usize;
        let mut idle_conversations: Vec<(Instant, String, usize)> = Vec::new();
        for (id, row) in rows.iter() {
            let weight = row.bytes();
            bytes = bytes.saturating_add(weight);
            if let Some(one) = &row.idle {
                idle_conversations.push((one.since, id.clone(), weight));
            }
        }
        idle_conversations.sort();
        let now = Instant::now();
        let surplus = idle_conversations.len().saturating_sub(self.limits.idle);
        let mut closing = Vec::new();
        let mut next = None;
        for (index, (since, id, weight)) in idle_conversations.iter().enumerate() {
            let old = *since + self.limits.age <= now;
            if index >= surplus && !old && bytes <= self.limits.bytes {
                next = Some(*since + self.limits.age);
                break;
            }
            let Some(row) = rows.get_mut(id) else {
                continue;
            };
            if let Some(one) = row.take_idle() {
                bytes = bytes.saturating_sub(*weight);
                closing.push(one);
            }
        }
        if bytes > self.limits.bytes {
            ask_holders(&rows, bytes - self.limits.bytes);
        }
        (closing, next)
    }
}

/// Asks holders to release conversations, the least recently used first; active ones do so at the
/// end of their turn.
fn ask_holders(rows: &HashMap<String, PoolEntry>, mut surplus: usize) {
    let held = rows.values().filter(|row| row.idle.is_none());
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
        // One that does not end must not block the others.
        for one in closing {
            drop(inner.close_in_background(one));
        }
        inner.remove_unused();
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

/// Keeps the entry of a session while a holder waits for it.
struct PoolWaiter<'a> {
    inner: &'a PoolInner,
    id: &'a str,
    lock: Arc<Semaphore>,
    wanted: Arc<Notify>,
}

impl<'a> PoolWaiter<'a> {
    fn new(inner: &'a PoolInner, id: &'a str) -> Self {
        let mut rows = inner.rows();
        let row = rows.entry(id.to_owned()).or_insert_with(|| PoolEntry {
            lock: Arc::new(Semaphore::new(1)),
            wanted: Arc::new(Notify::new()),
            waiting: 0,
            idle: None,
            weight: None,
            used: Instant::now(),
        });
        row.waiting += 1;
        if row.lock.available_permits() == 0 {
            row.wanted.notify_one();
        }
        Self {
            inner,
            id,
            lock: Arc::clone(&row.lock),
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

/// An event for the holder of a conversation.
pub enum HolderEvent {
    /// `None`: it has ended.
    Update(Option<Box<ConversationUpdate>>),
    /// Another holder waits for it.
    Wanted,
}

/// A conversation in use. Dropping this keeps it open for the next holder.
pub struct PooledConversation {
    id: String,
    live: Option<LiveConversation>,
    opened_with: OpenedWith,
    wanted: Arc<Notify>,
    permit: Option<OwnedSemaphorePermit>,
    inner: Arc<PoolInner>,
}

impl PooledConversation {
    /// Opens the conversation after the old one has ended.
    async fn open(
        mut self,
        old: Option<IdleConversation>,
        opening: OpeningRequest,
    ) -> Result<Self, HostError> {
        if let Some(old) = old {
            old.conversation.close().await;
            self.inner.closed(&self.id);
        }
        let OpenedConversation {
            conversation,
            weight,
            ..
        } = self.inner.host.open(opening).await?;
        self.inner.opened(&self.id, weight);
        self.live = Some(conversation);
        Ok(self)
    }

    /// The requested session; commands may have moved the conversation to another one.
    pub fn id(&self) -> &str {
        &self.id
    }

    /// `false`: the conversation has ended.
    pub fn request(&mut self, request: ConversationRequest) -> bool {
        self.live.as_mut().is_some_and(|live| live.request(request))
    }

    /// A command for the session. `false`: the conversation has ended.
    pub fn command(&mut self, command: AgentCommand) -> bool {
        self.request(ConversationRequest::Agent(command))
    }

    /// `None`: the conversation has ended.
    pub async fn next_update(&mut self) -> Option<ConversationUpdate> {
        self.live.as_mut()?.next_update().await
    }

    /// Waits for an update, or for another holder that waits for this session.
    pub async fn next(&mut self) -> HolderEvent {
        let wanted = Arc::clone(&self.wanted);
        tokio::select! {
            biased;
            update = self.next_update() => HolderEvent::Update(update.map(Box::new)),
            () = wanted.notified() => HolderEvent::Wanted,
        }
    }

    /// Abandons a conversation that does not end: the next holder opens it again.
    pub fn abandon(mut self) {
        if let Some(live) = self.live.take() {
            self.inner.closed(&self.id);
            drop(task::spawn("abandoned conversation", live.close()));
        }
    }

    /// Closes the conversation instead of keeping it; returns when it has ended.
    pub async fn close(mut self) {
        let Some(live) = self.live.take() else {
            return;
        };
        // The permit moves along, so that it is held until then even if the caller is dropped.
        let closed = task::spawn("closing a conversation", async move {
            live.close().await;
            self.inner.closed(&self.id);
        });
        let _ = closed.await;
    }
}

impl Drop for PooledConversation {
    fn drop(&mut self) {
        if let Some(live) = self.live.take()
            && let Some(row) = self.inner.rows().get_mut(&self.id)
        {
            if live.has_ended() {
                row.weight = None;
            } else {
                row.idle = Some(IdleConversation {
                    conversation: live,
                    opened_with: self.opened_with.clone(),
                    since: Instant::now(),
                });
            }
        }
        // Only now may the next holder get it.
        drop(self.permit.take());
        self.inner.changed.notify_one();
    }
}

//! The event channel of a session: numbered and bounded; important events are never dropped.
//!
//! Neighbouring text deltas are joined while nobody reads, so a slow reader costs bytes, not
//! entries. Boundaries (everything that is not a delta or progress) wait for room; progress
//! reports are dropped when there is none. Once the reader is gone, events go nowhere.

use std::collections::VecDeque;
use std::future::poll_fn;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use hermes_core::event::{AgentEvent, NoticeLevel, SequencedEvent};
use hermes_core::ids::TurnId;
use tokio::sync::Notify;

/// Entries that may wait for the reader.
pub(crate) const EVENT_QUEUE_CAPACITY: usize = 512;
/// Bytes of text that may gather in one waiting delta.
const MAX_DELTA_BYTES: usize = 256 * 1024;

pub(crate) fn channel(capacity: usize) -> (EventSink, EventReceiver) {
    let shared = Arc::new(SharedQueue {
        state: Mutex::new(EventQueueState {
            capacity: capacity.max(1),
            ..EventQueueState::default()
        }),
        drained: Notify::new(),
    });
    let sink = EventSink(Arc::clone(&shared));
    (sink, EventReceiver(shared))
}

/// Where a session reports. Cheap to clone.
#[derive(Clone)]
pub(crate) struct EventSink(Arc<SharedQueue>);

/// Where a front end reads.
pub struct EventReceiver(Arc<SharedQueue>);

struct SharedQueue {
    state: Mutex<EventQueueState>,
    drained: Notify,
}

#[derive(Default)]
struct EventQueueState {
    waiting: VecDeque<SequencedEvent>,
    capacity: usize,
    seq: u64,
    turn: Option<TurnId>,
    /// The session ended: what waits is still read.
    closed: bool,
    reader_gone: bool,
    /// The task that waits for the next event.
    reader: Option<Waker>,
}

impl EventQueueState {
    /// `Some`: there is no room for this event now.
    fn offer(&mut self, event: AgentEvent) -> Option<AgentEvent> {
        if self.reader_gone || self.closed {
            return None;
        }
        let event = self.join_delta(event)?;
        if self.waiting.len() >= self.capacity {
            return Some(event);
        }
        self.seq += 1;
        self.waiting.push_back(SequencedEvent {
            seq: self.seq,
            turn: self.turn,
            event,
        });
        None
    }

    /// Adds a delta to the one that waits last, if that is of the same kind and turn.
    fn join_delta(&mut self, event: AgentEvent) -> Option<AgentEvent> {
        let turn = self.turn;
        let Some(last) = self.waiting.back_mut().filter(|last| last.turn == turn) else {
            return Some(event);
        };
        match (&mut last.event, &event) {
            (AgentEvent::TextDelta { text }, AgentEvent::TextDelta { text: more })
            | (AgentEvent::ReasoningDelta { text }, AgentEvent::ReasoningDelta { text: more })
                if text.len() + more.len() <= MAX_DELTA_BYTES =>
            {
                text.push_str(more);
                None
            }
            _ => Some(event),
        }
    }
}

impl EventSink {
    fn state(&self) -> MutexGuard<'_, EventQueueState> {
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Reports an event, waiting for room.
    pub(crate) async fn emit(&self, event: AgentEvent) {
        let mut event = event;
        loop {
            let drained = self.0.drained.notified();
            tokio::pin!(drained);
            // Registered before the check, so that a wake-up in between is not lost.
            drained.as_mut().enable();
            let refused = self.offer(event);
            match refused {
                None => return,
                Some(back) => event = back,
            }
            drained.await;
        }
    }

    /// Reports an event unless there is no room. For tools, which report progress and notices without waiting.
    pub(crate) fn emit_or_drop(&self, event: AgentEvent) {
        drop(self.offer(event));
    }

    fn offer(&self, event: AgentEvent) -> Option<AgentEvent> {
        let mut state = self.state();
        let refused = state.offer(event);
        wake_reader(state);
        refused
    }

    pub(crate) async fn notice(&self, level: NoticeLevel, text: impl Into<String>) {
        let text = text.into();
        self.emit(AgentEvent::Notice { level, text }).await;
    }

    /// Events from now on belong to this turn.
    pub(crate) fn set_turn(&self, turn: Option<TurnId>) {
        self.state().turn = turn;
    }

    /// No more events will come.
    pub(crate) fn close(&self) {
        let mut state = self.state();
        state.closed = true;
        wake_reader(state);
        self.0.drained.notify_waiters();
    }
}

fn wake_reader(mut state: MutexGuard<'_, EventQueueState>) {
    let reader = state.reader.take();
    drop(state);
    if let Some(reader) = reader {
        reader.wake();
    }
}

impl EventReceiver {
    /// The next event; `None` after the session closed and everything was read.
    pub async fn recv(&mut self) -> Option<SequencedEvent> {
        poll_fn(|cx| self.poll_recv(cx)).await
    }

    /// Like [`Self::recv`], for a reader that polls several sources.
    pub fn poll_recv(&mut self, cx: &mut Context<'_>) -> Poll<Option<SequencedEvent>> {
        let mut state = self.state();
        let Some(next) = state.waiting.pop_front() else {
            if state.closed {
                return Poll::Ready(None);
            }
            state.reader = Some(cx.waker().clone());
            return Poll::Pending;
        };
        drop(state);
        self.0.drained.notify_waiters();
        Poll::Ready(Some(next))
    }

    /// An event that is there already.
    pub fn try_recv(&mut self) -> Option<SequencedEvent> {
        let next = self.state().waiting.pop_front();
        if next.is_some() {
            self.0.drained.notify_waiters();
        }
        next
    }

    fn state(&self) -> MutexGuard<'_, EventQueueState> {
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for EventReceiver {
    fn drop(&mut self) {
        let mut state = self.state();
        state.reader_gone = true;
        state.waiting.clear();
        drop(state);
        self.0.drained.notify_waiters();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(text: &str) -> AgentEvent {
        AgentEvent::TextDelta { text: text.into() }
    }

    fn started(id: &str) -> AgentEvent {
        AgentEvent::ToolStarted {
            call_id: id.into(),
            name: "t".into(),
            arguments: "{}".into(),
        }
    }

    #[tokio::test]
    async fn deltas_join_and_boundaries_wait_for_room() {
        let (sink, mut events) = channel(2);
        for piece in ["a", "b", "c"] {
            sink.emit(text(piece)).await;
        }
        sink.emit(started("1")).await;
        sink.emit_or_drop(AgentEvent::ToolProgress {
            call_id: "1".into(),
            text: "lost".into(),
        });
        let late = sink.clone();
        let waiting = hermes_core::task::spawn("late", async move {
            late.emit(started("2")).await;
            late.close();
        });
        let mut seen = Vec::new();
        while let Some(next) = events.recv().await {
            seen.push((next.seq, next.event));
        }
        waiting.await.unwrap().unwrap();
        assert_eq!(
            seen,
            vec![(1, text("abc")), (2, started("1")), (3, started("2"))]
        );
    }

    #[tokio::test]
    async fn a_session_outlives_its_reader() {
        let (sink, events) = channel(1);
        sink.emit(started("1")).await;
        drop(events);
        sink.emit(started("2")).await;
        sink.emit(started("3")).await;
    }
}

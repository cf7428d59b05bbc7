//! Subagents in the background, whose reports arrive later.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use hermes_core::event::AgentCommand;

use crate::session::{SessionHandle, WeakSession};

/// Brings reports to the conversation that delegated the work. Clones share it.
#[derive(Clone, Default)]
pub struct ReportQueue {
    session: Arc<Mutex<Option<(WeakSession, ReportArrival)>>>,
    running: Arc<AtomicUsize>,
}

#[derive(Clone, Copy)]
enum ReportArrival {
    /// The person sees it; the model reads it with its next step or turn.
    Waits,
    /// It starts a turn, after the one that runs.
    Wakes,
}

impl ReportQueue {
    /// Reports go to this session from now on: the person sees them at once, the model with its next
    /// step or turn. The session may still end when nobody else holds it.
    pub fn attach(&self, session: &SessionHandle) {
        self.put(session, ReportArrival::Waits);
    }

    /// The same, but a report starts a turn: for front ends that show turns nobody asked for.
    pub fn attach_waking(&self, session: &SessionHandle) {
        self.put(session, ReportArrival::Wakes);
    }

    fn put(&self, session: &SessionHandle, arrival: ReportArrival) {
        let mut slot = self.session.lock().unwrap_or_else(PoisonError::into_inner);
        *slot = Some((session.downgrade(), arrival));
    }

    /// Whether somebody would get a report.
    pub(super) fn is_attached(&self) -> bool {
        self.session().is_some()
    }

    /// A place for one more delegation; `None`: `max` are running.
    pub(super) fn reserve_slot(&self, max: usize) -> Option<RunningDelegation> {
        let reserved = self
            .running
            .fetch_update(Ordering::AcqRel, Ordering::Acquire, |running| {
                (running < max).then_some(running + 1)
            });
        reserved
            .ok()
            .map(|_| RunningDelegation(Arc::clone(&self.running)))
    }

    /// `false`: the session is over; the reports are in the rows of the children.
    pub(super) async fn deliver(&self, headline: String, text: String) -> bool {
        let Some((session, arrival)) = self.session() else {
            return false;
        };
        let command = AgentCommand::Inform {
            headline,
            text,
            wakes: matches!(arrival, ReportArrival::Wakes),
        };
        session.send(command).await.is_ok()
    }

    fn session(&self) -> Option<(SessionHandle, ReportArrival)> {
        let slot = self.session.lock().unwrap_or_else(PoisonError::into_inner);
        let (session, arrival) = slot.as_ref()?;
        Some((session.upgrade()?, *arrival))
    }
}

/// A running delegation.
pub(super) struct RunningDelegation(Arc<AtomicUsize>);

impl Drop for RunningDelegation {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::AcqRel);
    }
}

//! Measures the time spent waiting for the user on behalf of a server.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

#[derive(Default)]
pub(crate) struct UserWait {
    questions: Mutex<ServerQuestions>,
}

#[derive(Default)]
struct ServerQuestions {
    open: usize,
    /// When the oldest open question was asked.
    since: Option<Instant>,
    finished: Duration,
}

impl UserWait {
    /// The user is being asked while the guard exists.
    pub(super) fn ask(self: &Arc<Self>) -> OpenQuestion {
        let mut questions = self.questions();
        questions.open += 1;
        questions.since.get_or_insert_with(Instant::now);
        OpenQuestion(Arc::clone(self))
    }

    /// Whether the user is being asked right now.
    pub(super) fn is_open(&self) -> bool {
        self.questions().open > 0
    }

    /// Total time spent waiting for the user so far.
    pub(super) fn total(&self) -> Duration {
        let questions = self.questions();
        let now = questions.since.map(|since| since.elapsed());
        questions.finished + now.unwrap_or_default()
    }

    fn questions(&self) -> MutexGuard<'_, ServerQuestions> {
        self.questions
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}

/// See [`UserWait::ask`].
pub(crate) struct OpenQuestion(Arc<UserWait>);

impl Drop for OpenQuestion {
    fn drop(&mut self) {
        let mut questions = self.0.questions();
        questions.open = questions.open.saturating_sub(1);
        if questions.open == 0
            && let Some(since) = questions.since.take()
        {
            questions.finished += since.elapsed();
        }
    }
}

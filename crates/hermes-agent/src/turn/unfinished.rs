//! Stores an answer while it streams, so that most of it survives a crash.

use std::time::Duration;

use hermes_core::ids::SessionId;
use hermes_core::store::SessionUpdate;
use tokio::time::{Instant, sleep_until};

use super::messages;
use crate::session::SessionDeps;

/// An answer that is complete within this is stored once.
const FIRST_SAVE_DELAY: Duration = Duration::from_millis(200);
/// Between two times that it is stored.
const SAVE_INTERVAL: Duration = Duration::from_secs(1);
/// A longer text is stored less often: so many bytes a second at most.
const MAX_BYTES_PER_SECOND: usize = 256 * 1024;

pub(super) struct PartialAnswerWriter<'a> {
    deps: &'a SessionDeps,
    session: &'a SessionId,
    /// Bytes of the text that are stored.
    saved_bytes: usize,
    /// When the text is to be stored; `None`: nothing is new.
    due: Option<Instant>,
    last: Option<Instant>,
    /// Storing is off, or has failed: the answer itself is more important.
    off: bool,
}

impl<'a> PartialAnswerWriter<'a> {
    pub(super) fn new(deps: &'a SessionDeps, session: &'a SessionId) -> Self {
        Self {
            deps,
            session,
            saved_bytes: 0,
            due: None,
            last: None,
            off: !deps.settings.keep_unfinished,
        }
    }

    pub(super) fn has_kept(&self) -> bool {
        self.saved_bytes > 0
    }

    /// The text has so many bytes now.
    pub(super) fn grew(&mut self, bytes: usize) {
        if self.off || bytes == self.saved_bytes || self.due.is_some() {
            return;
        }
        let slow = Duration::from_secs((bytes / MAX_BYTES_PER_SECOND) as u64);
        self.due = Some(match self.last {
            None => Instant::now() + FIRST_SAVE_DELAY,
            Some(last) => last + SAVE_INTERVAL.max(slow),
        });
    }

    /// Waits until the text is to be stored.
    pub(super) async fn due(&self) {
        match self.due {
            Some(due) => sleep_until(due).await,
            None => std::future::pending().await,
        }
    }

    pub(super) async fn keep(&mut self, text: &str) {
        self.due = None;
        let text = text.trim_end();
        if text.is_empty() {
            return;
        }
        let update = SessionUpdate::Unfinished {
            text: Some(format!("{text}\n\n{}", messages::UNFINISHED)),
            at: self.deps.clock.epoch_seconds(),
        };
        match self.deps.store.update(self.session, update).await {
            Ok(()) => {
                self.saved_bytes = text.len();
                self.last = Some(Instant::now());
            }
            Err(error) => {
                tracing::warn!("an answer is not kept while it grows: {error}");
                self.off = true;
            }
        }
    }
}

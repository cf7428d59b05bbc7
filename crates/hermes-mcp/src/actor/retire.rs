//! Closes replaced links after their calls have finished, within limits.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use hermes_core::task;
use tokio::time::{Instant, timeout, timeout_at};
use tokio_util::sync::CancellationToken;

use super::shared::LiveLink;
use crate::transport::link::Link;

/// How long calls of an old epoch may continue.
pub(super) const DRAIN_TIMEOUT: Duration = Duration::from_secs(30);
/// The same for a link that still worked when it was replaced.
pub(super) const WORKING_DRAIN_TIMEOUT: Duration = Duration::from_mins(10);
/// The same for a link whose only stream is dead, so that no answer can arrive.
pub(super) const DEAD_DRAIN_TIMEOUT: Duration = Duration::from_secs(5);
const MAX_DRAINING: usize = 4;
/// Links limit their own closing; this is a fallback.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(10);

/// Old links that still serve calls. When the limit is reached, the oldest is closed.
#[derive(Default)]
pub(super) struct Draining(VecDeque<CancellationToken>);

impl Draining {
    /// Closes `live` in the background when its calls have ended.
    pub(super) fn add(&mut self, live: Arc<LiveLink>, limit: Duration) {
        let cancel = CancellationToken::new();
        self.0.retain(|older| !older.is_cancelled());
        if self.0.len() == MAX_DRAINING
            && let Some(oldest) = self.0.pop_front()
        {
            oldest.cancel();
        }
        self.0.push_back(cancel.clone());
        task::spawn("mcp-drain", async move {
            tokio::select! {
                () = wait_until_idle(&live, Instant::now() + limit) => {}
                () = cancel.cancelled() => {}
            }
            cancel.cancel();
            close(&*live.link).await;
        });
    }

    pub(super) fn end(&mut self) {
        for older in self.0.drain(..) {
            older.cancel();
        }
    }
}

/// Waits until no call runs on the link, or until the deadline.
pub(super) async fn wait_until_idle(live: &LiveLink, until: Instant) {
    let mut inflight = live.inflight.subscribe();
    // After a timeout or a dropped sender there is no reason to wait.
    let _ = timeout_at(until, inflight.wait_for(|&count| count == 0)).await;
}

pub(super) async fn close(link: &dyn Link) {
    if timeout(CLOSE_TIMEOUT, link.close()).await.is_err() {
        tracing::warn!("an MCP link did not close in time");
    }
}

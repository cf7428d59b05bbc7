//! Ending links: calls of an old epoch may finish, within bounds.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use hermes_core::task;
use tokio::time::{Instant, timeout, timeout_at};
use tokio_util::sync::CancellationToken;

use super::shared::LiveLink;
use crate::transport::link::Link;

/// How long calls of an old epoch may go on.
pub(super) const DRAIN: Duration = Duration::from_secs(30);
/// The same where the link still worked when it was replaced.
pub(super) const DRAIN_WORKING: Duration = Duration::from_mins(10);
/// The same where its one stream is dead: no answer can come any more.
pub(super) const DRAIN_DEAD: Duration = Duration::from_secs(5);
const MOST_DRAINING: usize = 4;
/// Links bound their closing themselves; this is for one that does not.
const CLOSE: Duration = Duration::from_secs(10);

/// Old links that still serve their calls; one more ends the oldest.
#[derive(Default)]
pub(super) struct Draining(VecDeque<CancellationToken>);

impl Draining {
    /// Closes `live` when its calls ended, in the background.
    pub(super) fn add(&mut self, live: Arc<LiveLink>, longest: Duration) {
        let hurry = CancellationToken::new();
        self.0.retain(|older| !older.is_cancelled());
        if self.0.len() == MOST_DRAINING
            && let Some(oldest) = self.0.pop_front()
        {
            oldest.cancel();
        }
        self.0.push_back(hurry.clone());
        task::spawn("mcp-drain", async move {
            tokio::select! {
                () = drained(&live, Instant::now() + longest) => {}
                () = hurry.cancelled() => {}
            }
            hurry.cancel();
            close(&*live.link).await;
        });
    }

    pub(super) fn end(&mut self) {
        for older in self.0.drain(..) {
            older.cancel();
        }
    }
}

/// Waits until no call runs on the link, at most until then.
pub(super) async fn drained(live: &LiveLink, until: Instant) {
    let mut inflight = live.inflight.subscribe();
    // Both a timeout and a gone sender mean: no reason to wait.
    let _ = timeout_at(until, inflight.wait_for(|&count| count == 0)).await;
}

pub(super) async fn close(link: &dyn Link) {
    if timeout(CLOSE, link.close()).await.is_err() {
        tracing::warn!("an MCP link did not close in time");
    }
}

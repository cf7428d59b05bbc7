//! Ending links: calls of an old epoch may finish, within bounds.

use std::sync::Arc;
use std::time::Duration;

use hermes_core::task;
use tokio::time::{Instant, timeout, timeout_at};
use tokio_util::sync::CancellationToken;

use super::shared::LiveLink;
use crate::link::Link;

/// How long calls of an old epoch may go on.
pub(super) const DRAIN: Duration = Duration::from_secs(30);
/// The same where the link still worked when it was replaced.
const DRAIN_WORKING: Duration = Duration::from_mins(10);
/// Links bound their closing themselves; this is for one that does not.
const CLOSE: Duration = Duration::from_secs(10);

/// The old link that still serves its calls. There is at most one: the next one to retire ends it.
#[derive(Default)]
pub(super) struct Draining(Option<CancellationToken>);

impl Draining {
    /// Closes `live` when its calls ended, in the background.
    pub(super) fn add(&mut self, live: Arc<LiveLink>, works: bool) {
        let longest = if works { DRAIN_WORKING } else { DRAIN };
        let hurry = CancellationToken::new();
        if let Some(older) = self.0.replace(hurry.clone()) {
            older.cancel();
        }
        task::spawn("mcp-drain", async move {
            tokio::select! {
                () = drained(&live, Instant::now() + longest) => {}
                () = hurry.cancelled() => {}
            }
            close(&*live.link).await;
        });
    }

    pub(super) fn end(&mut self) {
        if let Some(older) = self.0.take() {
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

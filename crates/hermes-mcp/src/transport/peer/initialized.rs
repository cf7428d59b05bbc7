//! `notifications/initialized`: sent concurrently with the first request instead of before it,
//! which saves a round trip per connect. Its outcome is known before that request counts as
//! answered.
//!
//! It may be refused or lost where everything else works: behind a load balancer that spreads
//! requests over several processes, the next request may reach the right one. Its failure therefore
//! matters only if the tools cannot be listed either.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;

use super::ConnectionShared;
use crate::failure::McpFailure;

/// Maximum number of attempts while the server refuses it or closes the connection.
const MAX_ATTEMPTS: usize = 4;
/// Maximum wait for a server that has already listed its tools.
const ACCEPT_TIMEOUT: Duration = Duration::from_millis(500);

#[derive(Clone, Debug, Default)]
enum State {
    /// Accepted by the server, or not needed.
    #[default]
    Done,
    Sending,
    Refused(McpFailure),
}

#[derive(Default)]
pub(crate) struct InitializedNotice(watch::Sender<State>);

impl InitializedNotice {
    /// Sends it in the background; repeats it at once if it is refused (4xx) or the connection
    /// breaks.
    pub(crate) fn begin<F>(
        shared: &Arc<ConnectionShared>,
        mut send: impl FnMut() -> F + Send + 'static,
    ) where
        F: Future<Output = Result<(), McpFailure>> + Send + 'static,
    {
        let shared = Arc::clone(shared);
        shared.initialized.0.send_replace(State::Sending);
        drop(hermes_core::task::spawn("mcp-greeting", async move {
            let sending = async {
                let mut attempt = 1;
                loop {
                    match send().await {
                        Err(why) if attempt < MAX_ATTEMPTS && may_succeed_again(&why) => {
                            attempt += 1;
                        }
                        sent => return sent,
                    }
                }
            };
            let sent = tokio::select! {
                () = shared.stop.cancelled() => return,
                sent = sending => sent,
            };
            match sent {
                Ok(()) => shared.initialized.mark_done(),
                Err(why) => {
                    shared.initialized.0.send_replace(State::Refused(why));
                }
            }
        }));
    }

    /// Whether its outcome no longer matters.
    pub(crate) fn is_done(&self) -> bool {
        matches!(*self.0.borrow(), State::Done)
    }

    /// It was accepted, or the server works without it.
    pub(crate) fn mark_done(&self) {
        self.0.send_replace(State::Done);
    }

    /// [`Self::wait_accepted`] with a short timeout, for a server that works.
    pub(crate) async fn wait_accepted_briefly(&self) -> Result<(), McpFailure> {
        tokio::time::timeout(ACCEPT_TIMEOUT, self.wait_accepted())
            .await
            .unwrap_or(Ok(()))
    }

    /// Waits until the server accepted it, or returns why it did not.
    pub(crate) async fn wait_accepted(&self) -> Result<(), McpFailure> {
        let mut state = self.0.subscribe();
        let settled = state
            .wait_for(|state| !matches!(state, State::Sending))
            .await;
        match settled.as_deref() {
            Ok(State::Refused(why)) => Err(why.clone()),
            // The sender is owned by `self`, so waiting cannot fail.
            _ => Ok(()),
        }
    }
}

/// Whether repeating it may help.
fn may_succeed_again(why: &McpFailure) -> bool {
    why.http_status
        .is_none_or(|status| (400..500).contains(&status) && status != 429)
}

//! `notifications/initialized`: sent beside the first request instead of before it, which saves a
//! round trip of every connect. What it meets is known before that request counts as answered.
//!
//! A server may refuse it and work all the same: behind a balancer that spreads requests over
//! several processes, the next request finds the right one. So a refusal decides nothing until
//! the tools cannot be listed either.

use std::sync::Arc;

use tokio::sync::watch;

use super::ConnectionShared;
use crate::failure::McpFailure;

/// How often it is sent in all while the server refuses it.
const ATTEMPTS: usize = 4;

#[derive(Clone, Debug, Default)]
enum State {
    /// Taken by the server, or not needed.
    #[default]
    Over,
    UnderWay,
    Refused(McpFailure),
}

#[derive(Default)]
pub(crate) struct Greeting(watch::Sender<State>);

impl Greeting {
    /// Sends it in the background, again at once where it is refused (4xx).
    pub(crate) fn begin<F>(
        shared: &Arc<ConnectionShared>,
        mut send: impl FnMut() -> F + Send + 'static,
    ) where
        F: Future<Output = Result<(), McpFailure>> + Send + 'static,
    {
        let shared = Arc::clone(shared);
        shared.greeting.0.send_replace(State::UnderWay);
        drop(hermes_core::task::spawn("mcp-greeting", async move {
            let sending = async {
                let mut attempt = 1;
                loop {
                    match send().await {
                        Err(why) if attempt < ATTEMPTS && is_refused(&why) => attempt += 1,
                        sent => return sent,
                    }
                }
            };
            let sent = tokio::select! {
                () = shared.stop.cancelled() => return,
                sent = sending => sent,
            };
            match sent {
                Ok(()) => shared.greeting.forgive(),
                Err(why) => {
                    let state = State::Refused(why.clone());
                    shared.greeting.0.send_replace(state);
                    // Nobody answered at all: the link is of no use.
                    if why.http_status.is_none() {
                        shared.die(why);
                    }
                }
            }
        }));
    }

    /// Whether anything is to be decided about it.
    pub(crate) fn is_over(&self) -> bool {
        matches!(*self.0.borrow(), State::Over)
    }

    /// It worked, or the server works without it.
    pub(crate) fn forgive(&self) {
        self.0.send_replace(State::Over);
    }

    /// Waits until the server took it, or says why it did not.
    pub(crate) async fn taken(&self) -> Result<(), McpFailure> {
        let mut state = self.0.subscribe();
        let settled = state
            .wait_for(|state| !matches!(state, State::UnderWay))
            .await;
        match settled.as_deref() {
            Ok(State::Refused(why)) => Err(why.clone()),
            // The sender lives in `self`, so waiting cannot fail.
            _ => Ok(()),
        }
    }
}

fn is_refused(why: &McpFailure) -> bool {
    why.http_status
        .is_some_and(|status| (400..500).contains(&status) && status != 429)
}

//! `notifications/initialized`: sent beside the first request instead of before it, which saves a
//! round trip of every connect. What it meets is known before that request counts as answered.

use std::sync::Arc;

use tokio::sync::watch;

use super::Shared;
use crate::failure::McpFailure;

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
    /// Sends it in the background. A server that refuses it is not connected.
    pub(crate) fn begin(
        shared: &Arc<Shared>,
        sending: impl Future<Output = Result<(), McpFailure>> + Send + 'static,
    ) {
        let shared = Arc::clone(shared);
        shared.greeting.0.send_replace(State::UnderWay);
        drop(hermes_core::task::spawn("mcp-greeting", async move {
            let sent = tokio::select! {
                () = shared.stop.cancelled() => return,
                sent = sending => sent,
            };
            match sent {
                Ok(()) => drop(shared.greeting.0.send_replace(State::Over)),
                Err(why) => {
                    let state = State::Refused(why.clone());
                    shared.greeting.0.send_replace(state);
                    shared.die(why);
                }
            }
        }));
    }

    pub(crate) fn is_under_way(&self) -> bool {
        matches!(*self.0.borrow(), State::UnderWay)
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

    /// Waits for a refusal, for ever if there is none.
    pub(crate) async fn refused(&self) -> McpFailure {
        match self.taken().await {
            Err(why) => why,
            Ok(()) => std::future::pending().await,
        }
    }
}

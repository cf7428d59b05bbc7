//! Concurrent tries to connect: a server may lose a request and be back long before that request
//! times out.

use std::collections::VecDeque;
use std::future::poll_fn;
use std::pin::Pin;
use std::task::Poll;
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::join_all;
use hermes_core::task;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use super::connect::NewConnection;
use super::retire::close;
use crate::failure::McpFailure;

/// Maximum number of concurrent tries.
const MAX_TRIES: usize = 2;
/// How long an unneeded try may take to clean up.
const DISCARD_TIMEOUT: Duration = Duration::from_secs(10);

pub(super) type ConnectFuture =
    Pin<Box<dyn Future<Output = Result<NewConnection, McpFailure>> + Send>>;

/// The tries of one attempt, oldest first.
#[derive(Default)]
pub(super) struct ConnectTries(VecDeque<ConnectTry>);

struct ConnectTry {
    work: ConnectFuture,
    cancel: CancellationToken,
}

impl ConnectTries {
    /// Starts another try. The oldest continues, because the server may just be slow.
    pub(super) fn begin(&mut self, make: impl FnOnce(CancellationToken) -> ConnectFuture) {
        if self.0.len() >= MAX_TRIES
            && let Some(surplus) = self.0.remove(1)
        {
            surplus.discard();
        }
        let cancel = CancellationToken::new();
        let work = make(cancel.clone());
        self.0.push_back(ConnectTry { work, cancel });
    }

    /// Returns the first outcome and discards the other tries.
    pub(super) async fn outcome(&mut self) -> Result<NewConnection, McpFailure> {
        let first = poll_fn(|cx| {
            for (index, attempt) in self.0.iter_mut().enumerate() {
                if let Poll::Ready(outcome) = attempt.work.as_mut().poll(cx) {
                    return Poll::Ready((index, outcome));
                }
            }
            Poll::Pending
        });
        let (index, outcome) = first.await;
        self.0.remove(index);
        self.0.drain(..).for_each(ConnectTry::discard);
        outcome
    }

    /// Cancels all tries and waits until they have ended.
    pub(super) async fn cancel(&mut self) {
        let ended = self.0.drain(..).map(|attempt| async move {
            attempt.cancel.cancel();
            if let Ok(connection) = attempt.work.await {
                close(&*connection.link).await;
            }
        });
        join_all(ended).await;
    }
}

impl ConnectTry {
    fn discard(self) {
        self.cancel.cancel();
        discard(self.work);
    }
}

/// Finishes a cancelled attempt in the background.
pub(super) fn discard(mut work: ConnectFuture) {
    // Most end immediately; then nothing overlaps with the next attempt.
    let ended = work.as_mut().now_or_never();
    drop(task::spawn("mcp-discard", async move {
        let ended = match ended {
            Some(ended) => Ok(ended),
            None => timeout(DISCARD_TIMEOUT, work).await,
        };
        if let Ok(Ok(connection)) = ended {
            close(&*connection.link).await;
        }
    }));
}

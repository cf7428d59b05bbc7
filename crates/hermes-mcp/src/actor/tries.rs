//! Several attempts at one connection, at the same time: a server may lose a question, and be back
//! long before that question is given up.

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

use super::connect::Fresh;
use super::retire::close;
use crate::failure::McpFailure;

/// Tries that run at the same time.
const MOST: usize = 2;
/// A try that is no longer needed may take this long to clean up.
const DISCARD: Duration = Duration::from_secs(10);

pub(super) type Work = Pin<Box<dyn Future<Output = Result<Fresh, McpFailure>> + Send>>;

/// The tries of one attempt, oldest first.
#[derive(Default)]
pub(super) struct Tries(VecDeque<Try>);

struct Try {
    work: Work,
    cancel: CancellationToken,
}

impl Tries {
    /// Begins one more. The oldest stays, for the server may just be slow.
    pub(super) fn begin(&mut self, make: impl FnOnce(CancellationToken) -> Work) {
        if self.0.len() >= MOST
            && let Some(surplus) = self.0.remove(1)
        {
            surplus.discard();
        }
        let cancel = CancellationToken::new();
        let work = make(cancel.clone());
        self.0.push_back(Try { work, cancel });
    }

    /// The first outcome is that of all; the others are given up.
    pub(super) async fn outcome(&mut self) -> Result<Fresh, McpFailure> {
        let first = poll_fn(|cx| {
            for (place, one) in self.0.iter_mut().enumerate() {
                if let Poll::Ready(outcome) = one.work.as_mut().poll(cx) {
                    return Poll::Ready((place, outcome));
                }
            }
            Poll::Pending
        });
        let (place, outcome) = first.await;
        self.0.remove(place);
        self.0.drain(..).for_each(Try::discard);
        outcome
    }

    /// Gives all of them up and waits until they have ended.
    pub(super) async fn cancel(&mut self) {
        let ended = self.0.drain(..).map(|one| async move {
            one.cancel.cancel();
            if let Ok(fresh) = one.work.await {
                close(&*fresh.link).await;
            }
        });
        join_all(ended).await;
    }
}

impl Try {
    fn discard(self) {
        self.cancel.cancel();
        discard(self.work);
    }
}

/// Ends an attempt that was told to stop, without making anybody wait for it.
pub(super) fn discard(mut work: Work) {
    // Most end at once: then nothing of it overlaps with what comes next.
    let ended = work.as_mut().now_or_never();
    drop(task::spawn("mcp-discard", async move {
        let ended = match ended {
            Some(ended) => Ok(ended),
            None => timeout(DISCARD, work).await,
        };
        if let Ok(Ok(fresh)) = ended {
            close(&*fresh.link).await;
        }
    }));
}

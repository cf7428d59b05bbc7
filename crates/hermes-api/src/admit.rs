//! Limits the number of concurrent turns.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use axum::http::StatusCode;
use tokio::sync::Notify;

use super::error::ApiError;

/// The running turns of clients.
#[derive(Clone, Debug)]
pub struct ActiveTurns(Arc<TurnCounts>);

#[derive(Debug)]
struct TurnCounts {
    running: AtomicUsize,
    /// 0: no bound.
    max: usize,
    /// Notified when a turn ends.
    ended: Notify,
}

/// The permit of a turn. Dropping it admits another one.
#[derive(Debug)]
pub(super) struct TurnPermit(Arc<TurnCounts>);

impl ActiveTurns {
    pub(super) fn new(max: usize) -> Self {
        let running = AtomicUsize::new(0);
        let ended = Notify::new();
        Self(Arc::new(TurnCounts {
            running,
            max,
            ended,
        }))
    }

    pub fn running(&self) -> usize {
        self.0.running.load(Ordering::SeqCst)
    }

    /// Returns when no turn runs.
    pub async fn quiet(&self) {
        loop {
            let ended = self.0.ended.notified();
            if self.running() == 0 {
                return;
            }
            ended.await;
        }
    }

    pub(super) fn admit(&self, draining: bool) -> Result<TurnPermit, ApiError> {
        if draining {
            let message = "the gateway is shutting down and accepts nothing new; try again";
            let refused = ApiError::new(StatusCode::SERVICE_UNAVAILABLE, message);
            return Err(refused.code("gateway_draining").retry_after(1));
        }
        let ticket = TurnPermit(Arc::clone(&self.0));
        let before = self.0.running.fetch_add(1, Ordering::SeqCst);
        let max = self.0.max;
        if max > 0 && before >= max {
            let message = format!(
                "{max} turns run already, as many as gateway.api_server.max_concurrent_runs \
                 allows; try again"
            );
            let refused = ApiError::new(StatusCode::TOO_MANY_REQUESTS, message);
            // The permit is dropped on this return, which restores the count.
            return Err(refused.code("rate_limit_exceeded").retry_after(1));
        }
        Ok(ticket)
    }
}

impl Drop for TurnPermit {
    fn drop(&mut self) {
        self.0.running.fetch_sub(1, Ordering::SeqCst);
        self.0.ended.notify_waiters();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn whoever_waits_for_quiet_waits_for_the_last_one() {
        let work = ActiveTurns::new(0);
        work.quiet().await;
        let (one, two) = (work.admit(false).unwrap(), work.admit(false).unwrap());
        let mut quiet = std::pin::pin!(work.quiet());
        assert!(futures_util::poll!(&mut quiet).is_pending());
        drop(one);
        assert!(futures_util::poll!(&mut quiet).is_pending());
        drop(two);
        quiet.await;
    }

    #[test]
    fn a_bound_holds_and_a_place_that_is_given_back_counts() {
        let work = ActiveTurns::new(2);
        let first = work.admit(false).unwrap();
        let _second = work.admit(false).unwrap();
        let refused = work.admit(false).unwrap_err();
        assert_eq!(refused.status(), StatusCode::TOO_MANY_REQUESTS);
        assert_eq!(work.running(), 2);
        drop(first);
        assert!(work.admit(false).is_ok());
        assert_eq!(
            work.admit(true).unwrap_err().status(),
            StatusCode::SERVICE_UNAVAILABLE
        );
        let open = ActiveTurns::new(0);
        let many: Vec<TurnPermit> = (0..100).map(|_| open.admit(false).unwrap()).collect();
        assert_eq!(open.running(), many.len());
    }
}

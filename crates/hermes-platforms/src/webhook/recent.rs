//! Recent calls by id: a repetition waits for the outcome of the first. A call is confirmed only
//! after it is stored.

use std::collections::{HashMap, VecDeque};
use std::pin::pin;
use std::sync::{Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;

/// Maximum number of ids in memory; older ones are looked up in the store.
const MAX_IDS: usize = 2_048;

#[derive(Default)]
pub(super) struct RecentCalls {
    calls: Mutex<CallStages>,
    /// Notified when a call was processed.
    settled: Notify,
}

#[derive(Default)]
struct CallStages {
    order: VecDeque<String>,
    stages: HashMap<String, Stage>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    UnderWay,
    Taken,
}

impl RecentCalls {
    /// Claims a call; `None`: already accepted. Waits while another task has the claim.
    pub(super) async fn claim(&self, key: &str) -> Option<CallClaim<'_>> {
        loop {
            let mut settled = pin!(self.settled.notified());
            settled.as_mut().enable();
            match self.try_claim(key) {
                Ok(claim) => return Some(claim),
                Err(Stage::Taken) => return None,
                Err(Stage::UnderWay) => settled.await,
            }
        }
    }

    /// The same at once; `None` also where another has that right.
    pub(super) fn claim_now(&self, key: &str) -> Option<CallClaim<'_>> {
        self.try_claim(key).ok()
    }

    fn try_claim(&self, key: &str) -> Result<CallClaim<'_>, Stage> {
        let mut calls = self.calls();
        if let Some(stage) = calls.stages.get(key) {
            return Err(*stage);
        }
        calls.remember(key);
        Ok(CallClaim {
            recent: self,
            key: Some(key.to_owned()),
        })
    }

    fn calls(&self) -> MutexGuard<'_, CallStages> {
        // A panic cannot leave the map half changed.
        self.calls.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl CallStages {
    fn remember(&mut self, key: &str) {
        self.stages.insert(key.to_owned(), Stage::UnderWay);
        self.order.push_back(key.to_owned());
        while self.order.len() > MAX_IDS {
            if let Some(oldest) = self.order.pop_front() {
                self.stages.remove(&oldest);
            }
        }
    }

    fn forget(&mut self, key: &str) {
        if self.stages.remove(key).is_some() {
            self.order.retain(|known| known != key);
        }
    }
}

/// The claim of a call. Dropped without [`CallClaim::keep`], it is released, so that a refused or
/// failed call can be repeated.
pub(super) struct CallClaim<'a> {
    recent: &'a RecentCalls,
    key: Option<String>,
}

impl CallClaim<'_> {
    /// The call is stored.
    pub(super) fn keep(mut self) {
        if let Some(key) = self.key.take()
            && let Some(stage) = self.recent.calls().stages.get_mut(&key)
        {
            *stage = Stage::Taken;
        }
    }
}

impl Drop for CallClaim<'_> {
    fn drop(&mut self) {
        if let Some(key) = self.key.take() {
            self.recent.calls().forget(&key);
        }
        self.recent.settled.notify_waiters();
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt as _;

    use super::*;

    #[tokio::test]
    async fn a_repeated_call_waits_for_what_becomes_of_the_first() {
        let recent = RecentCalls::default();
        let first = recent.claim("a").await.unwrap();
        let mut second = Box::pin(recent.claim("a"));
        assert!(second.as_mut().now_or_never().is_none());
        assert!(recent.claim_now("a").is_none());
        assert!(recent.claim("b").await.is_some());
        // The first failed: the second processes the call, and a third sees that it was accepted.
        drop(first);
        let second = second.await.unwrap();
        let mut third = Box::pin(recent.claim("a"));
        assert!(third.as_mut().now_or_never().is_none());
        second.keep();
        assert!(third.await.is_none());
        assert!(recent.claim("a").await.is_none());
    }
}

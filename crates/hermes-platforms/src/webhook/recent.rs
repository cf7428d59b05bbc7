//! CallStages that came lately, by their ids: one that is repeated while the first is dealt with waits for
//! what becomes of that. Until it is stored, nobody may be told that it was taken.

use std::collections::{HashMap, VecDeque};
use std::pin::pin;
use std::sync::{Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;

/// Ids that are remembered; those before are looked up in the store.
const MOST: usize = 2_048;

#[derive(Default)]
pub(super) struct RecentCalls {
    calls: Mutex<CallStages>,
    /// One that was being dealt with has ended.
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
    /// The right to deal with this call; `None`: it was taken. Waits while another has that right.
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
        while self.order.len() > MOST {
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

/// The right to deal with a call. Dropped without [`CallClaim::keep`], it is given back: whoever was turned
/// away, or whose call broke, may come again.
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
        // It broke: the second deals with it, and a third learns that it was taken.
        drop(first);
        let second = second.await.unwrap();
        let mut third = Box::pin(recent.claim("a"));
        assert!(third.as_mut().now_or_never().is_none());
        second.keep();
        assert!(third.await.is_none());
        assert!(recent.claim("a").await.is_none());
    }
}

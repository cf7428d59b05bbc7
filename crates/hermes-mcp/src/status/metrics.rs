//! Counters of one server.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use serde::{Deserialize, Serialize};

/// Number of round trips kept for the percentiles.
const MAX_ROUND_TRIPS: usize = 128;

#[derive(Debug, Default)]
pub(crate) struct Metrics {
    inner: Mutex<Inner>,
}

#[derive(Debug, Default)]
struct Inner {
    counters: Counters,
    round_trips: VecDeque<Duration>,
}

/// Labels are joined with a slash, e.g. `call_tool/ok`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counters {
    /// By operation and outcome.
    pub calls: BTreeMap<String, u64>,
    /// By class of the first failure.
    pub retries: BTreeMap<String, u64>,
    /// By cause; the first connect is `start`.
    pub reconnects: BTreeMap<String, u64>,
    /// Callers that waited for a recovery started by another caller.
    pub joined: u64,
    /// By result.
    pub keepalive: BTreeMap<String, u64>,
}

impl Metrics {
    fn with<T>(&self, act: impl FnOnce(&mut Inner) -> T) -> T {
        act(&mut self.inner.lock().unwrap_or_else(PoisonError::into_inner))
    }

    pub(crate) fn call(&self, op: &str, outcome: &str) {
        self.with(|inner| bump(&mut inner.counters.calls, &format!("{op}/{outcome}")));
    }

    pub(crate) fn retry(&self, class: &str) {
        self.with(|inner| bump(&mut inner.counters.retries, class));
    }

    pub(crate) fn reconnect(&self, reason: &str) {
        self.with(|inner| bump(&mut inner.counters.reconnects, reason));
    }

    pub(crate) fn joined(&self) {
        self.with(|inner| inner.counters.joined += 1);
    }

    pub(crate) fn keepalive(&self, result: &str) {
        self.with(|inner| bump(&mut inner.counters.keepalive, result));
    }

    pub(crate) fn round_trip(&self, elapsed: Duration) {
        self.with(|inner| {
            if inner.round_trips.len() == MAX_ROUND_TRIPS {
                inner.round_trips.pop_front();
            }
            inner.round_trips.push_back(elapsed);
        });
    }

    pub(crate) fn counters(&self) -> Counters {
        self.with(|inner| inner.counters.clone())
    }

    /// p50 and p95 of the most recent round trips.
    pub(crate) fn percentiles(&self) -> Option<(Duration, Duration)> {
        let mut sorted: Vec<Duration> =
            self.with(|inner| inner.round_trips.iter().copied().collect());
        sorted.sort_unstable();
        let at = |percent: usize| {
            sorted
                .get((sorted.len().max(1) - 1) * percent / 100)
                .copied()
        };
        Some((at(50)?, at(95)?))
    }
}

fn bump(map: &mut BTreeMap<String, u64>, label: &str) {
    if let Some(count) = map.get_mut(label) {
        *count += 1;
    } else {
        map.insert(label.to_owned(), 1);
    }
}

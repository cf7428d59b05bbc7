//! The keys of one provider: choosing one, pausing failed ones.

use chrono::{DateTime, TimeDelta, Utc};
use hermes_core::clock::Rng;
use hermes_core::model::{ErrorClass, ModelError};

use super::Credential;

/// How long a key is paused after the server refused it.
const COOLDOWN_AFTER_401: TimeDelta = TimeDelta::minutes(5);
/// How long a key is paused after any other refusal, unless the provider states a time.
const COOLDOWN: TimeDelta = TimeDelta::hours(1);

/// Reasons after which a token never works again.
const DEAD_REASONS: &[&str] = &[
    "token_invalidated",
    "token_revoked",
    "invalid_token",
    "invalid_grant",
    "unauthorized_client",
    "refresh_token_reused",
];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyStatus {
    Ready,
    /// Paused until then.
    Exhausted(DateTime<Utc>),
    /// Will not recover by itself.
    Dead,
}

/// How the next key is chosen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum RotationStrategy {
    /// The first one until it fails.
    #[default]
    FillFirst,
    RoundRobin,
    Random,
    LeastUsed,
}

impl RotationStrategy {
    pub(crate) fn parse(text: &str) -> Option<Self> {
        match text.trim().to_ascii_lowercase().as_str() {
            "fill_first" => Some(Self::FillFirst),
            "round_robin" => Some(Self::RoundRobin),
            "random" => Some(Self::Random),
            "least_used" => Some(Self::LeastUsed),
            _ => None,
        }
    }
}

/// Why a key failed, as far as the key is concerned.
#[derive(Clone, Debug, PartialEq)]
pub struct KeyFailure {
    pub status: Option<u16>,
    pub message: String,
    /// When the key works again, as stated by the provider.
    pub reset_at: Option<DateTime<Utc>>,
}

impl KeyFailure {
    /// `None`: the error is not about the key.
    pub fn from_error(error: &ModelError, now: DateTime<Utc>) -> Option<Self> {
        let concerns_key = matches!(
            error.class,
            ErrorClass::Auth | ErrorClass::Billing | ErrorClass::RateLimit
        );
        concerns_key.then(|| Self {
            status: error.status,
            message: error.message.clone(),
            reset_at: error
                .retry_after
                .and_then(|wait| TimeDelta::from_std(wait).ok())
                .map(|wait| now + wait),
        })
    }

    /// The permanent reason named in the message, if any.
    pub fn dead_reason(&self) -> Option<&'static str> {
        if self.status != Some(401) {
            return None;
        }
        let message = self.message.to_ascii_lowercase();
        DEAD_REASONS
            .iter()
            .find(|reason| message.contains(**reason))
            .copied()
    }

    fn rest(&self) -> TimeDelta {
        if self.status == Some(401) {
            COOLDOWN_AFTER_401
        } else {
            COOLDOWN
        }
    }
}

/// How long a stored failure pauses its key.
pub(super) fn cooldown_until(
    code: Option<u16>,
    since: Option<DateTime<Utc>>,
    reset_at: Option<DateTime<Utc>>,
) -> Option<DateTime<Utc>> {
    let rest = if code == Some(401) {
        COOLDOWN_AFTER_401
    } else {
        COOLDOWN
    };
    reset_at.or_else(|| since.map(|since| since + rest))
}

/// The keys of one provider.
#[derive(Clone, Debug)]
pub(crate) struct KeyPool {
    strategy: RotationStrategy,
    entries: Vec<Credential>,
    /// Position of round robin; `None` until the first choice.
    cursor: Option<usize>,
}

impl KeyPool {
    pub(crate) fn new(strategy: RotationStrategy, entries: Vec<Credential>) -> Self {
        Self {
            strategy,
            entries,
            cursor: None,
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// The key to use next; counts it as used. If every key is paused, the one that recovers first:
    /// trying it is better than failing. `None`: there is none, or all are dead.
    pub(crate) fn select(&mut self, now: DateTime<Utc>, rng: &dyn Rng) -> Option<Credential> {
        let index = self
            .choose(&self.ready(now), rng)
            .or_else(|| self.first_to_recover())?;
        Some(self.take(index))
    }

    /// Another key that is ready now, for a call whose key `failed`.
    pub(crate) fn rotate(
        &mut self,
        failed: &str,
        now: DateTime<Utc>,
        rng: &dyn Rng,
    ) -> Option<Credential> {
        let ready: Vec<usize> = self
            .ready(now)
            .into_iter()
            .filter(|index| self.entries[*index].label != failed)
            .collect();
        let index = self.choose(&ready, rng)?;
        Some(self.take(index))
    }

    /// Pauses or disables the key with that label. Returns its new state.
    pub(crate) fn mark(
        &mut self,
        label: &str,
        failure: &KeyFailure,
        now: DateTime<Utc>,
    ) -> Option<&Credential> {
        let entry = self.entries.iter_mut().find(|entry| entry.label == label)?;
        entry.status = if failure.dead_reason().is_some() {
            KeyStatus::Dead
        } else {
            KeyStatus::Exhausted(failure.reset_at.unwrap_or_else(|| now + failure.rest()))
        };
        Some(entry)
    }

    fn take(&mut self, index: usize) -> Credential {
        self.cursor = Some(index + 1);
        let entry = &mut self.entries[index];
        entry.request_count += 1;
        entry.clone()
    }

    fn ready(&self, now: DateTime<Utc>) -> Vec<usize> {
        let is_ready = |entry: &Credential| match entry.status {
            KeyStatus::Ready => true,
            KeyStatus::Exhausted(until) => until <= now,
            KeyStatus::Dead => false,
        };
        (0..self.entries.len())
            .filter(|index| is_ready(&self.entries[*index]))
            .collect()
    }

    fn choose(&self, ready: &[usize], rng: &dyn Rng) -> Option<usize> {
        let any = |ready: &[usize]| ready[(rng.next_u64() % ready.len() as u64) as usize];
        if ready.is_empty() {
            return None;
        }
        Some(match self.strategy {
            RotationStrategy::FillFirst => ready[0],
            RotationStrategy::Random => any(ready),
            RotationStrategy::LeastUsed => *ready
                .iter()
                .min_by_key(|index| self.entries[**index].request_count)?,
            // A process that runs for one turn starts at a random key; otherwise all of them would
            // start at the first.
            RotationStrategy::RoundRobin => match self.cursor {
                None => any(ready),
                Some(cursor) => *ready
                    .iter()
                    .find(|index| **index >= cursor)
                    .unwrap_or(&ready[0]),
            },
        })
    }

    fn first_to_recover(&self) -> Option<usize> {
        self.entries
            .iter()
            .enumerate()
            .filter_map(|(index, entry)| match entry.status {
                KeyStatus::Exhausted(until) => Some((until, index)),
                _ => None,
            })
            .min()
            .map(|(_, index)| index)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering};
    use std::time::Duration;

    use secrecy::SecretString;

    use super::*;

    struct Counter(AtomicU64);

    impl Rng for Counter {
        fn next_u64(&self) -> u64 {
            self.0.fetch_add(1, Ordering::Relaxed)
        }
    }

    fn counter(from: u64) -> Counter {
        Counter(AtomicU64::new(from))
    }

    fn pool(strategy: RotationStrategy, labels: &[&str]) -> KeyPool {
        let entries = labels
            .iter()
            .map(|label| Credential::new(*label, SecretString::from(format!("key-{label}"))))
            .collect();
        KeyPool::new(strategy, entries)
    }

    fn at(seconds: i64) -> DateTime<Utc> {
        DateTime::from_timestamp(1_800_000_000 + seconds, 0).unwrap()
    }

    fn failure(status: u16) -> KeyFailure {
        KeyFailure {
            status: Some(status),
            message: String::new(),
            reset_at: None,
        }
    }

    fn picks(pool: &mut KeyPool, count: usize, rng: &dyn Rng) -> String {
        (0..count)
            .map(|_| pool.select(at(0), rng).unwrap().label)
            .collect()
    }

    #[test]
    fn strategies() {
        let rng = counter(1);
        assert_eq!(
            picks(&mut pool(RotationStrategy::FillFirst, &["a", "b"]), 3, &rng),
            "aaa"
        );
        assert_eq!(
            picks(
                &mut pool(RotationStrategy::RoundRobin, &["a", "b", "c"]),
                5,
                &counter(1)
            ),
            "bcabc"
        );
        assert_eq!(
            picks(
                &mut pool(RotationStrategy::Random, &["a", "b"]),
                4,
                &counter(0)
            ),
            "abab"
        );
        let mut least = pool(RotationStrategy::LeastUsed, &["a", "b"]);
        least.entries[0].request_count = 2;
        assert_eq!(picks(&mut least, 4, &rng), "bbab");
    }

    #[test]
    fn a_failed_key_rests_and_comes_back() {
        let rng = counter(0);
        for (status, rest) in [(401, 300), (429, 3600), (402, 3600), (403, 3600)] {
            let mut pool = pool(RotationStrategy::FillFirst, &["a", "b"]);
            pool.mark("a", &failure(status), at(0));
            assert_eq!(
                pool.select(at(rest - 1), &rng).unwrap().label,
                "b",
                "{status}"
            );
            assert_eq!(pool.select(at(rest), &rng).unwrap().label, "a", "{status}");
        }
    }

    #[test]
    fn the_providers_own_reset_time_wins() {
        let error = ModelError {
            class: ErrorClass::RateLimit,
            provider: "p".into(),
            model: "m".into(),
            status: Some(429),
            message: "slow down".into(),
            retry_after: Some(Duration::from_secs(20)),
            limit: None,
        };
        let mut pool = pool(RotationStrategy::FillFirst, &["a", "b"]);
        pool.mark("a", &KeyFailure::from_error(&error, at(0)).unwrap(), at(0));
        assert_eq!(pool.entries[0].status, KeyStatus::Exhausted(at(20)));
        let other = ModelError {
            class: ErrorClass::Timeout,
            ..error
        };
        assert_eq!(KeyFailure::from_error(&other, at(0)), None);
    }

    #[test]
    fn rotation_never_returns_the_failed_key_nor_a_resting_one() {
        let rng = counter(0);
        let mut pool = pool(RotationStrategy::FillFirst, &["a", "b"]);
        pool.mark("a", &failure(429), at(0));
        assert_eq!(pool.rotate("a", at(1), &rng).unwrap().label, "b");
        pool.mark("b", &failure(429), at(1));
        assert!(pool.rotate("b", at(2), &rng).is_none());
        // A new turn still tries the key that is back first.
        assert_eq!(pool.select(at(2), &rng).unwrap().label, "a");
    }

    #[test]
    fn a_revoked_token_is_dead_for_good() {
        let rng = counter(0);
        let mut pool = pool(RotationStrategy::FillFirst, &["a"]);
        let revoked = KeyFailure {
            message: "error: token_revoked".into(),
            ..failure(401)
        };
        pool.mark("a", &revoked, at(0));
        assert_eq!(pool.entries[0].status, KeyStatus::Dead);
        assert!(pool.select(at(1_000_000), &rng).is_none());
        // The same words in another status are no verdict.
        assert_eq!(
            KeyFailure {
                status: Some(429),
                ..revoked
            }
            .dead_reason(),
            None
        );
    }
}

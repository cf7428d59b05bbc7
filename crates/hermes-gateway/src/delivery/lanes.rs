//! Schedules chunks. Each account has its own lane, independent of the others; within a lane each
//! chat has one chunk in flight, which preserves the order.

use std::collections::{HashMap, HashSet};
use std::time::Duration;

use futures_util::future::join_all;
use futures_util::stream::FuturesUnordered;
use futures_util::{FutureExt as _, StreamExt as _};
use hermes_core::store::StoreError;
use hermes_store::delivery::Chunk;
use tokio::sync::Notify;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::outbox::{AccountKey, Outbox};

/// The result of one round.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct LaneRound {
    /// Number of due chunks. If not zero, there may be more.
    pub due: usize,
    /// When the first of the others is due (seconds since the epoch).
    pub next_at: Option<f64>,
}

/// The sends in flight of one account.
struct AccountLane {
    busy: HashSet<i64>,
    /// When to query the store again. `None`: when something changes.
    ask_at: Option<Instant>,
}

impl Outbox {
    /// Sends until cancelled. `wake` is notified when chunks are stored or a platform connects.
    /// `Err`: another process owns delivery; other failures of the store are retried.
    pub async fn run(&self, wake: &Notify, cancel: &CancellationToken) -> Result<(), StoreError> {
        let mut lanes: HashMap<AccountKey, AccountLane> = HashMap::new();
        let mut steps = FuturesUnordered::new();
        loop {
            let places: HashSet<AccountKey> = self.places().into_iter().collect();
            lanes.retain(|account_key, lane| places.contains(account_key) || !lane.busy.is_empty());
            for account_key in places {
                let now = Instant::now();
                let lane = lanes
                    .entry(account_key.clone())
                    .or_insert_with(|| AccountLane {
                        busy: HashSet::new(),
                        ask_at: Some(now),
                    });
                if lane.ask_at.is_none_or(|at| at > now) {
                    continue;
                }
                for chunk in self.ask(&account_key, lane).await? {
                    let (seq, account_key) = (chunk.seq, account_key.clone());
                    steps.push(
                        self.step(chunk)
                            .map(move |result| (account_key, seq, result)),
                    );
                }
            }
            let next = lanes.values().filter_map(|lane| lane.ask_at).min();
            tokio::select! {
                () = cancel.cancelled() => break,
                () = wake.notified() => {
                    for lane in lanes.values_mut() {
                        lane.ask_at = Some(Instant::now());
                    }
                }
                () = sleep_until(next) => {}
                Some((account_key, seq, result)) = steps.next() => {
                    let pause = self.failed(result)?;
                    if let Some(lane) = lanes.get_mut(&account_key) {
                        lane.busy.remove(&seq);
                        lane.ask_at = Some(Instant::now() + pause);
                    }
                }
            }
        }
        // Sends in flight are completed.
        while let Some((_, _, result)) = steps.next().await {
            self.failed(result)?;
        }
        Ok(())
    }

    /// Starts what a lane can send now.
    async fn ask(
        &self,
        account_key: &AccountKey,
        lane: &mut AccountLane,
    ) -> Result<Vec<Chunk>, StoreError> {
        let parallel = self.policy.parallel.max(1);
        if lane.busy.len() >= parallel {
            // The query is repeated when one of them ends.
            lane.ask_at = None;
            return Ok(Vec::new());
        }
        // The result includes chunks with an uncertain outcome.
        let limit = parallel + lane.busy.len();
        let due = match self.delivery.due(vec![account_key.clone()], limit).await {
            Ok(due) => due,
            Err(error) => {
                lane.ask_at = Some(Instant::now() + self.failed(Err(error))?);
                return Ok(Vec::new());
            }
        };
        let mut chunks = due.chunks;
        chunks.retain(|chunk| !lane.busy.contains(&chunk.seq));
        chunks.truncate(parallel - lane.busy.len());
        lane.busy.extend(chunks.iter().map(|chunk| chunk.seq));
        let full = lane.busy.len() >= parallel;
        let pause = due.next_at.filter(|_| !full).map(|at| self.until(at));
        lane.ask_at = pause.map(|pause| Instant::now() + pause);
        Ok(chunks)
    }

    /// How long to wait afterwards. `Err`: fatal.
    fn failed(&self, result: Result<(), StoreError>) -> Result<Duration, StoreError> {
        match result {
            Ok(()) => Ok(Duration::ZERO),
            Err(error @ StoreError::NotOwner { .. }) => Err(error),
            Err(error) => {
                tracing::error!("delivery: {error}");
                Ok(self.policy.pause)
            }
        }
    }

    fn until(&self, at: f64) -> Duration {
        let seconds = at - self.clock.epoch_seconds();
        // Bounded: the wall clock may be set back.
        Duration::from_secs_f64(seconds.max(0.0)).min(self.policy.longest_pause)
    }

    /// One round: the next chunk of every chat. Platform errors are recorded with the chunk; a
    /// store error ends the round.
    pub async fn pump(&self) -> Result<LaneRound, StoreError> {
        const MAX_CHUNKS_PER_ROUND: usize = 256;
        let rounds = join_all(self.places().into_iter().map(|account_key| async {
            let due = self
                .delivery
                .due(vec![account_key], MAX_CHUNKS_PER_ROUND)
                .await?;
            let mut pumped = LaneRound {
                due: 0,
                next_at: due.next_at,
            };
            let steps = due.chunks.into_iter().map(|chunk| self.step(chunk));
            let mut steps =
                futures_util::stream::iter(steps).buffer_unordered(self.policy.parallel.max(1));
            let mut result = Ok(());
            while let Some(step) = steps.next().await {
                pumped.due += 1;
                result = result.and(step);
            }
            result.map(|()| pumped)
        }));
        let mut all = LaneRound::default();
        for round in rounds.await {
            let round: LaneRound = round?;
            all.due += round.due;
            all.next_at = match (all.next_at, round.next_at) {
                (Some(one), Some(other)) => Some(one.min(other)),
                (one, other) => one.or(other),
            };
        }
        Ok(all)
    }
}

async fn sleep_until(at: Option<Instant>) {
    match at {
        Some(at) => tokio::time::sleep_until(at).await,
        None => std::future::pending().await,
    }
}

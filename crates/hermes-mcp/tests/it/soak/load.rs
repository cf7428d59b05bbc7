//! Reads and writes at a steady pace, and their outcomes.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use hermes_core::task;
use hermes_mcp::{CallError, CallOptions, Certainty, FailureClass, McpManager, Op};
use serde_json::json;
use tokio::sync::watch;
use tokio::time::{Instant, MissedTickBehavior, interval};
use tokio_util::task::TaskTracker;

use crate::rig::call;

/// Between two calls, over all servers: 20 per second.
const CALL_INTERVAL: Duration = Duration::from_millis(50);
/// A server that is unavailable for longer than this (its start time is not ours) may cost reads.
const LONG_OUTAGE: Duration = Duration::from_secs(5);

#[derive(Clone)]
pub(super) struct Member {
    pub(super) name: String,
    /// Whether it has `bump` with a token.
    pub(super) writes: bool,
    /// Whether its reads may remain unanswered.
    pub(super) excused: bool,
}

/// The outcomes of the calls.
#[derive(Default)]
pub(super) struct Tally {
    pub(super) reads: usize,
    /// Reads without an answer, by reason.
    pub(super) lost: BTreeMap<String, usize>,
    /// The same, where the server itself was unavailable for long.
    pub(super) excused: BTreeMap<String, usize>,
    pub(super) acknowledged: BTreeSet<String>,
    /// Writes that may have been executed: the outcome is unknown, or the tool's own error does not
    /// tell.
    pub(super) unknown: BTreeSet<String>,
    /// Writes known not to have been executed, by reason.
    pub(super) refused: BTreeMap<String, usize>,
    /// Wrong statements of the status.
    pub(super) wrong_statuses: Vec<String>,
}

/// An outage of a server: its name, from, until.
type Outage = (String, Instant, Instant);

/// State shared by calls and faults.
#[derive(Default)]
pub(super) struct CallLog {
    tally: Mutex<Tally>,
    outages: Mutex<Vec<Outage>>,
    /// Answers so far, by server.
    answers: watch::Sender<BTreeMap<String, usize>>,
}

impl CallLog {
    pub(super) fn away(&self, name: &str, since: Instant) {
        let outage = (name.to_owned(), since, Instant::now());
        self.outages.lock().unwrap().push(outage);
    }

    /// Waits until the server answered another call, so that no fault hits a recovery.
    pub(super) async fn answers_again(&self, name: &str) {
        let count = |answers: &BTreeMap<String, usize>| answers.get(name).copied().unwrap_or(0);
        let mut answers = self.answers.subscribe();
        let before = count(&answers.borrow());
        // Two, because the first may have been sent before.
        let _ = answers.wait_for(|now| count(now) > before + 1).await;
    }

    pub(super) fn wrong_statuses(&self, what: String) {
        self.tally.lock().unwrap().wrong_statuses.push(what);
    }

    fn was_away_for_long(&self, name: &str, from: Instant) -> bool {
        let outages = self.outages.lock().unwrap();
        outages
            .iter()
            .any(|(who, begin, end)| who == name && *end > from && *end - *begin > LONG_OUTAGE)
    }

    fn enter(&self, member: &Member, token: Option<String>, from: Instant, error: Option<Failed>) {
        if error.is_none() {
            self.answers
                .send_modify(|answers| *answers.entry(member.name.clone()).or_default() += 1);
        }
        let away = self.was_away_for_long(&member.name, from);
        let mut tally = self.tally.lock().unwrap();
        let tally = &mut *tally;
        tally.reads += usize::from(token.is_none());
        let (counts, why) = match (token, error) {
            (Some(token), None) => {
                tally.acknowledged.insert(token);
                return;
            }
            (Some(token), Some(failed)) if failed.unknown => {
                tally.unknown.insert(token);
                return;
            }
            (None, None) => return,
            (Some(_), Some(failed)) => (&mut tally.refused, failed.why),
            (None, Some(failed)) if away || member.excused => (&mut tally.excused, failed.why),
            (None, Some(failed)) => (&mut tally.lost, failed.why),
        };
        *counts.entry(why).or_default() += 1;
    }
}

struct Failed {
    why: String,
    unknown: bool,
}

pub(super) struct Load {
    manager: Arc<McpManager>,
    members: Vec<Member>,
    log: Arc<CallLog>,
    calls: TaskTracker,
    number: usize,
}

impl Load {
    pub(super) fn new(manager: &Arc<McpManager>, members: Vec<Member>) -> Self {
        Self {
            manager: manager.clone(),
            members,
            log: Arc::default(),
            calls: TaskTracker::new(),
            number: 0,
        }
    }

    pub(super) fn log(&self) -> Arc<CallLog> {
        self.log.clone()
    }

    pub(super) async fn run(&mut self, length: Duration) {
        let mut ticks = interval(CALL_INTERVAL);
        // If the machine is too slow, missed calls do not accumulate.
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let end = Instant::now() + length;
        while Instant::now() < end {
            ticks.tick().await;
            let member = self.members[self.number % self.members.len()].clone();
            let turn = self.number / self.members.len();
            self.number += 1;
            let one = one(self.manager.clone(), member, turn, self.log.clone());
            drop(task::spawn("soak-call", self.calls.track_future(one)));
        }
    }

    /// Waits for the calls in progress.
    pub(super) async fn end(self) -> Tally {
        self.calls.close();
        self.calls.wait().await;
        std::mem::take(&mut *self.log.tally.lock().unwrap())
    }
}

/// The proxy may replace the answer to an executed call by an error. With the id of the call it
/// looks like the tool's own error, which does not tell how far the tool got.
fn is_own_error(error: &CallError) -> bool {
    let failure = &error.failure;
    let answered = failure.class == FailureClass::Rpc && failure.http_status.is_none();
    answered && failure.certainty == Certainty::MaybeExecuted
}

/// One call; reads and writes alternate.
async fn one(manager: Arc<McpManager>, member: Member, turn: usize, log: Arc<CallLog>) {
    let write = member.writes && turn.is_multiple_of(2);
    let token = write.then(|| format!("{}-{turn}", member.name));
    let op = match &token {
        Some(token) => call("bump", json!({"token": token})),
        None => Op::ListResources,
    };
    let from = Instant::now();
    let result = manager.call(&member.name, op, CallOptions::default()).await;
    let error = match result {
        // No tool here fails by itself: this is the answer for a lost session.
        Ok(output) if output.result["isError"] == true => Some(Failed {
            why: output.result.to_string(),
            unknown: false,
        }),
        Ok(_) => None,
        Err(error) => Some(Failed {
            why: error.to_string(),
            unknown: error.outcome_unknown || is_own_error(&error),
        }),
    };
    log.enter(&member, token, from, error);
}

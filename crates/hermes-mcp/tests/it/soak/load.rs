//! Reads and writes at a steady pace, and what became of them.

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
/// A server that is away for longer than this (its start is not ours) may cost reads.
const LONG_OUTAGE: Duration = Duration::from_secs(5);

#[derive(Clone)]
pub(super) struct Member {
    pub(super) name: String,
    /// Whether it has `bump` with a token.
    pub(super) writes: bool,
    /// Whether its reads may go without an answer.
    pub(super) excused: bool,
}

/// What became of the calls.
#[derive(Default)]
pub(super) struct Tally {
    pub(super) reads: usize,
    /// Reads without an answer, by reason.
    pub(super) lost: BTreeMap<String, usize>,
    /// The same, where the server itself was away for long.
    pub(super) excused: BTreeMap<String, usize>,
    pub(super) acknowledged: BTreeSet<String>,
    /// Writes that may have run: nobody knows, or the error of the tool itself does not say so.
    pub(super) unknown: BTreeSet<String>,
    /// Writes known not to have run, by reason.
    pub(super) refused: BTreeMap<String, usize>,
    /// Where the status said something else than what was so.
    pub(super) wrong_statuses: Vec<String>,
}

/// When a server was away: its name, from, until.
type Outage = (String, Instant, Instant);

/// What calls and troubles share.
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

    /// Waits until the server answered another call: nobody is hit twice in one recovery.
    pub(super) async fn answers_again(&self, name: &str) {
        let count = |answers: &BTreeMap<String, usize>| answers.get(name).copied().unwrap_or(0);
        let mut answers = self.answers.subscribe();
        let before = count(&answers.borrow());
        // Two, because the first may have been under way before.
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
        // Where the machine does not keep up, the load does not pile up.
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

    /// Waits for the calls under way.
    pub(super) async fn end(self) -> Tally {
        self.calls.close();
        self.calls.wait().await;
        std::mem::take(&mut *self.log.tally.lock().unwrap())
    }
}

/// The proxy may put an error in place of the answer to a call that ran. With the id of the call it looks like
/// the tool's own, which says nothing about how far the tool came.
fn is_own_error(error: &CallError) -> bool {
    let failure = &error.failure;
    let answered = failure.class == FailureClass::Rpc && failure.http_status.is_none();
    answered && failure.certainty == Certainty::MaybeExecuted
}

/// One call; reads and writes take turns.
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
        // Nobody's tool here fails by itself: it is an answer for a lost session.
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

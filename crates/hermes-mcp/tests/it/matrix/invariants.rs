//! One combination, and its invariants.

use std::collections::{BTreeSet, HashMap};

use hermes_mcp::{BreakerState, FailureClass, ReportedState};
use hermes_testkit::mcp_server::combination::{Combination, Expected, Scope};

use super::stage::{KEEPALIVE, Outcome, Stage};
use super::time::with_virtual_time;

/// Calls of a rapid series through a load balancer, and how many of them must succeed.
const SERIES_CALLS: usize = 20;
const MIN_SUCCESSES: usize = 19;

/// Sessions that the server may hold in the end: the one in use, and one being retired.
const MAX_SESSIONS: usize = 2;

/// A violated rule, and what was observed.
pub(super) type Broken = (&'static str, String);

/// Runs it and returns the violations; there should be none.
pub(super) fn broken(how: &Combination) -> Vec<Broken> {
    with_virtual_time(|| async {
        match Stage::set(how.transport, how.seed).await {
            Ok(stage) if how.is_balanced() => balanced(how, &stage).await,
            Ok(stage) => lost(how, &stage).await,
            Err(why) => vec![("0 it connects", why)],
        }
    })
}

async fn lost(how: &Combination, stage: &Stage) -> Vec<Broken> {
    let sessions = stage.server.counts().sessions;
    let at = stage.now();
    stage.server.lose_sessions_in(how);
    stage.settle().await;
    if how.scope == Scope::Pings {
        // Until the next keepalive.
        stage.pass(KEEPALIVE * 2).await;
    }
    let first = stage.calls(how.callers).await;
    let second = stage.calls(how.callers).await;
    let third = stage.call().await;
    stage.settle().await;
    let mut broken = Vec::new();
    let expected = how.expected();
    let failed = |calls: &[Outcome]| {
        let failed = calls.iter().find(|call| !call.is_ok());
        failed.map(Outcome::describe)
    };
    if expected == Expected::FirstCall
        && let Some(details) = failed(&first)
    {
        broken.push(("1a a certain refusal costs no call", details));
    }
    if expected != Expected::Free {
        if let Some(details) = failed(&second).or_else(|| failed(std::slice::from_ref(&third))) {
            broken.push(("1b the second call succeeds", details));
        }
        let made = stage.server.counts().sessions - sessions;
        if made > 1 {
            broken.push(("4 one new session per loss", format!("{made} sessions")));
        }
        let status = stage.status();
        if status.state != ReportedState::Ready || status.breaker != BreakerState::Closed {
            let details = format!("{}, {}", status.state.name(), status.breaker.name());
            broken.push(("5a the status says ready", details));
        }
        if status.last_ok.is_none_or(|ok| ok < at) {
            broken.push((
                "5b the last success is newer",
                format!("{:?}", status.last_ok),
            ));
        }
    }
    let sessions = stage.server.live_sessions();
    if sessions > MAX_SESSIONS {
        broken.push((
            "5c no session is left behind",
            format!("{sessions} sessions"),
        ));
    }
    let all = first.into_iter().chain(second).chain([third]);
    broken.extend(effects(stage, &all.collect::<Vec<_>>()));
    broken.dedup_by_key(|(rule, _)| *rule);
    broken
}

async fn balanced(how: &Combination, stage: &Stage) -> Vec<Broken> {
    stage.server.lose_sessions_in(how);
    stage.settle().await;
    let mut calls = Vec::new();
    for _ in 0..SERIES_CALLS {
        calls.push(stage.call().await);
    }
    let succeeded = calls.iter().filter(|call| call.is_ok()).count();
    let mut broken = effects(stage, &calls);
    if how.is_plain_refusal() && succeeded < MIN_SUCCESSES {
        let failed = calls.iter().find(|call| !call.is_ok()).unwrap();
        let details = format!("{succeeded} of {SERIES_CALLS}; {}", failed.describe());
        broken.push((
            "1c nearly all of a series through a balancer succeed",
            details,
        ));
    }
    broken
}

/// Holds always: nothing is executed twice, and no error text is wrong.
pub(super) fn effects(stage: &Stage, calls: &[Outcome]) -> Vec<Broken> {
    let mut broken = Vec::new();
    let mut runs: HashMap<String, usize> = HashMap::new();
    for mark in stage.server.marks() {
        *runs.entry(mark).or_default() += 1;
    }
    let twice: BTreeSet<&String> = runs
        .iter()
        .filter(|(_, count)| **count > 1)
        .map(|(token, _)| token)
        .collect();
    if !twice.is_empty() {
        broken.push(("2 nothing is done twice", format!("{twice:?}")));
    }
    for call in calls {
        let ran = runs.contains_key(&call.token);
        match &call.result {
            None => broken.push(("6 no call hangs", call.describe())),
            Some(Ok(result)) if !ran && result["isError"] != true => {
                broken.push(("7 what is said to be done was done", call.describe()));
            }
            Some(Err(error)) => {
                // The tool's own error does not say how far it got.
                let own = error.class() == FailureClass::Rpc;
                if ran && !error.outcome_unknown && !own {
                    broken.push(("3 what ran is not said not to have run", call.describe()));
                }
            }
            Some(Ok(_)) => {}
        }
    }
    broken
}

//! The generator for stale sessions: thousands of ways to lose a session, against the production
//! manager over real sockets, under virtual time.
//!
//! A failing combination is printed as one line. To run only these again:
//! `HERMES_MATRIX='http/forgotten/all/404/empty/plain/none/1/7 …' cargo nextest run -p hermes-mcp
//! matrix::given`. `HERMES_MATRIX_COUNT=50000` draws that many instead of [`COUNT`] (the nightly
//! form, with the profile `nightly` of nextest, which has a longer timeout), `HERMES_MATRIX_SEED`
//! draws others, `HERMES_MATRIX_SHOWN` sets how many failing ones of each kind are shown.

mod certified;
mod chains;
mod changes;
mod cut;
mod habits;
mod handshakes;
mod healthy;
mod invariants;
mod neighbours;
mod noise;
mod questions;
mod stage;
mod time;
mod together;

use std::collections::BTreeMap;
use std::fmt::Write as _;

use hermes_testkit::mcp_server::combination::{Combination, Scenario, Transport};

use invariants::broken;

/// Combinations of a normal run, over all tests of this module.
const COUNT: usize = 3000;
const SEED: u64 = 20_261_116;
/// Number of failing combinations shown of each kind.
const MAX_SHOWN: usize = 4;

fn number(variable: &str, default: u64) -> u64 {
    std::env::var(variable).map_or(default, |text| text.parse().unwrap())
}

/// Draws the share of one part and runs it.
fn run(percent: usize, transport: Transport, scenario: Scenario) {
    let seed = number("HERMES_MATRIX_SEED", SEED);
    let count = number("HERMES_MATRIX_COUNT", COUNT as u64) as usize * percent / 100;
    let drawn = (0..count).map(|at| Combination::draw(seed, at, transport, scenario));
    check(drawn);
}

/// Runs them all and reports the failing ones by violated rule.
#[track_caller]
fn check(combinations: impl Iterator<Item = Combination>) {
    let mut kinds: BTreeMap<&str, Vec<(Combination, String)>> = BTreeMap::new();
    let (mut count, mut failed) = (0, 0);
    for combination in combinations {
        count += 1;
        let broken = broken(&combination);
        failed += usize::from(!broken.is_empty());
        for (rule, details) in broken {
            kinds.entry(rule).or_default().push((combination, details));
        }
    }
    let mut report = String::new();
    let shown = number("HERMES_MATRIX_SHOWN", MAX_SHOWN as u64) as usize;
    for (rule, cases) in &kinds {
        let _ = writeln!(report, "\n{rule}: broken in {}", cases.len());
        for (combination, details) in cases.iter().take(shown) {
            let _ = writeln!(report, "  {combination}\n      {details}");
        }
        let statuses: BTreeMap<u16, usize> =
            cases.iter().fold(BTreeMap::new(), |mut sum, (case, _)| {
                *sum.entry(case.shape.status / 100 * 100).or_default() += 1;
                sum
            });
        let _ = writeln!(report, "  by class of status: {statuses:?}");
    }
    assert!(
        kinds.is_empty(),
        "{failed} of {count} combinations fail; again with HERMES_MATRIX='<line> …' and the test \
         matrix::given\n{report}"
    );
}

/// The combinations named in the environment.
#[test]
fn given() {
    let Ok(text) = std::env::var("HERMES_MATRIX") else {
        return;
    };
    check(text.split_whitespace().map(|line| line.parse().unwrap()));
}

#[test]
fn http_sessions_forgotten() {
    run(30, Transport::Http, Scenario::Forgotten);
}

#[test]
fn http_servers_restarted() {
    run(10, Transport::Http, Scenario::Restarted);
}

#[test]
fn http_proxies_that_keep_the_connection() {
    run(6, Transport::Http, Scenario::ProxyKeeps);
}

#[test]
fn http_proxies_that_close_the_connection() {
    run(10, Transport::Http, Scenario::ProxyCloses);
}

#[test]
fn http_answers_replaced_after_the_call_ran() {
    run(8, Transport::Http, Scenario::Late);
}

#[test]
fn balancers_that_take_turns() {
    run(3, Transport::Http, Scenario::Alternating);
}

#[test]
fn balancers_that_choose_by_chance() {
    run(3, Transport::Http, Scenario::Random);
}

#[test]
fn sse_sessions_forgotten_under_a_silent_stream() {
    run(12, Transport::Sse, Scenario::Forgotten);
}

#[test]
fn sse_sessions_forgotten_with_their_stream() {
    run(6, Transport::SseEnds, Scenario::Forgotten);
}

#[test]
fn sse_servers_restarted() {
    run(4, Transport::Sse, Scenario::Restarted);
}

#[test]
fn sse_proxies_that_close_the_connection() {
    run(4, Transport::Sse, Scenario::ProxyCloses);
}

#[test]
fn sse_answers_lost_after_the_call_ran() {
    run(4, Transport::Sse, Scenario::Late);
}

/// 429 is drawn rarely among all statuses, and is treated differently from other refusals.
#[test]
fn sessions_forgotten_by_servers_that_answer_with_a_rate_limit() {
    let bodies = [
        "empty",
        "text:c",
        "json:c",
        "rpc:other:-32603:c",
        "rpc:right:-32000:c",
        "rpc:null:-32600:c",
    ];
    let lines = ["http", "sse"].into_iter().flat_map(|transport| {
        bodies.map(|body| format!("{transport}/forgotten/all/429/{body}/plain/none/1/5"))
    });
    check(lines.map(|line| line.parse().unwrap()));
}

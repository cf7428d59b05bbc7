//! A sample of the ways to lose a session (see the matrix of hermes-mcp) against the built binary:
//! one turn with three calls, and the session is lost before the second.

use std::sync::Arc;

use hermes_testkit::mcp_server::combination::{Combination, Expected, Scenario, Transport};
use hermes_testkit::mcp_server::{FaultyServer, Wire};
use hermes_testkit::model_server::Reply;
use serde_json::{Value, json};

use super::with_server;

const SEED: u64 = 16;
/// Seconds of a call: where nothing is answered, the test waits for it in real time.
const TIMEOUT: &str = "    timeout: 2\n";

/// Combinations of which something is asked.
fn sample(transport: Transport, scenario: Scenario, count: usize) -> Vec<Combination> {
    let drawn = (0..).map(|at| Combination::draw(SEED, at, transport, scenario));
    drawn
        .filter(|how| how.expected() != Expected::Free)
        // A tool that ran and reports an error of its own has said what became of the call.
        .filter(|how| scenario != Scenario::Late || !how.shape.is_like_a_tools_own_error())
        .take(count)
        .collect()
}

/// What the model read, and what really happened.
fn findings(how: &Combination) -> Vec<String> {
    let (wire, more) = match how.transport {
        Transport::Http => (Wire::Legacy, TIMEOUT.to_owned()),
        Transport::Sse | Transport::SseEnds => {
            (Wire::Sse, format!("{TIMEOUT}    transport: sse\n"))
        }
    };
    let server = Arc::new(FaultyServer::start_as(wire));
    let setup = with_server(&server, &more);
    let (losing, how_copy) = (Arc::clone(&server), *how);
    setup.server.answer_with(move |request| {
        let done = request.tool_results().len();
        if done == 1 {
            losing.lose_sessions_in(&how_copy);
            if how_copy.scenario == Scenario::Restarted {
                // Comes back when the old connections are closed, as after a real restart.
                losing.restart();
            }
        }
        if done == 3 {
            return Reply::text("done");
        }
        let token = json!({"token": format!("t{done}")});
        Reply::tool_call(&format!("c{done}"), "mcp__srv__bump", &token)
    });
    let run = setup.run(["-z", "count three times"]).ok();
    let mut found = Vec::new();
    if run.stdout != "done\n" {
        found.push(format!("printed {:?}", run.stdout));
    }
    let results = setup.server.last_request().tool_results();
    let marks = server.marks();
    for (at, result) in results.iter().enumerate() {
        let token = format!("t{at}");
        let runs = marks.iter().filter(|mark| **mark == token).count();
        let failed = result.text.parse::<usize>().is_err();
        let unknown = result.text.contains("may or may not have taken effect");
        let first = how.expected() == Expected::FirstCall;
        if failed && (at != 1 || first) {
            found.push(format!("call {at} failed: {}", result.text));
        }
        if runs > 1 {
            found.push(format!("call {at} ran {runs} times"));
        }
        if !failed && runs == 0 {
            found.push(format!("call {at} never ran: {}", result.text));
        }
        if failed && runs > 0 && !unknown {
            found.push(format!("call {at} ran, said is: {}", result.text));
        }
    }
    let status = setup.run(["mcp", "status", "--json"]).ok();
    let status: Value = serde_json::from_str(&status.stdout).unwrap_or_default();
    let text = status.to_string();
    if !text.contains(r#""state":"ready""#) {
        found.push(format!("the status says {text}"));
    }
    found
}

#[track_caller]
fn check(combinations: &[Combination]) {
    let mut report = Vec::new();
    for how in combinations {
        let found = findings(how);
        if !found.is_empty() {
            report.push(format!("{how}\n    {}", found.join("\n    ")));
        }
    }
    let (failed, all) = (report.len(), combinations.len());
    assert!(
        report.is_empty(),
        "{failed} of {all} fail\n{}",
        report.join("\n")
    );
}

#[test]
fn sessions_are_lost_over_http() {
    check(&sample(Transport::Http, Scenario::Forgotten, 14));
}

#[test]
fn servers_restart_and_proxies_answer_over_http() {
    let mut all = sample(Transport::Http, Scenario::Restarted, 6);
    all.extend(sample(Transport::Http, Scenario::ProxyCloses, 6));
    check(&all);
}

#[test]
fn answers_are_replaced_after_the_call_ran() {
    check(&sample(Transport::Http, Scenario::Late, 4));
}

#[test]
fn sessions_are_lost_over_http_and_sse() {
    let mut all = sample(Transport::Sse, Scenario::Forgotten, 6);
    all.extend(sample(Transport::SseEnds, Scenario::Forgotten, 2));
    all.extend(sample(Transport::Sse, Scenario::Restarted, 2));
    check(&all);
}

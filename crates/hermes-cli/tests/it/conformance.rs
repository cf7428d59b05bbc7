//! The official MCP conformance suites, through the production manager. What is known to fail is
//! listed with its reason in `ci/mcp/conformance-*.yml`; an entry that passes fails too.

use std::path::Path;

use hermes_testkit::home::TempHome;
use hermes_testkit::mcp_server::peers::{self, Peers};
use hermes_testkit::process::Program;

/// Runs the client part of a suite with us as the client; gives what it printed.
fn client(peers: &Peers, package: &str, args: &[&str]) -> String {
    let home = TempHome::new();
    let script = peers.module(package).join("dist/index.js");
    let results = home.path().join("results");
    let command = format!("{} __conformance", env!("CARGO_BIN_EXE_hermes"));
    let finished = Program::new(peers.node(), &home)
        .args([script.to_str().unwrap(), "client"])
        .args(["--command", &command])
        .args(["--output-dir", results.to_str().unwrap()])
        .args(args.iter().copied())
        .run()
        .ok();
    finished.stdout + &finished.stderr
}

fn suite(peers: &Peers, package: &str, baseline: &str, args: &[&str]) -> String {
    let workspace = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2);
    let baseline = workspace.unwrap().join("ci/mcp").join(baseline);
    let expected = ["--expected-failures", baseline.to_str().unwrap()];
    let told = client(peers, package, &[&expected, args].concat());
    assert!(told.contains("SUITE SUMMARY"), "{told}");
    told
}

/// The scenarios of the released suite: those with a login, and the others.
fn released(peers: &Peers) -> (Vec<String>, Vec<String>) {
    let script = peers.module("conformance").join("dist/index.js");
    let listed = Program::new(peers.node(), &TempHome::new())
        .args([script.to_str().unwrap(), "list", "--client"])
        .run()
        .ok();
    let lines = listed.stdout.lines();
    let names = lines.filter_map(|line| line.trim().strip_prefix("- "));
    names
        .filter_map(|line| line.split(' ').next().map(str::to_owned))
        .partition(|name| name.starts_with("auth/"))
}

#[test]
fn the_released_suite_passes_where_there_is_a_login() {
    let Some(peers) = peers::require("the_released_suite_passes_where_there_is_a_login") else {
        return;
    };
    let baseline = "conformance-0.1.16.yml";
    let parts = ["auth", "backcompat", "draft", "extensions"];
    let told: String = parts
        .map(|part| suite(&peers, "conformance", baseline, &["--suite", part]))
        .concat();
    let (with_login, _) = released(&peers);
    assert!(!with_login.is_empty());
    for scenario in with_login {
        let line = format!(" {scenario}: ");
        assert!(told.contains(&line), "{scenario}: {told}");
    }
}

/// The suite starts all its scenarios at once, and `sse-retry` wants a reconnection within a fifth
/// of a second. Here each has the machine to itself; nextest runs no other test beside this one.
#[test]
fn the_released_suite_passes_where_there_is_none() {
    let Some(peers) = peers::require("the_released_suite_passes_where_there_is_none") else {
        return;
    };
    let (_, others) = released(&peers);
    assert!(others.iter().any(|name| name == "sse-retry"), "{others:?}");
    for scenario in others {
        let told = client(&peers, "conformance", &["--scenario", &scenario]);
        assert!(told.contains("OVERALL: PASSED"), "{scenario}: {told}");
    }
}

#[test]
fn what_2025_11_25_requires_passes() {
    let Some(peers) = peers::require("what_2025_11_25_requires_passes") else {
        return;
    };
    let baseline = "conformance-2025-11-25.yml";
    let required = ["--requirements", "2025-11-25"];
    suite(&peers, "conformance-next", baseline, &required);
}

#[test]
fn what_2026_07_28_requires_passes() {
    let Some(peers) = peers::require("what_2026_07_28_requires_passes") else {
        return;
    };
    let baseline = "conformance-2026-07-28.yml";
    let required = ["--requirements", "2026-07-28"];
    suite(&peers, "conformance-next", baseline, &required);
}

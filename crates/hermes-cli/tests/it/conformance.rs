//! The official MCP conformance suites, through the production manager. What is known to fail is
//! listed with its reason in `ci/mcp/conformance-*.yml`; an entry that passes fails too.

use std::path::Path;

use hermes_testkit::home::TempHome;
use hermes_testkit::mcp_server::peers;
use hermes_testkit::process::Program;

fn suite(test: &str, package: &str, baseline: &str, args: &[&str]) {
    let Some(peers) = peers::require(test) else {
        return;
    };
    let home = TempHome::new();
    let workspace = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2);
    let baseline = workspace.unwrap().join("ci/mcp").join(baseline);
    let script = peers.module(package).join("dist/index.js");
    let results = home.path().join("results");
    let command = format!("{} __conformance", env!("CARGO_BIN_EXE_hermes"));
    let finished = Program::new(peers.node(), &home)
        .args([script.to_str().unwrap(), "client"])
        .args(["--command", &command])
        .args(["--expected-failures", baseline.to_str().unwrap()])
        .args(["--output-dir", results.to_str().unwrap()])
        .args(args.iter().copied())
        .run()
        .ok();
    assert!(
        finished.stdout.contains("SUITE SUMMARY"),
        "{}",
        finished.stdout
    );
}

#[test]
fn the_released_suite_passes() {
    suite(
        "the_released_suite_passes",
        "conformance",
        "conformance-0.1.16.yml",
        &["--suite", "all"],
    );
}

#[test]
fn what_2025_11_25_requires_passes() {
    suite(
        "what_2025_11_25_requires_passes",
        "conformance-next",
        "conformance-2025-11-25.yml",
        &["--requirements", "2025-11-25"],
    );
}

#[test]
fn what_2026_07_28_requires_passes() {
    suite(
        "what_2026_07_28_requires_passes",
        "conformance-next",
        "conformance-2026-07-28.yml",
        &["--requirements", "2026-07-28"],
    );
}

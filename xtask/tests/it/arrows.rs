//! Which crate may depend on which. Dependencies of tests are free.

use std::collections::{BTreeMap, BTreeSet};
use std::process::Command;

use serde_json::Value;

use crate::workspace;

/// The whole map: a new crate is added here with its arrows, or the test fails.
const ARROWS: &[(&str, &[&str])] = &[
    ("hermes-core", &[]),
    ("hermes-config", &["hermes-core"]),
    ("hermes-http", &["hermes-core"]),
    ("hermes-store", &["hermes-core", "hermes-config"]),
    (
        "hermes-models",
        &["hermes-core", "hermes-config", "hermes-http"],
    ),
    (
        "hermes-mcp",
        &["hermes-core", "hermes-config", "hermes-http"],
    ),
    ("hermes-exec", &["hermes-core", "hermes-config"]),
    ("hermes-policy", &["hermes-core", "hermes-config"]),
    ("hermes-fetch", &["hermes-core", "hermes-config"]),
    (
        "hermes-tools",
        &[
            "hermes-core",
            "hermes-config",
            "hermes-store",
            "hermes-exec",
            "hermes-policy",
            "hermes-fetch",
        ],
    ),
    ("hermes-agent", &["hermes-core", "hermes-config"]),
    (
        "hermes-app",
        &[
            "hermes-core",
            "hermes-config",
            "hermes-http",
            "hermes-store",
            "hermes-models",
            "hermes-mcp",
            "hermes-agent",
            "hermes-exec",
            "hermes-policy",
            "hermes-tools",
        ],
    ),
    (
        "hermes-platforms",
        &[
            "hermes-core",
            "hermes-config",
            "hermes-http",
            "hermes-store",
        ],
    ),
    (
        "hermes-gateway",
        &[
            "hermes-core",
            "hermes-config",
            "hermes-store",
            "hermes-agent",
            "hermes-app",
            "hermes-platforms",
        ],
    ),
    (
        "hermes-api",
        &[
            "hermes-core",
            "hermes-config",
            "hermes-store",
            "hermes-app",
            "hermes-gateway",
            "hermes-platforms",
        ],
    ),
    ("hermes-tui", &["hermes-core", "hermes-config"]),
    (
        "hermes-acp",
        &["hermes-core", "hermes-config", "hermes-agent", "hermes-app"],
    ),
    // A program of its own; the binary `hermes` must not carry it.
    ("hermes-local", &["hermes-core"]),
    // Empty but for the builds of `cargo xtask fuzz`.
    (
        "hermes-fuzz",
        &[
            "hermes-agent",
            "hermes-config",
            "hermes-http",
            "hermes-mcp",
            "hermes-policy",
            "hermes-store",
            "hermes-tui",
        ],
    ),
    ("hermes-testkit", &["hermes-core", "hermes-config"]),
    ("xtask", &[]),
    ("bare-client", &[]),
];

/// The composition root may use everything but these: what is for tests, and the program beside it.
const ROOT: &str = "hermes-cli";
const NOT_LINKED: [&str; 3] = ["hermes-testkit", "hermes-fuzz", "hermes-local"];

pub(crate) fn packages() -> Vec<Value> {
    let output = Command::new(env!("CARGO"))
        .args([
            "metadata",
            "--no-deps",
            "--format-version",
            "1",
            "--offline",
        ])
        .current_dir(workspace())
        .output()
        .unwrap();
    assert!(
        output.status.success(),
        "cargo metadata: {}",
        String::from_utf8_lossy(&output.stderr)
    );
    let metadata: Value = serde_json::from_slice(&output.stdout).unwrap();
    metadata["packages"].as_array().unwrap().clone()
}

#[test]
fn crates_depend_only_in_the_direction_of_the_design() {
    let packages = packages();
    let members: BTreeSet<&str> = packages
        .iter()
        .map(|package| package["name"].as_str().unwrap())
        .collect();
    let arrows: BTreeMap<&str, &[&str]> = ARROWS.iter().copied().collect();
    let mut wrong = Vec::new();
    for package in &packages {
        let name = package["name"].as_str().unwrap();
        let used = package["dependencies"]
            .as_array()
            .unwrap()
            .iter()
            .filter(|dependency| dependency["kind"] != "dev")
            .map(|dependency| dependency["name"].as_str().unwrap())
            .filter(|dependency| members.contains(dependency));
        for dependency in used {
            let fine = match arrows.get(name) {
                Some(allowed) => allowed.contains(&dependency),
                None if name == ROOT => !NOT_LINKED.contains(&dependency),
                None => panic!("{name} is not in the map of crates: add it with its arrows"),
            };
            if !fine {
                wrong.push(format!("{name} -> {dependency}"));
            }
        }
    }
    assert!(wrong.is_empty(), "forbidden arrows: {wrong:?}");
}

#[test]
fn every_crate_takes_the_workspace_lints_and_no_features() {
    for package in packages() {
        let name = package["name"].as_str().unwrap();
        let manifest = std::fs::read_to_string(package["manifest_path"].as_str().unwrap()).unwrap();
        assert!(
            manifest.contains("[lints]\nworkspace = true"),
            "{name} does not take the workspace's lints"
        );
        let features: Vec<&String> = package["features"].as_object().unwrap().keys().collect();
        assert!(
            features.iter().all(|feature| *feature == "test-support"),
            "{name} has features {features:?}; what is optional is run-time configuration"
        );
    }
}

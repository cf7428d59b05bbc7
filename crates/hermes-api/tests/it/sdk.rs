//! OpenAI's own SDKs against the server.

use std::path::PathBuf;
use std::process::Stdio;

use hermes_testkit::oracle;
use tokio::process::Command;

use super::harness::{ApiHarness, KEY, sdk};

fn installed(path: &str, test: &str) -> Option<PathBuf> {
    let found = PathBuf::from(env!("CARGO_MANIFEST_DIR"))
        .join("../../target")
        .join(path);
    if found.exists() {
        return Some(found);
    }
    oracle::skip("OpenAI's SDKs", test);
    None
}

async fn run(mut command: Command) {
    let world = ApiHarness::new().await;
    let output = command
        .args([&format!("{}/v1", world.url), KEY])
        .stdin(Stdio::null())
        .kill_on_drop(true)
        .output()
        .await
        .unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    assert!(
        output.status.success(),
        "{}\n{}",
        text(&output.stdout),
        text(&output.stderr)
    );
    assert!(text(&output.stdout).ends_with("all is well\n"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn python() {
    let Some(python) = installed("openai-sdk/bin/python", "python") else {
        return;
    };
    let mut command = Command::new(python);
    command.arg(sdk("talk.py"));
    run(command).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn node() {
    let Some(modules) = installed("openai-node/node_modules", "node") else {
        return;
    };
    let mut command = Command::new("node");
    // Modules are found from where the script lies; this names them from elsewhere.
    command.arg(sdk("talk.mjs")).env("OPENAI_NODE", modules);
    run(command).await;
}

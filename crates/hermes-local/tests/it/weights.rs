//! The real program with real weights.

use std::io::{BufRead as _, BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use serde_json::Value;
use tempfile::TempDir;

use crate::http::Client;

fn target() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target")
}

/// The weights that `cargo xtask setup` fetches; without them the test is on record as skipped,
/// and fails under `CI=true`.
pub(crate) fn require(test: &str) -> Option<PathBuf> {
    let file = target().join("local/SmolLM2-135M-Instruct.Q4_1.gguf");
    if file.exists() {
        return Some(file);
    }
    skip("weights", test);
    None
}

/// Python with OpenAI's client.
pub(crate) fn python(test: &str) -> Option<PathBuf> {
    let python = target().join("openai-sdk/bin/python");
    if python.exists() {
        return Some(python);
    }
    skip("OpenAI's SDKs", test);
    None
}

fn skip(why: &str, test: &str) {
    let line = format!("SKIPPED({why}): {test}");
    assert!(
        std::env::var("CI").as_deref() != Ok("true"),
        "{line}: nothing may be skipped in CI"
    );
    eprintln!("{line}");
    if let Some(path) = std::env::var_os("HERMES_SKIP_LOG") {
        let log = std::fs::OpenOptions::new()
            .create(true)
            .append(true)
            .open(path);
        log.unwrap()
            .write_all(format!("{line}\n").as_bytes())
            .unwrap();
    }
}

pub(crate) fn program() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_hermes-local"));
    command.stdin(Stdio::null());
    command
}

/// A server with the real model.
pub(crate) struct Server {
    pub(crate) client: Client,
    pub(crate) run: PathBuf,
    pub(crate) child: Child,
    _directory: TempDir,
}

impl Server {
    pub(crate) fn start(model: &Path, more: &[&str]) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let run = directory.path().join("local.json");
        let mut child = Self::command(model, &run, more)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut said = String::new();
        let out = child.stdout.take().unwrap();
        BufReader::new(out).read_line(&mut said).unwrap();
        assert_eq!(said, "ready\n");
        let told: Value = serde_json::from_slice(&std::fs::read(&run).unwrap()).unwrap();
        assert_eq!(told["pid"], child.id());
        let client = Client {
            port: told["port"].as_u64().unwrap() as u16,
            token: told["token"].as_str().unwrap().to_owned(),
            host: None,
        };
        Self {
            client,
            run,
            child,
            _directory: directory,
        }
    }

    pub(crate) fn command(model: &Path, run: &Path, more: &[&str]) -> Command {
        let mut command = program();
        command.arg("serve").arg("--model").arg(model);
        command.arg("--run").arg(run);
        command.arg("--cache").arg(target().join("local/cache"));
        command.args(more).stderr(Stdio::null());
        command
    }

    pub(crate) fn ended(&mut self) -> bool {
        self.child.try_wait().unwrap().is_some()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

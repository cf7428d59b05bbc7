//! The built-in model, with real weights in a real second process.

mod fetching;
mod living;

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use hermes_testkit::home::TempHome;
use hermes_testkit::oracle::skip;
use hermes_testkit::process::Program;
use hermes_testkit::terminal::TerminalBuilder;
use serde_json::Value;

use crate::hermes;

pub(crate) const FILE: &str = "SmolLM2-135M-Instruct.Q4_1.gguf";
/// What a loaded machine may need for an answer.
const PATIENCE: Duration = Duration::from_mins(4);

fn store() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../target/local")
        .canonicalize()
        .unwrap_or_default()
}

/// The real weights, or a skip on record.
fn weights(test: &str) -> Option<PathBuf> {
    let file = store().join(FILE);
    if !file.is_file() {
        skip("weights", test);
        return None;
    }
    second_program();
    Some(file)
}

/// The second program lies beside the first. A run of this package alone does not build it.
pub(crate) fn second_program() {
    let beside = Path::new(env!("CARGO_BIN_EXE_hermes")).with_file_name("hermes-local");
    if beside.is_file() {
        return;
    }
    let target = beside.parent().and_then(Path::parent).unwrap();
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let built = Command::new(cargo)
        .args(["build", "-p", "hermes-local", "--target-dir"])
        .arg(target)
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .status();
    assert!(built.is_ok_and(|status| status.success()) && beside.is_file());
}

/// A home whose servers end with it.
pub(crate) struct LocalHarness {
    pub(crate) home: TempHome,
}

impl LocalHarness {
    /// With nothing in it.
    fn empty() -> Self {
        Self {
            home: TempHome::new(),
        }
    }

    /// With the weights, which all such homes share with what is made of them.
    fn furnished() -> Self {
        let place = Self::empty();
        std::fs::create_dir_all(place.home.join("cache")).unwrap();
        std::os::unix::fs::symlink(store(), place.home.join("cache/local")).unwrap();
        place
    }

    fn configured(more: &str) -> Self {
        let place = Self::furnished();
        place.home.config(&format!(
            "model:\n  provider: local\n  default: smollm2-135m\n{more}"
        ));
        place
    }

    fn program<'a>(&self, args: impl IntoIterator<Item = &'a str>) -> Program {
        hermes(&self.home)
            .args(args)
            // Nothing is fetched by accident.
            .env("HF_ENDPOINT", "http://127.0.0.1:9")
    }

    fn at_terminal<'a>(&self, args: impl IntoIterator<Item = &'a str>) -> TerminalBuilder {
        TerminalBuilder::new(env!("CARGO_BIN_EXE_hermes"), &self.home)
            .args(args)
            .env("OLLAMA_HOST", "127.0.0.1:9")
            .env("HF_ENDPOINT", "http://127.0.0.1:9")
            .size(110, 40)
    }

    /// What the servers wrote down.
    fn servers(&self) -> Vec<Value> {
        let files = std::fs::read_dir(self.home.join("run"))
            .into_iter()
            .flatten();
        files
            .filter_map(Result::ok)
            .map(|file| file.path())
            .filter(|path| path.extension().is_some_and(|ending| ending == "json"))
            .filter_map(|path| serde_json::from_slice(&std::fs::read(path).ok()?).ok())
            .collect()
    }

    /// The pid of the only server.
    #[track_caller]
    fn server(&self) -> i32 {
        let all = self.servers();
        assert_eq!(all.len(), 1, "{all:?}");
        i32::try_from(all[0]["pid"].as_i64().unwrap()).unwrap()
    }
}

impl Drop for LocalHarness {
    fn drop(&mut self) {
        for server in self.servers() {
            if let Some(pid) = server["pid"]
                .as_i64()
                .and_then(|pid| i32::try_from(pid).ok())
            {
                signal(pid, rustix::process::Signal::TERM);
                until("the server is gone", || !lives(pid));
            }
        }
    }
}

fn signal(pid: i32, signal: rustix::process::Signal) {
    let pid = rustix::process::Pid::from_raw(pid).unwrap();
    // Gone already is what was wanted.
    let _ = rustix::process::kill_process(pid, signal);
}

/// Whether the process is there and not a zombie.
fn lives(pid: i32) -> bool {
    std::fs::read_to_string(format!("/proc/{pid}/stat")).is_ok_and(|stat| {
        !stat
            .rsplit(')')
            .next()
            .unwrap_or_default()
            .starts_with(" Z")
    })
}

#[track_caller]
fn until(what: &str, done: impl Fn() -> bool) {
    let end = Instant::now() + PATIENCE;
    while !done() {
        assert!(Instant::now() < end, "{what}: not yet");
        std::thread::sleep(Duration::from_millis(20));
    }
}

//! The pinned Python original, to compare with.
//!
//! `cargo xtask setup` installs it. A test that needs it starts with
//! `let Some(oracle) = oracle::require("name of the test") else { return };`: where the original
//! is missing the test is reported as skipped by name, and under `CI=true` it fails.

use std::fs::OpenOptions;
use std::io::Write;
use std::path::{Path, PathBuf};

use crate::home::TempHome;
use crate::process::{FinishedProgram, Program};

/// The release our formats are checked against.
pub const VERSION: &str = "0.19.0";

/// Names the interpreter of the environment the original is installed in.
pub const PYTHON_VAR: &str = "HERMES_ORACLE_PYTHON";

/// Names the file that collects skipped tests (set by `cargo xtask test`).
pub const SKIP_LOG_VAR: &str = "HERMES_SKIP_LOG";

#[derive(Clone, Debug)]
pub struct Oracle {
    python: PathBuf,
}

/// The original, or a skip on record. Panics when it is missing under `CI=true`.
pub fn require(test: &str) -> Option<Oracle> {
    let found = find();
    if found.is_none() {
        skip("oracle", test);
    }
    found
}

/// The original ended by SIGSEGV: it changes its environment while other threads read it, which the C
/// library does not survive at times.
struct OriginalCrashed;

const SIGSEGV: i32 = 11;
/// How often a scenario may begin.
const BEGINNINGS: usize = 3;

/// Runs a scenario in which the original chats. It begins again, in a home of its own, when the original
/// crashed; every other failure is the test's.
pub fn scenario(test: &str, run: impl Fn(&Oracle)) {
    let Some(oracle) = require(test) else {
        return;
    };
    for beginning in 1.. {
        let ran = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| run(&oracle)));
        match ran {
            Ok(()) => return,
            Err(why) if why.is::<OriginalCrashed>() && beginning < BEGINNINGS => {}
            Err(why) => std::panic::resume_unwind(why),
        }
    }
}

/// Puts a skipped test on record: `SKIPPED(<why>): <test>`. Panics under `CI=true`.
#[expect(
    clippy::print_stderr,
    reason = "a skipped test says so where the person looks"
)]
pub fn skip(why: &str, test: &str) {
    let line = format!("SKIPPED({why}): {test}");
    assert!(
        std::env::var("CI").as_deref() != Ok("true"),
        "{line}: nothing may be skipped in CI"
    );
    eprintln!("{line}");
    if let Some(path) = std::env::var_os(SKIP_LOG_VAR) {
        let mut log = OpenOptions::new()
            .create(true)
            .append(true)
            .open(&path)
            .unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        // One write, so that lines of parallel tests do not mix.
        log.write_all(format!("{line}\n").as_bytes())
            .unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    }
}

/// A directory with ripgrep, which the original searches with where it finds it.
pub fn search_path() -> PathBuf {
    let workspace = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2);
    let dir = workspace.unwrap_or(Path::new(".")).join("target/exec/bin");
    assert!(
        dir.join("rg").exists() || std::env::var("CI").as_deref() != Ok("true"),
        "ripgrep is missing: cargo xtask setup unpacks it"
    );
    dir
}

/// Where the toolchains of this machine are.
fn rustup_home() -> Option<PathBuf> {
    let named = std::env::var_os("RUSTUP_HOME").map(PathBuf::from);
    let usual = std::env::var_os("HOME").map(|home| Path::new(&home).join(".rustup"));
    named.or(usual).filter(|dir| dir.is_dir())
}

fn find() -> Option<Oracle> {
    if let Some(python) = std::env::var_os(PYTHON_VAR) {
        let python = PathBuf::from(python);
        assert!(
            python.exists(),
            "{PYTHON_VAR} names {}, which does not exist",
            python.display()
        );
        return Some(Oracle { python });
    }
    let workspace = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2)?;
    let python = workspace.join("target/oracle/bin/python");
    let command = workspace.join("target/oracle/bin/hermes");
    (python.exists() && command.exists()).then_some(Oracle { python })
}

impl Oracle {
    pub fn python(&self) -> &Path {
        &self.python
    }

    /// The original's command.
    pub fn command(&self) -> PathBuf {
        self.python.with_file_name("hermes")
    }

    /// Its interpreter in this home.
    pub fn interpreter(&self, home: &TempHome) -> Program {
        let program = Program::new(&self.python, home)
            .env("PYTHONDONTWRITEBYTECODE", "1")
            .env("PYTHONUNBUFFERED", "1");
        match rustup_home() {
            // It looks at Rust files with rustfmt; in a home of its own, rustup would first fetch a
            // whole toolchain into it.
            Some(dir) => program.env("RUSTUP_HOME", dir),
            None => program,
        }
    }

    /// Its command in this home.
    pub fn hermes<'a>(
        &self,
        home: &TempHome,
        args: impl IntoIterator<Item = &'a str>,
    ) -> FinishedProgram {
        let done = Program::new(self.command(), home)
            .env("PYTHONDONTWRITEBYTECODE", "1")
            .args(args)
            .run();
        if done.signal == Some(SIGSEGV) {
            std::panic::panic_any(OriginalCrashed);
        }
        done
    }

    /// Runs a Python program in this home; `args` are its `sys.argv[1:]`.
    pub fn run<'a>(
        &self,
        home: &TempHome,
        program: &str,
        args: impl IntoIterator<Item = &'a str>,
    ) -> FinishedProgram {
        self.interpreter(home)
            .args(["-c", program])
            .args(args)
            .run()
    }

    /// The same for a program that must succeed and prints JSON.
    #[track_caller]
    pub fn json<'a>(
        &self,
        home: &TempHome,
        program: &str,
        args: impl IntoIterator<Item = &'a str>,
    ) -> serde_json::Value {
        self.run(home, program, args).ok().json()
    }
}

//! Running programs in a clean environment.

use std::ffi::OsStr;
use std::io::Write;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use crate::home::TempHome;

/// What a finished program left.
#[derive(Clone, Debug)]
pub struct FinishedProgram {
    /// `None`: ended by a signal.
    pub code: Option<i32>,
    pub signal: Option<i32>,
    pub stdout: String,
    pub stderr: String,
}

impl FinishedProgram {
    /// Fails the test with both streams unless the program succeeded.
    #[track_caller]
    #[must_use]
    pub fn ok(self) -> Self {
        assert_eq!(
            self.code,
            Some(0),
            "the program failed\n--- stdout\n{}\n--- stderr\n{}",
            self.stdout,
            self.stderr
        );
        self
    }

    /// Standard output as JSON.
    #[track_caller]
    pub fn json(&self) -> serde_json::Value {
        serde_json::from_str(&self.stdout)
            .unwrap_or_else(|error| panic!("{error} in standard output:\n{}", self.stdout))
    }
}

/// A program that runs in a [`TempHome`] and sees nothing of the caller's environment.
///
/// In a test of the crate that builds it: `Program::new(env!("CARGO_BIN_EXE_hermes"), &home)`.
#[derive(Debug)]
pub struct Program {
    command: Command,
    stdin: Option<Vec<u8>>,
}

impl Program {
    pub fn new(program: impl AsRef<OsStr>, home: &TempHome) -> Self {
        let mut command = Command::new(program);
        command
            .env_clear()
            .envs(home.vars())
            .current_dir(home.work())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        Self {
            command,
            stdin: None,
        }
    }

    #[must_use]
    pub fn args<S: AsRef<OsStr>>(mut self, args: impl IntoIterator<Item = S>) -> Self {
        self.command.args(args);
        self
    }

    #[must_use]
    pub fn env(mut self, name: &str, value: impl AsRef<OsStr>) -> Self {
        self.command.env(name, value);
        self
    }

    #[must_use]
    pub fn cwd(mut self, directory: impl AsRef<Path>) -> Self {
        self.command.current_dir(directory);
        self
    }

    #[must_use]
    pub fn stdin(mut self, bytes: impl Into<Vec<u8>>) -> Self {
        self.stdin = Some(bytes.into());
        self
    }

    /// Starts it without waiting.
    pub fn spawn(mut self) -> Child {
        let input = self.stdin.take();
        self.command.stdin(match input {
            Some(_) => Stdio::piped(),
            None => Stdio::null(),
        });
        let mut child = self
            .command
            .spawn()
            .unwrap_or_else(|error| panic!("{}: {error}", self.command.get_program().display()));
        if let (Some(bytes), Some(mut pipe)) = (input, child.stdin.take()) {
            // From a thread, so that a program that writes before it reads cannot deadlock. One
            // that does not read at all closes the pipe, which is its right.
            std::thread::spawn(move || drop(pipe.write_all(&bytes)));
        }
        child
    }

    /// Runs it to its end.
    pub fn run(self) -> FinishedProgram {
        finish(self.spawn())
    }
}

/// Waits for a child and takes what it wrote.
pub fn finish(child: Child) -> FinishedProgram {
    let output = child.wait_with_output().expect("the program's output");
    FinishedProgram {
        code: output.status.code(),
        signal: std::os::unix::process::ExitStatusExt::signal(&output.status),
        stdout: String::from_utf8_lossy(&output.stdout).into_owned(),
        stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
    }
}

//! Attacks from the top: a model that was talked into it, against the built binary, with nobody there.

mod authority;
mod commands;
mod defects;
mod files;
mod secrets;
mod web;

use hermes_testkit::directories::beyond_temporary;
use std::path::{Path, PathBuf};

use hermes_testkit::model_server::{RecordedRequest, Reply};
use serde_json::{Value, json};

use crate::CliHarness;

/// The results of a request's calls, oldest first; JSON where they are.
fn results(request: &RecordedRequest) -> Vec<Value> {
    let results = request.tool_results();
    results
        .into_iter()
        .map(|result| {
            let text = result.text.strip_prefix("Error: ").unwrap_or(&result.text);
            serde_json::from_str(text).unwrap_or_else(|_| Value::String(text.to_owned()))
        })
        .collect()
}

/// One turn in which the model makes these calls, one after the other; what it read of each.
fn turn(setup: &CliHarness, flags: &[&str], calls: &[(&str, Value)]) -> Vec<Value> {
    for (at, (name, arguments)) in calls.iter().enumerate() {
        let reply = Reply::tool_call(&format!("c{at}"), name, arguments);
        setup.server.push(reply);
    }
    setup.server.push(Reply::text("done"));
    let args = flags.iter().copied().chain(["-z", "go"]);
    let program = setup.program(args).cwd(setup.home.work());
    let _ = program.run().ok();
    let seen = results(&setup.server.last_request());
    assert_eq!(seen.len(), calls.len(), "{seen:?}");
    seen
}

/// The same for shell commands.
fn commands(setup: &CliHarness, flags: &[&str], scripts: &[&str]) -> Vec<Value> {
    let calls: Vec<(&str, Value)> = scripts
        .iter()
        .map(|script| ("terminal", json!({"command": script})))
        .collect();
    turn(setup, flags, &calls)
}

/// A directory that no rule allows writing to: not the workspace, not a temporary one.
struct OutsideDir {
    dir: tempfile::TempDir,
}

impl OutsideDir {
    fn new() -> Self {
        let dir = beyond_temporary(env!("CARGO_TARGET_TMPDIR"));
        std::fs::write(dir.path().join("victim.txt"), "precious\n").unwrap();
        Self { dir }
    }

    fn path(&self) -> &Path {
        self.dir.path()
    }

    fn join(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// How to get here from `work` without an absolute path.
    fn relative_from(&self, work: &Path) -> String {
        let up = "../".repeat(work.components().count() + 2);
        let down = self.dir.path().strip_prefix("/").unwrap();
        format!("{up}{}", down.display())
    }

    /// Ends the test unless everything is as it was.
    #[track_caller]
    fn assert_untouched(&self, what: &dyn std::fmt::Debug) {
        let names: Vec<_> = std::fs::read_dir(self.path())
            .unwrap()
            .map(|entry| entry.unwrap().file_name())
            .collect();
        assert_eq!(names, ["victim.txt"], "{what:?}");
        let text = std::fs::read_to_string(self.join("victim.txt")).unwrap();
        assert_eq!(text, "precious\n", "{what:?}");
    }
}

//! What the tests run in.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use hermes_exec::local::{LocalEnvironment, LocalSettings, LoginScripts, VariablePolicy};
use hermes_exec::output::OutputCollector;
use hermes_exec::sandbox::{ResourceLimits, Sandbox, SandboxChoice, SandboxSettings};
use hermes_exec::{Environment, Exec, ExecOutcome, Variables};

pub(crate) fn variables(home: &Path) -> Variables {
    Variables::from([
        ("PATH".to_owned(), "/usr/local/bin:/usr/bin:/bin".to_owned()),
        ("HOME".to_owned(), home.display().to_string()),
        ("LC_ALL".to_owned(), "C.UTF-8".to_owned()),
    ])
}

/// A sandbox that only starts sessions, by the helper that cargo built for these tests.
pub(crate) fn unconfined() -> Arc<Sandbox> {
    Arc::new(Sandbox::detect(SandboxSettings {
        choice: SandboxChoice::Off,
        unknown: None,
        network: true,
        writable: Vec::new(),
        unreadable: Vec::new(),
        readable: Vec::new(),
        sockets: Vec::new(),
        limits: ResourceLimits::default(),
        homes: Vec::new(),
        user_home: None,
        own_commands: Vec::new(),
        helper: Some(env!("CARGO_BIN_EXE_confine").into()),
    }))
}

pub(crate) fn settings(dir: &Path) -> LocalSettings {
    LocalSettings {
        bash: "/bin/bash".into(),
        variables: VariablePolicy::fixed(variables(dir)),
        login: LoginScripts::default(),
        grace: Duration::from_millis(500),
        processes: dir.join("processes"),
        own: dir.join("own"),
    }
}

pub(crate) fn local(dir: &Path) -> LocalEnvironment {
    LocalEnvironment::new(settings(dir), unconfined()).unwrap()
}

/// Runs it and gives its output as a reader sees it.
pub(crate) async fn run(env: &dyn Environment, command: Exec) -> (ExecOutcome, String) {
    let mut collector = OutputCollector::new(50_000);
    let finished = env.exec(command, &mut collector).await.unwrap();
    (finished, collector.finish().text())
}

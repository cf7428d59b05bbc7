//! This machine, confined: the same contract inside Landlock and inside bubblewrap.

use hermes_testkit::directories::beyond_temporary;
use std::ffi::OsStr;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use hermes_core::BoxFuture;
use hermes_exec::local::LocalEnvironment;
use hermes_exec::sandbox::{ResourceLimits, Sandbox, SandboxChoice, SandboxSettings};
use hermes_exec::{
    Background, BackgroundRecord, BackgroundStart, Confine, Confinement, Environment,
    EnvironmentInfo, Exec, ExecError, ExecOutcome, Files, OutputSink, ProcessExit,
};
use hermes_testkit::oracle::skip;

use crate::support;

/// Puts every command into limits.
struct Confined {
    inner: LocalEnvironment,
    limits: Confinement,
}

impl Environment for Confined {
    fn info(&self) -> EnvironmentInfo {
        self.inner.info()
    }

    fn exec<'a>(
        &'a self,
        command: Exec,
        sink: &'a mut dyn OutputSink,
    ) -> BoxFuture<'a, Result<ExecOutcome, ExecError>> {
        let command = Exec {
            confinement: self.limits.clone(),
            ..command
        };
        self.inner.exec(command, sink)
    }

    fn spawn(
        &self,
        command: BackgroundStart,
    ) -> BoxFuture<'_, Result<Box<dyn Background>, ExecError>> {
        self.inner.spawn(BackgroundStart {
            confinement: self.limits.clone(),
            ..command
        })
    }

    fn adopt(
        &self,
        record: BackgroundRecord,
    ) -> BoxFuture<'_, Result<Option<Box<dyn Background>>, ExecError>> {
        self.inner.adopt(record)
    }

    fn files(&self) -> &dyn Files {
        self.inner.files()
    }

    fn suspend(&self) -> BoxFuture<'_, Result<(), ExecError>> {
        self.inner.suspend()
    }

    fn close(&self) -> BoxFuture<'_, Result<(), ExecError>> {
        self.inner.close()
    }
}

pub(crate) struct Place {
    env: Confined,
    pub(crate) sandbox: Arc<Sandbox>,
    dir: tempfile::TempDir,
}

impl Place {
    fn env(&self) -> &dyn Environment {
        &self.env
    }

    pub(crate) fn dir(&self) -> PathBuf {
        self.dir.path().canonicalize().unwrap().join("work")
    }

    async fn leave(self) {
        self.env.close().await.unwrap();
    }
}

/// Not below /tmp, which is writable: what is outside must be outside.
pub(crate) fn outside() -> tempfile::TempDir {
    beyond_temporary(env!("CARGO_TARGET_TMPDIR"))
}

pub(crate) fn settings(choice: SandboxChoice, dir: &Path) -> SandboxSettings {
    SandboxSettings {
        choice,
        unknown: None,
        network: true,
        writable: Vec::new(),
        unreadable: Vec::new(),
        readable: Vec::new(),
        sockets: Vec::new(),
        limits: ResourceLimits::default(),
        homes: vec![dir.join("home/.hermes")],
        user_home: Some(dir.join("home")),
        own_commands: Vec::new(),
        helper: Some(env!("CARGO_BIN_EXE_confine").into()),
    }
}

fn made(choice: SandboxChoice, path: &OsStr) -> Place {
    let dir = outside();
    let dir_path = dir.path().canonicalize().unwrap();
    std::fs::create_dir_all(dir_path.join("home/.hermes")).unwrap();
    std::fs::create_dir(dir_path.join("work")).unwrap();
    let sandbox = Arc::new(Sandbox::detect_on(settings(choice, &dir_path), path));
    let inner = LocalEnvironment::new(support::settings(&dir_path), sandbox.clone()).unwrap();
    let limits = sandbox.confinement(&dir_path.join("work"));
    Place {
        env: Confined { inner, limits },
        sandbox,
        dir,
    }
}

pub(crate) fn landlock(test: &str) -> Option<Place> {
    let place = made(SandboxChoice::Landlock, OsStr::new(""));
    if place.sandbox.enforces() {
        return Some(place);
    }
    skip(&place.sandbox.posture(), test);
    None
}

/// In the bubblewrap that was unpacked for tests.
pub(crate) fn bubblewrap(test: &str) -> Option<Place> {
    let root = super::rig::unpacked(test)?;
    let place = made(SandboxChoice::Bubblewrap, root.join("usr/bin").as_os_str());
    if place.sandbox.enforces() {
        return Some(place);
    }
    skip(&place.sandbox.posture(), test);
    None
}

/// A file that is covered may be removed by anybody while the view is set up.
#[tokio::test]
async fn bubblewrap_copes_with_secrets_that_vanish() {
    let test = "bubblewrap_copes_with_secrets_that_vanish";
    let Some(root) = super::rig::unpacked(test) else {
        return;
    };
    let dir = outside();
    let path = dir.path().canonicalize().unwrap();
    let secret = path.join("home/.netrc");
    for name in ["home/.hermes", "home/.aws", "work", "bin"] {
        std::fs::create_dir_all(path.join(name)).unwrap();
    }
    for name in ["home/.netrc", "home/.aws/credentials", "home/.pgpass"] {
        std::fs::write(path.join(name), "secret\n").unwrap();
    }
    let real = root.join("usr/bin/bwrap");
    let script = format!(
        "#!/bin/sh\ncase \"$*\" in *\" {secret} \"*) rm -f {secret} ;; esac\nexec {real} \"$@\"\n",
        secret = secret.display(),
        real = real.display()
    );
    std::fs::write(path.join("bin/bwrap"), script).unwrap();
    let program = std::fs::Permissions::from_mode(0o755);
    std::fs::set_permissions(path.join("bin/bwrap"), program).unwrap();
    let sandbox = Arc::new(Sandbox::detect_on(
        settings(SandboxChoice::Bubblewrap, &path),
        path.join("bin").as_os_str(),
    ));
    if !sandbox.enforces() {
        return skip(&sandbox.posture(), test);
    }
    let env = LocalEnvironment::new(support::settings(&path), sandbox.clone()).unwrap();
    let work = path.join("work");
    let mut command = Exec::new("echo run >> runs; cat ../home/.pgpass; exit 3", &work);
    command.confinement = sandbox.confinement(&work);
    let (finished, text) = support::run(&env, command).await;
    assert!(!secret.exists(), "the race was not set up: {text}");
    assert_eq!(finished.exit, ProcessExit::Code(3), "{text}");
    assert!(!text.contains("secret\n"), "{text}");
    let runs = std::fs::read_to_string(work.join("runs")).unwrap();
    assert_eq!(runs, "run\n");
}

/// Processes that stand in `dir`.
fn standing_in(dir: &Path) -> usize {
    let processes = std::fs::read_dir("/proc").unwrap().flatten();
    processes
        .filter(|entry| std::fs::read_link(entry.path().join("cwd")).is_ok_and(|cwd| cwd == dir))
        .count()
}

/// Ignores everything that can be ignored, in two sessions.
const STUBBORN: &str = "trap '' TERM; (trap '' TERM; while :; do sleep 1; done) & \
    setsid bash -c 'trap \"\" TERM; echo ready; while :; do sleep 1; done' & \
    while :; do sleep 1; done";

/// Process numbers mean something else in there, so trees are looked at from outside.
async fn a_timeout_ends_the_whole_tree(place: Place) {
    let command = Exec {
        timeout: Duration::from_secs(2),
        ..Exec::new(STUBBORN, place.dir())
    };
    let (finished, text) = support::run(place.env(), command).await;
    assert_eq!(
        (finished.exit, text.as_str()),
        (ProcessExit::TimedOut, "ready\n")
    );
    assert_eq!(standing_in(&place.dir()), 0);
    place.leave().await;
}

mod with_bubblewrap {
    crate::contract::contract!(super::bubblewrap:
        output_and_exit_code,
        exports_and_directory_are_reported,
        a_missing_directory_is_126,
        input_is_closed_or_given,
        files_are_written_whole,
    );

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn a_timeout_ends_the_whole_tree() {
        let test = "bubblewrap::a_timeout_ends_the_whole_tree";
        if let Some(place) = super::bubblewrap(test) {
            super::a_timeout_ends_the_whole_tree(place).await;
        }
    }
}

mod with_landlock {
    use hermes_exec::{Exec, OutputSink, OutputStream, ProcessExit};
    use tokio_util::sync::CancellationToken;

    crate::contract::contract!(super::landlock:
        output_and_exit_code,
        exports_and_directory_are_reported,
        a_missing_directory_is_126,
        input_is_closed_or_given,
        a_background_process_runs_to_its_end,
        a_background_process_takes_input,
        killing_a_background_process_kills_its_tree,
        a_background_process_is_found_again,
        files_are_written_whole,
    );

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn strange_names_large_and_binary_output() {
        let Some(place) = super::landlock("landlock::strange_names_large_and_binary_output") else {
            return;
        };
        crate::contract::strange_names(place.env(), &place.dir()).await;
        crate::contract::large_output(place.env(), &place.dir()).await;
        crate::contract::binary_output(place.env(), &place.dir()).await;
        place.leave().await;
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn a_timeout_ends_the_whole_tree() {
        if let Some(place) = super::landlock("landlock::a_timeout_ends_the_whole_tree") {
            super::a_timeout_ends_the_whole_tree(place).await;
        }
    }

    /// Cancels at the first word.
    struct Until(CancellationToken);

    impl OutputSink for Until {
        fn push(&mut self, _: OutputStream, _: &[u8]) {
            self.0.cancel();
        }
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn an_interrupt_ends_the_whole_tree() {
        let Some(place) = super::landlock("landlock::an_interrupt_ends_the_whole_tree") else {
            return;
        };
        let cancel = CancellationToken::new();
        let command = Exec {
            cancel: cancel.clone(),
            ..Exec::new(super::STUBBORN, place.dir())
        };
        let finished = place.env().exec(command, &mut Until(cancel)).await.unwrap();
        assert_eq!(finished.exit, ProcessExit::Interrupted);
        assert_eq!(super::standing_in(&place.dir()), 0);
        place.leave().await;
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn a_dropped_call_ends_its_command() {
        let Some(place) = super::landlock("landlock::a_dropped_call_ends_its_command") else {
            return;
        };
        let seen = CancellationToken::new();
        let mut sink = Until(seen.clone());
        {
            let running = place
                .env()
                .exec(Exec::new(super::STUBBORN, place.dir()), &mut sink);
            tokio::select! {
                finished = running => panic!("it ended: {finished:?}"),
                () = seen.cancelled() => {}
            }
        }
        // Killed without waiting for it: until it is gone.
        while super::standing_in(&place.dir()) > 0 {
            tokio::task::yield_now().await;
        }
        place.leave().await;
    }
}

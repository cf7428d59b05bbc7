//! This machine, confined: the same contract inside Landlock and inside bubblewrap.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use hermes_core::BoxFuture;
use hermes_exec::local::LocalEnvironment;
use hermes_exec::sandbox::{Choice, Limits, Sandbox, Settings};
use hermes_exec::{
    Background, BackgroundRecord, Confine, Confinement, Environment, EnvironmentInfo, Exec,
    ExecError, Files, Finished, Sink, Start,
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
        sink: &'a mut dyn Sink,
    ) -> BoxFuture<'a, Result<Finished, ExecError>> {
        let command = Exec {
            confinement: self.limits.clone(),
            ..command
        };
        self.inner.exec(command, sink)
    }

    fn spawn(&self, command: Start) -> BoxFuture<'_, Result<Box<dyn Background>, ExecError>> {
        self.inner.spawn(Start {
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
    let parent = Path::new(env!("CARGO_TARGET_TMPDIR"));
    std::fs::create_dir_all(parent).unwrap();
    tempfile::tempdir_in(parent).unwrap()
}

pub(crate) fn settings(choice: Choice, dir: &Path) -> Settings {
    Settings {
        choice,
        unknown: None,
        network: true,
        writable: Vec::new(),
        unreadable: Vec::new(),
        limits: Limits::default(),
        homes: vec![dir.join("home/.hermes")],
        user_home: Some(dir.join("home")),
        helper: Some(env!("CARGO_BIN_EXE_confine").into()),
    }
}

fn made(choice: Choice) -> Place {
    let dir = outside();
    let path = dir.path().canonicalize().unwrap();
    std::fs::create_dir_all(path.join("home/.hermes")).unwrap();
    std::fs::create_dir(path.join("work")).unwrap();
    let sandbox = Arc::new(Sandbox::detect(settings(choice, &path)));
    let inner = LocalEnvironment::new(support::settings(&path), sandbox.clone()).unwrap();
    let limits = sandbox.confinement(&path.join("work"));
    Place {
        env: Confined { inner, limits },
        sandbox,
        dir,
    }
}

pub(crate) fn landlock(test: &str) -> Option<Place> {
    let place = made(Choice::Landlock);
    if place.sandbox.enforces() {
        return Some(place);
    }
    skip(&place.sandbox.posture(), test);
    None
}

mod with_landlock {
    crate::contract::whole_contract!(super::landlock);
}

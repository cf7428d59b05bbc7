//! This machine. Every command gets a fresh bash in a session of its own, started through what
//! confines it.

mod background;
pub(crate) mod family;
mod files;
mod helper;
mod leader;
mod plain;
mod pty;
mod run;
mod scratch;
mod snapshot;
mod source;
mod variables;

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use hermes_config::{Config, Env, Home, ProcessEnv};
use hermes_core::BoxFuture;
use tokio::sync::OnceCell;

pub use files::LocalFiles;
pub use snapshot::Login;
pub use variables::{Declared, Policy};

use crate::confinement::{Confine, Confinement, Launch};
use crate::environment::{
    Background, BackgroundRecord, Environment, EnvironmentInfo, Exec, ExecError, Exit, Files,
    Finished, Sink, Start, Stream, Variables,
};
use crate::shell::{self, MARK, Program};
use helper::Helpers;
use scratch::Places;
use snapshot::Snapshot;

/// A longer command is passed as a file: the kernel limits one argument to 128 KiB.
const MAX_ARGUMENT: usize = 96 * 1024;

/// How commands run here.
#[derive(Clone, Debug)]
pub struct LocalSettings {
    pub bash: PathBuf,
    pub variables: Policy,
    pub login: Login,
    /// Between TERM and KILL.
    pub grace: Duration,
    /// Where output of background processes is kept.
    pub processes: PathBuf,
    /// Where no confined command can write: what is run without limits is read from here.
    pub own: PathBuf,
}

impl LocalSettings {
    pub fn from_config(
        home: &Home,
        config: &Config,
        env: &Env,
        process: &ProcessEnv,
        declared: Declared,
    ) -> Self {
        let terminal = &config.terminal;
        let variables = Policy::from_config(home, config, env, process, declared);
        let expand = |file: &str| match (file.strip_prefix("~/"), variables.base().get("HOME")) {
            (Some(rest), Some(dir)) => Path::new(dir).join(rest),
            _ => PathBuf::from(file),
        };
        let files = if !terminal.shell_init_files.is_empty() {
            terminal
                .shell_init_files
                .iter()
                .map(|file| expand(file))
                .collect()
        } else if terminal.auto_source_bashrc {
            // bash as a login shell reads the first two of these by itself, but only one of them
            ["~/.profile", "~/.bash_profile", "~/.bashrc"]
                .map(expand)
                .to_vec()
        } else {
            Vec::new()
        };
        let grace = terminal.daemon_term_grace_seconds;
        Self {
            bash: find_bash(variables.base().get("PATH").map_or("", String::as_str)),
            login: Login { files, login: true },
            grace: Duration::try_from_secs_f64(grace).unwrap_or(Duration::from_secs(2)),
            processes: home.join("processes"),
            own: home.cache_dir().join("exec"),
            variables,
        }
    }
}

/// Pagers run no commands and write no files; a merge opens no editor.
const AT_A_TERMINAL: &[(&str, &str)] = &[
    ("LESSSECURE", "1"),
    ("PAGERSECURE", "1"),
    ("GIT_MERGE_AUTOEDIT", "no"),
];

fn find_bash(path: &str) -> PathBuf {
    std::env::split_paths(path)
        .filter(|dir| dir.is_absolute() && !shell::is_in_environment(dir))
        .chain(["/bin".into(), "/usr/bin".into()])
        .map(|dir| dir.join("bash"))
        .find(|bash| bash.is_file())
        .unwrap_or_else(|| "/bin/bash".into())
}

/// Commands on this machine.
pub struct LocalEnvironment {
    settings: LocalSettings,
    confine: Arc<dyn Confine>,
    scratch: Places,
    snapshot: OnceCell<Snapshot>,
    files: LocalFiles,
    helpers: Helpers,
}

impl LocalEnvironment {
    pub fn new(settings: LocalSettings, confine: Arc<dyn Confine>) -> Result<Self, ExecError> {
        let scratch = Places::new(&settings.own)?;
        let home = settings.variables.base().get("HOME").map(PathBuf::from);
        Ok(Self {
            settings,
            confine,
            scratch,
            snapshot: OnceCell::new(),
            files: LocalFiles::new(home),
            helpers: Helpers::default(),
        })
    }

    /// Reads the login shell now, so that the first command does not wait for it.
    pub async fn warm_up(&self) {
        self.snapshot().await;
    }

    async fn snapshot(&self) -> &Snapshot {
        let settings = &self.settings;
        self.snapshot
            .get_or_init(|| {
                snapshot::take(
                    &settings.bash,
                    &settings.login,
                    &settings.variables,
                    self.confine.as_ref(),
                    self.scratch.own(),
                )
            })
            .await
    }

    /// All variables of a command.
    fn variables(
        &self,
        snapshot: &Snapshot,
        exports: Option<Variables>,
        extra: Variables,
        pty: bool,
    ) -> Variables {
        let mut variables = exports.unwrap_or_else(|| snapshot.variables.clone());
        for (name, value) in self.settings.variables.declared() {
            variables.entry(name).or_insert(value);
        }
        if pty {
            variables.insert("TERM".to_owned(), "xterm-256color".to_owned());
            // What is typed at a pager is not looked at: without these, `!command` there would run anything.
            for (name, value) in AT_A_TERMINAL {
                variables.insert((*name).to_owned(), (*value).to_owned());
            }
        }
        variables.extend(extra);
        variables
    }

    fn launch(&self, program: String, variables: Variables, cwd: &Path, terminal: bool) -> Launch {
        let mut env: std::collections::BTreeMap<OsString, OsString> = variables
            .into_iter()
            .map(|(name, value)| (name.into(), value.into()))
            .collect();
        // bash keeps this spelling of its directory when it is right
        env.insert("PWD".into(), cwd.into());
        Launch {
            program: self.settings.bash.clone().into(),
            args: vec!["-c".into(), program.into()],
            env,
            cwd: cwd.to_owned(),
            terminal,
        }
    }

    async fn run(&self, command: Exec, sink: &mut dyn Sink) -> Result<Finished, ExecError> {
        if let Some(why) = cannot_enter(&command.cwd) {
            sink.push(Stream::Err, why.as_bytes());
            return Ok(Finished {
                exit: Exit::Code(126),
                state: None,
            });
        }
        let snapshot = self.snapshot().await;
        let dir = self.scratch.of_call(&command.confinement)?;
        let report = dir.path().join(scratch::REPORT);
        let program = Program {
            prelude: snapshot.prelude.as_deref(),
            report: Some(&report),
            ..Program::default()
        };
        let program = wrapped(&program, &command.script, dir.path())?;
        let mark = mark();
        let mut variables =
            self.variables(snapshot, command.exports, command.extra_env, command.pty);
        variables.insert(MARK.to_owned(), mark.clone());
        let launch = self.launch(program, variables, &command.cwd, command.pty);
        let confinement = command.confinement.with_writable(dir.path());
        let limits = run::Limits {
            timeout: command.timeout,
            cancel: command.cancel,
            grace: self.settings.grace,
            may_leave: !confinement.is_off(),
        };
        let watch = self.confine.watch(&confinement);
        let streams = run::Streams {
            stdin: command.stdin,
            pty: command.pty,
            split: command.split,
        };
        let mut noted = String::new();
        let exit = {
            let following = self.follow(launch, &mark, (streams, &confinement), limits, sink);
            tokio::pin!(following);
            loop {
                tokio::select! {
                    exit = &mut following => break exit,
                    // What would run later does not wait for the end of a long command.
                    () = tokio::time::sleep(background::LATER_LOOK) => noted.extend(watch.end()),
                }
            }
        };
        noted.extend(watch.end());
        if !noted.is_empty() {
            sink.push(Stream::Err, noted.as_bytes());
        }
        let exit = exit?;
        let state = plain::read(&report, shell::MAX_REPORT as u64).ok();
        let state = state.and_then(|bytes| shell::read_report(&bytes));
        Ok(Finished { exit, state })
    }

    /// Starts a command in its limits and stays with it.
    async fn follow(
        &self,
        launch: Launch,
        mark: &str,
        (streams, confinement): (run::Streams, &Confinement),
        limits: run::Limits,
        sink: &mut dyn Sink,
    ) -> Result<Exit, ExecError> {
        let could_not = || ExecError::io("the command could not be started");
        let (ends, near) = run::open(&streams).map_err(could_not())?;
        let ends = Arc::new(ends);
        let copied = match self.confine.ahead(&launch, confinement)? {
            Some(ahead) => self.helpers.start(ahead, ends.clone()).await,
            None => Ok(None),
        };
        let leader = if let Some(leader) = copied.map_err(could_not())? {
            leader
        } else {
            let launch = self.confine.wrap(launch, confinement)?;
            run::start(&launch, &ends).map_err(could_not())?
        };
        drop(ends);
        run::follow(leader, near, mark, streams.stdin, limits, sink).await
    }

    async fn start(&self, command: Start) -> Result<Box<dyn Background>, ExecError> {
        if let Some(why) = cannot_enter(&command.cwd) {
            return Err(ExecError::Unavailable(why.trim_end().to_owned()));
        }
        let snapshot = self.snapshot().await;
        let place = background::Place::create(&self.settings.processes, &command.id)?;
        let inner = Program {
            prelude: snapshot.prelude.as_deref(),
            ..Program::default()
        };
        let program = wrapped(&inner, &command.script, place.dir())?;
        let program = if command.pty {
            program
        } else {
            place.around(&program)
        };
        let mut variables =
            self.variables(snapshot, command.exports, command.extra_env, command.pty);
        variables.insert(MARK.to_owned(), command.id.clone());
        variables
            .entry("PYTHONUNBUFFERED".to_owned())
            .or_insert_with(|| "1".to_owned());
        let launch = self.launch(program, variables, &command.cwd, command.pty);
        let confinement = command.confinement.with_writable(place.dir());
        let launch = self.confine.wrap(launch, &confinement)?;
        let watch = self.confine.watch(&confinement);
        let started = background::start(&launch, place, &command.id, command.pty, watch)?;
        Ok(Box::new(started))
    }
}

impl Environment for LocalEnvironment {
    fn info(&self) -> EnvironmentInfo {
        EnvironmentInfo {
            kind: "local",
            isolated: false,
            posture: format!("on this machine, {}", self.confine.posture()),
        }
    }

    fn exec<'a>(
        &'a self,
        command: Exec,
        sink: &'a mut dyn Sink,
    ) -> BoxFuture<'a, Result<Finished, ExecError>> {
        Box::pin(self.run(command, sink))
    }

    fn spawn(&self, command: Start) -> BoxFuture<'_, Result<Box<dyn Background>, ExecError>> {
        Box::pin(self.start(command))
    }

    fn adopt(
        &self,
        record: BackgroundRecord,
    ) -> BoxFuture<'_, Result<Option<Box<dyn Background>>, ExecError>> {
        let found = background::adopt(record, &self.settings.processes);
        Box::pin(std::future::ready(Ok(
            found.map(|found| Box::new(found) as Box<dyn Background>)
        )))
    }

    fn files(&self) -> &dyn Files {
        &self.files
    }

    fn suspend(&self) -> BoxFuture<'_, Result<(), ExecError>> {
        Box::pin(std::future::ready(Ok(())))
    }

    fn close(&self) -> BoxFuture<'_, Result<(), ExecError>> {
        Box::pin(async {
            self.helpers.close().await;
            Ok(())
        })
    }
}

/// The program around a command; a long command goes to a file in `dir`.
fn wrapped(program: &Program<'_>, command: &str, dir: &Path) -> Result<String, ExecError> {
    if command.len() <= MAX_ARGUMENT {
        return Ok(program.around(command));
    }
    let file = dir.join(scratch::COMMAND);
    plain::write_new(&file, command.as_bytes()).map_err(|error| ExecError::file(&file, error))?;
    Ok(program.around_file(&file))
}

/// Why a command cannot start in `cwd`, as a shell would say it.
fn cannot_enter(cwd: &Path) -> Option<String> {
    let why = match std::fs::metadata(cwd) {
        Ok(meta) if meta.is_dir() => {
            use rustix::fs::{Access, access};
            access(cwd, Access::EXEC_OK).err()?.to_string()
        }
        Ok(_) => "not a directory".to_owned(),
        Err(error) => error.to_string(),
    };
    Some(format!("cannot enter {}: {why}\n", cwd.display()))
}

fn mark() -> String {
    format!("{:016x}", rand::random::<u64>())
}

/// A launch as something to spawn: complete environment, nothing inherited.
fn command(launch: &Launch) -> tokio::process::Command {
    let mut command = tokio::process::Command::new(&launch.program);
    command
        .args(&launch.args)
        .env_clear()
        .envs(&launch.env)
        .current_dir(&launch.cwd);
    command
}

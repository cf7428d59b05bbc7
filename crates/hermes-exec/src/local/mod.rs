//! This machine. Every command runs in a fresh bash in its own session, started through the sandbox.

mod background;
mod command_process;
mod files;
mod foreground;
mod helper;
mod hosted;
mod output_source;
pub(crate) mod process_tree;
mod pty;
mod safe_open;
mod scratch;
mod snapshot;
mod variables;

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use hermes_config::{Config, Env, Home, ProcessEnv};
use hermes_core::BoxFuture;
use hermes_core::command_host::HostedCall;
use hermes_core::programs::is_own_directory;
use tokio::sync::OnceCell;

pub(crate) use files::LocalFiles;
pub use hosted::{HOSTED, hosted_main};
pub use snapshot::LoginScripts;
pub use variables::{Declared, VariablePolicy};

use crate::confinement::{Confine, Confinement, Launch};
use crate::environment::{
    Background, BackgroundRecord, BackgroundStart, Environment, EnvironmentInfo, Exec, ExecError,
    ExecOutcome, Files, OutputSink, OutputStream, ProcessExit, Variables,
};
use crate::shell::{self, BashProgram, MARK};
use helper::Helpers;
use scratch::CallDirectories;
use snapshot::LoginSnapshot;

/// A longer command is passed as a file: the kernel limits one argument to 128 KiB.
const MAX_ARGUMENT: usize = 96 * 1024;

/// How commands run here.
#[derive(Clone, Debug)]
pub struct LocalSettings {
    pub bash: PathBuf,
    pub variables: VariablePolicy,
    pub login: LoginScripts,
    /// Between TERM and KILL.
    pub grace: Duration,
    /// Where the output of background processes is stored.
    pub processes: PathBuf,
    /// A directory that no confined command can write to: what runs without limits is read from here.
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
        let variables = VariablePolicy::from_config(home, config, env, process, declared);
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
            login: LoginScripts { files, login: true },
            grace: Duration::try_from_secs_f64(grace).unwrap_or(Duration::from_secs(2)),
            processes: home.join("processes"),
            own: home.cache_dir().join("exec"),
            variables,
        }
    }
}

/// Pagers run no commands and write no files; a merge opens no editor.
const TERMINAL_VARIABLES: &[(&str, &str)] = &[
    ("LESSSECURE", "1"),
    ("PAGERSECURE", "1"),
    ("GIT_MERGE_AUTOEDIT", "no"),
];

fn find_bash(path: &str) -> PathBuf {
    std::env::split_paths(path)
        .filter(|dir| is_own_directory(dir))
        .chain(["/bin".into(), "/usr/bin".into()])
        .map(|dir| dir.join("bash"))
        .find(|bash| bash.is_file())
        .unwrap_or_else(|| "/bin/bash".into())
}

/// A foreground command that is ready to start.
struct ForegroundCall<'a> {
    launch: Launch,
    mark: &'a str,
    streams: foreground::StreamOptions,
    confinement: &'a Confinement,
    /// The program that may run it instead of us, and the text to show there.
    hosted: Option<(&'a HostedCall, &'a str)>,
    limits: foreground::RunLimits,
}

/// Commands on this machine.
pub struct LocalEnvironment {
    settings: LocalSettings,
    confine: Arc<dyn Confine>,
    scratch: CallDirectories,
    snapshot: OnceCell<LoginSnapshot>,
    files: LocalFiles,
    helpers: Helpers,
}

impl LocalEnvironment {
    pub fn new(settings: LocalSettings, confine: Arc<dyn Confine>) -> Result<Self, ExecError> {
        let scratch = CallDirectories::new(&settings.own)?;
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

    async fn snapshot(&self) -> &LoginSnapshot {
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
        snapshot: &LoginSnapshot,
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
            // Input to a pager is not checked: without these, `!command` there would run anything.
            for (name, value) in TERMINAL_VARIABLES {
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
        // bash keeps this spelling of its directory if it is correct
        env.insert("PWD".into(), cwd.into());
        Launch {
            program: self.settings.bash.clone().into(),
            args: vec!["-c".into(), program.into()],
            env,
            cwd: cwd.to_owned(),
            terminal,
        }
    }

    async fn run(
        &self,
        command: Exec,
        sink: &mut dyn OutputSink,
    ) -> Result<ExecOutcome, ExecError> {
        if let Some(why) = cwd_error(&command.cwd) {
            sink.push(OutputStream::Err, why.as_bytes());
            return Ok(ExecOutcome {
                exit: ProcessExit::Code(126),
                state: None,
            });
        }
        let snapshot = self.snapshot().await;
        let dir = self.scratch.for_call(&command.confinement)?;
        let report = dir.path().join(scratch::REPORT);
        let program = BashProgram {
            prelude: snapshot.prelude.as_deref(),
            report: Some(&report),
            ..BashProgram::default()
        };
        let program = wrap_command(&program, &command.script, dir.path())?;
        let mark = random_mark();
        let mut variables =
            self.variables(snapshot, command.exports, command.extra_env, command.pty);
        variables.insert(MARK.to_owned(), mark.clone());
        let launch = self.launch(program, variables, &command.cwd, command.pty);
        let confinement = command.confinement.with_writable(dir.path());
        let limits = foreground::RunLimits {
            timeout: command.timeout,
            cancel: command.cancel,
            grace: self.settings.grace,
            kernel_cleans_up: !confinement.is_off(),
        };
        let watch = self.confine.watch(&confinement);
        let streams = foreground::StreamOptions {
            stdin: command.stdin,
            pty: command.pty,
            split: command.split,
        };
        let hosted = command.hosted.as_ref().map(|call| (call, &*command.script));
        let mut messages = String::new();
        let exit = {
            let call = ForegroundCall {
                launch,
                mark: &mark,
                streams,
                confinement: &confinement,
                hosted,
                limits,
            };
            let following = self.follow(call, sink);
            tokio::pin!(following);
            loop {
                tokio::select! {
                    exit = &mut following => break exit,
                    // Files that would be executed later are quarantined before a long command ends.
                    () = tokio::time::sleep(background::QUARANTINE_INTERVAL) => messages.extend(watch.quarantine()),
                }
            }
        };
        messages.extend(watch.quarantine());
        if !messages.is_empty() {
            sink.push(OutputStream::Err, messages.as_bytes());
        }
        let exit = exit?;
        let state = safe_open::read(&report, shell::MAX_REPORT as u64).ok();
        let state = state.and_then(|bytes| shell::parse_report(&bytes));
        Ok(ExecOutcome { exit, state })
    }

    /// Starts a command with its limits and waits for its end.
    async fn follow(
        &self,
        call: ForegroundCall<'_>,
        sink: &mut dyn OutputSink,
    ) -> Result<ProcessExit, ExecError> {
        let ForegroundCall {
            launch,
            mark,
            streams,
            confinement,
            hosted,
            limits,
        } = call;
        let could_not = || ExecError::io("the command could not be started");
        if let Some((call, title)) = hosted.filter(|_| streams.are_plain()) {
            let run = hosted::HostedRun {
                launch: self.confine.wrap(launch.clone(), confinement)?,
                call,
                title,
                dir: self.scratch.own(),
                mark,
            };
            if let Some(exit) = hosted::follow(run, &limits, sink).await? {
                return Ok(exit);
            }
        }
        let (child_streams, parent_streams) =
            foreground::open_streams(&streams).map_err(could_not())?;
        let child_streams = Arc::new(child_streams);
        let forked = match self.confine.prepare_helper(&launch, confinement)? {
            Some(start) => self.helpers.start(start, child_streams.clone()).await,
            None => Ok(None),
        };
        let process = if let Some(process) = forked.map_err(could_not())? {
            process
        } else {
            let launch = self.confine.wrap(launch, confinement)?;
            foreground::spawn(&launch, &child_streams).map_err(could_not())?
        };
        drop(child_streams);
        foreground::follow(process, parent_streams, mark, streams.stdin, limits, sink).await
    }

    async fn start(&self, command: BackgroundStart) -> Result<Box<dyn Background>, ExecError> {
        if let Some(why) = cwd_error(&command.cwd) {
            return Err(ExecError::Unavailable(why.trim_end().to_owned()));
        }
        let snapshot = self.snapshot().await;
        let process_dir = background::ProcessDir::create(&self.settings.processes, &command.id)?;
        let inner = BashProgram {
            prelude: snapshot.prelude.as_deref(),
            ..BashProgram::default()
        };
        let program = wrap_command(&inner, &command.script, process_dir.dir())?;
        let program = if command.pty {
            program
        } else {
            process_dir.wrap(&program)
        };
        let mut variables =
            self.variables(snapshot, command.exports, command.extra_env, command.pty);
        variables.insert(MARK.to_owned(), command.id.clone());
        variables
            .entry("PYTHONUNBUFFERED".to_owned())
            .or_insert_with(|| "1".to_owned());
        let launch = self.launch(program, variables, &command.cwd, command.pty);
        let confinement = command.confinement.with_writable(process_dir.dir());
        let launch = self.confine.wrap(launch, &confinement)?;
        let watch = self.confine.watch(&confinement);
        let started = background::start(&launch, process_dir, &command.id, command.pty, watch)?;
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
        sink: &'a mut dyn OutputSink,
    ) -> BoxFuture<'a, Result<ExecOutcome, ExecError>> {
        Box::pin(self.run(command, sink))
    }

    fn spawn(
        &self,
        command: BackgroundStart,
    ) -> BoxFuture<'_, Result<Box<dyn Background>, ExecError>> {
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

/// The bash program around a command; a long command is stored in a file in `dir`.
fn wrap_command(program: &BashProgram<'_>, command: &str, dir: &Path) -> Result<String, ExecError> {
    if command.len() <= MAX_ARGUMENT {
        return Ok(program.wrap(command));
    }
    let file = dir.join(scratch::COMMAND);
    safe_open::write_new(&file, command.as_bytes())
        .map_err(|error| ExecError::file(&file, error))?;
    Ok(program.wrap_file(&file))
}

/// Why a command cannot start in `cwd`, as a shell would report it.
fn cwd_error(cwd: &Path) -> Option<String> {
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

fn random_mark() -> String {
    format!("{:016x}", rand::random::<u64>())
}

/// A command to spawn: complete environment, nothing inherited.
fn command(launch: &Launch) -> tokio::process::Command {
    let mut command = tokio::process::Command::new(&launch.program);
    command
        .args(&launch.args)
        .env_clear()
        .envs(&launch.env)
        .current_dir(&launch.cwd);
    command
}

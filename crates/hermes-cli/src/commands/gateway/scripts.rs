//! Scripts of the home, run for jobs and webhooks: under the same gate and sandbox as the commands
//! of the agent. Nobody is asked.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use hermes_core::approval::DenyAll;
use hermes_core::ask::Nobody;
use hermes_core::clock::SystemClock;
use hermes_core::event::ProgressSink;
use hermes_core::ids::{SessionId, TurnId};
use hermes_core::tool::{Registry, Taint, ToolContext};
use hermes_exec::output::Collector;
use hermes_exec::{Exec, Exit, Sink, Stdin, Stream};
use hermes_gateway::program::{Line, Ran, Script};
use hermes_policy::{CommandRequest, Kind};
use tokio::sync::OnceCell;
use tokio_util::sync::CancellationToken;

use super::program::workplace;
use crate::commands::Context;
use crate::exit::{Exit as Code, Failure};
use crate::wiring::commands::{Commands, Ground};
use crate::wiring::stock::Stock;

/// What is kept of each stream, in bytes.
const KEPT: usize = 1024 * 1024;

pub(super) struct Scripts {
    cx: Context,
    commands: Option<Arc<Commands>>,
    /// This machine, for homes whose commands run elsewhere: the scripts lie here.
    here: OnceCell<Ground>,
}

impl Scripts {
    pub(super) fn new(cx: &Context, commands: Option<Arc<Commands>>) -> Self {
        Self {
            cx: cx.clone(),
            commands,
            here: OnceCell::new(),
        }
    }

    pub(super) async fn run(&self, script: Script, stock: &Stock) -> Result<Ran, Failure> {
        let Some(commands) = &self.commands else {
            return Err(Failure::failed("there is nowhere to run scripts"));
        };
        let path = self.find(&script.path)?;
        let text = std::fs::read_to_string(&path)
            .map_err(|error| Failure::failed(format!("{}: {error}", path.display())))?;
        let (program, kind) = match path.extension().and_then(|end| end.to_str()) {
            Some("sh" | "bash") => ("bash", Kind::Cron),
            _ => ("python3", Kind::Code),
        };
        let ground = self.ground(commands, stock).await?;
        let beside = || path.parent().map(Path::to_owned).unwrap_or_default();
        let cwd = script.cwd.clone().unwrap_or_else(beside);
        // Where it may write: not where the scripts are.
        let workspace = script.cwd.unwrap_or_else(|| workplace(stock));
        let confinement = ground.sandbox.confinement(&workspace);
        let confined = if confinement.is_off() {
            hermes_policy::Confinement::None
        } else {
            hermes_policy::Confinement::Sandboxed
        };
        let request = CommandRequest::terminal(&text, &cwd)
            .roots(vec![workspace])
            .confined(confined)
            .kind(kind);
        let cancel = CancellationToken::new();
        let _stop = cancel.clone().drop_guard();
        let cx = context(&path, cwd.clone(), cancel.clone());
        let posture = ground.environment.info().posture;
        let admitted = commands.gate.admit(&request, &posture, &cx).await;
        admitted.map_err(|refused| Failure::new(Code::Refused, refused.text))?;
        let exec = Exec {
            timeout: script.timeout,
            cancel,
            stdin: Stdin::Bytes(script.input.into_bytes().into()),
            confinement,
            split: true,
            ..Exec::new(format!("exec {program} {}", quoted(&path)), cwd)
        };
        let mut streams = Streams::new();
        let finished = ground.environment.exec(exec, &mut streams).await;
        let finished = finished.map_err(|error| Failure::failed(error.to_string()))?;
        Ok(streams.ran(finished.exit, script.timeout))
    }

    /// A line that the configuration has a name for, where the tools work.
    pub(super) async fn run_line(&self, line: Line, stock: &Stock) -> Result<Ran, Failure> {
        let Some(commands) = &self.commands else {
            return Err(Failure::failed("there is nowhere to run commands"));
        };
        run_line_in(commands, workplace(stock), line).await
    }

    /// A script lies in `scripts/` of the home, wherever its links lead.
    fn find(&self, named: &Path) -> Result<PathBuf, Failure> {
        let dir = self.cx.home.join("scripts");
        let missing = |path: &Path| Failure::not_found(format!("no script {}", path.display()));
        let root = dir.canonicalize().map_err(|_| missing(&dir.join(named)))?;
        let named = self.cx.home.expand_user(&named.to_string_lossy());
        let path = root.join(named);
        let real = path.canonicalize().map_err(|_| missing(&path))?;
        if !real.starts_with(&root) {
            return Err(Failure::new(
                Code::Refused,
                format!("{} is not below {}", path.display(), root.display()),
            ));
        }
        if real.is_file() {
            Ok(real)
        } else {
            Err(missing(&path))
        }
    }

    async fn ground(&self, commands: &Commands, stock: &Stock) -> Result<Ground, Failure> {
        if let Some(sandbox) = &commands.sandbox {
            return Ok(Ground {
                environment: Arc::clone(&commands.environment),
                sandbox: Arc::clone(sandbox),
            });
        }
        let made = self.here.get_or_try_init(|| async {
            let made = Ground::here(
                &stock.cx,
                &stock.config,
                &hermes_exec::local::Declared::default(),
            );
            made.map_err(|error| Failure::failed(error.to_string()))
        });
        Ok(made.await?.clone())
    }
}

/// A line that the configuration has a name for, in a directory: under the same gate and sandbox as
/// the commands of the agent.
pub(crate) async fn run_line_in(
    commands: &Commands,
    cwd: PathBuf,
    line: Line,
) -> Result<Ran, Failure> {
    let environment = Arc::clone(&commands.environment);
    let confinement = match &commands.sandbox {
        Some(sandbox) => sandbox.confinement(&cwd),
        None => hermes_exec::Confinement::Off,
    };
    let confined = if environment.info().isolated {
        hermes_policy::Confinement::Isolated
    } else if confinement.is_off() {
        hermes_policy::Confinement::None
    } else {
        hermes_policy::Confinement::Sandboxed
    };
    let request = CommandRequest::terminal(&line.command, &cwd)
        .roots(vec![cwd.clone()])
        .confined(confined);
    let cancel = CancellationToken::new();
    let _stop = cancel.clone().drop_guard();
    let cx = context(Path::new("quick command"), cwd.clone(), cancel.clone());
    let posture = environment.info().posture;
    let admitted = commands.gate.admit(&request, &posture, &cx).await;
    admitted.map_err(|refused| Failure::new(Code::Refused, refused.text))?;
    let exec = Exec {
        timeout: line.timeout,
        cancel,
        confinement,
        split: true,
        ..Exec::new(line.command, cwd)
    };
    let mut streams = Streams::new();
    let finished = environment.exec(exec, &mut streams).await;
    let finished = finished.map_err(|error| Failure::failed(error.to_string()))?;
    Ok(streams.ran(finished.exit, line.timeout))
}

fn quoted(path: &Path) -> String {
    format!("'{}'", path.display().to_string().replace('\'', r"'\''"))
}

/// Nobody is there.
fn context(path: &Path, cwd: PathBuf, cancel: CancellationToken) -> ToolContext {
    ToolContext {
        session: SessionId::from("scripts"),
        turn: TurnId(0),
        call_id: path.display().to_string(),
        cwd,
        cancel,
        clock: Arc::new(SystemClock),
        approver: Arc::new(DenyAll),
        asker: Arc::new(Nobody),
        progress: ProgressSink::none(),
        registry: Registry::default(),
        taint: Taint::default(),
    }
}

struct Streams {
    out: Collector,
    err: Collector,
}

impl Streams {
    fn new() -> Self {
        Self {
            out: Collector::new(KEPT),
            err: Collector::new(KEPT),
        }
    }

    fn ran(self, exit: Exit, timeout: std::time::Duration) -> Ran {
        let mut errors = self.err.finish().text();
        let status = match exit {
            Exit::Code(code) => Some(code),
            Exit::TimedOut => {
                let seconds = timeout.as_secs();
                let _ = write!(errors, "\nit took longer than {seconds} s and was ended");
                None
            }
            Exit::Signal(signal) => {
                let _ = write!(errors, "\nended by signal {signal}");
                None
            }
            Exit::Interrupted => {
                errors.push_str("\ninterrupted");
                None
            }
        };
        Ran {
            status,
            output: self.out.finish().text(),
            errors: errors.trim_start().to_owned(),
        }
    }
}

impl Sink for Streams {
    fn push(&mut self, stream: Stream, bytes: &[u8]) {
        match stream {
            Stream::Out => self.out.feed(bytes),
            Stream::Err => self.err.feed(bytes),
        }
    }
}

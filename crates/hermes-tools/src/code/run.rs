//! Runs one program: permission, preparation, run, report.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;
use hermes_core::BoxFuture;
use hermes_core::args::Args;
use hermes_core::fence;
use hermes_core::taint::FROM_OUTSIDE;
use hermes_core::tool::{
    Effects, Registry, Tool, ToolArgs, ToolContext, ToolErrorKind, ToolOutcome, ToolSpec,
};
use hermes_exec::output::{CollectedOutput, OutputCollector};
use hermes_exec::{
    Confinement, Exec, ExecError, ExecOutcome, OutputSink, OutputStream, ProcessExit, Workspace,
    WriteOptions,
};
use hermes_policy::{CommandRequest, RequestKind};
use serde_json::{Value, json};
use tokio::time::Instant;

use super::module::{self, CallTransport};
use super::rpc::ProgramCalls;
use super::{CodeDeps, CodeMode, HELPERS, NAME, remote, rpc};
use crate::{confinement_level, is_free, reaches_network};

const MAX_STDOUT_BYTES: usize = 50_000;
const MAX_STDERR_BYTES: usize = 10_000;

pub(super) struct ExecuteCode {
    spec: ToolSpec,
    deps: Arc<CodeDeps>,
}

/// Tools that a program may call besides these.
fn helpers(registry: &Registry) -> Vec<&'static str> {
    let mut helpers = HELPERS.to_vec();
    helpers.retain(|name| registry.get(name).is_some());
    helpers
}

fn description(helpers: &[&str], deps: &CodeDeps) -> String {
    let (calls, seconds) = (deps.max_calls, deps.timeout.as_secs());
    if helpers.is_empty() {
        return format!(
            "Run a Python program; what it prints comes back. At most {seconds} seconds; nothing \
             is kept between programs."
        );
    }
    format!(
        "Run a Python program that can call your tools; only what it prints comes back. \
         Use it for three or more tool calls with logic between them, for filtering long \
         results before you read them, and for loops over files or pages. Helpers: \
         from hermes_tools import {}; also json_parse, shell_quote, retry. Each takes the \
         parameters of its tool and returns a dict, with \"error\" in it when the call failed; \
         several threads may call at once. At most {calls} calls and {seconds} seconds; nothing \
         is kept between programs.",
        helpers.join(", ")
    )
}

/// Both output streams of a program.
struct ProgramOutput {
    out: OutputCollector,
    err: OutputCollector,
}

impl OutputSink for ProgramOutput {
    fn push(&mut self, stream: OutputStream, bytes: &[u8]) {
        match stream {
            OutputStream::Out => self.out.feed(bytes),
            OutputStream::Err => self.err.feed(bytes),
        }
    }
}

/// The result of a program.
struct ProgramResult {
    finished: ExecOutcome,
    out: CollectedOutput,
    err: CollectedOutput,
    confinement: Confinement,
}

impl ExecuteCode {
    pub(super) fn new(deps: CodeDeps) -> Self {
        let parameters = json!({
            "type": "object",
            "properties": {
                "code": {
                    "type": "string",
                    "description": "The Python program. Print what you want to see.",
                },
            },
            "required": ["code"],
        });
        let description = description(&HELPERS, &deps);
        Self {
            spec: ToolSpec::new(
                NAME,
                "code_execution",
                Effects::Exclusive,
                &description,
                parameters,
            ),
            deps: Arc::new(deps),
        }
    }

    async fn run(&self, args: &ToolArgs, cx: &ToolContext) -> Result<Value, ToolOutcome> {
        let args = Args::new(NAME, args);
        let code = args.required("code", "the program")?;
        let began = Instant::now();
        let helpers = helpers(&cx.registry);
        let token = format!("{:032x}", rand::random::<u128>());
        let mut inner = cx.clone();
        let stop = cx.cancel.child_token();
        inner.cancel = stop.clone();
        let calls = ProgramCalls::new(inner, helpers, token.clone(), self.deps.max_calls);
        // Calls that still run when the program ends are cancelled.
        let _guard = stop.drop_guard();
        let program = PreparedProgram {
            deps: &self.deps,
            cx,
            code,
            calls: &calls,
            token: &token,
        };
        let ran = if self.deps.is_local() {
            program.run_locally().await?
        } else {
            program.elsewhere().await?
        };
        Ok(self.report(&ran, &calls, began))
    }

    fn report(&self, ran: &ProgramResult, calls: &ProgramCalls, began: Instant) -> Value {
        let kept = &ran.out.kept;
        let (mut output, errors) = (ran.out.text(), ran.err.text());
        let (mut status, mut error) = ("success", None);
        match ran.finished.exit {
            ProcessExit::Code(0) => {}
            ProcessExit::TimedOut => {
                status = "timeout";
                let text = format!(
                    "The program was killed after {} seconds (code_execution.timeout).",
                    self.deps.timeout.as_secs()
                );
                let _ = write!(output, "\n[{text}]");
                error = Some(text);
            }
            ProcessExit::Interrupted => {
                status = "interrupted";
                output.push_str("\n[The program was stopped.]");
            }
            exit => {
                status = "error";
                let text = errors.trim();
                if !text.is_empty() {
                    let _ = write!(output, "\n--- stderr ---\n{text}");
                }
                error = Some(match text {
                    "" => format!("The program ended with code {}.", exit.code()),
                    text => last_line(text),
                });
            }
        }
        if calls.read_outside() {
            output = fence::fence(NAME, &output);
        }
        let mut value = json!({
            "status": status,
            "output": output,
            "exit_code": ran.finished.exit.code(),
            "tool_calls_made": calls.made(),
            "duration_seconds": (began.elapsed().as_secs_f64() * 100.0).round() / 100.0,
            "stdout_truncated": kept.cut_bytes() > 0,
            "stdout_bytes_captured": kept.total_bytes - kept.cut_bytes(),
            "stdout_bytes_total": kept.total_bytes,
            "stdout_bytes_omitted": kept.cut_bytes(),
        });
        if calls.may_fetch() {
            value[FROM_OUTSIDE] = json!(true);
        }
        if let Some(error) = error {
            value["error"] = json!(error);
        }
        if kept.cut_bytes() > 0 {
            value["warning"] = json!(
                "The program ran to its end, but the middle of what it printed was left out. Print less if you need it."
            );
        }
        let blocked = self.deps.sandbox.as_ref().and_then(|sandbox| {
            use hermes_exec::Confine as _;
            let exit = ran.finished.exit.code();
            sandbox.blocked(exit, &errors, &ran.confinement)
        });
        if let Some(blocked) = blocked {
            value["note"] = json!(blocked);
        }
        value
    }
}

fn last_line(text: &str) -> String {
    text.lines().last().unwrap_or_default().to_owned()
}

/// A prepared program.
struct PreparedProgram<'a> {
    deps: &'a CodeDeps,
    cx: &'a ToolContext,
    code: &'a str,
    calls: &'a ProgramCalls,
    token: &'a str,
}

impl PreparedProgram<'_> {
    /// On this machine.
    async fn run_locally(&self) -> Result<ProgramResult, ToolOutcome> {
        let dir = hermes_exec::Scratch::temporary("hermes-code-")
            .map_err(|error| failed(&format!("no temporary directory: {error}")))?;
        let (workspace, confinement) = self.prepare_workspace(dir.path()).await?;
        let cwd = workspace.cwd.clone();
        self.admit(&cwd, &confinement).await?;
        let socket = dir.path().join("rpc");
        let listener = rpc::listen(&socket)
            .map_err(|error| failed(&format!("no socket for the program: {error}")))?;
        let dir_text = dir.path().to_string_lossy();
        let transport = CallTransport::Socket(&socket.to_string_lossy()).module(self);
        for (name, text) in self.files(&dir_text, transport) {
            dir.write_new(Path::new(name), &text)
                .map_err(|error| failed(&format!("{dir_text}/{name}: {error}")))?;
        }
        let exec = self.command(&dir_text, workspace, confinement.with_writable(dir.path()));
        self.exec(exec, rpc::serve(listener, self.calls)).await
    }

    /// In another environment.
    async fn elsewhere(&self) -> Result<ProgramResult, ToolOutcome> {
        let dir = PathBuf::from(format!("/tmp/hermes-code-{:016x}", rand::random::<u64>()));
        let (workspace, confinement) = self.prepare_workspace(&dir).await?;
        let cwd = workspace.cwd.clone();
        self.admit(&cwd, &confinement).await?;
        let dir_text = dir.to_string_lossy();
        self.aside(&format!("mkdir -m 700 -p '{dir_text}/rpc'"))
            .await?;
        let exchange = dir.join("rpc");
        let files = self.deps.environment.files();
        let transport = CallTransport::Files(&exchange.to_string_lossy()).module(self);
        for (name, text) in self.files(&dir_text, transport) {
            let options = WriteOptions {
                mode: Some(0o600),
                create_parents: true,
                ..WriteOptions::default()
            };
            files
                .write(&dir.join(name), Bytes::from(text), options)
                .await
                .map_err(|error| broken(&error))?;
        }
        let exec = self.command(&dir_text, workspace, confinement.with_writable(&dir));
        let ran = self
            .exec(exec, remote::serve(files, &exchange, self.calls))
            .await;
        // Leftovers cost a few bytes; the result matters.
        if self.aside(&format!("rm -rf '{dir_text}'")).await.is_err() {
            tracing::warn!(dir = %dir_text, "files of a program were left behind");
        }
        ran
    }

    /// Runs a small command of our own in the environment.
    async fn aside(&self, script: &str) -> Result<(), ToolOutcome> {
        let mut errors = OutputCollector::new(MAX_STDERR_BYTES);
        let exec = Exec::new(script, "/");
        let finished = self.deps.environment.exec(exec, &mut errors).await;
        match finished.map_err(|error| broken(&error))?.exit {
            ProcessExit::Code(0) => Ok(()),
            _ => Err(failed(errors.finish().text().trim())),
        }
    }

    /// Working directory and confinement of the program.
    async fn prepare_workspace(&self, own: &Path) -> Result<(Workspace, Confinement), ToolOutcome> {
        let stands = match self.deps.mode {
            CodeMode::Project => self
                .deps
                .workspaces
                .get(&self.cx.session, &self.cx.cwd)
                .await
                .map_err(|error| broken(&error))?,
            CodeMode::Strict => Workspace::at(own),
        };
        // Its workspace is where the session started, wherever it is now.
        let workspace = match self.deps.mode {
            CodeMode::Project => &self.cx.cwd,
            CodeMode::Strict => own,
        };
        let is_free = self.deps.mode == CodeMode::Project && is_free(&self.deps.gate, self.cx);
        let confinement = match &self.deps.sandbox {
            Some(_) if is_free => Confinement::Off,
            Some(sandbox) => sandbox.confinement(workspace),
            None => Confinement::Off,
        };
        Ok((stands, confinement))
    }

    /// The policy for commands also applies to programs.
    async fn admit(&self, cwd: &Path, confinement: &Confinement) -> Result<(), ToolOutcome> {
        let info = self.deps.environment.info();
        let request = CommandRequest::terminal(self.code, cwd)
            .kind(RequestKind::Code)
            .confined(confinement_level(&info, confinement));
        let permit = self
            .deps
            .gate
            .admit(&request, &info.posture, self.cx)
            .await
            .map_err(|refusal| refusal.outcome())?;
        if !permit.assessment.offline && reaches_network(confinement) {
            self.calls.note_network();
        }
        Ok(())
    }

    fn files(&self, dir: &str, module: String) -> [(&'static str, String); 3] {
        [
            ("lib/hermes_tools.py", module),
            ("script.py", self.code.to_owned()),
            ("main.py", module::starter(dir)),
        ]
    }

    fn command(&self, dir: &str, workspace: Workspace, confinement: Confinement) -> Exec {
        let project = self.deps.mode == CodeMode::Project;
        let exports = workspace.exports_for(&confinement);
        let cwd = workspace.cwd;
        Exec {
            exports,
            timeout: self.deps.timeout,
            cancel: self.cx.cancel.clone(),
            confinement,
            split: true,
            ..Exec::new(module::command(dir, project, &self.deps.passthrough), cwd)
        }
    }

    /// Runs it while `serving` processes its calls.
    async fn exec(
        &self,
        exec: Exec,
        serving: impl Future<Output = ()>,
    ) -> Result<ProgramResult, ToolOutcome> {
        let confinement = exec.confinement.clone();
        let mut output = ProgramOutput {
            out: OutputCollector::new(MAX_STDOUT_BYTES),
            err: OutputCollector::new(MAX_STDERR_BYTES),
        };
        let finished = {
            let mut running = self.deps.environment.exec(exec, &mut output);
            tokio::pin!(serving);
            let mut served = false;
            loop {
                tokio::select! {
                    biased;
                    finished = &mut running => break finished.map_err(|error| broken(&error))?,
                    () = &mut serving, if !served => served = true,
                }
            }
        };
        Ok(ProgramResult {
            finished,
            out: output.out.finish(),
            err: output.err.finish(),
            confinement,
        })
    }
}

impl CallTransport<'_> {
    fn module(&self, program: &PreparedProgram<'_>) -> String {
        module::module(program.calls.helpers(), self, program.token)
    }
}

fn failed(text: &str) -> ToolOutcome {
    ToolOutcome::error(ToolErrorKind::Failed, format!("{NAME}: {text}"))
}

fn broken(error: &ExecError) -> ToolOutcome {
    failed(&error.to_string())
}

impl Tool for ExecuteCode {
    fn spec(&self) -> &ToolSpec {
        &self.spec
    }

    fn offered(&self, beside: &Registry) -> ToolSpec {
        ToolSpec {
            description: description(&helpers(beside), &self.deps),
            ..self.spec.clone()
        }
    }

    fn call<'a>(&'a self, args: ToolArgs, cx: &'a ToolContext) -> BoxFuture<'a, ToolOutcome> {
        Box::pin(async move { ToolOutcome::of(self.run(&args, cx).await) })
    }
}

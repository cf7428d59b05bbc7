//! The tool `terminal`.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use hermes_core::BoxFuture;
use hermes_core::approval::{ApprovalRequest, Presence, Verdict};
use hermes_core::args::Args;
use hermes_core::command_host::HostedCall;
use hermes_core::redact;
use hermes_core::taint::FROM_OUTSIDE;
use hermes_core::tool::{Tool, ToolArgs, ToolContext, ToolErrorKind, ToolOutcome, ToolSpec};
use hermes_exec::process::NewProcess;
use hermes_exec::{
    BackgroundStart, Confine as _, Confinement, Exec, ExecError, ExecOutcome, ProcessExit,
    Workspace,
};
use hermes_policy::{CommandClass, CommandRequest, Permit, PermitReason, RequestKind};
use serde_json::{Map, Value, json};

use super::live::LiveOutput;
use super::{TerminalShared, exit_codes, gateway, guard, hide, sudo};
use crate::{confinement_level, reaches_network};

pub(super) struct TerminalTool {
    spec: ToolSpec,
    shared: Arc<TerminalShared>,
}

impl TerminalTool {
    pub(super) fn new(shared: Arc<TerminalShared>) -> Self {
        Self {
            spec: super::terminal_spec(&shared.deps.settings),
            shared,
        }
    }
}

impl Tool for TerminalTool {
    fn spec(&self) -> &ToolSpec {
        &self.spec
    }

    fn call<'a>(&'a self, args: ToolArgs, cx: &'a ToolContext) -> BoxFuture<'a, ToolOutcome> {
        Box::pin(async move { ToolOutcome::of(self.run(&args, cx).await) })
    }
}

/// The parsed arguments.
struct TerminalCall {
    command: String,
    background: bool,
    timeout: Duration,
    workdir: Option<String>,
    pty: bool,
    notify: bool,
    patterns: Vec<String>,
}

impl TerminalTool {
    fn read(&self, args: &ToolArgs) -> Result<TerminalCall, ToolOutcome> {
        let args = Args::new("terminal", args);
        let settings = &self.shared.deps.settings;
        let background = args.flag("background")?;
        let timeout = match args.integer("timeout")? {
            None | Some(0) => settings.timeout,
            Some(seconds) => Duration::from_secs(
                u64::try_from(seconds).map_err(|_| args.bad("timeout must be positive"))?,
            ),
        };
        if !background && timeout > settings.max_timeout {
            return Err(args.bad(&format!(
                "a command in the foreground may take {} s at most; use background=true with notify_on_complete=true",
                settings.max_timeout.as_secs()
            )));
        }
        let patterns = args.list("watch_patterns")?.unwrap_or_default();
        Ok(TerminalCall {
            command: args.required("command", "the command to run")?.to_owned(),
            background,
            timeout,
            workdir: args
                .text("workdir")?
                .filter(|dir| !dir.trim().is_empty())
                .map(str::to_owned),
            pty: args.flag("pty")?,
            notify: args.flag("notify_on_complete")?,
            patterns: patterns
                .iter()
                .filter_map(Value::as_str)
                .filter(|pattern| !pattern.is_empty())
                .map(str::to_owned)
                .collect(),
        })
    }

    async fn run(&self, args: &ToolArgs, cx: &ToolContext) -> Result<Value, ToolOutcome> {
        let call = self.read(args)?;
        let deps = &self.shared.deps;
        if !call.background
            && let Some(advice) = guard::belongs_in_background(&call.command)
        {
            return Err(failed(ToolErrorKind::BadArguments, advice, "error"));
        }
        if deps.settings.inside_gateway && gateway::stops_gateway(&call.command) {
            return Err(failed(ToolErrorKind::Denied, gateway::REFUSED, "error"));
        }
        let workspace = deps
            .workspaces
            .get(&cx.session, &cx.cwd)
            .await
            .map_err(|error| unavailable(&error))?;
        let cwd = self.directory(&call, &workspace).await?;
        let confinement = self.shared.confinement(cx);
        let permit = self.admit(&call, &cwd, &confinement, cx).await?;
        self.keep_state(&call, &cwd, &permit, cx).await;
        let fetches = !permit.assessment.offline && reaches_network(&confinement);
        if fetches {
            cx.taint.mark();
        }
        let mut result = if call.background {
            self.start(&call, cwd, workspace, confinement, cx).await?
        } else {
            self.foreground(&call, cwd, workspace, confinement, cx)
                .await?
        };
        if fetches {
            result.insert(FROM_OUTSIDE.into(), true.into());
        }
        if let Some(note) = approval_note(&permit) {
            result.entry("approval").or_insert(note.into());
        }
        Ok(Value::Object(result))
    }

    /// Takes a snapshot of the project before the first command of a turn that may change it.
    async fn keep_state(&self, call: &TerminalCall, cwd: &Path, permit: &Permit, cx: &ToolContext) {
        let deps = &self.shared.deps;
        let Some(checkpoints) = &deps.checkpoints else {
            return;
        };
        if permit.assessment.class == CommandClass::ReadOnly || !self.shared.is_local() {
            return;
        }
        let command = redact::secrets(&call.command);
        let command: String = command.chars().take(60).collect();
        let reason = format!("before terminal: {command}");
        let taken = checkpoints
            .before_change(&cx.session, cx.turn, cwd, &reason)
            .await;
        if let Err(error) = taken {
            cx.progress.notice(error.as_notice());
        }
    }

    /// The working directory of the command. The session's directory may be gone.
    async fn directory(
        &self,
        call: &TerminalCall,
        workspace: &Workspace,
    ) -> Result<PathBuf, ToolOutcome> {
        let local = self.shared.is_local();
        if let Some(workdir) = &call.workdir {
            if let Some(why) = guard::bad_workdir(workdir, local) {
                return Err(failed(ToolErrorKind::BadArguments, &why, "blocked"));
            }
            let files = self.shared.deps.environment.files();
            return files
                .resolve(Path::new(workdir), &workspace.cwd)
                .await
                .map_err(|error| unavailable(&error));
        }
        if local && !workspace.cwd.is_dir() {
            let mut ancestors = workspace.cwd.ancestors();
            if let Some(left) = ancestors.find(|dir| dir.is_dir()) {
                return Ok(left.to_owned());
            }
        }
        Ok(workspace.cwd.clone())
    }

    fn request(
        &self,
        call: &TerminalCall,
        cwd: &Path,
        confinement: &Confinement,
        cx: &ToolContext,
    ) -> CommandRequest {
        let level = confinement_level(&self.shared.deps.environment.info(), confinement);
        let kind = if call.background {
            RequestKind::Background
        } else {
            RequestKind::Terminal
        };
        let root = if self.shared.is_local() {
            cx.cwd.clone()
        } else {
            cwd.to_owned()
        };
        CommandRequest::terminal(&call.command, cwd)
            .roots(vec![root])
            .confined(level)
            .kind(kind)
    }

    async fn admit(
        &self,
        call: &TerminalCall,
        cwd: &Path,
        confinement: &Confinement,
        cx: &ToolContext,
    ) -> Result<Permit, ToolOutcome> {
        let request = self.request(call, cwd, confinement, cx);
        let posture = self.shared.deps.environment.info().posture;
        match self.shared.deps.gate.admit(&request, &posture, cx).await {
            Ok(permit) => Ok(permit),
            Err(refusal) => {
                let kind = match refusal.outcome() {
                    ToolOutcome::Error { kind, .. } => kind,
                    ToolOutcome::Done(_) => ToolErrorKind::Denied,
                };
                Err(failed(kind, &refusal.text, "blocked"))
            }
        }
    }

    async fn foreground(
        &self,
        call: &TerminalCall,
        cwd: PathBuf,
        workspace: Workspace,
        confinement: Confinement,
        cx: &ToolContext,
    ) -> Result<Map<String, Value>, ToolOutcome> {
        let deps = &self.shared.deps;
        let exports = workspace.exports_for(&Confinement::Off);
        let (finished, mut text, outside) =
            if let Some(note) = self.let_out_before(call, &cwd, &confinement, cx) {
                let off = Confinement::Off;
                let (finished, text) = self.once(call, &cwd, exports, off, cx).await?;
                (finished, text, UnsandboxedRun::Ran(note))
            } else {
                let limits = confinement.clone();
                let own = workspace.exports_for(&limits);
                let first = self.once(call, &cwd, own, limits, cx).await?;
                match self.blocked(&first, &confinement) {
                    Some(what) => match self.outside(call, &cwd, &what, cx).await {
                        Ok(note) => {
                            let off = Confinement::Off;
                            let (finished, text) = self.once(call, &cwd, exports, off, cx).await?;
                            (finished, text, UnsandboxedRun::Ran(note))
                        }
                        Err(why) => (first.0, first.1, UnsandboxedRun::Stayed(what, why)),
                    },
                    None => (first.0, first.1, UnsandboxedRun::No),
                }
            };
        let ran = match outside {
            UnsandboxedRun::Ran(_) => Confinement::Off,
            UnsandboxedRun::Stayed(..) | UnsandboxedRun::No => confinement,
        };
        let exit = finished.exit;
        if let Some(mut state) = finished.state {
            if call.workdir.is_some() {
                // That directory was for this call only.
                state.cwd = workspace.cwd;
            }
            deps.workspaces.update(&cx.session, state, &ran);
        }
        note_end(&mut text, exit, call.timeout);
        let trouble = sudo::trouble(&call.command, &text);
        if let Some(trouble) = trouble {
            add_line(&mut text, trouble.advice());
        }
        if let UnsandboxedRun::Stayed(what, why) = &outside {
            add_line(
                &mut text,
                &format!("[The sandbox stopped it: {what}. {why}]"),
            );
        }
        let mut result = Map::new();
        let output = hide::output(&call.command, text.trim());
        result.insert("output".into(), output.into());
        result.insert("exit_code".into(), exit.code().into());
        result.insert("error".into(), Value::Null);
        if let UnsandboxedRun::Ran(note) = outside {
            // Outside of the sandbox there is always a network.
            let request = self.request(call, &cwd, &Confinement::Off, cx);
            if !deps.gate.assess(&request).offline {
                cx.taint.mark();
                result.insert(FROM_OUTSIDE.into(), true.into());
            }
            result.insert("approval".into(), note.into());
        }
        if let Some(meaning) = exit_codes::of(&call.command, exit.code())
            && matches!(exit, ProcessExit::Code(_) | ProcessExit::Signal(_))
        {
            result.insert("exit_code_meaning".into(), meaning.into());
        }
        if trouble == Some(sudo::SudoProblem::WrongPassword) {
            result.insert("sudo_auth_failed".into(), true.into());
        }
        Ok(result)
    }

    /// One run and its result for the model.
    async fn once(
        &self,
        call: &TerminalCall,
        cwd: &Path,
        exports: Option<hermes_exec::Variables>,
        confinement: Confinement,
        cx: &ToolContext,
    ) -> Result<(ExecOutcome, String), ToolOutcome> {
        let deps = &self.shared.deps;
        let password = deps.settings.sudo_password.as_deref();
        let (script, stdin) = sudo::prepare(&call.command, password, call.pty);
        let command = Exec {
            exports,
            timeout: call.timeout,
            cancel: cx.cancel.clone(),
            stdin,
            pty: call.pty,
            confinement,
            hosted: deps.host.clone().map(|host| HostedCall {
                host,
                call_id: cx.call_id.clone(),
            }),
            ..Exec::new(script, cwd)
        };
        let mut live = LiveOutput::new(deps.settings.max_output, &call.command, &cx.progress);
        let finished = deps
            .environment
            .exec(command, &mut live)
            .await
            .map_err(|error| unavailable(&error))?;
        Ok((finished, live.finish().text()))
    }

    /// What the sandbox blocked, if the failure looks like it.
    fn blocked(
        &self,
        (finished, text): &(ExecOutcome, String),
        confinement: &Confinement,
    ) -> Option<String> {
        let ProcessExit::Code(code) = finished.exit else {
            return None;
        };
        let sandbox = self.shared.deps.sandbox.as_ref()?;
        (code != 0 && !confinement.is_off())
            .then(|| sandbox.blocked(code, text, confinement))
            .flatten()
    }

    /// Whether the command runs outside the sandbox from the start. A command allowed in advance is not tried
    /// inside first: what it did until it was blocked would be done twice.
    fn let_out_before(
        &self,
        call: &TerminalCall,
        cwd: &Path,
        confinement: &Confinement,
        cx: &ToolContext,
    ) -> Option<&'static str> {
        if confinement.is_off() {
            return None;
        }
        let key = (cx.session.clone(), cwd.to_owned(), call.command.clone());
        let is_allowed = self.shared.let_out().contains(&key);
        let class = self
            .shared
            .deps
            .gate
            .assess(&self.request(call, cwd, confinement, cx))
            .class;
        // If a session has left its workspace, the limits are the only protection.
        let leaves = class == CommandClass::Ask
            && cwd.starts_with(&cx.cwd)
            && cx.approver.presence() == Presence::Standing;
        match class {
            CommandClass::Forbidden => None,
            _ if leaves => Some(APPROVED_BEFORE),
            _ if is_allowed => Some(ALLOWED_BEFORE),
            _ => None,
        }
    }

    /// Whether the user lets the command run outside the sandbox; otherwise why not.
    async fn outside(
        &self,
        call: &TerminalCall,
        cwd: &Path,
        what: &str,
        cx: &ToolContext,
    ) -> Result<&'static str, String> {
        let request = self.request(call, cwd, &Confinement::Off, cx);
        let assessment = self.shared.deps.gate.assess(&request);
        if assessment.class == CommandClass::Forbidden {
            return Err("It may not run outside.".to_owned());
        }
        match cx.approver.presence() {
            // No user is present who could decide whether it may repeat what it has done.
            Presence::Standing => {
                let key = (cx.session.clone(), cwd.to_owned(), call.command.clone());
                self.shared.let_out().insert(key);
                return Err(AGAIN.to_owned());
            }
            Presence::Nobody => {
                return Err("Nobody is here to let it run outside.".to_owned());
            }
            Presence::Person => {}
        }
        let key = (cx.session.clone(), cwd.to_owned(), call.command.clone());
        let mut reasons = vec![format!(
            "the sandbox stopped it: {what}; run it once more from its beginning, unconfined?"
        )];
        if !cwd.starts_with(&cx.cwd) {
            reasons.push(format!("it would start in {}", cwd.display()));
        }
        reasons.extend(assessment.reasons());
        let question = ApprovalRequest {
            kind: hermes_core::approval::ApprovalKind::OutsideSandbox,
            id: format!("{}-outside", cx.call_id),
            tool: "terminal".to_owned(),
            action: call.command.clone(),
            reasons,
            rule: None,
            posture: Some("not sandboxed: it could change and read everything you can".to_owned()),
        };
        match cx.approver.decide(question).await {
            Verdict::Deny { why } => Err(match why {
                Some(why) => format!("It was not let out: {why}"),
                None => {
                    "The person did not let it run outside; do not look for another way.".to_owned()
                }
            }),
            Verdict::Session | Verdict::Always(_) => {
                self.shared.let_out().insert(key);
                Ok(LET_OUT)
            }
            Verdict::Once => Ok(LET_OUT),
        }
    }

    async fn start(
        &self,
        call: &TerminalCall,
        cwd: PathBuf,
        workspace: Workspace,
        confinement: Confinement,
        cx: &ToolContext,
    ) -> Result<Map<String, Value>, ToolOutcome> {
        let deps = &self.shared.deps;
        let reachable = deps.processes.can_notify(&cx.session);
        let notify = call.notify && reachable;
        let watch = reachable && !call.notify && !call.patterns.is_empty();
        let pty = call.pty && !needs_plain_input(&call.command);
        let (script, _) = sudo::prepare(&call.command, None, pty);
        let new = NewProcess {
            session: cx.session.clone(),
            routing: deps.routing.clone(),
            start: BackgroundStart {
                id: String::new(),
                script,
                cwd,
                exports: workspace.exports_for(&confinement),
                extra_env: [].into(),
                pty,
                confinement,
            },
            command: call.command.clone(),
            notify_on_complete: notify,
            watch_patterns: if watch {
                call.patterns.clone()
            } else {
                Vec::new()
            },
        };
        let started = deps.processes.spawn(deps.environment.as_ref(), new).await;
        let info = started.map_err(|error| {
            failed(
                ToolErrorKind::Failed,
                &format!("the process could not be started: {error}"),
                "error",
            )
        })?;
        let mut result = Map::new();
        result.insert("output".into(), "Background process started".into());
        result.insert("session_id".into(), info.id.into());
        result.insert("pid".into(), info.pid.into());
        result.insert("exit_code".into(), 0.into());
        result.insert("error".into(), Value::Null);
        if notify {
            result.insert("notify_on_complete".into(), true.into());
        }
        if watch {
            result.insert("watch_patterns".into(), json!(call.patterns));
        }
        if call.notify && !call.patterns.is_empty() {
            let note = "watch_patterns are not used together with notify_on_complete";
            result.insert("watch_patterns_ignored".into(), note.into());
        }
        if (call.notify || !call.patterns.is_empty()) && !reachable {
            result.insert("notify_on_complete".into(), false.into());
            let note = "Nothing can be told after this turn here. Use process(action='wait') or process(action='poll').";
            result.insert("notify_unsupported".into(), note.into());
        } else if !call.notify && call.patterns.is_empty() {
            let hint = "You will not be told when it ends. If the end matters, use process(action='wait') or process(action='poll'), or start such work with notify_on_complete=true.";
            result.insert("hint".into(), hint.into());
        }
        if call.pty && !pty {
            let note = "No terminal was given: this command reads its standard input to the end. Use process(action='write') and then process(action='close').";
            result.insert("pty_note".into(), note.into());
        } else if pty {
            let note = "It has a terminal of this program, so it ends when hermes does. Start it without pty if it has to go on.";
            result.insert("pty_note".into(), note.into());
        }
        Ok(result)
    }
}

const APPROVED_BEFORE: &str = "It ran outside the sandbox, as was approved beforehand.";
const ALLOWED_BEFORE: &str = "It ran outside the sandbox, as the person allowed.";
const AGAIN: &str = "It was not run again: a part of it may have been done. Undo or leave out that part, or call exactly this command once more; then it runs outside the sandbox, as was approved beforehand.";
const LET_OUT: &str = "The sandbox stopped this command half way; then it ran once more from its beginning, outside, as the person allowed.";

/// The result of leaving the sandbox.
enum UnsandboxedRun {
    No,
    /// The message for the model.
    Ran(&'static str),
    /// What was blocked, and why it stayed so.
    Stayed(String, String),
}

/// A terminal would break programs that wait for the end of piped input.
fn needs_plain_input(command: &str) -> bool {
    command.trim_start().starts_with("gh auth login") && command.contains("--with-token")
}

fn approval_note(permit: &Permit) -> Option<String> {
    let why = permit.assessment.reasons().join("; ");
    let note = match permit.how {
        PermitReason::Once | PermitReason::Session | PermitReason::Always => {
            format!("The person was asked ({why}) and allowed it.")
        }
        PermitReason::Smart => format!("It was looked at ({why}) and judged safe."),
        PermitReason::NotNeeded
        | PermitReason::Isolated
        | PermitReason::Off
        | PermitReason::Rule
        | PermitReason::Unattended => return None,
    };
    Some(note)
}

fn note_end(text: &mut String, exit: ProcessExit, timeout: Duration) {
    match exit {
        ProcessExit::TimedOut => add_line(
            text,
            &format!(
                "[Command timed out after {} s and was ended with everything it started]",
                timeout.as_secs()
            ),
        ),
        ProcessExit::Interrupted => add_line(text, "[Command interrupted]"),
        ProcessExit::Code(_) | ProcessExit::Signal(_) => {}
    }
}

fn add_line(text: &mut String, line: &str) {
    if !text.is_empty() && !text.ends_with('\n') {
        text.push('\n');
    }
    text.push_str(line);
    text.push('\n');
}

/// A command that was not run, as Hermes Agent reports it.
fn failed(kind: ToolErrorKind, why: &str, status: &str) -> ToolOutcome {
    let result = json!({"output": "", "exit_code": -1, "error": why, "status": status});
    ToolOutcome::error(kind, result.to_string())
}

fn unavailable(error: &ExecError) -> ToolOutcome {
    let text = redact::secrets(&error.to_string()).into_owned();
    failed(ToolErrorKind::Failed, &text, "error")
}

//! The tool `process`.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use chrono::{DateTime, Local};
use hermes_core::BoxFuture;
use hermes_core::args::Args;
use hermes_core::redact;
use hermes_core::tool::{Tool, ToolArgs, ToolContext, ToolErrorKind, ToolOutcome, ToolSpec};
use hermes_exec::process::{EndReason, ProcessEnd, ProcessError, ProcessInfo, WaitOutcome};
use serde_json::{Map, Value, json};

use super::{TerminalShared, hide};

const PREVIEW_CHARS: usize = 1000;
const LIST_PREVIEW_CHARS: usize = 200;
const FINAL_OUTPUT_CHARS: usize = 2000;
const DEFAULT_LINES: usize = 200;

pub(super) struct ProcessTool {
    spec: ToolSpec,
    shared: Arc<TerminalShared>,
}

impl ProcessTool {
    pub(super) fn new(shared: Arc<TerminalShared>) -> Self {
        Self {
            spec: super::process_spec(),
            shared,
        }
    }
}

impl Tool for ProcessTool {
    fn spec(&self) -> &ToolSpec {
        &self.spec
    }

    fn call<'a>(&'a self, args: ToolArgs, cx: &'a ToolContext) -> BoxFuture<'a, ToolOutcome> {
        Box::pin(async move { ToolOutcome::of(self.run(&args, cx).await) })
    }
}

impl ProcessTool {
    async fn run(&self, args: &ToolArgs, cx: &ToolContext) -> Result<Value, ToolOutcome> {
        let args = Args::new("process", args);
        let action = args.required(
            "action",
            "list, poll, log, wait, kill, write, submit or close",
        )?;
        if action == "list" {
            return Ok(self.list(cx).await);
        }
        // some models send the id as a number
        let id = match args.get("session_id") {
            Some(Value::String(id)) => id.trim().to_owned(),
            Some(Value::Number(id)) => id.to_string(),
            _ => String::new(),
        };
        if id.is_empty() {
            return Err(args.bad(&format!(
                "session_id is missing; {action} needs the one that terminal returned"
            )));
        }
        let result = match action {
            "poll" => self.poll(&id).await,
            "log" => {
                let offset = args.integer("offset")?.unwrap_or(0);
                let limit = args.integer("limit")?.unwrap_or(DEFAULT_LINES as i64);
                self.log(&id, offset, limit).await
            }
            "wait" => self.wait(&id, args.integer("timeout")?, cx).await,
            "kill" => self.kill(&id).await,
            "write" => {
                self.write(&id, args.text("data")?.unwrap_or_default(), "")
                    .await
            }
            "submit" => {
                self.write(&id, args.text("data")?.unwrap_or_default(), "\n")
                    .await
            }
            "close" => self.close(&id).await,
            other => {
                return Err(args.bad(&format!(
                    "action {other:?} is none; use list, poll, log, wait, kill, write, submit or close"
                )));
            }
        };
        result.or_else(|error| trouble(&error))
    }

    async fn list(&self, cx: &ToolContext) -> Value {
        let registry = &self.shared.deps.processes;
        let mut processes = Vec::new();
        for info in registry.list(Some(&cx.session)) {
            let preview = registry
                .tail(&info.id, LIST_PREVIEW_CHARS)
                .await
                .unwrap_or_default();
            let mut row = Map::new();
            row.insert("session_id".into(), info.id.clone().into());
            let command: String = info.command.chars().take(200).collect();
            row.insert("command".into(), redacted(&command));
            row.insert("cwd".into(), info.cwd.display().to_string().into());
            row.insert("pid".into(), info.pid.into());
            row.insert("started_at".into(), local_time(info.started_at).into());
            row.insert("uptime_seconds".into(), info.uptime_seconds.into());
            row.insert("status".into(), status(&info).into());
            row.insert("output_preview".into(), hidden(&info, &preview));
            if !info.watch_patterns.is_empty() {
                row.insert("watch_patterns".into(), json!(info.watch_patterns));
                row.insert("watch_hit".into(), info.watch_hit.into());
            }
            if info.notify_on_complete {
                row.insert("notify_on_complete".into(), true.into());
            }
            if let Some(ended) = info.ended {
                row.insert("exit_code".into(), ended.code.into());
            }
            if info.adopted {
                row.insert("detached".into(), true.into());
            }
            processes.push(Value::Object(row));
        }
        json!({"processes": processes})
    }

    async fn poll(&self, id: &str) -> Result<Value, ProcessError> {
        let registry = &self.shared.deps.processes;
        let info = registry.info(id)?;
        let preview = registry.tail(id, PREVIEW_CHARS).await?;
        let mut result = Map::new();
        result.insert("session_id".into(), id.into());
        result.insert("command".into(), redacted(&info.command));
        result.insert("status".into(), status(&info).into());
        result.insert("pid".into(), info.pid.into());
        result.insert("uptime_seconds".into(), info.uptime_seconds.into());
        result.insert("output_preview".into(), hidden(&info, &preview));
        if let Some(ended) = info.ended {
            add_end(&mut result, ended);
        }
        if info.adopted {
            result.insert("detached".into(), true.into());
        }
        Ok(Value::Object(result))
    }

    async fn log(&self, id: &str, offset: i64, limit: i64) -> Result<Value, ProcessError> {
        let registry = &self.shared.deps.processes;
        let info = registry.info(id)?;
        let offset = usize::try_from(offset).unwrap_or(0);
        let limit = usize::try_from(limit).unwrap_or(0).max(1);
        let page = registry.log(id, offset, limit).await?;
        Ok(json!({
            "session_id": id,
            "command": redacted(&info.command),
            "status": status(&info),
            "output": hidden(&info, &page.lines.join("\n")),
            "total_lines": page.total_lines,
            "showing": format!("{} lines", page.lines.len()),
        }))
    }

    async fn wait(
        &self,
        id: &str,
        timeout: Option<i64>,
        cx: &ToolContext,
    ) -> Result<Value, ProcessError> {
        let registry = &self.shared.deps.processes;
        let info = registry.info(id)?;
        let max_wait = self.shared.deps.settings.timeout;
        let asked = timeout
            .and_then(|seconds| u64::try_from(seconds).ok())
            .filter(|seconds| *seconds > 0)
            .map_or(max_wait, Duration::from_secs);
        let waited = registry.wait(id, asked.min(max_wait), &cx.cancel).await?;
        let mut result = Map::new();
        let (state, shown) = match waited {
            WaitOutcome::Ended(_) => ("exited", FINAL_OUTPUT_CHARS),
            WaitOutcome::TimedOut => ("timeout", PREVIEW_CHARS),
            WaitOutcome::Interrupted => ("interrupted", PREVIEW_CHARS),
        };
        result.insert("status".into(), state.into());
        result.insert("command".into(), redacted(&info.command));
        if let WaitOutcome::Ended(ended) = waited {
            add_end(&mut result, ended);
        }
        let output = registry.tail(id, shown).await?;
        result.insert("output".into(), hidden(&info, &output));
        if waited == WaitOutcome::Interrupted {
            result.insert(
                "note".into(),
                "The wait was stopped; the process runs on.".into(),
            );
        }
        if asked > max_wait {
            let note = format!(
                "One wait takes {} s at most; {} s were asked for.",
                max_wait.as_secs(),
                asked.as_secs()
            );
            result.insert("timeout_note".into(), note.into());
        } else if waited == WaitOutcome::TimedOut {
            let note = format!("Waited {} s; it is still running.", asked.as_secs());
            result.insert("timeout_note".into(), note.into());
        }
        Ok(Value::Object(result))
    }

    async fn kill(&self, id: &str) -> Result<Value, ProcessError> {
        let registry = &self.shared.deps.processes;
        let killed = registry.kill(id).await?;
        let info = registry.info(id)?;
        let output = registry.tail(id, FINAL_OUTPUT_CHARS).await?;
        let mut result = Map::new();
        let state = if killed { "killed" } else { "already_exited" };
        result.insert("status".into(), state.into());
        result.insert("session_id".into(), id.into());
        result.insert("command".into(), redacted(&info.command));
        if let Some(ended) = info.ended {
            add_end(&mut result, ended);
        }
        result.insert("output".into(), hidden(&info, &output));
        Ok(Value::Object(result))
    }

    async fn write(&self, id: &str, data: &str, end: &str) -> Result<Value, ProcessError> {
        let bytes = Bytes::from(format!("{data}{end}"));
        let count = bytes.len();
        self.shared.deps.processes.write(id, bytes).await?;
        Ok(json!({"status": "ok", "bytes_written": count}))
    }

    async fn close(&self, id: &str) -> Result<Value, ProcessError> {
        self.shared.deps.processes.close_stdin(id).await?;
        Ok(json!({"status": "ok", "message": "The end of input was sent."}))
    }
}

/// States that the model asked about are results; failures are errors.
fn trouble(error: &ProcessError) -> Result<Value, ToolOutcome> {
    let status = match error {
        ProcessError::Unknown(_) => "not_found",
        ProcessError::Ended(_) => "already_exited",
        ProcessError::TooMany | ProcessError::Exec(_) => "error",
    };
    let answer = json!({"status": status, "error": error.to_string()});
    match error {
        ProcessError::Ended(_) => Ok(answer),
        ProcessError::Unknown(_) => Err(ToolOutcome::error(
            ToolErrorKind::BadArguments,
            answer.to_string(),
        )),
        ProcessError::TooMany | ProcessError::Exec(_) => Err(ToolOutcome::error(
            ToolErrorKind::Failed,
            answer.to_string(),
        )),
    }
}

fn add_end(result: &mut Map<String, Value>, ended: ProcessEnd) {
    result.insert("exit_code".into(), ended.code.into());
    result.insert("completion_reason".into(), ended.reason.name().into());
    let source = match ended.reason {
        EndReason::Killed => "process.kill",
        EndReason::Exited | EndReason::Lost => "",
    };
    result.insert("termination_source".into(), source.into());
}

fn status(info: &ProcessInfo) -> &'static str {
    if info.ended.is_some() {
        "exited"
    } else {
        "running"
    }
}

/// Output of the process.
fn hidden(info: &ProcessInfo, output: &str) -> Value {
    hide::output(&info.command, output).into()
}

/// The command without secrets.
fn redacted(command: &str) -> Value {
    redact::keys(command).into()
}

fn local_time(seconds: f64) -> String {
    DateTime::from_timestamp(seconds as i64, 0).map_or_else(String::new, |time| {
        time.with_timezone(&Local)
            .format("%Y-%m-%dT%H:%M:%S")
            .to_string()
    })
}

//! `hermes hooks`: the user's programs that run on events.

use clap::{Args, Subcommand};
use hermes_app::hooks::{Consent, Hook, HookAction as Does, HookEvent, Hooks};
use serde_json::{Value, json};

use super::{Context, counted};
use crate::exit::{Exit, Failure, Outcome};
use crate::{prompt, wiring};

#[derive(Debug, Args)]
pub(crate) struct HooksArgs {
    #[command(subcommand)]
    action: Option<Action>,
}

#[derive(Debug, Subcommand)]
enum Action {
    /// List all hooks (the default)
    List {
        /// Print as JSON
        #[arg(long)]
        json: bool,
    },
    /// Approve new hook commands in config.yaml
    Allow {
        /// Approve all of them without asking
        #[arg(long, short)]
        yes: bool,
    },
    /// Revoke the approval of a hook
    Revoke {
        /// The command as `list` shows it
        command: String,
    },
    /// Run the hooks of an event once, approved or not
    Test {
        /// `pre_tool_call`, `agent:end`, …
        event: String,
        /// Simulate a call of this tool
        #[arg(long, value_name = "TOOL")]
        for_tool: Option<String>,
        /// Print as JSON
        #[arg(long)]
        json: bool,
    },
}

pub(crate) fn run(args: HooksArgs, cx: &Context) -> Outcome {
    match args.action.unwrap_or(Action::List { json: false }) {
        Action::List { json } => list(cx, json),
        Action::Allow { yes } => allow(cx, yes),
        Action::Revoke { command } => revoke(cx, &command),
        Action::Test {
            event,
            for_tool,
            json,
        } => test(cx, &event, for_tool, json),
    }
}

fn load(cx: &Context) -> Result<(Vec<Hook>, Vec<String>), Failure> {
    Ok(wiring::read_hooks(cx, &cx.config()?))
}

fn list(cx: &Context, json: bool) -> Outcome {
    let (list, problems) = load(cx)?;
    if json {
        let row = |hook: &Hook| {
            json!({
                "event": hook.event,
                "hook": hook.name(),
                "kind": match hook.action { Does::Command(_) => "command", Does::Handler { .. } => "handler" },
                "matcher": hook.matcher.as_ref().map(ToString::to_string),
                "timeout": hook.timeout.as_secs(),
                "agreed": hook.agreed,
            })
        };
        let rows: Vec<Value> = list.iter().map(row).collect();
        cx.out.json(&json!({"hooks": rows, "problems": problems}))?;
        return Ok(());
    }
    for problem in &problems {
        cx.out.remark(problem);
    }
    if list.is_empty() {
        cx.out
            .line("no hooks; docs/hooks.md says how to write one")?;
        return Ok(());
    }
    let width = list.iter().map(|hook| hook.event.len()).max().unwrap_or(0);
    for hook in &list {
        let state = if hook.agreed {
            "runs"
        } else {
            "waits for: hermes hooks allow"
        };
        cx.out.line(format!(
            "{:<width$}  {}  ({state})",
            hook.event,
            hook.name()
        ))?;
    }
    Ok(())
}

fn allow(cx: &Context, yes: bool) -> Outcome {
    let (list, _) = load(cx)?;
    let mut consent = Consent::open(&cx.home).map_err(Failure::failed)?;
    let now = chrono::Utc::now().to_rfc3339_opts(chrono::SecondsFormat::Secs, true);
    let mut given = 0;
    for hook in list.iter().filter(|hook| !hook.agreed) {
        let Does::Command(command) = &hook.action else {
            continue;
        };
        if !yes && (cx.no_input || !cx.out.stdin_tty) {
            let what = "there is no terminal to ask on: pass --yes to approve all";
            return Err(Failure::usage(what));
        }
        if yes || prompt::confirm(&format!("on {}: run {command}?", hook.event), false)? {
            consent
                .give(&hook.event, command, &now)
                .map_err(Failure::failed)?;
            given += 1;
        }
    }
    cx.out
        .line(format!("agreed to {}", counted(given, "hook")))?;
    Ok(())
}

fn revoke(cx: &Context, command: &str) -> Outcome {
    let mut consent = Consent::open(&cx.home).map_err(Failure::failed)?;
    let gone = consent.take_back(command).map_err(Failure::failed)?;
    if gone == 0 {
        return Err(Failure::not_found(format!(
            "{command:?} is not approved; see: hermes hooks list"
        )));
    }
    cx.out.line(format!("{command} runs no more"))?;
    Ok(())
}

fn test(cx: &Context, event: &str, tool: Option<String>, json: bool) -> Outcome {
    let (list, _) = load(cx)?;
    let list = list
        .into_iter()
        .map(|hook| Hook {
            agreed: true,
            ..hook
        })
        .collect();
    let hooks = Hooks::new(list);
    if !hooks.has_hooks_for(event) {
        return Err(Failure::not_found(format!("no hook is on {event}")));
    }
    let happening = HookEvent {
        session: "test".to_owned(),
        tool: tool.map(|tool| (tool, json!({}))),
        extra: json!({"test": true}),
    };
    let runtime = wiring::runtime()?;
    let mut failed = false;
    let mut rows = Vec::new();
    for hook in hooks.for_event(event, &happening) {
        let result = runtime.block_on(hook.run(event, &happening));
        failed |= result.is_err();
        if json {
            let (answer, error) = match result {
                Ok(answer) => (answer, None),
                Err(error) => (None, Some(error)),
            };
            rows.push(json!({"hook": hook.name(), "answer": answer, "error": error}));
        } else {
            let outcome = match result {
                Ok(Some(answer)) => answer.to_string(),
                Ok(None) => "ran".to_owned(),
                Err(error) => error,
            };
            cx.out.line(format!("{}: {outcome}", hook.name()))?;
        }
    }
    if json {
        cx.out.json(&Value::Array(rows))?;
    }
    if failed {
        Err(Failure::silent(Exit::Failed))
    } else {
        Ok(())
    }
}

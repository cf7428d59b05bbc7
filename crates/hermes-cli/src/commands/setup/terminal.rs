//! Setup: where commands run.

use std::time::Duration;

use hermes_config::Config;
use hermes_exec::local::Declared;
use hermes_exec::sandbox::{Sandbox, SandboxSettings};
use hermes_exec::{Exec, OutputSink, OutputStream, ProcessExit, backend};
use serde_json::json;

use super::draft::SetupDraft;
use crate::choose;
use crate::commands::Context;
use crate::exit::{Failure, Outcome};
use crate::prompt::{self, PromptAnswer};
use crate::wiring;

/// Timeout for a first command: a container may have to start.
const COMMAND_TEST_TIMEOUT: Duration = Duration::from_secs(30);

pub(super) fn standing(draft: &SetupDraft<'_>) -> Result<(bool, String), Failure> {
    let config = draft.config()?;
    let cwd = std::env::current_dir().unwrap_or_default();
    let cx = draft.cx;
    Ok(
        match backend::select(&cx.home, &config, &cx.env, &cwd, &Declared::default()) {
            Err(error) => (false, error.to_string()),
            Ok(Some(environment)) => (true, environment.info().posture),
            Ok(None) => {
                let sandbox = Sandbox::detect(SandboxSettings::from_config(&cx.home, &config));
                let sandbox = sandbox.describe();
                (!sandbox.refuses, format!("on this machine, {sandbox}"))
            }
        },
    )
}

pub(super) fn fill(draft: &mut SetupDraft<'_>) -> Outcome {
    let out = draft.cx.out;
    loop {
        let now = draft.config()?.terminal.backend.as_str().to_owned();
        let typed = match ask_for_dir(draft.cx, &now)? {
            PromptAnswer::Back => return Ok(()),
            PromptAnswer::Line(line) if line.is_empty() => now.clone(),
            PromptAnswer::Line(line) => line.to_lowercase(),
        };
        if !["local", "docker", "podman", "ssh"].contains(&typed.as_str()) {
            out.error(format!("{typed:?} is not one of local, docker, ssh"));
            continue;
        }
        let before = draft.mark();
        if typed != now {
            draft.set(&["terminal", "backend"], &json!(typed))?;
        }
        let complete = match typed.as_str() {
            "ssh" => ssh(draft)?,
            "docker" | "podman" => container(draft)?,
            _ => true,
        };
        if !complete {
            draft.back_to(before);
            continue;
        }
        out.remark("trying a command there …");
        match try_out(draft.cx, &*draft.config()?) {
            Ok(text) => {
                out.remark(text);
                return Ok(());
            }
            Err(why) => {
                out.error(why);
                if !draft.changed_since(&before) || prompt::confirm("use it anyway?", false)? {
                    return Ok(());
                }
                draft.back_to(before);
            }
        }
    }
}

/// Where commands are to run.
fn ask_for_dir(cx: &Context, now: &str) -> Result<PromptAnswer, Failure> {
    if !choose::can_show(cx) {
        return prompt::line(&format!("run commands: local, docker or ssh [{now}]: "));
    }
    let places = [
        ("local", "on this machine, in a sandbox where there is one"),
        ("docker", "in a container"),
        ("podman", "in a container, without a daemon"),
        ("ssh", "on another machine"),
    ];
    let chosen = choose::word(cx, "Where commands run", &places, now)?;
    Ok(chosen.map_or(PromptAnswer::Back, PromptAnswer::Line))
}

/// `false`: the person went back.
fn ssh(draft: &mut SetupDraft<'_>) -> Result<bool, Failure> {
    let terminal = draft.config()?.terminal.clone();
    let fields = [
        ("ssh_host", "host", terminal.ssh_host.unwrap_or_default()),
        ("ssh_user", "user", terminal.ssh_user.unwrap_or_default()),
        (
            "ssh_port",
            "port",
            terminal.ssh_port.unwrap_or(22).to_string(),
        ),
    ];
    for (key, label, now) in fields {
        loop {
            let typed = match prompt::line(&format!("  {label} [{now}]: "))? {
                PromptAnswer::Back => return Ok(false),
                PromptAnswer::Line(line) if line.is_empty() => now.clone(),
                PromptAnswer::Line(line) => line,
            };
            let value = if key == "ssh_port" {
                let Ok(port @ 1..) = typed.parse::<u16>() else {
                    draft.cx.out.error("a port is a number from 1 to 65535");
                    continue;
                };
                json!(port)
            } else if typed.is_empty()
                || typed.starts_with('-')
                || typed.contains(char::is_whitespace)
            {
                draft.cx.out.error(format!("that is not a {label}"));
                continue;
            } else {
                json!(typed)
            };
            if typed != now || key != "ssh_port" {
                draft.set(&["terminal", key], &value)?;
            }
            break;
        }
    }
    Ok(true)
}

/// `false`: the person went back.
fn container(draft: &mut SetupDraft<'_>) -> Result<bool, Failure> {
    let now = draft.config()?.terminal.docker_image.clone();
    match prompt::line(&format!("  image [{now}]: "))? {
        PromptAnswer::Back => return Ok(false),
        PromptAnswer::Line(line) if line.is_empty() || line == now => {}
        PromptAnswer::Line(line) => draft.set(&["terminal", "docker_image"], &json!(line))?,
    }
    Ok(true)
}

/// Runs one harmless command where commands would run.
pub(crate) fn try_out(cx: &Context, config: &Config) -> Result<String, String> {
    let cwd = std::env::current_dir().unwrap_or_default();
    let environment = backend::select(&cx.home, config, &cx.env, &cwd, &Declared::default())
        .map_err(|error| error.to_string())?;
    let Some(environment) = environment else {
        let sandbox = Sandbox::detect(SandboxSettings::from_config(&cx.home, config));
        let sandbox = sandbox.describe();
        return if sandbox.refuses {
            Err(sandbox.to_string())
        } else {
            Ok(format!("on this machine, {sandbox}"))
        };
    };
    let confinement = environment.info().posture;
    let runtime = wiring::runtime().map_err(|failure| failure.message)?;
    runtime.block_on(async {
        let mut command = Exec::new("true", cwd);
        command.timeout = COMMAND_TEST_TIMEOUT;
        let mut output = ProbeOutput::default();
        let done = environment.exec(command, &mut output).await;
        // It was only for this.
        let _ = environment.close().await;
        match done {
            Ok(finished) if finished.exit == ProcessExit::Code(0) => Ok(confinement),
            Ok(finished) => Err(format!(
                "a command there ended with {:?}: {}",
                finished.exit,
                String::from_utf8_lossy(&output.0).trim()
            )),
            Err(error) => Err(error.to_string()),
        }
    })
}

#[derive(Default)]
struct ProbeOutput(Vec<u8>);

impl OutputSink for ProbeOutput {
    fn push(&mut self, _: OutputStream, bytes: &[u8]) {
        let available = 2000_usize.saturating_sub(self.0.len());
        self.0
            .extend_from_slice(&bytes[..bytes.len().min(available)]);
    }
}

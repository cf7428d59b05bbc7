//! `hermes gateway setup`: tokens, allowed users, home channels.

use clap::Args;
use hermes_config::env::{is_usable_secret, writer};
use hermes_platforms::{PLATFORMS, PlatformDef, SetupField, Writers, definition};

use super::run::settings as read_settings;
use crate::commands::Context;
use crate::exit::{Failure, Outcome};
use crate::prompt::{self, PromptAnswer};

#[derive(Clone, Debug, Args)]
pub(super) struct GatewaySetupArgs {
    /// Platform: telegram, discord, slack, email, api_server or webhook
    platform: Option<String>,
    /// Bot token
    #[arg(long)]
    token: Option<String>,
    /// Slack: app token
    #[arg(long)]
    app_token: Option<String>,
    /// Email: address
    #[arg(long)]
    address: Option<String>,
    /// Email: password
    #[arg(long)]
    password: Option<String>,
    /// Email: IMAP server
    #[arg(long, value_name = "HOST")]
    imap_host: Option<String>,
    /// Email: SMTP server
    #[arg(long, value_name = "HOST")]
    smtp_host: Option<String>,
    /// API server: key
    #[arg(long)]
    key: Option<String>,
    /// Webhook: signing secret
    #[arg(long)]
    secret: Option<String>,
    /// API server, webhook: port
    #[arg(long)]
    port: Option<u16>,
    /// Platform user ids that may message the agent (comma separated)
    #[arg(long, value_name = "ID", value_delimiter = ',')]
    allow: Option<Vec<String>>,
    /// Home channel: the chat for messages without another destination
    #[arg(long, value_name = "CHAT")]
    home_channel: Option<String>,
    /// Do not prompt; use only the flags
    #[arg(long, requires = "platform")]
    non_interactive: bool,
}

impl GatewaySetupArgs {
    fn given(&self, flag: &str) -> Option<String> {
        let value = match flag {
            "token" => self.token.clone(),
            "app-token" => self.app_token.clone(),
            "address" => self.address.clone(),
            "password" => self.password.clone(),
            "imap-host" => self.imap_host.clone(),
            "smtp-host" => self.smtp_host.clone(),
            "key" => self.key.clone(),
            "secret" => self.secret.clone(),
            "port" => self.port.map(|port| port.to_string()),
            _ => None,
        };
        value.map(|value| value.trim().to_owned())
    }
}

pub(super) fn run(args: &GatewaySetupArgs, cx: &Context) -> Outcome {
    let asks = cx.out.stdin_tty && cx.out.stderr_tty && !cx.no_input && !args.non_interactive;
    if !asks && args.platform.is_none() {
        return Err(Failure::usage(
            "there is no terminal to ask on; use flags: \
             hermes gateway setup telegram --token TOKEN --allow ID --non-interactive",
        ));
    }
    let Some(name) = &args.platform else {
        return wizard(args, cx);
    };
    let Some(kind) = find(name) else {
        let known: Vec<&str> = PLATFORMS.iter().map(|kind| kind.name).collect();
        return Err(Failure::usage(format!(
            "no platform {name}; available: {}",
            known.join(", ")
        )));
    };
    set_up(kind, args, cx, asks)?;
    end(cx)
}

fn find(name: &str) -> Option<&'static PlatformDef> {
    let name = name.trim().to_lowercase().replace('-', "_");
    let name = if name == "api" {
        "api_server".to_owned()
    } else {
        name
    };
    definition(&name)
}

fn wizard(args: &GatewaySetupArgs, cx: &Context) -> Outcome {
    loop {
        let cx = cx.reread()?;
        cx.out
            .remark("Which platform do you want to set up? (Enter: done)");
        for (number, kind) in PLATFORMS.iter().enumerate() {
            let mark = if is_set(kind, &cx) { "set up" } else { "" };
            cx.out
                .remark(format!("  {} {:<12} {mark}", number + 1, kind.name));
        }
        let answer = prompt::line("number or name: ")?.or_empty();
        if answer.is_empty() {
            return end(&cx);
        }
        let by_number = answer
            .parse::<usize>()
            .ok()
            .and_then(|number| PLATFORMS.get(number.checked_sub(1)?).copied());
        match by_number.or_else(|| find(&answer)) {
            Some(kind) => set_up(kind, args, &cx, true)?,
            None => cx.out.error(format!("no platform {answer}")),
        }
    }
}

fn is_set(kind: &PlatformDef, cx: &Context) -> bool {
    let set = |var: &str| {
        cx.env
            .get(var)
            .is_some_and(|value| !value.trim().is_empty())
    };
    let fields = kind.setup.fields.iter().filter(|field| field.required);
    match kind.setup.switch {
        Some(switch) => set(switch),
        None => fields.clone().count() > 0 && fields.into_iter().all(|field| set(field.var)),
    }
}

/// Asks for missing values, then writes everything.
fn set_up(kind: &PlatformDef, args: &GatewaySetupArgs, cx: &Context, asks: bool) -> Outcome {
    if asks {
        cx.out.remark(format!("{}: {}", kind.name, kind.setup.hint));
    }
    let mut changes: Vec<(String, String)> = Vec::new();
    for field in kind.setup.fields {
        let known = cx
            .env
            .get(field.var)
            .filter(|value| !value.trim().is_empty());
        let value = match args.given(field.flag) {
            Some(value) => value,
            None if asks => match ask_field(field, known.is_some())? {
                Some(value) => value,
                None => return Ok(()),
            },
            None => String::new(),
        };
        let value = match (value.is_empty(), known) {
            (false, _) => value,
            (true, None) if field.required => {
                return Err(Failure::usage(format!(
                    "--{} is missing: {}",
                    field.flag, field.question
                )));
            }
            (true, None) if field.secret => hermes_gateway::fresh_secret(),
            (true, _) => continue,
        };
        check(field, &value)?;
        changes.push((field.var.to_owned(), value));
    }
    if let Some(switch) = kind.setup.switch {
        changes.push((switch.to_owned(), "true".to_owned()));
    }
    if kind.writers == Writers::People {
        changes.extend(people(kind, args, cx, asks)?);
    }
    for (name, value) in &changes {
        writer::set(&cx.home.env_path(), name, value)
            .map_err(|error| Failure::failed(error.to_string()))?;
    }
    let names: Vec<&str> = changes.iter().map(|(name, _)| name.as_str()).collect();
    cx.out.line(format!(
        "{}: written to .env: {}",
        kind.name,
        names.join(", ")
    ))?;
    Ok(())
}

/// `None`: the person went back.
fn ask_field(field: &SetupField, known: bool) -> Result<Option<String>, Failure> {
    let keep = if known { " (empty: unchanged)" } else { "" };
    let question = format!("{}{keep}: ", field.question);
    let answer = if field.secret {
        prompt::secret(&question)?
    } else {
        prompt::line(&question)?
    };
    Ok(match answer {
        PromptAnswer::Line(line) => Some(line),
        PromptAnswer::Back => None,
    })
}

fn check(field: &SetupField, value: &str) -> Outcome {
    if value.contains(['\n', '\r', '\0']) {
        return Err(Failure::usage(format!("{}: more than one line", field.var)));
    }
    if field.secret && !is_usable_secret(value) {
        return Err(Failure::usage(format!(
            "{} looks like an example from a manual, not like a real one",
            field.var
        )));
    }
    if field.flag == "key" && value.len() < 16 {
        return Err(Failure::usage(
            "the key is too short: at least 16 characters",
        ));
    }
    Ok(())
}

/// Who may talk, and where home is.
fn people(
    kind: &PlatformDef,
    args: &GatewaySetupArgs,
    cx: &Context,
    asks: bool,
) -> Result<Vec<(String, String)>, Failure> {
    let prefix = kind.name.to_uppercase();
    let mut changes = Vec::new();
    let allowed = match &args.allow {
        Some(ids) => ids.join(","),
        None if asks => {
            let question = "who may talk to it? user ids, comma separated (empty: strangers get a code that you approve): ";
            prompt::line(question)?.or_empty()
        }
        None => String::new(),
    };
    let ids: Vec<&str> = allowed
        .split(',')
        .map(str::trim)
        .filter(|id| !id.is_empty())
        .collect();
    if ids.contains(&"*") {
        cx.out
            .error("then everyone may talk to it, and it runs commands on this machine");
    }
    if !ids.is_empty() {
        changes.push((format!("{prefix}_ALLOWED_USERS"), ids.join(",")));
    }
    if let Some(home) = &args.home_channel {
        changes.push((kind.home_var.to_owned(), home.trim().to_owned()));
    }
    Ok(changes)
}

/// The next steps.
fn end(cx: &Context) -> Outcome {
    let cx = cx.reread()?;
    let settings = read_settings(&cx)?;
    let on: Vec<&str> = settings.enabled().map(|one| one.name.as_str()).collect();
    if on.is_empty() {
        cx.out.remark("nothing is enabled yet");
        return Ok(());
    }
    let running = hermes_gateway::process::running(cx.home.root()).is_some();
    let next = if running {
        "hermes gateway restart"
    } else {
        "hermes gateway run, or as a service: hermes gateway install"
    };
    cx.out
        .remark(format!("enabled: {}; next: {next}", on.join(", ")));
    Ok(())
}

#[cfg(test)]
mod tests {
    use clap::Parser;
    use hermes_app::toolsets;

    use super::*;

    #[derive(Parser)]
    struct Alone {
        #[command(flatten)]
        args: GatewaySetupArgs,
    }

    #[test]
    fn every_platform_can_be_set_up_by_flags_and_has_tools() {
        for platform in PLATFORMS {
            for field in platform.setup.fields {
                let flag = format!("--{}", field.flag);
                let alone = Alone::try_parse_from(["setup", &flag, "7"]).unwrap();
                let given = alone.args.given(field.flag);
                assert_eq!(given.as_deref(), Some("7"), "{flag}");
            }
            let name = platform.name;
            assert!(toolsets::PLATFORMS.contains(&name), "{name}");
        }
    }
}

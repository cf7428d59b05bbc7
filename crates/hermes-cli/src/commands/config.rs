//! `hermes config`: read, change, check and migrate config.yaml and `.env`.

pub(in crate::commands) mod check;
mod edit;
mod show;

use std::io::Read as _;

use hermes_config::settings::{self, SetOptions, SettingChange, SettingError, SettingTarget};
use hermes_config::{migrate, redact, secrets, yaml};
use serde_json::{Value, json};

use crate::commands::Context;
use crate::exit::{Exit, Failure, Outcome};

#[derive(Debug, clap::Args)]
pub(crate) struct ConfigArgs {
    #[command(subcommand)]
    command: Option<ConfigCommand>,
}

#[derive(Debug, clap::Subcommand)]
enum ConfigCommand {
    /// Print the value of a key, or its default, with secrets masked; exits 1 if it has none
    Get {
        /// Dotted path, or the name of a variable such as OPENROUTER_API_KEY
        key: String,
        /// Also print secrets
        #[arg(long)]
        reveal: bool,
        /// Print as JSON
        #[arg(long)]
        json: bool,
    },
    /// Set a key, keeping the comments and layout of the file
    Set {
        /// Dotted path; keys and tokens (`…_API_KEY`, `…_TOKEN`) go to .env
        key: String,
        /// The value; `-` reads it from stdin
        #[arg(allow_hyphen_values = true)]
        value: String,
        /// Parse the value as JSON
        #[arg(long)]
        json: bool,
        /// Write the value even if the key requires another type
        #[arg(long)]
        force: bool,
    },
    /// Remove a key, restoring its default
    Unset { key: String },
    /// Print the path of config.yaml
    Path {
        /// Print as JSON
        #[arg(long)]
        json: bool,
    },
    /// Print the path of .env
    EnvPath {
        /// Print as JSON
        #[arg(long)]
        json: bool,
    },
    /// Check the configuration for errors
    Check {
        /// Print as JSON
        #[arg(long)]
        json: bool,
    },
    /// Print the settings, without secrets
    Show {
        /// Include defaults
        #[arg(long)]
        all: bool,
        /// Print as JSON
        #[arg(long)]
        json: bool,
    },
    /// Open config.yaml in $EDITOR
    Edit,
    /// Migrate old settings to the current format
    Migrate {
        /// Show what would change, without changing anything
        #[arg(long)]
        dry_run: bool,
        /// Print as JSON
        #[arg(long)]
        json: bool,
    },
}

pub(crate) fn run(args: ConfigArgs, cx: &Context) -> Outcome {
    let command = args.command.unwrap_or(ConfigCommand::Show {
        all: false,
        json: false,
    });
    match command {
        ConfigCommand::Get { key, reveal, json } => get(cx, &key, reveal, json),
        ConfigCommand::Set {
            key,
            value,
            json,
            force,
        } => set(cx, &key, value, SetOptions { json, force }),
        ConfigCommand::Unset { key } => unset(cx, &key),
        ConfigCommand::Path { json } => print_path(cx, &cx.home.config_path(), json),
        ConfigCommand::EnvPath { json } => print_path(cx, &cx.home.env_path(), json),
        ConfigCommand::Check { json } => check::run(cx, json),
        ConfigCommand::Show { all, json } => show::run(cx, all, json),
        ConfigCommand::Edit => edit::run(cx),
        ConfigCommand::Migrate { dry_run, json } => migrate(cx, dry_run, json),
    }
}

fn print_path(cx: &Context, path: &std::path::Path, as_json: bool) -> Outcome {
    if as_json {
        return Ok(cx
            .out
            .json(&json!({"path": path, "exists": path.exists()}))?);
    }
    Ok(cx.out.line(path.display().to_string())?)
}

fn get(cx: &Context, key: &str, reveal: bool, json: bool) -> Outcome {
    let loaded = cx.load_config()?;
    let usage = |error: hermes_config::edit::PathError| Failure::usage(error.to_string());
    let value = settings::get(&loaded, &cx.env, key).map_err(usage)?;
    let value = value.ok_or_else(|| Failure::failed(settings::absent(key)))?;
    let value = match settings::target(key).map_err(usage)? {
        _ if reveal => value,
        SettingTarget::Env(name) if secrets::is_secret_name(&name) => {
            json!(redact::mask(value.as_str().unwrap_or_default()))
        }
        SettingTarget::Env(_) => redact::redact(&value),
        SettingTarget::Config(path) => redact::redact_below(path.parts(), &value),
    };
    if json {
        cx.out.json(&value)?;
    } else {
        cx.out.line(plain(&value))?;
    }
    Ok(())
}

/// A value as a person reads it: text bare, the rest as YAML.
fn plain(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        other => yaml::to_block(other),
    }
}

fn set(cx: &Context, key: &str, value: String, options: SetOptions) -> Outcome {
    let value = if value == "-" { from_stdin()? } else { value };
    let change = settings::set(&cx.home, &cx.env, key, &value, options)
        .map_err(|error| setting_failure(&error))?;
    let shown = match &change.value {
        Some(value) => {
            let path: Vec<String> = change.key.split('.').map(str::to_owned).collect();
            let hidden = redact::is_secret_path(&path);
            let shown = redact::redact_below(&path, value);
            (!hidden).then(|| format!(" = {}", yaml::to_flow(&shown)))
        }
        None => None,
    };
    report(cx, "set", &change, &shown.unwrap_or_default())
}

fn from_stdin() -> Result<String, Failure> {
    let mut text = String::new();
    std::io::stdin()
        .read_to_string(&mut text)
        .map_err(|error| Failure::failed(format!("cannot read the value from stdin: {error}")))?;
    Ok(text.trim_end_matches(['\n', '\r']).to_owned())
}

fn unset(cx: &Context, key: &str) -> Outcome {
    let change = settings::unset(&cx.home, &cx.env, key)
        .map_err(|error| setting_failure(&error))?
        .ok_or_else(|| Failure::failed(format!("{key} is not set")))?;
    report(cx, "unset", &change, "")
}

fn report(cx: &Context, done: &str, change: &SettingChange, shown: &str) -> Outcome {
    let file = change.file.display();
    cx.out
        .line(format!("{done} {}{shown} in {file}", change.key))?;
    for note in &change.notes {
        cx.out.remark(format!("note: {note}"));
    }
    Ok(())
}

/// What was typed wrong is a usage error; what the files or the machine refuse is a failure.
fn setting_failure(error: &SettingError) -> Failure {
    use hermes_config::edit::EditError;
    use hermes_config::env::writer::EnvWriteError;
    let exit = match error {
        SettingError::Path(_)
        | SettingError::WrongType { .. }
        | SettingError::Invalid { .. }
        | SettingError::Section(_)
        | SettingError::Json(..)
        | SettingError::Edit(EditError::NotASection { .. } | EditError::NoSuchIndex { .. })
        | SettingError::Env(EnvWriteError::InvalidName(_) | EnvWriteError::DeniedName(_)) => {
            Exit::Usage
        }
        SettingError::Managed { .. } => Exit::Refused,
        SettingError::Edit(EditError::Changed(_)) => Exit::Busy,
        _ => Exit::Failed,
    };
    Failure::new(exit, error.to_string())
}

fn migrate(cx: &Context, dry_run: bool, json: bool) -> Outcome {
    let report = migrate::run(&cx.home, &cx.env, dry_run)
        .map_err(|error| Failure::failed(error.to_string()))?;
    if json {
        cx.out.json(&json!({
            "from": report.from,
            "to": report.to,
            "changes": report.notes,
            "written": !dry_run && !report.is_empty(),
        }))?;
        return Ok(());
    }
    if report.is_empty() {
        cx.out.line("nothing to migrate")?;
    }
    for note in &report.notes {
        cx.out.line(note)?;
    }
    if dry_run && !report.is_empty() {
        cx.out.remark("nothing was written (--dry-run)");
    }
    Ok(())
}

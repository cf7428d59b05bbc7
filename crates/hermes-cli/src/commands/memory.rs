//! `hermes memory`: shows and edits the memory files.

use std::io::{self, BufRead as _};

use clap::{Args, Subcommand, ValueEnum};
use hermes_config::Config;
use hermes_config::edit::{ConfigDoc, KeyPath};
use hermes_config::fs::LockError;
use hermes_store::{
    MemoryError, MemoryFiles, MemoryStatus, MemoryTarget, PendingWrites, Subsystem,
};
use serde_json::json;

use crate::commands::{Context, waiting};
use crate::exit::{Exit, Failure, Outcome};

#[derive(Debug, Args)]
pub(crate) struct MemoryArgs {
    #[command(subcommand)]
    action: Option<Action>,
}

#[derive(Debug, Subcommand)]
enum Action {
    /// Show how full memory is and what is enabled (the default)
    Status {
        /// Print as JSON
        #[arg(long)]
        json: bool,
    },
    /// Print the entries
    Show {
        /// Which memory: the agent's own notes, what it knows about you, or both
        #[arg(long, value_enum, default_value_t = MemoryFileFilter::All)]
        target: MemoryFileFilter,
        /// Print as JSON
        #[arg(long)]
        json: bool,
    },
    /// Add an entry
    Add {
        text: String,
        /// Which memory: the agent's own notes, or what it knows about you
        #[arg(long, value_enum, default_value_t = MemoryFileArg::Memory)]
        target: MemoryFileArg,
    },
    /// Remove the entry that contains this text
    Remove {
        text: String,
        /// Which memory: the agent's own notes, or what it knows about you
        #[arg(long, value_enum, default_value_t = MemoryFileArg::Memory)]
        target: MemoryFileArg,
    },
    /// Delete every entry
    Reset {
        /// Which memory: the agent's own notes, what it knows about you, or both
        #[arg(long, value_enum, default_value_t = MemoryFileFilter::All)]
        target: MemoryFileFilter,
        /// Do not ask for confirmation
        #[arg(short, long)]
        yes: bool,
    },
    /// Disable the external memory provider; use only the two files
    Off,
    /// List changes that wait for approval
    Pending {
        /// Print as JSON
        #[arg(long)]
        json: bool,
    },
    /// Approve a pending change
    Approve { id: String },
    /// Reject a pending change
    Reject { id: String },
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum MemoryFileFilter {
    All,
    Memory,
    User,
}

impl MemoryFileFilter {
    fn targets(self) -> &'static [MemoryTarget] {
        match self {
            Self::All => &MemoryTarget::ALL,
            Self::Memory => &[MemoryTarget::Memory],
            Self::User => &[MemoryTarget::User],
        }
    }
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum MemoryFileArg {
    Memory,
    User,
}

impl From<MemoryFileArg> for MemoryTarget {
    fn from(one: MemoryFileArg) -> Self {
        match one {
            MemoryFileArg::Memory => Self::Memory,
            MemoryFileArg::User => Self::User,
        }
    }
}

pub(crate) fn run(args: MemoryArgs, cx: &Context) -> Outcome {
    let config = cx.config()?;
    let files = MemoryFiles::for_home(&cx.home, &config);
    let pending = PendingWrites::new(cx.home.root());
    match args.action.unwrap_or(Action::Status { json: false }) {
        Action::Status { json } => status(cx, &config, &files, &pending, json),
        Action::Show { target, json } => show(cx, &files, target, json),
        Action::Add { text, target } => report(cx, files.add(target.into(), &text)),
        Action::Remove { text, target } => report(cx, files.remove(target.into(), &text)),
        Action::Reset { target, yes } => reset(cx, &files, target, yes),
        Action::Off => off(cx, &config),
        Action::Pending { json } => waiting::list(cx, Subsystem::Memory, json),
        Action::Approve { id } => {
            let write = waiting::find(cx, Subsystem::Memory, &id)?;
            report(cx, files.apply_pending(&write.payload))?;
            waiting::discard(cx, Subsystem::Memory, &write)
        }
        Action::Reject { id } => waiting::reject(cx, Subsystem::Memory, &id),
    }
}

fn status(
    cx: &Context,
    config: &Config,
    files: &MemoryFiles,
    pending: &PendingWrites,
    as_json: bool,
) -> Outcome {
    let settings = &config.memory;
    let waiting = pending.list(Subsystem::Memory)?.len();
    let mut value = json!({
        "provider": settings.provider,
        "write_approval": settings.write_approval,
        "pending": waiting,
    });
    let mut lines = Vec::new();
    let mut broken = false;
    for target in MemoryTarget::ALL {
        let enabled = match target {
            MemoryTarget::Memory => settings.memory_enabled,
            MemoryTarget::User => settings.user_profile_enabled,
        };
        let mut row = json!({ "path": files.path(target), "enabled": enabled });
        let shown = match files.usage(target) {
            Ok(usage) => {
                row["entries"] = json!(usage.entry_count);
                row["used"] = json!(usage.used);
                row["limit"] = json!(usage.limit);
                let plural = if usage.entry_count == 1 { "y" } else { "ies" };
                format!("{} entr{plural}, {}", usage.entry_count, usage.usage())
            }
            Err(error) => {
                broken = true;
                row["error"] = json!(error.to_string());
                error.to_string()
            }
        };
        let off = if enabled { "" } else { " (switched off)" };
        lines.push(format!("{:<10} {shown}{off}", target.file_name()));
        value[target.as_str()] = row;
    }
    if as_json {
        cx.out.json(&value)?;
    } else {
        for line in lines {
            cx.out.line(line)?;
        }
        let provider = match settings.provider.as_str() {
            "" => "none",
            name => name,
        };
        cx.out.line(format!("Provider   {provider}"))?;
        if waiting > 0 {
            cx.out
                .line(format!("Waiting    {waiting}; see: hermes memory pending"))?;
        }
    }
    if broken {
        return Err(Failure::silent(Exit::Failed));
    }
    Ok(())
}

fn show(cx: &Context, files: &MemoryFiles, which: MemoryFileFilter, as_json: bool) -> Outcome {
    let mut value = json!({});
    for target in which.targets() {
        let entries = files.entries(*target).map_err(|error| failure(&error))?;
        value[target.as_str()] = json!(entries);
        if as_json {
            continue;
        }
        cx.out.line(target.file_name())?;
        for entry in &entries {
            cx.out
                .foreign_line(&format!("- {}", entry.replace('\n', "\n  ")))?;
        }
        if entries.is_empty() {
            cx.out.line("(nothing)")?;
        }
    }
    if as_json {
        cx.out.json(&value)?;
    }
    Ok(())
}

fn reset(cx: &Context, files: &MemoryFiles, which: MemoryFileFilter, yes: bool) -> Outcome {
    let names: Vec<&str> = which
        .targets()
        .iter()
        .map(|target| target.file_name())
        .collect();
    let names = names.join(" and ");
    if !yes && !confirmed(cx, &format!("Delete every entry of {names}?"))? {
        return Err(Failure::new(Exit::Failed, "nothing was changed"));
    }
    for target in which.targets() {
        let gone = files.reset(*target).map_err(|error| failure(&error))?;
        cx.out
            .line(format!("{}: {} deleted", target.file_name(), gone.len()))?;
    }
    Ok(())
}

/// Asks on the terminal. Where nobody can answer, that is an error and not a no.
fn confirmed(cx: &Context, question: &str) -> Result<bool, Failure> {
    if cx.no_input || !cx.out.stdin_tty {
        return Err(Failure::usage(format!(
            "{question} Pass --yes to confirm without a terminal"
        )));
    }
    cx.out.question(&format!("{question} [y/N] "))?;
    let mut answer = String::new();
    io::stdin().lock().read_line(&mut answer)?;
    Ok(matches!(answer.trim().to_lowercase().as_str(), "y" | "yes"))
}

fn off(cx: &Context, config: &Config) -> Outcome {
    if config.memory.provider.is_empty() {
        return Ok(cx
            .out
            .line("No external provider is in use; memory is in the two files.")?);
    }
    let failed = |error: hermes_config::edit::EditError| Failure::failed(error.to_string());
    let mut doc = ConfigDoc::open(&cx.home.config_path()).map_err(failed)?;
    doc.set(&KeyPath::new(["memory", "provider"]), &json!(""))
        .map_err(failed)?;
    doc.save().map_err(failed)?;
    Ok(cx.out.line(format!(
        "The provider {} is off; memory is in the two files only.",
        config.memory.provider
    ))?)
}

fn report(cx: &Context, result: Result<MemoryStatus, MemoryError>) -> Outcome {
    let saved = result.map_err(|error| failure(&error))?;
    let file = saved.target.file_name();
    Ok(cx
        .out
        .line(format!("{} {file}: {}", saved.message, saved.usage()))?)
}

/// Entries listed in an error, the newest.
const MAX_LISTED: usize = 20;

fn failure(error: &MemoryError) -> Failure {
    let exit = match error {
        MemoryError::NoMatch { .. } => Exit::NotFound,
        MemoryError::Locked(LockError::Busy(_)) => Exit::Busy,
        MemoryError::Missing { .. } => Exit::Usage,
        _ => Exit::Failed,
    };
    let details = error.to_json();
    // The error's own words are for the model, which sees fields where a person sees lines.
    let entries: Vec<&str> = ["current_entries", "matches"]
        .iter()
        .flat_map(|key| details[*key].as_array().into_iter().flatten())
        .filter_map(|entry| entry.as_str())
        .collect();
    let mut text = match error {
        MemoryError::NoMatch { old_text, .. } if entries.is_empty() => {
            format!("no entry contains {old_text:?}; there are none")
        }
        MemoryError::NoMatch { old_text, .. } => {
            format!("no entry contains {old_text:?}; there are:")
        }
        MemoryError::Full { needed, limit, .. } if entries.is_empty() => {
            format!("{needed} characters are more than the {limit} that fit; shorten the entry")
        }
        MemoryError::Full { needed, limit, .. } => format!(
            "it would hold {needed} of {limit} characters; remove or shorten an entry first:"
        ),
        // Trying again helps against a lock, not against missing rights.
        MemoryError::Locked(error @ LockError::Io { .. }) => error.to_string(),
        other => other.to_string(),
    };
    let hidden = entries.len().saturating_sub(MAX_LISTED);
    for entry in &entries[hidden..] {
        text.push_str("\n  - ");
        text.push_str(&entry.replace('\n', "\n    "));
    }
    if hidden > 0 {
        text.push_str("\n  and older ones: hermes memory show");
    }
    Failure::new(exit, text)
}

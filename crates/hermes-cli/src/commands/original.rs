//! Commands of Hermes Agent that are not here, and what to do instead. Nobody who types one should
//! be sent to a command that merely looks like it.

use std::ffi::OsString;

use clap::CommandFactory as _;
use clap::error::{ContextKind, ContextValue, ErrorKind};

use crate::args::Cli;
use crate::exit::Failure;

mod flags;

/// The command, and what to do instead. One row stands for everything below it, unless a longer one
/// fits.
const ROWS: &[(&str, &str)] = &[
    (
        "login",
        "to add a key: hermes auth add PROVIDER (logging in with another vendor's account is not supported)",
    ),
    ("logout", "to delete a key: hermes auth remove PROVIDER"),
    (
        "portal",
        "to use the Nous provider, add its key: hermes auth add nous",
    ),
    (
        "moa",
        "presets live in config.yaml (moa.presets); to enable them: hermes tools enable moa",
    ),
    (
        "secrets",
        "Bitwarden and 1Password are not built in; let them fill the environment (bws run -- hermes, op run -- hermes), or store keys with: hermes config set NAME_API_KEY VALUE",
    ),
    ("migrate", "to migrate old settings: hermes config migrate"),
    (
        "gateway migrate-legacy",
        "to replace an old service: hermes gateway install --force",
    ),
    (
        "gateway enroll",
        "connectors are not supported; to set up a platform: hermes gateway setup",
    ),
    (
        "proxy",
        "there is no proxy; the gateway serves an OpenAI-compatible API: see docs/api-server.md",
    ),
    (
        "lsp",
        "language servers are not built in; the agent runs a project's own checks in the terminal",
    ),
    (
        "postinstall",
        "nothing needs to be done after installing; to check the installation: hermes doctor",
    ),
    (
        "whatsapp",
        "WhatsApp is not supported; for supported platforms: hermes gateway setup",
    ),
    (
        "whatsapp-cloud",
        "WhatsApp is not supported; for supported platforms: hermes gateway setup",
    ),
    (
        "slack",
        "to set up Slack: hermes gateway setup slack; the manifest is in docs/slack.md",
    ),
    (
        "send",
        "to send a message, schedule a job: hermes cron create 1m PROMPT --deliver telegram:CHAT, or create a route: hermes webhook subscribe",
    ),
    ("auth spotify", "Spotify is not built in"),
    (
        "kanban",
        "boards are not built in, and kanban.db is left unchanged; to schedule jobs: hermes cron",
    ),
    (
        "project",
        "projects are not built in, and projects.db is left unchanged; start hermes in the project's directory",
    ),
    ("hooks doctor", "to check hooks: hermes hooks list"),
    (
        "security",
        "to see what commands may do: hermes approvals list; to see the sandbox: hermes status",
    ),
    (
        "dump",
        "to print the configuration without keys: hermes status --json",
    ),
    (
        "debug",
        "nothing is uploaded; to describe a problem: hermes status, hermes doctor, hermes logs",
    ),
    ("console", "there is no separate console; to chat: hermes"),
    (
        "skills browse",
        "the hub is not built in; to add a skill, copy its directory (with SKILL.md) to skills/ in the home",
    ),
    (
        "skills search",
        "the hub is not built in; to list installed skills: hermes skills list",
    ),
    (
        "skills install",
        "the hub is not built in; to install a skill, copy its directory (with SKILL.md) to skills/ in the home",
    ),
    (
        "skills inspect",
        "the hub is not built in; to read an installed skill: hermes skills show NAME",
    ),
    (
        "skills check",
        "skills are not updated automatically; to list them: hermes skills list",
    ),
    (
        "skills update",
        "skills are not updated automatically; replace the skill's directory in skills/ of the home",
    ),
    ("skills audit", "to read a skill: hermes skills show NAME"),
    (
        "skills uninstall",
        "to uninstall a skill, delete its directory in skills/ of the home",
    ),
    (
        "skills reset",
        "no skills are bundled; installed ones are directories in skills/ of the home",
    ),
    (
        "skills list-modified",
        "no skills are bundled; to list installed ones: hermes skills list",
    ),
    (
        "skills diff",
        "no skills are bundled; to list installed ones: hermes skills list",
    ),
    (
        "skills opt-out",
        "no skills are bundled, so there is nothing to opt out of",
    ),
    (
        "skills opt-in",
        "no skills are bundled; to list installed ones: hermes skills list",
    ),
    (
        "skills repair-official",
        "no skills are bundled; installed ones are never changed",
    ),
    (
        "skills publish",
        "publishing is not built in; put the skill's directory in a git repository",
    ),
    (
        "skills snapshot",
        "skills are included in: hermes backup, and in: hermes profile export",
    ),
    (
        "skills tap",
        "the hub is not built in; to use other skill directories, set skills.external_dirs in config.yaml",
    ),
    (
        "skills config",
        "to disable a skill: hermes config set skills.disabled '[NAME]'",
    ),
    (
        "plugins",
        "Python plugins are not supported; use an MCP server (hermes mcp add) or a hook (hermes hooks) instead",
    ),
    (
        "curator",
        "there is no curator; to see what the agent learned: hermes skills list, hermes memory",
    ),
    ("pets", "pets are not built in"),
    (
        "journey",
        "to browse past conversations: hermes sessions browse; for tokens and cost: hermes insights",
    ),
    (
        "memory setup",
        "memory is stored in two files in the home (hermes memory); external memory services are not supported",
    ),
    (
        "tools post-setup",
        "tools need no separate setup; to see what a tool is missing: hermes tools list",
    ),
    ("computer-use", "desktop control is not built in"),
    (
        "mcp picker",
        "to add a server: hermes mcp add NAME --command … (or --url …)",
    ),
    (
        "mcp catalog",
        "there is no catalogue; to add a server: hermes mcp add NAME --command … (or --url …)",
    ),
    (
        "mcp install",
        "to add a server: hermes mcp add NAME --command … (or --url …)",
    ),
    (
        "claw",
        "migrating from OpenClaw is not built in; copy SOUL.md, MEMORY.md and skills into the home, and store keys with: hermes config set NAME_API_KEY VALUE",
    ),
    (
        "profile describe",
        "the description is in profile.yaml in the profile's home",
    ),
    (
        "profile alias",
        "use a shell alias instead: alias work='hermes -p work'",
    ),
    (
        "profile install",
        "to import a profile from a file: hermes profile import FILE",
    ),
    (
        "profile update",
        "to import a profile from a file: hermes profile import FILE",
    ),
    (
        "profile info",
        "to see what a profile contains: hermes profile show NAME",
    ),
    (
        "dashboard",
        "there is no web interface; in the terminal: hermes, hermes status, hermes insights",
    ),
    (
        "serve",
        "the API server is part of the gateway: see docs/api-server.md, then: hermes gateway run",
    ),
    (
        "desktop",
        "there is no desktop application; in the terminal: hermes",
    ),
    (
        "prompt-size",
        "to see what a prompt costs, use in the chat: /usage, /context",
    ),
    ("whoami", "to see what is configured: hermes status"),
    (
        "honcho",
        "memory is stored in two files in the home (hermes memory); external memory services are not supported",
    ),
    ("upgrade", "to update hermes: hermes update"),
    ("run", "to ask once: hermes -z \"…\"; to chat: hermes"),
];

/// What to do about arguments that name a command or a flag of the original which is not here.
pub(crate) fn advice(args: &[OsString], error: &clap::Error) -> Option<Failure> {
    command_advice(args).or_else(|| flag_advice(args, error))
}

/// What to do about a flag, or the value of one, that only the original has.
fn flag_advice(args: &[OsString], error: &clap::Error) -> Option<Failure> {
    let kind = match error.kind() {
        ErrorKind::UnknownArgument => ContextKind::InvalidArg,
        ErrorKind::InvalidValue => ContextKind::InvalidValue,
        _ => return None,
    };
    let Some(ContextValue::String(unknown)) = error.get(kind) else {
        return None;
    };
    // `--flag=value` is reported whole.
    let unknown = unknown.split('=').next().unwrap_or_default();
    let path = command_path(args);
    let (_, _, instead) = flags::ROWS.iter().find(|(command, names, _)| {
        (*command == path || command.is_empty() && matches!(&*path, "" | "chat"))
            && names.contains(&unknown)
    })?;
    let command = format!("hermes {path}");
    Some(Failure::usage(format!(
        "{unknown} of {} in Hermes Agent is not available here; {instead}",
        command.trim_end()
    )))
}

/// The command that the arguments name, without the program: `sessions export`.
fn command_path(args: &[OsString]) -> String {
    let mut command = Cli::command();
    let mut path: Vec<String> = Vec::new();
    for word in args.iter().skip(1).filter_map(|arg| arg.to_str()) {
        if let Some(found) = command.find_subcommand(word).cloned() {
            path.push(found.get_name().to_owned());
            command = found;
        }
    }
    path.join(" ")
}

/// What to do instead of a command of the original which is not here.
pub(crate) fn instead_of(words: &[&str]) -> Option<Failure> {
    let args: Vec<OsString> = ["hermes"].iter().chain(words).map(Into::into).collect();
    command_advice(&args)
}

fn command_advice(args: &[OsString]) -> Option<Failure> {
    let words: Vec<&str> = args
        .iter()
        .skip(1)
        .filter_map(|arg| arg.to_str())
        .filter(|word| !word.starts_with('-'))
        .collect();
    let ours = Cli::command();
    // Values of flags may stand before the command.
    let first = words.iter().position(|word| {
        ours.find_subcommand(word).is_some()
            || ROWS
                .iter()
                .any(|(path, _)| path.split(' ').next() == Some(word))
    })?;
    let words = &words[first..];
    if is_ours(&ours, words) {
        return None;
    }
    let (path, instead) = ROWS
        .iter()
        .filter(|(path, _)| {
            let parts: Vec<&str> = path.split(' ').collect();
            words.starts_with(&parts)
        })
        .max_by_key(|(path, _)| path.len())?;
    Some(Failure::usage(format!(
        "hermes {path} is a command of Hermes Agent that is not available here; {instead}"
    )))
}

/// Whether the words name a command that exists, as far as they name one.
fn is_ours(ours: &clap::Command, words: &[&str]) -> bool {
    let Some(group) = words.first().and_then(|word| ours.find_subcommand(word)) else {
        return false;
    };
    match words.get(1) {
        Some(word) if group.has_subcommands() => group.find_subcommand(word).is_some(),
        _ => true,
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use super::*;

    /// Whoever follows the advice must not be sent to another command that is not there.
    #[test]
    fn advice_names_commands_that_are_here() {
        let ours = Cli::command();
        for (path, instead) in ROWS {
            for piece in instead.split("hermes ").skip(1) {
                let words: Vec<&str> = piece
                    .split(|c: char| c.is_whitespace() || matches!(c, ',' | ';' | ')' | '(' | '\''))
                    .take_while(|word| word.starts_with(|c: char| c.is_ascii_lowercase()))
                    .take(2)
                    .collect();
                if words
                    .first()
                    .is_some_and(|word| ours.find_subcommand(word).is_some())
                {
                    assert!(is_ours(&ours, &words), "{path}: hermes {}", words.join(" "));
                }
            }
            for (at, _) in instead.match_indices(" /") {
                let name: String = instead[at + 2..]
                    .chars()
                    .take_while(char::is_ascii_lowercase)
                    .collect();
                let typed = format!("/{name}");
                let known = matches!(
                    hermes_core::slash::parse(&typed),
                    hermes_core::slash::Parsed::Command(..)
                );
                assert!(known, "{path}: {typed}");
            }
        }
    }

    /// Every command, flag and value of a flag that Hermes Agent 0.19 knows.
    const KNOWN: &str = include_str!("original/known.txt");

    /// Nobody who types what the original takes is left with "unexpected argument" or a guess.
    #[test]
    fn whatever_the_original_takes_is_taken_or_answered() {
        let mut unanswered = Vec::new();
        for line in KNOWN.lines() {
            let args: Vec<OsString> = format!("hermes {line}")
                .split(' ')
                .map(Into::into)
                .collect();
            let Err(error) = Cli::try_parse_from(&args) else {
                continue;
            };
            let unknown = matches!(
                error.kind(),
                ErrorKind::UnknownArgument | ErrorKind::InvalidSubcommand | ErrorKind::InvalidValue
            );
            // `1` stands for any value, so it may be none that fits.
            let placeholder = error.kind() == ErrorKind::InvalidValue && line.ends_with(" 1");
            if unknown && !placeholder && advice(&args, &error).is_none() {
                unanswered.push(format!("{line}: {}", error.kind()));
            }
        }
        assert!(unanswered.is_empty(), "{}", unanswered.join("\n"));
    }

    #[test]
    fn flags_of_the_original_name_the_way_here() {
        let args: Vec<OsString> = "hermes sessions export out.md --format qmd"
            .split(' ')
            .map(Into::into)
            .collect();
        let error = Cli::try_parse_from(&args).unwrap_err();
        let failure = advice(&args, &error).unwrap();
        assert_eq!(
            failure.message,
            "qmd of hermes sessions export in Hermes Agent is not available here; formats are jsonl, md and html"
        );
    }

    #[test]
    fn rows_name_what_is_not_here() {
        let ours = Cli::command();
        for (path, _) in ROWS {
            let words: Vec<&str> = path.split(' ').collect();
            assert!(!is_ours(&ours, &words), "{path} is here");
        }
    }
}

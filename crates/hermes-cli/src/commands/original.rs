//! Commands of Hermes Agent that are not here, and what to do instead. Nobody who types one should
//! be sent to a command that merely looks like it.

use std::ffi::OsString;

use clap::CommandFactory as _;

use crate::args::Cli;
use crate::exit::Failure;

/// The command, and what to do instead. One row stands for everything below it, unless a longer one
/// fits.
const ROWS: &[(&str, &str)] = &[
    (
        "login",
        "keys are added with: hermes auth add PROVIDER; logins of other vendors' clients are not built in",
    ),
    ("logout", "to take a key away: hermes auth remove PROVIDER"),
    (
        "portal",
        "the Nous provider is used with its key: hermes auth add nous; its web pages open in a browser",
    ),
    (
        "moa",
        "several models on one question are presets in config.yaml (moa.presets); hermes tools enable moa switches them on",
    ),
    (
        "secrets",
        "Bitwarden and 1Password are not built in; let them fill the environment (bws run -- hermes, op run -- hermes), or write keys with: hermes config set NAME_API_KEY VALUE",
    ),
    (
        "migrate",
        "old settings are rewritten with: hermes config migrate",
    ),
    (
        "gateway migrate-legacy",
        "old services are replaced with: hermes gateway install --force",
    ),
    (
        "gateway enroll",
        "enrolling at a connector is not built in; platforms are set up with: hermes gateway setup",
    ),
    (
        "proxy",
        "there is no proxy for other programs; hermes serves the OpenAI API itself: see docs/api-server.md",
    ),
    (
        "lsp",
        "language servers are not built in; the agent runs a project's own checks in the terminal",
    ),
    (
        "postinstall",
        "there is nothing to do after installing; to check: hermes doctor",
    ),
    (
        "whatsapp",
        "WhatsApp is not built in; platforms that are: hermes gateway setup",
    ),
    (
        "whatsapp-cloud",
        "WhatsApp is not built in; platforms that are: hermes gateway setup",
    ),
    (
        "slack",
        "Slack is set up with: hermes gateway setup slack; the manifest is in docs/slack.md",
    ),
    (
        "send",
        "messages are sent by a job: hermes cron create 1m PROMPT --deliver telegram:CHAT, or by a route: hermes webhook subscribe",
    ),
    ("auth spotify", "Spotify is not built in"),
    (
        "kanban",
        "boards are not built in; kanban.db is left as it is. Jobs: hermes cron; tasks of a conversation: the todo tool",
    ),
    (
        "project",
        "projects are not built in; start hermes in the directory of the project, projects.db is left as it is",
    ),
    (
        "hooks doctor",
        "what is wrong with hooks: hermes hooks list",
    ),
    (
        "security",
        "what commands may do: hermes approvals list; what confines them: hermes status",
    ),
    (
        "dump",
        "what is configured, as JSON and without keys: hermes status --json",
    ),
    (
        "debug",
        "nothing is uploaded from here; to describe a problem: hermes status, hermes doctor, hermes logs",
    ),
    ("console", "there is no console of its own; to chat: hermes"),
    (
        "skills browse",
        "the hub is not built in; a skill is a directory with SKILL.md below skills/ of the home: copy it there",
    ),
    (
        "skills search",
        "the hub is not built in; skills of this home: hermes skills list",
    ),
    (
        "skills install",
        "the hub is not built in; a skill is a directory with SKILL.md: copy it below skills/ of the home",
    ),
    (
        "skills inspect",
        "the hub is not built in; to read a skill of this home: hermes skills show NAME",
    ),
    (
        "skills check",
        "skills are not updated from here; those of this home: hermes skills list",
    ),
    (
        "skills update",
        "skills are not updated from here; copy the new one over the old below skills/ of the home",
    ),
    (
        "skills audit",
        "skills of this home are read with: hermes skills show NAME",
    ),
    (
        "skills uninstall",
        "to take a skill away, delete its directory below skills/ of the home",
    ),
    (
        "skills reset",
        "no skills come with this program; those of the home are files below skills/",
    ),
    (
        "skills list-modified",
        "no skills come with this program; those of the home: hermes skills list",
    ),
    (
        "skills diff",
        "no skills come with this program; those of the home: hermes skills list",
    ),
    (
        "skills opt-out",
        "no skills come with this program; there is nothing to leave out",
    ),
    ("skills opt-in", "no skills come with this program"),
    (
        "skills repair-official",
        "no skills come with this program; those of the home are left as they are",
    ),
    (
        "skills publish",
        "skills are not published from here; a skill is a directory that git can hold",
    ),
    (
        "skills snapshot",
        "skills are part of: hermes backup, and of: hermes profile export",
    ),
    (
        "skills tap",
        "the hub is not built in; directories with skills are named in config.yaml (skills.external_dirs)",
    ),
    (
        "skills config",
        "skills are switched off in config.yaml: hermes config set skills.disabled '[NAME]'",
    ),
    (
        "plugins",
        "plugins in Python are not run; what they add can come from an MCP server (hermes mcp add) or a hook (hermes hooks)",
    ),
    (
        "curator",
        "skills are not curated by themselves; what the agent learned: hermes skills list, hermes memory",
    ),
    ("pets", "there are no pets here"),
    (
        "journey",
        "past conversations: hermes sessions browse; tokens and cost: hermes insights",
    ),
    (
        "memory setup",
        "memory is two files of the home (hermes memory); other memory services are not built in",
    ),
    (
        "tools post-setup",
        "tools need no setup of their own; what one lacks: hermes tools list",
    ),
    ("computer-use", "driving the desktop is not built in"),
    (
        "mcp picker",
        "servers are added with: hermes mcp add NAME --command … (or --url …)",
    ),
    (
        "mcp catalog",
        "there is no catalogue; servers are added with: hermes mcp add NAME --command … (or --url …)",
    ),
    (
        "mcp install",
        "servers are added with: hermes mcp add NAME --command … (or --url …)",
    ),
    (
        "claw",
        "moving from OpenClaw is not built in; copy SOUL.md, MEMORY.md and skills into the home, and keys with: hermes config set NAME_API_KEY VALUE",
    ),
    (
        "profile describe",
        "a description stands in profile.yaml of the profile's home",
    ),
    (
        "profile alias",
        "a command for a profile is an alias of the shell: alias work='hermes -p work'",
    ),
    (
        "profile install",
        "profiles come from a file: hermes profile import FILE",
    ),
    (
        "profile update",
        "profiles come from a file: hermes profile import FILE",
    ),
    (
        "profile info",
        "what a profile has: hermes profile show NAME",
    ),
    (
        "dashboard",
        "there is no web interface; in the terminal: hermes, hermes status, hermes insights",
    ),
    (
        "serve",
        "the API server runs in the gateway: see docs/api-server.md, then: hermes gateway run",
    ),
    (
        "desktop",
        "there is no desktop application; in the terminal: hermes",
    ),
    (
        "prompt-size",
        "what a prompt costs stands in the chat: /usage, /context",
    ),
    ("whoami", "what is configured: hermes status"),
    (
        "honcho",
        "memory is two files of the home (hermes memory); other memory services are not built in",
    ),
    ("upgrade", "to replace this program: hermes update"),
    ("run", "to ask once: hermes -z \"…\"; to chat: hermes"),
];

/// What to do about arguments that name a command of the original which is not here.
pub(crate) fn advice(args: &[OsString]) -> Option<Failure> {
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
        "hermes {path} is a command of Hermes Agent that is not here; {instead}"
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

    #[test]
    fn rows_name_what_is_not_here() {
        let ours = Cli::command();
        for (path, _) in ROWS {
            let words: Vec<&str> = path.split(' ').collect();
            assert!(!is_ours(&ours, &words), "{path} is here");
        }
    }
}

//! `hermes help`: one screen for the beginning, everything with `--all`.

use std::fmt::Write as _;

use crate::exit::{Failure, Outcome};
use crate::output::Output;

#[derive(Debug, clap::Args)]
pub(crate) struct HelpArgs {
    /// List every command
    #[arg(long)]
    all: bool,
    /// A command, e.g. `sessions export`
    command: Vec<String>,
}

/// What most people need, in the order in which they need it.
const FIRST: &[(&str, &[(&str, &str)])] = &[
    (
        "Talk",
        &[
            ("hermes", "chat here; -c resumes the latest session"),
            (
                "hermes -z \"question\"",
                "one answer on stdout, for scripts and pipes",
            ),
            ("gateway", "chat from Telegram, Slack, Discord and others"),
        ],
    ),
    (
        "Set up",
        &[
            ("setup", "choose a model, keys, tools"),
            ("model", "choose, list and test models"),
            ("tools", "choose what the agent may use; see also: mcp"),
            ("config", "read and change settings"),
        ],
    ),
    (
        "Look back",
        &[
            ("sessions", "find, read, rename and export conversations"),
            ("insights", "tokens, cost, models, tools over time"),
            ("logs", "read the logs; -f follows them"),
        ],
    ),
    (
        "Maintain",
        &[
            ("doctor", "find problems; --fix repairs them"),
            (
                "backup",
                "back up everything to a zip file; import restores it",
            ),
            ("update", "update hermes; --rollback undoes it"),
        ],
    ),
];

pub(crate) fn run(args: &HelpArgs, out: Output) -> Outcome {
    if !args.command.is_empty() {
        return of_command(&args.command, out);
    }
    out.piece(&if args.all { everything() } else { first() })?;
    Ok(())
}

fn of_command(path: &[String], out: Output) -> Outcome {
    let mut command = crate::args::command();
    command.build();
    for word in path {
        let Some(found) = command.find_subcommand(word) else {
            let words: Vec<&str> = path.iter().map(String::as_str).collect();
            if let Some(failure) = super::original::instead_of(&words) {
                return Err(failure);
            }
            return Err(Failure::usage(format!(
                "there is no command {:?}; all of them: hermes help --all",
                path.join(" ")
            )));
        };
        command = found.clone();
    }
    out.piece(&command.render_long_help().to_string())?;
    Ok(())
}

fn first() -> String {
    let known: Vec<String> = crate::args::command()
        .get_subcommands()
        .map(|command| command.get_name().to_owned())
        .collect();
    let mut page = format!(
        "{}: a personal AI agent\n",
        hermes_app::text::version_line()
    );
    for (group, commands) in FIRST {
        let _ = writeln!(page, "\n{group}");
        for (name, what) in *commands {
            let is_command = known.iter().any(|known| known == name);
            // Commands are listed as soon as they exist.
            if is_command || name.starts_with("hermes") {
                let _ = writeln!(page, "  {name:<22}{what}");
            }
        }
    }
    page + "\nAll commands: hermes help --all    One of them: hermes help COMMAND\n"
}

fn everything() -> String {
    let mut page = String::from("Commands (details: hermes help COMMAND)\n");
    let mut command = crate::args::command();
    command.build();
    for command in command
        .get_subcommands()
        .filter(|command| !command.is_hide_set())
    {
        let about = command
            .get_about()
            .map(ToString::to_string)
            .unwrap_or_default();
        let _ = writeln!(page, "\n  {:<14}{about}", command.get_name());
        let verbs: Vec<&str> = command
            .get_subcommands()
            .filter(|verb| !verb.is_hide_set() && verb.get_name() != "help")
            .map(clap::Command::get_name)
            .collect();
        for line in wrapped(&verbs, 60) {
            let _ = writeln!(page, "  {:<14}{line}", "");
        }
    }
    page + "\nFlags of the chat and of every command: hermes --help\n"
}

fn wrapped(words: &[&str], width: usize) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for word in words {
        match lines.last_mut() {
            Some(line) if line.len() + 2 + word.len() <= width => {
                line.push_str(", ");
                line.push_str(word);
            }
            last => {
                if let Some(line) = last {
                    line.push(',');
                }
                lines.push((*word).to_owned());
            }
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_page_fits_a_screen() {
        let page = first();
        assert!(page.lines().count() <= 24, "{page}");
        assert!(
            page.lines().all(|line| line.chars().count() <= 80),
            "{page}"
        );
    }

    /// Every command of the tree and whether it has `--json`, hidden ones left out.
    fn leaves(command: &clap::Command, path: &str, found: &mut Vec<(String, bool)>) {
        let below: Vec<&clap::Command> = command
            .get_subcommands()
            .filter(|sub| !sub.is_hide_set() && sub.get_name() != "help")
            .collect();
        if below.is_empty() && !path.is_empty() {
            let json = command.get_arguments().any(|arg| arg.get_id() == "json");
            found.push((path.to_owned(), json));
        }
        for sub in below {
            leaves(
                sub,
                format!("{path} {}", sub.get_name()).trim_start(),
                found,
            );
        }
    }

    #[test]
    fn every_command_that_reads_speaks_json_and_has_a_schema() {
        let index = include_str!("../../tests/schemas/commands.json");
        let index: serde_json::Value = serde_json::from_str(index).unwrap();
        let mut found = Vec::new();
        leaves(&crate::args::command(), "", &mut found);
        let mut named = 0;
        for (path, json) in found {
            let reads = index["read"].get(&path).is_some();
            let other = ["change", "text", "stream"].iter().any(|kind| {
                let names = index[kind].as_array().unwrap();
                names.iter().any(|name| name == path.as_str())
            });
            assert!(
                reads != other,
                "`hermes {path}` must be listed once in tests/schemas/commands.json: under read with its schema, or as what else it is"
            );
            assert!(json || !reads, "`hermes {path}` reads and has no --json");
            named += usize::from(reads);
        }
        let listed = index["read"].as_object().unwrap().len();
        assert_eq!(named, listed, "a command is listed that does not exist");
    }

    #[test]
    fn all_commands_are_on_the_whole_page() {
        let page = everything();
        for command in crate::args::command().get_subcommands() {
            assert_eq!(
                page.contains(&format!("\n  {} ", command.get_name())),
                !command.is_hide_set(),
                "{}",
                command.get_name()
            );
        }
        assert!(page.contains("rename"));
    }
}

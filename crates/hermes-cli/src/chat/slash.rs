//! Slash commands of the line chat: one table drives parsing, help and completion.

/// A command a person can type while chatting.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Slash {
    pub(crate) name: &'static str,
    pub(crate) aliases: &'static [&'static str],
    pub(crate) args: &'static str,
    pub(crate) summary: &'static str,
    pub(crate) verb: Verb,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verb {
    Help,
    New,
    Retry,
    Undo,
    Title,
    Compress,
    Resume,
    Sessions,
    History,
    Export,
    Status,
    Model,
    Verbose,
    Tools,
    Mcp,
    Skills,
    Memory,
    Usage,
    Config,
    Rollback,
    Version,
    Quit,
}

const fn slash(
    name: &'static str,
    aliases: &'static [&'static str],
    args: &'static str,
    summary: &'static str,
    verb: Verb,
) -> Slash {
    Slash {
        name,
        aliases,
        args,
        summary,
        verb,
    }
}

pub(crate) const TABLE: &[Slash] = &[
    slash("help", &["?", "commands"], "", "this list", Verb::Help),
    slash(
        "new",
        &["reset", "clear"],
        "[title]",
        "start a new session; the old one stays stored",
        Verb::New,
    ),
    slash("retry", &[], "", "ask the last question again", Verb::Retry),
    slash(
        "undo",
        &[],
        "[n]",
        "take back the last n questions and their answers",
        Verb::Undo,
    ),
    slash(
        "title",
        &[],
        "[text]",
        "show or set the title of the session",
        Verb::Title,
    ),
    slash(
        "compress",
        &["compact"],
        "[topic]",
        "summarise the older part of the conversation",
        Verb::Compress,
    ),
    slash(
        "resume",
        &[],
        "<id|title>",
        "go on with another session",
        Verb::Resume,
    ),
    slash("sessions", &[], "", "recent sessions", Verb::Sessions),
    slash("history", &[], "", "this conversation", Verb::History),
    slash(
        "export",
        &["save"],
        "[file]",
        "write this session as JSON lines",
        Verb::Export,
    ),
    slash("status", &[], "", "session, model, context", Verb::Status),
    slash(
        "model",
        &[],
        "[model] [--provider p]",
        "show or switch the model",
        Verb::Model,
    ),
    slash(
        "verbose",
        &[],
        "",
        "show or hide reasoning and tool results",
        Verb::Verbose,
    ),
    slash(
        "tools",
        &["toolsets"],
        "",
        "tools the model can call",
        Verb::Tools,
    ),
    slash(
        "mcp",
        &["reload-mcp"],
        "[reconnect [name] | name]",
        "MCP servers: list, look at one, reconnect",
        Verb::Mcp,
    ),
    slash("skills", &[], "", "skills of this home", Verb::Skills),
    slash("memory", &[], "", "what is remembered", Verb::Memory),
    slash(
        "usage",
        &["cost"],
        "",
        "tokens and cost of this session",
        Verb::Usage,
    ),
    slash(
        "config",
        &[],
        "",
        "where the configuration is",
        Verb::Config,
    ),
    slash(
        "rollback",
        &[],
        "[diff] [n] [file]",
        "list checkpoints of this project, look at one, go back to it",
        Verb::Rollback,
    ),
    slash("version", &[], "", "version", Verb::Version),
    slash("quit", &["exit", "q"], "", "leave", Verb::Quit),
];

/// What a line beginning with `/` means.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Parsed<'a> {
    Command(&'static Slash, &'a str),
    /// No such command; a close one, if any.
    Unknown {
        typed: &'a str,
        close: Option<&'static str>,
    },
    /// Ordinary text: a path, or a line that does not start with a slash.
    Text,
}

pub(crate) fn parse(line: &str) -> Parsed<'_> {
    let Some(rest) = line.trim().strip_prefix('/') else {
        return Parsed::Text;
    };
    let (typed, args) = rest.split_once(char::is_whitespace).unwrap_or((rest, ""));
    // A path such as /etc/hosts is something to talk about, not a command.
    if typed.is_empty() || typed.contains('/') {
        return Parsed::Text;
    }
    let lower = typed.to_ascii_lowercase();
    let known = TABLE
        .iter()
        .find(|slash| slash.name == lower || slash.aliases.contains(&lower.as_str()));
    match known {
        Some(slash) => Parsed::Command(slash, args.trim()),
        None => Parsed::Unknown {
            typed,
            close: close(&lower),
        },
    }
}

/// The command a mistyped one probably meant: same start, or one or two letters off.
fn close(typed: &str) -> Option<&'static str> {
    let names = TABLE.iter().map(|slash| slash.name);
    names
        .clone()
        .find(|name| typed.len() >= 2 && name.starts_with(typed))
        .or_else(|| {
            names
                .filter(|name| distance(name, typed) <= 2)
                .min_by_key(|name| distance(name, typed))
        })
}

/// Edit distance between two short words.
pub(crate) fn distance(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, ca) in a.chars().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, cb) in b.iter().enumerate() {
            let replaced = diagonal + usize::from(ca != *cb);
            diagonal = row[j + 1];
            row[j + 1] = replaced.min(row[j] + 1).min(diagonal + 1);
        }
    }
    row[b.len()]
}

/// The list that `/help` prints.
pub(crate) fn help() -> String {
    let width = TABLE
        .iter()
        .map(|slash| slash.name.len() + slash.args.len())
        .max()
        .unwrap_or(0);
    TABLE
        .iter()
        .map(|slash| {
            let left = format!("/{} {}", slash.name, slash.args);
            format!("  {left:<w$}  {}", slash.summary, w = width + 2)
        })
        .chain(KEYS.iter().map(|line| format!("  {line}")))
        .collect::<Vec<_>>()
        .join("\n")
}

/// What the keys do that no command does.
const KEYS: &[&str] = &[
    "\\ at the end of a line: the message goes on in the next one",
    "Tab completes commands · Ctrl+C stops an answer · Ctrl+D leaves",
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn help_names_every_command_and_the_keys() {
        let help = help();
        for slash in TABLE {
            assert!(
                help.contains(&format!("/{} ", slash.name)),
                "{}",
                slash.name
            );
        }
        assert!(help.contains("Ctrl+C stops") && help.contains("\\ at the end"));
    }

    #[test]
    fn names_and_aliases_are_unique() {
        let mut seen = std::collections::HashSet::new();
        for slash in TABLE {
            for name in std::iter::once(&slash.name).chain(slash.aliases) {
                assert!(seen.insert(*name), "{name} twice");
            }
        }
    }

    #[test]
    fn lines_are_told_apart() {
        assert!(matches!(
            parse("/undo 2"),
            Parsed::Command(
                Slash {
                    verb: Verb::Undo,
                    ..
                },
                "2"
            )
        ));
        assert!(matches!(
            parse("/EXIT"),
            Parsed::Command(
                Slash {
                    verb: Verb::Quit,
                    ..
                },
                ""
            )
        ));
        assert_eq!(parse("/etc/hosts is odd"), Parsed::Text);
        assert_eq!(parse("what is /help"), Parsed::Text);
        assert_eq!(
            parse("/comprss"),
            Parsed::Unknown {
                typed: "comprss",
                close: Some("compress")
            }
        );
        assert_eq!(
            parse("/mod"),
            Parsed::Unknown {
                typed: "mod",
                close: Some("model")
            }
        );
        assert_eq!(
            parse("/zzzzzz"),
            Parsed::Unknown {
                typed: "zzzzzz",
                close: None
            }
        );
    }
}

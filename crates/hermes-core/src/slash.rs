//! Slash commands as data: one table drives parsing, help and completion of every front end. The
//! effect of a command is implemented by its host.

mod original;
mod table;

use std::fmt::Write as _;

pub use original::instead_of;
pub use table::{CHAT_COMMANDS, COMMANDS};

/// A slash command.
#[derive(Debug, PartialEq, Eq)]
pub struct CommandDef {
    pub name: &'static str,
    pub aliases: &'static [&'static str],
    /// Argument hint: `[n]`, `<file>`.
    pub args: &'static str,
    /// Possible first arguments.
    pub subcommands: &'static [&'static str],
    /// What its other arguments refer to.
    pub values: Values,
    pub surfaces: Surfaces,
    pub category: CommandCategory,
    pub summary: &'static str,
    pub verb: Verb,
}

/// What the arguments of a command refer to, for completion.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Values {
    None,
    Models,
    Sessions,
    Skills,
    McpServers,
    Themes,
    Personalities,
    Toolsets,
    Checkpoints,
    Files,
    Commands,
}

/// Where a command is available.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Surfaces {
    /// The full terminal interface.
    pub terminal: bool,
    /// The line chat.
    pub line: bool,
    /// A chat platform.
    pub platform: bool,
}

impl Surfaces {
    pub const ALL: Self = Self {
        terminal: true,
        line: true,
        platform: true,
    };
    /// For the local user.
    pub const LOCAL: Self = Self {
        platform: false,
        ..Self::ALL
    };
    /// What only a chat has.
    pub const CHAT: Self = Self {
        terminal: false,
        line: false,
        platform: true,
    };
    /// Only possible on a screen.
    pub const SCREEN: Self = Self {
        line: false,
        ..Self::LOCAL
    };
}

/// The groups of `/help`, in order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum CommandCategory {
    Session,
    Busy,
    Settings,
    Tools,
    Info,
}

impl CommandCategory {
    pub const ALL: [Self; 5] = [
        Self::Session,
        Self::Busy,
        Self::Settings,
        Self::Tools,
        Self::Info,
    ];

    pub fn title(self) -> &'static str {
        match self {
            Self::Session => "conversation",
            Self::Busy => "while it works",
            Self::Settings => "settings",
            Self::Tools => "tools",
            Self::Info => "information",
        }
    }
}

/// The effect of a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Verb {
    New,
    Clear,
    Retry,
    Undo,
    Redo,
    Title,
    Branch,
    Compress,
    Resume,
    Sessions,
    History,
    Export,
    Status,
    Rollback,
    Compose,
    Redraw,
    Quit,
    Queue,
    Steer,
    Background,
    Stop,
    Agents,
    Busy,
    Moa,
    Model,
    Personality,
    Reasoning,
    Yolo,
    Verbose,
    Theme,
    StatusBar,
    Timestamps,
    Config,
    Tools,
    Toolsets,
    Mcp,
    Skills,
    Memory,
    Learn,
    Cron,
    Reload,
    ReloadMcp,
    ReloadSkills,
    Bundles,
    Platforms,
    Help,
    Usage,
    Insights,
    Profile,
    Whoami,
    Copy,
    Paste,
    Image,
    Diff,
    Keys,
    Doctor,
    Debug,
    Version,
    Approve,
    Deny,
    SetHome,
    Restart,
    Voice,
    Start,
}

/// The meaning of a line.
#[derive(Debug, PartialEq, Eq)]
pub enum Parsed<'a> {
    Command(&'static CommandDef, &'a str),
    /// Unknown command; it may still be the name of a skill.
    Unknown {
        typed: &'a str,
        rest: &'a str,
        /// A command with a similar name.
        close: Option<&'static str>,
    },
    /// Ordinary text: a path, or a line that does not start with a slash.
    Text,
}

/// Parses a line typed at this machine.
pub fn parse(line: &str) -> Parsed<'_> {
    parse_with(line, find)
}

/// Reads a line of a chat, which has commands of its own.
pub fn parse_in_chat(line: &str) -> Parsed<'_> {
    parse_with(line, |name| {
        find(name).or_else(|| find_in(CHAT_COMMANDS, name))
    })
}

fn parse_with(line: &str, find: impl Fn(&str) -> Option<&'static CommandDef>) -> Parsed<'_> {
    let Some(rest) = line.trim().strip_prefix('/') else {
        return Parsed::Text;
    };
    let (typed, args) = rest.split_once(char::is_whitespace).unwrap_or((rest, ""));
    // A path such as /etc/hosts is text, not a command.
    if typed.is_empty() || typed.contains('/') {
        return Parsed::Text;
    }
    match find(typed) {
        Some(command) => Parsed::Command(command, args.trim()),
        None => Parsed::Unknown {
            typed,
            rest: args.trim(),
            close: close(typed),
        },
    }
}

/// The command of that name or alias in any spelling: menus of platforms have no dashes.
pub fn find(name: &str) -> Option<&'static CommandDef> {
    find_in(COMMANDS, name)
}

fn find_in(commands: &'static [CommandDef], name: &str) -> Option<&'static CommandDef> {
    let lower = name.to_ascii_lowercase().replace('_', "-");
    commands
        .iter()
        .find(|command| command.name == lower || command.aliases.contains(&lower.as_str()))
}

/// The command probably meant by a mistyped one: same start, or one or two letters off.
pub fn close(typed: &str) -> Option<&'static str> {
    let typed = typed.to_ascii_lowercase();
    let spelled = || {
        COMMANDS.iter().flat_map(|command| {
            std::iter::once(command.name)
                .chain(command.aliases.iter().copied())
                .filter(|name| name.len() > 2)
                .map(|name| (command.name, name))
        })
    };
    let starts = spelled().find(|(_, name)| typed.len() >= 2 && name.starts_with(&*typed));
    let near = || {
        // Short words are all similar, and few people mistype the first letter.
        let longest_name = |name: &str| {
            let same = name.as_bytes().first() == typed.as_bytes().first();
            if same && typed.len() >= 4 { 2 } else { 1 }
        };
        spelled()
            .map(|(command, name)| (distance(name, &typed), command, name))
            .filter(|(distance, _, name)| *distance <= longest_name(name))
            .min_by_key(|(distance, ..)| *distance)
    };
    starts
        .map(|(command, _)| command)
        .or_else(|| near().map(|(_, command, _)| command))
}

/// Edit distance between two short words.
pub fn distance(a: &str, b: &str) -> usize {
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

/// The list shown by `/help`: commands by group, with aliases after the name.
pub fn help(shown: impl Fn(Surfaces) -> bool) -> String {
    let commands: Vec<&CommandDef> = COMMANDS.iter().filter(|c| shown(c.surfaces)).collect();
    let width = commands
        .iter()
        .map(|command| command.usage().chars().count())
        .filter(|width| *width <= USAGE_COLUMN)
        .max()
        .unwrap_or(0);
    let mut text = String::new();
    for category in CommandCategory::ALL {
        let mut group = commands
            .iter()
            .filter(|c| c.category == category)
            .peekable();
        if group.peek().is_none() {
            continue;
        }
        if !text.is_empty() {
            text.push('\n');
        }
        let _ = writeln!(text, "{}", category.title());
        for command in group {
            let usage = command.usage();
            if usage.chars().count() > width {
                let _ = writeln!(text, "  {usage}\n  {:width$}  {}", "", command.about());
            } else {
                let _ = writeln!(text, "  {usage:<width$}  {}", command.about());
            }
        }
    }
    text.truncate(text.trim_end().len());
    text
}

/// Longer usages get a line of their own.
const USAGE_COLUMN: usize = 34;

impl CommandDef {
    /// `/undo [n]`.
    pub fn usage(&self) -> String {
        if self.args.is_empty() {
            format!("/{}", self.name)
        } else {
            format!("/{} {}", self.name, self.args)
        }
    }

    /// The summary, with the aliases.
    pub fn about(&self) -> String {
        if self.aliases.is_empty() {
            return self.summary.to_owned();
        }
        let aliases: Vec<String> = self.aliases.iter().map(|name| format!("/{name}")).collect();
        format!("{} ({})", self.summary, aliases.join(" "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn help_names_every_command_once_in_its_group() {
        let help = help(|surfaces| surfaces.terminal);
        for command in COMMANDS {
            let usage = format!("\n  {}", command.usage());
            let lines = help.matches(&format!("{usage}\n")).count()
                + help.matches(&format!("{usage} ")).count();
            assert_eq!(lines, 1, "{}", command.name);
        }
        for category in CommandCategory::ALL {
            assert!(help.contains(category.title()));
        }
        assert!(
            help.lines().all(|line| line.chars().count() <= 100),
            "{help}"
        );
        let line = super::help(|surfaces| surfaces.line);
        assert!(!line.contains("/redraw") && line.contains("/undo [n]"));
    }

    #[test]
    fn names_and_aliases_are_unique_and_typeable() {
        let mut seen = std::collections::HashSet::new();
        let mut verbs = std::collections::HashSet::new();
        for command in COMMANDS {
            for name in std::iter::once(&command.name).chain(command.aliases) {
                assert!(seen.insert(*name), "{name} twice");
                assert_eq!(*name, name.to_ascii_lowercase());
                assert!(!name.contains([' ', '/']));
            }
            assert!(verbs.insert(command.verb), "{} twice", command.name);
        }
    }

    #[test]
    fn only_a_chat_has_the_commands_of_a_chat() {
        for command in CHAT_COMMANDS {
            assert_eq!(command.surfaces, Surfaces::CHAT, "{}", command.name);
            let line = format!("/{} x", command.name);
            let Parsed::Command(found, "x") = parse_in_chat(&line) else {
                panic!("{line}");
            };
            assert_eq!(found.verb, command.verb, "{line}");
            // The one that both have is spelled differently in a list, and means the same.
            let both = command.verb == Verb::Platforms;
            assert_eq!(matches!(parse(&line), Parsed::Command(..)), both, "{line}");
        }
        assert_eq!(parse_in_chat("/undo 2"), parse("/undo 2"));
        assert_eq!(parse_in_chat("/modle x"), parse("/modle x"));
    }

    #[test]
    fn lines_are_told_apart() {
        let verb = |line| match parse(line) {
            Parsed::Command(command, rest) => Some((command.verb, rest)),
            _ => None,
        };
        assert_eq!(verb("/undo 2"), Some((Verb::Undo, "2")));
        assert_eq!(verb("  /EXIT "), Some((Verb::Quit, "")));
        assert_eq!(verb("/reload_mcp"), verb("/reload-mcp"));
        assert!(verb("/reload_mcp").is_some());
        assert_eq!(verb("/q then commit"), Some((Verb::Queue, "then commit")));
        assert_eq!(parse("/etc/hosts is odd"), Parsed::Text);
        assert_eq!(parse("what is /help"), Parsed::Text);
        assert_eq!(parse("/"), Parsed::Text);
        for (typed, close) in [
            ("fast", None),
            ("goal", None),
            ("modle", Some("model")),
            ("comprss", Some("compress")),
            ("mod", Some("model")),
            ("tsk", None),
            ("zzzzzz", None),
        ] {
            let unknown = Parsed::Unknown {
                typed,
                rest: "x",
                close,
            };
            assert_eq!(parse(&format!("/{typed} x")), unknown);
        }
    }
}

//! Slash commands that make sense in an editor: those that need no screen, no clipboard, and leave
//! the choice of the conversation to the editor.

use hermes_app::CommandInfo;
use hermes_core::slash::{COMMANDS, CommandDef, Parsed, Verb, parse};

const OFFERED: &[Verb] = &[
    Verb::Help,
    Verb::Model,
    Verb::Tools,
    Verb::Usage,
    Verb::New,
    Verb::Compress,
    Verb::Steer,
    Verb::Queue,
    Verb::Retry,
    Verb::Undo,
    Verb::Redo,
    Verb::Title,
    Verb::Reasoning,
    Verb::Personality,
    Verb::Background,
    Verb::Agents,
    Verb::Stop,
    Verb::Mcp,
    Verb::ReloadMcp,
    Verb::Skills,
    Verb::Memory,
    Verb::Rollback,
    Verb::Diff,
    Verb::Status,
    Verb::Insights,
    Verb::Doctor,
    Verb::Version,
];

fn is_offered(command: &CommandDef) -> bool {
    OFFERED.contains(&command.verb)
}

/// As the editor lists them.
pub(super) fn list() -> Vec<CommandInfo> {
    let offered = COMMANDS.iter().filter(|command| is_offered(command));
    let mut list: Vec<CommandInfo> = offered
        .map(|command| CommandInfo {
            name: command.name.to_owned(),
            about: command.summary.to_owned(),
            args: (!command.args.is_empty()).then(|| command.args.to_owned()),
        })
        .collect();
    list.push(CommandInfo {
        name: "context".to_owned(),
        about: "what fills the window of the model; the same as /usage".to_owned(),
        args: None,
    });
    list
}

/// What is said to a command that is not offered.
pub(super) fn refused(line: &str) -> Option<String> {
    match parse(line) {
        Parsed::Command(command, _) if !is_offered(command) => Some(format!(
            "/{} is for a terminal; in an editor there are: {}",
            command.name,
            list()
                .iter()
                .map(|command| format!("/{}", command.name))
                .collect::<Vec<_>>()
                .join(" ")
        )),
        _ => None,
    }
}

/// `/help`: the commands of a terminal would mislead.
pub(super) fn help(line: &str) -> Option<String> {
    let Parsed::Command(command, "") = parse(line) else {
        return None;
    };
    if command.verb != Verb::Help {
        return None;
    }
    let line = |info: CommandInfo| {
        let usage = match info.args {
            Some(args) => format!("/{} {args}", info.name),
            None => format!("/{}", info.name),
        };
        format!("{usage:<32} {}", info.about)
    };
    let lines: Vec<String> = list().into_iter().map(line).collect();
    Some(lines.join("\n"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_editors_know_is_offered_and_the_rest_is_explained() {
        let names: Vec<String> = list().into_iter().map(|command| command.name).collect();
        for name in [
            "help", "model", "tools", "context", "usage", "new", "compress", "steer", "queue",
            "version",
        ] {
            assert!(names.iter().any(|known| known == name), "{name}");
        }
        assert!(refused("/quit").unwrap().contains("/help"));
        assert_eq!(refused("/version"), None);
        assert_eq!(refused("/no-such"), None, "a skill may be called so");
        assert!(help("/help").unwrap().contains("/steer"));
        assert_eq!(help("/help model"), None);
    }
}

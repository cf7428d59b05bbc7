//! Commands embedded in a skill as `` !`command` ``, which are replaced by their output when the
//! skill is used (`skills.inline_shell`). This module only finds them; running them is up to the
//! caller.

use std::ops::Range;

/// Maximum number of commands run per skill; further ones are left unchanged.
const MAX_COMMANDS: usize = 32;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InlineCommand {
    /// The byte range that its output replaces.
    pub place: Range<usize>,
    pub command: String,
}

/// The commands of a text, in order. Each is on a single line.
pub fn inline_commands(text: &str) -> Vec<InlineCommand> {
    let mut found = Vec::new();
    let mut from = 0;
    while let Some(at) = text[from..].find("!`") {
        let start = from + at;
        let inner = start + 2;
        let Some(len) = text[inner..].find(['`', '\n']) else {
            break;
        };
        let end = inner + len;
        if len == 0 || text[end..].starts_with('\n') {
            from = inner;
            continue;
        }
        if found.len() == MAX_COMMANDS {
            tracing::warn!("a skill has more than {MAX_COMMANDS} commands; the others are not run");
            break;
        }
        found.push(InlineCommand {
            place: start..end + 1,
            command: text[inner..end].trim().to_owned(),
        });
        from = end + 1;
    }
    found
}

/// The text with each command replaced by its output, in the order of [`inline_commands`].
pub fn with_outputs(text: &str, outputs: &[(InlineCommand, String)]) -> String {
    let mut filled = String::with_capacity(text.len());
    let mut from = 0;
    for (command, output) in outputs {
        filled.push_str(&text[from..command.place.start]);
        filled.push_str(output);
        from = command.place.end;
    }
    filled.push_str(&text[from..]);
    filled
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_are_found_as_the_original_finds_them() {
        let text = "today: !`date +%F`, empty: !``, open: !`x\ny`, ends: !`a`!` b `\n!`unclosed";
        let found: Vec<String> = inline_commands(text)
            .into_iter()
            .map(|it| it.command)
            .collect();
        assert_eq!(found, ["date +%F", "a", "b"]);
    }

    #[test]
    fn outputs_take_the_places_and_are_not_read_again() {
        let text = "ä !`one` – !`two`.";
        let outputs: Vec<_> = inline_commands(text)
            .into_iter()
            .map(|it| (it.clone(), format!("<!`{}`>", it.command)))
            .collect();
        assert_eq!(with_outputs(text, &outputs), "ä <!`one`> – <!`two`>.");
        assert_eq!(with_outputs("plain", &[]), "plain");
    }
}

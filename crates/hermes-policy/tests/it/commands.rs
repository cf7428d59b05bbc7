//! The table: what each command is, on the host and in the sandbox.

use hermes_policy::{CommandClass, ConfinementLevel};

use crate::support::{gate, request};

pub(crate) struct Row {
    pub(crate) host: CommandClass,
    pub(crate) sandboxed: CommandClass,
    pub(crate) command: String,
}

fn class(letter: &str) -> CommandClass {
    match letter {
        "R" => CommandClass::ReadOnly,
        "W" => CommandClass::WorkspaceWrite,
        "A" => CommandClass::Ask,
        "F" => CommandClass::Forbidden,
        other => panic!("no class {other:?}"),
    }
}

pub(crate) fn rows() -> Vec<Row> {
    include_str!("commands.tsv")
        .lines()
        .filter(|line| !line.is_empty() && !line.starts_with('#'))
        .map(|line| {
            let mut fields = line.splitn(3, '\t');
            let mut next = || {
                fields
                    .next()
                    .unwrap_or_else(|| panic!("too short: {line:?}"))
            };
            Row {
                host: class(next()),
                sandboxed: class(next()),
                command: next()
                    .replace("⏎", "\n")
                    .replace("␛", "\u{1b}")
                    .replace("␀", "\0")
                    .replace("⟪RLO⟫", "\u{202e}"),
            }
        })
        .collect()
}

#[test]
fn every_command_has_its_class() {
    let gate = gate();
    let mut wrong = Vec::new();
    let rows = rows();
    for row in &rows {
        for (expected, confinement) in [
            (row.host, ConfinementLevel::None),
            (row.sandboxed, ConfinementLevel::Sandboxed),
        ] {
            let found = gate.assess(&request(&row.command, confinement));
            if found.class != expected {
                let why: Vec<String> = found
                    .findings
                    .iter()
                    .map(|finding| format!("{:?} {}", finding.weight, finding.why))
                    .collect();
                wrong.push(format!(
                    "{:?} {confinement:?}: expected {expected}, is {}: {why:?}",
                    row.command, found.class
                ));
            }
        }
    }
    assert!(
        wrong.is_empty(),
        "{} wrong:\n{}",
        wrong.len(),
        wrong.join("\n")
    );
    assert!(rows.len() >= 258, "only {} rows", rows.len());
}

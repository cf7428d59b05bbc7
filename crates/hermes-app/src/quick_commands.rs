//! `quick_commands`: names for command lines, and for other commands.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

/// A quick command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QuickCommand {
    pub does: QuickKind,
    /// Its description.
    pub about: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum QuickKind {
    /// Runs this line in a shell.
    Exec(String),
    /// An alias for this command, slash included; arguments are appended.
    Alias(String),
}

/// Those that can be used, by name; the others are problems.
pub fn read_quick_commands(
    written: &Map<String, Value>,
    problems: &mut Vec<String>,
) -> BTreeMap<String, QuickCommand> {
    let mut quick = BTreeMap::new();
    for (name, one) in written {
        match kind(one) {
            Ok(does) => {
                let about = text(one, "description");
                let name = name.trim_start_matches('/').to_ascii_lowercase();
                quick.insert(name.replace('_', "-"), QuickCommand { does, about });
            }
            Err(why) => problems.push(format!("quick_commands.{name}: {why}")),
        }
    }
    quick
}

fn kind(written: &Value) -> Result<QuickKind, &'static str> {
    match text(written, "type").as_deref() {
        Some("exec") => text(written, "command")
            .map(QuickKind::Exec)
            .ok_or("`command` is missing"),
        Some("alias") => text(written, "target")
            .map(|target| QuickKind::Alias(format!("/{}", target.trim_start_matches('/'))))
            .ok_or("`target` is missing"),
        _ => Err("`type` must be `exec` or `alias`"),
    }
}

fn text(written: &Value, key: &str) -> Option<String> {
    let text = written.get(key).and_then(Value::as_str).map(str::trim);
    text.filter(|text| !text.is_empty()).map(str::to_owned)
}

//! Instructions of subdirectories, found when a tool first touches one.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use hermes_core::tool::ToolArgs;
use serde_json::Value;

use super::{checked, read};

const NAMES: &[&str] = &[
    "AGENTS.md",
    "agents.md",
    "CLAUDE.md",
    "claude.md",
    ".cursorrules",
];
const PATH_ARGUMENTS: &[&str] = &["path", "file_path", "workdir"];
/// Longest hint in characters.
const LIMIT: usize = 8_000;
/// How far up from the touched directory is looked.
const MAX_ANCESTORS: usize = 5;
/// Words of a command that are looked at.
const MAX_COMMAND_WORDS: usize = 200;

/// Remembers which directories of a project the conversation has been in.
///
/// Only directories below the working directory count: instructions of other places are not this
/// project's. They are added to the tool result, so the system prompt stays as it is.
#[derive(Clone, Debug)]
pub struct DirectoryHints {
    root: PathBuf,
    home: Option<PathBuf>,
    seen: BTreeSet<PathBuf>,
    enabled: bool,
}

impl DirectoryHints {
    /// `enabled: false` is for callers that were told to ignore project instructions.
    pub fn new(cwd: &Path, home: Option<&Path>, enabled: bool) -> Self {
        Self {
            root: cwd.canonicalize().unwrap_or_else(|_| cwd.to_owned()),
            home: home.map(Path::to_owned),
            seen: BTreeSet::new(),
            enabled,
        }
    }

    /// What to append to the result of a call with these arguments; `None`: nothing new.
    pub fn after_call(&mut self, args: &ToolArgs) -> Option<String> {
        if !self.enabled {
            return None;
        }
        let mut dirs = BTreeSet::new();
        for name in PATH_ARGUMENTS {
            if let Some(Value::String(path)) = args.get(*name) {
                self.collect(path, &mut dirs);
            }
        }
        if let Some(Value::String(command)) = args.get("command") {
            for word in command_paths(command) {
                self.collect(word, &mut dirs);
            }
        }
        // Sorted: outer directories come before those inside.
        let hints: Vec<String> = dirs.iter().filter_map(|dir| self.load(dir)).collect();
        (!hints.is_empty()).then(|| format!("\n\n{}", hints.join("\n\n")))
    }

    /// The conversation was condensed: what was read may be gone, so it is offered again.
    pub fn forget(&mut self) {
        self.seen.clear();
    }

    /// The new directories on the way from the root to `path`.
    fn collect(&self, path: &str, dirs: &mut BTreeSet<PathBuf>) {
        let path = path.trim();
        let path = match (path.strip_prefix("~/"), &self.home) {
            (Some(rest), Some(home)) => home.join(rest),
            _ => self.root.join(path),
        };
        // A file that is about to be written does not exist yet; its directory may.
        let known = path.canonicalize().or_else(|_| match path.parent() {
            Some(parent) => parent.canonicalize(),
            None => Ok(path.clone()),
        });
        let Ok(known) = known else {
            return;
        };
        let dir = if known.is_dir() {
            Some(known.as_path())
        } else {
            known.parent()
        };
        let inside = dir
            .into_iter()
            .flat_map(Path::ancestors)
            .take(MAX_ANCESTORS)
            .take_while(|dir| dir.starts_with(&self.root) && *dir != self.root);
        dirs.extend(
            inside
                .filter(|dir| !self.seen.contains(*dir))
                .map(Path::to_owned),
        );
    }

    fn load(&mut self, dir: &Path) -> Option<String> {
        self.seen.insert(dir.to_owned());
        let mut notices = Vec::new();
        NAMES.iter().find_map(|name| {
            let path = dir.join(name);
            let text = read(&path, &mut notices)?;
            let shown = path.strip_prefix(&self.root).unwrap_or(&path).display();
            let text = checked(&text, name, &path, &mut notices);
            let length = text.chars().count();
            let text = if length > LIMIT {
                let head: String = text.chars().take(LIMIT).collect();
                format!("{head}\n[… cut; the whole {length} characters are in {shown}]")
            } else {
                text
            };
            Some(format!(
                "[Instructions for this directory, from {shown}]\n{text}"
            ))
        })
    }
}

/// The words of a command that look like paths.
fn command_paths(command: &str) -> impl Iterator<Item = &str> {
    command
        .split(|c: char| c.is_whitespace() || "|&;()<>=".contains(c))
        .map(|word| word.trim_matches(['"', '\'', '`']))
        .filter(|word| !word.starts_with('-') && !word.contains("://"))
        .filter(|word| word.contains(['/', '.']))
        .take(MAX_COMMAND_WORDS)
}

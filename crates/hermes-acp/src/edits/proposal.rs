//! Derives the proposed changes from the arguments of a call.

use std::path::{Path, PathBuf};

use serde_json::{Map, Value};

use super::FileText;

/// A change of one file, for display: the whole text, or the known part.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProposedChange {
    /// Absolute.
    pub path: PathBuf,
    /// `None`: the file is new, or its old text is unknown.
    pub old: Option<String>,
    pub new: String,
}

/// The files that a call names.
pub(crate) fn named(tool: &str, args: &Map<String, Value>, cwd: &Path) -> Vec<PathBuf> {
    let word = |key: &str| args.get(key).and_then(Value::as_str);
    let mut paths: Vec<PathBuf> = if tool == "patch" && is_patch(args) {
        let sections = sections(word("patch").unwrap_or_default());
        sections
            .into_iter()
            .flat_map(|section| std::iter::once(section.path).chain(section.moved_to))
            .map(|path| absolute(&path, cwd))
            .collect()
    } else {
        let path = word("path").filter(|path| !path.is_empty());
        path.map(|path| absolute(path, cwd)).into_iter().collect()
    };
    let mut seen = std::collections::HashSet::new();
    paths.retain(|path| seen.insert(path.clone()));
    paths
}

/// The changes of a call, given the current texts of its files.
pub(crate) fn proposed(
    tool: &str,
    args: &Map<String, Value>,
    cwd: &Path,
    before: &[(PathBuf, FileText)],
) -> Vec<ProposedChange> {
    let word = |key: &str| args.get(key).and_then(Value::as_str);
    let text = |path: &Path| {
        let found = before.iter().find(|(at, _)| at == path);
        match found {
            Some((_, FileText::Is(text))) => Some(text.clone()),
            _ => None,
        }
    };
    if tool == "patch" && is_patch(args) {
        let sections = sections(word("patch").unwrap_or_default());
        return sections
            .into_iter()
            .map(|section| section.change(cwd, text))
            .collect();
    }
    let Some(path) = word("path").filter(|path| !path.is_empty()) else {
        return Vec::new();
    };
    let path = absolute(path, cwd);
    let old = text(&path);
    let change = match (
        tool,
        word("content"),
        word("old_string"),
        word("new_string"),
    ) {
        ("write_file", Some(content), ..) => ProposedChange {
            path,
            old,
            new: content.to_owned(),
        },
        ("patch", _, Some(from), Some(to)) => {
            let all = args.get("replace_all").and_then(Value::as_bool) == Some(true);
            replaced(path, old, (from, to), all)
        }
        _ => return Vec::new(),
    };
    vec![change]
}

/// The whole file if the passage is found verbatim, else only the part.
fn replaced(
    path: PathBuf,
    old: Option<String>,
    (from, to): (&str, &str),
    all: bool,
) -> ProposedChange {
    let whole = old.filter(|text| !from.is_empty() && text.contains(from));
    let (old, new) = match whole {
        Some(text) if all => (text.clone(), text.replace(from, to)),
        Some(text) => (text.clone(), text.replacen(from, to, 1)),
        None => (from.to_owned(), to.to_owned()),
    };
    ProposedChange {
        path,
        old: Some(old),
        new,
    }
}

fn is_patch(args: &Map<String, Value>) -> bool {
    args.get("mode").and_then(Value::as_str) == Some("patch")
}

/// The section of a V4A patch for one file.
struct PatchSection {
    path: String,
    moved_to: Option<String>,
    kind: PatchKind,
    old: String,
    new: String,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum PatchKind {
    Update,
    Add,
    Delete,
}

impl PatchSection {
    fn change(self, cwd: &Path, text: impl Fn(&Path) -> Option<String>) -> ProposedChange {
        let path = absolute(&self.path, cwd);
        match self.kind {
            PatchKind::Add => ProposedChange {
                old: text(&path),
                path,
                new: self.new,
            },
            PatchKind::Delete => ProposedChange {
                old: text(&path),
                path,
                new: String::new(),
            },
            PatchKind::Update => ProposedChange {
                path,
                old: Some(self.old),
                new: self.new,
            },
        }
    }
}

fn sections(patch: &str) -> Vec<PatchSection> {
    let mut sections: Vec<PatchSection> = Vec::new();
    for line in patch.lines() {
        let begins = [
            ("*** Update File:", PatchKind::Update),
            ("*** Add File:", PatchKind::Add),
            ("*** Delete File:", PatchKind::Delete),
            ("*** Move File:", PatchKind::Update),
        ];
        let found = begins
            .iter()
            .find_map(|(word, kind)| Some((line.strip_prefix(word)?.trim(), *kind)));
        if let Some((path, kind)) = found {
            let (path, moved_to) = match path.split_once(" -> ") {
                Some((from, to)) => (from.trim(), Some(to.trim().to_owned())),
                None => (path, None),
            };
            sections.push(PatchSection {
                path: path.to_owned(),
                moved_to,
                kind,
                old: String::new(),
                new: String::new(),
            });
            continue;
        }
        let Some(section) = sections.last_mut() else {
            continue;
        };
        if let Some(to) = line.strip_prefix("*** Move to:") {
            section.moved_to = Some(to.trim().to_owned());
        } else if line.starts_with("***") || line.starts_with("@@") {
            // The position of the next part.
        } else if let Some(text) = line.strip_prefix('+') {
            add(&mut section.new, text);
        } else if let Some(text) = line.strip_prefix('-') {
            add(&mut section.old, text);
        } else {
            let text = line.strip_prefix(' ').unwrap_or(line);
            add(&mut section.old, text);
            add(&mut section.new, text);
        }
    }
    sections
}

fn add(text: &mut String, line: &str) {
    text.push_str(line);
    text.push('\n');
}

/// As the tools read paths: absolute, with `~`, or from the working directory.
pub(crate) fn absolute(path: &str, cwd: &Path) -> PathBuf {
    if let Some(rest) = path.strip_prefix("~/")
        && let Some(home) = std::env::home_dir()
    {
        return home.join(rest);
    }
    cwd.join(path)
}

//! Instructions that come with a home or a project: SOUL.md, AGENTS.md and their kin.
//!
//! Of a project, one kind of file counts, the first of `.hermes.md` / `HERMES.md` (from the
//! working directory up to the root of its repository), `AGENTS.md`, `CLAUDE.md`, `.cursorrules`
//! with `.cursor/rules/*.mdc`. Whatever is taken is scanned for orders that smell of an attack,
//! and cut if it is too long for the window. Files of subdirectories come later, with the first
//! tool call that touches one ([`DirectoryHints`]).

mod hints;
#[cfg(test)]
mod tests;

use std::fs::File;
use std::io::{ErrorKind, Read as _};
use std::path::{Path, PathBuf};

use hermes_core::threat_scan::{self, ScanScope};

pub use hints::DirectoryHints;

/// A text for the prompt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ContextFile {
    pub text: String,
    /// Where it comes from; of several, the first.
    pub path: PathBuf,
    /// For the person: what was cut, blocked or unreadable.
    pub notices: Vec<String>,
}

const MIN_FILE_CHARS: u64 = 20_000;
const MAX_FILE_CHARS: u64 = 500_000;
/// No instruction file needs more; a larger one is not read to its end.
const MAX_FILE_BYTES: u64 = 4 * 1024 * 1024;

/// Longest file in characters: what the config says, else 6 % of the window, at least 20,000 but
/// never more than a quarter of the window.
pub fn limit(configured: Option<u64>, context_length: u32) -> usize {
    let window = u64::from(context_length) * 4;
    let by_window = (window * 6 / 100).clamp(MIN_FILE_CHARS, MAX_FILE_CHARS);
    configured
        .filter(|limit| *limit > 0)
        .unwrap_or(by_window.min(window / 4).max(2_000)) as usize
}

/// SOUL.md of the home; `None` when there is none or it is empty.
pub fn soul(path: &Path, limit: usize) -> Option<ContextFile> {
    let mut notices = Vec::new();
    let text = read(path, &mut notices)?;
    let text = checked(&text, "SOUL.md", path, &mut notices);
    Some(ContextFile {
        text: cut(&text, limit, path, &mut notices),
        path: path.to_owned(),
        notices,
    })
}

/// The instructions of the project around `cwd`.
pub fn project(cwd: &Path, limit: usize) -> Option<ContextFile> {
    let mut notices = Vec::new();
    let found = hermes_md(cwd, &mut notices)
        .or_else(|| first_of(cwd, &["AGENTS.md", "agents.md"], &mut notices))
        .or_else(|| first_of(cwd, &["CLAUDE.md", "claude.md"], &mut notices))
        .or_else(|| cursor_rules(cwd, &mut notices));
    let (text, path) = found?;
    Some(ContextFile {
        text: cut(&text, limit, &path, &mut notices),
        path,
        notices,
    })
}

fn hermes_md(cwd: &Path, notices: &mut Vec<String>) -> Option<(String, PathBuf)> {
    let root = cwd.ancestors().find(|dir| dir.join(".git").exists());
    // Outside of a repository only the directory itself counts: a file in a shared parent such
    // as /tmp could be anyone's.
    let last = root.unwrap_or(cwd);
    for dir in cwd.ancestors().take_while(|dir| dir.starts_with(last)) {
        for name in [".hermes.md", "HERMES.md"] {
            let path = dir.join(name);
            let Some(text) = read(&path, notices) else {
                continue;
            };
            let body = without_front_matter(&text).trim();
            if !body.is_empty() {
                return Some((titled(name, &checked(body, name, &path, notices)), path));
            }
        }
    }
    None
}

fn first_of(dir: &Path, names: &[&str], notices: &mut Vec<String>) -> Option<(String, PathBuf)> {
    names.iter().find_map(|name| {
        let path = dir.join(name);
        let text = read(&path, notices)?;
        Some((titled(name, &checked(&text, name, &path, notices)), path))
    })
}

fn cursor_rules(cwd: &Path, notices: &mut Vec<String>) -> Option<(String, PathBuf)> {
    let mut found: Vec<(String, PathBuf)> = first_of(cwd, &[".cursorrules"], notices)
        .into_iter()
        .collect();
    let rules = std::fs::read_dir(cwd.join(".cursor").join("rules"));
    let mut paths: Vec<PathBuf> = rules
        .into_iter()
        .flatten()
        .filter_map(|entry| entry.ok().map(|entry| entry.path()))
        .filter(|path| path.extension().is_some_and(|ext| ext == "mdc"))
        .collect();
    paths.sort();
    for path in paths {
        let name = path
            .strip_prefix(cwd)
            .unwrap_or(&path)
            .display()
            .to_string();
        if let Some(text) = read(&path, notices) {
            let body = without_front_matter(&text).trim();
            let body = checked(body, &name, &path, notices);
            found.push((titled(&name, &body), path));
        }
    }
    let path = found.first()?.1.clone();
    let texts: Vec<String> = found.into_iter().map(|(text, _)| text).collect();
    Some((texts.join("\n\n"), path))
}

fn titled(name: &str, text: &str) -> String {
    format!("## {name}\n\n{text}")
}

/// The trimmed text of a file. An unreadable one is reported, an empty or missing one is `None`.
fn read(path: &Path, notices: &mut Vec<String>) -> Option<String> {
    let bytes = std::fs::metadata(path).and_then(|meta| {
        if !meta.is_file() && !meta.is_dir() {
            // Opening a pipe would wait for a writer: a prompt must not.
            return Err(std::io::Error::other("it is not a regular file"));
        }
        let file = File::open(path)?;
        let mut bytes = Vec::new();
        file.take(MAX_FILE_BYTES).read_to_end(&mut bytes)?;
        Ok(bytes)
    });
    match bytes {
        Ok(bytes) => {
            let text = String::from_utf8_lossy(&bytes);
            let text = text.trim_start_matches('\u{feff}').trim();
            (!text.is_empty()).then(|| text.to_owned())
        }
        Err(error) => {
            let missing = matches!(
                error.kind(),
                ErrorKind::NotFound | ErrorKind::NotADirectory | ErrorKind::IsADirectory
            );
            if !missing {
                notices.push(format!("{}: not read: {error}", path.display()));
            }
            None
        }
    }
}

/// The text, or a line in its place when it tries what instructions have no business to try.
fn checked(text: &str, name: &str, path: &Path, notices: &mut Vec<String>) -> String {
    let found = threat_scan::scan(text, ScanScope::Context);
    if found.is_empty() {
        return text.to_owned();
    }
    let found: Vec<String> = found.iter().map(ToString::to_string).collect();
    let found = found.join(", ");
    notices.push(format!(
        "{} was not loaded: it looks like a prompt injection ({found}).",
        path.display()
    ));
    format!("[BLOCKED: {name} looks like a prompt injection ({found}) and was not loaded.]")
}

/// What follows a `---` block at the start; the whole text if there is none.
fn without_front_matter(text: &str) -> &str {
    let Some(rest) = text.strip_prefix("---") else {
        return text;
    };
    let Some(end) = rest.find("\n---") else {
        return text;
    };
    let body = &rest[end + 4..];
    body.split_once('\n').map_or("", |(_, body)| body)
}

/// 70 % from the start and 20 % from the end of a text that is too long, and a note between.
fn cut(text: &str, limit: usize, path: &Path, notices: &mut Vec<String>) -> String {
    let length = text.chars().count();
    if length <= limit {
        return text.to_owned();
    }
    notices.push(format!(
        "{}: {length} characters, cut to {limit}. Shorten it, or raise context_file_max_chars.",
        path.display()
    ));
    let head: String = text.chars().take(limit * 7 / 10).collect();
    let tail: String = text.chars().skip(length - limit * 2 / 10).collect();
    format!(
        "{head}\n\n[… {} of {length} characters left out here; the whole text is in {} …]\n\n{tail}",
        length - head.chars().count() - tail.chars().count(),
        path.display()
    )
}

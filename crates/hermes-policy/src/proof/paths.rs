//! Checks reads and writes of paths.

use std::path::{Path, PathBuf};

use hermes_core::private::run_later_name;

use super::words::may_match;
use super::{ProofResult, Prover, private, refuse};
use crate::shell::ShellWord;

/// Placeholder in a word for any path below what precedes it.
pub(super) const BELOW: char = '\u{E005}';

/// Sample names of all files that are secret by their name.
const SAMPLE_NAMES: [&str; 26] = [
    ".env",
    ".env.local",
    ".env.production",
    ".envrc",
    "id_rsa",
    "id_dsa",
    "id_ecdsa",
    "id_ed25519",
    "credentials.json",
    ".netrc",
    ".pgpass",
    ".git-credentials",
    ".npmrc",
    ".pypirc",
    "shadow",
    "gshadow",
    "sudoers",
    "key.pem",
    "server.pem",
    "key.p12",
    "key.pfx",
    "x.kdbx",
    "credentials",
    "secrets.yml",
    "wallet.dat",
    "terraform.tfstate",
];
/// Directories of this machine that contain secrets.
const SYSTEM_PRIVATE: [&str; 9] = [
    "/etc/shadow",
    "/etc/gshadow",
    "/etc/sudoers",
    "/etc/ssl/private",
    "/etc/ssh/ssh_host_rsa_key",
    "/root/.ssh/id_rsa",
    "/proc/1/environ",
    "/proc/self/environ",
    "/proc/self/mem",
];
/// Directories of this machine that everybody may read.
const SYSTEM_PUBLIC: [&str; 4] = ["/usr", "/lib", "/opt", "/nix/store"];
/// Maximum number of entries scanned in a directory tree; beyond it the answer is "maybe".
const MAX_ENTRIES: usize = 5_000;
/// The same if only names matter.
const MAX_NAMES: usize = 50_000;

impl Prover<'_, '_> {
    /// The contents of `word` are read.
    pub(super) fn may_read(&self, word: &ShellWord) -> ProofResult {
        if word.text == "-" || word.text.is_empty() && !word.dynamic {
            return Ok(());
        }
        if let Some((start, _)) = word.text.split_once(BELOW) {
            if self.narrowed {
                return Ok(());
            }
            return self.may_read_tree(&ShellWord::plain(start_of(start)), true);
        }
        if word.dynamic || !word.known() {
            return refuse("it reads a file that is only known when it runs");
        }
        self.not_private(word)
    }

    /// A file that is read, or a directory whose files are.
    pub(super) fn may_read_or_list(&self, word: &ShellWord) -> ProofResult {
        let is_dir = |path: &PathBuf| self.classifier.disk && path.is_dir();
        if word.text.contains(BELOW) || self.classifier.resolve(&word.text).iter().any(is_dir) {
            self.may_read_tree(word, true)
        } else {
            self.may_read(word)
        }
    }

    /// A text that may name a file to read: also after `=`, `:`, `@` or an option.
    pub(super) fn not_private(&self, word: &ShellWord) -> ProofResult {
        let text = word.text.as_str();
        let mut candidates = vec![text];
        for mark in ['=', ':', '@', ','] {
            candidates.extend(text.split_once(mark).map(|(_, rest)| rest));
            candidates.extend(text.rsplit_once(mark).map(|(_, rest)| rest));
        }
        for candidate in candidates {
            if candidate.is_empty() {
                continue;
            }
            let path = ShellWord {
                text: candidate.to_owned(),
                ..word.clone()
            };
            if self.classifier.is_secret(&path)
                || is_kernel_path(candidate)
                || self.is_private_path(candidate, word.glob || candidate.contains(['*', '?', '[']))
            {
                return private(format!("it may read {candidate}, which holds secrets"));
            }
            if self.classifier.is_cwd_unknown() && !candidate.starts_with('/') && candidate == text
            {
                return refuse("it reads a file, and where it starts is not known");
            }
        }
        Ok(())
    }

    fn is_private_path(&self, text: &str, glob: bool) -> bool {
        let samples = self.samples();
        let leads_to_secret = |path: &Path| {
            path.canonicalize().is_ok_and(|real| {
                real != *path
                    && self
                        .classifier
                        .is_secret(&ShellWord::plain(real.to_string_lossy()))
            })
        };
        let by_text = self.classifier.resolve(text).iter().any(|path| {
            if glob {
                return Self::pattern_is_private(path, &samples)
                    || (self.classifier.disk
                        && matches(path).is_none_or(|found| {
                            found.iter().any(|path| {
                                leads_to_secret(path)
                                    || self
                                        .classifier
                                        .is_secret(&ShellWord::plain(path.to_string_lossy()))
                            })
                        }));
            }
            // The target of a link counts like its name.
            self.classifier.disk && leads_to_secret(path)
        });
        // After a link, `..` is not where the text says.
        by_text
            || (self.classifier.disk
                && text.contains("..")
                && self
                    .classifier
                    .directories()
                    .iter()
                    .any(|dir| leads_to_secret(&dir.join(text))))
    }

    fn pattern_is_private(pattern: &Path, samples: &[PathBuf]) -> bool {
        let pattern: Vec<String> = pattern
            .components()
            .map(|part| part.as_os_str().to_string_lossy().into_owned())
            .collect();
        let by_name = pattern.last().is_some_and(|last| {
            last.contains(['*', '?', '['])
                && SAMPLE_NAMES.iter().any(|name| may_match(last, name, false))
        });
        by_name
            || samples.iter().any(|sample| {
                sample.components().zip(&pattern).all(|(part, pattern)| {
                    may_match(pattern, &part.as_os_str().to_string_lossy(), false)
                })
            })
    }

    /// Sample paths of secrets, for patterns and directories.
    pub(super) fn samples(&self) -> Vec<PathBuf> {
        let mut samples = self.classifier.credential_places();
        samples.extend(SYSTEM_PRIVATE.iter().map(PathBuf::from));
        samples
    }

    /// Everything below `word` is read. `hidden`: including hidden entries.
    pub(super) fn may_read_tree(&self, word: &ShellWord, hidden: bool) -> ProofResult {
        // The name of a directory says nothing about its content.
        if let Some((start, _)) = word.text.split_once(BELOW) {
            return self.may_read_tree(&ShellWord::plain(start_of(start)), hidden);
        }
        if word.dynamic || !word.known() {
            return refuse("it reads files that are only known when it runs");
        }
        self.not_private(word)?;
        let samples = self.samples();
        for path in self.classifier.resolve(&word.text) {
            if samples.iter().any(|sample| sample.starts_with(&path)) {
                return private(format!("it may read secrets below {}", word.text));
            }
            let system = SYSTEM_PUBLIC.iter().any(|dir| path.starts_with(dir));
            if !system && !self.classifier.is_inside(&path) {
                return private(format!(
                    "it reads everything below {}, outside the workspace",
                    word.text
                ));
            }
            if !self.classifier.disk {
                continue;
            }
            let is_secret = |path: &Path| {
                self.classifier
                    .is_secret(&ShellWord::plain(path.to_string_lossy()))
            };
            match secrets_below(&path, hidden, &is_secret) {
                SecretSearch::None => {}
                SecretSearch::Found(name) => {
                    return private(format!("it may read {name}, which holds secrets"));
                }
                SecretSearch::TooMany => {
                    return refuse(format!(
                        "{} has too many files to know whether secrets are among them",
                        word.text
                    ));
                }
            }
        }
        Ok(())
    }

    /// Whether a program that splits at blanks and removes quotes takes each name below `starts` for one word.
    /// A directory that ends with a blank makes a path out of its content.
    pub(super) fn names_are_single_words(&self, starts: &[ShellWord]) -> ProofResult {
        if self.writes {
            return refuse("names that it makes itself may be taken for several");
        }
        for path in starts
            .iter()
            .flat_map(|word| self.classifier.resolve(&word.text))
        {
            if self.classifier.disk && !has_plain_names(&path) {
                return refuse("a file name with a blank or a quote in it is taken for several");
            }
        }
        Ok(())
    }

    /// A name pattern of `find`: whether it excludes everything that is secret by name.
    pub(super) fn leaves_out_secrets(pattern: &str) -> bool {
        let key = |name: &&str| may_match(pattern, name, true);
        pattern.contains(|c: char| c.is_ascii_alphanumeric()) && !SAMPLE_NAMES.iter().any(key)
    }

    /// `word` is created or changed.
    pub(super) fn may_write(&mut self, word: &ShellWord) -> ProofResult {
        if word.dynamic || !word.known() || word.text.contains(BELOW) || word.text.is_empty() {
            return refuse("it writes to a file that is only known when it runs");
        }
        // A file in the user's home may be executed automatically later.
        let home = self.classifier.user_home();
        let paths = self.classifier.resolve(&word.text);
        if paths.iter().any(|path| home.starts_with(path)) {
            return refuse(format!("it fills {}, where start-up files lie", word.text));
        }
        match self.classifier.writes_inside(word) {
            Some(true)
                if self.classifier.disk && !paths.iter().all(|path| self.stays_inside(path)) =>
            {
                refuse(format!(
                    "{} leads through a link to another place",
                    word.text
                ))
            }
            Some(true) => {
                self.writes = true;
                Ok(())
            }
            Some(false) => Ok(()),
            None => refuse(format!("it writes to {}", word.text)),
        }
    }
}

impl Prover<'_, '_> {
    /// Whether a path, with all links resolved, is still what its text says: inside, and not executed later.
    fn stays_inside(&self, path: &Path) -> bool {
        let Some(there) = path.ancestors().find(|dir| dir.symlink_metadata().is_ok()) else {
            return true;
        };
        let rest = path.strip_prefix(there).unwrap_or(Path::new(""));
        let Ok(real) = there.canonicalize() else {
            // A dangling link.
            return false;
        };
        if real == there {
            return true;
        }
        let real = real.join(rest);
        // The workspace itself may be behind a link.
        let as_seen = self.classifier.relative_to_roots(&real);
        let inside = |path: &Path| {
            self.classifier
                .writes_inside(&ShellWord::plain(path.to_string_lossy()))
                .is_some()
        };
        as_seen.iter().any(|path| inside(path))
    }
}

/// Whether a word stands for any number of names from `find`.
pub(super) fn is_many(word: &ShellWord) -> bool {
    word.text.contains(BELOW)
}

/// The part of a path before the placeholder.
fn start_of(text: &str) -> &str {
    match text.trim_end_matches('/') {
        "" if text.starts_with('/') => "/",
        start => start,
    }
}

/// Kernel paths that lead elsewhere: the text does not say where.
fn is_kernel_path(text: &str) -> bool {
    let below_proc = text.starts_with("/proc/") || text.contains("../proc/");
    let telling = ["cwd", "root", "fd", "task", "map_files", "environ", "mem"];
    (below_proc && text.split('/').any(|part| telling.contains(&part)))
        || (text.starts_with("/dev/fd") && text.contains(".."))
}

/// What a pattern matches here, within a bound; `None` if there is too much. It may be more than a shell would
/// match.
pub(super) fn matches(pattern: &Path) -> Option<Vec<PathBuf>> {
    let mut found = vec![PathBuf::from("/")];
    let mut seen = 0;
    for part in pattern.components().skip(1) {
        let part = part.as_os_str().to_string_lossy().into_owned();
        let mut next = Vec::new();
        for dir in found {
            if !part.contains(['*', '?', '[']) {
                next.push(dir.join(&part));
                continue;
            }
            for entry in std::fs::read_dir(&dir).into_iter().flatten().flatten() {
                seen += 1;
                if seen > MAX_ENTRIES {
                    return None;
                }
                if may_match(&part, &entry.file_name().to_string_lossy(), false) {
                    next.push(entry.path());
                }
            }
        }
        found = next;
    }
    Some(found)
}

/// Whether no name below `path` contains a blank or quote; false if there are too many names.
fn has_plain_names(path: &Path) -> bool {
    let is_plain = |name: &str| {
        !name.contains(|letter: char| {
            letter.is_whitespace() || letter.is_control() || "'\"\\".contains(letter)
        })
    };
    let mut waiting = vec![path.to_path_buf()];
    let mut seen = 0;
    while let Some(dir) = waiting.pop() {
        for entry in std::fs::read_dir(&dir).into_iter().flatten().flatten() {
            seen += 1;
            let name = entry.file_name();
            if seen > MAX_NAMES || !is_plain(&name.to_string_lossy()) {
                return false;
            }
            // Git chooses the names in there.
            if name != ".git" && entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                waiting.push(entry.path());
            }
        }
    }
    true
}

/// A path below `start`, and with `itself` also `start`, that is executed later, or "more than can be looked at".
/// What git keeps for itself is judged when git runs.
pub(super) fn run_later_below(start: &Path, itself: bool) -> Option<String> {
    let mut waiting = vec![start.to_path_buf()];
    let mut seen = 0;
    while let Some(path) = waiting.pop() {
        seen += 1;
        if seen > MAX_ENTRIES {
            return Some("more files than can be looked at".to_owned());
        }
        let is_link = path.is_symlink();
        if (itself || path != start) && run_later_name(&path, is_link).is_some() {
            return Some(path.to_string_lossy().into_owned());
        }
        if !is_link && path.file_name().is_none_or(|name| name != ".git") {
            let entries = std::fs::read_dir(&path).into_iter().flatten().flatten();
            waiting.extend(entries.map(|entry| entry.path()));
        }
    }
    None
}

enum SecretSearch {
    None,
    Found(String),
    TooMany,
}

/// Searches for secret names below `path`, within a bound. What cannot be read here cannot be read by the
/// command either; a directory of another machine is not here.
fn secrets_below(path: &Path, hidden: bool, is_secret: &dyn Fn(&Path) -> bool) -> SecretSearch {
    let mut waiting = vec![path.to_path_buf()];
    let mut followed = std::collections::HashSet::new();
    let mut seen = 0;
    while let Some(dir) = waiting.pop() {
        let Ok(entries) = std::fs::read_dir(&dir) else {
            continue;
        };
        for entry in entries.flatten() {
            seen += 1;
            if seen > MAX_ENTRIES {
                return SecretSearch::TooMany;
            }
            let name = entry.file_name().to_string_lossy().into_owned();
            if !hidden && name.starts_with('.') {
                continue;
            }
            if hermes_core::private::is_secret_name(&name) {
                return SecretSearch::Found(entry.path().to_string_lossy().into_owned());
            }
            let Ok(kind) = entry.file_type() else {
                continue;
            };
            if kind.is_dir() && name != ".git" {
                waiting.push(entry.path());
            }
            // Some programs follow links.
            if kind.is_symlink()
                && let Ok(real) = entry.path().canonicalize()
            {
                if is_secret(&real) {
                    return SecretSearch::Found(entry.path().to_string_lossy().into_owned());
                }
                if real.is_dir() && !path.starts_with(&real) && followed.insert(real.clone()) {
                    waiting.push(real);
                }
            }
        }
    }
    SecretSearch::None
}

/// A file below `root` that is secret by its name and not ignored by git. `None` also if there are too many
/// files.
pub(super) fn untracked_secret(root: &Path, with_ignored: bool) -> Option<String> {
    let list = std::fs::read_to_string(root.join(".gitignore")).unwrap_or_default();
    let patterns: Vec<&str> = list
        .lines()
        .map(|line| line.trim().trim_matches('/'))
        .filter(|line| !line.is_empty() && !line.starts_with(['#', '!']))
        .filter_map(|line| line.rsplit('/').next())
        .collect();
    let is_ignored = |name: &str| {
        !with_ignored
            && patterns
                .iter()
                .any(|pattern| may_match(pattern, name, true))
    };
    let mut waiting = vec![root.to_path_buf()];
    let mut seen = 0;
    while let Some(dir) = waiting.pop() {
        for entry in std::fs::read_dir(&dir).into_iter().flatten().flatten() {
            seen += 1;
            let name = entry.file_name().to_string_lossy().into_owned();
            if seen > MAX_ENTRIES {
                return None;
            }
            if is_ignored(&name) || name == ".git" {
                continue;
            }
            if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                waiting.push(entry.path());
            } else if hermes_core::private::is_secret_name(&name) {
                return Some(entry.path().to_string_lossy().into_owned());
            }
        }
    }
    None
}

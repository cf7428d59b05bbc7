//! Guesses from a command's output whether the sandbox caused its failure. It only decides whether the user is
//! asked.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::LazyLock;

use regex::Regex;

use super::paths::{PrivateDir, canonical};
use crate::confinement::Confinement;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BlockedKind {
    Write,
    Read,
    Network,
    /// A filtered system call or a resource limit.
    Operation,
}

/// What the sandbox probably blocked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Blocked {
    pub kind: BlockedKind,
    pub path: Option<PathBuf>,
}

impl fmt::Display for Blocked {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.kind, &self.path) {
            (BlockedKind::Write, Some(path)) => {
                write!(f, "writing {}, outside the workspace", path.display())
            }
            (BlockedKind::Write, None) => write!(f, "writing outside the workspace"),
            (BlockedKind::Read, Some(path)) => {
                write!(
                    f,
                    "reading or changing {}, which is private",
                    path.display()
                )
            }
            (BlockedKind::Read, None) => write!(f, "reading a private file"),
            (BlockedKind::Network, _) => write!(f, "using the network, which is off"),
            (BlockedKind::Operation, _) => write!(f, "a system call that confined commands lack"),
        }
    }
}

/// Only the end of the output is inspected: errors come last.
const MAX_INSPECTED: usize = 16 * 1024;

const REFUSALS: &[&str] = &[
    "Permission denied",
    "permission denied",
    "Read-only file system",
    "EACCES",
    "EROFS",
];

const UNREACHABLE: &[&str] = &[
    "Could not resolve host",
    "Temporary failure in name resolution",
    "Name or service not known",
    "Network is unreachable",
    "network is unreachable",
    "getaddrinfo",
    "EAI_AGAIN",
    "Failed to connect to",
    "unable to resolve",
    "socket: Operation not permitted",
    "Operation not permitted: connect",
];

pub(super) fn detect(
    exit: i32,
    output: &str,
    confinement: &Confinement,
    private: &[PrivateDir],
) -> Option<Blocked> {
    let Confinement::Workspace {
        writable,
        unreadable,
        network,
    } = confinement
    else {
        return None;
    };
    // Our own signals and a missing program are not refusals.
    if matches!(exit, 0 | 124 | 127 | 130) {
        return None;
    }
    let mut from = output.len().saturating_sub(MAX_INSPECTED);
    while !output.is_char_boundary(from) {
        from += 1;
    }
    let tail = &output[from..];
    if !network && UNREACHABLE.iter().any(|sign| tail.contains(sign)) {
        return Some(Blocked {
            kind: BlockedKind::Network,
            path: None,
        });
    }
    // Confined processes gain no privileges; sudo reports it like this.
    let mut refused_somewhere = tail.contains("no new privileges");
    for line in tail.lines().rev() {
        let plain = REFUSALS.iter().any(|sign| line.contains(sign));
        if !plain && !line.contains("Operation not permitted") && !line.contains("EPERM") {
            continue;
        }
        if let Some(found) = classify_refusal(line, writable, unreadable, private) {
            return Some(found);
        }
        refused_somewhere |= !plain;
    }
    // No path was named: a filtered call, such as a mount.
    refused_somewhere.then_some(Blocked {
        kind: BlockedKind::Operation,
        path: None,
    })
}

/// Classifies one refusal.
fn classify_refusal(
    line: &str,
    writable: &[PathBuf],
    unreadable: &[PathBuf],
    private: &[PrivateDir],
) -> Option<Blocked> {
    // A covered path below a writable directory reports this.
    let covered = line.contains("Read-only file system") || line.contains("EROFS");
    // The last path is the refused one; a shell names itself first.
    for path in paths(after_shell(line)).into_iter().rev() {
        let relative = path.is_relative();
        let place = if relative {
            path.clone()
        } else {
            canonical(&path)
        };
        let below = |dir: &PathBuf| place.starts_with(dir);
        let hidden = unreadable.iter().any(below)
            || private
                .iter()
                .any(|home| home.dir != place && below(&home.dir));
        let kind = if hidden {
            BlockedKind::Read
        } else if covered || relative || (!writable.iter().any(below) && user_could_write(&place)) {
            BlockedKind::Write
        } else {
            // Refused where we permit it, or where it would be refused without a sandbox too.
            continue;
        };
        return Some(Blocked {
            kind,
            path: Some(path),
        });
    }
    covered.then_some(Blocked {
        kind: BlockedKind::Write,
        path: None,
    })
}

/// Strips a prefix such as "/bin/bash: line 3:".
fn after_shell(line: &str) -> &str {
    match line.split_once(": line ") {
        Some((_, rest)) => rest.split_once(": ").map_or(rest, |(_, rest)| rest),
        None => line,
    }
}

/// Paths in a message that can lie outside the working directory.
fn paths(line: &str) -> Vec<PathBuf> {
    static PATH: LazyLock<Option<Regex>> = LazyLock::new(|| {
        Regex::new(r#"['"‘`]((?:\.\./|/)[^'"’`]*)['"’`]|(?:^|[\s(=:])((?:\.\./|/)[^\s:'"’,;)]*)"#)
            .ok()
    });
    let Some(pattern) = PATH.as_ref() else {
        return Vec::new();
    };
    pattern
        .captures_iter(line)
        .filter_map(|found| found.get(1).or_else(|| found.get(2)))
        .map(|found| PathBuf::from(found.as_str()))
        .collect()
}

/// Whether the user could write there without a sandbox: otherwise there is no point in asking.
fn user_could_write(path: &Path) -> bool {
    let existing = path.ancestors().find(|path| path.exists());
    existing.is_some_and(|path| rustix::fs::access(path, rustix::fs::Access::WRITE_OK).is_ok())
}

//! Parsing of diffs.

use similar::{ChangeTag, TextDiff};

use super::{DiffFileChange, DiffHunk, DiffLine, FileDiff, LineChange};

/// Texts with more lines than this are not compared but shown one after the other.
const MAX_COMPARED: usize = 4_000;
/// Context lines around a change.
const CONTEXT_LINES: usize = 3;

pub(super) fn unified(text: &str) -> Vec<FileDiff> {
    let mut files: Vec<FileDiff> = Vec::new();
    // Remaining lines of the open hunk, before and after.
    let mut left = (0, 0);
    let mut old_path = String::new();
    for line in text.lines() {
        if left.0 > 0 || left.1 > 0 {
            if take(&mut files, line, &mut left) {
                continue;
            }
            left = (0, 0);
        }
        if let Some(path) = line.strip_prefix("--- ") {
            old_path = name(path);
        } else if let Some(path) = line.strip_prefix("+++ ") {
            let new_path = name(path);
            files.push(file(&old_path, &new_path));
        } else if let Some(range) = line.strip_prefix("@@ ") {
            let Some(((old, old_count), (new, new_count))) = ranges(range) else {
                continue;
            };
            if files.is_empty() {
                files.push(FileDiff::default());
            }
            left = (old_count, new_count);
            if let Some(file) = files.last_mut() {
                file.hunks.push(DiffHunk {
                    numbers: Some((old, new)),
                    lines: Vec::new(),
                });
            }
        }
    }
    files
}

/// Parses a line of a hunk; false: it is not one.
fn take(files: &mut [FileDiff], line: &str, left: &mut (usize, usize)) -> bool {
    let Some(hunk) = files.last_mut().and_then(|file| file.hunks.last_mut()) else {
        return false;
    };
    let (sign, text) = match line.chars().next() {
        Some('+') => (LineChange::Added, &line[1..]),
        Some('-') => (LineChange::Removed, &line[1..]),
        Some(' ') => (LineChange::Same, &line[1..]),
        // Some diffs omit the space on empty lines.
        None => (LineChange::Same, line),
        // `\ No newline at end of file`
        Some('\\') => return true,
        Some(_) => return false,
    };
    if sign != LineChange::Added {
        left.0 = left.0.saturating_sub(1);
    }
    if sign != LineChange::Removed {
        left.1 = left.1.saturating_sub(1);
    }
    hunk.lines.push(DiffLine {
        change: sign,
        text: text.to_owned(),
    });
    true
}

/// A path of a header, without the timestamp after it and the prefix before it.
fn name(path: &str) -> String {
    let path = path.split('\t').next().unwrap_or(path).trim();
    let path = path.trim_matches('"');
    let bare = path.strip_prefix("a/").or_else(|| path.strip_prefix("b/"));
    bare.unwrap_or(path).to_owned()
}

fn file(old: &str, new: &str) -> FileDiff {
    const NONE: &str = "/dev/null";
    let (path, change) = match (old, new) {
        (NONE, new) => (new, DiffFileChange::Created),
        (old, NONE) => (old, DiffFileChange::Deleted),
        (_, new) => (new, DiffFileChange::Edited),
    };
    let moved = change == DiffFileChange::Edited && !old.is_empty() && old != new;
    FileDiff {
        path: if moved { old } else { path }.to_owned(),
        moved: moved.then(|| new.to_owned()),
        change,
        hunks: Vec::new(),
    }
}

type HunkRange = (usize, usize);

/// `-1,2 +3,4 @@ …`
fn ranges(text: &str) -> Option<(HunkRange, HunkRange)> {
    let mut parts = text.split_whitespace();
    let mut next = |sign: char| -> Option<HunkRange> {
        let part = parts.next()?.strip_prefix(sign)?;
        match part.split_once(',') {
            Some((start, count)) => Some((start.parse().ok()?, count.parse().ok()?)),
            None => Some((part.parse().ok()?, 1)),
        }
    };
    Some((next('-')?, next('+')?))
}

pub(super) fn v4a(text: &str) -> Vec<FileDiff> {
    let mut files: Vec<FileDiff> = Vec::new();
    let open = |path: &str, change: DiffFileChange| FileDiff {
        path: path.trim().to_owned(),
        change,
        ..FileDiff::default()
    };
    for line in text.lines() {
        if let Some(path) = line.strip_prefix("*** Update File:") {
            files.push(open(path, DiffFileChange::Edited));
        } else if let Some(path) = line.strip_prefix("*** Add File:") {
            files.push(open(path, DiffFileChange::Created));
        } else if let Some(path) = line.strip_prefix("*** Delete File:") {
            files.push(open(path, DiffFileChange::Deleted));
        } else if let Some(path) = line.strip_prefix("*** Move File:") {
            let (from, to) = path.split_once("->").unwrap_or((path, ""));
            files.push(FileDiff {
                moved: Some(to.trim().to_owned()),
                ..open(from, DiffFileChange::Edited)
            });
        } else if let Some(file) = files.last_mut() {
            v4a_line(file, line);
        }
    }
    files
}

fn v4a_line(file: &mut FileDiff, line: &str) {
    if let Some(to) = line.strip_prefix("*** Move to:") {
        file.moved = Some(to.trim().to_owned());
        return;
    }
    if line.starts_with("***") {
        return;
    }
    if line.starts_with("@@") {
        file.hunks.push(DiffHunk::default());
        return;
    }
    let (sign, text) = match line.chars().next() {
        Some('+') => (LineChange::Added, &line[1..]),
        Some('-') => (LineChange::Removed, &line[1..]),
        Some(' ') => (LineChange::Same, &line[1..]),
        _ => (LineChange::Same, line),
    };
    if file.hunks.is_empty() {
        // A new file begins at its first line.
        let numbers = (file.change == DiffFileChange::Created).then_some((0, 1));
        file.hunks.push(DiffHunk {
            numbers,
            lines: Vec::new(),
        });
    }
    if let Some(hunk) = file.hunks.last_mut() {
        hunk.lines.push(DiffLine {
            change: sign,
            text: text.to_owned(),
        });
    }
}

pub(super) fn between(path: &str, before: &str, after: &str) -> FileDiff {
    let line = |sign: LineChange, text: &str| DiffLine {
        change: sign,
        text: text.trim_end_matches(['\n', '\r']).to_owned(),
    };
    let mut hunks = Vec::new();
    if before.lines().count() + after.lines().count() > MAX_COMPARED {
        let removed = before.lines().map(|text| line(LineChange::Removed, text));
        let added = after.lines().map(|text| line(LineChange::Added, text));
        hunks.push(DiffHunk {
            numbers: None,
            lines: removed.chain(added).collect(),
        });
    } else {
        let diff = TextDiff::from_lines(before, after);
        for group in diff.grouped_ops(CONTEXT_LINES) {
            let mut lines = Vec::new();
            for change in group.iter().flat_map(|op| diff.iter_changes(op)) {
                let sign = match change.tag() {
                    ChangeTag::Equal => LineChange::Same,
                    ChangeTag::Insert => LineChange::Added,
                    ChangeTag::Delete => LineChange::Removed,
                };
                lines.push(line(sign, change.value()));
            }
            hunks.push(DiffHunk {
                numbers: None,
                lines,
            });
        }
    }
    FileDiff {
        path: path.to_owned(),
        moved: None,
        change: DiffFileChange::Edited,
        hunks,
    }
}

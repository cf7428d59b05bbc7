//! Diffs as they are written down.

use similar::{ChangeTag, TextDiff};

use super::{Change, DiffLine, FileDiff, Hunk, Sign};

/// Lines of both sides beyond which two texts are not compared but shown one after the other.
const MAX_COMPARED: usize = 4_000;
/// Lines that stay around a change.
const CONTEXT: usize = 3;

pub(super) fn unified(text: &str) -> Vec<FileDiff> {
    let mut files: Vec<FileDiff> = Vec::new();
    // Lines of the open hunk that are still to come, before and after.
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
                file.hunks.push(Hunk {
                    numbers: Some((old, new)),
                    lines: Vec::new(),
                });
            }
        }
    }
    files
}

/// A line of a hunk; false: it is none.
fn take(files: &mut [FileDiff], line: &str, left: &mut (usize, usize)) -> bool {
    let Some(hunk) = files.last_mut().and_then(|file| file.hunks.last_mut()) else {
        return false;
    };
    let (sign, text) = match line.chars().next() {
        Some('+') => (Sign::Added, &line[1..]),
        Some('-') => (Sign::Removed, &line[1..]),
        Some(' ') => (Sign::Same, &line[1..]),
        // Some leave the blank out where nothing else is on the line.
        None => (Sign::Same, line),
        // `\ No newline at end of file`
        Some('\\') => return true,
        Some(_) => return false,
    };
    if sign != Sign::Added {
        left.0 = left.0.saturating_sub(1);
    }
    if sign != Sign::Removed {
        left.1 = left.1.saturating_sub(1);
    }
    hunk.lines.push(DiffLine {
        sign,
        text: text.to_owned(),
    });
    true
}

/// A path of a header, without the time behind it and the letter before it.
fn name(path: &str) -> String {
    let path = path.split('\t').next().unwrap_or(path).trim();
    let path = path.trim_matches('"');
    let bare = path.strip_prefix("a/").or_else(|| path.strip_prefix("b/"));
    bare.unwrap_or(path).to_owned()
}

fn file(old: &str, new: &str) -> FileDiff {
    const NONE: &str = "/dev/null";
    let (path, change) = match (old, new) {
        (NONE, new) => (new, Change::Created),
        (old, NONE) => (old, Change::Deleted),
        (_, new) => (new, Change::Edited),
    };
    let moved = change == Change::Edited && !old.is_empty() && old != new;
    FileDiff {
        path: if moved { old } else { path }.to_owned(),
        moved: moved.then(|| new.to_owned()),
        change,
        hunks: Vec::new(),
    }
}

type Lines = (usize, usize);

/// `-1,2 +3,4 @@ …`
fn ranges(text: &str) -> Option<(Lines, Lines)> {
    let mut parts = text.split_whitespace();
    let mut next = |sign: char| -> Option<Lines> {
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
    let open = |path: &str, change: Change| FileDiff {
        path: path.trim().to_owned(),
        change,
        ..FileDiff::default()
    };
    for line in text.lines() {
        if let Some(path) = line.strip_prefix("*** Update File:") {
            files.push(open(path, Change::Edited));
        } else if let Some(path) = line.strip_prefix("*** Add File:") {
            files.push(open(path, Change::Created));
        } else if let Some(path) = line.strip_prefix("*** Delete File:") {
            files.push(open(path, Change::Deleted));
        } else if let Some(path) = line.strip_prefix("*** Move File:") {
            let (from, to) = path.split_once("->").unwrap_or((path, ""));
            files.push(FileDiff {
                moved: Some(to.trim().to_owned()),
                ..open(from, Change::Edited)
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
        file.hunks.push(Hunk::default());
        return;
    }
    let (sign, text) = match line.chars().next() {
        Some('+') => (Sign::Added, &line[1..]),
        Some('-') => (Sign::Removed, &line[1..]),
        Some(' ') => (Sign::Same, &line[1..]),
        _ => (Sign::Same, line),
    };
    if file.hunks.is_empty() {
        // A new file begins at its first line.
        let numbers = (file.change == Change::Created).then_some((0, 1));
        file.hunks.push(Hunk {
            numbers,
            lines: Vec::new(),
        });
    }
    if let Some(hunk) = file.hunks.last_mut() {
        hunk.lines.push(DiffLine {
            sign,
            text: text.to_owned(),
        });
    }
}

pub(super) fn between(path: &str, before: &str, after: &str) -> FileDiff {
    let line = |sign: Sign, text: &str| DiffLine {
        sign,
        text: text.trim_end_matches(['\n', '\r']).to_owned(),
    };
    let mut hunks = Vec::new();
    if before.lines().count() + after.lines().count() > MAX_COMPARED {
        let removed = before.lines().map(|text| line(Sign::Removed, text));
        let added = after.lines().map(|text| line(Sign::Added, text));
        hunks.push(Hunk {
            numbers: None,
            lines: removed.chain(added).collect(),
        });
    } else {
        let diff = TextDiff::from_lines(before, after);
        for group in diff.grouped_ops(CONTEXT) {
            let mut lines = Vec::new();
            for change in group.iter().flat_map(|op| diff.iter_changes(op)) {
                let sign = match change.tag() {
                    ChangeTag::Equal => Sign::Same,
                    ChangeTag::Insert => Sign::Added,
                    ChangeTag::Delete => Sign::Removed,
                };
                lines.push(line(sign, change.value()));
            }
            hunks.push(Hunk {
                numbers: None,
                lines,
            });
        }
    }
    FileDiff {
        path: path.to_owned(),
        moved: None,
        change: Change::Edited,
        hunks,
    }
}

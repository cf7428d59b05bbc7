//! Adapts new text to the text that was found loosely.

use super::similarity::{WorkBudget, opcodes_within};
use super::strategy::{Strategy, plain_of, unescaped};

/// Work limit for finding the characters to keep.
const MAX_ADAPT_WORK: u64 = 2_000_000;

/// A `\'` or `\"` that old and new text have but the found text does not: writing it would put unwanted
/// backslashes into the file.
pub(super) fn stray_backslash(found: &str, old: &str, new: &str) -> Option<&'static str> {
    ["\\'", "\\\""].into_iter().find(|sequence| {
        new.contains(sequence) && old.contains(sequence) && !found.contains(sequence)
    })
}

/// `new` adapted to `found`, which `strategy` found for `old`.
pub(super) fn adapted(found: &str, old: &str, new: &str, strategy: Strategy) -> String {
    let mut text = decoded(found, new, strategy);
    if strategy == Strategy::UnicodeNormalized {
        text = with_typography(found, old, &text);
    }
    // Escaped indentation counts as indentation.
    reindented(found, &decoded(found, old, strategy), &text)
}

/// Converts escaped tabs and carriage returns if the found text has real ones. If the old text itself
/// was escaped, line breaks are converted as well.
fn decoded(found: &str, text: &str, strategy: Strategy) -> String {
    if strategy == Strategy::EscapeNormalized && found.contains('\n') {
        return unescaped(text);
    }
    let mut text = text.to_owned();
    for (sequence, c) in [("\\t", "\t"), ("\\r", "\r")] {
        if text.contains(sequence) && found.contains(c) {
            text = text.replace(sequence, c);
        }
    }
    text
}

/// Keeps the typographic characters of the found text wherever old and new text agree.
fn with_typography(found: &str, old: &str, new: &str) -> String {
    let plain = |text: &str| -> Vec<char> {
        let mut out = Vec::new();
        for c in text.chars() {
            match plain_of(c) {
                Some(plain) => out.extend(plain.chars()),
                None => out.push(c),
            }
        }
        out
    };
    let (plain_old, plain_found) = (plain(old), plain(found));
    if plain_old != plain_found {
        return new.to_owned();
    }
    // Each character of the found text with its start in the plain text.
    let mut at = 0;
    let mut starts = Vec::new();
    for c in found.chars() {
        starts.push((at, c));
        at += plain_of(c).map_or(1, |plain| plain.chars().count());
    }
    let new: Vec<char> = new.chars().collect();
    let mut text = String::new();
    for code in opcodes_within(&plain_old, &new, &mut WorkBudget::of(MAX_ADAPT_WORK)) {
        if code.equal {
            let char_index = |end: usize| starts.partition_point(|(at, _)| *at < end);
            let kept = &starts[char_index(code.old.start)..char_index(code.old.end)];
            // A range that begins or ends inside a dash or ellipsis is written plainly.
            let whole =
                boundary(&starts, at, code.old.start) && boundary(&starts, at, code.old.end);
            if whole {
                text.extend(kept.iter().map(|(_, c)| *c));
            } else {
                text.extend(&new[code.new]);
            }
        } else {
            text.extend(&new[code.new]);
        }
    }
    text
}

fn boundary(starts: &[(usize, char)], end: usize, at: usize) -> bool {
    at == end
        || starts
            .binary_search_by_key(&at, |(start, _)| *start)
            .is_ok()
}

/// Shifts the lines of `new` by the difference between the indentation of the found text and that of
/// `old`.
fn reindented(found: &str, old: &str, new: &str) -> String {
    let (Some(theirs), Some(ours)) = (first_indent(old), first_indent(found)) else {
        return new.to_owned();
    };
    if new.is_empty() || theirs == ours {
        return new.to_owned();
    }
    new.split('\n')
        .map(|line| {
            if line.trim().is_empty() {
                return line.to_owned();
            }
            let rest = line
                .strip_prefix(theirs)
                .unwrap_or_else(|| line.trim_start_matches([' ', '\t']));
            format!("{ours}{rest}")
        })
        .collect::<Vec<_>>()
        .join("\n")
}

/// Leading spaces and tabs of the first non-empty line.
fn first_indent(text: &str) -> Option<&str> {
    let line = text.split('\n').find(|line| !line.trim().is_empty())?;
    let rest = line.trim_start_matches([' ', '\t']);
    Some(&line[..line.len() - rest.len()])
}

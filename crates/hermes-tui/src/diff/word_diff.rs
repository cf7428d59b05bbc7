//! Word-level differences of changed lines.

use similar::{ChangeTag, TextDiff};

use super::{DiffLine, LineChange};

/// Longer lines and longer runs of lines are not compared.
const MAX_LINE: usize = 1_000;
const MAX_RUN: usize = 40;
/// Less similar lines are treated as unrelated.
const MIN_SIMILARITY: f32 = 0.45;

/// A line in parts: whether each changed, and its text.
type WordParts = Vec<(bool, String)>;

/// For each line, its parts.
pub(super) fn emphasis(lines: &[DiffLine]) -> Vec<WordParts> {
    let mut parts: Vec<WordParts> = lines
        .iter()
        .map(|line| vec![(false, line.text.clone())])
        .collect();
    let mut at = 0;
    while at < lines.len() {
        let removed = run(lines, at, LineChange::Removed);
        let added = run(lines, at + removed, LineChange::Added);
        if removed.max(added) <= MAX_RUN {
            for index in 0..removed.min(added) {
                let (old, new) = (at + index, at + removed + index);
                let pair = lines.get(old).zip(lines.get(new));
                let Some((before, after)) = pair.and_then(|(a, b)| compare(&a.text, &b.text))
                else {
                    continue;
                };
                if let Some(slot) = parts.get_mut(old) {
                    *slot = before;
                }
                if let Some(slot) = parts.get_mut(new) {
                    *slot = after;
                }
            }
        }
        at += (removed + added).max(1);
    }
    parts
}

fn run(lines: &[DiffLine], from: usize, sign: LineChange) -> usize {
    let rest = lines.get(from..).unwrap_or_default();
    rest.iter().take_while(|line| line.change == sign).count()
}

fn compare(before: &str, after: &str) -> Option<(WordParts, WordParts)> {
    if before.len() > MAX_LINE || after.len() > MAX_LINE {
        return None;
    }
    let (old_words, new_words) = (words(before), words(after));
    let diff = TextDiff::from_slices(&old_words, &new_words);
    if diff.ratio() < MIN_SIMILARITY {
        return None;
    }
    let (mut old, mut new) = (WordParts::new(), WordParts::new());
    for change in diff.iter_all_changes() {
        match change.tag() {
            ChangeTag::Equal => {
                push(&mut old, false, change.value());
                push(&mut new, false, change.value());
            }
            ChangeTag::Delete => push(&mut old, true, change.value()),
            ChangeTag::Insert => push(&mut new, true, change.value()),
        }
    }
    Some((old, new))
}

/// Names, runs of spaces, and every other character by itself.
fn words(text: &str) -> Vec<&str> {
    let kind = |ch: char| match ch {
        ch if ch.is_alphanumeric() || ch == '_' => 0,
        ch if ch.is_whitespace() => 1,
        _ => 2,
    };
    let mut out = Vec::new();
    let mut start = 0;
    let mut last = None;
    for (at, ch) in text.char_indices() {
        let now = kind(ch);
        if at > start && (last != Some(now) || now == 2) {
            out.push(&text[start..at]);
            start = at;
        }
        last = Some(now);
    }
    if start < text.len() {
        out.push(&text[start..]);
    }
    out
}

fn push(parts: &mut WordParts, changed: bool, text: &str) {
    match parts.last_mut() {
        Some((last, whole)) if *last == changed => whole.push_str(text),
        _ => parts.push((changed, text.to_owned())),
    }
}

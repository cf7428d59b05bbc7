//! Suggestions for a text that was not found.

use super::similarity::{WorkBudget, ratio_within};

const MAX_PLACES: usize = 3;
const CONTEXT_LINES: usize = 2;
const MIN_SIMILARITY: f64 = 0.3;
/// Maximum number of lines searched; a larger file takes too long.
const MAX_LINES: usize = 20_000;
const MAX_LINE_CHARS: usize = 400;
/// Work limit of the search for a hint.
const MAX_HINT_WORK: u64 = 10_000_000;

/// Up to three places that begin like `old`, with line numbers; `None` if nothing is similar.
pub fn nearest(content: &str, old: &str) -> Option<String> {
    let anchor = old.lines().map(str::trim).find(|line| !line.is_empty())?;
    let height = old.lines().count();
    let lines: Vec<&str> = content.lines().take(MAX_LINES).collect();
    let mut work = WorkBudget::of(MAX_HINT_WORK);
    let mut scored: Vec<(f64, usize)> = lines
        .iter()
        .enumerate()
        .filter(|(_, line)| !line.trim().is_empty() && line.len() <= MAX_LINE_CHARS * 4)
        .map(|(at, line)| (ratio_within(anchor, line.trim(), &mut work), at))
        .filter(|(score, _)| *score > MIN_SIMILARITY)
        .collect();
    scored.sort_by(|a, b| b.0.total_cmp(&a.0).then(a.1.cmp(&b.1)));
    let mut shown: Vec<(usize, usize)> = Vec::new();
    for (_, at) in scored {
        let range = (
            at.saturating_sub(CONTEXT_LINES),
            (at + height + CONTEXT_LINES).min(lines.len()),
        );
        let covered = shown
            .iter()
            .any(|seen| seen.0 <= range.0 && range.1 <= seen.1);
        if !covered {
            shown.push(range);
        }
        if shown.len() == MAX_PLACES {
            break;
        }
    }
    let places: Vec<String> = shown
        .into_iter()
        .map(|(from, to)| {
            let lines = lines[from..to].iter().enumerate();
            let lines = lines.map(|(at, line)| {
                let line: String = line.chars().take(MAX_LINE_CHARS).collect();
                format!("{:4}| {line}", from + at + 1)
            });
            lines.collect::<Vec<_>>().join("\n")
        })
        .collect();
    (!places.is_empty()).then(|| places.join("\n---\n"))
}

//! Similarity of two texts by Ratcliff and Obershelp, as in Python's `difflib`, from which the
//! thresholds of the strategies come.

use std::collections::HashMap;
use std::hash::Hash;
use std::ops::Range;

/// From this length on, frequent items of the second text are not used as anchors.
const MIN_LEN_FOR_POPULARITY: usize = 200;

/// Remaining steps for comparisons. A step compares one character (or line) of one text with one
/// position in the other; this bounds the time of a search for any input.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WorkBudget {
    left: u64,
}

impl WorkBudget {
    pub const fn of(steps: u64) -> Self {
        Self { left: steps }
    }

    /// Whether the limit is reached.
    pub fn is_used_up(&self) -> bool {
        self.left == 0
    }

    /// Remaining steps.
    pub fn left(&self) -> u64 {
        self.left
    }

    pub(super) fn spend(&mut self, steps: usize) {
        self.left = self.left.saturating_sub(steps as u64);
    }
}

/// A range of both texts: equal, or replaced (either side may be empty).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Opcode {
    pub equal: bool,
    pub old: Range<usize>,
    pub new: Range<usize>,
}

/// 0 (nothing in common) to 1 (equal), over characters.
pub fn ratio(a: &str, b: &str) -> f64 {
    ratio_within(a, b, &mut WorkBudget::of(u64::MAX))
}

/// Like [`ratio`], but too low once the work is used up.
pub(super) fn ratio_within(a: &str, b: &str, work: &mut WorkBudget) -> f64 {
    // Splitting the texts counts as work, too.
    work.spend(a.len());
    if work.is_used_up() {
        return 0.0;
    }
    let a: Vec<char> = a.chars().collect();
    let b: Vec<char> = b.chars().collect();
    let total = a.len() + b.len();
    if total == 0 {
        return 1.0;
    }
    let blocks = matching_blocks(&a, &b, work);
    let same: usize = blocks.iter().map(|block| block.2).sum();
    2.0 * same as f64 / total as f64
}

/// A line with its character counts, to compare with many others.
#[derive(Clone, Copy, Debug)]
pub(super) struct CountedLine<'a> {
    text: &'a str,
    chars: usize,
}

impl<'a> CountedLine<'a> {
    /// Without surrounding whitespace.
    pub(super) fn trimmed(text: &'a str) -> Self {
        let text = text.trim();
        let chars = text.chars().count();
        Self { text, chars }
    }
}

/// Whether [`ratio`] reaches `least`, usually without computing it.
pub(super) fn at_least(
    a: CountedLine<'_>,
    b: CountedLine<'_>,
    least: f64,
    work: &mut WorkBudget,
) -> bool {
    work.spend(1);
    let (n, m) = (a.chars, b.chars);
    let reaches = |same: usize| 2.0 * same as f64 / (n + m) as f64 >= least;
    if work.is_used_up() || (n + m > 0 && !reaches(n.min(m))) {
        return false;
    }
    if a.text == b.text {
        return true;
    }
    work.spend(n + m);
    reaches(common_characters(a.text, b.text)) && ratio_within(a.text, b.text, work) >= least
}

/// Number of common characters in any order: an upper bound for those that match in order.
fn common_characters(a: &str, b: &str) -> usize {
    let mut counts: HashMap<char, usize> = HashMap::new();
    for c in b.chars() {
        *counts.entry(c).or_default() += 1;
    }
    a.chars()
        .filter(|c| match counts.get_mut(c) {
            Some(left) if *left > 0 => {
                *left -= 1;
                true
            }
            _ => false,
        })
        .count()
}

/// How to get from `a` to `b`.
pub fn opcodes<T: Copy + Eq + Hash>(a: &[T], b: &[T]) -> Vec<Opcode> {
    opcodes_within(a, b, &mut WorkBudget::of(u64::MAX))
}

/// Like [`opcodes`] with this much work: always correct, but coarser once it is used up.
pub(super) fn opcodes_within<T: Copy + Eq + Hash>(
    a: &[T],
    b: &[T],
    work: &mut WorkBudget,
) -> Vec<Opcode> {
    let mut codes = Vec::new();
    let (mut i, mut j) = (0, 0);
    for (ai, bj, size) in matching_blocks(a, b, work) {
        if i < ai || j < bj {
            codes.push(Opcode {
                equal: false,
                old: i..ai,
                new: j..bj,
            });
        }
        if size > 0 {
            codes.push(Opcode {
                equal: true,
                old: ai..ai + size,
                new: bj..bj + size,
            });
        }
        (i, j) = (ai + size, bj + size);
    }
    codes
}

/// Blocks `(start in a, start in b, length)` in order, ending with an empty one at the ends.
fn matching_blocks<T: Copy + Eq + Hash>(
    a: &[T],
    b: &[T],
    work: &mut WorkBudget,
) -> Vec<(usize, usize, usize)> {
    work.spend(b.len());
    let places = places(b);
    let mut queue = vec![(0, a.len(), 0, b.len())];
    let mut blocks = Vec::new();
    while let Some((alo, ahi, blo, bhi)) = queue.pop() {
        let (i, j, size) = longest_match(a, b, &places, (alo, ahi), (blo, bhi), work);
        if size == 0 {
            continue;
        }
        blocks.push((i, j, size));
        if alo < i && blo < j {
            queue.push((alo, i, blo, j));
        }
        if i + size < ahi && j + size < bhi {
            queue.push((i + size, ahi, j + size, bhi));
        }
    }
    blocks.sort_unstable();
    let mut joined: Vec<(usize, usize, usize)> = Vec::with_capacity(blocks.len() + 1);
    for (i, j, size) in blocks {
        match joined.last_mut() {
            Some((li, lj, lsize)) if *li + *lsize == i && *lj + *lsize == j => *lsize += size,
            _ => joined.push((i, j, size)),
        }
    }
    joined.push((a.len(), b.len(), 0));
    joined
}

fn places<T: Copy + Eq + Hash>(b: &[T]) -> HashMap<T, Vec<usize>> {
    let mut places: HashMap<T, Vec<usize>> = HashMap::new();
    for (at, item) in b.iter().enumerate() {
        places.entry(*item).or_default().push(at);
    }
    if b.len() >= MIN_LEN_FOR_POPULARITY {
        let max_count = b.len() / 100 + 1;
        places.retain(|_, at| at.len() <= max_count);
    }
    places
}

/// The longest common run inside the bounds; the earliest of equal ones. It is then extended over
/// frequent items, which are not used as anchors.
fn longest_match<T: Copy + Eq + Hash>(
    a: &[T],
    b: &[T],
    places: &HashMap<T, Vec<usize>>,
    (alo, ahi): (usize, usize),
    (blo, bhi): (usize, usize),
    work: &mut WorkBudget,
) -> (usize, usize, usize) {
    let (mut best_i, mut best_j, mut best) = (alo, blo, 0);
    let mut lengths: HashMap<usize, usize> = HashMap::new();
    for (i, item) in a.iter().enumerate().take(ahi).skip(alo) {
        if work.is_used_up() {
            break;
        }
        work.spend(1);
        let mut next = HashMap::new();
        for &j in places.get(item).into_iter().flatten() {
            work.spend(1);
            if j < blo {
                continue;
            }
            if j >= bhi {
                break;
            }
            let before = j.checked_sub(1).and_then(|j| lengths.get(&j));
            let length = before.copied().unwrap_or(0) + 1;
            next.insert(j, length);
            if length > best {
                (best_i, best_j, best) = (i + 1 - length, j + 1 - length, length);
            }
        }
        lengths = next;
    }
    while best_i > alo && best_j > blo && a[best_i - 1] == b[best_j - 1] {
        (best_i, best_j, best) = (best_i - 1, best_j - 1, best + 1);
    }
    while best_i + best < ahi && best_j + best < bhi && a[best_i + best] == b[best_j + best] {
        best += 1;
    }
    (best_i, best_j, best)
}

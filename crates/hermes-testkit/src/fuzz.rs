//! The short form of the fuzz targets, for the ordinary test run: the checked-in corpus, then a fixed
//! number of mutations of it. No clock and no chance: a run that failed fails again.
//!
//! The long form, guided by coverage, is `cargo xtask fuzz`. Both share the corpus and the
//! dictionaries in `crates/hermes-fuzz/corpus`.

use std::fs;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};

/// Longer inputs cost time and say nothing new.
const MAX_INPUT: usize = 2048;
/// Mutations of one input, at most.
const MAX_STEPS: usize = 6;
/// Bytes that mean something to most parsers.
const BYTES: &[u8] = b"\0\t\n\r\x1b \"#$%&'()*+,-./019:;<=>?@AZ[\\]^_`az{|}~\x7f\x80\xc3\xff";

/// Runs `check` over the corpus of `target` and over `rounds` mutations of it.
pub fn run(target: &str, rounds: u32, check: fn(&[u8])) {
    let corpus = Corpus::load(target);
    for (path, input) in &corpus.inputs {
        attempt(target, input, check, &format!("this is {}", path.display()));
    }
    let mut random = Random::of(target);
    for _ in 0..rounds {
        let input = corpus.mutated(&mut random);
        attempt(
            target,
            &input,
            check,
            "add it to the corpus together with the fix",
        );
    }
}

fn attempt(target: &str, input: &[u8], check: fn(&[u8]), note: &str) {
    let outcome = catch_unwind(AssertUnwindSafe(|| check(input)));
    assert!(
        outcome.is_ok(),
        "fuzz target {target} fails, see above; {note}. The input: b\"{}\"",
        input.escape_ascii()
    );
}

struct Corpus {
    inputs: Vec<(PathBuf, Vec<u8>)>,
    tokens: Vec<Vec<u8>>,
}

impl Corpus {
    fn load(target: &str) -> Self {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../hermes-fuzz/corpus");
        let directory = root.join(target);
        let entries = fs::read_dir(&directory).expect("the corpus of a target has its name");
        let mut paths: Vec<PathBuf> = entries
            .map(|entry| entry.expect("the corpus can be listed").path())
            .collect();
        paths.sort();
        assert!(!paths.is_empty(), "{} is empty", directory.display());
        let inputs = paths.into_iter().map(|path| {
            let input = fs::read(&path).expect("the corpus can be read");
            (path, input)
        });
        let dictionary = fs::read_to_string(root.join(format!("{target}.dict")));
        let tokens = dictionary.expect("a target has a dictionary");
        Self {
            inputs: inputs.collect(),
            tokens: tokens.lines().filter_map(token).collect(),
        }
    }

    fn mutated(&self, random: &mut Random) -> Vec<u8> {
        let mut input = self.some_input(random).to_vec();
        for _ in 0..=random.below(MAX_STEPS) {
            self.mutate(&mut input, random);
        }
        input.truncate(MAX_INPUT);
        input
    }

    fn some_input(&self, random: &mut Random) -> &[u8] {
        &self.inputs[random.below(self.inputs.len())].1
    }

    fn mutate(&self, input: &mut Vec<u8>, random: &mut Random) {
        let at = random.below(input.len() + 1);
        let until = (at + random.below(16)).min(input.len());
        match random.below(9) {
            0 => drop(input.drain(at..until)),
            1 => input.insert(at, BYTES[random.below(BYTES.len())]),
            2 => input.insert(at, random.below(256) as u8),
            3 if at < input.len() => input[at] ^= 1 << random.below(8),
            4 if at < input.len() => input[at] = BYTES[random.below(BYTES.len())],
            // A part again, elsewhere.
            5 => {
                let part = input[at..until].to_vec();
                let to = random.below(input.len() + 1);
                input.splice(to..to, part);
            }
            // A part of another input.
            6 => {
                let other = self.some_input(random);
                let from = random.below(other.len() + 1);
                let length = random.below(64).min(other.len() - from);
                input.splice(at..at, other[from..from + length].iter().copied());
            }
            _ if !self.tokens.is_empty() => {
                let token = &self.tokens[random.below(self.tokens.len())];
                input.splice(at..at, token.iter().copied());
            }
            _ => {}
        }
    }
}

/// A line of a dictionary as libFuzzer reads it: `name="text"`, with `\\`, `\"` and `\xNN`.
fn token(line: &str) -> Option<Vec<u8>> {
    if line.starts_with('#') {
        return None;
    }
    let (_, quoted) = line.split_once('"')?;
    let mut rest = quoted.strip_suffix('"')?.as_bytes();
    let mut bytes = Vec::new();
    while let Some((&first, after)) = rest.split_first() {
        rest = after;
        let [escape, tail @ ..] = after else {
            bytes.push(first);
            break;
        };
        match (first, escape) {
            (b'\\', b'x') => {
                let digits = std::str::from_utf8(tail.get(..2)?).ok()?;
                bytes.push(u8::from_str_radix(digits, 16).ok()?);
                rest = &tail[2..];
            }
            (b'\\', _) => {
                bytes.push(*escape);
                rest = tail;
            }
            _ => bytes.push(first),
        }
    }
    Some(bytes)
}

/// SplitMix64, the same numbers for the same target.
struct Random(u64);

impl Random {
    fn of(target: &str) -> Self {
        let mix = |hash: u64, byte: u8| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
        Self(target.bytes().fold(0xcbf2_9ce4_8422_2325, mix))
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// At least 0, below `end`.
    fn below(&mut self, end: usize) -> usize {
        (self.next() % end.max(1) as u64) as usize
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dictionaries_are_read_as_libfuzzer_reads_them() {
        assert_eq!(token("\"a\\x0a\\\"\\\\b\""), Some(b"a\n\"\\b".to_vec()));
        assert_eq!(token("name=\"x\""), Some(b"x".to_vec()));
        assert_eq!(token("# \"x\""), None);
        assert_eq!(token(""), None);
    }

    #[test]
    fn the_same_target_gets_the_same_inputs() {
        let corpus = Corpus {
            inputs: vec![(PathBuf::new(), b"one two".to_vec())],
            tokens: vec![b"three".to_vec()],
        };
        let drawn = |target: &str| {
            let mut random = Random::of(target);
            let inputs = (0..50).map(|_| corpus.mutated(&mut random));
            inputs.collect::<Vec<_>>()
        };
        assert_eq!(drawn("a"), drawn("a"));
        assert_ne!(drawn("a"), drawn("b"));
    }

    #[test]
    #[should_panic(expected = "fuzz target t fails")]
    fn a_failing_input_is_shown() {
        attempt("t", b"\x1b", |input| assert!(input.is_empty()), "");
    }
}

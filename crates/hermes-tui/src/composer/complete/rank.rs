//! Ranking of matches.

use nucleo_matcher::pattern::{Atom, AtomKind, CaseMatching, Normalization};
use nucleo_matcher::{Config, Matcher, Utf32Str};

/// Matches the letters of a word in texts, in order.
pub(super) struct Ranker {
    matcher: Matcher,
    paths: Matcher,
    buffer: Vec<char>,
}

impl Default for Ranker {
    fn default() -> Self {
        Self {
            matcher: Matcher::new(Config::DEFAULT),
            paths: Matcher::new(Config::DEFAULT.match_paths()),
            buffer: Vec::new(),
        }
    }
}

/// What is looked for.
pub(super) fn wanted(word: &str) -> Atom {
    Atom::new(
        word,
        CaseMatching::Smart,
        Normalization::Smart,
        AtomKind::Fuzzy,
        false,
    )
}

impl Ranker {
    pub(super) fn score(&mut self, text: &str, wanted: &Atom) -> Option<u16> {
        wanted.score(Utf32Str::new(text, &mut self.buffer), &mut self.matcher)
    }

    pub(super) fn path_score(&mut self, path: &str, wanted: &Atom) -> Option<u16> {
        wanted.score(Utf32Str::new(path, &mut self.buffer), &mut self.paths)
    }

    /// Which graphemes of the text were found.
    pub(super) fn marks(&mut self, text: &str, wanted: &Atom) -> Vec<u32> {
        let mut marks = Vec::new();
        wanted.indices(
            Utf32Str::new(text, &mut self.buffer),
            &mut self.paths,
            &mut marks,
        );
        marks.sort_unstable();
        marks.dedup();
        marks
    }
}

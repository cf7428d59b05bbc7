//! Removes repeated text from streams that cannot be rolled back.
//!
//! An interrupted step is repeated from its beginning. What a stream has sent cannot be undone, so
//! repeated text is suppressed as long as it is identical.

/// Separates an abandoned text from its replacement.
const ANEW: &str = "\n\n";

#[derive(Debug, Default)]
pub(super) struct RepeatFilter {
    /// Text to send.
    out: String,
    /// Text sent in this step.
    step: String,
    /// Text sent before the step was repeated, as far as it has not recurred.
    before: Option<DiscardedText>,
}

#[derive(Debug)]
struct DiscardedText {
    text: String,
    /// Number of its bytes that have recurred.
    matched: usize,
}

impl RepeatFilter {
    pub(super) fn text(&mut self, text: String) {
        let Some(before) = &mut self.before else {
            self.step.push_str(&text);
            if self.out.is_empty() {
                self.out = text;
            } else {
                self.out.push_str(&text);
            }
            return;
        };
        let expected = &before.text[before.matched..];
        if expected.starts_with(&text) {
            before.matched += text.len();
            return;
        }
        let same = before.matched;
        if let Some(more) = text.strip_prefix(expected) {
            // All of it has recurred; the rest is new.
            self.step = std::mem::take(&mut before.text);
            self.before = None;
            self.text(more.to_owned());
        } else {
            let again = format!("{ANEW}{}{text}", &before.text[..same]);
            self.step.clear();
            self.before = None;
            self.text(again);
        }
    }

    /// The step is repeated.
    pub(super) fn discarded(&mut self) {
        let shown = match self.before.take() {
            Some(before) => before.text,
            None => std::mem::take(&mut self.step),
        };
        if !shown.is_empty() {
            self.before = Some(DiscardedText {
                text: shown,
                matched: 0,
            });
        }
    }

    /// The following text belongs to another step.
    pub(super) fn step_over(&mut self) {
        self.step.clear();
        self.before = None;
    }

    /// The part of a final answer that was not sent in the last step.
    pub(super) fn remaining_text<'a>(&self, answer: &'a str) -> &'a str {
        if self.before.is_some() {
            return "";
        }
        let shown = self.step.trim();
        match answer.trim_start().strip_prefix(shown) {
            Some(rest) if !rest.trim().is_empty() => rest,
            _ => "",
        }
    }

    pub(super) fn take(&mut self) -> Option<String> {
        (!self.out.is_empty()).then(|| std::mem::take(&mut self.out))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn shown(teller: &mut RepeatFilter) -> String {
        teller.take().unwrap_or_default()
    }

    #[test]
    fn what_comes_again_is_told_once() {
        let mut teller = RepeatFilter::default();
        teller.text("Hello, ".to_owned());
        teller.text("wor".to_owned());
        assert_eq!(shown(&mut teller), "Hello, wor");
        teller.discarded();
        teller.text("Hel".to_owned());
        assert_eq!(shown(&mut teller), "");
        teller.text("lo, world".to_owned());
        assert_eq!(shown(&mut teller), "ld");
        teller.discarded();
        teller.text("Hello, there".to_owned());
        assert_eq!(shown(&mut teller), "\n\nHello, there");
        teller.step_over();
        teller.discarded();
        teller.text("next".to_owned());
        assert_eq!(shown(&mut teller), "next");
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]
        /// However an answer is chunked and wherever it breaks off, the sent parts add up to the
        /// answer, once.
        #[test]
        fn an_answer_that_comes_again_is_told_whole(
            parts in prop::collection::vec("[aé☃]{1,3}", 1..8),
            stops in prop::collection::vec(0_usize..8, 0..4),
        ) {
            let mut teller = RepeatFilter::default();
            let mut all = String::new();
            for stop in stops {
                for part in parts.iter().take(stop) {
                    teller.text(part.clone());
                    all.push_str(&shown(&mut teller));
                }
                teller.discarded();
            }
            for part in &parts {
                teller.text(part.clone());
                all.push_str(&shown(&mut teller));
            }
            prop_assert_eq!(all, parts.concat());
        }
    }
}

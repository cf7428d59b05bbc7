//! Text for somebody who cannot be told to forget it.
//!
//! A step that broke off comes again from its beginning. What a stream has sent stays sent, so
//! what comes again is held back as long as it says the same.

/// Between a text that was given up and the one that took its place.
const ANEW: &str = "\n\n";

#[derive(Debug, Default)]
pub(super) struct RepeatFilter {
    /// To be told.
    out: String,
    /// Told in this step.
    step: String,
    /// Told in this step before it began anew, from where it has not come again yet.
    before: Option<DiscardedText>,
}

#[derive(Debug)]
struct DiscardedText {
    text: String,
    /// Bytes of it that have come again.
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
            // All of it has come again; this is new.
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

    /// The step begins anew.
    pub(super) fn discarded(&mut self) {
        let told = match self.before.take() {
            Some(before) => before.text,
            None => std::mem::take(&mut self.step),
        };
        if !told.is_empty() {
            self.before = Some(DiscardedText {
                text: told,
                matched: 0,
            });
        }
    }

    /// What comes now belongs to another step.
    pub(super) fn step_over(&mut self) {
        self.step.clear();
        self.before = None;
    }

    /// The end of a final answer that was not told in the last step.
    pub(super) fn untold<'a>(&self, answer: &'a str) -> &'a str {
        if self.before.is_some() {
            return "";
        }
        let told = self.step.trim();
        match answer.trim_start().strip_prefix(told) {
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

    fn told(teller: &mut RepeatFilter) -> String {
        teller.take().unwrap_or_default()
    }

    #[test]
    fn what_comes_again_is_told_once() {
        let mut teller = RepeatFilter::default();
        teller.text("Hello, ".to_owned());
        teller.text("wor".to_owned());
        assert_eq!(told(&mut teller), "Hello, wor");
        teller.discarded();
        teller.text("Hel".to_owned());
        assert_eq!(told(&mut teller), "");
        teller.text("lo, world".to_owned());
        assert_eq!(told(&mut teller), "ld");
        teller.discarded();
        teller.text("Hello, there".to_owned());
        assert_eq!(told(&mut teller), "\n\nHello, there");
        teller.step_over();
        teller.discarded();
        teller.text("next".to_owned());
        assert_eq!(told(&mut teller), "next");
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]
        /// However an answer is cut, and wherever it breaks off: whoever joins what was told has
        /// the answer, once.
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
                    all.push_str(&told(&mut teller));
                }
                teller.discarded();
            }
            for part in &parts {
                teller.text(part.clone());
                all.push_str(&told(&mut teller));
            }
            prop_assert_eq!(all, parts.concat());
        }
    }
}

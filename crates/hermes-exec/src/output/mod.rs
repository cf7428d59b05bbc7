//! Command output: sanitized, bounded, with exact counts of what was cut.

mod clean;
mod headtail;

pub(crate) use clean::OutputCleaner;
pub(crate) use headtail::{HeadTail, HeadTailText};

use crate::environment::{OutputSink, OutputStream};

/// Collects one output stream: removes control sequences, folds progress lines and keeps head and tail. Memory
/// stays below three times the limit.
#[derive(Debug)]
pub struct OutputCollector {
    cleaner: OutputCleaner,
    kept: HeadTail,
}

impl OutputCollector {
    /// Keeps about `limit` bytes of text.
    pub fn new(limit: usize) -> Self {
        Self {
            cleaner: OutputCleaner::default(),
            kept: HeadTail::new(limit),
        }
    }

    pub fn feed(&mut self, bytes: &[u8]) {
        self.cleaner.feed(bytes, &mut |text| self.kept.push(text));
    }

    /// The end of the output so far, including the unfinished line.
    pub fn tail(&self, max: usize) -> String {
        let line = self.cleaner.line();
        let mut tail = self.kept.tail(max.saturating_sub(line.len()));
        tail.push_str(line);
        last(&tail, max).to_owned()
    }

    pub fn finish(mut self) -> CollectedOutput {
        self.cleaner.finish(&mut |text| self.kept.push(text));
        CollectedOutput {
            kept: self.kept.finish(),
            unprintable: self.cleaner.unprintable(),
        }
    }
}

impl OutputSink for OutputCollector {
    fn push(&mut self, _: OutputStream, bytes: &[u8]) {
        self.feed(bytes);
    }
}

/// The collected output.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CollectedOutput {
    pub kept: HeadTailText,
    /// Number of runs of invalid bytes, each shown as `�`.
    pub unprintable: u64,
}

impl CollectedOutput {
    /// The text for the reader, with a line where something was cut.
    pub fn text(&self) -> String {
        let mut text = self.kept.text();
        if self.unprintable > 0 {
            if !text.is_empty() && !text.ends_with('\n') {
                text.push('\n');
            }
            let note = format!(
                "[{} bytes that are not text are shown as �]\n",
                self.unprintable
            );
            text.push_str(&note);
        }
        text
    }
}

/// The last `max` bytes of `text`, whole characters only.
pub fn last(text: &str, max: usize) -> &str {
    let start = text.len().saturating_sub(max);
    let start = (start..=text.len()).find(|&at| text.is_char_boundary(at));
    &text[start.unwrap_or(text.len())..]
}

/// Sanitizes raw output.
pub fn clean(bytes: &[u8]) -> String {
    let mut cleaner = OutputCleaner::default();
    let mut text = String::with_capacity(bytes.len());
    cleaner.feed(bytes, &mut |part| text.push_str(part));
    cleaner.finish(&mut |part| text.push_str(part));
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_flood_is_kept_within_the_bound() {
        let mut collector = OutputCollector::new(50_000);
        let chunk = vec![b'x'; 64 * 1024];
        let rounds = 3200_u64; // 200 MiB
        for _ in 0..rounds {
            collector.feed(&chunk);
            assert!(collector.kept.memory_use() <= 150_000);
        }
        let total = rounds * chunk.len() as u64;
        let collected = collector.finish();
        assert_eq!(collected.kept.total_bytes, total);
        let shown = (collected.kept.head.len() + collected.kept.tail.len()) as u64;
        assert_eq!(collected.kept.cut_bytes(), total - shown);
        assert!(shown <= 50_000);
    }

    #[test]
    fn binary_output_is_marked_and_counted() {
        let mut collector = OutputCollector::new(1000);
        collector.feed(b"ELF\x00\x01\x02\xff\xfe end\n");
        let collected = collector.finish();
        assert_eq!(
            collected.text(),
            "ELF� end\n[5 bytes that are not text are shown as �]\n"
        );
    }

    #[test]
    fn the_tail_shows_the_unfinished_line() {
        let mut collector = OutputCollector::new(1000);
        collector.feed(b"one\ntwo\nthree");
        assert_eq!(collector.tail(100), "one\ntwo\nthree");
        assert_eq!(collector.tail(7), "o\nthree");
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        /// The result does not depend on the chunking, and everything is counted.
        #[test]
        fn counts_add_up(
            chunks in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..200), 0..30),
            limit in 10_usize..400,
        ) {
            let whole: Vec<u8> = chunks.concat();
            let mut piecewise = OutputCollector::new(limit);
            for chunk in &chunks {
                piecewise.feed(chunk);
            }
            let mut at_once = OutputCollector::new(limit);
            at_once.feed(&whole);
            let collected = piecewise.finish();
            prop_assert_eq!(&collected, &at_once.finish());

            let clean = clean(&whole);
            let kept = &collected.kept;
            prop_assert_eq!(kept.total_bytes, clean.len() as u64);
            prop_assert_eq!(kept.total_chars, clean.chars().count() as u64);
            prop_assert!(clean.starts_with(&kept.head));
            prop_assert!(clean.ends_with(&kept.tail));
            let shown = kept.head.chars().count() + kept.tail.chars().count();
            prop_assert_eq!(kept.cut_chars + shown as u64, kept.total_chars);
            prop_assert!(kept.head.len() + kept.tail.len() <= limit);
        }

        #[test]
        fn clean_text_stays_as_it_is(text in "[a-zA-Z0-9 äöü日本\t\n]{0,300}") {
            prop_assert_eq!(clean(text.as_bytes()), text);
        }
    }
}

//! Head and tail of a text of any length.

/// The head gets two fifths: the first lines usually name the problem, the last ones the result.
const HEAD_FIFTHS: usize = 2;

/// Keeps the beginning and the end of the text and counts everything.
#[derive(Debug)]
pub(crate) struct HeadTail {
    head_limit: usize,
    tail_limit: usize,
    head: String,
    head_full: bool,
    /// Up to twice the limit; the front is dropped in large steps.
    tail: String,
    total_bytes: u64,
    total_chars: u64,
    total_newlines: u64,
}

impl HeadTail {
    pub(crate) fn new(limit: usize) -> Self {
        let head_limit = limit * HEAD_FIFTHS / 5;
        Self {
            head_limit,
            tail_limit: limit - head_limit,
            head: String::new(),
            head_full: false,
            tail: String::new(),
            total_bytes: 0,
            total_chars: 0,
            total_newlines: 0,
        }
    }

    pub(crate) fn push(&mut self, text: &str) {
        self.total_bytes += text.len() as u64;
        self.total_chars += count_chars(text);
        self.total_newlines += text.bytes().filter(|&byte| byte == b'\n').count() as u64;
        let mut rest = text;
        if !self.head_full {
            let room = self.head_limit - self.head.len();
            if rest.len() <= room {
                self.head.push_str(rest);
                return;
            }
            let cut = (0..=room).rev().find(|&at| rest.is_char_boundary(at));
            let (first, after) = rest.split_at(cut.unwrap_or(0));
            self.head.push_str(first);
            self.head_full = true;
            rest = after;
        }
        if rest.len() >= self.tail_limit {
            self.tail.clear();
            self.tail.push_str(super::last(rest, self.tail_limit));
            return;
        }
        self.tail.push_str(rest);
        if self.tail.len() > self.tail_limit * 2 {
            let keep = super::last(&self.tail, self.tail_limit).len();
            self.tail.drain(..self.tail.len() - keep);
        }
    }

    /// The last `max` bytes that are still available.
    pub(crate) fn tail(&self, max: usize) -> String {
        if self.tail.len() >= max {
            return super::last(&self.tail, max).to_owned();
        }
        if self.head.len() as u64 + self.tail.len() as u64 == self.total_bytes {
            let head = super::last(&self.head, max - self.tail.len());
            return format!("{head}{}", self.tail);
        }
        self.tail.clone()
    }

    /// Bytes of memory in use.
    #[cfg(test)]
    pub(super) fn memory_use(&self) -> usize {
        self.head.capacity() + self.tail.capacity()
    }

    pub(crate) fn finish(self) -> HeadTailText {
        let tail = super::last(&self.tail, self.tail_limit).to_owned();
        let chars = count_chars(&self.head) + count_chars(&tail);
        let newlines = |text: &str| text.bytes().filter(|&byte| byte == b'\n').count() as u64;
        HeadTailText {
            cut_chars: self.total_chars - chars,
            cut_lines: self.total_newlines - newlines(&self.head) - newlines(&tail),
            head: self.head,
            tail,
            total_bytes: self.total_bytes,
            total_chars: self.total_chars,
        }
    }
}

/// The kept text. `head` and `tail` together are the whole text if nothing was cut.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HeadTailText {
    pub head: String,
    pub tail: String,
    pub total_bytes: u64,
    pub total_chars: u64,
    pub cut_chars: u64,
    /// Line ends between head and tail.
    pub cut_lines: u64,
}

impl HeadTailText {
    pub fn cut_bytes(&self) -> u64 {
        self.total_bytes - (self.head.len() + self.tail.len()) as u64
    }

    pub fn text(&self) -> String {
        if self.cut_chars == 0 {
            return format!("{}{}", self.head, self.tail);
        }
        format!(
            "{}\n\n[… cut here: {} of {} characters, {} line ends …]\n\n{}",
            self.head, self.cut_chars, self.total_chars, self.cut_lines, self.tail
        )
    }
}

fn count_chars(text: &str) -> u64 {
    // Every byte that is not a continuation byte starts a character.
    text.bytes().filter(|byte| byte & 0xc0 != 0x80).count() as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_fits_is_whole() {
        let mut kept = HeadTail::new(10);
        kept.push("abcde");
        kept.push("fghij");
        let kept = kept.finish();
        assert_eq!(kept.text(), "abcdefghij");
        assert_eq!(kept.cut_chars, 0);
    }

    #[test]
    fn the_middle_goes_and_is_counted() {
        let mut kept = HeadTail::new(10);
        for _ in 0..100 {
            kept.push("line\n");
        }
        let kept = kept.finish();
        assert_eq!(
            (kept.head.as_str(), kept.tail.as_str()),
            ("line", "\nline\n")
        );
        assert_eq!((kept.total_chars, kept.cut_chars), (500, 490));
        assert_eq!(kept.cut_lines, 98);
        assert!(kept.text().contains("490 of 500 characters"));
    }

    #[test]
    fn characters_are_never_split() {
        let mut kept = HeadTail::new(9);
        kept.push(&"ä".repeat(50));
        let kept = kept.finish();
        assert_eq!((kept.head.as_str(), kept.tail.as_str()), ("ä", "äää"));
        assert_eq!(kept.cut_chars, 46);
    }
}

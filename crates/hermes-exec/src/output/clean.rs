//! Converts terminal output to plain text: escape sequences are removed, lines overwritten by carriage returns
//! are folded to their last state, and invalid bytes are replaced.

/// A longer line is emitted before its end; a carriage return can no longer fold it.
const MAX_LINE: usize = 16 * 1024;
/// A sequence that does not end within this many bytes is not one.
const MAX_SEQUENCE: usize = 4096;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum EscapeState {
    #[default]
    Text,
    /// After ESC.
    Escape,
    /// `ESC [`: parameters up to a final byte.
    Control,
    /// `ESC ]`, `ESC P` and the like: up to BEL or `ESC \`.
    Text7,
    /// ESC within [`EscapeState::Text7`].
    TextEnd,
}

/// Accepts bytes in any chunks and emits text.
#[derive(Debug, Default)]
pub(crate) struct OutputCleaner {
    state: EscapeState,
    sequence: usize,
    /// The current line while it may still be overwritten.
    line: String,
    /// After a carriage return: the next text overwrites the line.
    returned: bool,
    /// The beginning of the current line has been emitted already.
    passed_on: bool,
    /// The beginning of an incomplete character.
    partial: Vec<u8>,
    /// The previous byte was invalid: a run of them is replaced once.
    in_junk: bool,
    unprintable: u64,
}

impl OutputCleaner {
    pub(crate) fn unprintable(&self) -> u64 {
        self.unprintable
    }

    /// The unfinished line.
    pub(crate) fn line(&self) -> &str {
        &self.line
    }

    pub(crate) fn feed(&mut self, bytes: &[u8], out: &mut dyn FnMut(&str)) {
        let mut rest = bytes;
        while !rest.is_empty() {
            let plain = self.plain_prefix(rest);
            if plain.is_empty() {
                self.byte(rest[0], out);
                rest = &rest[1..];
            } else {
                self.plain(plain, out);
                rest = &rest[plain.len()..];
            }
        }
    }

    /// Emits the last line.
    pub(crate) fn finish(&mut self, out: &mut dyn FnMut(&str)) {
        if !self.partial.is_empty() {
            self.unprintable += self.partial.len() as u64;
            self.partial.clear();
            self.junk(out);
        }
        if !self.line.is_empty() {
            out(&self.line);
            self.line.clear();
        }
    }

    /// The longest prefix that needs no processing: printable ASCII, tabs and line ends.
    fn plain_prefix<'a>(&self, bytes: &'a [u8]) -> &'a str {
        if self.state != EscapeState::Text || !self.partial.is_empty() {
            return "";
        }
        let end = bytes
            .iter()
            .position(|&byte| !matches!(byte, b' '..=b'~' | b'\n' | b'\t'))
            .unwrap_or(bytes.len());
        std::str::from_utf8(&bytes[..end]).unwrap_or_default()
    }

    fn plain(&mut self, text: &str, out: &mut dyn FnMut(&str)) {
        self.in_junk = false;
        let Some((first, rest)) = text.split_once('\n') else {
            return self.text(text, out);
        };
        self.text(first, out);
        self.end_line(out);
        match rest.rfind('\n') {
            Some(end) => {
                out(&rest[..=end]);
                self.text(&rest[end + 1..], out);
            }
            None => self.text(rest, out),
        }
    }

    /// Part of one line.
    fn text(&mut self, text: &str, out: &mut dyn FnMut(&str)) {
        if text.is_empty() {
            return;
        }
        self.overwrite(out);
        let mut rest = text;
        while self.line.len() + rest.len() > MAX_LINE {
            // Always cut at the same position, however the line was chunked.
            let room = MAX_LINE - self.line.len();
            let cut = (0..=room).rev().find(|&at| rest.is_char_boundary(at));
            let (now, later) = rest.split_at(cut.unwrap_or(0));
            self.line.push_str(now);
            out(&self.line);
            self.line.clear();
            self.passed_on = true;
            rest = later;
        }
        self.line.push_str(rest);
    }

    fn overwrite(&mut self, out: &mut dyn FnMut(&str)) {
        if !std::mem::take(&mut self.returned) {
            return;
        }
        self.line.clear();
        if std::mem::take(&mut self.passed_on) {
            out("\n");
        }
    }

    fn end_line(&mut self, out: &mut dyn FnMut(&str)) {
        self.returned = false;
        self.passed_on = false;
        self.line.push('\n');
        out(&self.line);
        self.line.clear();
    }

    fn byte(&mut self, byte: u8, out: &mut dyn FnMut(&str)) {
        self.sequence += 1;
        if self.state != EscapeState::Text && self.sequence > MAX_SEQUENCE {
            self.state = EscapeState::Text;
        }
        match self.state {
            EscapeState::Text => self.text_byte(byte, out),
            EscapeState::Escape => self.state = Self::after_escape(byte),
            EscapeState::Control => {
                if matches!(byte, 0x40..=0x7e) {
                    self.state = EscapeState::Text;
                }
            }
            EscapeState::Text7 => match byte {
                0x07 => self.state = EscapeState::Text,
                0x1b => self.state = EscapeState::TextEnd,
                _ => {}
            },
            EscapeState::TextEnd => {
                self.state = match byte {
                    b'\\' => EscapeState::Text,
                    0x1b => EscapeState::TextEnd,
                    _ => EscapeState::Text7,
                };
            }
        }
    }

    fn after_escape(byte: u8) -> EscapeState {
        match byte {
            b'[' => EscapeState::Control,
            b']' | b'P' | b'X' | b'^' | b'_' => EscapeState::Text7,
            // Intermediate bytes: the final one follows.
            0x20..=0x2f | 0x1b => EscapeState::Escape,
            _ => EscapeState::Text,
        }
    }

    fn text_byte(&mut self, byte: u8, out: &mut dyn FnMut(&str)) {
        if !self.partial.is_empty() || byte >= 0x80 {
            return self.wide(byte, out);
        }
        match byte {
            0x1b => {
                self.state = EscapeState::Escape;
                self.sequence = 0;
            }
            b'\r' => self.returned = true,
            0x08 => {
                self.line.pop();
            }
            0x07 => {}
            b'\n' => {
                self.in_junk = false;
                self.end_line(out);
            }
            b'\t' | b' '..=b'~' => {
                self.in_junk = false;
                self.text(char::from(byte).encode_utf8(&mut [0; 4]), out);
            }
            _ => {
                self.unprintable += 1;
                self.junk(out);
            }
        }
    }

    /// A byte of a non-ASCII character.
    fn wide(&mut self, byte: u8, out: &mut dyn FnMut(&str)) {
        self.partial.push(byte);
        match std::str::from_utf8(&self.partial) {
            Ok(text) => {
                let text = text.to_owned();
                self.partial.clear();
                if text.chars().all(|c| ('\u{80}'..='\u{9f}').contains(&c)) {
                    self.unprintable += text.len() as u64;
                    self.junk(out);
                } else {
                    self.in_junk = false;
                    self.text(&text, out);
                }
            }
            Err(error) if error.error_len().is_none() => {}
            Err(_) => {
                // The last byte may begin a valid character; those before it do not.
                let last = self.partial.pop();
                let bad = self.partial.len();
                self.partial.clear();
                match last {
                    Some(last) if bad > 0 => {
                        self.unprintable += bad as u64;
                        self.junk(out);
                        self.text_byte(last, out);
                    }
                    _ => {
                        self.unprintable += 1;
                        self.junk(out);
                    }
                }
            }
        }
    }

    fn junk(&mut self, out: &mut dyn FnMut(&str)) {
        if !std::mem::replace(&mut self.in_junk, true) {
            self.text("\u{fffd}", out);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::clean;

    #[test]
    fn what_a_terminal_would_not_show_is_gone() {
        for (raw, shown) in [
            ("\x1b[31mred\x1b[0m\n", "red\n"),
            ("\x1b]0;title\x07text", "text"),
            ("\x1b]8;;http://x\x1b\\link\x1b]8;;\x1b\\", "link"),
            ("\x1bPq#0\x1b\\after", "after"),
            ("\x1b(Bplain", "plain"),
            ("a\x1b[2Kb", "ab"),
            ("bell\x07", "bell"),
            ("abc\x08\x08d", "ad"),
            ("tab\tstays\n", "tab\tstays\n"),
            ("日本\u{9b}語", "日本\u{fffd}語"),
        ] {
            assert_eq!(clean(raw.as_bytes()), shown, "{raw:?}");
        }
    }

    #[test]
    fn progress_lines_fold_to_their_last_state() {
        assert_eq!(clean(b"10%\r50%\r100%\ndone\n"), "100%\ndone\n");
        assert_eq!(clean(b"10%\r50%\r"), "50%");
        assert_eq!(clean(b"dos\r\nlines\r\n"), "dos\nlines\n");
    }

    #[test]
    fn a_sequence_without_end_does_not_swallow_the_rest() {
        let mut raw = b"\x1b]0;".to_vec();
        raw.extend(std::iter::repeat_n(b'x', 10_000));
        raw.extend(b"\nend\n");
        assert!(clean(&raw).ends_with("x\nend\n"));
    }

    #[test]
    fn a_long_line_is_not_held_back() {
        let mut text = "y".repeat(100_000);
        text.push_str("\rz\n");
        let cleaned = clean(text.as_bytes());
        assert!(cleaned.ends_with("\nz\n"), "{}", cleaned.len());
    }
}

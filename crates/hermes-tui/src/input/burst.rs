//! Detects pastes that a terminal does not mark: text that arrives faster than typing, or several
//! lines that arrive at once. Pure: the caller passes the time and what arrived together.

use std::time::{Duration, Instant};

use super::TerminalInput;
use crate::keys::{KeyCode, KeyPress, Modifiers};

/// Keys closer together than this were not typed.
const MACHINE_GAP: Duration = Duration::from_millis(8);
/// Enter this soon after text belongs to it; a pause this long ends a paste.
pub(super) const PASTE_PAUSE: Duration = Duration::from_millis(50);
/// One line with its Enter is either a message from a program that types (a multiplexer, a macro,
/// dictation) or the first line of a paste over a slow connection: how long to wait for the next
/// line.
const LINE_TIMEOUT: Duration = Duration::from_millis(150);
/// This many consecutive keys, each within [`MACHINE_GAP`] of the previous one, are a paste.
const MIN_RUN: u32 = 3;
/// A paste is passed on in parts of this size.
const PART_BYTES: usize = 1 << 20;

/// Finds pastes among keys.
#[derive(Debug, Default)]
pub(crate) struct PasteDetector {
    /// The terminal marks pastes, so timing is ignored. Text that arrived at once is still checked,
    /// because a multiplexer or a program may write to the terminal without the marks.
    off: bool,
    last: Option<Instant>,
    /// Consecutive text keys that arrived at machine speed.
    run: u32,
    held: String,
    /// What is sent if the text ends here: one line, with Enter as its last key.
    sends: bool,
    /// The fast text contained a tab, so it was not typed, even if part of it was passed on before
    /// that was known.
    tabs: bool,
}

impl PasteDetector {
    /// The terminal marks pastes: timing is no longer used.
    pub(crate) fn turn_off(&mut self, out: &mut Vec<TerminalInput>) {
        self.flush(out);
        self.off = true;
    }

    /// Takes inputs that were read together at `now`; decided inputs go to `out`.
    pub(crate) fn feed_all(
        &mut self,
        inputs: Vec<TerminalInput>,
        now: Instant,
        out: &mut Vec<TerminalInput>,
    ) {
        let mut rest = inputs.into_iter().peekable();
        while let Some(first) = rest.next() {
            // Keys typed after Enter may be read together with it; that is not a paste.
            let enter = char_of(&first) == Some('\n') && self.held.is_empty();
            if char_of(&first).is_none() || enter {
                self.feed(first, now, out);
                continue;
            }
            let mut run = vec![first];
            while let Some(next) = rest.next_if(|next| char_of(next).is_some()) {
                run.push(next);
            }
            let text: String = run.iter().filter_map(char_of).collect();
            if cannot_be_typed(&text) {
                self.expire(now, out);
                self.hold(&text, now, out);
            } else {
                for input in run {
                    self.feed(input, now, out);
                }
            }
        }
    }

    /// Text that is certainly pasted.
    fn hold(&mut self, text: &str, now: Instant, out: &mut Vec<TerminalInput>) {
        self.sends = false;
        self.held.push_str(text);
        self.last = Some(now);
        self.run = MIN_RUN;
        if self.held.len() >= PART_BYTES {
            out.push(TerminalInput::Paste(std::mem::take(&mut self.held)));
        }
    }

    /// Takes an input that arrived at `now`; decided inputs go to `out`.
    pub(crate) fn feed(
        &mut self,
        input: TerminalInput,
        now: Instant,
        out: &mut Vec<TerminalInput>,
    ) {
        self.expire(now, out);
        let TerminalInput::Key(key) = input else {
            self.flush(out);
            self.last = None;
            out.push(input);
            return;
        };
        match text_of(key) {
            // The rest of a paste may arrive in separate pieces.
            Some(ch) if !self.off || !self.held.is_empty() => self.text(key, ch, now, out),
            _ => {
                self.flush(out);
                self.last = None;
                out.push(TerminalInput::Key(key));
            }
        }
    }

    fn text(&mut self, key: KeyPress, ch: char, now: Instant, out: &mut Vec<TerminalInput>) {
        let gap = self.last.map(|last| now.saturating_duration_since(last));
        let fast = gap.is_some_and(|gap| gap <= MACHINE_GAP);
        let soon = gap.is_some_and(|gap| gap <= PASTE_PAUSE);
        // A fast typist may press Enter soon after a letter, but not after two that arrived at
        // once.
        let ends_text = ch == '\n' && (fast || soon && self.run > 1);
        self.run = if fast { self.run + 1 } else { 1 };
        self.last = Some(now);
        self.tabs = ch == '\t' || self.tabs && (fast || !self.held.is_empty());
        if !self.held.is_empty() || self.run > MIN_RUN || ends_text {
            let first_break = !self.held.contains('\n');
            self.sends = key.code == KeyCode::Enter && first_break && !self.tabs;
            self.held.push(ch);
            if self.held.len() >= PART_BYTES {
                out.push(TerminalInput::Paste(std::mem::take(&mut self.held)));
                // Still within: the next character is held too.
                self.run = MIN_RUN;
            }
        } else {
            if ch == '\n' {
                // A message was sent: what follows is another.
                self.last = None;
            }
            out.push(TerminalInput::Key(key));
        }
    }

    /// When [`PasteDetector::expire`] is due.
    pub(crate) fn deadline(&self) -> Option<Instant> {
        let last = self.last.filter(|_| !self.held.is_empty())?;
        Some(
            last + if self.sends {
                LINE_TIMEOUT
            } else {
                PASTE_PAUSE
            },
        )
    }

    /// A pause: what is held is complete.
    pub(crate) fn expire(&mut self, now: Instant, out: &mut Vec<TerminalInput>) {
        if self.deadline().is_none_or(|deadline| now < deadline) {
            return;
        }
        let sends = self.sends && self.held.pop().is_some();
        self.flush(out);
        if sends {
            self.last = None;
            out.push(TerminalInput::Key(KeyPress::plain(KeyCode::Enter)));
        }
    }

    /// Passes on what is held.
    pub(crate) fn flush(&mut self, out: &mut Vec<TerminalInput>) {
        self.run = 0;
        self.sends = false;
        self.tabs = false;
        if !self.held.is_empty() {
            out.push(TerminalInput::Paste(std::mem::take(&mut self.held)));
        }
    }
}

fn char_of(input: &TerminalInput) -> Option<char> {
    match input {
        TerminalInput::Key(key) => text_of(*key),
        _ => None,
    }
}

/// Whether a text that arrived at once cannot have been typed: text after a line break, or a tab
/// within it. Over a slow connection a typed word and its Enter may arrive together, but no more.
fn cannot_be_typed(text: &str) -> bool {
    let lines = text.trim_end_matches('\n');
    let breaks = lines.contains('\n') || text.len() > lines.len() + 1 && !lines.is_empty();
    let tab = lines.contains('\t') && lines.chars().any(|ch| ch != '\t');
    breaks || tab
}

/// What a key would be in a pasted text.
fn text_of(key: KeyPress) -> Option<char> {
    match (key.code, key.mods) {
        (KeyCode::Enter, Modifiers::NONE) | (KeyCode::Char('j'), Modifiers::CTRL) => Some('\n'),
        (KeyCode::Tab, Modifiers::NONE) => Some('\t'),
        _ => key.text(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Feeds keys, each so many milliseconds after the one before, then waits.
    fn fed(keys: &[(u64, &str)]) -> Vec<String> {
        let mut burst = PasteDetector::default();
        run(&mut burst, keys)
    }

    fn run(burst: &mut PasteDetector, keys: &[(u64, &str)]) -> Vec<String> {
        let mut now = Instant::now();
        let mut out = Vec::new();
        for (gap, key) in keys {
            now += Duration::from_millis(*gap);
            burst.feed(TerminalInput::Key(key.parse().unwrap()), now, &mut out);
        }
        now += LINE_TIMEOUT;
        burst.expire(now, &mut out);
        assert_eq!(burst.deadline(), None);
        let tell = |input: &TerminalInput| match input {
            TerminalInput::Key(key) => key.to_string(),
            TerminalInput::Paste(text) => format!("paste {text:?}"),
            other => format!("{other:?}"),
        };
        out.iter().map(tell).collect()
    }

    #[test]
    fn what_is_typed_is_typed() {
        let typed = fed(&[(0, "h"), (90, "i"), (120, "enter")]);
        assert_eq!(typed, ["h", "i", "enter"]);
        // Quick fingers: Enter 30 ms after a letter that itself took its time.
        assert_eq!(
            fed(&[(0, "h"), (60, "i"), (30, "enter")]),
            ["h", "i", "enter"]
        );
        assert_eq!(fed(&[(0, "enter")]), ["enter"]);
        assert_eq!(fed(&[(0, "up"), (0, "enter")]), ["up", "enter"]);
        assert_eq!(
            fed(&[(0, "a"), (0, "ctrl+c"), (0, "enter")]),
            ["a", "ctrl+c", "enter"]
        );
    }

    /// `tmux send-keys hello Enter`, a macro, dictation: a program types a line and its Enter.
    #[test]
    fn one_line_and_its_enter_are_sent() {
        assert_eq!(fed(&[(0, "a"), (0, "enter")]), ["a", "enter"]);
        let line = [
            (0, "h"),
            (0, "e"),
            (0, "l"),
            (0, "l"),
            (0, "o"),
            (0, "enter"),
        ];
        assert_eq!(fed(&line), ["h", "e", "l", "paste \"lo\"", "enter"]);
        // Another line, while one is waited for: a paste on a slow line.
        let more = [&line[..], &[(120, "x"), (0, "enter")]].concat();
        assert_eq!(fed(&more), ["h", "e", "l", "paste \"lo\\nx\\n\""]);
        // Two messages, one after the other.
        let next = [&line[..], &[(400, "x"), (100, "enter")]].concat();
        assert_eq!(
            fed(&next),
            ["h", "e", "l", "paste \"lo\"", "enter", "x", "enter"]
        );
    }

    #[test]
    fn a_pasted_enter_sends_nothing() {
        assert_eq!(
            fed(&[
                (0, "a"),
                (0, "b"),
                (0, "c"),
                (0, "d"),
                (0, "enter"),
                (0, "e"),
                (1, "enter")
            ]),
            ["a", "b", "c", "paste \"d\\ne\\n\""]
        );
        // A slow line: the parts of a paste come with pauses.
        assert_eq!(
            fed(&[(0, "a"), (1, "b"), (40, "enter"), (40, "c")]),
            ["a", "b", "paste \"\\nc\""]
        );
        assert_eq!(
            fed(&[(0, "a"), (0, "tab"), (0, "b"), (0, "c"), (0, "ctrl+j")])
                .last()
                .unwrap(),
            "paste \"c\\n\""
        );
    }

    #[test]
    fn a_key_ends_it_in_order() {
        assert_eq!(
            fed(&[
                (0, "a"),
                (0, "b"),
                (0, "c"),
                (0, "d"),
                (0, "esc"),
                (0, "enter")
            ]),
            ["a", "b", "c", "paste \"d\"", "esc", "enter"]
        );
        assert_eq!(
            fed(&[(0, "a"), (0, "b"), (0, "c"), (0, "d"), (60, "enter")]),
            ["a", "b", "c", "paste \"d\"", "enter"]
        );
    }

    #[test]
    fn a_terminal_that_marks_pastes_is_believed() {
        let mut burst = PasteDetector::default();
        let mut out = Vec::new();
        burst.turn_off(&mut out);
        assert_eq!(out, []);
        assert_eq!(
            run(
                &mut burst,
                &[(0, "a"), (0, "b"), (0, "c"), (0, "d"), (0, "enter")]
            ),
            ["a", "b", "c", "d", "enter"]
        );
    }

    /// Feeds pieces, each so many milliseconds after the one before, then waits.
    fn pieces(off: bool, pieces: &[(u64, &str)]) -> Vec<String> {
        let mut burst = PasteDetector::default();
        let mut out = Vec::new();
        if off {
            burst.turn_off(&mut out);
        }
        let mut now = Instant::now();
        for (gap, piece) in pieces {
            now += Duration::from_millis(*gap);
            burst.expire(now, &mut out);
            let keys = piece.chars().map(|ch| match ch {
                '\n' => KeyPress::plain(KeyCode::Enter),
                '\t' => KeyPress::plain(KeyCode::Tab),
                ch => KeyPress::char(ch),
            });
            burst.feed_all(keys.map(TerminalInput::Key).collect(), now, &mut out);
        }
        burst.expire(now + LINE_TIMEOUT, &mut out);
        let tell = |input: &TerminalInput| match input {
            TerminalInput::Key(key) => key.to_string(),
            TerminalInput::Paste(text) => format!("paste {text:?}"),
            other => format!("{other:?}"),
        };
        out.iter().map(tell).collect()
    }

    #[test]
    fn lines_that_come_in_one_piece_are_a_paste_whatever_the_terminal_says() {
        for off in [false, true] {
            for text in ["a\nb", "a\tb\nc\td\n", "a\nb\n", "a\n\n", "a\tb", "\ta\n"] {
                assert_eq!(
                    pieces(off, &[(0, text)]),
                    [format!("paste {text:?}")],
                    "{off}"
                );
            }
            // The rest of it comes later, and ends with a line break.
            assert_eq!(
                pieces(off, &[(0, "a\tb\nc"), (20, "d\n"), (20, "\n")]),
                ["paste \"a\\tb\\ncd\\n\\n\""]
            );
        }
    }

    #[test]
    fn a_word_and_its_enter_may_come_in_one_piece() {
        assert_eq!(pieces(true, &[(0, "hi\n")]), ["h", "i", "enter"]);
        assert_eq!(pieces(false, &[(0, "hi\n")]), ["h", "i", "enter"]);
        assert_eq!(pieces(true, &[(0, "\n")]), ["enter"]);
        assert_eq!(pieces(true, &[(0, "\t")]), ["tab"]);
        // The Enter of one message, and the next one behind it.
        assert_eq!(pieces(true, &[(0, "\nhi")]), ["enter", "h", "i"]);
        assert_eq!(pieces(true, &[(0, "\na\nb")]), ["enter", "paste \"a\\nb\""]);
        // A paste is over after a pause: what follows is typed.
        assert_eq!(
            pieces(true, &[(0, "a\nb"), (60, "\n")]),
            ["paste \"a\\nb\"", "enter"]
        );
    }

    #[test]
    fn a_huge_paste_is_whole_and_in_parts() {
        let mut burst = PasteDetector::default();
        let now = Instant::now();
        let mut out = Vec::new();
        let text: String = "some line of text\n".repeat(200_000);
        for ch in text.chars() {
            let key = if ch == '\n' {
                KeyPress::plain(KeyCode::Enter)
            } else {
                KeyPress::char(ch)
            };
            burst.feed(TerminalInput::Key(key), now, &mut out);
        }
        burst.flush(&mut out);
        let mut got = String::new();
        for input in &out {
            match input {
                TerminalInput::Key(key) => got.extend(key.text()),
                TerminalInput::Paste(part) => got.push_str(part),
                other => panic!("{other:?}"),
            }
        }
        assert!(got == text);
        assert!(out.len() < 20);
    }
}

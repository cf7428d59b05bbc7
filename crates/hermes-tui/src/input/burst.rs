//! Pastes that a terminal does not mark: text that comes faster than fingers, or several lines that
//! come in one piece. Pure: it is told the time, and what came together.

use std::time::{Duration, Instant};

use super::Input;
use crate::keys::{Code, Key, Mods};

/// Keys closer than this were not typed.
const MACHINE: Duration = Duration::from_millis(8);
/// Enter so soon after text belongs to it; a pause as long ends a paste.
pub(super) const QUIET: Duration = Duration::from_millis(50);
/// One line with its Enter is a message of a program that types (a multiplexer, a macro, dictation),
/// or the first line of a paste on a slow line: so long is waited for the next.
const ONE_LINE: Duration = Duration::from_millis(150);
/// So many keys in a row, each [`MACHINE`] after the one before, are a paste.
const RUN: u32 = 3;
/// A paste is handed on in parts of this size.
const PART: usize = 1 << 20;

/// Finds pastes among keys.
#[derive(Debug, Default)]
pub struct Burst {
    /// The terminal marks pastes: time says nothing any more. What came in one piece still does,
    /// because a multiplexer or a program may write to the terminal without the marks.
    off: bool,
    last: Option<Instant>,
    /// Text keys in a row that came as fast as a machine types.
    run: u32,
    held: String,
    /// What would be sent if the text ends here: one line, and Enter as its last key.
    sends: bool,
    /// A tab stood in the text that came so fast: it was not typed, also where part of it was
    /// handed on before that was known.
    tabs: bool,
}

impl Burst {
    /// The terminal marks pastes: nothing is guessed any more.
    pub fn turn_off(&mut self, out: &mut Vec<Input>) {
        self.flush(out);
        self.off = true;
    }

    /// Takes inputs that were read in one piece at `now`; what is decided goes to `out`.
    pub fn feed_all(&mut self, inputs: Vec<Input>, now: Instant, out: &mut Vec<Input>) {
        let mut rest = inputs.into_iter().peekable();
        while let Some(first) = rest.next() {
            // Whoever presses Enter may type on before it is read; nothing is pasted by that.
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
            if nobody_types(&text) {
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
    fn hold(&mut self, text: &str, now: Instant, out: &mut Vec<Input>) {
        self.sends = false;
        self.held.push_str(text);
        self.last = Some(now);
        self.run = RUN;
        if self.held.len() >= PART {
            out.push(Input::Paste(std::mem::take(&mut self.held)));
        }
    }

    /// Takes an input that came at `now`; what is decided goes to `out`.
    pub fn feed(&mut self, input: Input, now: Instant, out: &mut Vec<Input>) {
        self.expire(now, out);
        let Input::Key(key) = input else {
            self.flush(out);
            self.last = None;
            out.push(input);
            return;
        };
        match text_of(key) {
            // The rest of a paste may come in pieces of its own.
            Some(ch) if !self.off || !self.held.is_empty() => self.text(key, ch, now, out),
            _ => {
                self.flush(out);
                self.last = None;
                out.push(Input::Key(key));
            }
        }
    }

    fn text(&mut self, key: Key, ch: char, now: Instant, out: &mut Vec<Input>) {
        let gap = self.last.map(|last| now.saturating_duration_since(last));
        let fast = gap.is_some_and(|gap| gap <= MACHINE);
        let soon = gap.is_some_and(|gap| gap <= QUIET);
        // A person who types quickly may press Enter soon after a letter, but not after two that
        // came at once.
        let ends_text = ch == '\n' && (fast || soon && self.run > 1);
        self.run = if fast { self.run + 1 } else { 1 };
        self.last = Some(now);
        self.tabs = ch == '\t' || self.tabs && (fast || !self.held.is_empty());
        if !self.held.is_empty() || self.run > RUN || ends_text {
            let first_break = !self.held.contains('\n');
            self.sends = key.code == Code::Enter && first_break && !self.tabs;
            self.held.push(ch);
            if self.held.len() >= PART {
                out.push(Input::Paste(std::mem::take(&mut self.held)));
                // Still within: the next character is held too.
                self.run = RUN;
            }
        } else {
            if ch == '\n' {
                // A message was sent: what follows is another.
                self.last = None;
            }
            out.push(Input::Key(key));
        }
    }

    /// When [`Burst::expire`] is due.
    pub fn deadline(&self) -> Option<Instant> {
        let last = self.last.filter(|_| !self.held.is_empty())?;
        Some(last + if self.sends { ONE_LINE } else { QUIET })
    }

    /// A pause: what is held was all.
    pub fn expire(&mut self, now: Instant, out: &mut Vec<Input>) {
        if self.deadline().is_none_or(|deadline| now < deadline) {
            return;
        }
        let sends = self.sends && self.held.pop().is_some();
        self.flush(out);
        if sends {
            self.last = None;
            out.push(Input::Key(Key::plain(Code::Enter)));
        }
    }

    /// Hands on what is held.
    pub fn flush(&mut self, out: &mut Vec<Input>) {
        self.run = 0;
        self.sends = false;
        self.tabs = false;
        if !self.held.is_empty() {
            out.push(Input::Paste(std::mem::take(&mut self.held)));
        }
    }
}

fn char_of(input: &Input) -> Option<char> {
    match input {
        Input::Key(key) => text_of(*key),
        _ => None,
    }
}

/// Whether a text that came in one piece cannot have been typed: something stands behind a line
/// break, or a tab stands within it. Fingers that are waited for by a slow line may bring a word and
/// its Enter at once, no more.
fn nobody_types(text: &str) -> bool {
    let lines = text.trim_end_matches('\n');
    let breaks = lines.contains('\n') || text.len() > lines.len() + 1 && !lines.is_empty();
    let tab = lines.contains('\t') && lines.chars().any(|ch| ch != '\t');
    breaks || tab
}

/// What a key would be in a pasted text.
fn text_of(key: Key) -> Option<char> {
    match (key.code, key.mods) {
        (Code::Enter, Mods::NONE) | (Code::Char('j'), Mods::CTRL) => Some('\n'),
        (Code::Tab, Mods::NONE) => Some('\t'),
        _ => key.text(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Feeds keys, each so many milliseconds after the one before, then waits.
    fn fed(keys: &[(u64, &str)]) -> Vec<String> {
        let mut burst = Burst::default();
        run(&mut burst, keys)
    }

    fn run(burst: &mut Burst, keys: &[(u64, &str)]) -> Vec<String> {
        let mut now = Instant::now();
        let mut out = Vec::new();
        for (gap, key) in keys {
            now += Duration::from_millis(*gap);
            burst.feed(Input::Key(key.parse().unwrap()), now, &mut out);
        }
        now += ONE_LINE;
        burst.expire(now, &mut out);
        assert_eq!(burst.deadline(), None);
        let tell = |input: &Input| match input {
            Input::Key(key) => key.to_string(),
            Input::Paste(text) => format!("paste {text:?}"),
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
        let mut burst = Burst::default();
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
        let mut burst = Burst::default();
        let mut out = Vec::new();
        if off {
            burst.turn_off(&mut out);
        }
        let mut now = Instant::now();
        for (gap, piece) in pieces {
            now += Duration::from_millis(*gap);
            burst.expire(now, &mut out);
            let keys = piece.chars().map(|ch| match ch {
                '\n' => Key::plain(Code::Enter),
                '\t' => Key::plain(Code::Tab),
                ch => Key::char(ch),
            });
            burst.feed_all(keys.map(Input::Key).collect(), now, &mut out);
        }
        burst.expire(now + ONE_LINE, &mut out);
        let tell = |input: &Input| match input {
            Input::Key(key) => key.to_string(),
            Input::Paste(text) => format!("paste {text:?}"),
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
        let mut burst = Burst::default();
        let now = Instant::now();
        let mut out = Vec::new();
        let text: String = "some line of text\n".repeat(200_000);
        for ch in text.chars() {
            let key = if ch == '\n' {
                Key::plain(Code::Enter)
            } else {
                Key::char(ch)
            };
            burst.feed(Input::Key(key), now, &mut out);
        }
        burst.flush(&mut out);
        let mut got = String::new();
        for input in &out {
            match input {
                Input::Key(key) => got.extend(key.text()),
                Input::Paste(part) => got.push_str(part),
                other => panic!("{other:?}"),
            }
        }
        assert!(got == text);
        assert!(out.len() < 20);
    }
}

//! Takes inline reasoning tags out of an answer while it streams.
//!
//! Models without a reasoning channel think aloud between tags. What stands inside is reasoning,
//! what stands outside is the answer; tags may be cut anywhere by chunk borders. An opening tag
//! counts only where a line begins, or where its closing tag follows soon: prose that mentions a tag
//! stays as it is. Tool calls written as text are no answer either: a block of one is kept with the
//! reasoning, so that the model is asked for a real call instead of the person being shown JSON. The
//! result does not depend on how the text was cut into chunks.

/// A piece of an answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum AnswerPiece {
    Text(String),
    Reasoning(String),
}

const TAGS: [&str; 5] = [
    "think",
    "thinking",
    "reasoning",
    "thought",
    "reasoning_scratchpad",
];
/// Markup of tool calls that some models write into their text as well.
const STRAY: [&str; 5] = [
    "tool_call",
    "tool_calls",
    "tool_result",
    "function_call",
    "function_calls",
];

/// How far a closing tag may be from an opening one in the middle of a line. Text is held back
/// that long at most.
const MAX_TAG_DISTANCE: usize = 4_000;
/// The same for a tool call, whose arguments may be long.
const MAX_CALL_TAG_DISTANCE: usize = 16_000;
const MAX_TAG_LEN: usize = "</reasoning_scratchpad>".len();

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Tag {
    name: &'static str,
    closing: bool,
    stray: bool,
    len: usize,
}

/// What stands at a `<`.
enum TagMatch {
    Tag(Tag),
    NoTag,
    /// It may become a tag when more text arrives.
    Undecided,
}

/// Splits a stream of text into answer and reasoning.
#[derive(Clone, Debug)]
pub(crate) struct Scrubber {
    /// Text that cannot be judged yet.
    held: String,
    inside: Option<&'static str>,
    /// Whether only blanks stand between here and the start of the line.
    line_start: bool,
}

impl Default for Scrubber {
    fn default() -> Self {
        Self {
            held: String::new(),
            inside: None,
            line_start: true,
        }
    }
}

impl Scrubber {
    /// Takes the next chunk; gives what is certain by now.
    pub(crate) fn push(&mut self, chunk: &str) -> Vec<AnswerPiece> {
        self.held.push_str(chunk);
        self.drain(false)
    }

    /// The stream ended; gives the rest.
    pub(crate) fn finish(&mut self) -> Vec<AnswerPiece> {
        self.drain(true)
    }

    fn drain(&mut self, end: bool) -> Vec<AnswerPiece> {
        let mut out = Vec::new();
        let held = std::mem::take(&mut self.held);
        let mut rest = held.as_str();
        while !rest.is_empty() {
            let consumed = match self.inside {
                Some(name) => self.take_reasoning(rest, name, end, &mut out),
                None => self.take_text(rest, end, &mut out),
            };
            if consumed == 0 {
                break;
            }
            rest = &rest[consumed..];
        }
        rest.clone_into(&mut self.held);
        out
    }

    /// Consumes reasoning up to and with its closing tag. Returns how many bytes.
    fn take_reasoning(
        &mut self,
        text: &str,
        name: &'static str,
        end: bool,
        out: &mut Vec<AnswerPiece>,
    ) -> usize {
        let mut from = 0;
        while let Some(at) = text[from..].find('<').map(|at| at + from) {
            match look(&text[at..], end) {
                TagMatch::Tag(tag) if tag.closing && tag.name == name => {
                    add(out, AnswerPiece::Reasoning(text[..at].to_owned()));
                    self.inside = None;
                    // What follows a block is the beginning of the answer.
                    self.line_start = true;
                    return at + tag.len;
                }
                TagMatch::Undecided => {
                    add(out, AnswerPiece::Reasoning(text[..at].to_owned()));
                    return at;
                }
                TagMatch::Tag(_) | TagMatch::NoTag => from = at + 1,
            }
        }
        add(out, AnswerPiece::Reasoning(text.to_owned()));
        text.len()
    }

    /// Consumes text up to the next thing that has to be decided. Returns how many bytes.
    fn take_text(&mut self, text: &str, end: bool, out: &mut Vec<AnswerPiece>) -> usize {
        let Some(at) = text.find('<') else {
            return self.show(text, out);
        };
        if at > 0 {
            return self.show(&text[..at], out);
        }
        match look(text, end) {
            TagMatch::Undecided => 0,
            TagMatch::NoTag => self.show("<", out),
            TagMatch::Tag(tag) if tag.closing => {
                // A closing tag without an opening one shows nothing to anybody.
                tag.len
            }
            TagMatch::Tag(tag) if self.line_start && !tag.stray => {
                self.inside = Some(tag.name);
                tag.len
            }
            TagMatch::Tag(tag) => {
                let after = &text[tag.len..];
                let horizon = if tag.stray {
                    MAX_CALL_TAG_DISTANCE
                } else {
                    MAX_TAG_DISTANCE
                };
                if closes(after, tag.name, horizon, end) {
                    self.inside = Some(tag.name);
                    tag.len
                } else if !end && after.len() < horizon + MAX_TAG_LEN {
                    0
                } else if tag.stray {
                    tag.len
                } else {
                    self.show(&text[..tag.len], out)
                }
            }
        }
    }

    fn show(&mut self, text: &str, out: &mut Vec<AnswerPiece>) -> usize {
        let line = text.rfind('\n').map_or(text, |at| &text[at + 1..]);
        let blank = line.chars().all(char::is_whitespace);
        self.line_start = blank && (self.line_start || line.len() < text.len());
        add(out, AnswerPiece::Text(text.to_owned()));
        text.len()
    }
}

fn add(out: &mut Vec<AnswerPiece>, piece: AnswerPiece) {
    match (out.last_mut(), piece) {
        (_, AnswerPiece::Text(text) | AnswerPiece::Reasoning(text)) if text.is_empty() => {}
        (Some(AnswerPiece::Text(last)), AnswerPiece::Text(text))
        | (Some(AnswerPiece::Reasoning(last)), AnswerPiece::Reasoning(text)) => {
            last.push_str(&text);
        }
        (_, piece) => out.push(piece),
    }
}

/// Whether the closing tag of `name` begins within the horizon.
fn closes(text: &str, name: &str, horizon: usize, end: bool) -> bool {
    text.match_indices("</")
        .map(|(at, _)| at)
        .take_while(|at| *at <= horizon)
        .any(|at| matches!(look(&text[at..], end), TagMatch::Tag(tag) if tag.closing && tag.name == name))
}

/// What the `<` that `text` begins with opens.
fn look(text: &str, end: bool) -> TagMatch {
    let body = &text[1..];
    let (closing, body) = match body.strip_prefix('/') {
        Some(rest) => (true, rest),
        None => (false, body),
    };
    let is_name = |c: char| c.is_ascii_alphabetic() || c == '_';
    let word = &body[..body.find(|c| !is_name(c)).unwrap_or(body.len())];
    let known = |names: &[&'static str]| {
        names
            .iter()
            .copied()
            .find(|name| name.eq_ignore_ascii_case(word))
    };
    let after = &body[word.len()..];
    if after.is_empty() {
        let longest = TAGS
            .iter()
            .chain(&STRAY)
            .any(|name| name.len() >= word.len() && name[..word.len()].eq_ignore_ascii_case(word));
        return if longest && !end {
            TagMatch::Undecided
        } else {
            TagMatch::NoTag
        };
    }
    let Some(name) = known(&TAGS).or_else(|| known(&STRAY)) else {
        return TagMatch::NoTag;
    };
    if !after.starts_with('>') {
        return TagMatch::NoTag;
    }
    TagMatch::Tag(Tag {
        name,
        closing,
        stray: STRAY.contains(&name),
        len: text.len() - after.len() + 1,
    })
}

/// Splits a whole text.
pub(crate) fn scrub(text: &str) -> (String, String) {
    let mut scrubber = Scrubber::default();
    let mut pieces = scrubber.push(text);
    pieces.extend(scrubber.finish());
    let (mut shown, mut reasoning) = (String::new(), String::new());
    for piece in pieces {
        match piece {
            AnswerPiece::Text(text) => shown.push_str(&text),
            AnswerPiece::Reasoning(text) => reasoning.push_str(&text),
        }
    }
    (shown, reasoning)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn shown(text: &str) -> String {
        scrub(text).0
    }

    #[test]
    fn blocks_are_reasoning_whatever_their_tag() {
        for tag in [
            "think",
            "Thinking",
            "REASONING",
            "thought",
            "REASONING_SCRATCHPAD",
        ] {
            let text = format!("<{tag}>secret</{tag}>answer");
            assert_eq!(scrub(&text), ("answer".into(), "secret".into()));
        }
    }

    #[test]
    fn an_unterminated_block_counts_only_at_the_start_of_a_line() {
        assert_eq!(scrub("hi\n  <think>rest"), ("hi\n  ".into(), "rest".into()));
        assert_eq!(shown("write <think> around it"), "write <think> around it");
        assert_eq!(shown("a <think>b</think> c"), "a  c");
    }

    #[test]
    fn a_tool_call_written_as_text_is_no_answer() {
        let call = r#"{"name": "memory", "arguments": {}}"#;
        let text = format!("One moment.\n<tool_call>\n{call}\n</tool_call>");
        assert_eq!(
            scrub(&text),
            ("One moment.\n".into(), format!("\n{call}\n"))
        );
        let nested = "<tool_calls><tool_call>{}</tool_call></tool_calls>";
        assert_eq!(shown(nested), "");
    }

    #[test]
    fn stray_markup_goes_and_its_content_stays() {
        assert_eq!(shown("x</think>y"), "xy");
        assert_eq!(shown("<tool_call> is a tag"), " is a tag");
        assert_eq!(shown("{}</tool_call>"), "{}");
        assert_eq!(
            shown("a < b, <b>bold</b>, <thin"),
            "a < b, <b>bold</b>, <thin"
        );
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]
        #[test]
        fn chunk_borders_do_not_matter(
            parts in prop::collection::vec(prop::sample::select(vec![
                "<think>", "</think>", "<thought>", "</thought>", "<", "</", "think", ">",
                "\n", " ", "ä", "plain text", "<tool_call>", "</tool_call>", "<b>",
            ]), 0..24),
            cuts in prop::collection::vec(0_usize..200, 0..12),
        ) {
            let whole = parts.concat();
            let mut cuts: Vec<usize> = cuts
                .into_iter()
                .filter(|at| whole.is_char_boundary(*at))
                .collect();
            cuts.extend([0, whole.len()]);
            cuts.retain(|at| *at <= whole.len());
            cuts.sort_unstable();
            let mut scrubber = Scrubber::default();
            let mut out = Vec::new();
            for pair in cuts.windows(2) {
                for piece in scrubber.push(&whole[pair[0]..pair[1]]) {
                    add(&mut out, piece);
                }
            }
            for piece in scrubber.finish() {
                add(&mut out, piece);
            }
            let mut text = String::new();
            let mut reasoning = String::new();
            for piece in out {
                match piece {
                    AnswerPiece::Text(piece) => text.push_str(&piece),
                    AnswerPiece::Reasoning(piece) => reasoning.push_str(&piece),
                }
            }
            prop_assert_eq!((text, reasoning), scrub(&whole));
        }
    }
}

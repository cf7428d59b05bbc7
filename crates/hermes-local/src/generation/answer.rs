//! Splits the model's output into text and tool calls while it arrives.
//!
//! Calls follow the grammar, so they are read by position. Text that may turn out to be the
//! beginning of a call or of a stop sequence waits until it is known.

use crate::engine::TextStream;
use crate::grammar::CallStyle;

/// A piece of an answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AnswerDelta {
    /// The question was taken up.
    Begin,
    Text(String),
    Call {
        index: usize,
        id: String,
        name: String,
    },
    Arguments {
        index: usize,
        text: String,
    },
}

pub(super) struct AnswerParser {
    /// How calls are written; none: there are no calls.
    style: Option<CallStyle>,
    stops: Vec<String>,
    stream: TextStream,
    /// What has come and is not known yet to be what.
    held: String,
    at: AnswerPosition,
    said: bool,
    /// Calls that were written to their end.
    calls: usize,
}

enum AnswerPosition {
    Text,
    /// The rest of what stands before the name.
    Open(usize),
    Name(String),
    Middle(usize),
    Arguments(JsonTracker),
    Close(usize),
    After,
}

/// Where in a JSON value we are.
#[derive(Default)]
struct JsonTracker {
    depth: usize,
    in_string: bool,
    escaped: bool,
}

impl JsonTracker {
    /// Whether the value ends with this character.
    fn step(&mut self, character: char) -> bool {
        if self.in_string {
            match character {
                _ if self.escaped => self.escaped = false,
                '\\' => self.escaped = true,
                '"' => self.in_string = false,
                _ => {}
            }
            return false;
        }
        match character {
            '"' => self.in_string = true,
            '{' | '[' => self.depth += 1,
            '}' | ']' => self.depth -= 1,
            _ => {}
        }
        self.depth == 0
    }
}

impl AnswerParser {
    /// `style` says how calls are written, if there may be some.
    pub(super) fn new(style: Option<CallStyle>, stops: &[String]) -> Self {
        Self {
            style,
            stops: stops
                .iter()
                .filter(|stop| !stop.is_empty())
                .cloned()
                .collect(),
            stream: TextStream::default(),
            held: String::new(),
            at: AnswerPosition::Text,
            said: false,
            calls: 0,
        }
    }

    pub(super) fn calls(&self) -> usize {
        self.calls
    }

    /// Takes the bytes of a token. `true`: a stop sequence ended the answer.
    pub(super) fn feed(
        &mut self,
        bytes: &[u8],
        id: impl Fn() -> String,
        out: &mut Vec<AnswerDelta>,
    ) -> bool {
        let text = self.stream.push(bytes);
        self.take(&text, &id, out)
    }

    /// The answer is over: what was held back is text after all.
    pub(super) fn finish(mut self, out: &mut Vec<AnswerDelta>) {
        let rest = std::mem::take(&mut self.stream).finish();
        if !self.take(&rest, &String::new, out) && matches!(self.at, AnswerPosition::Text) {
            say(std::mem::take(&mut self.held), out);
        }
    }

    fn take(&mut self, text: &str, id: &impl Fn() -> String, out: &mut Vec<AnswerDelta>) -> bool {
        self.held.push_str(text);
        loop {
            match &self.at {
                AnswerPosition::Text => {
                    if self.stopped(out) {
                        return true;
                    }
                    if !self.text(out) {
                        return false;
                    }
                }
                AnswerPosition::After if self.held.trim_start().is_empty() => return false,
                AnswerPosition::After => {
                    // The next call begins with its marker.
                    let marker = self.style.map_or("", CallStyle::marker);
                    let blank = self.held.len() - self.held.trim_start().len();
                    if self.held.len() < blank + marker.len() {
                        return false;
                    }
                    self.held.drain(..blank + marker.len());
                    self.at = AnswerPosition::Open(0);
                }
                _ => {
                    let held = std::mem::take(&mut self.held);
                    let used = self.call(&held, id, out);
                    held[used..].clone_into(&mut self.held);
                    if self.held.is_empty() {
                        return false;
                    }
                }
            }
        }
    }

    /// Whether a stop sequence has come. What was said before it goes out.
    fn stopped(&mut self, out: &mut Vec<AnswerDelta>) -> bool {
        let stops = self.stops.iter();
        let Some(at) = stops.filter_map(|stop| self.held.find(stop.as_str())).min() else {
            return false;
        };
        if self.marker_at().is_some_and(|marker| marker < at) {
            return false;
        }
        self.held.truncate(at);
        say(std::mem::take(&mut self.held), out);
        true
    }

    fn marker_at(&self) -> Option<usize> {
        match self.style? {
            CallStyle::Tagged => self.held.find(CallStyle::Tagged.marker()),
            CallStyle::Bare => (!self.said && self.held.starts_with('{')).then_some(0),
        }
    }

    /// Says what can be said; `true`: a call begins.
    fn text(&mut self, out: &mut Vec<AnswerDelta>) -> bool {
        if let Some(at) = self.marker_at() {
            let marker = self.style.map_or(0, |style| style.marker().len());
            let said: String = self.held.drain(..at).collect();
            self.held.drain(..marker);
            if self.said || !said.trim().is_empty() {
                say(said.trim_end().to_owned(), out);
            }
            self.at = AnswerPosition::Open(0);
            return true;
        }
        let mut keep = self.held.len();
        let marker = self.style.map_or("", CallStyle::marker);
        for waited in self.stops.iter().map(String::as_str).chain([marker]) {
            keep = keep.min(beginning_of(waited, &self.held));
        }
        // Blanks before a call are not said, nor are those at the very beginning of one.
        if self.style.is_some() {
            keep = self.held[..keep].trim_end().len();
        }
        if keep > 0 {
            say(self.held.drain(..keep).collect(), out);
            self.said = true;
        }
        false
    }

    /// Reads on in a call; gives the bytes that were read.
    fn call(&mut self, text: &str, id: &impl Fn() -> String, out: &mut Vec<AnswerDelta>) -> usize {
        let style = self.style.unwrap_or(CallStyle::Tagged);
        let skip = |done: usize, fixed: &str| (fixed.len() - done).min(text.len());
        match &mut self.at {
            AnswerPosition::Open(done) => {
                let used = skip(*done, style.open());
                *done += used;
                if *done == style.open().len() {
                    self.at = AnswerPosition::Name(String::new());
                }
                used
            }
            AnswerPosition::Name(name) => {
                let end = text.find('"');
                name.push_str(&text[..end.unwrap_or(text.len())]);
                let Some(end) = end else { return text.len() };
                out.push(AnswerDelta::Call {
                    index: self.calls,
                    id: id(),
                    name: std::mem::take(name),
                });
                self.at = AnswerPosition::Middle(0);
                end
            }
            AnswerPosition::Middle(done) => {
                let used = skip(*done, style.middle());
                *done += used;
                if *done == style.middle().len() {
                    self.at = AnswerPosition::Arguments(JsonTracker::default());
                }
                used
            }
            AnswerPosition::Arguments(json) => {
                let end = text
                    .char_indices()
                    .find(|(_, character)| json.step(*character));
                let used = end.map_or(text.len(), |(at, character)| at + character.len_utf8());
                out.push(AnswerDelta::Arguments {
                    index: self.calls,
                    text: text[..used].to_owned(),
                });
                if end.is_some() {
                    self.at = AnswerPosition::Close(0);
                }
                used
            }
            AnswerPosition::Close(done) => {
                let used = skip(*done, style.close());
                *done += used;
                if *done == style.close().len() {
                    self.calls += 1;
                    self.at = AnswerPosition::After;
                }
                used
            }
            AnswerPosition::Text | AnswerPosition::After => 0,
        }
    }
}

fn say(text: String, out: &mut Vec<AnswerDelta>) {
    if text.is_empty() {
        return;
    }
    match out.last_mut() {
        Some(AnswerDelta::Text(last)) => last.push_str(&text),
        _ => out.push(AnswerDelta::Text(text)),
    }
}

/// Where the end of `text` may be the beginning of `waited`.
fn beginning_of(waited: &str, text: &str) -> usize {
    let starts = text.char_indices().map(|(at, _)| at);
    let longest = waited.len().saturating_sub(1);
    starts
        .skip_while(|at| text.len() - at > longest)
        .find(|at| waited.starts_with(&text[*at..]))
        .unwrap_or(text.len())
}

#[cfg(test)]
mod tests {
    use super::*;
    use pretty_assertions::assert_eq;

    fn read(
        style: Option<CallStyle>,
        stops: &[&str],
        text: &str,
        step: usize,
    ) -> (Vec<AnswerDelta>, usize) {
        let stops: Vec<String> = stops.iter().map(|stop| (*stop).to_owned()).collect();
        let mut answer = AnswerParser::new(style, &stops);
        let mut out = Vec::new();
        let mut stopped = false;
        for bytes in text.as_bytes().chunks(step) {
            stopped = answer.feed(bytes, || "id".to_owned(), &mut out);
            if stopped {
                break;
            }
        }
        let calls = answer.calls();
        if !stopped {
            answer.finish(&mut out);
        }
        (joined(out), calls)
    }

    fn joined(deltas: Vec<AnswerDelta>) -> Vec<AnswerDelta> {
        let mut joined: Vec<AnswerDelta> = Vec::new();
        for delta in deltas {
            match (joined.last_mut(), delta) {
                (Some(AnswerDelta::Text(last)), AnswerDelta::Text(more)) => last.push_str(&more),
                (
                    Some(AnswerDelta::Arguments { text, .. }),
                    AnswerDelta::Arguments { text: more, .. },
                ) => {
                    text.push_str(&more);
                }
                (_, delta) => joined.push(delta),
            }
        }
        joined
    }

    #[test]
    fn text_and_calls_come_apart_however_they_are_cut() {
        let text = "Sure — é.\n<tool_call>\n{\"name\": \"look\", \"arguments\": {\"a\":\"}\\\"]\"}}\n\
                    </tool_call>\n<tool_call>\n{\"name\": \"go\", \"arguments\": {}}\n</tool_call>";
        for step in 1..20 {
            let (deltas, calls) = read(Some(CallStyle::Tagged), &["]"], text, step);
            assert_eq!(calls, 2);
            let call = |index, name: &str| AnswerDelta::Call {
                index,
                id: "id".to_owned(),
                name: name.to_owned(),
            };
            let arguments = |index, text: &str| AnswerDelta::Arguments {
                index,
                text: text.to_owned(),
            };
            assert_eq!(
                deltas,
                [
                    AnswerDelta::Text("Sure — é.".to_owned()),
                    call(0, "look"),
                    arguments(0, "{\"a\":\"}\\\"]\"}"),
                    call(1, "go"),
                    arguments(1, "{}"),
                ],
                "in steps of {step}"
            );
        }
    }

    #[test]
    fn a_bare_call_is_known_by_its_first_character() {
        let text = "{\"name\": \"look\", \"parameters\": {\"a\":[1]}}";
        for step in 1..9 {
            let (deltas, calls) = read(Some(CallStyle::Bare), &[], text, step);
            assert_eq!(calls, 1);
            assert_eq!(deltas.len(), 2);
        }
        let (deltas, calls) = read(Some(CallStyle::Bare), &[], "Not {a call}.", 3);
        assert_eq!(
            (deltas, calls),
            (vec![AnswerDelta::Text("Not {a call}.".to_owned())], 0)
        );
    }

    #[test]
    fn stop_sequences_are_never_said() {
        for step in 1..9 {
            let (deltas, _) = read(None, &["STOP", "\n\n"], "One. ST OP\nSTOP more", step);
            assert_eq!(
                deltas,
                [AnswerDelta::Text("One. ST OP\n".to_owned())],
                "{step}"
            );
            let (deltas, _) = read(None, &["STOP"], "One. STO", step);
            assert_eq!(deltas, [AnswerDelta::Text("One. STO".to_owned())], "{step}");
            let (deltas, _) = read(Some(CallStyle::Tagged), &[], " a <tool_cal b ", step);
            assert_eq!(
                deltas,
                [AnswerDelta::Text(" a <tool_cal b ".to_owned())],
                "{step}"
            );
        }
    }
}

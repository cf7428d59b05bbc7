//! From the bytes of an answer to events, whatever way the server chose to send it.

use hermes_core::model::ModelEvent;
use hermes_http::sse::{SseEvent, SseParser};

use super::json::{clip, lenient};
use super::{Decoder, WireFault};

/// Largest answer in one piece that is accepted.
pub const MAX_ANSWER_BYTES: usize = 16 * 1024 * 1024;

/// Reads an answer: server-sent events, or one JSON object although a stream was asked for.
/// The split of the bytes does not matter.
#[derive(Debug)]
pub struct AnswerReader {
    decoder: Decoder,
    shape: Shape,
}

#[derive(Debug)]
enum Shape {
    /// Nothing but space (and a byte order mark) so far; what may be the beginning of a mark, and how
    /// much was passed over.
    Unknown(Vec<u8>, usize),
    Events(SseParser),
    Object(Vec<u8>),
}

impl AnswerReader {
    pub fn new(decoder: Decoder) -> Self {
        Self {
            decoder,
            shape: Shape::Unknown(Vec::new(), 0),
        }
    }

    /// Takes bytes. Events that were complete before a fault are in `out`.
    pub fn push(&mut self, bytes: &[u8], out: &mut Vec<ModelEvent>) -> Result<(), WireFault> {
        match &mut self.shape {
            Shape::Unknown(held, passed) => {
                held.extend_from_slice(bytes);
                let Some(begun) = beginning(held) else {
                    *passed += bytes.len();
                    // Space is looked at once, however much of it there is.
                    if !BOM.starts_with(held) {
                        held.clear();
                    }
                    return if *passed > MAX_ANSWER_BYTES {
                        Err(too_large())
                    } else {
                        Ok(())
                    };
                };
                let rest = held.split_off(begun);
                self.shape = match rest.first() {
                    Some(b'{' | b'[' | b'<') => Shape::Object(Vec::new()),
                    _ => Shape::Events(SseParser::default()),
                };
                self.push(&rest, out)
            }
            Shape::Object(held) => {
                if held.len() + bytes.len() > MAX_ANSWER_BYTES {
                    return Err(too_large());
                }
                held.extend_from_slice(bytes);
                Ok(())
            }
            Shape::Events(parser) => {
                let mut events = Vec::new();
                let parsed = parser.push(bytes, &mut events);
                for event in &events {
                    out.extend(self.decoder.push(event)?);
                }
                parsed.map_err(|error| WireFault::Malformed(error.to_string()))
            }
        }
    }

    /// The server said that the answer is over, whether or not it closes the connection.
    pub(crate) fn is_complete(&self) -> bool {
        matches!(self.shape, Shape::Events(_)) && self.decoder.is_complete()
    }

    /// The answer ended.
    pub fn finish(mut self, out: &mut Vec<ModelEvent>) -> Result<(), WireFault> {
        match self.shape {
            Shape::Unknown(..) => {}
            Shape::Object(held) => {
                let text = String::from_utf8_lossy(&held);
                match lenient(&text) {
                    Ok(value) => {
                        out.extend(self.decoder.whole(&value)?);
                        self.decoder.done();
                    }
                    Err(error) if !is_lines(&text) => {
                        let shown = clip(&text, 200);
                        return Err(WireFault::Malformed(format!(
                            "the answer is not JSON ({error}): {shown}"
                        )));
                    }
                    // The events of a stream, without the words around them.
                    Err(_) => {
                        for line in text.lines() {
                            let event = SseEvent {
                                data: Some(line.to_owned()),
                                ..SseEvent::default()
                            };
                            out.extend(self.decoder.push(&event)?);
                        }
                    }
                }
            }
            Shape::Events(mut parser) => {
                let mut events = Vec::new();
                parser.finish(&mut events);
                for event in &events {
                    match self.decoder.push(event) {
                        Ok(decoded) => out.extend(decoded),
                        // The connection was cut in the middle of an event.
                        Err(WireFault::Malformed(_)) => {}
                        Err(fault) => return Err(fault),
                    }
                }
            }
        }
        let stray = self.decoder.stray().map(str::to_owned);
        let events = self.decoder.finish();
        if let (Some(stray), true) = (stray, events.is_empty() && out.is_empty()) {
            return Err(WireFault::Malformed(format!(
                "the answer is not of the format that was asked for: {stray}"
            )));
        }
        out.extend(events);
        Ok(())
    }
}

/// Whether every line is an object of its own.
fn is_lines(text: &str) -> bool {
    let mut lines = text.lines().filter(|line| !line.trim().is_empty());
    lines.clone().count() > 1
        && lines.all(|line| line.trim_start().starts_with('{') && lenient(line).is_ok())
}

const BOM: &[u8] = "\u{feff}".as_bytes();

/// Where the answer begins: behind a byte order mark and space.
fn beginning(bytes: &[u8]) -> Option<usize> {
    if bytes.len() < BOM.len() && BOM.starts_with(bytes) {
        return None;
    }
    let mark = if bytes.starts_with(BOM) { BOM.len() } else { 0 };
    let rest = bytes[mark..].iter();
    let space = rest.take_while(|byte| byte.is_ascii_whitespace()).count();
    (mark + space < bytes.len()).then_some(mark + space)
}

fn too_large() -> WireFault {
    WireFault::Malformed(format!(
        "the answer is larger than {} MB",
        MAX_ANSWER_BYTES / (1024 * 1024)
    ))
}

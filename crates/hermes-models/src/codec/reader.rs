//! From the bytes of an answer to events, in any form the server sends it.

use hermes_core::model::ModelEvent;
use hermes_http::sse::{SseEvent, SseParser};

use super::json::lenient;
use super::{AnswerDecoder, WireFault};

/// Maximum size of an answer in one piece.
pub(crate) const MAX_ANSWER_BYTES: usize = 16 * 1024 * 1024;

/// Reads an answer: server-sent events, or one JSON object although a stream was requested. How the
/// bytes are split does not matter.
#[derive(Debug)]
pub(crate) struct AnswerReader {
    decoder: AnswerDecoder,
    shape: AnswerShape,
}

#[derive(Debug)]
enum AnswerShape {
    /// Only whitespace (and a byte order mark) so far; what may be the beginning of a mark, and how
    /// much was skipped.
    Unknown(Vec<u8>, usize),
    Events(SseParser),
    Object(Vec<u8>),
}

impl AnswerReader {
    pub(crate) fn new(decoder: AnswerDecoder) -> Self {
        Self {
            decoder,
            shape: AnswerShape::Unknown(Vec::new(), 0),
        }
    }

    /// Takes bytes. Events that were complete before a fault are in `out`.
    pub(crate) fn push(
        &mut self,
        bytes: &[u8],
        out: &mut Vec<ModelEvent>,
    ) -> Result<(), WireFault> {
        match &mut self.shape {
            AnswerShape::Unknown(held, passed) => {
                held.extend_from_slice(bytes);
                let Some(start) = beginning(held) else {
                    *passed += bytes.len();
                    // Whitespace is scanned once, however much there is.
                    if !BOM.starts_with(held) {
                        held.clear();
                    }
                    return if *passed > MAX_ANSWER_BYTES {
                        Err(too_large())
                    } else {
                        Ok(())
                    };
                };
                let rest = held.split_off(start);
                self.shape = match rest.first() {
                    Some(b'{' | b'[' | b'<') => AnswerShape::Object(Vec::new()),
                    _ => AnswerShape::Events(SseParser::default()),
                };
                self.push(&rest, out)
            }
            AnswerShape::Object(held) => {
                if held.len() + bytes.len() > MAX_ANSWER_BYTES {
                    return Err(too_large());
                }
                held.extend_from_slice(bytes);
                Ok(())
            }
            AnswerShape::Events(parser) => {
                let mut events = Vec::new();
                let parsed = parser.push(bytes, &mut events);
                for event in &events {
                    out.extend(self.decoder.push(event)?);
                }
                parsed.map_err(|error| WireFault::Malformed(error.to_string()))
            }
        }
    }

    /// The server reported the end of the answer, whether or not it closes the connection.
    pub(crate) fn is_complete(&self) -> bool {
        matches!(self.shape, AnswerShape::Events(_)) && self.decoder.is_complete()
    }

    /// The answer ended.
    pub(crate) fn finish(mut self, out: &mut Vec<ModelEvent>) -> Result<(), WireFault> {
        match self.shape {
            AnswerShape::Unknown(..) => {}
            AnswerShape::Object(held) => {
                let text = String::from_utf8_lossy(&held);
                match lenient(&text) {
                    Ok(value) => {
                        out.extend(self.decoder.whole(&value)?);
                        self.decoder.done();
                    }
                    Err(error) if !is_lines(&text) => {
                        let shown = hermes_core::text::shorten(&text, 200);
                        return Err(WireFault::Malformed(format!(
                            "the answer is not JSON ({error}): {shown}"
                        )));
                    }
                    // The events of a stream, without the text around them.
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
            AnswerShape::Events(mut parser) => {
                let mut events = Vec::new();
                parser.finish(&mut events);
                for event in &events {
                    match self.decoder.push(event) {
                        Ok(decoded) => out.extend(decoded),
                        // The connection was closed in the middle of an event.
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

/// Where the answer begins: after a byte order mark and whitespace.
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

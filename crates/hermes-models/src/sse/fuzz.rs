//! Any stream, however it is cut: the events of the standard.

use super::{BOM, SseEvent, SseParser};

pub fn sse(data: &[u8]) {
    let expected = events(data);
    assert_eq!(parsed(&[data]), expected);
    for size in [1, 2, 3, 7, 64] {
        let pieces: Vec<&[u8]> = data.chunks(size).collect();
        assert_eq!(parsed(&pieces), expected, "in pieces of {size}");
    }
    for cut in 1..data.len().min(96) {
        let (first, second) = data.split_at(cut);
        assert_eq!(parsed(&[first, b"", second]), expected, "cut at {cut}");
    }
}

fn parsed(pieces: &[&[u8]]) -> Vec<SseEvent> {
    let mut parser = SseParser::default();
    let mut out = Vec::new();
    for piece in pieces {
        assert_eq!(parser.push(piece, &mut out), Ok(()));
    }
    assert_eq!(parser.finish(&mut out), Ok(()));
    out
}

/// The same from the whole text, as simply as it can be said.
fn events(data: &[u8]) -> Vec<SseEvent> {
    let data = data.strip_prefix(BOM).unwrap_or(data);
    let text = String::from_utf8_lossy(data);
    let text = text.replace("\r\n", "\n").replace('\r', "\n");
    let mut events = Vec::new();
    let (mut name, mut lines) = (String::new(), Vec::new());
    // What the stream ends with counts although no blank line follows.
    for line in text.split('\n').chain([""]) {
        let (field, value) = line.split_once(':').unwrap_or((line, ""));
        let value = value.strip_prefix(' ').unwrap_or(value);
        match field {
            "data" => lines.push(value),
            "event" => value.clone_into(&mut name),
            _ if line.is_empty() => {
                let name = std::mem::take(&mut name);
                if !lines.is_empty() {
                    let data = std::mem::take(&mut lines).join("\n");
                    events.push(SseEvent { name, data });
                }
            }
            _ => {}
        }
    }
    events
}

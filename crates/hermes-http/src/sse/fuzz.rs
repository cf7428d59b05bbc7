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

/// What was read of a stream.
#[derive(Debug, PartialEq)]
struct Parsed {
    whole: Vec<SseEvent>,
    /// What it ended with.
    last: Vec<SseEvent>,
}

fn parsed(pieces: &[&[u8]]) -> Parsed {
    let mut parser = SseParser::default();
    let (mut whole, mut last) = (Vec::new(), Vec::new());
    for piece in pieces {
        assert_eq!(parser.push(piece, &mut whole), Ok(()));
    }
    parser.finish(&mut last);
    Parsed { whole, last }
}

/// The same from the whole text, as simply as it can be said.
fn events(data: &[u8]) -> Parsed {
    let data = data.strip_prefix(BOM).unwrap_or(data);
    let text = String::from_utf8_lossy(data);
    let text = text.replace("\r\n", "\n").replace('\r', "\n");
    let mut lines: Vec<&str> = text.split('\n').collect();
    // What stands behind the last line end is not a line yet.
    let unfinished = lines.pop().unwrap_or_default();
    let mut whole = Vec::new();
    let mut event = SseEvent::default();
    for line in lines {
        if !line.is_empty() {
            field(&mut event, line);
            continue;
        }
        let event = std::mem::take(&mut event);
        if event != SseEvent::default() {
            whole.push(event);
        }
    }
    field(&mut event, unfinished);
    let last = (event != SseEvent::default()).then_some(event);
    Parsed {
        whole,
        last: last.into_iter().collect(),
    }
}

fn field(event: &mut SseEvent, line: &str) {
    let (name, value) = line.split_once(':').unwrap_or((line, ""));
    let value = value.strip_prefix(' ').unwrap_or(value);
    match name {
        "data" => {
            let before = event
                .data
                .take()
                .map_or_else(String::new, |data| data + "\n");
            event.data = Some(before + value);
        }
        "event" => event.name = Some(value.to_owned()),
        "id" if !value.contains('\0') => event.id = Some(value.to_owned()),
        "retry" => event.retry = value.trim().parse().ok().or(event.retry),
        _ => {}
    }
}

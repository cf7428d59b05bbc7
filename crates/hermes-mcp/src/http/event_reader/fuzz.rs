//! Any stream, however it is cut: the events of the standard.

use sse_stream::Sse;

use super::{BOM, Reader};

pub fn sse(data: &[u8]) {
    let expected = events(data);
    assert_eq!(read(&[data]), expected);
    for size in [1, 2, 3, 7, 64] {
        let pieces: Vec<&[u8]> = data.chunks(size).collect();
        assert_eq!(read(&pieces), expected, "in pieces of {size}");
    }
    for cut in 1..data.len().min(96) {
        let (first, second) = data.split_at(cut);
        assert_eq!(read(&[first, b"", second]), expected, "cut at {cut}");
    }
}

fn read(pieces: &[&[u8]]) -> Vec<Sse> {
    let mut reader = Reader::default();
    for piece in pieces {
        reader.take(piece);
    }
    reader.ready.into()
}

/// The same from the whole text, as simply as it can be said.
fn events(data: &[u8]) -> Vec<Sse> {
    let data = data.strip_prefix(BOM).unwrap_or(data);
    let text = String::from_utf8_lossy(data);
    let text = text.replace("\r\n", "\n").replace('\r', "\n");
    let mut lines: Vec<&str> = text.split('\n').collect();
    // What stands behind the last line end is not a line yet.
    lines.pop();
    let mut events = Vec::new();
    let mut event = Sse::default();
    for line in lines {
        let (field, value) = line.split_once(':').unwrap_or((line, ""));
        let value = value.strip_prefix(' ').unwrap_or(value);
        match field {
            "data" => {
                let data = event
                    .data
                    .take()
                    .map_or_else(String::new, |data| data + "\n");
                event.data = Some(data + value);
            }
            "event" => event.event = Some(value.to_owned()),
            "id" if !value.contains('\0') => event.id = Some(value.to_owned()),
            "retry" => event.retry = value.trim().parse().ok().or(event.retry),
            _ if line.is_empty() => {
                let event = std::mem::take(&mut event);
                if event != Sse::default() {
                    events.push(event);
                }
            }
            _ => {}
        }
    }
    events
}

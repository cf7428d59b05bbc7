//! Any bytes of a terminal, however they are cut: the same keys, and none is lost.

use std::time::{Duration, Instant};

use super::{KeyDecoder, TerminalInput, control, key};
use crate::input::PasteDetector;
use crate::keys::{KeyCode, KeyPress, Modifiers};

/// Cuts are tried at every place up to here.
const CUTS: usize = 96;

pub fn keys(data: &[u8]) {
    let whole = decoded(&[data]);
    for size in [1, 2, 3, 7, 64] {
        let pieces: Vec<&[u8]> = data.chunks(size).collect();
        assert_eq!(decoded(&pieces), whole, "in pieces of {size}");
    }
    for cut in 1..data.len().min(CUTS) {
        let (first, second) = data.split_at(cut);
        assert_eq!(decoded(&[first, second]), whole, "cut at {cut}");
    }
    typed_text(data);
    pasted_text(data);
    next_key(data);
    bursts(data, whole);
}

/// What comes of these pieces when nothing follows them.
fn decoded(pieces: &[&[u8]]) -> Vec<TerminalInput> {
    let mut decoder = KeyDecoder::default();
    let mut out = Vec::new();
    let mut held: Vec<u8> = Vec::new();
    for piece in pieces {
        held.extend_from_slice(piece);
        // Alone and inside a paste, these are a person who wants out of it: not the same input.
        if decoder.pasting && matches!(held.as_slice(), [0x03 | 0x1b]) {
            continue;
        }
        decoder.feed(&held, &mut out);
        held.clear();
    }
    decoder.settle(&mut out);
    assert!(!decoder.is_incomplete());
    out
}

/// Without an escape, every character is a key.
fn typed_text(data: &[u8]) {
    let plain: Vec<u8> = data.iter().copied().filter(|byte| *byte != 0x1b).collect();
    let text = String::from_utf8_lossy(&plain);
    let keys = text.chars().map(|ch| match u8::try_from(ch) {
        Ok(byte @ (0x00..=0x1f | 0x7f)) => control(byte),
        _ => TerminalInput::Key(KeyPress::char(ch)),
    });
    assert_eq!(decoded(&[&plain]), keys.collect::<Vec<_>>());
}

/// What a terminal marks as pasted arrives as it is.
fn pasted_text(data: &[u8]) {
    let plain: Vec<u8> = data.iter().copied().filter(|byte| *byte != 0x1b).collect();
    let marked = [b"\x1b[200~", &plain[..], b"\x1b[201~", b"x"].concat();
    let text = String::from_utf8_lossy(&plain);
    let text = text.replace("\r\n", "\n").replace('\r', "\n");
    let expected = [
        TerminalInput::Paste(text),
        TerminalInput::Key(KeyPress::char('x')),
    ];
    assert_eq!(decoded(&[&marked]), expected);
}

/// A sequence that has no end does not swallow the key after it.
fn next_key(data: &[u8]) {
    // These say how much belongs to them.
    let mut decoder = KeyDecoder::default();
    decoder.feed(data, &mut Vec::new());
    let counted = data.iter().any(|byte| b"]P_M".contains(byte));
    if counted || decoder.pasting {
        return;
    }
    let up = [data, b"\x1b[A"].concat();
    assert_eq!(
        decoded(&[&up]).last(),
        Some(&key(KeyCode::Up, Modifiers::NONE))
    );
}

/// Whatever is taken for a paste, and whenever it came: the text stays the same.
fn bursts(data: &[u8], inputs: Vec<TerminalInput>) {
    let expected = text(&inputs);
    let mut burst = PasteDetector::default();
    let mut now = Instant::now();
    let mut out = Vec::new();
    let mut gaps = data.iter().cycle();
    let mut inputs = inputs.into_iter();
    loop {
        let gap = gaps.next().copied().unwrap_or(0);
        let together: Vec<TerminalInput> =
            inputs.by_ref().take(1 + usize::from(gap >> 5)).collect();
        if together.is_empty() {
            break;
        }
        now += Duration::from_millis([0, 5, 30, 200][usize::from(gap & 3)]);
        burst.expire(now, &mut out);
        burst.feed_all(together, now, &mut out);
    }
    burst.flush(&mut out);
    assert_eq!(text(&out), expected);
}

fn text(inputs: &[TerminalInput]) -> String {
    let shown = |input: &TerminalInput| match input {
        TerminalInput::Paste(text) => text.clone(),
        TerminalInput::Key(key) => match (key.code, key.mods) {
            (KeyCode::Enter, Modifiers::NONE) | (KeyCode::Char('j'), Modifiers::CTRL) => {
                "\n".to_owned()
            }
            (KeyCode::Tab, Modifiers::NONE) => "\t".to_owned(),
            _ => key.text().map_or_else(|| format!("<{key}>"), String::from),
        },
        other => format!("<{other:?}>"),
    };
    inputs.iter().map(shown).collect()
}

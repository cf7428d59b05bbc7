use proptest::prelude::*;

use super::*;

/// Keys by name, the rest as it is.
fn told(inputs: &[TerminalInput]) -> Vec<String> {
    let tell = |input: &TerminalInput| match input {
        TerminalInput::Key(key) => key.to_string(),
        TerminalInput::Paste(text) => format!("paste {text:?}"),
        other => format!("{other:?}"),
    };
    inputs.iter().map(tell).collect()
}

fn decoded(chunks: &[&[u8]]) -> Vec<String> {
    let mut decoder = KeyDecoder::default();
    let mut out = Vec::new();
    for chunk in chunks {
        decoder.feed(chunk, &mut out);
    }
    decoder.settle(&mut out);
    told(&out)
}

#[test]
fn terminals_say_keys_in_many_ways() {
    for (bytes, keys) in [
        (&b"aB?"[..], &["a", "B", "?"][..]),
        ("é日👍".as_bytes(), &["é", "日", "👍"]),
        (
            b"\r\n\t\x7f\x08",
            &["enter", "ctrl+j", "tab", "backspace", "ctrl+h"],
        ),
        (
            b"\x00\x03\x1a\x1f\x1c",
            &["ctrl+space", "ctrl+c", "ctrl+z", "ctrl+_", "ctrl+\\"],
        ),
        (b"\x1b", &["esc"]),
        (b"\x1b\x1b", &["esc", "esc"]),
        (
            b"\x1b[A\x1bOB\x1b[1;5C\x1b[1;3D",
            &["up", "down", "ctrl+right", "alt+left"],
        ),
        (
            b"\x1b[H\x1b[F\x1b[1~\x1b[4~\x1b[5~\x1b[6~",
            &["home", "end", "home", "end", "pageup", "pagedown"],
        ),
        (
            b"\x1b[3~\x1b[3;5~\x1b[2~",
            &["delete", "ctrl+delete", "insert"],
        ),
        (
            b"\x1bOP\x1b[15~\x1b[24~\x1b[[A\x1b[1;2P",
            &["f1", "f5", "f12", "f1", "shift+f1"],
        ),
        (b"\x1b[Z", &["shift+tab"]),
        (
            b"\x1b\r\x1b\x7f\x1bb\x1bB\x1b\xc3\xa9",
            &["alt+enter", "alt+backspace", "alt+b", "alt+B", "alt+é"],
        ),
        (
            b"\x1b[13;2u\x1b[99;5u\x1b[27u\x1b[47;5u",
            &["shift+enter", "ctrl+c", "esc", "ctrl+/"],
        ),
        (b"\x1b[27;2;13~", &["shift+enter"]),
        (b"\x1b[97;1:3u\x1b[57358u\x1b[57399u", &["0"]),
        (b"\x1b[122;10u", &["shift+super+z"]),
        (b"\x1b[I\x1b[O", &["Focus(true)", "Focus(false)"]),
        (b"\x1b[<0;3;4M\x1b[M !!x", &["x"]),
        (b"\x1b[?1u\x1b[?62;4c", &["Report(Keyboard)"]),
        (b"\x1b[?2004;2$y\x1b[?2004;0$y", &["Report(Pastes)"]),
        (
            b"\x1b]11;rgb:ffff/8080/0000\x1b\\x",
            &["Report(Background(255, 128, 0))", "x"],
        ),
        (
            b"\x1b]11;rgb:1e/1e/2e\x07",
            &["Report(Background(30, 30, 46))"],
        ),
        (
            b"\x1b[200~one\r\ntwo\rthree\x1b[201~x",
            &["paste \"one\\ntwo\\nthree\"", "x"],
        ),
        (
            b"\x1b[200~\x1b[A\x03\x1b[201~",
            &["paste \"\\u{1b}[A\\u{3}\""],
        ),
        (b"\x1b[", &["alt+["]),
        (b"\x1b]x", &["alt+]", "x"]),
        (b"\xff\xc3x", &["\u{fffd}", "\u{fffd}", "x"]),
        (b"\xe6\x97", &["\u{fffd}"]),
        (b"\x1b[12\x1b[A", &["up"]),
    ] {
        assert_eq!(
            decoded(&[bytes]),
            keys,
            "{:?}",
            String::from_utf8_lossy(bytes)
        );
    }
}

#[test]
fn the_way_bytes_are_cut_does_not_matter() {
    let bytes = "aé日\x1b[1;5C\x1b[200~x\r\ny日\x1b[201~\x1b]11;rgb:00/00/00\x1b\\\x1b[?1u\x1bOPz";
    let whole = decoded(&[bytes.as_bytes()]);
    for cut in 1..bytes.len() {
        let (a, b) = bytes.as_bytes().split_at(cut);
        // A lone escape waits for its rest.
        assert_eq!(decoded(&[a, b]), whole, "cut at {cut}");
    }
    let each: Vec<&[u8]> = bytes
        .as_bytes()
        .chunks(1)
        .filter(|one| *one != [0x03])
        .collect();
    // A single escape inside a paste is a way out, so only its own bytes come one by one.
    assert_eq!(decoded(&each[..8]).first().map(String::as_str), Some("a"));
}

/// These begin sequences, so that more is waited for; when nothing comes they were typed.
#[test]
fn alt_with_a_key_that_begins_sequences_is_a_key() {
    for letter in "[O]P_^X".chars() {
        let typed = format!("\x1b{letter}");
        assert_eq!(decoded(&[typed.as_bytes()]), [format!("alt+{letter}")]);
    }
}

#[test]
fn a_string_that_is_no_answer_is_typed_however_it_is_cut() {
    let bytes = b"\x1b]x\x1b\\y";
    for size in 1..=bytes.len() {
        let pieces: Vec<&[u8]> = bytes.chunks(size).collect();
        assert_eq!(decoded(&pieces), ["alt+]", "x", "alt+\\", "y"], "{size}");
    }
}

#[test]
fn a_sequence_without_an_end_goes_at_the_same_place_however_it_is_cut() {
    for begin in ["\x1b[", "\x1b]1", "\x1bP1"] {
        let text = format!("{begin}{}A", "1".repeat(MAX_SEQUENCE + 10));
        let whole = decoded(&[text.as_bytes()]);
        assert!((10..14).contains(&whole.len()), "{whole:?}");
        for size in [1, 7, 4096] {
            let pieces: Vec<&[u8]> = text.as_bytes().chunks(size).collect();
            assert_eq!(decoded(&pieces), whole, "{begin:?} in pieces of {size}");
        }
    }
}

#[test]
fn a_sequence_that_is_broken_off_does_not_swallow_the_next_key() {
    assert_eq!(decoded(&[b"\x1bO\x1b[A"]), ["alt+O", "up"]);
    assert_eq!(decoded(&[b"\x1b[[\x1b[A"]), ["up"]);
}

#[test]
fn a_paste_without_an_end_lets_go() {
    assert_eq!(
        decoded(&[b"\x1b[200~text", b" more", b"\x03"]),
        ["paste \"text more\"", "ctrl+c"]
    );
}

#[test]
fn a_huge_paste_comes_in_parts_and_whole() {
    let text = "日本語 line\n".repeat(1_000_000);
    let mut decoder = KeyDecoder::default();
    let mut out = Vec::new();
    decoder.feed(b"\x1b[200~", &mut out);
    for chunk in text.as_bytes().chunks(65536) {
        decoder.feed(chunk, &mut out);
    }
    decoder.feed(PASTE_END, &mut out);
    decoder.feed(b"x", &mut out);
    let mut got = String::new();
    for input in &out[..out.len() - 1] {
        match input {
            TerminalInput::Paste(part) => got.push_str(part),
            other => panic!("{other:?}"),
        }
    }
    assert!(got == text, "{} of {} bytes", got.len(), text.len());
    assert_eq!(out.last(), Some(&TerminalInput::Key(KeyPress::char('x'))));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn any_bytes_are_read_to_the_end(chunks in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..40), 0..8)) {
        let mut decoder = KeyDecoder::default();
        let mut out = Vec::new();
        for chunk in &chunks {
            decoder.feed(chunk, &mut out);
        }
        decoder.settle(&mut out);
        prop_assert!(!decoder.is_incomplete());
    }
}

use pretty_assertions::assert_eq;
use proptest::prelude::*;

use super::*;

fn parse(chunks: &[&[u8]]) -> Vec<SseEvent> {
    let mut parser = SseParser::default();
    let mut out = Vec::new();
    for chunk in chunks {
        parser.push(chunk, &mut out).unwrap();
    }
    parser.finish(&mut out);
    out
}

/// The events that are whole.
fn whole(text: &str) -> Vec<SseEvent> {
    let mut out = Vec::new();
    SseParser::default()
        .push(text.as_bytes(), &mut out)
        .unwrap();
    out
}

fn event(name: &str, data: &str) -> SseEvent {
    SseEvent {
        name: (!name.is_empty()).then(|| name.to_owned()),
        data: Some(data.to_owned()),
        ..SseEvent::default()
    }
}

#[test]
fn fields_comments_and_line_ends() {
    let stream = "\u{feff}: hello\r\nevent: one\r\ndata: a\r\ndata:b\r\n\r\ndata: c\r\rid: 7\ndata\n\nretry: 5\n\ndata: last";
    let with_id = SseEvent {
        id: Some("7".to_owned()),
        ..event("", "")
    };
    let only_retry = SseEvent {
        retry: Some(5),
        ..SseEvent::default()
    };
    assert_eq!(
        parse(&[stream.as_bytes()]),
        [
            event("one", "a\nb"),
            event("", "c"),
            with_id,
            only_retry,
            event("", "last")
        ]
    );
}

#[test]
fn a_name_without_data_does_not_join_the_next_event() {
    let named = SseEvent {
        name: Some("x".to_owned()),
        ..SseEvent::default()
    };
    assert_eq!(
        parse(&[b"event: x\n\ndata: y\n\n"]),
        [named, event("", "y")]
    );
}

#[test]
fn fields_are_read_and_what_is_not_understood_is_ignored() {
    let all = SseEvent {
        id: Some("7".to_owned()),
        retry: Some(500),
        ..event("message", "a\nb\n")
    };
    let text = "\u{feff}event: message\nid: 7\ndata: a\ndata:b\ndata\nretry: 500\n\n";
    for line_end in ["\n", "\r\n", "\r"] {
        let text = text.replace('\n', line_end);
        assert_eq!(whole(&text), std::slice::from_ref(&all));
    }
    let odd = "mood: fine\nnothing\nid: 1\nid: 7\nevent: x\nevent: message\nretry: 500\n\
               retry: soon\n: a comment\ndata: a\ndata: b\ndata: \n\n";
    assert_eq!(whole(odd), [all]);
    // No event: nothing is in it, or its end is missing.
    assert_eq!(whole(": still here\n\n\n\ndata: cut"), []);
    assert_eq!(whole("data: cut\n"), []);
}

#[test]
fn an_endless_event_is_refused_for_good() {
    let mut parser = SseParser::default();
    let mut out = Vec::new();
    parser.push(b"data: ", &mut out).unwrap();
    let chunk = vec![b'x'; MAX_EVENT_BYTES];
    assert_eq!(parser.push(&chunk, &mut out), Err(TooLarge));
    assert_eq!(parser.push(b"\n\ndata: y\n\n", &mut out), Err(TooLarge));
    assert_eq!(out, []);
}

#[test]
fn the_limit_is_per_event() {
    let line = format!("data: {}\n", "x".repeat(1 << 20));
    let small = format!("{line}\n").repeat(40);
    assert_eq!(whole(&small).len(), 40);
    let large = format!("data: 1\n\n{}\n{small}", line.repeat(16));
    let (mut parser, mut out) = (SseParser::default(), Vec::new());
    let mut pieces = large.as_bytes().chunks(1 << 16);
    let refused = pieces.find_map(|piece| parser.push(piece, &mut out).err());
    assert_eq!(refused, Some(TooLarge));
    assert_eq!(out, [event("", "1")]);
}

fn scrap() -> impl Strategy<Value = Vec<u8>> {
    let text = |text: &'static str| Just(text.as_bytes().to_vec());
    prop_oneof![
        4 => text("\n"),
        2 => text("\r\n"),
        1 => text("\r"),
        2 => text("data: {\"a\": \"é\u{1f600}\"}"),
        1 => text("data:"),
        1 => text("id: 7"),
        1 => text("retry: 500"),
        1 => text(": nothing"),
        1 => proptest::collection::vec(any::<u8>(), 1..8),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn splits_do_not_matter(
        text in "(\u{feff})?((data|event|id|:)?:? ?[a-zé€𝄞]{0,6}(\r\n|\n|\r)){0,20}[a-z]{0,3}",
        cuts in proptest::collection::vec(any::<prop::sample::Index>(), 0..12),
    ) {
        let bytes = text.as_bytes();
        let mut at: Vec<usize> = cuts.iter().map(|cut| cut.index(bytes.len() + 1)).collect();
        at.extend([0, bytes.len()]);
        at.sort_unstable();
        let chunks: Vec<&[u8]> = at.windows(2).map(|pair| &bytes[pair[0]..pair[1]]).collect();
        prop_assert_eq!(parse(&chunks), parse(&[bytes]));
    }

    #[test]
    fn however_the_bytes_come_the_events_are_the_same(
        scraps in proptest::collection::vec(scrap(), 0..60),
        piece in 1_usize..20,
    ) {
        let bytes = scraps.concat();
        let pieces: Vec<&[u8]> = bytes.chunks(piece).collect();
        prop_assert_eq!(parse(&pieces), parse(&[&bytes]));
    }
}

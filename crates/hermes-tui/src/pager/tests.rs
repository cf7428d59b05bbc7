use std::fmt::Write as _;

use proptest::prelude::*;

use super::*;
use crate::panel::tests::{any_key, fits, pictures, theme};

fn keys() -> Keymap {
    Keymap::default()
}

fn pager(rows: Vec<StyledRow>, width: u16) -> Pager {
    let mut pager = Pager::new("Page");
    pager.set_rows(rows, width);
    pager
}

fn numbered(count: usize) -> Vec<StyledRow> {
    (0..count)
        .map(|n| StyledRow::new(format!("line {n}")))
        .collect()
}

fn press(pager: &mut Pager, all: &[&str]) -> PagerOutcome {
    let mut last = PagerOutcome::Nothing;
    for key in all {
        last = pager.key(key.parse().unwrap(), &keys());
    }
    last
}

/// What is read, without the bars.
fn seen(pager: &Pager, width: u16, height: u16) -> Vec<String> {
    let frame = pager.view(width, height, &theme("ascii"));
    let lines = frame
        .lines
        .iter()
        .map(|line| line.to_string().trim_end().to_owned());
    let lines: Vec<String> = lines.collect();
    lines[1..lines.len() - 1].to_vec()
}

#[test]
fn pictures_of_a_page() {
    let mut rows = numbered(30);
    rows[2] = StyledRow::unbroken(format!(
        "$ cargo test {}",
        "--features everything ".repeat(6)
    ));
    rows[3] = StyledRow::new("家族 of 👩‍👩‍👧‍👦");
    let mut text = String::new();
    for name in crate::panel::tests::THEMES {
        for width in [40, 80, 120] {
            let mut pager = pager(rows.clone(), width);
            pager.view(width, 12, &theme(name));
            press(
                &mut pager,
                &["/", "l", "i", "n", "e", "space", "1", "enter"],
            );
            let _ = writeln!(text, "== {name}, {width} columns");
            text.push_str(&crate::panel::tests::drawn(&pager.view(
                width,
                12,
                &theme(name),
            )));
        }
    }
    insta::assert_snapshot!("search", text);
    pictures!("page", pager(numbered(3), 40), 8);
}

#[test]
fn keys_move_the_page() {
    let mut pager = pager(numbered(100), 20);
    assert_eq!(seen(&pager, 20, 12)[0], "line 0");
    press(&mut pager, &["down", "j"]);
    assert_eq!(seen(&pager, 20, 12)[0], "line 2");
    press(&mut pager, &["space"]);
    assert_eq!(seen(&pager, 20, 12)[0], "line 11");
    press(&mut pager, &["end"]);
    assert_eq!(seen(&pager, 20, 12)[9], "line 99");
    press(&mut pager, &["down"]);
    assert_eq!(seen(&pager, 20, 12)[9], "line 99", "no further");
    press(&mut pager, &["home"]);
    assert_eq!(seen(&pager, 20, 12)[0], "line 0");
    assert_eq!(press(&mut pager, &["q"]), PagerOutcome::Close);
    assert_eq!(press(&mut pager, &["ctrl+t"]), PagerOutcome::Close);
}

#[test]
fn a_live_page_follows_until_one_scrolls_up() {
    let mut pager = Pager::following("Transcript");
    pager.set_rows(numbered(50), 20);
    assert_eq!(seen(&pager, 20, 12)[9], "line 49");
    pager.set_rows(numbered(60), 20);
    assert_eq!(seen(&pager, 20, 12)[9], "line 59");
    press(&mut pager, &["up"]);
    pager.set_rows(numbered(70), 20);
    assert_eq!(
        seen(&pager, 20, 12)[9],
        "line 58",
        "it stays where one reads"
    );
    press(&mut pager, &["G"]);
    pager.set_rows(numbered(80), 20);
    assert_eq!(seen(&pager, 20, 12)[9], "line 79");
}

#[test]
fn a_long_line_is_broken_or_moved() {
    let rows = vec![
        StyledRow::unbroken("0123456789".repeat(3)),
        StyledRow::new("end"),
    ];
    let mut pager = pager(rows, 20);
    assert_eq!(
        seen(&pager, 20, 12)[..3],
        ["01234567890123456789", "0123456789", "end"]
    );
    press(&mut pager, &["w"]);
    assert_eq!(seen(&pager, 20, 12)[..2], ["01234567890123456789", "end"]);
    press(&mut pager, &["right"]);
    assert_eq!(seen(&pager, 20, 12)[..2], ["89012345678901234567", "end"]);
    press(&mut pager, &["w"]);
    assert_eq!(
        seen(&pager, 20, 12)[..2],
        ["01234567890123456789", "0123456789"]
    );
}

#[test]
fn a_search_goes_round_and_says_how_many() {
    let mut rows = numbered(100);
    rows[40] = StyledRow::new("the Needle");
    rows[80] = StyledRow::new("needle again");
    let mut pager = pager(rows, 30);
    pager.view(30, 12, &theme("ascii"));
    press(&mut pager, &["/", "n", "e", "e", "d", "enter"]);
    assert!(seen(&pager, 30, 12).contains(&"the Needle".to_owned()));
    let bottom = |pager: &Pager| {
        let frame = pager.view(60, 12, &theme("ascii"));
        frame.lines.last().unwrap().to_string()
    };
    assert!(
        bottom(&pager).contains("/need 1 of 2"),
        "{}",
        bottom(&pager)
    );
    press(&mut pager, &["n"]);
    assert!(seen(&pager, 30, 12).contains(&"needle again".to_owned()));
    press(&mut pager, &["n"]);
    assert!(
        seen(&pager, 30, 12).contains(&"the Needle".to_owned()),
        "round"
    );
    press(&mut pager, &["N"]);
    assert!(seen(&pager, 30, 12).contains(&"needle again".to_owned()));
    press(&mut pager, &["/", "N", "e", "e", "enter"]);
    assert!(
        bottom(&pager).contains("1 of 1"),
        "capitals count: {}",
        bottom(&pager)
    );
    press(&mut pager, &["/", "x", "y", "z", "enter"]);
    assert!(bottom(&pager).contains("not found"));
    assert_eq!(press(&mut pager, &["n"]), PagerOutcome::Nothing);
    assert_eq!(
        press(&mut pager, &["esc"]),
        PagerOutcome::Redraw,
        "ends the search"
    );
    assert_eq!(press(&mut pager, &["esc"]), PagerOutcome::Close);
}

#[test]
fn what_is_found_is_marked_across_spans() {
    let line = Line::from(vec![Span::raw("İx ne"), Span::raw("ed"), Span::raw("le")]);
    let rows = vec![StyledRow::new(line)];
    let found = hits(&rows, "need");
    assert_eq!(found, [(0, 4..8)]);
    let ranges: Vec<Range<usize>> = found.into_iter().map(|(_, range)| range).collect();
    let marked = mark(
        &rows[0].line,
        &ranges,
        theme("dark").style(StyleRole::Match),
    );
    let words: Vec<&str> = marked
        .spans
        .iter()
        .map(|span| span.content.as_ref())
        .collect();
    assert_eq!(words, ["İx ", "ne", "ed", "le"]);
}

#[test]
fn another_width_keeps_the_place() {
    let rows: Vec<StyledRow> = (0..50)
        .map(|n| StyledRow::unbroken(format!("{n:02}{}", "x".repeat(38))))
        .collect();
    let mut pager = pager(rows.clone(), 20);
    pager.view(20, 12, &theme("ascii"));
    press(&mut pager, &["pagedown", "pagedown"]);
    let first = seen(&pager, 20, 12)[0].clone();
    pager.set_rows(rows, 40);
    assert_eq!(seen(&pager, 40, 12)[0][..2], first[..2]);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn a_page_fits_whatever_is_in_it(
        texts in proptest::collection::vec((".{0,80}", any::<bool>()), 0..20),
        keys_pressed in proptest::collection::vec(any_key(), 0..16),
        (w, h) in (1..100_u16, 1..30_u16),
    ) {
        let rows: Vec<StyledRow> = texts.iter().map(|(text, unbroken)| {
            let text = width::harmless(text).into_owned();
            if *unbroken { StyledRow::unbroken(text) } else { StyledRow::new(text) }
        }).collect();
        let mut pager = pager(rows, w);
        for key in keys_pressed {
            pager.key(key, &keys());
            fits(&pager.view(w, h, &theme("dark")), w, h)?;
        }
        fits(&pager.view(w, h, &theme("ascii")), w, h)?;
    }
}

#[test]
fn long_lines_are_broken_between_words() {
    let long = "one two three four-five  unbreakablywide six";
    let page = pager(vec![StyledRow::unbroken(Line::from(long.to_owned()))], 10);
    let seen: Vec<String> = seen(&page, 10, 20)
        .into_iter()
        .map(|line| line.trim().to_owned())
        .collect();
    assert_eq!(
        seen[..5],
        ["one two", "three", "four-five", "unbreakabl", "ywide six"]
    );
}

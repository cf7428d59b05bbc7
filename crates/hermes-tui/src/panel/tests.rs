use std::fmt::Write as _;
use std::time::{Duration, Instant};

use proptest::prelude::*;
use ratatui_core::style::{Color, Modifier, Style};

use super::*;
use crate::port::PanelGroup;
use crate::row::ScreenFrame;
use crate::theme::Theme;
use crate::width;

/// A frame as text: the lines, where the cursor stands, and which words look how.
pub(crate) fn drawn(frame: &ScreenFrame) -> String {
    let mut text = String::new();
    for line in &frame.lines {
        let line = line.to_string();
        let _ = writeln!(text, "|{}", line.trim_end());
    }
    if let Some((column, row)) = frame.cursor {
        let _ = writeln!(text, "cursor {column},{row}");
    }
    let mut looks: Vec<(String, Vec<String>)> = Vec::new();
    for span in frame.lines.iter().flat_map(|line| {
        let own = line.style;
        line.spans
            .iter()
            .map(move |span| (own.patch(span.style), span.content.trim()))
    }) {
        let (style, content) = span;
        if content.is_empty() || style == Style::default() {
            continue;
        }
        let mut words: String = content.chars().take(24).collect();
        if words.chars().all(|c| c == '─' || c == '-') {
            "rule".clone_into(&mut words);
        }
        let look = look(style);
        match looks.iter_mut().find(|(known, _)| *known == look) {
            Some((_, all)) if all.contains(&words) || all.len() > 5 => {}
            Some((_, all)) => all.push(words),
            None => looks.push((look, vec![words])),
        }
    }
    for (look, words) in looks {
        let _ = writeln!(text, "{look}: {}", words.join(" / "));
    }
    text
}

fn look(style: Style) -> String {
    let colour = |colour: Option<Color>| colour.map_or("-".to_owned(), |colour| colour.to_string());
    let mut text = format!("{} on {}", colour(style.fg), colour(style.bg));
    if style.add_modifier != Modifier::empty() {
        let _ = write!(text, " {:?}", style.add_modifier);
    }
    text
}

pub(crate) const THEMES: [&str; 3] = ["light", "dark", "ascii"];

pub(crate) fn theme(name: &str) -> Theme {
    Theme::named(name).unwrap()
}

/// One snapshot per theme with all widths in it.
macro_rules! pictures {
    ($name:expr, $view:expr, $height:expr) => {
        for name in $crate::panel::tests::THEMES {
            let theme = $crate::panel::tests::theme(name);
            let mut text = String::new();
            for width in [40, 80, 120] {
                let _ = writeln!(text, "== {width} columns");
                text.push_str(&$crate::panel::tests::drawn(
                    &$view.view(width, $height, &theme),
                ));
            }
            insta::assert_snapshot!(format!("{}_{name}", $name), text);
        }
    };
}
pub(crate) use pictures;

fn key(text: &str) -> KeyPress {
    text.parse().unwrap()
}

fn row(id: &str, mark: RowMark, cells: &[&str], detail: &str) -> PanelRow {
    PanelRow {
        id: id.to_owned(),
        mark,
        cells: cells.iter().map(ToString::to_string).collect(),
        detail: detail.to_owned(),
        ..PanelRow::default()
    }
}

fn action(key: &str, label: &str, action: &str) -> PanelKey {
    PanelKey {
        key: key.to_owned(),
        label: label.to_owned(),
        action: action.to_owned(),
        row: true,
        ..PanelKey::default()
    }
}

fn models() -> Panel {
    Panel {
        id: "model".to_owned(),
        title: "Model".to_owned(),
        note: "2 here, 2 with your keys".to_owned(),
        groups: vec![
            PanelGroup {
                title: "on this machine   ollama 127.0.0.1:11434".to_owned(),
                rows: vec![
                    row(
                        "qwen3:8b",
                        RowMark::Current,
                        &["qwen3:8b", "5.2 GB", "40k ctx", "tools ok"],
                        "in use in this conversation",
                    ),
                    row(
                        "qwen3:0.6b",
                        RowMark::None,
                        &["qwen3:0.6b", "0.5 GB", "40k ctx"],
                        "",
                    ),
                ],
            },
            PanelGroup {
                title: "with your keys".to_owned(),
                rows: vec![
                    row(
                        "or/qwen3-coder",
                        RowMark::None,
                        &[
                            "qwen/qwen3-coder",
                            "openrouter",
                            "262k ctx",
                            "$0.22/$0.95 per M",
                        ],
                        "",
                    ),
                    row(
                        "家",
                        RowMark::None,
                        &["家族/模型-大", "custom", "8k ctx"],
                        "",
                    ),
                ],
            },
            PanelGroup {
                title: "needs a key".to_owned(),
                rows: vec![row(
                    "key:dashscope",
                    RowMark::Off,
                    &["dashscope", "DASHSCOPE_API_KEY"],
                    "",
                )],
            },
        ],
        keys: vec![
            PanelKey {
                closes: true,
                ..action("enter", "use here", "use")
            },
            action("ctrl+s", "set default", "default"),
            action("ctrl+t", "test call", "test"),
            PanelKey {
                text: Some("key for {}".to_owned()),
                secret: true,
                ..action("ctrl+k", "add key", "key")
            },
        ],
        filters: true,
        ..Panel::default()
    }
}

fn servers() -> Panel {
    let columns = [
        "NAME",
        "TRANSPORT",
        "STATE",
        "TOOLS",
        "LAST OK",
        "CALLS",
        "DETAIL",
    ];
    Panel {
        id: "mcp".to_owned(),
        title: "MCP".to_owned(),
        note: "2 ok · 1 down · 1 off".to_owned(),
        columns: columns.map(str::to_owned).to_vec(),
        groups: vec![PanelGroup {
            title: String::new(),
            rows: vec![
                row(
                    "github",
                    RowMark::Good,
                    &[
                        "github",
                        "stdio",
                        "connected",
                        "26",
                        "now",
                        "41",
                        "pid 8123",
                    ],
                    "",
                ),
                row(
                    "canny",
                    RowMark::Bad,
                    &[
                        "canny",
                        "http",
                        "down",
                        "4*",
                        "9h ago",
                        "3",
                        "next try in 38s, connection refused",
                    ],
                    "https://mcp.canny.example/mcp",
                ),
                row(
                    "linear",
                    RowMark::Waiting,
                    &["linear", "http", "needs login", "-", "-", "0", ""],
                    "",
                ),
                row(
                    "old",
                    RowMark::Off,
                    &["old", "sse", "off", "0", "-", "0", ""],
                    "",
                ),
            ],
        }],
        keys: vec![
            action("r", "reconnect", "reconnect"),
            PanelKey {
                confirm: Some("Switch {} off?".to_owned()),
                ..action("o", "on/off", "toggle")
            },
            PanelKey {
                text: Some("name".to_owned()),
                ..action("n", "rename", "rename")
            },
        ],
        footer: vec![
            "* the model still sees these tools; calls say that the server is down".to_owned(),
        ],
        refresh: Some(Duration::from_secs(1)),
        busy: Some("testing github…".to_owned()),
        ..Panel::default()
    }
}

struct PanelHarness {
    view: PanelView,
    keys: Keymap,
    now: Instant,
}

impl PanelHarness {
    fn new(panel: Panel) -> Self {
        let now = Instant::now();
        Self {
            view: PanelView::new(panel, now),
            keys: Keymap::default(),
            now,
        }
    }

    fn press(&mut self, keys: &[&str]) -> PanelOutcome {
        let mut last = PanelOutcome::Nothing;
        for text in keys {
            last = self.view.key(key(text), &self.keys, self.now);
        }
        last
    }

    fn type_in(&mut self, text: &str) -> PanelOutcome {
        let mut last = PanelOutcome::Nothing;
        for c in text.chars() {
            last = self.view.key(KeyPress::char(c), &self.keys, self.now);
        }
        last
    }

    fn on(&self) -> Option<&str> {
        self.view.row().map(|row| row.id.as_str())
    }
}

fn asked(panel: &str, action: &str, row: Option<&str>, text: Option<&str>) -> PanelRequest {
    PanelRequest {
        panel: panel.to_owned(),
        action: action.to_owned(),
        row: row.map(str::to_owned),
        text: text.map(str::to_owned),
    }
}

#[test]
fn pictures_of_a_picker() {
    pictures!("model", PanelHarness::new(models()).view, 18);
}

#[test]
fn pictures_of_a_filter() {
    let mut driver = PanelHarness::new(models());
    driver.type_in("qw");
    pictures!("filter", driver.view, 14);
}

#[test]
fn pictures_of_a_table() {
    let mut driver = PanelHarness::new(servers());
    driver.press(&["down"]);
    pictures!("mcp", driver.view, 16);
}

#[test]
fn pictures_of_questions() {
    let mut driver = PanelHarness::new(servers());
    driver.press(&["o"]);
    pictures!("confirm", driver.view, 12);
    let mut driver = PanelHarness::new(models());
    driver.press(&["up", "ctrl+k"]);
    driver.type_in("sk-or-v1");
    pictures!("secret", driver.view, 12);
}

#[test]
fn a_small_screen_shows_the_row_under_the_cursor() {
    let mut driver = PanelHarness::new(servers());
    driver.press(&["down"]);
    let mut text = String::new();
    for (width, height) in [(40, 5), (20, 3), (12, 2), (5, 1)] {
        let _ = writeln!(text, "== {width}x{height}");
        let theme = theme("ascii");
        let frame = driver.view.view(width, height, &theme);
        for line in &frame.lines {
            let _ = writeln!(text, "|{}", line.to_string().trim_end());
        }
    }
    insta::assert_snapshot!("small", text);
}

#[test]
fn a_filter_finds_and_escape_clears_it_first() {
    let mut driver = PanelHarness::new(models());
    assert_eq!(driver.on(), Some("qwen3:8b"), "the current one at first");
    assert_eq!(driver.type_in("coder"), PanelOutcome::Redraw);
    assert_eq!(driver.on(), Some("or/qwen3-coder"));
    assert_eq!(driver.press(&["esc"]), PanelOutcome::Redraw);
    assert_eq!(
        driver.on(),
        Some("or/qwen3-coder"),
        "the cursor stays on its row"
    );
    assert_eq!(
        driver.press(&["enter"]),
        PanelOutcome::Close(asked("model", "use", Some("or/qwen3-coder"), None))
    );
    assert_eq!(
        driver.press(&["esc"]),
        PanelOutcome::Close(asked("model", CLOSED, Some("or/qwen3-coder"), None))
    );
}

/// Whoever types what a list does not have gets to where it can be used.
#[test]
fn a_text_that_matches_nothing_goes_to_the_row_that_takes_it() {
    let takes = |id: &str, also: &str| PanelRow {
        id: id.to_owned(),
        cells: vec![format!("another {id}")],
        also: also.to_owned(),
        enter: Some(Box::new(PanelKey {
            key: "enter".to_owned(),
            action: id.to_owned(),
            row: true,
            text: Some(id.to_owned()),
            closes: true,
            ..PanelKey::default()
        })),
        ..PanelRow::default()
    };
    for (typed, row) in [
        ("127.0.0.1:18081/v1", "address"),
        ("http://host/v1", "address"),
        ("my-box:8000", "address"),
        ("zzz/some-model:9b", "name"),
        ("zzz-unknown", "name"),
    ] {
        let mut panel = models();
        panel.groups.push(PanelGroup {
            title: "another".to_owned(),
            rows: vec![takes("address", "url http://"), takes("name", "")],
        });
        let mut driver = PanelHarness::new(panel);
        driver.type_in(typed);
        assert_eq!(driver.on(), Some(row), "{typed}");
        driver.press(&["enter"]);
        assert_eq!(
            driver.press(&["enter"]),
            PanelOutcome::Close(asked("model", row, Some(row), Some(typed))),
        );
    }
    // A word for the row is not a text for it.
    let mut panel = models();
    panel.groups[0].rows.push(takes("name", ""));
    let mut driver = PanelHarness::new(panel);
    driver.type_in("another");
    assert_eq!(
        driver.press(&["enter", "m", "enter"]),
        PanelOutcome::Close(asked("model", "name", Some("name"), Some("m"))),
    );
}

#[test]
fn without_a_row_keys_of_rows_do_nothing() {
    let mut driver = PanelHarness::new(models());
    driver.type_in("zzz");
    assert_eq!(driver.press(&["enter"]), PanelOutcome::Nothing);
    assert_eq!(driver.on(), None);
}

#[test]
fn a_group_without_rows_is_said_until_something_is_typed() {
    let mut panel = models();
    panel.groups.insert(
        0,
        PanelGroup {
            title: "nothing answers".to_owned(),
            rows: Vec::new(),
        },
    );
    let mut driver = PanelHarness::new(panel);
    let shows = |driver: &PanelHarness| {
        let frame = driver.view.view(60, 20, &theme("ascii"));
        let lines = frame.lines.iter();
        lines
            .filter(|line| line.to_string().contains("nothing answers"))
            .count()
    };
    assert_eq!(shows(&driver), 1);
    driver.type_in("qw");
    assert_eq!(shows(&driver), 0);
}

#[test]
fn only_y_confirms() {
    let mut driver = PanelHarness::new(servers());
    assert_eq!(driver.press(&["o"]), PanelOutcome::Redraw);
    assert_eq!(driver.press(&["enter"]), PanelOutcome::Redraw);
    driver.press(&["o"]);
    assert_eq!(
        driver.press(&["y"]),
        PanelOutcome::Ask(asked("mcp", "toggle", Some("github"), None))
    );
}

#[test]
fn quick_keys_are_keys_and_never_answers() {
    let mut driver = PanelHarness::new(servers());
    let paste = |driver: &mut PanelHarness, text| driver.view.paste(text, &driver.keys, driver.now);
    assert_eq!(
        paste(&mut driver, "r"),
        PanelOutcome::Ask(asked("mcp", "reconnect", Some("github"), None))
    );
    assert_eq!(paste(&mut driver, "o"), PanelOutcome::Redraw);
    assert_eq!(paste(&mut driver, "y"), PanelOutcome::Nothing);
    assert_eq!(
        driver.press(&["y"]),
        PanelOutcome::Ask(asked("mcp", "toggle", Some("github"), None))
    );
    assert_eq!(paste(&mut driver, "oy"), PanelOutcome::Nothing);
}

#[test]
fn an_answer_is_for_the_row_it_was_asked_about() {
    let mut driver = PanelHarness::new(servers());
    driver.press(&["o"]);
    let mut panel = servers();
    panel.groups[0].rows.remove(0);
    driver.view.replace(panel, driver.now);
    assert_eq!(driver.on(), Some("canny"), "the row that took its place");
    assert_eq!(
        driver.press(&["y"]),
        PanelOutcome::Ask(asked("mcp", "toggle", Some("github"), None))
    );
}

#[test]
fn a_text_is_asked_for() {
    let mut panel = servers();
    panel.groups[0].rows[0].text = "git".to_owned();
    let mut driver = PanelHarness::new(panel);
    driver.press(&["n"]);
    driver.type_in("x");
    driver.view.paste("y\nz", &driver.keys, driver.now);
    assert_eq!(
        driver.press(&["enter"]),
        PanelOutcome::Ask(asked("mcp", "rename", Some("github"), Some("gitxy")))
    );
    driver.press(&["n"]);
    assert_eq!(driver.press(&["esc"]), PanelOutcome::Redraw, "given up");
    assert_eq!(
        driver.press(&["r"]),
        PanelOutcome::Ask(asked("mcp", "reconnect", Some("github"), None))
    );
}

#[test]
fn a_secret_is_never_drawn() {
    let mut driver = PanelHarness::new(models());
    driver.press(&["up", "ctrl+k"]);
    driver.type_in("sk-or-v1");
    let frame = driver.view.view(80, 20, &theme("dark"));
    let text: Vec<String> = frame.lines.iter().map(ToString::to_string).collect();
    let text = text.join("\n");
    assert!(text.contains("key for dashscope: ********"), "{text}");
    assert!(!text.contains("sk-or"));
    assert_eq!(
        driver.press(&["enter"]),
        PanelOutcome::Ask(asked(
            "model",
            "key",
            Some("key:dashscope"),
            Some("sk-or-v1")
        ))
    );
}

#[test]
fn new_rows_keep_the_cursor() {
    let mut driver = PanelHarness::new(servers());
    driver.press(&["down", "down"]);
    assert_eq!(driver.on(), Some("linear"));
    let mut panel = servers();
    panel.groups[0].rows.swap(0, 2);
    driver.view.replace(panel, driver.now);
    assert_eq!(driver.on(), Some("linear"));
    driver.view.replace(
        Panel {
            id: "mcp".to_owned(),
            ..Panel::default()
        },
        driver.now,
    );
    assert_eq!(driver.on(), None);
    driver.view.replace(servers(), driver.now);
    assert_eq!(driver.on(), Some("github"));
}

#[test]
fn rows_are_asked_for_in_time() {
    let mut driver = PanelHarness::new(servers());
    let second = Duration::from_secs(1);
    assert_eq!(driver.view.next_due(), Some(driver.now + second));
    assert_eq!(driver.view.due(driver.now), None);
    let later = driver.now + second;
    assert_eq!(
        driver.view.due(later),
        Some(asked("mcp", REFRESH, Some("github"), None))
    );
    assert_eq!(driver.view.due(later), None, "once");
    assert_eq!(driver.view.next_due(), Some(later + second));
    let quiet = PanelHarness::new(models());
    assert_eq!(quiet.view.next_due(), None);
}

#[test]
fn a_filter_is_told_when_it_rests() {
    let mut driver = PanelHarness::new(Panel {
        searches: true,
        ..models()
    });
    driver.type_in("q");
    driver.now += Duration::from_millis(150);
    driver.type_in("w");
    assert_eq!(
        driver.view.due(driver.now + Duration::from_millis(100)),
        None
    );
    assert_eq!(
        driver.view.due(driver.now + FILTER_DELAY),
        Some(asked("model", FILTER, Some("qwen3:8b"), Some("qw")))
    );
    assert_eq!(driver.view.next_due(), None);
}

#[test]
fn moves_are_told_where_they_show_something() {
    let mut driver = PanelHarness::new(Panel {
        previews: true,
        ..models()
    });
    assert_eq!(
        driver.press(&["down"]),
        PanelOutcome::Ask(asked("model", MOVED, Some("qwen3:0.6b"), None))
    );
}

#[test]
fn a_long_list_scrolls_with_the_cursor() {
    let rows = (0..200).map(|n| row(&n.to_string(), RowMark::None, &[&format!("row {n}")], ""));
    let panel = Panel {
        groups: vec![PanelGroup {
            title: "all".to_owned(),
            rows: rows.collect(),
        }],
        ..Panel::default()
    };
    let mut driver = PanelHarness::new(panel);
    let shows = |driver: &PanelHarness| {
        let frame = driver.view.view(30, 10, &theme("ascii"));
        let text: Vec<String> = frame.lines.iter().map(ToString::to_string).collect();
        text.join("\n")
    };
    assert!(shows(&driver).contains("> row 0"));
    driver.press(&["end"]);
    assert!(shows(&driver).contains("> row 199"));
    driver.press(&["pageup"]);
    assert!(shows(&driver).contains(&format!("> row {}", driver.on().unwrap())));
    driver.press(&["down", "up", "home"]);
    assert!(shows(&driver).contains(" all"), "the heading comes back");
    driver.press(&["up"]);
    assert_eq!(driver.on(), Some("199"), "round the corner");
}

fn any_row() -> impl Strategy<Value = PanelRow> {
    (
        "[a-c]{1,3}",
        proptest::collection::vec(".{0,30}", 0..5),
        ".{0,60}",
        0..6_usize,
    )
        .prop_map(|(id, cells, detail, mark)| PanelRow {
            id,
            cells,
            detail,
            mark: [
                RowMark::None,
                RowMark::Current,
                RowMark::Good,
                RowMark::Waiting,
                RowMark::Bad,
                RowMark::Off,
            ][mark],
            ..PanelRow::default()
        })
}

fn any_panel() -> impl Strategy<Value = Panel> {
    let group = (".{0,20}", proptest::collection::vec(any_row(), 0..8))
        .prop_map(|(title, rows)| PanelGroup { title, rows });
    (
        ".{0,30}",
        ".{0,30}",
        proptest::collection::vec(".{0,10}", 0..4),
        proptest::collection::vec(group, 0..4),
        any::<bool>(),
        proptest::collection::vec(".{0,50}", 0..3),
        proptest::option::of(".{0,20}"),
    )
        .prop_map(
            |(title, note, columns, groups, filters, footer, busy)| Panel {
                id: "p".to_owned(),
                title,
                note,
                columns,
                groups,
                filters,
                footer,
                busy,
                keys: vec![
                    action("enter", "go", "go"),
                    PanelKey {
                        confirm: Some("really {}?".to_owned()),
                        ..action("ctrl+d", "del", "del")
                    },
                    PanelKey {
                        text: Some("name of {}".to_owned()),
                        ..action("ctrl+r", "name", "name")
                    },
                ],
                ..Panel::default()
            },
        )
}

/// Lines and cursor stay within the screen.
pub(crate) fn fits(frame: &ScreenFrame, w: u16, h: u16) -> Result<(), TestCaseError> {
    prop_assert!(frame.lines.len() <= usize::from(h));
    for line in &frame.lines {
        prop_assert!(
            width::line_width(line) <= usize::from(w),
            "{line:?} is wider than {w}"
        );
    }
    if let Some((column, row)) = frame.cursor {
        prop_assert!(column < w && row < h, "cursor {column},{row} in {w}x{h}");
        prop_assert!(usize::from(row) < frame.lines.len());
    }
    Ok(())
}

pub(crate) fn any_key() -> impl Strategy<Value = KeyPress> {
    prop_oneof![
        any::<char>().prop_map(KeyPress::char),
        proptest::sample::select(vec![
            "up",
            "down",
            "pageup",
            "pagedown",
            "home",
            "end",
            "left",
            "right",
            "backspace",
            "ctrl+d",
            "ctrl+r",
            "y",
            "ctrl+w",
            "ctrl+u",
            "esc",
            "/",
            "n",
            "N",
            "w",
            "G",
            "enter",
            "q",
        ])
        .prop_map(|text| text.parse().unwrap()),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn a_view_fits_whatever_is_in_it(
        panel in any_panel(),
        other in any_panel(),
        keys in proptest::collection::vec(any_key(), 0..12),
        (w, h) in (1..130_u16, 1..40_u16),
    ) {
        let now = Instant::now();
        let keymap = Keymap::default();
        let mut view = PanelView::new(panel, now);
        for name in THEMES {
            fits(&view.view(w, h, &theme(name)), w, h)?;
        }
        for key in keys {
            view.key(key, &keymap, now);
            fits(&view.view(w, h, &theme("dark")), w, h)?;
        }
        view.replace(other, now);
        fits(&view.view(w, h, &theme("ascii")), w, h)?;
    }
}

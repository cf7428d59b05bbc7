//! Panels, and pages over them.

use hermes_core::front_end::{DisplaySetting, Effect, PagedText, TextKind};

use super::AppHarness;
use crate::port::{CLOSED, HostUpdate, Panel, PanelGroup, PanelRequest, PanelRow, UiAsk};

fn panel(rows: &[&str], renews: bool) -> HostUpdate {
    let rows = rows.iter().map(|name| PanelRow {
        id: (*name).to_owned(),
        cells: vec![(*name).to_owned()],
        ..PanelRow::default()
    });
    HostUpdate::Panel(Box::new(Panel {
        id: "mcp".to_owned(),
        title: "Servers".to_owned(),
        groups: vec![PanelGroup {
            title: String::new(),
            rows: rows.collect(),
        }],
        renews,
        ..Panel::default()
    }))
}

fn page() -> HostUpdate {
    HostUpdate::Effect(Effect::Page(PagedText {
        title: "Log".to_owned(),
        kind: TextKind::Plain,
        text: "a line of the log".to_owned(),
    }))
}

#[test]
fn rows_that_come_too_late_open_nothing() {
    let mut bench = AppHarness::new();
    bench.update(panel(&["github"], true));
    assert!(!bench.app.has_overlay());
    bench.update(panel(&["github"], false));
    assert!(bench.frame().contains("github"));
    bench.update(panel(&["linear"], true));
    assert!(bench.frame().contains("linear"));
    bench.press("esc");
    bench.update(panel(&["github"], true));
    assert!(!bench.app.has_overlay(), "it was closed meanwhile");
}

#[test]
fn a_page_over_a_panel_uncovers_it() {
    let mut bench = AppHarness::new();
    bench.update(panel(&["github"], false));
    bench.update(page());
    assert!(bench.frame().contains("a line of the log"));
    bench.update(panel(&["linear"], true));
    assert!(bench.frame().contains("a line of the log"), "it is read on");
    bench.press("q");
    assert!(bench.frame().contains("linear"), "with what came meanwhile");
    bench.press("esc");
    assert!(!bench.app.has_overlay());
    let closed = PanelRequest {
        panel: "mcp".to_owned(),
        action: CLOSED.to_owned(),
        row: Some("linear".to_owned()),
        text: None,
    };
    assert_eq!(bench.asks, [UiAsk::Panel(closed)]);
}

#[test]
fn the_theme_goes_back_to_what_fits_the_terminal() {
    let mut bench = AppHarness::new();
    bench.app.on_background((255, 255, 255), true);
    assert_eq!(bench.app.theme.name(), "light");
    for (name, shown) in [("mono", "mono"), ("auto", "light")] {
        bench.update(HostUpdate::Effect(Effect::Show(DisplaySetting::Theme(
            name.to_owned(),
        ))));
        assert_eq!(bench.app.theme.name(), shown);
    }
}

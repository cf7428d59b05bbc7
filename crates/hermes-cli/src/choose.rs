//! Choosing at a terminal: a list with arrows and a filter, where the terminal can show one.

use hermes_tui::picker::{PickerEnd, show_panel};
use hermes_tui::port::{CLOSED, Panel, PanelGroup, PanelKey, PanelRequest, PanelRow, RowMark};

use crate::commands::Context;
use crate::exit::{Exit, Failure, Outcome};
use crate::wiring;

/// Whether a list can be shown. Where not, questions are asked line by line.
pub(crate) fn can_show(cx: &Context) -> bool {
    cx.out.stdin_tty && cx.out.stdout_tty && !cx.out.plain && !cx.no_input
}

/// Shows a list until `act` says that it is over: see [`show_panel`].
pub(crate) fn show(
    cx: &Context,
    panel: Panel,
    act: impl FnMut(PanelRequest) -> Option<Panel>,
) -> Outcome {
    let shown = wiring::runtime()?.block_on(show_panel(panel, cx.out.color, act));
    match shown {
        Ok(PickerEnd::Done) => Ok(()),
        Ok(PickerEnd::Interrupted) => Err(Failure::silent(Exit::Interrupted)),
        Err(error) => Err(Failure::failed(error.to_string())),
    }
}

/// Shows a list until something is done in it. `None`: the person went back.
pub(crate) fn pick(cx: &Context, panel: Panel) -> Result<Option<PanelRequest>, Failure> {
    let mut chosen = None;
    show(cx, panel, |ask| {
        chosen = (ask.action != CLOSED).then_some(ask);
        None
    })?;
    Ok(chosen)
}

/// One of a few words, each with what it means. `None`: the person went back.
pub(crate) fn word(
    cx: &Context,
    title: &str,
    words: &[(&str, &str)],
    now: &str,
) -> Result<Option<String>, Failure> {
    let rows = words.iter().map(|(word, about)| PanelRow {
        id: (*word).to_owned(),
        mark: if *word == now {
            RowMark::Current
        } else {
            RowMark::None
        },
        cells: vec![(*word).to_owned(), (*about).to_owned()],
        ..PanelRow::default()
    });
    let panel = Panel {
        id: "words".to_owned(),
        title: title.to_owned(),
        groups: vec![PanelGroup {
            title: String::new(),
            rows: rows.collect(),
        }],
        keys: vec![enter("choose")],
        ..Panel::default()
    };
    Ok(pick(cx, panel)?.and_then(|ask| ask.row))
}

/// Enter on a row.
pub(crate) fn enter(label: &str) -> PanelKey {
    PanelKey {
        key: "enter".to_owned(),
        label: label.to_owned(),
        action: "choose".to_owned(),
        row: true,
        ..PanelKey::default()
    }
}

/// Things that are on or off. Space and Enter switch the row; `switch` does it and gives the new rows.
pub(crate) fn checklist(
    cx: &Context,
    title: &str,
    rows: Vec<PanelRow>,
    mut switch: impl FnMut(&str) -> Result<Vec<PanelRow>, Failure>,
) -> Outcome {
    let panel = |rows| Panel {
        id: "checklist".to_owned(),
        title: title.to_owned(),
        groups: vec![PanelGroup {
            title: String::new(),
            rows,
        }],
        keys: vec![
            PanelKey {
                key: "space".to_owned(),
                ..enter("on/off")
            },
            PanelKey {
                label: String::new(),
                ..enter("")
            },
            PanelKey {
                key: "d".to_owned(),
                label: "done".to_owned(),
                action: CLOSED.to_owned(),
                closes: true,
                ..PanelKey::default()
            },
        ],
        footer: vec!["Esc when done".to_owned()],
        ..Panel::default()
    };
    let mut failed = None;
    show(cx, panel(rows), |ask| {
        if ask.action == CLOSED {
            return None;
        }
        match switch(ask.row.as_deref().unwrap_or_default()) {
            Ok(rows) => Some(panel(rows)),
            Err(failure) => {
                failed = Some(failure);
                None
            }
        }
    })?;
    failed.map_or(Ok(()), Err)
}

/// A row of a checklist.
pub(crate) fn switched(name: &str, about: &str, on: bool) -> PanelRow {
    PanelRow {
        id: name.to_owned(),
        mark: if on { RowMark::Good } else { RowMark::Off },
        cells: vec![
            if on { "[x]" } else { "[ ]" }.to_owned(),
            name.to_owned(),
            about.to_owned(),
        ],
        ..PanelRow::default()
    }
}

//! What covers the conversation for a while: panels, pages, the palette.

use std::fmt::Write as _;
use std::time::{Duration, Instant};

use hermes_core::front_end::{TextKind, TextPage};

use super::state::App;
use crate::cells::body;
use crate::keys::{Action, Area, Key};
use crate::pager::{Pager, PagerOutcome};
use crate::palette::{Palette, PaletteOutcome};
use crate::panel::{PanelOutcome, PanelView};
use crate::port::{Ask, CLOSED, PanelAsk};
use crate::row::Frame;

/// A transcript that grows is made anew at most so often while it is read.
const REMAKE: Duration = Duration::from_millis(300);

pub(super) enum Overlay {
    Panel(Box<PanelView>),
    Palette(Box<Palette>),
    /// The transcript of Ctrl+T; it grows.
    Transcript {
        pager: Box<Pager>,
        /// When its rows were made, and of what.
        made: Option<(Instant, u64)>,
    },
    Page(Box<Pager>, TextPage),
}

impl Overlay {
    pub(super) fn page(page: TextPage) -> Self {
        Self::Page(Box::new(Pager::new(page.title.clone())), page)
    }
}

impl App {
    pub fn has_overlay(&self) -> bool {
        self.overlay.is_some()
    }

    pub(super) fn open_transcript(&mut self) {
        self.overlay = Some(Overlay::Transcript {
            pager: Box::new(Pager::following("Transcript")),
            made: None,
        });
    }

    pub(super) fn open_palette(&mut self, now: Instant) {
        self.overlay = Some(Overlay::Palette(Box::new(Palette::new(&self.keys, now))));
    }

    /// Every key and what it does.
    pub(super) fn open_keys(&mut self) {
        let mut text = "| key | does | action |\n|---|---|---|\n".to_owned();
        for row in self.keys.describe() {
            let keys: Vec<String> = row.keys.iter().map(|key| key.shown()).collect();
            let keys = if keys.is_empty() {
                "-".to_owned()
            } else {
                keys.join(", ")
            };
            // Writing to a string cannot fail.
            let _ = writeln!(
                text,
                "| {} | {} | {} |",
                escaped(&keys),
                escaped(row.about),
                escaped(row.action.name())
            );
        }
        text.push_str(
            "\n`^X` is Ctrl and X. Keys are changed in config.yaml, in `tui.keys`: `action: key`, \
             with keys written like `ctrl+x`.\n",
        );
        self.overlay = Some(Overlay::page(TextPage {
            title: "Keys".to_owned(),
            kind: TextKind::Markdown,
            text,
        }));
    }

    /// Keys for what is asked below it count once that was seen again. A page that covered a panel
    /// uncovers it.
    pub(super) fn close_overlay(&mut self) {
        self.overlay = self.beneath.take().map(Overlay::Panel);
        self.dirty = true;
    }

    /// A key for the overlay. `false`: there is none.
    pub(super) fn overlay_key(&mut self, key: Key, now: Instant) -> bool {
        let Some(overlay) = &mut self.overlay else {
            return false;
        };
        self.dirty = true;
        match overlay {
            Overlay::Panel(view) => match view.key(key, &self.keys, now) {
                PanelOutcome::Nothing | PanelOutcome::Redraw => {}
                PanelOutcome::Ask(ask) => self.ask(Ask::Panel(ask)),
                PanelOutcome::Close(ask) => {
                    self.ask(Ask::Panel(ask));
                    self.close_overlay();
                }
            },
            Overlay::Palette(palette) => {
                let outcome = palette.key(key, &self.keys, now);
                self.palette(outcome, now);
            }
            Overlay::Transcript { pager, .. } | Overlay::Page(pager, _) => {
                if pager.key(key, &self.keys) == PagerOutcome::Close {
                    self.close_overlay();
                }
            }
        }
        true
    }

    fn palette(&mut self, outcome: PaletteOutcome, now: Instant) {
        match outcome {
            PaletteOutcome::Nothing | PaletteOutcome::Redraw => {}
            PaletteOutcome::Close => self.close_overlay(),
            PaletteOutcome::Act(action) => {
                self.close_overlay();
                self.act(action, None, now);
            }
            PaletteOutcome::Run(line) => {
                self.close_overlay();
                self.echo(&line);
                self.slash(&line, now);
            }
            PaletteOutcome::Draft(text) => {
                self.close_overlay();
                self.composer.set_text(&text);
            }
        }
    }

    pub(super) fn overlay_paste(&mut self, text: &str, now: Instant) -> bool {
        match &mut self.overlay {
            None => return false,
            Some(Overlay::Panel(view)) => match view.paste(text, &self.keys, now) {
                PanelOutcome::Nothing | PanelOutcome::Redraw => {}
                PanelOutcome::Ask(ask) => self.ask(Ask::Panel(ask)),
                PanelOutcome::Close(ask) => {
                    self.ask(Ask::Panel(ask));
                    self.close_overlay();
                }
            },
            Some(Overlay::Palette(palette)) => {
                palette.paste(text, &self.keys, now);
            }
            Some(Overlay::Transcript { pager, .. } | Overlay::Page(pager, _)) => {
                if pager.paste(text, &self.keys) == PagerOutcome::Close {
                    self.close_overlay();
                }
            }
        }
        self.dirty = true;
        true
    }

    /// What a panel asks for by itself.
    pub(super) fn overlay_due(&mut self, now: Instant) {
        if self.overlay_wakes().is_some_and(|at| at <= now) {
            self.dirty = true;
        }
        if let Some(Overlay::Panel(view)) = &mut self.overlay
            && let Some(ask) = view.due(now)
        {
            self.ask(Ask::Panel(ask));
        }
    }

    pub(super) fn overlay_wakes(&self) -> Option<Instant> {
        match &self.overlay {
            Some(Overlay::Panel(view)) => view.next_due(),
            Some(Overlay::Transcript {
                made: Some((at, of)),
                ..
            }) if *of != self.transcript.revision() => Some(*at + REMAKE),
            _ => None,
        }
    }

    /// The person leaves with a panel open: what it does may stop.
    pub(super) fn overlay_left(&mut self) {
        let covered = self.beneath.take().map(Overlay::Panel);
        let overlay = self.overlay.take();
        if let Some(Overlay::Panel(view)) = covered.or(overlay) {
            self.ask(Ask::Panel(PanelAsk {
                panel: view.id().to_owned(),
                action: CLOSED.to_owned(),
                row: None,
                text: None,
            }));
        }
    }

    /// The overlay on the whole screen.
    pub(super) fn overlay_frame(&mut self, columns: u16, rows: u16, now: Instant) -> Option<Frame> {
        let mut overlay = self.overlay.take()?;
        self.prompts.hidden();
        let frame = match &mut overlay {
            Overlay::Panel(view) => view.view(columns, rows, &self.theme),
            Overlay::Palette(palette) => palette.view(columns, rows, &self.theme),
            Overlay::Transcript { pager, made } => {
                let revision = self.transcript.revision();
                let rests = |(at, of): (Instant, u64)| of == revision || now < at + REMAKE;
                if pager.width() != columns || !made.is_some_and(rests) {
                    pager.set_rows(self.transcript.whole(columns, &self.cx()), columns);
                    *made = Some((now, revision));
                }
                pager.view(columns, rows, &self.theme)
            }
            Overlay::Page(pager, page) => {
                if pager.width() != columns {
                    let rows = body(&page.kind, &page.text, columns, &self.cx());
                    pager.set_rows(rows, columns);
                }
                pager.view(columns, rows, &self.theme)
            }
        };
        self.overlay = Some(overlay);
        Some(self.with_call(frame, columns, rows))
    }

    /// Whether the key is one that works above overlays too.
    pub(super) fn over_everything(&self, key: Key) -> Option<Action> {
        let action = self.keys.action(key, Area::Anywhere)?;
        matches!(action, Action::Suspend | Action::Redraw).then_some(action)
    }
}

/// Text that markdown leaves as it is.
fn escaped(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for ch in text.chars() {
        if ch.is_ascii_punctuation() {
            escaped.push('\\');
        }
        escaped.push(ch);
    }
    escaped
}

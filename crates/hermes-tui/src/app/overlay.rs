//! Overlays that cover the conversation: panels, pages, the command palette.

use std::fmt::Write as _;
use std::time::{Duration, Instant};

use hermes_core::front_end::{PagedText, TextKind};

use super::state::App;
use crate::cells::body;
use crate::keys::{KeyAction, KeyArea, KeyPress};
use crate::pager::{Pager, PagerOutcome};
use crate::palette::{CommandPalette, PaletteOutcome};
use crate::panel::{PanelOutcome, PanelView};
use crate::port::{CLOSED, PanelRequest, UiAsk};
use crate::row::ScreenFrame;

/// A growing transcript is rebuilt at most this often while it is read.
const REBUILD_INTERVAL: Duration = Duration::from_millis(300);

pub(super) enum AppOverlay {
    Panel(Box<PanelView>),
    Palette(Box<CommandPalette>),
    /// The transcript of Ctrl+T, which grows.
    Transcript {
        pager: Box<Pager>,
        /// When its rows were built, and for which revision.
        made: Option<(Instant, u64)>,
    },
    Page(Box<Pager>, PagedText),
}

impl AppOverlay {
    pub(super) fn page(page: PagedText) -> Self {
        Self::Page(Box::new(Pager::new(page.title.clone())), page)
    }
}

impl App {
    #[cfg(test)]
    pub(super) fn has_overlay(&self) -> bool {
        self.overlay.is_some()
    }

    pub(super) fn open_transcript(&mut self) {
        self.overlay = Some(AppOverlay::Transcript {
            pager: Box::new(Pager::following("Transcript")),
            made: None,
        });
    }

    pub(super) fn open_palette(&mut self, now: Instant) {
        self.overlay = Some(AppOverlay::Palette(Box::new(CommandPalette::new(
            &self.keys, now,
        ))));
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
        self.overlay = Some(AppOverlay::page(PagedText {
            title: "Keys".to_owned(),
            kind: TextKind::Markdown,
            text,
        }));
    }

    /// Keys for a prompt below it count only after it was visible again. Closing a page that
    /// covered a panel shows the panel again.
    pub(super) fn close_overlay(&mut self) {
        self.overlay = self.covered_panel.take().map(AppOverlay::Panel);
        self.dirty = true;
    }

    /// Handles a key for the overlay. `false`: there is none.
    pub(super) fn overlay_key(&mut self, key: KeyPress, now: Instant) -> bool {
        let Some(overlay) = &mut self.overlay else {
            return false;
        };
        self.dirty = true;
        match overlay {
            AppOverlay::Panel(view) => match view.key(key, &self.keys, now) {
                PanelOutcome::Nothing | PanelOutcome::Redraw => {}
                PanelOutcome::Ask(ask) => self.ask(UiAsk::Panel(ask)),
                PanelOutcome::Close(ask) => {
                    self.ask(UiAsk::Panel(ask));
                    self.close_overlay();
                }
            },
            AppOverlay::Palette(palette) => {
                let outcome = palette.key(key, &self.keys, now);
                self.palette(outcome, now);
            }
            AppOverlay::Transcript { pager, .. } | AppOverlay::Page(pager, _) => {
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
            Some(AppOverlay::Panel(view)) => match view.paste(text, &self.keys, now) {
                PanelOutcome::Nothing | PanelOutcome::Redraw => {}
                PanelOutcome::Ask(ask) => self.ask(UiAsk::Panel(ask)),
                PanelOutcome::Close(ask) => {
                    self.ask(UiAsk::Panel(ask));
                    self.close_overlay();
                }
            },
            Some(AppOverlay::Palette(palette)) => {
                palette.paste(text, &self.keys, now);
            }
            Some(AppOverlay::Transcript { pager, .. } | AppOverlay::Page(pager, _)) => {
                if pager.paste(text, &self.keys) == PagerOutcome::Close {
                    self.close_overlay();
                }
            }
        }
        self.dirty = true;
        true
    }

    /// Requests that a panel sends on a timer.
    pub(super) fn overlay_due(&mut self, now: Instant) {
        if self.overlay_next_wakeup().is_some_and(|at| at <= now) {
            self.dirty = true;
        }
        if let Some(AppOverlay::Panel(view)) = &mut self.overlay
            && let Some(ask) = view.due(now)
        {
            self.ask(UiAsk::Panel(ask));
        }
    }

    pub(super) fn overlay_next_wakeup(&self) -> Option<Instant> {
        match &self.overlay {
            Some(AppOverlay::Panel(view)) => view.next_due(),
            Some(AppOverlay::Transcript {
                made: Some((at, of)),
                ..
            }) if *of != self.transcript.revision() => Some(*at + REBUILD_INTERVAL),
            _ => None,
        }
    }

    /// The person exits while a panel is open: its work may stop.
    pub(super) fn overlay_on_exit(&mut self) {
        let covered = self.covered_panel.take().map(AppOverlay::Panel);
        let overlay = self.overlay.take();
        if let Some(AppOverlay::Panel(view)) = covered.or(overlay) {
            self.ask(UiAsk::Panel(PanelRequest {
                panel: view.id().to_owned(),
                action: CLOSED.to_owned(),
                row: None,
                text: None,
            }));
        }
    }

    /// The overlay, drawn on the whole screen.
    pub(super) fn overlay_frame(
        &mut self,
        columns: u16,
        rows: u16,
        now: Instant,
    ) -> Option<ScreenFrame> {
        let mut overlay = self.overlay.take()?;
        self.prompts.hidden();
        let frame = match &mut overlay {
            AppOverlay::Panel(view) => view.view(columns, rows, &self.theme),
            AppOverlay::Palette(palette) => palette.view(columns, rows, &self.theme),
            AppOverlay::Transcript { pager, made } => {
                let revision = self.transcript.revision();
                let rests =
                    |(at, of): (Instant, u64)| of == revision || now < at + REBUILD_INTERVAL;
                if pager.width() != columns || !made.is_some_and(rests) {
                    pager.set_rows(self.transcript.whole(columns, &self.cx()), columns);
                    *made = Some((now, revision));
                }
                pager.view(columns, rows, &self.theme)
            }
            AppOverlay::Page(pager, page) => {
                if pager.width() != columns {
                    let rows = body(&page.kind, &page.text, columns, &self.cx());
                    pager.set_rows(rows, columns);
                }
                pager.view(columns, rows, &self.theme)
            }
        };
        self.overlay = Some(overlay);
        Some(self.with_prompt_notice(frame, columns, rows))
    }

    /// Whether the key also works while an overlay is open.
    pub(super) fn works_over_overlays(&self, key: KeyPress) -> Option<KeyAction> {
        let action = self.keys.action(key, KeyArea::Anywhere)?;
        matches!(action, KeyAction::Suspend | KeyAction::Redraw).then_some(action)
    }
}

/// Escapes text so that markdown leaves it unchanged.
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

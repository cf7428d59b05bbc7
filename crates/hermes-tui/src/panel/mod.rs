//! A list with actions, for [`crate::port::Panel`].

mod below;
mod columns;
pub(crate) mod entry;
pub(crate) mod fuzzy;
mod list;
#[cfg(test)]
pub(crate) mod tests;
mod view;

pub(crate) use below::hint_lines;
pub(crate) use view::{fitted, flat};

use std::cell::Cell;
use std::time::{Duration, Instant};

use self::entry::TextEntry;
use self::list::RowPosition;
use crate::keys::{KeyAction, KeyArea, KeyCode, KeyPress, Keymap};
use crate::port::{
    CLOSED, FILTER, MOVED, Panel, PanelKey, PanelRequest, PanelRow, REFRESH, RowMark,
};

/// How long a filter must be unchanged before it is sent to the program.
const FILTER_DELAY: Duration = Duration::from_millis(200);
/// Minimum time between two [`REFRESH`]es, whatever the panel requests.
const MIN_REFRESH: Duration = Duration::from_millis(100);

/// The effect of a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PanelOutcome {
    Nothing,
    Redraw,
    /// Sent to the program; the panel stays.
    Ask(PanelRequest),
    /// Sent to the program; the panel is gone.
    Close(PanelRequest),
}

/// An open panel: cursor, filter and text input.
#[derive(Debug)]
pub struct PanelView {
    panel: Panel,
    filter: TextEntry,
    /// Column widths: of all rows, or of each group if there are no headings.
    columns: columns::PanelColumns,
    /// The visible rows.
    places: Vec<RowPosition>,
    /// The index of the row under the cursor.
    cursor: usize,
    state: PanelState,
    /// When rows are requested again.
    refresh_at: Option<Instant>,
    /// When the filter is sent.
    filter_at: Option<Instant>,
    /// The first visible line of the list, and how many are visible: known after the first view.
    top: Cell<usize>,
    height: Cell<usize>,
    /// Lines of the longest detail, and the width they were counted for.
    longest: Cell<Option<(usize, usize)>>,
}

#[derive(Clone, Debug)]
enum PanelState {
    List,
    /// Confirmed with `y`.
    Confirm(PendingKey),
    /// A text is typed for it.
    Text(PendingKey, TextEntry),
}

/// A key that needs confirmation or text. It belongs to one row, whatever happens to the list
/// meanwhile.
#[derive(Clone, Debug)]
struct PendingKey {
    key: PanelKey,
    row: Option<PanelRow>,
}

impl PendingKey {
    /// The question of the key with the row's name inserted.
    fn named(&self, question: &str) -> String {
        let name = self.row.as_ref().and_then(|row| row.cells.first());
        question.replace("{}", name.map_or("", String::as_str))
    }
}

impl PanelView {
    pub fn new(panel: Panel, now: Instant) -> Self {
        let mut view = Self {
            columns: columns::PanelColumns::for_panel(&panel),
            panel,
            filter: TextEntry::default(),
            places: Vec::new(),
            cursor: 0,
            state: PanelState::List,
            refresh_at: None,
            filter_at: None,
            top: Cell::new(0),
            height: Cell::new(1),
            longest: Cell::new(None),
        };
        view.places = list::fitting(&view.panel, "");
        view.cursor = view.first();
        view.schedule(now);
        view
    }

    /// [`Panel::id`].
    pub fn id(&self) -> &str {
        &self.panel.id
    }

    /// New rows for the same panel. The cursor stays on its row; filter and typed text are kept.
    pub fn replace(&mut self, panel: Panel, now: Instant) {
        let id = self.row().map(|row| row.id.clone());
        self.columns = columns::PanelColumns::for_panel(&panel);
        self.longest.set(None);
        self.panel = panel;
        if self.panel.fresh {
            self.filter.clear();
        }
        self.fit(id.as_deref().filter(|_| !self.panel.fresh));
        self.schedule(now);
    }

    /// A request that is due by now.
    pub fn due(&mut self, now: Instant) -> Option<PanelRequest> {
        if self.filter_at.is_some_and(|at| at <= now) {
            self.filter_at = None;
            let mut ask = self.ask(FILTER);
            ask.text = Some(self.filter.text().to_owned());
            return Some(ask);
        }
        if self.refresh_at.is_some_and(|at| at <= now) {
            self.schedule(now);
            return Some(self.ask(REFRESH));
        }
        None
    }

    /// When [`PanelView::due`] has a request next.
    pub fn next_due(&self) -> Option<Instant> {
        [self.filter_at, self.refresh_at]
            .into_iter()
            .flatten()
            .min()
    }

    /// Pasted text. A single character counts as a key unless text is being typed; it never
    /// confirms a question.
    pub fn paste(&mut self, text: &str, keys: &Keymap, now: Instant) -> PanelOutcome {
        match &mut self.state {
            PanelState::Text(_, entry) => {
                entry.insert(text);
                PanelOutcome::Redraw
            }
            PanelState::List if self.panel.filters => {
                self.filter.insert(text);
                self.filtered(now)
            }
            PanelState::List => match single(text) {
                Some(key) => self.list_key(key, keys, now),
                None => PanelOutcome::Nothing,
            },
            PanelState::Confirm(_) => PanelOutcome::Nothing,
        }
    }

    pub fn key(&mut self, key: KeyPress, keys: &Keymap, now: Instant) -> PanelOutcome {
        match std::mem::replace(&mut self.state, PanelState::List) {
            PanelState::List => self.list_key(key, keys, now),
            PanelState::Confirm(of) => {
                // Any other key means no.
                if key == KeyPress::char('y') {
                    self.after_confirm(of)
                } else {
                    PanelOutcome::Redraw
                }
            }
            PanelState::Text(of, entry) => self.text_key(key, of, entry),
        }
    }

    fn text_key(&mut self, key: KeyPress, of: PendingKey, mut entry: TextEntry) -> PanelOutcome {
        if key == KeyPress::plain(KeyCode::Esc) || key == KeyPress::ctrl('c') {
            return PanelOutcome::Redraw;
        }
        if key == KeyPress::plain(KeyCode::Enter) {
            return self.done(&of, Some(entry.text().to_owned()));
        }
        let is_handled = entry.key(key);
        self.state = PanelState::Text(of, entry);
        if is_handled {
            PanelOutcome::Redraw
        } else {
            PanelOutcome::Nothing
        }
    }

    fn list_key(&mut self, key: KeyPress, keys: &Keymap, now: Instant) -> PanelOutcome {
        if key == KeyPress::ctrl('c') {
            return PanelOutcome::Close(self.ask(CLOSED));
        }
        if key == KeyPress::plain(KeyCode::Esc) {
            if self.filter.is_empty() {
                return PanelOutcome::Close(self.ask(CLOSED));
            }
            self.filter.clear();
            return self.filtered(now);
        }
        let bound = self.panel.keys.iter().find(|of| is(of, key)).cloned();
        if let Some(of) = bound {
            return self.begin(of);
        }
        if let Some(outcome) = self.motion(key, keys) {
            return outcome;
        }
        if self.panel.filters {
            let before = self.filter.text().to_owned();
            if self.filter.key(key) {
                return if before == self.filter.text() {
                    PanelOutcome::Redraw
                } else {
                    self.filtered(now)
                };
            }
        } else if key == KeyPress::char('q') {
            return PanelOutcome::Close(self.ask(CLOSED));
        }
        PanelOutcome::Nothing
    }

    /// A key that moves the cursor.
    fn motion(&mut self, key: KeyPress, keys: &Keymap) -> Option<PanelOutcome> {
        let last = self.places.len().saturating_sub(1);
        let page = self.height.get().saturating_sub(1).max(1);
        let letters = !self.panel.filters;
        let empty = self.filter.is_empty();
        let up = self.cursor.checked_sub(1).unwrap_or(last);
        let down = if self.cursor >= last {
            0
        } else {
            self.cursor + 1
        };
        let to = match (keys.action(key, KeyArea::Overlay), key.code, key.mods.ctrl) {
            (Some(KeyAction::PageUp), ..) => self.cursor.saturating_sub(page),
            (Some(KeyAction::PageDown), ..) => (self.cursor + page).min(last),
            (Some(KeyAction::Top), ..) if letters || empty => 0,
            (Some(KeyAction::Bottom), ..) if letters || empty => last,
            (_, KeyCode::Up, false) | (_, KeyCode::Char('p'), true) => up,
            (_, KeyCode::Down, false) | (_, KeyCode::Char('n'), true) => down,
            (_, KeyCode::Char('k'), false) if letters => up,
            (_, KeyCode::Char('j'), false) if letters => down,
            _ => return None,
        };
        Some(self.move_cursor_to(to))
    }

    fn move_cursor_to(&mut self, to: usize) -> PanelOutcome {
        if to == self.cursor {
            return PanelOutcome::Nothing;
        }
        self.cursor = to;
        if self.panel.previews {
            PanelOutcome::Ask(self.ask(MOVED))
        } else {
            PanelOutcome::Redraw
        }
    }

    /// The filter has changed.
    fn filtered(&mut self, now: Instant) -> PanelOutcome {
        let before = self.row().map(|row| row.id.clone());
        self.places = list::fitting(&self.panel, self.filter.text());
        // Moves to the best match; without a filter the cursor returns to its previous row.
        self.cursor = if self.filter.is_empty() {
            before
                .as_deref()
                .and_then(|id| list::position(&self.panel, &self.places, id))
                .unwrap_or(0)
        } else {
            list::best(&self.panel, &self.places, self.filter.text())
        };
        self.top.set(0);
        if self.panel.searches {
            self.filter_at = Some(now + FILTER_DELAY);
        }
        if self.panel.previews && self.row().map(|row| &row.id) != before.as_ref() {
            return PanelOutcome::Ask(self.ask(MOVED));
        }
        PanelOutcome::Redraw
    }

    /// Rows of a panel that was replaced.
    fn fit(&mut self, stay: Option<&str>) {
        self.places = list::fitting(&self.panel, self.filter.text());
        let restored = stay.and_then(|id| list::position(&self.panel, &self.places, id));
        self.cursor = match (restored, stay) {
            (Some(at), _) => at,
            // Its row is gone: use the one in its place.
            (None, Some(_)) => self.cursor.min(self.places.len().saturating_sub(1)),
            // There was none before.
            (None, None) => self.first(),
        };
    }

    /// The initial cursor position.
    fn first(&self) -> usize {
        let named = self.panel.selected.as_deref();
        named
            .and_then(|id| list::position(&self.panel, &self.places, id))
            .or_else(|| {
                self.places.iter().position(|restored| {
                    list::row(&self.panel, *restored)
                        .is_some_and(|row| row.mark == RowMark::Current)
                })
            })
            .unwrap_or(0)
    }

    fn begin(&mut self, key: PanelKey) -> PanelOutcome {
        let row = self.row().cloned();
        if key.row && row.is_none() {
            return PanelOutcome::Nothing;
        }
        let own = row.as_ref().and_then(|row| row.enter.as_deref());
        let key = own.filter(|_| key.key == "enter").cloned().unwrap_or(key);
        let of = PendingKey { key, row };
        if of.key.confirm.is_some() {
            self.state = PanelState::Confirm(of);
            return PanelOutcome::Redraw;
        }
        self.after_confirm(of)
    }

    fn after_confirm(&mut self, of: PendingKey) -> PanelOutcome {
        if of.key.text.is_none() {
            return self.done(&of, None);
        }
        let entry = match &of.row {
            // What was typed to find the row need not be typed again, unless it is a word for the row.
            Some(row) if list::is_typed_for(&self.panel, row, self.filter.text()) => {
                TextEntry::new(self.filter.text().trim())
            }
            Some(row) if of.key.row => TextEntry::new(&row.text),
            _ => TextEntry::default(),
        };
        self.state = PanelState::Text(of, entry);
        PanelOutcome::Redraw
    }

    fn done(&self, of: &PendingKey, text: Option<String>) -> PanelOutcome {
        let ask = PanelRequest {
            panel: self.panel.id.clone(),
            action: of.key.action.clone(),
            row: of.row.as_ref().map(|row| row.id.clone()),
            text,
        };
        if of.key.closes {
            PanelOutcome::Close(ask)
        } else {
            PanelOutcome::Ask(ask)
        }
    }

    fn ask(&self, action: &str) -> PanelRequest {
        PanelRequest {
            panel: self.panel.id.clone(),
            action: action.to_owned(),
            row: self.row().map(|row| row.id.clone()),
            text: None,
        }
    }

    fn row(&self) -> Option<&PanelRow> {
        list::row(&self.panel, *self.places.get(self.cursor)?)
    }

    fn schedule(&mut self, now: Instant) {
        self.refresh_at = self.panel.refresh.map(|every| now + every.max(MIN_REFRESH));
    }
}

/// The key for a text of one character.
pub(crate) fn single(text: &str) -> Option<KeyPress> {
    let mut chars = text.chars();
    match (chars.next(), chars.next()) {
        (Some(c), None) if !c.is_control() => Some(KeyPress::char(c)),
        _ => None,
    }
}

/// Whether a key name of the panel means this key. An invalid name matches none.
fn is(of: &PanelKey, key: KeyPress) -> bool {
    of.key.parse::<KeyPress>().is_ok_and(|named| named == key)
}

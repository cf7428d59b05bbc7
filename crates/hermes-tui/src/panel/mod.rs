//! A list that things can be done to, over [`crate::port::Panel`].

mod below;
mod columns;
pub mod entry;
pub mod fuzzy;
mod list;
#[cfg(test)]
pub(crate) mod tests;
mod view;

pub(crate) use below::hint_lines;
pub(crate) use view::{fitted, flat};

use std::cell::Cell;
use std::time::{Duration, Instant};

use self::entry::Entry;
use self::list::Place;
use crate::keys::{Action, Area, Code, Key, Keymap};
use crate::port::{CLOSED, FILTER, MOVED, Mark, Panel, PanelAsk, PanelKey, PanelRow, REFRESH};

/// How long a filter rests before it is told.
const RESTS: Duration = Duration::from_millis(200);
/// The shortest time between two [`REFRESH`]es, whatever the panel says.
const SHORTEST: Duration = Duration::from_millis(100);

/// What a key did.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PanelOutcome {
    Nothing,
    Redraw,
    /// Sent to the program; the panel stays.
    Ask(PanelAsk),
    /// Sent to the program; the panel is gone.
    Close(PanelAsk),
}

/// An open panel: where the cursor stands, what is typed.
#[derive(Debug)]
pub struct PanelView {
    panel: Panel,
    filter: Entry,
    /// Widths of the columns: of all rows, or of each group where there are no headings.
    columns: columns::Columns,
    /// The rows that are shown.
    places: Vec<Place>,
    /// The number of the row under the cursor among them.
    cursor: usize,
    state: State,
    /// When rows are asked for anew.
    refresh_at: Option<Instant>,
    /// When the filter is told.
    filter_at: Option<Instant>,
    /// The first line of the list that is on the screen, and how many are: known after a view.
    top: Cell<usize>,
    height: Cell<usize>,
    /// Lines of the longest detail, and the width they were counted for.
    longest: Cell<Option<(usize, usize)>>,
}

#[derive(Clone, Debug)]
enum State {
    List,
    /// Done with `y`.
    Confirm(Pending),
    /// A text is typed for it.
    Text(Pending, Entry),
}

/// A key that waits for more. It was pressed for one row, whatever becomes of the list meanwhile.
#[derive(Clone, Debug)]
struct Pending {
    key: PanelKey,
    row: Option<PanelRow>,
}

impl Pending {
    /// A question of the key with the row's name in it.
    fn named(&self, question: &str) -> String {
        let name = self.row.as_ref().and_then(|row| row.cells.first());
        question.replace("{}", name.map_or("", String::as_str))
    }
}

impl PanelView {
    pub fn new(panel: Panel, now: Instant) -> Self {
        let mut view = Self {
            columns: columns::Columns::of(&panel),
            panel,
            filter: Entry::default(),
            places: Vec::new(),
            cursor: 0,
            state: State::List,
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

    /// New rows for the same panel. The cursor stays on its row, the filter and what is being typed
    /// stay too.
    pub fn replace(&mut self, panel: Panel, now: Instant) {
        let id = self.row().map(|row| row.id.clone());
        self.columns = columns::Columns::of(&panel);
        self.longest.set(None);
        self.panel = panel;
        if self.panel.fresh {
            self.filter.clear();
        }
        self.fit(id.as_deref().filter(|_| !self.panel.fresh));
        self.schedule(now);
    }

    /// What is to be sent to the program because of the time.
    pub fn due(&mut self, now: Instant) -> Option<PanelAsk> {
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

    /// When [`PanelView::due`] has something next.
    pub fn next_due(&self) -> Option<Instant> {
        [self.filter_at, self.refresh_at]
            .into_iter()
            .flatten()
            .min()
    }

    /// Text that came at once, as from the clipboard. A single character where nothing is typed was
    /// a quick key; it never answers a question.
    pub fn paste(&mut self, text: &str, keys: &Keymap, now: Instant) -> PanelOutcome {
        match &mut self.state {
            State::Text(_, entry) => {
                entry.insert(text);
                PanelOutcome::Redraw
            }
            State::List if self.panel.filters => {
                self.filter.insert(text);
                self.filtered(now)
            }
            State::List => match single(text) {
                Some(key) => self.list_key(key, keys, now),
                None => PanelOutcome::Nothing,
            },
            State::Confirm(_) => PanelOutcome::Nothing,
        }
    }

    pub fn key(&mut self, key: Key, keys: &Keymap, now: Instant) -> PanelOutcome {
        match std::mem::replace(&mut self.state, State::List) {
            State::List => self.list_key(key, keys, now),
            State::Confirm(of) => {
                // Anything else is no.
                if key == Key::char('y') {
                    self.after_confirm(of)
                } else {
                    PanelOutcome::Redraw
                }
            }
            State::Text(of, entry) => self.text_key(key, of, entry),
        }
    }

    fn text_key(&mut self, key: Key, of: Pending, mut entry: Entry) -> PanelOutcome {
        if key == Key::plain(Code::Esc) || key == Key::ctrl('c') {
            return PanelOutcome::Redraw;
        }
        if key == Key::plain(Code::Enter) {
            return self.done(&of, Some(entry.text().to_owned()));
        }
        let taken = entry.key(key);
        self.state = State::Text(of, entry);
        if taken {
            PanelOutcome::Redraw
        } else {
            PanelOutcome::Nothing
        }
    }

    fn list_key(&mut self, key: Key, keys: &Keymap, now: Instant) -> PanelOutcome {
        if key == Key::ctrl('c') {
            return PanelOutcome::Close(self.ask(CLOSED));
        }
        if key == Key::plain(Code::Esc) {
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
        } else if key == Key::char('q') {
            return PanelOutcome::Close(self.ask(CLOSED));
        }
        PanelOutcome::Nothing
    }

    /// A key that moves the cursor.
    fn motion(&mut self, key: Key, keys: &Keymap) -> Option<PanelOutcome> {
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
        let to = match (keys.action(key, Area::Overlay), key.code, key.mods.ctrl) {
            (Some(Action::PageUp), ..) => self.cursor.saturating_sub(page),
            (Some(Action::PageDown), ..) => (self.cursor + page).min(last),
            (Some(Action::Top), ..) if letters || empty => 0,
            (Some(Action::Bottom), ..) if letters || empty => last,
            (_, Code::Up, false) | (_, Code::Char('p'), true) => up,
            (_, Code::Down, false) | (_, Code::Char('n'), true) => down,
            (_, Code::Char('k'), false) if letters => up,
            (_, Code::Char('j'), false) if letters => down,
            _ => return None,
        };
        Some(self.stand(to))
    }

    fn stand(&mut self, to: usize) -> PanelOutcome {
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
        // To what fits best; without a filter the cursor goes back to where it was.
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
            self.filter_at = Some(now + RESTS);
        }
        if self.panel.previews && self.row().map(|row| &row.id) != before.as_ref() {
            return PanelOutcome::Ask(self.ask(MOVED));
        }
        PanelOutcome::Redraw
    }

    /// The rows of a panel that was replaced.
    fn fit(&mut self, stay: Option<&str>) {
        self.places = list::fitting(&self.panel, self.filter.text());
        let place = stay.and_then(|id| list::position(&self.panel, &self.places, id));
        self.cursor = match (place, stay) {
            (Some(at), _) => at,
            // Its row is gone: the one that took its place.
            (None, Some(_)) => self.cursor.min(self.places.len().saturating_sub(1)),
            // There was none before.
            (None, None) => self.first(),
        };
    }

    /// Where the cursor stands at first.
    fn first(&self) -> usize {
        let named = self.panel.selected.as_deref();
        named
            .and_then(|id| list::position(&self.panel, &self.places, id))
            .or_else(|| {
                self.places.iter().position(|place| {
                    list::row(&self.panel, *place).is_some_and(|row| row.mark == Mark::Current)
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
        let of = Pending { key, row };
        if of.key.confirm.is_some() {
            self.state = State::Confirm(of);
            return PanelOutcome::Redraw;
        }
        self.after_confirm(of)
    }

    fn after_confirm(&mut self, of: Pending) -> PanelOutcome {
        if of.key.text.is_none() {
            return self.done(&of, None);
        }
        let entry = match &of.row {
            // An address that was typed to find the row need not be typed again.
            Some(row)
                if list::is_address(self.filter.text())
                    && row.also.split_whitespace().any(list::is_address) =>
            {
                Entry::new(self.filter.text().trim())
            }
            Some(row) if of.key.row => Entry::new(&row.text),
            _ => Entry::default(),
        };
        self.state = State::Text(of, entry);
        PanelOutcome::Redraw
    }

    fn done(&self, of: &Pending, text: Option<String>) -> PanelOutcome {
        let ask = PanelAsk {
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

    fn ask(&self, action: &str) -> PanelAsk {
        PanelAsk {
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
        self.refresh_at = self.panel.refresh.map(|every| now + every.max(SHORTEST));
    }
}

/// The key that a text of one character is.
pub(crate) fn single(text: &str) -> Option<Key> {
    let mut chars = text.chars();
    match (chars.next(), chars.next()) {
        (Some(c), None) if !c.is_control() => Some(Key::char(c)),
        _ => None,
    }
}

/// Whether a key of the panel is this one. A name that cannot be read is no key.
fn is(of: &PanelKey, key: Key) -> bool {
    of.key.parse::<Key>().is_ok_and(|named| named == key)
}

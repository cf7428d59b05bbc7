//! What is drawn: rows for the scrollback, the frame below them, what covers both.

use std::time::{Duration, Instant};

use hermes_core::figures::clock;
use ratatui_core::text::{Line, Span};

use super::state::{App, Pause};
use super::transcript::Doing;
use crate::composer::SubmissionKind;
use crate::keys::Action;
use crate::row::{Flow, Frame, Row};
use crate::theme::Role;
use crate::width;

/// Between two frames of the running sign: 8 in a second.
const SPIN: Duration = Duration::from_millis(125);
/// A draft is saved when nothing was typed for so long.
const DRAFT: Duration = Duration::from_millis(150);
/// Lines of the composer at most, whatever the screen has.
const COMPOSER: u16 = 16;
/// Messages that are shown before "and more".
const QUEUED: usize = 3;
/// From this height on what happens is seen above the running sign.
const LIVE: usize = 12;
/// Rows that `tui.screen: full` shows above the frame at most.
const RECENT: usize = 2000;

/// Everything that is to be seen.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Drawing {
    /// For the scrollback, once.
    pub rows: Vec<Row>,
    pub frame: Frame,
    /// The whole screen, instead.
    pub overlay: Option<Frame>,
}

impl App {
    /// Whether [`Self::draw`] would show something else than the last time.
    pub fn is_dirty(&self) -> bool {
        self.dirty
    }

    pub fn draw(&mut self, columns: u16, rows: u16, now: Instant) -> Drawing {
        self.dirty = false;
        let (columns, height) = (columns.max(1), rows.max(1));
        let cx = super::state::context(&self.theme, &self.manner, &self.status);
        let new = self.transcript.take_rows(columns, &cx);
        self.prompts.seen(now);
        let mut drawing = Drawing {
            rows: new,
            frame: self.frame(columns, height, now),
            overlay: self.overlay_frame(columns, height, now),
        };
        if self.fills() {
            self.recent.extend(drawing.rows.iter().cloned());
            let over = self.recent.len().saturating_sub(RECENT);
            self.recent.drain(..over);
            if drawing.overlay.is_none() {
                drawing.overlay = Some(self.filled(&drawing.frame, columns, height));
            }
        }
        drawing
    }

    /// The scrollback once more, for another width or theme.
    pub fn replay(&mut self, columns: u16, most: usize) -> Vec<Row> {
        let rows = self.transcript.replay(columns, most, &self.cx());
        if self.fills() {
            let from = rows.len().saturating_sub(RECENT);
            self.recent = rows[from..].iter().cloned().collect();
        }
        self.dirty = true;
        rows
    }

    fn fills(&self) -> bool {
        self.options.tui.fills_the_screen()
    }

    /// `tui.screen: full`: the end of the transcript above the frame.
    fn filled(&self, frame: &Frame, columns: u16, height: u16) -> Frame {
        let room = usize::from(height).saturating_sub(frame.lines.len());
        let mut above: Vec<Line<'static>> = Vec::new();
        for row in self.recent.iter().rev() {
            if above.len() >= room {
                break;
            }
            above.extend(broken(row, columns).into_iter().rev());
        }
        above.truncate(room);
        above.resize(room, Line::default());
        above.reverse();
        let shift = u16::try_from(above.len()).unwrap_or(u16::MAX);
        above.extend(frame.lines.iter().cloned());
        Frame {
            lines: above,
            cursor: frame.cursor.map(|(column, row)| (column, row + shift)),
        }
    }

    /// What stands below the scrollback.
    pub fn frame(&self, columns: u16, height: u16, now: Instant) -> Frame {
        let room = usize::from(height);
        let mut below: Vec<Line<'static>> = Vec::new();
        let status = self.manner.status_line && room >= 4;
        let above = self.above_input(columns, room, now);
        let taken = above.len() + usize::from(status);
        let input = self.input_frame(columns, height, taken, now);
        let mut cursor = input.cursor;
        if let Some((_, row)) = &mut cursor {
            *row += u16::try_from(above.len()).unwrap_or(0);
        }
        below.extend(above);
        below.extend(input.lines);
        if status {
            below.push(self.status_line(columns, now));
        }
        // The rest is for what happens, as far as it leaves the scrollback in view.
        let most = (room * 2 / 3).max(4).min(room.saturating_sub(1));
        let live = most.saturating_sub(below.len());
        let at = (now, self.spin(now));
        let mut lines = match live {
            0 => Vec::new(),
            live => self.transcript.live_lines(columns, live, at, &self.cx()),
        };
        let apart = room >= 10 && below.len() + lines.len() + 1 < room;
        lines.extend((apart && !self.transcript.is_empty()).then(Line::default));
        if let Some((_, row)) = &mut cursor {
            *row += u16::try_from(lines.len()).unwrap_or(0);
        }
        lines.extend(below);
        // On the smallest screens even a sign may be too wide.
        for line in &mut lines {
            if width::line_width(line) > usize::from(columns) {
                *line = width::truncate_line(line, usize::from(columns), "");
            }
        }
        Frame { lines, cursor }
    }

    /// The running sign, what waits, a rule.
    fn above_input(&self, columns: u16, room: usize, now: Instant) -> Vec<Line<'static>> {
        let mut lines = Vec::new();
        if room >= 5 {
            lines.extend(self.running_line(columns, room, now));
        }
        if room >= 8 {
            lines.extend(self.waiting_lines(columns));
        }
        if room >= 6 && !self.prompts.is_open() {
            let rule = self.theme.glyphs().rule.repeat(usize::from(columns));
            lines.push(Line::styled(rule, self.theme.style(Role::Border)));
        }
        lines
    }

    fn input_frame(&self, columns: u16, height: u16, taken: usize, now: Instant) -> Frame {
        let taken = u16::try_from(taken).unwrap_or(u16::MAX);
        let room = height.saturating_sub(taken).max(1);
        if self.prompts.is_open() {
            // One row of the scrollback stays, where there is room for both.
            let room = if height > 10 {
                room.saturating_sub(1)
            } else {
                room
            };
            return self.prompts.view(columns, room, now, &self.theme);
        }
        let most = (height / 2).clamp(1, COMPOSER).max(room.min(3)).min(room);
        self.composer.view(columns, most, &self.theme)
    }

    /// `* Running cargo clippy (3s · Esc to stop)`
    fn running_line(&self, columns: u16, room: usize, now: Instant) -> Option<Line<'static>> {
        let (what, since) = self.running(room, now)?;
        let glyphs = self.theme.glyphs();
        let sign = if self.manner.animated {
            let frames = glyphs.spinner;
            frames[self.spin(now) % frames.len().max(1)]
        } else {
            glyphs.bullet
        };
        let stop = self.keys.first(Action::Interrupt);
        let mut facts = Vec::new();
        if let Some(since) = since.filter(|_| self.manner.animated) {
            facts.push(clock(now.saturating_duration_since(since)));
        }
        let stopping = self.turn.as_ref().is_some_and(|turn| turn.stopping);
        if let Some(key) = stop.filter(|_| !stopping && !self.prompts.is_open()) {
            facts.push(format!("{} to stop", key.shown()));
        }
        let beside = |facts: &[String]| match facts {
            [] => String::new(),
            facts => format!(" ({})", facts.join(&format!(" {} ", glyphs.dot))),
        };
        let room_for = |facts: &[String]| {
            usize::from(columns)
                .saturating_sub(width::width(sign) + 1 + width::width(&beside(facts)))
        };
        // What goes on is read first: where there is no room for it, the facts give way, the last one first.
        let verb = least_room(&what, glyphs.ellipsis);
        while room_for(&facts) < verb && facts.pop().is_some() {}
        let (room, facts) = (room_for(&facts), beside(&facts));
        let what = width::truncate_with(&what, room, glyphs.ellipsis).into_owned();
        let line = Line::from(vec![
            Span::styled(format!("{sign} "), self.theme.style(Role::Accent)),
            Span::styled(what, self.theme.style(Role::Text)),
            Span::styled(facts, self.theme.style(Role::Dim)),
        ]);
        Some(width::truncate_line(
            &line,
            usize::from(columns),
            glyphs.ellipsis,
        ))
    }

    /// What goes on, and since when.
    fn running(&self, room: usize, now: Instant) -> Option<(String, Option<Instant>)> {
        let Some(turn) = &self.turn else {
            if self.awaiting {
                return Some(("Sending".to_owned(), None));
            }
            let (what, since) = self.errands.front()?;
            let what = width::harmless(what.lines().next().unwrap_or_default()).into_owned();
            return Some((format!("Running {what}"), Some(*since)));
        };
        let what = if turn.stopping {
            "Stopping".to_owned()
        } else if self.prompts.is_open() {
            "Waiting for your answer".to_owned()
        } else {
            match (&turn.pause, self.transcript.doing()) {
                (Some(Pause::Compressing), _) => "Compressing the conversation".to_owned(),
                (Some(Pause::Retrying { why, until }), _) => {
                    let left = until.saturating_duration_since(now);
                    let why = width::harmless(why.lines().next().unwrap_or_default()).into_owned();
                    format!("Trying again in {}: {why}", clock(left))
                }
                (None, Doing::Thinking) => "Thinking".to_owned(),
                (None, Doing::Writing) => "Writing".to_owned(),
                // What the tool does stands above, where there is room.
                (None, Doing::Tool(..)) if room >= LIVE => "Working".to_owned(),
                (None, Doing::Tool(what, 0)) => width::harmless(&what).into_owned(),
                (None, Doing::Tool(what, others)) => {
                    format!("{} and {others} more", width::harmless(&what))
                }
                (None, Doing::Nothing) => {
                    format!("Waiting for {}", width::harmless(&self.status.model))
                }
            }
        };
        Some((what, Some(turn.since)))
    }

    /// Texts on their way and messages that wait, above the composer.
    fn waiting_lines(&self, columns: u16) -> Vec<Line<'static>> {
        let glyphs = self.theme.glyphs();
        let dim = self.theme.style(Role::Dim);
        let line = |label: &str, text: &str, hint: &str| {
            let label = format!("  {label}: ");
            let hint = if hint.is_empty() {
                String::new()
            } else {
                format!("  {hint}")
            };
            let used = width::width(&label) + width::width(&hint);
            let room = usize::from(columns).saturating_sub(used);
            let text = width::harmless(text.lines().next().unwrap_or_default()).into_owned();
            let text = width::truncate_with(&text, room.max(4), glyphs.ellipsis).into_owned();
            let line = Line::from(vec![
                Span::styled(label, dim),
                Span::styled(text, self.theme.style(Role::User)),
                Span::styled(hint, dim),
            ]);
            width::truncate_line(&line, usize::from(columns), glyphs.ellipsis)
        };
        let mut lines: Vec<Line<'static>> = Vec::new();
        for steer in self.queue.steers.iter().take(QUEUED) {
            lines.push(line("on its way", steer, ""));
        }
        let label = if self.queue.held { "held" } else { "queued" };
        let count = self.queue.waiting.len();
        for (index, item) in self.queue.waiting.iter().take(QUEUED).enumerate() {
            let last = index + 1 == count.min(QUEUED);
            let edit = format!("{} edit", glyphs.up);
            let hint = match (last, self.queue.held) {
                (true, false) => edit,
                (true, true) => format!("{edit}, Enter sends"),
                (false, _) => String::new(),
            };
            let sign = if item.kind == SubmissionKind::Shell {
                "!"
            } else {
                ""
            };
            lines.push(line(label, &format!("{sign}{}", item.shown), &hint));
        }
        if count > QUEUED {
            lines.push(Line::styled(format!("  and {} more", count - QUEUED), dim));
        }
        lines
    }

    /// Says in an overlay that something waits below it.
    pub(super) fn with_call(&self, mut frame: Frame, columns: u16, rows: u16) -> Frame {
        if self.prompts.is_open() {
            let text = "your answer is needed: close this first";
            let text = width::truncate(text, usize::from(columns)).into_owned();
            let line = Line::styled(text, self.theme.style(Role::Warning));
            frame.lines.truncate(usize::from(rows).saturating_sub(1));
            frame.lines.push(line);
        }
        frame
    }

    /// Something on the screen moves by itself.
    pub(super) fn is_moving(&self) -> bool {
        self.manner.animated && (self.is_busy() || !self.errands.is_empty())
    }

    /// The number of the picture of the running sign.
    fn spin(&self, now: Instant) -> usize {
        let since = self.turn.as_ref().map(|turn| turn.since);
        let since = since.or(self.errands.front().map(|(_, since)| *since));
        let passed = since.map_or(Duration::ZERO, |since| now.saturating_duration_since(since));
        usize::try_from(passed.as_millis() / SPIN.as_millis()).unwrap_or(0)
    }

    /// When [`App::tick`] has something to do. `None`: never, until a key or news come.
    pub fn wakes(&self, now: Instant) -> Option<Instant> {
        let moving = self.is_moving() && self.overlay.is_none();
        let draft = self
            .composer
            .draft_changed()
            .then(|| self.typed.unwrap_or(now) + DRAFT);
        [
            moving.then(|| now + SPIN),
            self.prompts.wakes(now, self.manner.animated),
            self.hint.as_ref().map(|(_, until)| *until),
            self.leaving,
            self.overlay_wakes(),
            draft,
        ]
        .into_iter()
        .flatten()
        .min()
    }

    /// The draft, when it rests.
    pub(super) fn keep_draft(&mut self, now: Instant) {
        let rests = self.typed.is_none_or(|typed| now >= typed + DRAFT);
        if rests && self.composer.draft_changed() {
            self.composer.save_draft();
        }
    }
}

/// A row as the terminal would break it.
fn broken(row: &Row, columns: u16) -> Vec<Line<'static>> {
    match row.flow {
        Flow::Broken => vec![row.line.clone()],
        Flow::Unbroken => width::wrap_line(&row.line, usize::from(columns), &width::Indent::none()),
    }
}

/// The room without which nobody can tell what is done: its first word, and the sign that there is more.
fn least_room(what: &str, ellipsis: &str) -> usize {
    match what.split_once(' ') {
        Some((verb, _)) => width::width(verb) + 1 + width::width(ellipsis),
        None => width::width(what),
    }
}

//! Drawing: rows for the scrollback, the frame below them, and overlays that cover both.

use std::time::{Duration, Instant};

use hermes_core::figures::clock;
use ratatui_core::text::{Line, Span};

use super::state::{App, TurnPause};
use super::transcript::Activity;
use crate::composer::SubmissionKind;
use crate::keys::KeyAction;
use crate::row::{RowFlow, ScreenFrame, StyledRow};
use crate::theme::StyleRole;
use crate::width;

/// Interval between spinner frames: 8 per second.
const SPINNER_INTERVAL: Duration = Duration::from_millis(125);
/// A draft is saved after this long without typing.
const DRAFT_SAVE_DELAY: Duration = Duration::from_millis(150);
/// Maximum number of composer lines on any screen.
const MAX_COMPOSER_LINES: u16 = 16;
/// Queued messages shown before "and more".
const MAX_QUEUED_LINES: usize = 3;
/// From this screen height on, live output is shown above the spinner.
const MIN_HEIGHT_FOR_LIVE: usize = 12;
/// Maximum number of rows that `tui.screen: full` shows above the frame.
const MAX_RECENT_ROWS: usize = 2000;

/// Everything to be drawn.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Drawing {
    /// For the scrollback, each once.
    pub rows: Vec<StyledRow>,
    pub frame: ScreenFrame,
    /// Covers the whole screen.
    pub overlay: Option<ScreenFrame>,
}

impl App {
    /// Whether [`Self::draw`] would produce something different from last time.
    pub(crate) fn is_dirty(&self) -> bool {
        self.dirty
    }

    pub(crate) fn draw(&mut self, columns: u16, rows: u16, now: Instant) -> Drawing {
        self.dirty = false;
        let (columns, height) = (columns.max(1), rows.max(1));
        let cx = super::state::context(&self.theme, &self.display, &self.status);
        let new = self.transcript.take_rows(columns, &cx);
        self.prompts.seen(now);
        let mut drawing = Drawing {
            rows: new,
            frame: self.frame(columns, height, now),
            overlay: self.overlay_frame(columns, height, now),
        };
        if self.is_full_screen() {
            self.recent.extend(drawing.rows.iter().cloned());
            let excess = self.recent.len().saturating_sub(MAX_RECENT_ROWS);
            self.recent.drain(..excess);
            if drawing.overlay.is_none() {
                drawing.overlay = Some(self.full_screen_frame(&drawing.frame, columns, height));
            }
        }
        drawing
    }

    /// The scrollback again, for another width or theme.
    pub(crate) fn replay(&mut self, columns: u16, max_rows: usize) -> Vec<StyledRow> {
        let rows = self.transcript.replay(columns, max_rows, &self.cx());
        if self.is_full_screen() {
            let from = rows.len().saturating_sub(MAX_RECENT_ROWS);
            self.recent = rows[from..].iter().cloned().collect();
        }
        self.dirty = true;
        rows
    }

    fn is_full_screen(&self) -> bool {
        self.options.tui.is_full_screen()
    }

    /// `tui.screen: full`: the end of the transcript above the frame.
    fn full_screen_frame(&self, frame: &ScreenFrame, columns: u16, height: u16) -> ScreenFrame {
        let available = usize::from(height).saturating_sub(frame.lines.len());
        let mut above: Vec<Line<'static>> = Vec::new();
        for row in self.recent.iter().rev() {
            if above.len() >= available {
                break;
            }
            above.extend(wrap_like_terminal(row, columns).into_iter().rev());
        }
        above.truncate(available);
        above.resize(available, Line::default());
        above.reverse();
        let shift = u16::try_from(above.len()).unwrap_or(u16::MAX);
        above.extend(frame.lines.iter().cloned());
        ScreenFrame {
            lines: above,
            cursor: frame.cursor.map(|(column, row)| (column, row + shift)),
        }
    }

    /// The frame below the scrollback.
    pub(crate) fn frame(&self, columns: u16, height: u16, now: Instant) -> ScreenFrame {
        let available = usize::from(height);
        let mut below: Vec<Line<'static>> = Vec::new();
        let status = self.display.status_line && available >= 4;
        let above = self.above_input(columns, available, now);
        let used_rows = above.len() + usize::from(status);
        let input = self.input_frame(columns, height, used_rows, now);
        let mut cursor = input.cursor;
        if let Some((_, row)) = &mut cursor {
            *row += u16::try_from(above.len()).unwrap_or(0);
        }
        below.extend(above);
        below.extend(input.lines);
        if status {
            below.push(self.status_line(columns, now));
        }
        // The rest is for live output, as long as part of the scrollback stays visible.
        let max_rows = (available * 2 / 3).max(4).min(available.saturating_sub(1));
        let live = max_rows.saturating_sub(below.len());
        let at = (now, self.spinner_frame(now));
        let mut lines = match live {
            0 => Vec::new(),
            live => self.transcript.live_lines(columns, live, at, &self.cx()),
        };
        let apart = available >= 10 && below.len() + lines.len() + 1 < available;
        lines.extend((apart && !self.transcript.is_empty()).then(Line::default));
        if let Some((_, row)) = &mut cursor {
            *row += u16::try_from(lines.len()).unwrap_or(0);
        }
        lines.extend(below);
        // On very small screens even the spinner may be too wide.
        for line in &mut lines {
            if width::line_width(line) > usize::from(columns) {
                *line = width::truncate_line(line, usize::from(columns), "");
            }
        }
        ScreenFrame { lines, cursor }
    }

    /// The spinner line, queued messages, a rule.
    fn above_input(&self, columns: u16, available: usize, now: Instant) -> Vec<Line<'static>> {
        let mut lines = Vec::new();
        if available >= 5 {
            lines.extend(self.running_line(columns, available, now));
        }
        if available >= 8 {
            lines.extend(self.waiting_lines(columns));
        }
        if available >= 6 && !self.prompts.is_open() {
            let rule = self.theme.glyphs().rule.repeat(usize::from(columns));
            lines.push(Line::styled(rule, self.theme.style(StyleRole::Border)));
        }
        lines
    }

    fn input_frame(
        &self,
        columns: u16,
        height: u16,
        used_rows: usize,
        now: Instant,
    ) -> ScreenFrame {
        let used_rows = u16::try_from(used_rows).unwrap_or(u16::MAX);
        let available = height.saturating_sub(used_rows).max(1);
        if self.prompts.is_open() {
            // One row of the scrollback stays visible if there is space for both.
            let available = if height > 10 {
                available.saturating_sub(1)
            } else {
                available
            };
            return self.prompts.view(columns, available, now, &self.theme);
        }
        let max_rows = (height / 2)
            .clamp(1, MAX_COMPOSER_LINES)
            .max(available.min(3))
            .min(available);
        self.composer.view(columns, max_rows, &self.theme)
    }

    /// `* Running cargo clippy (3s · Esc to stop)`
    fn running_line(&self, columns: u16, available: usize, now: Instant) -> Option<Line<'static>> {
        let (what, since) = self.running(available, now)?;
        let glyphs = self.theme.glyphs();
        let sign = if self.display.animated {
            let frames = glyphs.spinner;
            frames[self.spinner_frame(now) % frames.len().max(1)]
        } else {
            glyphs.bullet
        };
        let stop = self.keys.first(KeyAction::Interrupt);
        let mut facts = Vec::new();
        if let Some(since) = since.filter(|_| self.display.animated) {
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
        // The activity is most important: if there is not enough space, facts are dropped, the last
        // one first.
        let verb = min_activity_width(&what, glyphs.ellipsis);
        while room_for(&facts) < verb && facts.pop().is_some() {}
        let (available, facts) = (room_for(&facts), beside(&facts));
        let what = width::truncate_with(&what, available, glyphs.ellipsis).into_owned();
        let line = Line::from(vec![
            Span::styled(format!("{sign} "), self.theme.style(StyleRole::Accent)),
            Span::styled(what, self.theme.style(StyleRole::Text)),
            Span::styled(facts, self.theme.style(StyleRole::Dim)),
        ]);
        Some(width::truncate_line(
            &line,
            usize::from(columns),
            glyphs.ellipsis,
        ))
    }

    /// The current activity and when it began.
    fn running(&self, available: usize, now: Instant) -> Option<(String, Option<Instant>)> {
        let Some(turn) = &self.turn else {
            if self.awaiting {
                return Some(("Sending".to_owned(), None));
            }
            let (what, since) = self.running_commands.front()?;
            let what = width::harmless(what.lines().next().unwrap_or_default()).into_owned();
            return Some((format!("Running {what}"), Some(*since)));
        };
        let what = if turn.stopping {
            "Stopping".to_owned()
        } else if self.prompts.is_open() {
            "Waiting for your answer".to_owned()
        } else {
            match (&turn.pause, self.transcript.activity()) {
                (Some(TurnPause::Compressing), _) => "Compressing the conversation".to_owned(),
                (Some(TurnPause::Retrying { why, until }), _) => {
                    let left = until.saturating_duration_since(now);
                    let why = width::harmless(why.lines().next().unwrap_or_default()).into_owned();
                    format!("Trying again in {}: {why}", clock(left))
                }
                (None, Activity::Thinking) => "Thinking".to_owned(),
                (None, Activity::Writing) => "Writing".to_owned(),
                // The tool's own output is above, if there is space.
                (None, Activity::Tool(..)) if available >= MIN_HEIGHT_FOR_LIVE => {
                    "Working".to_owned()
                }
                (None, Activity::Tool(what, 0)) => width::harmless(&what).into_owned(),
                (None, Activity::Tool(what, others)) => {
                    format!("{} and {others} more", width::harmless(&what))
                }
                (None, Activity::Nothing) => {
                    format!("Waiting for {}", width::harmless(&self.status.model))
                }
            }
        };
        Some((what, Some(turn.since)))
    }

    /// Steering texts in flight and queued messages, above the composer.
    fn waiting_lines(&self, columns: u16) -> Vec<Line<'static>> {
        let glyphs = self.theme.glyphs();
        let dim = self.theme.style(StyleRole::Dim);
        let line = |label: &str, text: &str, hint: &str| {
            let label = format!("  {label}: ");
            let hint = if hint.is_empty() {
                String::new()
            } else {
                format!("  {hint}")
            };
            let used = width::width(&label) + width::width(&hint);
            let available = usize::from(columns).saturating_sub(used);
            let text = width::harmless(text.lines().next().unwrap_or_default()).into_owned();
            let text = width::truncate_with(&text, available.max(4), glyphs.ellipsis).into_owned();
            let line = Line::from(vec![
                Span::styled(label, dim),
                Span::styled(text, self.theme.style(StyleRole::User)),
                Span::styled(hint, dim),
            ]);
            width::truncate_line(&line, usize::from(columns), glyphs.ellipsis)
        };
        let mut lines: Vec<Line<'static>> = Vec::new();
        for steer in self.queue.steers.iter().take(MAX_QUEUED_LINES) {
            lines.push(line("on its way", steer, ""));
        }
        let label = if self.queue.held { "held" } else { "queued" };
        let count = self.queue.waiting.len();
        for (index, item) in self.queue.waiting.iter().take(MAX_QUEUED_LINES).enumerate() {
            let last = index + 1 == count.min(MAX_QUEUED_LINES);
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
        if count > MAX_QUEUED_LINES {
            lines.push(Line::styled(
                format!("  and {} more", count - MAX_QUEUED_LINES),
                dim,
            ));
        }
        lines
    }

    /// Adds a notice to an overlay that a prompt is waiting below it.
    pub(super) fn with_prompt_notice(
        &self,
        mut frame: ScreenFrame,
        columns: u16,
        rows: u16,
    ) -> ScreenFrame {
        if self.prompts.is_open() {
            let text = "your answer is needed: close this first";
            let text = width::truncate(text, usize::from(columns)).into_owned();
            let line = Line::styled(text, self.theme.style(StyleRole::Warning));
            frame.lines.truncate(usize::from(rows).saturating_sub(1));
            frame.lines.push(line);
        }
        frame
    }

    /// Whether something on the screen is animated.
    pub(super) fn is_animated(&self) -> bool {
        self.display.animated && (self.is_busy() || !self.running_commands.is_empty())
    }

    /// The current spinner frame.
    fn spinner_frame(&self, now: Instant) -> usize {
        let since = self.turn.as_ref().map(|turn| turn.since);
        let since = since.or(self.running_commands.front().map(|(_, since)| *since));
        let passed = since.map_or(Duration::ZERO, |since| now.saturating_duration_since(since));
        usize::try_from(passed.as_millis() / SPINNER_INTERVAL.as_millis()).unwrap_or(0)
    }

    /// When [`App::tick`] is next needed. `None`: not until a key or an event arrives.
    pub(crate) fn next_wakeup(&self, now: Instant) -> Option<Instant> {
        let moving = self.is_animated() && self.overlay.is_none();
        let draft = self
            .composer
            .draft_changed()
            .then(|| self.last_key_at.unwrap_or(now) + DRAFT_SAVE_DELAY);
        [
            moving.then(|| now + SPINNER_INTERVAL),
            self.prompts.next_wakeup(now, self.display.animated),
            self.hint.as_ref().map(|(_, until)| *until),
            self.exit_armed_until,
            self.overlay_next_wakeup(),
            draft,
        ]
        .into_iter()
        .flatten()
        .min()
    }

    /// Saves the draft once typing has paused.
    pub(super) fn keep_draft(&mut self, now: Instant) {
        let rests = self
            .last_key_at
            .is_none_or(|typed| now >= typed + DRAFT_SAVE_DELAY);
        if rests && self.composer.draft_changed() {
            self.composer.save_draft();
        }
    }
}

/// A row wrapped as the terminal would wrap it.
fn wrap_like_terminal(row: &StyledRow, columns: u16) -> Vec<Line<'static>> {
    match row.flow {
        RowFlow::Broken => vec![row.line.clone()],
        RowFlow::Unbroken => {
            width::wrap_line(&row.line, usize::from(columns), &width::Indent::none())
        }
    }
}

/// The minimum width at which the activity is understandable: its first word and an ellipsis.
fn min_activity_width(what: &str, ellipsis: &str) -> usize {
    match what.split_once(' ') {
        Some((verb, _)) => width::width(verb) + 1 + width::width(ellipsis),
        None => width::width(what),
    }
}

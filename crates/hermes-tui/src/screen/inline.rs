//! The inline screen: rows above, the frame below.

use std::io::{self, Write};
use std::sync::Arc;
use std::time::Duration;

use ratatui_core::text::Line;

use super::modes::FramePlacement;
use super::paint::{
    ERASE_BELOW, ERASE_LINE, HIDE_CURSOR, Paint, SHOW_CURSOR, SYNC_OFF, SYNC_ON, WRAP_OFF, WRAP_ON,
};
use super::{Size, TerminalCapabilities};
use crate::row::{RowFlow, ScreenFrame, StyledRow};
use crate::width::{soft_height, truncate_line};

/// Milliseconds to wait for a terminal that does not accept output.
const WRITE_TIMEOUT_MS: u32 = 5000;

/// What happens to old rows when the width changes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Reflow {
    /// Everything is erased, including earlier output of the shell, and printed again for the new
    /// width.
    #[default]
    Full,
    /// Old rows stay as the terminal wraps them.
    Off,
}

#[derive(Clone, Copy, Debug)]
pub struct ScreenOptions {
    pub look: TerminalCapabilities,
    pub reflow: Reflow,
    /// Maximum number of rows printed again.
    pub reflow_rows: usize,
}

impl ScreenOptions {
    pub fn new(look: TerminalCapabilities) -> Self {
        Self {
            look,
            reflow: Reflow::Full,
            reflow_rows: 5000,
        }
    }
}

/// The terminal that the interface draws on.
///
/// After [`InlineScreen::resized`] check [`InlineScreen::needs_reflow`]; while it is true, nothing
/// is written until [`InlineScreen::reflow`], so call that once the size has settled. While an
/// overlay is open, rows and frames are kept and written when it is left.
pub struct InlineScreen<W: Write> {
    out: W,
    pub(super) options: ScreenOptions,
    pub(super) title: String,
    size: Size,
    /// The width the frame was drawn for.
    drawn: u16,
    /// The frame as it is on the terminal.
    shown: Vec<Line<'static>>,
    cursor: Option<(u16, u16)>,
    /// The position of the terminal's cursor in the frame.
    at: (u16, usize),
    /// The displayed content is unknown: the frame is written completely.
    redraw: bool,
    /// The rows above are of another width.
    stale: bool,
    waiting: Vec<StyledRow>,
    waiting_frame: Option<ScreenFrame>,
    overlay: Option<OverlayScreen>,
    placement: Arc<FramePlacement>,
}

#[derive(Debug, Default)]
struct OverlayScreen {
    /// `None` before the first drawing.
    shown: Option<Vec<Line<'static>>>,
    cursor: Option<(u16, u16)>,
}

impl<W: Write> InlineScreen<W> {
    /// The frame begins at the cursor, which must be in the first column.
    pub fn new(out: W, size: Size, options: ScreenOptions) -> Self {
        Self {
            out,
            options,
            title: String::new(),
            size,
            drawn: size.width,
            shown: Vec::new(),
            cursor: None,
            at: (0, 0),
            redraw: false,
            stale: false,
            waiting: Vec::new(),
            waiting_frame: None,
            overlay: None,
            placement: Arc::default(),
        }
    }

    pub fn size(&self) -> Size {
        self.size
    }

    /// Where everything is written.
    pub fn out(&mut self) -> &mut W {
        &mut self.out
    }

    pub fn look(&self) -> TerminalCapabilities {
        self.options.look
    }

    /// What [`super::TerminalModes`] needs to leave the terminal clean.
    pub fn placement(&self) -> Arc<FramePlacement> {
        Arc::clone(&self.placement)
    }

    /// Prints `rows` above the frame, permanently.
    pub fn commit(&mut self, rows: &[StyledRow]) -> io::Result<()> {
        let frame = ScreenFrame {
            lines: self.shown.clone(),
            cursor: self.cursor,
        };
        let frame = self.waiting_frame.clone().unwrap_or(frame);
        self.update(rows, &frame)
    }

    /// Redraws the frame.
    pub fn draw(&mut self, frame: &ScreenFrame) -> io::Result<()> {
        self.update(&[], frame)
    }

    /// Both in one write; nothing is written if nothing has changed.
    pub fn update(&mut self, rows: &[StyledRow], frame: &ScreenFrame) -> io::Result<()> {
        if self.overlay.is_some() || self.stale {
            self.waiting.extend_from_slice(rows);
            self.waiting_frame = Some(frame.clone());
            return Ok(());
        }
        let (lines, cursor) = self.clipped(frame);
        if rows.is_empty() && !self.redraw && lines == self.shown && cursor == self.cursor {
            return Ok(());
        }
        let mut paint = begin();
        if self.redraw || !rows.is_empty() {
            paint.up(self.rows_above());
            paint.raw("\r");
            let mut old = self.shown.len();
            if self.redraw {
                paint.raw(ERASE_BELOW);
                old = 0;
            }
            self.write_rows(&mut paint, rows, &mut old);
            self.write_frame(&mut paint, &lines, old);
        } else {
            self.write_changes(&mut paint, &lines);
        }
        self.shown = lines;
        self.redraw = false;
        self.place_cursor(&mut paint, cursor);
        self.send(paint)
    }

    /// Clipped to the height of the screen: the end and the cursor stay visible.
    fn clipped(&self, frame: &ScreenFrame) -> (Vec<Line<'static>>, Option<(u16, u16)>) {
        let height = usize::from(self.size.height.max(1));
        let excess = frame.lines.len().saturating_sub(height);
        let cursor_row = frame.cursor.map_or(excess, |(_, row)| usize::from(row));
        let from = excess.min(cursor_row);
        let lines: Vec<_> = frame
            .lines
            .iter()
            .skip(from)
            .take(height)
            .cloned()
            .collect();
        let cursor = frame.cursor.and_then(|(column, row)| {
            let row = usize::from(row).saturating_sub(from);
            let last = lines.len().checked_sub(1)?;
            let column = column.min(self.size.width.saturating_sub(1));
            Some((column, row.min(last) as u16))
        });
        (lines, cursor)
    }

    /// Rows from the top of the frame to the cursor as currently on the terminal.
    fn rows_above(&self) -> usize {
        let (column, row) = self.at;
        if !self.redraw || !self.options.look.rewraps {
            return row;
        }
        // The terminal has wrapped lines that became too wide.
        let columns = usize::from(self.size.width.max(1));
        let above: usize = self
            .shown
            .iter()
            .take(row)
            .map(|line| {
                let drawn = truncate_line(line, usize::from(self.drawn), "");
                soft_height(&drawn, columns)
            })
            .sum();
        above + usize::from(column) / columns
    }

    /// `old`: rows of the old frame that are at and below the cursor.
    fn write_rows(&self, paint: &mut Paint, rows: &[StyledRow], old: &mut usize) {
        let columns = usize::from(self.size.width.max(1));
        let look = self.options.look;
        for row in rows {
            match row.flow {
                RowFlow::Broken => {
                    paint.raw(ERASE_LINE);
                    paint.line(&row.line, &row.links, Some(columns), look);
                }
                RowFlow::Unbroken => {
                    // Its later rows must not keep old content.
                    if *old > 0 {
                        paint.raw(ERASE_BELOW);
                        *old = 0;
                    }
                    paint.raw(WRAP_ON);
                    paint.line(&row.line, &row.links, None, look);
                    paint.raw(WRAP_OFF);
                }
            }
            paint.raw("\r\n");
            *old = old.saturating_sub(1);
        }
    }

    fn write_frame(&mut self, paint: &mut Paint, lines: &[Line<'static>], old: usize) {
        for (index, line) in lines.iter().enumerate() {
            if index > 0 {
                paint.raw("\r\n");
            }
            self.write_line(paint, line);
        }
        if old > lines.len() {
            if lines.is_empty() {
                paint.raw(ERASE_BELOW);
            } else {
                paint.down(1);
                paint.raw("\r");
                paint.raw(ERASE_BELOW);
                paint.up(1);
            }
        }
        self.at = (0, lines.len().saturating_sub(1));
    }

    fn write_line(&self, paint: &mut Paint, line: &Line<'static>) {
        paint.raw(ERASE_LINE);
        let columns = usize::from(self.size.width);
        paint.line(line, &[], Some(columns), self.options.look);
    }

    fn write_changes(&mut self, paint: &mut Paint, lines: &[Line<'static>]) {
        for (index, line) in lines.iter().enumerate() {
            match self.shown.get(index) {
                Some(old) if old == line => continue,
                Some(_) => self.go(paint, index),
                None if index == 0 => {}
                None => {
                    self.go(paint, index - 1);
                    paint.raw("\r\n");
                    self.at.1 = index;
                }
            }
            paint.raw("\r");
            self.write_line(paint, line);
        }
        if lines.len() < self.shown.len() {
            self.go(paint, lines.len());
            paint.raw("\r");
            paint.raw(ERASE_BELOW);
        }
    }

    /// Moves to another row of the frame.
    fn go(&mut self, paint: &mut Paint, row: usize) {
        paint.up(self.at.1.saturating_sub(row));
        paint.down(row.saturating_sub(self.at.1));
        self.at.1 = row;
    }

    fn place_cursor(&mut self, paint: &mut Paint, cursor: Option<(u16, u16)>) {
        let last = self.shown.len().saturating_sub(1);
        let (column, row) = cursor.map_or((0, last), |(column, row)| (column, usize::from(row)));
        self.go(paint, row);
        paint.column(usize::from(column));
        self.at.0 = column;
        self.cursor = cursor;
        self.drawn = self.size.width;
        if cursor.is_some() {
            paint.raw(SHOW_CURSOR);
        }
        self.placement.set(self.shown.len(), row);
    }

    fn send(&mut self, mut paint: Paint) -> io::Result<()> {
        paint.raw(WRAP_ON);
        paint.raw(SYNC_OFF);
        self.write(&paint.bytes)
    }

    pub(super) fn write(&mut self, mut bytes: &[u8]) -> io::Result<()> {
        let mut patience = WRITE_TIMEOUT_MS;
        while !bytes.is_empty() {
            match self.out.write(bytes) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(written) => {
                    bytes = &bytes[written..];
                    patience = WRITE_TIMEOUT_MS;
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                // A child that shares the terminal may have made it non-blocking.
                Err(error) if error.kind() == io::ErrorKind::WouldBlock && patience > 0 => {
                    patience -= 1;
                    std::thread::sleep(Duration::from_millis(1));
                }
                Err(error) => return Err(error),
            }
        }
        self.out.flush()
    }

    /// The terminal was resized.
    pub fn resized(&mut self, size: Size) {
        if size == self.size {
            return;
        }
        // The top of the frame has moved to the scrollback, from where only a reflow removes it.
        let lost = self.shown.len() > usize::from(size.height.max(1));
        if self.options.reflow == Reflow::Full && (size.width != self.size.width || lost) {
            self.stale = true;
        }
        self.size = size;
        self.redraw = true;
        if let Some(overlay) = &mut self.overlay {
            overlay.shown = None;
        }
    }

    /// Whether the rows must be printed again before anything else.
    pub fn needs_reflow(&self) -> bool {
        self.stale && self.overlay.is_none()
    }

    /// Erases everything and prints the last of `rows`, the whole transcript, for this width.
    pub fn reflow(&mut self, rows: &[StyledRow], frame: &ScreenFrame) -> io::Result<()> {
        if self.overlay.is_some() {
            self.stale = true;
            self.waiting_frame = Some(frame.clone());
            return Ok(());
        }
        // They are included in `rows`.
        self.waiting.clear();
        self.waiting_frame = None;
        self.stale = false;
        self.redraw = false;
        let mut paint = begin();
        // The scrollback is erased last: some terminals move erased content there.
        paint.raw("\x1b[H\x1b[2J\x1b[3J");
        let from = rows.len().saturating_sub(self.options.reflow_rows);
        let (lines, cursor) = self.clipped(frame);
        self.write_rows(&mut paint, &rows[from..], &mut 0);
        self.write_frame(&mut paint, &lines, 0);
        self.shown = lines;
        self.place_cursor(&mut paint, cursor);
        self.send(paint)
    }

    /// Forces the next frame to be written completely.
    pub fn redraw(&mut self) {
        self.redraw = true;
        if let Some(overlay) = &mut self.overlay {
            overlay.shown = None;
        }
    }

    /// Removes the frame; the cursor is where it began. For the exit, an editor or a suspension:
    /// the next update draws below whatever was printed meanwhile.
    pub fn release(&mut self) -> io::Result<()> {
        self.leave_overlay()?;
        if std::mem::take(&mut self.stale) {
            // There will be no reflow: pending rows are printed as they are.
            let rows = std::mem::take(&mut self.waiting);
            let frame = self.waiting_frame.take().unwrap_or_default();
            self.update(&rows, &frame)?;
        }
        let mut paint = begin();
        paint.up(self.rows_above());
        paint.raw("\r");
        paint.raw(ERASE_BELOW);
        paint.raw(SHOW_CURSOR);
        self.forget();
        self.send(paint)
    }

    /// Another program wrote to the terminal: the frame begins again at the cursor.
    pub fn forget(&mut self) {
        self.shown.clear();
        (self.cursor, self.at, self.redraw) = (None, (0, 0), false);
        self.placement.clear();
    }

    /// Opens the alternate screen.
    pub fn enter_overlay(&mut self) -> io::Result<()> {
        if self.overlay.is_some() {
            return Ok(());
        }
        self.overlay = Some(OverlayScreen::default());
        self.placement.set_overlay(true);
        self.write(b"\x1b[?1049h\x1b[?25l")
    }

    /// Redraws the alternate screen; missing lines are empty.
    pub fn draw_overlay(&mut self, frame: &ScreenFrame) -> io::Result<()> {
        let Some(mut overlay) = self.overlay.take() else {
            return Ok(());
        };
        let height = usize::from(self.size.height);
        let (mut lines, cursor) = self.clipped(frame);
        lines.resize(height.max(1), Line::default());
        if overlay.shown.as_ref() != Some(&lines) || overlay.cursor != cursor {
            let mut paint = begin();
            let fresh = overlay.shown.is_none();
            if fresh {
                paint.raw("\x1b[2J");
            }
            let old = overlay.shown.take().unwrap_or_default();
            for (index, line) in lines.iter().enumerate() {
                let same = old
                    .get(index)
                    .map_or(line.spans.is_empty(), |old| old == line);
                if !same {
                    paint.row(index);
                    self.write_line(&mut paint, line);
                }
            }
            if let Some((column, row)) = cursor {
                paint.row(usize::from(row));
                paint.column(usize::from(column));
                paint.raw(SHOW_CURSOR);
            }
            overlay.shown = Some(lines);
            overlay.cursor = cursor;
            self.overlay = Some(overlay);
            return self.send(paint);
        }
        self.overlay = Some(overlay);
        Ok(())
    }

    /// Back to the scrollback and the frame; pending output is written.
    pub fn leave_overlay(&mut self) -> io::Result<()> {
        if self.overlay.take().is_none() {
            return Ok(());
        }
        self.placement.set_overlay(false);
        let cursor = if self.cursor.is_some() {
            SHOW_CURSOR
        } else {
            HIDE_CURSOR
        };
        self.write(format!("\x1b[?1049l{cursor}").as_bytes())?;
        if self.stale {
            return Ok(());
        }
        let rows = std::mem::take(&mut self.waiting);
        match self.waiting_frame.take() {
            Some(frame) => self.update(&rows, &frame),
            None => Ok(()),
        }
    }
}

fn begin() -> Paint {
    let mut paint = Paint::default();
    paint.raw(SYNC_ON);
    paint.raw(HIDE_CURSOR);
    paint.raw(WRAP_OFF);
    paint
}

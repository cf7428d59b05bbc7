//! Everything that was shown, in order: finished cells, and cells that still grow.
//!
//! It only grows. The model's context may be compressed or rewound; what a person has seen stays.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use hermes_core::approval::ApprovalRequest;
use hermes_core::tool::ToolErrorKind;
use ratatui_core::text::Line;

use crate::cells::{
    AssistantStream, CellContext, CellKind, NoticeCell, ReasoningCell, ToolCell, TranscriptCell,
};
use crate::row::{RowFlow, StyledRow};
use crate::width;

/// Lines of reasoning shown while it is streamed.
const MAX_THOUGHT_LINES: usize = 4;

#[derive(Default)]
pub(crate) struct Transcript {
    /// Finished and printed to the scrollback.
    cells: Vec<Box<dyn TranscriptCell>>,
    /// Cells after those. The first unfinished one holds back the others, so that the scrollback
    /// keeps the order of events.
    live: VecDeque<LiveCell>,
    /// Text of the answer has arrived since the turn or its step began.
    streamed: bool,
    /// Incremented by every change.
    revision: u64,
}

enum LiveCell {
    Text {
        stream: Box<AssistantStream>,
        /// Part of it is in the scrollback.
        has_started: bool,
        done: bool,
    },
    Thought {
        cell: ReasoningCell,
        since: Instant,
        done: bool,
    },
    Tool {
        id: String,
        cell: Box<ToolCell>,
        since: Instant,
        done: bool,
        /// Started by the person, not the model.
        own: bool,
        /// The approval it is waiting for, and since when.
        asks: Option<(String, Instant)>,
        /// How long it has waited for approvals so far.
        waited: Duration,
    },
    Done(Box<dyn TranscriptCell>),
}

impl LiveCell {
    /// A command of the person holds back nothing: its rows are printed when it ends.
    fn runs_beside(&self) -> bool {
        matches!(
            self,
            Self::Tool {
                own: true,
                done: false,
                ..
            }
        )
    }

    fn kind(&self) -> CellKind {
        match self {
            Self::Text { .. } => CellKind::Assistant,
            Self::Thought { .. } => CellKind::Reasoning,
            Self::Tool { .. } => CellKind::Tool,
            Self::Done(cell) => cell.kind(),
        }
    }
}

/// The current activity, for the spinner line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Activity {
    Nothing,
    Thinking,
    Writing,
    /// The text of the tool, and how many others run at the same time.
    Tool(String, usize),
}

impl Transcript {
    /// Adds a finished cell.
    pub(crate) fn push(&mut self, cell: impl TranscriptCell + 'static) {
        self.push_boxed(Box::new(cell));
    }

    /// Adds a cell before the running tools: decisions about them.
    pub(crate) fn push_before_tools(&mut self, cell: impl TranscriptCell + 'static) {
        let running = |live: &LiveCell| {
            matches!(
                live,
                LiveCell::Tool {
                    done: false,
                    own: false,
                    ..
                }
            )
        };
        let at = self.live.iter().position(running);
        let at = at.unwrap_or(self.live.len());
        self.revision += 1;
        self.live.insert(at, LiveCell::Done(Box::new(cell)));
    }

    pub(crate) fn push_boxed(&mut self, cell: Box<dyn TranscriptCell>) {
        self.revision += 1;
        self.live.push_back(LiveCell::Done(cell));
    }

    pub(crate) fn text(&mut self, text: &str, now: Instant) {
        self.revision += 1;
        self.streamed = true;
        let open = self.live.iter_mut().rev().find_map(|live| match live {
            LiveCell::Text {
                stream,
                done: false,
                ..
            } => Some(stream),
            _ => None,
        });
        if let Some(stream) = open {
            stream.push(text);
            return;
        }
        self.end_step(now);
        let mut stream = AssistantStream::default();
        stream.push(text);
        self.live.push_back(LiveCell::Text {
            stream: Box::new(stream),
            has_started: false,
            done: false,
        });
    }

    pub(crate) fn thought(&mut self, text: &str, now: Instant) {
        self.revision += 1;
        let open = self.live.iter_mut().rev().find_map(|live| match live {
            LiveCell::Thought {
                cell, done: false, ..
            } => Some(cell),
            _ => None,
        });
        if let Some(cell) = open {
            cell.push(text);
            return;
        }
        self.end_step(now);
        self.live.push_back(LiveCell::Thought {
            cell: ReasoningCell::new(text),
            since: now,
            done: false,
        });
    }

    /// `own`: started by the person, independent of the turn.
    pub(crate) fn tool_started(
        &mut self,
        id: &str,
        (name, arguments): (&str, &str),
        own: bool,
        now: Instant,
    ) {
        if !own {
            self.end_step(now);
        }
        self.revision += 1;
        let cell = ToolCell::started(name, arguments);
        self.live.push_back(LiveCell::Tool {
            id: id.to_owned(),
            cell: Box::new(if own { cell.by_person() } else { cell }),
            since: now,
            done: false,
            own,
            asks: None,
            waited: Duration::ZERO,
        });
    }

    /// A running tool needs an approval.
    pub(crate) fn tool_awaits_approval(&mut self, request: &ApprovalRequest, now: Instant) {
        self.revision += 1;
        let mut running = self.live.iter_mut().filter_map(|live| match live {
            LiveCell::Tool {
                cell,
                done: false,
                own: false,
                asks: asks @ None,
                ..
            } if cell.name() == request.tool => Some((cell, asks)),
            _ => None,
        });
        let exact = |(cell, _): &(&mut Box<ToolCell>, _)| cell.is_about(&request.action);
        if let Some((cell, asks)) = running.find(exact) {
            cell.awaits_approval(true);
            *asks = Some((request.id.clone(), now));
        }
    }

    /// The approval was answered or withdrawn.
    pub(crate) fn tool_approval_resolved(&mut self, request: &str, now: Instant) {
        self.revision += 1;
        for live in &mut self.live {
            if let LiveCell::Tool {
                cell, asks, waited, ..
            } = live
                && let Some((_, since)) = asks.take_if(|(id, _)| id == request)
            {
                cell.awaits_approval(false);
                *waited += now.saturating_duration_since(since);
            }
        }
    }

    fn tool(&mut self, wanted: &str) -> Option<(&mut ToolCell, &mut bool, Duration)> {
        self.revision += 1;
        self.live.iter_mut().find_map(|live| match live {
            LiveCell::Tool {
                id,
                cell,
                done,
                waited,
                ..
            } if id == wanted && !*done => Some((&mut **cell, done, *waited)),
            _ => None,
        })
    }

    pub(crate) fn tool_progress(&mut self, id: &str, text: &str) {
        if let Some((cell, ..)) = self.tool(id) {
            cell.progress(text);
        }
    }

    pub(crate) fn tool_finished(
        &mut self,
        id: &str,
        name: &str,
        error: Option<ToolErrorKind>,
        preview: &str,
        took: Duration,
    ) {
        if let Some((cell, done, waited)) = self.tool(id) {
            // Waiting for a person does not count as time of the tool.
            cell.finish(error, preview, took.saturating_sub(waited));
            *done = true;
            return;
        }
        // Its start was never reported.
        let mut cell = ToolCell::started(name, "");
        cell.finish(error, preview, took);
        self.push(cell);
    }

    /// The text of this step is not the answer. Text that is already in the scrollback is completed
    /// and followed by a note.
    pub(crate) fn discard(&mut self, why: &str) {
        self.streamed = false;
        let mut seen = false;
        self.live.retain_mut(|live| match live {
            LiveCell::Text {
                has_started: true,
                done,
                ..
            } if !*done => {
                *done = true;
                seen = true;
                true
            }
            LiveCell::Text { done: false, .. } | LiveCell::Thought { done: false, .. } => false,
            _ => true,
        });
        let text = if seen {
            format!("the text above is not the answer: {why}; asking again")
        } else {
            format!("{why}; asking again")
        };
        self.push(NoticeCell::warning(text));
    }

    /// Ends the text of the current step.
    pub(crate) fn end_step(&mut self, now: Instant) {
        for live in &mut self.live {
            match live {
                LiveCell::Text { done, .. } => *done = true,
                LiveCell::Thought { cell, since, done } if !*done => {
                    let took = now.saturating_duration_since(*since);
                    *cell = std::mem::take(cell).took(took);
                    *done = true;
                }
                _ => {}
            }
        }
    }

    /// A turn begins.
    pub(crate) fn begin(&mut self) {
        self.streamed = false;
    }

    /// The turn is over: ends all growing cells. `false`: its text was never shown.
    pub(crate) fn end(&mut self, now: Instant) -> bool {
        self.end_step(now);
        for live in &mut self.live {
            if let LiveCell::Tool {
                done, own: false, ..
            } = live
            {
                *done = true;
            }
        }
        std::mem::take(&mut self.streamed)
    }

    pub(crate) fn activity(&self) -> Activity {
        let mut tools = self.live.iter().filter_map(|live| match live {
            LiveCell::Tool {
                cell, done: false, ..
            } => Some(cell),
            _ => None,
        });
        if let Some(first) = tools.next() {
            return Activity::Tool(first.activity_text(), tools.count());
        }
        let open = self.live.iter().rev().find_map(|live| match live {
            LiveCell::Thought { done: false, .. } => Some(Activity::Thinking),
            LiveCell::Text { done: false, .. } => Some(Activity::Writing),
            _ => None,
        });
        open.unwrap_or(Activity::Nothing)
    }

    /// Rows for the scrollback, each once.
    pub(crate) fn take_rows(&mut self, width: u16, cx: &CellContext<'_>) -> Vec<StyledRow> {
        let mut rows = Vec::new();
        while let Some(index) = self.live.iter().position(|live| !live.runs_beside())
            && let Some(first) = self.live.get_mut(index)
        {
            let apart = self.cells.last().map(|cell| cell.kind());
            let apart = apart.is_some_and(|before| first.kind().apart_from(before));
            match first {
                LiveCell::Text {
                    stream,
                    has_started,
                    done: false,
                } => {
                    let new = stream.take_finished(width, cx);
                    if !new.is_empty() {
                        rows.extend((apart && !*has_started).then(StyledRow::default));
                        *has_started = true;
                    }
                    rows.extend(new);
                    break;
                }
                LiveCell::Thought { done: false, .. } | LiveCell::Tool { done: false, .. } => break,
                _ => {}
            }
            match self.live.remove(index) {
                Some(LiveCell::Text {
                    stream,
                    has_started,
                    ..
                }) => {
                    if stream.is_empty() && !has_started {
                        continue;
                    }
                    let (rest, cell) = stream.finish(width, cx);
                    rows.extend(
                        (apart && !has_started && !rest.is_empty()).then(StyledRow::default),
                    );
                    rows.extend(rest);
                    self.cells.push(Box::new(cell));
                }
                Some(LiveCell::Thought { cell, .. }) if cell.is_empty() => {}
                Some(LiveCell::Thought { cell, .. }) => {
                    self.emit(Box::new(cell), apart, width, cx, &mut rows);
                }
                Some(LiveCell::Tool { cell, .. }) => self.emit(cell, apart, width, cx, &mut rows),
                Some(LiveCell::Done(cell)) => self.emit(cell, apart, width, cx, &mut rows),
                None => {}
            }
        }
        rows
    }

    fn emit(
        &mut self,
        cell: Box<dyn TranscriptCell>,
        apart: bool,
        width: u16,
        cx: &CellContext<'_>,
        rows: &mut Vec<StyledRow>,
    ) {
        let new = cell.rows(width, cx);
        rows.extend((apart && !new.is_empty()).then(StyledRow::default));
        rows.extend(new);
        self.cells.push(cell);
    }

    /// The scrollback again for another width: the last rows, `max_rows` or a few more.
    pub(crate) fn replay(
        &self,
        width: u16,
        max_rows: usize,
        cx: &CellContext<'_>,
    ) -> Vec<StyledRow> {
        let mut parts: Vec<Vec<StyledRow>> = Vec::new();
        let mut count = 0;
        let has_started = self.live.iter().find_map(|live| match live {
            LiveCell::Text {
                stream,
                has_started: true,
                ..
            } => Some(stream),
            _ => None,
        });
        if let Some(stream) = has_started {
            let mut rows = stream.given(width, cx);
            let apart = self.cells.last();
            if apart.is_some_and(|before| CellKind::Assistant.apart_from(before.kind())) {
                rows.insert(0, StyledRow::default());
            }
            count += rows.len();
            parts.push(rows);
        }
        for (index, cell) in self.cells.iter().enumerate().rev() {
            if count >= max_rows {
                break;
            }
            let mut rows = cell.rows(width, cx);
            let before = index
                .checked_sub(1)
                .and_then(|before| self.cells.get(before));
            let apart = before.is_some_and(|before| cell.kind().apart_from(before.kind()));
            if apart && !rows.is_empty() {
                rows.insert(0, StyledRow::default());
            }
            count += rows.len();
            parts.push(rows);
        }
        let mut rows: Vec<StyledRow> = parts.into_iter().rev().flatten().collect();
        let excess = rows.len().saturating_sub(max_rows);
        rows.drain(..excess);
        rows
    }

    /// The complete transcript, with nothing shortened.
    pub(crate) fn whole(&self, width: u16, cx: &CellContext<'_>) -> Vec<StyledRow> {
        let mut rows = Vec::new();
        let mut before: Option<CellKind> = None;
        let mut add = |kind: CellKind, new: Vec<StyledRow>| {
            if new.is_empty() {
                return;
            }
            let apart = before.is_some_and(|before| kind.apart_from(before));
            rows.extend(apart.then(StyledRow::default));
            rows.extend(new);
            before = Some(kind);
        };
        for cell in &self.cells {
            add(cell.kind(), cell.whole(width, cx));
        }
        for live in &self.live {
            let new = match live {
                LiveCell::Text { stream, .. } => {
                    let mut rows = stream.given(width, cx);
                    let tail = stream.tail(width, usize::MAX, cx);
                    rows.extend(tail.into_iter().map(StyledRow::new));
                    rows
                }
                LiveCell::Thought { cell, .. } => cell.whole(width, cx),
                LiveCell::Tool { cell, .. } => cell.whole(width, cx),
                LiveCell::Done(cell) => cell.whole(width, cx),
            };
            add(live.kind(), new);
        }
        rows
    }

    /// The last `max_rows` lines that are not in the scrollback yet.
    pub(crate) fn live_lines(
        &self,
        width: u16,
        max_rows: usize,
        (now, tick): (Instant, usize),
        cx: &CellContext<'_>,
    ) -> Vec<Line<'static>> {
        let mut lines: Vec<Line<'static>> = Vec::new();
        let mut before = self.cells.last().map(|cell| cell.kind());
        for live in &self.live {
            let new = match live {
                LiveCell::Text { stream, .. } => stream.tail(width, max_rows, cx),
                LiveCell::Thought { cell, .. } => {
                    let rows = if cx.reasoning {
                        cell.rows(width, cx)
                    } else {
                        Vec::new()
                    };
                    let skip = rows.len().saturating_sub(MAX_THOUGHT_LINES);
                    clip_rows(rows.into_iter().skip(skip), width)
                }
                LiveCell::Tool {
                    cell, done: true, ..
                } => clip_rows(cell.rows(width, cx), width),
                LiveCell::Tool { cell, since, .. } => {
                    cell.live(width, now.saturating_duration_since(*since), tick, cx)
                }
                LiveCell::Done(cell) => clip_rows(cell.rows(width, cx), width),
            };
            // A text that began in the scrollback continues directly below its own rows.
            let has_started = matches!(
                live,
                LiveCell::Text {
                    has_started: true,
                    ..
                }
            );
            let apart = before.is_some_and(|kind| live.kind().apart_from(kind)) && !has_started;
            if !new.is_empty() {
                lines.extend(apart.then(Line::default));
                lines.extend(new);
                before = Some(live.kind());
            }
        }
        let excess = lines.len().saturating_sub(max_rows);
        lines.drain(..excess);
        lines
    }

    /// Changes whenever the transcript does.
    pub(crate) fn revision(&self) -> u64 {
        self.revision
    }

    /// Whether anything was shown at all.
    pub(crate) fn is_empty(&self) -> bool {
        self.cells.is_empty() && self.live.is_empty()
    }
}

/// Rows as lines of a frame: lines that the terminal would wrap are cut.
fn clip_rows(rows: impl IntoIterator<Item = StyledRow>, columns: u16) -> Vec<Line<'static>> {
    rows.into_iter()
        .map(|row| match row.flow {
            RowFlow::Broken => row.line,
            RowFlow::Unbroken => width::truncate_line(&row.line, usize::from(columns), "…"),
        })
        .collect()
}

//! Everything that was shown, in order: finished cells, and those that still grow.
//!
//! It only grows. What the model is sent may be compressed or rewound; what a person has seen stays.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use hermes_core::approval::ApprovalRequest;
use hermes_core::tool::ToolErrorKind;
use ratatui_core::text::Line;

use crate::cells::{
    AssistantStream, Cell, CellContext, CellKind, NoticeCell, ReasoningCell, ToolCell,
};
use crate::row::{Flow, Row};
use crate::width;

/// Lines of a thought that are shown while it goes on.
const THOUGHT_LINES: usize = 4;

#[derive(Default)]
pub(crate) struct Transcript {
    /// Finished, and given out for the scrollback.
    cells: Vec<Box<dyn Cell>>,
    /// What comes after them. The first that is not finished holds back the others, so that the order
    /// of the scrollback is the order of what happened.
    live: VecDeque<Live>,
    /// Text of the answer has come since the turn or its step began.
    streamed: bool,
    /// Counts what happened to it.
    revision: u64,
}

enum Live {
    Text {
        stream: Box<AssistantStream>,
        /// Some of it is in the scrollback.
        begun: bool,
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
        /// The person started it, not the model.
        own: bool,
        /// The approval that it waits for, and since when.
        asks: Option<(String, Instant)>,
        /// How long it waited for approvals so far.
        waited: Duration,
    },
    Done(Box<dyn Cell>),
}

impl Live {
    /// A command of the person holds back nothing: its rows come when it ends.
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

/// What goes on, for the line with the running sign.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Doing {
    Nothing,
    Thinking,
    Writing,
    /// The words of the tool, and how many others run beside it.
    Tool(String, usize),
}

impl Transcript {
    /// Something that is finished as it comes.
    pub(crate) fn push(&mut self, cell: impl Cell + 'static) {
        self.push_boxed(Box::new(cell));
    }

    /// Before the tools that run: what was decided about them.
    pub(crate) fn push_before_tools(&mut self, cell: impl Cell + 'static) {
        let running = |live: &Live| {
            matches!(
                live,
                Live::Tool {
                    done: false,
                    own: false,
                    ..
                }
            )
        };
        let at = self.live.iter().position(running);
        let at = at.unwrap_or(self.live.len());
        self.revision += 1;
        self.live.insert(at, Live::Done(Box::new(cell)));
    }

    pub(crate) fn push_boxed(&mut self, cell: Box<dyn Cell>) {
        self.revision += 1;
        self.live.push_back(Live::Done(cell));
    }

    pub(crate) fn text(&mut self, text: &str, now: Instant) {
        self.revision += 1;
        self.streamed = true;
        let open = self.live.iter_mut().rev().find_map(|live| match live {
            Live::Text {
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
        self.live.push_back(Live::Text {
            stream: Box::new(stream),
            begun: false,
            done: false,
        });
    }

    pub(crate) fn thought(&mut self, text: &str, now: Instant) {
        self.revision += 1;
        let open = self.live.iter_mut().rev().find_map(|live| match live {
            Live::Thought {
                cell, done: false, ..
            } => Some(cell),
            _ => None,
        });
        if let Some(cell) = open {
            cell.push(text);
            return;
        }
        self.end_step(now);
        self.live.push_back(Live::Thought {
            cell: ReasoningCell::new(text),
            since: now,
            done: false,
        });
    }

    /// `own`: the person's, beside the turn.
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
        self.live.push_back(Live::Tool {
            id: id.to_owned(),
            cell: Box::new(if own { cell.by_person() } else { cell }),
            since: now,
            done: false,
            own,
            asks: None,
            waited: Duration::ZERO,
        });
    }

    /// A tool that runs wants to do something that a person must allow first.
    pub(crate) fn tool_asks(&mut self, request: &ApprovalRequest, now: Instant) {
        self.revision += 1;
        let mut running = self.live.iter_mut().filter_map(|live| match live {
            Live::Tool {
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
            cell.waits(true);
            *asks = Some((request.id.clone(), now));
        }
    }

    /// It was answered, or nobody wants to know any more.
    pub(crate) fn tool_answered(&mut self, request: &str, now: Instant) {
        self.revision += 1;
        for live in &mut self.live {
            if let Live::Tool {
                cell, asks, waited, ..
            } = live
                && let Some((_, since)) = asks.take_if(|(id, _)| id == request)
            {
                cell.waits(false);
                *waited += now.saturating_duration_since(since);
            }
        }
    }

    fn tool(&mut self, wanted: &str) -> Option<(&mut ToolCell, &mut bool, Duration)> {
        self.revision += 1;
        self.live.iter_mut().find_map(|live| match live {
            Live::Tool {
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
            // A person's time is not the tool's.
            cell.finish(error, preview, took.saturating_sub(waited));
            *done = true;
            return;
        }
        // Its beginning was never told.
        let mut cell = ToolCell::started(name, "");
        cell.finish(error, preview, took);
        self.push(cell);
    }

    /// The text of this step is not the answer. What nobody can take back from the scrollback is
    /// completed and followed by a word about it.
    pub(crate) fn discard(&mut self, why: &str) {
        self.streamed = false;
        let mut seen = false;
        self.live.retain_mut(|live| match live {
            Live::Text {
                begun: true, done, ..
            } if !*done => {
                *done = true;
                seen = true;
                true
            }
            Live::Text { done: false, .. } | Live::Thought { done: false, .. } => false,
            _ => true,
        });
        let text = if seen {
            format!("the text above is not the answer: {why}; asking again")
        } else {
            format!("{why}; asking again")
        };
        self.push(NoticeCell::warning(text));
    }

    /// No more text comes to what has come so far.
    pub(crate) fn end_step(&mut self, now: Instant) {
        for live in &mut self.live {
            match live {
                Live::Text { done, .. } => *done = true,
                Live::Thought { cell, since, done } if !*done => {
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

    /// The turn is over: nothing grows any more. `false`: its text was never shown.
    pub(crate) fn end(&mut self, now: Instant) -> bool {
        self.end_step(now);
        for live in &mut self.live {
            if let Live::Tool {
                done, own: false, ..
            } = live
            {
                *done = true;
            }
        }
        std::mem::take(&mut self.streamed)
    }

    pub(crate) fn doing(&self) -> Doing {
        let mut tools = self.live.iter().filter_map(|live| match live {
            Live::Tool {
                cell, done: false, ..
            } => Some(cell),
            _ => None,
        });
        if let Some(first) = tools.next() {
            return Doing::Tool(first.doing(), tools.count());
        }
        let open = self.live.iter().rev().find_map(|live| match live {
            Live::Thought { done: false, .. } => Some(Doing::Thinking),
            Live::Text { done: false, .. } => Some(Doing::Writing),
            _ => None,
        });
        open.unwrap_or(Doing::Nothing)
    }

    /// Rows for the scrollback, each once.
    pub(crate) fn take_rows(&mut self, width: u16, cx: &CellContext<'_>) -> Vec<Row> {
        let mut rows = Vec::new();
        while let Some(index) = self.live.iter().position(|live| !live.runs_beside())
            && let Some(first) = self.live.get_mut(index)
        {
            let apart = self.cells.last().map(|cell| cell.kind());
            let apart = apart.is_some_and(|before| first.kind().apart_from(before));
            match first {
                Live::Text {
                    stream,
                    begun,
                    done: false,
                } => {
                    let new = stream.take_finished(width, cx);
                    if !new.is_empty() {
                        rows.extend((apart && !*begun).then(Row::default));
                        *begun = true;
                    }
                    rows.extend(new);
                    break;
                }
                Live::Thought { done: false, .. } | Live::Tool { done: false, .. } => break,
                _ => {}
            }
            match self.live.remove(index) {
                Some(Live::Text { stream, begun, .. }) => {
                    if stream.is_empty() && !begun {
                        continue;
                    }
                    let (rest, cell) = stream.finish(width, cx);
                    rows.extend((apart && !begun && !rest.is_empty()).then(Row::default));
                    rows.extend(rest);
                    self.cells.push(Box::new(cell));
                }
                Some(Live::Thought { cell, .. }) if cell.is_empty() => {}
                Some(Live::Thought { cell, .. }) => {
                    self.give(Box::new(cell), apart, width, cx, &mut rows);
                }
                Some(Live::Tool { cell, .. }) => self.give(cell, apart, width, cx, &mut rows),
                Some(Live::Done(cell)) => self.give(cell, apart, width, cx, &mut rows),
                None => {}
            }
        }
        rows
    }

    fn give(
        &mut self,
        cell: Box<dyn Cell>,
        apart: bool,
        width: u16,
        cx: &CellContext<'_>,
        rows: &mut Vec<Row>,
    ) {
        let new = cell.rows(width, cx);
        rows.extend((apart && !new.is_empty()).then(Row::default));
        rows.extend(new);
        self.cells.push(cell);
    }

    /// What is in the scrollback, once more for another width: the last rows, `most` or a few more.
    pub(crate) fn replay(&self, width: u16, most: usize, cx: &CellContext<'_>) -> Vec<Row> {
        let mut parts: Vec<Vec<Row>> = Vec::new();
        let mut count = 0;
        let begun = self.live.iter().find_map(|live| match live {
            Live::Text {
                stream,
                begun: true,
                ..
            } => Some(stream),
            _ => None,
        });
        if let Some(stream) = begun {
            let mut rows = stream.given(width, cx);
            let apart = self.cells.last();
            if apart.is_some_and(|before| CellKind::Assistant.apart_from(before.kind())) {
                rows.insert(0, Row::default());
            }
            count += rows.len();
            parts.push(rows);
        }
        for (index, cell) in self.cells.iter().enumerate().rev() {
            if count >= most {
                break;
            }
            let mut rows = cell.rows(width, cx);
            let before = index
                .checked_sub(1)
                .and_then(|before| self.cells.get(before));
            let apart = before.is_some_and(|before| cell.kind().apart_from(before.kind()));
            if apart && !rows.is_empty() {
                rows.insert(0, Row::default());
            }
            count += rows.len();
            parts.push(rows);
        }
        let mut rows: Vec<Row> = parts.into_iter().rev().flatten().collect();
        let over = rows.len().saturating_sub(most);
        rows.drain(..over);
        rows
    }

    /// Everything, with nothing shortened.
    pub(crate) fn whole(&self, width: u16, cx: &CellContext<'_>) -> Vec<Row> {
        let mut rows = Vec::new();
        let mut before: Option<CellKind> = None;
        let mut add = |kind: CellKind, new: Vec<Row>| {
            if new.is_empty() {
                return;
            }
            let apart = before.is_some_and(|before| kind.apart_from(before));
            rows.extend(apart.then(Row::default));
            rows.extend(new);
            before = Some(kind);
        };
        for cell in &self.cells {
            add(cell.kind(), cell.whole(width, cx));
        }
        for live in &self.live {
            let new = match live {
                Live::Text { stream, .. } => {
                    let mut rows = stream.given(width, cx);
                    let tail = stream.tail(width, usize::MAX, cx);
                    rows.extend(tail.into_iter().map(Row::new));
                    rows
                }
                Live::Thought { cell, .. } => cell.whole(width, cx),
                Live::Tool { cell, .. } => cell.whole(width, cx),
                Live::Done(cell) => cell.whole(width, cx),
            };
            add(live.kind(), new);
        }
        rows
    }

    /// What is not in the scrollback yet: the last `most` lines of it.
    pub(crate) fn live_lines(
        &self,
        width: u16,
        most: usize,
        (now, tick): (Instant, usize),
        cx: &CellContext<'_>,
    ) -> Vec<Line<'static>> {
        let mut lines: Vec<Line<'static>> = Vec::new();
        let mut before = self.cells.last().map(|cell| cell.kind());
        for live in &self.live {
            let new = match live {
                Live::Text { stream, .. } => stream.tail(width, most, cx),
                Live::Thought { cell, .. } => {
                    let rows = if cx.reasoning {
                        cell.rows(width, cx)
                    } else {
                        Vec::new()
                    };
                    let skip = rows.len().saturating_sub(THOUGHT_LINES);
                    fitting(rows.into_iter().skip(skip), width)
                }
                Live::Tool {
                    cell, done: true, ..
                } => fitting(cell.rows(width, cx), width),
                Live::Tool { cell, since, .. } => {
                    cell.live(width, now.saturating_duration_since(*since), tick, cx)
                }
                Live::Done(cell) => fitting(cell.rows(width, cx), width),
            };
            // A text that goes on in the scrollback stands below its own rows.
            let begun = matches!(live, Live::Text { begun: true, .. });
            let apart = before.is_some_and(|kind| live.kind().apart_from(kind)) && !begun;
            if !new.is_empty() {
                lines.extend(apart.then(Line::default));
                lines.extend(new);
                before = Some(live.kind());
            }
        }
        let over = lines.len().saturating_sub(most);
        lines.drain(..over);
        lines
    }

    /// Differs when the transcript does.
    pub(crate) fn revision(&self) -> u64 {
        self.revision
    }

    /// Whether anything was said at all.
    pub(crate) fn is_empty(&self) -> bool {
        self.cells.is_empty() && self.live.is_empty()
    }
}

/// Rows as lines of a frame: what the terminal would break is cut.
fn fitting(rows: impl IntoIterator<Item = Row>, columns: u16) -> Vec<Line<'static>> {
    rows.into_iter()
        .map(|row| match row.flow {
            Flow::Broken => row.line,
            Flow::Unbroken => width::truncate_line(&row.line, usize::from(columns), "…"),
        })
        .collect()
}

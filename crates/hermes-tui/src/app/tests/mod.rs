//! The state under scripted keys and news, with time that the test passes.

mod any;
mod asked;
mod busy;
mod covered;
mod frames;
mod shown;

use std::time::{Duration, Instant};

use hermes_core::approval::{ApprovalRequest, Rule};
use hermes_core::event::{AgentCommand, AgentEvent, SequencedEvent, TurnExit, TurnSummary};
use hermes_core::ids::{SessionId, TurnId};
use hermes_core::model::{Route, WireFormat};
use hermes_core::usage::{Cost, PriceSource, Usage};
use ratatui_core::text::Line;

use super::AppOptions;
use super::frame::Drawing;
use super::state::{App, Appearance, UiRequest};
use crate::composer::{CompletionCommand, Composer, ComposerSetup};
use crate::input::TerminalInput;
use crate::keys::KeyPress;
use crate::port::{HostUpdate, McpCount, SessionStatus, UiAsk};

/// An interface without a terminal.
pub(super) struct AppHarness {
    pub(super) app: App,
    pub(super) now: Instant,
    /// What went to the scrollback.
    pub(super) printed: Vec<String>,
    pub(super) asks: Vec<UiAsk>,
    pub(super) others: Vec<UiRequest>,
    size: (u16, u16),
    seq: u64,
}

impl AppHarness {
    pub(super) fn new() -> Self {
        Self::with(|_| {})
    }

    pub(super) fn with(change: impl FnOnce(&mut AppOptions)) -> Self {
        let mut options = AppOptions::new("0.1", status());
        change(&mut options);
        let (composer, _) = Composer::new(ComposerSetup {
            commands: CompletionCommand::all(),
            ..ComposerSetup::default()
        });
        let appearance = Appearance {
            colour: true,
            ascii: false,
            hyperlinks: false,
            clock: || "12:34".to_owned(),
        };
        let mut bench = Self {
            app: App::new(options, composer, appearance),
            now: Instant::now(),
            printed: Vec::new(),
            asks: Vec::new(),
            others: Vec::new(),
            size: (80, 24),
            seq: 0,
        };
        bench.draw();
        bench
    }

    pub(super) fn sized(mut self, width: u16, height: u16) -> Self {
        self.size = (width, height);
        self
    }

    pub(super) fn draw(&mut self) -> Drawing {
        for wish in self.app.take_requests() {
            match wish {
                UiRequest::Send(ask) => self.asks.push(ask),
                other => self.others.push(other),
            }
        }
        let drawing = self.app.draw(self.size.0, self.size.1, self.now);
        self.printed
            .extend(drawing.rows.iter().map(|row| text(&row.line)));
        drawing
    }

    /// The frame as text.
    pub(super) fn frame(&mut self) -> String {
        let drawing = self.draw();
        let frame = drawing.overlay.as_ref().unwrap_or(&drawing.frame);
        frame.lines.iter().map(text).collect::<Vec<_>>().join("\n")
    }

    pub(super) fn press(&mut self, keys: &str) {
        for key in keys.split_whitespace() {
            let key: KeyPress = key.parse().unwrap();
            self.app.input(TerminalInput::Key(key), self.now);
            self.draw();
        }
    }

    pub(super) fn write(&mut self, words: &str) {
        for c in words.chars() {
            self.app
                .input(TerminalInput::Key(KeyPress::char(c)), self.now);
            self.draw();
        }
    }

    /// Time passes; what was due happens.
    pub(super) fn pass(&mut self, millis: u64) {
        let until = self.now + Duration::from_millis(millis);
        let mut turns = 0;
        while let Some(wakes) = self
            .app
            .next_wakeup(self.now)
            .filter(|wakes| *wakes <= until)
        {
            self.now = self.now.max(wakes);
            self.app.tick(self.now);
            self.draw();
            turns += 1;
            assert!(turns < 10_000, "it wakes without end");
        }
        self.now = until;
        self.app.tick(self.now);
        self.draw();
    }

    pub(super) fn update(&mut self, update: HostUpdate) {
        self.app.on_port_event(update, self.now);
        self.draw();
    }

    pub(super) fn event(&mut self, event: AgentEvent) {
        self.seq += 1;
        self.update(HostUpdate::Event(SequencedEvent {
            seq: self.seq,
            turn: Some(TurnId(1)),
            event,
        }));
    }

    pub(super) fn begin(&mut self) {
        self.event(AgentEvent::TurnStarted {
            session: SessionId::new("s"),
            route: route(),
        });
    }

    pub(super) fn says(&mut self, words: &str) {
        self.event(AgentEvent::TextDelta {
            text: words.to_owned(),
        });
    }

    pub(super) fn end(&mut self, exit: TurnExit) {
        self.event(AgentEvent::TurnFinished {
            summary: summary(exit),
        });
    }

    pub(super) fn approval(&mut self, id: &str, action: &str) {
        self.event(AgentEvent::ApprovalNeeded {
            request: request(id, action),
        });
    }

    /// Commands to the session since the last look.
    pub(super) fn commands(&mut self) -> Vec<AgentCommand> {
        self.draw();
        std::mem::take(&mut self.asks)
            .into_iter()
            .filter_map(|ask| match ask {
                UiAsk::Command(command) => Some(command),
                _ => None,
            })
            .collect()
    }

    pub(super) fn left(&mut self) -> bool {
        self.draw();
        self.others.contains(&UiRequest::Leave)
    }

    pub(super) fn count(&self, words: &str) -> usize {
        self.printed
            .iter()
            .filter(|row| row.contains(words))
            .count()
    }
}

pub(super) fn text(line: &Line<'_>) -> String {
    let text: String = line.spans.iter().map(|span| &*span.content).collect();
    text.trim_end().to_owned()
}

pub(super) fn status() -> SessionStatus {
    SessionStatus {
        model: "qwen3:8b".to_owned(),
        provider: "ollama".to_owned(),
        remark: Some("local".to_owned()),
        session: "s".to_owned(),
        cwd: "/srv/proj".into(),
        branch: Some("main".to_owned()),
        tools: 19,
        approvals: "ask".to_owned(),
        mcp: Some(McpCount {
            connected: 2,
            configured: 3,
            starting: 0,
        }),
        gateway: Some("tg".to_owned()),
        context: Some((18_000, 131_072)),
        cost: Some(0.01),
        ..SessionStatus::default()
    }
}

fn route() -> Route {
    Route {
        provider: "ollama".to_owned(),
        model: "qwen3:8b".to_owned(),
        base_url: String::new(),
        format: WireFormat::ChatCompletions,
        credential: None,
    }
}

pub(super) fn summary(exit: TurnExit) -> TurnSummary {
    TurnSummary {
        exit,
        text: String::new(),
        usage: Usage {
            input: 6_400,
            cache_read: 12_000,
            output: 512,
            ..Usage::default()
        },
        cost: Cost::Estimated {
            usd: 0.011,
            source: PriceSource::OfficialDocsSnapshot,
        },
        calls: 2,
        tool_calls: 3,
        millis: 21_000,
        pending_steer: None,
    }
}

pub(super) fn request(id: &str, action: &str) -> ApprovalRequest {
    ApprovalRequest {
        kind: hermes_core::approval::ApprovalKind::Action,
        id: id.to_owned(),
        tool: "terminal".to_owned(),
        action: action.to_owned(),
        reasons: vec!["recursive delete".to_owned(), "force push".to_owned()],
        rule: Some(Rule("git push --force origin *".to_owned())),
        posture: Some("local, sandbox: landlock".to_owned()),
    }
}

//! The interface with a made-up program behind it: every kind of thing that can be shown, without a
//! model. `cargo run -p hermes-tui --example scripted`

use std::process::ExitCode;
use std::time::Duration;

use hermes_config::schema::Tui;
use hermes_core::approval::{ApprovalRequest, Rule};
use hermes_core::ask::{Choice, Question, Want};
use hermes_core::event::{AgentCommand, AgentEvent, SequencedEvent, TurnExit, TurnSummary};
use hermes_core::front_end::{Effect, ShownText, TextKind};
use hermes_core::ids::{SessionId, TurnId};
use hermes_core::model::{Route, WireFormat};
use hermes_core::usage::{Cost, PriceSource, Usage};
use hermes_tui::app::{self, AppOptions, ExitReason};
use hermes_tui::port::{self, HostPort, HostUpdate, McpCount, SessionStatus, UiAsk};

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    let (port, host) = port::pair();
    let mut options = AppOptions::new(env!("CARGO_PKG_VERSION"), status());
    options.keep = std::env::var_os("SCRIPTED_KEEP").map(Into::into);
    options.tui = Tui {
        screen: std::env::var("SCRIPTED_SCREEN")
            .ok()
            .map(|word| word.as_str().into()),
        ..Tui::default()
    };
    let program = hermes_core::task::spawn("program", program(host));
    let ended = app::run(port, options).await;
    drop(program.await);
    match ended {
        Ok(ExitReason::UserLeft) => ExitCode::SUCCESS,
        _ => ExitCode::FAILURE,
    }
}

fn status() -> SessionStatus {
    SessionStatus {
        model: "qwen3:8b".to_owned(),
        provider: "ollama".to_owned(),
        remark: Some("local".to_owned()),
        session: "scripted".to_owned(),
        cwd: std::env::current_dir().unwrap_or_default(),
        branch: Some("main".to_owned()),
        tools: 19,
        approvals: "ask".to_owned(),
        mcp: Some(McpCount {
            connected: 2,
            configured: 3,
            ..McpCount::default()
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

struct Program {
    host: HostPort,
    seq: u64,
}

async fn program(host: HostPort) {
    let mut program = Program { host, seq: 0 };
    while let Some(ask) = program.host.asks.recv().await {
        match ask {
            UiAsk::Command(AgentCommand::Submit(input)) => {
                let stays = program.turn(&input.text).await;
                if !stays {
                    return;
                }
            }
            UiAsk::Slash(line) if line == "/quit" => {
                program.tell(HostUpdate::Effect(Effect::Leave)).await;
            }
            UiAsk::Slash(line) => {
                program
                    .tell(HostUpdate::Effect(Effect::Say(ShownText {
                        kind: TextKind::Info,
                        text: format!("{line}: nothing is behind this"),
                    })))
                    .await;
                program.tell(HostUpdate::Done).await;
            }
            UiAsk::Shell(_) | UiAsk::Stop => program.tell(HostUpdate::Done).await,
            UiAsk::Leave => return,
            _ => {}
        }
    }
}

impl Program {
    async fn tell(&mut self, update: HostUpdate) {
        // The interface may be gone.
        let _ = self.host.updates.send(update).await;
    }

    async fn event(&mut self, event: AgentEvent) {
        self.seq += 1;
        let event = SequencedEvent {
            seq: self.seq,
            turn: Some(TurnId(1)),
            event,
        };
        self.tell(HostUpdate::Event(event)).await;
    }

    /// `false`: the person left in the middle.
    async fn turn(&mut self, text: &str) -> bool {
        self.event(AgentEvent::TurnStarted {
            session: SessionId::new("scripted"),
            route: route(),
        })
        .await;
        let Some(exit) = self.work(text).await else {
            return false;
        };
        self.event(AgentEvent::TurnFinished {
            summary: TurnSummary {
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
                tool_calls: 1,
                millis: 2_100,
                pending_steer: None,
            },
        })
        .await;
        true
    }

    async fn work(&mut self, text: &str) -> Option<TurnExit> {
        if text.contains("approve") {
            for id in ["1", "2"] {
                self.event(AgentEvent::ApprovalNeeded {
                    request: ApprovalRequest {
                        kind: hermes_core::approval::ApprovalKind::Action,
                        id: id.to_owned(),
                        tool: "terminal".to_owned(),
                        action: "rm -rf build && git push --force origin main".to_owned(),
                        reasons: vec!["recursive delete".to_owned(), "force push".to_owned()],
                        rule: Some(Rule("git push --force origin *".to_owned())),
                        posture: Some("local, sandbox: landlock".to_owned()),
                    },
                })
                .await;
            }
            for _ in 0..2 {
                if let Some(exit) = self.answered().await? {
                    return Some(exit);
                }
            }
        }
        if text.contains("choose") {
            self.event(AgentEvent::QuestionAsked {
                question: Question {
                    id: "3".to_owned(),
                    from: "clarify".to_owned(),
                    text: "Which database shall it be?".to_owned(),
                    want: Want::Choice {
                        options: ["PostgreSQL", "SQLite"].map(Choice::plain).to_vec(),
                        other: true,
                    },
                },
            })
            .await;
            if let Some(exit) = self.answered().await? {
                return Some(exit);
            }
        }
        self.event(AgentEvent::ToolStarted {
            call_id: "t".to_owned(),
            name: "terminal".to_owned(),
            arguments: r#"{"command":"cargo test parser"}"#.to_owned(),
        })
        .await;
        for line in 0..10 {
            if let Some(exit) = self.pause(100).await? {
                return Some(exit);
            }
            self.event(AgentEvent::ToolProgress {
                call_id: "t".to_owned(),
                text: format!("test number {line} ... ok\n"),
            })
            .await;
        }
        self.event(AgentEvent::ToolFinished {
            call_id: "t".to_owned(),
            name: "terminal".to_owned(),
            error: None,
            preview: "10 tests passed".to_owned(),
            millis: 1_000,
        })
        .await;
        let words = std::env::var("SCRIPTED_WORDS")
            .ok()
            .and_then(|words| words.parse().ok());
        for word in 0..words.unwrap_or(200) {
            let end = if word % 23 == 22 { ".\n\n" } else { " " };
            self.event(AgentEvent::TextDelta {
                text: format!("word{word}{end}"),
            })
            .await;
            if word % 10 == 0
                && let Some(exit) = self.pause(20).await?
            {
                return Some(exit);
            }
        }
        Some(TurnExit::Answered)
    }

    /// Some time, unless the person stops it. `None`: they left.
    async fn pause(&mut self, millis: u64) -> Option<Option<TurnExit>> {
        let wait = tokio::time::sleep(Duration::from_millis(millis));
        tokio::pin!(wait);
        loop {
            tokio::select! {
                () = &mut wait => return Some(None),
                ask = self.host.asks.recv() => match ask? {
                    UiAsk::Command(AgentCommand::Interrupt) => return Some(Some(TurnExit::Interrupted)),
                    UiAsk::Command(AgentCommand::Steer(text)) => {
                        self.event(AgentEvent::Steered { text }).await;
                    }
                    UiAsk::Leave => return None,
                    _ => {}
                },
            }
        }
    }

    async fn answered(&mut self) -> Option<Option<TurnExit>> {
        loop {
            match self.host.asks.recv().await? {
                UiAsk::Command(AgentCommand::Answer { .. } | AgentCommand::Reply { .. }) => {
                    return Some(None);
                }
                UiAsk::Command(AgentCommand::Interrupt) => {
                    return Some(Some(TurnExit::Interrupted));
                }
                UiAsk::Leave => return None,
                _ => {}
            }
        }
    }
}

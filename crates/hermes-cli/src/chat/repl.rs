//! The line chat: a prompt, streaming answers, Ctrl+C to interrupt; no sequence for the terminal.

use hermes_agent::EventReceiver;
use hermes_app::{CommandFollowUp, Conversation, Surface, images, replay, slash_commands};
use hermes_core::event::{AgentCommand, AgentEvent, SequencedEvent, TurnExit};
use hermes_core::front_end::{DisplaySetting, Effect, ShownText, TextKind, TranscriptEntry};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::mpsc;

use super::TerminalConflict;
use super::ask::TerminalQuestions;
use super::lines::{TypedLine, TypedLines};
use super::render::Renderer;
use crate::args::TurnArgs;
use crate::commands::{Context, counted};
use crate::exit::{Exit, Failure, Outcome};

/// How much of a message that was not sent is shown again.
const MAX_DRAFT_PREVIEW: usize = 60;

/// The state of a line chat.
struct Repl<'a> {
    cx: &'a Context,
    conversation: Conversation,
    events: EventReceiver,
    /// Output of background work.
    later: mpsc::Receiver<Effect>,
    renderer: Renderer,
    interrupts: Signal,
    questions: TerminalQuestions,
    /// Unsent text: Enter on an empty line sends it.
    draft: Option<String>,
}

/// What to do after a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum AfterLine {
    Prompt,
    Leave,
}

pub(super) async fn run(args: TurnArgs, cx: &Context) -> Outcome {
    let (mut conversation, later) =
        Conversation::open((&args).into(), cx, Surface::Line, &TerminalConflict).await?;
    let Some(events) = conversation.opened.take() else {
        return Err(ended());
    };
    let chat = &conversation.chat;
    let limit = cx.approval_limit();
    let renderer = Renderer::live(cx.out, conversation.options.verbose, chat.id.clone());
    cx.out.line(cx.out.dim(&chat.banner()))?;
    images::warn_if_unseen(&conversation.images, chat, cx);
    if let Some(why) = &chat.missing {
        cx.out
            .remark(format!("hermes: {}", Failure::from(why.clone()).message));
    }
    let mut repl = Repl {
        cx,
        conversation,
        events,
        later,
        renderer,
        interrupts: signal(SignalKind::interrupt())?,
        questions: TerminalQuestions::new(limit),
        draft: None,
    };
    if repl.conversation.chat.used {
        repl.say_where_we_are().await?;
    }
    let mut lines = TypedLines::open(cx.out)?;
    let talked = repl.converse(&mut lines).await;
    let Repl {
        conversation,
        events,
        ..
    } = repl;
    let id = conversation.chat.id.clone();
    let used = conversation.chat.used && !conversation.forget;
    let resume = || {
        if used {
            cx.out.remark(format!("resume with: hermes -r {id}"));
        }
    };
    if let Err(failure) = talked {
        resume();
        return Err(failure);
    }
    drop(events);
    conversation.leave().await?;
    resume();
    Ok(())
}

impl Repl<'_> {
    /// Names the resumed session and shows its last exchange.
    async fn say_where_we_are(&self) -> Outcome {
        let chat = &self.conversation.chat;
        let name = match &self.conversation.title {
            Some(title) => format!("{title:?}"),
            None => chat.id.to_string(),
        };
        let entries = replay::entries(&chat.store, &chat.id).await?;
        let count = counted(entries.len(), "message");
        let line = format!("resuming {name}: {count}, /history shows them");
        self.cx.out.line(self.cx.out.dim(&line))?;
        let last = entries
            .iter()
            .rposition(|entry| matches!(entry, TranscriptEntry::User(_)))
            .unwrap_or(0);
        for line in replay::lines(entries.get(last..).unwrap_or_default()) {
            self.cx.out.foreign_line(&line)?;
        }
        if let Some(note) =
            replay::unanswered(&entries).filter(|_| !self.conversation.is_watching())
        {
            self.cx.out.remark(note);
        }
        Ok(())
    }

    /// Reads and executes lines until the person quits.
    async fn converse(&mut self, lines: &mut TypedLines) -> Outcome {
        let mut leaving = false;
        loop {
            let line = tokio::select! {
                biased;
                line = lines.read(&mut self.interrupts) => line?,
                event = self.events.recv() => {
                    lines.pause()?;
                    self.unasked(event).await?;
                    continue;
                }
                Some(effect) = self.later.recv() => {
                    lines.pause()?;
                    self.show(effect)?;
                    continue;
                }
            };
            match line {
                TypedLine::Text(text) => {
                    leaving = false;
                    if self.line(&text).await? == AfterLine::Leave {
                        return Ok(());
                    }
                }
                TypedLine::Interrupted if leaving => return Ok(()),
                TypedLine::Interrupted => {
                    leaving = true;
                    self.cx.out.remark("(Ctrl+C again to quit)");
                }
                TypedLine::End => return Ok(()),
            }
        }
    }

    /// Events while the person is typing: a background process or subagents report. A turn that
    /// starts by itself is shown to its end.
    async fn unasked(&mut self, event: Option<SequencedEvent>) -> Outcome {
        let Some(event) = event else {
            return Err(ended());
        };
        self.event(&event)?;
        if matches!(event.event, AgentEvent::TurnStarted { .. }) {
            let why = "background work has reported; continuing with it";
            self.cx.out.remark(self.cx.out.dim(why));
            self.follow(CommandFollowUp::Turn).await?;
        }
        Ok(())
    }

    fn event(&mut self, event: &SequencedEvent) -> Outcome {
        self.conversation.observe(&event.event);
        self.renderer.event(event)?;
        self.questions.event(&event.event);
        Ok(())
    }

    async fn line(&mut self, text: &str) -> Result<AfterLine, Failure> {
        let restored_draft = self.draft.take_if(|_| text.trim().is_empty());
        let text = restored_draft.as_deref().unwrap_or(text);
        if text.trim().is_empty() {
            return Ok(AfterLine::Prompt);
        }
        let done = {
            let work = async {
                match slash_commands::line(&mut self.conversation, text).await {
                    Some(done) => done,
                    None => self.conversation.ask(text.trim_end()).await,
                }
            };
            // Events of the session meanwhile; a session that is replaced ends here.
            let events = &mut self.events;
            let mut notices = Vec::new();
            let mut is_over = false;
            tokio::pin!(work);
            let done = loop {
                tokio::select! {
                    biased;
                    done = &mut work => break done,
                    event = events.recv(), if !is_over => match event {
                        Some(event) => notices.push(event),
                        None => is_over = true,
                    },
                    _ = self.interrupts.recv() => break Err(Failure::usage("stopped")),
                }
            };
            (done, notices)
        };
        let (done, notices) = done;
        for event in notices {
            self.event(&event)?;
        }
        self.take_opened();
        // A command that failed is no reason to leave the chat.
        let result = match done {
            Ok(result) => result,
            Err(failure) => {
                self.cx.out.error(failure.message);
                return Ok(AfterLine::Prompt);
            }
        };
        let leaves = result.effects.contains(&Effect::Leave);
        for effect in result.effects {
            self.show(effect)?;
        }
        if leaves {
            return Ok(AfterLine::Leave);
        }
        if result.then != CommandFollowUp::Nothing {
            self.follow(result.then).await?;
        }
        if result.then == CommandFollowUp::Turn {
            self.draft = None;
        }
        if result.then == CommandFollowUp::Turn
            && let Some(effect) = self.conversation.settle_title().await
        {
            self.show(effect)?;
        }
        Ok(AfterLine::Prompt)
    }

    fn take_opened(&mut self) {
        if let Some(events) = self.conversation.opened.take() {
            self.events = events;
            self.restart_renderer();
        }
    }

    /// Another session, or another way to show this one.
    fn restart_renderer(&mut self) {
        let verbose = self.conversation.shown.verbose;
        self.renderer = Renderer::live(self.cx.out, verbose, self.conversation.chat.id.clone());
    }

    /// What a command did, as lines.
    fn show(&mut self, effect: Effect) -> Outcome {
        let out = self.cx.out;
        match effect {
            Effect::Say(ShownText { kind, text }) => match kind {
                TextKind::Warning => out.error(text),
                TextKind::Error { fix } => {
                    out.error(&text);
                    if let Some(fix) = fix {
                        out.error(format!("  {fix}"));
                    }
                }
                _ => out.foreign_line(&text)?,
            },
            Effect::Page(page) => out.foreign_line(&page.text)?,
            Effect::Opened { banner, entries } => {
                out.line(banner)?;
                for line in replay::lines(&entries) {
                    out.foreign_line(&line)?;
                }
            }
            Effect::Draft(text) if !text.trim().is_empty() => {
                let shown = hermes_app::text::shorten(&text, MAX_DRAFT_PREVIEW);
                out.remark(format!(
                    "not sent: {shown} (Enter on an empty line sends it)"
                ));
                self.draft = Some(text);
            }
            Effect::Show(DisplaySetting::Verbose(_)) => self.restart_renderer(),
            // Effects that a line chat does not support.
            _ => {}
        }
        Ok(())
    }

    /// Shows events until the turn has ended. Ctrl+C interrupts it, a second one quits.
    async fn follow(&mut self, then: CommandFollowUp) -> Outcome {
        let ends = |event: &AgentEvent| match then {
            CommandFollowUp::Turn => matches!(event, AgentEvent::TurnFinished { .. }),
            _ => matches!(
                event,
                AgentEvent::Compacted { .. }
                    | AgentEvent::RouteChanged { .. }
                    | AgentEvent::Notice { .. }
            ),
        };
        let mut interrupted = false;
        loop {
            let event = tokio::select! {
                event = self.events.recv() => event,
                command = self.questions.answered() => {
                    self.conversation.chat.send(command).await?;
                    continue;
                }
                _ = self.interrupts.recv() => {
                    if interrupted {
                        return Err(Failure::silent(Exit::Interrupted));
                    }
                    interrupted = true;
                    self.questions.interrupted();
                    // The terminal has written ^C.
                    self.cx.out.remark("");
                    self.conversation.chat.send(AgentCommand::Interrupt).await?;
                    continue;
                }
            };
            let Some(event) = event else {
                return Err(ended());
            };
            self.event(&event)?;
            if let AgentEvent::TurnFinished { summary } = &event.event {
                self.footer(summary);
            }
            if ends(&event.event) {
                // The line editor owns the terminal again.
                self.questions.settled().await;
                return Ok(());
            }
        }
    }

    fn footer(&self, summary: &hermes_core::event::TurnSummary) {
        if summary.exit == TurnExit::Answered && self.cx.out.stderr_tty {
            let facts = hermes_tui::cells::turn_facts(summary);
            self.cx.out.remark(self.cx.out.dim(&facts.join(" · ")));
        }
    }
}

fn ended() -> Failure {
    Failure::failed("the session ended unexpectedly; see logs/errors.log")
}

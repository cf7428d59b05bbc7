//! The line chat: a prompt, streaming answers, history, Ctrl+C to interrupt.

use std::path::PathBuf;

use hermes_agent::events::EventReceiver;
use hermes_core::event::{AgentCommand, AgentEvent, Sequenced, TurnExit};
use hermes_core::slash::COMMANDS;
use hermes_tui::port::{Effect, Said, Saying, Show};
use rustyline::error::ReadlineError;
use rustyline::history::FileHistory;
use rustyline::{CompletionType, Config, Context as LineContext, Editor, ExternalPrinter};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::{mpsc, oneshot};

use super::ask::Questions;
use super::conversation::{Conversation, Surface, Then};
use super::render::Renderer;
use super::{images, replay, verbs};
use crate::args::TurnArgs;
use crate::commands::{Context, counted};
use crate::exit::{Exit, Failure, Outcome};

const HISTORY_LINES: usize = 2000;

/// The state of a line chat.
struct Repl<'a> {
    cx: &'a Context,
    conversation: Conversation,
    events: EventReceiver,
    /// What work in the background shows.
    later: mpsc::Receiver<Effect>,
    renderer: Renderer,
    interrupts: Signal,
    questions: Questions,
}

/// What to do after a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Next {
    Prompt,
    Leave,
}

pub(super) async fn run(args: TurnArgs, cx: &Context) -> Outcome {
    let (mut conversation, later) = Conversation::open(args, cx, Surface::Line).await?;
    let Some(events) = conversation.opened.take() else {
        return Err(ended());
    };
    let chat = &conversation.chat;
    let renderer = Renderer::live(cx.out, conversation.args.verbose, chat.id.clone());
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
        questions: Questions::default(),
    };
    if repl.conversation.chat.used {
        repl.say_where_we_are().await?;
    }
    let mut lines = Lines::open(cx.home.join("cache/line-history"));
    let talked = repl.converse(&mut lines).await;
    lines.save();
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
    /// Tells what is gone on with.
    async fn say_where_we_are(&self) -> Outcome {
        let chat = &self.conversation.chat;
        let name = match &self.conversation.title {
            Some(title) => format!("{title:?}"),
            None => chat.id.to_string(),
        };
        let said = counted(
            replay::entries(&chat.store, &chat.id).await?.len(),
            "message",
        );
        let line = format!("going on with {name}: {said}, /history shows them");
        Ok(self.cx.out.line(self.cx.out.dim(&line))?)
    }

    /// Reads and obeys lines until the person leaves.
    async fn converse(&mut self, lines: &mut Lines) -> Outcome {
        let mut leaving = false;
        loop {
            let line = tokio::select! {
                biased;
                line = lines.read(&mut self.interrupts) => line?,
                event = self.events.recv() => {
                    self.unasked(event).await?;
                    lines.draw_again();
                    continue;
                }
                Some(effect) = self.later.recv() => {
                    self.clear_prompt()?;
                    self.show(effect)?;
                    lines.draw_again();
                    continue;
                }
            };
            match line {
                Line::Text(text) => {
                    leaving = false;
                    if self.line(&text).await? == Next::Leave {
                        return Ok(());
                    }
                }
                Line::Interrupted if leaving => return Ok(()),
                Line::Interrupted => {
                    leaving = true;
                    self.cx.out.remark("(Ctrl+C again to leave)");
                }
                Line::End => return Ok(()),
            }
        }
    }

    /// What comes now does not go behind the prompt.
    fn clear_prompt(&self) -> Outcome {
        Ok(self.cx.out.clear_line()?)
    }

    /// Something happens while the person writes: a background process has news, or subagents
    /// report. A turn that begins by itself is shown to its end.
    async fn unasked(&mut self, event: Option<Sequenced>) -> Outcome {
        let Some(event) = event else {
            return Err(ended());
        };
        self.clear_prompt()?;
        self.event(&event)?;
        if matches!(event.event, AgentEvent::TurnStarted { .. }) {
            let why = "work in the background has reported; going on with it";
            self.cx.out.remark(self.cx.out.dim(why));
            self.follow(Then::Turn).await?;
        }
        Ok(())
    }

    fn event(&mut self, event: &Sequenced) -> Outcome {
        self.conversation.observe(&event.event);
        self.renderer.event(event)?;
        self.questions.event(&event.event);
        Ok(())
    }

    async fn line(&mut self, text: &str) -> Result<Next, Failure> {
        if text.trim().is_empty() {
            return Ok(Next::Prompt);
        }
        let done = {
            let work = async {
                match verbs::line(&mut self.conversation, text).await {
                    Some(done) => done,
                    None => self.conversation.ask(text.trim_end()).await,
                }
            };
            // What the session says meanwhile; a session that is left for another ends here.
            let events = &mut self.events;
            let mut said = Vec::new();
            let mut over = false;
            tokio::pin!(work);
            let done = loop {
                tokio::select! {
                    biased;
                    done = &mut work => break done,
                    event = events.recv(), if !over => match event {
                        Some(event) => said.push(event),
                        None => over = true,
                    },
                    _ = self.interrupts.recv() => break Err(Failure::usage("stopped")),
                }
            };
            (done, said)
        };
        let (done, said) = done;
        for event in said {
            self.event(&event)?;
        }
        self.take_opened();
        // A command that failed is no reason to leave the chat.
        let told = match done {
            Ok(told) => told,
            Err(failure) => {
                self.cx.out.error(failure.message);
                return Ok(Next::Prompt);
            }
        };
        let leaves = told.effects.contains(&Effect::Leave);
        for effect in told.effects {
            self.show(effect)?;
        }
        if leaves {
            return Ok(Next::Leave);
        }
        if told.then != Then::Nothing {
            self.follow(told.then).await?;
        }
        if told.then == Then::Turn
            && let Some(effect) = self.conversation.settle_title().await
        {
            self.show(effect)?;
        }
        Ok(Next::Prompt)
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
            Effect::Say(Said { kind, text }) => match kind {
                Saying::Warning => out.error(text),
                Saying::Error { fix } => {
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
            Effect::Show(Show::Verbose(_)) => self.restart_renderer(),
            // What a line chat has no place for.
            _ => {}
        }
        Ok(())
    }

    /// Shows events until what was begun has ended. Ctrl+C interrupts the turn, a second one
    /// leaves.
    async fn follow(&mut self, then: Then) -> Outcome {
        let ends = |event: &AgentEvent| match then {
            Then::Turn => matches!(event, AgentEvent::TurnFinished { .. }),
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
                // The line editor has the terminal for itself again.
                self.questions.settled().await;
                return Ok(());
            }
        }
    }

    fn footer(&self, summary: &hermes_core::event::TurnSummary) {
        if summary.exit == TurnExit::Answered && self.cx.out.stderr_tty {
            let usage = &summary.usage;
            let cost = match summary.cost.usd() {
                Some(usd) if usd > 0.0 => format!(" · ${usd:.4}"),
                _ => String::new(),
            };
            self.cx.out.remark(self.cx.out.dim(&format!(
                "{:.1}s · {} · {} in ({} cached) {} out{cost}",
                summary.millis as f64 / 1000.0,
                counted(summary.tool_calls as usize, "tool"),
                usage.prompt_tokens(),
                usage.cache_read,
                usage.output
            )));
        }
    }
}

fn ended() -> Failure {
    Failure::failed("the session ended unexpectedly; see logs/errors.log")
}

enum Line {
    Text(String),
    Interrupted,
    End,
}

/// Reads lines with editing and history, off the async threads.
struct Lines {
    /// `None` while a line is read.
    editor: Option<SlashEditor>,
    reading: Option<oneshot::Receiver<(SlashEditor, Result<String, ReadlineError>)>>,
    history: PathBuf,
    /// Writes above the line that is being edited; `None` where there is no terminal.
    above: Option<Box<dyn ExternalPrinter + Send>>,
}

impl Lines {
    fn open(history: PathBuf) -> Self {
        let config = Config::builder()
            .max_history_size(HISTORY_LINES)
            .map(|builder| builder.completion_type(CompletionType::List).build());
        let mut above: Option<Box<dyn ExternalPrinter + Send>> = None;
        let editor = config.and_then(Editor::with_config).ok().map(|mut editor| {
            editor.set_helper(Some(SlashHelper));
            above = editor
                .create_external_printer()
                .ok()
                .map(|printer| Box::new(printer) as _);
            // No history yet is the usual case at first.
            let _ = editor.load_history(&history);
            editor
        });
        Self {
            editor,
            reading: None,
            history,
            above,
        }
    }

    /// Shows the prompt and what is written of the line once more.
    fn draw_again(&mut self) {
        if let (Some(above), Some(_)) = (&mut self.above, &self.reading) {
            // What cannot be drawn comes with the next key.
            let _ = above.print(String::new());
        }
    }

    /// The next line. The editor takes Ctrl+C as a key where it can; on a terminal that it cannot
    /// drive, the signal comes and the line goes on being read.
    async fn read(&mut self, interrupts: &mut Signal) -> Result<Line, Failure> {
        if let Some(editor) = self.editor.take() {
            let (sender, reading) = oneshot::channel();
            // A thread of its own: the process can leave while it waits for a key.
            std::thread::spawn(move || sender.send(read_lines(editor)).is_ok());
            self.reading = Some(reading);
        }
        let Some(reading) = &mut self.reading else {
            return Err(Failure::failed(
                "no line editor for this terminal; use hermes -z \"…\"",
            ));
        };
        let done = tokio::select! {
            done = reading => done,
            _ = interrupts.recv() => return Ok(Line::Interrupted),
        };
        let (editor, result) = done.map_err(|error| Failure::failed(error.to_string()))?;
        self.editor = Some(editor);
        match result {
            Ok(text) => Ok(Line::Text(text)),
            Err(ReadlineError::Interrupted) => Ok(Line::Interrupted),
            Err(ReadlineError::Eof) => Ok(Line::End),
            Err(error) => Err(Failure::failed(format!("reading the terminal: {error}"))),
        }
    }

    fn save(&mut self) {
        if let Some(editor) = &mut self.editor {
            if let Some(dir) = self.history.parent() {
                let _ = std::fs::create_dir_all(dir);
            }
            if let Err(error) = editor.save_history(&self.history) {
                tracing::warn!("the line history was not saved: {error}");
            }
        }
    }
}

type SlashEditor = Editor<SlashHelper, FileHistory>;

/// One message: a line, or several when each but the last ends with a backslash.
fn read_lines(mut editor: SlashEditor) -> (SlashEditor, Result<String, ReadlineError>) {
    let mut text = String::new();
    loop {
        let prompt = if text.is_empty() { "> " } else { "  " };
        match editor.readline(prompt) {
            Ok(line) => {
                let Some(part) = line.strip_suffix('\\') else {
                    text.push_str(&line);
                    break;
                };
                text.push_str(part);
                text.push('\n');
            }
            Err(error) => return (editor, Err(error)),
        }
    }
    if !text.trim().is_empty() {
        // History is a convenience; a line that cannot be added is still asked.
        let _ = editor.add_history_entry(&text);
    }
    (editor, Ok(text))
}

/// Completes slash commands with Tab.
#[derive(rustyline::Helper, rustyline::Highlighter, rustyline::Hinter, rustyline::Validator)]
struct SlashHelper;

impl rustyline::completion::Completer for SlashHelper {
    type Candidate = String;

    fn complete(
        &self,
        line: &str,
        pos: usize,
        _: &LineContext<'_>,
    ) -> rustyline::Result<(usize, Vec<String>)> {
        let Some(typed) = line.get(..pos).and_then(|head| head.strip_prefix('/')) else {
            return Ok((0, Vec::new()));
        };
        let names = COMMANDS
            .iter()
            .filter(|command| command.surfaces.line)
            .map(|command| command.name)
            .filter(|name| name.starts_with(typed));
        Ok((1, names.map(|name| format!("{name} ")).collect()))
    }
}

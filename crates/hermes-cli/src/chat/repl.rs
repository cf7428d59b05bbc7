//! The line chat: a prompt, streaming answers, history, Ctrl+C to interrupt.

use std::path::PathBuf;

use hermes_core::event::{AgentCommand, AgentEvent, Sequenced, TurnExit, UserInput};
use hermes_core::message::Part;
use hermes_core::store::SessionStore as _;
use rustyline::error::ReadlineError;
use rustyline::history::FileHistory;
use rustyline::{CompletionType, Config, Context as LineContext, Editor, ExternalPrinter};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::oneshot;

use super::ask::Questions;
use super::render::Renderer;
use super::slash::{self, Parsed, TABLE};
use super::{images, slash_run};
use crate::args::TurnArgs;
use crate::commands::{Context, counted};
use crate::exit::{Exit, Failure, Outcome};
use crate::wiring::{Chat, Mode};

const HISTORY_LINES: usize = 2000;

/// The state of a line chat.
pub(super) struct Repl<'a> {
    pub(super) cx: &'a Context,
    pub(super) args: TurnArgs,
    pub(super) chat: Chat,
    pub(super) renderer: Renderer,
    pub(super) last_question: Option<String>,
    /// A title given before the session was stored.
    pub(super) title_to_set: Option<String>,
    /// What `--image` named; it goes with the first question.
    images: Vec<Part>,
    interrupts: Signal,
    questions: Questions,
}

/// What to do after a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Next {
    Prompt,
    Leave,
}

pub(super) async fn run(mut args: TurnArgs, cx: &Context) -> Outcome {
    let images = images::load(&std::mem::take(&mut args.image))?;
    let chat = Chat::open(&args, cx, Mode::Repl).await?;
    // The next session of this chat is a new one.
    args.resume = None;
    args.continue_ = None;
    let renderer = Renderer::live(cx.out, args.verbose, chat.id.clone());
    let interrupts = signal(SignalKind::interrupt())?;
    let mut repl = Repl {
        cx,
        args,
        chat,
        renderer,
        last_question: None,
        title_to_set: None,
        images,
        interrupts,
        questions: Questions::default(),
    };
    cx.out.line(cx.out.dim(&repl.chat.banner()))?;
    images::warn_if_unseen(&repl.images, &repl.chat, cx);
    if repl.chat.used {
        slash_run::say_where_we_are(&repl).await?;
    }
    let mut lines = Lines::open(cx.home.join("cache/line-history"));
    let talked = repl.converse(&mut lines).await;
    lines.save();
    let id = repl.chat.id.clone();
    let used = repl.chat.used;
    if let Err(failure) = talked {
        if used {
            cx.out.remark(format!("resume with: hermes -r {id}"));
        }
        return Err(failure);
    }
    repl.chat.end("cli_close").await?;
    repl.chat.close().await;
    if used {
        cx.out.remark(format!("resume with: hermes -r {id}"));
    }
    Ok(())
}

impl Repl<'_> {
    /// Reads and obeys lines until the person leaves.
    async fn converse(&mut self, lines: &mut Lines) -> Outcome {
        let mut leaving = false;
        loop {
            let line = tokio::select! {
                biased;
                line = lines.read(&mut self.interrupts) => line?,
                event = self.chat.events.recv() => {
                    self.unasked(event).await?;
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

    /// Something happens while the person writes: a background process has news, or subagents
    /// report. A turn that begins by itself is shown to its end.
    async fn unasked(&mut self, event: Option<Sequenced>) -> Outcome {
        let Some(event) = event else {
            return Err(ended());
        };
        // The first line of it does not go behind the prompt.
        self.cx.out.piece(if self.cx.out.stdout_tty {
            "\r\x1b[K"
        } else {
            ""
        })?;
        self.renderer.event(&event)?;
        if matches!(event.event, AgentEvent::TurnStarted { .. }) {
            let why = "work in the background has reported; going on with it";
            self.cx.out.remark(self.cx.out.dim(why));
            self.chat.used = true;
            self.chat.asked = true;
            self.follow(|event| matches!(event, AgentEvent::TurnFinished { .. }))
                .await?;
        }
        Ok(())
    }

    async fn line(&mut self, text: &str) -> Result<Next, Failure> {
        if text.trim().is_empty() {
            return Ok(Next::Prompt);
        }
        match slash::parse(text) {
            Parsed::Command(command, rest) => slash_run::run(self, command.verb, rest).await,
            Parsed::Unknown { typed, close } => {
                let hint = close
                    .map(|name| format!("; did you mean /{name}?"))
                    .unwrap_or_default();
                self.cx
                    .out
                    .error(format!("no command /{typed}{hint} (/help lists all)"));
                Ok(Next::Prompt)
            }
            Parsed::Text => {
                self.ask(text.trim_end().to_owned()).await?;
                Ok(Next::Prompt)
            }
        }
    }

    /// Runs one turn to its end.
    pub(super) async fn ask(&mut self, text: String) -> Outcome {
        let images = std::mem::take(&mut self.images);
        self.last_question = Some(text.clone());
        self.chat.used = true;
        self.chat.asked = true;
        let input = UserInput {
            text,
            images,
            ..UserInput::default()
        };
        self.chat.send(AgentCommand::Submit(input)).await?;
        self.follow(|event| matches!(event, AgentEvent::TurnFinished { .. }))
            .await?;
        if let Some(title) = self.title_to_set.take() {
            let named = self.chat.store.set_title(&self.chat.id, &title, false);
            // A title that is taken is no reason to leave the chat.
            if let Err(error) = named.await {
                self.cx.out.error(error.to_string());
            }
        }
        Ok(())
    }

    /// Another session, or another way to show this one.
    pub(super) fn restart_renderer(&mut self) {
        self.renderer = Renderer::live(self.cx.out, self.args.verbose, self.chat.id.clone());
    }

    /// Shows events until one that `ends` it. Ctrl+C interrupts the turn, a second one leaves.
    pub(super) async fn follow(&mut self, ends: impl Fn(&AgentEvent) -> bool) -> Outcome {
        let mut interrupted = false;
        loop {
            let event = tokio::select! {
                event = self.chat.events.recv() => event,
                command = self.questions.answered() => {
                    self.chat.send(command).await?;
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
                    self.chat.send(AgentCommand::Interrupt).await?;
                    continue;
                }
            };
            let Some(event) = event else {
                return Err(ended());
            };
            self.renderer.event(&event)?;
            self.questions.event(&event.event);
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
        let names = TABLE
            .iter()
            .map(|slash| slash.name)
            .filter(|name| name.starts_with(typed));
        Ok((1, names.map(|name| format!("{name} ")).collect()))
    }
}

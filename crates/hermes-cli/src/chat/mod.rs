//! Turns from the command line: `-z`, `chat -q`, and the line chat.

mod approve;
mod ask;
pub(crate) mod host;
mod lines;
mod oneshot;
mod render;
mod repl;
mod stdin;
mod usage_file;

use hermes_app::{ConflictChoice, LeaseHolder, WindowConflict};

use crate::args::{ChatArgs, OutputFormat, TurnArgs};
use crate::commands::Context;
use crate::exit::{Failure, Outcome};
use crate::prompt;

/// The request from the command line.
pub(crate) struct ChatRequest {
    /// `None`: a conversation.
    prompt: Option<String>,
    kind: ChatKind,
    turn: TurnArgs,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ChatKind {
    /// `-z`: the session is closed afterwards and gets no title.
    Oneshot,
    /// `chat`: the session stays open.
    Chat,
}

impl ChatRequest {
    pub(crate) fn from_cli(prompt: Option<String>, turn: TurnArgs) -> Self {
        let kind = if prompt.is_some() {
            ChatKind::Oneshot
        } else {
            ChatKind::Chat
        };
        Self { prompt, kind, turn }
    }

    pub(crate) fn from_chat(args: ChatArgs) -> Self {
        Self {
            prompt: args.query,
            kind: ChatKind::Chat,
            turn: args.turn,
        }
    }

    /// How the turns are to be run.
    pub(crate) fn turn_mut(&mut self) -> &mut TurnArgs {
        &mut self.turn
    }

    /// The flags of an interactive conversation at this terminal.
    pub(crate) fn at_terminal(&self, cx: &Context) -> Option<&TurnArgs> {
        let asked = cx.out.stdin_tty && cx.out.stdout_tty && !cx.no_input;
        let conversation = self.prompt.is_none() && self.turn.format() == OutputFormat::Text;
        (asked && conversation).then_some(&self.turn)
    }
}

/// Runs the request.
pub(crate) fn run(mut request: ChatRequest, cx: &Context) -> Outcome {
    // `echo question | hermes` asks once.
    if request.prompt.is_none() && !cx.out.stdin_tty {
        // A missing model is more important than a missing question.
        crate::wiring::require_model(&(&request.turn).into(), cx)?;
        request.prompt = Some("-".to_owned());
        request.kind = ChatKind::Oneshot;
    }
    match request.prompt.as_deref() {
        Some("-") => {
            let text = stdin::read_prompt()?;
            ask(&request, cx, &text, None)
        }
        Some(text) => {
            let context = if text.trim().is_empty() {
                None
            } else {
                stdin::read_context()?
            };
            ask(&request, cx, text, context)
        }
        None if request.turn.format() != OutputFormat::Text => Err(Failure::usage(
            "--output-format needs a prompt: hermes -z \"…\" or chat -q \"…\"",
        )),
        None if draws(cx) => crate::wiring::runtime()?.block_on(host::run(request.turn, cx)),
        None => crate::wiring::runtime()?.block_on(repl::run(request.turn, cx)),
    }
}

/// Asks at the terminal.
struct TerminalConflict;

impl WindowConflict for TerminalConflict {
    fn choose(&self, holder: &LeaseHolder) -> Result<ConflictChoice, Failure> {
        let busy = if holder.busy {
            ", a turn is running there"
        } else {
            ""
        };
        let question = format!(
            "This conversation is open in another window (pid {}{busy}).\n  [w] watch it  [t] take it over  \
             [b] branch: continue in a copy  [q] quit ",
            holder.pid,
        );
        let key = tokio::task::block_in_place(|| prompt::key(&question, &['w', 't', 'b', 'q']))?;
        Ok(match key {
            Some('w') => ConflictChoice::Watch,
            Some('t') => ConflictChoice::TakeOver,
            Some('b') => ConflictChoice::Branch,
            Some(_) | None => ConflictChoice::Quit,
        })
    }

    fn still_busy(&self) -> Outcome {
        prompt::print_line("a turn is running there: wait until it ends, or stop it there")
    }
}

/// Whether this terminal supports the full interface, and plain lines were not requested.
fn draws(cx: &Context) -> bool {
    cx.out.stdin_tty && cx.out.stdout_tty && !cx.out.plain
}

fn ask(request: &ChatRequest, cx: &Context, text: &str, context: Option<String>) -> Outcome {
    if text.trim().is_empty() {
        // A missing session is the more important error.
        crate::wiring::require_session(&(&request.turn).into(), cx)?;
        return Err(Failure::usage(
            "the prompt is empty: hermes -z \"your question\"",
        ));
    }
    let closes = request.kind == ChatKind::Oneshot;
    let question = oneshot::OneshotQuestion {
        text: text.to_owned(),
        context,
        closes,
    };
    crate::wiring::runtime()?.block_on(oneshot::run(&request.turn, cx, question))
}

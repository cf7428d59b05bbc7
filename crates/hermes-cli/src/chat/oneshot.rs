//! One question, one answer.

use hermes_agent::EventReceiver;
use hermes_app::{
    CommandFollowUp, Conversation, Surface, TurnOptions, WindowLease, images, slash_commands,
};
use hermes_core::event::{AgentCommand, AgentEvent, TurnExit, TurnSummary, UserInput};
use hermes_core::front_end::Effect;
use hermes_core::store::SessionUpdate;
use tokio::signal::unix::{Signal, SignalKind, signal};

use super::render::Renderer;
use super::usage_file;
use crate::args::TurnArgs;
use crate::commands::Context;
use crate::exit::{self, Exit, Failure, Outcome};
use crate::footprint;
use crate::wiring::{ConversationMode, OpenRequest, OpenSession};

pub(super) struct OneshotQuestion {
    pub(super) text: String,
    /// Text from standard input.
    pub(super) context: Option<String>,
    /// The session is over afterwards.
    pub(super) closes: bool,
}

pub(super) async fn run(args: &TurnArgs, cx: &Context, question: OneshotQuestion) -> Outcome {
    let mode = if question.closes {
        ConversationMode::Oneshot
    } else {
        ConversationMode::Query
    };
    let options = TurnOptions::from(args);
    let images = images::load(&options.images)?;
    let (chat, events) = OpenSession::open(OpenRequest::new(&options, cx, mode)).await?;
    images::warn_if_unseen(&images, &chat, cx);
    // A window that has it open reads it again before its next message.
    let lease = chat
        .used
        .then(|| WindowLease::seize(&cx.home, &chat.id))
        .transpose();
    let mut lease = match lease {
        Ok(lease) => lease,
        Err(holder) => {
            let why = format!(
                "{} is open in another window (pid {}), where a turn is running; try again when it has ended",
                chat.id, holder.pid
            );
            drop(events);
            chat.close().await;
            return Err(Failure::new(Exit::Busy, why));
        }
    };
    if let Some(lease) = &mut lease {
        lease.set_busy(true);
    }
    // `-z` is for programs that want the answer alone.
    let streams = !question.closes && !args.quiet;
    let shown = (args.verbose, streams);
    let mut renderer = Renderer::new(cx.out, args.format(), shown, chat.id.clone());
    let input = UserInput {
        text: question.text,
        images,
        context: question.context,
        ..UserInput::default()
    };
    // Registered before the turn starts, so that no signal is missed.
    let signals = Signals::new()?;
    footprint::give_back();
    let (chat, mut events) = match begin(input, options, (chat, events), cx).await? {
        OneshotStart::Turn(opened) => *opened,
        OneshotStart::Done(shown) => return Ok(renderer.command_output(&shown)?),
    };
    let (summary, terminated) = follow(&chat, &mut events, &mut renderer, signals, cx).await?;
    // Even if output fails, the session is ended and closed first.
    let written = report(args, &renderer, &summary, &chat);
    if question.closes {
        let at = chat.clock.epoch_seconds();
        let end = SessionUpdate::End {
            reason: "agent_close".to_owned(),
            at,
        };
        let ended = chat.update(end).await;
        // The storage failure was reported already.
        if !matches!(summary.exit, TurnExit::StoreFailed { .. }) {
            ended?;
        }
    } else if cx.out.stderr_tty && !args.quiet {
        cx.out
            .remark(format!("session {} (hermes -r {})", chat.id, chat.id));
    }
    drop(events);
    chat.close().await;
    let exit = match exit::exit_of_turn(&summary.exit) {
        Exit::Ok => return written,
        Exit::Interrupted if terminated => Exit::Terminated,
        exit => exit,
    };
    // The failure of the turn was reported already.
    let message = written
        .err()
        .map_or_else(String::new, |failure| failure.message);
    Err(Failure::new(exit, message))
}

enum OneshotStart {
    /// A turn runs.
    Turn(Box<(OpenSession, EventReceiver)>),
    /// The line was a command of this home, with this output.
    Done(String),
}

/// Starts the turn. A line may begin with the name of a quick command, a skill or a prompt, as in
/// every chat.
async fn begin(
    input: UserInput,
    options: TurnOptions,
    opened: (OpenSession, EventReceiver),
    cx: &Context,
) -> Result<OneshotStart, Failure> {
    if !input.text.trim_start().starts_with('/') {
        opened.0.send(AgentCommand::Submit(input)).await?;
        return Ok(OneshotStart::Turn(Box::new(opened)));
    }
    let mut line = input.text.clone();
    if let Some(context) = &input.context {
        line.push_str("\n\n");
        line.push_str(context);
    }
    let (mut conversation, _later) =
        Conversation::with_session(options, cx, Surface::Line, opened).await?;
    conversation.images.clone_from(&input.images);
    let done = slash_commands::home_line(&mut conversation, &line).await;
    let Conversation { chat, opened, .. } = conversation;
    let events = opened.ok_or_else(|| Failure::failed("the session has no events"))?;
    let result = match done {
        None => {
            chat.send(AgentCommand::Submit(input)).await?;
            return Ok(OneshotStart::Turn(Box::new((chat, events))));
        }
        Some(Ok(result)) if result.then == CommandFollowUp::Turn => {
            return Ok(OneshotStart::Turn(Box::new((chat, events))));
        }
        Some(result) => result,
    };
    drop(events);
    chat.close().await;
    let shown = result?
        .effects
        .into_iter()
        .filter_map(|effect| match effect {
            Effect::Say(shown_text) => Some(shown_text.text),
            Effect::Page(page) => Some(page.text),
            _ => None,
        });
    Ok(OneshotStart::Done(shown.collect::<Vec<_>>().join("\n")))
}

fn report(
    args: &TurnArgs,
    renderer: &Renderer,
    summary: &TurnSummary,
    chat: &OpenSession,
) -> Outcome {
    let shown = renderer.result(summary);
    if let Some(path) = &args.usage_file {
        usage_file::write(path, summary, &chat.id, renderer.route())?;
    }
    Ok(shown?)
}

struct Signals {
    interrupts: Signal,
    terminations: Signal,
}

impl Signals {
    fn new() -> Result<Self, Failure> {
        Ok(Self {
            interrupts: signal(SignalKind::interrupt())?,
            terminations: signal(SignalKind::terminate())?,
        })
    }
}

/// Shows a turn until it ends. Ctrl+C and SIGTERM interrupt it; a second Ctrl+C exits immediately.
/// Also returns whether SIGTERM was the cause.
async fn follow(
    chat: &OpenSession,
    events: &mut EventReceiver,
    renderer: &mut Renderer,
    mut signals: Signals,
    cx: &Context,
) -> Result<(TurnSummary, bool), Failure> {
    let mut interrupted = false;
    let mut terminated = false;
    let mut answering = false;
    loop {
        let event = tokio::select! {
            event = events.recv() => event,
            _ = signals.interrupts.recv() => {
                if interrupted {
                    return Err(Failure::silent(Exit::Interrupted));
                }
                interrupted = true;
                if cx.out.stderr_tty {
                    // The terminal has written ^C.
                    cx.out.remark("");
                }
                chat.send(AgentCommand::Interrupt).await?;
                continue;
            }
            _ = signals.terminations.recv() => {
                terminated = true;
                chat.send(AgentCommand::Interrupt).await?;
                continue;
            }
        };
        let Some(event) = event else {
            return Err(Failure::failed(
                "the session ended unexpectedly; see logs/errors.log",
            ));
        };
        if !answering && !matches!(event.event, AgentEvent::TurnStarted { .. }) {
            answering = true;
            // Preparing and sending the first request touched code that the rest of the run does not need.
            footprint::give_back();
        }
        renderer.event(&event)?;
        if let AgentEvent::TurnFinished { summary } = event.event {
            return Ok((summary, terminated));
        }
    }
}

//! Commands for running turns: queue, steer, background, stop.

use hermes_core::event::{AgentCommand, UserInput};
use hermes_core::front_end::{BusyInput, DisplaySetting, Effect};

use crate::options::TurnOptions;

use crate::conversation::{CommandResult, Conversation, Surface};
use crate::failure::Failure;
use crate::front::CommandFollowUp;
use crate::text::shorten;
use hermes_core::figures;

fn required_text<'a>(text: &'a str, command: &str) -> Result<&'a str, Failure> {
    if text.is_empty() {
        return Err(Failure::usage(format!("/{command} needs a text")));
    }
    Ok(text)
}

/// After the current turn; at once where none runs.
pub(super) async fn queue(
    conversation: &mut Conversation,
    text: &str,
) -> Result<CommandResult, Failure> {
    let text = required_text(text, "queue")?;
    if !conversation.busy {
        return conversation.ask(text).await;
    }
    let queued = AgentCommand::Queue(text.into());
    conversation.chat.send(queued).await?;
    Ok(CommandResult::info(format!(
        "queued: {}",
        shorten(text, 60)
    )))
}

pub(super) async fn steer(
    conversation: &mut Conversation,
    text: &str,
) -> Result<CommandResult, Failure> {
    let text = required_text(text, "steer")?;
    if !conversation.busy {
        return conversation.ask(text).await;
    }
    let command = AgentCommand::Steer(text.to_owned());
    conversation.chat.send(command).await?;
    Ok(CommandResult::info(format!(
        "the model reads it with the next tool result: {}",
        shorten(text, 60)
    )))
}

/// In a separate session, in the background.
pub(super) async fn background(
    conversation: &mut Conversation,
    text: &str,
) -> Result<CommandResult, Failure> {
    let text = required_text(text, "background")?;
    if let Some(result) = conversation.check_ready(text).await? {
        return Ok(result);
    }
    let options = TurnOptions {
        model: Some(conversation.chat.route.model.clone()),
        provider: Some(conversation.chat.route.provider.clone()),
        ..conversation.options.clone()
    };
    let asked = conversation.background.ask(
        text,
        (&options, &conversation.cx),
        &conversation.chat,
        conversation.later.clone(),
    );
    let id = asked.await?;
    Ok(CommandResult::info(format!(
        "asked in the background (session {id}); what needs your approval there is refused"
    )))
}

/// Background processes and questions, all or one.
pub(super) async fn stop(
    conversation: &mut Conversation,
    which: &str,
) -> Result<CommandResult, Failure> {
    let one = (!which.is_empty()).then_some(which);
    let questions = conversation.background.stop(one);
    let mut processes = 0;
    if let Some(commands) = &conversation.chat.commands {
        match one {
            None => processes = commands.processes.kill_all(&conversation.chat.id).await,
            Some(_) if questions > 0 => {}
            Some(id) => {
                let killed = commands.processes.kill(id).await;
                let killed = killed.map_err(|error| Failure::not_found(error.to_string()))?;
                processes = usize::from(killed);
            }
        }
    }
    Ok(CommandResult::info(match (processes, questions) {
        (0, 0) => "nothing is running in the background".to_owned(),
        (processes, 0) => format!(
            "stopped {}",
            if processes == 1 {
                "1 process".to_owned()
            } else {
                format!("{processes} processes")
            }
        ),
        (0, questions) => format!("stopping {}", figures::count(questions, "question")),
        (processes, questions) => format!("stopped {processes} and stopping {questions}"),
    }))
}

/// Lists background work.
pub(super) fn agents(conversation: &Conversation) -> CommandResult {
    let mut lines = Vec::new();
    for asked in conversation.background.list() {
        lines.push(format!(
            "  question  {}  {}",
            asked.session,
            shorten(&asked.question, 60)
        ));
    }
    if let Some(commands) = &conversation.chat.commands {
        for process in commands.processes.list(None) {
            let state = match &process.ended {
                None => format!("running {} s", process.uptime_seconds),
                Some(_) => "ended".to_owned(),
            };
            lines.push(format!(
                "  process   {}  {state}  {}",
                process.id,
                shorten(&process.command, 60)
            ));
        }
    }
    if lines.is_empty() {
        return CommandResult::info("nothing is running in the background");
    }
    lines.push("  /stop [id] stops them".to_owned());
    CommandResult::plain(lines.join("\n"))
}

/// Sets what Enter does while a turn is running.
pub(super) fn mode(conversation: &Conversation, word: &str) -> Result<CommandResult, Failure> {
    let busy = match word {
        "steer" => BusyInput::Steer,
        "queue" => BusyInput::Queue,
        "interrupt" => BusyInput::Interrupt,
        "" => {
            let tui = conversation.tui();
            let now = tui.busy.as_deref().unwrap_or("steer").to_owned();
            return Ok(CommandResult::plain(format!(
                "Enter while a turn runs: {now}\n/busy steer (tell it at once), queue (ask afterwards) or interrupt (stop and ask)"
            )));
        }
        _ => {
            return Err(Failure::usage(
                "/busy steer (tell it at once), queue (ask afterwards) or interrupt (stop and ask)",
            ));
        }
    };
    super::settings::save_setting(conversation, "tui.busy", word)?;
    let result = CommandResult::info(format!("Enter while a turn runs: {word}"));
    Ok(result.and(Effect::Show(DisplaySetting::Busy(busy))))
}

/// Has several models answer, by way of the tool.
pub(super) async fn moa(
    conversation: &mut Conversation,
    text: &str,
) -> Result<CommandResult, Failure> {
    use hermes_agent::ToolSource as _;
    let text = required_text(text, "moa")?;
    if conversation.chat.tools.registry().get(TOOL).is_none() {
        return Err(Failure::usage(format!(
            "the tool {TOOL} is not available; hermes tools list says why"
        )));
    }
    if let Some(result) = conversation.check_ready(text).await? {
        return Ok(result);
    }
    let input = UserInput {
        text: text.to_owned(),
        context: Some(format!(
            "Use the tool {TOOL} for this question and base the answer on what it returns."
        )),
        ..UserInput::default()
    };
    let message = conversation.message(input);
    conversation.chat.send(message).await?;
    let result = CommandResult::from_effect(Effect::Asked(text.to_owned()));
    Ok(match conversation.surface {
        Surface::Line | Surface::Platform => result.then(CommandFollowUp::Turn),
        Surface::Screen => result,
    })
}

const TOOL: &str = "mixture_of_agents";

//! The program behind the full interface: handles requests and sends updates.
//!
//! One task owns the conversation. While a command runs, events of the session, interrupts and
//! answers are still handled; further commands wait for it.

mod complete;
pub(crate) mod panels;
mod shell;
pub(crate) mod status;

use std::collections::{BTreeSet, VecDeque};
use std::future::Future;
use std::ops::{Deref, DerefMut};
use std::time::Duration;

use hermes_agent::turn::explain;
use hermes_agent::{EventReceiver, SessionHandle};
use hermes_app::slash_commands::ResolvedLine;
use hermes_app::{CommandResult, Conversation, Surface, images, replay, show_text, slash_commands};
use hermes_core::event::{AgentCommand, AgentEvent, SequencedEvent, TurnExit};
use hermes_core::front_end::{Effect, TextKind};
use hermes_core::model::Route;
use hermes_core::task;
use hermes_mcp::{McpEvent, Toolbox};
use hermes_store::skills::{SkillBundles, SkillLibrary, command_name};
use hermes_tui::app::{self, AppOptions, ExitReason, Explanation};
use hermes_tui::composer::CompletionCommand;
use hermes_tui::port::{self, HostPort, HostUpdate, SessionStatus, UiAsk};
use tokio::sync::{broadcast, mpsc};

use self::panels::{OpenPanel, PanelReply};
use self::shell::ShellCommand;
use super::{TerminalConflict, approve};
use crate::args::TurnArgs;
use crate::commands::Context;
use crate::exit::{Exit, Failure, Outcome};
use crate::output::StderrHold;

/// How often background processes are checked, while there are any.
const PROCESS_CHECK_INTERVAL: Duration = Duration::from_secs(1);

/// Shows a conversation until the person quits.
pub(super) async fn run(args: TurnArgs, cx: &Context) -> Outcome {
    let hold = StderrHold::new();
    let (conversation, later) =
        Conversation::open((&args).into(), cx, Surface::Screen, &TerminalConflict).await?;
    let options = options(&conversation, StderrHold::take(), cx.out.color).await?;
    let id = conversation.chat.id.clone();
    let (port, host) = port::pair();
    let status = options.status.clone();
    let host = Host::new(conversation, host, later, status, cx.clone());
    let host = task::spawn("host", host.run());
    let shown = app::run(port, options).await;
    // The interface has closed its channel, so the host ends.
    let Ok(Ok(conversation)) = host.await else {
        drop(hold);
        return Err(Failure::failed(
            "the conversation ended unexpectedly; see logs/errors.log",
        ));
    };
    let used = conversation.chat.used.then(|| conversation.chat.id.clone());
    let forgotten = conversation.forget;
    let ended = conversation.leave().await;
    drop(hold);
    if let Some(last) = used.filter(|_| !forgotten) {
        cx.out.remark(format!("resume with: hermes -r {last}"));
    }
    tracing::debug!("the conversation that began as {id} is closed");
    match shown {
        Ok(ExitReason::UserLeft | ExitReason::Disconnected) => ended,
        Ok(ExitReason::TerminalGone) => Err(Failure::silent(Exit::Terminated)),
        Err(error) => Err(Failure::failed(error.to_string())),
    }
}

/// What the interface begins with.
async fn options(
    conversation: &Conversation,
    notices: Vec<String>,
    colour: bool,
) -> Result<AppOptions, Failure> {
    let cx = &conversation.cx;
    let chat = &conversation.chat;
    let entries = if chat.used {
        replay::entries(&chat.store, &chat.id).await?
    } else {
        Vec::new()
    };
    let mut notices = notices;
    if let Some(note) = replay::unanswered(&entries).filter(|_| !conversation.is_watching()) {
        notices.push(note.to_owned());
    }
    if let Some(why) = &chat.missing {
        notices.push(format!(
            "{why}: /model chooses one; what you type in the meantime is kept"
        ));
    }
    Ok(AppOptions {
        keep: Some(cx.home.cache_dir().join("tui")),
        seeds: vec![
            cx.home.join("cache/line-history"),
            cx.home.join(".hermes_history"),
        ],
        commands: skills(conversation),
        log: Some(cx.home.logs_dir().join("stderr.log")),
        tui: conversation.tui(),
        colour,
        entries,
        reasoning: conversation.shown.reasoning,
        verbose: conversation.shown.verbose,
        timestamps: conversation.shown.timestamps,
        notices,
        explain: explained,
        approval_limit: cx.approval_limit(),
        check_rule: approve::edited,
        ..AppOptions::new(
            env!("CARGO_PKG_VERSION"),
            status::session_status(conversation),
        )
    })
}

/// `/<skill>` and `/<bundle>`, for completion.
fn skills(conversation: &Conversation) -> Vec<CompletionCommand> {
    let chat = &conversation.chat;
    let library = SkillLibrary::of_home(&conversation.cx.home, &chat.config, Some("cli"));
    let enabled = library.scan().into_iter().filter(|skill| skill.enabled);
    let command = enabled.map(|skill| CompletionCommand {
        name: command_name(&skill.name),
        aliases: Vec::new(),
        args: "[words]".to_owned(),
        summary: hermes_app::text::shorten(&skill.description, 80),
    });
    let (bundles, _) = SkillBundles::for_home(&conversation.cx.home).scan();
    let bundles = bundles.into_iter().map(|bundle| CompletionCommand {
        name: bundle.command(),
        aliases: Vec::new(),
        args: "[words]".to_owned(),
        summary: hermes_app::text::shorten(&bundle.description, 80),
    });
    command.chain(bundles).collect()
}

fn explained(exit: &TurnExit, route: Option<&Route>) -> Option<Explanation> {
    let (cause, fix) = cause_and_fix(&explain(exit, route)?);
    Some(Explanation { cause, fix })
}

/// The remedy follows the cause; the card adds `fix:` itself.
fn cause_and_fix(text: &str) -> (String, Option<String>) {
    let Some((cause, fix)) = text.split_once('\n') else {
        return (text.to_owned(), None);
    };
    let fix = fix.trim();
    let fix = fix.strip_prefix("fix:").map_or(fix, str::trim_start);
    (cause.to_owned(), Some(fix.to_owned()))
}

/// The conversation and the state of its open panel.
pub(crate) struct ScreenConversation {
    conversation: Conversation,
    panels: OpenPanel,
    /// As the program was started.
    started: Context,
}

impl ScreenConversation {
    /// The context for subcommands, with `.env` reloaded.
    fn context(&self) -> Context {
        Context {
            app: self.conversation.cx.clone(),
            ..self.started.clone()
        }
    }
}

impl Deref for ScreenConversation {
    type Target = Conversation;

    fn deref(&self) -> &Conversation {
        &self.conversation
    }
}

impl DerefMut for ScreenConversation {
    fn deref_mut(&mut self) -> &mut Conversation {
        &mut self.conversation
    }
}

struct Host {
    conversation: ScreenConversation,
    live: HostInputs,
}

/// The channels that are served while a command runs.
struct HostInputs {
    port: HostPort,
    /// `None`: the session is over.
    events: Option<EventReceiver>,
    handle: SessionHandle,
    later: mpsc::Receiver<Effect>,
    /// Requests that wait for the running command.
    waiting: VecDeque<UiAsk>,
    /// Events that the conversation has not observed yet.
    seen: Vec<AgentEvent>,
    /// The last status sent.
    status: SessionStatus,
    /// It may be another one now.
    stale: bool,
    /// What happens to MCP servers.
    servers: Option<broadcast::Receiver<McpEvent>>,
    /// Servers that were reported as down.
    down: BTreeSet<String>,
    shell: Option<ShellCommand>,
    /// For the model, with the next message.
    notes: Vec<String>,
    left: bool,
}

/// Whether to continue the command.
enum CommandControl {
    Continue,
    /// The command is to stop.
    Stop,
}

impl Host {
    fn new(
        mut conversation: Conversation,
        port: HostPort,
        later: mpsc::Receiver<Effect>,
        status: SessionStatus,
        started: Context,
    ) -> Self {
        let live = HostInputs {
            port,
            events: conversation.opened.take(),
            handle: conversation.chat.handle(),
            later,
            waiting: VecDeque::new(),
            seen: Vec::new(),
            status,
            stale: true,
            servers: None,
            down: BTreeSet::new(),
            shell: None,
            notes: Vec::new(),
            left: false,
        };
        let conversation = ScreenConversation {
            conversation,
            panels: OpenPanel::default(),
            started,
        };
        Self { conversation, live }
    }

    /// Runs until the person quits. Returns the conversation to be closed.
    async fn run(mut self) -> Conversation {
        while !self.live.left {
            self.watch_servers();
            if let Some(ask) = self.live.waiting.pop_front() {
                self.ask(ask).await;
            } else {
                let next = self.live.next().await;
                match next {
                    HostEvent::Ask(Some(ask)) => self.ask(ask).await,
                    HostEvent::Ask(None) => break,
                    HostEvent::Event(event) => self.live.event(event).await,
                    HostEvent::Later(effect) => {
                        self.live.stale = true;
                        self.live.effect(effect).await;
                    }
                    HostEvent::Changed => self.live.stale = true,
                    HostEvent::Shell(update) => self.shell(update).await,
                }
            }
            self.settle().await;
        }
        if let Some(shell) = self.live.shell.take() {
            shell.stop().await;
        }
        self.conversation.conversation
    }

    /// Servers exist once the first one is configured.
    fn watch_servers(&mut self) {
        if self.live.servers.is_none() {
            self.live.servers = self.toolbox().map(|toolbox| toolbox.events());
        }
    }

    fn toolbox(&self) -> Option<std::sync::Arc<Toolbox>> {
        self.conversation.chat.mcp.as_ref()?.toolbox()
    }

    /// Applies pending events to the conversation and updates the status line.
    async fn settle(&mut self) {
        for event in std::mem::take(&mut self.live.seen) {
            self.conversation.observe(&event);
            if matches!(event, AgentEvent::TurnFinished { .. })
                && let Some(effect) = self.conversation.settle_title().await
            {
                self.live.effect(effect).await;
            }
        }
        for note in std::mem::take(&mut self.live.notes) {
            self.conversation.note(note);
        }
        self.take_opened();
        if !std::mem::take(&mut self.live.stale) {
            return;
        }
        if let Some(toolbox) = self.toolbox() {
            for effect in status::server_changes(&toolbox, &mut self.live.down) {
                self.live.effect(effect).await;
            }
        }
        let status = status::session_status(&self.conversation);
        if status != self.live.status {
            self.live.status = status.clone();
            self.live
                .send_update(HostUpdate::Status(Box::new(status)))
                .await;
        }
    }

    /// Another session is open.
    fn take_opened(&mut self) {
        if let Some(events) = self.conversation.opened.take() {
            self.live.events = Some(events);
            self.live.handle = self.conversation.chat.handle();
        }
    }

    async fn ask(&mut self, ask: UiAsk) {
        self.live.stale = true;
        match ask {
            UiAsk::Command(AgentCommand::Submit(input)) => self.submit(input).await,
            UiAsk::Command(command) => self.live.command(command).await,
            UiAsk::Slash(line) => self.slash(&line).await,
            UiAsk::Shell(command) => self.begin_shell(command).await,
            UiAsk::Stop => {
                if let Some(shell) = &mut self.live.shell {
                    shell.kill();
                }
            }
            UiAsk::Panel(ask) => {
                let Self { conversation, live } = self;
                let done = live
                    .run_alongside(Box::pin(panels::act(conversation, ask)))
                    .await;
                self.show(done).await;
            }
            UiAsk::Complete {
                ticket,
                command,
                before,
                word,
            } => {
                let Self { conversation, live } = self;
                let work = complete::candidates(conversation, &command, &before, &word);
                if let Some(candidates) = live.run_alongside(Box::pin(work)).await {
                    live.send_update(HostUpdate::Candidates { ticket, candidates })
                        .await;
                }
            }
            UiAsk::Leave => self.live.left = true,
        }
    }

    async fn submit(&mut self, input: hermes_core::event::UserInput) {
        let Self { conversation, live } = self;
        match live
            .run_alongside(Box::pin(conversation.check_ready(&input.text)))
            .await
        {
            Some(Ok(None)) => {
                // The model may have been configured just now.
                self.take_opened();
                let chat = &self.conversation.chat;
                let pictures = [&input.images[..], &self.conversation.images[..]].concat();
                if let Some(text) = images::unseen(&pictures, chat) {
                    self.live.effect(show_text(TextKind::Warning, text)).await;
                }
                let message = self.conversation.message(input);
                self.live.command(message).await;
            }
            Some(Ok(Some(command_result))) => self.live.unsent(command_result).await,
            Some(Err(failure)) => {
                let command_result =
                    CommandResult::from_effect(Effect::Draft(input.text)).and(card(&failure));
                self.live.unsent(command_result).await;
            }
            None => {
                self.live
                    .unsent(CommandResult::from_effect(Effect::Draft(input.text)))
                    .await;
            }
        }
    }

    async fn slash(&mut self, line: &str) {
        let Self { conversation, live } = self;
        let done = live
            .run_alongside(Box::pin(run_line(conversation, line)))
            .await;
        match done {
            // Not a command (a path, for example): a message.
            Some(None) => {
                self.live.send_update(HostUpdate::Done).await;
                self.live.effect(Effect::Asked(line.to_owned())).await;
                self.submit(line.into()).await;
            }
            done => {
                self.show(done.flatten()).await;
                self.live.send_update(HostUpdate::Done).await;
            }
        }
    }

    /// Shows the result of a command or a panel key.
    async fn show(&mut self, done: Option<Result<PanelReply, Failure>>) {
        let mut reply = match done {
            Some(Ok(reply)) => reply,
            Some(Err(failure)) => return self.live.effect(card(&failure)).await,
            None => return self.live.effect(show_text(TextKind::Info, "stopped")).await,
        };
        for effect in &mut reply.result.effects {
            // Another conversation begins with the same line as the first one.
            if let Effect::Opened { banner, .. } = effect {
                let status = status::session_status(&self.conversation);
                *banner = app::banner(env!("CARGO_PKG_VERSION"), &status, "·");
            }
        }
        if reply.closes {
            self.live.send_update(HostUpdate::ClosePanel).await;
        }
        self.live.show(reply.result).await;
        if let Some(panel) = reply.panel {
            self.live.send_update(HostUpdate::Panel(panel)).await;
        }
    }

    async fn begin_shell(&mut self, command: String) {
        match ShellCommand::start(&command, &self.conversation.chat.cwd) {
            Ok((shell, started)) => {
                self.live.shell = Some(shell);
                self.live.shell_event(started).await;
            }
            Err(error) => {
                self.live.effect(card(&Failure::failed(error))).await;
                self.live.send_update(HostUpdate::Done).await;
            }
        }
    }

    async fn shell(&mut self, update: shell::ShellStep) {
        match update {
            shell::ShellStep::Event(event) => self.live.shell_event(event).await,
            shell::ShellStep::Ended { event, note } => self.live.shell_ended(event, note).await,
        }
    }
}

/// An event of the main loop.
enum HostEvent {
    Ask(Option<UiAsk>),
    Event(Option<SequencedEvent>),
    Later(Effect),
    /// The status line may have changed.
    Changed,
    Shell(shell::ShellStep),
}

impl HostInputs {
    async fn next(&mut self) -> HostEvent {
        let Self {
            port,
            events,
            later,
            servers,
            shell,
            status,
            ..
        } = self;
        tokio::select! {
            biased;
            ask = port.asks.recv() => HostEvent::Ask(ask),
            event = next_event(events) => HostEvent::Event(event),
            Some(effect) = later.recv() => HostEvent::Later(effect),
            step = next_step(shell) => HostEvent::Shell(step),
            () = next_change(servers) => HostEvent::Changed,
            // There is no event for the end of a background process.
            () = tokio::time::sleep(PROCESS_CHECK_INTERVAL), if status.background > 0 => HostEvent::Changed,
        }
    }

    /// Runs a command while serving the channels. `None`: it was stopped.
    async fn run_alongside<T>(&mut self, work: impl Future<Output = T>) -> Option<T> {
        tokio::pin!(work);
        loop {
            let next = tokio::select! {
                biased;
                done = &mut work => return Some(done),
                next = self.next() => next,
            };
            match next {
                HostEvent::Ask(None) => {
                    self.left = true;
                    return None;
                }
                HostEvent::Ask(Some(ask)) => {
                    if let CommandControl::Stop = self.beside(ask).await {
                        return None;
                    }
                }
                HostEvent::Event(event) => self.event(event).await,
                HostEvent::Later(effect) => self.effect(effect).await,
                HostEvent::Changed => self.stale = true,
                HostEvent::Shell(shell::ShellStep::Event(event)) => self.shell_event(event).await,
                HostEvent::Shell(shell::ShellStep::Ended { event, note }) => {
                    self.shell_ended(event, note).await;
                }
            }
        }
    }

    /// Requests that cannot wait for the running command.
    async fn beside(&mut self, ask: UiAsk) -> CommandControl {
        match ask {
            UiAsk::Stop => return CommandControl::Stop,
            UiAsk::Leave => {
                self.left = true;
                return CommandControl::Stop;
            }
            UiAsk::Command(AgentCommand::Submit(_)) => self.waiting.push_back(ask),
            UiAsk::Command(command) => self.command(command).await,
            ask => self.waiting.push_back(ask),
        }
        CommandControl::Continue
    }

    async fn command(&mut self, command: AgentCommand) {
        if self.handle.send(command).await.is_err() {
            self.effect(card(&gone())).await;
        }
    }

    async fn event(&mut self, event: Option<SequencedEvent>) {
        let Some(event) = event else {
            self.events = None;
            return;
        };
        if !is_frequent(&event.event) {
            self.stale = true;
            self.seen.push(event.event.clone());
        }
        // The end of a replaced session is not reported.
        if event.event != AgentEvent::Closed {
            self.send_update(HostUpdate::Event(event)).await;
        }
    }

    async fn shell_event(&mut self, event: AgentEvent) {
        let event = SequencedEvent {
            seq: 0,
            turn: None,
            event,
        };
        self.send_update(HostUpdate::Event(event)).await;
    }

    async fn shell_ended(&mut self, event: AgentEvent, note: String) {
        self.shell = None;
        self.stale = true;
        self.notes.push(note);
        self.shell_event(event).await;
        self.send_update(HostUpdate::Done).await;
    }

    async fn show(&mut self, result: CommandResult) {
        for effect in result.effects {
            self.effect(effect).await;
        }
    }

    /// The message was not sent: there will be no answer.
    async fn unsent(&mut self, command_result: CommandResult) {
        self.shell_event(AgentEvent::Closed).await;
        self.show(command_result).await;
    }

    async fn effect(&mut self, effect: Effect) {
        self.send_update(HostUpdate::Effect(effect)).await;
    }

    async fn send_update(&mut self, update: HostUpdate) {
        if self.port.updates.send(update).await.is_err() {
            self.left = true;
        }
    }
}

/// Runs a line that begins with a slash, in its panel if it has one. `None`: it is not a command
/// but a message.
async fn run_line(
    conversation: &mut ScreenConversation,
    line: &str,
) -> Option<Result<PanelReply, Failure>> {
    let (command, rest) = match slash_commands::resolve(conversation, line).await {
        ResolvedLine::Text => return None,
        ResolvedLine::Done(done) => return Some(done.map(PanelReply::from)),
        ResolvedLine::Command(command, rest) => (command, rest),
    };
    if conversation.surface.has(command.surfaces) {
        match panels::open(conversation, command.verb, &rest).await {
            Ok(None) => {}
            Ok(Some(reply)) => return Some(Ok(reply)),
            Err(failure) => return Some(Err(failure)),
        }
    }
    let done = slash_commands::run(conversation, command, &rest).await;
    Some(done.map(PanelReply::from))
}

/// Frequent events that do not change the state of the conversation.
fn is_frequent(event: &AgentEvent) -> bool {
    matches!(
        event,
        AgentEvent::TextDelta { .. }
            | AgentEvent::ReasoningDelta { .. }
            | AgentEvent::ToolProgress { .. }
    )
}

async fn next_event(events: &mut Option<EventReceiver>) -> Option<SequencedEvent> {
    match events {
        Some(events) => events.recv().await,
        None => std::future::pending().await,
    }
}

async fn next_step(shell: &mut Option<ShellCommand>) -> shell::ShellStep {
    match shell {
        Some(shell) => shell.step().await,
        None => std::future::pending().await,
    }
}

async fn next_change(servers: &mut Option<broadcast::Receiver<McpEvent>>) {
    let closed = match servers {
        // Lagging only means that there were many events.
        Some(events) => matches!(
            events.recv().await,
            Err(broadcast::error::RecvError::Closed)
        ),
        None => std::future::pending().await,
    };
    if closed {
        *servers = None;
    }
}

fn card(failure: &Failure) -> Effect {
    let (cause, fix) = cause_and_fix(&failure.message);
    show_text(TextKind::Error { fix }, cause)
}

fn gone() -> Failure {
    Failure::failed("the session ended unexpectedly; see logs/errors.log")
}

#[cfg(test)]
mod tests {
    use super::cause_and_fix;

    #[test]
    fn what_helps_is_named_once() {
        let of = |text| {
            let (cause, fix) = cause_and_fix(text);
            (cause, fix.unwrap_or_default())
        };
        let pair = |cause: &str, fix: &str| (cause.to_owned(), fix.to_owned());
        assert_eq!(
            of("401\n  fix: a key is needed"),
            pair("401", "a key is needed")
        );
        assert_eq!(of("401\na key is needed"), pair("401", "a key is needed"));
        assert_eq!(of("401"), pair("401", ""));
    }
}

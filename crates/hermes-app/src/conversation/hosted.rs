//! A conversation in the task of a front end that serves others (an editor, a chat).
//!
//! It has no task of its own: the front end polls it. While a slash command runs, events of the
//! session, interrupts and answers are still handled; other requests wait.

use std::collections::VecDeque;
use std::future::Future;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};

use hermes_agent::{ConversationMemory, EventReceiver, SessionClosed, SessionHandle};
use hermes_core::event::{AgentCommand, AgentEvent, NoticeLevel, UserInput};
use hermes_core::front_end::{Effect, ShownText, TextKind, TranscriptEntry};
use hermes_core::{BoxFuture, task};
use hermes_mcp::Toolbox;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use super::{CommandResult, Conversation};
use crate::failure::{Exit, Failure};
use crate::front::{
    CommandFollowUp, ConversationDriver, ConversationRequest, ConversationUpdate, HostError,
    HostErrorKind, LiveConversation, OpenedConversation,
};
use crate::slash_commands;
use crate::wiring;

/// Maximum number of requests that wait for a command, and of commands that wait for the session.
const REQUEST_QUEUE_CAPACITY: usize = 64;

/// Commands as the front end restricts and documents them. Both are checked first.
#[derive(Clone, Copy)]
pub struct CommandRules {
    /// The reply to a command that is not available there.
    pub refused: fn(&str) -> Option<String>,
    /// The `/help` text there.
    pub help: fn(&str) -> Option<String>,
}

/// What happens when the front end closes the conversation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClosePolicy {
    /// The session is over.
    End,
    /// The session can be resumed.
    Keep,
}

/// Options of a front end that serves others.
pub struct HostedOptions {
    pub rules: CommandRules,
    pub on_close: ClosePolicy,
    /// MCP servers of this conversation alone; they end with it.
    pub servers: Option<Arc<Toolbox>>,
    /// Earlier messages, for the front end.
    pub past: Vec<TranscriptEntry>,
    /// Remarks to show at the start.
    pub remarks: Vec<String>,
}

/// What the conversation is doing. Futures are boxed, because most of the time many conversations
/// only wait; they own the conversation meanwhile.
enum ConversationWork {
    Idle(Box<Conversation>),
    /// A slash command runs.
    Command {
        stop: CancellationToken,
        work: WorkFuture,
    },
    /// A message or a title is being prepared: requests and events wait.
    Preparing(WorkFuture),
    /// A bug has ended it.
    Broken,
}

type WorkEnd = Result<(Box<Conversation>, WorkResult), task::Panicked>;
/// Never locked: the mutex makes it shareable.
type WorkFuture = Mutex<BoxFuture<'static, WorkEnd>>;

enum WorkResult {
    Message(PreparedMessage),
    /// A command was stopped.
    Stopped,
    Ran(Result<CommandResult, Failure>),
    /// The line was not a command (a path, for example).
    NotACommand(PreparedMessage),
    /// A title was stored; the event was held back until then.
    Titled {
        event: Option<AgentEvent>,
        problem: Option<Effect>,
    },
}

struct PreparedMessage {
    warning: Option<String>,
    command: Result<AgentCommand, HostError>,
}

struct HostedConversation {
    work: ConversationWork,
    /// `None`: the session is over.
    events: Option<EventReceiver>,
    handle: SessionHandle,
    weight: ConversationMemory,
    later: mpsc::Receiver<Effect>,
    /// Requests that wait until the conversation is idle.
    waiting: VecDeque<ConversationRequest>,
    /// Commands for which the session has no room yet.
    outgoing: VecDeque<AgentCommand>,
    sending: Option<Mutex<BoxFuture<'static, Result<(), SessionClosed>>>>,
    /// Events that the conversation has not observed yet.
    unobserved: Vec<AgentEvent>,
    /// Updates that were not read yet.
    updates: VecDeque<ConversationUpdate>,
    rules: CommandRules,
    on_close: ClosePolicy,
    /// Servers of this conversation alone.
    servers: Option<Arc<Toolbox>>,
}

/// Hands a conversation to a front end.
pub fn open(
    mut conversation: Conversation,
    later: mpsc::Receiver<Effect>,
    options: HostedOptions,
) -> OpenedConversation {
    let weight = ConversationMemory::default();
    let id = conversation.chat.id.to_string();
    let (title, cost) = (conversation.title.clone(), conversation.cost);
    let approvals_off = approvals_off(&conversation);
    let hosted = HostedConversation {
        events: conversation.opened.take(),
        handle: conversation.chat.handle(),
        work: ConversationWork::Idle(Box::new(conversation)),
        weight: weight.clone(),
        later,
        waiting: VecDeque::new(),
        outgoing: VecDeque::new(),
        sending: None,
        unobserved: Vec::new(),
        updates: VecDeque::new(),
        rules: options.rules,
        on_close: options.on_close,
        servers: options.servers,
    };
    hosted.update_weight();
    OpenedConversation {
        id,
        title,
        cost,
        past: options.past,
        remarks: options.remarks,
        approvals_off,
        weight,
        conversation: LiveConversation::new(hosted),
    }
}

fn approvals_off(conversation: &Conversation) -> bool {
    let commands = conversation.chat.commands.as_ref();
    commands.is_some_and(|commands| commands.gate.config().mode == hermes_policy::ApprovalMode::Off)
}

impl ConversationDriver for HostedConversation {
    fn request(&mut self, request: ConversationRequest) -> bool {
        match (&self.work, request) {
            (ConversationWork::Broken, _) => return false,
            (ConversationWork::Command { stop, .. }, ConversationRequest::Stop) => stop.cancel(),
            (ConversationWork::Command { .. }, ConversationRequest::Agent(command)) => {
                self.command(command);
            }
            (_, request) if self.waiting.len() < REQUEST_QUEUE_CAPACITY => {
                self.waiting.push_back(request);
                self.start_waiting();
            }
            _ => self.reject(
                HostErrorKind::Invalid,
                "too many messages are waiting for the running command; cancel it",
            ),
        }
        true
    }

    fn poll_update(&mut self, cx: &mut Context<'_>) -> Poll<Option<ConversationUpdate>> {
        loop {
            self.poll_outgoing(cx);
            if let Some(update) = self.updates.pop_front() {
                return Poll::Ready(Some(update));
            }
            match self.poll_work(cx) {
                Poll::Ready(Some(end)) => {
                    self.work_ended(end);
                    continue;
                }
                Poll::Ready(None) => return Poll::Ready(None),
                Poll::Pending => {}
            }
            if matches!(self.work, ConversationWork::Preparing(_)) {
                return Poll::Pending;
            }
            if let Some(events) = &mut self.events
                && let Poll::Ready(event) = events.poll_recv(cx)
            {
                match event {
                    Some(event) => self.take_event(event.event),
                    None => self.events = None,
                }
                continue;
            }
            match self.later.poll_recv(cx) {
                Poll::Ready(Some(effect)) => self.effect(effect),
                Poll::Ready(None) | Poll::Pending => return Poll::Pending,
            }
        }
    }

    fn has_ended(&self) -> bool {
        matches!(self.work, ConversationWork::Broken)
    }

    fn bytes(&self) -> usize {
        self.handle.bytes()
    }

    fn close(self: Box<Self>) -> BoxFuture<'static, ()> {
        Box::pin((*self).end())
    }
}

impl HostedConversation {
    /// Starts what waits, as far as the conversation is idle.
    fn start_waiting(&mut self) {
        while matches!(self.work, ConversationWork::Idle(_))
            && let Some(request) = self.waiting.pop_front()
        {
            match request {
                ConversationRequest::Input(input) => self.input(input),
                ConversationRequest::Agent(command) => self.command(command),
                ConversationRequest::Slash(line) => self.slash(line),
                // Nothing runs that could be stopped.
                ConversationRequest::Stop => {}
            }
        }
    }

    /// The idle conversation; the caller gives it to its work.
    fn take_idle(&mut self) -> Option<Box<Conversation>> {
        match std::mem::replace(&mut self.work, ConversationWork::Broken) {
            ConversationWork::Idle(conversation) => Some(conversation),
            other => {
                self.work = other;
                None
            }
        }
    }

    fn input(&mut self, input: UserInput) {
        if let Some(mut conversation) = self.take_idle() {
            self.work = ConversationWork::Preparing(work_future(async move {
                let message = prepare_message(&mut conversation, input).await;
                (conversation, WorkResult::Message(message))
            }));
        }
    }

    fn slash(&mut self, line: String) {
        if let Some(text) = (self.rules.refused)(&line) {
            self.text(NoticeLevel::Warning, text, false);
            return self.command_ended(CommandFollowUp::Nothing);
        }
        if let Some(text) = (self.rules.help)(&line) {
            self.text(NoticeLevel::Info, text, true);
            return self.command_ended(CommandFollowUp::Nothing);
        }
        // Events so far, so that it is known whether a turn is running.
        self.take_ready_events();
        if let Some(conversation) = self.take_idle() {
            let stop = CancellationToken::new();
            let work = work_future(run_line(conversation, line, stop.clone()));
            self.work = ConversationWork::Command { stop, work };
        } else {
            // A title is stored first.
            self.waiting.push_front(ConversationRequest::Slash(line));
        }
    }

    /// `Ready(None)`: the conversation has ended.
    fn poll_work(&mut self, cx: &mut Context<'_>) -> Poll<Option<WorkEnd>> {
        match &mut self.work {
            ConversationWork::Idle(_) => Poll::Pending,
            ConversationWork::Command { work, .. } | ConversationWork::Preparing(work) => {
                let work = work.get_mut().unwrap_or_else(PoisonError::into_inner);
                work.as_mut().poll(cx).map(Some)
            }
            ConversationWork::Broken => Poll::Ready(None),
        }
    }

    fn work_ended(&mut self, end: WorkEnd) {
        let Ok((conversation, result)) = end else {
            self.work = ConversationWork::Broken;
            return;
        };
        self.work = ConversationWork::Idle(conversation);
        self.take_opened();
        match result {
            WorkResult::Message(message) => self.submit(message),
            WorkResult::Stopped => {
                self.text(NoticeLevel::Info, "stopped".to_owned(), false);
                self.command_ended(CommandFollowUp::Nothing);
            }
            WorkResult::NotACommand(message) => {
                self.submit(message);
                self.command_ended(CommandFollowUp::Turn);
            }
            WorkResult::Ran(Err(failure)) => {
                self.text(NoticeLevel::Warning, failure.message, false);
                self.command_ended(CommandFollowUp::Nothing);
            }
            WorkResult::Ran(Ok(result)) => {
                for effect in result.effects {
                    self.effect(effect);
                }
                self.command_ended(result.then);
            }
            WorkResult::Titled { event, problem } => {
                let event = event.map(ConversationUpdate::Event);
                self.updates.extend(event);
                if let Some(problem) = problem {
                    self.effect(problem);
                }
            }
        }
        self.observe_missed();
        self.start_waiting();
    }

    /// Another session is open.
    fn take_opened(&mut self) {
        if let ConversationWork::Idle(conversation) = &mut self.work
            && let Some(events) = conversation.opened.take()
        {
            self.events = Some(events);
            self.handle = conversation.chat.handle();
            self.update_weight();
        }
    }

    fn submit(&mut self, message: PreparedMessage) {
        if let Some(warning) = message.warning {
            self.text(NoticeLevel::Warning, warning, false);
        }
        match message.command {
            Ok(command) => self.command(command),
            Err(refusal) => self
                .updates
                .push_back(ConversationUpdate::Rejected(refusal)),
        }
    }

    fn take_ready_events(&mut self) {
        while let Some(event) = self.events.as_mut().and_then(EventReceiver::try_recv) {
            self.take_event(event.event);
        }
    }

    fn take_event(&mut self, event: AgentEvent) {
        let frequent = matches!(
            event,
            AgentEvent::TextDelta { .. }
                | AgentEvent::ReasoningDelta { .. }
                | AgentEvent::ToolProgress { .. }
        );
        if !frequent {
            // Before the end of a turn is reported.
            self.update_weight();
            match &mut self.work {
                ConversationWork::Idle(conversation) => {
                    conversation.observe(&event);
                    if is_turn_end(&event) && conversation.title_to_set.is_some() {
                        return self.store_title(Some(event));
                    }
                }
                _ => self.unobserved.push(event.clone()),
            }
        }
        self.updates.push_back(ConversationUpdate::Event(event));
    }

    /// Applies the events that came while the conversation was busy.
    fn observe_missed(&mut self) {
        let ConversationWork::Idle(conversation) = &mut self.work else {
            return;
        };
        let missed = std::mem::take(&mut self.unobserved);
        for event in &missed {
            conversation.observe(event);
        }
        if conversation.title_to_set.is_some() && missed.iter().any(is_turn_end) {
            self.store_title(None);
        }
    }

    /// The session is stored now, and with it the title that waited for that.
    fn store_title(&mut self, event: Option<AgentEvent>) {
        if let Some(mut conversation) = self.take_idle() {
            self.work = ConversationWork::Preparing(work_future(async move {
                let problem = conversation.settle_title().await;
                (conversation, WorkResult::Titled { event, problem })
            }));
        }
    }

    fn command(&mut self, command: AgentCommand) {
        if self.sending.is_some() {
            if self.outgoing.len() < REQUEST_QUEUE_CAPACITY {
                self.outgoing.push_back(command);
            } else {
                self.reject(
                    HostErrorKind::Invalid,
                    "too many messages are waiting for the session; wait for its answer",
                );
            }
            return;
        }
        match self.handle.try_send(command) {
            Ok(None) => {}
            Ok(Some(command)) => {
                let handle = self.handle.clone();
                let sending = async move { handle.send(command).await };
                self.sending = Some(Mutex::new(Box::pin(sending)));
            }
            Err(SessionClosed) => self.session_closed(),
        }
    }

    fn poll_outgoing(&mut self, cx: &mut Context<'_>) {
        while let Some(sending) = &mut self.sending {
            let sending = sending.get_mut().unwrap_or_else(PoisonError::into_inner);
            let Poll::Ready(sent) = sending.as_mut().poll(cx) else {
                return;
            };
            self.sending = None;
            if sent.is_err() {
                self.session_closed();
            }
            if let Some(command) = self.outgoing.pop_front() {
                self.command(command);
            }
        }
    }

    fn session_closed(&mut self) {
        self.reject(
            HostErrorKind::Failed,
            "the session ended unexpectedly; see logs/errors.log",
        );
    }

    fn reject(&mut self, kind: HostErrorKind, text: &str) {
        let refusal = HostError::new(kind, text);
        self.updates
            .push_back(ConversationUpdate::Rejected(refusal));
    }

    fn command_ended(&mut self, follows: CommandFollowUp) {
        self.updates
            .push_back(ConversationUpdate::CommandEnded(follows));
    }

    fn text(&mut self, level: NoticeLevel, text: String, columns: bool) {
        self.updates.push_back(ConversationUpdate::Text {
            level,
            text,
            columns,
        });
    }

    fn effect(&mut self, effect: Effect) {
        let update = match (effect, &self.work) {
            (Effect::Say(ShownText { kind, text }), _) => text_update(&kind, text),
            (Effect::Page(page), _) => text_update(&page.kind, page.text),
            (Effect::Opened { entries, .. }, ConversationWork::Idle(conversation)) => {
                ConversationUpdate::Moved {
                    id: conversation.chat.id.to_string(),
                    past: entries,
                }
            }
            (Effect::Draft(text), _) => {
                text_update(&TextKind::Info, format!("Your message was: {text}"))
            }
            // Effects for screens only.
            _ => return,
        };
        self.updates.push_back(update);
    }

    fn update_weight(&self) {
        self.weight.set(self.handle.bytes());
    }

    /// Ends what runs, then closes the conversation.
    async fn end(mut self) {
        self.take_ready_events();
        // Nobody reads them any more, and the session must not wait for that.
        self.events = None;
        self.sending = None;
        if let ConversationWork::Command { stop, .. } = &self.work {
            stop.cancel();
        }
        let conversation = match self.work {
            ConversationWork::Idle(conversation) => Some(conversation),
            ConversationWork::Command { work, .. } | ConversationWork::Preparing(work) => {
                let work = work.into_inner().unwrap_or_else(PoisonError::into_inner);
                work.await.ok().map(|(conversation, _)| conversation)
            }
            ConversationWork::Broken => None,
        };
        if let Some(mut conversation) = conversation {
            let missed = &self.unobserved;
            for event in missed {
                conversation.observe(event);
            }
            if missed.iter().any(is_turn_end) {
                conversation.settle_title().await;
            }
            // Its resources belong to the process.
            conversation.chat.borrows = true;
            let left = match self.on_close {
                ClosePolicy::End => Box::pin(conversation.leave()).await,
                ClosePolicy::Keep => Box::pin(conversation.suspend()).await,
            };
            if let Err(failure) = left {
                tracing::warn!("closing a conversation: {}", failure.message);
            }
        }
        if let Some(servers) = self.servers {
            servers.shutdown(wiring::mcp::STOP_TIMEOUT).await;
        }
    }
}

fn is_turn_end(event: &AgentEvent) -> bool {
    matches!(event, AgentEvent::TurnFinished { .. })
}

fn work_future(
    work: impl Future<Output = (Box<Conversation>, WorkResult)> + Send + 'static,
) -> WorkFuture {
    Mutex::new(Box::pin(task::catch("conversation", work)))
}

async fn run_line(
    mut conversation: Box<Conversation>,
    line: String,
    stop: CancellationToken,
) -> (Box<Conversation>, WorkResult) {
    let ran = async {
        if let Some(result) = slash_commands::line(&mut conversation, &line).await {
            WorkResult::Ran(result)
        } else {
            let input = line.as_str().into();
            WorkResult::NotACommand(prepare_message(&mut conversation, input).await)
        }
    };
    let result = tokio::select! {
        biased;
        result = ran => result,
        () = stop.cancelled() => WorkResult::Stopped,
    };
    (conversation, result)
}

/// The command for a message of the person, if a model is configured.
async fn prepare_message(conversation: &mut Conversation, input: UserInput) -> PreparedMessage {
    let refused = match conversation.check_ready(&input.text).await {
        Ok(None) => None,
        Ok(Some(_)) => {
            let why = conversation.chat.missing.as_ref();
            let why = why.map_or_else(String::new, ToString::to_string);
            Some(Failure::new(Exit::NotConfigured, why))
        }
        Err(failure) => Some(failure),
    };
    if let Some(failure) = refused {
        return PreparedMessage {
            warning: None,
            command: Err(host_error(&failure)),
        };
    }
    let chat = &conversation.chat;
    let unsupported = !input.images.is_empty() && !chat.able.images;
    let warning = unsupported.then(|| {
        format!(
            "{} is not known to support images, so it only learns that there was one. If it does \
             support them: hermes config set model.supports_vision true",
            chat.route.model
        )
    });
    PreparedMessage {
        warning,
        command: Ok(conversation.message(input)),
    }
}

fn text_update(kind: &TextKind, text: String) -> ConversationUpdate {
    let (level, columns) = match kind {
        TextKind::Plain | TextKind::Diff => (NoticeLevel::Info, true),
        TextKind::Markdown | TextKind::Info => (NoticeLevel::Info, false),
        TextKind::Warning => (NoticeLevel::Warning, false),
        TextKind::Error { .. } => (NoticeLevel::Error, false),
    };
    let text = match kind {
        TextKind::Error { fix: Some(fix) } => format!("{text}\n{fix}"),
        _ => text,
    };
    ConversationUpdate::Text {
        level,
        text,
        columns,
    }
}

pub fn host_error(failure: &Failure) -> HostError {
    let kind = match failure.exit {
        Exit::NotConfigured => HostErrorKind::NotConfigured,
        Exit::NotFound => HostErrorKind::NotFound,
        Exit::Usage => HostErrorKind::Invalid,
        _ => HostErrorKind::Failed,
    };
    let message = match kind {
        HostErrorKind::NotConfigured => {
            format!(
                "{}\nto set it up, in a terminal: hermes setup",
                failure.message
            )
        }
        _ => failure.message.clone(),
    };
    HostError::new(kind, message)
}

//! The actor of one conversation for a front end that serves others (an editor, a chat): handles
//! requests and sends updates.
//!
//! While a slash command runs, events of the session, interrupts and answers are still handled;
//! other requests wait.

use std::collections::VecDeque;
use std::future::Future;
use std::sync::Arc;

use hermes_agent::events::EventReceiver;
use hermes_agent::session::SessionHandle;
use hermes_agent::weight::ConversationMemory;
use hermes_core::event::{AgentCommand, AgentEvent, NoticeLevel, SequencedEvent, UserInput};
use hermes_core::front_end::{Effect, ShownText, TextKind, TranscriptEntry};
use hermes_core::task;
use hermes_mcp::tools::toolbox::Toolbox;
use tokio::sync::mpsc;

use super::Conversation;
use crate::failure::{Exit, Failure};
use crate::front::{
    CommandFollowUp, ConversationRequest, ConversationUpdate, HostError, HostErrorKind,
    OpenedConversation, REQUESTS, UPDATES,
};
use crate::slash_commands;
use crate::wiring;

/// Maximum number of requests waiting for a command.
const WAITING: usize = 16;

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

struct ConversationActor {
    conversation: Conversation,
    inputs: ConversationInputs,
    rules: CommandRules,
    on_close: ClosePolicy,
    /// Servers of this conversation alone.
    servers: Option<Arc<Toolbox>>,
}

/// The channels that are served while a command runs.
struct ConversationInputs {
    requests: mpsc::Receiver<ConversationRequest>,
    updates: mpsc::Sender<ConversationUpdate>,
    /// `None`: the session is over.
    events: Option<EventReceiver>,
    handle: SessionHandle,
    weight: ConversationMemory,
    later: mpsc::Receiver<Effect>,
    waiting: VecDeque<ConversationRequest>,
    /// Events that the conversation has not observed yet.
    unobserved: Vec<AgentEvent>,
    closed: bool,
}

enum ActorEvent {
    Request(Option<ConversationRequest>),
    Event(Option<SequencedEvent>),
    Later(Effect),
}

/// Options of a front end that serves others.
pub struct ActorOptions {
    pub rules: CommandRules,
    pub on_close: ClosePolicy,
    /// MCP servers of this conversation alone; they end with it.
    pub servers: Option<Arc<Toolbox>>,
    /// Earlier messages, for the front end.
    pub past: Vec<TranscriptEntry>,
    /// Remarks to show at the start.
    pub remarks: Vec<String>,
}

/// Starts the task of a conversation and returns the front end's side of it.
pub fn start(
    mut conversation: Conversation,
    later: mpsc::Receiver<Effect>,
    options: ActorOptions,
) -> OpenedConversation {
    let (requests, receiver) = mpsc::channel(REQUESTS);
    let (sender, updates) = mpsc::channel(UPDATES);
    let weight = ConversationMemory::default();
    let opened = OpenedConversation {
        id: conversation.chat.id.to_string(),
        title: conversation.title.clone(),
        cost: conversation.cost,
        past: options.past,
        remarks: options.remarks,
        approvals_off: approvals_off(&conversation),
        weight: weight.clone(),
        requests,
        updates,
    };
    let live = ConversationInputs {
        requests: receiver,
        updates: sender,
        events: conversation.opened.take(),
        handle: conversation.chat.handle(),
        weight,
        later,
        waiting: VecDeque::new(),
        unobserved: Vec::new(),
        closed: false,
    };
    live.update_weight();
    let actor = ConversationActor {
        conversation,
        inputs: live,
        rules: options.rules,
        on_close: options.on_close,
        servers: options.servers,
    };
    task::spawn("conversation", Box::new(actor).run());
    opened
}

fn approvals_off(conversation: &Conversation) -> bool {
    let commands = conversation.chat.commands.as_ref();
    commands.is_some_and(|commands| commands.gate.config().mode == hermes_policy::ApprovalMode::Off)
}

impl ConversationActor {
    /// Runs until the requests end, then closes the conversation. Work is boxed, because most of
    /// the time many of these tasks only wait.
    async fn run(mut self: Box<Self>) {
        while !self.inputs.closed {
            if let Some(request) = self.inputs.waiting.pop_front() {
                Box::pin(self.handle_request(request)).await;
            } else {
                match self.inputs.next().await {
                    ActorEvent::Request(Some(request)) => {
                        Box::pin(self.handle_request(request)).await;
                    }
                    ActorEvent::Request(None) => break,
                    ActorEvent::Event(event) => self.inputs.event(event).await,
                    ActorEvent::Later(effect) => Box::pin(self.effect(effect)).await,
                }
            }
            self.settle().await;
        }
        let Self {
            mut conversation,
            inputs: live,
            on_close,
            servers,
            ..
        } = *self;
        // Its resources belong to the process.
        conversation.chat.borrows = true;
        drop(live.events);
        let left = match on_close {
            ClosePolicy::End => Box::pin(conversation.leave()).await,
            ClosePolicy::Keep => Box::pin(conversation.suspend()).await,
        };
        if let Err(failure) = left {
            tracing::warn!("closing a conversation: {}", failure.message);
        }
        if let Some(servers) = servers {
            servers.shutdown(wiring::mcp::STOPPING).await;
        }
        // Last: closing the channel signals that everything has ended.
        drop(live.updates);
    }

    /// Applies pending events to the conversation.
    async fn settle(&mut self) {
        for event in std::mem::take(&mut self.inputs.unobserved) {
            self.conversation.observe(&event);
            if matches!(event, AgentEvent::TurnFinished { .. })
                && let Some(effect) = Box::pin(self.conversation.settle_title()).await
            {
                self.effect(effect).await;
            }
        }
        self.take_opened();
    }

    /// Another session is open.
    fn take_opened(&mut self) {
        if let Some(events) = self.conversation.opened.take() {
            self.inputs.events = Some(events);
            self.inputs.handle = self.conversation.chat.handle();
            self.inputs.update_weight();
        }
    }

    async fn handle_request(&mut self, request: ConversationRequest) {
        match request {
            ConversationRequest::Input(input) => self.submit(input).await,
            ConversationRequest::Agent(command) => self.inputs.command(command).await,
            ConversationRequest::Slash(line) => self.slash(&line).await,
            // Nothing runs that could be stopped.
            ConversationRequest::Stop => {}
        }
    }

    async fn submit(&mut self, input: UserInput) {
        match self.conversation.check_ready(&input.text).await {
            Ok(None) => {}
            Ok(Some(_)) => {
                let why = self.conversation.chat.missing.as_ref();
                let why = why.map_or_else(String::new, ToString::to_string);
                let failure = Failure::new(Exit::NotConfigured, why);
                return self
                    .inputs
                    .send_update(ConversationUpdate::Rejected(host_error(&failure)))
                    .await;
            }
            Err(failure) => {
                return self
                    .inputs
                    .send_update(ConversationUpdate::Rejected(host_error(&failure)))
                    .await;
            }
        }
        // The model may have been configured just now.
        self.take_opened();
        let chat = &self.conversation.chat;
        if !input.images.is_empty() && !chat.able.images {
            let text = format!(
                "{} is not known to support images, so it only learns that there was one. If it \
                 does support them: hermes config set model.supports_vision true",
                chat.route.model
            );
            self.inputs
                .send_text(NoticeLevel::Warning, text, false)
                .await;
        }
        let message = self.conversation.message(input);
        self.inputs.command(message).await;
    }

    async fn slash(&mut self, line: &str) {
        if let Some(text) = (self.rules.refused)(line) {
            self.inputs
                .send_text(NoticeLevel::Warning, text, false)
                .await;
            return self
                .inputs
                .send_update(ConversationUpdate::CommandEnded(CommandFollowUp::Nothing))
                .await;
        }
        if let Some(text) = (self.rules.help)(line) {
            self.inputs.send_text(NoticeLevel::Info, text, true).await;
            return self
                .inputs
                .send_update(ConversationUpdate::CommandEnded(CommandFollowUp::Nothing))
                .await;
        }
        let Self {
            conversation,
            inputs: live,
            ..
        } = self;
        // Apply events so far, so that it is known whether a turn is running.
        for event in std::mem::take(&mut live.unobserved) {
            conversation.observe(&event);
        }
        let done = live
            .run_alongside(Box::pin(slash_commands::line(conversation, line)))
            .await;
        let follows = match done {
            None => {
                self.inputs
                    .send_text(NoticeLevel::Info, "stopped".to_owned(), false)
                    .await;
                CommandFollowUp::Nothing
            }
            // Not a command (a path, for example): a message.
            Some(None) => {
                self.submit(line.into()).await;
                CommandFollowUp::Turn
            }
            Some(Some(Err(failure))) => {
                self.inputs
                    .send_text(NoticeLevel::Warning, failure.message, false)
                    .await;
                CommandFollowUp::Nothing
            }
            Some(Some(Ok(told))) => {
                for effect in told.effects {
                    self.effect(effect).await;
                }
                told.then
            }
        };
        self.take_opened();
        self.inputs
            .send_update(ConversationUpdate::CommandEnded(follows))
            .await;
    }

    async fn effect(&mut self, effect: Effect) {
        let update = match effect {
            Effect::Say(ShownText { kind, text }) => text_update(&kind, text),
            Effect::Page(page) => text_update(&page.kind, page.text),
            Effect::Opened { entries, .. } => ConversationUpdate::Moved {
                id: self.conversation.chat.id.to_string(),
                past: entries,
            },
            Effect::Draft(text) => {
                text_update(&TextKind::Info, format!("Your message was: {text}"))
            }
            // Effects for screens only.
            _ => return,
        };
        self.inputs.send_update(update).await;
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

impl ConversationInputs {
    async fn next(&mut self) -> ActorEvent {
        let Self {
            requests,
            events,
            later,
            ..
        } = self;
        tokio::select! {
            biased;
            request = requests.recv() => ActorEvent::Request(request),
            event = next_event(events) => ActorEvent::Event(event),
            Some(effect) = later.recv() => ActorEvent::Later(effect),
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
                ActorEvent::Request(None) => {
                    self.closed = true;
                    return None;
                }
                ActorEvent::Request(Some(ConversationRequest::Stop)) => return None,
                ActorEvent::Request(Some(ConversationRequest::Agent(command))) => {
                    self.command(command).await;
                }
                ActorEvent::Request(Some(request)) if self.waiting.len() < WAITING => {
                    self.waiting.push_back(request);
                }
                ActorEvent::Request(Some(_)) => {
                    let text = "too many messages are waiting for the running command; cancel it";
                    let refusal = HostError::new(HostErrorKind::Invalid, text);
                    self.send_update(ConversationUpdate::Rejected(refusal))
                        .await;
                }
                ActorEvent::Event(event) => self.event(event).await,
                ActorEvent::Later(Effect::Say(ShownText { kind, text })) => {
                    self.send_update(text_update(&kind, text)).await;
                }
                ActorEvent::Later(_) => {}
            }
        }
    }

    async fn command(&mut self, command: AgentCommand) {
        if self.handle.send(command).await.is_err() {
            let text = "the session ended unexpectedly; see logs/errors.log";
            let refusal = HostError::new(HostErrorKind::Failed, text);
            self.send_update(ConversationUpdate::Rejected(refusal))
                .await;
        }
    }

    async fn event(&mut self, event: Option<SequencedEvent>) {
        let Some(SequencedEvent { event, .. }) = event else {
            self.events = None;
            return;
        };
        let frequent = matches!(
            event,
            AgentEvent::TextDelta { .. }
                | AgentEvent::ReasoningDelta { .. }
                | AgentEvent::ToolProgress { .. }
        );
        if !frequent {
            self.unobserved.push(event.clone());
            self.update_weight();
        }
        self.send_update(ConversationUpdate::Event(event)).await;
    }

    /// Must happen before the end of a turn is reported.
    fn update_weight(&self) {
        self.weight.set(self.handle.bytes());
    }

    async fn send_text(&mut self, level: NoticeLevel, text: String, columns: bool) {
        self.send_update(ConversationUpdate::Text {
            level,
            text,
            columns,
        })
        .await;
    }

    async fn send_update(&mut self, update: ConversationUpdate) {
        if self.updates.send(update).await.is_err() {
            self.closed = true;
        }
    }
}

async fn next_event(events: &mut Option<EventReceiver>) -> Option<SequencedEvent> {
    match events {
        Some(events) => events.recv().await,
        None => std::future::pending().await,
    }
}

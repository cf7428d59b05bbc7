//! One conversation that a front end holds for somebody else (an editor, a chat): answers what is
//! wanted of it, tells what happens.
//!
//! While a slash command runs, events of the session, interrupts and answers go on beside it; what
//! else is wanted waits.

use std::collections::VecDeque;
use std::future::Future;
use std::sync::Arc;

use hermes_agent::events::EventReceiver;
use hermes_agent::session::SessionHandle;
use hermes_agent::weight::Weight;
use hermes_core::event::{AgentCommand, AgentEvent, NoticeLevel, SequencedEvent, UserInput};
use hermes_core::front_end::{Effect, ShownText, TextKind, TranscriptEntry};
use hermes_core::task;
use hermes_mcp::toolbox::Toolbox;
use tokio::sync::mpsc;

use super::Conversation;
use crate::failure::{Exit, Failure};
use crate::front::{
    CommandFollowUp, ConversationRequest, ConversationUpdate, HostError, HostErrorKind,
    OpenedConversation, REQUESTS, UPDATES,
};
use crate::slash_commands;
use crate::wiring;

/// Wishes that may wait for a command.
const WAITING: usize = 16;

/// What commands are there in the front end's place, in its words. Both are asked first.
#[derive(Clone, Copy)]
pub struct CommandRules {
    /// What is said to a line whose command has no place there.
    pub refused: fn(&str) -> Option<String>,
    /// What `/help` says there.
    pub help: fn(&str) -> Option<String>,
}

/// How the conversation is left when nobody wants anything any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClosePolicy {
    /// The session is over.
    End,
    /// It goes on another time.
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

/// What goes on beside a command.
struct ConversationInputs {
    requests: mpsc::Receiver<ConversationRequest>,
    updates: mpsc::Sender<ConversationUpdate>,
    /// `None`: the session is over.
    events: Option<EventReceiver>,
    handle: SessionHandle,
    weight: Weight,
    later: mpsc::Receiver<Effect>,
    waiting: VecDeque<ConversationRequest>,
    /// Events that the conversation was not told of yet.
    unobserved: Vec<AgentEvent>,
    closed: bool,
}

enum ActorEvent {
    Request(Option<ConversationRequest>),
    Event(Option<SequencedEvent>),
    Later(Effect),
}

/// What a front end that serves others opens a conversation with.
pub struct ActorOptions {
    pub rules: CommandRules,
    pub on_close: ClosePolicy,
    /// MCP servers of this conversation alone; they end with it.
    pub servers: Option<Arc<Toolbox>>,
    /// What was said before, for the front end.
    pub past: Vec<TranscriptEntry>,
    /// What the person should know from the start.
    pub remarks: Vec<String>,
}

/// Starts the task of a conversation, and gives the front end's end of it.
pub fn start(
    mut conversation: Conversation,
    later: mpsc::Receiver<Effect>,
    options: ActorOptions,
) -> OpenedConversation {
    let (wishes, receiver) = mpsc::channel(REQUESTS);
    let (sender, news) = mpsc::channel(UPDATES);
    let weight = Weight::default();
    let opened = OpenedConversation {
        id: conversation.chat.id.to_string(),
        title: conversation.title.clone(),
        cost: conversation.cost,
        past: options.past,
        remarks: options.remarks,
        approvals_off: approvals_off(&conversation),
        weight: weight.clone(),
        requests: wishes,
        updates: news,
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
    /// Until nobody wants anything any more. Follows the conversation is closed. What it does when it
    /// does something is boxed: most of the time it waits, and many do.
    async fn run(mut self: Box<Self>) {
        while !self.inputs.closed {
            if let Some(wish) = self.inputs.waiting.pop_front() {
                Box::pin(self.handle_request(wish)).await;
            } else {
                match self.inputs.next().await {
                    ActorEvent::Request(Some(wish)) => Box::pin(self.handle_request(wish)).await,
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
        // What it uses belongs to the process.
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
        // Last of all: it tells that everything has ended.
        drop(live.updates);
    }

    /// The conversation learns what happened.
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

    async fn handle_request(&mut self, wish: ConversationRequest) {
        match wish {
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
        // What happened so far, so that it knows whether a turn runs.
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
            // A path, say: something to talk about.
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
        let news = match effect {
            Effect::Say(ShownText { kind, text }) => text_update(&kind, text),
            Effect::Page(page) => text_update(&page.kind, page.text),
            Effect::Opened { entries, .. } => ConversationUpdate::Moved {
                id: self.conversation.chat.id.to_string(),
                past: entries,
            },
            Effect::Draft(text) => text_update(&TextKind::Info, format!("Your words were: {text}")),
            // What only a screen has a place for.
            _ => return,
        };
        self.inputs.send_update(news).await;
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
            requests: wishes,
            events,
            later,
            ..
        } = self;
        tokio::select! {
            biased;
            wish = wishes.recv() => ActorEvent::Request(wish),
            event = next_event(events) => ActorEvent::Event(event),
            Some(effect) = later.recv() => ActorEvent::Later(effect),
        }
    }

    /// Runs a command, and what goes on beside it. `None`: it was stopped.
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
                    self.command(command).await
                }
                ActorEvent::Request(Some(wish)) if self.waiting.len() < WAITING => {
                    self.waiting.push_back(wish);
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

    /// Before anybody is told that a turn has ended.
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

    async fn send_update(&mut self, news: ConversationUpdate) {
        if self.updates.send(news).await.is_err() {
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

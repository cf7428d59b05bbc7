//! One conversation with an editor: prompts, questions, updates.

mod questions;
mod turns;

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use agent_client_protocol::v1::schema::{
    ClientCapabilities, ContentBlock, PromptResponse, SessionNotification, SessionUpdate,
    StopReason, ToolCallUpdate,
};
use agent_client_protocol::v1::{ConnectionTo, Responder};
use agent_client_protocol::{Client, Error, ErrorCode, JsonRpcRequest, JsonRpcResponse};
use hermes_app::{
    CommandFollowUp, ConversationRequest, ConversationUpdate, HostError, HostErrorKind,
    LiveConversation,
};
use hermes_core::event::{AgentCommand, AgentEvent, NoticeLevel, UserInput};
use hermes_core::model::Route;
use hermes_core::slash::{self, Parsed};
use hermes_core::task;
use serde::{Deserialize, Serialize};
use tokio::sync::{mpsc, watch};
use tokio_util::sync::{CancellationToken, DropGuard};

use crate::edits::Edits;
use crate::mode::EditorMode;
use crate::terminals::EditorTerminals;
use crate::wire::OutputBacklog;
use crate::{calls, prompt, updates};

/// Orders of the editor that may wait.
pub(crate) const ORDER_QUEUE_CAPACITY: usize = 64;
/// Timeout for the end of a conversation.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(10);
/// Maximum size of a call's progress, in bytes.
const MAX_PROGRESS_BYTES: usize = 16 * 1024;

/// A request of the editor.
pub(crate) enum EditorRequest {
    Prompt {
        blocks: Vec<ContentBlock>,
        prompt: Box<PendingPrompt>,
    },
    /// Another model answers from here on.
    SetModel {
        model: String,
        prompt: Box<PendingPrompt>,
    },
    /// Stops the current work.
    Cancel,
    /// The answer to a question.
    Answer(AgentCommand),
}

/// `session/set_model`: not in the stable protocol, but editors have a menu for it.
#[derive(Clone, Debug, Serialize, Deserialize, JsonRpcRequest)]
#[request(method = "session/set_model", response = SetModelResponse)]
#[serde(rename_all = "camelCase")]
pub(crate) struct SetModelRequest {
    pub(crate) session_id: String,
    pub(crate) model_id: String,
}

#[derive(Clone, Debug, Serialize, Deserialize, JsonRpcResponse)]
pub(crate) struct SetModelResponse {}

/// The receiver of an answer.
pub(crate) enum PromptResponder {
    Prompt(Responder<PromptResponse>),
    Model(Responder<SetModelResponse>),
}

/// A prompt without an answer yet.
pub(crate) struct PendingPrompt {
    pub(crate) responder: PromptResponder,
    /// Ends the watch for its cancellation.
    pub(crate) end_guard: DropGuard,
}

impl PendingPrompt {
    /// A disconnected editor needs no answer.
    pub(crate) fn answer(self, outcome: Result<StopReason, Error>) {
        let answered = match self.responder {
            PromptResponder::Prompt(responder) => {
                responder.respond_with_result(outcome.map(PromptResponse::new))
            }
            PromptResponder::Model(responder) => {
                responder.respond_with_result(outcome.map(|_| SetModelResponse {}))
            }
        };
        if let Err(error) = answered {
            tracing::debug!("a prompt is not answered: {error}");
        }
        drop(self.end_guard);
    }
}

/// The sink for updates.
#[derive(Clone)]
pub(crate) struct UpdateSink {
    pub(crate) session: String,
    pub(crate) connection: ConnectionTo<Client>,
    pub(crate) gauge: Arc<OutputBacklog>,
    pub(crate) client: Arc<ClientCapabilities>,
    /// The editor supports newer kinds of updates.
    pub(crate) newer: bool,
}

impl UpdateSink {
    pub(crate) async fn update(&self, update: SessionUpdate) {
        // Editors treat messages of unknown kinds as errors.
        if updates::came_later(&update) && !self.newer {
            return;
        }
        self.gauge.room().await;
        let notification = SessionNotification::new(self.session.clone(), update);
        if let Err(error) = self.connection.send_notification(notification) {
            tracing::debug!("the editor is gone: {error}");
        }
    }

    pub(crate) async fn call(&self, update: ToolCallUpdate) {
        self.update(SessionUpdate::ToolCallUpdate(update)).await;
    }

    pub(crate) async fn notice(&self, level: NoticeLevel, text: &str) {
        self.update(updates::notice(level, text, &self.client))
            .await;
    }
}

/// The parts of a conversation.
pub(crate) struct SessionParts {
    pub(crate) outlet: UpdateSink,
    pub(crate) cwd: PathBuf,
    pub(crate) edits: Edits,
    /// The editor's terminals, if it has any for us.
    pub(crate) terminals: Option<Arc<EditorTerminals>>,
    /// Dollars that it has cost before.
    pub(crate) spent: Option<f64>,
    pub(crate) orders: mpsc::Receiver<EditorRequest>,
    pub(crate) answers: mpsc::WeakSender<EditorRequest>,
    pub(crate) conversation: LiveConversation,
    pub(crate) stop: CancellationToken,
}

pub(crate) struct EditorSession {
    outlet: UpdateSink,
    cwd: PathBuf,
    edits: Edits,
    terminals: Option<Arc<EditorTerminals>>,
    modes: watch::Receiver<EditorMode>,
    orders: mpsc::Receiver<EditorRequest>,
    /// Where answers to questions come from, as orders.
    answers: mpsc::WeakSender<EditorRequest>,
    conversation: LiveConversation,
    stop: CancellationToken,
    /// Prompts that the end of the turn answers.
    waiting: Vec<PendingPrompt>,
    command: Option<RunningSlashCommand>,
    /// A turn runs.
    turn: bool,
    /// Messages that wait for it.
    queued: usize,
    route: Option<Route>,
    /// Dollars of the turns that ended.
    spent: Option<f64>,
    /// Running calls with their progress.
    running: HashMap<String, RunningTool>,
    /// Questions that the editor shows.
    asked: HashMap<String, CancellationToken>,
    /// The editor cancelled the turn that runs.
    cancelled: bool,
}

struct RunningTool {
    /// Its reports contain the end of the output so far; each replaces the last one.
    prints: bool,
    progress: String,
}

/// A slash command that runs.
struct RunningSlashCommand {
    prompt: PendingPrompt,
    /// It has ended, and a report of the session is expected.
    reports: bool,
    /// The session has sent a report since it started.
    reported: bool,
    /// A turn has ended since it started.
    turned: bool,
    /// Its error, if any.
    failed: Option<String>,
}

impl RunningSlashCommand {
    /// It is over. A model request needs to know whether it succeeded; for others the text is
    /// enough.
    fn answer(self) {
        let outcome = match (&self.prompt.responder, self.failed) {
            (PromptResponder::Model(_), Some(why)) => Err(invalid(why)),
            _ => Ok(StopReason::EndTurn),
        };
        self.prompt.answer(outcome);
    }
}

impl EditorSession {
    pub(crate) fn new(parts: SessionParts) -> Self {
        Self {
            modes: parts.edits.modes(),
            outlet: parts.outlet,
            cwd: parts.cwd,
            edits: parts.edits,
            terminals: parts.terminals,
            orders: parts.orders,
            answers: parts.answers,
            conversation: parts.conversation,
            stop: parts.stop,
            waiting: Vec::new(),
            command: None,
            turn: false,
            queued: 0,
            route: None,
            spent: parts.spent,
            running: HashMap::new(),
            asked: HashMap::new(),
            cancelled: false,
        }
    }

    /// Until it is closed, the editor leaves, or the conversation breaks.
    pub(crate) async fn run(mut self) {
        let stop = self.stop.clone();
        // Sending may block if the editor no longer reads.
        tokio::select! {
            () = stop.cancelled() => {}
            () = self.attend() => {}
        }
        self.end().await;
    }

    async fn attend(&mut self) {
        loop {
            tokio::select! {
                biased;
                Some(order) = self.orders.recv() => self.order(order),
                update = self.conversation.next_update() => {
                    let Some(update) = update else {
                        return self.fail(&broken());
                    };
                    self.on_update(update).await;
                }
                Ok(()) = self.modes.changed() => {
                    let mode = *self.modes.borrow_and_update();
                    self.outlet.update(updates::mode(mode)).await;
                }
            }
        }
    }

    async fn end(self) {
        self.asked.values().for_each(CancellationToken::cancel);
        for prompt in self
            .waiting
            .into_iter()
            .chain(self.command.map(|c| c.prompt))
        {
            prompt.answer(Ok(StopReason::Cancelled));
        }
        // In a task of its own: it ends even if that takes longer.
        let ended = task::spawn("closing a conversation", self.conversation.close());
        if tokio::time::timeout(CLOSE_TIMEOUT, ended).await.is_err() {
            tracing::warn!("a conversation takes long to end");
        }
    }

    fn order(&mut self, order: EditorRequest) {
        match order {
            EditorRequest::Prompt {
                blocks,
                prompt: asked,
            } => match prompt::read(&blocks) {
                Err(error) => asked.answer(Err(invalid(error.to_string()))),
                Ok(input) => self.prompt(input, *asked),
            },
            EditorRequest::SetModel { model, prompt } => {
                self.slash(format!("/model {model}"), *prompt);
            }
            EditorRequest::Cancel => {
                if self.command.is_some() {
                    self.conversation.request(ConversationRequest::Stop);
                }
                self.cancelled |= self.turn;
                if self.turn || !self.waiting.is_empty() || self.command.is_some() {
                    self.send_command(AgentCommand::Interrupt);
                }
            }
            EditorRequest::Answer(command) => self.send_command(command),
        }
    }

    fn prompt(&mut self, input: UserInput, prompt: PendingPrompt) {
        if let Some(line) = command_line(&input) {
            return self.slash(line, prompt);
        }
        let request = if self.waiting.is_empty() || !input.images.is_empty() {
            ConversationRequest::Input(input)
        } else {
            // One prompt at a time: a second one steers the turn.
            let context = input.context.map(|text| format!("\n\n{text}"));
            let text = input.text + context.as_deref().unwrap_or_default();
            ConversationRequest::Agent(AgentCommand::Steer(text))
        };
        if self.conversation.request(request) {
            self.waiting.push(prompt);
        } else {
            prompt.answer(Err(busy()));
        }
    }

    fn slash(&mut self, line: String, prompt: PendingPrompt) {
        if self.command.is_some() {
            return prompt.answer(Err(busy()));
        }
        if !self.conversation.request(ConversationRequest::Slash(line)) {
            return prompt.answer(Err(busy()));
        }
        self.command = Some(RunningSlashCommand {
            prompt,
            reports: false,
            reported: false,
            turned: false,
            failed: None,
        });
    }

    /// A conversation that has ended needs no command.
    fn send_command(&mut self, command: AgentCommand) {
        self.conversation
            .request(ConversationRequest::Agent(command));
    }

    async fn on_update(&mut self, update: ConversationUpdate) {
        match update {
            ConversationUpdate::Event(event) => self.event(event).await,
            ConversationUpdate::Text {
                level,
                text,
                columns,
            } => {
                if level == NoticeLevel::Error
                    && let Some(command) = &mut self.command
                {
                    command.failed = Some(text.clone());
                }
                let update = match level {
                    NoticeLevel::Info if columns => updates::text(calls::fenced(&text) + "\n\n"),
                    NoticeLevel::Info => updates::text(text + "\n\n"),
                    _ => updates::notice(level, &text, &self.outlet.client),
                };
                self.outlet.update(update).await;
            }
            ConversationUpdate::Moved { id, past } => {
                self.running.clear();
                let text = if past.is_empty() {
                    format!(
                        "A new conversation ({id}). The editor's entry of this one still opens the old one."
                    )
                } else {
                    format!("This is the conversation {id} now.")
                };
                self.outlet.notice(NoticeLevel::Info, &text).await;
            }
            ConversationUpdate::Rejected(refusal) => self.fail(&refusal),
            ConversationUpdate::CommandEnded(follows) => self.ran(follows),
        }
    }

    fn ran(&mut self, follows: CommandFollowUp) {
        let Some(command) = &mut self.command else {
            return;
        };
        let ends = match follows {
            CommandFollowUp::Nothing => true,
            CommandFollowUp::Report => {
                command.reports = true;
                command.reported
            }
            CommandFollowUp::Turn => command.turned && !self.turn,
        };
        let Some(command) = self
            .command
            .take_if(|_| ends || follows == CommandFollowUp::Turn)
        else {
            return;
        };
        if ends {
            command.answer();
        } else {
            self.waiting.push(command.prompt);
        }
    }

    /// Answers all pending prompts: nothing more will follow.
    fn fail(&mut self, refusal: &HostError) {
        let command = self.command.take().map(|command| command.prompt);
        for prompt in std::mem::take(&mut self.waiting).into_iter().chain(command) {
            prompt.answer(Err(error(refusal)));
        }
    }
}

/// The line of a prompt that is a command.
fn command_line(input: &UserInput) -> Option<String> {
    if !input.images.is_empty() || input.context.is_some() {
        return None;
    }
    let line = input.text.trim();
    // The session id known to the editor.
    let line = match line.strip_prefix("/context") {
        Some(rest) if rest.is_empty() || rest.starts_with(' ') => format!("/usage{rest}"),
        _ => line.to_owned(),
    };
    (!matches!(slash::parse(&line), Parsed::Text)).then_some(line)
}

pub(crate) fn invalid(message: impl Into<String>) -> Error {
    Error::new(ErrorCode::INVALID_PARAMS, message)
}

pub(crate) fn busy() -> Error {
    let text = "this conversation is busy: wait for the answer, or cancel it";
    Error::new(ErrorCode::INVALID_REQUEST, text)
}

fn broken() -> HostError {
    let text = "the conversation ended unexpectedly; see logs/errors.log";
    HostError::new(HostErrorKind::Failed, text)
}

pub(crate) fn error(refusal: &HostError) -> Error {
    let code = match refusal.kind {
        HostErrorKind::NotConfigured => ErrorCode::AUTH_REQUIRED,
        HostErrorKind::NotFound => ErrorCode::RESOURCE_NOT_FOUND,
        HostErrorKind::Invalid => ErrorCode::INVALID_PARAMS,
        HostErrorKind::Failed => ErrorCode::INTERNAL_ERROR,
    };
    Error::new(code, refusal.message.clone())
}

/// Reports of the session about a command.
fn is_report(event: &AgentEvent) -> bool {
    matches!(
        event,
        AgentEvent::Compacted { .. } | AgentEvent::RouteChanged { .. } | AgentEvent::Notice { .. }
    )
}

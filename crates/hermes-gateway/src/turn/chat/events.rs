//! Handles the events of a turn: previews, approvals, inactivity.

use std::collections::{HashSet, VecDeque};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use hermes_agent::subagent;
use hermes_app::ConversationUpdate;
use hermes_core::event::{AgentEvent, NoticeLevel};
use hermes_store::delivery::Target;
use serde_json::{Value, json};
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::Instant;

use super::ask::PendingQuestion;
use super::{ChatTask, recover};
use crate::conversation_pool::HolderEvent;
use crate::render::may_become_silence;
use crate::turn::message::InboxMessage;
use crate::turn::messages;
use crate::turn::preview::{Preview, PreviewDeps};
use crate::turn::shared::{GatewayShared, ReactionTask, react};
use crate::turn::style::{ChatStyle, ToolProgress};

/// Maximum number of tool lines shown.
const MAX_LINES: usize = 8;
/// Maximum size of the previewed answer.
const MAX_SHOWN: usize = 64 * 1024;
/// Maximum number of warnings shown per turn.
const MAX_WARNINGS: usize = 8;
/// Length of message excerpts for hooks, in characters.
const EXCERPT_CHARS: usize = 500;

/// Why a turn was interrupted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TurnStopReason {
    /// Requested by the person.
    Stop,
    /// Replaced by a newer message.
    Message,
    /// The chat switches to another conversation.
    Switch,
    /// Nothing has happened for too long.
    Stuck,
}

/// A running turn.
pub(in crate::turn) struct ChatTurn {
    pub(super) id: String,
    pub(super) target: Target,
    pub(super) reply_to: Option<String>,
    /// The messages it answers, starting with the first one. Empty: not started by a message.
    pub(super) msgs: Vec<InboxMessage>,
    /// Messages that joined and were not read by the model yet.
    pub(super) steers: VecDeque<(InboxMessage, String)>,
    /// Another message follows the preview.
    pub(super) displaced: bool,
    pub(super) questions: Vec<PendingQuestion>,
    pub(super) permit: Option<OwnedSemaphorePermit>,
    pub(super) spoken: bool,
    /// Requested by us; it may be queued behind an unsolicited turn.
    pub(super) asked: bool,
    pub(super) preview: Option<Preview>,
    /// The reaction that shows that it is running.
    pub(super) reaction: Option<ReactionTask>,
    pub(super) stopping: Option<(TurnStopReason, Instant)>,
    pub(super) style: ChatStyle,
    started: bool,
    /// The running turn is not the one we requested, which follows.
    pub(super) foreign: bool,
    began: Instant,
    last_event: Instant,
    text: String,
    lines: Vec<String>,
    last_tool: Option<String>,
    /// Calls with running subagents.
    delegating: HashSet<String>,
    notice_at: Option<Instant>,
    warnings: usize,
    stuck_after: Duration,
    shared: Arc<GatewayShared>,
}

impl Drop for ChatTurn {
    fn drop(&mut self) {
        self.shared.set_working(&self.id, None);
        self.shared.active.fetch_sub(1, Ordering::SeqCst);
        self.shared.ended.notify_waiters();
    }
}

impl ChatTurn {
    pub(super) fn new(
        shared: &Arc<GatewayShared>,
        id: String,
        target: Target,
        reply_to: Option<String>,
        msgs: Vec<InboxMessage>,
        earlier: Option<String>,
    ) -> Self {
        let style = ChatStyle::from_settings(&shared.settings, &target.platform);
        let now = Instant::now();
        let limit = shared.settings.config.agent.gateway_timeout;
        shared.active.fetch_add(1, Ordering::SeqCst);
        shared.set_working(&id, Some(&target));
        let mut turn = Self {
            id,
            target,
            reply_to,
            msgs,
            steers: VecDeque::new(),
            displaced: false,
            questions: Vec::new(),
            permit: None,
            spoken: false,
            asked: false,
            preview: None,
            reaction: None,
            stopping: None,
            notice_at: style.notice_every.map(|every| now + every),
            style,
            started: false,
            foreign: false,
            began: now,
            last_event: now,
            text: String::new(),
            lines: Vec::new(),
            last_tool: None,
            delegating: HashSet::new(),
            warnings: 0,
            stuck_after: Duration::from_secs(limit),
            shared: Arc::clone(shared),
        };
        turn.start_preview(earlier);
        turn
    }

    fn start_preview(&mut self, earlier: Option<String>) {
        let Some(outbound) = self.shared.outbound(&self.target) else {
            return;
        };
        if self.style.reactions
            && outbound.capabilities().reactions
            && let Some(lead) = self.msgs.first()
        {
            let (to, id) = (self.target.clone(), lead.incoming.message_id.clone());
            let before = self.reaction.take();
            self.reaction = Some(react(Arc::clone(&outbound), to, id, Some("👀"), before));
        }
        let typing = self.style.typing && outbound.capabilities().typing;
        if !typing && !self.style.shows() && earlier.is_none() {
            return;
        }
        let (shared, lead) = (
            Arc::clone(&self.shared),
            self.msgs.first().map(|msg| msg.id),
        );
        let reply = self.shared.reply_to(&self.target, 0);
        let (looker, chat_target) = (Arc::clone(&self.shared), self.target.clone());
        self.preview = Some(Preview::begin(PreviewDeps {
            outbound,
            target: self.target.clone(),
            reply_to: self.reply_to.clone().filter(|_| reply),
            streaming: self.shared.settings.streaming.clone(),
            typing,
            rng: Arc::clone(&self.shared.rng),
            earlier,
            clear: Box::new(move || {
                let (shared, chat_target) = (Arc::clone(&looker), chat_target.clone());
                Box::pin(async move {
                    shared
                        .delivery
                        .is_owed(&chat_target)
                        .await
                        .is_ok_and(|owed| !owed)
                })
            }),
            store: Box::new(move |message| {
                let shared = Arc::clone(&shared);
                Box::pin(async move {
                    let Some(lead) = lead else { return };
                    let note = shared.delivery.note(lead, recover::PREVIEW, Some(&message));
                    if let Err(error) = note.await {
                        tracing::warn!("a preview: {error}");
                    }
                })
            }),
        }));
    }

    /// `false`: it was interrupted already.
    pub(super) fn stop(&mut self, why: TurnStopReason, at: Instant) -> bool {
        match &mut self.stopping {
            Some((before, _)) => {
                // The person's request takes precedence.
                if why == TurnStopReason::Stop {
                    *before = why;
                }
                false
            }
            stopping @ None => {
                *stopping = Some((why, at));
                true
            }
        }
    }

    /// Whether subagents are running.
    pub(super) fn delegates(&self) -> bool {
        !self.delegating.is_empty()
    }

    pub(super) fn is_stopping(&self) -> bool {
        self.stopping.is_some()
    }

    pub(super) fn is_abandoned(&self, now: Instant) -> bool {
        self.stopping.is_some_and(|(_, at)| at <= now)
    }

    /// Whether there was no event for too long while no question is open.
    pub(super) fn is_stuck(&self, now: Instant) -> bool {
        !self.stuck_after.is_zero()
            && self.stopping.is_none()
            && self.questions.is_empty()
            && now.duration_since(self.last_event) >= self.stuck_after
    }

    pub(super) fn deadline(&self) -> Option<Instant> {
        let stuck =
            (!self.stuck_after.is_zero() && self.stopping.is_none() && self.questions.is_empty())
                .then(|| self.last_event + self.stuck_after);
        let questions = self.questions.iter().map(|asked| asked.until).min();
        let stopping = self.stopping.map(|(_, at)| at);
        let times = [stuck, questions, stopping, self.notice_at];
        times.into_iter().flatten().min()
    }

    pub(super) fn seconds(&self, now: Instant) -> u64 {
        now.duration_since(self.began).as_secs()
    }

    pub(super) fn expired(&self, now: Instant) -> Vec<String> {
        let expired_questions = self.questions.iter().filter(|asked| asked.until <= now);
        expired_questions.map(|asked| asked.id.clone()).collect()
    }

    /// Shows that the turn takes long.
    pub(super) fn refresh_notice(&mut self, now: Instant) {
        if self.notice_at.is_none_or(|at| at > now) {
            return;
        }
        self.notice_at = self.style.notice_every.map(|every| now + every);
        self.refresh();
    }

    /// Resets the preview for the following turn.
    pub(super) fn reset(&mut self) {
        self.started = false;
        self.foreign = false;
        self.stopping = None;
        self.text.clear();
        self.lines.clear();
        self.last_tool = None;
        self.delegating.clear();
        self.displaced = false;
        self.start_preview(None);
    }

    /// Updates the preview.
    pub(super) fn refresh(&self) {
        let Some(show) = &self.preview else { return };
        let mut parts: Vec<String> = Vec::new();
        if self.style.progress != ToolProgress::Off && !self.lines.is_empty() {
            parts.push(self.lines.join("\n"));
        }
        if self.style.stream && !may_become_silence(&self.text) && !self.text.trim().is_empty() {
            parts.push(self.text.clone());
        }
        let minutes = self.began.elapsed().as_secs() / 60;
        let every = self.style.notice_every;
        if every.is_some_and(|every| self.began.elapsed() >= every) && parts.is_empty() {
            let tool = self.last_tool.as_deref().map(|name| format!(", at {name}"));
            let tool = tool.unwrap_or_default();
            parts.push(format!("⏳ Still working: {minutes} min{tool}"));
        }
        let quiet = !self.questions.is_empty();
        show.set(|view| {
            view.text = parts.join("\n\n");
            view.quiet = quiet;
        });
    }

    fn tool(&mut self, name: &str, arguments: &str) {
        let again = self.last_tool.as_deref() == Some(name);
        self.last_tool = Some(name.to_owned());
        // Text before a tool call is not the answer.
        self.text.clear();
        if self.style.progress == ToolProgress::All
            || (self.style.progress == ToolProgress::New && !again)
        {
            self.lines.push(messages::tool(name, arguments));
            let surplus = self.lines.len().saturating_sub(MAX_LINES);
            self.lines.drain(..surplus);
        }
        self.refresh();
    }

    /// This text has reached the model: marks its messages as read.
    fn steered(&mut self, text: &str) {
        let mut rest = text;
        while let Some((_, words)) = self.steers.front() {
            let Some(after) = rest.strip_prefix(words.as_str()) else {
                return;
            };
            rest = after.strip_prefix('\n').unwrap_or(after);
            if let Some((msg, _)) = self.steers.pop_front() {
                self.msgs.push(msg);
            }
        }
    }
}

impl ChatTask {
    pub(super) async fn on_holder_event(&mut self, next: HolderEvent) {
        match next {
            HolderEvent::Wanted => {
                if let Some(open) = &mut self.conversation {
                    open.wanted = true;
                }
            }
            HolderEvent::Update(None) => {
                self.conversation = None;
                self.conversation_ended().await;
            }
            HolderEvent::Update(Some(update)) => {
                if let Some(turn) = self.activity.turn_mut() {
                    turn.last_event = Instant::now();
                }
                self.on_update(*update).await;
            }
        }
    }

    async fn on_update(&mut self, update: ConversationUpdate) {
        match update {
            ConversationUpdate::Event(event) => self.event(event).await,
            ConversationUpdate::Text {
                level,
                text,
                columns,
            } => {
                let text = if columns {
                    format!("```\n{}\n```", text.trim_end())
                } else {
                    text
                };
                match &mut self.commands.running {
                    Some(slash) => slash.texts.push(text),
                    None => self.warn(level, &text).await,
                }
            }
            ConversationUpdate::Moved { id, .. } => self.moved(id).await,
            ConversationUpdate::Rejected(refusal) => {
                let text = format!("⚠️ {refusal}");
                if self.activity.turn().is_some() {
                    self.end_turn(Some(text)).await;
                } else {
                    self.warn(NoticeLevel::Warning, &text).await;
                }
            }
            ConversationUpdate::CommandEnded(follows) => self.on_command_ended(follows).await,
        }
    }

    async fn event(&mut self, event: AgentEvent) {
        match event {
            AgentEvent::TurnStarted { .. } => self.turn_started(),
            AgentEvent::TurnFinished { summary } => self.turn_finished(summary).await,
            AgentEvent::ApprovalNeeded { request } => self.approval_needed(request).await,
            AgentEvent::QuestionAsked { question } => self.question_asked(question).await,
            AgentEvent::QuestionClosed { question } => self.question_closed(&question).await,
            AgentEvent::Notice { level, text } => {
                if !self.add_report(&text).await {
                    self.warn(level, &text).await;
                }
            }
            AgentEvent::RouteChanged { to, why, .. } => {
                self.add_report(&format!("{} now: {why}", to.model)).await;
            }
            AgentEvent::Compacted {
                before_tokens,
                after_tokens,
                ..
            } => {
                let text = format!("Compressed: {before_tokens} → {after_tokens} tokens.");
                self.add_report(&text).await;
            }
            AgentEvent::QueueChanged { waiting } => self.queue_changed(waiting),
            other => self.on_turn_event(other),
        }
    }

    /// Events that only affect the preview.
    fn on_turn_event(&mut self, event: AgentEvent) {
        let Some(turn) = self.activity.turn_mut() else {
            return;
        };
        match event {
            AgentEvent::TextDelta { text } => {
                if turn.text.len() + text.len() <= MAX_SHOWN {
                    turn.text.push_str(&text);
                }
                turn.refresh();
            }
            AgentEvent::StepDiscarded { .. } => {
                turn.text.clear();
                turn.refresh();
            }
            AgentEvent::ToolStarted {
                call_id,
                name,
                arguments,
            } => {
                turn.tool(&name, &arguments);
                if name == subagent::NAME {
                    turn.delegating.insert(call_id);
                }
            }
            AgentEvent::ToolFinished { call_id, .. } => {
                turn.delegating.remove(&call_id);
            }
            AgentEvent::Steered { text } => turn.steered(&text),
            _ => {}
        }
    }

    fn turn_started(&mut self) {
        if let Some(turn) = self.activity.turn_mut() {
            turn.started = true;
            return;
        }
        // Started by a command, or by finished background work.
        let mut turn = match &mut self.commands.running {
            Some(slash) if !slash.started_turn => {
                slash.started_turn = true;
                slash.turn_started();
                let msg = slash.msg.clone();
                let reply_to = Some(msg.incoming.message_id.clone());
                let (id, target) = (slash.turn.clone(), msg.target());
                ChatTurn::new(&self.shared, id, target, reply_to, vec![msg], None)
            }
            _ => {
                let Some(target) = self.current_target() else {
                    tracing::warn!("{}: a turn without a place to tell of it", self.key);
                    return;
                };
                let id = format!("own-{}", crate::turn::preview::key(&*self.shared.rng));
                ChatTurn::new(&self.shared, id, target, None, Vec::new(), None)
            }
        };
        turn.started = true;
        self.start_turn(turn);
        let open = self.conversation.as_mut();
        if open.is_some_and(|open| std::mem::take(&mut open.stop_next_turn)) {
            self.interrupt(TurnStopReason::Stop);
        }
    }

    /// Starts a turn.
    pub(super) fn start_turn(&mut self, turn: ChatTurn) {
        (self.shared.callbacks.on_event)("agent:start", self.hook_payload(&turn));
        self.activity.run(turn);
    }

    /// The payload for hooks about a turn.
    pub(super) fn hook_payload(&self, turn: &ChatTurn) -> Value {
        let source = turn.msgs.first().map(InboxMessage::source);
        let entry = self.shared.index.get(&self.key);
        let session = self.pooled().map(|pooled| pooled.id().to_owned());
        let session = session.or_else(|| Some(entry?.session_id));
        let words = turn.msgs.iter().map(|msg| msg.incoming.text.trim());
        let words = words.collect::<Vec<_>>().join("\n");
        json!({
            "session_key": self.key,
            "session_id": session,
            "platform": turn.target.platform,
            "user_id": source.and_then(|source| source.user_id.clone()),
            "chat_id": turn.target.chat_id,
            "thread_id": turn.target.thread_id,
            "chat_type": source.map(|source| source.chat_type.clone()),
            "message": excerpt(&words),
        })
    }

    /// Our request is queued behind an unsolicited turn: the running one is not ours.
    fn queue_changed(&mut self, waiting: usize) {
        let Some(turn) = self.activity.turn_mut() else {
            return;
        };
        let behind = waiting > 0
            && turn.asked
            && turn.started
            && turn.steers.is_empty()
            && self.commands.running.is_none();
        if behind {
            turn.started = false;
            turn.foreign = true;
        }
    }

    /// Passes a warning on, a few times per turn.
    pub(super) async fn warn(&mut self, level: NoticeLevel, text: &str) {
        if level < NoticeLevel::Warning {
            return;
        }
        let Some(target) = self.current_target() else {
            return;
        };
        if let Some(turn) = self.activity.turn_mut() {
            turn.warnings += 1;
            if turn.warnings > MAX_WARNINGS {
                return;
            }
        }
        let id = format!("note-{}", crate::turn::preview::key(&*self.shared.rng));
        self.send_text(&target, &id, &format!("⚠️ {text}")).await;
    }

    /// Where the chat is.
    pub(super) fn current_target(&self) -> Option<Target> {
        if let Some(turn) = self.activity.turn() {
            return Some(turn.target.clone());
        }
        if let Some(target) = &self.last_target {
            return Some(target.clone());
        }
        self.shared.place_of(&self.key)
    }
}

/// The beginning of a text, for hooks.
pub(super) fn excerpt(text: &str) -> String {
    text.chars().take(EXCERPT_CHARS).collect()
}

//! Prepares a turn: conversation, turn permit, files.

use std::sync::{Arc, Mutex, PoisonError};

use futures_util::FutureExt as _;
use hermes_app::{ConversationRequest, FrontEndKind, HostError, OpeningRequest};
use hermes_core::BoxFuture;
use hermes_core::tool::Tool;
use hermes_platforms::{MessageSource, definition, is_for_programs};
use serde_json::json;
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::Instant;

use super::events::ChatTurn;
use super::state::{ChatActivity, InboxPosition, OpenConversation};
use super::{ChatTask, TurnJob, TurnStart};
use crate::conversation_pool::{HolderEvent, PooledConversation};
use crate::session::{ResetReason, SessionEntry};
use crate::turn::media_in::{self, ReceivedInput};
use crate::turn::message::InboxMessage;
use crate::turn::{location, messages, tool};
use crate::voice::SpeakTool;

/// A turn that is being prepared.
pub(in crate::turn) struct TurnPreparation {
    /// `None`: only the conversation, for a command.
    pub(super) job: Option<TurnJob>,
    /// The lock only makes the chat `Sync`; there is one task.
    work: Mutex<BoxFuture<'static, PreparedTurn>>,
}

pub(super) struct PreparedTurn {
    /// `None`: it was open already.
    conversation: Option<Result<PooledConversation, HostError>>,
    permit: Option<OwnedSemaphorePermit>,
    received: ReceivedInput,
}

pub(super) async fn prepared(preparing: Option<&mut TurnPreparation>) -> PreparedTurn {
    match preparing {
        Some(preparing) => {
            let work = preparing.work.get_mut();
            work.unwrap_or_else(PoisonError::into_inner).await
        }
        None => std::future::pending().await,
    }
}

impl ChatTask {
    /// Prepares the next turn, or the conversation for a command.
    pub(super) async fn prepare_next(&mut self) {
        // Work of an earlier process comes first.
        if self.shared.is_draining()
            || self.inbox == InboxPosition::Unread
            || !self.cut.unsure.is_empty()
        {
            return;
        }
        let open = self
            .queue
            .grows_until
            .is_some_and(|until| until > Instant::now());
        let growing =
            open && self.queue.jobs.len() == 1 && self.queue.jobs[0].start == TurnStart::Fresh;
        if !growing && let Some(job) = self.queue.jobs.pop_front() {
            if self.queue.jobs.is_empty() {
                self.queue.grows_until = None;
            }
            let lead = job.msgs[0].clone();
            let Some(opening) = self.opening(&lead).await else {
                self.queue.jobs.push_front(job);
                return;
            };
            self.prepare(Some(job), opening);
        } else if self.conversation.is_none()
            && let Some(msg) = self.commands.waiting.front().cloned()
            && let Some(opening) = self.opening(&msg).await
        {
            self.prepare(None, opening);
        }
    }

    fn prepare(&mut self, job: Option<TurnJob>, opening: OpeningRequest) {
        let there = self
            .pooled()
            .is_some_and(|pooled| pooled.id() == opening.id);
        if !there {
            self.release_conversation();
        }
        let shared = Arc::clone(&self.shared);
        let job_msgs = job.as_ref().map(|job| job.msgs.clone());
        let resumed = job
            .as_ref()
            .is_some_and(|job| job.start == TurnStart::Resume);
        let work = async move {
            let permit = match &job_msgs {
                Some(_) => Arc::clone(&shared.turns).acquire_owned().await.ok(),
                None => None,
            };
            let received = match &job_msgs {
                Some(msgs) if resumed => resumed_input(msgs),
                Some(msgs) => media_in::read_messages(&shared, msgs).await,
                None => ReceivedInput::default(),
            };
            let pooled = if there {
                None
            } else {
                Some(shared.pool.acquire(opening).await)
            };
            PreparedTurn {
                conversation: pooled,
                permit,
                received,
            }
        };
        self.activity = ChatActivity::Preparing(TurnPreparation {
            job,
            work: Mutex::new(work.boxed()),
        });
    }

    /// Everything is prepared: the turn starts.
    pub(super) async fn ready(&mut self, ready: PreparedTurn) {
        let Some(TurnPreparation { job, .. }) = self.activity.take_preparing() else {
            return;
        };
        match ready.conversation {
            None => {}
            Some(Ok(pooled)) => {
                self.conversation = Some(OpenConversation::new(pooled));
                self.start_linger();
            }
            Some(Err(refusal)) => return self.refused(job, &refusal).await,
        }
        let Some(job) = job else { return };
        self.catch_up().await;
        if self.activity.turn().is_some() || self.conversation.is_none() {
            // The conversation started something by itself, or has ended.
            self.queue.jobs.push_front(job);
            return;
        }
        self.begin(job, ready.permit, ready.received).await;
    }

    /// Unread updates belong to the time before.
    async fn catch_up(&mut self) {
        loop {
            let Some(open) = &mut self.conversation else {
                return;
            };
            match open.pooled.next().now_or_never() {
                None => return,
                Some(next @ HolderEvent::Update(_)) => self.on_holder_event(next).await,
                Some(HolderEvent::Wanted) => open.wanted = true,
            }
        }
    }

    async fn refused(&mut self, job: Option<TurnJob>, refusal: &HostError) {
        if self.cancel.is_cancelled() {
            return;
        }
        let text = format!("⚠️ {refusal}");
        let commands = std::mem::take(&mut self.commands.waiting);
        let msgs = job.map(|job| job.msgs).unwrap_or_default();
        for msg in msgs.iter().chain(&commands) {
            self.answer(msg, "cmd", Some(&text)).await;
        }
    }

    async fn begin(
        &mut self,
        job: TurnJob,
        permit: Option<OwnedSemaphorePermit>,
        received: ReceivedInput,
    ) {
        let TurnJob {
            mut msgs,
            start: how,
        } = job;
        let id = msgs[0].attempt("turn");
        let ids: Vec<i64> = msgs.iter().map(|msg| msg.id).collect();
        let notes = self.shared.delivery.notes(ids[0]).await.unwrap_or_default();
        if msgs[0].turn.is_some() {
            self.count_try(ids[0], &notes).await;
        }
        if !self.shared.claim(&ids, &id, &self.cancel).await {
            return;
        }
        for msg in &mut msgs {
            msg.claims += 1;
            msg.turn = Some(id.clone());
        }
        for joined in ids.iter().skip(1) {
            let note = self
                .shared
                .delivery
                .note(*joined, super::recover::JOINED, Some("1"));
            if let Err(error) = note.await {
                tracing::warn!("a message that joins another: {error}");
            }
        }
        if how == TurnStart::Resume && notes.contains_key(super::recover::CUT) {
            let forget = self.shared.delivery.note(ids[0], super::recover::CUT, None);
            if let Err(error) = forget.await {
                tracing::warn!("a turn that goes on: {error}");
            }
        }
        let lead = &msgs[0];
        let target = lead.target();
        if !received.remarks.is_empty() {
            let remark = format!("heard-{id}");
            self.send_text(&target, &remark, &received.remarks.join("\n"))
                .await;
        }
        let earlier = notes.get(super::recover::PREVIEW).cloned();
        let reply_to = Some(lead.incoming.message_id.clone());
        let mut turn = ChatTurn::new(&self.shared, id, target, reply_to, msgs, earlier);
        turn.permit = permit;
        turn.spoken = received.spoken;
        turn.asked = true;
        if let Some(open) = &mut self.conversation {
            open.stop_next_turn = false;
        }
        self.start_turn(turn);
        let sent = self.request(ConversationRequest::Input(received.input));
        if sent {
            self.join_waiting().await;
        } else {
            self.conversation_ended().await;
        }
    }

    /// The options for opening this chat's conversation. `None`: the index cannot be written now;
    /// it is retried.
    pub(super) async fn opening(&mut self, msg: &InboxMessage) -> Option<OpeningRequest> {
        let entry = match self.shared.entry(&self.key, msg).await {
            Ok((entry, reset)) => {
                if let Some(reason) = reset {
                    self.tell_reset(msg, reason).await;
                }
                entry
            }
            Err(error) => {
                tracing::error!("the conversation of {}: {error}", self.key);
                self.schedule_retry();
                return None;
            }
        };
        Some(self.opening_of(msg, &entry))
    }

    pub(super) fn opening_of(&self, msg: &InboxMessage, entry: &SessionEntry) -> OpeningRequest {
        let source = entry.origin.as_ref().unwrap_or(msg.source());
        let chosen = |name: &str| {
            let value = entry.model_override.as_ref()?.get(name)?;
            value.as_str().map(str::to_owned)
        };
        let over = self.shared.channel_override(msg.source());
        OpeningRequest {
            id: entry.session_id.clone(),
            source: source.platform.clone(),
            user_id: source.user_id.clone(),
            model: chosen("model").or(over.model),
            provider: chosen("provider").or(over.provider),
            system: Some(match over.prompt {
                Some(prompt) => {
                    format!(
                        "{}\n{prompt}",
                        location::block(&self.shared.settings, source)
                    )
                }
                None => location::block(&self.shared.settings, source),
            }),
            kind: if is_for_programs(&source.platform) {
                FrontEndKind::Service
            } else {
                FrontEndKind::Chat
            },
            prompt_hint: definition(&source.platform).and_then(|platform| platform.prompt_hint),
            tools: self.tools(msg),
            // The answer goes to the log or becomes a comment: no one can be asked.
            unattended: is_for_programs(&msg.target().platform),
            origin: origin(source, &msg.target().account),
            keep_open: true,
            ..OpeningRequest::default()
        }
    }

    /// Tools that exist only in chats.
    fn tools(&self, msg: &InboxMessage) -> Vec<Arc<dyn Tool>> {
        let sends = tool::send_message(&self.shared, msg.target(), self.key.clone());
        let mut tools = vec![sends];
        if let Some(speaker) = self.shared.speaker.as_ref().filter(|one| one.can_speak()) {
            let dir = self.shared.settings.home.cache_dir().join("audio");
            tools.push(Arc::new(SpeakTool::new(Arc::clone(speaker), dir)));
        }
        tools
    }

    async fn tell_reset(&self, msg: &InboxMessage, reason: ResetReason) {
        let why = match reason {
            ResetReason::Idle => "nothing was said for a while",
            ResetReason::Daily => "a new day began",
        };
        let text =
            format!("🆕 A new conversation, because {why}. /resume brings the old one back.");
        self.send_text(&msg.target(), &format!("reset-{}", msg.id), &text)
            .await;
    }
}

/// The input that resumes an interrupted turn.
fn resumed_input(msgs: &[InboxMessage]) -> ReceivedInput {
    let mut received = ReceivedInput::default();
    messages::CUT.clone_into(&mut received.input.text);
    received.input.platform_message_id = msgs.first().map(|msg| msg.incoming.message_id.clone());
    received
}

/// Where jobs created here report, in the original's format.
fn origin(source: &MessageSource, account: &str) -> Option<serde_json::Value> {
    if is_for_programs(&source.platform) {
        return None;
    }
    let mut origin = json!({
        "platform": source.platform,
        "chat_id": source.chat_id,
        "chat_name": source.chat_name,
        "thread_id": source.thread_id,
        "user_id": source.user_id,
    });
    if !account.is_empty() {
        origin["account"] = json!(account);
    }
    Some(origin)
}

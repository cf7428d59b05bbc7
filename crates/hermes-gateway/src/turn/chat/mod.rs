//! The task of one chat: reads its messages from the database and runs one turn after another.
//!
//! The task has no state that is not in the database or the transcript. It runs while there is
//! work, and a little longer with an open conversation, so that results of background work are
//! reported.

mod answers;
mod ask;
mod begin;
mod command;
mod earlier;
mod events;
mod finish;
mod quick;
mod recover;
mod slash;
mod state;
mod switch;

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use hermes_app::ConversationRequest;
use hermes_core::event::AgentCommand;
use hermes_store::delivery::{Final, NewChunk, NewReply, Target, WaitingMessage};
use tokio::sync::Notify;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::admission::AdmissionDecision;
use super::message::InboxMessage;
use super::messages;
use super::shared::{ChatHandle, GatewayShared, react};
use super::style::ChatStyle;
use crate::conversation_pool::{HolderEvent, PooledConversation};
use crate::delivery::ChunkExtras;
use crate::settings::BusyMode;

pub(super) use command::offers;
pub(super) use earlier::{kept_for_operator, question_record};
use events::ChatTurn;
pub(super) use quick::offers as quick_offers;
use slash::ChatCommandRun;
use state::{ChatActivity, ChatCommands, ChatQueue, CutTurns, InboxPosition, OpenConversation};

/// Maximum number of messages queued in memory; the rest stays in the database.
const MAX_QUEUED_MESSAGES: usize = 256;
const PAGE_SIZE: usize = 64;
/// How long a conversation stays open here after its last turn.
const IDLE_TIMEOUT: Duration = Duration::from_mins(10);
/// A turn that does not stop is abandoned after this time.
const STOP_TIMEOUT: Duration = Duration::from_secs(10);
const ACK_INTERVAL: Duration = Duration::from_secs(30);
/// Maximum number of messages per turn.
const MAX_MESSAGES_PER_TURN: usize = 16;
/// Delay after a failure of the store or the index.
const RETRY_DELAY: Duration = Duration::from_secs(1);

/// Messages for one turn.
pub(super) struct TurnJob {
    msgs: Vec<InboxMessage>,
    start: TurnStart,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum TurnStart {
    Fresh,
    /// Needs a turn of its own.
    Apart,
    /// They are in the transcript; the turn was interrupted.
    Resume,
}

pub(super) struct ChatTask {
    shared: Arc<GatewayShared>,
    key: String,
    handle: Arc<ChatHandle>,
    cancel: CancellationToken,
    inbox: InboxPosition,
    /// When to retry after a failure of the store or the index.
    retry_at: Option<Instant>,
    cut: CutTurns,
    queue: ChatQueue,
    activity: ChatActivity,
    conversation: Option<OpenConversation>,
    commands: ChatCommands,
    /// Notified when an answer to a question of this chat was stored.
    answered: Arc<Notify>,
    /// When a message was last acknowledged with a text.
    acked: Option<Instant>,
    /// The target for unsolicited messages.
    last_target: Option<Target>,
}

impl ChatTask {
    pub(super) fn new(
        shared: Arc<GatewayShared>,
        key: String,
        handle: Arc<ChatHandle>,
        cancel: CancellationToken,
    ) -> Self {
        Self {
            shared,
            key,
            handle,
            cancel,
            inbox: InboxPosition::Unread,
            retry_at: None,
            cut: CutTurns::default(),
            queue: ChatQueue::default(),
            activity: ChatActivity::Idle,
            conversation: None,
            commands: ChatCommands::default(),
            answered: Arc::default(),
            acked: None,
            last_target: None,
        }
    }

    /// Runs until there is nothing to do.
    pub(super) async fn run(mut self) {
        self.check_inbox().await;
        loop {
            self.advance().await;
            self.handle.queued.store(self.waiting(), Ordering::Relaxed);
            if self.is_done() && self.leave() {
                return;
            }
            let deadline = self.deadline();
            tokio::select! {
                biased;
                () = self.cancel.cancelled() => return self.suspend().await,
                () = self.handle.notify.notified() => self.check_inbox().await,
                () = self.answered.notified() => self.take_presses().await,
                next = next_event(self.conversation.as_mut()) => self.on_holder_event(next).await,
                ready = begin::prepared(self.activity.preparing_mut()) => self.ready(ready).await,
                () = sleep_until(deadline) => self.on_deadline().await,
            }
        }
    }

    fn waiting(&self) -> usize {
        let preparing = self.activity.preparing().and_then(|one| one.job.as_ref());
        let jobs = self.queue.jobs.iter().chain(preparing);
        let jobs = jobs.map(|job| job.msgs.len()).sum::<usize>();
        jobs + self.commands.waiting.len() + self.cut.held.len()
    }

    fn is_busy(&self) -> bool {
        !self.activity.is_idle() || self.commands.running.is_some()
    }

    fn is_done(&self) -> bool {
        !self.is_busy()
            && self.conversation.is_none()
            && (self.queue.jobs.is_empty() || self.shared.is_draining())
            && self.commands.waiting.is_empty()
            && self.commands.switch.is_none()
            && !self.inbox.is_behind()
            && self.retry_at.is_none()
    }

    /// `false`: a message has just arrived.
    fn leave(&self) -> bool {
        let mut chats = self.shared.chats();
        if self.handle.dirty.load(Ordering::SeqCst) {
            return false;
        }
        chats.remove(&self.key);
        true
    }

    /// The next time at which something is due.
    fn deadline(&self) -> Option<Instant> {
        let open = self.queue.grows_until.filter(|_| !self.is_busy());
        let linger = self.conversation.as_ref();
        let linger = linger.and_then(|open| Some(open.linger.as_ref()?.0));
        let turn = self.activity.turn().and_then(ChatTurn::deadline);
        let slash = self
            .commands
            .running
            .as_ref()
            .and_then(ChatCommandRun::deadline);
        let linger = linger.filter(|_| !self.is_busy());
        let times = [open, linger, turn, slash, self.retry_at];
        times.into_iter().flatten().min()
    }

    /// Starts whatever can start.
    async fn advance(&mut self) {
        if !self.is_busy() {
            self.close_earlier_questions().await;
            if let Some((msg, switch)) = self.commands.switch.take() {
                self.switch(msg, switch).await;
            }
            self.prepare_next().await;
        }
        if self.conversation.is_some()
            && self.commands.running.is_none()
            && self.commands.switch.is_none()
            && let Some(msg) = self.commands.waiting.pop_front()
        {
            self.begin_slash(msg).await;
        }
        if self.waiting() < MAX_QUEUED_MESSAGES / 2
            && let Some(left) = self.inbox.take_left()
        {
            self.inbox = InboxPosition::UpTo(left);
            self.read_inbox().await;
        }
        let open = self.conversation.as_ref();
        if !self.is_busy() && open.is_some_and(|open| open.is_over(Instant::now())) {
            self.release_conversation();
        }
    }

    fn pooled(&self) -> Option<&PooledConversation> {
        self.conversation.as_ref().map(|open| &open.pooled)
    }

    /// `false`: no conversation is open, or it has ended.
    fn request(&mut self, request: ConversationRequest) -> bool {
        let open = self.conversation.as_mut();
        open.is_some_and(|open| open.pooled.request(request))
    }

    fn release_conversation(&mut self) {
        self.conversation = None;
    }

    /// Keeps the conversation open for a while, without blocking other holders.
    fn start_linger(&mut self) {
        let Some(open) = &mut self.conversation else {
            return;
        };
        open.linger = Arc::clone(&self.shared.lingering)
            .try_acquire_owned()
            .ok()
            .map(|permit| (Instant::now() + IDLE_TIMEOUT, permit));
        self.shared.pool.used(open.pooled.id());
    }

    /// Reads messages: first interrupted turns, then new ones.
    async fn check_inbox(&mut self) {
        if self.inbox == InboxPosition::Unread {
            self.recover_begun().await;
        }
        if self.inbox != InboxPosition::Unread {
            self.read_inbox().await;
        }
    }

    fn schedule_retry(&mut self) {
        self.retry_at = Some(Instant::now() + RETRY_DELAY);
    }

    /// Whether a message is queued here already.
    fn has_queued(&self, id: i64) -> bool {
        let preparing = self.activity.preparing().and_then(|one| one.job.as_ref());
        let jobs = self.queue.jobs.iter().chain(preparing);
        let msgs = jobs.flat_map(|job| &job.msgs).chain(&self.commands.waiting);
        let mut msgs = msgs.chain(self.cut.held.iter().map(|held| &held.msg));
        msgs.any(|msg| msg.id == id)
            || self
                .commands
                .switch
                .as_ref()
                .is_some_and(|(msg, _)| msg.id == id)
    }

    /// `true`: too many messages are queued; this one stays in the database and is read later,
    /// without being overtaken.
    fn defer_if_full(&mut self, msg: &InboxMessage) -> bool {
        let full = self.inbox.is_behind() || self.waiting() >= MAX_QUEUED_MESSAGES;
        if full {
            self.inbox.fall_behind(msg.id - 1);
        }
        full
    }

    /// The next stored messages of this chat. `None`: the store failed.
    async fn waiting_page(&self, after: i64) -> Option<Vec<WaitingMessage>> {
        let delivery = &self.shared.delivery;
        let page = delivery.waiting_of(&self.key, after, PAGE_SIZE).await;
        page.inspect_err(|error| tracing::error!("messages of {}: {error}", self.key))
            .ok()
    }

    /// Reads the messages since the last check.
    async fn read_inbox(&mut self) {
        loop {
            {
                let _chats = self.shared.chats();
                self.handle.dirty.store(false, Ordering::SeqCst);
            }
            let Some(page) = self.waiting_page(self.inbox.cursor()).await else {
                return self.schedule_retry();
            };
            let full = page.len() == PAGE_SIZE;
            for waiting in page {
                self.inbox.advance(waiting.id);
                // Claimed messages are being handled; an unused answer is considered again.
                let started = waiting.turn.as_deref();
                let started = started.is_some_and(|turn| !turn.starts_with("ans-"));
                if started || self.has_queued(waiting.id) {
                    continue;
                }
                match InboxMessage::read(waiting) {
                    Ok(msg) => self.dispatch(msg).await,
                    Err((id, claims, error)) => self.unreadable(id, claims, &error).await,
                }
            }
            if !full {
                return;
            }
        }
    }

    async fn unreadable(&self, id: i64, claims: u32, error: &serde_json::Error) {
        tracing::error!("message {id} cannot be read and is left out: {error}");
        let turn = format!("odd-{id}-{}", claims + 1);
        if self.shared.claim(&[id], &turn, &self.cancel).await {
            let end = Final {
                turn,
                answers: vec![id],
                ..Final::default()
            };
            self.shared.settle(end, &self.cancel).await;
        }
    }

    /// Decides how to handle a message.
    async fn dispatch(&mut self, msg: InboxMessage) {
        self.last_target = Some(msg.target());
        let decision = self.shared.check_sender(&msg);
        if let AdmissionDecision::Reject(answer) = decision {
            return self.answer(&msg, "cmd", answer.as_deref()).await;
        }
        if msg.incoming.pressed.is_some() {
            return self.press(msg).await;
        }
        if let Some(line) = msg.command_line() {
            return self.command(msg, &line).await;
        }
        if self.answers_question(&msg) {
            return self.take_answer(msg, None).await;
        }
        if self.hold_answer(&msg).await || self.defer_if_full(&msg) {
            return;
        }
        if let Some(turn) = self.activity.turn() {
            let mode = match self.shared.settings.busy {
                // The work of subagents would be lost with the turn.
                BusyMode::Interrupt if turn.delegates() => BusyMode::Queue,
                // It would overtake queued messages.
                BusyMode::Steer if !self.queue.jobs.is_empty() => BusyMode::Queue,
                mode => mode,
            };
            return self.dispatch_while_busy(msg, mode).await;
        }
        self.enqueue(msg, TurnStart::Fresh);
    }

    /// Handles a message while a turn is running.
    async fn dispatch_while_busy(&mut self, msg: InboxMessage, mode: BusyMode) {
        let stopping = self.activity.turn().is_some_and(ChatTurn::is_stopping);
        match mode {
            // It must not overtake queued messages.
            BusyMode::Steer
                if !stopping && self.queue.jobs.is_empty() && msg.incoming.media.is_empty() =>
            {
                self.ack(&msg, "⏩").await;
                self.steer(msg).await;
            }
            BusyMode::Interrupt => {
                self.ack(&msg, "⚡").await;
                self.enqueue(msg, TurnStart::Fresh);
                self.interrupt(events::TurnStopReason::Message);
            }
            BusyMode::Steer => {
                self.ack(&msg, "⏳").await;
                self.enqueue(msg, TurnStart::Fresh);
            }
            BusyMode::Queue => {
                self.ack(&msg, "⏳").await;
                self.enqueue(msg, TurnStart::Apart);
            }
        }
    }

    /// Acknowledges a message that is not answered immediately.
    async fn ack(&mut self, msg: &InboxMessage, sign: &str) {
        let style = ChatStyle::from_settings(&self.shared.settings, &msg.source().platform);
        let recent = self.acked.is_some_and(|at| at.elapsed() < ACK_INTERVAL);
        let Some(outbound) = self.shared.outbound(&msg.target()) else {
            return;
        };
        if outbound.capabilities().reactions && style.reactions {
            let (target, id) = (msg.target(), msg.incoming.message_id.clone());
            drop(react(outbound, target, id, Some("👀"), None));
        } else if style.ack && !recent {
            self.acked = Some(Instant::now());
            let text = match sign {
                "⏩" => "⏩ Noted. I will read it while I work.",
                "⚡" => "⚡ Stopping for your new message.",
                _ => "⏳ Noted. I will get to it when I am done.",
            };
            let id = format!("ack-{}", msg.id);
            self.send_text(&msg.target(), &id, text).await;
        }
    }

    /// Adds the message to the running turn.
    async fn steer(&mut self, mut msg: InboxMessage) {
        let (Some(turn), Some(open)) = (self.activity.turn_mut(), &mut self.conversation) else {
            return self.enqueue(msg, TurnStart::Fresh);
        };
        if !self.shared.claim(&[msg.id], &turn.id, &self.cancel).await {
            return;
        }
        msg.claims += 1;
        msg.turn = Some(turn.id.clone());
        let words = msg.text_with_sender(self.shared.settings.sharing);
        turn.displaced = true;
        turn.steers.push_back((msg, words.clone()));
        // If the conversation has ended, an update follows and the turn is recovered.
        open.pooled.command(AgentCommand::Steer(words));
    }

    /// Messages that arrived during the preparation join the turn as well.
    async fn join_waiting(&mut self) {
        if self.shared.settings.busy != BusyMode::Steer {
            return;
        }
        for _ in 0..MAX_MESSAGES_PER_TURN {
            let joins = self.queue.jobs.front().is_some_and(|job| {
                let plain = |msg: &InboxMessage| msg.incoming.media.is_empty();
                job.start == TurnStart::Fresh && job.msgs.iter().all(plain)
            });
            let open = self.queue.grows_until.is_some() && self.queue.jobs.len() == 1;
            if !joins || open || self.activity.turn().is_none() {
                return;
            }
            let first = self.queue.jobs.pop_front();
            for msg in first.map(|job| job.msgs).unwrap_or_default() {
                self.steer(msg).await;
            }
        }
    }

    fn interrupt(&mut self, why: events::TurnStopReason) {
        let (Some(turn), Some(open)) = (self.activity.turn_mut(), &mut self.conversation) else {
            return;
        };
        if turn.stop(why, Instant::now() + STOP_TIMEOUT) {
            open.pooled.command(AgentCommand::Interrupt);
        }
    }

    /// Appends a message to the queue, or merges it with the previous one if both are parts of one
    /// message.
    fn enqueue(&mut self, msg: InboxMessage, how: TurnStart) {
        let style = ChatStyle::from_settings(&self.shared.settings, &msg.source().platform);
        let limit = self.shared.capabilities(&msg.target()).limits.text;
        let chars = msg.incoming.text.chars().count();
        let wait = style
            .batch
            .wait(chars, limit, !msg.incoming.media.is_empty());
        let until = (!wait.is_zero()).then(|| Instant::now() + wait);
        if self.queue.grows_until.is_some()
            && let Some(last) = self.queue.jobs.back_mut()
            && (last.start, how) == (TurnStart::Fresh, TurnStart::Fresh)
            && last.msgs.len() < MAX_MESSAGES_PER_TURN
            && let Some(other) = last.msgs.last()
            && are_parts_of_one(other, &msg, wait)
            && style.batch.joins(
                other.incoming.text.chars().count(),
                limit,
                (has_files(other), has_files(&msg)),
            )
        {
            last.msgs.push(msg);
        } else {
            let msgs = vec![msg];
            self.queue.jobs.push_back(TurnJob { msgs, start: how });
        }
        self.queue.grows_until = until;
    }

    /// Answers a message immediately, without a turn.
    async fn answer(&self, msg: &InboxMessage, kind: &str, text: Option<&str>) {
        let turn = msg.attempt(kind);
        if self.shared.claim(&[msg.id], &turn, &self.cancel).await {
            self.finish_with(&turn, msg, text).await;
        }
    }

    /// Settles a claimed message with this text.
    async fn finish_with(&self, turn: &str, msg: &InboxMessage, text: Option<&str>) {
        let target = msg.target();
        let mut chunks = text.map_or_else(Vec::new, |text| self.shared.chunks(&target, text));
        if let Some(first) = chunks.first_mut() {
            first.extra = self.reply_extra(&target, &msg.incoming.message_id);
        }
        let end = Final {
            turn: turn.to_owned(),
            answers: vec![msg.id],
            replies: self.replies(target, chunks),
            ..Final::default()
        };
        self.shared.settle(end, &self.cancel).await;
    }

    fn reply_extra(&self, target: &Target, message: &str) -> Option<serde_json::Value> {
        let extra = ChunkExtras {
            reply_to: self.shared.reply_to(target, 0).then(|| message.to_owned()),
            ..ChunkExtras::default()
        };
        serde_json::to_value(extra).ok()
    }

    fn replies(&self, target: Target, chunks: Vec<NewChunk>) -> Vec<NewReply> {
        if chunks.is_empty() {
            return Vec::new();
        }
        vec![NewReply {
            session_key: self.key.clone(),
            target,
            chunks,
        }]
    }

    /// Sends a text that answers no message.
    async fn send_text(&self, target: &Target, id: &str, text: &str) {
        let end = Final {
            turn: id.to_owned(),
            replies: self.replies(target.clone(), self.shared.chunks(target, text)),
            ..Final::default()
        };
        if !end.replies.is_empty() {
            self.shared.settle(end, &self.cancel).await;
        }
    }

    /// The gateway stops: the next process resumes the running turn.
    async fn suspend(&mut self) {
        if let Some(turn) = self.activity.turn()
            && let Some(lead) = turn.msgs.first()
        {
            // Text written while the turn is being interrupted is not its answer.
            if let Err(error) = self
                .shared
                .delivery
                .note(lead.id, recover::CUT, Some("1"))
                .await
            {
                tracing::warn!("a turn that is cut: {error}");
            }
        }
        self.shared.chats().remove(&self.key);
    }

    /// Handles expired deadlines.
    async fn on_deadline(&mut self) {
        let now = Instant::now();
        if self.retry_at.is_some_and(|at| at <= now) {
            self.retry_at = None;
            let unsure = std::mem::take(&mut self.cut.unsure);
            self.recover_all(unsure).await;
            self.take_presses().await;
            self.check_inbox().await;
        }
        if self
            .commands
            .running
            .as_ref()
            .is_some_and(|slash| slash.is_over(now))
        {
            self.end_slash().await;
        }
        let Some(turn) = self.activity.turn_mut() else {
            return;
        };
        if turn.is_abandoned(now) {
            if let Some(open) = self.conversation.take() {
                open.pooled.abandon();
            }
            return self.end_turn(Some(messages::ABANDONED.to_owned())).await;
        }
        turn.refresh_notice(now);
        let expired = turn.expired(now);
        for id in expired {
            self.expire(&id).await;
        }
        if self.activity.turn().is_some_and(|turn| turn.is_stuck(now)) {
            self.interrupt(events::TurnStopReason::Stuck);
        }
    }
}

fn has_files(msg: &InboxMessage) -> bool {
    !msg.incoming.media.is_empty()
}

/// Whether two messages are parts of one: same sender, same chat, at the same time.
fn are_parts_of_one(one: &InboxMessage, next: &InboxMessage, wait: Duration) -> bool {
    let apart = (next.incoming.sent_at - one.incoming.sent_at).abs();
    one.source().user_id == next.source().user_id
        && one.target() == next.target()
        && apart <= wait.as_secs_f64() + 1.0
}

async fn next_event(conversation: Option<&mut OpenConversation>) -> HolderEvent {
    match conversation {
        Some(open) => open.pooled.next().await,
        None => std::future::pending().await,
    }
}

async fn sleep_until(at: Option<Instant>) {
    match at {
        Some(at) => tokio::time::sleep_until(at).await,
        None => std::future::pending().await,
    }
}

//! Recovers what an earlier process or a broken conversation left unfinished.

use std::collections::HashMap;

use hermes_agent::prompt::steered;
use hermes_core::ids::SessionId;
use hermes_store::delivery::{Final, Progress, Spoken};

use super::state::InboxPosition;
use super::{ChatTask, TurnJob, TurnStart};
use crate::delivery::ChunkExtras;
use crate::turn::message::InboxMessage;
use crate::turn::messages;

/// The turn was interrupted by us: its last text is not its answer.
pub(super) const CUT: &str = "cut";
/// The message is part of the one before it.
pub(super) const JOINED: &str = "joined";
/// The message that previews the answer.
pub(super) const PREVIEW: &str = "preview";

/// The number of attempts so far.
const TRIED: &str = "tried";

/// Attempts to resume a turn that made progress.
const MAX_RESUMES: u32 = 3;
/// Attempts to start a turn that made no progress.
const MAX_STARTS: u32 = 6;

impl ChatTask {
    /// The first check: claimed messages come before new ones. Retried when the store fails.
    pub(super) async fn recover_begun(&mut self) {
        // Before the database is read: work that ends in between is either listed here or answered
        // there.
        let under_way = self.shared.side_work.now();
        let mut started: Vec<Vec<InboxMessage>> = Vec::new();
        let mut after = 0;
        loop {
            let Some(page) = self.waiting_page(after).await else {
                return self.schedule_retry();
            };
            let full = page.len() == super::PAGE_SIZE;
            for waiting in page {
                after = after.max(waiting.id);
                if waiting.turn.is_none() || under_way.contains(&waiting.id) {
                    continue;
                }
                match InboxMessage::read(waiting).map(InboxMessage::unwrapped) {
                    Ok(msg) => match started.iter_mut().find(|group| group[0].turn == msg.turn) {
                        Some(group) => group.push(msg),
                        None => started.push(vec![msg]),
                    },
                    Err((id, claims, error)) => self.unreadable(id, claims, &error).await,
                }
            }
            if !full {
                break;
            }
        }
        self.inbox = InboxPosition::UpTo(0);
        if !started.is_empty() {
            self.remember_questions().await;
        }
        self.recover_all(started).await;
    }

    /// Unfinished turns come before everything queued. If the store fails, a turn and those after
    /// it keep their order.
    pub(super) async fn recover_all(&mut self, groups: Vec<Vec<InboxMessage>>) {
        let behind = std::mem::take(&mut self.queue.jobs);
        for group in groups {
            if self.cut.unsure.is_empty() {
                self.recover(group).await;
            } else {
                self.cut.unsure.push(group);
            }
        }
        self.queue.jobs.extend(behind);
    }

    /// The conversation ended unexpectedly.
    pub(super) async fn conversation_ended(&mut self) {
        self.conversation = None;
        if let Some(slash) = self.commands.running.take()
            && !slash.started_turn
        {
            self.finish_with(&slash.turn, &slash.msg, Some(messages::BROKE))
                .await;
        }
        let Some(mut turn) = self.activity.take_turn() else {
            return;
        };
        tracing::warn!(
            "{}: the conversation ended in the middle of a turn",
            self.key
        );
        let steers = std::mem::take(&mut turn.steers).into_iter();
        let mut group = std::mem::take(&mut turn.msgs);
        group.extend(steers.map(|(msg, _)| msg));
        let shown = match turn.preview.take() {
            Some(show) => show.end().await,
            None => crate::turn::preview::PreviewResult::default(),
        };
        for asked in std::mem::take(&mut turn.questions) {
            self.shared.register_question(&asked.id, None);
        }
        drop(turn);
        self.remember_questions().await;
        if let (Some(message), Some(lead)) = (shown.message, group.first()) {
            let note = self
                .shared
                .delivery
                .note(lead.id, PREVIEW, Some(&message))
                .await;
            if let Err(error) = note {
                tracing::warn!("a preview: {error}");
            }
        }
        if !group.is_empty() {
            self.recover_all(vec![group]).await;
        }
    }

    /// Recovers the messages of one unfinished turn.
    async fn recover(&mut self, group: Vec<InboxMessage>) {
        let lead = &group[0];
        let turn = lead.turn.clone().unwrap_or_default();
        let told = match turn.split('-').next() {
            Some("turn") => None,
            // An unused answer is handled like a new one.
            Some("ans" | "odd") => return,
            _ => Some(messages::COMMAND_CUT),
        };
        if let Some(text) = told {
            for msg in &group {
                self.answer(msg, "cmd", Some(text)).await;
            }
            return;
        }
        let Some(entry) = self.shared.index.get(&self.key) else {
            // The chat is missing in the index: its progress is unknown.
            return self.retry(group, TurnStart::Fresh).await;
        };
        let session = SessionId::new(entry.session_id);
        let (progress, mine, others) = match self.progress_of_turn(&session, group.clone()).await {
            Ok(found) => found,
            Err(error) => {
                tracing::error!("how far a turn got: {error}");
                self.cut.unsure.push(group);
                return self.schedule_retry();
            }
        };
        match progress {
            Progress::Answered(text) => self.deliver(&mine, &text).await,
            Progress::Cut => {
                let age = self.shared.clock.epoch_seconds() - mine[0].received_at;
                let limit = self
                    .shared
                    .settings
                    .config
                    .agent
                    .gateway_auto_continue_freshness;
                if limit > 0 && age > limit as f64 {
                    self.deliver(&mine, messages::STALE).await;
                } else {
                    self.retry(mine, TurnStart::Resume).await;
                }
            }
            Progress::Untouched => self.retry(mine, TurnStart::Fresh).await,
        }
        if others.is_empty() {
            return;
        }
        // They may have started a turn of their own since.
        Box::pin(self.recover(others)).await;
    }

    /// The progress of a turn, the messages it has read, and those it has not.
    async fn progress_of_turn(
        &self,
        session: &SessionId,
        group: Vec<InboxMessage>,
    ) -> Result<(Progress, Vec<InboxMessage>, Vec<InboxMessage>), hermes_core::store::StoreError>
    {
        let delivery = &self.shared.delivery;
        let lead = &group[0];
        let message_id = lead.incoming.message_id.clone();
        let notes = delivery.notes(lead.id).await?;
        let mut progress = delivery.progress(session, &message_id).await?;
        let mut spoken = delivery.spoken_after(session, &message_id).await?;
        // How many of them form one row of the transcript.
        let mut said_first = 0;
        if progress == Progress::Untouched {
            // Messages that were too late for a turn have started the next one, without an id.
            let words = group
                .iter()
                .map(|msg| msg.text_with_sender(self.shared.settings.sharing));
            let words = words.collect::<Vec<_>>();
            for count in (1..=words.len()).rev() {
                let joined_start = words[..count].join("\n");
                let since = lead.received_at;
                progress = delivery.progress_of(session, &joined_start, since).await?;
                if progress != Progress::Untouched {
                    spoken = delivery
                        .spoken_after_words(session, &joined_start, since)
                        .await?;
                    said_first = count;
                    break;
                }
            }
        }
        if notes.contains_key(CUT) && matches!(progress, Progress::Answered(_)) {
            progress = Progress::Cut;
        }
        let (mut mine, mut others) = (Vec::new(), Vec::new());
        for (index, msg) in group.into_iter().enumerate() {
            let joined = index == 0
                || index < said_first
                || delivery.notes(msg.id).await?.contains_key(JOINED);
            if joined || was_read(&spoken, &msg.text_with_sender(self.shared.settings.sharing)) {
                mine.push(msg);
            } else {
                others.push(msg);
            }
        }
        Ok((progress, mine, others))
    }

    /// Ends a turn of an earlier process with this text.
    async fn deliver(&self, msgs: &[InboxMessage], text: &str) {
        let lead = &msgs[0];
        // With a new id: the turn may have ended for other messages.
        let turn = lead.attempt("turn");
        let ids: Vec<i64> = msgs.iter().map(|msg| msg.id).collect();
        if !self.shared.claim(&ids, &turn, &self.cancel).await {
            return;
        }
        let target = lead.target();
        let notes = self
            .shared
            .delivery
            .notes(lead.id)
            .await
            .unwrap_or_default();
        let silent = crate::render::is_silence(text);
        let mut chunks = if silent {
            Vec::new()
        } else {
            self.shared.chunks_with_files(&target, text)
        };
        let mut preview = notes.get(PREVIEW).cloned();
        if let Some(first) = chunks.first_mut() {
            let mut extra: ChunkExtras = first
                .extra
                .take()
                .and_then(|value| serde_json::from_value(value).ok())
                .unwrap_or_default();
            // A message of text cannot become a file.
            if extra.media.is_none() {
                extra.edits = preview.take();
            }
            if self.shared.reply_to(&target, 0) {
                extra.reply_to = Some(lead.incoming.message_id.clone());
            }
            first.extra = serde_json::to_value(extra).ok();
        }
        let end = Final {
            turn,
            answers: ids,
            replies: self.replies(target.clone(), chunks),
            ..Final::default()
        };
        self.shared.settle(end, &self.cancel).await;
        if let Some(message) = preview {
            self.delete(&target, &message).await;
        }
    }

    /// Retries a limited number of times.
    async fn retry(&mut self, msgs: Vec<InboxMessage>, how: TurnStart) {
        let lead = msgs[0].id;
        let notes = self.shared.delivery.notes(lead).await.unwrap_or_default();
        let max_attempts = if how == TurnStart::Resume {
            MAX_RESUMES
        } else {
            MAX_STARTS
        };
        if tried(&notes) + 1 >= max_attempts {
            for msg in &msgs {
                let text = (msg.id == lead).then_some(messages::GAVE_UP);
                self.answer(msg, "cmd", text).await;
            }
            return;
        }
        self.queue.jobs.push_back(TurnJob { msgs, start: how });
    }

    /// Counts an attempt when the turn starts again, not when it is found.
    pub(super) async fn count_try(&self, lead: i64, notes: &HashMap<String, String>) {
        let count = (tried(notes) + 1).to_string();
        let note = self.shared.delivery.note(lead, TRIED, Some(&count));
        if let Err(error) = note.await {
            tracing::warn!("a turn that is tried again: {error}");
        }
    }
}

fn tried(notes: &HashMap<String, String>) -> u32 {
    let tried = notes.get(TRIED).and_then(|text| text.parse().ok());
    tried.unwrap_or(0)
}

/// Whether the model read this text during its turn.
fn was_read(spoken: &[Spoken], words: &str) -> bool {
    let words = words.trim();
    spoken.iter().any(|row| match row.role.as_str() {
        "tool" => steered(&row.content).any(|block| has_lines(block, words)),
        _ => has_lines(&row.content, words),
    })
}

/// Whether a text contains these words as whole lines.
fn has_lines(text: &str, words: &str) -> bool {
    let text = format!("\n{text}\n");
    text.contains(&format!("\n{words}\n"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_was_handed_over_was_heard() {
        let row = |role: &str, content: String| Spoken {
            role: role.to_owned(),
            content,
        };
        let block = hermes_agent::prompt::steer_block("first\nsecond one");
        let spoken = [
            row("tool", format!("ok\nstop\n{block}")),
            row("user", "third".to_owned()),
        ];
        for (words, heard) in [
            ("first", true),
            ("second one", true),
            ("first\nsecond one", true),
            ("third", true),
            ("second", false),
            ("stop", false),
            ("ok", false),
        ] {
            assert_eq!(was_read(&spoken, words), heard, "{words}");
        }
    }
}

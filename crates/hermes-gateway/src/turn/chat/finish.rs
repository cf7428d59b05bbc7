//! The end of a turn: its answer is stored in one transaction with the messages it answers.

use std::sync::Arc;
use std::time::Duration;

use hermes_core::event::{TurnExit, TurnSummary};
use hermes_platforms::{MediaKind, OutMedia};
use hermes_store::delivery::{Final, NewChunk, Target};

use super::events::{ChatTurn, TurnStopReason, excerpt};
use super::{ChatTask, TurnJob, TurnStart};
use crate::delivery::ChunkExtras;
use crate::render::{is_silence, pieces};
use crate::turn::media_out;
use crate::turn::messages;
use crate::turn::preview::PreviewResult;
use crate::turn::shared::react;
use crate::turn::voice_mode::VoiceMode;

const DELETE_TIMEOUT: Duration = Duration::from_secs(10);
/// Longer answers are not synthesized.
const MAX_SPOKEN_CHARS: usize = 4000;

impl ChatTask {
    pub(super) async fn turn_finished(&mut self, summary: TurnSummary) {
        let Some(turn) = self.activity.turn_mut() else {
            return;
        };
        if turn.foreign {
            return self.foreign_finished(&summary).await;
        }
        let why = turn.stopping.map(|(why, _)| why);
        // It ended before the interrupt, and continues with dropped messages.
        let unwanted = why == Some(TurnStopReason::Stop)
            && turn.steers.is_empty()
            && summary.pending_steer.is_some()
            && summary.exit != TurnExit::Interrupted;
        if let Some(open) = &mut self.conversation {
            open.stop_next_turn = unwanted;
        }
        let text = match why {
            Some(TurnStopReason::Stuck) => Some(format!(
                "⚠️ Nothing happened for {} minutes, so I stopped.{}",
                self.shared.settings.config.agent.gateway_timeout / 60,
                messages::outcome_text(&summary, true)
                    .map(|text| format!("\n\n{text}"))
                    .unwrap_or_default()
            )),
            _ => messages::outcome_text(&summary, why.is_some()),
        };
        let silent = summary.exit == TurnExit::Answered
            && text.as_deref().is_some_and(|text| self.is_silent(text));
        let dropped = matches!(
            summary.exit,
            TurnExit::Interrupted | TurnExit::StoreFailed { .. }
        );
        let sign = match summary.exit {
            TurnExit::Answered => Some("✅"),
            TurnExit::Interrupted => None,
            _ => Some("❌"),
        };
        self.settle_turn(text.filter(|_| !silent), !dropped, sign)
            .await;
    }

    fn is_silent(&self, text: &str) -> bool {
        is_silence(text) && (self.shared.settings.filter_silence || is_token(text))
    }

    /// Ends the turn with this text, regardless of the conversation.
    pub(super) async fn end_turn(&mut self, text: Option<String>) {
        self.settle_turn(text, false, Some("❌")).await;
    }

    /// The finished turn was not started by us; ours follows.
    async fn foreign_finished(&mut self, summary: &TurnSummary) {
        let Some(turn) = self.activity.turn_mut() else {
            return;
        };
        let shown = match turn.preview.take() {
            Some(show) => show.end().await,
            None => PreviewResult::default(),
        };
        turn.reset();
        let target = turn.target.clone();
        if let Some(message) = shown.message {
            self.delete(&target, &message).await;
        }
        if let Some(text) =
            messages::outcome_text(summary, false).filter(|text| !self.is_silent(text))
        {
            let id = format!("own-{}", crate::turn::preview::key(&*self.shared.rng));
            self.send_text(&target, &id, &text).await;
        }
    }

    /// `goes_on`: unread messages start another turn by themselves. `sign`: the reaction for the
    /// outcome.
    async fn settle_turn(
        &mut self,
        text: Option<String>,
        goes_on: bool,
        sign: Option<&'static str>,
    ) {
        let Some(mut turn) = self.activity.take_turn() else {
            return;
        };
        let mut about = self.hook_payload(&turn);
        about["response"] = excerpt(text.as_deref().unwrap_or_default()).into();
        (self.shared.callbacks.on_event)("agent:end", about);
        self.close_questions(&mut turn).await;
        let shown = match turn.preview.take() {
            Some(show) => show.end().await,
            None => PreviewResult::default(),
        };
        let (chunks, used) = self.final_chunks(&turn, text.as_deref(), &shown).await;
        let answered = !chunks.is_empty();
        let end = Final {
            turn: turn.id.clone(),
            answers: turn.msgs.iter().map(|msg| msg.id).collect(),
            replies: self.replies(turn.target.clone(), chunks),
            ..Final::default()
        };
        if !end.answers.is_empty() || answered {
            self.shared.settle(end, &self.cancel).await;
        }
        // Only now: until the answer is stored, the preview is its only copy.
        if let Some(message) = shown.message.filter(|_| !used) {
            self.delete(&turn.target, &message).await;
        }
        self.sign(&mut turn, sign);
        drop(turn.permit.take());
        self.start_linger();
        let steers = std::mem::take(&mut turn.steers);
        let target = turn.target.clone();
        drop(turn);
        if steers.is_empty() {
            return;
        }
        let msgs: Vec<_> = steers.into_iter().map(|(msg, _)| msg).collect();
        if goes_on {
            self.continue_with(msgs, target).await;
        } else {
            for msg in msgs.into_iter().rev() {
                let (msgs, how) = (vec![msg], TurnStart::Fresh);
                self.queue.jobs.push_front(TurnJob { msgs, start: how });
            }
        }
    }

    /// Messages that were too late for the turn become the next one, which the session starts
    /// itself.
    async fn continue_with(
        &mut self,
        mut msgs: Vec<crate::turn::message::InboxMessage>,
        target: Target,
    ) {
        let id = msgs[0].attempt("turn");
        let ids: Vec<i64> = msgs.iter().map(|msg| msg.id).collect();
        if !self.shared.claim(&ids, &id, &self.cancel).await {
            return;
        }
        for msg in &mut msgs {
            msg.claims += 1;
            msg.turn = Some(id.clone());
        }
        let reply_to = Some(msgs[0].incoming.message_id.clone());
        let turn = ChatTurn::new(&self.shared, id, target, reply_to, msgs, None);
        self.start_turn(turn);
    }

    /// The chunks of a final, and whether the preview is one of them.
    async fn final_chunks(
        &self,
        turn: &ChatTurn,
        text: Option<&str>,
        shown: &PreviewResult,
    ) -> (Vec<NewChunk>, bool) {
        let Some(text) = text else {
            return (Vec::new(), false);
        };
        let parted = media_out::split_files(text, &self.shared.media_guard(&turn.target));
        let capabilities = self.shared.capabilities(&turn.target);
        let texts = pieces(&parted.text, &capabilities);
        let fresh = self.shared.settings.streaming.fresh_final_after;
        let late = fresh.is_some_and(|after| shown.at.is_some_and(|at| at.elapsed() > after));
        let preview = shown
            .message
            .clone()
            .filter(|_| !turn.displaced && !late && !texts.is_empty());
        let used = preview.is_some();
        let mut media = parted.media;
        media.extend(self.spoken(turn, &parted.text).await);
        let mut extras: Vec<(String, ChunkExtras)> = texts
            .into_iter()
            .map(|text| (text, ChunkExtras::default()))
            .collect();
        extras.extend(media.into_iter().map(|media| {
            let extra = ChunkExtras {
                media: Some(media),
                ..ChunkExtras::default()
            };
            (String::new(), extra)
        }));
        if let Some((_, first)) = extras.first_mut() {
            first.edits = preview;
        }
        let chunks = extras
            .into_iter()
            .enumerate()
            .map(|(part, (text, mut extra))| {
                if self.shared.reply_to(&turn.target, part) {
                    extra.reply_to.clone_from(&turn.reply_to);
                }
                let extra =
                    (extra != ChunkExtras::default()).then(|| serde_json::to_value(extra).ok());
                NewChunk {
                    text,
                    extra: extra.flatten(),
                }
            });
        (chunks.collect(), used)
    }

    /// Voice messages get a spoken answer, if configured.
    async fn spoken(&self, turn: &ChatTurn, text: &str) -> Option<OutMedia> {
        let speaker = self.shared.speaker.as_ref()?;
        let wanted = match self.shared.voice_mode(&turn.target) {
            VoiceMode::Off => false,
            VoiceMode::Spoken => turn.spoken,
            VoiceMode::All => speaker.can_speak(),
        };
        if !wanted || text.is_empty() || text.chars().count() > MAX_SPOKEN_CHARS {
            return None;
        }
        let dir = self.shared.settings.home.cache_dir().join("audio");
        match speaker.speak(text, &dir).await {
            Ok(path) => Some(OutMedia {
                path,
                kind: MediaKind::Voice,
            }),
            Err(error) => {
                tracing::warn!("an answer is not spoken: {error}");
                None
            }
        }
    }

    pub(super) async fn delete(&self, target: &Target, message: &str) {
        let Some(outbound) = self.shared.outbound(target) else {
            return;
        };
        let deleting = tokio::time::timeout(DELETE_TIMEOUT, outbound.delete(target, message));
        if !matches!(deleting.await, Ok(Ok(()))) {
            tracing::debug!("a preview stays");
        }
    }

    fn sign(&self, turn: &mut ChatTurn, sign: Option<&'static str>) {
        let Some(outbound) = self.shared.outbound(&turn.target) else {
            return;
        };
        if !turn.style.reactions || !outbound.capabilities().reactions {
            return;
        }
        // Those that joined later show that they were seen, too.
        for msg in &turn.msgs {
            let (to, id) = (turn.target.clone(), msg.incoming.message_id.clone());
            let before = turn.reaction.take();
            drop(react(Arc::clone(&outbound), to, id, sign, before));
        }
    }
}

/// The silence tokens from the prompt always count, regardless of settings.
fn is_token(text: &str) -> bool {
    let text = text.trim().to_ascii_uppercase();
    matches!(
        text.as_str(),
        "NO_REPLY" | "NO REPLY" | "[SILENT]" | "SILENT"
    )
}

//! Catches up from history after an outage longer than Slack's retries.

use std::sync::Arc;
use std::time::Duration;

use hermes_core::task;
use serde_json::{Value, json};
use tokio::sync::oneshot;
use tokio_util::task::TaskTracker;

use super::SlackShared;
use super::api::SlackCallError;
use super::intake::SlackEnvelope;
use super::link::{EnvelopeFollowUp, EnvelopeJob, SlackLanes};
use super::team::{SlackTeam, kind_of};
use crate::platform::AdapterLink;

/// Older messages are ignored.
const MAX_AGE_SECONDS: f64 = 24.0 * 3600.0;

/// Maximum number of conversations and threads checked per workspace.
const MAX_CONVERSATIONS: usize = 200;
const MAX_THREADS: usize = 50;

/// Maximum number of messages per conversation or thread, and per request.
const MAX_MESSAGES: usize = 5000;
const PAGE_SIZE: usize = 200;

/// Margin for clock differences; duplicates are stored once.
const OVERLAP_SECONDS: f64 = 120.0;

impl SlackShared {
    /// Starts reading history after a long outage, or if an earlier attempt was not completed.
    pub(super) fn fill_gap(
        self: &Arc<Self>,
        link: &AdapterLink,
        lanes: &SlackLanes,
        tasks: &TaskTracker,
    ) {
        let now = self.clock.epoch_seconds();
        let Some(since) = self.memory.gap(now, self.timing.gap.as_secs_f64()) else {
            return;
        };
        let since = since.max(now - MAX_AGE_SECONDS) - OVERLAP_SECONDS;
        let (shared, link, lanes) = (Arc::clone(self), link.clone(), lanes.clone());
        let asked = async move {
            let asking = async {
                let mut whole = true;
                for team in shared.teams.all() {
                    whole &= shared.ask_team(&team, since, &lanes).await;
                }
                // Otherwise the next connection tries again; duplicates are stored once.
                if whole {
                    shared.memory.filled(now);
                }
            };
            tokio::select! {
                () = link.cancel.cancelled() => {}
                () = asking => {}
            }
        };
        drop(task::spawn("slack-missed", tasks.track_future(asked)));
    }

    /// Whether everything was read.
    async fn ask_team(&self, team: &SlackTeam, since: f64, lanes: &SlackLanes) -> bool {
        let oldest = format!("{since:.6}");
        let (conversations, mut whole) = self.conversations(team).await;
        for (channel, kind) in conversations {
            self.memory.remember(&channel, &team.id, kind);
            let args = json!({"channel": channel, "oldest": oldest, "limit": PAGE_SIZE});
            let method = "conversations.history";
            let (messages, all) = self
                .pages(team, method, args, "messages", MAX_MESSAGES)
                .await;
            whole &= all;
            // Returned newest first, processed in order.
            for message in messages.into_iter().rev() {
                enqueue(team, &channel, kind, message, lanes).await;
            }
        }
        for (channel, thread) in self.memory.recent_threads(MAX_THREADS) {
            let Some(known_conversation) = self.memory.conversation(&channel) else {
                continue;
            };
            if known_conversation.team != team.id {
                continue;
            }
            let args =
                json!({"channel": channel, "ts": thread, "oldest": oldest, "limit": PAGE_SIZE});
            let method = "conversations.replies";
            let (messages, all) = self
                .pages(team, method, args, "messages", MAX_MESSAGES)
                .await;
            whole &= all;
            for message in messages {
                let fresh = message["ts"].as_str().and_then(|ts| ts.parse().ok());
                // The first message of a thread is always included.
                if fresh.is_some_and(|ts: f64| ts > since) {
                    enqueue(team, &channel, &known_conversation.kind, message, lanes).await;
                }
            }
        }
        whole
    }

    async fn conversations(&self, team: &SlackTeam) -> (Vec<(String, &'static str)>, bool) {
        let args = json!({
            "types": "im,mpim,public_channel,private_channel", "exclude_archived": true,
            "limit": MAX_CONVERSATIONS,
        });
        let method = "users.conversations";
        let (channels, whole) = self
            .pages(team, method, args, "channels", MAX_CONVERSATIONS)
            .await;
        let known = channels.iter().filter_map(|channel| {
            let id = channel["id"].as_str()?;
            Some((id.to_owned(), kind_of(channel)))
        });
        (known.collect(), whole)
    }

    /// The items of all pages under a key, up to a limit, and whether all pages were read.
    async fn pages(
        &self,
        team: &SlackTeam,
        method: &str,
        mut args: Value,
        name: &str,
        max: usize,
    ) -> (Vec<Value>, bool) {
        let mut found = Vec::new();
        loop {
            let Some(mut page) = self.patiently(team, method, &args).await else {
                return (found, false);
            };
            if let Value::Array(list) = page[name].take() {
                found.extend(list);
            }
            let next = page["response_metadata"]["next_cursor"].as_str();
            let Some(next) = next.filter(|next| !next.is_empty()) else {
                break;
            };
            if found.len() >= max {
                tracing::warn!("slack: more was missed than is made good: {method}: {max} read");
                break;
            }
            args["cursor"] = json!(next);
        }
        found.truncate(max);
        (found, true)
    }

    /// Retries a limited number of times. `None`: no answer. Refused requests are skipped and
    /// logged, because they would be refused again.
    async fn patiently(&self, team: &SlackTeam, method: &str, args: &Value) -> Option<Value> {
        for attempt in 0..5 {
            let error = match self.api.call(&team.token, method, args).await {
                Ok(fields) => return Some(fields),
                Err(error) => error,
            };
            let pause = match &error {
                SlackCallError::Refused(_) => {
                    tracing::warn!("slack: what was missed cannot be asked: {method}: {error}");
                    return Some(Value::Null);
                }
                SlackCallError::NotDone { retry_after, .. } => *retry_after,
                SlackCallError::Unclear(_) => None,
            };
            let pause: Duration = pause.unwrap_or_else(|| self.pause(attempt));
            tokio::time::sleep(pause).await;
        }
        tracing::warn!("slack: {method} did not answer; it is asked again later");
        None
    }
}

/// As if it were an event.
async fn enqueue(team: &SlackTeam, channel: &str, kind: &str, message: Value, lanes: &SlackLanes) {
    let mut event = message;
    event["channel"] = json!(channel);
    event["channel_type"] = json!(kind);
    let envelope = SlackEnvelope {
        id: String::new(),
        kind: "events_api".to_owned(),
        payload: json!({"team_id": team.id, "event": event}),
    };
    let (done, stored) = oneshot::channel();
    let then = EnvelopeFollowUp::Tell(done);
    lanes.enqueue(EnvelopeJob { envelope, then }).await;
    // Dropped only when everything ends.
    let _ = stored.await;
}

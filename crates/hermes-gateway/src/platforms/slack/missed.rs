//! What was said while nobody listened for longer than Slack tries: asked from history.

use std::sync::Arc;
use std::time::Duration;

use hermes_core::task;
use serde_json::{Value, json};
use tokio::sync::oneshot;
use tokio_util::task::TaskTracker;

use super::Shared;
use super::api::CallError;
use super::intake::Envelope;
use super::link::{Job, Lanes, Then};
use super::team::{Team, kind_of};
use crate::platform::Link;

/// Older than this is no longer news.
const OLDEST: f64 = 24.0 * 3600.0;

/// Conversations and threads that are looked into, per workspace.
const CONVERSATIONS: usize = 200;
const THREADS: usize = 50;

/// The clocks of Slack and of this machine may differ, and what came twice is stored once.
const OVERLAP: f64 = 120.0;

impl Shared {
    /// Starts to ask history, if nobody listened for long, or if an earlier life did not finish
    /// asking.
    pub(super) fn fill_gap(self: &Arc<Self>, link: &Link, lanes: &Lanes, tasks: &TaskTracker) {
        let now = self.clock.epoch_seconds();
        let Some(since) = self.memory.gap(now, self.timing.gap.as_secs_f64()) else {
            return;
        };
        let since = since.max(now - OLDEST) - OVERLAP;
        let (shared, link, lanes) = (Arc::clone(self), link.clone(), lanes.clone());
        let asked = async move {
            let asking = async {
                for team in shared.teams.all() {
                    shared.ask_team(&team, since, &lanes).await;
                }
                shared.memory.filled(now);
            };
            tokio::select! {
                () = link.cancel.cancelled() => {}
                () = asking => {}
            }
        };
        drop(task::spawn("slack-missed", tasks.track_future(asked)));
    }

    async fn ask_team(&self, team: &Team, since: f64, lanes: &Lanes) {
        let oldest = format!("{since:.6}");
        for (channel, kind) in self.conversations(team).await {
            self.memory.learn(&channel, &team.id, kind);
            let args = json!({"channel": channel, "oldest": oldest, "limit": 200});
            let found = self.patiently(team, "conversations.history", &args).await;
            // Newest first; they are told in order.
            let messages = found["messages"].as_array().cloned().unwrap_or_default();
            for message in messages.into_iter().rev() {
                tell(team, &channel, kind, message, lanes).await;
            }
        }
        for (channel, thread) in self.memory.recent_threads(THREADS) {
            let Some(place) = self.memory.place(&channel) else {
                continue;
            };
            if place.team != team.id {
                continue;
            }
            let args = json!({"channel": channel, "ts": thread, "oldest": oldest, "limit": 200});
            let found = self.patiently(team, "conversations.replies", &args).await;
            for message in found["messages"].as_array().cloned().unwrap_or_default() {
                let fresh = message["ts"].as_str().and_then(|ts| ts.parse().ok());
                // The first message of a thread comes whatever was asked for.
                if fresh.is_some_and(|ts: f64| ts > since) {
                    tell(team, &channel, &place.kind, message, lanes).await;
                }
            }
        }
    }

    async fn conversations(&self, team: &Team) -> Vec<(String, &'static str)> {
        let mut conversations = Vec::new();
        let mut cursor = String::new();
        while conversations.len() < CONVERSATIONS {
            let args = json!({
                "types": "im,mpim,public_channel,private_channel", "exclude_archived": true,
                "limit": CONVERSATIONS, "cursor": cursor,
            });
            let page = self.patiently(team, "users.conversations", &args).await;
            for channel in page["channels"].as_array().into_iter().flatten() {
                if let Some(id) = channel["id"].as_str() {
                    conversations.push((id.to_owned(), kind_of(channel)));
                }
            }
            let next = page["response_metadata"]["next_cursor"].as_str();
            match next.filter(|next| !next.is_empty()) {
                Some(next) => next.clone_into(&mut cursor),
                None => break,
            }
        }
        conversations.truncate(CONVERSATIONS);
        conversations
    }

    /// As often as it takes, within reason; what cannot be had is left out, and said in the log.
    async fn patiently(&self, team: &Team, method: &str, args: &Value) -> Value {
        for attempt in 0..5 {
            let error = match self.api.call(&team.token, method, args).await {
                Ok(fields) => return fields,
                Err(error) => error,
            };
            let pause = match &error {
                CallError::Refused(_) => {
                    tracing::warn!("slack: what was missed cannot be asked: {method}: {error}");
                    return Value::Null;
                }
                CallError::NotDone { retry_after, .. } => *retry_after,
                CallError::Unclear(_) => None,
            };
            let pause: Duration = pause.unwrap_or_else(|| self.pause(attempt));
            tokio::time::sleep(pause).await;
        }
        tracing::warn!("slack: {method} did not answer; messages may have been missed");
        Value::Null
    }
}

/// As if it were an event.
async fn tell(team: &Team, channel: &str, kind: &str, message: Value, lanes: &Lanes) {
    let mut event = message;
    event["channel"] = json!(channel);
    event["channel_type"] = json!(kind);
    let envelope = Envelope {
        id: String::new(),
        kind: "events_api".to_owned(),
        payload: json!({"team_id": team.id, "event": event}),
    };
    let (done, stored) = oneshot::channel();
    let then = Then::Tell(done);
    lanes.put(Job { envelope, then }).await;
    // Dropped only when everything ends.
    let _ = stored.await;
}

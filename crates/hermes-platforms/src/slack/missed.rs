//! What was said while nobody listened for longer than Slack tries: asked from history.

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

/// Older than this is no longer news.
const OLDEST: f64 = 24.0 * 3600.0;

/// Conversations and threads that are looked into, per workspace.
const CONVERSATIONS: usize = 200;
const THREADS: usize = 50;

/// Messages of one conversation or thread, and how many of them one request brings.
const MESSAGES: usize = 5000;
const PAGE: usize = 200;

/// The clocks of Slack and of this machine may differ, and what came twice is stored once.
const OVERLAP: f64 = 120.0;

impl SlackShared {
    /// Starts to ask history, if nobody listened for long, or if asking did not come to its end
    /// before.
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
        let since = since.max(now - OLDEST) - OVERLAP;
        let (shared, link, lanes) = (Arc::clone(self), link.clone(), lanes.clone());
        let asked = async move {
            let asking = async {
                let mut whole = true;
                for team in shared.teams.all() {
                    whole &= shared.ask_team(&team, since, &lanes).await;
                }
                // Or else the next connection asks again; what is known already is stored once.
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

    /// Whether everything was asked for that there is to ask.
    async fn ask_team(&self, team: &SlackTeam, since: f64, lanes: &SlackLanes) -> bool {
        let oldest = format!("{since:.6}");
        let (conversations, mut whole) = self.conversations(team).await;
        for (channel, kind) in conversations {
            self.memory.learn(&channel, &team.id, kind);
            let args = json!({"channel": channel, "oldest": oldest, "limit": PAGE});
            let method = "conversations.history";
            let (messages, all) = self.pages(team, method, args, "messages", MESSAGES).await;
            whole &= all;
            // Newest first; they are told in order.
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
            let args = json!({"channel": channel, "ts": thread, "oldest": oldest, "limit": PAGE});
            let method = "conversations.replies";
            let (messages, all) = self.pages(team, method, args, "messages", MESSAGES).await;
            whole &= all;
            for message in messages {
                let fresh = message["ts"].as_str().and_then(|ts| ts.parse().ok());
                // The first message of a thread comes whatever was asked for.
                if fresh.is_some_and(|ts: f64| ts > since) {
                    tell(team, &channel, &place.kind, message, lanes).await;
                }
            }
        }
        whole
    }

    async fn conversations(&self, team: &SlackTeam) -> (Vec<(String, &'static str)>, bool) {
        let args = json!({
            "types": "im,mpim,public_channel,private_channel", "exclude_archived": true,
            "limit": CONVERSATIONS,
        });
        let method = "users.conversations";
        let (channels, whole) = self
            .pages(team, method, args, "channels", CONVERSATIONS)
            .await;
        let known = channels.iter().filter_map(|channel| {
            let id = channel["id"].as_str()?;
            Some((id.to_owned(), kind_of(channel)))
        });
        (known.collect(), whole)
    }

    /// What the pages of an answer list under a name, up to a number, and whether Slack answered
    /// for all of them.
    async fn pages(
        &self,
        team: &SlackTeam,
        method: &str,
        mut args: Value,
        name: &str,
        most: usize,
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
            if found.len() >= most {
                tracing::warn!("slack: more was missed than is made good: {method}: {most} read");
                break;
            }
            args["cursor"] = json!(next);
        }
        found.truncate(most);
        (found, true)
    }

    /// As often as it takes, within reason. `None`: no answer came. What Slack refuses is left
    /// out, and said in the log: it would refuse again.
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
async fn tell(team: &SlackTeam, channel: &str, kind: &str, message: Value, lanes: &SlackLanes) {
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
    lanes.put(EnvelopeJob { envelope, then }).await;
    // Dropped only when everything ends.
    let _ = stored.await;
}

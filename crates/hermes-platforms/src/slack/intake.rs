//! From envelopes to messages that are stored, and then to acknowledgements.

use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::Arc;

use serde_json::{Value, json};

use super::memory::ThreadRole;
use super::message::{SlackMessage, command, read_message};
use super::team::SlackTeam;
use super::text::{attached, mentioned, readable};
use super::{SlackShared, files, rich};
use crate::platform::{AdapterLink, IncomingMessage};
use crate::source::MessageSource;

/// Maximum number of earlier replies as context.
const MAX_CONTEXT: usize = 30;

/// Maximum length of one earlier reply.
const MAX_REPLY: usize = 2000;

/// A message that Slack expects to be acknowledged.
#[derive(Clone, Debug)]
pub(super) struct SlackEnvelope {
    pub id: String,
    /// `events_api`, `interactive`, `slash_commands`.
    pub kind: String,
    pub payload: Value,
}

impl SlackEnvelope {
    /// Messages with the same key stay in order.
    pub(super) fn conversation(&self) -> &str {
        let payload = &self.payload;
        let places = [
            &payload["event"]["channel"],
            &payload["channel"]["id"],
            &payload["channel_id"],
        ];
        places
            .into_iter()
            .find_map(Value::as_str)
            .unwrap_or_default()
    }
}

impl SlackShared {
    /// Whether the envelope may be acknowledged: it is stored or not for us.
    pub(super) async fn take(&self, envelope: &SlackEnvelope, link: &AdapterLink) -> bool {
        let message = match envelope.kind.as_str() {
            "events_api" => {
                let team = self.team_of(&envelope.payload);
                let Some(team) = team else {
                    tracing::warn!("slack: an event of a workspace without a token of ours");
                    return true;
                };
                return self
                    .take_event(&envelope.payload["event"], &team, link)
                    .await;
            }
            "slash_commands" => self.slash(&envelope.payload),
            "interactive" => self.press(&envelope.payload),
            _ => None,
        };
        match message {
            Some(message) => link.deliver(message).await,
            None => true,
        }
    }

    /// The workspace of an event; for shared conversations the one whose token we have.
    fn team_of(&self, payload: &Value) -> Option<Arc<SlackTeam>> {
        let authorized = payload["authorizations"].as_array().into_iter().flatten();
        let ids = authorized
            .map(|one| &one["team_id"])
            .chain([&payload["team_id"], &payload["context_team_id"]]);
        ids.filter_map(Value::as_str)
            .find_map(|id| self.teams.get(id))
    }

    /// A message, as an event or from history.
    pub(super) async fn take_event(
        &self,
        event: &Value,
        team: &SlackTeam,
        link: &AdapterLink,
    ) -> bool {
        let channel = event["channel"].as_str().unwrap_or_default();
        if let Some(kind) = event["channel_type"].as_str() {
            self.memory.remember(channel, &team.id, kind);
        }
        let message_in = match read_message(event, team, &self.settings, &self.memory) {
            Ok(message_in) => message_in,
            Err(why) => {
                tracing::debug!(channel, "slack: passed over: {why}");
                return true;
            }
        };
        let message = self.message(&message_in, team).await;
        if let Some(thread) = &message_in.session
            && self.memory.note_thread(channel, thread, ThreadRole::Joined)
        {
            // Before the acknowledgement: participation in a thread must survive a restart.
            self.memory.save_now().await;
        }
        link.deliver(message).await
    }

    async fn message(&self, message_in: &SlackMessage, team: &SlackTeam) -> IncomingMessage {
        let details =
            tokio::time::timeout(self.timing.details, self.details(message_in, team)).await;
        let details = details.unwrap_or_else(|_| {
            tracing::warn!("slack: names or earlier replies did not come in time");
            MessageDetails::default()
        });
        let mut text = readable(&message_in.text, &details.names);
        if let Some(command) = command(&text, |name| self.knows_command(name)) {
            text = command;
        }
        if let Some(quoted) = attached(&message_in.event) {
            let quoted = readable(&quoted, &details.names);
            text = [text, quoted].join("\n\n");
        }
        let files = message_in.event["files"].as_array().into_iter().flatten();
        let mut source = source(
            team,
            &message_in.channel,
            &message_in.user,
            message_in.is_dm(),
        );
        source.chat_name = details.channel;
        source.user_name = details.names.get(&message_in.user).cloned();
        source.thread_id.clone_from(&message_in.session);
        source.message_id = Some(message_in.ts.clone());
        IncomingMessage {
            account: String::new(),
            message_id: message_in.ts.clone(),
            source,
            text,
            media: files.map(|file| files::incoming(&team.id, file)).collect(),
            reply_to: None,
            pressed: None,
            context: details.context,
            sent_at: message_in.ts.parse().unwrap_or_default(),
            native: if message_in.is_program() {
                json!({"is_bot": true})
            } else {
                Value::Null
            },
        }
    }

    /// Details of a message that are looked up.
    async fn details(&self, message_in: &SlackMessage, team: &SlackTeam) -> MessageDetails {
        let mut users = mentioned(&message_in.text);
        users.insert(0, message_in.user.clone());
        let names = async {
            let mut names = HashMap::new();
            for user in users.iter().filter(|user| !user.is_empty()).take(10) {
                if let Some(name) = self.user_name(team, user).await {
                    names.insert(user.clone(), name);
                }
            }
            names
        };
        let channel = async {
            if message_in.is_dm() {
                return None;
            }
            self.channel_name(team, &message_in.channel).await
        };
        let context = async {
            let thread = message_in
                .thread
                .as_deref()
                .filter(|_| message_in.wants_context)?;
            self.context(message_in, thread, team).await
        };
        let (names, channel, context) = tokio::join!(names, channel, context);
        MessageDetails {
            names,
            channel,
            context,
        }
    }

    /// The messages of a thread before our first one.
    async fn context(
        &self,
        message_in: &SlackMessage,
        thread: &str,
        team: &SlackTeam,
    ) -> Option<String> {
        let args = json!({
            "channel": message_in.channel, "ts": thread, "latest": message_in.ts,
            "limit": 200, "inclusive": true,
        });
        let answer = self
            .api
            .call(&team.token, "conversations.replies", &args)
            .await;
        let fields = match answer {
            Ok(fields) => fields,
            Err(error) => {
                tracing::warn!("slack: earlier replies of a thread: {error}");
                return None;
            }
        };
        let messages = fields["messages"].as_array()?;
        let before: Vec<&Value> = messages
            .iter()
            .filter(|message| message["ts"] != message_in.ts.as_str())
            .filter(|message| !message_text(message).is_empty())
            .collect();
        let (first, rest) = before.split_first()?;
        // The beginning gives the topic, the end the question.
        let skipped = rest.len().saturating_sub(MAX_CONTEXT - 1);
        let mut lines = vec![self.line(first, team).await];
        if skipped > 0 {
            lines.push(format!("(… {skipped} more …)"));
        }
        for message in &rest[skipped..] {
            lines.push(self.line(message, team).await);
        }
        Some(format!("Earlier in this thread:\n{}", lines.join("\n")))
    }

    async fn line(&self, message: &Value, team: &SlackTeam) -> String {
        let user = message["user"].as_str().unwrap_or_default();
        let name = if user == team.bot_user {
            Some("you".to_owned())
        } else if user.is_empty() {
            message["username"].as_str().map(str::to_owned)
        } else {
            self.user_name(team, user).await
        };
        let name = name.unwrap_or_else(|| "someone".to_owned());
        let text = readable(&message_text(message), &HashMap::new());
        let text: String = text.chars().take(MAX_REPLY).collect();
        format!("{name}: {text}")
    }
}

/// The text of a message.
fn message_text(message: &Value) -> Cow<'_, str> {
    let program = message["bot_id"].as_str().is_some_and(|id| !id.is_empty());
    rich::message_text(message, program)
}

/// The source of a message.
pub(super) fn source(team: &SlackTeam, channel: &str, user: &str, dm: bool) -> MessageSource {
    let mut source = MessageSource {
        platform: super::NAME.to_owned(),
        chat_id: channel.to_owned(),
        chat_type: if dm { "dm" } else { "group" }.to_owned(),
        user_id: Some(user.to_owned()).filter(|user| !user.is_empty()),
        scope_id: Some(team.id.clone()),
        ..MessageSource::default()
    };
    source.mirror_scope();
    source
}

#[derive(Default)]
struct MessageDetails {
    names: HashMap<String, String>,
    channel: Option<String>,
    context: Option<String>,
}

//! Slash commands and buttons.

use std::collections::HashMap;

use serde_json::{Value, json};

use super::SlackShared;
use super::blocks::BUTTON;
use super::intake::source;
use super::text::readable;
use crate::platform::{ButtonPress, IncomingMessage};

impl SlackShared {
    /// `/name rest`, or `/hermes rest` where rest is a command or a question.
    pub(super) fn slash(&self, payload: &Value) -> Option<IncomingMessage> {
        let field = |name: &str| payload[name].as_str().unwrap_or_default().trim();
        let team = self.teams.get(field("team_id"))?;
        let (channel, user) = (field("channel_id"), field("user_id"));
        let name = field("command").trim_start_matches('/');
        let rest = field("text");
        let text = match (name, rest) {
            ("" | "hermes", "") => "/help".to_owned(),
            ("" | "hermes", rest) => {
                let word = rest.split_whitespace().next().unwrap_or_default();
                if self.knows_command(&word.to_ascii_lowercase()) {
                    format!("/{rest}")
                } else {
                    readable(rest, &HashMap::new())
                }
            }
            (name, rest) => format!("/{name} {rest}").trim().to_owned(),
        };
        let mut source = source(&team, channel, user, channel.starts_with('D'));
        source.user_name = Some(field("user_name").to_owned()).filter(|name| !name.is_empty());
        source.chat_name = Some(field("channel_name").to_owned()).filter(|name| !name.is_empty());
        self.memory.remember(
            channel,
            &team.id,
            if channel.starts_with('D') {
                "im"
            } else {
                "channel"
            },
        );
        self.offer_response(channel, field("response_url"));
        Some(IncomingMessage {
            account: String::new(),
            message_id: format!("slash:{}", field("trigger_id")),
            source,
            text,
            media: Vec::new(),
            reply_to: None,
            pressed: None,
            context: None,
            sent_at: self.clock.epoch_seconds(),
            native: Value::Null,
        })
    }

    /// One of our buttons.
    pub(super) fn press(&self, payload: &Value) -> Option<IncomingMessage> {
        if payload["type"] != "block_actions" {
            return None;
        }
        let action = payload["actions"].as_array()?.first()?;
        let action_id = action["action_id"].as_str()?;
        if !action_id.starts_with(BUTTON) {
            return None;
        }
        let team_id = payload["team"]["id"].as_str()?;
        let team = self.teams.get(team_id).or_else(|| {
            let user_team = payload["user"]["team_id"].as_str()?;
            self.teams.get(user_team)
        })?;
        let channel = payload["channel"]["id"].as_str()?;
        let message = &payload["message"];
        let kind = self
            .memory
            .conversation(channel)
            .map(|known_conversation| known_conversation.kind);
        let dm = kind.map_or(channel.starts_with('D'), |kind| {
            matches!(kind.as_str(), "im" | "mpim")
        });
        let user = payload["user"]["id"].as_str().unwrap_or_default();
        let mut source = source(&team, channel, user, dm);
        source.user_name = payload["user"]["name"].as_str().map(str::to_owned);
        source.thread_id = message["thread_ts"].as_str().map(str::to_owned);
        let action_ts = action["action_ts"].as_str().unwrap_or_default();
        Some(IncomingMessage {
            account: String::new(),
            message_id: format!("press:{action_ts}:{action_id}"),
            source,
            text: action["text"]["text"]
                .as_str()
                .unwrap_or_default()
                .to_owned(),
            media: Vec::new(),
            reply_to: None,
            pressed: Some(ButtonPress {
                data: action["value"].as_str().unwrap_or_default().to_owned(),
                message_id: message["ts"].as_str().map(str::to_owned),
            }),
            context: None,
            sent_at: action_ts.parse().unwrap_or_default(),
            native: json!({"response_url": payload["response_url"]}),
        })
    }
}

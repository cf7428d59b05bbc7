//! Events as Slack words them.

use serde_json::{Map, Value, json};

/// Something a person writes.
#[derive(Clone, Debug, Default)]
pub struct PostedMessage {
    pub team: String,
    pub channel: String,
    pub user: String,
    pub text: String,
    pub thread: Option<String>,
    /// Names, types and contents of files.
    pub files: Vec<(String, String, Vec<u8>)>,
    /// Further fields of the event.
    pub fields: Map<String, Value>,
}

impl PostedMessage {
    pub fn new(team: &str, channel: &str, user: &str, text: &str) -> Self {
        Self {
            team: team.to_owned(),
            channel: channel.to_owned(),
            user: user.to_owned(),
            text: text.to_owned(),
            ..Self::default()
        }
    }

    #[must_use]
    pub fn thread(mut self, ts: &str) -> Self {
        self.thread = Some(ts.to_owned());
        self
    }

    #[must_use]
    pub fn file(mut self, name: &str, mime: &str, bytes: &[u8]) -> Self {
        self.files
            .push((name.to_owned(), mime.to_owned(), bytes.to_vec()));
        self
    }

    /// A further field of the event, or another value for one.
    #[must_use]
    pub fn field(mut self, name: &str, value: Value) -> Self {
        self.fields.insert(name.to_owned(), value);
        self
    }
}

/// The payload of an `events_api` envelope.
pub(super) fn callback(team: &str, bot_user: &str, number: u64, event: &Value) -> Value {
    json!({
        "token": "verification",
        "team_id": team,
        "context_team_id": team,
        "context_enterprise_id": null,
        "api_app_id": "A1",
        "event": event,
        "type": "event_callback",
        "event_id": format!("Ev{number:08}"),
        "event_time": 1_700_000_000 + number,
        "authorizations": [{
            "enterprise_id": null, "team_id": team, "user_id": bot_user,
            "is_bot": true, "is_enterprise_install": false,
        }],
        "is_ext_shared_channel": false,
        "event_context": format!("4-{number}"),
    })
}

/// A message as an event: the message, and where it is.
pub(super) fn message_event(message: &Value, channel: &str, kind: &str) -> Value {
    let mut event = message.clone();
    event["channel"] = json!(channel);
    event["event_ts"] = message["ts"].clone();
    event["channel_type"] = json!(kind);
    event
}

/// A `block_actions` payload.
pub(super) struct PressedButton<'a> {
    pub team: &'a str,
    pub channel: &'a str,
    pub user: &'a str,
    pub user_name: &'a str,
    pub message: &'a Value,
    pub action: &'a Value,
    pub block_id: &'a Value,
    pub action_ts: &'a str,
    pub response_url: &'a str,
}

impl PressedButton<'_> {
    pub(super) fn payload(&self) -> Value {
        let mut action = self.action.clone();
        action["block_id"] = self.block_id.clone();
        action["action_ts"] = json!(self.action_ts);
        json!({
            "type": "block_actions",
            "user": {
                "id": self.user, "username": self.user_name, "name": self.user_name,
                "team_id": self.team,
            },
            "api_app_id": "A1",
            "token": "verification",
            "container": {
                "type": "message", "message_ts": self.message["ts"],
                "channel_id": self.channel, "is_ephemeral": false,
                "thread_ts": self.message["thread_ts"],
            },
            "trigger_id": format!("{}.trigger", self.action_ts),
            "team": {"id": self.team, "domain": self.team.to_ascii_lowercase()},
            "enterprise": null,
            "is_enterprise_install": false,
            "channel": {"id": self.channel, "name": self.channel.to_ascii_lowercase()},
            "message": self.message,
            "state": {"values": {}},
            "response_url": self.response_url,
            "actions": [action],
        })
    }
}

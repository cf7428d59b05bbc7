//! What the fake remembers: people, channels, messages, sessions of the socket, and everything
//! that was asked of it.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::time::Instant;

use chrono::{SecondsFormat, Utc};
use serde_json::{Value, json};
use tokio::sync::mpsc;

use super::faults::{BucketLimits, DiscordFault};

/// The bot's user id; its application has the same.
pub const BOT: u64 = 900_000_000_000_000_001;
/// The one server that the bot is in.
pub const GUILD: u64 = 700_000_000_000_000_001;
/// The token that is accepted.
pub const TOKEN: &str = "OTAw.fake.token";

/// The first millisecond of Discord's ids.
const EPOCH: i64 = 1_420_070_400_000;
/// Events a session keeps for a resume.
const REPLAY: usize = 1000;

pub(super) struct FakeDiscordState {
    pub users: BTreeMap<u64, FakeUser>,
    pub channels: BTreeMap<u64, FakeChannel>,
    /// In the order of their ids, which is that of time.
    pub messages: BTreeMap<u64, FakeMessage>,
    pub commands: Vec<Value>,
    pub interactions: HashMap<u64, FakeInteraction>,
    /// What was uploaded, by path.
    pub files: HashMap<String, Vec<u8>>,
    pub sessions: HashMap<String, FakeSession>,
    pub requests: Vec<DiscordRequest>,
    pub spoken: Vec<SocketRecord>,
    pub faults: Vec<DiscordFault>,
    pub limits: BucketLimits,
    pub heartbeat_ms: u64,
    /// Privileged intents that are switched off in the developer portal.
    pub disallowed: u64,
    pub token: String,
    /// Nothing can be reached.
    pub offline: bool,
    /// Where the socket is said to be.
    pub host: String,
    last_id: u64,
}

pub(super) struct FakeUser {
    pub id: u64,
    pub name: String,
    pub bot: bool,
    pub roles: Vec<u64>,
}

pub(super) struct FakeChannel {
    pub id: u64,
    /// 0 text, 1 direct, 11 thread.
    pub kind: u8,
    pub name: String,
    pub parent: Option<u64>,
    pub recipient: Option<u64>,
    /// The bot may not write here.
    pub locked: bool,
}

pub(super) struct FakeMessage {
    pub value: Value,
    pub author: u64,
    pub channel: u64,
    /// Where the author asked for it to be enforced.
    pub nonce: Option<(String, Instant)>,
    /// Only one person sees it.
    pub ephemeral: bool,
    pub interaction: Option<u64>,
}

pub(super) struct FakeInteraction {
    pub token: String,
    pub asked: Instant,
    pub kind: u8,
    pub channel: u64,
    /// The kind of the answer.
    pub answered: Option<u64>,
    /// The message that the answer made, or that the button is on.
    pub original: Option<u64>,
}

/// A request as it came.
#[derive(Clone, Debug)]
pub struct DiscordRequest {
    pub method: String,
    /// Without `/api/v10`, with the query.
    pub path: String,
    pub body: Value,
    /// The headers, their names in lower case.
    pub headers: Vec<(String, String)>,
}

/// What a client said on the socket.
#[derive(Clone, Debug, PartialEq)]
pub enum SocketRecord {
    Connected,
    Identify(Value),
    Resume { session: String, seq: u64 },
    Heartbeat(Option<u64>),
    Gone,
}

pub(super) struct FakeSession {
    pub intents: u64,
    pub seq: u64,
    pub events: VecDeque<(u64, Value)>,
    pub socket: Option<mpsc::UnboundedSender<SocketCommand>>,
}

/// A command for a socket.
#[derive(Debug)]
pub(super) enum SocketCommand {
    Frame(Value),
    Close(u16),
    /// A reset, with no close frame.
    Cut,
    /// It stays open, and nothing comes or goes any more.
    Die,
}

const GUILD_MESSAGES: u64 = 1 << 9;
const DIRECT_MESSAGES: u64 = 1 << 12;
pub(super) const MESSAGE_CONTENT: u64 = 1 << 15;

impl FakeDiscordState {
    pub(super) fn new() -> Self {
        let mut world = Self {
            users: BTreeMap::new(),
            channels: BTreeMap::new(),
            messages: BTreeMap::new(),
            commands: Vec::new(),
            interactions: HashMap::new(),
            files: HashMap::new(),
            sessions: HashMap::new(),
            requests: Vec::new(),
            spoken: Vec::new(),
            faults: Vec::new(),
            limits: BucketLimits::default(),
            heartbeat_ms: 41_250,
            disallowed: 0,
            token: TOKEN.to_owned(),
            offline: false,
            host: "127.0.0.1".to_owned(),
            last_id: 0,
        };
        let bot = FakeUser {
            id: BOT,
            name: "hermes".to_owned(),
            bot: true,
            roles: Vec::new(),
        };
        world.users.insert(BOT, bot);
        world
    }

    /// Ids grow with time, as Discord's do.
    pub(super) fn id(&mut self) -> u64 {
        let now = (Utc::now().timestamp_millis() - EPOCH) as u64;
        self.last_id = (self.last_id + 1).max(now << 22);
        self.last_id
    }

    pub(super) fn user(&mut self, name: &str, bot: bool) -> u64 {
        if let Some(user) = self.users.values().find(|user| user.name == name) {
            return user.id;
        }
        let id = self.id();
        self.users.insert(
            id,
            FakeUser {
                id,
                name: name.to_owned(),
                bot,
                roles: Vec::new(),
            },
        );
        id
    }

    pub(super) fn channel(&mut self, kind: u8, name: &str, parent: Option<u64>) -> u64 {
        let id = self.id();
        self.add_channel(id, kind, name, parent);
        id
    }

    pub(super) fn add_channel(&mut self, id: u64, kind: u8, name: &str, parent: Option<u64>) {
        self.channels.insert(
            id,
            FakeChannel {
                id,
                kind,
                name: name.to_owned(),
                parent,
                recipient: None,
                locked: false,
            },
        );
        if kind != 1 {
            let event = if kind == 0 {
                "CHANNEL_CREATE"
            } else {
                "THREAD_CREATE"
            };
            let value = self.channel_value(id);
            self.dispatch(event, &value);
        }
    }

    /// The direct channel with a person.
    pub(super) fn direct(&mut self, user: u64) -> u64 {
        let known = self
            .channels
            .values()
            .find(|channel| channel.recipient == Some(user));
        if let Some(channel) = known {
            return channel.id;
        }
        let id = self.channel(1, "", None);
        if let Some(channel) = self.channels.get_mut(&id) {
            channel.recipient = Some(user);
        }
        id
    }

    pub(super) fn user_value(&self, id: u64) -> Value {
        let user = &self.users[&id];
        json!({
            "id": user.id.to_string(), "username": user.name, "global_name": user.name,
            "discriminator": "0", "avatar": null, "bot": user.bot, "public_flags": 0,
        })
    }

    pub(super) fn member_value(&self, id: u64) -> Value {
        let roles: Vec<String> = self.users[&id].roles.iter().map(u64::to_string).collect();
        json!({
            "roles": roles, "joined_at": "2024-01-01T00:00:00.000000+00:00", "deaf": false,
            "mute": false, "nick": null, "avatar": null, "flags": 0, "pending": false,
            "premium_since": null, "communication_disabled_until": null,
        })
    }

    pub(super) fn channel_value(&self, id: u64) -> Value {
        let channel = &self.channels[&id];
        let last = self
            .messages
            .iter()
            .rev()
            .find(|(_, message)| message.channel == id)
            .map(|(id, _)| id.to_string());
        let mut value = json!({
            "id": id.to_string(), "type": channel.kind, "last_message_id": last, "flags": 0,
        });
        if let Some(user) = channel.recipient {
            value["recipients"] = json!([self.user_value(user)]);
        } else {
            value["name"] = json!(channel.name);
            value["guild_id"] = json!(GUILD.to_string());
            value["parent_id"] = json!(channel.parent.map(|id| id.to_string()));
            value["rate_limit_per_user"] = json!(0);
        }
        if channel.kind == 0 {
            value["position"] = json!(0);
            value["permission_overwrites"] = json!([]);
            value["nsfw"] = json!(false);
            value["topic"] = Value::Null;
        } else if channel.kind == 11 {
            value["owner_id"] = json!(BOT.to_string());
            value["message_count"] = json!(0);
            value["member_count"] = json!(1);
            value["thread_metadata"] = json!({
                "archived": false, "auto_archive_duration": 1440, "locked": false,
                "archive_timestamp": now(), "create_timestamp": now(),
            });
        }
        value
    }

    /// The server as `GUILD_CREATE` describes it.
    pub(super) fn guild_value(&self) -> Value {
        let of_kind = |kind: u8| -> Vec<Value> {
            let ids = self.channels.values().filter(|one| one.kind == kind);
            ids.map(|one| self.channel_value(one.id)).collect()
        };
        let mut bot = self.member_value(BOT);
        bot["user"] = self.user_value(BOT);
        let mut guild = json!({
            "id": GUILD.to_string(), "name": "Workshop", "icon": null, "splash": null,
            "owner_id": BOT.to_string(), "afk_timeout": 300, "verification_level": 0,
            "default_message_notifications": 0, "explicit_content_filter": 0, "mfa_level": 0,
            "emojis": [], "stickers": [], "features": [], "premium_tier": 0, "nsfw_level": 0,
            "preferred_locale": "en-US", "system_channel_flags": 0, "joined_at": now(),
            "large": false, "unavailable": false, "member_count": self.users.len(),
        });
        guild["roles"] = json!([{
            "id": GUILD.to_string(), "name": "@everyone", "color": 0, "hoist": false,
            "position": 0, "permissions": "2248473465835073", "managed": false,
            "mentionable": false, "flags": 0,
        }]);
        for empty in [
            "voice_states",
            "presences",
            "stage_instances",
            "guild_scheduled_events",
        ] {
            guild[empty] = json!([]);
        }
        guild["members"] = json!([bot]);
        guild["channels"] = json!(of_kind(0));
        guild["threads"] = json!(of_kind(11));
        guild
    }

    /// Tells every session, and keeps it for those that come back.
    pub(super) fn dispatch(&mut self, event: &str, data: &Value) {
        let mut sessions = std::mem::take(&mut self.sessions);
        for session in sessions.values_mut() {
            if let Some(data) = Self::seen_by(session, event, data) {
                session.push(event, &data);
            }
        }
        self.sessions = sessions;
    }

    /// What intents leave of an event.
    fn seen_by(session: &FakeSession, event: &str, data: &Value) -> Option<Value> {
        if !event.starts_with("MESSAGE_") {
            return Some(data.clone());
        }
        let direct = data["guild_id"].is_null();
        let needed = if direct {
            DIRECT_MESSAGES
        } else {
            GUILD_MESSAGES
        };
        if session.intents & needed == 0 {
            return None;
        }
        let mut data = data.clone();
        let bot = BOT.to_string();
        let mentioned = data["mentions"]
            .as_array()
            .is_some_and(|all| all.iter().any(|user| user["id"] == json!(bot)));
        let own = data["author"]["id"] == json!(bot);
        if session.intents & MESSAGE_CONTENT == 0 && !direct && !mentioned && !own {
            data["content"] = json!("");
            data["attachments"] = json!([]);
        }
        Some(data)
    }
}

impl FakeSession {
    pub(super) fn push(&mut self, event: &str, data: &Value) {
        self.seq += 1;
        let frame = json!({"op": 0, "t": event, "s": self.seq, "d": data});
        if let Some(socket) = &self.socket {
            // A socket that just ended: the event waits for the resume.
            let _ = socket.send(SocketCommand::Frame(frame.clone()));
        }
        self.events.push_back((self.seq, frame));
        while self.events.len() > REPLAY {
            self.events.pop_front();
        }
    }
}

/// Ids come as text or as numbers.
pub(super) fn snowflake(value: &Value) -> Option<u64> {
    let text = value.as_str().and_then(|text| text.parse().ok());
    value.as_u64().or(text)
}

pub(super) fn now() -> String {
    Utc::now().to_rfc3339_opts(SecondsFormat::Micros, false)
}

//! Discord's data structures, as far as needed. Optional fields may be missing.

use serde::Deserialize;
use serde::de::{Deserializer, IgnoredAny};
use serde_json::Value;

/// The first millisecond of Discord's ids.
const EPOCH_MS: u64 = 1_420_070_400_000;

/// An id of Discord's. Ids grow with time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct Snowflake(pub u64);

impl Snowflake {
    /// The lowest id of a moment.
    pub(super) fn at(epoch_seconds: f64) -> Self {
        Self(((epoch_seconds * 1e3) as u64).saturating_sub(EPOCH_MS) << 22)
    }

    pub(super) fn epoch_seconds(self) -> f64 {
        ((self.0 >> 22) + EPOCH_MS) as f64 / 1e3
    }
}

impl std::fmt::Display for Snowflake {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.fmt(f)
    }
}

impl<'de> Deserialize<'de> for Snowflake {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(untagged)]
        enum SnowflakeForm {
            Text(String),
            Number(u64),
        }
        match SnowflakeForm::deserialize(from)? {
            SnowflakeForm::Number(number) => Ok(Self(number)),
            SnowflakeForm::Text(text) => text
                .parse()
                .map(Self)
                .map_err(|_| serde::de::Error::custom(format!("{text:?} is not an id"))),
        }
    }
}

/// `null` counts as missing.
fn or_default<'de, D, T>(from: D) -> Result<T, D::Error>
where
    D: Deserializer<'de>,
    T: Default + Deserialize<'de>,
{
    Ok(Option::deserialize(from)?.unwrap_or_default())
}

#[derive(Clone, Debug, Default, Deserialize)]
pub(super) struct DiscordUser {
    pub id: Snowflake,
    #[serde(default)]
    pub username: String,
    #[serde(default)]
    pub global_name: Option<String>,
    /// `0`: the name is unique.
    #[serde(default)]
    pub discriminator: String,
    #[serde(default, deserialize_with = "or_default")]
    pub bot: bool,
}

impl DiscordUser {
    pub(super) fn name(&self) -> &str {
        self.global_name.as_deref().unwrap_or(&self.username)
    }
}

#[derive(Clone, Debug, Default, Deserialize)]
pub(super) struct GuildMember {
    #[serde(default)]
    pub user: Option<DiscordUser>,
    #[serde(default)]
    pub nick: Option<String>,
    #[serde(default)]
    pub roles: Vec<Snowflake>,
}

#[derive(Clone, Debug, Default, Deserialize)]
pub(super) struct DiscordMessage {
    pub id: Snowflake,
    pub channel_id: Snowflake,
    #[serde(default)]
    pub guild_id: Option<Snowflake>,
    #[serde(default)]
    pub author: DiscordUser,
    #[serde(default)]
    pub member: Option<GuildMember>,
    #[serde(default, deserialize_with = "or_default")]
    pub content: String,
    #[serde(default, rename = "type")]
    pub kind: u64,
    #[serde(default)]
    pub mentions: Vec<DiscordUser>,
    #[serde(default)]
    pub attachments: Vec<Attachment>,
    #[serde(default)]
    pub sticker_items: Vec<Sticker>,
    #[serde(default, rename = "message_reference")]
    pub refers: Option<MessageReference>,
    #[serde(default, rename = "referenced_message")]
    pub answers: Option<Box<DiscordMessage>>,
    #[serde(default, rename = "message_snapshots")]
    pub forwarded: Vec<ForwardSnapshot>,
    #[serde(default)]
    pub components: Vec<ActionRow>,
    #[serde(default)]
    pub reactions: Vec<Reaction>,
    #[serde(default)]
    pub webhook_id: Option<Snowflake>,
}

impl DiscordMessage {
    /// Whether it was written by a person: a message or a reply.
    pub(super) fn is_talk(&self) -> bool {
        matches!(self.kind, 0 | 19)
    }
}

#[derive(Clone, Debug, Default, Deserialize)]
pub(super) struct Attachment {
    #[serde(default)]
    pub filename: String,
    #[serde(default)]
    pub size: u64,
    #[serde(default)]
    pub url: String,
    #[serde(default)]
    pub content_type: Option<String>,
    /// Only voice messages have one.
    #[serde(default)]
    pub waveform: Option<IgnoredAny>,
}

#[derive(Clone, Debug, Default, Deserialize)]
pub(super) struct Sticker {
    #[serde(default)]
    pub name: String,
}

#[derive(Clone, Debug, Default, Deserialize)]
pub(super) struct MessageReference {
    #[serde(default)]
    pub message_id: Option<Snowflake>,
    /// 1: forwarded.
    #[serde(default, rename = "type")]
    pub kind: u64,
}

/// A message that was forwarded.
#[derive(Clone, Debug, Default, Deserialize)]
pub(super) struct ForwardSnapshot {
    #[serde(default)]
    pub message: ForwardedMessage,
}

#[derive(Clone, Debug, Default, Deserialize)]
pub(super) struct ForwardedMessage {
    #[serde(default, deserialize_with = "or_default")]
    pub content: String,
    #[serde(default)]
    pub attachments: Vec<Attachment>,
}

#[derive(Clone, Debug, Default, Deserialize)]
pub(super) struct ActionRow {
    #[serde(default)]
    pub components: Vec<ActionComponent>,
}

#[derive(Clone, Debug, Default, Deserialize)]
pub(super) struct ActionComponent {
    #[serde(default)]
    pub custom_id: Option<String>,
    #[serde(default)]
    pub label: Option<String>,
}

#[derive(Clone, Debug, Default, Deserialize)]
pub(super) struct Reaction {
    #[serde(default)]
    pub me: bool,
    #[serde(default)]
    pub emoji: Emoji,
}

#[derive(Clone, Debug, Default, Deserialize)]
pub(super) struct Emoji {
    #[serde(default)]
    pub id: Option<Snowflake>,
    #[serde(default)]
    pub name: Option<String>,
}

/// Kinds: 0 text, 1 direct, 10 to 12 threads, 15 forum, …
#[derive(Clone, Debug, Default, Deserialize)]
pub(super) struct DiscordChannel {
    pub id: Snowflake,
    #[serde(default, rename = "type")]
    pub kind: u64,
    #[serde(default)]
    pub guild_id: Option<Snowflake>,
    #[serde(default)]
    pub parent_id: Option<Snowflake>,
    #[serde(default)]
    pub name: Option<String>,
    #[serde(default)]
    pub topic: Option<String>,
    #[serde(default)]
    pub last_message_id: Option<Snowflake>,
}

impl DiscordChannel {
    pub(super) fn is_thread(&self) -> bool {
        matches!(self.kind, 10..=12)
    }

    pub(super) fn is_direct(&self) -> bool {
        matches!(self.kind, 1 | 3)
    }

    /// Messages can be read here.
    pub(super) fn has_messages(&self) -> bool {
        matches!(self.kind, 0 | 1 | 2 | 3 | 5 | 10..=13)
    }
}

#[derive(Clone, Debug, Default, Deserialize)]
pub(super) struct Guild {
    pub id: Snowflake,
    #[serde(default)]
    pub name: String,
    #[serde(default)]
    pub channels: Vec<DiscordChannel>,
    #[serde(default)]
    pub threads: Vec<DiscordChannel>,
}

#[derive(Clone, Debug, Deserialize)]
pub(super) struct ReadyEvent {
    pub session_id: String,
    pub resume_gateway_url: String,
    pub user: DiscordUser,
    #[serde(default)]
    pub guilds: Vec<IgnoredAny>,
}

/// The use of a command or a button.
#[derive(Clone, Debug, Deserialize)]
pub(super) struct DiscordInteraction {
    pub id: Snowflake,
    pub application_id: Snowflake,
    #[serde(rename = "type")]
    pub kind: u64,
    pub token: String,
    #[serde(default)]
    pub data: InteractionData,
    #[serde(default)]
    pub guild_id: Option<Snowflake>,
    #[serde(default)]
    pub channel_id: Option<Snowflake>,
    #[serde(default)]
    pub channel: Option<DiscordChannel>,
    #[serde(default)]
    pub member: Option<GuildMember>,
    #[serde(default)]
    pub user: Option<DiscordUser>,
    #[serde(default)]
    pub message: Option<DiscordMessage>,
}

#[derive(Clone, Debug, Default, Deserialize)]
pub(super) struct InteractionData {
    #[serde(default)]
    pub name: Option<String>,
    #[serde(default)]
    pub custom_id: Option<String>,
    #[serde(default)]
    pub options: Vec<CommandOption>,
}

#[derive(Clone, Debug, Default, Deserialize)]
pub(super) struct CommandOption {
    #[serde(default)]
    pub name: String,
    #[serde(default)]
    pub value: Value,
    #[serde(default)]
    pub options: Vec<CommandOption>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_times() {
        let id = Snowflake(175_928_847_299_117_063);
        assert!((id.epoch_seconds() - 1_462_015_105.796).abs() < 1e-6);
        assert!(Snowflake::at(id.epoch_seconds()) <= id);
        assert!(Snowflake::at(id.epoch_seconds() + 0.001) > id);
        assert_eq!(
            serde_json::from_str::<Snowflake>("\"12\"").unwrap(),
            Snowflake(12)
        );
        assert!(serde_json::from_str::<Snowflake>("\"a\"").is_err());
    }

    #[test]
    fn a_bare_message_is_read() {
        let bare = r#"{"id": "1", "channel_id": "2", "author": {"id": "3"}, "content": null,
            "referenced_message": null, "member": null}"#;
        let message: DiscordMessage = serde_json::from_str(bare).unwrap();
        assert!(message.is_talk() && message.content.is_empty());
    }
}

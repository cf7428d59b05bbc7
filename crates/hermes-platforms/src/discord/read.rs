//! Converts Discord messages.

use serde_json::{Value, json};

use super::NAME;
use super::rules::without_mention;
use super::wire::{
    Attachment, DiscordChannel, DiscordInteraction, DiscordMessage, DiscordUser, GuildMember,
    Snowflake,
};
use crate::platform::{ButtonPress, IncomingMessage, MediaKind, MediaRef, ReplyTo};
use crate::source::MessageSource;

/// The location of a message.
pub(super) struct MessageLocation<'a> {
    pub channel: &'a DiscordChannel,
    pub parent: Option<&'a DiscordChannel>,
    pub guild: Option<Snowflake>,
    pub guild_name: Option<String>,
}

impl MessageLocation<'_> {
    pub(super) fn source(
        &self,
        user: &DiscordUser,
        member: Option<&GuildMember>,
        message: Snowflake,
    ) -> MessageSource {
        let channel = self.channel;
        let id = channel.id.to_string();
        let direct = self.guild.is_none() || channel.is_direct();
        let name = channel.name.clone().unwrap_or_else(|| id.clone());
        let guild = self.guild_name.as_deref();
        let (chat_type, chat_name) = if direct {
            ("dm", user.username.clone())
        } else if channel.is_thread() {
            let parent = self.parent.and_then(|parent| parent.name.as_deref());
            let parts = [
                guild.map(str::to_owned),
                parent.map(|name| format!("#{name}")),
            ];
            let parts: Vec<String> = parts.into_iter().flatten().chain([name]).collect();
            ("thread", parts.join(" / "))
        } else {
            let named = guild.map_or_else(|| name.clone(), |guild| format!("{guild} / #{name}"));
            ("group", named)
        };
        let topic = channel.topic.as_ref();
        let topic = topic.or_else(|| self.parent?.topic.as_ref());
        let nick = member.and_then(|member| member.nick.as_deref());
        let guild = self.guild.filter(|_| !direct).map(|id| id.to_string());
        MessageSource {
            platform: NAME.to_owned(),
            chat_id: id.clone(),
            chat_name: Some(chat_name),
            chat_type: chat_type.to_owned(),
            user_id: Some(user.id.to_string()),
            user_name: Some(nick.unwrap_or_else(|| user.name()).to_owned()),
            thread_id: (chat_type == "thread").then_some(id),
            chat_topic: topic.filter(|topic| !topic.trim().is_empty()).cloned(),
            scope_id: guild.clone(),
            guild_id: guild,
            parent_chat_id: channel
                .parent_id
                .filter(|_| chat_type == "thread")
                .map(|id| id.to_string()),
            message_id: Some(message.to_string()),
            ..MessageSource::default()
        }
    }
}

/// The text without our name, if any.
pub(super) fn text(message: &DiscordMessage, me: Snowflake) -> String {
    let mut parts = vec![without_mention(&message.content, me)];
    for snapshot in &message.forwarded {
        let forwarded = snapshot.message.content.trim();
        if !forwarded.is_empty() {
            parts.push(format!("[forwarded]\n{forwarded}"));
        }
    }
    for sticker in &message.sticker_items {
        parts.push(format!("[sticker: {}]", sticker.name));
    }
    parts.retain(|part| !part.is_empty());
    parts.join("\n\n")
}

/// The files of a message: its own, forwarded ones, and those of the message that it answers.
pub(super) fn media(message: &DiscordMessage, me: Snowflake) -> Vec<MediaRef> {
    let forwarded = (message.forwarded.iter()).flat_map(|one| &one.message.attachments);
    let answered = message.answers.iter();
    let answered = answered
        .filter(|other| other.author.id != me)
        .flat_map(|other| &other.attachments);
    (message.attachments.iter())
        .chain(forwarded)
        .chain(answered)
        .filter(|file| !file.url.is_empty())
        .map(file)
        .collect()
}

fn file(file: &Attachment) -> MediaRef {
    let mime = file.content_type.as_deref().unwrap_or_default();
    let kind = if file.waveform.is_some() {
        MediaKind::Voice
    } else {
        MediaKind::of_mime(mime)
    };
    MediaRef {
        kind,
        id: file.url.clone(),
        name: Some(file.filename.clone()).filter(|name| !name.is_empty()),
        mime: Some(mime.to_owned()).filter(|mime| !mime.is_empty()),
        bytes: Some(file.size),
    }
}

/// The message that this one replies to.
pub(super) fn reply_to(message: &DiscordMessage, me: Snowflake) -> Option<ReplyTo> {
    let reference = message.refers.as_ref()?;
    if reference.kind != 0 {
        return None;
    }
    let other = message.answers.as_deref();
    Some(ReplyTo {
        message_id: reference.message_id?.to_string(),
        text: other
            .map(|other| other.content.clone())
            .filter(|text| !text.is_empty()),
        own: other.is_some_and(|other| other.author.id == me),
    })
}

/// A command or a press. `None`: neither.
pub(super) fn interaction(
    from: &DiscordInteraction,
    source: MessageSource,
    native: &Value,
) -> Option<IncomingMessage> {
    let (text, pressed) = match from.kind {
        2 => {
            let name = from.data.name.as_deref()?;
            let mut words = vec![format!("/{name}")];
            arguments(&from.data.options, &mut words);
            (words.join(" "), None)
        }
        3 => {
            let data = from.data.custom_id.clone()?;
            let message = from.message.as_ref();
            let buttons = message.iter().flat_map(|message| &message.components);
            let label = buttons
                .flat_map(|row| &row.components)
                .find(|button| button.custom_id.as_ref() == Some(&data))
                .and_then(|button| button.label.clone());
            let pressed = ButtonPress {
                data,
                message_id: message.map(|message| message.id.to_string()),
            };
            (label.unwrap_or_default(), Some(pressed))
        }
        _ => return None,
    };
    let mut native = native.clone();
    native["interaction"] = json!({
        "id": from.id.to_string(), "token": from.token,
        "application_id": from.application_id.to_string(),
    });
    Some(IncomingMessage {
        account: String::new(),
        message_id: from.id.to_string(),
        source,
        text,
        media: Vec::new(),
        reply_to: None,
        pressed,
        context: None,
        sent_at: from.id.epoch_seconds(),
        native,
    })
}

fn arguments(options: &[super::wire::CommandOption], words: &mut Vec<String>) {
    for option in options {
        match &option.value {
            // A command below the command.
            Value::Null => words.push(option.name.clone()),
            Value::String(text) => words.push(text.trim().to_owned()),
            other => words.push(other.to_string()),
        }
        arguments(&option.options, words);
    }
}

/// Earlier messages as context for the model, oldest first, limited. `newest_first` ends at our
/// last message.
pub(super) fn context(
    newest_first: &[DiscordMessage],
    me: Snowflake,
    bots: bool,
) -> Option<String> {
    const MAX_LINE_CHARS: usize = 500;
    const MAX_QUOTED_CHARS: usize = 8000;
    let mut lines = Vec::new();
    let mut length = 0;
    for message in newest_first {
        if message.author.id == me {
            break;
        }
        if !message.is_talk() || (message.author.bot && !bots) {
            continue;
        }
        let mut message_text = text(message, me);
        if message_text.is_empty() && !message.attachments.is_empty() {
            "(a file)".clone_into(&mut message_text);
        }
        if message_text.is_empty() {
            continue;
        }
        let short: String = message_text.chars().take(MAX_LINE_CHARS).collect();
        let name: String = message.author.name().chars().take(64).collect();
        let line = format!("[{}] {short}", name.replace(['[', ']', '\n'], " "));
        length += line.len();
        if length > MAX_QUOTED_CHARS {
            break;
        }
        lines.push(line);
    }
    if lines.is_empty() {
        return None;
    }
    lines.push("[said here before]".to_owned());
    lines.reverse();
    Some(lines.join("\n"))
}

/// The name of a thread created for a message.
pub(super) fn thread_name(text: &str) -> String {
    let line = text.lines().map(str::trim).find(|line| !line.is_empty());
    hermes_core::text::shorten(line.unwrap_or("Conversation"), 80)
}

#[cfg(test)]
mod tests {
    use pretty_assertions::assert_eq;

    use super::*;

    const ME: Snowflake = Snowflake(1);

    fn message(value: Value) -> DiscordMessage {
        serde_json::from_value(value).unwrap()
    }

    #[test]
    fn a_thread_is_its_own_chat() {
        let channel = DiscordChannel {
            id: Snowflake(8),
            kind: 11,
            parent_id: Some(Snowflake(7)),
            name: Some("aside".to_owned()),
            ..DiscordChannel::default()
        };
        let parent = DiscordChannel {
            id: Snowflake(7),
            name: Some("general".to_owned()),
            topic: Some("all".to_owned()),
            ..DiscordChannel::default()
        };
        let place = MessageLocation {
            channel: &channel,
            parent: Some(&parent),
            guild: Some(Snowflake(3)),
            guild_name: Some("Workshop".to_owned()),
        };
        let user = DiscordUser {
            id: Snowflake(2),
            username: "ann".to_owned(),
            global_name: Some("Ann".to_owned()),
            ..DiscordUser::default()
        };
        let source = place.source(&user, None, Snowflake(9));
        assert_eq!(source.chat_type, "thread");
        assert_eq!(
            source.chat_name.as_deref(),
            Some("Workshop / #general / aside")
        );
        assert_eq!(
            (source.chat_id.as_str(), source.thread_id.as_deref()),
            ("8", Some("8"))
        );
        assert_eq!(source.parent_chat_id.as_deref(), Some("7"));
        assert_eq!(source.chat_topic.as_deref(), Some("all"));
        assert_eq!(source.user_name.as_deref(), Some("Ann"));
        let direct = MessageLocation {
            channel: &DiscordChannel {
                kind: 1,
                ..DiscordChannel::default()
            },
            parent: None,
            guild: None,
            guild_name: None,
        };
        assert_eq!(direct.source(&user, None, Snowflake(9)).chat_type, "dm");
    }

    #[test]
    fn files_and_answers_are_told() {
        let message_text = message(json!({
            "id": "9", "channel_id": "8", "author": {"id": "2"}, "content": "<@1> see",
            "type": 19, "message_reference": {"message_id": "5"},
            "referenced_message": {"id": "5", "channel_id": "8", "author": {"id": "1"},
                "content": "what?", "attachments": [{"id": "1", "url": "https://x/mine"}]},
            "attachments": [
                {"id": "2", "filename": "a.png", "size": 3, "url": "https://x/a",
                    "content_type": "image/png"},
                {"id": "3", "url": "https://x/v", "content_type": "audio/ogg", "waveform": "AA"},
            ],
            "sticker_items": [{"id": "4", "name": "wave"}],
        }));
        assert_eq!(text(&message_text, ME), "see\n\n[sticker: wave]");
        let kinds: Vec<MediaKind> = media(&message_text, ME)
            .iter()
            .map(|file| file.kind)
            .collect();
        assert_eq!(kinds, [MediaKind::Image, MediaKind::Voice]);
        let reply = reply_to(&message_text, ME).unwrap();
        assert!(reply.own && reply.text.as_deref() == Some("what?"));
    }

    #[test]
    fn a_command_is_a_line() {
        let used: DiscordInteraction = serde_json::from_value(json!({
            "id": "9", "application_id": "1", "type": 2, "token": "t",
            "data": {"name": "model", "options": [{"name": "args", "value": " fast "}]},
        }))
        .unwrap();
        let read = interaction(&used, MessageSource::default(), &json!({})).unwrap();
        assert_eq!(read.text, "/model fast");
        assert_eq!(read.native["interaction"]["token"], "t");
    }

    #[test]
    fn context_ends_at_our_last_word() {
        let message_text = |id: u64, author: u64, content: &str| {
            message(json!({
                "id": id, "channel_id": "8", "content": content,
                "author": {"id": author, "username": format!("u{author}"), "bot": author == 4},
            }))
        };
        let before = [
            message_text(9, 2, "three"),
            message_text(8, 4, "beep"),
            message_text(7, 3, "two"),
            message_text(6, 1, "ours"),
            message_text(5, 2, "one"),
        ];
        assert_eq!(
            context(&before, ME, false).as_deref(),
            Some("[said here before]\n[u3] two\n[u2] three")
        );
        assert_eq!(context(&before[3..], ME, true), None);
    }

    #[test]
    fn threads_are_named_after_what_was_asked() {
        assert_eq!(thread_name("\n  fix the roof \nplease"), "fix the roof");
        assert_eq!(thread_name(""), "Conversation");
        assert_eq!(thread_name(&"x".repeat(200)).chars().count(), 81);
    }
}

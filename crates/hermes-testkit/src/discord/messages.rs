//! Channels: messages, reactions, threads, typing.

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::multipart::MultipartPart;
use super::rest::{RestAnswer, RestRequest, error, invalid};
use super::state::{BOT, FakeDiscordState, FakeMessage, GUILD, now, snowflake};

/// The longest text a bot may send.
const TEXT: usize = 2000;
/// How long a nonce is remembered.
const NONCES: Duration = Duration::from_mins(3);
/// The largest upload.
const FILE: usize = 10 * 1024 * 1024;

/// What a new message is made from.
#[derive(Default)]
pub(super) struct MessageDraft {
    pub author: u64,
    pub channel: u64,
    pub body: Value,
    pub files: Vec<MultipartPart>,
    /// Where files are fetched from.
    pub base: String,
    pub interaction: Option<u64>,
}

pub(super) fn of_channel(
    world: &mut FakeDiscordState,
    request: &RestRequest<'_>,
    channel: u64,
    path: &[&str],
) -> RestAnswer {
    let locked = world.channels[&channel].locked;
    match (request.method, path) {
        ("GET", []) => RestAnswer::Json(200, world.channel_value(channel)),
        _ if locked => error(403, 50001, "Missing Access"),
        ("POST", ["typing"]) => RestAnswer::Empty,
        ("GET", ["messages"]) => history(world, request, channel),
        ("POST", ["messages"]) => {
            let draft = MessageDraft {
                author: BOT,
                channel,
                body: request.body.clone(),
                files: request.files.clone(),
                base: request.base.clone(),
                interaction: None,
            };
            match post(world, &draft) {
                Ok(id) => RestAnswer::Json(200, world.messages[&id].value.clone()),
                Err(answer) => answer,
            }
        }
        ("POST", ["threads"]) => {
            let id = world.id();
            thread(world, request, channel, id)
        }
        (_, ["messages", message, rest @ ..]) => {
            let there = |id: &u64| world.messages.get(id).is_some_and(|m| m.channel == channel);
            match message.parse().ok().filter(there) {
                Some(id) => of_message(world, request, id, rest),
                None => error(404, 10008, "Unknown Message"),
            }
        }
        _ => error(404, 0, "404: Not Found"),
    }
}

fn of_message(
    world: &mut FakeDiscordState,
    request: &RestRequest<'_>,
    id: u64,
    path: &[&str],
) -> RestAnswer {
    let own = world.messages[&id].author == BOT;
    match (request.method, path) {
        ("GET", []) => RestAnswer::Json(200, world.messages[&id].value.clone()),
        ("PATCH", []) if !own => {
            error(403, 50005, "Cannot edit a message authored by another user")
        }
        ("PATCH", []) => edit(world, id, &request.body),
        ("DELETE", []) => {
            delete(world, id);
            RestAnswer::Empty
        }
        ("PUT" | "DELETE", ["reactions", emoji, "@me"]) => {
            react(world, id, &decoded(emoji), request.method == "PUT")
        }
        ("POST", ["threads"]) => {
            let channel = world.messages[&id].channel;
            if world.channels.contains_key(&id) {
                return error(
                    400,
                    160_004,
                    "A thread has already been created for this message",
                );
            }
            thread(world, request, channel, id)
        }
        _ => error(404, 0, "404: Not Found"),
    }
}

fn history(world: &FakeDiscordState, request: &RestRequest<'_>, channel: u64) -> RestAnswer {
    let limit = request.number("limit").unwrap_or(50);
    if !(1..=100).contains(&limit) {
        return invalid(
            "limit",
            "NUMBER_TYPE_MAX",
            "int value should be between 1 and 100.",
        );
    }
    let (after, before) = (request.number("after"), request.number("before"));
    let here = world
        .messages
        .iter()
        .filter(|(_, message)| message.channel == channel && !message.ephemeral)
        .filter(|(id, _)| after.is_none_or(|after| **id > after))
        .filter(|(id, _)| before.is_none_or(|before| **id < before))
        .map(|(_, message)| message.value.clone());
    let mut found: Vec<Value> = if after.is_some() {
        here.take(limit as usize).collect()
    } else {
        let all: Vec<Value> = here.collect();
        let from = all.len().saturating_sub(limit as usize);
        all[from..].to_vec()
    };
    // Newest first, whatever was asked.
    found.reverse();
    RestAnswer::Json(200, json!(found))
}

/// Makes a message and tells everybody. `Err`: what is wrong with it.
pub(super) fn post(world: &mut FakeDiscordState, draft: &MessageDraft) -> Result<u64, RestAnswer> {
    let body = &draft.body;
    checked(body, &draft.files)?;
    let nonce = body["nonce"]
        .as_str()
        .map(str::to_owned)
        .or_else(|| body["nonce"].as_i64().map(|number| number.to_string()));
    if nonce.as_ref().is_some_and(|nonce| nonce.len() > 25) {
        return Err(invalid(
            "nonce",
            "NONCE_TYPE_TOO_LONG",
            "Nonce must be 25 or fewer in length.",
        ));
    }
    let enforced = nonce
        .clone()
        .filter(|_| body["enforce_nonce"] == json!(true));
    if let Some(known) = enforced
        .as_ref()
        .and_then(|nonce| repeated(world, draft, nonce))
    {
        return Ok(known);
    }
    let reference = reference(world, draft)?;
    let id = world.id();
    let attachments = keep(world, draft);
    let ephemeral = body["flags"].as_u64().is_some_and(|flags| flags & 64 != 0);
    let content = body["content"].as_str().unwrap_or_default();
    let direct = world.channels[&draft.channel].recipient.is_some();
    let mut value = json!({
        "id": id.to_string(), "type": if reference.is_some() { 19 } else { 0 },
        "channel_id": draft.channel.to_string(), "author": world.user_value(draft.author),
        "content": content, "timestamp": now(), "edited_timestamp": null, "tts": false,
        "mention_everyone": false, "mentions": mentions(world, content), "mention_roles": [],
        "attachments": attachments, "embeds": body["embeds"].as_array().cloned().unwrap_or_default(),
        "pinned": false, "flags": body["flags"].as_u64().unwrap_or(0),
        "components": body["components"].as_array().cloned().unwrap_or_default(),
    });
    if let Some(nonce) = &nonce {
        value["nonce"] = json!(nonce);
    }
    if let Some(other) = reference {
        value["message_reference"] = json!({
            "type": 0, "channel_id": draft.channel.to_string(), "message_id": other.to_string(),
            "guild_id": (!direct).then(|| GUILD.to_string()),
        });
        value["referenced_message"] = world.messages[&other].value.clone();
    }
    let message = FakeMessage {
        value: value.clone(),
        author: draft.author,
        channel: draft.channel,
        nonce: enforced.map(|nonce| (nonce, Instant::now())),
        ephemeral,
        interaction: draft.interaction,
    };
    world.messages.insert(id, message);
    if !ephemeral {
        announce(world, id);
    }
    Ok(id)
}

/// `MESSAGE_CREATE`; again for a duplicate.
pub(super) fn announce(world: &mut FakeDiscordState, id: u64) {
    let event = event_value(world, id);
    world.dispatch("MESSAGE_CREATE", &event);
}

fn event_value(world: &FakeDiscordState, id: u64) -> Value {
    let message = &world.messages[&id];
    let mut event = message.value.clone();
    let channel = &world.channels[&message.channel];
    event["channel_type"] = json!(channel.kind);
    if channel.recipient.is_none() {
        event["guild_id"] = json!(GUILD.to_string());
        event["member"] = world.member_value(message.author);
    }
    event
}

fn checked(body: &Value, files: &[MultipartPart]) -> Result<(), RestAnswer> {
    let text = body["content"].as_str().unwrap_or_default();
    if text.chars().count() > TEXT {
        let message = "Must be 2000 or fewer in length.";
        return Err(invalid("content", "BASE_TYPE_MAX_LENGTH", message));
    }
    let none = |field: &str| body[field].as_array().is_none_or(Vec::is_empty);
    if text.trim().is_empty() && files.is_empty() && none("embeds") && none("components") {
        return Err(error(400, 50006, "Cannot send an empty message"));
    }
    if files.iter().any(|file| file.bytes.len() > FILE) {
        return Err(error(413, 40005, "Request entity too large"));
    }
    let rows = body["components"].as_array().cloned().unwrap_or_default();
    let bad = rows.len() > 5
        || rows.iter().any(|row| {
            let items = row["components"].as_array().cloned().unwrap_or_default();
            row["type"] != json!(1)
                || !(1..=5).contains(&items.len())
                || items.iter().any(|item| !is_button(item))
        });
    if bad {
        let message = "The specified component is not valid here.";
        return Err(invalid("components", "BASE_TYPE_BAD", message));
    }
    Ok(())
}

fn is_button(item: &Value) -> bool {
    let length = |field: &str| item[field].as_str().map_or(0, |text| text.chars().count());
    item["type"] == json!(2)
        && item["style"]
            .as_u64()
            .is_some_and(|style| (1..=4).contains(&style))
        && (1..=100).contains(&length("custom_id"))
        && (1..=80).contains(&length("label"))
}

fn repeated(world: &FakeDiscordState, draft: &MessageDraft, nonce: &str) -> Option<u64> {
    let found = world.messages.iter().find(|(_, message)| {
        let known = message.nonce.as_ref();
        message.author == draft.author
            && message.channel == draft.channel
            && known.is_some_and(|(one, at)| one == nonce && at.elapsed() < NONCES)
    });
    found.map(|(id, _)| *id)
}

fn reference(world: &FakeDiscordState, draft: &MessageDraft) -> Result<Option<u64>, RestAnswer> {
    let given = &draft.body["message_reference"];
    if given["message_id"].is_null() {
        return Ok(None);
    }
    let there = |id: &u64| {
        world
            .messages
            .get(id)
            .is_some_and(|one| one.channel == draft.channel)
    };
    match snowflake(&given["message_id"]).filter(there) {
        Some(id) => Ok(Some(id)),
        None if given["fail_if_not_exists"] == json!(false) => Ok(None),
        None => Err(invalid(
            "message_reference",
            "MESSAGE_REFERENCE_UNKNOWN_MESSAGE",
            "Unknown message",
        )),
    }
}

fn mentions(world: &FakeDiscordState, content: &str) -> Vec<Value> {
    let named =
        |id: &&u64| content.contains(&format!("<@{id}>")) || content.contains(&format!("<@!{id}>"));
    world
        .users
        .keys()
        .filter(named)
        .map(|id| world.user_value(*id))
        .collect()
}

fn keep(world: &mut FakeDiscordState, draft: &MessageDraft) -> Vec<Value> {
    let mut kept = Vec::new();
    for file in &draft.files {
        let id = world.id();
        let name = file.file.clone().unwrap_or_else(|| "unknown".to_owned());
        let path = format!("/attachments/{}/{id}/{name}", draft.channel);
        let url = format!("{}{path}", draft.base);
        kept.push(json!({
            "id": id.to_string(), "filename": name, "size": file.bytes.len(), "url": url,
            "proxy_url": url, "content_type": file.kind,
        }));
        world.files.insert(path, file.bytes.clone());
    }
    kept
}

pub(super) fn edit(world: &mut FakeDiscordState, id: u64, body: &Value) -> RestAnswer {
    if body["content"]
        .as_str()
        .is_some_and(|text| text.chars().count() > TEXT)
    {
        return invalid(
            "content",
            "BASE_TYPE_MAX_LENGTH",
            "Must be 2000 or fewer in length.",
        );
    }
    let Some(message) = world.messages.get_mut(&id) else {
        return error(404, 10008, "Unknown Message");
    };
    for field in ["content", "components", "embeds"] {
        if let Some(value) = body.get(field) {
            message.value[field] = if value.is_null() {
                json!([])
            } else {
                value.clone()
            };
        }
    }
    message.value["edited_timestamp"] = json!(now());
    let value = message.value.clone();
    let event = event_value(world, id);
    world.dispatch("MESSAGE_UPDATE", &event);
    RestAnswer::Json(200, value)
}

pub(super) fn delete(world: &mut FakeDiscordState, id: u64) {
    let Some(message) = world.messages.remove(&id) else {
        return;
    };
    let guild = world.channels[&message.channel].recipient.is_none();
    let mut event = json!({"id": id.to_string(), "channel_id": message.channel.to_string()});
    if guild {
        event["guild_id"] = json!(GUILD.to_string());
    }
    world.dispatch("MESSAGE_DELETE", &event);
}

fn react(world: &mut FakeDiscordState, id: u64, emoji: &str, on: bool) -> RestAnswer {
    let Some(message) = world.messages.get_mut(&id) else {
        return error(404, 10008, "Unknown Message");
    };
    let mut all = message.value["reactions"]
        .as_array()
        .cloned()
        .unwrap_or_default();
    all.retain(|one| one["emoji"]["name"] != json!(emoji));
    if on {
        all.push(json!({
            "emoji": {"id": null, "name": emoji}, "count": 1, "me": true, "me_burst": false,
            "count_details": {"burst": 0, "normal": 1}, "burst_colors": [],
        }));
    }
    message.value["reactions"] = json!(all);
    RestAnswer::Empty
}

fn thread(
    world: &mut FakeDiscordState,
    request: &RestRequest<'_>,
    parent: u64,
    id: u64,
) -> RestAnswer {
    let name = request.body["name"].as_str().unwrap_or_default();
    if !(1..=100).contains(&name.chars().count()) {
        return invalid(
            "name",
            "BASE_TYPE_BAD_LENGTH",
            "Must be between 1 and 100 in length.",
        );
    }
    if world.channels[&parent].kind != 0 {
        return error(400, 50024, "Cannot execute action on this channel type");
    }
    world.add_channel(id, 11, name, Some(parent));
    RestAnswer::Json(201, world.channel_value(id))
}

fn decoded(text: &str) -> String {
    let mut bytes = Vec::new();
    let mut rest = text.as_bytes();
    while let Some((first, after)) = rest.split_first() {
        let hex = (*first == b'%')
            .then(|| after.get(..2))
            .flatten()
            .and_then(|hex| u8::from_str_radix(std::str::from_utf8(hex).ok()?, 16).ok());
        bytes.push(hex.unwrap_or(*first));
        rest = if hex.is_some() { &after[2..] } else { after };
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

//! Commands of the application, and what comes of people using them: interactions, their answers
//! and what follows.

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::messages::{MessageDraft, delete, edit, post};
use super::rest::{RestAnswer, RestRequest, error, invalid};
use super::state::{BOT, FakeDiscordState, FakeInteraction, GUILD};

/// How long an interaction waits for its first answer.
const PATIENCE: Duration = Duration::from_secs(3);

pub(super) fn registered(
    world: &mut FakeDiscordState,
    request: &RestRequest<'_>,
    path: &[&str],
) -> RestAnswer {
    match (request.method, path) {
        ("GET", []) => RestAnswer::Json(200, json!(world.commands)),
        ("PUT", []) => {
            let wanted = request.body.as_array().cloned().unwrap_or_default();
            if wanted.len() > 100 {
                return error(
                    400,
                    30032,
                    "Maximum number of application commands reached (100)",
                );
            }
            if let Some(bad) = wanted.iter().find(|one| !is_command(one)) {
                return invalid("name", "APPLICATION_COMMAND_INVALID_NAME", &bad.to_string());
            }
            world.commands = Vec::new();
            for command in wanted {
                let value = completed(world, command);
                world.commands.push(value);
            }
            RestAnswer::Json(200, json!(world.commands))
        }
        ("POST", []) => {
            if !is_command(&request.body) {
                return invalid("name", "APPLICATION_COMMAND_INVALID_NAME", "invalid");
            }
            let name = request.body["name"].clone();
            world.commands.retain(|one| one["name"] != name);
            let value = completed(world, request.body.clone());
            world.commands.push(value.clone());
            RestAnswer::Json(201, value)
        }
        ("PATCH", [id]) => {
            let found = world.commands.iter_mut().find(|one| one["id"] == json!(id));
            match (found, request.body.as_object()) {
                (Some(command), Some(changes)) => {
                    for (name, value) in changes {
                        command[name] = value.clone();
                    }
                    RestAnswer::Json(200, command.clone())
                }
                _ => error(404, 10063, "Unknown application command"),
            }
        }
        ("DELETE", [id]) => {
            world.commands.retain(|one| one["id"] != json!(id));
            RestAnswer::Empty
        }
        _ => error(404, 0, "404: Not Found"),
    }
}

fn is_command(command: &Value) -> bool {
    let length = |value: &Value| value.as_str().map_or(0, |text| text.chars().count());
    let name = |value: &Value| {
        let text = value.as_str().unwrap_or_default();
        (1..=32).contains(&text.len())
            && text
                .chars()
                .all(|ch| ch.is_ascii_lowercase() || ch.is_ascii_digit() || "-_".contains(ch))
    };
    let options = command["options"].as_array().cloned().unwrap_or_default();
    name(&command["name"])
        && (1..=100).contains(&length(&command["description"]))
        && options.len() <= 25
        && options.iter().all(|option| {
            name(&option["name"]) && (1..=100).contains(&length(&option["description"]))
        })
}

/// As Discord gives a command back: with its id and every default.
fn completed(world: &mut FakeDiscordState, command: Value) -> Value {
    let mut value = json!({
        "id": world.id().to_string(), "application_id": BOT.to_string(),
        "version": world.id().to_string(), "default_member_permissions": null, "type": 1,
        "name": "", "name_localizations": null, "description": "",
        "description_localizations": null, "dm_permission": true, "contexts": null,
        "integration_types": [0], "nsfw": false,
    });
    if let (Some(fields), Value::Object(given)) = (value.as_object_mut(), command) {
        fields.extend(given);
    }
    value
}

/// Somebody typed a command.
pub(super) fn slash(
    world: &mut FakeDiscordState,
    channel: u64,
    user: u64,
    name: &str,
    options: &Value,
) -> u64 {
    let known = world.commands.iter().find(|one| one["name"] == json!(name));
    let command = known.map_or(json!("0"), |one| one["id"].clone());
    let data = json!({"id": command, "name": name, "type": 1, "options": options});
    create(world, 2, channel, user, &data, None)
}

/// Somebody pressed a button.
pub(super) fn press(world: &mut FakeDiscordState, message: u64, user: u64, custom_id: &str) -> u64 {
    let channel = world.messages[&message].channel;
    let data = json!({"component_type": 2, "custom_id": custom_id, "id": 2});
    create(world, 3, channel, user, &data, Some(message))
}

fn create(
    world: &mut FakeDiscordState,
    kind: u8,
    channel: u64,
    user: u64,
    data: &Value,
    message: Option<u64>,
) -> u64 {
    let id = world.id();
    let token = format!("interaction-{id}");
    let mut event = json!({
        "id": id.to_string(), "application_id": BOT.to_string(), "type": kind, "data": data,
        "channel_id": channel.to_string(), "channel": world.channel_value(channel),
        "token": token, "version": 1, "locale": "en-US", "app_permissions": "2248473465835073",
        "entitlements": [], "authorizing_integration_owners": {}, "context": 0,
        "attachment_size_limit": 10_485_760,
    });
    if world.channels[&channel].recipient.is_some() {
        event["user"] = world.user_value(user);
        event["context"] = json!(1);
    } else {
        let mut member = world.member_value(user);
        member["user"] = world.user_value(user);
        member["permissions"] = json!("2248473465835073");
        event["member"] = member;
        event["guild_id"] = json!(GUILD.to_string());
        event["guild"] = json!({"id": GUILD.to_string(), "locale": "en-US", "features": []});
    }
    if let Some(message) = message {
        event["message"] = world.messages[&message].value.clone();
    }
    let interaction = FakeInteraction {
        token,
        asked: Instant::now(),
        kind,
        channel,
        answered: None,
        original: message,
    };
    world.interactions.insert(id, interaction);
    world.dispatch("INTERACTION_CREATE", &event);
    id
}

pub(super) fn callback(
    world: &mut FakeDiscordState,
    request: &RestRequest<'_>,
    id: &str,
    token: &str,
) -> RestAnswer {
    let id: u64 = id.parse().unwrap_or(0);
    let known = world.interactions.get_mut(&id);
    let Some(interaction) = known.filter(|one| one.token == token) else {
        return error(404, 10062, "Unknown interaction");
    };
    if interaction.answered.is_some() {
        return error(400, 40060, "Interaction has already been acknowledged.");
    }
    if interaction.asked.elapsed() > PATIENCE {
        return error(404, 10062, "Unknown interaction");
    }
    let kind = request.body["type"].as_u64().unwrap_or(0);
    let fits = match interaction.kind {
        2 => matches!(kind, 4 | 5 | 9),
        _ => matches!(kind, 4..=7 | 9),
    };
    if !fits {
        return invalid(
            "type",
            "BASE_TYPE_CHOICES",
            "not valid for this interaction",
        );
    }
    interaction.answered = Some(kind);
    let (channel, original) = (interaction.channel, interaction.original);
    let data = request.body["data"].clone();
    let made = match kind {
        4 => match post(world, &answered(channel, id, data)) {
            Ok(message) => {
                if let Some(one) = world.interactions.get_mut(&id) {
                    one.original = Some(message);
                }
                Some(message)
            }
            Err(refused) => {
                if let Some(one) = world.interactions.get_mut(&id) {
                    one.answered = None;
                }
                return refused;
            }
        },
        7 => {
            if let Some(message) = original {
                edit(world, message, &data);
            }
            original
        }
        _ => None,
    };
    if !matches!(request.query("with_response"), Some("true" | "1")) {
        return RestAnswer::Empty;
    }
    let message = made.map(|id| world.messages[&id].value.clone());
    let mut resource = json!({"type": kind});
    if let Some(message) = &message {
        resource["message"] = message.clone();
    }
    RestAnswer::Json(
        200,
        json!({
            "interaction": {
                "id": id.to_string(), "type": 2, "response_message_loading": kind == 5,
                "response_message_ephemeral": false,
                "response_message_id": made.map(|id| id.to_string()),
            },
            "resource": resource,
        }),
    )
}

fn answered(channel: u64, interaction: u64, body: Value) -> MessageDraft {
    MessageDraft {
        author: BOT,
        channel,
        body,
        interaction: Some(interaction),
        ..MessageDraft::default()
    }
}

pub(super) fn followup(
    world: &mut FakeDiscordState,
    request: &RestRequest<'_>,
    token: &str,
    path: &[&str],
) -> RestAnswer {
    let known = world
        .interactions
        .iter()
        .find(|(_, one)| one.token == token && one.answered.is_some())
        .map(|(id, one)| (*id, one.channel, one.original));
    let Some((id, channel, original)) = known else {
        return error(404, 10015, "Unknown Webhook");
    };
    match (request.method, path) {
        ("POST", []) | ("PATCH", ["messages", "@original"]) if original.is_none() => {
            let mut draft = answered(channel, id, request.body.clone());
            draft.files.clone_from(&request.files);
            draft.base.clone_from(&request.base);
            match post(world, &draft) {
                Ok(message) => {
                    if let Some(one) = world.interactions.get_mut(&id) {
                        one.original = Some(message);
                    }
                    RestAnswer::Json(200, world.messages[&message].value.clone())
                }
                Err(refused) => refused,
            }
        }
        ("POST", []) => match post(world, &answered(channel, id, request.body.clone())) {
            Ok(message) => RestAnswer::Json(200, world.messages[&message].value.clone()),
            Err(refused) => refused,
        },
        ("PATCH" | "GET" | "DELETE", ["messages", which]) => {
            let message = match *which {
                "@original" => original,
                other => other.parse().ok(),
            };
            let Some(message) = message.filter(|id| world.messages.contains_key(id)) else {
                return error(404, 10008, "Unknown Message");
            };
            match request.method {
                "GET" => RestAnswer::Json(200, world.messages[&message].value.clone()),
                "PATCH" => edit(world, message, &request.body),
                _ => {
                    delete(world, message);
                    RestAnswer::Empty
                }
            }
        }
        _ => error(404, 0, "404: Not Found"),
    }
}

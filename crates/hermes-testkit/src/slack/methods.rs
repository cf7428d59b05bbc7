//! The methods of the Web API.

use serde_json::{Value, json};

use super::APP_TOKEN;
use super::files::{number, structured};
use super::state::FakeSlackState;

/// What a method answers: fields beside `ok`, or the name of an error.
pub(super) type MethodAnswer = Result<Value, String>;

pub(super) fn refuse(error: &str) -> MethodAnswer {
    Err(error.to_owned())
}

/// The longest text that Slack takes; it cuts longer ones, which a test must see.
const MAX_TEXT: usize = 40_000;

impl FakeSlackState {
    pub(super) fn call(&mut self, method: &str, token: &str, args: &Value) -> MethodAnswer {
        if let Some(error) = self.revoked.get(token) {
            return Err(error.clone());
        }
        if method == "apps.connections.open" {
            return self.open(token);
        }
        let Some(team) = self.team_of(token).map(|team| team.id.clone()) else {
            return refuse(if token.is_empty() {
                "not_authed"
            } else {
                "invalid_auth"
            });
        };
        match method {
            "auth.test" => Ok(self.who_am_i(&team)),
            "api.test" => Ok(json!({"args": args})),
            "users.info" => self.user(&team, args),
            "users.conversations" | "conversations.list" => Ok(self.conversations(&team, args)),
            "files.getUploadURLExternal" => self.upload_url(&team, args),
            "files.completeUploadExternal" => self.complete(&team, args),
            "files.info" => self.file(&team, args),
            "conversations.open" => self.open_dm(&team, args),
            _ => self.call_in_channel(method, &team, args),
        }
    }

    fn call_in_channel(&mut self, method: &str, team: &str, args: &Value) -> MethodAnswer {
        const METHODS: [&str; 10] = [
            "chat.postMessage",
            "chat.update",
            "chat.delete",
            "chat.postEphemeral",
            "conversations.info",
            "conversations.history",
            "conversations.replies",
            "reactions.add",
            "reactions.remove",
            "assistant.threads.setStatus",
        ];
        if !METHODS.contains(&method) {
            return refuse("unknown_method");
        }
        let channel = args["channel"].as_str().or(args["channel_id"].as_str());
        let channel = channel.unwrap_or_default();
        if self.channel(team, channel).is_none() {
            return refuse("channel_not_found");
        }
        match method {
            "chat.postMessage" => self.post(team, channel, args),
            "chat.update" => self.update(team, channel, args),
            "chat.delete" => self.delete(team, channel, args),
            "chat.postEphemeral" => self.ephemeral(team, channel, args),
            "conversations.info" => Ok(json!({"channel": self.describe(team, channel)})),
            "conversations.history" => Ok(self.history(team, channel, args)),
            "conversations.replies" => self.replies(team, channel, args),
            "assistant.threads.setStatus" => self.status(team, channel, args),
            method => self.reaction(team, channel, args, method == "reactions.add"),
        }
    }

    fn open(&mut self, token: &str) -> MethodAnswer {
        if token != APP_TOKEN {
            return refuse(if token.starts_with("xoxb-") {
                "not_allowed_token_type"
            } else {
                "invalid_auth"
            });
        }
        let ticket = format!("ticket-{}", self.number());
        self.tickets.insert(ticket.clone());
        let url = format!("ws://{}/link/?ticket={ticket}", self.links);
        Ok(json!({"url": url}))
    }

    fn who_am_i(&mut self, team: &str) -> Value {
        let team = self.team(team);
        json!({
            "url": "https://fake.slack.test/", "team": team.id, "user": "hermes",
            "team_id": team.id, "user_id": team.bot_user, "bot_id": team.bot_id,
            "is_enterprise_install": false,
        })
    }

    fn user(&mut self, team: &str, args: &Value) -> MethodAnswer {
        let id = args["user"].as_str().unwrap_or_default();
        match self.team(team).users.get(id) {
            None => refuse("user_not_found"),
            Some(name) => Ok(json!({"user": {
                "id": id, "team_id": team, "name": name, "deleted": false, "is_bot": false,
                "real_name": name,
                "profile": {"display_name": name, "real_name": name},
            }})),
        }
    }

    fn describe(&mut self, team: &str, id: &str) -> Value {
        let channel = self.team(team).channels.get(id);
        let kind = channel.map_or("channel", |channel| channel.kind.as_str());
        json!({
            "id": id, "name": id.to_ascii_lowercase(),
            "is_im": kind == "im", "is_mpim": kind == "mpim", "is_channel": kind == "channel",
            "is_group": kind == "group", "is_private": kind != "channel", "is_member": true,
            "is_archived": false,
        })
    }

    fn conversations(&mut self, team: &str, args: &Value) -> Value {
        let types = args["types"]
            .as_str()
            .unwrap_or("public_channel")
            .to_owned();
        let ids: Vec<String> = self
            .team(team)
            .channels
            .iter()
            .filter(|(_, channel)| {
                let name = match channel.kind.as_str() {
                    "channel" => "public_channel",
                    "group" => "private_channel",
                    other => other,
                };
                types.split(',').any(|one| one.trim() == name)
            })
            .map(|(id, _)| id.clone())
            .collect();
        let channels: Vec<Value> = ids.iter().map(|id| self.describe(team, id)).collect();
        json!({"channels": channels, "response_metadata": {"next_cursor": ""}})
    }

    fn open_dm(&mut self, team: &str, args: &Value) -> MethodAnswer {
        let user = args["users"].as_str().unwrap_or_default();
        if !self.team(team).users.contains_key(user) {
            return refuse("user_not_found");
        }
        let id = format!("D{user}");
        if self.channel(team, &id).is_none() {
            self.team(team).add_channel(&id, "im");
        }
        Ok(json!({"channel": {"id": id}}))
    }

    fn file(&mut self, team: &str, args: &Value) -> MethodAnswer {
        let id = args["file"].as_str().unwrap_or_default();
        match self.team(team).files.get(id) {
            Some((file, _)) => Ok(json!({"file": file})),
            None => refuse("file_not_found"),
        }
    }

    fn post(&mut self, team: &str, channel: &str, args: &Value) -> MethodAnswer {
        let text = args["text"].as_str().unwrap_or_default();
        let mut blocks = structured(&args["blocks"]);
        if text.is_empty() && !blocks.is_array() {
            return refuse("no_text");
        }
        if text.chars().count() > MAX_TEXT {
            return refuse("msg_too_long");
        }
        check_blocks(&blocks)?;
        name_blocks(&mut blocks, self.number());
        let ts = self.next_ts();
        let owner = self.team(team);
        let mut message = json!({
            "type": "message", "user": owner.bot_user, "bot_id": owner.bot_id, "app_id": "A1",
            "text": text, "team": team, "ts": ts,
        });
        if blocks.is_array() {
            message["blocks"] = blocks;
        }
        if let Some(thread) = args["thread_ts"].as_str() {
            message["thread_ts"] = json!(thread);
        }
        let metadata = structured(&args["metadata"]);
        if metadata.is_object() {
            message["metadata"] = metadata;
        }
        self.keep(team, channel, message.clone());
        self.announce(team, channel, &ts);
        Ok(json!({"channel": channel, "ts": ts, "message": message}))
    }

    fn update(&mut self, team: &str, channel: &str, args: &Value) -> MethodAnswer {
        let ts = args["ts"].as_str().unwrap_or_default();
        let text = args["text"].as_str().unwrap_or_default();
        let blocks = structured(&args["blocks"]);
        if text.chars().count() > MAX_TEXT {
            return refuse("msg_too_long");
        }
        check_blocks(&blocks)?;
        let metadata = structured(&args["metadata"]);
        let bot = self.team(team).bot_id.clone();
        let message = self.find(team, channel, ts);
        let Some(message) = message else {
            return refuse("message_not_found");
        };
        if message["bot_id"] != bot.as_str() {
            return refuse("cant_update_message");
        }
        message["text"] = json!(text);
        message["edited"] = json!({"user": message["user"], "ts": ts});
        if metadata.is_object() {
            message["metadata"] = metadata;
        }
        // Blocks stay unless new ones are given; an empty list removes them.
        match blocks.as_array() {
            Some(list) if list.is_empty() => {
                message
                    .as_object_mut()
                    .map(|fields| fields.remove("blocks"));
            }
            Some(_) => message["blocks"] = blocks,
            None => {}
        }
        let message = message.clone();
        let event = json!({
            "type": "message", "subtype": "message_changed", "hidden": true, "channel": channel,
            "message": message, "ts": self.next_ts(),
        });
        self.event(team, &event);
        Ok(json!({"channel": channel, "ts": ts, "text": text, "message": message}))
    }

    fn delete(&mut self, team: &str, channel: &str, args: &Value) -> MethodAnswer {
        let ts = args["ts"].as_str().unwrap_or_default().to_owned();
        let place = self.team(team).channels.get_mut(channel);
        let Some(place) = place else {
            return refuse("channel_not_found");
        };
        let before = place.messages.len();
        place
            .messages
            .retain(|message| message["ts"] != ts.as_str());
        if place.messages.len() == before {
            return refuse("message_not_found");
        }
        Ok(json!({"channel": channel, "ts": ts}))
    }

    fn ephemeral(&mut self, team: &str, channel: &str, args: &Value) -> MethodAnswer {
        let user = args["user"].as_str().unwrap_or_default();
        if !self.team(team).users.contains_key(user) {
            return refuse("user_not_in_channel");
        }
        let ts = self.next_ts();
        let message = json!({"user": user, "text": args["text"], "ts": ts});
        if let Some(place) = self.team(team).channels.get_mut(channel) {
            place.ephemerals.push(message);
        }
        Ok(json!({"message_ts": ts}))
    }

    fn status(&mut self, team: &str, channel: &str, args: &Value) -> MethodAnswer {
        if args["thread_ts"].as_str().is_none_or(str::is_empty) {
            return refuse("invalid_arguments");
        }
        let status = args["status"].as_str().unwrap_or_default().to_owned();
        if let Some(place) = self.team(team).channels.get_mut(channel) {
            place.statuses.push(status);
        }
        Ok(json!({}))
    }

    fn reaction(&mut self, team: &str, channel: &str, args: &Value, add: bool) -> MethodAnswer {
        let name = args["name"].as_str().unwrap_or_default();
        let ts = args["timestamp"].as_str().unwrap_or_default();
        let bot = self.team(team).bot_user.clone();
        let Some(message) = self.find(team, channel, ts) else {
            return refuse("message_not_found");
        };
        let mut reactions = message["reactions"].as_array().cloned().unwrap_or_default();
        let there = reactions.iter().position(|one| one["name"] == name);
        match (there, add) {
            (Some(_), true) => return refuse("already_reacted"),
            (None, false) => return refuse("no_reaction"),
            (None, true) => reactions.push(json!({"name": name, "users": [bot], "count": 1})),
            (Some(at), false) => drop(reactions.remove(at)),
        }
        message["reactions"] = json!(reactions);
        Ok(json!({}))
    }

    fn history(&mut self, team: &str, channel: &str, args: &Value) -> Value {
        let mut messages = self.visible(team, channel);
        // Replies are not in the history, unless they were sent to the conversation too.
        messages.retain(|one| {
            one.get("thread_ts")
                .is_none_or(|thread| *thread == one["ts"])
                || one["subtype"] == "thread_broadcast"
        });
        messages.reverse();
        page(messages, args)
    }

    fn replies(&mut self, team: &str, channel: &str, args: &Value) -> MethodAnswer {
        let ts = args["ts"].as_str().unwrap_or_default();
        let mut messages = self.visible(team, channel);
        messages.retain(|one| one["ts"] == ts || one["thread_ts"] == ts);
        if messages.is_empty() {
            return refuse("thread_not_found");
        }
        Ok(page(messages, args))
    }

    fn find(&mut self, team: &str, channel: &str, ts: &str) -> Option<&mut Value> {
        self.team(team).channels.get_mut(channel)?.message(ts)
    }
}

/// Buttons that Slack would refuse.
fn check_blocks(blocks: &Value) -> Result<(), String> {
    let list = blocks.as_array().map_or(&[][..], Vec::as_slice);
    let text = |value: &Value| {
        value["text"]
            .as_str()
            .map_or(0, |text| text.chars().count())
    };
    let bad = list.len() > 50
        || list.iter().any(|block| match block["type"].as_str() {
            Some("section") => !(1..=3000).contains(&text(&block["text"])),
            Some("actions") => {
                let buttons = block["elements"].as_array().map_or(&[][..], Vec::as_slice);
                !(1..=25).contains(&buttons.len())
                    || buttons.iter().any(|button| {
                        let value = button["value"].as_str().unwrap_or_default();
                        let label = text(&button["text"]);
                        !(1..=75).contains(&label) || value.len() > 2000
                    })
            }
            Some("context" | "divider" | "header" | "image" | "rich_text" | "markdown") => false,
            _ => true,
        });
    if bad {
        return Err("invalid_blocks".to_owned());
    }
    Ok(())
}

/// Blocks without an id get one, as Slack does.
fn name_blocks(blocks: &mut Value, number: u64) {
    for (index, block) in blocks.as_array_mut().into_iter().flatten().enumerate() {
        if block.get("block_id").is_none() {
            block["block_id"] = json!(format!("b{number}-{index}"));
        }
    }
}

/// One page of messages, between `oldest` and `latest`, from `cursor` on.
fn page(mut messages: Vec<Value>, args: &Value) -> Value {
    let on = |name: &str| args[name] == true || args[name] == "1" || args[name] == "true";
    let inclusive = on("inclusive");
    let bound = |name: &str| args[name].as_str().filter(|ts| !ts.is_empty());
    messages.retain(|one| {
        let ts = one["ts"].as_str().unwrap_or_default();
        let after = bound("oldest").is_none_or(|oldest| ts > oldest || inclusive && ts == oldest);
        let before = bound("latest").is_none_or(|latest| ts < latest || inclusive && ts == latest);
        after && before
    });
    if !on("include_all_metadata") {
        for message in &mut messages {
            message
                .as_object_mut()
                .map(|fields| fields.remove("metadata"));
        }
    }
    let from: usize = bound("cursor").and_then(|at| at.parse().ok()).unwrap_or(0);
    let limit = match number(&args["limit"]) {
        0 => 100,
        limit => limit.min(999),
    };
    let more = messages.len() > from + limit;
    let next = if more {
        (from + limit).to_string()
    } else {
        String::new()
    };
    let messages: Vec<Value> = messages.into_iter().skip(from).take(limit).collect();
    json!({"messages": messages, "has_more": more, "response_metadata": {"next_cursor": next}})
}

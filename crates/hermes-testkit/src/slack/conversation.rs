//! What people do, and what the app hears of it.

use serde_json::{Value, json};

use super::events::{PostedMessage, PressedButton, callback, message_event};
use super::state::{FakeEnvelope, FakeSlackState};

impl FakeSlackState {
    /// A person's message, kept in the conversation.
    pub(super) fn post_as(&mut self, said: &PostedMessage) -> String {
        let ts = self.next_ts();
        let mut message = json!({
            "type": "message", "user": said.user, "text": said.text, "team": said.team, "ts": ts,
            "client_msg_id": format!("00000000-0000-4000-9000-{:012x}", self.number()),
        });
        if let Some(thread) = &said.thread {
            message["thread_ts"] = json!(thread);
        }
        if !said.files.is_empty() {
            let files: Vec<Value> = said
                .files
                .iter()
                .map(|(name, mime, bytes)| self.keep_file(&said.team, name, mime, bytes))
                .collect();
            message["files"] = json!(files);
            message["subtype"] = json!("file_share");
        }
        for (name, value) in &said.fields {
            message[name.as_str()] = value.clone();
        }
        self.keep(&said.team, &said.channel, message);
        ts
    }

    fn keep_file(&mut self, team: &str, name: &str, mime: &str, bytes: &[u8]) -> Value {
        let id = format!("F{:08}", self.number());
        let slug = name.replace(|ch: char| !ch.is_ascii_alphanumeric(), "_");
        let url = format!("http://{}/files-pri/{team}-{id}/{slug}", self.web);
        let file = json!({
            "id": id, "name": name, "title": name, "mimetype": mime,
            "filetype": name.rsplit('.').next(), "size": bytes.len(), "mode": "hosted",
            "is_external": false, "url_private": url,
            "url_private_download": url.replace("/files-pri/", "/files-pri/download/"),
        });
        self.team(team)
            .files
            .insert(id, (file.clone(), bytes.to_vec()));
        file
    }

    /// Puts a message into its conversation and its thread.
    pub(super) fn keep(&mut self, team: &str, channel: &str, message: Value) {
        let place = self
            .team(team)
            .channels
            .get_mut(channel)
            .unwrap_or_else(|| panic!("no conversation {channel} in {team}"));
        if let Some(thread) = message["thread_ts"].as_str().map(str::to_owned)
            && let Some(root) = place.message(&thread)
        {
            let replies = root["reply_count"].as_u64().unwrap_or(0) + 1;
            root["thread_ts"] = json!(thread);
            root["reply_count"] = json!(replies);
        }
        place.messages.push(message);
    }

    pub(super) fn say(&mut self, said: &PostedMessage) -> String {
        let ts = self.post_as(said);
        self.announce(&said.team, &said.channel, &ts);
        ts
    }

    /// Tells the app of a message, and of a mention beside it.
    pub(super) fn announce(&mut self, team: &str, channel: &str, ts: &str) {
        let place = self.channel(team, channel).expect("the conversation");
        let kind = place.kind.clone();
        let Some(message) = place.messages.iter().find(|one| one["ts"] == ts).cloned() else {
            return;
        };
        let event = message_event(&message, channel, &kind);
        let said = (team.to_owned(), channel.to_owned(), ts.to_owned());
        self.said.insert(said, event.clone());
        self.event(team, &event);
        let mention = format!("<@{}>", self.team(team).bot_user);
        let named = event["text"]
            .as_str()
            .unwrap_or_default()
            .contains(&mention);
        if named && kind != "im" && event.get("bot_id").is_none() {
            let mut event = event;
            event["type"] = json!("app_mention");
            if let Some(fields) = event.as_object_mut() {
                fields.remove("channel_type");
                fields.remove("subtype");
            }
            self.event(team, &event);
        }
    }

    pub(super) fn say_again(&mut self, team: &str, channel: &str, ts: &str) {
        let said = (team.to_owned(), channel.to_owned(), ts.to_owned());
        let event = self.said.get(&said).cloned().expect("it was said before");
        self.event(team, &event);
    }

    pub(super) fn event(&mut self, team: &str, event: &Value) {
        let number = self.number();
        let bot_user = self.team(team).bot_user.clone();
        let payload = callback(team, &bot_user, number, event);
        self.deliver(FakeEnvelope {
            kind: "events_api",
            payload,
            retry: 0,
        });
    }

    pub(super) fn press(&mut self, team: &str, channel: &str, ts: &str, action: &str, user: &str) {
        let action_ts = self.next_ts();
        let response_url = self.response_url(team, channel, user);
        let message = self
            .team(team)
            .channels
            .get_mut(channel)
            .and_then(|place| place.message(ts))
            .cloned()
            .unwrap_or_else(|| panic!("no message {ts} in {channel}"));
        let blocks = message["blocks"].as_array().cloned().unwrap_or_default();
        let (block, element) = blocks
            .iter()
            .flat_map(|block| {
                let elements = block["elements"].as_array().cloned().unwrap_or_default();
                elements.into_iter().map(move |element| (block, element))
            })
            .find(|(_, element)| element["action_id"] == action || element["value"] == action)
            .unwrap_or_else(|| panic!("no button {action} in {message}"));
        let user_name = self.team(team).users.get(user).cloned().unwrap_or_default();
        let payload = PressedButton {
            team,
            channel,
            user,
            user_name: &user_name,
            message: &message,
            action: &element,
            block_id: &block["block_id"],
            action_ts: &action_ts,
            response_url: &response_url,
        }
        .payload();
        self.deliver(FakeEnvelope {
            kind: "interactive",
            payload,
            retry: 0,
        });
    }

    pub(super) fn slash(
        &mut self,
        team: &str,
        channel: &str,
        user: &str,
        command: &str,
        text: &str,
    ) {
        let trigger = format!("{}.{}", self.number(), self.number());
        let response_url = self.response_url(team, channel, user);
        let user_name = self.team(team).users.get(user).cloned().unwrap_or_default();
        let payload = json!({
            "token": "verification", "team_id": team, "team_domain": team.to_ascii_lowercase(),
            "channel_id": channel, "channel_name": channel.to_ascii_lowercase(),
            "user_id": user, "user_name": user_name, "command": command, "text": text,
            "api_app_id": "A1", "is_enterprise_install": "false",
            "response_url": response_url, "trigger_id": trigger,
        });
        self.deliver(FakeEnvelope {
            kind: "slash_commands",
            payload,
            retry: 0,
        });
    }

    fn response_url(&self, team: &str, channel: &str, user: &str) -> String {
        format!("http://{}/response/{team}/{channel}/{user}", self.web)
    }
}

//! The bot itself, chats, commands, updates.

use serde_json::{Value, json};

use super::answer::{BotAnswer, bad, error};
use super::params::BotParams;
use super::state::{FakeTelegramState, FakeWebhook};

impl FakeTelegramState {
    pub(super) fn get_chat(&mut self, params: &BotParams) -> BotAnswer {
        let id = self.chat(params)?;
        let mut chat = self.chats[&id].value.clone();
        chat["accent_color_id"] = json!(0);
        chat["max_reaction_count"] = json!(11);
        chat["accepted_gift_types"] = json!({
            "unlimited_gifts": false, "limited_gifts": false, "unique_gifts": false,
            "premium_subscription": false, "gifts_from_channels": false,
        });
        Ok(chat)
    }

    pub(super) fn create_topic(&mut self, params: &BotParams) -> BotAnswer {
        let id = self.chat(params)?;
        let name = params.text("name").unwrap_or_default().to_owned();
        let chat = self.chats.get_mut(&id).expect("it was found");
        let private = chat.value["type"] == "private";
        if !private && chat.value["is_forum"] != json!(true) {
            return Err(bad("the chat is not a forum"));
        }
        if name.is_empty() || name.chars().count() > 128 {
            return Err(bad("TOPIC_TITLE_EMPTY"));
        }
        chat.last_message += 1;
        let thread = chat.last_message;
        chat.topics.insert(thread, name.clone());
        Ok(json!({"message_thread_id": thread, "name": name, "icon_color": 7_322_096}))
    }

    pub(super) fn set_commands(&mut self, params: &BotParams) -> BotAnswer {
        let list = params.value("commands")?.unwrap_or_default();
        let commands = list
            .as_array()
            .ok_or_else(|| bad("commands must be an array"))?;
        if commands.len() > 100 {
            return Err(bad("BOT_COMMANDS_TOO_MUCH"));
        }
        for command in commands {
            let name = command["command"].as_str().unwrap_or_default();
            let about = command["description"].as_str().unwrap_or_default();
            let fits = (1..=32).contains(&name.len())
                && name
                    .chars()
                    .all(|ch| ch.is_ascii_lowercase() || ch.is_ascii_digit() || ch == '_');
            if !fits {
                return Err(bad("BOT_COMMAND_INVALID"));
            }
            if about.is_empty() || about.chars().count() > 256 {
                return Err(bad("BOT_COMMAND_DESCRIPTION_INVALID"));
            }
        }
        let scope = scope(params)?;
        self.commands.insert(scope, list);
        Ok(json!(true))
    }

    pub(super) fn get_commands(&self, params: &BotParams) -> BotAnswer {
        let scope = scope(params)?;
        Ok(self
            .commands
            .get(&scope)
            .cloned()
            .unwrap_or_else(|| json!([])))
    }

    pub(super) fn set_webhook(&mut self, params: &BotParams) -> BotAnswer {
        let url = params.text("url").unwrap_or_default().to_owned();
        if params.flag("drop_pending_updates") {
            self.updates.clear();
        }
        if let Some(Value::Array(list)) = params.value("allowed_updates")? {
            self.allowed_updates = Some(texts(&list));
        }
        self.webhook = FakeWebhook {
            url,
            secret: params.text("secret_token").map(str::to_owned),
            last_error: None,
        };
        // A poll that waits must hear of it.
        self.poll += 1;
        Ok(json!(true))
    }

    pub(super) fn delete_webhook(&mut self, params: &BotParams) -> Value {
        if params.flag("drop_pending_updates") {
            self.updates.clear();
        }
        self.webhook = FakeWebhook::default();
        json!(true)
    }

    pub(super) fn webhook_info(&self) -> Value {
        let mut info = json!({
            "url": self.webhook.url,
            "has_custom_certificate": false,
            "pending_update_count": self.updates.len(),
        });
        if let Some(error) = &self.webhook.last_error {
            info["last_error_message"] = json!(error);
            info["last_error_date"] = json!(self.now);
        }
        if let Some(list) = &self.allowed_updates {
            info["allowed_updates"] = json!(list);
        }
        info
    }

    /// Takes the place of a poll that waits, confirms what the offset confirms.
    pub(super) fn begin_poll(&mut self, params: &BotParams) -> BotAnswer {
        if !self.webhook.url.is_empty() {
            return Err(error(
                409,
                "Conflict: can't use getUpdates method while webhook is active; use deleteWebhook \
                 to delete the webhook first",
            ));
        }
        self.poll += 1;
        if let Some(Value::Array(list)) = params.value("allowed_updates")? {
            self.allowed_updates = Some(texts(&list));
        }
        let offset = params.number("offset").unwrap_or_default();
        if offset > 0 {
            self.updates
                .retain(|update| update["update_id"].as_i64() >= Some(offset));
        } else if offset < 0 {
            let keep = usize::try_from(-offset).unwrap_or_default();
            let forget = self.updates.len().saturating_sub(keep);
            self.updates.drain(..forget);
        }
        Ok(json!(self.poll))
    }

    /// What waits, as far as the call's limit goes. Nothing is forgotten by this.
    pub(super) fn waiting(&self, params: &BotParams) -> Vec<Value> {
        let limit = params.number("limit").unwrap_or(100).clamp(1, 100);
        self.updates.iter().take(limit as usize).cloned().collect()
    }
}

fn scope(params: &BotParams) -> Result<String, super::answer::BotError> {
    let scope = params.value("scope")?;
    let kind = scope
        .as_ref()
        .and_then(|scope| scope["type"].as_str())
        .unwrap_or("default");
    Ok(kind.to_owned())
}

fn texts(list: &[Value]) -> Vec<String> {
    list.iter()
        .filter_map(|one| one.as_str().map(str::to_owned))
        .collect()
}

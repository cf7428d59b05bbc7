//! Sending, editing, deleting, drafts, reactions.

use serde_json::{Value, json};

use super::answer::{BotAnswer, BotError, bad};
use super::markup::{ParsedMarkup, parse, utf16};
use super::params::BotParams;
use super::state::FakeTelegramState;

/// The longest text, in UTF-16, markup taken out.
const TEXT: usize = 4096;
/// The longest data of a button, in bytes.
const DATA: usize = 64;

impl FakeTelegramState {
    pub(super) fn send_message(&mut self, params: &BotParams) -> BotAnswer {
        self.chat(params)?;
        let (text, entities) = text_of(params)?;
        let mut content = json!({"text": text});
        if !entities.is_empty() {
            content["entities"] = json!(entities);
        }
        self.post(params, content)
    }

    /// Puts a message of the bot into a chat.
    pub(super) fn post(&mut self, params: &BotParams, mut content: Value) -> BotAnswer {
        let chat = self.chat(params)?;
        if let Some(thread) = params.number("message_thread_id") {
            // The general topic of a forum has no number in calls.
            if !self.chats[&chat].topics.contains_key(&thread) {
                return Err(bad("message thread not found"));
            }
            content["message_thread_id"] = json!(thread);
            content["is_topic_message"] = json!(true);
        }
        if let Some((to, lenient)) = reply_target(params)? {
            if self.messages.contains_key(&(chat, to)) {
                content["reply_to_message"] = self.quoted(chat, to);
            } else if !lenient {
                return Err(bad("message to be replied not found"));
            }
        }
        if let Some(markup) = keyboard(params)? {
            content["reply_markup"] = markup;
        }
        let bot = self.bot_user();
        Ok(self.message(chat, &bot, content))
    }

    pub(super) fn edit_message_text(&mut self, params: &BotParams) -> BotAnswer {
        let key = self.own_message(params, "edit")?;
        let (text, entities) = text_of(params)?;
        let markup = keyboard(params)?.unwrap_or(Value::Null);
        let old = &self.messages[&key];
        if old["text"].is_null() {
            return Err(bad("there is no text in the message to edit"));
        }
        let same_entities = old["entities"].as_array().cloned().unwrap_or_default() == entities;
        if old["text"] == json!(text) && same_entities && old["reply_markup"] == markup {
            return Err(not_modified());
        }
        let now = self.now;
        let message = self.messages.get_mut(&key).expect("it was found");
        message["text"] = json!(text);
        set(message, "entities", json!(entities), entities.is_empty());
        let empty = markup.is_null();
        set(message, "reply_markup", markup, empty);
        message["edit_date"] = json!(now);
        let message = message.clone();
        *self.edits.entry(key).or_default() += 1;
        Ok(message)
    }

    pub(super) fn edit_reply_markup(&mut self, params: &BotParams) -> BotAnswer {
        let key = self.own_message(params, "edit")?;
        let markup = keyboard(params)?.unwrap_or(Value::Null);
        let message = self.messages.get_mut(&key).expect("it was found");
        if message["reply_markup"] == markup {
            return Err(not_modified());
        }
        let empty = markup.is_null();
        set(message, "reply_markup", markup, empty);
        Ok(message.clone())
    }

    pub(super) fn delete_message(&mut self, params: &BotParams) -> BotAnswer {
        let key = self.own_message(params, "delete")?;
        self.messages.remove(&key);
        Ok(json!(true))
    }

    fn own_message(&mut self, params: &BotParams, doing: &str) -> Result<(i64, i64), BotError> {
        let chat = self.chat(params)?;
        let id = params
            .number("message_id")
            .ok_or_else(|| bad("message identifier is not specified"))?;
        match self.messages.get(&(chat, id)) {
            None => Err(bad(&format!("message to {doing} not found"))),
            Some(message) if message["from"]["id"] != self.bot["id"] => Err(bad(&format!(
                "message can't be {doing}ed"
            )
            .replace("eed", "ed"))),
            Some(_) => Ok((chat, id)),
        }
    }

    pub(super) fn send_draft(&mut self, params: &BotParams) -> BotAnswer {
        let chat = self.chat(params)?;
        if self.chats[&chat].value["type"] != "private" {
            return Err(bad("method is available only for private chats"));
        }
        let draft = params
            .number("draft_id")
            .filter(|id| *id != 0)
            .ok_or_else(|| bad("draft_id must be non-zero"))?;
        let (text, _) = parse(params.text("parse_mode"), params.text("text").unwrap_or(""))?;
        if utf16(&text) > TEXT {
            return Err(bad("message is too long"));
        }
        self.drafts.push((chat, draft, text));
        Ok(json!(true))
    }

    pub(super) fn set_reaction(&mut self, params: &BotParams) -> BotAnswer {
        /// Some of those that Telegram allows.
        const ALLOWED: &[&str] = &["👍", "👎", "❤", "🔥", "🎉", "👀", "🤔", "👌", "💯", "🤷"];
        let chat = self.chat(params)?;
        let id = params.number("message_id").unwrap_or_default();
        if !self.messages.contains_key(&(chat, id)) {
            return Err(bad("message to react not found"));
        }
        let list = params.value("reaction")?.unwrap_or_else(|| json!([]));
        let emoji: Vec<String> = list
            .as_array()
            .into_iter()
            .flatten()
            .filter_map(|one| one["emoji"].as_str().map(str::to_owned))
            .collect();
        if emoji.iter().any(|one| !ALLOWED.contains(&one.as_str())) {
            return Err(bad("REACTION_INVALID"));
        }
        if emoji.is_empty() {
            self.reactions.remove(&(chat, id));
        } else {
            self.reactions.insert((chat, id), emoji);
        }
        Ok(json!(true))
    }

    pub(super) fn chat_action(&mut self, params: &BotParams) -> BotAnswer {
        let chat = self.chat(params)?;
        let action = params.text("action").unwrap_or_default();
        if action.is_empty() {
            return Err(bad("wrong parameter action in request"));
        }
        let thread = params.number("message_thread_id");
        self.actions.push((chat, thread, action.to_owned()));
        Ok(json!(true))
    }

    pub(super) fn answer_callback(&mut self, params: &BotParams) -> BotAnswer {
        let id = params.text("callback_query_id").unwrap_or_default();
        let too_old =
            || bad("query is too old and response timeout expired or query ID is invalid");
        let answer = json!({"text": params.text("text"), "show_alert": params.flag("show_alert")});
        let place = self.callbacks.get_mut(id).ok_or_else(too_old)?;
        *place = Some(answer);
        Ok(json!(true))
    }
}

fn set(message: &mut Value, name: &str, value: Value, empty: bool) {
    if let Value::Object(fields) = message {
        if empty {
            fields.remove(name);
        } else {
            fields.insert(name.to_owned(), value);
        }
    }
}

fn not_modified() -> BotError {
    bad(
        "message is not modified: specified new message content and reply markup are exactly the \
         same as a current content and reply markup of the message",
    )
}

fn text_of(params: &BotParams) -> Result<ParsedMarkup, BotError> {
    let raw = params.text("text").unwrap_or_default();
    let (text, mut entities) = parse(params.text("parse_mode"), raw)?;
    if let Some(Value::Array(given)) = params.value("entities")? {
        entities = given;
    }
    let trimmed = text.trim_end();
    if trimmed.trim().is_empty() {
        return Err(bad("message text is empty"));
    }
    if utf16(trimmed) > TEXT {
        return Err(bad("message is too long"));
    }
    Ok((trimmed.to_owned(), entities))
}

/// The message replied to, and whether it may be missing.
fn reply_target(params: &BotParams) -> Result<Option<(i64, bool)>, BotError> {
    if let Some(reply) = params.value("reply_parameters")? {
        let id = reply["message_id"].as_i64().unwrap_or_default();
        let lenient = reply["allow_sending_without_reply"] == json!(true);
        return Ok(Some((id, lenient)));
    }
    let lenient = params.flag("allow_sending_without_reply");
    Ok(params.number("reply_to_message_id").map(|id| (id, lenient)))
}

fn keyboard(params: &BotParams) -> Result<Option<Value>, BotError> {
    let Some(markup) = params.value("reply_markup")? else {
        return Ok(None);
    };
    let Some(rows) = markup["inline_keyboard"].as_array() else {
        // Other keyboards are not part of the message.
        return Ok(None);
    };
    for button in rows.iter().filter_map(Value::as_array).flatten() {
        let data = button["callback_data"].as_str();
        if button["text"].as_str().is_none_or(str::is_empty) {
            return Err(bad("BUTTON_TEXT_INVALID"));
        }
        let linked = button["url"].is_string();
        if !linked && data.is_none_or(|data| data.is_empty() || data.len() > DATA) {
            return Err(bad("BUTTON_DATA_INVALID"));
        }
    }
    if rows.is_empty() {
        return Ok(None);
    }
    Ok(Some(json!({"inline_keyboard": rows})))
}

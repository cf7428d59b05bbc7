//! Requests in the responses format, including runs.

use hermes_core::message::{Content, Message};
use hermes_core::store::SessionStore as _;
use serde_json::{Value, json};

use super::{mark, not_found};
use crate::ApiState;
use crate::error::ApiError;
use crate::input::{self, ClientConversation, JsonObjectBody};
use crate::names::{self, RequestedSession};
use crate::threads::HistoryDigest;

/// Maximum length of the history if truncation is allowed (`truncation: auto`).
const MAX_TRUNCATED_HISTORY: usize = 100;

pub(crate) struct ResponsesRequest {
    pub(crate) client_conversation: ClientConversation,
    /// The session to continue; `None`: a new one.
    pub(crate) session: Option<String>,
    pub(super) instructions: Option<String>,
    pub(super) previous: Option<String>,
    pub(super) conversation: Option<String>,
}

/// Parses the request and finds the answer it continues from.
pub(crate) async fn read(
    state: &ApiState,
    body: &JsonObjectBody,
    named: &RequestedSession,
) -> Result<ResponsesRequest, ApiError> {
    let mut client_conversation = match body.0.get("input") {
        None | Some(Value::Null) => {
            return Err(ApiError::bad("'input' is missing").param("input"));
        }
        Some(Value::String(text)) => ClientConversation {
            system: None,
            history: Vec::new(),
            now: input::require_content(Content::Text(text.clone()), "input")?,
        },
        Some(Value::Array(list)) => input::read(list, "input")?,
        Some(_) => {
            let message = "'input' must be text or a list of messages";
            return Err(ApiError::bad(message).param("input"));
        }
    };
    let mut instructions = body.text("instructions")?.map(str::to_owned);
    let conversation = conversation(body)?;
    let mut previous = body.text("previous_response_id")?.map(str::to_owned);
    if previous.is_some() && conversation.is_some() {
        let message = "send 'conversation' or 'previous_response_id', not both";
        return Err(ApiError::bad(message).param("conversation"));
    }
    if let Some(name) = &conversation {
        // An unknown conversation starts now.
        previous = state.stored.get(state).await?.conversation(name).await?;
    }
    let given = input::history(body.0.get("conversation_history"))?;
    let mut session = named.session.clone();
    if !given.is_empty() {
        client_conversation.history.splice(0..0, given);
    } else if let Some(id) = &previous {
        let stored = state.stored.get(state).await?.get(id).await?;
        let stored = stored.ok_or_else(|| not_found(id))?;
        let past = input::history(stored.get("conversation_history"))?;
        if session.is_none() && client_conversation.history.is_empty() {
            session = goes_on(state, id, &stored, &past).await?;
        }
        client_conversation.history.splice(0..0, past);
        if instructions.is_none() {
            instructions = stored["instructions"].as_str().map(str::to_owned);
        }
    }
    if body.text("truncation")? == Some("auto")
        && client_conversation.history.len() > MAX_TRUNCATED_HISTORY
    {
        client_conversation
            .history
            .drain(..client_conversation.history.len() - MAX_TRUNCATED_HISTORY);
    }
    client_conversation.system = match (instructions.clone(), client_conversation.system) {
        (Some(first), Some(then)) => Some(format!("{first}\n{then}")),
        (first, then) => first.or(then),
    };
    Ok(ResponsesRequest {
        client_conversation,
        session,
        instructions,
        previous,
        conversation,
    })
}

/// A name, or an object with an id.
fn conversation(body: &JsonObjectBody) -> Result<Option<String>, ApiError> {
    const FIELD: &str = "conversation";
    match body.0.get(FIELD) {
        Some(Value::Object(object)) => match object.get("id") {
            Some(Value::String(id)) => Ok(Some(id.clone())),
            _ => Err(ApiError::bad("'conversation' has no id").param(FIELD)),
        },
        _ => Ok(body.text(FIELD)?.map(str::to_owned)),
    }
}

/// The session of an answer, unless it has continued since.
async fn goes_on(
    state: &ApiState,
    id: &str,
    stored: &Value,
    past: &[Message],
) -> Result<Option<String>, ApiError> {
    if let Some(session) = state.threads.take(mark(id)) {
        return Ok(Some(session));
    }
    // Another process may have produced that answer.
    let Some(session) = stored["session_id"].as_str() else {
        return Ok(None);
    };
    if names::check_session(session).is_err() {
        return Ok(None);
    }
    let found = state.deps.store.load(&session.into()).await?;
    let Some(found) = found.filter(|found| !found.compacted_before) else {
        return Ok(None);
    };
    let items: Vec<Message> = found.items.into_iter().map(|item| item.message).collect();
    Ok((gist(&items) == gist(past)).then(|| session.to_owned()))
}

/// The messages without tools.
fn gist(messages: &[Message]) -> HistoryDigest {
    let start = HistoryDigest::start("gist", None);
    messages.iter().fold(start, |mark, message| match message {
        Message::User(user) => mark.after("user", &user.content),
        Message::Assistant(assistant) if !assistant.text.trim().is_empty() => {
            mark.after_text("assistant", &assistant.text)
        }
        _ => mark,
    })
}

impl ResponsesRequest {
    /// All messages up to the answer, in the stored format.
    pub(super) fn stored_history(&self) -> Vec<Value> {
        let now = json!({"role": "user", "content": self.client_conversation.now});
        let past = self.client_conversation.history.iter().map(message);
        past.chain([now]).collect()
    }
}

fn message(message: &Message) -> Value {
    match message {
        Message::User(user) => json!({"role": "user", "content": user.content}),
        Message::Assistant(assistant) => {
            let mut value = json!({"role": "assistant", "content": assistant.text});
            if !assistant.tool_calls.is_empty() {
                let calls = assistant.tool_calls.iter().map(|call| {
                    json!({
                        "id": call.id,
                        "type": "function",
                        "function": {"name": call.name, "arguments": call.arguments},
                    })
                });
                value["tool_calls"] = calls.collect();
            }
            value
        }
        Message::Tool(result) => json!({
            "role": "tool",
            "tool_call_id": result.call_id,
            "content": result.content,
        }),
    }
}

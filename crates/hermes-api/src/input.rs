//! Client messages in OpenAI's formats, parsed strictly.

use axum::body::Bytes;
use axum::extract::FromRequest;
use axum::extract::rejection::BytesRejection;
use hermes_core::event::UserInput;
use hermes_core::message::{
    AssistantMessage, Content, ImageTag, ImageUrl, Message, Part, ToolCall, ToolMessage,
    UserMessage,
};
use serde_json::{Map, Value};

use super::error::ApiError;
use super::guard;

/// Maximum number of parts of one message.
const MAX_PARTS: usize = 1000;

/// A body that is a JSON object.
pub(super) struct JsonObjectBody(pub(super) Map<String, Value>);

impl<S: Send + Sync> FromRequest<S> for JsonObjectBody {
    type Rejection = ApiError;

    async fn from_request(request: axum::extract::Request, state: &S) -> Result<Self, ApiError> {
        let bytes = Bytes::from_request(request, state).await;
        let bytes = bytes.map_err(|rejection| unread(&rejection))?;
        match serde_json::from_slice(&bytes) {
            Ok(Value::Object(body)) => Ok(Self(body)),
            Ok(_) => Err(ApiError::bad("the body must be a JSON object")),
            Err(error) => Err(ApiError::bad(format!("the body is not JSON: {error}"))),
        }
    }
}

fn unread(rejection: &BytesRejection) -> ApiError {
    match rejection.status() {
        axum::http::StatusCode::PAYLOAD_TOO_LARGE => guard::body_too_large(),
        status => ApiError::new(status, rejection.body_text()),
    }
}

impl JsonObjectBody {
    /// A field as text. Null and empty text count as nothing; other values are refused.
    pub(super) fn text(&self, field: &str) -> Result<Option<&str>, ApiError> {
        match self.0.get(field) {
            None | Some(Value::Null) => Ok(None),
            Some(Value::String(text)) => Ok(Some(text.trim()).filter(|text| !text.is_empty())),
            Some(_) => Err(ApiError::bad(format!("'{field}' must be a string")).param(field)),
        }
    }

    /// A boolean; clients also send strings.
    pub(super) fn flag(&self, field: &str, usual: bool) -> Result<bool, ApiError> {
        switch(self.0.get(field), usual)
            .ok_or_else(|| ApiError::bad(format!("'{field}' must be true or false")).param(field))
    }
}

fn switch(value: Option<&Value>, usual: bool) -> Option<bool> {
    match value {
        None | Some(Value::Null) => Some(usual),
        Some(Value::Bool(on)) => Some(*on),
        Some(Value::Number(number)) => Some(number.as_f64() != Some(0.0)),
        Some(Value::String(word)) => match word.trim().to_ascii_lowercase().as_str() {
            "1" | "true" | "yes" | "on" => Some(true),
            "0" | "false" | "no" | "off" => Some(false),
            "" => Some(usual),
            _ => None,
        },
        Some(_) => None,
    }
}

/// A conversation as sent by a client: history and new message.
#[derive(Debug, PartialEq)]
pub(super) struct ClientConversation {
    /// System messages, one after the other.
    pub(super) system: Option<String>,
    pub(super) history: Vec<Message>,
    pub(super) now: Content,
}

/// `messages` of chat completions.
pub(super) fn messages(value: Option<&Value>) -> Result<ClientConversation, ApiError> {
    let Some(Value::Array(list)) = value else {
        return Err(ApiError::bad("'messages' must be a list of messages").param("messages"));
    };
    if list.is_empty() {
        return Err(ApiError::bad("'messages' is empty").param("messages"));
    }
    read(list, "messages")
}

/// A list of messages that ends with a user message.
pub(super) fn read(list: &[Value], param: &str) -> Result<ClientConversation, ApiError> {
    let mut system: Option<String> = None;
    let mut all = Vec::with_capacity(list.len());
    for (at, entry) in list.iter().enumerate() {
        let location = || format!("{param}[{at}]");
        let entry = match entry {
            Value::String(text) => {
                all.push(Message::user(text.clone()));
                continue;
            }
            Value::Object(entry) => entry,
            _ => {
                return Err(
                    ApiError::bad(format!("{} is not a message", location())).param(location())
                );
            }
        };
        let content = || content(entry.get("content"), &format!("{}.content", location()));
        // Items of the responses format that are no messages.
        match entry.get("type").and_then(Value::as_str) {
            None | Some("message") => {}
            Some("function_call") => {
                all.push(called(entry));
                continue;
            }
            Some("function_call_output") => {
                all.push(came_back(entry, "call_id", "output", &location())?);
                continue;
            }
            // Reasoning of another model is useless for this one.
            Some("reasoning") => continue,
            Some(other) => {
                let message = format!("{}: items of type {other:?} cannot be read", location());
                return Err(ApiError::bad(message)
                    .param(location())
                    .code("unsupported_content_type"));
            }
        }
        let role = entry.get("role").and_then(Value::as_str);
        match role.unwrap_or("user") {
            "system" | "developer" => {
                let text = content()?.text().into_owned();
                system = Some(match system {
                    Some(before) => format!("{before}\n{text}"),
                    None => text,
                });
            }
            "user" => all.push(user(content()?)),
            "assistant" => all.push(assistant(entry, &content()?)),
            "tool" => all.push(came_back(entry, "tool_call_id", "content", &location())?),
            other => {
                let message = format!("{}: there is no role {other:?}", location());
                return Err(ApiError::bad(message).param(location()));
            }
        }
    }
    let Some(Message::User(last)) = all.pop() else {
        let message = format!("the last of '{param}' must be a message of the user");
        return Err(ApiError::bad(message).param(param));
    };
    Ok(ClientConversation {
        system,
        history: paired(all),
        now: require_content(last.content, param)?,
    })
}

/// History alone: `conversation_history`.
pub(super) fn history(value: Option<&Value>) -> Result<Vec<Message>, ApiError> {
    const PARAM: &str = "conversation_history";
    let list = match value {
        None | Some(Value::Null) => return Ok(Vec::new()),
        Some(Value::Array(list)) => list,
        Some(_) => {
            let message = format!("'{PARAM}' must be a list of messages");
            return Err(ApiError::bad(message).param(PARAM));
        }
    };
    for (at, entry) in list.iter().enumerate() {
        if entry.get("role").is_none() || entry.get("content").is_none() {
            let message = format!("{PARAM}[{at}] must have 'role' and 'content'");
            return Err(ApiError::bad(message).param(format!("{PARAM}[{at}]")));
        }
    }
    let mut list = list.clone();
    list.push(Value::String("end".to_owned()));
    Ok(read(&list, PARAM)?.history)
}

/// Refuses empty content.
pub(super) fn require_content(content: Content, param: &str) -> Result<Content, ApiError> {
    if content.text().trim().is_empty() && content.image_count() == 0 {
        return Err(ApiError::bad("there is no message of the user, or it is empty").param(param));
    }
    Ok(content)
}

pub(super) fn user_input(content: Content) -> UserInput {
    match content {
        Content::Text(text) => UserInput {
            text,
            ..UserInput::default()
        },
        Content::Parts(_) => {
            let text = content.text().into_owned();
            let Content::Parts(mut images) = content else {
                return UserInput::default();
            };
            images.retain(|part| matches!(part, Part::Image { .. }));
            UserInput {
                text,
                images,
                ..UserInput::default()
            }
        }
    }
}

/// Text, or text and images.
pub(super) fn content(value: Option<&Value>, param: &str) -> Result<Content, ApiError> {
    let list = match value {
        None | Some(Value::Null) => return Ok(Content::Text(String::new())),
        Some(Value::String(text)) => return Ok(Content::Text(text.clone())),
        Some(Value::Array(list)) => list,
        Some(_) => {
            let message = format!("{param} must be text or a list of parts");
            return Err(ApiError::bad(message)
                .param(param)
                .code("invalid_content_part"));
        }
    };
    if list.len() > MAX_PARTS {
        let message = format!("{param} has more than {MAX_PARTS} parts");
        return Err(ApiError::bad(message)
            .param(param)
            .code("invalid_content_part"));
    }
    let parts: Vec<Part> = list
        .iter()
        .enumerate()
        .map(|(at, value)| part(value, &format!("{param}[{at}]")))
        .collect::<Result<_, _>>()?;
    // Plain text stays text, as it is in prompt caches.
    if parts.iter().all(|part| part.as_text().is_some()) {
        return Ok(Content::Text(Content::Parts(parts).text().into_owned()));
    }
    Ok(Content::Parts(parts))
}

fn part(value: &Value, param: &str) -> Result<Part, ApiError> {
    let refuse = |code: &'static str, message: String| {
        Err(ApiError::bad(format!("{param}: {message}"))
            .param(param)
            .code(code))
    };
    if let Value::String(text) = value {
        return Ok(Part::text(text.clone()));
    }
    let kind = value
        .get("type")
        .and_then(Value::as_str)
        .unwrap_or_default();
    match kind {
        "text" | "input_text" | "output_text" => match value.get("text") {
            Some(Value::String(text)) => Ok(Part::text(text.clone())),
            _ => refuse("invalid_content_part", "'text' must be a string".to_owned()),
        },
        "refusal" => match value.get("refusal") {
            Some(Value::String(text)) => Ok(Part::text(text.clone())),
            _ => refuse(
                "invalid_content_part",
                "'refusal' must be a string".to_owned(),
            ),
        },
        "image_url" | "input_image" => image(value, param),
        "file" | "input_file" | "input_audio" => refuse(
            "unsupported_content_type",
            format!("parts of type {kind:?} cannot be read here, only text and images"),
        ),
        other => refuse(
            "unsupported_content_type",
            format!("there is no part of type {other:?}, only text and images"),
        ),
    }
}

/// `image_url` is an object in chat completions, and text in responses.
fn image(value: &Value, param: &str) -> Result<Part, ApiError> {
    let refuse = |code: &'static str, message: &str| {
        Err(ApiError::bad(format!("{param}: {message}"))
            .param(param)
            .code(code))
    };
    let reference = value.get("image_url").unwrap_or(&Value::Null);
    let url = reference.get("url").unwrap_or(reference).as_str();
    let detail = reference.get("detail").or_else(|| value.get("detail"));
    let url = url.map(str::trim).unwrap_or_default();
    let lower = url
        .get(..url.len().min(16))
        .unwrap_or(url)
        .to_ascii_lowercase();
    if lower.starts_with("data:") {
        if !lower.starts_with("data:image/") || !url.contains(',') {
            return refuse(
                "unsupported_content_type",
                "only images are allowed in a data: URL (data:image/…;base64,…)",
            );
        }
    } else if !lower.starts_with("http://") && !lower.starts_with("https://") {
        return refuse(
            "invalid_image_url",
            "an image needs an http(s) URL or a data:image/… URL",
        );
    }
    let detail = match detail {
        None | Some(Value::Null) => None,
        Some(Value::String(detail)) if !detail.trim().is_empty() => Some(detail.trim().to_owned()),
        Some(_) => return refuse("invalid_content_part", "'detail' must be a word"),
    };
    Ok(Part::Image {
        kind: ImageTag::ImageUrl,
        image_url: ImageUrl {
            url: url.to_owned(),
            detail,
        },
    })
}

fn user(content: Content) -> Message {
    Message::User(UserMessage {
        content,
        wire_text: None,
    })
}

fn assistant(entry: &Map<String, Value>, content: &Content) -> Message {
    let calls = entry.get("tool_calls").and_then(Value::as_array);
    let tool_calls = calls
        .into_iter()
        .flatten()
        .map(|call| ToolCall {
            id: text_of(call, "id"),
            name: text_of(&call["function"], "name"),
            arguments: text_of(&call["function"], "arguments"),
            ..ToolCall::default()
        })
        .collect();
    Message::Assistant(AssistantMessage {
        text: content.text().into_owned(),
        tool_calls,
        ..AssistantMessage::default()
    })
}

fn called(entry: &Map<String, Value>) -> Message {
    let text = |field: &str| {
        let text = entry.get(field).and_then(Value::as_str);
        text.unwrap_or_default().to_owned()
    };
    Message::Assistant(AssistantMessage {
        tool_calls: vec![ToolCall {
            id: text("call_id"),
            name: text("name"),
            arguments: text("arguments"),
            ..ToolCall::default()
        }],
        ..AssistantMessage::default()
    })
}

fn came_back(
    entry: &Map<String, Value>,
    id: &str,
    field: &str,
    location: &str,
) -> Result<Message, ApiError> {
    let text = |name: &str| {
        let text = entry.get(name).and_then(Value::as_str);
        text.unwrap_or_default().to_owned()
    };
    let content = content(entry.get(field), &format!("{location}.{field}"))?;
    Ok(Message::Tool(ToolMessage {
        call_id: text(id),
        name: text("name"),
        content: Content::Text(content.text().into_owned()),
        disposition: None,
    }))
}

fn text_of(value: &Value, field: &str) -> String {
    value
        .get(field)
        .and_then(Value::as_str)
        .unwrap_or_default()
        .to_owned()
}

/// Keeps only matching calls and results: providers refuse the others.
fn paired(mut messages: Vec<Message>) -> Vec<Message> {
    let mut answered: Vec<(usize, String)> = Vec::new();
    let mut open: Vec<(usize, String, String)> = Vec::new();
    let mut kept_results = vec![false; messages.len()];
    for (at, message) in messages.iter_mut().enumerate() {
        match message {
            Message::User(_) => open.clear(),
            Message::Assistant(assistant) => {
                if !assistant.text.is_empty() {
                    open.clear();
                }
                for call in &assistant.tool_calls {
                    open.push((at, call.id.clone(), call.name.clone()));
                }
            }
            Message::Tool(result) => {
                let found = open.iter().position(|(_, id, _)| *id == result.call_id);
                if let Some(found) = found {
                    let (caller, id, name) = open.remove(found);
                    result.name = name;
                    answered.push((caller, id));
                    kept_results[at] = true;
                }
            }
        }
    }
    let mut at = 0;
    messages.retain_mut(|message| {
        let location = at;
        at += 1;
        match message {
            Message::User(_) => true,
            Message::Tool(_) => kept_results[location],
            Message::Assistant(assistant) => {
                assistant
                    .tool_calls
                    .retain(|call| answered.contains(&(location, call.id.clone())));
                !assistant.text.is_empty() || !assistant.tool_calls.is_empty()
            }
        }
    });
    joined(messages)
}

/// Consecutive calls belong to one message.
fn joined(messages: Vec<Message>) -> Vec<Message> {
    let mut all: Vec<Message> = Vec::with_capacity(messages.len());
    for message in messages {
        match (all.last_mut(), message) {
            (Some(Message::Assistant(before)), Message::Assistant(next))
                if next.text.is_empty() =>
            {
                before.tool_calls.extend(next.tool_calls);
            }
            (_, message) => all.push(message),
        }
    }
    all
}

#[cfg(test)]
mod tests;

//! Parses the body of a refused request: JSON-RPC, other JSON, either in an SSE frame, or plain
//! text.

use std::borrow::Cow;

use rmcp::model::RequestId;
use serde::Deserialize;
use serde_json::Value;

use crate::transport::peer::plain_id;

/// Longer plain text is a page, not an error message.
const MAX_TEXT_BYTES: usize = 512;

pub(super) enum ErrorBody {
    Json(Value),
    Text(String),
    /// HTML, truncated JSON, empty, or not text.
    Unreadable,
}

impl ErrorBody {
    pub(super) fn read(body: &[u8]) -> Self {
        let text = String::from_utf8_lossy(body);
        let text = text.trim();
        if let Some(value) = json(text).or_else(|| sse_data(text).and_then(|data| json(&data))) {
            return Self::Json(value);
        }
        // Text with invalid characters (an unknown compression, for example) is unreadable.
        let unreadable = text.contains(char::REPLACEMENT_CHARACTER);
        let page = text.len() > MAX_TEXT_BYTES || text.starts_with(['<', '{']);
        if text.is_empty() || page || unreadable {
            return Self::Unreadable;
        }
        Self::Text(text.to_owned())
    }

    /// The code of the JSON-RPC error.
    pub(super) fn code(&self) -> Option<i64> {
        self.json()?.get("error")?.get("code")?.as_i64()
    }

    /// Whether it is a JSON-RPC error with the id of this request.
    pub(super) fn answers_request(&self, request: &[u8]) -> bool {
        #[derive(Deserialize)]
        struct Request {
            id: RequestId,
        }
        let id = self.json().filter(|_| self.code().is_some());
        let id = id.and_then(|body| RequestId::deserialize(body.get("id")?).ok());
        let (Some(id), Ok(asked)) = (id, serde_json::from_slice::<Request>(request)) else {
            return false;
        };
        plain_id(&id) == asked.id
    }

    /// The message of the JSON-RPC error, or of the formats other frameworks use.
    pub(super) fn text(&self) -> Option<Cow<'_, str>> {
        let value = match self {
            Self::Json(value) => value,
            Self::Text(text) => return Some(Cow::Borrowed(text)),
            Self::Unreadable => return None,
        };
        let message = value
            .get("error")
            .and_then(|error| error.get("message"))
            .or_else(|| value.get("error_description"))
            .or_else(|| value.get("error").filter(|error| error.is_string()))
            .or_else(|| value.get("message"))
            .or_else(|| value.get("detail"))
            .and_then(Value::as_str)
            .filter(|text| !text.trim().is_empty());
        message.map(Cow::Borrowed)
    }

    /// The `error` of an OAuth response.
    pub(super) fn oauth_error(&self) -> Option<&str> {
        self.json()?.get("error")?.as_str()
    }

    fn json(&self) -> Option<&Value> {
        match self {
            Self::Json(value) => Some(value),
            _ => None,
        }
    }
}

fn json(text: &str) -> Option<Value> {
    serde_json::from_str::<Value>(text)
        .ok()
        .filter(Value::is_object)
}

/// The data lines of the first event.
fn sse_data(text: &str) -> Option<String> {
    let lines: Vec<&str> = text
        .lines()
        .skip_while(|line| !line.starts_with("data:"))
        .take_while(|line| line.starts_with("data:"))
        .map(|line| line["data:".len()..].trim_start())
        .collect();
    (!lines.is_empty()).then(|| lines.join("\n"))
}

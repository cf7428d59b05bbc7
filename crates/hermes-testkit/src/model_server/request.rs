//! What a client asked, with the questions tests have about it.

use serde_json::Value;

/// The wire format of a request, by its path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    Chat,
    Anthropic,
    Responses,
}

impl Format {
    pub(super) fn of(path: &str) -> Option<Self> {
        let path = path.split('?').next().unwrap_or(path);
        if path.ends_with("/chat/completions") {
            Some(Self::Chat)
        } else if path.ends_with("/messages") {
            Some(Self::Anthropic)
        } else if path.ends_with("/responses") {
            Some(Self::Responses)
        } else {
            None
        }
    }
}

/// One request as it arrived.
#[derive(Clone, Debug)]
pub struct RecordedRequest {
    /// Counts from 0 over all requests of the server.
    pub index: usize,
    pub method: String,
    /// With the query, if there was one.
    pub path: String,
    /// Names in lower case, in the order sent.
    pub headers: Vec<(String, String)>,
    /// `Null` when there was no body or it was not JSON.
    pub body: Value,
    pub raw: Vec<u8>,
    /// Wall-clock nanoseconds at which its first byte was read.
    pub arrived_ns: u128,
}

/// A tool result found in a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ToolResult {
    pub id: String,
    pub text: String,
}

impl RecordedRequest {
    pub fn format(&self) -> Option<Format> {
        Format::of(&self.path)
    }

    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers
            .iter()
            .find(|(key, _)| key.eq_ignore_ascii_case(name))
            .map(|(_, value)| value.as_str())
    }

    /// The key the client used, whatever header it came in.
    pub fn api_key(&self) -> Option<&str> {
        self.header("x-api-key").or_else(|| {
            self.header("authorization")
                .and_then(|value| value.strip_prefix("Bearer "))
        })
    }

    pub fn model(&self) -> &str {
        self.body["model"].as_str().unwrap_or_default()
    }

    pub fn streams(&self) -> bool {
        self.body["stream"].as_bool().unwrap_or(false)
    }

    /// The conversation in the request's own format, without system rows.
    pub fn messages(&self) -> Vec<Value> {
        let list = match self.format() {
            Some(Format::Responses) => &self.body["input"],
            _ => &self.body["messages"],
        };
        match list {
            Value::Array(rows) => rows
                .iter()
                .filter(|row| !matches!(row["role"].as_str(), Some("system" | "developer")))
                .cloned()
                .collect(),
            Value::String(text) => vec![serde_json::json!({"role": "user", "content": text})],
            _ => Vec::new(),
        }
    }

    /// The system prompt, wherever the format keeps it.
    pub fn system(&self) -> String {
        match self.format() {
            Some(Format::Anthropic) => flat_text(&self.body["system"]),
            Some(Format::Responses) => flat_text(&self.body["instructions"]),
            _ => self.body["messages"]
                .as_array()
                .into_iter()
                .flatten()
                .filter(|row| matches!(row["role"].as_str(), Some("system" | "developer")))
                .map(|row| flat_text(&row["content"]))
                .collect::<Vec<_>>()
                .join("\n\n"),
        }
    }

    /// Names of the tools offered, in order.
    pub fn tool_names(&self) -> Vec<&str> {
        self.body["tools"]
            .as_array()
            .into_iter()
            .flatten()
            .filter_map(|tool| tool["name"].as_str().or(tool["function"]["name"].as_str()))
            .collect()
    }

    pub fn offers_tools(&self) -> bool {
        !self.tool_names().is_empty()
    }

    /// Tool results in order, in any format.
    pub fn tool_results(&self) -> Vec<ToolResult> {
        self.messages().iter().flat_map(results_of).collect()
    }

    /// Whether the newest entry of the conversation is a tool result.
    pub fn ends_with_tool_result(&self) -> bool {
        self.messages()
            .last()
            .is_some_and(|row| !results_of(row).is_empty())
    }

    /// The text of the newest entry of the conversation.
    pub fn last_text(&self) -> String {
        let messages = self.messages();
        let Some(row) = messages.last() else {
            return String::new();
        };
        let results = results_of(row);
        match results.last() {
            Some(result) => result.text.clone(),
            None => flat_text(&row["content"]),
        }
    }

    /// The text of the newest entry the person wrote.
    pub fn last_user_text(&self) -> String {
        self.messages()
            .iter()
            .rev()
            .find(|row| row["role"] == "user" && results_of(row).is_empty())
            .map(|row| flat_text(&row["content"]))
            .unwrap_or_default()
    }

    /// The body as text.
    pub fn body_text(&self) -> String {
        String::from_utf8_lossy(&self.raw).into_owned()
    }
}

/// Tool results in one row: a `tool` row, a `user` row with `tool_result` blocks, or an item.
fn results_of(row: &Value) -> Vec<ToolResult> {
    if row["role"] == "tool" {
        return vec![result(&row["tool_call_id"], &row["content"])];
    }
    if row["type"] == "function_call_output" {
        return vec![result(&row["call_id"], &row["output"])];
    }
    row["content"]
        .as_array()
        .into_iter()
        .flatten()
        .filter(|block| block["type"] == "tool_result")
        .map(|block| result(&block["tool_use_id"], &block["content"]))
        .collect()
}

fn result(id: &Value, content: &Value) -> ToolResult {
    ToolResult {
        id: id.as_str().unwrap_or_default().to_owned(),
        text: flat_text(content),
    }
}

/// The text of a string or of a list of parts.
fn flat_text(content: &Value) -> String {
    match content {
        Value::String(text) => text.clone(),
        Value::Array(parts) => parts
            .iter()
            .filter_map(|part| part["text"].as_str())
            .collect::<Vec<_>>()
            .join("\n"),
        _ => String::new(),
    }
}

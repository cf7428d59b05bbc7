//! Messages to rows and back.

use hermes_core::message::{
    AssistantMessage, BlobKind, Content, FinishReason, Message, ToolCall, ToolMessage, UserMessage,
    WireBlob,
};
use hermes_core::store::NewItem;
use rusqlite::types::Value as SqlValue;
use rusqlite::{Connection, Row};
use serde_json::{Map, Value};

use super::connection::DbError;
use super::layout::SchemaLayout;
use super::message_authors::MessageAuthor;
use super::pyjson;

/// Marks content that is not plain text. NUL cannot occur in text, so it is unambiguous.
pub(crate) const JSON_MARK: &str = "\0json:";

/// The columns of a message that this program writes.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct MessageRow {
    pub role: String,
    pub content: Option<String>,
    pub tool_call_id: Option<String>,
    pub tool_calls: Option<String>,
    pub tool_name: Option<String>,
    pub effect_disposition: Option<String>,
    pub timestamp: f64,
    pub token_count: Option<i64>,
    pub finish_reason: Option<String>,
    pub reasoning: Option<String>,
    pub reasoning_content: Option<String>,
    pub reasoning_details: Option<String>,
    pub codex_reasoning_items: Option<String>,
    pub codex_message_items: Option<String>,
    pub platform_message_id: Option<String>,
    pub observed: bool,
    pub api_content: Option<String>,
    /// Not a column: what the message adds to `tool_call_count`.
    pub calls: i64,
    /// Not a column: which model wrote it, stored in a separate table.
    pub writer: Option<MessageAuthor>,
}

impl MessageRow {
    pub(crate) fn new(item: &NewItem) -> Self {
        let mut row = Self {
            role: item.message.role().to_owned(),
            timestamp: item.at,
            token_count: item.token_count.map(i64::from),
            platform_message_id: item.platform_message_id.clone(),
            ..Self::default()
        };
        match &item.message {
            Message::User(user) => {
                row.content = Some(encode_content(&user.content));
                row.api_content.clone_from(&user.wire_text);
            }
            Message::Assistant(assistant) => row.fill_assistant(assistant),
            Message::Tool(tool) => {
                row.content = Some(encode_content(&tool.content));
                row.tool_call_id = Some(tool.call_id.clone());
                row.tool_name = Some(tool.name.clone());
                row.effect_disposition.clone_from(&tool.disposition);
            }
        }
        row
    }

    fn fill_assistant(&mut self, message: &AssistantMessage) {
        self.writer = MessageAuthor::from_message(message);
        self.content = Some(encode_text(&message.text));
        self.finish_reason = message.finish.as_ref().map(|why| why.as_str().to_owned());
        self.reasoning.clone_from(&message.reasoning);
        self.reasoning_content.clone_from(&message.reasoning);
        if !message.tool_calls.is_empty() {
            self.calls = message.tool_calls.len() as i64;
            let calls = message.tool_calls.iter().map(encode_call).collect();
            self.tool_calls = Some(pyjson::dumps(&Value::Array(calls)));
        }
        self.reasoning_details = blobs(message, BlobKind::ReasoningDetails);
        self.codex_reasoning_items = blobs(message, BlobKind::ResponsesReasoning);
        self.codex_message_items = blobs(message, BlobKind::ResponsesMessage);
        let own = message
            .blobs
            .iter()
            .find(|blob| blob.kind == BlobKind::ReasoningContent);
        if let Some(text) = own.and_then(|blob| blob.value.as_str()) {
            self.reasoning_content = Some(text.to_owned());
        }
    }

    /// Inserts the row. Columns are named, and only those that the table has.
    pub(crate) fn insert(
        &self,
        conn: &Connection,
        layout: &SchemaLayout,
        session: &str,
    ) -> Result<i64, DbError> {
        let all: [(&str, SqlValue); 19] = [
            ("session_id", session.to_owned().into()),
            ("role", self.role.clone().into()),
            ("content", self.content.clone().into()),
            ("tool_call_id", self.tool_call_id.clone().into()),
            ("tool_calls", self.tool_calls.clone().into()),
            ("tool_name", self.tool_name.clone().into()),
            ("effect_disposition", self.effect_disposition.clone().into()),
            ("timestamp", self.timestamp.into()),
            ("token_count", self.token_count.into()),
            ("finish_reason", self.finish_reason.clone().into()),
            ("reasoning", self.reasoning.clone().into()),
            ("reasoning_content", self.reasoning_content.clone().into()),
            ("reasoning_details", self.reasoning_details.clone().into()),
            (
                "codex_reasoning_items",
                self.codex_reasoning_items.clone().into(),
            ),
            (
                "codex_message_items",
                self.codex_message_items.clone().into(),
            ),
            (
                "platform_message_id",
                self.platform_message_id.clone().into(),
            ),
            ("observed", i64::from(self.observed).into()),
            ("active", 1_i64.into()),
            ("api_content", self.api_content.clone().into()),
        ];
        let (names, values): (Vec<&str>, Vec<SqlValue>) = all
            .into_iter()
            .filter(|(name, _)| layout.has_column("messages", name))
            .unzip();
        let sql = format!(
            "INSERT INTO messages ({}) VALUES ({})",
            names.join(", "),
            vec!["?"; names.len()].join(", ")
        );
        conn.prepare_cached(&sql)?
            .execute(rusqlite::params_from_iter(values))?;
        let row = conn.last_insert_rowid();
        if let Some(writer) = &self.writer {
            writer.insert(conn, session, row)?;
        }
        Ok(row)
    }
}

/// Text that happens to begin with the mark must not be decoded as JSON.
fn encode_text(text: &str) -> String {
    if text.starts_with(JSON_MARK) {
        format!("{JSON_MARK}{}", pyjson::dumps(&Value::from(text)))
    } else {
        text.to_owned()
    }
}

pub(crate) fn encode_content(content: &Content) -> String {
    match content {
        Content::Text(text) => encode_text(text),
        Content::Parts(_) => match serde_json::to_value(content) {
            Ok(value) => format!("{JSON_MARK}{}", pyjson::dumps(&value)),
            Err(_) => content.text().into_owned(),
        },
    }
}

/// The value of a content column as JSON: a string, a list of parts, or null.
pub(crate) fn decode_content_value(column: Option<String>) -> Value {
    let Some(text) = column else {
        return Value::Null;
    };
    match text.strip_prefix(JSON_MARK).map(serde_json::from_str) {
        Some(Ok(value)) => value,
        // Invalid JSON is kept as plain text.
        Some(Err(_)) | None => Value::String(text),
    }
}

pub(crate) fn decode_content(column: Option<String>) -> Content {
    match decode_content_value(column) {
        Value::Null => Content::Text(String::new()),
        Value::String(text) => Content::Text(text),
        other => match serde_json::from_value(other.clone()) {
            Ok(content) => content,
            Err(_) => Content::Parts(vec![hermes_core::message::Part::Other(other)]),
        },
    }
}

fn encode_call(call: &ToolCall) -> Value {
    let mut entry = Map::new();
    entry.insert("id".to_owned(), call.id.clone().into());
    entry.insert("call_id".to_owned(), call.id.clone().into());
    let item = call
        .response_item_id
        .clone()
        .unwrap_or_else(|| derived_item_id(&call.id));
    entry.insert("response_item_id".to_owned(), item.into());
    entry.insert("type".to_owned(), "function".into());
    let mut function = Map::new();
    function.insert("name".to_owned(), call.name.clone().into());
    function.insert("arguments".to_owned(), call.arguments.clone().into());
    entry.insert("function".to_owned(), function.into());
    if let Some(extra) = &call.extra {
        entry.insert("extra_content".to_owned(), extra.clone());
    }
    entry.into()
}

/// The id that the responses format requires for a call that came in another format.
fn derived_item_id(call_id: &str) -> String {
    let id = call_id.trim();
    if id.starts_with("fc_") {
        return id.to_owned();
    }
    if let Some(rest) = id.strip_prefix("call_").filter(|rest| !rest.is_empty()) {
        return format!("fc_{rest}");
    }
    let clean: String = id
        .chars()
        .filter(|ch| ch.is_ascii_alphanumeric() || matches!(ch, '_' | '-'))
        .take(48)
        .collect();
    format!("fc_{clean}")
}

fn decode_call(value: &Value) -> Option<ToolCall> {
    let text = |name: &str| value.get(name).and_then(Value::as_str);
    let function = value.get("function")?;
    let id = text("call_id")
        .or_else(|| text("id"))
        .unwrap_or_default()
        .to_owned();
    let arguments = match function.get("arguments") {
        None | Some(Value::Null) => "{}".to_owned(),
        Some(Value::String(text)) => text.clone(),
        Some(other) => pyjson::dumps(other),
    };
    Some(ToolCall {
        // A derived id carries no information; omitting it makes encoding and decoding inverse.
        response_item_id: text("response_item_id")
            .filter(|item| *item != derived_item_id(&id))
            .map(str::to_owned),
        id,
        name: function.get("name")?.as_str()?.to_owned(),
        arguments,
        extra: value
            .get("extra_content")
            .filter(|extra| !extra.is_null())
            .cloned(),
    })
}

fn blobs(message: &AssistantMessage, kind: BlobKind) -> Option<String> {
    let mut values: Vec<&Value> = message
        .blobs
        .iter()
        .filter(|blob| blob.kind == kind)
        .map(|blob| &blob.value)
        .collect();
    match (values.len(), values.pop()) {
        (_, None) => None,
        (1, Some(value)) => Some(pyjson::dumps(value)),
        (_, Some(last)) => {
            values.push(last);
            let flat = values.into_iter().flat_map(|value| match value {
                Value::Array(items) => items.clone(),
                other => vec![other.clone()],
            });
            Some(pyjson::dumps(&Value::Array(flat.collect())))
        }
    }
}

/// The columns that [`decode_message`] reads.
pub(crate) const MESSAGE_COLUMNS: &[&str] = &[
    "id",
    "role",
    "content",
    "tool_call_id",
    "tool_calls",
    "tool_name",
    "effect_disposition",
    "timestamp",
    "finish_reason",
    "reasoning",
    "reasoning_content",
    "reasoning_details",
    "codex_reasoning_items",
    "codex_message_items",
    "api_content",
];

/// A row as a message. `None`: a row that is not part of the conversation.
pub(crate) fn decode_message(row: &Row<'_>) -> Result<Option<Message>, rusqlite::Error> {
    let role: String = row.get("role")?;
    let content: Option<String> = lenient_text(row, "content")?;
    Ok(match role.as_str() {
        "user" | "system" | "developer" => Some(Message::User(UserMessage {
            content: decode_content(content),
            wire_text: lenient_text(row, "api_content")?.filter(|text| !text.is_empty()),
        })),
        "assistant" => Some(Message::Assistant(decode_assistant(row, content)?)),
        "tool" => Some(Message::Tool(ToolMessage {
            call_id: lenient_text(row, "tool_call_id")?.unwrap_or_default(),
            name: lenient_text(row, "tool_name")?.unwrap_or_default(),
            content: decode_content(content),
            disposition: lenient_text(row, "effect_disposition")?,
        })),
        _ => None,
    })
}

fn decode_assistant(
    row: &Row<'_>,
    content: Option<String>,
) -> Result<AssistantMessage, rusqlite::Error> {
    let calls =
        lenient_text(row, "tool_calls")?.and_then(|text| serde_json::from_str::<Value>(&text).ok());
    let tool_calls = match calls {
        Some(Value::Array(calls)) => calls.iter().filter_map(decode_call).collect(),
        _ => Vec::new(),
    };
    let reasoning = lenient_text(row, "reasoning")?.filter(|text| !text.is_empty());
    let mut blobs = Vec::new();
    let columns = [
        ("reasoning_details", BlobKind::ReasoningDetails),
        ("codex_reasoning_items", BlobKind::ResponsesReasoning),
        ("codex_message_items", BlobKind::ResponsesMessage),
    ];
    for (column, kind) in columns {
        let value = lenient_text(row, column)?.and_then(|text| serde_json::from_str(&text).ok());
        if let Some(value) = value {
            blobs.push(WireBlob {
                kind,
                issuer: None,
                value,
            });
        }
    }
    let replayed = lenient_text(row, "reasoning_content")?;
    if let Some(text) = replayed.filter(|text| Some(text) != reasoning.as_ref()) {
        blobs.push(WireBlob {
            kind: BlobKind::ReasoningContent,
            issuer: None,
            value: text.into(),
        });
    }
    Ok(AssistantMessage {
        text: decode_content(content).text().into_owned(),
        reasoning,
        tool_calls,
        finish: lenient_text(row, "finish_reason")?.map(|why| FinishReason::parse(&why)),
        blobs,
        written_by: None,
    })
}

/// The text of a column of any storage type; invalid UTF-8 is replaced rather than fatal.
pub(crate) fn lenient_text(row: &Row<'_>, column: &str) -> Result<Option<String>, rusqlite::Error> {
    use rusqlite::types::ValueRef;
    Ok(match row.get_ref(column)? {
        ValueRef::Null => None,
        ValueRef::Integer(number) => Some(number.to_string()),
        ValueRef::Real(number) => Some(number.to_string()),
        ValueRef::Text(bytes) | ValueRef::Blob(bytes) => {
            Some(String::from_utf8_lossy(bytes).into_owned())
        }
    })
}

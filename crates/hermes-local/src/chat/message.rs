//! Messages in a form that any template accepts.

use serde_json::{Value, json};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChatRole {
    System,
    User,
    Assistant,
    Tool,
}

impl ChatRole {
    pub fn name(self) -> &'static str {
        match self {
            ChatRole::System => "system",
            ChatRole::User => "user",
            ChatRole::Assistant => "assistant",
            ChatRole::Tool => "tool",
        }
    }
}

#[derive(Clone, Debug)]
pub struct PromptMessage {
    pub role: ChatRole,
    pub content: String,
    /// Calls by the assistant.
    pub calls: Vec<PromptCall>,
    /// The call that a tool result belongs to, and the tool's name if known.
    pub answers: Option<(String, Option<String>)>,
}

#[derive(Clone, Debug)]
pub struct PromptCall {
    pub id: String,
    pub name: String,
    pub arguments: Value,
}

/// A tool as it is offered.
#[derive(Clone, Debug)]
pub struct PromptTool {
    pub name: String,
    pub description: String,
    pub parameters: Option<Value>,
}

impl PromptMessage {
    pub fn new(role: ChatRole, content: impl Into<String>) -> Self {
        Self {
            role,
            content: content.into(),
            calls: Vec::new(),
            answers: None,
        }
    }

    pub(super) fn to_json(&self) -> Value {
        let mut message = json!({ "role": self.role.name(), "content": self.content });
        if !self.calls.is_empty() {
            let calls = self.calls.iter().map(|call| {
                json!({
                    "id": call.id,
                    "type": "function",
                    "function": { "name": call.name, "arguments": call.arguments },
                })
            });
            message["tool_calls"] = calls.collect();
        }
        if let Some((id, name)) = &self.answers {
            message["tool_call_id"] = json!(id);
            if let Some(name) = name {
                message["name"] = json!(name);
            }
        }
        message
    }
}

impl PromptTool {
    pub(super) fn to_json(&self) -> Value {
        let none = || json!({ "type": "object", "properties": {} });
        json!({
            "type": "function",
            "function": {
                "name": self.name,
                "description": self.description,
                "parameters": self.parameters.clone().unwrap_or_else(none),
            },
        })
    }
}

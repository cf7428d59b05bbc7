//! Tools for templates that do not support them: a block in the system message, and calls and results as text.

use serde_json::Value;

use super::message::{ChatRole, PromptMessage, PromptTool};
use super::template::to_json;
use crate::grammar::CallStyle;

/// The messages with everything about tools as text.
pub(super) fn plain(messages: &[PromptMessage], tools: &[PromptTool]) -> Vec<PromptMessage> {
    let mut plain: Vec<PromptMessage> = Vec::with_capacity(messages.len() + 1);
    for message in messages {
        match message.role {
            ChatRole::Tool => {
                let text = format!("<tool_response>\n{}\n</tool_response>", message.content);
                match plain.last_mut() {
                    // Results of several calls are one turn.
                    Some(last) if last.answers.is_some() => {
                        last.content.push('\n');
                        last.content.push_str(&text);
                    }
                    _ => plain.push(PromptMessage {
                        answers: message.answers.clone(),
                        ..PromptMessage::new(ChatRole::User, text)
                    }),
                }
            }
            ChatRole::Assistant if !message.calls.is_empty() => {
                plain.push(PromptMessage::new(ChatRole::Assistant, with_calls(message)));
            }
            role => plain.push(PromptMessage::new(role, message.content.clone())),
        }
    }
    for message in &mut plain {
        message.answers = None;
    }
    if !tools.is_empty() {
        let block = block(tools);
        match plain.first_mut() {
            Some(first) if first.role == ChatRole::System => {
                first.content.push_str("\n\n");
                first.content.push_str(&block);
            }
            _ => plain.insert(0, PromptMessage::new(ChatRole::System, block)),
        }
    }
    plain
}

fn with_calls(message: &PromptMessage) -> String {
    let style = CallStyle::Tagged;
    let mut text = message.content.trim_end().to_owned();
    for call in &message.calls {
        if !text.is_empty() {
            text.push_str(style.between());
        }
        for part in [
            style.marker(),
            style.open(),
            &call.name,
            style.middle(),
            &to_json(&call.arguments),
            style.close(),
        ] {
            text.push_str(part);
        }
    }
    text
}

fn block(tools: &[PromptTool]) -> String {
    let mut block = String::from(
        "These tools can be called. Each line is one tool: its name, what it does, and the JSON \
         schema of its arguments.\n",
    );
    for tool in tools {
        let all = tool.to_json();
        block.push_str(&to_json(&all["function"]));
        block.push('\n');
    }
    block.push_str(
        "When a tool is needed to answer, reply with nothing but the call:\n<tool_call>\n\
         {\"name\": \"the tool's name\", \"arguments\": {…}}\n</tool_call>\n\
         The result comes in the next message. When no tool is needed, answer in plain words.",
    );
    block
}

/// A conversation with a tool, to find out whether a template supports them.
pub(super) fn rehearsal() -> (Vec<PromptMessage>, Vec<PromptTool>) {
    let call = super::message::PromptCall {
        id: "call_1".to_owned(),
        name: "rehearse_scene".to_owned(),
        arguments: serde_json::json!({ "line": "to be or not" }),
    };
    let messages = vec![
        PromptMessage::new(ChatRole::System, "You act."),
        PromptMessage::new(ChatRole::User, "Begin."),
        PromptMessage {
            calls: vec![call],
            ..PromptMessage::new(ChatRole::Assistant, "")
        },
        PromptMessage {
            answers: Some(("call_1".to_owned(), Some("rehearse_scene".to_owned()))),
            ..PromptMessage::new(ChatRole::Tool, "that is the question")
        },
    ];
    let tools = vec![PromptTool {
        name: "rehearse_scene".to_owned(),
        description: "Says a line on stage.".to_owned(),
        parameters: Some(Value::Null),
    }];
    (messages, tools)
}

/// What a template with tool support shows of the test conversation.
pub(super) const REHEARSAL_TEXTS: [&str; 3] = ["on stage", "to be or not", "that is the question"];

//! The ten tools of `hermes mcp serve`: names, arguments, results.

use std::time::Duration;

use hermes_config::Home;
use hermes_gateway::control::{self, ControlRequest};
use serde_json::{Value, json};

use super::conversations::ServedConversations;
use super::events;
use crate::commands::Context;

/// What the tools work on.
pub(super) struct ServeTools {
    conversations: ServedConversations,
    home: Home,
    /// Messages up to this row were there before us.
    base: i64,
}

impl ServeTools {
    pub(super) async fn open(cx: &Context) -> Self {
        let conversations = ServedConversations::new(cx.home.clone());
        // Without a readable database there is nothing old.
        let base = events::newest(&conversations).await.unwrap_or(0);
        Self {
            conversations,
            home: cx.home.clone(),
            base,
        }
    }

    /// The result of `tools/call`.
    pub(super) async fn call(&self, name: &str, arguments: &Value) -> Value {
        let result = match self.run(name, &Arguments(arguments)).await {
            Ok(value) => (value, false),
            Err(text) => (json!({"error": text}), true),
        };
        let text = serde_json::to_string_pretty(&result.0).unwrap_or_default();
        json!({"content": [{"type": "text", "text": text}], "isError": result.1})
    }

    async fn run(&self, name: &str, args: &Arguments<'_>) -> Result<Value, String> {
        let all = &self.conversations;
        match name {
            "conversations_list" => {
                let limit = args.number("limit", 50, 1, 200) as usize;
                all.list(args.text("platform"), args.text("search"), limit)
                    .await
            }
            "conversation_get" => all.get(args.needed("session_key")?).await,
            "messages_read" => {
                let limit = args.number("limit", 50, 1, 200) as usize;
                all.messages(args.needed("session_key")?, limit).await
            }
            "attachments_fetch" => {
                all.attachments(args.needed("session_key")?, args.needed("message_id")?)
                    .await
            }
            "channels_list" => all.channels(args.text("platform")).await,
            "events_poll" => {
                let after = args.number("after_cursor", 0, 0, i64::MAX).max(self.base);
                let limit = args.number("limit", 20, 1, 200) as usize;
                let events = events::after(all, after, args.text("session_key"), limit).await?;
                let next = events.last().map_or(after, |event| event.cursor);
                Ok(json!({"events": events, "next_cursor": next}))
            }
            "events_wait" => {
                let after = args.number("after_cursor", 0, 0, i64::MAX).max(self.base);
                let wait = args.number("timeout_ms", 30_000, 0, 300_000) as u64;
                let wait = Duration::from_millis(wait);
                let event = events::wait(all, after, args.text("session_key"), wait).await?;
                Ok(match event {
                    Some(event) => json!({"event": event}),
                    None => json!({"event": null, "reason": "timeout"}),
                })
            }
            "messages_send" => {
                let target = args.needed("target")?.to_owned();
                let message = args.needed("message")?.to_owned();
                self.gateway(ControlRequest::Send { target, message }).await
            }
            "permissions_list_open" => match self.gateway(ControlRequest::Permissions).await {
                // Without a gateway no turn of a chat can wait.
                Err(why) if why.contains(NO_GATEWAY) => {
                    Ok(json!({"count": 0, "approvals": [], "note": why}))
                }
                answer => answer,
            },
            "permissions_respond" => {
                let id = args.needed("id")?.to_owned();
                let decision = args.needed("decision")?.to_owned();
                self.gateway(ControlRequest::Decide { id, decision }).await
            }
            other => Err(format!("no tool {other:?}")),
        }
    }
}

impl ServeTools {
    /// Asks the gateway that runs on this home.
    async fn gateway(&self, request: ControlRequest) -> Result<Value, String> {
        let answer = control::ask(self.home.root(), request).await;
        answer.map_err(|error| error.to_string())
    }
}

/// How an answer without a gateway begins.
const NO_GATEWAY: &str = "no gateway is running";

struct Arguments<'a>(&'a Value);

impl<'a> Arguments<'a> {
    fn text(&self, key: &str) -> Option<&'a str> {
        let text = self.0.get(key).and_then(Value::as_str)?;
        Some(text).filter(|text| !text.trim().is_empty())
    }

    fn needed(&self, key: &str) -> Result<&'a str, String> {
        self.text(key).ok_or_else(|| format!("{key} is missing"))
    }

    /// Numbers and texts of numbers, within bounds.
    fn number(&self, key: &str, default: i64, min: i64, max: i64) -> i64 {
        let given = match self.0.get(key) {
            Some(Value::Number(number)) => number.as_i64(),
            Some(Value::String(text)) => text.trim().parse().ok(),
            _ => None,
        };
        given.unwrap_or(default).clamp(min, max)
    }
}

pub(super) fn is_known(name: &str) -> bool {
    listing().iter().any(|tool| tool["name"] == name)
}

/// What `tools/list` says.
pub(super) fn listing() -> Vec<Value> {
    let text = |about: &str| json!({"type": "string", "description": about});
    let number = |about: &str, default: i64| json!({"type": "integer", "default": default, "description": about});
    let key = text("Key of the conversation, as conversations_list gives it");
    let platform = text("Only this platform, e.g. telegram or cli");
    vec![
        tool(
            "conversations_list",
            "Lists conversations, latest first, with the keys that the other tools take.",
            &json!({"platform": platform, "limit": number("How many at most", 50), "search": text("Part of the name or key")}),
            &[],
        ),
        tool(
            "conversation_get",
            "Describes one conversation: platform, names, times, tokens.",
            &json!({"session_key": key}),
            &["session_key"],
        ),
        tool(
            "messages_read",
            "Reads the latest messages of a conversation, oldest first.",
            &json!({"session_key": key, "limit": number("How many at most", 50)}),
            &["session_key"],
        ),
        tool(
            "attachments_fetch",
            "Lists images and files of one message.",
            &json!({"session_key": key, "message_id": text("Id of the message, as messages_read gives it")}),
            &["session_key", "message_id"],
        ),
        tool(
            "events_poll",
            "Returns the messages since a cursor, from all conversations or one.",
            &json!({"after_cursor": number("Where the last poll ended; 0 at first", 0), "session_key": key, "limit": number("How many at most", 20)}),
            &[],
        ),
        tool(
            "events_wait",
            "Waits for the next message and returns it.",
            &json!({"after_cursor": number("Where the last poll ended; 0 at first", 0), "session_key": key, "timeout_ms": number("How long to wait", 30_000)}),
            &[],
        ),
        tool(
            "messages_send",
            "Sends a message to a chat of a platform. Needs a running gateway.",
            &json!({"target": text("platform:chat, as channels_list gives it, or a platform alone for its home channel"), "message": text("What to send")}),
            &["target", "message"],
        ),
        tool(
            "channels_list",
            "Lists chats that messages can be sent to.",
            &json!({"platform": platform}),
            &[],
        ),
        tool(
            "permissions_list_open",
            "Lists actions in chats that wait for a person's permission.",
            &json!({}),
            &[],
        ),
        tool(
            "permissions_respond",
            "Allows or denies an action that waits. Needs a running gateway.",
            &json!({"id": text("Id of the request"), "decision": {"type": "string", "enum": ["allow-once", "allow-always", "deny"]}}),
            &["id", "decision"],
        ),
    ]
}

fn tool(name: &str, description: &str, properties: &Value, required: &[&str]) -> Value {
    json!({
        "name": name,
        "description": description,
        "inputSchema": {"type": "object", "properties": properties, "required": required},
        "annotations": {"readOnlyHint": !matches!(name, "messages_send" | "permissions_respond")},
    })
}

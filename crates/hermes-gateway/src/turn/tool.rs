//! `send_message`: the agent writes to another chat. The message is stored like any other and
//! appears in that chat's transcript.

use std::fmt::Write as _;
use std::sync::Arc;

use hermes_core::BoxFuture;
use hermes_core::tool::{
    Effects, Tool, ToolArgs, ToolContext, ToolErrorKind, ToolOutcome, ToolSpec,
};
use hermes_platforms::{MirrorRole, Posting};
use hermes_store::delivery::Target;
use serde_json::{Value, json};

use super::post::MessagePoster;
use super::shared::GatewayShared;

struct SendMessageTool {
    spec: ToolSpec,
    post: MessagePoster,
    shared: Arc<GatewayShared>,
    /// The calling chat.
    origin: Target,
    key: String,
}

pub(super) fn send_message(
    shared: &Arc<GatewayShared>,
    origin: Target,
    key: String,
) -> Arc<dyn Tool> {
    Arc::new(SendMessageTool {
        spec: spec(),
        post: MessagePoster::new(Arc::clone(shared)),
        shared: Arc::clone(shared),
        origin,
        key,
    })
}

fn spec() -> ToolSpec {
    let parameters = json!({
        "type": "object",
        "properties": {
            "action": {
                "type": "string",
                "enum": ["send", "list", "react", "unreact"],
                "description": "send (default) writes a message; list shows the chats that can be written to; react puts an emoji on a message, unreact takes it away."
            },
            "target": {
                "type": "string",
                "description": "Where to: a platform alone is its home channel (telegram); platform:chat_id, platform:chat_id:thread_id, or platform:#name of a listed chat; origin is the chat of this conversation."
            },
            "message": {
                "type": "string",
                "description": "The text, in markdown. A line MEDIA:/absolute/path sends that file."
            },
            "emoji": {
                "type": "string",
                "description": "For react: the emoji."
            },
            "message_id": {
                "type": "string",
                "description": "For react and unreact: the message. Left out: the latest one of the person in that chat."
            }
        },
        "required": []
    });
    ToolSpec {
        name: "send_message".to_owned(),
        description: "Write to another chat on a connected platform, or list the chats there are. Your answer in this conversation is delivered by itself: do not send it with this. When a person or channel is named, list first and use the target shown there; when only a platform is named, send to it directly.".to_owned(),
        parameters: Arc::new(parameters),
        toolset: "messaging",
        effects: Effects::Exclusive,
        untrusted: false,
    }
}

impl Tool for SendMessageTool {
    fn spec(&self) -> &ToolSpec {
        &self.spec
    }

    fn call<'a>(&'a self, args: ToolArgs, cx: &'a ToolContext) -> BoxFuture<'a, ToolOutcome> {
        Box::pin(async move {
            let text = |name: &str| args.get(name).and_then(Value::as_str).map(str::trim);
            match text("action").unwrap_or("send") {
                "list" => ToolOutcome::json(&json!({ "targets": self.list() })),
                "send" => self.send(text("target"), text("message"), cx).await,
                "react" => match text("emoji").filter(|emoji| !emoji.is_empty()) {
                    None => bad("react needs an emoji"),
                    emoji => self.react(text("target"), text("message_id"), emoji).await,
                },
                "unreact" => self.react(text("target"), text("message_id"), None).await,
                other => bad(format!(
                    "{other:?} is not an action: send, list, react or unreact"
                )),
            }
        })
    }
}

fn bad(text: impl Into<String>) -> ToolOutcome {
    ToolOutcome::error(ToolErrorKind::BadArguments, text)
}

impl SendMessageTool {
    fn list(&self) -> String {
        let mut text = String::new();
        for platform in self.shared.settings.enabled() {
            if self.shared.home_channel(&platform.name).is_some() {
                let _ = writeln!(text, "{} (home channel)", platform.name);
            }
        }
        for one in self.post.known() {
            let target = &one.target;
            let thread = target.thread_id.as_ref().map(|id| format!(":{id}"));
            let name = Value::from(one.name.chars().take(120).collect::<String>());
            let _ = writeln!(
                text,
                "{}:{}{} {name} ({})",
                target.platform,
                target.chat_id,
                thread.unwrap_or_default(),
                one.kind
            );
        }
        if text.is_empty() {
            text.push_str("no chats are known yet");
        }
        text
    }

    async fn send(
        &self,
        target: Option<&str>,
        message: Option<&str>,
        cx: &ToolContext,
    ) -> ToolOutcome {
        let Some(message) = message.filter(|message| !message.is_empty()) else {
            return bad("send needs a message");
        };
        let Some(target) = target.filter(|target| !target.is_empty()) else {
            return bad("send needs a target; list shows those that are known");
        };
        let target = match self.post.target(target, Some(&self.origin)) {
            Ok(target) => target,
            Err(error) => return bad(error.to_string()),
        };
        let shown = format!("{}:{}", target.platform, target.chat_id);
        // A call that is repeated after a crash yields the same message.
        let id = format!("send-{}-{}-{}", self.key, cx.session, cx.call_id);
        let mirror = (target != self.origin).then_some(MirrorRole::Assistant);
        let posting = Posting {
            id,
            target,
            text: message.to_owned(),
            files: true,
            mirror,
        };
        match self.post.send(posting).await {
            Ok(chunks) => ToolOutcome::json(&json!({
                "success": true, "target": shown, "messages": chunks,
                "note": "stored, and delivered as soon as the platform takes it",
            })),
            Err(error) => ToolOutcome::error(ToolErrorKind::Failed, error.to_string()),
        }
    }

    async fn react(
        &self,
        target: Option<&str>,
        message: Option<&str>,
        emoji: Option<&str>,
    ) -> ToolOutcome {
        let target = match self
            .post
            .target(target.unwrap_or("origin"), Some(&self.origin))
        {
            Ok(target) => target,
            Err(error) => return bad(error.to_string()),
        };
        let latest = self.shared.latest(&target);
        let Some(message) = message.map(str::to_owned).or(latest) else {
            return bad("which message? give message_id");
        };
        let Some(outbound) = self.shared.outbound(&target) else {
            let text = format!("{} is not connected", target.platform);
            return ToolOutcome::error(ToolErrorKind::Failed, text);
        };
        if !outbound.capabilities().reactions {
            let text = format!("{} has no reactions", target.platform);
            return ToolOutcome::error(ToolErrorKind::Failed, text);
        }
        outbound.react(&target, &message, emoji).await;
        ToolOutcome::json(&json!({"success": true}))
    }
}

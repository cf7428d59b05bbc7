//! Prompts of MCP servers as commands: `/mcp__<server>__<prompt> values`.

use std::sync::Arc;

use hermes_core::event::UserInput;
use hermes_core::fence;
use hermes_core::front_end::Effect;
use hermes_core::tool::ToolOutcome;
use hermes_mcp::{CallOptions, MediaStore, Op, ServerHandle, Toolbox, naming, prompt_outcome};
use serde_json::{Map, Value};

use crate::conversation::{CommandResult, Conversation};
use crate::failure::Failure;
use crate::front::CommandFollowUp;

/// The prefix of the commands.
const PREFIX: &str = "mcp__";

/// A prompt of a server.
struct ServerPrompt {
    server: String,
    name: String,
    about: String,
    arguments: Vec<PromptArgument>,
}

struct PromptArgument {
    name: String,
    required: bool,
}

impl ServerPrompt {
    fn read(server: &str, listed: &Value) -> Option<Self> {
        let text = |value: &Value, key: &str| value.get(key)?.as_str().map(str::to_owned);
        let arguments = listed.get("arguments").and_then(Value::as_array);
        let arguments = arguments.into_iter().flatten().filter_map(|one| {
            Some(PromptArgument {
                name: text(one, "name")?,
                required: one.get("required") == Some(&Value::Bool(true)),
            })
        });
        Some(Self {
            server: server.to_owned(),
            name: text(listed, "name")?,
            about: text(listed, "description").unwrap_or_default(),
            arguments: arguments.collect(),
        })
    }

    fn command(&self) -> String {
        naming::tool_name(&self.server, &self.name)
    }

    /// As it is typed.
    fn usage(&self) -> String {
        let mut text = format!("/{}", self.command());
        for argument in &self.arguments {
            let (open, close) = if argument.required {
                ("<", ">")
            } else {
                ("[", "]")
            };
            text = format!("{text} {open}{}{close}", argument.name);
        }
        text
    }

    /// Values by name (`name=value`) or position; the last one takes the remaining words.
    fn values(&self, rest: &str) -> Result<Map<String, Value>, Failure> {
        let mut given = Map::new();
        let mut words: Vec<&str> = Vec::new();
        for word in rest.split_whitespace() {
            let named = word
                .split_once('=')
                .filter(|(name, _)| self.arguments.iter().any(|argument| argument.name == *name));
            match named {
                Some((name, value)) => _ = given.insert(name.to_owned(), value.into()),
                None => words.push(word),
            }
        }
        let open: Vec<&PromptArgument> = self
            .arguments
            .iter()
            .filter(|argument| !given.contains_key(&argument.name))
            .collect();
        for (at, argument) in open.iter().enumerate() {
            let value = if at + 1 == open.len() {
                words.split_off(0).join(" ")
            } else if words.is_empty() {
                String::new()
            } else {
                words.remove(0).to_owned()
            };
            if !value.is_empty() {
                given.insert(argument.name.clone(), value.into());
            } else if argument.required {
                let text = format!("{} is missing: {}", argument.name, self.usage());
                return Err(Failure::usage(text));
            }
        }
        if words.is_empty() {
            Ok(given)
        } else {
            Err(Failure::usage(format!(
                "this prompt takes no more values: {}",
                self.usage()
            )))
        }
    }
}

/// The prompts of a server, cached from the connection or requested now.
async fn offered(handle: &ServerHandle) -> Vec<ServerPrompt> {
    let known = handle.catalogue().borrow().clone();
    let listed = match known.and_then(|known| known.prompts.clone()) {
        Some(listed) => listed.to_vec(),
        None => match handle.call(Op::ListPrompts, CallOptions::default()).await {
            Ok(output) => {
                let prompts = output.result.get("prompts").and_then(Value::as_array);
                prompts.cloned().unwrap_or_default()
            }
            // Not every server has prompts.
            Err(_) => Vec::new(),
        },
    };
    let server = handle.name();
    listed
        .iter()
        .filter_map(|one| ServerPrompt::read(server, one))
        .collect()
}

/// The cached prompts, one line each.
pub(super) fn known(toolbox: &Toolbox) -> Vec<String> {
    let mut lines = Vec::new();
    for name in toolbox.names() {
        let Some(handle) = toolbox.server(&name) else {
            continue;
        };
        let snapshot = handle.catalogue().borrow().clone();
        let listed = snapshot.and_then(|snapshot| snapshot.prompts.clone());
        for one in listed.iter().flat_map(|listed| listed.iter()) {
            if let Some(prompt) = ServerPrompt::read(&name, one) {
                lines.push(format!("  {}: {}", prompt.usage(), prompt.about));
            }
        }
    }
    lines
}

/// `/mcp__<server>__<prompt> values`: the server's result goes to the model. `None`: unknown
/// server.
pub(super) async fn use_prompt(
    conversation: &mut Conversation,
    typed: &str,
    rest: &str,
) -> Option<Result<CommandResult, Failure>> {
    let typed = typed.to_ascii_lowercase();
    let toolbox = conversation
        .chat
        .mcp
        .as_ref()
        .and_then(|mcp| mcp.toolbox())?;
    let begins = |name: &String| {
        let own = format!("{PREFIX}{}__", naming::component(name)).to_ascii_lowercase();
        typed.starts_with(&own)
    };
    let server = toolbox.names().into_iter().find(begins)?;
    let handle = toolbox.server(&server)?;
    Some(run(conversation, &handle, &typed, rest).await)
}

async fn run(
    conversation: &mut Conversation,
    handle: &ServerHandle,
    typed: &str,
    rest: &str,
) -> Result<CommandResult, Failure> {
    let mut all = offered(handle).await;
    let at = all
        .iter()
        .position(|prompt| prompt.command().to_ascii_lowercase() == typed);
    let Some(at) = at else {
        let names: Vec<String> = all.iter().map(ServerPrompt::usage).collect();
        let there = if names.is_empty() {
            "it offers none".to_owned()
        } else {
            names.join(", ")
        };
        let text = format!(
            "no prompt /{typed} of the MCP server {}: {there}",
            handle.name()
        );
        return Err(Failure::not_found(text));
    };
    let prompt = all.swap_remove(at);
    let arguments = prompt.values(rest)?;
    if let Some(result) = conversation
        .check_ready(format!("/{typed} {rest}").trim_end())
        .await?
    {
        return Ok(result);
    }
    let op = Op::GetPrompt {
        name: prompt.name.clone(),
        arguments,
    };
    let output = handle.call(op, CallOptions::default()).await;
    let output = output.map_err(|error| Failure::failed(error.to_string()))?;
    let media = Arc::new(MediaStore::new(
        conversation.cx.home.cache_dir().join("mcp"),
    ));
    let content = match prompt_outcome(&output.result, &media).await {
        ToolOutcome::Done(content) => content.text().into_owned(),
        ToolOutcome::Error { text, .. } => return Err(Failure::failed(text)),
    };
    let words = format!(
        "Follow the prompt {} of {}. {rest}",
        prompt.name, prompt.server
    );
    let words = words.trim_end().to_owned();
    let source = format!("MCP server {}", prompt.server);
    let input = UserInput {
        text: words.clone(),
        context: Some(format!(
            "The person chose this prompt:\n\n{}",
            fence::fence(&source, &content)
        )),
        ..UserInput::default()
    };
    let message = conversation.message(input);
    conversation.chat.send(message).await?;
    let result = CommandResult::info(format!(
        "with the prompt {} of {}",
        prompt.name, prompt.server
    ));
    Ok(result.and(Effect::Asked(words)).then(CommandFollowUp::Turn))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn prompt() -> ServerPrompt {
        let listed = json!({"name": "review-code", "description": "d", "arguments": [
            {"name": "file", "required": true}, {"name": "focus"}]});
        ServerPrompt::read("my server", &listed).unwrap()
    }

    #[test]
    fn values_are_taken_by_name_or_in_their_order() {
        let prompt = prompt();
        assert_eq!(
            prompt.usage(),
            "/mcp__my_server__review_code <file> [focus]"
        );
        let values = |rest: &str| prompt.values(rest).map(Value::Object).ok();
        assert_eq!(values("a.rs"), Some(json!({"file": "a.rs"})));
        assert_eq!(
            values("a.rs on the locks"),
            Some(json!({"file": "a.rs", "focus": "on the locks"}))
        );
        assert_eq!(
            values("focus=speed a.rs"),
            Some(json!({"file": "a.rs", "focus": "speed"}))
        );
        assert_eq!(
            values("x=1"),
            Some(json!({"file": "x=1"})),
            "no argument is called x"
        );
        let error = prompt.values("").unwrap_err();
        assert!(error.message.contains("file is missing"), "{error:?}");
        assert_eq!(values("focus=a file=b c"), None);
    }
}

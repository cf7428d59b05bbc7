//! Parses OpenAI's chat completion request.

use serde::Deserialize;
use serde_json::{Map, Value};

use super::error::ServerError;
use crate::chat::{ChatRole, PromptCall, PromptMessage, PromptTool, Thinking};
use crate::generation::{AnswerShape, GenerationRequest};
use crate::grammar::CallChoice;

/// Default temperature: small models lose the thread at higher ones.
const DEFAULT_TEMPERATURE: f32 = 0.2;
const DEFAULT_TOP_P: f32 = 0.9;
const MAX_STOPS: usize = 16;
const MAX_TOOLS: usize = 128;

/// What to answer, and how the answer is sent.
#[derive(Debug)]
pub(super) struct ParsedRequest {
    pub(super) ask: GenerationRequest,
    pub(super) stream: bool,
    /// Send the usage as a separate event.
    pub(super) usage: bool,
}

#[derive(Deserialize)]
struct RequestBody {
    messages: Vec<RequestMessage>,
    #[serde(default)]
    tools: Option<Vec<RequestTool>>,
    #[serde(default)]
    tool_choice: Option<Value>,
    #[serde(default)]
    parallel_tool_calls: Option<bool>,
    #[serde(default)]
    temperature: Option<f32>,
    #[serde(default)]
    top_p: Option<f32>,
    #[serde(default)]
    seed: Option<i64>,
    #[serde(default)]
    max_tokens: Option<u32>,
    #[serde(default)]
    max_completion_tokens: Option<u32>,
    #[serde(default)]
    stop: Option<Stops>,
    #[serde(default)]
    stream: Option<bool>,
    #[serde(default)]
    stream_options: Option<StreamOptions>,
    #[serde(default)]
    n: Option<u32>,
    #[serde(default)]
    logprobs: Option<bool>,
    #[serde(default)]
    response_format: Option<Value>,
    #[serde(default)]
    chat_template_kwargs: Option<Map<String, Value>>,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Stops {
    One(String),
    Many(Vec<String>),
}

#[derive(Deserialize)]
struct StreamOptions {
    #[serde(default)]
    include_usage: Option<bool>,
}

#[derive(Deserialize)]
struct RequestMessage {
    role: String,
    #[serde(default)]
    content: Option<Content>,
    #[serde(default)]
    tool_calls: Option<Vec<RequestToolCall>>,
    #[serde(default)]
    tool_call_id: Option<String>,
    #[serde(default)]
    name: Option<String>,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Content {
    Text(String),
    Parts(Vec<Part>),
}

#[derive(Deserialize)]
struct Part {
    r#type: String,
    #[serde(default)]
    text: Option<String>,
}

#[derive(Deserialize)]
struct RequestToolCall {
    #[serde(default)]
    id: Option<String>,
    function: RequestFunctionCall,
}

#[derive(Deserialize)]
struct RequestFunctionCall {
    name: String,
    #[serde(default)]
    arguments: Option<Value>,
}

#[derive(Deserialize)]
struct RequestTool {
    #[serde(default)]
    r#type: Option<String>,
    function: RequestFunction,
}

#[derive(Deserialize)]
struct RequestFunction {
    name: String,
    #[serde(default)]
    description: Option<String>,
    #[serde(default)]
    parameters: Option<Value>,
}

pub(super) fn read(bytes: &[u8]) -> Result<ParsedRequest, ServerError> {
    let body: RequestBody = serde_json::from_slice(bytes).map_err(|error| {
        ServerError::bad(format!(
            "the request is not a chat completion request: {error}"
        ))
        .code("invalid_request")
    })?;
    refuse(&body)?;
    let tools = tools(body.tools.unwrap_or_default())?;
    let (choice, only) = choice(body.tool_choice.as_ref(), &tools)?;
    let stops = match body.stop {
        None => Vec::new(),
        Some(Stops::One(stop)) => vec![stop],
        Some(Stops::Many(stops)) => stops,
    };
    if stops.len() > MAX_STOPS {
        let message = format!("at most {MAX_STOPS} stop sequences are possible");
        return Err(ServerError::bad(message).param("stop"));
    }
    let thinking = body.chat_template_kwargs.as_ref();
    let thinking = match thinking.and_then(|values| values.get("enable_thinking")) {
        Some(Value::Bool(true)) => Thinking::On,
        _ => Thinking::Off,
    };
    let ask = GenerationRequest {
        messages: messages(body.messages)?,
        tools,
        choice,
        only,
        parallel: body.parallel_tool_calls.unwrap_or(true),
        shape: shape(body.response_format.as_ref())?,
        thinking,
        temperature: between(body.temperature, DEFAULT_TEMPERATURE, 2.0, "temperature")?,
        top_p: between(body.top_p, DEFAULT_TOP_P, 1.0, "top_p")?,
        seed: body.seed.map_or_else(rand::random, |seed| seed as u64),
        max_tokens: max_tokens(body.max_completion_tokens.or(body.max_tokens))?,
        stops,
    };
    let options = body.stream_options;
    Ok(ParsedRequest {
        ask,
        stream: body.stream.unwrap_or(false),
        usage: options
            .and_then(|options| options.include_usage)
            .unwrap_or(false),
    })
}

/// Options that would otherwise be ignored silently.
fn refuse(body: &RequestBody) -> Result<(), ServerError> {
    if body.n.is_some_and(|n| n != 1) {
        return Err(ServerError::bad("this server gives one answer: n must be 1").param("n"));
    }
    if body.logprobs == Some(true) {
        let message = "this server does not tell log probabilities";
        return Err(ServerError::bad(message).param("logprobs"));
    }
    Ok(())
}

fn between(
    given: Option<f32>,
    default: f32,
    max: f32,
    name: &'static str,
) -> Result<f32, ServerError> {
    let value = given.unwrap_or(default);
    if (0.0..=max).contains(&value) {
        return Ok(value);
    }
    Err(ServerError::bad(format!("{name} is between 0 and {max}, not {value}")).param(name))
}

fn max_tokens(given: Option<u32>) -> Result<Option<usize>, ServerError> {
    match given {
        Some(0) => Err(ServerError::bad("max_tokens is at least 1").param("max_tokens")),
        given => Ok(given.map(|tokens| tokens as usize)),
    }
}

fn messages(messages_sent: Vec<RequestMessage>) -> Result<Vec<PromptMessage>, ServerError> {
    if messages_sent.is_empty() {
        return Err(ServerError::bad("messages is empty").param("messages"));
    }
    let mut messages: Vec<PromptMessage> = Vec::with_capacity(messages_sent.len());
    for (index, sent) in messages_sent.into_iter().enumerate() {
        let wrong = |what: String| {
            let message = format!("messages[{index}]: {what}");
            ServerError::bad(message)
                .param("messages")
                .code("invalid_messages")
        };
        let role = match sent.role.as_str() {
            "system" | "developer" => ChatRole::System,
            "user" => ChatRole::User,
            "assistant" => ChatRole::Assistant,
            "tool" => ChatRole::Tool,
            other => return Err(wrong(format!("there is no role {other:?}"))),
        };
        let mut message = PromptMessage::new(role, content(sent.content).map_err(wrong)?);
        for call in sent.tool_calls.unwrap_or_default() {
            message.calls.push(called(call).map_err(wrong)?);
        }
        if role == ChatRole::Tool {
            let id = sent.tool_call_id.unwrap_or_default();
            let mut calls = messages.iter().flat_map(|message| &message.calls);
            let called = calls.rfind(|call| call.id == id);
            let name = sent.name.or_else(|| called.map(|call| call.name.clone()));
            message.answers = Some((id, name));
        }
        messages.push(message);
    }
    Ok(messages)
}

fn content(content: Option<Content>) -> Result<String, String> {
    let parts = match content {
        None => return Ok(String::new()),
        Some(Content::Text(text)) => return Ok(text),
        Some(Content::Parts(parts)) => parts,
    };
    let mut all = String::new();
    for part in parts {
        match (part.r#type.as_str(), part.text) {
            ("text" | "input_text" | "output_text", Some(text)) => {
                if !all.is_empty() {
                    all.push('\n');
                }
                all.push_str(&text);
            }
            ("image_url" | "input_image" | "image", _) => {
                return Err("this model cannot see images: send text".to_owned());
            }
            (other, _) => {
                return Err(format!(
                    "a part of type {other:?} cannot be read: send text"
                ));
            }
        }
    }
    Ok(all)
}

fn called(call: RequestToolCall) -> Result<PromptCall, String> {
    let name = call.function.name;
    let arguments = match call.function.arguments {
        None => Value::Object(Map::new()),
        Some(Value::String(text)) if text.trim().is_empty() => Value::Object(Map::new()),
        // A call written by a model, well-formed or not, is shown as it was.
        Some(Value::String(text)) => serde_json::from_str(&text).unwrap_or(Value::String(text)),
        Some(value @ Value::Object(_)) => value,
        Some(_) => {
            return Err(format!(
                "the arguments of the call of {name:?} are not an object"
            ));
        }
    };
    Ok(PromptCall {
        id: call.id.unwrap_or_default(),
        name,
        arguments,
    })
}

fn tools(offered: Vec<RequestTool>) -> Result<Vec<PromptTool>, ServerError> {
    if offered.len() > MAX_TOOLS {
        let message = format!("at most {MAX_TOOLS} tools are possible");
        return Err(ServerError::bad(message).param("tools"));
    }
    let mut tools: Vec<PromptTool> = Vec::with_capacity(offered.len());
    for tool in offered {
        let kind = tool.r#type.as_deref().unwrap_or("function");
        if kind != "function" {
            let message = format!("a tool of type {kind:?} cannot be used: only functions can");
            return Err(ServerError::bad(message).param("tools"));
        }
        if tools.iter().any(|known| known.name == tool.function.name) {
            let message = format!("there are two tools called {:?}", tool.function.name);
            return Err(ServerError::bad(message).param("tools"));
        }
        tools.push(PromptTool {
            name: tool.function.name,
            description: tool.function.description.unwrap_or_default(),
            parameters: tool.function.parameters.filter(|schema| !schema.is_null()),
        });
    }
    Ok(tools)
}

fn choice(
    given: Option<&Value>,
    tools: &[PromptTool],
) -> Result<(CallChoice, Option<String>), ServerError> {
    let wrong = |message: String| ServerError::bad(message).param("tool_choice");
    match given {
        None | Some(Value::Null) => return Ok((CallChoice::Auto, None)),
        Some(Value::String(name)) => match name.as_str() {
            "auto" => return Ok((CallChoice::Auto, None)),
            "none" => return Ok((CallChoice::None, None)),
            "required" if tools.is_empty() => {
                return Err(wrong(
                    "a call is required, but no tool is offered".to_owned(),
                ));
            }
            "required" => return Ok((CallChoice::Required, None)),
            _ => {}
        },
        Some(value) => {
            if let Some(Value::String(name)) = value.pointer("/function/name") {
                if tools.iter().any(|tool| tool.name == *name) {
                    return Ok((CallChoice::Required, Some(name.clone())));
                }
                return Err(wrong(format!("the tool {name:?} is not offered")));
            }
        }
    }
    Err(wrong(
        "tool_choice is \"auto\", \"none\", \"required\" or the name of a function".to_owned(),
    ))
}

fn shape(given: Option<&Value>) -> Result<AnswerShape, ServerError> {
    let Some(given) = given.filter(|given| !given.is_null()) else {
        return Ok(AnswerShape::Text);
    };
    match given.get("type").and_then(Value::as_str) {
        Some("text") => Ok(AnswerShape::Text),
        Some("json_object") => Ok(AnswerShape::Json(serde_json::json!({ "type": "object" }))),
        Some("json_schema") => match given.pointer("/json_schema/schema") {
            Some(schema) => Ok(AnswerShape::Json(schema.clone())),
            None => Err(ServerError::bad("json_schema has no schema").param("response_format")),
        },
        _ => {
            let message = "response_format is of type text, json_object or json_schema";
            Err(ServerError::bad(message).param("response_format"))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn refused(body: &Value) -> String {
        let error = read(body.to_string().as_bytes()).unwrap_err();
        let error = error.to_json();
        error["error"]["message"].as_str().unwrap().to_owned()
    }

    fn with(key: &str, value: Value) -> Value {
        let mut body = json!({ "messages": [{ "role": "user", "content": "Hi" }] });
        body[key] = value;
        body
    }

    #[test]
    fn what_cannot_be_done_is_said() {
        let image = json!([{ "role": "user", "content": [
            { "type": "text", "text": "What is this?" },
            { "type": "image_url", "image_url": { "url": "data:image/png;base64,AA" } },
        ]}]);
        assert_eq!(
            refused(&with("messages", image)),
            "messages[0]: this model cannot see images: send text"
        );
        assert_eq!(refused(&with("messages", json!([]))), "messages is empty");
        assert_eq!(
            refused(&with(
                "messages",
                json!([{ "role": "robot", "content": "x" }])
            )),
            "messages[0]: there is no role \"robot\""
        );
        assert_eq!(
            refused(&with("n", json!(2))),
            "this server gives one answer: n must be 1"
        );
        assert_eq!(
            refused(&with("temperature", json!(3))),
            "temperature is between 0 and 2, not 3"
        );
        assert_eq!(
            refused(&with("tool_choice", json!("required"))),
            "a call is required, but no tool is offered"
        );
        assert_eq!(
            refused(&with("max_tokens", json!(0))),
            "max_tokens is at least 1"
        );
        assert!(refused(&with("stop", json!(3))).contains("not a chat completion request"));
    }

    #[test]
    fn a_whole_conversation_is_read() {
        let tool = json!({ "type": "function", "function": { "name": "look", "parameters": {} } });
        let body = json!({
            "model": "anything",
            "messages": [
                { "role": "developer", "content": "Be brief." },
                { "role": "user", "content": [{ "type": "text", "text": "a" }, { "type": "text", "text": "b" }] },
                { "role": "assistant", "content": null, "tool_calls": [
                    { "id": "c1", "type": "function", "function": { "name": "look", "arguments": "{\"a\": 1}" } },
                ]},
                { "role": "tool", "tool_call_id": "c1", "content": "seen" },
            ],
            "tools": [tool],
            "tool_choice": { "type": "function", "function": { "name": "look" } },
            "stop": "END",
            "seed": 7,
            "max_tokens": 5,
            "max_completion_tokens": 6,
            "stream": true,
            "stream_options": { "include_usage": true },
        });
        let wanted = read(body.to_string().as_bytes()).unwrap();
        assert!(wanted.stream && wanted.usage);
        let ask = wanted.ask;
        assert_eq!(ask.messages[0].role, ChatRole::System);
        assert_eq!(ask.messages[1].content, "a\nb");
        assert_eq!(ask.messages[2].calls[0].arguments, json!({ "a": 1 }));
        assert_eq!(
            ask.messages[3].answers,
            Some(("c1".to_owned(), Some("look".to_owned())))
        );
        assert_eq!(
            (ask.choice, ask.only.as_deref()),
            (CallChoice::Required, Some("look"))
        );
        assert_eq!((ask.max_tokens, ask.seed), (Some(6), 7));
        assert_eq!(ask.stops, ["END"]);
    }
}

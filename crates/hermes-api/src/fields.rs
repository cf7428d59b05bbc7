//! The accepted request fields. An accepted field has OpenAI's meaning or cannot change the answer;
//! all others are refused by name, so that no client relies on an ignored setting.

use axum::http::HeaderValue;
use axum::response::Response;
use serde_json::Value;

use super::error::ApiError;
use super::input::JsonObjectBody;

/// How a field is treated.
#[derive(Clone, Copy)]
enum RequestFieldRule {
    /// It is read.
    Read,
    /// It is about bookkeeping at OpenAI: the answer is the same without it.
    Inert,
    /// A sampling preference that most clients always send. The agent has its own; a response
    /// header reports it.
    Hint,
    /// Only the agent's fixed behaviour can be requested; the text names the alternative.
    Only(fn(&Value) -> bool, &'static str),
}

type FieldTable = &'static [(&'static str, RequestFieldRule)];

const SETTINGS: &str =
    "the agent makes several model calls per answer, with the settings of config.yaml";
const TOOLS: &str = "tools run on the server and are those of its configuration";
const PLAIN: &str = "answers are plain text";

/// Fields of all endpoints that start a turn.
const COMMON: FieldTable = &[
    ("model", RequestFieldRule::Read),
    ("session_id", RequestFieldRule::Read),
    ("session_key", RequestFieldRule::Read),
    ("metadata", RequestFieldRule::Inert),
    ("user", RequestFieldRule::Inert),
    ("safety_identifier", RequestFieldRule::Inert),
    ("prompt_cache_key", RequestFieldRule::Inert),
    ("prompt_cache_retention", RequestFieldRule::Inert),
    ("service_tier", RequestFieldRule::Inert),
    ("temperature", RequestFieldRule::Only(is_one, SETTINGS)),
    ("top_p", RequestFieldRule::Only(is_one, SETTINGS)),
    ("top_logprobs", RequestFieldRule::Only(is_zero, SETTINGS)),
    (
        "parallel_tool_calls",
        RequestFieldRule::Only(is_true, TOOLS),
    ),
    ("tools", RequestFieldRule::Only(is_empty, TOOLS)),
    ("tool_choice", RequestFieldRule::Only(is_auto, TOOLS)),
    (
        "background",
        RequestFieldRule::Only(
            is_false,
            "use POST /v1/runs for a turn that continues without a client",
        ),
    ),
];

const CHAT: FieldTable = &[
    ("temperature", RequestFieldRule::Hint),
    ("top_p", RequestFieldRule::Hint),
    ("seed", RequestFieldRule::Hint),
    ("frequency_penalty", RequestFieldRule::Hint),
    ("presence_penalty", RequestFieldRule::Hint),
    ("messages", RequestFieldRule::Read),
    ("stream", RequestFieldRule::Read),
    ("stream_options", RequestFieldRule::Read),
    ("store", RequestFieldRule::Inert),
    ("prediction", RequestFieldRule::Inert),
    (
        "n",
        RequestFieldRule::Only(is_one, "send the request again for another answer"),
    ),
    ("logprobs", RequestFieldRule::Only(is_false, SETTINGS)),
    ("logit_bias", RequestFieldRule::Only(is_empty, SETTINGS)),
    ("functions", RequestFieldRule::Only(is_empty, TOOLS)),
    ("function_call", RequestFieldRule::Only(is_auto, TOOLS)),
    ("modalities", RequestFieldRule::Only(is_text_only, PLAIN)),
    (
        "response_format",
        RequestFieldRule::Only(is_text_format, PLAIN),
    ),
    ("stop", RequestFieldRule::Only(is_empty, SETTINGS)),
];

const RESPONSES: FieldTable = &[
    ("temperature", RequestFieldRule::Hint),
    ("top_p", RequestFieldRule::Hint),
    ("input", RequestFieldRule::Read),
    ("instructions", RequestFieldRule::Read),
    ("previous_response_id", RequestFieldRule::Read),
    ("conversation", RequestFieldRule::Read),
    ("conversation_history", RequestFieldRule::Read),
    ("stream", RequestFieldRule::Read),
    ("store", RequestFieldRule::Read),
    (
        "truncation",
        RequestFieldRule::Only(is_truncation, "it is \"auto\" or \"disabled\""),
    ),
    ("stream_options", RequestFieldRule::Inert),
    ("include", RequestFieldRule::Only(is_empty, PLAIN)),
    ("text", RequestFieldRule::Only(is_text_settings, PLAIN)),
];

/// Like responses, but nothing is streamed or stored by choice.
const RUNS: FieldTable = &[
    ("input", RequestFieldRule::Read),
    ("instructions", RequestFieldRule::Read),
    ("previous_response_id", RequestFieldRule::Read),
    ("conversation", RequestFieldRule::Read),
    ("conversation_history", RequestFieldRule::Read),
    (
        "truncation",
        RequestFieldRule::Only(is_truncation, "it is \"auto\" or \"disabled\""),
    ),
    ("store", RequestFieldRule::Inert),
    (
        "stream",
        RequestFieldRule::Only(is_false, "follow GET /v1/runs/{id}/events"),
    ),
];

const SESSION_CHAT: FieldTable = &[
    ("message", RequestFieldRule::Read),
    ("input", RequestFieldRule::Read),
    ("system_message", RequestFieldRule::Read),
    ("instructions", RequestFieldRule::Read),
    (
        "stream",
        RequestFieldRule::Only(is_false, "use …/chat/stream"),
    ),
];

const SESSION_CHAT_STREAM: FieldTable = &[
    ("message", RequestFieldRule::Read),
    ("input", RequestFieldRule::Read),
    ("system_message", RequestFieldRule::Read),
    ("instructions", RequestFieldRule::Read),
    ("stream", RequestFieldRule::Only(is_true, "use …/chat")),
];

/// The endpoint of a request.
#[derive(Clone, Copy)]
pub(super) enum ApiEndpoint {
    Chat,
    Responses,
    Runs,
    /// A turn in a stored session.
    SessionChat,
    /// The same, streamed.
    SessionChatStream,
}

impl ApiEndpoint {
    fn own(self) -> FieldTable {
        match self {
            Self::Chat => CHAT,
            Self::Responses => RESPONSES,
            Self::Runs => RUNS,
            Self::SessionChat => SESSION_CHAT,
            Self::SessionChatStream => SESSION_CHAT_STREAM,
        }
    }

    /// Where keys of repeated requests are unique; `None`: keys are not read.
    pub(super) fn idempotency_scope(self) -> Option<&'static str> {
        match self {
            Self::Chat => Some("chat"),
            Self::Responses => Some("responses"),
            Self::Runs => Some("runs"),
            Self::SessionChat | Self::SessionChatStream => None,
        }
    }

    fn rule(self, field: &str) -> Option<RequestFieldRule> {
        let find = |table: FieldTable| table.iter().find(|(name, _)| *name == field);
        find(self.own())
            .or_else(|| find(COMMON))
            .map(|(_, rule)| *rule)
    }

    /// Refuses a body with a field that would be ignored. `ignored`: fields that are configured to
    /// be ignored.
    pub(super) fn check(
        self,
        body: &JsonObjectBody,
        ignored: &[String],
    ) -> Result<IgnoredFields, ApiError> {
        let mut hints = Vec::new();
        for (field, value) in &body.0 {
            // Null means not set, for all fields.
            if value.is_null() || ignored.iter().any(|name| name == field || name == "*") {
                continue;
            }
            match self.rule(field) {
                Some(RequestFieldRule::Read | RequestFieldRule::Inert) => {}
                Some(RequestFieldRule::Hint) => hints.push(field.as_str()),
                Some(RequestFieldRule::Only(is_usual, _)) if is_usual(value) => {}
                Some(RequestFieldRule::Only(_, instead)) => {
                    return Err(refused(
                        field,
                        "unsupported_parameter",
                        &format!("'{field}' cannot be chosen here: {instead}"),
                    ));
                }
                None => {
                    let text = format!("'{field}' is not known here, so it would have no effect");
                    return Err(refused(field, "unknown_parameter", &text));
                }
            }
        }
        Ok(IgnoredFields(hints.join(", ")))
    }
}

/// Accepted fields without effect.
#[must_use]
#[derive(Debug, PartialEq, Eq)]
pub(super) struct IgnoredFields(String);

impl IgnoredFields {
    /// Names them in the header `X-Hermes-Ignored`.
    pub(super) fn name_in(self, mut response: Response) -> Response {
        if let Ok(names) = HeaderValue::from_str(&self.0)
            && !self.0.is_empty()
        {
            response.headers_mut().insert("x-hermes-ignored", names);
        }
        response
    }
}

fn refused(field: &str, code: &'static str, text: &str) -> ApiError {
    let message = format!(
        "{text}. Leave it out; a client that cannot is served when api_server.ignore_fields in \
         config.yaml names the field"
    );
    ApiError::bad(message).param(field).code(code)
}

fn is_one(value: &Value) -> bool {
    value.as_f64() == Some(1.0)
}

fn is_zero(value: &Value) -> bool {
    value.as_f64() == Some(0.0)
}

fn is_true(value: &Value) -> bool {
    value == true
}

fn is_false(value: &Value) -> bool {
    value == false
}

fn is_auto(value: &Value) -> bool {
    value == "auto"
}

fn is_empty(value: &Value) -> bool {
    match value {
        Value::Array(list) => list.is_empty(),
        Value::Object(object) => object.is_empty(),
        Value::String(text) => text.is_empty(),
        _ => false,
    }
}

fn is_truncation(value: &Value) -> bool {
    value == "auto" || value == "disabled"
}

fn is_text_only(value: &Value) -> bool {
    value
        .as_array()
        .is_some_and(|list| list.iter().all(|one| one == "text"))
}

fn is_text_format(value: &Value) -> bool {
    value.get("type").is_some_and(|kind| kind == "text")
}

/// `text` of the responses format: format and verbosity.
fn is_text_settings(value: &Value) -> bool {
    let Value::Object(settings) = value else {
        return false;
    };
    settings.iter().all(|(name, value)| match name.as_str() {
        _ if value.is_null() => true,
        "format" => is_text_format(value),
        "verbosity" => value == "medium",
        _ => false,
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::{Map, json};

    use super::*;

    fn check(endpoint: ApiEndpoint, body: &Value) -> Result<String, Value> {
        let body = JsonObjectBody(body.as_object().unwrap().clone());
        endpoint
            .check(&body, &["tolerated".to_owned()])
            .map(|hints| hints.0)
            .map_err(|error| error.to_json()["error"].clone())
    }

    #[test]
    fn what_the_agent_does_anyway_may_be_asked_for() {
        let body = json!({
            "messages": [], "n": 1, "stop": [], "tools": [],
            "tool_choice": "auto", "response_format": {"type": "text"},
            "logprobs": false, "max_tokens": null, "user": "u", "metadata": {"a": "b"},
            "background": false, "tolerated": 7, "modalities": ["text"],
        });
        assert_eq!(check(ApiEndpoint::Chat, &body), Ok(String::new()));
        let body = json!({
            "input": "x", "truncation": "auto", "include": [], "background": false,
            "text": {"format": {"type": "text"}, "verbosity": null}, "max_output_tokens": null,
        });
        assert_eq!(check(ApiEndpoint::Responses, &body), Ok(String::new()));
    }

    #[test]
    fn tastes_are_taken_and_named() {
        let body = json!({"messages": [], "temperature": 0.2, "top_p": 0.9, "seed": 7});
        let hints = check(ApiEndpoint::Chat, &body).unwrap();
        for field in ["temperature", "top_p", "seed"] {
            assert!(hints.contains(field), "{hints}");
        }
        let body = json!({"input": "x", "temperature": 0});
        assert_eq!(
            check(ApiEndpoint::Responses, &body),
            Ok("temperature".to_owned())
        );
        assert!(check(ApiEndpoint::Runs, &body).is_err());
    }

    #[test]
    fn everything_else_is_refused_by_its_name() {
        let chat = [
            ("n", json!(2)),
            ("stop", json!("END")),
            ("stop", json!(["a"])),
            ("max_tokens", json!(5)),
            ("max_completion_tokens", json!(5)),
            ("logit_bias", json!({"50256": -100})),
            ("tools", json!([{"type": "function"}])),
            ("tool_choice", json!("required")),
            ("response_format", json!({"type": "json_object"})),
            ("reasoning_effort", json!("high")),
            ("background", json!(true)),
            ("max_tokns", json!(5)),
        ];
        for (field, value) in chat {
            let error =
                check(ApiEndpoint::Chat, &json!({field: value, "messages": []})).unwrap_err();
            assert_eq!(error["param"], field);
            assert_eq!(error["type"], "invalid_request_error");
            assert!(
                error["message"].as_str().unwrap().contains(field),
                "{error}"
            );
        }
        let others = [
            ("background", json!(true)),
            ("max_output_tokens", json!(5)),
            ("max_tool_calls", json!(1)),
            ("reasoning", json!({"effort": "low"})),
            ("prompt", json!({"id": "p"})),
            ("truncation", json!("middle")),
            ("include", json!(["reasoning.encrypted_content"])),
            ("text", json!({"format": {"type": "json_schema"}})),
        ];
        for (field, value) in others {
            let body = json!({field: value, "input": "x"});
            assert!(check(ApiEndpoint::Responses, &body).is_err(), "{field}");
        }
    }

    proptest! {
        /// Names that are in no table are refused, whatever their value.
        #[test]
        fn unknown_names_never_pass(name in "[a-z_]{1,20}", value in 0_i32..3) {
            for endpoint in [ApiEndpoint::Chat, ApiEndpoint::Responses, ApiEndpoint::Runs, ApiEndpoint::SessionChat] {
                let known = endpoint.rule(&name).is_some();
                let body = Map::from_iter([(name.clone(), json!(value))]);
                let passed = endpoint.check(&JsonObjectBody(body), &[]).is_ok();
                prop_assert!(known || !passed);
            }
        }
    }
}

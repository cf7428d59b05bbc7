//! Every field of every provider's request, refused in the words of many servers.

use hermes_core::model::ReasoningEffort;
use hermes_core::model::WireFormat::{self, AnthropicMessages, ChatCompletions, Responses};
use serde_json::json;

use super::*;
use crate::classify::{CallContext, answer};
use crate::codec;
use crate::codec::samples::Sample;
use crate::providers::profile;

/// How a server names the field at `path`, whose last part is `leaf`.
const WORDINGS: &[&str] = &[
    "Unknown parameter: '{path}'.",
    "Unrecognized request argument supplied: {path}",
    "{path}: Extra inputs are not permitted",
    "Unsupported parameter: '{path}' is not supported with this model.",
    "The parameter `{path}` specified in the request is not valid",
    "json: unknown field \"{leaf}\"",
    "Additional properties are not allowed ('{leaf}' was unexpected)",
    "Invalid JSON payload received. Unknown name \"{leaf}\": Cannot find field.",
    "[{'type': 'extra_forbidden', 'loc': ('body', '{leaf}'), 'msg': 'Extra inputs are not permitted'}]",
    "got an unexpected keyword argument '{leaf}'",
    "property '{leaf}' is unsupported",
    "Model does not support parameter: `{path}`",
    "\"{path}\" is not allowed",
    "Bad request: [{path}] is not a recognized option",
    "Validation error at \"{path}\": unexpected property",
    "param {path} not allowed here",
];

/// Provider, address, model, format.
const ROUTES: &[(&str, &str, &str, WireFormat)] = &[
    (
        "openai-api",
        "https://api.openai.com/v1",
        "gpt-5",
        Responses,
    ),
    (
        "openai-api",
        "https://api.openai.com/v1",
        "gpt-5",
        ChatCompletions,
    ),
    (
        "anthropic",
        "https://api.anthropic.com",
        "claude-sonnet-4-5",
        AnthropicMessages,
    ),
    (
        "openrouter",
        "https://openrouter.ai/api/v1",
        "openai/gpt-5",
        ChatCompletions,
    ),
    (
        "gemini",
        "https://generativelanguage.googleapis.com/v1beta/openai",
        "gemini-3-pro",
        ChatCompletions,
    ),
    (
        "deepseek",
        "https://api.deepseek.com/v1",
        "deepseek-reasoner",
        ChatCompletions,
    ),
    (
        "zai",
        "https://api.z.ai/api/paas/v4",
        "glm-4.6",
        ChatCompletions,
    ),
    (
        "kimi-coding",
        "https://api.moonshot.ai/v1",
        "kimi-k2-thinking",
        ChatCompletions,
    ),
    (
        "custom",
        "http://localhost:9000/v1",
        "some",
        ChatCompletions,
    ),
    (
        "ollama",
        "http://localhost:11434/v1",
        "qwen3",
        ChatCompletions,
    ),
    (
        "mistral",
        "https://api.mistral.ai/v1",
        "mistral-large",
        ChatCompletions,
    ),
    ("xai", "https://api.x.ai/v1", "grok-4", ChatCompletions),
    (
        "alibaba",
        "https://dashscope.aliyuncs.com/compatible-mode/v1",
        "qwen3-max",
        ChatCompletions,
    ),
];

fn sample((provider, base_url, model, format): (&str, &str, &str, WireFormat)) -> Sample {
    let mut sample = Sample::new(format);
    sample.route.provider = provider.into();
    sample.route.base_url = base_url.into();
    sample.route.model = model.into();
    sample.quirks = profile::quirks(provider, base_url, model, format).for_model(&sample.route);
    sample.request.temperature = Some(0.5);
    sample.request.max_tokens = Some(4_000);
    sample.request.reasoning = Some(ReasoningEffort::High);
    sample
}

#[test]
fn every_wish_that_is_refused_by_name_gives_way() {
    let now = chrono::DateTime::UNIX_EPOCH;
    let mut missed = Vec::new();
    let mut tried = 0;
    for route in ROUTES {
        let (provider, sample) = (route.0, sample(*route));
        let sent =
            codec::encode(&sample.request, &sample.quirks, &sample.route, &sample.info).unwrap();
        let body: Value = serde_json::from_slice(&sent.body).unwrap();
        for field in optional_fields(&body, &BTreeSet::new()) {
            if field.path == ROLE {
                continue;
            }
            let plain = field.path.replace(".*", ".0");
            let leaf = field.path.rsplit('.').next().unwrap();
            for wording in WORDINGS {
                let message = wording.replace("{path}", &plain).replace("{leaf}", leaf);
                let error = json!({"error": {"message": message, "type": "invalid_request_error"}});
                let verdict = answer(
                    Some(400),
                    &|_| None,
                    error.to_string().as_bytes(),
                    &CallContext::default(),
                    now,
                );
                tried += 1;
                let rules = verdict
                    .field_complaint(true)
                    .map(|refusal| refused(&refusal, &sent, &BTreeSet::new()))
                    .unwrap_or_default();
                // The field itself, what it stands in, or a part of it: all change the request there.
                let helps = |rule: &FieldRule| {
                    let (a, b) = (&rule.field, &field.path);
                    a == b
                        || a.starts_with(&format!("{b}."))
                        || b.starts_with(&format!("{a}."))
                        || a.rsplit('.').next() == Some(leaf)
                };
                if !rules.iter().any(helps) {
                    missed.push(format!(
                        "{provider} {}: {message} → {} {rules:?}",
                        field.path, verdict.rule
                    ));
                }
            }
        }
    }
    assert!(
        missed.is_empty(),
        "{} of {tried}:\n{}",
        missed.len(),
        missed.join("\n")
    );
}

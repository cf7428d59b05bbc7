//! Refusals as vendors, servers and proxies word them, and the one field that each is about.

use hermes_core::model::ReasoningEffort;
use hermes_core::model::WireFormat::{self, AnthropicMessages, ChatCompletions, Responses};
use serde_json::json;

use super::*;
use crate::classify::{CallContext, answer};
use crate::codec;
use crate::codec::samples::Sample;
use crate::quirks::{CacheLayout, MINIMAL_TO_XHIGH, ReasoningEcho, ReasoningShape};

/// A request with everything in it that can be refused.
fn sent(format: WireFormat, shape: ReasoningShape) -> EncodedRequest {
    let mut sample = Sample::new(format);
    sample.quirks.reasoning = shape;
    sample.quirks.parallel_tool_calls = true;
    sample.quirks.prompt_cache_key = true;
    sample.quirks.echo = ReasoningEcho::WhereKnown;
    sample.quirks.ollama_num_ctx = Some(65_536);
    sample.quirks.extra_body = json!({"session_id": "{session}", "usage": {"include": true}})
        .as_object()
        .cloned()
        .unwrap();
    if format == AnthropicMessages {
        sample.quirks.cache = CacheLayout::AnthropicNative;
        sample.quirks.cache_ttl = crate::quirks::CacheTtl::OneHour;
    }
    sample.request.temperature = Some(0.5);
    sample.request.max_tokens = Some(65_536);
    sample.request.reasoning = Some(ReasoningEffort::Xhigh);
    codec::encode(&sample.request, &sample.quirks, &sample.route, &sample.info).unwrap()
}

fn rules_for(sent: &EncodedRequest, status: u16, body: &str) -> Vec<FieldRule> {
    let now = chrono::DateTime::UNIX_EPOCH;
    let verdict = answer(
        Some(status),
        &|_| None,
        body.as_bytes(),
        &CallContext::default(),
        now,
    );
    verdict
        .field_complaint(true)
        .map(|refusal| refused(&refusal, sent, &BTreeSet::new()))
        .unwrap_or_default()
}

/// Each refusal must lead to a change of `field`, and to no other.
fn check(sent: &EncodedRequest, cases: &[(&str, u16, &str)]) {
    let mut missed = Vec::new();
    for (field, status, body) in cases {
        let rules = rules_for(sent, *status, body);
        let right = |rule: &FieldRule| {
            rule.field == *field
                || rule.field.starts_with(&format!("{field}."))
                || (*field == "stream" && rule.field == "stream_options")
        };
        if rules.is_empty() || !rules.iter().all(right) {
            missed.push(format!("{field}: {status} {body} → {rules:?}"));
        }
    }
    assert!(
        missed.is_empty(),
        "{} of {}\n{}",
        missed.len(),
        cases.len(),
        missed.join("\n")
    );
}

const CHAT: &[(&str, u16, &str)] = &[
    (
        "parallel_tool_calls",
        400,
        r#"{"error":{"message":"Unsupported parameter: 'parallel_tool_calls' is not supported with this model.","type":"invalid_request_error","param":"parallel_tool_calls","code":"unsupported_parameter"}}"#,
    ),
    (
        "parallel_tool_calls",
        400,
        r#"{"error":{"message":"Invalid value for 'parallel_tool_calls': 'parallel_tool_calls' is only allowed when 'tools' are specified.","type":"invalid_request_error","param":"parallel_tool_calls","code":null}}"#,
    ),
    (
        "parallel_tool_calls",
        500,
        r#"{"error":{"message":"litellm.APIConnectionError: APIConnectionError: OpenAIException - AsyncCompletions.create() got an unexpected keyword argument 'parallel_tool_calls'","type":null,"param":null,"code":"500"}}"#,
    ),
    (
        "prompt_cache_key",
        400,
        r#"{"message":"Validation: Unsupported parameter(s): `prompt_cache_key`","type":"Bad Request","code":400}"#,
    ),
    (
        "prompt_cache_key",
        400,
        r#"{"error":{"message":"property 'prompt_cache_key' is unsupported","type":"invalid_request_error"}}"#,
    ),
    (
        "prompt_cache_key",
        422,
        r#"{"message":"body.prompt_cache_key: property 'body.prompt_cache_key' is unsupported","type":"invalid_request_error","param":"validation_error","code":"wrong_api_format"}"#,
    ),
    (
        "prompt_cache_key",
        400,
        r#"{"detail":"Unsupported parameter: prompt_cache_key"}"#,
    ),
    (
        "prompt_cache_key",
        400,
        r#"{"error":{"message":"Unrecognized request argument supplied: prompt_cache_key","type":"invalid_request_error","param":null,"code":null}}"#,
    ),
    (
        "prompt_cache_key",
        400,
        r#"{"detail":"Unsupported parameter: promptCacheKey"}"#,
    ),
    (
        "prompt_cache_key",
        400,
        r#"[{"error":{"code":400,"message":"Invalid JSON payload received. Unknown name \"prompt_cache_key\": Cannot find field.","status":"INVALID_ARGUMENT","details":[{"@type":"type.googleapis.com/google.rpc.BadRequest","fieldViolations":[{"description":"Invalid JSON payload received. Unknown name \"prompt_cache_key\": Cannot find field."}]}]}}]"#,
    ),
    (
        "reasoning_effort",
        400,
        r#"{"code":"Client specified an invalid argument","error":"Model grok-4-latest does not support parameter reasoningEffort."}"#,
    ),
    (
        "reasoning_effort",
        400,
        r#"{"error":{"message":"`reasoning_effort` is not supported with this model","type":"invalid_request_error"}}"#,
    ),
    (
        "reasoning_effort",
        400,
        r#"{"error":{"message":"`reasoning_effort` must be one of `none` or `default`","type":"invalid_request_error"}}"#,
    ),
    (
        "reasoning_effort",
        400,
        r#"{"error":{"message":"litellm.UnsupportedParamsError: groq does not support parameters: ['reasoning_effort'], for model=openai/gpt-oss-120b. To drop these, set `litellm.drop_params=True` or for proxy:\n\n`litellm_settings:\n drop_params: true`\n. \n If you want to use these params dynamically send allowed_openai_params=['reasoning_effort'] in your request.","type":"None","param":"None","code":"400"}}"#,
    ),
    (
        "reasoning_effort",
        400,
        r#"{"error":{"message":"think value \"xhigh\" is not supported for this model","type":"invalid_request_error"}}"#,
    ),
    (
        "reasoning_effort",
        400,
        r#"{"error":{"message":"invalid reasoning value: 'xhigh' (must be \"high\", \"medium\", \"low\", \"none\")","type":"invalid_request_error","param":null,"code":null}}"#,
    ),
    (
        "reasoning_effort",
        400,
        r#"{"error":{"message":"Invalid value: 'xhigh'. Value must be 'low', 'medium', or 'high'","type":"invalid_request_error","param":"reasoning_effort"}}"#,
    ),
    (
        "reasoning_effort",
        422,
        r#"{"detail":[{"type":"literal_error","loc":["body","reasoning_effort"],"msg":"Input should be 'low', 'medium' or 'high'","input":"xhigh","ctx":{"expected":"'low', 'medium' or 'high'"}}]}"#,
    ),
    (
        "reasoning_effort",
        400,
        r#"{"object":"error","message":"[{'type': 'literal_error', 'loc': ('body', 'reasoning_effort'), 'msg': \"Input should be 'low', 'medium' or 'high'\", 'input': 'xhigh', 'ctx': {'expected': \"'low', 'medium' or 'high'\"}}]","type":"BadRequestError","param":null,"code":400}"#,
    ),
    (
        "reasoning_effort",
        400,
        r#"{"object":"error","message":"[{'type': 'extra_forbidden', 'loc': ('body', 'reasoning_effort'), 'msg': 'Extra inputs are not permitted', 'input': 'xhigh'}]","type":"BadRequestError","param":null,"code":400}"#,
    ),
    (
        "reasoning_effort",
        400,
        r#"{"error":{"message":"参数 reasoning_effort 不支持","type":"invalid_request_error"}}"#,
    ),
    (
        "stream_options",
        400,
        r#"{"object":"error","message":"[{'type': 'extra_forbidden', 'loc': ('body', 'stream_options'), 'msg': 'Extra inputs are not permitted', 'input': {'include_usage': True}}]","type":"BadRequestError","param":null,"code":400}"#,
    ),
    (
        "stream_options",
        422,
        r#"{"object":"Error","detail":[{"type":"extra_forbidden","loc":["body","stream_options"],"msg":"Extra inputs are not permitted","input":{"include_usage":true}}],"message":[{"type":"extra_forbidden","loc":["body","stream_options"],"msg":"Extra inputs are not permitted","input":{"include_usage":true}}],"type":"invalid_request_error","code":3001}"#,
    ),
    (
        "stream_options",
        400,
        r#"{"error":{"code":"","message":"stream_options is not supported (request id: 2025)","type":"new_api_error"}}"#,
    ),
    (
        "stream_options",
        400,
        r#"{"error":{"message":"Additional properties are not allowed ('stream_options' was unexpected)"}}"#,
    ),
    (
        "temperature",
        400,
        r#"{"error":{"message":"Unsupported value: 'temperature' does not support 0.5 with this model. Only the default (1) value is supported.","type":"invalid_request_error","param":"temperature","code":"unsupported_value"}}"#,
    ),
    (
        "temperature",
        400,
        r#"{"error":{"message":"invalid temperature: only 1 is allowed for this model","type":"invalid_request_error"}}"#,
    ),
    (
        "temperature",
        400,
        r#"{"error":{"message":"`temperature` and `top_p` cannot both be specified for this model. Please use only one."}}"#,
    ),
    (
        "temperature",
        400,
        r#"{"error":{"code":"1210","message":"API 调用参数有误，请检查文档。temperature参数非法：0.5"}}"#,
    ),
    (
        "max_tokens",
        400,
        r#"{"error":{"message":"Unsupported parameter: 'max_tokens' is not supported with this model. Use 'max_completion_tokens' instead.","type":"invalid_request_error","param":"max_tokens","code":"unsupported_parameter"}}"#,
    ),
    (
        "max_tokens",
        400,
        r#"{"error":{"message":"Invalid max_tokens value, the valid range of max_tokens is [1, 8192]","type":"invalid_request_error","param":null,"code":"invalid_request_error"}}"#,
    ),
    (
        "max_tokens",
        400,
        r#"{"code":20015,"message":"max_tokens (65536) is too large. This model supports at most 8192 tokens.","data":null}"#,
    ),
    (
        "session_id",
        400,
        r#"{"error":{"message":"Unknown parameter: 'session_id'.","type":"invalid_request_error","param":"session_id","code":"unknown_parameter"}}"#,
    ),
    (
        "usage",
        400,
        r#"{"error":{"message":"Unrecognized request argument supplied: usage","type":"invalid_request_error","param":null,"code":null}}"#,
    ),
    (
        "options",
        400,
        r#"{"error":{"message":"Unrecognized request argument supplied: options","type":"invalid_request_error"}}"#,
    ),
    (
        "messages.*.name",
        400,
        r#"{"error":{"message":"1 validation error for ChatCompletionRequest\nmessages.3.tool.name\n  Extra inputs are not permitted [type=extra_forbidden, input_value='read', input_type=str]\n    For further information visit https://errors.pydantic.dev/2.10/v/extra_forbidden (request id: 2025)","type":"upstream_error","param":"400","code":"bad_response_status_code"}}"#,
    ),
    (
        "messages.*.name",
        400,
        r#"{"object":"error","message":"[{'type': 'extra_forbidden', 'loc': ('body', 'messages', 3, 'typed-dict', 'name'), 'msg': 'Extra inputs are not permitted', 'input': 'read'}]","type":"BadRequestError","param":null,"code":400}"#,
    ),
    (
        "messages.*.name",
        422,
        r#"{"detail":[{"type":"extra_forbidden","loc":["body","messages",3,"tool","name"],"msg":"Extra inputs are not permitted","input":"read"}]}"#,
    ),
    (
        "stream",
        400,
        r#"{"error":{"message":"Your organization must be verified to stream this model. Please go to: https://platform.openai.com/settings/organization/general and click on Verify Organization. If you just verified, it can take up to 15 minutes for access to propagate.","type":"invalid_request_error","param":"stream","code":"unsupported_value"}}"#,
    ),
];

#[test]
fn chat_servers() {
    let sent = sent(
        ChatCompletions,
        ReasoningShape::Effort {
            levels: MINIMAL_TO_XHIGH,
        },
    );
    check(&sent, CHAT);
}

const RESPONSES: &[(&str, u16, &str)] = &[
    (
        "reasoning.summary",
        400,
        r#"{"error":{"message":"Your organization must be verified to generate reasoning summaries. Please go to: https://platform.openai.com/settings/organization/general and click on Verify Organization.","type":"invalid_request_error","param":"reasoning.summary","code":"unsupported_value"}}"#,
    ),
    (
        "reasoning.effort",
        400,
        r#"{"error":{"message":"Unsupported value: 'xhigh' is not supported with the 'gpt-5' model. Supported values are: 'minimal', 'low', 'medium', and 'high'.","type":"invalid_request_error","param":"reasoning.effort","code":"unsupported_value"}}"#,
    ),
    (
        "include",
        400,
        r#"{"error":{"message":"Encrypted content is not supported with this model.","type":"invalid_request_error","param":"include","code":null}}"#,
    ),
    (
        "include",
        400,
        r#"{"error":{"message":"Invalid value: 'reasoning.encrypted_content'. Supported values are: 'file_search_call.results'.","type":"invalid_request_error","param":"include[0]","code":"invalid_value"}}"#,
    ),
    ("store", 400, r#"{"detail":"Unsupported parameter: store"}"#),
    (
        "store",
        400,
        r#"{"error":{"message":"Store must be set to true","type":"invalid_request_error","param":"store"}}"#,
    ),
    (
        "prompt_cache_key",
        400,
        r#"{"error":{"message":"Unknown parameter: 'prompt_cache_key'.","type":"invalid_request_error","param":"prompt_cache_key","code":"unknown_parameter"}}"#,
    ),
    (
        "max_output_tokens",
        400,
        r#"{"detail":"Unsupported parameter: max_output_tokens"}"#,
    ),
    (
        "temperature",
        400,
        r#"{"error":{"message":"Unsupported parameter: 'temperature' is not supported with this model.","type":"invalid_request_error","param":"temperature","code":null}}"#,
    ),
    (
        "reasoning",
        400,
        r#"{"error":{"message":"Unsupported parameter: 'reasoning.effort' is not supported with this model.","type":"invalid_request_error","param":"reasoning.effort","code":"unsupported_parameter"}}"#,
    ),
    (
        "tools.*.strict",
        400,
        r#"{"error":{"message":"Unknown parameter: 'tools[0].strict'.","type":"invalid_request_error","param":"tools[0].strict","code":"unknown_parameter"}}"#,
    ),
];

const BUDGET: &[(&str, u16, &str)] = &[
    (
        "thinking",
        400,
        r#"{"type":"error","error":{"type":"invalid_request_error","message":"thinking: Extra inputs are not permitted"}}"#,
    ),
    (
        "thinking",
        400,
        r#"{"type":"error","error":{"type":"invalid_request_error","message":"adaptive thinking is not supported on this model"}}"#,
    ),
    (
        "thinking",
        400,
        r#"{"type":"error","error":{"type":"invalid_request_error","message":"'claude-3-5-sonnet-20241022' does not support thinking."}}"#,
    ),
    (
        "max_tokens",
        400,
        r#"{"type":"error","error":{"type":"invalid_request_error","message":"max_tokens: 65536 > 8192, which is the maximum allowed number of output tokens for claude-3-5-haiku-20241022"}}"#,
    ),
];

const ADAPTIVE: &[(&str, u16, &str)] = &[
    (
        "thinking",
        400,
        r#"{"type":"error","error":{"type":"invalid_request_error","message":"adaptive thinking is not supported on this model"}}"#,
    ),
    (
        "output_config",
        400,
        r#"{"type":"error","error":{"type":"invalid_request_error","message":"output_config: Extra inputs are not permitted"}}"#,
    ),
    (
        "output_config",
        400,
        r#"{"type":"error","error":{"type":"invalid_request_error","message":"This model does not support the effort parameter."}}"#,
    ),
    (
        "output_config",
        400,
        r#"{"type":"error","error":{"type":"invalid_request_error","message":"output_config.effort: Input should be 'low', 'medium', 'high' or 'max'"}}"#,
    ),
    (
        "temperature",
        400,
        r#"{"type":"error","error":{"type":"invalid_request_error","message":"`temperature` may only be set to 1 when thinking is enabled. Please consult our documentation at https://docs.claude.com/en/docs/build-with-claude/extended-thinking#important-considerations-when-using-extended-thinking"}}"#,
    ),
    (
        "temperature",
        400,
        r#"{"type":"error","error":{"type":"invalid_request_error","message":"`temperature` is deprecated for this model."}}"#,
    ),
];

#[test]
fn responses_and_anthropic() {
    let sent_to = sent(
        Responses,
        ReasoningShape::Responses {
            levels: MINIMAL_TO_XHIGH,
        },
    );
    check(&sent_to, RESPONSES);
    let sent_to = sent(AnthropicMessages, ReasoningShape::AnthropicBudget);
    check(&sent_to, BUDGET);
    let sent_to = sent(
        AnthropicMessages,
        ReasoningShape::AnthropicAdaptive { xhigh: true },
    );
    check(&sent_to, ADAPTIVE);
}

/// Servers that check requests with pydantic repeat the whole request. Only the place that they
/// name is refused.
#[test]
fn fields_that_are_only_repeated_stay() {
    let sent = sent(
        ChatCompletions,
        ReasoningShape::Effort {
            levels: MINIMAL_TO_XHIGH,
        },
    );
    let body: Value = serde_json::from_slice(&sent.body).unwrap();
    let python = body
        .to_string()
        .replace('"', "'")
        .replace("true", "True")
        .replace("false", "False");
    for field in [
        "stream_options",
        "parallel_tool_calls",
        "prompt_cache_key",
        "reasoning_effort",
        "session_id",
        "usage",
        "options",
        "temperature",
    ] {
        let listed = json!({"detail": [
            {"type": "extra_forbidden", "loc": ["body", field], "msg": "Extra inputs are not permitted", "input": body},
        ]});
        let written = json!({"object": "error", "code": 400, "type": "BadRequestError", "message":
            format!("[{{'type': 'extra_forbidden', 'loc': ('body', '{field}'), 'msg': 'Extra inputs are not permitted', 'input': {python}}}]")});
        let counted = json!({"error": {"code": 400, "message":
            format!("1 validation error for ChatCompletionRequest\n{field}\n  Extra inputs are not permitted [type=extra_forbidden, input_value={python}, input_type=dict]\n    For further information visit https://errors.pydantic.dev/2.12/v/extra_forbidden")}});
        let stated =
            json!({"error": {"message": format!("Unknown parameter '{field}'. Request: {body}")}});
        for error in [listed, written, counted, stated] {
            let rules = rules_for(&sent, 400, &error.to_string());
            let fields: Vec<&str> = rules.iter().map(|rule| rule.field.as_str()).collect();
            assert_eq!(fields, [field], "{error}");
        }
    }
}

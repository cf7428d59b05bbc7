//! One realistic error per row of the table.

use std::collections::HashMap;

use chrono::DateTime;
use hermes_core::model::ErrorClass;
use pretty_assertions::assert_eq;

use super::{CallContext, ErrorVerdict, answer, inline, rules::RULES};

/// A full window and nothing else known.
const LARGE: CallContext = CallContext {
    prompt_tokens: 90_000,
    context_length: 100_000,
    window_assumed: false,
    answer_tokens: 0,
    shown_images: false,
    slow_reasoner: false,
};

/// Row, status (0: inside a stream), body.
const FIXTURES: &[(&str, u16, &str)] = &[
    (
        "content policy",
        400,
        r#"{"error":{"message":"Your prompt was flagged by the safety system.","code":"content_policy_violation"}}"#,
    ),
    (
        "unwanted content",
        400,
        r#"{"error":{"message":"Content Exists Risk"}}"#,
    ),
    (
        "thinking signature",
        400,
        r#"{"type":"error","error":{"type":"invalid_request_error","message":"messages.3.content.0: Invalid `signature` in `thinking` block"}}"#,
    ),
    (
        "thought signature",
        400,
        r#"{"error":{"code":400,"message":"Function call is missing a thought_signature in functionCall parts.","status":"INVALID_ARGUMENT"}}"#,
    ),
    (
        "encrypted reasoning",
        400,
        r#"{"error":{"message":"The item could not be verified.","code":"invalid_encrypted_content"}}"#,
    ),
    (
        "reasoning echo",
        400,
        r#"{"error":{"message":"Missing reasoning_content in assistant message 4","type":"invalid_request_error"}}"#,
    ),
    (
        "long context tier",
        429,
        r#"{"error":{"type":"rate_limit_error","message":"Extra usage must be enabled for long context requests."}}"#,
    ),
    (
        "long context beta",
        400,
        r#"{"error":{"message":"The long context beta is not yet available for this plan."}}"#,
    ),
    (
        "chat template",
        500,
        r#"{"error":{"message":"Unable to generate parser for this template: bad tool list"}}"#,
    ),
    (
        "tool schema",
        400,
        r#"{"error":{"message":"tools.0.parameters is not a valid moonshot flavored json schema: type missing"}}"#,
    ),
    (
        "tool content",
        400,
        r#"{"error":{"message":"messages[5]: tool message content must be a string"}}"#,
    ),
    (
        "plain content",
        400,
        r#"{"error":{"message":"messages[1].content must be a string"}}"#,
    ),
    (
        "plain results",
        400,
        r#"{"error":{"message":"messages[4].content: expected a string, got a sequence"}}"#,
    ),
    (
        "image too large",
        400,
        r#"{"error":{"message":"No.","code":"image_too_large"}}"#,
    ),
    (
        "image size",
        400,
        r#"{"error":{"message":"messages.0.content.1.image.source: image exceeds 5 MB maximum: 7340032 bytes"}}"#,
    ),
    (
        "no images",
        404,
        r#"{"error":{"message":"No endpoints found that support image input","code":404}}"#,
    ),
    (
        "place",
        403,
        r#"{"error":{"message":"Country, region, or territory not supported","code":"unsupported_country_region_territory"}}"#,
    ),
    (
        "401 billing",
        401,
        r#"{"error":{"type":"CreditsError","message":"Manage your billing here."}}"#,
    ),
    (
        "401 no money",
        401,
        r#"{"error":{"message":"Your credits are used up: not enough for this call."}}"#,
    ),
    (
        "401",
        401,
        r#"{"error":{"message":"Incorrect API key provided.","code":"invalid_api_key"}}"#,
    ),
    (
        "403 billing",
        403,
        r#"{"error":{"message":"Key limit exceeded (total limit). Manage it in your settings.","code":403}}"#,
    ),
    (
        "403 no money",
        403,
        r#"{"code":30001,"message":"Sorry, your account balance is insufficient"}"#,
    ),
    (
        "403",
        403,
        r#"{"error":{"message":"This account has no permission for the project."}}"#,
    ),
    (
        "400 key",
        400,
        r#"[{"error":{"code":400,"message":"API key not valid. Please pass a valid API key.","status":"INVALID_ARGUMENT"}}]"#,
    ),
    (
        "402 comes back",
        402,
        r#"{"error":{"message":"Out of tokens for now.","retry_after":30}}"#,
    ),
    (
        "402 usage limit",
        402,
        r#"{"error":{"message":"Weekly usage limit reached; the window resets on Monday."}}"#,
    ),
    (
        "affordable answer",
        402,
        r#"{"error":{"message":"This request requires more credits, or fewer max_tokens. You requested up to 65536 tokens, but can only afford 17223."}}"#,
    ),
    (
        "402",
        402,
        r#"{"error":{"message":"This request requires more credits."}}"#,
    ),
    (
        "404 free tier",
        404,
        r#"{"error":{"message":"That model is not available on the free tier."}}"#,
    ),
    (
        "data policy",
        404,
        r#"{"error":{"message":"No endpoints found matching your data policy.","code":404}}"#,
    ),
    (
        "404 model",
        404,
        r#"{"error":{"message":"model: claude-unheard-of","type":"not_found_error"}}"#,
    ),
    (
        "404 does not exist",
        404,
        r#"{"error":{"message":"The model `gpt-9` does not exist or you have no access to it."}}"#,
    ),
    (
        "5xx model",
        503,
        r#"{"error":{"message":"No available channel for model gpt-9","code":"model_not_found"}}"#,
    ),
    (
        "larger than the rate",
        429,
        r#"{"error":{"message":"Request too large on tokens per min (TPM): Limit 30000, Requested 61337.","code":"rate_limit_exceeded"}}"#,
    ),
    (
        "413 prompt",
        413,
        r#"{"error":{"message":"prompt token count of 130000 exceeds the limit of 128000"}}"#,
    ),
    (
        "413",
        413,
        "<html><head><title>413 Request Entity Too Large</title></head></html>",
    ),
    (
        "429 quota",
        429,
        r#"{"error":{"message":"You ran past your quota.","code":"insufficient_quota"}}"#,
    ),
    (
        "429 no credit",
        429,
        r#"{"error":{"message":"You exceeded your current quota, please check your plan and billing details."}}"#,
    ),
    (
        "429 no money",
        429,
        r#"{"error":{"message":"余额不足或无可用资源包,请充值。"}}"#,
    ),
    (
        "429 overloaded",
        429,
        r#"{"error":{"code":"1305","message":"Many people use this model now; come back later."}}"#,
    ),
    (
        "429 upstream",
        429,
        r#"{"error":{"message":"Provider returned error","code":429,"metadata":{"provider_name":"Acme","raw":"{\"error\":\"acme/big is limited upstream\"}"}}}"#,
    ),
    (
        "429",
        429,
        r#"{"error":{"message":"Rate limit reached for requests per minute.","code":"rate_limit_exceeded"}}"#,
    ),
    (
        "498",
        498,
        r#"{"error":{"message":"Flex tier capacity exceeded."}}"#,
    ),
    (
        "unreadable call",
        400,
        r#"{"error":{"message":"Failed to call a function. Please adjust your prompt.","code":"tool_use_failed","failed_generation":"<function=x"}}"#,
    ),
    (
        "parameter",
        400,
        r#"{"error":{"message":"Unsupported parameter: 'max_tokens'. Use 'max_completion_tokens' instead.","code":"unsupported_parameter"}}"#,
    ),
    (
        "5xx invalid request",
        500,
        r#"{"error":{"message":"bad tool list","type":"invalid_request_error"}}"#,
    ),
    (
        "empty answer",
        502,
        r#"{"error":{"message":"The provider returned an empty response; raise max_tokens or shorten the context window."}}"#,
    ),
    (
        "output cap",
        400,
        r#"{"error":{"message":"max_tokens: 128000 > 64000, which is the maximum allowed number of output tokens for this model"}}"#,
    ),
    (
        "answer limit",
        400,
        r#"{"error":{"message":"max_tokens must be less than or equal to 8192"}}"#,
    ),
    (
        "answer does not fit",
        400,
        r#"{"error":{"message":"This model's maximum context length is 8192 tokens. However, you requested 66000 tokens (464 in the messages, 65536 in the completion)."}}"#,
    ),
    (
        "overflow code",
        400,
        r#"{"error":{"message":"Too big.","code":"context_length_exceeded"}}"#,
    ),
    (
        "overflow text",
        500,
        r#"{"error":{"code":500,"message":"the request exceeds the available context size (8192 tokens), try increasing it"}}"#,
    ),
    (
        "overflow words",
        400,
        r#"{"code":"InvalidParameter","message":"Range of input length should be [1, 30720]"}"#,
    ),
    (
        "400 model",
        400,
        r#"{"error":{"message":"acme/none is not a valid model ID","code":400}}"#,
    ),
    (
        "400 model text",
        400,
        r#"{"error":{"message":"Model Not Exist"}}"#,
    ),
    (
        "400 rate limit",
        400,
        r#"{"code":"Throttling.RateQuota","message":"Requests rate increased too quickly."}"#,
    ),
    (
        "400 billing",
        400,
        r#"{"error":{"message":"Your credit balance is too low to use the API."}}"#,
    ),
    (
        "400 no money",
        400,
        r#"{"code":"x","message":"Your team does not have any credits yet."}"#,
    ),
    (
        "bare 400, large prompt",
        400,
        r#"{"error":{"message":"Error"}}"#,
    ),
    (
        "by size",
        400,
        r#"{"error":{"message":"The server could not make sense of this one at all."}}"#,
    ),
    (
        "by numbers",
        400,
        r#"{"error":{"message":"23.114 Einheiten in der Anfrage, erlaubt sind 16.384"}}"#,
    ),
    ("408", 408, ""),
    ("gateway timeout", 504, "upstream did not answer"),
    (
        "503",
        529,
        r#"{"type":"error","error":{"type":"overloaded_error","message":"Overloaded"}}"#,
    ),
    (
        "5xx",
        500,
        r#"{"error":{"message":"Something broke on our side."}}"#,
    ),
    (
        "4xx",
        422,
        r#"{"detail":[{"loc":["body","messages"],"msg":"field required"}]}"#,
    ),
    (
        "overloaded",
        0,
        r#"{"type":"error","error":{"type":"overloaded_error","message":"Overloaded"}}"#,
    ),
    (
        "quota",
        0,
        r#"{"error":{"message":"No credits left.","type":"billing_error"}}"#,
    ),
    (
        "no credit",
        0,
        r#"{"error":{"message":"Please top up your account."}}"#,
    ),
    (
        "no money",
        0,
        r#"{"error":{"message":"Account balance not enough"}}"#,
    ),
    (
        "comes back",
        0,
        r#"{"error":{"message":"Out of credits, try again in 20s."}}"#,
    ),
    (
        "rate limit",
        0,
        r#"{"error":{"message":"Slow down.","code":"rate_limit_exceeded"}}"#,
    ),
    (
        "payload",
        0,
        r#"{"type":"error","error":{"type":"request_too_large","message":"Body above 32 MB"}}"#,
    ),
    (
        "key",
        0,
        r#"{"type":"error","error":{"type":"authentication_error","message":"bad key"}}"#,
    ),
    (
        "key text",
        0,
        r#"{"error":{"message":"Incorrect API key provided"}}"#,
    ),
    (
        "model",
        0,
        r#"{"type":"error","error":{"type":"not_found_error","message":"claude-none"}}"#,
    ),
    (
        "timed out",
        0,
        r#"{"error":{"message":"upstream request timed out"}}"#,
    ),
    (
        "refused request",
        0,
        r#"{"type":"error","error":{"type":"invalid_request_error","message":"roles must alternate"}}"#,
    ),
    (
        "server",
        0,
        r#"{"error":{"message":"odd","code":"server_error"}}"#,
    ),
    ("unknown", 0, r#"{"error":{"message":"?"}}"#),
];

fn judge(status: u16, body: &str, situation: &CallContext) -> ErrorVerdict {
    let now = DateTime::from_timestamp(1_700_000_000, 0).unwrap();
    match status {
        0 => inline(&serde_json::from_str(body).unwrap(), situation, now),
        _ => answer(Some(status), &|_| None, body.as_bytes(), situation, now),
    }
}

#[test]
fn every_row_has_one_fixture_and_decides_it() {
    let mut seen: HashMap<&str, usize> = HashMap::new();
    for (name, status, body) in FIXTURES {
        let situation = match *name {
            "bare 400, large prompt" | "by size" => LARGE,
            "by numbers" => CallContext {
                prompt_tokens: 20_000,
                ..CallContext::default()
            },
            "plain content" => CallContext {
                shown_images: true,
                ..CallContext::default()
            },
            _ => CallContext::default(),
        };
        let verdict = judge(*status, body, &situation);
        assert_eq!(verdict.rule, *name, "{body}");
        *seen.entry(name).or_default() += 1;
    }
    let rows: Vec<&str> = RULES.iter().map(|rule| rule.name).collect();
    for row in &rows {
        assert_eq!(seen.get(row), Some(&1), "fixtures of row {row:?}");
    }
    assert_eq!(rows.len(), FIXTURES.len());
}

#[test]
fn stated_limits_are_taken() {
    let cap = judge(
        400,
        FIXTURES.iter().find(|f| f.0 == "output cap").unwrap().2,
        &CallContext::default(),
    );
    assert_eq!(
        (cap.class, cap.limit),
        (ErrorClass::OutputCap, Some(64_000))
    );
    let fit = judge(
        400,
        FIXTURES
            .iter()
            .find(|f| f.0 == "answer does not fit")
            .unwrap()
            .2,
        &CallContext::default(),
    );
    assert_eq!((fit.class, fit.limit), (ErrorClass::OutputCap, Some(7_728)));
    let over = judge(
        400,
        r#"{"error":{"message":"This model's maximum context length is 8192 tokens. However, you requested 9500 tokens (9000 in the messages, 500 in the completion)."}}"#,
        &CallContext::default(),
    );
    assert_eq!(
        (over.class, over.limit),
        (ErrorClass::ContextOverflow, Some(8_192))
    );
    let silent = judge(
        400,
        r#"{"error":{"message":"prompt is too long"}}"#,
        &CallContext::default(),
    );
    assert_eq!(
        (silent.class, silent.limit),
        (ErrorClass::ContextOverflow, None)
    );
}

/// What vendors answer when the free tier's minute is used up: money is mentioned, a time too.
#[test]
fn who_says_when_to_come_back_means_a_rate() {
    let gemini = r#"[{"error":{"code":429,"message":"You exceeded your current quota, please check your plan and billing details. Please retry in 2.5s.","status":"RESOURCE_EXHAUSTED"}}]"#;
    let delayed = r#"{"error":{"code":429,"message":"Insufficient balance or no resource package.","details":[{"@type":"type.googleapis.com/google.rpc.RetryInfo","retryDelay":"2.5s"}]}}"#;
    for body in [gemini, delayed] {
        let verdict = judge(429, body, &CallContext::default());
        assert_eq!(verdict.class, ErrorClass::RateLimit, "{body}");
        assert_eq!(
            verdict.retry_after.map(|wait| wait.as_millis()),
            Some(2_500)
        );
    }
    let header = |name: &str| (name == "retry-after").then(|| "3".to_owned());
    let now = DateTime::from_timestamp(1_700_000_000, 0).unwrap();
    let body = br#"{"error":{"message":"Payment required: out of credits"}}"#;
    let verdict = answer(Some(429), &header, body, &CallContext::default(), now);
    assert_eq!(verdict.class, ErrorClass::RateLimit);
    // A code that can mean nothing else is believed.
    let coded = br#"{"error":{"message":"No.","code":"insufficient_quota"}}"#;
    let verdict = answer(Some(429), &header, coded, &CallContext::default(), now);
    assert_eq!(verdict.class, ErrorClass::Billing);
}

/// A refusal that says nothing we know, of a call that is near the window or over it.
#[test]
fn size_alone_means_overflow() {
    let body =
        r#"{"error":{"message":"InternalError.Algo: this cannot be processed, sorry for that"}}"#;
    let class = |prompt_tokens, answer_tokens| {
        let situation = CallContext {
            prompt_tokens,
            answer_tokens,
            context_length: 100_000,
            window_assumed: false,
            shown_images: false,
            slow_reasoner: false,
        };
        judge(400, body, &situation).class
    };
    assert_eq!(class(75_000, 0), ErrorClass::ContextOverflow);
    assert_eq!(class(150_000, 0), ErrorClass::ContextOverflow);
    assert_eq!(class(60_000, 64_000), ErrorClass::ContextOverflow);
    assert_eq!(class(60_000, 8_000), ErrorClass::Format);
    assert_eq!(class(10_000, 99_000), ErrorClass::Format);
}

#[test]
fn a_prompt_that_leaves_no_room_is_too_large_and_one_that_does_is_not() {
    let said = |input: u32| {
        format!(
            r#"{{"type":"error","error":{{"type":"invalid_request_error","message":"input length and `max_tokens` exceed context limit: {input} + 32000 > 200000, decrease input length or `max_tokens` and try again"}}}}"#
        )
    };
    let full = judge(400, &said(199_000), &CallContext::default());
    assert_eq!(
        (full.class, full.limit),
        (ErrorClass::ContextOverflow, Some(200_000))
    );
    let fits = judge(400, &said(150_000), &CallContext::default());
    assert_eq!(
        (fits.class, fits.limit),
        (ErrorClass::OutputCap, Some(50_000))
    );
    assert_eq!(fits.window, Some(200_000));
}

#[test]
fn a_bare_400_of_a_small_prompt_is_no_overflow() {
    let verdict = judge(
        400,
        r#"{"error":{"message":"Error"}}"#,
        &CallContext::default(),
    );
    assert_eq!(verdict.class, ErrorClass::Format);
}

#[test]
fn waits_come_with_limits_of_rate() {
    let verdict = judge(
        429,
        r#"{"error":{"message":"Rate limit reached. Please try again in 20s."}}"#,
        &CallContext::default(),
    );
    assert_eq!(verdict.retry_after.map(|wait| wait.as_secs()), Some(20));
    let google = r#"[{"error":{"code":429,"message":"Quota exceeded","status":"RESOURCE_EXHAUSTED","details":[{"retryDelay":"34s"}]}}]"#;
    let verdict = judge(429, google, &CallContext::default());
    assert_eq!(verdict.retry_after.map(|wait| wait.as_secs()), Some(34));
}

#[test]
fn a_token_limit_per_minute_is_no_overflow() {
    let body =
        r#"{"error":{"message":"Over the token limit per minute","code":"rate_limit_exceeded"}}"#;
    assert_eq!(
        judge(0, body, &CallContext::default()).class,
        ErrorClass::RateLimit
    );
}

#[test]
fn a_code_inside_a_stream_counts_as_status() {
    let verdict = judge(
        0,
        r#"{"error":{"message":"oops","code":502}}"#,
        &CallContext::default(),
    );
    assert_eq!(verdict.rule, "5xx");
}

//! Error bodies as vendors, servers and proxies send them, by what they mean.

mod requests;

use chrono::DateTime;
use hermes_core::model::ErrorClass::{
    self, Billing, ContextOverflow, Format, OutputCap, Overloaded, RateLimit, Server, Timeout,
    UpstreamRateLimit,
};

use super::{CallContext, ErrorVerdict, answer, inline};

/// A prompt that says nothing by its size.
const SMALL: CallContext = CallContext {
    prompt_tokens: 9_000,
    context_length: 128_000,
    window_assumed: false,
    answer_tokens: 0,
    shown_images: false,
    slow_reasoner: false,
};

fn judge(status: u16, body: &str) -> ErrorVerdict {
    if status == 200 {
        let error = serde_json::from_str(body).unwrap();
        return inline(&error, &SMALL, DateTime::UNIX_EPOCH);
    }
    answer(
        Some(status),
        &|_| None,
        body.as_bytes(),
        &SMALL,
        DateTime::UNIX_EPOCH,
    )
}

fn check(class: ErrorClass, bodies: &[(u16, &str)]) {
    let missed: Vec<String> = bodies
        .iter()
        .map(|(status, body)| (judge(*status, body), status, body))
        .filter(|(verdict, ..)| verdict.class != class)
        .map(|(verdict, status, body)| {
            format!("{:?} ({}): {status} {body}", verdict.class, verdict.rule)
        })
        .collect();
    assert!(
        missed.is_empty(),
        "not {class:?}: {} of {}\n{}",
        missed.len(),
        bodies.len(),
        missed.join("\n")
    );
}

const BILLING: &[(u16, &str)] = &[
    (
        429,
        r#"{"error":{"message":"You exceeded your current quota, please check your plan and billing details. For more information on this error, read the docs: https://platform.openai.com/docs/guides/error-codes/api-errors.","type":"insufficient_quota","param":null,"code":"insufficient_quota"}}"#,
    ),
    (
        429,
        r#"{"error":{"code":"1113","message":"余额不足或无可用资源包,请充值。"}}"#,
    ),
    (
        429,
        r#"{"error":{"code":"1113","message":"您的账户已欠费，请充值后重试。"}}"#,
    ),
    (
        429,
        r#"{"type":"error","error":{"type":"rate_limit_error","code":"1113","message":"[1113][Insufficient balance or no resource package. Please recharge.][2026092223]"},"request_id":"2026"}"#,
    ),
    (
        429,
        r#"{"type":"error","error":{"type":"1113","message":"Insufficient balance or no resource package. Please recharge."},"request_id":"x"}"#,
    ),
    (
        402,
        r#"{"error":{"message":"Insufficient Balance","type":"unknown_error","param":null,"code":"invalid_request_error"}}"#,
    ),
    (
        403,
        r#"{"code":30001,"message":"Sorry, your account balance is insufficient","data":null}"#,
    ),
    (
        403,
        r#"{"code":30011,"message":"The selected model requires paid balance. Your paid balance is insufficient. Please top up and try again.","data":null}"#,
    ),
    (
        400,
        r#"{"code":"Arrearage","message":"Access denied, please make sure your account is in good standing.","request_id":"x"}"#,
    ),
    (
        403,
        r#"{"error":{"code":"AccountOverdueError","message":"The request failed because your account has an overdue balance.","param":"","type":"Forbidden"}}"#,
    ),
    (
        429,
        r#"{"error":{"message":"Your account org-x<ak-y> is suspended, please check your plan and billing details","type":"exceeded_current_quota_error"}}"#,
    ),
    (
        403,
        r#"{"error":{"message":"Your account is not active, please check your billing details on our website.","type":"billing_not_active","param":null,"code":"billing_not_active"}}"#,
    ),
    (
        400,
        r#"{"type":"error","error":{"type":"invalid_request_error","message":"Your credit balance is too low to access the Anthropic API. Please go to Plans & Billing to upgrade or purchase credits."}}"#,
    ),
    (
        402,
        r#"{"error":"You have exceeded your monthly included credits for Inference Providers. Subscribe to PRO to get 20x more monthly included credits."}"#,
    ),
    (
        402,
        r#"{"error":{"message":"Insufficient credits. Add more using https://openrouter.ai/settings/credits","code":402}}"#,
    ),
    (
        403,
        r#"{"code":"The caller does not have permission to execute the specified operation","error":"Your newly created team doesn't have any credits or licenses yet. You can purchase those on https://console.x.ai."}"#,
    ),
    (
        429,
        r#"{"code":"Some resource has been exhausted","error":"Your team abc has either used all available credits or reached its monthly spending limit. To continue making API requests, please purchase more credits or raise your spending limit."}"#,
    ),
    (
        401,
        r#"{"type":"error","error":{"type":"CreditsError","message":"Insufficient balance. Manage your billing here: https://opencode.ai/workspace/x/billing"}}"#,
    ),
    (
        400,
        r#"{"error":{"message":"Budget has been exceeded! Current cost: 10.2, Max budget: 10.0","type":"budget_exceeded","param":null,"code":"400"}}"#,
    ),
    (
        400,
        r#"{"error":{"message":"ExceededBudget: User=default over budget. Spend=5.1, Budget=5.0","type":"budget_exceeded","param":"None","code":"400"}}"#,
    ),
    (
        403,
        r#"{"error":{"message":"用户额度不足, 剩余额度: ＄-0.01 (request id: 2025)","localized_message":"Unknown error","type":"new_api_error","param":"","code":"insufficient_user_quota"}}"#,
    ),
    (
        403,
        r#"{"error":{"message":"token quota is not enough, token remain quota: 0.000000, need quota: 0.01","type":"new_api_error","code":"pre_consume_token_quota_failed"}}"#,
    ),
    (
        200,
        r#"{"base_resp":{"status_code":1008,"status_msg":"insufficient balance"}}"#,
    ),
    (
        429,
        r#"{"error":{"message":"You have insufficient credits. Please add credits to continue.","type":"invalid_request_error","code":"credit_limit"}}"#,
    ),
    (
        412,
        r#"{"error":{"object":"error","type":"internal_server_error","message":"Account x is suspended, possibly due to reaching the monthly spending limit or failure to pay past invoices. Please go to https://fireworks.ai/account/billing for more information."}}"#,
    ),
];

#[test]
fn the_account_is_empty() {
    check(Billing, BILLING);
}

const RATE_LIMIT: &[(u16, &str)] = &[
    (
        429,
        r#"{"error":{"message":"Rate limit reached for gpt-4o in organization org-x on tokens per min (TPM): Limit 30000, Used 29937, Requested 385. Please try again in 644ms. Visit https://platform.openai.com/account/rate-limits to learn more.","type":"tokens","param":null,"code":"rate_limit_exceeded"}}"#,
    ),
    (
        429,
        r#"{"error":{"code":"429","message":"Requests to the ChatCompletions_Create Operation under Azure OpenAI API version 2024-10-21 have exceeded token rate limit of your current OpenAI S0 pricing tier. Please retry after 6 seconds. Please go here: https://aka.ms/oai/quotaincrease if you would like to further increase the default rate limit."}}"#,
    ),
    (
        429,
        r#"{"type":"error","error":{"type":"rate_limit_error","message":"This request would exceed your organization's rate limit of 40,000 input tokens per minute. For details, refer to: https://docs.anthropic.com/en/api/rate-limits; see the response headers for current usage."}}"#,
    ),
    (
        429,
        r#"[{"error":{"code":429,"message":"You exceeded your current quota, please check your plan and billing details. For more information on this error, head to: https://ai.google.dev/gemini-api/docs/rate-limits.\n* Quota exceeded for metric: generativelanguage.googleapis.com/generate_content_free_tier_requests, limit: 10, model: gemini-2.5-flash\nPlease retry in 20.04466179s.","status":"RESOURCE_EXHAUSTED","details":[{"@type":"type.googleapis.com/google.rpc.Help","links":[]},{"@type":"type.googleapis.com/google.rpc.RetryInfo","retryDelay":"20s"}]}}]"#,
    ),
    (
        429,
        r#"{"error":{"message":"{\n  \"error\": {\n    \"code\": 429,\n    \"message\": \"You exceeded your current quota, please check your plan and billing details.\\nPlease retry in 38.8s.\",\n    \"status\": \"RESOURCE_EXHAUSTED\",\n \"details\": [{\"@type\":\"type.googleapis.com/google.rpc.RetryInfo\",\"retryDelay\":\"38s\"}]  }\n}\n","code":429,"status":"Too Many Requests"}}"#,
    ),
    (
        429,
        r#"{"error":{"message":"Your account org-x request reached organization max RPM: 3, please try again after 1 seconds","type":"rate_limit_reached_error"}}"#,
    ),
    (
        429,
        r#"{"error":{"code":"1302","message":"您的账户已达到速率限制，请您控制请求频率"}}"#,
    ),
    (
        429,
        r#"{"error":{"code":"1308","message":"Usage limit reached for 5 hour. Your limit will reset at 2025-10-20 12:00:00"}}"#,
    ),
    (
        429,
        r#"{"code":"Throttling.AllocationQuota","message":"Allocated quota exceeded, please increase your quota limit.","request_id":"x"}"#,
    ),
    (
        429,
        r#"{"error":{"message":"Requests rate limit exceeded, please try again later.","type":"limit_requests","param":null,"code":"limit_requests"},"request_id":"x"}"#,
    ),
    (
        429,
        r#"{"code":50603,"message":"Request was rejected due to rate limiting. If you want more, please contact us. Details:TPM limit reached.","data":""}"#,
    ),
    (
        429,
        r#"{"object":"error","message":"Requests rate limit exceeded","type":"rate_limited","param":null,"code":"1300"}"#,
    ),
    (
        429,
        r#"{"error":{"message":"Rate limit reached for model `llama-3.3-70b-versatile` in organization `org_x` service tier `on_demand` on tokens per day (TPD): Limit 100000, Used 99000, Requested 3000. Please try again in 28m48s. Need more tokens? Upgrade to Dev Tier today at https://console.groq.com/settings/billing","type":"tokens","code":"rate_limit_exceeded"}}"#,
    ),
    (429, r#"{"status":429,"title":"Too Many Requests"}"#),
    (
        429,
        r#"{"error":{"message":"Rate limit exceeded: free-models-per-min. ","code":429,"metadata":{"headers":{"X-RateLimit-Limit":"20","X-RateLimit-Remaining":"0","X-RateLimit-Reset":"1741305600000"},"provider_name":null}},"user_id":"u"}"#,
    ),
    (
        429,
        r#"{"error":{"message":"No deployments available for selected model, Try again in 60 seconds. Passed model=gpt-4. pre-call-checks=False, cooldown_list=[]","type":"None","param":"None","code":"429"}}"#,
    ),
    (
        200,
        r#"{"base_resp":{"status_code":1002,"status_msg":"rate limit exceeded(RPM)"}}"#,
    ),
    (
        400,
        r#"{"message":"Too many requests, please wait before trying again.","__type":"ThrottlingException"}"#,
    ),
    (429, "quota exceeded\n"),
    (429, ""),
];

const UPSTREAM_RATE_LIMIT: &[(u16, &str)] = &[(
    429,
    r#"{"error":{"message":"Provider returned error","code":429,"metadata":{"raw":"deepseek/deepseek-chat-v3.1:free is temporarily rate-limited upstream. Please retry shortly, or add your own key to accumulate your rate limits: https://openrouter.ai/settings/integrations","provider_name":"OpenInference"}},"user_id":"u"}"#,
)];

#[test]
fn too_fast() {
    check(RateLimit, RATE_LIMIT);
    check(UpstreamRateLimit, UPSTREAM_RATE_LIMIT);
}

const OVERLOADED: &[(u16, &str)] = &[
    (
        503,
        r#"{"error":{"message":"The engine is currently overloaded, please try again later","type":"server_error","param":null,"code":null}}"#,
    ),
    (
        529,
        r#"{"type":"error","error":{"type":"overloaded_error","message":"Overloaded"},"request_id":"req_x"}"#,
    ),
    (
        503,
        r#"[{"error":{"code":503,"message":"The model is overloaded. Please try again later.","status":"UNAVAILABLE"}}]"#,
    ),
    (
        429,
        r#"{"error":{"message":"The engine is currently overloaded, please try again later","type":"engine_overloaded_error"}}"#,
    ),
    (
        429,
        r#"{"error":{"code":"1305","message":"The service may be temporarily overloaded, please try again later"}}"#,
    ),
    (
        503,
        r#"{"code":50505,"message":"Model service overloaded. Please try again later.","data":null}"#,
    ),
    (
        429,
        r#"{"error":{"message":"Service tier capacity exceeded for this model.","type":"invalid_request_error","code":"3505"},"object":"error"}"#,
    ),
    (
        503,
        r#"{"error":"Model too busy, unable to get response in less than 60 second(s)","error_type":"overloaded"}"#,
    ),
    (
        429,
        r#"{"error":"Model is overloaded","error_type":"overloaded"}"#,
    ),
    (
        503,
        r#"{"error":{"code":503,"message":"Loading model","type":"unavailable_error"}}"#,
    ),
    (
        503,
        r#"{"error":"server busy, please try again.  maximum pending requests exceeded"}"#,
    ),
];

const SERVER: &[(u16, &str)] = &[
    (
        500,
        r#"{"error":{"message":"The server had an error while processing your request. Sorry about that!","type":"server_error","param":null,"code":null}}"#,
    ),
    (
        500,
        r#"{"type":"error","error":{"type":"api_error","message":"Internal server error"},"request_id":"req_x"}"#,
    ),
    (
        500,
        r#"{"object":"error","message":"EngineCore encountered an issue. See stack trace (above) for the root cause.","type":"InternalServerError","param":null,"code":500}"#,
    ),
    (
        502,
        "<html>\r\n<head><title>502 Bad Gateway</title></head>\r\n<body></body></html>",
    ),
    (
        520,
        "<!DOCTYPE html><html><head><title>openrouter.ai | 520: Web server is returning an unknown error</title></head></html>",
    ),
    (
        500,
        r#"{"error":{"message":"an error was encountered while running the model: CUDA error: an illegal memory access was encountered","type":"api_error","param":null,"code":null}}"#,
    ),
];

const TIMEOUT: &[(u16, &str)] = &[
    (504, r#"{"error":{"message":"Gateway Timeout"}}"#),
    (
        524,
        "<html><head><title>524: A timeout occurred</title></head></html>",
    ),
    (408, r#"{"error":{"message":"Request timed out"}}"#),
];

#[test]
fn too_busy() {
    check(Overloaded, OVERLOADED);
    check(Server, SERVER);
    check(Timeout, TIMEOUT);
}

const CONTEXT_OVERFLOW: &[(u16, &str)] = &[
    (
        400,
        r#"{"error":{"message":"This model's maximum context length is 128000 tokens. However, your messages resulted in 140000 tokens (138000 in the messages, 2000 in the functions). Please reduce the length of the messages or functions.","type":"invalid_request_error","param":"messages","code":"context_length_exceeded"}}"#,
    ),
    (
        400,
        r#"{"error":{"message":"Your input exceeds the context window of this model. Please adjust your input and try again.","type":"invalid_request_error","param":"input","code":"context_length_exceeded"}}"#,
    ),
    (
        429,
        r#"{"error":{"message":"Request too large for gpt-4o in organization org-x on tokens per min (TPM): Limit 30000, Requested 61337. The input or output tokens must be reduced in order to run successfully. Visit https://platform.openai.com/account/rate-limits to learn more.","type":"tokens","param":null,"code":"rate_limit_exceeded"}}"#,
    ),
    (
        413,
        r#"{"error":{"message":"Request too large for model `openai/gpt-oss-120b` in organization `org_x` service tier `on_demand` on tokens per minute (TPM): Limit 8000, Requested 8590, please reduce your message size and try again. Need more tokens? Upgrade to Dev Tier today at https://console.groq.com/settings/billing","type":"tokens","code":"rate_limit_exceeded"}}"#,
    ),
    (
        400,
        r#"{"type":"error","error":{"type":"invalid_request_error","message":"prompt is too long: 215000 tokens > 200000 maximum"}}"#,
    ),
    (
        400,
        r#"{"error":{"message":"You passed 33015 input tokens and requested 10 output tokens. However, the model's context length is only 32768 tokens, resulting in a maximum input length of 32758 tokens. Please reduce the length of the input prompt. (parameter=input_tokens, value=33015)","type":"BadRequestError","param":"input_tokens","code":400}}"#,
    ),
    (
        400,
        r#"{"object":"error","message":"The prompt (total length 25938) is too long to fit into the model (context length 4096). Make sure that `max_model_len` is no smaller than the number of text tokens plus multimodal tokens.","type":"BadRequestError","param":null,"code":400}"#,
    ),
    (
        400,
        r#"{"object":"error","message":"The input (40034 tokens) is longer than the model's context length (32768 tokens).","type":"BadRequestError","param":null,"code":400}"#,
    ),
    (
        400,
        r#"{"object":"error","message":"Requested token count exceeds the model's maximum context length of 32768 tokens. You requested a total of 41000 tokens: 40000 tokens from the input messages and 1000 tokens for the completion. Please reduce the number of tokens in the input messages or the completion to fit within the limit.","type":"BadRequestError","param":null,"code":400}"#,
    ),
    (
        400,
        r#"{"error":{"code":400,"message":"the request exceeds the available context size. try increasing the context size or enable context shift","type":"exceed_context_size_error","n_prompt_tokens":9000,"n_ctx":4096}}"#,
    ),
    (
        400,
        r#"{"error":"The number of tokens to keep from the initial prompt is greater than the context length. Try to load the model with a larger context length, or provide a shorter input"}"#,
    ),
    (
        400,
        r#"{"error":"Trying to keep the first 9029 tokens when context the overflows. However, the model is loaded with context length of only 4096 tokens, which is not enough. Try to load the model with a larger context length, or provide a shorter input"}"#,
    ),
    (
        400,
        r#"[{"error":{"code":400,"message":"The input token count (1234567) exceeds the maximum number of tokens allowed (1048576).","status":"INVALID_ARGUMENT"}}]"#,
    ),
    (
        400,
        r#"{"error":{"message":"Invalid request: Your request exceeded model token limit: 262144 (requested: 270000)","type":"invalid_request_error"}}"#,
    ),
    (
        400,
        r#"{"error":{"message":"<400> InternalError.Algo.InvalidParameter: Range of input length should be [1, 129024]","type":"invalid_request_error","param":null,"code":"invalid_parameter_error"}}"#,
    ),
    (
        400,
        r#"{"error":{"code":"1261","message":"Prompt exceeds max length"}}"#,
    ),
    (400, r#"{"error":{"code":"1210","message":"Prompt 超长"}}"#),
    (
        400,
        r#"{"code":20015,"message":"length of prompt_tokens (200000) must be less than max_seq_len (131072).","data":null}"#,
    ),
    (
        422,
        r#"{"error":{"message":"Input validation error: `inputs` tokens + `max_new_tokens` must be <= 8193. Given: 9000 `inputs` tokens and 500 `max_new_tokens`","type":"invalid_request_error","param":null,"code":null}}"#,
    ),
    (
        413,
        r#"{"error":{"message":"prompt token count of 130000 exceeds the limit of 128000","code":"model_max_prompt_tokens_exceeded"}}"#,
    ),
    (
        400,
        r#"{"error":{"message":"prompt token count of 130000 exceeds the limit of 128000","code":"model_max_prompt_tokens_exceeded"}}"#,
    ),
    (
        400,
        r#"{"code":"Client specified an invalid argument","error":"This model's maximum prompt length is 131072 but the request contains 140000 tokens."}"#,
    ),
    (
        400,
        r#"{"object":"error","message":"Prompt contains 40000 tokens and 0 draft tokens, too large for model with 32768 maximum context length","type":"invalid_request_prompt","param":null,"code":"3051"}"#,
    ),
    (
        400,
        r#"{"error":{"message":"This endpoint's maximum context length is 131072 tokens. However, you requested about 140000 tokens (139000 of text input, 1000 of tool input). Please reduce the length of either one, or use the \"middle-out\" transform to compress your prompt automatically.","code":400,"metadata":{"provider_name":null}}}"#,
    ),
    (
        400,
        r#"{"error":{"message":"litellm.BadRequestError: litellm.ContextWindowExceededError: ContextWindowExceededError: OpenAIException - This model's maximum context length is 8192 tokens. However, you requested 9000 tokens.","type":null,"param":null,"code":"400"}}"#,
    ),
    (
        400,
        r#"{"message":"Input is too long for requested model.","__type":"ValidationException"}"#,
    ),
    (
        400,
        r#"{"base_resp":{"status_code":2013,"status_msg":"invalid params, context window exceeds limit"}}"#,
    ),
    (
        400,
        r#"{"error":{"message":"输入长度超过模型最大限制","type":"invalid_request_error"}}"#,
    ),
    (
        400,
        r#"{"error":{"message":"La requête dépasse la taille maximale du contexte (32768 tokens, 40000 demandés)"}}"#,
    ),
    (
        500,
        r#"{"error":{"message":"input length exceeds the context length","type":"api_error"}}"#,
    ),
];

#[test]
fn the_prompt_is_too_long() {
    check(ContextOverflow, CONTEXT_OVERFLOW);
}

const OUTPUT_CAP: &[(u16, &str)] = &[
    (
        400,
        r#"{"error":{"message":"You passed 25 input tokens and requested 65536 output tokens. However, the model's context length is only 32768 tokens, resulting in a maximum input length of -32768 tokens. Please reduce the length of the input prompt. (parameter=input_tokens, value=25)","type":"BadRequestError","param":"input_tokens","code":400}}"#,
    ),
    (
        400,
        r#"{"object":"error","message":"'max_tokens' or 'max_completion_tokens' is too large: 65536. This model's maximum context length is 32768 tokens and your request has 9012 input tokens (65536 > 32768 - 9012). None","type":"BadRequestError","param":null,"code":400}"#,
    ),
    (
        400,
        r#"{"error":{"message":"max_tokens is too large: 32000. This model supports at most 16384 completion tokens, whereas you provided 32000.","type":"invalid_request_error","param":"max_tokens","code":"invalid_value"}}"#,
    ),
    (
        400,
        r#"{"error":{"message":"Invalid max_tokens value, the valid range of max_tokens is [1, 8192]","type":"invalid_request_error","param":null,"code":"invalid_request_error"}}"#,
    ),
    (
        400,
        r#"{"error":{"message":"<400> InternalError.Algo.InvalidParameter: Range of max_tokens should be [1, 8192]","type":"invalid_request_error","param":null,"code":"invalid_parameter_error"}}"#,
    ),
    (
        400,
        r#"{"error":{"message":"`max_tokens` must be less than or equal to `8192`, the maximum value for `max_tokens` is less than the `context_window` for this model","type":"invalid_request_error","param":"max_tokens"}}"#,
    ),
    (
        400,
        r#"{"code":20015,"message":"max_tokens (65536) is too large. This model supports at most 8192 tokens.","data":null}"#,
    ),
    (
        400,
        r#"{"type":"error","error":{"type":"invalid_request_error","message":"max_tokens: 64000 > 8192, which is the maximum allowed number of output tokens for claude-3-5-haiku-20241022"}}"#,
    ),
    (
        422,
        r#"{"error":{"message":"Input validation error: `inputs` tokens + `max_new_tokens` must be <= 32769. Given: 900 `inputs` tokens and 65536 `max_new_tokens`","type":"invalid_request_error"}}"#,
    ),
    (
        400,
        r#"{"error":{"message":"This model's maximum context length is 32768 tokens. However, you requested 70000 tokens (4464 in the messages, 65536 in the completion). Please reduce the length of the messages or completion.","type":"BadRequestError","param":null,"code":400}}"#,
    ),
    (
        400,
        r#"{"object":"error","message":"Requested token count exceeds the model's maximum context length of 32768 tokens. You requested a total of 70000 tokens: 4464 tokens from the input messages and 65536 tokens for the completion. Please reduce the number of tokens in the input messages or the completion to fit within the limit.","type":"BadRequestError","param":null,"code":400}"#,
    ),
    (
        402,
        r#"{"error":{"message":"This request requires more credits, or fewer max_tokens. You requested up to 65536 tokens, but can only afford 17223. To increase, visit https://openrouter.ai/settings/credits and upgrade to a paid account","code":402,"metadata":{"provider_name":null}}}"#,
    ),
];

#[test]
fn the_answer_asked_for_is_too_long() {
    check(OutputCap, OUTPUT_CAP);
}

/// The numbers that errors state are taken over.
#[test]
fn stated_numbers_are_read() {
    for (status, body, limit) in [
        (
            429,
            r#"{"error":{"message":"Request too large for gpt-4o in organization org-x on tokens per min (TPM): Limit 30000, Requested 61337. The input or output tokens must be reduced in order to run successfully.","type":"tokens","param":null,"code":"rate_limit_exceeded"}}"#,
            30_000,
        ),
        (
            400,
            r#"{"error":{"message":"You passed 33015 input tokens and requested 10 output tokens. However, the model's context length is only 32768 tokens, resulting in a maximum input length of 32758 tokens."}}"#,
            32_768,
        ),
        (
            400,
            r#"{"error":{"message":"You passed 25 input tokens and requested 65536 output tokens. However, the model's context length is only 32768 tokens, resulting in a maximum input length of -32768 tokens."}}"#,
            32_743,
        ),
        (
            402,
            r#"{"error":{"message":"This request requires more credits, or fewer max_tokens. You requested up to 65536 tokens, but can only afford 17223.","code":402}}"#,
            17_223,
        ),
        (
            400,
            r#"{"error":{"message":"Invalid request: Your request exceeded model token limit: 262144 (requested: 270000)"}}"#,
            262_144,
        ),
        (
            400,
            r#"{"error":{"code":400,"message":"the request exceeds the available context size. try increasing the context size or enable context shift","type":"exceed_context_size_error","n_prompt_tokens":9000,"n_ctx":4096}}"#,
            4_096,
        ),
    ] {
        assert_eq!(judge(status, body).limit, Some(limit), "{body}");
    }
}

/// Servers that check requests with pydantic repeat what they were sent. What stands there is the
/// conversation, not the error.
#[test]
fn what_an_error_repeats_of_the_request_is_not_what_it_says() {
    for repeated in [
        "the api key is invalid: invalid api key, check your plan and billing",
        "rate limit, too many requests, overloaded",
        "prompt is too long: 215000 tokens > 200000 maximum context length exceeded",
        "content_filter usage policies thinking signature reasoning_content",
    ] {
        let listed = serde_json::json!({"detail": [{
            "type": "extra_forbidden", "loc": ["body", "messages", 0, "odd"],
            "msg": "Extra inputs are not permitted", "input": repeated,
        }]});
        let written = serde_json::json!({"object": "error", "code": 400, "type": "BadRequestError",
            "message": format!("[{{'type': 'extra_forbidden', 'loc': ('body', 'odd'), 'msg': 'Extra inputs are not permitted', 'input': {{'messages': [{{'role': 'user', 'content': '{repeated}'}}]}}}}]"),
        });
        let counted = serde_json::json!({"error": {"code": 400, "type": "BadRequestError",
            "message": format!("1 validation error for ChatCompletionRequest\nodd\n  Extra inputs are not permitted [type=extra_forbidden, input_value={{'messages': '{repeated}'}}, input_type=dict]\n    For further information visit https://errors.pydantic.dev/2.12/v/extra_forbidden"),
        }});
        for body in [listed, written, counted] {
            let verdict = judge(400, &body.to_string());
            assert_eq!(verdict.class, Format, "{} {body}", verdict.rule);
        }
    }
}

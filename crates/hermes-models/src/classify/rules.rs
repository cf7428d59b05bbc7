//! The rules, in order: special cases before general ones, and complaints about parameters and
//! empty answers before overflow, because all of them mention `max_tokens`.

use hermes_core::model::ErrorClass;

use super::{CallContext, ErrorReport, limits, overflow, wording};

pub(super) struct ErrorRule {
    pub(super) name: &'static str,
    status: StatusMatch,
    /// One of these codes or texts must occur; both empty: no condition.
    codes: &'static [&'static str],
    any: &'static [&'static str],
    /// One of these must occur as well.
    also: &'static [&'static str],
    check: Option<fn(&ErrorReport, &CallContext) -> bool>,
    pub(super) class: ErrorClass,
}

#[derive(Clone, Copy)]
enum StatusMatch {
    Any,
    Is(&'static [u16]),
    Within(u16, u16),
}

impl ErrorRule {
    const fn new(name: &'static str, class: ErrorClass) -> Self {
        Self {
            name,
            status: StatusMatch::Any,
            codes: &[],
            any: &[],
            also: &[],
            check: None,
            class,
        }
    }

    const fn status(mut self, list: &'static [u16]) -> Self {
        self.status = StatusMatch::Is(list);
        self
    }

    const fn within(mut self, low: u16, high: u16) -> Self {
        self.status = StatusMatch::Within(low, high);
        self
    }

    const fn codes(mut self, codes: &'static [&'static str]) -> Self {
        self.codes = codes;
        self
    }

    const fn any(mut self, texts: &'static [&'static str]) -> Self {
        self.any = texts;
        self
    }

    const fn also(mut self, texts: &'static [&'static str]) -> Self {
        self.also = texts;
        self
    }

    const fn check(mut self, check: fn(&ErrorReport, &CallContext) -> bool) -> Self {
        self.check = Some(check);
        self
    }

    fn matches(&self, report: &ErrorReport, situation: &CallContext) -> bool {
        let status = match (self.status, report.status) {
            (StatusMatch::Any, _) => true,
            (StatusMatch::Is(list), Some(status)) => list.contains(&status),
            (StatusMatch::Within(low, high), Some(status)) => (low..=high).contains(&status),
            (_, None) => false,
        };
        let says = |texts: &[&str]| texts.iter().any(|text| report.text.contains(text));
        let named = (self.codes.is_empty() && self.any.is_empty())
            || self.codes.iter().any(|code| report.has_code(code))
            || says(self.any);
        status
            && named
            && (self.also.is_empty() || says(self.also))
            && self.check.is_none_or(|check| check(report, situation))
    }
}

/// The first matching rule; the last one matches everything.
pub(super) fn first_match(report: &ErrorReport, situation: &CallContext) -> &'static ErrorRule {
    RULES
        .iter()
        .find(|rule| rule.matches(report, situation))
        .unwrap_or(&UNKNOWN)
}

const UNKNOWN: ErrorRule = ErrorRule::new("unknown", ErrorClass::Unknown);

const BILLING_CODES: &[&str] = &[
    "insufficient_quota",
    "billing_not_active",
    "payment_required",
    "insufficient_credits",
    "no_usable_credits",
    "balance_depleted",
    "billing_error",
    "model_not_supported_on_free_tier",
    "personal-team-blocked:spending-limit",
    "arrearage",
    "accountoverdueerror",
    "budget_exceeded",
    "insufficient_user_quota",
    "pre_consume_token_quota_failed",
    "exceeded_current_quota_error",
    "creditserror",
    "1113",
];
const BILLING: &[&str] = &[
    "insufficient credits",
    "insufficient balance",
    "insufficient funds",
    "credit balance",
    "credits exhausted",
    "out of credits",
    "out of funds",
    "top up your",
    "payment required",
    "billing hard limit",
    "check your plan and billing",
    "account is deactivated",
    "plan does not include",
    "not available on the free tier",
    "balance_depleted",
    "spending limit",
    "key limit exceeded",
];
const KEY_CODES: &[&str] = &[
    "authentication_error",
    "invalid_api_key",
    "api_key_invalid",
    "invalidapikey",
    "invalid_authentication",
    "invalid_authentication_error",
    "invalid_key",
    "expired_api_key",
    "api_key_expired",
    "unauthenticated",
    "missing_api_key",
];
const KEY: &[&str] = &[
    "api key not valid",
    "api key is not valid",
    "invalid api key",
    "invalid api-key",
    "invalid_api_key",
    "incorrect api key",
    "wrong api key",
    "api key invalid",
    "api key is invalid",
    "api key expired",
    "api key has expired",
    "api key is expired",
    "api key not found",
    "api_key_invalid",
    "invalid x-api-key",
    "invalid token",
    "invalid access token",
    "invalid bearer token",
    "invalid authentication",
    "authentication failed",
    "no api key",
    "please pass a valid api key",
    "invalid proxy server token",
    "token_not_found_in_db",
    "login fail",
    "\u{65e0}\u{6548}\u{7684}\u{4ee4}\u{724c}",
    "\u{8eab}\u{4efd}\u{9a8c}\u{8bc1}\u{5931}\u{8d25}",
];
const RATE: &[&str] = &[
    "rate limit",
    "rate_limit",
    "too many requests",
    "throttl",
    "requests per minute",
    "tokens per minute",
    "requests per day",
    "resource_exhausted",
    "resource has been exhausted",
    "please retry after",
    "rate increased too quickly",
    "too many concurrent",
];
const RATE_CODES: &[&str] = &[
    "rate_limit_error",
    "rate_limit_exceeded",
    "resource_exhausted",
    "throttled",
];
const OVERLOADED: &[&str] = &[
    "overloaded",
    "at capacity",
    "over capacity",
    "engine is currently busy",
    "server is busy",
    "no available capacity",
    "capacity exceeded",
];
const PARAMETER: &[&str] = &[
    "unknown parameter",
    "unsupported parameter",
    "unrecognized request argument",
    "unknown_parameter",
    "unsupported_parameter",
    "extra inputs are not permitted",
    "unknown name \"",
    "unrecognized field",
    "not supported with this model",
    "unexpected keyword argument",
    "unknown field",
    "does not support parameter",
];
const EMPTY: &[&str] = &[
    "returned an empty response",
    "empty response despite",
    "returning empty responses",
    "empty response stream",
];
const OVERFLOW: &[&str] = &[
    "context length",
    "context size",
    "context window",
    "maximum context",
    "context_length",
    "token limit",
    "too many tokens",
    "reduce the length",
    "prompt is too long",
    "prompt too long",
    "prompt exceeds",
    "input is too long",
    "maximum number of tokens",
    "max_model_len",
    "maximum model length",
    "maximum prompt length",
    "prompt length",
    "exceeds the limit",
    "max input token",
    "number of input tokens",
    "input token count",
    "more than max tokens allowed",
    "truncating input",
    "slot context",
    "n_ctx",
    "\u{8d85}\u{8fc7}\u{6700}\u{5927}\u{957f}\u{5ea6}",
    "\u{4e0a}\u{4e0b}\u{6587}\u{957f}\u{5ea6}",
];
const MISSING_MODEL: &[&str] = &[
    "is not a valid model",
    "invalid model",
    "model not found",
    "model_not_found",
    "no such model",
    "unknown model",
    "unsupported model",
    "try pulling it first",
    "no endpoints found that support tool use",
    "does not support tools",
];
const DATA_POLICY: &[&str] = &[
    "matching your guardrail",
    "matching your data policy",
    "no endpoints available matching",
];

fn says_key(report: &ErrorReport) -> bool {
    KEY_CODES.iter().any(|code| report.has_code(code))
        || KEY.iter().any(|text| report.text.contains(text))
}

/// Limits per minute are stated in tokens, too.
fn is_rate(report: &ErrorReport) -> bool {
    RATE_CODES.iter().any(|code| report.has_code(code))
}

pub(super) const RULES: &[ErrorRule] = &[
    // Caused by the content itself.
    ErrorRule::new("content policy", ErrorClass::ContentPolicy)
        .codes(&[
            "content_policy_violation",
            "content_filter",
            "responsibleaipolicyviolation",
        ])
        .any(&["content_filter"]),
    ErrorRule::new("unwanted content", ErrorClass::ContentPolicy)
        .check(|report, _| wording::content_is_refused(&report.text)),
    ErrorRule::new("thinking signature", ErrorClass::ReasoningRejected)
        .status(&[400, 422])
        .any(&["thinking"])
        .also(&[
            "signature",
            "cannot be modified",
            "must remain",
            "must start with",
            "expected `thinking`",
            "cannot be `thinking`",
            "final block",
        ]),
    ErrorRule::new("thought signature", ErrorClass::ReasoningRejected)
        .status(&[400, 422])
        .any(&["thought_signature", "thoughtsignature", "thought signature"]),
    ErrorRule::new("encrypted reasoning", ErrorClass::ReasoningRejected)
        .codes(&["invalid_encrypted_content"])
        .any(&[
            "invalid_encrypted_content",
            "decrypt",
            "encrypted content for item",
            "encrypted content could not",
            "without its required following item",
            "without its required 'reasoning'",
            "item with id 'rs_",
        ]),
    ErrorRule::new("reasoning echo", ErrorClass::ReasoningRejected)
        .status(&[400, 422])
        .any(&["reasoning_content", "reasoning_details"]),
    ErrorRule::new("long context tier", ErrorClass::LongContextTier)
        .status(&[429])
        .any(&["extra usage"])
        .also(&["long context"]),
    ErrorRule::new("long context beta", ErrorClass::LongContextTier)
        .status(&[400])
        .any(&["long context beta"]),
    ErrorRule::new("chat template", ErrorClass::SchemaRejected)
        .any(&["unable to generate parser"])
        .also(&["template"]),
    ErrorRule::new("tool schema", ErrorClass::SchemaRejected)
        .within(400, 500)
        .check(|report, _| wording::schema_is_refused(&report.text)),
    ErrorRule::new("tool content", ErrorClass::ToolContentRejected)
        .within(400, 499)
        .any(&[
            "text is not set",
            "tool message content must be a string",
            "tool content must be a string",
            "tool message must be a string",
            "tool_call.content must be string",
        ]),
    // Lists are sent only if there are images.
    ErrorRule::new("plain content", ErrorClass::ImagesUnsupported)
        .within(400, 499)
        .check(|report, situation| {
            situation.shown_images && wording::wants_plain_content(&report.text)
        }),
    ErrorRule::new("plain results", ErrorClass::ToolContentRejected)
        .within(400, 499)
        .check(|report, _| wording::wants_plain_content(&report.text)),
    ErrorRule::new("image too large", ErrorClass::ImageTooLarge)
        .codes(&["image_too_large"])
        .check(|report, _| report.status != Some(429)),
    ErrorRule::new("image size", ErrorClass::ImageTooLarge).check(|report, _| {
        report.status != Some(429) && wording::picture_is_too_large(&report.text)
    }),
    ErrorRule::new("no images", ErrorClass::ImagesUnsupported)
        .within(400, 500)
        .check(|report, _| {
            report.text.contains("mmproj")
                || report.text.contains("support image input")
                || wording::pictures_are_refused(&report.text)
        }),
    // Keys and billing.
    ErrorRule::new("place", ErrorClass::AccountPolicy)
        .within(400, 403)
        .codes(&["unsupported_country_region_territory"])
        .any(&[
            "location is not supported",
            "region, or territory not supported",
        ]),
    ErrorRule::new("401 billing", ErrorClass::Billing)
        .status(&[401, 412])
        .codes(BILLING_CODES)
        .any(BILLING)
        .check(|report, _| !says_key(report)),
    ErrorRule::new("401 no money", ErrorClass::Billing)
        .status(&[401, 412])
        .check(|report, _| wording::lacks_money(&report.text) && !says_key(report)),
    ErrorRule::new("401", ErrorClass::Auth).status(&[401]),
    ErrorRule::new("403 billing", ErrorClass::Billing)
        .status(&[403])
        .codes(BILLING_CODES)
        .any(BILLING),
    ErrorRule::new("403 no money", ErrorClass::Billing)
        .status(&[403])
        .check(|report, _| wording::lacks_money(&report.text)),
    ErrorRule::new("403", ErrorClass::Auth).status(&[403]),
    ErrorRule::new("400 key", ErrorClass::Auth)
        .status(&[400, 422])
        .codes(KEY_CODES)
        .any(KEY),
    ErrorRule::new("402 comes back", ErrorClass::RateLimit)
        .status(&[402])
        .check(|report, _| report.states_retry_time),
    ErrorRule::new("402 usage limit", ErrorClass::RateLimit)
        .status(&[402])
        .any(&["usage limit", "quota", "limit exceeded"])
        .also(&[
            "try again",
            "retry",
            "resets",
            "reset in",
            "wait",
            "window",
            "periodic",
        ]),
    ErrorRule::new("affordable answer", ErrorClass::OutputCap)
        .status(&[402])
        .check(|report, _| limits::affordable(&report.text).is_some()),
    ErrorRule::new("402", ErrorClass::Billing).status(&[402]),
    ErrorRule::new("404 free tier", ErrorClass::Billing)
        .status(&[404])
        .codes(BILLING_CODES)
        .any(BILLING),
    ErrorRule::new("data policy", ErrorClass::AccountPolicy)
        .within(400, 404)
        .any(DATA_POLICY),
    ErrorRule::new("404 model", ErrorClass::ModelNotFound)
        .status(&[404])
        .codes(&["not_found_error"])
        .any(MISSING_MODEL)
        .check(|report, _| !report.message.is_empty()),
    ErrorRule::new("404 does not exist", ErrorClass::ModelNotFound)
        .status(&[404])
        .any(&["model", "deployment", "no endpoints found for"])
        .also(&["does not exist", "not found", "no access", "no endpoints"]),
    ErrorRule::new("5xx model", ErrorClass::ModelNotFound)
        .within(500, 503)
        .codes(&["model_not_found"]),
    ErrorRule::new("larger than the rate", ErrorClass::ContextOverflow)
        .status(&[413, 429])
        .check(|report, _| wording::exceeds_the_rate_alone(&report.text)),
    ErrorRule::new("413 prompt", ErrorClass::ContextOverflow)
        .status(&[413])
        .check(|report, _| report.text.contains("token") && overflow::is_said(&report.text)),
    ErrorRule::new("413", ErrorClass::PayloadTooLarge).status(&[413]),
    // Rate limits.
    ErrorRule::new("429 quota", ErrorClass::Billing)
        .status(&[429])
        .codes(BILLING_CODES),
    // Free tiers mention money in every error. A stated retry time means a rate limit.
    ErrorRule::new("429 no credit", ErrorClass::Billing)
        .status(&[429])
        .any(BILLING)
        .check(|report, _| !report.states_retry_time),
    ErrorRule::new("429 no money", ErrorClass::Billing)
        .status(&[429])
        .check(|report, _| !report.states_retry_time && wording::lacks_money(&report.text)),
    ErrorRule::new("429 overloaded", ErrorClass::Overloaded)
        .status(&[429])
        .codes(&["1305", "overloaded_error"])
        .any(OVERLOADED),
    ErrorRule::new("429 upstream", ErrorClass::UpstreamRateLimit)
        .status(&[429])
        .any(&["provider returned error"])
        .check(|report, _| report.upstream),
    ErrorRule::new("429", ErrorClass::RateLimit).status(&[429]),
    ErrorRule::new("498", ErrorClass::Overloaded).status(&[498]),
    // The model wrote a call that its server cannot parse: a retry writes another one.
    ErrorRule::new("unreadable call", ErrorClass::BadResponse)
        .within(400, 422)
        .codes(&[
            "tool_use_failed",
            "output_parse_failed",
            "json_validate_failed",
        ])
        .any(&[
            "tool_use_failed",
            "failed to call a function",
            "output_parse_failed",
            "model generated output that could not be parsed",
            "tool call validation failed",
        ]),
    // Caused by the request itself: parameters before sizes.
    ErrorRule::new("parameter", ErrorClass::Format)
        .within(400, 502)
        .codes(&["unknown_parameter", "unsupported_parameter"])
        .any(PARAMETER),
    ErrorRule::new("5xx invalid request", ErrorClass::Format)
        .within(500, 502)
        .codes(&["invalid_request_error"])
        .any(&["invalid_request_error"]),
    ErrorRule::new("empty answer", ErrorClass::Server).any(EMPTY),
    ErrorRule::new("output cap", ErrorClass::OutputCap)
        .any(&[
            "available_tokens",
            "range of max_tokens",
            "maximum allowed number of output tokens",
            "supports at most",
            "max_tokens is too large",
            "max_completion_tokens is too large",
            "max_output_tokens is too large",
            "'max_tokens' or 'max_completion_tokens' is too large",
        ])
        .check(|report, _| report.text.contains("max_") || report.text.contains("completion")),
    ErrorRule::new("answer limit", ErrorClass::OutputCap)
        .within(400, 499)
        .check(|report, _| overflow::is_about_the_answer(&report.text)),
    ErrorRule::new("answer does not fit", ErrorClass::OutputCap)
        .any(&[
            "the completion",
            "max_tokens",
            "max_new_tokens",
            "max_completion_tokens",
            "output tokens",
        ])
        .also(&[
            "context length",
            "context limit",
            "context window",
            "must be <=",
        ])
        .check(|report, _| limits::fits_shorter_answer(&report.text)),
    ErrorRule::new("overflow code", ErrorClass::ContextOverflow).codes(&[
        "context_length_exceeded",
        "max_tokens_exceeded",
        "exceed_context_size_error",
    ]),
    ErrorRule::new("overflow text", ErrorClass::ContextOverflow)
        .any(OVERFLOW)
        .check(|report, _| report.status != Some(404) && !is_rate(report)),
    ErrorRule::new("400 model", ErrorClass::ModelNotFound)
        .within(400, 422)
        .codes(&[
            "model_not_found",
            "model_not_available",
            "model_not_supported",
            "model_decommissioned",
            "invalid_model",
        ])
        .any(MISSING_MODEL),
    ErrorRule::new("400 model text", ErrorClass::ModelNotFound)
        .within(400, 422)
        .check(|report, _| wording::lacks_model(&report.text)),
    ErrorRule::new("400 rate limit", ErrorClass::RateLimit)
        .status(&[400])
        .any(RATE),
    ErrorRule::new("400 billing", ErrorClass::Billing)
        .status(&[400])
        .codes(BILLING_CODES)
        .any(BILLING),
    ErrorRule::new("400 no money", ErrorClass::Billing)
        .status(&[400, 422])
        .check(|report, _| wording::lacks_money(&report.text)),
    ErrorRule::new("overflow words", ErrorClass::ContextOverflow).check(|report, _| {
        matches!(report.status, None | Some(400 | 413 | 422 | 500))
            && !is_rate(report)
            && (overflow::is_said(&report.text)
                || report.codes.iter().any(|code| overflow::is_code(code)))
    }),
    ErrorRule::new("bare 400, large prompt", ErrorClass::ContextOverflow)
        .status(&[400])
        .check(|report, situation| report.message.chars().count() < 30 && situation.fills(40)),
    ErrorRule::new("by size", ErrorClass::ContextOverflow)
        .status(&[400, 422])
        .check(|_, situation| situation.is_near_window()),
    ErrorRule::new("by numbers", ErrorClass::ContextOverflow)
        .status(&[400, 413, 422])
        .check(|report, situation| overflow::compares_sizes(&report.text, situation)),
    // Server-side problems.
    ErrorRule::new("408", ErrorClass::Timeout).status(&[408]),
    ErrorRule::new("gateway timeout", ErrorClass::Timeout).status(&[504, 522, 524]),
    ErrorRule::new("503", ErrorClass::Overloaded).status(&[503, 529]),
    ErrorRule::new("5xx", ErrorClass::Server).within(500, 599),
    ErrorRule::new("4xx", ErrorClass::Format).within(400, 499),
    // Errors inside a stream, which have no status.
    ErrorRule::new("overloaded", ErrorClass::Overloaded)
        .codes(&["overloaded_error", "server_is_overloaded", "slow_down"])
        .any(OVERLOADED),
    ErrorRule::new("quota", ErrorClass::Billing).codes(BILLING_CODES),
    ErrorRule::new("no credit", ErrorClass::Billing)
        .any(BILLING)
        .check(|report, _| !report.states_retry_time),
    ErrorRule::new("no money", ErrorClass::Billing)
        .check(|report, _| !report.states_retry_time && wording::lacks_money(&report.text)),
    ErrorRule::new("rate limit", ErrorClass::RateLimit)
        .codes(RATE_CODES)
        .any(RATE),
    ErrorRule::new("comes back", ErrorClass::RateLimit)
        .any(BILLING)
        .check(|report, _| report.states_retry_time),
    ErrorRule::new("payload", ErrorClass::PayloadTooLarge)
        .codes(&["request_too_large"])
        .any(&["request entity too large", "payload too large"]),
    ErrorRule::new("key", ErrorClass::Auth)
        .codes(&[
            "permission_error",
            "authentication_error",
            "invalid_api_key",
            "api_key_invalid",
            "unauthenticated",
        ])
        .any(&[
            "unauthorized",
            "token expired",
            "token revoked",
            "access denied",
        ]),
    ErrorRule::new("key text", ErrorClass::Auth).any(KEY),
    ErrorRule::new("model", ErrorClass::ModelNotFound)
        .codes(&["not_found_error", "model_not_found"])
        .any(MISSING_MODEL),
    ErrorRule::new("timed out", ErrorClass::Timeout)
        .codes(&["timeout_error"])
        .any(&["timed out", "deadline exceeded"]),
    ErrorRule::new("refused request", ErrorClass::Format).codes(&["invalid_request_error"]),
    ErrorRule::new("server", ErrorClass::Server)
        .codes(&[
            "api_error",
            "server_error",
            "internal_error",
            "internal_server_error",
        ])
        .any(&[
            "internal server error",
            "an error occurred while processing",
        ]),
    UNKNOWN,
];

//! Errors of servers that no rule was written for.

use chrono::DateTime;
use hermes_core::model::ErrorClass::{
    self, Auth, Billing, ContextOverflow, Format, OutputCap, Overloaded, RateLimit, Server,
};
use serde_json::json;

use super::{CallContext, answer};

/// A prompt whose size explains nothing.
const SMALL: CallContext = CallContext {
    prompt_tokens: 20_000,
    context_length: 256_000,
    window_assumed: false,
    answer_tokens: 0,
    shown_images: false,
    slow_reasoner: false,
};

fn class(status: u16, message: &str, headers: &[(&str, &str)]) -> ErrorClass {
    let body = json!({"error": {"message": message}}).to_string();
    let header = |name: &str| {
        let found = headers.iter().find(|(known, _)| *known == name);
        found.map(|(_, value)| (*value).to_owned())
    };
    let now = DateTime::UNIX_EPOCH;
    answer(Some(status), &header, body.as_bytes(), &SMALL, now).class
}

#[test]
fn too_much_prompt_is_known_in_words_that_nobody_listed() {
    let texts = [
        "This model's maximum prompt length is 131072 but the request contains 140000 tokens.",
        "too many tokens: size limit exceeded by 4000 tokens. Try using shorter or fewer inputs.",
        "Please reduce the length of the messages or completion. Current length is 9000 while limit is 8192",
        "Trying to keep the first 9000 tokens when context the overflows. However, the model is loaded with context length of only 4096 tokens",
        "Requested input length 9000 exceeds maximum input length 8192",
        "the number of input tokens 9000 cannot exceed the total tokens limit 8192 for this model",
        "Text length is 40000, outside the range (0, 32000]",
        "prompt token count of 130000 exceeds the limit of 128000",
        "Unable to submit request because the input token count is 1300000 but model only supports up to 1048576.",
        "input length (5000) + max_new_tokens (500) exceeds max_seq_len 4096",
        "max tokens of 128000 exceeded",
        "The total length of messages must not surpass 32000",
        "Your request has 140000 tokens, which is beyond the 128000 this model can handle",
        "Sequence of 9001 tokens is above the 8192 that this deployment was built for",
        "The model's window is 8192 tokens; 9001 were given",
        "n_tokens (9001) >= n_ctx (8192)",
        "Conversation too large for model",
        "\u{8f93}\u{5165}\u{5185}\u{5bb9}\u{603b}\u{957f}\u{5ea6}\u{8d85}\u{51fa}\u{9650}\u{5236}",
        "Prompt \u{8d85}\u{957f}",
        "Request exceeds the model's capacity of 32768 tokens",
        "inputs are limited to 4096 tokens, got 5000",
        "KV cache is full: prompt of 9001 tokens cannot be processed",
        "prompt: 9001 tokens, allowed: 8192 tokens",
        "Total number of tokens (9001) is higher than allowed (8192)",
    ];
    let missed: Vec<&str> = texts
        .into_iter()
        .filter(|text| !matches!(class(400, text, &[]), ContextOverflow | OutputCap))
        .collect();
    assert!(missed.is_empty(), "{missed:#?}");
}

#[test]
fn other_complaints_are_not_taken_for_it() {
    for (text, right) in [
        (
            "messages: roles must alternate between user and assistant",
            Format,
        ),
        (
            "tools.3.function.name: string does not match pattern",
            Format,
        ),
        ("messages.2.content: expected a string or an array", Format),
        ("temperature: must be between 0 and 1", Format),
        ("seed must be an integer", Format),
        (
            "An assistant message with 'tool_calls' must be followed by tool messages",
            Format,
        ),
        ("Incorrect API key provided: sk-1", Auth),
        ("Your credit balance is too low to access the API", Billing),
    ] {
        assert_eq!(class(400, text, &[]), right, "{text}");
    }
}

#[test]
fn whoever_says_when_to_come_back_means_a_rate() {
    for (status, text, headers) in [
        (
            429,
            "Quota exceeded for metric GenerateRequestsPerMinute. Check your plan and billing. Please retry in 12.5s.",
            &[][..],
        ),
        (
            429,
            "You exceeded your current quota, please check your plan and billing details.",
            &[("retry-after", "7")][..],
        ),
        (
            429,
            "You exceeded your current quota, check your plan and billing; try again in 6m0s",
            &[][..],
        ),
        (
            429,
            "Free tier: check your plan and billing. Limit resets in 40 seconds.",
            &[][..],
        ),
        (402, "Usage limit reached, window resets at 18:00", &[][..]),
        (
            429,
            "Insufficient balance for burst; retry after 3 seconds",
            &[][..],
        ),
    ] {
        assert_eq!(class(status, text, headers), RateLimit, "{text}");
    }
    for (status, text) in [
        (
            429,
            "You exceeded your current quota, please check your plan and billing details.",
        ),
        (402, "Insufficient credits. Add more at the console."),
        (403, "Your account is out of funds; top up your balance"),
    ] {
        assert_eq!(class(status, text, &[]), Billing, "{text}");
    }
}

#[test]
fn trouble_on_the_other_side_is_tried_again() {
    for (status, text, right) in [
        (529, "Overloaded", Overloaded),
        (503, "The model is loading", Overloaded),
        (500, "CUDA error: device-side assert", Server),
        (520, "Web server is returning an unknown error", Server),
        (498, "Flex tier capacity exceeded", Overloaded),
    ] {
        assert_eq!(class(status, text, &[]), right, "{text}");
    }
}

//! Refusals of the wire format: a model that is served only under `/responses`, or a server that
//! supports only chat completions.

use std::sync::LazyLock;

use hermes_core::model::{ErrorClass, WireFormat};
use regex::Regex;

use super::{FieldChange, FieldRule, FieldRules};
use crate::classify::ErrorVerdict;
use crate::providers::endpoint::parse_format;

/// Path of the rule for the wire format of a model.
const WIRE_FORMAT: &str = "conversation.format";

/// How clearly an error asks for the other format.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FormatDemand {
    /// It names the other format as the one to use.
    Outright,
    /// It refuses this one, or there is nothing at this address.
    ByRefusal,
}

/// The alternative to `format`: most servers support only one of the two.
pub(crate) fn other_format(format: WireFormat) -> Option<WireFormat> {
    match format {
        WireFormat::ChatCompletions => Some(WireFormat::Responses),
        WireFormat::Responses => Some(WireFormat::ChatCompletions),
        WireFormat::AnthropicMessages => None,
    }
}

/// Whether the error is about the format, so that the other one may work.
pub(crate) fn asks_for_other_format(
    verdict: &ErrorVerdict,
    format: WireFormat,
) -> Option<FormatDemand> {
    let other = other_format(format)?;
    let report = &verdict.report;
    let about_the_request = match report.status {
        None => true,
        Some(status) => matches!(status, 400 | 404 | 405 | 409 | 410 | 415 | 422 | 500 | 501),
    };
    let open = matches!(
        verdict.class,
        ErrorClass::Format | ErrorClass::Unknown | ErrorClass::ModelNotFound | ErrorClass::Server
    );
    if !about_the_request || !open {
        return None;
    }
    let text = &report.text;
    if recommends(text, other) && !recommends(text, format) {
        return Some(FormatDemand::Outright);
    }
    let coded = report.has_code("unsupported_api_for_model");
    let absent = matches!(report.status, Some(404 | 405 | 501))
        && !["model", "deployment"]
            .iter()
            .any(|thing| text.contains(thing));
    (coded || absent || refuses(text, format)).then_some(FormatDemand::ByRefusal)
}

fn names(format: WireFormat) -> &'static [&'static str] {
    match format {
        WireFormat::ChatCompletions => &[
            "chat/completions",
            "chat completion",
            "chat_completion",
            "chatcompletion",
            "chat-completion",
        ],
        WireFormat::Responses => &[
            "/responses",
            "responses api",
            "responses endpoint",
            "responses operation",
            "responses format",
        ],
        WireFormat::AnthropicMessages => &[],
    }
}

/// Whether the text recommends this format.
fn recommends(text: &str, format: WireFormat) -> bool {
    static ADVICE: LazyLock<Option<Regex>> = LazyLock::new(|| {
        Regex::new(
            r"\b(?:only|use|using|try|via|through|mean|switch(?:ed)? to|migrated? to|instead|requires?|supported (?:in|on|by|with)|available (?:in|on|at))\b",
        )
        .ok()
    });
    /// Maximum distance between the advice and the name.
    const MAX_ADVICE_DISTANCE: usize = 60;
    let Some(advice) = ADVICE.as_ref() else {
        return false;
    };
    advice.find_iter(text).any(|found| {
        let denied = ["not ", "n't ", "never ", "cannot be "]
            .iter()
            .any(|word| text[..found.start()].ends_with(word));
        let rest = &text[found.end()..];
        let near = rest
            .char_indices()
            .nth(MAX_ADVICE_DISTANCE)
            .map_or(rest, |(end, _)| &rest[..end]);
        let position = names(format)
            .iter()
            .filter_map(|name| near.find(name))
            .min();
        !denied
            && position.is_some_and(|at| !near[..at].contains("not ") && !near[..at].contains(". "))
    })
}

/// Whether the text says that this format, or its address, does not work.
fn refuses(text: &str, format: WireFormat) -> bool {
    const REFUSAL: &[&str] = &[
        "not support",
        "n't support",
        "unsupported",
        "does not work",
        "doesn't work",
        "not work with",
        "not accessible",
        "not available",
        "unavailable",
        "not enabled",
        "disabled",
        "not implemented",
        "not allowed",
        "not found",
        "does not exist",
        "unknown request url",
        "unknown url",
        "unknown endpoint",
        "invalid url",
        "unexpected endpoint",
        "cannot post",
        "no route",
        "no handler",
    ];
    names(format).iter().any(|name| text.contains(name))
        && REFUSAL.iter().any(|word| text.contains(word))
}

impl FieldRules {
    /// The wire format of a model, if it is not the usual one here.
    pub(crate) fn format(&self) -> Option<WireFormat> {
        self.iter().find_map(|rule| match &rule.change {
            FieldChange::NotValue { instead, .. } if rule.field == WIRE_FORMAT => {
                parse_format(instead.first()?)
            }
            _ => None,
        })
    }

    /// The rule that `used` replaces `refused`.
    pub(crate) fn for_format(refused: WireFormat, used: WireFormat) -> Self {
        let change = FieldChange::NotValue {
            value: format_name(refused).to_owned(),
            instead: vec![format_name(used).to_owned()],
        };
        std::iter::once(FieldRule::new(WIRE_FORMAT, change)).collect()
    }
}

/// The name of a format in files.
pub(super) fn format_name(format: WireFormat) -> &'static str {
    match format {
        WireFormat::ChatCompletions => "chat_completions",
        WireFormat::AnthropicMessages => "anthropic_messages",
        WireFormat::Responses => "responses",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::classify::{self, CallContext};
    use serde_json::json;

    fn asked(status: u16, message: &str, format: WireFormat) -> Option<FormatDemand> {
        let body = json!({"error": {"message": message}}).to_string();
        let now = chrono::DateTime::UNIX_EPOCH;
        let verdict = classify::answer(
            Some(status),
            &|_| None,
            body.as_bytes(),
            &CallContext::default(),
            now,
        );
        asks_for_other_format(&verdict, format)
    }

    const CHAT: WireFormat = WireFormat::ChatCompletions;
    const RESPONSES: WireFormat = WireFormat::Responses;

    #[test]
    fn the_other_format_is_asked_for() {
        for (status, text, format) in [
            (
                404,
                "This model is only supported in v1/responses and not in v1/chat/completions.",
                CHAT,
            ),
            (
                400,
                "The model `o9-pro` is only available through the Responses API.",
                CHAT,
            ),
            (
                400,
                "Function tools with reasoning_effort are not supported for gpt-9 in /v1/chat/completions. Please use /v1/responses instead.",
                CHAT,
            ),
            (400, "This model requires the /v1/responses endpoint.", CHAT),
            (
                404,
                "This model is only supported in v1/chat/completions and not in v1/responses.",
                RESPONSES,
            ),
            (
                400,
                "gpt-9 does not support the Responses API; use chat completions.",
                RESPONSES,
            ),
        ] {
            assert_eq!(
                asked(status, text, format),
                Some(FormatDemand::Outright),
                "{text}"
            );
        }
    }

    #[test]
    fn this_format_is_refused() {
        for (status, text, format) in [
            (
                400,
                "The chatCompletion operation does not work with the specified model, gpt-9. Please choose different model and try again.",
                CHAT,
            ),
            (
                400,
                "model gpt-9 is not accessible via the /chat/completions endpoint",
                CHAT,
            ),
            (
                404,
                "This is not a chat model and thus not supported in the v1/chat/completions endpoint. Did you mean to use v1/completions?",
                CHAT,
            ),
            (
                404,
                "Unknown request URL: POST /v1/responses. Please check the URL for typos.",
                RESPONSES,
            ),
            (404, "Invalid URL (POST /v1/responses)", RESPONSES),
            (405, "Method Not Allowed", RESPONSES),
            (404, "Not Found", RESPONSES),
            (501, "", RESPONSES),
            (
                500,
                "The Responses API is not supported by this backend",
                RESPONSES,
            ),
        ] {
            assert_eq!(
                asked(status, text, format),
                Some(FormatDemand::ByRefusal),
                "{text}"
            );
        }
    }

    #[test]
    fn other_errors_say_nothing_about_the_format() {
        for (status, text, format) in [
            (
                404,
                "The model `m` does not exist or you do not have access to it.",
                CHAT,
            ),
            (
                401,
                "Missing scopes: api.responses.write; not available via the Responses API",
                RESPONSES,
            ),
            (
                429,
                "Rate limit reached for /v1/responses, use chat completions",
                RESPONSES,
            ),
            (
                400,
                "Unsupported parameter: 'temperature' is not supported with this model.",
                RESPONSES,
            ),
            (400, "Unknown parameter: 'stream_options'.", CHAT),
            (400, "You requested too many responses", CHAT),
            (503, "The chat completions service is unavailable", CHAT),
            (404, "Not Found", WireFormat::AnthropicMessages),
        ] {
            assert_eq!(asked(status, text, format), None, "{text}");
        }
    }

    #[test]
    fn a_rule_is_read_back() {
        let rules = FieldRules::for_format(CHAT, RESPONSES);
        assert_eq!(rules.format(), Some(RESPONSES));
        assert_eq!(FieldRules::default().format(), None);
    }
}

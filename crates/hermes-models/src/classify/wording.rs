//! Detection of topics where vendors share no wording: an object and what is wrong with it must be
//! named together. All texts are in lower case.

use std::sync::LazyLock;

use regex::Regex;

fn says(text: &str, words: &[&str]) -> bool {
    words.iter().any(|word| text.contains(word))
}

/// Whether the account has no money left.
pub(super) fn lacks_money(text: &str) -> bool {
    const ALONE: &[&str] = &[
        "arrearage",
        "overdue balance",
        "over budget",
        "budget has been exceeded",
        "account is not active, please check your billing",
        "failure to pay",
        "please recharge",
        "\u{6b20}\u{8d39}",
        "\u{8bf7}\u{5145}\u{503c}",
    ];
    const MONEY: &[&str] = &[
        "balance",
        "credit",
        "funds",
        "user quota",
        "token quota",
        "user_quota",
        "token_quota",
        "\u{4f59}\u{989d}",
        "\u{989d}\u{5ea6}",
    ];
    const LACK: &[&str] = &[
        "insufficient",
        "not enough",
        "too low",
        "exhausted",
        "depleted",
        "used all",
        "doesn't have any",
        "does not have any",
        "run out",
        "ran out",
        "top up",
        "\u{4e0d}\u{8db3}",
        "\u{7528}\u{5b8c}",
    ];
    says(text, ALONE) || (says(text, MONEY) && says(text, LACK))
}

static MISSING_MODEL: LazyLock<Option<Regex>> = LazyLock::new(|| {
    Regex::new(
        r"\bmodels?\b[^\n.]{0,80}?\b(?:does not exist|doesn't exist|not exist|not found|has been (?:decommissioned|deprecated|retired|removed)|is deprecated|no longer (?:available|supported)|is not supported by any|could not be found)\b",
    )
    .ok()
});

/// Whether the endpoint does not have the model.
pub(super) fn lacks_model(text: &str) -> bool {
    const ALONE: &[&str] = &[
        "no endpoints found for",
        "no available channel for model",
        "the requested model is not supported",
        "\u{6a21}\u{578b}\u{4e0d}\u{5b58}\u{5728}",
    ];
    says(text, ALONE)
        || MISSING_MODEL
            .as_ref()
            .is_some_and(|pattern| pattern.is_match(text))
}

const PICTURE: &[&str] = &["image", "multimodal file", "picture", "\u{56fe}\u{7247}"];

/// Whether an image is larger than the endpoint accepts.
pub(super) fn picture_is_too_large(text: &str) -> bool {
    const LARGE: &[&str] = &[
        "too large",
        "too big",
        "exceed",
        "maximum allowed",
        "larger than",
        "\u{8fc7}\u{5927}",
    ];
    const SIZE: &[&str] = &[
        "size",
        "dimension",
        "pixel",
        " mb",
        "mb ",
        "kb",
        "bytes",
        "image is too",
        "image too",
        "image exceeds",
    ];
    const OTHER: &[&str] = &[
        "token",
        "number of images",
        "too many images",
        "many images",
        "context",
    ];
    says(text, PICTURE) && says(text, LARGE) && says(text, SIZE) && !says(text, OTHER)
}

/// Whether images are not accepted at all.
pub(super) fn pictures_are_refused(text: &str) -> bool {
    const REFUSED: &[&str] = &[
        "not support",
        "unsupported",
        "only supported by",
        "only support text",
        "at most 0 image",
        "unknown variant",
        "\u{4e0d}\u{652f}\u{6301}",
    ];
    // A kind of image, or its position, can be refused although images are accepted.
    const OTHER: &[&str] = &[
        "format",
        "media type",
        "media_type",
        "mime",
        "detail",
        "gif",
    ];
    text.contains("not a multimodal model")
        || (says(text, PICTURE) && says(text, REFUSED) && !says(text, OTHER))
}

/// Whether the content of a message must be a plain string.
pub(super) fn wants_plain_content(text: &str) -> bool {
    const STRING: &[&str] = &[
        "must be a string",
        "must be string",
        "expected a string",
        "expected string",
        "should be a valid string",
        "is not a string",
    ];
    const ALONE: &[&str] = &["expected string, got list", "expected string, got array"];
    const OTHER: &[&str] = &[
        "arguments",
        "tool_call_id",
        "name",
        "role",
        "or an array",
        "or array",
        "or a list",
        "length",
        "pattern",
    ];
    let of_content = says(text, &["content", "messages[", "messages."]);
    says(text, ALONE) || (of_content && says(text, STRING) && !says(text, OTHER))
}

/// Whether the content itself was refused.
pub(super) fn content_is_refused(text: &str) -> bool {
    const ALONE: &[&str] = &[
        "flagged for possible",
        "flagged as potentially",
        "violates our usage polic",
        "violates usage guidelines",
        "violating our usage polic",
        "usage policies",
        "was flagged by",
        "input was flagged",
        "due to safety",
        "content_filter",
        "responsibleaipolicyviolation",
        "new_sensitive",
        "content management policy",
        "data_inspection_failed",
        "inappropriate content",
        "content exists risk",
        "considered high risk",
        "safety_check_type",
        "\u{654f}\u{611f}\u{5185}\u{5bb9}",
        "\u{4e0d}\u{5b89}\u{5168}\u{6216}\u{654f}\u{611f}",
    ];
    says(text, ALONE)
}

/// Whether a tool's schema is not accepted.
pub(super) fn schema_is_refused(text: &str) -> bool {
    const ALONE: &[&str] = &[
        "flavored json schema",
        "invalid schema for function",
        "invalid json schema",
        "json schema is invalid",
        "schema conversion failed",
        "error parsing grammar",
        "failed to parse grammar",
        "json-schema-to-grammar",
        "grammar error",
        "invalid_function_parameters",
    ];
    const PLACES: &[&str] = &["input_schema", "function_declarations"];
    says(text, ALONE) || says(text, PLACES)
}

/// Whether a single request exceeds the account's limit per minute: waiting does not help, a
/// smaller request does.
pub(super) fn exceeds_the_rate_alone(text: &str) -> bool {
    static RATE: LazyLock<Option<Regex>> = LazyLock::new(|| {
        Regex::new(r"limit:? *(\d[\d,]*),? *(?:tokens)?,? *requested:? *(\d[\d,]*)").ok()
    });
    let number = |digits: &str| digits.replace(',', "").parse::<u64>().unwrap_or(0);
    RATE.as_ref()
        .and_then(|pattern| pattern.captures(text))
        .is_some_and(|found| number(&found[2]) > number(&found[1]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_pattern_compiles() {
        assert!(MISSING_MODEL.is_some());
        assert!(exceeds_the_rate_alone("limit 5, requested 6"));
        assert!(!exceeds_the_rate_alone("limit 5, used 4, requested 3"));
        assert!(!exceeds_the_rate_alone("limit 5, requested 3"));
    }

    #[test]
    fn a_thing_alone_means_nothing() {
        for text in [
            "unknown parameter: 'credits'",
            "the balance of parentheses is wrong",
            "reasoning_effort is not supported with this model",
            "model does not support parameter temperature",
            "image_url.detail is not supported",
            "unsupported image format: image/tiff",
            "messages.2.role must be a string",
            "invalid 'messages[2].tool_calls[0].id': string too long. expected a string with maximum length 40",
            "messages: roles must alternate",
        ] {
            assert!(!lacks_money(text), "{text}");
            assert!(!lacks_model(text), "{text}");
            assert!(!picture_is_too_large(text), "{text}");
            assert!(!pictures_are_refused(text), "{text}");
            assert!(!wants_plain_content(text), "{text}");
        }
    }
}

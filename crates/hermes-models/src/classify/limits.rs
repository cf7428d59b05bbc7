//! Token limits stated in error texts.

use std::sync::LazyLock;

use regex::Regex;
use serde_json::Value;

/// A number, perhaps with thousands separators.
const N: &str = r"(\d[\d,_]*)";

fn pattern(text: &str) -> Option<Regex> {
    Regex::new(&text.replace("{N}", N)).ok()
}

fn patterns(texts: &[&str]) -> Vec<Regex> {
    texts.iter().filter_map(|text| pattern(text)).collect()
}

/// What states the window of the model.
static WINDOW: LazyLock<Vec<Regex>> = LazyLock::new(|| {
    patterns(&[
        r"limit:? *{N}, *requested:? *\d",
        r"maximum context (?:length|window)(?: of| is|:)? *{N}",
        r"context (?:length|window|size)(?: of| is| \(| limit of|:) *(?:only )?{N}",
        r"max_model_len[^\d]{0,20}{N}",
        r"> *{N} *maximum",
        r"maximum (?:number of )?(?:input )?tokens(?: allowed)?(?: of| is|:)? *\(?{N}",
        r"token limit(?: of| is|:)? *{N}",
        r"exceeds? (?:the )?(?:limit|maximum) of {N}",
        r"n_ctx[^\d]{0,12}{N}",
        r"slot context: *{N}",
        r"maximum prompt length is {N}",
        r"\[ *\d+ *, *{N} *\]",
        r"\d *\+ *\d[\d,_]* *> *{N}",
        r"must be (?:<=|less than(?: or equal to)?|at most) *{N}",
        r"must have (?:less|fewer) than {N}",
        r"max_seq_len[^\d]{0,6}{N}",
        r"(?:max size|limit is|limit of|configured limit of|maximum (?:allowed )?length)[^\d]{0,6}{N}",
    ])
});

/// What states the largest answer.
static OUTPUT: LazyLock<Vec<Regex>> = LazyLock::new(|| {
    patterns(&[
        r"available_tokens[^\d]{0,6}{N}",
        r"\[ *\d+ *, *{N} *\]",
        r"> *{N}, which is the maximum",
        r"supports at most {N}",
        r"must be (?:less than or equal to|at most|<=|no more than) *{N}",
        r"maximum (?:allowed )?(?:number of )?(?:output|completion) tokens[^\d]{0,12}{N}",
        r"(?:output|completion) (?:token )?limit(?: of| is|:)? *{N}",
        r"(?:max_tokens|max_completion_tokens|max_output_tokens|max_new_tokens)\W.{0,60}(?:limit|maximum)(?: of| is|:)? *{N}",
        r"between *\d+ *and *{N}",
    ])
});

static REQUESTED: LazyLock<Option<Regex>> = LazyLock::new(|| {
    pattern(
        r"{N} (?:tokens )?(?:in|from) (?:the |your )?(?:input )?(?:messages|input|prompt)|(?:has|with|contains|passed) (?:at least )?{N} input tokens|prompt contains (?:at least )?{N}|{N} *\+ *\d[\d,_]* *> *\d|given: *{N} `?inputs`? tokens",
    )
});

/// The context window stated in the text.
pub(super) fn window(text: &str) -> Option<u32> {
    first(&WINDOW, text)
}

/// The largest answer allowed by the text: stated, or what the window leaves after the prompt.
pub(crate) fn output_cap(text: &str) -> Option<u32> {
    first(&OUTPUT, text).or_else(|| available_output(text))
}

/// The largest answer that the account can still pay for.
pub(super) fn affordable(text: &str) -> Option<u32> {
    static AFFORD: LazyLock<Vec<Regex>> =
        LazyLock::new(|| patterns(&[r"can only afford (?:up to )?{N}"]));
    first(&AFFORD, text)
}

/// The context window stated in a field of the error.
pub(super) fn stated_window(error: &Value) -> Option<u32> {
    const KEYS: &[&str] = &[
        "n_ctx",
        "max_context_length",
        "context_length",
        "max_model_len",
    ];
    let inner = error.get("error").unwrap_or(error);
    KEYS.iter()
        .find_map(|key| inner.get(*key)?.as_u64())
        .and_then(|window| u32::try_from(window).ok())
        .filter(|window| *window >= 256)
}

/// Whether a shorter answer would fit: the window leaves a good part of itself after the prompt.
/// Otherwise the prompt must become smaller.
pub(super) fn fits_shorter_answer(text: &str) -> bool {
    match (available_output(text), window(text)) {
        (Some(available_output), Some(window)) => {
            u64::from(available_output) * 8 >= u64::from(window)
        }
        _ => false,
    }
}

/// What the window leaves for the answer, if window and prompt are both stated and the prompt
/// itself fits.
pub(super) fn available_output(text: &str) -> Option<u32> {
    let window = window(text)?;
    let captures = REQUESTED.as_ref()?.captures(text)?;
    let prompt = captures.iter().skip(1).flatten().next()?;
    let prompt = number(prompt.as_str())?;
    window
        .checked_sub(prompt)
        .filter(|available_output| *available_output > 0)
}

fn first(patterns: &[Regex], text: &str) -> Option<u32> {
    patterns
        .iter()
        .find_map(|pattern| pattern.captures(text))
        .and_then(|captures| number(captures.get(1)?.as_str()))
        // Smaller numbers count something else.
        .filter(|figure| *figure >= 256)
}

fn number(digits: &str) -> Option<u32> {
    digits.replace([',', '_'], "").parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_pattern_compiles() {
        assert_eq!(WINDOW.len(), 17);
        assert_eq!(OUTPUT.len(), 9);
        assert!(REQUESTED.is_some());
    }

    #[test]
    fn windows() {
        let cases = [
            (
                "this model's maximum context length is 131,072 tokens",
                Some(131_072),
            ),
            (
                "prompt is too long: 215000 tokens > 200000 maximum",
                Some(200_000),
            ),
            (
                "request (9000 tokens) exceeds the available context size (8192 tokens)",
                Some(8192),
            ),
            ("longer than the max_model_len of 32768", Some(32_768)),
            ("maximum prompt length is 262144 but", Some(262_144)),
            (
                "input length and `max_tokens` exceed context limit: 199000 + 32000 > 200000, decrease",
                Some(200_000),
            ),
            ("range of input length should be [1, 30720]", Some(30_720)),
            (
                "`inputs` tokens + `max_new_tokens` must be <= 8193. given",
                Some(8193),
            ),
            ("`inputs` must have less than 4096 tokens", Some(4096)),
            (
                "(40000) must be less than max_seq_len (32768).",
                Some(32_768),
            ),
            (
                "exceed the configured limit of 272000 tokens",
                Some(272_000),
            ),
            ("too many tokens", None),
            ("context window is 4", None),
        ];
        for (text, limit) in cases {
            assert_eq!(window(text), limit, "{text}");
        }
    }

    #[test]
    fn output_caps() {
        let cases = [
            (
                "max_tokens: 128000 > 64000, which is the maximum allowed number of output tokens",
                Some(64_000),
            ),
            ("range of max_tokens should be [1, 65536]", Some(65_536)),
            (
                "max_tokens is too large: 99999. this model supports at most 16384 completion tokens",
                Some(16_384),
            ),
            ("max_tokens exceeds available_tokens: 3000", Some(3_000)),
            ("max_tokens (32000) exceeds the limit of 8192", Some(8_192)),
            ("max_tokens should be between 1 and 4096", Some(4_096)),
            (
                "'max_tokens' is too large: 65536. this model's maximum context length is 8192 tokens and your request has 192 input tokens",
                Some(8_000),
            ),
        ];
        for (text, limit) in cases {
            assert_eq!(output_cap(text), limit, "{text}");
        }
    }
}

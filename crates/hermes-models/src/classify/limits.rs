//! Limits in tokens that error texts state.

use std::sync::LazyLock;

use regex::Regex;

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
        r"\[1, *{N}\]",
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
    ])
});

static REQUESTED: LazyLock<Option<Regex>> = LazyLock::new(|| {
    pattern(
        r"{N} (?:tokens )?(?:in|from) (?:the |your )?(?:messages|input|prompt)|(?:has|with|contains) (?:at least )?{N} input tokens|prompt contains (?:at least )?{N}",
    )
});

/// The window that the text states.
pub(super) fn window(text: &str) -> Option<u32> {
    first(&WINDOW, text)
}

/// The largest answer that the text allows: stated, or what the window leaves beside the prompt.
pub(super) fn output_cap(text: &str) -> Option<u32> {
    first(&OUTPUT, text).or_else(|| room(text))
}

/// What the window leaves for the answer, where window and prompt are both stated and the
/// prompt itself fits.
pub(super) fn room(text: &str) -> Option<u32> {
    let window = window(text)?;
    let captures = REQUESTED.as_ref()?.captures(text)?;
    let prompt = captures.iter().skip(1).flatten().next()?;
    let prompt = number(prompt.as_str())?;
    window.checked_sub(prompt).filter(|room| *room > 0)
}

fn first(patterns: &[Regex], text: &str) -> Option<u32> {
    patterns
        .iter()
        .find_map(|pattern| pattern.captures(text))
        .and_then(|captures| number(captures.get(1)?.as_str()))
        // Below that it is a count of something else.
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
        assert_eq!(WINDOW.len(), 11);
        assert_eq!(OUTPUT.len(), 7);
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

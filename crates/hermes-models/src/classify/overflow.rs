//! Detects texts that say that the prompt is too large. Every vendor words it differently, so a
//! size of the prompt and an excess must be named together, and nothing else whose size could be
//! meant. Texts are only a hint: a refused call near the window counts without one.

use std::collections::BTreeSet;
use std::sync::LazyLock;

use regex::Regex;

/// Words for the size of the prompt.
const SIZES: &[&str] = &[
    "context",
    "prompt",
    "input",
    "tokens",
    "token count",
    "token limit",
    "max_seq_len",
    "sequence length",
    "message tokens",
    "messages",
    "conversation",
    "history",
    "text length",
    "total length",
    "\u{8f93}\u{5165}",
    "\u{4e0a}\u{4e0b}\u{6587}",
    "\u{957f}\u{5ea6}",
];

/// Words for an excess.
const EXCESS: &[&str] = &[
    "exceed",
    "too long",
    "too large",
    "too many",
    "too big",
    "longer than",
    "larger than",
    "greater than",
    "more than",
    "over the max",
    "over the limit",
    "must be <=",
    "must be less than",
    "must have less than",
    "should be less than",
    "cannot be more",
    "should be [",
    "reduce the length",
    "shorten",
    "decrease input",
    "does not fit",
    "doesn't fit",
    "not enough room",
    "out of range",
    "limit reached",
    "limit_reached",
    "truncat",
    "overflow",
    "surpass",
    "beyond",
    "above the",
    "higher than",
    "bigger than",
    "outside the range",
    "limited to",
    "is full",
    "\u{8d85}",
    "\u{8fc7}\u{957f}",
    "\u{592a}\u{957f}",
];

/// Other things that can be too large or too many.
const OTHER: &[&str] = &[
    "image size",
    "image dimension",
    "number of images",
    "many images",
    "file size",
    "files",
    "tools",
    "tool name",
    "function name",
    "description",
    "schema",
    "per minute",
    "per day",
    "per hour",
    "rate limit",
    "rate_limit",
    "requests",
    "quota",
    "stop sequence",
    "metadata",
    "header",
    "tool_call_id",
    "tool_calls",
    "call_id",
    "cache_control",
    "temperature",
    "top_p",
];

/// Names of the answer's limit, which do not refer to the prompt.
const ANSWER: &[&str] = &[
    "max_tokens",
    "max_completion_tokens",
    "max_output_tokens",
    "max_new_tokens",
];

/// Smaller numbers count something else: messages, positions, codes.
const MIN_TOKEN_COUNT: u64 = 512;

pub(super) fn is_said(text: &str) -> bool {
    let rest = without_answer(text);
    let says = |words: &[&str]| words.iter().any(|word| rest.contains(word));
    says(SIZES) && !says(OTHER) && (says(EXCESS) || compares_tokens(&rest))
}

/// Whether two numbers of tokens are close together in the text: one that was sent and one that is
/// the limit.
fn compares_tokens(text: &str) -> bool {
    if !text.contains("token") || text.contains("output token") || text.contains("completion") {
        return false;
    }
    let numbers: BTreeSet<u64> = text
        .split(|c: char| !c.is_ascii_digit() && c != ',' && c != '_')
        .filter_map(|digits| digits.replace([',', '_'], "").parse().ok())
        .filter(|number| *number >= MIN_TOKEN_COUNT)
        .collect();
    numbers.len() >= 2
}

/// Whether the limit of the answer is what is too large.
pub(super) fn is_about_the_answer(text: &str) -> bool {
    const TOO_MUCH: &[&str] = &["at most", "between", "maximum", "range", "no more than"];
    if has_a_limit_of_its_own(text) {
        return true;
    }
    let rest = without_answer(text);
    let says = |words: &[&str]| words.iter().any(|word| rest.contains(word));
    rest.len() < text.len() && (says(EXCESS) || says(TOO_MUCH)) && !says(SIZES)
}

/// `max_tokens must be at most …`, regardless of the rest; not the sum of prompt and answer.
fn has_a_limit_of_its_own(text: &str) -> bool {
    static LIMIT: LazyLock<Option<Regex>> = LazyLock::new(|| {
        Regex::new(
            r"(?:^|[^+\w] ?)[`'\x22]?max_(?:completion_|output_|new_)?tokens[`'\x22]? must be (?:less than or equal to|at most|<=|no more than) *\W?\d",
        )
        .ok()
    });
    let sum = text.contains("tokens +") || text.contains("tokens` +");
    !sum && LIMIT.as_ref().is_some_and(|limit| limit.is_match(text))
}

fn without_answer(text: &str) -> String {
    ANSWER
        .iter()
        .fold(text.to_owned(), |text, name| text.replace(name, ""))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn vendors_say_it_in_many_words() {
        for text in [
            "input length and `max_tokens` exceed context limit: 199000 + 32000 > 200000",
            "range of input length should be [1, 30720]",
            "`inputs` tokens + `max_new_tokens` must be <= 8193. given: 9000 `inputs` tokens",
            "input validation error: `inputs` must have less than 4096 tokens. given: 5000",
            "prompt exceeds max length",
            "length of prompt_tokens (40000) must be less than max_seq_len (32768).",
            "prompt contains 40000 tokens, too large for model with 32768 maximum context length",
            "input is too long for requested model.",
            "the input token count (1200000) exceeds the maximum number of tokens allowed (1048576).",
            "total tokens of image and text exceed max message tokens",
            "input too long: exceeds what the model takes",
            "invalid 'messages[3].content': string too long. expected at most 10485760",
            "the decoder prompt (length 40000) is longer than the maximum model length of 32768.",
            "input tokens exceed the configured limit of 272000 tokens.",
            "context window exceeds limit (2013)",
            "the number of tokens to keep from the initial prompt is greater than the context length",
            "the length of input messages is over the max",
            "\u{8f93}\u{5165}\u{8fc7}\u{957f}",
            "tokens_limit_reached: request body too large for model. max size: 8000 tokens.",
            "the conversation is too long, please start a new one",
        ] {
            assert!(is_said(text), "{text}");
        }
    }

    #[test]
    fn the_answer_has_a_limit_of_its_own() {
        for (text, answer) in [
            ("max_tokens must be less than or equal to 8192", true),
            ("max_output_tokens exceeds the limit of 4096", true),
            ("max_tokens should be between 1 and 8192", true),
            ("`max_tokens` and the prompt exceed the window", false),
            ("unknown parameter: max_tokens", false),
            ("the prompt exceeds the maximum", false),
        ] {
            assert_eq!(is_about_the_answer(text), answer, "{text}");
        }
    }

    #[test]
    fn other_things_can_be_too_large() {
        for text in [
            "array too long: tools has 200 entries, at most 128",
            "image exceeds 5 mb",
            "tokens per minute exceeded",
            "temperature must be less than 2",
            "tools.0.description: string too long",
            "messages: roles must alternate",
            "max_tokens must be less than or equal to 8192",
            "max_output_tokens exceeds the limit of 4096",
        ] {
            assert!(!is_said(text), "{text}");
        }
    }
}

//! Detects texts that say that the prompt is too large. Every vendor words it differently, so a
//! size of the prompt and an excess must be named together, and nothing else whose size could be
//! meant. Texts are only a hint: a refused call near the window counts without one.

use std::collections::BTreeSet;
use std::sync::LazyLock;

use regex::Regex;

use super::CallContext;

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

/// Whether a code says it: `context_too_long`, `PromptTooLong`. Codes have no spaces, so words
/// that happen to meet do not count.
pub(super) fn is_code(code: &str) -> bool {
    let joined = |text: &str| text.replace([' ', '_', '-', '.'], "");
    let code = joined(code);
    let says = |words: &[&str]| words.iter().any(|word| code.contains(&joined(word)));
    let about_the_answer = ["output", "completion", "maxtokens"]
        .iter()
        .any(|word| code.contains(word));
    says(SIZES) && says(EXCESS) && !says(OTHER) && !about_the_answer
}

/// Whether the numbers in a text of any language say that the prompt does not fit: the size of
/// this call and a smaller limit. If nothing is known about the window, a limit below the size of
/// the call is enough.
pub(super) fn compares_sizes(text: &str, situation: &CallContext) -> bool {
    if OTHER.iter().any(|word| text.contains(word)) {
        return false;
    }
    let prompt = u64::from(situation.prompt_tokens);
    let asked = prompt + u64::from(situation.answer_tokens);
    let numbers = sizes(text);
    let is_this_call = |number: u64| number >= prompt / 2 && number <= asked * 2;
    let compared = numbers
        .iter()
        .any(|size| is_this_call(*size) && numbers.iter().any(|limit| limit < size));
    let is_limit = |number: u64| number < prompt && is_round(number);
    compared || (situation.window_assumed && numbers.iter().any(|number| is_limit(*number)))
}

/// Whether a number looks like a window: full thousands, or a multiple of 1,024 (or one beside it).
fn is_round(number: u64) -> bool {
    number >= 1_000
        && (number.is_multiple_of(1_000)
            || [number - 1, number, number + 1]
                .iter()
                .any(|near| near.is_multiple_of(1_024)))
}

/// The numbers of a text that can be sizes, however their digits are grouped.
fn sizes(text: &str) -> BTreeSet<u64> {
    static NUMBER: LazyLock<Option<Regex>> = LazyLock::new(|| {
        Regex::new(r"[0-9]{1,3}(?:[,._'\u{2019}\u{a0}\u{202f} ][0-9]{3})+|[0-9]+").ok()
    });
    let digits = |found: &str| -> String { found.chars().filter(char::is_ascii_digit).collect() };
    NUMBER
        .as_ref()
        .map(|pattern| pattern.find_iter(text))
        .into_iter()
        .flatten()
        .filter_map(|found| digits(found.as_str()).parse().ok())
        .filter(|number| *number >= MIN_TOKEN_COUNT)
        .collect()
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
    fn numbers_say_it_in_any_language() {
        let known = CallContext {
            prompt_tokens: 20_000,
            context_length: 200_000,
            answer_tokens: 4_000,
            ..CallContext::default()
        };
        let assumed = CallContext {
            window_assumed: true,
            ..known
        };
        for text in [
            "Запрос содержит 23 114 токенов, допустимо 16 384",
            "トークン数が上限を超えています (18500 / 16384)",
            "21.877 Token, erlaubt sind 8.192",
        ] {
            assert!(compares_sizes(text, &known), "{text}");
        }
        for text in ["erlaubt sind 8.192", "до 16 000", "n_max=4095"] {
            assert!(!compares_sizes(text, &known), "{text}");
            assert!(compares_sizes(text, &assumed), "{text}");
        }
        for text in [
            "ungültige Anfrage 1763432101234",
            "erlaubt sind 200.000",
            "Fehler 1042 in Zeile 7",
            "Zeitpunkt 2026-11-18 02:17",
            "tools.0.description: at most 1024",
        ] {
            assert!(!compares_sizes(text, &assumed), "{text}");
        }
    }

    #[test]
    fn codes_say_it_without_spaces() {
        for code in [
            "context_too_long",
            "prompttoolong",
            "input-length.exceeded",
            "conversation_too_large",
        ] {
            assert!(is_code(code), "{code}");
        }
        for code in [
            "invalid_prompt",
            "context",
            "output_tokens_exceeded",
            "max_tokens_too_large",
            "too_many_requests",
            "tools_too_many",
        ] {
            assert!(!is_code(code), "{code}");
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

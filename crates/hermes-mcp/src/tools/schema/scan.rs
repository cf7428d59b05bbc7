//! Finds tool descriptions that give instructions to the model. They are reported, not blocked,
//! because such phrases are often harmless.

use std::sync::LazyLock;

use regex::Regex;

static SUSPICIOUS_PATTERNS: LazyLock<Vec<(&'static str, Regex)>> = LazyLock::new(|| {
    [
        (
            "asks to disregard instructions",
            r"(?i)\b(?:ignore|disregard|forget|override)\b.{0,40}\b(?:instruction|prompt|rule|guideline|polic)",
        ),
        (
            "claims to be the system or another role",
            r"(?i)</?\s*(?:system|assistant|user|important|instructions?)\s*>|\[/?(?:INST|SYSTEM)\]|^\s*system\s*:",
        ),
        (
            "asks to hide something from the person",
            r"(?i)\b(?:do not|don't|never|without)\b.{0,30}\b(?:tell|telling|mention|mentioning|inform|informing|reveal|show)\b.{0,30}\b(?:user|person|human)",
        ),
        (
            "redefines who the model is",
            r"(?i)\byou are (?:now|no longer)\b|\bact as (?:if|though|an? )|\bpretend (?:to be|that you)",
        ),
        (
            "asks for credentials or private files",
            r"(?i)\b(?:read|send|include|pass|attach|upload)\b.{0,50}(?:\.ssh|id_rsa|\.env\b|api[_ -]?keys?|passwords?|credentials|private keys?|mcp\.json)",
        ),
        (
            "wants to be called before or instead of other tools",
            r"(?i)\b(?:always|must)\b.{0,30}\b(?:call|use|invoke|run)\b.{0,30}\b(?:this tool|before|first|instead)",
        ),
        (
            "sends data to an address",
            r"(?i)\b(?:send|post|forward|exfiltrate|upload)\b.{0,60}https?://",
        ),
        (
            "holds invisible characters",
            r"[\u{200b}-\u{200f}\u{202a}-\u{202e}\u{2060}-\u{2064}\u{2066}-\u{2069}\u{feff}\u{e0000}-\u{e007f}]",
        ),
        (
            "holds a long encoded text",
            r"[A-Za-z0-9+/]{200,}={0,2}",
        ),
    ]
    .into_iter()
    .filter_map(|(what, pattern)| Some((what, Regex::new(pattern).ok()?)))
    .collect()
});

/// The suspicious phrases in this text.
pub(crate) fn suspicious_phrases(text: &str) -> Vec<&'static str> {
    SUSPICIOUS_PATTERNS
        .iter()
        .filter(|(_, pattern)| pattern.is_match(text))
        .map(|(what, _)| *what)
        .collect()
}

//! Finish reasons of many servers.

use hermes_core::message::FinishReason;
use serde_json::Value;

/// Parses a finish reason; some servers send numbers. `None`: there is none (yet).
pub(super) fn read(value: Option<&Value>) -> Option<FinishReason> {
    match value? {
        Value::String(text) if !text.is_empty() => Some(parse(text)),
        Value::Number(number) => Some(
            number
                .as_u64()
                .map_or_else(|| FinishReason::Other(number.to_string()), numbered),
        ),
        _ => None,
    }
}

/// Google's enumeration, which proxies of Gemini pass on.
fn numbered(number: u64) -> FinishReason {
    match number {
        1 => FinishReason::Stop,
        2 => FinishReason::Length,
        3 | 4 | 6 | 7 | 8 | 11 => FinishReason::ContentFilter,
        other => FinishReason::Other(other.to_string()),
    }
}

/// Only words known to mean a normal end count as one. Any other word is kept, and counts as a
/// truncated answer: `error`, `network_error`, `insufficient_system_resource`, `abort`, ….
fn parse(text: &str) -> FinishReason {
    let word = text.to_ascii_lowercase();
    let word = word.strip_prefix("finish_reason_").unwrap_or(&word);
    match word {
        "stop" | "stopped" | "end_turn" | "end_of_turn" | "stop_sequence" | "stop_sequences"
        | "stop_token" | "eos" | "eos_token" | "eos_found" | "end" | "complete" | "completed"
        | "finish" | "finished" | "normal" | "success" | "done" => FinishReason::Stop,
        "tool_calls" | "tool_call" | "tool_use" | "tool" | "function_call" | "function_calls"
        | "function" => FinishReason::ToolCalls,
        "length"
        | "max_tokens"
        | "model_length"
        | "max_output_tokens"
        | "max_length"
        | "token_limit"
        | "context_length"
        | "context_length_exceeded"
        | "model_context_window_exceeded" => FinishReason::Length,
        "content_filter"
        | "content_filtered"
        | "refusal"
        | "safety"
        | "sensitive"
        | "recitation"
        | "blocklist"
        | "prohibited_content"
        | "spii"
        | "guardrail_intervened" => FinishReason::ContentFilter,
        "incomplete" | "pause_turn" => FinishReason::Incomplete,
        _ => FinishReason::Other(text.to_owned()),
    }
}

/// The reason for the caller: an answer with calls ended to make them, whatever word the server
/// used for a normal end.
pub(super) fn settle(reason: FinishReason, has_calls: bool) -> FinishReason {
    match reason {
        FinishReason::Stop if has_calls => FinishReason::ToolCalls,
        FinishReason::ToolCalls if !has_calls => FinishReason::Stop,
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn words_and_numbers() {
        assert_eq!(read(Some(&json!("end_turn"))), Some(FinishReason::Stop));
        assert_eq!(read(Some(&json!("MAX_TOKENS"))), Some(FinishReason::Length));
        assert_eq!(read(Some(&json!(1))), Some(FinishReason::Stop));
        assert_eq!(read(Some(&json!(2))), Some(FinishReason::Length));
        assert_eq!(read(Some(&json!(null))), None);
        assert_eq!(read(Some(&json!(""))), None);
        assert_eq!(
            read(Some(&json!("odd"))),
            Some(FinishReason::Other("odd".into()))
        );
        assert_eq!(settle(FinishReason::Stop, true), FinishReason::ToolCalls);
        assert_eq!(settle(FinishReason::ToolCalls, false), FinishReason::Stop);
    }
}

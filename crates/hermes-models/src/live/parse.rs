//! Parsing of model lists.

use hermes_core::usage::{PriceSource, Prices};
use serde_json::Value;

use super::ListedModel;

/// Keys under which servers report the context window.
const CONTEXT_KEYS: &[&str] = &[
    "context_length",
    "max_model_len",
    "context_window",
    "max_context_length",
    "loaded_context_length",
    "max_input_tokens",
    "inputTokenLimit",
];

const OUTPUT_KEYS: &[&str] = &[
    "max_completion_tokens",
    "max_output_tokens",
    "max_tokens",
    "outputTokenLimit",
];

/// The list in an answer to `GET /models` or `/api/tags`.
pub(super) fn list(body: &Value) -> Option<Vec<ListedModel>> {
    let rows = body
        .get("data")
        .or_else(|| body.get("models"))
        .unwrap_or(body)
        .as_array()?;
    Some(rows.iter().filter_map(model).collect())
}

fn model(row: &Value) -> Option<ListedModel> {
    let id = match row {
        Value::String(id) => id.as_str(),
        _ => ["id", "key", "model", "name"]
            .iter()
            .find_map(|key| row.get(*key)?.as_str())?,
    };
    // Gemini lists its models as `models/…`.
    let id = id.strip_prefix("models/").unwrap_or(id);
    Some(ListedModel {
        id: id.to_owned(),
        context_length: context_length(row),
        max_output: tokens(row, OUTPUT_KEYS)
            .or_else(|| tokens(row.get("top_provider")?, OUTPUT_KEYS)),
        images: images(row),
        tools: tools(row),
        prices: row.get("pricing").and_then(prices),
        loaded: row
            .get("state")
            .and_then(Value::as_str)
            .map(|state| state == "loaded"),
        size_bytes: row
            .get("size")
            .or_else(|| row.get("size_bytes"))
            .and_then(Value::as_u64),
    })
}

/// The window of a row, preferring that of a loaded instance.
pub(super) fn context_length(row: &Value) -> Option<u32> {
    let instance = row
        .get("loaded_instances")
        .and_then(Value::as_array)
        .into_iter()
        .flatten()
        .find_map(|instance| tokens(instance.get("config")?, &["context_length"]));
    instance
        .or_else(|| tokens(row, CONTEXT_KEYS))
        .or_else(|| tokens(row.get("meta")?, &["n_ctx", "n_ctx_train"]))
}

pub(super) fn tokens(row: &Value, keys: &[&str]) -> Option<u32> {
    keys.iter()
        .filter_map(|key| row.get(*key)?.as_f64())
        .find(|number| (256.0..1e8).contains(number))
        .map(|number| number as u32)
}

fn images(row: &Value) -> Option<bool> {
    let modalities = row
        .pointer("/architecture/input_modalities")
        .or_else(|| row.get("input_modalities"))
        .and_then(Value::as_array);
    if let Some(list) = modalities {
        return Some(list.iter().any(|kind| kind == "image"));
    }
    if let Some(flag) = row.pointer("/capabilities/vision").and_then(Value::as_bool) {
        return Some(flag);
    }
    match row.get("type").and_then(Value::as_str) {
        Some("vlm") => Some(true),
        Some("llm") => Some(false),
        _ => None,
    }
}

fn tools(row: &Value) -> Option<bool> {
    if let Some(list) = row.get("supported_parameters").and_then(Value::as_array) {
        return Some(list.iter().any(|name| name == "tools"));
    }
    match row.get("capabilities") {
        Some(Value::Array(list)) => Some(
            list.iter()
                .any(|name| name == "tool_use" || name == "tools"),
        ),
        Some(map) => map.get("trained_for_tool_use").and_then(Value::as_bool),
        None => None,
    }
}

/// Dollars per token, as OpenRouter and kin state them, mostly as text.
fn prices(pricing: &Value) -> Option<Prices> {
    let per_million = |key: &str| {
        let value = pricing.get(key)?;
        let number = value.as_f64().or_else(|| value.as_str()?.parse().ok())?;
        // A negative price marks a router whose price depends on the chosen model.
        (number >= 0.0).then_some(number * 1e6)
    };
    Some(Prices {
        input: per_million("prompt")?,
        output: per_million("completion")?,
        cache_read: per_million("input_cache_read"),
        cache_write: per_million("input_cache_write"),
        source: PriceSource::ProviderModelsApi,
    })
}

/// The message of an error response, shortened.
pub(super) fn error_message(body: &[u8]) -> String {
    let text = match serde_json::from_slice::<Value>(body) {
        Ok(value) => ["/error/message", "/error", "/message", "/detail"]
            .iter()
            .find_map(|path| value.pointer(path)?.as_str().map(str::to_owned))
            .unwrap_or_default(),
        Err(_) => String::new(),
    };
    text.chars().take(200).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn openrouter_rows_carry_everything() {
        let body = json!({"data": [{
            "id": "anthropic/claude-sonnet-5", "context_length": 1_000_000,
            "architecture": {"input_modalities": ["text", "image"]},
            "top_provider": {"max_completion_tokens": 64_000},
            "supported_parameters": ["tools", "temperature"],
            "pricing": {"prompt": "0.000002", "completion": "0.00001", "input_cache_read": "0.0000002"}
        }, {"id": "openrouter/auto", "pricing": {"prompt": "-1", "completion": "-1"}}]});
        let list = list(&body).unwrap();
        let first = &list[0];
        assert_eq!(first.context_length, Some(1_000_000));
        assert_eq!((first.images, first.tools), (Some(true), Some(true)));
        assert_eq!(first.max_output, Some(64_000));
        let prices = first.prices.unwrap();
        assert!((prices.input - 2.0).abs() < 1e-9 && (prices.output - 10.0).abs() < 1e-9);
        assert_eq!(list[1].prices, None);
    }

    #[test]
    fn local_servers_have_dialects() {
        let vllm =
            json!({"data": [{"id": "Qwen/Qwen3-8B", "owned_by": "vllm", "max_model_len": 40960}]});
        assert_eq!(list(&vllm).unwrap()[0].context_length, Some(40_960));
        let llama = json!({"data": [{"id": "x.gguf", "meta": {"n_ctx_train": 32768, "size": 5}}]});
        assert_eq!(list(&llama).unwrap()[0].context_length, Some(32_768));
        let ollama = json!({"models": [{"name": "qwen3:8b", "model": "qwen3:8b", "size": 5_200_000_000_u64}]});
        let row = &list(&ollama).unwrap()[0];
        assert_eq!(
            (row.id.as_str(), row.size_bytes),
            ("qwen3:8b", Some(5_200_000_000))
        );
        let lmstudio = json!({"models": [{"key": "openai/gpt-oss-20b", "type": "llm",
            "capabilities": {"vision": false, "trained_for_tool_use": true}, "max_context_length": 131_072,
            "loaded_instances": [{"config": {"context_length": 8192}}]}]});
        let row = &list(&lmstudio).unwrap()[0];
        assert_eq!((row.context_length, row.tools), (Some(8192), Some(true)));
        let gemini =
            json!({"models": [{"name": "models/gemini-2.5-pro", "inputTokenLimit": 1_048_576}]});
        assert_eq!(list(&gemini).unwrap()[0].id, "gemini-2.5-pro");
    }

    #[test]
    fn nonsense_is_no_list() {
        assert_eq!(list(&json!({"error": "Unexpected endpoint"})), None);
        assert_eq!(list(&json!("hello")), None);
        assert_eq!(list(&json!([1, {"id": "a"}])).unwrap().len(), 1);
        assert_eq!(
            error_message(br#"{"error":{"message":"bad key"}}"#),
            "bad key"
        );
        assert_eq!(error_message(b"<html>"), "");
    }
}

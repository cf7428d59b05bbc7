//! Usage reports of the three formats, normalized to disjoint counters.

use hermes_core::usage::Usage;
use serde_json::Value;

use super::json::count;

/// One tick of xAI's `cost_in_usd_ticks`, in dollars.
const XAI_TICK: f64 = 1e-10;

/// Chat completions: `prompt_tokens` includes what came from the cache.
pub(super) fn chat(report: &Value) -> Usage {
    let prompt = count(report, "prompt_tokens").unwrap_or(0);
    let details = report.get("prompt_tokens_details").unwrap_or(&Value::Null);
    let cache_read = count(details, "cached_tokens")
        .or_else(|| count(report, "prompt_cache_hit_tokens"))
        .or_else(|| count(report, "cache_read_input_tokens"))
        .or_else(|| count(report, "cached_tokens"))
        .unwrap_or(0);
    let cache_write = count(details, "cache_write_tokens")
        .or_else(|| count(details, "cache_creation_tokens"))
        .or_else(|| count(report, "cache_creation_input_tokens"))
        .unwrap_or(0);
    let output = count(report, "completion_tokens").unwrap_or(0);
    let reasoning = report
        .get("completion_tokens_details")
        .and_then(|details| count(details, "reasoning_tokens"))
        .unwrap_or(0);
    let thought = uncounted(report, prompt, output, cache_read + cache_write)
        .unwrap_or(if reasoning > output { reasoning } else { 0 });
    let output = output.saturating_add(thought);
    Usage {
        input: prompt.saturating_sub(cache_read + cache_write),
        output,
        cache_read,
        cache_write,
        reasoning: reasoning.max(thought).min(output),
        reported_cost_usd: cost(report),
        ..Usage::default()
    }
}

/// Gemini counts its thoughts in the total only. They are billed as output.
fn uncounted(report: &Value, prompt: u64, output: u64, cached: u64) -> Option<u64> {
    let total = count(report, "total_tokens")?;
    let rest = total.checked_sub(prompt.saturating_add(output))?;
    // Servers that count cached tokens separately include them in the total, too.
    (rest > 0 && rest != cached).then_some(rest)
}

/// Responses: `input_tokens` includes what came from the cache.
pub(super) fn responses(report: &Value) -> Usage {
    let details = |name: &str, key: &str| {
        let details = report.get(name)?;
        count(details, key)
    };
    let cache_read = details("input_tokens_details", "cached_tokens").unwrap_or(0);
    let cache_write = details("input_tokens_details", "cache_write_tokens").unwrap_or(0);
    let output = count(report, "output_tokens").unwrap_or(0);
    let reasoning = details("output_tokens_details", "reasoning_tokens").unwrap_or(0);
    Usage {
        input: count(report, "input_tokens")
            .unwrap_or(0)
            .saturating_sub(cache_read + cache_write),
        output,
        cache_read,
        cache_write,
        reasoning: reasoning.min(output),
        reported_cost_usd: cost(report),
        ..Usage::default()
    }
}

/// Anthropic: the counters are already disjoint. Later reports of a stream repeat only some fields.
pub(super) fn anthropic(usage: &mut Usage, report: &Value) {
    // A zero in a later report means "not counted here", not "none".
    let take = |slot: &mut u64, key: &str| {
        if let Some(figure) = count(report, key).filter(|figure| *figure > 0) {
            *slot = figure;
        }
    };
    take(&mut usage.input, "input_tokens");
    take(&mut usage.output, "output_tokens");
    take(&mut usage.cache_read, "cache_read_input_tokens");
    take(&mut usage.cache_write, "cache_creation_input_tokens");
    let hour = report.get("cache_creation");
    if let Some(tokens) = hour.and_then(|by_age| count(by_age, "ephemeral_1h_input_tokens")) {
        usage.cache_write_hour = tokens.min(usage.cache_write);
    }
    if let Some(cost) = cost(report) {
        usage.reported_cost_usd = Some(cost);
    }
}

/// The cost of the call in dollars, as reported by the provider.
fn cost(report: &Value) -> Option<f64> {
    let price = |value: &Value, key: &str| {
        let field = value.get(key)?;
        let figure = field.as_f64().or_else(|| field.as_str()?.parse().ok())?;
        (figure.is_finite() && figure >= 0.0).then_some(figure)
    };
    let details = report.get("cost_details").unwrap_or(&Value::Null);
    let upstream = price(details, "upstream_inference_cost");
    // With the user's own upstream key the router bills only its fee; the rest is billed upstream.
    let own_key = report.get("is_byok").and_then(Value::as_bool) == Some(true);
    match price(report, "cost") {
        Some(fee) if own_key => Some(fee + upstream.unwrap_or(0.0)),
        Some(cost) => Some(cost),
        None => upstream
            .or_else(|| price(details, "total_cost"))
            .or_else(|| price(report, "cost_in_usd_ticks").map(|ticks| ticks * XAI_TICK)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn cached_tokens_are_counted_once() {
        let report = json!({
            "prompt_tokens": 100, "completion_tokens": 20,
            "prompt_tokens_details": { "cached_tokens": 60, "cache_write_tokens": 10 },
            "completion_tokens_details": { "reasoning_tokens": 15 },
        });
        let usage = chat(&report);
        assert_eq!(
            (usage.input, usage.cache_read, usage.cache_write),
            (30, 60, 10)
        );
        assert_eq!((usage.output, usage.reasoning), (20, 15));
        assert_eq!(usage.prompt_tokens(), 100);
        assert_eq!(usage.reported_cost_usd, None);
    }

    #[test]
    fn nonsense_counts_can_still_be_added_up() {
        let report = json!({
            "prompt_tokens": u64::MAX, "completion_tokens": 1e300,
            "prompt_tokens_details": { "cached_tokens": u64::MAX, "cache_write_tokens": u64::MAX },
        });
        let mut sum = chat(&report);
        for _ in 0..100 {
            sum.add(&chat(&report));
        }
        assert!(i64::try_from(sum.prompt_tokens()).is_ok());
        assert!(i64::try_from(sum.output).is_ok());
    }

    #[test]
    fn thoughts_that_only_the_total_counts_are_output() {
        let report = json!({"prompt_tokens": 100, "completion_tokens": 20, "total_tokens": 170});
        let usage = chat(&report);
        assert_eq!((usage.output, usage.reasoning), (70, 50));
        let apart = json!({
            "prompt_tokens": 100, "completion_tokens": 20, "total_tokens": 160,
            "cache_read_input_tokens": 40,
        });
        assert_eq!(chat(&apart).output, 20);
    }

    #[test]
    fn deepseek_names_its_cache_hits_otherwise() {
        let report = json!({
            "prompt_tokens": 50, "completion_tokens": 5,
            "prompt_cache_hit_tokens": 40, "prompt_cache_miss_tokens": 10,
        });
        let usage = chat(&report);
        assert_eq!((usage.input, usage.cache_read), (10, 40));
    }

    #[test]
    fn the_reported_cost_counts() {
        let costs = [
            (json!({ "cost": 0.25 }), Some(0.25)),
            (json!({ "cost": 0.0 }), Some(0.0)),
            (
                json!({ "cost": 0.25, "is_byok": true, "cost_details": { "upstream_inference_cost": 4.75 } }),
                Some(5.0),
            ),
            (
                json!({ "cost": 0.25, "cost_details": { "upstream_inference_cost": 0.25 } }),
                Some(0.25),
            ),
            (
                json!({ "cost_details": { "upstream_inference_cost": 2 } }),
                Some(2.0),
            ),
            (
                json!({ "cost_in_usd_ticks": 20_000_000_000_u64 }),
                Some(2.0),
            ),
            (json!({ "cost": null }), None),
            (json!({ "cost": -1 }), None),
        ];
        for (report, expected) in costs {
            assert_eq!(chat(&report).reported_cost_usd, expected, "{report}");
        }
    }

    #[test]
    fn anthropic_reports_add_up() {
        let mut usage = Usage::default();
        anthropic(
            &mut usage,
            &json!({ "input_tokens": 7, "cache_read_input_tokens": 90, "cache_creation_input_tokens": 3, "output_tokens": 1 }),
        );
        anthropic(
            &mut usage,
            &json!({ "input_tokens": 0, "output_tokens": 42 }),
        );
        assert_eq!(usage.prompt_tokens(), 100);
        assert_eq!(usage.output, 42);
        let hours = json!({
            "cache_creation_input_tokens": 30,
            "cache_creation": {"ephemeral_5m_input_tokens": 10, "ephemeral_1h_input_tokens": 20},
        });
        anthropic(&mut usage, &hours);
        assert_eq!((usage.cache_write, usage.cache_write_hour), (30, 20));
    }
}

//! Settings of a session from config.yaml.

use std::path::Path;
use std::time::Duration;

use hermes_config::Config;
use hermes_config::schema::LoopLimits;
use hermes_core::model::ReasoningEffort;

use hermes_agent::{
    AgentSettings, GuardLimits, GuardSettings, IntentNudges, ToolSettings, compress, parse_effort,
};

/// The settings that `config` asks for. `cache` is where oversized results go; `model` decides
/// per-model overrides.
pub(crate) fn from_config(config: &Config, cache: &Path, model: &str) -> AgentSettings {
    let agent = &config.agent;
    let title = config.auxiliary.task("title_generation");
    AgentSettings {
        max_turns: agent.max_turns.max(1),
        max_cost_usd: agent.max_cost_usd,
        api_max_retries: agent.api_max_retries,
        reasoning: reasoning(config, model),
        intent_nudges: intent_nudges(agent.intent_ack_continuation.as_str()),
        guard: guard(config),
        tools: ToolSettings {
            spill_dir: Some(cache.join("tool-results")),
            redact: config.security.redact_secrets,
            ..ToolSettings::default()
        },
        compression: compression(config),
        user_home: std::env::home_dir(),
        titles: title.enabled.unwrap_or(true),
        title_language: title
            .language
            .filter(|language| !language.trim().is_empty()),
        ..AgentSettings::default()
    }
}

/// `agent.reasoning_overrides` by model name, else `agent.reasoning_effort`.
fn reasoning(config: &Config, model: &str) -> Option<ReasoningEffort> {
    let overridden = config.agent.reasoning_overrides.get(model);
    let word = overridden.or(config.agent.reasoning_effort.as_ref())?;
    parse_effort(word.as_str())
}

fn intent_nudges(word: &str) -> IntentNudges {
    match word {
        "true" | "always" | "on" => IntentNudges::Always,
        "false" | "never" | "off" => IntentNudges::Never,
        _ => IntentNudges::Auto,
    }
}

fn guard(config: &Config) -> GuardSettings {
    let rails = &config.tool_loop_guardrails;
    let limits = |limits: &LoopLimits| GuardLimits {
        exact_failure: limits.exact_failure,
        same_tool_failure: limits.same_tool_failure,
        no_progress: limits.idempotent_no_progress,
    };
    GuardSettings {
        warnings: rails.warnings_enabled,
        hard_stop: rails.hard_stop_enabled,
        warn_after: limits(&rails.warn_after),
        stop_after: limits(&rails.hard_stop_after),
    }
}

fn compression(config: &Config) -> compress::CompressionSettings {
    let section = &config.compression;
    compress::CompressionSettings {
        enabled: section.enabled,
        threshold: section.threshold,
        target_ratio: section.target_ratio,
        protect_first: section.protect_first_n as usize,
        protect_last: section.protect_last_n as usize,
        abort_on_summary_failure: section.abort_on_summary_failure,
        timeout: Duration::from_secs(config.auxiliary.task("compression").timeout.max(1)),
    }
}

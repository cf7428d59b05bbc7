//! Keys of the original that have no effect here. They are kept in the file; `config check` and
//! `doctor` list those that are set.

use serde_json::{Map, Value};

/// Dotted paths; everything below is included, `*` stands for one part.
///
/// A test compares this list with what the code reads: an unused key that is not listed fails it.
pub(crate) const WITHOUT_EFFECT: &[&str] = &[
    "agent.coding_context",
    "agent.coding_instructions",
    "agent.environment_probe",
    "agent.gateway_timeout_warning",
    "agent.max_verify_nudges",
    "agent.prefill_messages_file",
    "agent.service_tier",
    "agent.verify_guidance",
    "agent.verify_on_stop",
    "always_log_local",
    "approvals.destructive_slash_confirm",
    "approvals.discord_prompt_timeout",
    "approvals.mcp_reload_confirm",
    "auxiliary.*.fallback_chain",
    "auxiliary.background_review",
    "auxiliary.curator",
    "auxiliary.goal_judge",
    "auxiliary.kanban_decomposer",
    "auxiliary.memory_query_rewrite",
    "auxiliary.moa_aggregator",
    "auxiliary.moa_reference.api_key",
    "auxiliary.moa_reference.base_url",
    "auxiliary.moa_reference.extra_body",
    "auxiliary.moa_reference.model",
    "auxiliary.moa_reference.provider",
    "auxiliary.moa_reference.reasoning_effort",
    "auxiliary.monitor",
    "auxiliary.profile_describer",
    "auxiliary.skills_hub",
    "auxiliary.triage_specifier",
    "auxiliary.tts_audio_tags",
    "auxiliary.web_extract",
    "bedrock",
    "bluebubbles",
    "browser",
    "compression.codex_app_server_auto",
    "compression.codex_gpt55_autoraise",
    "compression.codex_gpt55_autoraise_notice",
    "compression.hygiene_hard_message_limit",
    "compression.in_place",
    "computer_use",
    "context",
    "cron.chronos",
    "cron.provider",
    "cron.session_db_timeout_seconds",
    "curator",
    "custom_providers.*.discover_models",
    "custom_providers.*.rate_limit_delay",
    "dashboard",
    "delegation.default_toolsets",
    "desktop",
    "dingtalk",
    "discord.allow_any_attachment",
    "discord.approval_mentions",
    "discord.server_actions",
    "discord.voice_fx",
    "discord.websocket_heartbeat_ack_max_age_seconds",
    "discord.websocket_liveness_failure_threshold",
    "discord.websocket_liveness_interval_seconds",
    "discord.websocket_max_latency_seconds",
    "display.background_process_notifications",
    "display.busy_text_mode",
    "display.cli_refresh_interval",
    "display.compact",
    "display.copy_shortcut",
    "display.credits_notices",
    "display.details_mode",
    "display.ephemeral_system_ttl",
    "display.file_mutation_verifier",
    "display.final_response_markdown",
    "display.friendly_tool_labels",
    "display.generic_status_phrases",
    "display.inline_diffs",
    "display.interface",
    "display.interim_assistant_messages",
    "display.language",
    "display.memory_notifications",
    "display.mouse_tracking",
    "display.persist_prompts",
    "display.persistent_output",
    "display.persistent_output_max_lines",
    "display.pet",
    "display.reasoning_full",
    "display.reasoning_style",
    "display.resume_display",
    "display.resume_exchanges",
    "display.resume_max_assistant_chars",
    "display.resume_max_assistant_lines",
    "display.resume_max_user_chars",
    "display.resume_skip_tool_only",
    "display.runtime_footer",
    "display.sections",
    "display.show_commentary",
    "display.show_cost",
    "display.skin",
    "display.status_phrases",
    "display.timestamp_format",
    "display.tool_preview_length",
    "display.tool_progress_command",
    "display.tool_progress_grouping",
    "display.tui_agents_nudge",
    "display.tui_auto_resume_recent",
    "display.tui_compact",
    "display.tui_mouse",
    "display.tui_status_indicator",
    "display.tui_statusbar",
    "display.turn_completion_explainer",
    "display.user_message_preview",
    "feishu",
    "gateway.always_log_local",
    "gateway.default_platform",
    "gateway.delivery_ledger",
    "gateway.home_channels",
    "gateway.max_live_sessions",
    "gateway.message_timestamps",
    "gateway.multiplex_profiles",
    "gateway.profile_routes",
    "gateway.relay",
    "gateway.restart_loop_guard",
    "gateway.scale_to_zero",
    "goals",
    "homeassistant",
    "honcho",
    "human_delay",
    "image_gen",
    "irc",
    "kanban",
    "known_plugin_toolsets",
    "lsp",
    "matrix",
    "mattermost",
    "max_live_sessions",
    "memory.flush_min_turns",
    "memory.nudge_interval",
    "memory.provider",
    "memory.provider_config",
    "moa.active_preset",
    "moa.save_traces",
    "moa.trace_dir",
    "model.auth_mode",
    "model.entra",
    "model.lmstudio_load_mode",
    "model.openai_runtime",
    "model.persist_switch_by_default",
    "model.service_tier",
    "model_catalog",
    "multiplex_profiles",
    "network.force_ipv4",
    "onboarding",
    "openrouter",
    "paste_collapse_char_threshold",
    "paste_collapse_threshold",
    "paste_collapse_threshold_fallback",
    "plugins",
    "prefill_messages_file",
    "profile_routes",
    "providers.*.discover_models",
    "providers.*.rate_limit_delay",
    "qqbot",
    "secrets",
    "security.acked_advisories",
    "security.allow_lazy_installs",
    "security.tirith_enabled",
    "security.tirith_fail_open",
    "security.tirith_path",
    "security.tirith_timeout",
    "server_actions",
    "sessions.max_message_chars",
    "sessions.write_json_snapshots",
    "signal",
    "skills.creation_nudge_interval",
    "skills.guard_agent_created",
    "skills.hub",
    "smart_model_routing",
    "sms",
    "stt.elevenlabs",
    "stt.xai",
    "teams",
    "terminal.container_disk",
    "terminal.daytona_image",
    "terminal.degrade_to_local",
    "terminal.modal_image",
    "terminal.modal_mode",
    "terminal.persistent_shell",
    "terminal.singularity_image",
    "tools",
    "tts.deepinfra",
    "tts.edge",
    "tts.gemini",
    "tts.kittentts",
    "tts.minimax",
    "tts.mistral",
    "tts.neutts",
    "tts.piper",
    "tts.xai",
    "updates",
    "vertex",
    "video_gen",
    "voice",
    "wecom",
    "weixin",
    "whatsapp",
    "x_search",
    "yuanbao",
];

/// Whether a key at this path has no effect.
pub(crate) fn is_without_effect(path: &[String]) -> bool {
    WITHOUT_EFFECT.iter().any(|listed| {
        let mut parts = listed.split('.');
        let matching = parts
            .by_ref()
            .zip(path)
            .all(|(part, given)| part == "*" || part == given);
        matching && listed.split('.').count() <= path.len()
    })
}

/// The leaves of the file that have no effect. Empty values are ignored.
pub(crate) fn ineffective_keys(file: &Map<String, Value>) -> Vec<String> {
    let mut found = Vec::new();
    for (key, value) in file {
        collect(&mut vec![key.clone()], value, &mut found);
    }
    found
}

fn collect(path: &mut Vec<String>, value: &Value, found: &mut Vec<String>) {
    match value {
        Value::Null => {}
        Value::Object(map) => {
            for (key, value) in map {
                path.push(key.clone());
                collect(path, value, found);
                path.pop();
            }
        }
        Value::Array(items) if items.iter().any(Value::is_object) => {
            for (index, item) in items.iter().enumerate() {
                path.push(index.to_string());
                collect(path, item, found);
                path.pop();
            }
        }
        Value::Array(items) if items.is_empty() => {}
        Value::String(text) if text.is_empty() => {}
        _ if is_without_effect(path) => {
            found.push(crate::edit::KeyPath::new(path.iter().cloned()).to_string());
        }
        _ => {}
    }
}

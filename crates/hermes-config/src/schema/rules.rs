//! Constraints beyond the type: one of several keywords, a range, an address, an existing name.
//!
//! One table for loading, `config set`, `config check` and `doctor`. An invalid value is reported
//! and replaced by the default, except where another value would run things elsewhere than the
//! person configured (see [`RuleRow::kept`]).

use std::path::Path;

use serde_json::{Map, Value};

use super::names;
use crate::edit::{KeyPath, put};
use crate::home::Home;
use crate::warning::{ConfigProblem, ConfigWarning};
use crate::zone::Zone;

/// The constraint of a leaf of config.yaml.
#[derive(Clone, Copy, Debug)]
pub(crate) enum ValueRule {
    /// One of these keywords, ignoring case. Booleans count as `on` and `off`.
    Words(&'static [&'static str]),
    /// A number in this range.
    Range(f64, f64),
    /// A number, 0 or more, for untyped keys.
    Seconds,
    /// A number in this range, for untyped keys.
    Number(f64, f64),
    /// A boolean, for untyped keys.
    Flag,
    /// `http://…` or `https://…`.
    Address,
    /// The name of a time zone.
    TimeZone,
    /// A provider: built in, or an entry of `providers` or `custom_providers`.
    Provider,
    /// A toolset, or an MCP server.
    Toolset,
    /// A directory that exists.
    Directory,
    /// The name of an environment variable.
    Variable,
    /// A speech provider: built in, or an entry of `providers` in this section.
    Voice(&'static str, &'static [&'static str]),
}

/// One row of the table.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RuleRow {
    /// Dotted path; `*` stands for one part.
    pub(crate) path: &'static str,
    pub(crate) rule: ValueRule,
    /// The value is kept and refused by its user: a default would mean another host or another
    /// account.
    pub(crate) kept: bool,
}

const fn words(path: &'static str, words: &'static [&'static str]) -> RuleRow {
    row(path, ValueRule::Words(words))
}

const fn range(path: &'static str, low: f64, high: f64) -> RuleRow {
    row(path, ValueRule::Range(low, high))
}

const fn row(path: &'static str, rule: ValueRule) -> RuleRow {
    RuleRow {
        path,
        rule,
        kept: false,
    }
}

const fn kept(path: &'static str, rule: ValueRule) -> RuleRow {
    RuleRow {
        path,
        rule,
        kept: true,
    }
}

const SWITCH: &[&str] = &["auto", "on", "off", "true", "false"];
const BOOLEAN: &[&str] = &["on", "off", "true", "false", "yes", "no", "1", "0"];
/// Text-to-speech providers. A local program replaces `edge`.
const VOICES: &[&str] = &[
    "auto",
    "edge",
    "openai",
    "elevenlabs",
    "espeak-ng",
    "espeak",
    "flite",
    "none",
    "off",
];
/// Speech-to-text providers.
const LISTENERS: &[&str] = &[
    "auto",
    "local",
    "local_command",
    "groq",
    "openai",
    "mistral",
    "deepinfra",
    "none",
    "off",
];
const ALWAYS: &[&str] = &[
    "auto", "on", "off", "true", "false", "always", "never", "yes", "no",
];
const EFFORTS: &[&str] = &[
    "none", "off", "false", "minimal", "low", "medium", "on", "true", "high", "xhigh", "max",
    "ultra",
];
const WIRE_FORMATS: &[&str] = &[
    "chat_completions",
    "openai_chat",
    "chat",
    "openai",
    "anthropic_messages",
    "anthropic",
    "messages",
    "codex_responses",
    "responses",
    "openai_responses",
];
const SEARCH: &[&str] = &[
    "tavily",
    "exa",
    "parallel",
    "firecrawl",
    "searxng",
    "brave",
    "brave_free",
    "duckduckgo",
    "ddg",
];
const WEB: &[&str] = &[
    "tavily",
    "exa",
    "parallel",
    "firecrawl",
    "searxng",
    "brave",
    "brave_free",
    "duckduckgo",
    "ddg",
    "native",
];
const BUSY: &[&str] = &["interrupt", "queue", "steer"];
const BACKENDS: &[&str] = &[
    "local",
    "docker",
    "podman",
    "ssh",
    "singularity",
    "modal",
    "daytona",
    "managed_modal",
    "vercel_sandbox",
];
const PROGRESS: &[&str] = &["off", "new", "all", "verbose", "log"];

/// More seconds, bytes or characters than anyone configures.
const MAX_COUNT: f64 = 1e12;
/// Ten years.
const TEN_YEARS_IN_SECONDS: f64 = 315_360_000.0;
const TEN_YEARS_IN_HOURS: f64 = 87_600.0;

pub(crate) const ROWS: &[RuleRow] = &[
    kept("model.provider", ValueRule::Provider),
    kept("model.base_url", ValueRule::Address),
    kept("model.api_mode", ValueRule::Words(WIRE_FORMATS)),
    row("model.key_env", ValueRule::Variable),
    range("model.context_length", 1.0, 1e9),
    range("model.max_tokens", 1.0, 1e9),
    range("model.ollama_num_ctx", 1.0, 1e9),
    kept("providers.*.base_url", ValueRule::Address),
    kept("providers.*.api_mode", ValueRule::Words(WIRE_FORMATS)),
    kept("custom_providers.*.base_url", ValueRule::Address),
    kept(
        "custom_providers.*.api_mode",
        ValueRule::Words(WIRE_FORMATS),
    ),
    kept("fallback_providers.*.provider", ValueRule::Provider),
    kept("fallback_providers.*.base_url", ValueRule::Address),
    kept("fallback_model.provider", ValueRule::Provider),
    kept("fallback_model.*.provider", ValueRule::Provider),
    words(
        "credential_pool_strategies.*",
        &["fill_first", "round_robin", "least_used", "random"],
    ),
    kept("toolsets.*", ValueRule::Toolset),
    kept("platform_toolsets.*.*", ValueRule::Toolset),
    kept("agent.disabled_toolsets.*", ValueRule::Toolset),
    range("max_concurrent_sessions", 0.0, 1e6),
    range("max_live_sessions", 0.0, 1e6),
    range("agent.max_turns", 1.0, 1e6),
    range("agent.api_max_retries", 0.0, 1000.0),
    range("agent.max_cost_usd", 0.0, 1e9),
    range("agent.clarify_timeout", 0.0, TEN_YEARS_IN_SECONDS),
    range("agent.gateway_timeout", 0.0, TEN_YEARS_IN_SECONDS),
    range("agent.gateway_timeout_warning", 0.0, TEN_YEARS_IN_SECONDS),
    range("agent.gateway_notify_interval", 0.0, TEN_YEARS_IN_SECONDS),
    range(
        "agent.gateway_auto_continue_freshness",
        0.0,
        TEN_YEARS_IN_SECONDS,
    ),
    range(
        "agent.local_stream_stale_timeout",
        0.0,
        TEN_YEARS_IN_SECONDS,
    ),
    range("agent.restart_drain_timeout", 0.0, TEN_YEARS_IN_SECONDS),
    words("agent.intent_ack_continuation", ALWAYS),
    words("agent.tool_use_enforcement", ALWAYS),
    words("agent.verify_on_stop", SWITCH),
    words("agent.coding_context", &["auto", "focus", "on", "off"]),
    words("agent.image_input_mode", &["auto", "native", "text"]),
    words("agent.reasoning_effort", EFFORTS),
    words("agent.reasoning_overrides.*", EFFORTS),
    words("delegation.reasoning_effort", EFFORTS),
    words("auxiliary.*.reasoning_effort", EFFORTS),
    words("delegation.api_mode", WIRE_FORMATS),
    words("auxiliary.*.api_mode", WIRE_FORMATS),
    kept("delegation.provider", ValueRule::Provider),
    kept("delegation.base_url", ValueRule::Address),
    kept("auxiliary.*.provider", ValueRule::Provider),
    kept("auxiliary.*.base_url", ValueRule::Address),
    range("auxiliary.*.timeout", 1.0, TEN_YEARS_IN_SECONDS),
    range("auxiliary.*.temperature", 0.0, 2.0),
    range("auxiliary.transient_retries", 0.0, 100.0),
    range("delegation.max_iterations", 1.0, 1e6),
    range("delegation.max_concurrent_children", 1.0, 1000.0),
    range("delegation.max_spawn_depth", 0.0, 16.0),
    range(
        "delegation.child_timeout_seconds",
        0.0,
        TEN_YEARS_IN_SECONDS,
    ),
    kept("terminal.backend", ValueRule::Words(BACKENDS)),
    kept("terminal.cwd", ValueRule::Directory),
    words("terminal.modal_mode", &["auto", "direct", "managed"]),
    words("terminal.home_mode", &["auto", "real", "profile"]),
    kept(
        "terminal.sandbox",
        ValueRule::Words(&["auto", "landlock", "bubblewrap", "off"]),
    ),
    range("terminal.timeout", 1.0, TEN_YEARS_IN_SECONDS),
    range("terminal.daemon_term_grace_seconds", 0.0, 3600.0),
    range("terminal.container_cpu", 0.01, 4096.0),
    range("terminal.container_memory", 16.0, 1e9),
    range("terminal.container_disk", 0.0, 1e9),
    kept("terminal.ssh_port", ValueRule::Range(1.0, 65535.0)),
    range("terminal.max_foreground_timeout", 1.0, TEN_YEARS_IN_SECONDS),
    range("terminal.lifetime_seconds", 0.0, TEN_YEARS_IN_SECONDS),
    // An unknown value asks, or denies.
    kept(
        "approvals.mode",
        ValueRule::Words(&["smart", "manual", "off"]),
    ),
    kept(
        "approvals.cron_mode",
        ValueRule::Words(&["deny", "approve", "allow"]),
    ),
    kept(
        "approvals.unattended",
        ValueRule::Words(&["deny", "allow_workspace", "smart", "allow"]),
    ),
    range("approvals.timeout", 0.0, TEN_YEARS_IN_SECONDS),
    range("approvals.gateway_timeout", 0.0, TEN_YEARS_IN_SECONDS),
    range("compression.threshold", 0.01, 1.0),
    range("compression.target_ratio", 0.01, 1.0),
    range("compression.protect_last_n", 0.0, 100_000.0),
    range("compression.protect_first_n", 0.0, 100_000.0),
    words("prompt_caching.cache_ttl", &["5m", "1h"]),
    words("code_execution.mode", &["project", "strict"]),
    range("code_execution.timeout", 1.0, TEN_YEARS_IN_SECONDS),
    range("code_execution.max_tool_calls", 1.0, 1e6),
    kept("mcp_servers.*.url", ValueRule::Address),
    kept(
        "mcp_servers.*.transport",
        ValueRule::Words(&["sse", "http", "streamable-http", "streamable_http", "stdio"]),
    ),
    kept("mcp_servers.*.enabled", ValueRule::Words(BOOLEAN)),
    kept("platforms.*.enabled", ValueRule::Words(BOOLEAN)),
    kept("gateway.platforms.*.enabled", ValueRule::Words(BOOLEAN)),
    kept("gateway.api_server.port", ValueRule::Number(1.0, 65535.0)),
    kept("platforms.*.port", ValueRule::Number(1.0, 65535.0)),
    kept("platforms.*.extra.port", ValueRule::Number(1.0, 65535.0)),
    kept(
        "gateway.platforms.*.extra.port",
        ValueRule::Number(1.0, 65535.0),
    ),
    kept("_config_version", ValueRule::Number(0.0, 1e6)),
    row(
        "gateway.api_server.max_concurrent_runs",
        ValueRule::Number(0.0, 1e6),
    ),
    row("moa.presets.*.max_tokens", ValueRule::Number(1.0, 1e9)),
    row("moa.presets.*.enabled", ValueRule::Flag),
    row("display.platforms.*.streaming", ValueRule::Flag),
    row(
        "discord.history_backfill_limit",
        ValueRule::Number(0.0, 1e6),
    ),
    row(
        "discord.max_attachment_bytes",
        ValueRule::Number(0.0, MAX_COUNT),
    ),
    row(
        "discord.missed_message_backfill.window_seconds",
        ValueRule::Number(0.0, TEN_YEARS_IN_SECONDS),
    ),
    row(
        "discord.missed_message_backfill.limit",
        ValueRule::Number(0.0, 1e6),
    ),
    row(
        "discord.missed_message_backfill.max_dispatches",
        ValueRule::Number(0.0, 1e6),
    ),
    row("mcp_servers.*.timeout", ValueRule::Seconds),
    row("mcp_servers.*.connect_timeout", ValueRule::Seconds),
    range("mcp_discovery_timeout", 0.0, 3600.0),
    range("file_read_max_chars", 1.0, MAX_COUNT),
    range("context_file_max_chars", 1.0, MAX_COUNT),
    range("tool_output.max_bytes", 1.0, MAX_COUNT),
    range("tool_output.max_lines", 1.0, MAX_COUNT),
    range("tool_output.max_line_length", 1.0, MAX_COUNT),
    range("memory.memory_char_limit", 1.0, 1e9),
    range("memory.user_char_limit", 1.0, 1e9),
    range("skills.inline_shell_timeout", 1.0, 3600.0),
    range("curator.interval_hours", 1.0, TEN_YEARS_IN_HOURS),
    range("curator.stale_after_days", 0.0, 36_500.0),
    range("curator.archive_after_days", 0.0, 36_500.0),
    range("sessions.retention_days", 1.0, 36_500.0),
    range("sessions.min_interval_hours", 0.0, TEN_YEARS_IN_HOURS),
    range("checkpoints.max_snapshots", 1.0, 100_000.0),
    range("checkpoints.retention_days", 0.0, 36_500.0),
    range("checkpoints.min_interval_hours", 0.0, TEN_YEARS_IN_HOURS),
    range("checkpoints.max_total_size_mb", 0.0, 1e9),
    range("checkpoints.max_file_size_mb", 0.0, 1e9),
    words(
        "logging.level",
        &[
            "debug", "info", "warning", "warn", "error", "critical", "fatal",
        ],
    ),
    range("logging.max_size_mb", 1.0, 1e6),
    range("logging.backup_count", 0.0, 1000.0),
    row("timezone", ValueRule::TimeZone),
    words("web.backend", WEB),
    words("web.search_backend", SEARCH),
    words("web.extract_backend", WEB),
    range("web.extract_char_limit", 1.0, MAX_COUNT),
    range("cron.max_parallel_jobs", 1.0, 10_000.0),
    range("cron.output_retention", 0.0, 1e9),
    range("cron.session_db_timeout_seconds", 0.0, 3600.0),
    range("cron.script_timeout_seconds", 1.0, TEN_YEARS_IN_SECONDS),
    range("gateway.platform_connect_timeout", 0.0, 86_400.0),
    words("gateway.unauthorized_dm_behavior", &["pair", "ignore"]),
    words("unauthorized_dm_behavior", &["pair", "ignore"]),
    words("gateway.busy_input_mode", BUSY),
    words("display.busy_input_mode", BUSY),
    words("display.interface", &["cli", "tui"]),
    words("display.tool_progress", PROGRESS),
    words("display.platforms.*.tool_progress", PROGRESS),
    words(
        "display.resume_display",
        &["full", "minimal", "compact", "off", "none"],
    ),
    words("display.memory_notifications", &["off", "on", "verbose"]),
    words(
        "display.final_response_markdown",
        &["render", "strip", "raw"],
    ),
    words(
        "display.tui_status_indicator",
        &["kaomoji", "emoji", "unicode", "ascii"],
    ),
    words(
        "display.tool_progress_grouping",
        &["accumulate", "separate"],
    ),
    words(
        "display.reasoning_style",
        &["code", "blockquote", "subtext"],
    ),
    words(
        "display.copy_shortcut",
        &["auto", "ctrl_c", "ctrl_shift_c", "disabled"],
    ),
    words(
        "session_reset.mode",
        &["none", "idle", "daily", "both", "off"],
    ),
    range("session_reset.at_hour", 0.0, 23.0),
    range("session_reset.idle_minutes", 1.0, 5_256_000.0),
    words("streaming.transport", &["auto", "draft", "edit", "off"]),
    range("streaming.edit_interval", 0.0, 3600.0),
    range(
        "streaming.fresh_final_after_seconds",
        0.0,
        TEN_YEARS_IN_SECONDS,
    ),
    words("tui.screen", &["inline", "full"]),
    words("tui.reflow", &["full", "off"]),
    words("tui.notifications", &["auto", "bell", "osc9", "off"]),
    words("tui.busy", &["steer", "queue", "interrupt"]),
    words("local.tools", &["auto", "on", "off"]),
    range("local.threads", 0.0, 4096.0),
    range("local.context", 256.0, 1e8),
    range("local.idle_seconds", 0.0, TEN_YEARS_IN_SECONDS),
    range("local.grace_seconds", 0.0, TEN_YEARS_IN_SECONDS),
    kept("tts.provider", ValueRule::Voice("tts", VOICES)),
    kept("stt.provider", ValueRule::Voice("stt", LISTENERS)),
    words("human_delay.mode", &["off", "natural", "custom"]),
    range("human_delay.min_ms", 0.0, 3_600_000.0),
    range("human_delay.max_ms", 0.0, 3_600_000.0),
    words("browser.engine", &["auto", "chrome", "lightpanda"]),
    words(
        "browser.dialog_policy",
        &["must_respond", "auto_dismiss", "auto_accept"],
    ),
    words("lsp.wait_mode", &["document", "full"]),
    words("lsp.install_strategy", &["auto", "manual", "off"]),
    words("onboarding.profile_build", &["ask", "off", "on"]),
    words(
        "updates.non_interactive_local_changes",
        &["stash", "discard"],
    ),
];

/// The rule of a path, if it has one.
#[cfg(test)]
pub(crate) fn rule_of(path: &[String]) -> Option<ValueRule> {
    let fits = |row: &&RuleRow| {
        let parts: Vec<&str> = row.path.split('.').collect();
        parts.len() == path.len()
            && parts
                .iter()
                .zip(path)
                .all(|(part, given)| *part == "*" || part == given)
    };
    ROWS.iter().find(fits).map(|row| row.rule)
}

/// What the rules need to know about the configuration and the machine.
pub(crate) struct RuleCheck<'a> {
    /// The whole configuration: custom providers, servers and the backend are read from it.
    pub(crate) tree: &'a Map<String, Value>,
    pub(crate) home: &'a Home,
}

impl RuleCheck<'_> {
    /// Reports the values of `tree` that break a rule, and replaces them with the default if that
    /// is safe.
    pub(crate) fn settle(&self, tree: &mut Value, warnings: &mut Vec<ConfigWarning>) {
        let mut broken = Vec::new();
        for row in ROWS {
            let parts: Vec<&str> = row.path.split('.').collect();
            self.visit(row, &parts, tree, &mut Vec::new(), &mut broken);
        }
        for (row, path, why) in broken {
            let default = super::default_of(&path);
            let why = match &default {
                _ if row.kept => why,
                Some(default) => {
                    let why = format!("{why}; {} is used", crate::yaml::to_flow(default));
                    // The path was found in this tree.
                    let _ = put(tree, &path, default, "");
                    why
                }
                None => {
                    remove(tree, &path);
                    format!("{why}; it has no effect")
                }
            };
            warnings.push(ConfigWarning::new(
                path.join("."),
                ConfigProblem::Invalid { why },
            ));
        }
    }

    fn visit(
        &self,
        row: &'static RuleRow,
        parts: &[&str],
        value: &Value,
        path: &mut Vec<String>,
        broken: &mut Vec<(&'static RuleRow, Vec<String>, String)>,
    ) {
        let Some((part, rest)) = parts.split_first() else {
            let why = self.violation(row.rule, value);
            if let Some(why) = why.or_else(|| about_empty(row.rule, path, value)) {
                broken.push((row, path.clone(), why));
            }
            return;
        };
        let mut step = |name: &str, value: &Value| {
            path.push(name.to_owned());
            self.visit(row, rest, value, path, broken);
            path.pop();
        };
        match (*part, value) {
            // A value that should be a list is reported as such.
            ("*", Value::Object(_))
                if rest.is_empty() && matches!(row.rule, ValueRule::Toolset) => {}
            ("*", Value::Object(map)) => map.iter().for_each(|(name, value)| step(name, value)),
            ("*", Value::Array(items)) => {
                for (index, item) in items.iter().enumerate() {
                    step(&index.to_string(), item);
                }
            }
            // A list of one may be written as a single item.
            ("*", Value::String(_)) if rest.is_empty() => {
                self.visit(row, rest, value, path, broken);
            }
            (part, Value::Object(map)) => {
                if let Some(value) = map.get(part) {
                    step(part, value);
                }
            }
            _ => {}
        }
    }

    /// Why the value breaks the rule. A wrong type is reported by its reader; null and empty text
    /// mean "not set".
    pub(crate) fn violation(&self, rule: ValueRule, value: &Value) -> Option<String> {
        let text = match value {
            Value::Bool(flag) => (if *flag { "on" } else { "off" }).to_owned(),
            Value::String(text) => text.trim().to_owned(),
            Value::Number(number) => number.to_string(),
            Value::Null => return None,
            Value::Array(_) | Value::Object(_) => return not_one(rule, value),
        };
        // A reference to an unset variable is reported on expansion.
        if text.is_empty() || text.contains("${") {
            return None;
        }
        match rule {
            ValueRule::Words(words) => {
                let given = text.to_lowercase();
                (!words.contains(&given.as_str()))
                    .then(|| format!("{text:?} is not one of {}", words.join(", ")))
            }
            ValueRule::Range(low, high) => {
                let number: f64 = text.parse().ok()?;
                (!(low..=high).contains(&number))
                    .then(|| format!("{text} is not between {} and {}", plain(low), plain(high)))
            }
            ValueRule::Seconds => {
                let good = text.parse::<f64>().is_ok_and(|number| number >= 0.0);
                (!good).then(|| format!("{text:?} is not a number of seconds"))
            }
            ValueRule::Number(low, high) => {
                let number = text.parse::<f64>().ok().filter(|it| it.is_finite());
                match number.filter(|_| !value.is_boolean()) {
                    None => Some(format!("{text:?} is not a number")),
                    Some(number) => (!(low..=high).contains(&number)).then(|| {
                        format!("{text} is not between {} and {}", plain(low), plain(high))
                    }),
                }
            }
            ValueRule::Flag => {
                let good = BOOLEAN.contains(&text.to_lowercase().as_str());
                (!good).then(|| format!("{text:?} is neither true nor false"))
            }
            ValueRule::Address => address(&text),
            ValueRule::TimeZone => Zone::parse(&text).is_none().then(|| {
                format!("{text:?} is not a time zone; write it like Europe/Berlin, or UTC")
            }),
            ValueRule::Provider => self.provider(&text),
            ValueRule::Toolset => self.toolset(&text),
            ValueRule::Directory => self.directory(&text),
            ValueRule::Voice(section, known) => self.voice(section, known, &text),
            ValueRule::Variable => {
                let good = text
                    .bytes()
                    .all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
                    && !text.starts_with(|c: char| c.is_ascii_digit());
                (!good).then(|| format!("{text:?} cannot be the name of a variable"))
            }
        }
    }

    fn voice(&self, section: &str, known: &[&str], name: &str) -> Option<String> {
        let own = self.tree.get(section).and_then(|it| it.get("providers"));
        let is_own = own.is_some_and(|own| own.get(name).is_some());
        let is_known = is_own || known.contains(&name.to_lowercase().as_str());
        (!is_known).then(|| {
            format!(
                "{name:?} is not one of {}, and there is no {section}.providers.{name}",
                known.join(", ")
            )
        })
    }

    fn provider(&self, name: &str) -> Option<String> {
        let wanted = name.to_lowercase();
        let bare = wanted.strip_prefix("custom:").unwrap_or(&wanted);
        if names::PROVIDERS.contains(&bare) || self.own_providers().any(|own| own == bare) {
            return None;
        }
        if names::FOREIGN_PROVIDERS.contains(&bare) {
            return Some(format!(
                "the provider {name:?} is not built in here; see: hermes model list"
            ));
        }
        let close = crate::known::closest(bare, names::PROVIDERS.iter().copied());
        let hint = close.map(|name| format!("; did you mean {name}?"));
        Some(format!(
            "there is no provider {name:?}{}; see: hermes model list",
            hint.unwrap_or_default()
        ))
    }

    fn own_providers(&self) -> impl Iterator<Item = String> {
        let slug = |name: &str| name.trim().to_lowercase();
        let of = |value: &Value, key: &str| value.get(key).and_then(Value::as_str).map(slug);
        let mut own = Vec::new();
        if let Some(Value::Object(entries)) = self.tree.get("providers") {
            for (key, entry) in entries {
                own.push(slug(key));
                own.extend(of(entry, "name"));
            }
        }
        if let Some(Value::Array(entries)) = self.tree.get("custom_providers") {
            own.extend(entries.iter().filter_map(|entry| of(entry, "name")));
        }
        let dashed: Vec<String> = own.iter().map(|name| name.replace(' ', "-")).collect();
        own.into_iter().chain(dashed)
    }

    fn toolset(&self, name: &str) -> Option<String> {
        let wanted = name.to_lowercase();
        let server = wanted.strip_prefix("mcp-").unwrap_or(&wanted);
        let of_servers = self
            .tree
            .get("mcp_servers")
            .and_then(Value::as_object)
            .is_some_and(|servers| servers.keys().any(|key| key.to_lowercase() == server));
        if of_servers || names::is_toolset(&wanted) {
            return None;
        }
        let close = crate::known::closest(&wanted, names::TOOLSETS.iter().copied());
        let hint = close.map(|name| format!("; did you mean {name}?"));
        Some(format!(
            "there is no toolset {name:?}{}; see: hermes tools list",
            hint.unwrap_or_default()
        ))
    }

    /// It can be checked only if commands run on this machine.
    fn directory(&self, text: &str) -> Option<String> {
        let here = match self.tree.get("terminal").and_then(|it| it.get("backend")) {
            Some(Value::String(backend)) => matches!(backend.trim(), "" | "local"),
            _ => true,
        };
        if !here || matches!(text, "." | "auto" | "cwd") {
            return None;
        }
        let path = self.home.expand_user(text);
        if path.starts_with("~") {
            // Whose home it is depends on where commands run.
            return None;
        }
        if path.is_relative() {
            return Some(format!("{text:?} is not absolute; write the whole path"));
        }
        (!Path::new(&path).is_dir()).then(|| format!("there is no directory {}", path.display()))
    }
}

/// A list or a mapping for an untyped key that takes a single value.
fn not_one(rule: ValueRule, value: &Value) -> Option<String> {
    let expected = match rule {
        ValueRule::Number(..) | ValueRule::Seconds => "a number",
        ValueRule::Flag => "true or false",
        ValueRule::Voice(..) => "a name",
        _ => return None,
    };
    let found = super::field::kind(value);
    Some(format!("expected {expected}, found {found}"))
}

/// Empty text for a keyword or a number. If the default is empty, it means just that.
fn about_empty(rule: ValueRule, path: &[String], value: &Value) -> Option<String> {
    let is_empty = |value: &Value| value.as_str().is_some_and(|text| text.trim().is_empty());
    // An empty directory means the current one.
    if !is_empty(value) || matches!(rule, ValueRule::Directory) {
        return None;
    }
    let default = super::default_of(path);
    let says_nothing = default.is_none_or(|default| default.is_null() || is_empty(&default));
    let is_typed = !matches!(
        rule,
        ValueRule::Number(..) | ValueRule::Flag | ValueRule::Seconds
    );
    (!(says_nothing && is_typed)).then(|| {
        let key = path.join(".");
        format!("it is empty; hermes config unset {key} takes it out of the file")
    })
}

fn remove(tree: &mut Value, path: &[String]) {
    if let Some((last, parents)) = path.split_last()
        && let Some(Value::Object(map)) = KeyPath::new(parents.iter().cloned()).get_mut(tree)
    {
        map.shift_remove(last);
    }
}

/// `None`: it is a valid address.
fn address(text: &str) -> Option<String> {
    let host = ["http://", "https://"]
        .iter()
        .find_map(|scheme| text.to_lowercase().strip_prefix(scheme).map(str::to_owned));
    let good = host.is_some_and(|host| {
        let host_name = host.split(['/', '?', '#']).next().unwrap_or("");
        let host_name = host_name.rsplit('@').next().unwrap_or(host_name);
        !host_name.is_empty()
            && !host_name.starts_with(':')
            && !host_name.contains(char::is_whitespace)
    });
    (!good).then(|| format!("{text:?} is not an address; write http://… or https://…"))
}

fn plain(number: f64) -> String {
    if number.fract() == 0.0 && number.abs() < 1e15 {
        format!("{}", number as i64)
    } else {
        number.to_string()
    }
}

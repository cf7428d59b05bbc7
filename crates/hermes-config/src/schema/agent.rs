//! Sections `agent`, `compression`, `memory`, `skills`, `prompt_caching`, `tool_output`,
//! `tool_loop_guardrails`, `delegation`, `code_execution`, `moa`, `auxiliary`.

use serde_json::{Map, Value, json};

use super::field::{ConfigField, ConfigShape, ConfigWord, Named, Secret, section};
use crate::warning::ConfigWarning;

section! {
    /// `agent`
    struct Agent {
        /// Model calls per turn.
        max_turns: u32 = 90,
        api_max_retries: u32 = 3,
        service_tier: String = String::new(),
        tool_use_enforcement: Value = json!("auto"),
        intent_ack_continuation: ConfigWord = "auto".into(),
        task_completion_guidance: bool = true,
        parallel_tool_call_guidance: bool = true,
        environment_probe: bool = true,
        environment_hint: String = String::new(),
        coding_context: ConfigWord = "auto".into(),
        coding_instructions: String = String::new(),
        verify_guidance: bool = true,
        max_verify_nudges: u32 = 3,
        verify_on_stop: ConfigWord = "auto".into(),
        image_input_mode: ConfigWord = "auto".into(),
        disabled_toolsets: Vec<String> = Vec::new(),
        /// Model name → effort.
        reasoning_overrides: Named<ConfigWord> = Named::default(),
        clarify_timeout: u64 = 3600,
        local_stream_stale_timeout: u64 = 900,
        restart_drain_timeout: u64 = 0,
        gateway_timeout: u64 = 1800,
        gateway_timeout_warning: u64 = 900,
        gateway_notify_interval: u64 = 180,
        gateway_auto_continue_freshness: u64 = 3600,
        /// Dollars one turn may cost. Ours alone; `None` sets no limit.
        max_cost_usd: Option<f64> = None,
    }
    optional {
        /// `off` (also written as a boolean) turns reasoning off.
        reasoning_effort: ConfigWord,
        personalities: Map<String, Value>,
        system_prompt: String,
        prefill_messages_file: String,
    }
}

section! {
    /// `compression`
    struct Compression {
        enabled: bool = true,
        /// Share of the window at which the conversation is compressed.
        threshold: f64 = 0.5,
        target_ratio: f64 = 0.2,
        protect_last_n: u32 = 20,
        hygiene_hard_message_limit: u32 = 5000,
        protect_first_n: u32 = 3,
        abort_on_summary_failure: bool = false,
        codex_gpt55_autoraise: bool = true,
        codex_gpt55_autoraise_notice: bool = true,
        codex_app_server_auto: ConfigWord = "native".into(),
        in_place: bool = true,
    }
    optional {
        summary_model: String,
        summary_provider: String,
        summary_base_url: String,
    }
}

section! {
    /// `memory`
    struct Memory {
        memory_enabled: bool = true,
        user_profile_enabled: bool = true,
        write_approval: bool = false,
        memory_char_limit: u32 = 2200,
        user_char_limit: u32 = 1375,
        provider: String = String::new(),
    }
    optional {
        nudge_interval: u32,
        flush_min_turns: u32,
        provider_config: Map<String, Value>,
        write_mode: ConfigWord,
    }
}

section! {
    /// `skills`
    struct Skills {
        external_dirs: Vec<String> = Vec::new(),
        template_vars: bool = true,
        inline_shell: bool = false,
        inline_shell_timeout: u64 = 10,
        guard_agent_created: bool = false,
        write_approval: bool = false,
    }
    optional {
        disabled: Vec<String>,
        /// Platform → skills that are off there.
        platform_disabled: Named<Vec<String>>,
        /// Settings of single skills.
        config: Map<String, Value>,
        creation_nudge_interval: u32,
        write_mode: ConfigWord,
        hub: Map<String, Value>,
    }
}

section! {
    /// `prompt_caching`
    struct PromptCaching {
        cache_ttl: String = "5m".to_owned(),
    }
    optional {
        enabled: bool,
    }
}

section! {
    /// `tool_output`: how much of a result the model sees.
    struct ToolOutput {
        max_bytes: u64 = 50_000,
        max_lines: u64 = 2000,
        max_line_length: u64 = 2000,
    }
}

section! {
    /// `tool_loop_guardrails`
    struct ToolLoopGuardrails {
        warnings_enabled: bool = true,
        hard_stop_enabled: bool = false,
        warn_after: LoopLimits = LoopLimits { exact_failure: 2, same_tool_failure: 3, idempotent_no_progress: 2 },
        hard_stop_after: LoopLimits = LoopLimits { exact_failure: 5, same_tool_failure: 8, idempotent_no_progress: 5 },
    }
}

/// Repetitions in a turn after which a guard acts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LoopLimits {
    pub exact_failure: u32,
    pub same_tool_failure: u32,
    pub idempotent_no_progress: u32,
}

impl ConfigField for LoopLimits {
    const EXPECTED: &'static str = "a mapping";

    /// A field that is left out reads as 0: unset. [`ToolLoopGuardrails`] sits on merged values, so
    /// that a file with one of the fields still has the others.
    fn read(value: &Value, at: &str, warnings: &mut Vec<ConfigWarning>) -> Option<Self> {
        let map = value.as_object()?;
        let mut read = |key: &str| {
            let mut limit = 0;
            if let Some(value) = map.get(key) {
                super::field::read_leaf(value, &format!("{at}.{key}"), &mut limit, warnings);
            }
            limit
        };
        Some(Self {
            exact_failure: read("exact_failure"),
            same_tool_failure: read("same_tool_failure"),
            idempotent_no_progress: read("idempotent_no_progress"),
        })
    }

    fn write(&self) -> Value {
        json!({
            "exact_failure": self.exact_failure,
            "same_tool_failure": self.same_tool_failure,
            "idempotent_no_progress": self.idempotent_no_progress,
        })
    }

    fn shape() -> ConfigShape {
        ConfigShape::Section(vec![
            ("exact_failure", u32::shape),
            ("same_tool_failure", u32::shape),
            ("idempotent_no_progress", u32::shape),
        ])
    }
}

section! {
    /// `delegation`: subagents.
    struct Delegation {
        model: String = String::new(),
        provider: String = String::new(),
        base_url: String = String::new(),
        api_key: Secret = Secret::default(),
        api_mode: String = String::new(),
        inherit_mcp_toolsets: bool = true,
        max_iterations: u32 = 50,
        max_summary_chars: u64 = 24_000,
        child_timeout_seconds: u64 = 0,
        reasoning_effort: ConfigWord = ConfigWord::default(),
        max_concurrent_children: u32 = 3,
        max_spawn_depth: u32 = 1,
        orchestrator_enabled: bool = true,
        subagent_auto_approve: bool = false,
    }
    optional {
        max_async_children: u32,
        default_toolsets: Vec<String>,
    }
}

section! {
    /// `code_execution`: programs that call tools.
    struct CodeExecution {
        /// `project` (the session's directory and its virtual environment) or `strict` (a directory
        /// of its own and the system's interpreter).
        mode: ConfigWord = "project".into(),
        /// Seconds.
        timeout: u64 = 300,
        max_tool_calls: u32 = 50,
    }
}

section! {
    /// `moa`: several models answer one question.
    struct Moa {
        default_preset: String = "default".to_owned(),
        active_preset: String = String::new(),
        save_traces: bool = false,
        trace_dir: String = String::new(),
        /// Name → `reference_models`, `aggregator`, `max_tokens`, `enabled`.
        presets: Map<String, Value> = Map::new(),
    }
}

section! {
    /// The model for one kind of side work.
    struct AuxTask {
        provider: String = "auto".to_owned(),
        model: String = String::new(),
        base_url: String = String::new(),
        api_key: Secret = Secret::default(),
        timeout: u64 = 30,
        extra_body: Map<String, Value> = Map::new(),
        reasoning_effort: ConfigWord = ConfigWord::default(),
    }
    optional {
        enabled: bool,
        language: String,
        api_mode: String,
        download_timeout: u64,
        key_env: String,
        max_tokens: u32,
        temperature: f64,
        fallback_chain: Vec<Value>,
        context_length: u32,
    }
}

/// `auxiliary`: helpers beside the primary model.
#[derive(Clone, Debug, PartialEq)]
pub struct Auxiliary {
    pub transient_retries: u32,
    /// Task name → its model.
    pub tasks: Named<AuxTask>,
}

/// The known tasks and the seconds each may take.
const TASKS: [(&str, u64); 18] = [
    ("vision", 120),
    ("web_extract", 360),
    ("compression", 120),
    ("skills_hub", 30),
    ("approval", 30),
    ("mcp", 30),
    ("title_generation", 30),
    ("memory_query_rewrite", 8),
    ("tts_audio_tags", 30),
    ("triage_specifier", 120),
    ("kanban_decomposer", 180),
    ("profile_describer", 60),
    ("goal_judge", 60),
    ("curator", 600),
    ("monitor", 60),
    ("background_review", 120),
    ("moa_reference", 900),
    ("moa_aggregator", 900),
];

impl Auxiliary {
    /// The settings of `task`; the defaults for one that is not configured.
    pub fn task(&self, task: &str) -> AuxTask {
        self.tasks.get(task).cloned().unwrap_or_default()
    }
}

impl Default for Auxiliary {
    fn default() -> Self {
        let task = |&(name, timeout): &(&str, u64)| {
            let mut task = AuxTask {
                timeout,
                ..AuxTask::default()
            };
            match name {
                "vision" => task.download_timeout = Some(30),
                "title_generation" => {
                    task.enabled = Some(true);
                    task.language = Some(String::new());
                }
                _ => {}
            }
            (name.to_owned(), task)
        };
        Self {
            transient_retries: 2,
            tasks: TASKS.iter().map(task).collect(),
        }
    }
}

impl ConfigField for Auxiliary {
    const EXPECTED: &'static str = "a mapping";

    fn read(value: &Value, at: &str, warnings: &mut Vec<ConfigWarning>) -> Option<Self> {
        let mut map = value.as_object()?.clone();
        let mut read = Self::default();
        if let Some(retries) = map.shift_remove("transient_retries") {
            let at = format!("{at}.transient_retries");
            super::field::read_leaf(&retries, &at, &mut read.transient_retries, warnings);
        }
        read.tasks = Named::read(&Value::Object(map), at, warnings)?;
        Some(read)
    }

    fn write(&self) -> Value {
        let mut tree = json!({ "transient_retries": self.transient_retries });
        if let (Value::Object(tree), Value::Object(tasks)) = (&mut tree, self.tasks.write()) {
            tree.extend(tasks);
        }
        tree
    }

    /// `transient_retries` stands among the tasks; it has a row of its own in the rules.
    fn shape() -> ConfigShape {
        ConfigShape::Names(AuxTask::shape)
    }
}

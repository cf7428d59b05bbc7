//! config.yaml as types. One struct per section, one default per field.

pub(crate) mod agent;
pub(crate) mod effect;
pub(crate) mod field;
pub(crate) mod model;
pub mod names;
pub(crate) mod rules;
pub(crate) mod surface;
pub(crate) mod tui;
pub(crate) mod untyped;

use std::sync::LazyLock;

use serde_json::{Map, Value};

pub use agent::{
    Agent, AuxTask, Auxiliary, CodeExecution, Compression, Delegation, LoopLimits, Memory, Moa,
    PromptCaching, Skills, ToolLoopGuardrails, ToolOutput,
};
pub use field::{ConfigWord, Named, Secret};
pub use model::{Endpoint, EndpointModel, Fallback, Local, Model};
pub use surface::{
    Approvals, Checkpoints, Cron, Curator, CuratorBackup, Display, Gateway, Logging, Network,
    Security, SessionReset, Sessions, Streaming, Terminal, Web, WebsiteBlocklist,
};
pub use tui::Tui;

use crate::warning::ConfigWarning;
use field::{ConfigField as _, ConfigShape, section};

/// The newest config version whose meaning we know; what `config migrate` writes.
pub const CONFIG_VERSION: u64 = 33;

/// The newest version that upstream is known to write. Beyond it we say so.
pub const NEWEST_KNOWN_VERSION: u64 = 37;

section! {
    /// The whole of config.yaml, as far as it is used.
    ///
    /// Sections that nothing here reads yet stay in [`crate::Loaded::tree`].
    struct Config {
        model: Model = Model::default(),
        providers: Named<Endpoint> = Named::default(),
        fallback_providers: Vec<Fallback> = Vec::new(),
        /// Provider → `fill_first`, `round_robin`, `least_used` or `random`.
        credential_pool_strategies: Named<ConfigWord> = Named::default(),
        toolsets: Vec<String> = vec!["hermes-cli".to_owned()],
        max_concurrent_sessions: Option<u32> = None,
        max_live_sessions: u32 = 16,
        agent: Agent = Agent::default(),
        terminal: Terminal = Terminal::default(),
        checkpoints: Checkpoints = Checkpoints::default(),
        context_file_max_chars: Option<u64> = None,
        file_read_max_chars: u64 = 100_000,
        mcp_discovery_timeout: f64 = 1.5,
        tool_output: ToolOutput = ToolOutput::default(),
        tool_loop_guardrails: ToolLoopGuardrails = ToolLoopGuardrails::default(),
        compression: Compression = Compression::default(),
        prompt_caching: PromptCaching = PromptCaching::default(),
        auxiliary: Auxiliary = Auxiliary::default(),
        display: Display = Display::default(),
        memory: Memory = Memory::default(),
        delegation: Delegation = Delegation::default(),
        code_execution: CodeExecution = CodeExecution::default(),
        moa: Moa = Moa::default(),
        prefill_messages_file: String = String::new(),
        skills: Skills = Skills::default(),
        curator: Curator = Curator::default(),
        /// IANA name; empty means the machine's own.
        timezone: String = String::new(),
        approvals: Approvals = Approvals::default(),
        command_allowlist: Vec<String> = Vec::new(),
        quick_commands: Map<String, Value> = Map::new(),
        /// Platform → what the model is told about it.
        platform_hints: Map<String, Value> = Map::new(),
        hooks: Map<String, Value> = Map::new(),
        hooks_auto_accept: bool = false,
        personalities: Map<String, Value> = Map::new(),
        security: Security = Security::default(),
        web: Web = Web::default(),
        cron: Cron = Cron::default(),
        logging: Logging = Logging::default(),
        network: Network = Network::default(),
        gateway: Gateway = Gateway::default(),
        streaming: Streaming = Streaming::default(),
        sessions: Sessions = Sessions::default(),
    }
    optional {
        custom_providers: Vec<Endpoint>,
        fallback_model: Vec<Fallback>,
        /// Which hosts a reseller may use: `only`, `ignore`, `order`, `sort`, ….
        provider_routing: Map<String, Value>,
        /// Platform → its toolsets.
        platform_toolsets: Named<Vec<String>>,
        mcp_servers: Map<String, Value>,
        platforms: Map<String, Value>,
        plugins: Map<String, Value>,
        session_reset: SessionReset,
        tui: Tui,
        local: Local,
    }
}

impl Config {
    /// Reads the merged tree. Wrongly typed leaves keep their defaults and are reported.
    pub(crate) fn from_tree(tree: &Value, warnings: &mut Vec<ConfigWarning>) -> Self {
        Self::read(tree, "", warnings).unwrap_or_default()
    }
}

/// The shape of everything typed.
pub(crate) fn shape() -> &'static ConfigShape {
    static SHAPE: LazyLock<ConfigShape> = LazyLock::new(Config::shape);
    &SHAPE
}

/// What is below `path`; `None`: the path leads to a key that is not typed here.
pub(crate) fn shape_at(path: &[String]) -> Option<ConfigShape> {
    path.iter()
        .try_fold(shape().clone(), |shape, part| match shape {
            ConfigShape::Section(keys) => keys
                .iter()
                .find(|(name, _)| name == part)
                .map(|(_, below)| below()),
            ConfigShape::Names(below) | ConfigShape::List(below) => Some(below()),
            ConfigShape::Open => Some(ConfigShape::Open),
            ConfigShape::Leaf(_) | ConfigShape::Secret => None,
        })
}

/// Values that count although the key has no default of its own in the file's sense: sections that
/// the original leaves out, and choices that code makes where nothing is said.
fn implied() -> &'static Value {
    static IMPLIED: LazyLock<Value> = LazyLock::new(|| {
        serde_json::json!({
            "model": Model::default().write(),
            "session_reset": SessionReset::default().write(),
            "local": Local::default().write(),
            "tui": {
                "screen": "inline", "reflow": "off", "animations": true, "theme": "auto", "keys": {},
                "ascii": false, "notifications": "auto", "busy": "steer",
                "wide_ambiguous": false, "keyboard_protocol": true,
            },
            "approvals": {"unattended": "deny", "gateway_timeout": 300},
            "gateway": {
                "session_cache_mb": 8, "session_cache_count": 32, "systemd_watchdog_seconds": 0,
            },
            "terminal": {
                "credential_files": [], "max_foreground_timeout": 600, "lifetime_seconds": 300,
            },
            "cron": {"script_timeout_seconds": 3600},
            "display": {"ascii": false},
            "custom_providers": [], "fallback_model": [], "provider_routing": {},
            "platform_toolsets": {}, "mcp_servers": {}, "platforms": {}, "plugins": {},
            "skills": {"disabled": [], "platform_disabled": {}, "config": {}},
            "security": {"fake_ip_ranges": []},
            "unauthorized_dm_behavior": "pair",
            "group_sessions_per_user": true,
            "thread_sessions_per_user": false,
            "filter_silence_narration": true,
            "reset_triggers": ["/new", "/reset"],
        })
    });
    &IMPLIED
}

/// The value that counts where the file says nothing, for keys whose default in the original is not
/// ours: an approval at a terminal waits.
pub(crate) fn unwritten(path: &[String]) -> Option<Value> {
    (path == ["approvals", "timeout"]).then(|| 0.into())
}

/// The value that counts where the file says nothing; `None`: there is none.
pub(crate) fn default_of(path: &[String]) -> Option<Value> {
    let (root, below) = path.split_first()?;
    let below = crate::edit::KeyPath::new(below.iter().cloned());
    let of = |tree: Option<&Value>| tree.and_then(|tree| below.get(tree)).cloned();
    let in_task = || match path {
        // A task that is not configured has the settings of any other.
        [root, _, key] if root == "auxiliary" => AuxTask::default().write().get(key).cloned(),
        _ => None,
    };
    if root == "model" {
        return of(implied().get("model"));
    }
    if let Some(value) = unwritten(path) {
        return Some(value);
    }
    of(defaults().get(root))
        .or_else(|| of(implied().get(root)))
        .or_else(in_task)
}

/// Every default, as a file that sets them all would say it.
pub(crate) fn defaults() -> &'static Map<String, Value> {
    static DEFAULTS: LazyLock<Map<String, Value>> = LazyLock::new(|| {
        let mut tree = match Config::default().write() {
            Value::Object(tree) => tree,
            _ => Map::new(),
        };
        // The original's default model is an empty name, not an empty mapping.
        tree.insert("model".to_owned(), Value::String(String::new()));
        tree.extend(untyped::sections().clone());
        tree.insert("_config_version".to_owned(), CONFIG_VERSION.into());
        tree
    });
    &DEFAULTS
}

#[cfg(test)]
mod tests;

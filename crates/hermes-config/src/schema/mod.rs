//! config.yaml as types. One struct per section, one default per field.

pub(crate) mod agent;
pub(crate) mod field;
pub(crate) mod model;
pub(crate) mod surface;
pub(crate) mod tui;

use std::sync::LazyLock;

use serde_json::{Map, Value};

pub use agent::{
    Agent, AuxTask, Auxiliary, CodeExecution, Compression, Delegation, LoopLimits, Memory, Moa,
    PromptCaching, Skills, ToolLoopGuardrails, ToolOutput,
};
pub use field::{Named, Secret, Word};
pub use model::{Endpoint, EndpointModel, Fallback, Local, Model};
pub use surface::{
    Approvals, Checkpoints, Cron, Curator, CuratorBackup, Display, Gateway, Logging, Network,
    Security, SessionReset, Sessions, Streaming, Terminal, Web, WebsiteBlocklist,
};
pub use tui::Tui;

use crate::warning::ConfigWarning;
use field::{Field as _, section};

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
        credential_pool_strategies: Named<Word> = Named::default(),
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

/// Defaults of sections that are not typed here: they decide how `config set` reads a value and
/// which keys are known.
const UNTYPED: &str = include_str!("untyped.json");

/// The defaults of the section `model`, which [`defaults`] shows as an empty name.
pub(crate) fn model_defaults() -> Value {
    Model::default().write()
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
        if let Ok(Value::Object(untyped)) = serde_json::from_str(UNTYPED) {
            tree.extend(untyped);
        }
        tree.insert("_config_version".to_owned(), CONFIG_VERSION.into());
        tree
    });
    &DEFAULTS
}

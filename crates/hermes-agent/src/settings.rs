//! Settings of a session, fixed at its start.

use std::path::PathBuf;
use std::time::Duration;

use hermes_core::model::ReasoningEffort;
use hermes_core::tool::Taint;

use crate::compress;

/// Settings of a session and its turns. The defaults are those of an empty config.yaml.
#[derive(Clone, Debug)]
pub struct AgentSettings {
    /// Model calls per turn (`agent.max_turns`).
    pub max_turns: u32,
    /// US dollars per turn (`agent.max_cost_usd`). `None`: no cap.
    pub max_cost_usd: Option<f64>,
    /// Repetitions of a failed call on one route (`agent.api_max_retries`).
    pub api_max_retries: u32,
    /// The same where nothing listens on this machine: somebody has to start it, and waiting does not
    /// help a person who asked once. `None`: as everywhere.
    pub local_retries: Option<u32>,
    /// Recoveries of any kind in one turn.
    pub max_recoveries: u32,
    /// Time a turn may spend on calls that failed and on waiting to repeat them.
    pub recovery_time: Duration,
    pub max_tokens: Option<u32>,
    pub temperature: Option<f32>,
    pub reasoning: Option<ReasoningEffort>,
    /// `agent.intent_ack_continuation`.
    pub intent_nudges: IntentNudges,
    pub guard: GuardSettings,
    pub tools: ToolSettings,
    pub compression: compress::CompressionSettings,
    /// Whether sessions are named by a model after the first exchange.
    pub titles: bool,
    /// The language titles are written in; `None`: that of the conversation.
    pub title_language: Option<String>,
    /// Whether instruction files of subdirectories are shown when a tool first touches one.
    pub directory_hints: bool,
    /// What `~` means in the arguments of tools.
    pub user_home: Option<PathBuf>,
    /// Whether an answer is kept while it grows, so that a crash loses little of it. For front ends
    /// that do not begin a turn again by themselves.
    pub keep_unfinished: bool,
    /// How long `Close` waits for background work.
    pub close_grace: Duration,
    /// Shared with the session that delegated to this one. `None`: its own.
    pub taint: Option<Taint>,
}

impl Default for AgentSettings {
    fn default() -> Self {
        Self {
            keep_unfinished: false,
            local_retries: None,
            max_turns: 90,
            max_cost_usd: None,
            api_max_retries: 3,
            max_recoveries: 32,
            recovery_time: Duration::from_mins(30),
            max_tokens: None,
            temperature: None,
            reasoning: None,
            intent_nudges: IntentNudges::Auto,
            guard: GuardSettings::default(),
            tools: ToolSettings::default(),
            compression: compress::CompressionSettings::default(),
            titles: true,
            title_language: None,
            directory_hints: true,
            user_home: None,
            close_grace: Duration::from_secs(5),
            taint: None,
        }
    }
}

/// Whether "I will do X" without a call is answered by "then do it".
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum IntentNudges {
    /// Only with the responses format, whose models are known for it.
    #[default]
    Auto,
    Always,
    Never,
    /// For models whose name contains one of these.
    Models(Vec<String>),
}

/// `tool_loop_guardrails`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GuardSettings {
    pub warnings: bool,
    pub hard_stop: bool,
    pub warn_after: GuardLimits,
    pub stop_after: GuardLimits,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GuardLimits {
    pub exact_failure: u32,
    pub same_tool_failure: u32,
    pub no_progress: u32,
}

impl Default for GuardSettings {
    fn default() -> Self {
        Self {
            warnings: true,
            hard_stop: false,
            warn_after: GuardLimits {
                exact_failure: 2,
                same_tool_failure: 3,
                no_progress: 2,
            },
            stop_after: GuardLimits {
                exact_failure: 5,
                same_tool_failure: 8,
                no_progress: 5,
            },
        }
    }
}

/// How tool calls run.
#[derive(Clone, Debug)]
pub struct ToolSettings {
    pub workers: usize,
    /// For calls that run side by side. `None`: no deadline.
    pub batch_deadline: Option<Duration>,
    /// For a call that runs alone; above the longest timeout that tools grant themselves.
    pub alone_deadline: Option<Duration>,
    /// How long a cancelled call may take to say what it did.
    pub cancel_grace: Duration,
    /// Where oversized results go: the home's cache directory. `None`: they are cut instead.
    pub spill_dir: Option<PathBuf>,
    /// Whether what looks like a key is cut in results; the secrets of the home always are.
    pub redact: bool,
    /// Characters of one result; scaled down to the model's window.
    pub result_chars: usize,
    /// Characters of all results of a step; scaled down to the model's window.
    pub step_chars: usize,
}

impl Default for ToolSettings {
    fn default() -> Self {
        Self {
            workers: 8,
            batch_deadline: Some(Duration::from_mins(7)),
            alone_deadline: Some(Duration::from_hours(1)),
            cancel_grace: Duration::from_secs(3),
            spill_dir: None,
            redact: true,
            result_chars: 100_000,
            step_chars: 200_000,
        }
    }
}

/// `None`: the provider's default.
pub fn parse_effort(word: &str) -> Option<ReasoningEffort> {
    let effort = match word.to_ascii_lowercase().as_str() {
        "none" | "off" | "false" => ReasoningEffort::None,
        "minimal" => ReasoningEffort::Minimal,
        "low" => ReasoningEffort::Low,
        "medium" | "true" | "on" => ReasoningEffort::Medium,
        "high" => ReasoningEffort::High,
        "xhigh" => ReasoningEffort::Xhigh,
        "max" => ReasoningEffort::Max,
        "ultra" => ReasoningEffort::Ultra,
        _ => return None,
    };
    Some(effort)
}

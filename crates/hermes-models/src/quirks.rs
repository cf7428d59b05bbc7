//! Types for the differences between endpoints; values per provider: `providers/profile.rs`.
//!
//! A provider record fills a [`Quirks`]; [`Quirks::for_model`] refines it by model name; the
//! codecs read it and nothing else. No codec asks which provider it talks to.

mod model;

use std::collections::BTreeSet;

use hermes_core::model::{ReasoningEffort, WireFormat};
use serde_json::{Map, Value};

/// How an endpoint differs. Start from [`Quirks::new`] and change fields.
///
/// In `headers` and in the strings of `extra_body`, `{session}` stands for the session id.
#[derive(Clone, Debug, PartialEq)]
pub struct Quirks {
    pub format: WireFormat,
    pub auth: AuthStyle,
    /// Sent with every request, beside authentication and content type.
    pub headers: Vec<(String, String)>,
    /// Merged into the body last: the user's and the provider's own fields.
    pub extra_body: Map<String, Value>,
    /// Fields of the body that the config sets. An endpoint that refuses one of them is not given
    /// way to: the person asked for it.
    pub set_by_person: BTreeSet<String>,
    pub max_tokens: MaxTokens,
    pub temperature: TemperaturePolicy,
    pub reasoning: ReasoningShape,
    /// Effort asked for when the request names none. `None`: leave it to the server.
    pub default_reasoning: Option<ReasoningEffort>,
    pub echo: ReasoningEcho,
    pub thinking: ThinkingReplay,
    pub cache: CacheLayout,
    pub cache_ttl: CacheTtl,
    /// Sends a `prompt_cache_key` made of the system prompt and the tools.
    pub prompt_cache_key: bool,
    /// The system prompt goes out with role `developer`.
    pub developer_role: bool,
    /// Tool results may be lists of parts (images among them); else text only.
    pub list_tool_content: bool,
    /// The endpoint takes images at all. The model must take them, too.
    pub images: bool,
    /// Images may be `data:` URLs; else only http(s) URLs are passed on.
    pub data_url_images: bool,
    /// Asks for a usage chunk with `stream_options.include_usage`.
    pub stream_usage: bool,
    /// Sends `parallel_tool_calls: true`.
    pub parallel_tool_calls: bool,
    pub schema: SchemaDialect,
    pub tool_ids: ToolIds,
    /// `extra_content` of tool calls (Gemini thought signatures) travels back.
    pub thought_signatures: bool,
    /// A step whose first call has no such signature is refused (Gemini 3).
    pub needs_signatures: bool,
    /// Tool results carry the tool's `name`: Gemini refuses them without, and the templates of
    /// some local models print it.
    pub tool_result_names: bool,
    /// OpenRouter's `provider` object: `only`, `ignore`, `order`, `sort`, ….
    pub provider_preferences: Option<Value>,
    /// Context window to ask Ollama for (`options.num_ctx`).
    pub ollama_num_ctx: Option<u32>,
    /// Content is always a list of parts, never a plain string.
    pub content_as_parts: bool,
    /// The system prompt stands at the beginning of the first message of the user: the templates of
    /// some models know no such role.
    pub system_in_user: bool,
}

impl Quirks {
    /// What an endpoint of this format takes when nothing is known of it.
    pub fn new(format: WireFormat) -> Self {
        let chat = format == WireFormat::ChatCompletions;
        let anthropic = format == WireFormat::AnthropicMessages;
        Self {
            format,
            auth: if anthropic {
                AuthStyle::XApiKey
            } else {
                AuthStyle::Bearer
            },
            headers: Vec::new(),
            extra_body: Map::new(),
            set_by_person: BTreeSet::new(),
            max_tokens: MaxTokens {
                key: if format == WireFormat::Responses {
                    MaxTokensKey::MaxOutputTokens
                } else {
                    MaxTokensKey::MaxTokens
                },
                default: None,
                floor: None,
            },
            temperature: TemperaturePolicy::Send,
            reasoning: ReasoningShape::None,
            default_reasoning: None,
            echo: ReasoningEcho::Optional,
            thinking: ThinkingReplay::Strip,
            cache: CacheLayout::None,
            cache_ttl: CacheTtl::FiveMinutes,
            prompt_cache_key: false,
            developer_role: false,
            list_tool_content: !chat,
            images: true,
            data_url_images: true,
            stream_usage: chat,
            parallel_tool_calls: false,
            schema: SchemaDialect::Standard,
            tool_ids: if anthropic {
                ToolIds::Word
            } else {
                ToolIds::Any
            },
            thought_signatures: false,
            needs_signatures: false,
            tool_result_names: chat,
            provider_preferences: None,
            ollama_num_ctx: None,
            content_as_parts: false,
            system_in_user: false,
        }
    }
}

/// How the credential is presented.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AuthStyle {
    /// `Authorization: Bearer …`
    Bearer,
    /// `x-api-key: …`
    XApiKey,
    /// `api-key: …` (Azure)
    ApiKey,
    None,
}

/// How the length of the answer is limited. Order: the request's figure, the default, the
/// model's own limit where the format demands one; never under `floor`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MaxTokens {
    pub key: MaxTokensKey,
    /// Sent when the request names none.
    pub default: Option<u32>,
    /// Smallest figure that makes sense here; a smaller default is raised, a smaller explicit
    /// request is not.
    pub floor: Option<u32>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MaxTokensKey {
    MaxTokens,
    MaxCompletionTokens,
    MaxOutputTokens,
    /// The endpoint refuses any such field.
    Omit,
}

impl MaxTokensKey {
    pub fn name(self) -> Option<&'static str> {
        match self {
            Self::MaxTokens => Some("max_tokens"),
            Self::MaxCompletionTokens => Some("max_completion_tokens"),
            Self::MaxOutputTokens => Some("max_output_tokens"),
            Self::Omit => None,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub enum TemperaturePolicy {
    Send,
    Omit,
}

/// How reasoning is asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ReasoningShape {
    /// There is no such field.
    None,
    /// `reasoning: {enabled, effort}` (OpenRouter, Nous).
    Object {
        /// Off is said by leaving the field out, not by `enabled: false`.
        omit_when_off: bool,
    },
    /// Top-level `verbosity` alone (Claude 4.6 and later behind OpenRouter).
    Verbosity,
    /// Top-level `reasoning_effort`, limited to these levels (weakest first).
    Effort { levels: &'static [ReasoningEffort] },
    /// `thinking: {type: enabled|disabled}`.
    Thinking(ThinkingToggle),
    /// `thinking: {type: adaptive}` and `output_config.effort`.
    AnthropicAdaptive {
        /// The level `xhigh` exists; else it becomes `max`.
        xhigh: bool,
    },
    /// `thinking: {type: enabled, budget_tokens}`; temperature is then 1.
    AnthropicBudget,
    /// `reasoning_effort`; off is `reasoning_effort: "none"` and `think: false` (Ollama and kin).
    Local,
    /// `reasoning: {effort, summary}` of the responses format, limited to these levels.
    Responses { levels: &'static [ReasoningEffort] },
    /// `extra_body.google.thinking_config` of Gemini's OpenAI-compatible endpoint.
    Google,
}

/// Variants of the `thinking` object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ThinkingToggle {
    /// Also sent when the request says nothing of reasoning.
    pub always: bool,
    /// Levels of a top-level `reasoning_effort`; empty: there is none.
    pub levels: &'static [ReasoningEffort],
    /// `thinking` and `reasoning_effort` exclude each other (Kimi).
    pub exclusive: bool,
}

/// Levels that most servers know.
pub const LOW_TO_HIGH: &[ReasoningEffort] = &[
    ReasoningEffort::Low,
    ReasoningEffort::Medium,
    ReasoningEffort::High,
];

/// Levels of OpenAI's reasoning models.
pub const MINIMAL_TO_XHIGH: &[ReasoningEffort] = &[
    ReasoningEffort::Minimal,
    ReasoningEffort::Low,
    ReasoningEffort::Medium,
    ReasoningEffort::High,
    ReasoningEffort::Xhigh,
];

/// Whether assistant messages carry `reasoning_content` back (chat completions).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReasoningEcho {
    /// On every assistant message; one space where there is none (an empty string is refused).
    Required,
    /// Never: the server answers 4xx.
    Forbidden,
    /// On the assistant messages whose reasoning is known (GLM).
    WhereKnown,
    /// Only as the issuer's own `reasoning_details`.
    Optional,
}

/// Which Anthropic thinking blocks travel back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ThinkingReplay {
    /// Every signed block (Anthropic itself). Dropping older ones would change bytes in the
    /// middle of the conversation and cost the prompt cache.
    Signed,
    /// All of them (Kimi).
    All,
    /// Only blocks without a signature (DeepSeek's Anthropic endpoint).
    Unsigned,
    /// None (other third parties: they cannot check signatures).
    Strip,
}

/// Where cache breakpoints go. At most four are sent: the tools array, the system prompt and the
/// last messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CacheLayout {
    None,
    /// Inside Anthropic content blocks.
    AnthropicNative,
    /// On content parts of chat messages (OpenRouter and kin).
    Envelope,
    /// On the system prompt only.
    SystemOnly,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CacheTtl {
    FiveMinutes,
    OneHour,
}

/// Which flavour of JSON schema the endpoint accepts for tools.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SchemaDialect {
    Standard,
    /// Moonshot: a type on every node, no type beside `anyOf`, no null branches.
    Moonshot,
    /// Gemini: a small subset of keywords; unknown ones are refused.
    Gemini,
    /// Servers that compile schemas to grammars (llama.cpp): no `pattern`, no `format`.
    Grammar,
    /// What all of them take, for endpoints that refused a schema.
    Plain,
}

/// Which ids of tool calls the endpoint takes. Ids of another provider are rewritten to fit,
/// always to the same value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ToolIds {
    Any,
    /// Letters, digits, `_` and `-` (Anthropic).
    Word,
    /// Exactly nine letters or digits (Mistral).
    Nine,
}

/// The strongest of `levels` that is not stronger than `wanted`, else the weakest.
pub fn nearest_level(
    wanted: ReasoningEffort,
    levels: &[ReasoningEffort],
) -> Option<ReasoningEffort> {
    let rank = |effort: &ReasoningEffort| *effort as u8;
    // "Off" is never near to anything but itself.
    let usable = || {
        levels
            .iter()
            .copied()
            .filter(|level| (*level == ReasoningEffort::None) == (wanted == ReasoningEffort::None))
    };
    usable()
        .filter(|level| rank(level) <= rank(&wanted))
        .max_by_key(rank)
        .or_else(|| usable().min_by_key(rank))
}

/// The word for an effort on the wire.
pub fn effort_name(effort: ReasoningEffort) -> &'static str {
    match effort {
        ReasoningEffort::None => "none",
        ReasoningEffort::Minimal => "minimal",
        ReasoningEffort::Low => "low",
        ReasoningEffort::Medium => "medium",
        ReasoningEffort::High => "high",
        ReasoningEffort::Xhigh => "xhigh",
        ReasoningEffort::Max => "max",
        ReasoningEffort::Ultra => "ultra",
    }
}

//! Refinement of quirks by model name: the same endpoint serves models with different rules.

use hermes_core::model::{Route, WireFormat};

use super::{
    CacheLayout, Quirks, ReasoningEcho, ReasoningShape, SchemaDialect, TemperaturePolicy,
    ThinkingReplay, ToolIds,
};

/// Claude families that think by budget and still take sampling parameters.
const CLAUDE_BUDGET: &[&str] = &[
    "claude-1",
    "claude-2",
    "claude-3",
    "claude-instant",
    "-4-0",
    "-4-1",
    "-4-2",
    "-4-3",
    "-4-4",
    "-4-5",
    "opus-4-20",
    "sonnet-4-20",
    "haiku-4-20",
];

/// Claude families that know neither thinking between calls nor streamed arguments.
const CLAUDE_WITHOUT_BETAS: &[&str] = &["claude-1", "claude-2", "claude-3", "claude-instant"];

const ANTHROPIC_BETAS: &str =
    "interleaved-thinking-2025-05-14,fine-grained-tool-streaming-2025-05-14";

/// Claude families with adaptive thinking that know no `xhigh` and still take sampling parameters.
const CLAUDE_FIRST_ADAPTIVE: &[&str] = &["-4-6"];

impl Quirks {
    /// The quirks of one model at this endpoint. Call it once per route, before the user's own
    /// overrides are applied; calling it twice changes nothing more.
    #[must_use]
    pub fn for_model(mut self, route: &Route) -> Self {
        let model = ModelName::new(&route.model);
        let host = host_of(&route.base_url);
        self.developer_role |= self.format == WireFormat::ChatCompletions
            && (model.has("gpt-5") || model.has("codex"));
        self.thought_signatures |= model.has("gemini") || model.has("gemma");
        self.needs_signatures |= model.has("gemini-3")
            && (route.provider == "gemini" || host.ends_with("googleapis.com"));
        if model.is_kimi() && self.schema == SchemaDialect::Standard {
            self.schema = SchemaDialect::Moonshot;
        }
        if model.refuses_sampling() {
            self.temperature = TemperaturePolicy::Omit;
        }
        if host.ends_with("mistral.ai") {
            self.tool_ids = ToolIds::Nine;
        }
        self.refine_echo(&model, &route.provider, &host);
        self.refine_cache(&model, &route.provider, &host);
        self.refine_reasoning(&model);
        if self.format == WireFormat::AnthropicMessages {
            let vendor =
                host == "api.anthropic.com" || (route.provider == "anthropic" && model.is_claude());
            self.thinking = if vendor {
                ThinkingReplay::Signed
            } else {
                thinking_replay(&model, &host)
            };
            if vendor && model.is_claude() && !model.has_any(CLAUDE_WITHOUT_BETAS) {
                self.ask_for_betas();
            }
        }
        self
    }

    /// Thinking between calls, and arguments of calls as they are written. Models that do both
    /// anyway ignore the header.
    fn ask_for_betas(&mut self) {
        let name = "anthropic-beta";
        if !self.headers.iter().any(|(known, _)| known == name) {
            self.headers
                .push((name.to_owned(), ANTHROPIC_BETAS.to_owned()));
        }
    }

    fn refine_echo(&mut self, model: &ModelName, provider: &str, host: &str) {
        let demanded = model.has("deepseek")
            || model.has("mimo")
            || matches!(
                provider,
                "deepseek" | "xiaomi" | "kimi-coding" | "kimi-coding-cn"
            )
            || [
                "deepseek.com",
                "moonshot.ai",
                "moonshot.cn",
                "kimi.com",
                "xiaomimimo.com",
            ]
            .iter()
            .any(|name| host.ends_with(name));
        if demanded && self.echo == ReasoningEcho::Optional {
            self.echo = ReasoningEcho::Required;
        }
    }

    fn refine_cache(&mut self, model: &ModelName, provider: &str, host: &str) {
        if self.cache != CacheLayout::None {
            return;
        }
        let aggregator = matches!(provider, "openrouter" | "nous")
            || host.ends_with("openrouter.ai")
            || host.ends_with("nousresearch.com");
        let nous = provider == "nous" || host.ends_with("nousresearch.com");
        let qwen_host = provider.starts_with("opencode") || provider.starts_with("alibaba");
        self.cache = match self.format {
            WireFormat::AnthropicMessages
                if model.is_claude()
                    || host == "api.anthropic.com"
                    || provider.starts_with("minimax") =>
            {
                CacheLayout::AnthropicNative
            }
            WireFormat::ChatCompletions
                if (aggregator && (model.is_claude() || model.is_kimi()))
                    || ((nous || qwen_host) && model.has("qwen")) =>
            {
                CacheLayout::Envelope
            }
            WireFormat::ChatCompletions if provider == "qwen-oauth" => CacheLayout::SystemOnly,
            _ => CacheLayout::None,
        };
    }

    fn refine_reasoning(&mut self, model: &ModelName) {
        match self.reasoning {
            ReasoningShape::Object { .. } if model.is_claude() && !model.thinks_by_budget() => {
                self.reasoning = ReasoningShape::Verbosity;
            }
            ReasoningShape::AnthropicAdaptive { .. } | ReasoningShape::AnthropicBudget => {
                self.reasoning = if model.is_kimi() {
                    ReasoningShape::AnthropicAdaptive { xhigh: true }
                } else if !model.is_claude() || model.thinks_by_budget() {
                    ReasoningShape::AnthropicBudget
                } else {
                    ReasoningShape::AnthropicAdaptive {
                        xhigh: !model.has_any(CLAUDE_FIRST_ADAPTIVE),
                    }
                };
                // Small Claudes of that age have no extended thinking at all.
                if model.has("haiku") && model.thinks_by_budget() && !model.has("-4-5") {
                    self.reasoning = ReasoningShape::None;
                }
            }
            _ => {}
        }
    }
}

fn thinking_replay(model: &ModelName, host: &str) -> ThinkingReplay {
    if model.is_kimi() || host.ends_with("kimi.com") || host.ends_with("moonshot.ai") {
        ThinkingReplay::All
    } else if model.has("deepseek") || host.ends_with("deepseek.com") {
        ThinkingReplay::Unsigned
    } else {
        ThinkingReplay::Strip
    }
}

fn host_of(base_url: &str) -> String {
    url::Url::parse(base_url)
        .ok()
        .and_then(|url| url.host_str().map(str::to_ascii_lowercase))
        .unwrap_or_default()
}

/// A model name in comparable form: lower case, dots as hyphens.
struct ModelName(String);

impl ModelName {
    fn new(model: &str) -> Self {
        Self(model.to_ascii_lowercase().replace('.', "-"))
    }

    fn has(&self, part: &str) -> bool {
        self.0.contains(part)
    }

    fn has_any(&self, parts: &[&str]) -> bool {
        parts.iter().any(|part| self.has(part))
    }

    fn is_claude(&self) -> bool {
        self.has("claude") || self.0.starts_with("anthropic/")
    }

    fn is_kimi(&self) -> bool {
        self.has("kimi") || self.has("moonshot")
    }

    fn thinks_by_budget(&self) -> bool {
        let bare_four = ["opus-4", "sonnet-4", "haiku-4"]
            .iter()
            .any(|name| self.0.ends_with(name));
        bare_four || self.has_any(CLAUDE_BUDGET)
    }

    fn refuses_sampling(&self) -> bool {
        let claude =
            self.is_claude() && !self.thinks_by_budget() && !self.has_any(CLAUDE_FIRST_ADAPTIVE);
        let slug = self.0.rsplit('/').next().unwrap_or(&self.0);
        let openai = slug.starts_with("gpt-5")
            || slug.starts_with("o1")
            || slug.starts_with("o3")
            || slug.starts_with("o4");
        claude || openai
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use hermes_core::model::WireFormat;

    fn route(provider: &str, model: &str, base_url: &str, format: WireFormat) -> Route {
        Route {
            provider: provider.into(),
            model: model.into(),
            base_url: base_url.into(),
            format,
            credential: None,
        }
    }

    fn refined(provider: &str, model: &str, base_url: &str, format: WireFormat) -> Quirks {
        let mut quirks = Quirks::new(format);
        quirks.reasoning = match format {
            WireFormat::AnthropicMessages => ReasoningShape::AnthropicBudget,
            _ => ReasoningShape::Object {
                omit_when_off: false,
            },
        };
        let route = route(provider, model, base_url, format);
        let once = quirks.for_model(&route);
        assert_eq!(
            once.clone().for_model(&route),
            once,
            "refining is idempotent"
        );
        once
    }

    #[test]
    fn claude_generations_think_differently() {
        let anthropic = |model: &str| {
            let host = "https://api.anthropic.com";
            refined("anthropic", model, host, WireFormat::AnthropicMessages)
        };
        let cases = [
            (
                "claude-3-7-sonnet-latest",
                ReasoningShape::AnthropicBudget,
                TemperaturePolicy::Send,
            ),
            (
                "claude-sonnet-4-20250514",
                ReasoningShape::AnthropicBudget,
                TemperaturePolicy::Send,
            ),
            (
                "claude-opus-4-5",
                ReasoningShape::AnthropicBudget,
                TemperaturePolicy::Send,
            ),
            (
                "claude-haiku-4-5",
                ReasoningShape::AnthropicBudget,
                TemperaturePolicy::Send,
            ),
            (
                "claude-3-5-haiku-latest",
                ReasoningShape::None,
                TemperaturePolicy::Send,
            ),
            (
                "claude-opus-4.6",
                ReasoningShape::AnthropicAdaptive { xhigh: false },
                TemperaturePolicy::Send,
            ),
            (
                "claude-opus-4-7",
                ReasoningShape::AnthropicAdaptive { xhigh: true },
                TemperaturePolicy::Omit,
            ),
            (
                "claude-sonnet-5",
                ReasoningShape::AnthropicAdaptive { xhigh: true },
                TemperaturePolicy::Omit,
            ),
        ];
        for (model, shape, temperature) in cases {
            let quirks = anthropic(model);
            assert_eq!(quirks.reasoning, shape, "{model}");
            assert_eq!(quirks.temperature, temperature, "{model}");
            assert_eq!(quirks.cache, CacheLayout::AnthropicNative, "{model}");
            assert_eq!(quirks.thinking, ThinkingReplay::Signed, "{model}");
            let betas = quirks
                .headers
                .iter()
                .find(|(name, _)| name == "anthropic-beta");
            assert_eq!(betas.is_some(), !model.starts_with("claude-3"), "{model}");
        }
    }

    #[test]
    fn aggregators_cache_by_model_family() {
        let open = |model: &str| {
            let host = "https://openrouter.ai/api/v1";
            refined("openrouter", model, host, WireFormat::ChatCompletions)
        };
        assert_eq!(
            open("anthropic/claude-sonnet-4.6").cache,
            CacheLayout::Envelope
        );
        assert_eq!(
            open("anthropic/claude-sonnet-4.6").reasoning,
            ReasoningShape::Verbosity
        );
        assert_eq!(open("moonshotai/kimi-k2").cache, CacheLayout::Envelope);
        assert_eq!(open("moonshotai/kimi-k2").schema, SchemaDialect::Moonshot);
        assert_eq!(open("qwen/qwen3-coder").cache, CacheLayout::None);
        assert!(open("openai/gpt-5.4").developer_role);
        assert!(open("google/gemini-3-flash").thought_signatures);
        assert_eq!(open("deepseek/deepseek-chat").echo, ReasoningEcho::Required);
    }

    #[test]
    fn a_server_that_forbids_the_echo_keeps_forbidding_it() {
        let mut quirks = Quirks::new(WireFormat::ChatCompletions);
        quirks.echo = ReasoningEcho::Forbidden;
        let groq = route(
            "groq",
            "deepseek-r1-distill",
            "https://api.groq.com/openai/v1",
            WireFormat::ChatCompletions,
        );
        assert_eq!(quirks.for_model(&groq).echo, ReasoningEcho::Forbidden);
    }
}

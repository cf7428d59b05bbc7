//! The quirks of each provider's endpoint: headers, limits, reasoning levels. Rules that follow
//! from the model name are applied afterwards by [`Quirks::for_model`].

use hermes_core::model::{ReasoningEffort, WireFormat};
use serde_json::{Value, json};

use super::endpoint;
use crate::local;
use crate::quirks::{
    AuthStyle, LOW_TO_HIGH, MINIMAL_TO_XHIGH, MaxTokensKey, Quirks, ReasoningEcho, ReasoningShape,
    SchemaDialect, TemperaturePolicy, ThinkingToggle,
};

/// Servers with a tiny default (Ollama: 128 tokens) would truncate longer answers.
const LOCAL_MAX_TOKENS: u32 = 65_536;

/// The built-in model processes one request at a time, on the CPU: an answer that never ends would
/// block everyone.
fn built_in_limit(model: &str) -> u32 {
    let small =
        |model: &local::table::LocalModel| model.parameters < local::table::SMALL_MODEL_PARAMETERS;
    if local::table::find(model).is_some_and(small) {
        512
    } else {
        2_048
    }
}

const LOW_TO_MAX: &[ReasoningEffort] = &[
    ReasoningEffort::Low,
    ReasoningEffort::Medium,
    ReasoningEffort::High,
    ReasoningEffort::Max,
];

const HIGH_OR_MAX: &[ReasoningEffort] = &[ReasoningEffort::High, ReasoningEffort::Max];

/// The quirks of a provider's endpoint at `base_url` with `format`.
pub(crate) fn quirks(provider: &str, base_url: &str, model: &str, format: WireFormat) -> Quirks {
    let quirks = Quirks::new(format);
    match format {
        WireFormat::ChatCompletions => chat(quirks, provider, base_url, model),
        WireFormat::AnthropicMessages => anthropic(quirks, base_url),
        WireFormat::Responses => responses(quirks, provider, model),
    }
}

fn chat(mut quirks: Quirks, provider: &str, base_url: &str, model: &str) -> Quirks {
    // A custom entry for a known host behaves like that host's provider; other servers with
    // OpenAI's format may be anything.
    let id = match provider_by_host(base_url) {
        Some(id) => id,
        None if provider == "openai-api" => "custom",
        None => provider,
    };
    match id {
        "openrouter" => openrouter(&mut quirks, model),
        "nous" => nous(&mut quirks),
        "nvidia" => quirks.max_tokens.default = Some(16_384),
        "xiaomi" => {
            quirks.list_tool_content = false;
            quirks.echo = ReasoningEcho::Required;
        }
        "zai" => {
            quirks.reasoning = ReasoningShape::Thinking(ThinkingToggle {
                always: false,
                levels: if is_glm_5_2(model) { HIGH_OR_MAX } else { &[] },
                exclusive: false,
            });
            quirks.echo = ReasoningEcho::WhereKnown;
        }
        "kimi-coding" | "kimi-coding-cn" => kimi(&mut quirks),
        "openai-api" => {
            quirks.max_tokens.key = MaxTokensKey::MaxCompletionTokens;
            quirks.list_tool_content = false;
            if is_openai_reasoner(model) {
                quirks.reasoning = ReasoningShape::Effort {
                    levels: MINIMAL_TO_XHIGH,
                };
            }
        }
        "gemini" => {
            quirks.schema = SchemaDialect::Gemini;
            quirks.reasoning = ReasoningShape::Google;
            quirks.thought_signatures = true;
        }
        "deepseek" => {
            quirks.echo = ReasoningEcho::Required;
            if deepseek_thinks(model) {
                quirks.reasoning = ReasoningShape::Thinking(ThinkingToggle {
                    always: true,
                    levels: LOW_TO_MAX,
                    exclusive: false,
                });
            }
        }
        "mistral" | "groq" | "cerebras" | "sambanova" => {
            quirks.echo = ReasoningEcho::Forbidden;
            // Mistral always sends the usage and refuses the option.
            quirks.stream_usage = id != "mistral";
            if model.to_ascii_lowercase().contains("gpt-oss") {
                quirks.reasoning = ReasoningShape::Effort {
                    levels: LOW_TO_HIGH,
                };
            }
        }
        "upstage" if !model.contains("solar-mini") && !model.contains("syn-pro") => {
            quirks.reasoning = ReasoningShape::Effort {
                levels: LOW_TO_HIGH,
            };
            quirks.default_reasoning = Some(ReasoningEffort::Medium);
        }
        "ollama-cloud" => quirks.reasoning = ReasoningShape::Local,
        "minimax" if model.to_ascii_lowercase().starts_with("minimax-m3") => {
            set(&mut quirks, "reasoning_split", json!(true));
        }
        local::PROVIDER => quirks.max_tokens.default = Some(built_in_limit(model)),
        _ if is_own_endpoint(id) => own_endpoint(&mut quirks, id, base_url),
        _ => {}
    }
    quirks
}

fn openrouter(quirks: &mut Quirks, model: &str) {
    quirks.reasoning = ReasoningShape::Object {
        omit_when_off: false,
    };
    quirks.headers.push(header("X-Title", "Hermes"));
    if model.starts_with("x-ai/grok-") {
        quirks.headers.push(header("x-grok-conv-id", "{session}"));
    }
    set(quirks, "session_id", json!("{session}"));
    set(quirks, "usage", json!({"include": true}));
}

fn nous(quirks: &mut Quirks) {
    quirks.reasoning = ReasoningShape::Object {
        omit_when_off: true,
    };
    let tags = [
        "product=hermes",
        "client=hermes-rust",
        "conversation={session}",
    ];
    set(quirks, "tags", json!(tags));
}

fn header(name: &str, value: &str) -> (String, String) {
    (name.to_owned(), value.to_owned())
}

fn provider_by_host(base_url: &str) -> Option<&'static str> {
    if endpoint::host_is_under(base_url, "openai.azure.com") {
        return Some("openai-api");
    }
    endpoint::owner_of(base_url).map(|owner| owner.id)
}

/// Whether only the config describes the endpoint.
fn is_own_endpoint(provider: &str) -> bool {
    super::by_id(provider).is_none_or(|known| known.local.is_some() || known.base_url.is_empty())
}

fn own_endpoint(quirks: &mut Quirks, provider: &str, base_url: &str) {
    quirks.reasoning = ReasoningShape::Local;
    if endpoint::is_local(base_url) {
        // A hosted gateway knows its own limits; a local server's default truncates answers.
        quirks.max_tokens.default = Some(LOCAL_MAX_TOKENS);
        quirks.max_tokens.floor = Some(LOCAL_MAX_TOKENS);
    }
    if provider == "llamacpp" {
        quirks.schema = SchemaDialect::Grammar;
    }
}

fn kimi(quirks: &mut Quirks) {
    quirks.temperature = TemperaturePolicy::Omit;
    quirks.max_tokens.default = Some(32_000);
    quirks.schema = SchemaDialect::Moonshot;
    quirks.echo = ReasoningEcho::Required;
    quirks.reasoning = ReasoningShape::Thinking(ThinkingToggle {
        always: true,
        levels: LOW_TO_HIGH,
        exclusive: true,
    });
}

fn anthropic(mut quirks: Quirks, base_url: &str) -> Quirks {
    quirks.reasoning = ReasoningShape::AnthropicAdaptive { xhigh: true };
    if endpoint::host_is_under(base_url, "minimax.io")
        || endpoint::host_is_under(base_url, "minimaxi.com")
    {
        quirks.auth = AuthStyle::Bearer;
    } else if endpoint::host_is_under(base_url, "kimi.com") {
        quirks.schema = SchemaDialect::Moonshot;
        quirks.temperature = TemperaturePolicy::Omit;
        quirks.max_tokens.default = Some(32_000);
    }
    quirks
}

fn responses(mut quirks: Quirks, provider: &str, model: &str) -> Quirks {
    quirks.prompt_cache_key = true;
    quirks.parallel_tool_calls = true;
    if provider == "xai" {
        quirks.headers.push(header("x-grok-conv-id", "{session}"));
        if grok_takes_effort(model) {
            quirks.reasoning = ReasoningShape::Responses {
                levels: LOW_TO_HIGH,
            };
        }
    } else if is_openai_reasoner(model) {
        quirks.reasoning = ReasoningShape::Responses {
            levels: MINIMAL_TO_XHIGH,
        };
    }
    quirks
}

fn set(quirks: &mut Quirks, key: &str, value: Value) {
    quirks.extra_body.insert(key.to_owned(), value);
}

fn is_glm_5_2(model: &str) -> bool {
    let model = model.to_ascii_lowercase();
    ["glm-5.2", "glm-5-2", "glm-5p2"]
        .iter()
        .any(|name| model.contains(name))
}

/// DeepSeek's `thinking` field exists for the reasoner and from V4 on.
fn deepseek_thinks(model: &str) -> bool {
    let model = model.to_ascii_lowercase();
    let newer = model
        .strip_prefix("deepseek-v")
        .and_then(|rest| rest.chars().next())
        .and_then(|digit| digit.to_digit(10))
        .is_some_and(|version| version >= 4);
    newer || model == "deepseek-reasoner"
}

fn is_openai_reasoner(model: &str) -> bool {
    let model = model
        .rsplit('/')
        .next()
        .unwrap_or(model)
        .to_ascii_lowercase();
    (model.starts_with("gpt-5") && !model.contains("-chat"))
        || ["o1", "o3", "o4"]
            .iter()
            .any(|family| model.starts_with(family))
        || model.contains("codex")
}

/// Other Grok models answer 400 to an effort.
fn grok_takes_effort(model: &str) -> bool {
    let model = model.to_ascii_lowercase();
    [
        "grok-3-mini",
        "grok-4.20-multi-agent",
        "grok-4.3",
        "grok-4.5",
    ]
    .iter()
    .any(|name| model.starts_with(name))
}

#[cfg(test)]
mod tests {
    use super::super::by_id;
    use super::*;

    fn of(id: &str, model: &str) -> Quirks {
        let provider = by_id(id).unwrap();
        quirks(id, provider.base_url, model, provider.format)
    }

    #[test]
    fn each_provider_has_its_quirks() {
        assert_eq!(of("nvidia", "m").max_tokens.default, Some(16_384));
        assert_eq!(
            of("kimi-coding", "kimi-k2.6").temperature,
            TemperaturePolicy::Omit
        );
        assert_eq!(
            of("kimi-coding-cn", "kimi-k2.6").max_tokens.default,
            Some(32_000)
        );
        assert_eq!(of("minimax", "MiniMax-M3").auth, AuthStyle::Bearer);
        assert_eq!(of("anthropic", "claude-sonnet-5").auth, AuthStyle::XApiKey);
        assert_eq!(of("xiaomi", "mimo-v2.5").echo, ReasoningEcho::Required);
        assert!(!of("xiaomi", "mimo-v2.5").list_tool_content);
        for id in ["mistral", "groq", "cerebras", "sambanova"] {
            assert_eq!(of(id, "x").echo, ReasoningEcho::Forbidden, "{id}");
        }
        assert_eq!(
            of("deepseek", "deepseek-chat").echo,
            ReasoningEcho::Required
        );
        assert_eq!(
            of("deepseek", "deepseek-chat").reasoning,
            ReasoningShape::None
        );
        assert_eq!(of("gemini", "gemini-2.5-pro").schema, SchemaDialect::Gemini);
        assert_eq!(of("openrouter", "x").extra_body["session_id"], "{session}");
        assert!(of("nous", "x").extra_body["tags"].is_array());
        assert!(of("openai-api", "gpt-5.4").prompt_cache_key);
        assert!(of("xai", "grok-4").prompt_cache_key);
    }

    #[test]
    fn efforts_only_where_the_model_takes_them() {
        assert_eq!(of("xai", "grok-4").reasoning, ReasoningShape::None);
        assert!(matches!(
            of("xai", "grok-4.3").reasoning,
            ReasoningShape::Responses { .. }
        ));
        assert_eq!(of("openai-api", "gpt-4o").reasoning, ReasoningShape::None);
        let ReasoningShape::Thinking(toggle) = of("zai", "glm-5.2").reasoning else {
            panic!("zai has a thinking toggle")
        };
        assert_eq!(toggle.levels, HIGH_OR_MAX);
    }

    #[test]
    fn own_endpoints_get_room_for_an_answer_only_when_local() {
        let local = quirks(
            "custom",
            "http://127.0.0.1:8000/v1",
            "m",
            WireFormat::ChatCompletions,
        );
        assert_eq!(local.max_tokens.floor, Some(LOCAL_MAX_TOKENS));
        let hosted = quirks(
            "custom",
            "https://llm.acme.test/v1",
            "m",
            WireFormat::ChatCompletions,
        );
        assert_eq!(hosted.max_tokens.default, None);
        let known = quirks(
            "custom",
            "https://api.groq.com/openai/v1",
            "m",
            WireFormat::ChatCompletions,
        );
        assert_eq!(known.echo, ReasoningEcho::Forbidden);
    }
}

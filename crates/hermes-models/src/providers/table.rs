//! The built-in providers. Order matters: it is the order of automatic choice among key variables.

use hermes_core::model::WireFormat::{AnthropicMessages, ChatCompletions, Responses};

use super::{Auth, LocalServer, Provider, Unsupported};

/// What most entries share.
const BASE: Provider = Provider {
    id: "",
    name: "",
    aliases: &[],
    format: ChatCompletions,
    base_url: "",
    key_envs: &[],
    url_env: None,
    auth: Auth::Key,
    auto: true,
    aggregator: false,
    default_model: None,
    aux_model: None,
    lists_models: true,
    local: None,
};

/// A server on the own network: no key needed, never chosen because of a variable.
const LOCAL: Provider = Provider {
    auth: Auth::OptionalKey,
    auto: false,
    ..BASE
};

pub static PROVIDERS: &[Provider] = &[
    Provider {
        id: "openrouter",
        name: "OpenRouter",
        aliases: &["or"],
        base_url: "https://openrouter.ai/api/v1",
        key_envs: &["OPENROUTER_API_KEY"],
        url_env: Some("OPENROUTER_BASE_URL"),
        aggregator: true,
        default_model: Some("anthropic/claude-sonnet-5"),
        aux_model: Some("google/gemini-3-flash-preview"),
        ..BASE
    },
    Provider {
        id: "openai-api",
        name: "OpenAI",
        aliases: &["openai"],
        format: Responses,
        base_url: "https://api.openai.com/v1",
        key_envs: &["OPENAI_API_KEY"],
        url_env: Some("OPENAI_BASE_URL"),
        default_model: Some("gpt-5.4"),
        aux_model: Some("gpt-5.4-mini"),
        ..BASE
    },
    Provider {
        id: "gemini",
        name: "Google AI Studio",
        aliases: &["google", "google-gemini", "google-ai-studio"],
        base_url: "https://generativelanguage.googleapis.com/v1beta/openai",
        key_envs: &["GOOGLE_API_KEY", "GEMINI_API_KEY"],
        url_env: Some("GEMINI_BASE_URL"),
        default_model: Some("gemini-3.1-pro-preview"),
        aux_model: Some("gemini-3.5-flash"),
        ..BASE
    },
    Provider {
        id: "zai",
        name: "Z.AI / GLM",
        aliases: &["glm", "z-ai", "z.ai", "zhipu"],
        base_url: "https://api.z.ai/api/paas/v4",
        key_envs: &["GLM_API_KEY", "ZAI_API_KEY", "Z_AI_API_KEY"],
        url_env: Some("GLM_BASE_URL"),
        default_model: Some("glm-5.2"),
        aux_model: Some("glm-4.5-flash"),
        ..BASE
    },
    Provider {
        id: "kimi-coding",
        name: "Kimi / Moonshot",
        aliases: &["kimi", "moonshot", "kimi-for-coding"],
        base_url: "https://api.moonshot.ai/v1",
        key_envs: &["KIMI_API_KEY", "KIMI_CODING_API_KEY"],
        url_env: Some("KIMI_BASE_URL"),
        default_model: Some("kimi-k2.6"),
        aux_model: Some("kimi-k2-turbo-preview"),
        ..BASE
    },
    Provider {
        id: "kimi-coding-cn",
        name: "Kimi / Moonshot (China)",
        aliases: &["kimi-cn", "moonshot-cn"],
        base_url: "https://api.moonshot.cn/v1",
        key_envs: &["KIMI_CN_API_KEY"],
        default_model: Some("kimi-k2.6"),
        aux_model: Some("kimi-k2-turbo-preview"),
        ..BASE
    },
    Provider {
        id: "stepfun",
        name: "StepFun",
        aliases: &["step", "stepfun-coding-plan"],
        base_url: "https://api.stepfun.ai/step_plan/v1",
        key_envs: &["STEPFUN_API_KEY"],
        url_env: Some("STEPFUN_BASE_URL"),
        default_model: Some("step-3.5-flash"),
        aux_model: Some("step-3.5-flash"),
        ..BASE
    },
    Provider {
        id: "arcee",
        name: "Arcee AI",
        aliases: &["arcee-ai", "arceeai"],
        base_url: "https://api.arcee.ai/api/v1",
        key_envs: &["ARCEEAI_API_KEY"],
        url_env: Some("ARCEE_BASE_URL"),
        default_model: Some("trinity-large-thinking"),
        ..BASE
    },
    Provider {
        id: "gmi",
        name: "GMI Cloud",
        aliases: &["gmi-cloud", "gmicloud"],
        base_url: "https://api.gmi-serving.com/v1",
        key_envs: &["GMI_API_KEY"],
        url_env: Some("GMI_BASE_URL"),
        aggregator: true,
        default_model: Some("zai-org/GLM-5.1-FP8"),
        aux_model: Some("google/gemini-3.1-flash-lite-preview"),
        ..BASE
    },
    Provider {
        id: "minimax",
        name: "MiniMax",
        aliases: &["mini-max"],
        format: AnthropicMessages,
        base_url: "https://api.minimax.io/anthropic",
        key_envs: &["MINIMAX_API_KEY"],
        url_env: Some("MINIMAX_BASE_URL"),
        default_model: Some("MiniMax-M3"),
        aux_model: Some("MiniMax-M3"),
        ..BASE
    },
    Provider {
        id: "anthropic",
        name: "Anthropic",
        aliases: &["claude"],
        format: AnthropicMessages,
        base_url: "https://api.anthropic.com",
        // ANTHROPIC_TOKEN counts only when it holds an API key; subscription tokens of another
        // vendor's client are refused (credentials::is_usable_for).
        key_envs: &["ANTHROPIC_API_KEY", "ANTHROPIC_TOKEN"],
        url_env: Some("ANTHROPIC_BASE_URL"),
        default_model: Some("claude-sonnet-5"),
        aux_model: Some("claude-haiku-4-5-20251001"),
        ..BASE
    },
    Provider {
        id: "alibaba",
        name: "Qwen Cloud",
        aliases: &["dashscope", "aliyun", "alibaba-cloud", "qwen-dashscope"],
        base_url: "https://dashscope-intl.aliyuncs.com/compatible-mode/v1",
        key_envs: &["DASHSCOPE_API_KEY"],
        url_env: Some("DASHSCOPE_BASE_URL"),
        default_model: Some("qwen3.7-plus"),
        aux_model: Some("qwen3.6-plus"),
        ..BASE
    },
    Provider {
        id: "alibaba-coding-plan",
        name: "Alibaba Cloud (coding plan)",
        aliases: &[
            "alibaba_coding",
            "alibaba-coding",
            "alibaba_coding_plan",
            "dashscope-coding",
        ],
        base_url: "https://coding-intl.dashscope.aliyuncs.com/v1",
        key_envs: &["ALIBABA_CODING_PLAN_API_KEY", "DASHSCOPE_API_KEY"],
        url_env: Some("ALIBABA_CODING_PLAN_BASE_URL"),
        default_model: Some("qwen3.7-plus"),
        ..BASE
    },
    Provider {
        id: "minimax-cn",
        name: "MiniMax (China)",
        aliases: &["minimax-china", "minimax_cn"],
        format: AnthropicMessages,
        base_url: "https://api.minimaxi.com/anthropic",
        key_envs: &["MINIMAX_CN_API_KEY"],
        url_env: Some("MINIMAX_CN_BASE_URL"),
        default_model: Some("MiniMax-M3"),
        aux_model: Some("MiniMax-M3"),
        ..BASE
    },
    Provider {
        id: "deepseek",
        name: "DeepSeek",
        aliases: &["deep-seek"],
        base_url: "https://api.deepseek.com/v1",
        key_envs: &["DEEPSEEK_API_KEY"],
        url_env: Some("DEEPSEEK_BASE_URL"),
        default_model: Some("deepseek-chat"),
        aux_model: Some("deepseek-chat"),
        ..BASE
    },
    Provider {
        id: "xai",
        name: "xAI",
        aliases: &["grok", "x-ai", "x.ai"],
        format: Responses,
        base_url: "https://api.x.ai/v1",
        key_envs: &["XAI_API_KEY"],
        url_env: Some("XAI_BASE_URL"),
        default_model: Some("grok-4.3"),
        aux_model: Some("grok-4.3"),
        ..BASE
    },
    Provider {
        id: "nvidia",
        name: "NVIDIA NIM",
        aliases: &["nim", "nvidia-nim", "build-nvidia", "nemotron"],
        base_url: "https://integrate.api.nvidia.com/v1",
        key_envs: &["NVIDIA_API_KEY"],
        url_env: Some("NVIDIA_BASE_URL"),
        aggregator: true,
        default_model: Some("nvidia/nemotron-3-super-120b-a12b"),
        ..BASE
    },
    Provider {
        id: "opencode-zen",
        name: "OpenCode Zen",
        aliases: &["opencode", "opencode_zen", "zen"],
        base_url: "https://opencode.ai/zen/v1",
        key_envs: &["OPENCODE_ZEN_API_KEY"],
        url_env: Some("OPENCODE_ZEN_BASE_URL"),
        default_model: Some("kimi-k2.6"),
        aux_model: Some("glm-5"),
        ..BASE
    },
    Provider {
        id: "opencode-go",
        name: "OpenCode Go",
        aliases: &["opencode_go", "go", "opencode-go-sub"],
        base_url: "https://opencode.ai/zen/go/v1",
        key_envs: &["OPENCODE_GO_API_KEY"],
        url_env: Some("OPENCODE_GO_BASE_URL"),
        default_model: Some("kimi-k2.6"),
        aux_model: Some("glm-5"),
        ..BASE
    },
    Provider {
        id: "kilocode",
        name: "Kilo Code",
        aliases: &["kilo", "kilo-code", "kilo-gateway"],
        base_url: "https://api.kilo.ai/api/gateway",
        key_envs: &["KILOCODE_API_KEY"],
        url_env: Some("KILOCODE_BASE_URL"),
        aggregator: true,
        default_model: Some("anthropic/claude-sonnet-4.6"),
        aux_model: Some("google/gemini-3-flash-preview"),
        ..BASE
    },
    Provider {
        id: "huggingface",
        name: "Hugging Face",
        aliases: &["hf", "hugging-face", "huggingface-hub"],
        base_url: "https://router.huggingface.co/v1",
        key_envs: &["HF_TOKEN"],
        url_env: Some("HF_BASE_URL"),
        aggregator: true,
        default_model: Some("deepseek-ai/DeepSeek-V3.2"),
        ..BASE
    },
    Provider {
        id: "xiaomi",
        name: "Xiaomi MiMo",
        aliases: &["mimo", "xiaomi-mimo"],
        base_url: "https://api.xiaomimimo.com/v1",
        key_envs: &["XIAOMI_API_KEY"],
        url_env: Some("XIAOMI_BASE_URL"),
        default_model: Some("mimo-v2.5-pro"),
        aux_model: Some("mimo-v2-flash"),
        lists_models: false,
        ..BASE
    },
    Provider {
        id: "tencent-tokenhub",
        name: "Tencent TokenHub",
        aliases: &["tencent", "tokenhub", "tencent-cloud", "tencentmaas"],
        base_url: "https://tokenhub.tencentmaas.com/v1",
        key_envs: &["TOKENHUB_API_KEY"],
        url_env: Some("TOKENHUB_BASE_URL"),
        default_model: Some("hy3-preview"),
        ..BASE
    },
    Provider {
        id: "ollama-cloud",
        name: "Ollama Cloud",
        aliases: &["ollama_cloud"],
        base_url: "https://ollama.com/v1",
        key_envs: &["OLLAMA_API_KEY"],
        url_env: Some("OLLAMA_BASE_URL"),
        default_model: Some("gpt-oss:120b"),
        aux_model: Some("nemotron-3-nano:30b"),
        ..BASE
    },
    Provider {
        id: "deepinfra",
        name: "DeepInfra",
        aliases: &["deep-infra", "deepinfra-ai"],
        base_url: "https://api.deepinfra.com/v1/openai",
        key_envs: &["DEEPINFRA_API_KEY"],
        url_env: Some("DEEPINFRA_BASE_URL"),
        aggregator: true,
        default_model: Some("deepseek-ai/DeepSeek-V4-Flash"),
        aux_model: Some("deepseek-ai/DeepSeek-V4-Flash"),
        ..BASE
    },
    Provider {
        id: "fireworks",
        name: "Fireworks AI",
        aliases: &["fireworks-ai", "fw"],
        base_url: "https://api.fireworks.ai/inference/v1",
        key_envs: &["FIREWORKS_API_KEY"],
        aggregator: true,
        default_model: Some("accounts/fireworks/models/kimi-k2p6"),
        aux_model: Some("accounts/fireworks/models/glm-5p2"),
        ..BASE
    },
    Provider {
        id: "novita",
        name: "Novita AI",
        aliases: &["novita-ai", "novitaai"],
        base_url: "https://api.novita.ai/openai/v1",
        key_envs: &["NOVITA_API_KEY"],
        url_env: Some("NOVITA_BASE_URL"),
        aggregator: true,
        default_model: Some("moonshotai/kimi-k2.5"),
        aux_model: Some("deepseek/deepseek-v3-0324"),
        ..BASE
    },
    Provider {
        id: "upstage",
        name: "Upstage Solar",
        aliases: &["solar"],
        base_url: "https://api.upstage.ai/v1",
        key_envs: &["UPSTAGE_API_KEY"],
        url_env: Some("UPSTAGE_BASE_URL"),
        default_model: Some("solar-pro3"),
        ..BASE
    },
    Provider {
        id: "mistral",
        name: "Mistral",
        aliases: &["mistralai", "mistral-ai"],
        base_url: "https://api.mistral.ai/v1",
        key_envs: &["MISTRAL_API_KEY"],
        url_env: Some("MISTRAL_BASE_URL"),
        default_model: Some("mistral-large-latest"),
        aux_model: Some("mistral-small-latest"),
        ..BASE
    },
    Provider {
        id: "groq",
        name: "Groq",
        aliases: &[],
        base_url: "https://api.groq.com/openai/v1",
        key_envs: &["GROQ_API_KEY"],
        url_env: Some("GROQ_BASE_URL"),
        aggregator: true,
        default_model: Some("openai/gpt-oss-120b"),
        aux_model: Some("openai/gpt-oss-20b"),
        ..BASE
    },
    Provider {
        id: "cerebras",
        name: "Cerebras",
        aliases: &[],
        base_url: "https://api.cerebras.ai/v1",
        key_envs: &["CEREBRAS_API_KEY"],
        url_env: Some("CEREBRAS_BASE_URL"),
        default_model: Some("gpt-oss-120b"),
        aux_model: Some("gpt-oss-120b"),
        ..BASE
    },
    Provider {
        id: "sambanova",
        name: "SambaNova",
        aliases: &[],
        base_url: "https://api.sambanova.ai/v1",
        key_envs: &["SAMBANOVA_API_KEY"],
        url_env: Some("SAMBANOVA_BASE_URL"),
        default_model: Some("gpt-oss-120b"),
        ..BASE
    },
    Provider {
        id: "together",
        name: "Together AI",
        aliases: &["together-ai", "togetherai"],
        base_url: "https://api.together.xyz/v1",
        key_envs: &["TOGETHER_API_KEY"],
        url_env: Some("TOGETHER_BASE_URL"),
        aggregator: true,
        default_model: Some("openai/gpt-oss-120b"),
        aux_model: Some("openai/gpt-oss-20b"),
        ..BASE
    },
    Provider {
        id: "nous",
        name: "Nous Portal",
        aliases: &["nous-portal", "nousresearch"],
        base_url: "https://inference-api.nousresearch.com/v1",
        key_envs: &["NOUS_API_KEY"],
        url_env: Some("NOUS_INFERENCE_BASE_URL"),
        auth: Auth::Login,
        aggregator: true,
        default_model: Some("anthropic/claude-sonnet-5"),
        aux_model: Some("google/gemini-3.5-flash"),
        ..BASE
    },
    Provider {
        id: "lmstudio",
        name: "LM Studio",
        aliases: &["lm-studio", "lm_studio"],
        base_url: "http://127.0.0.1:1234/v1",
        key_envs: &["LM_API_KEY"],
        url_env: Some("LM_BASE_URL"),
        local: Some(LocalServer::LmStudio),
        ..LOCAL
    },
    Provider {
        id: "ollama",
        name: "Ollama",
        base_url: "http://127.0.0.1:11434/v1",
        local: Some(LocalServer::Ollama),
        ..LOCAL
    },
    Provider {
        id: "llamacpp",
        name: "llama.cpp server",
        aliases: &["llama.cpp", "llama-cpp", "llama-server"],
        base_url: "http://127.0.0.1:8080/v1",
        local: Some(LocalServer::LlamaCpp),
        ..LOCAL
    },
    Provider {
        id: "vllm",
        name: "vLLM",
        base_url: "http://127.0.0.1:8000/v1",
        local: Some(LocalServer::Vllm),
        ..LOCAL
    },
    Provider {
        id: "custom",
        name: "Own endpoint",
        ..LOCAL
    },
    // Last: it is for when there is nothing else. In the original this name stands for `custom`;
    // with an address of its own it still does (router::resolve).
    Provider {
        id: crate::local::PROVIDER,
        name: "Built-in model",
        aliases: &["hermes-local", "built-in"],
        base_url: crate::local::ADDRESS,
        default_model: Some(crate::local::table::DEFAULT),
        lists_models: false,
        local: Some(LocalServer::BuiltIn),
        ..LOCAL
    },
];

pub static UNSUPPORTED: &[Unsupported] = &[
    Unsupported {
        id: "openai-codex",
        aliases: &["codex", "openai_codex"],
        reason: "its login belongs to another vendor's client; use provider openai-api with OPENAI_API_KEY",
    },
    Unsupported {
        id: "xai-oauth",
        aliases: &["grok-oauth", "x-ai-oauth", "xai-grok-oauth"],
        reason: "its login belongs to another vendor's client; use provider xai with XAI_API_KEY",
    },
    Unsupported {
        id: "qwen-oauth",
        aliases: &["qwen", "qwen-portal", "qwen-cli"],
        reason: "its login belongs to another vendor's client; use provider alibaba with DASHSCOPE_API_KEY",
    },
    Unsupported {
        id: "minimax-oauth",
        aliases: &[
            "minimax_oauth",
            "minimax-portal",
            "minimax-global",
            "minimax-oauth-io",
        ],
        reason: "its login belongs to another vendor's client; use provider minimax with MINIMAX_API_KEY",
    },
    Unsupported {
        id: "claude-code",
        aliases: &["claude-oauth"],
        reason: "its login belongs to another vendor's client; use provider anthropic with ANTHROPIC_API_KEY",
    },
    Unsupported {
        id: "copilot",
        aliases: &["github", "github-copilot", "github-models", "github-model"],
        reason: "its token exchange belongs to another vendor's client; use a provider with an API key",
    },
    Unsupported {
        id: "copilot-acp",
        aliases: &["github-copilot-acp", "copilot-acp-agent"],
        reason: "it drives another vendor's client; use a provider with an API key",
    },
    Unsupported {
        id: "bedrock",
        aliases: &["aws", "aws-bedrock", "amazon-bedrock", "amazon"],
        reason: "signing requests for AWS is not built in; use anthropic or openrouter, or a gateway with provider custom",
    },
    Unsupported {
        id: "vertex",
        aliases: &["google-vertex", "vertex-ai", "gcp-vertex"],
        reason: "Google Cloud service accounts are not built in; use provider gemini with GEMINI_API_KEY",
    },
    Unsupported {
        id: "azure-foundry",
        aliases: &["azure", "azure-ai-foundry", "azure-ai"],
        reason: "its addresses are per resource; use provider custom with model.base_url and model.api_key",
    },
    Unsupported {
        id: "moa",
        aliases: &[],
        reason: "mixture presets are not built in; name one provider",
    },
];

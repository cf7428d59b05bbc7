//! Choosing, rotating, falling back; no network.

use std::time::Duration;

use hermes_config::env::ProcessEnv;
use hermes_config::schema::{AuxTask, Endpoint, EndpointModel, Fallback, Secret};
use hermes_core::model::WireFormat;
use hermes_testkit::clock::{ManualClock, SeqRng};

use super::*;

const NOW: i64 = 1_800_000_000;

struct Rig {
    home: tempfile::TempDir,
    config: Config,
    vars: Vec<(String, String)>,
    clock: Arc<ManualClock>,
    overrides: Overrides,
}

impl Rig {
    fn new() -> Self {
        Self {
            home: tempfile::tempdir().unwrap(),
            config: Config::default(),
            vars: Vec::new(),
            clock: Arc::new(ManualClock::at(NOW)),
            overrides: Overrides::default(),
        }
    }

    fn env(mut self, name: &str, value: &str) -> Self {
        self.vars.push((name.to_owned(), value.to_owned()));
        self
    }

    fn config(mut self, change: impl FnOnce(&mut Config)) -> Self {
        change(&mut self.config);
        self
    }

    fn model(self, provider: &str, model: &str) -> Self {
        self.config(|config| {
            config.model.provider = provider.into();
            config.model.default = model.into();
        })
    }

    fn own(self, name: &str, base_url: &str, change: impl FnOnce(&mut Endpoint)) -> Self {
        self.config(|config| {
            let mut entry = Endpoint {
                name: name.into(),
                base_url: base_url.into(),
                context_length: Some(100_000),
                ..Endpoint::default()
            };
            change(&mut entry);
            config.custom_providers.get_or_insert_default().push(entry);
        })
    }

    fn fallback(self, provider: &str, model: &str, key: &str) -> Self {
        self.config(|config| {
            config.fallback_providers.push(Fallback {
                provider: provider.into(),
                model: model.into(),
                api_key: Secret::new(key),
                ..Fallback::default()
            });
        })
    }

    fn pick(mut self, model: &str, provider: &str) -> Self {
        let given = |text: &str| (!text.is_empty()).then(|| text.to_owned());
        self.overrides.model = given(model);
        self.overrides.provider = given(provider);
        self
    }

    fn auth(self, json: &serde_json::Value) -> Self {
        std::fs::write(self.home.path().join("auth.json"), json.to_string()).unwrap();
        self
    }

    fn router(&self) -> Router {
        let process = ProcessEnv::from_vars(self.vars.clone());
        Router::new(
            RouterDeps {
                config: Arc::new(self.config.clone()),
                env: Arc::new(Env::from_process(&process)),
                home: Home::at(self.home.path()),
                clock: self.clock.clone(),
                rng: Arc::new(SeqRng::new(0)),
            },
            self.overrides.clone(),
        )
    }

    fn route(&self) -> Route {
        self.router().primary().unwrap().route().clone()
    }

    fn error(&self) -> RouteError {
        self.router().primary().err().unwrap()
    }
}

fn failure(class: ErrorClass, status: u16) -> ModelError {
    ModelError {
        class,
        provider: String::new(),
        model: String::new(),
        status: Some(status),
        message: "refused".into(),
        retry_after: None,
        limit: None,
    }
}

fn brief(route: &Route) -> (&str, &str, &str) {
    (
        &route.provider,
        &route.model,
        route.credential.as_deref().unwrap_or("-"),
    )
}

#[test]
fn every_key_variable_leads_to_its_provider() {
    for provider in crate::providers::PROVIDERS.iter().filter(|p| p.auto) {
        for name in provider.key_envs {
            // Two providers share this one; the first of them is chosen.
            if *name == "DASHSCOPE_API_KEY" && provider.id != "alibaba" {
                continue;
            }
            let route = Rig::new().env(name, "sk-test-key").route();
            assert_eq!(route.provider, provider.id, "{name}");
            assert_eq!(route.base_url, provider.base_url, "{name}");
            assert_eq!(route.format, provider.format, "{name}");
            assert_eq!(route.model, provider.default_model.unwrap(), "{name}");
            assert_eq!(route.credential.as_deref(), Some(&*format!("env:{name}")));
        }
    }
}

#[test]
fn url_variables_move_the_endpoint_and_keep_the_key() {
    for provider in crate::providers::PROVIDERS.iter().filter(|p| p.auto) {
        let Some(url_env) = provider.url_env else {
            continue;
        };
        let route = Rig::new()
            .env(provider.key_envs[0], "sk-test-key")
            .env(url_env, "https://mirror.test/api/")
            .pick("some-model", provider.id)
            .route();
        assert_eq!(route.base_url, "https://mirror.test/api", "{}", provider.id);
        assert!(route.credential.is_some(), "{}", provider.id);
    }
}

#[test]
fn nothing_is_configured_without_a_key_or_an_address() {
    assert_eq!(Rig::new().error(), RouteError::NothingConfigured);
    let placeholders = Rig::new()
        .env("OPENROUTER_API_KEY", "changeme")
        .env("OPENAI_API_KEY", "***")
        .env("GH_TOKEN", "ghp_something")
        .env("LM_API_KEY", "lm-something")
        .env("CLAUDE_CODE_OAUTH_TOKEN", "sk-ant-oat01-x")
        .env("ANTHROPIC_TOKEN", "sk-ant-oat01-x");
    assert_eq!(placeholders.error(), RouteError::NothingConfigured);
    let model_only = Rig::new().model("", "anthropic/claude-sonnet-5");
    assert_eq!(model_only.error(), RouteError::NothingConfigured);
}

#[test]
fn automatic_choice_goes_by_rank() {
    let all = || {
        Rig::new()
            .env("OPENROUTER_API_KEY", "sk-or-key")
            .env("OPENAI_API_KEY", "sk-openai-key")
            .env("GLM_API_KEY", "glm-key")
    };
    assert_eq!(all().route().provider, "openrouter");
    let openai = Rig::new()
        .env("OPENAI_API_KEY", "sk-openai")
        .env("GLM_API_KEY", "glm-key");
    assert_eq!(openai.route().provider, "openai-api");
    // An OpenRouter key under OpenAI's name is still one, and does not go to OpenAI.
    let legacy = Rig::new().env("OPENAI_API_KEY", "sk-or-v1-x");
    assert_eq!(brief(&legacy.route()).0, "openrouter");
    // The config beats every variable, the command line beats the config.
    assert_eq!(all().model("zai", "glm-5.2").route().provider, "zai");
    assert_eq!(
        all()
            .model("zai", "glm-5.2")
            .pick("", "openrouter")
            .route()
            .provider,
        "openrouter"
    );
    let pool = serde_json::json!({"credential_pool": {"openrouter": [
        {"id": "a", "label": "work", "access_token": "sk-or-pool"}]}});
    let stored = Rig::new().env("GLM_API_KEY", "glm-key").auth(&pool);
    assert_eq!(
        brief(&stored.route()),
        ("openrouter", "anthropic/claude-sonnet-5", "pool:work")
    );
    let chosen = Rig::new()
        .env("GLM_API_KEY", "glm-key")
        .env("HERMES_INFERENCE_PROVIDER", "glm");
    assert_eq!(chosen.route().provider, "zai");
}

#[test]
fn a_missing_key_names_the_variable() {
    let error = Rig::new().model("anthropic", "claude-sonnet-5").error();
    assert_eq!(
        error,
        RouteError::MissingKey {
            provider: "anthropic".into(),
            env: "ANTHROPIC_API_KEY".into()
        }
    );
}

#[test]
fn broken_stored_keys_are_told_apart_from_none() {
    for rig in [Rig::new(), Rig::new().model("openrouter", "z-ai/glm-5.2")] {
        std::fs::write(rig.home.path().join("auth.json"), "{\"providers\": {").unwrap();
        let error = rig.error().to_string();
        assert!(error.contains("auth.json is not valid JSON"), "{error}");
    }
}

#[test]
fn unknown_and_unsupported_providers_are_explained() {
    let error = Rig::new().pick("x", "opnerouter").error();
    assert_eq!(
        error,
        RouteError::UnknownProvider {
            name: "opnerouter".into(),
            close: Some("openrouter".into())
        }
    );
    let RouteError::Invalid(text) = Rig::new().pick("x", "codex").error() else {
        panic!("codex is explained")
    };
    assert!(text.contains("OPENAI_API_KEY"), "{text}");
}

#[test]
fn a_model_may_name_its_provider() {
    let rig = || {
        Rig::new()
            .env("ANTHROPIC_API_KEY", "sk-ant-api")
            .env("OPENROUTER_API_KEY", "sk-or-key")
            .env("GROQ_API_KEY", "gsk-key")
            .own("home", "http://10.0.0.5:8000/v1", |_| {})
    };
    let of = |rig: Rig, model: &str| {
        let route = rig.pick(model, "").route();
        (route.provider, route.model)
    };
    let pair = |a: &str, b: &str| (a.to_owned(), b.to_owned());
    // At a reseller the vendor is part of the name.
    let reseller = || rig().model("openrouter", "z-ai/glm-5.2");
    assert_eq!(
        of(reseller(), "anthropic/claude-opus-4.8"),
        pair("openrouter", "anthropic/claude-opus-4.8")
    );
    assert_eq!(
        of(reseller(), "openrouter/auto"),
        pair("openrouter", "openrouter/auto")
    );
    assert_eq!(
        of(reseller(), "openrouter/openai/gpt-5.4"),
        pair("openrouter", "openai/gpt-5.4")
    );
    assert_eq!(
        of(reseller(), "groq/llama-3.3-70b"),
        pair("groq", "llama-3.3-70b")
    );
    assert_eq!(
        of(reseller(), "home/Qwen/Qwen3"),
        pair("custom:home", "Qwen/Qwen3")
    );
    assert_eq!(
        of(reseller(), "claude-opus-4-8"),
        pair("openrouter", "anthropic/claude-opus-4.8")
    );
    // Elsewhere it names the provider.
    let direct = || rig().model("groq", "x");
    assert_eq!(of(direct(), "ollama/qwen3:8b"), pair("ollama", "qwen3:8b"));
    let zai = || rig().env("GLM_API_KEY", "glm-key").model("zai", "glm-5.2");
    assert_eq!(
        of(zai(), "anthropic/claude-opus-4.8"),
        pair("anthropic", "claude-opus-4-8")
    );
    assert_eq!(of(zai(), "zai/glm-5"), pair("zai", "glm-5"));
    assert_eq!(of(zai(), "glm-4.7"), pair("zai", "glm-4.7"));
    // On an own server a slash is part of the name.
    let own = || rig().model("custom:home", "m");
    assert_eq!(
        of(own(), "openai/gpt-oss-20b"),
        pair("custom:home", "openai/gpt-oss-20b")
    );
    assert_eq!(
        of(own(), "openrouter/openai/gpt-5.4"),
        pair("openrouter", "openai/gpt-5.4")
    );
}

#[test]
fn own_endpoints() {
    let bare = Rig::new().model("custom", "m").config(|config| {
        config.model.base_url = "http://127.0.0.1:9/v1/".into();
        config.model.api_key = Secret::new("own-key");
        config.model.context_length = Some(50_000);
    });
    let client = bare.router().primary().unwrap();
    assert_eq!(brief(client.route()), ("custom", "m", "model_config"));
    assert_eq!(client.route().base_url, "http://127.0.0.1:9/v1");
    assert_eq!(
        (client.info().context_length, client.info().context_source),
        (50_000, "config")
    );
    assert!(client.info().local);

    let error = Rig::new().model("custom", "m").error();
    assert!(error.to_string().contains("model.base_url"), "{error}");

    let named = Rig::new().env("MY_KEY", "my-secret").own(
        "My Server",
        "https://llm.acme.test/anthropic",
        |entry| {
            entry.key_env = "MY_KEY".into();
            entry.model = "big".into();
        },
    );
    let route = named.route();
    assert_eq!(brief(&route), ("custom:my-server", "big", "env:MY_KEY"));
    assert_eq!(route.format, WireFormat::AnthropicMessages);
}

#[test]
fn keys_stay_with_their_hosts() {
    let keys = || {
        Rig::new()
            .env("OPENAI_API_KEY", "sk-openai")
            .env("OPENROUTER_API_KEY", "sk-or-key")
            .env("ACME_API_KEY", "acme-key")
            .env("DEEPSEEK_API_KEY", "ds-key")
    };
    let at = |url: &str| {
        let rig = keys().model("custom", "m").config(|config| {
            config.model.base_url = url.into();
            config.model.context_length = Some(50_000);
        });
        rig.route().credential
    };
    assert_eq!(at("http://127.0.0.1:9/v1"), None);
    assert_eq!(at("https://openrouter.ai.evil.test/v1"), None);
    assert_eq!(
        at("https://api.acme.test/v1").as_deref(),
        Some("env:ACME_API_KEY")
    );
    assert_eq!(
        at("https://api.deepseek.com/v1").as_deref(),
        Some("env:DEEPSEEK_API_KEY")
    );
    assert_eq!(
        at("https://openrouter.ai/api/v1").as_deref(),
        Some("env:OPENROUTER_API_KEY")
    );
    // An address left over from another provider is not used.
    let stale = keys()
        .env("ANTHROPIC_API_KEY", "sk-ant-api")
        .model("anthropic", "claude-sonnet-5");
    let stale =
        stale.config(|config| config.model.base_url = "https://openrouter.ai/api/v1".into());
    assert_eq!(stale.route().base_url, "https://api.anthropic.com");
}

#[test]
fn kimi_code_keys_work_at_their_own_endpoint() {
    let route = Rig::new().env("KIMI_API_KEY", "sk-kimi-abc").route();
    assert_eq!(route.base_url, "https://api.kimi.com/coding");
    assert_eq!(route.format, WireFormat::AnthropicMessages);
    let moved = Rig::new()
        .env("KIMI_API_KEY", "sk-kimi-abc")
        .env("KIMI_BASE_URL", "https://k.test/v1");
    assert_eq!(moved.route().base_url, "https://k.test/v1");
}

#[test]
fn settings_of_a_provider_adjust_it() {
    let rig = Rig::new()
        .env("OPENROUTER_API_KEY", "sk-or-key")
        .config(|config| {
            let entry = Endpoint {
                models: [(
                    "x/y".to_owned(),
                    EndpointModel {
                        context_length: Some(77_000),
                        supports_vision: Some(true),
                        pricing: serde_json::json!({"input": 1.5, "output": 3})
                            .as_object()
                            .cloned(),
                        ..EndpointModel::default()
                    },
                )]
                .into_iter()
                .collect(),
                ..Endpoint::default()
            };
            config.providers = [("openrouter".to_owned(), entry)].into_iter().collect();
        });
    let client = rig.pick("x/y", "").router().primary().unwrap();
    let info = client.info();
    assert_eq!(
        (info.context_length, info.context_source),
        (77_000, "config")
    );
    assert!(info.images && info.tools && !info.local);
    assert!((info.prices.unwrap().input - 1.5).abs() < 1e-9);
}

#[test]
fn what_is_known_of_a_model_comes_from_the_catalogue() {
    let client = Rig::new()
        .env("ANTHROPIC_API_KEY", "sk-ant-api")
        .router()
        .primary()
        .unwrap();
    let info = client.info();
    assert_eq!(
        (info.context_length, info.context_source),
        (1_000_000, "catalogue")
    );
    assert_eq!(info.max_output, Some(128_000));
    assert!(info.images && info.prices.is_some());
    let unknown = Rig::new()
        .env("GROQ_API_KEY", "gsk-key")
        .pick("nobody-knows", "")
        .router()
        .primary()
        .unwrap();
    assert_eq!(
        (unknown.info().context_length, unknown.info().context_source),
        (256_000, "default")
    );
    assert_eq!(unknown.info().prices, None);
}

#[test]
fn keys_rotate_and_come_back() {
    let rig = Rig::new()
        .env("GLM_API_KEY", "glm-one")
        .env("ZAI_API_KEY", "glm-two");
    let router = rig.router();
    let first = router.primary().unwrap().route().clone();
    assert_eq!(brief(&first).2, "env:GLM_API_KEY");
    let limited = failure(ErrorClass::RateLimit, 429);
    let second = router.rotate(&first, &limited).unwrap().route().clone();
    assert_eq!(brief(&second).2, "env:ZAI_API_KEY");
    assert!(router.rotate(&second, &limited).is_none());
    assert!(
        router
            .rotate(&second, &failure(ErrorClass::Server, 500))
            .is_none()
    );
    rig.clock.advance(Duration::from_secs(3601));
    assert_eq!(
        brief(router.primary().unwrap().route()).2,
        "env:GLM_API_KEY"
    );
    assert!(!rig.home.path().join("auth.json").exists());
}

#[test]
fn the_state_of_stored_keys_is_shared() {
    let pool = serde_json::json!({"version": 1, "credential_pool": {"openrouter": [
        {"id": "a", "label": "work", "priority": 0, "access_token": "sk-or-one", "mystery": 7},
        {"id": "b", "label": "spare", "priority": 1, "access_token": "sk-or-two"}]}});
    let rig = Rig::new().auth(&pool);
    let router = rig.router();
    let first = router.primary().unwrap().route().clone();
    let next = router
        .rotate(&first, &failure(ErrorClass::Billing, 402))
        .unwrap();
    assert_eq!(brief(next.route()).2, "pool:spare");
    // Another process sees it.
    assert_eq!(brief(&rig.route()).2, "pool:spare");
    let text = std::fs::read_to_string(rig.home.path().join("auth.json")).unwrap();
    let written: serde_json::Value = serde_json::from_str(&text).unwrap();
    let entry = &written["credential_pool"]["openrouter"][0];
    assert_eq!(entry["last_status"], "exhausted");
    assert_eq!(
        (&entry["last_error_code"], &entry["mystery"]),
        (&402.into(), &7.into())
    );
}

#[test]
fn the_chain_is_followed_in_order_and_the_primary_rests() {
    let rig = Rig::new()
        .env("OPENROUTER_API_KEY", "sk-or-key")
        .model("openrouter", "a/one")
        .fallback("openrouter", "a/one", "")
        .fallback("anthropic", "claude-sonnet-5", "")
        .fallback("deepseek", "deepseek-chat", "ds-key")
        .fallback("openrouter", "b/two", "");
    let router = rig.router();
    let first = router.primary().unwrap().route().clone();
    let limited = failure(ErrorClass::RateLimit, 429);
    // The same route and the one without a key are passed over.
    let second = router.fallback(&first, &limited).unwrap().route().clone();
    assert_eq!(brief(&second), ("deepseek", "deepseek-chat", "given"));
    let third = router
        .fallback(&second, &failure(ErrorClass::Server, 500))
        .unwrap()
        .route()
        .clone();
    assert_eq!(brief(&third).1, "b/two");
    assert!(
        router
            .fallback(&third, &failure(ErrorClass::Server, 500))
            .is_none()
    );
    // A new turn stays on the chain while the primary rests, then returns.
    assert_eq!(router.primary().unwrap().route().model, "deepseek-chat");
    rig.clock.advance(Duration::from_secs(61));
    assert_eq!(router.primary().unwrap().route().model, "a/one");
}

#[test]
fn other_failures_let_the_primary_return_at_once() {
    let rig = Rig::new()
        .env("OPENROUTER_API_KEY", "sk-or-key")
        .model("openrouter", "a/one")
        .fallback("openrouter", "b/two", "");
    let router = rig.router();
    let first = router.primary().unwrap().route().clone();
    let overloaded = failure(ErrorClass::Overloaded, 529);
    let second = router
        .fallback(&first, &overloaded)
        .unwrap()
        .route()
        .clone();
    assert_eq!(router.primary().unwrap().route().model, "a/one");
    // When the whole chain fails the primary rests for a moment.
    assert!(router.fallback(&second, &overloaded).is_none());
    assert_eq!(router.primary().unwrap().route().model, "b/two");
    rig.clock.advance(Duration::from_secs(6));
    assert_eq!(router.primary().unwrap().route().model, "a/one");
}

#[test]
fn helpers_use_their_settings_then_the_main_model() {
    let rig = Rig::new()
        .env("OPENROUTER_API_KEY", "sk-or-key")
        .env("GEMINI_API_KEY", "AIza-key")
        .model("zai", "glm-5.2")
        .env("GLM_API_KEY", "glm-key")
        .config(|config| {
            let task = |provider: &str, model: &str| AuxTask {
                provider: provider.into(),
                model: model.into(),
                ..AuxTask::default()
            };
            config.auxiliary.tasks = [
                ("title_generation".to_owned(), task("gemini", "")),
                ("compression".to_owned(), task("auto", "glm-4.5-flash")),
                ("broken".to_owned(), task("anthropic", "")),
            ]
            .into_iter()
            .collect();
        });
    let router = rig.router();
    let helper = |task: &str| {
        let route = router.auxiliary(task).unwrap().route().clone();
        (route.provider, route.model)
    };
    let pair = |a: &str, b: &str| (a.to_owned(), b.to_owned());
    assert_eq!(
        helper("title_generation"),
        pair("gemini", "gemini-3.5-flash")
    );
    assert_eq!(helper("compression"), pair("zai", "glm-4.5-flash"));
    assert_eq!(helper("approval"), pair("zai", "glm-5.2"));
    assert_eq!(helper("broken"), pair("zai", "glm-5.2"));
    // The main model is blind: somebody else looks at images.
    assert!(!router.primary().unwrap().info().images);
    assert!(router.auxiliary("vision").unwrap().info().images);
    // A provider that wants money is left alone for ten minutes.
    let main = router.primary().unwrap().route().clone();
    assert!(
        router
            .rotate(&main, &failure(ErrorClass::Billing, 402))
            .is_none()
    );
    assert_eq!(
        helper("approval"),
        pair("openrouter", "google/gemini-3-flash-preview")
    );
    rig.clock.advance(Duration::from_secs(601));
    assert_eq!(helper("approval"), pair("zai", "glm-5.2"));
    assert_eq!(
        Rig::new().router().auxiliary("approval").err(),
        Some(RouteError::NothingConfigured)
    );
}

#[test]
fn switching_needs_a_usable_route() {
    let rig = Rig::new().env("OPENROUTER_API_KEY", "sk-or-key");
    let router = rig.router();
    let before = router.primary().unwrap().route().clone();
    assert!(matches!(
        router.switch("claude-x", Some("anthropic")),
        Err(RouteError::MissingKey { .. })
    ));
    assert_eq!(*router.primary().unwrap().route(), before);
    let switched = router.switch("z-ai/glm-5.2", None).unwrap();
    assert_eq!(switched.route().model, "z-ai/glm-5.2");
    assert_eq!(router.primary().unwrap().route().model, "z-ai/glm-5.2");
}

#[test]
fn aliases_of_the_config_are_expanded() {
    let rig = Rig::new()
        .env("OPENROUTER_API_KEY", "sk-or-key")
        .env("GLM_API_KEY", "glm-key")
        .config(|config| {
            config.model.aliases = serde_json::json!({
                "fast": {"provider": "zai", "model": "glm-4.5-flash"},
                "glm-4.5": {"provider": "zai", "model": "glm-4.5"},
                "loop": "loop",
                "big": "anthropic/claude-opus-4.8",
                "huge": "big",
                "hen": "egg",
                "egg": "hen",
            })
            .as_object()
            .cloned();
        });
    let of = |model: &str| {
        let router = rig.router();
        let route = router.switch(model, None).unwrap().route().clone();
        (route.provider, route.model)
    };
    assert_eq!(of("fast"), ("zai".to_owned(), "glm-4.5-flash".to_owned()));
    assert_eq!(
        of("big"),
        (
            "openrouter".to_owned(),
            "anthropic/claude-opus-4.8".to_owned()
        )
    );
    assert_eq!(of("huge"), of("big"));
    assert_eq!(of("glm-4.5"), ("zai".to_owned(), "glm-4.5".to_owned()));
    assert_eq!(of("loop"), ("openrouter".to_owned(), "loop".to_owned()));
    let circle = rig.router().switch("hen", None).err().unwrap();
    assert!(circle.to_string().contains("model.aliases"), "{circle}");
}

#[test]
fn a_configured_name_may_carry_its_provider() {
    let keys = || {
        Rig::new()
            .env("OPENROUTER_API_KEY", "sk-or-key")
            .env("GROQ_API_KEY", "gsk-key")
    };
    let groq = keys().model("", "groq/llama-3.3-70b").route();
    assert_eq!(brief(&groq), ("groq", "llama-3.3-70b", "env:GROQ_API_KEY"));
    let reseller = keys().model("auto", "anthropic/claude-opus-4.8").route();
    assert_eq!(brief(&reseller).0, "openrouter");
    let env = keys().env("HERMES_INFERENCE_MODEL", "x/y").route();
    assert_eq!(brief(&env), ("openrouter", "x/y", "env:OPENROUTER_API_KEY"));
}

#[test]
fn the_key_of_the_model_section_stays_with_its_provider() {
    let rig = Rig::new()
        .env("GLM_API_KEY", "glm-key")
        .config(|config| config.model.api_key = Secret::new("section-key"))
        .fallback("deepseek", "deepseek-chat", "");
    assert_eq!(brief(&rig.route()), ("zai", "glm-5.2", "model_config"));
    let router = rig.router();
    let first = router.primary().unwrap().route().clone();
    assert!(
        router
            .fallback(&first, &failure(ErrorClass::Server, 500))
            .is_none()
    );
}

#[test]
fn steps_and_helpers_bring_their_own_fields() {
    let rig = Rig::new()
        .env("GLM_API_KEY", "glm-key")
        .fallback("zai", "glm-4.7", "")
        .config(|config| {
            let step = &mut config.fallback_providers[0];
            step.context_length = Some(12_345);
            let task = AuxTask {
                context_length: Some(9_999),
                ..AuxTask::default()
            };
            config.auxiliary.tasks = [("title_generation".to_owned(), task)]
                .into_iter()
                .collect();
        });
    let router = rig.router();
    let first = router.primary().unwrap();
    assert_eq!(first.info().context_length, 1_048_576);
    let step = router
        .fallback(first.route(), &failure(ErrorClass::Server, 500))
        .unwrap();
    assert_eq!(step.info().context_length, 12_345);
    let helper = router.auxiliary("title_generation").unwrap();
    assert_eq!(helper.info().context_length, 9_999);
}

#[test]
fn local_is_the_built_in_model_unless_an_address_goes_with_it() {
    let rig = Rig::new().model("local", "");
    let client = rig.router().primary().unwrap();
    assert_eq!(client.route().provider, "local");
    assert_eq!(client.route().model, "smollm2-135m");
    let info = client.info();
    assert!(info.local && info.small && !info.tools);
    assert_eq!(info.context_length, 8_192);
    // What the section of its own says counts, and what is named counts more.
    let set = |config: &mut Config| {
        config.local.get_or_insert_default().model = "qwen3-1.7b".into();
    };
    let rig = Rig::new().model("local", "").config(set);
    assert_eq!(rig.route().model, "qwen3-1.7b");
    assert!(!rig.router().primary().unwrap().info().small);
    let rig = rig.pick("smollm2-360m", "hermes-local");
    assert_eq!(rig.route().model, "smollm2-360m");
    let unknown = Rig::new().model("local", "gpt-5").error();
    assert!(unknown.to_string().contains("hermes model local list"));

    // As the original writes an own endpoint.
    let address = "http://10.0.0.5:8080/v1";
    let own = Rig::new().model("local", "m").config(|config| {
        config.model.base_url = address.into();
        config.model.context_length = Some(32_000);
    });
    assert_eq!(own.route().provider, "custom");
    assert_eq!(own.route().base_url, address);
    let named = Rig::new().own("local", address, |_| {}).model("local", "m");
    assert_eq!(named.route().base_url, address);
    // Who asks for the built-in one gets it all the same.
    assert_eq!(own.pick("", "hermes-local").route().provider, "local");
}

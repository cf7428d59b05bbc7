//! The router in front of real HTTP: what reaches the server, and what errors lead to.

use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt as _;
use hermes_config::Config;
use hermes_config::env::{Env, ProcessEnv};
use hermes_config::home::Home;
use hermes_config::schema::{AuxTask, Endpoint, Fallback, Secret};
use hermes_core::ids::SessionId;
use hermes_core::message::Message;
use hermes_core::model::{
    Collector, ErrorClass, ModelClient, ModelError, ModelRequest, ModelRouter, ToolChoice,
};
use hermes_models::providers::PROVIDERS;
use hermes_models::{Overrides, Router, RouterDeps};
use hermes_testkit::clock::{ManualClock, SeqRng};
use hermes_testkit::model_server::{Format, ModelServer, Reply};
use serde_json::json;
use tokio_util::sync::CancellationToken;

pub(crate) struct Rig {
    pub(crate) home: tempfile::TempDir,
    pub(crate) config: Config,
    pub(crate) vars: Vec<(String, String)>,
    pub(crate) overrides: Overrides,
    pub(crate) clock: Arc<ManualClock>,
}

impl Rig {
    pub(crate) fn new() -> Self {
        Self {
            home: tempfile::tempdir().unwrap(),
            config: Config::default(),
            vars: Vec::new(),
            overrides: Overrides::default(),
            clock: Arc::new(ManualClock::at(1_800_000_000)),
        }
    }

    /// The server as the own endpoint of the `model` section.
    pub(crate) fn custom(server: &ModelServer) -> Self {
        let mut rig = Self::new();
        rig.config.model.provider = "custom".into();
        rig.config.model.default = "scripted".into();
        rig.config.model.base_url = server.base_url();
        rig.config.model.api_key = Secret::new("test-key");
        rig
    }

    pub(crate) fn var(mut self, name: &str, value: &str) -> Self {
        self.vars.push((name.to_owned(), value.to_owned()));
        self
    }

    pub(crate) fn router(&self) -> Router {
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
}

pub(crate) async fn ask(client: &Arc<dyn ModelClient>) -> Result<String, ModelError> {
    let request = ModelRequest {
        session: SessionId::new("s1"),
        system: "be brief".into(),
        messages: vec![Arc::new(Message::user("hello"))],
        tools: Vec::new().into(),
        tool_choice: ToolChoice::Auto,
        max_tokens: None,
        temperature: None,
        reasoning: None,
    };
    let mut stream = client.stream(request, CancellationToken::new());
    let mut collector = Collector::default();
    while let Some(event) = stream.next().await {
        collector.push(&event?);
    }
    Ok(collector.finish().0.text)
}

#[tokio::test]
async fn every_provider_speaks_its_format_with_its_key() {
    for provider in PROVIDERS {
        let (Some(url_env), Some(key_env)) = (provider.url_env, provider.key_envs.first()) else {
            continue;
        };
        let server = ModelServer::start();
        server.push_default(Reply::text("pong"));
        let mut rig = Rig::new()
            .var(key_env, "sk-test-key")
            .var(url_env, &server.base_url());
        rig.config.model.context_length = Some(100_000);
        rig.config.model.provider = provider.id.into();
        rig.config.model.default = "some-model".into();
        let client = rig.router().primary().unwrap();
        assert_eq!(ask(&client).await.unwrap(), "pong", "{}", provider.id);
        let requests = server.model_requests();
        assert_eq!(requests.len(), 1, "{}", provider.id);
        let request = &requests[0];
        let format = match provider.format {
            hermes_core::model::WireFormat::AnthropicMessages => Format::Anthropic,
            // The address is another than the provider's own: where that speaks the responses
            // format, a compatible server does not.
            hermes_core::model::WireFormat::ChatCompletions
            | hermes_core::model::WireFormat::Responses => Format::Chat,
        };
        assert_eq!(request.format(), Some(format), "{}", provider.id);
        assert_eq!(request.api_key(), Some("sk-test-key"), "{}", provider.id);
        assert_eq!(request.model(), "some-model", "{}", provider.id);
        assert!(request.streams());
    }
}

#[tokio::test]
async fn a_compatible_server_is_spoken_to_in_chat_completions_unless_told_otherwise() {
    for (api_mode, format) in [("", Format::Chat), ("codex_responses", Format::Responses)] {
        let server = ModelServer::start();
        server.push_default(Reply::text("pong"));
        let mut rig = Rig::new()
            .var("OPENAI_API_KEY", "sk-test-key")
            .var("OPENAI_BASE_URL", &server.base_url());
        rig.config.model.context_length = Some(100_000);
        rig.config.model.provider = "openai-api".into();
        rig.config.model.default = "gpt-5.4".into();
        rig.config.model.api_mode = api_mode.into();
        let client = rig.router().primary().unwrap();
        assert_eq!(ask(&client).await.unwrap(), "pong", "{api_mode}");
        let request = server.last_request();
        assert_eq!(request.format(), Some(format), "{api_mode}");
        assert_eq!(
            request.body.get("max_completion_tokens"),
            None,
            "{api_mode}"
        );
    }
}

#[tokio::test]
async fn headers_and_body_fields_of_the_config_are_sent() {
    let server = ModelServer::start();
    server.push_default(Reply::text("pong"));
    let mut rig = Rig::new();
    rig.config.custom_providers = Some(vec![Endpoint {
        name: "lab".into(),
        base_url: server.base_url(),
        model: "scripted".into(),
        context_length: Some(50_000),
        extra_headers: [("X-Team".to_owned(), "blue".to_owned())]
            .into_iter()
            .collect(),
        extra_body: json!({"top_k": 20}).as_object().cloned().unwrap(),
        ..Endpoint::default()
    }]);
    let client = rig.router().primary().unwrap();
    assert_eq!(client.route().provider, "custom:lab");
    ask(&client).await.unwrap();
    let request = server.last_request();
    assert_eq!(request.header("x-team"), Some("blue"));
    assert_eq!(request.body["top_k"], 20);
    assert_eq!(request.api_key(), None);
}

#[tokio::test]
async fn a_refused_key_gives_way_to_the_next() {
    let server = ModelServer::start();
    server.rule(|request| {
        let good = request.api_key() == Some("glm-good");
        Some(if good {
            Reply::text("pong")
        } else {
            Reply::error(401, "invalid key")
        })
    });
    let mut rig = Rig::new()
        .var("GLM_API_KEY", "glm-bad")
        .var("ZAI_API_KEY", "glm-good")
        .var("GLM_BASE_URL", &server.base_url());
    rig.config.model.context_length = Some(100_000);
    let router = rig.router();
    let client = router.primary().unwrap();
    let error = ask(&client).await.unwrap_err();
    assert_eq!(error.class, ErrorClass::Auth);
    let next = router.rotate(client.route(), &error).unwrap();
    assert_eq!(ask(&next).await.unwrap(), "pong");
    // The next turn starts with the good key.
    assert_eq!(ask(&router.primary().unwrap()).await.unwrap(), "pong");
}

#[tokio::test]
async fn a_limited_primary_falls_back_and_recovers() {
    let (busy, spare) = (ModelServer::start(), ModelServer::start());
    busy.push(Reply::rate_limited(1))
        .push_default(Reply::text("from busy"));
    spare.push_default(Reply::text("from spare"));
    let mut rig = Rig::custom(&busy);
    rig.config.model.context_length = Some(50_000);
    rig.config.fallback_providers = vec![Fallback {
        provider: "custom".into(),
        model: "scripted".into(),
        base_url: spare.base_url(),
        api_key: Secret::new("spare-key"),
        ..Fallback::default()
    }];
    let router = rig.router();
    let client = router.primary().unwrap();
    let error = ask(&client).await.unwrap_err();
    assert_eq!(error.class, ErrorClass::RateLimit);
    let fallback = router.fallback(client.route(), &error).unwrap();
    assert_eq!(ask(&fallback).await.unwrap(), "from spare");
    assert_eq!(spare.last_request().api_key(), Some("spare-key"));
    assert_eq!(ask(&router.primary().unwrap()).await.unwrap(), "from spare");
    rig.clock.advance(Duration::from_secs(61));
    assert_eq!(ask(&router.primary().unwrap()).await.unwrap(), "from busy");
}

#[tokio::test]
async fn a_limit_that_an_error_states_is_kept() {
    let server = ModelServer::start();
    let words = "This model's maximum context length is 32768 tokens. However, your messages \
                 resulted in 40000 tokens.";
    server.push(Reply::error(400, words));
    let mut rig = Rig::custom(&server);
    rig.config.model.default = "gpt-4o".into();
    let router = rig.router();
    let client = router.primary().unwrap();
    assert_eq!(client.info().context_source, "catalogue");
    let error = ask(&client).await.unwrap_err();
    assert_eq!(
        (error.class, error.limit),
        (ErrorClass::ContextOverflow, Some(32_768))
    );
    let again = router.primary().unwrap();
    assert_eq!(
        (again.info().context_length, again.info().context_source),
        (32_768, "cache")
    );
    // Another process knows it, too.
    assert_eq!(
        rig.router().primary().unwrap().info().context_length,
        32_768
    );
}

#[tokio::test]
async fn a_helper_sends_its_own_fields() {
    let server = ModelServer::start();
    server.push_default(Reply::text("a title"));
    let mut rig = Rig::custom(&server);
    rig.config.model.context_length = Some(50_000);
    let task = AuxTask {
        model: "small".into(),
        extra_body: json!({"enable_thinking": false})
            .as_object()
            .cloned()
            .unwrap(),
        ..AuxTask::default()
    };
    rig.config.auxiliary.tasks = [("title_generation".to_owned(), task)]
        .into_iter()
        .collect();
    let client = rig.router().auxiliary("title_generation").unwrap();
    ask(&client).await.unwrap();
    let request = server.last_request();
    assert_eq!(request.model(), "small");
    assert_eq!(request.body["enable_thinking"], false);
}

//! The tools with everything around them, on loopback.

use std::path::PathBuf;
use std::sync::{Arc, Mutex};

use futures_util::StreamExt as _;
use hermes_config::schema::Web;
use hermes_config::{Config, Home};
use hermes_core::BoxFuture;
use hermes_core::approval::DenyAll;
use hermes_core::ask::DeclineAll;
use hermes_core::clock::SystemClock;
use hermes_core::event::{ProgressSink, Spent};
use hermes_core::ids::TurnId;
use hermes_core::message::FinishReason;
use hermes_core::model::{
    ModelClient, ModelError, ModelEvent, ModelInfo, ModelRequest, ModelRouter, ModelStream, Route,
    RouteError, WireFormat,
};
use hermes_core::tool::{Registry, Taint, ToolContext, ToolErrorKind, ToolOutcome};
use hermes_core::usage::Usage;
use hermes_fetch::service::{ServiceAccess, Services};
use hermes_fetch::{Blocklist, Fetcher, GuardPolicy, HttpBuilder, UrlGuard};
use serde_json::Value;
use tempfile::TempDir;
use tokio_util::sync::CancellationToken;

use super::super::{VisionSettings, WebDeps, WholeFiles, tools};

/// A model that says one thing, seeing or blind.
pub(super) struct Model {
    route: Route,
    info: ModelInfo,
    says: Vec<&'static str>,
    pub(super) asked: Mutex<Vec<ModelRequest>>,
}

impl Model {
    pub(super) fn new(name: &str, images: bool, says: &[&'static str]) -> Arc<Self> {
        Arc::new(Self {
            route: Route {
                provider: "test".into(),
                model: name.into(),
                base_url: "http://test".into(),
                format: WireFormat::AnthropicMessages,
                credential: None,
            },
            info: ModelInfo {
                context_length: 100_000,
                context_source: "config",
                max_output: None,
                images,
                tools: true,
                prices: None,
                local: true,
                small: false,
            },
            says: says.to_vec(),
            asked: Mutex::default(),
        })
    }
}

impl ModelClient for Model {
    fn route(&self) -> &Route {
        &self.route
    }

    fn info(&self) -> &ModelInfo {
        &self.info
    }

    fn stream(&self, request: ModelRequest, _: CancellationToken) -> ModelStream {
        let mut asked = self.asked.lock().unwrap();
        let text = self.says.get(asked.len()).or(self.says.last());
        let text = (*text.unwrap_or(&"")).to_owned();
        asked.push(request);
        let usage = Usage {
            input: 10,
            output: 5,
            ..Usage::default()
        };
        let events = [
            ModelEvent::Started,
            ModelEvent::Text(text),
            ModelEvent::Usage(usage),
            ModelEvent::Finished(FinishReason::Stop),
        ];
        futures_util::stream::iter(events.map(Ok)).boxed()
    }
}

/// The main model and the helper for images.
pub(super) struct Models {
    pub(super) main: Arc<Model>,
    pub(super) helper: Arc<Model>,
}

impl ModelRouter for Models {
    fn primary(&self) -> Result<Arc<dyn ModelClient>, RouteError> {
        Ok(Arc::clone(&self.main) as Arc<dyn ModelClient>)
    }

    fn rotate(&self, _: &Route, _: &ModelError) -> Option<Arc<dyn ModelClient>> {
        None
    }

    fn fallback(&self, _: &Route, _: &ModelError) -> Option<Arc<dyn ModelClient>> {
        None
    }

    fn auxiliary(&self, task: &str) -> Result<Arc<dyn ModelClient>, RouteError> {
        assert_eq!(task, "vision");
        Ok(Arc::clone(&self.helper) as Arc<dyn ModelClient>)
    }

    fn switch(&self, _: &str, _: Option<&str>) -> Result<Arc<dyn ModelClient>, RouteError> {
        Err(RouteError::NothingConfigured)
    }
}

struct Disk;

impl WholeFiles for Disk {
    fn read<'a>(
        &'a self,
        path: &'a str,
        _: usize,
        _: &'a ToolContext,
    ) -> BoxFuture<'a, Result<Vec<u8>, String>> {
        let read = match path {
            "/secret" => Err("/secret is not read: it holds credentials".to_owned()),
            path => std::fs::read(path).map_err(|error| error.to_string()),
        };
        Box::pin(std::future::ready(read))
    }
}

pub(super) struct WebHarness {
    pub(super) dir: TempDir,
    pub(super) deps: WebDeps,
    pub(super) models: Arc<Models>,
    pub(super) cancel: CancellationToken,
    pub(super) progress: Arc<Mutex<Vec<String>>>,
    pub(super) spent: Arc<Mutex<Vec<Spent>>>,
}

fn http() -> HttpBuilder {
    Arc::new(|| {
        drop(rustls::crypto::ring::default_provider().install_default());
        Ok(reqwest::Client::builder().no_proxy())
    })
}

impl WebHarness {
    /// Everything on loopback may be read.
    pub(super) fn new() -> Self {
        Self::with(
            GuardPolicy {
                allow_private: true,
                ..GuardPolicy::default()
            },
            ServiceAccess::default(),
        )
    }

    /// As people have it.
    pub(super) fn closed() -> Self {
        Self::with(GuardPolicy::default(), ServiceAccess::default())
    }

    pub(super) fn with(policy: GuardPolicy, access: ServiceAccess) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let models = Arc::new(Models {
            main: Model::new("main", true, &["unused"]),
            helper: Model::new("helper", true, &["A red square."]),
        });
        let configured = UrlGuard::new(policy.for_configured_endpoints());
        let mut list = Config::default().security.website_blocklist;
        list.enabled = true;
        list.domains = vec!["blocked.test".to_owned()];
        let list = Blocklist::fixed(&Home::at(dir.path()), list);
        let guard = UrlGuard::new(policy).with_blocklist(Arc::new(list));
        let services = Services::new(Fetcher::new(configured, http()), access);
        let deps = WebDeps {
            pages: Fetcher::new(guard.clone(), http()),
            services: services.guarded_by(guard),
            settings: Web::default(),
            cache: dir.path().join("cache/web"),
            files: Some(Arc::new(Disk)),
            router: Arc::clone(&models) as Arc<dyn ModelRouter>,
            vision: VisionSettings::from_config(&Config::default()),
        };
        Self {
            dir,
            deps,
            models,
            cancel: CancellationToken::new(),
            progress: Arc::default(),
            spent: Arc::default(),
        }
    }

    /// With other models.
    pub(super) fn models(mut self, main: Arc<Model>, helper: Arc<Model>) -> Self {
        self.models = Arc::new(Models { main, helper });
        self.deps.router = Arc::clone(&self.models) as Arc<dyn ModelRouter>;
        self
    }

    pub(super) fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    pub(super) async fn call(&self, name: &str, args: Value) -> ToolOutcome {
        let tools = tools(self.deps.clone());
        let tool = tools.iter().find(|tool| tool.spec().name == name).unwrap();
        let (progress, spent) = (Arc::clone(&self.progress), Arc::clone(&self.spent));
        let cx = ToolContext {
            session: "session".into(),
            turn: TurnId(1),
            call_id: "call".to_owned(),
            cwd: self.dir.path().to_owned(),
            cancel: self.cancel.clone(),
            clock: Arc::new(SystemClock),
            approver: Arc::new(DenyAll),
            asker: Arc::new(DeclineAll),
            progress: ProgressSink::new(move |text| progress.lock().unwrap().push(text))
                .counting(move |one| spent.lock().unwrap().push(one)),
            registry: Registry::default(),
            taint: Taint::default(),
        };
        let Value::Object(args) = args else {
            panic!("arguments are an object")
        };
        tool.call(args, &cx).await
    }

    /// The JSON of an outcome that is none of an error.
    pub(super) async fn done(&self, name: &str, args: Value) -> Value {
        match self.call(name, args).await {
            ToolOutcome::Done(content) => serde_json::from_str(&content.text()).unwrap(),
            ToolOutcome::Error { text, .. } => panic!("{text}"),
        }
    }

    pub(super) async fn refused(&self, name: &str, args: Value) -> (ToolErrorKind, String) {
        match self.call(name, args).await {
            ToolOutcome::Done(content) => panic!("{}", content.text()),
            ToolOutcome::Error { kind, text } => (kind, text),
        }
    }
}

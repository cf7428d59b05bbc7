//! The API server: OpenAI's chat completions and responses, runs, sessions, jobs.
//!
//! | module | what it does |
//! |---|---|
//! | `settings` | settings of the home |
//! | `guard` | access control: key, origins, sizes |
//! | `admit` | limit of concurrent turns |
//! | `input`, `names`, `turn_request`, `threads` | parsing of requests, and their sessions |
//! | `turn`, `repeat_filter`, `outcome` | one turn: started, followed, reported |
//! | `chat`, `responses`, `runs` | the endpoints that run turns |
//! | `sessions`, `jobs`, `about`, `health` | the other endpoints |
//! | `sse`, `reply`, `error`, `idempotency`, `recording` | responses |

mod about;
mod admit;
mod chat;
mod error;
mod fields;
mod guard;
mod health;
mod idempotency;
mod input;
mod jobs;
mod label;
mod names;
mod outcome;
mod recording;
mod repeat_filter;
mod reply;
mod responses;
mod runs;
mod sessions;
mod settings;
mod sse;
mod threads;
mod turn;
mod turn_call;
mod turn_request;

use std::sync::Arc;

use hermes_config::{Config, Home};
use hermes_core::clock::Clock;
use hermes_core::task;
use hermes_gateway::ConversationPool;
use hermes_store::Store;
use serde_json::Value;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use hermes_platforms::PlatformSettings;

pub use admit::ActiveTurns;
use idempotency::IdempotentAnswers;
pub use settings::{ApiSettings, ApiSettingsError, ModelRoute};
use threads::Threads;

/// The recorded source of sessions created here.
pub const SOURCE: &str = "api_server";

/// The API server of a home, not yet listening.
pub struct ApiServer {
    settings: ApiSettings,
    work: ActiveTurns,
}

/// The dependencies of the server.
#[derive(Clone)]
pub struct ApiDeps {
    pub pool: ConversationPool,
    pub store: Store,
    pub home: Home,
    pub config: Arc<Config>,
    pub clock: Arc<dyn Clock>,
    pub facts: Arc<dyn GatewayFacts>,
}

/// Information from the gateway.
pub trait GatewayFacts: Send + Sync + 'static {
    /// How the gateway is, with the fields of `gateway_state.json` (`gateway_state`, `platforms`,
    /// `active_agents`, `exit_reason`, `updated_at`).
    fn status(&self) -> Value;

    /// New turns are refused: the gateway waits for those that run.
    fn draining(&self) -> bool;

    /// Toolsets as the API's agent has them: `name`, `label`, `description`, `enabled`,
    /// `configured`, `tools`.
    fn toolsets(&self) -> Vec<Value>;

    /// The job table was changed: wakes the scheduler. Must not block.
    fn jobs_changed(&self) {}
}

impl ApiServer {
    /// `Ok(None)`: not enabled. `profile`: the profile of the home, if it is one.
    pub fn from_settings(
        settings: &PlatformSettings,
        config: &Config,
        profile: Option<&str>,
    ) -> Result<Option<Self>, ApiSettingsError> {
        let settings = ApiSettings::read(settings, config, profile)?;
        Ok(settings.map(|settings| Self {
            work: ActiveTurns::new(settings.max_runs),
            settings,
        }))
    }

    pub fn settings(&self) -> &ApiSettings {
        &self.settings
    }

    /// The running turns of clients, to wait for them.
    pub fn work(&self) -> ActiveTurns {
        self.work.clone()
    }

    pub async fn bind(&self) -> std::io::Result<TcpListener> {
        let at = (self.settings.host.as_str(), self.settings.port);
        TcpListener::bind(at).await
    }

    /// Serves until cancelled; running turns are then interrupted, and their clients informed.
    pub async fn serve(
        self,
        listener: TcpListener,
        deps: ApiDeps,
        cancel: CancellationToken,
    ) -> std::io::Result<()> {
        let state = Arc::new(ApiState {
            key: guard::ServerKey::new(&self.settings.key),
            settings: self.settings,
            work: self.work,
            threads: Threads::default(),
            idempotent: IdempotentAnswers::default(),
            recordings: recording::StreamRecordings::default(),
            run_id: names::fresh("", 16),
            stored: responses::LazyResponseStore::default(),
            runs: runs::ApiRuns::default(),
            creating: sessions::SessionsInCreation::default(),
            deps,
            cancel: cancel.clone(),
        });
        task::spawn("old runs of the api", runs::sweeping(Arc::clone(&state)));
        hermes_platforms::serve(listener, router(state), cancel).await
    }
}

/// The shared state of all handlers.
struct ApiState {
    settings: ApiSettings,
    key: guard::ServerKey,
    work: ActiveTurns,
    threads: Threads,
    idempotent: IdempotentAnswers<Arc<reply::StoredReply>>,
    recordings: recording::StreamRecordings,
    /// Identifies this run of the server in stored records.
    run_id: String,
    stored: responses::LazyResponseStore,
    runs: runs::ApiRuns,
    creating: sessions::SessionsInCreation,
    deps: ApiDeps,
    cancel: CancellationToken,
}

type SharedApiState = axum::extract::State<Arc<ApiState>>;

fn router(state: Arc<ApiState>) -> axum::Router {
    use axum::routing::{get, post};
    let open = axum::Router::new()
        .route("/health", get(health::plain))
        .route("/v1/health", get(health::plain));
    let closed = axum::Router::new()
        .route("/health/detailed", get(health::detailed))
        .route("/v1/models", get(about::models))
        .route("/v1/models/{id}", get(about::model))
        .route("/v1/capabilities", get(about::capabilities))
        .route("/v1/skills", get(about::skills))
        .route("/v1/toolsets", get(about::toolsets))
        .route("/v1/chat/completions", post(chat::create))
        .route("/v1/responses", post(responses::create))
        .route(
            "/v1/responses/{id}",
            get(responses::show).delete(responses::delete),
        )
        .route("/v1/runs", post(runs::create))
        .route("/v1/runs/{id}", get(runs::show))
        .route("/v1/runs/{id}/events", get(runs::events))
        .route("/v1/runs/{id}/approval", post(runs::approve))
        .route("/v1/runs/{id}/stop", post(runs::stop))
        .route("/api/sessions", get(sessions::list).post(sessions::create))
        .route(
            "/api/sessions/{id}",
            get(sessions::show)
                .patch(sessions::update)
                .delete(sessions::delete),
        )
        .route("/api/sessions/{id}/messages", get(sessions::messages))
        .route("/api/sessions/{id}/fork", post(sessions::fork))
        .route("/api/sessions/{id}/chat", post(sessions::chat))
        .route(
            "/api/sessions/{id}/chat/stream",
            post(sessions::chat_stream),
        )
        .route("/api/jobs", get(jobs::list).post(jobs::create))
        .route(
            "/api/jobs/{id}",
            get(jobs::show).patch(jobs::update).delete(jobs::delete),
        )
        .route("/api/jobs/{id}/pause", post(jobs::pause))
        .route("/api/jobs/{id}/resume", post(jobs::resume))
        .route("/api/jobs/{id}/run", post(jobs::run));
    guard::around(open, closed, state)
}

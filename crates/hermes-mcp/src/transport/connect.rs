//! Targets, connectors and their settings.
//!
//! [`McpConnector`] is the product's only [`Connector`]: it turns a [`ServerTarget`] into a live
//! link, detects the protocol era of the server, and remembers it.

mod handshake;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use hermes_core::BoxFuture;
use hermes_core::clock::{Rng, SystemRng};
use reqwest::header::HeaderMap;
use secrecy::SecretString;
use serde_json::{Value, json};
use url::Url;

use crate::actor::CatalogueSnapshot;
use crate::actor::call_origin::AskerResult;
use crate::failure::McpFailure;
use crate::failure::classify::SessionMarkers;
use crate::tools::remembered::SchemaFile;
use crate::transport::era::EraCache;
use crate::transport::http::SessionIds;
use crate::transport::link::{ConnectRequest, Connector, Link, TransportDetails, TransportKind};
use crate::transport::osv::MalwareCheck;
use crate::transport::stdio::{Children, StderrRing};

/// Provides access tokens.
pub trait TokenSource: Send + Sync {
    /// The token to send now, refreshed beforehand if it is about to expire.
    fn bearer(&self) -> BoxFuture<'_, Option<SecretString>>;
    /// The server refused `token` with this `WWW-Authenticate` challenge. Returns an error if no
    /// other token is available ([`FailureClass::NeedsAuth`](crate::failure::FailureClass)...).
    fn rejected(
        &self,
        token: Option<SecretString>,
        challenge: Option<String>,
    ) -> BoxFuture<'_, Result<TokenAnswer, McpFailure>>;
    /// The server accepted a token for a tool call, so earlier refusals were not permanent.
    fn accepted(&self) {}
    /// The remaining lifetime of the token, for the status.
    fn expires_in(&self) -> Option<Duration> {
        None
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TokenAnswer {
    /// [`TokenSource::bearer`] now returns another token; the request can be repeated.
    Fresh,
    /// The token is not the cause; the refusal is final.
    Unchanged,
}

/// Answers the requests of a server: `sampling/createMessage`, `elicitation/create`.
pub trait ServerRequests: Send + Sync {
    /// The entries for the client's capabilities, e.g. `{"elicitation": {"form": {}}}`.
    fn capabilities(&self) -> Value {
        json!({})
    }
    /// The JSON result, or the reason for declining. `asker` belongs to the call during which the
    /// server asks.
    fn answer<'a>(
        &'a self,
        method: &'a str,
        params: Value,
        asker: AskerResult,
    ) -> BoxFuture<'a, Result<Value, Declined>>;
    /// Number of requests by method and outcome, for the status.
    fn audit(&self) -> BTreeMap<String, u64> {
        BTreeMap::new()
    }
}

/// A declined server request, as the JSON-RPC error in reply.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[error("{message}")]
pub struct Declined {
    pub code: i32,
    pub message: String,
}

/// The protocol era to use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Protocol {
    #[default]
    Auto,
    Legacy,
    Modern,
}

/// The HTTP client of one server, replaceable while links use it.
///
/// The clients must not follow redirects (this crate does, within the origin), must give up
/// connecting after [`CONNECT_TIMEOUT`] and should drop idle sockets after 20 s.
pub struct HttpClients {
    current: RwLock<reqwest::Client>,
    build: Box<dyn Fn() -> reqwest::Client + Send + Sync>,
    /// Of all its links.
    pub(crate) sessions: Arc<SessionIds>,
}

/// Timeout for connecting a socket.
pub const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// The default of connectors that are built without a config.
const DEFAULT_KEEPALIVE_INTERVAL: Duration = Duration::from_mins(3);

/// Servers that answer on the listening stream do so at once.
const DEFAULT_LATE_ANSWER: Duration = Duration::from_secs(2);

impl HttpClients {
    pub fn new(build: impl Fn() -> reqwest::Client + Send + Sync + 'static) -> Self {
        Self {
            current: RwLock::new(build()),
            build: Box::new(build),
            sessions: Arc::default(),
        }
    }

    pub fn get(&self) -> reqwest::Client {
        self.current
            .read()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    /// Makes a new client without pooled sockets, which are no longer usable after a resume.
    pub fn renew(&self) {
        let client = (self.build)();
        *self.current.write().unwrap_or_else(PoisonError::into_inner) = client;
    }
}

impl std::fmt::Debug for HttpClients {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("HttpClients").finish_non_exhaustive()
    }
}

/// A server to connect to. All `${VAR}` are expanded.
#[derive(Clone)]
pub enum ServerTarget {
    /// Streamable HTTP.
    Http(HttpTarget),
    /// The HTTP+SSE transport of 2024-11-05 (`transport: sse`).
    Sse(HttpTarget),
    Stdio(StdioTarget),
}

#[derive(Clone)]
pub struct HttpTarget {
    pub url: Url,
    pub headers: HeaderMap,
    pub clients: Arc<HttpClients>,
    pub tokens: Option<Arc<dyn TokenSource>>,
}

#[derive(Clone)]
pub struct StdioTarget {
    pub command: String,
    pub args: Vec<String>,
    /// Set in the child in addition to the allow-listed variables.
    pub env: BTreeMap<String, String>,
    pub cwd: Option<PathBuf>,
    pub children: Arc<Children>,
}

/// Makes the links of one server.
pub struct McpConnector {
    /// Its name in the configuration, for logs and the child registry.
    pub server: String,
    pub target: ServerTarget,
    pub protocol: Protocol,
    /// Identifies the endpoint in the era cache; changes when the endpoint does.
    pub fingerprint: String,
    pub eras: Arc<dyn EraCache>,
    pub requests: Option<Arc<dyn ServerRequests>>,
    /// Error texts by which this server reports a lost session.
    pub markers: SessionMarkers,
    pub rng: Arc<dyn Rng>,
    /// The most recent stderr output of its children.
    pub stderr: Arc<StderrRing>,
    /// A listening stream that is silent for this long is reopened; `None`: derived from
    /// `keepalive_interval`.
    pub sse_idle_timeout: Option<Duration>,
    /// Interval of the keepalive requests; zero: none.
    pub keepalive_interval: Duration,
    /// How long the answer to a request that was only accepted may take on the listening stream.
    pub late_answer: Duration,
    /// Accept answers of a wrong content type.
    pub any_content_type: bool,
    /// The malware check, for packages that are fetched and run.
    pub malware: Option<Arc<MalwareCheck>>,
    /// The stored lists of a lazy server.
    pub schemas: Option<SchemaFile>,
    /// Name and version that we announce.
    pub client: (String, String),
}

impl McpConnector {
    pub fn new(server: impl Into<String>, target: ServerTarget, eras: Arc<dyn EraCache>) -> Self {
        let server = server.into();
        Self {
            fingerprint: target.fingerprint(),
            server,
            target,
            protocol: Protocol::Auto,
            eras,
            requests: None,
            markers: SessionMarkers::default(),
            rng: Arc::new(SystemRng),
            stderr: Arc::default(),
            sse_idle_timeout: None,
            keepalive_interval: DEFAULT_KEEPALIVE_INTERVAL,
            late_answer: DEFAULT_LATE_ANSWER,
            any_content_type: false,
            malware: None,
            schemas: None,
            client: ("hermes".to_owned(), env!("CARGO_PKG_VERSION").to_owned()),
        }
    }

    /// How long an open stream may be silent. With HTTP+SSE, the answer to a ping arrives on the
    /// stream itself, so silence ends the link only where this is configured.
    fn allowed_silence(&self) -> Option<Duration> {
        let by_default = Some(self.keepalive_interval)
            .filter(|interval| !interval.is_zero() && self.target.kind() == TransportKind::Http);
        self.sse_idle_timeout.or(by_default)
    }
}

impl ServerTarget {
    pub fn kind(&self) -> TransportKind {
        match self {
            Self::Http(_) => TransportKind::Http,
            Self::Sse(_) => TransportKind::Sse,
            Self::Stdio(_) => TransportKind::Stdio,
        }
    }

    fn clients(&self) -> Option<Arc<HttpClients>> {
        match self {
            Self::Http(target) | Self::Sse(target) => Some(Arc::clone(&target.clients)),
            Self::Stdio(_) => None,
        }
    }

    /// Identifies the endpoint, without secrets: the key of the era cache.
    pub fn fingerprint(&self) -> String {
        use sha2::{Digest, Sha256};
        use std::fmt::Write as _;
        let plain = match self {
            Self::Http(target) => format!("http {}", target.url),
            Self::Sse(target) => format!("sse {}", target.url),
            Self::Stdio(target) => format!("stdio {} {}", target.command, target.args.join("\0")),
        };
        let mut text = String::new();
        for byte in Sha256::digest(plain.as_bytes()).iter().take(16) {
            let _ = write!(text, "{byte:02x}");
        }
        text
    }
}

impl Connector for McpConnector {
    fn connect(&self, request: ConnectRequest) -> BoxFuture<'_, Result<Arc<dyn Link>, McpFailure>> {
        Box::pin(handshake::connect(self, request))
    }

    fn logs_in(&self) -> bool {
        match &self.target {
            ServerTarget::Http(target) | ServerTarget::Sse(target) => target.tokens.is_some(),
            ServerTarget::Stdio(_) => false,
        }
    }

    fn remembered(&self) -> Option<CatalogueSnapshot> {
        self.schemas.as_ref()?.load(&self.fingerprint)
    }

    fn remember(&self, snapshot: &CatalogueSnapshot) {
        if let Some(schemas) = &self.schemas {
            schemas.store(&self.fingerprint, snapshot);
        }
    }

    fn details(&self) -> TransportDetails {
        let stderr_tail = match &self.target {
            ServerTarget::Stdio(_) => Some(self.stderr.tail()).filter(|tail| !tail.is_empty()),
            ServerTarget::Http(_) | ServerTarget::Sse(_) => None,
        };
        let tokens = match &self.target {
            ServerTarget::Http(target) | ServerTarget::Sse(target) => target.tokens.as_ref(),
            ServerTarget::Stdio(_) => None,
        };
        TransportDetails {
            token_expires_in: tokens.and_then(|tokens| tokens.expires_in()),
            stderr_tail,
            requests: self
                .requests
                .as_ref()
                .map(|requests| requests.audit())
                .unwrap_or_default(),
        }
    }
}

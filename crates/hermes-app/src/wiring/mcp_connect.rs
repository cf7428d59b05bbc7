//! How MCP servers are reached: HTTP clients, children, tokens.

use std::sync::Arc;
use std::time::Duration;

use hermes_config::{Env, Home};
use hermes_core::clock::{Clock, SystemClock};
use hermes_core::{redact, task};
use hermes_http::{ClientIdentity, HttpSettings, Redirects};
use hermes_mcp::config::{Problem, ServerAuth, ServerConfig, ServerTransport, Verify};
use hermes_mcp::{
    AuthPrompt, CONNECT_TIMEOUT, Children, EraCache, FileEraCache, HttpClients, HttpTarget,
    MalwareCheck, McpConnector, OAuthClient, OAuthParts, OSV_ENDPOINT, Sampler, SchemaFile,
    ServerAccess, ServerRequestHandler, ServerTarget, SessionMarkers, StdioTarget, TokenSource,
    naming,
};
use reqwest::header::{HeaderMap, HeaderName, HeaderValue};
use tokio_util::sync::CancellationToken;
use url::Url;

/// Idle sockets are closed after this time: servers and proxies drop them silently. Node and
/// uvicorn do so after five seconds, and the outcome of a call in flight at that moment is unknown.
const IDLE_SOCKET_TIMEOUT: Duration = Duration::from_secs(4);

/// Builds the transports to servers.
pub struct ServerConnector {
    home: Home,
    http: HttpSettings,
    children: Arc<Children>,
    eras: Arc<dyn EraCache>,
    clock: Arc<dyn Clock>,
    prompt: Option<Arc<dyn AuthPrompt>>,
    sampler: Option<Arc<dyn Sampler>>,
    malware: Option<Arc<MalwareCheck>>,
}

impl ServerConnector {
    pub fn new(
        home: &Home,
        env: &Env,
        prompt: Option<Arc<dyn AuthPrompt>>,
        sampler: Option<Arc<dyn Sampler>>,
    ) -> Self {
        let http = HttpSettings {
            connect_timeout: CONNECT_TIMEOUT,
            redirects: Redirects::Never,
            idle_connections: Some(IDLE_SOCKET_TIMEOUT),
            ..HttpSettings::from_env(|name| env.get(name).map(str::to_owned))
        };
        let malware = malware_check(home, env, &http);
        let vars = env
            .iter()
            .map(|(name, value)| (name.to_owned(), value.to_owned()));
        Self {
            home: home.clone(),
            http,
            children: Children::new(home.root(), vars),
            eras: Arc::new(FileEraCache::new(home.cache_dir().join("mcp-eras.json"))),
            clock: Arc::new(SystemClock),
            prompt,
            sampler,
            malware,
        }
    }

    /// Ends child processes left behind by a crash.
    pub fn reap_orphans(&self) {
        let children = Arc::clone(&self.children);
        task::spawn("mcp-sweep", async move {
            children.reap_orphans().await;
        });
    }

    pub fn access(&self, config: &ServerConfig) -> Result<ServerAccess, Problem> {
        let mut oauth = None;
        let target = match &config.transport {
            ServerTransport::Stdio { command, args, env } => ServerTarget::Stdio(StdioTarget {
                command: command.clone(),
                args: args.clone(),
                env: env.clone(),
                cwd: None,
                children: Arc::clone(&self.children),
            }),
            ServerTransport::Http { url, headers } => {
                ServerTarget::Http(self.remote(config, url, headers, &mut oauth)?)
            }
            ServerTransport::Sse { url, headers } => {
                ServerTarget::Sse(self.remote(config, url, headers, &mut oauth)?)
            }
        };
        let mut connector = McpConnector::new(config.name.clone(), target, Arc::clone(&self.eras));
        connector.protocol = config.protocol;
        connector.markers = SessionMarkers::with_extra(&config.session_error_markers);
        connector.sse_idle_timeout = config.sse_idle_timeout;
        connector.keepalive_interval = config.keepalive.unwrap_or(Duration::ZERO);
        connector.any_content_type = config.skip_preflight;
        connector.malware.clone_from(&self.malware);
        if config.lazy {
            let file = format!("mcp-schemas/{}.json", naming::component(&config.name));
            connector.schemas = Some(SchemaFile::new(self.home.cache_dir().join(file)));
        }
        hide_secrets(config);
        connector.requests = Some(Arc::new(ServerRequestHandler::new(
            config,
            self.sampler.clone(),
        )));
        Ok(ServerAccess {
            connector: Arc::new(connector),
            oauth,
        })
    }

    fn remote(
        &self,
        config: &ServerConfig,
        url: &Url,
        headers: &[(String, String)],
        oauth: &mut Option<OAuthClient>,
    ) -> Result<HttpTarget, Problem> {
        let clients = Arc::new(self.clients(config)?);
        if config.auth == ServerAuth::OAuth {
            *oauth = Some(OAuthClient::new(OAuthParts {
                server: config.name.clone(),
                url: url.clone(),
                settings: config.oauth.clone(),
                home: self.home.root(),
                clients: Arc::clone(&clients),
                clock: Arc::clone(&self.clock),
                prompt: self.prompt.clone(),
                cancel: CancellationToken::new(),
            }));
        }
        let tokens = oauth.clone();
        Ok(HttpTarget {
            url: url.clone(),
            headers: header_map(config, headers)?,
            clients,
            tokens: tokens.map(|tokens| Arc::new(tokens) as Arc<dyn TokenSource>),
        })
    }

    fn clients(&self, config: &ServerConfig) -> Result<HttpClients, Problem> {
        let mut settings = self.http.clone();
        match &config.tls.verify {
            Verify::Yes => {}
            Verify::No => settings.accept_any_certificate = true,
            Verify::CaFile(path) => settings.ca_file = Some(path.clone()),
        }
        if let Some(own) = &config.tls.client {
            if own.passphrase.is_some() {
                let text = "keys with a passphrase cannot be read; store the key without one";
                return Err(problem(config, "client_cert", text));
            }
            settings.identity = Some(ClientIdentity {
                certificate: own.cert.clone(),
                key: own.key.clone(),
            });
        }
        let first = hermes_http::client(&settings)
            .map_err(|error| problem(config, "url", &error.to_string()))?;
        Ok(HttpClients::new(move || {
            // It was built once; if the files are gone since, the old one is kept.
            hermes_http::client(&settings).unwrap_or_else(|_| first.clone())
        }))
    }
}

/// `None`: disabled in the configuration.
fn malware_check(home: &Home, env: &Env, http: &HttpSettings) -> Option<Arc<MalwareCheck>> {
    let endpoint = match env.get("OSV_ENDPOINT").map(str::trim).unwrap_or_default() {
        "" => OSV_ENDPOINT,
        "off" => return None,
        other => other,
    };
    let settings = http.clone();
    Some(Arc::new(MalwareCheck::new(
        endpoint,
        Box::new(move || hermes_http::client(&settings).map_err(|error| error.to_string())),
        Arc::new(SystemClock),
        home.cache_dir().join("mcp-malware.json"),
    )))
}

/// Secrets of a server entry must not appear in errors and logs.
fn hide_secrets(config: &ServerConfig) {
    let values: Vec<(String, &str)> = match &config.transport {
        ServerTransport::Stdio { env, .. } => env
            .iter()
            .filter(|(name, _)| is_secret_name(name))
            .map(|(name, value)| (format!("{} of {}", name, config.name), value.as_str()))
            .collect(),
        ServerTransport::Http { headers, .. } | ServerTransport::Sse { headers, .. } => headers
            .iter()
            .filter(|(name, _)| is_secret_name(name))
            .map(|(name, value)| (format!("{} of {}", name, config.name), bare(value)))
            .collect(),
    };
    let client = config.oauth.client_secret.as_deref();
    let client = client.map(|secret| (format!("client secret of {}", config.name), secret));
    redact::remember(values.into_iter().chain(client));
}

fn is_secret_name(name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    [
        "key",
        "token",
        "secret",
        "password",
        "passwd",
        "auth",
        "cookie",
        "credential",
    ]
    .iter()
    .any(|word| name.contains(word))
}

/// The secret itself, without the scheme prefix.
fn bare(value: &str) -> &str {
    match value.split_once(' ') {
        Some((scheme, secret)) if scheme.chars().all(char::is_alphanumeric) => secret.trim(),
        _ => value,
    }
}

fn header_map(config: &ServerConfig, headers: &[(String, String)]) -> Result<HeaderMap, Problem> {
    let mut map = HeaderMap::new();
    for (name, value) in headers {
        let key = format!("headers.{name}");
        let header = HeaderName::try_from(name.as_str())
            .map_err(|_| problem(config, &key, "no name of a header"))?;
        let mut value = HeaderValue::try_from(value.as_str())
            .map_err(|_| problem(config, &key, "the value cannot be sent in a header"))?;
        value.set_sensitive(true);
        map.insert(header, value);
    }
    Ok(map)
}

fn problem(config: &ServerConfig, key: &str, text: &str) -> Problem {
    Problem {
        key: format!("mcp_servers.{}.{key}", config.name),
        text: text.to_owned(),
        fatal: true,
    }
}

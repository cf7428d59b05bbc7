//! `mcp_servers` of config.yaml as types.
//!
//! One bad server never stops the others: it stays in the list with what is wrong with it.

mod gate;
mod parse;
mod read;
mod settings;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use hermes_config::redact::secret_argument;
use hermes_config::{Env, Home};
use serde_json::{Map, Value};
use url::Url;

pub use crate::transport::connect::Protocol;
pub use gate::suspicions;

/// Keys that change what is shown or how calls are treated, but not the connection.
const SOFT_KEYS: &[&str] = &[
    "tools",
    "supports_parallel_tool_calls",
    "trust",
    "hide_when_parked",
];

/// One entry of `mcp_servers`.
#[derive(Clone, Debug)]
pub struct ServerEntry {
    pub name: String,
    /// `None`: it cannot be used; `problems` says why.
    pub config: Option<ServerConfig>,
    pub problems: Vec<Problem>,
}

/// Something wrong with one key.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Problem {
    /// Dotted path in config.yaml.
    pub key: String,
    pub text: String,
    /// Whether the server cannot be used because of it.
    pub fatal: bool,
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.key, self.text)
    }
}

/// A server as configured.
#[derive(Clone, Debug, PartialEq)]
pub struct ServerConfig {
    pub name: String,
    pub enabled: bool,
    pub transport: ServerTransport,
    /// Per call: how long without any sign of progress.
    pub timeout: Duration,
    /// Per call in all, whatever progress it reports.
    pub max_timeout: Duration,
    /// Handshake and first listing.
    pub connect_timeout: Duration,
    /// `None`: off.
    pub keepalive: Option<Duration>,
    /// A child that nobody asked anything for so long is stopped until the next call.
    pub idle_timeout: Option<Duration>,
    pub max_lifetime: Option<Duration>,
    pub parallel_calls: bool,
    /// `None`: by transport.
    pub max_concurrency: Option<usize>,
    pub skip_preflight: bool,
    pub tls: Tls,
    pub auth: ServerAuth,
    pub oauth: OAuth,
    pub tools: ToolFilter,
    pub sampling: Sampling,
    pub elicitation: Elicitation,
    pub protocol: Protocol,
    /// Whether the hints of the server's tools are believed.
    pub trusted: bool,
    pub retry: Retry,
    /// Raw tool name → its own rule.
    pub retry_tools: BTreeMap<String, Retry>,
    /// Further texts by which this server says that a session is gone.
    pub session_error_markers: Vec<String>,
    pub hide_when_parked: bool,
    pub sse_idle_timeout: Option<Duration>,
    /// Not started before the first call, where its tools are known from the last time.
    pub lazy: bool,
    /// Of everything that needs another connection when it changes.
    pub connection_fingerprint: String,
    /// Of the whole entry.
    pub fingerprint: String,
}

impl ServerConfig {
    /// `stdio`, `http` or `sse`.
    pub fn transport_name(&self) -> &'static str {
        match self.transport {
            ServerTransport::Stdio { .. } => "stdio",
            ServerTransport::Http { .. } => "http",
            ServerTransport::Sse { .. } => "sse",
        }
    }

    /// Calls at once, of all conversations together.
    pub fn concurrency(&self) -> usize {
        self.max_concurrency
            .unwrap_or(crate::actor::ServerSettings::CONCURRENCY)
    }
}

/// How the server is reached. Values may be secrets: not shown by `Debug`.
#[derive(Clone, PartialEq)]
pub enum ServerTransport {
    Stdio {
        command: String,
        args: Vec<String>,
        env: BTreeMap<String, String>,
    },
    Http {
        url: Url,
        headers: Vec<(String, String)>,
    },
    Sse {
        url: Url,
        headers: Vec<(String, String)>,
    },
}

impl fmt::Debug for ServerTransport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.target())
    }
}

impl ServerTransport {
    /// For people: the command line, or the URL without query and password.
    pub fn target(&self) -> String {
        match self {
            Self::Stdio { command, args, .. } => {
                let mut line = command.clone();
                for (at, arg) in args.iter().enumerate() {
                    let before = at.checked_sub(1).map(|before| args[before].as_str());
                    let secret = secret_argument(before, arg);
                    let shown = secret.map_or(arg.len(), |secret| arg.len() - secret.len());
                    line.push(' ');
                    line.push_str(&arg[..shown]);
                    line.push_str(if secret.is_some() { "…" } else { "" });
                }
                hermes_core::redact::secrets(&line).into_owned()
            }
            Self::Http { url, .. } | Self::Sse { url, .. } => shown_url(url),
        }
    }
}

fn shown_url(url: &Url) -> String {
    let mut url = url.clone();
    // Neither fails for http URLs.
    let _ = url.set_username("");
    let _ = url.set_password(None);
    let hidden = if url.query().is_some() { "?…" } else { "" };
    url.set_query(None);
    format!("{url}{hidden}")
}

#[derive(Clone, Debug, PartialEq)]
pub struct Tls {
    pub verify: Verify,
    pub client: Option<ClientCert>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verify {
    Yes,
    No,
    /// Against the certificates of this file.
    CaFile(PathBuf),
}

/// For mutual TLS.
#[derive(Clone, PartialEq, Eq)]
pub struct ClientCert {
    pub cert: PathBuf,
    /// `None`: the key is in `cert`.
    pub key: Option<PathBuf>,
    pub passphrase: Option<String>,
}

impl fmt::Debug for ClientCert {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ClientCert")
            .field("cert", &self.cert)
            .field("key", &self.key)
            .finish_non_exhaustive()
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ServerAuth {
    /// Whatever `headers` says.
    Plain,
    OAuth,
}

/// `oauth:` of a server.
#[derive(Clone, PartialEq)]
pub struct OAuth {
    pub client_id: Option<String>,
    pub client_secret: Option<String>,
    pub client_metadata_url: Option<String>,
    pub scope: Option<String>,
    /// 0: any free port.
    pub redirect_port: u16,
    pub redirect_uri: Option<String>,
    pub redirect_host: String,
    pub client_name: String,
    /// The authorization server supports PKCE although it does not say so.
    pub assume_pkce: bool,
    /// How long a person may take in the browser.
    pub timeout: Duration,
}

impl fmt::Debug for OAuth {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OAuth")
            .field("client_id", &self.client_id)
            .field("scope", &self.scope)
            .finish_non_exhaustive()
    }
}

/// `tools:` of a server. Names are the server's own; `*` and `?` match any text and character.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ToolFilter {
    /// Beats `exclude`.
    pub include: Vec<String>,
    pub exclude: Vec<String>,
    pub resources: bool,
    pub prompts: bool,
}

#[derive(Clone, Debug, PartialEq)]
pub struct Sampling {
    pub enabled: bool,
    pub model: Option<String>,
    pub max_tokens_cap: u32,
    pub timeout: Duration,
    pub max_rpm: u32,
    pub allowed_models: Vec<String>,
    pub max_tool_rounds: u32,
    pub log_level: String,
}

#[derive(Clone, Debug, PartialEq)]
pub struct Elicitation {
    pub enabled: bool,
    pub timeout: Duration,
}

/// Whether a call whose fate is unclear is repeated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Retry {
    /// Only what is safe by protocol, or by the hints of a trusted server.
    Safe,
    /// Tools with a read-only hint, trusted server or not.
    ReadOnly,
    Always,
    Never,
}

/// Reads `mcp_servers`, in the order of the file.
pub fn servers(section: &Map<String, Value>, env: &Env, home: &Home) -> Vec<ServerEntry> {
    section
        .iter()
        .map(|(name, entry)| parse::entry(name, entry, env, home))
        .collect()
}

/// Reads one entry.
pub fn server(name: &str, entry: &Value, env: &Env, home: &Home) -> ServerEntry {
    parse::entry(name, entry, env, home)
}

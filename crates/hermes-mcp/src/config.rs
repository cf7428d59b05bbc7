//! The typed form of `mcp_servers` in config.yaml.
//!
//! An invalid server does not affect the others: it is kept in the list with its problems.

mod parse;
mod read;
mod settings;
#[cfg(test)]
mod tests;
mod unsafe_command;

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use hermes_config::redact::secret_argument;
use hermes_config::{Env, Home};
use serde_json::{Map, Value};
use url::Url;

pub use crate::transport::connect::Protocol;

/// Keys that change what is shown or how calls are treated, but not the connection.
const NON_CONNECTION_KEYS: &[&str] = &[
    "tools",
    "supports_parallel_tool_calls",
    "trust",
    "hide_when_parked",
];

/// One entry of `mcp_servers`.
#[derive(Clone, Debug)]
pub struct ServerEntry {
    pub name: String,
    /// `None`: unusable; see `problems`.
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
    /// Timeout of a call without progress.
    pub timeout: Duration,
    /// Maximum duration of a call, regardless of progress.
    pub max_timeout: Duration,
    /// Timeout of the handshake and the first tool list.
    pub connect_timeout: Duration,
    /// `None`: off.
    pub keepalive: Option<Duration>,
    /// A child unused for this long is stopped until the next call.
    pub idle_timeout: Option<Duration>,
    pub max_lifetime: Option<Duration>,
    pub parallel_calls: bool,
    /// `None`: the default.
    pub max_concurrency: Option<usize>,
    pub skip_preflight: bool,
    pub tls: Tls,
    pub auth: ServerAuth,
    pub oauth: OAuth,
    pub tools: ToolFilter,
    pub sampling: Sampling,
    pub elicitation: Elicitation,
    pub protocol: Protocol,
    /// Whether the hints of the server's tools are trusted.
    pub trusted: bool,
    pub retry: Retry,
    /// Overrides by raw tool name.
    pub retry_tools: BTreeMap<String, Retry>,
    /// Additional texts that mean a lost session.
    pub session_error_markers: Vec<String>,
    pub hide_when_parked: bool,
    pub sse_idle_timeout: Option<Duration>,
    /// Do not start before the first call if the tools are cached.
    pub lazy: bool,
    /// Covers everything whose change requires a new connection.
    pub connection_fingerprint: String,
    /// Covers the whole entry.
    pub fingerprint: String,
}

impl ServerConfig {
    /// `stdio`, `http` or `sse`.
    pub fn transport_name(&self) -> &'static str {
        self.kind().name()
    }

    /// The maximum number of concurrent calls over all conversations.
    pub fn concurrency(&self) -> usize {
        self.max_concurrency
            .unwrap_or(crate::actor::ServerSettings::DEFAULT_CONCURRENCY)
    }
}

/// How the server is reached. Values may be secrets, so `Debug` hides them.
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
    /// For display: the command line, or the URL without query and password.
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
    /// Verify against the certificates in this file.
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
    /// As given in `headers`.
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
    /// Assume PKCE support although the metadata does not declare it.
    pub assume_pkce: bool,
    /// Time for the user to log in.
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

/// `tools:` of a server. Names are the server's own; `*` matches any text and `?` any character.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ToolFilter {
    /// Takes precedence over `exclude`.
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

/// Whether a call with an unknown outcome is repeated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Retry {
    /// Only if it is safe by protocol, or by the hints of a trusted server.
    Safe,
    /// Tools with a read-only hint, even of untrusted servers.
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

//! The one place that builds HTTP clients.
//!
//! Building is cheap: trusted roots are read at the first TLS handshake, so a model on plain http
//! never pays for them, and once for all clients of a [`ClientFactory`].

mod pinned;
mod roots;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use reqwest::redirect;
use rustls::crypto::CryptoProvider;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};

use roots::LazyRoots;

/// Variables that name a file of trusted roots, strongest first.
const CA_VARIABLES: &[&str] = &[
    "HERMES_CA_BUNDLE",
    "SSL_CERT_FILE",
    "REQUESTS_CA_BUNDLE",
    "CURL_CA_BUNDLE",
];

/// Never sent to a proxy, whatever the variables say: a model on this machine is not reachable
/// from there.
const LOOPBACK: &str = "localhost,127.0.0.0/8,::1";

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HttpSettings {
    pub connect_timeout: Duration,
    /// PEM file of trusted roots. A server that shows a certificate of this file as its own is
    /// trusted, whatever name stands in it.
    pub ca_file: Option<PathBuf>,
    pub ca_file_role: CaFileRole,
    /// `ssl_verify: false` of a provider: only for development on a trusted network.
    pub accept_any_certificate: bool,
    pub proxy: ProxySettings,
    pub redirects: Redirects,
    /// Shown to servers that ask for a certificate.
    pub identity: Option<ClientIdentity>,
    /// How long an unused connection is kept; `None`: as the HTTP stack sees fit.
    pub idle_connections: Option<Duration>,
}

/// What a CA file does to the system's roots.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CaFileRole {
    #[default]
    Replaces,
    Adds,
}

/// A certificate of ours, as PEM files.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClientIdentity {
    pub certificate: PathBuf,
    /// `None`: in the same file.
    pub key: Option<PathBuf>,
}

/// Proxies by scheme of the target, as `HTTP_PROXY` and kin give them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ProxySettings {
    pub http: Option<String>,
    pub https: Option<String>,
    pub all: Option<String>,
    pub no_proxy: Option<String>,
}

impl ProxySettings {
    /// The hosts of the proxies.
    pub fn hosts(&self) -> Vec<String> {
        [&self.http, &self.https, &self.all]
            .into_iter()
            .flatten()
            .filter_map(|text| {
                // `host:port` without a scheme is understood as http.
                let url = url::Url::parse(text).ok().filter(url::Url::has_host);
                let url = url.or_else(|| url::Url::parse(&format!("http://{text}")).ok())?;
                url.host_str().map(str::to_owned)
            })
            .collect()
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Redirects {
    /// Followed on the same host only, and never out of TLS: a key header must not travel to
    /// another, nor in the clear.
    SameHost,
    /// Handed to the caller.
    Never,
}

impl Default for HttpSettings {
    fn default() -> Self {
        Self {
            connect_timeout: Duration::from_secs(30),
            ca_file: None,
            ca_file_role: CaFileRole::default(),
            accept_any_certificate: false,
            proxy: ProxySettings::default(),
            redirects: Redirects::SameHost,
            identity: None,
            idle_connections: None,
        }
    }
}

impl HttpSettings {
    /// Settings as the environment gives them. `lookup` reads a variable (process environment or
    /// the home's `.env`). A variable that names a missing CA file is reported and passed over.
    pub fn from_env(lookup: impl Fn(&str) -> Option<String>) -> Self {
        let variable = |name: &str| {
            [name.to_ascii_lowercase(), name.to_owned()]
                .iter()
                .find_map(|name| lookup(name))
                .map(|value| value.trim().to_owned())
                .filter(|value| !value.is_empty())
        };
        let ca_file = CA_VARIABLES.iter().find_map(|name| {
            let path = PathBuf::from(variable(name)?);
            if path.is_file() {
                return Some(path);
            }
            tracing::warn!(variable = name, path = %path.display(), "the CA file does not exist; ignored");
            None
        });
        Self {
            ca_file,
            proxy: ProxySettings {
                http: variable("HTTP_PROXY"),
                https: variable("HTTPS_PROXY"),
                all: variable("ALL_PROXY"),
                no_proxy: variable("NO_PROXY"),
            },
            ..Self::default()
        }
    }
}

/// No client could be built from the settings.
#[derive(Debug, thiserror::Error)]
pub enum HttpError {
    #[error("the CA file {} does not exist; correct the path or remove the setting", path.display())]
    CaFileMissing { path: PathBuf },
    #[error(
        "{url:?} is not a usable proxy address (expected http://host:port, https://… or socks5://…): {source}"
    )]
    Proxy { url: String, source: reqwest::Error },
    #[error("the client certificate {} cannot be used: {why}", path.display())]
    Identity { path: PathBuf, why: String },
    #[error("TLS cannot be set up: {0}")]
    Tls(#[from] rustls::Error),
    #[error("the HTTP client cannot be built: {0}")]
    Build(#[source] reqwest::Error),
}

/// Connections to one host that wait for the next request. Each holds some 40 KB of buffers; more
/// are made while there is more to do at once.
const MAX_IDLE_CONNECTIONS: usize = 16;

/// What is offered to a server over TLS.
const ANY_VERSION: &[&[u8]] = &[b"h2", b"http/1.1"];
const FIRST_VERSION: &[&[u8]] = &[b"http/1.1"];

/// Builds a client. Share it: it holds the connection pool.
pub fn client(settings: &HttpSettings) -> Result<reqwest::Client, HttpError> {
    builder(settings)?.build().map_err(HttpError::Build)
}

/// The client before it is built, for who sets more (a resolver of its own, other redirects).
pub fn builder(settings: &HttpSettings) -> Result<reqwest::ClientBuilder, HttpError> {
    if let Some(path) = &settings.ca_file
        && !path.is_file()
    {
        return Err(HttpError::CaFileMissing { path: path.clone() });
    }
    ClientFactory::new(settings.clone()).builder(ANY_VERSION)
}

/// Makes clients with the same settings, which read the trusted roots once. For connections that
/// replace a broken one: nothing of the old client is used again. Cheap to clone.
#[derive(Clone, Debug)]
pub struct ClientFactory {
    settings: Arc<HttpSettings>,
    roots: Arc<LazyRoots>,
}

impl ClientFactory {
    pub fn new(settings: HttpSettings) -> Self {
        Self {
            roots: Arc::new(LazyRoots::new(crypto(), &settings)),
            settings: Arc::new(settings),
        }
    }

    /// A client with connections of its own.
    pub fn client(&self) -> Result<reqwest::Client, HttpError> {
        let builder = self.builder(ANY_VERSION)?;
        builder.build().map_err(HttpError::Build)
    }

    /// A client whose connections can be upgraded (WebSockets).
    pub fn upgradable(&self) -> Result<reqwest::Client, HttpError> {
        let builder = self.builder(FIRST_VERSION)?.http1_only();
        builder.build().map_err(HttpError::Build)
    }

    /// Reads the trusted roots now, for who wants to know at once that they are unusable.
    pub fn read_roots(&self) -> Result<(), HttpError> {
        Ok(self.roots.read()?)
    }

    fn builder(&self, protocols: &[&[u8]]) -> Result<reqwest::ClientBuilder, HttpError> {
        let settings = &*self.settings;
        let mut builder = reqwest::Client::builder()
            .user_agent(concat!("hermes/", env!("CARGO_PKG_VERSION")))
            .connect_timeout(settings.connect_timeout)
            .pool_max_idle_per_host(MAX_IDLE_CONNECTIONS)
            .tcp_nodelay(true)
            .tcp_keepalive(Duration::from_secs(30))
            .redirect(redirect_policy(settings.redirects))
            .tls_backend_preconfigured(self.tls(protocols)?)
            .no_proxy();
        if settings.idle_connections.is_some() {
            builder = builder.pool_idle_timeout(settings.idle_connections);
        }
        for proxy in proxies(&settings.proxy)? {
            builder = builder.proxy(proxy);
        }
        Ok(builder)
    }

    fn tls(&self, protocols: &[&[u8]]) -> Result<rustls::ClientConfig, HttpError> {
        let roots: Arc<LazyRoots> = Arc::clone(&self.roots);
        let config = rustls::ClientConfig::builder_with_provider(crypto())
            .with_safe_default_protocol_versions()?
            .dangerous()
            .with_custom_certificate_verifier(roots);
        let mut config = match &self.settings.identity {
            Some(identity) => {
                let (chain, key) = identity.read()?;
                config.with_client_auth_cert(chain, key)?
            }
            None => config.with_no_client_auth(),
        };
        config.alpn_protocols = protocols.iter().map(|name| name.to_vec()).collect();
        Ok(config)
    }
}

impl ClientIdentity {
    fn read(&self) -> Result<(Vec<CertificateDer<'static>>, PrivateKeyDer<'static>), HttpError> {
        let unusable = |path: &Path, why: String| HttpError::Identity {
            path: path.to_owned(),
            why,
        };
        let certificate = &self.certificate;
        let chain = CertificateDer::pem_file_iter(certificate)
            .and_then(Iterator::collect::<Result<Vec<_>, _>>)
            .map_err(|error| unusable(certificate, error.to_string()))?;
        if chain.is_empty() {
            return Err(unusable(certificate, "no certificate in it".to_owned()));
        }
        let path = self.key.as_ref().unwrap_or(certificate);
        let key = PrivateKeyDer::from_pem_file(path)
            .map_err(|error| unusable(path, format!("no plain private key in it ({error})")))?;
        Ok((chain, key))
    }
}

/// The process-wide crypto provider: ring, installed by whoever comes first.
fn crypto() -> Arc<CryptoProvider> {
    if CryptoProvider::get_default().is_none() {
        // Losing the race means that another thread installed the same one.
        drop(rustls::crypto::ring::default_provider().install_default());
    }
    CryptoProvider::get_default().map_or_else(
        || Arc::new(rustls::crypto::ring::default_provider()),
        Arc::clone,
    )
}

fn proxies(settings: &ProxySettings) -> Result<Vec<reqwest::Proxy>, HttpError> {
    type Make = fn(&str) -> reqwest::Result<reqwest::Proxy>;
    let exceptions = match &settings.no_proxy {
        Some(list) => format!("{list},{LOOPBACK}"),
        None => LOOPBACK.to_owned(),
    };
    let rules: [(&Option<String>, Make); 3] = [
        (&settings.http, |url| reqwest::Proxy::http(url)),
        (&settings.https, |url| reqwest::Proxy::https(url)),
        (&settings.all, |url| reqwest::Proxy::all(url)),
    ];
    rules
        .into_iter()
        .filter_map(|(url, make)| Some((url.as_deref()?, make)))
        .map(|(url, make)| match make(url) {
            Ok(proxy) => Ok(proxy.no_proxy(reqwest::NoProxy::from_string(&exceptions))),
            Err(source) => Err(HttpError::Proxy {
                url: hermes_core::redact::secrets(url).into_owned(),
                source,
            }),
        })
        .collect()
}

fn redirect_policy(redirects: Redirects) -> redirect::Policy {
    match redirects {
        Redirects::Never => redirect::Policy::none(),
        Redirects::SameHost => redirect::Policy::custom(|attempt| {
            let safe = attempt
                .previous()
                .first()
                .is_some_and(|first| keeps_the_key(first, attempt.url()));
            if safe && attempt.previous().len() < 5 {
                attempt.follow()
            } else {
                attempt.stop()
            }
        }),
    }
}

fn keeps_the_key(asked: &url::Url, next: &url::Url) -> bool {
    let in_the_clear = asked.scheme() == "https" && next.scheme() != "https";
    asked.host_str() == next.host_str() && !in_the_clear
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_redirect_keeps_the_key_where_it_was_meant_for() {
        let ok = |from: &str, to: &str| keeps_the_key(&from.parse().unwrap(), &to.parse().unwrap());
        assert!(ok("https://a.test/v1", "https://a.test/v2"));
        assert!(ok("http://a.test/v1", "https://a.test/v1"));
        assert!(!ok("https://a.test/v1", "https://b.test/v1"));
        assert!(!ok("https://a.test/v1", "http://a.test/v1"));
    }

    #[test]
    fn the_environment_gives_proxies_and_roots() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let path = file.path().to_string_lossy().into_owned();
        let settings = HttpSettings::from_env(|name| match name {
            "HERMES_CA_BUNDLE" => Some("/nonexistent/roots.pem".into()),
            "REQUESTS_CA_BUNDLE" => Some(path.clone()),
            "https_proxy" => Some("http://proxy.test:3128".into()),
            "HTTPS_PROXY" => Some("http://other.test:1".into()),
            "NO_PROXY" => Some("internal.test".into()),
            _ => None,
        });
        assert_eq!(settings.ca_file.as_deref(), Some(file.path()));
        assert_eq!(
            settings.proxy.https.as_deref(),
            Some("http://proxy.test:3128")
        );
        assert_eq!(settings.proxy.http, None);
        assert_eq!(settings.proxy.no_proxy.as_deref(), Some("internal.test"));
        assert_eq!(settings.proxy.hosts(), ["proxy.test"]);
        client(&settings).unwrap();
    }

    #[test]
    fn a_missing_ca_file_is_named() {
        let settings = HttpSettings {
            ca_file: Some("/nonexistent/roots.pem".into()),
            ..HttpSettings::default()
        };
        let error = client(&settings).unwrap_err().to_string();
        assert!(error.contains("/nonexistent/roots.pem"), "{error}");
    }

    #[test]
    fn an_unusable_client_certificate_is_named() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let settings = HttpSettings {
            identity: Some(ClientIdentity {
                certificate: file.path().to_owned(),
                key: None,
            }),
            ..HttpSettings::default()
        };
        let error = client(&settings).unwrap_err().to_string();
        assert!(error.contains("no certificate in it"), "{error}");
        assert!(error.contains(&*file.path().to_string_lossy()), "{error}");
    }

    #[test]
    fn a_bad_proxy_is_named() {
        let mut settings = HttpSettings::default();
        settings.proxy.all = Some("::::".into());
        let error = client(&settings).unwrap_err().to_string();
        assert!(error.contains("::::"), "{error}");
        for good in ["http://user:pw@proxy.test:3128", "socks5://127.0.0.1:1080"] {
            settings.proxy.all = Some(good.into());
            client(&settings).unwrap();
            ClientFactory::new(settings.clone()).upgradable().unwrap();
        }
    }
}

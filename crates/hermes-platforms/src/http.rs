//! HTTP clients for platforms: proxies and trusted roots as the home's environment says.
//!
//! A client is made anew for every connection that replaces a broken one, so that nothing of the
//! broken one is used again; the trusted roots are read once.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;
use rustls_platform_verifier::Verifier;

/// Connections to one host that wait for the next request. Each holds some 40 KB of buffers.
const IDLE_CONNECTIONS: usize = 16;

/// Never asked of a proxy.
const LOOPBACK: &str = "localhost,127.0.0.0/8,::1";

/// Variables that name a file of trusted roots, strongest first.
const CA_VARIABLES: [&str; 4] = [
    "HERMES_CA_BUNDLE",
    "SSL_CERT_FILE",
    "REQUESTS_CA_BUNDLE",
    "CURL_CA_BUNDLE",
];

/// No client could be made.
#[derive(Debug, thiserror::Error)]
pub enum HttpError {
    #[error("{url:?} is not a usable proxy (expected http://host:port, https://… or socks5://…)")]
    Proxy { url: String },
    #[error("TLS cannot be set up: {0}")]
    Tls(#[from] rustls::Error),
    #[error("the HTTP client cannot be built: {0}")]
    Build(#[from] reqwest::Error),
}

/// Makes clients. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Http {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    /// By scheme of the target: http, https, any.
    proxies: [Option<String>; 3],
    no_proxy: String,
    ca_file: Option<PathBuf>,
    verifier: OnceLock<Arc<Verifier>>,
}

impl Http {
    /// As the environment says; `proxy` is for all, and wins.
    pub fn new(env: &HashMap<String, String>, proxy: Option<&str>) -> Self {
        let variable = |name: &str| {
            let names = [name.to_ascii_lowercase(), name.to_owned()];
            let value = names.iter().find_map(|name| env.get(name));
            value
                .map(|value| value.trim().to_owned())
                .filter(|value| !value.is_empty())
        };
        let proxies = match proxy {
            Some(url) => [None, None, Some(url.to_owned())],
            None => ["HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"].map(variable),
        };
        let no_proxy = match variable("NO_PROXY") {
            Some(list) => format!("{list},{LOOPBACK}"),
            None => LOOPBACK.to_owned(),
        };
        let ca_file = CA_VARIABLES.iter().find_map(|name| {
            let path = PathBuf::from(variable(name)?);
            path.is_file().then_some(path)
        });
        Self {
            inner: Arc::new(Inner {
                proxies,
                no_proxy,
                ca_file,
                verifier: OnceLock::new(),
            }),
        }
    }

    /// A client with connections of its own. Every request needs a deadline of its own.
    pub fn client(&self) -> Result<reqwest::Client, HttpError> {
        Ok(self.builder(&[b"h2", b"http/1.1"])?.build()?)
    }

    /// A client whose connections can be upgraded (WebSockets).
    pub fn upgradable(&self) -> Result<reqwest::Client, HttpError> {
        Ok(self.builder(&[b"http/1.1"])?.http1_only().build()?)
    }

    fn builder(&self, protocols: &[&[u8]]) -> Result<reqwest::ClientBuilder, HttpError> {
        type Make = fn(&str) -> reqwest::Result<reqwest::Proxy>;
        let mut builder = reqwest::Client::builder()
            .user_agent(concat!("hermes/", env!("CARGO_PKG_VERSION")))
            .connect_timeout(Duration::from_secs(15))
            .pool_idle_timeout(Duration::from_mins(1))
            .pool_max_idle_per_host(IDLE_CONNECTIONS)
            .tcp_nodelay(true)
            .tcp_keepalive(Duration::from_secs(30))
            .redirect(reqwest::redirect::Policy::none())
            .tls_backend_preconfigured(self.tls(protocols)?)
            .no_proxy();
        let makers: [Make; 3] = [
            |url| reqwest::Proxy::http(url),
            |url| reqwest::Proxy::https(url),
            |url| reqwest::Proxy::all(url),
        ];
        for (url, make) in self.inner.proxies.iter().zip(makers) {
            let Some(url) = url else { continue };
            let proxy = make(url).map_err(|_| HttpError::Proxy {
                url: hermes_core::redact::secrets(url).into_owned(),
            })?;
            let exceptions = reqwest::NoProxy::from_string(&self.inner.no_proxy);
            builder = builder.proxy(proxy.no_proxy(exceptions));
        }
        Ok(builder)
    }

    fn tls(&self, protocols: &[&[u8]]) -> Result<rustls::ClientConfig, HttpError> {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let mut config = rustls::ClientConfig::builder_with_provider(Arc::clone(&provider))
            .with_safe_default_protocol_versions()?
            .dangerous()
            .with_custom_certificate_verifier(self.verifier(provider)?)
            .with_no_client_auth();
        config.alpn_protocols = protocols.iter().map(|name| name.to_vec()).collect();
        Ok(config)
    }

    fn verifier(
        &self,
        provider: Arc<rustls::crypto::CryptoProvider>,
    ) -> Result<Arc<Verifier>, HttpError> {
        if let Some(verifier) = self.inner.verifier.get() {
            return Ok(Arc::clone(verifier));
        }
        let verifier = Arc::new(match &self.inner.ca_file {
            None => Verifier::new(provider)?,
            Some(path) => {
                let read = CertificateDer::pem_file_iter(path)
                    .and_then(Iterator::collect::<Result<Vec<_>, _>>);
                let roots = read.map_err(|error| {
                    rustls::Error::General(format!("{}: {error}", path.display()))
                })?;
                Verifier::new_with_extra_roots(roots, provider)?
            }
        });
        Ok(Arc::clone(self.inner.verifier.get_or_init(|| verifier)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bad_proxy_is_named_without_its_password() {
        let env = HashMap::from([("https_proxy".to_owned(), "::::".to_owned())]);
        let error = Http::new(&env, None).client().unwrap_err().to_string();
        assert!(error.contains("::::"), "{error}");
        for good in ["http://user:pw@proxy.test:3128", "socks5://127.0.0.1:1080"] {
            Http::new(&env, Some(good)).client().unwrap();
        }
    }
}

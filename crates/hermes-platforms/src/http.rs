//! HTTP clients for platforms, with proxies and trusted roots from the home's environment.
//!
//! Every connection that replaces a broken one gets a new client, so that nothing of the broken
//! one is reused; the trusted roots are read once.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

pub use hermes_http::HttpError;
use hermes_http::{CaFileRole, ClientFactory, HttpSettings, ProxySettings, Redirects};

/// Creates clients. Cheap to clone.
#[derive(Clone, Debug)]
pub struct PlatformHttp {
    clients: ClientFactory,
}

impl PlatformHttp {
    /// From the environment; `proxy` applies to all and takes precedence.
    pub fn new(env: &HashMap<String, String>, proxy: Option<&str>) -> Self {
        let from_env = HttpSettings::from_env(|name| env.get(name).cloned());
        let proxy = match proxy {
            Some(url) => ProxySettings {
                all: Some(url.to_owned()),
                no_proxy: from_env.proxy.no_proxy,
                ..ProxySettings::default()
            },
            None => from_env.proxy,
        };
        let clients = ClientFactory::new(HttpSettings {
            connect_timeout: Duration::from_secs(15),
            ca_file: from_env.ca_file,
            ca_file_role: CaFileRole::Adds,
            proxy,
            redirects: Redirects::Never,
            idle_connections: Some(Duration::from_mins(1)),
            ..HttpSettings::default()
        });
        Self { clients }
    }

    /// A client with connections of its own. Every request needs a deadline of its own.
    pub fn client(&self) -> Result<reqwest::Client, HttpError> {
        self.clients.read_roots()?;
        self.clients.client()
    }

    /// A client whose connections can be upgraded (WebSockets).
    pub fn upgradable(&self) -> Result<reqwest::Client, HttpError> {
        self.clients.read_roots()?;
        self.clients.upgradable()
    }
}

/// The client of an adapter, replaced when one of its connections may be broken.
pub(crate) struct RenewableClient {
    http: PlatformHttp,
    client: Mutex<reqwest::Client>,
}

impl RenewableClient {
    pub(crate) fn new(http: PlatformHttp) -> Result<Self, HttpError> {
        let client = Mutex::new(http.client()?);
        Ok(Self { http, client })
    }

    pub(crate) fn http(&self) -> &PlatformHttp {
        &self.http
    }

    pub(crate) fn get(&self) -> reqwest::Client {
        let client = self.client.lock().unwrap_or_else(PoisonError::into_inner);
        client.clone()
    }

    /// Drops all connections: one of them may be dead without being detected.
    pub(crate) fn renew(&self, platform: &str) {
        match self.http.client() {
            Ok(client) => *self.client.lock().unwrap_or_else(PoisonError::into_inner) = client,
            Err(error) => tracing::warn!("{platform}: the old HTTP client stays in use: {error}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bad_proxy_is_named_without_its_password() {
        let env = HashMap::from([("https_proxy".to_owned(), "::::".to_owned())]);
        let error = PlatformHttp::new(&env, None)
            .client()
            .unwrap_err()
            .to_string();
        assert!(error.contains("::::"), "{error}");
        for good in ["http://user:pw@proxy.test:3128", "socks5://127.0.0.1:1080"] {
            PlatformHttp::new(&env, Some(good)).client().unwrap();
        }
    }
}

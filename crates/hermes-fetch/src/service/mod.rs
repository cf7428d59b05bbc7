//! Services that search the web and read pages.
//!
//! Each uses its vendor's documented interface; what they share is here: which one is used ([`WebBackend`],
//! [`Selection`]), with which key ([`ServiceAccess`]), and what it returns.

mod brave;
mod duckduckgo;
mod exa;
mod firecrawl;
mod parallel;
mod searxng;
mod select;
mod tavily;

use std::time::Duration;

use bytes::Bytes;
use hermes_config::Env;
use reqwest::Method;
use reqwest::header::{ACCEPT, CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue};
use secrecy::{ExposeSecret as _, SecretString};
use serde_json::Value;
use tokio_util::sync::CancellationToken;
use url::Url;

use crate::{FetchError, FetchResponse, Fetcher, ServiceCall, UrlGuard};
pub use select::{Selection, select_extract, select_search};

/// A search service or page reader.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum WebBackend {
    Tavily,
    Exa,
    Parallel,
    Firecrawl,
    Searxng,
    Brave,
    DuckDuckGo,
    /// The built-in page reader.
    Native,
}

impl WebBackend {
    /// In order of preference by credentials: paid services were set up deliberately and come first; the last
    /// two need nothing.
    pub const ALL: [Self; 8] = [
        Self::Tavily,
        Self::Exa,
        Self::Parallel,
        Self::Firecrawl,
        Self::Searxng,
        Self::Brave,
        Self::DuckDuckGo,
        Self::Native,
    ];

    /// As spelled in config.yaml.
    pub fn name(self) -> &'static str {
        match self {
            Self::Tavily => "tavily",
            Self::Exa => "exa",
            Self::Parallel => "parallel",
            Self::Firecrawl => "firecrawl",
            Self::Searxng => "searxng",
            Self::Brave => "brave-free",
            Self::DuckDuckGo => "ddgs",
            Self::Native => "native",
        }
    }

    pub fn from_name(name: &str) -> Option<Self> {
        match name.trim().to_ascii_lowercase().as_str() {
            "brave" | "brave_free" => Some(Self::Brave),
            "duckduckgo" | "ddg" => Some(Self::DuckDuckGo),
            name => Self::ALL.into_iter().find(|backend| backend.name() == name),
        }
    }

    /// Display name.
    pub fn title(self) -> &'static str {
        match self {
            Self::Tavily => "Tavily",
            Self::Exa => "Exa",
            Self::Parallel => "Parallel",
            Self::Firecrawl => "Firecrawl",
            Self::Searxng => "SearXNG",
            Self::Brave => "Brave Search",
            Self::DuckDuckGo => "DuckDuckGo",
            Self::Native => "the built-in reader",
        }
    }

    pub fn searches(self) -> bool {
        self != Self::Native
    }

    pub fn extracts(self) -> bool {
        matches!(
            self,
            Self::Tavily | Self::Exa | Self::Parallel | Self::Firecrawl | Self::Native
        )
    }

    /// The variable that it requires.
    pub fn variable(self) -> Option<&'static str> {
        Some(match self {
            Self::Tavily => "TAVILY_API_KEY",
            Self::Exa => "EXA_API_KEY",
            Self::Parallel => "PARALLEL_API_KEY",
            Self::Firecrawl => "FIRECRAWL_API_KEY",
            Self::Searxng => "SEARXNG_URL",
            Self::Brave => "BRAVE_SEARCH_API_KEY",
            Self::DuckDuckGo | Self::Native => return None,
        })
    }
}

/// Keys and addresses of the services. `None`: not set up.
#[derive(Clone, Default)]
pub struct ServiceAccess {
    pub tavily: Option<SecretString>,
    pub exa: Option<SecretString>,
    pub parallel: Option<SecretString>,
    pub firecrawl: Option<SecretString>,
    pub brave: Option<SecretString>,
    pub searxng_url: Option<String>,
    pub tavily_url: Option<String>,
    pub exa_url: Option<String>,
    pub parallel_url: Option<String>,
    pub firecrawl_url: Option<String>,
    pub brave_url: Option<String>,
    pub duckduckgo_url: Option<String>,
    /// `PARALLEL_SEARCH_MODE`.
    pub parallel_mode: Option<String>,
}

impl ServiceAccess {
    pub fn from_env(env: &Env) -> Self {
        let key = |name| env.credential(name).map(|(secret, _)| secret);
        let text = |name| {
            let value = env
                .get(name)
                .map(str::trim)
                .filter(|value| !value.is_empty());
            value.map(str::to_owned)
        };
        Self {
            tavily: key("TAVILY_API_KEY"),
            exa: key("EXA_API_KEY"),
            parallel: key("PARALLEL_API_KEY"),
            firecrawl: key("FIRECRAWL_API_KEY"),
            brave: key("BRAVE_SEARCH_API_KEY"),
            searxng_url: text("SEARXNG_URL"),
            tavily_url: text("TAVILY_BASE_URL"),
            exa_url: text("EXA_BASE_URL"),
            parallel_url: text("PARALLEL_BASE_URL"),
            firecrawl_url: text("FIRECRAWL_API_URL"),
            brave_url: None,
            duckduckgo_url: None,
            parallel_mode: text("PARALLEL_SEARCH_MODE"),
        }
    }

    /// Whether `backend` has what it needs.
    pub fn has(&self, backend: WebBackend) -> bool {
        match backend {
            WebBackend::Tavily => self.tavily.is_some(),
            WebBackend::Exa => self.exa.is_some(),
            WebBackend::Parallel => self.parallel.is_some(),
            // A self-hosted instance needs no key.
            WebBackend::Firecrawl => self.firecrawl.is_some() || self.firecrawl_url.is_some(),
            WebBackend::Searxng => self.searxng_url.is_some(),
            WebBackend::Brave => self.brave.is_some(),
            WebBackend::DuckDuckGo | WebBackend::Native => true,
        }
    }
}

/// One result of a search.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WebHit {
    pub title: String,
    pub url: String,
    pub description: String,
}

/// A page read by a service.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Extracted {
    pub url: String,
    pub title: String,
    /// The text, or why there is none.
    pub text: Result<String, String>,
}

impl Extracted {
    fn failed(url: String, why: String) -> Self {
        Self {
            url,
            title: String::new(),
            text: Err(why),
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ServiceError {
    #[error("{service} needs {variable}; the person can set it in the home's .env")]
    NotSetUp {
        service: &'static str,
        variable: &'static str,
    },
    #[error("the address of {service} is unusable ({why}): {url}")]
    BadAddress {
        service: &'static str,
        url: String,
        why: String,
    },
    #[error("{service} answered {status}{}", detail(message))]
    Status {
        service: &'static str,
        status: u16,
        message: String,
    },
    #[error("{service} could not be asked: {why}")]
    Failed {
        service: &'static str,
        why: FetchError,
    },
    #[error("the answer of {service} is not understood: {why}")]
    Unreadable { service: &'static str, why: String },
    #[error("{0}")]
    Refused(String),
}

fn detail(message: &str) -> String {
    if message.is_empty() {
        String::new()
    } else {
        format!(": {message}")
    }
}

/// Maximum size of a response.
const MAX_ANSWER: usize = 20 << 20;
const SEARCH_TIMEOUT: Duration = Duration::from_secs(30);
const EXTRACT_TIMEOUT: Duration = Duration::from_mins(1);

/// Calls the services. Cheap to clone.
#[derive(Clone)]
pub struct Services {
    fetcher: Fetcher,
    access: ServiceAccess,
    /// Checks the final address that a service reports.
    pages: Option<UrlGuard>,
}

impl Services {
    /// `fetcher` must allow what the user configured: a self-hosted search service is usually on a private
    /// address.
    pub fn new(fetcher: Fetcher, access: ServiceAccess) -> Self {
        Self {
            fetcher,
            access,
            pages: None,
        }
    }

    /// Pages that `guard` would refuse are not accepted from a service either.
    #[must_use]
    pub fn guarded_by(self, guard: UrlGuard) -> Self {
        Self {
            pages: Some(guard),
            ..self
        }
    }

    pub fn access(&self) -> &ServiceAccess {
        &self.access
    }

    pub async fn search(
        &self,
        backend: WebBackend,
        query: &str,
        limit: usize,
        cancel: &CancellationToken,
    ) -> Result<Vec<WebHit>, ServiceError> {
        let ask = ServiceRequest {
            services: self,
            backend,
            cancel,
        };
        let mut hits = match backend {
            WebBackend::Tavily => tavily::search(&ask, query, limit).await,
            WebBackend::Exa => exa::search(&ask, query, limit).await,
            WebBackend::Parallel => parallel::search(&ask, query, limit).await,
            WebBackend::Firecrawl => firecrawl::search(&ask, query, limit).await,
            WebBackend::Searxng => searxng::search(&ask, query, limit).await,
            WebBackend::Brave => brave::search(&ask, query, limit).await,
            WebBackend::DuckDuckGo => duckduckgo::search(&ask, query, limit).await,
            WebBackend::Native => Err(ServiceError::Refused(
                "the built-in reader does not search; set web.search_backend to a search service"
                    .to_owned(),
            )),
        }?;
        hits.retain(|hit| !hit.url.is_empty());
        hits.truncate(limit);
        Ok(hits)
    }

    /// Lets a service read `urls`: one entry for each, in order.
    pub async fn extract(
        &self,
        backend: WebBackend,
        urls: &[String],
        cancel: &CancellationToken,
    ) -> Vec<Extracted> {
        let ask = ServiceRequest {
            services: self,
            backend,
            cancel,
        };
        let found = match backend {
            WebBackend::Tavily => tavily::extract(&ask, urls).await,
            WebBackend::Exa => exa::extract(&ask, urls).await,
            WebBackend::Parallel => parallel::extract(&ask, urls).await,
            WebBackend::Firecrawl => Ok(firecrawl::extract(&ask, urls).await),
            other => Err(ServiceError::Refused(format!(
                "{} does not read pages",
                other.title()
            ))),
        };
        match found {
            Ok(found) => in_order(urls, found, backend),
            Err(error) => urls
                .iter()
                .map(|url| Extracted::failed(url.clone(), error.to_string()))
                .collect(),
        }
    }
}

/// One entry for each of `urls`: by address, or by position if a service spells it differently.
fn in_order(urls: &[String], found: Vec<Extracted>, backend: WebBackend) -> Vec<Extracted> {
    let mut found: Vec<Option<Extracted>> = found.into_iter().map(Some).collect();
    let mut out: Vec<Option<Extracted>> = vec![None; urls.len()];
    let same = |a: &str, b: &str| a.trim_end_matches('/') == b.trim_end_matches('/');
    for (slot, url) in out.iter_mut().zip(urls) {
        let by_address = |entry: &&mut Option<Extracted>| {
            entry.as_ref().is_some_and(|entry| same(&entry.url, url))
        };
        *slot = found.iter_mut().find(by_address).and_then(Option::take);
    }
    let mut rest = found.into_iter().flatten();
    out.into_iter()
        .zip(urls)
        .map(|(entry, url)| {
            entry.or_else(|| rest.next()).unwrap_or_else(|| {
                let why = format!("{} returned nothing for this page", backend.title());
                Extracted::failed(url.clone(), why)
            })
        })
        .collect()
}

/// A request to one service.
struct ServiceRequest<'a> {
    services: &'a Services,
    backend: WebBackend,
    cancel: &'a CancellationToken,
}

impl ServiceRequest<'_> {
    fn access(&self) -> &ServiceAccess {
        &self.services.access
    }

    /// The key, or the error that says which variable is missing.
    fn key<'k>(&self, key: Option<&'k SecretString>) -> Result<&'k SecretString, ServiceError> {
        key.ok_or(ServiceError::NotSetUp {
            service: self.backend.title(),
            variable: self.backend.variable().unwrap_or("a key"),
        })
    }

    /// `path` below the service's address.
    fn url(&self, configured: Option<&str>, usual: &str, path: &str) -> Result<Url, ServiceError> {
        let base = configured.unwrap_or(usual).trim_end_matches('/');
        let url = Url::parse(&format!("{base}{path}"));
        let bad = |why: String| ServiceError::BadAddress {
            service: self.backend.title(),
            url: hermes_core::redact::secrets(base).into_owned(),
            why,
        };
        let url = url.map_err(|error| bad(error.to_string()))?;
        if matches!(url.scheme(), "http" | "https") {
            Ok(url)
        } else {
            Err(bad("it must begin with http:// or https://".to_owned()))
        }
    }

    /// Posts `body` with the key of the service.
    async fn post(&self, path: &str, body: Value, time: Duration) -> Result<Value, ServiceError> {
        let access = self.access();
        let (key, address, usual) = match self.backend {
            WebBackend::Exa => (&access.exa, &access.exa_url, "https://api.exa.ai"),
            WebBackend::Parallel => (
                &access.parallel,
                &access.parallel_url,
                "https://api.parallel.ai",
            ),
            WebBackend::Firecrawl => (
                &access.firecrawl,
                &access.firecrawl_url,
                "https://api.firecrawl.dev",
            ),
            _ => (&access.tavily, &access.tavily_url, "https://api.tavily.com"),
        };
        let mut headers = HeaderMap::new();
        match (self.backend, key) {
            (WebBackend::Exa | WebBackend::Parallel, key) => {
                header(&mut headers, "x-api-key", self.key(key.as_ref())?)?;
            }
            // A self-hosted instance needs no key.
            (WebBackend::Firecrawl, None) if address.is_some() => {}
            (_, key) => bearer(&mut headers, self.key(key.as_ref())?)?,
        }
        let url = self.url(address.as_deref(), usual, path)?;
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        let body = Bytes::from(body.to_string());
        self.json(Method::POST, url, headers, Some(body), time)
            .await
    }

    async fn json(
        &self,
        method: Method,
        url: Url,
        mut headers: HeaderMap,
        body: Option<Bytes>,
        time: Duration,
    ) -> Result<Value, ServiceError> {
        headers.insert(ACCEPT, HeaderValue::from_static("application/json"));
        let answer = self.send(method, url, headers, body, time).await?;
        serde_json::from_slice(&answer.body).map_err(|error| ServiceError::Unreadable {
            service: self.backend.title(),
            why: if answer.truncated {
                "it is too large".to_owned()
            } else {
                error.to_string()
            },
        })
    }

    async fn send(
        &self,
        method: Method,
        url: Url,
        headers: HeaderMap,
        body: Option<Bytes>,
        timeout: Duration,
    ) -> Result<FetchResponse, ServiceError> {
        let service = self.backend.title();
        let call = ServiceCall {
            method,
            url,
            headers,
            body,
            max_bytes: MAX_ANSWER,
            timeout,
        };
        let answer = self.services.fetcher.call(call, self.cancel).await;
        let answer = answer.map_err(|why| ServiceError::Failed { service, why })?;
        if (200..300).contains(&answer.status) {
            return Ok(answer);
        }
        Err(ServiceError::Status {
            service,
            status: answer.status,
            message: complaint(&answer.body),
        })
    }
}

fn header(
    headers: &mut HeaderMap,
    name: &'static str,
    value: &SecretString,
) -> Result<(), ServiceError> {
    let mut value = HeaderValue::from_str(value.expose_secret()).map_err(|_| {
        ServiceError::Refused(format!(
            "the key for {name} holds characters that no key has"
        ))
    })?;
    value.set_sensitive(true);
    headers.insert(HeaderName::from_static(name), value);
    Ok(())
}

fn bearer(headers: &mut HeaderMap, key: &SecretString) -> Result<(), ServiceError> {
    let value = SecretString::from(format!("Bearer {}", key.expose_secret()));
    header(headers, "authorization", &value)
}

/// A service's error message, shortened and without secrets.
fn complaint(body: &[u8]) -> String {
    fn find(value: &Value) -> Option<String> {
        match value {
            Value::String(text) => Some(text.clone()),
            Value::Object(map) => ["error", "message", "detail", "errors"]
                .iter()
                .find_map(|name| find(map.get(*name)?)),
            Value::Array(items) => find(items.first()?),
            _ => None,
        }
    }
    let text = match serde_json::from_slice::<Value>(body) {
        Ok(value) => find(&value).unwrap_or_default(),
        Err(_) => String::new(),
    };
    let short: String = text.trim().chars().take(300).collect();
    hermes_core::redact::secrets(&short).into_owned()
}

/// A field as text; anything else is empty.
fn text(value: &Value, name: &str) -> String {
    value
        .get(name)
        .and_then(Value::as_str)
        .unwrap_or_default()
        .trim()
        .to_owned()
}

/// A field that lists texts, joined.
fn joined(value: &Value, name: &str, with: &str) -> String {
    let items = value
        .get(name)
        .and_then(Value::as_array)
        .into_iter()
        .flatten();
    let items: Vec<&str> = items.filter_map(Value::as_str).collect();
    items.join(with)
}

/// The results of a search; services differ in where the description is.
fn hits(found: &[Value], description: impl Fn(&Value) -> String) -> Vec<WebHit> {
    let hit = |hit| WebHit {
        title: text(hit, "title"),
        url: text(hit, "url"),
        description: description(hit),
    };
    found.iter().map(hit).collect()
}

/// Pages that were read; services differ in where the text is.
fn pages(found: &[Value], body: impl Fn(&Value) -> String) -> impl Iterator<Item = Extracted> {
    found.iter().map(move |page| Extracted {
        url: text(page, "url"),
        title: text(page, "title"),
        text: Ok(body(page)),
    })
}

/// The list at `pointer`; missing is empty.
fn list<'v>(value: &'v Value, pointer: &str) -> &'v [Value] {
    value
        .pointer(pointer)
        .and_then(Value::as_array)
        .map_or(&[], Vec::as_slice)
}

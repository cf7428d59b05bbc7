//! Services that search the web and read pages.
//!
//! Each speaks its vendor's documented interface; what they have in common is here: who is asked
//! ([`Backend`], [`Selection`]), with which key ([`Access`]), and what comes back.

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

use crate::{Call, FetchError, Fetched, Fetcher, Guard};
pub use select::{Selection, select_extract, select_search};

/// Who searches or reads pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Backend {
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

impl Backend {
    /// By credentials: those that cost money were set up on purpose and come first; the last two
    /// need nothing.
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

    /// As config.yaml spells it.
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

    /// For people.
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

    /// The variable without which it cannot work.
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
pub struct Access {
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

impl Access {
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
    pub fn has(&self, backend: Backend) -> bool {
        match backend {
            Backend::Tavily => self.tavily.is_some(),
            Backend::Exa => self.exa.is_some(),
            Backend::Parallel => self.parallel.is_some(),
            // One's own instance needs no key.
            Backend::Firecrawl => self.firecrawl.is_some() || self.firecrawl_url.is_some(),
            Backend::Searxng => self.searxng_url.is_some(),
            Backend::Brave => self.brave.is_some(),
            Backend::DuckDuckGo | Backend::Native => true,
        }
    }
}

/// One result of a search.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Hit {
    pub title: String,
    pub url: String,
    pub description: String,
}

/// A page that a service read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Extracted {
    pub url: String,
    pub title: String,
    /// The text, or why there is none.
    pub text: Result<String, String>,
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

/// What a service may send back.
const MAX_ANSWER: usize = 20 << 20;
const SEARCH_TIME: Duration = Duration::from_secs(30);
const EXTRACT_TIME: Duration = Duration::from_mins(1);

/// Asks the services. Cheap to clone.
#[derive(Clone)]
pub struct Services {
    fetcher: Fetcher,
    access: Access,
    /// Judges where a service says that it ended up.
    pages: Option<Guard>,
}

impl Services {
    /// `fetcher` must let through what the person configured: a search service of one's own is
    /// mostly on a private address.
    pub fn new(fetcher: Fetcher, access: Access) -> Self {
        Self {
            fetcher,
            access,
            pages: None,
        }
    }

    /// Pages that `guard` would not let us read are not taken from a service either.
    #[must_use]
    pub fn guarded_by(self, guard: Guard) -> Self {
        Self {
            pages: Some(guard),
            ..self
        }
    }

    pub fn access(&self) -> &Access {
        &self.access
    }

    pub async fn search(
        &self,
        backend: Backend,
        query: &str,
        limit: usize,
        cancel: &CancellationToken,
    ) -> Result<Vec<Hit>, ServiceError> {
        let ask = Ask {
            services: self,
            backend,
            cancel,
        };
        let mut hits = match backend {
            Backend::Tavily => tavily::search(&ask, query, limit).await,
            Backend::Exa => exa::search(&ask, query, limit).await,
            Backend::Parallel => parallel::search(&ask, query, limit).await,
            Backend::Firecrawl => firecrawl::search(&ask, query, limit).await,
            Backend::Searxng => searxng::search(&ask, query, limit).await,
            Backend::Brave => brave::search(&ask, query, limit).await,
            Backend::DuckDuckGo => duckduckgo::search(&ask, query, limit).await,
            Backend::Native => Err(ServiceError::Refused(
                "the built-in reader does not search; set web.search_backend to a search service"
                    .to_owned(),
            )),
        }?;
        hits.retain(|hit| !hit.url.is_empty());
        hits.truncate(limit);
        Ok(hits)
    }

    /// Has `urls` read by a service: one entry for each, in their order.
    pub async fn extract(
        &self,
        backend: Backend,
        urls: &[String],
        cancel: &CancellationToken,
    ) -> Vec<Extracted> {
        let ask = Ask {
            services: self,
            backend,
            cancel,
        };
        let found = match backend {
            Backend::Tavily => tavily::extract(&ask, urls).await,
            Backend::Exa => exa::extract(&ask, urls).await,
            Backend::Parallel => parallel::extract(&ask, urls).await,
            Backend::Firecrawl => Ok(firecrawl::extract(&ask, urls).await),
            other => Err(ServiceError::Refused(format!(
                "{} does not read pages",
                other.title()
            ))),
        };
        match found {
            Ok(found) => in_order(urls, found, backend),
            Err(error) => urls
                .iter()
                .map(|url| Extracted {
                    url: url.clone(),
                    title: String::new(),
                    text: Err(error.to_string()),
                })
                .collect(),
        }
    }
}

/// One entry for each of `urls`: by address, and where a service spells it differently, by place.
fn in_order(urls: &[String], found: Vec<Extracted>, backend: Backend) -> Vec<Extracted> {
    let mut found: Vec<Option<Extracted>> = found.into_iter().map(Some).collect();
    let mut out: Vec<Option<Extracted>> = vec![None; urls.len()];
    let same = |a: &str, b: &str| a.trim_end_matches('/') == b.trim_end_matches('/');
    for (place, url) in out.iter_mut().zip(urls) {
        let by_address = |entry: &&mut Option<Extracted>| {
            entry.as_ref().is_some_and(|entry| same(&entry.url, url))
        };
        *place = found.iter_mut().find(by_address).and_then(Option::take);
    }
    let mut rest = found.into_iter().flatten();
    out.into_iter()
        .zip(urls)
        .map(|(entry, url)| {
            entry.or_else(|| rest.next()).unwrap_or_else(|| Extracted {
                url: url.clone(),
                title: String::new(),
                text: Err(format!(
                    "{} returned nothing for this page",
                    backend.title()
                )),
            })
        })
        .collect()
}

/// A conversation with one service.
struct Ask<'a> {
    services: &'a Services,
    backend: Backend,
    cancel: &'a CancellationToken,
}

impl Ask<'_> {
    fn access(&self) -> &Access {
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

    async fn post(
        &self,
        url: Url,
        headers: HeaderMap,
        body: &Value,
        time: Duration,
    ) -> Result<Value, ServiceError> {
        let mut headers = headers;
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
    ) -> Result<Fetched, ServiceError> {
        let service = self.backend.title();
        let call = Call {
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

/// What a service says about its refusal, short and without secrets.
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

/// The list at `pointer`; missing is empty.
fn list<'v>(value: &'v Value, pointer: &str) -> &'v [Value] {
    value
        .pointer(pointer)
        .and_then(Value::as_array)
        .map_or(&[], Vec::as_slice)
}

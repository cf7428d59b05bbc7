//! The guarded HTTP client: the only way to fetch addresses chosen by a model.

use std::error::Error as _;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use bytes::Bytes;
use reqwest::header::{
    ACCEPT, ACCEPT_ENCODING, ACCEPT_LANGUAGE, CONTENT_ENCODING, CONTENT_TYPE, HeaderMap,
    HeaderValue, LOCATION,
};
use reqwest::{Method, StatusCode};
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use url::Url;

use crate::body::BodyCollector;
use crate::guard::{AddressReach, BlockedUrl, GuardedResolver, ResolveError, UrlGuard, reach};

/// Builds the program's own HTTP client except for resolver and redirects, which are set here. It contains TLS
/// and the proxies; how they are chosen does not concern this crate.
pub type HttpBuilder = Arc<dyn Fn() -> Result<reqwest::ClientBuilder, String> + Send + Sync>;

/// Maximum number of redirects.
const MAX_REDIRECTS: usize = 10;
/// A transfer without data for this long is aborted.
const IDLE_TIMEOUT: Duration = Duration::from_secs(20);
const LANGUAGES: &str = "en;q=0.9,*;q=0.5";
/// User agent, in the form that servers expect of a browser.
const USER_AGENT: &str = concat!(
    "Mozilla/5.0 (compatible; Hermes/",
    env!("CARGO_PKG_VERSION"),
    ")"
);

/// Fetches what a [`UrlGuard`] lets through. Cheap to clone.
#[derive(Clone)]
pub struct Fetcher {
    shared: Arc<FetcherShared>,
}

struct FetcherShared {
    guard: UrlGuard,
    build: HttpBuilder,
    client: OnceLock<Result<reqwest::Client, String>>,
    idle: Duration,
}

/// What to fetch, and the limits.
#[derive(Clone, Copy, Debug)]
pub struct FetchOptions {
    pub accept: &'static str,
    /// Maximum body size after decompression; the rest is not read.
    pub max_bytes: usize,
    /// For everything, including redirects and body.
    pub timeout: Duration,
}

/// A request to a service that the user configured.
pub struct ServiceCall {
    pub method: Method,
    pub url: Url,
    pub headers: HeaderMap,
    pub body: Option<Bytes>,
    pub max_bytes: usize,
    pub timeout: Duration,
}

/// A response.
#[derive(Clone, Debug)]
pub struct FetchResponse {
    /// The final address.
    pub url: Url,
    pub status: u16,
    pub content_type: Option<String>,
    pub body: Vec<u8>,
    /// The body continues beyond the limit, or was truncated.
    pub truncated: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FetchError {
    #[error("Blocked: {0}")]
    Blocked(#[from] BlockedUrl),
    #[error("Blocked: the page redirects to {to}: {why}")]
    RedirectBlocked { to: String, why: BlockedUrl },
    #[error("{host} cannot be found: {why}")]
    NoSuchHost { host: String, why: String },
    #[error(
        "Blocked: {host} is not known here, and behind a proxy its address cannot be checked; \
         the person can leave the decision to the proxy with security.allow_private_urls"
    )]
    UncheckedBehindProxy { host: String },
    #[error("{host} does not answer: {why}")]
    Unreachable { host: String, why: String },
    #[error("{host}: no complete answer within {seconds} s")]
    TimedOut { host: String, seconds: u64 },
    #[error("the page redirects in circles (more than {MAX_REDIRECTS} times)")]
    TooManyRedirects,
    #[error("the page redirects to {0:?}, which is not an address")]
    BadRedirect(String),
    #[error("the body is packed as {0:?}, which is not understood")]
    Encoding(String),
    #[error("the answer cannot be read: {0}")]
    Broken(String),
    #[error("no HTTP client: {0}")]
    NoClient(String),
    #[error("cancelled")]
    Cancelled,
}

impl FetchError {
    /// The rule that refused it, if one did.
    pub fn blocked(&self) -> Option<&BlockedUrl> {
        match self {
            Self::Blocked(blocked) | Self::RedirectBlocked { why: blocked, .. } => Some(blocked),
            _ => None,
        }
    }
}

impl Fetcher {
    pub fn new(guard: UrlGuard, build: HttpBuilder) -> Self {
        Self::with_idle(guard, build, IDLE_TIMEOUT)
    }

    /// A fetcher that waits `idle` for the next bytes of a body.
    pub fn with_idle(guard: UrlGuard, build: HttpBuilder, idle: Duration) -> Self {
        Self {
            shared: Arc::new(FetcherShared {
                guard,
                build,
                client: OnceLock::new(),
                idle,
            }),
        }
    }

    pub fn guard(&self) -> &UrlGuard {
        &self.shared.guard
    }

    /// Gets `url`, following redirects; every hop is checked. Any status is a response.
    pub async fn get(
        &self,
        url: &str,
        want: &FetchOptions,
        cancel: &CancellationToken,
    ) -> Result<FetchResponse, FetchError> {
        let url = self.shared.guard.check(url)?;
        let host = url.host_str().unwrap_or_default().to_owned();
        let work = async {
            let mut headers = HeaderMap::new();
            headers.insert(ACCEPT, HeaderValue::from_static(want.accept));
            headers.insert(ACCEPT_LANGUAGE, HeaderValue::from_static(LANGUAGES));
            let response = self.follow(url, &headers).await?;
            self.collect(response, want.max_bytes).await
        };
        bounded(work, want.timeout, &host, cancel).await
    }

    /// Calls a configured service. Redirects are not followed: the key in a header is for this host only.
    pub async fn call(
        &self,
        call: ServiceCall,
        cancel: &CancellationToken,
    ) -> Result<FetchResponse, FetchError> {
        self.shared
            .guard
            .check_redirect(&without_secrets(&call.url))?;
        let host = call.url.host_str().unwrap_or_default().to_owned();
        let limit = call.timeout;
        let work = async {
            let client = self.client()?;
            let mut request = client
                .request(call.method, call.url.clone())
                .headers(call.headers)
                .header(ACCEPT_ENCODING, "gzip, deflate");
            if let Some(body) = call.body {
                request = request.body(body);
            }
            let sent = request.send().await;
            let response = sent.map_err(|error| failed(&call.url, &error))?;
            self.collect(response, call.max_bytes).await
        };
        bounded(work, limit, &host, cancel).await
    }

    async fn follow(
        &self,
        mut url: Url,
        headers: &HeaderMap,
    ) -> Result<reqwest::Response, FetchError> {
        for _ in 0..=MAX_REDIRECTS {
            self.check_behind_proxy(&url).await?;
            let request = self
                .client()?
                .get(url.clone())
                .headers(headers.clone())
                .header(reqwest::header::USER_AGENT, USER_AGENT)
                .header(ACCEPT_ENCODING, "gzip, deflate");
            let sent = request.send().await;
            let response = sent.map_err(|error| failed(&url, &error))?;
            self.check_peer(&url, &response)?;
            let Some(next) = redirect(&url, &response)? else {
                return Ok(response);
            };
            self.shared
                .guard
                .check_redirect(&next)
                .map_err(|why| FetchError::RedirectBlocked {
                    to: shown(&next),
                    why,
                })?;
            url = next;
        }
        Err(FetchError::TooManyRedirects)
    }

    fn proxied(&self) -> bool {
        !self.shared.guard.policy().proxies.is_empty()
    }

    /// A proxy resolves names itself, invisible to us. What can be known in advance is checked.
    async fn check_behind_proxy(&self, url: &Url) -> Result<(), FetchError> {
        let Some(url::Host::Domain(host)) = url.host() else {
            return Ok(());
        };
        if !self.proxied() {
            return Ok(());
        }
        match self.shared.guard.resolve(host).await {
            Ok(_) => Ok(()),
            Err(ResolveError::Blocked(why)) => Err(why.into()),
            Err(ResolveError::Lookup(_)) if self.shared.guard.policy().allow_private => Ok(()),
            Err(ResolveError::Lookup(_)) => Err(FetchError::UncheckedBehindProxy {
                host: host.to_owned(),
            }),
        }
    }

    /// Checks the address that answered again: if anything between here and the socket resolves names itself,
    /// its response is discarded.
    fn check_peer(&self, url: &Url, response: &reqwest::Response) -> Result<(), FetchError> {
        let policy = self.shared.guard.policy();
        let Some(peer) = response.remote_addr().filter(|_| !self.proxied()) else {
            return Ok(());
        };
        let host = || url.host_str().unwrap_or_default().to_owned();
        match reach(peer.ip()) {
            AddressReach::Metadata => Err(BlockedUrl::Metadata { host: host() }.into()),
            AddressReach::Private(what)
                if !policy.allow_private
                    && !policy
                        .fake_ranges
                        .iter()
                        .any(|range| range.contains(peer.ip())) =>
            {
                let (host, address) = (host(), peer.ip());
                Err(BlockedUrl::Private {
                    host,
                    address,
                    what,
                }
                .into())
            }
            _ => Ok(()),
        }
    }

    async fn collect(
        &self,
        mut response: reqwest::Response,
        max_bytes: usize,
    ) -> Result<FetchResponse, FetchError> {
        let header = |name| {
            let value: Option<&HeaderValue> = response.headers().get(name);
            value.map(|value| String::from_utf8_lossy(value.as_bytes()).into_owned())
        };
        let content_type = header(CONTENT_TYPE);
        let encoding = header(CONTENT_ENCODING);
        let url = response.url().clone();
        let status = response.status().as_u16();
        let mut body =
            BodyCollector::new(encoding.as_deref(), max_bytes).map_err(FetchError::Encoding)?;
        loop {
            let next = timeout(self.shared.idle, response.chunk()).await;
            let piece = next.map_err(|_| FetchError::TimedOut {
                host: url.host_str().unwrap_or_default().to_owned(),
                seconds: self.shared.idle.as_secs(),
            })?;
            let Some(piece) = piece.map_err(|error| failed(&url, &error))? else {
                break;
            };
            let more = body.push(&piece).map_err(|error| {
                FetchError::Broken(format!("it is not packed as it says: {error}"))
            })?;
            if !more {
                break;
            }
        }
        let collected = body.finish();
        Ok(FetchResponse {
            url,
            status,
            content_type,
            body: collected.bytes,
            truncated: collected.truncated,
        })
    }

    fn client(&self) -> Result<&reqwest::Client, FetchError> {
        let built = self.shared.client.get_or_init(|| {
            let builder = (self.shared.build)()?
                .dns_resolver(Arc::new(GuardedResolver(self.shared.guard.clone())))
                .redirect(reqwest::redirect::Policy::none())
                .referer(false);
            builder.build().map_err(|error| error.to_string())
        });
        built
            .as_ref()
            .map_err(|error| FetchError::NoClient(error.clone()))
    }
}

fn failed(url: &Url, error: &reqwest::Error) -> FetchError {
    let host = url.host_str().unwrap_or_default().to_owned();
    let mut cause: Option<&(dyn std::error::Error + 'static)> = error.source();
    let mut why = None;
    while let Some(inner) = cause {
        match inner.downcast_ref::<ResolveError>() {
            Some(ResolveError::Blocked(blocked)) => return blocked.clone().into(),
            Some(ResolveError::Lookup(why)) => {
                let why = why.clone();
                return FetchError::NoSuchHost { host, why };
            }
            None => {}
        }
        // The innermost cause is the most informative; the outer ones repeat the address.
        why = Some(inner.to_string());
        cause = inner.source();
    }
    let why = why.unwrap_or_else(|| error.to_string());
    let why = hermes_core::redact::secrets(&why).into_owned();
    if error.is_connect() || error.is_timeout() {
        FetchError::Unreachable { host, why }
    } else {
        FetchError::Broken(why)
    }
}

async fn bounded<T>(
    work: impl Future<Output = Result<T, FetchError>>,
    limit: Duration,
    host: &str,
    cancel: &CancellationToken,
) -> Result<T, FetchError> {
    tokio::select! {
        biased;
        () = cancel.cancelled() => Err(FetchError::Cancelled),
        done = timeout(limit, work) => done.unwrap_or_else(|_| Err(FetchError::TimedOut {
            host: host.to_owned(),
            seconds: limit.as_secs(),
        })),
    }
}

fn redirect(from: &Url, response: &reqwest::Response) -> Result<Option<Url>, FetchError> {
    let moved = matches!(
        response.status(),
        StatusCode::MOVED_PERMANENTLY
            | StatusCode::FOUND
            | StatusCode::SEE_OTHER
            | StatusCode::TEMPORARY_REDIRECT
            | StatusCode::PERMANENT_REDIRECT
    );
    let Some(to) = response.headers().get(LOCATION).filter(|_| moved) else {
        return Ok(None);
    };
    let to = String::from_utf8_lossy(to.as_bytes());
    let next = from
        .join(to.trim())
        .map_err(|_| FetchError::BadRedirect(to.chars().take(200).collect()))?;
    Ok(Some(next))
}

/// The address without its query, which may contain private data.
fn shown(url: &Url) -> String {
    let mut url = url.clone();
    url.set_query(None);
    url.set_fragment(None);
    // Only addresses that cannot have them refuse.
    let _ = url.set_username("");
    let _ = url.set_password(None);
    url.to_string()
}

/// Only the target, not the content: a service gets its key legitimately.
fn without_secrets(url: &Url) -> Url {
    let mut url = url.clone();
    url.set_query(None);
    url.set_path("/");
    url
}

//! HTTP requests to authorization servers, limited in time and size, and restricted so that a
//! hostile MCP server cannot redirect them.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use chrono::{DateTime, Utc};
use futures_util::StreamExt as _;
use hermes_core::clock::Clock;
use hermes_http::{is_private_address, retry_after};
use reqwest::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE, HeaderMap, HeaderValue, LOCATION};
use reqwest::header::{RETRY_AFTER, WWW_AUTHENTICATE};
use serde_json::{Map, Value};
use url::{Host, Url};

use super::challenge::Challenge;
use super::error::OAuthError;
use crate::transport::connect::HttpClients;

/// For one request including its body.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(20);
const MAX_BODY_BYTES: usize = 1 << 20;
const MAX_REDIRECTS: usize = 3;
/// Longer `Retry-After` values are capped.
const MAX_RETRY_AFTER: Duration = Duration::from_mins(5);

#[derive(Debug)]
pub(crate) struct OAuthResponse {
    pub(crate) status: u16,
    pub(crate) body: Vec<u8>,
    pub(crate) retry_after: Option<Duration>,
    headers: HeaderMap,
}

impl OAuthResponse {
    pub(crate) fn is_success(&self) -> bool {
        (200..300).contains(&self.status)
    }

    /// Whether retrying later may help.
    pub(crate) fn is_transient(&self) -> bool {
        self.status >= 500 || self.status == 429 || self.status == 408
    }

    /// The body if it is a JSON object.
    pub(crate) fn object(&self) -> Option<Map<String, Value>> {
        serde_json::from_slice(&self.body).ok()
    }
}

pub(crate) struct OAuthHttp {
    clients: Arc<HttpClients>,
    clock: Arc<dyn Clock>,
    redirects: RedirectPolicy,
}

/// Which URLs a server may refer us to: none less secure than itself.
#[derive(Clone, Copy, Debug)]
struct RedirectPolicy {
    /// The server itself uses plain HTTP.
    allow_http: bool,
    /// The server itself is on this machine or in a private network.
    allow_private: bool,
}

impl RedirectPolicy {
    fn of(server: &Url) -> Self {
        Self {
            allow_http: server.scheme() == "http",
            allow_private: is_private(server),
        }
    }

    fn check(self, url: &str) -> Result<Url, OAuthError> {
        let parsed = Url::parse(url)
            .map_err(|error| OAuthError::refused(format!("{url:?} is not a URL: {error}")))?;
        let refuse = |why: &str| Err(OAuthError::refused(format!("{url} is refused: {why}")));
        match parsed.scheme() {
            "https" => {}
            "http" if self.allow_http => {}
            "http" => return refuse("a server over https may not lead to plain http"),
            _ => return refuse("only https is allowed"),
        }
        if !parsed.username().is_empty() || parsed.password().is_some() {
            return refuse("it contains a password");
        }
        if !self.allow_private && is_private(&parsed) {
            return refuse("a public server may not lead into a private network");
        }
        Ok(parsed)
    }
}

impl OAuthHttp {
    /// `server` is the MCP server: no URL it names is trusted more than it is.
    pub(crate) fn new(clients: Arc<HttpClients>, clock: Arc<dyn Clock>, server: &Url) -> Self {
        Self {
            clients,
            clock,
            redirects: RedirectPolicy::of(server),
        }
    }

    /// Parses a URL chosen by a server, or refuses it.
    pub(crate) fn check(&self, url: &str) -> Result<Url, OAuthError> {
        self.redirects.check(url)
    }

    /// A JSON document; `None` if there is none at this URL.
    pub(crate) async fn document(
        &self,
        url: &str,
    ) -> Result<Option<Map<String, Value>>, OAuthError> {
        let mut at = self.check(url)?;
        for _ in 0..=MAX_REDIRECTS {
            let request = self
                .clients
                .get()
                .get(at.clone())
                .header(ACCEPT, "application/json")
                .header("MCP-Protocol-Version", "2025-11-25");
            let answer = self.send(request, &at).await?;
            if answer.is_transient() {
                return Err(unavailable(&at, &answer));
            }
            if (300..400).contains(&answer.status) {
                let Some(next) = redirect(&at, &answer) else {
                    return Ok(None);
                };
                at = self.check(next.as_str())?;
                continue;
            }
            return Ok(answer.object().filter(|_| answer.is_success()));
        }
        tracing::debug!(url, "too many redirects");
        Ok(None)
    }

    pub(crate) async fn post_json(
        &self,
        url: &Url,
        body: &Map<String, Value>,
    ) -> Result<OAuthResponse, OAuthError> {
        let body = serde_json::to_vec(body)
            .map_err(|error| OAuthError::refused(format!("cannot encode the request: {error}")))?;
        let request = self
            .clients
            .get()
            .post(url.clone())
            .header(CONTENT_TYPE, "application/json")
            .header(ACCEPT, "application/json")
            .body(body);
        self.send(request, url).await
    }

    pub(crate) async fn post_form(
        &self,
        url: &Url,
        form: &[(&str, &str)],
        authorization: Option<HeaderValue>,
    ) -> Result<OAuthResponse, OAuthError> {
        let body = url::form_urlencoded::Serializer::new(String::new())
            .extend_pairs(form)
            .finish();
        let mut request = self
            .clients
            .get()
            .post(url.clone())
            .header(CONTENT_TYPE, "application/x-www-form-urlencoded")
            .header(ACCEPT, "application/json")
            .body(body);
        if let Some(authorization) = authorization {
            request = request.header(AUTHORIZATION, authorization);
        }
        self.send(request, url).await
    }

    /// Sends a ping only to get the `WWW-Authenticate` challenge.
    pub(crate) async fn challenge(&self, server: &Url) -> Option<Challenge> {
        let request = self
            .clients
            .get()
            .post(server.clone())
            .header(CONTENT_TYPE, "application/json")
            .header(ACCEPT, "application/json, text/event-stream")
            .body(r#"{"jsonrpc":"2.0","id":0,"method":"ping"}"#);
        // Only the headers are read: the body may be an endless stream.
        let response = match tokio::time::timeout(REQUEST_TIMEOUT, request.send()).await {
            Ok(Ok(response)) => response,
            Ok(Err(error)) => {
                tracing::debug!(%server, %error, "no challenge");
                return None;
            }
            Err(_) => return None,
        };
        if response.status() != 401 {
            return None;
        }
        challenge_of(response.headers())
    }

    async fn send(
        &self,
        request: reqwest::RequestBuilder,
        url: &Url,
    ) -> Result<OAuthResponse, OAuthError> {
        let work = async {
            let response = request
                .send()
                .await
                .map_err(|error| unreachable_server(url, &error))?;
            let status = response.status().as_u16();
            let headers = response.headers().clone();
            let mut body = Vec::new();
            let mut stream = response.bytes_stream();
            while let Some(chunk) = stream.next().await {
                let chunk = chunk.map_err(|error| unreachable_server(url, &error))?;
                if body.len() + chunk.len() > MAX_BODY_BYTES {
                    return Err(OAuthError::refused(format!(
                        "{} sends more than {MAX_BODY_BYTES} bytes",
                        display_url(url)
                    )));
                }
                body.extend_from_slice(&chunk);
            }
            Ok(OAuthResponse {
                status,
                body,
                retry_after: bounded_retry_after(&headers, self.clock.now()),
                headers,
            })
        };
        match tokio::time::timeout(REQUEST_TIMEOUT, work).await {
            Ok(done) => done,
            Err(_) => Err(OAuthError::transient(format!(
                "{} did not answer within {} s",
                display_url(url),
                REQUEST_TIMEOUT.as_secs()
            ))),
        }
    }
}

fn challenge_of(headers: &HeaderMap) -> Option<Challenge> {
    Challenge::of(
        headers
            .get_all(WWW_AUTHENTICATE)
            .iter()
            .filter_map(|value| value.to_str().ok()),
    )
}

fn redirect(from: &Url, answer: &OAuthResponse) -> Option<Url> {
    let target = answer.headers.get(LOCATION)?.to_str().ok()?;
    from.join(target).ok()
}

/// A URL for display, without the parts that may contain secrets.
pub(crate) fn display_url(url: &Url) -> String {
    format!("{}{}", url.origin().ascii_serialization(), url.path())
}

fn unreachable_server(url: &Url, error: &reqwest::Error) -> OAuthError {
    let mut text = format!("cannot reach {}", display_url(url));
    // The outer errors only repeat the URL.
    let mut cause: &dyn std::error::Error = error;
    while let Some(inner) = cause.source() {
        cause = inner;
    }
    text.push_str(": ");
    text.push_str(&cause.to_string());
    OAuthError::transient(text)
}

pub(crate) fn unavailable(url: &Url, answer: &OAuthResponse) -> OAuthError {
    let error = OAuthError::transient(format!(
        "{} answered HTTP {}",
        display_url(url),
        answer.status
    ));
    match answer.retry_after {
        Some(wait) => error.after(wait),
        None => error,
    }
}

fn bounded_retry_after(headers: &HeaderMap, now: DateTime<Utc>) -> Option<Duration> {
    let value = headers.get(RETRY_AFTER)?.to_str().ok()?;
    retry_after(value, now).map(|wait| wait.min(MAX_RETRY_AFTER))
}

/// Whether a URL names this machine or a private network. Names other than localhost count as
/// public: they are not resolved here, and the server chooses what they resolve to.
fn is_private(url: &Url) -> bool {
    match url.host() {
        Some(Host::Domain(name)) => {
            let name = name.trim_end_matches('.');
            name == "localhost" || name.ends_with(".localhost")
        }
        Some(Host::Ipv4(ip)) => is_private_address(IpAddr::V4(ip)),
        Some(Host::Ipv6(ip)) => {
            is_private_address(ip.to_ipv4_mapped().map_or(IpAddr::V6(ip), IpAddr::V4))
        }
        None => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn redirects(server: &str) -> RedirectPolicy {
        RedirectPolicy::of(&Url::parse(server).unwrap())
    }

    #[test]
    fn a_public_server_leads_only_to_public_https() {
        let redirects = redirects("https://mcp.example.com/mcp");
        assert!(redirects.check("https://as.example.com/x").is_ok());
        for url in [
            "http://as.example.com/",
            "file:///etc/passwd",
            "https://user:pw@as.example.com/",
            "https://127.0.0.1/",
            "https://169.254.169.254/latest",
            "https://10.1.2.3/",
            "https://100.100.1.1/",
            "https://[::1]/",
            "https://[::ffff:10.0.0.1]/",
            "https://[fd00::1]/",
            "https://localhost/",
            "as.example.com",
        ] {
            assert!(redirects.check(url).is_err(), "{url}");
        }
    }

    #[test]
    fn a_local_server_may_lead_anywhere() {
        let redirects = redirects("http://localhost:3000/mcp");
        for url in ["http://127.0.0.1:9/", "https://as.example.com/"] {
            assert!(redirects.check(url).is_ok(), "{url}");
        }
    }

    #[test]
    fn waiting_times_are_read_in_both_spellings_and_bounded() {
        let now = DateTime::from_timestamp(784_111_777, 0).unwrap();
        let read = |text: &'static str| {
            let headers = HeaderMap::from_iter([(RETRY_AFTER, HeaderValue::from_static(text))]);
            bounded_retry_after(&headers, now).map(|wait| wait.as_secs())
        };
        assert_eq!(read("7"), Some(7));
        assert_eq!(read("Sun, 06 Nov 1994 08:49:47 GMT"), Some(10));
        assert_eq!(read("Sun, 06 Nov 1994 08:49:07 GMT"), Some(0));
        assert_eq!(read("86400"), Some(300));
        assert_eq!(read("soon"), None);
    }
}

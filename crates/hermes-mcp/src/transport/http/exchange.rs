//! One HTTP request: headers, token, redirects, and the meaning of a refusal.

use std::borrow::Cow;
use std::sync::{Arc, Mutex, PoisonError};

use hermes_core::clock::{Clock, SystemClock};
use reqwest::Method;
use reqwest::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue};
use secrecy::{ExposeSecret, SecretString};
use url::Url;

use super::body::{describe_error, refusal_body};
use super::cookies::Cookies;
use super::held_session::HeldSession;
use super::{MessageKind, SESSION_ID, header};
use crate::failure::classify::{self, HttpFacts, RequestPhase, TransportBreak};
use crate::failure::{Certainty, FailureClass, McpFailure};
use crate::transport::connect::{HttpTarget, TokenAnswer};
use crate::transport::link::TransportKind;
use crate::transport::peer::ConnectionShared;

const MAX_REDIRECTS: usize = 5;

/// How often a refused token is renewed for one request that is repeated here.
const MAX_RENEWALS: usize = 2;

/// A refused request: its classification and the server's response.
pub(crate) struct Refused {
    pub(crate) failure: McpFailure,
    pub(crate) status: Option<u16>,
    pub(crate) body: Vec<u8>,
}

impl From<McpFailure> for Refused {
    fn from(failure: McpFailure) -> Self {
        Self {
            failure,
            status: None,
            body: Vec::new(),
        }
    }
}

/// One request.
pub(crate) struct Outgoing<'a> {
    pub(crate) method: Method,
    /// The address, if not the server's own.
    pub(crate) to: Option<&'a Url>,
    pub(crate) headers: HeaderMap,
    pub(crate) session: Option<&'a str>,
    pub(crate) body: Option<Vec<u8>>,
    pub(crate) kind: MessageKind,
}

impl Outgoing<'_> {
    pub(crate) fn new(method: Method, headers: HeaderMap, kind: MessageKind) -> Self {
        Self {
            method,
            to: None,
            headers,
            session: None,
            body: None,
            kind,
        }
    }

    fn is_tool_call(&self) -> bool {
        #[derive(serde::Deserialize)]
        struct MethodOnly<'a> {
            #[serde(borrow)]
            method: Cow<'a, str>,
        }
        let body = self.body.as_deref().unwrap_or_default();
        serde_json::from_slice::<MethodOnly<'_>>(body).is_ok_and(|sent| sent.method == "tools/call")
    }
}

pub(crate) struct Exchange {
    target: HttpTarget,
    pub(crate) shared: Arc<ConnectionShared>,
    cookies: Cookies,
    /// The id that the server gave this connection.
    session: Mutex<Option<HeldSession>>,
}

/// The outcome of one attempt.
enum Attempt {
    Answer(reqwest::Response),
    Refused(Refused, Option<String>),
}

impl Exchange {
    pub(crate) fn new(target: &HttpTarget, shared: &Arc<ConnectionShared>) -> Self {
        Self {
            target: target.clone(),
            shared: Arc::clone(shared),
            cookies: Cookies::default(),
            session: Mutex::default(),
        }
    }

    /// The server gave this connection a session.
    pub(crate) fn hold_session(&self, id: String) {
        let held = self.target.clients.sessions.hold(id);
        *self.session.lock().unwrap_or_else(PoisonError::into_inner) = Some(held);
    }

    /// This connection ends. Whether its session stays, because the server gave the same id to another one.
    pub(crate) fn is_session_of_another(&self, id: &str) -> bool {
        let ours = &self.session;
        drop(ours.lock().unwrap_or_else(PoisonError::into_inner).take());
        self.target.clients.sessions.is_held(id)
    }

    /// Sends a request and returns a successful response. A refused token is renewed; then an
    /// operation is reported as `AuthExpired`, and any other request is repeated here.
    pub(crate) async fn send(&self, request: Outgoing<'_>) -> Result<reqwest::Response, Refused> {
        let mut headers = request.headers;
        if let Some(value) = request
            .session
            .and_then(|id| HeaderValue::from_str(id).ok())
        {
            headers.insert(HeaderName::from_static(SESSION_ID), value);
        }
        let request = Outgoing { headers, ..request };
        let mut renewals = 0;
        loop {
            let token = self.token().await;
            let attempt = self.attempt(&request, token.as_ref()).await?;
            let (mut refused, challenge) = match attempt {
                Attempt::Answer(response) => {
                    if let (Some(tokens), Some(_)) = (&self.target.tokens, &token)
                        && request.is_tool_call()
                    {
                        tokens.accepted();
                    }
                    return Ok(response);
                }
                Attempt::Refused(refused, challenge) => (refused, challenge),
            };
            if !matches!(
                refused.failure.class,
                FailureClass::AuthExpired | FailureClass::NeedsAuth | FailureClass::ScopeNeeded
            ) {
                return Err(refused);
            }
            let Some(tokens) = &self.target.tokens else {
                self.refused_without_tokens(&mut refused.failure, request.kind);
                return Err(refused);
            };
            if renewals >= MAX_RENEWALS {
                return Err(refused);
            }
            match tokens.rejected(token, challenge).await {
                Ok(TokenAnswer::Unchanged) => return Err(refused),
                Ok(TokenAnswer::Fresh) if request.kind == MessageKind::Operation => {
                    refused.failure.class = FailureClass::AuthExpired;
                    return Err(refused);
                }
                Ok(TokenAnswer::Fresh) => renewals += 1,
                Err(failure) => {
                    let status = refused.failure.http_status;
                    refused.failure = failure;
                    refused.failure.http_status = refused.failure.http_status.or(status);
                    return Err(refused);
                }
            }
        }
    }

    /// Whether a login is possible.
    pub(crate) fn has_tokens(&self) -> bool {
        self.target.tokens.is_some()
    }

    /// A fixed header cannot be renewed, and there is no login. After a successful handshake the
    /// refusal is treated like any other: some servers respond this way for a session that they
    /// forgot.
    fn refused_without_tokens(&self, failure: &mut McpFailure, kind: MessageKind) {
        if kind == MessageKind::Initialized || self.phase(kind) == RequestPhase::Request {
            failure.class = FailureClass::Rpc;
            failure.certainty = Certainty::Rejected;
        } else if failure.class == FailureClass::AuthExpired {
            failure.class = FailureClass::NeedsAuth;
        }
    }

    fn phase(&self, kind: MessageKind) -> RequestPhase {
        match kind {
            MessageKind::Listen => RequestPhase::Listen,
            // The link may already be in use.
            MessageKind::Initialized => RequestPhase::Connect,
            _ => self.shared.situation(false).phase,
        }
    }

    async fn token(&self) -> Option<SecretString> {
        match &self.target.tokens {
            Some(tokens) => tokens.bearer().await,
            None => None,
        }
    }

    async fn attempt(
        &self,
        request: &Outgoing<'_>,
        token: Option<&SecretString>,
    ) -> Result<Attempt, Refused> {
        let all = self.headers(&request.headers, token, request.body.is_none());
        let token_sent = all.contains_key(AUTHORIZATION);
        let link_session = self.shared.kind() == TransportKind::Sse && self.shared.has_session();
        let session = link_session || all.contains_key(SESSION_ID);
        let mut url = request.to.unwrap_or(&self.target.url).clone();
        for _ in 0..MAX_REDIRECTS {
            let mut all = all.clone();
            self.cookies.add_to(&mut all, &url);
            let mut sending = self
                .target
                .clients
                .get()
                .request(request.method.clone(), url.clone())
                .headers(all);
            if let Some(body) = &request.body {
                sending = sending
                    .header(CONTENT_TYPE, "application/json")
                    .body(body.clone());
            }
            let response = sending
                .send()
                .await
                .map_err(|error| self.send_failure(&error))?;
            self.cookies.store(&url, response.headers());
            if response.status().is_success() {
                return Ok(Attempt::Answer(response));
            }
            if response.status().is_redirection() {
                url = self.redirect(&url, &response, request.kind)?;
                continue;
            }
            return Ok(self.refused(response, request, session, token_sent).await);
        }
        // Only 307 and 308 are followed, and these mean that nothing was executed.
        let text = format!("{} redirects without end", self.target.url);
        Err(self.not_followed(307, request.kind, &text))
    }

    async fn refused(
        &self,
        response: reqwest::Response,
        request: &Outgoing<'_>,
        session: bool,
        token_sent: bool,
    ) -> Attempt {
        let status = response.status().as_u16();
        let challenge = header(response.headers(), "www-authenticate");
        let retry_after = header(response.headers(), "retry-after");
        let body = refusal_body(response).await;
        let mut relevant_headers = Vec::new();
        relevant_headers.extend(challenge.as_deref().map(|text| ("www-authenticate", text)));
        relevant_headers.extend(retry_after.as_deref().map(|text| ("retry-after", text)));
        let mut link = self.shared.situation(session);
        link.phase = self.phase(request.kind);
        let facts = HttpFacts {
            link,
            token_sent,
            request: request.body.as_deref().unwrap_or_default(),
            now: SystemClock.now(),
        };
        let failure = classify::http(status, &relevant_headers, &body, &facts);
        let refused = Refused {
            failure,
            status: Some(status),
            body,
        };
        Attempt::Refused(refused, challenge)
    }

    fn headers(&self, own: &HeaderMap, token: Option<&SecretString>, listen: bool) -> HeaderMap {
        let mut all = self.target.headers.clone();
        for (name, value) in own {
            all.insert(name.clone(), value.clone());
        }
        let accept = if listen {
            "text/event-stream"
        } else {
            "application/json, text/event-stream"
        };
        all.insert(ACCEPT, HeaderValue::from_static(accept));
        if let Some(token) = token
            && let Ok(mut value) =
                HeaderValue::from_str(&format!("Bearer {}", token.expose_secret()))
        {
            value.set_sensitive(true);
            all.insert(AUTHORIZATION, value);
        }
        all
    }

    /// Follows redirects within the origin, keeping the method; our headers must not be sent
    /// elsewhere.
    fn redirect(
        &self,
        from: &Url,
        response: &reqwest::Response,
        kind: MessageKind,
    ) -> Result<Url, Refused> {
        let status = response.status().as_u16();
        let to = header(response.headers(), "location").and_then(|to| from.join(&to).ok());
        let Some(to) = to else {
            let text = format!("HTTP {status} without a usable Location header");
            return Err(self.not_followed(status, kind, &text));
        };
        if to.origin() == from.origin() && matches!(status, 307 | 308) {
            return Ok(to);
        }
        let mut shown = to;
        shown.set_query(None);
        let text = format!(
            "the server redirects to {shown} (HTTP {status}); if you trust that address, set it \
             as `url`"
        );
        Err(self.not_followed(status, kind, &text))
    }

    /// A redirect that is not followed. During the handshake the configuration is wrong. On a live
    /// link it may be a temporary login page before the server, or a component behind the server
    /// that redirects after the tool was executed.
    fn not_followed(&self, status: u16, kind: MessageKind, text: &str) -> Refused {
        let failure = if self.phase(kind) == RequestPhase::Request {
            let mut failure = self
                .shared
                .transport_failure(TransportBreak::AfterSend, text);
            failure.http_status = Some(status);
            failure
        } else {
            self.shared
                .transport_failure(TransportBreak::Permanent, text)
        };
        Refused {
            failure,
            status: Some(status),
            body: Vec::new(),
        }
    }

    fn send_failure(&self, error: &reqwest::Error) -> Refused {
        let what = if error.is_connect() || error.is_builder() {
            TransportBreak::BeforeSend
        } else {
            TransportBreak::AfterSend
        };
        self.shared
            .transport_failure(what, &describe_error(error))
            .into()
    }
}

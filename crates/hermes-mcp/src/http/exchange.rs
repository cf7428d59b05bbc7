//! One HTTP request: headers, token, redirects, and what a refusal means.

use std::sync::Arc;

use hermes_core::clock::{Clock, SystemClock};
use reqwest::Method;
use reqwest::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue};
use secrecy::{ExposeSecret, SecretString};
use url::Url;

use super::body::{chain, refusal_body};
use super::{Kind, SESSION_ID, header};
use crate::classify::{self, Break, HttpFacts, Phase};
use crate::connect::{HttpTarget, TokenAnswer};
use crate::failure::{FailureClass, McpFailure};
use crate::link::TransportKind;
use crate::peer::Shared;

const MAX_REDIRECTS: usize = 5;

/// A refused request: what it means, and what the server said.
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
    /// Where to, if not to the server's own address.
    pub(crate) to: Option<&'a Url>,
    pub(crate) headers: HeaderMap,
    pub(crate) session: Option<&'a str>,
    pub(crate) body: Option<Vec<u8>>,
    pub(crate) kind: Kind,
}

impl Outgoing<'_> {
    pub(crate) fn new(method: Method, headers: HeaderMap, kind: Kind) -> Self {
        Self {
            method,
            to: None,
            headers,
            session: None,
            body: None,
            kind,
        }
    }
}

pub(crate) struct Exchange {
    target: HttpTarget,
    pub(crate) shared: Arc<Shared>,
}

/// What one attempt ended with.
enum Attempt {
    Answer(reqwest::Response),
    Refused(Refused, Option<String>),
}

impl Exchange {
    pub(crate) fn new(target: &HttpTarget, shared: &Arc<Shared>) -> Self {
        Self {
            target: target.clone(),
            shared: Arc::clone(shared),
        }
    }

    /// Sends and gives back a successful response. A refused token is renewed; then what is not
    /// an operation goes once more from here, and an operation is reported as `AuthExpired`.
    pub(crate) async fn send(&self, request: Outgoing<'_>) -> Result<reqwest::Response, Refused> {
        let mut headers = request.headers;
        if let Some(value) = request
            .session
            .and_then(|id| HeaderValue::from_str(id).ok())
        {
            headers.insert(HeaderName::from_static(SESSION_ID), value);
        }
        let request = Outgoing { headers, ..request };
        let mut renewed = false;
        loop {
            let token = self.token().await;
            let attempt = self.attempt(&request, token.as_ref()).await?;
            let (mut refused, challenge) = match attempt {
                Attempt::Answer(response) => return Ok(response),
                Attempt::Refused(refused, challenge) => (refused, challenge),
            };
            if !matches!(
                refused.failure.class,
                FailureClass::AuthExpired | FailureClass::NeedsAuth | FailureClass::ScopeNeeded
            ) {
                return Err(refused);
            }
            let Some(tokens) = &self.target.tokens else {
                // A fixed header does not renew itself.
                if refused.failure.class == FailureClass::AuthExpired {
                    refused.failure.class = FailureClass::NeedsAuth;
                }
                return Err(refused);
            };
            match tokens.rejected(token, challenge).await {
                Ok(TokenAnswer::Unchanged) => return Err(refused),
                Ok(TokenAnswer::Fresh) if renewed || request.kind == Kind::Operation => {
                    refused.failure.class = FailureClass::AuthExpired;
                    return Err(refused);
                }
                Ok(TokenAnswer::Fresh) => renewed = true,
                Err(failure) => {
                    let status = refused.failure.http_status;
                    refused.failure = failure;
                    refused.failure.http_status = refused.failure.http_status.or(status);
                    return Err(refused);
                }
            }
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
            let mut sending = self
                .target
                .clients
                .get()
                .request(request.method.clone(), url.clone())
                .headers(all.clone());
            if let Some(body) = &request.body {
                sending = sending
                    .header(CONTENT_TYPE, "application/json")
                    .body(body.clone());
            }
            let response = sending.send().await.map_err(|error| self.broken(&error))?;
            self.shared.hear();
            if response.status().is_success() {
                return Ok(Attempt::Answer(response));
            }
            if response.status().is_redirection() {
                url = self.redirect(&url, &response)?;
                continue;
            }
            return Ok(self
                .refused(response, request.kind, session, token_sent)
                .await);
        }
        let text = format!("{} redirects without end", self.target.url);
        Err(self.shared.broke(Break::Permanent, &text).into())
    }

    async fn refused(
        &self,
        response: reqwest::Response,
        kind: Kind,
        session: bool,
        token_sent: bool,
    ) -> Attempt {
        let status = response.status().as_u16();
        let challenge = header(response.headers(), "www-authenticate");
        let retry_after = header(response.headers(), "retry-after");
        let body = refusal_body(response, &self.shared).await;
        let mut told = Vec::new();
        told.extend(challenge.as_deref().map(|text| ("www-authenticate", text)));
        told.extend(retry_after.as_deref().map(|text| ("retry-after", text)));
        let mut link = self.shared.situation(session);
        match kind {
            Kind::Listen => link.phase = Phase::Listen,
            // The link may be in use by then.
            Kind::Greeting => link.phase = Phase::Connect,
            _ => {}
        }
        let facts = HttpFacts {
            link,
            token_sent,
            now: SystemClock.now(),
        };
        let failure = classify::http(status, &told, &body, &facts);
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

    /// Follows within the origin and with the method kept; elsewhere our headers do not go.
    fn redirect(&self, from: &Url, response: &reqwest::Response) -> Result<Url, McpFailure> {
        let status = response.status().as_u16();
        let to = header(response.headers(), "location").and_then(|to| from.join(&to).ok());
        let Some(to) = to else {
            let text = format!("HTTP {status} without a usable Location header");
            return Err(self.shared.broke(Break::Permanent, &text));
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
        Err(self.shared.broke(Break::Permanent, &text))
    }

    fn broken(&self, error: &reqwest::Error) -> Refused {
        let what = if error.is_connect() || error.is_builder() {
            Break::BeforeSend
        } else {
            Break::AfterSend
        };
        self.shared.broke(what, &chain(error)).into()
    }
}

//! The interactive authorization code flow.
//!
//! Stored files are not changed before new tokens were received, so a failed or cancelled login has
//! no effect.

use std::path::PathBuf;

use tokio_util::sync::CancellationToken;
use url::Url;

use super::callback::{CallbackListener, Pasted, RedirectResponse, parse_pasted};
use super::challenge::Challenge;
use super::context::OAuthContext;
use super::discover::{Discovery, discover};
use super::error::{OAuthError, OAuthErrorKind};
use super::grant::{GrantError, grant};
use super::identity::{Identity, configured, register, reusable};
use super::pkce::{Pkce, random_token};
use super::prompt::{AuthPrompt, LoginPage};
use super::scope;
use super::store::{TokenFile, TokenFileVersion, TokenStore};
use super::tokens::{Meta, Registration, Tokens, same_issuer};

/// The parameters of a login.
#[derive(Clone, Debug, Default)]
pub(crate) struct LoginRequest {
    /// The server's challenge, if there was one.
    pub(crate) challenge: Option<Challenge>,
    /// Additional scopes to request.
    pub(crate) more_scope: Option<String>,
    /// Ignore a stored registration. It may be invalid, and then the user would see an error page
    /// that never redirects back.
    pub(crate) register_again: bool,
}

/// The files written by a login.
pub(crate) struct CompletedLogin {
    pub(crate) tokens: Tokens,
    pub(crate) version: Option<TokenFileVersion>,
    /// Renamed damaged files.
    pub(crate) set_aside: Vec<PathBuf>,
}

/// The stored files that could be read.
#[derive(Default)]
struct Stored {
    meta: Option<Meta>,
    registration: Option<Registration>,
}

pub(crate) async fn login(
    cx: &OAuthContext,
    prompt: &dyn AuthPrompt,
    request_spec: LoginRequest,
    cancel: &CancellationToken,
) -> Result<CompletedLogin, OAuthError> {
    tokio::select! {
        done = run_login(cx, prompt, request_spec) => done,
        () = cancel.cancelled() => Err(OAuthError::new(
            OAuthErrorKind::Cancelled,
            format!("the login to {} was cancelled", cx.server),
        )),
    }
}

async fn run_login(
    cx: &OAuthContext,
    prompt: &dyn AuthPrompt,
    request_spec: LoginRequest,
) -> Result<CompletedLogin, OAuthError> {
    let challenge = match request_spec.challenge {
        Some(challenge) => Some(challenge),
        None => cx.http.challenge(&cx.url).await,
    };
    let found = discover(&cx.http, &cx.url, challenge.as_ref()).await?;
    check_pkce(&found.meta, cx.settings.assume_pkce)?;
    let stored = stored(cx).await;
    let target = RedirectTarget::choose(cx, stored.registration.as_ref()).await?;

    // A scope that was demanded while no user could be asked.
    let pending = stored
        .meta
        .as_ref()
        .filter(|meta| same_issuer(meta.issuer(), found.meta.issuer()))
        .and_then(Meta::wanted_scope)
        .unwrap_or_default();
    let more = scope::union(
        request_spec.more_scope.as_deref().unwrap_or_default(),
        pending,
    );
    let asked = scope::choose(
        cx.settings.scope.as_deref(),
        challenge
            .as_ref()
            .and_then(|challenge| challenge.scope.as_deref()),
        &found,
        Some(&more),
    );
    let identity = identify(
        cx,
        &found,
        stored,
        &target.redirect_uri,
        asked.as_deref(),
        request_spec.register_again,
    )
    .await?;

    let request = AuthorizationRequest {
        state: random_token(),
        pkce: Pkce::new(),
        scope: asked,
    };
    let url = authorize_url(cx, &found.meta, &identity, &target.redirect_uri, &request)?;
    let redirect = wait_for_redirect(cx, prompt, &target, url.as_str(), &request.state).await?;
    let code = authorization_code(cx, &found.meta, redirect)?;
    let tokens = exchange(cx, &found.meta, &identity, &target, &request, &code).await?;
    save(cx, tokens, &found.meta, &identity.registration).await
}

/// The secrets of one attempt.
struct AuthorizationRequest {
    state: String,
    pkce: Pkce,
    scope: Option<String>,
}

/// OAuth 2.1 is not safe without PKCE. As the specification demands, a server that does not declare
/// support is refused unless the user overrides this.
fn check_pkce(meta: &Meta, assume: bool) -> Result<(), OAuthError> {
    match meta.list("code_challenge_methods_supported") {
        Some(methods) if methods.contains(&"S256") => Ok(()),
        None if assume => Ok(()),
        Some(_) => Err(OAuthError::refused(format!(
            "{} does not support PKCE with S256, without which a login is not safe",
            meta.issuer()
        ))),
        None => Err(OAuthError::refused(format!(
            "the metadata of {} does not say that it supports PKCE with S256 \
             (code_challenge_methods_supported), without which a login is not safe; if you know \
             that it does, set oauth.assume_pkce: true",
            meta.issuer()
        ))),
    }
}

async fn stored(cx: &OAuthContext) -> Stored {
    // A damaged file must not prevent a login; it is renamed at the end.
    cx.with_store(|store| {
        Ok(Stored {
            meta: Meta::load(store).ok().flatten(),
            registration: Registration::load(store).ok().flatten(),
        })
    })
    .await
    .unwrap_or_default()
}

/// The redirect URI, and the listener for it if there is one.
struct RedirectTarget {
    redirect_uri: String,
    callback: Option<CallbackListener>,
}

impl RedirectTarget {
    async fn choose(
        cx: &OAuthContext,
        registration: Option<&Registration>,
    ) -> Result<Self, OAuthError> {
        let settings = &cx.settings;
        if let Some(uri) = &settings.redirect_uri {
            return Self::at_configured(cx, uri).await;
        }
        let make = |callback: CallbackListener| -> Result<Self, OAuthError> {
            let port = callback
                .port()
                .map_err(|error| OAuthError::refused(format!("no callback port: {error}")))?;
            Ok(Self {
                redirect_uri: format!("http://{}:{port}/callback", settings.redirect_host),
                callback: Some(callback),
            })
        };
        if settings.redirect_port != 0 {
            return make(listen(cx, settings.redirect_port, "/callback").await?);
        }
        // The client may be registered with exactly this port.
        if let Some(port) = registration.and_then(loopback_port) {
            match CallbackListener::bind(port, "/callback").await {
                Ok(callback) => return make(callback),
                Err(error) => {
                    tracing::debug!(port, %error, "the registered callback port is not free");
                }
            }
        }
        make(listen(cx, 0, "/callback").await?)
    }

    /// A configured redirect URI, for example through a proxy.
    async fn at_configured(cx: &OAuthContext, uri: &str) -> Result<Self, OAuthError> {
        let url = Url::parse(uri).map_err(|error| {
            OAuthError::refused(format!(
                "mcp_servers.{}.oauth.redirect_uri is not a URL: {error}",
                cx.server
            ))
        })?;
        let local = url.scheme() == "http"
            && matches!(url.host_str(), Some("127.0.0.1" | "localhost" | "[::1]"));
        let port = match cx.settings.redirect_port {
            0 if local => url.port_or_known_default(),
            0 => None,
            port => Some(port),
        };
        Ok(Self {
            redirect_uri: uri.to_owned(),
            callback: match port {
                Some(port) => Some(listen(cx, port, url.path()).await?),
                None => None,
            },
        })
    }
}

async fn listen(cx: &OAuthContext, port: u16, path: &str) -> Result<CallbackListener, OAuthError> {
    CallbackListener::bind(port, path).await.map_err(|error| {
        OAuthError::refused(format!(
            "cannot listen on 127.0.0.1:{port} for the browser to come back: {error}; finish the other login or set another mcp_servers.{}.oauth.redirect_port",
            cx.server
        ))
    })
}

fn loopback_port(registration: &Registration) -> Option<u16> {
    registration.redirect_uris().into_iter().find_map(|uri| {
        let url = Url::parse(uri).ok()?;
        let local = url.scheme() == "http"
            && matches!(url.host_str(), Some("127.0.0.1" | "localhost"))
            && url.path() == "/callback";
        url.port().filter(|_| local)
    })
}

async fn identify(
    cx: &OAuthContext,
    found: &Discovery,
    stored: Stored,
    redirect_uri: &str,
    scope: Option<&str>,
    register_again: bool,
) -> Result<Identity, OAuthError> {
    let meta = &found.meta;
    let stored_issuer = stored.meta.as_ref().map(Meta::issuer);
    if let Some(registration) = configured(&cx.settings, meta, redirect_uri) {
        if let Some(old) = &stored.registration
            && let Some(issuer) = old.issuer().or(stored_issuer)
            && registration.secret().is_some()
            && old.client_id() == registration.client_id()
            && !same_issuer(issuer, meta.issuer())
        {
            return Err(OAuthError::refused(format!(
                "{} now trusts {} instead of {issuer}, to which the configured oauth.client_secret belongs; set the one for the new server, or delete {} if it is the same",
                cx.server,
                meta.issuer(),
                cx.store.path(TokenFile::Client).display()
            )));
        }
        return Identity::from_registration(registration, meta);
    }
    let usable = stored.registration.filter(|registration| {
        !register_again
            && reusable(
                registration,
                stored_issuer,
                meta,
                redirect_uri,
                cx.clock.as_ref(),
            )
    });
    let registration = match usable {
        Some(mut registration) => {
            registration.bind(meta.issuer());
            registration
        }
        None => register(&cx.http, &cx.settings, meta, redirect_uri, scope).await?,
    };
    Identity::from_registration(registration, meta)
}

fn authorize_url(
    cx: &OAuthContext,
    meta: &Meta,
    identity: &Identity,
    redirect_uri: &str,
    request: &AuthorizationRequest,
) -> Result<Url, OAuthError> {
    let mut url = cx
        .http
        .check(meta.text("authorization_endpoint").unwrap_or_default())?;
    {
        let mut query = url.query_pairs_mut();
        query
            .append_pair("response_type", "code")
            .append_pair("client_id", &identity.client_id)
            .append_pair("redirect_uri", redirect_uri)
            .append_pair("state", &request.state)
            .append_pair("code_challenge", &request.pkce.challenge)
            .append_pair("code_challenge_method", "S256");
        if let Some(resource) = meta.resource() {
            query.append_pair("resource", resource);
        }
        if let Some(scope) = &request.scope {
            query.append_pair("scope", scope);
            if scope::is_offline(scope) {
                // Without it, OpenID Connect ignores the scope.
                query.append_pair("prompt", "consent");
            }
        }
    }
    Ok(url)
}

/// Shows the page and waits for the redirect or a pasted URL.
async fn wait_for_redirect(
    cx: &OAuthContext,
    prompt: &dyn AuthPrompt,
    target: &RedirectTarget,
    url: &str,
    state: &str,
) -> Result<RedirectResponse, OAuthError> {
    let page = LoginPage {
        server: cx.server.clone(),
        url: url.to_owned(),
        redirect_uri: target.redirect_uri.clone(),
        listening: target.callback.is_some(),
        timeout: cx.settings.timeout,
    };
    let answered = async {
        // The listener must run while the page is shown: a fast browser may redirect immediately.
        let shown = async {
            prompt.show(&page).await.map_err(|error| {
                OAuthError::refused(format!("the login page cannot be shown: {error}"))
            })?;
            paste(cx, prompt, state).await
        };
        let received = async {
            match &target.callback {
                Some(callback) => callback.wait(state).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            redirect = received => Ok(redirect),
            redirect = shown => redirect,
        }
    };
    match tokio::time::timeout(cx.settings.timeout, answered).await {
        Ok(answer) => answer,
        Err(_) => Err(cx.needs_login(&format!(
            "the login was not finished for {} within {} s",
            cx.server,
            cx.settings.timeout.as_secs()
        ))),
    }
}

async fn paste(
    cx: &OAuthContext,
    prompt: &dyn AuthPrompt,
    state: &str,
) -> Result<RedirectResponse, OAuthError> {
    while let Some(line) = prompt.pasted().await {
        match parse_pasted(&line, state) {
            Pasted::Redirect(redirect) => return Ok(redirect),
            Pasted::Skip => {
                return Err(OAuthError::new(
                    OAuthErrorKind::Cancelled,
                    format!(
                        "the login to {} was skipped; later: hermes mcp login {}",
                        cx.server, cx.server
                    ),
                ));
            }
            Pasted::Invalid(why) => prompt.note(why),
        }
    }
    // Pasting is not possible, but the browser may still redirect.
    std::future::pending().await
}

/// The code, if the response is from the right server (RFC 9207).
fn authorization_code(
    cx: &OAuthContext,
    meta: &Meta,
    redirect: RedirectResponse,
) -> Result<String, OAuthError> {
    let iss_required = meta.flag("authorization_response_iss_parameter_supported");
    match &redirect.iss {
        // Compared exactly: normalising would accept another server.
        Some(iss) if iss != meta.issuer() => {
            return Err(OAuthError::refused(format!(
                "the login answer claims to come from {iss:?}, but {} was asked: it is not used",
                meta.issuer()
            )));
        }
        None if iss_required => {
            return Err(OAuthError::refused(format!(
                "the login answer does not say that it comes from {}, which promises to: it is not used",
                meta.issuer()
            )));
        }
        _ => {}
    }
    match redirect {
        RedirectResponse {
            error: Some(error),
            error_description,
            ..
        } => Err(cx.needs_login(&format!(
            "{} did not grant access: {error}{}",
            meta.issuer(),
            error_description
                .map(|text| format!(" ({text})"))
                .unwrap_or_default()
        ))),
        RedirectResponse {
            code: Some(code), ..
        } => Ok(code),
        _ => Err(OAuthError::refused("the login answer holds no code")),
    }
}

async fn exchange(
    cx: &OAuthContext,
    meta: &Meta,
    identity: &Identity,
    target: &RedirectTarget,
    request: &AuthorizationRequest,
    code: &str,
) -> Result<Tokens, OAuthError> {
    let form = [
        ("grant_type", "authorization_code"),
        ("code", code),
        ("redirect_uri", target.redirect_uri.as_str()),
        ("code_verifier", request.pkce.verifier.as_str()),
    ];
    let answer = match grant(&cx.http, meta, identity, &form).await {
        Ok(answer) => answer,
        Err(GrantError::Moved(error) | GrantError::Other(error)) => return Err(error),
        Err(GrantError::Denied { code, text }) if code == "invalid_client" => {
            return Err(cx.client_rejected(&text).await);
        }
        Err(GrantError::Denied { text, .. }) => return Err(cx.needs_login(&text)),
    };
    cx.client_accepted();
    let Some(mut tokens) = Tokens::granted(&answer, None, cx.clock.as_ref()) else {
        return Err(OAuthError::refused(format!(
            "{} answered without an access token",
            meta.issuer()
        )));
    };
    tokens.assume_scope(request.scope.as_deref());
    Ok(tokens)
}

/// Stores all three files, the tokens last because other processes watch them.
async fn save(
    cx: &OAuthContext,
    tokens: Tokens,
    meta: &Meta,
    registration: &Registration,
) -> Result<CompletedLogin, OAuthError> {
    let _lock = cx.lock().await?;
    let objects = [
        (TokenFile::Meta, meta.object().clone()),
        (TokenFile::Client, registration.object().clone()),
        (TokenFile::Tokens, tokens.object().clone()),
    ];
    let (version, set_aside) = cx
        .with_store(move |store| {
            let mut set_aside = Vec::new();
            let mut version = None;
            for (file, object) in objects {
                if is_damaged(store, file) {
                    set_aside.extend(store.set_aside(file, "damaged")?);
                }
                version = store.write(file, &object)?;
            }
            Ok((version, set_aside))
        })
        .await?;
    Ok(CompletedLogin {
        tokens,
        version,
        set_aside,
    })
}

fn is_damaged(store: &TokenStore, file: TokenFile) -> bool {
    match file {
        TokenFile::Tokens => Tokens::load(store).is_err(),
        TokenFile::Client | TokenFile::Meta => store.read(file).is_err(),
    }
}

//! The HTTP server for webhooks.

use std::collections::{HashMap, HashSet, VecDeque};
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use axum::body::Body;
use axum::extract::{Path, State};
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse as _, Response};
use axum::routing::{get, post};
use axum::{Json, Router};
use hermes_config::{Config, Home};
use hermes_core::BoxFuture;
use hermes_core::clock::Clock;
use hermes_core::task;
use hermes_store::delivery::Target;
use hermes_store::skills::{SkillLibrary, SkillOrFile};
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};
use tokio::net::TcpListener;
use tokio::time::Instant;

use super::deliver::{LOG, github};
use super::filter::{WebhookCall, passes};
use super::recent::RecentCalls;
use super::replay::Replays;
use super::routes::{NO_SECRET, WebhookRoute, WebhookRoutes};
use super::signature::{SignatureScheme, hex, timed, verify};
use super::{DEFAULT_PORT, NAME, WebhookHost, script, template};
use crate::platform::{
    AdapterLink, FatalPlatformError, InboundAdapter, IncomingMessage, PlatformState,
};
use crate::posting::{PostError, Posting};
use crate::settings::PlatformSettings;
use crate::source::MessageSource;

const RATE_WINDOW: Duration = Duration::from_mins(1);
/// Timeout for the body of a call.
const BODY_TIMEOUT: Duration = Duration::from_secs(30);
const CLEANUP_INTERVAL: Duration = Duration::from_mins(5);

pub(super) struct WebhookServer {
    shared: Arc<WebhookShared>,
    host: Option<String>,
    port: u16,
}

struct WebhookShared {
    routes: Mutex<WebhookRoutes>,
    /// Times of the calls of the last minute, by route.
    rates: Mutex<HashMap<String, VecDeque<Instant>>>,
    recent: RecentCalls,
    replays: Mutex<Replays>,
    warned: Mutex<HashSet<String>>,
    rate: usize,
    max_body: usize,
    script_patience: Duration,
    home: std::path::PathBuf,
    library: SkillLibrary,
    gateway: Arc<dyn WebhookHost>,
    clock: Arc<dyn Clock>,
}

impl WebhookServer {
    pub(super) fn new(
        home: &Home,
        config: &Config,
        settings: &PlatformSettings,
        gateway: Arc<dyn WebhookHost>,
        clock: Arc<dyn Clock>,
    ) -> Result<Self, String> {
        let number = |name: &str, default: u64| match settings.text(name) {
            None => Ok(default),
            Some(text) => text
                .parse::<u64>()
                .ok()
                .filter(|number| *number > 0)
                .ok_or_else(|| {
                    format!("platforms.webhook.extra.{name}: {text:?} is not a number above 0")
                }),
        };
        let host = settings.text("host");
        let loopback = host.as_deref().is_none_or(is_loopback);
        let root = home.root().to_owned();
        let port = number("port", u64::from(DEFAULT_PORT))?;
        let routes = WebhookRoutes::new(
            &root,
            settings.extra.get("routes"),
            settings.text("secret"),
            loopback,
        )?;
        Ok(Self {
            shared: Arc::new(WebhookShared {
                routes: Mutex::new(routes),
                rates: Mutex::default(),
                recent: RecentCalls::default(),
                replays: Mutex::new(Replays::open(&root, clock.now().timestamp())),
                warned: Mutex::default(),
                rate: usize::try_from(number("rate_limit", 30)?).unwrap_or(usize::MAX),
                max_body: usize::try_from(number("max_body_bytes", 1 << 20)?).unwrap_or(usize::MAX),
                script_patience: Duration::from_secs(number("script_timeout_seconds", 30)?),
                library: SkillLibrary::of_home(home, config, Some(NAME)),
                home: root,
                gateway,
                clock,
            }),
            host,
            port: u16::try_from(port)
                .map_err(|_| format!("platforms.webhook.extra.port: {port} is not a port"))?,
        })
    }

    /// Loopback only by default, IPv4 and IPv6.
    async fn listen(&self) -> Result<Vec<TcpListener>, String> {
        let port = self.port;
        if let Some(host) = self.host.as_deref() {
            let bound = TcpListener::bind((host, port)).await;
            return bound
                .map(|listener| vec![listener])
                .map_err(|error| format!("{host}:{port}: {error}"));
        }
        tracing::info!(
            "webhook: callers on this machine only; platforms.webhook.extra.host: 0.0.0.0 (or \"::\") lets \
             others in"
        );
        let mut bound = Vec::new();
        let addresses = [
            SocketAddr::from((Ipv4Addr::LOCALHOST, port)),
            SocketAddr::from((Ipv6Addr::LOCALHOST, port)),
        ];
        let mut failed = String::new();
        for address in addresses {
            match TcpListener::bind(address).await {
                Ok(listener) => bound.push(listener),
                // Not every machine has both.
                Err(error) => failed = format!("{address}: {error}"),
            }
        }
        if bound.is_empty() {
            return Err(failed);
        }
        Ok(bound)
    }
}

fn is_loopback(host: &str) -> bool {
    let host = host.trim().trim_matches(['[', ']']);
    matches!(host, "localhost" | "ip6-localhost" | "ip6-loopback")
        || host
            .parse::<std::net::IpAddr>()
            .is_ok_and(|address| address.is_loopback())
}

impl InboundAdapter for WebhookServer {
    fn run(
        self: Box<Self>,
        link: AdapterLink,
    ) -> BoxFuture<'static, Result<(), FatalPlatformError>> {
        Box::pin(async move {
            let mut pause = Duration::from_secs(1);
            loop {
                let listeners = match self.listen().await {
                    Ok(listeners) => listeners,
                    Err(error) => {
                        let error = format!("cannot listen: {error}");
                        tracing::error!("webhook: {error}");
                        link.health.is(PlatformState::Retrying, Some(error));
                        tokio::select! {
                            () = link.cancel.cancelled() => return Ok(()),
                            () = tokio::time::sleep(pause) => {}
                        }
                        pause = (pause * 2).min(Duration::from_mins(1));
                        continue;
                    }
                };
                pause = Duration::from_secs(1);
                link.health.received(self.shared.clock.epoch_seconds());
                let app = app(Arc::clone(&self.shared), link.clone());
                let stop = link.cancel.child_token();
                let _stop_when_dropped = stop.clone().drop_guard();
                let serve = listeners
                    .into_iter()
                    .map(|listener| crate::serve::serve(listener, app.clone(), stop.clone()));
                let ended = tokio::select! {
                    ended = futures_util::future::join_all(serve) => ended,
                    never = self.shared.tidy() => match never {},
                };
                if link.cancel.is_cancelled() {
                    return Ok(());
                }
                tracing::error!("webhook: the server ended: {ended:?}");
            }
        })
    }
}

fn app(shared: Arc<WebhookShared>, link: AdapterLink) -> Router {
    Router::new()
        .route(
            "/health",
            get(|| async { Json(json!({"status": "ok", "platform": NAME})) }),
        )
        .route("/webhooks/{route}", post(called))
        // One gateway serves one profile; the prefix is accepted and ignored.
        .route("/p/{profile}/webhooks/{route}", post(called_with_profile))
        .with_state((shared, link))
}

type WebhookStateExtractor = State<(Arc<WebhookShared>, AdapterLink)>;

async fn called(
    State((shared, link)): WebhookStateExtractor,
    Path(route): Path<String>,
    headers: HeaderMap,
    body: Body,
) -> Response {
    shared.call(link, route, headers, body).await
}

async fn called_with_profile(
    State((shared, link)): WebhookStateExtractor,
    Path((_, route)): Path<(String, String)>,
    headers: HeaderMap,
    body: Body,
) -> Response {
    shared.call(link, route, headers, body).await
}

fn refuse(status: StatusCode, error: &str) -> Response {
    (status, Json(json!({"error": error}))).into_response()
}

fn json_response(status: StatusCode, value: Value) -> Response {
    (status, Json(value)).into_response()
}

/// A verified call.
struct VerifiedCall<'a> {
    name: &'a str,
    route: WebhookRoute,
    payload: Value,
    event: String,
    id: String,
}

impl WebhookShared {
    async fn tidy(&self) -> std::convert::Infallible {
        loop {
            tokio::time::sleep(CLEANUP_INTERVAL).await;
            self.gateway.close_answered().await;
        }
    }

    async fn call(
        self: Arc<Self>,
        link: AdapterLink,
        name: String,
        headers: HeaderMap,
        body: Body,
    ) -> Response {
        let (route, secret) = {
            let mut routes = lock(&self.routes);
            routes.refresh();
            let Some(route) = routes.get(&name).cloned() else {
                return refuse(StatusCode::NOT_FOUND, "Unknown route");
            };
            let secret = routes.secret_of(&route).map(str::to_owned);
            (route, secret)
        };
        if route.enabled == Some(false) {
            return refuse(StatusCode::FORBIDDEN, "Route disabled");
        }
        let Some(secret) = secret else {
            return refuse(
                StatusCode::FORBIDDEN,
                "Webhook route is missing an HMAC secret",
            );
        };
        if secret == NO_SECRET
            && let Some(why) = stranger(&headers)
        {
            tracing::warn!(route = name, "webhook: a call is refused: {why}");
            return refuse(StatusCode::FORBIDDEN, why);
        }
        let read =
            tokio::time::timeout(BODY_TIMEOUT, axum::body::to_bytes(body, self.max_body)).await;
        let body = match read {
            Ok(Ok(body)) => body,
            Ok(Err(_)) => return refuse(StatusCode::PAYLOAD_TOO_LARGE, "Payload too large"),
            Err(_) => return refuse(StatusCode::REQUEST_TIMEOUT, "The body did not come"),
        };
        let mut signed = None;
        if secret != NO_SECRET {
            match verify(&headers, &body, &secret, self.clock.now().timestamp()) {
                Ok(scheme) => {
                    if scheme == SignatureScheme::V1 {
                        self.warn_of_v1(&name);
                    }
                    let timed = timed(scheme, &headers, &body);
                    signed = timed.map(|timed| Replays::key(&name, &timed));
                }
                Err(why) => {
                    tracing::warn!(route = name, "webhook: a call is refused: {why}");
                    return refuse(StatusCode::UNAUTHORIZED, "Invalid signature");
                }
            }
        }
        // Not cancelled when the client disconnects: some wait for less time than a script takes,
        // and never retry.
        let rest = async move {
            let route = (name.as_str(), route);
            self.once(&link, route, signed, &headers, &body).await
        };
        match task::spawn("webhook call", rest).await {
            Ok(Ok(response)) => response,
            Ok(Err(_)) | Err(_) => refuse(StatusCode::INTERNAL_SERVER_ERROR, "Try again later"),
        }
    }

    /// Verifies a call, and detects repetitions.
    async fn once(
        self: &Arc<Self>,
        link: &AdapterLink,
        route: (&str, WebhookRoute),
        signed: Option<String>,
        headers: &HeaderMap,
        body: &[u8],
    ) -> Response {
        let name = route.0.to_owned();
        let id = delivery_id(headers);
        let duplicate = json_response(
            StatusCode::OK,
            json!({"status": "duplicate", "delivery_id": id}),
        );
        let Some(claim) = self.recent.claim(&format!("{}\n{id}", route.0)).await else {
            return duplicate;
        };
        // Received by an earlier process, or longer ago than remembered here.
        match self.gateway.received(&chat_id(route.0, &id), &id).await {
            Ok(false) => {}
            Ok(true) => {
                claim.keep();
                return duplicate;
            }
            Err(error) => {
                tracing::error!("webhook: {error}");
                return refuse(StatusCode::SERVICE_UNAVAILABLE, "Try again later");
            }
        }
        // The same signature with another id is a replay. Calls in progress count, so that two
        // concurrent ones are not both accepted.
        let again = || {
            tracing::warn!(
                route = name,
                "webhook: a call is refused: it was taken before"
            );
            refuse(StatusCode::CONFLICT, "This signed call was taken before")
        };
        let signature = match &signed {
            None => None,
            Some(key) => {
                let known = lock(&self.replays).is_known(key, self.clock.now().timestamp());
                match self.recent.claim_now(&format!("signed\n{key}")) {
                    Some(claim) if !known => Some(claim),
                    _ => return again(),
                }
            }
        };
        let response = self.admitted(link, route, headers, body, id).await;
        if response.status() == StatusCode::ACCEPTED {
            claim.keep();
            if let Some(key) = signed {
                self.keep_signature(key).await;
            }
        }
        drop(signature);
        response
    }

    async fn admitted(
        &self,
        link: &AdapterLink,
        (name, route): (&str, WebhookRoute),
        headers: &HeaderMap,
        body: &[u8],
        id: String,
    ) -> Response {
        if !self.is_within_rate(name) {
            let mut response = refuse(StatusCode::TOO_MANY_REQUESTS, "Rate limit exceeded");
            response
                .headers_mut()
                .insert("retry-after", RATE_WINDOW.as_secs().into());
            return response;
        }
        let Some(payload) = parse(body) else {
            return refuse(StatusCode::BAD_REQUEST, "Cannot parse body");
        };
        let event = event_type(headers, &payload);
        if !route.events.is_empty() && !route.events.contains(&event) {
            return json_response(StatusCode::OK, json!({"status": "ignored", "event": event}));
        }
        let call = WebhookCall {
            payload: &payload,
            event: &event,
            headers,
            home: &self.home,
        };
        let ignored = |reason: &str| {
            json_response(
                StatusCode::OK,
                json!({"status": "ignored", "reason": reason, "route": name}),
            )
        };
        if !passes(&route.filters, &call) {
            return ignored("filter");
        }
        let payload = match &route.script {
            None => payload,
            Some(script) => {
                match script::run(&self.home, script, &payload, self.script_patience).await {
                    Ok(Some(changed)) => changed,
                    Ok(None) => return ignored("script"),
                    Err(error) => {
                        tracing::error!(route = name, "webhook: a call is not taken: {error}");
                        return refuse(StatusCode::INTERNAL_SERVER_ERROR, "The script failed");
                    }
                }
            }
        };
        let known = VerifiedCall {
            name,
            route,
            payload,
            event,
            id,
        };
        self.act(link, known).await
    }

    /// Stores the work before confirming the call.
    async fn act(&self, link: &AdapterLink, call: VerifiedCall<'_>) -> Response {
        let failed = |error: &dyn std::fmt::Display| {
            tracing::error!(route = call.name, "webhook: {error}");
            json_response(
                StatusCode::BAD_GATEWAY,
                json!({"status": "error", "error": "Delivery failed", "delivery_id": call.id}),
            )
        };
        let target = match self.target(&call) {
            Ok(target) => target,
            Err(error) => return failed(&error),
        };
        let text = match call.route.prompt.as_str() {
            "" => template::whole(call.name, &call.payload, &call.event),
            prompt => template::fill(prompt, &call.payload, &call.event),
        };
        if call.route.deliver_only {
            let posting = Posting {
                id: format!("webhook-{}-{}", call.name, call.id),
                target,
                text,
                files: false,
                mirror: None,
            };
            return match self.gateway.post(posting).await {
                Ok(_) => json_response(
                    StatusCode::ACCEPTED,
                    json!({"status": "accepted", "route": call.name, "target": call.route.deliver, "delivery_id": call.id}),
                ),
                Err(PostError::Store(hermes_core::store::StoreError::Ended(_))) => json_response(
                    StatusCode::OK,
                    json!({"status": "duplicate", "delivery_id": call.id}),
                ),
                Err(error) => failed(&error),
            };
        }
        let text = self.with_skill(&call.route.skills, text).await;
        let message = self.message(&call, &target, text);
        if !link.deliver(message).await {
            return refuse(StatusCode::SERVICE_UNAVAILABLE, "Try again later");
        }
        link.health.received(self.clock.epoch_seconds());
        json_response(
            StatusCode::ACCEPTED,
            json!({"status": "accepted", "route": call.name, "event": call.event, "delivery_id": call.id}),
        )
    }

    fn message(&self, call: &VerifiedCall<'_>, target: &Target, text: String) -> IncomingMessage {
        // Untrusted text is never a command.
        let text = if text.trim_start().starts_with(['/', '!']) {
            format!("[webhook {}]\n{text}", call.name)
        } else {
            text
        };
        IncomingMessage {
            account: String::new(),
            message_id: call.id.clone(),
            source: MessageSource {
                platform: NAME.to_owned(),
                chat_id: chat_id(call.name, &call.id),
                chat_name: Some(format!("webhook/{}", call.name)),
                chat_type: NAME.to_owned(),
                user_id: Some(format!("webhook:{}", call.name)),
                user_name: Some(call.name.to_owned()),
                ..MessageSource::default()
            },
            text,
            media: Vec::new(),
            reply_to: None,
            pressed: None,
            context: None,
            sent_at: self.clock.epoch_seconds(),
            native: json!({
                "route": call.name,
                "event": call.event,
                "answer_to": {
                    "platform": target.platform,
                    "account": target.account,
                    "chat_id": target.chat_id,
                    "thread_id": target.thread_id,
                },
            }),
        }
    }

    /// The first of the skills that exists.
    async fn with_skill(&self, skills: &[String], text: String) -> String {
        for name in skills {
            match self.library.view(name, None, None) {
                Ok(SkillOrFile::Skill(skill)) => {
                    let name = skill.name.clone();
                    let content = self.gateway.skill_text(*skill).await;
                    return format!("Follow the skill {name:?}:\n\n{content}\n\n---\n\n{text}");
                }
                Ok(SkillOrFile::File(_)) => {}
                Err(error) => tracing::warn!("webhook: the skill {name} is not used: {error}"),
            }
        }
        text
    }

    /// The target of the answer, by the route.
    fn target(&self, call: &VerifiedCall<'_>) -> Result<Target, String> {
        let extra = template::fill_all(&call.route.deliver_extra, &call.payload);
        let text = |name: &str| {
            let value = extra.get(name)?;
            let text = value
                .as_str()
                .map_or_else(|| value.to_string(), str::to_owned);
            Some(text.trim().to_owned()).filter(|text| !text.is_empty() && text != "null")
        };
        let target_for = |chat_id: String| Target {
            platform: NAME.to_owned(),
            account: String::new(),
            chat_id,
            thread_id: None,
        };
        match call.route.deliver.as_str() {
            "" | LOG => Ok(target_for(format!("{LOG}:{}", call.name))),
            "github_comment" => github(
                &text("repo").unwrap_or_default(),
                &text("pr_number").unwrap_or_default(),
            )
            .map(target_for),
            platform => {
                let wanted = match text("chat_id") {
                    Some(chat) => format!("{platform}:{chat}"),
                    None => platform.to_owned(),
                };
                let mut target = self
                    .gateway
                    .target(&wanted)
                    .map_err(|error| error.to_string())?;
                if let Some(thread) = text("message_thread_id").or_else(|| text("thread_id")) {
                    target.thread_id = Some(thread);
                }
                Ok(target)
            }
        }
    }

    /// Before the call is confirmed.
    async fn keep_signature(self: &Arc<Self>, key: String) {
        let (this, now) = (Arc::clone(self), self.clock.now().timestamp());
        let remembered =
            tokio::task::spawn_blocking(move || lock(&this.replays).remember(&key, now));
        match remembered.await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => tracing::warn!("webhook: signatures are not kept: {error}"),
            Err(error) => tracing::warn!("webhook: signatures are not kept: {error}"),
        }
    }

    fn is_within_rate(&self, route: &str) -> bool {
        let now = Instant::now();
        let mut rates = lock(&self.rates);
        let calls = rates.entry(route.to_owned()).or_default();
        while calls
            .front()
            .is_some_and(|first| now.duration_since(*first) >= RATE_WINDOW)
        {
            calls.pop_front();
        }
        if calls.len() >= self.rate {
            return false;
        }
        calls.push_back(now);
        true
    }

    fn warn_of_v1(&self, route: &str) {
        if lock(&self.warned).insert(route.to_owned()) {
            tracing::warn!(
                route,
                "webhook: signatures without a time: anyone who saw a call can repeat it. X-Webhook-Signature-V2 with X-Webhook-Timestamp prevents that"
            );
        }
    }
}

/// Why an unsigned call is not from a program on this machine. A page in a local browser can post
/// to any address, and a domain can resolve to this machine; neither may use an unsigned route.
fn stranger(headers: &HeaderMap) -> Option<&'static str> {
    let text = |name: &str| {
        headers
            .get(name)
            .map(|value| value.to_str().unwrap_or_default())
    };
    if headers.contains_key("origin") {
        return Some("Pages in browsers may not call a route without a secret");
    }
    if text("sec-fetch-site").is_some_and(|site| site != "none") {
        return Some("Pages in browsers may not call a route without a secret");
    }
    if text("referer").is_some() {
        return Some("Pages in browsers may not call a route without a secret");
    }
    let host = text("host").unwrap_or_default();
    let name = match host.rsplit_once(':') {
        Some((name, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => name,
        _ => host,
    };
    (!is_loopback(&name.to_ascii_lowercase()))
        .then_some("The Host of a call without a secret must be this machine's own")
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // Nothing behind these locks can be left half changed by a panic.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn chat_id(route: &str, id: &str) -> String {
    format!("webhook:{route}:{id}")
}

/// The sender's id of the call. Without one, every call is different.
fn delivery_id(headers: &HeaderMap) -> String {
    let names = [
        "x-github-delivery",
        "svix-id",
        "webhook-id",
        "x-request-id",
        "idempotency-key",
    ];
    let given = names.iter().find_map(|name| {
        let value = headers.get(*name)?.to_str().ok()?.trim();
        (!value.is_empty()).then(|| value.to_owned())
    });
    match given {
        None => format!("{:016x}", rand::random::<u64>()),
        Some(id) if id.len() <= 128 => id,
        Some(id) => hex(&Sha256::digest(id)),
    }
}

fn event_type(headers: &HeaderMap, payload: &Value) -> String {
    let header = |name: &str| {
        let value = headers.get(name)?.to_str().ok()?;
        (!value.is_empty()).then(|| value.to_owned())
    };
    let field = |name: &str| {
        let value = payload.get(name)?.as_str()?;
        (!value.is_empty()).then(|| value.to_owned())
    };
    header("x-github-event")
        .or_else(|| header("x-gitlab-event"))
        .or_else(|| field("event_type"))
        .or_else(|| field("type"))
        .unwrap_or_else(|| "unknown".to_owned())
}

/// JSON, or a form.
fn parse(body: &[u8]) -> Option<Value> {
    if let Ok(value) = serde_json::from_slice(body) {
        return Some(value);
    }
    let text = std::str::from_utf8(body).ok()?;
    let pairs: serde_json::Map<String, Value> = url::form_urlencoded::parse(text.as_bytes())
        .map(|(name, value)| (name.into_owned(), Value::String(value.into_owned())))
        .collect();
    // Plain text is not a form.
    text.contains('=').then_some(Value::Object(pairs))
}

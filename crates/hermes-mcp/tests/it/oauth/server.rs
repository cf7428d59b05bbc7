//! A small scripted MCP resource and authorization server.

use std::collections::{HashMap, HashSet, VecDeque};
use std::fmt::Write as _;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use serde_json::{Map, Value, json};
use sha2::{Digest as _, Sha256};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

/// A received request.
#[derive(Clone, Debug, Default)]
pub(crate) struct Seen {
    pub(crate) method: String,
    pub(crate) path: String,
    pub(crate) query: HashMap<String, String>,
    pub(crate) headers: HashMap<String, String>,
    pub(crate) form: HashMap<String, String>,
    pub(crate) json: Value,
}

impl Seen {
    pub(crate) fn is(&self, route: &str) -> bool {
        route.split_once(' ') == Some((self.method.as_str(), self.path.as_str()))
    }
}

/// The reply.
#[derive(Clone, Debug)]
pub(crate) struct Reply {
    status: u16,
    headers: Vec<(String, String)>,
    body: String,
}

impl Reply {
    pub(crate) fn json(status: u16, body: &Value) -> Self {
        Self {
            status,
            headers: vec![("Content-Type".to_owned(), "application/json".to_owned())],
            body: body.to_string(),
        }
    }

    pub(crate) fn empty(status: u16) -> Self {
        Self {
            status,
            headers: Vec::new(),
            body: String::new(),
        }
    }

    pub(crate) fn header(mut self, name: &str, value: &str) -> Self {
        self.headers.push((name.to_owned(), value.to_owned()));
        self
    }
}

type Hook = Box<dyn FnOnce() -> Option<Reply> + Send>;

/// The script and state of the server.
pub(crate) struct Script {
    base: String,
    /// Documents by path; `None` removes one.
    pub(crate) documents: HashMap<String, Option<Value>>,
    /// Path prefix of the endpoints, besides `/authorize`, `/token` and `/register`.
    pub(crate) prefix: String,
    /// Replaces the normal behaviour, in order, by route.
    hooks: HashMap<String, VecDeque<Hook>>,
    /// Replies sent every time, by route.
    pub(crate) always: HashMap<String, Reply>,
    /// `iss` of the redirect.
    pub(crate) iss: Option<String>,
    /// Added to every grant.
    pub(crate) grant: Map<String, Value>,
    /// Whether a refresh returns a new refresh token and invalidates the old one.
    pub(crate) rotate: bool,
    /// Members of a registration besides its id.
    pub(crate) registration: Map<String, Value>,
    /// The scope in the challenge of `/mcp`.
    pub(crate) challenge: String,
    pub(crate) valid: HashSet<String>,
    refresh: HashSet<String>,
    codes: HashMap<String, Seen>,
    count: usize,
    /// How often an invalidated refresh token was used.
    pub(crate) reused: usize,
    pub(crate) seen: Vec<Seen>,
}

pub(crate) struct AuthServer {
    script: Arc<Mutex<Script>>,
    pub(crate) base: String,
    task: tokio::task::JoinHandle<Result<(), hermes_core::task::Panicked>>,
}

impl Drop for AuthServer {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl AuthServer {
    pub(crate) async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let base = format!("http://127.0.0.1:{}", listener.local_addr().unwrap().port());
        let script = Arc::new(Mutex::new(Script::new(&base)));
        let shared = script.clone();
        let task = hermes_core::task::spawn("auth-server", async move {
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                let script = shared.clone();
                hermes_core::task::spawn("auth-connection", async move {
                    serve(stream, &script).await.ok();
                });
            }
        });
        Self { script, base, task }
    }

    pub(crate) fn script(&self) -> MutexGuard<'_, Script> {
        self.script.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn mcp_url(&self) -> String {
        format!("{}/mcp", self.base)
    }

    /// The requests to `"METHOD /path"`.
    pub(crate) fn seen(&self, route: &str) -> Vec<Seen> {
        let script = self.script();
        script
            .seen
            .iter()
            .filter(|seen| seen.is(route))
            .cloned()
            .collect()
    }

    /// The refreshes so far.
    pub(crate) fn refreshes(&self) -> Vec<Seen> {
        let mut seen = self.seen("POST /token");
        seen.retain(|seen| {
            seen.form
                .get("grant_type")
                .is_some_and(|kind| kind == "refresh_token")
        });
        seen
    }

    /// Answers the next request to `route` with this.
    pub(crate) fn next(&self, route: &str, reply: Reply) {
        self.next_with(route, move || Some(reply));
    }

    /// Runs this at the next request to `route`; without a reply the normal behaviour follows.
    pub(crate) fn next_with(
        &self,
        route: &str,
        hook: impl FnOnce() -> Option<Reply> + Send + 'static,
    ) {
        self.script()
            .hooks
            .entry(route.to_owned())
            .or_default()
            .push_back(Box::new(hook));
    }

    /// Changes the authorization server's document.
    pub(crate) fn metadata(&self, change: impl FnOnce(&mut Map<String, Value>)) {
        let mut script = self.script();
        let document = script
            .documents
            .get_mut("/.well-known/oauth-authorization-server")
            .and_then(Option::as_mut)
            .and_then(Value::as_object_mut)
            .unwrap();
        change(document);
    }

    /// A grant as after a login: (access, refresh).
    pub(crate) fn issue(&self) -> (String, String) {
        let mut script = self.script();
        let answer = script.issue(true);
        let text = |name: &str| answer[name].as_str().unwrap().to_owned();
        (text("access_token"), text("refresh_token"))
    }

    /// Revokes a token early.
    pub(crate) fn revoke(&self, access: &str) {
        self.script().valid.remove(access);
    }

    /// The challenge of `/mcp` to this token, or `None` if it is accepted.
    pub(crate) fn challenge(&self, token: Option<&str>) -> Option<String> {
        let script = self.script();
        if token.is_some_and(|token| script.valid.contains(token)) {
            return None;
        }
        Some(script.challenge())
    }
}

impl Script {
    fn new(base: &str) -> Self {
        let mut script = Self {
            base: base.to_owned(),
            documents: HashMap::new(),
            prefix: String::new(),
            hooks: HashMap::new(),
            always: HashMap::new(),
            iss: None,
            grant: Map::from_iter([("expires_in".to_owned(), json!(3600))]),
            rotate: true,
            registration: Map::new(),
            challenge: String::new(),
            valid: HashSet::new(),
            refresh: HashSet::new(),
            codes: HashMap::new(),
            count: 0,
            reused: 0,
            seen: Vec::new(),
        };
        script.put(
            "/.well-known/oauth-protected-resource/mcp",
            json!({"resource": format!("{base}/mcp"), "authorization_servers": [base]}),
        );
        let metadata = script.metadata(base);
        script.put("/.well-known/oauth-authorization-server", metadata);
        script
    }

    pub(crate) fn put(&mut self, path: &str, document: Value) {
        self.documents.insert(path.to_owned(), Some(document));
    }

    pub(crate) fn metadata(&self, issuer: &str) -> Value {
        let at = |name: &str| format!("{}{}/{name}", self.base, self.prefix);
        json!({
            "issuer": issuer,
            "authorization_endpoint": at("authorize"),
            "token_endpoint": at("token"),
            "registration_endpoint": at("register"),
            "response_types_supported": ["code"],
            "code_challenge_methods_supported": ["S256"],
            "token_endpoint_auth_methods_supported": ["none", "client_secret_basic"],
        })
    }

    fn challenge(&self) -> String {
        format!(
            "Bearer error=\"invalid_token\"{}",
            if self.challenge.is_empty() {
                String::new()
            } else {
                format!(", {}", self.challenge)
            }
        )
    }

    fn issue(&mut self, with_refresh: bool) -> Map<String, Value> {
        self.count += 1;
        let (access, refresh) = (
            format!("access-{}", self.count),
            format!("refresh-{}", self.count),
        );
        let mut answer = Map::from_iter([
            ("access_token".to_owned(), json!(access)),
            ("token_type".to_owned(), json!("Bearer")),
        ]);
        if with_refresh {
            answer.insert("refresh_token".to_owned(), json!(refresh));
            self.refresh.insert(refresh);
        }
        answer.extend(self.grant.clone());
        self.valid.insert(access);
        answer
    }

    fn play(&mut self, seen: &Seen) -> Reply {
        let route = format!("{} {}", seen.method, seen.path);
        if let Some(hook) = self.hooks.get_mut(&route).and_then(VecDeque::pop_front)
            && let Some(reply) = hook()
        {
            return reply;
        }
        if let Some(reply) = self.always.get(&route) {
            return reply.clone();
        }
        if let Some(document) = self.documents.get(&seen.path) {
            return match document {
                Some(document) => Reply::json(200, document),
                None => Reply::empty(404),
            };
        }
        let path = seen
            .path
            .strip_prefix(self.prefix.as_str())
            .unwrap_or_default();
        match (seen.method.as_str(), path) {
            ("POST", "/register") => self.register(seen),
            ("GET", "/authorize") => self.authorize(seen),
            ("POST", "/token") => self.token(seen),
            _ if seen.path == "/mcp" => self.mcp(seen),
            _ => Reply::empty(404),
        }
    }

    fn register(&mut self, seen: &Seen) -> Reply {
        self.count += 1;
        let mut answer = seen.json.as_object().cloned().unwrap_or_default();
        answer.insert(
            "client_id".to_owned(),
            json!(format!("client-{}", self.count)),
        );
        answer.extend(self.registration.clone());
        Reply::json(201, &Value::Object(answer))
    }

    fn authorize(&mut self, seen: &Seen) -> Reply {
        self.count += 1;
        let code = format!("code-{}", self.count);
        let mut target = url::Url::parse(&seen.query["redirect_uri"]).unwrap();
        {
            let mut query = target.query_pairs_mut();
            query.append_pair("code", &code);
            query.append_pair("state", &seen.query["state"]);
            if let Some(iss) = &self.iss {
                query.append_pair("iss", iss);
            }
        }
        self.codes.insert(code, seen.clone());
        Reply::empty(302).header("Location", target.as_str())
    }

    fn token(&mut self, seen: &Seen) -> Reply {
        let denied = |code: &str| Reply::json(400, &json!({"error": code}));
        let field = |name: &str| seen.form.get(name).map_or("", String::as_str);
        match field("grant_type") {
            "authorization_code" => {
                let Some(asked) = self.codes.remove(field("code")) else {
                    return denied("invalid_grant");
                };
                let challenge =
                    URL_SAFE_NO_PAD.encode(Sha256::digest(field("code_verifier").as_bytes()));
                if asked.query["code_challenge"] != challenge
                    || asked.query["redirect_uri"] != field("redirect_uri")
                    || asked.query.get("resource") != seen.form.get("resource")
                    || asked.query["client_id"] != client_of(seen)
                {
                    return denied("invalid_grant");
                }
                Reply::json(200, &Value::Object(self.issue(true)))
            }
            "refresh_token" => {
                let refresh = field("refresh_token").to_owned();
                if !self.refresh.contains(&refresh) {
                    self.reused += 1;
                    return denied("invalid_grant");
                }
                if self.rotate {
                    self.refresh.remove(&refresh);
                }
                let answer = self.issue(self.rotate);
                Reply::json(200, &Value::Object(answer))
            }
            _ => denied("unsupported_grant_type"),
        }
    }

    fn mcp(&mut self, seen: &Seen) -> Reply {
        let token = seen
            .headers
            .get("authorization")
            .and_then(|value| value.strip_prefix("Bearer "));
        if !token.is_some_and(|token| self.valid.contains(token)) {
            return Reply::json(401, &json!({"error": "invalid_token"}))
                .header("WWW-Authenticate", &self.challenge());
        }
        let Some(id) = seen.json.get("id") else {
            return Reply::empty(if seen.method == "POST" { 202 } else { 405 });
        };
        let answer = match seen.json["method"].as_str().unwrap_or_default() {
            "initialize" => json!({"result": {
                "protocolVersion": "2025-11-25",
                "capabilities": {"tools": {}},
                "serverInfo": {"name": "guarded", "version": "1"},
            }}),
            "tools/list" => json!({"result": {"tools": []}}),
            "ping" => json!({"result": {}}),
            _ => json!({"error": {"code": -32601, "message": "no such method"}}),
        };
        let mut answer = answer;
        answer["jsonrpc"] = json!("2.0");
        answer["id"] = id.clone();
        Reply::json(200, &answer)
    }
}

/// The client of a token request, from the form or the header.
pub(crate) fn client_of(seen: &Seen) -> String {
    if let Some(id) = seen.form.get("client_id") {
        return id.clone();
    }
    let header = seen.headers.get("authorization").map_or("", String::as_str);
    let pair = STANDARD
        .decode(header.trim_start_matches("Basic "))
        .unwrap_or_default();
    let pair = String::from_utf8_lossy(&pair).into_owned();
    pair.split(':').next().unwrap_or_default().to_owned()
}

async fn serve(mut stream: TcpStream, script: &Mutex<Script>) -> std::io::Result<()> {
    let mut bytes = Vec::new();
    loop {
        let Some((seen, used)) = parse(&bytes) else {
            let mut chunk = [0; 4096];
            let read = stream.read(&mut chunk).await?;
            if read == 0 {
                return Ok(());
            }
            bytes.extend_from_slice(&chunk[..read]);
            continue;
        };
        bytes.drain(..used);
        let reply = {
            let mut script = script.lock().unwrap_or_else(PoisonError::into_inner);
            script.seen.push(seen.clone());
            script.play(&seen)
        };
        let mut text = format!("HTTP/1.1 {} X\r\n", reply.status);
        for (name, value) in &reply.headers {
            write!(text, "{name}: {value}\r\n").unwrap();
        }
        write!(
            text,
            "Content-Length: {}\r\n\r\n{}",
            reply.body.len(),
            reply.body
        )
        .unwrap();
        stream.write_all(text.as_bytes()).await?;
    }
}

/// A complete request and its length.
fn parse(bytes: &[u8]) -> Option<(Seen, usize)> {
    let end = bytes.windows(4).position(|end| end == b"\r\n\r\n")? + 4;
    let head = std::str::from_utf8(&bytes[..end]).unwrap();
    let mut lines = head.lines();
    let mut words = lines.next().unwrap().split(' ');
    let (method, target) = (words.next().unwrap(), words.next().unwrap());
    let headers: HashMap<String, String> = lines
        .filter_map(|line| line.split_once(':'))
        .map(|(name, value)| (name.to_ascii_lowercase(), value.trim().to_owned()))
        .collect();
    let length: usize = headers
        .get("content-length")
        .map_or(0, |length| length.parse().unwrap());
    let body = bytes.get(end..end + length)?;
    let (path, query) = target.split_once('?').unwrap_or((target, ""));
    let pairs = |text: &[u8]| url::form_urlencoded::parse(text).into_owned().collect();
    let is_form = headers
        .get("content-type")
        .is_some_and(|kind| kind.starts_with("application/x-www-form-urlencoded"));
    Some((
        Seen {
            method: method.to_owned(),
            path: path.to_owned(),
            query: pairs(query.as_bytes()),
            form: if is_form { pairs(body) } else { HashMap::new() },
            json: serde_json::from_slice(body).unwrap_or_default(),
            headers,
        },
        end + length,
    ))
}

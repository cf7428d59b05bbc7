//! Parses one entry into a [`ServerConfig`].

use std::collections::BTreeMap;
use std::time::Duration;

use hermes_config::{Env, Home};
use serde_json::{Map, Value};
use url::Url;

use crate::tools::naming::short_hash;

use super::read::{Reader, interpolate, parse_bool};
use super::{
    ClientCert, Elicitation, NON_CONNECTION_KEYS, OAuth, Protocol, Retry, Sampling, ServerAuth,
    ServerConfig, ServerEntry, ServerTransport, Tls, ToolFilter, Verify, unsafe_command,
};

const KNOWN_KEYS: &[&str] = &[
    "enabled",
    "command",
    "args",
    "env",
    "url",
    "headers",
    "transport",
    "timeout",
    "max_timeout",
    "connect_timeout",
    "keepalive_interval",
    "idle_timeout_seconds",
    "max_lifetime_seconds",
    "lifecycle",
    "supports_parallel_tool_calls",
    "max_concurrency",
    "skip_preflight",
    "ssl_verify",
    "client_cert",
    "client_key",
    "auth",
    "oauth",
    "tools",
    "sampling",
    "elicitation",
    "protocol",
    "lazy",
    "trust",
    "retry",
    "session_error_markers",
    "hide_when_parked",
    "sse_idle_timeout",
    "identity_header",
    "allow_unsafe_command",
];

/// Shorter intervals are raised to this.
const MIN_KEEPALIVE: Duration = Duration::from_secs(5);
const DEFAULT_KEEPALIVE: Duration = Duration::from_mins(3);
const MAX_CALL_TIMEOUT: Duration = Duration::from_hours(1);

const RETRY_VALUES: &[(&str, Retry)] = &[
    ("safe", Retry::Safe),
    ("auto", Retry::Safe),
    ("read_only", Retry::ReadOnly),
    ("always", Retry::Always),
    ("never", Retry::Never),
];

const AUTH_VALUES: &[(&str, ServerAuth)] = &[
    ("oauth", ServerAuth::OAuth),
    ("header", ServerAuth::Plain),
    ("bearer", ServerAuth::Plain),
    ("none", ServerAuth::Plain),
];
const PROTOCOL_VALUES: &[(&str, Protocol)] = &[
    ("auto", Protocol::Auto),
    ("legacy", Protocol::Legacy),
    ("modern", Protocol::Modern),
    ("stateless", Protocol::Modern),
];

pub(super) fn entry(name: &str, raw: &Value, env: &Env, home: &Home) -> ServerEntry {
    let at = format!("mcp_servers.{name}");
    let mut value = raw.clone();
    let mut unset = Vec::new();
    interpolate(&mut value, env, &mut unset);
    let empty = Map::new();
    let (map, usable) = match &value {
        Value::Object(map) => (map, true),
        _ => (&empty, false),
    };
    let mut reader = Reader::new(at, map);
    if !usable {
        reader.problem(
            "",
            "must be settings such as `url: …` or `command: …`",
            true,
        );
    }
    for name in unset {
        let text = format!("refers to ${{{name}}}, which is not set");
        reader.problem("", text, false);
    }
    let config = if usable {
        read(name, &mut reader, map, home)
    } else {
        None
    };
    let problems = reader.problems;
    let fatal = problems.iter().any(|problem| problem.fatal);
    ServerEntry {
        name: name.to_owned(),
        config: config.filter(|_| !fatal),
        problems,
    }
}

fn read(
    name: &str,
    reader: &mut Reader<'_>,
    map: &Map<String, Value>,
    home: &Home,
) -> Option<ServerConfig> {
    reader.report_unknown_keys(KNOWN_KEYS);
    if name.trim().is_empty() {
        reader.problem("", "a server needs a name", true);
    }
    let transport = transport(reader, home);
    let (timeout, max_timeout) = call_timeouts(reader);
    let (idle_timeout, max_lifetime) = lifecycle(reader);
    let (retry, retry_tools) = retry(reader);
    Some(ServerConfig {
        name: name.to_owned(),
        enabled: reader.flag("enabled", true),
        timeout,
        max_timeout,
        connect_timeout: reader.duration("connect_timeout", 60),
        keepalive: keepalive(reader),
        idle_timeout,
        max_lifetime,
        parallel_calls: reader.flag("supports_parallel_tool_calls", false),
        max_concurrency: reader
            .count("max_concurrency", 256)
            .filter(|count| *count > 0)
            .map(|count| count as usize),
        skip_preflight: reader.flag("skip_preflight", false),
        tls: tls(reader, home),
        auth: reader.choice("auth", ServerAuth::Plain, AUTH_VALUES),
        oauth: oauth(reader),
        tools: tools(reader),
        sampling: sampling(reader),
        elicitation: elicitation(reader),
        protocol: reader.choice("protocol", Protocol::Auto, PROTOCOL_VALUES),
        trusted: reader.choice("trust", false, &[("full", true), ("untrusted", false)]),
        retry,
        retry_tools,
        session_error_markers: markers(reader),
        hide_when_parked: reader.flag("hide_when_parked", false),
        sse_idle_timeout: reader.optional_duration("sse_idle_timeout"),
        lazy: reader.flag("lazy", false),
        connection_fingerprint: fingerprint(map, NON_CONNECTION_KEYS),
        fingerprint: fingerprint(map, &[]),
        transport: transport?,
    })
}

/// `timeout` and `max_timeout`.
fn call_timeouts(reader: &mut Reader<'_>) -> (Duration, Duration) {
    let timeout = reader.duration("timeout", 300);
    let max_timeout = reader
        .optional_duration("max_timeout")
        .unwrap_or_else(|| (timeout * 4).min(MAX_CALL_TIMEOUT))
        .max(timeout);
    (timeout, max_timeout)
}

/// `idle_timeout_seconds` and `max_lifetime_seconds`, of the server or in its `lifecycle` section.
fn lifecycle(reader: &mut Reader<'_>) -> (Option<Duration>, Option<Duration>) {
    let mut section = reader.section("lifecycle");
    let mut read = |key: &str| {
        if reader.raw(key).is_some() {
            reader.optional_duration(key)
        } else {
            section.optional_duration(key)
        }
    };
    let values = (read("idle_timeout_seconds"), read("max_lifetime_seconds"));
    reader.problems.append(&mut section.problems);
    values
}

fn transport(reader: &mut Reader<'_>, home: &Home) -> Option<ServerTransport> {
    let sse = reader.choice(
        "transport",
        false,
        &[
            ("sse", true),
            ("http", false),
            ("streamable-http", false),
            ("streamable_http", false),
            ("stdio", false),
        ],
    );
    let (url, command) = (reader.text("url"), reader.text("command"));
    match (url, command) {
        (None, None) => {
            reader.problem(
                "",
                "needs `url:` (a remote server) or `command:` (a local one)",
                true,
            );
            None
        }
        (Some(url), command) => {
            if command.is_some() {
                let text = "there is a url too, which counts; the command is not used";
                reader.problem("command", text, false);
            }
            let url = server_url(&url)
                .map_err(|why| reader.problem("url", why, true))
                .ok()?;
            let mut headers = headers(reader);
            headers.extend(identity(reader, home));
            Some(if sse {
                ServerTransport::Sse { url, headers }
            } else {
                ServerTransport::Http { url, headers }
            })
        }
        (None, Some(command)) => {
            let args = reader.texts("args");
            let allowed = reader.flag("allow_unsafe_command", false);
            for why in unsafe_command::unsafe_reasons(&command, &args) {
                let text = if allowed {
                    format!("{why}; started because allow_unsafe_command is set")
                } else {
                    format!(
                        "not started: {why}. If you wrote this line yourself and mean it, set \
                         allow_unsafe_command: true next to it"
                    )
                };
                reader.problem("command", text, !allowed);
            }
            let env = reader.string_map("env").into_iter().collect();
            Some(ServerTransport::Stdio { command, args, env })
        }
    }
}

/// Drops names and values that cannot be sent, with a problem for each.
fn headers(reader: &mut Reader<'_>) -> Vec<(String, String)> {
    let mut out = Vec::new();
    for (name, value) in reader.string_map("headers") {
        if !is_header_name(&name) {
            reader.problem(
                &format!("headers.{name}"),
                "no name of a header; left out",
                false,
            );
        } else if value.contains(['\r', '\n', '\0']) {
            let text = "the value has a line break; left out";
            reader.problem(&format!("headers.{name}"), text, false);
        } else {
            out.push((name, value.trim().to_owned()));
        }
    }
    out
}

/// `identity_header`: a header that identifies this client to the server. The value is the profile
/// of this home unless given as `{name: …, value: …}`.
fn identity(reader: &mut Reader<'_>, home: &Home) -> Option<(String, String)> {
    let profile = || home.profile().unwrap_or("default").to_owned();
    let (name, value) = match reader.raw("identity_header")? {
        Value::Object(_) => {
            let mut section = reader.section("identity_header");
            section.report_unknown_keys(&["name", "value"]);
            let pair = (section.text("name"), section.text("value"));
            reader.problems.append(&mut section.problems);
            (pair.0?, pair.1.unwrap_or_else(profile))
        }
        _ => (reader.text("identity_header")?, profile()),
    };
    if !is_header_name(&name) || value.contains(['\r', '\n', '\0']) {
        let text = "no name of a header, or a value that cannot be sent; left out";
        reader.problem("identity_header", text, false);
        return None;
    }
    Some((name, value))
}

fn is_header_name(name: &str) -> bool {
    let token = |byte: u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte);
    !name.is_empty() && name.bytes().all(token)
}

fn server_url(text: &str) -> Result<Url, String> {
    let url = Url::parse(text.trim())
        .map_err(|error| format!("no usable URL ({error}); it looks like https://host/mcp"))?;
    if !matches!(url.scheme(), "http" | "https") {
        return Err(format!(
            "{}:// is not supported; use http:// or https://",
            url.scheme()
        ));
    }
    if url.host_str().is_none_or(str::is_empty) {
        return Err("the URL names no host".to_owned());
    }
    Ok(url)
}

/// Defaults to 180 s; 0 disables it.
fn keepalive(reader: &mut Reader<'_>) -> Option<Duration> {
    match reader.seconds("keepalive_interval") {
        None => Some(DEFAULT_KEEPALIVE),
        Some(0.0) => None,
        Some(seconds) => Some(Duration::from_secs_f64(seconds).max(MIN_KEEPALIVE)),
    }
}

fn tls(reader: &mut Reader<'_>, home: &Home) -> Tls {
    let verify = match reader.raw("ssl_verify") {
        None => Verify::Yes,
        Some(value) => match (parse_bool(value), value) {
            (Some(true), _) => Verify::Yes,
            (Some(false), _) => Verify::No,
            (None, Value::String(path)) => {
                let path = home.expand_user(path.trim());
                if !path.is_file() {
                    let text = format!("no file {}", path.display());
                    reader.problem("ssl_verify", text, true);
                }
                Verify::CaFile(path)
            }
            _ => {
                let text = "expected true, false or the path of a CA file";
                reader.problem("ssl_verify", text, true);
                Verify::Yes
            }
        },
    };
    Tls {
        verify,
        client: client_cert(reader, home),
    }
}

fn client_cert(reader: &mut Reader<'_>, home: &Home) -> Option<ClientCert> {
    let listed = reader.raw("client_cert").is_some_and(Value::is_array);
    let parts = reader.texts("client_cert");
    let key = reader.text("client_key");
    if parts.is_empty() {
        if key.is_some() {
            reader.problem("client_key", "there is no client_cert to go with it", true);
        }
        return None;
    }
    if listed && (!(2..=3).contains(&parts.len()) || key.is_some()) {
        let text = "expected one path, or [certificate, key] or [certificate, key, passphrase]";
        reader.problem("client_cert", text, true);
        return None;
    }
    let mut file = |key: &str, path: &str| {
        let path = home.expand_user(path.trim());
        if !path.is_file() {
            reader.problem(key, format!("no file {}", path.display()), true);
        }
        path
    };
    let cert = file("client_cert", parts.first()?);
    let key = match (&key, parts.get(1)) {
        (Some(path), _) => Some(file("client_key", path)),
        (None, Some(path)) => Some(file("client_cert", path)),
        (None, None) => None,
    };
    Some(ClientCert {
        cert,
        key,
        passphrase: parts.get(2).cloned(),
    })
}

fn oauth(reader: &mut Reader<'_>) -> OAuth {
    let mut section = reader.section("oauth");
    section.report_unknown_keys(&[
        "client_id",
        "client_secret",
        "client_metadata_url",
        "scope",
        "scopes",
        "redirect_port",
        "redirect_uri",
        "redirect_host",
        "client_name",
        "assume_pkce",
        "timeout",
    ]);
    let scopes = section.texts("scopes").join(" ");
    let oauth = OAuth {
        client_id: section.text("client_id"),
        client_secret: section.text("client_secret"),
        client_metadata_url: section.text("client_metadata_url"),
        scope: section
            .text("scope")
            .or_else(|| (!scopes.is_empty()).then_some(scopes)),
        redirect_port: section
            .count("redirect_port", 65_535)
            .and_then(|port| u16::try_from(port).ok())
            .unwrap_or(0),
        redirect_uri: section.text("redirect_uri"),
        redirect_host: section
            .text("redirect_host")
            .unwrap_or_else(|| "127.0.0.1".to_owned()),
        client_name: section
            .text("client_name")
            .unwrap_or_else(|| "Hermes Agent".to_owned()),
        assume_pkce: section.flag("assume_pkce", false),
        timeout: section.duration("timeout", 300),
    };
    reader.problems.append(&mut section.problems);
    oauth
}

fn tools(reader: &mut Reader<'_>) -> ToolFilter {
    let mut section = reader.section("tools");
    section.report_unknown_keys(&["include", "exclude", "resources", "prompts"]);
    let filter = ToolFilter {
        include: section.texts("include"),
        exclude: section.texts("exclude"),
        resources: section.flag("resources", true),
        prompts: section.flag("prompts", true),
    };
    for (key, patterns) in [("include", &filter.include), ("exclude", &filter.exclude)] {
        for pattern in patterns {
            if let Err(error) = globset::Glob::new(pattern) {
                section.problem(key, format!("{pattern:?} is not a pattern: {error}"), true);
            }
        }
    }
    reader.problems.append(&mut section.problems);
    filter
}

fn sampling(reader: &mut Reader<'_>) -> Sampling {
    let mut section = reader.section("sampling");
    let sampling = Sampling {
        enabled: section.flag("enabled", false),
        model: section.text("model"),
        max_tokens_cap: section.count("max_tokens_cap", 1_000_000).unwrap_or(4096),
        timeout: section.duration("timeout", 30),
        max_rpm: section.count("max_rpm", 10_000).unwrap_or(10),
        allowed_models: section.texts("allowed_models"),
        max_tool_rounds: section.count("max_tool_rounds", 1000).unwrap_or(5),
        log_level: section
            .text("log_level")
            .unwrap_or_else(|| "info".to_owned()),
    };
    reader.problems.append(&mut section.problems);
    sampling
}

fn elicitation(reader: &mut Reader<'_>) -> Elicitation {
    let mut section = reader.section("elicitation");
    let elicitation = Elicitation {
        enabled: section.flag("enabled", true),
        timeout: section.duration("timeout", 300),
    };
    reader.problems.append(&mut section.problems);
    elicitation
}

/// One value for all tools, or `{default: value, tools: {name: value}}`.
fn retry(reader: &mut Reader<'_>) -> (Retry, BTreeMap<String, Retry>) {
    if !reader.raw("retry").is_some_and(Value::is_object) {
        return (
            reader.choice("retry", Retry::Safe, RETRY_VALUES),
            BTreeMap::new(),
        );
    }
    let mut section = reader.section("retry");
    let default = section.choice("default", Retry::Safe, RETRY_VALUES);
    let mut tools = section.section("tools");
    let names: Vec<String> = match section.raw("tools") {
        Some(Value::Object(map)) => map.keys().cloned().collect(),
        _ => Vec::new(),
    };
    let by_tool = names
        .into_iter()
        .map(|name| {
            let retry = tools.choice(&name, default, RETRY_VALUES);
            (name, retry)
        })
        .collect();
    section.problems.append(&mut tools.problems);
    reader.problems.append(&mut section.problems);
    (default, by_tool)
}

fn markers(reader: &mut Reader<'_>) -> Vec<String> {
    reader
        .texts("session_error_markers")
        .into_iter()
        .map(|marker| marker.trim().to_lowercase())
        .filter(|marker| !marker.is_empty())
        .collect()
}

/// A hash of an entry without the keys in `except`, independent of their order.
fn fingerprint(map: &Map<String, Value>, except: &[&str]) -> String {
    let sorted: BTreeMap<&String, Value> = map
        .iter()
        .filter(|(key, _)| !except.contains(&key.as_str()))
        .map(|(key, value)| (key, sorted(value)))
        .collect();
    let text = serde_json::to_string(&sorted).unwrap_or_default();
    short_hash(&text, 32)
}

fn sorted(value: &Value) -> Value {
    match value {
        Value::Object(map) => {
            let entries: BTreeMap<&String, Value> = map
                .iter()
                .map(|(key, value)| (key, sorted(value)))
                .collect();
            entries
                .into_iter()
                .map(|(key, value)| (key.clone(), value))
                .collect()
        }
        Value::Array(items) => items.iter().map(sorted).collect(),
        other => other.clone(),
    }
}

//! What the server answers when nothing goes wrong.

use std::time::Duration;

use serde_json::{Value, json};

use super::Shared;
use super::plan::{Ping, Wire};

pub(super) const MODERN: &str = "2026-07-28";
const LEGACY: [&str; 4] = ["2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05"];

/// The outcome of one request.
pub(super) enum RequestOutcome {
    /// Notifications that go before it, and the result.
    Result(Vec<Value>, Value),
    Error(i64, String),
    /// No answer, ever.
    Never,
}

impl RequestOutcome {
    fn result(value: Value) -> Self {
        Self::Result(Vec::new(), value)
    }

    fn unknown_method(method: &str) -> Self {
        Self::Error(-32601, format!("Method not found: {method}"))
    }
}

/// What a fresh server offers.
pub(super) fn tools() -> Vec<Value> {
    let object = |properties: Value| json!({"type": "object", "properties": properties});
    vec![
        json!({
            "name": "echo",
            "description": "Says the text again.",
            "inputSchema": object(json!({"text": {"type": "string"}})),
            "annotations": {"readOnlyHint": true},
        }),
        json!({
            "name": "bump",
            "description": "Counts one up. Every run is an effect.",
            "inputSchema": object(json!({})),
        }),
        json!({
            "name": "slow",
            "description": "Waits until the test opens its gate.",
            "inputSchema": object(json!({"gate": {"type": "string"}})),
        }),
        json!({
            "name": "fail",
            "description": "Reports an error of its own.",
            "inputSchema": object(json!({"text": {"type": "string"}})),
        }),
        json!({
            "name": "steps",
            "description": "Reports progress, one step per pause.",
            "inputSchema": object(json!({
                "count": {"type": "integer"},
                "pause_ms": {"type": "integer"},
            })),
        }),
    ]
}

pub(super) fn resources() -> Vec<Value> {
    vec![json!({"uri": "test://note", "name": "note", "mimeType": "text/plain"})]
}

pub(super) fn prompts() -> Vec<Value> {
    vec![json!({"name": "greet", "description": "Greets.", "arguments": [{"name": "who"}]})]
}

pub(super) fn capabilities() -> Value {
    json!({
        "tools": {"listChanged": true},
        "resources": {"listChanged": true},
        "prompts": {"listChanged": true},
        "logging": {},
    })
}

fn server_info() -> Value {
    json!({"name": "faulty", "version": "1.0.0"})
}

/// Runs one request to its end.
pub(super) async fn execute(shared: &Shared, body: &Value) -> RequestOutcome {
    let params = &body["params"];
    let method = body["method"].as_str().unwrap_or_default();
    let modern = shared.state().wire == Wire::Modern;
    let done = match method {
        "initialize" if !modern => RequestOutcome::result(initialize(shared, params)),
        "ping" if !modern => {
            shared.count(|counts| counts.pings += 1);
            let ping = shared.state().ping;
            match ping {
                Ping::Answered => RequestOutcome::result(json!({})),
                Ping::Unknown => RequestOutcome::unknown_method(method),
                Ping::Mute => RequestOutcome::Never,
            }
        }
        "logging/setLevel" if !modern => RequestOutcome::result(json!({})),
        "server/discover" if modern => RequestOutcome::result(discover(shared)),
        "tools/list" => {
            shared.count(|counts| counts.tool_lists += 1);
            let (list, page) = {
                let state = shared.state();
                (state.tools.clone(), state.page)
            };
            RequestOutcome::result(paged("tools", &list, page, params))
        }
        "resources/list" => list("resources", &shared.state().resources),
        "resources/templates/list" => list("resourceTemplates", &[]),
        "prompts/list" => list("prompts", &shared.state().prompts),
        "resources/read" => read(shared, params),
        "prompts/get" => prompt(shared, params),
        "tools/call" => call(shared, params).await,
        other => RequestOutcome::unknown_method(other),
    };
    match done {
        RequestOutcome::Result(before, mut result) if modern => {
            result["resultType"] = json!("complete");
            if method.ends_with("/list") || method == "resources/read" {
                result["ttlMs"] = json!(0);
                result["cacheScope"] = json!("private");
            }
            RequestOutcome::Result(before, result)
        }
        done => done,
    }
}

fn initialize(shared: &Shared, params: &Value) -> Value {
    shared.count(|counts| counts.initializes += 1);
    let asked = params["protocolVersion"].as_str().unwrap_or_default();
    let version = LEGACY.iter().find(|known| **known == asked);
    let state = shared.state();
    json!({
        "protocolVersion": version.unwrap_or(&LEGACY[0]),
        "capabilities": state.capabilities,
        "serverInfo": server_info(),
        "instructions": "Use with care.",
    })
}

fn discover(shared: &Shared) -> Value {
    shared.count(|counts| counts.discovers += 1);
    json!({
        "supportedVersions": [MODERN],
        "capabilities": shared.state().capabilities,
        "instructions": "Use with care.",
        "ttlMs": 0,
        "cacheScope": "private",
        "_meta": {"io.modelcontextprotocol/serverInfo": server_info()},
    })
}

fn list(key: &str, items: &[Value]) -> RequestOutcome {
    RequestOutcome::result(json!({key: items}))
}

fn paged(key: &str, items: &[Value], page: Option<usize>, params: &Value) -> Value {
    let from: usize = params["cursor"]
        .as_str()
        .and_then(|cursor| cursor.parse().ok())
        .unwrap_or(0);
    let to = page.map_or(items.len(), |page| (from + page).min(items.len()));
    let mut result = json!({key: items.get(from..to).unwrap_or_default()});
    if to < items.len() {
        result["nextCursor"] = json!(to.to_string());
    }
    result
}

fn read(shared: &Shared, params: &Value) -> RequestOutcome {
    let uri = &params["uri"];
    let known = shared.state().resources.iter().any(|r| r["uri"] == *uri);
    if !known {
        return RequestOutcome::Error(-32002, format!("Resource not found: {uri}"));
    }
    RequestOutcome::result(
        json!({"contents": [{"uri": uri, "mimeType": "text/plain", "text": "a note"}]}),
    )
}

fn prompt(shared: &Shared, params: &Value) -> RequestOutcome {
    let name = &params["name"];
    let known = shared.state().prompts.iter().any(|p| p["name"] == *name);
    if !known {
        return RequestOutcome::Error(-32602, format!("Unknown prompt: {name}"));
    }
    let who = params["arguments"]["who"].as_str().unwrap_or("you");
    RequestOutcome::result(json!({
        "messages": [{"role": "user", "content": {"type": "text", "text": format!("Greet {who}")}}],
    }))
}

async fn call(shared: &Shared, params: &Value) -> RequestOutcome {
    let name = params["name"].as_str().unwrap_or_default();
    let arguments = &params["arguments"];
    // Not on the list, which stays as short as tests expect it.
    let known = name == "answer" || shared.state().tools.iter().any(|tool| tool["name"] == name);
    if !known {
        return RequestOutcome::Error(-32602, format!("Unknown tool: {name}"));
    }
    let _running = Running::begin(shared);
    match name {
        "bump" | "answer" => {
            if let Some(token) = arguments["token"].as_str() {
                shared.state().marks.push(token.to_owned());
            }
            let mut number = 0;
            shared.count(|counts| {
                counts.effects += 1;
                number = counts.effects;
            });
            text_result(&number.to_string(), false)
        }
        "slow" => {
            let gate = shared.gate(arguments["gate"].as_str().unwrap_or("slow"));
            gate.pass().await;
            text_result("slow but done", false)
        }
        "fail" if arguments["code"].is_i64() => RequestOutcome::Error(
            arguments["code"].as_i64().unwrap_or_default(),
            arguments["text"].as_str().unwrap_or_default().to_owned(),
        ),
        "fail" => text_result(arguments["text"].as_str().unwrap_or("no"), true),
        "steps" => steps(params).await,
        // Tools a test added answer like echo.
        _ => text_result(arguments["text"].as_str().unwrap_or(name), false),
    }
}

fn text_result(text: &str, is_error: bool) -> RequestOutcome {
    RequestOutcome::result(
        json!({"content": [{"type": "text", "text": text}], "isError": is_error}),
    )
}

async fn steps(params: &Value) -> RequestOutcome {
    let count = params["arguments"]["count"].as_u64().unwrap_or(3);
    let pause = params["arguments"]["pause_ms"].as_u64().unwrap_or(0);
    let token = &params["_meta"]["progressToken"];
    let mut before = Vec::new();
    for step in 1..=count {
        tokio::time::sleep(Duration::from_millis(pause)).await;
        if !token.is_null() {
            before.push(json!({
                "jsonrpc": "2.0",
                "method": "notifications/progress",
                "params": {
                    "progressToken": token,
                    "progress": step,
                    "total": count,
                    "message": format!("step {step}"),
                },
            }));
        }
    }
    let result = json!({"content": [{"type": "text", "text": "all steps done"}], "isError": false});
    RequestOutcome::Result(before, result)
}

/// Counts a running tool, also when its connection breaks off.
struct Running<'a>(&'a Shared);

impl<'a> Running<'a> {
    fn begin(shared: &'a Shared) -> Self {
        shared.count(|counts| {
            counts.running += 1;
            counts.peak = counts.peak.max(counts.running);
        });
        Self(shared)
    }
}

impl Drop for Running<'_> {
    fn drop(&mut self) {
        self.0.count(|counts| counts.running -= 1);
    }
}

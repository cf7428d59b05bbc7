//! HTTP: who asks, what for, what may go wrong, and the answer.

use std::io;
use std::sync::Arc;

use serde_json::{Value, json};
use tokio::net::TcpStream;

use super::faults::{BucketUse, DiscordFaultKind};
use super::multipart::{MultipartPart, parts};
use super::state::{BOT, DiscordRequest, FakeDiscordState, GUILD, snowflake};
use super::{FakeDiscordShared, commands, control, messages};
use crate::model_server::http::{ArrivedRequest, HttpConnection, head};

/// An answer before it is written.
pub(super) enum RestAnswer {
    Json(u16, Value),
    Empty,
    File(Vec<u8>),
}

/// A request, read.
pub(super) struct RestRequest<'a> {
    pub method: &'a str,
    /// The path in its parts, without `/api/v10`.
    pub path: Vec<&'a str>,
    pub query: Vec<(String, String)>,
    pub body: Value,
    pub files: Vec<MultipartPart>,
    pub base: String,
}

impl RestRequest<'_> {
    pub(super) fn query(&self, name: &str) -> Option<&str> {
        let found = self.query.iter().find(|(key, _)| key == name);
        found.map(|(_, value)| value.as_str())
    }

    pub(super) fn number(&self, name: &str) -> Option<u64> {
        self.query(name).and_then(|text| text.parse().ok())
    }
}

pub(super) fn error(status: u16, code: u32, message: &str) -> RestAnswer {
    RestAnswer::Json(status, json!({"code": code, "message": message}))
}

/// A body that does not fit the form.
pub(super) fn invalid(field: &str, code: &str, message: &str) -> RestAnswer {
    RestAnswer::Json(
        400,
        json!({
            "code": 50035, "message": "Invalid Form Body",
            "errors": {field: {"_errors": [{"code": code, "message": message}]}},
        }),
    )
}

pub(super) async fn serve(stream: TcpStream, shared: Arc<FakeDiscordShared>) -> io::Result<()> {
    if shared.world().offline {
        return stream.set_zero_linger();
    }
    stream.set_nodelay(true)?;
    let mut connection = HttpConnection::new(stream);
    while let Some(incoming) = connection.next().await? {
        let keep = incoming.keep_alive;
        let (done, fault) = answer(&shared, &incoming);
        shared.changed();
        match fault {
            Some(DiscordFaultKind::Lost | DiscordFaultKind::AnswerLost) => {
                connection.reset();
                return Ok(());
            }
            Some(DiscordFaultKind::Hang) => {
                connection.gone().await;
                return Ok(());
            }
            _ => {}
        }
        let (answer, headers) = done;
        let (status, kind, body) = match answer {
            RestAnswer::Json(status, value) => {
                (status, "application/json", value.to_string().into())
            }
            RestAnswer::Empty => (204, "text/html; charset=utf-8", Vec::new()),
            RestAnswer::File(bytes) => (200, "application/octet-stream", bytes),
        };
        let mut bytes = head(status, kind, &headers, Some(body.len())).into_bytes();
        bytes.extend(body);
        connection.write(&bytes).await?;
        if !keep {
            return Ok(());
        }
    }
    Ok(())
}

type RestResult = (RestAnswer, Vec<(String, String)>);

fn answer(
    shared: &FakeDiscordShared,
    incoming: &ArrivedRequest,
) -> (RestResult, Option<DiscordFaultKind>) {
    let (path, query) = incoming
        .path
        .split_once('?')
        .unwrap_or((incoming.path.as_str(), ""));
    let bare = |answer| ((answer, Vec::new()), None);
    if path == "/control" {
        let order = serde_json::from_slice(&incoming.body).unwrap_or(Value::Null);
        return bare(RestAnswer::Json(200, control::obey(shared, &order)));
    }
    if path.starts_with("/attachments/") {
        let file = shared.world().files.get(path).cloned();
        return bare(file.map_or_else(|| error(404, 0, "404: Not Found"), RestAnswer::File));
    }
    let Some(rest) = path.strip_prefix("/api/v10/") else {
        return bare(error(404, 0, "404: Not Found"));
    };
    let (body, files) = body(incoming);
    let gateway = shared.gateway_url();
    let mut world = shared.world();
    world.requests.push(DiscordRequest {
        method: incoming.method.clone(),
        path: incoming.path["/api/v10".len()..].to_owned(),
        body: body.clone(),
        headers: incoming.headers.clone(),
    });
    let fault = take_fault(&mut world, &incoming.method, path);
    match &fault {
        Some(DiscordFaultKind::Lost) => return (no_answer(), fault),
        Some(DiscordFaultKind::Limited { seconds, global }) => {
            return (limited(*seconds, *global), None);
        }
        Some(DiscordFaultKind::Status(status, value)) => {
            return bare(RestAnswer::Json(*status, value.clone()));
        }
        _ => {}
    }
    let segments: Vec<&str> = rest.split('/').collect();
    let open = matches!(segments[0], "interactions" | "webhooks" | "gateway")
        && segments.last() != Some(&"bot");
    let key = incoming
        .headers
        .iter()
        .find(|(name, _)| name == "authorization");
    if !open && key.is_none_or(|(_, value)| *value != format!("Bot {}", world.token)) {
        return bare(error(401, 0, "401: Unauthorized"));
    }
    let spent = world.limits.spend(&bucket(&incoming.method, &segments));
    if spent.over {
        return (limited(spent.reset_after, false), None);
    }
    let request = RestRequest {
        method: &incoming.method,
        path: segments,
        query: pairs(query),
        body,
        files,
        base: shared.root_url(),
    };
    let answer = route(&mut world, &request, &gateway);
    ((answer, limit_headers(&spent)), fault)
}

fn no_answer() -> RestResult {
    (RestAnswer::Empty, Vec::new())
}

fn limited(seconds: f64, global: bool) -> RestResult {
    let body = json!({
        "message": "You are being rate limited.", "retry_after": seconds, "global": global,
    });
    let scope = if global { "global" } else { "user" };
    let headers = vec![
        ("retry-after".to_owned(), seconds.ceil().to_string()),
        ("x-ratelimit-scope".to_owned(), scope.to_owned()),
        ("x-ratelimit-global".to_owned(), global.to_string()),
        ("via".to_owned(), "1.1 fake".to_owned()),
    ];
    (RestAnswer::Json(429, body), headers)
}

fn limit_headers(spent: &BucketUse) -> Vec<(String, String)> {
    [
        ("x-ratelimit-limit", spent.limit.to_string()),
        ("x-ratelimit-remaining", spent.remaining.to_string()),
        (
            "x-ratelimit-reset-after",
            format!("{:.3}", spent.reset_after),
        ),
        (
            "x-ratelimit-reset",
            format!(
                "{:.3}",
                chrono::Utc::now().timestamp_millis() as f64 / 1e3 + spent.reset_after
            ),
        ),
        ("x-ratelimit-bucket", spent.bucket.clone()),
    ]
    .map(|(name, value)| (name.to_owned(), value))
    .to_vec()
}

/// Method, kind of route, and the channel, server or interaction that it is about.
fn bucket(method: &str, segments: &[&str]) -> String {
    let shape: Vec<&str> = segments
        .iter()
        .enumerate()
        .map(|(at, part)| {
            let id = at > 1 && part.bytes().all(|byte| byte.is_ascii_digit());
            if id { "{}" } else { part }
        })
        .collect();
    format!("{method} {}", shape.join("/"))
}

fn take_fault(world: &mut FakeDiscordState, method: &str, path: &str) -> Option<DiscordFaultKind> {
    let at = world
        .faults
        .iter()
        .position(|one| one.method == method && path.contains(one.path))?;
    let fault = &mut world.faults[at];
    let kind = fault.kind.clone();
    fault.times -= 1;
    if fault.times == 0 {
        world.faults.remove(at);
    }
    Some(kind)
}

fn body(incoming: &ArrivedRequest) -> (Value, Vec<MultipartPart>) {
    let kind = incoming
        .headers
        .iter()
        .find(|(name, _)| name == "content-type")
        .map_or("", |(_, value)| value);
    let Some((_, boundary)) = kind.split_once("boundary=") else {
        let value = serde_json::from_slice(&incoming.body).unwrap_or(Value::Null);
        return (value, Vec::new());
    };
    let mut all = parts(&incoming.body, boundary.trim_matches('"'));
    let json = all.iter().position(|part| part.name == "payload_json");
    let value = json
        .map(|at| all.remove(at))
        .and_then(|part| serde_json::from_slice(&part.bytes).ok())
        .unwrap_or(Value::Null);
    (value, all)
}

fn pairs(query: &str) -> Vec<(String, String)> {
    query
        .split('&')
        .filter_map(|pair| pair.split_once('='))
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .collect()
}

fn route(world: &mut FakeDiscordState, request: &RestRequest<'_>, gateway: &str) -> RestAnswer {
    let path = request.path.as_slice();
    match (request.method, path) {
        ("GET", ["gateway"]) => RestAnswer::Json(200, json!({"url": gateway})),
        ("GET", ["gateway", "bot"]) => RestAnswer::Json(
            200,
            json!({
                "url": gateway, "shards": 1,
                "session_start_limit": {
                    "total": 1000, "remaining": 999, "reset_after": 14_400_000,
                    "max_concurrency": 1,
                },
            }),
        ),
        ("GET", ["users", "@me"]) => RestAnswer::Json(200, world.user_value(BOT)),
        ("POST", ["users", "@me", "channels"]) => {
            let recipient = snowflake(&request.body["recipient_id"]);
            match recipient.filter(|id| world.users.contains_key(id)) {
                Some(user) => {
                    let id = world.direct(user);
                    RestAnswer::Json(200, world.channel_value(id))
                }
                None => error(400, 50033, "Invalid Recipient(s)"),
            }
        }
        ("GET", ["oauth2", "applications", "@me"] | ["applications", "@me"]) => {
            RestAnswer::Json(200, application(world))
        }
        ("GET", ["guilds", guild, rest @ ..]) if *guild == GUILD.to_string() => {
            of_guild(world, rest)
        }
        (_, ["guilds", ..]) => error(404, 10004, "Unknown Guild"),
        (_, ["channels", id, rest @ ..]) => {
            match id.parse().ok().filter(|id| world.channels.contains_key(id)) {
                Some(id) => messages::of_channel(world, request, id, rest),
                None => error(404, 10003, "Unknown Channel"),
            }
        }
        (_, ["applications", app, "commands", rest @ ..]) if *app == BOT.to_string() => {
            commands::registered(world, request, rest)
        }
        ("POST", ["interactions", id, token, "callback"]) => {
            commands::callback(world, request, id, token)
        }
        (_, ["webhooks", app, token, rest @ ..]) if *app == BOT.to_string() => {
            commands::followup(world, request, token, rest)
        }
        _ => error(404, 0, "404: Not Found"),
    }
}

fn application(world: &FakeDiscordState) -> Value {
    json!({
        "id": BOT.to_string(), "name": "hermes", "description": "", "icon": null,
        "bot_public": false, "bot_require_code_grant": false, "verify_key": "00",
        "owner": world.user_value(BOT), "flags": 0, "summary": "", "team": null,
    })
}

fn of_guild(world: &FakeDiscordState, path: &[&str]) -> RestAnswer {
    let of_kind = |kind: u8| -> Vec<Value> {
        let found = world.channels.values().filter(|one| one.kind == kind);
        found.map(|one| world.channel_value(one.id)).collect()
    };
    match path {
        ["channels"] => RestAnswer::Json(200, json!(of_kind(0))),
        ["threads", "active"] => {
            RestAnswer::Json(200, json!({"threads": of_kind(11), "members": []}))
        }
        ["members", id] => match id.parse().ok().filter(|id| world.users.contains_key(id)) {
            Some(id) => {
                let mut member = world.member_value(id);
                member["user"] = world.user_value(id);
                RestAnswer::Json(200, member)
            }
            None => error(404, 10007, "Unknown Member"),
        },
        _ => error(404, 0, "404: Not Found"),
    }
}

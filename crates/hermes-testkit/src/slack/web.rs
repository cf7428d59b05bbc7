//! HTTP: calls of the Web API, files, response URLs, and the test's own commands.

use std::io;
use std::sync::Arc;

use serde_json::{Map, Value, json};
use tokio::net::{TcpListener, TcpStream};
use tokio_util::sync::CancellationToken;

use super::state::{SlackCall, SlackFault};
use super::{FakeSlackShared, control};
use crate::model_server::http::{ArrivedRequest, HttpConnection, head};
use crate::server_thread;

pub(super) async fn accept(
    listener: TcpListener,
    shared: &Arc<FakeSlackShared>,
    stop: CancellationToken,
) {
    server_thread::accept("fake-slack-web", listener, stop, |stream| {
        let shared = Arc::clone(shared);
        async move {
            // A client that goes away is none of our business.
            let _ = connection(stream, &shared).await;
        }
    })
    .await;
}

/// What is answered, and how.
struct Reply {
    status: u16,
    content_type: &'static str,
    headers: Vec<(String, String)>,
    body: Vec<u8>,
    /// Played in place of an answer.
    fault: Option<SlackFault>,
}

impl Reply {
    fn json(status: u16, body: &Value) -> Self {
        Self {
            status,
            content_type: "application/json; charset=utf-8",
            headers: Vec::new(),
            body: body.to_string().into_bytes(),
            fault: None,
        }
    }

    fn bytes(status: u16, content_type: &'static str, body: Vec<u8>) -> Self {
        Self {
            status,
            content_type,
            headers: Vec::new(),
            body,
            fault: None,
        }
    }
}

async fn connection(stream: TcpStream, shared: &FakeSlackShared) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let mut connection = HttpConnection::new(stream);
    while let Some(request) = connection.next().await? {
        let keep_alive = request.keep_alive;
        let reply = answer(shared, &request);
        match reply.fault {
            Some(SlackFault::CutBefore | SlackFault::CutAfter) => {
                connection.reset();
                return Ok(());
            }
            Some(SlackFault::HangBefore | SlackFault::HangAfter) => {
                connection.gone().await;
                return Ok(());
            }
            _ => {}
        }
        let length = Some(reply.body.len());
        let mut bytes = head(reply.status, reply.content_type, &reply.headers, length).into_bytes();
        bytes.extend_from_slice(&reply.body);
        connection.write(&bytes).await?;
        if !keep_alive {
            return Ok(());
        }
    }
    Ok(())
}

fn answer(shared: &FakeSlackShared, request: &ArrivedRequest) -> Reply {
    let path = request.path.split('?').next().unwrap_or_default();
    if let Some(method) = path.strip_prefix("/api/") {
        return api(shared, method, request);
    }
    if path == "/control" {
        return Reply::json(200, &control::run(shared, &request.body));
    }
    if let Some(id) = path.strip_prefix("/upload/") {
        let fault = shared.change(|world| world.take_fault("upload"));
        if let Some(fault) = fault {
            return fail(fault);
        }
        let taken = shared.change(|world| world.upload(id, &request.body));
        let (status, text) = if taken {
            (200, "OK")
        } else {
            (400, "wrong length")
        };
        return Reply::bytes(status, "text/plain", text.as_bytes().to_vec());
    }
    if let Some(rest) = path.strip_prefix("/files-pri/") {
        return file(shared, rest.trim_start_matches("download/"), request);
    }
    if let Some(rest) = path.strip_prefix("/response/") {
        let mut parts = rest.split('/');
        let (team, channel, user) = (parts.next(), parts.next(), parts.next());
        let body: Value = serde_json::from_slice(&request.body).unwrap_or_default();
        shared.change(|world| {
            let place = world.teams.get_mut(team.unwrap_or_default());
            let place = place.and_then(|team| team.channels.get_mut(channel.unwrap_or_default()));
            if let Some(place) = place {
                let message = json!({"user": user, "text": body["text"], "by": "response_url"});
                place.ephemerals.push(message);
            }
        });
        return Reply::bytes(200, "text/plain", b"ok".to_vec());
    }
    Reply::bytes(404, "text/plain", b"no such path".to_vec())
}

fn api(shared: &FakeSlackShared, method: &str, request: &ArrivedRequest) -> Reply {
    let mut args = arguments(request);
    let token = header(request, "authorization")
        .and_then(|value| value.strip_prefix("Bearer ").map(str::to_owned))
        .or_else(|| args["token"].as_str().map(str::to_owned))
        .unwrap_or_default();
    if let Some(fields) = args.as_object_mut() {
        fields.remove("token");
    }
    shared.change(|world| {
        let call = SlackCall {
            method: method.to_owned(),
            token: token.clone(),
            args: args.clone(),
        };
        world.calls.push(call);
        let fault = world.take_fault(method);
        match fault {
            None | Some(SlackFault::CutAfter | SlackFault::HangAfter) => {
                let mut reply = match world.call(method, &token, &args) {
                    Ok(mut fields) => {
                        fields["ok"] = json!(true);
                        Reply::json(200, &fields)
                    }
                    Err(error) => Reply::json(200, &json!({"ok": false, "error": error})),
                };
                reply.fault = fault;
                reply
            }
            Some(fault) => fail(fault),
        }
    })
}

fn fail(fault: SlackFault) -> Reply {
    match fault {
        SlackFault::RateLimited(seconds) => {
            let mut reply = Reply::json(429, &json!({"ok": false, "error": "ratelimited"}));
            reply
                .headers
                .push(("retry-after".to_owned(), seconds.to_string()));
            reply
        }
        SlackFault::Status(status) => {
            Reply::bytes(status, "text/html", b"<html>oops</html>".to_vec())
        }
        SlackFault::Error(error) => Reply::json(200, &json!({"ok": false, "error": error})),
        cut => Reply {
            fault: Some(cut),
            ..Reply::bytes(200, "text/plain", Vec::new())
        },
    }
}

/// A file of a person. Without the token of its workspace there is a page to log in, as at Slack.
fn file(shared: &FakeSlackShared, rest: &str, request: &ArrivedRequest) -> Reply {
    let token = header(request, "authorization").unwrap_or_default();
    let world = shared.world();
    let owner = token
        .strip_prefix("Bearer ")
        .and_then(|token| world.team_of(token));
    let id = rest.split(['-', '/']).nth(1).unwrap_or_default();
    match owner.and_then(|team| team.files.get(id)) {
        Some((_, bytes)) => Reply::bytes(200, "application/octet-stream", bytes.clone()),
        None => Reply::bytes(200, "text/html; charset=utf-8", b"<!DOCTYPE html>".to_vec()),
    }
}

fn header(request: &ArrivedRequest, name: &str) -> Option<String> {
    let found = request.headers.iter().find(|(key, _)| key == name);
    found.map(|(_, value)| value.clone())
}

/// What a call was given: the query, and a body as JSON or as a form.
fn arguments(request: &ArrivedRequest) -> Value {
    let mut args = Map::new();
    if let Some((_, query)) = request.path.split_once('?') {
        args.extend(form(query));
    }
    let kind = header(request, "content-type").unwrap_or_default();
    if kind.starts_with("application/json") {
        if let Ok(Value::Object(fields)) = serde_json::from_slice(&request.body) {
            args.extend(fields);
        }
    } else {
        args.extend(form(&String::from_utf8_lossy(&request.body)));
    }
    Value::Object(args)
}

fn form(text: &str) -> Vec<(String, Value)> {
    text.split('&')
        .filter(|pair| !pair.is_empty())
        .map(|pair| {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            (decode(name), Value::String(decode(value)))
        })
        .collect()
}

fn decode(text: &str) -> String {
    let bytes = text.as_bytes();
    let mut out = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while at < bytes.len() {
        let escaped = (bytes[at] == b'%')
            .then(|| text.get(at + 1..at + 3))
            .flatten()
            .and_then(|digits| u8::from_str_radix(digits, 16).ok());
        match (escaped, bytes[at]) {
            (Some(byte), _) => {
                out.push(byte);
                at += 2;
            }
            (None, b'+') => out.push(b' '),
            (None, byte) => out.push(byte),
        }
        at += 1;
    }
    String::from_utf8_lossy(&out).into_owned()
}

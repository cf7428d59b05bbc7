//! Connections: take a request, find its answer, play it.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt as _;
use serde_json::{Value, json};
use tokio::net::{TcpListener, TcpStream};
use tokio_util::sync::CancellationToken;

use super::encode::{EncodeContext, EncodedAnswer, encode, error_event};
use super::http::{ArrivedRequest, HttpConnection, LAST_CHUNK, chunk, head};
use super::reply::{HoldAt, Reply, ReplyBody, ReplyFaults, ReplyGate, ReplyPace};
use super::request::{Format, RecordedRequest};
use super::{ModelServerShared, ServedModel};
use crate::server_thread;

/// How an answer ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Played {
    /// To its end: the connection may serve another request.
    Whole,
    /// Broken off as scripted.
    Cut,
    /// The client went away.
    Gone,
}

pub(super) async fn accept(
    listener: TcpListener,
    shared: Arc<ModelServerShared>,
    stop: CancellationToken,
) {
    server_thread::accept("model-server-connection", listener, stop, |stream| {
        shared.count(|progress| progress.connections += 1);
        // A client that vanishes mid-request is no fault of the script.
        connection(stream, Arc::clone(&shared)).map(drop)
    })
    .await;
}

async fn connection(stream: TcpStream, shared: Arc<ModelServerShared>) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let mut connection = HttpConnection::new(stream);
    while let Some(incoming) = connection.next().await? {
        let keep_alive = incoming.keep_alive;
        let request = record(&shared, incoming);
        let reply = answer_for(&shared, &request);
        match play(&mut connection, &request, reply).await {
            Ok(Played::Whole) => shared.answered(request.index),
            Ok(Played::Cut) => {
                shared.answered(request.index);
                return Ok(());
            }
            Ok(Played::Gone) | Err(_) => {
                shared.count(|progress| progress.disconnects += 1);
                return Ok(());
            }
        }
        if !keep_alive {
            return Ok(());
        }
    }
    Ok(())
}

fn record(shared: &ModelServerShared, incoming: ArrivedRequest) -> RecordedRequest {
    let mut requests = shared.requests();
    let request = RecordedRequest {
        index: requests.len(),
        method: incoming.method,
        path: incoming.path,
        headers: incoming.headers,
        body: serde_json::from_slice(&incoming.body).unwrap_or(Value::Null),
        raw: incoming.body,
        arrived_ns: incoming.arrived_ns,
    };
    requests.push(request.clone());
    drop(requests);
    shared.count(|progress| progress.requests += 1);
    request
}

fn answer_for(shared: &ModelServerShared, request: &RecordedRequest) -> Reply {
    let path = request.path.split('?').next().unwrap_or_default();
    let (routed, models) = {
        let script = shared.script();
        let routed = script
            .routes
            .iter()
            .find(|(method, route, _)| *method == request.method && route == path)
            .map(|(_, _, reply)| reply.clone());
        (routed, script.models.clone())
    };
    if let Some(reply) = routed {
        return reply;
    }
    if request.method == "POST" && request.format().is_some() {
        return shared.decide(request);
    }
    lists(path, request, &models)
        .unwrap_or_else(|| Reply::error(404, &format!("no such path: {} {path}", request.method)))
}

/// The lists of models, in OpenAI's and Ollama's shape.
fn lists(path: &str, request: &RecordedRequest, models: &[ServedModel]) -> Option<Reply> {
    if let Some(rest) = path.strip_prefix("/v1/models") {
        let id = rest.trim_start_matches('/');
        if id.is_empty() {
            let data: Vec<Value> = models.iter().map(model_entry).collect();
            return Some(Reply::json(200, &json!({"object": "list", "data": data})));
        }
        let model = models.iter().find(|model| model.id == id)?;
        return Some(Reply::json(200, &model_entry(model)));
    }
    match path {
        "/api/tags" => {
            let tags: Vec<Value> = models
                .iter()
                .map(|model| json!({"name": model.id, "model": model.id}))
                .collect();
            Some(Reply::json(200, &json!({"models": tags})))
        }
        "/api/show" => {
            let name = request.body["model"]
                .as_str()
                .or(request.body["name"].as_str())?;
            let model = models.iter().find(|model| model.id == name)?;
            Some(Reply::json(
                200,
                &json!({
                    "model_info": {
                        "general.architecture": "scripted",
                        "scripted.context_length": model.context_length,
                    },
                    "capabilities": ["completion", "tools"],
                }),
            ))
        }
        _ => None,
    }
}

fn model_entry(model: &ServedModel) -> Value {
    let mut entry = json!({"id": model.id, "object": "model", "owned_by": "scripted"});
    if let Some(tokens) = model.context_length {
        entry["context_length"] = json!(tokens);
    }
    if let Value::Object(fields) = &model.fields {
        for (key, value) in fields {
            entry[key] = value.clone();
        }
    }
    entry
}

async fn play(
    connection: &mut HttpConnection,
    request: &RecordedRequest,
    reply: Reply,
) -> io::Result<Played> {
    let Reply {
        body,
        headers,
        pace,
        faults,
    } = reply;
    if let Some(delay) = pace.before_first {
        tokio::time::sleep(delay).await;
    }
    for (_, gate) in pace.holds.iter().filter(|(at, _)| *at == HoldAt::Head) {
        if hold(connection, gate).await == Played::Gone {
            return Ok(Played::Gone);
        }
    }
    let format = request.format().unwrap_or(Format::Chat);
    let (status, json) = match body {
        ReplyBody::Hangup => return Ok(Played::Cut),
        ReplyBody::Http { status, body } => (status, body),
        ReplyBody::Answer(mut answer) => {
            answer.number_calls(request.index);
            let cx = EncodeContext::new(format, request, &answer);
            match encode(&answer, request.streams(), &cx) {
                EncodedAnswer::Json(value) => (200, value.to_string()),
                EncodedAnswer::Events(events) => {
                    let opening = head(200, "text/event-stream", &headers, None);
                    connection.write(opening.as_bytes()).await?;
                    let events = script_events(events, &faults, format);
                    return stream(connection, &events, &pace, &faults).await;
                }
            }
        }
    };
    let opening = head(status, "application/json", &headers, Some(json.len()));
    let mut bytes = opening.into_bytes();
    bytes.extend_from_slice(json.as_bytes());
    if let Some(limit) = faults.cut_after_bytes {
        bytes.truncate(bytes.len() - json.len() + limit.min(json.len()));
        connection.write(&bytes).await?;
        return Ok(Played::Cut);
    }
    connection.write(&bytes).await?;
    Ok(Played::Whole)
}

/// The events after inserting, replacing and ending as the script says.
fn script_events(events: Vec<String>, faults: &ReplyFaults, format: Format) -> Vec<String> {
    let mut out = Vec::with_capacity(events.len() + faults.inserts.len());
    let end = faults.end_after_events.unwrap_or(usize::MAX);
    for (number, event) in events.into_iter().enumerate() {
        if number >= end {
            break;
        }
        for (_, raw) in faults.inserts.iter().filter(|(at, _)| *at == number) {
            out.push(raw.clone());
        }
        if let Some((at, error)) = &faults.error_at
            && *at == number
        {
            out.push(error_event(format, error));
            break;
        }
        out.push(event);
    }
    out
}

async fn stream(
    connection: &mut HttpConnection,
    events: &[String],
    pace: &ReplyPace,
    faults: &ReplyFaults,
) -> io::Result<Played> {
    let mut sent = 0;
    let began = tokio::time::Instant::now();
    for (number, event) in events.iter().enumerate() {
        if faults.cut_after_events == Some(number) {
            return Ok(Played::Cut);
        }
        for (_, gate) in pace
            .holds
            .iter()
            .filter(|(at, _)| *at == HoldAt::Event(number))
        {
            if hold(connection, gate).await == Played::Gone {
                return Ok(Played::Gone);
            }
        }
        if number > 0
            && let Some(delay) = pace.between
            && wait(connection, delay).await == Played::Gone
        {
            return Ok(Played::Gone);
        }
        if let Some(rate) = pace.per_second {
            // By the schedule, not by pauses: what a timer is late by is made up for.
            let due = began + Duration::from_secs_f64(number as f64 / f64::from(rate.max(1)));
            let early = due.saturating_duration_since(tokio::time::Instant::now());
            if !early.is_zero() && wait(connection, early).await == Played::Gone {
                return Ok(Played::Gone);
            }
        }
        let bytes = event.as_bytes();
        let room = faults
            .cut_after_bytes
            .map_or(usize::MAX, |limit| limit - sent);
        let part = &bytes[..bytes.len().min(room)];
        write_torn(connection, part, pace.piece).await?;
        sent += part.len();
        if part.len() < bytes.len() || faults.cut_after_bytes == Some(sent) {
            return Ok(Played::Cut);
        }
    }
    for (_, gate) in pace
        .holds
        .iter()
        .filter(|(at, _)| matches!(at, HoldAt::Event(number) if *number >= events.len()))
    {
        if hold(connection, gate).await == Played::Gone {
            return Ok(Played::Gone);
        }
    }
    connection.write(LAST_CHUNK).await?;
    Ok(Played::Whole)
}

async fn write_torn(
    connection: &mut HttpConnection,
    bytes: &[u8],
    piece: Option<usize>,
) -> io::Result<()> {
    if bytes.is_empty() {
        return Ok(());
    }
    for part in bytes.chunks(piece.unwrap_or(bytes.len())) {
        connection.write(&chunk(part)).await?;
        if piece.is_some() {
            tokio::task::yield_now().await;
        }
    }
    Ok(())
}

/// Waits at a gate, unless the client leaves first.
async fn hold(connection: &mut HttpConnection, gate: &ReplyGate) -> Played {
    tokio::select! {
        () = gate.pass() => Played::Whole,
        () = connection.gone() => Played::Gone,
    }
}

async fn wait(connection: &mut HttpConnection, delay: Duration) -> Played {
    tokio::select! {
        () = tokio::time::sleep(delay) => Played::Whole,
        () = connection.gone() => Played::Gone,
    }
}

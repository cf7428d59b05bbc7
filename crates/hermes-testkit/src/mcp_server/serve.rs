//! Connections, and how one request is answered or not.

use std::io;
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use serde_json::{Value, json};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use super::plan::{Fault, PlannedAnswer, Seen, Wire, error_body};
use super::protocol::{MODERN, RequestOutcome, execute};
use super::shape::{LOGIN_PATH, Shape};
use super::{Balancer, Forgetting, Shared, Switch, streams};
use crate::model_server::http::{ArrivedRequest, HttpConnection, LAST_CHUNK, chunk, head};

/// How an answer ended.
pub(super) enum Played {
    /// To its end: the connection may serve another request.
    Whole(HttpConnection),
    /// Nothing more comes on this connection.
    Over,
}

/// Accepts until stopped; lets go of the port and takes it again when told.
pub(super) async fn run(
    listener: TcpListener,
    mut switches: mpsc::Receiver<Switch>,
    shared: Arc<Shared>,
    stop: CancellationToken,
) {
    let address = listener.local_addr().expect("the listener has an address");
    let mut listener = Some(listener);
    loop {
        let accepted = tokio::select! {
            () = stop.cancelled() => return,
            Some(switch) = switches.recv() => {
                if switch.up {
                    if listener.is_none() {
                        listener = Some(again(address).await);
                    }
                } else {
                    listener = None;
                    hang_up(&shared);
                }
                // Nobody waiting any more is no fault.
                let _ = switch.done.send(());
                continue;
            }
            accepted = accept(listener.as_ref()) => accepted,
        };
        let Ok((stream, _)) = accepted else { continue };
        shared.count(|counts| counts.connections += 1);
        shared.note_activity();
        let (shared, stop) = (shared.clone(), stop.clone());
        let lines = shared.state().lines.clone();
        // Dropping the handle detaches the task; `stop` ends it.
        drop(hermes_core::task::spawn("faulty-mcp-line", async move {
            tokio::select! {
                () = stop.cancelled() => {}
                () = lines.cancelled() => {}
                // A client that vanishes mid-request is no fault of the script.
                _ = line(stream, shared) => {}
            }
        }));
    }
}

async fn accept(listener: Option<&TcpListener>) -> io::Result<(TcpStream, std::net::SocketAddr)> {
    match listener {
        Some(listener) => listener.accept().await,
        None => std::future::pending().await,
    }
}

/// Takes the port again; somebody's outgoing connection may sit on it for a moment.
async fn again(address: std::net::SocketAddr) -> TcpListener {
    for _ in 0..200 {
        if let Ok(listener) = TcpListener::bind(address).await {
            return listener;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("{address} is taken by somebody else");
}

pub(super) fn hang_up(shared: &Shared) {
    let mut state = shared.state();
    state.sessions.clear();
    state.listeners.clear();
    std::mem::take(&mut state.lines).cancel();
}

async fn line(stream: TcpStream, shared: Arc<Shared>) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let mut connection = HttpConnection::new(stream);
    loop {
        thawed(&shared).await;
        let Some(incoming) = connection.next().await? else {
            return Ok(());
        };
        // Frozen while it waited: this one is not read either, as far as the client can tell.
        thawed(&shared).await;
        shared.note_activity();
        let keep_alive = incoming.keep_alive;
        let seen = record(&shared, incoming);
        let played = match seen.verb.as_str() {
            "POST" | "GET" if seen.path == LOGIN_PATH => {
                let page = "<html><body><form>Please log in</form></body></html>";
                send(connection, &PlannedAnswer::plain(200, "text/html", page)).await?
            }
            "POST" => post(connection, &shared, &seen).await?,
            "GET" => streams::get(connection, &shared, &seen).await?,
            "DELETE" => delete(connection, &shared, &seen).await?,
            _ => send(connection, &PlannedAnswer::plain(405, "text/plain", "")).await?,
        };
        shared.note_activity();
        match played {
            Played::Whole(same) if keep_alive => connection = same,
            Played::Whole(_) | Played::Over => return Ok(()),
        }
    }
}

async fn thawed(shared: &Shared) {
    let mut frozen = shared.frozen.subscribe();
    // The sender lives as long as the server.
    let _ = frozen.wait_for(|frozen| !frozen).await;
}

fn record(shared: &Shared, incoming: ArrivedRequest) -> Seen {
    let balanced = |balancer: &mut Balancer| balancer.next_is_second(&incoming.method);
    let second = shared.state().balancer.as_mut().is_some_and(balanced);
    let seen = Seen {
        verb: incoming.method,
        path: incoming.path,
        headers: incoming.headers,
        body: serde_json::from_slice(&incoming.body).unwrap_or(Value::Null),
        second,
    };
    if shared.state().remembers {
        let mut all = shared.seen.lock().unwrap_or_else(PoisonError::into_inner);
        all.push(seen.clone());
    }
    shared.count(|counts| match (seen.verb.as_str(), seen.method()) {
        ("POST", method) => {
            counts.posts += 1;
            match method {
                "tools/call" => counts.calls += 1,
                "notifications/cancelled" => counts.cancelled += 1,
                _ => {}
            }
        }
        ("GET", _) => counts.gets += 1,
        ("DELETE", _) => counts.deletes += 1,
        _ => {}
    });
    seen
}

async fn delete(connection: HttpConnection, shared: &Shared, seen: &Seen) -> io::Result<Played> {
    if let Some(Fault::Status { status, body, .. }) = shared.fault("DELETE") {
        return send(
            connection,
            &PlannedAnswer::plain(status, "text/plain", &body),
        )
        .await;
    }
    let session = seen.header("mcp-session-id").unwrap_or_default();
    shared.state().places.remove(session);
    if let Some(forgetting) = forgotten(shared, seen, session) {
        return refuse(connection, &forgetting, &Value::Null).await;
    }
    let known = shared.state().sessions.remove(session);
    let status = if known { 200 } else { 404 };
    send(connection, &PlannedAnswer::plain(status, "text/plain", "")).await
}

/// A message of the client.
async fn post(
    mut connection: HttpConnection,
    shared: &Arc<Shared>,
    seen: &Seen,
) -> io::Result<Played> {
    let _shaking = (seen.method() == "initialize").then(|| Shaking::begin(shared));
    let fault = shared.fault(seen.method());
    match &fault {
        Some(Fault::Hold(gate)) => tokio::select! {
            () = gate.pass() => {}
            () = connection.gone() => return Ok(Played::Over),
        },
        Some(Fault::Status {
            status,
            headers,
            content_type,
            body,
        }) => {
            let mut answer = PlannedAnswer::plain(*status, content_type, body);
            answer.headers.clone_from(headers);
            return send(connection, &answer).await;
        }
        Some(Fault::ResetBefore) => {
            connection.reset();
            return Ok(Played::Over);
        }
        Some(Fault::Silence) => {
            connection.gone().await;
            return Ok(Played::Over);
        }
        Some(Fault::Raw(bytes)) => {
            connection.write(bytes).await?;
            return Ok(Played::Over);
        }
        _ => {}
    }
    let wire = shared.state().wire;
    if let Some(answer) = held_up(shared, wire, seen).await {
        return send(connection, &answer).await;
    }
    if let Some(forgetting) = forgotten(shared, seen, session_of(wire, seen)) {
        if forgetting.runs_first(seen) {
            execute(shared, &seen.body).await;
        }
        return refuse(connection, &forgetting, &seen.body["id"]).await;
    }
    if let Some(answer) = refused(shared, seen) {
        return send(connection, &answer).await;
    }
    let id = &seen.body["id"];
    if id.is_null() || seen.body["method"].is_null() {
        return send(connection, &PlannedAnswer::plain(202, "text/plain", "")).await;
    }
    match wire {
        Wire::Sse => streams::answer_apart(connection, shared, seen, fault).await,
        Wire::Modern if seen.method() == "subscriptions/listen" => {
            streams::subscribe(connection, shared, seen).await
        }
        Wire::Legacy | Wire::Modern => {
            let done = tokio::select! {
                done = execute(shared, &seen.body) => done,
                () = connection.gone() => return Ok(Played::Over),
            };
            if let Some(shape) = own_shape(&seen.body) {
                let (bytes, ends) = shape.bytes(id, false);
                connection.write(&bytes).await?;
                return Ok(if ends {
                    Played::Over
                } else {
                    Played::Whole(connection)
                });
            }
            let messages = messages(id, done, fault.as_ref());
            if let Some(Fault::CutResumable { lost }) = fault {
                return streams::cut(connection, shared, messages, lost).await;
            }
            let answer = answer(shared, seen, &messages);
            play(connection, answer, &messages, fault).await
        }
    }
}

/// What stands in front of a handshake or a session: the refusal of a rate limit, or slowness.
async fn held_up(shared: &Shared, wire: Wire, seen: &Seen) -> Option<PlannedAnswer> {
    let slow = shared.state().slow_handshakes;
    if seen.method() == "initialize" && !slow.is_zero() {
        tokio::time::sleep(slow).await;
    }
    if seen.method() == "initialize" {
        let state = shared.state();
        let full = state
            .most_places
            .filter(|(most, _)| state.places.len() >= *most);
        return full.map(|(_, status)| {
            PlannedAnswer::plain(status, "text/plain", "no room for more clients")
        });
    }
    if session_of(wire, seen).is_empty() {
        return None;
    }
    let limited = {
        let mut state = shared.state();
        state
            .limiter
            .as_mut()
            .and_then(super::limit::Limiter::refuses)
    };
    let slow = shared.state().slow_questions;
    // Even a sleep of no length lets others go first.
    if limited.is_none() && super::limit::is_question(seen) && !slow.is_zero() {
        tokio::time::sleep(slow).await;
    }
    limited
}

/// The session that a message names; empty without one.
fn session_of(wire: Wire, seen: &Seen) -> &str {
    match wire {
        Wire::Sse => streams::session_of(&seen.path),
        Wire::Legacy => seen.header("mcp-session-id").unwrap_or_default(),
        Wire::Modern => "",
    }
}

/// How a request of a session that this instance does not know is answered, where that was
/// decided by [`FaultyServer::lose_sessions_in`](super::FaultyServer::lose_sessions_in).
pub(super) fn forgotten(shared: &Shared, seen: &Seen, session: &str) -> Option<Forgetting> {
    let state = shared.state();
    let forgetting = state.forgetting?;
    let elsewhere = state.balancer.is_some() && state.second.contains(session) != seen.second;
    let known = state.sessions.contains(session) && !elsewhere;
    let refused = !session.is_empty() && !known && forgetting.covers(seen);
    drop(state);
    if refused {
        shared.count(|counts| counts.refused += 1);
    }
    refused.then_some(forgetting)
}

pub(super) async fn refuse(
    mut connection: HttpConnection,
    forgetting: &Forgetting,
    id: &Value,
) -> io::Result<Played> {
    let (bytes, ends) = forgetting.answer(id);
    connection.write(&bytes).await?;
    if ends {
        return Ok(Played::Over);
    }
    Ok(Played::Whole(connection))
}

/// The shape that a call of the tool `answer` asks for.
fn own_shape(body: &Value) -> Option<Shape> {
    let params = &body["params"];
    let asked = body["method"] == "tools/call" && params["name"] == "answer";
    let text = params["arguments"]["shape"].as_str().filter(|_| asked)?;
    Some(text.parse().unwrap_or_else(|why| panic!("{why}")))
}

/// Why a request is not even looked at.
fn refused(shared: &Shared, seen: &Seen) -> Option<PlannedAnswer> {
    let state = shared.state();
    if state.forgetting.is_some() && !session_of(state.wire, seen).is_empty() {
        // Not covered by what was decided, so served.
        return None;
    }
    let answer = match state.wire {
        Wire::Modern => return not_modern(seen),
        Wire::Sse => {
            let session = streams::session_of(&seen.path);
            (!state.sessions.contains(session)).then(|| state.loss.answer(&seen.body["id"]))
        }
        Wire::Legacy if !state.gives_sessions || seen.method() == "initialize" => None,
        Wire::Legacy => match seen.header("mcp-session-id") {
            Some(session) if state.sessions.contains(session) => None,
            Some(_) => Some(state.loss.answer(&seen.body["id"])),
            None => {
                let text = "Bad Request: No valid session ID provided";
                return Some(PlannedAnswer::error(400, Some(Value::Null), -32000, text));
            }
        },
    };
    drop(state);
    if answer.is_some() {
        shared.count(|counts| counts.refused += 1);
    }
    answer
}

/// The checks of the stateless era: version and mirrored headers.
fn not_modern(seen: &Seen) -> Option<PlannedAnswer> {
    let id = Some(seen.body["id"].clone());
    let method = seen.method();
    if seen.header("mcp-protocol-version") != Some(MODERN) {
        let mut body = error_body(id, -32022, "Unsupported protocol version");
        body["error"]["data"] = json!({"supported": [MODERN]});
        return Some(PlannedAnswer::json(400, &body));
    }
    if seen
        .header("mcp-method")
        .is_some_and(|named| named != method)
    {
        return Some(PlannedAnswer::error(400, id, -32020, "Header mismatch"));
    }
    None
}

/// What goes back for a request, in order.
pub(super) fn messages(id: &Value, done: RequestOutcome, fault: Option<&Fault>) -> Vec<Value> {
    let (mut before, mut last) = match done {
        RequestOutcome::Result(before, result) => (
            before,
            json!({"jsonrpc": "2.0", "id": id, "result": result}),
        ),
        RequestOutcome::Error(code, message) => {
            (Vec::new(), error_body(Some(id.clone()), code, &message))
        }
        RequestOutcome::Never => return Vec::new(),
    };
    match fault {
        Some(Fault::Oversized(size)) => {
            last["result"]["content"] = json!([{"type": "text", "text": "x".repeat(*size)}]);
        }
        Some(Fault::RpcError { code, message }) => {
            last = error_body(Some(id.clone()), *code, message);
        }
        Some(Fault::Twice) => before.push(last.clone()),
        Some(Fault::ForeignIdFirst) => {
            before.push(json!({"jsonrpc": "2.0", "id": "nobody-asked", "result": {}}));
        }
        _ => {}
    }
    before.push(last);
    before
}

/// The HTTP answer around the messages.
fn answer(shared: &Shared, seen: &Seen, messages: &[Value]) -> PlannedAnswer {
    let mut state = shared.state();
    let mut answer = match messages {
        [only] if !state.streams => {
            // The stateless era answers an unknown method with 404.
            let unknown = state.wire == Wire::Modern && only["error"]["code"] == -32601;
            PlannedAnswer::json(if unknown { 404 } else { 200 }, only)
        }
        several => PlannedAnswer::events(several),
    };
    if seen.method() == "initialize" && state.gives_sessions && state.wire == Wire::Legacy {
        shared.count(|counts| counts.sessions += 1);
        let session = state.open_session(seen.second);
        answer.headers.push(("mcp-session-id".to_owned(), session));
    }
    answer
}

/// Sends the answer as the fault wants it.
async fn play(
    mut connection: HttpConnection,
    mut answer: PlannedAnswer,
    messages: &[Value],
    fault: Option<Fault>,
) -> io::Result<Played> {
    let as_events = |answer: &mut PlannedAnswer| {
        let headers = std::mem::take(&mut answer.headers);
        *answer = PlannedAnswer::events(messages);
        answer.headers = headers;
    };
    if messages.is_empty() {
        connection.gone().await;
        return Ok(Played::Over);
    }
    match fault {
        Some(Fault::ResetAfter) => connection.reset(),
        Some(Fault::CloseAfter) => {}
        Some(Fault::ResetDuring) => {
            let opening = opening(&answer, true);
            connection.write(opening.as_bytes()).await?;
            let half = &answer.body.as_bytes()[..answer.body.len() / 2];
            connection.write(half).await?;
            connection.reset();
        }
        Some(Fault::CutEvents(at)) => {
            as_events(&mut answer);
            connection.write(opening(&answer, false).as_bytes()).await?;
            let end = at.min(answer.body.len());
            connection
                .write(&chunk(&answer.body.as_bytes()[..end]))
                .await?;
        }
        Some(Fault::SilenceAfter) => connection.gone().await,
        Some(Fault::SilenceAfterHead) => {
            as_events(&mut answer);
            connection.write(opening(&answer, false).as_bytes()).await?;
            connection.gone().await;
        }
        Some(Fault::Trickle(pause)) => {
            let mut bytes = opening(&answer, true).into_bytes();
            bytes.extend_from_slice(answer.body.as_bytes());
            for byte in bytes {
                connection.write(&[byte]).await?;
                tokio::time::sleep(Duration::from_millis(pause)).await;
            }
            return Ok(Played::Whole(connection));
        }
        Some(Fault::HoldAfter(gate)) => {
            tokio::select! {
                () = gate.pass() => {}
                () = connection.gone() => return Ok(Played::Over),
            }
            return send(connection, &answer).await;
        }
        Some(Fault::Oversized(_) | Fault::Twice | Fault::ForeignIdFirst) => {
            as_events(&mut answer);
            return send(connection, &answer).await;
        }
        _ => return send(connection, &answer).await,
    }
    Ok(Played::Over)
}

/// The head of an answer. Not `sized`: its body comes in chunks.
fn opening(answer: &PlannedAnswer, sized: bool) -> String {
    let length = sized.then_some(answer.body.len());
    head(answer.status, &answer.content_type, &answer.headers, length)
}

/// A whole answer: event streams in chunks, the rest with its length.
pub(super) async fn send(
    mut connection: HttpConnection,
    answer: &PlannedAnswer,
) -> io::Result<Played> {
    let body = answer.body.as_bytes();
    if answer.content_type == "text/event-stream" {
        let mut bytes = opening(answer, false).into_bytes();
        if !body.is_empty() {
            bytes.extend_from_slice(&chunk(body));
        }
        bytes.extend_from_slice(LAST_CHUNK);
        connection.write(&bytes).await?;
    } else {
        let mut bytes = opening(answer, true).into_bytes();
        bytes.extend_from_slice(body);
        connection.write(&bytes).await?;
    }
    Ok(Played::Whole(connection))
}

/// Counts a handshake in progress.
struct Shaking<'a>(&'a Shared);

impl<'a> Shaking<'a> {
    fn begin(shared: &'a Shared) -> Self {
        shared.count(|counts| {
            counts.shaking += 1;
            counts.peak_shaking = counts.peak_shaking.max(counts.shaking);
        });
        Self(shared)
    }
}

impl Drop for Shaking<'_> {
    fn drop(&mut self) {
        self.0.count(|counts| counts.shaking -= 1);
    }
}

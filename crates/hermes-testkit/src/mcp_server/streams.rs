//! Listening streams: GET of both older transports, subscriptions of the modern era.

use std::io;
use std::sync::Arc;

use serde_json::{Value, json};
use tokio::sync::mpsc;

use super::plan::{Fault, GetStream, PlannedAnswer, Seen, Wire, event};
use super::protocol::execute;
use super::serve::{Played, forgotten, messages, refuse, send};
use super::{Listener, Push, Shared};
use crate::model_server::http::{HttpConnection, LAST_CHUNK, chunk, head};

/// Enough for any flood a test makes; more is lost like on a full socket.
const QUEUE: usize = 8192;

const SUBSCRIPTION: &str = "io.modelcontextprotocol/subscriptionId";

/// The session in the query of a message's path.
pub(super) fn session_of(path: &str) -> &str {
    path.split("sessionId=").nth(1).unwrap_or_default()
}

pub(super) async fn get(
    mut connection: HttpConnection,
    shared: &Arc<Shared>,
    seen: &Seen,
) -> io::Result<Played> {
    match shared.fault("GET") {
        Some(Fault::Status { status, body, .. }) => {
            return send(
                connection,
                &PlannedAnswer::plain(status, "text/plain", &body),
            )
            .await;
        }
        Some(Fault::ResetBefore) => {
            connection.reset();
            return Ok(Played::Over);
        }
        Some(Fault::Silence) => {
            connection.gone().await;
            return Ok(Played::Over);
        }
        _ => {}
    }
    let (wire, get) = {
        let state = shared.state();
        (state.wire, state.get)
    };
    if let GetStream::Status(status) = get {
        return send(connection, &PlannedAnswer::plain(status, "text/plain", "")).await;
    }
    let last = seen.header("last-event-id").unwrap_or_default();
    let rest = shared.state().cut.get(last).cloned();
    if let Some(rest) = rest {
        return send(connection, &PlannedAnswer::events(&rest)).await;
    }
    match wire {
        Wire::Modern => send(connection, &PlannedAnswer::plain(405, "text/plain", "")).await,
        Wire::Sse => {
            shared.count(|counts| counts.sessions += 1);
            let session = shared.state().open_session(seen.second);
            let endpoint = format!("event: endpoint\ndata: /messages?sessionId={session}\n\n");
            let played = listen(connection, shared, &session, None, &endpoint).await;
            shared.state().sessions.remove(&session);
            played
        }
        Wire::Legacy => {
            let session = seen.header("mcp-session-id").unwrap_or_default().to_owned();
            if let Some(forgetting) = forgotten(shared, seen, &session) {
                return refuse(connection, &forgetting, &Value::Null).await;
            }
            let refused = {
                let state = shared.state();
                let known = !state.gives_sessions
                    || state.forgetting.is_some()
                    || state.sessions.contains(&session);
                (!known).then(|| state.loss.answer(&Value::Null))
            };
            if let Some(answer) = refused {
                return send(connection, &answer).await;
            }
            if get == GetStream::EndsAtOnce {
                return send(connection, &PlannedAnswer::events(&[])).await;
            }
            listen(connection, shared, &session, None, "").await
        }
    }
}

/// A stream that ends before its answer and says how to come back: at once.
pub(super) async fn cut(
    connection: HttpConnection,
    shared: &Shared,
    mut messages: Vec<Value>,
    lost: usize,
) -> io::Result<Played> {
    messages.drain(..lost.min(messages.len()));
    let id = {
        let mut state = shared.state();
        let id = format!("cut-{}", state.cut.len());
        state.cut.insert(id.clone(), messages);
        id
    };
    let mut answer = PlannedAnswer::events(&[]);
    answer.body = format!("id: {id}\nretry: 1\ndata: \n\n");
    send(connection, &answer).await
}

/// The stream of the modern era's `subscriptions/listen`.
pub(super) async fn subscribe(
    connection: HttpConnection,
    shared: &Arc<Shared>,
    seen: &Seen,
) -> io::Result<Played> {
    let id = seen.body["id"].clone();
    let mut params = json!({"_meta": {SUBSCRIPTION: id}});
    params["notifications"] = seen.body["params"]["notifications"].clone();
    let first = event(&json!({
        "jsonrpc": "2.0",
        "method": "notifications/subscriptions/acknowledged",
        "params": params,
    }));
    listen(connection, shared, "", Some(id), &first).await
}

async fn listen(
    mut connection: HttpConnection,
    shared: &Arc<Shared>,
    session: &str,
    subscription: Option<Value>,
    first: &str,
) -> io::Result<Played> {
    let (send, pushed) = mpsc::channel(QUEUE);
    let opening = head(200, "text/event-stream", &[], None);
    connection.write(opening.as_bytes()).await?;
    if !first.is_empty() {
        connection.write(&chunk(first.as_bytes())).await?;
    }
    shared.state().listeners.push(Listener {
        session: session.to_owned(),
        send,
    });
    let mut open = Open::begin(shared, pushed);
    loop {
        let push = tokio::select! {
            push = open.pushed.recv() => push,
            () = connection.gone() => None,
        };
        let text = match push {
            Some(Push::Message(mut message)) => {
                if let Some(id) = &subscription {
                    message["params"]["_meta"][SUBSCRIPTION] = id.clone();
                }
                event(&message)
            }
            Some(Push::Raw(text)) => text,
            Some(Push::End) => {
                connection.write(LAST_CHUNK).await?;
                return Ok(Played::Whole(connection));
            }
            Some(Push::Reset) => {
                connection.reset();
                return Ok(Played::Over);
            }
            None => return Ok(Played::Over),
        };
        connection.write(&chunk(text.as_bytes())).await?;
        shared.note_activity();
    }
}

/// The older transport: accepted here, answered on the stream of the session.
pub(super) async fn answer_apart(
    connection: HttpConnection,
    shared: &Arc<Shared>,
    seen: &Seen,
    fault: Option<Fault>,
) -> io::Result<Played> {
    let stream = {
        let state = shared.state();
        let session = session_of(&seen.path);
        let found = state.listeners.iter().rfind(|l| l.session == session);
        found.map(|listener| listener.send.clone())
    };
    let (apart, body) = (shared.clone(), seen.body.clone());
    // Detached: the connection may carry other messages while a slow tool runs.
    drop(hermes_core::task::spawn("faulty-mcp-call", async move {
        let done = execute(&apart, &body).await;
        let messages = messages(&body["id"], done, fault.as_ref());
        let Some(stream) = stream else { return };
        let pushes = match fault {
            Some(Fault::ResetAfter | Fault::ResetDuring) => vec![Push::Reset],
            Some(Fault::CloseAfter) => vec![Push::End],
            Some(Fault::SilenceAfter | Fault::SilenceAfterHead) => Vec::new(),
            Some(Fault::CutEvents(at)) => {
                let whole: String = messages.iter().map(event).collect();
                let part = whole.get(..at).unwrap_or(&whole).to_owned();
                vec![Push::Raw(part), Push::End]
            }
            Some(Fault::HoldAfter(gate)) => {
                gate.pass().await;
                messages.into_iter().map(Push::Message).collect()
            }
            _ => messages.into_iter().map(Push::Message).collect(),
        };
        for push in pushes {
            // A closed stream has nobody to tell.
            let _ = stream.send(push).await;
        }
    }));
    send(
        connection,
        &PlannedAnswer::plain(202, "text/plain", "Accepted"),
    )
    .await
}

/// Counts an open stream.
struct Open<'a> {
    shared: &'a Shared,
    pushed: mpsc::Receiver<Push>,
}

impl<'a> Open<'a> {
    fn begin(shared: &'a Shared, pushed: mpsc::Receiver<Push>) -> Self {
        shared.count(|counts| counts.listening += 1);
        Self { shared, pushed }
    }
}

impl Drop for Open<'_> {
    fn drop(&mut self) {
        self.pushed.close();
        let mut state = self.shared.state();
        state
            .listeners
            .retain(|listener| !listener.send.is_closed());
        drop(state);
        self.shared.count(|counts| counts.listening -= 1);
    }
}

//! A proxy in front of a real server that loses its sessions in any shape: the server goes on
//! knowing them, the proxy no longer lets their requests through.

use std::collections::HashSet;
use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use serde_json::Value;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio_util::sync::CancellationToken;

use super::combination::{Combination, Scenario, Transport};
use super::forgetting::Forgetting;
use super::plan::Seen;
use crate::model_server::http::{ArrivedRequest, HttpConnection};

/// How servers name the session in what they send: a header, or the query of the endpoint.
const NAMES: [&str; 3] = ["mcp-session-id: ", "sessionId=", "session_id="];

/// The proxy. It stops when dropped.
pub struct ShapeProxy {
    address: SocketAddr,
    path: String,
    shared: Arc<Shared>,
}

struct Shared {
    server: SocketAddr,
    state: Mutex<State>,
    stop: CancellationToken,
}

#[derive(Default)]
struct State {
    /// Sessions that were made since the last loss.
    known: HashSet<String>,
    forgetting: Option<Forgetting>,
    /// Ends every connection when cancelled.
    lines: CancellationToken,
    refused: usize,
}

impl ShapeProxy {
    /// In front of the server at this URL, on the runtime of the caller.
    pub fn start_here(url: &str) -> Self {
        let rest = url.strip_prefix("http://").unwrap_or(url);
        let (server, path) = rest.split_once('/').unwrap_or((rest, ""));
        let server = server.parse().expect("a URL with an address");
        let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a free port");
        listener
            .set_nonblocking(true)
            .expect("a listener that does not block");
        let listener = TcpListener::from_std(listener).expect("a runtime");
        let address = listener.local_addr().expect("the listener has an address");
        let shared = Arc::new(Shared {
            server,
            state: Mutex::default(),
            stop: CancellationToken::new(),
        });
        let accepting = accept(listener, Arc::clone(&shared));
        // Dropping the handle detaches the task; `stop` ends it.
        drop(hermes_core::task::spawn("shape-proxy", accepting));
        Self {
            address,
            path: path.to_owned(),
            shared,
        }
    }

    /// Where a client connects.
    pub fn url(&self) -> String {
        format!("http://{}/{}", self.address, self.path)
    }

    /// Loses all sessions in this way; a balancer is not played.
    pub fn lose_sessions_in(&self, how: &Combination) {
        let mut state = self.shared.state();
        state.forgetting = Some(Forgetting::new(how));
        state.known.clear();
        if how.scenario == Scenario::Restarted || how.transport == Transport::SseEnds {
            std::mem::take(&mut state.lines).cancel();
        }
    }

    /// Requests that were answered in a shape so far.
    pub fn refused(&self) -> usize {
        self.shared.state().refused
    }
}

impl Drop for ShapeProxy {
    fn drop(&mut self) {
        self.shared.stop.cancel();
    }
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How a request is refused, if it is.
    fn refusal(&self, seen: &Seen) -> Option<Forgetting> {
        let session = session_of(seen);
        let mut state = self.state();
        let forgetting = state.forgetting?;
        if session.is_empty() || state.known.contains(session) || !forgetting.covers(seen) {
            return None;
        }
        state.refused += 1;
        Some(forgetting)
    }

    /// Whether bytes of a stream still reach the client.
    fn carries(&self, session: Option<&String>) -> bool {
        let state = self.state();
        let silenced = state.forgetting.is_some_and(|how| how.covers_everything());
        session.is_none_or(|session| !silenced || state.known.contains(session))
    }
}

async fn accept(listener: TcpListener, shared: Arc<Shared>) {
    loop {
        let accepted = tokio::select! {
            () = shared.stop.cancelled() => return,
            accepted = listener.accept() => accepted,
        };
        let Ok((stream, _)) = accepted else { continue };
        let (stop, lines) = (shared.stop.clone(), shared.state().lines.clone());
        let shared = Arc::clone(&shared);
        drop(hermes_core::task::spawn("shape-proxy-line", async move {
            tokio::select! {
                () = stop.cancelled() => {}
                () = lines.cancelled() => {}
                // Whoever left, on whichever side, is nobody to tell.
                _ = line(stream, &shared) => {}
            }
        }));
    }
}

async fn line(stream: TcpStream, shared: &Shared) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let mut connection = HttpConnection::new(stream);
    while let Some(incoming) = connection.next().await? {
        let seen = Seen {
            verb: incoming.method.clone(),
            path: incoming.path.clone(),
            headers: incoming.headers.clone(),
            body: serde_json::from_slice(&incoming.body).unwrap_or(Value::Null),
            second: false,
        };
        let Some(how) = shared.refusal(&seen) else {
            return forward(&mut connection, shared, &incoming).await;
        };
        if how.runs_first(&seen) {
            let mut server = send(shared, &incoming).await?;
            server.read_to_end(&mut Vec::new()).await?;
        }
        let (bytes, ends) = how.answer(&seen.body["id"]);
        connection.write(&bytes).await?;
        if ends {
            return Ok(());
        }
    }
    Ok(())
}

/// Sends a request on, on a connection of its own that ends with the answer.
async fn send(shared: &Shared, incoming: &ArrivedRequest) -> io::Result<TcpStream> {
    let mut server = TcpStream::connect(shared.server).await?;
    server.set_nodelay(true)?;
    let mut head = format!("{} {} HTTP/1.1\r\n", incoming.method, incoming.path);
    for (name, value) in &incoming.headers {
        match name.as_str() {
            "connection" | "host" | "transfer-encoding" | "content-length" => {}
            _ => head.extend([name.as_str(), ": ", value.as_str(), "\r\n"]),
        }
    }
    let rest = format!(
        "host: {}\r\nconnection: close\r\ncontent-length: {}\r\n\r\n",
        shared.server,
        incoming.body.len()
    );
    head.push_str(&rest);
    server.write_all(head.as_bytes()).await?;
    server.write_all(&incoming.body).await?;
    Ok(server)
}

async fn forward(
    connection: &mut HttpConnection,
    shared: &Shared,
    incoming: &ArrivedRequest,
) -> io::Result<()> {
    let mut server = send(shared, incoming).await?;
    let (mut session, mut opened) = (None, false);
    let mut bytes = vec![0; 65536];
    loop {
        let count = tokio::select! {
            count = server.read(&mut bytes) => count?,
            () = connection.gone() => return Ok(()),
        };
        if count == 0 {
            return Ok(());
        }
        let piece = &bytes[..count];
        if session.is_none() {
            session = named_in(&String::from_utf8_lossy(piece));
            if let Some(session) = &session
                && is_handshake(incoming)
            {
                shared.state().known.insert(session.clone());
            }
        }
        if !shared.carries(session.as_ref()) {
            continue;
        }
        let line = piece
            .iter()
            .position(|byte| *byte == b'\n')
            .map(|at| at + 1);
        match line {
            // Whatever the server says of its own connection, this one ends with the answer.
            Some(line) if !opened => {
                opened = true;
                connection.write(&piece[..line]).await?;
                connection.write(b"connection: close\r\n").await?;
                connection.write(&piece[line..]).await?;
            }
            _ => connection.write(piece).await?,
        }
    }
}

/// Whether its answer names a session that is new: `initialize`, or the stream of HTTP+SSE.
fn is_handshake(incoming: &ArrivedRequest) -> bool {
    let named = incoming
        .headers
        .iter()
        .any(|(name, _)| name == "mcp-session-id");
    !named
}

fn session_of(seen: &Seen) -> &str {
    let query = |name| seen.path.split_once(name).map(|(_, session)| session);
    seen.header("mcp-session-id")
        .or_else(|| query("sessionId="))
        .or_else(|| query("session_id="))
        .unwrap_or_default()
}

/// The session that an answer names.
fn named_in(text: &str) -> Option<String> {
    let lower = text.to_ascii_lowercase();
    let end = NAMES.iter().find_map(|name| {
        let at = lower.find(&name.to_ascii_lowercase())?;
        Some(at + name.len())
    })?;
    let rest = &text[end..];
    let length = rest.find(|letter: char| letter.is_whitespace() || letter == '&');
    Some(rest[..length.unwrap_or(rest.len())].to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sessions_are_found_where_servers_name_them() {
        let head = "HTTP/1.1 200 OK\r\nMcp-Session-Id: abc-1\r\n\r\n{}";
        assert_eq!(named_in(head).as_deref(), Some("abc-1"));
        let event = "event: endpoint\r\ndata: /messages/?session_id=9f\r\n\r\n";
        assert_eq!(named_in(event).as_deref(), Some("9f"));
        assert_eq!(
            named_in("data: /message?sessionId=7\n\n").as_deref(),
            Some("7")
        );
        assert_eq!(named_in("HTTP/1.1 200 OK\r\n\r\n"), None);
    }
}

//! Socket Mode.

use std::sync::Arc;
use std::time::Duration;

use futures_util::{SinkExt as _, StreamExt as _};
use serde_json::json;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;
use tokio_websockets::{Message, ServerBuilder, WebSocketStream};

use super::FakeSlackShared;
use super::state::{FakeSocket, SocketFrame};
use crate::server_thread;

/// How often the server pings, as Slack does every few seconds.
const PING: Duration = Duration::from_millis(500);

pub(super) async fn accept(
    listener: TcpListener,
    shared: &Arc<FakeSlackShared>,
    stop: CancellationToken,
) {
    server_thread::accept("fake-slack-socket", listener, stop, |stream| {
        let shared = Arc::clone(shared);
        async move { connection(stream, &shared).await }
    })
    .await;
}

pub(super) async fn retry(shared: &FakeSlackShared, stop: CancellationToken) {
    loop {
        tokio::select! {
            () = stop.cancelled() => return,
            () = tokio::time::sleep(Duration::from_millis(20)) => shared.world().retry(),
        }
    }
}

async fn connection(stream: TcpStream, shared: &FakeSlackShared) {
    // Kept apart, because a socket that was taken over can no longer be reset.
    let accepted = ServerBuilder::new().accept(stream).await;
    let Ok((request, mut socket)) = accepted else {
        return;
    };
    let ticket = request.uri().query().unwrap_or_default();
    let ticket = ticket.trim_start_matches("ticket=");
    let welcome = {
        let mut world = shared.world();
        // A ticket is good once.
        world.tickets.remove(ticket) && !world.refuse
    };
    if !welcome {
        // The client goes away or does not; either is fine.
        let _ = socket.close().await;
        return;
    }
    let (frames, inbox) = mpsc::channel(1024);
    // Before the hello: who has heard it can be told anything.
    let (id, count) = shared.change(|world| {
        let id = world.number();
        world.sockets.push(FakeSocket {
            id,
            frames,
            frozen: false,
        });
        world.sockets_ever += 1;
        world.flush();
        (id, world.sockets.len())
    });
    let hello = json!({
        "type": "hello",
        "num_connections": count,
        "debug_info": {"host": "applink-fake", "build_number": 1, "approximate_connection_time": 18060},
        "connection_info": {"app_id": "A1"},
    });
    if socket.send(Message::text(hello.to_string())).await.is_ok() {
        run(&mut socket, inbox, shared).await;
    }
    shared.change(|world| world.sockets.retain(|socket| socket.id != id));
}

async fn run(
    socket: &mut WebSocketStream<TcpStream>,
    mut inbox: mpsc::Receiver<SocketFrame>,
    shared: &FakeSlackShared,
) {
    let mut ping = tokio::time::interval(PING);
    loop {
        let sent = tokio::select! {
            frame = inbox.recv() => match frame {
                None | Some(SocketFrame::Cut) => return,
                // Open, and deaf and dumb until the other end gives up.
                Some(SocketFrame::Freeze) => return std::future::pending().await,
                Some(SocketFrame::Text(text)) => socket.send(Message::text(text)).await,
                Some(SocketFrame::Disconnect(reason)) => {
                    let text = json!({
                        "type": "disconnect", "reason": reason,
                        "debug_info": {"host": "applink-fake"},
                    });
                    let sent = socket.send(Message::text(text.to_string())).await;
                    if reason != "warning" {
                        // Whether the close arrives is the other end's business.
                        let _ = socket.close().await;
                        return;
                    }
                    sent
                }
            },
            message = socket.next() => match message {
                Some(Ok(message)) => {
                    if let Some(text) = message.as_text() {
                        let cut = shared.change(|world| world.hear(text));
                        if cut.is_some() {
                            return;
                        }
                    }
                    Ok(())
                }
                Some(Err(_)) | None => return,
            },
            _ = ping.tick() => socket.send(Message::ping("Ping from applink-fake")).await,
        };
        if sent.is_err() {
            return;
        }
    }
}

//! The socket: hello, identify, resume, heartbeats, events.

use std::collections::VecDeque;
use std::sync::Arc;

use futures_util::{SinkExt as _, StreamExt as _};
use serde_json::{Value, json};
use tokio::net::TcpStream;
use tokio::sync::mpsc;
use tokio_websockets::{CloseCode, Message, ServerBuilder};

use super::FakeDiscordShared;
use super::state::{
    BOT, FakeDiscordState, FakeSession, GUILD, MESSAGE_CONTENT, SocketCommand, SocketRecord,
};

const GUILD_MEMBERS: u64 = 1 << 1;
const GUILD_PRESENCES: u64 = 1 << 8;
const PRIVILEGED: u64 = MESSAGE_CONTENT | GUILD_MEMBERS | GUILD_PRESENCES;

/// One connection, until it ends.
pub(super) async fn serve(stream: TcpStream, shared: Arc<FakeDiscordShared>) {
    if shared.world().offline {
        // As a machine that is not there.
        let _ = stream.set_zero_linger();
        return;
    }
    let Ok((_, socket)) = ServerBuilder::new().accept(stream).await else {
        return;
    };
    let (mut sink, mut stream) = socket.split();
    let (tell, mut orders) = mpsc::unbounded_channel();
    let interval = {
        let mut world = shared.world();
        world.spoken.push(SocketRecord::Connected);
        world.heartbeat_ms
    };
    shared.changed();
    let hello = json!({"op": 10, "s": null, "t": null, "d": {"heartbeat_interval": interval}});
    let _ = tell.send(SocketCommand::Frame(hello));
    let mut session = None;
    loop {
        tokio::select! {
            order = orders.recv() => match order {
                Some(SocketCommand::Frame(frame)) => {
                    if sink.send(Message::text(frame.to_string())).await.is_err() {
                        break;
                    }
                }
                Some(SocketCommand::Close(code)) => {
                    let code = CloseCode::try_from(code).unwrap_or(CloseCode::NORMAL_CLOSURE);
                    let _ = sink.send(Message::close(Some(code), "")).await;
                    break;
                }
                Some(SocketCommand::Die) => {
                    // Half open: until the server ends, or the client gives up.
                    let () = std::future::pending().await;
                }
                // No close frame.
                Some(SocketCommand::Cut) | None => break,
            },
            frame = stream.next() => {
                let Some(Ok(frame)) = frame else { break };
                let text = frame.as_text().unwrap_or_default();
                let Ok(frame_value) = serde_json::from_str::<Value>(text) else { continue };
                hear(&shared, &frame_value, &tell, &mut session);
                shared.changed();
            }
        }
    }
    let mut world = shared.world();
    let ours = session.and_then(|id| world.sessions.get_mut(&id));
    if let Some(session) = ours
        && (session.socket.as_ref()).is_some_and(|socket| socket.same_channel(&tell))
    {
        session.socket = None;
    }
    world.spoken.push(SocketRecord::Gone);
    drop(world);
    shared.changed();
}

fn hear(
    shared: &FakeDiscordShared,
    frame_value: &Value,
    tell: &mpsc::UnboundedSender<SocketCommand>,
    session: &mut Option<String>,
) {
    let url = shared.gateway_url();
    let mut world = shared.world();
    match frame_value["op"].as_u64() {
        Some(1) => {
            world
                .spoken
                .push(SocketRecord::Heartbeat(frame_value["d"].as_u64()));
            let _ = tell.send(SocketCommand::Frame(
                json!({"op": 11, "d": null, "s": null, "t": null}),
            ));
        }
        Some(2) => *session = identify(&mut world, &frame_value["d"], tell, &url),
        Some(6) => *session = resume(&mut world, &frame_value["d"], tell),
        // Presence, members, voice: nothing that anybody looks at.
        Some(3 | 4 | 8) => {}
        _ => {
            let _ = tell.send(SocketCommand::Close(4001));
        }
    }
}

fn identify(
    world: &mut FakeDiscordState,
    data: &Value,
    tell: &mpsc::UnboundedSender<SocketCommand>,
    url: &str,
) -> Option<String> {
    world.spoken.push(SocketRecord::Identify(data.clone()));
    let intents = data["intents"].as_u64().unwrap_or(0);
    let refused = if data["token"] != json!(world.token) {
        Some(4004)
    } else if intents & world.disallowed & PRIVILEGED != 0 {
        Some(4014)
    } else if !data["properties"].is_object() {
        Some(4002)
    } else {
        None
    };
    if let Some(code) = refused {
        let _ = tell.send(SocketCommand::Close(code));
        return None;
    }
    let id = format!("{:032x}", world.id());
    let ready = json!({
        "v": 10, "user": world.user_value(BOT), "session_id": id, "session_type": "normal",
        "resume_gateway_url": url, "shard": [0, 1],
        "guilds": [{"id": GUILD.to_string(), "unavailable": true}],
        "application": {"id": BOT.to_string(), "flags": 0},
        "private_channels": [], "presences": [], "relationships": [],
    });
    let mut session = FakeSession {
        intents,
        seq: 0,
        events: VecDeque::new(),
        socket: Some(tell.clone()),
    };
    session.push("READY", &ready);
    session.push("GUILD_CREATE", &world.guild_value());
    world.sessions.insert(id.clone(), session);
    Some(id)
}

fn resume(
    world: &mut FakeDiscordState,
    data: &Value,
    tell: &mpsc::UnboundedSender<SocketCommand>,
) -> Option<String> {
    let id = data["session_id"].as_str().unwrap_or_default().to_owned();
    let seq = data["seq"].as_u64().unwrap_or(0);
    world.spoken.push(SocketRecord::Resume {
        session: id.clone(),
        seq,
    });
    if data["token"] != json!(world.token) {
        let _ = tell.send(SocketCommand::Close(4004));
        return None;
    }
    let Some(session) = world.sessions.get_mut(&id).filter(|one| seq <= one.seq) else {
        let _ = tell.send(SocketCommand::Frame(
            json!({"op": 9, "d": false, "s": null, "t": null}),
        ));
        return None;
    };
    if let Some(before) = session.socket.replace(tell.clone()) {
        let _ = before.send(SocketCommand::Close(4000));
    }
    for (_, frame) in session.events.iter().filter(|(number, _)| *number > seq) {
        let _ = tell.send(SocketCommand::Frame(frame.clone()));
    }
    session.push("RESUMED", &json!({"_trace": []}));
    Some(id)
}

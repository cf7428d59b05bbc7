//! What other programs may do: `POST /control` with `{"do": …}`, answered with JSON.

use std::time::Duration;

use serde_json::{Value, json};

use super::FakeSlackShared;
use super::events::PostedMessage;
use super::state::{SlackFault, SocketFrame};

pub(super) fn run(shared: &FakeSlackShared, body: &[u8]) -> Value {
    let Ok(command) = serde_json::from_slice::<Value>(body) else {
        return json!({"error": "not JSON"});
    };
    let text = |name: &str| command[name].as_str().unwrap_or_default();
    let team = command["team"].as_str().unwrap_or("T1");
    match text("do") {
        "workspace" => shared.change(|world| world.add_team(team)),
        "user" => shared.change(|world| world.team(team).add_user(text("user"), text("name"))),
        "channel" => {
            shared.change(|world| world.team(team).add_channel(text("channel"), text("kind")));
        }
        "say" => {
            let mut message = PostedMessage::new(team, text("channel"), text("user"), text("text"));
            message.thread = command["thread"].as_str().map(str::to_owned);
            if let Some(name) = command["file"].as_str() {
                let mime = command["mime"].as_str().unwrap_or("text/plain");
                message = message.file(name, mime, text("content").as_bytes());
            }
            let ts = shared.change(|world| world.say(&message));
            return json!({"ts": ts});
        }
        "press" => shared.change(|world| {
            world.press(
                team,
                text("channel"),
                text("ts"),
                text("action"),
                text("user"),
            );
        }),
        "slash" => shared.change(|world| {
            world.slash(
                team,
                text("channel"),
                text("user"),
                text("command"),
                text("text"),
            );
        }),
        "fail" => {
            let fault = fault(&command["fault"]);
            shared.change(|world| world.faults.push((text("method").to_owned(), fault)));
        }
        "retry_after" => {
            let pause = Duration::from_millis(command["ms"].as_u64().unwrap_or(3000));
            shared.change(|world| world.retry_after = pause);
        }
        "disconnect" => shared.change(|world| {
            world.tell_sockets(&SocketFrame::Disconnect(text("reason").to_owned()));
        }),
        "cut" => shared.change(|world| {
            world.tell_sockets(&SocketFrame::Cut);
            world.sockets.clear();
        }),
        "freeze" => shared.change(|world| world.tell_sockets(&SocketFrame::Freeze)),
        "look" => {
            let world = shared.world();
            let acks: Vec<Value> = world
                .acks
                .iter()
                .map(|ack| json!({"kind": ack.kind, "payload": ack.payload}))
                .collect();
            let methods: Vec<&str> = world
                .calls
                .iter()
                .map(|call| call.method.as_str())
                .collect();
            return json!({
                "messages": world.visible(team, text("channel")),
                "acks": acks,
                "calls": methods,
                "sockets": world.sockets.len(),
                "sockets_ever": world.sockets_ever,
                "unacked": world.unacked.len() + world.queued.len(),
            });
        }
        other => return json!({"error": format!("{other:?} is no command")}),
    }
    json!({})
}

fn fault(value: &Value) -> SlackFault {
    match value.as_str().unwrap_or_default() {
        "cut_before" => SlackFault::CutBefore,
        "cut_after" => SlackFault::CutAfter,
        "hang_before" => SlackFault::HangBefore,
        "hang_after" => SlackFault::HangAfter,
        _ if value["rate_limited"].is_u64() => {
            SlackFault::RateLimited(value["rate_limited"].as_u64().unwrap_or(1))
        }
        _ if value["status"].is_u64() => {
            SlackFault::Status(value["status"].as_u64().unwrap_or(500) as u16)
        }
        other => SlackFault::Error(other.to_owned()),
    }
}

//! Orders as JSON, for programs that are not written in Rust: `POST /control {"do": …}`.

use serde_json::{Value, json};

use super::FakeDiscordShared;
use super::faults::{DiscordFault, DiscordFaultKind};
use super::state::{SocketRecord, snowflake};

/// Does what an order says. `{"error": …}`: it could not be read.
pub(super) fn obey(shared: &FakeDiscordShared, order: &Value) -> Value {
    let text = |name: &str| order[name].as_str().unwrap_or_default().to_owned();
    let number = |name: &str| snowflake(&order[name]).unwrap_or(0);
    let id = |id: u64| json!({"id": id.to_string()});
    match order["do"].as_str().unwrap_or_default() {
        "user" => id(shared.user(&text("name"), order["bot"] == json!(true))),
        "channel" => id(shared.channel(&text("name"))),
        "direct" => id(shared.direct(number("user"))),
        "say" => id(shared.say(number("channel"), number("user"), &text("text"))),
        "slash" => id(shared.slash(
            number("channel"),
            number("user"),
            &text("name"),
            &order["options"],
        )),
        "press" => id(shared.press(number("message"), number("user"), &text("custom_id"))),
        "heartbeat" => {
            shared.world().heartbeat_ms = number("ms");
            json!({})
        }
        "cut" => {
            shared.cut_sockets();
            json!({})
        }
        "zombie" => {
            shared.zombie();
            json!({})
        }
        "reconnect" => {
            shared.ask_to_reconnect();
            json!({})
        }
        "invalidate" => {
            shared.invalidate(order["resumable"] == json!(true));
            json!({})
        }
        "offline" => {
            shared.offline(order["on"] == json!(true));
            json!({})
        }
        "limit" => {
            shared.fail(DiscordFault {
                method: "POST",
                path: "/messages",
                kind: DiscordFaultKind::Limited {
                    seconds: order["seconds"].as_f64().unwrap_or(0.2),
                    global: order["global"] == json!(true),
                },
                times: 1,
            });
            json!({})
        }
        "lose answer" => {
            shared.fail(DiscordFault {
                method: "POST",
                path: "/messages",
                kind: DiscordFaultKind::AnswerLost,
                times: 1,
            });
            json!({})
        }
        "messages" => json!(shared.messages(number("channel"))),
        "spoken" => json!(shared.spoken().iter().map(spoken).collect::<Vec<_>>()),
        other => json!({"error": format!("no such order: {other:?}")}),
    }
}

fn spoken(what: &SocketRecord) -> Value {
    match what {
        SocketRecord::Connected => json!({"what": "connected"}),
        SocketRecord::Identify(data) => json!({"what": "identify", "intents": data["intents"]}),
        SocketRecord::Resume { session, seq } => {
            json!({"what": "resume", "session": session, "seq": seq})
        }
        SocketRecord::Heartbeat(seq) => json!({"what": "heartbeat", "seq": seq}),
        SocketRecord::Gone => json!({"what": "gone"}),
    }
}

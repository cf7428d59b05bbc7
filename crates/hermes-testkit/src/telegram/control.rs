//! The controls over HTTP, for tests in other languages and other processes: `POST /control` with
//! `{"do": …}`.

use std::sync::Arc;

use serde_json::{Value, json};

use super::FakeTelegramShared;
use super::people::PersonMessage;
use super::state::{FakeTelegramState, PlannedFault, ShownMessage, TelegramFault};

pub(super) fn run(shared: &Arc<FakeTelegramShared>, body: &[u8]) -> Value {
    let Ok(order) = serde_json::from_slice::<Value>(body) else {
        return json!({"error": "not JSON"});
    };
    if order["do"] == "refuse" {
        let on = order["on"].as_bool().unwrap_or(true);
        shared.refusing.send_replace(on);
        return json!({"ok": true});
    }
    shared.change(|world| obey(world, &order))
}

fn obey(world: &mut FakeTelegramState, order: &Value) -> Value {
    let number = |name: &str| order[name].as_i64();
    let text = |name: &str| order[name].as_str().unwrap_or_default().to_owned();
    let chat = number("chat").unwrap_or_default();
    match order["do"].as_str().unwrap_or_default() {
        "person" => {
            world.add_person(number("id").unwrap_or_default(), &text("name"));
            json!({"ok": true})
        }
        "group" => {
            let kind = order["kind"].as_str().unwrap_or("supergroup");
            let forum = order["forum"] == json!(true);
            world.add_group(
                number("id").unwrap_or_default(),
                &text("title"),
                kind,
                forum,
            );
            json!({"ok": true})
        }
        "say" => json!({"message_id": world.say(says(order))}),
        "press" => {
            let message = number("message").unwrap_or_default();
            let from = number("from").unwrap_or(chat);
            json!({"id": world.press(from, chat, message, &text("data"))})
        }
        "migrate" => {
            world.migrate(chat, number("to").unwrap_or_default());
            json!({"ok": true})
        }
        "fault" => match fault(order) {
            Some(fault) => {
                world.faults.push(PlannedFault {
                    method: order["method"].as_str().map(str::to_owned),
                    fault,
                    times: order["times"].as_u64().map(|times| times as usize),
                });
                json!({"ok": true})
            }
            None => json!({"error": "no such fault"}),
        },
        "clear" => {
            world.faults.clear();
            json!({"ok": true})
        }
        "shown" => json!(world.shown(chat).iter().map(shown).collect::<Vec<_>>()),
        "pending" => json!(world.updates.len()),
        other => json!({"error": format!("no such control: {other:?}")}),
    }
}

fn says(order: &Value) -> PersonMessage {
    let chat = order["chat"].as_i64().unwrap_or_default();
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let file = &order["file"];
    PersonMessage {
        chat,
        from: order["from"].as_i64().unwrap_or(chat),
        text: text(&order["text"]),
        thread: order["thread"].as_i64(),
        reply_to: order["reply_to"].as_i64(),
        file: file.is_object().then(|| {
            (
                text(&file["kind"]),
                text(&file["name"]),
                text(&file["mime"]),
                text(&file["content"]).into_bytes(),
            )
        }),
        album: order["album"].as_str().map(str::to_owned),
        more: order["more"].clone(),
    }
}

fn fault(order: &Value) -> Option<TelegramFault> {
    let number = |name: &str| order[name].as_u64();
    Some(match order["fault"].as_str()? {
        "hang" => TelegramFault::Hang,
        "cut" => TelegramFault::Cut,
        "cut_after" => TelegramFault::CutAfter,
        "hang_after" => TelegramFault::HangAfter,
        "garbage" => TelegramFault::Garbage,
        "status" => TelegramFault::Status(number("status")? as u16),
        "too_many" => TelegramFault::TooMany {
            retry_after: number("retry_after")?,
        },
        "error" => TelegramFault::Error(number("code")? as u16, order["text"].as_str()?.to_owned()),
        _ => return None,
    })
}

fn shown(shown: &ShownMessage) -> Value {
    json!({
        "id": shown.id,
        "thread": shown.thread,
        "text": shown.text,
        "entities": shown.entities,
        "reply_to": shown.reply_to,
        "buttons": shown.buttons,
        "media": shown.media.as_ref().map(|(kind, file)| json!({
            "kind": kind, "name": file.name, "bytes": file.bytes.len(),
        })),
        "edits": shown.edits,
    })
}

//! What the model says in a storm: an answer to every message that has none yet; for some it runs a
//! command first, once. And a report, with a number of its own, for every run of a job.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use hermes_testkit::model_server::{ModelServer, RecordedRequest, Reply};
use serde_json::{Value, json};

use super::{api, traffic};

/// A message whose number divides by this makes the model run a command first.
const WITH_COMMAND: u32 = 7;
/// What jobs are told.
pub(super) const JOB: &str = "storm report please";

/// A model, and where its commands leave their traces.
pub(super) fn start(effects: &Path) -> ModelServer {
    let model = ModelServer::start();
    let (effects, reports) = (effects.display().to_string(), Arc::new(AtomicU32::new(0)));
    model.answer_with(move |request| {
        if request.body_text().contains(JOB) {
            let number = reports.fetch_add(1, Ordering::SeqCst) + 1;
            return Reply::text(&format!("report {number}"));
        }
        answer(request, &effects)
    });
    model
}

fn answer(request: &RecordedRequest, effects: &str) -> Reply {
    let mut asked: Vec<(i64, u32)> = Vec::new();
    let mut told = BTreeSet::new();
    let mut commanded = BTreeSet::new();
    for message in request.messages() {
        let text = plain(&message["content"]);
        match message["role"].as_str() {
            // Words in between come with the result of a tool.
            Some("user" | "tool") => {
                for pair in numbered(&text, "m ") {
                    if !asked.contains(&pair) {
                        asked.push(pair);
                    }
                }
            }
            Some("assistant") => {
                told.extend(
                    traffic::answered(&text)
                        .into_iter()
                        .map(|(_, number)| number),
                );
                let calls = message["tool_calls"].to_string();
                commanded.extend(numbered(&calls, "done ").into_iter().map(|(_, n)| n));
            }
            _ => {}
        }
    }
    let open: Vec<(i64, u32)> = asked
        .into_iter()
        .filter(|(_, number)| !told.contains(number))
        .collect();
    let needs = |(_, number): &&(i64, u32)| {
        number.is_multiple_of(WITH_COMMAND) && !commanded.contains(number)
    };
    if let Some((chat, number)) = open.iter().find(needs) {
        let command = format!("echo done {chat} {number} >> {effects}");
        let id = format!("call_{chat}_{number}");
        return Reply::tool_call(&id, "terminal", &json!({ "command": command }));
    }
    // A client whose request was cut asks once more what may be answered already.
    let again = numbered(&request.last_user_text(), "m ");
    let open = if open.is_empty() {
        let again = again.into_iter();
        again
            .filter(|(chat, _)| api::CHATS.contains(chat))
            .collect()
    } else {
        open
    };
    let Some((chat, _)) = open.first() else {
        return Reply::text("nothing was asked");
    };
    let numbers: Vec<String> = open.iter().map(|(_, number)| number.to_string()).collect();
    Reply::text(&format!("answer {chat} {}", numbers.join(" "))).deltas(4)
}

/// Pairs of numbers after a word.
fn numbered(text: &str, word: &str) -> Vec<(i64, u32)> {
    let pair = |rest: &str| {
        let mut words = rest.split(|ch: char| !ch.is_ascii_digit());
        Some((words.next()?.parse().ok()?, words.next()?.parse().ok()?))
    };
    text.split(word).skip(1).filter_map(pair).collect()
}

fn plain(content: &Value) -> String {
    match content {
        Value::String(text) => text.clone(),
        Value::Array(parts) => {
            let texts: Vec<&str> = parts
                .iter()
                .filter_map(|part| part["text"].as_str())
                .collect();
            texts.join("\n")
        }
        _ => String::new(),
    }
}

//! The API server of the built binary, met by OpenAI's own client.

use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::path::PathBuf;
use std::time::Duration;

use hermes_testkit::home::TempHome;
use hermes_testkit::model_server::{ModelServer, Reply, ReplyGate};
use hermes_testkit::oracle;
use hermes_testkit::process::Program;
use pretty_assertions::assert_eq;
use serde_json::{Value, json};

use super::GatewayChild;
use crate::hermes;

const KEY: &str = "test-key-0123456789abcdef";

fn free_port() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    listener.local_addr().unwrap().port()
}

fn sdk(path: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
        .join("../..")
        .join(path)
}

fn configure(home: &TempHome, model: &ModelServer, env: &str) {
    let config = json!({
        "model": {"default": "scripted", "provider": "custom", "base_url": model.base_url(),
                  "api_key": "k", "context_length": 200_000},
        "auxiliary": {"title_generation": {"enabled": false}},
        "approvals": {"mode": "manual"},
        "terminal": {"cwd": home.work()},
    });
    home.write("config.yaml", config.to_string());
    home.write(".env", env);
}

/// A model that works as `agent.py` expects.
fn model() -> ModelServer {
    let model = ModelServer::start();
    model.answer_with(|request| {
        if request.ends_with_tool_result() {
            return Reply::text(&format!("It came to: {}", request.last_text()));
        }
        let said = request.last_user_text();
        let said = said.lines().last().unwrap_or_default();
        match said {
            "read" => Reply::tool_call("call_1", "read_file", &json!({"path": "note.txt"})),
            "delete" => {
                let command = json!({"command": "rm -rf /etc/hermes-test"});
                Reply::tool_call("call_2", "terminal", &command)
            }
            "forbidden" => Reply::error(401, "the key is wrong"),
            said => Reply::text(&format!("You said: {said}")),
        }
    });
    model
}

#[test]
fn openais_client_streams_with_tools_running_and_approves() {
    let python = sdk("target/openai-sdk/bin/python");
    if !python.exists() {
        return oracle::skip("OpenAI's SDKs", "openais_client_streams_with_tools_running");
    }
    let (home, model, port) = (TempHome::new(), model(), free_port());
    std::fs::write(home.work().join("note.txt"), "the tide is high\n").unwrap();
    let env = format!("API_SERVER_ENABLED=true\nAPI_SERVER_KEY={KEY}\nAPI_SERVER_PORT={port}\n");
    configure(&home, &model, &env);
    let gateway = GatewayChild::begin(&home, &[]);
    let url = format!("http://127.0.0.1:{port}/v1");
    let talked = Program::new(python, &home)
        .args([sdk("crates/hermes-testkit/sdk/openai/agent.py")])
        .args([url.as_str(), KEY])
        .run()
        .ok();
    assert!(
        talked.stdout.ends_with("all is well\n"),
        "{}",
        talked.stdout
    );
    // The second turn of the session saw the first.
    let second = model.model_requests();
    let second = second
        .iter()
        .find(|request| request.last_user_text().ends_with("second"));
    let said = second.unwrap().body_text();
    assert!(said.contains("You said: first"), "{said}");
    assert!(said.contains("through an API"), "{said}");
    drop(gateway.stop().ok());
    let stored = hermes(&home)
        .args(["sessions", "export", "--session-id", "book", "-"])
        .run()
        .ok();
    let stored: Value = serde_json::from_str(stored.stdout.lines().next().unwrap()).unwrap();
    assert_eq!(stored["source"], "api_server");
    let roles: Vec<&str> = stored["messages"]
        .as_array()
        .unwrap()
        .iter()
        .filter_map(|message| message["role"].as_str())
        .take(4)
        .collect();
    assert_eq!(roles, ["user", "assistant", "user", "assistant"]);
}

#[test]
fn a_weak_key_opens_nothing() {
    let (home, model, port) = (TempHome::new(), model(), free_port());
    let env = format!("API_SERVER_ENABLED=true\nAPI_SERVER_KEY=short\nAPI_SERVER_PORT={port}\n");
    configure(&home, &model, &env);
    let ended = hermes(&home)
        .args(["gateway", "run"])
        .env("HERMES_GATEWAY_LOCK_DIR", home.work().join("locks"))
        .run();
    assert_eq!(ended.code, Some(78), "{}", ended.stderr);
    assert!(ended.stderr.contains("API_SERVER_KEY"), "{}", ended.stderr);
}

/// One request, and all of its answer: status line, headers and body.
fn post(port: u16, path: &str, key: &str, body: &Value) -> String {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
    stream
        .set_read_timeout(Some(Duration::from_mins(1)))
        .unwrap();
    let body = body.to_string();
    let head = format!(
        "POST {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer {KEY}\r\n\
         Content-Type: application/json\r\nIdempotency-Key: {key}\r\nConnection: close\r\n\
         Content-Length: {}\r\n\r\n",
        body.len()
    );
    stream.write_all((head + &body).as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

fn said(text: &str) -> Value {
    json!({"messages": [{"role": "user", "content": text}]})
}

fn served(config: &Value) -> (TempHome, ModelServer, u16) {
    let (home, model, port) = (TempHome::new(), ModelServer::start(), free_port());
    let env = format!("API_SERVER_ENABLED=true\nAPI_SERVER_KEY={KEY}\nAPI_SERVER_PORT={port}\n");
    configure(&home, &model, &env);
    let mut whole: Value = serde_json::from_str(&home.read("config.yaml")).unwrap();
    for (name, value) in config.as_object().unwrap() {
        whole[name] = value.clone();
    }
    home.write("config.yaml", whole.to_string());
    (home, model, port)
}

#[test]
fn a_stop_waits_for_clients_and_takes_no_new_ones() {
    let (home, model, port) = served(&json!({"agent": {"restart_drain_timeout": 60}}));
    let gate = ReplyGate::new();
    model.push(Reply::text("at last").hold(&gate));
    let mut gateway = GatewayChild::begin(&home, &[]);
    let path = "/v1/chat/completions";
    let first = std::thread::spawn(move || post(port, path, "k1", &said("slowly")));
    model.block_until(|now| now.requests > 0);
    gateway.signal(rustix::process::Signal::INT);
    assert!(gateway.says("STOPPING=1"));
    let refused = loop {
        let answer = post(port, path, "k2", &said("me too"));
        if answer.starts_with("HTTP/1.1 503") {
            break answer;
        }
    };
    assert!(refused.to_lowercase().contains("retry-after:"), "{refused}");
    gate.release();
    let first = first.join().unwrap();
    assert!(
        first.starts_with("HTTP/1.1 200") && first.contains("at last"),
        "{first}"
    );
    drop(gateway.end().ok());
}

#[test]
fn a_key_of_an_earlier_life_is_known_after_a_death() {
    let (home, model, port) = served(&json!({}));
    model.push(Reply::text("the one answer"));
    let gateway = GatewayChild::begin(&home, &[]);
    let path = "/v1/chat/completions";
    let first = post(port, path, "k1", &said("once"));
    assert!(first.contains("the one answer"), "{first}");
    let gate = ReplyGate::new();
    model.push(Reply::text("never").hold(&gate));
    let cut = std::thread::spawn(move || {
        std::panic::catch_unwind(|| post(port, path, "k2", &said("cut"))).ok()
    });
    model.block_until(|now| now.requests > 1);
    gateway.signal(rustix::process::Signal::KILL);
    drop(gateway.end());
    drop(cut.join());
    gate.release();
    let gateway = GatewayChild::begin(&home, &[]);
    let again = post(port, path, "k1", &said("once"));
    let body = |answer: &str| answer.split_once("\r\n\r\n").unwrap().1.to_owned();
    assert_eq!(body(&again), body(&first));
    let told = post(port, path, "k2", &said("cut"));
    assert!(
        told.starts_with("HTTP/1.1 409") && told.contains("request_interrupted"),
        "{told}"
    );
    assert_eq!(model.progress().requests, 2);
    drop(gateway.stop().ok());
}

/// A client that was cut off by a death finds in the session what had come, and that it was cut.
#[test]
fn half_an_answer_to_a_client_survives_a_death() {
    let (home, model, port) = served(&json!({}));
    let gate = ReplyGate::new();
    let reply = Reply::text_deltas(["the first half, ", "and the second"]);
    model.push(reply.hold_at(2, &gate));
    let gateway = GatewayChild::begin(&home, &[]);
    let path = "/v1/chat/completions";
    let cut = std::thread::spawn(move || {
        std::panic::catch_unwind(|| post(port, path, "k1", &said("tell me all"))).ok()
    });
    let export = || hermes(&home).args(["sessions", "export", "-"]).run().stdout;
    let stored = (0..200).any(|_| {
        std::thread::sleep(Duration::from_millis(50));
        export().contains("the first half")
    });
    assert!(stored, "nothing was kept");
    gateway.signal(rustix::process::Signal::KILL);
    drop(gateway.end());
    drop(cut.join());
    gate.release();
    let export = export();
    assert!(export.contains("tell me all"), "{export}");
    assert_eq!(export.matches("the first half,").count(), 1, "{export}");
    assert!(export.contains("was cut off here"), "{export}");
}

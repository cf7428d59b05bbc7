//! The API server of the built binary, met by OpenAI's own client.

use std::net::TcpListener;
use std::path::PathBuf;

use hermes_testkit::home::TempHome;
use hermes_testkit::model_server::{ModelServer, Reply};
use hermes_testkit::oracle;
use hermes_testkit::process::Program;
use pretty_assertions::assert_eq;
use serde_json::{Value, json};

use super::Life;
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
    let gateway = Life::begin(&home, &[]);
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

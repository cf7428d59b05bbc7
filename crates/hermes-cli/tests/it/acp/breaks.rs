//! What editors do wrong, and what is wrong here.

use agent_client_protocol::v1::schema::{NewSessionRequest, StopReason};
use hermes_testkit::home::TempHome;
use hermes_testkit::model_server::{ModelServer, Reply};
use pretty_assertions::assert_eq;
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader};

use super::editor::{self, EditorHarness, begin, prompt};
use crate::CliHarness;

#[tokio::test]
async fn garbage_is_answered_and_does_not_end_the_connection() {
    let setup = CliHarness::new();
    let mut child = editor::start(&setup);
    let mut input = child.stdin.take().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let mut ask = async |bytes: &[u8]| -> Value {
        input.write_all(bytes).await.unwrap();
        input.write_all(b"\n").await.unwrap();
        let line = lines.next_line().await.unwrap().unwrap();
        serde_json::from_str(&line).unwrap()
    };
    assert_eq!(ask(b"what is this?").await["error"]["code"], -32700);
    assert_eq!(ask(b"\xff\xfe{").await["error"]["code"], -32700);
    assert_eq!(ask(b"[]").await["error"]["code"], -32600);
    let hello = ask(
        br#"{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":1,"clientCapabilities":{}}}"#,
    )
    .await;
    assert_eq!(hello["result"]["agentInfo"]["name"], "hermes", "{hello}");
    let unknown = ask(br#"{"jsonrpc":"2.0","id":2,"method":"no/such"}"#).await;
    assert_eq!(unknown["error"]["code"], -32601, "{unknown}");
    let wrong = ask(br#"{"jsonrpc":"2.0","id":3,"method":"session/new","params":{"cwd":7}}"#).await;
    assert_eq!(wrong["error"]["code"], -32602, "{wrong}");
    let nowhere = ask(
        br#"{"jsonrpc":"2.0","id":4,"method":"session/new","params":{"cwd":"here","mcpServers":[]}}"#,
    )
    .await;
    assert_eq!(nowhere["error"]["code"], -32602, "{nowhere}");
    let closed = ask(
        br#"{"jsonrpc":"2.0","id":5,"method":"session/prompt","params":{"sessionId":"x","prompt":[]}}"#,
    )
    .await;
    assert_eq!(closed["error"]["code"], -32002, "{closed}");
    drop(input);
    assert_eq!(child.wait().await.unwrap().code(), Some(0));
}

#[tokio::test]
async fn an_editor_that_is_gone_leaves_nothing_behind() {
    let setup = CliHarness::new();
    // Its number is its own: what runs in the sandbox has a table of processes of its own.
    let duration = format!("3000.{}", std::process::id());
    let command = format!("echo up > began; exec sleep {duration}");
    setup.server.push(Reply::tool_call(
        "c1",
        "terminal",
        &json!({"command": command}),
    ));
    let mut child = editor::start(&setup);
    let mut input = child.stdin.take().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let cwd = setup.home.work();
    let made = std::process::Command::new("mkfifo")
        .arg(cwd.join("began"))
        .status();
    assert!(made.unwrap().success());
    let mut answers = Vec::new();
    for message in [
        json!({"jsonrpc": "2.0", "id": 0, "method": "initialize",
            "params": {"protocolVersion": 1, "clientCapabilities": {}}}),
        json!({"jsonrpc": "2.0", "id": 1, "method": "session/new",
            "params": {"cwd": cwd, "mcpServers": []}}),
    ] {
        input
            .write_all(format!("{message}\n").as_bytes())
            .await
            .unwrap();
        let answer = lines.next_line().await.unwrap().unwrap();
        answers.push(serde_json::from_str::<Value>(&answer).unwrap());
    }
    let session = answers[1]["result"]["sessionId"].as_str().unwrap();
    let ask = json!({"jsonrpc": "2.0", "id": 2, "method": "session/prompt",
        "params": {"sessionId": session, "prompt": [{"type": "text", "text": "wait"}]}});
    input
        .write_all(format!("{ask}\n").as_bytes())
        .await
        .unwrap();
    // Comes when the command has written it.
    tokio::fs::read_to_string(cwd.join("began")).await.unwrap();
    // As when it is killed: both ends of its pipes are gone.
    drop((input, lines));
    let status = child.wait().await.unwrap();
    assert_eq!(status.code(), Some(0));
    assert!(!runs(&duration), "the command went on");
}

/// Whether a process has this argument.
fn runs(argument: &str) -> bool {
    let processes = std::fs::read_dir("/proc").unwrap().flatten();
    let mut lines = processes.filter_map(|entry| std::fs::read(entry.path().join("cmdline")).ok());
    lines.any(|line| {
        line.split(|byte| *byte == 0)
            .any(|one| one == argument.as_bytes())
    })
}

#[tokio::test]
async fn without_a_model_the_next_step_is_said() {
    let home = TempHome::new();
    let server = ModelServer::start();
    let setup = CliHarness { home, server };
    EditorHarness::new(&setup)
        .run(async |cx, _| {
            editor::initialize(&cx).await;
            let request = NewSessionRequest::new(setup.home.work());
            let error = cx.send_request(request).block_task().await.unwrap_err();
            assert_eq!(error.code.value(), -32000);
            assert!(error.message.contains("hermes setup"), "{error:?}");
        })
        .await;
    let checked = setup.run(["acp", "--check"]);
    assert_eq!(checked.code, Some(3));
    assert!(
        checked.stderr.contains("hermes setup"),
        "{}",
        checked.stderr
    );
    let checked = setup.run(["acp", "--check", "--json"]);
    assert_eq!(checked.code, Some(3));
    assert_eq!(checked.json()["ready"], false);
    let ready = CliHarness::new();
    let checked = ready.run(["acp", "--check", "--json"]).ok().json();
    assert_eq!(checked["ready"], true);
    assert_eq!(checked["provider"], "custom");
}

#[tokio::test]
async fn a_failing_provider_is_an_error_with_its_cause() {
    let setup = CliHarness::new();
    setup.server.push(Reply::error(401, "bad key"));
    setup.server.push(Reply::text("better"));
    EditorHarness::new(&setup)
        .run(async |cx, _| {
            let id = begin(&cx, &setup.home.work()).await;
            let error = prompt(&cx, &id, "hi").await.unwrap_err();
            assert!(error.message.contains("key"), "{error:?}");
            assert_eq!(prompt(&cx, &id, "hi").await, Ok(StopReason::EndTurn));
        })
        .await;
}

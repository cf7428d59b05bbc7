//! `hermes mcp serve`: our conversations for other programs.

use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use hermes_testkit::home::TempHome;
use hermes_testkit::model_server::Reply;
use pretty_assertions::assert_eq;
use serde_json::{Value, json};

use crate::CliHarness;

/// A client that asks one thing after the other.
pub(crate) struct Client {
    child: Child,
    input: Option<ChildStdin>,
    output: BufReader<ChildStdout>,
    asked: u64,
}

impl Client {
    pub(crate) fn start(home: &TempHome) -> Self {
        let mut child = Command::new(env!("CARGO_BIN_EXE_hermes"))
            .args(["mcp", "serve"])
            .env_clear()
            .envs(home.vars())
            .current_dir(home.work())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let output = BufReader::new(child.stdout.take().unwrap());
        Self {
            input: child.stdin.take(),
            output,
            child,
            asked: 0,
        }
    }

    fn send(&mut self, line: &str) {
        let input = self.input.as_mut().unwrap();
        input.write_all(format!("{line}\n").as_bytes()).unwrap();
    }

    fn answer(&mut self) -> Value {
        let mut line = String::new();
        self.output.read_line(&mut line).unwrap();
        serde_json::from_str(&line).unwrap()
    }

    fn ask(&mut self, method: &str, params: &Value) -> Value {
        self.asked += 1;
        let id = self.asked;
        self.send(
            &json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params}).to_string(),
        );
        let answer = self.answer();
        assert_eq!(answer["id"], id);
        answer
    }

    /// Calls a tool: what it gave, and whether it failed.
    pub(crate) fn call(&mut self, tool: &str, arguments: &Value) -> (Value, bool) {
        let answer = self.ask("tools/call", &json!({"name": tool, "arguments": arguments}));
        let text = answer["result"]["content"][0]["text"].as_str().unwrap();
        let failed = answer["result"]["isError"].as_bool().unwrap();
        (serde_json::from_str(text).unwrap(), failed)
    }

    pub(crate) fn leave(mut self) -> Option<i32> {
        drop(self.input.take());
        self.child.wait().unwrap().code()
    }
}

#[test]
fn the_handshake_and_the_ten_tools() {
    let home = TempHome::new();
    let mut client = Client::start(&home);
    let hello = client.ask(
        "initialize",
        &json!({"protocolVersion": "2025-06-18", "capabilities": {}}),
    );
    assert_eq!(hello["result"]["protocolVersion"], "2025-06-18");
    assert_eq!(hello["result"]["serverInfo"]["name"], "hermes");
    client.send(r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#);
    assert_eq!(client.ask("ping", &json!({}))["result"], json!({}));
    let listed = client.ask("tools/list", &json!({}));
    let tools = listed["result"]["tools"].as_array().unwrap();
    let names: Vec<&str> = tools
        .iter()
        .map(|tool| tool["name"].as_str().unwrap())
        .collect();
    assert_eq!(
        names,
        [
            "conversations_list",
            "conversation_get",
            "messages_read",
            "attachments_fetch",
            "events_poll",
            "events_wait",
            "messages_send",
            "channels_list",
            "permissions_list_open",
            "permissions_respond",
        ]
    );
    assert_eq!(client.ask("nonsense", &json!({}))["error"]["code"], -32601);
    assert_eq!(
        client.ask("tools/call", &json!({"name": "no"}))["error"]["code"],
        -32602
    );
    client.send("{broken");
    assert_eq!(client.answer()["error"]["code"], -32700);
    let (empty, failed) = client.call("conversations_list", &json!({}));
    assert_eq!((empty["count"].as_u64(), failed), (Some(0), false));
    assert_eq!(client.leave(), Some(0));
}

#[test]
fn conversations_are_read_and_followed() {
    let setup = CliHarness::new();
    setup
        .server
        .push_default(Reply::text("the cat is called Miso"));
    drop(setup.run(["chat", "-q", "what is my cat called?"]).ok());
    let mut client = Client::start(&setup.home);
    let (list, _) = client.call("conversations_list", &json!({"platform": "cli"}));
    assert_eq!(list["count"], 1);
    let key = list["conversations"][0]["session_key"].clone();
    let (page, _) = client.call("conversation_get", &json!({"session_key": key}));
    assert_eq!(page["platform"], "cli");
    let (read, _) = client.call("messages_read", &json!({"session_key": key, "limit": "1"}));
    assert_eq!(read["total_in_session"], 2);
    assert_eq!(read["messages"][0]["content"], "the cat is called Miso");

    let (quiet, _) = client.call("events_poll", &json!({}));
    assert_eq!(
        quiet["events"],
        json!([]),
        "what was there before is no event"
    );
    let (late, _) = client.call("events_wait", &json!({"timeout_ms": 0}));
    assert_eq!(late, json!({"event": null, "reason": "timeout"}));
    drop(setup.run(["chat", "-q", "and the dog?"]).ok());
    let (event, _) = client.call("events_wait", &json!({"timeout_ms": 60_000}));
    assert_eq!(event["event"]["content"], "and the dog?");
    let after = event["event"]["cursor"].clone();
    let (more, _) = client.call("events_poll", &json!({"after_cursor": after}));
    assert_eq!(more["events"][0]["role"], "assistant");

    let (gone, failed) = client.call("conversation_get", &json!({"session_key": "nope"}));
    assert!(
        failed
            && gone["error"]
                .as_str()
                .unwrap()
                .contains("no conversation nope")
    );
    let (sent, failed) = client.call(
        "messages_send",
        &json!({"target": "telegram:1", "message": "hi"}),
    );
    assert!(
        failed
            && sent["error"]
                .as_str()
                .unwrap()
                .contains("no gateway is running")
    );
    let (open, failed) = client.call("permissions_list_open", &json!({}));
    assert_eq!((open["count"].as_u64(), failed), (Some(0), false));
    assert_eq!(client.leave(), Some(0));
}

#[test]
fn a_wait_can_be_cancelled_and_does_not_block() {
    let home = TempHome::new();
    let mut client = Client::start(&home);
    client.send(r#"{"jsonrpc":"2.0","id":"w","method":"tools/call","params":{"name":"events_wait","arguments":{"timeout_ms":300000}}}"#);
    assert_eq!(client.ask("ping", &json!({}))["result"], json!({}));
    client
        .send(r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":"w"}}"#);
    assert_eq!(client.ask("ping", &json!({}))["result"], json!({}));
    assert_eq!(client.leave(), Some(0), "leaves although something waited");
}

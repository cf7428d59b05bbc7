//! Other programs of the home reach the running gateway: `hermes mcp serve` sends messages and decides what waits
//! for a permission.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt as _;
use std::process::Command;

use hermes_testkit::mcp_server::peers;
use hermes_testkit::model_server::Reply;
use pretty_assertions::assert_eq;
use serde_json::{Value, json};

use super::telegram::{ADA, TelegramScenario};
use crate::mcp::serve::Client;

fn asks_to_remove(story: &TelegramScenario, name: &str) -> std::path::PathBuf {
    let victim = story.home.work().join(name);
    std::fs::create_dir(&victim).unwrap();
    let command = format!("rm -rf {}", victim.display());
    story.model.push_all([
        Reply::tool_call("c1", "terminal", &json!({ "command": command })),
        Reply::text(&format!("Done with {name}.")),
    ]);
    story.say("remove it");
    story.until("a question", |telegram| {
        let shown = telegram.shown(ADA);
        shown
            .iter()
            .any(|one| one.text.contains(name) && !one.buttons.is_empty())
    });
    victim
}

#[test]
fn messages_are_sent_and_permissions_decided() {
    let mut story = TelegramScenario::new(&format!("TELEGRAM_ALLOWED_USERS={ADA}"));
    story.start();
    let mut client = Client::start(&story.home);
    let message =
        json!({"target": format!("telegram:{ADA}"), "message": "from **another** program"});
    let (sent, failed) = client.call("messages_send", &message);
    assert!(!failed, "{sent}");
    assert_eq!(sent["target"], format!("telegram:{ADA}"));
    story.see_text("from another program");
    let (wrong, failed) = client.call("messages_send", &json!({"target": "icq:1", "message": "x"}));
    assert!(
        failed && wrong["error"].as_str().unwrap().contains("icq"),
        "{wrong}"
    );

    let (open, failed) = client.call("permissions_list_open", &json!({}));
    assert_eq!((open["count"].as_u64(), failed), (Some(0), false), "{open}");
    let victim = asks_to_remove(&story, "first");
    let (open, _) = client.call("permissions_list_open", &json!({}));
    assert_eq!(open["count"], 1, "{open}");
    let one = &open["approvals"][0];
    assert_eq!(one["tool"], "terminal");
    assert!(one["text"].as_str().unwrap().contains("rm -rf"), "{open}");
    assert_eq!(one["target"], format!("telegram:{ADA}"));
    let decide = |client: &mut Client, id: &Value, decision: &str| {
        client.call(
            "permissions_respond",
            &json!({"id": id, "decision": decision}),
        )
    };
    let (wrong, failed) = decide(&mut client, &one["id"], "perhaps");
    assert!(
        failed && wrong["error"].as_str().unwrap().contains("allow-once"),
        "{wrong}"
    );
    assert!(victim.exists());
    let (done, failed) = decide(&mut client, &one["id"], "allow-once");
    assert!(!failed, "{done}");
    story.see_text("Done with first.");
    assert!(!victim.exists());
    let (late, failed) = decide(&mut client, &one["id"], "allow-once");
    assert!(
        failed && late["error"].as_str().unwrap().contains("no permission"),
        "{late}"
    );

    let victim = asks_to_remove(&story, "second");
    let (open, _) = client.call("permissions_list_open", &json!({}));
    let (done, failed) = decide(&mut client, &open["approvals"][0]["id"], "deny");
    assert!(!failed, "{done}");
    story.see_text("Done with second.");
    assert!(victim.exists());
    assert_eq!(client.leave(), Some(0));
}

/// Whoever has no token learns nothing and changes nothing, and only the owner can read it.
#[test]
fn a_program_without_the_token_is_not_answered() {
    let mut story = TelegramScenario::new(&format!("TELEGRAM_ALLOWED_USERS={ADA}"));
    story.start();
    let path = story.home.join("gateway_control.json");
    let mode = std::fs::metadata(&path).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    let address: Value = serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
    let port = u16::try_from(address["port"].as_u64().unwrap()).unwrap();
    let message = json!({"token": "guess", "op": "send", "target": format!("telegram:{ADA}"), "message": "forged"});
    let post = "POST / HTTP/1.1\r\nHost: x\r\n\r\n{}";
    for request in [
        message.to_string(),
        "{}".to_owned(),
        post.to_owned(),
        "\0".repeat(9000),
    ] {
        let mut stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
        let _ = stream.write_all(format!("{request}\n").as_bytes());
        let mut answer = Vec::new();
        let _ = stream.read_to_end(&mut answer);
        assert_eq!(answer, b"", "{request}");
    }
    assert!(story.telegram.texts(ADA).is_empty());
    let mut client = Client::start(&story.home);
    assert_eq!(story.stop(), Some(0));
    assert!(!path.exists());
    let message = json!({"target": format!("telegram:{ADA}"), "message": "late"});
    let (refused, failed) = client.call("messages_send", &message);
    assert!(
        failed
            && refused["error"]
                .as_str()
                .unwrap()
                .contains("no gateway is running")
    );
    assert_eq!(client.leave(), Some(0));
}

/// With the client of the protocol's own SDK.
#[test]
fn the_client_of_the_sdk_sends_and_decides() {
    let Some(peers) = peers::require("the_client_of_the_sdk_sends_and_decides") else {
        return;
    };
    let mut story = TelegramScenario::new(&format!("TELEGRAM_ALLOWED_USERS={ADA}"));
    story.start();
    let victim = asks_to_remove(&story, "third");
    let script = r#"
import asyncio, json, os, sys
from mcp import ClientSession, StdioServerParameters
from mcp.client.stdio import stdio_client

async def main():
    server = StdioServerParameters(command=sys.argv[1], args=["mcp", "serve"], env=dict(os.environ))
    async with stdio_client(server) as (read, write):
        async with ClientSession(read, write) as session:
            await session.initialize()
            async def call(name, args):
                result = await session.call_tool(name, args)
                assert not result.isError, result
                return json.loads(result.content[0].text)
            await call("messages_send", {"target": "telegram:7", "message": "by the SDK"})
            listed = await call("permissions_list_open", {})
            assert listed["count"] == 1, listed
            await call("permissions_respond", {"id": listed["approvals"][0]["id"], "decision": "allow-once"})

asyncio.run(main())
"#;
    let output = Command::new(peers.python_legacy())
        .args(["-c", script, env!("CARGO_BIN_EXE_hermes")])
        .env_clear()
        .envs(story.home.vars())
        .current_dir(story.home.work())
        .output()
        .unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{errors}");
    story.see_text("by the SDK");
    story.see_text("Done with third.");
    assert!(!victim.exists());
}

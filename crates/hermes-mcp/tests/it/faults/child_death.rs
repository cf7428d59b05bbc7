//! Children that exit at any point of a conversation: nothing is executed twice, no executed call
//! is reported as not executed, and the next call works.

use std::path::Path;
use std::time::Duration;

use futures_util::future::join_all;
use hermes_testkit::mcp_server::shape::ShapeRng;
use serde_json::json;

use crate::rig::{Rig, spec, stdio_target};

const RUNS: u64 = 24;
/// Calls per child.
const CALLS_PER_RUN: usize = 8;

/// Records every call in a file, and exits where the call specifies, or where a file specifies it
/// for other requests.
const SERVER: &str = r#"
answer() { printf '{"jsonrpc":"2.0","id":%s,"result":%s}\n' "$id" "$1"; }
dies_at() { [ -e "$home/$1" ] && rm "$home/$1" && exit 1; }
while read -r line; do
  id=$(printf '%s' "$line" | sed -n 's/.*"id":\([0-9][0-9]*\).*/\1/p')
  case $line in
    *'"initialize"'*) dies_at initialize; answer '{"protocolVersion":"2025-11-25","capabilities":{"tools":{}},"serverInfo":{"name":"shell","version":"1"}}' ;;
    *'"ping"'*) answer '{}' ;;
    *'"tools/list"'*) dies_at list; answer '{"tools":[{"name":"bump","inputSchema":{"type":"object"}}]}'; dies_at listed ;;
    *'"how":"before"'*) exit 1 ;;
    *'"tools/call"'*)
      printf '%s\n' "$line" | sed -n 's/.*"token":"\([a-z0-9]*\)".*/\1/p' >> "$home/marks"
      case $line in *'"how":"after"'*) exit 1 ;; esac
      case $line in *'"how":"half"'*) printf '{"jsonrpc":"2.0","id":%s,"resu' "$id"; exit 1 ;; esac
      case $line in *'"how":"garbage"'*) printf '{"jsonrpc":"2.0","resu\n'; continue ;; esac
      answer '{"content":[{"type":"text","text":"done"}]}'
      case $line in *'"how":"answered"'*) exit 0 ;; esac ;;
  esac
done
"#;

async fn run(seed: u64) -> Vec<String> {
    let dice = ShapeRng::new(seed);
    let home = tempfile::tempdir().unwrap();
    let marks = |home: &Path| std::fs::read_to_string(home.join("marks")).unwrap_or_default();
    let script = format!("home='{}'\n{SERVER}", home.path().display());
    let args = vec!["-c".to_owned(), script];
    let target = stdio_target(Path::new("/bin/sh"), args, home.path());
    let mut rig = Rig::start(spec(&target, |settings| {
        settings.timeout = Duration::from_secs(25);
    }));
    rig.ready().await;
    let mut broken = Vec::new();
    for at in 0..CALLS_PER_RUN {
        let how = dice.pick(&[
            "well",
            "before",
            "after",
            "half",
            "garbage",
            "answered",
            "initialize",
            "list",
            "listed",
        ]);
        let handshake = matches!(how, "initialize" | "list" | "listed");
        if handshake {
            std::fs::write(home.path().join(how), "").unwrap();
        }
        // A failure in the handshake needs an exit before it.
        let ways = if handshake {
            ["after", "well"]
        } else {
            [how, "well"]
        };
        for (part, how) in ways.into_iter().enumerate() {
            let token = format!("t{at}x{part}");
            let result = rig.call("bump", json!({"token": token, "how": how})).await;
            let ran = marks(home.path())
                .lines()
                .filter(|mark| *mark == token)
                .count();
            let details = format!("seed {seed}, {how}: {result:?}");
            if ran > 1 {
                broken.push(format!("done twice: {details}"));
            }
            match &result {
                Ok(_) if ran == 0 => broken.push(format!("said to be done: {details}")),
                Err(error) if ran > 0 && !error.outcome_unknown => {
                    broken.push(format!("said not to have run: {details}"));
                }
                // A child that has answered may exit with the next call unread in its pipe.
                Err(_) if part == 1 && !handshake && ways[0] != "answered" => {
                    broken.push(format!("the call after a death fails: {details}"));
                }
                _ => {}
            }
        }
        if handshake || how == "answered" {
            let token = format!("t{at}x2");
            let result = rig
                .call("bump", json!({"token": token, "how": "well"}))
                .await;
            if result.is_err() {
                broken.push(format!("seed {seed}, {how}: never back: {result:?}"));
            }
        }
    }
    rig.stop().await;
    broken
}

#[tokio::test]
async fn children_die_at_any_point() {
    let mut broken: Vec<String> = join_all((0..RUNS).map(run)).await.concat();
    broken.truncate(20);
    assert!(broken.is_empty(), "{}", broken.join("\n"));
}

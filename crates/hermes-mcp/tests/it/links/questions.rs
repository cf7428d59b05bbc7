//! Servers that send requests to the client.

use std::sync::Arc;

use hermes_core::BoxFuture;
use hermes_mcp::{AskerResult, Declined, Era, Op, ServerRequests};
use serde_json::{Value, json};

use super::children::script;
use super::{Bench, ask, nothing, tool};

/// Asks the user during a call, as servers up to 2025-11-25 do.
const ASKING: &str = r#"
answer() { printf '{"jsonrpc":"2.0","id":%s,"result":%s}\n' "$id" "$1"; }
while read -r line; do
  id=$(printf '%s' "$line" | sed -n 's/.*"id":\([0-9][0-9]*\).*/\1/p')
  case $line in
    *'"initialize"'*) answer '{"protocolVersion":"2025-06-18","capabilities":{"tools":{}},"serverInfo":{"name":"asking","version":"1"}}' ;;
    *'"tools/call"'*)
      printf '{"jsonrpc":"2.0","id":"a","method":"ping"}\n'; read -r pong
      printf '{"jsonrpc":"2.0","id":"b","method":"roots/list"}\n'; read -r roots
      printf '{"jsonrpc":"2.0","id":"c","method":"elicitation/create","params":{"message":"Sure?","requestedSchema":{"type":"object","properties":{}}}}\n'; read -r reply
      printf '{"jsonrpc":"2.0","id":"d","method":"sampling/createMessage","params":{"messages":[],"maxTokens":1}}\n'; read -r sampled
      answer "{\"content\":[],\"structuredContent\":[$pong,$roots,$reply,$sampled],\"vendor\":1}" ;;
  esac
done
"#;

struct Agreeing;

impl ServerRequests for Agreeing {
    fn capabilities(&self) -> Value {
        json!({"elicitation": {"form": {}}})
    }

    fn answer<'a>(
        &'a self,
        method: &'a str,
        params: Value,
        _asker: AskerResult,
    ) -> BoxFuture<'a, Result<Value, Declined>> {
        let answer = match method {
            "elicitation/create" => {
                Ok(json!({"action": "accept", "content": {"to": params["message"]}}))
            }
            _ => Err(Declined {
                code: -32601,
                message: format!("no {method} here"),
            }),
        };
        Box::pin(async move { answer })
    }
}

#[tokio::test]
async fn questions_of_a_server_are_answered_and_results_kept_as_they_came() {
    let home = tempfile::tempdir().unwrap();
    let mut bench = Bench::new(script(home.path(), ASKING));
    let link = bench.connect().await.unwrap();
    let result = ask(&*link, tool("any", nothing())).await.unwrap();
    assert_eq!(result["vendor"], 1, "{result}");
    let replies = &result["structuredContent"];
    assert_eq!(replies[0]["result"], json!({}));
    assert_eq!(replies[1]["result"]["roots"], json!([]));
    assert_eq!(replies[2]["result"]["action"], "decline");
    assert_eq!(replies[3]["error"]["code"], -32601);
    link.close().await;
    bench.connector.requests = Some(Arc::new(Agreeing));
    let link = bench.connect().await.unwrap();
    let result = ask(&*link, tool("any", nothing())).await.unwrap();
    let replies = &result["structuredContent"];
    assert_eq!(replies[2]["result"]["content"]["to"], "Sure?");
    assert_eq!(
        replies[3]["error"]["message"],
        "no sampling/createMessage here"
    );
    link.close().await;
}

/// Stateless over stdio; requests input before it answers.
const MODERN: &str = r#"
answer() { printf '{"jsonrpc":"2.0","id":%s,"result":%s}\n' "$id" "$1"; }
while read -r line; do
  id=$(printf '%s' "$line" | sed -n 's/.*"id":\([0-9][0-9]*\).*/\1/p')
  case $line in
    *'"initialize"'*) printf '{"jsonrpc":"2.0","id":%s,"error":{"code":-32601,"message":"Method not found"}}\n' "$id" ;;
    *'"server/discover"'*) answer '{"resultType":"complete","supportedVersions":["2026-07-28"],"capabilities":{"tools":{}},"serverInfo":{"name":"modern","version":"1"},"ttlMs":0,"cacheScope":"private"}' ;;
    *'"tools/list"'*) answer '{"resultType":"complete","tools":[{"name":"odd"},{"name":"even","inputSchema":{"type":"object"}}],"ttlMs":0,"cacheScope":"private"}' ;;
    *'"inputResponses"'*'"state-1"'*|*'"state-1"'*'"inputResponses"'*) answer "{\"resultType\":\"complete\",\"content\":[],\"structuredContent\":$line}" ;;
    *'"tools/call"'*) answer '{"resultType":"input_required","requestState":"state-1","inputRequests":{"who":{"method":"elicitation/create","params":{"message":"Who?","requestedSchema":{"type":"object","properties":{}}}}}}' ;;
  esac
done
"#;

#[tokio::test]
async fn a_modern_server_over_stdio_is_found_out_and_gets_the_input_it_asks_for() {
    let home = tempfile::tempdir().unwrap();
    let mut bench = Bench::new(script(home.path(), MODERN));
    bench.connector.requests = Some(Arc::new(Agreeing));
    for _ in 0..2 {
        let link = bench.connect().await.unwrap();
        assert_eq!(link.facts().era, Era::Modern);
        let tools = ask(&*link, Op::ListTools).await.unwrap();
        assert_eq!(super::names(&tools, "tools"), ["odd", "even"]);
        let result = ask(&*link, tool("any", json!({"a": 1}))).await.unwrap();
        let second = &result["structuredContent"]["params"];
        assert_eq!(second["inputResponses"]["who"]["content"]["to"], "Who?");
        assert_eq!(second["requestState"], "state-1");
        assert_eq!(second["arguments"]["a"], 1);
        let meta = &second["_meta"];
        assert_eq!(
            meta["io.modelcontextprotocol/protocolVersion"],
            "2026-07-28"
        );
        ask(&*link, Op::Probe).await.unwrap();
        link.close().await;
    }
}

/// Waits until the test continues it.
struct BlockedHandler(tokio::sync::Notify);

impl ServerRequests for BlockedHandler {
    fn answer<'a>(
        &'a self,
        _method: &'a str,
        _params: Value,
        _asker: AskerResult,
    ) -> BoxFuture<'a, Result<Value, Declined>> {
        Box::pin(async {
            self.0.notified().await;
            Ok(json!({"action": "decline"}))
        })
    }
}

#[tokio::test]
async fn the_link_reports_when_the_user_is_being_asked() {
    let home = tempfile::tempdir().unwrap();
    let mut bench = Bench::new(script(home.path(), ASKING));
    let blocked = Arc::new(BlockedHandler(tokio::sync::Notify::new()));
    bench.connector.requests = Some(Arc::clone(&blocked) as _);
    let link = bench.connect().await.unwrap();
    assert!(!link.waits_for_user());
    let wait = async {
        while !link.waits_for_user() {
            tokio::task::yield_now().await;
        }
        blocked.0.notify_one();
        while link.waits_for_user() {
            tokio::task::yield_now().await;
        }
        blocked.0.notify_one();
    };
    let (result, ()) = tokio::join!(ask(&*link, tool("any", nothing())), wait);
    result.unwrap();
    assert!(!link.waits_for_user());
    link.close().await;
}

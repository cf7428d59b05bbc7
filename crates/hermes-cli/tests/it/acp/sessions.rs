//! What goes on within a session: words in between, commands, servers, questions, the end.

use agent_client_protocol::v1::schema::{
    CloseSessionRequest, McpServer, McpServerHttp, NewSessionRequest, StopReason, ToolCallStatus,
};
use hermes_testkit::mcp_server::FaultyServer;
use hermes_testkit::model_server::{Reply, ReplyGate};
use pretty_assertions::assert_eq;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::json;

use super::editor::{self, EditorHarness, begin, prompt};
use crate::CliHarness;

#[tokio::test]
async fn a_second_prompt_is_a_word_in_between() {
    let setup = CliHarness::new();
    let gate = ReplyGate::new();
    setup.server.push(
        Reply::tool_call("c1", "terminal", &json!({"command": "echo one"})).hold_at(1, &gate),
    );
    setup.server.push(Reply::text("done"));
    EditorHarness::new(&setup)
        .run(async |cx, seen| {
            let id = begin(&cx, &setup.home.work()).await;
            let first = prompt(&cx, &id, "count");
            let second = prompt(&cx, &id, "in French, please");
            let release = async {
                // Both are with the session once a command that came after them has answered.
                assert_eq!(prompt(&cx, &id, "/version").await, Ok(StopReason::EndTurn));
                gate.release();
            };
            let (first, second, ()) = tokio::join!(first, second, release);
            assert_eq!(
                (first, second),
                (Ok(StopReason::EndTurn), Ok(StopReason::EndTurn))
            );
            assert!(seen.text(&id).contains("done"));
        })
        .await;
    let sent = setup.server.last_request().body.to_string();
    assert!(sent.contains("in French, please"), "{sent}");
    assert_eq!(setup.server.model_requests().len(), 2, "one turn");
}

#[tokio::test]
async fn a_new_session_in_the_thread_keeps_the_place_and_the_questions() {
    let setup = CliHarness::new();
    let project = setup.home.work().join("project");
    std::fs::create_dir(&project).unwrap();
    let args = json!({"path": "new.txt", "content": "x"});
    setup.server.push_all([
        Reply::text("hello"),
        Reply::tool_call("c1", "write_file", &args),
        Reply::text("done"),
    ]);
    EditorHarness::new(&setup)
        .pressing("allow_once")
        .run(async |cx, seen| {
            let id = begin(&cx, &project).await;
            assert_eq!(
                prompt(&cx, &id, "first words").await,
                Ok(StopReason::EndTurn)
            );
            assert_eq!(prompt(&cx, &id, "/new").await, Ok(StopReason::EndTurn));
            assert!(seen.text(&id).contains("A new conversation"));
            assert_eq!(prompt(&cx, &id, "write").await, Ok(StopReason::EndTurn));
            assert_eq!(seen.asked.lock().unwrap().len(), 1);
        })
        .await;
    assert!(project.join("new.txt").exists());
    let sent = setup.server.last_request().body.to_string();
    assert!(!sent.contains("first words"), "{sent}");
}

#[tokio::test]
async fn tools_of_the_editors_server_are_there_for_its_session_only() {
    let setup = CliHarness::new();
    let wiki = FaultyServer::start();
    setup.server.push_all([
        Reply::tool_call("c1", "mcp__wiki__echo", &json!({"text": "hi"})),
        Reply::text("done"),
        Reply::text("nothing"),
    ]);
    EditorHarness::new(&setup)
        .run(async |cx, seen| {
            editor::initialize(&cx).await;
            let server = McpServer::Http(McpServerHttp::new("wiki", wiki.url()));
            let request = NewSessionRequest::new(setup.home.work()).mcp_servers(vec![server]);
            let session = cx.send_request(request).block_task().await.unwrap();
            let id = session.session_id.0.to_string();
            assert_eq!(prompt(&cx, &id, "use it").await, Ok(StopReason::EndTurn));
            let ended = seen.ended("c1");
            assert_eq!(ended.status, Some(ToolCallStatus::Completed), "{ended:?}");
            let close = CloseSessionRequest::new(id.clone());
            cx.send_request(close).block_task().await.unwrap();
            let error = prompt(&cx, &id, "more").await.unwrap_err();
            assert_eq!(error.code.value(), -32002);
            let other = begin_again(&cx, &setup).await;
            assert_eq!(
                prompt(&cx, &other, "and now?").await,
                Ok(StopReason::EndTurn)
            );
        })
        .await;
    let offered = setup.server.last_request().body["tools"].to_string();
    assert!(!offered.contains("mcp__wiki__"), "{offered}");
}

async fn begin_again(
    cx: &agent_client_protocol::v1::ConnectionTo<agent_client_protocol::Agent>,
    setup: &CliHarness,
) -> String {
    let request = NewSessionRequest::new(setup.home.work());
    let session = cx.send_request(request).block_task().await.unwrap();
    session.session_id.0.to_string()
}

#[tokio::test]
async fn a_choice_of_the_model_is_made_with_buttons() {
    let setup = CliHarness::new();
    let args = json!({"question": "Which colour?", "choices": ["red", "blue"]});
    setup.server.push_all([
        Reply::tool_call("c1", "clarify", &args),
        Reply::text("done"),
        Reply::tool_call("c2", "clarify", &json!({"question": "Why?"})),
        Reply::text("so be it"),
    ]);
    EditorHarness::new(&setup)
        .pressing("1")
        .run(async |cx, seen| {
            let id = begin(&cx, &setup.home.work()).await;
            assert_eq!(prompt(&cx, &id, "paint").await, Ok(StopReason::EndTurn));
            assert_eq!(seen.asked.lock().unwrap()[0].options.len(), 3);
            let results = setup.server.last_request().tool_results();
            assert!(results[0].text.contains("blue"), "{results:?}");
            // An open question cannot be shown, so that the model is told at once.
            assert_eq!(prompt(&cx, &id, "go on").await, Ok(StopReason::EndTurn));
            let results = setup.server.last_request().tool_results();
            assert!(
                results.last().unwrap().text.contains("cannot show"),
                "{results:?}"
            );
        })
        .await;
}

#[tokio::test]
async fn it_ends_when_it_is_told_to() {
    let setup = CliHarness::new();
    let mut child = editor::start(&setup);
    let mut hello = tokio::io::BufReader::new(child.stdout.take().unwrap());
    let mut input = child.stdin.take().unwrap();
    let message = json!({"jsonrpc": "2.0", "id": 0, "method": "initialize",
        "params": {"protocolVersion": 1, "clientCapabilities": {}}});
    let line = format!("{message}\n");
    tokio::io::AsyncWriteExt::write_all(&mut input, line.as_bytes())
        .await
        .unwrap();
    let mut answer = String::new();
    tokio::io::AsyncBufReadExt::read_line(&mut hello, &mut answer)
        .await
        .unwrap();
    let pid = Pid::from_raw(child.id().unwrap().cast_signed()).unwrap();
    kill_process(pid, Signal::TERM).unwrap();
    // Its stdin is still open: that does not hold it.
    assert_eq!(child.wait().await.unwrap().code(), Some(143));
    drop(input);
}

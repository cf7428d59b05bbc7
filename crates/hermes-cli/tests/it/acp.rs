//! `hermes acp`, driven by the protocol's own client over the program's stdin and stdout.

mod breaks;
mod editor;
mod edits;
mod sessions;
mod terminals;
mod texts;

use agent_client_protocol::UntypedMessage;
use agent_client_protocol::v1::schema::{
    AuthenticateRequest, CancelNotification, ClientCapabilities, ContentBlock, ImageContent,
    ListSessionsRequest, LoadSessionRequest, McpServer, McpServerStdio, NewSessionRequest,
    PromptRequest, ResourceLink, SessionUpdate, StopReason, TextContent, ToolCallStatus, ToolKind,
};
use hermes_testkit::model_server::{Reply, ReplyGate};
use pretty_assertions::assert_eq;
use serde_json::json;

use self::editor::{EditorHarness, begin, prompt};
use crate::CliHarness;

#[tokio::test]
async fn an_answer_streams_and_the_session_is_recorded() {
    let setup = CliHarness::new();
    setup
        .server
        .push(Reply::text_deltas(["Hel", "lo"]).reasoning("hm"));
    EditorHarness::new(&setup)
        .run(async |cx, seen| {
            let hello = editor::initialize(&cx).await;
            assert!(hello.agent_capabilities.load_session);
            assert!(hello.agent_capabilities.prompt_capabilities.image);
            assert!(hello.agent_capabilities.session_capabilities.list.is_some());
            let request = NewSessionRequest::new(setup.home.work());
            let session = cx.send_request(request).block_task().await.unwrap();
            let modes = session.modes.unwrap();
            let ids: Vec<_> = modes.available_modes.iter().map(|m| &*m.id.0).collect();
            assert_eq!(ids, ["default", "accept_edits", "dont_ask"]);
            let id = session.session_id.0.to_string();
            assert_eq!(prompt(&cx, &id, "hi").await, Ok(StopReason::EndTurn));
            assert_eq!(seen.text(&id), "Hello");
            assert_eq!(seen.thoughts(&id), "hm");
            let used = seen.find(|update| match update {
                SessionUpdate::UsageUpdate(usage) => Some(usage.size),
                _ => None,
            });
            assert_eq!(used, Some(200_000));
            let commands = seen.find(|update| match update {
                SessionUpdate::AvailableCommandsUpdate(update) => {
                    Some(update.available_commands.clone())
                }
                _ => None,
            });
            let commands = commands.unwrap();
            assert!(commands.iter().any(|command| command.name == "compress"));
            let listed = cx
                .send_request(ListSessionsRequest::new())
                .block_task()
                .await
                .unwrap();
            assert_eq!(&*listed.sessions[0].session_id.0, id);
            assert_eq!(listed.sessions[0].cwd, setup.home.work());
        })
        .await;
    let rows = setup.run(["sessions", "list", "--json"]).ok().json();
    assert_eq!(rows[0]["source"], "acp", "{rows}");
}

#[tokio::test]
async fn tools_are_shown_with_their_kind_and_output() {
    let setup = CliHarness::new();
    setup.server.push_all([
        Reply::tool_call(
            "c1",
            "terminal",
            &json!({"command": "echo from-the-shell; pwd"}),
        ),
        Reply::tool_call(
            "c2",
            "todo",
            &json!({"todos": [{"id": "1", "content": "look", "status": "in_progress"}]}),
        ),
        Reply::text("done"),
    ]);
    let project = setup.home.work().join("project");
    std::fs::create_dir(&project).unwrap();
    EditorHarness::new(&setup)
        .run(async |cx, seen| {
            editor::initialize(&cx).await;
            let request = NewSessionRequest::new(project.clone());
            let session = cx.send_request(request).block_task().await.unwrap();
            let id = session.session_id.0.to_string();
            assert_eq!(prompt(&cx, &id, "go").await, Ok(StopReason::EndTurn));
            let call = seen.call("c1");
            assert_eq!(call.kind, ToolKind::Execute);
            assert_eq!(call.title, "echo from-the-shell; pwd");
            let ended = seen.ended("c1");
            assert_eq!(ended.status, Some(ToolCallStatus::Completed));
            let shown = format!("{:?}", ended.content);
            assert!(shown.contains("from-the-shell"), "{shown}");
            assert!(
                shown.contains("/project"),
                "it runs in the editor's directory: {shown}"
            );
            let plan = seen.find(|update| match update {
                SessionUpdate::Plan(plan) => Some(plan.entries[0].content.clone()),
                _ => None,
            });
            assert_eq!(plan.as_deref(), Some("look"));
        })
        .await;
}

#[tokio::test]
async fn images_and_files_reach_the_model() {
    let setup = CliHarness::with_config("");
    setup.server.push(Reply::text("seen"));
    EditorHarness::new(&setup)
        .run(async |cx, _| {
            let id = begin(&cx, &setup.home.work()).await;
            let gif = "R0lGODlhAQABAIAAAAAAAP///yH5BAEAAAAALAAAAAABAAEAAAIBRAA7";
            let blocks = vec![
                ContentBlock::Text(TextContent::new("compare")),
                ContentBlock::ResourceLink(ResourceLink::new("a", "file:///w/a.rs")),
                ContentBlock::Image(ImageContent::new(gif, "image/gif")),
            ];
            let request = PromptRequest::new(id, blocks);
            let response = cx.send_request(request).block_task().await.unwrap();
            assert_eq!(response.stop_reason, StopReason::EndTurn);
        })
        .await;
    let sent = setup.server.last_request().body.to_string();
    assert!(sent.contains("compare @/w/a.rs"), "{sent}");
}

/// An editor that announces nothing may be made with a version of the protocol that refuses what came later.
#[tokio::test]
async fn an_older_editor_gets_only_updates_that_it_knows() {
    let setup = CliHarness::new();
    setup.server.push_default(Reply::text("Hello"));
    EditorHarness::new(&setup)
        .run(async |cx, seen| {
            editor::initialize_as(&cx, ClientCapabilities::new()).await;
            let request = NewSessionRequest::new(setup.home.work());
            let session = cx.send_request(request).block_task().await.unwrap();
            let id = session.session_id.0.to_string();
            for _ in 0..2 {
                assert_eq!(prompt(&cx, &id, "hi").await, Ok(StopReason::EndTurn));
            }
            let later = seen.find(|update| match update {
                SessionUpdate::UsageUpdate(_) | SessionUpdate::SessionInfoUpdate(_) => Some(()),
                _ => None,
            });
            assert_eq!(later, None);
            for method in ["setup", "oauth", ""] {
                let request = AuthenticateRequest::new(method);
                let error = cx.send_request(request).block_task().await.unwrap_err();
                assert!(
                    error.message.contains("no authentication method"),
                    "{error:?}"
                );
            }
        })
        .await;
}

#[tokio::test]
async fn a_tool_that_was_cancelled_is_not_reported_as_completed() {
    let setup = CliHarness::new();
    let args = json!({"command": "echo begun; sleep 600"});
    setup.server.push(Reply::tool_call("c1", "terminal", &args));
    EditorHarness::new(&setup)
        .run(async |cx, seen| {
            let id = begin(&cx, &setup.home.work()).await;
            let running = prompt(&cx, &id, "wait");
            let cancel = async {
                seen.until(|seen| {
                    let begun = seen.find(|update| match update {
                        SessionUpdate::ToolCall(_) => Some(()),
                        _ => None,
                    });
                    begun.is_some()
                })
                .await;
                let _ = cx.send_notification(CancelNotification::new(id.clone()));
            };
            let (outcome, ()) = tokio::join!(running, cancel);
            assert_eq!(outcome, Ok(StopReason::Cancelled));
            let updates = seen.updates.lock().unwrap();
            let last = updates.iter().rev().find_map(|one| match &one.update {
                SessionUpdate::ToolCallUpdate(call) => call.fields.status,
                _ => None,
            });
            assert_eq!(last, Some(ToolCallStatus::Failed));
        })
        .await;
}

#[tokio::test]
async fn an_editor_chooses_the_model() {
    let setup = CliHarness::new();
    setup.server.push_default(Reply::text("Hello"));
    EditorHarness::new(&setup)
        .run(async |cx, _| {
            let id = begin(&cx, &setup.home.work()).await;
            let choose = async |session: &str, model: &str| {
                let params = json!({"sessionId": session, "modelId": model});
                let request = UntypedMessage::new("session/set_model", params).unwrap();
                cx.send_request(request).block_task().await
            };
            choose(&id, "another-model").await.unwrap();
            assert_eq!(prompt(&cx, &id, "hi").await, Ok(StopReason::EndTurn));
            assert_eq!(setup.server.last_request().body["model"], "another-model");
            assert!(choose("nowhere", "another-model").await.is_err());
            assert!(choose(&id, "").await.is_err());
        })
        .await;
}

#[tokio::test]
async fn a_turn_is_cancelled_in_the_middle_and_the_next_one_works() {
    let setup = CliHarness::new();
    let gate = ReplyGate::new();
    setup
        .server
        .push(Reply::text_deltas(["one ", "two ", "three"]).hold_at(2, &gate));
    setup.server.push(Reply::text("again"));
    EditorHarness::new(&setup)
        .run(async |cx, seen| {
            let id = begin(&cx, &setup.home.work()).await;
            let running = prompt(&cx, &id, "count");
            let cancel = async {
                seen.until(|seen| seen.text(&id).contains("one")).await;
                let _ = cx.send_notification(CancelNotification::new(id.clone()));
            };
            let (outcome, ()) = tokio::join!(running, cancel);
            assert_eq!(outcome, Ok(StopReason::Cancelled));
            gate.release();
            assert_eq!(prompt(&cx, &id, "go on").await, Ok(StopReason::EndTurn));
            assert!(seen.text(&id).ends_with("again"));
        })
        .await;
}

#[tokio::test]
async fn a_session_is_loaded_with_its_past_after_a_restart() {
    let setup = CliHarness::new();
    setup.server.push_all([
        Reply::tool_call("c1", "terminal", &json!({"command": "echo earlier"})),
        Reply::text("first answer"),
    ]);
    let editor = EditorHarness::new(&setup);
    let id = editor
        .run(async |cx, _| {
            let id = begin(&cx, &setup.home.work()).await;
            assert_eq!(
                prompt(&cx, &id, "first question").await,
                Ok(StopReason::EndTurn)
            );
            id
        })
        .await;
    setup.server.push(Reply::text("second answer"));
    EditorHarness::new(&setup)
        .run(async |cx, seen| {
            editor::initialize(&cx).await;
            let request = LoadSessionRequest::new(id.clone(), setup.home.work());
            cx.send_request(request).block_task().await.unwrap();
            let kinds = seen.kinds(&id);
            assert_eq!(kinds[..3], ["user", "call", "agent"], "{kinds:?}");
            assert_eq!(seen.text(&id), "first answer");
            assert_eq!(prompt(&cx, &id, "more").await, Ok(StopReason::EndTurn));
            let unknown = LoadSessionRequest::new("20200101_000000_000000", setup.home.work());
            let error = cx.send_request(unknown).block_task().await.unwrap_err();
            assert_eq!(error.code.value(), -32002, "{error:?}");
        })
        .await;
    let sent = setup.server.last_request().body.to_string();
    assert!(sent.contains("first question") && sent.contains("first answer"));
}

#[tokio::test]
async fn two_sessions_work_at_the_same_time() {
    let setup = CliHarness::new();
    let gate = ReplyGate::new();
    setup.server.push_when(
        |request| request.body.to_string().contains("slow"),
        Reply::text("slow answer").hold(&gate),
    );
    setup.server.push(Reply::text("quick answer"));
    EditorHarness::new(&setup)
        .run(async |cx, seen| {
            let slow = begin(&cx, &setup.home.work()).await;
            let other = NewSessionRequest::new(setup.home.user());
            let other = cx.send_request(other).block_task().await.unwrap();
            let quick = other.session_id.0.to_string();
            let first = prompt(&cx, &slow, "slow");
            let second = async {
                let outcome = prompt(&cx, &quick, "quick").await;
                assert_eq!(outcome, Ok(StopReason::EndTurn));
                gate.release();
            };
            let (outcome, ()) = tokio::join!(first, second);
            assert_eq!(outcome, Ok(StopReason::EndTurn));
            assert_eq!(seen.text(&slow), "slow answer");
            assert_eq!(seen.text(&quick), "quick answer");
        })
        .await;
}

#[tokio::test]
async fn commands_answer_without_the_model() {
    let setup = CliHarness::new();
    EditorHarness::new(&setup)
        .run(async |cx, seen| {
            let id = begin(&cx, &setup.home.work()).await;
            for (line, says) in [
                ("/version", "hermes "),
                ("/help", "/steer"),
                ("/context", "nothing has been used yet"),
                ("/tools", "terminal"),
                ("/compact", "nothing to compact"),
                ("/quit", "for a terminal"),
                ("/helpp", "/help"),
            ] {
                assert_eq!(
                    prompt(&cx, &id, line).await,
                    Ok(StopReason::EndTurn),
                    "{line}"
                );
                let said = seen.take_text(&id);
                assert!(said.contains(says), "{line}: {said}");
            }
        })
        .await;
    assert_eq!(setup.server.model_requests().len(), 0);
}

#[tokio::test]
async fn a_server_of_the_editor_that_fails_is_told_of() {
    let setup = CliHarness::new();
    setup.server.push(Reply::text("ok"));
    EditorHarness::new(&setup)
        .run(async |cx, seen| {
            editor::initialize(&cx).await;
            let server = McpServerStdio::new("wiki", "/no/such/program");
            let request = NewSessionRequest::new(setup.home.work())
                .mcp_servers(vec![McpServer::Stdio(server)]);
            let session = cx.send_request(request).block_task().await.unwrap();
            let id = session.session_id.0.to_string();
            assert_eq!(prompt(&cx, &id, "hi").await, Ok(StopReason::EndTurn));
            let said = seen.text(&id);
            assert!(said.contains("wiki"), "{said}");
        })
        .await;
}

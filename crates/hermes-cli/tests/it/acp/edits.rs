//! What is asked, what is answered, and what therefore happens or does not.

use agent_client_protocol::Agent;
use agent_client_protocol::v1::ConnectionTo;
use agent_client_protocol::v1::schema::{
    CancelNotification, SessionUpdate, SetSessionModeRequest, StopReason, ToolCallContent,
    ToolCallStatus,
};
use hermes_testkit::model_server::Reply;
use pretty_assertions::assert_eq;
use serde_json::json;

use super::editor::{EditorHarness, begin, prompt};
use crate::CliHarness;

const MANUAL: &str = "approvals:\n  mode: manual\n";

fn write(path: &str) -> [Reply; 2] {
    let args = json!({"path": path, "content": "after\n"});
    [
        Reply::tool_call("c1", "write_file", &args),
        Reply::text("done"),
    ]
}

fn delete() -> [Reply; 2] {
    let args = json!({"command": "rm -rf keep"});
    [
        Reply::tool_call("c1", "terminal", &args),
        Reply::text("done"),
    ]
}

/// A directory that a test wants to lose or keep.
fn keep(setup: &CliHarness) -> std::path::PathBuf {
    let dir = setup.home.work().join("keep");
    std::fs::create_dir_all(&dir).unwrap();
    std::fs::write(dir.join("file"), "x").unwrap();
    dir
}

async fn switch(cx: &ConnectionTo<Agent>, session: &str, mode: &'static str) {
    let request = SetSessionModeRequest::new(session.to_owned(), mode);
    cx.send_request(request).block_task().await.unwrap();
}

#[tokio::test]
async fn an_edit_is_asked_about_with_its_diff_and_shown_when_it_is_made() {
    let setup = CliHarness::new();
    let file = setup.home.work().join("notes.txt");
    std::fs::write(&file, "before\n").unwrap();
    setup.server.push_all(write("notes.txt"));
    EditorHarness::new(&setup)
        .pressing("allow_once")
        .run(async |cx, seen| {
            let id = begin(&cx, &setup.home.work()).await;
            assert_eq!(prompt(&cx, &id, "go").await, Ok(StopReason::EndTurn));
            let asked = seen.asked.lock().unwrap().clone();
            assert_eq!(asked.len(), 1);
            assert_eq!(&*asked[0].tool_call.tool_call_id.0, "c1");
            let is_diff = |content: &[ToolCallContent]| {
                matches!(&content[0], ToolCallContent::Diff(diff)
                    if diff.path == file
                        && diff.old_text.as_deref() == Some("before\n")
                        && diff.new_text == "after\n")
            };
            assert!(is_diff(asked[0].tool_call.fields.content.as_ref().unwrap()));
            let ended = seen.ended("c1");
            assert_eq!(ended.status, Some(ToolCallStatus::Completed));
            assert!(is_diff(&ended.content.unwrap()));
        })
        .await;
    assert_eq!(std::fs::read_to_string(&file).unwrap(), "after\n");
}

#[tokio::test]
async fn an_edit_that_is_rejected_or_dismissed_is_not_made() {
    let setup = CliHarness::new();
    let file = setup.home.work().join("notes.txt");
    std::fs::write(&file, "before\n").unwrap();
    for editor in [
        EditorHarness::new(&setup).pressing("reject_once"),
        EditorHarness::new(&setup),
        EditorHarness::new(&setup).pressing("no-such-option"),
    ] {
        setup.server.push_all(write("notes.txt"));
        editor
            .run(async |cx, seen| {
                let id = begin(&cx, &setup.home.work()).await;
                assert_eq!(prompt(&cx, &id, "go").await, Ok(StopReason::EndTurn));
                assert_eq!(seen.ended("c1").status, Some(ToolCallStatus::Failed));
            })
            .await;
        assert_eq!(std::fs::read_to_string(&file).unwrap(), "before\n");
    }
}

#[tokio::test]
async fn a_question_that_is_open_ends_with_its_turn() {
    let setup = CliHarness::new();
    setup.server.push_all(write("notes.txt"));
    EditorHarness::new(&setup)
        .silent()
        .run(async |cx, seen| {
            let id = begin(&cx, &setup.home.work()).await;
            let running = prompt(&cx, &id, "go");
            let cancel = async {
                seen.until(|seen| !seen.asked.lock().unwrap().is_empty())
                    .await;
                let _ = cx.send_notification(CancelNotification::new(id.clone()));
            };
            let (outcome, ()) = tokio::join!(running, cancel);
            assert_eq!(outcome, Ok(StopReason::Cancelled));
        })
        .await;
    assert!(!setup.home.work().join("notes.txt").exists());
}

#[tokio::test]
async fn a_command_runs_only_after_a_yes() {
    let setup = CliHarness::with_config(MANUAL);
    let dir = keep(&setup);
    for (option, stays) in [("reject_once", true), ("allow_once", false)] {
        setup.server.push_all(delete());
        EditorHarness::new(&setup)
            .pressing(option)
            .run(async |cx, seen| {
                let id = begin(&cx, &setup.home.work()).await;
                assert_eq!(prompt(&cx, &id, "go").await, Ok(StopReason::EndTurn));
                let asked = seen.asked.lock().unwrap().clone();
                let names: Vec<_> = asked[0].options.iter().map(|o| o.name.clone()).collect();
                assert!(
                    names.contains(&"Always allow: rm -rf keep".to_owned()),
                    "{names:?}"
                );
                let shown = format!("{:?}", asked[0].tool_call.fields);
                assert!(shown.contains("rm -rf keep"), "{shown}");
            })
            .await;
        assert_eq!(dir.exists(), stays, "{option}");
    }
}

#[tokio::test]
async fn allowed_for_the_session_edits_are_accepted_from_then_on() {
    let setup = CliHarness::new();
    setup.server.push_all(write("one.txt"));
    setup.server.push_all(write("two.txt"));
    EditorHarness::new(&setup)
        .pressing("allow_session")
        .run(async |cx, seen| {
            let id = begin(&cx, &setup.home.work()).await;
            assert_eq!(prompt(&cx, &id, "go").await, Ok(StopReason::EndTurn));
            let mode = seen.find(|update| match update {
                SessionUpdate::CurrentModeUpdate(update) => {
                    Some(update.current_mode_id.0.to_string())
                }
                _ => None,
            });
            assert_eq!(mode.as_deref(), Some("accept_edits"));
            assert_eq!(prompt(&cx, &id, "go").await, Ok(StopReason::EndTurn));
            assert_eq!(seen.asked.lock().unwrap().len(), 1);
        })
        .await;
    assert!(setup.home.work().join("two.txt").exists());
}

#[tokio::test]
async fn accepting_edits_ends_at_the_workspace() {
    let setup = CliHarness::with_config(MANUAL);
    let outside = setup.home.user().join("outside.txt");
    let dir = keep(&setup);
    setup.server.push_all(write("inside.txt"));
    setup.server.push_all(write(&outside.to_string_lossy()));
    setup.server.push_all(delete());
    EditorHarness::new(&setup)
        .pressing("reject_once")
        .run(async |cx, seen| {
            let id = begin(&cx, &setup.home.work()).await;
            switch(&cx, &id, "accept_edits").await;
            assert_eq!(prompt(&cx, &id, "go").await, Ok(StopReason::EndTurn));
            assert_eq!(seen.asked.lock().unwrap().len(), 0);
            assert_eq!(prompt(&cx, &id, "go").await, Ok(StopReason::EndTurn));
            assert_eq!(
                seen.asked.lock().unwrap().len(),
                1,
                "outside is asked about"
            );
            assert_eq!(prompt(&cx, &id, "go").await, Ok(StopReason::EndTurn));
            assert_eq!(
                seen.asked.lock().unwrap().len(),
                2,
                "commands are asked about"
            );
        })
        .await;
    assert!(setup.home.work().join("inside.txt").exists());
    assert!(!outside.exists() && dir.exists());
}

#[tokio::test]
async fn without_questions_the_forbidden_stays_forbidden_and_edits_stay_inside() {
    let setup = CliHarness::with_config(MANUAL);
    let outside = setup.home.user().join("outside.txt");
    let mark = setup.home.user().join("mark");
    std::fs::write(&mark, "x").unwrap();
    let dir = keep(&setup);
    setup.server.push_all(delete());
    setup.server.push_all(write(&outside.to_string_lossy()));
    // Should this fail, only the test's own home is lost.
    setup.server.push_all([
        Reply::tool_call("c1", "terminal", &json!({"command": "rm -rf ~"})),
        Reply::text("done"),
    ]);
    EditorHarness::new(&setup)
        .pressing("allow_always")
        .run(async |cx, seen| {
            let id = begin(&cx, &setup.home.work()).await;
            switch(&cx, &id, "dont_ask").await;
            for _ in 0..3 {
                assert_eq!(prompt(&cx, &id, "go").await, Ok(StopReason::EndTurn));
            }
            assert_eq!(seen.asked.lock().unwrap().len(), 0);
            let request = SetSessionModeRequest::new(id.clone(), "yolo");
            let error = cx.send_request(request).block_task().await.unwrap_err();
            assert!(error.message.contains("accept_edits"), "{error:?}");
        })
        .await;
    assert!(!dir.exists(), "a command that would be asked about runs");
    assert!(!outside.exists() && mark.exists());
}

/// The temporary directory is none of the workspace, and a link does not make it one.
#[tokio::test]
async fn no_mode_writes_outside_the_workspace_unasked_below_the_temporary_directory_either() {
    for (mode, off, asked) in [
        ("accept_edits", false, 3),
        ("dont_ask", false, 0),
        // As sessions begin with approvals switched off.
        ("dont_ask", true, 0),
    ] {
        let setup = CliHarness::with_config(if off {
            "approvals:\n  mode: \"off\"\n"
        } else {
            MANUAL
        });
        let elsewhere = tempfile::tempdir_in("/tmp").unwrap();
        let work = setup.home.work();
        std::os::unix::fs::symlink(elsewhere.path(), work.join("link")).unwrap();
        let target = elsewhere.path().join("file.txt");
        std::os::unix::fs::symlink(&target, work.join("file-link")).unwrap();
        let patch = format!("*** Add File: {}\n+x\n", target.display());
        setup.server.push_all(write(&target.to_string_lossy()));
        setup.server.push_all(write("link/file.txt"));
        setup.server.push_all([
            Reply::tool_call("c1", "patch", &json!({"mode": "patch", "patch": patch})),
            Reply::text("done"),
        ]);
        setup.server.push_all(write("inside.txt"));
        EditorHarness::new(&setup)
            .pressing("reject_once")
            .run(async |cx, seen| {
                let id = begin(&cx, &work).await;
                switch(&cx, &id, mode).await;
                for _ in 0..4 {
                    assert_eq!(prompt(&cx, &id, "go").await, Ok(StopReason::EndTurn));
                }
                assert_eq!(seen.asked.lock().unwrap().len(), asked, "{mode}");
            })
            .await;
        assert!(!target.exists(), "{mode}");
        assert!(work.join("inside.txt").exists(), "{mode}");
    }
}

//! Files as the editor has them: unsaved texts, and changes that go through its buffers.

use agent_client_protocol::Agent;
use agent_client_protocol::v1::ConnectionTo;
use agent_client_protocol::v1::schema::{
    ClientCapabilities, ClientSessionCapabilities, FileSystemCapabilities, NewSessionRequest,
    StopReason,
};
use hermes_testkit::model_server::Reply;
use pretty_assertions::assert_eq;
use serde_json::json;

use super::editor::{EditorHarness, initialize_as, prompt};
use crate::CliHarness;

async fn open(
    cx: &ConnectionTo<Agent>,
    setup: &CliHarness,
    files: FileSystemCapabilities,
) -> String {
    let client = ClientCapabilities::new()
        .session(ClientSessionCapabilities::new())
        .fs(files);
    initialize_as(cx, client).await;
    let session = NewSessionRequest::new(setup.home.work());
    let session = cx.send_request(session).block_task().await.unwrap();
    session.session_id.0.to_string()
}

fn both() -> FileSystemCapabilities {
    FileSystemCapabilities::new()
        .read_text_file(true)
        .write_text_file(true)
}

#[tokio::test]
async fn unsaved_texts_are_read_and_changes_go_through_the_editor() {
    let setup = CliHarness::new();
    let path = setup.home.work().join("a.txt");
    let shown = path.display().to_string();
    std::fs::write(&path, "on the disk\n").unwrap();
    setup.server.push_all([
        Reply::tool_call("c1", "read_file", &json!({"path": shown})),
        Reply::tool_call(
            "c2",
            "patch",
            &json!({"path": shown, "old_string": "not saved", "new_string": "patched"}),
        ),
        Reply::tool_call("c3", "read_file", &json!({"path": shown})),
        Reply::text("done"),
    ]);
    EditorHarness::new(&setup)
        .pressing("allow_once")
        .run(async |cx, seen| {
            let buffer = (path.clone(), "not saved\nsecond\n".to_owned());
            seen.buffers.lock().unwrap().extend([buffer]);
            let id = open(&cx, &setup, both()).await;
            assert_eq!(prompt(&cx, &id, "go").await, Ok(StopReason::EndTurn));
            assert_eq!(
                seen.saved.lock().unwrap().as_slice(),
                std::slice::from_ref(&path)
            );
            let buffers = seen.buffers.lock().unwrap().clone();
            assert_eq!(buffers[&path], "patched\nsecond\n");
        })
        .await;
    assert_eq!(std::fs::read_to_string(&path).unwrap(), "patched\nsecond\n");
    let requests = setup.server.requests();
    let last = requests.last().unwrap().body.to_string();
    assert!(last.contains("1|not saved"), "{last}");
    assert!(last.contains("1|patched"), "{last}");
    assert!(!last.contains("on the disk"), "{last}");
}

#[tokio::test]
async fn what_the_editor_does_not_have_is_read_and_written_here() {
    let setup = CliHarness::new();
    let (old, new) = (
        setup.home.work().join("old.txt"),
        setup.home.work().join("new.txt"),
    );
    std::fs::write(&old, "old\n").unwrap();
    // Outside of the workspace nobody asks the editor, whatever it claims to have.
    let outside = setup.home.user().join("outside.txt");
    std::fs::write(&outside, "outside on the disk\n").unwrap();
    setup.server.push_all([
        Reply::tool_call("c1", "read_file", &json!({"path": outside})),
        Reply::tool_call(
            "c2",
            "write_file",
            &json!({"path": old, "content": "changed\n"}),
        ),
        Reply::tool_call(
            "c3",
            "write_file",
            &json!({"path": new, "content": "new\n"}),
        ),
        Reply::text("done"),
    ]);
    EditorHarness::new(&setup)
        .pressing("allow_once")
        .run(async |cx, seen| {
            let claimed = (outside.clone(), "claimed by the editor".to_owned());
            seen.buffers.lock().unwrap().extend([claimed]);
            let id = open(&cx, &setup, both()).await;
            assert_eq!(prompt(&cx, &id, "go").await, Ok(StopReason::EndTurn));
            assert!(seen.saved.lock().unwrap().is_empty());
        })
        .await;
    assert_eq!(std::fs::read_to_string(&old).unwrap(), "changed\n");
    assert_eq!(std::fs::read_to_string(&new).unwrap(), "new\n");
    let requests = setup.server.requests();
    let last = requests.last().unwrap().body.to_string();
    assert!(
        last.contains("outside on the disk") && !last.contains("claimed"),
        "{last}"
    );
}

#[tokio::test]
async fn an_editor_that_does_not_offer_its_files_is_not_asked() {
    let setup = CliHarness::new();
    let path = setup.home.work().join("a.txt");
    std::fs::write(&path, "on the disk\n").unwrap();
    setup.server.push_all([
        Reply::tool_call("c1", "read_file", &json!({"path": path})),
        Reply::tool_call(
            "c2",
            "write_file",
            &json!({"path": path, "content": "changed\n"}),
        ),
        Reply::text("done"),
    ]);
    EditorHarness::new(&setup)
        .pressing("allow_once")
        .run(async |cx, seen| {
            let buffer = (path.clone(), "not saved".to_owned());
            seen.buffers.lock().unwrap().extend([buffer]);
            let id = open(&cx, &setup, FileSystemCapabilities::new()).await;
            assert_eq!(prompt(&cx, &id, "go").await, Ok(StopReason::EndTurn));
            assert!(seen.saved.lock().unwrap().is_empty());
        })
        .await;
    assert_eq!(std::fs::read_to_string(&path).unwrap(), "changed\n");
    let last = setup.server.requests().last().unwrap().body.to_string();
    assert!(last.contains("1|on the disk"), "{last}");
}

#[tokio::test]
async fn new_files_go_through_an_editor_that_creates_them() {
    let setup = CliHarness::new();
    let new = setup.home.work().join("deep/new.txt");
    std::fs::create_dir(setup.home.work().join("deep")).unwrap();
    setup.server.push_all([
        Reply::tool_call(
            "c1",
            "write_file",
            &json!({"path": new, "content": "new\n"}),
        ),
        Reply::text("done"),
    ]);
    EditorHarness::new(&setup)
        .pressing("allow_once")
        .run(async |cx, seen| {
            seen.creates
                .store(true, std::sync::atomic::Ordering::Relaxed);
            let id = open(&cx, &setup, both()).await;
            assert_eq!(prompt(&cx, &id, "go").await, Ok(StopReason::EndTurn));
            assert_eq!(
                seen.saved.lock().unwrap().as_slice(),
                std::slice::from_ref(&new)
            );
        })
        .await;
    assert_eq!(std::fs::read_to_string(&new).unwrap(), "new\n");
}

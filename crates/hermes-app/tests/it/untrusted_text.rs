//! Lasting changes (memory, skills) after a conversation has read text from outside.

use std::sync::Arc;

use hermes_agent::SessionStart;
use hermes_app::{StoreTools, store_backed};
use hermes_config::{Config, Home};
use hermes_core::approval::{DenyAll, Verdict};
use hermes_core::event::{AgentCommand, AgentEvent};
use hermes_core::store::SessionStore;
use hermes_core::tool::Effects;
use hermes_store::{PendingWrites, Subsystem};
use hermes_testkit::clock::FixedRng;
use pretty_assertions::assert_eq;
use serde_json::json;

use crate::support::{FakeTool, MemoryStore, Reply, Setup};

const SAVE: &str = r#"{"action":"add","target":"memory","content":"The person likes tea."}"#;

fn page() -> FakeTool {
    let text = "a page of the web, long enough to be fenced";
    FakeTool::saying("page", Effects::ReadOnly, text).spec(|spec| spec.untrusted = true)
}

/// A session with the tools of a home.
fn at_home(dir: &tempfile::TempDir, script: impl IntoIterator<Item = Reply>) -> Setup {
    let home = Home::at(dir.path());
    let rng = Arc::new(FixedRng(3));
    let deps = StoreTools::from_config(&home, &Config::default(), None, None, rng);
    let mut setup = Setup::new(script);
    setup.tools = store_backed(deps);
    setup.tool(page())
}

fn memory_of(dir: &tempfile::TempDir) -> String {
    std::fs::read_to_string(dir.path().join("memories/MEMORY.md")).unwrap_or_default()
}

#[tokio::test]
async fn memory_is_written_freely_until_something_from_outside_was_read() {
    let dir = tempfile::tempdir().unwrap();
    let script = [Reply::call("memory", SAVE), Reply::text("saved")];
    at_home(&dir, script).start().turn("remember").await;
    assert!(memory_of(&dir).contains("likes tea"));
}

#[tokio::test]
async fn after_a_page_the_person_is_asked_before_memory_is_written() {
    for (verdict, written) in [(Verdict::Once, true), (Verdict::Deny { why: None }, false)] {
        let dir = tempfile::tempdir().unwrap();
        let script = [
            Reply::call("page", "{}"),
            Reply::call("memory", SAVE),
            Reply::text("ok"),
        ];
        let mut session = at_home(&dir, script).start();
        session.send(AgentCommand::Submit("go".into())).await;
        let request = session
            .until(|event| match event {
                AgentEvent::ApprovalNeeded { request } => Some(request.clone()),
                _ => None,
            })
            .await;
        assert_eq!(request.tool, "memory");
        assert_eq!(request.action, "memory: add: The person likes tea.");
        assert_eq!(memory_of(&dir), "");
        let request = request.id;
        session
            .send(AgentCommand::Answer { request, verdict })
            .await;
        session.finish().await;
        assert_eq!(memory_of(&dir).contains("likes tea"), written);
    }
}

#[tokio::test]
async fn with_nobody_there_lasting_changes_are_put_aside() {
    let dir = tempfile::tempdir().unwrap();
    let skill = json!({"action": "create", "name": "tea", "content": "---\nname: tea\ndescription: how to make tea\n---\nBoil water."});
    let script = [
        Reply::call("page", "{}"),
        Reply::calls(&[("memory", SAVE), ("skill_manage", &skill.to_string())]),
        Reply::text("ok"),
    ];
    let mut setup = at_home(&dir, script);
    setup.approver = Some(Arc::new(DenyAll));
    setup.start().turn("go").await;
    assert_eq!(memory_of(&dir), "");
    let pending = PendingWrites::new(dir.path());
    for subsystem in [Subsystem::Memory, Subsystem::Skills] {
        assert_eq!(pending.list(subsystem).unwrap().len(), 1, "{subsystem:?}");
    }
}

#[tokio::test]
async fn a_resumed_conversation_remembers_what_it_read() {
    let dir = tempfile::tempdir().unwrap();
    let store = Arc::new(MemoryStore::default());
    let script = [Reply::call("page", "{}"), Reply::text("read")];
    at_home(&dir, script)
        .store(store.clone())
        .start()
        .turn("go")
        .await;
    let stored = store.load(&"s1".into()).await.unwrap().unwrap();
    let mut setup = at_home(&dir, [Reply::call("memory", SAVE), Reply::text("ok")]).store(store);
    setup.approver = Some(Arc::new(DenyAll));
    setup.start = Some(SessionStart::Resume {
        session: Box::new(stored),
        cwd: "/nowhere".into(),
    });
    setup.start().turn("go on").await;
    assert_eq!(memory_of(&dir), "");
}

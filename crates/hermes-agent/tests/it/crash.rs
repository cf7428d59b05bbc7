//! The process dies in the middle of a turn; what was said and done is still there.

use std::sync::Arc;
use std::time::Duration;

use hermes_agent::SessionStart;
use hermes_core::event::{AgentCommand, AgentEvent, TurnExit};
use hermes_core::ids::SessionId;
use hermes_core::message::Message;
use hermes_core::store::SessionStore;
use hermes_core::tool::{Effects, ToolOutcome};
use hermes_store::Store;
use hermes_testkit::clock::ManualClock;
use pretty_assertions::assert_eq;

use crate::support::{FakeTool, Reply, Setup};

fn open(dir: &std::path::Path) -> Store {
    Store::open(dir.join("state.db"), Arc::new(ManualClock::default())).unwrap()
}

fn tools(setup: Setup) -> Setup {
    setup
        .tool(FakeTool::new("note", Effects::Exclusive, |_, _| {
            Box::pin(std::future::ready(ToolOutcome::Done("noted".into())))
        }))
        .tool(FakeTool::slow(
            "hang",
            Effects::Exclusive,
            Duration::from_hours(1),
        ))
}

#[test]
fn a_session_goes_on_after_a_crash() {
    let dir = tempfile::tempdir().unwrap();
    // One thread: once this returns, no task takes another step.
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    runtime.block_on(async {
        let calls = Reply::calls(&[("note", "{}"), ("hang", "{}")]);
        let mut session = tools(Setup::new([calls]))
            .store(Arc::new(open(dir.path())))
            .start();
        session.send(AgentCommand::Submit("go".into())).await;
        session
            .until(|event| match event {
                AgentEvent::ToolStarted { name, .. } if name == "hang" => Some(()),
                _ => None,
            })
            .await;
        // A dead process does not say goodbye: dropping the handle would end the session in order.
        std::mem::forget(session);
    });
    // Nothing gets the chance to finish.
    runtime.shutdown_background();

    let runtime = tokio::runtime::Runtime::new().unwrap();
    runtime.block_on(async {
        let store = open(dir.path());
        let id = SessionId::from("s1");
        let stored = store.load(&id).await.unwrap().unwrap();
        let roles: Vec<&str> = stored
            .items
            .iter()
            .map(|item| item.message.role())
            .collect();
        assert_eq!(
            roles,
            ["user", "assistant", "tool"],
            "what was done is known"
        );
        let mut setup =
            tools(Setup::new([Reply::text("where were we?")])).store(Arc::new(store.clone()));
        setup.start = Some(SessionStart::Resume {
            session: Box::new(stored),
            cwd: "/nowhere".into(),
        });
        let mut session = setup.start();
        assert_eq!(session.turn("again").await.exit, TurnExit::Answered);
        let request = session.router.request(0);
        assert_eq!(request[2], "tool: noted");
        assert!(request[3].contains("No result was recorded"), "{request:?}");
        assert_eq!(request[4], "user: again");
        session.close().await;
        let rows = store.load(&id).await.unwrap().unwrap().items;
        assert!(matches!(
            &rows.last().unwrap().message,
            Message::Assistant(_)
        ));
    });
}

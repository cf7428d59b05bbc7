//! Conversations that go on.

use hermes_testkit::model_server::Reply;
use pretty_assertions::assert_eq;

use crate::CliHarness;

fn session_id(setup: &CliHarness, args: &[&str]) -> String {
    let mut all = args.to_vec();
    all.push("--json");
    setup.run(all).ok().json()["session_id"]
        .as_str()
        .unwrap()
        .to_owned()
}

#[test]
fn a_resumed_session_sends_the_old_bytes_first() {
    let setup = CliHarness::new();
    setup.server.push_default(Reply::text("answer"));
    let id = session_id(&setup, &["chat", "-q", "first question"]);
    let first = setup.server.last_request();
    let again = session_id(&setup, &["chat", "-q", "second question", "-r", &id]);
    assert_eq!(again, id);
    let second = setup.server.last_request();
    assert_eq!(first.system(), second.system());
    let (old, new) = (first.messages(), second.messages());
    assert_eq!(new[..old.len()], old[..]);
    assert_eq!(new.len(), old.len() + 2);
    assert_eq!(second.last_user_text(), "second question");
}

#[test]
fn continue_takes_the_latest_session_and_titles_find_theirs() {
    let setup = CliHarness::new();
    setup.server.push_default(Reply::text("answer"));
    let first = session_id(&setup, &["chat", "-q", "one"]);
    let second = session_id(&setup, &["chat", "-q", "two"]);
    assert_ne!(first, second);
    assert_eq!(session_id(&setup, &["chat", "-c", "-q", "three"]), second);
    let _ = setup.run(["sessions", "rename", &first, "My Title"]).ok();
    assert_eq!(
        session_id(&setup, &["chat", "-q", "four", "-r", "My Title"]),
        first
    );
    assert_eq!(
        session_id(&setup, &["chat", "-q", "five", "-c", "My Title"]),
        first
    );
}

#[test]
fn a_failed_turn_keeps_the_question() {
    let setup = CliHarness::new();
    setup.server.push(Reply::error(401, "no"));
    let done = setup.run(["chat", "-q", "precious question"]);
    assert_eq!(done.code, Some(2));
    setup.server.push_default(Reply::text("ok"));
    let found = setup
        .run(["sessions", "search", "precious", "--json"])
        .ok()
        .json();
    assert!(
        found.to_string().contains(">>>precious<<< question"),
        "{found}"
    );
}

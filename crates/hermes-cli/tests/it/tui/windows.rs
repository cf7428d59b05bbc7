//! Two windows and one conversation.

use hermes_testkit::model_server::Reply;
use hermes_testkit::terminal::Terminal;
use pretty_assertions::assert_eq;

use super::{at, open, quit, ready, say};
use crate::CliHarness;

/// A window in which something was said, and another that goes on with it.
fn two(setup: &CliHarness) -> (Terminal, Terminal) {
    setup.server.push_default(Reply::text("noted"));
    let mut first = open(setup);
    say(&mut first, "remember the boat");
    first.wait_for(" out");
    let second = at(&setup.home).args(["-c"]).start();
    second.wait_for("This conversation is open in another window");
    (first, second)
}

#[test]
fn a_branch_leaves_the_other_window_alone() {
    let setup = CliHarness::new();
    let (mut first, mut second) = two(&setup);
    second.press("b");
    ready(&second);
    say(&mut second, "in the copy");
    setup.server.block_until(|progress| progress.answered >= 2);
    let sent = setup.server.last_request().body_text();
    assert!(sent.contains("remember the boat"), "a copy: {sent}");
    second.wait_for(" out");
    say(&mut first, "in the old one");
    setup.server.block_until(|progress| progress.answered >= 3);
    let sent = setup.server.last_request().body_text();
    assert!(!sent.contains("in the copy"), "{sent}");
    assert!(sent.contains("remember the boat"), "{sent}");
    assert_eq!(quit(second).0, 0);
    assert_eq!(quit(first).0, 0);
}

#[test]
fn what_was_taken_over_is_not_written_to_from_the_old_window() {
    let setup = CliHarness::new();
    let (mut first, mut second) = two(&setup);
    second.press("t");
    ready(&second);
    say(&mut second, "from the second");
    second.wait_for(" out");
    let asked = setup.server.model_requests().len();
    say(&mut first, "from the first");
    first.wait_for("another window has this conversation");
    assert_eq!(
        setup.server.model_requests().len(),
        asked,
        "nothing was sent"
    );
    // The words are kept; when the other window is gone they go, after what was said there.
    assert_eq!(quit(second).0, 0);
    first.press("\r");
    first.wait_for("continued in another window and was read again");
    first.wait_for("from the second");
    first.press("\r");
    setup
        .server
        .block_until(|progress| progress.answered > asked);
    let sent = setup.server.last_request();
    assert_eq!(sent.last_user_text(), "from the first");
    assert!(sent.body_text().contains("from the second"));
    assert_eq!(quit(first).0, 0);
}

#[test]
fn a_window_that_watches_shows_what_the_other_says() {
    let setup = CliHarness::new();
    let (mut first, mut second) = two(&setup);
    second.press("w");
    ready(&second);
    second.wait_for("watching");
    say(&mut first, "and the oars");
    second.wait_for("and the oars");
    say(&mut second, "me too");
    second.wait_for("another window has this conversation");
    // The words are a draft again.
    second.press("\x03");
    second.wait_for("Ask anything, or type / for commands");
    assert_eq!(quit(second).0, 0);
    assert_eq!(quit(first).0, 0);
}

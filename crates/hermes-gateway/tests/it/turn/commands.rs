//! Commands over chat.

use pretty_assertions::assert_eq;

use super::harness::{GatewayRun, TurnHarness};

#[tokio::test]
async fn new_and_resume_move_the_chat_between_conversations() {
    let mut house = TurnHarness::new("");
    let life = house.life().await;
    life.say("c", "m1", "one").await;
    life.rest().await;
    let first = life.program.opened.lock().unwrap()[0].id.clone();
    life.say("c", "m2", "/new").await;
    life.sees("c", "A new conversation").await;
    life.say("c", "m3", "two").await;
    life.rest().await;
    life.say("c", "m4", &format!("/resume {first}")).await;
    life.sees("c", "Back in the conversation").await;
    life.say("c", "m5", "three").await;
    life.rest().await;
    life.say("c", "m6", "/sessions").await;
    life.sees("c", "← here").await;
    let ids: Vec<String> = {
        let opened = life.program.opened.lock().unwrap();
        opened.iter().map(|one| one.id.clone()).collect()
    };
    assert!(ids.len() >= 2 && ids[1] != first, "{ids:?}");
    life.end().await;
    // The next process knows where the chat is.
    let life = house.life().await;
    life.say("c", "m7", "four").await;
    life.rest().await;
    assert_eq!(life.program.opened.lock().unwrap()[0].id, first);
    life.end().await;
}

#[tokio::test]
async fn a_branch_begins_with_what_was_said() {
    let mut house = TurnHarness::new("");
    let life = house.life().await;
    life.say("c", "m1", "one").await;
    life.rest().await;
    life.say("c", "m2", "/branch").await;
    life.sees("c", "a copy").await;
    let opened = life.program.opened.lock().unwrap().last().unwrap().clone();
    assert_eq!(opened.history.len(), 2);
    life.say("c", "m3", "two").await;
    life.sees("c", "re: two").await;
    life.end().await;
}

#[tokio::test]
async fn commands_never_wait_for_a_turn() {
    let mut house = TurnHarness::new("");
    let life = house.life().await;
    life.say("c", "m1", "slow one").await;
    life.until("a turn", |_| life.gateway.status().active_turns == 1)
        .await;
    for (id, line, says) in [
        ("a1", "/status", "1 at work"),
        ("a2", "/whoami", "Ann"),
        ("a3", "/help", "/usage: does usage"),
        ("a4", "/usage", "ran /usage"),
        ("a5", "/aprove", "Did you mean /approve?"),
        ("a6", "/redraw", "only at the machine"),
        ("a7", "/platform", "fake: connected"),
    ] {
        life.say("c", id, line).await;
        life.sees("c", says).await;
    }
    life.program.gate.notify_waiters();
    life.sees("c", "re: slow one").await;
    life.rest().await;
    life.say("c", "a8", "/start").await;
    let before = house.screen.texts("c").len();
    life.rest().await;
    assert_eq!(house.screen.texts("c").len(), before, "no reply to /start");
    life.end().await;
}

#[tokio::test]
async fn a_command_that_becomes_a_turn_is_answered_by_it() {
    let mut house = TurnHarness::new("");
    let life = house.life().await;
    life.say("c", "m1", "/poem").await;
    life.sees("c", "re: roses are red").await;
    life.rest().await;
    life.end().await;
}

#[tokio::test]
async fn a_restart_is_asked_for_once() {
    let mut house = TurnHarness::new("");
    let life = house.life().await;
    life.say("c", "m1", "/restart").await;
    life.rest().await;
    assert_eq!(life.restarts.lock().unwrap().len(), 1);
    assert_eq!(life.restarts.lock().unwrap()[0].message_id, "m1");
    life.end().await;
    // The platform brings it again.
    let life = house.life().await;
    life.say("c", "m1", "/restart").await;
    life.say("c", "m2", "hello").await;
    life.sees("c", "re: hello").await;
    assert!(life.restarts.lock().unwrap().is_empty());
    life.end().await;
}

#[tokio::test]
async fn a_home_is_remembered_and_background_work_reports() {
    let mut house = TurnHarness::new("");
    let life = house.life().await;
    life.say("c", "m1", "/sethome").await;
    life.rest().await;
    let env = std::fs::read_to_string(house.dir.path().join(".env")).unwrap();
    assert!(env.contains("FAKE_HOME_CHANNEL=c"), "{env}");
    let home = life.gateway.post().target("fake", None).unwrap();
    assert_eq!(home.chat_id, "c");
    life.end().await;
    let life = house.life().await;
    life.say("c", "m2", "/background think").await;
    life.sees("c", "works on it in the background").await;
    life.sees("c", "re: think").await;
    life.rest().await;
    life.end().await;
}

const BACKUP: &str = "quick_commands: {backup: {type: exec, command: backup}}\n";

/// Whether something works beside the chat, which has ended: nothing is kept open for it.
fn is_left_to_itself(life: &GatewayRun) -> bool {
    let opened = life.program.opened.lock().unwrap().len();
    let lines = life.program.lines.lock().unwrap().len();
    opened + lines == 1 && life.gateway.status().chats == 0
}

#[tokio::test]
async fn what_works_beside_the_chat_is_not_taken_for_cut() {
    for (command, result) in [
        ("/background slow think", "re: slow think"),
        ("/backup", "did backup"),
    ] {
        let mut house = TurnHarness::new(BACKUP);
        let life = house.life().await;
        life.say("c", "m1", command).await;
        life.until("it works", |_| is_left_to_itself(&life)).await;
        // Everything that is open is looked at again.
        life.gateway.set_held(true);
        life.gateway.set_held(false);
        life.say("c", "m2", "hi").await;
        life.sees("c", "re: hi").await;
        life.program.gate.notify_one();
        life.rest().await;
        let texts = house.screen.texts("c").concat();
        assert!(texts.contains(result), "{texts}");
        assert!(!texts.contains("while it ran this command"), "{texts}");
        life.end().await;
    }
}

/// Interrupted work is reported by the next process.
#[tokio::test]
async fn what_worked_beside_the_chat_is_told_to_be_cut_by_the_next_life() {
    for command in ["/background slow think", "/backup"] {
        let mut house = TurnHarness::new(BACKUP);
        let life = house.life().await;
        life.say("c", "m1", command).await;
        life.until("it works", |_| is_left_to_itself(&life)).await;
        life.end().await;
        let life = house.life().await;
        life.sees("c", "while it ran this command").await;
        life.rest().await;
        life.end().await;
    }
}

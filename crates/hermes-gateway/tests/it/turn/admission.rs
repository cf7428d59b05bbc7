//! Who is let in, and what those may do.

use hermes_core::ids::SessionId;
use hermes_core::message::Message;
use hermes_core::store::{NewItem, NewSession, SessionStore as _};
use hermes_platforms::{ButtonPress, IncomingMessage, PlatformState};
use pretty_assertions::assert_eq;

use super::harness::{GatewayRun, TurnHarness, incoming};

const EVERYBODY: (&str, &str) = ("TELEGRAM_ALLOW_ALL_USERS", "true");

/// A house whose platform has settings of its own.
fn telegram(settings: &str) -> TurnHarness {
    let mut house = TurnHarness::new(&format!("telegram: {settings}\n"));
    house.platform = "telegram";
    house.env = Vec::new();
    house
}

/// Somebody writes in their own private chat.
fn by(user: &str, id: &str, text: &str) -> IncomingMessage {
    let mut message = incoming(user, id, text);
    message.source.user_id = Some(user.to_owned());
    message
}

fn press(user: &str, id: &str, data: &str) -> IncomingMessage {
    let mut message = by(user, id, "pressed");
    message.pressed = Some(ButtonPress {
        data: data.to_owned(),
        message_id: None,
    });
    message
}

async fn note(life: &GatewayRun, number: usize) -> String {
    life.until("a note", |screen| {
        screen.notes.lock().unwrap().len() > number
    })
    .await;
    life.screen.notes.lock().unwrap()[number].clone()
}

#[tokio::test]
async fn lists_of_the_configuration_let_in_whom_they_name_and_nobody_else() {
    for settings in [
        "{dm_policy: allowlist, allow_from: [5]}",
        "{dm_policy: allowlist, allowed_users: [5]}",
        "{allowed_users: '5'}",
    ] {
        let mut house = telegram(settings);
        let life = house.life().await;
        life.send(by("6", "m1", "hello")).await;
        life.rest().await;
        life.send(by("5", "m2", "hello")).await;
        life.sees("5", "re: hello").await;
        life.rest().await;
        assert_eq!(house.screen.texts("6"), Vec::<String>::new(), "{settings}");
        assert_eq!(life.program.opened.lock().unwrap().len(), 1);
        life.end().await;
    }
}

#[tokio::test]
async fn an_allow_list_that_is_not_there_lets_in_nobody() {
    let mut house = telegram("{dm_policy: allowlist}");
    let life = house.life().await;
    life.send(by("5", "m1", "hello")).await;
    life.rest().await;
    assert_eq!(house.screen.texts("5"), Vec::<String>::new());
    assert!(life.program.opened.lock().unwrap().is_empty());
    life.end().await;
}

/// A conversation that the owner had at a terminal.
async fn at_a_terminal(life: &GatewayRun) {
    let id = SessionId::new("secret-plans");
    let new = NewSession {
        id: Some(id.clone()),
        source: "cli".to_owned(),
        ..NewSession::default()
    };
    life.store.begin(new).await.unwrap();
    let item = NewItem {
        message: Message::user("the plan"),
        at: 2_000_000_000.0,
        token_count: None,
        platform_message_id: None,
    };
    life.store.append(&id, vec![item]).await.unwrap();
}

#[tokio::test]
async fn only_a_named_admin_opens_the_conversations_of_others() {
    let mut house = telegram("{}");
    house.env = vec![EVERYBODY];
    let life = house.life().await;
    at_a_terminal(&life).await;
    life.send(by("1", "m1", "mine")).await;
    life.sees("1", "re: mine").await;
    life.rest().await;
    let first = life.program.opened.lock().unwrap()[0].id.clone();
    for (id, session) in [("m2", "secret-plans"), ("m3", first.as_str())] {
        life.send(by("2", id, &format!("/resume {session}"))).await;
        life.sees("2", &format!("no session {session}")).await;
    }
    life.send(by("1", "m4", &format!("/resume {first}"))).await;
    life.sees("1", "Back in the conversation").await;
    life.end().await;

    let mut house = telegram("{allow_admin_from: ['2'], user_allowed_commands: [resume]}");
    house.env = vec![EVERYBODY];
    let life = house.life().await;
    at_a_terminal(&life).await;
    life.send(by("1", "m5", "/resume secret-plans")).await;
    life.sees("1", "no session secret-plans").await;
    life.send(by("2", "m6", "/resume secret-plans")).await;
    life.sees("2", "Back in the conversation").await;
    life.end().await;
}

#[tokio::test]
async fn who_may_not_approve_may_not_say_yes_or_press_either() {
    let mut house = telegram("{allow_admin_from: [boss], user_allowed_commands: [deny]}");
    house.env = vec![EVERYBODY];
    let life = house.life().await;
    life.send(by("c", "m1", "permit this")).await;
    life.sees("c", "rm -rf").await;
    let once = house.screen.find("rm -rf").unwrap().buttons[0].1.clone();
    life.send(by("c", "m2", "yes")).await;
    life.sees("c", "Only an admin").await;
    life.send(by("c", "m3", "/approve")).await;
    life.sees("c", "/approve is for admins").await;
    life.send(press("c", "p1", &once)).await;
    assert!(note(&life, 0).await.contains("Only an admin"));
    life.send(press("boss", "p2", &once)).await;
    life.sees("c", "re: permit this Once").await;
    life.send(by("c", "m4", "permit this")).await;
    life.until("it asks again", |screen| {
        let texts = screen.texts("c");
        texts.iter().filter(|one| one.contains("rm -rf")).count() == 2
    })
    .await;
    life.send(by("c", "m5", "no")).await;
    life.sees("c", "re: permit this Deny").await;
    life.end().await;
}

#[tokio::test]
async fn a_button_that_means_nothing_leaves_the_question_open() {
    let mut house = TurnHarness::new("");
    let life = house.life().await;
    life.say("c", "m1", "permit this").await;
    life.sees("c", "rm -rf").await;
    let once = house.screen.find("rm -rf").unwrap().buttons[0].1.clone();
    let other = format!("{}zz", once.strip_suffix('o').unwrap());
    life.press_data("c", "p1", &other, "b0").await;
    assert!(note(&life, 0).await.contains("do not know that button"));
    life.press_data("c", "p2", &once, "b0").await;
    life.sees("c", "re: permit this Once").await;
    life.end().await;
}

#[tokio::test]
async fn who_wrote_too_much_can_still_stop_and_press() {
    let mut house = telegram("{rate_limit_per_minute: 1}");
    house.env = vec![EVERYBODY];
    let life = house.life().await;
    life.send(by("a", "m1", "permit this")).await;
    life.sees("a", "rm -rf").await;
    life.send(by("a", "m2", "and this")).await;
    life.sees("a", "Too many messages").await;
    let once = house.screen.find("rm -rf").unwrap().buttons[0].1.clone();
    life.send(press("a", "p1", &once)).await;
    life.sees("a", "re: permit this Once").await;
    life.send(by("b", "m1", "slow one")).await;
    life.until("a turn", |_| life.gateway.status().active_turns == 1)
        .await;
    life.send(by("b", "m2", "and this")).await;
    life.sees("b", "Too many messages").await;
    life.send(by("b", "m3", "/stop")).await;
    life.sees("b", "Stopped").await;
    life.end().await;
}

#[tokio::test]
async fn a_revoked_account_does_not_silence_the_other() {
    let mut house = TurnHarness::new("");
    house.revoked_sibling = true;
    let life = house.life().await;
    life.until("it gives up", |_| {
        let status = life.gateway.status();
        let mut platforms = status.platforms.iter();
        platforms.any(|one| one.condition.state == PlatformState::Fatal)
    })
    .await;
    life.say("c", "m1", "hello").await;
    life.sees("c", "re: hello").await;
    life.rest().await;
    let status = life.gateway.status();
    let states = status.platforms.iter().map(|one| one.condition.state);
    assert_eq!(
        states.collect::<Vec<_>>(),
        [PlatformState::Connected, PlatformState::Fatal]
    );
    life.end().await;
}

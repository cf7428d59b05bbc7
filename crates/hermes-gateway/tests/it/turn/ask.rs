//! Permissions and questions over chat.

use pretty_assertions::assert_eq;

use super::harness::{TurnHarness, incoming};

#[tokio::test]
async fn a_button_decides_once() {
    let mut house = TurnHarness::new("");
    let life = house.life().await;
    life.say("c", "m1", "permit this").await;
    life.sees("c", "rm -rf /tmp/x").await;
    let question = house.screen.find("rm -rf").unwrap();
    let labels: Vec<&str> = question
        .buttons
        .iter()
        .map(|(label, _)| label.as_str())
        .collect();
    assert_eq!(labels, ["Once", "This session", "Always", "Deny"]);
    assert!(question.buttons.iter().all(|(_, data)| data.len() <= 60));
    let data = question.buttons[0].1.clone();
    life.press_data("c", "p1", &data, &question.id).await;
    life.press_data("c", "p2", &data, &question.id).await;
    life.sees("c", "re: permit this Once").await;
    life.rest().await;
    let question = house.screen.find("rm -rf").unwrap();
    assert!(
        question.text.contains("Allowed once by Ann"),
        "{question:?}"
    );
    assert_eq!(question.buttons, []);
    let notes = house.screen.notes.lock().unwrap().clone();
    assert_eq!(notes.len(), 2);
    assert_eq!(notes[0], "seen");
    assert!(notes[1].contains("no longer open"), "{notes:?}");
    life.end().await;
}

#[tokio::test]
async fn a_press_before_the_platform_confirmed_the_question_takes_its_buttons_away() {
    let mut house = TurnHarness::new("");
    let life = house.life().await;
    let confirm = std::sync::Arc::new(tokio::sync::Notify::new());
    *house.screen.slow_answers.lock().unwrap() = Some(confirm.clone());
    life.say("c", "m1", "permit this").await;
    life.sees("c", "rm -rf").await;
    life.press("c", "p1", "Once").await;
    life.until("the press was heard", |screen| {
        !screen.notes.lock().unwrap().is_empty()
    })
    .await;
    *house.screen.slow_answers.lock().unwrap() = None;
    confirm.notify_one();
    life.sees("c", "re: permit this Once").await;
    life.rest().await;
    let question = house.screen.find("rm -rf").unwrap();
    assert!(question.text.contains("Allowed once"), "{question:?}");
    assert_eq!(question.buttons, []);
    life.end().await;
}

#[tokio::test]
async fn words_decide_where_there_are_no_buttons() {
    let mut house = TurnHarness::new("");
    house.capabilities.buttons = false;
    let life = house.life().await;
    for (id, word, verdict) in [
        ("a", "Yes!", "Once"),
        ("b", "always", "Always"),
        ("c", "no", "Deny"),
        ("d", "/approve session", "Session"),
        ("e", "/deny too risky", "too risky"),
    ] {
        life.say(id, "m1", "permit this").await;
        life.sees(id, "Say yes").await;
        life.say(id, "m2", word).await;
        life.sees(id, verdict).await;
    }
    life.rest().await;
    life.end().await;
}

#[tokio::test]
async fn clarify_takes_a_button_a_number_or_words() {
    let mut house = TurnHarness::new("");
    let life = house.life().await;
    for (chat, word, answer) in [("a", "2", "blue"), ("b", "green", "green")] {
        life.say(chat, "m1", "clarify").await;
        life.sees(chat, "Which colour?").await;
        life.say(chat, "m2", word).await;
        life.sees(chat, &format!("text: \"{answer}\"")).await;
    }
    life.say("c", "m1", "clarify").await;
    life.sees("c", "Which colour?").await;
    life.press("c", "p1", "red").await;
    life.sees("c", "text: \"red\"").await;
    life.rest().await;
    life.end().await;
}

#[tokio::test(start_paused = true)]
async fn nobody_answers_and_that_is_a_no() {
    let mut house = TurnHarness::new("approvals: {gateway_timeout: 30}\n");
    let life = house.life().await;
    life.say("c", "m1", "permit this").await;
    life.sees("c", "no one answered in time").await;
    life.rest().await;
    assert!(
        house
            .screen
            .find("rm -rf")
            .unwrap()
            .text
            .contains("No one answered")
    );
    life.end().await;
}

#[tokio::test]
async fn strangers_cannot_press() {
    let mut house = TurnHarness::new("");
    house.env = vec![("FAKE_ALLOWED_USERS", "user of c")];
    let life = house.life().await;
    life.say("c", "m1", "permit this").await;
    life.sees("c", "rm -rf").await;
    let question = house.screen.find("rm -rf").unwrap();
    let mut press = incoming("c", "p1", "pressed");
    press.source.user_id = Some("mallory".to_owned());
    press.pressed = Some(hermes_platforms::ButtonPress {
        data: question.buttons[0].1.clone(),
        message_id: Some(question.id.clone()),
    });
    life.send(press).await;
    life.say("c", "m2", "no").await;
    life.sees("c", "Deny").await;
    life.end().await;
}

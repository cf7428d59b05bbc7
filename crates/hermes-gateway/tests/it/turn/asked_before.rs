//! Questions that an earlier process put: the message that stands there stays good.

use std::time::Duration;

use hermes_platforms::ButtonPress;
use pretty_assertions::assert_eq;

use super::harness::{GatewayRun, ShownBubble, TurnHarness, incoming};
use crate::harness::Fuse;

/// A process that asked and was cut.
async fn asked(house: &mut TurnHarness, words: &str, part: &str) -> ShownBubble {
    let life = house.life().await;
    life.say("c", "m1", words).await;
    life.sees("c", part).await;
    life.end().await;
    house.screen.find(part).unwrap()
}

fn count(house: &TurnHarness, part: &str) -> usize {
    let bubbles = house.screen.bubbles.lock().unwrap();
    bubbles
        .iter()
        .filter(|one| one.text.contains(part) || one.before.iter().any(|text| text.contains(part)))
        .count()
}

fn notes(house: &TurnHarness) -> Vec<String> {
    house.screen.notes.lock().unwrap().clone()
}

async fn noted(life: &GatewayRun, many: usize) {
    life.until("a note", |screen| {
        screen.notes.lock().unwrap().len() == many
    })
    .await;
}

#[tokio::test]
async fn the_message_that_stands_there_is_taken_over() {
    let mut house = TurnHarness::new("");
    let question = asked(&mut house, "permit this", "rm -rf").await;
    let life = house.life().await;
    life.until("the turn waits again", |_| {
        life.program.opened.lock().unwrap().len() == 1 && life.gateway.status().active_turns == 1
    })
    .await;
    let data = question.buttons[0].1.clone();
    life.press_data("c", "p1", &data, &question.id).await;
    life.sees("c", "re: permit this Once").await;
    life.press_data("c", "p2", &data, &question.id).await;
    noted(&life, 2).await;
    life.rest().await;
    assert_eq!(count(&house, "rm -rf"), 1);
    let question = house.screen.find("rm -rf").unwrap();
    assert!(question.text.contains("Allowed once by Ann"));
    assert_eq!(question.buttons, []);
    assert!(
        notes(&house)[1].contains("it was answered"),
        "{:?}",
        notes(&house)
    );
    life.end().await;
}

/// The press is there before the turn: it came while the gateway was down.
#[tokio::test]
async fn a_press_that_came_first_is_kept_and_used_once() {
    let mut house = TurnHarness::new("");
    let question = asked(&mut house, "permit this", "rm -rf").await;
    let data = question.buttons[0].1.clone();
    let life = house.life().await;
    life.gateway.set_held(true);
    life.press_data("c", "p1", &data, &question.id).await;
    noted(&life, 1).await;
    life.press_data("c", "p2", &data, &question.id).await;
    noted(&life, 2).await;
    let notes = notes(&house);
    assert!(notes[0].contains("Noted"), "{notes:?}");
    assert!(notes[1].contains("it was answered"), "{notes:?}");
    // Kept by the store, not by this process.
    life.end().await;
    let life = house.life().await;
    life.sees("c", "re: permit this Once").await;
    life.rest().await;
    assert_eq!(count(&house, "rm -rf"), 1);
    life.end().await;
}

#[tokio::test]
async fn words_that_came_first_are_used() {
    for (words, part, said, answer) in [
        ("permit this", "rm -rf", "yes", "re: permit this Once"),
        ("permit this", "rm -rf", "/deny not now", "not now"),
        ("clarify", "Which colour?", "2", "text: \"blue\""),
    ] {
        let mut house = TurnHarness::new("");
        asked(&mut house, words, part).await;
        let life = house.life().await;
        life.gateway.set_held(true);
        life.say("c", "m2", said).await;
        life.until("it is stored", |_| life.is_stored()).await;
        life.gateway.set_held(false);
        life.sees("c", answer).await;
        life.rest().await;
        assert_eq!(count(&house, part), 1, "{said}");
        assert_eq!(house.screen.find("re: yes"), None);
        life.end().await;
    }
}

#[tokio::test]
async fn whoever_lost_the_right_since_has_not_answered() {
    let mut house = TurnHarness::new("");
    house.env = vec![("FAKE_ALLOWED_USERS", "user of c,boss")];
    let question = asked(&mut house, "permit this", "rm -rf").await;
    let data = question.buttons[0].1.clone();
    let life = house.life().await;
    life.gateway.set_held(true);
    let mut press = incoming("c", "p1", "pressed");
    press.source.user_id = Some("boss".to_owned());
    press.source.user_name = Some("Bob".to_owned());
    press.pressed = Some(ButtonPress {
        data: data.clone(),
        message_id: Some(question.id.clone()),
    });
    life.send(press).await;
    noted(&life, 1).await;
    let env = house.dir.path().join(".env");
    std::fs::write(env, "FAKE_ALLOWED_USERS=\"user of c\"\n").unwrap();
    life.gateway.set_held(false);
    life.sees("c", "The answer of Bob does not count").await;
    life.press_data("c", "p2", &data, &question.id).await;
    life.sees("c", "re: permit this Once").await;
    life.rest().await;
    let question = house.screen.find("rm -rf").unwrap();
    assert!(question.text.contains("by Ann"), "{question:?}");
    life.end().await;
}

#[tokio::test]
async fn one_whose_time_is_over_says_so_and_is_asked_anew() {
    let mut house = TurnHarness::new("approvals: {gateway_timeout: 30}\n");
    let question = asked(&mut house, "permit this", "rm -rf").await;
    house.clock.advance(Duration::from_secs(40));
    let data = question.buttons[0].1.clone();
    let life = house.life().await;
    life.gateway.set_held(true);
    life.press_data("c", "p1", &data, &question.id).await;
    noted(&life, 1).await;
    assert!(notes(&house)[0].contains("the time to answer is over"));
    life.gateway.set_held(false);
    life.until("it is asked again", |_| count(&house, "rm -rf") == 2)
        .await;
    life.press("c", "p2", "Deny").await;
    life.sees("c", "re: permit this Deny").await;
    life.rest().await;
    let bubbles = house.screen.bubbles.lock().unwrap().clone();
    let old = bubbles.iter().find(|one| one.id == question.id).unwrap();
    assert!(old.text.contains("ask again below"), "{old:?}");
    life.end().await;
}

/// Another command is another question, however much like the old one it looks.
#[tokio::test]
async fn an_answer_counts_only_for_what_was_shown() {
    let mut house = TurnHarness::new("");
    let question = asked(&mut house, "permit this", "rm -rf /tmp/x").await;
    let data = question.buttons[0].1.clone();
    let life = house.life().await;
    life.gateway.set_held(true);
    *life.program.action.lock().unwrap() = "rm -rf /tmp/y".to_owned();
    life.press_data("c", "p1", &data, &question.id).await;
    life.say("c", "m2", "yes").await;
    noted(&life, 1).await;
    life.until("it is stored", |_| life.is_stored()).await;
    life.gateway.set_held(false);
    life.sees("c", "rm -rf /tmp/y").await;
    assert_eq!(house.screen.find("re: permit"), None);
    life.press("c", "p2", "Deny").await;
    life.sees("c", "re: permit this Deny").await;
    // What was said is not lost.
    life.sees("c", "re: yes").await;
    life.rest().await;
    let old = house.screen.find("rm -rf /tmp/x").unwrap();
    assert!(old.text.contains("No longer needed"), "{old:?}");
    life.end().await;
}

/// Words that were said to one question do not answer another, which nobody has seen yet.
#[tokio::test]
async fn words_answer_only_the_question_that_stood_there() {
    for said in ["yes", "/approve", "/approve all"] {
        let mut house = TurnHarness::new("");
        asked(&mut house, "permit this", "rm -rf /tmp/x").await;
        let life = house.life().await;
        life.gateway.set_held(true);
        // What is asked first now is new.
        *life.program.action.lock().unwrap() = "rm -rf /tmp/y\nrm -rf /tmp/x".to_owned();
        life.say("c", "m2", said).await;
        life.until("it is stored", |_| life.is_stored()).await;
        life.gateway.set_held(false);
        life.until("an answer", |screen| {
            screen.find("Allowed once by Ann").is_some()
        })
        .await;
        life.sees("c", "rm -rf /tmp/y").await;
        let new = house.screen.find("rm -rf /tmp/y").unwrap();
        assert!(!new.text.contains("Allowed"), "{said}: {new:?}");
        life.press("c", "p1", "Deny").await;
        life.sees("c", "re: permit this Deny { why: None } Once")
            .await;
        life.rest().await;
        life.end().await;
    }
}

/// Two were asked, and one word was said: it means the one that was asked first, whichever the
/// turn comes to first.
#[tokio::test]
async fn a_word_means_the_oldest_question() {
    let mut house = TurnHarness::new("");
    let life = house.life().await;
    *life.program.action.lock().unwrap() = "rm -rf /tmp/x\nrm -rf /tmp/y".to_owned();
    life.say("c", "m1", "permit this").await;
    life.sees("c", "rm -rf /tmp/y").await;
    life.end().await;
    let life = house.life().await;
    life.gateway.set_held(true);
    *life.program.action.lock().unwrap() = "rm -rf /tmp/y\nrm -rf /tmp/x".to_owned();
    life.say("c", "m2", "yes").await;
    life.until("it is stored", |_| life.is_stored()).await;
    life.gateway.set_held(false);
    life.until("an answer", |screen| {
        screen.find("Allowed once by Ann").is_some()
    })
    .await;
    life.press("c", "p1", "Deny").await;
    life.sees("c", "re: permit this Deny { why: None } Once")
        .await;
    life.rest().await;
    life.end().await;
}

/// Nobody agrees to what they have not been asked.
#[tokio::test]
async fn words_from_before_the_question_do_not_answer_it() {
    let mut house = TurnHarness::new("busy_input_mode: queue\n");
    let life = house.life().await;
    life.say("c", "m1", "slow permit this").await;
    life.until("a turn", |_| life.gateway.status().active_turns == 1)
        .await;
    life.say("c", "m2", "ok").await;
    life.until("it waits", |_| life.gateway.status().queued == 1)
        .await;
    house.clock.advance(Duration::from_secs(1));
    life.program.gate.notify_one();
    life.sees("c", "rm -rf").await;
    life.end().await;
    let life = house.life().await;
    life.until("the turn waits again", |_| {
        life.program.opened.lock().unwrap().len() == 1 && life.gateway.status().active_turns == 1
    })
    .await;
    let question = house.screen.find("rm -rf").unwrap();
    let deny = question.buttons.iter().find(|(label, _)| label == "Deny");
    let deny = deny.expect("a question that is open").1.clone();
    life.press_data("c", "p1", &deny, &question.id).await;
    life.until("an answer", |screen| {
        screen.find("re: slow permit this").is_some()
    })
    .await;
    let answer = house.screen.find("re: slow permit this").unwrap();
    assert!(answer.text.contains("Deny"), "{answer:?}");
    // It is a message like any other.
    life.sees("c", "re: ok").await;
    life.rest().await;
    life.end().await;
}

/// The turn has ended: its button does nothing, in the next process either.
#[tokio::test]
async fn a_question_of_a_turn_that_ended_stays_closed() {
    let mut house = TurnHarness::new("");
    let life = house.life().await;
    life.say("c", "m1", "permit this").await;
    life.sees("c", "rm -rf").await;
    let question = house.screen.find("rm -rf").unwrap();
    life.say("c", "m2", "/stop").await;
    life.sees("c", "Stopped").await;
    life.rest().await;
    life.end().await;
    let life = house.life().await;
    let data = question.buttons[0].1.clone();
    life.press_data("c", "p1", &data, &question.id).await;
    noted(&life, 1).await;
    assert!(notes(&house)[0].contains("no longer open"));
    life.end().await;
}

/// Wherever a process ends in which a question is answered: one answer, and every press counts at most
/// once.
#[test]
fn a_crash_at_any_step_of_an_answer() {
    let live = |house: &mut TurnHarness, fuse: &Fuse| {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap();
        let done = runtime.block_on(async {
            tokio::select! {
                biased;
                () = fuse.died.cancelled() => false,
                () = answer(house, fuse) => true,
            }
        });
        house.end(runtime);
        done
    };
    let long = 1_000_000;
    let mut step = 1;
    loop {
        let mut house = TurnHarness::new("");
        let runtime = tokio::runtime::Runtime::new().unwrap();
        runtime.block_on(asked(&mut house, "permit this", "rm -rf"));
        drop(runtime);
        let done = live(&mut house, &Fuse::new(step));
        if !done {
            assert!(live(&mut house, &Fuse::new(long)), "step {step}");
        }
        let bubbles = house.screen.bubbles.lock().unwrap().clone();
        let answers = bubbles.iter().filter(|one| one.text.starts_with("re: "));
        assert_eq!(answers.count(), 1, "step {step}: {bubbles:#?}");
        assert!(count(&house, "rm -rf") <= 2, "step {step}: {bubbles:#?}");
        if done {
            break;
        }
        step += 1;
    }
    assert!(step > 10, "{step}");
}

/// Presses what there is to press until the turn has ended.
async fn answer(house: &mut TurnHarness, fuse: &Fuse) {
    let clock = house.clock.clone();
    let life = house.life_with(fuse.clone()).await;
    for round in 0..2000 {
        let open = {
            let bubbles = life.screen.bubbles.lock().unwrap();
            let mut open = bubbles.iter().filter(|one| !one.buttons.is_empty());
            open.next_back().cloned()
        };
        if let Some(open) = open.filter(|_| round % 50 == 0) {
            let data = open.buttons[0].1.clone();
            let id = format!("{}-{round}", open.id);
            life.press_data("c", &id, &data, &open.id).await;
        }
        clock.advance(Duration::from_millis(10));
        tokio::time::sleep(Duration::from_millis(2)).await;
        let texts = life.screen.texts("c");
        if texts.iter().any(|text| text.starts_with("re: ")) {
            return life.rest().await;
        }
    }
    panic!("no end: {:#?}", life.screen.bubbles.lock().unwrap());
}

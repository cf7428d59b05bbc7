//! What Telegram has besides messages in a chat, and the built binary: topics of a forum, signs on
//! messages, the menu of commands.

use hermes_testkit::model_server::{Reply, ReplyGate};
use hermes_testkit::telegram::{FakeTelegram, PersonMessage};
use serde_json::json;

use super::telegram::{ADA, TelegramScenario};

const FORUM: i64 = -100_900;
const TIDES: i64 = 4;
const WINDS: i64 = 5;

/// Whether this was said in a topic; `None` is the general one.
fn has(telegram: &FakeTelegram, topic: Option<i64>, text: &str) -> bool {
    let shown = telegram.shown(FORUM);
    let mut here = shown.iter().filter(|shown| shown.thread == topic);
    here.any(|shown| shown.text == text)
}

#[test]
fn topics_of_a_group_are_conversations_of_their_own() {
    let mut story = TelegramScenario::new(&format!("TELEGRAM_ALLOWED_USERS={ADA}"));
    let topics = [(TIDES, "Tides"), (WINDS, "Winds")];
    story.telegram.forum(FORUM, "Harbour", &topics);
    let gate = ReplyGate::new();
    let held = gate.clone();
    story.model.answer_with(move |request| {
        let said = request.last_user_text();
        let said = |words: &str| said.contains(words);
        if said("when is high tide") {
            Reply::text("At noon.").hold(&held)
        } else if said("how strong is it") {
            Reply::text("A gale.")
        } else if said("and the next one") {
            Reply::text("At midnight.")
        } else {
            Reply::text("All is well.")
        }
    });
    story.start();
    let say = |topic: Option<i64>, text: &str| {
        let says = PersonMessage::text(ADA, text).in_chat(FORUM);
        let says = PersonMessage {
            thread: topic,
            ..says
        };
        story.telegram.say(says)
    };
    let see = |topic, text: &str| {
        story.until(text, |telegram| has(telegram, topic, text));
    };
    say(Some(TIDES), "when is high tide");
    story.model.block_until(|now| now.requests > 0);
    // Nobody waits for another topic.
    say(Some(WINDS), "how strong is it");
    see(Some(WINDS), "A gale.");
    say(None, "how is everybody");
    see(None, "All is well.");
    gate.release();
    see(Some(TIDES), "At noon.");
    say(Some(TIDES), "and the next one");
    see(Some(TIDES), "At midnight.");

    let asked = story.model.last_request();
    let asked = json!(asked.messages()).to_string();
    for known in ["when is high tide", "At noon."] {
        assert!(asked.contains(known), "{asked}");
    }
    for foreign in ["how strong is it", "A gale.", "how is everybody"] {
        assert!(!asked.contains(foreign), "{asked}");
    }
    assert_eq!(story.telegram.shown(FORUM).len(), 4);
}

#[test]
fn a_message_shows_that_it_is_worked_on_and_that_it_is_done() {
    let mut story = TelegramScenario::new(&format!("TELEGRAM_ALLOWED_USERS={ADA}"));
    let gate = ReplyGate::new();
    story.model.push(Reply::text("Done.").hold(&gate));
    story.start();
    let asked = story.say("work");
    story.until("a sign of work", |telegram| {
        telegram.reactions(ADA, asked) == ["👀"]
    });
    gate.release();
    story.see_text("Done.");
    story.until("a sign that it is done", |telegram| {
        telegram.reactions(ADA, asked) == ["👍"]
    });
}

#[test]
fn the_menu_has_the_commands_and_what_it_offers_runs() {
    let mut story = TelegramScenario::new(&format!("TELEGRAM_ALLOWED_USERS={ADA}"));
    story.configure(|config| {
        config["quick_commands"] =
            json!({"high-tide": {"type": "exec", "command": "echo at noon"}});
    });
    story.start();
    let scopes = ["default", "all_private_chats", "all_group_chats"];
    story.until("the menu", |telegram| {
        scopes
            .iter()
            .all(|scope| telegram.commands(scope).is_some())
    });
    let menu = story.telegram.commands("default").unwrap();
    let menu = menu.as_array().unwrap();
    let offers = |name: &str| menu.iter().any(|one| one["command"] == name);
    // Telegram's menu knows no dashes.
    for name in ["help", "new", "stop", "whoami", "high_tide"] {
        assert!(offers(name), "{name} is not in {menu:#?}");
    }
    for scope in scopes {
        assert_eq!(story.telegram.commands(scope).as_ref(), Some(&json!(menu)));
    }
    story.say("/high_tide");
    story.see_text("at noon");
    story.say(&format!("/whoami@{}", story.telegram.username()));
    story.see_text("You are Ada");
    assert!(story.model.model_requests().is_empty());
}

//! Discord without mentions, and the built binary: commands from the menu, and what was said while
//! nobody was there.

use hermes_testkit::discord::BOT;
use hermes_testkit::model_server::Reply;
use serde_json::json;

use super::discord::DiscordScenario;

#[test]
fn slash_commands_are_answered_where_they_are_used() {
    let mut story = DiscordScenario::new();
    story.start();
    story.until("the menu", |discord| {
        let menu = discord.commands();
        menu.iter().any(|one| one["name"] == "voice")
    });
    let menu = story.discord.commands();
    let voice = menu.iter().find(|one| one["name"] == "voice").unwrap();
    assert_eq!(voice["options"][0]["name"], "args", "{voice}");
    let options = json!([{"type": 3, "name": "args", "value": "off"}]);
    let used = story
        .discord
        .slash(story.room, story.ann, "voice", &options);
    story.see_text(story.room, "Voice is off");
    let (kind, noted) = story.discord.answer(used).unwrap();
    assert_eq!((kind, noted.as_deref()), (4, Some("`/voice off`")));
    // A stranger is told nothing of it.
    let direct = story.discord.direct(story.ann);
    story
        .discord
        .slash(story.room, story.eve, "whoami", &json!([]));
    story.discord.slash(direct, story.ann, "whoami", &json!([]));
    story.see_text(direct, "You are ann");
    story.gateway.take().unwrap().stop();
    let said = story.discord.said(story.room);
    assert_eq!(said.len(), 1, "{said:#?}");
    assert!(story.model.model_requests().is_empty());
}

#[test]
fn what_was_said_while_it_was_down_is_answered_once() {
    let mut story = DiscordScenario::new();
    story.model.answer_with(|request| {
        let said = request.last_user_text();
        let word = said.split_whitespace().last().unwrap_or_default();
        Reply::text(&format!("You said: {word}"))
    });
    story.start();
    let direct = story.discord.direct(story.ann);
    story.discord.say(direct, story.ann, "hello");
    story.see_text(direct, "You said: hello");
    let thread = story
        .discord
        .say(story.room, story.ann, &format!("<@{BOT}> begin"));
    story.see_text(thread, "You said: begin");
    story.gateway.take().unwrap().stop();

    let mention = |text: &str| format!("<@{BOT}> {text}");
    story.discord.say(direct, story.ann, "first");
    story.discord.say(thread, story.ann, "second");
    let third = story.discord.say(story.room, story.ann, &mention("third"));
    // Neither for us nor from somebody who may.
    story.discord.say(story.room, story.ann, "among ourselves");
    let foreign = story.discord.say(story.room, story.eve, &mention("me too"));
    story.start();
    story.see_text(direct, "You said: first");
    story.see_text(thread, "You said: second");
    story.see_text(third, "You said: third");
    story.gateway.take().unwrap().stop();

    // The next process knows it all. What is new in a channel comes after what was missed there.
    story.start();
    for (channel, text) in [(direct, "fourth"), (thread, "fifth"), (third, "sixth")] {
        story.discord.say(channel, story.ann, text);
        story.see_text(channel, &format!("You said: {text}"));
    }
    let seventh = story
        .discord
        .say(story.room, story.ann, &mention("seventh"));
    story.see_text(seventh, "You said: seventh");
    let all = [
        (direct, ["hello", "first", "fourth"].as_slice()),
        (thread, &["begin", "second", "fifth"]),
        (third, &["third", "sixth"]),
        (seventh, &["seventh"]),
    ];
    for (channel, texts) in all {
        let wanted: Vec<String> = texts.iter().map(|one| format!("You said: {one}")).collect();
        assert_eq!(story.discord.said(channel), wanted);
    }
    assert!(story.discord.said(story.room).is_empty());
    assert!(story.discord.said(foreign).is_empty());
}

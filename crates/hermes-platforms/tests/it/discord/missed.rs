//! What is said while we are not there.

use hermes_testkit::discord::{BOT, DiscordFault, DiscordFaultKind, DiscordRequest, FakeDiscord};
use pretty_assertions::assert_eq;
use serde_json::json;

use super::{DiscordHarness, soon};

/// Until the memory of a platform knows that it was here.
async fn remembered(scene: &DiscordHarness) {
    let path = scene.home.path().join("gateway/discord_seen.json");
    soon(async {
        while !path.exists() {
            tokio::task::yield_now().await;
        }
    })
    .await;
}

fn said_to(discord: &FakeDiscord, channel: u64, user: u64, text: &str) -> u64 {
    discord.say(channel, user, &format!("<@{BOT}> {text}"))
}

#[tokio::test]
async fn a_restart_makes_good_what_was_said_meanwhile() {
    let scene = DiscordHarness::with(json!({"auto_thread": false, "history_backfill": false}));
    let (discord, ann) = (&scene.discord, scene.ann);
    let direct = discord.direct(ann);
    let quiet = discord.channel("quiet");
    // Before we ever were here: not for us.
    said_to(discord, scene.room, ann, "before");
    let mut bot = scene.up().await;
    discord.say(direct, ann, "one");
    bot.next().await;
    scene.mention("two");
    bot.next().await;
    bot.stop().await.unwrap();
    remembered(&scene).await;

    discord.forget_sessions();
    discord.say(direct, ann, "three");
    discord.say(scene.room, ann, "talk among people");
    said_to(discord, scene.room, ann, "four");
    said_to(discord, quiet, ann, "five");
    let answered = said_to(discord, scene.room, ann, "done by another program");
    discord.reply(scene.room, BOT, "here", answered);

    let mut bot = scene.up().await;
    let mut texts = Vec::new();
    for _ in 0..3 {
        texts.push(bot.next().await.text);
    }
    texts.sort();
    assert_eq!(texts, ["five", "four", "three"]);
    // Nothing more: what comes now is the next thing that is said.
    discord.say(direct, ann, "six");
    assert_eq!(bot.next().await.text, "six");
    bot.stop().await.unwrap();
}

#[tokio::test]
async fn a_session_that_is_over_is_made_good_too() {
    let scene = DiscordHarness::with(json!({"history_backfill": false}));
    let direct = scene.discord.direct(scene.ann);
    let mut bot = scene.up().await;
    scene.discord.say(direct, scene.ann, "one");
    bot.next().await;
    scene.discord.offline(true);
    scene.discord.forget_sessions();
    scene.discord.say(direct, scene.ann, "two");
    scene.discord.say(direct, scene.ann, "three");
    scene.discord.offline(false);
    assert_eq!(bot.next().await.text, "two");
    assert_eq!(bot.next().await.text, "three");
    bot.stop().await.unwrap();
}

#[tokio::test]
async fn what_an_earlier_life_took_does_not_count() {
    let scene = DiscordHarness::with(json!({"missed_message_backfill": {"max_dispatches": 2}}));
    let direct = scene.discord.direct(scene.ann);
    let mut bot = scene.up().await;
    scene.discord.say(direct, scene.ann, "hello");
    bot.next().await;
    bot.stop().await.unwrap();
    remembered(&scene).await;
    for number in 0..5 {
        scene.discord.say(direct, scene.ann, &number.to_string());
    }
    let mut bot = scene.up().await;
    for number in 0..5 {
        // The first three were stored by a process that was killed before it could remember them.
        let arrival = bot.arrival().await;
        assert_eq!(arrival.message.text, number.to_string());
        arrival.stored.send(number > 2).unwrap();
    }
    bot.stop().await.unwrap();
}

#[tokio::test]
async fn it_is_bounded_and_can_be_switched_off() {
    let mut scene = DiscordHarness::with(json!({
        "missed_message_backfill": {"limit": 150, "max_dispatches": 120},
    }));
    let direct = scene.discord.direct(scene.ann);
    let mut bot = scene.up().await;
    scene.discord.say(direct, scene.ann, "hello");
    bot.next().await;
    bot.stop().await.unwrap();
    remembered(&scene).await;
    for number in 0..200 {
        scene.discord.say(direct, scene.ann, &format!("{number}"));
    }
    let mut bot = scene.up().await;
    // The newest 150 are read, and 120 of them taken.
    for number in 50..170 {
        assert_eq!(bot.next().await.text, number.to_string());
    }
    scene.discord.say(direct, scene.ann, "live");
    assert_eq!(bot.next().await.text, "live");
    bot.stop().await.unwrap();

    scene.discord.say(direct, scene.ann, "nobody reads this");
    scene.extra = json!({"missed_message_backfill": false});
    let mut bot = scene.up().await;
    scene.discord.say(direct, scene.ann, "live again");
    assert_eq!(bot.next().await.text, "live again");
    bot.stop().await.unwrap();
}

/// Channels are looked into side by side; what they may take together is counted once.
#[tokio::test]
async fn the_bound_holds_for_all_channels_together() {
    let scene = DiscordHarness::with(json!({
        "auto_thread": false,
        "history_backfill": false,
        "missed_message_backfill": {"max_dispatches": 1},
    }));
    let (discord, ann) = (&scene.discord, scene.ann);
    let channels: Vec<u64> = (0..4)
        .map(|number| discord.channel(&format!("room {number}")))
        .collect();
    let mut bot = scene.up().await;
    scene.mention("hello");
    bot.next().await;
    bot.stop().await.unwrap();
    remembered(&scene).await;
    discord.forget_sessions();
    for channel in &channels {
        said_to(discord, *channel, ann, "missed");
    }
    let mut bot = scene.up().await;
    // One that was known does not count, the next one does.
    for stored in [false, true] {
        let arrival = bot.arrival().await;
        assert_eq!(arrival.message.text, "missed");
        // All of them are looked into before the first counts.
        let looks = |asked: &[DiscordRequest], channel: &u64| {
            let path = format!("/channels/{channel}/messages");
            asked.iter().any(|one| one.path.contains(&path))
        };
        discord
            .until(|discord| {
                let asked = discord.requests();
                channels.iter().all(|channel| looks(&asked, channel))
            })
            .await;
        arrival.stored.send(stored).unwrap();
    }
    scene.mention("live");
    assert_eq!(bot.next().await.text, "live");
    bot.stop().await.unwrap();
}

/// A session may live for days: nobody waits for its end to ask again.
#[tokio::test]
async fn what_could_not_be_read_is_asked_for_again() {
    let scene = DiscordHarness::with(json!({"history_backfill": false}));
    let direct = scene.discord.direct(scene.ann);
    let mut bot = scene.up().await;
    scene.discord.say(direct, scene.ann, "one");
    bot.next().await;
    bot.stop().await.unwrap();
    remembered(&scene).await;
    scene.discord.forget_sessions();
    scene.discord.say(direct, scene.ann, "two");
    scene.discord.fail(DiscordFault {
        method: "GET",
        path: "/messages",
        kind: DiscordFaultKind::Status(200, json!({"not": "a list"})),
        times: 2,
    });
    let mut bot = scene.up().await;
    assert_eq!(bot.next().await.text, "two");
    bot.stop().await.unwrap();
}

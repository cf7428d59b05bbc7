//! What is said to us, where, and by whom.

use hermes_platforms::MediaKind;
use hermes_testkit::discord::BOT;
use pretty_assertions::assert_eq;
use serde_json::json;

use super::{DiscordHarness, soon};

#[tokio::test]
async fn a_mention_gets_a_thread_and_the_thread_needs_no_more_mentions() {
    let scene = DiscordHarness::new();
    let mut bot = scene.up().await;
    scene
        .discord
        .say(scene.room, scene.ann, "nothing for a bot");
    let asked = scene.mention("fix the roof");
    let first = bot.next().await;
    assert_eq!(first.text, "fix the roof");
    assert_eq!(first.message_id, asked.to_string());
    let source = &first.source;
    assert_eq!(
        (source.chat_type.as_str(), &source.chat_id),
        ("thread", &asked.to_string())
    );
    assert_eq!(source.thread_id, Some(asked.to_string()));
    assert_eq!(source.parent_chat_id, Some(scene.room.to_string()));
    assert_eq!(source.user_name.as_deref(), Some("ann"));
    assert!(source.auto_thread_created);

    scene.discord.say(asked, scene.ann, "and the door");
    let second = bot.next().await;
    assert_eq!(
        (second.text.as_str(), second.source.chat_type.as_str()),
        ("and the door", "thread")
    );
    assert_eq!(
        second.source.chat_name.as_deref(),
        Some("Workshop / #general / fix the roof")
    );
    let mine = std::fs::read_to_string(scene.home.path().join("discord_threads.json")).unwrap();
    assert_eq!(mine, format!("[\"{asked}\"]"));
    bot.stop().await.unwrap();
}

#[tokio::test]
async fn nothing_is_made_for_a_stranger() {
    let scene = DiscordHarness::new();
    let mut bot = scene.up().await;
    scene
        .discord
        .say(scene.room, scene.stranger, &format!("<@{BOT}> let me in"));
    let heard = bot.next().await;
    // Whether they may talk is decided at the door; no thread is made before.
    assert_eq!(heard.source.chat_type, "group");
    assert_eq!(heard.native["has_role"], json!(false));
    let asked = scene.discord.requests();
    assert!(!asked.iter().any(|one| one.path.ends_with("/threads")));
    bot.stop().await.unwrap();
}

#[tokio::test]
async fn a_thread_that_cannot_be_made_does_not_lose_the_message() {
    use hermes_testkit::discord::{DiscordFault, DiscordFaultKind};
    let scene = DiscordHarness::new();
    let mut bot = scene.up().await;
    scene.discord.fail(DiscordFault {
        method: "POST",
        path: "/threads",
        kind: DiscordFaultKind::Status(
            403,
            json!({"code": 50013, "message": "Missing Permissions"}),
        ),
        times: 1,
    });
    scene.mention("anyway");
    let heard = bot.next().await;
    assert_eq!(
        (heard.source.chat_type.as_str(), heard.text.as_str()),
        ("group", "anyway")
    );
    bot.stop().await.unwrap();
}

#[tokio::test]
async fn direct_messages_roles_and_files() {
    let role = 4242;
    let scene = DiscordHarness::with(json!({
        "allowed_roles": [role], "free_response_channels": "general", "auto_thread": false,
    }));
    scene.discord.grant(scene.stranger, role);
    let mut bot = scene.up().await;
    scene
        .discord
        .say(scene.room, scene.stranger, "no mention needed here");
    let free = bot.next().await;
    assert_eq!(free.native["has_role"], json!(true));
    assert_eq!(free.source.guild_id, free.source.scope_id);

    let direct = scene.discord.direct(scene.stranger);
    scene
        .discord
        .upload(direct, scene.stranger, "look", "a.bin", b"\x00\x01");
    let private = bot.next().await;
    assert_eq!(private.source.chat_type, "dm");
    // A role in a server says nothing in private.
    assert_eq!(private.native["has_role"], json!(false));
    assert_eq!(private.media[0].kind, MediaKind::Document);
    let into = tempfile::tempdir().unwrap();
    let path = bot
        .outbound
        .fetch_media(&private.media[0], into.path(), 100)
        .await
        .unwrap();
    assert_eq!(std::fs::read(path).unwrap(), b"\x00\x01");
    let small = bot
        .outbound
        .fetch_media(&private.media[0], into.path(), 1)
        .await;
    assert!(small.unwrap_err().to_string().contains("larger"));
    bot.stop().await.unwrap();
}

#[tokio::test]
async fn what_was_said_before_comes_with_a_mention() {
    let scene = DiscordHarness::with(json!({"auto_thread": false}));
    let mut bot = scene.up().await;
    let first = scene
        .discord
        .say(scene.room, scene.stranger, "the roof leaks");
    scene.discord.say(scene.room, scene.ann, "again?");
    scene
        .discord
        .reply(scene.room, scene.ann, &format!("<@{BOT}> what now"), first);
    let heard = bot.next().await;
    assert_eq!(heard.text, "what now");
    assert_eq!(
        heard.context.as_deref(),
        Some("[said here before]\n[eve] the roof leaks\n[ann] again?")
    );
    let reply = heard.reply_to.unwrap();
    assert_eq!(
        (reply.text.as_deref(), reply.own),
        (Some("the roof leaks"), false)
    );
    bot.stop().await.unwrap();
}

#[tokio::test]
async fn an_interaction_is_answered_after_it_is_stored() {
    let scene = DiscordHarness::new();
    let mut bot = scene.up().await;
    let options = json!([{"name": "args", "type": 3, "value": "fast"}]);
    let used = scene
        .discord
        .slash(scene.room, scene.ann, "model", &options);
    let arrival = bot.arrival().await;
    assert_eq!(arrival.message.text, "/model fast");
    assert_eq!(arrival.message.message_id, used.to_string());
    assert_eq!(scene.discord.answer(used), None);
    arrival.stored.send(true).unwrap();
    soon(
        scene
            .discord
            .until(|discord| discord.answer(used).is_some()),
    )
    .await;
    // Only the person sees it; what the command says comes as a message.
    assert_eq!(
        scene.discord.answer(used),
        Some((4, Some("`/model fast`".to_owned())))
    );
    assert_eq!(scene.discord.said(scene.room), [""; 0]);
    bot.stop().await.unwrap();
}

#[tokio::test]
async fn an_ignored_channel_says_so_to_commands() {
    let scene = DiscordHarness::with(json!({"ignored_channels": "general"}));
    let mut bot = scene.up().await;
    let used = scene
        .discord
        .slash(scene.room, scene.ann, "status", &json!([]));
    soon(
        scene
            .discord
            .until(|discord| discord.answer(used).is_some()),
    )
    .await;
    scene.mention("hello?");
    let direct = scene.discord.direct(scene.ann);
    scene.discord.say(direct, scene.ann, "here then");
    assert_eq!(bot.next().await.text, "here then");
    bot.stop().await.unwrap();
}

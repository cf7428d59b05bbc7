//! What we say, and what became of it.

use std::time::Duration;

use hermes_platforms::{Button, MediaKind, Offer, OutMedia, SendError, Tone};
use hermes_testkit::discord::{DiscordFault, DiscordFaultKind};
use pretty_assertions::assert_eq;
use serde_json::json;

use super::{DiscordHarness, outgoing, soon, target};

fn fault(method: &'static str, path: &'static str, kind: DiscordFaultKind) -> DiscordFault {
    DiscordFault {
        method,
        path,
        kind,
        times: 1,
    }
}

fn posts(scene: &DiscordHarness) -> usize {
    let asked = scene.discord.requests();
    let posts = asked
        .iter()
        .filter(|one| one.method == "POST" && one.path.ends_with("/messages"));
    posts.count()
}

#[tokio::test]
async fn the_same_key_is_one_message() {
    let scene = DiscordHarness::new();
    let out = scene.platform().outbound;
    let message = outgoing(scene.room, "a", "hello");
    scene
        .discord
        .fail(fault("POST", "/messages", DiscordFaultKind::AnswerLost));
    let lost = out.send(&message).await.unwrap_err();
    assert!(matches!(lost, SendError::Unclear(_)), "{lost}");
    let first = out.send(&message).await.unwrap().unwrap();
    assert_eq!(out.send(&message).await.unwrap(), Some(first.clone()));
    assert_eq!(scene.discord.said(scene.room), ["hello"]);
    out.send(&outgoing(scene.room, "b", "hello")).await.unwrap();
    assert_eq!(scene.discord.said(scene.room).len(), 2);
    // Nobody is called by what a model writes.
    let sent = &scene.discord.requests()[0].body;
    assert_eq!(sent["allowed_mentions"]["parse"], json!(["users"]));
}

#[tokio::test]
async fn failures_are_told_apart() {
    let scene = DiscordHarness::new();
    let out = scene.platform().outbound;
    let message = outgoing(scene.room, "a", "hello");
    scene.discord.offline(true);
    let error = out.send(&message).await.unwrap_err();
    // The fake accepts and resets: nobody can know what it read.
    assert!(
        matches!(error, SendError::NotSent { .. } | SendError::Unclear(_)),
        "{error}"
    );
    scene.discord.offline(false);
    scene.discord.fail(fault(
        "POST",
        "/messages",
        DiscordFaultKind::Status(502, json!({})),
    ));
    let error = out.send(&message).await.unwrap_err();
    assert!(matches!(error, SendError::Unclear(_)), "{error}");
    let error = out
        .send(&outgoing(scene.room, "b", &"x".repeat(2001)))
        .await
        .unwrap_err();
    assert!(matches!(error, SendError::Refused(_)), "{error}");
    let error = out.send(&outgoing(5, "c", "nowhere")).await.unwrap_err();
    assert!(error.to_string().contains("Unknown Channel"), "{error}");
    scene.discord.lock(scene.room);
    let error = out
        .send(&outgoing(scene.room, "d", "no right"))
        .await
        .unwrap_err();
    assert!(matches!(error, SendError::Refused(_)), "{error}");
    scene.discord.revoke_token();
    let error = out.send(&message).await.unwrap_err();
    assert!(matches!(error, SendError::NotSent { .. }), "{error}");
    assert!(scene.discord.said(scene.room).is_empty());
}

#[tokio::test]
async fn limits_are_obeyed_without_asking() {
    let scene = DiscordHarness::new();
    let out = scene.platform().outbound;
    let kind = DiscordFaultKind::Limited {
        seconds: 60.0,
        global: false,
    };
    scene.discord.fail(fault("POST", "/messages", kind));
    let message = outgoing(scene.room, "a", "hello");
    for _ in 0..2 {
        let error = out.send(&message).await.unwrap_err();
        let SendError::NotSent { retry_after, .. } = &error else {
            panic!("{error}");
        };
        let pause = retry_after.unwrap();
        assert!(pause > Duration::from_secs(50) && pause <= Duration::from_mins(1));
    }
    // The second attempt was not made.
    assert_eq!(posts(&scene), 1);
    // Another channel has a limit of its own.
    let other = scene.discord.channel("other");
    out.send(&outgoing(other, "b", "there")).await.unwrap();
    // What the headers say counts as well.
    scene.discord.limit(2, Duration::from_mins(1));
    let third = scene.discord.channel("third");
    for key in ["c", "d"] {
        out.send(&outgoing(third, key, key)).await.unwrap();
    }
    let before = posts(&scene);
    assert!(out.send(&outgoing(third, "e", "e")).await.is_err());
    assert_eq!(posts(&scene), before);
}

#[tokio::test]
async fn messages_change_and_go() {
    let scene = DiscordHarness::new();
    let out = scene.platform().outbound;
    let mut message = outgoing(scene.room, "a", "draft");
    let asked = scene.discord.say(scene.room, scene.ann, "question");
    message.reply_to = Some(asked.to_string());
    let id = out.send(&message).await.unwrap().unwrap();
    let there = scene.discord.messages(scene.room);
    assert_eq!(
        there[1]["message_reference"]["message_id"],
        json!(asked.to_string())
    );
    "final".clone_into(&mut message.text);
    out.edit(&id, &message).await.unwrap();
    assert_eq!(scene.discord.said(scene.room), ["final"]);
    out.typing(&target(scene.room)).await;
    out.delete(&target(scene.room), &id).await.unwrap();
    out.delete(&target(scene.room), &id).await.unwrap();
    assert!(scene.discord.said(scene.room).is_empty());
    assert!(matches!(
        out.edit(&id, &message).await,
        Err(SendError::Refused(_))
    ));

    // A message that cannot be answered is not lost for that.
    let kind = DiscordFaultKind::Status(
        400,
        json!({"code": 50035, "message": "Invalid Form Body", "errors": {
            "message_reference": {"_errors": [{"code": "REPLIES_CANNOT_REFERENCE_SYSTEM_MESSAGE"}]},
        }}),
    );
    scene.discord.fail(fault("POST", "/messages", kind));
    "plain".clone_into(&mut message.text);
    message.key = "f".repeat(24);
    let error = out.send(&message).await.unwrap_err();
    assert!(matches!(error, SendError::NotSent { .. }), "{error}");
    out.send(&message).await.unwrap();
    assert_eq!(
        scene.discord.messages(scene.room)[1]["message_reference"],
        json!(null)
    );
}

#[tokio::test]
async fn one_sign_at_a_time() {
    let scene = DiscordHarness::new();
    let out = scene.platform().outbound;
    let asked = scene.discord.say(scene.room, scene.ann, "question");
    let id = asked.to_string();
    let signs = || {
        let there = scene.discord.messages(scene.room)[0]["reactions"].clone();
        let signs = there.as_array().cloned().unwrap_or_default();
        let signs = signs
            .iter()
            .map(|one| one["emoji"]["name"].as_str().unwrap().to_owned());
        signs.collect::<Vec<_>>()
    };
    out.react(&target(scene.room), &id, Some("👀")).await;
    assert_eq!(signs(), ["👀"]);
    out.react(&target(scene.room), &id, Some("✅")).await;
    assert_eq!(signs(), ["✅"]);
    // Also by a process that did not put it up.
    scene
        .platform()
        .outbound
        .react(&target(scene.room), &id, None)
        .await;
    assert!(signs().is_empty());
}

#[tokio::test]
async fn files_are_sent_once() {
    let scene = DiscordHarness::new();
    let out = scene.platform().outbound;
    let path = scene.home.path().join("plan.txt");
    std::fs::write(&path, "a plan").unwrap();
    let mut message = outgoing(scene.room, "a", "see");
    message.media = Some(OutMedia {
        path: path.clone(),
        kind: MediaKind::Document,
    });
    scene
        .discord
        .fail(fault("POST", "/messages", DiscordFaultKind::AnswerLost));
    out.send(&message).await.unwrap_err();
    out.send(&message).await.unwrap();
    let there = scene.discord.messages(scene.room);
    assert_eq!(there.len(), 1);
    assert_eq!(there[0]["attachments"][0]["filename"], json!("plan.txt"));
    assert_eq!(there[0]["attachments"][0]["size"], json!(6));
    std::fs::remove_file(path).unwrap();
    let error = out.send(&message).await.unwrap_err();
    assert!(matches!(error, SendError::Refused(_)), "{error}");
}

#[tokio::test]
async fn a_button_is_pressed() {
    let scene = DiscordHarness::new();
    let mut bot = scene.up().await;
    let mut message = outgoing(scene.room, "a", "Run it?");
    let button = |label: &str, data: &str, tone| Button {
        label: label.to_owned(),
        data: data.to_owned(),
        tone,
    };
    message.buttons = vec![vec![
        button("Once", "ea:once:1", Tone::Good),
        button("Deny", "ea:deny:1", Tone::Danger),
    ]];
    let id = bot.outbound.send(&message).await.unwrap().unwrap();
    let press = scene
        .discord
        .press(id.parse().unwrap(), scene.ann, "ea:once:1");
    let arrival = bot.arrival().await;
    assert_eq!(scene.discord.answer(press), None);
    let pressed = arrival.message.pressed.clone().unwrap();
    assert_eq!(
        (pressed.data.as_str(), pressed.message_id),
        ("ea:once:1", Some(id.clone()))
    );
    assert_eq!(arrival.message.text, "Once");
    arrival.stored.send(true).unwrap();
    soon(
        scene
            .discord
            .until(|discord| discord.answer(press).is_some()),
    )
    .await;
    assert_eq!(scene.discord.answer(press), Some((6, None)));
    bot.outbound
        .pressed(&arrival.message, Some("Allowed once."))
        .await;
    assert_eq!(
        scene.discord.answer(press),
        Some((6, Some("Allowed once.".to_owned())))
    );
    // Buttons go with the change that says what came of it.
    message.buttons.clear();
    bot.outbound.edit(&id, &message).await.unwrap();
    assert_eq!(
        scene.discord.messages(scene.room)[0]["components"],
        json!([])
    );
    bot.stop().await.unwrap();
}

fn offer(name: &str, about: &str) -> Offer {
    Offer {
        name: name.to_owned(),
        about: about.to_owned(),
        args: Some("[what]".to_owned()),
    }
}

#[tokio::test]
async fn the_menu_is_written_only_when_it_differs() {
    let scene = DiscordHarness::new();
    let writes = || {
        let asked = scene.discord.requests();
        asked.iter().filter(|one| one.method == "PUT").count()
    };
    let all: Vec<Offer> = hermes_core::slash::COMMANDS
        .iter()
        .filter(|command| command.surfaces.platform)
        .map(|command| offer(command.name, command.summary))
        .collect();
    scene.platform().outbound.offer(&all).await.unwrap();
    assert_eq!((writes(), scene.discord.commands().len()), (1, all.len()));
    scene.platform().outbound.offer(&all).await.unwrap();
    assert_eq!(writes(), 1);
    let fewer = &all[1..];
    scene.platform().outbound.offer(fewer).await.unwrap();
    assert_eq!((writes(), scene.discord.commands().len()), (2, fewer.len()));
}

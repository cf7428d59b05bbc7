use hermes_gateway::render::pieces;
use hermes_platforms::{Capabilities, MediaKind, Offer, OutMedia, SendError, render};
use hermes_testkit::telegram::{PersonMessage, TelegramFault};
use pretty_assertions::assert_eq;
use serde_json::json;

use super::*;

fn sender(telegram: &FakeTelegram) -> Arc<dyn OutboundAdapter> {
    platform(telegram, &json!({"reactions": true})).outbound
}

const PNG: &[u8] = b"\x89PNG\r\n\x1a\n and so on";

#[tokio::test]
async fn failures_say_what_is_certain() {
    let telegram = telegram_with_people();
    let sender = sender(&telegram);
    let message = outgoing(ADA, "hello");
    let send = || soon(sender.send(&message));
    telegram.fault("sendMessage", TelegramFault::TooMany { retry_after: 9 }, 1);
    let Err(SendError::NotSent { retry_after, .. }) = send().await else {
        panic!("a flood is certain");
    };
    assert_eq!(retry_after, Some(Duration::from_secs(9)));
    telegram.refuse(true);
    let fresh = self::sender(&telegram);
    let refused = fresh.send(&message).await;
    assert!(matches!(refused, Err(SendError::NotSent { .. })));
    telegram.refuse(false);
    for fault in [
        TelegramFault::Cut,
        TelegramFault::Status(502),
        TelegramFault::Garbage,
        TelegramFault::Error(500, "Internal Server Error".to_owned()),
    ] {
        telegram.fault("sendMessage", fault.clone(), 1);
        let result = send().await;
        assert!(
            matches!(result, Err(SendError::Unclear(_))),
            "{fault:?}: {result:?}"
        );
        assert!(!format!("{result:?}").contains(TOKEN));
    }
    assert!(telegram.shown(ADA).is_empty());
    // It landed, and we cannot know.
    telegram.fault("sendMessage", TelegramFault::CutAfter, 1);
    assert!(matches!(send().await, Err(SendError::Unclear(_))));
    assert_eq!(telegram.texts(ADA), ["hello"]);
    telegram.block(ADA, true);
    assert!(matches!(send().await, Err(SendError::Refused(_))));
    let nowhere = sender.send(&outgoing(4, "x")).await.unwrap_err();
    assert_eq!(
        nowhere.to_string(),
        "refused: Bad Request: chat not found (400)"
    );
    assert!(matches!(
        sender
            .send(&OutgoingMessage {
                target: Target {
                    chat_id: "no".to_owned(),
                    ..target(1)
                },
                ..message.clone()
            })
            .await,
        Err(SendError::Refused(_))
    ));
}

#[tokio::test]
async fn an_answer_that_never_comes_is_unclear() {
    let telegram = telegram_with_people();
    let _time = FixedClock::new();
    let sender = sender(&telegram);
    telegram.fault("sendMessage", TelegramFault::HangAfter, 1);
    let message = outgoing(ADA, "hello");
    let sending = sender.send(&message);
    let waiting = async {
        telegram
            .wait_for(|telegram| telegram.shown(ADA).len() == 1)
            .await;
        tokio::time::advance(Duration::from_secs(31)).await;
    };
    let (result, ()) = tokio::join!(sending, waiting);
    assert_eq!(
        result.unwrap_err(),
        SendError::Unclear("sendMessage: no answer within 30 s".to_owned())
    );
    // The next one has connections of its own.
    sender.send(&outgoing(ADA, "next")).await.unwrap();
}

#[tokio::test]
async fn markup_is_what_telegram_reads_or_is_refused_as_such() {
    let telegram = telegram_with_people();
    let sender = sender(&telegram);
    let limits: &Capabilities = sender.capabilities();
    let texts = [
        "# Title\n\nSome **bold**, *italic*, ~~old~~ `code` and [a link](https://x.test/a_(b)).",
        "1. one\n2. two - three\n   - nested! (yes) #tag +1 = {2} | 3 > 2",
        "```rust\nfn main() { println!(\"`{}`\\n\"); }\n```\nafter_that *a*b*",
        "> quoted *text*\n> more\n\n| a | b |\n|---|---|\n| 1.5 | x_y |",
        "***both*** _a_**b**_c_ __init__ `` a`b `` \\* not bold",
        "- [ ] open\n- [x] done\n\n---\n\nhttps://example.org/a-b_c?d=e",
        "**a *b* c** <b>html</b> &amp; ![pic](http://x.test/p.png)",
    ];
    let mut count = 0;
    let long = texts.join("\n\n").repeat(12);
    for text in texts.iter().copied().chain([long.as_str()]) {
        for piece in pieces(text, limits) {
            let mut message = outgoing(ADA, &render(limits.markup, &piece));
            message.markup = limits.markup;
            if let Err(error) = sender.send(&message).await {
                panic!("{error}\n{}", message.text);
            }
            count += 1;
        }
    }
    assert!(count > texts.len() + 1, "{count}");
    let broken = OutgoingMessage {
        markup: limits.markup,
        ..outgoing(ADA, "1. not escaped")
    };
    assert!(matches!(
        sender.send(&broken).await,
        Err(SendError::Markup(_))
    ));
}

#[tokio::test]
async fn what_a_message_hangs_on_may_be_gone() {
    let telegram = telegram_with_people();
    telegram.forum(-100_900, "Forum", &[(4, "Plans")]);
    let sender = sender(&telegram);
    let asked = telegram.say(PersonMessage::text(ADA, "a question"));
    let mut answer = outgoing(ADA, "an answer");
    answer.reply_to = Some(asked.to_string());
    sender.send(&answer).await.unwrap();
    assert_eq!(telegram.shown(ADA)[0].reply_to, Some(asked));
    telegram.forget(ADA, asked);
    sender.send(&answer).await.unwrap();
    assert_eq!(telegram.shown(ADA)[1].reply_to, None);
    let topic = |id: &str| OutgoingMessage {
        target: Target {
            thread_id: Some(id.to_owned()),
            ..target(-100_900)
        },
        ..outgoing(0, "in a topic")
    };
    sender.send(&topic("4")).await.unwrap();
    assert_eq!(telegram.shown(-100_900)[0].thread, Some(4));
    // The general topic has no number in calls.
    sender.send(&topic("1")).await.unwrap();
    let gone = topic("5");
    let Err(SendError::NotSent { retry_after, .. }) = sender.send(&gone).await else {
        panic!("it did not arrive");
    };
    assert_eq!(retry_after, Some(Duration::ZERO));
    sender.send(&gone).await.unwrap();
    assert_eq!(telegram.shown(-100_900).len(), 3);
    // A group becomes a supergroup: the next attempt goes there.
    telegram.migrate(GROUP, -100_500);
    let message = outgoing(GROUP, "for the group");
    assert!(matches!(
        sender.send(&message).await,
        Err(SendError::NotSent { .. })
    ));
    sender.send(&message).await.unwrap();
    assert!(
        telegram
            .texts(-100_500)
            .contains(&"for the group".to_owned())
    );
}

#[tokio::test]
async fn messages_are_edited_and_deleted() {
    let telegram = telegram_with_people();
    let sender = sender(&telegram);
    let id = sender.send(&outgoing(ADA, "half")).await.unwrap().unwrap();
    sender.edit(&id, &outgoing(ADA, "whole")).await.unwrap();
    // The same again changes nothing, which is what was wanted.
    sender.edit(&id, &outgoing(ADA, "whole")).await.unwrap();
    assert_eq!(
        (telegram.texts(ADA), telegram.shown(ADA)[0].edits),
        (vec!["whole".to_owned()], 1)
    );
    sender.delete(&target(ADA), &id).await.unwrap();
    sender.delete(&target(ADA), &id).await.unwrap();
    assert!(telegram.shown(ADA).is_empty());
    let error = sender.edit(&id, &outgoing(ADA, "x")).await.unwrap_err();
    assert!(matches!(error, SendError::Refused(_)), "{error}");
}

#[tokio::test]
async fn files_go_out() {
    let telegram = telegram_with_people();
    let sender = sender(&telegram);
    let dir = tempfile::tempdir().unwrap();
    let file = |name: &str, kind: MediaKind, content: &[u8]| {
        let path = dir.path().join(name);
        std::fs::write(&path, content).unwrap();
        OutgoingMessage {
            media: Some(OutMedia { path, kind }),
            ..outgoing(ADA, "")
        }
    };
    let mut photo = file("a \"b\".png", MediaKind::Image, PNG);
    photo.text = render(Markup::TelegramV2, "A **picture**.");
    photo.markup = Markup::TelegramV2;
    sender.send(&photo).await.unwrap();
    sender
        .send(&file("v.ogg", MediaKind::Voice, b"OggS"))
        .await
        .unwrap();
    sender
        .send(&file("n.txt", MediaKind::Document, b"words"))
        .await
        .unwrap();
    // A photo that is none goes as a document, at the next attempt.
    let mut broken = file("b.png", MediaKind::Image, b"no picture");
    broken.key = "another".to_owned();
    assert!(matches!(
        sender.send(&broken).await,
        Err(SendError::NotSent { .. })
    ));
    sender.send(&broken).await.unwrap();
    let shown = telegram.shown(ADA);
    let kinds: Vec<&str> = shown
        .iter()
        .map(|one| one.media.as_ref().unwrap().0.as_str())
        .collect();
    assert_eq!(kinds, ["photo", "voice", "document", "document"]);
    assert_eq!(shown[0].text, "A picture.");
    assert_eq!(shown[0].media.as_ref().unwrap().1.bytes, PNG);
    assert_eq!(shown[2].media.as_ref().unwrap().1.name, "n.txt");
    for (message, why) in [
        (file("empty.txt", MediaKind::Document, b""), "empty"),
        (
            OutgoingMessage {
                text: "x".repeat(1025),
                ..file("long.txt", MediaKind::Document, b"x")
            },
            "1024",
        ),
        (
            OutgoingMessage {
                media: Some(OutMedia {
                    path: dir.path().join("missing"),
                    kind: MediaKind::Document,
                }),
                ..outgoing(ADA, "")
            },
            "missing",
        ),
    ] {
        let Err(SendError::Refused(error)) = sender.send(&message).await else {
            panic!("{why}");
        };
        assert!(error.contains(why), "{error}");
    }
    telegram.fault("sendDocument", TelegramFault::CutAfter, 1);
    let cut = sender.send(&file("c.txt", MediaKind::Document, b"c")).await;
    assert!(matches!(cut, Err(SendError::Unclear(_))));
}

#[tokio::test]
async fn signs_of_life() {
    let telegram = telegram_with_people();
    telegram.forum(-100_900, "Forum", &[]);
    let sender = sender(&telegram);
    let id = telegram.say(PersonMessage::text(ADA, "work")).to_string();
    sender.react(&target(ADA), &id, Some("👀")).await;
    assert_eq!(telegram.reactions(ADA, id.parse().unwrap()), ["👀"]);
    sender.react(&target(ADA), &id, None).await;
    assert!(telegram.reactions(ADA, id.parse().unwrap()).is_empty());
    let general = Target {
        thread_id: Some("1".to_owned()),
        ..target(-100_900)
    };
    sender.typing(&general).await;
    assert_eq!(
        telegram.actions(),
        [(-100_900, Some(1), "typing".to_owned())]
    );
    // Where it is refused it rests.
    telegram.fault(
        "sendChatAction",
        TelegramFault::TooMany { retry_after: 600 },
        1,
    );
    sender.typing(&target(ADA)).await;
    sender.typing(&target(ADA)).await;
    assert_eq!(telegram.calls("sendChatAction"), 2);
    sender.draft(&target(ADA), 0, "I **think").await.unwrap();
    sender
        .draft(&target(ADA), 0, &format!("{} end.", "x".repeat(5000)))
        .await
        .unwrap();
    let drafts = telegram.drafts();
    assert_eq!(drafts[0], (ADA, 1, "I **think".to_owned()));
    assert!(drafts[1].2.ends_with(" end."), "the newest words are seen");
    assert!(sender.draft(&target(GROUP), 1, "x").await.is_err());
    let offer = Offer {
        name: "reload-mcp".to_owned(),
        about: "Connects to MCP servers anew".to_owned(),
        args: None,
    };
    sender.offer(&[offer]).await.unwrap();
    for scope in ["default", "all_private_chats", "all_group_chats"] {
        let commands = telegram.commands(scope).unwrap();
        assert_eq!(commands[0]["command"], "reload_mcp");
    }
}

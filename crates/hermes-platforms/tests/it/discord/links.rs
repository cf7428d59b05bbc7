//! Connections that break, and what is not lost by that.

use std::time::Duration;

use hermes_platforms::PlatformState;
use hermes_testkit::discord::SocketRecord;
use pretty_assertions::assert_eq;

use super::proxy::Proxy;
use super::{DiscordHarness, soon};

fn resumes(scene: &DiscordHarness) -> Vec<u64> {
    let spoken = scene.discord.spoken();
    spoken
        .iter()
        .filter_map(|one| match one {
            SocketRecord::Resume { seq, .. } => Some(*seq),
            _ => None,
        })
        .collect()
}

fn identifies(scene: &DiscordHarness) -> usize {
    let spoken = scene.discord.spoken();
    let identifies = spoken
        .iter()
        .filter(|one| matches!(one, SocketRecord::Identify(_)));
    identifies.count()
}

#[tokio::test]
async fn a_session_is_resumed_from_what_is_stored() {
    let scene = DiscordHarness::new();
    let direct = scene.discord.direct(scene.ann);
    let mut bot = scene.up().await;
    scene.discord.say(direct, scene.ann, "one");
    bot.next().await;
    scene.discord.say(direct, scene.ann, "two");
    // It came, and is not stored when the socket breaks.
    let held = bot.arrival().await;
    scene.discord.cut_sockets();
    scene.discord.say(direct, scene.ann, "three");
    soon(scene.discord.until(|_| resumes(&scene).len() == 1)).await;
    // READY, GUILD_CREATE and "one" are safe; "two" is not.
    assert_eq!(resumes(&scene), [3]);
    held.stored.send(true).unwrap();
    // Again, because Discord was not told of it; the inbox knows it by its id.
    assert_eq!(bot.next().await.text, "two");
    assert_eq!(bot.next().await.text, "three");
    assert_eq!(identifies(&scene), 1);
    bot.stop().await.unwrap();
}

#[tokio::test]
async fn what_cannot_be_stored_comes_again() {
    let scene = DiscordHarness::new();
    let direct = scene.discord.direct(scene.ann);
    let mut bot = scene.up().await;
    scene.discord.say(direct, scene.ann, "keep me");
    for _ in 0..3 {
        // The store fails: nobody says that it is stored.
        drop(bot.arrival().await);
    }
    assert_eq!(bot.next().await.text, "keep me");
    bot.stop().await.unwrap();
}

#[tokio::test]
async fn opcode_seven_is_obeyed() {
    let scene = DiscordHarness::new();
    let direct = scene.discord.direct(scene.ann);
    let mut bot = scene.up().await;
    scene.discord.ask_to_reconnect();
    soon(scene.discord.until(|_| resumes(&scene).len() == 1)).await;
    scene.discord.say(direct, scene.ann, "still there?");
    assert_eq!(bot.next().await.text, "still there?");
    scene.discord.invalidate(true);
    soon(scene.discord.until(|_| resumes(&scene).len() == 2)).await;
    assert_eq!(identifies(&scene), 1);
    bot.stop().await.unwrap();
}

#[tokio::test]
async fn a_socket_that_is_open_and_dead_is_noticed() {
    let scene = DiscordHarness::new();
    scene.discord.heartbeat(Duration::from_millis(100));
    let direct = scene.discord.direct(scene.ann);
    let mut bot = scene.up().await;
    scene.discord.zombie();
    scene.discord.say(direct, scene.ann, "anybody?");
    assert_eq!(bot.next().await.text, "anybody?");
    assert_eq!(resumes(&scene).len(), 1);
    let condition = soon(bot.until(PlatformState::Connected)).await;
    assert!(condition.received_at.is_some());
    bot.stop().await.unwrap();
}

#[tokio::test]
async fn an_outage_is_waited_out() {
    let scene = DiscordHarness::new();
    let direct = scene.discord.direct(scene.ann);
    let mut bot = scene.up().await;
    scene.discord.offline(true);
    let condition = soon(bot.until(PlatformState::Retrying)).await;
    assert!(condition.error.is_some());
    scene.discord.say(direct, scene.ann, "meanwhile");
    scene.discord.offline(false);
    assert_eq!(bot.next().await.text, "meanwhile");
    bot.stop().await.unwrap();
}

#[tokio::test]
async fn a_proxy_carries_the_socket_too() {
    let proxy = Proxy::start().await;
    let mut scene = DiscordHarness::new();
    // Names that only the proxy can resolve.
    scene.discord.call_host("gateway.discord.invalid");
    scene.extra = serde_json::json!({
        "proxy": proxy.url(),
        "base_url": format!("http://api.discord.invalid:{}/api/v10", scene.discord.port()),
    });
    let direct = scene.discord.direct(scene.ann);
    let mut bot = scene.up().await;
    scene.discord.say(direct, scene.ann, "through the wall");
    assert_eq!(bot.next().await.text, "through the wall");
    bot.stop().await.unwrap();
    let asked = proxy.asked();
    assert!(
        asked.contains(&"api.discord.invalid".to_owned()),
        "{asked:?}"
    );
    assert!(
        asked.contains(&"gateway.discord.invalid".to_owned()),
        "{asked:?}"
    );
}

#[tokio::test]
async fn a_wrong_token_is_hopeless() {
    let scene = DiscordHarness::new();
    scene.discord.revoke_token();
    let why = scene.start().ended().await.unwrap_err().to_string();
    assert!(why.contains("DISCORD_BOT_TOKEN"), "{why}");

    let scene = DiscordHarness::new();
    let bot = scene.up().await;
    scene.discord.close_sockets(4004);
    let why = bot.ended().await.unwrap_err().to_string();
    assert!(why.contains("DISCORD_BOT_TOKEN"), "{why}");
}

#[tokio::test]
async fn a_missing_intent_is_named() {
    let scene = DiscordHarness::new();
    scene.discord.disallow(1 << 15);
    let why = scene.start().ended().await.unwrap_err().to_string();
    assert!(why.contains("Message Content Intent"), "{why}");
}

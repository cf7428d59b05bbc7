//! The whole way, with the real store between: said once, stored once, answered once, whatever
//! breaks.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use hermes_core::clock::{SystemClock, SystemRng};
use hermes_gateway::SessionSharing;
use hermes_gateway::process::this_process;
use hermes_gateway::{MessageInbox, Outbox, OutboxPolicy};
use hermes_store::Store;
use hermes_store::delivery::{Delivery, Final, NewChunk, NewReply, Processes};
use hermes_testkit::discord::{DiscordFault, DiscordFaultKind};
use pretty_assertions::assert_eq;
use tokio::sync::Notify;

use super::{DiscordHarness, RunningAdapter, soon, target};

const MESSAGES: usize = 40;

struct NoProcesses;

impl Processes for NoProcesses {
    fn alive(&self, _: u32, _: Option<i64>) -> bool {
        false
    }
}

/// One gateway process that answers everything with its own words.
struct GatewayRun {
    bot: RunningAdapter,
    delivery: Delivery,
    store: Store,
}

impl GatewayRun {
    async fn begin(scene: &DiscordHarness) -> Self {
        let path = scene.home.path().join("state.db");
        let store = Store::open(&path, Arc::new(SystemClock)).unwrap();
        let (delivery, _) = store
            .own_delivery(
                this_process(),
                Duration::from_mins(1),
                Arc::new(NoProcesses),
            )
            .await
            .unwrap();
        Self {
            bot: scene.up().await,
            delivery,
            store,
        }
    }

    /// Works until so much was answered in all.
    async fn work(&mut self, scene: &DiscordHarness, channel: u64, answers: usize) {
        let inbox = MessageInbox::new(self.delivery.clone(), SessionSharing::default());
        let policy = OutboxPolicy {
            pause: Duration::from_millis(10),
            longest_pause: Duration::from_millis(50),
            deadline: Duration::from_secs(5),
            ..OutboxPolicy::default()
        };
        let (clock, rng) = (Arc::new(SystemClock), Arc::new(SystemRng));
        let outbox = Outbox::new(self.delivery.clone(), clock, rng, policy);
        outbox.connect("discord", "", Arc::clone(&self.bot.outbound));
        let (wake, arrived) = (Notify::new(), Notify::new());
        let cancel = tokio_util::sync::CancellationToken::new();
        let arrivals = std::mem::replace(&mut self.bot.arrivals, tokio::sync::mpsc::channel(1).1);
        tokio::select! {
            () = inbox.run(arrivals, cancel.clone(), |_| arrived.notify_one()) => {}
            sent = outbox.run(&wake, &cancel) => sent.unwrap(),
            () = answer(&self.delivery, channel, &arrived, &wake) => {}
            () = soon(scene.discord.until(|one| one.said(channel).len() >= answers)) => {}
        }
    }

    /// As by `kill -9`: nothing is put in order.
    async fn die(self) {
        self.bot.task.abort();
        let _ = self.bot.task.await;
        drop(self.delivery);
        self.store.close().await.unwrap();
    }
}

async fn answer(delivery: &Delivery, channel: u64, arrived: &Notify, wake: &Notify) {
    loop {
        for waiting in delivery.waiting(100).await.unwrap() {
            let turn = format!("turn-{}-{}", waiting.id, waiting.claims + 1);
            delivery.claim(&[waiting.id], &turn).await.unwrap();
            let text = waiting.message.payload["text"].as_str().unwrap().to_owned();
            let reply = NewReply {
                session_key: waiting.message.session_key.clone(),
                target: target(channel),
                chunks: vec![NewChunk {
                    text: format!("re {text}"),
                    extra: None,
                }],
            };
            let end = Final {
                turn,
                answers: vec![waiting.id],
                replies: vec![reply],
                ..Final::default()
            };
            delivery.finish(end).await.unwrap();
        }
        wake.notify_one();
        arrived.notified().await;
    }
}

#[tokio::test]
async fn everything_is_answered_once() {
    let scene = DiscordHarness::new();
    let discord = &scene.discord;
    let direct = discord.direct(scene.ann);
    discord.say(direct, scene.ann, "0");
    let mut life = GatewayRun::begin(&scene).await;
    // Messages before the first process are ignored; this one is read again.
    let first = discord.say(direct, scene.ann, "first");
    discord.announce_again(first);
    life.work(&scene, direct, 1).await;
    for number in 1..MESSAGES {
        let message = discord.say(direct, scene.ann, &number.to_string());
        match number % 8 {
            1 => discord.announce_again(message),
            2 => discord.cut_sockets(),
            3 => discord.fail(lost(DiscordFaultKind::AnswerLost)),
            4 => discord.fail(lost(DiscordFaultKind::Lost)),
            5 => discord.fail(lost(DiscordFaultKind::Limited {
                seconds: 0.02,
                global: false,
            })),
            6 => discord.invalidate(false),
            7 => {
                life.die().await;
                life = GatewayRun::begin(&scene).await;
            }
            _ => {}
        }
        if number % 4 == 0 {
            life.die().await;
            life = GatewayRun::begin(&scene).await;
            life.work(&scene, direct, number - 2).await;
        }
    }
    life.die().await;
    let mut life = GatewayRun::begin(&scene).await;
    life.work(&scene, direct, MESSAGES).await;
    life.die().await;

    let mut seen: BTreeMap<String, usize> = BTreeMap::new();
    for text in discord.said(direct) {
        *seen.entry(text).or_default() += 1;
    }
    let mut wanted: BTreeMap<String, usize> = (1..MESSAGES)
        .map(|number| (format!("re {number}"), 1))
        .collect();
    wanted.insert("re first".to_owned(), 1);
    assert_eq!(seen, wanted);
}

fn lost(kind: DiscordFaultKind) -> DiscordFault {
    DiscordFault {
        method: "POST",
        path: "/messages",
        kind,
        times: 1,
    }
}

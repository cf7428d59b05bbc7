//! What the outbox does with platforms that refuse, hang and leave it in the dark.

use std::collections::VecDeque;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use hermes_core::store::StoreError;
use hermes_gateway::{ChunkExtras, DUPLICATE_MARK, Outbox, OutboxPolicy};
use hermes_platforms::{
    Capabilities, DeliveryLookup, MediaKind, OutMedia, OutboundAdapter, OutgoingMessage, Recourse,
    SendError, SendFuture,
};
use hermes_store::Store;
use hermes_store::delivery::{Delivery, Final, NewChunk, NewReply, Owner, Processes, Target};
use hermes_testkit::clock::{FixedRng, ManualClock};
use pretty_assertions::assert_eq;
use tempfile::TempDir;
use tokio::sync::{Notify, watch};
use tokio_util::sync::CancellationToken;

use crate::harness::{DeliveryHarness, FakePlatform, Fuse};

struct NoProcesses;

impl Processes for NoProcesses {
    fn alive(&self, _: u32, _: Option<i64>) -> bool {
        false
    }
}

/// What a platform does with the next call.
#[derive(Clone, Debug)]
enum OutboxAct {
    Refuse,
    Unclear,
    /// It is done after this long.
    Takes(Duration),
}

/// A platform that does as it is told, and what it was asked to do: `send text`, `edit id text`.
/// Whatever goes to the chat `stuck` hangs for ever.
struct OutboxPlatform {
    capabilities: Capabilities,
    acts: Mutex<VecDeque<OutboxAct>>,
    calls: watch::Sender<Vec<String>>,
}

impl OutboxPlatform {
    fn new(recourse: Recourse, acts: &[OutboxAct]) -> Arc<Self> {
        let like = FakePlatform::new(Arc::new(DeliveryHarness::default()), Fuse::new(1), recourse);
        Arc::new(Self {
            capabilities: like.capabilities,
            acts: Mutex::new(acts.to_vec().into()),
            calls: watch::Sender::new(Vec::new()),
        })
    }

    fn calls(&self) -> Vec<String> {
        self.calls.borrow().clone()
    }

    async fn called(&self, what: &str) {
        let mut calls = self.calls.subscribe();
        let heard = calls.wait_for(|calls| calls.iter().any(|call| call == what));
        tokio::time::timeout(Duration::from_secs(20), heard)
            .await
            .unwrap_or_else(|_| panic!("no {what:?} in {:?}", self.calls()))
            .unwrap();
    }

    async fn act(&self, message: &OutgoingMessage, call: String) -> Result<(), SendError> {
        self.calls.send_modify(|calls| calls.push(call));
        if message.target.chat_id == "stuck" {
            std::future::pending::<()>().await;
        }
        let act = self.acts.lock().unwrap().pop_front();
        match act {
            None => Ok(()),
            Some(OutboxAct::Refuse) => Err(SendError::Refused("no".to_owned())),
            Some(OutboxAct::Unclear) => Err(SendError::Unclear("reset".to_owned())),
            Some(OutboxAct::Takes(time)) => {
                tokio::time::sleep(time).await;
                Ok(())
            }
        }
    }
}

impl OutboundAdapter for OutboxPlatform {
    fn capabilities(&self) -> &Capabilities {
        &self.capabilities
    }

    fn send<'a>(&'a self, message: &'a OutgoingMessage) -> SendFuture<'a, Option<String>> {
        Box::pin(async move {
            let done = self.act(message, format!("send {}", message.text)).await;
            done.map(|()| None)
        })
    }

    fn edit<'a>(&'a self, id: &'a str, message: &'a OutgoingMessage) -> SendFuture<'a, ()> {
        Box::pin(self.act(message, format!("edit {id} {}", message.text)))
    }

    fn look_up<'a>(&'a self, _: &'a OutgoingMessage) -> SendFuture<'a, DeliveryLookup> {
        Box::pin(std::future::pending())
    }
}

struct OutboxHarness {
    _dir: TempDir,
    clock: Arc<ManualClock>,
    store: Store,
    delivery: Delivery,
    outbox: Arc<Outbox>,
}

impl OutboxHarness {
    async fn new(policy: OutboxPolicy) -> Self {
        let dir = TempDir::new().unwrap();
        let clock = Arc::new(ManualClock::default());
        let store = Store::open(dir.path().join("state.db"), clock.clone()).unwrap();
        let delivery = own(&store, 1).await;
        let rng = Arc::new(FixedRng(0));
        let outbox = Arc::new(Outbox::new(delivery.clone(), clock.clone(), rng, policy));
        Self {
            _dir: dir,
            clock,
            store,
            delivery,
            outbox,
        }
    }

    /// One account named like its platform, and what it shows.
    fn with(&self, platform: &str, desk: &Arc<OutboxPlatform>) {
        let outbound: Arc<dyn OutboundAdapter> = desk.clone();
        self.outbox.connect(platform, "", outbound);
    }

    async fn owe(&self, platform: &str, chat: &str, chunks: Vec<(&str, ChunkExtras)>) {
        let end = Final {
            turn: format!("turn-{platform}-{chat}"),
            replies: vec![NewReply {
                session_key: format!("agent:main:{platform}:dm:{chat}"),
                target: Target {
                    platform: platform.to_owned(),
                    account: String::new(),
                    chat_id: chat.to_owned(),
                    thread_id: None,
                },
                chunks: (chunks.into_iter())
                    .map(|(text, extra)| NewChunk {
                        text: text.to_owned(),
                        extra: (extra != ChunkExtras::default())
                            .then(|| serde_json::to_value(extra).unwrap()),
                    })
                    .collect(),
            }],
            ..Final::default()
        };
        self.delivery.finish(end).await.unwrap();
    }

    /// Sends all that is due now, and returns in how many seconds more is.
    async fn pump(&self) -> Option<f64> {
        for _ in 0..100 {
            let round = self.outbox.pump().await.unwrap();
            if round.due == 0 {
                let now = hermes_core::clock::Clock::epoch_seconds(self.clock.as_ref());
                return round.next_at.map(|at| at - now);
            }
        }
        panic!("it does not come to rest");
    }
}

async fn own(store: &Store, pid: u32) -> Delivery {
    let owner = Owner {
        pid,
        started_at: None,
        instance: pid.to_string(),
    };
    let lease = Duration::from_mins(1);
    let owned = store.own_delivery(owner, lease, Arc::new(NoProcesses));
    owned.await.unwrap().0
}

fn completes(preview: &str) -> ChunkExtras {
    ChunkExtras {
        edits: Some(preview.to_owned()),
        ..ChunkExtras::default()
    }
}

fn file(name: &str) -> ChunkExtras {
    ChunkExtras {
        media: Some(OutMedia {
            path: PathBuf::from("/srv/secret").join(name),
            kind: MediaKind::Document,
        }),
        ..ChunkExtras::default()
    }
}

#[tokio::test]
async fn an_answer_whose_preview_is_gone_is_a_message_of_its_own() {
    let scene = OutboxHarness::new(OutboxPolicy::default()).await;
    let desk = OutboxPlatform::new(Recourse::Mark, &[OutboxAct::Refuse]);
    scene.with("fake", &desk);
    scene
        .owe("fake", "c", vec![("hello", completes("p1"))])
        .await;
    assert_eq!(scene.pump().await, None);
    assert_eq!(desk.calls(), ["edit p1 hello", "send hello"]);
}

#[tokio::test]
async fn one_that_may_have_been_seen_says_so() {
    let scene = OutboxHarness::new(OutboxPolicy::default()).await;
    // The answer to the first is lost: perhaps it was seen before somebody deleted it.
    let desk = OutboxPlatform::new(
        Recourse::Mark,
        &[OutboxAct::Unclear, OutboxAct::Refuse, OutboxAct::Unclear],
    );
    scene.with("fake", &desk);
    scene
        .owe("fake", "c", vec![("hello", completes("p1"))])
        .await;
    while scene.pump().await.is_some() {
        scene.clock.advance(Duration::from_secs(1));
    }
    let marked = format!("send {DUPLICATE_MARK}hello");
    assert_eq!(
        desk.calls(),
        ["edit p1 hello", "edit p1 hello", &marked, "edit p1 hello"],
        "an edit that works at last is no copy"
    );
}

#[tokio::test]
async fn copies_that_may_be_copies_come_ever_more_slowly_and_end_with_a_word() {
    let scene = OutboxHarness::new(OutboxPolicy::default()).await;
    let desk = OutboxPlatform::new(Recourse::Mark, &vec![OutboxAct::Unclear; 100]);
    scene.with("fake", &desk);
    scene
        .owe("fake", "c", vec![("hello", ChunkExtras::default())])
        .await;
    let mut pauses = Vec::new();
    while let Some(pause) = scene.pump().await {
        if desk.calls().last().is_some_and(|call| call.contains("⚠️")) {
            break;
        }
        pauses.push(pause.round());
        scene.clock.advance(Duration::from_secs_f64(pause + 0.01));
    }
    // With the least jitter: half.
    assert_eq!(pauses, [1.0, 4.0, 16.0, 64.0, 150.0, 150.0, 150.0, 150.0]);
    let calls = desk.calls();
    assert_eq!(calls.len(), pauses.len() + 1, "{calls:?}");
    assert!(
        calls[8].starts_with("send ⚠️ A part of my answer may not"),
        "{calls:?}"
    );
}

#[tokio::test]
async fn many_failures_that_are_clear_are_no_reason_to_give_up() {
    let scene = OutboxHarness::new(OutboxPolicy {
        patience: Duration::ZERO,
        ..OutboxPolicy::default()
    })
    .await;
    let world = Arc::new(DeliveryHarness::default());
    let sky = [
        vec![crate::harness::NetworkFault::Offline; 20],
        vec![crate::harness::NetworkFault::RequestLost],
    ];
    *world.weather.lock().unwrap() = sky.concat().into();
    let fuse = Fuse::new(1_000_000);
    let platform = FakePlatform::new(world.clone(), fuse, Recourse::Mark);
    scene.outbox.connect("fake", "", Arc::new(platform));
    scene
        .owe("fake", "c", vec![("hello", ChunkExtras::default())])
        .await;
    while scene.pump().await.is_some() {
        scene.clock.advance(Duration::from_mins(5));
    }
    let seen = world.seen.lock().unwrap();
    let texts: Vec<&str> = seen.iter().map(|one| one.text.as_str()).collect();
    assert_eq!(texts, [format!("{DUPLICATE_MARK}hello")]);
}

#[tokio::test]
async fn a_refused_file_is_told_once_and_without_its_place() {
    let scene = OutboxHarness::new(OutboxPolicy::default()).await;
    let desk = OutboxPlatform::new(Recourse::Mark, &[OutboxAct::Refuse, OutboxAct::Refuse]);
    scene.with("fake", &desk);
    let chunks = vec![
        ("", file("a.pdf")),
        ("", file("b.pdf")),
        ("end", ChunkExtras::default()),
    ];
    scene.owe("fake", "c", chunks).await;
    assert_eq!(scene.pump().await, None);
    let told =
        "send ⚠️ The file a.pdf could not be delivered here. The log of the gateway says why.";
    assert_eq!(desk.calls(), ["send ", "send ", "send end", told]);
}

#[tokio::test]
async fn a_refused_word_about_a_refusal_is_the_last() {
    let scene = OutboxHarness::new(OutboxPolicy::default()).await;
    let desk = OutboxPlatform::new(Recourse::Mark, &vec![OutboxAct::Refuse; 10]);
    scene.with("fake", &desk);
    scene
        .owe("fake", "c", vec![("hello", ChunkExtras::default())])
        .await;
    assert_eq!(scene.pump().await, None);
    assert_eq!(desk.calls().len(), 2, "{:?}", desk.calls());
}

#[tokio::test(start_paused = true)]
async fn an_upload_may_take_as_long_as_its_platform_lets_it() {
    let scene = OutboxHarness::new(OutboxPolicy::default()).await;
    let upload = Duration::from_mins(5) + Duration::from_secs(30);
    let desk = OutboxPlatform::new(
        Recourse::Mark,
        &[OutboxAct::Takes(upload), OutboxAct::Takes(upload)],
    );
    scene.with("fake", &desk);
    let chunks = vec![("", file("a.pdf")), ("hello", ChunkExtras::default())];
    scene.owe("fake", "c", chunks).await;
    scene.outbox.pump().await.unwrap();
    scene.outbox.pump().await.unwrap();
    assert_eq!(
        desk.calls(),
        ["send ", "send hello"],
        "the file was sent once"
    );
    assert!(scene.pump().await.is_some(), "a text has no such time");
}

#[tokio::test(start_paused = true)]
async fn a_platform_that_does_not_say_what_it_has_holds_nothing_up() {
    let scene = OutboxHarness::new(OutboxPolicy::default()).await;
    let grace = Duration::from_secs(5);
    let desk = OutboxPlatform::new(Recourse::History { grace }, &[OutboxAct::Unclear]);
    scene.with("fake", &desk);
    scene
        .owe("fake", "c", vec![("hello", ChunkExtras::default())])
        .await;
    // The lookup never comes back. It is asked for a while, and then the text is sent again.
    while let Some(pause) = scene.pump().await {
        scene.clock.advance(Duration::from_secs_f64(pause + 0.01));
    }
    assert_eq!(
        desk.calls(),
        [
            "send hello".to_owned(),
            format!("send {DUPLICATE_MARK}hello")
        ]
    );
}

/// Whoever waits for ever keeps the others waiting for ever, where one waits for the other.
fn for_ever() -> OutboxPolicy {
    OutboxPolicy {
        deadline: Duration::from_hours(24),
        parallel: 3,
        ..OutboxPolicy::default()
    }
}

#[tokio::test]
async fn one_that_hangs_holds_up_no_other() {
    let scene = OutboxHarness::new(for_ever()).await;
    let (hung, fine) = (
        OutboxPlatform::new(Recourse::Mark, &[]),
        OutboxPlatform::new(Recourse::Mark, &[]),
    );
    scene.with("hung", &hung);
    scene.with("fine", &fine);
    let texts =
        |names: [&'static str; 3]| names.map(|name| (name, ChunkExtras::default())).to_vec();
    scene.owe("hung", "stuck", texts(["s1", "s2", "s3"])).await;
    scene.owe("fine", "stuck", texts(["x1", "x2", "x3"])).await;
    scene.owe("fine", "one", texts(["a1", "a2", "a3"])).await;
    let (wake, cancel) = (Arc::new(Notify::new()), CancellationToken::new());
    let running = {
        let (outbox, wake, cancel) = (scene.outbox.clone(), wake.clone(), cancel.clone());
        hermes_core::task::spawn("outbox", async move { outbox.run(&wake, &cancel).await })
    };
    fine.called("send a3").await;
    scene.owe("fine", "two", texts(["b1", "b2", "b3"])).await;
    wake.notify_one();
    fine.called("send b3").await;
    let order: Vec<String> = fine
        .calls()
        .into_iter()
        .filter(|call| !call.contains('x'))
        .collect();
    let expected = ["a1", "a2", "a3", "b1", "b2", "b3"].map(|text| format!("send {text}"));
    assert_eq!(order, expected);
    assert_eq!(hung.calls(), ["send s1"], "in order, and once");

    // And who is not the owner any more ends, whatever hangs.
    own(&scene.store, 2).await;
    scene.store_for_another().await;
    wake.notify_one();
    let ended = tokio::time::timeout(Duration::from_secs(20), running).await;
    let error = ended.unwrap().unwrap().unwrap().unwrap_err();
    assert!(matches!(error, StoreError::NotOwner { .. }), "{error}");
}

impl OutboxHarness {
    /// The new owner owes something, which the old one finds.
    async fn store_for_another(&self) {
        let other = Self {
            _dir: TempDir::new().unwrap(),
            clock: self.clock.clone(),
            store: self.store.clone(),
            delivery: own(&self.store, 2).await,
            outbox: self.outbox.clone(),
        };
        other
            .owe("fine", "three", vec![("c1", ChunkExtras::default())])
            .await;
    }
}

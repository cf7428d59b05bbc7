//! Processes that end at every step, and what people saw in the end.

use std::collections::VecDeque;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use hermes_core::store::StoreError;
use hermes_gateway::SessionSharing;
use hermes_gateway::{DUPLICATE_MARK, MessageInbox, Outbox, OutboxPolicy, keep_ownership};
use hermes_platforms::{Arrival, IncomingMessage, MessageSource, Recourse};
use hermes_store::Store;
use hermes_store::delivery::{
    Delivery, Final, NewChunk, NewReply, Owner, Processes, Target, WaitingMessage,
};
use hermes_testkit::clock::{FixedRng, ManualClock};
use proptest::prelude::*;
use tempfile::TempDir;
use tokio::sync::{Notify, mpsc, oneshot};
use tokio_util::sync::CancellationToken;

use crate::harness::{DeliveryHarness, FakePlatform, Fuse, GRACE, NetworkFault};

const CHUNKS: usize = 2;

struct NoProcesses;

impl Processes for NoProcesses {
    fn alive(&self, _: u32, _: Option<i64>) -> bool {
        false
    }
}

/// The far side of the platform: messages that people sent and we have not acknowledged.
struct FarSide {
    messages: Vec<(String, String)>,
    acknowledged: Mutex<usize>,
}

struct CrashHarness {
    dir: TempDir,
    clock: Arc<ManualClock>,
    world: Arc<DeliveryHarness>,
    far: FarSide,
    recourse: Recourse,
    parallel: usize,
    lives: u32,
}

impl CrashHarness {
    fn new(recourse: Recourse, chats: usize, messages: usize, parallel: usize) -> Self {
        let messages = (0..messages)
            .flat_map(|n| (0..chats).map(move |chat| (format!("c{chat}"), format!("m{n}"))))
            .collect();
        Self {
            dir: TempDir::new().unwrap(),
            clock: Arc::new(ManualClock::default()),
            world: Arc::new(DeliveryHarness::default()),
            far: FarSide {
                messages,
                acknowledged: Mutex::new(0),
            },
            recourse,
            parallel,
            lives: 0,
        }
    }

    fn path(&self) -> std::path::PathBuf {
        self.dir.path().join("state.db")
    }

    /// One process. Returns whether it came to the end of its work.
    async fn live(&mut self, fuse: &Fuse) -> bool {
        self.lives += 1;
        self.clock.advance(Duration::from_secs(1));
        let store = open(&self.path(), &self.clock);
        let owner = Owner {
            pid: self.lives,
            started_at: Some(1),
            instance: format!("life {}", self.lives),
        };
        let (delivery, _) = store
            .own_delivery(owner, Duration::from_mins(1), Arc::new(NoProcesses))
            .await
            .unwrap();
        let delivery = delivery.with_hook(Arc::new(fuse.clone()));
        let finished = tokio::select! {
            biased;
            () = fuse.died.cancelled() => false,
            result = self.work(&delivery, fuse) => {
                result.unwrap();
                true
            }
        };
        drop(delivery);
        store.close().await.unwrap();
        finished
    }

    /// What a gateway does, one thing after the other.
    async fn work(&self, delivery: &Delivery, fuse: &Fuse) -> Result<(), StoreError> {
        let inbox = MessageInbox::new(delivery.clone(), SessionSharing::default());
        let platform = FakePlatform::new(self.world.clone(), fuse.clone(), self.recourse);
        let policy = OutboxPolicy {
            parallel: self.parallel,
            // Nothing is given up, however bad it gets.
            unclear: u32::MAX,
            ..OutboxPolicy::default()
        };
        let outbox = Outbox::new(
            delivery.clone(),
            self.clock.clone(),
            Arc::new(FixedRng(0)),
            policy,
        );
        outbox.connect("fake", "", Arc::new(platform));
        let start = *self.far.acknowledged.lock().unwrap();
        for (chat, id) in &self.far.messages[start..] {
            inbox.store(&incoming(chat, id)).await?;
            fuse.tick().await;
            *self.far.acknowledged.lock().unwrap() += 1;
            // An answer is on its way while the next message comes.
            self.answer_one(delivery).await?;
            outbox.pump().await?;
        }
        while self.answer_one(delivery).await? {}
        loop {
            let round = outbox.pump().await?;
            match round.next_at {
                _ if round.due > 0 => {}
                None => return Ok(()),
                Some(_) => self.clock.advance(Duration::from_secs(1)),
            }
        }
    }

    async fn answer_one(&self, delivery: &Delivery) -> Result<bool, StoreError> {
        let Some(message) = delivery.waiting(1).await?.into_iter().next() else {
            return Ok(false);
        };
        let turn = format!("turn-{}-{}", message.id, self.lives);
        delivery.claim(&[message.id], &turn).await?;
        delivery.finish(answer(&message, turn)).await?;
        Ok(true)
    }

    fn check(&self) {
        let seen = self.world.seen.lock().unwrap();
        for chat in ["c0", "c1", "c2"] {
            let expected: Vec<String> = self
                .far
                .messages
                .iter()
                .filter(|(place, _)| place == chat)
                .flat_map(|(_, id)| (0..CHUNKS).map(move |part| format!("{id}/{part}")))
                .collect();
            let mut next = 0;
            for one in seen.iter().filter(|one| one.chat == chat) {
                let (marked, text) = match one.text.strip_prefix(DUPLICATE_MARK) {
                    Some(text) => (true, text),
                    None => (false, one.text.as_str()),
                };
                if next < expected.len() && text == expected[next] {
                    next += 1;
                } else {
                    assert!(next > 0 && text == expected[next - 1], "order: {seen:?}");
                    assert!(marked, "doubled without a mark: {seen:?}");
                }
                if self.recourse != Recourse::Mark {
                    assert!(!marked, "the platform could have told: {seen:?}");
                }
            }
            assert_eq!(next, expected.len(), "lost: {seen:?}");
            if self.recourse != Recourse::Mark {
                let all = seen.iter().filter(|one| one.chat == chat).count();
                assert_eq!(all, expected.len(), "doubled: {seen:?}");
            }
        }
    }
}

fn open(path: &Path, clock: &Arc<ManualClock>) -> Store {
    Store::open(path, clock.clone()).unwrap()
}

fn incoming(chat: &str, id: &str) -> IncomingMessage {
    IncomingMessage {
        account: String::new(),
        message_id: id.to_owned(),
        source: MessageSource {
            platform: "fake".to_owned(),
            chat_id: chat.to_owned(),
            chat_type: "dm".to_owned(),
            ..MessageSource::default()
        },
        text: "hello".to_owned(),
        media: Vec::new(),
        reply_to: None,
        pressed: None,
        context: None,
        sent_at: 0.0,
        native: serde_json::Value::Null,
    }
}

fn answer(message: &WaitingMessage, turn: String) -> Final {
    let place = &message.message;
    Final {
        turn,
        answers: vec![message.id],
        replies: vec![NewReply {
            session_key: place.session_key.clone(),
            target: Target {
                platform: place.platform.clone(),
                account: place.account.clone(),
                chat_id: place.chat_id.clone(),
                thread_id: None,
            },
            chunks: (0..CHUNKS)
                .map(|part| NewChunk {
                    text: format!("{}/{part}", place.message_id),
                    extra: None,
                })
                .collect(),
        }],
        ..Final::default()
    }
}

const RECOURSES: [Recourse; 3] = [
    Recourse::Idempotent {
        window: Duration::from_hours(1),
    },
    Recourse::History { grace: GRACE },
    Recourse::Mark,
];

#[tokio::test]
async fn a_crash_at_any_step_loses_nothing_and_doubles_nothing_silently() {
    const LONG: i64 = 1_000_000;
    for recourse in RECOURSES {
        let mut calm = CrashHarness::new(recourse, 1, 2, 1);
        let fuse = Fuse::new(LONG);
        assert!(calm.live(&fuse).await);
        calm.check();
        let steps = LONG - fuse.left();
        assert!(steps > 30, "{steps}");
        for step in 1..=steps {
            let mut scene = CrashHarness::new(recourse, 1, 2, 1);
            assert!(!scene.live(&Fuse::new(step)).await, "step {step}");
            assert!(scene.live(&Fuse::new(LONG)).await);
            scene.check();
        }
    }
}

fn weather() -> impl Strategy<Value = NetworkFault> {
    prop_oneof![
        3 => Just(NetworkFault::Fine),
        1 => Just(NetworkFault::AnswerLost),
        1 => Just(NetworkFault::RequestLost),
        1 => Just(NetworkFault::Offline),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 48,
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn many_crashes_in_bad_weather(
        recourse in prop::sample::select(RECOURSES.to_vec()),
        parallel in 1_usize..4,
        fuses in prop::collection::vec(1_i64..40, 0..6),
        sky in prop::collection::vec(weather(), 0..12),
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let mut scene = CrashHarness::new(recourse, 3, 2, parallel);
            *scene.world.weather.lock().unwrap() = VecDeque::from(sky);
            for steps in fuses {
                scene.live(&Fuse::new(steps)).await;
            }
            prop_assert!(scene.live(&Fuse::new(1_000_000)).await);
            scene.check();
            Ok(())
        })?;
    }
}

/// Waits, in virtual time, until the world shows `count` messages.
async fn seen(world: &DeliveryHarness, count: usize) {
    while world.seen.lock().unwrap().len() < count {
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
}

#[tokio::test(start_paused = true)]
async fn the_outbox_runs_when_woken_and_when_a_pause_is_over() {
    let scene = CrashHarness::new(Recourse::Mark, 1, 2, 1);
    let store = open(&scene.path(), &scene.clock);
    let owner = Owner {
        pid: 1,
        started_at: None,
        instance: "only".to_owned(),
    };
    let lease = Duration::from_mins(1);
    let (delivery, _) = store
        .own_delivery(owner, lease, Arc::new(NoProcesses))
        .await
        .unwrap();
    let fuse = Fuse::new(1_000_000);
    let platform = FakePlatform::new(scene.world.clone(), fuse, Recourse::Mark);
    let (clock, rng) = (scene.clock.clone(), Arc::new(FixedRng(0)));
    let outbox = Arc::new(Outbox::new(
        delivery.clone(),
        clock,
        rng,
        OutboxPolicy::default(),
    ));
    let (wake, cancel) = (Arc::new(Notify::new()), CancellationToken::new());
    let running = {
        let (outbox, wake, cancel) = (outbox.clone(), wake.clone(), cancel.clone());
        hermes_core::task::spawn("outbox", async move { outbox.run(&wake, &cancel).await })
    };
    let inbox = MessageInbox::new(delivery.clone(), SessionSharing::default());
    inbox.store(&incoming("c0", "m0")).await.unwrap();
    let message = delivery.waiting(1).await.unwrap().remove(0);
    delivery.claim(&[message.id], "t").await.unwrap();
    delivery
        .finish(answer(&message, "t".to_owned()))
        .await
        .unwrap();
    scene
        .world
        .weather
        .lock()
        .unwrap()
        .push_back(NetworkFault::Offline);
    outbox.connect("fake", "", Arc::new(platform));
    wake.notify_one();
    // The first attempt fails; the pause passes on both clocks.
    while !scene.world.weather.lock().unwrap().is_empty() {
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
    scene.clock.advance(Duration::from_mins(5));
    seen(&scene.world, CHUNKS).await;
    cancel.cancel();
    running.await.unwrap().unwrap().unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_heart_stops_when_another_process_delivers() {
    let scene = CrashHarness::new(Recourse::Mark, 1, 1, 1);
    let store = open(&scene.path(), &scene.clock);
    let owner = |pid: u32| Owner {
        pid,
        started_at: None,
        instance: pid.to_string(),
    };
    let lease = Duration::from_mins(1);
    let own = |pid| store.own_delivery(owner(pid), lease, Arc::new(NoProcesses));
    let (first, _) = own(1).await.unwrap();
    own(2).await.unwrap();
    let error = keep_ownership(&first, lease, &CancellationToken::new())
        .await
        .unwrap_err();
    assert!(matches!(error, StoreError::NotOwner { .. }), "{error}");
}

#[tokio::test]
async fn a_platform_hears_only_of_what_is_stored() {
    let scene = CrashHarness::new(Recourse::Mark, 1, 1, 1);
    let store = open(&scene.path(), &scene.clock);
    let owner = |pid: u32| Owner {
        pid,
        started_at: None,
        instance: pid.to_string(),
    };
    let own = |pid| store.own_delivery(owner(pid), Duration::from_mins(1), Arc::new(NoProcesses));
    let (first, _) = own(1).await.unwrap();
    let inbox = MessageInbox::new(first.clone(), SessionSharing::default());
    let (arrivals, queue) = mpsc::channel(1);
    let (new, cancel) = (Mutex::new(0), CancellationToken::new());
    let platform = async {
        let mut heard = Vec::new();
        for (id, lost) in [("m0", false), ("m0", false), ("m1", true)] {
            if lost {
                own(2).await.unwrap();
            }
            let (stored, answer) = oneshot::channel();
            let message = incoming("c0", id);
            arrivals.send(Arrival { message, stored }).await.unwrap();
            heard.push(answer.await.is_ok());
        }
        drop(arrivals);
        heard
    };
    let taking = inbox.run(queue, cancel, |_| *new.lock().unwrap() += 1);
    let (heard, ()) = tokio::join!(platform, taking);
    assert_eq!(heard, [true, true, false]);
    assert_eq!(*new.lock().unwrap(), 1, "a repetition is not new");
    assert_eq!(first.waiting(9).await.unwrap().len(), 1);
}

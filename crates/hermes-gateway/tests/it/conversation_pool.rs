//! Conversations that are kept open, and how much of them.

use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use hermes_agent::ConversationMemory;
use hermes_app::{ConversationHost, HostError, OpenedConversation, OpeningRequest};
use hermes_core::{BoxFuture, task};
use hermes_gateway::{ConversationPool, HolderEvent, PoolLimits, PooledConversation};
use hermes_platforms::Offer;
use pretty_assertions::assert_eq;
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use crate::fake_conversation;

const MB: usize = 1 << 20;

/// Opens conversations in which nothing happens, as heavy as told.
#[derive(Default)]
struct HeavyHost {
    weights: Mutex<HashMap<String, usize>>,
    opened: Mutex<Vec<String>>,
    /// Those that were closed.
    closed: Arc<Mutex<Vec<String>>>,
    /// These end only when the door opens.
    stuck: Mutex<HashSet<String>>,
    door: Arc<Notify>,
    /// What all of them weigh, if it is the same for all.
    shared: Mutex<Option<ConversationMemory>>,
}

impl ConversationHost for HeavyHost {
    fn ready(&self) -> Result<(), HostError> {
        Ok(())
    }

    fn open(
        &self,
        opening: OpeningRequest,
    ) -> BoxFuture<'_, Result<OpenedConversation, HostError>> {
        let (id, closed) = (opening.id.clone(), Arc::clone(&self.closed));
        let stuck = self.stuck.lock().unwrap().contains(&opening.id);
        let door = Arc::clone(&self.door);
        let shared = self.shared.lock().unwrap().clone();
        let weight = shared.unwrap_or_else(|| {
            let weight = ConversationMemory::default();
            weight.set(*self.weights.lock().unwrap().get(&opening.id).unwrap());
            weight
        });
        self.opened.lock().unwrap().push(opening.id.clone());
        let (opened, mut side) = fake_conversation::open_with_weight(&opening.id, weight);
        drop(task::spawn("heavy", async move {
            while side.requests.recv().await.is_some() {}
            if stuck {
                door.notified().await;
            }
            closed.lock().unwrap().push(id);
            drop(side.updates);
        }));
        Box::pin(std::future::ready(Ok(opened)))
    }

    fn commands(&self) -> Vec<Offer> {
        Vec::new()
    }
}

fn opening(id: &str) -> OpeningRequest {
    OpeningRequest {
        id: id.to_owned(),
        ..OpeningRequest::default()
    }
}

struct PoolHarness {
    program: Arc<HeavyHost>,
    pool: ConversationPool,
}

impl PoolHarness {
    fn new(bytes: usize) -> Self {
        Self::with(10, bytes)
    }

    fn with(idle: usize, bytes: usize) -> Self {
        let program = Arc::<HeavyHost>::default();
        let bounds = PoolLimits {
            idle,
            bytes,
            age: Duration::from_hours(1),
        };
        let shared = Arc::clone(&program) as Arc<dyn ConversationHost>;
        let pool = ConversationPool::new(shared, bounds, CancellationToken::new());
        Self { program, pool }
    }

    async fn sit(&self, id: &str, bytes: usize) -> PooledConversation {
        {
            let mut weights = self.program.weights.lock().unwrap();
            weights.insert(id.to_owned(), bytes);
        }
        let seat = self.pool.acquire(opening(id)).await.unwrap();
        // Time goes on, so that one was used before another.
        tokio::time::advance(Duration::from_secs(1)).await;
        seat
    }

    /// After everything that is to happen has happened.
    async fn closed(&self) -> Vec<String> {
        for _ in 0..100 {
            tokio::task::yield_now().await;
        }
        self.program.closed.lock().unwrap().clone()
    }
}

#[tokio::test(start_paused = true)]
async fn what_was_unused_longest_goes_when_they_weigh_too_much() {
    let room = PoolHarness::new(3 * MB);
    for id in ["a", "b", "c"] {
        drop(room.sit(id, MB).await);
    }
    // Used again: it is no longer the oldest.
    drop(room.sit("a", MB).await);
    assert_eq!(room.closed().await, Vec::<String>::new());
    drop(room.sit("d", MB + 1).await);
    assert_eq!(room.closed().await, ["b", "c"]);
    assert_eq!(room.pool.bytes(), 2 * MB + 1);
    drop(room.sit("a", MB).await);
    assert_eq!(*room.program.opened.lock().unwrap(), ["a", "b", "c", "d"]);
    // What was closed is in the store, and opened anew.
    drop(room.sit("b", MB / 2).await);
    assert_eq!(room.program.opened.lock().unwrap().last().unwrap(), "b");
}

#[tokio::test(start_paused = true)]
async fn one_that_is_held_stays_and_whoever_holds_it_is_asked() {
    let room = PoolHarness::new(2 * MB);
    let mut held = room.sit("held", 3 * MB).await;
    drop(room.sit("idle", MB / 2).await);
    assert_eq!(room.closed().await, ["idle"]);
    assert!(matches!(held.next().await, HolderEvent::Wanted));
    drop(held);
    assert_eq!(room.closed().await, ["idle", "held"]);
    assert_eq!((room.pool.open(), room.pool.bytes()), (0, 0));
}

/// A conversation grows while somebody holds it; the others make room.
#[tokio::test(start_paused = true)]
async fn one_that_grows_takes_the_room_of_others() {
    let room = PoolHarness::new(2 * MB);
    drop(room.sit("small", MB).await);
    drop(room.sit("grows", MB).await);
    assert_eq!(room.closed().await, Vec::<String>::new());
    drop(room.sit("more", MB / 2).await);
    assert_eq!(room.closed().await, ["small"]);
}

/// What was opened, and what of it has ended.
fn lives(room: &PoolHarness) -> (usize, usize) {
    let opened = room.program.opened.lock().unwrap().len();
    (opened, room.program.closed.lock().unwrap().len())
}

/// Somebody comes with other terms, and leaves while the old conversation ends.
#[tokio::test(start_paused = true)]
async fn a_session_is_never_open_twice() {
    let room = PoolHarness::new(10 * MB);
    room.program.stuck.lock().unwrap().insert("s".to_owned());
    drop(room.sit("s", MB).await);
    let unattended = OpeningRequest {
        id: "s".to_owned(),
        unattended: true,
        ..OpeningRequest::default()
    };
    for _ in 0..3 {
        let sitting = room.pool.acquire(unattended.clone());
        let left = tokio::time::timeout(Duration::from_secs(1), sitting).await;
        assert!(left.is_err());
        assert_eq!(lives(&room), (1, 0), "the old one has not ended");
    }
    room.program.stuck.lock().unwrap().clear();
    room.program.door.notify_one();
    let seat = room.pool.acquire(unattended).await.unwrap();
    // The one that nobody waited for is kept, and used now.
    assert_eq!(lives(&room), (2, 1));
    drop(seat);
}

/// Whoever closes a conversation, and does not wait for its end.
#[tokio::test(start_paused = true)]
async fn one_that_ends_keeps_its_place() {
    let room = PoolHarness::new(10 * MB);
    let sit = || room.pool.acquire(opening("s"));
    for way in 0..3 {
        let before = lives(&room);
        room.program.stuck.lock().unwrap().insert("s".to_owned());
        let seat = room.sit("s", MB).await;
        let patience = Duration::from_secs(1);
        let left = match way {
            0 => tokio::time::timeout(patience, seat.close()).await.is_err(),
            1 => {
                drop(seat);
                let still = room.pool.close_exclusively("s");
                tokio::time::timeout(patience, still).await.is_err()
            }
            _ => {
                drop(seat);
                let close = room.pool.close("s");
                tokio::time::timeout(patience, close).await.is_err()
            }
        };
        assert!(left);
        assert!(tokio::time::timeout(patience, sit()).await.is_err());
        assert_eq!(lives(&room), (before.0 + 1, before.1), "way {way}");
        room.program.stuck.lock().unwrap().clear();
        room.program.door.notify_one();
        // It is opened anew, and closed for the next way.
        sit().await.unwrap().close().await;
        assert_eq!(lives(&room), (before.0 + 2, before.1 + 2), "way {way}");
    }
}

#[tokio::test(start_paused = true)]
async fn one_that_does_not_end_holds_up_nobody() {
    let room = PoolHarness::with(1, 10 * MB);
    room.program
        .stuck
        .lock()
        .unwrap()
        .insert("stuck".to_owned());
    for id in ["stuck", "a", "b", "c"] {
        drop(room.sit(id, MB).await);
    }
    assert_eq!(room.closed().await, ["a", "b"]);
    room.program.door.notify_one();
    assert_eq!(room.closed().await, ["a", "b", "stuck"]);
    assert_eq!(room.pool.open(), 1);
}

/// Conversations grow and shrink while it is looked which are too many.
#[tokio::test(start_paused = true)]
async fn weights_that_change_meanwhile_do_no_harm() {
    const MANY: usize = 2000;
    let room = PoolHarness::with(MANY, usize::MAX);
    let weight = ConversationMemory::default();
    *room.program.shared.lock().unwrap() = Some(weight.clone());
    for number in 0..MANY {
        let seat = room
            .pool
            .acquire(opening(&number.to_string()))
            .await
            .unwrap();
        drop(seat);
    }
    let over = Arc::new(AtomicBool::new(false));
    let seen = Arc::clone(&over);
    let changing = std::thread::spawn(move || {
        for bytes in (0..MB).cycle() {
            if seen.load(Ordering::Relaxed) {
                return;
            }
            weight.set(bytes);
        }
    });
    tokio::time::advance(Duration::from_hours(1)).await;
    let closed = room.closed().await.len();
    over.store(true, Ordering::Relaxed);
    changing.join().unwrap();
    assert_eq!((closed, room.pool.open()), (MANY, 0));
}

//! Conversations that are kept open, and how much of them.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use hermes_agent::front::{NEWS, News, Opened, Refusal, RefusalKind, WISHES};
use hermes_agent::weight::Weight;
use hermes_core::{BoxFuture, task};
use hermes_gateway::platform::Offer;
use hermes_gateway::program::{Opening, Program, Ran, Script};
use hermes_gateway::seats::{Bounds, Next, Seat, Seats};
use pretty_assertions::assert_eq;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

const MB: usize = 1 << 20;

/// Opens conversations in which nothing happens, as heavy as told.
#[derive(Default)]
struct Heavy {
    weights: Mutex<HashMap<String, usize>>,
    opened: Mutex<Vec<String>>,
    /// Those that were closed.
    closed: Arc<Mutex<Vec<String>>>,
}

impl Program for Heavy {
    fn ready(&self) -> Result<(), Refusal> {
        Ok(())
    }

    fn open(&self, opening: Opening) -> BoxFuture<'_, Result<Opened, Refusal>> {
        let (wishes, mut orders) = mpsc::channel(WISHES);
        let (news, heard) = mpsc::channel::<News>(NEWS);
        let (id, closed) = (opening.id.clone(), Arc::clone(&self.closed));
        drop(task::spawn("heavy", async move {
            while orders.recv().await.is_some() {}
            closed.lock().unwrap().push(id);
            drop(news);
        }));
        let weight = Weight::default();
        weight.set(*self.weights.lock().unwrap().get(&opening.id).unwrap());
        self.opened.lock().unwrap().push(opening.id.clone());
        Box::pin(std::future::ready(Ok(Opened {
            id: opening.id,
            title: None,
            cost: None,
            past: Vec::new(),
            remarks: Vec::new(),
            weight,
            wishes,
            news: heard,
        })))
    }

    fn script(&self, _: Script) -> BoxFuture<'_, Result<Ran, Refusal>> {
        let refusal = Refusal::new(RefusalKind::Invalid, "no scripts here");
        Box::pin(std::future::ready(Err(refusal)))
    }

    fn commands(&self) -> Vec<Offer> {
        Vec::new()
    }
}

struct Room {
    program: Arc<Heavy>,
    seats: Seats,
}

impl Room {
    fn new(bytes: usize) -> Self {
        let program = Arc::<Heavy>::default();
        let bounds = Bounds {
            idle: 10,
            bytes,
            age: Duration::from_hours(1),
        };
        let shared = Arc::clone(&program) as Arc<dyn Program>;
        let seats = Seats::new(shared, bounds, CancellationToken::new());
        Self { program, seats }
    }

    async fn sit(&self, id: &str, bytes: usize) -> Seat {
        {
            let mut weights = self.program.weights.lock().unwrap();
            weights.insert(id.to_owned(), bytes);
        }
        let opening = Opening {
            id: id.to_owned(),
            ..Opening::default()
        };
        let seat = self.seats.sit(opening).await.unwrap();
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
    let room = Room::new(3 * MB);
    for id in ["a", "b", "c"] {
        drop(room.sit(id, MB).await);
    }
    // Used again: it is no longer the oldest.
    drop(room.sit("a", MB).await);
    assert_eq!(room.closed().await, Vec::<String>::new());
    drop(room.sit("d", MB + 1).await);
    assert_eq!(room.closed().await, ["b", "c"]);
    assert_eq!(room.seats.bytes(), 2 * MB + 1);
    drop(room.sit("a", MB).await);
    assert_eq!(*room.program.opened.lock().unwrap(), ["a", "b", "c", "d"]);
    // What was closed is in the store, and opened anew.
    drop(room.sit("b", MB / 2).await);
    assert_eq!(room.program.opened.lock().unwrap().last().unwrap(), "b");
}

#[tokio::test(start_paused = true)]
async fn one_that_is_held_stays_and_whoever_holds_it_is_asked() {
    let room = Room::new(2 * MB);
    let mut held = room.sit("held", 3 * MB).await;
    drop(room.sit("idle", MB / 2).await);
    assert_eq!(room.closed().await, ["idle"]);
    assert!(matches!(held.next().await, Next::Wanted));
    drop(held);
    assert_eq!(room.closed().await, ["idle", "held"]);
    assert_eq!((room.seats.open(), room.seats.bytes()), (0, 0));
}

/// A conversation grows while somebody holds it; the others make room.
#[tokio::test(start_paused = true)]
async fn one_that_grows_takes_the_room_of_others() {
    let room = Room::new(2 * MB);
    drop(room.sit("small", MB).await);
    drop(room.sit("grows", MB).await);
    assert_eq!(room.closed().await, Vec::<String>::new());
    drop(room.sit("more", MB / 2).await);
    assert_eq!(room.closed().await, ["small"]);
}

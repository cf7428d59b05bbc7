//! Processes that end at every step of a whole gateway.

use std::collections::BTreeMap;
use std::time::Duration;

use hermes_gateway::DUPLICATE_MARK;
use hermes_platforms::Recourse;
use proptest::prelude::*;

use super::harness::TurnHarness;
use crate::harness::{Fuse, GRACE};

const LONG: i64 = 1_000_000;

/// What people say, and in which process it was handled.
const SAID: [(&str, &str, &str); 4] = [
    ("a", "m1", "one"),
    ("b", "m2", "two"),
    ("a", "m3", "three with a tool"),
    ("a", "m4", "four"),
];

/// One process on a runtime of its own: when it ends, everything in it ends. Returns whether it came
/// to the end of its work.
fn live(house: &mut TurnHarness, fuse: &Fuse) -> bool {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    let finished = runtime.block_on(async {
        tokio::select! {
            biased;
            () = fuse.died.cancelled() => false,
            () = work(house, fuse) => true,
        }
    });
    house.end(runtime);
    finished
}

async fn work(house: &mut TurnHarness, fuse: &Fuse) {
    let clock = house.clock.clone();
    let life = house.life_with(fuse.clone()).await;
    // The platform brings everything again that it is not sure of.
    for (chat, id, text) in SAID {
        life.say(chat, id, text).await;
    }
    for _ in 0..200 {
        // Lookups want some time to have passed.
        clock.advance(Duration::from_secs(1));
        let rested = tokio::time::timeout(Duration::from_millis(100), life.rest()).await;
        if rested.is_ok() && house_has_all(&life.screen) {
            return;
        }
    }
    let waiting = life.delivery.waiting(9).await.unwrap();
    let bubbles = life.screen.bubbles.lock().unwrap();
    panic!(
        "no end: {waiting:#?} {bubbles:#?} {:?}",
        life.gateway.status()
    );
}

fn house_has_all(screen: &super::harness::FakeScreen) -> bool {
    let seen: String = screen
        .bubbles
        .lock()
        .unwrap()
        .iter()
        .map(|one| one.text.clone())
        .collect();
    SAID.iter().all(|(_, _, text)| seen.contains(text))
}

/// Every message was answered once; what may have been seen twice says so.
fn check(house: &TurnHarness, step: i64) {
    let bubbles = house.screen.bubbles.lock().unwrap().clone();
    let mut answers: BTreeMap<(String, String), (u32, u32)> = BTreeMap::new();
    for bubble in &bubbles {
        let (marked, text) = match bubble.text.strip_prefix(DUPLICATE_MARK) {
            Some(text) => (true, text),
            None => (false, bubble.text.as_str()),
        };
        let Some(list) = text.strip_prefix("re: ") else {
            assert!(
                !text.contains("stopped several times"),
                "step {step}: {bubbles:#?}"
            );
            continue;
        };
        for one in list.split(" | ") {
            let place = (bubble.chat.clone(), one.to_owned());
            let count = answers.entry(place).or_default();
            if marked {
                count.1 += 1;
            } else {
                count.0 += 1;
            }
        }
    }
    for (chat, _, text) in SAID {
        let place = (chat.to_owned(), text.to_owned());
        let (plain, marked) = answers.get(&place).copied().unwrap_or_default();
        let strict = house.recourse != Recourse::Mark;
        let fine = if strict {
            plain == 1 && marked == 0
        } else {
            plain <= 1 && plain + marked >= 1
        };
        assert!(
            fine,
            "step {step}, {place:?}: {plain} and {marked}: {bubbles:#?}"
        );
    }
    // Order within a chat.
    let texts = house.screen.texts("a").concat();
    let at = |text: &str| texts.find(text).unwrap();
    assert!(at("one") < at("three with a tool"), "step {step}: {texts}");
}

#[test]
fn a_crash_at_any_step_of_a_turn_is_healed_by_the_next_life() {
    for recourse in [
        Recourse::Idempotent {
            window: Duration::from_hours(1),
        },
        Recourse::History { grace: GRACE },
        Recourse::Mark,
    ] {
        let config = "display: {busy_steer_ack_enabled: false}\n";
        let mut calm = TurnHarness::with(config, recourse);
        let fuse = Fuse::new(LONG);
        assert!(live(&mut calm, &fuse));
        check(&calm, 0);
        let steps = LONG - fuse.left();
        assert!(steps > 40, "{steps}");
        // Every step in one recourse, some in the others: they differ only in the outbox.
        let stride = if recourse == Recourse::Mark { 1 } else { 5 };
        for step in (1..=steps).step_by(stride) {
            let mut house = TurnHarness::with(config, recourse);
            live(&mut house, &Fuse::new(step));
            assert!(live(&mut house, &Fuse::new(LONG)), "step {step}");
            check(&house, step);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 12,
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn several_crashes_in_a_row(fuses in prop::collection::vec(1_i64..60, 2..3), mark: bool) {
        let recourse = if mark { Recourse::Mark } else { Recourse::History { grace: GRACE } };
        let mut house = TurnHarness::with("display: {busy_steer_ack_enabled: false}\n", recourse);
        for steps in fuses {
            live(&mut house, &Fuse::new(steps));
        }
        prop_assert!(live(&mut house, &Fuse::new(LONG)));
        check(&house, -1);
    }
}

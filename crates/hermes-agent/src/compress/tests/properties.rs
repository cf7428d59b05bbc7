//! What holds for every plan.

use std::sync::Arc;

use hermes_core::message::Message;
use proptest::prelude::*;

use super::fake::{
    answer, assert_arguments_are_json, assert_well_formed, filler, own_text, step, user,
};
use crate::compress::CompressionSettings;
use crate::compress::plan::{CompactionInput, CompactionPlan, ContextPressure, plan};
use crate::tokens;

/// One turn: its request, its steps (size of arguments, sizes of outputs), its answer.
#[derive(Clone, Debug)]
struct Turn {
    request: usize,
    steps: Vec<(usize, Vec<usize>)>,
    answer: Option<usize>,
}

fn turn() -> impl Strategy<Value = Turn> {
    let size = prop_oneof![4 => 1_usize..200, 2 => 200_usize..3_000, 1 => 3_000_usize..30_000];
    let steps = prop::collection::vec(
        (1_usize..800, prop::collection::vec(size.clone(), 1..3)),
        0..6,
    );
    (size.clone(), steps, size).prop_map(|(request, steps, answer)| Turn {
        request: request.min(2_000),
        steps,
        answer: Some(answer.min(4_000)),
    })
}

/// A conversation; the last turn may be under way.
fn conversation() -> impl Strategy<Value = Vec<Turn>> {
    (prop::collection::vec(turn(), 1..12), any::<bool>()).prop_map(|(mut turns, running)| {
        if running {
            turns.last_mut().unwrap().answer = None;
        }
        turns
    })
}

fn rows(turns: &[Turn]) -> Vec<Arc<Message>> {
    let mut view = Vec::new();
    let mut id = 0;
    for (at, turn) in turns.iter().enumerate() {
        view.push(user(format!("request {at}: {}", filler(at, turn.request))));
        for (argument, outputs) in &turn.steps {
            id += 1;
            let outputs: Vec<String> = outputs
                .iter()
                // Equal sizes give equal outputs: duplicates occur.
                .map(|size| filler(size % 3, *size))
                .collect();
            view.extend(step(id, &filler(id, *argument), &outputs));
        }
        if let Some(size) = turn.answer {
            view.push(answer(filler(at, size)));
        }
    }
    view
}

fn pressure() -> impl Strategy<Value = ContextPressure> {
    prop_oneof![
        Just(ContextPressure::Wish),
        Just(ContextPressure::Threshold),
        Just(ContextPressure::Refused)
    ]
}

struct Run {
    before: u64,
    after: u64,
    view: Vec<Arc<Message>>,
}

/// Carries out one plan with a summary as long as it may be; `None`: no gain.
fn run(
    view: &[Arc<Message>],
    threshold: u64,
    first: bool,
    pressure: ContextPressure,
    todo: Option<&str>,
) -> Option<Run> {
    let settings = CompressionSettings::default();
    let overhead = 500;
    let input = CompactionInput {
        settings: &settings,
        view,
        scaffolding: &[],
        overhead,
        extra: todo.map_or(0, |todo| tokens::text(todo) + 8),
        threshold,
        context: threshold * 4 / 3,
        first,
        keep: None,
        pressure,
    };
    let before = overhead + tokens::messages(view);
    let (view, promised) = match plan(&input) {
        CompactionPlan::NoGain(why) => {
            assert!(!why.is_empty());
            return None;
        }
        CompactionPlan::Prune { view, after } => (view, after),
        CompactionPlan::Condense(plan) => {
            let summary = filler(7, 40_000);
            (plan.assemble(&summary, todo), plan.after)
        }
    };
    let after = overhead + tokens::messages(&view);
    assert!(after <= promised, "{after} tokens, {promised} promised");
    Some(Run {
        before,
        after,
        view,
    })
}

fn newest_request(view: &[Arc<Message>]) -> String {
    view.iter()
        .rev()
        .find(|row| matches!(row.as_ref(), Message::User(_)))
        .map(|row| own_text(row))
        .unwrap()
}

fn newest_answer(view: &[Arc<Message>]) -> Option<String> {
    view.iter().rev().find_map(|row| match row.as_ref() {
        Message::Assistant(assistant) => Some(assistant.text.clone()),
        _ => None,
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn a_compacted_view_is_whole_and_shorter(
        turns in conversation(),
        threshold in 2_000_u64..60_000,
        first in any::<bool>(),
        pressure in pressure(),
        todo in any::<bool>(),
    ) {
        let view = rows(&turns);
        assert_well_formed(&view);
        let todo = todo.then_some("1. [ ] something to do");
        if let Some(run) = run(&view, threshold, first, pressure, todo) {
            assert_well_formed(&run.view);
            assert_arguments_are_json(&run.view);
            prop_assert!(run.after < run.before, "{} -> {}", run.before, run.after);
            prop_assert_eq!(newest_request(&run.view), newest_request(&view));
            prop_assert_eq!(newest_answer(&run.view), newest_answer(&view));
        }
    }

    #[test]
    fn compacting_again_and_again_comes_to_rest(
        turns in conversation(),
        threshold in 2_000_u64..60_000,
        pressure in pressure(),
    ) {
        let mut view = rows(&turns);
        let request = newest_request(&view);
        let mut rounds = 0;
        while let Some(run) = run(&view, threshold, rounds == 0, pressure, None) {
            view = run.view;
            rounds += 1;
            prop_assert!(rounds <= 30, "still gaining after {rounds} rounds");
            prop_assert_eq!(newest_request(&view), request.clone());
        }
        assert_well_formed(&view);
    }

    #[test]
    fn a_users_words_may_look_like_a_summary(text in "(\\[CONTEXT SUMMARY\\]:)?[a-z ]{1,40}") {
        let turn = Turn { request: 50, steps: vec![(1, vec![20_000])], answer: Some(2_000) };
        let mut view = rows(&vec![turn; 4]);
        view.push(user(text.clone()));
        let run = run(&view, 10_000, true, ContextPressure::Threshold, None).unwrap();
        let kept = run.view.iter().any(|row| match row.as_ref() {
            Message::User(user) => user.content.text().ends_with(&text),
            _ => false,
        });
        prop_assert!(kept);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(16))]

    #[test]
    fn a_long_conversation_gets_below_the_threshold(
        turns in prop::collection::vec(turn(), 20..40),
        threshold in 8_000_u64..60_000,
    ) {
        let view = rows(&turns);
        prop_assume!(tokens::messages(&view) > threshold * 2);
        let run = run(&view, threshold, true, ContextPressure::Threshold, None);
        let run = run.expect("there is much to gain");
        // The newest request and answer are kept whole: they alone bound the result.
        let kept: u64 = [newest_request(&view), newest_answer(&view).unwrap_or_default()]
            .iter()
            .map(|text| tokens::text(text))
            .sum();
        prop_assert!(run.after <= threshold.max(kept + 4_000), "{}", run.after);
    }
}

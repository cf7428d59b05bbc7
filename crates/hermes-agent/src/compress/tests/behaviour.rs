//! The compactor with a model that answers, fails or hangs.

use std::sync::Arc;

use hermes_core::ids::SessionId;
use hermes_core::message::{AssistantMessage, BlobKind, Content, Message, Part, WireBlob};
use hermes_core::model::{ErrorClass, ModelClient};
use hermes_core::store::SessionUpdate;
use pretty_assertions::assert_eq;
use tokio_util::sync::CancellationToken;

use super::fake::{
    FakeClock, FakeModel, Reply, answer, assert_well_formed, filler, own_text, step, user,
};
use crate::compress::{
    CompactionCause, CompactionDecision, CompactionJob, CompactionOutcome, Compactor,
    CompressionSettings, ContextWindow, SkippedCompaction, Summary, summary,
};
use crate::prompt;
use crate::tokens;

struct Bench {
    compactor: Compactor,
    clock: Arc<FakeClock>,
    clients: Vec<Arc<dyn ModelClient>>,
    view: Vec<Arc<Message>>,
    scaffolding: Vec<Arc<Message>>,
    todo: Option<&'static str>,
    focus: Option<&'static str>,
    keep: Option<usize>,
}

const CONTEXT: u32 = 32_000;

impl Bench {
    fn new(clients: &[&Arc<FakeModel>]) -> Self {
        Self::with(CompressionSettings::default(), clients)
    }

    fn with(settings: CompressionSettings, clients: &[&Arc<FakeModel>]) -> Self {
        let clock = Arc::new(FakeClock::default());
        let window = ContextWindow {
            context: CONTEXT,
            max_tokens: None,
        };
        Self {
            compactor: Compactor::new(settings, window, clock.clone()),
            clock,
            clients: clients
                .iter()
                .map(|client| Arc::clone(client) as Arc<dyn ModelClient>)
                .collect(),
            view: conversation(),
            scaffolding: Vec::new(),
            todo: None,
            focus: None,
            keep: None,
        }
    }

    fn raw(&self) -> u64 {
        1_000 + tokens::messages(&self.view)
    }

    async fn compact(&mut self, cause: CompactionCause) -> CompactionOutcome {
        self.compact_until(cause, &CancellationToken::new()).await
    }

    async fn compact_until(
        &mut self,
        cause: CompactionCause,
        cancel: &CancellationToken,
    ) -> CompactionOutcome {
        let job = CompactionJob {
            session: SessionId::from("s"),
            view: &self.view,
            scaffolding: self.scaffolding.clone(),
            overhead: 1_000,
            cause,
            focus: self.focus,
            keep: self.keep,
            todo: self.todo,
            clients: self.clients.clone(),
        };
        let outcome = self.compactor.compact(job, cancel).await;
        if let Ok(done) = &outcome.result {
            assert_well_formed(&done.view);
            self.view.clone_from(&done.view);
        }
        outcome
    }
}

/// Talk without tools: only a summary can shorten it. About 28,000 tokens.
fn conversation() -> Vec<Arc<Message>> {
    let mut view = Vec::new();
    for turn in 0..14 {
        view.push(user(format!("request {turn} {}", filler(turn, 1_000))));
        view.push(answer(format!("answer {turn} {}", filler(turn, 1_000))));
    }
    view.push(user("the latest request"));
    view
}

fn text_of(row: &Message) -> String {
    match row {
        Message::User(user) => user.content.text().into_owned(),
        Message::Assistant(assistant) => assistant.text.clone(),
        Message::Tool(tool) => tool.content.text().into_owned(),
    }
}

fn summary_of(view: &[Arc<Message>]) -> String {
    view.iter()
        .find_map(|row| summary::split(&text_of(row)).map(|split| split.summary.to_owned()))
        .expect("a summary row")
}

/// The pauses that are to be stored; `None` clears one.
fn cooldowns(outcome: &CompactionOutcome) -> Vec<Option<f64>> {
    let pause = |update: &SessionUpdate| match update {
        SessionUpdate::CompactionCooldown { until, .. } => Some(*until),
        _ => None,
    };
    outcome.updates.iter().filter_map(pause).collect()
}

#[tokio::test]
async fn a_long_conversation_is_summarised_once_and_then_updated() {
    let model = FakeModel::new("aux", Reply::Text("what happened so far".into()));
    let mut bench = Bench::new(&[&model]);
    assert!(matches!(
        bench.compactor.check(bench.raw()),
        CompactionDecision::Compact { .. }
    ));
    let outcome = bench.compact(CompactionCause::Automatic).await;
    let done = outcome.result.unwrap();
    assert_eq!(done.summary, Summary::Model);
    assert!(done.after_tokens < done.before_tokens / 2);
    assert_eq!(outcome.usage.len(), 1);
    assert_eq!(summary_of(&bench.view), "what happened so far");
    assert!(
        text_of(&bench.view[0]).starts_with("request 0"),
        "the head stays the first time"
    );
    assert_eq!(own_text(bench.view.last().unwrap()), "the latest request");
    assert_eq!(bench.compactor.check(bench.raw()), CompactionDecision::Fits);

    bench.view.extend(conversation());
    model.next(Reply::Text("more happened".into()));
    let outcome = bench.compact(CompactionCause::Automatic).await;
    assert_eq!(outcome.result.unwrap().summary, Summary::Model);
    assert!(
        model
            .last_request()
            .contains("<record>\nwhat happened so far\n</record>")
    );
    assert!(outcome.notices[0].contains("2nd time"));
    let view = &bench.view;
    assert_eq!(summary_of(view), "more happened");
    assert!(
        summary::split(&text_of(&view[0])).is_some(),
        "no head the second time"
    );
    let summaries = view
        .iter()
        .filter(|row| text_of(row).contains(summary::OPEN));
    assert_eq!(summaries.count(), 1);
}

#[tokio::test]
async fn the_summary_is_asked_for_as_a_record_without_secrets() {
    let model = FakeModel::new(
        "aux",
        Reply::Text("<think>hm</think>key sk-abcdefghijklmnop1234".into()),
    );
    let mut bench = Bench::new(&[&model]);
    bench.view.insert(
        4,
        user(format!(
            "FOO_API_KEY=0123456789abcdef0123 {}",
            filler(1, 400)
        )),
    );
    bench.view.insert(5, answer("ok"));
    bench.focus = Some("the database");
    bench.todo = Some("- [ ] write tests");
    bench.compact(CompactionCause::Manual).await.result.unwrap();
    let request = model.last_request();
    assert!(!request.contains("0123456789abcdef0123"));
    assert!(
        request
            .trim_end()
            .contains("most detailed about: the database")
    );
    assert!(request.contains("Today is 2027-01-15"));
    assert_eq!(summary_of(&bench.view), "key sk-a…");
    let row = bench
        .view
        .iter()
        .map(|row| text_of(row))
        .find(|text| text.contains(summary::OPEN));
    assert!(row.unwrap().contains("- [ ] write tests"));
}

#[tokio::test]
async fn the_person_says_how_much_stays() {
    for keep in [1, 2] {
        let model = FakeModel::new("m", Reply::Text("what happened".into()));
        let mut bench = Bench::new(&[&model]);
        let questions = |view: &[Arc<Message>]| -> Vec<Arc<Message>> {
            view.iter()
                .filter(|row| matches!(row.as_ref(), Message::User(_)))
                .cloned()
                .collect()
        };
        let before = bench.view.clone();
        let asked = questions(&before);
        let first = &asked[asked.len() - keep];
        let at = before.iter().position(|row| Arc::ptr_eq(row, first));
        bench.keep = Some(keep);
        bench.compact(CompactionCause::Manual).await.result.unwrap();
        // Nothing before it but the summary, nothing of it cut.
        let kept = &before[at.unwrap()..];
        let now = &bench.view[bench.view.len() - kept.len()..];
        let last = text_of(&now[0]);
        assert!(last.ends_with(&text_of(&kept[0])), "{last}");
        assert_eq!(now[1..], kept[1..]);
        assert_eq!(questions(&bench.view).len(), keep, "{keep}");
        assert_eq!(summary_of(&bench.view), "what happened");
    }
}

#[tokio::test]
async fn in_a_long_turn_the_request_is_carried_over_with_later_words() {
    let model = FakeModel::new("aux", Reply::Text("work so far".into()));
    let mut bench = Bench::new(&[&model]);
    bench.view = vec![
        user("old"),
        answer("done"),
        user("refactor everything\nplease"),
    ];
    for id in 0..60 {
        let mut output = filler(id, 450);
        if id == 10 {
            output.push_str(&prompt::steer_block("but keep the tests"));
        }
        bench.view.extend(step(id, &filler(id, 60), &[output]));
    }
    // Shortening tool output alone would do; the provider's refusal asks for more.
    let done = bench
        .compact(CompactionCause::Overflow)
        .await
        .result
        .unwrap();
    assert_eq!(done.summary, Summary::Model);
    let carried = done
        .view
        .iter()
        .map(|row| own_text(row))
        .find(|text| text.contains("refactor"))
        .expect("the request");
    assert!(
        carried.starts_with("refactor everything\nplease"),
        "{carried}"
    );
    assert!(carried.ends_with("but keep the tests"), "{carried}");
}

#[tokio::test]
async fn old_tool_traffic_alone_is_shortened_without_a_model() {
    let model = FakeModel::new("aux", Reply::Fail(ErrorClass::Auth));
    let mut bench = Bench::new(&[&model]);
    bench.view = vec![user("look around")];
    for id in 0..40 {
        let mut rows = step(id, &"x".repeat(900), &[filler(id % 20, 500)]);
        if let Message::Assistant(assistant) = Arc::make_mut(&mut rows[0]) {
            assistant.blobs.push(WireBlob {
                kind: BlobKind::ResponsesReasoning,
                issuer: None,
                value: serde_json::json!({}),
            });
        }
        bench.view.extend(rows);
    }
    let done = bench
        .compact(CompactionCause::Automatic)
        .await
        .result
        .unwrap();
    assert_eq!(done.summary, Summary::None);
    assert_eq!(model.calls(), 0);
    assert_eq!(done.view.len(), 81);
    let Message::Assistant(AssistantMessage {
        tool_calls, blobs, ..
    }) = done.view[1].as_ref()
    else {
        panic!("an answer");
    };
    let arguments: serde_json::Value = serde_json::from_str(&tool_calls[0].arguments).unwrap();
    assert_eq!(arguments["path"], "f0_0.rs");
    assert!(arguments["note"].as_str().unwrap().len() < 200);
    assert!(
        blobs.is_empty(),
        "a verbatim copy would bring the text back"
    );
    let first = text_of(&done.view[2]);
    assert!(first.contains("later call call_20_0"), "{first}");
    let later = text_of(&done.view[2 + 2 * 20]);
    assert!(
        later.starts_with("[read_file(f20_0.rs) returned 2000 characters"),
        "{later}"
    );
    assert_eq!(
        text_of(done.view.last().unwrap()),
        filler(19, 500),
        "the newest stays"
    );
    bench.compactor.observe(bench.raw(), done.after_tokens);
    assert_eq!(bench.compactor.check(bench.raw()), CompactionDecision::Fits);
}

#[tokio::test]
async fn old_images_go_and_new_ones_stay() {
    let model = FakeModel::new("aux", Reply::Text("summary".into()));
    let mut bench = Bench::new(&[&model]);
    let picture = |text: &str| {
        Arc::new(Message::User(hermes_core::message::UserMessage {
            content: Content::Parts(vec![
                Part::text(text),
                Part::image("data:image/png;base64,AA"),
            ]),
            wire_text: None,
        }))
    };
    bench.view.pop();
    bench.view.extend([
        picture("first picture"),
        answer("seen"),
        picture("second picture"),
    ]);
    bench.compact(CompactionCause::Manual).await.result.unwrap();
    let images: usize = bench
        .view
        .iter()
        .map(|row| match row.as_ref() {
            Message::User(user) => user.content.image_count(),
            _ => 0,
        })
        .sum();
    assert_eq!(images, 1);
    assert_eq!(own_text(bench.view.last().unwrap()), "second picture");
}

#[tokio::test]
async fn the_main_model_helps_out_and_the_failure_is_told() {
    let aux = FakeModel::new("aux", Reply::Fail(ErrorClass::Auth));
    let main = FakeModel::new("main", Reply::Text("by main".into()));
    let mut bench = Bench::new(&[&aux, &main]);
    let outcome = bench.compact(CompactionCause::Automatic).await;
    assert_eq!(outcome.result.unwrap().summary, Summary::Model);
    assert_eq!((aux.calls(), main.calls()), (1, 1));
    assert!(outcome.notices[0].contains("aux"), "{:?}", outcome.notices);
    assert_eq!(summary_of(&bench.view), "by main");
}

#[tokio::test]
async fn the_same_route_is_not_asked_twice() {
    let main = FakeModel::new("main", Reply::Fail(ErrorClass::BadResponse));
    let mut bench = Bench::new(&[&main, &main]);
    bench
        .compact(CompactionCause::Automatic)
        .await
        .result
        .unwrap();
    assert_eq!(main.calls(), 1);
}

#[tokio::test]
async fn account_and_network_trouble_changes_nothing_and_waits() {
    for (class, seconds) in [
        (ErrorClass::Auth, 600.0),
        (ErrorClass::Billing, 600.0),
        (ErrorClass::RateLimit, 60.0),
        (ErrorClass::Unreachable, 60.0),
    ] {
        let model = FakeModel::new("aux", Reply::Fail(class));
        let mut bench = Bench::new(&[&model]);
        let before = bench.view.clone();
        let outcome = bench.compact(CompactionCause::Automatic).await;
        assert!(
            matches!(outcome.result, Err(SkippedCompaction::SummaryFailed(_))),
            "{class:?}"
        );
        assert_eq!(bench.view, before);
        let until = cooldowns(&outcome)[0].unwrap();
        assert!(
            (until - 1_800_000_000.0 - seconds).abs() < 0.01,
            "{class:?} {until}"
        );
        let CompactionDecision::Blocked { why: Some(_) } = bench.compactor.check(bench.raw())
        else {
            panic!("cooling down");
        };
        let again = bench.compactor.check(bench.raw());
        assert_eq!(
            again,
            CompactionDecision::Blocked { why: None },
            "told once"
        );
        bench.clock.advance(601);
        assert!(matches!(
            bench.compactor.check(bench.raw()),
            CompactionDecision::Compact { .. }
        ));
    }
}

#[tokio::test(start_paused = true)]
async fn a_hanging_model_times_out_with_growing_pauses() {
    let model = FakeModel::new("aux", Reply::Hang);
    let mut bench = Bench::new(&[&model]);
    for seconds in [60.0, 300.0, 900.0, 900.0] {
        bench.compactor.begin_turn();
        let outcome = bench.compact(CompactionCause::Automatic).await;
        assert!(matches!(
            outcome.result,
            Err(SkippedCompaction::SummaryFailed(_))
        ));
        let now = hermes_core::clock::Clock::epoch_seconds(bench.clock.as_ref());
        assert!((cooldowns(&outcome)[0].unwrap() - now - seconds).abs() < 0.01);
        bench.clock.advance(1_000);
    }
    model.next(Reply::Text("at last".into()));
    bench.compactor.begin_turn();
    let outcome = bench.compact(CompactionCause::Automatic).await;
    assert_eq!(outcome.result.as_ref().unwrap().summary, Summary::Model);
    assert_eq!(cooldowns(&outcome), [None], "the pause is cleared");
}

#[tokio::test]
async fn a_cancelled_summary_changes_nothing() {
    let model = FakeModel::new("aux", Reply::Hang);
    let mut bench = Bench::new(&[&model]);
    let cancel = CancellationToken::new();
    cancel.cancel();
    let outcome = bench
        .compact_until(CompactionCause::Automatic, &cancel)
        .await;
    assert_eq!(outcome.result.unwrap_err(), SkippedCompaction::Cancelled);
    assert!(outcome.updates.is_empty() && outcome.notices.is_empty());
    assert!(matches!(
        bench.compactor.check(bench.raw()),
        CompactionDecision::Compact { .. }
    ));
}

#[tokio::test]
async fn a_useless_answer_leads_to_a_digest_and_two_of_them_to_a_stop() {
    let model = FakeModel::new("aux", Reply::Text("  ".into()));
    let mut bench = Bench::new(&[&model]);
    let outcome = bench.compact(CompactionCause::Automatic).await;
    assert_eq!(outcome.result.unwrap().summary, Summary::Digest);
    let digest = summary_of(&bench.view);
    assert!(digest.chars().count() <= 8_000);
    assert!(digest.contains("- The user wrote: request"), "{digest}");
    bench.clock.advance(100);
    bench.compactor.begin_turn();
    bench.compactor.observe(bench.raw(), 5_000);
    bench.view.extend(conversation());
    let outcome = bench.compact(CompactionCause::Automatic).await;
    assert_eq!(outcome.result.unwrap().summary, Summary::Digest);
    bench.clock.advance(100);
    bench.view.extend(conversation());
    bench.compactor.begin_turn();
    let blocked = bench
        .compact(CompactionCause::Automatic)
        .await
        .result
        .unwrap_err();
    assert!(matches!(blocked, SkippedCompaction::Blocked(_)));
    // Another model starts afresh.
    let window = bench.compactor.window();
    bench.compactor.set_window(window);
    assert!(matches!(
        bench.compactor.check(bench.raw()),
        CompactionDecision::Compact { .. }
    ));
}

#[tokio::test]
async fn a_refused_prompt_is_condensed_even_when_the_network_is_bad() {
    let model = FakeModel::new("aux", Reply::Fail(ErrorClass::Server));
    let mut bench = Bench::new(&[&model]);
    let outcome = bench.compact(CompactionCause::Overflow).await;
    assert_eq!(outcome.result.unwrap().summary, Summary::Digest);
    let settings = CompressionSettings {
        abort_on_summary_failure: true,
        ..CompressionSettings::default()
    };
    let mut bench = Bench::with(settings, &[&model]);
    assert!(
        bench
            .compact(CompactionCause::Overflow)
            .await
            .result
            .is_err()
    );
}

#[tokio::test]
async fn without_any_model_it_waits() {
    let mut bench = Bench::new(&[]);
    let outcome = bench.compact(CompactionCause::Automatic).await;
    assert!(matches!(
        outcome.result,
        Err(SkippedCompaction::SummaryFailed(_))
    ));
    assert_eq!(cooldowns(&outcome).len(), 1);
}

#[tokio::test]
async fn two_compactions_without_effect_switch_it_off() {
    let model = FakeModel::new("aux", Reply::Text("s".into()));
    let mut bench = Bench::new(&[&model]);
    let threshold = bench.compactor.threshold();
    bench
        .compact(CompactionCause::Automatic)
        .await
        .result
        .unwrap();
    assert_eq!(bench.compactor.observe(bench.raw(), threshold + 10), None);
    bench.compactor.begin_turn();
    bench.view.extend(conversation());
    bench
        .compact(CompactionCause::Automatic)
        .await
        .result
        .unwrap();
    let notice = bench.compactor.observe(bench.raw(), threshold + 10);
    assert!(notice.unwrap().contains("no longer helps"));
    bench.compactor.begin_turn();
    bench.view.extend(conversation());
    assert!(matches!(
        bench.compactor.check(bench.raw()),
        CompactionDecision::Blocked { .. }
    ));
    // A person may still ask, and if that helps, it is on again.
    bench.compact(CompactionCause::Manual).await.result.unwrap();
    assert_eq!(bench.compactor.observe(bench.raw(), threshold / 3), None);
    bench.view.extend(conversation());
    bench.view.extend(conversation());
    assert!(matches!(
        bench.compactor.check(bench.raw()),
        CompactionDecision::Compact { .. }
    ));
}

#[tokio::test]
async fn growth_after_a_compaction_is_not_held_against_it() {
    let model = FakeModel::new("aux", Reply::Text("s".into()));
    let mut bench = Bench::new(&[&model]);
    let threshold = bench.compactor.threshold();
    for _ in 0..4 {
        bench.compactor.begin_turn();
        bench
            .compact(CompactionCause::Automatic)
            .await
            .result
            .unwrap();
        bench.view.push(answer("ok"));
        bench.view.push(user(filler(3, 30_000)));
        assert_eq!(
            bench.compactor.observe(bench.raw(), threshold + 9_000),
            None
        );
        bench.view.pop();
        bench.view.extend(conversation());
    }
}

#[tokio::test]
async fn the_attempts_of_a_turn_are_limited() {
    let model = FakeModel::new("aux", Reply::Text("s".into()));
    let mut bench = Bench::new(&[&model]);
    for _ in 0..3 {
        bench
            .compact(CompactionCause::Overflow)
            .await
            .result
            .unwrap();
        bench.view.extend(conversation());
    }
    let refused = bench
        .compact(CompactionCause::Overflow)
        .await
        .result
        .unwrap_err();
    assert!(matches!(refused, SkippedCompaction::Blocked(_)));
    bench.compactor.begin_turn();
    bench
        .compact(CompactionCause::Overflow)
        .await
        .result
        .unwrap();
}

#[tokio::test]
async fn nothing_to_gain_is_said_and_not_tried_again_at_once() {
    let model = FakeModel::new("aux", Reply::Text("s".into()));
    let mut bench = Bench::new(&[&model]);
    bench.view = vec![user("a"), answer("b"), user(filler(1, 27_000))];
    assert!(matches!(
        bench.compactor.check(bench.raw()),
        CompactionDecision::Compact { .. }
    ));
    let why = bench
        .compact(CompactionCause::Automatic)
        .await
        .result
        .unwrap_err();
    assert!(matches!(why, SkippedCompaction::NoGain(_)), "{why}");
    assert_eq!(model.calls(), 0);
    assert_eq!(bench.compactor.check(bench.raw()), CompactionDecision::Fits);
    bench.view = vec![user("hello"), answer("hi"), user("how are you")];
    let why = bench
        .compact(CompactionCause::Manual)
        .await
        .result
        .unwrap_err();
    assert!(matches!(why, SkippedCompaction::NoGain(_)), "{why}");
}

#[tokio::test]
async fn switched_off_means_not_by_itself() {
    let settings = CompressionSettings {
        enabled: false,
        ..CompressionSettings::default()
    };
    let model = FakeModel::new("aux", Reply::Text("s".into()));
    let mut bench = Bench::with(settings, &[&model]);
    assert_eq!(bench.compactor.check(bench.raw()), CompactionDecision::Fits);
    assert!(
        bench
            .compact(CompactionCause::Automatic)
            .await
            .result
            .is_err()
    );
    bench
        .compact(CompactionCause::Overflow)
        .await
        .result
        .unwrap();
}

#[tokio::test]
async fn a_small_helper_gets_what_it_can_read() {
    let aux = FakeModel::with_context("tiny", Reply::Text("s".into()), 4_000);
    let mut bench = Bench::new(&[&aux]);
    bench
        .compact(CompactionCause::Automatic)
        .await
        .result
        .unwrap();
    let request = aux.last_request();
    assert!(tokens::text(&request) < 3_500, "{}", tokens::text(&request));
    assert!(request.contains("AGENT: answer"));
}

#[tokio::test]
async fn a_resumed_session_remembers() {
    let model = FakeModel::new("aux", Reply::Text("s".into()));
    let mut bench = Bench::new(&[&model]);
    bench.compactor.restore(true, Some(1_800_000_050.0));
    assert!(matches!(
        bench.compactor.check(bench.raw()),
        CompactionDecision::Blocked { .. }
    ));
    bench.clock.advance(51);
    bench
        .compact(CompactionCause::Automatic)
        .await
        .result
        .unwrap();
    assert!(
        text_of(&bench.view[0]).starts_with(summary::OPEN),
        "no head after the first time"
    );
}

#[tokio::test]
async fn a_nudge_is_never_the_request() {
    let model = FakeModel::new("aux", Reply::Text("work so far".into()));
    let mut bench = Bench::new(&[&model]);
    let nudge = user("Go on.");
    bench.view.push(answer(filler(1, 500)));
    for id in 0..12 {
        bench.view.push(Arc::clone(&nudge));
        bench.view.push(answer(filler(id, 2_000)));
    }
    bench.view.push(Arc::clone(&nudge));
    bench.scaffolding = vec![Arc::clone(&nudge)];
    bench
        .compact(CompactionCause::Automatic)
        .await
        .result
        .unwrap();
    assert!(!model.last_request().contains("Go on."));
    let users: Vec<&Arc<Message>> = bench
        .view
        .iter()
        .filter(|row| matches!(row.as_ref(), Message::User(_)))
        .collect();
    let with_summary = users
        .iter()
        .position(|row| text_of(row).contains(summary::OPEN))
        .unwrap();
    assert_eq!(own_text(users[with_summary]), "the latest request");
    let after = &users[with_summary + 1..];
    assert!(
        after.iter().all(|row| Arc::ptr_eq(row, &nudge)),
        "nudges stay what they were"
    );
    assert!(Arc::ptr_eq(bench.view.last().unwrap(), &nudge));
}

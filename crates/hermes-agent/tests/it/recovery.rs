//! Failed calls.

use std::sync::Arc;
use std::time::Duration;

use hermes_core::event::{AgentCommand, AgentEvent, TurnExit, UserInput};
use hermes_core::message::{Message, Part};
use hermes_core::model::ErrorClass;
use hermes_core::store::SessionUpdate;
use hermes_core::usage::{Cost, Usage};
use pretty_assertions::assert_eq;
use tokio::time::Instant;

use crate::support::model::error;
use crate::support::{MemoryStore, Reply, ScriptedClient, ScriptedRouter, Setup};

#[tokio::test(start_paused = true)]
async fn pauses_grow_and_retries_end_with_the_reason() {
    let began = Instant::now();
    let mut session = Setup::new((0..4).map(|_| Reply::error(ErrorClass::Server))).start();
    let summary = session.turn("go").await;
    assert_eq!(
        summary.exit,
        TurnExit::Failed {
            class: ErrorClass::Server,
            message: "test (main): Server".into()
        }
    );
    assert_eq!(began.elapsed().as_secs(), 2 + 4 + 8);
    assert_eq!(summary.calls, 4);
}

#[tokio::test(start_paused = true)]
async fn a_success_in_between_counts_from_zero() {
    let replies = [
        Reply::error(ErrorClass::Server),
        Reply::error(ErrorClass::Server),
        Reply::error(ErrorClass::Server),
        Reply::text("ok"),
    ];
    let mut session = Setup::new(replies).start();
    assert_eq!(session.turn("go").await.exit, TurnExit::Answered);
}

#[tokio::test(start_paused = true)]
async fn the_whole_turn_has_one_limit_of_recoveries() {
    let mut session = Setup::new((0..3).map(|_| Reply::error(ErrorClass::Server)))
        .settings(|settings| {
            settings.api_max_retries = 100;
            settings.max_recoveries = 2;
        })
        .start();
    let summary = session.turn("go").await;
    assert!(matches!(summary.exit, TurnExit::Failed { .. }));
    assert_eq!(summary.calls, 3);
}

#[tokio::test(start_paused = true)]
async fn the_whole_turn_has_one_limit_of_lost_time() {
    let mut session = Setup::new((0..3).map(|_| Reply::error(ErrorClass::Server)))
        .settings(|settings| {
            settings.api_max_retries = 100;
            settings.recovery_time = Duration::from_secs(10);
        })
        .start();
    let summary = session.turn("go").await;
    assert!(matches!(summary.exit, TurnExit::Failed { .. }));
    assert_eq!(
        summary.calls, 3,
        "2 s and 4 s are waited, 8 s more would be too long"
    );
}

#[tokio::test(start_paused = true)]
async fn a_pause_ends_when_the_person_says_stop() {
    let mut session = Setup::new([Reply::error(ErrorClass::Server)]).start();
    session.send(AgentCommand::Submit("go".into())).await;
    session
        .until(|event| matches!(event, AgentEvent::Retrying { .. }).then_some(()))
        .await;
    let began = Instant::now();
    session.send(AgentCommand::Interrupt).await;
    assert_eq!(session.finish().await.exit, TurnExit::Interrupted);
    assert!(began.elapsed() < Duration::from_secs(2));
}

#[tokio::test(start_paused = true)]
async fn an_output_limit_lowers_max_tokens_and_nothing_else() {
    let mut cap = error(ErrorClass::OutputCap);
    cap.limit = Some(5_000);
    let mut session = Setup::new([Reply::failing(cap), Reply::text("ok")])
        .settings(|settings| settings.max_tokens = Some(64_000))
        .start();
    assert_eq!(session.turn("go").await.exit, TurnExit::Answered);
    assert_eq!(session.router.requests()[1].max_tokens, Some(4_936));
}

/// A refusal that nobody understands: the conversation goes out once more without reasoning and
/// images. If that is refused, too, both stay in later requests.
#[tokio::test(start_paused = true)]
async fn an_unexplained_refusal_is_tried_once_in_plain_form() {
    let refused = || {
        let mut refused = error(ErrorClass::Format);
        refused.status = Some(400);
        Reply::failing(refused)
    };
    let picture = || {
        AgentCommand::Submit(UserInput {
            images: vec![Part::image("data:image/png;base64,AAAA")],
            text: "look".into(),
            ..UserInput::default()
        })
    };
    let images = |session: &crate::support::Running, nth: usize| -> usize {
        let count = |message: &Message| match message {
            Message::User(user) => user.content.image_count(),
            _ => 0,
        };
        let requests = session.router.requests();
        requests[nth].messages.iter().map(|m| count(m)).sum()
    };
    let mut session = Setup::new([refused(), Reply::text("ok"), Reply::text("more")]).start();
    session.send(picture()).await;
    assert_eq!(session.finish().await.exit, TurnExit::Answered);
    assert_eq!(session.turn("and?").await.exit, TurnExit::Answered);
    assert_eq!([0, 1, 2].map(|nth| images(&session, nth)), [1, 0, 0]);

    let mut session = Setup::new([refused(), refused(), Reply::text("ok")]).start();
    session.send(picture()).await;
    assert!(matches!(
        session.finish().await.exit,
        TurnExit::Failed { .. }
    ));
    assert_eq!(session.turn("and?").await.exit, TurnExit::Answered);
    assert_eq!([0, 1, 2].map(|nth| images(&session, nth)), [1, 0, 1]);

    // With nothing to leave out there is no second request.
    let mut session = Setup::new([refused()]).start();
    assert!(matches!(
        session.turn("go").await.exit,
        TurnExit::Failed { .. }
    ));
    assert_eq!(session.router.requests().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn one_shot_fixes_are_applied_once() {
    for class in [
        ErrorClass::ImagesUnsupported,
        ErrorClass::ToolContentRejected,
        ErrorClass::ReasoningRejected,
        ErrorClass::SchemaRejected,
    ] {
        let mut session = Setup::new([Reply::error(class), Reply::text("ok")]).start();
        assert_eq!(
            session.turn("go").await.exit,
            TurnExit::Answered,
            "{class:?}"
        );
        let mut session = Setup::new([Reply::error(class), Reply::error(class)]).start();
        let exit = session.turn("go").await.exit;
        assert!(
            matches!(exit, TurnExit::Failed { .. }),
            "{class:?}: {exit:?}"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn an_overflow_that_cannot_be_mended_says_so() {
    let mut session = Setup::new([Reply::error(ErrorClass::ContextOverflow)]).start();
    let summary = session.turn("go").await;
    assert!(
        matches!(summary.exit, TurnExit::ContextFull { .. }),
        "{:?}",
        summary.exit
    );
}

#[tokio::test(start_paused = true)]
async fn the_fallback_chain_is_walked_to_its_end() {
    let router = ScriptedRouter::new(ScriptedClient::new(
        "main",
        [Reply::error(ErrorClass::Auth)],
    ))
    .fallback(ScriptedClient::new(
        "two",
        [Reply::error(ErrorClass::ModelNotFound)],
    ))
    .fallback(ScriptedClient::new(
        "three",
        [Reply::text("third time lucky")],
    ));
    let mut session = Setup::with_router(router).start();
    let summary = session.turn("go").await;
    assert_eq!(summary.text, "third time lucky");
}

#[tokio::test(start_paused = true)]
async fn the_money_cap_ends_the_turn_before_the_next_call() {
    let dear = Reply::new().usage(Some(Usage {
        input: 10,
        output: 1,
        reported_cost_usd: Some(0.75),
        ..Usage::default()
    }));
    let call = |n: u32| {
        dear.clone()
            .start_call(0, "look", &format!("{{\"n\":{n}}}"))
    };
    let replies = [1, 2].map(|n| call(n).finish(hermes_core::message::FinishReason::ToolCalls));
    let store = Arc::new(MemoryStore::default());
    let look = crate::support::FakeTool::saying("look", hermes_core::tool::Effects::ReadOnly, "ok");
    let mut session = Setup::new(replies)
        .tool(look)
        .store(store.clone())
        .settings(|settings| settings.max_cost_usd = Some(1.0))
        .start();
    let summary = session.turn("go").await;
    assert_eq!(summary.exit, TurnExit::CostCapReached { usd: 1.5 });
    assert_eq!(summary.cost, Cost::Actual { usd: 1.5 });
    let entries = store
        .updates()
        .into_iter()
        .filter(|update| matches!(update, SessionUpdate::Usage(_)))
        .count();
    assert_eq!(entries, 2, "each call is in the books");
}

#[tokio::test(start_paused = true)]
async fn a_cap_without_prices_is_reported_as_blind() {
    let client = ScriptedClient::new("main", [Reply::text("ok")]).info(|info| info.local = false);
    let mut session = Setup::with_router(ScriptedRouter::new(client))
        .settings(|settings| settings.max_cost_usd = Some(1.0))
        .start();
    let summary = session.turn("go").await;
    assert_eq!(summary.cost, Cost::Unknown);
    assert!(
        session
            .notices()
            .iter()
            .any(|text| text.contains("max_cost_usd"))
    );
}

#[tokio::test(start_paused = true)]
async fn images_that_are_refused_become_a_note() {
    let mut session = Setup::new([
        Reply::error(ErrorClass::ImagesUnsupported),
        Reply::text("I cannot see it"),
    ])
    .start();
    let input = UserInput {
        text: "look".into(),
        images: vec![Part::image("data:image/png;base64,AAAA")],
        ..UserInput::default()
    };
    session.send(AgentCommand::Submit(input)).await;
    assert_eq!(session.finish().await.exit, TurnExit::Answered);
    let requests = session.router.requests();
    let images = |nth: usize| match &*requests[nth].messages[0] {
        Message::User(user) => user.content.image_count(),
        other => panic!("{other:?}"),
    };
    assert_eq!((images(0), images(1)), (1, 0));
}

#[tokio::test(start_paused = true)]
async fn a_plan_without_long_contexts_compacts_to_the_normal_window() {
    let filler = || Reply::text(&"word ".repeat(2_000));
    let mut replies: Vec<Reply> = (0..12).map(|_| filler()).collect();
    replies.push(Reply::error(ErrorClass::LongContextTier));
    replies.push(Reply::text("ok"));
    let main = ScriptedClient::new("main", replies).info(|info| info.context_length = 1_000_000);
    let helper = ScriptedClient::new("helper", [Reply::text("## Goal\nTalk.")]);
    let mut session = Setup::with_router(ScriptedRouter::new(main).helper(helper)).start();
    for n in 0..12 {
        session.turn(&format!("request {n}")).await;
    }
    let summary = session.turn("and now").await;
    assert_eq!((summary.exit, summary.calls), (TurnExit::Answered, 2));
    let compacted = session
        .seen
        .iter()
        .any(|event| matches!(event, AgentEvent::Compacted { .. }));
    assert!(compacted);
}

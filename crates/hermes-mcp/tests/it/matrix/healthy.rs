//! The opposite direction: no session is lost, and tools fail in every way. Errors of one tool must
//! not affect the session or the other tools.

use hermes_mcp::{BreakerState, FailureClass, ReportedState};
use hermes_testkit::mcp_server::combination::Transport;
use hermes_testkit::mcp_server::shape::{Body, ErrorId, Extra, Framing, Shape, ShapeRng};
use serde_json::json;

use super::invariants::{Broken, effects};
use super::stage::Stage;
use super::time::with_virtual_time;
use crate::rig::call;

const ROUNDS: usize = 4;

/// Calls of a tool with this answer, each followed by a call of another tool.
fn beside_a_tool_that_answers(shape: &Shape) -> Vec<Broken> {
    with_virtual_time(|| async {
        let stage = Stage::set(Transport::Http, 1).await.unwrap();
        let before = stage.server.counts();
        let mut broken = Vec::new();
        let mut good = Vec::new();
        for round in 0..ROUNDS {
            let token = format!("bad{round}");
            let op = call(
                "answer",
                json!({"shape": shape.to_string(), "token": token}),
            );
            match stage.op(op).await {
                None => broken.push(("6 no call hangs", String::new())),
                Some(Ok(result)) if result["isError"] != true => {
                    broken.push(("an error is no success", result.to_string()));
                }
                Some(Err(error))
                    if !error.outcome_unknown && error.class() != FailureClass::Rpc =>
                {
                    broken.push(("3 what ran is not said not to have run", error.to_string()));
                }
                Some(_) => {}
            }
            good.push(stage.call().await);
        }
        stage.settle().await;
        if let Some(failed) = good.iter().find(|call| !call.is_ok()) {
            broken.push(("other tools work", failed.describe()));
        }
        broken.extend(effects(&stage, &good));
        let after = stage.server.counts();
        if after.calls - before.calls != 2 * ROUNDS {
            let count = after.calls - before.calls;
            broken.push(("each call is sent once", format!("{count} calls arrived")));
        }
        let status = stage.status();
        // An error text about the session is believed once for each tool.
        let made = after.sessions - before.sessions;
        let most = usize::from(shape.refuses());
        let own = shape.is_like_a_tools_own_error();
        if own && (status.epoch > 1 + most as u64 || made > most) {
            let details = format!("epoch {}, {made} new sessions", status.epoch);
            broken.push(("a healthy session is kept", details));
        }
        if status.state != ReportedState::Ready || status.breaker != BreakerState::Closed {
            let details = format!("{}, {}", status.state.name(), status.breaker.name());
            broken.push(("the status stays healthy", details));
        }
        broken
    })
}

#[track_caller]
fn check(shapes: impl Iterator<Item = Shape>) {
    let mut report = Vec::new();
    let mut count = 0;
    for shape in shapes {
        count += 1;
        for (rule, details) in beside_a_tool_that_answers(&shape) {
            report.push(format!("{rule}: {shape}\n    {details}"));
        }
    }
    report.sort();
    let all = report.len();
    report.truncate(30);
    assert!(
        all == 0,
        "{all} findings in {count}:\n{}",
        report.join("\n")
    );
}

#[test]
fn errors_of_tools_are_their_own_affair() {
    let dice = ShapeRng::new(5);
    let drawn = std::iter::repeat_with(|| Shape::draw(&dice, Some(200)))
        .filter(|shape| matches!(shape.framing, Framing::Plain | Framing::Events))
        .filter(Shape::is_like_a_tools_own_error);
    check(drawn.take(200));
}

#[test]
fn a_tool_that_breaks_its_answer_blocks_no_other() {
    let dice = ShapeRng::new(6);
    let drawn = std::iter::repeat_with(|| {
        let status = dice.pick(&[500, 500, 500, 502, 504, 520, 200]);
        Shape::draw(&dice, Some(status))
    });
    check(drawn.filter(Shape::can_come_late).take(100));
}

/// Over the older transport the error arrives on the stream.
#[test]
fn errors_of_tools_on_a_stream_are_their_own_affair() {
    for code in [-32000, -32001, -32600, -32601, -32602, -32603] {
        with_virtual_time(|| async {
            let stage = Stage::set(Transport::Sse, 1).await.unwrap();
            let before = stage.server.counts();
            for text in ["Session expired", "", "disk full"] {
                let op = call("fail", json!({"code": code, "text": text}));
                let error = stage.op(op).await.unwrap().unwrap_err();
                assert_eq!(error.class(), FailureClass::Rpc, "{code} {text}: {error:?}");
                assert!(stage.call().await.is_ok());
            }
            stage.settle().await;
            let after = stage.server.counts();
            // An error text about the session is believed once.
            assert!(after.sessions <= before.sessions + 1, "{code}");
            assert!(stage.status().epoch <= 2, "{code}");
            assert_eq!(after.calls, before.calls + 6, "{code}");
            assert_eq!(stage.status().state, ReportedState::Ready);
        });
    }
}

/// However often a tool reports this, one new session is made.
#[test]
fn a_tool_that_always_names_the_session_costs_one() {
    for transport in [Transport::Http, Transport::Sse] {
        with_virtual_time(|| async {
            let stage = Stage::set(transport, 1).await.unwrap();
            let before = stage.server.counts();
            for _ in 0..8 {
                let op = call("fail", json!({"code": -32000, "text": "Session expired"}));
                let error = stage.op(op).await.unwrap().unwrap_err();
                assert_eq!(error.class(), FailureClass::Rpc, "{error:?}");
            }
            stage.settle().await;
            let after = stage.server.counts();
            assert_eq!(after.sessions, before.sessions + 1, "{transport}");
            assert_eq!(after.calls, before.calls + 8, "{transport}");
            assert!(stage.call().await.is_ok());
        });
    }
}

/// These tests draw the shapes that the generator cannot distinguish from a tool's own error.
#[test]
fn a_tools_own_error_is_one_of_the_shapes() {
    let shape = Shape {
        status: 200,
        body: Body::Error {
            id: ErrorId::Right,
            code: -32001,
            words: "s0".parse().unwrap(),
        },
        framing: Framing::Plain,
        extra: Extra::None,
    };
    assert!(shape.is_like_a_tools_own_error() && shape.refuses());
}

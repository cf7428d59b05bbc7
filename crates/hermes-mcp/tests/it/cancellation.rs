//! Callers that are cancelled at the worst moment.

use hermes_mcp::{CallOptions, FailureClass};
use tokio::time::sleep;

use crate::fake::{Fault, World, call_tool, seconds, session_lost};

#[tokio::test(start_paused = true)]
async fn a_caller_that_cancels_as_the_refusal_arrives_is_cancelled() {
    for attempt in 0..8 {
        let world = World::ready().await;
        world.server.state().latency = seconds(1);
        world.server.fault(Fault::Refuse(session_lost()));
        let options = CallOptions::default();
        let cancel = options.cancel.clone();
        let call = world.handle.call(call_tool("write"), options);
        let leave = async {
            sleep(seconds(1)).await;
            // Before and after the answer is seen.
            for _ in 0..attempt {
                tokio::task::yield_now().await;
            }
            cancel.cancel();
        };
        let (result, ()) = tokio::join!(call, leave);
        let error = result.unwrap_err();
        assert_eq!(error.class(), FailureClass::Cancelled, "{attempt}");
        assert!(!error.outcome_unknown || !error.retried);
        assert!(world.server.seen().effects.is_empty());
    }
}

//! Many concurrent callers share one recovery.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use hermes_core::ask::DeclineAll;
use hermes_mcp::{
    CallOptions, CallOrigin, Certainty, FailureClass, LinkEvent, McpManager, Op, ReportedState,
    ServerSettings, TransportKind,
};
use tokio::time::{Instant, sleep};

use crate::fake::{
    FakeServer, Fault, TestClock, World, call_tool, failure, no_jitter, refused, reset, seconds,
    settings,
};

async fn hundred(world: &World) -> usize {
    let calls = (0..100).map(|_| world.call(call_tool("write")));
    let results = join_all(calls).await;
    results.iter().filter(|result| result.is_ok()).count()
}

#[tokio::test(start_paused = true)]
async fn a_hundred_calls_at_expiry_make_one_connect_and_all_succeed() {
    let mut settings = settings("fake");
    settings.max_concurrency = 100;
    let world = World::with(FakeServer::new(), settings).up().await;
    world.server.expire();
    assert_eq!(hundred(&world).await, 100);
    let seen = world.server.seen();
    assert_eq!(seen.connects.len(), 2);
    assert_eq!(seen.effects.len(), 100);
    let counters = world.handle.counters();
    assert_eq!(counters.joined, 99);
    assert_eq!(counters.retries["session_lost"], 100);
    assert_eq!(counters.reconnects["session_lost"], 1);
}

#[tokio::test(start_paused = true)]
async fn a_hundred_calls_at_expiry_through_eight_slots() {
    let mut settings = settings("fake");
    settings.max_concurrency = 8;
    let world = World::with(FakeServer::new(), settings).up().await;
    world.server.expire();
    assert_eq!(hundred(&world).await, 100);
    assert_eq!(world.server.connects(), 2);
}

/// Typical for a restart: 400 without an id, classified as refused.
#[tokio::test(start_paused = true)]
async fn a_hundred_calls_during_a_restart() {
    let world = World::ready().await;
    {
        let mut state = world.server.state();
        state.lost = failure(
            FailureClass::SessionLost,
            Certainty::Rejected,
            "HTTP 400: Bad Request: No valid session ID provided",
        );
        // Two attempts fail.
        state
            .connects_fail
            .extend([Some(refused()), Some(refused())]);
    }
    world.server.expire();
    assert_eq!(hundred(&world).await, 100);
    assert_eq!(world.server.connects(), 4);
    assert_eq!(world.server.seen().effects.len(), 100);
}

#[tokio::test(start_paused = true)]
async fn slow_streams_of_the_old_epoch_finish() {
    let mut settings = settings("fake");
    settings.max_concurrency = 20;
    let world = World::with(FakeServer::new(), settings).up().await;
    for _ in 0..8 {
        world.server.fault(Fault::Slow(seconds(20)));
    }
    let slow = join_all((0..8).map(|_| world.call(call_tool("read"))));
    let fast = async {
        sleep(seconds(1)).await;
        world.server.expire();
        world.call(call_tool("write")).await
    };
    let (slow, fast) = tokio::join!(slow, fast);
    assert!(slow.iter().all(Result::is_ok));
    fast.unwrap();
    let seen = world.server.seen();
    assert_eq!(seen.connects.len(), 2);
    assert_eq!(seen.effects.len(), 9);
    assert_eq!(world.handle.connection_status().epoch, 2);
}

/// An old link is closed eventually, even with calls on it.
#[tokio::test(start_paused = true)]
async fn the_old_link_is_closed_after_thirty_seconds() {
    let world = World::ready().await;
    world.server.fault(Fault::Hang);
    let hanging = world.call(call_tool("write"));
    let rest = async {
        sleep(seconds(1)).await;
        world.server.expire();
        world.call(Op::ListPrompts).await.unwrap();
        assert_eq!(world.server.seen().open_links, 2);
        sleep(seconds(31)).await;
        assert_eq!(world.server.seen().open_links, 1);
    };
    let (hung, ()) = tokio::join!(hanging, rest);
    let error = hung.unwrap_err();
    assert!(error.outcome_unknown, "{error}");
    assert_eq!(world.server.connects(), 2);
}

/// The number of old links is limited: retiring one more closes the oldest.
#[tokio::test(start_paused = true)]
async fn many_losses_in_a_row_leave_four_old_links() {
    let world = World::ready().await;
    let losses = async {
        for _ in 0..8 {
            sleep(Duration::from_millis(500)).await;
            world.server.expire();
            world.call(Op::ListPrompts).await.unwrap();
        }
    };
    let hanging = (0..8).map(|n| {
        let world = &world;
        async move {
            sleep(Duration::from_millis(10 + 600 * n)).await;
            world.server.fault(Fault::Hang);
            world.call(call_tool("write")).await
        }
    });
    let begin = Instant::now();
    let (results, ()) = tokio::join!(join_all(hanging), losses);
    assert!(results.iter().all(Result::is_err));
    assert!(begin.elapsed() < seconds(60), "{:?}", begin.elapsed());
    // The old ones, the live one, and briefly the next.
    assert!(world.server.seen().max_open <= 6);
}

#[tokio::test(start_paused = true)]
async fn a_late_report_of_an_old_epoch_does_nothing() {
    let world = World::ready().await;
    world.server.fault(Fault::Slow(seconds(5)));
    let late = world.call(call_tool("write"));
    let first = async {
        sleep(Duration::from_millis(100)).await;
        world.server.expire();
        world.call(Op::ListPrompts).await
    };
    let cut = async {
        sleep(seconds(2)).await;
        assert_eq!(world.handle.connection_status().epoch, 2);
        // The old link breaks while the slow call runs on it.
        world.server.first_link().fail(reset());
    };
    let (first, late, ()) = tokio::join!(first, late, cut);
    first.unwrap();
    assert!(late.unwrap_err().outcome_unknown);
    sleep(seconds(60)).await;
    assert_eq!(world.server.connects(), 2);
    assert_eq!(world.handle.connection_status().epoch, 2);
}

#[tokio::test(start_paused = true)]
async fn no_server_waits_for_the_connect_of_another() {
    let server = FakeServer::new();
    server.state().connect_latency = seconds(1);
    let specs = (0..50)
        .map(|n| server.spec(settings(&format!("s{n}"))))
        .collect();
    let begin = Instant::now();
    let manager = McpManager::start(specs, TestClock::new(), no_jitter());
    assert!(manager.wait_ready(seconds(30)).await);
    assert!(begin.elapsed() < seconds(2), "{:?}", begin.elapsed());
    assert!(
        manager
            .status()
            .iter()
            .all(|s| s.state == ReportedState::Ready)
    );
}

/// Neither their first connect nor a recovery.
#[tokio::test(start_paused = true)]
async fn hanging_servers_do_not_hold_up_the_others() {
    let (hanging, well) = (FakeServer::new(), FakeServer::new());
    hanging.state().connect_latency = seconds(3600);
    let mut specs: Vec<_> = (0..8)
        .map(|n| hanging.spec(settings(&format!("a{n}"))))
        .collect();
    specs.push(well.spec(settings("z")));
    let manager = McpManager::start(specs, TestClock::new(), no_jitter());
    let begin = Instant::now();
    let handle = manager.server("z").unwrap();
    assert_eq!(handle.settled().await.state.name(), "ready");
    assert_eq!(begin.elapsed(), Duration::from_millis(60));
    well.expire();
    let begin = Instant::now();
    let options = CallOptions::default();
    handle.call(call_tool("write"), options).await.unwrap();
    // Refused, connected, listed, called.
    assert_eq!(begin.elapsed(), Duration::from_millis(80));
}

#[tokio::test(start_paused = true)]
async fn cancelling_half_of_the_waiters_leaves_the_other_half() {
    let world = World::ready().await;
    world.server.state().connect_latency = seconds(2);
    world.server.expire();
    let calls = (0..100).map(|n| {
        let options = CallOptions::default();
        let cancel = options.cancel.clone();
        let handle = &world.handle;
        async move {
            let leave = async {
                if n % 2 == 0 {
                    sleep(seconds(1)).await;
                    cancel.cancel();
                }
            };
            tokio::join!(handle.call(call_tool("write"), options), leave).0
        }
    });
    let results = join_all(calls).await;
    let cancelled = results
        .iter()
        .filter(|r| matches!(r, Err(error) if error.class() == FailureClass::Cancelled));
    assert_eq!(cancelled.count(), 50);
    assert_eq!(results.iter().filter(|r| r.is_ok()).count(), 50);
    let seen = world.server.seen();
    assert_eq!((seen.connects.len(), seen.effects.len()), (2, 50));
}

#[tokio::test(start_paused = true)]
async fn dropping_a_call_cancels_the_request() {
    let world = World::ready().await;
    world.server.fault(Fault::Hang);
    let call = tokio::time::timeout(seconds(1), world.call(call_tool("write")));
    assert!(call.await.is_err());
    sleep(Duration::from_millis(1)).await;
    assert_eq!(world.server.seen().cancelled, 1);
    assert_eq!(world.handle.status().inflight, 0);
}

#[tokio::test(start_paused = true)]
async fn a_flood_of_list_changes_is_one_refresh_at_a_time() {
    let world = World::ready().await;
    let before = world.server.seen().count("list_tools");
    for _ in 0..3000 {
        world.server.send_event(LinkEvent::ToolsChanged);
        sleep(Duration::from_millis(1)).await;
    }
    sleep(seconds(5)).await;
    let refreshes = world.server.seen().count("list_tools") - before;
    assert!((1..=7).contains(&refreshes), "{refreshes}");
}

#[tokio::test(start_paused = true)]
async fn a_changed_list_is_published() {
    let world = World::ready().await;
    let mut catalogue = world.handle.catalogue();
    let first = catalogue.borrow_and_update().clone().unwrap();
    world.server.state().tools.push(crate::fake::tool("new"));
    world.server.send_event(LinkEvent::ToolsChanged);
    catalogue.changed().await.unwrap();
    let second = catalogue.borrow().clone().unwrap();
    assert!(!first.has_tool("new") && second.has_tool("new"));
    assert_eq!((first.epoch, second.epoch), (1, 1));
    assert!(second.revision > first.revision);
}

#[tokio::test(start_paused = true)]
async fn sixteen_calls_really_run_in_parallel() {
    let mut settings = settings("fake");
    settings.max_concurrency = 16;
    let world = World::with(FakeServer::new(), settings).up().await;
    world.server.state().latency = Duration::from_millis(200);
    let begin = Instant::now();
    join_all((0..16).map(|_| world.call(call_tool("read")))).await;
    assert_eq!(begin.elapsed(), Duration::from_millis(200));
}

#[tokio::test(start_paused = true)]
async fn a_server_that_takes_one_call_gets_one_after_another_in_order() {
    let mut settings = ServerSettings::new("fake", TransportKind::Stdio, String::new());
    settings.max_concurrency = 1;
    let world = World::with(FakeServer::new(), settings).up().await;
    world.server.state().latency = seconds(1);
    world.server.state().tools = ["a", "b", "c"].map(crate::fake::tool).to_vec();
    let begin = Instant::now();
    let calls = ["a", "b", "c"].map(|name| world.call(call_tool(name)));
    join_all(calls).await;
    assert_eq!(begin.elapsed(), seconds(3));
    assert_eq!(world.server.seen().effects, ["a", "b", "c"]);
}

#[tokio::test(start_paused = true)]
async fn the_wait_in_the_queue_is_part_of_the_deadline() {
    let mut settings = ServerSettings::new("fake", TransportKind::Stdio, String::new());
    settings.timeout = seconds(10);
    settings.max_concurrency = 1;
    let world = World::with(FakeServer::new(), settings).up().await;
    world.server.fault(Fault::Progress(seconds(5), 4));
    let long = world.call(call_tool("write"));
    let queued = async {
        sleep(seconds(1)).await;
        let begin = Instant::now();
        let error = world.call(call_tool("read")).await.unwrap_err();
        assert_eq!(begin.elapsed(), seconds(10));
        error
    };
    let (long, queued) = tokio::join!(long, queued);
    long.unwrap();
    assert_eq!(queued.class(), FailureClass::Unavailable);
    assert_eq!(queued.failure.certainty, Certainty::NotSent);
    assert_eq!(world.server.connects(), 1);
}

/// On real threads: many callers, a server that keeps dropping sessions, and no effect lost or
/// repeated.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn real_threads_lose_nothing() {
    let server = FakeServer::new();
    {
        let mut state = server.state();
        state.latency = Duration::ZERO;
        state.connect_latency = Duration::ZERO;
    }
    let world = World::with(server, settings("fake")).up().await;
    let expiries = async {
        for _ in 0..100 {
            let before = world.handle.connection_status().epoch;
            world.server.expire();
            // Each epoch works once before it ends, otherwise the server would count as flapping.
            world.call(Op::ListPrompts).await.unwrap();
            assert!(world.handle.connection_status().epoch > before);
        }
    };
    let callers = (0..20).map(|_| {
        let handle = world.handle.clone();
        hermes_core::task::spawn("caller", async move {
            let (mut ran, mut unknown) = (0, 0);
            for _ in 0..200 {
                match handle
                    .call(call_tool("write"), CallOptions::default())
                    .await
                {
                    Ok(_) => ran += 1,
                    // Two epochs ended during the call.
                    Err(error) if error.outcome_unknown => unknown += 1,
                    Err(error) => {
                        assert!(error.retried, "{error}");
                        assert_eq!(error.class(), FailureClass::SessionLost, "{error}");
                    }
                }
            }
            (ran, unknown)
        })
    });
    let (callers, ()) = tokio::join!(join_all(callers), expiries);
    let (mut ran, mut unknown) = (0_usize, 0_usize);
    for caller in callers {
        let (more, open) = caller.unwrap().unwrap();
        ran += more;
        unknown += open;
    }
    let seen = world.server.seen();
    assert!((ran..=ran + unknown).contains(&seen.effects.len()));
    assert!(ran > 2000, "{ran}");
    assert!(seen.epochs.is_sorted());
    assert_eq!(world.handle.status().inflight, 0);
}

/// A call from one of several conversations.
async fn call_of(world: &World, conversation: &str) -> bool {
    let options = CallOptions {
        origin: Some(CallOrigin {
            session: conversation.to_owned(),
            asker: Arc::new(DeclineAll),
        }),
        ..CallOptions::default()
    };
    world.handle.call(call_tool("read"), options).await.is_ok()
}

/// The defaults suit a gateway: thirty-two conversations on one server, in one round.
#[tokio::test(start_paused = true)]
async fn conversations_do_not_wait_for_each_other() {
    for transport in [TransportKind::Http, TransportKind::Stdio] {
        let settings = ServerSettings::new("fake", transport, "one".to_owned());
        let world = World::with(FakeServer::new(), settings).up().await;
        world.server.state().latency = Duration::from_millis(200);
        let begin = Instant::now();
        let names: Vec<String> = (0..32).map(|n| n.to_string()).collect();
        let done = join_all(names.iter().map(|name| call_of(&world, name))).await;
        assert!(done.into_iter().all(|done| done));
        assert!(
            begin.elapsed() < Duration::from_millis(300),
            "{:?}",
            begin.elapsed()
        );
    }
}

/// A conversation with many calls delays the first call of another by at most one call.
#[tokio::test(start_paused = true)]
async fn a_busy_conversation_leaves_room_for_others() {
    let mut settings = settings("fake");
    settings.max_concurrency = 4;
    let world = World::with(FakeServer::new(), settings).up().await;
    world.server.state().latency = Duration::from_millis(200);
    let busy = join_all((0..100).map(|_| call_of(&world, "busy")));
    let quiet = async {
        sleep(Duration::from_millis(50)).await;
        let begin = Instant::now();
        assert!(call_of(&world, "quiet").await);
        begin.elapsed()
    };
    let (busy, waited) = tokio::join!(busy, quiet);
    assert!(busy.into_iter().all(|done| done));
    assert!(waited < Duration::from_millis(450), "{waited:?}");
}

/// A throttling server gets fewer concurrent calls, and more again once it keeps up.
#[tokio::test(start_paused = true)]
async fn a_server_that_is_asked_too_often_gets_fewer_calls_at_once() {
    let world = World::ready().await;
    world.server.state().latency = Duration::from_millis(100);
    let throttled = failure(
        FailureClass::Throttled,
        Certainty::Rejected,
        "HTTP 429: Too Many Requests",
    );
    for _ in 0..16 {
        world.server.fault(Fault::Refuse(throttled.clone()));
    }
    let names: Vec<String> = (0..16).map(|n| n.to_string()).collect();
    let all = || join_all(names.iter().map(|name| call_of(&world, name)));
    all().await;
    let begin = Instant::now();
    assert!(all().await.into_iter().all(|done| done));
    let narrow = begin.elapsed();
    assert!(
        narrow >= Duration::from_millis(200),
        "all at once: {narrow:?}"
    );
    for _ in 0..40 {
        all().await;
    }
    let begin = Instant::now();
    all().await;
    assert!(
        begin.elapsed() < Duration::from_millis(150),
        "{:?}",
        begin.elapsed()
    );
}

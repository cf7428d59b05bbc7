//! Connecting, disconnecting and reconnecting; config changes; shutdown.

use std::time::Duration;

use hermes_mcp::{
    CallOptions, Certainty, Era, EventKind, FailureClass, LinkState, McpFailure, McpManager, Op,
    ReportedState, ServerSettings, TransportKind,
};
use tokio::time::{Instant, sleep};

use crate::fake::{
    FakeServer, Fault, TestClock, World, call_tool, failure, no_jitter, refused, reset, seconds,
    settings, tool,
};

fn needs_auth() -> McpFailure {
    failure(FailureClass::NeedsAuth, Certainty::Rejected, "no tokens")
}

fn stdio() -> ServerSettings {
    ServerSettings::new("fake", TransportKind::Stdio, "a".to_owned())
}

fn down() -> World {
    let server = FakeServer::new();
    server.state().down = Some(refused());
    World::with(server, settings("fake"))
}

#[tokio::test(start_paused = true)]
async fn start_does_not_wait() {
    let server = FakeServer::new();
    server.state().connect_latency = seconds(20);
    let begin = Instant::now();
    let world = World::with(server, settings("fake"));
    assert_eq!(begin.elapsed(), Duration::ZERO);
    assert!(!world.manager.wait_ready(Duration::from_millis(1500)).await);
    assert_eq!(begin.elapsed(), Duration::from_millis(1500));
    assert!(world.manager.wait_ready(seconds(60)).await);
}

#[tokio::test(start_paused = true)]
async fn a_server_that_comes_up_later_gets_its_tools_and_one_link() {
    let world = down();
    world.until("parked").await;
    assert!(world.handle.catalogue().borrow().is_none());
    world.server.state().down = None;
    world.until("ready").await;
    let seen = world.server.seen();
    assert_eq!((seen.epochs.len(), seen.open_links), (1, 1));
    let catalogue = world.handle.catalogue();
    assert!(catalogue.borrow().as_ref().unwrap().has_tool("write"));
}

#[tokio::test(start_paused = true)]
async fn the_backoff_doubles_and_parks_after_five() {
    let world = down();
    let begin = Instant::now();
    world.until("parked").await;
    let seen = world.server.seen();
    let pauses: Vec<u64> = seen
        .connects
        .windows(2)
        .map(|pair| (pair[1] - pair[0]).as_secs())
        .collect();
    assert_eq!(pauses, [1, 2, 4, 8]);
    assert_eq!(begin.elapsed().as_secs(), 15);
    // One attempt per wake-up, forever.
    sleep(Duration::from_hours(1)).await;
    assert_eq!(world.server.connects(), 5 + 59);
    assert_eq!(world.state(), "parked");
}

#[tokio::test(start_paused = true)]
async fn a_call_wakes_a_parked_server() {
    let world = down();
    world.until("parked").await;
    world.server.state().down = None;
    world.call(call_tool("write")).await.unwrap();
    assert_eq!(world.handle.counters().reconnects["call"], 1);
}

/// Its tools are unknown, so no call can wake it.
#[tokio::test(start_paused = true)]
async fn a_turn_wakes_a_parked_server_that_was_never_up() {
    let world = down();
    world.until("parked").await;
    let tries = world.server.connects();
    for _ in 0..3 {
        world.handle.retry_if_parked(seconds(1)).await;
    }
    assert_eq!(world.server.connects(), tries + 1, "not for every turn");
    assert_eq!(world.state(), "parked");
    sleep(seconds(6)).await;
    world.server.state().down = None;
    world.handle.retry_if_parked(seconds(1)).await;
    assert_eq!(world.state(), "ready");
    let tries = world.server.connects();
    world.handle.retry_if_parked(seconds(1)).await;
    assert_eq!(world.server.connects(), tries);
}

#[tokio::test(start_paused = true)]
async fn all_calls_that_find_it_parked_share_the_waking() {
    let world = down();
    world.until("parked").await;
    world.server.state().down = None;
    let calls = (0..50).map(|_| world.call(Op::ListPrompts));
    let results = futures_util::future::join_all(calls).await;
    assert!(results.iter().all(Result::is_ok));
    assert_eq!(world.server.connects(), 6);
}

#[tokio::test(start_paused = true)]
async fn calls_to_a_parked_server_try_it_once_a_second_and_say_why() {
    let world = down();
    world.until("parked").await;
    let begin = Instant::now();
    for _ in 0..100 {
        let error = world.call(call_tool("write")).await.unwrap_err();
        assert_eq!(error.class(), FailureClass::Unavailable);
        assert!(error.to_string().contains("connection refused"), "{error}");
    }
    // Each of them triggered an attempt: five were made before.
    assert!(begin.elapsed() <= seconds(100));
    assert_eq!(world.server.connects(), 105);
}

#[tokio::test(start_paused = true)]
async fn a_blackholed_parked_server_costs_seconds_not_a_minute() {
    let world = down();
    world.until("parked").await;
    world.server.state().connect_latency = seconds(50);
    let begin = Instant::now();
    world.call(call_tool("write")).await.unwrap_err();
    assert_eq!(begin.elapsed(), seconds(3));
}

#[tokio::test(start_paused = true)]
async fn calls_wait_for_a_short_backoff() {
    let server = FakeServer::new();
    server
        .state()
        .connects_fail
        .extend([Some(refused()), Some(refused())]);
    let world = World::with(server, settings("fake"));
    world.call(call_tool("write")).await.unwrap();
    assert_eq!(world.server.connects(), 3);
}

#[tokio::test(start_paused = true)]
async fn what_cannot_work_is_parked_at_once_with_the_reason() {
    let server = FakeServer::new();
    server.state().down = Some(failure(
        FailureClass::Permanent,
        Certainty::NotSent,
        "no such program: npxx",
    ));
    let world = World::with(server, settings("fake"));
    world.until("parked").await;
    assert_eq!(world.server.connects(), 1);
    let status = world.handle.status();
    assert_eq!(status.why.as_deref(), Some("no such program: npxx"));
    assert!(status.next_attempt_in.unwrap() > seconds(40));
    // The server becomes available.
    world.server.state().down = None;
    world.call(call_tool("write")).await.unwrap();
}

/// Connects and breaks at once, forever: a successful handshake alone does not reset the backoff.
#[tokio::test(start_paused = true)]
async fn a_flapping_server_is_parked() {
    let world = World::with(FakeServer::new(), stdio());
    let flap = async {
        loop {
            world.until("ready").await;
            world.server.kill(reset());
            world.until("connecting").await;
        }
    };
    let _ = tokio::time::timeout(seconds(600), flap).await;
    let count = world.server.connects();
    assert!(count <= 6, "{count} in ten minutes");
    assert_eq!(world.state(), "parked");
}

/// Links that worked before they broke do not count as flapping.
#[tokio::test(start_paused = true)]
async fn a_proven_server_is_always_reconnected_at_once() {
    let world = World::ready().await;
    for round in 0..30 {
        world.call(Op::ListPrompts).await.unwrap();
        world.server.kill(reset());
        sleep(seconds(1)).await;
        assert_eq!(world.state(), "ready", "{round}");
    }
    assert_eq!(world.server.connects(), 31);
}

#[tokio::test(start_paused = true)]
async fn a_link_that_lasted_is_proven_too() {
    let world = World::ready().await;
    for _ in 0..10 {
        sleep(seconds(181)).await;
        world.server.kill(reset());
        sleep(seconds(1)).await;
        assert_eq!(world.state(), "ready");
    }
}

#[tokio::test(start_paused = true)]
async fn a_restart_with_other_tools_and_another_era_is_taken_over() {
    let world = World::ready().await;
    {
        let mut state = world.server.state();
        state.tools = vec![tool("write"), tool("new")];
        state.era = Era::Modern;
    }
    world.server.expire();
    world.call(call_tool("write")).await.unwrap();
    let catalogue = world.handle.catalogue().borrow().clone().unwrap();
    assert!(catalogue.has_tool("new") && !catalogue.has_tool("read"));
    assert_eq!((catalogue.epoch, catalogue.facts.era), (2, Era::Modern));
}

#[tokio::test(start_paused = true)]
async fn lists_are_public_before_the_state_says_ready() {
    let world = World::new();
    let mut events = world.manager.events();
    let mut order = Vec::new();
    while order.len() < 2 {
        match events.recv().await.unwrap().kind {
            EventKind::Catalogue { .. } => order.push("catalogue"),
            EventKind::State(status) if status.state == LinkState::Ready => {
                order.push("ready");
            }
            _ => {}
        }
    }
    assert_eq!(order, ["catalogue", "ready"]);
}

#[tokio::test(start_paused = true)]
async fn the_old_child_is_gone_before_the_new_one_starts() {
    let world = World::with(FakeServer::new(), stdio()).up().await;
    world.server.state().close_latency = seconds(3);
    for _ in 0..5 {
        world.call(Op::ListPrompts).await.unwrap();
        world.server.kill(reset());
        world.call(Op::ListPrompts).await.unwrap();
    }
    assert_eq!(world.server.seen().max_open, 1);
}

#[tokio::test(start_paused = true)]
async fn a_child_that_dies_during_a_call_leaves_the_outcome_open() {
    let world = World::with(FakeServer::new(), stdio()).up().await;
    world.server.fault(Fault::Slow(seconds(10)));
    let (result, ()) = tokio::join!(world.call(call_tool("write")), async {
        sleep(seconds(1)).await;
        world.server.kill(reset());
    });
    assert!(result.unwrap_err().outcome_unknown);
    world.call(call_tool("write")).await.unwrap();
    assert_eq!(world.server.seen().effects, ["write"]);
}

#[tokio::test(start_paused = true)]
async fn a_login_is_awaited_and_found() {
    let server = FakeServer::new();
    server.state().down = Some(needs_auth());
    server.state().login = true;
    let world = World::with(server, settings("fake"));
    world.until("needs_auth").await;
    let error = world.call(call_tool("write")).await.unwrap_err();
    assert!(error.to_string().contains("hermes mcp login fake"));
    assert!(world.handle.status().needs_auth);
    world.server.state().down = None;
    world.handle.auth_changed();
    world.until("ready").await;
    assert_eq!(
        world.server.connects(),
        3,
        "at first, for the call, after the login"
    );
    world.call(call_tool("write")).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn tokens_that_arrive_during_an_attempt_are_not_missed() {
    let server = FakeServer::new();
    server.state().connect_latency = seconds(2);
    server.state().connects_fail.push_back(Some(needs_auth()));
    let world = World::with(server, settings("fake"));
    sleep(seconds(1)).await;
    world.handle.auth_changed();
    sleep(seconds(4)).await;
    assert_eq!(world.state(), "ready");
}

#[tokio::test(start_paused = true)]
async fn a_lost_notice_of_new_tokens_costs_minutes_at_most() {
    let server = FakeServer::new();
    server.state().connects_fail.push_back(Some(needs_auth()));
    let world = World::with(server, settings("fake"));
    world.until("needs_auth").await;
    sleep(seconds(301)).await;
    assert_eq!(world.state(), "ready");
}

#[tokio::test(start_paused = true)]
async fn a_401_in_the_handshake_is_tried_once_with_another_token() {
    let expired = failure(FailureClass::AuthExpired, Certainty::Rejected, "HTTP 401");
    let server = FakeServer::new();
    server
        .state()
        .connects_fail
        .push_back(Some(expired.clone()));
    let world = World::with(server, settings("fake"));
    world.until("ready").await;
    assert_eq!(world.server.connects(), 2);

    let server = FakeServer::new();
    server.state().down = Some(expired);
    let world = World::with(server, settings("fake"));
    world.until("needs_auth").await;
    assert_eq!(world.server.connects(), 2);
}

#[tokio::test(start_paused = true)]
async fn an_unchanged_config_touches_nothing() {
    let world = World::ready().await;
    world
        .manager
        .apply(vec![world.server.spec(settings("fake"))]);
    sleep(seconds(10)).await;
    assert_eq!(world.server.connects(), 1);
}

#[tokio::test(start_paused = true)]
async fn of_two_servers_with_one_name_the_first_counts() {
    let world = World::ready().await;
    let other = FakeServer::new();
    let specs = vec![
        world.server.spec(settings("fake")),
        other.spec(settings("fake")),
    ];
    world.manager.apply(specs);
    sleep(seconds(10)).await;
    assert_eq!((world.server.connects(), other.connects()), (1, 0));
}

#[tokio::test(start_paused = true)]
async fn other_settings_apply_without_a_new_link() {
    let world = World::ready().await;
    let mut changed = settings("fake");
    changed.timeout = seconds(2);
    changed.keepalive_interval = Duration::ZERO;
    world.manager.apply(vec![world.server.spec(changed)]);
    sleep(seconds(1)).await;
    world.server.fault(Fault::Hang);
    let begin = Instant::now();
    world.call(call_tool("write")).await.unwrap_err();
    assert_eq!(begin.elapsed(), seconds(2));
    assert_eq!(world.server.connects(), 1);
}

#[tokio::test(start_paused = true)]
async fn another_url_swaps_the_link_and_running_calls_finish() {
    let world = World::ready().await;
    world.server.fault(Fault::Slow(seconds(20)));
    let change = async {
        sleep(seconds(1)).await;
        let mut changed = settings("fake");
        changed.fingerprint = "another url".to_owned();
        world.manager.apply(vec![world.server.spec(changed)]);
        sleep(seconds(1)).await;
        world.call(call_tool("read")).await.unwrap();
        assert_eq!(world.handle.connection_status().epoch, 2);
    };
    let (slow, ()) = tokio::join!(world.call(call_tool("write")), change);
    slow.unwrap();
    sleep(seconds(1)).await;
    assert_eq!(world.server.seen().open_links, 1);
}

#[tokio::test(start_paused = true)]
async fn a_change_during_an_attempt_starts_it_anew() {
    let (old, new) = (FakeServer::new(), FakeServer::new());
    old.state().connect_latency = seconds(50);
    let world = World::with(old, settings("fake"));
    sleep(seconds(1)).await;
    let mut changed = settings("fake");
    changed.fingerprint = "another url".to_owned();
    world.manager.apply(vec![new.spec(changed)]);
    world.until("ready").await;
    let old = world.server.seen();
    assert_eq!((old.connecting, old.open_links), (0, 0));
    assert_eq!(new.connects(), 1);
}

#[tokio::test(start_paused = true)]
async fn disabling_lets_the_running_call_finish() {
    let world = World::ready().await;
    world.server.fault(Fault::Slow(seconds(10)));
    let change = async {
        sleep(seconds(1)).await;
        let mut changed = settings("fake");
        changed.enabled = false;
        world.manager.apply(vec![world.server.spec(changed)]);
        world.until("disabled").await;
        let error = world.call(call_tool("read")).await.unwrap_err();
        assert_eq!(error.class(), FailureClass::Unavailable);
    };
    let (slow, ()) = tokio::join!(world.call(call_tool("write")), change);
    slow.unwrap();
    world
        .manager
        .apply(vec![world.server.spec(settings("fake"))]);
    world.until("ready").await;
}

#[tokio::test(start_paused = true)]
async fn a_removed_server_stops_after_its_calls() {
    let world = World::ready().await;
    world.server.fault(Fault::Slow(seconds(10)));
    let remove = async {
        sleep(seconds(1)).await;
        world.manager.apply(Vec::new());
        assert!(world.manager.server("fake").is_none());
    };
    let (slow, ()) = tokio::join!(world.call(call_tool("write")), remove);
    slow.unwrap();
    sleep(seconds(1)).await;
    assert_eq!(world.server.seen().open_links, 0);
}

#[tokio::test(start_paused = true)]
async fn shutdown_keeps_its_deadline_with_a_hung_server() {
    let world = World::ready().await;
    world.server.fault(Fault::Hang);
    world.server.state().close_latency = seconds(3600);
    let end = async {
        sleep(seconds(1)).await;
        let begin = Instant::now();
        world.manager.shutdown(seconds(10)).await;
        assert!(begin.elapsed() <= seconds(10));
    };
    let call = tokio::time::timeout(seconds(60), world.call(call_tool("write")));
    let (_, ()) = tokio::join!(call, end);
    assert_eq!(world.state(), "stopped");
}

#[tokio::test(start_paused = true)]
async fn shutdown_hurries_a_removed_server() {
    let world = World::ready().await;
    world.server.fault(Fault::Hang);
    let end = async {
        sleep(seconds(1)).await;
        world.manager.apply(Vec::new());
        sleep(seconds(1)).await;
        let begin = Instant::now();
        world.manager.shutdown(seconds(4)).await;
        assert!(begin.elapsed() <= seconds(4));
        assert_eq!(world.server.seen().open_links, 0);
    };
    let call = tokio::time::timeout(seconds(60), world.call(call_tool("write")));
    let (_, ()) = tokio::join!(call, end);
}

#[tokio::test(start_paused = true)]
async fn shutdown_ends_an_attempt() {
    let server = FakeServer::new();
    server.state().connect_latency = seconds(50);
    let world = World::with(server, settings("fake"));
    sleep(seconds(1)).await;
    let begin = Instant::now();
    world.manager.shutdown(seconds(10)).await;
    assert!(begin.elapsed() < seconds(1));
    assert_eq!(world.server.seen().connecting, 0);
}

#[tokio::test(start_paused = true)]
async fn an_unused_child_is_recycled_and_comes_back_with_the_next_call() {
    let mut settings = stdio();
    settings.idle_timeout = Some(seconds(60));
    let world = World::with(FakeServer::new(), settings).up().await;
    world.call(Op::ListPrompts).await.unwrap();
    world.until("recycled").await;
    assert_eq!(world.server.seen().open_links, 0);
    assert!(world.handle.catalogue().borrow().is_some());
    sleep(Duration::from_hours(1)).await;
    assert_eq!(world.state(), "recycled");
    world.call(call_tool("write")).await.unwrap();
    assert_eq!(world.server.connects(), 2);
}

#[tokio::test(start_paused = true)]
async fn an_old_child_is_recycled_when_its_call_is_done() {
    let mut settings = stdio();
    settings.max_lifetime = Some(seconds(60));
    let world = World::with(FakeServer::new(), settings).up().await;
    world.server.fault(Fault::Slow(seconds(90)));
    world.call(call_tool("write")).await.unwrap();
    world.until("recycled").await;
    assert_eq!(world.server.seen().effects, ["write"]);
}

#[tokio::test(start_paused = true)]
async fn a_server_without_a_list_of_tools_is_not_ready() {
    let server = FakeServer::new();
    server.state().list = Some(Fault::Hang);
    let world = World::with(server, settings("fake"));
    world.until("backoff").await;
    let why = world.handle.status().why.unwrap();
    assert!(why.contains("no list of tools"), "{why}");
    assert_eq!(world.server.seen().open_links, 0);
    world.server.state().list = None;
    world.until("ready").await;
}

#[tokio::test(start_paused = true)]
async fn a_bug_in_a_connector_does_not_end_the_server() {
    let server = FakeServer::new();
    server.state().connect_bugs = 3;
    let world = World::with(server, settings("fake"));
    world.until("ready").await;
    world.call(call_tool("write")).await.unwrap();
    world.server.state().connect_bugs = 1;
    world.server.expire();
    world.call(call_tool("write")).await.unwrap();
    assert_eq!(world.handle.connection_status().epoch, 2);
}

#[tokio::test(start_paused = true)]
async fn the_user_can_request_a_new_link() {
    let world = down();
    world.until("parked").await;
    world.server.state().down = None;
    world.handle.reconnect();
    world.until("ready").await;
    world.handle.reconnect();
    world.until("connecting").await;
    world.until("ready").await;
    assert_eq!(world.handle.connection_status().epoch, 2);
}

#[tokio::test(start_paused = true)]
async fn resources_and_prompts_are_listed_when_wanted() {
    let mut settings = settings("fake");
    settings.list_resources = true;
    settings.list_prompts = true;
    let world = World::with(FakeServer::new(), settings).up().await;
    let mut catalogue = world.handle.catalogue();
    let full = catalogue
        .wait_for(|c| c.as_ref().is_some_and(|c| c.resources.is_some()))
        .await
        .unwrap()
        .clone()
        .unwrap();
    assert_eq!(full.resources.as_ref().unwrap().len(), 1);
    assert_eq!(full.prompts.as_ref().unwrap().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn the_status_reports_what_happened() {
    let world = World::ready().await;
    world.call(call_tool("write")).await.unwrap();
    world.server.expire();
    world.call(call_tool("write")).await.unwrap();
    let status = world.manager.status().remove(0);
    assert_eq!(
        (status.state, status.epoch, status.tools),
        (ReportedState::Ready, 2, 2)
    );
    assert_eq!(status.reconnects["start"], 1);
    assert_eq!(status.reconnects["session_lost"], 1);
    let error = status.last_error.unwrap();
    assert_eq!(error.class, FailureClass::SessionLost);
    assert!(status.last_ok.is_some() && status.rtt_p95.is_some());
    assert_eq!((status.inflight, status.queued), (0, 0));
    let counters = world.handle.counters();
    assert_eq!(counters.calls["call_tool/ok"], 2);
}

#[tokio::test(start_paused = true)]
async fn an_unknown_server_is_a_clear_error() {
    let manager = McpManager::start(Vec::new(), TestClock::new(), no_jitter());
    let call = manager.call("nobody", Op::ListPrompts, CallOptions::default());
    let error = call.await.unwrap_err();
    assert!(error.to_string().starts_with("nobody: "), "{error}");
}

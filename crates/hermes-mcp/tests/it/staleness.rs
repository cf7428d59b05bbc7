//! Keepalive, and recovery after the machine slept.

use std::sync::Arc;
use std::time::Duration;

use hermes_mcp::{
    Certainty, Era, FailureClass, LinkEvent, McpFailure, McpManager, Op, ServerSettings,
    TransportKind,
};
use hermes_testkit::clock::SeqRng;
use tokio::time::{Instant, sleep};

use crate::fake::{
    FakeServer, Fault, TestClock, World, call_tool, failure, no_jitter, refused, seconds, settings,
};

const HOUR: Duration = Duration::from_hours(1);

fn with_interval(interval: u64) -> ServerSettings {
    let mut settings = settings("fake");
    settings.keepalive_interval = seconds(interval);
    settings
}

fn unknown_method() -> McpFailure {
    let mut failure = failure(FailureClass::Rpc, Certainty::Rejected, "Method not found");
    failure.rpc_code = Some(-32601);
    failure
}

async fn probes(world: &World, time: Duration) -> usize {
    let before = world.server.seen().count("probe");
    sleep(time).await;
    world.server.seen().count("probe") - before
}

#[tokio::test(start_paused = true)]
async fn zero_turns_it_off() {
    let world = World::with(FakeServer::new(), with_interval(0)).up().await;
    let before = world.server.seen().requests.len();
    sleep(HOUR).await;
    assert_eq!(world.server.seen().requests.len(), before);
}

#[tokio::test(start_paused = true)]
async fn every_three_minutes_unless_told_otherwise() {
    let world = World::ready().await;
    let count = probes(&world, HOUR).await;
    assert!((18..=20).contains(&count), "{count}");
    assert_eq!(world.handle.counters().keepalive["ok"], count as u64);
}

/// A day without calls: every server is probed at its configured interval, over its one connection,
/// and nothing accumulates.
#[tokio::test(start_paused = true)]
async fn a_day_without_a_call_is_keepalives_and_nothing_else() {
    const DAY: Duration = Duration::from_hours(24);
    let world = World::ready().await;
    let named = |name: &str, interval: u64| {
        let mut settings = settings(name);
        settings.keepalive_interval = seconds(interval);
        settings
    };
    let (often, never) = (FakeServer::new(), FakeServer::new());
    world.manager.apply(vec![
        world.server.spec(settings("fake")),
        often.spec(named("often", 60)),
        never.spec(named("never", 0)),
    ]);
    sleep(seconds(10)).await;
    let tasks = || {
        tokio::runtime::Handle::current()
            .metrics()
            .num_alive_tasks()
    };
    let servers = [(&world.server, 480), (&often, 1440), (&never, 0)];
    let asked = |server: &FakeServer| (server.seen().count("probe"), server.seen().requests.len());
    let before = (tasks(), servers.map(|(server, _)| asked(server)));
    sleep(DAY).await;
    assert_eq!(tasks(), before.0);
    for ((server, expected), (probes, requests)) in servers.into_iter().zip(before.1) {
        let now = asked(server);
        let count = now.0 - probes;
        assert!(
            count.abs_diff(expected) <= 1 + expected / 50,
            "{count} of {expected}"
        );
        assert_eq!(now.1 - requests, count, "nothing else was asked");
        assert_eq!((server.connects(), server.seen().open_links), (1, 1));
    }
}

#[tokio::test(start_paused = true)]
async fn an_interval_has_a_floor() {
    let world = World::with(FakeServer::new(), with_interval(1)).up().await;
    let count = probes(&world, seconds(60)).await;
    assert!((10..=12).contains(&count), "{count}");
}

/// Output of a child postpones the probe.
#[tokio::test(start_paused = true)]
async fn a_child_that_talks_is_not_asked() {
    let settings = ServerSettings::new("fake", TransportKind::Stdio, "a".to_owned());
    let world = World::with(FakeServer::new(), settings).up().await;
    let link = world.server.link();
    let chatter = async {
        for _ in 0..60 {
            sleep(seconds(60)).await;
            link.record_activity();
        }
    };
    let (count, ()) = tokio::join!(probes(&world, HOUR), chatter);
    assert_eq!(count, 0);
}

/// Over the network it does not: a stream may carry comments for a lost session.
#[tokio::test(start_paused = true)]
async fn a_stream_that_only_talks_is_asked_all_the_same() {
    for transport in [TransportKind::Http, TransportKind::Sse] {
        let mut settings = ServerSettings::new("fake", transport, "a".to_owned());
        settings.keepalive_interval = seconds(30);
        let world = World::with(FakeServer::new(), settings).up().await;
        let link = world.server.link();
        world.server.expire();
        for _ in 0..35 {
            sleep(seconds(1)).await;
            link.record_activity();
        }
        assert_eq!((world.state(), world.server.connects()), ("ready", 2));
    }
}

/// A swallowed handshake gets a shorter timeout than the first one.
#[tokio::test(start_paused = true)]
async fn a_server_that_was_frozen_is_found_within_seconds_of_its_thaw() {
    let mut settings = settings("fake");
    settings.timeout = seconds(3);
    let world = World::with(FakeServer::new(), settings).up().await;
    world.server.link().hang();
    world.server.state().connect_latency = seconds(3600);
    world.call(call_tool("write")).await.unwrap_err();
    sleep(seconds(3)).await;
    world.server.state().connect_latency = Duration::from_millis(50);
    let begin = Instant::now();
    let mut tries = 0;
    while world.call(Op::ListPrompts).await.is_err() {
        tries += 1;
        assert!(tries < 3, "{:?}", begin.elapsed());
    }
    assert!(begin.elapsed() < seconds(8), "{:?}", begin.elapsed());
}

#[tokio::test(start_paused = true)]
async fn a_busy_server_is_not_asked() {
    let mut settings = with_interval(5);
    settings.transport = TransportKind::Stdio;
    settings.timeout = seconds(90);
    let world = World::with(FakeServer::new(), settings).up().await;
    // A child that handles one request at a time would not answer.
    world.server.state().ping = Some(Fault::Hang);
    world.server.fault(Fault::Slow(seconds(45)));
    let (result, count) = tokio::join!(world.call(call_tool("write")), probes(&world, seconds(45)));
    result.unwrap();
    assert_eq!((count, world.server.connects()), (0, 1));
}

/// Its other half may be stuck. A tool that never answered may be at work on something long.
#[tokio::test(start_paused = true)]
async fn a_child_that_answers_questions_but_no_calls_is_replaced() {
    for worked in [true, false] {
        let mut settings = ServerSettings::new("fake", TransportKind::Stdio, "a".to_owned());
        settings.timeout = seconds(20);
        let world = World::with(FakeServer::new(), settings).up().await;
        if worked {
            world.call(call_tool("write")).await.unwrap();
        }
        world.server.fault(Fault::Hang);
        let error = world.call(call_tool("write")).await.unwrap_err();
        assert!(error.outcome_unknown, "{error:?}");
        world.call(call_tool("write")).await.unwrap();
        let connects = if worked { 2 } else { 1 };
        assert_eq!(world.server.connects(), connects);
        assert_eq!(world.server.seen().max_open, 1);
    }
}

#[tokio::test(start_paused = true)]
async fn a_child_that_works_on_another_call_is_kept() {
    let mut settings = ServerSettings::new("fake", TransportKind::Stdio, "a".to_owned());
    settings.timeout = seconds(20);
    settings.max_concurrency = 4;
    let world = World::with(FakeServer::new(), settings).up().await;
    world.call(call_tool("write")).await.unwrap();
    world.server.fault(Fault::Hang);
    world.server.fault(Fault::Progress(seconds(10), 6));
    let (hangs, works) = tokio::join!(
        world.call(call_tool("write")),
        world.call(call_tool("read"))
    );
    assert!(hangs.is_err());
    works.unwrap();
    assert_eq!(world.server.connects(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_session_that_would_expire_idle_is_kept() {
    let world = World::with(FakeServer::new(), with_interval(60)).up().await;
    for _ in 0..10 {
        sleep(seconds(90)).await;
        assert!(world.server.link_age() <= seconds(67));
    }
}

#[tokio::test(start_paused = true)]
async fn an_expired_session_is_found_before_a_call_needs_it() {
    let world = World::ready().await;
    world.server.expire();
    sleep(seconds(200)).await;
    assert_eq!((world.state(), world.server.connects()), ("ready", 2));
    assert_eq!(world.handle.connection_status().epoch, 2);
}

#[tokio::test(start_paused = true)]
async fn a_server_that_never_answers_ping_is_not_restarted() {
    let server = FakeServer::new();
    server.state().ping = Some(Fault::Hang);
    let world = World::with(server, settings("fake")).up().await;
    sleep(HOUR).await;
    let seen = world.server.seen();
    // Probed once by ping; from then on by the list.
    assert_eq!((seen.connects.len(), seen.count("probe")), (1, 1));
    assert!(seen.count("probe_by_list") > 10);
    assert_eq!(world.state(), "ready");
}

#[tokio::test(start_paused = true)]
async fn a_server_that_does_not_know_ping_is_asked_by_the_list() {
    let server = FakeServer::new();
    server.state().ping = Some(Fault::Refuse(unknown_method()));
    let world = World::with(server, settings("fake")).up().await;
    sleep(HOUR).await;
    let seen = world.server.seen();
    assert_eq!((seen.connects.len(), seen.count("probe")), (1, 1));
    // Its later links are probed the right way at once.
    world.server.expire();
    sleep(HOUR).await;
    let seen = world.server.seen();
    assert_eq!((seen.connects.len(), seen.count("probe")), (2, 1));
    assert_eq!(world.state(), "ready");
}

#[tokio::test(start_paused = true)]
async fn a_dead_server_is_replaced_after_the_second_opinion() {
    let world = World::ready().await;
    {
        let mut state = world.server.state();
        state.ping = Some(Fault::Hang);
        state.list = Some(Fault::Hang);
    }
    sleep(seconds(180)).await;
    assert_eq!((world.state(), world.server.connects()), ("ready", 1));
    // A second later it is suspect, and a new connection is made beside the old one.
    sleep(Duration::from_millis(1500)).await;
    assert_eq!((world.state(), world.server.connects()), ("degraded", 2));
    // Only the old session is dead.
    {
        let mut state = world.server.state();
        (state.ping, state.list) = (None, None);
        state.connects_fail.push_back(None);
    }
    sleep(seconds(75)).await;
    assert_eq!(world.state(), "ready");
}

/// Requests unanswered in the old session are answered in a new one: no call has to time out first.
#[tokio::test(start_paused = true)]
async fn a_session_that_hangs_is_replaced_within_seconds() {
    for transport in [TransportKind::Http, TransportKind::Sse] {
        let mut settings = ServerSettings::new("fake", transport, "a".to_owned());
        settings.timeout = seconds(20);
        let world = World::with(FakeServer::new(), settings).up().await;
        world.server.link().hang();
        let error = world.call(call_tool("write")).await.unwrap_err();
        assert!(error.outcome_unknown);
        let begin = Instant::now();
        world.call(call_tool("write")).await.unwrap();
        assert!(begin.elapsed() < seconds(2), "{:?}", begin.elapsed());
        assert_eq!((world.state(), world.server.connects()), ("ready", 2));
    }
}

/// The stream of HTTP+SSE is dead, but requests are accepted: every call would be executed and time
/// out.
#[tokio::test(start_paused = true)]
async fn a_stale_event_stream_is_replaced_within_one_keepalive_interval() {
    for interval in [5, 30, 180, 600] {
        let mut settings = ServerSettings::new("fake", TransportKind::Sse, "a".to_owned());
        settings.keepalive_interval = seconds(interval);
        let world = World::with(FakeServer::new(), settings).up().await;
        world.server.link().hang();
        sleep(seconds(interval)).await;
        assert_eq!(
            (world.state(), world.server.connects()),
            ("ready", 2),
            "{interval}"
        );
        world.call(call_tool("write")).await.unwrap();
    }
}

/// Also while calls wait for answers on it, which never arrive.
#[tokio::test(start_paused = true)]
async fn a_stale_event_stream_is_found_while_a_call_waits() {
    let mut settings = ServerSettings::new("fake", TransportKind::Sse, "a".to_owned());
    settings.keepalive_interval = seconds(30);
    let world = World::with(FakeServer::new(), settings).up().await;
    world.server.link().hang();
    let waiting = world.call(call_tool("write"));
    let other = async {
        sleep(seconds(30)).await;
        world.call(call_tool("read")).await
    };
    let begin = Instant::now();
    let (waiting, other) = tokio::join!(waiting, other);
    other.unwrap();
    assert!(waiting.unwrap_err().outcome_unknown);
    assert!(begin.elapsed() < seconds(65), "not after its own timeout");
}

/// A child that stops answering is replaced within seconds, not after a minute.
#[tokio::test(start_paused = true)]
async fn a_hanging_child_is_replaced_soon() {
    let mut settings = ServerSettings::new("fake", TransportKind::Stdio, "a".to_owned());
    settings.timeout = seconds(20);
    let world = World::with(FakeServer::new(), settings).up().await;
    world.server.link().hang();
    world.call(call_tool("write")).await.unwrap_err();
    let begin = Instant::now();
    world.call(call_tool("write")).await.unwrap();
    assert!(begin.elapsed() < seconds(12), "{:?}", begin.elapsed());
    assert_eq!(world.server.seen().max_open, 1);
}

#[tokio::test(start_paused = true)]
async fn nothing_to_keep_alive_without_a_session() {
    for (era, session) in [(Era::Modern, false), (Era::Legacy, false)] {
        let server = FakeServer::new();
        server.state().era = era;
        server.state().session = session;
        let world = World::with(server, settings("fake")).up().await;
        assert_eq!(probes(&world, HOUR).await, 0, "{era:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_suspicion_is_checked_at_once() {
    let world = World::ready().await;
    let why = "the listening stream got 404".to_owned();
    world.server.send_event(LinkEvent::Suspect(why.clone()));
    world.until("degraded").await;
    assert_eq!(world.handle.status().why, Some(why));
    // Calls are still sent meanwhile.
    world.call(call_tool("write")).await.unwrap();
    world.until("ready").await;
    assert_eq!(world.server.connects(), 1);
}

/// A gateway answers 502 to ping, whatever the reason: only a success counts as an answer.
#[tokio::test(start_paused = true)]
async fn an_error_to_a_ping_is_no_sign_of_life() {
    for class in [
        FailureClass::Throttled,
        FailureClass::Rpc,
        FailureClass::Ambiguous,
    ] {
        let world = World::ready().await;
        let sick = failure(class, Certainty::MaybeExecuted, "HTTP 502");
        {
            let mut state = world.server.state();
            state.ping = Some(Fault::Refuse(sick.clone()));
            state.list = Some(Fault::Refuse(sick.clone()));
            state.down = Some(sick);
        }
        world.server.send_event(LinkEvent::Suspect("hm".to_owned()));
        sleep(seconds(600)).await;
        assert_eq!(world.state(), "parked");
        let count = world.server.seen().count("probe");
        assert!((5..=20).contains(&count), "{count}");
        {
            let mut state = world.server.state();
            (state.ping, state.list, state.down) = (None, None, None);
        }
        sleep(seconds(73)).await;
        // The old session existed all the time.
        assert_eq!(
            (world.state(), world.handle.connection_status().epoch),
            ("ready", 1)
        );
    }
}

/// A server that answers lists but not ping is healthy, and is probed by the list.
#[tokio::test(start_paused = true)]
async fn a_server_that_refuses_ping_in_any_way_is_asked_by_the_list() {
    let world = World::ready().await;
    let sick = failure(
        FailureClass::Throttled,
        Certainty::MaybeExecuted,
        "HTTP 502",
    );
    world.server.state().ping = Some(Fault::Refuse(sick));
    sleep(HOUR).await;
    let seen = world.server.seen();
    assert_eq!(
        (seen.count("probe"), world.handle.connection_status().epoch),
        (1, 1)
    );
    assert_eq!(world.state(), "ready");
}

/// However often a server is reported as suspect, it is probed at most once a second.
#[tokio::test(start_paused = true)]
async fn a_flood_of_suspicions_is_a_few_questions() {
    let world = World::ready().await;
    let flood = async {
        for _ in 0..1000 {
            world.server.send_event(LinkEvent::Suspect("hm".to_owned()));
            sleep(Duration::from_millis(10)).await;
        }
    };
    let (count, ()) = tokio::join!(probes(&world, seconds(10)), flood);
    assert!((5..=11).contains(&count), "{count}");
    sleep(seconds(2)).await;
    assert_eq!((world.state(), world.server.connects()), ("ready", 1));
}

#[tokio::test(start_paused = true)]
async fn shutdown_during_a_hanging_probe_is_quick() {
    let world = World::ready().await;
    world.server.state().ping = Some(Fault::Hang);
    sleep(seconds(185)).await;
    let begin = Instant::now();
    world.manager.shutdown(seconds(5)).await;
    assert!(begin.elapsed() < seconds(1));
    assert_eq!(world.server.seen().open_links, 0);
}

#[tokio::test(start_paused = true)]
async fn fifty_servers_are_not_asked_at_the_same_moment() {
    let server = FakeServer::new();
    let specs = (0..50)
        .map(|n| server.spec(settings(&format!("s{n}"))))
        .collect();
    let manager = McpManager::start(specs, TestClock::new(), Arc::new(SeqRng::new(1)));
    manager.wait_ready(seconds(60)).await;
    sleep(seconds(220)).await;
    let seen = server.seen();
    let asked: Vec<_> = seen
        .requests
        .iter()
        .filter(|(op, _)| op == "probe")
        .map(|&(_, at)| at)
        .collect();
    assert_eq!(asked.len(), 50);
    let spread = *asked.iter().max().unwrap() - *asked.iter().min().unwrap();
    assert!(spread > seconds(20), "{spread:?}");
}

#[tokio::test(start_paused = true)]
async fn a_wall_clock_jump_asks_each_server_once() {
    for hours in [1, -1] {
        let world = World::ready().await;
        world.clock.jump(chrono::Duration::hours(hours));
        assert_eq!(probes(&world, seconds(9)).await, 1);
        assert_eq!(world.server.seen().resumed, 1);
        assert_eq!((world.state(), world.server.connects()), ("ready", 1));
    }
}

#[tokio::test(start_paused = true)]
async fn after_twelve_hours_of_sleep_the_lost_session_is_replaced() {
    let world = World::ready().await;
    world.server.expire();
    world.clock.jump(chrono::Duration::hours(12));
    sleep(seconds(10)).await;
    assert_eq!((world.state(), world.server.connects()), ("ready", 2));
}

#[tokio::test(start_paused = true)]
async fn servers_are_asked_at_different_moments_after_a_sleep() {
    let server = FakeServer::new();
    let specs = (0..20)
        .map(|n| server.spec(settings(&format!("s{n}"))))
        .collect();
    let clock = TestClock::new();
    let rng = Arc::new(SeqRng::new(3));
    let manager = McpManager::start(specs, clock.clone(), rng);
    manager.wait_ready(seconds(60)).await;
    clock.jump(chrono::Duration::hours(12));
    sleep(seconds(9)).await;
    let seen = server.seen();
    let mut asked: Vec<_> = seen
        .requests
        .iter()
        .filter(|(op, _)| op == "probe")
        .map(|&(_, at)| at)
        .collect();
    assert_eq!(asked.len(), 20);
    asked.dedup();
    assert!(asked.len() > 10);
    assert!(*asked.last().unwrap() - asked[0] <= seconds(3));
}

/// The process itself was suspended: the timer is late while both clocks agree.
#[tokio::test(start_paused = true)]
async fn a_small_step_of_the_clock_is_no_sleep() {
    let world = World::ready().await;
    world.clock.jump(chrono::Duration::seconds(5));
    assert_eq!(probes(&world, seconds(20)).await, 0);
}

#[tokio::test(start_paused = true)]
async fn a_sleep_cuts_the_pause_before_the_next_attempt() {
    let server = FakeServer::new();
    server.state().down = Some(refused());
    let world = World::with(server, settings("fake"));
    world.until("parked").await;
    world.server.state().down = None;
    world.clock.jump(chrono::Duration::hours(2));
    let begin = Instant::now();
    world.until("ready").await;
    assert!(begin.elapsed() < seconds(10));
}

/// A step of the wall clock during a backoff has no lasting effect on it.
#[tokio::test(start_paused = true)]
async fn a_step_back_during_backoff_does_no_harm() {
    let server = FakeServer::new();
    server
        .state()
        .connects_fail
        .extend([Some(refused()), Some(refused())]);
    let world = World::with(server, settings("fake"));
    world.until("backoff").await;
    world.clock.jump(chrono::Duration::hours(-1));
    world.until("ready").await;
    assert_eq!(world.handle.connection_status().epoch, 1);
}

#[tokio::test(start_paused = true)]
async fn no_manager_no_watch() {
    let world = World::ready().await;
    world.manager.shutdown(seconds(1)).await;
    world.clock.jump(chrono::Duration::hours(1));
    assert_eq!(probes(&world, seconds(60)).await, 0);
    let _ = no_jitter();
}

//! Tests against real servers, which are killed, restarted and made to lose sessions.

use std::path::Path;
use std::time::Duration;

use hermes_mcp::{Era, Op};
use hermes_testkit::mcp_server::peers::{self, Peer, Peers, RealServer};
use serde_json::json;
use tempfile::TempDir;
use tokio::task::block_in_place;

use crate::rig::{Rig, http_target, spec, stdio_target};

async fn connect(server: &RealServer, sse: bool) -> Rig {
    let target = http_target(&server.url(), sse);
    let mut rig = Rig::start(spec(&target, |settings| {
        settings.timeout = Duration::from_secs(20);
    }));
    rig.ready().await;
    rig
}

/// A harmless request to a server; `peer` determines the kind of echo it has.
async fn ask(rig: &Rig, peer: Peer, word: &str) -> String {
    match peer {
        Peer::Everything | Peer::EverythingSse => {
            let echoed = rig.text("echo", json!({"message": word})).await;
            echoed.trim_start_matches("Echo: ").to_owned()
        }
        _ => rig.text("echo", json!({"text": word})).await,
    }
}

/// Lists, calls, a restart and a lost session: what every server must survive.
async fn whole_story(peers: &Peers, peer: Peer) {
    let mut server = block_in_place(|| peers.start(peer));
    let rig = connect(&server, peer == Peer::EverythingSse).await;
    assert_eq!(ask(&rig, peer, "one").await, "one", "{peer:?}");
    assert!(rig.op(Op::ListResources).await.is_ok(), "{peer:?}");
    assert!(rig.op(Op::ListPrompts).await.is_ok(), "{peer:?}");
    for round in 0..2 {
        block_in_place(|| server.restart());
        // A read, so that it is repeated if the connection breaks.
        let result = rig.op(Op::ListResources).await;
        assert!(result.is_ok(), "{peer:?} round {round}: {result:?}");
        assert_eq!(ask(&rig, peer, "two").await, "two", "{peer:?}");
    }
    rig.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn everything_over_streamable_http_survives_restarts() {
    let Some(peers) = peers::require("everything_over_streamable_http_survives_restarts") else {
        return;
    };
    whole_story(&peers, Peer::Everything).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn everything_over_sse_survives_restarts() {
    let Some(peers) = peers::require("everything_over_sse_survives_restarts") else {
        return;
    };
    whole_story(&peers, Peer::EverythingSse).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn supergateway_3_survives_restarts() {
    let Some(peers) = peers::require("supergateway_3_survives_restarts") else {
        return;
    };
    whole_story(&peers, Peer::Gateway3).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn supergateway_4_survives_restarts() {
    let Some(peers) = peers::require("supergateway_4_survives_restarts") else {
        return;
    };
    whole_story(&peers, Peer::Gateway4).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn python_of_both_generations_survives_restarts_and_forgetting() {
    let Some(peers) = peers::require("python_of_both_generations_survives_restarts_and_forgetting")
    else {
        return;
    };
    whole_story(&peers, Peer::PythonLegacy).await;
    whole_story(&peers, Peer::PythonModern).await;
    let server = block_in_place(|| peers.start(Peer::PythonLegacy));
    let rig = connect(&server, false).await;
    assert_eq!(rig.server.status().era, Some(Era::Legacy));
    for token in ["a", "b", "c"] {
        block_in_place(|| server.forget_sessions());
        assert_eq!(rig.text("bump", json!({"token": token})).await, token);
    }
    assert_eq!(server.effects(), ["a", "b", "c"]);
    rig.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn python_2_speaks_the_stateless_era() {
    let Some(peers) = peers::require("python_2_speaks_the_stateless_era") else {
        return;
    };
    let server = block_in_place(|| peers.start(Peer::PythonModern));
    let rig = connect(&server, false).await;
    assert_eq!(rig.server.status().era, Some(Era::Modern));
    assert_eq!(ask(&rig, Peer::PythonModern, "hello").await, "hello");
    rig.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_killed_in_the_middle_of_a_call_ran_it_once() {
    let Some(peers) = peers::require("a_server_killed_in_the_middle_of_a_call_ran_it_once") else {
        return;
    };
    for peer in [Peer::PythonLegacy, Peer::PythonModern, Peer::Gateway3] {
        let mut server = block_in_place(|| peers.start(peer));
        let rig = connect(&server, false).await;
        let slow = rig.call("slow", json!({"token": "once", "seconds": 60}));
        let kill = async {
            marked(|| server.effects()).await;
            block_in_place(|| server.restart());
        };
        let (result, ()) = tokio::join!(slow, kill);
        let error = result.unwrap_err();
        assert!(error.outcome_unknown, "{peer:?}: {error:?}");
        assert_eq!(ask(&rig, peer, "back").await, "back", "{peer:?}");
        assert_eq!(server.effects(), ["once"], "{peer:?}");
        rig.stop().await;
    }
}

/// Waits until the server has recorded an effect; a file of another program can only be polled.
async fn marked(effects: impl Fn() -> Vec<String>) {
    let waiting = async {
        while effects().is_empty() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(30), waiting)
        .await
        .expect("the call reaches the server");
}

fn is_running(pid: u32) -> bool {
    Path::new("/proc").join(pid.to_string()).exists()
}

/// Kills it and waits until it has exited, reaped or not.
async fn kill(pid: u32) {
    let raw = rustix::process::Pid::from_raw(pid.cast_signed()).unwrap();
    rustix::process::kill_process(raw, rustix::process::Signal::KILL).unwrap();
    let stat = Path::new("/proc").join(pid.to_string()).join("stat");
    while std::fs::read_to_string(&stat).is_ok_and(|stat| !stat.contains(") Z ")) {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

#[tokio::test]
async fn everything_over_stdio_is_started_again_when_it_dies() {
    let Some(peers) = peers::require("everything_over_stdio_is_started_again_when_it_dies") else {
        return;
    };
    let home = TempDir::new().unwrap();
    let (program, args) = peers.everything_stdio();
    let target = stdio_target(&program, args, home.path());
    let mut rig = Rig::start(spec(&target, |_| {}));
    rig.ready().await;
    let mut pids = Vec::new();
    for _ in 0..3 {
        assert_eq!(ask(&rig, Peer::Everything, "hello").await, "hello");
        let pid = rig.server.status().child_pid.unwrap();
        let epoch = rig.server.connection_status().epoch;
        kill(pid).await;
        pids.push(pid);
        // It is restarted without a call.
        rig.until(|status| status.epoch > epoch).await;
    }
    assert_eq!(ask(&rig, Peer::Everything, "again").await, "again");
    pids.push(rig.server.status().child_pid.unwrap());
    rig.stop().await;
    let left: Vec<_> = pids.iter().filter(|pid| is_running(**pid)).collect();
    assert!(left.is_empty(), "children left: {left:?} of {pids:?}");
}

#[tokio::test]
async fn a_child_killed_in_the_middle_of_a_call_ran_it_once() {
    let Some(peers) = peers::require("a_child_killed_in_the_middle_of_a_call_ran_it_once") else {
        return;
    };
    for modern in [false, true] {
        let home = TempDir::new().unwrap();
        let effects = home.path().join("effects");
        let (program, args) = peers.python_stdio(modern, &effects);
        let target = stdio_target(&program, args, home.path());
        let mut rig = Rig::start(spec(&target, |_| {}));
        rig.ready().await;
        let read = || {
            let text = std::fs::read_to_string(&effects).unwrap_or_default();
            text.lines().map(str::to_owned).collect::<Vec<_>>()
        };
        let first = rig.server.status().child_pid.unwrap();
        let slow = rig.call("slow", json!({"token": "once", "seconds": 60}));
        let script = async {
            marked(read).await;
            kill(first).await;
        };
        let (result, ()) = tokio::join!(slow, script);
        let error = result.unwrap_err();
        assert!(error.outcome_unknown, "{error:?}");
        assert_eq!(ask(&rig, Peer::PythonLegacy, "back").await, "back");
        assert_eq!(read(), ["once"]);
        let second = rig.server.status().child_pid.unwrap();
        rig.stop().await;
        assert!(
            !is_running(first) && !is_running(second),
            "modern: {modern}"
        );
    }
}

//! Links to real servers, over each transport.

use std::sync::Arc;

use hermes_mcp::{Era, FailureClass, Link, Op, ServerTarget};
use hermes_testkit::mcp_server::peers::{self, Peer};
use serde_json::json;
use tokio::sync::mpsc;

use super::{Bench, ask, http_target, names, stdio, text, tool, within};

/// What `server-everything` must do over any transport.
async fn exercise_everything(link: &Arc<dyn Link>) {
    assert_eq!(link.facts().era, Era::Legacy);
    let tools = ask(&**link, Op::ListTools).await.unwrap();
    assert!(names(&tools, "tools").contains(&"echo".to_owned()));
    let echo = tool("echo", json!({"message": "grüße"}));
    assert_eq!(text(&ask(&**link, echo).await.unwrap()), "Echo: grüße");
    let resources = ask(&**link, Op::ListResources).await.unwrap();
    let uri = resources["resources"][0]["uri"]
        .as_str()
        .unwrap()
        .to_owned();
    let contents = ask(&**link, Op::ReadResource { uri }).await.unwrap();
    assert!(contents["contents"][0].is_object());
    let templates = ask(&**link, Op::ListResourceTemplates).await.unwrap();
    assert!(templates["resourceTemplates"].is_array());
    let prompts = ask(&**link, Op::ListPrompts).await.unwrap();
    assert!(!names(&prompts, "prompts").is_empty());
    ask(&**link, Op::Probe).await.unwrap();
    let (sender, mut progress) = mpsc::channel(16);
    let mut call = within(super::TEST_TIMEOUT);
    call.progress = Some(sender);
    let long = tool(
        "trigger-long-running-operation",
        json!({"duration": 1, "steps": 3}),
    );
    link.request(&long, call).await.unwrap();
    assert!(progress.try_recv().is_ok(), "progress is reported");
    let failure = ask(&**link, tool("no-such-tool", json!({}))).await;
    match failure {
        Ok(result) => assert_eq!(result["isError"], true),
        Err(failure) => assert_eq!(failure.class, FailureClass::Rpc),
    }
}

#[tokio::test]
async fn everything_over_stdio() {
    let Some(peers) = peers::require("links::everything_over_stdio") else {
        return;
    };
    let home = tempfile::tempdir().unwrap();
    let (program, args) = peers.everything_stdio();
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    let target = stdio(program.to_str().unwrap(), &args, home.path());
    let bench = Bench::new(ServerTarget::Stdio(target));
    for _ in 0..2 {
        let link = bench.connect().await.unwrap();
        exercise_everything(&link).await;
        link.close().await;
    }
    let link = bench.connect().await.unwrap();
    let pid = i32::try_from(link.facts().child_pid.unwrap()).unwrap();
    let pid = rustix::process::Pid::from_raw(pid).unwrap();
    rustix::process::kill_process(pid, rustix::process::Signal::KILL).unwrap();
    assert!(link.closed().await.text.contains("signal 9"));
    let link = bench.connect().await.unwrap();
    ask(&*link, Op::Probe).await.unwrap();
    link.close().await;
}

#[tokio::test]
async fn everything_over_streamable_http() {
    let Some(peers) = peers::require("links::everything_over_streamable_http") else {
        return;
    };
    let mut server = peers.start(Peer::Everything);
    let bench = Bench::new(ServerTarget::Http(http_target(&server.url())));
    let link = bench.connect().await.unwrap();
    assert!(link.facts().session);
    exercise_everything(&link).await;
    server.restart();
    // 400 without an id: rmcp alone would wait forever. A request before that may still use the
    // socket from before.
    let mut failure = ask(&*link, Op::ListTools).await.unwrap_err();
    if failure.class == FailureClass::Ambiguous {
        failure = ask(&*link, Op::ListTools).await.unwrap_err();
    }
    assert_eq!(failure.class, FailureClass::SessionLost, "{failure}");
    let link = bench.connect().await.unwrap();
    exercise_everything(&link).await;
    link.close().await;
}

#[tokio::test]
async fn everything_over_http_and_sse() {
    let Some(peers) = peers::require("links::everything_over_http_and_sse") else {
        return;
    };
    let mut server = peers.start(Peer::EverythingSse);
    let bench = Bench::new(ServerTarget::Sse(http_target(&server.url())));
    let link = bench.connect().await.unwrap();
    exercise_everything(&link).await;
    server.kill();
    assert!(!link.closed().await.text.is_empty());
    server.start();
    let link = bench.connect().await.unwrap();
    exercise_everything(&link).await;
    link.close().await;
}

#[tokio::test]
async fn python_servers_of_both_eras() {
    let Some(peers) = peers::require("links::python_servers_of_both_eras") else {
        return;
    };
    for (peer, era) in [
        (Peer::PythonLegacy, Era::Legacy),
        (Peer::PythonModern, Era::Modern),
    ] {
        let server = peers.start(peer);
        let bench = Bench::new(ServerTarget::Http(http_target(&server.url())));
        let link = bench.connect().await.unwrap();
        assert_eq!(link.facts().era, era);
        assert_eq!(link.facts().session, era == Era::Legacy);
        let tools = ask(&*link, Op::ListTools).await.unwrap();
        assert!(names(&tools, "tools").contains(&"bump".to_owned()));
        ask(&*link, tool("bump", json!({"token": "a"})))
            .await
            .unwrap();
        assert_eq!(server.effects().len(), 1);
        ask(&*link, Op::Probe).await.unwrap();
        link.close().await;
    }
}

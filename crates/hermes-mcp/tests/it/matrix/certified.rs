//! The fault server and the proxy, checked with an independent client: the Python SDK reads each
//! shape as intended.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::process::{Command, Stdio};

use hermes_testkit::mcp_server::combination::Combination;
use hermes_testkit::mcp_server::peers;
use hermes_testkit::mcp_server::proxy::ShapeProxy;
use hermes_testkit::mcp_server::{FaultyServer, Wire};
use tokio::task::block_in_place;

/// Output of the client before the loss, in the lost session, and in a new one.
fn read(mut client: Command, lose: impl FnOnce()) -> [String; 3] {
    let mut child = client
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut errors = child.stderr.take().unwrap();
    // Read concurrently, so that a full pipe does not block the client.
    let errors = std::thread::spawn(move || {
        let mut text = String::new();
        let _ = errors.read_to_string(&mut text);
        text
    });
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let first = lines.next();
    lose();
    let written = writeln!(child.stdin.take().unwrap(), "lost");
    let rest: Vec<String> = lines.map_while(Result::ok).collect();
    assert!(
        child.wait().unwrap().success(),
        "{}",
        errors.join().unwrap()
    );
    written.unwrap();
    let [second, third] = <[String; 2]>::try_from(rest).unwrap();
    [first.unwrap().unwrap(), second, third]
}

fn combination(text: &str) -> Combination {
    text.parse().unwrap()
}

#[test]
fn the_python_sdk_reads_the_shapes_of_the_fault_server() {
    let test = "matrix::certified::the_python_sdk_reads_the_shapes_of_the_fault_server";
    let Some(peers) = peers::require(test) else {
        return;
    };
    for (how, wanted) in [
        ("404/empty/plain/none", "error: Session terminated"),
        (
            "200/rpc:right:-32000:s2/plain/none",
            "error: Session has expired",
        ),
        (
            "200/rpc:right:-32000:s2/gzip/none",
            "error: Session has expired",
        ),
        (
            "200/rpc:right:-32000:s2/events/none",
            "error: Session has expired",
        ),
        (
            "203/rpc:right:-32000:s2/plain/none",
            "error: Session has expired",
        ),
        (
            "200/toolerror:s2/plain/none",
            "tool error: Session has expired",
        ),
    ] {
        let server = FaultyServer::start();
        let how = combination(&format!("http/proxy-keeps/all/{how}/1/0"));
        let client = peers.python_client(false, &server.url());
        let details = read(client, || {
            server.lose_sessions_in(&how);
        });
        assert_eq!(details, ["1", wanted, "2"], "{how}");
        assert_eq!(server.marks(), ["before", "after"], "{how}");
    }
}

#[test]
fn the_python_sdk_uses_the_older_transport_of_the_fault_server() {
    let test = "matrix::certified::the_python_sdk_uses_the_older_transport_of_the_fault_server";
    let Some(peers) = peers::require(test) else {
        return;
    };
    let server = FaultyServer::start_as(Wire::Sse);
    // Only pings are refused, so that the call in the lost session is served.
    let how = combination("sse/forgotten/pings/404/empty/plain/none/1/0");
    let client = peers.python_client(true, &server.url());
    let details = read(client, || {
        server.lose_sessions_in(&how);
    });
    assert_eq!(details, ["1", "2", "3"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_python_sdk_works_through_the_proxy() {
    let test = "matrix::certified::the_python_sdk_works_through_the_proxy";
    let Some(peers) = peers::require(test) else {
        return;
    };
    let server = FaultyServer::start();
    let proxy = ShapeProxy::start_here(&server.url());
    let how = combination("http/proxy-closes/all/404/html:o4/plain/none/1/0");
    let client = peers.python_client(false, &proxy.url());
    let details = block_in_place(|| read(client, || proxy.lose_sessions_in(&how)));
    assert_eq!(details, ["1", "error: Session terminated", "2"]);
    assert!(proxy.refused() >= 1);
    // The server itself lost nothing.
    assert_eq!(server.counts().refused, 0);
}

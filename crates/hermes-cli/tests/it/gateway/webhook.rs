//! Webhooks and the built binary: a route made, called and answered while the gateway runs.

use std::time::{Duration, Instant};

use hermes_testkit::home::TempHome;
use hermes_testkit::model_server::{ModelServer, Reply};
use serde_json::json;

use super::GatewayChild;
use crate::hermes;

pub(super) fn port() -> u16 {
    let listener = std::net::TcpListener::bind(("127.0.0.1", 0)).unwrap();
    listener.local_addr().unwrap().port()
}

#[test]
fn a_route_is_made_called_and_taken_away_while_the_gateway_runs() {
    let (model, home) = (ModelServer::start(), TempHome::new());
    model.push_default(Reply::text("noted"));
    home.config_json(&json!({
        "model": {"default": "scripted", "provider": "custom", "base_url": model.base_url(),
                  "api_key": "k", "context_length": 200_000},
        "auxiliary": {"title_generation": {"enabled": false}},
        "platforms": {"webhook": {"enabled": true, "extra": {"host": "127.0.0.1", "port": port()}}},
    }));
    let run = |args: &[&str]| hermes(&home).args(args).run();
    let gateway = GatewayChild::begin(&home, &[]);
    let unknown = run(&["webhook", "test", "ci"]);
    assert_eq!(unknown.code, Some(4), "{unknown:?}");
    let made = run(&[
        "webhook",
        "subscribe",
        "CI",
        "--prompt",
        "Build {build.id} failed",
        "--events",
        "test",
        "--json",
    ]);
    let made = made.ok().json();
    assert_eq!(
        (&made["name"], &made["changed"]),
        (&json!("ci"), &json!(false))
    );
    assert!(made["route"]["secret"].as_str().unwrap().len() > 40);
    // The server may still be on its way up.
    let began = Instant::now();
    let called = loop {
        let called = run(&[
            "webhook",
            "test",
            "ci",
            "--payload",
            r#"{"build": {"id": 7}}"#,
            "--json",
        ]);
        if called.code == Some(0) {
            break called.json();
        }
        assert!(began.elapsed() < Duration::from_secs(30), "{called:?}");
        std::thread::sleep(Duration::from_millis(20));
    };
    assert_eq!(
        (&called["status"], &called["answer"]["status"]),
        (&json!(202), &json!("accepted"))
    );
    model.block_until(|now| now.requests > 0);
    let asked = String::from_utf8_lossy(&model.last_request().raw).into_owned();
    assert!(asked.contains("Build 7 failed"), "{asked}");
    let listed = run(&["webhook", "list", "--json"]).ok().json();
    assert_eq!(listed[0]["name"], "ci");
    assert_eq!(run(&["webhook", "remove", "ci"]).code, Some(0));
    assert_eq!(run(&["webhook", "remove", "ci"]).code, Some(4));
    assert_eq!(run(&["webhook", "test", "ci"]).code, Some(4));
    gateway.stop();
    let file = home.join("webhook_subscriptions.json");
    let mode =
        std::os::unix::fs::PermissionsExt::mode(&std::fs::metadata(file).unwrap().permissions());
    assert_eq!(mode & 0o777, 0o600);
    let nobody = run(&["webhook", "subscribe", "x", "--deliver-only"]);
    assert_eq!(nobody.code, Some(64), "{nobody:?}");
}

//! Starting, stopping, dying, replacing: what others see of it, the original among them.

use hermes_testkit::home::TempHome;
use hermes_testkit::mcp_server::FaultyServer;
use hermes_testkit::model_server::Reply;
use hermes_testkit::oracle;
use pretty_assertions::assert_eq;
use rustix::process::Signal;
use serde_json::{Value, json};

use super::{GatewayChild, state};
use crate::{CliHarness, hermes};

#[test]
fn it_runs_says_so_and_stops_when_it_is_told() {
    let setup = CliHarness::new();
    let home = &setup.home;
    let before = hermes(home).args(["gateway", "status", "--json"]).run();
    assert_eq!(before.code, Some(4));
    assert_eq!(before.json()["running"], false);
    assert_eq!(hermes(home).args(["gateway", "stop"]).run().code, Some(4));
    let life = GatewayChild::begin(home, &[]);
    let record: Value = serde_json::from_str(&home.read("gateway.pid")).unwrap();
    assert_eq!(record["pid"], life.pid);
    assert_eq!(record["kind"], "hermes-gateway");
    assert_eq!(state(home)["gateway_state"], "running");
    assert!(home.exists("state/gateway.heartbeat"));
    let status = hermes(home)
        .args(["gateway", "status", "--json"])
        .run()
        .ok()
        .json();
    assert_eq!(status["pid"], life.pid);
    assert_eq!(status["running"], true);
    let shown = hermes(home).args(["gateway", "status"]).run().ok().stdout;
    assert!(shown.starts_with("gateway  running  pid"), "{shown}");
    let list = hermes(home)
        .args(["gateway", "list", "--json"])
        .run()
        .ok()
        .json();
    assert_eq!(list[0]["pid"], life.pid);
    let doctor = hermes(home).args(["status", "--json"]).run().json();
    assert_eq!(doctor["gateway"]["pid"], life.pid);
    // Whoever the agent starts cannot stop it.
    let inside = hermes(home)
        .args(["gateway", "stop"])
        .env("_HERMES_GATEWAY", "1")
        .run();
    assert_eq!(inside.code, Some(5), "{inside:?}");
    let told = hermes(home).args(["gateway", "stop"]).run().ok();
    assert!(told.stdout.contains("has stopped"), "{told:?}");
    let ended = life.end();
    assert_eq!(ended.code, Some(0), "{ended:?}");
    assert_eq!(state(home)["gateway_state"], "stopped");
    assert!(!home.exists("gateway.pid"));
    assert!(home.exists(".clean_shutdown"));
    assert!(
        home.read("logs/gateway.log")
            .contains("the gateway has stopped")
    );
}

#[test]
fn its_status_says_how_the_mcp_servers_fare() {
    let setup = CliHarness::new();
    let server = FaultyServer::start();
    let config = setup.home.read("config.yaml");
    setup.home.config(&format!(
        "{config}mcp_servers:\n  srv:\n    url: {}\n",
        server.url()
    ));
    let life = GatewayChild::begin(&setup.home, &[]);
    let status = |words: &[&str]| {
        let command = hermes(&setup.home).args(["gateway", "status"]).args(words);
        command.run().ok()
    };
    // The gateway writes it at intervals: another program's doings can only be polled.
    let ready = (0..200).any(|_| {
        std::thread::sleep(std::time::Duration::from_millis(50));
        status(&["--json"]).json()["mcp"][0]["state"] == "ready"
    });
    let shown = status(&[]).stdout;
    assert!(ready, "{shown}");
    assert!(
        shown.contains(" mcp         srv  connected: healthy; last success"),
        "{shown}"
    );
    drop(hermes(&setup.home).args(["gateway", "stop"]).run().ok());
    assert_eq!(life.end().code, Some(0));
}

#[test]
fn a_signal_that_nobody_announced_ends_it_in_order() {
    let setup = CliHarness::new();
    let life = GatewayChild::begin(&setup.home, &["-q"]);
    life.signal(Signal::TERM);
    let ended = life.end();
    assert_eq!(ended.code, Some(0), "{ended:?}");
    assert_eq!(ended.stderr, "");
    // Whoever starts the machine knows that it is to run.
    assert_eq!(state(&setup.home)["gateway_state"], "running");
    let status = hermes(&setup.home)
        .args(["gateway", "status", "--json"])
        .run();
    assert_eq!(status.json()["running"], false);
    let life = GatewayChild::begin(&setup.home, &[]);
    assert_eq!(life.stop().code, Some(0), "Ctrl+C is meant");
}

/// A new start would not help, so whoever looks after services must not try one.
#[test]
fn a_damaged_database_ends_it_for_good() {
    type Damage = fn(&std::path::Path);
    let damages: [(Damage, &str); 3] = [
        (
            |path| std::fs::write(path, "this is no database at all").unwrap(),
            "hermes sessions repair",
        ),
        (
            |path| {
                let mut bytes = std::fs::read(path).unwrap();
                for byte in &mut bytes[100..] {
                    *byte = 0xff;
                }
                std::fs::write(path, bytes).unwrap();
            },
            "hermes sessions repair",
        ),
        (
            |path| {
                std::fs::remove_file(path).unwrap();
                std::fs::create_dir(path).unwrap();
            },
            "it is not a file; move it away",
        ),
    ];
    for (damage, advice) in damages {
        let setup = CliHarness::new();
        assert_eq!(
            GatewayChild::begin(&setup.home, &["-q"]).stop().code,
            Some(0)
        );
        for beside in ["state.db-wal", "state.db-shm"] {
            let _ = std::fs::remove_file(setup.home.join(beside));
        }
        damage(&setup.home.join("state.db"));
        for _ in 0..2 {
            let ended = hermes(&setup.home).args(["gateway", "run", "-q"]).run();
            assert_eq!(ended.code, Some(78), "{ended:?}");
            assert!(ended.stderr.contains("state.db"), "{ended:?}");
            assert!(ended.stderr.contains(advice), "{ended:?}");
        }
        assert_eq!(state(&setup.home)["gateway_state"], "startup_failed");
    }
}

#[test]
fn after_a_kill_the_next_one_begins_at_once() {
    let setup = CliHarness::new();
    for _ in 0..2 {
        let life = GatewayChild::begin(&setup.home, &[]);
        life.signal(Signal::KILL);
        assert_eq!(life.end().code, None);
        assert!(setup.home.exists("gateway.pid"));
        let status = hermes(&setup.home)
            .args(["gateway", "status", "--json"])
            .run();
        assert_eq!(status.json()["running"], false);
    }
    let life = GatewayChild::begin(&setup.home, &[]);
    assert_eq!(life.stop().code, Some(0));
}

#[test]
fn there_is_one_per_home_and_another_may_take_its_place() {
    let setup = CliHarness::new();
    let home = &setup.home;
    let first = GatewayChild::begin(home, &[]);
    let second = hermes(home).args(["gateway", "run"]).run();
    assert_eq!(second.code, Some(75), "{second:?}");
    assert!(second.stderr.contains(&first.pid.to_string()), "{second:?}");
    let second = GatewayChild::begin(home, &["--replace"]);
    let ended = first.end();
    assert_eq!(
        ended.code,
        Some(0),
        "it was told that this is meant: {ended:?}"
    );
    let record: Value = serde_json::from_str(&home.read("gateway.pid")).unwrap();
    assert_eq!(record["pid"], second.pid);
    assert!(!home.exists(".gateway-takeover.json"));
    assert_eq!(second.stop().code, Some(0));
}

#[test]
fn it_begins_anew_in_place_or_by_whoever_started_it() {
    let setup = CliHarness::new();
    let mut life = GatewayChild::begin(&setup.home, &[]);
    let began = state(&setup.home)["started_at"].clone();
    life.signal(Signal::USR1);
    assert!(life.says("RELOADING=1"));
    assert!(life.says("READY=1"));
    assert_ne!(state(&setup.home)["started_at"], began);
    let restarted = hermes(&setup.home).args(["gateway", "restart"]).run().ok();
    assert!(restarted.stdout.contains("was restarted"), "{restarted:?}");
    assert_eq!(life.stop().code, Some(0));
    let supervised = "HERMES_GATEWAY_EXTERNAL_SUPERVISOR";
    let life = GatewayChild::with(&setup.home, |program| program.env(supervised, "1"));
    life.signal(Signal::USR1);
    assert_eq!(life.end().code, Some(75));
    assert_eq!(state(&setup.home)["restart_requested"], true);
}

#[test]
fn a_configuration_that_cannot_work_is_said_and_not_tried_again() {
    let setup = CliHarness::with_config("telegram: {dm_policy: open}\n");
    let home = &setup.home;
    let run = |words: &[&str]| {
        let words = ["gateway", "run", "-q", "--force"].iter().chain(words);
        hermes(home).args(words).run()
    };
    home.env_file("TELEGRAM_BOT_TOKEN=123456:abcdefghijklmnop\n");
    let open = run(&[]);
    assert_eq!(open.code, Some(78), "{open:?}");
    assert!(open.stderr.contains("TELEGRAM_ALLOW_ALL_USERS"), "{open:?}");
    assert_eq!(state(home)["gateway_state"], "startup_failed");
    let started = hermes(home).args(["gateway", "start"]).run();
    assert_eq!(started.code, Some(1), "{started:?}");
    assert!(started.stderr.contains("the policy is open"), "{started:?}");
    home.env_file("");
    home.write("gateway.json", "[");
    assert_eq!(run(&[]).code, Some(78));
    std::fs::remove_file(home.join("gateway.json")).unwrap();
    home.env_file("API_SERVER_ENABLED=true\n");
    let no_key = run(&[]);
    assert_eq!(no_key.code, Some(78), "{no_key:?}");
    assert!(no_key.stderr.contains("API_SERVER_KEY"), "{no_key:?}");
    home.config("model: [");
    assert_eq!(run(&[]).code, Some(78));
}

#[test]
fn a_token_is_used_by_one_gateway_of_the_machine() {
    let env = "TELEGRAM_BOT_TOKEN=123456:abcdefghijklmnop\nTELEGRAM_ALLOWED_USERS=1\n";
    let nowhere = "telegram: {extra: {base_url: 'http://127.0.0.1:9'}}\n";
    let (one, two) = (
        CliHarness::with_config(nowhere),
        CliHarness::with_config(nowhere),
    );
    one.home.env_file(env);
    two.home.env_file(env);
    let locks = one.home.work().join("locks");
    let life = GatewayChild::begin(&one.home, &[]);
    let other = hermes(&two.home)
        .args(["gateway", "run"])
        .env("HERMES_GATEWAY_LOCK_DIR", &locks)
        .run();
    assert_eq!(other.code, Some(78), "{other:?}");
    assert!(other.stderr.contains("uses this token"), "{other:?}");
    assert_eq!(state(&two.home)["gateway_state"], "startup_failed");
    life.signal(Signal::KILL);
    life.end();
    let next = GatewayChild::with(&two.home, |program| {
        program.env("HERMES_GATEWAY_LOCK_DIR", &locks)
    });
    assert_eq!(next.stop().code, Some(0));
}

#[test]
fn in_the_background_it_is_started_and_stopped() {
    let setup = CliHarness::new();
    let home = &setup.home;
    let started = hermes(home).args(["gateway", "start"]).run().ok();
    assert!(started.stdout.contains("is running (pid"), "{started:?}");
    let pid = state(home)["pid"].clone();
    let again = hermes(home).args(["gateway", "start"]).run().ok();
    assert!(again.stdout.contains("is already running"), "{again:?}");
    let restarted = hermes(home).args(["gateway", "restart"]).run().ok();
    assert!(restarted.stdout.contains("was restarted"), "{restarted:?}");
    assert_eq!(state(home)["pid"], pid, "in place");
    drop(hermes(home).args(["gateway", "stop"]).run().ok());
    assert_eq!(state(home)["gateway_state"], "stopped");
}

#[test]
fn units_are_written_for_this_home() {
    let home = TempHome::new();
    // There is no systemd to talk to; the unit is there all the same.
    let config = home.user().join("config");
    let install = |words: &[&str]| {
        let words = ["gateway", "install", "--no-start-now"].iter().chain(words);
        let bare = home.work().join("bin");
        hermes(&home)
            .args(words)
            .env("XDG_CONFIG_HOME", &config)
            .env("PATH", bare)
            .run()
    };
    let first = install(&[]);
    assert_eq!(first.code, Some(1), "{first:?}");
    assert!(first.stderr.contains("systemctl"), "{first:?}");
    let units = config.join("systemd/user");
    let unit = std::fs::read_dir(&units)
        .unwrap()
        .next()
        .unwrap()
        .unwrap()
        .path();
    let text = std::fs::read_to_string(&unit).unwrap();
    let root = home.path().canonicalize().unwrap();
    assert!(
        text.contains(&format!("HERMES_HOME={}", root.display())),
        "{text}"
    );
    assert!(text.contains("\"gateway\" \"run\""), "{text}");
    assert_eq!(install(&[]).code, Some(64), "only with --force");
    assert_eq!(install(&["--force"]).code, Some(1));
}

#[test]
fn the_original_sees_it_and_stops_it() {
    let Some(oracle) = oracle::require("the_original_sees_it_and_stops_it") else {
        return;
    };
    let setup = CliHarness::new();
    let home = &setup.home;
    let life = GatewayChild::begin(home, &[]);
    let seen = oracle.json(
        home,
        "import json\nfrom gateway import status\nstate = status.read_runtime_status()\n\
         print(json.dumps({'pid': status.get_running_pid(), 'lock': status.is_gateway_runtime_lock_active(),\
         'state': state['gateway_state'], 'active': state['active_agents'],\
         'by_state': status.get_runtime_status_running_pid()}))",
        [],
    );
    let pid = life.pid;
    let expected =
        json!({"pid": pid, "lock": true, "state": "running", "active": 0, "by_state": pid});
    assert_eq!(seen, expected);
    let told = oracle
        .run(
            home,
            "import os, signal, sys\nfrom gateway import status\npid = int(sys.argv[1])\n\
         assert status.write_planned_stop_marker(pid)\nos.kill(pid, signal.SIGTERM)",
            [pid.to_string().as_str()],
        )
        .ok();
    drop(told);
    assert_eq!(life.end().code, Some(0));
    let gone = oracle.json(
        home,
        "import json\nfrom gateway import status\nprint(json.dumps(status.get_running_pid()))",
        [],
    );
    assert_eq!(gone, Value::Null);
}

#[test]
fn clients_of_the_api_are_answered_and_every_row_is_kept() {
    let setup = CliHarness::new();
    let port = std::net::TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap()
        .port();
    let key = "0123456789abcdef0123456789abcdef";
    setup
        .home
        .env_file(&format!("API_SERVER_KEY={key}\nAPI_SERVER_PORT={port}\n"));
    setup.server.push_default(Reply::text("four"));
    let life = GatewayChild::begin(&setup.home, &[]);
    let body =
        json!({"model": "hermes-agent", "messages": [{"role": "user", "content": "two and two?"}]});
    let answer = post(port, key, &body.to_string());
    assert!(answer.contains("four"), "{answer}");
    let list = hermes(&setup.home)
        .args(["sessions", "list", "--json"])
        .run()
        .ok()
        .json();
    assert_eq!(list[0]["source"], "api_server");
    assert_eq!(list[0]["message_count"], 2);
    assert_eq!(life.stop().code, Some(0));
}

fn post(port: u16, key: &str, body: &str) -> String {
    use std::io::{Read as _, Write as _};
    let mut stream = std::net::TcpStream::connect(("127.0.0.1", port)).unwrap();
    write!(
        stream,
        "POST /v1/chat/completions HTTP/1.1\r\nHost: here\r\nConnection: close\r\n\
         Authorization: Bearer {key}\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    )
    .unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

#[test]
fn without_a_platform_it_says_how_to_get_one() {
    let home = TempHome::new();
    home.write(
        "config.yaml",
        "model: {default: m, provider: custom, base_url: 'http://127.0.0.1:9/v1', api_key: k}\n",
    );
    let gateway = GatewayChild::begin(&home, &[]);
    let ended = gateway.stop();
    assert!(
        ended.stderr.contains("no platform is set up"),
        "{}",
        ended.stderr
    );
    assert!(
        ended.stderr.contains("hermes gateway setup"),
        "{}",
        ended.stderr
    );
    // In the background nobody sees what it prints.
    for verb in ["start", "restart"] {
        let started = hermes(&home).args(["gateway", verb]).run().ok();
        let told = started.stderr.contains("no platform is set up");
        assert!(told, "{verb}: {}", started.stderr);
    }
    drop(hermes(&home).args(["gateway", "stop"]).run().ok());
}

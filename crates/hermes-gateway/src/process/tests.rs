use std::os::unix::net::UnixDatagram;
use std::time::Duration;

use chrono::{TimeDelta, Utc};
use hermes_config::Home;
use hermes_platforms::PlatformState;
use pretty_assertions::assert_eq;
use serde_json::{Value, json};

use super::service::{ServiceDefinition, launchd, systemd};
use super::*;

fn home() -> (tempfile::TempDir, Home) {
    let dir = tempfile::tempdir().unwrap();
    let home = Home::at(dir.path());
    (dir, home)
}

fn me() -> GatewayProcess {
    let pid = std::process::id();
    GatewayProcess {
        pid,
        start_time: start_time(pid),
    }
}

#[test]
fn a_home_is_taken_once_and_given_back() {
    let (dir, home) = home();
    let claim = HomeClaim::take(&home).unwrap();
    let text = std::fs::read_to_string(dir.path().join("gateway.pid")).unwrap();
    let record: Value = serde_json::from_str(&text).unwrap();
    assert_eq!(record["pid"], std::process::id());
    assert_eq!(record["kind"], "hermes-gateway");
    assert_eq!(record["start_time"], json!(start_time(std::process::id())));
    assert!(matches!(
        HomeClaim::take(&home),
        Err(ClaimError::Running(_))
    ));
    drop(claim);
    assert!(!dir.path().join("gateway.pid").exists());
    HomeClaim::take(&home).unwrap();
}

#[test]
fn what_a_dead_gateway_left_does_not_matter() {
    let (dir, home) = home();
    let dead = r#"{"pid": 4000001, "kind": "hermes-gateway", "argv": ["hermes", "gateway"], "start_time": 1}"#;
    std::fs::write(dir.path().join("gateway.pid"), dead).unwrap();
    std::fs::write(dir.path().join("gateway.lock"), dead).unwrap();
    std::fs::write(
        dir.path().join("gateway_state.json"),
        r#"{"pid": 4000001, "gateway_state": "running"}"#,
    )
    .unwrap();
    assert_eq!(running(dir.path()), None);
    let _claim = HomeClaim::take(&home).unwrap();
}

#[test]
fn command_lines_of_gateways_are_known() {
    let words = |line: &str| -> Vec<String> { line.split(' ').map(str::to_owned).collect() };
    for line in [
        "hermes gateway",
        "/usr/bin/hermes gateway run --replace",
        "hermes --profile gateway gateway run",
        "python -m hermes_cli.main gateway run",
        "hermes gateway restart",
    ] {
        assert!(is_gateway_command(&words(line)), "{line}");
    }
    for line in [
        "hermes gateway status",
        "hermes chat",
        "python -m tui_gateway",
        "vim gateway",
        "hermes -p gateway chat",
    ] {
        assert!(!is_gateway_command(&words(line)), "{line}");
    }
}

#[test]
fn words_for_one_gateway_are_not_for_another() {
    let (dir, _) = home();
    let now = Utc::now();
    let root = dir.path();
    for marker in [Marker::Takeover, Marker::PlannedStop] {
        assert!(!marker.is_for_us(root, now));
        marker.leave(root, me(), now).unwrap();
        assert!(marker.is_for_us(root, now));
        assert!(marker.take(root, now));
        assert!(!marker.take(root, now), "once");
        marker
            .leave(root, me(), now - TimeDelta::seconds(61))
            .unwrap();
        assert!(!marker.is_for_us(root, now), "too old");
        let other = GatewayProcess {
            pid: 1,
            start_time: Some(1),
        };
        marker.leave(root, other, now).unwrap();
        assert!(!marker.take(root, now));
        marker.clear(root);
    }
    assert!(!drain_requested(root));
    std::fs::write(root.join(".drain_request.json"), r#"{"action": "drain"}"#).unwrap();
    assert!(drain_requested(root));
    std::fs::write(
        root.join(".drain_request.json"),
        r#"{"epoch": "another:1"}"#,
    )
    .unwrap();
    assert!(!drain_requested(root));
}

#[test]
fn starts_in_quick_succession_are_slowed_down() {
    let (dir, _) = home();
    let limits = RestartStormLimits::default();
    for second in 0..5 {
        assert_eq!(started(dir.path(), limits, f64::from(second)), None);
    }
    let pause = |now: f64| started(dir.path(), limits, now).map(|storm| storm.pause.as_secs());
    assert_eq!(pause(6.0), Some(10));
    assert_eq!(pause(7.0), Some(20));
    assert_eq!(pause(1000.0), None);
}

#[test]
fn a_token_belongs_to_one_process() {
    let (dir, _) = home();
    let lock_dir = dir.path().join("locks").display().to_string();
    let locks =
        TokenLocks::from_vars(|name| (name == "HERMES_GATEWAY_LOCK_DIR").then(|| lock_dir.clone()))
            .unwrap();
    let now = Utc::now();
    let first = locks.take("telegram", "123:abc", now).unwrap();
    let name = std::fs::read_dir(&lock_dir)
        .unwrap()
        .next()
        .unwrap()
        .unwrap();
    let name = name.file_name().into_string().unwrap();
    assert!(!name.contains("123:abc"), "{name}");
    // Our own is taken again: a platform that begins anew.
    let second = locks.take("telegram", "123:abc", now).unwrap();
    drop(first);
    drop(second);
    let path = dir.path().join("locks").join(&name);
    assert!(!path.exists());
    std::fs::write(&path, r#"{"pid": 4000001, "start_time": 5}"#).unwrap();
    locks.take("telegram", "123:abc", now).unwrap();
    std::fs::write(&path, "").unwrap();
    locks.take("telegram", "123:abc", now).unwrap();
}

#[test]
fn what_the_gateway_tells_is_written_when_it_changes() {
    let (dir, home) = home();
    let now = Utc::now();
    let mut file = GatewayStateFile::new(&home, now);
    let row = PlatformSnapshot {
        state: PlatformState::Retrying,
        error: Some("no route".to_owned()),
        received_at: Some(1.5),
    };
    let mut snapshot = GatewaySnapshot {
        state: GatewayState::Running,
        active: 2,
        ..GatewaySnapshot::default()
    };
    snapshot.platforms.insert("telegram".to_owned(), row);
    file.write(snapshot.clone(), now);
    let told = read_state(dir.path()).unwrap();
    assert_eq!(told["gateway_state"], "running");
    assert_eq!(told["active_agents"], 2);
    assert_eq!(told["platforms"]["telegram"]["state"], "retrying");
    assert_eq!(told["platforms"]["telegram"]["error_message"], "no route");
    assert_eq!(
        told["platforms"]["telegram"]["updated_at"],
        json!(now.to_rfc3339())
    );
    std::fs::remove_file(dir.path().join("gateway_state.json")).unwrap();
    file.write(snapshot, now);
    assert_eq!(read_state(dir.path()), None, "nothing new");
    file.write_heartbeat(now);
    let beat = std::fs::read_to_string(dir.path().join("state/gateway.heartbeat")).unwrap();
    let beat: Value = serde_json::from_str(&beat).unwrap();
    assert_eq!(beat["pid"], std::process::id());
    assert!(beat["monotonic"].as_f64().unwrap() > 0.0);
}

#[test]
fn systemd_is_told() {
    let (dir, _) = home();
    let path = dir.path().join("notify");
    let receiver = UnixDatagram::bind(&path).unwrap();
    receiver
        .set_read_timeout(Some(Duration::from_secs(5)))
        .unwrap();
    let vars = |name: &str| match name {
        "NOTIFY_SOCKET" => Some(path.display().to_string()),
        "WATCHDOG_USEC" => Some("20000000".to_owned()),
        _ => None,
    };
    let notifier = Notifier::from_vars(vars);
    assert_eq!(notifier.watchdog(), Some(Duration::from_secs(10)));
    notifier.ready("2 platforms");
    let mut words = [0; 256];
    let count = receiver.recv(&mut words).unwrap();
    assert_eq!(&words[..count], b"READY=1\nSTATUS=2 platforms\n");
    let silent = Notifier::from_vars(|_| None);
    silent.alive();
    assert_eq!(silent.watchdog(), None);
}

#[test]
fn units_say_what_is_to_be_done() {
    let (dir, home) = home();
    let program = "/opt/her mes/hermes".into();
    let mut service =
        ServiceDefinition::new(&home, program, "/home/a/bin:/tmp/x:relative:/usr/bin");
    assert!(
        service.name.starts_with("hermes-gateway-"),
        "not the usual home"
    );
    service.drain = Duration::from_secs(45);
    service.watchdog = Some(Duration::from_secs(30));
    let unit = systemd::unit(&service, &systemd::ServiceScope::User);
    let root = dir.path().canonicalize().unwrap();
    for line in [
        "Type=notify".to_owned(),
        "WatchdogSec=30s".to_owned(),
        "ExecStart=\"/opt/her mes/hermes\" \"gateway\" \"run\"".to_owned(),
        format!("Environment=\"HERMES_HOME={}\"", root.display()),
        "RestartForceExitStatus=75".to_owned(),
        "RestartPreventExitStatus=78".to_owned(),
        "TimeoutStopSec=75".to_owned(),
        "WantedBy=default.target".to_owned(),
    ] {
        assert!(unit.lines().any(|known| known == line), "{line}\n{unit}");
    }
    assert!(unit.contains("/home/a/bin:/usr/bin"), "{unit}");
    assert!(!unit.contains("/tmp/x"), "{unit}");
    assert_eq!(systemd::stale(&unit, &service), None);
    service.drain = Duration::from_mins(10);
    assert!(systemd::stale(&unit, &service).is_some());
    let account = systemd::ServiceAccount {
        user: "ana".to_owned(),
        group: "ana".to_owned(),
        home: "/home/ana".into(),
    };
    let unit = systemd::unit(&service, &systemd::ServiceScope::System(account));
    assert!(unit.contains("User=ana\n") && unit.contains("WantedBy=multi-user.target"));
    let plist = launchd::plist(&service);
    assert!(
        plist.contains("<string>/opt/her mes/hermes</string>"),
        "{plist}"
    );
    assert!(plist.contains("<key>ThrottleInterval</key>"));
}

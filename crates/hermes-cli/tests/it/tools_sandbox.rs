//! The sandbox from the top: what commands of a turn cannot do, and where its state is shown.

use hermes_testkit::model_server::Reply;
use serde_json::{Value, json};

use crate::CliHarness;

const SECRET: &str = "sk-sandbox-0123456789-secret";

/// Runs these commands in one turn; what the model read of each.
fn turn(setup: &CliHarness, commands: &[&str]) -> Vec<String> {
    for (at, command) in commands.iter().enumerate() {
        let arguments = json!({"command": command});
        setup
            .server
            .push(Reply::tool_call(&format!("c{at}"), "terminal", &arguments));
    }
    setup.server.push(Reply::text("done"));
    let _ = setup
        .program(["-z", "go"])
        .cwd(setup.home.work())
        .run()
        .ok();
    let last = setup.server.last_request();
    last.tool_results()
        .iter()
        .map(|result| result.text.clone())
        .collect()
}

#[test]
fn a_turn_reads_no_secrets_and_writes_nothing_outside() {
    let setup = CliHarness::new();
    let env = setup.home.path().join(".env");
    let before = std::fs::read_to_string(&env).unwrap_or_default();
    std::fs::write(&env, format!("{before}\nOTHER_KEY={SECRET}\n")).unwrap();
    let peek = format!(
        "cat {0}/.env; cat {0}/.e*; cp {0}/.env here; cat here",
        setup.home.path().display()
    );
    std::fs::write(setup.home.work().join("peek.sh"), peek).unwrap();
    let write = "echo evil > ~/.profile; echo evil > ~/.bashrc; touch ~/.ssh/authorized_keys";
    std::fs::write(setup.home.work().join("write.sh"), write).unwrap();
    std::fs::create_dir(setup.home.user().join(".ssh")).unwrap();
    for name in [".profile", ".bashrc"] {
        std::fs::write(setup.home.user().join(name), "# mine\n").unwrap();
    }
    let said = turn(
        &setup,
        &[
            "cat \"$HERMES_HOME/.env\"",
            "bash peek.sh",
            "bash write.sh",
            "echo fine > inside && cat inside",
        ],
    );
    for text in &said {
        assert!(!text.contains(SECRET), "{text}");
    }
    assert!(said[3].contains("fine"), "{}", said[3]);
    for name in [".profile", ".bashrc"] {
        let text = std::fs::read_to_string(setup.home.user().join(name)).unwrap();
        assert_eq!(text, "# mine\n", "{name}");
    }
    assert!(!setup.home.user().join(".ssh/authorized_keys").exists());
    // Not by redaction either: the file that the command made is empty, or not there.
    let copied = std::fs::read_to_string(setup.home.work().join("here")).unwrap_or_default();
    assert!(!copied.contains(SECRET));
}

#[test]
fn doctor_and_status_show_the_confinement() {
    let setup = CliHarness::new();
    let status = setup.run(["status", "--json"]).ok().json();
    assert_eq!(status["terminal"]["backend"], "local", "{status}");
    let sandbox = &status["terminal"]["sandbox"];
    assert_eq!(sandbox["requested"], "auto");
    assert_ne!(sandbox["active"], Value::Null);
    let doctor = setup.run(["doctor", "--offline"]).stdout;
    assert!(doctor.contains("sandbox"), "{doctor}");
}

#[test]
fn a_sandbox_or_backend_that_is_not_there_runs_nothing() {
    let setup = CliHarness::with_config("terminal:\n  sandbox: fort-knox\n");
    let said = turn(&setup, &["echo ran > ran"]);
    assert!(said[0].contains("fort-knox"), "{}", said[0]);
    assert!(!setup.home.work().join("ran").exists());
    let doctor = setup.run(["doctor", "--offline"]);
    assert_eq!(doctor.code, Some(1), "{}", doctor.stdout);
    assert!(doctor.stdout.contains("fort-knox"), "{}", doctor.stdout);

    let setup = CliHarness::with_config("terminal:\n  backend: modal\n");
    let said = turn(&setup, &["echo ran > ran"]);
    assert!(
        !said.iter().any(|text| text.contains("\"exit_code\":0")),
        "{said:?}"
    );
    assert!(!setup.home.work().join("ran").exists());
    let doctor = setup.run(["doctor", "--offline"]);
    assert!(doctor.stdout.contains("modal"), "{}", doctor.stdout);
}

/// Stands in for docker: notes its orders, knows one container that ended long ago and one that
/// ended just now, and starts none before the old one was removed.
const DOCKER: &str = r#"#!/bin/bash
echo "$*" >> "$NOTES"
case "$1" in
ps) [[ "$*" == *status=exited* ]] && printf 'old\nfresh\n' ;;
inspect) [[ "$*" == *old ]] && echo 2020-01-02T03:04:05Z || date -u +%Y-%m-%dT%H:%M:%SZ ;;
rm) touch "$NOTES.$3" ;;
*)
    for _ in $(seq 400); do [[ -e "$NOTES.old" || -n "$ONLY" ]] && break; sleep 0.05; done
    echo "this is no docker" >&2
    exit 1
    ;;
esac
"#;

/// What a chat has docker do, with these lines below `terminal`.
fn orders(more: &str, only: &str) -> Vec<String> {
    use std::os::unix::fs::PermissionsExt as _;
    let setup = CliHarness::with_config(&format!(
        "approvals:\n  unattended: allow\nterminal:\n  backend: docker\n{more}"
    ));
    let docker = setup.home.user().join("docker");
    std::fs::write(&docker, DOCKER).unwrap();
    std::fs::set_permissions(&docker, std::fs::Permissions::from_mode(0o755)).unwrap();
    let notes = setup.home.user().join("notes");
    let run = Reply::tool_call("c1", "terminal", &json!({"command": "true"}));
    setup.server.push(run);
    setup.server.push(Reply::text("done"));
    let program = setup.program(["-z", "go"]).cwd(setup.home.work());
    let program = program.env("HERMES_DOCKER_BINARY", &docker);
    let _ = program.env("NOTES", &notes).env("ONLY", only).run().ok();
    let notes = std::fs::read_to_string(notes).unwrap();
    notes.lines().map(str::to_owned).collect()
}

#[test]
fn a_chat_in_containers_removes_those_that_ended_long_ago() {
    let orders = orders("", "");
    let removed: Vec<_> = orders.iter().filter(|o| o.starts_with("rm")).collect();
    assert_eq!(removed, ["rm -f old"], "{orders:?}");
}

#[test]
fn unless_the_reaper_is_off() {
    let orders = orders("  docker_orphan_reaper: false\n", "yes");
    assert!(!orders.is_empty());
    assert!(
        orders.iter().all(|order| !order.contains("status=exited")),
        "{orders:?}"
    );
}

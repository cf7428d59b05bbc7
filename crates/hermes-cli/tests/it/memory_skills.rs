//! `hermes memory` and `hermes skills`.

use hermes_testkit::home::TempHome;
use hermes_testkit::model_server::Reply;
use hermes_testkit::process::FinishedProgram;
use serde_json::json;

use super::{CliHarness, hermes};

fn run<'a>(home: &TempHome, args: impl IntoIterator<Item = &'a str>) -> FinishedProgram {
    hermes(home).args(args).run()
}

#[test]
fn memory_is_shown_and_changed() {
    let home = TempHome::new();
    let _ = run(&home, ["memory", "add", "Likes tea.", "--target", "user"]).ok();
    let _ = run(&home, ["memory", "add", "Uses Fedora."]).ok();
    let shown = run(&home, ["memory", "show", "--json"]).ok().json();
    assert_eq!(
        shown,
        json!({"memory": ["Uses Fedora."], "user": ["Likes tea."]})
    );
    let status = run(&home, ["memory"]).ok();
    assert!(
        status
            .stdout
            .contains("USER.md    1 entry, 0% — 10/1,375 chars"),
        "{}",
        status.stdout
    );
    let missing = run(&home, ["memory", "remove", "Windows"]);
    assert_eq!(missing.code, Some(4));
    assert!(
        missing.stderr.contains("Uses Fedora."),
        "{}",
        missing.stderr
    );
    let _ = run(&home, ["memory", "remove", "Fedora"]).ok();
    assert_eq!(home.read("memories/MEMORY.md"), "");
}

#[test]
fn memory_is_not_deleted_without_a_yes() {
    let home = TempHome::new();
    home.write("memories/USER.md", "Likes tea.");
    assert_eq!(run(&home, ["memory", "reset"]).code, Some(64));
    assert_eq!(home.read("memories/USER.md"), "Likes tea.");
    let _ = run(&home, ["memory", "reset", "--target", "user", "--yes"]).ok();
    assert_eq!(home.read("memories/USER.md"), "");
}

#[test]
fn waiting_changes_are_approved_or_dropped() {
    let home = TempHome::new();
    for (id, text) in [("0000000a", "one"), ("0000000b", "two")] {
        let record = json!({"id": id, "subsystem": "memory", "action": "add", "summary": text,
            "origin": "foreground", "created_at": 1.0,
            "payload": {"action": "add", "target": "memory", "content": text}});
        home.write(format!("pending/memory/{id}.json"), record.to_string());
    }
    assert_eq!(run(&home, ["memory", "approve", "none"]).code, Some(4));
    let _ = run(&home, ["memory", "approve", "0000000a"]).ok();
    let _ = run(&home, ["memory", "reject", "0000000b"]).ok();
    assert_eq!(home.read("memories/MEMORY.md"), "one");
    assert_eq!(
        run(&home, ["memory", "pending", "--json"]).ok().json(),
        json!([])
    );
}

#[test]
fn an_unreadable_file_is_said_and_kept() {
    let home = TempHome::new();
    home.write("memories/MEMORY.md", b"caf\xe9");
    let status = run(&home, ["memory", "status"]);
    assert_eq!(status.code, Some(1));
    assert!(status.stdout.contains("not UTF-8"), "{}", status.stdout);
    assert_eq!(run(&home, ["memory", "add", "x"]).code, Some(1));
    assert_eq!(
        std::fs::read(home.join("memories/MEMORY.md")).unwrap(),
        b"caf\xe9"
    );
}

#[test]
fn an_external_provider_is_switched_off_without_touching_the_rest() {
    let home = TempHome::new();
    home.config("# mine\nmemory:\n  provider: honcho  # old\n");
    let _ = run(&home, ["memory", "off"]).ok();
    let config = home.read("config.yaml");
    assert!(
        config.starts_with("# mine\nmemory:\n  provider: ") && !config.contains("honcho"),
        "{config}"
    );
}

#[test]
fn skills_are_listed_and_printed() {
    let home = TempHome::new();
    let text = "---\nname: notes\ndescription: Take notes\n---\n\nWrite.\n";
    home.write("skills/office/notes/SKILL.md", text);
    home.write("skills/office/notes/references/a.md", "more");
    home.write("skills/.bundled_manifest", "plan:abc\n");
    home.config("skills:\n  disabled: [plan]\n");
    home.write("skills/plan/SKILL.md", text.replace("notes", "plan"));
    let listed = run(&home, ["skills", "list", "--json"]).ok().json();
    assert_eq!(listed[0]["name"], "plan");
    assert_eq!(
        (&listed[0]["source"], &listed[0]["enabled"]),
        (&json!("builtin"), &json!(false))
    );
    assert_eq!(listed[1]["category"], "office");
    let enabled = run(&home, ["skills", "list", "--enabled-only"]).ok();
    assert!(!enabled.stdout.contains("plan"), "{}", enabled.stdout);
    let view = run(&home, ["skills", "view", "notes"]).ok();
    assert_eq!(view.stdout, text);
    let file = run(&home, ["skills", "view", "notes", "references/a.md"]).ok();
    assert_eq!(file.stdout, "more\n");
    assert_eq!(run(&home, ["skills", "view", "none"]).code, Some(4));
    assert_eq!(run(&home, ["skills", "view", "../x"]).code, Some(64));
}

#[test]
fn what_cannot_be_remembered_is_told_plainly() {
    let home = TempHome::new();
    let missing = run(&home, ["memory", "remove", "tea"]);
    assert_eq!(
        (missing.code, missing.stderr.as_str()),
        (
            Some(4),
            "hermes: no entry contains \"tea\"; there are none\n"
        )
    );
    let long = "x".repeat(3000);
    let full = run(&home, ["memory", "add", &long]);
    assert_eq!(full.code, Some(1));
    assert!(
        full.stderr.ends_with("shorten the entry\n"),
        "{}",
        full.stderr
    );
    // A lock that nobody holds but that cannot be taken: waiting would not help.
    std::fs::remove_file(home.join("memories/MEMORY.md.lock")).unwrap();
    std::fs::create_dir_all(home.join("memories/MEMORY.md.lock")).unwrap();
    let unlockable = run(&home, ["memory", "add", "tea"]);
    assert_eq!(unlockable.code, Some(1), "{}", unlockable.stderr);
    assert!(
        !unlockable.stderr.contains("try again"),
        "{}",
        unlockable.stderr
    );
}

const LAB: &str = "---\nname: lab\ndescription: The lab.\nrequired_environment_variables:\n  - name: LAB_TOKEN\n  - name: OPENAI_API_KEY\nprerequisites:\n  env_vars: [LAB_PLACE]\n---\nUse $LAB_TOKEN.\n";

/// Which of the variables a command has; the values themselves are not shown.
const PROBE: &str = "for name in LAB_TOKEN LAB_PLACE OPENAI_API_KEY; do \
    if test -n \"${!name}\"; then echo \"$name yes\"; else echo \"$name no\"; fi; done; echo \"$LAB_TOKEN\"";

fn lab(more: &str) -> CliHarness {
    let setup = CliHarness::with_config(&format!("approvals:\n  unattended: allow\n{more}"));
    setup.home.write("skills/lab/SKILL.md", LAB);
    setup.home.env_file(
        "LAB_TOKEN=tok-lab-4711-abcdef\nLAB_PLACE=cellar-42\nOPENAI_API_KEY=sk-home-1234567890\n",
    );
    setup
}

#[test]
fn a_skill_that_was_loaded_lets_commands_have_its_variables() {
    let setup = lab("");
    let probe = |id: &str| Reply::tool_call(id, "terminal", &json!({"command": PROBE}));
    setup.server.push(probe("c1"));
    let load = Reply::tool_call("c2", "skill_view", &json!({"name": "lab"}));
    setup.server.push(load);
    setup.server.push(probe("c3"));
    setup.server.push(Reply::text("done"));
    let program = setup.program(["-z", "go"]).cwd(setup.home.work());
    assert_eq!(program.run().ok().stdout.trim(), "done");
    let results = setup.server.last_request().tool_results();
    let (before, after) = (&results[0].text, &results[2].text);
    assert!(
        before.contains("LAB_TOKEN no") && before.contains("LAB_PLACE no"),
        "{before}"
    );
    assert!(
        after.contains("LAB_TOKEN yes") && after.contains("LAB_PLACE yes"),
        "{after}"
    );
    // What Hermes itself needs cannot be had by asking, and no value is shown.
    assert!(after.contains("OPENAI_API_KEY no"), "{after}");
    assert!(!after.contains("tok-lab-4711"), "{after}");
}

#[test]
fn so_does_a_skill_named_on_the_command_line() {
    let setup = lab("");
    let probe = Reply::tool_call("c1", "terminal", &json!({"command": PROBE}));
    setup.server.push(probe);
    setup.server.push(Reply::text("done"));
    let program = setup.program(["--skills", "lab", "-z", "go"]);
    let _ = program.cwd(setup.home.work()).run().ok();
    let results = setup.server.last_request().tool_results();
    assert!(results[0].text.contains("LAB_TOKEN yes"), "{results:?}");
}

/// Stands in for docker: its container is this machine.
const DOCKER: &str = r#"#!/bin/bash
case "$1" in
run) echo 0123456789ab ;;
exec) shift 3; exec env -i PATH="$PATH" HOME="$HOME" "$@" ;;
esac
"#;

#[test]
fn and_commands_in_a_container() {
    use std::os::unix::fs::PermissionsExt as _;
    let setup = lab("terminal:\n  backend: docker\n");
    let docker = setup.home.user().join("docker");
    std::fs::write(&docker, DOCKER).unwrap();
    std::fs::set_permissions(&docker, std::fs::Permissions::from_mode(0o755)).unwrap();
    let probe = json!({"command": PROBE, "workdir": "/"});
    let probe = |id: &str| Reply::tool_call(id, "terminal", &probe);
    setup.server.push(probe("c1"));
    let load = Reply::tool_call("c2", "skill_view", &json!({"name": "lab"}));
    setup.server.push(load);
    setup.server.push(probe("c3"));
    setup.server.push(Reply::text("done"));
    let program = setup.program(["-z", "go"]).cwd(setup.home.work());
    let _ = program.env("HERMES_DOCKER_BINARY", &docker).run().ok();
    let results = setup.server.last_request().tool_results();
    let (before, after) = (&results[0].text, &results[2].text);
    assert!(before.contains("LAB_TOKEN no"), "{before}");
    assert!(after.contains("LAB_TOKEN yes"), "{after}");
    assert!(after.contains("OPENAI_API_KEY no"), "{after}");
    assert!(!after.contains("tok-lab-4711"), "{after}");
}

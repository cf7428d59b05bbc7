//! Defects measured in the original, from the top: each is named after what was wrong there.

use hermes_testkit::model_server::{RecordedRequest, Reply};
use hermes_testkit::web_server::{Page, WebServer};
use serde_json::json;

use super::{commands, results, turn};
use crate::CliHarness;

#[test]
fn defect_pty_is_ignored_in_the_foreground() {
    let setup = CliHarness::new();
    let script = "test -t 0 && test -t 1 && echo a terminal || echo none";
    let seen = turn(
        &setup,
        &[],
        &[
            ("terminal", json!({"command": script, "pty": true})),
            ("terminal", json!({"command": script})),
        ],
    );
    assert_eq!(seen[0]["output"], "a terminal", "{}", seen[0]);
    assert_eq!(seen[1]["output"], "none", "{}", seen[1]);
}

#[test]
fn defect_background_commands_do_not_see_exports_and_the_directory() {
    let setup = CliHarness::new();
    let say = json!({"command": "echo \"word=$WORD in $(basename \"$PWD\")\"", "background": true});
    let steps = [
        Reply::tool_call(
            "c0",
            "terminal",
            &json!({"command": "mkdir deep; cd deep; export WORD=kept"}),
        ),
        Reply::tool_call("c1", "terminal", &say),
    ];
    setup.server.push_all(steps);
    setup.server.answer_with(|request: &RecordedRequest| {
        let seen = results(request);
        let id = seen.iter().find_map(|one| one["session_id"].as_str());
        match seen.len() {
            2 => Reply::tool_call(
                "c2",
                "process",
                &json!({"action": "wait", "session_id": id}),
            ),
            3 => Reply::tool_call("c3", "process", &json!({"action": "log", "session_id": id})),
            _ => Reply::text("done"),
        }
    });
    let _ = setup
        .program(["-z", "go"])
        .cwd(setup.home.work())
        .run()
        .ok();
    let seen = results(&setup.server.last_request());
    assert!(
        seen[3].to_string().contains("word=kept in deep"),
        "{seen:?}"
    );
}

#[test]
fn defect_exports_of_one_session_are_seen_by_every_other() {
    let setup = CliHarness::new();
    setup.server.answer_with(|request| {
        let done = request.tool_results().len();
        let command = |text: &str| Reply::tool_call("c", "terminal", &json!({"command": text}));
        if request.body_text().contains("the parent asks") {
            return match done {
                0 => command("export OURS=of-the-parent; mkdir there; cd there"),
                1 => Reply::tool_call("p", "delegate_task", &json!({"goal": "set it"})),
                2 => command("echo \"[$THEIRS] $(basename \"$PWD\")\""),
                _ => Reply::text("done"),
            };
        }
        match done {
            0 => command("echo \"[$OURS]\"; export THEIRS=of-the-child; cd /"),
            _ => Reply::text("set"),
        }
    });
    let program = setup.program(["-z", "the parent asks"]);
    let _ = program.cwd(setup.home.work()).run().ok();
    let seen = results(&setup.server.last_request());
    assert_eq!(seen[2]["output"], "[] there", "{seen:?}");
}

#[test]
fn defect_a_blocklist_that_is_switched_on_later_is_never_seen() {
    let site = WebServer::start(|_| {
        Page::html("<p>a page of some words, long enough to be read as one</p>")
    });
    let open = "security:\n  allow_private_urls: true\n";
    let setup = CliHarness::with_config(open);
    let config = setup.home.join("config.yaml");
    let url = site.url("/");
    setup.server.answer_with(move |request| {
        let arguments = json!({"urls": [url]});
        match request.tool_results().len() {
            0 => Reply::tool_call("c0", "web_extract", &arguments),
            1 => {
                // While the turn runs, the person switches it on.
                let text = std::fs::read_to_string(&config).unwrap();
                let on = "  website_blocklist:\n    enabled: true\n    domains: ['127.0.0.1']\n";
                std::fs::write(&config, format!("{text}{on}")).unwrap();
                Reply::tool_call("c1", "web_extract", &arguments)
            }
            _ => Reply::text("done"),
        }
    });
    let _ = setup.run(["-z", "go"]).ok();
    assert_eq!(site.asked().len(), 1);
    let seen = results(&setup.server.last_request());
    assert!(seen[0].to_string().contains("long enough"), "{}", seen[0]);
    assert!(
        seen[1].to_string().contains("blocked_by_policy"),
        "{}",
        seen[1]
    );
}

#[test]
fn defect_a_program_gets_every_helper_where_the_session_has_none() {
    let setup = CliHarness::new();
    let code = "try:\n    import hermes_tools\n    names = dir(hermes_tools)\nexcept ImportError:\n    names = []\n\
        print([n for n in ('read_file', 'write_file', 'patch', 'search_files', 'terminal', 'web_search', 'web_extract') if n in names])\n";
    let flags = ["--toolsets", "code_execution"];
    let seen = turn(&setup, &flags, &[("execute_code", json!({"code": code}))]);
    assert_eq!(seen[0]["output"], "[]\n", "{}", seen[0]);
    let names = setup.server.last_request();
    assert_eq!(names.tool_names(), ["execute_code"]);
}

#[test]
fn defect_headless_runs_approve_by_themselves() {
    // Commands that the original ran without a question when nobody was there.
    let setup = CliHarness::new();
    let keep = setup.home.work().join("keep");
    std::fs::create_dir(&keep).unwrap();
    std::fs::write(keep.join("file"), "x").unwrap();
    let scripts = [
        "rm -rf keep",
        "a=rm; $a -rf keep",
        "eval \"$(echo cm0gLXJmIGtlZXA= | base64 -d)\"",
        "printf '\\162\\155 -rf keep' | sh",
        "find keep -delete",
        "xargs rm -rf <<< keep",
        "git -c core.sshCommand='rm -rf keep' fetch ssh://127.0.0.1:1/x",
    ];
    let seen = commands(&setup, &[], &scripts);
    assert!(keep.join("file").exists(), "{seen:#?}");
}

//! Commands from the built binary: the sandbox, secrets, background processes, notices.

use hermes_testkit::directories::beyond_temporary;
use hermes_testkit::model_server::{RecordedRequest, Reply};
use serde_json::{Value, json};

use crate::CliHarness;
use crate::line_chat::Terminal;

fn terminal(arguments: &Value) -> Reply {
    Reply::tool_call("c1", "terminal", arguments)
}

fn command(command: &str) -> Reply {
    terminal(&json!({"command": command}))
}

/// The result of the last call as JSON.
fn result(request: &RecordedRequest) -> Value {
    let results = request.tool_results();
    let text = &results.last().unwrap().text;
    serde_json::from_str(text).unwrap_or_else(|_| Value::String(text.clone()))
}

/// Runs one command as the only step of a turn and gives its result.
fn run(setup: &CliHarness, reply: Reply) -> Value {
    setup.server.push(reply);
    setup.server.push(Reply::text("done"));
    let _ = setup
        .program(["-z", "go"])
        .cwd(setup.home.work())
        .run()
        .ok();
    result(&setup.server.last_request())
}

#[test]
fn a_command_runs_in_the_workspace_and_cannot_leave_it() {
    let setup = CliHarness::with_config("approvals:\n  unattended: allow\n");
    let value = run(&setup, command("echo inside > file.txt; cat file.txt"));
    assert_eq!(
        value,
        json!({"output": "inside", "exit_code": 0, "error": null})
    );
    // not among the temporary ones, which commands may use
    let elsewhere = beyond_temporary(env!("CARGO_TARGET_TMPDIR"));
    let outside = elsewhere.path().join("outside.txt");
    let value = run(&setup, command(&format!("echo x > {}", outside.display())));
    assert!(!outside.exists(), "{value}");
    assert_ne!(value["exit_code"], 0, "{value}");
    let output = value["output"].as_str().unwrap();
    assert!(output.contains("The sandbox stopped it"), "{output}");
    assert!(output.contains("Nobody is here"), "{output}");
}

#[test]
fn the_keys_of_the_home_reach_no_command() {
    let setup = CliHarness::new();
    let key = "sk-the-key-of-this-home-1234567890";
    setup
        .home
        .env_file(&format!("OPENAI_API_KEY={key}\nMY_OTHER_SECRET={key}x\n"));
    let path = setup.home.path().join(".env").display().to_string();
    let script = format!("env; cat {path}; cat /proc/$PPID/environ; echo end | tr e E");
    let value = run(&setup, command(&script));
    let output = value["output"].as_str().unwrap_or_default();
    assert!(!value.to_string().contains("of-this-home"), "{value}");
    assert!(!output.contains("MY_OTHER_SECRET"), "{value}");
}

#[test]
fn directory_and_exports_last_for_the_session() {
    let setup = CliHarness::new();
    setup
        .server
        .push(command("mkdir -p deep; cd deep; export WORD=kept; exit 3"));
    setup.server.push(command("basename \"$PWD\"; echo $WORD"));
    setup.server.push(Reply::text("done"));
    let _ = setup
        .program(["-z", "go"])
        .cwd(setup.home.work())
        .run()
        .ok();
    assert_eq!(result(&setup.server.last_request())["output"], "deep\nkept");
}

#[test]
fn a_process_outlives_the_program_and_is_found_again() {
    let setup = CliHarness::new();
    let script = "echo begun; read -r word; echo \"heard $word\"; exec sleep 600";
    let start = json!({"command": script, "background": true});
    setup.server.push(terminal(&start));
    setup.server.push(Reply::text("started"));
    let first = setup
        .program(["-z", "go", "--json"])
        .cwd(setup.home.work())
        .run()
        .ok();
    let session = first.json()["session_id"].as_str().unwrap().to_owned();
    let id = result(&setup.server.last_request())["session_id"]
        .as_str()
        .unwrap()
        .to_owned();
    assert!(setup.home.read("processes.json").contains(&id));

    let process = |action: &str, data: &str| {
        let arguments = json!({"action": action, "session_id": id, "data": data});
        Reply::tool_call("c2", "process", &arguments)
    };
    setup.server.push(Reply::tool_call(
        "c0",
        "process",
        &json!({"action": "list"}),
    ));
    setup.server.push(process("submit", "you"));
    let ask = id.clone();
    setup.server.answer_with(move |request| {
        let log = json!({"action": "log", "session_id": ask});
        let kill = json!({"action": "kill", "session_id": ask});
        let last = result(request);
        if last["status"] == "killed" || request.tool_results().len() > 100 {
            Reply::text("gone")
        } else if last.to_string().contains("heard you") {
            Reply::tool_call("c4", "process", &kill)
        } else {
            Reply::tool_call("c3", "process", &log)
        }
    });
    let _ = setup
        .program(["--resume", &session, "-z", "and now"])
        .cwd(setup.home.work())
        .run()
        .ok();
    let killed = result(&setup.server.last_request());
    assert_eq!(killed["status"], "killed", "{killed}");
    assert_eq!(killed["output"], "begun\nheard you\n", "{killed}");
    assert_eq!(setup.home.read("processes.json").trim(), "[]");
}

#[test]
fn the_person_sees_the_end_of_a_process_and_the_model_reads_it() {
    let setup = CliHarness::new();
    let Some(mut chat) = Terminal::open(
        &setup.home,
        "the_person_sees_the_end_of_a_process_and_the_model_reads_it",
    ) else {
        return;
    };
    let start = json!({"command": "read -r x; echo the end; exit 4", "background": true, "notify_on_complete": true});
    setup.server.push(terminal(&start));
    setup.server.push(Reply::text("It runs."));
    chat.type_line("start it");
    chat.wait_for("It runs.", 1);
    let id = result(&setup.server.last_request())["session_id"]
        .as_str()
        .unwrap()
        .to_owned();
    // its input ends: it ends
    let input = setup.home.path().join("processes").join(&id).join("in");
    setup.server.push(Reply::text("I know."));
    std::fs::write(input, "\n").unwrap();
    chat.wait_for("failed with exit code 4", 1);
    // the news starts a turn of its own
    chat.wait_for("I know.", 1);
    let told = setup.server.last_request().last_user_text();
    assert!(told.contains("the end") && told.contains(&id), "{told}");
    chat.type_line("/quit");
    chat.leave();
}

#[test]
fn out_of_the_sandbox_for_a_session_is_asked_once() {
    let setup = CliHarness::new();
    let name = "out_of_the_sandbox_for_a_session_is_asked_once";
    let Some(mut chat) = Terminal::open(&setup.home, name) else {
        return;
    };
    // What sudo says where nothing may gain rights.
    let words = "sh -c 'echo the \"no new privileges\" flag is set; exit 1'";
    for (at, answer) in ["first", "second"].into_iter().enumerate() {
        setup.server.push(command(words));
        setup.server.push(Reply::text(answer));
        chat.type_line("go");
        if at == 0 {
            chat.wait_for("unconfined?", 1);
            chat.press("s\n");
        }
        chat.wait_for(answer, 1);
        let value = result(&setup.server.last_request());
        let note = value["approval"].as_str().unwrap_or_default();
        assert!(note.contains("as the person allowed"), "{value}");
    }
    chat.type_line("/quit");
    chat.leave();
}

/// Whether a process has this word among its arguments.
fn runs(word: &str) -> bool {
    std::fs::read_dir("/proc")
        .unwrap()
        .flatten()
        .filter_map(|entry| std::fs::read(entry.path().join("cmdline")).ok())
        .any(|line| {
            line.split(|byte| *byte == 0)
                .any(|one| one == word.as_bytes())
        })
}

/// A child in a session of its own and without our environment, whose parent ends before it.
#[test]
fn nothing_outlives_a_command_without_a_sandbox() {
    let setup = CliHarness::with_config("approvals:\n  mode: 'off'\nterminal:\n  sandbox: 'off'\n");
    for (tool, key) in [("execute_code", "code"), ("terminal", "command")] {
        // No other process has this number.
        let seconds = format!("{}.{:06}", 5000, std::process::id());
        let started = setup.home.work().join(format!("{tool}.started"));
        let code = format!(
            "import subprocess, time\nsubprocess.Popen(['env', '-i', 'setsid', 'sh', '-c', 'touch {}; exec sleep {seconds}'])\n\
             import os\nwhile not os.path.exists('{}'): time.sleep(0.01)\nprint('over')",
            started.display(),
            started.display(),
        );
        let script = setup.home.work().join("leave.py");
        std::fs::write(&script, &code).unwrap();
        let value = match tool {
            "terminal" => format!("python3 {}", script.display()),
            _ => code,
        };
        setup
            .server
            .push(Reply::tool_call("c1", tool, &json!({ key: value })));
        setup.server.push(Reply::text("done"));
        let _ = setup
            .program(["-z", "go"])
            .cwd(setup.home.work())
            .run()
            .ok();
        let said = setup.server.last_request().tool_results()[0].text.clone();
        assert!(said.contains("over"), "{said}");
        assert!(started.exists(), "{said}");
        assert!(!runs(&seconds), "{tool}");
    }
}

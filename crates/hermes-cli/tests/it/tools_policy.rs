//! Approvals from the built binary: what is refused, what is asked, what a rule lets through.

use hermes_testkit::model_server::Reply;
use serde_json::json;

use crate::CliHarness;
use crate::line_chat::Terminal;

const MANUAL: &str = "approvals:\n  mode: manual\n";

fn command(text: &str) -> Reply {
    Reply::tool_call("c1", "terminal", &json!({"command": text}))
}

/// A directory that a test wants to lose or keep.
fn keep(setup: &CliHarness) -> std::path::PathBuf {
    let dir = setup.home.work().join("keep");
    std::fs::create_dir_all(&dir).unwrap();
    std::fs::write(dir.join("file"), "x").unwrap();
    dir
}

/// One turn with this one command; what the model read of it.
fn turn(setup: &CliHarness, flags: &[&str], text: &str) -> String {
    call(setup, flags, command(text))
}

fn call(setup: &CliHarness, flags: &[&str], reply: Reply) -> String {
    setup.server.push(reply);
    setup.server.push(Reply::text("done"));
    let args = flags.iter().copied().chain(["-z", "go"]);
    let _ = setup.program(args).cwd(setup.home.work()).run().ok();
    let last = setup.server.last_request();
    let results = last.tool_results();
    results.last().unwrap().text.clone()
}

#[test]
fn a_deletion_is_refused_where_nobody_can_be_asked_until_a_rule_allows_it() {
    let setup = CliHarness::with_config(MANUAL);
    let dir = keep(&setup);
    let said = turn(&setup, &[], "rm -rf keep");
    assert!(dir.exists(), "{said}");
    assert!(said.contains("nobody is here"), "{said}");
    assert!(said.contains("Do not try it again"), "{said}");

    let _ = setup.run(["approvals", "add", "rm -rf keep"]).ok();
    let said = turn(&setup, &[], "rm -rf keep && rm -rf ../elsewhere");
    assert!(dir.exists(), "a rule covers its own command only: {said}");
    let said = turn(&setup, &[], "rm  -rf \"keep\"");
    assert!(!dir.exists(), "{said}");

    let dir = keep(&setup);
    let listed = setup.run(["approvals", "list", "--json"]).ok().json();
    assert_eq!(listed["rules"][0]["rule"], "rm -rf keep");
    let _ = setup.run(["approvals", "revoke", "1"]).ok();
    let said = turn(&setup, &[], "rm -rf keep");
    assert!(dir.exists(), "{said}");
}

#[test]
fn yolo_lifts_asking_but_neither_the_hardline_nor_deny_globs() {
    let setup =
        CliHarness::with_config("approvals:\n  mode: 'off'\n  deny: ['*forbidden-word*']\n");
    let dir = keep(&setup);
    let mark = setup.home.user().join("mark");
    std::fs::write(&mark, "x").unwrap();
    // Should this fail, only the test's own home is lost.
    for script in [
        "rm -rf ~",
        "timeout 9 sh -c 'rm -rf \"$HOME\"'",
        "cd ~ && rm -rf ./*",
    ] {
        let said = turn(&setup, &["--yolo"], script);
        assert!(mark.exists(), "{script}: {said}");
        assert!(said.contains("Refused for good"), "{script}: {said}");
    }
    let said = turn(&setup, &["--yolo"], "touch forbidden-word");
    assert!(!setup.home.work().join("forbidden-word").exists(), "{said}");
    assert!(said.contains("approvals.deny"), "{said}");
    let said = turn(&setup, &["--yolo"], "rm -rf keep");
    assert!(!dir.exists(), "{said}");
}

#[test]
fn in_the_sandbox_programs_run_unasked_and_without_it_they_ask() {
    for (sandbox, runs) in [("auto", true), ("off", false)] {
        let setup = CliHarness::with_config(&format!("terminal:\n  sandbox: {sandbox}\n{MANUAL}"));
        let script = setup.home.work().join("made.sh");
        std::fs::write(&script, "echo it ran > ran\n").unwrap();
        let said = turn(&setup, &[], "sh made.sh");
        assert_eq!(
            setup.home.work().join("ran").exists(),
            runs,
            "{sandbox}: {said}"
        );
    }
}

#[test]
fn headless_runs_may_be_given_more() {
    let setup = CliHarness::with_config("approvals:\n  mode: manual\n  unattended: allow\n");
    let dir = keep(&setup);
    let said = turn(&setup, &[], "rm -rf keep");
    assert!(!dir.exists(), "{said}");
}

#[test]
fn programs_of_execute_code_pass_the_same_gate() {
    let setup = CliHarness::with_config(MANUAL);
    let mark = setup.home.user().join("mark");
    std::fs::write(&mark, "x").unwrap();
    let code = "import os, shutil\nshutil.rmtree(os.path.expanduser('~/'))\n";
    let reply = Reply::tool_call("c1", "execute_code", &json!({"code": code}));
    let said = call(&setup, &["--yolo"], reply);
    assert!(mark.exists(), "{said}");
    assert!(said.contains("Refused for good"), "{said}");
}

#[test]
fn background_processes_pass_the_same_gate() {
    let setup = CliHarness::with_config(MANUAL);
    let dir = keep(&setup);
    let arguments = json!({"command": "rm -rf keep", "background": true});
    let said = call(&setup, &[], Reply::tool_call("c1", "terminal", &arguments));
    assert!(said.contains("nobody is here"), "{said}");
    assert!(dir.exists());
}

#[test]
fn a_test_tells_by_its_code() {
    let setup = CliHarness::with_config(MANUAL);
    let code = |command: &str| setup.run(["approvals", "test", command]).code;
    assert_eq!(code("ls -la"), Some(0));
    assert_eq!(code("rm -rf x"), Some(1));
    assert_eq!(code("sudo reboot"), Some(5));
    // What is said is what happens: without a sandbox, programs ask.
    let off = CliHarness::with_config(&format!("{MANUAL}terminal:\n  sandbox: off\n"));
    let said = off.run(["approvals", "test", "make"]);
    assert_eq!(said.code, Some(1));
    assert!(said.stdout.contains("without a sandbox"), "{}", said.stdout);
    assert_eq!(setup.run(["approvals", "revoke", "none"]).code, Some(4));
    assert_eq!(setup.run(["approvals", "add", "reboot"]).code, Some(5));
    assert_eq!(setup.run(["approvals", "add", "rm $X"]).code, Some(64));
}

#[test]
fn the_person_is_asked_and_enter_means_no() {
    let setup = CliHarness::with_config(MANUAL);
    let dir = keep(&setup);
    let test = "the_person_is_asked_and_enter_means_no";
    let Some(mut terminal) = Terminal::open(&setup.home, test) else {
        return;
    };
    setup.server.side_work(Reply::text("title"));
    setup.server.push(command("rm -rf keep"));
    setup.server.push(Reply::text("first done"));
    terminal.type_line("one");
    terminal.wait_for("[n] ", 1);
    assert!(terminal.shows("approve terminal?"));
    assert!(terminal.shows("Reason: deletes directories"));
    assert!(terminal.shows("Runs: "));
    assert!(terminal.shows("a always: rm -rf keep"));
    terminal.press("\r");
    terminal.wait_for("first done", 1);
    assert!(dir.exists());

    setup.server.push(command("rm -rf keep"));
    setup.server.push(Reply::text("second done"));
    terminal.type_line("two");
    terminal.wait_for("[n] ", 2);
    terminal.press("n because I say so\r");
    terminal.wait_for("second done", 1);
    let last = setup.server.model_requests();
    let told = last.iter().any(|request| {
        let results = request.tool_results();
        results
            .iter()
            .any(|result| result.text.contains("because I say so"))
    });
    assert!(told && dir.exists());

    setup.server.push(command("rm -rf keep"));
    setup.server.push(Reply::text("third done"));
    terminal.type_line("three");
    terminal.wait_for("[n] ", 3);
    terminal.press("a\r");
    terminal.wait_for("third done", 1);
    assert!(!dir.exists());
    assert!(setup.home.read("config.yaml").contains("rm -rf keep"));
    terminal.type_line("/quit");
    let _ = terminal.leave();
}

#[test]
fn ctrl_c_at_the_prompt_needs_no_enter() {
    let setup = CliHarness::with_config(MANUAL);
    let dir = keep(&setup);
    let Some(mut terminal) = Terminal::open(&setup.home, "ctrl_c_at_the_prompt_needs_no_enter")
    else {
        return;
    };
    setup.server.side_work(Reply::text("title"));
    setup.server.push(command("rm -rf keep"));
    terminal.type_line("one");
    terminal.wait_for("[n] ", 1);
    terminal.press("\u{3}");
    setup.server.push(Reply::text("still here"));
    terminal.type_line("two");
    terminal.wait_for("still here", 1);
    assert!(dir.exists());
    terminal.type_line("/quit");
    let _ = terminal.leave();
}

#[test]
fn a_model_may_judge_in_smart_mode() {
    let setup = CliHarness::with_config("approvals:\n  mode: smart\n");
    let dir = keep(&setup);
    let Some(mut terminal) = Terminal::open(&setup.home, "a_model_may_judge_in_smart_mode") else {
        return;
    };
    setup.server.side_work(Reply::text("APPROVE"));
    setup.server.push(command("rm -rf keep"));
    setup.server.push(Reply::text("first done"));
    terminal.type_line("one");
    terminal.wait_for("first done", 1);
    assert!(!terminal.shows("approve terminal?"));
    assert!(!dir.exists());
    // Secrets are for a person to decide about.
    setup.server.push(command("cat ~/.ssh/id_rsa"));
    setup.server.push(Reply::text("second done"));
    terminal.type_line("two");
    terminal.wait_for("[n] ", 1);
    terminal.press("\r");
    terminal.wait_for("second done", 1);
    terminal.type_line("/quit");
    let _ = terminal.leave();
}

fn shell_words(text: &str) -> String {
    format!("'{}'", text.replace('\'', "'\\''"))
}

/// `approvals.mode: off` is a choice: what a headless run writes outside its directory is written,
/// once.
#[test]
fn mode_off_lets_headless_runs_write_outside_the_workspace() {
    let setup = CliHarness::with_config("approvals:\n  mode: 'off'\n");
    // Directories for temporary files are open to everybody.
    let elsewhere = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let outside = elsewhere.path();
    let file = outside.join("note.txt");
    let said = turn(
        &setup,
        &[],
        &format!("echo x >> log.txt; echo y > {}", file.display()),
    );
    assert_eq!(std::fs::read_to_string(&file).unwrap(), "y\n", "{said}");
    let log = std::fs::read_to_string(setup.home.work().join("log.txt")).unwrap();
    assert_eq!(log, "x\n", "it ran once");
    let args = json!({"path": outside.join("tool.txt"), "content": "z"});
    let said = call(&setup, &[], Reply::tool_call("c1", "write_file", &args));
    assert!(outside.join("tool.txt").exists(), "{said}");
    let program = outside.join("program.txt");
    let code = format!("open({:?}, 'a').write('z')", program.display().to_string());
    let args = json!({ "code": code });
    let said = call(&setup, &[], Reply::tool_call("c2", "execute_code", &args));
    assert_eq!(std::fs::read_to_string(&program).unwrap(), "z", "{said}");
    // `--yolo` beside it allows no less.
    let both = outside.join("both.txt");
    let code = format!("open({:?}, 'a').write('b')", both.display().to_string());
    let command = format!("python3 -c {}", shell_words(&code));
    let said = turn(&setup, &["--yolo"], &command);
    assert_eq!(std::fs::read_to_string(&both).unwrap(), "b", "{said}");
    // A program that was asked to stay in a directory of its own does.
    setup.home.use_server(
        &setup.server.base_url(),
        "approvals:\n  mode: 'off'\ncode_execution:\n  mode: strict\n",
    );
    let _ = call(&setup, &[], Reply::tool_call("c3", "execute_code", &args));
    assert_eq!(std::fs::read_to_string(&program).unwrap(), "z");
}

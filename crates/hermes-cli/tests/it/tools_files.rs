//! Files from the built binary: a model that edits, searches and is kept where it belongs.

use hermes_testkit::model_server::{RecordedRequest, Reply};
use serde_json::{Value, json};

use crate::CliHarness;
use crate::line_chat::Terminal;

/// The results of a turn's calls, in order.
fn results(request: &RecordedRequest) -> Vec<Value> {
    let results = request.tool_results();
    results
        .iter()
        .map(|result| {
            serde_json::from_str(&result.text)
                .unwrap_or_else(|_| Value::String(result.text.clone()))
        })
        .collect()
}

/// Has the model call these tools one after the other and gives their results.
fn calls(setup: &CliHarness, calls: &[(&str, Value)]) -> Vec<Value> {
    for (at, (name, args)) in calls.iter().enumerate() {
        setup
            .server
            .push(Reply::tool_call(&format!("c{at}"), name, args));
    }
    setup.server.push(Reply::text("done"));
    let finished = setup
        .program(["-z", "go"])
        .cwd(setup.home.work())
        .run()
        .ok();
    assert_eq!(finished.stdout.trim(), "done");
    results(&setup.server.last_request())
}

#[test]
fn a_project_is_read_searched_written_and_patched() {
    let setup = CliHarness::new();
    let work = setup.home.work();
    std::fs::create_dir_all(work.join("src")).unwrap();
    std::fs::write(work.join("src/a.py"), "def f():\n    return 1\n").unwrap();
    let results = calls(
        &setup,
        &[
            ("search_files", json!({"pattern": "return"})),
            ("read_file", json!({"path": "src/a.py"})),
            (
                "patch",
                json!({"mode": "replace", "path": "src/a.py", "old_string": "return 1", "new_string": "return 2"}),
            ),
            (
                "write_file",
                json!({"path": "src/b.py", "content": "import a\n"}),
            ),
            ("read_file", json!({"path": "src/a.py"})),
        ],
    );
    assert_eq!(results[0]["matches"][0]["path"], "src/a.py", "{results:?}");
    assert_eq!(results[1]["content"], "1|def f():\n2|    return 1");
    assert_eq!(results[2]["success"], true, "{}", results[2]);
    assert_eq!(results[2]["lint"]["status"], "ok", "{}", results[2]);
    assert_eq!(results[4]["content"], "1|def f():\n2|    return 2");
    assert_eq!(
        std::fs::read_to_string(work.join("src/b.py")).unwrap(),
        "import a\n"
    );
}

#[test]
fn nothing_outside_the_workspace_is_written_headless() {
    let setup = CliHarness::new();
    setup.home.env_file("KEY=s3cret-value-of-home\n");
    let outside = setup.home.user().join("outside.txt");
    let hermes = setup.home.path();
    let results = calls(
        &setup,
        &[
            ("write_file", json!({"path": outside, "content": "x"})),
            (
                "write_file",
                json!({"path": hermes.join("config.yaml"), "content": "a: 1\n"}),
            ),
            ("read_file", json!({"path": hermes.join(".env")})),
            ("search_files", json!({"pattern": "s3cret", "path": hermes})),
            (
                "patch",
                json!({"mode": "patch", "patch": "*** Add File: ../../escape.txt\n+x\n"}),
            ),
        ],
    );
    assert!(!outside.exists());
    let config = std::fs::read_to_string(hermes.join("config.yaml")).unwrap();
    assert!(
        config.contains("base_url") || config.contains("model"),
        "{config}"
    );
    for result in &results {
        assert!(!result.to_string().contains("s3cret-value"), "{result}");
    }
    assert!(
        results[0].to_string().contains("outside the workspace"),
        "{}",
        results[0]
    );
    assert!(
        results[1].to_string().contains("configuration of Hermes"),
        "{}",
        results[1]
    );
}

#[test]
fn a_turn_can_be_rolled_back() {
    let setup = CliHarness::with_config("checkpoints:\n  enabled: true\n");
    let work = setup.home.work();
    std::fs::create_dir_all(&work).unwrap();
    std::fs::write(work.join("Makefile"), "all:\n").unwrap();
    std::fs::write(work.join("a.txt"), "before\n").unwrap();
    calls(
        &setup,
        &[
            ("write_file", json!({"path": "a.txt", "content": "after\n"})),
            ("write_file", json!({"path": "new.txt", "content": "new\n"})),
        ],
    );
    let run = |args: &[&str]| {
        let program = setup.program(["checkpoints"]).args(args);
        program.cwd(&work).run()
    };
    let list = run(&["list", "--json"]).ok().json();
    assert_eq!(list[0]["number"], 1, "{list}");
    assert_eq!(list.as_array().unwrap().len(), 1, "{list}");
    let diff = run(&["diff", "1"]).ok();
    assert!(diff.stdout.contains("-before\n+after"), "{}", diff.stdout);
    let restored = run(&["restore", "1", "--json"]).ok().json();
    assert_eq!(restored["removed"], json!(["new.txt"]));
    assert_eq!(
        std::fs::read_to_string(work.join("a.txt")).unwrap(),
        "before\n"
    );
    assert!(!work.join("new.txt").exists());
    assert_eq!(run(&["restore", "77"]).code, Some(4));
}

/// A project whose file a turn changed, with snapshots switched on by the flag alone.
pub(crate) fn changed_project() -> CliHarness {
    let setup = CliHarness::new();
    let work = setup.home.work();
    std::fs::write(work.join("Makefile"), "all:\n").unwrap();
    std::fs::write(work.join("a.txt"), "before\n").unwrap();
    let change = json!({"path": "a.txt", "content": "after\n"});
    setup
        .server
        .push(Reply::tool_call("c1", "write_file", &change));
    setup.server.push(Reply::text("done"));
    let program = setup.program(["--checkpoints", "-z", "go"]);
    let _ = program.cwd(&work).run().ok();
    setup
}

#[test]
fn the_snapshots_of_all_projects_are_counted_pruned_and_cleared() {
    let setup = changed_project();
    let work = setup.home.work();
    let run = |args: &[&str]| setup.program(["checkpoints"]).args(args).run();
    let status = run(&["status", "--json"]).ok().json();
    assert_eq!(status["project_count"], 1, "{status}");
    assert_eq!(status["projects"][0]["commits"], 1, "{status}");
    assert_eq!(status["projects"][0]["exists"], true, "{status}");
    let kept = run(&["prune", "--json"]).ok().json();
    assert_eq!(kept["scanned"], 1, "{kept}");
    assert_eq!(run(&["status", "--json"]).json()["project_count"], 1);
    // nobody is here to say yes
    assert_eq!(run(&["clear"]).code, Some(64));
    assert_eq!(run(&["status", "--json"]).json()["project_count"], 1);
    let shown = run(&["status"]).ok().stdout;
    assert!(
        shown.contains("1 project,") && shown.contains(": 1 snapshot, just now"),
        "{shown}"
    );
    std::fs::rename(&work, work.with_extension("moved")).unwrap();
    let gone = setup.program(["checkpoints", "prune", "--json"]);
    let gone = gone.cwd(setup.home.user()).run().ok().json();
    assert_eq!(gone["deleted_orphan"], 1, "{gone}");
    assert!(gone["bytes_freed"].as_u64().unwrap() > 0, "{gone}");
    let clear = setup.program(["checkpoints", "clear", "--yes", "--json"]);
    let cleared = clear.cwd(setup.home.user()).run().ok().json();
    assert_eq!(cleared["deleted"], 1, "{cleared}");
    assert!(!setup.home.exists("checkpoints"));
}

/// Without git no snapshot can be counted: the person learns that, and not that there are none.
#[test]
fn without_git_everybody_says_so() {
    let setup = changed_project();
    let empty = setup.home.user();
    for args in [
        &["list"][..],
        &["status"],
        &["status", "--json"],
        &["diff", "1"],
        &["restore", "1"],
    ] {
        let program = setup.program(["checkpoints"]).args(args);
        let done = program.cwd(setup.home.work()).env("PATH", &empty).run();
        assert_eq!(done.code, Some(1), "{args:?}: {}", done.stdout);
        let said = done.stderr;
        assert!(said.contains("git is not installed"), "{args:?}: {said}");
    }
    setup
        .home
        .use_server(&setup.server.base_url(), "checkpoints:\n  enabled: true\n");
    let doctor = setup.program(["doctor", "--offline"]).env("PATH", &empty);
    let said = doctor.run().stdout;
    assert!(said.contains("no checkpoints are taken"), "{said}");
}

#[test]
fn rollback_lists_shows_and_goes_back_in_the_chat() {
    let test = "rollback_lists_shows_and_goes_back_in_the_chat";
    let setup = changed_project();
    let Some(mut terminal) = Terminal::open(&setup.home, test) else {
        return;
    };
    terminal.type_line("/rollback");
    terminal.type_line("/rollback diff 1");
    terminal.type_line("/rollback 99");
    terminal.type_line("/rollback 1 a.txt");
    terminal.type_line("/quit");
    let (code, screen) = terminal.leave();
    assert_eq!(code, Some(0), "{screen}");
    assert!(screen.contains("/rollback diff N shows"), "{screen}");
    assert!(
        screen.contains("-before") && screen.contains("+after"),
        "{screen}"
    );
    assert!(screen.contains("no checkpoint 99"), "{screen}");
    let now = std::fs::read_to_string(setup.home.work().join("a.txt")).unwrap();
    assert_eq!(now, "before\n");
}

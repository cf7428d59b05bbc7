//! Nobody who works for the turn may do what the turn may not.

use hermes_testkit::model_server::{RecordedRequest, Reply};
use serde_json::{Value, json};

use super::{OutsideDir, results, turn};
use crate::CliHarness;

/// Every setting that lifts asking, and a rule for the very command.
const EVERYTHING_LIFTED: &str = "approvals:\n  mode: 'off'\n  unattended: allow\n\
    command_allowlist:\n  - 'rm -rf ~'\n  - 'rm -rf *'\n  - '*'\n";

/// A file that is lost when the home of the test is.
fn mark(setup: &CliHarness) -> std::path::PathBuf {
    let path = setup.home.user().join("mark");
    std::fs::write(&path, "x").unwrap();
    path
}

/// A turn that hands `calls` to a subagent; what the subagent read of each.
fn delegated(setup: &CliHarness, flags: &[&str], calls: &[(&str, Value)]) -> Vec<Value> {
    let script: Vec<Reply> = calls
        .iter()
        .map(|(name, arguments)| Reply::tool_call("child", name, arguments))
        .collect();
    setup.server.answer_with(move |request| {
        let body = request.body_text();
        let done = request.tool_results().len();
        if body.contains("the parent asks") {
            return match done {
                0 => Reply::tool_call("p", "delegate_task", &json!({"goal": "do the deed"})),
                _ => Reply::text("done"),
            };
        }
        script
            .get(done)
            .cloned()
            .unwrap_or_else(|| Reply::text("I tried."))
    });
    let args = flags.iter().copied().chain(["-z", "the parent asks"]);
    let program = setup.program(args).cwd(setup.home.work());
    let _ = program.run().ok();
    let requests = setup.server.model_requests();
    let child = requests.iter().rev().find(|request| {
        !request.body_text().contains("the parent asks") && request.ends_with_tool_result()
    });
    let seen = results(child.expect("the subagent was asked"));
    assert_eq!(seen.len(), calls.len(), "{seen:?}");
    seen
}

#[test]
fn nothing_lifts_the_hardline() {
    let setup = CliHarness::with_config(EVERYTHING_LIFTED);
    let mark = mark(&setup);
    let helper = "from hermes_tools import terminal\nprint(terminal('rm -rf ~'))\n";
    let calls = [
        ("terminal", json!({"command": "rm -rf ~"})),
        (
            "terminal",
            json!({"command": "rm -rf ~", "background": true}),
        ),
        (
            "terminal",
            json!({"command": "sh -c 'rm -rf ~'", "pty": true}),
        ),
        ("execute_code", json!({"code": helper})),
        (
            "execute_code",
            json!({"code": "import subprocess\nsubprocess.run(['sh', '-c', 'rm -rf ~'])\n"}),
        ),
        (
            "execute_code",
            json!({"code": "import os\nos.system('rm -rf ~')\n"}),
        ),
    ];
    let seen = turn(&setup, &["--yolo"], &calls);
    assert!(mark.exists(), "{seen:#?}");
    for ((_, arguments), result) in calls.iter().zip(&seen) {
        assert!(mark.exists(), "{arguments}: {result}");
        assert!(
            result.to_string().contains("Refused for good"),
            "{arguments}: {result}"
        );
    }
}

#[test]
fn a_subagent_is_held_by_the_hardline_too() {
    let setup = CliHarness::with_config(EVERYTHING_LIFTED);
    let mark = mark(&setup);
    let calls = [("terminal", json!({"command": "rm -rf ~"}))];
    let seen = delegated(&setup, &["--yolo"], &calls);
    assert!(mark.exists(), "{seen:?}");
    assert!(
        seen[0].to_string().contains("Refused for good"),
        "{}",
        seen[0]
    );
}

#[test]
fn a_subagent_may_not_do_what_nobody_allowed_the_parent() {
    let (setup, outside) = (CliHarness::new(), OutsideDir::new());
    let keep = setup.home.work().join("keep");
    std::fs::create_dir(&keep).unwrap();
    let victim = outside.join("victim.txt").display().to_string();
    let calls = [
        ("terminal", json!({"command": "rm -rf keep"})),
        (
            "terminal",
            json!({"command": "rm -rf keep", "background": true}),
        ),
        ("write_file", json!({"path": victim, "content": "evil"})),
        (
            "terminal",
            json!({"command": format!("echo evil > {victim}")}),
        ),
        ("read_file", json!({"path": setup.home.join("auth.json")})),
    ];
    setup
        .home
        .write("auth.json", "{\"note\": \"only-in-the-home-5512\"}");
    let seen = delegated(&setup, &[], &calls);
    assert!(keep.exists(), "{seen:?}");
    outside.assert_untouched(&seen);
    let sent: String = setup
        .server
        .model_requests()
        .iter()
        .map(RecordedRequest::body_text)
        .collect();
    assert!(!sent.contains("only-in-the-home-5512"));
    for tool in [
        "delegate_task",
        "memory",
        "cronjob",
        "send_message",
        "execute_code",
    ] {
        let requests = setup.server.model_requests();
        let mut children = requests
            .iter()
            .filter(|one| !one.body_text().contains("the parent asks"));
        assert!(
            children.all(|child| !child.tool_names().contains(&tool)),
            "{tool}"
        );
    }
}

#[test]
fn a_program_may_not_do_what_nobody_allowed_the_turn() {
    let (setup, outside) = (CliHarness::new(), OutsideDir::new());
    let keep = setup.home.work().join("keep");
    std::fs::create_dir(&keep).unwrap();
    let dir = outside.path().display().to_string();
    let helpers = format!(
        "from hermes_tools import terminal, write_file, patch\n\
         print('A', terminal('rm -rf keep'))\n\
         print('B', terminal('echo evil > {dir}/victim.txt'))\n\
         print('C', write_file('{dir}/new.txt', 'evil'))\n\
         print('D', patch('{dir}/victim.txt', 'precious', 'evil'))\n"
    );
    // The directory comes from a file: looking at the text tells nothing.
    std::fs::write(setup.home.work().join("where.txt"), &dir).unwrap();
    let deed = "echo evil > \"$1/new.txt\"; rm -rf \"$1\"; cd \"$1\" && echo evil > late.txt\n";
    std::fs::write(setup.home.work().join("deed.sh"), deed).unwrap();
    let direct = "import os, subprocess, ctypes\n\
         where = open('where.txt').read()\n\
         victim = os.path.join(where, 'victim.txt')\n\
         libc = ctypes.CDLL(None)\n\
         def attempt(name, work):\n    try:\n        print(name, work())\n    except Exception as error:\n        print(name, type(error).__name__)\n\
         attempt('A', lambda: subprocess.run(['sh', 'deed.sh', where]).returncode)\n\
         attempt('B', lambda: open(victim, 'w').write('evil'))\n\
         attempt('C', lambda: os.remove(victim))\n\
         attempt('D', lambda: os.rename(victim, 'stolen.txt'))\n\
         attempt('E', lambda: os.symlink('/x', where + '/link'))\n\
         attempt('F', lambda: os.mkdir(where + '/deep'))\n\
         attempt('G', lambda: os.link(victim, 'hard.txt') or open('hard.txt', 'a').write('evil'))\n\
         attempt('H', lambda: os.truncate(victim, 0))\n\
         attempt('I', lambda: os.kill(os.getppid(), 15))\n\
         attempt('J', lambda: libc.mount(b'none', b'/mnt', b'tmpfs', 0, None))\n\
         attempt('K', lambda: libc.unshare(0x10000000))\n\
         attempt('L', lambda: subprocess.run(['setsid', 'sh', 'deed.sh', where], env={}).returncode)\n";
    let calls = [
        ("execute_code", json!({"code": helpers})),
        ("execute_code", json!({"code": direct})),
    ];
    let seen = turn(&setup, &[], &calls);
    assert!(keep.exists(), "{seen:?}");
    outside.assert_untouched(&seen);
    let output = seen[1]["output"].as_str();
    let output = output.unwrap_or_else(|| panic!("{}", seen[1]));
    for line in ["J -1", "K -1"] {
        assert!(output.contains(line), "{output}");
    }
    assert_eq!(
        output.lines().filter(|line| line.len() > 2).count(),
        12,
        "{output}"
    );
}

//! What a turn cannot do to the person, from the top: private files, files that run later, git in `/diff`,
//! commands that run twice or live on.

use std::path::Path;
use std::process::Command;

use hermes_testkit::directories::beyond_temporary;
use hermes_testkit::model_server::Reply;
use hermes_testkit::process::finish;
use serde_json::{Value, json};

use crate::CliHarness;
use crate::line_chat::Terminal;

const SECRET: &str = "words-that-are-private-0123456789";

/// Runs these calls in one turn, standing in `dir`; what the model read of each.
fn turn(setup: &CliHarness, flags: &[&str], dir: &Path, calls: &[(&str, Value)]) -> Vec<String> {
    for (at, (name, arguments)) in calls.iter().enumerate() {
        let reply = Reply::tool_call(&format!("c{at}"), name, arguments);
        setup.server.push(reply);
    }
    setup.server.push(Reply::text("done"));
    let args: Vec<&str> = flags.iter().copied().chain(["-z", "go"]).collect();
    let _ = setup.program(args).cwd(dir).run().ok();
    let results = setup.server.last_request().tool_results();
    results.iter().map(|result| result.text.clone()).collect()
}

fn command(text: &str) -> (&'static str, Value) {
    ("terminal", json!({ "command": text }))
}

fn write(path: &Path, text: &str) {
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    std::fs::write(path, text).unwrap();
}

fn repository(dir: &Path) {
    for args in [
        &["init", "--quiet", "-b", "main"][..],
        &["add", "."],
        &[
            "-c",
            "user.name=T",
            "-c",
            "user.email=t@example.org",
            "commit",
            "--quiet",
            "--allow-empty",
            "-m",
            "first",
        ],
    ] {
        let done = Command::new("git")
            .args(args)
            .current_dir(dir)
            .output()
            .unwrap();
        assert!(done.status.success(), "{args:?}");
    }
}

#[test]
fn programs_and_tools_read_no_private_files() {
    let setup = CliHarness::with_config("approvals:\n  unattended: allow\n");
    let user = setup.home.user();
    let names = [
        ".ssh/id_ed25519",
        ".aws/credentials",
        ".kube/config",
        ".npmrc",
        ".netrc",
        ".gnupg/private-keys-v1.d/x",
        ".cargo/credentials.toml",
        ".config/gh/hosts.yml",
        ".docker/config.json",
        ".bash_history",
        ".config/gcloud/x.json",
        ".mozilla/firefox/p/logins.json",
        "other-project/.env",
    ];
    for name in names {
        write(&user.join(name), SECRET);
    }
    let reads = "import os, sys\nfor base, _, files in os.walk(os.path.expanduser('~')):\n    for name in files:\n        \
        try:\n            sys.stdout.write(open(os.path.join(base, name), errors='replace').read())\n        except OSError:\n            pass\n";
    write(&setup.home.work().join("build.py"), reads);
    write(
        &setup.home.work().join("Makefile"),
        "all:\n\tpython3 build.py\n",
    );
    let mut calls = vec![
        command("python3 build.py"),
        command("make"),
        ("execute_code", json!({ "code": reads })),
    ];
    calls.extend(names.map(|name| ("read_file", json!({"path": format!("~/{name}")}))));
    calls.push(("search_files", json!({"pattern": "private", "path": "~"})));
    for text in turn(&setup, &[], &setup.home.work(), &calls) {
        assert!(!text.contains(SECRET), "{text}");
    }
}

#[test]
fn nothing_that_runs_later_is_planted() {
    let setup = CliHarness::with_config("approvals:\n  unattended: allow_workspace\n");
    let work = setup.home.work();
    repository(&work);
    let before = std::fs::read_to_string(work.join(".git/config")).unwrap();
    write(
        &work.join("plant.sh"),
        "echo evil > .git/hooks/pre-commit; git config core.fsmonitor evil; echo evil > .envrc; \
         mkdir -p .vscode; echo '{}' > .vscode/tasks.json; mv .git g; cp -r g .git; exit 0",
    );
    let said = turn(
        &setup,
        &[],
        &work,
        &[
            command("bash plant.sh"),
            command(
                "echo x > file && git add file && \
        git -c user.name=T -c user.email=t@example.org commit --quiet -m two && git log --format=%s",
            ),
        ],
    );
    assert!(said[1].contains("two"), "{}", said[1]);
    for name in [".git/hooks/pre-commit", ".envrc", ".vscode/tasks.json"] {
        assert!(!work.join(name).exists(), "{name}");
    }
    assert_eq!(
        std::fs::read_to_string(work.join(".git/config")).unwrap(),
        before
    );
    // The person's own directory as the workspace.
    let user = setup.home.user();
    write(
        &user.join("plant.sh"),
        "echo evil > .bash_profile; echo evil > .gitconfig; mkdir -p bin; echo evil > bin/ls; echo fine > notes; exit 0",
    );
    turn(&setup, &[], &user, &[command("bash plant.sh")]);
    for name in [".bash_profile", ".gitconfig", "bin"] {
        assert!(!user.join(name).exists(), "{name}");
    }
    assert_eq!(
        std::fs::read_to_string(user.join("notes")).unwrap(),
        "fine\n"
    );
}

/// The file tools ask about whatever commands are kept from, with a sandbox and without one; here nobody answers.
#[test]
fn file_tools_write_nothing_that_runs_later_unasked() {
    for sandbox in ["auto", "off"] {
        let setup = CliHarness::with_config(&format!(
            "terminal:\n  sandbox: {sandbox}\napprovals:\n  unattended: allow\n"
        ));
        let work = setup.home.work();
        repository(&work);
        for (key, value) in [
            ("core.hooksPath", "tools/hooks"),
            ("include.path", "../shared.gitconfig"),
            ("filter.f.clean", "./scripts/clean %f"),
        ] {
            let set = ["config", key, value];
            let done = Command::new("git").args(set).current_dir(&work).status();
            assert!(done.unwrap().success());
        }
        let lines = format!("PATH={0}/programs:$PATH\n. {0}/lib/a.sh\n", work.display());
        write(&setup.home.user().join(".profile"), &lines);
        let later = [
            ".git/hooks/pre-commit",
            ".envrc",
            "pkg/.vscode/tasks.json",
            "tools/hooks/pre-commit",
            "shared.gitconfig",
            "scripts/clean",
            "programs/ls",
            "lib/a.sh",
        ];
        let free = ["src/a.txt", "tools/x", "lib/b.sh"];
        let both = later.iter().chain(&free);
        let write = |path: &&str| ("write_file", json!({"path": path, "content": "evil"}));
        let mut calls: Vec<_> = both.map(write).collect();
        let code = later.map(|path| {
            format!("try:\n    write_file({path:?}, 'evil')\nexcept Exception: pass\n")
        });
        let code = format!("from hermes_tools import write_file\n{}", code.concat());
        calls.push(("execute_code", json!({ "code": code })));
        let said = turn(&setup, &[], &work, &calls);
        for (path, said) in later.iter().zip(&said) {
            assert!(said.contains("is run later"), "{sandbox} {path}: {said}");
            assert!(!work.join(path).exists(), "{sandbox} {path}");
        }
        for path in free {
            assert!(work.join(path).exists(), "{sandbox} {path}: {said:?}");
        }
    }
}

#[test]
fn a_look_at_changes_runs_nothing_of_the_repository() {
    let setup = CliHarness::new();
    let work = setup.home.work();
    write(&work.join("file"), "one\n");
    repository(&work);
    write(&work.join("file"), "two words\n");
    let marker = setup.home.user().join("marker");
    let evil = work.join("evil.sh");
    write(
        &evil,
        &format!("#!/bin/sh\nenv > {}\ncat\n", marker.display()),
    );
    std::fs::set_permissions(&evil, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    write(&work.join(".gitattributes"), "* filter=x diff=x\n");
    for key in [
        "core.fsmonitor",
        "diff.external",
        "diff.x.textconv",
        "filter.x.clean",
        "core.pager",
    ] {
        let set = Command::new("git")
            .args(["config", key])
            .arg(&evil)
            .current_dir(&work)
            .status();
        assert!(set.unwrap().success());
    }
    let test = "tools_escapes::a_look_at_changes_runs_nothing_of_the_repository";
    let Some(mut terminal) = Terminal::open(&setup.home, test) else {
        return;
    };
    terminal.type_line("/diff");
    terminal.type_line("/quit");
    let (_, screen) = terminal.leave();
    assert!(screen.contains("two words"), "{screen}");
    assert!(!marker.exists());
}

#[test]
fn what_was_approved_beforehand_runs_once() {
    let setup = CliHarness::new();
    let work = setup.home.work();
    // Temporary directories are for everybody.
    let place = beyond_temporary(env!("CARGO_TARGET_TMPDIR"));
    let outside = place.path().join("outside");
    // By its text it leaves the workspace.
    let plain = format!("echo A >> log.txt; echo x > {}", outside.display());
    let said = turn(&setup, &["--yolo"], &work, &[command(&plain)]);
    assert_eq!(
        std::fs::read_to_string(work.join("log.txt")).unwrap(),
        "A\n",
        "{said:?}"
    );
    assert_eq!(std::fs::read_to_string(&outside).unwrap(), "x\n");
    // A program that nobody can look into: it is stopped, and stays so until it is called again.
    write(
        &work.join("run.sh"),
        &format!(
            "echo B >> more.txt; echo y > {} || exit 1",
            outside.display()
        ),
    );
    let said = turn(&setup, &["--yolo"], &work, &[command("bash run.sh")]);
    assert_eq!(
        std::fs::read_to_string(work.join("more.txt")).unwrap(),
        "B\n",
        "{said:?}"
    );
    assert!(said[0].contains("not run again"), "{}", said[0]);
    assert_eq!(std::fs::read_to_string(&outside).unwrap(), "x\n");
    let again = turn(
        &setup,
        &["--yolo"],
        &work,
        &[command("bash run.sh"), command("bash run.sh")],
    );
    assert_eq!(
        std::fs::read_to_string(work.join("more.txt")).unwrap(),
        "B\nB\nB\n",
        "{again:?}"
    );
    assert_eq!(std::fs::read_to_string(&outside).unwrap(), "y\n");
}

/// A program writes what its shell would have told about the session, and what a later command outside would load.
#[test]
fn what_a_confined_program_exports_stays_inside() {
    let setup = CliHarness::new();
    let work = setup.home.work().canonicalize().unwrap();
    let place = beyond_temporary(env!("CARGO_TARGET_TMPDIR"));
    let (outside, mark) = (place.path().join("outside"), work.join("mark"));
    write(
        &work.join("evil.sh"),
        &format!("touch {}\n", mark.display()),
    );
    write(
        &work.join("run.sh"),
        "S=$(tr '\\0' '\\n' < /proc/$PPID/cmdline | grep -o '/[^ ]*/state' | head -1)\n\
         printf '%s\\0declare -x BASH_ENV=\"%s\"\\n' \"$PWD\" \"$PWD/evil.sh\" > $S; kill -9 $PPID\n",
    );
    let leaving = format!("echo x > {}", outside.display());
    let calls = [command("bash run.sh"), command(&leaving)];
    let said = turn(&setup, &["--yolo"], &work, &calls);
    assert_eq!(
        std::fs::read_to_string(&outside).unwrap(),
        "x\n",
        "{said:?}"
    );
    assert!(!mark.exists(), "{said:?}");
}

/// Where Hermes reads what a command leaves, a pipe does not hold it up and a link does not lead it on.
#[test]
fn what_stands_in_place_of_our_files_is_not_read() {
    let setup = CliHarness::with_config("approvals:\n  unattended: allow_workspace\n");
    let work = setup.home.work().canonicalize().unwrap();
    let key = setup.home.user().join(".ssh/id_rsa");
    write(&key, SECRET);
    write(
        &work.join("pipe.sh"),
        "S=$(tr '\\0' '\\n' < /proc/$PPID/cmdline | grep -o '/[^ ]*/state' | head -1)\n\
         rm -f $S; mkfifo $S; kill -9 $PPID\n",
    );
    write(
        &work.join("link.sh"),
        &format!(
            "for D in {}/processes/*/; do rm -f $D/log; ln -s {} $D/log; done; touch linked; while [ -e linked ]; do sleep 0.1; done\n",
            setup.home.path().display(),
            key.display()
        ),
    );
    let background = json!({ "command": "bash link.sh", "background": true });
    for call in [
        command("bash pipe.sh"),
        ("terminal", background),
        command("until [ -e linked ]; do sleep 0.05; done"),
    ] {
        let reply = Reply::tool_call("c", call.0, &call.1);
        setup.server.push(reply);
    }
    setup.server.answer_with(|request| {
        let results = request.tool_results();
        let started = results.iter().find_map(|result| {
            let value: Value = serde_json::from_str(&result.text).ok()?;
            Some(value.get("session_id")?.as_str()?.to_owned())
        });
        let arguments = json!({ "action": "log", "session_id": started });
        if results.len() < 4 {
            Reply::tool_call("log", "process", &arguments)
        } else {
            Reply::text("done")
        }
    });
    let _ = setup.program(["-z", "go"]).cwd(&work).run().ok();
    std::fs::remove_file(work.join("linked")).unwrap();
    let results = setup.server.last_request().tool_results();
    assert_eq!(results.len(), 4);
    for result in &results {
        assert!(!result.text.contains(SECRET), "{}", result.text);
    }
}

/// Processes that stand in `dir`.
fn standing_in(dir: &Path) -> usize {
    let processes = std::fs::read_dir("/proc").unwrap().flatten();
    processes
        .filter(|entry| std::fs::read_link(entry.path().join("cwd")).is_ok_and(|cwd| cwd == dir))
        .count()
}

fn until(dir: &Path, wanted: impl Fn(usize) -> bool) {
    for _ in 0..6000 {
        if wanted(standing_in(dir)) {
            return;
        }
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    let count = standing_in(dir);
    assert!(
        wanted(count),
        "{count} processes stand in {}",
        dir.display()
    );
}

#[test]
fn commands_end_with_a_program_that_is_killed() {
    for config in ["", "terminal:\n  sandbox: off\n"] {
        let setup = CliHarness::with_config(&format!("approvals:\n  unattended: allow\n{config}"));
        let work = setup.home.work().canonicalize().unwrap();
        let place = work.join("place");
        std::fs::create_dir(&place).unwrap();
        write(
            &work.join("run.sh"),
            "cd place; setsid sleep 1000 & trap '' TERM HUP; sleep 1000; sleep 1000",
        );
        let (name, arguments) = command("bash run.sh");
        setup.server.push(Reply::tool_call("c1", name, &arguments));
        let mut child = setup.program(["-z", "go"]).cwd(&work).spawn();
        until(&place, |count| count >= 2);
        child.kill().unwrap();
        let _ = finish(child);
        until(&place, |count| count == 0);
    }
}

#[test]
fn a_session_of_its_own_does_not_outlive_a_program() {
    let setup = CliHarness::with_config("approvals:\n  unattended: allow\n");
    let work = setup.home.work().canonicalize().unwrap();
    let place = work.join("place");
    std::fs::create_dir(&place).unwrap();
    let code = "import subprocess\nsubprocess.Popen(['sleep', '1000'], start_new_session=True, cwd='place', env={}, \
        stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)\nprint('over')\n";
    let said = turn(
        &setup,
        &[],
        &work,
        &[("execute_code", json!({ "code": code }))],
    );
    assert!(said[0].contains("over"), "{}", said[0]);
    until(&place, |count| count == 0);
}

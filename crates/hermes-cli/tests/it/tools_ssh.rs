//! Commands and files on another machine, from the built binary: a real sshd on loopback.

#[path = "../../../hermes-exec/tests/it/contract/rig.rs"]
#[expect(dead_code, reason = "containers are not used here")]
mod rig;

use std::path::{Path, PathBuf};

use hermes_testkit::model_server::Reply;
use serde_json::{Value, json};

use crate::CliHarness;
use rig::Sshd;

/// A home whose commands run over there, in `cwd`.
fn setup(sshd: &Sshd, cwd: &str) -> CliHarness {
    let dir = sshd.dir();
    let ssh = dir.join("bin/ssh");
    std::fs::create_dir_all(dir.join("bin")).unwrap();
    // Nothing of the person's own settings is read or changed.
    let wrapper = format!(
        "#!/bin/sh\nPATH=${{PATH#*:}} exec ssh -F /dev/null -o UserKnownHostsFile={0}/known \
         -o GlobalKnownHostsFile=/dev/null \"$@\"\n",
        dir.display()
    );
    rig::write(&ssh, &wrapper, 0o755);
    CliHarness::with_config(&format!(
        "terminal:\n  backend: ssh\n  ssh_host: 127.0.0.1\n  ssh_port: {}\n  ssh_key: {}/user\n  cwd: {cwd:?}\n",
        sshd.port,
        dir.display()
    ))
}

fn path_with(sshd: &Sshd) -> String {
    let path = std::env::var("PATH").unwrap_or_default();
    format!("{}:{path}", sshd.dir().join("bin").display())
}

/// Has a new conversation call these tools, one after the other.
fn calls(setup: &CliHarness, sshd: &Sshd, calls: &[(&str, Value)]) -> Vec<Value> {
    for (at, (name, args)) in calls.iter().enumerate() {
        let reply = Reply::tool_call(&format!("c{at}"), name, args);
        setup.server.push(reply);
    }
    setup.server.push(Reply::text("done"));
    let finished = setup
        .program(["--yolo", "-z", "go"])
        .env("PATH", path_with(sshd))
        .run()
        .ok();
    assert_eq!(finished.stdout.trim(), "done");
    let results = setup.server.last_request().tool_results();
    results
        .iter()
        .map(|result| serde_json::from_str(&result.text).unwrap_or(json!(result.text)))
        .collect()
}

fn work(sshd: &Sshd) -> PathBuf {
    let work = sshd.dir().join("work");
    std::fs::create_dir_all(&work).unwrap();
    work
}

/// Whichever tool comes first, it stands where the others do.
#[test]
fn every_tool_stands_in_the_configured_directory_from_the_first_call() {
    let name = "every_tool_stands_in_the_configured_directory_from_the_first_call";
    let Some(sshd) = rig::sshd(name) else { return };
    let work = work(&sshd);
    let setup = setup(&sshd, &work.display().to_string());
    let write = (
        "write_file",
        json!({"path": "first.txt", "content": "needle\n"}),
    );
    let results = calls(&setup, &sshd, &[write]);
    let text = std::fs::read_to_string(work.join("first.txt"));
    assert_eq!(text.ok().as_deref(), Some("needle\n"), "{results:?}");

    let patch = "*** Add File: added.txt\n+x\n";
    let firsts = [
        ("read_file", json!({"path": "first.txt"}), "needle"),
        ("search_files", json!({"pattern": "needle"}), "first.txt"),
        (
            "patch",
            json!({"mode": "patch", "patch": patch}),
            "added.txt",
        ),
        (
            "execute_code",
            json!({"code": "import os\nprint(os.getcwd())"}),
            "work",
        ),
        ("terminal", json!({"command": "pwd"}), "work"),
    ];
    for (tool, args, expected) in firsts {
        let results = calls(&setup, &sshd, &[(tool, args)]);
        let said = results[0].to_string();
        assert!(said.contains(expected), "{tool}: {said}");
        assert!(!said.contains("\"error\":\""), "{tool}: {said}");
    }
    assert!(work.join("added.txt").exists());
}

/// A directory that is not there is made by a first write, and never replaced by another one.
#[test]
fn a_missing_directory_is_not_replaced_by_another() {
    let Some(sshd) = rig::sshd("a_missing_directory_is_not_replaced_by_another") else {
        return;
    };
    let missing = sshd.dir().join("not/there");
    let setup = setup(&sshd, &missing.display().to_string());
    let pwd = ("terminal", json!({"command": "pwd"}));
    let write = ("write_file", json!({"path": "a.txt", "content": "x"}));
    let results = calls(&setup, &sshd, &[pwd.clone(), write, pwd]);
    assert_eq!(results[0]["exit_code"], 126, "{results:?}");
    assert!(missing.join("a.txt").exists(), "{results:?}");
    assert!(!sshd.home().join("a.txt").exists());
    assert_eq!(results[2]["exit_code"], 0, "{results:?}");
    assert!(shows(&results[2], &missing), "{results:?}");
}

fn shows(result: &Value, path: &Path) -> bool {
    result["output"]
        .as_str()
        .is_some_and(|text| text.contains(&path.display().to_string()))
}

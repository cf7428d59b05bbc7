//! What a turn leaves behind, from the top: played to its end by the person's own git, with Hermes killed in
//! between, and on a system that allows no namespaces.

use std::path::Path;
use std::process::Command;

use hermes_testkit::model_server::Reply;
use hermes_testkit::oracle::skip;
use hermes_testkit::process::finish;
use serde_json::json;

use crate::CliHarness;

const SECRET: &str = "words-that-are-private-0123456789";

fn write(path: &Path, text: &str) {
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    std::fs::write(path, text).unwrap();
}

fn order(setup: &CliHarness, commands: &[&str]) {
    for (at, command) in commands.iter().enumerate() {
        let arguments = json!({ "command": command });
        let reply = Reply::tool_call(&format!("c{at}"), "terminal", &arguments);
        setup.server.push(reply);
    }
    setup.server.push(Reply::text("done"));
}

/// What the model read of each command.
fn results(setup: &CliHarness) -> Vec<String> {
    let results = setup.server.last_request().tool_results();
    results.iter().map(|result| result.text.clone()).collect()
}

fn until(holds: impl Fn() -> bool, what: &str) {
    let came = (0..3000).any(|_| {
        let holds = holds();
        if !holds {
            std::thread::sleep(std::time::Duration::from_millis(10));
        }
        holds
    });
    assert!(came, "{what}");
}

#[test]
fn the_persons_git_runs_nothing_afterwards() {
    let setup = CliHarness::with_config("approvals:\n  unattended: allow_workspace\n");
    let work = setup.home.work();
    let mark = setup.home.user().join("mark");
    write(
        &work.join("plant.sh"),
        "printf '#!/bin/sh\\ntouch \"$MARK\"\\n' > evil.sh; chmod +x evil.sh; E=$PWD/evil.sh\n\
         git init -q .; git config core.fsmonitor $E; cp $E .git/hooks/post-checkout\n\
         git init -q new; git -C new config core.fsmonitor $E\n\
         mkdir docs; git init -q --bare docs; git -C docs config core.bare false; git -C docs config core.fsmonitor $E\n",
    );
    order(
        &setup,
        &["bash plant.sh", "git -C new status --short; echo works"],
    );
    let _ = setup.program(["-z", "go"]).cwd(&work).run().ok();
    let said = results(&setup);
    assert!(said[0].contains("put-aside"), "{}", said[0]);
    assert!(said[1].contains("works"), "{}", said[1]);
    for dir in [".", "new", "docs"] {
        let _ = Command::new("git")
            .arg("status")
            .current_dir(work.join(dir))
            .env("MARK", &mark)
            .env("HOME", setup.home.user())
            .output()
            .unwrap();
        assert!(!mark.exists(), "{dir}");
    }
}

#[test]
fn what_was_planted_goes_when_hermes_is_killed() {
    let setup = CliHarness::with_config("approvals:\n  unattended: allow_workspace\n");
    let work = setup.home.work().canonicalize().unwrap();
    write(
        &work.join("run.sh"),
        "git init -q .; git config core.fsmonitor evil; echo evil > .envrc; touch ready; while :; do sleep 1; done\n",
    );
    order(&setup, &["bash run.sh"]);
    let mut child = setup.program(["-z", "go"]).cwd(&work).spawn();
    until(|| work.join("ready").exists(), "the command did not start");
    child.kill().unwrap();
    let _ = finish(child);
    until(|| !work.join(".envrc").exists(), ".envrc was left");
    until(|| !work.join(".git/config").exists(), "settings were left");
}

/// Hermes where one kind of namespace cannot be made; `None`: that cannot be arranged here.
fn without(setup: &CliHarness, limit: &str, args: &[&str]) -> Option<String> {
    let program = env!("CARGO_BIN_EXE_hermes");
    let script = "echo 0 > /proc/sys/user/$0 && exec setpriv --bounding-set=-all --inh-caps=-all --no-new-privs -- \"$@\"";
    let done = Command::new("unshare")
        .args(["-U", "-r", "sh", "-c", script, limit, program])
        .args(args)
        .env_clear()
        .envs(setup.home.vars())
        .current_dir(setup.home.work())
        .output()
        .ok()?;
    let text = String::from_utf8_lossy(&done.stdout) + String::from_utf8_lossy(&done.stderr);
    (!text.contains("unshare:") && !text.contains("setpriv:") && !text.contains("sh: "))
        .then(|| text.into_owned())
}

#[test]
fn without_namespaces_less_is_allowed_and_said() {
    let test = "tools_plants::without_namespaces_less_is_allowed_and_said";
    // The first is known beforehand; of the second only the command itself can tell.
    for (limit, is_foreseen) in [("max_user_namespaces", true), ("max_ipc_namespaces", false)] {
        let setup = CliHarness::with_config("approvals:\n  unattended: allow_workspace\n");
        let work = setup.home.work();
        write(&setup.home.user().join(".ssh/id_rsa"), SECRET);
        write(&setup.home.user().join("other/.env"), SECRET);
        let repository = Command::new("git")
            .args(["init", "--quiet"])
            .current_dir(&work)
            .status();
        assert!(repository.unwrap().success());
        let before = std::fs::read(work.join(".git/config")).unwrap();
        write(
            &work.join("run.sh"),
            "cat ~/.ssh/id_rsa ~/other/.env; echo evil > ~/outside; echo evil >> .git/config; echo evil > .git/hooks/pre-commit\n\
             echo evil > .envrc; echo fine > src/inside; cat src/inside\n",
        );
        std::fs::create_dir(work.join("src")).unwrap();
        let Some(status) = without(&setup, limit, &["status"]) else {
            skip("no user namespace can be made here", test);
            return;
        };
        let doctor = without(&setup, limit, &["doctor", "--offline"]).unwrap();
        let words = "no view of the file system";
        for text in [&status, &doctor] {
            assert!(!is_foreseen || text.contains(words), "{text}");
            assert!(!is_foreseen || text.contains(limit), "{text}");
        }
        order(&setup, &["bash run.sh"]);
        without(&setup, limit, &["-z", "go"]).unwrap();
        let said = results(&setup);
        assert!(said[0].contains("fine"), "{}", said[0]);
        assert!(!said[0].contains(SECRET), "{}", said[0]);
        assert!(is_foreseen || said[0].contains(words), "{}", said[0]);
        assert_eq!(std::fs::read(work.join(".git/config")).unwrap(), before);
        for name in [".git/hooks/pre-commit", ".envrc", "../user/outside"] {
            assert!(!work.join(name).exists(), "{name}");
        }
    }
}

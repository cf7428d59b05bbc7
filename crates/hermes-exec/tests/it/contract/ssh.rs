//! Another machine: a real sshd on loopback.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use hermes_exec::output::OutputCollector;
use hermes_exec::ssh::{SkillSync, SshSettings, environment};
use hermes_exec::{Environment, Exec, ProcessExit, WriteOptions};

use super::rig::{self, Sshd};
use crate::support::run;

struct Place {
    env: Arc<dyn Environment>,
    sshd: Sshd,
}

impl Place {
    fn env(&self) -> &dyn Environment {
        self.env.as_ref()
    }

    fn dir(&self) -> PathBuf {
        self.sshd.dir().join("work")
    }

    async fn leave(self) {
        self.env.close().await.unwrap();
    }
}

fn settings(sshd: &Sshd) -> SshSettings {
    let known = sshd.dir().join("known");
    SshSettings {
        host: "127.0.0.1".to_owned(),
        user: None,
        port: Some(sshd.port),
        key: Some(sshd.dir().join("user")),
        idle: Some(60),
        options: vec![
            format!("UserKnownHostsFile={}", known.display()),
            "GlobalKnownHostsFile=/dev/null".to_owned(),
        ],
    }
}

fn place(test: &str) -> Option<Place> {
    let sshd = rig::sshd(test)?;
    std::fs::create_dir(sshd.dir().join("work")).unwrap();
    let env = environment(
        settings(&sshd),
        SkillSync::new(sshd.dir().join("hermes"), Vec::new()),
    )
    .unwrap();
    Some(Place { env, sshd })
}

super::whole_contract!(place);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_home_is_the_one_over_there() {
    let Some(place) = place("the_home_is_the_one_over_there") else {
        return;
    };
    if rig::is_root() {
        let files = place.env().files();
        let path = files
            .resolve(Path::new("~/x.txt"), &place.dir())
            .await
            .unwrap();
        assert_eq!(path, Path::new("/root/x.txt"));
        files
            .write(&path, "there".into(), WriteOptions::default())
            .await
            .unwrap();
        let there = std::fs::read_to_string(place.sshd.home().join("x.txt")).unwrap();
        assert_eq!(there, "there");
    }
    let (_, text) = run(place.env(), Exec::new("echo $FROM_SSHD", place.dir())).await;
    assert_eq!(text, "yes\n");
    place.leave().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lost_connection_is_made_again() {
    let Some(place) = place("a_lost_connection_is_made_again") else {
        return;
    };
    let (finished, _) = run(place.env(), Exec::new("true", place.dir())).await;
    assert_eq!(finished.exit, ProcessExit::Code(0));
    place.env().suspend().await.unwrap();
    let (finished, text) = run(place.env(), Exec::new("echo again", place.dir())).await;
    assert_eq!(
        (finished.exit, text.as_str()),
        (ProcessExit::Code(0), "again\n")
    );
    place.leave().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_terminal_over_there() {
    let Some(place) = place("a_terminal_over_there") else {
        return;
    };
    let command = Exec {
        pty: true,
        ..Exec::new("[ -t 1 ] && echo tty; export X=1; exit 6", place.dir())
    };
    let (finished, text) = run(place.env(), command).await;
    assert_eq!(finished.exit, ProcessExit::Code(6), "{text}");
    assert!(text.contains("tty"), "{text}");
    assert_eq!(finished.state.unwrap().exports["X"], "1");
    place.leave().await;
}

fn nothing() -> SkillSync {
    SkillSync::new("/nonexistent".into(), Vec::new())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn skills_go_there_and_changed_ones_come_back() {
    let Some(sshd) = rig::sshd("skills_go_there_and_changed_ones_come_back") else {
        return;
    };
    let home = sshd.dir().join("hermes");
    std::fs::create_dir_all(home.join("skills/demo")).unwrap();
    let skill = home.join("skills/demo/SKILL.md");
    std::fs::write(&skill, "one").unwrap();
    std::fs::write(home.join("key.json"), "secret").unwrap();
    std::fs::write(home.join(".env"), "TOP=secret").unwrap();
    std::os::unix::fs::symlink("../../.env", home.join("skills/demo/link")).unwrap();
    let sync = SkillSync::new(home.clone(), vec!["key.json".into()]);
    let env = environment(settings(&sshd), sync).unwrap();
    let script = "cd ~/.hermes; find . -type f | sort; cat skills/demo/SKILL.md key.json; \
        stat -c %a key.json; echo two > skills/demo/SKILL.md; echo new > skills/demo/new.md; \
        echo changed > key.json; mkdir evil; echo x > evil/file";
    let (_, text) = run(env.as_ref(), Exec::new(script, "/")).await;
    assert_eq!(text, "./key.json\n./skills/demo/SKILL.md\nonesecret644\n",);
    env.close().await.unwrap();
    assert_eq!(std::fs::read_to_string(&skill).unwrap(), "two\n");
    let new = std::fs::read_to_string(home.join("skills/demo/new.md")).unwrap();
    assert_eq!(new, "new\n");
    assert_eq!(
        std::fs::read_to_string(home.join("key.json")).unwrap(),
        "secret"
    );
    assert!(!home.join("evil").exists());
}

#[tokio::test]
async fn a_host_that_is_not_there_says_so() {
    let settings = SshSettings {
        host: "127.0.0.1".to_owned(),
        port: Some(1),
        ..SshSettings::default()
    };
    let env = environment(settings, nothing()).unwrap();
    let mut sink = OutputCollector::new(1000);
    let error = env
        .exec(Exec::new("true", "/"), &mut sink)
        .await
        .unwrap_err();
    assert!(error.to_string().contains("127.0.0.1"), "{error}");
    let option = SshSettings {
        host: "-oProxyCommand=touch /tmp/owned".to_owned(),
        ..SshSettings::default()
    };
    assert!(environment(option, nothing()).is_err());
}

/// Where the helper of [`nothing_outlives_a_killed_program`] finds its sshd.
const HELPER_PORT: &str = "HERMES_TEST_SSH_PORT";
const HELPER_DIR: &str = "HERMES_TEST_SSH_DIR";

/// Commands that also try to get away: in a session of its own, and without caring for a hangup.
fn lasting_script(dir: &Path, name: &str) -> String {
    format!(
        "cd {dir}; trap '' HUP TERM; echo $$ >{name}.pid; (setsid sleep 7777 & echo $! >{name}.far); \
         sleep 7777 & echo $! >{name}.child; wait; sleep 7777",
        dir = dir.display()
    )
}

/// Not a test by itself: the program that is killed.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "started by nothing_outlives_a_killed_program"]
async fn helper_that_runs_commands() {
    let (Ok(port), Ok(dir)) = (std::env::var(HELPER_PORT), std::env::var(HELPER_DIR)) else {
        return;
    };
    let dir = PathBuf::from(dir);
    let settings = SshSettings {
        host: "127.0.0.1".to_owned(),
        port: Some(port.parse().unwrap()),
        key: Some(dir.join("user")),
        options: vec![
            format!("UserKnownHostsFile={}", dir.join("known").display()),
            "GlobalKnownHostsFile=/dev/null".to_owned(),
        ],
        ..SshSettings::default()
    };
    let env = environment(settings, nothing()).unwrap();
    let with_pipes = Exec::new(lasting_script(&dir, "pipes"), "/");
    let with_terminal = Exec {
        pty: true,
        ..Exec::new(lasting_script(&dir, "terminal"), "/")
    };
    let (mut one, mut two) = (OutputCollector::new(1000), OutputCollector::new(1000));
    let (one, two) = tokio::join!(
        env.exec(with_pipes, &mut one),
        env.exec(with_terminal, &mut two)
    );
    panic!("not killed: {one:?} {two:?}");
}

/// Pids of processes that have `word` among their arguments.
fn processes_with(word: &str) -> Vec<u32> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir("/proc").unwrap().flatten() {
        let Some(pid) = entry.file_name().to_string_lossy().parse().ok() else {
            continue;
        };
        let line = std::fs::read(entry.path().join("cmdline")).unwrap_or_default();
        if String::from_utf8_lossy(&line).contains(word) && pid != std::process::id() {
            found.push(pid);
        }
    }
    found
}

fn runs(pid: u32) -> bool {
    std::fs::read_to_string(format!("/proc/{pid}/stat")).is_ok_and(|stat| {
        !stat
            .rsplit(')')
            .next()
            .unwrap_or_default()
            .starts_with(" Z")
    })
}

/// Looks until it is so; a minute is for a machine that does much else.
async fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    for _ in 0..1200 {
        if is_so() {
            return;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    panic!("never: {what}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_outlives_a_killed_program() {
    let Some(sshd) = rig::sshd("nothing_outlives_a_killed_program") else {
        return;
    };
    let dir = sshd.dir().to_owned();
    let helper = "contract::ssh::helper_that_runs_commands";
    let mut program = std::process::Command::new(std::env::current_exe().unwrap())
        .args(["--exact", helper, "--ignored", "--nocapture"])
        .env(HELPER_PORT, sshd.port.to_string())
        .env(HELPER_DIR, &dir)
        .stdin(std::process::Stdio::null())
        .stdout(std::process::Stdio::null())
        .stderr(std::process::Stdio::null())
        .spawn()
        .unwrap();
    let files = ["pipes", "terminal"]
        .map(|name| ["pid", "child", "far"].map(|what| format!("{name}.{what}")));
    let files = files.concat();
    let read = |file: &String| -> Option<u32> {
        std::fs::read_to_string(dir.join(file))
            .ok()?
            .trim()
            .parse()
            .ok()
    };
    until("both commands run", || {
        files.iter().all(|file| read(file).is_some())
    })
    .await;
    let far: Vec<u32> = files.iter().filter_map(read).collect();
    assert!(far.iter().all(|&pid| runs(pid)), "{far:?}");
    let port = format!("\0-p\0{}\0", sshd.port);
    let clients = processes_with(&port);
    assert!(
        clients.len() >= 3,
        "the connection and two calls: {clients:?}"
    );
    program.kill().unwrap();
    program.wait().unwrap();
    until("the commands over there end", || {
        !far.iter().any(|&pid| runs(pid))
    })
    .await;
    until("the clients here end", || processes_with(&port).is_empty()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_leaves_its_session_ends_with_the_call() {
    let Some(place) = place("what_leaves_its_session_ends_with_the_call") else {
        return;
    };
    for pty in [false, true] {
        let command = Exec {
            pty,
            ..Exec::new(
                "setsid sleep 7777 >/dev/null 2>&1 & echo $! >far.pid",
                place.dir(),
            )
        };
        run(place.env(), command).await;
        let pid = std::fs::read_to_string(place.dir().join("far.pid")).unwrap();
        let pid = pid.trim().parse().unwrap();
        until("it ends", || !runs(pid)).await;
    }
    place.leave().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_idle_connection_ends_and_a_call_over_it_does_not() {
    let Some(sshd) = rig::sshd("an_idle_connection_ends_and_a_call_over_it_does_not") else {
        return;
    };
    let settings = SshSettings {
        idle: Some(1),
        ..settings(&sshd)
    };
    let port = format!("\0-p\0{}\0", sshd.port);
    let env = environment(settings, nothing()).unwrap();
    // Longer than the connection may idle.
    let script = format!(
        "cd {}; until [ -e go ]; do sleep 0.1; done; echo done",
        sshd.dir().display()
    );
    let mut sink = OutputCollector::new(1000);
    let long = env.exec(Exec::new(script, "/"), &mut sink);
    let beside = async {
        until("the first connection is there", || {
            processes_with(&port).len() >= 2
        })
        .await;
        let first = processes_with(&port);
        loop {
            // Each use is one: looked at less often than it may idle.
            tokio::time::sleep(Duration::from_millis(1300)).await;
            let (finished, text) = run(env.as_ref(), Exec::new("echo beside", "/")).await;
            assert_eq!(
                (finished.exit, text.as_str()),
                (ProcessExit::Code(0), "beside\n")
            );
            if processes_with(&port).iter().any(|pid| !first.contains(pid)) {
                break;
            }
        }
        std::fs::write(sshd.dir().join("go"), "").unwrap();
    };
    let (finished, ()) = tokio::join!(long, beside);
    assert_eq!(finished.unwrap().exit, ProcessExit::Code(0));
    assert_eq!(sink.finish().text(), "done\n");
    until("the connections end", || processes_with(&port).is_empty()).await;
    let (finished, text) = run(env.as_ref(), Exec::new("echo again", "/")).await;
    assert_eq!(
        (finished.exit, text.as_str()),
        (ProcessExit::Code(0), "again\n")
    );
    env.close().await.unwrap();
}

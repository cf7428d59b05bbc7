//! Another machine: a real sshd on loopback.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use hermes_exec::ssh::{SshSettings, Sync, environment};
use hermes_exec::{Environment, Exec, Exit, WriteOptions};

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
        Sync::new(sshd.dir().join("hermes"), Vec::new()),
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
    assert_eq!(finished.exit, Exit::Code(0));
    place.env().suspend().await.unwrap();
    let (finished, text) = run(place.env(), Exec::new("echo again", place.dir())).await;
    assert_eq!((finished.exit, text.as_str()), (Exit::Code(0), "again\n"));
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
    assert_eq!(finished.exit, Exit::Code(6), "{text}");
    assert!(text.contains("tty"), "{text}");
    assert_eq!(finished.state.unwrap().exports["X"], "1");
    place.leave().await;
}

fn nothing() -> Sync {
    Sync::new("/nonexistent".into(), Vec::new())
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
    let sync = Sync::new(home.clone(), vec!["key.json".into()]);
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
    let mut sink = hermes_exec::output::Collector::new(1000);
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

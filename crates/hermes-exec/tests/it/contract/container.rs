//! A container of podman, rootless or root's, from an image of busybox and bash.

use std::path::PathBuf;
use std::sync::Arc;

use hermes_exec::container::{ContainerSettings, environment};
use hermes_exec::{Environment, Exec, ProcessExit};

use super::rig::{self, Podman};
use crate::support::run;

struct Place {
    env: Arc<dyn Environment>,
    podman: Podman,
    dir: PathBuf,
}

impl Place {
    fn env(&self) -> &dyn Environment {
        self.env.as_ref()
    }

    fn dir(&self) -> PathBuf {
        self.dir.clone()
    }

    async fn leave(self) {
        self.env.close().await.unwrap();
        assert_eq!(self.podman.run(&["ps", "-a", "-q"]).unwrap(), "");
    }
}

fn settings(podman: &Podman) -> ContainerSettings {
    ContainerSettings {
        program: podman.program.clone(),
        image: rig::IMAGE.to_owned(),
        task: "contract".to_owned(),
        profile: "default".to_owned(),
        cpu: 1.0,
        memory_mb: 512,
        network: true,
        ..ContainerSettings::default()
    }
}

fn place(test: &str) -> Option<Place> {
    let podman = rig::podman(test)?;
    let env = environment(settings(&podman));
    Some(Place {
        env,
        podman,
        dir: "/workspace".into(),
    })
}

super::whole_contract!(place);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_removed_container_is_made_again() {
    let Some(place) = place("a_removed_container_is_made_again") else {
        return;
    };
    run(place.env(), Exec::new("true", place.dir())).await;
    let id = place.podman.run(&["ps", "-q"]).unwrap();
    place.podman.run(&["rm", "-f", "-t", "0", &id]).unwrap();
    // The far directory is gone with it: the greeting is repeated.
    let (finished, text) = run(place.env(), Exec::new("echo again", place.dir())).await;
    assert_eq!(
        (finished.exit, text.as_str()),
        (ProcessExit::Code(0), "again\n")
    );
    place.leave().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_changed_configuration_makes_a_new_container() {
    let Some(podman) = rig::podman("a_changed_configuration_makes_a_new_container") else {
        return;
    };
    let kept = ContainerSettings {
        persistent: true,
        ..settings(&podman)
    };
    let dir = PathBuf::from("/workspace");
    let first = environment(kept.clone());
    run(first.as_ref(), Exec::new("echo kept > note", &dir)).await;
    first.close().await.unwrap();
    let again = environment(kept.clone());
    let (_, text) = run(again.as_ref(), Exec::new("cat note", &dir)).await;
    assert_eq!(text, "kept\n");
    let other = environment(ContainerSettings {
        env: vec![("COLOUR".to_owned(), "blue".to_owned())],
        ..kept
    });
    let (_, text) = run(other.as_ref(), Exec::new("cat note; echo $COLOUR", &dir)).await;
    assert!(
        text.contains("No such file") && text.contains("blue"),
        "{text}"
    );
    assert_eq!(podman.run(&["ps", "-q"]).unwrap().lines().count(), 2);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn it_is_hardened() {
    let Some(place) = place("it_is_hardened") else {
        return;
    };
    let script = "grep -E '^(CapEff|NoNewPrivs)' /proc/self/status; mount -t tmpfs x /mnt; echo $?";
    let (_, text) = run(place.env(), Exec::new(script, place.dir())).await;
    // CHOWN, DAC_OVERRIDE, FOWNER, SETGID, SETUID.
    assert!(text.contains("CapEff:\t00000000000000cb"), "{text}");
    assert!(text.contains("NoNewPrivs:\t1"), "{text}");
    assert!(!text.ends_with("\n0\n"), "{text}");
    place.leave().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn forwarded_values_arrive_and_the_network_can_be_off() {
    let Some(podman) = rig::podman("forwarded_values_arrive_and_the_network_can_be_off") else {
        return;
    };
    let env = environment(ContainerSettings {
        network: false,
        forward: vec![("TOKEN_OF_TEST".to_owned(), "s3cret value".to_owned())],
        ..settings(&podman)
    });
    let script = "echo \"$TOKEN_OF_TEST\"; ls /sys/class/net";
    let (_, text) = run(env.as_ref(), Exec::new(script, "/workspace")).await;
    assert_eq!(text, "s3cret value\nlo\n");
    env.close().await.unwrap();
}

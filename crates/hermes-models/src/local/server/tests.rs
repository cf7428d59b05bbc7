//! Starting and finding, with stand-ins for the server.

use std::os::unix::fs::PermissionsExt as _;

use hermes_config::Config;
use hermes_config::fs::FileLock;
use hermes_config::home::Home;
use hermes_testkit::web_server::{Page, WebServer};
use pretty_assertions::assert_eq;
use serde_json::json;

use super::*;

struct World {
    dir: tempfile::TempDir,
    service: LocalService,
    run: PathBuf,
    program: PathBuf,
}

impl World {
    /// `script` stands for the program.
    fn new(script: &str) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let settings =
            LocalModelSettings::new(&Home::at(dir.path().join("home")), &Config::default());
        for place in [&settings.run, &settings.cache, &settings.logs] {
            std::fs::create_dir_all(place).unwrap();
        }
        let file = dir.path().join("own.gguf");
        std::fs::write(&file, "weights").unwrap();
        let weights = settings.weights(file.to_str().unwrap()).unwrap();
        let program = dir.path().join("program");
        std::fs::write(
            &program,
            format!("#!/bin/sh\necho . >> \"$0.started\"\n{script}\n"),
        )
        .unwrap();
        std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o755)).unwrap();
        let run = run_file(&settings, &weights);
        let service = LocalService::new(settings, weights).unwrap();
        Self {
            dir,
            service,
            run,
            program,
        }
    }

    /// As a server that runs, loads or hangs does.
    fn lock(&self) -> FileLock {
        FileLock::try_acquire(&run_file::lock_path(&self.run)).unwrap()
    }

    /// As somebody who answers on that port wrote it down.
    fn written_by(&self, server: &WebServer) {
        let written = json!({
            "pid": std::process::id(), "port": server.port(), "token": "t", "model": "/m/own.gguf"
        });
        std::fs::write(&self.run, written.to_string()).unwrap();
    }

    fn log(&self) -> PathBuf {
        self.service.settings.logs.join("local-own.log")
    }

    fn starts(&self) -> usize {
        let told = std::fs::read_to_string(self.dir.path().join("program.started"));
        told.unwrap_or_default().lines().count()
    }

    /// What came of it, and what was heard meanwhile.
    async fn start(&self) -> (Result<Arc<ServerLease>, StartError>, Vec<String>) {
        let heard = Mutex::new(Vec::new());
        let tell = |words: &str| {
            let mut heard = heard.lock().unwrap();
            if heard.last().is_none_or(|last| last != words) {
                heard.push(words.to_owned());
            }
        };
        let start = ServerStart {
            program: &self.program,
            settings: &self.service.settings,
            weights: &self.service.weights,
            run: &self.run,
            deadline: Instant::now() + start::READY_TIMEOUT,
        };
        let done = self.service.started(&start, &tell).await;
        (done, heard.into_inner().unwrap())
    }
}

fn died(done: Result<Arc<ServerLease>, StartError>) -> String {
    match done {
        Err(StartError::Died(why)) => why,
        Err(other) => panic!("{other:?}"),
        Ok(_) => panic!("there is no server"),
    }
}

/// Answers everything, as a program that has nothing to do with us may.
fn stranger() -> WebServer {
    WebServer::start(|_| Page::json(&json!({})))
}

#[tokio::test(start_paused = true)]
async fn one_that_loads_is_waited_for_and_not_started_again() {
    let world = World::new("echo another server runs already >&2; exit 3");
    std::fs::write(
        world.log(),
        "of an earlier one\nhermes starts it: x\nconverting 40 %\n",
    )
    .unwrap();
    let _server = world.lock();
    let (done, heard) = world.start().await;
    assert_eq!(
        died(done),
        "it was not ready within 10 minutes: converting 40 %"
    );
    assert_eq!(heard, ["converting 40 %"]);
    assert_eq!(world.starts(), 0);
}

#[tokio::test(start_paused = true)]
async fn whoever_waits_for_another_starter_hears_of_it() {
    let world = World::new("exit 1");
    std::fs::write(world.log(), "converting 40 %\n").unwrap();
    let _starter = FileLock::try_acquire(&world.run.with_extension("starting")).unwrap();
    let (done, heard) = world.start().await;
    assert!(died(done).contains("10 minutes"));
    assert_eq!(heard, ["converting 40 %"]);
    assert_eq!(world.starts(), 0);
}

#[tokio::test]
async fn one_that_is_gone_as_soon_as_it_is_ready_is_not_started_for_ever() {
    let world = World::new("echo of no use >&2; echo ready");
    std::fs::write(world.log(), "of an earlier one\n").unwrap();
    let (done, _) = world.start().await;
    assert!(died(done).contains("started 3 times"));
    assert_eq!(world.starts(), 3);
    // What an earlier server said stays, and is not taken for the words of this one.
    let log = std::fs::read_to_string(world.log()).unwrap();
    assert!(
        log.starts_with("of an earlier one\nhermes starts it: "),
        "{log}"
    );
    assert_eq!(log.matches("of no use").count(), 3, "{log}");
}

#[tokio::test]
async fn words_of_an_earlier_server_are_not_those_of_the_one_that_failed() {
    let world = World::new("exit 1");
    std::fs::write(world.log(), "the server ends: Idle\n").unwrap();
    let (done, _) = world.start().await;
    let Err(StartError::Refused(why)) = done else {
        panic!("it does not start");
    };
    assert!(why.starts_with("see "), "{why}");
}

#[tokio::test(start_paused = true)]
async fn one_that_hangs_is_given_up() {
    let world = World::new("exit 1");
    let server = WebServer::start(|_| Page::silence());
    world.written_by(&server);
    let _server = world.lock();
    let (done, _) = world.start().await;
    let pid = i32::try_from(std::process::id()).unwrap();
    assert_eq!(done.err(), Some(StartError::Silent { pid }));
    assert_eq!(world.starts(), 0);
}

#[tokio::test]
async fn what_a_dead_server_left_is_nothing() {
    let world = World::new("exit 1");
    let stranger = stranger();
    for lock in [false, true] {
        world.written_by(&stranger);
        if lock {
            drop(world.lock());
        }
        assert!(world.service.join(&world.run).await.is_none());
        assert!(!world.run.exists(), "it is taken away");
        world.written_by(&stranger);
        assert_eq!(running(&world.service.settings).await, []);
        assert!(!world.run.exists(), "it is taken away");
    }
    assert_eq!(stranger.asked().len(), 0);
}

#[tokio::test]
async fn only_a_server_that_says_what_it_is_runs() {
    let world = World::new("exit 1");
    let _server = world.lock();
    let stranger = stranger();
    world.written_by(&stranger);
    assert_eq!(running(&world.service.settings).await, []);
    let health = json!({"status": "ok", "model": "own", "requests": 7});
    let server = WebServer::start(move |_| Page::json(&health));
    world.written_by(&server);
    let found = running(&world.service.settings).await;
    assert_eq!(found.len(), 1);
    assert_eq!((found[0].model.as_str(), found[0].requests), ("own", 7));
    assert!(world.service.join(&world.run).await.is_some());
}

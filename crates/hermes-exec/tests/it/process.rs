//! The registry of background processes, over the local environment.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use hermes_core::clock::{Clock, SystemClock, SystemRng};
use hermes_core::ids::SessionId;
use hermes_exec::process::NewProcess;
use hermes_exec::process::{
    EndReason, Notice, NoticeKind, Notices, ProcessError, ProcessRegistry, ProcessRouting,
    RegistryOptions, WaitOutcome,
};
use hermes_exec::{BackgroundStart, Confinement};
use hermes_testkit::clock::ManualClock;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use crate::support::local;

const PATIENCE: Duration = Duration::from_mins(1);

struct Post(mpsc::UnboundedSender<Notice>);

impl Notices for Post {
    fn deliver(&self, notice: Notice) {
        let _ = self.0.send(notice);
    }

    fn can_reach(&self, _: &SessionId) -> bool {
        true
    }
}

fn registry(
    checkpoint: Option<PathBuf>,
    clock: Arc<dyn Clock>,
) -> (ProcessRegistry, mpsc::UnboundedReceiver<Notice>) {
    let (post, letters) = mpsc::unbounded_channel();
    let registry = ProcessRegistry::new(RegistryOptions {
        checkpoint,
        clock,
        rng: Arc::new(SystemRng),
        notices: Arc::new(Post(post)),
        grace: Duration::from_millis(300),
    });
    (registry, letters)
}

fn new(script: &str, dir: &Path) -> NewProcess {
    NewProcess {
        session: SessionId::new("s1"),
        routing: ProcessRouting::default(),
        start: BackgroundStart {
            id: String::new(),
            script: script.to_owned(),
            cwd: dir.to_owned(),
            exports: None,
            extra_env: [].into(),
            pty: false,
            confinement: Confinement::Off,
        },
        command: script.to_owned(),
        notify_on_complete: false,
        watch_patterns: Vec::new(),
    }
}

fn temp() -> (tempfile::TempDir, PathBuf) {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().canonicalize().unwrap();
    (dir, path)
}

async fn next(letters: &mut mpsc::UnboundedReceiver<Notice>) -> Notice {
    tokio::time::timeout(PATIENCE, letters.recv())
        .await
        .expect("a notice")
        .unwrap()
}

#[tokio::test]
async fn the_end_is_told_once() {
    let (_dir, path) = temp();
    let env = local(&path);
    let (registry, mut letters) = registry(None, Arc::new(SystemClock));
    let mut process = new(
        "echo out; echo password=0123456789abcdef0123; exit 3",
        &path,
    );
    process.notify_on_complete = true;
    let info = registry.spawn(&env, process).await.unwrap();
    assert!(
        info.id.starts_with("proc_") && info.id.len() == 17,
        "{}",
        info.id
    );
    let notice = next(&mut letters).await;
    assert_eq!(notice.process, info.id);
    assert!(!notice.is_stale());
    let text = notice.text();
    assert!(
        text.contains("exit code 3") && text.contains("out\n"),
        "{text}"
    );
    assert!(!text.contains("89abcdef0123"), "{text}");
    let page = registry.log(&info.id, 0, 10).await.unwrap();
    assert_eq!((page.total_lines, page.complete), (2, true));
    assert!(
        notice.is_stale(),
        "reading the end is as good as being told"
    );
    assert!(letters.try_recv().is_err());
}

#[tokio::test]
async fn who_waits_is_not_told_again() {
    let (_dir, path) = temp();
    let env = local(&path);
    let (registry, mut letters) = registry(None, Arc::new(SystemClock));
    let mut process = new("read -r line; exit 2", &path);
    process.notify_on_complete = true;
    let id = registry.spawn(&env, process).await.unwrap().id;
    let cancel = CancellationToken::new();
    let short = registry.wait(&id, Duration::from_millis(50), &cancel).await;
    assert_eq!(short.unwrap(), WaitOutcome::TimedOut);
    let (waited, written) = tokio::join!(
        registry.wait(&id, PATIENCE, &cancel),
        registry.write(&id, Bytes::from_static(b"go\n")),
    );
    written.unwrap();
    let WaitOutcome::Ended(ended) = waited.unwrap() else {
        panic!("not ended")
    };
    assert_eq!((ended.code, ended.reason), (Some(2), EndReason::Exited));
    assert!(matches!(
        registry.write(&id, Bytes::new()).await,
        Err(ProcessError::Ended(_))
    ));
    assert!(letters.try_recv().is_err());
    cancel.cancel();
    assert!(matches!(
        registry.wait("proc_none", PATIENCE, &cancel).await,
        Err(ProcessError::Unknown(_))
    ));
}

#[tokio::test]
async fn a_pattern_is_told_when_it_appears() {
    let (_dir, path) = temp();
    let env = local(&path);
    let (registry, mut letters) = registry(None, Arc::new(SystemClock));
    let mut process = new(
        "echo starting; echo listening on 80; read -r line; echo listening again; read -r line",
        &path,
    );
    process.watch_patterns = vec!["listening".to_owned()];
    let id = registry.spawn(&env, process).await.unwrap().id;
    let notice = next(&mut letters).await;
    assert_eq!(
        notice.kind,
        NoticeKind::Matched {
            pattern: "listening".to_owned(),
            output: "listening on 80".to_owned(),
            suppressed: 0
        }
    );
    assert!(registry.info(&id).unwrap().watch_hit);
    assert!(registry.kill(&id).await.unwrap());
    let ended = registry.info(&id).unwrap().ended.unwrap();
    assert_eq!((ended.code, ended.reason), (Some(-15), EndReason::Killed));
    assert!(!registry.kill(&id).await.unwrap());
}

/// What a program leaves behind when it goes: the processes, and the file.
#[test]
fn processes_are_found_again_after_a_restart() {
    let (_dir, path) = temp();
    let checkpoint = path.join("processes.json");
    let runtime = || {
        tokio::runtime::Builder::new_multi_thread()
            .worker_threads(2)
            .enable_all()
            .build()
            .unwrap()
    };
    let script = "echo before; read -r line; echo \"after $line\"; exit 7";
    let before = runtime();
    let id = before.block_on(async {
        let env = local(&path);
        let (registry, _letters) = registry(Some(checkpoint.clone()), Arc::new(SystemClock));
        let mut process = new(script, &path);
        process.notify_on_complete = true;
        let id = registry.spawn(&env, process).await.unwrap().id;
        while registry.tail(&id, 100).await.unwrap() != "before\n" {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        id
    });
    drop(before);

    runtime().block_on(async {
        let env = local(&path);
        let (registry, mut letters) = registry(Some(checkpoint.clone()), Arc::new(SystemClock));
        assert_eq!(registry.adopt(&env).await, 1);
        assert_eq!(registry.adopt(&env).await, 0);
        let info = registry.info(&id).unwrap();
        assert!(info.adopted && info.ended.is_none());
        assert_eq!(info.session, SessionId::new("s1"));
        assert_eq!(registry.tail(&id, 100).await.unwrap(), "before\n");
        registry
            .write(&id, Bytes::from_static(b"all\n"))
            .await
            .unwrap();
        let notice = next(&mut letters).await;
        let NoticeKind::Completed { ended, output } = notice.kind else {
            panic!("{notice:?}")
        };
        assert_eq!(ended.code, Some(7));
        assert_eq!(output, "before\nafter all\n");
        let left = std::fs::read_to_string(&checkpoint).unwrap();
        assert_eq!(left.trim(), "[]");
    });
}

/// A program goes, another takes over: what was told is not told again, what comes then is.
#[test]
fn a_match_is_told_once_across_a_restart() {
    let (_dir, path) = temp();
    let checkpoint = path.join("processes.json");
    let runtime = || {
        tokio::runtime::Builder::new_multi_thread()
            .enable_all()
            .build()
            .unwrap()
    };
    let before = runtime();
    let id = before.block_on(async {
        let env = local(&path);
        let (registry, mut letters) = registry(Some(checkpoint.clone()), Arc::new(SystemClock));
        let mut process = new("echo ready one; read -r line; echo ready $line; cat", &path);
        process.watch_patterns = vec!["ready".to_owned()];
        let id = registry.spawn(&env, process).await.unwrap().id;
        let _ = next(&mut letters).await;
        id
    });
    drop(before);

    runtime().block_on(async {
        let env = local(&path);
        let (registry, mut letters) = registry(Some(checkpoint.clone()), Arc::new(SystemClock));
        assert_eq!(registry.adopt(&env).await, 1);
        let two = Bytes::from_static(b"two\n");
        registry.write(&id, two).await.unwrap();
        let notice = next(&mut letters).await;
        let NoticeKind::Matched { output, .. } = &notice.kind else {
            panic!("{notice:?}")
        };
        assert_eq!(output, "ready two");
        assert!(registry.kill(&id).await.unwrap());
    });
}

#[tokio::test]
async fn finished_ones_are_forgotten_in_time() {
    let (_dir, path) = temp();
    let env = local(&path);
    let clock = Arc::new(ManualClock::default());
    let (registry, _letters) = registry(None, clock.clone());
    let id = registry.spawn(&env, new("true", &path)).await.unwrap().id;
    let cancel = CancellationToken::new();
    registry.wait(&id, PATIENCE, &cancel).await.unwrap();
    clock.advance(Duration::from_secs(1790));
    assert_eq!(registry.list(None).len(), 1);
    assert_eq!(registry.list(Some(&SessionId::new("other"))).len(), 0);
    assert!(path.join("processes").join(&id).exists());
    clock.advance(Duration::from_secs(20));
    assert_eq!(registry.list(None).len(), 0);
    assert!(!path.join("processes").join(&id).exists());
}

#[tokio::test]
async fn there_is_a_limit_and_finished_ones_make_room() {
    let (_dir, path) = temp();
    let env = local(&path);
    let (registry, _letters) = registry(None, Arc::new(SystemClock));
    let first = registry.spawn(&env, new("true", &path)).await.unwrap().id;
    let cancel = CancellationToken::new();
    registry.wait(&first, PATIENCE, &cancel).await.unwrap();
    for _ in 0..64 {
        registry
            .spawn(&env, new("exec sleep 600", &path))
            .await
            .unwrap();
    }
    assert!(registry.info(&first).is_err());
    let refused = registry.spawn(&env, new("true", &path)).await;
    assert!(matches!(refused, Err(ProcessError::TooMany)), "{refused:?}");
    assert_eq!(registry.kill_all(&SessionId::new("s1")).await, 64);
    assert_eq!(registry.running(), 0);
}

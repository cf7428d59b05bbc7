//! What every environment does. Each function takes an environment and an empty directory in it.

use std::path::Path;
use std::time::Duration;

use bytes::Bytes;
use hermes_exec::{
    Background, BackgroundStart, Environment, Exec, FileKind, OutputSink, OutputStream,
    ProcessExit, Stdin, WriteOptions,
};
use tokio_util::sync::CancellationToken;

use crate::support::run;

/// Long enough for the slowest machine; only a failure ever takes it.
const PATIENCE: Duration = Duration::from_mins(1);

fn quick(script: &str, dir: &Path) -> Exec {
    Exec {
        timeout: PATIENCE,
        ..Exec::new(script, dir)
    }
}

pub(crate) async fn output_and_exit_code(env: &dyn Environment, dir: &Path) {
    let (finished, text) = run(
        env,
        quick("echo one; echo two >&2; echo three; exit 3", dir),
    )
    .await;
    assert_eq!(finished.exit, ProcessExit::Code(3));
    assert_eq!(text, "one\ntwo\nthree\n");
    let (finished, text) = run(env, quick("pwd; kill -9 $$", dir)).await;
    assert_eq!(finished.exit.code(), 137);
    assert_eq!(text.trim(), dir.display().to_string());
}

pub(crate) async fn exports_and_directory_are_reported(env: &dyn Environment, dir: &Path) {
    let script = "mkdir -p sub; cd sub; export NAME='a \"b\" $c\nd'; local_only=1; exit 4";
    let (finished, _) = run(env, quick(script, dir)).await;
    assert_eq!(finished.exit, ProcessExit::Code(4));
    let state = finished.state.expect("a state");
    assert_eq!(state.cwd, dir.join("sub"));
    assert_eq!(state.exports["NAME"], "a \"b\" $c\nd");
    assert!(!state.exports.contains_key("local_only"));
    assert!(!state.exports.keys().any(|name| name.starts_with("_HERMES")));

    let next = Exec {
        exports: Some(state.exports),
        ..quick("printf '%s|' \"$NAME\"; pwd", &state.cwd)
    };
    let (_, text) = run(env, next).await;
    assert_eq!(
        text,
        format!("a \"b\" $c\nd|{}\n", dir.join("sub").display())
    );
}

pub(crate) async fn a_missing_directory_is_126(env: &dyn Environment, dir: &Path) {
    let (finished, text) = run(env, quick("echo no", &dir.join("absent"))).await;
    assert_eq!(finished.exit, ProcessExit::Code(126));
    assert!(text.contains("absent"), "{text}");
    assert!(!text.contains("no\n"), "{text}");
}

pub(crate) async fn input_is_closed_or_given(env: &dyn Environment, dir: &Path) {
    let (finished, text) = run(env, quick("cat; echo end", dir)).await;
    assert_eq!(
        (finished.exit, text.as_str()),
        (ProcessExit::Code(0), "end\n")
    );
    let given = Exec {
        stdin: Stdin::Bytes(Bytes::from_static(b"some input\n")),
        ..quick("cat; echo end", dir)
    };
    let (_, text) = run(env, given).await;
    assert_eq!(text, "some input\nend\n");
    let unread = Exec {
        stdin: Stdin::Bytes(Bytes::from(vec![b'x'; 1 << 20])),
        ..quick("true", dir)
    };
    let (finished, _) = run(env, unread).await;
    assert_eq!(finished.exit, ProcessExit::Code(0));
}

/// A tree of processes that ignore TERM, one of them in a session of its own. Each notes its
/// number.
const TREE: &str = "trap '' TERM; note() { echo $BASHPID >> pids; }; note; \
    (note; trap '' TERM; (note; trap '' TERM; echo ready; while :; do sleep 1; done) & \
    while :; do sleep 1; done) & \
    setsid bash -c 'echo $$ >> pids; trap \"\" TERM; while :; do sleep 1; done' & \
    while :; do sleep 1; done";

/// Which of the noted processes are alive.
async fn alive(env: &dyn Environment, dir: &Path) -> String {
    // not by kill -0: who waits to be reaped is dead
    let script = "for p in $(cat pids); do \
        grep -qs '^State:[[:space:]][^ZX]' /proc/$p/status && echo $p; done; wc -l < pids";
    run(env, quick(script, dir)).await.1
}

pub(crate) async fn a_timeout_ends_the_whole_tree(env: &dyn Environment, dir: &Path) {
    let command = Exec {
        timeout: Duration::from_secs(2),
        ..Exec::new(TREE, dir)
    };
    let (finished, text) = run(env, command).await;
    assert_eq!(finished.exit, ProcessExit::TimedOut);
    assert_eq!(finished.exit.code(), 124);
    assert!(text.contains("ready"), "{text}");
    assert_eq!(alive(env, dir).await, "4\n");
}

/// Cancels when a word comes by.
struct CancelOn(&'static str, CancellationToken, String);

impl OutputSink for CancelOn {
    fn push(&mut self, _: OutputStream, bytes: &[u8]) {
        self.2.push_str(&String::from_utf8_lossy(bytes));
        if self.2.contains(self.0) {
            self.1.cancel();
        }
    }
}

pub(crate) async fn an_interrupt_ends_the_whole_tree(env: &dyn Environment, dir: &Path) {
    let cancel = CancellationToken::new();
    let command = Exec {
        cancel: cancel.clone(),
        ..quick(TREE, dir)
    };
    let mut sink = CancelOn("ready", cancel, String::new());
    let finished = env.exec(command, &mut sink).await.unwrap();
    assert_eq!(finished.exit, ProcessExit::Interrupted);
    assert_eq!(finished.exit.code(), 130);
    assert_eq!(alive(env, dir).await.lines().count(), 1);
}

pub(crate) async fn a_dropped_call_ends_its_command(env: &dyn Environment, dir: &Path) {
    let script = "echo $$ > pids; echo ready; while :; do sleep 1; done";
    let seen = CancellationToken::new();
    let mut sink = CancelOn("ready", seen.clone(), String::new());
    {
        let running = env.exec(quick(script, dir), &mut sink);
        tokio::select! {
            finished = running => panic!("it ended: {finished:?}"),
            () = seen.cancelled() => {}
        }
    }
    // killed without waiting for it: until it is gone
    let gone = "until ! kill -0 $(cat pids) 2>/dev/null || grep -qs 'State:.Z' /proc/$(cat pids)/status; \
        do sleep 0.05; done; echo gone";
    let (_, text) = run(env, quick(gone, dir)).await;
    assert_eq!(text, "gone\n");
}

pub(crate) fn start(id: &str, script: &str, dir: &Path) -> BackgroundStart {
    BackgroundStart {
        id: id.to_owned(),
        script: script.to_owned(),
        cwd: dir.to_owned(),
        exports: None,
        extra_env: [("EXTRA".to_owned(), "given".to_owned())].into(),
        pty: false,
        confinement: hermes_exec::Confinement::Off,
    }
}

/// All output up to now.
pub(crate) async fn output(process: &dyn Background) -> String {
    let chunk = process.read(0, 1 << 20).await.unwrap();
    String::from_utf8_lossy(&chunk.bytes).into_owned()
}

/// Waits until the output holds `wanted`.
pub(crate) async fn until(process: &dyn Background, wanted: &str) -> String {
    let looking = async {
        loop {
            let text = output(process).await;
            if text.contains(wanted) {
                return text;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    let Ok(text) = tokio::time::timeout(PATIENCE, looking).await else {
        panic!("no {wanted:?} in {:?}", output(process).await);
    };
    text
}

/// What is kept of it for whoever asks later. The far side of a test over ssh is this machine.
fn forget(process: &dyn Background) {
    if let Some(dir) = process.record().dir {
        let _ = std::fs::remove_dir_all(dir);
    }
}

pub(crate) async fn a_background_process_runs_to_its_end(env: &dyn Environment, dir: &Path) {
    let script = "echo $EXTRA; echo err >&2; exit 5";
    let process = env.spawn(start("proc_end", script, dir)).await.unwrap();
    assert_eq!(process.wait().await, Some(ProcessExit::Code(5)));
    assert_eq!(output(process.as_ref()).await, "given\nerr\n");
    let chunk = process.read(6, 3).await.unwrap();
    assert_eq!(
        (&chunk.bytes[..], chunk.from, chunk.total),
        (&b"err"[..], 6, 10)
    );
    forget(process.as_ref());
}

pub(crate) async fn a_background_process_takes_input(env: &dyn Environment, dir: &Path) {
    let script = "while read -r line; do echo \"got $line\"; done; echo closed";
    let process = env.spawn(start("proc_in", script, dir)).await.unwrap();
    process.write(Bytes::from_static(b"one\n")).await.unwrap();
    until(process.as_ref(), "got one").await;
    process.write(Bytes::from_static(b"two\n")).await.unwrap();
    until(process.as_ref(), "got two").await;
    process.close_stdin().await.unwrap();
    assert_eq!(process.wait().await, Some(ProcessExit::Code(0)));
    assert!(output(process.as_ref()).await.ends_with("closed\n"));
    assert!(process.write(Bytes::from_static(b"late")).await.is_err());
    forget(process.as_ref());
}

pub(crate) async fn killing_a_background_process_kills_its_tree(env: &dyn Environment, dir: &Path) {
    let process = env.spawn(start("proc_tree", TREE, dir)).await.unwrap();
    until(process.as_ref(), "ready").await;
    process.kill(Duration::from_millis(200)).await.unwrap();
    process.wait().await;
    assert_eq!(alive(env, dir).await.lines().count(), 1);
    forget(process.as_ref());
}

pub(crate) async fn a_background_process_is_found_again(env: &dyn Environment, dir: &Path) {
    let script = "echo before; read -r line; echo \"after $line\"; exit 6";
    let process = env.spawn(start("proc_again", script, dir)).await.unwrap();
    until(process.as_ref(), "before").await;
    let record = process.record();
    drop(process);
    let process = env.adopt(record).await.unwrap().expect("still there");
    assert_eq!(output(process.as_ref()).await, "before\n");
    process.write(Bytes::from_static(b"all\n")).await.unwrap();
    assert_eq!(process.wait().await, Some(ProcessExit::Code(6)));
    assert_eq!(output(process.as_ref()).await, "before\nafter all\n");
    forget(process.as_ref());
}

pub(crate) async fn files_are_written_whole(env: &dyn Environment, dir: &Path) {
    let files = env.files();
    let path = dir.join("deep/er/file.txt");
    assert_eq!(files.stat(&path).await.unwrap(), None);
    let create = WriteOptions {
        create_parents: true,
        create_new: true,
        mode: Some(0o600),
    };
    let content = Bytes::from_static(b"0123456789\n");
    files.write(&path, content.clone(), create).await.unwrap();
    assert!(files.write(&path, content.clone(), create).await.is_err());
    let stat = files.stat(&path).await.unwrap().expect("it is there");
    assert_eq!(
        (stat.kind, stat.size, stat.mode),
        (FileKind::File, 11, 0o600)
    );
    assert_eq!(files.read(&path, 3, 4).await.unwrap(), &b"3456"[..]);
    files
        .write(&path, Bytes::from_static(b"new"), WriteOptions::default())
        .await
        .unwrap();
    assert_eq!(files.stat(&path).await.unwrap().unwrap().mode, 0o600);
    assert_eq!(files.read(&path, 0, 100).await.unwrap(), &b"new"[..]);

    let other = dir.join("deep/other name");
    files.rename(&path, &other).await.unwrap();
    assert_eq!(
        files.list(&dir.join("deep")).await.unwrap(),
        [
            ("er".to_owned(), FileKind::Directory),
            ("other name".to_owned(), FileKind::File)
        ]
    );
    files.remove(&other).await.unwrap();
    files.remove(&dir.join("deep/er")).await.unwrap();
    assert!(files.remove(&other).await.is_err());
    let resolved = files.resolve(Path::new("deep/../x"), dir).await.unwrap();
    assert_eq!(resolved, dir.join("x"));
}

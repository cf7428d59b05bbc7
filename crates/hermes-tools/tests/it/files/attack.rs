//! Ways out that must not work.

use std::os::unix::fs::symlink;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use hermes_core::tool::{ToolErrorKind, ToolOutcome};
use serde_json::json;

use super::{FilesHarness, error_of};

#[tokio::test]
async fn secrets_are_not_read_by_any_name() {
    let harness = FilesHarness::new();
    harness.put("../home/auth.json", "{\"token\":\"s3cret\"}");
    harness.put("../home/.env", "KEY=s3cret");
    let home = harness.root().join("home");
    symlink(home.join("auth.json"), harness.path("link.txt")).unwrap();
    symlink("link.txt", harness.path("link2.txt")).unwrap();
    symlink(&home, harness.path("dir")).unwrap();
    std::fs::hard_link(home.join("auth.json"), harness.path("hard.txt")).unwrap();
    symlink("/proc/self/environ", harness.path("env.txt")).unwrap();
    symlink("/dev/zero", harness.path("zero.txt")).unwrap();
    for path in [
        "../home/auth.json",
        "../home/AUTH.json",
        "x/../../home/auth.json",
        "link.txt",
        "link2.txt",
        "dir/auth.json",
        "dir/.env",
        "hard.txt",
        "env.txt",
        "zero.txt",
        "/proc/self/environ",
        "/proc/self/root/proc/self/environ",
        "/proc/thread-self/environ",
        "/dev/stdin",
        "/dev/fd/0",
    ] {
        let outcome = harness.call("read_file", json!({"path": path})).await;
        match outcome {
            ToolOutcome::Done(content) => panic!("{path}: {}", content.text()),
            ToolOutcome::Error { text, .. } => assert!(!text.contains("s3cret"), "{path}: {text}"),
        }
    }
}

#[tokio::test]
async fn pipes_do_not_hold_anyone() {
    let harness = FilesHarness::new();
    let fifo = harness.path("pipe");
    let made = std::process::Command::new("mkfifo").arg(&fifo).status();
    assert!(made.unwrap().success());
    let (kind, _) = harness.err("read_file", json!({"path": "pipe"})).await;
    assert_eq!(kind, ToolErrorKind::Denied);
    let (_, value) = harness
        .err("write_file", json!({"path": "pipe", "content": "x"}))
        .await;
    assert!(error_of(&value).contains("not a regular file"), "{value}");
    let value = harness.ok("search_files", json!({"pattern": "x"})).await;
    assert_eq!(value["total_count"], 0);
}

/// Swaps `name` between a file (or directory) and a link to `target` until told to stop.
fn swapper(name: &Path, target: &Path, stop: &Arc<AtomicBool>) -> std::thread::JoinHandle<()> {
    let (name, target, stop) = (name.to_owned(), target.to_owned(), Arc::clone(stop));
    let aside = name.with_extension("aside");
    let link = name.with_extension("link");
    std::thread::spawn(move || {
        symlink(&target, &link).unwrap();
        while !stop.load(Ordering::Relaxed) {
            // One step each: the name is always one or the other.
            let _ = std::fs::rename(&name, &aside);
            let _ = std::fs::rename(&link, &name);
            let _ = std::fs::rename(&name, &link);
            let _ = std::fs::rename(&aside, &name);
        }
    })
}

#[tokio::test]
async fn a_link_swapped_in_between_check_and_use_leads_nowhere() {
    let harness = FilesHarness::new();
    harness.put("../home/auth.json", "s3cret\n");
    harness.put("../outside/victim.txt", "precious\n");
    harness.put("dir/file.txt", "public\n");
    harness.put("dir/auth.json", "public\n");
    let root = harness.root();
    let stop = Arc::new(AtomicBool::new(false));
    let reads = swapper(&harness.path("dir"), &root.join("home"), &stop);
    for round in 0..300 {
        for path in ["dir/auth.json", "dir/file.txt"] {
            let args = json!({"path": path, "limit": 1 + round});
            let outcome = harness.call("read_file", args).await;
            let (ToolOutcome::Done(_) | ToolOutcome::Error { .. }) = &outcome;
            let text = format!("{outcome:?}");
            assert!(!text.contains("s3cret"), "{text}");
        }
        let args = json!({"pattern": "s3cret", "path": "."});
        let text = format!("{:?}", harness.call("search_files", args).await);
        assert!(
            !text.contains("1: s3cret") && !text.contains("\"content\":\"s3cret"),
            "{text}"
        );
    }
    stop.store(true, Ordering::Relaxed);
    reads.join().unwrap();
    harness.put("write/victim.txt", "mine\n");
    let stop = Arc::new(AtomicBool::new(false));
    let writes = swapper(&harness.path("write"), &root.join("outside"), &stop);
    for round in 0..300 {
        let args = json!({"path": "write/victim.txt", "content": format!("mine {round}\n")});
        let _ = harness.call("write_file", args).await;
        let args = json!({"mode": "replace", "path": "write/victim.txt", "old_string": "mine", "new_string": "MINE"});
        let _ = harness.call("patch", args).await;
    }
    stop.store(true, Ordering::Relaxed);
    writes.join().unwrap();
    let victim = std::fs::read_to_string(root.join("outside/victim.txt")).unwrap();
    assert_eq!(victim, "precious\n");
    let strays = std::fs::read_dir(root.join("outside")).unwrap().count();
    assert_eq!(strays, 1, "not even a temporary file");
}

#[tokio::test]
async fn the_file_itself_swapped_for_a_link_is_replaced_not_followed() {
    let harness = FilesHarness::new();
    harness.put("../outside/victim.txt", "precious\n");
    harness.put("a.txt", "mine\n");
    let victim = harness.root().join("outside/victim.txt");
    let stop = Arc::new(AtomicBool::new(false));
    let swaps = swapper(&harness.path("a.txt"), &victim, &stop);
    for round in 0..300 {
        let args = json!({"path": "a.txt", "content": format!("mine {round}\n")});
        let _ = harness.call("write_file", args).await;
    }
    stop.store(true, Ordering::Relaxed);
    swaps.join().unwrap();
    assert_eq!(std::fs::read_to_string(victim).unwrap(), "precious\n");
}

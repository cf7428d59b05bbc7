use hermes_testkit::directories::beyond_temporary;
use std::path::Path;
use std::process::Command;
use std::sync::{Arc, Mutex};

use hermes_config::Config;
use hermes_core::clock::SystemClock;
use hermes_core::event::ProgressSink;
use hermes_core::ids::TurnId;
use hermes_testkit::home::TempHome;
use hermes_testkit::oracle;
use hermes_tools::files::Checkpoints;
use hermes_tools::files::checkpoints::CheckpointError;
use pretty_assertions::assert_eq;
use serde_json::json;

use super::FilesHarness;

fn config() -> Config {
    let mut config = Config::default();
    config.checkpoints.enabled = true;
    config
}

fn harness() -> FilesHarness {
    let harness = FilesHarness::with_config(&config(), |_| {});
    harness.put("Cargo.toml", "[package]\n");
    harness
}

impl FilesHarness {
    fn turn(&mut self, turn: u64) {
        self.cx.turn = TurnId(turn);
    }

    async fn write(&self, path: &str, content: &str) {
        self.ok("write_file", json!({"path": path, "content": content}))
            .await;
    }
}

#[tokio::test]
async fn the_first_change_of_a_turn_keeps_what_was_there() {
    let mut harness = harness();
    harness.put("a.txt", "zero\n");
    let dir = harness.path("");
    let list = async |harness: &FilesHarness| harness.deps.checkpoints.list(&dir).await.unwrap();
    assert_eq!(list(&harness).await, []);
    harness.write("a.txt", "one\n").await;
    harness.write("a.txt", "two\n").await;
    assert_eq!(list(&harness).await.len(), 1, "one per turn");
    harness.turn(2);
    harness.write("sub/b.txt", "b\n").await;
    harness.turn(3);
    harness.write("a.txt", "three\n").await;
    let all = list(&harness).await;
    let numbers: Vec<usize> = all.iter().map(|entry| entry.number).collect();
    assert_eq!(numbers, [1, 2, 3]);
    assert_eq!(all[0].reason, "before write_file");
    assert_eq!((all[1].files_changed, all[1].insertions), (1, 1));
    let checkpoints = &harness.deps.checkpoints;
    let changes = checkpoints.diff(&dir, "1").await.unwrap();
    assert!(changes.diff.contains("-two\n+three"), "{}", changes.diff);
    // One file, then everything.
    let restored = checkpoints.restore(&dir, "3", Some("a.txt")).await.unwrap();
    assert!(restored.saved);
    assert_eq!(harness.text("a.txt"), "zero\n");
    assert_eq!(harness.text("sub/b.txt"), "b\n");
    let before = list(&harness).await;
    assert!(
        before[0].reason.starts_with("before going back to"),
        "{before:?}"
    );
    let first = before.last().unwrap().short_hash.clone();
    let restored = checkpoints.restore(&dir, &first, None).await.unwrap();
    assert_eq!(restored.removed, ["sub/b.txt"]);
    assert!(!harness.path("sub/b.txt").exists());
    // Going back can be taken back: everything that was removed is in the snapshot before.
    checkpoints.restore(&dir, "1", None).await.unwrap();
    assert_eq!(harness.text("sub/b.txt"), "b\n");
    for (which, file) in [
        ("9", None),
        ("zz", None),
        ("--help", None),
        ("1", Some("../x")),
        ("1", Some("/etc/passwd")),
    ] {
        let error = checkpoints.restore(&dir, which, file).await.unwrap_err();
        assert!(
            matches!(
                error,
                CheckpointError::Unknown { .. } | CheckpointError::BadPath(_)
            ),
            "{error}"
        );
    }
}

#[tokio::test]
async fn bytes_come_back_exactly_and_the_projects_git_is_untouched() {
    let mut harness = harness();
    let project = harness.path("");
    let git = |args: &[&str]| {
        let run = Command::new("git")
            .args(args)
            .current_dir(&project)
            .env("GIT_CONFIG_GLOBAL", "/dev/null")
            .output()
            .unwrap();
        assert!(run.status.success(), "{args:?} {run:?}");
        String::from_utf8(run.stdout).unwrap()
    };
    git(&["init", "-q"]);
    // Attributes of the project would change line ends and run a filter.
    harness.put(".gitattributes", "* text=auto eol=crlf filter=evil\n");
    harness.put("crlf.txt", "a\r\nb\n");
    harness.put("with space \u{e9}[1].txt", "x\n");
    harness.put("secret/.env", "KEY=1\n");
    harness.put("node_modules/m.js", "x\n");
    let status = git(&["status", "--porcelain", "--ignored"]);
    let before: Vec<_> = walk(&harness.path(".git"));
    harness.write("crlf.txt", "c\n").await;
    harness.turn(2);
    harness.write("with space \u{e9}[1].txt", "y\n").await;
    assert_eq!(git(&["status", "--porcelain", "--ignored"]), status);
    let dir = harness.path("");
    let checkpoints = &harness.deps.checkpoints;
    checkpoints.restore(&dir, "2", None).await.unwrap();
    assert_eq!(harness.bytes("crlf.txt"), b"a\r\nb\n");
    assert_eq!(harness.text("with space \u{e9}[1].txt"), "x\n");
    assert_eq!(harness.text("secret/.env"), "KEY=1\n");
    let after: Vec<_> = walk(&harness.path(".git"));
    let stay = |paths: &[String]| -> Vec<String> {
        paths
            .iter()
            .filter(|path| !path.ends_with("/index"))
            .cloned()
            .collect()
    };
    assert_eq!(stay(&after), stay(&before));
    let store = harness.root().join("home/checkpoints/store");
    let kept = Command::new("git")
        .args(["log", "--all", "--name-only", "--format="])
        .env("GIT_DIR", &store)
        .output()
        .unwrap();
    let kept = String::from_utf8(kept.stdout).unwrap();
    assert!(
        !kept.contains(".env") && !kept.contains("node_modules"),
        "{kept}"
    );
}

fn walk(dir: &Path) -> Vec<String> {
    let mut paths = Vec::new();
    for entry in std::fs::read_dir(dir).unwrap().flatten() {
        if entry.path().is_dir() {
            paths.extend(walk(&entry.path()));
        } else {
            paths.push(entry.path().display().to_string());
        }
    }
    paths.sort();
    paths
}

#[tokio::test]
async fn old_snapshots_and_large_files_go() {
    let mut settings = config();
    settings.checkpoints.max_snapshots = 3;
    settings.checkpoints.max_file_size_mb = 1;
    let mut harness = FilesHarness::with_config(&settings, |_| {});
    harness.put("Cargo.toml", "[package]\n");
    harness.put("large.txt", "x".repeat(2 << 20));
    for turn in 0..6 {
        harness.turn(turn);
        harness.write("a.txt", &format!("{turn}\n")).await;
    }
    let dir = harness.path("");
    let all = harness.deps.checkpoints.list(&dir).await.unwrap();
    assert_eq!(all.len(), 3);
    harness
        .deps
        .checkpoints
        .restore(&dir, "3", None)
        .await
        .unwrap();
    assert_eq!(harness.text("a.txt"), "2\n");
    assert!(
        harness.path("large.txt").exists(),
        "what was never kept is not touched"
    );
}

#[tokio::test]
async fn the_store_stays_within_its_size() {
    let mut settings = config();
    settings.checkpoints.max_total_size_mb = 1;
    let mut harness = FilesHarness::with_config(&settings, |_| {});
    harness.put("Cargo.toml", "[package]\n");
    let noise = |seed: u64| -> String {
        let mut state = seed;
        (0..300_000)
            .map(|_| {
                state = state
                    .wrapping_mul(6_364_136_223_846_793_005)
                    .wrapping_add(1);
                char::from(b' ' + (state >> 58) as u8)
            })
            .collect()
    };
    for turn in 0..8 {
        harness.turn(turn);
        harness.write("a.txt", &noise(turn)).await;
    }
    let all = harness
        .deps
        .checkpoints
        .list(&harness.path(""))
        .await
        .unwrap();
    assert!((1..7).contains(&all.len()), "{}", all.len());
}

#[tokio::test]
async fn nothing_is_kept_when_it_is_off_or_the_directory_too_broad() {
    let off = FilesHarness::new();
    off.put("Cargo.toml", "");
    off.write("a.txt", "x\n").await;
    assert!(!off.root().join("home/checkpoints").exists());
    let on = harness();
    let checkpoints = &on.deps.checkpoints;
    for dir in ["/", "/tmp"] {
        let taken = checkpoints
            .before_change(&"s".into(), TurnId(1), Path::new(dir), "test")
            .await;
        let error = taken.unwrap_err().to_string();
        assert_eq!(
            error,
            format!("{dir} has no checkpoints: the directory is too broad")
        );
    }
}

/// Whoever relies on /rollback must know when it cannot help: said once, not at every turn.
#[tokio::test]
async fn a_project_without_checkpoints_is_reported_once() {
    let mut harness = harness();
    let many = harness.path("many");
    std::fs::create_dir(&many).unwrap();
    for number in 0..50_001 {
        std::fs::File::create(many.join(number.to_string())).unwrap();
    }
    let notices = Arc::new(Mutex::new(Vec::new()));
    let seen = Arc::clone(&notices);
    harness.cx.progress =
        ProgressSink::none().noticing(move |text| seen.lock().unwrap().push(text));
    for turn in 1..=3 {
        harness.turn(turn);
        harness.write("a.txt", "one\n").await;
    }
    let project = harness.path("").canonicalize().unwrap();
    assert_eq!(
        *notices.lock().unwrap(),
        [format!(
            "No checkpoint was taken, so /rollback cannot undo what changes now: {} has no checkpoints: it has more \
             than 50000 files.",
            project.display()
        )]
    );
}

#[tokio::test]
async fn the_original_sees_our_snapshots_and_we_see_its() {
    let Some(oracle) = oracle::require("the_original_sees_our_snapshots_and_we_see_its") else {
        return;
    };
    let home = TempHome::new();
    let project = beyond_temporary(env!("CARGO_TARGET_TMPDIR"));
    let dir = project.path().canonicalize().unwrap();
    std::fs::write(dir.join("Cargo.toml"), "[package]\n").unwrap();
    std::fs::write(dir.join("a.txt"), "one\n").unwrap();
    let ours = Checkpoints::from_config(
        &hermes_config::home::Home::at(home.path()),
        &config(),
        Arc::new(SystemClock),
    );
    let taken = ours
        .before_change(&"s".into(), TurnId(1), &dir, "ours")
        .await;
    assert!(taken.unwrap());
    std::fs::write(dir.join("a.txt"), "two\n").unwrap();
    let program = "
import json, sys
from tools.checkpoint_manager import CheckpointManager
m = CheckpointManager(enabled=True)
d = sys.argv[1]
seen = [c['reason'] for c in m.list_checkpoints(d)]
took = m.ensure_checkpoint(d, 'theirs')
print(json.dumps({'seen': seen, 'took': took}))
";
    let said = oracle.json(&home, program, [dir.to_str().unwrap()]);
    assert_eq!(said, json!({"seen": ["ours"], "took": true}));
    let reasons: Vec<String> = ours
        .list(&dir)
        .await
        .unwrap()
        .into_iter()
        .map(|entry| entry.reason)
        .collect();
    assert_eq!(reasons, ["theirs", "ours"]);
    ours.restore(&dir, "2", None).await.unwrap();
    assert_eq!(std::fs::read_to_string(dir.join("a.txt")).unwrap(), "one\n");
}

/// A repository inside the project, as a submodule or a clone is.
fn nested(harness: &FilesHarness, name: &str) {
    let run = |args: &[&str]| {
        let output = Command::new("git")
            .args(["-c", "user.name=t", "-c", "user.email=t@t"])
            .args(args)
            .current_dir(harness.path(name))
            .output()
            .unwrap();
        assert!(output.status.success(), "{output:?}");
    };
    harness.put(&format!("{name}/in.txt"), "one\n");
    harness.put(&format!("{name}/.gitignore"), "*.tmp\n");
    run(&["init", "-q", "."]);
    run(&["add", "."]);
    run(&["commit", "-qm", "x"]);
}

#[tokio::test]
async fn files_of_a_repository_inside_the_project_go_back_too() {
    let mut harness = harness();
    nested(&harness, "sub");
    let head = harness.text("sub/.git/HEAD");
    harness.put("sub/no.tmp", "ignored\n");
    let dir = harness.path("");
    // As a command does: a file tool would keep what the repository inside was, as a project of its own.
    harness.write("top.txt", "s\n").await;
    harness.put("sub/in.txt", "two\n");
    harness.turn(2);
    harness.write("top.txt", "t\n").await;
    harness.put("sub/new.txt", "later\n");
    let restored = harness
        .deps
        .checkpoints
        .restore(&dir, "2", None)
        .await
        .unwrap();
    assert_eq!(harness.text("sub/in.txt"), "one\n");
    assert!(!harness.path("sub/new.txt").exists() && !harness.path("top.txt").exists());
    assert_eq!(harness.text("sub/no.tmp"), "ignored\n");
    assert_eq!(harness.text("sub/.git/HEAD"), head);
    assert_eq!(restored.untouched, Vec::<String>::new());
    let back = harness
        .deps
        .checkpoints
        .restore(&dir, "1", None)
        .await
        .unwrap();
    assert_eq!(harness.text("sub/new.txt"), "later\n", "{back:?}");
}

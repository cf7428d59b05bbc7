use std::fs;
use std::io::{BufRead as _, BufReader};
use std::os::unix::fs::MetadataExt as _;
use std::process::Command as Process;

use super::super::history::{self, History};
use super::super::text::RichText;
use super::super::{Chip, ComposerOutcome};
use super::*;

fn recalled(c: &mut Composer) -> Vec<String> {
    let mut entries = Vec::new();
    while press(c, "alt+p") == ComposerOutcome::Redraw {
        entries.push(c.shown());
    }
    entries
}

#[test]
fn the_history_is_of_the_project_and_private() {
    let dir = tempfile::tempdir().unwrap();
    let mut c = keeping(dir.path(), "/work/one");
    send(&mut c, "first");
    send(&mut c, "two\nlines \"quoted\" 日本");
    write(&mut c, "with ");
    c.paste(&"line\n".repeat(9));
    sent(press(&mut c, "enter"));
    drop(c);
    let mut again = keeping(dir.path(), "/work/one");
    press(&mut again, "up");
    let again_sent = sent(press(&mut again, "enter"));
    assert_eq!(again_sent.text, format!("with {}", "line\n".repeat(9)));
    assert_eq!(
        recalled(&mut again),
        [
            "with [pasted 9 lines]",
            "two\nlines \"quoted\" 日本",
            "first"
        ]
    );
    let mut other = keeping(dir.path(), "/work/two");
    assert_eq!(recalled(&mut other), [] as [&str; 0]);
    for entry in fs::read_dir(dir.path().join("history")).unwrap() {
        assert_eq!(entry.unwrap().metadata().unwrap().mode() & 0o777, 0o600);
    }
}

#[test]
fn a_paste_too_long_to_keep_is_never_sent_as_its_label() {
    let dir = tempfile::tempdir().unwrap();
    let mut c = keeping(dir.path(), "/p");
    c.paste(&"x".repeat(100_000));
    sent(press(&mut c, "enter"));
    drop(c);
    let mut again = keeping(dir.path(), "/p");
    press(&mut again, "up");
    assert_eq!(state(&again), "[pasted 100000 characters]|");
    assert!(matches!(
        press(&mut again, "enter"),
        ComposerOutcome::Notice(_)
    ));
}

#[test]
fn a_line_that_was_cut_costs_only_itself() {
    let dir = tempfile::tempdir().unwrap();
    let history = History::new(dir.path(), "p");
    history.append(&[RichText::plain("one")]).unwrap();
    let path = dir.path().join("p.jsonl");
    let mut text = fs::read_to_string(&path).unwrap();
    text.push_str("{\"text\":\"cut o");
    fs::write(&path, text).unwrap();
    history.append(&[RichText::plain("two")]).unwrap();
    let entries: Vec<String> = history.load().iter().map(RichText::shown).collect();
    assert_eq!(entries, ["one", "two"]);
}

#[test]
fn a_history_does_not_grow_for_ever() {
    let dir = tempfile::tempdir().unwrap();
    let history = History::new(dir.path(), "p");
    for n in 0..30 {
        let entry = RichText::plain(&format!("{n} {}", "y".repeat(200_000)));
        history.append(&[entry]).unwrap();
    }
    let size = fs::metadata(dir.path().join("p.jsonl")).unwrap().len();
    assert!(size <= 4 << 20, "{size}");
    let entries = history.load();
    assert!(entries.last().unwrap().as_str().starts_with("29 "));
    assert!(entries.len() >= 10);
}

const CHILD: &str = "HERMES_TEST_HISTORY";

/// Started by the test below in processes of their own; does nothing by itself.
#[test]
fn child_that_appends() {
    let Ok(job) = std::env::var(CHILD) else {
        return;
    };
    let (dir, name) = job.split_once('|').unwrap();
    let history = History::new(dir.as_ref(), "p");
    for n in 0..200 {
        let entry = RichText::plain(&format!("{name} {n}\n{}", "z".repeat(5_000)));
        history.append(&[entry]).unwrap();
    }
}

#[test]
fn two_processes_lose_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let start = |name: &str| {
        Process::new(std::env::current_exe().unwrap())
            .args(["--exact", "composer::tests::keep::child_that_appends"])
            .env(CHILD, format!("{}|{name}", dir.path().display()))
            .stdout(std::process::Stdio::null())
            .spawn()
            .unwrap()
    };
    let mut children = [start("a"), start("b"), start("c")];
    for child in &mut children {
        assert!(child.wait().unwrap().success());
    }
    let entries = History::new(dir.path(), "p").load();
    for name in ["a", "b", "c"] {
        let theirs: Vec<usize> = entries
            .iter()
            .filter_map(|entry| {
                let line = entry.as_str().lines().next()?;
                line.strip_prefix(name)?.trim().parse().ok()
            })
            .collect();
        assert_eq!(theirs, (0..200).collect::<Vec<_>>(), "{name}");
    }
}

#[test]
fn other_histories_are_a_beginning() {
    let dir = tempfile::tempdir().unwrap();
    let (line, original) = (dir.path().join("line"), dir.path().join("original"));
    fs::write(&line, "#V2\nhello\\nthere\nback\\\\slash\n").unwrap();
    fs::write(
        &original,
        "\n# 2026-01-01 10:00:00.1\n+one\n\n# 2026-01-01 10:00:01.1\n+two\n+lines\n",
    )
    .unwrap();
    let seeded: Vec<String> = history::seeds(&[original.clone(), line.clone()])
        .iter()
        .map(RichText::shown)
        .collect();
    assert_eq!(seeded, ["one", "two\nlines", "hello\nthere", "back\\slash"]);
    let open = || {
        with(ComposerSetup {
            keep: Some(dir.path().join("keep")),
            project: "/p".into(),
            seeds: vec![original.clone(), dir.path().join("missing"), line.clone()],
            ..ComposerSetup::default()
        })
        .0
    };
    let mut c = open();
    send(&mut c, "new");
    drop(c);
    fs::remove_file(&line).unwrap();
    assert_eq!(
        recalled(&mut open()),
        ["new", "back\\slash", "hello\nthere", "two\nlines", "one"]
    );
}

#[test]
fn used_commands_are_remembered_by_every_process() {
    let dir = tempfile::tempdir().unwrap();
    let (mut one, mut two) = (keeping(dir.path(), "/p"), keeping(dir.path(), "/p"));
    send(&mut one, "/memory");
    one.flush();
    send(&mut two, "/mcp");
    drop((one, two));
    let mut c = keeping(dir.path(), "/p");
    write(&mut c, "/m");
    let popup = c.completion.popup().unwrap();
    let labels: Vec<&str> = popup.rows.iter().map(|row| row.label.as_str()).collect();
    assert_eq!(labels, ["/mcp", "/memory", "/model"]);
}

/// Ends without a word, as after kill -9: locks fall, nothing else happens.
fn killed(c: Composer) {
    c.flush();
    drop(c);
}

#[test]
fn a_draft_outlives_its_process_and_ends_when_it_is_sent() {
    let dir = tempfile::tempdir().unwrap();
    let mut c = keeping(dir.path(), "/p");
    assert!(!c.conversation("s1", false));
    write(&mut c, "half a ");
    assert!(c.draft_changed());
    c.paste(&"long\n".repeat(20_000));
    c.attach(Chip::image(b"GIF89a\x05\x00\x07\x00".as_slice().into(), None).unwrap());
    c.save_draft();
    assert!(!c.draft_changed());
    killed(c);

    let mut other = keeping(dir.path(), "/p");
    assert!(!other.conversation("s2", false), "another conversation");
    let mut c = keeping(dir.path(), "/p");
    assert!(c.conversation("s1", false));
    assert_eq!(
        state(&c),
        "half a [pasted 20000 lines][image 5×7 gif 10 B] |"
    );
    let submission = sent(press(&mut c, "enter"));
    assert!(submission.text.starts_with("half a long\nlong\n"));
    assert_eq!(submission.images.len(), 1);
    killed(c);
    let mut c = keeping(dir.path(), "/p");
    assert!(!c.conversation("s1", false));
    let drafts = walk(&dir.path().join("drafts"));
    assert!(
        drafts.iter().all(|path| path.contains(".lock")),
        "{drafts:?}"
    );
}

fn walk(dir: &std::path::Path) -> Vec<String> {
    let mut names = Vec::new();
    for entry in fs::read_dir(dir).unwrap().flatten() {
        if entry.path().is_dir() {
            names.extend(walk(&entry.path()));
        } else {
            names.push(entry.file_name().to_string_lossy().into_owned());
        }
    }
    names
}

const DRAFTER: &str = "HERMES_TEST_DRAFT";

/// Started by the test below in a process of its own; does nothing by itself.
#[test]
fn child_that_drafts() {
    let Ok(dir) = std::env::var(DRAFTER) else {
        return;
    };
    let mut c = keeping(dir.as_ref(), "/p");
    c.conversation("s1", false);
    write(&mut c, "before the ");
    c.paste(&"long\n".repeat(10_000));
    c.save_draft();
    c.flush();
    println!("drafted");
    // Until it is killed.
    let _ = std::io::stdin().read_line(&mut String::new());
    panic!("nobody killed it");
}

#[test]
fn a_draft_outlives_kill_9() {
    let dir = tempfile::tempdir().unwrap();
    let mut child = Process::new(std::env::current_exe().unwrap())
        .args([
            "--exact",
            "--nocapture",
            "composer::tests::keep::child_that_drafts",
        ])
        .env(DRAFTER, dir.path())
        .stdin(std::process::Stdio::piped())
        .stdout(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    let stdout = BufReader::new(child.stdout.take().unwrap());
    assert!(stdout.lines().any(|line| line.unwrap().contains("drafted")));
    let mut c = keeping(dir.path(), "/p");
    assert!(!c.conversation("s1", false), "it is written in");
    child.kill().unwrap();
    child.wait().unwrap();
    assert!(c.conversation("s1", false));
    assert_eq!(state(&c), "before the [pasted 10000 lines]|");
    let text = sent(press(&mut c, "enter")).text;
    assert_eq!(text, format!("before the {}", "long\n".repeat(10_000)));
}

#[test]
fn a_fresh_conversation_takes_the_draft_of_a_fresh_one_that_is_gone() {
    let dir = tempfile::tempdir().unwrap();
    let mut first = keeping(dir.path(), "/p");
    first.conversation("s1", true);
    write(&mut first, "never sent");
    first.save_draft();
    first.flush();
    let mut second = keeping(dir.path(), "/p");
    assert!(!second.conversation("s2", true), "its process lives");
    killed(first);
    assert!(second.conversation("s2", true));
    assert_eq!(state(&second), "never sent|");
    sent(press(&mut second, "enter"));
    write(&mut second, "goes on");
    second.save_draft();
    killed(second);
    let mut second = keeping(dir.path(), "/p");
    assert!(!second.conversation("s3", true), "that one is not fresh");
    assert!(second.conversation("s2", false));
    assert_eq!(state(&second), "goes on|");
    let mut elsewhere = keeping(dir.path(), "/q");
    assert!(!elsewhere.conversation("s3", true));
    second.clear();
    second.save_draft();
    killed(second);
    assert!(!keeping(dir.path(), "/p").conversation("s4", true));
}

#[test]
fn a_draft_that_cannot_be_read_is_passed_over() {
    let dir = tempfile::tempdir().unwrap();
    let mut c = keeping(dir.path(), "/p");
    c.conversation("s1", true);
    write(&mut c, "text");
    c.save_draft();
    killed(c);
    let drafts = dir.path().join("drafts");
    for project in fs::read_dir(drafts).unwrap().flatten() {
        fs::write(project.path().join("0.json"), "{ no").unwrap();
    }
    assert!(!keeping(dir.path(), "/p").conversation("s1", true));
}

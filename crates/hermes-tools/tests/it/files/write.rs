use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::sync::Arc;

use hermes_config::Config;
use hermes_core::approval::{DenyAll, Verdict};
use hermes_core::tool::ToolErrorKind;
use pretty_assertions::assert_eq;
use serde_json::json;

use super::{Answers, FilesHarness, context, error_of, success};

#[tokio::test]
async fn a_file_is_made_with_its_directories() {
    let harness = FilesHarness::new();
    let value = harness
        .ok(
            "write_file",
            json!({"path": "a/b/c.txt", "content": "hi\n"}),
        )
        .await;
    assert_eq!(
        value,
        json!({
            "bytes_written": 3,
            "dirs_created": true,
            "resolved_path": harness.path("a/b/c.txt"),
            "files_modified": [harness.path("a/b/c.txt")],
            "lint": {"status": "skipped", "message": "there is no check for .txt files"},
        })
    );
    assert_eq!(harness.text("a/b/c.txt"), "hi\n");
    let names: Vec<_> = std::fs::read_dir(harness.path("a/b")).unwrap().collect();
    assert_eq!(names.len(), 1, "no temporary file is left");
}

#[tokio::test]
async fn mode_line_ends_marks_and_links_stay() {
    let harness = FilesHarness::new();
    harness.put("run.sh", "#!/bin/sh\r\necho\r\n");
    let mode = std::fs::Permissions::from_mode(0o750);
    std::fs::set_permissions(harness.path("run.sh"), mode).unwrap();
    symlink("run.sh", harness.path("link.sh")).unwrap();
    harness
        .ok(
            "write_file",
            json!({"path": "link.sh", "content": "#!/bin/sh\necho hi\n"}),
        )
        .await;
    assert_eq!(harness.text("run.sh"), "#!/bin/sh\r\necho hi\r\n");
    let meta = std::fs::metadata(harness.path("run.sh")).unwrap();
    assert_eq!(meta.permissions().mode() & 0o7777, 0o750);
    let link = std::fs::symlink_metadata(harness.path("link.sh")).unwrap();
    assert!(link.file_type().is_symlink());
    harness.put("bom.txt", "\u{feff}old\n");
    harness
        .ok("write_file", json!({"path": "bom.txt", "content": "new\n"}))
        .await;
    assert_eq!(harness.text("bom.txt"), "\u{feff}new\n");
    harness.put("latin.txt", b"caf\xe9\n");
    harness
        .ok(
            "write_file",
            json!({"path": "latin.txt", "content": "thé\n"}),
        )
        .await;
    assert_eq!(harness.bytes("latin.txt"), b"th\xe9\n");
    let value = harness
        .ok(
            "write_file",
            json!({"path": "latin.txt", "content": "“x”\n"}),
        )
        .await;
    assert_eq!(harness.text("latin.txt"), "“x”\n");
    assert!(value["_warning"].as_str().unwrap().contains("UTF-8"));
}

#[tokio::test]
async fn what_nobody_meant_is_refused() {
    let harness = FilesHarness::new();
    harness.put("a.json", "{\"a\": 1}\n");
    harness.put("dir/x", "");
    for (path, content, why) in [
        ("a.json", "{\"a\": }", "does not parse"),
        ("new.yaml", "a: [1", "does not parse"),
        ("new.toml", "a = ", "does not parse"),
        ("x.txt", "1|one\n2|two\n", "without line numbers"),
        ("dir", "x", "directory"),
        ("a.json/x", "x", ""),
    ] {
        let args = json!({"path": path, "content": content});
        let (_, value) = harness.err("write_file", args).await;
        assert!(error_of(&value).contains(why), "{path}: {value}");
    }
    assert_eq!(harness.text("a.json"), "{\"a\": 1}\n");
    assert!(!harness.path("new.yaml").exists() && !harness.path("x.txt").exists());
}

#[tokio::test]
async fn the_home_and_the_system_are_out_of_reach_even_for_a_person() {
    let mut harness = FilesHarness::new();
    let answers = Answers::new(Verdict::Session);
    harness.cx.approver = answers.clone();
    harness.put("../home/config.yaml", "a: 1\n");
    symlink(
        harness.root().join("home/config.yaml"),
        harness.path("innocent.yaml"),
    )
    .unwrap();
    for path in [
        "../home/config.yaml",
        "innocent.yaml",
        "../home/.env",
        "../home/auth.json",
        "../home/mcp-tokens/x.json",
        "../home/state.db",
        "../home/profiles/other/config.yaml",
        "/etc/hermes-test",
        "/dev/null",
        "/proc/self/comm",
    ] {
        let args = json!({"path": path, "content": "x: 1\n"});
        let (kind, value) = harness.err("write_file", args).await;
        assert_eq!(kind, ToolErrorKind::Denied, "{path}: {value}");
    }
    assert_eq!(
        answers.count(),
        0,
        "nobody is asked for what is never allowed"
    );
    assert_eq!(harness.text("../home/config.yaml"), "a: 1\n");
}

#[tokio::test]
async fn outside_the_workspace_a_person_is_asked() {
    let mut harness = FilesHarness::new();
    let outside = harness.root().join("elsewhere/a.txt");
    let args = json!({"path": outside, "content": "x\n"});
    // Nobody is there.
    let (kind, value) = harness.err("write_file", args.clone()).await;
    assert_eq!(kind, ToolErrorKind::Denied);
    assert!(
        error_of(&value).contains("outside the workspace"),
        "{value}"
    );
    let denies = Answers::new(Verdict::Deny {
        why: Some("not there".into()),
    });
    harness.cx.approver = denies.clone();
    let (_, value) = harness.err("write_file", args.clone()).await;
    assert!(error_of(&value).contains("not there"), "{value}");
    assert!(!outside.exists());
    let asked = denies.asked.lock().unwrap()[0].clone();
    assert_eq!(asked.action, format!("write {}", outside.display()));
    // Allowed for the session: the directory is open from then on, also to patch.
    let allows = Answers::new(Verdict::Session);
    harness.cx.approver = allows.clone();
    harness.ok("write_file", args.clone()).await;
    harness
        .ok(
            "patch",
            json!({"mode": "replace", "path": outside, "old_string": "x", "new_string": "y"}),
        )
        .await;
    assert_eq!(allows.count(), 1);
    // A link out of the workspace leads outside; so does a hook of git.
    symlink(harness.root().join("elsewhere2"), harness.path("way-out")).unwrap();
    std::fs::create_dir(harness.root().join("elsewhere2")).unwrap();
    harness.cx.approver = denies.clone();
    for path in ["way-out/x", "../above.txt", ".git/hooks/pre-commit"] {
        let args = json!({"path": path, "content": "x"});
        let (kind, _) = harness.err("write_file", args).await;
        assert_eq!(kind, ToolErrorKind::Denied, "{path}");
    }
}

/// Each file that runs later needs its own permission, wherever it is and whichever front end asks.
#[tokio::test]
async fn what_runs_later_takes_a_person_each_time() {
    let mut harness = FilesHarness::with(|deps| {
        deps.runs_later = Arc::new(|_, path| path.ends_with("tools/hooks/pre-commit"));
    });
    let args = |path: &str| json!({"path": path, "content": "x"});
    let later = [
        ".envrc",
        ".vscode/tasks.json",
        "pkg/.mcp.json",
        "new/.git/config",
        "tools/hooks/pre-commit",
        "../elsewhere/.envrc",
    ];
    let denies = Answers::new(Verdict::Deny { why: None });
    harness.cx.approver = denies.clone();
    for path in later {
        let (kind, value) = harness.err("write_file", args(path)).await;
        assert_eq!(kind, ToolErrorKind::Denied, "{path}");
        assert!(error_of(&value).contains("is run later"), "{path}: {value}");
        let patch = format!("*** Begin Patch\n*** Add File: {path}\n+x\n*** End Patch");
        // A patch names no file above the directory it is for.
        if !path.starts_with("..") {
            let (kind, _) = harness
                .err("patch", json!({"mode": "patch", "patch": patch}))
                .await;
            assert_eq!(kind, ToolErrorKind::Denied, "{path}");
        }
        assert!(!harness.path(path).exists(), "{path}");
    }
    let asked = denies.asked.lock().unwrap().clone();
    assert_eq!(asked.len(), later.len() * 2 - 1);
    assert!(
        asked
            .iter()
            .all(|asked| asked.reasons[0].contains("is run later"))
    );
    assert_eq!(asked.last().unwrap().reasons.len(), 2, "it is outside, too");
    // A permission for the session is for that file, and one for a directory is not for what runs later in it.
    let allows = Answers::new(Verdict::Session);
    harness.cx.approver = allows.clone();
    for path in [".envrc", "../elsewhere/notes"] {
        harness.ok("write_file", args(path)).await;
        harness.ok("write_file", args(path)).await;
    }
    assert_eq!(allows.count(), 2);
    harness.cx.approver = denies;
    harness.ok("write_file", args("../elsewhere/more")).await;
    for path in [".mcp.json", "../elsewhere/.envrc", ".vscode/tasks.json"] {
        let (kind, _) = harness.err("write_file", args(path)).await;
        assert_eq!(kind, ToolErrorKind::Denied, "{path}");
    }
}

/// With nobody there it is refused, also where everything else may be done unasked.
#[tokio::test]
async fn what_runs_later_is_not_written_with_nobody_there() {
    let mut config = Config::default();
    config.approvals.unattended = Some("allow".into());
    let mut harness = FilesHarness::with_config(&config, |_| {});
    harness.cx.approver = Arc::new(DenyAll);
    let args = |path: &str| json!({"path": path, "content": "x"});
    harness.ok("write_file", args("../elsewhere/notes")).await;
    let (kind, value) = harness.err("write_file", args(".envrc")).await;
    assert_eq!(kind, ToolErrorKind::Denied);
    assert!(error_of(&value).contains("is run later"), "{value}");
    assert!(!harness.path(".envrc").exists());
}

#[tokio::test]
async fn other_profiles_take_a_flag_and_a_person() {
    let mut harness = FilesHarness::new();
    harness.cx.approver = Answers::new(Verdict::Once);
    let path = harness.root().join("home/profiles/other/skills/a/SKILL.md");
    let (kind, value) = harness
        .err("write_file", json!({"path": path, "content": "x"}))
        .await;
    assert_eq!(kind, ToolErrorKind::Denied);
    assert!(error_of(&value).contains("cross_profile"), "{value}");
    let args = json!({"path": path, "content": "x", "cross_profile": true});
    harness.ok("write_file", args).await;
}

#[tokio::test]
async fn what_is_not_known_of_a_file_is_said() {
    let harness = FilesHarness::new();
    let write = |content: &str| json!({"path": "a.txt", "content": content});
    let warning = |value: &serde_json::Value| value["_warning"].as_str().unwrap_or("").to_owned();
    harness.put("a.txt", "one\ntwo\nthree\n");
    let value = harness.ok("write_file", write("1\n2\n3\n")).await;
    assert!(warning(&value).contains("had not read it"), "{value}");
    // Its own writes are known.
    let value = harness.ok("write_file", write("2\n")).await;
    assert_eq!(warning(&value), "");
    harness.put("a.txt", "other\nlines\n");
    let value = harness.ok("write_file", write("3\n")).await;
    assert!(warning(&value).contains("changed on disk"), "{value}");
    harness.put("a.txt", "a\nb\nc\n");
    harness
        .ok("read_file", json!({"path": "a.txt", "limit": 1}))
        .await;
    let value = harness.ok("write_file", write("4\n")).await;
    assert!(warning(&value).contains("only part"), "{value}");
    // Another agent of the same process.
    harness.ok("read_file", json!({"path": "a.txt"})).await;
    let sibling = context(&harness.path(""), "child");
    success(
        harness
            .call_in("write_file", write("theirs\n"), &sibling)
            .await,
    );
    let patch =
        json!({"mode": "replace", "path": "a.txt", "old_string": "theirs", "new_string": "ours"});
    let value = harness.ok("patch", patch).await;
    assert!(warning(&value).contains("another agent (child)"), "{value}");
}

#[tokio::test]
async fn errors_that_an_edit_brings_in_are_told() {
    let harness = FilesHarness::new();
    let value = harness
        .ok(
            "write_file",
            json!({"path": "a.py", "content": "def f(:\n"}),
        )
        .await;
    assert_eq!(value["lint"]["status"], "error", "{value}");
    assert!(
        value["lint"]["output"]
            .as_str()
            .unwrap()
            .contains("SyntaxError")
    );
    // It was broken before; lines that moved are no new errors.
    let value = harness
        .ok(
            "write_file",
            json!({"path": "a.py", "content": "\n\ndef f(:\n"}),
        )
        .await;
    assert!(
        value["lint"]["message"]
            .as_str()
            .unwrap()
            .contains("added none"),
        "{value}"
    );
    let value = harness
        .ok(
            "write_file",
            json!({"path": "a.py", "content": "def f():\n    return 1\n"}),
        )
        .await;
    assert_eq!(value["lint"], json!({"status": "ok", "output": ""}));
    let value = harness
        .ok(
            "write_file",
            json!({"path": "a.sh", "content": "if true; then\n"}),
        )
        .await;
    assert_eq!(value["lint"]["status"], "error", "{value}");
    assert!(!harness.path("evil").exists());
    // The check reads; it runs nothing.
    let code = "open('evil', 'w')\n";
    harness
        .ok("write_file", json!({"path": "b.py", "content": code}))
        .await;
    assert!(!harness.path("evil").exists());
}

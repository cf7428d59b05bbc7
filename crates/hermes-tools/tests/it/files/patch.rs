use hermes_core::tool::ToolErrorKind;
use pretty_assertions::assert_eq;
use serde_json::{Value, json};

use super::{FilesHarness, error_of};

fn replace(path: &str, old: &str, new: &str) -> Value {
    json!({"mode": "replace", "path": path, "old_string": old, "new_string": new})
}

fn v4a(patch: &str) -> Value {
    json!({"mode": "patch", "patch": patch})
}

#[tokio::test]
async fn a_text_is_replaced_and_the_diff_shown() {
    let harness = FilesHarness::new();
    harness.put("a.rs", "fn a() {\n\tone();\n}\n");
    let value = harness
        .ok("patch", replace("a.rs", "  one();", "  two();\n  three();"))
        .await;
    assert_eq!(harness.text("a.rs"), "fn a() {\n\ttwo();\n\tthree();\n}\n");
    assert_eq!(value["success"], true);
    assert_eq!(value["files_modified"], json!([harness.path("a.rs")]));
    let diff = value["diff"].as_str().unwrap();
    assert!(
        diff.contains("-\tone();\n+\ttwo();\n+\tthree();\n"),
        "{diff}"
    );
}

#[tokio::test]
async fn line_ends_and_encodings_survive_an_edit() {
    let harness = FilesHarness::new();
    harness.put("crlf.txt", "\u{feff}one\r\ntwo\r\nthree\r\n");
    harness
        .ok("patch", replace("crlf.txt", "one\ntwo", "1\n2\n2b"))
        .await;
    assert_eq!(
        harness.text("crlf.txt"),
        "\u{feff}1\r\n2\r\n2b\r\nthree\r\n"
    );
    harness.put("mixed.txt", "one\r\ntwo\nthree\r\nfour\n");
    harness
        .ok("patch", replace("mixed.txt", "three", "3"))
        .await;
    assert_eq!(harness.text("mixed.txt"), "one\r\ntwo\n3\r\nfour\n");
    harness.put("latin.txt", b"caf\xe9 one\n");
    harness
        .ok("patch", replace("latin.txt", "café one", "thé two"))
        .await;
    assert_eq!(harness.bytes("latin.txt"), b"th\xe9 two\n");
    let (_, value) = harness
        .err("patch", replace("latin.txt", "two", "“two”"))
        .await;
    assert!(error_of(&value).contains("encoding"), "{value}");
    harness.put("broken.txt", b"gr\xc3\xbcn \xff\nend\n");
    harness
        .ok("patch", replace("broken.txt", "end", "END"))
        .await;
    assert_eq!(harness.bytes("broken.txt"), b"gr\xc3\xbcn \xff\nEND\n");
}

#[tokio::test]
async fn what_does_not_fit_changes_nothing_and_says_why() {
    let harness = FilesHarness::new();
    harness.put("a.txt", "alpha beta\ngamma\ngamma\n");
    let (_, value) = harness.err("patch", replace("a.txt", "gamma", "x")).await;
    assert!(error_of(&value).contains("lines 2, 3"), "{value}");
    let miss = replace("a.txt", "alpha zeta omega kappa", "x");
    for _ in 0..2 {
        let (_, value) = harness.err("patch", miss.clone()).await;
        assert!(error_of(&value).contains("1| alpha beta"), "{value}");
        assert!(
            !value["_hint"].as_str().unwrap().contains("in a row"),
            "{value}"
        );
    }
    let (_, value) = harness.err("patch", miss).await;
    assert!(
        value["_hint"]
            .as_str()
            .unwrap()
            .contains("3 times in a row"),
        "{value}"
    );
    let (_, value) = harness.err("patch", replace("none.txt", "a", "b")).await;
    assert!(error_of(&value).contains("no file"), "{value}");
    // A relative path may have been meant for another directory.
    let tried = harness.path("none.txt").display().to_string();
    assert!(error_of(&value).contains(&tried), "{value}");
    harness.put("a.json", "{\"a\": 1}\n");
    let (_, value) = harness.err("patch", replace("a.json", "1}", "1")).await;
    assert!(error_of(&value).contains("would not parse"), "{value}");
    assert_eq!(harness.text("a.txt"), "alpha beta\ngamma\ngamma\n");
    assert_eq!(harness.text("a.json"), "{\"a\": 1}\n");
    harness.put(".env", "KEY=secret\n");
    let (kind, value) = harness
        .err("patch", replace(".env", "KEY=x", "KEY=y"))
        .await;
    assert_eq!(kind, ToolErrorKind::Denied);
    assert!(!value.to_string().contains("secret"), "{value}");
}

#[tokio::test]
async fn a_patch_goes_over_many_files() {
    let harness = FilesHarness::new();
    harness.put(
        "src/a.py",
        "import os\n\n\ndef f():\n    return 1\n\n\ndef g():\n    return 1\n",
    );
    harness.put("old.txt", "gone\n");
    harness.put("from.txt", "moved\n");
    let patch = "*** Begin Patch\n*** Update File: src/a.py\n@@ def g(): @@\n-    return 1\n+    return 2\n\
        *** Add File: new/b.txt\n+one\n+\n+three\n*** Delete File: old.txt\n*** Move File: from.txt -> to.txt\n*** End Patch\n";
    let value = harness.ok("patch", v4a(patch)).await;
    assert_eq!(
        harness.text("src/a.py"),
        "import os\n\n\ndef f():\n    return 1\n\n\ndef g():\n    return 2\n"
    );
    assert_eq!(harness.text("new/b.txt"), "one\n\nthree\n");
    assert_eq!(harness.text("to.txt"), "moved\n");
    assert!(!harness.path("old.txt").exists() && !harness.path("from.txt").exists());
    assert_eq!(value["files_modified"], json!([harness.path("src/a.py")]));
    assert_eq!(
        value["files_created"],
        json!([harness.path("new/b.txt"), harness.path("to.txt")])
    );
    assert_eq!(
        value["files_deleted"],
        json!([harness.path("old.txt"), harness.path("from.txt")])
    );
}

#[tokio::test]
async fn blank_context_lines_count() {
    // The original drops them and then does not find the place.
    let harness = FilesHarness::new();
    harness.put("a.txt", "one\n\ntwo\n\nthree\n");
    let patch = "*** Update File: a.txt\n one\n\n-two\n+2\n\n three\n";
    harness.ok("patch", v4a(patch)).await;
    assert_eq!(harness.text("a.txt"), "one\n\n2\n\nthree\n");
    // Those around a hunk may be there for the eye only.
    let patch = "*** Update File: a.txt\n\n-2\n+two\n\n\n*** End Patch";
    harness.ok("patch", v4a(patch)).await;
    assert_eq!(harness.text("a.txt"), "one\n\ntwo\n\nthree\n");
    // Lines that are only removed go with their ends.
    harness
        .ok("patch", v4a("*** Update File: a.txt\n-two\n"))
        .await;
    assert_eq!(harness.text("a.txt"), "one\n\n\nthree\n");
}

#[tokio::test]
async fn a_new_file_takes_no_existing_ones_place() {
    // The original overwrites it.
    let harness = FilesHarness::new();
    harness.put("a.txt", "precious\n");
    let patch = "*** Add File: b.txt\n+b\n*** Add File: a.txt\n+new\n";
    let (_, value) = harness.err("patch", v4a(patch)).await;
    assert!(error_of(&value).contains("exists already"), "{value}");
    assert_eq!(harness.text("a.txt"), "precious\n");
    assert!(!harness.path("b.txt").exists(), "all or nothing");
    let (_, value) = harness
        .err("patch", v4a("*** Move File: a.txt -> a.txt\n"))
        .await;
    assert!(error_of(&value).contains("exists already"), "{value}");
}

#[tokio::test]
async fn one_hunk_that_does_not_fit_stops_all() {
    let harness = FilesHarness::new();
    harness.put("a.txt", "a\n");
    harness.put("b.txt", "b\n");
    let patch =
        "*** Update File: a.txt\n-a\n+A\n*** Update File: b.txt\n-x\n+X\n*** Delete File: c.txt\n";
    let (_, value) = harness.err("patch", v4a(patch)).await;
    let text = error_of(&value);
    assert!(text.contains("b.txt: hunk 1"), "{text}");
    assert_eq!(
        (harness.text("a.txt"), harness.text("b.txt")),
        ("a\n".into(), "b\n".into())
    );
}

#[tokio::test]
async fn a_write_that_fails_half_way_is_taken_back() {
    use std::os::unix::fs::PermissionsExt as _;
    let harness = FilesHarness::new();
    harness.put("a.txt", "a\n");
    harness.put("locked/b.txt", "b\n");
    let set = |mode| {
        let mode = std::fs::Permissions::from_mode(mode);
        std::fs::set_permissions(harness.path("locked"), mode).unwrap();
    };
    set(0o555);
    if std::fs::write(harness.path("locked/probe"), "").is_ok() {
        // For root nothing is locked: a directory in the way does the same.
        set(0o755);
        std::fs::remove_file(harness.path("locked/probe")).unwrap();
        std::fs::remove_file(harness.path("locked/b.txt")).unwrap();
        let patch = "*** Update File: a.txt\n-a\n+A\n*** Add File: new.txt\n+n\n*** Add File: a.txt/c.txt\n+x\n";
        let (_, value) = harness.err("patch", v4a(patch)).await;
        assert!(!error_of(&value).is_empty());
    } else {
        let patch = "*** Update File: a.txt\n-a\n+A\n*** Add File: new.txt\n+n\n*** Update File: locked/b.txt\n-b\n+B\n";
        let (_, value) = harness.err("patch", v4a(patch)).await;
        assert!(
            !error_of(&value).contains("could not be put back"),
            "{value}"
        );
        set(0o755);
        assert_eq!(harness.text("locked/b.txt"), "b\n");
    }
    assert_eq!(harness.text("a.txt"), "a\n");
    assert!(!harness.path("new.txt").exists());
}

#[tokio::test]
async fn the_format_is_strict() {
    let harness = FilesHarness::new();
    harness.put("a.txt", "a\n");
    for (patch, why) in [
        ("*** Update File: ../x\n-a\n+b\n", ".."),
        ("*** Add File: b.txt\nno plus\n", "begins with +"),
        ("*** Update File: a.txt\n", "nothing is changed"),
        ("*** Frobnicate File: a.txt\n", "not a patch header"),
        (
            "hello\n*** Update File: a.txt\n-a\n+b\n",
            "belongs to no file",
        ),
        ("*** Begin Patch\n*** End Patch\n", "no file in it"),
        ("*** Delete File: a.txt\n-a\n", "belongs to no file"),
        ("*** Move File: a.txt\n", "old -> new"),
        ("*** Delete File: \n", "path is missing"),
        (
            "*** Update File: a.txt\n-a\n+b\n*** End Patch\nmore\n",
            "after",
        ),
        ("*** Update File: a.txt\n a\n", "changes nothing"),
    ] {
        let (_, value) = harness.err("patch", v4a(patch)).await;
        assert!(error_of(&value).contains(why), "{patch}: {value}");
    }
    assert_eq!(harness.text("a.txt"), "a\n");
}

#[tokio::test]
async fn hints_tell_equal_places_apart() {
    let harness = FilesHarness::new();
    harness.put(
        "a.txt",
        "[one]\nvalue = 1\n[two]\nvalue = 1\n[three]\nvalue = 1\n",
    );
    let (_, value) = harness
        .err(
            "patch",
            v4a("*** Update File: a.txt\n-value = 1\n+value = 2\n"),
        )
        .await;
    assert!(error_of(&value).contains("lines 2, 4, 6"), "{value}");
    let patch = "*** Update File: a.txt\n@@ [two]\n-value = 1\n+value = 2\n@@ [three] @@\n+more = 3\n@@ -1,2 +1,2 @@ [one]\n-value = 1\n+value = 0\n";
    harness.ok("patch", v4a(patch)).await;
    assert_eq!(
        harness.text("a.txt"),
        "[one]\nvalue = 0\n[two]\nvalue = 2\n[three]\nmore = 3\nvalue = 1\n"
    );
}

#[tokio::test]
async fn an_update_can_move_its_file() {
    let harness = FilesHarness::new();
    harness.put("a.txt", "a\nb\n");
    let patch = "*** Begin Patch\n*** Update File: a.txt\n*** Move to: dir/c.txt\n@@\n-a\n+A\n b\n*** End of File\n*** End Patch";
    harness.ok("patch", v4a(patch)).await;
    assert_eq!(harness.text("dir/c.txt"), "A\nb\n");
    assert!(!harness.path("a.txt").exists());
}

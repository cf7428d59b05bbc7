use std::time::{Duration, SystemTime};

use hermes_core::tool::ToolErrorKind;
use pretty_assertions::assert_eq;
use serde_json::{Value, json};

use super::{FilesHarness, error_of};

#[tokio::test]
async fn totals_are_right_and_pages_meet() {
    // The original reports as many as it shows and never says that there is more.
    let harness = FilesHarness::new();
    for file in 0..12 {
        harness.put(
            &format!("f{file:02}.txt"),
            "needle here\nnothing\n".repeat(10),
        );
    }
    let (mut offset, mut lines) = (0, Vec::new());
    loop {
        let args = json!({"pattern": "needle", "offset": offset});
        let page = harness.ok("search_files", args).await;
        assert_eq!(page["total_count"], 120);
        let text = page["matches_text"].as_str().unwrap();
        let mut file = "";
        for line in text.lines() {
            match line.strip_prefix("  ") {
                Some(line) => lines.push(format!("{file}:{line}")),
                None => file = line,
            }
        }
        match page["next_offset"].as_u64() {
            Some(next) => {
                assert_eq!(page["truncated"], true);
                offset = next;
            }
            None => break,
        }
    }
    let expected: Vec<String> = (0..12)
        .flat_map(|file| (0..10).map(move |n| format!("f{file:02}.txt:{}: needle here", n * 2 + 1)))
        .collect();
    assert_eq!(lines, expected);
}

#[tokio::test]
async fn a_pattern_is_never_an_option() {
    // In the original this runs the script.
    let harness = FilesHarness::new();
    harness.put("run.sh", "#!/bin/sh\ntouch ran\n");
    harness.put("a.txt", "x --pre=run.sh y\n-e z\n");
    let script = harness.path("run.sh");
    let pattern = format!("--pre={}", script.display());
    let value = harness
        .ok("search_files", json!({"pattern": pattern, "path": "."}))
        .await;
    assert_eq!(value["total_count"], 0);
    let value = harness
        .ok("search_files", json!({"pattern": "--pre=run.sh"}))
        .await;
    assert_eq!(value["matches"][0]["path"], "a.txt");
    let value = harness.ok("search_files", json!({"pattern": "-e"})).await;
    assert_eq!(value["total_count"], 1);
    assert!(!harness.path("ran").exists());
}

#[tokio::test]
async fn what_is_hidden_or_ignored_is_left_out_unless_named() {
    let harness = FilesHarness::new();
    std::fs::create_dir(harness.path(".git")).unwrap();
    harness.put(".gitignore", "*.log\nbuild/\n");
    for path in [
        "a.txt",
        ".hidden/b.txt",
        "build/c.txt",
        "d.log",
        "src/e.txt",
    ] {
        harness.put(path, "word\n");
    }
    let files = |value: &Value| {
        let mut files: Vec<String> = serde_json::from_value(value["files"].clone()).unwrap();
        files.sort();
        files
    };
    let args = json!({"pattern": "word", "output_mode": "files_only"});
    let value = harness.ok("search_files", args).await;
    assert_eq!(files(&value), ["a.txt", "src/e.txt"]);
    let args = json!({"pattern": "word", "output_mode": "files_only", "path": ".hidden"});
    let value = harness.ok("search_files", args).await;
    assert_eq!(files(&value), [".hidden/b.txt"]);
    let args = json!({"pattern": "word", "path": "d.log"});
    let value = harness.ok("search_files", args).await;
    assert_eq!(
        value["matches"],
        json!([{"path": "d.log", "line": 1, "content": "word"}])
    );
    let args = json!({"pattern": "word", "output_mode": "count", "file_glob": "*.txt"});
    let value = harness.ok("search_files", args).await;
    assert_eq!(value["counts"], json!({"a.txt": 1, "src/e.txt": 1}));
    assert_eq!(value["total_count"], 2);
}

#[tokio::test]
async fn the_current_directory_by_any_name() {
    // The original's fallback finds nothing below ".".
    let harness = FilesHarness::new();
    harness.put("src/a.txt", "word\n");
    for (path, shown) in [
        (".", "src/a.txt".to_owned()),
        ("./", "src/a.txt".to_owned()),
        ("src", "src/a.txt".to_owned()),
        ("src/", "src/a.txt".to_owned()),
        ("./src", "./src/a.txt".to_owned()),
        (
            harness.path("").to_str().unwrap(),
            harness.path("src/a.txt").display().to_string(),
        ),
    ] {
        let args = json!({"pattern": "word", "path": path});
        let value = harness.ok("search_files", args).await;
        assert_eq!(value["matches"][0]["path"], json!(shown), "{path}");
        let args = json!({"path": value["matches"][0]["path"], "limit": path.len()});
        harness.ok("read_file", args).await;
    }
}

#[tokio::test]
async fn lines_around_a_match_come_along() {
    let harness = FilesHarness::new();
    harness.put("a.txt", "1\n2\nhit\n4\n5\n6\n7\nhit\n9\n");
    let args = json!({"pattern": "hit", "context": 1});
    let value = harness.ok("search_files", args).await;
    assert_eq!(value["total_count"], 2);
    assert_eq!(
        value["matches_text"],
        "a.txt\n  2: 2\n  3: hit\n  4: 4\n  7: 7\n  8: hit\n  9: 9"
    );
    let args = json!({"pattern": "hit", "context": 1, "limit": 1, "offset": 1});
    let value = harness.ok("search_files", args).await;
    let lines: Vec<u64> = value["matches"]
        .as_array()
        .unwrap()
        .iter()
        .map(|hit| hit["line"].as_u64().unwrap())
        .collect();
    assert_eq!(lines, [7, 8, 9]);
}

#[tokio::test]
async fn files_are_found_by_name_newest_first() {
    let harness = FilesHarness::new();
    let day = Duration::from_hours(24);
    for (age, path) in ["new.rs", "src/mid.rs", "src/deep/old.rs", "other.txt"]
        .into_iter()
        .enumerate()
    {
        harness.put(path, "");
        let file = std::fs::File::open(harness.path(path)).unwrap();
        file.set_modified(SystemTime::now() - day * age as u32)
            .unwrap();
    }
    let names = |pattern: &str| json!({"pattern": pattern, "target": "files"});
    let value = harness.ok("search_files", names("*.rs")).await;
    assert_eq!(
        value,
        json!({"total_count": 3, "files": ["new.rs", "src/mid.rs", "src/deep/old.rs"]})
    );
    for (pattern, files) in [
        ("mid.rs", json!(["src/mid.rs"])),
        ("src/*.rs", json!(["src/mid.rs"])),
        ("src/**/*.rs", json!(["src/mid.rs", "src/deep/old.rs"])),
        ("deep/*.rs", json!(["src/deep/old.rs"])),
        ("**/old.*", json!(["src/deep/old.rs"])),
    ] {
        let value = harness.ok("search_files", names(pattern)).await;
        assert_eq!(value["files"], files, "{pattern}");
    }
    let args = json!({"pattern": "*.rs", "target": "files", "limit": 1, "offset": 1});
    let value = harness.ok("search_files", args).await;
    assert_eq!(value["files"], json!(["src/mid.rs"]));
    assert_eq!(
        (&value["truncated"], &value["total_count"]),
        (&json!(true), &json!(3))
    );
}

#[tokio::test]
async fn bad_questions_are_explained() {
    let harness = FilesHarness::new();
    harness.put("source/a.txt", "x\n");
    let (kind, value) = harness.err("search_files", json!({"pattern": "a("})).await;
    assert_eq!(kind, ToolErrorKind::BadArguments);
    assert!(error_of(&value).contains("pattern"), "{value}");
    let (_, value) = harness
        .err("search_files", json!({"pattern": "x", "path": "sourse"}))
        .await;
    assert_eq!(value["similar_files"], json!([harness.path("source")]));
    for args in [
        json!({}),
        json!({"pattern": ""}),
        json!({"pattern": "x", "target": "nothing"}),
        json!({"pattern": "x", "output_mode": "loud"}),
    ] {
        let (kind, _) = harness.err("search_files", args).await;
        assert_eq!(kind, ToolErrorKind::BadArguments);
    }
}

#[tokio::test]
async fn secrets_are_not_searched() {
    let harness = FilesHarness::new();
    harness.put("../home/auth.json", "token needle\n");
    harness.put("../home/notes.txt", "needle\n");
    harness.put(".env", "NEEDLE=needle\n");
    let args = json!({"pattern": "needle", "path": "../home"});
    let value = harness.ok("search_files", args).await;
    assert_eq!(value["matches"][0]["path"], "../home/notes.txt");
    assert_eq!(value["total_count"], 1);
    assert!(
        value["_omitted"].as_str().unwrap().starts_with("1 files"),
        "{value}"
    );
    let (kind, _) = harness
        .err("search_files", json!({"pattern": "needle", "path": ".env"}))
        .await;
    assert_eq!(kind, ToolErrorKind::Denied);
    // What is left out does not depend on the pattern: it cannot be guessed at.
    let args = json!({"pattern": "never", "path": "../home"});
    let other = harness.ok("search_files", args).await;
    assert_eq!(other["_omitted"], value["_omitted"]);
}

#[tokio::test]
async fn patterns_may_span_lines_and_binaries_are_passed_over() {
    let harness = FilesHarness::new();
    harness.put("a.txt", "one\ntwo\nthree\n");
    harness.put("b.bin", b"one\ntwo\0three\n");
    let value = harness
        .ok("search_files", json!({"pattern": r"one\ntwo"}))
        .await;
    assert_eq!(value["total_count"], 1);
    assert_eq!(value["matches"][0]["line"], 1);
    let value = harness
        .ok("search_files", json!({"pattern": "three"}))
        .await;
    assert_eq!(
        value["matches"],
        json!([{"path": "a.txt", "line": 3, "content": "three"}])
    );
}

#[tokio::test]
async fn a_cancelled_search_ends() {
    let harness = FilesHarness::new();
    harness.put("a.txt", "x\n");
    harness.cx.cancel.cancel();
    let (kind, _) = harness.err("search_files", json!({"pattern": "x"})).await;
    assert_eq!(kind, ToolErrorKind::Cancelled);
}

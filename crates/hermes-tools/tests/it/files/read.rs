use std::sync::Arc;

use hermes_core::message::{Content, Part};
use hermes_core::tool::{ToolErrorKind, ToolOutcome};
use hermes_tools::files::ReadLimits;
use pretty_assertions::assert_eq;
use serde_json::{Value, json};

use super::{FilesHarness, error_of};

#[tokio::test]
async fn pages_have_numbers_and_say_how_to_go_on() {
    let harness = FilesHarness::new();
    harness.put("a.txt", "one\r\ntwo\n\nfour");
    let page = harness.ok("read_file", json!({"path": "a.txt"})).await;
    assert_eq!(
        page,
        json!({"content": "1|one\n2|two\n3|\n4|four", "total_lines": 4, "file_size": 14, "truncated": false})
    );
    let page = harness
        .ok(
            "read_file",
            json!({"path": harness.path("a.txt"), "offset": "2", "limit": 2}),
        )
        .await;
    assert_eq!(page["content"], "2|two\n3|");
    assert_eq!(
        (&page["truncated"], &page["next_offset"]),
        (&json!(true), &json!(4))
    );
    let page = harness
        .ok("read_file", json!({"path": "a.txt", "offset": 9}))
        .await;
    assert_eq!(page["content"], "");
    assert!(page["hint"].as_str().unwrap().contains("only 4 lines"));
    harness.put("empty", "");
    let page = harness.ok("read_file", json!({"path": "empty"})).await;
    assert!(page["hint"].as_str().unwrap().contains("empty"));
}

#[tokio::test]
async fn there_is_no_phantom_line_and_none_is_missing() {
    // The original shows an empty last line, and counts one short without a final line end.
    let harness = FilesHarness::new();
    for (name, content, lines) in [
        ("with", "a\nb\n", 2),
        ("without", "a\nb", 2),
        ("one", "\n", 1),
    ] {
        harness.put(name, content);
        let page = harness.ok("read_file", json!({"path": name})).await;
        assert_eq!(page["total_lines"], lines, "{name}");
        let shown = page["content"].as_str().unwrap().lines().count();
        assert_eq!(shown, lines, "{name}");
    }
}

#[tokio::test]
async fn long_lines_and_pages_are_cut() {
    let harness = FilesHarness::with(|deps| {
        deps.limits = ReadLimits {
            lines: 100,
            line_chars: 10,
            chars: 60,
        };
    });
    harness.put("wide", format!("{}\nshort\n", "é".repeat(30)));
    let page = harness.ok("read_file", json!({"path": "wide"})).await;
    assert_eq!(page["content"], format!("1|{}…\n2|short", "é".repeat(10)));
    assert_eq!(page["truncated"], true);
    assert_eq!(page["next_offset"], Value::Null);
    harness.put("long", "line\n".repeat(30));
    let page = harness.ok("read_file", json!({"path": "long"})).await;
    assert_eq!(page["truncated_by"], "bytes");
}

#[tokio::test]
async fn what_is_no_text_file_is_explained() {
    let harness = FilesHarness::new();
    harness.put("data.bin", [1, 2, 0, 3]);
    harness.put("dir/notes.md", "x");
    let (_, value) = harness.err("read_file", json!({"path": "data.bin"})).await;
    assert!(error_of(&value).contains("not text"), "{value}");
    let (kind, value) = harness.err("read_file", json!({"path": "dir"})).await;
    assert_eq!(
        (kind, &value["entries"]),
        (ToolErrorKind::BadArguments, &json!(["notes.md"]))
    );
    let (_, value) = harness
        .err("read_file", json!({"path": "dir/note.md"}))
        .await;
    assert_eq!(
        value["similar_files"],
        json!([harness.path("dir/notes.md")])
    );
    let (_, value) = harness
        .err("read_file", json!({"path": "none/at/all"}))
        .await;
    assert!(error_of(&value).contains("does not exist"), "{value}");
    let (kind, _) = harness.err("read_file", json!({"path": " "})).await;
    assert_eq!(kind, ToolErrorKind::BadArguments);
    let (kind, _) = harness
        .err("read_file", json!({"path": "x", "offset": "first"}))
        .await;
    assert_eq!(kind, ToolErrorKind::BadArguments);
}

#[tokio::test]
async fn encodings_are_read() {
    let harness = FilesHarness::new();
    let utf16: Vec<u8> = [0xff, 0xfe]
        .into_iter()
        .chain("grün\r\nblau\r\n".encode_utf16().flat_map(u16::to_le_bytes))
        .collect();
    harness.put("latin.txt", b"caf\xe9\n");
    harness.put("utf16.txt", utf16);
    harness.put("bom.txt", "\u{feff}one\n");
    harness.put("broken.txt", b"gr\xc3\xbcn \xff\n");
    for (name, content) in [
        ("latin.txt", "1|café"),
        ("utf16.txt", "1|grün\n2|blau"),
        ("bom.txt", "1|one"),
        ("broken.txt", "1|grün \u{fffd}"),
    ] {
        let page = harness.ok("read_file", json!({"path": name})).await;
        assert_eq!(page["content"], content, "{name}");
    }
}

#[tokio::test]
async fn a_page_is_shown_once_while_nothing_changes() {
    let harness = FilesHarness::new();
    harness.put("a.txt", "one\n");
    let read = || harness.call("read_file", json!({"path": "a.txt"}));
    let first = super::success(read().await);
    assert_eq!(first["content"], "1|one");
    let second = super::success(read().await);
    assert_eq!(
        (&second["status"], &second["dedup"]),
        (&json!("unchanged"), &json!(true))
    );
    let (kind, third) = super::failure(read().await);
    assert_eq!(
        (kind, &third["already_read"]),
        (ToolErrorKind::Denied, &json!(3))
    );
    // Whoever insists may have lost it.
    assert_eq!(super::success(read().await)["content"], "1|one");
    // Another page is another question.
    let page = harness
        .ok("read_file", json!({"path": "a.txt", "limit": 5}))
        .await;
    assert_eq!(page["content"], "1|one");
    // A change shows at once, also one that keeps the size.
    harness.put("a.txt", "two\n");
    assert_eq!(super::success(read().await)["content"], "1|two");
    // After a compaction the model has nothing of it.
    harness.deps.memory.clear();
    assert_eq!(super::success(read().await)["content"], "1|two");
    // Its own write makes what it saw old.
    harness
        .ok("write_file", json!({"path": "a.txt", "content": "three\n"}))
        .await;
    assert_eq!(super::success(read().await)["content"], "1|three");
}

#[tokio::test]
async fn images_are_shown_to_models_that_see() {
    let png = b"\x89PNG\r\n\x1a\nrest";
    let blind = FilesHarness::new();
    blind.put("a.png", png);
    let (_, value) = blind.err("read_file", json!({"path": "a.png"})).await;
    assert!(error_of(&value).contains("vision_analyze"), "{value}");
    let sees = FilesHarness::with(|deps| deps.images = true);
    sees.put("a.png", png);
    sees.put("fake.png", "no image\n");
    let outcome = sees.call("read_file", json!({"path": "a.png"})).await;
    let ToolOutcome::Done(Content::Parts(parts)) = outcome else {
        panic!("{outcome:?}")
    };
    let Part::Image { image_url, .. } = &parts[1] else {
        panic!("{parts:?}")
    };
    assert!(image_url.url.starts_with("data:image/png;base64,iVBOR"));
    let (_, value) = sees.err("read_file", json!({"path": "fake.png"})).await;
    assert!(error_of(&value).contains("not by its content"), "{value}");
}

#[tokio::test]
async fn notebooks_come_as_text_and_broken_ones_as_they_are() {
    let harness = FilesHarness::new();
    harness.put(
        "a.ipynb",
        r#"{"cells":[{"cell_type":"code","source":["x = 1\n"]}]}"#,
    );
    harness.put("b.ipynb", "not json\n");
    let page = harness.ok("read_file", json!({"path": "a.ipynb"})).await;
    assert_eq!(page["content"], "1|# ── Code cell 1 ──\n2|x = 1");
    assert_eq!(page["extracted_document"], true);
    let page = harness.ok("read_file", json!({"path": "b.ipynb"})).await;
    assert_eq!(page["content"], "1|not json");
}

#[tokio::test]
async fn keys_in_settings_and_logs_are_hidden_and_nowhere_else() {
    let harness = FilesHarness::new();
    let key = "sk-0123456789abcdefghij";
    for path in [
        "../home/config.yaml",
        "../home/logs/agent.log",
        "../home/profiles/work/config.yaml",
        "config.yaml",
    ] {
        harness.put(path, format!("key: {key}\n"));
        let page = harness.ok("read_file", json!({"path": path})).await;
        let shown = page["content"].as_str().unwrap().contains(key);
        assert_eq!(shown, path == "config.yaml", "{path}");
    }
}

/// What commands of the session cannot read, no file tool reads: by its name, through a link, in a search, in a patch.
#[tokio::test]
async fn what_commands_cannot_read_is_not_read() {
    let harness = FilesHarness::with(|deps| {
        deps.private_files = Arc::new(|cwd| {
            let other = cwd.parent().unwrap().join("other");
            Arc::new([other.join("tls.key"), other.join("keys")].into())
        });
    });
    let root = harness.root();
    std::fs::create_dir_all(root.join("other/keys")).unwrap();
    for name in ["tls.key", "keys/one", "notes"] {
        std::fs::write(root.join("other").join(name), "needle\n").unwrap();
    }
    std::os::unix::fs::symlink(root.join("other/tls.key"), harness.path("link")).unwrap();
    for path in ["../other/tls.key", "../other/keys/one", "link"] {
        let (kind, value) = harness.err("read_file", json!({ "path": path })).await;
        assert_eq!(kind, ToolErrorKind::Denied, "{path}: {value}");
        let patch = json!({ "path": path, "old_string": "needle", "new_string": "x" });
        let (kind, value) = harness.err("patch", patch).await;
        assert_eq!(kind, ToolErrorKind::Denied, "{path}: {value}");
    }
    let found = harness
        .ok(
            "search_files",
            json!({ "pattern": "needle", "path": "../other" }),
        )
        .await;
    assert_eq!(found["total_count"], 1, "{found}");
    let (kind, _) = harness
        .err(
            "search_files",
            json!({ "pattern": "needle", "path": "../other/keys" }),
        )
        .await;
    assert_eq!(kind, ToolErrorKind::Denied);
}

use pretty_assertions::assert_eq;
use serde_json::json;

use super::*;

#[tokio::test]
async fn pages_have_numbers_and_say_how_to_go_on() {
    let bench = Bench::new();
    bench.put("a.txt", "one\r\ntwo\n\nfour");
    let tools = bench.tools();
    let page = tools.ok("read_file", json!({"path": "a.txt"})).await;
    assert_eq!(
        page,
        json!({"content": "1|one\n2|two\n3|\n4|four", "total_lines": 4, "file_size": 14, "truncated": false})
    );
    let page = tools
        .ok(
            "read_file",
            json!({"path": bench.path("a.txt"), "offset": "2", "limit": 2}),
        )
        .await;
    assert_eq!(page["content"], "2|two\n3|");
    assert_eq!(
        (&page["truncated"], &page["next_offset"]),
        (&json!(true), &json!(4))
    );
    let page = tools
        .ok("read_file", json!({"path": "a.txt", "offset": 9}))
        .await;
    assert_eq!(page["content"], "");
    assert!(page["hint"].as_str().unwrap().contains("only 4 lines"));
    bench.put("empty", "");
    let page = tools.ok("read_file", json!({"path": "empty"})).await;
    assert!(page["hint"].as_str().unwrap().contains("empty"));
}

#[tokio::test]
async fn long_lines_and_pages_are_cut_and_paging_loses_nothing() {
    let mut bench = Bench::new();
    bench.deps.read_limits = ReadLimits {
        lines: 100,
        line_chars: 10,
        chars: 60,
    };
    let text: Vec<String> = (1..=30).map(|n| format!("line {n}")).collect();
    bench.put("long", text.join("\n"));
    bench.put("wide", format!("{}\nshort\n", "é".repeat(30)));
    let tools = bench.tools();
    let (mut offset, mut lines) = (1, Vec::new());
    loop {
        let page = tools
            .ok("read_file", json!({"path": "long", "offset": offset}))
            .await;
        let content = page["content"].as_str().unwrap();
        assert!(content.chars().count() <= 60);
        lines.extend(
            content
                .lines()
                .map(|line| line.split_once('|').unwrap().1.to_owned()),
        );
        match page["next_offset"].as_u64() {
            Some(next) => {
                assert_eq!(page["truncated_by"], "chars");
                offset = next;
            }
            None => break,
        }
    }
    assert_eq!(lines, text);
    let page = tools.ok("read_file", json!({"path": "wide"})).await;
    assert_eq!(page["content"], format!("1|{}…\n2|short", "é".repeat(10)));
    assert_eq!(page["truncated"], true);
    assert_eq!(page["next_offset"], Value::Null);
}

#[tokio::test]
async fn what_is_no_text_file_is_explained() {
    let bench = Bench::new();
    bench.put("data.bin", [1, 2, 0, 3]);
    bench.put("latin.txt", b"caf\xe9");
    bench.put("dir/notes.md", "x");
    bench.put("home/.env", "KEY=1");
    let tools = bench.tools();
    let (_, text) = tools.err("read_file", json!({"path": "data.bin"})).await;
    assert!(text.contains("not text (4 bytes"), "{text}");
    let page = tools.ok("read_file", json!({"path": "latin.txt"})).await;
    assert_eq!(page["content"], "1|caf\u{fffd}");
    assert!(page["hint"].as_str().unwrap().contains("UTF-8"));
    let (kind, value) = tools.err_json("read_file", json!({"path": "dir"})).await;
    assert_eq!(
        (kind, &value["entries"]),
        (ToolErrorKind::BadArguments, &json!(["notes.md"]))
    );
    let (_, value) = tools
        .err_json("read_file", json!({"path": "dir/note.md"}))
        .await;
    assert_eq!(value["similar_files"], json!([bench.path("dir/notes.md")]));
    let (_, text) = tools.err("read_file", json!({"path": "none/at/all"})).await;
    assert!(text.contains("does not exist"), "{text}");
    let (kind, text) = tools.err("read_file", json!({"path": "home/.env"})).await;
    assert_eq!(kind, ToolErrorKind::Denied, "{text}");
    let (kind, _) = tools.err("read_file", json!({"path": "/dev/null"})).await;
    assert_eq!(kind, ToolErrorKind::Denied);
    let (kind, _) = tools.err("read_file", json!({"path": " "})).await;
    assert_eq!(kind, ToolErrorKind::BadArguments);
    let (kind, _) = tools
        .err("read_file", json!({"path": "x", "offset": "first"}))
        .await;
    assert_eq!(kind, ToolErrorKind::BadArguments);
}

#[tokio::test]
async fn a_byte_order_mark_is_not_shown() {
    let bench = Bench::new();
    bench.put("bom.txt", "\u{feff}one\n");
    let page = bench
        .tools()
        .ok("read_file", json!({"path": "bom.txt"}))
        .await;
    assert_eq!(page["content"], "1|one");
}

#[tokio::test]
async fn keys_in_settings_and_logs_are_hidden_and_nowhere_else() {
    let bench = Bench::new();
    let key = "sk-0123456789abcdefghij";
    for path in [
        "home/config.yaml",
        "home/logs/agent.log",
        "home/profiles/work/config.yaml",
        "project/config.yaml",
    ] {
        bench.put(path, format!("key: {key}\n"));
        let page = bench.tools().ok("read_file", json!({"path": path})).await;
        let shown = page["content"].as_str().unwrap().contains(key);
        assert_eq!(shown, path.starts_with("project"), "{path}");
    }
}

//! What must hold for every file.

use std::path::Path;

use hermes_core::edit;
use hermes_tools::files::ReadLimits;
use proptest::prelude::*;
use serde_json::{Value, json};

use super::FilesHarness;

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap()
}

/// Lines of a few words, with the white space and quotes that edits trip over.
fn line() -> impl Strategy<Value = String> {
    prop_oneof![
        3 => "[ \t]{0,3}(let|if|x|y|foo|bar)( = |\\(|\\)|  )[a-c0-3'\"—“”]{0,4};?",
        1 => Just(String::new()),
        1 => "\\PC{0,12}",
    ]
}

fn lines() -> impl Strategy<Value = Vec<String>> {
    prop::collection::vec(line(), 1..14)
}

/// A file and a part of it, with line ends of all kinds.
fn file() -> impl Strategy<Value = (Vec<String>, std::ops::Range<usize>, bool, bool)> {
    (
        lines(),
        any::<prop::sample::Index>(),
        1..4_usize,
        any::<bool>(),
        any::<bool>(),
    )
        .prop_map(|(lines, at, count, windows, last)| {
            let at = at.index(lines.len());
            let end = (at + count).min(lines.len());
            (lines, at..end, windows, last)
        })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]

    /// A replacement that was found exactly once can be undone by the opposite one, and touches
    /// nothing else.
    #[test]
    fn a_patch_can_be_taken_back((lines, part, windows, last) in file(), new in lines()) {
        let end = if windows { "\r\n" } else { "\n" };
        let mut content = lines.join(end);
        if last { content.push_str(end); }
        let old = lines[part].join("\n");
        let new = format!("«{}»", new.join("\n"));
        let plain = content.replace("\r\n", "\n");
        prop_assume!(!old.trim().is_empty() && plain.matches(&old).count() == 1);
        prop_assume!(!content.contains('«') && !content.replace("\r\n", "").contains('\r') && !new.contains('\r'));
        // Without any line end left, nobody knows which kind the file had.
        prop_assume!(!windows || plain.replacen(&old, &new, 1).contains('\n'));
        let harness = FilesHarness::new();
        harness.put("a.txt", &content);
        runtime().block_on(async {
            let edit = |old: &str, new: &str| json!({"mode": "replace", "path": "a.txt", "old_string": old, "new_string": new});
            harness.ok("patch", edit(&old, &new)).await;
            let expected = plain.replacen(&old, &new, 1).replace('\n', if windows && plain.contains('\n') { "\r\n" } else { "\n" });
            assert_eq!(harness.text("a.txt"), expected);
            harness.ok("patch", edit(&new, &old)).await;
            assert_eq!(harness.text("a.txt"), content);
        });
    }

    /// The same for a patch over whole lines.
    #[test]
    fn a_v4a_patch_can_be_taken_back((lines, part, _, last) in file(), new in lines()) {
        let ok = |line: &String| !line.contains(['\r', '\n']);
        prop_assume!(lines.iter().all(ok) && new.iter().all(ok));
        let new: Vec<String> = new.iter().map(|line| format!("«{line}»")).collect();
        let old = &lines[part.clone()];
        prop_assume!(old.iter().any(|line| !line.trim().is_empty()) && !lines.concat().contains('«'));
        // Only where the place is clear.
        let windows = lines.windows(old.len()).filter(|window| *window == old).count();
        prop_assume!(windows == 1);
        let content = lines.join("\n") + if last { "\n" } else { "" };
        let harness = FilesHarness::new();
        harness.put("a.txt", &content);
        runtime().block_on(async {
            let patch = |old: &[String], new: &[String]| {
                let mut text = "*** Begin Patch\n*** Update File: a.txt\n@@\n".to_owned();
                for (mark, lines) in [("-", old), ("+", new)] {
                    for line in lines { text.extend([mark, line, "\n"]); }
                }
                json!({"mode": "patch", "patch": text + "*** End Patch\n"})
            };
            harness.ok("patch", patch(old, &new)).await;
            let mut expected = lines.clone();
            expected.splice(part.clone(), new.clone());
            assert_eq!(harness.text("a.txt"), expected.join("\n") + if last { "\n" } else { "" });
            harness.ok("patch", patch(&new, old)).await;
            assert_eq!(harness.text("a.txt"), content);
        });
    }

    /// However loosely a text is found, what is outside the places stays.
    #[test]
    fn a_loose_match_touches_only_its_place(content in lines(), old in lines(), new in lines()) {
        let (content, old, new) = (content.join("\n"), old.join("\n"), new.join("\n"));
        for all in [false, true] {
            if let Ok(done) = edit::replace(&content, &old, &new, all) {
                prop_assert!(all || done.count == 1);
                let found = edit::find(&content, &old, edit::MatchScope::Text).unwrap();
                let mut rest = done.text.as_str();
                let mut at = 0;
                for place in &found.places {
                    let between = &content[at..place.start];
                    let from = rest.find(between);
                    prop_assert!(from.is_some(), "{between:?} is gone from {:?}", done.text);
                    rest = &rest[from.unwrap() + between.len()..];
                    at = place.end;
                }
                prop_assert!(rest.ends_with(&content[at..]));
            }
        }
    }

    /// No patch text makes the tool panic, and one that is refused changes nothing.
    #[test]
    fn any_patch_text_is_answered(parts in prop::collection::vec(prop_oneof![
        Just("*** Begin Patch".to_owned()), Just("*** End Patch".to_owned()),
        Just("*** Update File: a.txt".to_owned()), Just("*** Add File: b.txt".to_owned()),
        Just("*** Delete File: a.txt".to_owned()), Just("*** Move File: a.txt -> c.txt".to_owned()),
        Just("@@ one @@".to_owned()), Just("@@".to_owned()), Just("-one".to_owned()), Just(" two".to_owned()),
        Just("+new".to_owned()), Just(String::new()), "\\PC{0,10}", "[*@+ -]{1,5}[a-z]{0,3}",
    ], 0..12)) {
        let harness = FilesHarness::new();
        harness.put("a.txt", "one\ntwo\nthree\n");
        let patch = parts.join("\n");
        runtime().block_on(async {
            let outcome = harness.call("patch", json!({"mode": "patch", "patch": patch})).await;
            if outcome.is_error() {
                assert_eq!(harness.text("a.txt"), "one\ntwo\nthree\n");
                assert!(!harness.path("b.txt").exists() && !harness.path("c.txt").exists());
            }
        });
    }

    /// Pages put together are the file.
    #[test]
    fn paging_reassembles_the_file(
        lines in prop::collection::vec("[^\r\n\u{0}-\u{1f}\u{feff}]{0,30}", 0..60),
        limit in 1..20_usize, chars in 40..200_usize, last in any::<bool>(),
    ) {
        let harness = FilesHarness::with(|deps| {
            deps.limits = ReadLimits { lines: 2000, line_chars: 2000, chars };
        });
        let mut content = lines.join("\n");
        if last && !lines.is_empty() { content.push('\n'); }
        harness.put("a.txt", &content);
        let expected: Vec<&str> = content.lines().collect();
        runtime().block_on(async {
            let (mut offset, mut read) = (1, Vec::new());
            loop {
                let page = harness.ok("read_file", json!({"path": "a.txt", "offset": offset, "limit": limit})).await;
                assert_eq!(page["total_lines"], expected.len());
                let content = page["content"].as_str().unwrap();
                if !content.is_empty() {
                    for line in content.split('\n') {
                        let (number, line) = line.split_once('|').unwrap();
                        read.push(line.to_owned());
                        assert_eq!(number, read.len().to_string());
                    }
                }
                match page["next_offset"].as_u64() {
                    Some(next) => offset = next,
                    None => break,
                }
            }
            assert_eq!(read, expected);
        });
    }

    /// A search finds what reading everything finds.
    #[test]
    fn search_equals_a_naive_one(
        files in prop::collection::btree_map("[a-c]{1,2}(/[a-c]{1,2}){0,2}\\.(txt|rs)", prop::collection::vec("[abx ]{0,6}", 0..8), 1..8),
        pattern in "[abx]{1,2}", offset in 0..6_usize, limit in 1..8_usize,
    ) {
        let harness = FilesHarness::new();
        for (path, lines) in &files {
            // A name may be taken by a directory already.
            let path = harness.path(path);
            if std::fs::create_dir_all(path.parent().unwrap()).is_ok() {
                let _ = std::fs::write(&path, lines.join("\n"));
            }
        }
        let mut naive = Vec::new();
        collect(&harness.path(""), &harness.path(""), &pattern, &mut naive);
        naive.sort();
        runtime().block_on(async {
            let args = json!({"pattern": pattern, "offset": offset, "limit": limit});
            let value = harness.ok("search_files", args).await;
            assert_eq!(value["total_count"], naive.len());
            let page: Vec<(String, u64, String)> = naive.iter().skip(offset).take(limit)
                .map(|(path, line, text)| (path.display().to_string(), *line, text.clone())).collect();
            assert_eq!(hits(&value), page);
            assert_eq!(value["truncated"] == true, naive.len() > offset + limit);
        });
    }
}

type Hit = (std::path::PathBuf, u64, String);

fn collect(root: &Path, dir: &Path, pattern: &str, found: &mut Vec<Hit>) {
    for entry in std::fs::read_dir(dir).unwrap().flatten() {
        let path = entry.path();
        if path.is_dir() {
            collect(root, &path, pattern, found);
            continue;
        }
        let text = std::fs::read_to_string(&path).unwrap();
        for (at, line) in text.lines().enumerate() {
            if line.contains(pattern) {
                let shown = path.strip_prefix(root).unwrap().to_owned();
                found.push((shown, at as u64 + 1, line.trim_end().to_owned()));
            }
        }
    }
}

fn hits(value: &Value) -> Vec<(String, u64, String)> {
    if let Some(list) = value["matches"].as_array() {
        let text = |value: &Value| value.as_str().unwrap().to_owned();
        return list
            .iter()
            .map(|hit| {
                let content = text(&hit["content"]);
                (
                    text(&hit["path"]),
                    hit["line"].as_u64().unwrap(),
                    content.trim_end().to_owned(),
                )
            })
            .collect();
    }
    let mut hits = Vec::new();
    let mut path = "";
    for line in value["matches_text"].as_str().unwrap_or("").lines() {
        match line.strip_prefix("  ") {
            Some(line) => {
                let (number, text) = line
                    .split_once(": ")
                    .unwrap_or((line.trim_end_matches(':'), ""));
                hits.push((path.to_owned(), number.parse().unwrap(), text.to_owned()));
            }
            None => path = line,
        }
    }
    hits
}

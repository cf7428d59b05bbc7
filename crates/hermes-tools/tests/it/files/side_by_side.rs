//! One corpus, the pinned original and ours: the same answers where the original is right, and the
//! right ones where it was measured to be wrong.

use std::collections::{BTreeMap, BTreeSet};
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use hermes_testkit::home::TempHome;
use hermes_testkit::oracle::{self, Oracle};
use pretty_assertions::assert_eq;
use serde_json::{Value, json};

use super::FilesHarness;

/// Calls the original's tools in a directory, as its agent would.
const THEIRS: &str = r#"
import json, os, sys
os.environ["TERMINAL_CWD"] = sys.argv[1]
os.environ["TERMINAL_ENV"] = "local"
os.chdir(sys.argv[1])
from tools import file_tools as tools
run = {"search_files": tools.search_tool, "read_file": tools.read_file_tool, "patch": tools.patch_tool}
out = []
for name, arguments in json.load(open(sys.argv[2])):
    tools.notify_other_tool_call()
    answer = run[name](**arguments)
    try:
        answer = json.loads(answer)
    except ValueError:
        pass
    out.append(answer)
print(json.dumps(out))
"#;

type Calls = Vec<(&'static str, Value)>;

/// The original's answers in `dir`.
/// As the original is usually run, with ripgrep.
fn theirs(oracle: &Oracle, dir: &Path, calls: &Calls) -> Vec<Value> {
    let path = std::env::var("PATH").unwrap_or_default();
    let path = format!("{}:{path}", oracle::search_path().display());
    theirs_with(oracle, dir, calls, &path)
}

fn theirs_with(oracle: &Oracle, dir: &Path, calls: &Calls, path: &str) -> Vec<Value> {
    let home = TempHome::new();
    let asked = home.write("calls.json", json!(calls).to_string());
    // Its shell is a login shell, which sets the search path anew.
    let profile = home.user().join(".bash_profile");
    std::fs::write(profile, format!("export PATH='{path}'\n")).unwrap();
    let program = oracle.interpreter(&home).env("PATH", path);
    let program = program.args(["-c", THEIRS]);
    let program = program.args([dir, &asked]);
    let answers = program.run().ok().json();
    let answers = answers.as_array().unwrap().clone();
    assert_eq!(answers.len(), calls.len());
    answers
}

/// The search path, where ripgrep is not installed.
fn path_without_ripgrep() -> Option<String> {
    let found = std::process::Command::new("rg").arg("--version").output();
    found
        .is_err()
        .then(|| std::env::var("PATH").unwrap_or_default())
}

async fn ours(harness: &FilesHarness, calls: &Calls) -> Vec<Value> {
    let mut answers = Vec::new();
    for (name, arguments) in calls {
        answers.push(harness.ok(name, arguments.clone()).await);
    }
    answers
}

/// What a file of the corpus is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Text,
    Binary,
    Hidden,
    Ignored,
}

/// Some three hundred files of every kind that projects have.
fn corpus() -> Vec<(String, Vec<u8>, Kind)> {
    let mut files = vec![
        (
            "corpus/.gitignore".to_owned(),
            b"built/\n*.log\n".to_vec(),
            Kind::Hidden,
        ),
        ("corpus/empty.txt".to_owned(), Vec::new(), Kind::Text),
        ("corpus/newline.txt".to_owned(), b"\n".to_vec(), Kind::Text),
        (
            "corpus/-dash.txt".to_owned(),
            b"needle after a dash\n".to_vec(),
            Kind::Text,
        ),
        (
            "corpus/with space.txt".to_owned(),
            b"needle: with space\n".to_vec(),
            Kind::Text,
        ),
        (
            "corpus/built/out.py".to_owned(),
            b"needle = 1\n".to_vec(),
            Kind::Ignored,
        ),
        (
            "corpus/run.log".to_owned(),
            b"needle in a log\n".to_vec(),
            Kind::Ignored,
        ),
        (
            "corpus/.hidden/a.py".to_owned(),
            b"needle = 2\n".to_vec(),
            Kind::Hidden,
        ),
    ];
    let names = [
        "module",
        "gr\u{fc}n",
        "\u{65e5}\u{672c}\u{8a9e}",
        "na\u{ef}ve \u{2014} caf\u{e9}",
        "Upper",
    ];
    for number in 0..290_usize {
        let dir = ["src", "docs", "src/deep/er", "tests"][number % 4];
        let end = ["py", "md", "rs", "txt", "json"][number % 5];
        let name = format!("corpus/{dir}/{}{number}.{end}", names[number % 7 % 5]);
        let lines = (0..number % 23).map(|line| match (line + number) % 6 {
            0 => format!("    needle_{number} = call({line})"),
            1 => String::new(),
            2 => format!("\tgr\u{fc}n needle \u{2014} {line}"),
            _ => format!("line {line} of {number}"),
        });
        let lines: Vec<String> = lines.collect();
        let mut text = lines.join(if number % 3 == 0 { "\r\n" } else { "\n" });
        if number % 4 != 0 && !text.is_empty() {
            text += if number % 3 == 0 { "\r\n" } else { "\n" };
        }
        let mut bytes = text.into_bytes();
        if number % 11 == 0 {
            bytes.splice(0..0, [0xef, 0xbb, 0xbf]);
        }
        let mut kind = Kind::Text;
        if number % 29 == 5 {
            bytes = [b"needle\0".as_slice(), &[0, 1, 2, 3, 200, 255].repeat(99)].concat();
            kind = Kind::Binary;
        }
        files.push((name, bytes, kind));
    }
    files
}

fn lay_out(dir: &Path) {
    // A repository, without which nothing is ignored.
    std::fs::create_dir_all(dir.join("corpus/.git")).unwrap();
    for (name, bytes, _) in corpus() {
        let path = dir.join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, bytes).unwrap();
    }
}

fn of_kind(wanted: Kind) -> BTreeSet<String> {
    let files = corpus().into_iter();
    files
        .filter(|(_, _, kind)| *kind == wanted)
        .map(|(name, ..)| name)
        .collect()
}

fn harness() -> FilesHarness {
    let harness = FilesHarness::new();
    lay_out(&harness.path(""));
    harness
}

/// Some releases of ripgrep show the byte order mark of a file as part of its first line.
fn plain(text: &str) -> String {
    text.trim_start_matches('\u{feff}').trim_end().to_owned()
}

/// File, line and text of every match, however many there are.
fn matches(answer: &Value) -> BTreeSet<(String, String, String)> {
    let mut found = BTreeSet::new();
    if let Some(list) = answer["matches"].as_array() {
        for one in list {
            let line = one["line"].as_u64().unwrap().to_string();
            let text = plain(one["content"].as_str().unwrap());
            found.insert((one["path"].as_str().unwrap().to_owned(), line, text));
        }
    }
    let mut file = "";
    for row in answer["matches_text"].as_str().unwrap_or("").lines() {
        match row.strip_prefix("  ").and_then(|row| row.split_once(": ")) {
            Some((line, text)) => {
                found.insert((file.to_owned(), line.to_owned(), plain(text)));
            }
            None => file = row,
        }
    }
    found
}

fn names(answer: &Value) -> BTreeSet<String> {
    let files = answer["files"].as_array();
    files
        .into_iter()
        .flatten()
        .map(|name| name.as_str().unwrap().to_owned())
        .collect()
}

fn counts(answer: &Value) -> BTreeMap<String, u64> {
    let counts = answer["counts"].as_object();
    counts
        .into_iter()
        .flatten()
        .map(|(name, count)| (name.clone(), count.as_u64().unwrap()))
        .collect()
}

#[tokio::test]
async fn searches_find_what_the_original_finds() {
    let Some(oracle) = oracle::require("searches_find_what_the_original_finds") else {
        return;
    };
    let harness = harness();
    let search = |pattern: &str, more: Value| {
        let mut arguments = json!({"pattern": pattern, "path": "corpus", "limit": 2000});
        let more = more.as_object().unwrap().clone();
        arguments.as_object_mut().unwrap().extend(more);
        ("search_files", arguments)
    };
    let mut calls: Calls = Vec::new();
    let patterns = [
        "needle",
        "needle_1[0-9]+ ",
        "^line 3",
        "gr\u{fc}n",
        "call\\(",
        "nowhere to be found",
    ];
    for pattern in patterns {
        calls.push(search(pattern, json!({"output_mode": "count"})));
        calls.push(search(pattern, json!({})));
        calls.push(search(pattern, json!({"file_glob": "*.py"})));
    }
    let globs = ["*.py", "*.json", "module1*", "*\u{fc}n*", "*.nothing"];
    for glob in globs {
        calls.push(search(glob, json!({"target": "files"})));
    }
    let (left, right) = (
        ours(&harness, &calls).await,
        theirs(&oracle, &harness.path(""), &calls),
    );
    // Without ripgrep the original also looks into what git ignores and into binaries.
    let extra: BTreeSet<String> = of_kind(Kind::Ignored)
        .union(&of_kind(Kind::Binary))
        .cloned()
        .collect();
    for ((call, left), right) in calls.iter().zip(&left).zip(&right) {
        if call.1["output_mode"] == "count" {
            let mut right = counts(right);
            right.retain(|name, count| *count > 0 && !extra.contains(name));
            assert_eq!(counts(left), right, "{call:?}");
            assert_eq!(left["total_count"], right.values().sum::<u64>(), "{call:?}");
        } else if call.1["target"] == "files" {
            let ignored = of_kind(Kind::Ignored);
            let right = names(right);
            let right: BTreeSet<String> = right.difference(&ignored).cloned().collect();
            assert_eq!(names(left), right, "{call:?}");
        } else {
            let mut right = matches(right);
            right.retain(|(name, ..)| !extra.contains(name));
            let left = matches(left);
            assert_eq!(left, right, "{call:?}");
        }
    }
}

#[tokio::test]
async fn pages_are_those_of_the_original() {
    let Some(oracle) = oracle::require("pages_are_those_of_the_original") else {
        return;
    };
    let harness = harness();
    let texts: Vec<String> = of_kind(Kind::Text).into_iter().collect();
    let pages = [(1, 500), (1, 3), (4, 5), (9, 2)];
    let calls: Calls = texts
        .iter()
        .enumerate()
        .filter(|(at, _)| at % 8 == 0)
        .flat_map(|(_, path)| {
            pages.map(|(offset, limit)| {
                (
                    "read_file",
                    json!({"path": path, "offset": offset, "limit": limit}),
                )
            })
        })
        .filter(|(_, call)| {
            // What lies beyond the end is explained differently.
            let text = std::fs::read(harness.path(call["path"].as_str().unwrap())).unwrap();
            let lines = text.split_inclusive(|&byte| byte == b'\n').count() as u64;
            call["offset"].as_u64().unwrap() <= lines
        })
        .collect();
    assert!(calls.len() > 80, "{}", calls.len());
    let (left, right) = (
        ours(&harness, &calls).await,
        theirs(&oracle, &harness.path(""), &calls),
    );
    for ((call, left), right) in calls.iter().zip(&left).zip(&right) {
        let text = std::fs::read(harness.path(call.1["path"].as_str().unwrap())).unwrap();
        let ends = text.last().is_none_or(|&byte| byte == b'\n');
        let unended = u64::from(!ends);
        // Defect of the original: one line too few when the last one has no end.
        let total = right["total_lines"].as_u64().unwrap() + unended;
        assert_eq!(left["total_lines"], total, "{call:?}");
        assert_eq!(left["file_size"], right["file_size"], "{call:?}");
        // Defect of the original: an empty line that is not there, after every page that ends in
        // a line end.
        let shown = |answer: &Value| -> Vec<String> {
            let content = answer["content"].as_str().unwrap_or("");
            content
                .lines()
                .map(|line| line.trim_end_matches('\r').to_owned())
                .collect()
        };
        let mut right = shown(right);
        let last = right.last().and_then(|line| line.split_once('|'));
        let (offset, limit) = (
            call.1["offset"].as_u64().unwrap(),
            call.1["limit"].as_u64().unwrap(),
        );
        let phantom = last.is_some_and(|(number, rest)| {
            let number: u64 = number.trim().parse().unwrap();
            rest.is_empty() && (number > total || number >= offset + limit)
        });
        if phantom {
            right.pop();
        }
        assert_eq!(shown(left), right, "{call:?}");
    }
}

#[tokio::test]
async fn replaced_texts_leave_the_bytes_that_the_original_leaves() {
    let Some(oracle) = oracle::require("replaced_texts_leave_the_bytes_that_the_original_leaves")
    else {
        return;
    };
    let (harness, other) = (harness(), harness());
    let replace = |path: &str, old: &str, new: &str, all: bool| {
        (
            "patch",
            json!({"mode": "replace", "path": path, "old_string": old, "new_string": new, "replace_all": all}),
        )
    };
    let mut calls: Calls = Vec::new();
    // The original needs seconds for each.
    for (name, bytes, kind) in corpus().into_iter().skip(40).step_by(23) {
        let text = String::from_utf8_lossy(&bytes).replace('\r', "");
        // Settings that do not parse are another story.
        if kind != Kind::Text || Path::new(&name).extension() == Some("json".as_ref()) {
            continue;
        }
        if text.contains("needle") {
            calls.push(replace(&name, "needle", "n\u{e4}dle", true));
        }
        if let Some(at) = text.find("line 4 of") {
            let whole = text[at..].lines().take(2).collect::<Vec<_>>().join("\n");
            calls.push(replace(&name, &whole, "replaced\nby\nthree", false));
        }
    }
    calls.push(replace(
        "corpus/-dash.txt",
        "not in any file of these",
        "x",
        false,
    ));
    assert!(calls.len() >= 8, "{}", calls.len());
    let right = theirs(&oracle, &other.path(""), &calls);
    for ((name, arguments), right) in calls.iter().zip(&right) {
        let left = harness.call(name, arguments.clone()).await;
        let done = matches!(left, hermes_core::tool::ToolOutcome::Done(_));
        assert_eq!(
            done,
            right["success"] == true,
            "{arguments}: {left:?} {right}"
        );
    }
    for (name, ..) in corpus() {
        let (left, right) = (harness.bytes(&name), other.bytes(&name));
        assert_eq!(
            String::from_utf8_lossy(&left),
            String::from_utf8_lossy(&right),
            "{name}"
        );
        assert_eq!(left, right, "{name}");
    }
}

#[tokio::test]
async fn defect_a_search_pattern_becomes_an_option_of_ripgrep() {
    let harness = harness();
    let (ran, script) = (harness.path("ran"), harness.path("run.sh"));
    harness.put(
        "run.sh",
        format!("#!/bin/sh\ntouch '{}'\ncat\n", ran.display()),
    );
    std::fs::set_permissions(&script, std::fs::Permissions::from_mode(0o755)).unwrap();
    let pattern = format!("--pre={}", script.display());
    let calls: Calls = vec![(
        "search_files",
        json!({"pattern": pattern, "path": "corpus"}),
    )];
    let answer = ours(&harness, &calls).await;
    assert_eq!(answer[0]["total_count"], 0);
    assert!(!ran.exists());
    harness.put("corpus/zz.txt", format!("x {pattern} y\n"));
    assert_eq!(ours(&harness, &calls).await[0]["total_count"], 1);
}

#[tokio::test]
async fn defect_nothing_is_found_in_the_current_directory_without_ripgrep() {
    let harness = harness();
    let calls: Calls = vec![
        (
            "search_files",
            json!({"pattern": "needle", "path": ".", "output_mode": "count"}),
        ),
        (
            "search_files",
            json!({"pattern": "needle", "path": "corpus", "output_mode": "count"}),
        ),
    ];
    let left = ours(&harness, &calls).await;
    assert!(
        left[0]["total_count"].as_u64().unwrap() > 400,
        "{}",
        left[0]
    );
    assert_eq!(left[0]["total_count"], left[1]["total_count"]);
    let name = "defect_nothing_is_found_in_the_current_directory_without_ripgrep";
    let Some(oracle) = oracle::require(name) else {
        return;
    };
    if let Some(path) = path_without_ripgrep() {
        let right = theirs_with(&oracle, &harness.path(""), &calls, &path);
        assert_eq!(right[0]["total_count"], 0, "the original was mended");
    }
}

#[tokio::test]
async fn defect_a_cut_search_reports_what_it_shows_as_all() {
    let harness = FilesHarness::new();
    for file in 0..12 {
        harness.put(&format!("corpus/{file}.txt"), "needle\n".repeat(10));
    }
    let calls: Calls = vec![(
        "search_files",
        json!({"pattern": "needle", "path": "corpus"}),
    )];
    let left = ours(&harness, &calls).await;
    assert_eq!(left[0]["total_count"], 120);
    assert_eq!(left[0]["truncated"], true);
    let Some(oracle) = oracle::require("defect_a_cut_search_reports_what_it_shows_as_all") else {
        return;
    };
    let right = theirs(&oracle, &harness.path(""), &calls);
    assert_eq!(right[0]["total_count"], 50, "the original was mended");
    assert_ne!(right[0]["truncated"], true);
}

#[tokio::test]
async fn defect_names_with_spaces_are_missing_from_the_files_with_matches() {
    let harness = harness();
    let calls: Calls = vec![
        (
            "search_files",
            json!({"pattern": "needle", "path": "corpus", "limit": 2000, "output_mode": "files_only"}),
        ),
        (
            "search_files",
            json!({"pattern": "needle", "path": "corpus", "limit": 2000, "output_mode": "count"}),
        ),
    ];
    let left = ours(&harness, &calls).await;
    let expected: BTreeSet<String> = counts(&left[1]).into_keys().collect();
    assert_eq!(names(&left[0]), expected);
    let name = "defect_names_with_spaces_are_missing_from_the_files_with_matches";
    let Some(oracle) = oracle::require(name) else {
        return;
    };
    if let Some(path) = path_without_ripgrep() {
        let right = names(&theirs_with(&oracle, &harness.path(""), &calls, &path)[0]);
        let missing: Vec<&String> = expected.difference(&right).collect();
        assert!(!missing.is_empty(), "the original was mended");
        assert!(missing.iter().all(|name| name.contains(' ')), "{missing:?}");
    }
}

fn v4a(body: &str) -> (&'static str, Value) {
    let text = format!("*** Begin Patch\n{body}\n*** End Patch\n");
    ("patch", json!({"mode": "patch", "patch": text}))
}

#[tokio::test]
async fn defect_blank_context_lines_of_a_patch_are_dropped() {
    let text = "one\n\ntwo\n\nthree\n";
    let calls: Calls = vec![v4a(
        "*** Update File: a.txt\n@@\n one\n\n-two\n+2\n\n three",
    )];
    let harness = FilesHarness::new();
    harness.put("a.txt", text);
    ours(&harness, &calls).await;
    assert_eq!(harness.text("a.txt"), "one\n\n2\n\nthree\n");
    let Some(oracle) = oracle::require("defect_blank_context_lines_of_a_patch_are_dropped") else {
        return;
    };
    harness.put("a.txt", text);
    theirs(&oracle, &harness.path(""), &calls);
    assert_ne!(
        harness.text("a.txt"),
        "one\n\n2\n\nthree\n",
        "the original was mended"
    );
}

#[tokio::test]
async fn defect_add_file_overwrites_an_existing_one() {
    let harness = FilesHarness::new();
    harness.put("a.txt", "precious\n");
    let calls: Calls = vec![v4a("*** Add File: a.txt\n+new")];
    let (_, said) = harness.err(calls[0].0, calls[0].1.clone()).await;
    assert_eq!(harness.text("a.txt"), "precious\n", "{said}");
    let Some(oracle) = oracle::require("defect_add_file_overwrites_an_existing_one") else {
        return;
    };
    theirs(&oracle, &harness.path(""), &calls);
    assert_ne!(
        harness.text("a.txt"),
        "precious\n",
        "the original was mended"
    );
}

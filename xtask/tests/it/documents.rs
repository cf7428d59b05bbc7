//! The documents name only what exists: crates, their dependencies, files, functions, links.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use crate::arrows::packages;
use crate::workspace;

const PREFIX: &str = "hermes-";

/// README, ARCHITECTURE, CONTRIBUTING, CHANGELOG and everything below docs/.
fn documents() -> Vec<PathBuf> {
    let root = workspace();
    let mut found: Vec<PathBuf> = [
        "README.md",
        "ARCHITECTURE.md",
        "CONTRIBUTING.md",
        "CHANGELOG.md",
    ]
    .map(|name| root.join(name))
    .into();
    collect(&root.join("docs"), &mut found);
    assert!(found.len() > 20, "looked in the wrong place: {found:?}");
    found
}

fn collect(directory: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            collect(&path, found);
        } else if path.extension().is_some_and(|extension| extension == "md") {
            found.push(path);
        }
    }
}

fn architecture() -> String {
    fs::read_to_string(workspace().join("ARCHITECTURE.md")).unwrap()
}

/// The section below a heading, up to the next heading of the same level.
fn section<'a>(text: &'a str, heading: &str) -> &'a str {
    let start = text.find(&format!("\n## {heading}\n")).unwrap();
    let body = &text[start + 1..];
    body.find("\n## ").map_or(body, |end| &body[..end])
}

/// The cells of a table row; `None`: not a row, or the line below the header.
fn cells(line: &str) -> Option<Vec<&str>> {
    let row = line.strip_prefix('|')?.strip_suffix('|')?;
    let cells: Vec<&str> = row.split('|').map(str::trim).collect();
    (!cells.iter().all(|cell| cell.chars().all(|ch| ch == '-'))).then_some(cells)
}

/// Text between single backticks, outside fenced blocks.
fn code_spans(text: &str) -> Vec<&str> {
    let mut spans = Vec::new();
    for line in outside_fences(text) {
        spans.extend(line.split('`').skip(1).step_by(2));
    }
    spans
}

fn outside_fences(text: &str) -> impl Iterator<Item = &str> {
    let mut fenced = false;
    text.lines().filter(move |line| {
        let fence = line.trim_start().starts_with("```");
        fenced ^= fence;
        !fenced && !fence
    })
}

/// `a/{b,c}.rs` is `a/b.rs` and `a/c.rs`.
fn alternatives(path: &str) -> Vec<String> {
    let Some((before, rest)) = path.split_once('{') else {
        return vec![path.to_owned()];
    };
    let (inner, after) = rest.split_once('}').unwrap();
    inner
        .split(',')
        .map(|one| format!("{before}{one}{after}"))
        .collect()
}

/// Where a path of a document lies: paths begin at the root of the workspace or at `crates/`.
fn exists(path: &str) -> bool {
    let root = workspace();
    root.join(path).exists() || root.join("crates").join(path).exists()
}

/// Whether text in backticks names a file of the workspace. `<name>` stands for any name.
fn is_path(span: &str) -> bool {
    let ours = ["crates/", "docs/", "xtask/", "ci/", ".ci/", ".config/"];
    let of_crate = span.starts_with(PREFIX) && span.contains('/');
    let path = span
        .chars()
        .all(|ch| ch.is_ascii_alphanumeric() || "-_./{},".contains(ch));
    let is_rust = Path::new(span).extension().is_some_and(|ext| ext == "rs");
    path && (of_crate || is_rust || ours.iter().any(|start| span.starts_with(start)))
}

#[test]
fn the_table_of_crates_is_what_the_manifests_say() {
    let text = architecture();
    let mut listed = BTreeMap::new();
    for row in section(&text, "Crates").lines().filter_map(cells) {
        let Some(name) = row[0]
            .strip_prefix('`')
            .and_then(|name| name.strip_suffix('`'))
        else {
            continue;
        };
        let uses: BTreeSet<String> = row[2]
            .split(", ")
            .filter(|name| *name != "–")
            .map(|name| format!("{PREFIX}{name}"))
            .collect();
        listed.insert(name.to_owned(), uses);
    }
    let packages = packages();
    let names: BTreeSet<&str> = packages
        .iter()
        .map(|package| package["name"].as_str().unwrap())
        .collect();
    let real: BTreeMap<String, BTreeSet<String>> = packages
        .iter()
        .map(|package| {
            let uses = package["dependencies"].as_array().unwrap().iter();
            let uses = uses
                .filter(|dependency| dependency["kind"] != "dev")
                .map(|dependency| dependency["name"].as_str().unwrap())
                .filter(|name| names.contains(name))
                .map(str::to_owned)
                .collect();
            (package["name"].as_str().unwrap().to_owned(), uses)
        })
        .collect();
    assert_eq!(
        listed, real,
        "correct the table of crates in ARCHITECTURE.md (left) by the manifests (right)"
    );
}

#[test]
fn every_file_that_is_named_exists() {
    let (mut seen, mut missing) = (0, Vec::new());
    for document in documents() {
        let text = fs::read_to_string(&document).unwrap();
        for span in code_spans(&text).into_iter().filter(|span| is_path(span)) {
            for path in alternatives(span) {
                seen += 1;
                if !exists(&path) {
                    missing.push(format!("{}: {path}", document.display()));
                }
            }
        }
    }
    assert!(seen > 100, "only {seen} paths were found");
    assert!(missing.is_empty(), "no such file:\n{}", missing.join("\n"));
}

#[test]
fn every_link_leads_somewhere() {
    let (mut seen, mut broken) = (0, Vec::new());
    for document in documents() {
        let text = fs::read_to_string(&document).unwrap();
        let plain: Vec<&str> = outside_fences(&text).collect();
        for target in plain.iter().flat_map(|line| links(line)) {
            if target.contains("://") || target.starts_with("mailto:") {
                continue;
            }
            seen += 1;
            let (file, anchor) = target.split_once('#').unwrap_or((target, ""));
            let path = match file {
                "" => document.clone(),
                _ => document.parent().unwrap().join(file),
            };
            if !path.exists() {
                broken.push(format!("{}: {target}", document.display()));
            } else if !anchor.is_empty() && !anchors(&path).contains(anchor) {
                broken.push(format!("{}: no heading {target}", document.display()));
            }
        }
    }
    assert!(seen > 50, "only {seen} links were found");
    assert!(broken.is_empty(), "broken links:\n{}", broken.join("\n"));
}

/// The targets of `[text](target)` on a line.
fn links(line: &str) -> Vec<&str> {
    line.split("](")
        .skip(1)
        .filter_map(|rest| rest.split_once(')').map(|(target, _)| target))
        .collect()
}

/// The anchors that a Markdown viewer gives to headings.
fn anchors(path: &Path) -> BTreeSet<String> {
    let text = fs::read_to_string(path).unwrap();
    outside_fences(&text)
        .filter(|line| line.starts_with('#'))
        .map(|line| {
            line.trim_start_matches('#')
                .trim()
                .to_lowercase()
                .chars()
                .filter(|ch| ch.is_alphanumeric() || " -_".contains(*ch))
                .map(|ch| if ch == ' ' { '-' } else { ch })
                .collect()
        })
        .collect()
}

/// Rows of the walks name a file and functions that are defined in it.
#[test]
fn the_walks_name_functions_that_exist() {
    let text = architecture();
    let (mut seen, mut missing) = (0, Vec::new());
    let walks = text
        .lines()
        .filter_map(|line| line.strip_prefix("## "))
        .filter(|heading| heading.starts_with("Walk "));
    for walk in walks {
        for row in section(&text, walk).lines().filter_map(cells).skip(1) {
            let file = row[0].trim_matches('`');
            let source = fs::read_to_string(workspace().join("crates").join(file)).unwrap();
            for name in code_spans(row[1]) {
                seen += 1;
                let defined = source
                    .split(&format!("fn {name}"))
                    .skip(1)
                    .any(|rest| rest.starts_with(['(', '<']));
                if !defined {
                    missing.push(format!("{walk}: {file} has no function {name}"));
                }
            }
        }
    }
    assert!(seen > 100, "only {seen} functions were found");
    assert!(missing.is_empty(), "{}", missing.join("\n"));
}

/// Names in parentheses in the last column of "Where to look for a change" and of docs/limits.md occur in a
/// file of their row. Each row of docs/limits.md has such a name.
#[test]
fn the_tables_of_changes_and_limits_name_what_is_in_their_files() {
    let text = architecture();
    let limits = fs::read_to_string(workspace().join("docs/limits.md")).unwrap();
    let changes = section(&text, "Where to look for a change");
    let (mut seen, mut missing) = (0, Vec::new());
    for (rows, always_named) in [(changes, false), (limits.as_str(), true)] {
        for row in rows.lines().filter_map(cells) {
            let place = *row.last().unwrap();
            let sources: Vec<String> = code_spans(place)
                .into_iter()
                .filter(|span| is_path(span))
                .flat_map(alternatives)
                .filter_map(|path| fs::read_to_string(workspace().join("crates").join(path)).ok())
                .collect();
            let names: Vec<&str> = in_parentheses(place).flat_map(code_spans).collect();
            if always_named && names.is_empty() && place != "where" {
                missing.push(format!("{}: no name in parentheses", row[0]));
            }
            for name in names {
                seen += 1;
                if !sources.iter().any(|source| has_word(source, name)) {
                    missing.push(format!("{place}: no {name}"));
                }
            }
        }
    }
    assert!(seen > 300, "only {seen} names were found");
    assert!(missing.is_empty(), "{}", missing.join("\n"));
}

/// Whether `name` occurs as a whole identifier.
fn has_word(source: &str, name: &str) -> bool {
    let is_part = |ch: char| ch.is_alphanumeric() || ch == '_';
    source.match_indices(name).any(|(at, _)| {
        !source[..at].ends_with(is_part) && !source[at + name.len()..].starts_with(is_part)
    })
}

/// Constants with a plain number have the value that docs/limits.md states.
#[test]
fn the_stated_limits_are_those_of_the_code() {
    let text = fs::read_to_string(workspace().join("docs/limits.md")).unwrap();
    let (mut seen, mut wrong) = (0, Vec::new());
    for row in text.lines().filter_map(cells) {
        let [.., value, place] = row[..] else {
            continue;
        };
        let spans = code_spans(place);
        let [file, name] = spans[..] else {
            continue;
        };
        let source = fs::read_to_string(workspace().join("crates").join(file)).unwrap();
        let definition = source.split_once(&format!("const {name}: "));
        let Some((expression, _)) = definition
            .and_then(|(_, rest)| rest.split_once('='))
            .and_then(|(_, rest)| rest.split_once(';'))
        else {
            continue;
        };
        if let (Some(real), Some(stated)) = (amount(expression), stated_amount(value)) {
            seen += 1;
            if (real - stated).abs() > 1e-6 * real.abs() {
                wrong.push(format!(
                    "{file}: {name} is {}, not {value}",
                    expression.trim()
                ));
            }
        }
    }
    assert!(seen > 250, "only {seen} values were compared");
    assert!(
        wrong.is_empty(),
        "correct docs/limits.md:\n{}",
        wrong.join("\n")
    );
}

/// The value of `64 * 1024`, `16 << 20`, `Duration::from_mins(3)`; times in seconds. `None`: something else.
fn amount(expression: &str) -> Option<f64> {
    let expression = expression.trim();
    if let Some(call) = expression.strip_prefix("Duration::from_") {
        let (unit, number) = call.split_once('(')?;
        let seconds = match unit {
            "micros" => 1e-6,
            "millis" => 1e-3,
            "secs" => 1.0,
            "mins" => 60.0,
            "hours" => 3600.0,
            _ => return None,
        };
        return Some(seconds * amount(number.strip_suffix(')')?)?);
    }
    if let Some((number, bits)) = expression.split_once("<<") {
        return Some(amount(number)? * amount(bits)?.exp2());
    }
    let factors = expression.split('*');
    factors
        .map(|factor| factor.trim().replace('_', "").parse::<f64>().ok())
        .product()
}

/// The value of `64 KiB`, `3 min`, `1,500 characters`; times in seconds.
fn stated_amount(text: &str) -> Option<f64> {
    let (number, unit) = text.split_once(' ').unwrap_or((text, ""));
    let scale = match unit {
        "ms" => 1e-3,
        "min" => 60.0,
        "h" => 3600.0,
        "days" => 86_400.0,
        "kB" => 1e3,
        "MB" => 1e6,
        "KiB" => 1024.0,
        "MiB" => 1_048_576.0,
        "GiB" => 1_073_741_824.0,
        _ => 1.0,
    };
    let number = number.replace(',', "").parse::<f64>().ok()?;
    Some(number * scale)
}

fn in_parentheses(text: &str) -> impl Iterator<Item = &str> {
    let parts = text.split('(').skip(1);
    parts.filter_map(|rest| rest.split_once(')').map(|(inner, _)| inner))
}

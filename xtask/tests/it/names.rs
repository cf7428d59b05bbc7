//! A type has a name of its own: whoever reads `Settings` should not have to ask whose.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use crate::files::rust_files;
use crate::workspace;

/// Names of types that are defined more than once. Only ever lowered.
const MAX_SHARED: usize = 0;
/// Names that are defined four times or more. Only ever lowered.
const MAX_SHARED_BY_MANY: usize = 0;
const MANY: usize = 4;
/// A ceiling this far above the count is lowered, so that what was gained is kept. Not at once: work
/// that is merged side by side would collide there.
const SLACK: usize = 20;

/// Where each type is defined that other files can see.
fn visible_types() -> BTreeMap<String, Vec<String>> {
    let mut found: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for path in rust_files() {
        let Ok(path) = path.strip_prefix(workspace()) else {
            continue;
        };
        if !is_source(path) {
            continue;
        }
        let text = fs::read_to_string(workspace().join(path)).unwrap();
        for (name, line) in types_of(&text) {
            let place = format!("{}:{line}", path.display());
            found.entry(name).or_default().push(place);
        }
    }
    found
}

/// `crates/*/src`, without the tests in it.
fn is_source(path: &Path) -> bool {
    let mut parts = path
        .components()
        .map(|part| part.as_os_str().to_string_lossy());
    let is_test = |part: &str| {
        let part = part.trim_end_matches(".rs");
        part == "tests" || part.ends_with("_tests")
    };
    parts.next().as_deref() == Some("crates")
        && parts.nth(1).as_deref() == Some("src")
        && !parts.any(|part| is_test(&part))
}

/// The types of a file that are visible outside of it, with their lines.
fn types_of(text: &str) -> Vec<(String, usize)> {
    let mut found = Vec::new();
    let mut lines = text.lines().enumerate().peekable();
    while let Some((number, line)) = lines.next() {
        let blanks = &line[..line.len() - line.trim_start().len()];
        let is_module = |next: &str| next.contains("mod ") && next.ends_with('{');
        if line.trim() == "#[cfg(test)]" && lines.peek().is_some_and(|(_, next)| is_module(next)) {
            let end = format!("{blanks}}}");
            lines.by_ref().find(|(_, line)| *line == end);
        } else if let Some(name) = visible_type(line.trim_start()) {
            found.push((name.to_owned(), number + 1));
        }
    }
    found
}

fn visible_type(line: &str) -> Option<&str> {
    let rest = line.strip_prefix("pub")?;
    let rest = match rest.strip_prefix('(') {
        Some(scope) => scope.split_once(')')?.1,
        None => rest,
    };
    let rest = rest.strip_prefix(' ')?;
    let (kind, rest) = rest.split_once(' ')?;
    let end = rest.find(|c: char| !c.is_alphanumeric() && c != '_');
    let name = &rest[..end.unwrap_or(rest.len())];
    ["struct", "enum", "trait", "type", "union"]
        .contains(&kind)
        .then_some(name)
}

fn shared(least: usize) -> Vec<(String, Vec<String>)> {
    let mut shared: Vec<_> = visible_types()
        .into_iter()
        .filter(|(_, places)| places.len() >= least)
        .collect();
    shared.sort_by_key(|(name, places)| (std::cmp::Reverse(places.len()), name.clone()));
    shared
}

fn keep_ceiling(constant: &str, ceiling: usize, shared: &[(String, Vec<String>)]) {
    let count = shared.len();
    let lines: Vec<String> = shared
        .iter()
        .map(|(name, places)| format!("  {name} ({}): {}", places.len(), places.join(", ")))
        .collect();
    let list = lines.join("\n");
    assert!(
        count <= ceiling,
        "{count} names of types are shared, {ceiling} may be; give the new type a name that says what it is:\n{list}"
    );
    assert!(
        count + SLACK >= ceiling,
        "only {count} names of types are shared: lower {constant} to {count}"
    );
}

#[test]
fn names_of_types_are_not_shared_more_than_before() {
    keep_ceiling("MAX_SHARED", MAX_SHARED, &shared(2));
    keep_ceiling("MAX_SHARED_BY_MANY", MAX_SHARED_BY_MANY, &shared(MANY));
}

#[test]
fn visible_types_are_found() {
    let text = "pub struct A;\n    pub(crate) enum B {}\npub(in crate::x) type C<T> = T;\nstruct D;\n\
                pub trait E: Send {}\npub fn struct_f() {}\n#[cfg(test)]\nmod tests {\n    pub struct G;\n}\n\
                pub struct H {\n";
    let found: Vec<_> = types_of(text).into_iter().map(|(name, _)| name).collect();
    assert_eq!(found, ["A", "B", "C", "E", "H"]);
    assert!(is_source(Path::new("crates/a/src/b/c.rs")));
    assert!(!is_source(Path::new("crates/a/src/b/tests.rs")));
    assert!(!is_source(Path::new("crates/a/src/b/claim_tests.rs")));
    assert!(!is_source(Path::new("crates/a/tests/it/main.rs")));
}

//! Files stay small enough to read.

use std::fs;
use std::path::{Path, PathBuf};

use crate::workspace;

const MAX_LINES: usize = 800;

pub(crate) fn rust_files() -> Vec<PathBuf> {
    let mut found = Vec::new();
    for root in ["crates", "xtask"] {
        collect(&workspace().join(root), &mut found);
    }
    assert!(found.len() > 10, "looked in the wrong place: {found:?}");
    found
}

fn collect(directory: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            let name = path.file_name().unwrap().to_string_lossy().into_owned();
            if !name.starts_with("target") && !name.starts_with('.') {
                collect(&path, found);
            }
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            found.push(path);
        }
    }
}

#[test]
fn no_source_file_is_longer_than_800_lines() {
    let long: Vec<String> = rust_files()
        .iter()
        .filter_map(|path| {
            let lines = fs::read_to_string(path).unwrap().lines().count();
            (lines > MAX_LINES).then(|| format!("{}: {lines}", path.display()))
        })
        .collect();
    assert!(long.is_empty(), "split these files: {long:#?}");
}

#[test]
fn no_code_is_pasted_in_by_include() {
    // Spelled in two halves, so that this file does not find itself.
    let forbidden = concat!("include", "!(");
    let guilty: Vec<PathBuf> = rust_files()
        .into_iter()
        .filter(|path| fs::read_to_string(path).unwrap().contains(forbidden))
        .collect();
    assert!(
        guilty.is_empty(),
        "use modules instead of include: {guilty:#?}"
    );
}

#[test]
fn every_fuzz_target_has_a_corpus_a_dictionary_and_a_place_in_the_test_run() {
    let corpus = workspace().join("crates/hermes-fuzz/corpus");
    let main = fs::read_to_string(workspace().join("crates/hermes-fuzz/src/main.rs")).unwrap();
    let crates = fs::read_dir(workspace().join("crates")).unwrap();
    let tests: String = crates
        .filter_map(|entry| fs::read_to_string(entry.unwrap().path().join("src/fuzz.rs")).ok())
        .collect();
    let mut targets = 0;
    for entry in fs::read_dir(&corpus).unwrap() {
        let path = entry.unwrap().path();
        if !path.is_dir() {
            continue;
        }
        targets += 1;
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        assert!(corpus.join(format!("{name}.dict")).exists(), "{name}");
        assert!(main.contains(&format!("(\"{name}\", ")), "{name}");
        assert!(tests.contains(&format!("run(\"{name}\", ")), "{name}");
    }
    assert_eq!(main.matches("::fuzz::").count(), targets);
}

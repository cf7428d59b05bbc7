//! Suggestions for a wrong path.

use std::path::{Path, PathBuf};

const MAX_NAMES: usize = 5;

pub(super) enum SimilarPaths {
    /// Paths that look alike, best first.
    Names(Vec<String>),
    /// Not even the directory exists.
    NoDirectory(PathBuf),
}

pub(super) fn names(path: &Path) -> SimilarPaths {
    let dir = path.parent().unwrap_or(path);
    let Ok(entries) = std::fs::read_dir(dir) else {
        return SimilarPaths::NoDirectory(dir.to_path_buf());
    };
    let wanted = path
        .file_name()
        .unwrap_or_default()
        .to_string_lossy()
        .to_lowercase();
    let mut found: Vec<(usize, String)> = entries
        .flatten()
        .filter_map(|entry| {
            let name = entry.file_name().to_string_lossy().into_owned();
            let distance = distance(&wanted, &name.to_lowercase())?;
            Some((distance, dir.join(name).display().to_string()))
        })
        .collect();
    found.sort();
    SimilarPaths::Names(
        found
            .into_iter()
            .map(|(_, name)| name)
            .take(MAX_NAMES)
            .collect(),
    )
}

/// The distance between two names; `None` if they are unrelated.
fn distance(wanted: &str, name: &str) -> Option<usize> {
    let stem = |name: &str| {
        name.split('.')
            .find(|part| !part.is_empty())
            .unwrap_or(name)
            .to_owned()
    };
    if wanted == name {
        return Some(0);
    }
    let edits = edits(wanted, name);
    if stem(wanted) == stem(name) {
        return Some(1.max(edits.min(2)));
    }
    let close = edits * 3 <= wanted.chars().count().max(3);
    let part = wanted.len() >= 3
        && (name.contains(wanted) || wanted.contains(&stem(name)) && stem(name).len() >= 3);
    (close || part).then_some(2 + edits)
}

/// Edit distance.
fn edits(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.chars().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, y) in b.iter().enumerate() {
            let replace = diagonal + usize::from(x != *y);
            diagonal = row[j + 1];
            row[j + 1] = replace.min(row[j] + 1).min(diagonal + 1);
        }
    }
    row[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn close_names_come_first_and_strangers_not_at_all() {
        let dir = tempfile::tempdir().unwrap();
        for name in [
            "config.yaml",
            "config.yml",
            "README.md",
            "congif.yaml",
            "zebra.bin",
        ] {
            std::fs::write(dir.path().join(name), "").unwrap();
        }
        let SimilarPaths::Names(names) = names(&dir.path().join("Config.yaml")) else {
            panic!()
        };
        let names: Vec<&str> = names
            .iter()
            .map(|name| name.rsplit('/').next().unwrap())
            .collect();
        assert_eq!(names, ["config.yaml", "config.yml", "congif.yaml"]);
        assert!(matches!(
            super::names(&dir.path().join("no/x")),
            SimilarPaths::NoDirectory(_)
        ));
    }
}

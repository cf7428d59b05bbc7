//! Finding files below a skills directory.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};

/// Directories that are skipped: version control, dependencies, caches, and the library's own
/// records.
const SKIPPED: [&str; 14] = [
    ".git",
    ".github",
    ".hub",
    ".archive",
    ".venv",
    "venv",
    "node_modules",
    "site-packages",
    "__pycache__",
    ".tox",
    ".nox",
    ".pytest_cache",
    ".mypy_cache",
    ".ruff_cache",
];

/// Directories of a skill whose files are loaded on demand; they contain no skills.
pub(super) const SUPPORT: [&str; 4] = ["references", "templates", "assets", "scripts"];

/// Deeper than any sensible tree; a fallback for loops that the check misses.
const MAX_DEPTH: usize = 32;

/// Every file below `root` that `wanted` accepts, sorted by path. Follows links to directories, but
/// never into a directory that is being traversed.
pub(super) fn files(root: &Path, wanted: impl Fn(&Path) -> bool) -> Vec<PathBuf> {
    walk_tree(root, wanted, |_| ()).files
}

/// The result of a walk. `T` is the data recorded for a directory before it is listed.
pub(super) struct WalkedTree<T> {
    pub(super) files: Vec<PathBuf>,
    pub(super) dirs: Vec<(PathBuf, T)>,
    /// There is a dangling link: its target may appear without a change here.
    pub(super) has_dangling_link: bool,
}

/// Like [`files`], with the directories that were listed.
pub(super) fn walk_tree<T>(
    root: &Path,
    wanted: impl Fn(&Path) -> bool,
    note: impl Fn(&Path) -> T,
) -> WalkedTree<T> {
    let mut tree = WalkedTree {
        files: Vec::new(),
        dirs: Vec::new(),
        has_dangling_link: false,
    };
    if root.is_dir() {
        descend(root, (&wanted, &note), &mut Vec::new(), &mut tree);
    }
    tree.files.sort_by(|a, b| a.as_os_str().cmp(b.as_os_str()));
    tree
}

/// Every `name` (`SKILL.md`, `DESCRIPTION.md`) below `root`.
pub(super) fn files_named(root: &Path, name: &str) -> Vec<PathBuf> {
    files(root, |path| path.file_name() == Some(OsStr::new(name)))
}

fn descend<T>(
    dir: &Path,
    (wanted, note): (&impl Fn(&Path) -> bool, &impl Fn(&Path) -> T),
    inside: &mut Vec<PathBuf>,
    tree: &mut WalkedTree<T>,
) {
    if inside.len() >= MAX_DEPTH {
        return;
    }
    tree.dirs.push((dir.to_path_buf(), note(dir)));
    let Ok(entries) = std::fs::read_dir(dir) else {
        tracing::warn!(dir = %dir.display(), "cannot list a skills directory");
        return;
    };
    let is_skill = dir.join("SKILL.md").is_file();
    inside.push(dir.to_path_buf());
    for entry in entries.flatten() {
        let path = entry.path();
        // A link counts as its target; only a link can make a directory contain itself.
        let Ok(kind) = entry.file_type() else {
            continue;
        };
        let leads_back = || {
            let real = path.canonicalize().ok();
            real.is_none() || inside.iter().any(|dir| dir.canonicalize().ok() == real)
        };
        let is_dir = kind.is_dir() || (kind.is_symlink() && path.is_dir() && !leads_back());
        if is_dir {
            let name = entry.file_name();
            let name = name.to_string_lossy();
            let support = is_skill && SUPPORT.contains(&&*name);
            if !support && !SKIPPED.contains(&&*name) {
                descend(&path, (wanted, note), inside, tree);
            }
        } else if wanted(&path) && (kind.is_file() || (kind.is_symlink() && path.is_file())) {
            // Reading a pipe would wait for a writer.
            tree.files.push(path);
        } else if kind.is_symlink() && !path.exists() {
            tree.has_dangling_link = true;
        }
    }
    inside.pop();
}

/// Every file below `dir`, relative to it, sorted component by component. Links to directories are
/// not followed.
pub(super) fn relative_files(dir: &Path) -> std::io::Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    let mut open = vec![dir.to_path_buf()];
    while let Some(current) = open.pop() {
        for entry in std::fs::read_dir(&current)? {
            let entry = entry?;
            let path = entry.path();
            if entry.file_type()?.is_dir() {
                open.push(path);
            } else if path.is_file()
                && let Ok(relative) = path.strip_prefix(dir)
            {
                found.push(relative.to_path_buf());
            }
        }
    }
    // `Path` compares by components, as the manifest hash requires.
    found.sort();
    Ok(found)
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use super::*;

    fn touch(root: &Path, path: &str) {
        let path = root.join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, "x").unwrap();
    }

    fn found(root: &Path) -> Vec<String> {
        files_named(root, "SKILL.md")
            .iter()
            .map(|path| path.strip_prefix(root).unwrap().display().to_string())
            .collect()
    }

    #[test]
    fn support_and_dependency_directories_hold_no_skills() {
        let root = tempfile::tempdir().unwrap();
        for path in [
            "cat/one/SKILL.md",
            "cat/one/references/old/SKILL.md",
            "scripts/two/SKILL.md",
            ".git/x/SKILL.md",
            "node_modules/y/SKILL.md",
            ".archive/z/SKILL.md",
        ] {
            touch(root.path(), path);
        }
        assert_eq!(
            found(root.path()),
            ["cat/one/SKILL.md", "scripts/two/SKILL.md"]
        );
    }

    #[test]
    fn links_are_followed_and_loops_end() {
        let root = tempfile::tempdir().unwrap();
        let elsewhere = tempfile::tempdir().unwrap();
        touch(elsewhere.path(), "three/SKILL.md");
        touch(root.path(), "a/SKILL.md");
        symlink(elsewhere.path(), root.path().join("linked")).unwrap();
        symlink(root.path(), root.path().join("a/loop")).unwrap();
        symlink("nowhere", root.path().join("dangling")).unwrap();
        // What cannot be read as a file is no skill.
        fs::create_dir(root.path().join("socket")).unwrap();
        let socket = root.path().join("socket/SKILL.md");
        let _open = std::os::unix::net::UnixListener::bind(socket).unwrap();
        assert_eq!(found(root.path()), ["a/SKILL.md", "linked/three/SKILL.md"]);
    }

    #[test]
    fn a_tree_is_sorted_part_by_part() {
        let root = tempfile::tempdir().unwrap();
        for path in ["a-b/x", "a/y", "a.md", ".hidden"] {
            touch(root.path(), path);
        }
        let tree = relative_files(root.path()).unwrap();
        let tree: Vec<_> = tree.iter().map(|path| path.to_str().unwrap()).collect();
        assert_eq!(tree, [".hidden", "a/y", "a-b/x", "a.md"]);
    }
}

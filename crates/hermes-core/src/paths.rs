//! Paths as text: nothing here accesses the disk.

use std::path::{Component, Path, PathBuf};

/// Removes `.` and `..`. A link before a `..` is not followed: use it where the path does not exist,
/// or is on another machine.
pub fn lexically_normal(path: &Path) -> PathBuf {
    let mut normal = PathBuf::new();
    for part in path.components() {
        match part {
            Component::ParentDir => {
                normal.pop();
            }
            Component::CurDir => {}
            part => normal.push(part),
        }
    }
    normal
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dots_are_removed() {
        for (path, normal) in [
            ("/a/./b/../c", "/a/c"),
            ("/../a", "/a"),
            ("a/b/..", "a"),
            ("../a", "a"),
            (".", ""),
        ] {
            assert_eq!(
                lexically_normal(Path::new(path)),
                Path::new(normal),
                "{path}"
            );
        }
    }
}

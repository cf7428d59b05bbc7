//! The skills shipped by the original: `skills/.bundled_manifest`, lines of `name:md5`. We ship
//! none, so the file is only read: writing it would bring deleted skills back.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io;
use std::path::Path;

use md5::{Digest as _, Md5};

use super::walk;

/// Name → hash of the skill as shipped (empty in files of the first format).
pub fn read(skills_dir: &Path) -> io::Result<BTreeMap<String, String>> {
    let text = match std::fs::read_to_string(skills_dir.join(".bundled_manifest")) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(BTreeMap::new()),
        text => text?,
    };
    Ok(text
        .lines()
        .map(str::trim)
        .filter(|line| !line.is_empty())
        .map(|line| match line.split_once(':') {
            Some((name, hash)) => (name.trim().to_owned(), hash.trim().to_owned()),
            None => (line.to_owned(), String::new()),
        })
        .collect())
}

/// The hash of a skill directory as in the manifest: over the path and bytes of every file.
pub fn hash(dir: &Path) -> io::Result<String> {
    let mut hasher = Md5::new();
    for file in walk::relative_files(dir)? {
        hasher.update(file.to_string_lossy().as_bytes());
        hasher.update(std::fs::read(dir.join(&file))?);
    }
    let mut hex = String::with_capacity(32);
    for byte in hasher.finalize() {
        let _ = write!(hex, "{byte:02x}");
    }
    Ok(hex)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_hash_covers_paths_and_bytes_in_order() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir(dir.path().join("b")).unwrap();
        std::fs::write(dir.path().join("b/c.md"), "two").unwrap();
        std::fs::write(dir.path().join("SKILL.md"), "one").unwrap();
        // md5("SKILL.md" "one" "b/c.md" "two")
        assert_eq!(
            hash(dir.path()).unwrap(),
            "8cede3bb2f9b9929e514436dabe0a229"
        );
    }

    #[test]
    fn both_formats_of_the_list_are_read() {
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(read(dir.path()).unwrap(), BTreeMap::new());
        std::fs::write(dir.path().join(".bundled_manifest"), "plan:abc\n\nold\n").unwrap();
        let manifest = read(dir.path()).unwrap();
        assert_eq!(manifest["plan"], "abc");
        assert_eq!(manifest["old"], "");
    }
}

//! The skills shipped by the original: `skills/.bundled_manifest`, lines of `name:md5`. We ship
//! none, so the file is only read: writing it would bring deleted skills back.

use std::collections::BTreeSet;
use std::io;
use std::path::Path;

/// The names in the manifest. Files of the first format have no hashes.
pub fn bundled_skills(skills_dir: &Path) -> io::Result<BTreeSet<String>> {
    let text = match std::fs::read_to_string(skills_dir.join(".bundled_manifest")) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(BTreeSet::new()),
        text => text?,
    };
    Ok(text
        .lines()
        .map(|line| line.split_once(':').map_or(line, |(name, _)| name).trim())
        .filter(|name| !name.is_empty())
        .map(str::to_owned)
        .collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_formats_of_the_list_are_read() {
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(bundled_skills(dir.path()).unwrap(), BTreeSet::new());
        std::fs::write(dir.path().join(".bundled_manifest"), "plan:abc\n\nold\n").unwrap();
        let names = bundled_skills(dir.path()).unwrap();
        assert_eq!(names, BTreeSet::from(["old".to_owned(), "plan".to_owned()]));
    }
}

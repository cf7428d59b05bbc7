//! How git recognises a repository that is not named `.git`: by its entries.

use std::path::Path;

use super::tracked_fs;

/// The entries that decide.
pub(super) const GIT_ENTRIES: [&str; 4] = ["HEAD", "objects", "refs", "commondir"];

/// Which of the entries a directory has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct GitLayout([bool; GIT_ENTRIES.len()]);

impl GitLayout {
    pub(super) fn of(dir: &Path) -> Self {
        Self(GIT_ENTRIES.map(|name| tracked_fs::lstat(&dir.join(name)).is_ok()))
    }

    pub(super) fn add(&mut self, name: &str) {
        for (known, has) in GIT_ENTRIES.iter().zip(&mut self.0) {
            *has |= *known == name;
        }
    }

    /// Objects and references may lie in another directory, which `commondir` names.
    pub(super) fn is_repository(self) -> bool {
        let [head, objects, refs, elsewhere] = self.0;
        head && (elsewhere || (objects && refs))
    }
}

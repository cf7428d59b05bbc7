//! Replaces a home by an imported one.

use std::fs::Permissions;
use std::io;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use hermes_config::fs::{create_private_dir, sync_dir};
use tempfile::TempDir;

use crate::exit::Failure;
use hermes_core::figures::size;

/// A new home in the making, removed again unless it takes its place.
pub(super) struct Staging {
    dir: TempDir,
    /// Inside the home, because nothing can be put beside it (the root of a volume).
    inside: bool,
}

impl Staging {
    /// A directory on the same disk as the home, with room for `bytes`.
    pub(super) fn beside(root: &Path, bytes: u64) -> Result<Self, Failure> {
        let fail = |error: io::Error| {
            Failure::failed(format!("cannot write next to {}: {error}", root.display()))
        };
        let mut builder = tempfile::Builder::new();
        let builder = builder
            .prefix(".hermes-import-")
            .permissions(Permissions::from_mode(0o700));
        let parent = root.parent().unwrap_or(root);
        let mut staging = None;
        if !is_mount(root, parent) {
            create_private_dir(parent).map_err(fail)?;
            staging = builder
                .tempdir_in(parent)
                .ok()
                .map(|dir| Self { dir, inside: false });
        }
        let staging = if let Some(staging) = staging {
            staging
        } else {
            create_private_dir(root).map_err(fail)?;
            let dir = builder.tempdir_in(root).map_err(fail)?;
            Self { dir, inside: true }
        };
        let disk = rustix::fs::statvfs(staging.path()).map_err(|error| fail(error.into()))?;
        let free = disk.f_bavail.saturating_mul(disk.f_frsize);
        if bytes > free {
            return Err(Failure::failed(format!(
                "the backup needs {}, but only {} is free next to {}; nothing was changed",
                size(bytes),
                size(free),
                root.display()
            )));
        }
        Ok(staging)
    }

    pub(super) fn path(&self) -> &Path {
        self.dir.path()
    }

    /// Puts the old home aside and this one in its place. Where the old one is now, if there was one.
    pub(super) fn take_the_place_of(
        self,
        root: &Path,
        occupied: bool,
        stamp: &str,
    ) -> Result<Option<PathBuf>, Failure> {
        if let Ok(dir) = std::fs::File::open(self.path()) {
            // The new home is on the disk before the old one moves.
            let _ = rustix::fs::syncfs(dir);
        }
        let previous = if self.inside {
            self.swap_entries(root, stamp)
        } else {
            self.swap_whole(root, stamp)
        };
        let previous = previous.map_err(|error| {
            Failure::failed(format!(
                "cannot replace {}: {error}; the previous home is still in place",
                root.display()
            ))
        })?;
        match previous {
            // Only empty directories were there.
            Some(previous) if !occupied => {
                let _ = std::fs::remove_dir_all(previous);
                Ok(None)
            }
            previous => Ok(previous),
        }
    }

    fn swap_whole(self, root: &Path, stamp: &str) -> io::Result<Option<PathBuf>> {
        let mut name = root.file_name().unwrap_or_default().to_owned();
        name.push(format!(".before-import-{stamp}"));
        let previous = root.with_file_name(name);
        let there = std::fs::symlink_metadata(root).is_ok();
        if there {
            std::fs::rename(root, &previous)?;
        }
        let staged = self.dir.keep();
        if let Err(error) = std::fs::rename(&staged, root) {
            if there {
                std::fs::rename(&previous, root)?;
            }
            let _ = std::fs::remove_dir_all(staged);
            return Err(error);
        }
        sync_dir(root.parent().unwrap_or(root))?;
        Ok(there.then_some(previous))
    }

    /// The same, entry by entry. What was moved goes back when one of them cannot be.
    fn swap_entries(self, root: &Path, stamp: &str) -> io::Result<Option<PathBuf>> {
        let previous = root.join(format!(".before-import-{stamp}"));
        create_private_dir(&previous)?;
        let staged = self.path().to_owned();
        let stays = |path: &Path| path == previous || path == staged;
        let mut moved: Vec<(PathBuf, PathBuf)> = Vec::new();
        let result = (|| {
            for (from, to) in [(root, previous.as_path()), (staged.as_path(), root)] {
                for entry in std::fs::read_dir(from)? {
                    let entry = entry?;
                    if !stays(&entry.path()) {
                        let target = to.join(entry.file_name());
                        std::fs::rename(entry.path(), &target)?;
                        moved.push((entry.path(), target));
                    }
                }
            }
            sync_dir(root)
        })();
        if let Err(error) = result {
            for (from, to) in moved.iter().rev() {
                std::fs::rename(to, from)?;
            }
            return Err(error);
        }
        Ok(Some(previous))
    }
}

/// A volume cannot be renamed.
fn is_mount(root: &Path, parent: &Path) -> bool {
    use std::os::unix::fs::MetadataExt as _;
    match (std::fs::metadata(root), std::fs::metadata(parent)) {
        (Ok(root), Ok(parent)) => root.dev() != parent.dev() || root.ino() == parent.ino(),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn staged(root: &Path, inside: bool) -> Staging {
        let dir = tempfile::tempdir_in(if inside { root } else { root.parent().unwrap() }).unwrap();
        std::fs::write(dir.path().join("config.yaml"), "new").unwrap();
        Staging { dir, inside }
    }

    #[test]
    fn the_old_home_is_kept_both_ways() {
        for inside in [false, true] {
            let dir = tempfile::tempdir().unwrap();
            let root = dir.path().join("home");
            std::fs::create_dir_all(root.join("skills")).unwrap();
            std::fs::write(root.join("config.yaml"), "old").unwrap();
            let staging = staged(&root, inside);
            let previous = staging
                .take_the_place_of(&root, true, "x")
                .unwrap()
                .unwrap();
            let read = |path: PathBuf| std::fs::read_to_string(path).unwrap();
            assert_eq!(read(root.join("config.yaml")), "new");
            assert_eq!(read(previous.join("config.yaml")), "old");
            assert!(previous.join("skills").is_dir());
            assert!(!root.join("skills").exists());
        }
    }

    #[test]
    fn a_home_that_cannot_be_replaced_stays() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().join("home");
        std::fs::create_dir_all(&root).unwrap();
        std::fs::write(root.join("config.yaml"), "old").unwrap();
        let staging = staged(&root, true);
        // The place for the old entries is taken by a file.
        std::fs::write(root.join(".before-import-x"), "").unwrap();
        assert!(staging.take_the_place_of(&root, true, "x").is_err());
        assert_eq!(
            std::fs::read_to_string(root.join("config.yaml")).unwrap(),
            "old"
        );
    }
}

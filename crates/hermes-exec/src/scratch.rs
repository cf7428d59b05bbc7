//! Temporary directories that are removed even if we are killed: each is locked while its owner lives, and
//! unlocked ones are removed by the next process.

use std::fs::{File, Permissions};
use std::io::{self, Write as _};
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, Mode, OFlags, flock, mkdirat, openat};
use rustix::io::Errno;
use rustix::process::getuid;
use tempfile::TempDir;

/// Our temporary directories start with one of these and a number.
const PREFIXES: [&str; 2] = ["hermes-exec-", "hermes-code-"];
/// Bounds of one sweep; the next one continues.
const MAX_SCANNED: usize = 20_000;
const MAX_REMOVED: usize = 64;
/// Attempts to create one that is not swept before it is locked.
const ATTEMPTS: usize = 3;

/// A private directory (0700), removed on drop.
#[derive(Debug)]
pub struct Scratch {
    dir: TempDir,
    /// The locked directory: the lock ends with the process, however that ends. `None`: locks are not supported
    /// there.
    lock: Option<File>,
}

impl Scratch {
    /// In the temporary directory.
    pub fn temporary(prefix: &str) -> io::Result<Self> {
        Self::within(&std::env::temp_dir(), prefix)
    }

    pub(crate) fn within(parent: &Path, prefix: &str) -> io::Result<Self> {
        let prefix = format!("{prefix}{}-", std::process::id());
        for _ in 0..ATTEMPTS {
            let dir = tempfile::Builder::new()
                .prefix(&prefix)
                .permissions(Permissions::from_mode(0o700))
                .tempdir_in(parent)?;
            let lock = match lock_unowned(dir.path()) {
                Ok(Some(lock)) => Some(lock),
                Ok(None) => continue,
                Err(error) => {
                    tracing::debug!("{} is not locked: {error}", dir.path().display());
                    None
                }
            };
            return Ok(Self { dir, lock });
        }
        Err(io::Error::other("somebody removes our directories"))
    }

    pub fn path(&self) -> &Path {
        self.dir.path()
    }

    /// Writes a new file in it, creating parent directories. Follows nothing that a confined command may have
    /// put in place of one of them or of this directory.
    pub fn write_new(&self, name: &Path, text: &str) -> io::Result<()> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let mut dir = match &self.lock {
            Some(lock) => lock.try_clone()?,
            None => rustix::fs::open(self.path(), flags, Mode::empty())?.into(),
        };
        for part in name.parent().into_iter().flatten() {
            match mkdirat(&dir, part, Mode::RWXU) {
                Ok(()) | Err(Errno::EXIST) => {}
                Err(error) => return Err(error.into()),
            }
            dir = openat(&dir, part, flags, Mode::empty())?.into();
        }
        let name = name.file_name().ok_or(io::ErrorKind::InvalidInput)?;
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
        let mut file = File::from(openat(&dir, name, flags, Mode::RUSR | Mode::WUSR)?);
        file.write_all(text.as_bytes())
    }
}

/// Whether a path lies directly in such a temporary directory.
pub(crate) fn is_in_scratch(path: &Path) -> bool {
    let Some(parent) = path.parent() else {
        return false;
    };
    let name = parent.file_name().unwrap_or_default().to_string_lossy();
    parent.parent() == Some(&std::env::temp_dir())
        && PREFIXES.iter().any(|prefix| name.starts_with(prefix))
}

/// Locks one of our directories that has no owner; `None` for all others.
fn lock_unowned(path: &Path) -> io::Result<Option<File>> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let file = match rustix::fs::open(path, flags, Mode::empty()) {
        Ok(fd) => File::from(fd),
        Err(Errno::NOENT) => return Ok(None),
        Err(error) => return Err(error.into()),
    };
    let held = file.metadata()?;
    if held.uid() != getuid().as_raw() {
        return Ok(None);
    }
    match flock(&file, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => {}
        Err(Errno::WOULDBLOCK) => return Ok(None),
        Err(error) => return Err(error.into()),
    }
    // Another process may have removed it in between.
    let same = std::fs::symlink_metadata(path)
        .is_ok_and(|there| (there.dev(), there.ino()) == (held.dev(), held.ino()));
    Ok(same.then_some(file))
}

/// Removes what our killed processes left in temporary directories.
pub(crate) fn sweep_temporary() {
    sweep(&std::env::temp_dir(), &PREFIXES);
}

/// Removes directories of this user with such names that have no owner. Links are not followed.
pub(crate) fn sweep(parent: &Path, prefixes: &[&str]) {
    let left = std::fs::read_dir(parent)
        .into_iter()
        .flatten()
        .take(MAX_SCANNED)
        .flatten()
        .filter(|entry| {
            entry
                .file_name()
                .to_str()
                .is_some_and(|name| prefixes.iter().any(|prefix| has_scratch_name(name, prefix)))
        })
        .map(|entry| entry.path());
    let removable = left.filter_map(|path: PathBuf| Some((lock_unowned(&path).ok()??, path)));
    for (lock, path) in removable.take(MAX_REMOVED) {
        if let Err(error) = std::fs::remove_dir_all(&path) {
            tracing::debug!("{}: {error}", path.display());
        }
        drop(lock);
    }
}

/// Prefix, number, rest: directories from before there were locks have no number.
fn has_scratch_name(name: &str, prefix: &str) -> bool {
    let number = name
        .strip_prefix(prefix)
        .and_then(|rest| rest.split_once('-'));
    number.is_some_and(|(number, _)| number.parse::<u32>().is_ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_nobody_owns_is_removed() {
        let parent = tempfile::tempdir().unwrap();
        let at = |name: &str| parent.path().join(name);
        let owned = Scratch::within(parent.path(), "hermes-exec-").unwrap();
        for name in ["hermes-exec-12-abc", "hermes-exec-abc", "other-12-abc"] {
            std::fs::create_dir_all(at(name).join("below")).unwrap();
        }
        std::fs::write(at("hermes-exec-13-file"), "").unwrap();
        std::fs::create_dir(at("kept")).unwrap();
        std::os::unix::fs::symlink(at("kept"), at("hermes-exec-14-link")).unwrap();
        std::os::unix::fs::symlink(at("kept"), at("hermes-exec-12-abc/link")).unwrap();
        sweep(parent.path(), &PREFIXES);
        assert!(!at("hermes-exec-12-abc").exists());
        for name in [
            "hermes-exec-abc",
            "other-12-abc",
            "hermes-exec-13-file",
            "kept",
            "hermes-exec-14-link",
        ] {
            assert!(at(name).exists(), "{name}");
        }
        let path = owned.path().to_owned();
        assert!(path.exists());
        drop(owned);
        assert!(!path.exists());
    }

    #[test]
    fn nobody_else_can_look_in() {
        let parent = tempfile::tempdir().unwrap();
        let own = Scratch::within(parent.path(), "hermes-exec-").unwrap();
        let mode = own.path().metadata().unwrap().mode();
        assert_eq!(mode & 0o777, 0o700);
    }

    #[test]
    fn what_is_put_in_its_place_gets_no_files() {
        let parent = tempfile::tempdir().unwrap();
        let outside = parent.path().join("outside");
        std::fs::create_dir(&outside).unwrap();
        let own = Scratch::within(parent.path(), "hermes-code-").unwrap();
        own.write_new(Path::new("lib/one.py"), "x").unwrap();
        let one = own.path().join("lib/one.py");
        assert_eq!(std::fs::read_to_string(one).unwrap(), "x");
        std::os::unix::fs::symlink(&outside, own.path().join("other")).unwrap();
        assert!(own.write_new(Path::new("other/two.py"), "x").is_err());
        assert!(own.write_new(Path::new("lib/one.py"), "x").is_err());
        // The whole directory was moved away.
        let moved = parent.path().join("moved");
        std::fs::rename(own.path(), &moved).unwrap();
        std::os::unix::fs::symlink(&outside, own.path()).unwrap();
        own.write_new(Path::new("three.py"), "x").unwrap();
        assert!(moved.join("three.py").exists());
        assert_eq!(std::fs::read_dir(&outside).unwrap().count(), 0);
    }

    #[test]
    fn a_sweep_is_bounded() {
        let parent = tempfile::tempdir().unwrap();
        for number in 0..MAX_REMOVED + 3 {
            let name = format!("hermes-exec-{number}-abc");
            std::fs::create_dir(parent.path().join(name)).unwrap();
        }
        sweep(parent.path(), &PREFIXES);
        assert_eq!(std::fs::read_dir(parent.path()).unwrap().count(), 3);
        sweep(parent.path(), &PREFIXES);
        assert_eq!(std::fs::read_dir(parent.path()).unwrap().count(), 0);
    }
}

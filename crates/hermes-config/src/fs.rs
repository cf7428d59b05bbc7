//! Atomic file writes, and locks shared with other programs.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::{
    DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _,
};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::fs::{FlockOperation, flock};

/// Maximum number of symlinks followed before reporting a loop.
const MAX_LINKS: usize = 40;

/// Replaces the content of `path` atomically.
///
/// A reader sees the old bytes or the new ones. The new bytes are on disk when this returns.
/// A symlink stays a symlink: its target is replaced. An existing file keeps its mode and owner;
/// a new one gets `mode_if_new` whatever the umask says.
pub fn write_atomic(path: &Path, bytes: &[u8], mode_if_new: u32) -> io::Result<()> {
    write_whole(path, bytes, mode_if_new).map_err(explain_full)
}

/// Describes a full disk and what to do about it; other errors unchanged.
pub fn explain_full(error: io::Error) -> io::Error {
    match error.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => io::Error::new(
            error.kind(),
            "the disk is full; nothing was changed. Make room, then try again",
        ),
        _ => error,
    }
}

fn write_whole(path: &Path, bytes: &[u8], mode_if_new: u32) -> io::Result<()> {
    let target = follow_links(path)?;
    let dir = parent_of(&target);
    let existing = match fs::metadata(&target) {
        Ok(meta) if meta.is_dir() => {
            return Err(io::Error::new(
                io::ErrorKind::IsADirectory,
                format!("{} is a directory", target.display()),
            ));
        }
        Ok(meta) => Some(meta),
        Err(err) if err.kind() == io::ErrorKind::NotFound => None,
        Err(err) => return Err(err),
    };
    let mut temp = tempfile::Builder::new()
        .prefix(".hermes-")
        .suffix(".tmp")
        .tempfile_in(dir)?;
    temp.write_all(bytes)?;
    let mode = existing
        .as_ref()
        .map_or(mode_if_new, |meta| meta.mode() & 0o7777);
    if let Some(meta) = &existing {
        keep_owner(temp.as_file(), meta)?;
    }
    // After chown, which clears the set-id bits.
    temp.as_file()
        .set_permissions(fs::Permissions::from_mode(mode))?;
    temp.as_file().sync_all()?;
    temp.persist(&target).map_err(|err| err.error)?;
    sync_dir(dir)
}

/// Gives the new file the owner of the old one, if permitted.
fn keep_owner(file: &File, old: &fs::Metadata) -> io::Result<()> {
    let new = file.metadata()?;
    if new.uid() == old.uid() && new.gid() == old.gid() {
        return Ok(());
    }
    let owner = rustix::fs::Uid::from_raw(old.uid());
    let group = rustix::fs::Gid::from_raw(old.gid());
    match rustix::fs::fchown(file, Some(owner), Some(group)) {
        Ok(()) => Ok(()),
        // Ordinary users may not change owners; the write itself is still correct.
        Err(rustix::io::Errno::PERM) => {
            tracing::debug!(
                uid = old.uid(),
                gid = old.gid(),
                "could not keep the file's owner"
            );
            Ok(())
        }
        Err(err) => Err(err.into()),
    }
}

/// Makes a rename or a new entry in `dir` durable.
pub fn sync_dir(dir: &Path) -> io::Result<()> {
    File::open(dir)?.sync_all()
}

/// The final target of `path`, which need not exist.
fn follow_links(path: &Path) -> io::Result<PathBuf> {
    let mut current = path.to_path_buf();
    for _ in 0..MAX_LINKS {
        match fs::symlink_metadata(&current) {
            Ok(meta) if meta.is_symlink() => {
                let link = fs::read_link(&current)?;
                current = parent_of(&current).join(link);
            }
            Ok(_) => return Ok(current),
            Err(err) if err.kind() == io::ErrorKind::NotFound => return Ok(current),
            Err(err) => return Err(err),
        }
    }
    Err(io::Error::other(format!(
        "{}: too many symbolic links",
        path.display()
    )))
}

fn parent_of(path: &Path) -> &Path {
    match path.parent() {
        Some(dir) if !dir.as_os_str().is_empty() => dir,
        _ => Path::new("."),
    }
}

/// Creates `dir` and its missing parents for the owner only. Existing ones keep their mode.
pub fn create_private_dir(dir: &Path) -> io::Result<()> {
    fs::DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(dir)
}

/// Why a lock was not obtained.
#[derive(Debug, thiserror::Error)]
pub enum LockError {
    #[error("{} is locked by another process", .0.display())]
    Busy(PathBuf),
    #[error("cannot lock {}: {source}", .path.display())]
    Io { path: PathBuf, source: io::Error },
}

/// An exclusive `flock(2)` lock, the kind that the original takes on the same files.
///
/// The lock belongs to the open file: two locks on one path exclude each other within a process
/// too. It is released on drop. The lock file itself stays: removing it would let two processes
/// lock two different files of one name.
#[derive(Debug)]
pub struct FileLock {
    file: File,
    path: PathBuf,
}

impl FileLock {
    /// Takes the lock, or fails at once if it is held.
    pub fn try_acquire(path: &Path) -> Result<Self, LockError> {
        let file = open_lock_file(path)?;
        match flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => Ok(Self {
                file,
                path: path.to_path_buf(),
            }),
            Err(rustix::io::Errno::WOULDBLOCK) => Err(LockError::Busy(path.to_path_buf())),
            Err(err) => Err(LockError::Io {
                path: path.to_path_buf(),
                source: err.into(),
            }),
        }
    }

    /// Takes the lock, waiting up to `wait`. Blocks the thread.
    pub fn acquire(path: &Path, wait: Duration) -> Result<Self, LockError> {
        let deadline = Instant::now() + wait;
        let mut pause = Duration::from_millis(1);
        loop {
            match Self::try_acquire(path) {
                Err(LockError::Busy(path)) => {
                    let left = deadline.saturating_duration_since(Instant::now());
                    if left.is_zero() {
                        return Err(LockError::Busy(path));
                    }
                    // flock has no timeout; signals would be the only alternative.
                    std::thread::sleep(pause.min(left));
                    pause = (pause * 2).min(Duration::from_millis(50));
                }
                done => return done,
            }
        }
    }

    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for FileLock {
    fn drop(&mut self) {
        // Closing the file would suffice, unless a child process inherited it.
        if let Err(err) = flock(&self.file, FlockOperation::Unlock) {
            tracing::debug!(path = %self.path.display(), %err, "unlock failed");
        }
    }
}

fn open_lock_file(path: &Path) -> Result<File, LockError> {
    OpenOptions::new()
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .mode(0o600)
        .open(path)
        .map_err(|source| LockError::Io {
            path: path.to_path_buf(),
            source,
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn new_files_get_the_mode_and_old_ones_keep_theirs() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("f");
        write_atomic(&path, b"one", 0o600).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o7777, 0o600);
        fs::set_permissions(&path, fs::Permissions::from_mode(0o640)).unwrap();
        write_atomic(&path, b"two", 0o600).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o7777, 0o640);
        assert_eq!(fs::read(&path).unwrap(), b"two");
        assert_eq!(
            fs::read_dir(dir.path()).unwrap().count(),
            1,
            "no temp file stays"
        );
    }

    #[test]
    fn symlinks_are_followed_even_dangling_ones() {
        let dir = tempfile::tempdir().unwrap();
        let (link, mid, real) = (
            dir.path().join("link"),
            dir.path().join("mid"),
            dir.path().join("real"),
        );
        std::os::unix::fs::symlink("mid", &link).unwrap();
        std::os::unix::fs::symlink(&real, &mid).unwrap();
        write_atomic(&link, b"x", 0o600).unwrap();
        write_atomic(&link, b"y", 0o600).unwrap();
        assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
        assert!(fs::symlink_metadata(&mid).unwrap().is_symlink());
        assert_eq!(fs::read(&real).unwrap(), b"y");
    }

    #[test]
    fn loops_and_directories_are_errors() {
        let dir = tempfile::tempdir().unwrap();
        let link = dir.path().join("a");
        std::os::unix::fs::symlink("a", &link).unwrap();
        assert!(write_atomic(&link, b"x", 0o600).is_err());
        assert!(write_atomic(dir.path(), b"x", 0o600).is_err());
    }

    #[test]
    fn a_lock_excludes_and_ends_with_its_guard() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("x.lock");
        let held = FileLock::try_acquire(&path).unwrap();
        assert!(matches!(
            FileLock::try_acquire(&path),
            Err(LockError::Busy(_))
        ));
        assert!(matches!(
            FileLock::acquire(&path, Duration::ZERO),
            Err(LockError::Busy(_))
        ));
        drop(held);
        FileLock::acquire(&path, Duration::ZERO).unwrap();
        assert!(path.exists());
    }
}

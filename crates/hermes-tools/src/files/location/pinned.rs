//! A local file held by its directory: what is checked is what is used, even if links are replaced meanwhile.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, Write as _};
use std::os::fd::{AsFd, AsRawFd as _, OwnedFd};
use std::path::{Component, Path, PathBuf};

use rustix::fs::{AtFlags, FileType, Gid, Mode, OFlags, RenameFlags, Uid};

use crate::files::ledger::FileVersion;

/// Maximum number of links before a path counts as a loop.
const MAX_LINKS: usize = 40;

/// An opened file and its real path.
pub(in crate::files) struct OpenedFile {
    pub(in crate::files) file: File,
    pub(in crate::files) path: PathBuf,
    pub(in crate::files) stamp: FileVersion,
    pub(in crate::files) mode: u32,
}

/// The target of a path, checked without opening it for reading: devices are not activated.
pub(in crate::files) enum PathProbe {
    File(Reopen),
    Directory(PathBuf),
    /// A pipe, a socket, a device.
    Other,
}

/// A file held by a descriptor that cannot read yet.
pub(in crate::files) struct Reopen {
    handle: OwnedFd,
    pub(in crate::files) path: PathBuf,
    pub(in crate::files) id: (u64, u64),
}

impl Reopen {
    /// Opens exactly the file that was checked.
    pub(in crate::files) fn open(&self) -> io::Result<OpenedFile> {
        let link = format!("/proc/self/fd/{}", self.handle.as_raw_fd());
        let file = File::from(rustix::fs::open(
            link,
            OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::NOCTTY,
            Mode::empty(),
        )?);
        let stat = rustix::fs::fstat(&file)?;
        Ok(OpenedFile {
            file,
            path: self.path.clone(),
            stamp: stamp(&stat),
            mode: stat.st_mode & 0o7777,
        })
    }
}

/// Checks `path`, following links.
pub(in crate::files) fn probe(path: &Path) -> io::Result<PathProbe> {
    let handle = rustix::fs::open(path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty())?;
    let stat = rustix::fs::fstat(&handle)?;
    let path = real_path(handle.as_fd())?;
    Ok(match FileType::from_raw_mode(stat.st_mode) {
        FileType::Directory => PathProbe::Directory(path),
        FileType::RegularFile => PathProbe::File(Reopen {
            handle,
            path,
            id: (stat.st_dev, stat.st_ino),
        }),
        _ => PathProbe::Other,
    })
}

/// The path of an open file.
pub(in crate::files) fn real_path(handle: impl AsFd) -> io::Result<PathBuf> {
    let link = format!("/proc/self/fd/{}", handle.as_fd().as_raw_fd());
    std::fs::read_link(link)
}

/// A name in a directory that is held open. The name is no link.
#[derive(Debug)]
pub(in crate::files) struct PinnedFile {
    dir: OwnedFd,
    dir_path: PathBuf,
    /// Directories between `dir` and the name that do not exist yet.
    missing: Vec<OsString>,
    name: OsString,
}

impl PinnedFile {
    /// Resolves the absolute `path`. The file need not exist.
    pub(in crate::files) fn new(path: &Path) -> io::Result<Self> {
        let mut path = path.to_owned();
        for _ in 0..MAX_LINKS {
            let Some(name) = path.file_name().map(OsStr::to_owned) else {
                return Err(io::ErrorKind::IsADirectory.into());
            };
            let parent = path.parent().unwrap_or(Path::new("/"));
            let (dir, missing) = deepest(parent)?;
            let dir_path = real_path(dir.as_fd())?;
            if missing.is_empty() {
                match rustix::fs::readlinkat(&dir, &name, Vec::new()) {
                    Ok(target) => {
                        use std::os::unix::ffi::OsStrExt as _;
                        path = dir_path.join(OsStr::from_bytes(target.to_bytes()));
                        continue;
                    }
                    Err(rustix::io::Errno::INVAL | rustix::io::Errno::NOENT) => {}
                    Err(error) => return Err(error.into()),
                }
            }
            return Ok(Self {
                dir,
                dir_path,
                missing,
                name,
            });
        }
        Err(rustix::io::Errno::LOOP.into())
    }

    /// The path without links.
    pub(in crate::files) fn path(&self) -> PathBuf {
        let mut path = self.dir_path.clone();
        path.extend(&self.missing);
        path.push(&self.name);
        path
    }

    /// The current content; `None` if the file does not exist.
    pub(in crate::files) fn open(&self) -> io::Result<Option<OpenedFile>> {
        if !self.missing.is_empty() {
            return Ok(None);
        }
        let flags = OFlags::PATH | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        let handle = match rustix::fs::openat(&self.dir, &self.name, flags, Mode::empty()) {
            Ok(handle) => handle,
            Err(rustix::io::Errno::NOENT) => return Ok(None),
            Err(error) => return Err(error.into()),
        };
        let stat = rustix::fs::fstat(&handle)?;
        match FileType::from_raw_mode(stat.st_mode) {
            FileType::RegularFile => {}
            FileType::Directory => return Err(io::ErrorKind::IsADirectory.into()),
            FileType::Symlink => return Err(rustix::io::Errno::LOOP.into()),
            _ => {
                return Err(io::Error::new(
                    io::ErrorKind::InvalidInput,
                    "it is not a regular file",
                ));
            }
        }
        let reopen = Reopen {
            handle,
            path: self.path(),
            id: (stat.st_dev, stat.st_ino),
        };
        reopen.open().map(Some)
    }

    /// Identifies this version of the file; `None` if it does not exist.
    pub(in crate::files) fn stamp(&self) -> io::Result<Option<FileVersion>> {
        if !self.missing.is_empty() {
            return Ok(None);
        }
        match rustix::fs::statat(&self.dir, &self.name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(stat) => Ok(Some(stamp(&stat))),
            Err(rustix::io::Errno::NOENT) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// Replaces or creates the file atomically. An existing file keeps its mode and owner. Returns whether
    /// directories were created.
    pub(in crate::files) fn write(
        &self,
        bytes: &[u8],
        mode: Option<u32>,
        create_new: bool,
    ) -> io::Result<bool> {
        let made;
        let dir = if self.missing.is_empty() {
            self.dir.as_fd()
        } else {
            made = self.make_parents()?;
            made.as_fd()
        };
        let existing = rustix::fs::statat(dir, &self.name, AtFlags::SYMLINK_NOFOLLOW).ok();
        if create_new && existing.is_some() {
            return Err(io::ErrorKind::AlreadyExists.into());
        }
        let temp = format!(".hermes-{:016x}.tmp", rand::random::<u64>());
        let private = existing.is_some() || mode.is_some();
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
        let first = Mode::from_raw_mode(if private { 0o600 } else { 0o666 });
        let mut file = File::from(rustix::fs::openat(dir, &temp, flags, first)?);
        let written = (|| {
            file.write_all(bytes)?;
            if let Some(old) = &existing {
                keep_owner(&file, old);
            }
            // After chown, which clears the set-id bits.
            let mode = existing.map(|old| old.st_mode & 0o7777).or(mode);
            if let Some(mode) = mode {
                rustix::fs::fchmod(&file, Mode::from_raw_mode(mode))?;
            }
            file.sync_all()?;
            put(dir, &temp, &self.name, create_new)
        })();
        if written.is_err() {
            // The name is unique; failing to remove it leaves a stray file, no damage.
            let _ = rustix::fs::unlinkat(dir, &temp, AtFlags::empty());
        }
        written.map(|()| !self.missing.is_empty())
    }

    pub(in crate::files) fn remove(&self) -> io::Result<()> {
        Ok(rustix::fs::unlinkat(
            &self.dir,
            &self.name,
            AtFlags::empty(),
        )?)
    }

    /// Creates the missing directories one by one, each inside the one before.
    fn make_parents(&self) -> io::Result<OwnedFd> {
        let mut dir = self.dir.try_clone()?;
        for name in &self.missing {
            match rustix::fs::mkdirat(&dir, name, Mode::from_raw_mode(0o777)) {
                Ok(()) | Err(rustix::io::Errno::EXIST) => {}
                Err(error) => return Err(error.into()),
            }
            let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            dir = rustix::fs::openat(&dir, name, flags, Mode::empty())?;
        }
        Ok(dir)
    }
}

/// The deepest existing directory of `path`, opened, and the names below it.
fn deepest(path: &Path) -> io::Result<(OwnedFd, Vec<OsString>)> {
    let mut missing = Vec::new();
    let mut at = path;
    loop {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        match rustix::fs::open(at, flags, Mode::empty()) {
            Ok(dir) => {
                missing.reverse();
                return Ok((dir, missing));
            }
            Err(rustix::io::Errno::NOENT) => {}
            Err(error) => return Err(error.into()),
        }
        match (at.components().next_back(), at.parent()) {
            (Some(Component::Normal(name)), Some(parent)) => {
                missing.push(name.to_owned());
                at = parent;
            }
            // `..` after a missing directory.
            _ => return Err(io::ErrorKind::NotFound.into()),
        }
    }
}

fn put(dir: impl AsFd, temp: &str, name: &OsStr, create_new: bool) -> io::Result<()> {
    let dir = dir.as_fd();
    if !create_new {
        return Ok(rustix::fs::renameat(dir, temp, dir, name)?);
    }
    match rustix::fs::renameat_with(dir, temp, dir, name, RenameFlags::NOREPLACE) {
        // On file systems without it: a hard link also refuses an existing name.
        Err(rustix::io::Errno::INVAL | rustix::io::Errno::NOSYS) => {
            rustix::fs::linkat(dir, temp, dir, name, AtFlags::empty())?;
            Ok(rustix::fs::unlinkat(dir, temp, AtFlags::empty())?)
        }
        done => Ok(done?),
    }
}

fn keep_owner(file: &File, old: &rustix::fs::Stat) {
    let same = rustix::fs::fstat(file)
        .is_ok_and(|new| new.st_uid == old.st_uid && new.st_gid == old.st_gid);
    if same {
        return;
    }
    let (owner, group) = (Uid::from_raw(old.st_uid), Gid::from_raw(old.st_gid));
    // An ordinary user may not change the owner; the write itself is still valid.
    if let Err(error) = rustix::fs::fchown(file, Some(owner), Some(group)) {
        tracing::debug!(%error, "the owner of a file could not be kept");
    }
}

fn stamp(stat: &rustix::fs::Stat) -> FileVersion {
    FileVersion {
        modified_ns: i128::from(stat.st_mtime) * 1_000_000_000 + i128::from(stat.st_mtime_nsec),
        size: stat.st_size as u64,
        inode: stat.st_ino,
    }
}

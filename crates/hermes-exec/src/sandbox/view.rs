//! A private mount view of the file system. Landlock rules cannot exclude a part of what they permit and do not
//! cover modes, owners and timestamps; a view can: everything except the writable directories is read-only, and
//! private files are covered.
//!
//! A helper creates it once for all commands with the same limits.

use std::collections::BTreeSet;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use rustix::fs::{CWD, Mode, OFlags};
use rustix::mount::{
    MountFlags, MountPropagationFlags, MoveMountFlags, OpenTreeFlags, mount, mount_bind,
    mount_bind_recursive, mount_change, move_mount, open_tree,
};
use rustix::process::{getgid, getuid};
use rustix::thread::UnshareFlags;

use super::fork::{set_read_only_alone, set_read_only_tree};
use super::rules::FileRules;

/// Keeps the creator's `/proc`: each command mounts its own in its place.
#[derive(Debug)]
pub(super) struct MountView {
    processes: OwnedFd,
}

/// Mount point of `/proc`.
pub(super) const PROC: &str = "/proc";

/// A clone of the mounts at and below a path, taken before the path was covered.
struct ClonedMount {
    path: PathBuf,
    is_dir: bool,
    mounts: OwnedFd,
}

impl ClonedMount {
    fn clone_from(path: &Path) -> io::Result<Self> {
        let flags = OpenTreeFlags::OPEN_TREE_CLONE
            | OpenTreeFlags::OPEN_TREE_CLOEXEC
            | OpenTreeFlags::AT_RECURSIVE;
        Ok(Self {
            path: path.to_owned(),
            is_dir: path.is_dir(),
            mounts: open_tree(CWD, path, flags)?,
        })
    }

    /// Attaches it, creating the path first if it was covered.
    fn attach_creating_path(&self) -> io::Result<()> {
        if self.path.symlink_metadata().is_err() {
            if let Some(parent) = self.path.parent() {
                std::fs::DirBuilder::new()
                    .recursive(true)
                    .mode(0o755)
                    .create(parent)?;
            }
            if self.is_dir {
                std::fs::create_dir(&self.path)?;
            } else {
                std::fs::File::create(&self.path)?;
            }
        }
        self.attach()
    }

    fn attach(&self) -> io::Result<()> {
        let flags = MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH;
        move_mount(&self.mounts, "", CWD, &self.path, flags).map_err(io::Error::from)
    }
}

impl MountView {
    /// Creates the view for these rules and moves this process into it.
    pub(super) fn enter(files: &FileRules) -> io::Result<Self> {
        unshare_namespaces()?;
        let processes = rustix::fs::open(
            PROC,
            OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC,
            Mode::empty(),
        )?;
        let (inner, bases): (Vec<_>, Vec<_>) = clone_mounts(files.writable.iter())
            .into_iter()
            .partition(|base| files.is_closed(&base.path));
        let shared = clone_mounts(files.shared_below_writable().iter());
        let opened = clone_mounts(files.readable.iter().filter(|path| files.is_closed(path)));
        set_read_only_tree(Path::new("/"))?;
        for base in &bases {
            base.attach()?;
        }
        let nothing = EmptyCover::create()?;
        for dir in files.pins() {
            ignore_missing(mount_bind_recursive(&dir, &dir))?;
        }
        for path in files.read_only.iter().chain(&files.movable) {
            if path.is_symlink() {
                ignore_missing(pin_link(path))?;
            } else {
                ignore_missing(mount_bind_recursive(path, path))?;
                ignore_missing(set_read_only_tree(path))?;
            }
        }
        for private in files
            .private
            .iter()
            .filter(|private| files.is_below_writable(&private.dir))
        {
            cover_with_empty(&private.dir)?;
        }
        let is_opened = |path: &Path| opened.iter().any(|open| open.path.starts_with(path));
        for path in &files.hidden {
            if is_opened(path) && path.is_dir() {
                cover_with_empty(path)?;
            } else {
                ignore_missing(nothing.cover(path))?;
            }
        }
        for part in shared.iter().chain(&opened) {
            part.attach_creating_path()?;
            set_read_only_tree(&part.path)?;
        }
        for base in &inner {
            base.attach_creating_path()?;
        }
        let homes = files.private.iter().map(|private| &private.dir);
        let homes = homes.filter(|dir| files.is_below_writable(dir) && dir.is_dir());
        for path in homes.chain(files.hidden.iter().filter(|path| is_opened(path))) {
            set_read_only_alone(path)?;
        }
        mount_own_devices()?;
        // Our current directory still refers to the old mounts.
        let cwd = std::env::current_dir()?;
        std::env::set_current_dir(cwd)?;
        Ok(Self { processes })
    }

    /// The id of this process in the PID namespace of the view's creator.
    pub(super) fn host_pid(&self) -> io::Result<i32> {
        let name = rustix::fs::readlinkat(&self.processes, "self", Vec::new())?;
        let number = name.to_str().ok().and_then(|name| name.parse().ok());
        number.ok_or_else(|| io::Error::other("the kernel does not say which process this is"))
    }

    /// For a command that shares the PID namespace of the helper.
    pub(super) fn mount_host_proc(&self) -> io::Result<()> {
        let flags = OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC;
        let empty = flags | OpenTreeFlags::AT_EMPTY_PATH;
        let mounts = open_tree(&self.processes, "", empty)?;
        let how = MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH;
        move_mount(&mounts, "", CWD, PROC, how).map_err(io::Error::from)
    }
}

/// Mounts the `/proc` of this process's own PID namespace.
pub(super) fn mount_own_proc() -> io::Result<()> {
    let flags = MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC;
    mount("proc", PROC, "proc", flags, None).map_err(io::Error::from)
}

/// Mounts a link onto itself, so that it keeps its target and cannot be replaced.
fn pin_link(link: &Path) -> io::Result<()> {
    let flags = OpenTreeFlags::OPEN_TREE_CLONE
        | OpenTreeFlags::OPEN_TREE_CLOEXEC
        | OpenTreeFlags::AT_SYMLINK_NOFOLLOW;
    let mounts = open_tree(CWD, link, flags)?;
    let how = MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH;
    move_mount(&mounts, "", CWD, link, how).map_err(io::Error::from)
}

/// A path that has disappeared since it was listed needs no cover.
fn ignore_missing(done: Result<(), impl Into<io::Error>>) -> io::Result<()> {
    match done.map_err(Into::into) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        done => done,
    }
}

/// Clones those that exist.
fn clone_mounts<'a>(paths: impl Iterator<Item = &'a PathBuf>) -> Vec<ClonedMount> {
    paths
        .filter_map(|path| ClonedMount::clone_from(path).ok())
        .collect()
}

impl FileRules {
    /// Whether a path lies below a covered or read-only path.
    fn is_closed(&self, path: &Path) -> bool {
        let around = |closed: &Path| path != closed && path.starts_with(closed);
        self.read_only
            .iter()
            .chain(&self.hidden)
            .any(|closed| around(closed))
            || (self.private.iter())
                .any(|private| around(&private.dir) && self.is_below_writable(&private.dir))
    }

    /// Readable entries of Hermes homes that are covered.
    fn shared_below_writable(&self) -> Vec<PathBuf> {
        let covered = self
            .private
            .iter()
            .filter(|private| self.is_below_writable(&private.dir));
        let mut paths: Vec<PathBuf> = covered
            .flat_map(|private| private.shared.iter().map(|name| private.dir.join(name)))
            // A link grants nothing: its target is permitted, or not, at its own path.
            .filter(|path| path.symlink_metadata().is_ok_and(|data| !data.is_symlink()))
            .collect();
        paths.sort();
        paths
    }

    /// The directories between a writable directory and a path that must stay in place: a mount point cannot be
    /// renamed or replaced.
    fn pins(&self) -> BTreeSet<PathBuf> {
        let homes = self.private.iter().map(|private| &private.dir);
        let mut pins = BTreeSet::new();
        for path in self.read_only.iter().chain(homes) {
            let parents = path.ancestors().skip(1);
            pins.extend(
                parents
                    .take_while(|dir| self.is_below_writable(dir))
                    .filter(|dir| !self.writable.iter().any(|base| base == dir))
                    .map(Path::to_owned),
            );
        }
        pins
    }
}

/// Creates private namespaces: root may do so directly, others through a user namespace that maps them to
/// themselves.
fn unshare_namespaces() -> io::Result<()> {
    let own = UnshareFlags::NEWNS | UnshareFlags::NEWIPC;
    if unshare(own).is_err() {
        let (user, group) = (getuid().as_raw(), getgid().as_raw());
        unshare(UnshareFlags::NEWUSER | own)?;
        std::fs::write("/proc/self/setgroups", "deny")?;
        std::fs::write("/proc/self/uid_map", format!("{user} {user} 1"))?;
        std::fs::write("/proc/self/gid_map", format!("{group} {group} 1"))?;
    }
    let alone = MountPropagationFlags::PRIVATE | MountPropagationFlags::REC;
    mount_change("/", alone).map_err(io::Error::from)
}

#[expect(
    deprecated,
    reason = "its replacement is unsafe because of file tables, which are not unshared here"
)]
fn unshare(flags: UnshareFlags) -> io::Result<()> {
    rustix::thread::unshare(flags).map_err(io::Error::from)
}

/// Covers a directory with an empty one in which readable entries are attached again.
fn cover_with_empty(dir: &Path) -> io::Result<()> {
    if !dir.is_dir() {
        return Ok(());
    }
    let flags = MountFlags::NOSUID | MountFlags::NODEV;
    mount("none", dir, "tmpfs", flags, Some(c"size=64k,mode=755")).map_err(io::Error::from)
}

/// An empty file and an empty directory without permissions, used as covers. They live on a tmpfs over `/proc`
/// and disappear when a command mounts its own.
struct EmptyCover {
    file: PathBuf,
    directory: PathBuf,
}

impl EmptyCover {
    fn create() -> io::Result<Self> {
        let flags = MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC;
        mount("none", PROC, "tmpfs", flags, Some(c"size=64k,mode=755"))?;
        let file = Path::new(PROC).join("file");
        let directory = Path::new(PROC).join("directory");
        std::fs::File::options()
            .write(true)
            .create_new(true)
            .mode(0o000)
            .open(&file)?;
        std::fs::DirBuilder::new().mode(0o000).create(&directory)?;
        Ok(Self { file, directory })
    }

    fn cover(&self, path: &Path) -> io::Result<()> {
        match path.symlink_metadata() {
            Ok(data) if data.is_dir() => bind_read_only(&self.directory, path),
            // The target of a link is covered at its own path.
            Ok(data) if data.is_symlink() => Ok(()),
            Ok(_) => bind_read_only(&self.file, path),
            Err(_) => Ok(()),
        }
    }
}

fn bind_read_only(from: &Path, to: &Path) -> io::Result<()> {
    mount_bind(from, to)?;
    set_read_only_tree(to)
}

/// Commands do not get the user's terminals and shared memory.
fn mount_own_devices() -> io::Result<()> {
    let flags = MountFlags::NOSUID | MountFlags::NOEXEC;
    let options = c"newinstance,ptmxmode=0666,mode=620";
    mount("devpts", "/dev/pts", "devpts", flags, Some(options))?;
    let multiplexer = Path::new("/dev/ptmx");
    if multiplexer.symlink_metadata()?.is_symlink() {
        // It points to the one that was just created.
    } else {
        mount_bind("/dev/pts/ptmx", multiplexer)?;
    }
    let memory = Path::new("/dev/shm");
    if memory.is_dir() {
        let flags = MountFlags::NOSUID | MountFlags::NODEV;
        mount("none", memory, "tmpfs", flags, Some(c"mode=1777"))?;
    }
    Ok(())
}

//! A view of the file system of a command's own. The kernel's rules cannot take a part out of what they
//! permit, and say nothing about modes, owners and times of files; a view in which everything but the
//! writable places is read-only, and what is private is covered, can.
//!
//! It is made once, by a helper, for all commands with the same limits.

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
use super::rules::Files;

/// The table of processes of whoever made the view: each command gets one of its own in its place.
#[derive(Debug)]
pub(super) struct View {
    processes: OwnedFd,
}

/// Where processes are listed.
pub(super) const PROC: &str = "/proc";

/// A copy of what is mounted at a path and below it, taken before the path was covered.
struct Copied {
    path: PathBuf,
    is_dir: bool,
    mounts: OwnedFd,
}

impl Copied {
    fn of(path: &Path) -> io::Result<Self> {
        let flags = OpenTreeFlags::OPEN_TREE_CLONE
            | OpenTreeFlags::OPEN_TREE_CLOEXEC
            | OpenTreeFlags::AT_RECURSIVE;
        Ok(Self {
            path: path.to_owned(),
            is_dir: path.is_dir(),
            mounts: open_tree(CWD, path, flags)?,
        })
    }

    /// The same where the path itself may have been covered.
    fn attach_anew(&self) -> io::Result<()> {
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

impl View {
    /// Makes the view for these files; the process is in it from now on.
    pub(super) fn enter(files: &Files) -> io::Result<Self> {
        own_namespaces()?;
        let processes = rustix::fs::open(
            PROC,
            OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC,
            Mode::empty(),
        )?;
        let (inner, places): (Vec<_>, Vec<_>) = copies(files.writable.iter())
            .into_iter()
            .partition(|place| files.is_closed(&place.path));
        let shared = copies(files.shared_below_writable().iter());
        let opened = copies(files.readable.iter().filter(|path| files.is_closed(path)));
        set_read_only_tree(Path::new("/"))?;
        for place in &places {
            place.attach()?;
        }
        let nothing = Nothing::make()?;
        for dir in files.pins() {
            unless_gone(mount_bind_recursive(&dir, &dir))?;
        }
        for path in files.read_only.iter().chain(&files.movable) {
            if path.is_symlink() {
                unless_gone(pin_link(path))?;
            } else {
                unless_gone(mount_bind_recursive(path, path))?;
                unless_gone(set_read_only_tree(path))?;
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
                unless_gone(nothing.cover(path))?;
            }
        }
        for part in shared.iter().chain(&opened) {
            part.attach_anew()?;
            set_read_only_tree(&part.path)?;
        }
        for place in &inner {
            place.attach_anew()?;
        }
        let homes = files.private.iter().map(|private| &private.dir);
        let homes = homes.filter(|dir| files.is_below_writable(dir) && dir.is_dir());
        for path in homes.chain(files.hidden.iter().filter(|path| is_opened(path))) {
            set_read_only_alone(path)?;
        }
        own_devices()?;
        // We stand in what was there before.
        let cwd = std::env::current_dir()?;
        std::env::set_current_dir(cwd)?;
        Ok(Self { processes })
    }

    /// The number of this process as whoever made the view knows it.
    pub(super) fn own_number(&self) -> io::Result<i32> {
        let name = rustix::fs::readlinkat(&self.processes, "self", Vec::new())?;
        let number = name.to_str().ok().and_then(|name| name.parse().ok());
        number.ok_or_else(|| io::Error::other("the kernel does not say which process this is"))
    }

    /// For a command that has no table of processes of its own.
    pub(super) fn show_all_processes(&self) -> io::Result<()> {
        let flags = OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC;
        let empty = flags | OpenTreeFlags::AT_EMPTY_PATH;
        let mounts = open_tree(&self.processes, "", empty)?;
        let how = MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH;
        move_mount(&mounts, "", CWD, PROC, how).map_err(io::Error::from)
    }
}

/// The table of the processes of this process's own namespace.
pub(super) fn show_own_processes() -> io::Result<()> {
    let flags = MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC;
    mount("proc", PROC, "proc", flags, None).map_err(io::Error::from)
}

/// A link, mounted where it is: it leads where it led, and nobody can put another in its place.
fn pin_link(link: &Path) -> io::Result<()> {
    let flags = OpenTreeFlags::OPEN_TREE_CLONE
        | OpenTreeFlags::OPEN_TREE_CLOEXEC
        | OpenTreeFlags::AT_SYMLINK_NOFOLLOW;
    let mounts = open_tree(CWD, link, flags)?;
    let how = MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH;
    move_mount(&mounts, "", CWD, link, how).map_err(io::Error::from)
}

/// What went away since it was listed needs no cover.
fn unless_gone(done: Result<(), impl Into<io::Error>>) -> io::Result<()> {
    match done.map_err(Into::into) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        done => done,
    }
}

/// Those that are there.
fn copies<'a>(paths: impl Iterator<Item = &'a PathBuf>) -> Vec<Copied> {
    paths.filter_map(|path| Copied::of(path).ok()).collect()
}

impl Files {
    /// Whether a path is covered or read-only with something around it.
    fn is_closed(&self, path: &Path) -> bool {
        let around = |closed: &Path| path != closed && path.starts_with(closed);
        self.read_only
            .iter()
            .chain(&self.hidden)
            .any(|closed| around(closed))
            || (self.private.iter())
                .any(|private| around(&private.dir) && self.is_below_writable(&private.dir))
    }

    /// What may be read of homes of ours that are covered.
    fn shared_below_writable(&self) -> Vec<PathBuf> {
        let covered = self
            .private
            .iter()
            .filter(|private| self.is_below_writable(&private.dir));
        let mut paths: Vec<PathBuf> = covered
            .flat_map(|private| private.shared.iter().map(|name| private.dir.join(name)))
            // A link grants nothing: what it leads to is permitted, or not, where it lies.
            .filter(|path| path.symlink_metadata().is_ok_and(|data| !data.is_symlink()))
            .collect();
        paths.sort();
        paths
    }

    /// The directories between a writable place and what must stay where it is: nobody can rename one, or
    /// put another in its place, where something is mounted.
    fn pins(&self) -> BTreeSet<PathBuf> {
        let homes = self.private.iter().map(|private| &private.dir);
        let mut pins = BTreeSet::new();
        for path in self.read_only.iter().chain(homes) {
            let parents = path.ancestors().skip(1);
            pins.extend(
                parents
                    .take_while(|dir| self.is_below_writable(dir))
                    .filter(|dir| !self.writable.iter().any(|place| place == dir))
                    .map(Path::to_owned),
            );
        }
        pins
    }
}

/// A view that nobody else shares: root has the right to one, others get it with a user namespace in which
/// they are who they are.
fn own_namespaces() -> io::Result<()> {
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

/// An empty directory over another, for what may be seen of it to be shown in again.
fn cover_with_empty(dir: &Path) -> io::Result<()> {
    if !dir.is_dir() {
        return Ok(());
    }
    let flags = MountFlags::NOSUID | MountFlags::NODEV;
    mount("none", dir, "tmpfs", flags, Some(c"size=64k,mode=755")).map_err(io::Error::from)
}

/// A file and a directory with nothing in them, which nobody may open. They lie where the table of processes
/// was, and are out of sight once a command has one of its own.
struct Nothing {
    file: PathBuf,
    directory: PathBuf,
}

impl Nothing {
    fn make() -> io::Result<Self> {
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
            // Where a link leads is covered where it lies.
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

/// Terminals, shared memory: those of the person are not for commands.
fn own_devices() -> io::Result<()> {
    let flags = MountFlags::NOSUID | MountFlags::NOEXEC;
    let options = c"newinstance,ptmxmode=0666,mode=620";
    mount("devpts", "/dev/pts", "devpts", flags, Some(options))?;
    let multiplexer = Path::new("/dev/ptmx");
    if multiplexer.symlink_metadata()?.is_symlink() {
        // It leads to the one that was just made.
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

//! Covers for what lies below a writable place. The kernel's rules cannot take a part out of what they
//! permit; a view of the file system of the command's own can. It is made only where it is needed:
//! when the home, with our secrets and the person's keys in it, is itself the workspace.

use std::io;
use std::path::{Path, PathBuf};

use rustix::fs::{StatVfsMountFlags, statvfs};
use rustix::mount::{
    MountFlags, MountPropagationFlags, mount, mount_bind, mount_bind_recursive, mount_change,
    mount_remount,
};
use rustix::process::{getgid, getuid};
use rustix::thread::UnshareFlags;

use super::rules::Files;

/// Made by one, run by all: not for a command to change in a workspace.
const RUN_LATER: &[&str] = &[".git/hooks", ".git/config"];

impl Files {
    /// Whether something that is to be hidden or kept lies below a writable place.
    pub(super) fn needs_covers(&self) -> bool {
        let below = |path: &Path| self.writable.iter().any(|place| path.starts_with(place));
        self.private.iter().any(|private| below(&private.dir))
            || self.unreadable.iter().any(|path| below(path))
            || self.home_is_writable()
    }

    fn home_is_writable(&self) -> bool {
        self.user_home
            .as_ref()
            .is_some_and(|home| self.is_below_writable(home))
    }

    /// Covers them. What is left are the rules for everything else. `None`: no view of our own can be
    /// had here; then the rules leave out more than they would have to.
    pub(super) fn cover(mut self) -> Result<Self, (Self, io::Error)> {
        match self.make_covers() {
            Ok(()) => {
                let writable = self.writable.clone();
                let below = |path: &Path| writable.iter().any(|place| path.starts_with(place));
                self.private.retain(|private| !below(&private.dir));
                self.unreadable.retain(|path| !below(path));
                self.user_home = None;
                Ok(self)
            }
            Err(error) => Err((self, error)),
        }
    }

    fn make_covers(&self) -> io::Result<()> {
        own_view()?;
        if let Some(home) = self
            .user_home
            .as_deref()
            .filter(|_| self.home_is_writable())
        {
            self.keep_hidden_entries(home)?;
        }
        for place in &self.writable {
            for path in RUN_LATER.iter().map(|name| place.join(name)) {
                if path.symlink_metadata().is_ok_and(|data| !data.is_symlink()) {
                    read_only(&path)?;
                }
            }
        }
        for private in &self.private {
            if self.is_below_writable(&private.dir) && private.dir.is_dir() {
                read_only(&private.dir)?;
                for entry in std::fs::read_dir(&private.dir)?.flatten() {
                    let shared = private
                        .shared
                        .iter()
                        .any(|name| entry.file_name() == name.as_str());
                    if !shared && !self.leads_to_another(&private.dir, &entry.path()) {
                        hide(&entry.path())?;
                    }
                }
            }
        }
        for path in &self.unreadable {
            if self.is_below_writable(path) {
                hide(path)?;
            }
        }
        // We stand in what was there before.
        let cwd = std::env::current_dir()?;
        std::env::set_current_dir(cwd)
    }

    fn is_below_writable(&self, path: &Path) -> bool {
        self.writable.iter().any(|place| path.starts_with(place))
    }

    fn leads_to_another(&self, dir: &Path, path: &Path) -> bool {
        self.private
            .iter()
            .any(|other| other.dir != dir && other.dir.starts_with(path))
            || self.writable.iter().any(|place| place.starts_with(path))
    }

    /// Keys, shell start files and the like stay as they are; caches in them stay writable.
    fn keep_hidden_entries(&self, home: &Path) -> io::Result<()> {
        for entry in std::fs::read_dir(home)?.flatten() {
            let path = entry.path();
            let hidden = entry.file_name().as_encoded_bytes().starts_with(b".");
            let is_link = entry.file_type().is_ok_and(|kind| kind.is_symlink());
            if !hidden || is_link || self.writable.contains(&path) {
                continue;
            }
            read_only(&path)?;
            for place in self
                .writable
                .iter()
                .filter(|place| place.starts_with(&path))
            {
                mount_bind_recursive(place, place)?;
                remount(place, MountFlags::empty())?;
            }
        }
        Ok(())
    }
}

/// A view of the file system that nobody else shares: root has the right to one, others get it with a
/// user namespace in which they are who they are.
fn own_view() -> io::Result<()> {
    if unshare(UnshareFlags::NEWNS).is_err() {
        let (user, group) = (getuid().as_raw(), getgid().as_raw());
        unshare(UnshareFlags::NEWUSER | UnshareFlags::NEWNS)?;
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

fn read_only(path: &Path) -> io::Result<()> {
    mount_bind_recursive(path, path)?;
    remount(path, MountFlags::RDONLY)
}

/// Flags that a mount has from outside cannot be taken off it.
fn remount(path: &Path, flags: MountFlags) -> io::Result<()> {
    let now = statvfs(path)?.f_flag;
    let mut kept = flags | MountFlags::BIND;
    for (has, flag) in [
        (StatVfsMountFlags::NOSUID, MountFlags::NOSUID),
        (StatVfsMountFlags::NODEV, MountFlags::NODEV),
        (StatVfsMountFlags::NOEXEC, MountFlags::NOEXEC),
        (StatVfsMountFlags::NOATIME, MountFlags::NOATIME),
        (StatVfsMountFlags::NODIRATIME, MountFlags::NODIRATIME),
        (StatVfsMountFlags::RELATIME, MountFlags::RELATIME),
    ] {
        if now.contains(has) {
            kept |= flag;
        }
    }
    mount_remount(path, kept, "").map_err(io::Error::from)
}

/// Nothing, in its place.
fn hide(path: &Path) -> io::Result<()> {
    let Ok(data) = path.symlink_metadata() else {
        return Ok(());
    };
    if data.is_symlink() {
        // Where it leads is hidden where it lies.
        return Ok(());
    }
    if data.is_dir() {
        let flags = MountFlags::NOSUID | MountFlags::NODEV | MountFlags::RDONLY;
        mount("none", path, "tmpfs", flags, Some(c"size=4k,mode=000"))?;
    } else {
        mount_bind(PathBuf::from("/dev/null"), path)?;
    }
    Ok(())
}

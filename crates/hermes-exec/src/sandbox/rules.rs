//! Rules for files. The kernel knows only permissions, so "everything but" is spelled out: the way
//! down to what is hidden is walked, and on it every other entry is permitted by itself.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::look;
use super::places::Private;
use super::seen::Seen;
use super::spec::Bytes;

/// Devices that commands use; the disks and memory that lie beside them are not for them.
const DEVICES: &[&str] = &[
    "/dev/null",
    "/dev/zero",
    "/dev/full",
    "/dev/random",
    "/dev/urandom",
    "/dev/tty",
    "/dev/ptmx",
    "/dev/pts",
    "/dev/shm",
    "/dev/dri",
    "/dev/kfd",
    "/dev/nvidiactl",
    "/dev/nvidia-uvm",
    "/dev/nvidia0",
    "/dev/nvidia1",
];

/// Where terminals of all programs of an account lie, and where new ones are made.
const TERMINALS: [&str; 2] = ["/dev/ptmx", "/dev/pts"];

/// What a command may do with files.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "Wire", into = "Wire")]
pub(super) struct Files {
    pub(super) writable: Vec<PathBuf>,
    pub(super) unreadable: Vec<PathBuf>,
    pub(super) private: Vec<Private>,
    /// The person's directory. When it is itself writable, its hidden entries (keys, shell start
    /// files) are not.
    pub(super) user_home: Option<PathBuf>,
    /// Below writable places, and not written all the same.
    pub(super) read_only: Vec<PathBuf>,
    /// The same where the directories around it can be moved: what is put in its place then is found afterwards.
    pub(super) movable: Vec<PathBuf>,
    /// Covered in a view of the command's own. Where there is none, unreadable as far as rules can say so.
    pub(super) hidden: Vec<PathBuf>,
    /// Below what is unreadable, and read all the same.
    pub(super) readable: Vec<PathBuf>,
    /// Sockets of programs outside, or directories of such. Kernels that know sockets by path (Linux 7.1) close all
    /// others, whenever they appear.
    pub(super) connectable: Vec<PathBuf>,
    /// Terminals are everybody's: there is no view with others.
    pub(super) shares_terminals: bool,
}

/// The same for the way to the helper: a path need not be text.
#[derive(Clone, Serialize, Deserialize)]
struct Wire {
    writable: Vec<Bytes>,
    unreadable: Vec<Bytes>,
    private: Vec<(Bytes, Vec<String>)>,
    user_home: Option<Bytes>,
    read_only: Vec<Bytes>,
    #[serde(default)]
    movable: Vec<Bytes>,
    hidden: Vec<Bytes>,
    readable: Vec<Bytes>,
    #[serde(default)]
    connectable: Vec<Bytes>,
}

impl From<Files> for Wire {
    fn from(files: Files) -> Self {
        let bytes = |path: PathBuf| Bytes::from(path.into_os_string());
        let private = files.private.into_iter();
        Self {
            writable: files.writable.into_iter().map(bytes).collect(),
            unreadable: files.unreadable.into_iter().map(bytes).collect(),
            private: private
                .map(|private| (bytes(private.dir), private.shared))
                .collect(),
            user_home: files.user_home.map(bytes),
            read_only: files.read_only.into_iter().map(bytes).collect(),
            movable: files.movable.into_iter().map(bytes).collect(),
            hidden: files.hidden.into_iter().map(bytes).collect(),
            readable: files.readable.into_iter().map(bytes).collect(),
            connectable: files.connectable.into_iter().map(bytes).collect(),
        }
    }
}

impl From<Wire> for Files {
    fn from(wire: Wire) -> Self {
        let path = |bytes: Bytes| PathBuf::from(bytes.as_ref());
        let private = wire.private.into_iter();
        Self {
            writable: wire.writable.into_iter().map(path).collect(),
            unreadable: wire.unreadable.into_iter().map(path).collect(),
            private: private
                .map(|(dir, shared)| Private {
                    dir: path(dir),
                    shared,
                })
                .collect(),
            user_home: wire.user_home.map(path),
            read_only: wire.read_only.into_iter().map(path).collect(),
            movable: wire.movable.into_iter().map(path).collect(),
            hidden: wire.hidden.into_iter().map(path).collect(),
            readable: wire.readable.into_iter().map(path).collect(),
            connectable: wire.connectable.into_iter().map(path).collect(),
            shares_terminals: false,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Access {
    Read,
    Write,
    Device,
    /// To sockets of programs outside.
    Connect,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Rule {
    pub(super) path: PathBuf,
    pub(super) access: Access,
    pub(super) is_dir: bool,
}

/// What files permit at one moment.
#[derive(Clone, Debug, Default)]
pub(super) struct Permissions {
    pub(super) rules: Vec<Rule>,
    /// What decided it.
    pub(super) seen: Vec<Seen>,
}

/// What lies at these paths.
pub(super) fn identities<'a>(paths: impl IntoIterator<Item = &'a PathBuf>) -> Vec<u8> {
    use std::os::unix::fs::MetadataExt as _;

    let each = paths.into_iter().flat_map(|path| {
        let found = look::entry(path);
        let (dev, ino) = found.map_or((0, 0), |data| (data.dev(), data.ino()));
        [dev.to_le_bytes(), ino.to_le_bytes()].into_iter().flatten()
    });
    each.collect()
}

impl Files {
    /// The permissions, looked up now. What cannot be looked at gets none.
    pub(super) fn permissions(&self) -> Permissions {
        let mut all = Permissions {
            rules: Vec::with_capacity(128),
            seen: vec![Seen::listed(Path::new("/dev"))],
        };
        self.grant(Path::new("/"), true, Access::Read, &mut all);
        for path in &self.readable {
            all.seen.push(Seen::place(path));
            if let Ok(metadata) = path.metadata() {
                all.rules.push(Rule {
                    path: path.clone(),
                    access: Access::Read,
                    is_dir: metadata.is_dir(),
                });
            }
        }
        for place in &self.writable {
            all.seen.push(Seen::place(place));
            if let Ok(metadata) = place.metadata() {
                self.grant(place, metadata.is_dir(), Access::Write, &mut all);
            }
        }
        for path in &self.connectable {
            if let Ok(metadata) = path.metadata() {
                all.rules.push(Rule {
                    path: path.clone(),
                    access: Access::Connect,
                    is_dir: metadata.is_dir(),
                });
            }
        }
        let is_closed =
            |device: &Path| self.shares_terminals && TERMINALS.map(Path::new).contains(&device);
        for device in DEVICES
            .iter()
            .map(Path::new)
            .filter(|device| !is_closed(device))
        {
            if let Ok(metadata) = device.metadata() {
                all.rules.push(Rule {
                    path: device.to_owned(),
                    access: Access::Device,
                    is_dir: metadata.is_dir(),
                });
            }
        }
        all
    }

    /// Without writable places below others.
    pub(super) fn condensed(mut self) -> Self {
        let mut places = std::mem::take(&mut self.writable);
        let all = places.clone();
        places.retain(|place| !all.iter().any(|outer| self.is_within(place, outer)));
        self.writable = places;
        self
    }

    /// Whether a writable place adds nothing to another. Those below the person's directory do where that is
    /// writable itself, and those in homes of ours: they are open where what is around them is not.
    fn is_within(&self, place: &Path, outer: &Path) -> bool {
        let home = self.user_home.as_ref();
        let is_below_home = home.is_some_and(|home| place.starts_with(home));
        let is_wide = home.is_some_and(|home| home.starts_with(outer));
        let mut private = self.private.iter();
        place != outer
            && place.starts_with(outer)
            && !(is_wide && is_below_home)
            && !private.any(|private| place.starts_with(&private.dir))
    }

    /// Whether these places are writable already.
    pub(super) fn covers(&self, places: &[PathBuf]) -> bool {
        places.iter().all(|place| {
            let mut outer = self.writable.iter();
            outer.any(|outer| self.is_within(place, outer))
        })
    }

    /// The same with further writable places.
    pub(super) fn with_writable(&self, places: Vec<PathBuf>) -> Self {
        let mut files = self.clone();
        files.writable.extend(places);
        files.condensed()
    }

    /// What lies at the paths that a view is made of.
    pub(super) fn identities(&self) -> Vec<u8> {
        let paths = (self.read_only.iter())
            .chain(&self.movable)
            .chain(&self.hidden);
        identities(self.writable.iter().chain(paths))
    }

    pub(super) fn is_below_writable(&self, path: &Path) -> bool {
        self.writable.iter().any(|place| path.starts_with(place))
    }

    /// What is left for the kernel's rules where a view of the command's own covers the rest.
    pub(super) fn covered(mut self) -> Self {
        let writable = std::mem::take(&mut self.writable);
        let below = |path: &Path| writable.iter().any(|place| path.starts_with(place));
        self.private.retain(|private| !below(&private.dir));
        self.unreadable.retain(|path| !below(path));
        self.user_home = None;
        self.read_only.clear();
        self.movable.clear();
        self.hidden.clear();
        self.writable = writable;
        self
    }

    /// The same where there is no such view: the rules leave out more than they would have to.
    pub(super) fn uncovered(mut self) -> Self {
        let hidden = std::mem::take(&mut self.hidden);
        self.unreadable.extend(hidden);
        self.shares_terminals = true;
        self
    }

    fn grant(&self, path: &Path, is_dir: bool, access: Access, all: &mut Permissions) {
        let is_kept = || self.read_only.iter().any(|kept| kept == path);
        if path == Path::new("/dev")
            || self.unreadable.iter().any(|hidden| hidden == path)
            || (access == Access::Write && is_kept())
        {
            return;
        }
        if !is_dir || !self.must_descend(path, access) {
            all.rules.push(Rule {
                path: path.to_owned(),
                access,
                is_dir,
            });
            return;
        }
        // Noted before it is looked into: what changes meanwhile is found out.
        all.seen.push(Seen::listed(path));
        let shared = self
            .private
            .iter()
            .find(|private| private.dir == path)
            .map(|private| &private.shared);
        let is_home = self.user_home.as_deref() == Some(path);
        let Ok(entries) = std::fs::read_dir(path) else {
            return;
        };
        for entry in entries.flatten() {
            // A link grants nothing: what it leads to is permitted, or not, where it lies.
            let Ok(kind) = entry.file_type() else {
                continue;
            };
            if kind.is_symlink() {
                continue;
            }
            let name = entry.file_name();
            let path = entry.path();
            let is_shared = |shared: &Vec<String>| {
                // A profile lies in a home of which it is no part.
                shared.iter().any(|one| name == one.as_str())
                    || self
                        .private
                        .iter()
                        .any(|other| other.dir.starts_with(&path))
            };
            if !shared.is_none_or(is_shared) {
                continue;
            }
            if access == Access::Write && is_home && name.as_encoded_bytes().starts_with(b".") {
                continue;
            }
            self.grant(&path, kind.is_dir(), access, all);
        }
    }

    fn must_descend(&self, dir: &Path, access: Access) -> bool {
        let devices = Path::new("/dev");
        self.unreadable.iter().any(|hidden| hidden.starts_with(dir))
            || self
                .private
                .iter()
                .any(|private| private.dir.starts_with(dir))
            || devices.starts_with(dir)
            || (access == Access::Write
                && (self.read_only.iter().any(|kept| kept.starts_with(dir))
                    || self
                        .user_home
                        .as_ref()
                        .is_some_and(|home| home.starts_with(dir))))
    }
}

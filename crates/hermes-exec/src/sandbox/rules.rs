//! Rules for files. The kernel knows only permissions, so "everything but" is spelled out: the way
//! down to what is hidden is walked, and on it every other entry is permitted by itself.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

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
}

/// The same for the way to the helper: a path need not be text.
#[derive(Clone, Serialize, Deserialize)]
struct Wire {
    writable: Vec<Bytes>,
    unreadable: Vec<Bytes>,
    private: Vec<(Bytes, Vec<String>)>,
    user_home: Option<Bytes>,
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
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Access {
    Read,
    Write,
    Device,
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

impl Files {
    /// The permissions, looked up now. What cannot be looked at gets none.
    pub(super) fn permissions(&self) -> Permissions {
        let mut all = Permissions {
            rules: Vec::with_capacity(128),
            seen: vec![Seen::listed(Path::new("/dev"))],
        };
        self.grant(Path::new("/"), true, Access::Read, &mut all);
        for place in &self.writable {
            all.seen.push(Seen::place(place));
            if let Ok(metadata) = place.metadata() {
                self.grant(place, metadata.is_dir(), Access::Write, &mut all);
            }
        }
        for device in DEVICES.iter().map(Path::new) {
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

    /// Without writable places below others, where nothing is hidden below any of them.
    pub(super) fn condensed(mut self) -> Self {
        let all = self.writable.clone();
        let within = |place: &Path, outer: &Path| place != outer && place.starts_with(outer);
        self.writable
            .retain(|place| !all.iter().any(|outer| within(place, outer)));
        self
    }

    fn grant(&self, path: &Path, is_dir: bool, access: Access, all: &mut Permissions) {
        if path == Path::new("/dev") || self.unreadable.iter().any(|hidden| hidden == path) {
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
                && self
                    .user_home
                    .as_ref()
                    .is_some_and(|home| home.starts_with(dir)))
    }
}

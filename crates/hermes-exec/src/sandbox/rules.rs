//! File rules. Landlock only has permissions, so "everything except" is expanded: directories above hidden
//! paths are walked, and each of their other entries is permitted on its own.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::path_state::PathState;
use super::paths::PrivateDir;
use super::spec::OsBytes;
use super::tracked_fs;

/// Devices that commands use; disks and memory devices are not permitted.
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

/// Where the terminals of all programs of an account are, and where new ones are created.
const TERMINALS: [&str; 2] = ["/dev/ptmx", "/dev/pts"];

/// What a command may do with files.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "FileRulesWire", into = "FileRulesWire")]
pub(super) struct FileRules {
    pub(super) writable: Vec<PathBuf>,
    pub(super) unreadable: Vec<PathBuf>,
    pub(super) private: Vec<PrivateDir>,
    /// The user's home. If it is writable, its hidden entries (keys, shell start files) are not.
    pub(super) user_home: Option<PathBuf>,
    /// Protected paths below writable directories.
    pub(super) read_only: Vec<PathBuf>,
    /// The same if the directories above can be moved; a replacement is found afterwards.
    pub(super) movable: Vec<PathBuf>,
    /// Covered in the command's mount view. Without a view, unreadable as far as rules can express it.
    pub(super) hidden: Vec<PathBuf>,
    /// Readable paths below unreadable ones.
    pub(super) readable: Vec<PathBuf>,
    /// Sockets of other programs, or directories of such. Kernels with path-based socket rules (Linux 7.1) deny
    /// all others, whenever they appear.
    pub(super) connectable: Vec<PathBuf>,
    /// There is no view with private terminals, so the shared ones are closed.
    pub(super) shares_terminals: bool,
}

/// The serialized form for the helper: a path need not be UTF-8.
#[derive(Clone, Serialize, Deserialize)]
struct FileRulesWire {
    writable: Vec<OsBytes>,
    unreadable: Vec<OsBytes>,
    private: Vec<(OsBytes, Vec<String>)>,
    user_home: Option<OsBytes>,
    read_only: Vec<OsBytes>,
    #[serde(default)]
    movable: Vec<OsBytes>,
    hidden: Vec<OsBytes>,
    readable: Vec<OsBytes>,
    #[serde(default)]
    connectable: Vec<OsBytes>,
}

impl From<FileRules> for FileRulesWire {
    fn from(files: FileRules) -> Self {
        let bytes = |path: PathBuf| OsBytes::from(path.into_os_string());
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

impl From<FileRulesWire> for FileRules {
    fn from(wire: FileRulesWire) -> Self {
        let path = |bytes: OsBytes| PathBuf::from(bytes.as_ref());
        let private = wire.private.into_iter();
        Self {
            writable: wire.writable.into_iter().map(path).collect(),
            unreadable: wire.unreadable.into_iter().map(path).collect(),
            private: private
                .map(|(dir, shared)| PrivateDir {
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
pub(super) enum AccessRight {
    Read,
    Write,
    Device,
    /// To sockets of other programs.
    Connect,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct PathRule {
    pub(super) path: PathBuf,
    pub(super) access: AccessRight,
    pub(super) is_dir: bool,
}

/// The rules as they apply to the file system at one moment.
#[derive(Clone, Debug, Default)]
pub(super) struct ResolvedRules {
    pub(super) rules: Vec<PathRule>,
    /// The state of the paths that they depend on.
    pub(super) states: Vec<PathState>,
}

/// Device and inode of each path.
pub(super) fn identities<'a>(paths: impl IntoIterator<Item = &'a PathBuf>) -> Vec<u8> {
    use std::os::unix::fs::MetadataExt as _;

    let each = paths.into_iter().flat_map(|path| {
        let found = tracked_fs::lstat(path);
        let (dev, ino) = found.map_or((0, 0), |data| (data.dev(), data.ino()));
        [dev.to_le_bytes(), ino.to_le_bytes()].into_iter().flatten()
    });
    each.collect()
}

impl FileRules {
    /// Expands the rules for the current file system. Inaccessible paths get no permission.
    pub(super) fn resolve(&self) -> ResolvedRules {
        let mut all = ResolvedRules {
            rules: Vec::with_capacity(128),
            states: vec![PathState::of_content(Path::new("/dev"))],
        };
        self.add_rules(Path::new("/"), true, AccessRight::Read, &mut all);
        for path in &self.readable {
            all.states.push(PathState::of_target(path));
            if let Ok(metadata) = path.metadata() {
                all.rules.push(PathRule {
                    path: path.clone(),
                    access: AccessRight::Read,
                    is_dir: metadata.is_dir(),
                });
            }
        }
        for base in &self.writable {
            all.states.push(PathState::of_target(base));
            if let Ok(metadata) = base.metadata() {
                self.add_rules(base, metadata.is_dir(), AccessRight::Write, &mut all);
            }
        }
        for path in &self.connectable {
            if let Ok(metadata) = path.metadata() {
                all.rules.push(PathRule {
                    path: path.clone(),
                    access: AccessRight::Connect,
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
                all.rules.push(PathRule {
                    path: device.to_owned(),
                    access: AccessRight::Device,
                    is_dir: metadata.is_dir(),
                });
            }
        }
        all
    }

    /// Removes writable directories nested in others.
    pub(super) fn without_nested(mut self) -> Self {
        let mut bases = std::mem::take(&mut self.writable);
        let all = bases.clone();
        bases.retain(|base| !all.iter().any(|outer| self.is_within(base, outer)));
        self.writable = bases;
        self
    }

    /// Whether a writable directory adds nothing to `outer`. Directories below a writable user home do, and so
    /// do those in Hermes homes: they are open where their surroundings are not.
    fn is_within(&self, base: &Path, outer: &Path) -> bool {
        let home = self.user_home.as_ref();
        let is_below_home = home.is_some_and(|home| base.starts_with(home));
        let is_wide = home.is_some_and(|home| home.starts_with(outer));
        let mut private = self.private.iter();
        base != outer
            && base.starts_with(outer)
            && !(is_wide && is_below_home)
            && !private.any(|private| base.starts_with(&private.dir))
    }

    /// Whether these directories are already writable.
    pub(super) fn covers(&self, bases: &[PathBuf]) -> bool {
        bases.iter().all(|base| {
            let mut outer = self.writable.iter();
            outer.any(|outer| self.is_within(base, outer))
        })
    }

    /// Adds writable directories.
    pub(super) fn with_writable(&self, bases: Vec<PathBuf>) -> Self {
        let mut files = self.clone();
        files.writable.extend(bases);
        files.without_nested()
    }

    /// Identities of the paths that a mount view is made of.
    pub(super) fn identities(&self) -> Vec<u8> {
        let paths = (self.read_only.iter())
            .chain(&self.movable)
            .chain(&self.hidden);
        identities(self.writable.iter().chain(paths))
    }

    pub(super) fn is_below_writable(&self, path: &Path) -> bool {
        self.writable.iter().any(|base| path.starts_with(base))
    }

    /// The rules that remain for Landlock when a mount view covers the rest.
    pub(super) fn for_view(mut self) -> Self {
        let writable = std::mem::take(&mut self.writable);
        let below = |path: &Path| writable.iter().any(|base| path.starts_with(base));
        self.private.retain(|private| !below(&private.dir));
        self.unreadable.retain(|path| !below(path));
        self.user_home = None;
        self.read_only.clear();
        self.movable.clear();
        self.hidden.clear();
        self.writable = writable;
        self
    }

    /// The rules when there is no such view: they exclude more than necessary.
    pub(super) fn without_view(mut self) -> Self {
        let hidden = std::mem::take(&mut self.hidden);
        self.unreadable.extend(hidden);
        self.shares_terminals = true;
        self
    }

    fn add_rules(&self, path: &Path, is_dir: bool, access: AccessRight, all: &mut ResolvedRules) {
        let is_read_only = || self.read_only.iter().any(|protected| protected == path);
        if path == Path::new("/dev")
            || self.unreadable.iter().any(|hidden| hidden == path)
            || (access == AccessRight::Write && is_read_only())
        {
            return;
        }
        if !is_dir || !self.must_descend(path, access) {
            all.rules.push(PathRule {
                path: path.to_owned(),
                access,
                is_dir,
            });
            return;
        }
        // Recorded before listing, so that a concurrent change is noticed.
        all.states.push(PathState::of_content(path));
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
            // A link grants nothing: its target is permitted, or not, at its own path.
            let Ok(kind) = entry.file_type() else {
                continue;
            };
            if kind.is_symlink() {
                continue;
            }
            let name = entry.file_name();
            let path = entry.path();
            let is_shared = |shared: &Vec<String>| {
                // A profile lies inside a home without being part of it.
                shared.iter().any(|one| name == one.as_str())
                    || self
                        .private
                        .iter()
                        .any(|other| other.dir.starts_with(&path))
            };
            if !shared.is_none_or(is_shared) {
                continue;
            }
            if access == AccessRight::Write && is_home && name.as_encoded_bytes().starts_with(b".")
            {
                continue;
            }
            self.add_rules(&path, kind.is_dir(), access, all);
        }
    }

    fn must_descend(&self, dir: &Path, access: AccessRight) -> bool {
        let devices = Path::new("/dev");
        self.unreadable.iter().any(|hidden| hidden.starts_with(dir))
            || self
                .private
                .iter()
                .any(|private| private.dir.starts_with(dir))
            || devices.starts_with(dir)
            || (access == AccessRight::Write
                && (self
                    .read_only
                    .iter()
                    .any(|protected| protected.starts_with(dir))
                    || self
                        .user_home
                        .as_ref()
                        .is_some_and(|home| home.starts_with(dir))))
    }
}

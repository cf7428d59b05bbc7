//! Files that are not read or not written: secrets, system files, and special files. The sandbox protects
//! against commands; this protects against the file tools.

mod secrets;

use std::collections::BTreeSet;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use hermes_config::home::Home;
use hermes_core::paths::lexically_normal;
use hermes_core::private::{
    NAMED_BY_VARIABLES, PRIVATE_DIRECTORIES, SYSTEM, below_some_home, is_env_file, is_personal,
};

use secrets::{
    DENIED_DIRS, DENIED_FILES, HOME_STATE_DIRS, HOME_STATE_FILES, LASTING_DIRS, LASTING_FILE,
    PROCESS_FILES, SCOPED_AREAS, SECRET_DIRS, SECRET_FILES, SYSTEM_DIRS, SYSTEM_FILES,
};

/// The rules of one home.
#[derive(Clone, Debug)]
pub(super) struct FileGuard {
    /// Every directory that is this home, as named and as resolved.
    homes: Vec<PathBuf>,
    root: PathBuf,
    profiles_root: PathBuf,
    user_dir: PathBuf,
    /// If not empty, only paths below these may be written (`HERMES_WRITE_SAFE_ROOT`).
    safe_roots: Vec<PathBuf>,
    /// Private files that the user opened (`terminal.sandbox_readable`).
    readable: Vec<PathBuf>,
    /// What commands of the session cannot read.
    private: Arc<BTreeSet<PathBuf>>,
}

impl FileGuard {
    pub(super) fn new(home: &Home, safe_roots: &[PathBuf], readable: &[PathBuf]) -> Self {
        let real = |path: &Path| {
            path.canonicalize()
                .unwrap_or_else(|_| lexically_normal(path))
        };
        let mut homes: Vec<PathBuf> = Vec::new();
        for root in [home.root(), home.profiles_root()] {
            homes.push(root.to_path_buf());
            homes.extend(root.canonicalize());
        }
        homes.dedup();
        Self {
            homes,
            root: real(home.root()),
            profiles_root: real(home.profiles_root()),
            user_dir: real(&home.expand_user("~")),
            safe_roots: safe_roots.iter().map(|root| real(root)).collect(),
            readable: readable.iter().map(|path| real(path)).collect(),
            private: Arc::default(),
        }
    }

    /// The same rules with further files and directories that are not read.
    pub(super) fn with_private(&self, private: Arc<BTreeSet<PathBuf>>) -> Self {
        Self {
            private,
            ..self.clone()
        }
    }

    /// The user's home, without links.
    pub(super) fn user_dir(&self) -> &Path {
        &self.user_dir
    }

    /// The Hermes home that contains `path`, which has no links.
    pub(super) fn home_of(&self, path: &Path) -> Option<&Path> {
        let mut homes = self.homes.iter();
        homes
            .find(|home| path.starts_with(home))
            .map(PathBuf::as_path)
    }

    /// Whether a file written at `path` affects later conversations.
    pub(super) fn outlasts(&self, path: &Path) -> bool {
        self.homes.iter().any(|home| {
            below(home, path)
                .is_some_and(|below| below == LASTING_FILE || inside(&below, &LASTING_DIRS))
        })
    }

    /// Why the file at `path`, which has no links, is not read.
    pub(super) fn unreadable(&self, path: &Path) -> Option<&'static str> {
        let name = path.file_name()?.to_string_lossy().to_lowercase();
        if path.starts_with("/dev") && !path.starts_with("/dev/shm") {
            return Some("it is a device");
        }
        if path.starts_with("/proc")
            && (PROCESS_FILES.contains(&name.as_str())
                || path.components().any(|part| part.as_os_str() == "fd"))
        {
            return Some("it shows the inside of a process");
        }
        if self.is_home_secret(path) {
            return Some("it holds credentials of Hermes; they are used by its tools, never shown");
        }
        if self.readable.iter().any(|open| path.starts_with(open)) {
            return None;
        }
        if is_env_file(&name) {
            return Some(
                "such files hold credentials; read .env.example, or ask the person for what you need",
            );
        }
        let host_key = path.starts_with("/etc/ssh") && name.ends_with("_key");
        if host_key || SYSTEM.iter().any(|secret| path.starts_with(secret)) {
            return Some("it holds credentials of the system");
        }
        // A copy of someone's keys is private too.
        let is_public = path.extension().is_some_and(|end| end == "pub");
        let in_private_directory = path.parent().is_some_and(|dir| {
            dir.iter()
                .any(|part| PRIVATE_DIRECTORIES.iter().any(|name| part == *name))
        });
        if in_private_directory && !is_public {
            return Some("it is among keys or passwords");
        }
        let below_user = path
            .strip_prefix(&self.user_dir)
            .is_ok_and(|below| is_personal(&below.to_string_lossy()));
        let below_another = below_some_home(&path.to_string_lossy()).is_some_and(is_personal);
        let is_named = NAMED_BY_VARIABLES
            .iter()
            .filter_map(std::env::var_os)
            .any(|named| std::env::split_paths(&named).any(|file| is_file_at(&file, path)));
        let is_listed = path.ancestors().any(|path| self.private.contains(path));
        (below_user || below_another || is_named || is_listed).then_some(
            "it is private (keys, credentials, sessions or what was typed); the person can open it with \
             terminal.sandbox_readable",
        )
    }

    /// The same for a path as given: links in it are checked when they are followed.
    pub(super) fn unreadable_as_named(&self, path: &Path) -> Option<&'static str> {
        self.unreadable(&lexically_normal(path))
    }

    /// Whether a file is one of the home's secrets under another name (a hard link).
    pub(super) fn is_secret_inode(&self, id: (u64, u64)) -> bool {
        self.homes.iter().any(|home| {
            SECRET_FILES.iter().any(|name| {
                home.join(name)
                    .metadata()
                    .is_ok_and(|meta| (meta.dev(), meta.ino()) == id)
            })
        })
    }

    /// Whether keys in the text are hidden: in settings and logs of the home, where users put them in plain
    /// text. Elsewhere the text must stay unchanged for editing.
    pub(super) fn hides_keys(&self, path: &Path) -> bool {
        let top = |below: &str| !below.contains('/') || below.starts_with("logs/");
        self.homes
            .iter()
            .any(|home| below(home, path).is_some_and(|below| top(&below)))
    }

    /// Why the file at `path`, which has no links, may not be written with these tools.
    pub(super) fn unwritable(&self, path: &Path) -> Option<String> {
        let because = |why: &str| Some(why.to_owned());
        let system = SYSTEM_DIRS.iter().any(|dir| path.starts_with(dir))
            || SYSTEM_FILES.iter().any(|file| path == Path::new(file));
        if system && !path.starts_with("/dev/shm") {
            return because(
                "it belongs to the system; changing it takes a command the person allows",
            );
        }
        if self.homes.iter().any(|home| is_home_config(home, path)) {
            return because(
                "it is the configuration of Hermes, which the agent may not change; the person can with hermes config",
            );
        }
        if self.is_home_secret(path) || self.homes.iter().any(|home| is_home_state(home, path)) {
            return because("it is kept by Hermes itself");
        }
        if let Ok(below) = path.strip_prefix(&self.user_dir) {
            let denied = DENIED_DIRS.iter().any(|dir| below.starts_with(dir))
                || DENIED_FILES.iter().any(|file| below == Path::new(file));
            if denied {
                return because("it holds credentials or decides who gets in");
            }
        }
        let unsafe_root = !self.safe_roots.is_empty()
            && !self.safe_roots.iter().any(|root| path.starts_with(root));
        unsafe_root.then(|| {
            let roots: Vec<String> = self
                .safe_roots
                .iter()
                .map(|root| root.display().to_string())
                .collect();
            format!(
                "HERMES_WRITE_SAFE_ROOT limits writing to {}",
                roots.join(", ")
            )
        })
    }

    /// The profile that `path` affects, if it is not the current one.
    pub(super) fn other_profile(&self, path: &Path) -> Option<String> {
        let below = path.strip_prefix(&self.profiles_root).ok()?;
        let mut parts = below.iter().map(|part| part.to_string_lossy());
        let first = parts.next()?;
        let (owner, area) = if first == "profiles" {
            (parts.next()?.into_owned(), parts.next()?)
        } else {
            ("default".to_owned(), first)
        };
        let own = match self.root.strip_prefix(self.profiles_root.join("profiles")) {
            Ok(name) => name.to_string_lossy().into_owned(),
            Err(_) => "default".to_owned(),
        };
        (SCOPED_AREAS.contains(&&*area) && owner != own).then_some(owner)
    }

    fn is_home_secret(&self, path: &Path) -> bool {
        self.homes.iter().any(|home| {
            let Some(below) = below(home, path) else {
                return false;
            };
            SECRET_FILES.contains(&below.as_str()) || inside(&below, &SECRET_DIRS)
        })
    }
}

/// Whether `path` is `named` or below it. A relative name is ignored.
fn is_file_at(named: &Path, path: &Path) -> bool {
    let real = named.canonicalize();
    named.is_absolute()
        && (path.starts_with(named) || real.is_ok_and(|real| path.starts_with(real)))
}

fn is_home_config(home: &Path, path: &Path) -> bool {
    below(home, path).is_some_and(|below| below == "config.yaml" || below == "active_profile")
}

fn is_home_state(home: &Path, path: &Path) -> bool {
    below(home, path).is_some_and(|below| {
        HOME_STATE_FILES.iter().any(|file| below.starts_with(file))
            || inside(&below, &HOME_STATE_DIRS)
    })
}

fn inside(below: &str, dirs: &[&str]) -> bool {
    dirs.iter().any(|dir| {
        below
            .strip_prefix(dir)
            .is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
    })
}

/// The path below a home, in lower case. Each profile is a separate home.
fn below(home: &Path, path: &Path) -> Option<String> {
    let below = path
        .strip_prefix(home)
        .ok()?
        .to_string_lossy()
        .to_lowercase();
    let in_profile = below
        .strip_prefix("profiles/")
        .and_then(|rest| Some(rest.split_once('/')?.1.to_owned()));
    Some(in_profile.unwrap_or(below))
}

#[cfg(test)]
mod tests;

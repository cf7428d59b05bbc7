//! Classifies paths by their text, and reads and writes of them.

use std::path::{Component, Path, PathBuf};

use hermes_core::private::{
    PERSONAL, PRIVATE_DIRECTORIES, below_some_home, is_personal, is_secret_name, runs_later,
    runs_later_in_home,
};

use super::Classifier;
use crate::assessment::Category;
use crate::shell::ShellWord;

/// How a path is written to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum WriteKind {
    Redirect,
    Tee,
    Copy,
    /// In place: `sed -i`.
    Edit,
    Create,
    Delete,
}

/// The kind of a path; if several apply, the first one counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PathKind {
    /// `/dev/null` and friends.
    Discard,
    /// `/dev/tcp/…`
    Socket,
    BlockDevice,
    /// Unknown: the text does not say.
    Unknown,
    /// Keys and passwords.
    Credential,
    /// Files that are executed automatically: shell start files, autostart, timers, hooks.
    Startup,
    /// Hermes' configuration and keys.
    Hermes,
    SystemConfig,
    /// `.env` and `config.yaml` of a project.
    ProjectConfig,
    Outside,
    Workspace,
}

const NOWHERE: [&str; 9] = [
    "/dev/null",
    "/dev/stdout",
    "/dev/stderr",
    "/dev/stdin",
    "/dev/tty",
    "/dev/zero",
    "/dev/full",
    "/dev/random",
    "/dev/urandom",
];
const BLOCK_DEVICES: [&str; 10] = [
    "sd", "nvme", "hd", "mmcblk", "vd", "xvd", "disk", "rdisk", "mapper/", "md",
];
/// Directories whose loss destroys the system, besides `/`.
const SYSTEM_DIRS: [&str; 24] = [
    "bin",
    "boot",
    "dev",
    "etc",
    "home",
    "lib",
    "lib32",
    "lib64",
    "opt",
    "proc",
    "root",
    "run",
    "sbin",
    "srv",
    "sys",
    "usr",
    "var",
    "Users",
    "System",
    "Library",
    "Applications",
    "private",
    "nix",
    "snap",
];
const STARTUP: [&str; 31] = [
    ".bashrc",
    ".bash_profile",
    ".bash_login",
    ".bash_logout",
    ".bash_aliases",
    ".profile",
    ".zshrc",
    ".zshenv",
    ".zprofile",
    ".zlogin",
    ".zlogout",
    ".inputrc",
    ".xinitrc",
    ".xprofile",
    ".xsession",
    ".xsessionrc",
    ".pam_environment",
    ".gitconfig",
    ".config/git",
    ".config/fish",
    ".config/autostart",
    ".config/systemd",
    ".config/environment.d",
    ".local/share/systemd",
    ".config/nushell",
    ".vimrc",
    ".config/nvim",
    "Library/LaunchAgents",
    ".tmux.conf",
    ".forward",
    ".local/share/applications",
];
const SYSTEM_STARTUP: [&str; 9] = [
    "/etc/cron",
    "/var/spool/cron",
    "/etc/systemd",
    "/usr/lib/systemd",
    "/etc/init",
    "/etc/profile",
    "/etc/rc.local",
    "/Library/Launch",
    "/etc/ld.so.preload",
];
/// Files of the Hermes home that contain keys or control its permissions.
const HERMES_FILES: [&str; 7] = [
    "config.yaml",
    ".env",
    "auth.json",
    "mcp-tokens",
    "scripts",
    "cron",
    "hooks",
];

/// Removes `.` and `..` without accessing the disk.
pub(super) fn lexical(path: &Path) -> PathBuf {
    let mut out = PathBuf::from("/");
    for part in path.components() {
        match part {
            Component::ParentDir => {
                out.pop();
            }
            Component::Normal(name) => out.push(name),
            _ => {}
        }
    }
    out
}

fn is_public_key(name: &str) -> bool {
    Path::new(name).extension().is_some_and(|end| end == "pub")
}

impl Classifier<'_> {
    pub(crate) fn user_home(&self) -> &Path {
        &self.around.user_home
    }

    /// The working directory is no longer known.
    pub(crate) fn is_cwd_unknown(&self) -> bool {
        self.lost
    }

    /// The working directory, if only one is possible.
    pub(crate) fn only_directory(&self) -> Option<&Path> {
        match self.cwds.as_slice() {
            [only] if !self.lost => Some(only),
            _ => None,
        }
    }

    /// Locations of keys and passwords of the user and of Hermes.
    pub(crate) fn credential_places(&self) -> Vec<PathBuf> {
        let own = [
            ".env",
            "auth.json",
            "mcp-tokens/server.json",
            "profiles/other/.env",
        ];
        let typical = [
            ".ssh/id_ed25519",
            ".ssh/id_rsa",
            ".ssh/config",
            ".aws/credentials",
            ".kube/config",
            ".docker/config.json",
        ];
        let below_home = PERSONAL
            .iter()
            .chain(&typical)
            .map(|place| self.around.user_home.join(place));
        below_home
            .chain(own.iter().map(|place| self.around.hermes_home.join(place)))
            .map(|path| lexical(&path))
            .collect()
    }

    /// Whether writing to `word` stays in the workspace: `Some(false)` if nothing is written, `None` if it may
    /// be elsewhere or is protected.
    pub(crate) fn writes_inside(&self, word: &ShellWord) -> Option<bool> {
        match self.path_kind(word) {
            PathKind::Discard => Some(false),
            PathKind::Workspace => Some(true),
            _ => None,
        }
    }

    /// Possible working directories.
    pub(crate) fn directories(&self) -> &[PathBuf] {
        &self.cwds
    }

    /// `real` as the workspace names it: one of its roots may be behind a link.
    pub(crate) fn relative_to_roots(&self, real: &Path) -> Vec<PathBuf> {
        let temporary = ["/tmp", "/var/tmp", "/dev/shm"].map(PathBuf::from);
        let behind = self.roots.iter().chain(&temporary).filter_map(|root| {
            let rest = real.strip_prefix(root.canonicalize().ok()?).ok()?;
            Some(root.join(rest))
        });
        std::iter::once(real.to_path_buf()).chain(behind).collect()
    }

    /// The paths that `text` may stand for.
    pub(crate) fn resolve(&self, text: &str) -> Vec<PathBuf> {
        self.cwds
            .iter()
            .map(|cwd| lexical(&cwd.join(text)))
            .collect()
    }

    pub(super) fn path_kind(&self, word: &ShellWord) -> PathKind {
        let text = word.text.as_str();
        if NOWHERE.contains(&text) || text.starts_with("/dev/fd/") || text.starts_with("/dev/pts/")
        {
            return PathKind::Discard;
        }
        if text.starts_with("/dev/tcp/") || text.starts_with("/dev/udp/") {
            return PathKind::Socket;
        }
        if is_block_device(text) {
            return PathKind::BlockDevice;
        }
        let certain = word.known() && (text.starts_with('/') || !self.lost);
        let worst = self
            .resolve(text)
            .into_iter()
            .map(|path| self.kind_of_path(&path))
            .min_by_key(|spot| *spot as u8);
        match worst {
            Some(PathKind::Workspace | PathKind::Outside) if !certain => PathKind::Unknown,
            Some(spot) => spot,
            None => PathKind::Unknown,
        }
    }

    fn kind_of_path(&self, path: &Path) -> PathKind {
        let text = path.to_string_lossy();
        let text = text.as_ref();
        let name = path
            .file_name()
            .map(|name| name.to_string_lossy())
            .unwrap_or_default();
        if let Ok(rest) = path.strip_prefix(&self.around.hermes_home) {
            let first = rest
                .components()
                .next()
                .map(|part| part.as_os_str().to_string_lossy());
            if first
                .is_none_or(|first| HERMES_FILES.contains(&first.as_ref()) || first.contains('*'))
            {
                return PathKind::Hermes;
            }
        }
        if let Ok(rest) = path.strip_prefix(&self.around.user_home) {
            if is_personal(&rest.to_string_lossy()) {
                return PathKind::Credential;
            }
            if STARTUP.iter().any(|place| rest.starts_with(place)) {
                return PathKind::Startup;
            }
            if rest.starts_with(".hermes") && HERMES_FILES.contains(&name.as_ref()) {
                return PathKind::Hermes;
            }
        }
        // Git executes what its own directory configures. A file named HEAD makes any directory one of git's.
        let git = path.components().any(|part| part.as_os_str() == ".git");
        if git || name == "HEAD" || self.runs_later(path) {
            return PathKind::Startup;
        }
        if SYSTEM_STARTUP.iter().any(|place| text.starts_with(place)) {
            return PathKind::Startup;
        }
        if text == "/etc"
            || text.starts_with("/etc/")
            || text.starts_with("/private/etc")
            || text.starts_with("/proc/sys")
            || text.starts_with("/sys/")
        {
            return PathKind::SystemConfig;
        }
        if (name.starts_with(".env") && is_secret_name(&name)) || name == "config.yaml" {
            return PathKind::ProjectConfig;
        }
        let inside = self.is_inside(path);
        if inside {
            PathKind::Workspace
        } else {
            PathKind::Outside
        }
    }

    /// Whether a shell, an editor or another agent executes it when a user works there.
    fn runs_later(&self, path: &Path) -> bool {
        let below = |root: &Path| {
            let rest = path.strip_prefix(lexical(root)).ok()?;
            Some(rest.to_string_lossy().into_owned())
        };
        let in_home = below(&self.around.user_home).is_some_and(|rest| {
            let top = rest.split('/').next().unwrap_or_default();
            !top.is_empty() && runs_later_in_home(top)
        });
        // A project in a home has hidden files of its own; it is judged separately.
        let is_project = self
            .roots
            .iter()
            .any(|root| path.starts_with(lexical(root)) && **root != self.around.user_home);
        self.roots
            .iter()
            .filter_map(|root| below(root))
            .any(|rest| runs_later(&rest))
            || (in_home && !is_project)
    }

    /// Whether `path` is in the workspace or a temporary directory.
    pub(crate) fn is_inside(&self, path: &Path) -> bool {
        let temporary = ["/tmp", "/var/tmp", "/private/tmp", "/dev/shm"].map(Path::new);
        self.roots
            .iter()
            .any(|root| path.starts_with(lexical(root)))
            || temporary
                .iter()
                .any(|root| path.starts_with(root) && path != *root)
    }

    /// Writing to `word`.
    pub(super) fn write(&mut self, word: &ShellWord, verb: WriteKind) {
        let path = shown(word);
        match self.path_kind(word) {
            PathKind::Discard => {}
            PathKind::Socket => self.add_firm(
                Category::REVERSE_SHELL,
                format!("opens a network connection ({path})"),
            ),
            PathKind::BlockDevice => self.add_forbidden(
                if verb == WriteKind::Redirect {
                    Category::REDIRECT_DEVICE
                } else {
                    Category::DEVICE_WRITE
                },
                format!("writes to the disk {path} itself"),
            ),
            PathKind::Workspace => self.writes = true,
            PathKind::Unknown => self.add_soft(
                Category::OUTSIDE_WRITE,
                format!("writes to {path}, which is not known before it runs"),
            ),
            PathKind::Outside => self.add_firm(
                outside(verb),
                format!("writes to {path}, outside the workspace"),
            ),
            PathKind::Credential => self.add_firm(
                sensitive(verb),
                format!("changes {path}, which holds keys or passwords"),
            ),
            PathKind::Startup => {
                self.add_firm(sensitive(verb), format!("changes {path}"));
                self.add_firm(
                    Category::PERSISTENCE,
                    format!("{path} runs automatically later"),
                );
            }
            PathKind::Hermes => {
                let category = if verb == WriteKind::Edit {
                    Category::EDIT_HERMES
                } else {
                    Category::HERMES_SETTINGS
                };
                self.add_firm(
                    category,
                    format!("changes {path}, which decides what Hermes may do"),
                );
            }
            PathKind::SystemConfig => {
                if word.text.starts_with("/proc/sysrq") {
                    self.add_forbidden(Category::SHUTDOWN, "triggers the kernel directly");
                }
                self.add_firm(
                    system_config(verb),
                    format!("changes {path}, which configures the system"),
                );
            }
            PathKind::ProjectConfig => {
                self.add_firm(
                    project(verb),
                    format!("changes {path}, the project's own settings"),
                );
            }
        }
        if word.text.starts_with("/proc/sysrq-trigger") {
            self.add_forbidden(
                Category::SHUTDOWN,
                "makes the kernel stop or restart the machine",
            );
        }
    }

    /// Reading from `word`.
    pub(super) fn read(&mut self, word: &ShellWord) {
        if word.text.starts_with("/dev/tcp/") || word.text.starts_with("/dev/udp/") {
            self.facts.network = true;
            self.add_firm(
                Category::REVERSE_SHELL,
                format!("opens a network connection ({})", shown(word)),
            );
        }
        if self.is_secret(word) {
            self.facts.secret = true;
            self.add_firm(
                Category::SECRET_READ,
                format!("reads {}, which holds secrets", shown(word)),
            );
        }
    }

    pub(crate) fn is_secret(&self, word: &ShellWord) -> bool {
        let text = word.text.as_str();
        let name = text.rsplit('/').next().unwrap_or(text);
        if is_secret_name(name) {
            return true;
        }
        if text.starts_with("/proc/")
            && ["environ", "mem", "maps"]
                .iter()
                .any(|end| text.ends_with(end))
        {
            return true;
        }
        let public = is_public_key(name) || name.starts_with("known_hosts");
        self.resolve(text).iter().any(|path| {
            let hermes = path
                .strip_prefix(&self.around.hermes_home)
                .is_ok_and(|rest| {
                    rest.starts_with("auth.json")
                        || rest.starts_with("gateway_control.json")
                        || rest.starts_with("mcp-tokens")
                        || rest.starts_with(".env")
                });
            let credential = path
                .strip_prefix(&self.around.user_home)
                .is_ok_and(|rest| is_personal(&rest.to_string_lossy()))
                || below_some_home(&path.to_string_lossy()).is_some_and(is_personal);
            // Those of other users and other homes too.
            let private = path.components().any(|part| {
                PRIVATE_DIRECTORIES
                    .iter()
                    .any(|dir| part.as_os_str() == *dir)
            });
            hermes || ((credential || private) && !public)
        })
    }

    /// A directory that contains secrets: the user's or Hermes' own.
    pub(super) fn holds_secrets(&self, word: &ShellWord) -> bool {
        self.is_secret(word)
            || self.resolve(&word.text).iter().any(|path| {
                self.around.user_home.starts_with(path) || self.around.hermes_home.starts_with(path)
            })
    }

    /// The irreplaceable directory that a recursive deletion of `word` would hit.
    pub(super) fn irreplaceable(&self, word: &ShellWord) -> Option<Category> {
        if !word.known() {
            return None;
        }
        self.resolve(&word.text)
            .iter()
            .find_map(|path| self.irreplaceable_path(path))
    }

    fn irreplaceable_path(&self, path: &Path) -> Option<Category> {
        let mut parts: Vec<String> = path
            .components()
            .filter_map(|part| match part {
                Component::Normal(name) => Some(name.to_string_lossy().into_owned()),
                _ => None,
            })
            .collect();
        // Everything in a directory is the directory.
        while parts.last().is_some_and(|last| is_everything(last)) {
            parts.pop();
        }
        let wild = |part: &String| part.contains(['*', '?', '[']);
        let inside: PathBuf = std::iter::once("/".to_owned())
            .chain(parts.iter().cloned())
            .collect();
        let home = lexical(&self.around.user_home);
        if inside == home
            || (home != Path::new("/") && home.starts_with(&inside) && parts.len() > 1)
        {
            return Some(Category::HOME_DELETE);
        }
        match parts.as_slice() {
            [] => Some(Category::ROOT_DELETE),
            [first] if wild(first) => Some(Category::ROOT_DELETE),
            [first] if SYSTEM_DIRS.contains(&first.as_str()) => Some(Category::SYSTEM_DELETE),
            [first, _] if first == "home" || first == "Users" => Some(Category::HOME_DELETE),
            [first, _] if first == "usr" || first == "private" => Some(Category::SYSTEM_DELETE),
            _ => None,
        }
    }

    pub(super) fn is_fetched(&self, word: &ShellWord) -> bool {
        self.resolve(&word.text)
            .iter()
            .any(|path| self.facts.fetched.contains(path))
    }

    pub(super) fn is_made_executable(&self, word: &ShellWord) -> bool {
        self.resolve(&word.text)
            .iter()
            .any(|path| self.facts.executable.contains(path))
    }

    /// `cd`: relative paths may start there from now on.
    pub(super) fn enter(&mut self, word: &ShellWord) {
        if !word.known() || word.text == "-" {
            self.lost = true;
            return;
        }
        let places = self.resolve(&word.text);
        for place in places {
            if !self.cwds.contains(&place) {
                self.cwds.push(place);
            }
        }
        if self.cwds.len() > 16 {
            self.cwds.truncate(16);
            self.lost = true;
        }
    }
}

/// `*`, `.*`, `{*,.*}`: everything in a directory.
fn is_everything(part: &str) -> bool {
    part.contains('*') && part.chars().all(|c| "*.[]!?".contains(c))
}

pub(super) fn is_block_device(text: &str) -> bool {
    text.strip_prefix("/dev/")
        .is_some_and(|device| BLOCK_DEVICES.iter().any(|kind| device.starts_with(kind)))
}

pub(super) fn shown(word: &ShellWord) -> String {
    word.text.replace(crate::shell::UNKNOWN, "…")
}

fn outside(verb: WriteKind) -> Category {
    match verb {
        WriteKind::Delete => Category::DELETE_IN_ROOT,
        _ => Category::OUTSIDE_WRITE,
    }
}

fn sensitive(verb: WriteKind) -> Category {
    match verb {
        WriteKind::Redirect => Category::REDIRECT_SYSTEM,
        WriteKind::Tee => Category::TEE_SYSTEM,
        WriteKind::Edit => Category::EDIT_SENSITIVE,
        WriteKind::Delete => Category::DELETE_IN_ROOT,
        WriteKind::Copy | WriteKind::Create => Category::COPY_TO_SENSITIVE,
    }
}

fn system_config(verb: WriteKind) -> Category {
    match verb {
        WriteKind::Redirect => Category::SYSTEM_CONFIG,
        WriteKind::Tee => Category::TEE_SYSTEM,
        WriteKind::Edit => Category::EDIT_SYSTEM,
        WriteKind::Delete => Category::DELETE_IN_ROOT,
        WriteKind::Copy | WriteKind::Create => Category::COPY_TO_SYSTEM,
    }
}

fn project(verb: WriteKind) -> Category {
    match verb {
        WriteKind::Redirect => Category::REDIRECT_PROJECT,
        WriteKind::Tee => Category::TEE_PROJECT,
        _ => Category::COPY_TO_PROJECT,
    }
}

//! Confines commands on this machine.
//!
//! A command is started through our own binary (`hermes __confine <spec> -- program …`), which applies the
//! limits to itself and then becomes the command: [`confine_main`]. The tiers:
//!
//! | tier | files | processes | network off | system calls |
//! |---|---|---|---|---|
//! | Landlock | kernel allow-list rules inside a private mount view (`view`) | own PID namespace (`jail`) |
//! only Unix sockets | filtered |
//! | bubblewrap | own mount namespace | own PID namespace | empty network namespace | filtered |
//!
//! A confined command can read everything except secrets of the Hermes home and private files of the user. It
//! can write below the workspace, temporary directories, caches and configured paths, but not to files that
//! something else would execute later (`protect`).

mod blocked;
mod bubblewrap;
mod confine;
mod forbidden_paths;
#[cfg(target_os = "linux")]
mod fork;
mod fs_dependencies;
mod git_index;
mod git_layout;
mod git_settings;
#[cfg(target_os = "linux")]
mod helper_loop;
#[cfg(target_os = "linux")]
mod helper_protocol;
mod inotify;
#[cfg(target_os = "linux")]
mod jail;
#[cfg(target_os = "linux")]
mod kernel;
mod memo;
mod mounts;
mod other_homes;
mod path_state;
mod paths;
#[cfg(target_os = "linux")]
mod prepared_ruleset;
#[cfg(target_os = "linux")]
mod prepared_shell;
mod protect;
mod repositories;
mod rules;
mod scripts;
#[cfg(target_os = "linux")]
mod seccomp;
mod sockets;
#[cfg(target_os = "linux")]
mod spare_process;
mod spec;
mod start_files;
mod survey;
mod system_files;
mod tracked_fs;
mod tree;
#[cfg(target_os = "linux")]
mod view;

use std::collections::BTreeSet;
use std::ffi::{OsStr, OsString};
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use hermes_config::{Config, Home};
use hermes_core::private::runs_later;
use serde_json::{Map, Value};

pub(crate) use forbidden_paths::ForbiddenPaths;
#[cfg(target_os = "linux")]
pub(crate) use helper_protocol::HelperReply;
use memo::{CachedValue, Memo};
use paths::PrivateDir;
use spec::HelperSpec;
pub use spec::ResourceLimits;

#[cfg(target_os = "linux")]
use crate::confinement::HelperStart;
use crate::confinement::{Confine, Confinement, Launch, QuarantineWatch};
use crate::environment::ExecError;

/// First argument that turns our binary into the confining helper.
pub const CONFINE: &str = "__confine";

/// Exit code of a helper that could not set up the limits and ran nothing.
pub const CONFINE_FAILED: u8 = 125;

/// Entry point of the helper; `args` follows [`CONFINE`]. Returns only if nothing could be run; the reason is
/// then on standard error.
pub fn confine_main(args: impl Iterator<Item = OsString>) -> std::process::ExitCode {
    confine::main(args)
}

/// The configured sandbox.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SandboxChoice {
    Auto,
    Landlock,
    Bubblewrap,
    Off,
}

impl SandboxChoice {
    pub fn parse(word: &str) -> Option<Self> {
        Some(match word {
            "auto" | "" => Self::Auto,
            "landlock" => Self::Landlock,
            "bubblewrap" | "bwrap" => Self::Bubblewrap,
            // YAML reads a bare `off` as false.
            "off" | "none" | "false" => Self::Off,
            _ => return None,
        })
    }

    fn name(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::Landlock => "landlock",
            Self::Bubblewrap => "bubblewrap",
            Self::Off => "off",
        }
    }
}

/// The sandbox that is in force.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub enum SandboxTier {
    Landlock,
    Bubblewrap,
    None,
}

impl fmt::Display for SandboxTier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Landlock => "Landlock + seccomp",
            Self::Bubblewrap => "bubblewrap + seccomp",
            Self::None => "none",
        })
    }
}

/// The requested and the active sandbox, and why they differ or why commands cannot run.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub struct SandboxStatus {
    pub requested: &'static str,
    pub active: SandboxTier,
    pub network: bool,
    /// Empty if everything is as requested.
    pub why: String,
    /// What this system does not support and the consequence; empty if it supports everything.
    pub weaker: String,
    /// Commands are refused because the configured sandbox is missing.
    pub refuses: bool,
}

impl fmt::Display for SandboxStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.refuses {
            return write!(f, "commands are refused: {}", self.why);
        }
        match self.active {
            SandboxTier::None => write!(f, "not sandboxed")?,
            tier => {
                let network = if self.network { "on" } else { "off" };
                write!(f, "sandboxed ({tier}), network {network}")?;
            }
        }
        for words in [&self.why, &self.weaker] {
            if !words.is_empty() {
                write!(f, " ({words})")?;
            }
        }
        Ok(())
    }
}

/// Settings of a sandbox.
#[derive(Clone, Debug)]
pub struct SandboxSettings {
    pub choice: SandboxChoice,
    /// A configured value that is not a known choice: fails closed.
    pub unknown: Option<String>,
    pub network: bool,
    pub writable: Vec<PathBuf>,
    pub unreadable: Vec<PathBuf>,
    /// Private files and directories that the user opened for commands and file tools.
    pub readable: Vec<PathBuf>,
    /// Sockets, or directories of sockets, that commands may connect to.
    pub sockets: Vec<PathBuf>,
    pub limits: ResourceLimits,
    /// Hermes homes: commands read only their non-secret entries and write nothing in them.
    pub homes: Vec<PathBuf>,
    pub user_home: Option<PathBuf>,
    /// Command lines that Hermes itself runs unconfined (hooks, MCP servers): commands cannot write the files of
    /// the workspace that these name.
    pub own_commands: Vec<String>,
    /// The binary that understands [`CONFINE`]; `None`: this one.
    pub helper: Option<PathBuf>,
}

impl SandboxSettings {
    pub fn from_config(home: &Home, config: &Config) -> Self {
        let terminal = &config.terminal;
        let choice = SandboxChoice::parse(&terminal.sandbox);
        let expand = |list: &[String]| list.iter().map(|path| home.expand_user(path)).collect();
        let mut homes = vec![home.root().to_owned()];
        if home.profiles_root() != home.root() {
            homes.push(home.profiles_root().to_owned());
        }
        let user_home = home.expand_user("~");
        Self {
            choice: choice.unwrap_or(SandboxChoice::Auto),
            unknown: choice
                .is_none()
                .then(|| terminal.sandbox.as_str().to_owned()),
            network: terminal.sandbox_network,
            writable: expand(&terminal.sandbox_writable),
            unreadable: expand(&terminal.sandbox_unreadable),
            readable: expand(&terminal.sandbox_readable),
            sockets: expand(&terminal.sandbox_sockets),
            limits: ResourceLimits {
                processes: terminal.sandbox_max_processes,
                memory: terminal.sandbox_max_memory_mb.saturating_mul(1 << 20),
                file: terminal.sandbox_max_file_mb.saturating_mul(1 << 20),
            },
            homes,
            user_home: user_home.is_absolute().then_some(user_home),
            own_commands: own_commands(home, config),
            helper: None,
        }
    }
}

/// The command lines in the configuration that run unconfined.
fn own_commands(home: &Home, config: &Config) -> Vec<String> {
    let mut lines = Vec::new();
    let entries = config.hooks.values().filter_map(Value::as_array).flatten();
    lines.extend(entries.filter_map(|hook| hook["command"].as_str().map(str::to_owned)));
    for server in config.mcp_servers.iter().flat_map(Map::values) {
        let args = server["args"].as_array().into_iter().flatten();
        let words = std::iter::once(&server["command"]).chain(args);
        let words: Vec<&str> = words.filter_map(Value::as_str).collect();
        lines.push(words.join(" "));
    }
    lines.retain(|line| !line.is_empty());
    let user_home = home.expand_user("~").display().to_string();
    lines
        .iter()
        .map(|line| line.replace("~/", &format!("{user_home}/")))
        .collect()
}

/// Id of the next sandbox.
static NEXT_ID: AtomicU64 = AtomicU64::new(0);
/// Cached results: confinements by sandbox and directory, file access by limits.
static CONFINEMENTS: Memo<(u64, PathBuf), Confinement> = Memo::new();
static ACCESSES: Memo<AccessKey, FileAccess> = Memo::new();
static PRIVATE_FILES: Memo<(u64, PathBuf), Arc<BTreeSet<PathBuf>>> = Memo::new();

/// The sandbox of this machine.
#[derive(Clone, Debug)]
pub struct Sandbox {
    /// Identifies this sandbox and its clones in the caches.
    id: u64,
    settings: SandboxSettings,
    posture: SandboxStatus,
    bwrap: Option<PathBuf>,
    private: Vec<PrivateDir>,
    pinned: paths::PinnedPaths,
    protection: protect::Protection,
}

impl Sandbox {
    /// Detects what this machine supports.
    pub fn detect(settings: SandboxSettings) -> Self {
        let path = std::env::var_os("PATH").unwrap_or_default();
        Self::detect_on(settings, &path)
    }

    /// The same with an explicit program search path.
    pub fn detect_on(settings: SandboxSettings, path: &OsStr) -> Self {
        let landlock = has_landlock();
        let bwrap = match settings.choice {
            SandboxChoice::Bubblewrap => bubblewrap::find(path),
            SandboxChoice::Auto if !landlock => bubblewrap::find(path),
            _ => None,
        };
        let mut sandbox = Self::for_machine(settings, landlock, bwrap);
        if sandbox.posture.active == SandboxTier::Landlock
            && let Some(why) = missing_namespaces()
        {
            sandbox.posture.weaker = format!("{why}: {WITHOUT_VIEW_WARNING}");
        }
        sandbox
    }

    fn for_machine(mut settings: SandboxSettings, landlock: bool, bwrap: Option<PathBuf>) -> Self {
        // An opened path is open under its own name and under its canonical path.
        for opened in [&mut settings.readable, &mut settings.sockets] {
            let real: Vec<PathBuf> = opened.iter().map(|path| paths::canonical(path)).collect();
            opened.extend(real);
            opened.sort();
            opened.dedup();
        }
        let no_landlock = if cfg!(target_os = "linux") {
            "this kernel has no Landlock (Linux 5.13 or newer has)"
        } else {
            "this system has no Landlock"
        };
        let no_bwrap = "bwrap is not installed or cannot make namespaces here";
        let (active, why, refuses) = match (&settings.unknown, settings.choice) {
            (Some(word), _) => (
                SandboxTier::None,
                format!("terminal.sandbox is {word:?}: use auto, landlock, bubblewrap or off"),
                true,
            ),
            (None, SandboxChoice::Off) => (SandboxTier::None, "turned off".to_owned(), false),
            (None, SandboxChoice::Auto | SandboxChoice::Landlock) if landlock => {
                (SandboxTier::Landlock, String::new(), false)
            }
            (None, SandboxChoice::Landlock) => (SandboxTier::None, no_landlock.to_owned(), true),
            (None, SandboxChoice::Bubblewrap) if bwrap.is_some() => {
                (SandboxTier::Bubblewrap, String::new(), false)
            }
            (None, SandboxChoice::Bubblewrap) => (SandboxTier::None, no_bwrap.to_owned(), true),
            (None, SandboxChoice::Auto) if bwrap.is_some() => {
                (SandboxTier::Bubblewrap, no_landlock.to_owned(), false)
            }
            (None, SandboxChoice::Auto) => (
                SandboxTier::None,
                format!("{no_landlock}, and {no_bwrap}"),
                false,
            ),
        };
        let posture = SandboxStatus {
            requested: settings.choice.name(),
            active,
            network: settings.network,
            why,
            weaker: String::new(),
            refuses,
        };
        let private = settings
            .homes
            .iter()
            .map(|dir| PrivateDir::agent_home(dir))
            .collect();
        Self {
            id: NEXT_ID.fetch_add(1, Ordering::Relaxed),
            settings,
            posture,
            bwrap,
            private,
            pinned: paths::PinnedPaths::default(),
            protection: protect::Protection::new(),
        }
    }

    pub fn describe(&self) -> &SandboxStatus {
        &self.posture
    }

    /// The limits of a command that starts in `cwd`.
    pub fn confinement(&self, cwd: &Path) -> Confinement {
        if self.posture.active == SandboxTier::None && !self.posture.refuses {
            return Confinement::Off;
        }
        let found = CONFINEMENTS.get_or_compute((self.id, cwd.to_owned()), || {
            let bases = paths::writable_dirs(cwd, &self.settings, &self.pinned);
            let named = self.settings.unreadable.iter();
            let mut unreadable: Vec<PathBuf> = named.map(|path| paths::canonical(path)).collect();
            unreadable.extend(self.protection.personal(&self.settings));
            Confinement::Workspace {
                writable: bases,
                unreadable,
                network: self.settings.network,
            }
        });
        found.value.clone()
    }

    /// Whether a file written at `path` (which contains no links) would be executed later without limits.
    /// Commands in `cwd` cannot write such files; tools that write files themselves ask here. Independent of
    /// what is enforced on this machine.
    pub fn runs_later(&self, cwd: &Path, path: &Path) -> bool {
        let by_name = |writable: &[PathBuf]| {
            let mut below = writable
                .iter()
                .filter_map(|base| path.strip_prefix(base).ok());
            below.any(|below| runs_later(&below.to_string_lossy()))
        };
        let known = match self.confinement(cwd) {
            Confinement::Workspace { writable, .. } if by_name(&writable) => true,
            Confinement::Workspace {
                writable,
                unreadable,
                ..
            } => {
                let (_, writable) = paths::split_scratch(&writable);
                let access = self.access(&writable, &unreadable);
                let mut read_only = access.value.files.read_only.iter();
                read_only.any(|protected| path.starts_with(protected))
                    || access.value.forbidden.forbids(path)
            }
            Confinement::Off => {
                let writable = paths::writable_dirs(cwd, &self.settings, &self.pinned);
                by_name(&writable) || self.protection.runs_later(&self.settings, &writable, path)
            }
        };
        known || repositories::is_in_repository(path)
    }

    /// Files and directories that commands in `cwd` cannot read, besides those that are private by their place in
    /// a home. Tools that read files themselves ask here. Independent of what is enforced on this machine.
    pub fn private_files(&self, cwd: &Path) -> Arc<BTreeSet<PathBuf>> {
        let found = PRIVATE_FILES.get_or_compute((self.id, cwd.to_owned()), || {
            let writable = paths::writable_dirs(cwd, &self.settings, &self.pinned);
            Arc::new(self.protection.unreadable_files(&self.settings, &writable))
        });
        Arc::clone(&found.value)
    }

    /// Cached file access of commands with these limits.
    fn access(&self, writable: &[PathBuf], unreadable: &[PathBuf]) -> Arc<CachedValue<FileAccess>> {
        let key = AccessKey {
            sandbox: self.id,
            writable: writable.to_vec(),
            unreadable: unreadable.to_vec(),
            sockets: sockets::bound_sockets(),
            // Something else may have been mounted there.
            identities: rules::identities(writable),
            changes: self.protection.changes(writable),
        };
        let sockets = key.sockets.clone();
        let changes = key.changes;
        ACCESSES.get_or_compute(key, || {
            let unreadable = paths::resolve_unreadable(unreadable, &self.private);
            let protected =
                self.protection
                    .protected_paths(&self.settings, writable, &unreadable, sockets);
            let mut readable = self.settings.readable.clone();
            readable.extend(sockets::open_in_run(&self.settings));
            let files = rules::FileRules {
                writable: writable.to_vec(),
                unreadable,
                private: self.private.clone(),
                user_home: self.settings.user_home.clone(),
                read_only: protected.read_only,
                movable: protected.movable,
                hidden: protected.hidden,
                readable,
                connectable: sockets::connectable(&self.settings, writable),
                shares_terminals: false,
            };
            let forbidden = self.protection.forbidden_paths(&self.settings, writable);
            FileAccess::new(files.without_nested(), forbidden, changes)
        })
    }

    fn helper(&self) -> PathBuf {
        match &self.settings.helper {
            Some(helper) => helper.clone(),
            // Names our binary even after it was replaced by a newer one.
            None if cfg!(target_os = "linux") => PathBuf::from("/proc/self/exe"),
            None => std::env::current_exe().unwrap_or_else(|_| "hermes".into()),
        }
    }

    /// Whether these limits can be enforced.
    fn check_enforceable(&self, confinement: &Confinement) -> Result<(), ExecError> {
        if !confinement.is_off()
            && (self.posture.refuses || self.posture.active == SandboxTier::None)
        {
            return Err(ExecError::Sandbox(self.posture.why.clone()));
        }
        Ok(())
    }

    fn spec(&self, launch: &mut Launch, confinement: &Confinement) -> HelperSpec {
        let mut spec = HelperSpec {
            session: true,
            terminal: launch.terminal,
            expects_view: self.posture.weaker.is_empty(),
            env: spec::take_loader_variables(&mut launch.env),
            ..HelperSpec::default()
        };
        if let Confinement::Workspace {
            writable,
            unreadable,
            network,
        } = confinement
        {
            self.limit(&mut spec, *network);
            let (own, writable) = paths::split_scratch(writable);
            let access = self.access(&writable, unreadable);
            let mut files = access.value.files.with_writable(own.clone());
            // A long-running command sees new sockets appear; in temporary directories it may use only ours.
            files.connectable.retain(|base| !paths::is_temporary(base));
            files.connectable.extend(own);
            spec.files = Some(files);
        }
        spec
    }

    /// The spec of a helper and its encoded file rules.
    #[cfg(target_os = "linux")]
    fn helper_files(&self, confinement: &Confinement) -> (HelperSpec, HelperFiles) {
        let mut spec = HelperSpec {
            session: true,
            expects_view: self.posture.weaker.is_empty(),
            ..HelperSpec::default()
        };
        let Confinement::Workspace {
            writable,
            unreadable,
            network,
        } = confinement
        else {
            let none = HelperFiles {
                rules: helper_protocol::encode_json::<rules::FileRules>(None),
                forbidden: helper_protocol::encode_json::<ForbiddenPaths>(None),
                jail_key: Vec::new(),
            };
            return (spec, none);
        };
        self.limit(&mut spec, *network);
        let (own, writable) = paths::split_scratch(writable);
        let access = self.access(&writable, unreadable);
        let access = &access.value;
        let mut helper_files = access.helper_files.clone();
        if !access.files.covers(&own) {
            let files = access.files.with_writable(own);
            helper_files = HelperFiles::new(&files, &access.forbidden);
        }
        (spec, helper_files)
    }

    fn limit(&self, spec: &mut HelperSpec, network: bool) {
        spec.seccomp = true;
        spec.network = network;
        spec.limits = self.settings.limits.resolved();
        spec.guard = vec![std::process::id()];
    }
}

/// Cache key of [`FileAccess`].
#[derive(Debug, PartialEq, Eq)]
struct AccessKey {
    sandbox: u64,
    writable: Vec<PathBuf>,
    unreadable: Vec<PathBuf>,
    sockets: Vec<PathBuf>,
    identities: Vec<u8>,
    /// Change counter of repositories.
    changes: u64,
}

/// File access of commands with the same limits.
#[derive(Debug)]
struct FileAccess {
    files: rules::FileRules,
    forbidden: ForbiddenPaths,
    /// Change counter of repositories at that time.
    changes: u64,
    /// The same, encoded for helpers.
    helper_files: HelperFiles,
}

impl FileAccess {
    fn new(files: rules::FileRules, forbidden: ForbiddenPaths, changes: u64) -> Self {
        Self {
            helper_files: HelperFiles::new(&files, &forbidden),
            files,
            forbidden,
            changes,
        }
    }
}

/// File rules in the encoding that is sent to a helper.
#[derive(Clone, Debug)]
struct HelperFiles {
    rules: Vec<u8>,
    /// Paths that must not exist when a command ends.
    forbidden: Vec<u8>,
    /// Identifies the setup that all commands of a helper share.
    jail_key: Vec<u8>,
}

impl HelperFiles {
    fn new(files: &rules::FileRules, forbidden: &ForbiddenPaths) -> Self {
        let rules = helper_protocol::encode_json(Some(files));
        // A mount view refers to the files that existed: other files of the same names need a new one.
        let jail_key = [&rules[..], &files.identities()].concat();
        Self {
            forbidden: helper_protocol::encode_json(Some(forbidden)),
            rules,
            jail_key,
        }
    }
}

impl Confine for Sandbox {
    fn wrap(&self, mut launch: Launch, confinement: &Confinement) -> Result<Launch, ExecError> {
        self.check_enforceable(confinement)?;
        let spec = self.spec(&mut launch, confinement);
        match (&self.bwrap, self.posture.active) {
            (Some(bwrap), SandboxTier::Bubblewrap) if !confinement.is_off() => {
                let helper = bubblewrap::helper_path(self.settings.helper.as_deref())?;
                bubblewrap::wrap(launch, spec, bwrap, &helper)
            }
            _ => Ok(spec.wrap(launch, &self.helper())),
        }
    }

    #[cfg(target_os = "linux")]
    fn prepare_helper(
        &self,
        launch: &Launch,
        confinement: &Confinement,
    ) -> Result<Option<HelperStart>, ExecError> {
        self.check_enforceable(confinement)?;
        if self.posture.active == SandboxTier::Bubblewrap && !confinement.is_off() {
            return Ok(None);
        }
        // The helper gets no environment that could change its behaviour.
        let (spec, files) = self.helper_files(confinement);
        let helper = Launch {
            program: self.helper().into(),
            args: spec.serve_arguments(),
            cwd: "/".into(),
            ..Launch::default()
        };
        let request = helper_protocol::HelperRequest::new(launch.clone())
            .encode(&files.rules, &files.forbidden);
        Ok(Some(HelperStart {
            helper,
            jail_key: files.jail_key,
            request,
        }))
    }

    fn watch(&self, confinement: &Confinement) -> QuarantineWatch {
        match confinement {
            Confinement::Workspace {
                writable,
                unreadable,
                ..
            } if self.enforces() => {
                let (_, writable) = paths::split_scratch(writable);
                let access = self.access(&writable, unreadable);
                let forbidden = access.value.forbidden.clone();
                let protection = self.protection.clone();
                QuarantineWatch::new(forbidden, move || {
                    access.is_current() && protection.changes(&writable) == access.value.changes
                })
            }
            _ => QuarantineWatch::default(),
        }
    }

    fn posture(&self) -> String {
        self.posture.to_string()
    }

    fn enforces(&self) -> bool {
        self.posture.active != SandboxTier::None
    }

    fn blocked(&self, exit: i32, output: &str, confinement: &Confinement) -> Option<String> {
        blocked::detect(exit, output, confinement, &self.private).map(|found| found.to_string())
    }
}

/// What a command without a private mount view lacks.
const WITHOUT_VIEW_WARNING: &str = "no view of the file system of a command's own: .git, and the top of a repository or \
    a home, are read-only, sockets of other programs can be used, modes and times of files elsewhere are not protected";

/// Why this system probably does not allow namespaces. A helper that lacks an expected namespace warns about
/// it.
#[cfg(target_os = "linux")]
fn missing_namespaces() -> Option<String> {
    use rustix::thread::{CapabilitySet, capabilities};

    let may =
        capabilities(None).is_ok_and(|sets| sets.effective.contains(CapabilitySet::SYS_ADMIN));
    let says = |name: &str, value: &str| {
        let text = std::fs::read_to_string(Path::new("/proc/sys").join(name));
        text.is_ok_and(|text| text.trim() == value)
    };
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    if !may && status.lines().any(|line| line == "Seccomp:\t2") {
        return Some("a filter around this program allows no namespaces".to_owned());
    }
    [
        ("user/max_user_namespaces", "0"),
        ("user/max_mnt_namespaces", "0"),
        ("kernel/unprivileged_userns_clone", "0"),
        ("kernel/apparmor_restrict_unprivileged_userns", "1"),
    ]
    .into_iter()
    .find(|(name, value)| !may && says(name, value))
    .map(|(name, value)| format!("{} is {value}", name.replace('/', ".")))
}

#[cfg(not(target_os = "linux"))]
fn missing_namespaces() -> Option<String> {
    None
}

#[cfg(target_os = "linux")]
fn has_landlock() -> bool {
    kernel::has_landlock()
}

#[cfg(not(target_os = "linux"))]
fn has_landlock() -> bool {
    false
}

#[cfg(test)]
mod tests;

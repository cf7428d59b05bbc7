//! What confines commands on this machine.
//!
//! A command is started through our own program again (`hermes __confine <spec> -- program …`), which
//! puts itself into the limits and then becomes the command: [`confine_main`]. The tiers:
//!
//! | tier | files | processes | network off | system calls |
//! |---|---|---|---|---|
//! | Landlock | kernel rules by an allow-list, in a view of its own (`view`) | a table of its own (`room`) | no sockets but Unix ones | filtered |
//! | bubblewrap | a mount namespace of its own | a table of its own | an empty network namespace | filtered |
//!
//! What a confined command can do: read everything but secrets of the home and private files of the person,
//! write below the workspace, temporary directories, caches and what the configuration names, but nothing that
//! runs later (`protect`).

mod basis;
mod blocked;
mod bubblewrap;
mod confine;
#[cfg(target_os = "linux")]
mod fork;
mod git_index;
mod git_settings;
#[cfg(target_os = "linux")]
mod kernel;
mod later;
mod look;
mod memo;
mod mounts;
mod notify;
#[cfg(target_os = "linux")]
mod order;
mod people;
mod places;
#[cfg(target_os = "linux")]
mod prepared;
mod protect;
mod repositories;
#[cfg(target_os = "linux")]
mod room;
mod rules;
#[cfg(target_os = "linux")]
mod seccomp;
mod seen;
mod sockets;
#[cfg(target_os = "linux")]
mod spare;
mod spec;
mod started;
mod survey;
mod tree;
#[cfg(target_os = "linux")]
mod view;
#[cfg(target_os = "linux")]
mod waiting;

use std::ffi::{OsStr, OsString};
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use hermes_config::{Config, Home};
use hermes_core::private::runs_later;

pub use blocked::{Blocked, BlockedKind};
pub(crate) use later::Awaited;
use memo::{Found, Memo};
#[cfg(target_os = "linux")]
pub(crate) use order::HelperAnswer;
use places::Private;
pub use spec::Limits;
use spec::Spec;

#[cfg(target_os = "linux")]
use crate::confinement::Ahead;
use crate::confinement::{Confine, Confinement, Launch, Watch};
use crate::environment::ExecError;

/// The first argument that makes our program a helper which confines itself.
pub const CONFINE: &str = "__confine";

/// The exit code of a helper that could not set up the limits, and ran nothing.
pub const CONFINE_FAILED: u8 = 125;

/// The helper: `args` is what follows [`CONFINE`]. Returns only when nothing could be run; then the
/// reason is on standard error.
pub fn confine_main(args: impl Iterator<Item = OsString>) -> std::process::ExitCode {
    confine::main(args)
}

/// What the configuration asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Choice {
    Auto,
    Landlock,
    Bubblewrap,
    Off,
}

impl Choice {
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

/// What is in force.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Tier {
    Landlock,
    Bubblewrap,
    None,
}

impl fmt::Display for Tier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Landlock => "Landlock + seccomp",
            Self::Bubblewrap => "bubblewrap + seccomp",
            Self::None => "none",
        })
    }
}

/// What was asked for, what is in force, and why they differ or commands cannot run.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub struct Posture {
    pub requested: &'static str,
    pub active: Tier,
    pub network: bool,
    /// Empty when everything is as asked for.
    pub why: String,
    /// What this system does not allow, and what follows; empty when it allows everything.
    pub weaker: String,
    /// Commands are refused: the named sandbox is missing.
    pub refuses: bool,
}

impl fmt::Display for Posture {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.refuses {
            return write!(f, "commands are refused: {}", self.why);
        }
        match self.active {
            Tier::None => write!(f, "not sandboxed")?,
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

/// What a sandbox is made from.
#[derive(Clone, Debug)]
pub struct Settings {
    pub choice: Choice,
    /// A word in place of a choice that means nothing: fails closed.
    pub unknown: Option<String>,
    pub network: bool,
    pub writable: Vec<PathBuf>,
    pub unreadable: Vec<PathBuf>,
    /// Private files and directories that a person has opened for commands and file tools.
    pub readable: Vec<PathBuf>,
    /// Sockets, or directories of such, that commands may connect to.
    pub sockets: Vec<PathBuf>,
    pub limits: Limits,
    /// Our homes: only what is no secret can be read in them, nothing written.
    pub homes: Vec<PathBuf>,
    pub user_home: Option<PathBuf>,
    /// The program that knows [`CONFINE`]; `None`: this one.
    pub helper: Option<PathBuf>,
}

impl Settings {
    pub fn from_config(home: &Home, config: &Config) -> Self {
        let terminal = &config.terminal;
        let choice = Choice::parse(&terminal.sandbox);
        let expand = |list: &[String]| list.iter().map(|path| home.expand_user(path)).collect();
        let mut homes = vec![home.root().to_owned()];
        if home.profiles_root() != home.root() {
            homes.push(home.profiles_root().to_owned());
        }
        let user_home = home.expand_user("~");
        Self {
            choice: choice.unwrap_or(Choice::Auto),
            unknown: choice
                .is_none()
                .then(|| terminal.sandbox.as_str().to_owned()),
            network: terminal.sandbox_network,
            writable: expand(&terminal.sandbox_writable),
            unreadable: expand(&terminal.sandbox_unreadable),
            readable: expand(&terminal.sandbox_readable),
            sockets: expand(&terminal.sandbox_sockets),
            limits: Limits {
                processes: terminal.sandbox_max_processes,
                memory: terminal.sandbox_max_memory_mb.saturating_mul(1 << 20),
                file: terminal.sandbox_max_file_mb.saturating_mul(1 << 20),
            },
            homes,
            user_home: user_home.is_absolute().then_some(user_home),
            helper: None,
        }
    }
}

/// How many sandboxes were made.
static MADE: AtomicU64 = AtomicU64::new(0);
/// What was found for directories, by sandbox; and for limits.
static CONFINEMENTS: Memo<(u64, PathBuf), Confinement> = Memo::new();
static ACCESSES: Memo<AccessKey, FileAccess> = Memo::new();

/// The sandbox of this machine.
#[derive(Clone, Debug)]
pub struct Sandbox {
    /// Which one this is, or a copy of: its answers are not those of others.
    number: u64,
    settings: Settings,
    posture: Posture,
    bwrap: Option<PathBuf>,
    private: Vec<Private>,
    known: places::Known,
    protection: protect::Protection,
}

impl Sandbox {
    /// Looks at what this machine can do.
    pub fn detect(settings: Settings) -> Self {
        let path = std::env::var_os("PATH").unwrap_or_default();
        Self::detect_on(settings, &path)
    }

    /// The same, with the directories to look for programs in.
    pub fn detect_on(settings: Settings, path: &OsStr) -> Self {
        let landlock = landlock_works();
        let bwrap = match settings.choice {
            Choice::Bubblewrap => bubblewrap::find(path),
            Choice::Auto if !landlock => bubblewrap::find(path),
            _ => None,
        };
        let mut sandbox = Self::with(settings, landlock, bwrap);
        if sandbox.posture.active == Tier::Landlock
            && let Some(why) = no_namespaces()
        {
            sandbox.posture.weaker = format!("{why}: {WITHOUT_VIEW}");
        }
        sandbox
    }

    fn with(mut settings: Settings, landlock: bool, bwrap: Option<PathBuf>) -> Self {
        // What was opened is open by its own name and where it lies.
        for opened in [&mut settings.readable, &mut settings.sockets] {
            let real: Vec<PathBuf> = opened.iter().map(|path| places::canonical(path)).collect();
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
                Tier::None,
                format!("terminal.sandbox is {word:?}: use auto, landlock, bubblewrap or off"),
                true,
            ),
            (None, Choice::Off) => (Tier::None, "turned off".to_owned(), false),
            (None, Choice::Auto | Choice::Landlock) if landlock => {
                (Tier::Landlock, String::new(), false)
            }
            (None, Choice::Landlock) => (Tier::None, no_landlock.to_owned(), true),
            (None, Choice::Bubblewrap) if bwrap.is_some() => {
                (Tier::Bubblewrap, String::new(), false)
            }
            (None, Choice::Bubblewrap) => (Tier::None, no_bwrap.to_owned(), true),
            (None, Choice::Auto) if bwrap.is_some() => {
                (Tier::Bubblewrap, no_landlock.to_owned(), false)
            }
            (None, Choice::Auto) => (Tier::None, format!("{no_landlock}, and {no_bwrap}"), false),
        };
        let posture = Posture {
            requested: settings.choice.name(),
            active,
            network: settings.network,
            why,
            weaker: String::new(),
            refuses,
        };
        let private = settings.homes.iter().map(|dir| Private::of(dir)).collect();
        Self {
            number: MADE.fetch_add(1, Ordering::Relaxed),
            settings,
            posture,
            bwrap,
            private,
            known: places::Known::default(),
            protection: protect::Protection::new(),
        }
    }

    pub fn describe(&self) -> &Posture {
        &self.posture
    }

    /// The limits of a command that starts in `cwd`.
    pub fn confinement(&self, cwd: &Path) -> Confinement {
        if self.posture.active == Tier::None && !self.posture.refuses {
            return Confinement::Off;
        }
        let found = CONFINEMENTS.get((self.number, cwd.to_owned()), || {
            let places = places::writable(cwd, &self.settings, &self.known);
            let named = self.settings.unreadable.iter();
            let mut unreadable: Vec<PathBuf> = named.map(|path| places::canonical(path)).collect();
            unreadable.extend(self.protection.personal(&self.settings));
            Confinement::Workspace {
                writable: places,
                unreadable,
                network: self.settings.network,
            }
        });
        found.value.clone()
    }

    /// Whether what is written at `path`, which has no links in it, runs later and without limits: what commands in
    /// `cwd` are kept from, for tools that write files themselves. It does not depend on what is enforced here.
    pub fn runs_later(&self, cwd: &Path, path: &Path) -> bool {
        let by_name = |writable: &[PathBuf]| {
            let mut below = writable
                .iter()
                .filter_map(|place| path.strip_prefix(place).ok());
            below.any(|below| runs_later(&below.to_string_lossy()))
        };
        let known = match self.confinement(cwd) {
            Confinement::Workspace { writable, .. } if by_name(&writable) => true,
            Confinement::Workspace {
                writable,
                unreadable,
                ..
            } => {
                let (_, writable) = places::split(&writable);
                let access = self.access(&writable, &unreadable);
                let mut read_only = access.value.files.read_only.iter();
                read_only.any(|kept| path.starts_with(kept)) || access.value.awaited.awaits(path)
            }
            Confinement::Off => {
                let writable = places::writable(cwd, &self.settings, &self.known);
                by_name(&writable) || self.protection.runs_later(&self.settings, &writable, path)
            }
        };
        known || repositories::is_in_repository(path)
    }

    /// What commands with these limits may do with files, now.
    fn access(&self, writable: &[PathBuf], unreadable: &[PathBuf]) -> Arc<Found<FileAccess>> {
        let key = AccessKey {
            sandbox: self.number,
            writable: writable.to_vec(),
            unreadable: unreadable.to_vec(),
            sockets: sockets::bound_now(),
            // Something else may have been mounted there.
            identities: rules::identities(writable),
            changes: self.protection.changes(writable),
        };
        let sockets = key.sockets.clone();
        let changes = key.changes;
        ACCESSES.get(key, || {
            let unreadable = places::resolved(unreadable, &self.private);
            let kept = self
                .protection
                .kept(&self.settings, writable, &unreadable, sockets);
            let mut readable = self.settings.readable.clone();
            readable.extend(sockets::open_in_run(&self.settings));
            let files = rules::Files {
                writable: writable.to_vec(),
                unreadable,
                private: self.private.clone(),
                user_home: self.settings.user_home.clone(),
                read_only: kept.read_only,
                movable: kept.movable,
                hidden: kept.hidden,
                readable,
                connectable: sockets::connectable(&self.settings, writable),
                shares_terminals: false,
            };
            let awaited = self.protection.awaited(&self.settings, writable);
            FileAccess::new(files.condensed(), awaited, changes)
        })
    }

    fn helper(&self) -> PathBuf {
        match &self.settings.helper {
            Some(helper) => helper.clone(),
            // Names our program also after it was replaced by a newer one.
            None if cfg!(target_os = "linux") => PathBuf::from("/proc/self/exe"),
            None => std::env::current_exe().unwrap_or_else(|_| "hermes".into()),
        }
    }

    /// Whether these limits can be enforced.
    fn admits(&self, confinement: &Confinement) -> Result<(), ExecError> {
        if !confinement.is_off() && (self.posture.refuses || self.posture.active == Tier::None) {
            return Err(ExecError::Sandbox(self.posture.why.clone()));
        }
        Ok(())
    }

    fn spec(&self, launch: &mut Launch, confinement: &Confinement) -> Spec {
        let mut spec = Spec {
            session: true,
            terminal: launch.terminal,
            expects_view: self.posture.weaker.is_empty(),
            env: spec::withhold(&mut launch.env),
            ..Spec::default()
        };
        if let Confinement::Workspace {
            writable,
            unreadable,
            network,
        } = confinement
        {
            self.limit(&mut spec, *network);
            let (own, writable) = places::split(writable);
            let access = self.access(&writable, unreadable);
            let mut files = access.value.files.with_writable(own.clone());
            // What runs for long sees sockets come; of those in temporary directories only ours are for it.
            files
                .connectable
                .retain(|place| !places::is_temporary(place));
            files.connectable.extend(own);
            spec.files = Some(files);
        }
        spec
    }

    /// The limits of a helper, and what it is told about files.
    #[cfg(target_os = "linux")]
    fn helper_files(&self, confinement: &Confinement) -> (Spec, HelperFiles) {
        let mut spec = Spec {
            session: true,
            expects_view: self.posture.weaker.is_empty(),
            ..Spec::default()
        };
        let Confinement::Workspace {
            writable,
            unreadable,
            network,
        } = confinement
        else {
            let none = HelperFiles {
                rules: order::written::<rules::Files>(None),
                awaited: order::written::<Awaited>(None),
                room: Vec::new(),
            };
            return (spec, none);
        };
        self.limit(&mut spec, *network);
        let (own, writable) = places::split(writable);
        let access = self.access(&writable, unreadable);
        let access = &access.value;
        let mut told = access.told.clone();
        if !access.files.covers(&own) {
            let files = access.files.with_writable(own);
            told = HelperFiles::new(&files, &access.awaited);
        }
        (spec, told)
    }

    fn limit(&self, spec: &mut Spec, network: bool) {
        spec.seccomp = true;
        spec.network = network;
        spec.limits = self.settings.limits.resolved();
        spec.guard = vec![std::process::id()];
    }
}

/// What [`FileAccess`] was asked for.
#[derive(Debug, PartialEq, Eq)]
struct AccessKey {
    sandbox: u64,
    writable: Vec<PathBuf>,
    unreadable: Vec<PathBuf>,
    sockets: Vec<PathBuf>,
    identities: Vec<u8>,
    /// Repositories that have come and gone.
    changes: u64,
}

/// What commands with the same limits may do with files.
#[derive(Debug)]
struct FileAccess {
    files: rules::Files,
    awaited: Awaited,
    /// How often repositories had changed.
    changes: u64,
    /// The same as helpers are told.
    told: HelperFiles,
}

impl FileAccess {
    fn new(files: rules::Files, awaited: Awaited, changes: u64) -> Self {
        Self {
            told: HelperFiles::new(&files, &awaited),
            files,
            awaited,
            changes,
        }
    }
}

/// What a helper is told about files, as it is sent.
#[derive(Clone, Debug)]
struct HelperFiles {
    rules: Vec<u8>,
    /// What must not have appeared when a command ends.
    awaited: Vec<u8>,
    /// What it sets up for all its commands.
    room: Vec<u8>,
}

impl HelperFiles {
    fn new(files: &rules::Files, awaited: &Awaited) -> Self {
        let rules = order::written(Some(files));
        // A view is of the files that were there: others of the same names need another.
        let room = [&rules[..], &files.identities()].concat();
        Self {
            awaited: order::written(Some(awaited)),
            rules,
            room,
        }
    }
}

impl Confine for Sandbox {
    fn wrap(&self, mut launch: Launch, confinement: &Confinement) -> Result<Launch, ExecError> {
        self.admits(confinement)?;
        let spec = self.spec(&mut launch, confinement);
        match (&self.bwrap, self.posture.active) {
            (Some(bwrap), Tier::Bubblewrap) if !confinement.is_off() => {
                let helper = bubblewrap::helper_path(self.settings.helper.as_deref())?;
                bubblewrap::wrap(launch, spec, bwrap, &helper)
            }
            _ => Ok(spec.around(launch, &self.helper())),
        }
    }

    #[cfg(target_os = "linux")]
    fn ahead(
        &self,
        launch: &Launch,
        confinement: &Confinement,
    ) -> Result<Option<Ahead>, ExecError> {
        self.admits(confinement)?;
        if self.posture.active == Tier::Bubblewrap && !confinement.is_off() {
            return Ok(None);
        }
        // The helper gets no environment that could change what it does.
        let (spec, files) = self.helper_files(confinement);
        let helper = Launch {
            program: self.helper().into(),
            args: spec.waiting(),
            cwd: "/".into(),
            ..Launch::default()
        };
        let order = order::Order::new(launch.clone()).bytes(&files.rules, &files.awaited);
        Ok(Some(Ahead {
            helper,
            room: files.room,
            order,
        }))
    }

    fn watch(&self, confinement: &Confinement) -> Watch {
        match confinement {
            Confinement::Workspace {
                writable,
                unreadable,
                ..
            } if self.enforces() => {
                let (_, writable) = places::split(writable);
                let access = self.access(&writable, unreadable);
                let awaited = access.value.awaited.clone();
                let protection = self.protection.clone();
                Watch::new(awaited, move || {
                    access.is_current() && protection.changes(&writable) == access.value.changes
                })
            }
            _ => Watch::default(),
        }
    }

    fn posture(&self) -> String {
        self.posture.to_string()
    }

    fn enforces(&self) -> bool {
        self.posture.active != Tier::None
    }

    fn blocked(&self, exit: i32, output: &str, confinement: &Confinement) -> Option<String> {
        blocked::detect(exit, output, confinement, &self.private).map(|found| found.to_string())
    }
}

/// What a command without a view of its own lacks.
const WITHOUT_VIEW: &str = "no view of the file system of a command's own: .git, and the top of a repository or \
    a home, are read-only, sockets of other programs can be used, modes and times of files elsewhere are not protected";

/// Why this system probably allows no namespaces. Helpers find out; one that does not get what is expected
/// says so.
#[cfg(target_os = "linux")]
fn no_namespaces() -> Option<String> {
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
fn no_namespaces() -> Option<String> {
    None
}

#[cfg(target_os = "linux")]
fn landlock_works() -> bool {
    kernel::has_landlock()
}

#[cfg(not(target_os = "linux"))]
fn landlock_works() -> bool {
    false
}

#[cfg(test)]
mod tests;

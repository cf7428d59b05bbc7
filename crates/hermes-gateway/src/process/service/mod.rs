//! The gateway as a service of the system: what systemd and launchd are told.

pub mod launchd;
pub mod systemd;

use std::path::{Path, PathBuf};
use std::time::Duration;

use hermes_config::Home;
use sha2::{Digest as _, Sha256};

/// Exit codes that mean something to whoever started the gateway.
pub mod exit {
    /// "Start me again."
    pub const RESTART: u8 = 75;
    /// Starting again is pointless until somebody mends the configuration.
    pub const CONFIG: u8 = 78;
}

/// What a service definition is made from.
#[derive(Clone, Debug)]
pub struct ServiceDefinition {
    pub name: String,
    /// The program.
    pub program: PathBuf,
    pub home: PathBuf,
    /// `--profile` of the program, for homes that are one.
    pub profile: Option<String>,
    pub path: String,
    pub drain: Duration,
    pub watchdog: Option<Duration>,
}

/// Directories of the system, after those of the person.
const SYSTEM_PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

impl ServiceDefinition {
    /// For the gateway of a home. `search_path`: the one of whoever installs it.
    pub fn of(home: &Home, program: PathBuf, search_path: &str) -> Self {
        let suffix = suffix(home);
        let name = match &suffix {
            None => "hermes-gateway".to_owned(),
            Some(suffix) => format!("hermes-gateway-{suffix}"),
        };
        Self {
            name,
            program,
            home: real(home.root()),
            profile: home.profile().map(str::to_owned),
            path: with_system(search_path),
            drain: Duration::ZERO,
            watchdog: None,
        }
    }

    /// What is started.
    pub fn command(&self) -> Vec<String> {
        let mut words = vec![self.program.display().to_string()];
        if let Some(profile) = &self.profile {
            words.extend(["--profile".to_owned(), profile.clone()]);
        }
        words.extend(["gateway".to_owned(), "run".to_owned()]);
        words
    }

    /// How long the system waits between asking and killing.
    pub fn patience(&self) -> Duration {
        (self.drain + Duration::from_secs(30)).max(Duration::from_mins(1))
    }
}

/// What tells the service of this home from those of others. `None`: the usual home.
fn suffix(home: &Home) -> Option<String> {
    if let Some(profile) = home.profile() {
        return Some(profile.to_owned());
    }
    let usual = std::env::home_dir().map(|dir| real(&dir.join(".hermes")));
    let root = real(home.root());
    if usual.as_deref() == Some(&root) {
        return None;
    }
    let digest = Sha256::digest(root.display().to_string().as_bytes());
    Some(hermes_core::bytes::hex(&digest[..4]))
}

fn real(path: &Path) -> PathBuf {
    path.canonicalize().unwrap_or_else(|_| path.to_owned())
}

/// The path of whoever installs it, without what will not be there later, and the system's.
fn with_system(search_path: &str) -> String {
    let mut dirs: Vec<&str> = Vec::new();
    let passing = |dir: &str| dir.starts_with("/tmp/") || dir.starts_with("/run/") || dir == "/tmp";
    for dir in search_path.split(':').chain(SYSTEM_PATH.split(':')) {
        let fine = dir.starts_with('/') && !passing(dir) && !dir.contains(['"', '\n', '%']);
        if fine && !dirs.contains(&dir) {
            dirs.push(dir);
        }
    }
    dirs.join(":")
}

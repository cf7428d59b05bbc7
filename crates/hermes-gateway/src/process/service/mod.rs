//! Definitions of the gateway as a service of systemd and launchd.

pub mod launchd;
pub mod systemd;

use std::path::{Path, PathBuf};
use std::time::Duration;

use hermes_config::Home;
use sha2::{Digest as _, Sha256};

/// Exit codes with a meaning for the service manager.
pub mod exit {
    /// "Start me again."
    pub const RESTART: u8 = 75;
    /// Restarting is pointless until the configuration is fixed.
    pub const CONFIG: u8 = 78;
}

/// The inputs of a service definition.
#[derive(Clone, Debug)]
pub struct ServiceDefinition {
    pub name: String,
    /// The program.
    pub program: PathBuf,
    pub home: PathBuf,
    /// The `--profile` argument, for homes that are profiles.
    pub profile: Option<String>,
    pub path: String,
    pub drain: Duration,
    pub watchdog: Option<Duration>,
}

/// System directories, after those of the user.
const SYSTEM_PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

impl ServiceDefinition {
    /// For the gateway of a home. `search_path`: the `PATH` of the installing user.
    pub fn new(home: &Home, program: PathBuf, search_path: &str) -> Self {
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

    /// The command that is started.
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

/// Distinguishes the service of this home from others. `None`: the default home.
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

/// The installing user's `PATH` without temporary directories, plus the system's.
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

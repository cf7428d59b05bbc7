//! The arguments of the helper.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::Path;

use serde::{Deserialize, Serialize};

use super::CONFINE;
use super::confine::WAIT;
use super::rules::FileRules;
use crate::confinement::Launch;

/// Resource limits of one process; 0 means none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ResourceLimits {
    /// Number of processes of the account.
    pub processes: u64,
    /// Bytes of private memory.
    pub memory: u64,
    /// Bytes of a file.
    pub file: u64,
}

impl ResourceLimits {
    /// Replaces an unset memory limit by a share of the machine's memory.
    pub(super) fn resolved(self) -> Self {
        let memory = match self.memory {
            0 => physical_memory() / 4 * 3,
            given => given,
        };
        Self { memory, ..self }
    }
}

fn physical_memory() -> u64 {
    use std::sync::OnceLock;
    static MEMORY: OnceLock<u64> = OnceLock::new();
    *MEMORY.get_or_init(|| {
        let text = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
        text.lines()
            .find_map(|line| line.strip_prefix("MemTotal:"))
            .and_then(|rest| rest.trim().strip_suffix("kB")?.trim().parse::<u64>().ok())
            .map_or(0, |kilobytes| kilobytes * 1024)
    })
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct HelperSpec {
    /// Start a new session.
    pub(super) session: bool,
    /// Standard input becomes the controlling terminal.
    pub(super) terminal: bool,
    pub(super) seccomp: bool,
    pub(super) network: bool,
    pub(super) limits: ResourceLimits,
    /// Processes that the command must not send signals to.
    pub(super) guard: Vec<u32>,
    /// Rules for Landlock.
    pub(super) files: Option<FileRules>,
    /// The program is bubblewrap: stay, and start it again if it could not set up the command's view.
    pub(super) stays: bool,
    /// Warn a command that has no private mount view.
    pub(super) expects_view: bool,
    /// Variables of the command that would change the behaviour of the helper itself.
    pub(super) env: Vec<(OsBytes, OsBytes)>,
}

/// An OS string that need not be UTF-8.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub(super) enum OsBytes {
    Text(String),
    Raw(Vec<u8>),
}

impl From<OsString> for OsBytes {
    fn from(value: OsString) -> Self {
        value
            .into_string()
            .map_or_else(|raw| Self::Raw(raw.into_vec()), Self::Text)
    }
}

impl AsRef<OsStr> for OsBytes {
    fn as_ref(&self) -> &OsStr {
        match self {
            Self::Text(text) => OsStr::new(text),
            Self::Raw(raw) => OsStr::from_bytes(raw),
        }
    }
}

/// Removes the variables that the dynamic loader reads: a command that exported one must not decide what the
/// next helper loads before it is confined.
pub(super) fn take_loader_variables(
    env: &mut BTreeMap<OsString, OsString>,
) -> Vec<(OsBytes, OsBytes)> {
    let names: Vec<OsString> = env
        .keys()
        .filter(|name| {
            let name = name.as_bytes();
            name.starts_with(b"LD_")
                || name.starts_with(b"MALLOC_")
                || name == b"GLIBC_TUNABLES"
                || name == b"GCONV_PATH"
                || name == b"LOCPATH"
        })
        .cloned()
        .collect();
    names
        .into_iter()
        .filter_map(|name| {
            let value = env.remove(&name)?;
            Some((name.into(), value.into()))
        })
        .collect()
}

impl HelperSpec {
    /// Wraps `launch` so that the helper starts it.
    pub(super) fn wrap(&self, launch: Launch, helper: &Path) -> Launch {
        let mut args = self.arguments();
        args.push(launch.program);
        args.extend(launch.args);
        Launch {
            program: helper.into(),
            args,
            ..launch
        }
    }

    /// The arguments of an idle helper.
    pub(super) fn serve_arguments(&self) -> Vec<OsString> {
        vec![CONFINE.into(), WAIT.into(), self.json()]
    }

    fn json(&self) -> OsString {
        // A structure of strings, numbers and lists always serializes.
        serde_json::to_string(self).unwrap_or_default().into()
    }

    /// The helper's arguments up to the program.
    pub(super) fn arguments(&self) -> Vec<OsString> {
        vec![CONFINE.into(), self.json(), "--".into()]
    }
}

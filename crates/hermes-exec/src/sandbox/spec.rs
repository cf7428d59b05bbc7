//! What the helper is told, as one argument.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::Path;

use serde::{Deserialize, Serialize};

use super::CONFINE;
use super::confine::WAIT;
use super::rules::Files;
use crate::confinement::Launch;

/// Limits of one process; 0 means none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Limits {
    /// Processes of the account.
    pub processes: u64,
    /// Bytes of private memory.
    pub memory: u64,
    /// Bytes of a file.
    pub file: u64,
}

impl Limits {
    /// With the memory of the machine in place of "not said".
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
pub(super) struct Spec {
    /// Begin a session.
    pub(super) session: bool,
    /// Standard input becomes the controlling terminal.
    pub(super) terminal: bool,
    pub(super) seccomp: bool,
    pub(super) network: bool,
    pub(super) limits: Limits,
    /// Processes that the command must not send signals to.
    pub(super) guard: Vec<u32>,
    /// Rules for Landlock.
    pub(super) files: Option<Files>,
    /// A command without a view of its own is told so.
    pub(super) expects_view: bool,
    /// Variables for the command that would change what the helper itself does.
    pub(super) env: Vec<(Bytes, Bytes)>,
}

/// Text that need not be UTF-8, as the bytes it is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub(super) enum Bytes {
    Text(String),
    Raw(Vec<u8>),
}

impl From<OsString> for Bytes {
    fn from(value: OsString) -> Self {
        value
            .into_string()
            .map_or_else(|raw| Self::Raw(raw.into_vec()), Self::Text)
    }
}

impl AsRef<OsStr> for Bytes {
    fn as_ref(&self) -> &OsStr {
        match self {
            Self::Text(text) => OsStr::new(text),
            Self::Raw(raw) => OsStr::from_bytes(raw),
        }
    }
}

/// Takes out the variables that the dynamic loader obeys: a command that exported one of them must
/// not decide what the helper of the next command loads before it is confined.
pub(super) fn withhold(env: &mut BTreeMap<OsString, OsString>) -> Vec<(Bytes, Bytes)> {
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

impl Spec {
    /// `launch`, started by the helper.
    pub(super) fn around(&self, launch: Launch, helper: &Path) -> Launch {
        let mut args = self.arguments();
        args.push(launch.program);
        args.extend(launch.args);
        Launch {
            program: helper.into(),
            args,
            ..launch
        }
    }

    /// The arguments of a helper that waits for its command.
    pub(super) fn waiting(&self) -> Vec<OsString> {
        vec![CONFINE.into(), WAIT.into(), self.json()]
    }

    fn json(&self) -> OsString {
        // A structure of strings, numbers and lists cannot fail to be written.
        serde_json::to_string(self).unwrap_or_default().into()
    }

    /// The helper's arguments up to the program.
    pub(super) fn arguments(&self) -> Vec<OsString> {
        vec![CONFINE.into(), self.json(), "--".into()]
    }
}

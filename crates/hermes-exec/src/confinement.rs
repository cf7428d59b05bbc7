//! What a command may access, as data. [`Confine`] enforces it.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::PathBuf;

use crate::environment::ExecError;
use crate::sandbox::ForbiddenPaths;

/// The limits of one command.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Confinement {
    /// No limits: the command may do what the user may do.
    #[default]
    Off,
    /// Reads everything but `unreadable`, writes below `writable` only.
    Workspace {
        writable: Vec<PathBuf>,
        unreadable: Vec<PathBuf>,
        network: bool,
    },
}

impl Confinement {
    /// The same limits with one more writable directory, for the backend's own files.
    #[must_use]
    pub fn with_writable(mut self, dir: impl Into<PathBuf>) -> Self {
        if let Self::Workspace { writable, .. } = &mut self {
            writable.push(dir.into());
        }
        self
    }

    pub fn is_off(&self) -> bool {
        *self == Self::Off
    }
}

/// A program to start. The environment is complete: nothing is inherited.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Launch {
    pub program: OsString,
    pub args: Vec<OsString>,
    pub env: BTreeMap<OsString, OsString>,
    /// Exists; it is entered before the program starts.
    pub cwd: PathBuf,
    /// Standard input is a terminal that becomes the controlling terminal of the new session.
    pub terminal: bool,
}

/// A program started in two steps: a helper that waits for commands, and the request for one of them, sent over
/// the socket that is its standard input. The program is a child of the process that started the helper.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HelperStart {
    /// Equal for commands with the same limits.
    pub helper: Launch,
    /// Identifies the setup of the helper: one started with another setup cannot be used.
    pub jail_key: Vec<u8>,
    pub request: Vec<u8>,
}

/// Quarantines files that a command created and that would be executed later without limits.
#[derive(Default)]
pub struct QuarantineWatch {
    /// `None`: nothing is checked.
    forbidden: Option<ForbiddenPaths>,
    /// Whether certainly nothing has changed. `None`: unknown.
    is_unchanged: Option<Box<dyn Fn() -> bool + Send + Sync>>,
}

impl QuarantineWatch {
    pub(crate) fn new(
        forbidden: ForbiddenPaths,
        is_quiet: impl Fn() -> bool + Send + Sync + 'static,
    ) -> Self {
        Self {
            forbidden: Some(forbidden),
            is_unchanged: Some(Box::new(is_quiet)),
        }
    }

    /// The serialized form for a process that outlives this one.
    pub(crate) fn to_json(&self) -> Option<Vec<u8>> {
        self.forbidden
            .as_ref()
            .and_then(|forbidden| serde_json::to_vec(forbidden).ok())
    }

    /// Reverse of [`QuarantineWatch::to_json`]; checks nothing if it cannot be read.
    pub(crate) fn from_json(json: &[u8]) -> Self {
        Self {
            forbidden: serde_json::from_slice(json).ok(),
            is_unchanged: None,
        }
    }

    /// Quarantines new files and returns a message about them.
    pub fn quarantine(&self) -> Option<String> {
        let forbidden = self.forbidden.as_ref()?;
        if self
            .is_unchanged
            .as_ref()
            .is_some_and(|is_quiet| is_quiet())
        {
            return None;
        }
        let moved = forbidden.quarantine_new();
        let names: Vec<String> = moved
            .iter()
            .map(|path| path.display().to_string())
            .collect();
        (!names.is_empty()).then(|| {
            format!(
                "[hermes: {} would run later without limits and was renamed to *{}; ask the person to put it in place]\n",
                names.join(", "),
                hermes_core::private::PUT_ASIDE,
            )
        })
    }
}

/// Applies limits to a program. Every program, confined or not, gets its own session (`setsid`), so that it
/// does not share our terminal and can be killed with all its children.
pub trait Confine: Send + Sync {
    /// The program to start in place of `launch`. An error means that the limits cannot be enforced here;
    /// nothing is started then.
    fn wrap(&self, launch: Launch, confinement: &Confinement) -> Result<Launch, ExecError>;

    /// The same in two steps; `None` if one step suffices.
    fn prepare_helper(
        &self,
        _launch: &Launch,
        _confinement: &Confinement,
    ) -> Result<Option<HelperStart>, ExecError> {
        Ok(None)
    }

    /// Forbidden paths of a command with these limits.
    fn watch(&self, _confinement: &Confinement) -> QuarantineWatch {
        QuarantineWatch::default()
    }

    /// One line for the user: how commands are confined here.
    fn posture(&self) -> String;

    /// Whether anything but [`Confinement::Off`] can be enforced.
    fn enforces(&self) -> bool;

    /// Whether a failure looks like an effect of the limits, and what they blocked.
    fn blocked(&self, exit: i32, output: &str, confinement: &Confinement) -> Option<String>;
}

//! What a command may touch, as data. How it is enforced is the business of [`Confine`].

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::PathBuf;

use crate::environment::ExecError;
use crate::sandbox::Awaited;

/// The limits of one command.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Confinement {
    /// None: the command may do what the person may.
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
    /// The same limits, with one more directory to write to: what a backend needs for itself.
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

/// A program about to be started. The environment is complete: nothing is inherited.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Launch {
    pub program: OsString,
    pub args: Vec<OsString>,
    pub env: BTreeMap<OsString, OsString>,
    /// Exists; whoever starts the program enters it first.
    pub cwd: PathBuf,
    /// Standard input is a terminal that becomes the controlling one of the new session.
    pub terminal: bool,
}

/// A program in two steps: a helper that waits for commands, and what it is told for one of them over the
/// socket that is its standard input. The program is a child of whoever started the helper.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ahead {
    /// The same for commands with the same limits.
    pub helper: Launch,
    /// What the helper has set up for all its commands: one that was started for another is of no use.
    pub room: Vec<u8>,
    pub order: Vec<u8>,
}

/// What is looked after when a command has ended: files that it made and that would run later, without
/// limits.
#[derive(Default)]
pub struct Watch {
    /// `None`: nothing is.
    awaited: Option<Awaited>,
    /// Whether nothing can have come. `None`: nobody knows.
    is_quiet: Option<Box<dyn Fn() -> bool + Send + Sync>>,
}

impl Watch {
    pub(crate) fn new(
        awaited: Awaited,
        is_quiet: impl Fn() -> bool + Send + Sync + 'static,
    ) -> Self {
        Self {
            awaited: Some(awaited),
            is_quiet: Some(Box::new(is_quiet)),
        }
    }

    /// The same for whoever looks after a process that outlives this one.
    pub(crate) fn to_json(&self) -> Option<Vec<u8>> {
        self.awaited
            .as_ref()
            .and_then(|awaited| serde_json::to_vec(awaited).ok())
    }

    /// What was written by [`Watch::to_json`]; what cannot be read watches nothing.
    pub(crate) fn from_json(json: &[u8]) -> Self {
        Self {
            awaited: serde_json::from_slice(json).ok(),
            is_quiet: None,
        }
    }

    /// Puts them aside, and says what was done in words for whoever ran the command.
    pub fn end(&self) -> Option<String> {
        let awaited = self.awaited.as_ref()?;
        if self.is_quiet.as_ref().is_some_and(|is_quiet| is_quiet()) {
            return None;
        }
        let moved = awaited.put_aside();
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

/// Puts a program into its limits. Every program, confined or not, gets a session of its own
/// (`setsid`), so that it has no terminal of ours and can be ended with all its children.
pub trait Confine: Send + Sync {
    /// The program to start in place of `launch`. An error means that the limits cannot be
    /// enforced here; then nothing is started.
    fn wrap(&self, launch: Launch, confinement: &Confinement) -> Result<Launch, ExecError>;

    /// The same in two steps; `None` where it takes one.
    fn ahead(
        &self,
        _launch: &Launch,
        _confinement: &Confinement,
    ) -> Result<Option<Ahead>, ExecError> {
        Ok(None)
    }

    /// What must not have appeared when a command with these limits ends.
    fn watch(&self, _confinement: &Confinement) -> Watch {
        Watch::default()
    }

    /// One line for people: how commands are confined here.
    fn posture(&self) -> String;

    /// Whether anything but [`Confinement::Off`] can be enforced.
    fn enforces(&self) -> bool;

    /// Whether this failure looks like the limits at work, and what they stopped.
    fn blocked(&self, exit: i32, output: &str, confinement: &Confinement) -> Option<String>;
}

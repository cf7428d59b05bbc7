//! Problems of a configuration that do not prevent its use.

use std::fmt;

/// A warning about one key of config.yaml.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigWarning {
    /// Dotted path of the key; empty for the file as a whole.
    pub key: String,
    pub problem: ConfigProblem,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ConfigProblem {
    /// The default is used instead.
    WrongType {
        expected: &'static str,
        found: &'static str,
    },
    /// Kept in the file, but nothing reads it.
    UnknownKey { did_you_mean: Option<String> },
    /// A key of the original that has no effect here.
    NoEffect,
    /// The last of several equal keys counts.
    DuplicateKey { line: usize },
    /// The file is from a later version: new settings are kept but not used.
    NewerVersion { found: u64, known: u64 },
    /// An old spelling that still works.
    Legacy { now: String },
    /// Set, but with a value that cannot work.
    Invalid { why: String },
    /// The administrator's file cannot be read, so it has no effect.
    ManagedUnreadable { why: String },
}

impl ConfigWarning {
    pub fn new(key: impl Into<String>, problem: ConfigProblem) -> Self {
        Self {
            key: key.into(),
            problem,
        }
    }

    /// Whether a setting has no effect, as opposed to a mere remark.
    pub fn is_problem(&self) -> bool {
        matches!(
            self.problem,
            ConfigProblem::WrongType { .. }
                | ConfigProblem::Invalid { .. }
                | ConfigProblem::ManagedUnreadable { .. }
        )
    }
}

impl fmt::Display for ConfigWarning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.key.is_empty() {
            write!(f, "{}: ", self.key)?;
        }
        match &self.problem {
            ConfigProblem::WrongType { expected, found } => {
                write!(f, "expected {expected}, found {found}; the default is used")
            }
            ConfigProblem::UnknownKey { did_you_mean } => {
                f.write_str("unknown key, kept but not used")?;
                match did_you_mean {
                    Some(name) => write!(f, "; did you mean {name}?"),
                    None => Ok(()),
                }
            }
            ConfigProblem::NoEffect => {
                f.write_str("a setting of Hermes Agent that does nothing here; kept")
            }
            ConfigProblem::DuplicateKey { line } => {
                write!(f, "set more than once; the last one counts (line {line})")
            }
            ConfigProblem::NewerVersion { found, known } => write!(
                f,
                "the file has version {found}, but this program knows only {known}; newer settings are kept but not used"
            ),
            ConfigProblem::Legacy { now } => write!(f, "old spelling, {now}"),
            ConfigProblem::Invalid { why } => f.write_str(why),
            ConfigProblem::ManagedUnreadable { why } => {
                write!(f, "the administrator's settings have no effect: {why}")
            }
        }
    }
}

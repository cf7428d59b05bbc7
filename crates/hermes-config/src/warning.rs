//! What is odd about a configuration but does not stop it from being used.

use std::fmt;

/// A remark about one key of config.yaml.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigWarning {
    /// Dotted path of the key; empty for the file as a whole.
    pub key: String,
    pub problem: Problem,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Problem {
    /// The default is used instead.
    WrongType {
        expected: &'static str,
        found: &'static str,
    },
    /// Kept in the file, but nothing reads it.
    UnknownKey { did_you_mean: Option<String> },
    /// A key of the original that does nothing here.
    NoEffect,
    /// The last of several equal keys counts.
    DuplicateKey { line: usize },
    /// The file comes from a later version: what is new there is kept and not used.
    NewerVersion { found: u64, known: u64 },
    /// An old spelling that still works.
    Legacy { now: String },
    /// Set, but with a value that cannot work.
    Invalid { why: String },
    /// The administrator's file cannot be read, so it has no effect.
    ManagedUnreadable { why: String },
}

impl ConfigWarning {
    pub fn new(key: impl Into<String>, problem: Problem) -> Self {
        Self {
            key: key.into(),
            problem,
        }
    }

    /// Whether a setting has no effect, as opposed to a mere remark.
    pub fn is_problem(&self) -> bool {
        matches!(
            self.problem,
            Problem::WrongType { .. } | Problem::Invalid { .. } | Problem::ManagedUnreadable { .. }
        )
    }
}

impl fmt::Display for ConfigWarning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.key.is_empty() {
            write!(f, "{}: ", self.key)?;
        }
        match &self.problem {
            Problem::WrongType { expected, found } => {
                write!(f, "expected {expected}, found {found}; the default is used")
            }
            Problem::UnknownKey { did_you_mean } => {
                f.write_str("unknown key, kept but not used")?;
                match did_you_mean {
                    Some(name) => write!(f, "; did you mean {name}?"),
                    None => Ok(()),
                }
            }
            Problem::NoEffect => {
                f.write_str("a setting of Hermes Agent that does nothing here; kept")
            }
            Problem::DuplicateKey { line } => {
                write!(f, "set more than once; the last one counts (line {line})")
            }
            Problem::NewerVersion { found, known } => write!(
                f,
                "the file is of version {found}, newer than the {known} known here; what is new in it is kept and not used"
            ),
            Problem::Legacy { now } => write!(f, "old spelling, {now}"),
            Problem::Invalid { why } => f.write_str(why),
            Problem::ManagedUnreadable { why } => {
                write!(f, "the administrator's settings have no effect: {why}")
            }
        }
    }
}

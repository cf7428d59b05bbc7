//! Stored permissions.

use hermes_core::approval::Rule;

/// What one entry of `command_allowlist` means.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Meaning {
    /// This command, word for word.
    Exact,
    /// Commands that begin with these words.
    Prefix(Vec<String>),
}

/// What `rule` means.
pub fn meaning(rule: &Rule) -> Meaning {
    match rule.0.strip_suffix(" *") {
        Some(words) => Meaning::Prefix(words.split_whitespace().map(str::to_owned).collect()),
        None => Meaning::Exact,
    }
}

//! Rules for files that serve one command after another: to look them up takes as long as a small command.
//! They are looked up anew when anything that they rest on has changed.

use std::path::Path;

use landlock::RulesetCreated;

use super::kernel::{enforce, permit_reading, ruleset};
use super::rules::Files;
use super::seen::Seen;

/// The rules of the last command.
#[derive(Default)]
pub(super) struct Prepared {
    /// What they were made of, as it came.
    files: Vec<u8>,
    /// `None`: there are no rules.
    made: Option<Result<Made, String>>,
}

struct Made {
    ruleset: RulesetCreated,
    seen: Vec<Seen>,
    uses: u32,
}

/// Every command adds a rule for its own table of processes to rules that it shares with those before: they
/// are made anew before there are many.
const MAX_USES: u32 = 64;

impl Prepared {
    /// Makes rules for these files, unless those at hand are still right; whether they are. `is_covered`: the
    /// process has a view of its own that was made for them.
    pub(super) fn renew(&mut self, files: &[u8], network: bool, is_covered: bool) -> bool {
        if !files.is_empty() && self.files == files && self.is_current() {
            if let Some(Ok(made)) = &mut self.made {
                made.uses += 1;
            }
            return true;
        }
        self.made = make(files, network, is_covered).transpose();
        files.clone_into(&mut self.files);
        false
    }

    fn is_current(&self) -> bool {
        match &self.made {
            Some(Ok(made)) => made.uses < MAX_USES && made.seen.iter().all(Seen::is_as_it_was),
            Some(Err(_)) => false,
            None => true,
        }
    }

    /// Restricts this process to them, for good. `own`: a directory that only this process has, and may read.
    pub(super) fn enforce(self, own: Option<&Path>) -> Result<(), String> {
        let Some(made) = self.made else {
            return Ok(());
        };
        let ruleset = made?.ruleset;
        enforce(match own {
            Some(own) => permit_reading(ruleset, own)?,
            None => ruleset,
        })
    }
}

/// The rules as they were sent; `None`: there are none.
pub(super) fn read_files(files: &[u8]) -> Result<Option<Files>, String> {
    serde_json::from_slice(files).map_err(|error| error.to_string())
}

fn make(files: &[u8], network: bool, is_covered: bool) -> Result<Option<Made>, String> {
    let Some(files) = read_files(files)? else {
        return Ok(None);
    };
    let files = if is_covered {
        files.covered()
    } else {
        files.uncovered()
    };
    let permissions = files.permissions();
    Ok(Some(Made {
        ruleset: ruleset(&permissions.rules, network)?,
        seen: permissions.seen,
        uses: 0,
    }))
}

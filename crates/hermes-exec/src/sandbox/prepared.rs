//! Rules for files that serve one command after another: to look them up takes as long as a small command.
//! They are looked up anew when anything that they rest on has changed.

use landlock::RulesetCreated;

use super::kernel::{enforce, ruleset};
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
}

impl Prepared {
    /// Makes rules for these files, unless those at hand are still right.
    pub(super) fn renew(&mut self, files: &[u8], network: bool) {
        if !files.is_empty() && self.files == files && self.is_current() {
            return;
        }
        self.made = make(files, network).transpose();
        files.clone_into(&mut self.files);
    }

    fn is_current(&self) -> bool {
        match &self.made {
            Some(Ok(made)) => made.seen.iter().all(Seen::is_as_it_was),
            Some(Err(_)) => false,
            None => true,
        }
    }

    /// Restricts this process to them, for good.
    pub(super) fn enforce(self) -> Result<(), String> {
        match self.made {
            Some(made) => enforce(made?.ruleset),
            None => Ok(()),
        }
    }
}

fn make(files: &[u8], network: bool) -> Result<Option<Made>, String> {
    let files: Option<Files> = serde_json::from_slice(files).map_err(|error| error.to_string())?;
    let Some(files) = files else {
        return Ok(None);
    };
    let permissions = files.permissions();
    Ok(Some(Made {
        ruleset: ruleset(&permissions.rules, network)?,
        seen: permissions.seen,
    }))
}

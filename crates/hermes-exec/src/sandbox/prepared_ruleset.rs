//! A Landlock ruleset that is reused by consecutive commands: building one takes as long as a small command. It
//! is rebuilt when anything that it depends on changes.

use std::path::Path;

use landlock::RulesetCreated;

use super::kernel::{enforce, permit_reading, ruleset};
use super::path_state::PathState;
use super::rules::FileRules;

/// The ruleset of the last command.
#[derive(Default)]
pub(super) struct PreparedRuleset {
    /// The encoded file rules that it was built from.
    files: Vec<u8>,
    /// `None`: there are no rules.
    built: Option<Result<BuiltRuleset, String>>,
}

struct BuiltRuleset {
    ruleset: RulesetCreated,
    states: Vec<PathState>,
    uses: u32,
}

/// Every command adds a rule for its own `/proc` to the shared ruleset, so it is rebuilt before there are many.
const MAX_USES: u32 = 64;

impl PreparedRuleset {
    /// Rebuilds the ruleset unless it is still current; returns whether it was. `is_covered`: this process has
    /// a mount view made for these rules.
    pub(super) fn refresh(&mut self, files: &[u8], network: bool, is_covered: bool) -> bool {
        if !files.is_empty() && self.files == files && self.is_current() {
            if let Some(Ok(built)) = &mut self.built {
                built.uses += 1;
            }
            return true;
        }
        self.built = build(files, network, is_covered).transpose();
        files.clone_into(&mut self.files);
        false
    }

    fn is_current(&self) -> bool {
        match &self.built {
            Some(Ok(built)) => {
                built.uses < MAX_USES && built.states.iter().all(PathState::is_unchanged)
            }
            Some(Err(_)) => false,
            None => true,
        }
    }

    /// Restricts this process irrevocably. `own`: a directory of this process alone that it may also read.
    pub(super) fn enforce(self, own: Option<&Path>) -> Result<(), String> {
        let Some(built) = self.built else {
            return Ok(());
        };
        let ruleset = built?.ruleset;
        enforce(match own {
            Some(own) => permit_reading(ruleset, own)?,
            None => ruleset,
        })
    }
}

/// Parses encoded file rules; `None`: there are none.
pub(super) fn parse_file_rules(files: &[u8]) -> Result<Option<FileRules>, String> {
    serde_json::from_slice(files).map_err(|error| error.to_string())
}

fn build(files: &[u8], network: bool, is_covered: bool) -> Result<Option<BuiltRuleset>, String> {
    let Some(files) = parse_file_rules(files)? else {
        return Ok(None);
    };
    let files = if is_covered {
        files.for_view()
    } else {
        files.without_view()
    };
    let permissions = files.resolve();
    Ok(Some(BuiltRuleset {
        ruleset: ruleset(&permissions.rules, network)?,
        states: permissions.states,
        uses: 0,
    }))
}

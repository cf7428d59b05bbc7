//! Proves that a command only does what is modelled.
//!
//! The rest of this crate looks for dangerous commands. This module does the opposite: a command counts as
//! read-only or as a write to the workspace only if every construct, word, builtin, program and option in it is
//! on a positive list. Everything else asks.

mod builtins;
mod conditions;
mod documents;
mod evaluate;
mod expansions;
mod git;
mod network;
mod pack;
mod paths;
mod python;
mod reader;
mod repository;
mod special;
mod syntax;
mod table;
mod text;
mod words;
mod wrappers;

use std::collections::{HashMap, HashSet};

use crate::classify::Classifier;
use crate::shell::ShellWord;

pub(crate) use python::is_offline_python;
pub(crate) use text::is_harmless_sed;

/// Maximum number of commands checked, with loops unrolled.
const STEPS: usize = 2_000;
/// Maximum nesting of scripts.
const NESTING: usize = 6;

/// Why something could not be proven harmless.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Unproven {
    pub why: String,
    /// It may read private files.
    pub private: bool,
    /// The words of the command, if they are all known.
    pub argv: Option<Vec<String>>,
    /// A shell construct that may evaluate text as code.
    pub evaluates: bool,
}

type ProofResult = Result<(), Unproven>;

fn unproven(why: impl Into<String>) -> Unproven {
    Unproven {
        why: why.into(),
        private: false,
        argv: None,
        evaluates: false,
    }
}

fn refuse<T>(why: impl Into<String>) -> Result<T, Unproven> {
    Err(unproven(why))
}

fn private<T>(why: impl Into<String>) -> Result<T, Unproven> {
    Err(Unproven {
        private: true,
        ..unproven(why)
    })
}

/// A shell construct that is not modelled: it may evaluate text as code.
fn construct<T>(why: &str) -> Result<T, Unproven> {
    Err(Unproven {
        evaluates: true,
        ..unproven(why)
    })
}

#[derive(Clone, Debug)]
struct KnownValue {
    text: String,
    glob: bool,
}

struct Prover<'p, 'a> {
    classifier: &'p Classifier<'a>,
    /// Values that are certain where they are used.
    variables: HashMap<String, KnownValue>,
    /// How often each name is assigned anywhere.
    assigned: HashMap<String, usize>,
    functions: HashSet<String>,
    /// The current node is executed exactly once in every run.
    straight: bool,
    steps: usize,
    nesting: usize,
    /// The paths that `find` passes on cannot have a private name.
    narrowed: bool,
    /// The script is for a POSIX shell without extensions.
    posix: bool,
    /// The command name is literal: bash then does not split the values of a declaration.
    direct: bool,
    /// Git settings may have been created: an archive or a patch can contain anything.
    repositories_moved: bool,
    /// Something in the workspace is changed.
    writes: bool,
    found: Vec<Unproven>,
}

/// The parts of `source` that are not proven harmless, and whether it changes the workspace. Empty: everything
/// is harmless.
pub(crate) fn unproven_parts(classifier: &Classifier<'_>, source: &str) -> (Vec<Unproven>, bool) {
    let mut prover = Prover {
        classifier,
        variables: HashMap::new(),
        assigned: HashMap::new(),
        functions: HashSet::new(),
        straight: true,
        steps: 0,
        nesting: 0,
        narrowed: false,
        posix: false,
        direct: false,
        repositories_moved: false,
        writes: false,
        found: Vec::new(),
    };
    if let Err(doubt) = prover.script(source) {
        prover.found.push(doubt);
    }
    (prover.found, prover.writes)
}

impl Prover<'_, '_> {
    /// A script, at the top level or as an argument.
    fn script(&mut self, source: &str) -> ProofResult {
        if self.nesting >= NESTING {
            return refuse("commands within commands, deeper than is looked at");
        }
        let nodes = match reader::read(source, self.posix) {
            Ok(nodes) => nodes,
            Err(why) => return construct(why),
        };
        self.nesting += 1;
        self.count_assignments(&nodes);
        let result = self.body(&nodes);
        self.nesting -= 1;
        result
    }

    /// A script that another shell runs, with variables of its own.
    fn other_shell(&mut self, script: &ShellWord, posix: bool) -> ProofResult {
        if !script.known() || script.dynamic || script.glob {
            return construct("a script is only known when it runs");
        }
        let variables = std::mem::take(&mut self.variables);
        let functions = std::mem::take(&mut self.functions);
        let straight = std::mem::replace(&mut self.straight, true);
        let posix = std::mem::replace(&mut self.posix, posix);
        let result = self.script(&script.text);
        self.posix = posix;
        self.variables = variables;
        self.functions = functions;
        self.straight = straight;
        result
    }

    /// Records that the command of `words` is not proven, and continues.
    fn note(&mut self, mut doubt: Unproven, words: &[ShellWord]) {
        if doubt.argv.is_none() {
            doubt.argv = evaluate::argv_of(words);
        }
        if !self.found.contains(&doubt) && self.found.len() < 50 {
            self.found.push(doubt);
        }
    }
}

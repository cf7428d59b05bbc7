//! Shows that a command only does what is modelled.
//!
//! The rest of this crate looks for what is dangerous. This module works the other way round: a
//! command counts as read-only or as a write to the workspace only where every construct, word,
//! builtin, program and option of it is on a positive list. What is not shown to be harmless asks.

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

use crate::classify::Look;
use crate::shell::Word;

pub(crate) use python::is_offline_python;
pub(crate) use text::is_harmless_sed;

/// Commands that are looked at, loops unrolled.
const STEPS: usize = 2_000;
/// Scripts within scripts.
const NESTING: usize = 6;

/// Why something could not be shown to be harmless.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Unproven {
    pub why: String,
    /// It may read what is private.
    pub private: bool,
    /// The words of the command, where they are all known.
    pub argv: Option<Vec<String>>,
    /// A construct of the shell that may take text for code.
    pub evaluates: bool,
}

type Proven = Result<(), Unproven>;

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

/// A shell construct that is not modelled: it may take text for code.
fn construct<T>(why: &str) -> Result<T, Unproven> {
    Err(Unproven {
        evaluates: true,
        ..unproven(why)
    })
}

#[derive(Clone, Debug)]
struct Value {
    text: String,
    glob: bool,
}

struct Prover<'p, 'a> {
    look: &'p Look<'a>,
    /// Values that are certain where they are used.
    variables: HashMap<String, Value>,
    /// How often each name gets a value anywhere.
    assigned: HashMap<String, usize>,
    functions: HashSet<String>,
    /// What is looked at runs at every run, once.
    straight: bool,
    steps: usize,
    nesting: usize,
    /// What a `find` hands on can have no private name.
    narrowed: bool,
    /// The script is for a shell that knows no more than POSIX asks for.
    posix: bool,
    /// The name of the command stands there as it is: bash does not cut the values of a declaration.
    direct: bool,
    /// Settings of git may have been put in place: an archive or a patch brings what it likes.
    repositories_moved: bool,
    /// Something in the workspace is changed.
    writes: bool,
    found: Vec<Unproven>,
}

/// What in `source` is not shown to be harmless, and whether it changes the workspace. Empty: all of
/// it is harmless.
pub(crate) fn unproven_parts(look: &Look<'_>, source: &str) -> (Vec<Unproven>, bool) {
    let mut prover = Prover {
        look,
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
    /// A script, at the top or as an argument.
    fn script(&mut self, source: &str) -> Proven {
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

    /// A script that another shell runs: its variables are not ours.
    fn other_shell(&mut self, script: &Word, posix: bool) -> Proven {
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

    /// Notes a doubt about the command of `words` and goes on.
    fn note(&mut self, mut doubt: Unproven, words: &[Word]) {
        if doubt.argv.is_none() {
            doubt.argv = evaluate::argv_of(words);
        }
        if !self.found.contains(&doubt) && self.found.len() < 50 {
            self.found.push(doubt);
        }
    }
}

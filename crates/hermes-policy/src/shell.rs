//! A shell script as a list of simple commands, with what can be known of their words.
//!
//! tree-sitter finds the structure. Words are evaluated as far as their text decides them; what only
//! a run could tell is marked, never guessed away.

pub(crate) mod text;
mod tree;
mod variables;
mod walk;
mod word;

use std::ops::Range;
use std::path::PathBuf;

/// Stands in [`Word::text`] for what only a run can tell.
pub(crate) const UNKNOWN: char = '\u{E000}';

/// What a script is read against.
#[derive(Clone, Debug)]
pub(crate) struct Surroundings {
    pub cwd: PathBuf,
    pub user_home: PathBuf,
    pub hermes_home: PathBuf,
}

/// One word of a command.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Word {
    /// The most likely text, with [`UNKNOWN`] for the parts that are not known.
    pub text: String,
    /// The text is not certain.
    pub dynamic: bool,
    /// An expansion took part in it, certain or not.
    pub expanded: bool,
    /// It has unquoted wildcards.
    pub glob: bool,
    /// The commands of substitutions within it: indices into [`Script::commands`].
    pub inner: Option<Range<usize>>,
}

impl Word {
    pub(crate) fn plain(text: impl Into<String>) -> Self {
        Self {
            text: text.into(),
            ..Self::default()
        }
    }

    /// Known, and the same at every run.
    pub(crate) fn is_static(&self) -> bool {
        !self.dynamic && !self.expanded && !self.glob
    }

    pub(crate) fn known(&self) -> bool {
        !self.text.contains(UNKNOWN)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Flow {
    In,
    Out,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Redirect {
    pub flow: Flow,
    pub target: Word,
}

/// A command without operators around it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Simple {
    /// Its name first. Empty for redirections and assignments that stand alone.
    pub words: Vec<Word>,
    pub assigns: Vec<(String, Word)>,
    pub redirects: Vec<Redirect>,
    /// A here document or here string.
    pub input: Option<Word>,
    /// The pipelines it stands in, outermost first: which, and at which place.
    pub pipes: Vec<(usize, usize)>,
    /// Its source.
    pub excerpt: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Problem {
    /// The text is not what the grammar knows.
    Unparsed,
    /// More levels than are looked at.
    TooDeep,
    ForkBomb,
}

#[derive(Clone, Debug, Default)]
pub(crate) struct Script {
    pub commands: Vec<Simple>,
    pub problems: Vec<Problem>,
    /// Names of functions that it defines.
    pub functions: Vec<String>,
}

impl Script {
    pub(crate) fn problem(&mut self, problem: Problem) {
        if !self.problems.contains(&problem) {
            self.problems.push(problem);
        }
    }
}

/// Reads `source`. Always yields something; what was not understood is in [`Script::problems`].
pub(crate) fn read(source: &str, around: &Surroundings) -> Script {
    match tree::parse(source) {
        Some(tree) => walk::Walker::new(source, around).walk(&tree),
        None => Script {
            problems: vec![Problem::Unparsed],
            ..Script::default()
        },
    }
}

/// The script without comments.
pub(crate) fn without_comments(source: &str) -> String {
    tree::parse(source).map_or_else(
        || source.to_owned(),
        |tree| tree::uncommented(source, &tree),
    )
}

//! Parses a shell script into a list of simple commands, with what is known about their words.
//!
//! tree-sitter provides the structure. Words are evaluated as far as their text allows; what depends on the run
//! is marked, never guessed.

pub(crate) mod text;
mod tree;
mod variables;
mod walk;
mod word;

use std::ops::Range;
use std::path::PathBuf;

/// Placeholder in [`ShellWord::text`] for what is only known at run time.
pub(crate) const UNKNOWN: char = '\u{E000}';

/// Context of a script.
#[derive(Clone, Debug)]
pub(crate) struct ScriptContext {
    pub cwd: PathBuf,
    pub user_home: PathBuf,
    pub hermes_home: PathBuf,
}

/// One word of a command.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct ShellWord {
    /// The most likely text, with [`UNKNOWN`] for unknown parts.
    pub text: String,
    /// The text is not certain.
    pub dynamic: bool,
    /// It contains an expansion, certain or not.
    pub expanded: bool,
    /// It has unquoted wildcards.
    pub glob: bool,
    /// The commands of its substitutions: indices into [`ShellScript::commands`].
    pub inner: Option<Range<usize>>,
}

impl ShellWord {
    pub(crate) fn plain(text: impl Into<String>) -> Self {
        Self {
            text: text.into(),
            ..Self::default()
        }
    }

    /// Known, and the same in every run.
    pub(crate) fn is_static(&self) -> bool {
        !self.dynamic && !self.expanded && !self.glob
    }

    pub(crate) fn known(&self) -> bool {
        !self.text.contains(UNKNOWN)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RedirectDirection {
    In,
    Out,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ShellRedirect {
    pub flow: RedirectDirection,
    pub target: ShellWord,
}

/// A command without operators.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct SimpleCommand {
    /// Its name first. Empty for a redirection or assignment on its own.
    pub words: Vec<ShellWord>,
    pub assigns: Vec<(String, ShellWord)>,
    pub redirects: Vec<ShellRedirect>,
    /// A here document or here string.
    pub input: Option<ShellWord>,
    /// The pipelines it is part of, outermost first: pipeline and position.
    pub pipes: Vec<(usize, usize)>,
    /// Its source.
    pub excerpt: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ScriptProblem {
    /// The grammar does not accept the text.
    Unparsed,
    /// Nested too deeply.
    TooDeep,
    ForkBomb,
}

#[derive(Clone, Debug, Default)]
pub(crate) struct ShellScript {
    pub commands: Vec<SimpleCommand>,
    pub problems: Vec<ScriptProblem>,
    /// Names of functions that it defines.
    pub functions: Vec<String>,
}

impl ShellScript {
    pub(crate) fn add_problem(&mut self, problem: ScriptProblem) {
        if !self.problems.contains(&problem) {
            self.problems.push(problem);
        }
    }
}

/// Parses `source`. Always returns a script; what was not understood is in [`ShellScript::problems`].
pub(crate) fn read(source: &str, around: &ScriptContext) -> ShellScript {
    match tree::parse(source) {
        Some(tree) => walk::ScriptWalker::new(source, around).walk(&tree),
        None => ShellScript {
            problems: vec![ScriptProblem::Unparsed],
            ..ShellScript::default()
        },
    }
}

/// The script without comments.
pub(crate) fn without_comments(source: &str) -> String {
    tree::parse(source).map_or_else(
        || source.to_owned(),
        |tree| tree::strip_comments(source, &tree),
    )
}

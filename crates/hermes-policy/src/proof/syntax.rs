//! Syntax tree of the modelled part of the shell language.

/// One piece of a word.
#[derive(Clone, Debug)]
pub(super) enum WordPiece {
    /// Literal text. Unquoted text may contain wildcards and braces.
    Text { text: String, quoted: bool },
    /// `$name` or `${name}`.
    Variable { name: String, quoted: bool },
    /// Only known at run time, without a side effect.
    Unknown { quoted: bool },
    /// `$(…)`.
    Substitution { body: Vec<ScriptNode>, quoted: bool },
    /// `<(…)`: the word is the path of a pipe.
    PipePath { body: Vec<ScriptNode> },
    /// `~` at the start of a word: the user's home.
    Home,
}

/// A word before it is evaluated.
#[derive(Clone, Debug, Default)]
pub(super) struct RawWord {
    pub pieces: Vec<WordPiece>,
    /// Part of it was quoted or escaped.
    pub quoted: bool,
}

impl RawWord {
    /// The text, if it is only unquoted text: keywords, names, operators.
    pub(super) fn bare(&self) -> Option<&str> {
        match self.pieces.as_slice() {
            [WordPiece::Text { text, .. }] if !self.quoted => Some(text),
            _ => None,
        }
    }

    pub(super) fn push_text(&mut self, c: char, is_quoted: bool) {
        self.quoted |= is_quoted;
        if let Some(WordPiece::Text { text, quoted }) = self.pieces.last_mut()
            && *quoted == is_quoted
        {
            text.push(c);
            return;
        }
        self.pieces.push(WordPiece::Text {
            text: c.to_string(),
            quoted: is_quoted,
        });
    }
}

#[derive(Clone, Debug)]
pub(super) enum RawRedirect {
    Read(RawWord),
    Write(RawWord),
    /// A here document or here string.
    Input(RawWord),
    /// A here document whose body has not been read yet.
    Pending(usize),
}

/// A command without operators.
#[derive(Clone, Debug, Default)]
pub(super) struct RawCommand {
    pub assigns: Vec<(String, RawWord)>,
    pub words: Vec<RawWord>,
    pub redirects: Vec<RawRedirect>,
}

#[derive(Clone, Debug)]
pub(super) enum ScriptNode {
    Simple(RawCommand),
    Pipeline {
        stages: Vec<ScriptNode>,
        /// Contains a `|&` operator.
        with_errors: bool,
    },
    /// Statements joined by `&&` and `||`, or one in the background.
    Chain {
        nodes: Vec<ScriptNode>,
        /// How many of them are preceded only by `&&`.
        certain: usize,
        background: bool,
    },
    /// A body that is always executed: `( … )`, `{ … }`.
    Group(Vec<ScriptNode>, Vec<RawRedirect>),
    /// Bodies that are executed conditionally or repeatedly.
    Branch(Vec<ScriptNode>, Vec<RawRedirect>),
    For {
        name: String,
        values: Vec<RawWord>,
        body: Vec<ScriptNode>,
        redirects: Vec<RawRedirect>,
    },
    Function {
        name: String,
        body: Vec<ScriptNode>,
    },
    /// `[[ … ]]`.
    Test(Vec<RawWord>),
    /// The word of a `case` with its patterns.
    Choice(Vec<RawWord>),
}

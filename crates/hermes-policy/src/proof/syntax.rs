//! The part of the shell language that is modelled, as a tree.

/// One piece of a word.
#[derive(Clone, Debug)]
pub(super) enum WordPiece {
    /// Text as it stands. Unquoted text may hold wildcards and braces.
    Text { text: String, quoted: bool },
    /// `$name` or `${name}`.
    Variable { name: String, quoted: bool },
    /// Something that only a run can tell, without a side effect.
    Unknown { quoted: bool },
    /// `$(…)`.
    Substitution { body: Vec<ScriptNode>, quoted: bool },
    /// `<(…)`: the word is the path of a pipe.
    PipePath { body: Vec<ScriptNode> },
    /// `~` at the start of a word: the person's directory.
    Home,
}

/// A word before it is evaluated.
#[derive(Clone, Debug, Default)]
pub(super) struct RawWord {
    pub pieces: Vec<WordPiece>,
    /// Some of it was quoted or escaped.
    pub quoted: bool,
}

impl RawWord {
    /// The text, where nothing but unquoted text is in it: keywords, names, operators.
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

/// A command without operators around it.
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
        /// A `|&` is among its operators.
        with_errors: bool,
    },
    /// Statements with `&&` and `||` between them, or one that runs in the background.
    Chain {
        nodes: Vec<ScriptNode>,
        /// How many of them have only `&&` before them.
        certain: usize,
        background: bool,
    },
    /// A body that runs in any case: `( … )`, `{ … }`.
    Group(Vec<ScriptNode>, Vec<RawRedirect>),
    /// Bodies that may or may not run, or run several times.
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

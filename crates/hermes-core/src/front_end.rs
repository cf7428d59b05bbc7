//! What a conversation shows beside the events of its session: results of slash commands and stored
//! conversations, in terms that every front end can render.

/// What a slash command does in the front end. A front end leaves out what it has no means for.
#[derive(Clone, Debug, PartialEq)]
pub enum Effect {
    /// Something to read, in the transcript.
    Say(ShownText),
    /// Something long to read, in an overlay.
    Page(PagedText),
    /// Text for the composer; what it contains now is kept in the history.
    Draft(String),
    /// The same, and `$EDITOR` opens with it. Without a text it opens with the content of the composer.
    Edit(String),
    /// A message was sent to the session on the person's behalf (`/retry`, a skill): shown as theirs.
    Asked(String),
    /// Another conversation is open, or the same one was read again: the transcript starts over below.
    Opened {
        banner: String,
        entries: Vec<TranscriptEntry>,
    },
    /// Changes how things are displayed.
    Show(DisplaySetting),
    /// The screen is drawn again from the transcript.
    Redraw,
    /// The screen is cleared; what was printed stays in the scrollback.
    Clear,
    /// To the person's clipboard.
    Copy(String),
    Leave,
}

/// One entry of a stored conversation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TranscriptEntry {
    User(String),
    Assistant(String),
    Reasoning(String),
    Tool {
        name: String,
        arguments: String,
        result: String,
        failed: bool,
    },
    /// So many earlier entries are not shown.
    Omitted(usize),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ShownText {
    pub kind: TextKind,
    pub text: String,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TextKind {
    /// As it is: columns stay columns.
    Plain,
    Markdown,
    /// A unified diff.
    Diff,
    Info,
    Warning,
    /// The text is the cause.
    Error {
        fix: Option<String>,
    },
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PagedText {
    pub title: String,
    /// How `text` is read.
    pub kind: TextKind,
    pub text: String,
}

/// A setting of the display that a command changes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DisplaySetting {
    Theme(String),
    /// Reasoning in the transcript.
    Reasoning(bool),
    /// Whole results of tools.
    Verbose(bool),
    Timestamps(bool),
    StatusLine(bool),
    /// What Enter does while a turn runs.
    Busy(BusyInput),
}

/// What Enter does while a turn runs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum BusyInput {
    #[default]
    Steer,
    Queue,
    Interrupt,
}

/// A command for a menu.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CommandInfo {
    pub name: String,
    pub about: String,
    /// What may follow, for people.
    pub args: Option<String>,
}

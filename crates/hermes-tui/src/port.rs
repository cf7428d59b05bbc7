//! The interface between the terminal interface and the program: requests out, updates in.
//!
//! The interface never waits: it offers an [`UiAsk`] to a bounded channel and goes on drawing. Whoever
//! holds the other end answers in its own time with [`HostUpdate`].

use std::path::PathBuf;
use std::time::Duration;

use hermes_core::event::{AgentCommand, SequencedEvent};
use hermes_core::front_end::Effect;
use tokio::sync::mpsc;

/// Requests that may wait for the program.
pub const ASK_QUEUE_CAPACITY: usize = 256;
/// Updates that may wait for the screen.
pub const UPDATE_QUEUE_CAPACITY: usize = 256;

/// The interface's end.
pub struct UiPort {
    pub asks: mpsc::Sender<UiAsk>,
    pub updates: mpsc::Receiver<HostUpdate>,
}

/// The program's end.
pub struct HostPort {
    pub asks: mpsc::Receiver<UiAsk>,
    pub updates: mpsc::Sender<HostUpdate>,
}

pub fn pair() -> (UiPort, HostPort) {
    let (ask, asks) = mpsc::channel(ASK_QUEUE_CAPACITY);
    let (sender, updates) = mpsc::channel(UPDATE_QUEUE_CAPACITY);
    (
        UiPort { asks: ask, updates },
        HostPort {
            asks,
            updates: sender,
        },
    )
}

/// What a person wants.
#[derive(Clone, Debug, PartialEq)]
pub enum UiAsk {
    /// Something for the session: a message, an answer, an interrupt.
    Command(AgentCommand),
    /// A whole line that begins with a slash.
    Slash(String),
    /// `!command`: run for the person, in the directory of the conversation.
    Shell(String),
    /// Stops what [`UiAsk::Shell`] or a slash command is doing.
    Stop,
    /// A key of a panel.
    Panel(PanelRequest),
    /// Values for an argument. The answer carries the ticket; a later ticket makes earlier ones stale.
    Complete {
        ticket: u64,
        /// The command without its slash.
        command: String,
        /// What stands before the word that is completed.
        before: String,
        word: String,
    },
    /// The person leaves; the program closes the session and drops its end.
    Leave,
}

/// What was done in a panel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PanelRequest {
    /// [`Panel::id`].
    pub panel: String,
    /// [`PanelKey::action`]; [`REFRESH`], [`CLOSED`], [`MOVED`] and [`FILTER`] come without a key.
    pub action: String,
    /// The row under the cursor.
    pub row: Option<String>,
    /// What was typed, where the key asks for text; with [`FILTER`], the filter.
    pub text: Option<String>,
}

/// A panel with [`Panel::refresh`] wants its rows anew.
pub const REFRESH: &str = "refresh";
/// The person closed the panel: what it was doing may stop.
pub const CLOSED: &str = "closed";
/// The cursor stands on another row of a panel with [`Panel::previews`].
pub const MOVED: &str = "moved";
/// The filter of a panel with [`Panel::searches`] has changed and rests.
pub const FILTER: &str = "filter";

/// What happens.
#[derive(Clone, Debug, PartialEq)]
pub enum HostUpdate {
    /// The session reports.
    Event(SequencedEvent),
    /// What the status line shows has changed.
    Status(Box<SessionStatus>),
    /// A command ended, also when it said nothing; the prompt is free again.
    Done,
    Effect(Effect),
    /// Opens a panel, or replaces the open one of the same id.
    Panel(Box<Panel>),
    /// Closes the open panel.
    ClosePanel,
    Candidates {
        ticket: u64,
        candidates: Vec<Candidate>,
    },
}

/// What the program knows and the status line and banner show. Tokens and cost of running turns come
/// with events.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SessionStatus {
    pub model: String,
    pub provider: String,
    /// Said behind the model: `local`.
    pub remark: Option<String>,
    /// The model has no tools.
    pub chat_only: bool,
    pub session: String,
    pub title: Option<String>,
    pub profile: Option<String>,
    pub cwd: PathBuf,
    pub branch: Option<String>,
    pub tools: usize,
    /// `ask`, `smart`, `off`.
    pub approvals: String,
    pub mcp: Option<McpCount>,
    /// `tg`, `tg ds`; `None`: no gateway runs.
    pub gateway: Option<String>,
    /// Tokens in the window and its size.
    pub context: Option<(u64, u32)>,
    /// Of the session; `None`: unknown.
    pub cost: Option<f64>,
    /// Background processes and subagents.
    pub background: usize,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct McpCount {
    pub connected: usize,
    pub configured: usize,
    /// On their first try: neither up nor down.
    pub starting: usize,
}

/// A list that things can be done to: models, sessions, MCP servers, checkpoints, themes.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Panel {
    pub id: String,
    pub title: String,
    /// Right of the title: `2 ok · 1 down`.
    pub note: String,
    /// Headings; without any, cells are separated by two blanks.
    pub columns: Vec<String>,
    pub groups: Vec<PanelGroup>,
    pub keys: Vec<PanelKey>,
    /// Typing filters the rows; then keys are chords (`ctrl+s`) or named keys.
    pub filters: bool,
    /// Each move of the cursor is told: [`MOVED`].
    pub previews: bool,
    /// The filter is told, so that rows can be looked for elsewhere: [`FILTER`].
    pub searches: bool,
    /// The row the cursor stands on at first; a panel that is replaced keeps the person's.
    pub selected: Option<String>,
    /// Lines below the rows.
    pub footer: Vec<String>,
    /// How often [`REFRESH`] is asked for.
    pub refresh: Option<Duration>,
    /// Something is under way: shown beside the title.
    pub busy: Option<String>,
    /// It shows something else than before: the filter is emptied and the cursor goes to `selected`.
    pub fresh: bool,
    /// Only takes the place of an open panel of the same id: the person may have closed it meanwhile.
    pub renews: bool,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PanelGroup {
    /// Empty: no heading.
    pub title: String,
    pub rows: Vec<PanelRow>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PanelRow {
    pub id: String,
    pub mark: RowMark,
    pub cells: Vec<String>,
    /// Shown below the list for the row under the cursor.
    pub detail: String,
    /// Found by the filter beside the cells.
    pub also: String,
    /// What a key that asks for a text begins with: the title that is to be changed.
    pub text: String,
    /// What Enter does on this row in place of what it does on the others.
    pub enter: Option<Box<PanelKey>>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum RowMark {
    #[default]
    None,
    Current,
    Good,
    Waiting,
    Bad,
    Off,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PanelKey {
    /// `enter`, `r`, `ctrl+s`, `delete`.
    pub key: String,
    pub label: String,
    pub action: String,
    /// Acts on a row.
    pub row: bool,
    /// Asked first; `y` does it. `{}` stands for the first cell of the row.
    pub confirm: Option<String>,
    /// A text is asked for, with this label; `{}` as above.
    pub text: Option<String>,
    /// The text is a secret: shown as dots.
    pub secret: bool,
    /// The panel closes at once; otherwise it stays until it is told.
    pub closes: bool,
}

/// A value that completes a word.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Candidate {
    pub value: String,
    pub about: String,
}

//! A conversation of a person: the open session, and the state between messages.
//!
//! Results of commands are data ([`CommandResult`]): the line chat prints them, the interface draws
//! them.

pub(crate) mod background;
pub mod hosted;
pub mod images;
pub(crate) mod lease;
pub mod replay;

use std::sync::Arc;
use std::time::Duration;

use hermes_agent::EventReceiver;
use hermes_config::schema::Tui;
use hermes_core::clock::SystemClock;
use hermes_core::event::{AgentCommand, AgentEvent, Setting, UserInput};
use hermes_core::front_end::{Effect, ShownText, TextKind};
use hermes_core::ids::SessionId;
use hermes_core::message::Part;
use hermes_core::model::{ReasoningEffort, Route};
use hermes_core::slash::Surfaces;
use hermes_core::store::SessionStore as _;
use hermes_core::task;
use hermes_tools::schedule::ScheduleDeps;
use tokio::sync::mpsc;
use tokio_util::sync::{CancellationToken, DropGuard};

use crate::context::AppContext;
use crate::options::TurnOptions;
use crate::slash_commands;

use self::background::BackgroundQuestions;
use self::lease::{LeaseHolder, WindowLease};
use crate::failure::{Exit, Failure, Outcome};
use crate::front::CommandFollowUp;
use crate::wiring::{self, ConversationMode, OpenRequest, OpenSession};

/// How often to check for messages stored by another window.
const CHECK_INTERVAL: Duration = Duration::from_secs(1);
/// Effects of work in the background that may wait.
const EFFECT_QUEUE_CAPACITY: usize = 64;
/// Maximum size of the user's command output that is added to the next message, in bytes.
const MAX_NOTES_BYTES: usize = 32 * 1024;

/// Asks a person what to do when another window has the conversation.
pub trait WindowConflict: Send + Sync {
    fn choose(&self, holder: &LeaseHolder) -> Result<ConflictChoice, Failure>;

    /// It cannot be taken over while a turn is running there.
    fn still_busy(&self) -> Outcome;
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConflictChoice {
    /// Follow the other window.
    Watch,
    TakeOver,
    /// Continues in a copy.
    Branch,
    Quit,
}

/// Who shows the conversation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Surface {
    Line,
    Screen,
    /// A chat somewhere else.
    Platform,
}

impl Surface {
    pub fn has(self, surfaces: Surfaces) -> bool {
        match self {
            Self::Line => surfaces.line,
            Self::Screen => surfaces.terminal,
            Self::Platform => surfaces.platform,
        }
    }
}

/// The result of a command.
#[derive(Debug, Default)]
pub struct CommandResult {
    pub effects: Vec<Effect>,
    pub then: CommandFollowUp,
}

impl CommandResult {
    pub fn from_effect(effect: Effect) -> Self {
        Self::from(vec![effect])
    }

    /// Columns stay columns.
    pub fn plain(text: impl Into<String>) -> Self {
        Self::from_effect(show_text(TextKind::Plain, text))
    }

    pub fn info(text: impl Into<String>) -> Self {
        Self::from_effect(show_text(TextKind::Info, text))
    }

    /// Nothing to show; the session sends a report.
    pub fn order() -> Self {
        Self {
            effects: Vec::new(),
            then: CommandFollowUp::Report,
        }
    }

    #[must_use]
    pub fn and(mut self, effect: Effect) -> Self {
        self.effects.push(effect);
        self
    }

    #[must_use]
    pub fn then(mut self, then: CommandFollowUp) -> Self {
        self.then = then;
        self
    }
}

impl From<Vec<Effect>> for CommandResult {
    fn from(effects: Vec<Effect>) -> Self {
        Self {
            effects,
            then: CommandFollowUp::Nothing,
        }
    }
}

/// An effect that shows a text.
pub fn show_text(kind: TextKind, text: impl Into<String>) -> Effect {
    let text = text.into();
    Effect::Say(ShownText { kind, text })
}

/// What `/undo` without a number restores.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum UndoTarget {
    /// The session hid turns of its own.
    Rewound,
    /// The session before this one.
    Left(SessionId),
}

pub struct Conversation {
    pub cx: AppContext,
    pub options: TurnOptions,
    pub chat: OpenSession,
    pub surface: Surface,
    /// Events of the last opened chat, until the front end takes them.
    pub opened: Option<EventReceiver>,
    /// Tokens of the last prompt, and the size of the window.
    pub context: Option<(u64, u32)>,
    /// Known cost of this session in dollars.
    pub cost: Option<f64>,
    pub title: Option<String>,
    /// A turn runs.
    pub busy: bool,
    pub last_question: Option<String>,
    /// A title given before the session was stored.
    pub title_to_set: Option<String>,
    pub back: Option<UndoTarget>,
    /// Sent with the next message.
    pub images: Vec<Part>,
    /// For the model only, with the next message.
    notes: Vec<String>,
    /// Without asking.
    pub yolo: bool,
    /// Chosen by `/reasoning`.
    pub effort: Option<ReasoningEffort>,
    pub shown: DisplayFlags,
    /// The session is deleted at the end (`/quit --delete`).
    pub forget: bool,
    /// Background questions of this conversation.
    pub background: BackgroundQuestions,
    /// Where work in the background shows something later.
    pub later: mpsc::Sender<Effect>,
    /// The lease of a terminal window: each session has one window.
    leases: bool,
    /// The session is this window's; `None`: it is new, or another window has it.
    lease: Option<WindowLease>,
    /// Another window has the session; its messages are shown until this is dropped.
    watch: Option<DropGuard>,
}

/// How things are shown, for commands that switch it.
#[derive(Clone, Copy, Debug)]
pub struct DisplayFlags {
    pub reasoning: bool,
    pub verbose: bool,
    pub timestamps: bool,
    pub status_line: bool,
}

impl Conversation {
    /// Opens the session named by `options`. The receiver yields later output of background work.
    pub async fn open(
        mut options: TurnOptions,
        cx: &AppContext,
        surface: Surface,
        conflict: &dyn WindowConflict,
    ) -> Result<(Self, mpsc::Receiver<Effect>), Failure> {
        let images = images::load(&std::mem::take(&mut options.images))?;
        let opened =
            OpenSession::open(OpenRequest::new(&options, cx, ConversationMode::Repl)).await?;
        let (mut this, coming) = Self::with_session(options, cx, surface, opened).await?;
        this.images = images;
        this.leases = true;
        this.claim_or_ask(conflict).await?;
        Ok((this, coming))
    }

    /// Wraps a chat that was opened with `options`.
    pub async fn with_session(
        mut options: TurnOptions,
        cx: &AppContext,
        surface: Surface,
        (chat, events): (OpenSession, EventReceiver),
    ) -> Result<(Self, mpsc::Receiver<Effect>), Failure> {
        // The next session of this conversation is a new one.
        options.resume = None;
        options.resume_latest = None;
        let (later, coming) = mpsc::channel(EFFECT_QUEUE_CAPACITY);
        let display = &chat.config.display;
        let shown = DisplayFlags {
            reasoning: display.show_reasoning,
            verbose: options.verbose,
            timestamps: display.timestamps,
            status_line: true,
        };
        let mut this = Self {
            cx: cx.clone(),
            yolo: options.yolo,
            options,
            chat,
            surface,
            opened: Some(events),
            context: None,
            cost: None,
            title: None,
            busy: false,
            last_question: None,
            title_to_set: None,
            back: None,
            images: Vec::new(),
            notes: Vec::new(),
            effort: None,
            shown,
            forget: false,
            background: BackgroundQuestions::default(),
            later,
            leases: false,
            lease: None,
            watch: None,
        };
        this.read_row().await?;
        Ok((this, coming))
    }

    /// Claims the session for this window. If another window has it, the person is asked.
    async fn claim_or_ask(&mut self, conflict: &dyn WindowConflict) -> Outcome {
        if !self.chat.used {
            // A new session is unknown to others.
            return Ok(());
        }
        let holder = match WindowLease::acquire(&self.cx.home, &self.chat.id) {
            Ok(lease) => {
                self.lease = Some(lease);
                return Ok(());
            }
            Err(holder) => holder,
        };
        loop {
            match conflict.choose(&holder)? {
                ConflictChoice::TakeOver => {
                    if let Ok(lease) = WindowLease::seize(&self.cx.home, &self.chat.id) {
                        self.lease = Some(lease);
                        // Includes the messages of the other window.
                        return self.read_again().await;
                    }
                    conflict.still_busy()?;
                }
                ConflictChoice::Branch => {
                    // The other window keeps the original session.
                    self.watch = Some(CancellationToken::new().drop_guard());
                    let branched = slash_commands::line(self, "/branch").await;
                    return branched.map_or(Ok(()), |result| result.map(drop));
                }
                ConflictChoice::Watch => {
                    self.watch().await?;
                    return Ok(());
                }
                ConflictChoice::Quit => return Err(Failure::silent(Exit::Ok)),
            }
        }
    }

    /// Whether another window has the conversation.
    pub fn is_watching(&self) -> bool {
        self.watch.is_some()
    }

    /// Shows messages of the other window as they are stored.
    async fn watch(&mut self) -> Outcome {
        let stop = CancellationToken::new();
        let (store, id) = (self.chat.store.clone(), self.chat.id.clone());
        let (later, ended) = (self.later.clone(), stop.clone());
        let mut known = replay::entries(&store, &id).await?.len();
        task::spawn("watch", async move {
            while tokio::time::timeout(CHECK_INTERVAL, ended.cancelled())
                .await
                .is_err()
            {
                let Ok(entries) = replay::entries(&store, &id).await else {
                    continue;
                };
                // A growing answer replaces its earlier version.
                let new = entries.get(known.min(entries.len())..).unwrap_or_default();
                if new.is_empty() {
                    continue;
                }
                let text = replay::lines(new).join("\n");
                known = entries.len();
                if later.send(show_text(TextKind::Plain, text)).await.is_err() {
                    return;
                }
            }
        });
        self.watch = Some(stop.drop_guard());
        let command_result = "watching: messages from the other window appear here. Your own message is sent \
             once that window closes; /branch continues in a copy";
        // If the queue is full, there is enough to read.
        let _ = self
            .later
            .try_send(show_text(TextKind::Info, command_result));
        Ok(())
    }

    /// The session as it is stored now.
    async fn read_again(&mut self) -> Outcome {
        let options = TurnOptions {
            resume: self.chat.used.then(|| self.chat.id.to_string()),
            ..self.options.clone()
        };
        self.replace_chat(&options, "new_session").await
    }

    /// Checks before a message is sent that this window still owns the session. If it continued
    /// elsewhere, it is reloaded, and the person sees that first.
    async fn check_lease(&mut self, text: &str) -> Result<Option<CommandResult>, Failure> {
        if !self.leases || self.lease.as_ref().is_some_and(WindowLease::is_mine) {
            return Ok(None);
        }
        let draft = CommandResult::from_effect(Effect::Draft(text.to_owned()));
        match WindowLease::acquire(&self.cx.home, &self.chat.id) {
            Ok(lease) => {
                self.lease = Some(lease);
                self.watch = None;
                if !self.chat.used {
                    return Ok(None);
                }
                self.read_again().await?;
                let opened = slash_commands::opened(self).await?;
                let command_result = "this conversation continued in another window and was read again; Enter sends your message";
                let mut all = draft;
                all.effects.splice(0..0, opened.effects);
                Ok(Some(all.and(show_text(TextKind::Info, command_result))))
            }
            Err(holder) => {
                let card = TextKind::Error {
                    fix: Some(format!(
                        "/branch continues in a copy; /new starts another session; hermes -r {} asks what to do",
                        self.chat.id
                    )),
                };
                let cause = format!("another window has this conversation (pid {})", holder.pid);
                Ok(Some(draft.and(show_text(card, cause))))
            }
        }
    }

    /// The stored metadata of the session.
    async fn read_row(&mut self) -> Outcome {
        self.context = None;
        self.cost = None;
        self.title = None;
        if self.chat.used {
            let record = self.chat.store.get(self.chat.id.as_str()).await?;
            self.title = record.text("title").map(str::to_owned);
            self.cost = match record.text("cost_status") {
                Some("actual") => record.number("actual_cost_usd"),
                Some("estimated") => record.number("estimated_cost_usd"),
                _ => None,
            };
        }
        Ok(())
    }

    /// Replaces this chat with another one that reuses its servers and processes. `reason`: why the
    /// old session ends, in the original's terms.
    pub async fn open_instead(&mut self, options: &TurnOptions, reason: &str) -> Outcome {
        self.replace_chat(options, reason).await?;
        if !self.leases {
            return Ok(());
        }
        // The old lease is released first: it may be the same session.
        self.lease = None;
        self.watch = None;
        if self.chat.used {
            match WindowLease::acquire(&self.cx.home, &self.chat.id) {
                Ok(lease) => self.lease = Some(lease),
                Err(_) => self.watch().await?,
            }
        }
        Ok(())
    }

    /// Whether no other window has the session.
    fn is_ours(&self) -> bool {
        !self.leases || !self.chat.used || self.lease.as_ref().is_some_and(WindowLease::is_mine)
    }

    async fn replace_chat(&mut self, options: &TurnOptions, reason: &str) -> Outcome {
        let ours = self.is_ours();
        // Opened first: if that fails, the old session remains.
        let request = self.chat.beside(options, &self.cx, ConversationMode::Repl);
        let (chat, events) = OpenSession::open(request).await?;
        let mut old = std::mem::replace(&mut self.chat, chat);
        self.opened = Some(events);
        // The new chat reuses the resources of this one.
        old.borrows = true;
        if old.id != self.chat.id && ours {
            old.end(reason).await?;
        }
        old.close().await;
        if let Some(effort) = self.effort {
            let setting = Setting::Reasoning(Some(effort));
            self.chat.send(AgentCommand::Set(setting)).await?;
        }
        self.last_question = None;
        self.title_to_set = None;
        self.busy = false;
        self.back = None;
        self.read_row().await
    }

    /// Updates the state from an event of the session.
    pub fn observe(&mut self, event: &AgentEvent) {
        match event {
            AgentEvent::TurnStarted { route, .. } => {
                self.busy = true;
                if let Some(lease) = &mut self.lease {
                    lease.set_busy(true);
                }
                self.chat.used = true;
                self.chat.asked = true;
                self.back = None;
                self.routed(route);
            }
            AgentEvent::RouteChanged { to, .. } => self.routed(to),
            AgentEvent::UsageUpdated {
                context_used,
                context_length,
                ..
            } => self.context = Some((*context_used, *context_length)),
            AgentEvent::TitleChanged { title } => self.title = Some(title.clone()),
            AgentEvent::TurnFinished { summary } => {
                self.busy = false;
                if let Some(lease) = &mut self.lease {
                    lease.set_busy(false);
                }
                if let Some(usd) = summary.cost.usd() {
                    *self.cost.get_or_insert_default() += usd;
                }
            }
            _ => {}
        }
    }

    fn routed(&mut self, route: &Route) {
        let known = &self.chat.route;
        if (&known.provider, &known.model) != (&route.provider, &route.model)
            && let Ok(able) = wiring::model_info(&self.cx, &self.chat.config, route)
        {
            self.chat.able = able;
        }
        self.chat.route = route.clone();
        if !route.model.is_empty() {
            self.chat.missing = None;
        }
    }

    /// A message of the person, with pending notes and images.
    pub fn message(&mut self, mut input: UserInput) -> AgentCommand {
        input.images.splice(0..0, std::mem::take(&mut self.images));
        let notes = std::mem::take(&mut self.notes);
        if !notes.is_empty() {
            let known = input.context.take().into_iter();
            let all: Vec<String> = known.chain(notes).collect();
            input.context = Some(all.join("\n\n"));
        }
        self.last_question = Some(input.text.clone());
        self.chat.used = true;
        self.chat.asked = true;
        self.back = None;
        AgentCommand::Submit(input)
    }

    /// Pending notes belong to the old conversation.
    pub fn forget_notes(&mut self) {
        self.notes.clear();
    }

    /// Added to the next message to the model.
    pub fn note(&mut self, text: String) {
        self.notes.push(text);
        while self.notes.len() > 1
            && self.notes.iter().map(String::len).sum::<usize>() > MAX_NOTES_BYTES
        {
            self.notes.remove(0);
        }
    }

    /// Sends a text to the session as a message of the person.
    pub async fn ask(&mut self, text: impl Into<String>) -> Result<CommandResult, Failure> {
        let text = text.into();
        if let Some(command_result) = self.check_ready(&text).await? {
            return Ok(command_result);
        }
        let message = self.message(text.as_str().into());
        self.chat.send(message).await?;
        Ok(CommandResult::from_effect(Effect::Asked(text)).then(CommandFollowUp::Turn))
    }

    /// Without a model nothing is sent: the text is kept, and a message says what to do.
    /// Configuration changes are checked first.
    pub async fn check_ready(&mut self, text: &str) -> Result<Option<CommandResult>, Failure> {
        if let Some(command_result) = self.check_lease(text).await? {
            return Ok(Some(command_result));
        }
        if self.chat.missing.is_none() {
            return Ok(None);
        }
        if wiring::require_model(&self.options, &self.cx).is_ok() {
            let options = self.options.clone();
            self.open_instead(&options, "new_session").await?;
        }
        let Some(why) = &self.chat.missing else {
            return Ok(None);
        };
        let fix = "choose one: /model, or in another terminal: hermes setup";
        let card = TextKind::Error {
            fix: Some(fix.to_owned()),
        };
        let command_result = CommandResult::from_effect(Effect::Draft(text.to_owned()));
        Ok(Some(command_result.and(show_text(card, why.to_string()))))
    }

    /// The title that waited for the session to be stored.
    pub async fn settle_title(&mut self) -> Option<Effect> {
        let title = self.title_to_set.take()?;
        let named = self.chat.store.set_title(&self.chat.id, &title, false);
        // A duplicate title is not a fatal error.
        match named.await {
            Ok(title) => {
                self.title = Some(title);
                None
            }
            Err(error) => Some(show_text(TextKind::Error { fix: None }, error.to_string())),
        }
    }

    /// Ends the session. Its event receiver must be dropped before.
    pub async fn leave(self) -> Outcome {
        self.background.close().await;
        let ended = if self.forget {
            let deleted = self.chat.store.delete(&self.chat.id).await;
            deleted.map(drop).map_err(Failure::from)
        } else if !self.is_ours() {
            // Another window continues it.
            Ok(())
        } else {
            self.chat.end("cli_close").await
        };
        self.chat.close().await;
        ended
    }

    /// Closes the session without ending it, so that it can be resumed.
    pub async fn suspend(self) -> Outcome {
        self.background.close().await;
        self.chat.close().await;
        Ok(())
    }

    /// The section `tui` of the config.
    pub fn tui(&self) -> Tui {
        match self.cx.load_config() {
            Ok(loaded) => Tui::from_config(&loaded.config, &loaded.file_tree),
            Err(_) => Tui::default(),
        }
    }

    /// The jobs of the home.
    pub fn schedule(&self) -> ScheduleDeps {
        ScheduleDeps::from_config(&self.cx.home, &self.chat.config, Arc::new(SystemClock))
    }

    /// The configured reasoning effort.
    pub fn configured_effort(&self) -> Option<ReasoningEffort> {
        let cache = self.cx.home.cache_dir();
        let model = &self.chat.route.model;
        crate::home::settings::from_config(&self.chat.config, &cache, model).reasoning
    }
}

//! A conversation that a person holds: the open session, and what is remembered between lines.
//!
//! What a command does is data ([`Told`]): the line chat prints it, the interface draws it.

use std::time::Duration;

use hermes_agent::events::EventReceiver;
use hermes_core::event::{AgentCommand, AgentEvent, Setting, UserInput};
use hermes_core::ids::SessionId;
use hermes_core::message::Part;
use hermes_core::model::{ReasoningEffort, Route};
use hermes_core::slash::Surfaces;
use hermes_core::store::SessionStore as _;
use hermes_core::task;
use hermes_tui::port::{Effect, Said, Saying};
use tokio::sync::mpsc;
use tokio_util::sync::{CancellationToken, DropGuard};

use super::background::Background;
use super::host::panels::Desk;
use super::lease::WindowLease;
use crate::args::TurnArgs;
use crate::commands::Context;
use crate::exit::{Exit, Failure, Outcome};
use crate::prompt;
use crate::wiring::{Chat, Mode};

/// How often it is looked for what another window has stored.
const LOOK: Duration = Duration::from_secs(1);
/// Effects of work in the background that may wait.
const LATER: usize = 64;
/// Output of the person's own commands that the model is told with the next message, in bytes.
const NOTES: usize = 32 * 1024;

/// Who shows the conversation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Surface {
    Line,
    Screen,
    /// A chat somewhere else.
    Platform,
}

impl Surface {
    pub(crate) fn has(self, surfaces: Surfaces) -> bool {
        match self {
            Self::Line => surfaces.line,
            Self::Screen => surfaces.terminal,
            Self::Platform => surfaces.platform,
        }
    }
}

/// What a command came to.
#[derive(Debug, Default)]
pub(crate) struct Told {
    pub(crate) effects: Vec<Effect>,
    pub(crate) then: Then,
}

/// What follows in the events of the session.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Then {
    #[default]
    Nothing,
    /// The session obeys and says so.
    Order,
    /// A turn.
    Turn,
}

impl Told {
    pub(crate) fn of(effect: Effect) -> Self {
        Self::from(vec![effect])
    }

    /// Columns stay columns.
    pub(crate) fn plain(text: impl Into<String>) -> Self {
        Self::of(said(Saying::Plain, text))
    }

    pub(crate) fn info(text: impl Into<String>) -> Self {
        Self::of(said(Saying::Info, text))
    }

    /// Nothing to show; the session reports by itself.
    pub(crate) fn order() -> Self {
        Self {
            effects: Vec::new(),
            then: Then::Order,
        }
    }

    #[must_use]
    pub(crate) fn and(mut self, effect: Effect) -> Self {
        self.effects.push(effect);
        self
    }

    #[must_use]
    pub(crate) fn then(mut self, then: Then) -> Self {
        self.then = then;
        self
    }
}

impl From<Vec<Effect>> for Told {
    fn from(effects: Vec<Effect>) -> Self {
        Self {
            effects,
            then: Then::Nothing,
        }
    }
}

pub(crate) fn said(kind: Saying, text: impl Into<String>) -> Effect {
    let text = text.into();
    Effect::Say(Said { kind, text })
}

/// What `/undo` without a number brings back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Back {
    /// The session hid turns of its own.
    Rewound,
    /// This session was left for a new one.
    Left(SessionId),
}

pub(crate) struct Conversation {
    pub(crate) cx: Context,
    pub(crate) args: TurnArgs,
    pub(crate) chat: Chat,
    pub(crate) surface: Surface,
    /// Events of the chat that was opened last, until whoever shows it takes them.
    pub(crate) opened: Option<EventReceiver>,
    /// Tokens of the last prompt, and the size of the window.
    pub(crate) context: Option<(u64, u32)>,
    /// Dollars of this session, as far as they are known.
    pub(crate) cost: Option<f64>,
    pub(crate) title: Option<String>,
    /// A turn runs.
    pub(crate) busy: bool,
    pub(crate) last_question: Option<String>,
    /// A title given before the session was stored.
    pub(crate) title_to_set: Option<String>,
    pub(crate) back: Option<Back>,
    /// They go with the next message.
    pub(crate) images: Vec<Part>,
    /// For the model only, with the next message.
    notes: Vec<String>,
    /// Without asking.
    pub(crate) yolo: bool,
    /// Chosen by `/reasoning`.
    pub(crate) effort: Option<ReasoningEffort>,
    pub(crate) shown: Shown,
    /// The session is deleted when the person leaves (`/quit --delete`).
    pub(crate) forget: bool,
    /// What goes on beside this conversation.
    pub(crate) background: Background,
    /// What belongs to the open panel.
    pub(crate) panels: Desk,
    /// Where work in the background shows something later.
    pub(crate) later: mpsc::Sender<Effect>,
    /// It is held at a terminal, where each session has one window.
    leases: bool,
    /// The session is this window's; `None`: it is new, or another window has it.
    lease: Option<WindowLease>,
    /// Another window has the session; what happens there is shown until this is dropped.
    watch: Option<DropGuard>,
}

/// How things are shown, for commands that switch it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Shown {
    pub(crate) reasoning: bool,
    pub(crate) verbose: bool,
    pub(crate) timestamps: bool,
    pub(crate) status_line: bool,
}

impl Conversation {
    /// Opens what `args` name. The receiver gives what work in the background shows later.
    pub(crate) async fn open(
        mut args: TurnArgs,
        cx: &Context,
        surface: Surface,
    ) -> Result<(Self, mpsc::Receiver<Effect>), Failure> {
        let images = super::images::load(&std::mem::take(&mut args.image))?;
        let opened = Chat::open(&args, cx, Mode::Repl).await?;
        let (mut this, coming) = Self::around(args, cx, surface, opened).await?;
        this.images = images;
        this.leases = true;
        this.claim_or_ask().await?;
        Ok((this, coming))
    }

    /// Takes over a chat that `args` opened.
    pub(crate) async fn around(
        mut args: TurnArgs,
        cx: &Context,
        surface: Surface,
        (chat, events): (Chat, EventReceiver),
    ) -> Result<(Self, mpsc::Receiver<Effect>), Failure> {
        // The next session of this conversation is a new one.
        args.resume = None;
        args.continue_ = None;
        let (later, coming) = mpsc::channel(LATER);
        let display = &chat.config.display;
        let shown = Shown {
            reasoning: display.show_reasoning,
            verbose: args.verbose,
            timestamps: display.timestamps,
            status_line: true,
        };
        let mut this = Self {
            cx: cx.clone(),
            yolo: args.yolo,
            args,
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
            background: Background::default(),
            panels: Desk::default(),
            later,
            leases: false,
            lease: None,
            watch: None,
        };
        this.read_row().await?;
        Ok((this, coming))
    }

    /// The session is this window's from now on. Where another window has it, the person is asked.
    async fn claim_or_ask(&mut self) -> Outcome {
        if !self.chat.used {
            // Nobody else knows it yet.
            return Ok(());
        }
        let holder = match WindowLease::take(&self.cx.home, &self.chat.id) {
            Ok(lease) => {
                self.lease = Some(lease);
                return Ok(());
            }
            Err(holder) => holder,
        };
        loop {
            let question = format!(
                "This conversation is open in another window (pid {}{}).\n  [w] watch it  [t] take it over  \
                 [b] branch: continue in a copy  [q] quit ",
                holder.pid,
                if holder.busy {
                    ", a turn is running there"
                } else {
                    ""
                },
            );
            match tokio::task::block_in_place(|| prompt::key(&question, &['w', 't', 'b', 'q']))? {
                Some('t') => {
                    if let Ok(lease) = WindowLease::seize(&self.cx.home, &self.chat.id) {
                        self.lease = Some(lease);
                        // What was said there meanwhile is known here, too.
                        return self.read_again().await;
                    }
                    prompt::say("a turn is running there: wait until it ends, or stop it there")?;
                }
                Some('b') => {
                    // The other window keeps the original session.
                    self.watch = Some(CancellationToken::new().drop_guard());
                    let branched = super::verbs::line(self, "/branch").await;
                    return branched.map_or(Ok(()), |told| told.map(drop));
                }
                Some('w') => {
                    self.watch().await?;
                    return Ok(());
                }
                Some(_) | None => return Err(Failure::silent(Exit::Ok)),
            }
        }
    }

    /// Shows what is said in the other window as it is stored.
    async fn watch(&mut self) -> Outcome {
        let stop = CancellationToken::new();
        let (store, id) = (self.chat.store.clone(), self.chat.id.clone());
        let (later, ended) = (self.later.clone(), stop.clone());
        let mut known = super::replay::entries(&store, &id).await?.len();
        task::spawn("watch", async move {
            while tokio::time::timeout(LOOK, ended.cancelled()).await.is_err() {
                let Ok(entries) = super::replay::entries(&store, &id).await else {
                    continue;
                };
                // An answer that grows takes the place of what was stored of it.
                let new = entries.get(known.min(entries.len())..).unwrap_or_default();
                if new.is_empty() {
                    continue;
                }
                let text = super::replay::lines(new).join("\n");
                known = entries.len();
                if later.send(said(Saying::Plain, text)).await.is_err() {
                    return;
                }
            }
        });
        self.watch = Some(stop.drop_guard());
        let told = "watching: messages from the other window appear here. Your own message is sent \
             once that window closes; /branch continues in a copy";
        // Somebody reads it, or the queue is full of other things to read.
        let _ = self.later.try_send(said(Saying::Info, told));
        Ok(())
    }

    /// The session as it is stored now.
    async fn read_again(&mut self) -> Outcome {
        let args = TurnArgs {
            resume: self.chat.used.then(|| self.chat.id.to_string()),
            ..self.args.clone()
        };
        self.replace_chat(&args, "new_session").await
    }

    /// A message is about to be sent: is the session still this window's? Where it went on elsewhere it
    /// is read again first, and the person sees that before the message goes.
    async fn not_ours(&mut self, text: &str) -> Result<Option<Told>, Failure> {
        if !self.leases || self.lease.as_ref().is_some_and(WindowLease::is_mine) {
            return Ok(None);
        }
        let draft = Told::of(Effect::Draft(text.to_owned()));
        match WindowLease::take(&self.cx.home, &self.chat.id) {
            Ok(lease) => {
                self.lease = Some(lease);
                self.watch = None;
                if !self.chat.used {
                    return Ok(None);
                }
                self.read_again().await?;
                let opened = super::verbs::opened(self).await?;
                let told = "this conversation continued in another window and was read again; Enter sends your message";
                let mut all = draft;
                all.effects.splice(0..0, opened.effects);
                Ok(Some(all.and(said(Saying::Info, told))))
            }
            Err(holder) => {
                let card = Saying::Error {
                    fix: Some(format!(
                        "/branch continues in a copy; /new starts another session; hermes -r {} asks what to do",
                        self.chat.id
                    )),
                };
                let cause = format!("another window has this conversation (pid {})", holder.pid);
                Ok(Some(draft.and(said(card, cause))))
            }
        }
    }

    /// What the stored session says of itself.
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

    /// Another chat takes the place of this one, which goes on with its servers and processes.
    /// `reason`: why the session that was open ends, in the original's words.
    pub(crate) async fn open_instead(&mut self, args: &TurnArgs, reason: &str) -> Outcome {
        self.replace_chat(args, reason).await?;
        if !self.leases {
            return Ok(());
        }
        // The one before is given back first: it may be the same.
        self.lease = None;
        self.watch = None;
        if self.chat.used {
            match WindowLease::take(&self.cx.home, &self.chat.id) {
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

    async fn replace_chat(&mut self, args: &TurnArgs, reason: &str) -> Outcome {
        let ours = self.is_ours();
        // Opened first: if that fails, the old session is still there.
        let opened = Chat::open_after(args, &self.cx, Mode::Repl, Some(&self.chat));
        let (chat, events) = opened.await?;
        let mut old = std::mem::replace(&mut self.chat, chat);
        self.opened = Some(events);
        // The new chat goes on with what this one used.
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

    /// Takes note of what the session reports.
    pub(crate) fn observe(&mut self, event: &AgentEvent) {
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
            && let Ok(able) = crate::wiring::able(&self.cx, &self.chat.config, route)
        {
            self.chat.able = able;
        }
        self.chat.route = route.clone();
        if !route.model.is_empty() {
            self.chat.missing = None;
        }
    }

    /// What a person says, with what else goes with it.
    pub(crate) fn message(&mut self, mut input: UserInput) -> AgentCommand {
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

    /// What was noted belongs to the conversation that was left.
    pub(crate) fn forget_notes(&mut self) {
        self.notes.clear();
    }

    /// The model is told with the next message.
    pub(crate) fn note(&mut self, text: String) {
        self.notes.push(text);
        while self.notes.len() > 1 && self.notes.iter().map(String::len).sum::<usize>() > NOTES {
            self.notes.remove(0);
        }
    }

    /// Sends words to the session as the person's.
    pub(crate) async fn ask(&mut self, text: impl Into<String>) -> Result<Told, Failure> {
        let text = text.into();
        if let Some(told) = self.unready(&text).await? {
            return Ok(told);
        }
        let message = self.message(text.as_str().into());
        self.chat.send(message).await?;
        Ok(Told::of(Effect::Asked(text)).then(Then::Turn))
    }

    /// Without a model nothing is sent: the words stay with the person, who is told what to do.
    /// What was configured meanwhile is looked at first.
    pub(crate) async fn unready(&mut self, text: &str) -> Result<Option<Told>, Failure> {
        if let Some(told) = self.not_ours(text).await? {
            return Ok(Some(told));
        }
        if self.chat.missing.is_none() {
            return Ok(None);
        }
        if crate::wiring::require_model(&self.args, &self.cx).is_ok() {
            let args = self.args.clone();
            self.open_instead(&args, "new_session").await?;
        }
        let Some(why) = &self.chat.missing else {
            return Ok(None);
        };
        let fix = "choose one: /model, or in another terminal: hermes setup";
        let card = Saying::Error {
            fix: Some(fix.to_owned()),
        };
        let told = Told::of(Effect::Draft(text.to_owned()));
        Ok(Some(told.and(said(card, why.to_string()))))
    }

    /// The title that waited for the session to be stored.
    pub(crate) async fn settle_title(&mut self) -> Option<Effect> {
        let title = self.title_to_set.take()?;
        let named = self.chat.store.set_title(&self.chat.id, &title, false);
        // A title that is taken is no reason to leave the chat.
        match named.await {
            Ok(title) => {
                self.title = Some(title);
                None
            }
            Err(error) => Some(said(Saying::Error { fix: None }, error.to_string())),
        }
    }

    /// Ends the session as its person does. Whoever has its events has dropped them.
    pub(crate) async fn leave(self) -> Outcome {
        self.background.close().await;
        let ended = if self.forget {
            let deleted = self.chat.store.delete(&self.chat.id).await;
            deleted.map(drop).map_err(Failure::from)
        } else if !self.is_ours() {
            // Another window goes on with it.
            Ok(())
        } else {
            self.chat.end("cli_close").await
        };
        self.chat.close().await;
        ended
    }

    /// Leaves the session as it is: it goes on another time.
    pub(crate) async fn put_aside(self) -> Outcome {
        self.background.close().await;
        self.chat.close().await;
        Ok(())
    }

    /// What the config says of how long the model thinks.
    pub(crate) fn configured_effort(&self) -> Option<ReasoningEffort> {
        let cache = self.cx.home.cache_dir();
        let model = &self.chat.route.model;
        hermes_agent::home::settings::from_config(&self.chat.config, &cache, model).reasoning
    }
}

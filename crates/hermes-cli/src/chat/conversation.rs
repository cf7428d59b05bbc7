//! A conversation that a person holds: the open session, and what is remembered between lines.
//!
//! What a command does is data ([`Told`]): the line chat prints it, the interface draws it.

use hermes_agent::events::EventReceiver;
use hermes_core::event::{AgentCommand, AgentEvent, Setting, UserInput};
use hermes_core::ids::SessionId;
use hermes_core::message::Part;
use hermes_core::model::{ReasoningEffort, Route};
use hermes_core::slash::Surfaces;
use hermes_core::store::SessionStore as _;
use hermes_tui::port::{Effect, Said, Saying};
use tokio::sync::mpsc;

use super::background::Background;
use super::host::panels::Desk;
use crate::args::TurnArgs;
use crate::commands::Context;
use crate::exit::{Failure, Outcome};
use crate::wiring::{Chat, Mode};

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
        };
        this.read_row().await?;
        Ok((this, coming))
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
        // Opened first: if that fails, the old session is still there.
        let opened = Chat::open_after(args, &self.cx, Mode::Repl, Some(&self.chat));
        let (chat, events) = opened.await?;
        let mut old = std::mem::replace(&mut self.chat, chat);
        self.opened = Some(events);
        // The new chat goes on with what this one used.
        old.borrows = true;
        if old.id != self.chat.id {
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

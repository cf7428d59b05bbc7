//! What the interface knows. It reads no clock and touches no terminal: keys and news come in, wishes
//! and frames go out.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use hermes_core::event::{AgentCommand, UserInput};
use hermes_core::front_end::{BusyInput, TranscriptEntry};
use hermes_core::message::Part;
use hermes_core::model::Route;

use super::options::Options;
use super::overlay::Overlay;
use super::queue::Queue;
use super::transcript::Transcript;
use crate::cells::{BannerCell, Cell, CellContext, NoticeCell, UserCell, from_entry};
use crate::composer::{Arrived, Composer};
use crate::keys::Keymap;
use crate::panel::PanelView;
use crate::port::{Ask, Status};
use crate::prompt::Prompts;
use crate::row::Row;
use crate::theme::Theme;

/// How long "again to exit" counts.
pub(super) const AGAIN: Duration = Duration::from_secs(2);
/// A turn of this length is worth a call when it ends and nobody looks.
pub(super) const LONG: Duration = Duration::from_secs(10);

/// What the terminal or the program is to do.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Wish {
    Ask(Ask),
    /// Of the window.
    Title(String),
    /// Calls a person who looks elsewhere.
    Call(String),
    /// Hands this text to the person's editor.
    Edit(String),
    Copy(String),
    /// What was typed before a prompt came goes to the draft.
    Drain,
    Suspend,
    /// The screen is emptied; the scrollback stays.
    Clear,
    /// Everything is drawn anew.
    Redraw,
    Leave,
}

/// A running turn.
#[derive(Clone, Debug)]
pub(super) struct Turn {
    pub(super) since: Instant,
    /// Its end was asked for.
    pub(super) stopping: bool,
    /// Something that takes a while and is neither text nor a tool.
    pub(super) pause: Option<Pause>,
    /// No turn of the model: the conversation is being compressed because the person said so.
    pub(super) errand: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Pause {
    Retrying { why: String, until: Instant },
    Compressing,
}

/// How things are shown.
#[derive(Clone, Debug)]
pub(super) struct Manner {
    pub(super) reasoning: bool,
    pub(super) verbose: bool,
    pub(super) timestamps: bool,
    pub(super) status_line: bool,
    pub(super) animated: bool,
    pub(super) ascii: bool,
    pub(super) colour: bool,
    pub(super) hyperlinks: bool,
}

/// What the terminal can show.
#[derive(Clone, Copy, Debug)]
pub struct Appearance {
    pub colour: bool,
    pub ascii: bool,
    pub hyperlinks: bool,
    /// The time of day, for stamps.
    pub clock: fn() -> String,
}

pub struct App {
    pub(super) theme: Theme,
    /// What `auto` means at this terminal.
    pub(super) fitting: &'static str,
    pub(super) keys: Keymap,
    pub(super) manner: Manner,
    pub(super) status: Status,
    /// Money of the running turn; the session's own sum does not have it yet.
    pub(super) spent: Option<f64>,
    pub(super) route: Option<Route>,
    pub(super) transcript: Transcript,
    pub(super) composer: Composer,
    pub(super) prompts: Prompts,
    pub(super) overlay: Option<Overlay>,
    /// The panel that a page covers.
    pub(super) beneath: Option<Box<PanelView>>,
    pub(super) queue: Queue,
    pub(super) busy: BusyInput,
    pub(super) turn: Option<Turn>,
    /// A message was sent and its turn has not begun.
    pub(super) awaiting: bool,
    /// Commands whose end was not told yet, and when the first began.
    pub(super) errands: VecDeque<(String, Instant)>,
    pub(super) images: Vec<Part>,
    /// Somebody asked something in this conversation.
    pub(super) asked: bool,
    /// When a key was last pressed.
    pub(super) typed: Option<Instant>,
    /// Until when Ctrl+C leaves.
    pub(super) leaving: Option<Instant>,
    /// When Esc was pressed with nothing to stop.
    pub(super) escaped: Option<Instant>,
    /// A word in the status line, and until when.
    pub(super) hint: Option<(String, Instant)>,
    pub(super) focused: bool,
    titled: String,
    /// `tui.screen: full`: the end of what went to the scrollback.
    pub(super) recent: VecDeque<Row>,
    /// The conversation has no message yet.
    fresh: bool,
    /// The frame differs from what was drawn.
    pub(super) dirty: bool,
    pub(super) wishes: Vec<Wish>,
    pub(super) options: Options,
    pub(super) clock: fn() -> String,
}

impl App {
    pub fn new(mut options: Options, mut composer: Composer, look: Appearance) -> Self {
        let wishes = options.tui.keys.clone().unwrap_or_default();
        let (keys, bad) =
            Keymap::from_config(wishes.iter().map(|(name, keys)| (name, keys.as_slice())));
        let manner = Manner {
            reasoning: options.reasoning,
            verbose: options.verbose,
            timestamps: options.timestamps,
            status_line: true,
            animated: options.tui.animates(),
            ascii: options.tui.ascii.unwrap_or(look.ascii),
            colour: look.colour,
            hyperlinks: look.hyperlinks,
        };
        let busy = match options.tui.busy.as_deref() {
            Some("queue") => BusyInput::Queue,
            Some("interrupt") => BusyInput::Interrupt,
            _ => BusyInput::Steer,
        };
        let named = options.tui.theme.as_deref().filter(|name| *name != "auto");
        let found = named.and_then(Theme::named);
        let unknown = named.filter(|_| found.is_none()).map(str::to_owned);
        let fresh = options.entries.is_empty();
        if let Some(draft) = options.draft.take() {
            composer.set_text(&draft);
        }
        composer.conversation(&options.status.session, fresh);
        let mut app = Self {
            theme: dressed(found.unwrap_or_default(), &manner),
            keys,
            manner,
            status: options.status.clone(),
            spent: None,
            route: None,
            transcript: Transcript::default(),
            composer,
            prompts: Prompts::new(options.check_rule, options.approval_limit),
            overlay: None,
            queue: Queue::default(),
            busy,
            turn: None,
            awaiting: false,
            errands: VecDeque::new(),
            images: std::mem::take(&mut options.images),
            asked: false,
            typed: None,
            leaving: None,
            escaped: None,
            hint: None,
            focused: true,
            titled: String::new(),
            recent: VecDeque::new(),
            fresh,
            dirty: true,
            fitting: "terminal",
            beneath: None,
            wishes: Vec::new(),
            clock: look.clock,
            options,
        };
        let banner = app.banner();
        let entries = std::mem::take(&mut app.options.entries);
        app.open(banner, entries);
        let mut notices = std::mem::take(&mut app.options.notices);
        notices.extend(bad.iter().map(ToString::to_string));
        if let Some(name) = unknown {
            notices.push(format!(
                "tui.theme: there is no theme {name:?}; /theme shows all"
            ));
        }
        for notice in notices {
            app.transcript.push(NoticeCell::warning(notice));
        }
        app.title();
        app
    }

    pub(super) fn open(&mut self, banner: String, entries: Vec<TranscriptEntry>) {
        self.transcript.push(BannerCell::new(banner, "/help"));
        self.fresh = entries.is_empty();
        self.entries(entries);
    }

    fn entries(&mut self, entries: Vec<TranscriptEntry>) {
        self.asked |= !entries.is_empty();
        for entry in entries {
            self.transcript.push_boxed(from_entry(entry));
        }
    }

    pub(super) fn cx(&self) -> CellContext<'_> {
        context(&self.theme, &self.manner, &self.status)
    }

    pub(super) fn dress(&mut self, theme: Theme) {
        self.theme = dressed(theme, &self.manner);
    }

    /// What the program knows has changed.
    pub(super) fn known(&mut self, status: Status) {
        if status.session != self.status.session {
            self.composer.conversation(&status.session, self.fresh);
        }
        self.status = status;
        if self.turn.is_none() {
            self.spent = None;
        }
        self.title();
    }

    /// A turn runs or is about to.
    pub fn is_busy(&self) -> bool {
        self.turn.is_some() || self.awaiting
    }

    pub(super) fn wish(&mut self, wish: Wish) {
        self.wishes.push(wish);
    }

    pub(super) fn ask(&mut self, ask: Ask) {
        self.wish(Wish::Ask(ask));
    }

    pub(super) fn command(&mut self, command: AgentCommand) {
        self.ask(Ask::Command(command));
    }

    pub(crate) fn take_wishes(&mut self) -> Vec<Wish> {
        std::mem::take(&mut self.wishes)
    }

    pub(crate) fn next_wish(&mut self) -> Option<Wish> {
        (!self.wishes.is_empty()).then(|| self.wishes.remove(0))
    }

    pub(crate) fn has_wishes(&self) -> bool {
        !self.wishes.is_empty()
    }

    /// The next frame is drawn, whatever has changed.
    pub fn touch(&mut self) {
        self.dirty = true;
    }

    /// A word for the person, for a moment.
    pub(crate) fn tell(&mut self, text: &str, now: Instant) {
        self.hint(text, now);
    }

    /// What the clipboard said to [`Wish::Copy`].
    pub(crate) fn copied(&mut self, taken: bool, now: Instant) {
        self.hint(
            if taken {
                "copied"
            } else {
                "too long for the clipboard"
            },
            now,
        );
    }

    /// A thread of the composer has found something.
    pub(crate) fn arrived(&mut self, arrived: Arrived, now: Instant) {
        let outcome = self.composer.arrived(arrived);
        self.composed(outcome, now);
    }

    /// The terminal told its background: a theme that was made for it, where none was chosen.
    pub fn background(&mut self, (red, green, blue): (u8, u8, u8), deep: bool) {
        if !deep || !self.manner.colour {
            return;
        }
        let light = 299 * u32::from(red) + 587 * u32::from(green) + 114 * u32::from(blue);
        let name = if light > 127_000 { "light" } else { "dark" };
        self.fitting = name;
        let chosen = self
            .options
            .tui
            .theme
            .as_deref()
            .is_some_and(|name| name != "auto");
        if chosen {
            return;
        }
        if let Some(theme) = Theme::named(name) {
            self.dress(theme);
            self.dirty = true;
        }
    }

    /// The person leaves: the draft is kept, nothing grows any more. What is still to be sent.
    pub(crate) fn leave(&mut self) -> Vec<Ask> {
        self.composer.save_draft();
        self.composer.flush();
        self.overlay_left();
        self.prompts.clear();
        self.overlay = None;
        let mut asks: Vec<Ask> = self
            .take_wishes()
            .into_iter()
            .filter_map(|wish| match wish {
                Wish::Ask(ask) => Some(ask),
                _ => None,
            })
            .collect();
        asks.push(Ask::Leave);
        asks
    }

    pub(super) fn say(&mut self, cell: impl Cell + 'static) {
        self.transcript.push(cell);
        self.dirty = true;
    }

    /// A word in the status line for a moment.
    pub(super) fn hint(&mut self, text: impl Into<String>, now: Instant) {
        self.hint = Some((text.into(), now + AGAIN));
        self.dirty = true;
    }

    /// A message of the person starts a turn.
    pub(super) fn submit(&mut self, text: String, shown: &str, images: Vec<Part>) {
        self.asked(shown);
        let mut all = std::mem::take(&mut self.images);
        all.extend(images);
        self.awaiting = true;
        self.command(AgentCommand::Submit(UserInput {
            text,
            images: all,
            ..UserInput::default()
        }));
    }

    /// The person's words in the transcript.
    pub(super) fn asked(&mut self, text: &str) {
        self.asked = true;
        let mut cell = UserCell::new(text);
        if self.manner.timestamps {
            cell = cell.at((self.clock)());
        }
        self.say(cell);
    }

    /// The window's title: what, where, whether something runs.
    pub(super) fn title(&mut self) {
        let name = self
            .status
            .title
            .as_deref()
            .filter(|title| !title.is_empty());
        let name = name.map_or_else(
            || {
                let dir = self.status.cwd.file_name();
                dir.map_or_else(String::new, |dir| dir.to_string_lossy().into_owned())
            },
            str::to_owned,
        );
        let mut title = "hermes".to_owned();
        if !name.is_empty() {
            title = format!("{title} · {name}");
        }
        if self.prompts.is_open() {
            title.push_str(" · ?");
        } else if self.is_busy() {
            title.push_str(" · ●");
        }
        if self.titled != title {
            self.titled.clone_from(&title);
            self.wish(Wish::Title(title));
        }
    }

    /// Calls for somebody who does not look. Where a way was chosen, always: not every terminal tells
    /// whether it is looked at.
    pub(super) fn call(&mut self, why: &str) {
        let chosen = matches!(
            self.options.tui.notifications.as_deref(),
            Some("bell" | "osc9")
        );
        if !self.focused || chosen {
            self.wish(Wish::Call(format!("hermes: {why}")));
        }
    }
}

fn dressed(theme: Theme, manner: &Manner) -> Theme {
    let theme = if manner.colour {
        theme
    } else {
        theme.without_color()
    };
    if manner.ascii { theme.ascii() } else { theme }
}

/// How cells are shown now.
pub(super) fn context<'a>(
    theme: &'a Theme,
    manner: &Manner,
    status: &'a Status,
) -> CellContext<'a> {
    CellContext {
        verbose: manner.verbose,
        reasoning: manner.reasoning,
        hyperlinks: manner.hyperlinks,
        cwd: Some(&status.cwd),
        ..CellContext::new(theme)
    }
}

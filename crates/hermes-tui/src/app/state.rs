//! The state of the interface. It reads no clock and performs no I/O: keys and events come in,
//! requests and frames go out.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use hermes_core::event::{AgentCommand, UserInput};
use hermes_core::front_end::{BusyInput, TranscriptEntry};
use hermes_core::message::Part;
use hermes_core::model::Route;

use super::options::AppOptions;
use super::overlay::AppOverlay;
use super::queue::MessageQueue;
use super::transcript::Transcript;
use crate::cells::{BannerCell, CellContext, NoticeCell, TranscriptCell, UserCell, from_entry};
use crate::composer::{Composer, ComposerResult};
use crate::keys::Keymap;
use crate::panel::PanelView;
use crate::port::{SessionStatus, UiAsk};
use crate::prompt::PromptQueue;
use crate::row::StyledRow;
use crate::theme::Theme;

/// How long the "press again to exit" state lasts.
pub(super) const EXIT_CONFIRM_WINDOW: Duration = Duration::from_secs(2);
/// When a turn of at least this length ends, the person is notified if the terminal is not focused.
pub(super) const LONG_TURN: Duration = Duration::from_secs(10);

/// A request to the terminal or the program.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum UiRequest {
    Send(UiAsk),
    /// Of the window.
    Title(String),
    /// Notifies a person who is looking elsewhere.
    Notify(String),
    /// Opens this text in the person's editor.
    Edit(String),
    Copy(String),
    /// Moves input typed before a prompt appeared to the draft.
    TakeTypeAhead,
    Suspend,
    /// Clears the screen; the scrollback stays.
    Clear,
    /// Draws everything again.
    Redraw,
    Leave,
}

/// A running turn.
#[derive(Clone, Debug)]
pub(super) struct RunningTurn {
    pub(super) since: Instant,
    /// Its end was requested.
    pub(super) stopping: bool,
    /// A longer operation that is neither text nor a tool.
    pub(super) pause: Option<TurnPause>,
    /// Not a turn of the model: the person requested compression of the conversation.
    pub(super) errand: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum TurnPause {
    Retrying { why: String, until: Instant },
    Compressing,
}

/// Display options.
#[derive(Clone, Debug)]
pub(super) struct DisplayOptions {
    pub(super) reasoning: bool,
    pub(super) verbose: bool,
    pub(super) timestamps: bool,
    pub(super) status_line: bool,
    pub(super) animated: bool,
    pub(super) ascii: bool,
    pub(super) colour: bool,
    pub(super) hyperlinks: bool,
}

/// Capabilities of the terminal.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Appearance {
    pub colour: bool,
    pub ascii: bool,
    pub hyperlinks: bool,
    /// The time of day, for timestamps.
    pub clock: fn() -> String,
}

pub(crate) struct App {
    pub(super) theme: Theme,
    /// The theme that `auto` selects for this terminal.
    pub(super) auto_theme: &'static str,
    pub(super) keys: Keymap,
    pub(super) display: DisplayOptions,
    pub(super) status: SessionStatus,
    /// Cost of the running turn, which the session's total does not include yet.
    pub(super) turn_cost: Option<f64>,
    pub(super) route: Option<Route>,
    pub(super) transcript: Transcript,
    pub(super) composer: Composer,
    pub(super) prompts: PromptQueue,
    pub(super) overlay: Option<AppOverlay>,
    /// The panel that is covered by a page.
    pub(super) covered_panel: Option<Box<PanelView>>,
    pub(super) queue: MessageQueue,
    pub(super) busy: BusyInput,
    pub(super) turn: Option<RunningTurn>,
    /// A message was sent and its turn has not begun.
    pub(super) awaiting: bool,
    /// Commands that have not finished yet, and when the first began.
    pub(super) running_commands: VecDeque<(String, Instant)>,
    pub(super) images: Vec<Part>,
    /// Whether anything was asked in this conversation.
    pub(super) asked: bool,
    /// When a key was last pressed.
    pub(super) last_key_at: Option<Instant>,
    /// Until when Ctrl+C exits.
    pub(super) exit_armed_until: Option<Instant>,
    /// When Esc was pressed with nothing to stop.
    pub(super) escape_pressed_at: Option<Instant>,
    /// A hint in the status line, and until when it is shown.
    pub(super) hint: Option<(String, Instant)>,
    pub(super) focused: bool,
    titled: String,
    /// `tui.screen: full`: the last rows that went to the scrollback.
    pub(super) recent: VecDeque<StyledRow>,
    /// The conversation has no message yet.
    fresh: bool,
    /// The frame differs from what was drawn.
    pub(super) dirty: bool,
    pub(super) requests: Vec<UiRequest>,
    pub(super) options: AppOptions,
    pub(super) clock: fn() -> String,
}

impl App {
    pub(crate) fn new(mut options: AppOptions, mut composer: Composer, look: Appearance) -> Self {
        let configured = options.tui.keys.clone().unwrap_or_default();
        let (keys, bad) = Keymap::from_config(
            configured
                .iter()
                .map(|(name, keys)| (name, keys.as_slice())),
        );
        let manner = DisplayOptions {
            reasoning: options.reasoning,
            verbose: options.verbose,
            timestamps: options.timestamps,
            status_line: true,
            animated: options.tui.is_animated(),
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
            theme: with_appearance(found.unwrap_or_default(), &manner),
            keys,
            display: manner,
            status: options.status.clone(),
            turn_cost: None,
            route: None,
            transcript: Transcript::default(),
            composer,
            prompts: PromptQueue::new(options.check_rule, options.approval_limit),
            overlay: None,
            queue: MessageQueue::default(),
            busy,
            turn: None,
            awaiting: false,
            running_commands: VecDeque::new(),
            images: std::mem::take(&mut options.images),
            asked: false,
            last_key_at: None,
            exit_armed_until: None,
            escape_pressed_at: None,
            hint: None,
            focused: true,
            titled: String::new(),
            recent: VecDeque::new(),
            fresh,
            dirty: true,
            auto_theme: "terminal",
            covered_panel: None,
            requests: Vec::new(),
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
        context(&self.theme, &self.display, &self.status)
    }

    pub(super) fn apply_theme(&mut self, theme: Theme) {
        self.theme = with_appearance(theme, &self.display);
    }

    /// The program reported a new status.
    pub(super) fn update_status(&mut self, status: SessionStatus) {
        if status.session != self.status.session {
            self.composer.conversation(&status.session, self.fresh);
        }
        self.status = status;
        if self.turn.is_none() {
            self.turn_cost = None;
        }
        self.title();
    }

    /// A turn runs or is about to.
    pub(crate) fn is_busy(&self) -> bool {
        self.turn.is_some() || self.awaiting
    }

    pub(super) fn request(&mut self, wish: UiRequest) {
        self.requests.push(wish);
    }

    pub(super) fn ask(&mut self, ask: UiAsk) {
        self.request(UiRequest::Send(ask));
    }

    pub(super) fn command(&mut self, command: AgentCommand) {
        self.ask(UiAsk::Command(command));
    }

    pub(crate) fn take_requests(&mut self) -> Vec<UiRequest> {
        std::mem::take(&mut self.requests)
    }

    pub(crate) fn next_request(&mut self) -> Option<UiRequest> {
        (!self.requests.is_empty()).then(|| self.requests.remove(0))
    }

    pub(crate) fn has_requests(&self) -> bool {
        !self.requests.is_empty()
    }

    /// Forces the next frame to be drawn.
    pub(crate) fn touch(&mut self) {
        self.dirty = true;
    }

    /// Shows a short hint for a moment.
    pub(crate) fn show_notice(&mut self, text: &str, now: Instant) {
        self.hint(text, now);
    }

    /// The result of [`UiRequest::Copy`].
    pub(crate) fn on_copied(&mut self, accepted: bool, now: Instant) {
        self.hint(
            if accepted {
                "copied"
            } else {
                "too long for the clipboard"
            },
            now,
        );
    }

    /// A thread of the composer has a result.
    pub(crate) fn on_composer_result(&mut self, arrived: ComposerResult, now: Instant) {
        let outcome = self.composer.on_result(arrived);
        self.on_composer_outcome(outcome, now);
    }

    /// The terminal reported its background: selects a matching theme if none was configured.
    pub(crate) fn on_background(&mut self, (red, green, blue): (u8, u8, u8), deep: bool) {
        if !deep || !self.display.colour {
            return;
        }
        let light = 299 * u32::from(red) + 587 * u32::from(green) + 114 * u32::from(blue);
        let name = if light > 127_000 { "light" } else { "dark" };
        self.auto_theme = name;
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
            self.apply_theme(theme);
            self.dirty = true;
        }
    }

    /// The person leaves: saves the draft and ends growing cells. Returns what is still to be sent.
    pub(crate) fn leave(&mut self) -> Vec<UiAsk> {
        self.composer.save_draft();
        self.composer.flush();
        self.overlay_on_exit();
        self.prompts.clear();
        self.overlay = None;
        let mut asks: Vec<UiAsk> = self
            .take_requests()
            .into_iter()
            .filter_map(|wish| match wish {
                UiRequest::Send(ask) => Some(ask),
                _ => None,
            })
            .collect();
        asks.push(UiAsk::Leave);
        asks
    }

    pub(super) fn push_cell(&mut self, cell: impl TranscriptCell + 'static) {
        self.transcript.push(cell);
        self.dirty = true;
    }

    /// Shows a hint in the status line for a moment.
    pub(super) fn hint(&mut self, text: impl Into<String>, now: Instant) {
        self.hint = Some((text.into(), now + EXIT_CONFIRM_WINDOW));
        self.dirty = true;
    }

    /// A message of the person starts a turn.
    pub(super) fn submit(&mut self, text: String, shown: &str, images: Vec<Part>) {
        self.push_user_message(shown);
        let mut all = std::mem::take(&mut self.images);
        all.extend(images);
        self.awaiting = true;
        self.command(AgentCommand::Submit(UserInput {
            text,
            images: all,
            ..UserInput::default()
        }));
    }

    /// Shows the person's message in the transcript.
    pub(super) fn push_user_message(&mut self, text: &str) {
        self.asked = true;
        let mut cell = UserCell::new(text);
        if self.display.timestamps {
            cell = cell.at((self.clock)());
        }
        self.push_cell(cell);
    }

    /// The window's title: topic, directory, whether a turn runs.
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
            self.request(UiRequest::Title(title));
        }
    }

    /// Notifies a person who is not looking. If a method was configured, always: not every terminal
    /// reports its focus.
    pub(super) fn notify(&mut self, why: &str) {
        let chosen = matches!(
            self.options.tui.notifications.as_deref(),
            Some("bell" | "osc9")
        );
        if !self.focused || chosen {
            self.request(UiRequest::Notify(format!("hermes: {why}")));
        }
    }
}

fn with_appearance(theme: Theme, manner: &DisplayOptions) -> Theme {
    let theme = if manner.colour {
        theme
    } else {
        theme.without_color()
    };
    if manner.ascii { theme.ascii() } else { theme }
}

/// The current context for rendering cells.
pub(super) fn context<'a>(
    theme: &'a Theme,
    manner: &DisplayOptions,
    status: &'a SessionStatus,
) -> CellContext<'a> {
    CellContext {
        verbose: manner.verbose,
        reasoning: manner.reasoning,
        hyperlinks: manner.hyperlinks,
        cwd: Some(&status.cwd),
        ..CellContext::new(theme)
    }
}

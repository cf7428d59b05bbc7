//! Key handling, in order of precedence.

use std::time::{Duration, Instant};

use hermes_core::event::AgentCommand;
use hermes_core::slash::{Parsed, Verb, parse};

use super::state::{App, EXIT_CONFIRM_WINDOW, UiRequest};
use crate::cells::{NoticeCell, UserCell};
use crate::composer::{ComposerOutcome, Submission, SubmissionKind};
use crate::input::TerminalInput;
use crate::keys::{KeyAction, KeyArea, KeyCode, KeyPress};
use crate::port::UiAsk;
use crate::prompt::PromptOutcome;

/// Two presses of Esc within this time count as a double press.
const DOUBLE_PRESS: Duration = Duration::from_millis(800);

impl App {
    pub(crate) fn input(&mut self, input: TerminalInput, now: Instant) {
        match input {
            TerminalInput::Key(key) => self.key(key, now),
            TerminalInput::Paste(text) => self.paste(&text, now),
            TerminalInput::Focus(focused) => self.focused = focused,
            // Handled by the event loop.
            TerminalInput::Report(_) | TerminalInput::Closed => {}
        }
    }

    fn paste(&mut self, text: &str, now: Instant) {
        self.last_key_at = Some(now);
        self.dirty = true;
        if self.overlay_paste(text, now) {
            return;
        }
        let Some(start) = self.prompts.paste(text, now) else {
            return;
        };
        for key in start.into_iter().filter(|key| key.text().is_some()) {
            self.composer_key(key, None, now);
        }
        let outcome = self.composer.paste(text);
        self.on_composer_outcome(outcome, now);
    }

    fn key(&mut self, key: KeyPress, now: Instant) {
        self.last_key_at = Some(now);
        if let Some(action) = self.works_over_overlays(key) {
            self.act(action, Some(key), now);
            return;
        }
        if self.overlay_key(key, now) {
            return;
        }
        if self.prompts.is_open() {
            self.prompt_key(key, now);
            return;
        }
        let area = if self.is_busy() {
            KeyArea::Busy
        } else {
            KeyArea::Composer
        };
        match self.keys.action(key, area) {
            Some(action) => self.act(action, Some(key), now),
            None => self.composer_key(key, None, now),
        }
    }

    fn prompt_key(&mut self, key: KeyPress, now: Instant) {
        match self.keys.action(key, KeyArea::Anywhere) {
            Some(KeyAction::Cancel) => {
                self.cancel(now);
                return;
            }
            Some(KeyAction::Transcript) => {
                self.open_transcript();
                self.dirty = true;
                return;
            }
            _ => {}
        }
        let outcome = self.prompts.key(key, now);
        self.on_prompt_outcome(outcome, now);
    }

    pub(super) fn on_prompt_outcome(&mut self, outcome: PromptOutcome, now: Instant) {
        self.dirty |= outcome != PromptOutcome::Nothing;
        match outcome {
            PromptOutcome::Nothing | PromptOutcome::Redraw => {}
            PromptOutcome::Draft(keys) => {
                for key in keys {
                    let action = self.keys.action(key, KeyArea::Composer);
                    let action = action.filter(|_| key.text().is_none());
                    self.composer_key(key, action, now);
                }
            }
            PromptOutcome::Send(decision) => {
                if let AgentCommand::Answer { request, .. } = &decision.command {
                    self.transcript.tool_approval_resolved(request, now);
                }
                self.command(decision.command);
                if !decision.summary.is_empty() {
                    self.transcript.push_before_tools(if decision.denied {
                        NoticeCell::warning(decision.summary)
                    } else {
                        NoticeCell::info(decision.summary)
                    });
                }
                self.title();
            }
        }
    }

    /// Passes the key to the composer, if it uses it.
    fn composer_key(&mut self, key: KeyPress, action: Option<KeyAction>, now: Instant) {
        let outcome = self.composer.key(key, action);
        self.on_composer_outcome(outcome, now);
    }

    pub(super) fn on_composer_outcome(&mut self, outcome: ComposerOutcome, now: Instant) {
        match outcome {
            ComposerOutcome::Unused | ComposerOutcome::Nothing => return,
            ComposerOutcome::Redraw => {}
            ComposerOutcome::Submit(submission) => self.on_enter(submission, now),
            ComposerOutcome::Edit(text) => self.request(UiRequest::Edit(text)),
            ComposerOutcome::Ask(ask) => self.ask(ask),
            ComposerOutcome::Notice(text) => self.push_cell(NoticeCell::warning(text)),
        }
        self.dirty = true;
    }

    /// Performs an action; `key` is the key that was pressed for it.
    pub(super) fn act(&mut self, action: KeyAction, key: Option<KeyPress>, now: Instant) {
        self.dirty = true;
        if action != KeyAction::Cancel && action != KeyAction::Exit {
            self.exit_armed_until = None;
        }
        if action != KeyAction::Interrupt {
            self.escape_pressed_at = None;
        }
        match action {
            KeyAction::Cancel => self.cancel(now),
            KeyAction::Interrupt => self.escape(key, now),
            KeyAction::Exit if self.composer.is_empty() => self.exit(now),
            KeyAction::Help
                if key.is_none_or(|key| key.text().is_none() || self.composer.is_empty()) =>
            {
                self.open_keys();
            }
            KeyAction::Queue => self.queue_key(key, now),
            KeyAction::Submit if self.composer.is_empty() && !self.is_busy() => self.release(now),
            KeyAction::Up | KeyAction::HistoryPrevious
                if self.composer.is_empty() && self.take_back_last() => {}
            KeyAction::Palette => self.open_palette(now),
            KeyAction::Transcript => self.open_transcript(),
            KeyAction::Sessions => self.slash("/sessions", now),
            KeyAction::Models => self.slash("/model", now),
            KeyAction::CopyLast => self.slash("/copy", now),
            KeyAction::Reasoning => {
                self.display.reasoning = !self.display.reasoning;
                let how = if self.display.reasoning {
                    "shown"
                } else {
                    "hidden"
                };
                self.hint(format!("reasoning is {how}"), now);
            }
            KeyAction::Redraw => self.request(UiRequest::Redraw),
            KeyAction::Suspend => self.request(UiRequest::Suspend),
            action => {
                if let Some(key) = key.or_else(|| self.keys.first(action)) {
                    self.composer_key(key, Some(action), now);
                }
            }
        }
    }

    /// Esc: closes what is open, stops what runs; pressed twice otherwise: edits the previous
    /// message.
    fn escape(&mut self, key: Option<KeyPress>, now: Instant) {
        if self.composer.is_open() {
            let key = key.unwrap_or(KeyPress::plain(KeyCode::Esc));
            self.composer_key(key, Some(KeyAction::Interrupt), now);
            return;
        }
        if self.is_busy() {
            self.interrupt();
            return;
        }
        if !self.running_commands.is_empty() {
            self.ask(UiAsk::Stop);
            return;
        }
        let again = self
            .escape_pressed_at
            .is_some_and(|at| now < at + DOUBLE_PRESS);
        self.escape_pressed_at = Some(now);
        if again && self.composer.is_empty() && self.asked {
            self.escape_pressed_at = None;
            self.hint = None;
            self.slash("/undo", now);
        } else if self.composer.is_empty() && self.asked {
            self.hint("Esc again: edit the previous message", now);
        }
    }

    /// Ctrl+C: clears the line, then stops the turn, then exits on the second press.
    fn cancel(&mut self, now: Instant) {
        if !self.prompts.is_open() && !self.composer.is_empty() {
            self.composer_key(KeyPress::ctrl('c'), Some(KeyAction::Cancel), now);
            return;
        }
        let stopping = self.turn.as_ref().is_some_and(|turn| turn.stopping);
        if self.is_busy() && !stopping {
            self.interrupt();
            return;
        }
        if !self.running_commands.is_empty() && self.exit_armed_until.is_none() {
            self.ask(UiAsk::Stop);
        }
        self.exit_on_second_press(KeyAction::Cancel, "", now);
    }

    /// Ctrl+D on an empty line.
    fn exit(&mut self, now: Instant) {
        if self.is_busy() {
            self.exit_on_second_press(KeyAction::Exit, "a turn runs; ", now);
        } else {
            self.request(UiRequest::Leave);
        }
    }

    fn exit_on_second_press(&mut self, action: KeyAction, why: &str, now: Instant) {
        if self.exit_armed_until.is_some_and(|until| now < until) {
            self.request(UiRequest::Leave);
            return;
        }
        self.exit_armed_until = Some(now + EXIT_CONFIRM_WINDOW);
        let key = self
            .keys
            .first(action)
            .map(KeyPress::shown)
            .unwrap_or_default();
        self.hint(format!("{why}{key} again to exit"), now);
    }

    pub(super) fn interrupt(&mut self) {
        match &mut self.turn {
            Some(turn) => turn.stopping = true,
            // The turn may never begin.
            None => self.awaiting = false,
        }
        // Its open prompts are obsolete.
        self.prompts.clear();
        self.command(AgentCommand::Interrupt);
        self.title();
    }

    /// Tab while a turn runs; an open popup takes precedence.
    fn queue_key(&mut self, key: Option<KeyPress>, now: Instant) {
        let key = key.unwrap_or(KeyPress::plain(KeyCode::Tab));
        if self.composer.is_open() {
            self.composer_key(key, None, now);
            return;
        }
        if self.composer.is_empty() {
            return;
        }
        match self.composer.submit() {
            ComposerOutcome::Submit(submission) => self.enqueue(submission, now),
            other => self.on_composer_outcome(other, now),
        }
    }

    /// Shows a command in the transcript before its output. A command that becomes a message is
    /// shown as that message.
    pub(super) fn echo(&mut self, line: &str) {
        let message = matches!(
            parse(line),
            Parsed::Command(command, rest)
                if matches!(command.verb, Verb::Queue | Verb::Steer) && !rest.is_empty()
        );
        if !message {
            self.push_cell(UserCell::command(line));
        }
    }

    /// A line that begins with a slash. Commands about the screen itself are handled here.
    pub(super) fn slash(&mut self, line: &str, now: Instant) {
        if let Parsed::Command(command, rest) = parse(line) {
            let message = || Submission {
                text: rest.to_owned(),
                shown: rest.to_owned(),
                images: Vec::new(),
                kind: SubmissionKind::Message,
            };
            match command.verb {
                Verb::Queue if !rest.is_empty() && self.is_busy() => {
                    self.enqueue(message(), now);
                    return;
                }
                Verb::Steer if !rest.is_empty() && self.is_busy() => {
                    self.steer(rest.to_owned());
                    return;
                }
                Verb::Queue | Verb::Steer if !rest.is_empty() => {
                    self.on_enter(message(), now);
                    return;
                }
                Verb::Keys => {
                    self.open_keys();
                    return;
                }
                Verb::Redraw => {
                    self.request(UiRequest::Redraw);
                    return;
                }
                Verb::Paste => {
                    self.act(KeyAction::Paste, None, now);
                    return;
                }
                _ => {}
            }
        }
        self.start_command(line.to_owned(), now);
        self.ask(UiAsk::Slash(line.to_owned()));
    }

    /// Starts a command in the program, which runs until [`crate::port::HostUpdate::Done`].
    pub(super) fn start_command(&mut self, what: String, now: Instant) {
        self.running_commands.push_back((what, now));
        self.dirty = true;
    }

    /// The result of [`UiRequest::Edit`]; an error is shown and the text kept.
    pub(crate) fn on_edited(&mut self, text: Result<String, String>) {
        match text {
            Ok(text) => self.composer.edited(&text),
            Err(why) => self.push_cell(NoticeCell::error(why, None)),
        }
        self.dirty = true;
    }

    /// Performs whatever is due by now.
    pub(crate) fn tick(&mut self, now: Instant) {
        let outcome = self.prompts.tick(now);
        self.on_prompt_outcome(outcome, now);
        if self.prompts.last_call(now) {
            let why = "hermes: an approval is about to be denied".to_owned();
            self.request(UiRequest::Notify(why));
        }
        self.overlay_due(now);
        self.keep_draft(now);
        if self.hint.as_ref().is_some_and(|(_, until)| *until <= now) {
            self.hint = None;
            self.dirty = true;
        }
        if self.exit_armed_until.is_some_and(|until| until <= now) {
            self.exit_armed_until = None;
        }
        if self.is_animated() || self.prompts.is_open() {
            self.dirty = true;
        }
    }
}

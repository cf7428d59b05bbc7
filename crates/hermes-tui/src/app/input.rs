//! What a person does: keys, in the order of who has a claim to them.

use std::time::{Duration, Instant};

use hermes_core::event::AgentCommand;
use hermes_core::slash::{Parsed, Verb, parse};

use super::state::{AGAIN, App, Wish};
use crate::cells::{NoticeCell, UserCell};
use crate::composer::{ComposerOutcome, Submission, SubmissionKind};
use crate::input::Input;
use crate::keys::{Action, Area, Code, Key};
use crate::port::{Ask, Status};
use crate::prompt::Outcome;

/// Two presses of Esc within this are one wish.
const TWICE: Duration = Duration::from_millis(800);

impl App {
    pub fn input(&mut self, input: Input, now: Instant) {
        match input {
            Input::Key(key) => self.key(key, now),
            Input::Paste(text) => self.paste(&text, now),
            Input::Focus(focused) => self.focused = focused,
            // The loop's business.
            Input::Report(_) | Input::Closed => {}
        }
    }

    fn paste(&mut self, text: &str, now: Instant) {
        self.typed = Some(now);
        self.dirty = true;
        if self.overlay_paste(text, now) || self.prompts.paste(text, now) {
            return;
        }
        let outcome = self.composer.paste(text);
        self.composed(outcome, now);
    }

    fn key(&mut self, key: Key, now: Instant) {
        self.typed = Some(now);
        if let Some(action) = self.over_everything(key) {
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
            Area::Busy
        } else {
            Area::Composer
        };
        match self.keys.action(key, area) {
            Some(action) => self.act(action, Some(key), now),
            None => self.compose(key, None, now),
        }
    }

    fn prompt_key(&mut self, key: Key, now: Instant) {
        match self.keys.action(key, Area::Anywhere) {
            Some(Action::Cancel) => {
                self.cancel(now);
                return;
            }
            Some(Action::Transcript) => {
                self.open_transcript();
                self.dirty = true;
                return;
            }
            _ => {}
        }
        let outcome = self.prompts.key(key, now);
        self.prompted(outcome, now);
    }

    pub(super) fn prompted(&mut self, outcome: Outcome, now: Instant) {
        self.dirty |= outcome != Outcome::Nothing;
        match outcome {
            Outcome::Nothing | Outcome::Redraw => {}
            Outcome::Draft(keys) => {
                for key in keys {
                    let action = self.keys.action(key, Area::Composer);
                    let action = action.filter(|_| key.text().is_none());
                    self.compose(key, action, now);
                }
            }
            Outcome::Send(decision) => {
                if let AgentCommand::Answer { request, .. } = &decision.command {
                    self.transcript.tool_answered(request, now);
                }
                self.command(decision.command);
                if !decision.told.is_empty() {
                    self.transcript.push_before_tools(if decision.denied {
                        NoticeCell::warning(decision.told)
                    } else {
                        NoticeCell::info(decision.told)
                    });
                }
                self.title();
            }
        }
    }

    /// The key is the composer's, if it wants it.
    fn compose(&mut self, key: Key, action: Option<Action>, now: Instant) {
        let outcome = self.composer.key(key, action);
        self.composed(outcome, now);
    }

    pub(super) fn composed(&mut self, outcome: ComposerOutcome, now: Instant) {
        match outcome {
            ComposerOutcome::Unused | ComposerOutcome::Nothing => return,
            ComposerOutcome::Redraw => {}
            ComposerOutcome::Submit(submission) => self.entered(submission, now),
            ComposerOutcome::Edit(text) => self.wish(Wish::Edit(text)),
            ComposerOutcome::Ask(ask) => self.ask(ask),
            ComposerOutcome::Notice(text) => self.say(NoticeCell::warning(text)),
        }
        self.dirty = true;
    }

    /// What an action does; `key` is the one that was pressed for it.
    pub(super) fn act(&mut self, action: Action, key: Option<Key>, now: Instant) {
        self.dirty = true;
        if action != Action::Cancel && action != Action::Exit {
            self.leaving = None;
        }
        if action != Action::Interrupt {
            self.escaped = None;
        }
        match action {
            Action::Cancel => self.cancel(now),
            Action::Interrupt => self.escape(key, now),
            Action::Exit if self.composer.is_empty() => self.exit(now),
            Action::Help
                if key.is_none_or(|key| key.text().is_none() || self.composer.is_empty()) =>
            {
                self.open_keys();
            }
            Action::Queue => self.queue_key(key, now),
            Action::Submit if self.composer.is_empty() && !self.is_busy() => self.release(now),
            Action::Up | Action::HistoryPrevious if self.composer.is_empty() && self.unqueue() => {}
            Action::Palette => self.open_palette(now),
            Action::Transcript => self.open_transcript(),
            Action::Sessions => self.slash("/sessions", now),
            Action::Models => self.slash("/model", now),
            Action::CopyLast => self.slash("/copy", now),
            Action::Reasoning => {
                self.manner.reasoning = !self.manner.reasoning;
                let how = if self.manner.reasoning {
                    "shown"
                } else {
                    "hidden"
                };
                self.hint(format!("reasoning is {how}"), now);
            }
            Action::Redraw => self.wish(Wish::Redraw),
            Action::Suspend => self.wish(Wish::Suspend),
            action => {
                if let Some(key) = key.or_else(|| self.keys.first(action)) {
                    self.compose(key, Some(action), now);
                }
            }
        }
    }

    /// Esc: closes what is open, stops what runs; twice with neither: the previous message again.
    fn escape(&mut self, key: Option<Key>, now: Instant) {
        if self.composer.is_open() {
            let key = key.unwrap_or(Key::plain(Code::Esc));
            self.compose(key, Some(Action::Interrupt), now);
            return;
        }
        if self.is_busy() {
            self.interrupt();
            return;
        }
        if !self.errands.is_empty() {
            self.ask(Ask::Stop);
            return;
        }
        let again = self.escaped.is_some_and(|at| now < at + TWICE);
        self.escaped = Some(now);
        if again && self.composer.is_empty() && self.asked {
            self.escaped = None;
            self.hint = None;
            self.slash("/undo", now);
        } else if self.composer.is_empty() && self.asked {
            self.hint("Esc again: edit the previous message", now);
        }
    }

    /// Ctrl+C: clears the line, then stops the turn, then leaves at the second press.
    fn cancel(&mut self, now: Instant) {
        if !self.prompts.is_open() && !self.composer.is_empty() {
            self.compose(Key::ctrl('c'), Some(Action::Cancel), now);
            return;
        }
        let stopping = self.turn.as_ref().is_some_and(|turn| turn.stopping);
        if self.is_busy() && !stopping {
            self.interrupt();
            return;
        }
        if !self.errands.is_empty() && self.leaving.is_none() {
            self.ask(Ask::Stop);
        }
        self.leave_twice(Action::Cancel, "", now);
    }

    /// Ctrl+D on an empty line.
    fn exit(&mut self, now: Instant) {
        if self.is_busy() {
            self.leave_twice(Action::Exit, "a turn runs; ", now);
        } else {
            self.wish(Wish::Leave);
        }
    }

    fn leave_twice(&mut self, action: Action, why: &str, now: Instant) {
        if self.leaving.is_some_and(|until| now < until) {
            self.wish(Wish::Leave);
            return;
        }
        self.leaving = Some(now + AGAIN);
        let key = self.keys.first(action).map(Key::shown).unwrap_or_default();
        self.hint(format!("{why}{key} again to exit"), now);
    }

    pub(super) fn interrupt(&mut self) {
        match &mut self.turn {
            Some(turn) => turn.stopping = true,
            // It may never begin.
            None => self.awaiting = false,
        }
        // What it asked nobody needs to answer.
        self.prompts.clear();
        self.command(AgentCommand::Interrupt);
        self.title();
    }

    /// Tab while a turn runs; a popup has the first claim to it.
    fn queue_key(&mut self, key: Option<Key>, now: Instant) {
        let key = key.unwrap_or(Key::plain(Code::Tab));
        if self.composer.is_open() {
            self.compose(key, None, now);
            return;
        }
        if self.composer.is_empty() {
            return;
        }
        match self.composer.submit() {
            ComposerOutcome::Submit(submission) => self.enqueue(submission, now),
            other => self.composed(other, now),
        }
    }

    /// A command stands in the transcript, before what it says. What becomes a message is shown as one.
    pub(super) fn echo(&mut self, line: &str) {
        let message = matches!(
            parse(line),
            Parsed::Command(command, rest)
                if matches!(command.verb, Verb::Queue | Verb::Steer) && !rest.is_empty()
        );
        if !message {
            self.say(UserCell::command(line));
        }
    }

    /// A line that begins with a slash. What is about this screen alone is done here.
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
                    self.entered(message(), now);
                    return;
                }
                Verb::Keys => {
                    self.open_keys();
                    return;
                }
                Verb::Redraw => {
                    self.wish(Wish::Redraw);
                    return;
                }
                Verb::Paste => {
                    self.act(Action::Paste, None, now);
                    return;
                }
                _ => {}
            }
        }
        self.errand(line.to_owned(), now);
        self.ask(Ask::Slash(line.to_owned()));
    }

    /// Something that the program does for the person, until [`crate::port::News::Done`].
    pub(super) fn errand(&mut self, what: String, now: Instant) {
        self.errands.push_back((what, now));
        self.dirty = true;
    }

    /// What the person's editor made of [`Wish::Edit`]; an error is shown, the text stays.
    pub fn edited(&mut self, text: Result<String, String>) {
        match text {
            Ok(text) => self.composer.edited(&text),
            Err(why) => self.say(NoticeCell::error(why, None)),
        }
        self.dirty = true;
    }

    /// Time has passed: whatever was due happens.
    pub fn tick(&mut self, now: Instant) {
        let outcome = self.prompts.tick(now);
        self.prompted(outcome, now);
        if self.prompts.last_call(now) {
            let why = "hermes: an approval is about to be denied".to_owned();
            self.wish(Wish::Call(why));
        }
        self.overlay_due(now);
        self.keep_draft(now);
        if self.hint.as_ref().is_some_and(|(_, until)| *until <= now) {
            self.hint = None;
            self.dirty = true;
        }
        if self.leaving.is_some_and(|until| until <= now) {
            self.leaving = None;
        }
        if self.is_moving() || self.prompts.is_open() {
            self.dirty = true;
        }
    }

    /// For tests and the title: what the program said last.
    pub fn status(&self) -> &Status {
        &self.status
    }
}

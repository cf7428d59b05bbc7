//! Incoming events: of the session, and effects of commands.

use std::time::{Duration, Instant};

use hermes_core::event::{AgentEvent, TurnExit, TurnSummary};
use hermes_core::front_end::{DisplaySetting, Effect, TranscriptEntry};

use super::overlay::AppOverlay;
use super::state::{App, LONG_TURN, RunningTurn, TurnPause, UiRequest};
use crate::cells::{AssistantCell, CommandOutputCell, FooterCell, NoticeCell, from_event};
use crate::keys::KeyAction;
use crate::panel::PanelView;
use crate::port::{HostUpdate, Panel};
use crate::prompt::{self, PromptRequest};
use crate::theme::Theme;

impl App {
    pub(crate) fn on_port_event(&mut self, update: HostUpdate, now: Instant) {
        match update {
            HostUpdate::Event(event) => {
                self.on_session_event(event.event, event.turn.is_none(), now);
            }
            HostUpdate::Status(status) => self.update_status(*status),
            HostUpdate::Done => {
                self.running_commands.pop_front();
                self.send_next_queued(now);
            }
            HostUpdate::Effect(effect) => self.apply_effect(effect, now),
            HostUpdate::Panel(panel) => self.panel(*panel, now),
            HostUpdate::ClosePanel => {
                if matches!(self.overlay, Some(AppOverlay::Panel(_))) {
                    self.close_overlay();
                }
            }
            HostUpdate::Candidates { ticket, candidates } => {
                self.dirty |= self.composer.candidates(ticket, candidates);
                return;
            }
        }
        self.dirty = true;
    }

    /// `beside`: it does not belong to a turn.
    fn on_session_event(&mut self, event: AgentEvent, beside: bool, now: Instant) {
        self.resume_from_pause(&event);
        let ends_errand = beside
            && matches!(
                event,
                AgentEvent::Compacted { .. } | AgentEvent::Notice { .. }
            );
        match event {
            AgentEvent::TurnStarted { route, .. } => self.turn_started(route, now),
            AgentEvent::TextDelta { text } => self.transcript.text(&text, now),
            AgentEvent::ReasoningDelta { text } => self.transcript.thought(&text, now),
            AgentEvent::StepDiscarded { why } => self.transcript.discard(&why),
            AgentEvent::ToolStarted {
                call_id,
                name,
                arguments,
            } => {
                let what = (name.as_str(), arguments.as_str());
                self.transcript.tool_started(&call_id, what, beside, now);
            }
            AgentEvent::ToolProgress { call_id, text } => {
                self.transcript.tool_progress(&call_id, &text);
            }
            AgentEvent::ToolFinished {
                call_id,
                name,
                error,
                preview,
                millis,
            } => {
                let elapsed = Duration::from_millis(millis);
                self.transcript
                    .tool_finished(&call_id, &name, error, &preview, elapsed);
            }
            AgentEvent::ApprovalNeeded { request } => {
                let why = format!("approval needed for {}", request.tool);
                self.transcript.tool_awaits_approval(&request, now);
                self.open_prompt(PromptRequest::Approval(request), &why, now);
            }
            AgentEvent::QuestionAsked { question } => {
                let why = format!("{} asks", question.from);
                self.open_prompt(PromptRequest::Question(question), &why, now);
            }
            AgentEvent::QuestionClosed { question } => {
                self.withdraw_prompt(&question, now);
            }
            AgentEvent::UsageUpdated {
                cost,
                context_used,
                context_length,
                ..
            } => {
                self.status.context = Some((context_used, context_length));
                self.turn_cost = cost.usd();
            }
            AgentEvent::Steered { text } => {
                self.transcript.end_step(now);
                self.steered(&text);
            }
            AgentEvent::TitleChanged { title } => {
                self.status.title = Some(title);
                self.title();
            }
            AgentEvent::TurnFinished { summary } => self.turn_finished(&summary, now),
            AgentEvent::QueueChanged { .. } => {}
            AgentEvent::Closed => {
                if self.turn.take().is_some() {
                    self.transcript.end(now);
                }
                self.awaiting = false;
            }
            other => self.notice_event(&other, beside, now),
        }
        if ends_errand && self.turn.as_ref().is_some_and(|turn| turn.errand) {
            self.turn = None;
            self.title();
            self.send_next_queued(now);
        }
    }

    /// Events that are shown as one line.
    fn notice_event(&mut self, event: &AgentEvent, beside: bool, now: Instant) {
        match event {
            AgentEvent::Retrying {
                message, delay_ms, ..
            } => {
                let pause = TurnPause::Retrying {
                    why: message.clone(),
                    until: now + Duration::from_millis(*delay_ms),
                };
                self.pause(pause);
            }
            AgentEvent::CompactionStarted { .. } => {
                // Outside a turn, only its result shows that it ended.
                self.turn.get_or_insert(RunningTurn {
                    since: now,
                    stopping: false,
                    pause: None,
                    errand: true,
                });
                self.pause(TurnPause::Compressing);
                self.title();
            }
            AgentEvent::RouteChanged { to, .. } => {
                self.status.model.clone_from(&to.model);
                self.status.provider.clone_from(&to.provider);
                self.route = Some(to.clone());
                if beside {
                    // Not a failure: the person chose it.
                    let text = format!("{} ({}) answers from now on", to.model, to.provider);
                    self.transcript.push(NoticeCell::info(text));
                    return;
                }
            }
            _ => {}
        }
        for cell in from_event(event) {
            self.transcript.push_boxed(cell);
        }
    }

    fn pause(&mut self, pause: TurnPause) {
        if let Some(turn) = &mut self.turn {
            turn.pause = Some(pause);
        }
    }

    /// The next event ends a pause.
    fn resume_from_pause(&mut self, event: &AgentEvent) {
        let goes_on = matches!(
            event,
            AgentEvent::TextDelta { .. }
                | AgentEvent::ReasoningDelta { .. }
                | AgentEvent::ToolStarted { .. }
                | AgentEvent::Compacted { .. }
                | AgentEvent::UsageUpdated { .. }
        );
        if let Some(turn) = self.turn.as_mut().filter(|_| goes_on) {
            turn.pause = None;
        }
    }

    fn turn_started(&mut self, route: hermes_core::model::Route, now: Instant) {
        self.awaiting = false;
        self.asked = true;
        self.adopt_late_steers();
        self.transcript.begin();
        self.status.model.clone_from(&route.model);
        self.status.provider.clone_from(&route.provider);
        self.route = Some(route);
        self.turn_cost = None;
        self.turn = Some(RunningTurn {
            since: now,
            stopping: false,
            pause: None,
            errand: false,
        });
        self.title();
    }

    fn turn_finished(&mut self, summary: &TurnSummary, now: Instant) {
        let shown = self.transcript.end(now);
        let worth = !matches!(
            summary.exit,
            TurnExit::Failed { .. } | TurnExit::Interrupted | TurnExit::StoreFailed { .. }
        );
        if !shown && worth && !summary.text.trim().is_empty() {
            self.transcript
                .push(AssistantCell::new(summary.text.trim_end()));
        }
        self.explain(summary);
        self.prompts.clear();
        let elapsed = self
            .turn
            .take()
            .map(|turn| now.saturating_duration_since(turn.since));
        self.turn_cost = summary.cost.usd();
        self.awaiting = false;
        if elapsed.is_some_and(|elapsed| elapsed >= LONG_TURN) {
            self.notify(match summary.exit {
                TurnExit::Answered => "the turn has ended",
                _ => "the turn has ended without an answer",
            });
        }
        self.after_turn(&summary.exit, now);
        self.title();
    }

    /// One card: why the turn ended and how to fix it; then its statistics.
    fn explain(&mut self, summary: &TurnSummary) {
        // A person who stopped the turn needs no explanation.
        let stopped = summary.exit == TurnExit::Interrupted;
        let why = (self.options.explain)(&summary.exit, self.route.as_ref());
        let Some(why) = why.filter(|_| !stopped) else {
            let event = AgentEvent::TurnFinished {
                summary: summary.clone(),
            };
            for cell in from_event(&event) {
                self.transcript.push_boxed(cell);
            }
            return;
        };
        self.transcript.push(NoticeCell::error(why.cause, why.fix));
        self.transcript.push(FooterCell::new(summary));
    }

    fn withdraw_prompt(&mut self, question: &str, now: Instant) {
        if let Some(outcome) = self.prompts.withdraw(question) {
            self.transcript
                .push_before_tools(NoticeCell::warning(outcome));
        }
        self.transcript.tool_approval_resolved(question, now);
        self.title();
    }

    fn open_prompt(&mut self, asked: PromptRequest, why: &str, now: Instant) {
        let recent = self
            .last_key_at
            .is_some_and(|at| now < at + prompt::guard::QUIET_TIME);
        self.prompts
            .ask(asked, recent && !self.composer.is_empty(), now);
        self.request(UiRequest::TakeTypeAhead);
        if self.prompts.is_limited() {
            // It will be denied automatically, so the person is notified in any case.
            self.request(UiRequest::Notify(format!("hermes: {why}")));
        } else {
            self.notify(why);
        }
        self.title();
    }

    fn apply_effect(&mut self, effect: Effect, now: Instant) {
        match effect {
            Effect::Say(said) => self.transcript.push(CommandOutputCell::new(said)),
            Effect::Page(page) => {
                if let Some(AppOverlay::Panel(view)) = self.overlay.replace(AppOverlay::page(page))
                {
                    self.covered_panel = Some(view);
                }
            }
            Effect::Draft(text) => {
                // A message that could not be sent is restored; queued messages stay.
                if std::mem::take(&mut self.awaiting) {
                    self.queue.held = !self.queue.waiting.is_empty();
                }
                self.composer.set_text(&text);
            }
            Effect::Asked(text) => {
                self.push_user_message(&text);
                self.awaiting = true;
            }
            Effect::Opened { banner, entries } => {
                self.on_conversation_opened(&banner, entries, now);
            }
            Effect::Show(show) => self.show(show),
            Effect::Edit(text) => {
                if !text.is_empty() {
                    self.composer.set_text(&text);
                }
                self.act(KeyAction::Editor, None, now);
            }
            Effect::Redraw => self.request(UiRequest::Redraw),
            Effect::Clear => self.request(UiRequest::Clear),
            Effect::Copy(text) => self.request(UiRequest::Copy(text)),
            Effect::Leave => self.request(UiRequest::Leave),
        }
    }

    fn panel(&mut self, panel: Panel, now: Instant) {
        match &mut self.overlay {
            Some(AppOverlay::Panel(view)) if view.id() == panel.id => view.replace(panel, now),
            _ if panel.renews => match &mut self.covered_panel {
                Some(view) if view.id() == panel.id => view.replace(panel, now),
                _ => {}
            },
            _ => {
                self.covered_panel = None;
                self.overlay = Some(AppOverlay::Panel(Box::new(PanelView::new(panel, now))));
            }
        }
    }

    /// A conversation was opened: running and queued work belonged to the previous one.
    fn on_conversation_opened(
        &mut self,
        banner: &str,
        entries: Vec<TranscriptEntry>,
        now: Instant,
    ) {
        self.transcript.end(now);
        self.turn = None;
        self.awaiting = false;
        self.turn_cost = None;
        self.prompts.clear();
        self.queue.steers.clear();
        self.queue.held = !self.queue.waiting.is_empty();
        self.asked = false;
        // The program does not know about themes.
        let banner = banner.replace('·', self.theme.glyphs().dot);
        self.open(banner, entries);
        self.title();
    }

    fn show(&mut self, show: DisplaySetting) {
        match show {
            DisplaySetting::Theme(name) => match Theme::named(match name.as_str() {
                "auto" => self.auto_theme,
                name => name,
            }) {
                Some(theme) => {
                    self.options.tui.theme = Some(name.as_str().into());
                    self.apply_theme(theme);
                    self.request(UiRequest::Redraw);
                }
                None => self.transcript.push(NoticeCell::warning(format!(
                    "there is no theme {name:?}; /theme shows all"
                ))),
            },
            DisplaySetting::Reasoning(on) => self.display.reasoning = on,
            DisplaySetting::Verbose(on) => self.display.verbose = on,
            DisplaySetting::Timestamps(on) => self.display.timestamps = on,
            DisplaySetting::StatusLine(on) => self.display.status_line = on,
            DisplaySetting::Busy(busy) => self.busy = busy,
        }
    }
}

//! What happens: events of the session, effects of commands.

use std::time::{Duration, Instant};

use hermes_core::event::{AgentEvent, TurnExit, TurnSummary};
use hermes_core::front_end::{DisplaySetting, Effect, TranscriptEntry};

use super::overlay::Overlay;
use super::state::{App, LONG, Pause, Turn, Wish};
use crate::cells::{AssistantCell, FooterCell, NoticeCell, SaidCell, from_event};
use crate::keys::Action;
use crate::panel::PanelView;
use crate::port::{News, Panel};
use crate::prompt::{self, Asked};
use crate::theme::Theme;

impl App {
    pub fn news(&mut self, news: News, now: Instant) {
        match news {
            News::Event(event) => self.event(event.event, event.turn.is_none(), now),
            News::Status(status) => self.known(*status),
            News::Done => {
                self.errands.pop_front();
                self.pump(now);
            }
            News::Effect(effect) => self.effect(effect, now),
            News::Panel(panel) => self.panel(*panel, now),
            News::ClosePanel => {
                if matches!(self.overlay, Some(Overlay::Panel(_))) {
                    self.close_overlay();
                }
            }
            News::Candidates { ticket, candidates } => {
                self.dirty |= self.composer.candidates(ticket, candidates);
                return;
            }
        }
        self.dirty = true;
    }

    /// `beside`: it does not belong to a turn.
    fn event(&mut self, event: AgentEvent, beside: bool, now: Instant) {
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
                let took = Duration::from_millis(millis);
                self.transcript
                    .tool_finished(&call_id, &name, error, &preview, took);
            }
            AgentEvent::ApprovalNeeded { request } => {
                let why = format!("approval needed for {}", request.tool);
                self.transcript.tool_asks(&request, now);
                self.asks(Asked::Approval(request), &why, now);
            }
            AgentEvent::QuestionAsked { question } => {
                let why = format!("{} asks", question.from);
                self.asks(Asked::Question(question), &why, now);
            }
            AgentEvent::QuestionClosed { question } => {
                self.no_longer_asked(&question, now);
            }
            AgentEvent::UsageUpdated {
                cost,
                context_used,
                context_length,
                ..
            } => {
                self.status.context = Some((context_used, context_length));
                self.spent = cost.usd();
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
            other => self.remark(&other, beside, now),
        }
        if ends_errand && self.turn.as_ref().is_some_and(|turn| turn.errand) {
            self.turn = None;
            self.title();
            self.pump(now);
        }
    }

    /// Events that are a line by themselves.
    fn remark(&mut self, event: &AgentEvent, beside: bool, now: Instant) {
        match event {
            AgentEvent::Retrying {
                message, delay_ms, ..
            } => {
                let pause = Pause::Retrying {
                    why: message.clone(),
                    until: now + Duration::from_millis(*delay_ms),
                };
                self.pause(pause);
            }
            AgentEvent::CompactionStarted { .. } => {
                // Outside a turn nothing tells of the end but its result.
                self.turn.get_or_insert(Turn {
                    since: now,
                    stopping: false,
                    pause: None,
                    errand: true,
                });
                self.pause(Pause::Compressing);
                self.title();
            }
            AgentEvent::RouteChanged { to, .. } => {
                self.status.model.clone_from(&to.model);
                self.status.provider.clone_from(&to.provider);
                self.route = Some(to.clone());
                if beside {
                    // Nothing failed: the person chose it.
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

    fn pause(&mut self, pause: Pause) {
        if let Some(turn) = &mut self.turn {
            turn.pause = Some(pause);
        }
    }

    /// What comes after a pause ends it.
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
        self.late_steers_begin();
        self.transcript.begin();
        self.status.model.clone_from(&route.model);
        self.status.provider.clone_from(&route.provider);
        self.route = Some(route);
        self.spent = None;
        self.turn = Some(Turn {
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
        let took = self
            .turn
            .take()
            .map(|turn| now.saturating_duration_since(turn.since));
        self.spent = summary.cost.usd();
        self.awaiting = false;
        if took.is_some_and(|took| took >= LONG) {
            self.call(match summary.exit {
                TurnExit::Answered => "the turn has ended",
                _ => "the turn has ended without an answer",
            });
        }
        self.after_turn(&summary.exit, now);
        self.title();
    }

    /// One card: why the turn ended, and what helps; then what it took.
    fn explain(&mut self, summary: &TurnSummary) {
        // Whoever stopped it needs no card.
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

    fn no_longer_asked(&mut self, question: &str, now: Instant) {
        if let Some(told) = self.prompts.withdraw(question) {
            self.transcript.push_before_tools(NoticeCell::warning(told));
        }
        self.transcript.tool_answered(question, now);
        self.title();
    }

    fn asks(&mut self, asked: Asked, why: &str, now: Instant) {
        let recent = self.typed.is_some_and(|at| now < at + prompt::guard::QUIET);
        self.prompts
            .ask(asked, recent && !self.composer.is_empty(), now);
        self.wish(Wish::Drain);
        if self.prompts.is_limited() {
            // It denies itself: whoever is near is called in any case.
            self.wish(Wish::Call(format!("hermes: {why}")));
        } else {
            self.call(why);
        }
        self.title();
    }

    fn effect(&mut self, effect: Effect, now: Instant) {
        match effect {
            Effect::Say(said) => self.transcript.push(SaidCell::new(said)),
            Effect::Page(page) => {
                if let Some(Overlay::Panel(view)) = self.overlay.replace(Overlay::page(page)) {
                    self.beneath = Some(view);
                }
            }
            Effect::Draft(text) => {
                // A message that could not be sent comes back; what waits behind it stays.
                if std::mem::take(&mut self.awaiting) {
                    self.queue.held = !self.queue.waiting.is_empty();
                }
                self.composer.set_text(&text);
            }
            Effect::Asked(text) => {
                self.asked(&text);
                self.awaiting = true;
            }
            Effect::Opened { banner, entries } => self.opened(&banner, entries, now),
            Effect::Show(show) => self.show(show),
            Effect::Edit(text) => {
                if !text.is_empty() {
                    self.composer.set_text(&text);
                }
                self.act(Action::Editor, None, now);
            }
            Effect::Redraw => self.wish(Wish::Redraw),
            Effect::Clear => self.wish(Wish::Clear),
            Effect::Copy(text) => self.wish(Wish::Copy(text)),
            Effect::Leave => self.wish(Wish::Leave),
        }
    }

    fn panel(&mut self, panel: Panel, now: Instant) {
        match &mut self.overlay {
            Some(Overlay::Panel(view)) if view.id() == panel.id => view.replace(panel, now),
            _ if panel.renews => match &mut self.beneath {
                Some(view) if view.id() == panel.id => view.replace(panel, now),
                _ => {}
            },
            _ => {
                self.beneath = None;
                self.overlay = Some(Overlay::Panel(Box::new(PanelView::new(panel, now))));
            }
        }
    }

    /// Another conversation: what runs and waits belonged to the one before.
    fn opened(&mut self, banner: &str, entries: Vec<TranscriptEntry>, now: Instant) {
        self.transcript.end(now);
        self.turn = None;
        self.awaiting = false;
        self.spent = None;
        self.prompts.clear();
        self.queue.steers.clear();
        self.queue.held = !self.queue.waiting.is_empty();
        self.asked = false;
        // The program knows no theme.
        let banner = banner.replace('·', self.theme.glyphs().dot);
        self.open(banner, entries);
        self.title();
    }

    fn show(&mut self, show: DisplaySetting) {
        match show {
            DisplaySetting::Theme(name) => match Theme::named(match name.as_str() {
                "auto" => self.fitting,
                name => name,
            }) {
                Some(theme) => {
                    self.options.tui.theme = Some(name.as_str().into());
                    self.dress(theme);
                    self.wish(Wish::Redraw);
                }
                None => self.transcript.push(NoticeCell::warning(format!(
                    "there is no theme {name:?}; /theme shows all"
                ))),
            },
            DisplaySetting::Reasoning(on) => self.manner.reasoning = on,
            DisplaySetting::Verbose(on) => self.manner.verbose = on,
            DisplaySetting::Timestamps(on) => self.manner.timestamps = on,
            DisplaySetting::StatusLine(on) => self.manner.status_line = on,
            DisplaySetting::Busy(busy) => self.busy = busy,
        }
    }
}

//! A turn: from the person's message to the final reply.
//!
//! `Prepare → (Compact) → Sample → Judge → RunTools → Prepare …`, with `Recover` after a failed
//! call. A step that cannot continue returns the typed exit as its error, so every way out is a
//! [`TurnExit`]. What the store must know is committed before the next side effect: the person's
//! message before the first call, an answer's calls before they run, each result before the next
//! call.

mod answer;
mod batch;
mod call;
mod compaction;
mod conversation;
mod exit;
mod judge;
mod messages;
pub(crate) mod outside;
mod recovery;
mod references;
mod result;
mod sample;
mod unfinished;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use hermes_core::approval::Approver;
use hermes_core::ask::Asker;
use hermes_core::event::{AgentEvent, NoticeLevel, TurnExit, TurnSummary, UserInput};
use hermes_core::ids::TurnId;
use hermes_core::message::{Content, Message, Part, UserMessage};
use hermes_core::model::{ModelRequest, ToolChoice};
use hermes_core::store::{SessionUpdate, UsageEntry};
use hermes_core::tool::{Registry, Tool, ToolSpec};
use hermes_core::usage::{Cost, Usage};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

pub use exit::{cause, explain};
pub use outside::read_before;

pub(crate) use compaction::TurnCompaction;
pub(crate) use conversation::{RouteFixes, TurnConversation};
pub(crate) use result::complaint;

use crate::budget::Budget;
use crate::compress::{CompactionCause, CompactionDecision};
use crate::events::EventSink;
use crate::guard::LoopGuard;
use crate::lean;
use crate::log::{LogItem, Origin, Synthetic};
use crate::plan::PreparedCall;
use crate::project::project;
use crate::session::SessionDeps;
use crate::session::steer::SteeringText;
use crate::tokens;
use crate::tool_lists;
use judge::RuleCounts;
use recovery::TurnFailures;
use sample::{SampleResult, sample};
use unfinished::PartialAnswerWriter;

/// What a turn shares with its session.
#[derive(Clone)]
pub(crate) struct TurnScope {
    pub id: TurnId,
    pub deps: Arc<SessionDeps>,
    pub events: EventSink,
    pub mailbox: SteeringText,
    /// What happened in the background.
    pub informed: SteeringText,
    pub approver: Arc<dyn Approver>,
    pub asker: Arc<dyn Asker>,
    pub cancel: CancellationToken,
    pub spending: outside::ToolSpending,
}

/// Either the turn continues, or it ends.
type TurnFlow<T> = Result<T, TurnExit>;

enum TurnState {
    /// May the next call go out, and does it fit?
    Prepare,
    Compact(CompactionCause),
    Sample,
    Recover(Box<SampleResult>),
    Judge(Box<SampleResult>),
    RunTools(Vec<PreparedCall>),
}

pub(crate) struct Turn<'a> {
    scope: TurnScope,
    conv: &'a mut TurnConversation,
    registry: Registry,
    specs: Arc<[ToolSpec]>,
    budget: Budget,
    guard: LoopGuard,
    counts: RuleCounts,
    failures: TurnFailures,
    began: Instant,
    /// Raised when answers are cut, lowered when a provider says so.
    max_tokens: Option<u32>,
    /// The part of the final answer that earlier, cut calls wrote.
    parts: String,
    /// Text of the step before, if it ran nothing but housekeeping tools.
    earlier: Option<String>,
    after_tools: bool,
    /// The one call without tools, after the budget is gone.
    closing: bool,
    tool_calls: u32,
    /// Writes that failed and were not done again: file or tool, and the error.
    failed_writes: BTreeMap<String, String>,
    /// What the last call cost, until that is stored.
    owed: Option<UsageEntry>,
    /// Compactions since the last call.
    passes: u32,
    /// Raw estimate of the tools array.
    tools_tokens: u64,
    warned_blind_cap: bool,
    warned_blocked: bool,
    /// A part of an answer may be stored that nothing has taken the place of.
    unfinished: bool,
    /// What the provider said when it found the request too large.
    too_large: Option<String>,
}

impl<'a> Turn<'a> {
    pub(crate) fn new(
        scope: TurnScope,
        conv: &'a mut TurnConversation,
        registry: Registry,
    ) -> Self {
        let settings = &scope.deps.settings;
        let mut turn = Self {
            budget: Budget::new(settings),
            guard: LoopGuard::new(settings.guard.clone()),
            max_tokens: settings.max_tokens,
            counts: RuleCounts::default(),
            failures: TurnFailures::default(),
            began: Instant::now(),
            parts: String::new(),
            earlier: None,
            after_tools: false,
            closing: false,
            tool_calls: 0,
            failed_writes: BTreeMap::new(),
            warned_blind_cap: false,
            warned_blocked: false,
            unfinished: false,
            too_large: None,
            owed: None,
            passes: 0,
            tools_tokens: 0,
            specs: Arc::new([]),
            registry,
            conv,
            scope,
        };
        turn.take_specs();
        turn
    }

    /// Runs to the end. Everything that happens is in the events; the summary comes back too.
    pub(crate) async fn run(mut self, input: UserInput) -> TurnSummary {
        self.emit(AgentEvent::TurnStarted {
            session: self.conv.id.clone(),
            route: self.conv.client.route().clone(),
        })
        .await;
        self.conv.compactor.begin_turn();
        let mut input = input;
        self.attach_references(&mut input).await;
        let ended = match self.open(input).await {
            Ok(()) => self.cycle().await,
            Err(exit) => Err(exit),
        };
        let (exit, text) = match ended {
            Ok((exit, text)) => (exit, text),
            Err(exit) => (exit, std::mem::take(&mut self.parts)),
        };
        self.finish(exit, text).await
    }

    /// The machine itself: ends with an exit and the final text.
    async fn cycle(&mut self) -> TurnFlow<(TurnExit, String)> {
        let mut state = TurnState::Prepare;
        loop {
            if self.scope.cancel.is_cancelled() {
                return Err(TurnExit::Interrupted);
            }
            // An answer is stored together with what it cost.
            if !matches!(state, TurnState::Judge(_)) {
                self.settle().await?;
            }
            state = match state {
                TurnState::Prepare => self.prepare().await?,
                TurnState::Compact(cause) => self.compact_state(cause).await?,
                TurnState::Sample => self.sample().await?,
                TurnState::Recover(failed) => self.recover(*failed).await?,
                TurnState::RunTools(calls) => self.run_tools(calls).await?,
                TurnState::Judge(sampled) => match self.judge(*sampled).await? {
                    answer::AfterAnswer::State(state) => state,
                    answer::AfterAnswer::Done(exit, text) => return Ok((exit, text)),
                },
            };
        }
    }

    /// Commits the person's message.
    async fn open(&mut self, input: UserInput) -> TurnFlow<()> {
        let wire_text = self.wire_text(&input);
        let content = if input.images.is_empty() {
            Content::Text(input.text)
        } else {
            let mut parts = vec![Part::text(input.text)];
            parts.extend(input.images);
            Content::Parts(parts)
        };
        let message = Message::User(UserMessage { content, wire_text });
        let item = LogItem::new(message, Origin::Person, self.now());
        self.commit(item, input.platform_message_id).await?;
        // Work in the background spent something since the last turn.
        self.count_spending().await
    }

    /// What goes over the wire with the message but is not part of it.
    fn wire_text(&mut self, input: &UserInput) -> Option<String> {
        let extras: Vec<String> = [input.context.clone(), self.route_note(), self.day_note()]
            .into_iter()
            .flatten()
            .collect();
        if extras.is_empty() {
            return None;
        }
        let mut text = input.text.clone();
        for extra in extras {
            text.push_str("\n\n");
            text.push_str(&extra);
        }
        Some(text)
    }

    /// Tells the model who it is, when that is not what it was told.
    fn route_note(&mut self) -> Option<String> {
        let route = self.conv.client.route();
        let now = (route.model.clone(), route.provider.clone());
        match self.conv.told_route.replace(now.clone()) {
            Some(stated) if stated == now => None,
            Some(_) => Some(format!(
                "[Note: from here on you run as {} (provider {}).]",
                now.0, now.1
            )),
            None => crate::prompt::identity_note(&self.conv.system, &now.0, &now.1),
        }
    }

    /// Tells the model that the day changed.
    fn day_note(&mut self) -> Option<String> {
        let today = self.scope.deps.prompt.today()?;
        let stated = self.conv.told_day.replace(today);
        let stated = stated.or_else(|| crate::prompt::told_date(&self.conv.system))?;
        crate::prompt::date_note(stated, today)
    }

    async fn prepare(&mut self) -> TurnFlow<TurnState> {
        self.take_new_tools();
        if let Some(usd) = self.budget.over_cap() {
            return Err(TurnExit::CostCapReached { usd });
        }
        self.deliver_steer().await?;
        let raw = self.raw_tokens();
        self.check_smallest(raw)?;
        match self.conv.compactor.check(raw) {
            CompactionDecision::Fits | CompactionDecision::Blocked { why: None } => {}
            CompactionDecision::Compact { .. } => {
                return Ok(TurnState::Compact(CompactionCause::Automatic));
            }
            CompactionDecision::Blocked { why: Some(why) } => {
                self.notice(NoticeLevel::Warning, why).await;
            }
        }
        self.take_call()
    }

    /// Ends the turn when even the newest request alone cannot be sent; compaction would not help.
    fn check_smallest(&self, raw: u64) -> TurnFlow<()> {
        let context = self.conv.client.info().context_length;
        if raw <= u64::from(context) {
            return Ok(());
        }
        let newest = self
            .conv
            .log
            .items()
            .iter()
            .rev()
            .find_map(|item| match *item.message {
                Message::User(_) => Some(tokens::message(&item.message)),
                _ => None,
            });
        let system = tokens::text(&self.conv.system);
        lean::fits(context, system, self.tools_tokens, newest.unwrap_or(0)).map_err(|small| {
            TurnExit::ContextFull {
                message: small.to_string(),
            }
        })
    }

    /// Counts the call that comes; when none is left, the closing one comes instead.
    fn take_call(&mut self) -> TurnFlow<TurnState> {
        if !self.budget.take_call() {
            if self.closing {
                return Err(self.budget_gone());
            }
            self.closing = true;
            self.budget.extra_call();
            self.push_ephemeral(Message::user(messages::BUDGET_GONE), Synthetic::BudgetGone);
        }
        Ok(TurnState::Sample)
    }

    fn budget_gone(&self) -> TurnExit {
        TurnExit::BudgetExhausted {
            calls: self.scope.deps.settings.max_turns,
        }
    }

    /// A steering text that no tool result could carry becomes a row of its own.
    async fn deliver_steer(&mut self) -> TurnFlow<()> {
        let Some(text) = self.scope.mailbox.take() else {
            return Ok(());
        };
        let item = LogItem::new(Message::user(text.as_str()), Origin::Person, self.now());
        self.commit(item, None).await?;
        self.emit(AgentEvent::Steered { text }).await;
        Ok(())
    }

    async fn sample(&mut self) -> TurnFlow<TurnState> {
        self.passes = 0;
        let raw = self.raw_tokens();
        let request = self.request();
        let goes_on = !self.parts.is_empty();
        let mut keeper = PartialAnswerWriter::new(&self.scope.deps, &self.conv.id);
        let sampled = sample(
            &self.conv.client,
            request,
            (goes_on, &mut keeper),
            &self.scope.cancel,
            &self.scope.events,
        )
        .await;
        self.unfinished |= keeper.has_kept();
        self.record_usage(raw, sampled.usage, sampled.error.is_some())
            .await?;
        if self.scope.cancel.is_cancelled() {
            return self.keep_interrupted(sampled).await;
        }
        if sampled.error.is_some() {
            return Ok(TurnState::Recover(Box::new(sampled)));
        }
        self.failures.clear();
        Ok(TurnState::Judge(Box::new(sampled)))
    }

    fn request(&self) -> ModelRequest {
        let settings = &self.scope.deps.settings;
        ModelRequest {
            session: self.conv.id.clone(),
            system: Arc::clone(&self.conv.system),
            messages: project(self.conv.log.items(), &self.conv.caps()),
            tools: Arc::clone(&self.specs),
            tool_choice: if self.closing {
                ToolChoice::None
            } else {
                ToolChoice::Auto
            },
            max_tokens: self.max_tokens,
            temperature: settings.temperature,
            reasoning: settings.reasoning,
        }
    }

    async fn record_usage(&mut self, raw: u64, usage: Option<Usage>, failed: bool) -> TurnFlow<()> {
        let info = self.conv.client.info();
        let (local, prices) = (info.local, info.prices);
        let Some(usage) = usage else {
            if !failed {
                let cost = if local { Cost::Included } else { Cost::Unknown };
                self.budget.spend(&Usage::default(), cost);
                self.warn_of_blind_cap().await;
            }
            return Ok(());
        };
        let cost = Cost::of(&usage, prices.as_ref(), local);
        self.budget.spend(&usage, cost);
        let entry = UsageEntry {
            route: self.conv.client.route().clone(),
            task: String::new(),
            usage,
            cost,
            at: self.now(),
        };
        self.settle().await?;
        self.owed = Some(entry);
        if usage.prompt_tokens() > 0 {
            self.conv.context_used = usage.prompt_tokens();
            if let Some(note) = self.conv.compactor.observe(raw, usage.prompt_tokens()) {
                self.notice(NoticeLevel::Warning, note).await;
            }
        }
        self.report_usage().await;
        self.warn_of_blind_cap().await;
        Ok(())
    }

    /// Stores what a call cost, unless its answer took that along.
    async fn settle(&mut self) -> TurnFlow<()> {
        match self.owed.take() {
            Some(entry) => self.update(SessionUpdate::Usage(entry)).await,
            None => Ok(()),
        }
    }

    async fn report_usage(&self) {
        self.emit(AgentEvent::UsageUpdated {
            usage: self.budget.usage(),
            cost: self.budget.cost(),
            context_used: self.conv.context_used,
            context_length: self.conv.client.info().context_length,
        })
        .await;
    }

    async fn warn_of_blind_cap(&mut self) {
        if self.budget.cap_is_blind() && !std::mem::replace(&mut self.warned_blind_cap, true) {
            let text = "agent.max_cost_usd is set, but what this model costs is not known: the cap cannot work. Set the model's prices in the config.";
            self.notice(NoticeLevel::Warning, text).await;
        }
    }

    /// Raw estimate of the next request.
    fn raw_tokens(&self) -> u64 {
        self.overhead() + self.conv.log.tokens()
    }

    fn overhead(&self) -> u64 {
        tokens::text(&self.conv.system) + self.tools_tokens
    }

    /// Ends the turn: closes the log, reports, and gives the summary.
    async fn finish(mut self, mut exit: TurnExit, text: String) -> TurnSummary {
        if let Err(store_failed) = self.close_tail(&exit).await {
            exit = store_failed;
        }
        if let Err(store_failed) = self.settle().await {
            exit = store_failed;
        }
        if self.unfinished {
            // What was thrown away is not to come back.
            let at = self.now();
            let none = self.update(SessionUpdate::Unfinished { text: None, at });
            if let Err(exit) = none.await {
                tracing::warn!(?exit, "an unfinished answer was not taken away");
            }
        }
        if !self.failed_writes.is_empty() {
            let list: Vec<String> = self
                .failed_writes
                .iter()
                .map(|(what, why)| format!("{what} ({why})"))
                .collect();
            let text = format!("Not written: {}.", list.join("; "));
            self.notice(NoticeLevel::Warning, text).await;
        }
        let summary = TurnSummary {
            exit,
            text,
            usage: self.budget.usage(),
            cost: self.budget.cost(),
            calls: self.budget.calls(),
            tool_calls: self.tool_calls,
            millis: millis(self.began.elapsed()),
            pending_steer: self.scope.mailbox.take(),
        };
        tracing::info!(exit = ?summary.exit, calls = summary.calls, "turn ended");
        self.emit(AgentEvent::TurnFinished {
            summary: summary.clone(),
        })
        .await;
        summary
    }

    /// A tool result at the end of the log would make the next turn continue the old request.
    async fn close_tail(&mut self, exit: &TurnExit) -> TurnFlow<()> {
        let tool_tail = self
            .conv
            .log
            .last()
            .is_some_and(|item| matches!(*item.message, Message::Tool(_)));
        if !tool_tail || matches!(exit, TurnExit::StoreFailed { .. }) {
            return Ok(());
        }
        let text = match (exit, cause(exit)) {
            (TurnExit::Interrupted, _) | (_, None) => messages::STOPPED.to_owned(),
            (_, Some(why)) => messages::ended(&why),
        };
        let origin = Origin::Synthetic(Synthetic::Closing);
        let item = LogItem::new(Message::assistant(text), origin, self.now());
        self.commit(item, None).await
    }

    async fn commit(&mut self, item: LogItem, platform_message_id: Option<String>) -> TurnFlow<()> {
        let store = Arc::clone(&self.scope.deps.store);
        let owed = self.owed.take();
        self.conv
            .commit(&*store, item, platform_message_id, owed)
            .await
            .map(|_| ())
            .map_err(|error| exit::of_store(&error))
    }

    async fn update(&self, update: SessionUpdate) -> TurnFlow<()> {
        self.scope
            .deps
            .store
            .update(&self.conv.id, update)
            .await
            .map_err(|error| exit::of_store(&error))
    }

    fn push_ephemeral(&mut self, message: Message, why: Synthetic) {
        let item = LogItem::ephemeral(message, why, self.now());
        self.conv.log.push(item);
    }

    /// Tools may come and go during a turn: a server became ready. The next model call gets the new list; as long
    /// as nothing changed, the request stays the same, byte for byte.
    fn take_new_tools(&mut self) {
        if self.closing {
            return;
        }
        let now = self.scope.deps.tools.registry();
        let same = |(old, new): (&Arc<dyn Tool>, &Arc<dyn Tool>)| Arc::ptr_eq(old, new);
        let count = self.registry.iter().count();
        if count != now.iter().count() || !self.registry.iter().zip(now.iter()).all(same) {
            self.registry = now;
            self.take_specs();
        }
    }

    fn take_specs(&mut self) {
        let info = self.conv.client.info();
        let specs = if info.tools {
            self.scope.deps.tools.specs(&self.registry, info)
        } else {
            Arc::new([])
        };
        let specs = if self.conv.fixes.simple_schemas {
            recovery::simple_schemas(&specs)
        } else {
            specs
        };
        let list = tool_lists::shared(specs);
        self.specs = list.specs;
        self.tools_tokens = list.tokens;
    }

    fn now(&self) -> f64 {
        self.scope.deps.clock.epoch_seconds()
    }

    async fn emit(&self, event: AgentEvent) {
        self.scope.events.emit(event).await;
    }

    async fn notice(&self, level: NoticeLevel, text: impl Into<String>) {
        self.scope.events.notice(level, text).await;
    }
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

//! Applies a compaction: asks the compactor, stores the new view, replaces the visible log.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use hermes_core::event::{AgentEvent, NoticeLevel, TurnExit};
use hermes_core::ids::RowId;
use hermes_core::message::Message;
use hermes_core::model::ModelClient;
use hermes_core::store::{NewItem, SessionUpdate, StoreError, UsageEntry};
use hermes_core::usage::{Cost, Usage};
use tokio_util::sync::CancellationToken;

use super::outside::READ_OUTSIDE;
use super::{Turn, TurnConversation, TurnFlow, TurnState, exit};
use crate::compress::{
    CompactionCause, CompactionJob, CompactionResult, SkippedCompaction, Summary,
};
use crate::events::EventSink;
use crate::log::{Log, LogItem, Origin};
use crate::project::{ViewCaps, project};
use crate::session::SessionDeps;
use crate::session::deps::PromptContext;

/// How long the lock against other processes holds: longer than a summary may take.
const LOCK_LIFETIME: Duration = Duration::from_mins(5);
/// Compactions before one call.
const MAX_PASSES: u32 = 3;

/// One compaction, asked for by a turn or by the person.
pub(crate) struct TurnCompaction<'a> {
    pub deps: &'a SessionDeps,
    pub events: &'a EventSink,
    pub cancel: &'a CancellationToken,
    pub cause: CompactionCause,
    pub focus: Option<&'a str>,
    /// Turns that stay word for word, where the person says how many.
    pub keep: Option<usize>,
    /// Raw estimate of system prompt and tools.
    pub overhead: u64,
}

/// What it consumed, and what came of it.
pub(crate) struct AppliedCompaction {
    pub spent: Vec<(Usage, Cost)>,
    pub result: Result<(), SkippedCompaction>,
}

impl TurnCompaction<'_> {
    pub(crate) async fn run(
        &self,
        conv: &mut TurnConversation,
    ) -> Result<AppliedCompaction, StoreError> {
        let holder = format!("hermes-{}-{}", std::process::id(), conv.id);
        let store = &self.deps.store;
        if !store
            .lock_compaction(&conv.id, &holder, LOCK_LIFETIME)
            .await?
        {
            let why = "another process is compacting this conversation";
            return Ok(AppliedCompaction {
                spent: Vec::new(),
                result: Err(SkippedCompaction::Blocked(why.into())),
            });
        }
        let done = self.locked(conv).await;
        let release = SessionUpdate::ReleaseCompaction { holder };
        let released = store.update(&conv.id, release).await;
        let done = done?;
        released?;
        Ok(done)
    }

    async fn locked(&self, conv: &mut TurnConversation) -> Result<AppliedCompaction, StoreError> {
        let prompt_tokens = conv
            .compactor
            .meter()
            .real(self.overhead + conv.log.tokens());
        self.events
            .emit(AgentEvent::CompactionStarted { prompt_tokens })
            .await;
        let provider = conv.client.route().provider.clone();
        let view = project(conv.log.items(), &ViewCaps::all(provider));
        let mut todo = self.deps.tools.carried_over();
        if conv.taint.is_marked() {
            let todo = todo.get_or_insert_default();
            *todo = format!("{READ_OUTSIDE}\n{todo}");
        }
        let clients = self.clients(conv);
        let job = CompactionJob {
            session: conv.id.clone(),
            view: &view,
            scaffolding: (conv.log.items().iter())
                .filter(|item| !item.persist)
                .map(|item| Arc::clone(&item.message))
                .collect(),
            overhead: self.overhead,
            cause: self.cause,
            focus: self.focus,
            keep: self.keep,
            todo: todo.as_deref(),
            clients: clients.clone(),
        };
        let outcome = conv.compactor.compact(job, self.cancel).await;
        for update in outcome.updates {
            self.deps.store.update(&conv.id, update).await?;
        }
        let mut spent = Vec::new();
        for (route, usage) in outcome.usage {
            let info = clients
                .iter()
                .find(|client| *client.route() == route)
                .map(|client| client.info());
            let prices = info.and_then(|info| info.prices);
            let cost = Cost::of(&usage, prices.as_ref(), info.is_some_and(|info| info.local));
            spent.push((usage, cost));
            let entry = UsageEntry {
                route,
                task: "compression".into(),
                usage,
                cost,
                at: self.deps.clock.epoch_seconds(),
            };
            self.deps
                .store
                .update(&conv.id, SessionUpdate::Usage(entry))
                .await?;
        }
        for text in outcome.notices {
            self.events.notice(NoticeLevel::Warning, text).await;
        }
        let result = match outcome.result {
            Ok(compacted) => {
                self.apply(conv, compacted).await?;
                Ok(())
            }
            Err(unchanged) => Err(unchanged),
        };
        Ok(AppliedCompaction { spent, result })
    }

    /// The helper model first, then the one in use.
    fn clients(&self, conv: &TurnConversation) -> Vec<Arc<dyn ModelClient>> {
        let mut clients = Vec::new();
        match self.deps.router.auxiliary("compression") {
            Ok(client) => clients.push(client),
            Err(error) => tracing::debug!(%error, "no helper model for compression"),
        }
        if clients
            .iter()
            .all(|client| client.route() != conv.client.route())
        {
            clients.push(Arc::clone(&conv.client));
        }
        clients
    }

    async fn apply(
        &self,
        conv: &mut TurnConversation,
        done: CompactionResult,
    ) -> Result<(), StoreError> {
        let items = as_items(&conv.log, done.view, self.deps.clock.epoch_seconds());
        let rows: Vec<NewItem> = items
            .iter()
            .filter(|item| item.persist)
            .map(LogItem::to_new)
            .collect();
        let upto = conv.log.last_row().unwrap_or(RowId(i64::MAX));
        let store = &self.deps.store;
        let mut ids = store.compact(&conv.id, upto, rows).await?.into_iter();
        let stored = items
            .into_iter()
            .map(|item| LogItem {
                row: if item.persist { ids.next() } else { None },
                ..item
            })
            .collect();
        conv.log.replace(stored);
        self.deps.tools.compacted();
        conv.hints.forget();
        self.refresh_prompt(conv).await?;
        self.events
            .emit(AgentEvent::Compacted {
                before_tokens: done.before_tokens,
                after_tokens: done.after_tokens,
                summary: done.summary != Summary::None,
            })
            .await;
        Ok(())
    }

    /// The prefix changes anyway now: the moment to show what memory has learnt.
    async fn refresh_prompt(&self, conv: &mut TurnConversation) -> Result<(), StoreError> {
        let registry = self.deps.tools.registry();
        let built = self
            .deps
            .prompt
            .build(PromptContext {
                session: &conv.id,
                source: &conv.source,
                route: conv.client.route(),
                model: conv.client.info(),
                registry: &registry,
                cwd: &conv.cwd,
            })
            .await;
        if built.text.is_empty() || *built.text == *conv.system {
            return Ok(());
        }
        let update = SessionUpdate::SystemPrompt(built.text.clone());
        self.deps.store.update(&conv.id, update).await?;
        conv.system = built.text.into();
        Ok(())
    }
}

/// Rows that the compactor left alone keep their origin.
fn as_items(log: &Log, view: Vec<Arc<Message>>, at: f64) -> Vec<LogItem> {
    let old: HashMap<*const Message, &LogItem> = log
        .items()
        .iter()
        .map(|item| (Arc::as_ptr(&item.message), item))
        .collect();
    view.into_iter()
        .map(|message| {
            if let Some(item) = old.get(&Arc::as_ptr(&message)) {
                return LogItem::clone(item);
            }
            let origin = Origin::of(&message);
            LogItem {
                message,
                row: None,
                origin,
                persist: true,
                at,
            }
        })
        .collect()
}

impl Turn<'_> {
    pub(super) async fn compact_state(&mut self, cause: CompactionCause) -> TurnFlow<TurnState> {
        let compaction = TurnCompaction {
            deps: &self.scope.deps,
            events: &self.scope.events,
            cancel: &self.scope.cancel,
            cause,
            focus: None,
            keep: None,
            overhead: self.overhead(),
        };
        let applied = compaction
            .run(self.conv)
            .await
            .map_err(|error| exit::of_store(&error))?;
        for (usage, cost) in &applied.spent {
            self.budget.spend(usage, *cost);
        }
        self.passes += 1;
        match (cause, applied.result) {
            (_, Err(SkippedCompaction::Cancelled)) => Err(TurnExit::Interrupted),
            (CompactionCause::Overflow, Ok(())) => {
                self.budget.extra_call();
                Ok(TurnState::Sample)
            }
            (CompactionCause::Overflow, Err(why)) => Err(TurnExit::ContextFull {
                // Its size was a guess where the provider gave no reason: show what it said.
                message: match self.too_large.take() {
                    Some(reason) => format!("{why} ({reason})"),
                    None => why.to_string(),
                },
            }),
            (_, Ok(())) if self.passes < MAX_PASSES => Ok(TurnState::Prepare),
            (_, Ok(())) => self.take_call(),
            (_, Err(why)) => {
                if !std::mem::replace(&mut self.warned_blocked, true) {
                    self.notice(NoticeLevel::Warning, why.to_string()).await;
                }
                self.take_call()
            }
        }
    }
}

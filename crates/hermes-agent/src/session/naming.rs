//! Names a conversation in the background, after its first exchange.

use std::sync::Arc;

use hermes_core::event::AgentEvent;
use hermes_core::ids::SessionId;
use hermes_core::model::ModelClient;
use hermes_core::store::{SessionUpdate, UsageEntry};
use hermes_core::usage::Cost;
use tokio_util::sync::CancellationToken;

use super::deps::SessionDeps;
use crate::events::EventSink;
use crate::title::{self, FirstExchange};

const TASK: &str = "title_generation";

/// The first exchange, and what naming it needs. Owns everything: it outlives the turn.
pub(super) struct TitleTask {
    pub deps: Arc<SessionDeps>,
    pub events: EventSink,
    pub cancel: CancellationToken,
    pub session: SessionId,
    /// Stands in where no helper model is configured.
    pub client: Arc<dyn ModelClient>,
    pub user: String,
    pub answer: String,
}

impl TitleTask {
    /// A failure costs the title and nothing else.
    pub(super) async fn run(self) {
        let client = match self.deps.router.auxiliary(TASK) {
            Ok(client) => client,
            Err(error) => {
                tracing::debug!(%error, "no helper model for titles");
                Arc::clone(&self.client)
            }
        };
        // Small models name everything alike.
        if client.info().small {
            return;
        }
        let exchange = FirstExchange {
            session: self.session.clone(),
            user: &self.user,
            answer: &self.answer,
            language: self.deps.settings.title_language.as_deref(),
        };
        let titled = title::generate(&*client, &exchange, title::TIMEOUT, &self.cancel).await;
        let store = &self.deps.store;
        if let Some(usage) = titled.usage {
            let info = client.info();
            let entry = UsageEntry {
                route: client.route().clone(),
                task: TASK.into(),
                usage,
                cost: Cost::of(&usage, info.prices.as_ref(), info.local),
                at: self.deps.clock.epoch_seconds(),
            };
            if let Err(error) = store
                .update(&self.session, SessionUpdate::Usage(entry))
                .await
            {
                tracing::warn!(%error, "the title's usage was not recorded");
            }
        }
        let Some(title) = titled.title else {
            return;
        };
        match store.set_title(&self.session, &title, true).await {
            Ok(title) => self.events.emit(AgentEvent::TitleChanged { title }).await,
            Err(error) => tracing::warn!(%error, "the title was not stored"),
        }
    }
}

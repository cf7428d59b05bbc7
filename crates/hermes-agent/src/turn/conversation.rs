//! What a session remembers between its turns.

use std::path::PathBuf;
use std::sync::Arc;

use chrono::NaiveDate;
use hermes_core::ids::{RowId, SessionId};
use hermes_core::model::{ModelClient, Route};
use hermes_core::store::{
    NewItem, NewSession, SessionStore, SessionUpdate, StoreError, UsageEntry,
};
use hermes_core::tool::Taint;

use crate::compress::{Compactor, ContextWindow};
use crate::context_files::DirectoryHints;
use crate::log::{Log, LogItem};
use crate::project::{ImageRule, ViewCaps};

/// The state of a conversation, owned by its session.
pub(crate) struct TurnConversation {
    pub id: SessionId,
    pub source: String,
    pub cwd: PathBuf,
    pub log: Log,
    /// Empty until the first turn has built it.
    pub system: Arc<str>,
    pub client: Arc<dyn ModelClient>,
    pub compactor: Compactor,
    pub fixes: RouteFixes,
    /// The row to write before the first message; `None` once it is there.
    pub unwritten: Option<Box<NewSession>>,
    /// The stored session was ended: it continues with the next message.
    pub reopen: bool,
    /// The real prompt size of the last call.
    pub context_used: u64,
    /// The model that the conversation was last told it is.
    pub told_route: Option<(String, String)>,
    /// Directories whose instructions were told.
    pub hints: DirectoryHints,
    /// The day that the conversation was last told it is.
    pub told_day: Option<NaiveDate>,
    /// Something from outside was read.
    pub taint: Taint,
}

/// What was learnt about the route in use from its refusals. Forgotten when the route changes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct RouteFixes {
    pub images: ImageRule,
    pub tool_parts: bool,
    pub reasoning: bool,
    pub simple_schemas: bool,
    pub output_cap: Option<u32>,
}

impl Default for RouteFixes {
    fn default() -> Self {
        Self {
            images: ImageRule::All,
            tool_parts: true,
            reasoning: true,
            simple_schemas: false,
            output_cap: None,
        }
    }
}

impl TurnConversation {
    /// What the model in use can take.
    pub(crate) fn caps(&self) -> ViewCaps {
        ViewCaps {
            provider: self.client.route().provider.clone(),
            images: if self.client.info().images {
                self.fixes.images
            } else {
                ImageRule::None
            },
            tool_parts: self.fixes.tool_parts,
            reasoning: self.fixes.reasoning,
        }
    }

    /// Goes on with another client. Returns the route left, if it is another model.
    pub(crate) fn use_client(
        &mut self,
        client: Arc<dyn ModelClient>,
        max_tokens: Option<u32>,
    ) -> Option<Route> {
        let before = self.client.route().clone();
        let now = client.route();
        let same = before.provider == now.provider
            && before.model == now.model
            && before.base_url == now.base_url;
        let window = self.client.info().context_length;
        self.client = client;
        if same {
            // A server may have told its real window since.
            if self.client.info().context_length != window {
                self.compactor.set_window(self.window(max_tokens));
            }
            return None;
        }
        self.fixes = RouteFixes::default();
        self.compactor.set_window(self.window(max_tokens));
        Some(before)
    }

    pub(crate) fn window(&self, max_tokens: Option<u32>) -> ContextWindow {
        ContextWindow {
            context: self.client.info().context_length,
            max_tokens,
        }
    }

    /// Stores an item and what it cost, then adds it to the log. The session's row comes first.
    pub(crate) async fn commit(
        &mut self,
        store: &dyn SessionStore,
        item: LogItem,
        platform_message_id: Option<String>,
        cost: Option<UsageEntry>,
    ) -> Result<RowId, StoreError> {
        if self.reopen {
            store.update(&self.id, SessionUpdate::Reopen).await?;
            self.reopen = false;
        }
        let new = NewItem {
            platform_message_id,
            ..item.to_new()
        };
        let items = vec![new];
        let rows = match (&self.unwritten, cost) {
            (Some(session), cost) => {
                let session = NewSession::clone(session);
                let rows = store.begin_with(session, items).await?;
                if let Some(cost) = cost {
                    store.update(&self.id, SessionUpdate::Usage(cost)).await?;
                }
                rows
            }
            (None, Some(cost)) => store.append_with(&self.id, items, cost).await?,
            (None, None) => store.append(&self.id, items).await?,
        };
        self.unwritten = None;
        let row = rows.first().copied().ok_or_else(|| StoreError::Database {
            what: "append".into(),
            detail: "no row id came back".into(),
        })?;
        self.log.push(LogItem {
            row: Some(row),
            ..item
        });
        Ok(row)
    }
}

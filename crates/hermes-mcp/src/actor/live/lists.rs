//! The lists of a live server, read again when it says that they changed.

use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::super::CatalogueSnapshot;
use super::super::connect::{list, tools};
use super::super::run::Actor;
use super::{Done, Live, Reason};
use crate::actor::op::Op;
use crate::failure::retry;
use crate::failure::{Certainty, FailureClass, McpFailure};
use crate::transport::link::LinkFacts;

/// For refreshing lists in the background.
const REFRESH: Duration = Duration::from_mins(1);
/// Which lists are to be read again.
#[derive(Clone, Copy, Default)]
pub(super) struct Lists {
    pub(super) tools: bool,
    pub(super) resources: bool,
    pub(super) prompts: bool,
}

impl Lists {
    pub(super) fn any(self) -> bool {
        self.tools || self.resources || self.prompts
    }
}

#[derive(Default)]
pub(super) struct Refreshed {
    tools: Option<Vec<Value>>,
    resources: Option<Vec<Value>>,
    prompts: Option<Vec<Value>>,
}

impl Actor {
    pub(super) fn refreshed(&mut self, live: &Live, lists: Refreshed) {
        let Some(old) = self.shared.catalogue.borrow().clone() else {
            return;
        };
        let facts = LinkFacts {
            handshake: old.facts.handshake,
            ..live.current.link.facts().clone()
        };
        self.publish_catalogue(CatalogueSnapshot {
            epoch: live.current.epoch,
            revision: 0,
            facts,
            tools: lists.tools.map_or_else(|| Arc::clone(&old.tools), Arc::new),
            resources: lists
                .resources
                .map(Arc::new)
                .or_else(|| old.resources.clone()),
            prompts: lists.prompts.map(Arc::new).or_else(|| old.prompts.clone()),
        });
    }

    /// The lists stay as they were; the link is examined like after any other failed request.
    pub(super) fn refresh_failed(&mut self, live: &mut Live, failure: McpFailure) {
        tracing::warn!(server = %self.shared.name, "lists not refreshed: {failure}");
        self.shared.went_wrong(&failure);
        if let Some(doubt) = retry::doubt(&failure) {
            let cause = failure.class.name();
            live.suspect(Reason::new(doubt, cause, failure.text), Duration::ZERO);
        }
    }
}

/// Reads the stale lists again, in the background. `had_none`: the server had no tools before.
pub(super) fn refresh(live: &mut Live, had_none: bool) {
    if live.refreshing {
        return;
    }
    live.refreshing = true;
    let wanted = std::mem::take(&mut live.stale);
    let link = Arc::clone(&live.current.link);
    live.background.push(Box::pin(async move {
        let deadline = Instant::now() + REFRESH;
        let cancel = CancellationToken::new();
        let _guard = cancel.clone().drop_guard();
        let read = async {
            let mut lists = Box::<Refreshed>::default();
            if wanted.tools {
                lists.tools = Some(tools(&*link, deadline, &cancel, had_none).await?);
            }
            if wanted.resources {
                lists.resources = optional(
                    list(&*link, &Op::ListResources, "resources", deadline, &cancel).await,
                )?;
            }
            if wanted.prompts {
                lists.prompts =
                    optional(list(&*link, &Op::ListPrompts, "prompts", deadline, &cancel).await)?;
            }
            Ok(lists)
        };
        let result = tokio::time::timeout_at(deadline, read)
            .await
            .unwrap_or_else(|_| {
                Err(McpFailure::new(
                    FailureClass::TimedOut,
                    Certainty::NotSent,
                    "the lists did not come in time",
                ))
            });
        Done::Refreshed(result)
    }));
}

/// A server that offers a list and then refuses it costs only that list.
fn optional(list: Result<Vec<Value>, McpFailure>) -> Result<Option<Vec<Value>>, McpFailure> {
    match list {
        Ok(items) => Ok(Some(items)),
        Err(failure) if failure.class == FailureClass::Rpc => Ok(None),
        Err(failure) => Err(failure),
    }
}

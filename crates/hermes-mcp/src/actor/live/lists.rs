//! Refreshes the lists of a live server when it announces changes.

use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::super::connect::{fetch_list, has_capability, list_tools};
use super::super::run::Actor;
use super::super::{CatalogueSnapshot, ServerSettings};
use super::{BackgroundResult, ExamineReason, LiveSession};
use crate::actor::op::Op;
use crate::failure::retry;
use crate::failure::{Certainty, FailureClass, McpFailure};
use crate::transport::link::{Link, LinkFacts};

const REFRESH_TIMEOUT: Duration = Duration::from_mins(1);
/// The lists to be refreshed.
#[derive(Clone, Copy, Default)]
pub(super) struct StaleLists {
    pub(super) tools: bool,
    pub(super) resources: bool,
    pub(super) prompts: bool,
}

impl StaleLists {
    pub(super) fn any(self) -> bool {
        self.tools || self.resources || self.prompts
    }

    /// Those of whose changes the server tells: some may have been missed.
    pub(super) fn add_announced(&mut self, link: &dyn Link, settings: &ServerSettings) {
        let announces = |what: &str| {
            let lists = link.facts().capabilities.get(what);
            lists.and_then(|lists| lists.get("listChanged")) == Some(&Value::Bool(true))
        };
        self.tools |= announces("tools");
        self.resources |= settings.list_resources && announces("resources");
        self.prompts |= settings.list_prompts && announces("prompts");
    }
}

#[derive(Default)]
pub(super) struct RefreshedLists {
    tools: Option<Vec<Value>>,
    resources: Option<Vec<Value>>,
    prompts: Option<Vec<Value>>,
}

impl Actor {
    pub(super) fn refreshed(&mut self, live: &mut LiveSession, lists: RefreshedLists) {
        if let Some(tools) = &lists.tools {
            let offered = has_capability(&*live.current.link, "tools");
            self.missing.listed(tools, offered);
            live.list_again(self.missing.pause());
        }
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

    /// Keeps the old lists and examines the link, as after any failed request.
    pub(super) fn refresh_failed(&mut self, live: &mut LiveSession, failure: McpFailure) {
        tracing::warn!(server = %self.shared.name, "lists not refreshed: {failure}");
        self.shared.record_failure(&failure);
        live.list_again(self.missing.pause());
        if let Some(suspect_reason) = retry::suspect_reason(&failure) {
            let cause = failure.class.name();
            live.suspect(
                ExamineReason::new(suspect_reason, cause, failure.text),
                Duration::ZERO,
            );
        }
    }
}

/// Refreshes the stale lists in the background. `had_none`: the server had no tools before.
pub(super) fn refresh(live: &mut LiveSession, had_none: bool) {
    if live.refreshing {
        return;
    }
    live.refreshing = true;
    let wanted = std::mem::take(&mut live.stale);
    let link = Arc::clone(&live.current.link);
    live.background.push(Box::pin(async move {
        let deadline = Instant::now() + REFRESH_TIMEOUT;
        let cancel = CancellationToken::new();
        let _guard = cancel.clone().drop_guard();
        let read = async {
            let mut lists = Box::<RefreshedLists>::default();
            if wanted.tools {
                lists.tools = Some(list_tools(&*link, deadline, &cancel, had_none).await?);
            }
            if wanted.resources {
                lists.resources = optional(
                    fetch_list(&*link, &Op::ListResources, "resources", deadline, &cancel).await,
                )?;
            }
            if wanted.prompts {
                lists.prompts = optional(
                    fetch_list(&*link, &Op::ListPrompts, "prompts", deadline, &cancel).await,
                )?;
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
        BackgroundResult::Refreshed(result)
    }));
}

/// If a server declares a list and then refuses it, only that list is missing.
fn optional(list: Result<Vec<Value>, McpFailure>) -> Result<Option<Vec<Value>>, McpFailure> {
    match list {
        Ok(items) => Ok(Some(items)),
        Err(failure) if failure.class == FailureClass::Rpc => Ok(None),
        Err(failure) => Err(failure),
    }
}

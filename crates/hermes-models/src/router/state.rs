//! Mutable state of a router.

use std::collections::HashMap;
use std::path::PathBuf;

use chrono::{DateTime, Utc};
use hermes_core::model::Route;

use super::target::RouteTarget;
use crate::credentials::KeyPool;

/// Maximum number of routes kept for lookup, to bound memory.
const MAX_ROUTES: usize = 64;

/// The keys of one provider and the auth.json that keeps their state.
pub(super) struct KeySlot {
    pub(super) pool: KeyPool,
    pub(super) path: Option<PathBuf>,
}

#[derive(Default)]
pub(super) struct RouterState {
    pub(super) primary: Option<RouteTarget>,
    pools: HashMap<String, KeySlot>,
    /// Target → until when it is paused.
    resting: HashMap<String, DateTime<Utc>>,
    /// Provider → until when auxiliary calls avoid it.
    shunned: HashMap<String, DateTime<Utc>>,
    used: Vec<(Route, RouteTarget)>,
}

impl RouterState {
    pub(super) fn slot(&mut self, key: &str, open: impl FnOnce() -> KeySlot) -> &mut KeySlot {
        self.pools.entry(key.to_owned()).or_insert_with(open)
    }

    pub(super) fn rest(&mut self, target: &RouteTarget, until: DateTime<Utc>) {
        let end = self.resting.entry(name(target)).or_insert(until);
        *end = until.max(*end);
    }

    pub(super) fn is_cooling_down(&self, target: &RouteTarget, now: DateTime<Utc>) -> bool {
        self.resting
            .get(&name(target))
            .is_some_and(|until| *until > now)
    }

    pub(super) fn end_cooldown(&mut self, target: &RouteTarget) {
        self.resting.remove(&name(target));
    }

    pub(super) fn avoid(&mut self, provider: &str, until: DateTime<Utc>) {
        self.shunned.insert(provider.to_owned(), until);
    }

    pub(super) fn is_avoided(&self, provider: &str, now: DateTime<Utc>) -> bool {
        self.shunned.get(provider).is_some_and(|until| *until > now)
    }

    pub(super) fn remember(&mut self, route: Route, target: RouteTarget) {
        self.used.retain(|(known, _)| *known != route);
        if self.used.len() >= MAX_ROUTES {
            self.used.remove(0);
        }
        self.used.push((route, target));
    }

    /// The target of a route that this router returned.
    pub(super) fn used(&self, route: &Route) -> Option<RouteTarget> {
        let same_place = |known: &Route| {
            known.provider == route.provider
                && known.model == route.model
                && known.base_url == route.base_url
        };
        self.used
            .iter()
            .rev()
            .find(|(known, _)| known == route)
            .or_else(|| self.used.iter().rev().find(|(known, _)| same_place(known)))
            .map(|(_, target)| target.clone())
    }
}

fn name(target: &RouteTarget) -> String {
    format!("{}\n{}\n{}", target.provider, target.model, target.base_url)
}

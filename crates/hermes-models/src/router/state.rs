//! What changes while a router lives.

use std::collections::HashMap;
use std::path::PathBuf;

use chrono::{DateTime, Utc};
use hermes_core::model::Route;

use super::target::Target;
use crate::credentials::Pool;

/// Routes kept for lookup; a process that switches models all day stays small.
const MAX_ROUTES: usize = 64;

/// The keys of one provider and the auth.json that keeps their state.
pub(super) struct Slot {
    pub(super) pool: Pool,
    pub(super) path: Option<PathBuf>,
}

#[derive(Default)]
pub(super) struct State {
    pub(super) primary: Option<Target>,
    pools: HashMap<String, Slot>,
    /// Target → until when it is left alone.
    resting: HashMap<String, DateTime<Utc>>,
    /// Provider → until when helpers avoid it.
    shunned: HashMap<String, DateTime<Utc>>,
    used: Vec<(Route, Target)>,
}

impl State {
    pub(super) fn slot(&mut self, key: &str, open: impl FnOnce() -> Slot) -> &mut Slot {
        self.pools.entry(key.to_owned()).or_insert_with(open)
    }

    pub(super) fn rest(&mut self, target: &Target, until: DateTime<Utc>) {
        let end = self.resting.entry(name(target)).or_insert(until);
        *end = until.max(*end);
    }

    pub(super) fn rests(&self, target: &Target, now: DateTime<Utc>) -> bool {
        self.resting
            .get(&name(target))
            .is_some_and(|until| *until > now)
    }

    pub(super) fn wake(&mut self, target: &Target) {
        self.resting.remove(&name(target));
    }

    pub(super) fn shun(&mut self, provider: &str, until: DateTime<Utc>) {
        self.shunned.insert(provider.to_owned(), until);
    }

    pub(super) fn is_shunned(&self, provider: &str, now: DateTime<Utc>) -> bool {
        self.shunned.get(provider).is_some_and(|until| *until > now)
    }

    pub(super) fn remember(&mut self, route: Route, target: Target) {
        self.used.retain(|(known, _)| *known != route);
        if self.used.len() >= MAX_ROUTES {
            self.used.remove(0);
        }
        self.used.push((route, target));
    }

    /// The target of a route that this router gave out.
    pub(super) fn used(&self, route: &Route) -> Option<Target> {
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

fn name(target: &Target) -> String {
    format!("{}\n{}\n{}", target.provider, target.model, target.base_url)
}

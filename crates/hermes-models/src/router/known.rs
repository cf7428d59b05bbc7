//! Cached facts that follow from the names of a route. It never changes, and finding it means
//! scanning whole lists: done once per route, not for every conversation.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use hermes_core::model::{Route, WireFormat};

use crate::catalogue::{self, CatalogueEntry, ListPrice};
use crate::providers::{endpoint, profile};
use crate::quirks::Quirks;

/// Maximum number of cached routes, to bound memory.
const MAX_ROUTES: usize = 64;

pub(super) struct RouteFacts {
    pub(super) listed: Option<CatalogueEntry>,
    pub(super) price: Option<ListPrice>,
    /// Before the config is applied.
    pub(super) quirks: Quirks,
    pub(super) local: bool,
}

#[derive(PartialEq, Eq, Hash)]
struct RouteNames {
    provider: String,
    model: String,
    base_url: String,
    format: WireFormat,
}

#[derive(Default)]
pub(super) struct RouteFactsCache(Mutex<HashMap<RouteNames, Arc<RouteFacts>>>);

impl RouteFactsCache {
    pub(super) fn of(&self, route: &Route) -> Arc<RouteFacts> {
        let names = RouteNames {
            provider: route.provider.clone(),
            model: route.model.clone(),
            base_url: route.base_url.clone(),
            format: route.format,
        };
        let mut book = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = book.get(&names) {
            return Arc::clone(known);
        }
        let known = Arc::new(look_up(route));
        if book.len() >= MAX_ROUTES {
            book.clear();
        }
        book.insert(names, Arc::clone(&known));
        known
    }
}

fn look_up(route: &Route) -> RouteFacts {
    let (provider, base_url) = (route.provider.as_str(), route.base_url.as_str());
    RouteFacts {
        listed: catalogue::lookup(&route.model),
        price: catalogue::price(provider, &route.model),
        quirks: profile::quirks(provider, base_url, &route.model, route.format).for_model(route),
        local: endpoint::is_local(base_url),
    }
}

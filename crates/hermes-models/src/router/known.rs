//! What follows from the names of a route alone. It never changes, and finding it means reading
//! lists from end to end: done once per route, not for every conversation.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use hermes_core::model::{Route, WireFormat};

use crate::catalogue::{self, Entry, ListPrice};
use crate::providers::{endpoint, profile};
use crate::quirks::Quirks;

/// Routes that are kept; a process that switches models all day stays small.
const MOST: usize = 64;

pub(super) struct Known {
    pub(super) listed: Option<Entry>,
    pub(super) price: Option<ListPrice>,
    /// Before the config has its say.
    pub(super) quirks: Quirks,
    pub(super) local: bool,
}

#[derive(PartialEq, Eq, Hash)]
struct Names {
    provider: String,
    model: String,
    base_url: String,
    format: WireFormat,
}

#[derive(Default)]
pub(super) struct Book(Mutex<HashMap<Names, Arc<Known>>>);

impl Book {
    pub(super) fn of(&self, route: &Route) -> Arc<Known> {
        let names = Names {
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
        if book.len() >= MOST {
            book.clear();
        }
        book.insert(names, Arc::clone(&known));
        known
    }
}

fn look_up(route: &Route) -> Known {
    let (provider, base_url) = (route.provider.as_str(), route.base_url.as_str());
    Known {
        listed: catalogue::lookup(&route.model),
        price: catalogue::price(provider, &route.model),
        quirks: profile::quirks(provider, base_url, &route.model, route.format).for_model(route),
        local: endpoint::is_local(base_url),
    }
}

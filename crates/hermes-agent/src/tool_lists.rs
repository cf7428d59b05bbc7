//! Descriptions of tools for models. Conversations with the same tools share one list: it is measured
//! and written for the wire once, not for every turn of each of them.

use std::sync::{Arc, Mutex, PoisonError};

use hermes_core::tool::ToolSpec;

use crate::tokens;

/// Lists that are kept, the last used ones: platforms, subagents and small models have their own.
const MAX_CACHED_LISTS: usize = 8;

#[derive(Clone)]
pub(crate) struct SharedToolList {
    pub(crate) specs: Arc<[ToolSpec]>,
    /// Raw estimate of the tools array.
    pub(crate) tokens: u64,
}

static KEPT: Mutex<Vec<SharedToolList>> = Mutex::new(Vec::new());

/// The common list that says the same as `specs`.
pub(crate) fn shared(specs: Arc<[ToolSpec]>) -> SharedToolList {
    let kept = || KEPT.lock().unwrap_or_else(PoisonError::into_inner);
    // Compared without the lock: the lists are long.
    let found = kept()
        .clone()
        .into_iter()
        .find(|shared_list| same(&shared_list.specs, &specs));
    let shared_list = found.unwrap_or_else(|| SharedToolList {
        tokens: tokens::tools(&specs),
        specs,
    });
    let mut kept = kept();
    let is_first = |first: &SharedToolList| Arc::ptr_eq(&first.specs, &shared_list.specs);
    if !kept.first().is_some_and(is_first) {
        kept.retain(|known| !is_first(known));
        kept.truncate(MAX_CACHED_LISTS - 1);
        kept.insert(0, shared_list.clone());
    }
    shared_list
}

fn same(one: &Arc<[ToolSpec]>, other: &Arc<[ToolSpec]>) -> bool {
    Arc::ptr_eq(one, other)
        || one.len() == other.len() && one.iter().zip(other.iter()).all(|(a, b)| alike(a, b))
}

fn alike(one: &ToolSpec, other: &ToolSpec) -> bool {
    let ToolSpec {
        name,
        description,
        parameters,
        toolset,
        effects,
        untrusted,
    } = one;
    *name == other.name
        && *description == other.description
        && (Arc::ptr_eq(parameters, &other.parameters) || *parameters == other.parameters)
        && *toolset == other.toolset
        && *effects == other.effects
        && *untrusted == other.untrusted
}

#[cfg(test)]
mod tests {
    use hermes_core::tool::Effects;
    use serde_json::json;

    use super::*;

    fn list(name: &str, description: &str) -> Arc<[ToolSpec]> {
        Arc::new([ToolSpec {
            name: name.to_owned(),
            description: description.to_owned(),
            parameters: Arc::new(json!({"type": "object"})),
            toolset: "told",
            effects: Effects::ReadOnly,
            untrusted: false,
        }])
    }

    #[test]
    fn only_lists_that_say_the_same_are_one() {
        let first = shared(list("told_a", "one"));
        assert_eq!(first.tokens, tokens::tools(&first.specs));
        assert!(Arc::ptr_eq(
            &first.specs,
            &shared(list("told_a", "one")).specs
        ));
        for other in [list("told_a", "two"), list("told_b", "one"), Arc::new([])] {
            let shared_list = shared(Arc::clone(&other));
            assert_eq!(shared_list.tokens, tokens::tools(&other));
            assert!(same(&shared_list.specs, &other));
            assert!(!Arc::ptr_eq(&shared_list.specs, &first.specs));
        }
        for number in 0..2 * MAX_CACHED_LISTS {
            shared(list("told_many", &number.to_string()));
        }
        assert!(KEPT.lock().unwrap().len() <= MAX_CACHED_LISTS);
    }
}

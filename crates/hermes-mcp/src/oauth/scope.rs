//! Which scopes to ask for.

use super::discover::Discovery;

const OFFLINE: &str = "offline_access";

/// The scope parameter of an authorization request: what the person configured, else what the
/// challenge names, else what the resource knows, else none. `more` is added to any of them.
pub(crate) fn choose(
    configured: Option<&str>,
    challenged: Option<&str>,
    found: &Discovery,
    more: Option<&str>,
) -> Option<String> {
    if let Some(scope) = configured {
        return Some(union(scope, more.unwrap_or_default()));
    }
    let known = found
        .scopes
        .iter()
        .map(String::as_str)
        // Not a scope of the resource: whether it can be had is for the other side to say.
        .filter(|scope| *scope != OFFLINE)
        .collect::<Vec<_>>()
        .join(" ");
    let chosen = union(challenged.unwrap_or(&known), more.unwrap_or_default());
    if chosen.is_empty() {
        return None;
    }
    let offline = found
        .meta
        .list("scopes_supported")
        .is_some_and(|scopes| scopes.contains(&OFFLINE));
    Some(if offline {
        union(&chosen, OFFLINE)
    } else {
        chosen
    })
}

pub(crate) fn is_offline(scope: &str) -> bool {
    scope.split_whitespace().any(|word| word == OFFLINE)
}

/// Both, each word once, in order.
pub(crate) fn union(first: &str, second: &str) -> String {
    let mut words: Vec<&str> = Vec::new();
    for word in first.split_whitespace().chain(second.split_whitespace()) {
        if !words.contains(&word) {
            words.push(word);
        }
    }
    words.join(" ")
}

/// Whether `held` has every word of `wanted`.
pub(crate) fn includes(held: &str, wanted: &str) -> bool {
    let held: Vec<&str> = held.split_whitespace().collect();
    wanted.split_whitespace().all(|word| held.contains(&word))
}

#[cfg(test)]
mod tests {
    use serde_json::{Map, json};

    use super::*;
    use crate::oauth::tokens::Meta;

    fn found(resource: &[&str], server: &[&str]) -> Discovery {
        Discovery {
            meta: Meta::new(Map::from_iter([(
                "scopes_supported".to_owned(),
                json!(server),
            )])),
            scopes: resource.iter().map(|scope| (*scope).to_owned()).collect(),
        }
    }

    #[test]
    fn the_most_specific_wish_wins() {
        let known = found(&["a", "b", "offline_access"], &["a"]);
        assert_eq!(
            choose(Some("x"), Some("c"), &known, Some("y x")).as_deref(),
            Some("x y")
        );
        assert_eq!(choose(None, Some("c"), &known, None).as_deref(), Some("c"));
        assert_eq!(choose(None, None, &known, None).as_deref(), Some("a b"));
        assert_eq!(choose(None, None, &found(&[], &["a"]), None), None);
        assert_eq!(
            choose(None, Some("w"), &known, Some("r")).as_deref(),
            Some("w r")
        );
    }

    #[test]
    fn offline_access_is_asked_for_only_where_it_can_be_had() {
        let offers = found(&["a"], &["a", "offline_access"]);
        assert_eq!(
            choose(None, None, &offers, None).as_deref(),
            Some("a offline_access")
        );
        // Alone it would replace the server's default scopes.
        assert_eq!(
            choose(None, None, &found(&[], &["offline_access"]), None),
            None
        );
        // The person's own choice is not added to.
        assert_eq!(choose(Some("x"), None, &offers, None).as_deref(), Some("x"));
        assert!(is_offline("a offline_access"));
        assert!(!is_offline("offline_access_not"));
    }

    #[test]
    fn sets() {
        assert!(includes("a b", "b"));
        assert!(includes("a", ""));
        assert!(!includes("a", "a b"));
    }
}

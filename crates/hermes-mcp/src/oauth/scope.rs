//! Chooses the scopes to request.

use super::discover::Discovery;

const OFFLINE_ACCESS: &str = "offline_access";

/// The scope of an authorization request: the configured one, otherwise that of the challenge,
/// otherwise that of the resource, otherwise none. `more` is added in each case.
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
        // Not a scope of the resource: only the authorization server knows whether it is available.
        .filter(|scope| *scope != OFFLINE_ACCESS)
        .collect::<Vec<_>>()
        .join(" ");
    let chosen = union(challenged.unwrap_or(&known), more.unwrap_or_default());
    if chosen.is_empty() {
        return None;
    }
    let offline = found
        .meta
        .list("scopes_supported")
        .is_some_and(|scopes| scopes.contains(&OFFLINE_ACCESS));
    Some(if offline {
        union(&chosen, OFFLINE_ACCESS)
    } else {
        chosen
    })
}

pub(crate) fn is_offline(scope: &str) -> bool {
    scope.split_whitespace().any(|word| word == OFFLINE_ACCESS)
}

/// The union of both, in order and without duplicates.
pub(crate) fn union(first: &str, second: &str) -> String {
    let mut words: Vec<&str> = Vec::new();
    for word in first.split_whitespace().chain(second.split_whitespace()) {
        if !words.contains(&word) {
            words.push(word);
        }
    }
    words.join(" ")
}

/// Whether `held` contains all of `wanted`.
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
        // Requested alone, it would replace the server's default scopes.
        assert_eq!(
            choose(None, None, &found(&[], &["offline_access"]), None),
            None
        );
        // The user's choice is not extended.
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

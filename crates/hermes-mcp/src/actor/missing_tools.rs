//! Tools that a server had and no longer lists, or that it offers without listing any. It may still be
//! starting, and not every server tells when its list is complete: it is asked again, ever more rarely.

use std::collections::BTreeSet;
use std::time::Duration;

use serde_json::Value;

const FIRST: Duration = Duration::from_secs(1);
const LONGEST: Duration = Duration::from_mins(5);
/// Tools that are still not there after so many questions, about an hour, were removed.
const QUESTIONS: u32 = 20;

#[derive(Debug, Default)]
pub(super) struct MissingTools {
    names: BTreeSet<String>,
    /// It offers tools and lists none.
    none: bool,
    asked: u32,
}

impl MissingTools {
    /// The list of a new link, and the one before.
    pub(super) fn reconnected(&mut self, before: &[Value], now: &[Value], offers: bool) {
        let known = self.names.len();
        self.names.extend(names(before).map(str::to_owned));
        self.listed(now, offers);
        if self.names.len() > known {
            self.asked = 0;
        }
    }

    /// The list was read again.
    pub(super) fn listed(&mut self, now: &[Value], offers: bool) {
        for name in names(now) {
            self.names.remove(name);
        }
        self.none = offers && now.is_empty();
        if self.names.is_empty() && !self.none {
            self.asked = 0;
        }
    }

    /// The server tells of changes, so nothing has to be found out.
    pub(super) fn clear(&mut self) {
        *self = Self::default();
    }

    /// How long to wait before it is asked again, if that makes sense.
    pub(super) fn pause(&mut self) -> Option<Duration> {
        if !self.none && (self.names.is_empty() || self.asked >= QUESTIONS) {
            return None;
        }
        let pause = FIRST.saturating_mul(1 << self.asked.min(10)).min(LONGEST);
        self.asked = self.asked.saturating_add(1);
        Some(pause)
    }
}

fn names(tools: &[Value]) -> impl Iterator<Item = &str> {
    tools
        .iter()
        .filter_map(|tool| tool.get("name").and_then(Value::as_str))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn list(names: &[&str]) -> Vec<Value> {
        names.iter().map(|name| json!({ "name": name })).collect()
    }

    #[test]
    fn what_was_there_is_asked_for_until_it_is_back() {
        let mut missing = MissingTools::default();
        missing.reconnected(&list(&["a"]), &list(&["a", "b"]), true);
        assert_eq!(missing.pause(), None);
        missing.reconnected(&list(&["a", "b"]), &list(&["a"]), true);
        assert_eq!(missing.pause(), Some(FIRST));
        missing.listed(&list(&["a"]), true);
        assert_eq!(missing.pause(), Some(FIRST * 2));
        missing.listed(&list(&["b"]), true);
        assert_eq!(missing.pause(), None);
    }

    #[test]
    fn removed_tools_are_forgotten_and_an_empty_list_is_not() {
        let mut missing = MissingTools::default();
        missing.reconnected(&list(&["a", "b"]), &list(&["a"]), true);
        let asked = std::iter::from_fn(|| missing.pause());
        let total: Duration = asked.sum();
        assert!(total > Duration::from_mins(30) && total < Duration::from_mins(90));
        missing.reconnected(&[], &[], true);
        assert!((0..100).all(|_| missing.pause().is_some_and(|pause| pause <= LONGEST)));
        missing.reconnected(&[], &[], false);
        assert_eq!(missing.pause(), None);
    }
}

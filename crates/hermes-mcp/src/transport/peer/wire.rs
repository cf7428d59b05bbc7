//! Converts an [`Op`] to protocol requests.

use serde_json::{Map, Value, json};

use crate::actor::op::Op;
use crate::transport::link::Era;

/// Longer lists are truncated after this many pages.
pub(crate) const MAX_PAGES: usize = 50;

pub(crate) struct WireRequest {
    pub(crate) method: &'static str,
    pub(crate) params: Map<String, Value>,
    /// The member that contains the items, if the answer is paginated.
    pub(crate) items: Option<&'static str>,
}

pub(crate) fn wire_request(op: &Op, era: Era) -> WireRequest {
    let plain = |method, params: Value, items| WireRequest {
        method,
        params: match params {
            Value::Object(params) => params,
            _ => Map::new(),
        },
        items,
    };
    match op {
        Op::CallTool { name, arguments } => plain(
            "tools/call",
            json!({ "name": name, "arguments": arguments }),
            None,
        ),
        Op::ListTools => plain("tools/list", Value::Null, Some("tools")),
        Op::ListResources => plain("resources/list", Value::Null, Some("resources")),
        Op::ListResourceTemplates => plain(
            "resources/templates/list",
            Value::Null,
            Some("resourceTemplates"),
        ),
        Op::ReadResource { uri } => plain("resources/read", json!({ "uri": uri }), None),
        Op::ListPrompts => plain("prompts/list", Value::Null, Some("prompts")),
        Op::GetPrompt { name, arguments } => plain(
            "prompts/get",
            json!({ "name": name, "arguments": arguments }),
            None,
        ),
        // The first page is enough to know that the server answers.
        Op::ProbeByList => plain("tools/list", Value::Null, None),
        Op::Probe => match era {
            Era::Legacy => plain("ping", Value::Null, None),
            Era::Modern => plain("server/discover", Value::Null, None),
        },
    }
}

/// Joins the pages of a list. Other members of the first page are kept.
#[derive(Default)]
pub(crate) struct Pages {
    joined: Map<String, Value>,
    items: Vec<Value>,
    cursors: Vec<String>,
}

impl Pages {
    /// Adds one page and returns the cursor of the next, if it should be requested.
    pub(crate) fn take(&mut self, page: Value, member: &str) -> Option<String> {
        let Value::Object(mut page) = page else {
            return None;
        };
        if let Some(Value::Array(items)) = page.remove(member) {
            self.items.extend(items);
        }
        let cursor = match page.remove("nextCursor") {
            Some(Value::String(cursor)) if !cursor.is_empty() => Some(cursor),
            _ => None,
        };
        if self.joined.is_empty() {
            self.joined = page;
        }
        let cursor = cursor?;
        // A server that repeats a cursor would never finish.
        if self.cursors.contains(&cursor) || self.cursors.len() + 1 >= MAX_PAGES {
            tracing::warn!(
                "the list of {member} does not end; cut after {} pages",
                self.cursors.len() + 1
            );
            return None;
        }
        self.cursors.push(cursor.clone());
        Some(cursor)
    }

    pub(crate) fn finish(mut self, member: &str) -> Value {
        self.joined
            .insert(member.to_owned(), Value::Array(self.items));
        Value::Object(self.joined)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_are_joined_and_a_repeated_cursor_ends_the_list() {
        let mut pages = Pages::default();
        let first = json!({"tools": [1, 2], "nextCursor": "b", "_meta": {"x": 1}});
        assert_eq!(pages.take(first, "tools"), Some("b".to_owned()));
        let second = json!({"tools": [3], "nextCursor": "b"});
        assert_eq!(pages.take(second, "tools"), None);
        assert_eq!(
            pages.finish("tools"),
            json!({"_meta": {"x": 1}, "tools": [1, 2, 3]})
        );
    }

    #[test]
    fn a_list_without_end_is_cut_at_fifty_pages() {
        let mut pages = Pages::default();
        let mut page = 1;
        while pages
            .take(
                json!({"tools": [page], "nextCursor": format!("c{page}")}),
                "tools",
            )
            .is_some()
        {
            page += 1;
        }
        assert_eq!(page, MAX_PAGES);
    }

    #[test]
    fn the_probe_follows_the_era() {
        assert_eq!(wire_request(&Op::Probe, Era::Legacy).method, "ping");
        assert_eq!(
            wire_request(&Op::Probe, Era::Modern).method,
            "server/discover"
        );
    }
}

//! The last attempt after a refusal that names nothing: the request without anything optional.
//!
//! A refusal in a language or wording that nobody foresaw says only that the request is not
//! accepted. One attempt without optional fields shows whether one of them was the reason. Which
//! one stays unknown, so what is learned this way is tried again sooner.

use std::collections::BTreeSet;

use hermes_core::model::{ErrorClass, WireFormat};
use serde_json::Value;

use super::refused::{ESSENTIAL, INSIDE, ROLE, first, is_set};
use super::{FieldChange, FieldRule, HEADERS, error_names};
use crate::classify::ErrorVerdict;
use crate::codec::EncodedRequest;

/// Without a stream the person sees nothing until the answer is complete; a server that cannot
/// stream names it.
const REQUIRED_FIELDS: &[&str] = &["stream"];

/// The rules that drop everything optional. Empty: the refusal has another reason, or there is
/// nothing to drop.
pub(crate) fn without_options(
    verdict: &ErrorVerdict,
    sent: &EncodedRequest,
    fixed: &BTreeSet<String>,
    format: WireFormat,
) -> Vec<FieldRule> {
    if !is_unexplained(verdict, sent, fixed) {
        return Vec::new();
    }
    let Ok(body) = serde_json::from_slice::<Value>(&sent.body) else {
        return Vec::new();
    };
    let required = |name: &str| {
        REQUIRED_FIELDS.contains(&name)
            || ESSENTIAL.contains(&name)
            || fixed.contains(name)
            || (format == WireFormat::AnthropicMessages && name == "max_tokens")
            // Without it the model may call tools although it must not.
            || (name == "tool_choice" && body[name] != "auto")
    };
    let top = body
        .as_object()
        .into_iter()
        .flatten()
        .map(|(name, _)| name.as_str())
        .filter(|name| !required(name));
    let inside = INSIDE.iter().copied().filter(|path| is_set(&body, path));
    let mut rules: Vec<FieldRule> = top
        .chain(inside)
        .map(|path| FieldRule::new(path, FieldChange::Drop))
        .collect();
    if body.pointer("/messages/0/role").and_then(Value::as_str) == Some("developer") {
        let change = FieldChange::NotValue {
            value: "developer".to_owned(),
            instead: vec!["system".to_owned()],
        };
        rules.push(FieldRule::new(ROLE, change));
    }
    let beta = "anthropic-beta";
    if sent.headers.iter().any(|(name, _)| name == beta) {
        rules.push(FieldRule::new(
            &format!("{HEADERS}{beta}"),
            FieldChange::Drop,
        ));
    }
    rules
}

/// Whether the request as such was refused and the error locates the reason nowhere: not in the
/// conversation, and not in a field that the person set.
pub(crate) fn is_unexplained(
    verdict: &ErrorVerdict,
    sent: &EncodedRequest,
    fixed: &BTreeSet<String>,
) -> bool {
    let report = &verdict.report;
    if verdict.class != ErrorClass::Format || !matches!(report.status, Some(400 | 422)) {
        return false;
    }
    let Ok(body) = serde_json::from_slice::<Value>(&sent.body) else {
        return false;
    };
    let mut stated = error_names::stated(&report.json);
    stated.extend(error_names::located(&report.text));
    let located = stated.iter().any(|path| {
        let segments: Vec<&str> = path.split('.').collect();
        let top = segments.first().copied().unwrap_or_default();
        ESSENTIAL.contains(&top) || fixed.contains(top) || first(&body, &segments).is_some()
    });
    let named = ESSENTIAL
        .iter()
        .copied()
        .chain(fixed.iter().map(String::as_str))
        .any(|name| error_names::mentioned(&report.text, name) > 0);
    !located && !named
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::classify::{self, CallContext};
    use serde_json::json;

    fn dropped(error: &Value, body: &Value, format: WireFormat) -> Vec<String> {
        let now = chrono::DateTime::UNIX_EPOCH;
        let text = error.to_string();
        let verdict = classify::answer(
            Some(400),
            &|_| None,
            text.as_bytes(),
            &CallContext::default(),
            now,
        );
        let sent = EncodedRequest {
            headers: Vec::new(),
            body: body.to_string().into_bytes(),
        };
        without_options(&verdict, &sent, &BTreeSet::new(), format)
            .into_iter()
            .map(|rule| rule.field)
            .collect()
    }

    #[test]
    fn what_an_answer_needs_is_kept() {
        let error = json!({"error": {"message": "申し訳ありませんが、処理できません"}});
        let body = json!({
            "model": "m", "max_tokens": 10, "stream": true, "thinking": {"type": "enabled"},
            "tool_choice": {"type": "none"},
            "messages": [{"role": "user", "content": [{"type": "text", "text": "a",
                "cache_control": {"type": "ephemeral"}}]}],
        });
        assert_eq!(
            dropped(&error, &body, WireFormat::AnthropicMessages),
            ["thinking", "messages.*.content.*.cache_control"]
        );
    }

    #[test]
    fn a_located_reason_is_not_searched_elsewhere() {
        let body = json!({"model": "m", "messages": [], "tools": [], "store": false});
        for error in [
            json!({"error": {"message": "nein", "param": "messages[3].content"}}),
            json!({"detail": [{"loc": ["body", "tools", 0, "name"], "msg": "nein"}]}),
            json!({"error": {"message": "messages: roles must alternate"}}),
            json!({"error": {"message": "ungültig: 'model'"}}),
        ] {
            let none: [&str; 0] = [];
            assert_eq!(dropped(&error, &body, WireFormat::ChatCompletions), none);
        }
        let open = json!({"error": {"message": "Ungültige Anfrage", "param": null}});
        assert_eq!(
            dropped(&open, &body, WireFormat::ChatCompletions),
            ["store"]
        );
    }
}

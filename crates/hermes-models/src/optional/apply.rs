//! Applies the known rules of an endpoint to an encoded request.

use serde_json::{Map, Value};

use super::{FieldChange, FieldRule, FieldRules, HEADERS, effort_levels};
use crate::codec::EncodedRequest;

/// Tokens that an answer needs in addition to its thinking.
const MIN_ANSWER_TOKENS: u64 = 1_024;
/// Smallest thinking budget that providers accept.
const MIN_THINKING_BUDGET: u64 = 1_024;

impl FieldRules {
    /// The request adapted to this endpoint. The same rules give the same bytes.
    pub(crate) fn apply(
        &self,
        encoded: EncodedRequest,
    ) -> Result<EncodedRequest, serde_json::Error> {
        if self.is_empty() {
            return Ok(encoded);
        }
        let mut body: Value = serde_json::from_slice(&encoded.body)?;
        let mut headers = encoded.headers;
        for rule in self.iter() {
            if let Some(header) = rule.field.strip_prefix(HEADERS) {
                change_header(&mut headers, header, &rule.change);
            } else {
                let path: Vec<&str> = rule.field.split('.').collect();
                self.change(&mut body, &path, rule);
            }
        }
        keep_answer_room(&mut body);
        Ok(EncodedRequest {
            headers,
            body: serde_json::to_vec(&body)?,
        })
    }

    fn change(&self, node: &mut Value, path: &[&str], rule: &FieldRule) {
        match (path, node) {
            ([leaf], Value::Object(fields)) => self.change_field(fields, leaf, rule),
            (["*", rest @ ..], Value::Array(items)) => {
                for item in items {
                    self.change(item, rest, rule);
                }
            }
            ([key, rest @ ..], Value::Object(fields)) => {
                let Some(child) = fields.get_mut(*key) else {
                    return;
                };
                self.change(child, rest, rule);
                // An empty optional field is removed; the conversation's own parts stay.
                let emptied = child.as_object().is_some_and(Map::is_empty);
                if emptied && rule.change == FieldChange::Drop && !rest.is_empty() {
                    fields.shift_remove(*key);
                }
            }
            _ => {}
        }
    }

    fn change_field(&self, fields: &mut Map<String, Value>, name: &str, rule: &FieldRule) {
        match &rule.change {
            FieldChange::Drop => {
                fields.shift_remove(name);
            }
            FieldChange::Rename { to } => {
                if let Some(value) = fields.shift_remove(name) {
                    fields.entry(to.as_str()).or_insert(value);
                }
            }
            FieldChange::AtMost { limit } => {
                if let Some(value) = fields.get_mut(name) {
                    lower(value, *limit);
                }
            }
            FieldChange::NotValue { value, instead } => {
                if fields.get(name).and_then(Value::as_str) == Some(value) {
                    match self.replacement(&rule.field, value, instead) {
                        Some(other) => fields.insert(name.to_owned(), other.into()),
                        None => fields.shift_remove(name),
                    };
                }
            }
            FieldChange::Require => {}
        }
    }

    fn replacement(&self, field: &str, refused: &str, accepted: &[String]) -> Option<String> {
        if !effort_levels::is_effort_field(field) {
            return accepted.first().cloned();
        }
        let also: Vec<&str> = self
            .iter()
            .filter(|rule| rule.field == field)
            .filter_map(|rule| match &rule.change {
                FieldChange::NotValue { value, .. } => Some(value.as_str()),
                _ => None,
            })
            .collect();
        effort_levels::replacement_level(refused, accepted, &also)
    }
}

/// Makes a number smaller, a text or a list shorter.
fn lower(value: &mut Value, limit: u64) {
    let length = usize::try_from(limit).unwrap_or(usize::MAX);
    match value {
        Value::String(text) => {
            if let Some((end, _)) = text.char_indices().nth(length) {
                text.truncate(end);
            }
        }
        Value::Array(items) => items.truncate(length),
        _ if value.as_u64().is_some_and(|sent| sent > limit) => *value = limit.into(),
        _ => {}
    }
}

/// A header is a comma-separated list of values.
fn change_header(headers: &mut Vec<(String, String)>, name: &str, change: &FieldChange) {
    match change {
        FieldChange::NotValue { value, .. } => {
            for (_, list) in headers.iter_mut().filter(|(known, _)| known == name) {
                let remaining: Vec<&str> = list
                    .split(',')
                    .map(str::trim)
                    .filter(|one| !one.is_empty() && !one.eq_ignore_ascii_case(value))
                    .collect();
                *list = remaining.join(",");
            }
            headers.retain(|(known, list)| known != name || !list.is_empty());
        }
        FieldChange::Drop => headers.retain(|(known, _)| known != name),
        FieldChange::Rename { .. } | FieldChange::AtMost { .. } | FieldChange::Require => {}
    }
}

/// A thinking budget is part of the answer's limit and must be smaller.
fn keep_answer_room(body: &mut Value) {
    let Some(limit) = body.get("max_tokens").and_then(Value::as_u64) else {
        return;
    };
    let Some(budget) = body
        .pointer("/thinking/budget_tokens")
        .and_then(Value::as_u64)
    else {
        return;
    };
    if budget < limit {
        return;
    }
    let smaller = limit.saturating_sub(MIN_ANSWER_TOKENS);
    if smaller >= MIN_THINKING_BUDGET {
        body["thinking"]["budget_tokens"] = smaller.into();
    } else if let Some(fields) = body.as_object_mut() {
        fields.shift_remove("thinking");
    }
}

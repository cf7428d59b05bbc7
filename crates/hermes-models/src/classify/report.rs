//! A parsed error response: status, codes, texts.

use serde_json::Value;

use super::repeated;

/// Maximum length of a displayed message.
const MAX_MESSAGE_CHARS: usize = 500;

/// Keys under which errors store their text.
const MESSAGE_KEYS: &[&str] = &[
    "message",
    "detail",
    "msg",
    "error_description",
    "error_msg",
    "status_msg",
    "errorMessage",
    "description",
    "title",
];

/// Maximum depth of nested errors.
const MAX_DEPTH: usize = 8;

#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct ErrorReport {
    pub status: Option<u16>,
    /// Codes and types found anywhere, lower case.
    pub codes: Vec<String>,
    /// All texts found anywhere, lower case: what rules search.
    pub text: String,
    /// The most informative message, as written.
    pub message: String,
    /// An aggregator passes on the error of an upstream provider.
    pub upstream: bool,
    /// Seconds to wait, stated in the body.
    pub wait: Option<String>,
    /// The response states when to retry: set by the caller, which reads the headers.
    pub states_retry_time: bool,
    /// The raw error.
    pub json: Value,
}

impl ErrorReport {
    pub(crate) fn read(status: Option<u16>, body: &[u8]) -> Self {
        let text = String::from_utf8_lossy(body);
        match serde_json::from_str::<Value>(text.trim()) {
            Ok(value) if value.is_object() || value.is_array() => Self::from_json(status, &value),
            _ => {
                let message = plain(&text);
                Self {
                    status,
                    text: repeated::left_out(&message).to_lowercase(),
                    message,
                    ..Self::default()
                }
            }
        }
    }

    pub(crate) fn from_json(status: Option<u16>, body: &Value) -> Self {
        let mut report = Self {
            status,
            json: body.clone(),
            ..Self::default()
        };
        report.collect(body, 0);
        report.text = report.text.to_lowercase();
        report
    }

    /// The message for people: short, one line, without secrets.
    pub(super) fn shown(&self) -> String {
        let message_text = self
            .message
            .split_whitespace()
            .collect::<Vec<_>>()
            .join(" ");
        let mut shown = hermes_core::text::shorten(&message_text, MAX_MESSAGE_CHARS);
        // Used if the message is in none of the usual fields.
        if shown.is_empty() && !self.json.is_null() {
            shown = hermes_core::text::shorten(&self.json.to_string(), MAX_MESSAGE_CHARS);
        }
        if shown.is_empty() {
            return match self.status {
                Some(_) => "the provider gave no reason".to_owned(),
                None => "an error without text".to_owned(),
            };
        }
        hermes_core::redact::secrets(&shown).into_owned()
    }

    pub(crate) fn has_code(&self, code: &str) -> bool {
        self.codes.iter().any(|mine| mine == code)
    }

    fn collect(&mut self, value: &Value, depth: usize) {
        if depth > MAX_DEPTH {
            return;
        }
        match value {
            // Google wraps its errors in a list.
            Value::Array(items) => items
                .iter()
                .take(4)
                .for_each(|item| self.collect(item, depth + 1)),
            Value::String(text) => self.say(text, depth),
            Value::Object(fields) => {
                for key in [
                    "code",
                    "type",
                    "status",
                    "error_code",
                    "reason",
                    "status_code",
                ] {
                    self.code(fields.get(key));
                }
                if let Some(message) = MESSAGE_KEYS.iter().find_map(|key| fields.get(*key)) {
                    self.collect(message, depth + 1);
                }
                for key in ["error", "errors", "base_resp"] {
                    if let Some(inner) = fields.get(key).filter(|inner| !inner.is_null()) {
                        self.collect(inner, depth + 1);
                    }
                }
                for key in ["retry_after", "retryAfter", "retry_after_seconds"] {
                    if let Some(seconds) = fields.get(key).and_then(Value::as_f64) {
                        self.wait = Some(format!("{seconds}s"));
                    }
                }
                if let Some(metadata) = fields.get("metadata").filter(|m| m.is_object()) {
                    self.metadata(metadata, depth);
                }
                for detail in fields
                    .get("details")
                    .and_then(Value::as_array)
                    .into_iter()
                    .flatten()
                {
                    if let Some(delay) = detail.get("retryDelay").and_then(Value::as_str) {
                        self.wait = Some(delay.to_owned());
                    }
                    self.code(detail.get("reason"));
                }
            }
            _ => {}
        }
    }

    /// OpenRouter's wrapping: the upstream error is JSON text in `raw`.
    fn metadata(&mut self, metadata: &Value, depth: usize) {
        let raw = metadata.get("raw").filter(|raw| !raw.is_null());
        self.upstream |= raw.is_some() || metadata.get("provider_name").is_some();
        if let Some(raw) = raw {
            let outer = std::mem::take(&mut self.message);
            self.collect(raw, depth + 1);
            if self.message.is_empty() {
                self.message = outer;
            }
        }
    }

    /// Adds a text, or the error that it contains as JSON.
    fn say(&mut self, text: &str, depth: usize) {
        let trimmed = text.trim();
        if trimmed.starts_with('{')
            && let Ok(inner) = serde_json::from_str::<Value>(trimmed)
        {
            self.collect(&inner, depth + 1);
            return;
        }
        if trimmed.is_empty() {
            return;
        }
        if self.message.is_empty() {
            trimmed.clone_into(&mut self.message);
        }
        self.text.push_str(&repeated::left_out(trimmed));
        self.text.push('\n');
    }

    fn code(&mut self, value: Option<&Value>) {
        match value {
            Some(Value::String(code)) if !code.is_empty() => {
                self.codes.push(code.to_lowercase());
                self.text.push_str(code);
                self.text.push('\n');
            }
            Some(Value::Number(code)) => {
                let status = code.as_u64().and_then(|code| u16::try_from(code).ok());
                // Inside a stream the code replaces the status.
                if let Some(status) = status.filter(|code| (400..600).contains(code)) {
                    self.status.get_or_insert(status);
                }
                self.codes.push(code.to_string());
            }
            _ => {}
        }
    }
}

/// The readable part of a response that is not JSON, usually a page of a proxy.
fn plain(text: &str) -> String {
    let trimmed = text.trim();
    if !trimmed.starts_with('<') {
        return hermes_core::text::shorten(trimmed, 4_000);
    }
    let title = trimmed
        .split_once("<title>")
        .and_then(|(_, rest)| rest.split_once("</title>"));
    match title {
        Some((title, _)) => format!(
            "a web page: {}",
            hermes_core::text::shorten(title.trim(), 200)
        ),
        None => "a web page instead of an answer".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn wrapped_errors_are_opened() {
        let body = json!({"error": {
            "message": "Provider returned error", "code": 429,
            "metadata": {"provider_name": "Acme", "raw": "{\"error\":{\"message\":\"slow down, please\",\"type\":\"Too_Fast\"}}"},
        }});
        let report = ErrorReport::from_json(None, &body);
        assert!(report.upstream);
        assert_eq!(report.status, Some(429));
        assert_eq!(report.message, "slow down, please");
        assert!(report.has_code("too_fast"));
        assert!(report.text.contains("provider returned error"));
    }

    #[test]
    fn pages_of_proxies_are_named() {
        let page = b"<html><head><title>502 Bad Gateway</title></head>";
        let report = ErrorReport::read(Some(502), page);
        assert_eq!(report.message, "a web page: 502 Bad Gateway");
    }

    #[test]
    fn keys_are_not_repeated() {
        let body =
            br#"{"error":{"message":"Incorrect API key provided: sk-abcdefghijklmnopqrstuv"}}"#;
        let shown = ErrorReport::read(Some(401), body).shown();
        assert!(!shown.contains("ghijklmnop"), "{shown}");
    }
}

//! Showing settings without showing secrets.

use serde_json::{Map, Value};

/// Keys whose text is a credential.
const SECRET_KEYS: [&str; 20] = [
    "api_key",
    "apikey",
    "key",
    "token",
    "access_token",
    "refresh_token",
    "id_token",
    "bot_token",
    "app_token",
    "auth_token",
    "secret",
    "client_secret",
    "password",
    "password_hash",
    "passwd",
    "auth",
    "authorization",
    "private_key",
    "bearer",
    "jwt",
];

/// Mappings whose values may all be credentials.
const SECRET_SECTIONS: [&str; 5] = [
    "env",
    "docker_env",
    "headers",
    "extra_headers",
    "default_headers",
];

/// Whether the value under `key` is to be masked.
pub fn is_secret_key(key: &str) -> bool {
    let key = key.to_lowercase().replace('-', "_");
    let ends = ["_api_key", "_token", "_secret", "_password", "_key_id"];
    SECRET_KEYS.contains(&key.as_str()) || ends.iter().any(|end| key.ends_with(end))
}

/// A copy of `value` with credentials masked.
pub fn redact(value: &Value) -> Value {
    redact_at("", value)
}

fn redact_at(key: &str, value: &Value) -> Value {
    match value {
        Value::String(text) if is_secret_key(key) => Value::String(mask(text)),
        Value::String(text) => Value::String(mask_url(text)),
        Value::Number(number) if is_secret_key(key) => Value::String(mask(&number.to_string())),
        Value::Array(items) => items.iter().map(|item| redact_at(key, item)).collect(),
        Value::Object(map) => {
            let all = SECRET_SECTIONS.contains(&key.to_lowercase().as_str());
            let masked: Map<String, Value> = map
                .iter()
                .map(|(name, value)| {
                    let key = if all && !value.is_object() {
                        "secret"
                    } else {
                        name
                    };
                    (name.clone(), redact_at(key, value))
                })
                .collect();
            Value::Object(masked)
        }
        other => other.clone(),
    }
}

/// Enough of a secret to tell which one it is. A reference to a variable is no secret.
pub fn mask(secret: &str) -> String {
    let is_reference = secret.starts_with("${") && secret.ends_with('}');
    if secret.is_empty() || is_reference {
        return secret.to_owned();
    }
    let chars: Vec<char> = secret.chars().collect();
    if chars.len() < 16 {
        return "****".to_owned();
    }
    let tail: String = chars[chars.len() - 4..].iter().collect();
    format!("****{tail}")
}

/// `scheme://user:password@host` without the password.
fn mask_url(text: &str) -> String {
    let parts = text.split_once("://").and_then(|(scheme, rest)| {
        let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
        let (login, host) = rest[..end].rsplit_once('@')?;
        let (user, _) = login.split_once(':')?;
        Some(format!("{scheme}://{user}:****@{host}{}", &rest[end..]))
    });
    parts.unwrap_or_else(|| text.to_owned())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn credentials_are_masked_wherever_they_stand() {
        let shown = redact(&json!({
            "model": {"api_key": "sk-0123456789abcdef", "default": "x", "base_url": "http://u:pw@h:1/v1"},
            "custom_providers": [{"apiKey": "short"}, {"extra_headers": {"X-Id": "0123456789abcdefgh"}}],
            "mcp_servers": {"a": {"env": {"PATH": "p", "N": 1}, "args": ["-y"]}},
            "telegram": {"bot_token": "123456789:ABCDEFGH"},
            "token_count": 5,
            "api_key": "${OPENAI_API_KEY}",
        }));
        assert_eq!(
            shown,
            json!({
                "model": {"api_key": "****cdef", "default": "x", "base_url": "http://u:****@h:1/v1"},
                "custom_providers": [{"apiKey": "****"}, {"extra_headers": {"X-Id": "****efgh"}}],
                "mcp_servers": {"a": {"env": {"PATH": "****", "N": "****"}, "args": ["-y"]}},
                "telegram": {"bot_token": "****EFGH"},
                "token_count": 5,
                "api_key": "${OPENAI_API_KEY}",
            })
        );
    }
}

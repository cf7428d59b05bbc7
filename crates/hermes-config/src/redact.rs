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

/// Whether the value at this path is a secret: by its own name, or because everything in its
/// mapping may be one.
pub fn is_secret_path(path: &[String]) -> bool {
    let mut names = path
        .iter()
        .rev()
        .filter(|part| part.parse::<usize>().is_err());
    let Some(last) = names.next() else {
        return false;
    };
    let parent = names.next().map(|name| name.to_lowercase());
    is_secret_key(last) || parent.is_some_and(|it| SECRET_SECTIONS.contains(&it.as_str()))
}

/// A copy of `value` with credentials masked.
pub fn redact(value: &Value) -> Value {
    redact_at("", value)
}

/// The same for the value at `path`.
pub fn redact_below(path: &[String], value: &Value) -> Value {
    if is_secret_path(path) && !value.is_object() {
        return redact_at("secret", value);
    }
    redact_at(path.last().map_or("", String::as_str), value)
}

fn redact_at(key: &str, value: &Value) -> Value {
    match value {
        Value::String(text) if is_secret_key(key) => Value::String(mask(text)),
        // What looks like the key of a service is one, whatever its name: an argument of a
        // server, a note.
        Value::String(text) => Value::String(hermes_core::redact::keys(&url(text)).into_owned()),
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

/// An address without the password of its login and without keys among its parameters. Other text
/// stays as it is.
pub fn url(text: &str) -> String {
    let Some((scheme, rest)) = text.split_once("://") else {
        return text.to_owned();
    };
    let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
    let (place, rest) = rest.split_at(end);
    let login = place
        .rsplit_once('@')
        .and_then(|(login, host)| Some((login.split_once(':')?.0, host)));
    let place = match login {
        Some((user, host)) => format!("{user}:****@{host}"),
        None => place.to_owned(),
    };
    let rest = match rest.split_once('?') {
        Some((path, query)) => format!("{path}?{}", parameters(query)),
        None => rest.to_owned(),
    };
    format!("{scheme}://{place}{rest}")
}

fn parameters(query: &str) -> String {
    let shown: Vec<String> = query
        .split('&')
        .map(|pair| match pair.split_once('=') {
            Some((name, value)) if is_secret_key(name) => format!("{name}={}", mask(value)),
            _ => pair.to_owned(),
        })
        .collect();
    shown.join("&")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn addresses_show_no_credentials() {
        for (address, shown) in [
            ("http://u:p@ss@h:1/v1", "http://u:****@h:1/v1"),
            (
                "https://h/v1?api_key=0123456789abcdef&version=2",
                "https://h/v1?api_key=****cdef&version=2",
            ),
            ("https://h?token=short", "https://h?token=****"),
            ("https://h/a@b:c?x=1#y", "https://h/a@b:c?x=1#y"),
            ("no address: a?key=b", "no address: a?key=b"),
        ] {
            assert_eq!(url(address), shown);
        }
    }

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

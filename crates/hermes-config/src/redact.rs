//! Displaying settings without secrets.

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

/// Whether the value under `key` is masked.
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

/// Like [`redact`], for the value at `path`.
pub fn redact_below(path: &[String], value: &Value) -> Value {
    if is_secret_path(path) && !value.is_object() {
        return redact_at("secret", value);
    }
    redact_at(path.last().map_or("", String::as_str), value)
}

fn redact_at(key: &str, value: &Value) -> Value {
    match value {
        Value::String(text) if is_secret_key(key) => Value::String(mask(text)),
        // A text that looks like a service's key is masked under any name: an argument of a server,
        // a note.
        Value::String(text) => Value::String(hermes_core::redact::keys(&url(text)).into_owned()),
        Value::Number(number) if is_secret_key(key) => Value::String(mask(&number.to_string())),
        Value::Array(items) => {
            let mut before = None;
            let shown = items.iter().map(|item| {
                let text = item.as_str();
                let secret = text.and_then(|text| secret_argument(before, text));
                before = text;
                match (secret, text) {
                    (Some(secret), Some(text)) => {
                        let start = &text[..text.len() - secret.len()];
                        Value::String(format!("{start}{}", mask(secret)))
                    }
                    _ => redact_at(key, item),
                }
            });
            shown.collect()
        }
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

/// The credential in a program argument: `--token VALUE`, `--token=VALUE`, `-e API_KEY=VALUE`. It
/// is the end of the text.
pub fn secret_argument<'a>(before: Option<&str>, text: &'a str) -> Option<&'a str> {
    let names_secret = |name: &str| {
        let name = name.trim_start_matches('-');
        is_secret_key(name) || crate::secrets::is_secret_name(&name.replace('-', "_"))
    };
    if let Some((name, value)) = text.split_once('=')
        && !name.contains([' ', '/', ':'])
    {
        return (names_secret(name) && !value.is_empty()).then_some(value);
    }
    let option = before.filter(|before| before.starts_with('-') && !before.contains('='));
    let is_value = !text.starts_with('-') && !text.is_empty();
    (is_value && option.is_some_and(names_secret)).then_some(text)
}

/// Credentials in an address: its password, and keys among its parameters.
pub(crate) fn secrets_of_address(text: &str) -> Vec<&str> {
    let Some((_, rest)) = text.split_once("://") else {
        return Vec::new();
    };
    let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
    let (location, rest) = rest.split_at(end);
    let password = location
        .rsplit_once('@')
        .and_then(|(login, _)| Some(login.split_once(':')?.1));
    let query = rest.split_once('?').map_or("", |(_, query)| query);
    let keys = query.split(['&', '#']).filter_map(|pair| {
        let (name, value) = pair.split_once('=')?;
        is_secret_key(name).then_some(value)
    });
    password.into_iter().chain(keys).collect()
}

/// Enough of a secret to recognise it. A reference to a variable is not a secret.
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

/// An address without its password and keys among its parameters. Other text is unchanged.
pub fn url(text: &str) -> String {
    let Some((scheme, rest)) = text.split_once("://") else {
        return text.to_owned();
    };
    let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
    let (location, rest) = rest.split_at(end);
    let login = location
        .rsplit_once('@')
        .and_then(|(login, host)| Some((login.split_once(':')?.0, host)));
    let location = match login {
        Some((user, host)) => format!("{user}:****@{host}"),
        None => location.to_owned(),
    };
    let rest = match rest.split_once('?') {
        Some((path, query)) => format!("{path}?{}", parameters(query)),
        None => rest.to_owned(),
    };
    format!("{scheme}://{location}{rest}")
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
    fn credentials_among_arguments_are_masked() {
        let shown = redact(&json!({"args": [
            "--token", "hunter2hunter2", "--password=hunter2", "-e", "MY_API_KEY=hunter2", "--port", "80", "--auth-token", "--verbose",
            "--url=http://u:hunter2@h/x",
        ]}));
        assert_eq!(
            shown,
            json!({"args": [
                "--token", "****", "--password=****", "-e", "MY_API_KEY=****", "--port", "80", "--auth-token", "--verbose",
                "--url=http://u:****@h/x",
            ]})
        );
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

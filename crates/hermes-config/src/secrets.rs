//! Which values of a home are secrets: they are never shown ([`hermes_core::redact::remember`]).

use std::path::Path;

use hermes_core::redact;
use serde_json::Value;

use crate::env::Env;
use crate::home::Home;
use crate::redact::{is_secret_key, secret_argument, secrets_of_address};

/// Words in the names of secret variables.
const SECRET_WORDS: [&str; 13] = [
    "APIKEY",
    "BEARER",
    "CREDENTIAL",
    "CREDENTIALS",
    "CREDS",
    "DSN",
    "KEY",
    "PASSPHRASE",
    "PASSWD",
    "PASSWORD",
    "SECRET",
    "TOKEN",
    "WEBHOOK",
];

/// Larger files are not credential stores.
const MAX_FILE: u64 = 1 << 20;

/// Hides the secrets of this home from now on: of its `.env` and the environment, of `auth.json`,
/// of the MCP logins. Unreadable files are skipped.
pub fn remember(home: &Home, env: &Env) {
    redact::remember(values(home, env));
}

/// The secrets of this home's `.env` and the environment, of `auth.json`, of the MCP logins: name
/// and value.
pub fn values(home: &Home, env: &Env) -> Vec<(String, String)> {
    let mut found: Vec<(String, String)> = env
        .iter()
        .filter(|(name, value)| is_secret_name(name) && is_distinctive(value))
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .collect();
    collect(&home.auth_path(), &mut found);
    let logins = std::fs::read_dir(home.join("mcp-tokens"));
    for file in logins.into_iter().flatten().flatten() {
        collect(&file.path(), &mut found);
    }
    found
}

/// Like [`remember`], for config.yaml: keys of endpoints, of servers, of search services.
pub fn remember_config(tree: &Value) {
    redact::remember(config_values(tree));
}

/// The secrets in config.yaml: name and value.
pub fn config_values(tree: &Value) -> Vec<(String, String)> {
    let mut found = Vec::new();
    walk("config", "", tree, &mut found);
    found.retain(|(_, value)| is_distinctive(value) && !value.contains("${"));
    found
}

/// Whether a variable of this name contains a secret.
pub fn is_secret_name(name: &str) -> bool {
    let name = name.to_ascii_uppercase();
    name.split('_').any(|word| SECRET_WORDS.contains(&word))
}

/// Hiding a path or a dictionary word would hide more than the secret.
fn is_distinctive(value: &str) -> bool {
    let path = value.starts_with(['/', '~', '.']);
    let word = value.len() < 12 && value.bytes().all(|byte| byte.is_ascii_alphabetic());
    !path && !word
}

fn collect(path: &Path, found: &mut Vec<(String, String)>) {
    let small = std::fs::metadata(path).is_ok_and(|meta| meta.is_file() && meta.len() <= MAX_FILE);
    if !small {
        return;
    }
    let value = std::fs::read(path)
        .ok()
        .and_then(|bytes| serde_json::from_slice::<Value>(&bytes).ok());
    if let Some(value) = value {
        let file = path.file_stem().and_then(|name| name.to_str());
        walk(file.unwrap_or("file"), "", &value, found);
    }
}

fn walk(file: &str, key: &str, value: &Value, found: &mut Vec<(String, String)>) {
    match value {
        Value::String(text) if is_secret_key(key) => {
            found.push((format!("{file} {key}"), text.clone()));
        }
        Value::String(text) => {
            let name = format!("{file} {key}");
            let secrets = secrets_of_address(text).into_iter();
            found.extend(secrets.map(|secret| (name.clone(), secret.to_owned())));
        }
        Value::Array(items) => {
            let mut before = None;
            for item in items {
                let text = item.as_str();
                match text.and_then(|text| secret_argument(before, text)) {
                    Some(secret) => found.push((format!("{file} {key}"), secret.to_owned())),
                    None => walk(file, key, item, found),
                }
                before = text;
            }
        }
        Value::Object(fields) => fields
            .iter()
            .for_each(|(key, value)| walk(file, key, value, found)),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::env::ProcessEnv;

    #[test]
    fn secrets_of_a_home_are_hidden_and_its_settings_are_not() {
        let dir = tempfile::tempdir().unwrap();
        let home = Home::at(dir.path());
        std::fs::write(
            home.env_path(),
            "LAB_API_KEY=0f1e2d3c4b5a\nTERMINAL_CWD=/home/me/projects\nKEYBOARD=qwertz-1234\nSSL_KEY=/etc/ssl/key.pem\nMY_PASSWORD=disabled\n",
        )
        .unwrap();
        std::fs::write(
            home.auth_path(),
            r#"{"pool": [{"access_token": "zzyyxxwwvvuu", "label": "my first account"}]}"#,
        )
        .unwrap();
        let env = Env::load(&home, &ProcessEnv::default()).unwrap();
        remember(&home, &env);
        assert_eq!(
            redact::known("0f1e2d3c4b5a /home/me/projects zzyyxxwwvvuu my first account"),
            "[hidden: LAB_API_KEY] /home/me/projects [hidden: auth access_token] my first account"
        );
        let plain = "qwertz-1234 /etc/ssl/key.pem disabled";
        assert_eq!(redact::known(plain), plain);
    }

    #[test]
    fn keys_in_the_config_are_hidden() {
        remember_config(&serde_json::json!({
            "model": {"default": "some-model-name", "api_key": "own-endpoint-4711"},
            "providers": {"lab": {"api_key": "${LAB_API_KEY}"}},
        }));
        let values = config_values(&serde_json::json!({"mcp_servers": {"a": {
            "args": ["--token", "value-of-token", "--password=value-of-password", "--port", "8080-8090"],
            "url": "https://u:value-of-login@h/mcp?api_key=value-of-query&page=first-page-1",
        }}}));
        let values: Vec<&str> = values.iter().map(|(_, value)| value.as_str()).collect();
        assert_eq!(
            values,
            [
                "value-of-token",
                "value-of-password",
                "value-of-login",
                "value-of-query"
            ]
        );
        assert_eq!(
            redact::known("own-endpoint-4711 some-model-name ${LAB_API_KEY}"),
            "[hidden: config api_key] some-model-name ${LAB_API_KEY}"
        );
    }
}

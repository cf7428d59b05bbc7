//! Adding and removing keys in auth.json.
//!
//! The format is that of the Python original, which reads and writes the same file. Everything else
//! in it is left unchanged.

use std::path::PathBuf;
use std::time::Duration;

use chrono::{DateTime, SecondsFormat, Utc};
use hermes_config::fs::FileLock;
use secrecy::{ExposeSecret as _, SecretString};
use serde_json::{Map, Value, json};

use super::KeyStatus;
use super::store::{AuthStore, AuthStoreError, read, status_of, write};

/// A person can wait longer for another program than a turn can.
const LOCK_TIMEOUT: Duration = Duration::from_secs(5);

/// The fields that hold the state of a key.
const STATE: [&str; 6] = [
    "last_status",
    "last_status_at",
    "last_error_code",
    "last_error_reason",
    "last_error_message",
    "last_error_reset_at",
];

/// A pool entry for display, without its secret.
#[derive(Clone, Debug, PartialEq)]
pub struct KeyEntry {
    pub id: String,
    pub label: String,
    /// `api_key`, or a kind of login.
    pub kind: String,
    /// `manual`, `env:VAR`, `config:<name>`, …
    pub source: String,
    pub status: KeyStatus,
    pub error_code: Option<u64>,
    pub error_message: Option<String>,
    pub request_count: u64,
    pub base_url: Option<String>,
    /// Whether the file contains the secret itself.
    pub holds_secret: bool,
}

/// The entries of a provider and the file they are in.
#[derive(Clone, Debug, Default)]
pub struct ProviderKeys {
    pub path: PathBuf,
    pub entries: Vec<KeyEntry>,
}

/// A key to add.
#[derive(Clone, Debug)]
pub struct NewKey {
    /// Six hexadecimal digits.
    pub id: String,
    /// Without one it is numbered: `api-key-2`.
    pub label: Option<String>,
    pub secret: SecretString,
    pub base_url: String,
}

/// The result of adding a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AddKeyResult {
    /// The assigned label.
    As(String),
    /// The same secret is already stored under this label.
    Known(String),
}

impl AuthStore {
    /// The entries of a provider in order of use: those of the profile, or else of the root.
    pub fn entries(&self, provider: &str) -> Result<ProviderKeys, AuthStoreError> {
        for path in self.files() {
            let Some(document) = read(path)? else {
                continue;
            };
            let Some(rows) = rows(&document, provider).filter(|rows| !rows.is_empty()) else {
                continue;
            };
            return Ok(ProviderKeys {
                path: path.clone(),
                entries: ordered(rows).into_iter().map(entry).collect(),
            });
        }
        Ok(ProviderKeys::default())
    }

    /// Providers with a login of their own (`providers` of either file).
    pub fn logins(&self) -> Result<Vec<String>, AuthStoreError> {
        let mut names = Vec::new();
        for path in self.files() {
            let document = read(path)?.unwrap_or_default();
            let logins = document.get("providers").and_then(Value::as_object);
            for (name, login) in logins.into_iter().flatten() {
                let filled = login.as_object().is_some_and(|login| !login.is_empty());
                if filled && !names.contains(name) {
                    names.push(name.clone());
                }
            }
        }
        Ok(names)
    }

    /// Key sources of a provider that the person removed (`env:VAR`): not to be used.
    pub fn suppressed(&self, provider: &str) -> Vec<String> {
        let Ok(Some(document)) = read(self.own()) else {
            return Vec::new();
        };
        let list = document
            .get("suppressed_sources")
            .and_then(|all| all.get(provider))
            .and_then(Value::as_array);
        let words = list.into_iter().flatten().filter_map(Value::as_str);
        words.map(str::to_owned).collect()
    }

    /// Adds a key to the home's own file. Removed sources of this provider are enabled again.
    pub fn add_key(
        &self,
        provider: &str,
        key: &NewKey,
        now: DateTime<Utc>,
    ) -> Result<AddKeyResult, AuthStoreError> {
        let secret = key.secret.expose_secret();
        self.change(now, |document| {
            let mut rows = list(document, "credential_pool", provider);
            let same = rows
                .iter()
                .find(|row| row.get("access_token").and_then(Value::as_str) == Some(secret));
            if let Some(row) = same.and_then(Value::as_object) {
                return (false, AddKeyResult::Known(entry(row).label));
            }
            let label = key
                .label
                .clone()
                .unwrap_or_else(|| format!("api-key-{}", rows.len() + 1));
            let last = rows.iter().map(priority).max();
            let mut row = json!({
                "id": key.id,
                "label": label,
                "auth_type": "api_key",
                "priority": last.map_or(0, |last| last + 1),
                "source": "manual",
                "access_token": secret,
            });
            for field in STATE {
                row[field] = Value::Null;
            }
            row["base_url"] = json!(key.base_url);
            row["request_count"] = json!(0);
            rows.push(row);
            put(document, "credential_pool", provider, json!(rows));
            if let Some(all) = document
                .get_mut("suppressed_sources")
                .and_then(Value::as_object_mut)
            {
                all.shift_remove(provider);
            }
            (true, AddKeyResult::As(label))
        })
    }

    /// Removes an entry from the home's own file; the others move up.
    pub fn remove_entry(
        &self,
        provider: &str,
        id: &str,
        now: DateTime<Utc>,
    ) -> Result<bool, AuthStoreError> {
        self.change(now, |document| {
            let Some(rows) = rows_mut(document, provider) else {
                return (false, false);
            };
            let before = rows.len();
            rows.retain(|row| row.get("id").and_then(Value::as_str) != Some(id));
            let removed = rows.len() != before;
            rows.sort_by_key(priority);
            for (index, row) in rows.iter_mut().enumerate() {
                if let Some(row) = row.as_object_mut() {
                    row.insert("priority".to_owned(), json!(index));
                }
            }
            (removed, removed)
        })
    }

    /// Disables keys of this source.
    pub fn suppress(
        &self,
        provider: &str,
        source: &str,
        now: DateTime<Utc>,
    ) -> Result<(), AuthStoreError> {
        self.change(now, |document| {
            let mut sources = list(document, "suppressed_sources", provider);
            let known = sources.iter().any(|word| word == source);
            if !known {
                sources.push(json!(source));
                put(document, "suppressed_sources", provider, json!(sources));
            }
            (!known, ())
        })
    }

    /// Enables keys of this source again.
    pub fn unsuppress(
        &self,
        provider: &str,
        source: &str,
        now: DateTime<Utc>,
    ) -> Result<(), AuthStoreError> {
        // Without a file there is nothing to undo, and none is created.
        if !self.suppressed(provider).iter().any(|word| word == source) {
            return Ok(());
        }
        self.change(now, |document| {
            let mut sources = list(document, "suppressed_sources", provider);
            sources.retain(|word| word != source);
            put(document, "suppressed_sources", provider, json!(sources));
            (true, ())
        })
    }

    /// Clears the state of a provider's keys. Returns how many had any.
    pub fn reset(&self, provider: &str, now: DateTime<Utc>) -> Result<usize, AuthStoreError> {
        self.change(now, |document| {
            let mut count = 0;
            for row in rows_mut(document, provider).into_iter().flatten() {
                let Some(row) = row.as_object_mut() else {
                    continue;
                };
                let marked = STATE
                    .iter()
                    .any(|field| row.get(*field).is_some_and(|value| !value.is_null()));
                if marked {
                    count += 1;
                    for field in STATE {
                        row.insert(field.to_owned(), Value::Null);
                    }
                }
            }
            (count > 0, count)
        })
    }

    /// Deletes everything stored for a provider. `false`: there was nothing.
    pub fn forget(&self, provider: &str, now: DateTime<Utc>) -> Result<bool, AuthStoreError> {
        self.change(now, |document| {
            let mut cleared = false;
            for section in ["providers", "credential_pool"] {
                if let Some(section) = document.get_mut(section).and_then(Value::as_object_mut) {
                    cleared |= section.shift_remove(provider).is_some();
                }
            }
            if document.get("active_provider").and_then(Value::as_str) == Some(provider) {
                document.insert("active_provider".to_owned(), Value::Null);
                cleared = true;
            }
            (cleared, cleared)
        })
    }

    /// Changes the home's own file under the lock that the original takes too. It is written only
    /// if something changed.
    fn change<T>(
        &self,
        now: DateTime<Utc>,
        edit: impl FnOnce(&mut Map<String, Value>) -> (bool, T),
    ) -> Result<T, AuthStoreError> {
        let path = self.own();
        let _lock = FileLock::acquire(&path.with_file_name("auth.lock"), LOCK_TIMEOUT)?;
        let mut document = match read(path)? {
            Some(Value::Object(document)) => document,
            Some(_) => return Err(AuthStoreError::NoObject(path.clone())),
            None => Map::from_iter([
                ("version".to_owned(), json!(1)),
                ("providers".to_owned(), json!({})),
            ]),
        };
        let (changed, result) = edit(&mut document);
        if changed {
            let stamp = now.to_rfc3339_opts(SecondsFormat::Micros, false);
            document.insert("updated_at".to_owned(), json!(stamp));
            write(path, &Value::Object(document))?;
        }
        Ok(result)
    }
}

fn list(document: &Map<String, Value>, section: &str, name: &str) -> Vec<Value> {
    let found = document.get(section).and_then(|section| section.get(name));
    found.and_then(Value::as_array).cloned().unwrap_or_default()
}

fn put(document: &mut Map<String, Value>, section: &str, name: &str, value: Value) {
    let slot = document
        .entry(section.to_owned())
        .or_insert_with(|| json!({}));
    if !slot.is_object() {
        *slot = json!({});
    }
    slot[name] = value;
}

fn rows<'a>(document: &'a Value, provider: &str) -> Option<&'a Vec<Value>> {
    document.get("credential_pool")?.get(provider)?.as_array()
}

fn rows_mut<'a>(
    document: &'a mut Map<String, Value>,
    provider: &str,
) -> Option<&'a mut Vec<Value>> {
    document
        .get_mut("credential_pool")?
        .get_mut(provider)?
        .as_array_mut()
}

fn priority(row: &Value) -> i64 {
    row.get("priority").and_then(Value::as_i64).unwrap_or(0)
}

fn ordered(rows: &[Value]) -> Vec<&Map<String, Value>> {
    let mut rows: Vec<&Value> = rows.iter().collect();
    rows.sort_by_key(|row| priority(row));
    rows.into_iter().filter_map(Value::as_object).collect()
}

fn entry(row: &Map<String, Value>) -> KeyEntry {
    let text = |key: &str| {
        row.get(key)
            .and_then(Value::as_str)
            .map(str::trim)
            .filter(|text| !text.is_empty())
            .map(str::to_owned)
    };
    let source = text("source").unwrap_or_else(|| "manual".to_owned());
    KeyEntry {
        id: text("id").unwrap_or_default(),
        label: text("label").unwrap_or_else(|| source.clone()),
        kind: text("auth_type").unwrap_or_else(|| "api_key".to_owned()),
        status: status_of(row),
        error_code: row.get("last_error_code").and_then(Value::as_u64),
        error_message: text("last_error_message"),
        request_count: row
            .get("request_count")
            .and_then(Value::as_u64)
            .unwrap_or(0),
        base_url: text("base_url"),
        holds_secret: text("access_token").is_some(),
        source,
    }
}

#[cfg(test)]
mod tests {
    use hermes_config::home::Home;

    use super::*;

    fn now() -> DateTime<Utc> {
        DateTime::from_timestamp(1_800_000_000, 0).unwrap()
    }

    fn key(id: &str, secret: &str, label: Option<&str>) -> NewKey {
        NewKey {
            id: id.to_owned(),
            label: label.map(str::to_owned),
            secret: SecretString::from(secret.to_owned()),
            base_url: "https://openrouter.ai/api/v1".to_owned(),
        }
    }

    fn store() -> (tempfile::TempDir, AuthStore) {
        let dir = tempfile::tempdir().unwrap();
        let store = AuthStore::new(&Home::at(dir.path()));
        (dir, store)
    }

    #[test]
    fn a_key_is_added_once_listed_without_its_secret_and_removed() {
        let (dir, store) = store();
        let add = |key: NewKey| store.add_key("openrouter", &key, now()).unwrap();
        assert_eq!(
            add(key("aaaaaa", "sk-1", Some("work"))),
            AddKeyResult::As("work".into())
        );
        assert_eq!(
            add(key("bbbbbb", "sk-2", None)),
            AddKeyResult::As("api-key-2".into())
        );
        assert_eq!(
            add(key("cccccc", "sk-1", None)),
            AddKeyResult::Known("work".into())
        );

        let listed = store.entries("openrouter").unwrap().entries;
        let labels: Vec<&str> = listed.iter().map(|entry| entry.label.as_str()).collect();
        assert_eq!(labels, ["work", "api-key-2"]);
        assert!(listed[0].holds_secret && !format!("{listed:?}").contains("sk-1"));

        assert!(store.remove_entry("openrouter", "aaaaaa", now()).unwrap());
        assert!(!store.remove_entry("openrouter", "aaaaaa", now()).unwrap());
        let text = std::fs::read_to_string(dir.path().join("auth.json")).unwrap();
        let document: Value = serde_json::from_str(&text).unwrap();
        assert_eq!(document["credential_pool"]["openrouter"][0]["priority"], 0);
        assert!(!text.contains("sk-1"));
    }

    #[test]
    fn what_was_taken_away_comes_back_with_the_next_key() {
        let (_dir, store) = store();
        store
            .suppress("openrouter", "env:OPENROUTER_API_KEY", now())
            .unwrap();
        assert_eq!(store.suppressed("openrouter"), ["env:OPENROUTER_API_KEY"]);
        store.unsuppress("openrouter", "env:OTHER", now()).unwrap();
        assert_eq!(store.suppressed("openrouter").len(), 1);
        store
            .add_key("openrouter", &key("aaaaaa", "sk-1", None), now())
            .unwrap();
        assert!(store.suppressed("openrouter").is_empty());
    }

    #[test]
    fn resetting_and_forgetting_touch_nothing_else() {
        let (dir, store) = store();
        let path = dir.path().join("auth.json");
        let before = json!({
            "future": [1], "active_provider": "nous", "providers": {"nous": {"access_token": "t"}},
            "credential_pool": {"openrouter": [{"id": "a", "access_token": "sk", "priority": 0,
                "last_status": "exhausted", "last_error_code": 429, "mystery": true}]}
        });
        std::fs::write(&path, before.to_string()).unwrap();
        assert_eq!(store.reset("openrouter", now()).unwrap(), 1);
        assert_eq!(store.reset("openrouter", now()).unwrap(), 0);
        assert!(store.forget("nous", now()).unwrap());
        assert!(!store.forget("nous", now()).unwrap());
        let after: Value = serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
        assert_eq!(after["future"], json!([1]));
        assert_eq!(after["active_provider"], Value::Null);
        assert_eq!(after["providers"], json!({}));
        let row = &after["credential_pool"]["openrouter"][0];
        assert_eq!(
            (&row["mystery"], &row["last_status"]),
            (&json!(true), &Value::Null)
        );
    }

    #[test]
    fn a_broken_file_is_never_written() {
        let (dir, store) = store();
        let path = dir.path().join("auth.json");
        for broken in ["{ not json", "[]"] {
            std::fs::write(&path, broken).unwrap();
            assert!(
                store
                    .add_key("openrouter", &key("aaaaaa", "sk-1", None), now())
                    .is_err()
            );
            assert_eq!(std::fs::read_to_string(&path).unwrap(), broken);
        }
    }
}

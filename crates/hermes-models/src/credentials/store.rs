//! auth.json: the keys and logins of the home, shared with the Python original.
//!
//! Only the state of pool entries is written (status, error, reset time, request count). All other
//! fields, known or not, are kept. A file that cannot be read is never written.

use std::path::{Path, PathBuf};
use std::time::Duration;

use chrono::{DateTime, SecondsFormat, Utc};
use hermes_config::fs::{FileLock, write_atomic};
use hermes_config::home::Home;
use secrecy::SecretString;
use serde_json::{Map, Value, json};

use super::pool::cooldown_until;
use super::{Credential, KeyFailure, KeyStatus, fingerprint, is_usable_for};

/// How long a write waits for the lock. The state in memory is authoritative for this process, so a
/// write that cannot be done soon is dropped.
const LOCK_TIMEOUT: Duration = Duration::from_millis(500);

#[derive(Debug, thiserror::Error)]
pub enum AuthStoreError {
    #[error("cannot read {}: {source}", .path.display())]
    Read {
        path: PathBuf,
        source: std::io::Error,
    },
    #[error("{} is not valid JSON ({source}); it was left as it is", .path.display())]
    Parse {
        path: PathBuf,
        source: serde_json::Error,
    },
    #[error("cannot write {}: {source}", .path.display())]
    Write {
        path: PathBuf,
        source: std::io::Error,
    },
    #[error("{} is not a JSON object; it was left as it is", .0.display())]
    NoObject(PathBuf),
    #[error(transparent)]
    Lock(#[from] hermes_config::fs::LockError),
}

/// The auth.json of a home. A profile without entries for a provider uses those of the root home.
#[derive(Clone, Debug)]
pub struct AuthStore {
    own: PathBuf,
    root: Option<PathBuf>,
}

/// The entries of one provider and the file they are in.
#[derive(Clone, Debug, Default)]
pub struct StoredPool {
    pub path: PathBuf,
    pub credentials: Vec<Credential>,
    /// Entries whose secret is stored elsewhere (`env:…`, `config:…`) and that only keep state
    /// here.
    pub external: Vec<ExternalKeyState>,
}

/// State of a key that auth.json itself does not contain.
#[derive(Clone, Debug)]
pub struct ExternalKeyState {
    pub id: String,
    /// `env:VAR`, `config:<name>`, `model_config`.
    pub source: String,
    pub fingerprint: Option<String>,
    pub status: KeyStatus,
    pub request_count: u64,
}

impl AuthStore {
    pub fn new(home: &Home) -> Self {
        let root = home.profiles_root().join("auth.json");
        let own = home.auth_path();
        Self {
            root: (root != own).then_some(root),
            own,
        }
    }

    /// The home's own file.
    pub(super) fn own(&self) -> &PathBuf {
        &self.own
    }

    /// The home's own file, then the fallback.
    pub(super) fn files(&self) -> impl Iterator<Item = &PathBuf> {
        std::iter::once(&self.own).chain(&self.root)
    }

    /// The pool of `provider` (an id, or `custom:<name>`). A missing file is an empty pool.
    pub fn pool(&self, provider: &str, now: DateTime<Utc>) -> Result<StoredPool, AuthStoreError> {
        for path in self.files() {
            let Some(document) = read(path)? else {
                continue;
            };
            let entries = document
                .get("credential_pool")
                .and_then(|pools| pools.get(provider))
                .and_then(Value::as_array);
            if let Some(entries) = entries.filter(|entries| !entries.is_empty()) {
                return Ok(stored_pool(provider, path, entries, now));
            }
            if provider == "nous"
                && let Some(login) = document.pointer("/providers/nous")
                && let Some(credential) = nous_login(login, "nous login", now)
            {
                return Ok(StoredPool {
                    path: path.clone(),
                    credentials: vec![credential],
                    external: Vec::new(),
                });
            }
        }
        Ok(StoredPool::default())
    }

    /// Providers with an entry in either file, those of the own file first.
    pub fn providers(&self) -> Result<Vec<String>, AuthStoreError> {
        let mut names: Vec<String> = Vec::new();
        for path in self.files() {
            let Some(document) = read(path)? else {
                continue;
            };
            let pools = document.get("credential_pool").and_then(Value::as_object);
            for (name, entries) in pools.into_iter().flatten() {
                let filled = entries
                    .as_array()
                    .is_some_and(|entries| !entries.is_empty());
                if filled && !names.contains(name) {
                    names.push(name.clone());
                }
            }
        }
        Ok(names)
    }

    /// The provider of the last login (`active_provider`).
    pub fn active_provider(&self) -> Result<Option<String>, AuthStoreError> {
        for path in self.files() {
            if let Some(document) = read(path)?
                && let Some(name) = document.get("active_provider").and_then(Value::as_str)
            {
                return Ok(Some(name.to_owned()));
            }
        }
        Ok(None)
    }

    /// Writes the state of one entry. `Ok(false)`: the file or the entry is gone; nothing is
    /// created.
    pub fn save_state(
        &self,
        path: &Path,
        provider: &str,
        credential: &Credential,
        failure: Option<&KeyFailure>,
        now: DateTime<Utc>,
    ) -> Result<bool, AuthStoreError> {
        if !path.is_file() {
            return Ok(false);
        }
        let _lock = FileLock::acquire(&path.with_file_name("auth.lock"), LOCK_TIMEOUT)?;
        let Some(mut document) = read(path)? else {
            return Ok(false);
        };
        let entry = document
            .get_mut("credential_pool")
            .and_then(|pools| pools.get_mut(provider))
            .and_then(Value::as_array_mut)
            .and_then(|entries| {
                entries
                    .iter_mut()
                    .find(|entry| entry.get("id").and_then(Value::as_str) == Some(&credential.id))
            })
            .and_then(Value::as_object_mut);
        let Some(entry) = entry else {
            return Ok(false);
        };
        set_state(entry, credential, failure, now);
        if let Some(document) = document.as_object_mut() {
            let stamp = now.to_rfc3339_opts(SecondsFormat::Micros, false);
            document.insert("updated_at".to_owned(), json!(stamp));
        }
        write(path, &document)?;
        Ok(true)
    }
}

fn set_state(
    entry: &mut Map<String, Value>,
    credential: &Credential,
    failure: Option<&KeyFailure>,
    now: DateTime<Utc>,
) {
    let seconds = |time: DateTime<Utc>| time.timestamp_micros() as f64 / 1e6;
    entry.insert("request_count".to_owned(), json!(credential.request_count));
    let Some(failure) = failure else {
        return;
    };
    let status = match credential.status {
        KeyStatus::Ready => "ok",
        KeyStatus::Exhausted(_) => "exhausted",
        KeyStatus::Dead => "dead",
    };
    entry.insert("last_status".to_owned(), json!(status));
    entry.insert("last_status_at".to_owned(), json!(seconds(now)));
    entry.insert("last_error_code".to_owned(), json!(failure.status));
    entry.insert("last_error_reason".to_owned(), json!(failure.dead_reason()));
    let message: String = failure.message.chars().take(300).collect();
    entry.insert("last_error_message".to_owned(), json!(message));
    entry.insert(
        "last_error_reset_at".to_owned(),
        json!(failure.reset_at.map(seconds)),
    );
}

pub(super) fn read(path: &Path) -> Result<Option<Value>, AuthStoreError> {
    let bytes = match std::fs::read(path) {
        Ok(bytes) => bytes,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(source) => {
            return Err(AuthStoreError::Read {
                path: path.to_owned(),
                source,
            });
        }
    };
    serde_json::from_slice(&bytes)
        .map(Some)
        .map_err(|source| AuthStoreError::Parse {
            path: path.to_owned(),
            source,
        })
}

pub(super) fn write(path: &Path, document: &Value) -> Result<(), AuthStoreError> {
    let mut bytes =
        serde_json::to_vec_pretty(document).map_err(|source| AuthStoreError::Parse {
            path: path.to_owned(),
            source,
        })?;
    bytes.push(b'\n');
    write_atomic(path, &bytes, 0o600).map_err(|source| AuthStoreError::Write {
        path: path.to_owned(),
        source,
    })
}

fn stored_pool(provider: &str, path: &Path, entries: &[Value], now: DateTime<Utc>) -> StoredPool {
    let mut ordered: Vec<&Map<String, Value>> =
        entries.iter().filter_map(Value::as_object).collect();
    ordered.sort_by_key(|entry| entry.get("priority").and_then(Value::as_i64).unwrap_or(0));
    let mut pool = StoredPool {
        path: path.to_owned(),
        ..StoredPool::default()
    };
    for entry in ordered {
        let text = |key: &str| {
            entry
                .get(key)
                .and_then(Value::as_str)
                .map(str::trim)
                .filter(|t| !t.is_empty())
        };
        let source = text("source").unwrap_or("manual");
        let Some(token) = text("access_token") else {
            pool.external.push(ExternalKeyState {
                id: text("id").unwrap_or_default().to_owned(),
                source: source.to_owned(),
                fingerprint: text("secret_fingerprint").map(str::to_owned),
                status: status_of(entry),
                request_count: request_count(entry),
            });
            continue;
        };
        let name = text("label").or_else(|| text("id")).unwrap_or(source);
        if provider == "nous" && text("auth_type") != Some("api_key") {
            pool.credentials
                .extend(nous_login(&Value::Object(entry.clone()), name, now));
            continue;
        }
        // Logins of other vendors' clients are not used.
        if text("auth_type").is_some_and(|kind| kind != "api_key")
            || !is_usable_for(provider, token)
        {
            continue;
        }
        pool.credentials.push(Credential {
            id: text("id").unwrap_or_default().to_owned(),
            label: format!("pool:{name}"),
            secret: SecretString::from(token.to_owned()),
            base_url: text("base_url").map(|url| url.trim_end_matches('/').to_owned()),
            status: status_of(entry),
            request_count: request_count(entry),
            stored: true,
        });
    }
    pool
}

/// The portal's token, while it is valid. Renewing it needs the portal's own login.
fn nous_login(login: &Value, name: &str, now: DateTime<Utc>) -> Option<Credential> {
    let text = |key: &str| {
        login
            .get(key)
            .and_then(Value::as_str)
            .map(str::trim)
            .filter(|t| !t.is_empty())
    };
    let valid = |token: &str, expiry: &str| {
        let token = text(token)?;
        let expired = login
            .get(expiry)
            .and_then(time)
            .is_some_and(|end| end <= now);
        (!expired).then_some(token)
    };
    let token = valid("agent_key", "agent_key_expires_at")
        .or_else(|| valid("access_token", "expires_at"))?;
    Some(Credential {
        id: text("id").unwrap_or_default().to_owned(),
        label: format!("pool:{name}"),
        secret: SecretString::from(token.to_owned()),
        base_url: text("inference_base_url")
            .or_else(|| text("base_url"))
            .map(|url| url.trim_end_matches('/').to_owned()),
        status: login.as_object().map_or(KeyStatus::Ready, status_of),
        request_count: login.as_object().map_or(0, request_count),
        stored: text("id").is_some(),
    })
}

fn request_count(entry: &Map<String, Value>) -> u64 {
    entry
        .get("request_count")
        .and_then(Value::as_u64)
        .unwrap_or(0)
}

pub(super) fn status_of(entry: &Map<String, Value>) -> KeyStatus {
    match entry.get("last_status").and_then(Value::as_str) {
        Some("dead") => KeyStatus::Dead,
        Some("exhausted") => {
            let code = entry.get("last_error_code").and_then(Value::as_u64);
            cooldown_until(
                code.and_then(|code| u16::try_from(code).ok()),
                entry.get("last_status_at").and_then(time),
                entry.get("last_error_reset_at").and_then(time),
            )
            .map_or(KeyStatus::Ready, KeyStatus::Exhausted)
        }
        _ => KeyStatus::Ready,
    }
}

/// Epoch seconds, epoch milliseconds or ISO 8601, as number or text.
fn time(value: &Value) -> Option<DateTime<Utc>> {
    let epoch = |number: f64| {
        let seconds = if number > 1e12 {
            number / 1000.0
        } else {
            number
        };
        (seconds > 0.0)
            .then(|| DateTime::from_timestamp_micros((seconds * 1e6) as i64))
            .flatten()
    };
    match value {
        Value::Number(number) => epoch(number.as_f64()?),
        Value::String(text) => {
            let text = text.trim();
            if let Ok(number) = text.parse::<f64>() {
                return epoch(number);
            }
            DateTime::parse_from_rfc3339(text)
                .map(|time| time.with_timezone(&Utc))
                .ok()
                .or_else(|| {
                    text.parse::<chrono::NaiveDateTime>()
                        .ok()
                        .map(|time| time.and_utc())
                })
        }
        _ => None,
    }
}

impl StoredPool {
    /// The state stored for a key from `source`, unless the key has been replaced since.
    pub fn state_of(&self, source: &str, secret: &str) -> Option<&ExternalKeyState> {
        self.external.iter().find(|entry| {
            entry.source == source
                && entry
                    .fingerprint
                    .as_deref()
                    .is_none_or(|known| known == fingerprint(secret))
        })
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use secrecy::ExposeSecret as _;

    use super::*;

    fn at(seconds: i64) -> DateTime<Utc> {
        DateTime::from_timestamp(1_800_000_000 + seconds, 0).unwrap()
    }

    fn home(auth: &Value) -> (tempfile::TempDir, Home) {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("auth.json"), auth.to_string()).unwrap();
        let home = Home::at(dir.path());
        (dir, home)
    }

    fn sample() -> Value {
        json!({
            "version": 1,
            "future_field": {"keep": [1, 2]},
            "credential_pool": {
                "openrouter": [
                    {"id": "b", "label": "spare", "priority": 1, "access_token": "sk-or-spare",
                     "last_status": "exhausted", "last_status_at": 1_800_000_000.0, "last_error_code": 429},
                    {"id": "a", "label": "work", "auth_type": "api_key", "priority": 0, "source": "manual",
                     "access_token": "sk-or-work", "base_url": "https://openrouter.ai/api/v1/",
                     "request_count": 3, "mystery": true},
                    {"id": "c", "source": "env:OPENROUTER_API_KEY", "priority": 2,
                     "secret_fingerprint": fingerprint("sk-or-env"), "last_status": "exhausted",
                     "last_error_reset_at": "2027-01-15T08:00:30+00:00"},
                    {"id": "d", "auth_type": "oauth", "access_token": "borrowed-login"}
                ],
                "nous": [{"id": "n", "auth_type": "oauth", "label": "me", "agent_key": "jwt-1",
                          "agent_key_expires_at": "2027-01-15T09:00:00Z", "access_token": "jwt-0",
                          "expires_at": "2020-01-01T00:00:00Z",
                          "inference_base_url": "https://inference-api.nousresearch.com/v1"}]
            }
        })
    }

    #[test]
    fn entries_come_in_order_of_priority_with_their_state() {
        let (_dir, home) = home(&sample());
        let pool = AuthStore::new(&home).pool("openrouter", at(0)).unwrap();
        let labels: Vec<&str> = pool.credentials.iter().map(|c| c.label.as_str()).collect();
        assert_eq!(labels, ["pool:work", "pool:spare"]);
        let work = &pool.credentials[0];
        assert_eq!(
            work.base_url.as_deref(),
            Some("https://openrouter.ai/api/v1")
        );
        assert_eq!((work.status, work.request_count), (KeyStatus::Ready, 3));
        assert_eq!(pool.credentials[1].status, KeyStatus::Exhausted(at(3600)));
        let state = pool
            .state_of("env:OPENROUTER_API_KEY", "sk-or-env")
            .unwrap();
        assert_eq!(state.status, KeyStatus::Exhausted(at(30)));
        // A key that was replaced since does not inherit the state of the old one.
        assert!(
            pool.state_of("env:OPENROUTER_API_KEY", "sk-or-new")
                .is_none()
        );
    }

    #[test]
    fn the_portals_login_is_used_while_it_is_valid() {
        let (_dir, home) = home(&sample());
        let store = AuthStore::new(&home);
        let pool = store.pool("nous", at(0)).unwrap();
        assert_eq!(pool.credentials[0].secret.expose_secret(), "jwt-1");
        assert!(store.pool("nous", at(7200)).unwrap().credentials.is_empty());
    }

    #[test]
    fn only_state_is_written_and_everything_else_survives() {
        let (dir, home) = home(&sample());
        let path = dir.path().join("auth.json");
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).unwrap();
        let store = AuthStore::new(&home);
        let mut credential = store.pool("openrouter", at(0)).unwrap().credentials[0].clone();
        credential.status = KeyStatus::Exhausted(at(20));
        let failure = KeyFailure {
            status: Some(429),
            message: "slow down".into(),
            reset_at: Some(at(20)),
        };
        assert!(
            store
                .save_state(&path, "openrouter", &credential, Some(&failure), at(0))
                .unwrap()
        );

        let mut expected = sample();
        let entry = &mut expected["credential_pool"]["openrouter"][1];
        entry["last_status"] = json!("exhausted");
        entry["last_status_at"] = json!(1_800_000_000.0);
        entry["last_error_code"] = json!(429);
        entry["last_error_reason"] = Value::Null;
        entry["last_error_message"] = json!("slow down");
        entry["last_error_reset_at"] = json!(1_800_000_020.0);
        expected["updated_at"] = json!("2027-01-15T08:00:00.000000+00:00");
        let written: Value = serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
        assert_eq!(written, expected);
        assert_eq!(path.metadata().unwrap().permissions().mode() & 0o777, 0o600);
        let again = store.pool("openrouter", at(0)).unwrap();
        assert_eq!(again.credentials[0].status, KeyStatus::Exhausted(at(20)));
    }

    #[test]
    fn nothing_is_created_and_a_broken_file_is_left_alone() {
        let dir = tempfile::tempdir().unwrap();
        let store = AuthStore::new(&Home::at(dir.path()));
        let path = dir.path().join("auth.json");
        let credential = Credential::new("env:X", SecretString::from("k".to_owned()));
        assert!(
            store
                .pool("openrouter", at(0))
                .unwrap()
                .credentials
                .is_empty()
        );
        assert!(
            !store
                .save_state(&path, "openrouter", &credential, None, at(0))
                .unwrap()
        );
        assert!(!path.exists());

        std::fs::write(&path, "{ not json").unwrap();
        assert!(matches!(
            store.pool("openrouter", at(0)),
            Err(AuthStoreError::Parse { .. })
        ));
        let error = store.save_state(&path, "openrouter", &credential, None, at(0));
        assert!(matches!(error, Err(AuthStoreError::Parse { .. })));
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "{ not json");
    }

    #[test]
    fn a_profile_without_entries_uses_those_of_the_root() {
        let (dir, _) = home(&sample());
        let profile = dir.path().join("profiles/coder");
        std::fs::create_dir_all(&profile).unwrap();
        let store = AuthStore::new(&Home::at(&profile));
        let pool = store.pool("openrouter", at(0)).unwrap();
        assert_eq!(pool.credentials.len(), 2);
        assert_eq!(pool.path, dir.path().join("auth.json"));
        assert_eq!(store.providers().unwrap(), ["openrouter", "nous"]);
    }
}

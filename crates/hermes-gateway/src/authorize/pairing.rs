//! Pairing: an unknown person gets a code, and the owner approves it.
//!
//! The files are the original's. Codes are stored as salted hashes; the list shows a handle for
//! each request, and that handle can be approved as well as the code and the user id.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use hermes_config::fs::{FileLock, LockError, create_private_dir, write_atomic};
use hermes_config::home::Home;
use hermes_core::bytes::{hex, same, unhex};
use hermes_core::clock::Clock;
use serde_json::{Map, Value, json};
use sha2::{Digest as _, Sha256};

use crate::session::canonical_whatsapp_id;

/// Characters that are easily confused are left out.
const ALPHABET: &[u8; 32] = b"ABCDEFGHJKLMNPQRSTUVWXYZ23456789";
const CODE_CHARS: usize = 8;
const HANDLE_CHARS: usize = 8;
const CODE_LIFETIME: f64 = 3600.0;
const MIN_REQUEST_INTERVAL: f64 = 600.0;
const LOCKOUT_SECONDS: f64 = 3600.0;
const MAX_PENDING: usize = 3;
const MAX_FAILURES: u64 = 5;
const LOCK_TIMEOUT: Duration = Duration::from_secs(10);

#[derive(Debug, thiserror::Error)]
pub enum PairingError {
    #[error("{}: {source}; repair or remove the file; nothing was changed", .path.display())]
    Damaged {
        path: PathBuf,
        source: serde_json::Error,
    },
    #[error("{}: {source}", .path.display())]
    Io {
        path: PathBuf,
        source: std::io::Error,
    },
    #[error(transparent)]
    Lock(#[from] LockError),
    #[error("{0:?} is not the name of a platform")]
    Platform(String),
}

/// The result of a pairing request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PairingReply {
    Code(String),
    /// There was a request a short while ago.
    TooSoon,
    /// Too many requests are pending.
    Full,
    /// Too many wrong codes were entered.
    Locked,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PairedUser {
    pub id: String,
    pub name: String,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PairingApproval {
    Approved(PairedUser),
    /// No matching request.
    Unknown,
    /// Too many wrong codes were entered; codes are accepted again after this many seconds.
    Locked {
        seconds: u64,
    },
}

/// A pending request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PendingPairing {
    pub platform: String,
    /// Accepted by [`Pairing::approve`], like the code and the user id.
    pub handle: String,
    pub user: PairedUser,
    pub age_seconds: u64,
}

#[derive(Clone, Debug, PartialEq)]
pub struct ApprovedPairing {
    pub platform: String,
    pub user: PairedUser,
    /// Seconds since the epoch.
    pub approved_at: f64,
}

/// The pairing files of a home.
#[derive(Clone)]
pub struct Pairing {
    /// The directory that is written; `other` belongs to an older or newer layout.
    active: PathBuf,
    other: PathBuf,
    whatsapp: PathBuf,
    clock: Arc<dyn Clock>,
}

impl Pairing {
    pub fn new(home: &Home, clock: Arc<dyn Clock>) -> Self {
        let (new, old) = (home.join("platforms/pairing"), home.join("pairing"));
        let active = home.dir("platforms/pairing", "pairing");
        Self {
            other: if active == new { old } else { new },
            active,
            whatsapp: home.dir("platforms/whatsapp/session", "whatsapp/session"),
            clock,
        }
    }

    /// Whether the owner approved this person.
    pub fn is_approved(&self, platform: &str, user: &str) -> Result<bool, PairingError> {
        let name = file_name(platform, "approved")?;
        let user = self.one_id(platform, user);
        if user.is_empty() {
            return Ok(false);
        }
        let approved = self.both(&name)?;
        Ok(approved.keys().any(|id| self.one_id(platform, id) == user))
    }

    /// Registers a request of an unknown person.
    pub fn request(
        &self,
        platform: &str,
        user: &str,
        name: &str,
    ) -> Result<PairingReply, PairingError> {
        let file = file_name(platform, "pending")?;
        let _lock = self.lock()?;
        let now = self.clock.epoch_seconds();
        let user = self.one_id(platform, user);
        let mut limits = self.both(LIMITS)?;
        if number(&limits, &format!("_lockout:{platform}")) > now {
            return Ok(PairingReply::Locked);
        }
        let last = format!("{platform}:{user}");
        if now - number(&limits, &last) < MIN_REQUEST_INTERVAL {
            return Ok(PairingReply::TooSoon);
        }
        let mut pending = self.fresh(&file, now)?;
        if pending.len() >= MAX_PENDING {
            return Ok(PairingReply::Full);
        }
        let code = new_code();
        let salt: [u8; 16] = rand::random();
        pending.insert(
            format!("{:016x}", rand::random::<u64>()),
            json!({
                "hash": hash(&salt, &code), "salt": hex(&salt), "user_id": user,
                "user_name": name, "created_at": now,
            }),
        );
        self.write(&file, &pending)?;
        limits.insert(last, json!(now));
        self.write(LIMITS, &limits)?;
        Ok(PairingReply::Code(code))
    }

    /// Approves by code, by the handle of the list, or by user id. Only wrong codes count as
    /// failures; while locked, only codes are refused.
    pub fn approve(&self, platform: &str, text: &str) -> Result<PairingApproval, PairingError> {
        let file = file_name(platform, "pending")?;
        let _lock = self.lock()?;
        let now = self.clock.epoch_seconds();
        let mut pending = self.fresh(&file, now)?;
        let text = text.trim();
        let listed = pending
            .iter()
            .find(|(key, entry)| {
                key.as_str() == text
                    || handle(entry).is_some_and(|handle| handle.eq_ignore_ascii_case(text))
                    || string(entry, "user_id") == self.one_id(platform, text)
            })
            .map(|(key, _)| key.clone());
        let mut limits = self.both(LIMITS)?;
        let until = number(&limits, &format!("_lockout:{platform}"));
        let found = match listed {
            Some(key) => Some(key),
            None if until > now => {
                return Ok(PairingApproval::Locked {
                    seconds: (until - now).ceil() as u64,
                });
            }
            None => by_code(&pending, &text.to_uppercase()),
        };
        let Some(entry) = found.and_then(|key| pending.remove(&key)) else {
            self.count_failure(platform, &mut limits, now)?;
            return Ok(PairingApproval::Unknown);
        };
        let user = PairedUser {
            id: string(&entry, "user_id").to_owned(),
            name: string(&entry, "user_name").to_owned(),
        };
        // Approve first: after a crash in between there is a leftover request instead of a person
        // without access.
        self.approve_locked(platform, &user, now)?;
        self.write(&file, &pending)?;
        Ok(PairingApproval::Approved(user))
    }

    /// Revokes an approval; `false`: there was none.
    pub fn revoke(&self, platform: &str, user: &str) -> Result<bool, PairingError> {
        let name = file_name(platform, "approved")?;
        let _lock = self.lock()?;
        let user = self.one_id(platform, user);
        let mut gone = false;
        // In both directories: the original would restore the entry from the other one.
        for dir in [&self.active, &self.other] {
            let path = dir.join(&name);
            let mut approved = read(&path)?;
            let before = approved.len();
            approved.retain(|id, _| self.one_id(platform, id) != user);
            if approved.len() < before {
                write(&path, &approved)?;
                gone = true;
            }
        }
        Ok(gone)
    }

    /// Pending requests, of one platform or of all.
    pub fn pending(&self, platform: Option<&str>) -> Result<Vec<PendingPairing>, PairingError> {
        let now = self.clock.epoch_seconds();
        let mut found = Vec::new();
        for platform in self.platforms(platform, "pending")? {
            let pending = self.fresh(&file_name(&platform, "pending")?, now)?;
            for (key, entry) in &pending {
                found.push(PendingPairing {
                    platform: platform.clone(),
                    handle: handle(entry).unwrap_or(key).to_owned(),
                    user: PairedUser {
                        id: string(entry, "user_id").to_owned(),
                        name: string(entry, "user_name").to_owned(),
                    },
                    age_seconds: (now - created(entry).unwrap_or(now)).max(0.0) as u64,
                });
            }
        }
        Ok(found)
    }

    /// Approved people, of one platform or of all.
    pub fn approved(&self, platform: Option<&str>) -> Result<Vec<ApprovedPairing>, PairingError> {
        let mut found = Vec::new();
        for platform in self.platforms(platform, "approved")? {
            for (id, entry) in self.both(&file_name(&platform, "approved")?)? {
                found.push(ApprovedPairing {
                    platform: platform.clone(),
                    user: PairedUser {
                        id,
                        name: string(&entry, "user_name").to_owned(),
                    },
                    approved_at: entry["approved_at"].as_f64().unwrap_or_default(),
                });
            }
        }
        Ok(found)
    }

    /// Removes all pending requests and returns their number.
    pub fn clear_pending(&self, platform: Option<&str>) -> Result<usize, PairingError> {
        let _lock = self.lock()?;
        let mut gone = 0;
        for platform in self.platforms(platform, "pending")? {
            let name = file_name(&platform, "pending")?;
            gone += self.both(&name)?.len();
            for dir in [&self.active, &self.other] {
                let path = dir.join(&name);
                if path.exists() {
                    write(&path, &Map::new())?;
                }
            }
        }
        Ok(gone)
    }

    fn approve_locked(
        &self,
        platform: &str,
        user: &PairedUser,
        now: f64,
    ) -> Result<(), PairingError> {
        let name = file_name(platform, "approved")?;
        let id = self.one_id(platform, &user.id);
        let mut approved = self.both(&name)?;
        approved.retain(|other, _| self.one_id(platform, other) != id);
        approved.insert(id, json!({"user_name": user.name, "approved_at": now}));
        self.write(&name, &approved)
    }

    fn count_failure(
        &self,
        platform: &str,
        limits: &mut Map<String, Value>,
        now: f64,
    ) -> Result<(), PairingError> {
        let key = format!("_failures:{platform}");
        let failures = number(limits, &key) as u64 + 1;
        if failures >= MAX_FAILURES {
            limits.insert(format!("_lockout:{platform}"), json!(now + LOCKOUT_SECONDS));
            limits.insert(key, json!(0));
        } else {
            limits.insert(key, json!(failures));
        }
        self.write(LIMITS, limits)
    }

    /// The canonical id of a person with several ids.
    fn one_id(&self, platform: &str, user: &str) -> String {
        if platform == "whatsapp" {
            canonical_whatsapp_id(&self.whatsapp, user)
        } else {
            user.trim().to_owned()
        }
    }

    /// Requests that are still valid.
    fn fresh(&self, name: &str, now: f64) -> Result<Map<String, Value>, PairingError> {
        let mut pending = self.both(name)?;
        pending.retain(|_, entry| created(entry).is_some_and(|at| now - at <= CODE_LIFETIME));
        Ok(pending)
    }

    /// The entries of both directories; the active one takes precedence.
    fn both(&self, name: &str) -> Result<Map<String, Value>, PairingError> {
        let mut all = read(&self.other.join(name))?;
        all.extend(read(&self.active.join(name))?);
        Ok(all)
    }

    fn write(&self, name: &str, data: &Map<String, Value>) -> Result<(), PairingError> {
        write(&self.active.join(name), data)
    }

    fn lock(&self) -> Result<FileLock, PairingError> {
        create_private_dir(&self.active).map_err(|source| PairingError::Io {
            path: self.active.clone(),
            source,
        })?;
        Ok(FileLock::acquire(&self.active.join(".lock"), LOCK_TIMEOUT)?)
    }

    fn platforms(&self, only: Option<&str>, what: &str) -> Result<Vec<String>, PairingError> {
        if let Some(platform) = only {
            return Ok(vec![platform.to_owned()]);
        }
        let (mut found, end) = (Vec::new(), format!("-{what}.json"));
        for dir in [&self.active, &self.other] {
            let entries = match std::fs::read_dir(dir) {
                Ok(entries) => entries,
                Err(error) if error.kind() == std::io::ErrorKind::NotFound => continue,
                Err(source) => {
                    let path = dir.clone();
                    return Err(PairingError::Io { path, source });
                }
            };
            for entry in entries.flatten() {
                let name = entry.file_name().to_string_lossy().into_owned();
                let platform = name
                    .strip_suffix(&end)
                    .filter(|name| !name.starts_with('_'));
                found.extend(platform.map(str::to_owned));
            }
        }
        found.sort();
        found.dedup();
        Ok(found)
    }
}

const LIMITS: &str = "_rate_limits.json";

/// The name becomes part of a path.
fn file_name(platform: &str, what: &str) -> Result<String, PairingError> {
    let fine = |ch: char| ch.is_ascii_alphanumeric() || "_-".contains(ch);
    if platform.is_empty() || platform.starts_with('_') || !platform.chars().all(fine) {
        return Err(PairingError::Platform(platform.to_owned()));
    }
    Ok(format!("{platform}-{what}.json"))
}

/// An unreadable file is an error: treating it as empty would overwrite it.
fn read(path: &Path) -> Result<Map<String, Value>, PairingError> {
    match std::fs::read(path) {
        Ok(bytes) => serde_json::from_slice(&bytes).map_err(|source| PairingError::Damaged {
            path: path.to_owned(),
            source,
        }),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(Map::new()),
        Err(source) => Err(PairingError::Io {
            path: path.to_owned(),
            source,
        }),
    }
}

fn write(path: &Path, data: &Map<String, Value>) -> Result<(), PairingError> {
    let text = serde_json::to_string_pretty(data).map_err(|source| PairingError::Damaged {
        path: path.to_owned(),
        source,
    })?;
    write_atomic(path, text.as_bytes(), 0o600).map_err(|source| PairingError::Io {
        path: path.to_owned(),
        source,
    })
}

fn by_code(pending: &Map<String, Value>, code: &str) -> Option<String> {
    let fits = |entry: &Value| {
        let salt = unhex(string(entry, "salt")).filter(|salt| !salt.is_empty())?;
        let (ours, theirs) = (hash(&salt, code), string(entry, "hash"));
        same(ours.as_bytes(), theirs.as_bytes()).then_some(())
    };
    let found = pending.iter().find(|(_, entry)| fits(entry).is_some());
    found.map(|(key, _)| key.clone())
}

fn new_code() -> String {
    let bits: u64 = rand::random();
    (0..CODE_CHARS)
        .map(|digit| char::from(ALPHABET[(bits >> (5 * digit)) as usize % ALPHABET.len()]))
        .collect()
}

fn hash(salt: &[u8], code: &str) -> String {
    let mut digest = Sha256::new();
    digest.update(salt);
    digest.update(code.as_bytes());
    hex(&digest.finalize())
}

fn string<'a>(entry: &'a Value, key: &str) -> &'a str {
    entry[key].as_str().unwrap_or_default()
}

/// The request code as the original displays it.
fn handle(entry: &Value) -> Option<&str> {
    entry["hash"].as_str()?.get(..HANDLE_CHARS)
}

fn created(entry: &Value) -> Option<f64> {
    entry["created_at"].as_f64()
}

fn number(limits: &Map<String, Value>, key: &str) -> f64 {
    limits.get(key).and_then(Value::as_f64).unwrap_or_default()
}

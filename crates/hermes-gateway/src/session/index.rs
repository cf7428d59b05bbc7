//! Every chat and its current conversation: `gateway_routing`, and its mirror `sessions.json` for
//! older programs.
//!
//! The mirror is one file that is rewritten as a whole. To keep the cost per message independent of
//! the number of chats, it is written once a share of them has changed, otherwise a little later.

use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use hermes_config::fs::{create_private_dir, write_atomic};
use hermes_core::store::StoreError;
use hermes_core::task;
use hermes_store::Store;
use serde_json::{Map, Value};

use super::entry::{SessionEntry, SessionEntryError};
use super::key::SessionKey;

const MIRROR: &str = "sessions.json";
/// The mirror is written immediately when one in this many chats has changed.
const IMMEDIATE_WRITE_ONE_IN: usize = 64;
/// How long changes wait for others before the mirror is written.
const WRITE_DELAY: Duration = Duration::from_secs(2);
const NOTE: &str = "A copy for older programs of the table gateway_routing in state.db: which conversation each chat is in. Not a list of sessions; hermes sessions list shows those.";

#[derive(Debug, thiserror::Error)]
pub enum SessionIndexError {
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error(transparent)]
    Entry(#[from] SessionEntryError),
    #[error("{}: {source}", .path.display())]
    Io {
        path: PathBuf,
        source: std::io::Error,
    },
}

/// The index of one home.
#[derive(Clone)]
pub struct SessionIndex {
    store: Store,
    scope: String,
    /// `None`: no mirror is written.
    mirror: Option<Arc<IndexMirror>>,
    stored: Arc<Mutex<LoadedIndex>>,
}

#[derive(Default)]
struct LoadedIndex {
    /// The stored entries, including unreadable ones.
    entries: Map<String, Value>,
    /// How many changes the mirror does not have yet.
    unmirrored: usize,
}

struct IndexMirror {
    path: PathBuf,
    /// Locked while writing, so that an older state never replaces a newer one.
    writing: tokio::sync::Mutex<()>,
    /// A task collects changes and writes them later.
    gathering: Mutex<bool>,
    /// Entries written so far: each time all of them.
    written: AtomicU64,
}

impl SessionIndex {
    /// Reads the index. Chats that exist only in the mirror come from an older program and are
    /// imported; unreadable entries are left in place and reported.
    pub async fn open(
        store: Store,
        sessions_dir: &Path,
        keep_mirror: bool,
    ) -> Result<(Self, Vec<SessionEntry>), SessionIndexError> {
        let at = |source| SessionIndexError::Io {
            path: sessions_dir.to_owned(),
            source,
        };
        create_private_dir(sessions_dir).map_err(at)?;
        let dir = sessions_dir.canonicalize().map_err(at)?;
        let scope = dir.to_string_lossy().into_owned();
        let mut stored: Map<String, Value> = store.routing(&scope).await?.into_iter().collect();
        for (key, entry) in read_mirror(&dir.join(MIRROR)) {
            stored.entry(key).or_insert(entry);
        }
        let mut entries = Vec::new();
        for (key, value) in &stored {
            match SessionEntry::read(value) {
                Ok(entry) => entries.push(entry),
                Err(error) => tracing::warn!("chat {key}: {error}"),
            }
        }
        let index = Self {
            store,
            scope,
            mirror: keep_mirror.then(|| {
                Arc::new(IndexMirror {
                    path: dir.join(MIRROR),
                    writing: tokio::sync::Mutex::default(),
                    gathering: Mutex::default(),
                    written: AtomicU64::default(),
                })
            }),
            stored: Arc::new(Mutex::new(LoadedIndex {
                entries: stored,
                unmirrored: 0,
            })),
        };
        Ok((index, entries))
    }

    /// The entry of a chat. `None`: missing or unreadable.
    pub fn get(&self, key: &str) -> Option<SessionEntry> {
        let stored = self.lock();
        SessionEntry::read(stored.entries.get(key)?).ok()
    }

    /// Every entry that can be read.
    pub fn entries(&self) -> Vec<SessionEntry> {
        self.entries_where(|_| true)
    }

    /// The entries of one chat on a platform: its threads, and per-user conversations. Only these
    /// are read.
    pub fn entries_of(&self, platform: &str, chat_id: &str) -> Vec<SessionEntry> {
        self.entries_where(|value| {
            let origin = &value["origin"];
            origin["platform"] == platform && origin["chat_id"] == chat_id
        })
    }

    fn entries_where(&self, wanted: impl Fn(&Value) -> bool) -> Vec<SessionEntry> {
        let stored = self.lock();
        let wanted = stored.entries.values().filter(|value| wanted(value));
        wanted
            .filter_map(|value| SessionEntry::read(value).ok())
            .collect()
    }

    /// Changes an entry in memory only, for values that are not worth a write per message.
    pub fn touch(&self, entry: &SessionEntry) -> Result<(), SessionIndexError> {
        let value = entry.write()?;
        let key = entry.session_key.as_str().to_owned();
        self.lock().entries.insert(key, value);
        Ok(())
    }

    /// Stores an entry. With many chats the mirror follows within seconds.
    pub async fn put(&self, entry: &SessionEntry) -> Result<(), SessionIndexError> {
        let (key, value) = (entry.session_key.as_str(), entry.write()?);
        self.store.set_routing(&self.scope, key, &value).await?;
        let worth_it = {
            let mut stored = self.lock();
            stored.entries.insert(key.to_owned(), value);
            stored.unmirrored += 1;
            stored.unmirrored * IMMEDIATE_WRITE_ONE_IN >= stored.entries.len()
        };
        match &self.mirror {
            None => Ok(()),
            Some(mirror) if worth_it => self.write_mirror(mirror).await,
            Some(mirror) => {
                self.write_soon(mirror);
                Ok(())
            }
        }
    }

    /// Removes chats. The mirror is written immediately; a stale one would restore them.
    pub async fn forget(&self, keys: &[SessionKey]) -> Result<(), SessionIndexError> {
        let names: Vec<String> = keys.iter().map(ToString::to_string).collect();
        self.store.forget_routing(&self.scope, &names).await?;
        let names: HashSet<String> = names.into_iter().collect();
        {
            let mut stored = self.lock();
            stored.entries.retain(|key, _| !names.contains(key));
            stored.unmirrored += 1;
        }
        self.flush().await
    }

    /// Writes the changes that the mirror does not have yet.
    pub async fn flush(&self) -> Result<(), SessionIndexError> {
        match &self.mirror {
            Some(mirror) => self.write_mirror(mirror).await,
            None => Ok(()),
        }
    }

    /// How many entries were written into the mirror so far.
    pub fn mirrored(&self) -> u64 {
        let mirror = self.mirror.as_ref();
        mirror.map_or(0, |mirror| mirror.written.load(Ordering::Relaxed))
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, LoadedIndex> {
        // A panic while holding this lock cannot leave the map half changed.
        self.stored.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Schedules a delayed write that includes later changes.
    fn write_soon(&self, mirror: &Arc<IndexMirror>) {
        let waits = |mirror: &IndexMirror, now: bool| {
            let mut gathering = mirror
                .gathering
                .lock()
                .unwrap_or_else(PoisonError::into_inner);
            std::mem::replace(&mut *gathering, now)
        };
        if waits(mirror, true) {
            return;
        }
        let (index, mirror) = (self.clone(), Arc::clone(mirror));
        let writing = async move {
            tokio::time::sleep(WRITE_DELAY).await;
            waits(&mirror, false);
            if let Err(error) = index.write_mirror(&mirror).await {
                tracing::warn!("{error}");
            }
        };
        drop(task::spawn("sessions.json", writing));
    }

    async fn write_mirror(&self, mirror: &Arc<IndexMirror>) -> Result<(), SessionIndexError> {
        let _writing = mirror.writing.lock().await;
        let entries = {
            let mut stored = self.lock();
            if std::mem::take(&mut stored.unmirrored) == 0 {
                return Ok(());
            }
            stored.entries.clone()
        };
        let mirror = Arc::clone(mirror);
        let written = tokio::task::spawn_blocking(move || {
            let count = entries.len() as u64;
            let mut all = Map::from_iter([("_README".to_owned(), Value::from(NOTE))]);
            all.extend(entries);
            let text = serde_json::to_string_pretty(&all).map_err(SessionEntryError::from)?;
            mirror.written.fetch_add(count, Ordering::Relaxed);
            write_atomic(&mirror.path, text.as_bytes(), 0o600).map_err(|source| {
                SessionIndexError::Io {
                    path: mirror.path.clone(),
                    source,
                }
            })
        });
        let outcome = written.await.map_err(|error| {
            SessionIndexError::Store(StoreError::Invalid(format!("writing {MIRROR}: {error}")))
        });
        let outcome = outcome.and_then(|written| written);
        if outcome.is_err() {
            self.lock().unmirrored += 1;
        }
        outcome
    }
}

/// An unreadable mirror contains nothing that the table does not have.
fn read_mirror(path: &Path) -> Map<String, Value> {
    let text = match std::fs::read_to_string(path) {
        Ok(text) => text,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Map::new(),
        Err(error) => {
            tracing::warn!("{}: {error}", path.display());
            return Map::new();
        }
    };
    match serde_json::from_str::<Map<String, Value>>(&text) {
        Ok(all) => all
            .into_iter()
            .filter(|(key, value)| !key.starts_with('_') && value.is_object())
            .collect(),
        Err(error) => {
            tracing::warn!("{}: {error}", path.display());
            Map::new()
        }
    }
}

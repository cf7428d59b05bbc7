//! Every chat and the conversation it is in: `gateway_routing`, and its mirror `sessions.json`,
//! which older programs read.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use hermes_config::fs::{create_private_dir, write_atomic};
use hermes_core::store::StoreError;
use hermes_store::Store;
use serde_json::{Map, Value};

use super::entry::{Entry, EntryError};
use super::key::SessionKey;

const MIRROR: &str = "sessions.json";
const NOTE: &str = "A copy for older programs of the table gateway_routing in state.db: which conversation each chat is in. Not a list of sessions; hermes sessions list shows those.";

#[derive(Debug, thiserror::Error)]
pub enum IndexError {
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error(transparent)]
    Entry(#[from] EntryError),
    #[error("{}: {source}", .path.display())]
    Io {
        path: PathBuf,
        source: std::io::Error,
    },
}

/// The index of one home.
#[derive(Clone)]
pub struct Index {
    store: Store,
    scope: String,
    /// `None`: no mirror is kept.
    mirror: Option<PathBuf>,
    /// What is stored, entries that we cannot read included.
    stored: Arc<Mutex<Map<String, Value>>>,
}

impl Index {
    /// Reads the index. Chats that only the mirror knows come from an older program and are taken
    /// over; entries that cannot be read are left where they are and reported.
    pub async fn open(
        store: Store,
        sessions_dir: &Path,
        keep_mirror: bool,
    ) -> Result<(Self, Vec<Entry>), IndexError> {
        let at = |source| IndexError::Io {
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
            match Entry::read(value) {
                Ok(entry) => entries.push(entry),
                Err(error) => tracing::warn!("chat {key}: {error}"),
            }
        }
        let index = Self {
            store,
            scope,
            mirror: keep_mirror.then(|| dir.join(MIRROR)),
            stored: Arc::new(Mutex::new(stored)),
        };
        Ok((index, entries))
    }

    /// The entry of a chat. `None`: it has none, or one that cannot be read.
    pub fn get(&self, key: &str) -> Option<Entry> {
        let stored = self.lock();
        Entry::read(stored.get(key)?).ok()
    }

    /// Every entry that can be read.
    pub fn entries(&self) -> Vec<Entry> {
        let stored = self.lock();
        stored
            .values()
            .filter_map(|value| Entry::read(value).ok())
            .collect()
    }

    /// Changes an entry in memory only: for what is not worth a write at every message.
    pub fn touch(&self, entry: &Entry) -> Result<(), IndexError> {
        let value = entry.write()?;
        self.lock()
            .insert(entry.session_key.as_str().to_owned(), value);
        Ok(())
    }

    /// Stores an entry.
    pub async fn put(&self, entry: &Entry) -> Result<(), IndexError> {
        let (key, value) = (entry.session_key.as_str(), entry.write()?);
        self.store.set_routing(&self.scope, key, &value).await?;
        self.lock().insert(key.to_owned(), value);
        self.write_mirror().await
    }

    /// Forgets chats.
    pub async fn forget(&self, keys: &[SessionKey]) -> Result<(), IndexError> {
        let keys: Vec<String> = keys.iter().map(ToString::to_string).collect();
        self.store.forget_routing(&self.scope, &keys).await?;
        self.lock().retain(|key, _| !keys.contains(key));
        self.write_mirror().await
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Map<String, Value>> {
        // A panic while holding this lock cannot leave the map half changed.
        self.stored.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The lock is held while writing, on a thread for that, so that an older state never
    /// replaces a newer one.
    async fn write_mirror(&self) -> Result<(), IndexError> {
        let Some(path) = self.mirror.clone() else {
            return Ok(());
        };
        let index = self.clone();
        let written = tokio::task::spawn_blocking(move || {
            let stored = index.lock();
            let mut all = Map::from_iter([("_README".to_owned(), Value::from(NOTE))]);
            all.extend(stored.clone());
            let text = serde_json::to_string_pretty(&all).map_err(EntryError::from)?;
            write_atomic(&path, text.as_bytes(), 0o600)
                .map_err(|source| IndexError::Io { path, source })
        });
        written.await.map_err(|error| {
            IndexError::Store(StoreError::Invalid(format!("writing {MIRROR}: {error}")))
        })?
    }
}

/// A mirror that cannot be read holds nothing that the table does not.
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

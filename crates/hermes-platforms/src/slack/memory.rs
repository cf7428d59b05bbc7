//! State that survives a restart: our threads, the workspaces of conversations, and when the
//! connection was last alive. All bounded.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use serde::{Deserialize, Serialize};

const MAX_THREADS: usize = 5000;
const MAX_PLACES: usize = 5000;

/// How often the time of the last sign of life is stored, in seconds.
const HEARTBEAT_SECONDS: f64 = 60.0;

/// A conversation.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct SlackConversation {
    pub team: String,
    /// `im`, `mpim`, `channel` or `group`.
    pub kind: String,
}

/// Our participation in a thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum ThreadRole {
    /// Started by our message, without replies.
    Begun,
    /// We were addressed in it.
    Joined,
}

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
struct StoredSlackState {
    /// By conversation and ts of the first message; the number is for age.
    #[serde(default)]
    threads: HashMap<String, (u64, ThreadRole)>,
    #[serde(default)]
    places: HashMap<String, SlackConversation>,
    /// Seconds since the epoch.
    #[serde(default)]
    alive_at: Option<f64>,
    /// Since when messages may have been missed that were not caught up with yet.
    #[serde(default)]
    missing_since: Option<f64>,
    #[serde(default)]
    count: u64,
}

/// Cheap to clone.
#[derive(Clone)]
pub(super) struct SlackMemory(Arc<SlackMemoryInner>);

struct SlackMemoryInner {
    path: PathBuf,
    stored: Mutex<StoredSlackState>,
    dirty: AtomicBool,
    /// Locked while the file is written, so that an older state never replaces a newer one.
    writing: Mutex<()>,
}

impl SlackMemory {
    /// Unreadable state starts empty: at worst, another mention is needed.
    pub(super) fn open(path: PathBuf) -> Self {
        let stored = match std::fs::read(&path) {
            Ok(bytes) => serde_json::from_slice(&bytes).unwrap_or_else(|error| {
                tracing::warn!("slack: {} is not readable: {error}", path.display());
                StoredSlackState::default()
            }),
            Err(error) => {
                if error.kind() != std::io::ErrorKind::NotFound {
                    tracing::warn!("slack: {}: {error}", path.display());
                }
                StoredSlackState::default()
            }
        };
        Self(Arc::new(SlackMemoryInner {
            path,
            stored: Mutex::new(stored),
            dirty: AtomicBool::new(false),
            writing: Mutex::new(()),
        }))
    }

    fn stored(&self) -> MutexGuard<'_, StoredSlackState> {
        self.0.stored.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn changed(&self) {
        self.0.dirty.store(true, Ordering::SeqCst);
    }

    pub(super) fn thread(&self, channel: &str, ts: &str) -> Option<ThreadRole> {
        let stored = self.stored();
        stored.threads.get(&key(channel, ts)).map(|(_, part)| *part)
    }

    /// `true`: this is new and must be saved before the acknowledgement.
    pub(super) fn note_thread(&self, channel: &str, ts: &str, part: ThreadRole) -> bool {
        let mut stored = self.stored();
        stored.count += 1;
        let (now, key) = (stored.count, key(channel, ts));
        let before = stored.threads.get(&key).map(|(_, part)| *part);
        // Once we were addressed there, our own messages change nothing.
        let part = if before == Some(ThreadRole::Joined) {
            ThreadRole::Joined
        } else {
            part
        };
        stored.threads.insert(key, (now, part));
        if stored.threads.len() > MAX_THREADS {
            forget_oldest(&mut stored.threads);
        }
        drop(stored);
        self.changed();
        before != Some(part)
    }

    pub(super) fn conversation(&self, channel: &str) -> Option<SlackConversation> {
        self.stored().places.get(channel).cloned()
    }

    pub(super) fn remember(&self, channel: &str, team: &str, kind: &str) {
        let known_conversation = SlackConversation {
            team: team.to_owned(),
            kind: kind.to_owned(),
        };
        let mut stored = self.stored();
        if stored.places.get(channel) == Some(&known_conversation) {
            return;
        }
        if stored.places.len() >= MAX_PLACES {
            stored.places.clear();
        }
        stored.places.insert(channel.to_owned(), known_conversation);
        drop(stored);
        self.changed();
    }

    /// A connection starts. `Some`: messages since then may have been missed.
    pub(super) fn gap(&self, now: f64, max_age: f64) -> Option<f64> {
        let mut stored = self.stored();
        let before = stored.alive_at.replace(now);
        let silent = before.filter(|before| now - before >= max_age);
        stored.missing_since = stored.missing_since.or(silent);
        let since = stored.missing_since;
        drop(stored);
        self.changed();
        since
    }

    /// Messages missed before `until` were caught up with.
    pub(super) fn filled(&self, until: f64) {
        let mut stored = self.stored();
        stored.missing_since = stored.missing_since.filter(|since| *since > until);
        drop(stored);
        self.changed();
    }

    pub(super) fn alive(&self, now: f64) {
        let mut stored = self.stored();
        // A clock that was set back counts, too.
        if stored
            .alive_at
            .is_none_or(|before| (now - before).abs() >= HEARTBEAT_SECONDS)
        {
            stored.alive_at = Some(now);
            drop(stored);
            self.changed();
        }
    }

    /// The threads of which something happened last, newest first, with their conversations.
    pub(super) fn recent_threads(&self, limit: usize) -> Vec<(String, String)> {
        let stored = self.stored();
        let mut threads: Vec<(u64, &String)> = stored
            .threads
            .iter()
            .map(|(key, (at, _))| (*at, key))
            .collect();
        threads.sort_unstable_by(|one, other| other.cmp(one));
        threads
            .into_iter()
            .take(limit)
            .filter_map(|(_, key)| key.split_once('/'))
            .map(|(channel, ts)| (channel.to_owned(), ts.to_owned()))
            .collect()
    }

    /// Writes what changed, if anything did.
    pub(super) async fn save(&self) {
        if self.0.dirty.load(Ordering::SeqCst) {
            self.save_now().await;
        }
    }

    /// Returns when the current state is on disk. Failures are logged; the state in memory stays in
    /// use.
    pub(super) async fn save_now(&self) {
        self.0.dirty.store(false, Ordering::SeqCst);
        let this = self.clone();
        let written = tokio::task::spawn_blocking(move || this.write()).await;
        if let Ok(Err(error)) = written {
            self.changed();
            tracing::warn!("slack: {}: {error}", self.0.path.display());
        }
    }

    fn write(&self) -> std::io::Result<()> {
        let _turn = self
            .0
            .writing
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        let bytes = serde_json::to_vec(&*self.stored())?;
        if let Some(parent) = self.0.path.parent() {
            std::fs::create_dir_all(parent)?;
        }
        hermes_config::fs::write_atomic(&self.0.path, &bytes, 0o600)
    }
}

fn key(channel: &str, ts: &str) -> String {
    format!("{channel}/{ts}")
}

/// Drops the older half.
fn forget_oldest(threads: &mut HashMap<String, (u64, ThreadRole)>) {
    let mut ages: Vec<u64> = threads.values().map(|(at, _)| *at).collect();
    ages.sort_unstable();
    let middle = ages.get(ages.len() / 2).copied().unwrap_or(0);
    threads.retain(|_, (at, _)| *at >= middle);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn threads_outlive_the_process_and_stay_few() {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join("state/slack.json");
        let memory = SlackMemory::open(path.clone());
        assert!(memory.note_thread("C1", "0.1", ThreadRole::Begun));
        assert!(memory.note_thread("C1", "0.1", ThreadRole::Joined));
        assert!(
            !memory.note_thread("C1", "0.1", ThreadRole::Begun),
            "joined stays"
        );
        memory.remember("C1", "T1", "channel");
        assert_eq!(memory.gap(5.0, 60.0), None, "the first connection ever");
        memory.save().await;
        let memory = SlackMemory::open(path.clone());
        assert_eq!(memory.thread("C1", "0.1"), Some(ThreadRole::Joined));
        assert_eq!(memory.thread("C2", "0.1"), None);
        assert_eq!(memory.conversation("C1").unwrap().team, "T1");
        assert_eq!(memory.gap(50.0, 60.0), None, "a short one");
        memory.alive(115.0);
        assert_eq!(memory.gap(180.0, 60.0), Some(115.0));
        assert_eq!(memory.gap(181.0, 60.0), Some(115.0), "not asked for yet");
        memory.filled(180.0);
        assert_eq!(memory.gap(182.0, 60.0), None);
        for number in 0..=MAX_THREADS {
            memory.note_thread("C1", &number.to_string(), ThreadRole::Joined);
        }
        assert!(memory.stored().threads.len() <= MAX_THREADS);
        let newest = MAX_THREADS.to_string();
        assert_eq!(memory.thread("C1", &newest), Some(ThreadRole::Joined));
        assert_eq!(memory.recent_threads(1), [("C1".to_owned(), newest)]);
        std::fs::write(&path, "{").unwrap();
        assert_eq!(SlackMemory::open(path).thread("C1", "0.1"), None);
    }
}

//! State that survives a restart: the last message seen in each channel, when the connection was
//! last alive, and our threads. All bounded.

use std::collections::HashMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use hermes_config::Home;
use hermes_config::fs::write_atomic;
use serde::{Deserialize, Serialize};
use tokio::time::Instant;

use super::wire::Snowflake;

const MAX_CHANNELS: usize = 5000;
/// The same limit as in the original's file.
const MAX_THREADS: usize = 500;

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
struct StoredDiscordState {
    /// When the connection was last alive, in seconds since the epoch.
    #[serde(default)]
    alive_at: Option<f64>,
    /// By channel.
    #[serde(default)]
    seen: HashMap<u64, LastSeenMessage>,
}

#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
struct LastSeenMessage {
    message: u64,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    direct: bool,
}

struct DiscordMemoryState {
    stored: StoredDiscordState,
    /// Oldest first.
    threads: Vec<String>,
    /// Channels whose missed messages are not all read yet, and the latest message that arrived
    /// since.
    behind: HashMap<u64, Option<LastSeenMessage>>,
    has_changes: bool,
    written: Instant,
}

impl DiscordMemoryState {
    fn saw(&mut self, channel: Snowflake, seen: LastSeenMessage) {
        let known = self.stored.seen.entry(channel.0).or_insert(seen);
        known.message = known.message.max(seen.message);
        known.direct = seen.direct;
        self.has_changes = true;
        if self.stored.seen.len() > MAX_CHANNELS {
            let mut ages: Vec<u64> = self.stored.seen.values().map(|one| one.message).collect();
            ages.sort_unstable();
            let middle = ages[ages.len() / 2];
            self.stored.seen.retain(|_, one| one.message >= middle);
        }
    }
}

/// Cheap to clone.
#[derive(Clone)]
pub(super) struct DiscordMemory(Arc<DiscordMemoryInner>);

struct DiscordMemoryInner {
    path: PathBuf,
    threads: PathBuf,
    state: Mutex<DiscordMemoryState>,
    /// Locked while a file is written, so that an older state never replaces a newer one.
    writing: Mutex<()>,
}

impl DiscordMemory {
    /// Unreadable state starts empty: at worst, one outage is not caught up with.
    pub(super) fn open(home: &Home) -> Self {
        let path = home.join("gateway/discord_seen.json");
        let threads = home.join("discord_threads.json");
        let state = DiscordMemoryState {
            stored: read(&path).unwrap_or_default(),
            threads: read(&threads).unwrap_or_default(),
            behind: HashMap::new(),
            has_changes: false,
            written: Instant::now(),
        };
        Self(Arc::new(DiscordMemoryInner {
            path,
            threads,
            state: Mutex::new(state),
            writing: Mutex::new(()),
        }))
    }

    fn state(&self) -> MutexGuard<'_, DiscordMemoryState> {
        // A panic while holding this lock cannot leave it half changed.
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Records a handled message. In a channel with missed messages, a new message does not hide
    /// them.
    pub(super) fn saw(&self, channel: Snowflake, message: Snowflake, direct: bool) {
        let mut state = self.state();
        let seen = LastSeenMessage {
            message: message.0,
            direct,
        };
        if let Some(latest) = state.behind.get_mut(&channel.0) {
            *latest = (*latest)
                .filter(|one| one.message > message.0)
                .or(Some(seen));
            return;
        }
        state.saw(channel, seen);
    }

    /// Records a direct channel. Discord does not list them, so unknown ones are not checked after
    /// an outage.
    pub(super) async fn meet(&self, channel: Snowflake, message: Snowflake) {
        if self.seen(channel).is_none() {
            self.saw(channel, Snowflake(message.0.saturating_sub(1)), true);
            self.save().await;
        }
    }

    /// The last seen message of a channel; `None`: unknown.
    pub(super) fn seen(&self, channel: Snowflake) -> Option<Snowflake> {
        let state = self.state();
        state
            .stored
            .seen
            .get(&channel.0)
            .map(|one| Snowflake(one.message))
    }

    /// Direct channels, the last ones used first.
    pub(super) fn direct(&self, max: usize) -> Vec<(Snowflake, Snowflake)> {
        let state = self.state();
        let mut direct: Vec<(Snowflake, Snowflake)> = (state.stored.seen.iter())
            .filter(|(_, seen)| seen.direct)
            .map(|(channel, seen)| (Snowflake(*channel), Snowflake(seen.message)))
            .collect();
        direct.sort_unstable_by_key(|(_, message)| std::cmp::Reverse(*message));
        direct.truncate(max);
        direct
    }

    pub(super) fn alive_at(&self) -> Option<f64> {
        self.state().stored.alive_at
    }

    /// The first connection. Earlier messages are ignored.
    pub(super) fn begin(&self, now: f64) {
        self.state().stored.alive_at.get_or_insert(now);
    }

    /// Records that the connection is alive. While missed messages are being read, the time is not
    /// updated, so that a crash finds them again.
    pub(super) fn alive(&self, now: f64) {
        let mut state = self.state();
        if state.behind.is_empty() {
            state.stored.alive_at = Some(state.stored.alive_at.unwrap_or(now).max(now));
        }
    }

    pub(super) fn falls_behind(&self, channel: Snowflake) {
        self.state().behind.entry(channel.0).or_default();
    }

    /// A channel has caught up. `true`: all channels have.
    pub(super) fn caught_up(&self, channel: Snowflake) -> bool {
        let mut state = self.state();
        if let Some(latest) = state.behind.remove(&channel.0).flatten() {
            state.saw(channel, latest);
        }
        state.behind.is_empty()
    }

    pub(super) fn is_our_thread(&self, thread: &str) -> bool {
        self.state().threads.iter().any(|one| one == thread)
    }

    /// Records that we participate in a thread.
    pub(super) async fn join(&self, thread: &str) {
        {
            let mut state = self.state();
            if state.threads.iter().any(|one| one == thread) {
                return;
            }
            state.threads.push(thread.to_owned());
            let excess = state.threads.len().saturating_sub(MAX_THREADS);
            state.threads.drain(..excess);
        }
        self.write(|memory| {
            let threads = memory.state().threads.clone();
            write(&memory.0.threads, &threads)
        })
        .await;
    }

    /// Writes changes periodically.
    pub(super) async fn keep(&self, idle: Duration, has_changes: Duration) {
        let due = {
            let state = self.state();
            let pause = if state.has_changes { has_changes } else { idle };
            state.stored.alive_at.is_some() && state.written.elapsed() >= pause
        };
        if due {
            self.save().await;
        }
    }

    pub(super) async fn save(&self) {
        self.write(|memory| {
            let stored = {
                let mut state = memory.state();
                state.has_changes = false;
                state.written = Instant::now();
                state.stored.clone()
            };
            write(&memory.0.path, &stored)
        })
        .await;
    }

    /// A failure only means that messages are read again.
    async fn write(&self, work: impl FnOnce(&Self) -> io::Result<()> + Send + 'static) {
        let memory = self.clone();
        let writing = tokio::task::spawn_blocking(move || {
            let _one = (memory.0.writing.lock()).unwrap_or_else(PoisonError::into_inner);
            work(&memory)
        });
        match writing.await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => tracing::warn!("discord: what was seen is not remembered: {error}"),
            Err(error) => tracing::warn!("discord: what was seen is not remembered: {error}"),
        }
    }
}

fn read<T: serde::de::DeserializeOwned>(path: &Path) -> Option<T> {
    let bytes = match std::fs::read(path) {
        Ok(bytes) => bytes,
        Err(error) => {
            if error.kind() != io::ErrorKind::NotFound {
                tracing::warn!("discord: {}: {error}", path.display());
            }
            return None;
        }
    };
    serde_json::from_slice(&bytes)
        .inspect_err(|error| {
            tracing::warn!("discord: {} is not readable: {error}", path.display());
        })
        .ok()
}

fn write(path: &Path, what: &impl Serialize) -> io::Result<()> {
    if let Some(dir) = path.parent() {
        std::fs::create_dir_all(dir)?;
    }
    write_atomic(path, &serde_json::to_vec(what)?, 0o600)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_restart_forgets_nothing_and_everything_is_bounded() {
        let dir = tempfile::tempdir().unwrap();
        let home = Home::at(dir.path());
        let memory = DiscordMemory::open(&home);
        assert_eq!(memory.alive_at(), None);
        for channel in 0..6000 {
            memory.saw(Snowflake(channel), Snowflake(channel + 10), channel == 5999);
        }
        memory.saw(Snowflake(5999), Snowflake(3), true);
        for thread in 0..600 {
            memory.join(&thread.to_string()).await;
        }
        memory.falls_behind(Snowflake(5998));
        memory.alive(5.0);
        assert_eq!(memory.alive_at(), None);
        memory.caught_up(Snowflake(5998));
        memory.alive(7.0);
        memory.save().await;

        let again = DiscordMemory::open(&home);
        assert_eq!(again.alive_at(), Some(7.0));
        assert_eq!(again.seen(Snowflake(5999)), Some(Snowflake(6009)));
        assert_eq!(again.seen(Snowflake(1)), None);
        assert_eq!(again.direct(9), [(Snowflake(5999), Snowflake(6009))]);
        assert!(again.is_our_thread("599") && !again.is_our_thread("99"));
        assert!(again.state().stored.seen.len() <= MAX_CHANNELS);
    }

    #[tokio::test]
    async fn what_comes_does_not_hide_what_was_missed() {
        let dir = tempfile::tempdir().unwrap();
        let home = Home::at(dir.path());
        let memory = DiscordMemory::open(&home);
        memory.saw(Snowflake(1), Snowflake(10), true);
        memory.falls_behind(Snowflake(1));
        // 11 to 19 could not be read, and people go on.
        memory.saw(Snowflake(1), Snowflake(20), true);
        memory.saw(Snowflake(2), Snowflake(20), true);
        memory.save().await;
        let next = DiscordMemory::open(&home);
        assert_eq!(
            (next.seen(Snowflake(1)), next.seen(Snowflake(2))),
            (Some(Snowflake(10)), Some(Snowflake(20)))
        );
        memory.caught_up(Snowflake(1));
        assert_eq!(memory.seen(Snowflake(1)), Some(Snowflake(20)));
    }

    #[test]
    fn a_broken_file_is_as_none() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir(dir.path().join("gateway")).unwrap();
        std::fs::write(dir.path().join("gateway/discord_seen.json"), "{").unwrap();
        assert_eq!(DiscordMemory::open(&Home::at(dir.path())).alive_at(), None);
    }
}

//! Persistent state: history, drafts and command usage. Read when the composer is created, written
//! by a thread, so that no key waits for the disk.

use std::path::{Path, PathBuf};
use std::sync::mpsc::{self, Receiver, SyncSender, TrySendError};
use std::thread::JoinHandle;
use std::time::Duration;

use hermes_config::fs::{FileLock, create_private_dir, write_atomic};

use super::draft::{DraftSlot, DraftSlots, SavedDraft};
use super::history::{self, History};
use super::text::RichText;

/// Capacity of the write queue.
const MAX_JOBS: usize = 64;
/// Another process writes the names much faster.
const LOCK_TIMEOUT: Duration = Duration::from_secs(5);
/// Number of command names kept.
const MAX_USED_COMMANDS: usize = 100;

/// The saved state found at start.
#[derive(Default)]
pub(super) struct SavedState {
    pub(super) history: Vec<RichText>,
    pub(super) used: Vec<String>,
}

enum SaveJob {
    History(Vec<RichText>),
    Draft(PathBuf, SavedDraft),
    Undraft(PathBuf),
    Used(String),
    Flush(SyncSender<()>),
}

pub(super) struct ComposerStorage {
    jobs: Option<SyncSender<SaveJob>>,
    thread: Option<JoinHandle<()>>,
    slots: Option<DraftSlots>,
    slot: Option<DraftSlot>,
    session: String,
    fresh: bool,
    /// The slot contains a draft.
    drafted: bool,
}

impl ComposerStorage {
    pub(super) fn open(
        dir: Option<&Path>,
        project: &Path,
        seeds: &[PathBuf],
    ) -> (Self, SavedState) {
        let mut storage = Self {
            jobs: None,
            thread: None,
            slots: None,
            slot: None,
            session: String::new(),
            fresh: true,
            drafted: false,
        };
        let Some(dir) = dir else {
            return (storage, SavedState::default());
        };
        let project = key(project);
        let history = History::new(&dir.join("history"), &project);
        let used = dir.join("commands.json");
        let new = !history.exists();
        let entries = if new {
            history::seeds(seeds)
        } else {
            history.load()
        };
        let saved_state = SavedState {
            history: entries,
            used: read_used(&used),
        };
        storage.slots = Some(DraftSlots::new(dir.join("drafts").join(&project)));
        let (jobs, inbox) = mpsc::sync_channel(MAX_JOBS);
        let writer = StorageWriter { history, used };
        let thread = std::thread::Builder::new()
            .name("composer-keep".to_owned())
            .spawn(move || writer.run(&inbox));
        match thread {
            Ok(thread) => {
                storage.thread = Some(thread);
                storage.jobs = Some(jobs);
            }
            Err(error) => tracing::warn!(%error, "history and drafts are not kept"),
        }
        if new && !saved_state.history.is_empty() {
            storage.send(SaveJob::History(saved_state.history.clone()));
        }
        (storage, saved_state)
    }

    fn send(&self, job: SaveJob) {
        let Some(jobs) = &self.jobs else {
            return;
        };
        match jobs.try_send(job) {
            // A draft is saved again later; everything else waits for space in the queue.
            Ok(()) | Err(TrySendError::Full(SaveJob::Draft(..))) => {}
            Err(TrySendError::Full(job)) => {
                if jobs.send(job).is_err() {
                    tracing::warn!("the thread that keeps the history is gone");
                }
            }
            Err(TrySendError::Disconnected(_)) => {
                tracing::warn!("the thread that keeps the history is gone");
            }
        }
    }

    /// Something was sent: after a message the conversation is no longer empty.
    pub(super) fn sent(&mut self, entry: RichText, message: bool) {
        self.fresh &= !message;
        self.send(SaveJob::History(vec![entry]));
        self.undraft();
    }

    pub(super) fn used(&self, command: String) {
        self.send(SaveJob::Used(command));
    }

    /// Drafts belong to this conversation from now on; an unlocked draft of it is taken over if
    /// `wants` is set.
    pub(super) fn conversation(
        &mut self,
        session: &str,
        fresh: bool,
        wants: bool,
    ) -> Option<RichText> {
        session.clone_into(&mut self.session);
        self.fresh = fresh;
        if !wants {
            return None;
        }
        // Wait for pending writes, so that no draft is read half-written.
        self.flush();
        let (slot, draft) = self.slots.as_ref()?.take_over(session, fresh)?;
        self.undraft();
        self.slot = Some(slot);
        self.drafted = true;
        Some(draft)
    }

    pub(super) fn draft(&mut self, text: RichText) {
        if text.is_empty() {
            self.undraft();
            return;
        }
        if self.slot.is_none() {
            self.slot = self.slots.as_ref().and_then(DraftSlots::free);
        }
        let Some(slot) = &self.slot else {
            return;
        };
        self.drafted = true;
        self.send(SaveJob::Draft(
            slot.path().to_path_buf(),
            SavedDraft {
                session: self.session.clone(),
                fresh: self.fresh,
                text,
            },
        ));
    }

    fn undraft(&mut self) {
        if std::mem::take(&mut self.drafted)
            && let Some(slot) = &self.slot
        {
            self.send(SaveJob::Undraft(slot.path().to_path_buf()));
        }
    }

    /// Waits until everything is written.
    pub(super) fn flush(&self) {
        let (done, wait) = mpsc::sync_channel(1);
        self.send(SaveJob::Flush(done));
        // The thread is gone: there is nothing to wait for.
        let _ = wait.recv();
    }
}

impl Drop for ComposerStorage {
    fn drop(&mut self) {
        self.jobs = None;
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
        {
            tracing::error!("the thread that keeps the history panicked");
        }
    }
}

/// A name for a directory: its own name, for people, and a hash to make it unique.
fn key(project: &Path) -> String {
    let name = project.file_name().unwrap_or_default().to_string_lossy();
    let name: String = name
        .chars()
        .filter(|c| c.is_ascii_alphanumeric() || matches!(c, '-' | '_'))
        .take(40)
        .collect();
    let hash = hash(project.as_os_str().as_encoded_bytes());
    format!("{name}-{hash:016x}")
}

/// FNV-1a: for naming, not for security.
pub(super) fn hash(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
    })
}

fn read_used(path: &Path) -> Vec<String> {
    let text = std::fs::read_to_string(path).unwrap_or_default();
    let mut used: Vec<String> = serde_json::from_str(&text).unwrap_or_default();
    used.truncate(MAX_USED_COMMANDS);
    used
}

struct StorageWriter {
    history: History,
    used: PathBuf,
}

impl StorageWriter {
    fn run(&self, inbox: &Receiver<SaveJob>) {
        while let Ok(first) = inbox.recv() {
            // Only the last of several drafts is written.
            let mut jobs = vec![first];
            jobs.extend(inbox.try_iter().take(MAX_JOBS));
            let last = jobs
                .iter()
                .rposition(|job| matches!(job, SaveJob::Draft(..) | SaveJob::Undraft(_)));
            for (at, job) in jobs.into_iter().enumerate() {
                let written = match job {
                    SaveJob::Draft(..) if Some(at) != last => Ok(()),
                    SaveJob::Draft(path, draft) => draft.write(&path),
                    SaveJob::Undraft(path) => SavedDraft::remove(&path),
                    SaveJob::History(entries) => self.history.append(&entries),
                    SaveJob::Used(name) => self.count(name),
                    SaveJob::Flush(done) => {
                        // The receiver may be gone.
                        let _ = done.send(());
                        Ok(())
                    }
                };
                if let Err(error) = written {
                    tracing::warn!(%error, "the composer could not keep something");
                }
            }
        }
    }

    fn count(&self, name: String) -> std::io::Result<()> {
        if let Some(dir) = self.used.parent() {
            create_private_dir(dir)?;
        }
        let _lock = FileLock::acquire(&self.used.with_extension("lock"), LOCK_TIMEOUT)
            .map_err(std::io::Error::other)?;
        let mut used = read_used(&self.used);
        used.retain(|known| *known != name);
        used.insert(0, name);
        used.truncate(MAX_USED_COMMANDS);
        let text = serde_json::to_string(&used).map_err(std::io::Error::other)?;
        write_atomic(&self.used, text.as_bytes(), 0o600)
    }
}

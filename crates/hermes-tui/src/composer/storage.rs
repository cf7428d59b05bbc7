//! What stays: history, drafts and which commands are used. Read when the composer is made, written
//! by a thread, so that no key waits for a disk.

use std::path::{Path, PathBuf};
use std::sync::mpsc::{self, Receiver, SyncSender, TrySendError};
use std::thread::JoinHandle;
use std::time::Duration;

use hermes_config::fs::{FileLock, create_private_dir, write_atomic};

use super::draft::{Draft, Slot, Slots};
use super::history::{self, History};
use super::text::Rich;

/// Jobs that may wait for the disk.
const JOBS: usize = 64;
/// Another process writes the names in far less.
const LOCK_WAIT: Duration = Duration::from_secs(5);
/// Names of commands that are kept.
const USED: usize = 100;

/// What was there.
#[derive(Default)]
pub(super) struct Kept {
    pub(super) history: Vec<Rich>,
    pub(super) used: Vec<String>,
}

enum Job {
    History(Vec<Rich>),
    Draft(PathBuf, Draft),
    Undraft(PathBuf),
    Used(String),
    Flush(SyncSender<()>),
}

pub(super) struct Keeper {
    jobs: Option<SyncSender<Job>>,
    thread: Option<JoinHandle<()>>,
    slots: Option<Slots>,
    slot: Option<Slot>,
    session: String,
    fresh: bool,
    /// The slot holds a draft.
    drafted: bool,
}

impl Keeper {
    pub(super) fn open(dir: Option<&Path>, project: &Path, seeds: &[PathBuf]) -> (Self, Kept) {
        let mut keeper = Self {
            jobs: None,
            thread: None,
            slots: None,
            slot: None,
            session: String::new(),
            fresh: true,
            drafted: false,
        };
        let Some(dir) = dir else {
            return (keeper, Kept::default());
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
        let kept = Kept {
            history: entries,
            used: read_used(&used),
        };
        keeper.slots = Some(Slots::new(dir.join("drafts").join(&project)));
        let (jobs, inbox) = mpsc::sync_channel(JOBS);
        let writer = Writer { history, used };
        let thread = std::thread::Builder::new()
            .name("composer-keep".to_owned())
            .spawn(move || writer.run(&inbox));
        match thread {
            Ok(thread) => {
                keeper.thread = Some(thread);
                keeper.jobs = Some(jobs);
            }
            Err(error) => tracing::warn!(%error, "history and drafts are not kept"),
        }
        if new && !kept.history.is_empty() {
            keeper.send(Job::History(kept.history.clone()));
        }
        (keeper, kept)
    }

    fn send(&self, job: Job) {
        let Some(jobs) = &self.jobs else {
            return;
        };
        match jobs.try_send(job) {
            // A draft comes again; everything else waits for its turn.
            Ok(()) | Err(TrySendError::Full(Job::Draft(..))) => {}
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

    /// Something was sent: after a message the conversation is not fresh any more.
    pub(super) fn sent(&mut self, entry: Rich, message: bool) {
        self.fresh &= !message;
        self.send(Job::History(vec![entry]));
        self.undraft();
    }

    pub(super) fn used(&self, command: String) {
        self.send(Job::Used(command));
    }

    /// Drafts belong to this conversation from now on; a draft of it that nobody holds is taken over
    /// where one `wants` it.
    pub(super) fn conversation(&mut self, session: &str, fresh: bool, wants: bool) -> Option<Rich> {
        session.clone_into(&mut self.session);
        self.fresh = fresh;
        if !wants {
            return None;
        }
        // A draft on its way to the slot is not read half.
        self.flush();
        let (slot, draft) = self.slots.as_ref()?.take_over(session, fresh)?;
        self.undraft();
        self.slot = Some(slot);
        self.drafted = true;
        Some(draft)
    }

    pub(super) fn draft(&mut self, text: Rich) {
        if text.is_empty() {
            self.undraft();
            return;
        }
        if self.slot.is_none() {
            self.slot = self.slots.as_ref().and_then(Slots::free);
        }
        let Some(slot) = &self.slot else {
            return;
        };
        self.drafted = true;
        self.send(Job::Draft(
            slot.path().to_path_buf(),
            Draft {
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
            self.send(Job::Undraft(slot.path().to_path_buf()));
        }
    }

    /// Waits until everything is written.
    pub(super) fn flush(&self) {
        let (done, wait) = mpsc::sync_channel(1);
        self.send(Job::Flush(done));
        // The thread is gone: there is nothing to wait for.
        let _ = wait.recv();
    }
}

impl Drop for Keeper {
    fn drop(&mut self) {
        self.jobs = None;
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
        {
            tracing::error!("the thread that keeps the history panicked");
        }
    }
}

/// A name for a directory: its own, for people, and a number that tells it from its namesakes.
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

/// FNV-1a: a name, not a guard.
pub(super) fn hash(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
    })
}

fn read_used(path: &Path) -> Vec<String> {
    let text = std::fs::read_to_string(path).unwrap_or_default();
    let mut used: Vec<String> = serde_json::from_str(&text).unwrap_or_default();
    used.truncate(USED);
    used
}

struct Writer {
    history: History,
    used: PathBuf,
}

impl Writer {
    fn run(&self, inbox: &Receiver<Job>) {
        while let Ok(first) = inbox.recv() {
            // Only the last of several drafts is written.
            let mut jobs = vec![first];
            jobs.extend(inbox.try_iter().take(JOBS));
            let last = jobs
                .iter()
                .rposition(|job| matches!(job, Job::Draft(..) | Job::Undraft(_)));
            for (at, job) in jobs.into_iter().enumerate() {
                let written = match job {
                    Job::Draft(..) if Some(at) != last => Ok(()),
                    Job::Draft(path, draft) => draft.write(&path),
                    Job::Undraft(path) => Draft::remove(&path),
                    Job::History(entries) => self.history.append(&entries),
                    Job::Used(name) => self.count(name),
                    Job::Flush(done) => {
                        // Whoever waited may be gone.
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
        let _lock = FileLock::acquire(&self.used.with_extension("lock"), LOCK_WAIT)
            .map_err(std::io::Error::other)?;
        let mut used = read_used(&self.used);
        used.retain(|known| *known != name);
        used.insert(0, name);
        used.truncate(USED);
        let text = serde_json::to_string(&used).map_err(std::io::Error::other)?;
        write_atomic(&self.used, text.as_bytes(), 0o600)
    }
}

//! The background processes of this program.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use hermes_core::clock::{Clock, Rng};
use hermes_core::ids::SessionId;
use hermes_core::task;
use tokio::sync::watch as channel;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::checkpoint::{self, SavedProcess};
use super::entry::{LogPage, ProcessEnd, ProcessInfo, SharedProcess, TrackedProcess};
use super::notice::{ConsumedFlag, Notice, NoticeKind, Notices};
use super::watch::{Breaker, BreakerDecision, WatchEvent, Watcher};
use super::{ProcessRouting, checkpoint::our_start_time};
use crate::environment::{Background, BackgroundRecord, BackgroundStart, Environment, ExecError};

/// Running and finished processes together.
const MAX_TRACKED: usize = 64;
/// How long a finished process can be queried, in seconds.
const KEEP_FINISHED: f64 = 1800.0;
/// Poll interval for patterns: short while output arrives, longer while it does not.
const MIN_POLL: Duration = Duration::from_millis(100);
const MAX_POLL: Duration = Duration::from_secs(1);
const POLL_BYTES: usize = 256 * 1024;
/// Length of the output in a completion notice.
const NOTICE_OUTPUT: usize = 2000;

/// Options of a registry.
pub struct RegistryOptions {
    /// `processes.json`; `None`: nothing survives.
    pub checkpoint: Option<PathBuf>,
    pub clock: Arc<dyn Clock>,
    pub rng: Arc<dyn Rng>,
    pub notices: Arc<dyn Notices>,
    /// Between TERM and KILL.
    pub grace: Duration,
}

/// A process to start.
pub struct NewProcess {
    pub session: SessionId,
    pub routing: ProcessRouting,
    /// The registry chooses its id.
    pub start: BackgroundStart,
    /// The command as given, for display.
    pub command: String,
    pub notify_on_complete: bool,
    pub watch_patterns: Vec<String>,
}

#[derive(Debug, thiserror::Error)]
pub enum ProcessError {
    #[error("there is no process {0}; process(action=list) shows those that are")]
    Unknown(String),
    #[error("{0} has ended already")]
    Ended(String),
    #[error(
        "{MAX_TRACKED} background processes are running; end one with process(action=kill) first"
    )]
    TooMany,
    #[error(transparent)]
    Exec(#[from] ExecError),
}

/// How a wait ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WaitOutcome {
    Ended(ProcessEnd),
    TimedOut,
    Interrupted,
}

/// All background processes. Cheap to clone.
#[derive(Clone)]
pub struct ProcessRegistry(Arc<RegistryInner>);

struct RegistryInner {
    options: RegistryOptions,
    table: Mutex<BTreeMap<String, SharedProcess>>,
    breaker: Mutex<Breaker>,
}

impl ProcessRegistry {
    pub fn new(options: RegistryOptions) -> Self {
        Self(Arc::new(RegistryInner {
            options,
            table: Mutex::default(),
            breaker: Mutex::default(),
        }))
    }

    /// Whether notices about new processes can reach this session.
    pub fn can_notify(&self, session: &SessionId) -> bool {
        self.0.options.notices.can_reach(session)
    }

    pub async fn spawn(
        &self,
        environment: &dyn Environment,
        new: NewProcess,
    ) -> Result<ProcessInfo, ProcessError> {
        self.evict_if_full()?;
        let id = self.new_id();
        let mut start = new.start;
        start.id.clone_from(&id);
        let cwd = start.cwd.clone();
        let process = environment.spawn(start).await?;
        let entry = Arc::new(TrackedProcess {
            id,
            session: new.session,
            command: new.command,
            cwd,
            started_at: self.now(),
            routing: new.routing,
            backend: environment.info().kind,
            adopted: false,
            process,
            notify: AtomicBool::new(new.notify_on_complete),
            killed: AtomicBool::new(false),
            consumed: ConsumedFlag::default(),
            waiters: AtomicUsize::new(0),
            watcher: Mutex::new(Watcher::new(&new.watch_patterns)),
            patterns: new.watch_patterns,
            reported_bytes: AtomicU64::new(0),
            end: channel::Sender::new(None),
        });
        Ok(self.track(entry))
    }

    /// Adopts processes that an earlier program left running and returns their number.
    pub async fn adopt(&self, environment: &dyn Environment) -> usize {
        let Some(path) = &self.0.options.checkpoint else {
            return 0;
        };
        let kind = environment.info().kind;
        let mut adopted = 0;
        for saved in checkpoint::orphans(path) {
            let of_here = match saved.backend.as_str() {
                "" => kind == "local" && saved.pid_scope == "host",
                backend => backend == kind,
            };
            if !of_here || self.find(&saved.session_id).is_ok() {
                continue;
            }
            let record = BackgroundRecord {
                id: saved.session_id.clone(),
                pid: saved.pid.unwrap_or_default(),
                start_time: saved.host_start_time,
                pty: saved.pty,
                dir: saved.dir.clone().map(PathBuf::from),
            };
            match environment.adopt(record).await {
                Ok(Some(process)) => {
                    self.track(Arc::new(from_saved(saved, process, kind)));
                    adopted += 1;
                }
                Ok(None) => {}
                Err(error) => tracing::warn!(process = saved.session_id, "not adopted: {error}"),
            }
        }
        self.save();
        adopted
    }

    fn track(&self, entry: SharedProcess) -> ProcessInfo {
        let info = entry.info(self.now());
        self.with_table(|table| table.insert(entry.id.clone(), entry.clone()));
        self.save();
        let registry = self.clone();
        let name = format!("watch {}", entry.id);
        task::spawn(&name, async move { registry.follow(entry).await });
        info
    }

    /// Follows one process until it ends.
    async fn follow(&self, entry: SharedProcess) {
        let watching = self.watch(&entry);
        tokio::pin!(watching);
        let mut watched = false;
        let exit = loop {
            tokio::select! {
                exit = entry.process.wait() => break exit,
                () = &mut watching, if !watched => watched = true,
            }
        };
        let ended = entry.end_from_exit(exit);
        // Read before the end is published: a waiting caller may remove the process.
        let tell = entry.notify.load(Ordering::Acquire);
        let output = if tell {
            entry.tail(NOTICE_OUTPUT).await
        } else {
            String::new()
        };
        entry.end.send_replace(Some((ended, self.now())));
        self.save();
        let asked_for = entry.waiters.load(Ordering::Acquire) > 0;
        if tell && !asked_for && !entry.consumed.is_set() {
            self.notify(&entry, NoticeKind::Completed { ended, output });
        }
    }

    /// Searches the output for patterns while there are any.
    async fn watch(&self, entry: &TrackedProcess) {
        let mut from = entry.reported_bytes.load(Ordering::Acquire);
        let mut pause = MIN_POLL;
        while entry.lock_watcher().is_active() {
            tokio::time::sleep(pause).await;
            let Ok(chunk) = entry.process.read(from, POLL_BYTES).await else {
                return;
            };
            let came = !chunk.bytes.is_empty();
            pause = if came {
                MIN_POLL
            } else {
                (pause * 2).min(MAX_POLL)
            };
            from = chunk.from + chunk.bytes.len() as u64;
            let now = Instant::now();
            let found = entry.lock_watcher().feed(&chunk.bytes, now);
            match found {
                Some(WatchEvent::Match {
                    pattern,
                    output,
                    suppressed,
                }) => {
                    let kind = NoticeKind::Matched {
                        pattern,
                        output,
                        suppressed,
                    };
                    // After a restart it is not reported again.
                    entry.reported_bytes.store(from, Ordering::Release);
                    self.save();
                    self.notify_match(entry, kind, now);
                }
                Some(WatchEvent::Disabled { suppressed }) => {
                    entry.notify.store(true, Ordering::Release);
                    self.save();
                    self.notify(entry, NoticeKind::WatchDisabled { suppressed });
                }
                None => {}
            }
        }
    }

    fn notify_match(&self, entry: &TrackedProcess, kind: NoticeKind, now: Instant) {
        let admit = self
            .0
            .breaker
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .admit(now);
        match admit {
            BreakerDecision::Allow => {}
            BreakerDecision::Resume { suppressed } => {
                self.notify(entry, NoticeKind::Resumed { suppressed })
            }
            BreakerDecision::Pause => return self.notify(entry, NoticeKind::Overflow),
            BreakerDecision::Deny => return,
        }
        self.notify(entry, kind);
    }

    fn notify(&self, entry: &TrackedProcess, kind: NoticeKind) {
        self.0.options.notices.deliver(Notice::new(
            entry.session.clone(),
            entry.routing.clone(),
            (entry.id.clone(), entry.command.clone()),
            kind,
            entry.consumed.clone(),
        ));
    }

    /// Those of one session, or all; oldest first.
    pub fn list(&self, session: Option<&SessionId>) -> Vec<ProcessInfo> {
        self.remove_expired();
        let now = self.now();
        let mut all: Vec<ProcessInfo> = self.with_table(|table| {
            table
                .values()
                .filter(|entry| session.is_none_or(|session| entry.session == *session))
                .map(|entry| entry.info(now))
                .collect()
        });
        all.sort_by(|a, b| a.started_at.total_cmp(&b.started_at).then(a.id.cmp(&b.id)));
        all
    }

    pub fn running(&self) -> usize {
        self.with_table(|table| {
            table
                .values()
                .filter(|entry| entry.ended().is_none())
                .count()
        })
    }

    pub fn info(&self, id: &str) -> Result<ProcessInfo, ProcessError> {
        Ok(self.find(id)?.info(self.now()))
    }

    /// The end of its output, at most `max` bytes.
    pub async fn tail(&self, id: &str, max: usize) -> Result<String, ProcessError> {
        Ok(self.find(id)?.tail(max).await)
    }

    /// Lines of its output. Reading the end of a finished one counts as having been notified.
    pub async fn log(
        &self,
        id: &str,
        offset: usize,
        limit: usize,
    ) -> Result<LogPage, ProcessError> {
        let entry = self.find(id)?;
        let ended = entry.ended().is_some();
        let page = entry.log(offset, limit).await;
        if ended && page.complete {
            entry.consumed.set();
        }
        Ok(page)
    }

    /// Waits for its end.
    pub async fn wait(
        &self,
        id: &str,
        limit: Duration,
        cancel: &CancellationToken,
    ) -> Result<WaitOutcome, ProcessError> {
        let entry = self.find(id)?;
        let mut end = entry.end.subscribe();
        let _waiting = WaitGuard::new(&entry);
        let waited = tokio::select! {
            biased;
            ended = end.wait_for(Option::is_some) => match ended.ok().and_then(|end| *end) {
                Some((ended, _)) => WaitOutcome::Ended(ended),
                None => WaitOutcome::Interrupted,
            },
            () = cancel.cancelled() => WaitOutcome::Interrupted,
            () = tokio::time::sleep(limit) => WaitOutcome::TimedOut,
        };
        if matches!(waited, WaitOutcome::Ended(_)) {
            entry.consumed.set();
        }
        Ok(waited)
    }

    /// Kills it with everything it started. `false`: it had ended before.
    pub async fn kill(&self, id: &str) -> Result<bool, ProcessError> {
        let entry = self.find(id)?;
        entry.consumed.set();
        if entry.ended().is_some() {
            return Ok(false);
        }
        entry.killed.store(true, Ordering::Release);
        entry.process.kill(self.0.options.grace).await?;
        let mut end = entry.end.subscribe();
        let ended = end.wait_for(Option::is_some);
        if tokio::time::timeout(self.0.options.grace, ended)
            .await
            .is_err()
        {
            tracing::warn!(process = id, "killed, but its end was not seen");
        }
        Ok(true)
    }

    /// Kills all of a session.
    pub async fn kill_all(&self, session: &SessionId) -> usize {
        let mut killed = 0;
        for info in self.list(Some(session)) {
            if info.ended.is_none() && self.kill(&info.id).await.unwrap_or(false) {
                killed += 1;
            }
        }
        killed
    }

    pub async fn write(&self, id: &str, bytes: Bytes) -> Result<(), ProcessError> {
        let entry = self.find_running(id)?;
        Ok(entry.process.write(bytes).await?)
    }

    pub async fn close_stdin(&self, id: &str) -> Result<(), ProcessError> {
        let entry = self.find_running(id)?;
        Ok(entry.process.close_stdin().await?)
    }

    fn find_running(&self, id: &str) -> Result<SharedProcess, ProcessError> {
        let entry = self.find(id)?;
        match entry.ended() {
            None => Ok(entry),
            Some(_) => Err(ProcessError::Ended(id.to_owned())),
        }
    }

    fn find(&self, id: &str) -> Result<SharedProcess, ProcessError> {
        self.with_table(|table| table.get(id).cloned())
            .ok_or_else(|| ProcessError::Unknown(id.to_owned()))
    }

    fn new_id(&self) -> String {
        format!(
            "proc_{:012x}",
            self.0.options.rng.next_u64() & 0xffff_ffff_ffff
        )
    }

    fn now(&self) -> f64 {
        self.0.options.clock.epoch_seconds()
    }

    /// Removes expired processes, and the oldest finished one if the table is full.
    fn evict_if_full(&self) -> Result<(), ProcessError> {
        self.remove_expired();
        let gone = self.with_table(|table| {
            if table.len() < MAX_TRACKED {
                return Ok(None);
            }
            let oldest = table
                .values()
                .filter_map(|entry| Some((entry.ended_at()?, entry.id.clone())))
                .min_by(|a, b| a.0.total_cmp(&b.0));
            match oldest {
                Some((_, id)) => Ok(table.remove(&id)),
                None => Err(ProcessError::TooMany),
            }
        })?;
        remove_files(gone);
        Ok(())
    }

    fn remove_expired(&self) {
        let before = self.now() - KEEP_FINISHED;
        let old: Vec<SharedProcess> = self.with_table(|table| {
            let old: Vec<String> = table
                .values()
                .filter(|entry| entry.ended_at().is_some_and(|at| at < before))
                .map(|entry| entry.id.clone())
                .collect();
            old.iter().filter_map(|id| table.remove(id)).collect()
        });
        remove_files(old);
    }

    /// Writes the running processes to the checkpoint.
    fn save(&self) {
        let Some(path) = &self.0.options.checkpoint else {
            return;
        };
        let start = our_start_time();
        let running: Vec<SavedProcess> = self.with_table(|table| {
            table
                .values()
                .filter(|entry| entry.ended().is_none())
                .map(|entry| to_saved(entry, start))
                .collect()
        });
        if let Err(error) = checkpoint::save(path, &running) {
            tracing::warn!(path = %path.display(), "background processes would not survive: {error}");
        }
    }

    fn with_table<R>(&self, act: impl FnOnce(&mut BTreeMap<String, SharedProcess>) -> R) -> R {
        act(&mut self.0.table.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// Counts a waiting call.
struct WaitGuard<'a>(&'a TrackedProcess);

impl<'a> WaitGuard<'a> {
    fn new(entry: &'a TrackedProcess) -> Self {
        entry.waiters.fetch_add(1, Ordering::AcqRel);
        Self(entry)
    }
}

impl Drop for WaitGuard<'_> {
    fn drop(&mut self) {
        self.0.waiters.fetch_sub(1, Ordering::AcqRel);
    }
}

/// Removes the files of processes that can no longer be queried.
fn remove_files(gone: impl IntoIterator<Item = SharedProcess>) {
    for entry in gone {
        if entry.backend == "local"
            && let Some(dir) = entry.process.record().dir
            && dir.ends_with(&entry.id)
        {
            // Most have none by now.
            let _ = std::fs::remove_file(dir.with_extension("awaited"));
            if let Err(error) = std::fs::remove_dir_all(&dir) {
                tracing::debug!(dir = %dir.display(), "not removed: {error}");
            }
        }
    }
}

fn to_saved(entry: &TrackedProcess, our_start_time: Option<u64>) -> SavedProcess {
    let record = entry.process.record();
    let host = entry.backend == "local";
    SavedProcess {
        session_id: entry.id.clone(),
        command: entry.command.clone(),
        pid: Some(record.pid),
        pid_scope: if host { "host" } else { "sandbox" }.to_owned(),
        host_start_time: record.start_time,
        cwd: Some(entry.cwd.display().to_string()),
        started_at: entry.started_at,
        task_id: entry.session.to_string(),
        session_key: entry.session.to_string(),
        watcher_interval: if entry.routing.watcher_platform.is_empty() {
            0
        } else {
            5
        },
        routing: entry.routing.clone(),
        notify_on_complete: entry.notify.load(Ordering::Acquire),
        watch_patterns: entry.patterns.clone(),
        watched: entry.reported_bytes.load(Ordering::Acquire),
        dir: record.dir.map(|dir| dir.display().to_string()),
        backend: entry.backend.to_owned(),
        pty: record.pty,
        owner_pid: Some(std::process::id()),
        owner_start_time: our_start_time,
        other: serde_json::Map::new(),
    }
}

fn from_saved(
    saved: SavedProcess,
    process: Box<dyn Background>,
    backend: &'static str,
) -> TrackedProcess {
    let session = if saved.session_key.is_empty() {
        saved.task_id
    } else {
        saved.session_key
    };
    TrackedProcess {
        id: saved.session_id,
        session: SessionId::new(session),
        command: saved.command,
        cwd: saved.cwd.unwrap_or_default().into(),
        started_at: saved.started_at,
        routing: saved.routing,
        backend,
        adopted: true,
        process,
        notify: AtomicBool::new(saved.notify_on_complete),
        killed: AtomicBool::new(false),
        consumed: ConsumedFlag::default(),
        waiters: AtomicUsize::new(0),
        watcher: Mutex::new(Watcher::new(&saved.watch_patterns)),
        patterns: saved.watch_patterns,
        reported_bytes: AtomicU64::new(saved.watched),
        end: channel::Sender::new(None),
    }
}

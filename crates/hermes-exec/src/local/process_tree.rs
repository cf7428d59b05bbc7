//! The processes of one command: its session, its descendants, and processes that left both but still carry its
//! mark.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process, kill_process_group};

use crate::shell::MARK;

/// Maximum rounds of killing processes that a dying program still starts.
const MAX_KILL_ROUNDS: u32 = 50;
const FIRST_POLL: Duration = Duration::from_millis(10);
const MAX_POLL: Duration = Duration::from_millis(100);

/// A process as the kernel describes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ProcessStat {
    pub(crate) parent: i32,
    pub(crate) group: i32,
    pub(crate) session: i32,
    /// Ticks since boot.
    pub(crate) start_time: u64,
    pub(crate) dead: bool,
}

/// Reads `/proc/<pid>/stat`.
pub(crate) fn stat(pid: i32) -> Option<ProcessStat> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name in parentheses may contain anything, including parentheses.
    let fields: Vec<&str> = text.rsplit_once(')')?.1.split_whitespace().collect();
    let number = |at: usize| fields.get(at)?.parse().ok();
    Some(ProcessStat {
        parent: number(1)?,
        group: number(2)?,
        session: number(3)?,
        start_time: fields.get(19)?.parse().ok()?,
        dead: matches!(*fields.first()?, "Z" | "X" | "x"),
    })
}

/// When the kernel started it, in ticks since boot.
pub(crate) fn start_time(pid: u32) -> Option<u64> {
    let stat = i32::try_from(pid).ok().and_then(stat)?;
    Some(stat.start_time)
}

/// Whether `pid` is still the process that was started at `start_time`.
pub(crate) fn is_alive(pid: u32, start_time: Option<u64>) -> bool {
    i32::try_from(pid)
        .ok()
        .and_then(stat)
        .is_some_and(|stat| !stat.dead && start_time.is_none_or(|start| start == stat.start_time))
}

/// All processes that belong to one command.
#[derive(Clone, Debug)]
pub(crate) struct ProcessTree {
    /// The session leader. `None`: something else started them, and only their mark tells.
    leader: Option<i32>,
    /// When the leader started: a later process with that pid is unrelated.
    start_time: Option<u64>,
    /// The value of [`MARK`] in their environment.
    mark: String,
    /// Processes found before, with their start times: one without a mark cannot be identified once its parent
    /// is gone.
    known: Arc<Mutex<BTreeMap<i32, u64>>>,
}

impl ProcessTree {
    pub(crate) fn new(leader: u32, start_time: Option<u64>, mark: &str) -> Self {
        Self {
            leader: i32::try_from(leader).ok(),
            start_time,
            mark: mark.to_owned(),
            known: Arc::default(),
        }
    }

    /// Processes with this mark, and their descendants.
    pub(crate) fn marked(mark: &str) -> Self {
        Self {
            leader: None,
            start_time: None,
            mark: mark.to_owned(),
            known: Arc::default(),
        }
    }

    /// Terminates them: TERM, `grace`, KILL. Returns when none is left or nothing more can be done.
    pub(crate) async fn terminate(&self, grace: Duration) {
        let deadline = tokio::time::Instant::now() + grace;
        let mut left = self.signal(Signal::TERM).await;
        let mut pause = FIRST_POLL;
        while left > 0 && tokio::time::Instant::now() < deadline {
            tokio::time::sleep(pause.min(deadline - tokio::time::Instant::now())).await;
            pause = (pause * 2).min(MAX_POLL);
            left = self.live_members().await.len();
        }
        let mut round = 0;
        while left > 0 && round < MAX_KILL_ROUNDS {
            left = self.signal(Signal::KILL).await;
            round += 1;
            tokio::time::sleep(FIRST_POLL).await;
        }
    }

    /// Kills them without waiting. The leader must not have been reaped.
    pub(crate) fn kill_now(&self) {
        // Collected before the first of them dies: descent is lost with the parent.
        let members = self.members();
        if let Some(leader) = self.leader.and_then(Pid::from_raw) {
            // An error means that there is nothing to kill.
            let _ = kill_process_group(leader, Signal::KILL);
        }
        for pid in members.into_iter().chain(self.members()) {
            let _ = kill_process(pid, Signal::KILL);
        }
    }

    /// Sends a signal to all and returns their number.
    async fn signal(&self, signal: Signal) -> usize {
        let tree = self.clone();
        blocking(move || {
            let members = tree.members();
            let leader = tree.leader.and_then(Pid::from_raw);
            if let (Some(leader), true) = (leader, tree.owns_group()) {
                let _ = kill_process_group(leader, signal);
            }
            for pid in &members {
                let in_group = stat(pid.as_raw_nonzero().get())
                    .is_some_and(|stat| Some(stat.group) == tree.leader);
                if !in_group {
                    let _ = kill_process(*pid, signal);
                }
            }
            members.len()
        })
        .await
        .unwrap_or(0)
    }

    async fn live_members(&self) -> Vec<Pid> {
        let tree = self.clone();
        blocking(move || tree.members()).await.unwrap_or_default()
    }

    /// Whether the process group is still ours: its leader is alive (or a zombie), or others of the session
    /// are.
    fn owns_group(&self) -> bool {
        let Some(leader) = self.leader else {
            return false;
        };
        match stat(leader) {
            Some(stat) => self.start_time.is_none_or(|start| start == stat.start_time),
            // A pid is not reused as long as a process group has it.
            None => true,
        }
    }

    /// The live processes.
    fn members(&self) -> Vec<Pid> {
        let processes = all_processes();
        let ours = std::process::id() as i32;
        let mark = format!("{MARK}={}", self.mark);
        let leads = self.owns_group();
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let mut members: BTreeSet<i32> = processes
            .iter()
            .filter(|(pid, stat)| {
                leads
                    && [stat.session, **pid]
                        .iter()
                        .any(|id| Some(*id) == self.leader)
                    || known.get(pid) == Some(&stat.start_time)
                    || has_mark(**pid, mark.as_bytes())
            })
            .map(|(pid, _)| *pid)
            .collect();
        // Children of members, recursively.
        loop {
            let before = members.len();
            for (pid, stat) in &processes {
                if members.contains(&stat.parent) {
                    members.insert(*pid);
                }
            }
            if members.len() == before {
                break;
            }
        }
        members.retain(|pid| *pid != ours && *pid > 1);
        *known = members
            .iter()
            .filter_map(|pid| Some((*pid, processes.get(pid)?.start_time)))
            .collect();
        members
            .into_iter()
            .filter(|pid| processes.get(pid).is_some_and(|stat| !stat.dead))
            .filter_map(Pid::from_raw)
            .collect()
    }
}

fn all_processes() -> BTreeMap<i32, ProcessStat> {
    let Ok(entries) = std::fs::read_dir("/proc") else {
        return BTreeMap::new();
    };
    entries
        .flatten()
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
        .filter_map(|pid| Some((pid, stat(pid)?)))
        .collect()
}

/// Rounds of killing what a dying program still starts, and how long each waits.
const MAX_ORPHAN_ROUNDS: u32 = 200;

/// Kills everything that descends from this process, which must be the subreaper of its orphans, and reaps it.
/// Nothing can leave: whatever loses its parent becomes our child.
pub(crate) fn kill_descendants() {
    let ours = rustix::process::getpid();
    for _ in 0..MAX_ORPHAN_ROUNDS {
        for pid in descendants(ours.as_raw_nonzero().get()) {
            // An error means that it has exited.
            let _ = kill_process(pid, Signal::KILL);
        }
        loop {
            match rustix::process::wait(rustix::process::WaitOptions::NOHANG) {
                Ok(Some(_)) => {}
                Ok(None) => break,
                // There are none.
                Err(_) => return,
            }
        }
        std::thread::sleep(FIRST_POLL);
    }
}

fn descendants(ancestor: i32) -> Vec<Pid> {
    let processes = all_processes();
    let mut found = BTreeSet::from([ancestor]);
    loop {
        let before = found.len();
        let children = processes
            .iter()
            .filter(|(_, stat)| found.contains(&stat.parent))
            .map(|(pid, _)| *pid);
        found.extend(children.collect::<Vec<_>>());
        if found.len() == before {
            break;
        }
    }
    found.remove(&ancestor);
    found.into_iter().filter_map(Pid::from_raw).collect()
}

fn has_mark(pid: i32, mark: &[u8]) -> bool {
    let path = format!("/proc/{pid}/environ");
    std::fs::read(Path::new(&path))
        .is_ok_and(|environ| environ.split(|&byte| byte == 0).any(|one| one == mark))
}

async fn blocking<R: Send + 'static>(work: impl FnOnce() -> R + Send + 'static) -> Option<R> {
    tokio::task::spawn_blocking(work).await.ok()
}

//! Which processes are alive; a start time distinguishes reused pids.

use std::time::Duration;

use hermes_store::delivery::{Owner, Processes};
use rustix::process::{Pid, Signal};

/// The processes of this machine.
#[derive(Clone, Copy, Debug, Default)]
pub struct MachineProcesses;

impl Processes for MachineProcesses {
    /// A process that cannot be inspected counts as alive.
    fn alive(&self, pid: u32, started_at: Option<i64>) -> bool {
        match (start_time(pid), started_at) {
            (Some(now), Some(then)) => now == then,
            (Some(_), None) => true,
            (None, _) => exists(pid),
        }
    }
}

/// This process, as an owner with a random instance.
pub fn this_process() -> Owner {
    let pid = std::process::id();
    Owner {
        pid,
        started_at: start_time(pid),
        instance: format!("{:032x}", rand::random::<u128>()),
    }
}

/// When a process started, in clock ticks since boot: the number that the original stores.
/// `None` where there is no such process, or no `/proc`.
pub fn start_time(pid: u32) -> Option<i64> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The second field is the name in parentheses and may hold anything; the rest is numbers.
    let (_, fields) = stat.rsplit_once(')')?;
    fields.split_whitespace().nth(19)?.parse().ok()
}

/// Whether the process exists; zombies do not count.
pub fn exists(pid: u32) -> bool {
    let Some(raw) = raw(pid) else {
        return false;
    };
    if let Ok(stat) = std::fs::read_to_string(format!("/proc/{pid}/stat"))
        && let Some((_, fields)) = stat.rsplit_once(')')
        && fields.split_whitespace().next() == Some("Z")
    {
        return false;
    }
    !matches!(
        rustix::process::test_kill_process(raw),
        Err(rustix::io::Errno::SRCH)
    )
}

pub(super) fn raw(pid: u32) -> Option<Pid> {
    i32::try_from(pid).ok().and_then(Pid::from_raw)
}

/// The command line of a process, if readable.
pub(super) fn command_line(pid: u32) -> Option<Vec<String>> {
    let bytes = std::fs::read(format!("/proc/{pid}/cmdline")).ok()?;
    let words = bytes.split(|byte| *byte == 0);
    let words: Vec<String> = words
        .filter(|word| !word.is_empty())
        .map(|word| String::from_utf8_lossy(word).into_owned())
        .collect();
    (!words.is_empty()).then_some(words)
}

/// How long a process has been running, in seconds, if `/proc` is available.
pub fn uptime(pid: u32) -> Option<u64> {
    let started = u64::try_from(start_time(pid)?).ok()?;
    Some((since_boot()? as u64).saturating_sub(started / TICKS_PER_SECOND))
}

/// Clock ticks per second in `/proc`, the same on every machine.
const TICKS_PER_SECOND: u64 = 100;

/// Seconds since the machine started.
pub(super) fn since_boot() -> Option<f64> {
    let text = std::fs::read_to_string("/proc/uptime").ok()?;
    text.split_whitespace().next()?.parse().ok()
}

/// Identifies the current boot of the machine or container: boot id and start of its first process.
pub(super) fn epoch() -> String {
    let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    let first = start_time(1)
        .map(|ticks| ticks.to_string())
        .unwrap_or_default();
    match (boot.trim(), first.as_str()) {
        ("", "") => String::new(),
        (boot, first) => format!("{boot}:{first}"),
    }
}

/// A process of this machine that can receive signals.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GatewayProcess {
    pub pid: u32,
    pub start_time: Option<i64>,
}

impl GatewayProcess {
    /// Sends a signal. `Ok(false)`: the process is gone, or its pid was reused.
    pub fn signal(self, signal: Signal) -> std::io::Result<bool> {
        if !self.alive() {
            return Ok(false);
        }
        let Some(pid) = raw(self.pid) else {
            return Ok(false);
        };
        match rustix::process::kill_process(pid, signal) {
            Ok(()) => Ok(true),
            Err(rustix::io::Errno::SRCH) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }

    pub fn alive(self) -> bool {
        exists(self.pid)
            && match (self.start_time, start_time(self.pid)) {
                (Some(then), Some(now)) => then == now,
                _ => true,
            }
    }

    /// Waits until it has ended; `false`: still running after `patience`.
    pub async fn gone(self, patience: Duration) -> bool {
        let deadline = tokio::time::Instant::now() + patience;
        while self.alive() {
            if tokio::time::Instant::now() >= deadline {
                return false;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_is_known_by_its_start() {
        let me = this_process();
        assert!(MachineProcesses.alive(me.pid, me.started_at));
        assert!(MachineProcesses.alive(me.pid, None));
        if let Some(start) = me.started_at {
            assert!(!MachineProcesses.alive(me.pid, Some(start + 1)));
        }
        assert!(!MachineProcesses.alive(4_000_001, Some(1)));
        assert!(!MachineProcesses.alive(0, None));
        assert_ne!(this_process().instance, me.instance);
    }
}

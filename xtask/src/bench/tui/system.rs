//! What the system knows of a program and everything it has started.

use std::collections::BTreeMap;
use std::fs;
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

/// Length of a tick of `/proc/<pid>/stat`, the same on every Linux.
const TICK_MS: u64 = 10;

/// A program and everything it has started, added up.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct ProcessUsage {
    /// By thread: how often it left the processor.
    switches: BTreeMap<u32, u64>,
    pub cpu_ms: u64,
    pub rss_kb: u64,
    /// Memory that is shared with others is counted in parts.
    pub pss_kb: u64,
    pub processes: u64,
}

impl ProcessUsage {
    pub(super) fn of(pid: u32) -> Self {
        let mut all = Self::default();
        for pid in family(pid) {
            all.processes += 1;
            for thread in threads(pid) {
                let status = read(&format!("/proc/{pid}/task/{thread}/status"));
                let switches = number(&status, "voluntary_ctxt_switches:")
                    + number(&status, "nonvoluntary_ctxt_switches:");
                all.switches.insert(thread, switches);
            }
            all.cpu_ms += cpu_ms(&read(&format!("/proc/{pid}/stat")));
            let memory = read(&format!("/proc/{pid}/smaps_rollup"));
            all.rss_kb += number(&memory, "Rss:");
            all.pss_kb += number(&memory, "Pss:");
        }
        all
    }

    pub(super) fn threads(&self) -> usize {
        self.switches.len()
    }

    /// How often a thread has run since then. One that is gone ran at least once.
    pub(super) fn wakeups_since(&self, before: &Self) -> u64 {
        let known = |thread: &u32| before.switches.get(thread).copied().unwrap_or(0);
        let ran = self.switches.iter();
        let ran: u64 = ran
            .map(|(thread, count)| count.saturating_sub(known(thread)))
            .sum();
        let gone = before.switches.keys();
        let gone = gone.filter(|thread| !self.switches.contains_key(thread));
        ran + gone.count() as u64
    }
}

/// What is gone counts nothing.
fn read(path: &str) -> String {
    fs::read_to_string(path).unwrap_or_default()
}

/// The number behind this word at the beginning of a line.
fn number(text: &str, word: &str) -> u64 {
    let line = text.lines().find_map(|line| line.strip_prefix(word));
    let first = line.and_then(|rest| rest.split_whitespace().next());
    first.and_then(|digits| digits.parse().ok()).unwrap_or(0)
}

/// Time on the processor, from `/proc/<pid>/stat`.
fn cpu_ms(stat: &str) -> u64 {
    // The name of the program stands in brackets and may contain anything.
    let Some((_, rest)) = stat.rsplit_once(')') else {
        return 0;
    };
    let fields = rest.split_whitespace().skip(11).take(2);
    let ticks: u64 = fields.filter_map(|field| field.parse::<u64>().ok()).sum();
    ticks * TICK_MS
}

fn threads(pid: u32) -> Vec<u32> {
    let Ok(entries) = fs::read_dir(format!("/proc/{pid}/task")) else {
        return Vec::new();
    };
    let names = entries.flatten().map(|entry| entry.file_name());
    names
        .filter_map(|name| name.to_str()?.parse().ok())
        .collect()
}

/// The process and what it has started, and so on.
pub(super) fn family(pid: u32) -> Vec<u32> {
    let mut all = vec![pid];
    let mut at = 0;
    while let Some(&parent) = all.get(at) {
        for thread in threads(parent) {
            let children = read(&format!("/proc/{parent}/task/{thread}/children"));
            all.extend(
                children
                    .split_whitespace()
                    .filter_map(|pid| pid.parse::<u32>().ok()),
            );
        }
        at += 1;
    }
    all
}

/// Ends what is left of a family whose first member was ended.
pub(super) fn end(family: &[u32]) {
    let patience = Instant::now() + Duration::from_secs(1);
    for pid in family.iter().skip(1) {
        let Ok(number) = i32::try_from(*pid) else {
            continue;
        };
        while fs::exists(format!("/proc/{pid}")).unwrap_or(false) {
            if Instant::now() > patience {
                // It may leave by itself just now.
                let _ = kill(Pid::from_raw(number), Signal::SIGKILL);
                break;
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_system_knows_this_program() {
        let usage = ProcessUsage::of(std::process::id());
        assert!(usage.processes >= 1 && usage.threads() >= 1, "{usage:?}");
        assert!(
            usage.rss_kb >= usage.pss_kb && usage.pss_kb > 0,
            "{usage:?}"
        );
        assert_eq!(ProcessUsage::of(u32::MAX).threads(), 0);
    }

    #[test]
    fn threads_that_come_and_go_have_run() {
        let at = |switches: &[(u32, u64)]| ProcessUsage {
            switches: switches.iter().copied().collect(),
            ..ProcessUsage::default()
        };
        let (before, after) = (at(&[(1, 10), (2, 5)]), at(&[(1, 12), (3, 4)]));
        assert_eq!(after.wakeups_since(&before), 2 + 4 + 1);
        assert_eq!(before.wakeups_since(&before), 0);
    }

    #[test]
    fn names_with_brackets_do_not_confuse() {
        let stat = "7 (a) b (c) S 1 2 3 4 5 6 7 8 9 10 30 12 0 0 20 0";
        assert_eq!(cpu_ms(stat), 420);
        assert_eq!(cpu_ms(""), 0);
    }
}

//! Which processes live, told apart by their start, because pids are used again.

use hermes_store::db::delivery::{Owner, Processes};

/// The processes of this machine.
#[derive(Clone, Copy, Debug, Default)]
pub struct Machine;

impl Processes for Machine {
    /// A process that cannot be looked at counts as living.
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

fn exists(pid: u32) -> bool {
    let Some(pid) = i32::try_from(pid)
        .ok()
        .and_then(rustix::process::Pid::from_raw)
    else {
        return false;
    };
    !matches!(
        rustix::process::test_kill_process(pid),
        Err(rustix::io::Errno::SRCH)
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_is_known_by_its_start() {
        let me = this_process();
        assert!(Machine.alive(me.pid, me.started_at));
        assert!(Machine.alive(me.pid, None));
        if let Some(start) = me.started_at {
            assert!(!Machine.alive(me.pid, Some(start + 1)));
        }
        assert!(!Machine.alive(4_000_001, Some(1)));
        assert!(!Machine.alive(0, None));
        assert_ne!(this_process().instance, me.instance);
    }
}

//! Free resources of this machine.

use std::path::Path;

/// Free bytes on the file system of `path`, which need not exist.
pub fn free_disk(path: &Path) -> Option<u64> {
    let existing = path.ancestors().find(|existing| existing.exists())?;
    let system = rustix::fs::statvfs(existing).ok()?;
    Some(system.f_bavail.saturating_mul(system.f_frsize))
}

/// Bytes of memory available to a program. `None`: unknown on this system.
pub fn free_memory() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/meminfo").ok()?;
    let kilobytes: u64 = text
        .lines()
        .find_map(|line| line.strip_prefix("MemAvailable:"))?
        .trim()
        .strip_suffix("kB")?
        .trim()
        .parse()
        .ok()?;
    let machine = kilobytes * 1024;
    Some(group_limit().map_or(machine, |left| left.min(machine)))
}

/// What is left of a container's memory limit.
fn group_limit() -> Option<u64> {
    let read = |name: &str| {
        let text = std::fs::read_to_string(format!("/sys/fs/cgroup/{name}")).ok()?;
        text.trim().parse::<u64>().ok()
    };
    let limit = read("memory.max")?;
    let reclaimable = std::fs::read_to_string("/sys/fs/cgroup/memory.stat")
        .ok()
        .and_then(|text| {
            let line = text.lines().find_map(|line| line.strip_prefix("file "))?;
            line.trim().parse::<u64>().ok()
        })
        .unwrap_or(0);
    let used = read("memory.current")?.saturating_sub(reclaimable);
    Some(limit.saturating_sub(used))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_machine_has_room() {
        let dir = tempfile::tempdir().unwrap();
        assert!(free_disk(&dir.path().join("not/yet")).unwrap() > 0);
        if cfg!(target_os = "linux") {
            assert!(free_memory().unwrap() > 0);
        }
    }
}

//! The resources of the process, and whether they grow.

use std::fmt;
use std::path::Path;
use std::time::Duration;

use tokio::time::{Instant, sleep};
use tokio_util::sync::CancellationToken;

/// Idle sockets and retired links are closed within this time.
const SETTLE_TIMEOUT: Duration = Duration::from_mins(1);
/// The number of sockets fluctuates.
const SPARE_FILES: usize = 8;
/// Between two samples of the memory.
const SAMPLE_INTERVAL: Duration = Duration::from_secs(2);
/// More growth over the whole run than this is a leak.
const MAX_GROWTH_KIB: f64 = 12.0 * 1024.0;

#[derive(Clone, Copy, Debug)]
pub(super) struct ProcessResources {
    files: usize,
    pub(super) children: usize,
}

impl ProcessResources {
    pub(super) fn now() -> Self {
        let tasks = std::fs::read_dir("/proc/self/task").unwrap().flatten();
        let children = tasks
            .filter_map(|task| std::fs::read_to_string(task.path().join("children")).ok())
            .map(|children| children.split_whitespace().count())
            .sum();
        Self {
            files: std::fs::read_dir("/proc/self/fd").unwrap().count(),
            children,
        }
    }

    /// The resources once they fit again, or those after a timeout.
    pub(super) async fn settled(before: Self) -> Self {
        let end = Instant::now() + SETTLE_TIMEOUT;
        loop {
            let now = Self::now();
            if now.fits(before) || Instant::now() > end {
                return now;
            }
            sleep(Duration::from_millis(500)).await;
        }
    }

    /// The resources once no child is left, or those after a timeout: the guard exits slightly
    /// after the children.
    pub(super) async fn childless() -> Self {
        let nothing = Self {
            files: usize::MAX - SPARE_FILES,
            children: 0,
        };
        Self::settled(nothing).await
    }

    pub(super) fn fits(self, before: Self) -> bool {
        self.files <= before.files + SPARE_FILES && self.children <= before.children
    }
}

/// Resident memory over time.
pub(super) struct Memory {
    /// Minutes and KiB.
    samples: Vec<(f64, f64)>,
}

impl Memory {
    pub(super) async fn watch(stop: CancellationToken) -> Self {
        let begin = Instant::now();
        let mut samples = Vec::new();
        while stop
            .run_until_cancelled(sleep(SAMPLE_INTERVAL))
            .await
            .is_some()
        {
            let status = std::fs::read_to_string("/proc/self/status").unwrap();
            let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
            let kib = line.unwrap().trim().trim_end_matches(" kB");
            samples.push((begin.elapsed().as_secs_f64() / 60.0, kib.parse().unwrap()));
        }
        Self { samples }
    }

    /// Without the time in which caches and pools fill up.
    fn settled(&self) -> &[(f64, f64)] {
        &self.samples[self.samples.len() / 3..]
    }

    /// KiB per minute: the median over all pairs, which is robust against single spikes.
    fn slope(&self) -> f64 {
        let samples = self.settled();
        let mut slopes: Vec<f64> = Vec::new();
        for (at, (t0, m0)) in samples.iter().enumerate() {
            let later = samples[at + 1..].iter();
            slopes.extend(later.map(|(t1, m1)| (m1 - m0) / (t1 - t0)));
        }
        slopes.sort_by(f64::total_cmp);
        slopes.get(slopes.len() / 2).copied().unwrap_or(0.0)
    }

    fn growth(&self) -> f64 {
        let length = match self.settled() {
            [(first, _), .., (last, _)] => last - first,
            _ => 0.0,
        };
        self.slope() * length
    }

    pub(super) fn check(&self) {
        assert!(self.growth() <= MAX_GROWTH_KIB, "memory grows: {self}");
    }
}

impl fmt::Display for Memory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mebibytes = |kib: f64| kib / 1024.0;
        let ends = (self.settled().first(), self.samples.last());
        let (first, last) = (ends.0.map_or(0.0, |s| s.1), ends.1.map_or(0.0, |s| s.1));
        write!(
            f,
            "memory: {:.1} MiB, then {:.1} MiB; slope {:.3} MiB per minute",
            mebibytes(first),
            mebibytes(last),
            mebibytes(self.slope())
        )
    }
}

/// Processes with this variable in their environment, whatever their parent.
pub(super) fn marked_processes(name: &str, value: &Path) -> Vec<String> {
    let mark = format!("{name}={}", value.display());
    let processes = std::fs::read_dir("/proc").unwrap().flatten();
    processes
        .filter(|process| {
            let environment = std::fs::read(process.path().join("environ")).unwrap_or_default();
            let mut variables = environment.split(|byte| *byte == 0);
            variables.any(|variable| variable == mark.as_bytes())
        })
        .map(|process| process.file_name().to_string_lossy().into_owned())
        .collect()
}

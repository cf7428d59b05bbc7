//! Statistics of the server.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use crate::generation::GenerationUsage;

#[derive(Default)]
pub(super) struct ServerStats {
    /// Answers that were started.
    requests: AtomicU64,
    /// Generated tokens, including those of cancelled answers.
    tokens: AtomicU64,
    busy: AtomicBool,
    totals: Mutex<Totals>,
}

#[derive(Clone, Copy, Default)]
struct Totals {
    prefilled: usize,
    prefill: Duration,
    generated: usize,
    decode: Duration,
}

impl ServerStats {
    pub(super) fn begin(&self) {
        self.requests.fetch_add(1, Ordering::Relaxed);
        self.busy.store(true, Ordering::Relaxed);
    }

    pub(super) fn token(&self) {
        self.tokens.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn end(&self, used: Option<&GenerationUsage>) {
        self.busy.store(false, Ordering::Relaxed);
        let Some(used) = used else { return };
        let mut totals = self.totals.lock().unwrap_or_else(PoisonError::into_inner);
        totals.prefilled += used.prompt.saturating_sub(used.reused);
        totals.prefill += used.prefill;
        totals.generated += used.generated;
        totals.decode += used.decode;
    }

    pub(super) fn requests(&self) -> u64 {
        self.requests.load(Ordering::Relaxed)
    }

    pub(super) fn tokens(&self) -> u64 {
        self.tokens.load(Ordering::Relaxed)
    }

    pub(super) fn busy(&self) -> bool {
        self.busy.load(Ordering::Relaxed)
    }

    /// Tokens per second of prompts and of answers, over all answers; `None` before the first.
    pub(super) fn speeds(&self) -> (Option<f64>, Option<f64>) {
        let totals = *self.totals.lock().unwrap_or_else(PoisonError::into_inner);
        let speed = |tokens: usize, time: Duration| {
            let seconds = time.as_secs_f64();
            (tokens > 0 && seconds > 0.0).then(|| (tokens as f64 / seconds * 10.0).round() / 10.0)
        };
        (
            speed(totals.prefilled, totals.prefill),
            speed(totals.generated, totals.decode),
        )
    }
}

/// Resident memory of this process; `None` if the system does not report it.
pub(super) fn resident() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("VmRSS:"))?;
    let kilobytes: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kilobytes * 1024)
}

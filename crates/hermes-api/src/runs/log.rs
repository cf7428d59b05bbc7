//! One run: its status and events, for any number of followers.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};

use axum::body::Bytes;
use hermes_core::approval::ApprovalRequest;
use hermes_core::event::AgentCommand;
use hermes_store::StoredRun;
use serde_json::{Map, Value, json};
use tokio::sync::{mpsc, watch};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// Maximum size of stored events. The oldest are dropped first; late followers get a notice.
const MAX_EVENT_BYTES: usize = 512 * 1024;

const CUT: &str = "the gateway stopped while this ran, and has started again; what was done so far \
                   is in the session";

pub(super) struct ApiRun {
    pub(super) id: String,
    /// Cancels the run.
    pub(super) stop: CancellationToken,
    log: Mutex<RunLog>,
    /// Incremented with every change.
    changes: watch::Sender<u64>,
}

struct RunLog {
    status: RunStatus,
    /// As `GET /v1/runs/{id}` shows it.
    shown: Map<String, Value>,
    events: VecDeque<Bytes>,
    bytes: usize,
    /// The number of the first stored event, counted from 1.
    first: u64,
    pending: VecDeque<PendingApproval>,
    /// Takes answers while it runs.
    answers: Option<mpsc::Sender<AgentCommand>>,
    ended: Option<Instant>,
}

/// An open approval request and its deadline.
struct PendingApproval {
    request: ApprovalRequest,
    until: Instant,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RunStatus {
    Queued,
    Running,
    WaitingForApproval,
    Stopping,
    Completed,
    Failed,
    Cancelled,
}

impl RunStatus {
    fn word(self) -> &'static str {
        match self {
            Self::Queued => "queued",
            Self::Running => "running",
            Self::WaitingForApproval => "waiting_for_approval",
            Self::Stopping => "stopping",
            Self::Completed => "completed",
            Self::Failed => "failed",
            Self::Cancelled => "cancelled",
        }
    }
}

/// Events from a position on.
pub(super) struct RunLogExcerpt {
    /// The first and last number of dropped events.
    pub(super) lost: Option<(u64, u64)>,
    /// With their numbers.
    pub(super) events: Vec<(u64, Bytes)>,
    /// There will be no further events.
    pub(super) is_complete: bool,
}

impl ApiRun {
    pub(super) fn new(id: String, session: &str, model: &str, now: f64) -> Self {
        let shown = json!({
            "object": "hermes.run",
            "run_id": id,
            "status": RunStatus::Queued.word(),
            "created_at": now,
            "updated_at": now,
            "session_id": session,
            "model": model,
        });
        let shown = match shown {
            Value::Object(shown) => shown,
            _ => Map::new(),
        };
        Self {
            id,
            stop: CancellationToken::new(),
            log: Mutex::new(RunLog {
                status: RunStatus::Queued,
                shown,
                events: VecDeque::new(),
                bytes: 0,
                first: 1,
                pending: VecDeque::new(),
                answers: None,
                ended: None,
            }),
            changes: watch::Sender::new(0),
        }
    }

    /// A run of an earlier process: how it ended, or that it was interrupted.
    pub(super) fn stored(id: &str, stored: StoredRun, now: f64) -> Self {
        let run = Self::new(id.to_owned(), "", "", now);
        let StoredRun { shown, ended } = stored;
        let word = shown["status"].as_str().map(str::to_owned);
        if let Value::Object(shown) = shown {
            run.log().shown = shown;
        }
        let ends = [RunStatus::Completed, RunStatus::Cancelled];
        let status = ends
            .into_iter()
            .find(|one| word.as_deref() == Some(one.word()));
        let shown = run.to_json();
        let mut data = json!({});
        for name in ["session_id", "output", "error", "usage", "hermes"] {
            if let Some(value) = shown.get(name) {
                data[name] = value.clone();
            }
        }
        let (at, status) = if ended {
            let at = shown["updated_at"].as_f64().unwrap_or(now);
            (at, status.unwrap_or(RunStatus::Failed))
        } else {
            data["error"] = json!(CUT);
            (now, RunStatus::Failed)
        };
        run.end(status, data, at);
        run
    }

    fn log(&self) -> MutexGuard<'_, RunLog> {
        // A panic while holding this lock cannot leave the log half written.
        self.log.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn to_json(&self) -> Value {
        Value::Object(self.log().shown.clone())
    }

    /// When it ended, and the size of its events.
    pub(super) fn ended(&self) -> Option<(Instant, usize)> {
        let log = self.log();
        Some((log.ended?, log.bytes))
    }

    /// Records the start.
    pub(super) fn mark_started(
        &self,
        answers: mpsc::Sender<AgentCommand>,
        session: &str,
        now: f64,
    ) {
        let mut log = self.log();
        log.answers = Some(answers);
        log.shown.insert("session_id".to_owned(), json!(session));
        if log.status == RunStatus::Queued {
            log.set(RunStatus::Running, now);
        }
    }

    /// Where answers go; `None`: it is not running.
    pub(super) fn answers(&self) -> Option<mpsc::Sender<AgentCommand>> {
        self.log().answers.clone()
    }

    /// Something happened: `event`, with the fields of `data`.
    pub(super) fn add_event(&self, event: &str, data: Value, now: f64) {
        self.log().push(&self.id, event, data, now);
        self.changes.send_modify(|change| *change += 1);
    }

    /// It waits for a person, until then.
    pub(super) fn ask(&self, request: ApprovalRequest, until: Instant, data: Value, now: f64) {
        let mut log = self.log();
        log.pending.push_back(PendingApproval { request, until });
        if log.status == RunStatus::Running {
            log.set(RunStatus::WaitingForApproval, now);
        }
        log.push(&self.id, "approval.request", data, now);
        drop(log);
        self.changes.send_modify(|change| *change += 1);
    }

    /// Removes open approvals: the oldest, one by id, or all.
    pub(super) fn take_asked(&self, id: Option<&str>, all: bool, now: f64) -> Vec<ApprovalRequest> {
        let mut log = self.log();
        let mut first = true;
        log.take(now, |one| {
            let named = id.map_or(first, |id| one.request.id == id);
            let removed = all || (named && first);
            first &= !removed;
            removed
        })
    }

    /// The earliest deadline of open approvals.
    pub(super) fn due(&self) -> Option<Instant> {
        let log = self.log();
        log.pending.iter().map(|one| one.until).min()
    }

    /// Removes expired approvals.
    pub(super) fn take_late(&self, at: Instant, now: f64) -> Vec<ApprovalRequest> {
        self.log().take(now, |one| one.until <= at)
    }

    /// Removes an approval whose answer is no longer needed.
    pub(super) fn not_needed(&self, id: &str, now: f64) {
        let removed = self.log().take(now, |one| one.request.id == id);
        if !removed.is_empty() {
            self.add_event("approval.closed", json!({"request_id": id}), now);
        }
    }

    pub(super) fn stopping(&self, now: f64) -> bool {
        let mut log = self.log();
        if log.ended.is_some() {
            return false;
        }
        log.set(RunStatus::Stopping, now);
        log.shown
            .insert("last_event".to_owned(), json!("run.stopping"));
        drop(log);
        self.stop.cancel();
        true
    }

    /// The end, with the fields that are shown from now on.
    pub(super) fn end(&self, status: RunStatus, data: Value, now: f64) {
        let event = format!("run.{}", status.word());
        let mut log = self.log();
        log.set(status, now);
        if let Value::Object(fields) = &data {
            for (name, value) in fields {
                log.shown.insert(name.clone(), value.clone());
            }
        }
        log.push(&self.id, &event, data, now);
        log.pending.clear();
        log.answers = None;
        log.ended = Some(Instant::now());
        drop(log);
        self.changes.send_modify(|change| *change += 1);
    }

    /// Drops everything but the status.
    pub(super) fn forget_events(&self) {
        let mut log = self.log();
        log.first += log.events.len() as u64;
        log.events = VecDeque::new();
        log.bytes = 0;
    }

    pub(super) fn changes(&self) -> watch::Receiver<u64> {
        self.changes.subscribe()
    }

    /// Events after number `seen`, up to about `bytes` of them.
    pub(super) fn after(&self, seen: u64, bytes: usize) -> RunLogExcerpt {
        let log = self.log();
        let next = seen.saturating_add(1);
        let lost = (next < log.first).then(|| (next, log.first - 1));
        let skip = next.saturating_sub(log.first) as usize;
        let mut left = bytes;
        let mut number = log.first + skip as u64;
        let mut events = Vec::new();
        for event in log.events.iter().skip(skip) {
            events.push((number, event.clone()));
            number += 1;
            left = left.saturating_sub(event.len());
            if left == 0 {
                break;
            }
        }
        let last = log.first + log.events.len() as u64;
        RunLogExcerpt {
            lost,
            events,
            is_complete: log.ended.is_some() && number >= last,
        }
    }
}

impl RunLog {
    /// Removes some open approvals. When none is left, the run continues.
    fn take(
        &mut self,
        now: f64,
        mut which: impl FnMut(&PendingApproval) -> bool,
    ) -> Vec<ApprovalRequest> {
        let mut removed = Vec::new();
        let pending = std::mem::take(&mut self.pending);
        for one in pending {
            if which(&one) {
                removed.push(one.request);
            } else {
                self.pending.push_back(one);
            }
        }
        if self.pending.is_empty() && self.status == RunStatus::WaitingForApproval {
            self.set(RunStatus::Running, now);
        }
        removed
    }

    fn set(&mut self, status: RunStatus, now: f64) {
        self.status = status;
        self.shown.insert("status".to_owned(), json!(status.word()));
        self.shown.insert("updated_at".to_owned(), json!(now));
    }

    fn push(&mut self, run: &str, event: &str, data: Value, now: f64) {
        let mut object = json!({"event": event, "run_id": run, "timestamp": now});
        if let (Value::Object(object), Value::Object(data)) = (&mut object, data) {
            object.extend(data);
        }
        self.shown.insert("last_event".to_owned(), json!(event));
        self.shown.insert("updated_at".to_owned(), json!(now));
        let bytes = Bytes::from(object.to_string());
        self.bytes += bytes.len();
        self.events.push_back(bytes);
        while self.bytes > MAX_EVENT_BYTES && self.events.len() > 1 {
            if let Some(old) = self.events.pop_front() {
                self.bytes -= old.len();
                self.first += 1;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run() -> ApiRun {
        ApiRun::new("run_1".to_owned(), "s", "m", 1.0)
    }

    #[test]
    fn whoever_comes_back_gets_the_rest() {
        let run = run();
        for number in 0..5 {
            run.add_event("message.delta", json!({"delta": number.to_string()}), 2.0);
        }
        let all = run.after(0, usize::MAX);
        let numbers: Vec<u64> = all.events.iter().map(|(number, _)| *number).collect();
        assert_eq!(numbers, [1, 2, 3, 4, 5]);
        assert!(!all.is_complete && all.lost.is_none());
        let rest = run.after(3, usize::MAX);
        assert_eq!(rest.events.len(), 2);
        for beyond in [9, u64::MAX] {
            assert_eq!(run.after(beyond, usize::MAX).events.len(), 0);
        }
        run.end(RunStatus::Completed, json!({"output": "01234"}), 3.0);
        assert!(!run.after(3, 1).is_complete, "there is more to tell");
        assert!(run.after(3, usize::MAX).is_complete);
        assert_eq!(run.to_json()["status"], "completed");
        assert_eq!(run.to_json()["output"], "01234");
        run.forget_events();
        let late = run.after(2, usize::MAX);
        assert_eq!((late.lost, late.is_complete), (Some((3, 6)), true));
        assert_eq!(run.after(6, usize::MAX).lost, None);
    }

    #[test]
    fn events_are_bounded_and_what_is_lost_is_known() {
        let run = run();
        let text = "x".repeat(1000);
        for _ in 0..1000 {
            run.add_event("message.delta", json!({"delta": text}), 2.0);
        }
        let excerpt = run.after(0, usize::MAX);
        let total: usize = excerpt.events.iter().map(|(_, event)| event.len()).sum();
        assert!(total <= MAX_EVENT_BYTES);
        let (first, last) = excerpt.lost.unwrap();
        assert_eq!(first, 1);
        assert_eq!(excerpt.events[0].0, last + 1);
        assert_eq!(excerpt.events.last().unwrap().0, 1000);
    }
}

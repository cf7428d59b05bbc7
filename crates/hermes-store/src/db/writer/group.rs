//! Several writes in one transaction.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::{Duration, Instant};

use hermes_core::store::StoreError;
use rusqlite::Connection;
use tokio::sync::{mpsc, oneshot};

use super::{JITTER_MIN_MS, JITTER_SPAN_MS, WriterJob, WriterThread, run_in_transaction};
use crate::db::connection::DbError;

/// Maximum number of writes that share a commit. All of them wait for it, so it must stay short.
const MAX_GROUP: usize = 64;

/// A queued write of one caller.
pub(super) trait QueuedWrite: Send {
    fn what(&self) -> &'static str;

    /// Does the work, in a transaction or a savepoint; called again after a rollback.
    fn run(&mut self, conn: &Connection) -> Result<(), DbError>;

    /// Sends the result to the caller.
    fn complete(self: Box<Self>, outcome: Result<(), StoreError>);
}

pub(super) struct WriteClosure<T, F> {
    what: &'static str,
    work: F,
    value: Option<T>,
    reply: oneshot::Sender<Result<T, StoreError>>,
}

impl<T, F> WriteClosure<T, F> {
    pub(super) fn new(
        what: &'static str,
        work: F,
    ) -> (Self, oneshot::Receiver<Result<T, StoreError>>) {
        let (reply, answer) = oneshot::channel();
        let write = Self {
            what,
            work,
            value: None,
            reply,
        };
        (write, answer)
    }
}

impl<T, F> QueuedWrite for WriteClosure<T, F>
where
    T: Send,
    F: FnMut(&Connection) -> Result<T, DbError> + Send,
{
    fn what(&self) -> &'static str {
        self.what
    }

    fn run(&mut self, conn: &Connection) -> Result<(), DbError> {
        // A panic in one caller's closure must not stop the thread that all callers share.
        let done = catch_unwind(AssertUnwindSafe(|| (self.work)(conn)));
        let done = done.unwrap_or_else(|_| {
            tracing::error!("{} panicked; nothing of it is stored", self.what);
            Err(DbError::Store(StoreError::Database {
                what: self.what.to_owned(),
                detail: "it panicked; nothing of it is stored".to_owned(),
            }))
        });
        self.value = Some(done?);
        Ok(())
    }

    fn complete(self: Box<Self>, outcome: Result<(), StoreError>) {
        let Self { value, reply, .. } = *self;
        let answer = outcome.and_then(|()| value.ok_or(StoreError::Closed));
        // The caller may have stopped waiting; the work is done anyway.
        let _ = reply.send(answer);
    }
}

impl WriterThread {
    /// Processes `first` and everything queued behind it, in order.
    pub(super) fn process(&mut self, first: WriterJob, queue: &mut mpsc::Receiver<WriterJob>) {
        let mut group: Vec<Box<dyn QueuedWrite>> = Vec::new();
        let mut next = Some(first);
        while let Some(job) = next.take() {
            match job {
                WriterJob::Write(piece) => group.push(piece),
                WriterJob::Exclusive(work) => {
                    self.commit(std::mem::take(&mut group));
                    work(self);
                }
            }
            if group.len() < MAX_GROUP {
                next = queue.try_recv().ok();
            }
        }
        self.commit(group);
    }

    fn commit(&mut self, mut group: Vec<Box<dyn QueuedWrite>>) {
        if group.len() > 1 {
            group = self.commit_group(group);
        }
        for piece in group {
            self.commit_single(piece);
        }
    }

    /// Commits the group in one transaction; returns the writes that must be committed one by one.
    fn commit_group(&mut self, mut group: Vec<Box<dyn QueuedWrite>>) -> Vec<Box<dyn QueuedWrite>> {
        let start = Instant::now();
        loop {
            if self.check().is_err() {
                return group;
            }
            match run_group(&self.conn, &mut group) {
                Ok(faults) => {
                    self.after_write();
                    for (piece, fault) in group.into_iter().zip(faults) {
                        let outcome = match fault {
                            None => Ok(()),
                            Some(fault) => Err(self.fail(fault, piece.what())),
                        };
                        piece.complete(outcome);
                    }
                    return Vec::new();
                }
                Err(fault) if fault.is_busy() && start.elapsed() < self.config.busy_budget => {
                    self.pause();
                }
                // The error belongs to one of them, or shows again when each is committed alone.
                Err(_) => return group,
            }
        }
    }

    fn commit_single(&mut self, mut piece: Box<dyn QueuedWrite>) {
        let start = Instant::now();
        let outcome = loop {
            if let Err(error) = self.check() {
                break Err(error);
            }
            match run_in_transaction(&self.conn, &mut |conn| piece.run(conn)) {
                Ok(()) => {
                    self.after_write();
                    break Ok(());
                }
                Err(fault) if fault.is_busy() => {
                    let waited = start.elapsed();
                    if waited >= self.config.busy_budget {
                        break Err(StoreError::Busy { waited });
                    }
                    self.pause();
                }
                Err(fault) => break Err(self.fail(fault, piece.what())),
            }
        };
        piece.complete(outcome);
    }

    fn pause(&self) {
        let pause = JITTER_MIN_MS + self.config.rng.unit() * JITTER_SPAN_MS;
        std::thread::sleep(Duration::from_micros((pause * 1000.0) as u64));
    }
}

/// One commit for all. `Ok`: the error of each write, if any. `Err`: nothing was stored.
fn run_group(
    conn: &Connection,
    group: &mut [Box<dyn QueuedWrite>],
) -> Result<Vec<Option<DbError>>, DbError> {
    // Releasing a savepoint flushes the search index, so none are used as long as nothing fails.
    let trusting = run_in_transaction(conn, &mut |conn| {
        group.iter_mut().try_for_each(|piece| piece.run(conn))
    });
    match trusting {
        Ok(()) => Ok(group.iter().map(|_| None).collect()),
        Err(fault) if fault.is_busy() || fault.is_corruption() => Err(fault),
        Err(_) => run_in_transaction(conn, &mut |conn| run_with_savepoints(conn, group)),
    }
}

/// Runs each write in a savepoint.
fn run_with_savepoints(
    conn: &Connection,
    group: &mut [Box<dyn QueuedWrite>],
) -> Result<Vec<Option<DbError>>, DbError> {
    let mut faults = Vec::with_capacity(group.len());
    for piece in group {
        conn.prepare_cached("SAVEPOINT piece")?.execute([])?;
        let fault = piece.run(conn).err();
        if let Some(fault) = fault {
            // A full disk and similar errors end the whole transaction, and corruption must not be
            // committed.
            if conn.is_autocommit() || fault.is_busy() || fault.is_corruption() {
                return Err(fault);
            }
            conn.prepare_cached("ROLLBACK TO piece")?.execute([])?;
            faults.push(Some(fault));
        } else {
            faults.push(None);
        }
        conn.prepare_cached("RELEASE piece")?.execute([])?;
    }
    Ok(faults)
}

#[cfg(test)]
mod tests;

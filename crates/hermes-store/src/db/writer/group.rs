//! Several pieces of work in one transaction.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::{Duration, Instant};

use hermes_core::store::StoreError;
use rusqlite::Connection;
use tokio::sync::{mpsc, oneshot};

use super::{JITTER_MIN_MS, JITTER_SPAN_MS, Job, Worker, attempt};
use crate::db::connection::Fault;

/// Pieces of work that share a commit. All of them wait for it, so it must not grow long.
const TOGETHER: usize = 64;

/// Work of one caller.
pub(super) trait Piece: Send {
    fn what(&self) -> &'static str;

    /// Does the work, on a transaction or behind a savepoint; again after that was rolled back.
    fn run(&mut self, conn: &Connection) -> Result<(), Fault>;

    /// Tells the caller.
    fn settle(self: Box<Self>, outcome: Result<(), StoreError>);
}

pub(super) struct Write<T, F> {
    what: &'static str,
    work: F,
    value: Option<T>,
    reply: oneshot::Sender<Result<T, StoreError>>,
}

impl<T, F> Write<T, F> {
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

impl<T, F> Piece for Write<T, F>
where
    T: Send,
    F: FnMut(&Connection) -> Result<T, Fault> + Send,
{
    fn what(&self) -> &'static str {
        self.what
    }

    fn run(&mut self, conn: &Connection) -> Result<(), Fault> {
        // One caller's bug must not stop the thread that everybody writes through.
        let done = catch_unwind(AssertUnwindSafe(|| (self.work)(conn)));
        let done = done.unwrap_or_else(|_| {
            tracing::error!("{} panicked; nothing of it is stored", self.what);
            Err(Fault::Store(StoreError::Database {
                what: self.what.to_owned(),
                detail: "it panicked; nothing of it is stored".to_owned(),
            }))
        });
        self.value = Some(done?);
        Ok(())
    }

    fn settle(self: Box<Self>, outcome: Result<(), StoreError>) {
        let Self { value, reply, .. } = *self;
        let answer = outcome.and_then(|()| value.ok_or(StoreError::Closed));
        // The caller may be gone; the work is done all the same.
        let _ = reply.send(answer);
    }
}

impl Worker {
    /// Does `first` and whatever waits behind it, in order.
    pub(super) fn work(&mut self, first: Job, queue: &mut mpsc::Receiver<Job>) {
        let mut group: Vec<Box<dyn Piece>> = Vec::new();
        let mut next = Some(first);
        while let Some(job) = next.take() {
            match job {
                Job::Write(piece) => group.push(piece),
                Job::Alone(work) => {
                    self.commit(std::mem::take(&mut group));
                    work(self);
                }
            }
            if group.len() < TOGETHER {
                next = queue.try_recv().ok();
            }
        }
        self.commit(group);
    }

    fn commit(&mut self, mut group: Vec<Box<dyn Piece>>) {
        if group.len() > 1 {
            group = self.together(group);
        }
        for piece in group {
            self.alone(piece);
        }
    }

    /// Commits pieces in one transaction; returns those that have to go alone.
    fn together(&mut self, mut group: Vec<Box<dyn Piece>>) -> Vec<Box<dyn Piece>> {
        let start = Instant::now();
        loop {
            if self.check().is_err() {
                return group;
            }
            match attempt_all(&self.conn, &mut group) {
                Ok(faults) => {
                    self.after_write();
                    for (piece, fault) in group.into_iter().zip(faults) {
                        let outcome = match fault {
                            None => Ok(()),
                            Some(fault) => Err(self.fail(fault, piece.what())),
                        };
                        piece.settle(outcome);
                    }
                    return Vec::new();
                }
                Err(fault) if fault.is_busy() && start.elapsed() < self.config.budget => {
                    self.pause();
                }
                // Whatever is wrong belongs to one of them, or shows again when each goes alone.
                Err(_) => return group,
            }
        }
    }

    fn alone(&mut self, mut piece: Box<dyn Piece>) {
        let start = Instant::now();
        let outcome = loop {
            if let Err(error) = self.check() {
                break Err(error);
            }
            match attempt(&self.conn, &mut |conn| piece.run(conn)) {
                Ok(()) => {
                    self.after_write();
                    break Ok(());
                }
                Err(fault) if fault.is_busy() => {
                    let waited = start.elapsed();
                    if waited >= self.config.budget {
                        break Err(StoreError::Busy { waited });
                    }
                    self.pause();
                }
                Err(fault) => break Err(self.fail(fault, piece.what())),
            }
        };
        piece.settle(outcome);
    }

    fn pause(&self) {
        let pause = JITTER_MIN_MS + self.config.rng.unit() * JITTER_SPAN_MS;
        std::thread::sleep(Duration::from_micros((pause * 1000.0) as u64));
    }
}

/// One commit for all. `Ok`: what failed of each. `Err`: nothing is stored of any.
fn attempt_all(
    conn: &Connection,
    group: &mut [Box<dyn Piece>],
) -> Result<Vec<Option<Fault>>, Fault> {
    // The end of a savepoint makes the search index write out what it has gathered, so there are
    // none as long as nothing fails.
    let trusting = attempt(conn, &mut |conn| {
        group.iter_mut().try_for_each(|piece| piece.run(conn))
    });
    match trusting {
        Ok(()) => Ok(group.iter().map(|_| None).collect()),
        Err(fault) if fault.is_busy() || fault.is_damage() => Err(fault),
        Err(_) => attempt(conn, &mut |conn| run_all(conn, group)),
    }
}

/// Each piece behind a savepoint.
fn run_all(conn: &Connection, group: &mut [Box<dyn Piece>]) -> Result<Vec<Option<Fault>>, Fault> {
    let mut faults = Vec::with_capacity(group.len());
    for piece in group {
        conn.prepare_cached("SAVEPOINT piece")?.execute([])?;
        let fault = piece.run(conn).err();
        if let Some(fault) = fault {
            // A full disk and the like end the whole transaction, and damage must not be
            // committed around.
            if conn.is_autocommit() || fault.is_busy() || fault.is_damage() {
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

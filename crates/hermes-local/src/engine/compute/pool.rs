//! Threads that share the work of one product.
//!
//! A token takes some hundred products of a few microseconds each. So the threads spin for a while before they
//! sleep, parts of a product are claimed one by one, and a descheduled thread is not waited for: only threads
//! that claimed a part are.

use std::any::Any;
use std::cell::UnsafeCell;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::JoinHandle;

type PoolJob<'a> = dyn Fn(usize) + Sync + 'a;

/// The job can be joined.
const OPEN: usize = 1 << 32;
/// The pool is shutting down.
const QUIT: usize = 1 << 33;
/// Spins before a thread sleeps: some tens of microseconds.
const SPINS_BEFORE_SLEEP: u32 = 4000;

struct PoolShared {
    /// `OPEN`, `QUIT` and, in the low bits, the number of threads in the job.
    state: AtomicUsize,
    next: AtomicUsize,
    parts: AtomicUsize,
    /// Written only while closed and without threads in the job, read only by those in it.
    job: UnsafeCell<Option<&'static PoolJob<'static>>>,
    sleeping: AtomicUsize,
    bed: Mutex<()>,
    bell: Condvar,
    panic: Mutex<Option<Box<dyn Any + Send>>>,
}

// SAFETY: `job` is guarded by `state` as described there; what it points to is `Sync`.
unsafe impl Send for PoolShared {}
// SAFETY: as above.
unsafe impl Sync for PoolShared {}

/// A thread pool; the caller is one of its threads.
pub(in crate::engine) struct ThreadPool {
    shared: Arc<PoolShared>,
    workers: Vec<JoinHandle<()>>,
}

/// Closes the job, also if the caller's part of it panics.
struct Closing<'a>(&'a PoolShared);

impl Drop for Closing<'_> {
    fn drop(&mut self) {
        self.0.state.fetch_and(!OPEN, Ordering::AcqRel);
        let mut looks = 0u32;
        while self.0.state.load(Ordering::Acquire) & (OPEN - 1) != 0 {
            looks += 1;
            if looks > SPINS_BEFORE_SLEEP {
                std::thread::yield_now();
            } else {
                std::hint::spin_loop();
            }
        }
    }
}

impl PoolShared {
    fn take_parts(&self, job: &PoolJob<'_>) {
        loop {
            let part = self.next.fetch_add(1, Ordering::Relaxed);
            if part >= self.parts.load(Ordering::Relaxed) {
                return;
            }
            job(part);
        }
    }

    fn work(&self) {
        let mut looks = 0u32;
        loop {
            let state = self.state.load(Ordering::Acquire);
            if state & QUIT != 0 {
                return;
            }
            let open = state & OPEN != 0
                && self.next.load(Ordering::Relaxed) < self.parts.load(Ordering::Relaxed);
            if open {
                let entered = self.state.compare_exchange(
                    state,
                    state + 1,
                    Ordering::AcqRel,
                    Ordering::Relaxed,
                );
                if entered.is_ok() {
                    self.join();
                    looks = 0;
                }
            } else if looks < SPINS_BEFORE_SLEEP {
                looks += 1;
                std::hint::spin_loop();
            } else {
                self.sleep();
                looks = 0;
            }
        }
    }

    /// Runs parts of the job in `state`.
    fn join(&self) {
        // SAFETY: this thread is counted in `state` and the job was open: it is set, and the caller
        // waits for the count before it takes the job away.
        let done = catch_unwind(AssertUnwindSafe(|| unsafe {
            if let Some(job) = *self.job.get() {
                self.take_parts(job);
            }
        }));
        if let Err(panic) = done {
            *self.panic.lock().unwrap_or_else(PoisonError::into_inner) = Some(panic);
        }
        self.state.fetch_sub(1, Ordering::Release);
    }

    fn take_panic(&self) -> Option<Box<dyn Any + Send>> {
        let mut panic = self.panic.lock().unwrap_or_else(PoisonError::into_inner);
        panic.take()
    }

    fn sleep(&self) {
        let mut bed = self.bed.lock().unwrap_or_else(PoisonError::into_inner);
        self.sleeping.fetch_add(1, Ordering::SeqCst);
        while self.state.load(Ordering::SeqCst) & (OPEN | QUIT) == 0 {
            bed = self.bell.wait(bed).unwrap_or_else(PoisonError::into_inner);
        }
        self.sleeping.fetch_sub(1, Ordering::SeqCst);
    }

    fn wake(&self) {
        if self.sleeping.load(Ordering::SeqCst) > 0 {
            drop(self.bed.lock().unwrap_or_else(PoisonError::into_inner));
            self.bell.notify_all();
        }
    }
}

impl ThreadPool {
    pub(in crate::engine) fn new(threads: usize) -> std::io::Result<Self> {
        let shared = Arc::new(PoolShared {
            state: AtomicUsize::new(0),
            next: AtomicUsize::new(0),
            parts: AtomicUsize::new(0),
            job: UnsafeCell::new(None),
            sleeping: AtomicUsize::new(0),
            bed: Mutex::new(()),
            bell: Condvar::new(),
            panic: Mutex::new(None),
        });
        let mut pool = Self {
            shared,
            workers: Vec::new(),
        };
        for number in 1..threads {
            let shared = Arc::clone(&pool.shared);
            let worker = std::thread::Builder::new()
                .name(format!("compute-{number}"))
                .spawn(move || shared.work())?;
            pool.workers.push(worker);
        }
        Ok(pool)
    }

    pub(in crate::engine) fn threads(&self) -> usize {
        self.workers.len() + 1
    }

    /// Runs `job` for each of `0..parts` on all threads, and returns when all are done.
    pub(in crate::engine) fn run(&mut self, parts: usize, job: &PoolJob<'_>) {
        if self.workers.is_empty() || parts <= 1 {
            (0..parts).for_each(job);
            return;
        }
        let shared = &*self.shared;
        // SAFETY: only the lifetime changes, and `Closing` waits for everybody at the job before
        // this function returns or unwinds.
        let erased = unsafe { std::mem::transmute::<&PoolJob<'_>, &'static PoolJob<'static>>(job) };
        // SAFETY: the pool is borrowed mutably and no job is open, so nobody reads the cell.
        unsafe { *shared.job.get() = Some(erased) };
        // Also clears a panic flag left by a job whose caller panicked.
        drop(shared.take_panic());
        shared.parts.store(parts, Ordering::Relaxed);
        shared.next.store(0, Ordering::Relaxed);
        shared.state.fetch_or(OPEN, Ordering::SeqCst);
        shared.wake();
        let closing = Closing(shared);
        shared.take_parts(job);
        drop(closing);
        if let Some(panic) = shared.take_panic() {
            resume_unwind(panic);
        }
    }

    /// Distributes `data` in pieces of `size`, each with its index.
    pub(in crate::engine) fn pieces<T: Send>(
        &mut self,
        data: &mut [T],
        size: usize,
        job: impl Fn(usize, &mut [T]) + Sync,
    ) {
        let pieces = SlicePieces::new(data, size);
        // SAFETY: each number is handed out once.
        self.run(pieces.count(), &|part| unsafe {
            job(part, pieces.get(part));
        });
    }

    /// The same for two slices, whose pieces with the same index go together.
    pub(in crate::engine) fn pieces_of_two<T: Send, U: Send>(
        &mut self,
        (first, first_size): (&mut [T], usize),
        (second, second_size): (&mut [U], usize),
        job: impl Fn(usize, &mut [T], &mut [U]) + Sync,
    ) {
        let first = SlicePieces::new(first, first_size);
        let second = SlicePieces::new(second, second_size);
        let count = first.count().min(second.count());
        // SAFETY: each number is handed out once.
        self.run(count, &|part| unsafe {
            job(part, first.get(part), second.get(part));
        });
    }
}

impl Drop for ThreadPool {
    fn drop(&mut self) {
        self.shared.state.fetch_or(QUIT, Ordering::SeqCst);
        self.shared.wake();
        for worker in self.workers.drain(..) {
            // A worker's panic was reported where it happened.
            let _ = worker.join();
        }
    }
}

/// A slice that is distributed in pieces.
struct SlicePieces<T> {
    start: *mut T,
    len: usize,
    size: usize,
}

// SAFETY: pieces are disjoint, so that threads get different elements, which are `Send`.
unsafe impl<T: Send> Sync for SlicePieces<T> {}

impl<T> SlicePieces<T> {
    fn new(data: &mut [T], size: usize) -> Self {
        Self {
            start: data.as_mut_ptr(),
            len: data.len(),
            size: size.max(1),
        }
    }

    fn count(&self) -> usize {
        self.len.div_ceil(self.size)
    }

    /// # Safety
    /// Each number below `count` is asked for at most once while the slice is borrowed.
    unsafe fn get<'a>(&self, number: usize) -> &'a mut [T] {
        let at = number * self.size;
        // SAFETY: within the slice, and nobody else has this piece.
        unsafe { std::slice::from_raw_parts_mut(self.start.add(at), self.size.min(self.len - at)) }
    }
}

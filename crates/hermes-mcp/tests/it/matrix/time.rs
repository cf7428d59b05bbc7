//! Real sockets under virtual time.
//!
//! Client and server run on one thread and one runtime whose clock is paused. Tokio advances a
//! paused clock automatically as soon as no task is ready, although bytes may be in transit through
//! the kernel: a timeout would fire while the answer arrives. A waiting blocking task prevents
//! this, and the clock is advanced explicitly when there is no activity: every ready task has run
//! and the sockets were polled, many times over, and the server received and sent nothing
//! meanwhile. On loopback, written bytes can be read at once, so this is not a guess about
//! durations; the short wait in real time only allows for a kernel that delivers packets late on a
//! busy machine.

use std::future::Future;
use std::sync::mpsc;
use std::time::Duration;

use tokio::runtime::Builder;
use tokio::time::Instant;

/// Turns of the runtime without activity: more than a message needs from task to task, from the
/// socket to the caller and back.
const QUIET_TURNS: usize = 24;
/// Real time without activity.
const QUIET_TIME: Duration = Duration::from_micros(150);
/// While nothing happens, steps of the clock grow from the first to the last of these. The last is
/// short compared with every timeout, so that different timers fire separately.
const FIRST_STEP: Duration = Duration::from_millis(1);
const LAST_STEP: Duration = Duration::from_millis(250);

/// Runs `test` on its own runtime with a clock that only [`drive`] advances. Everything that `test`
/// leaves behind ends with the runtime.
pub(crate) fn with_virtual_time<T, F: Future<Output = T>>(test: impl FnOnce() -> F) -> T {
    let runtime = Builder::new_current_thread()
        .enable_all()
        .start_paused(true)
        .build()
        .unwrap();
    let (release, held) = mpsc::channel::<()>();
    let result = runtime.block_on(async {
        let inhibitor = tokio::task::spawn_blocking(move || {
            // Ends when the other side is dropped.
            let _ = held.recv();
        });
        let result = test().await;
        drop(release);
        inhibitor.await.unwrap();
        result
    });
    runtime.shutdown_background();
    result
}

/// Waits until everything has happened that needs no time.
pub(crate) async fn settle(activity: &dyn Fn() -> u64) {
    let mut seen = activity();
    let mut turns = 0;
    let mut since = std::time::Instant::now();
    while turns < QUIET_TURNS || since.elapsed() < QUIET_TIME {
        // Returns after all ready tasks have run and the sockets were polled.
        tokio::task::yield_now().await;
        let now = activity();
        if now == seen {
            turns += 1;
        } else {
            (seen, turns, since) = (now, 0, std::time::Instant::now());
        }
    }
}

/// Waits for `work`, for at most this long, and advances the clock whenever nothing else happens.
/// `None`: timeout.
pub(crate) async fn drive<T>(
    activity: &dyn Fn() -> u64,
    limit: Duration,
    work: impl Future<Output = T>,
) -> Option<T> {
    let time = async {
        let end = Instant::now() + limit;
        let mut step = FIRST_STEP;
        while Instant::now() < end {
            let before = activity();
            settle(activity).await;
            step = if activity() == before {
                (step * 2).min(LAST_STEP)
            } else {
                FIRST_STEP
            };
            tokio::time::advance(step).await;
        }
        settle(activity).await;
    };
    tokio::select! {
        biased;
        done = work => Some(done),
        () = time => None,
    }
}

/// Advances the clock by this much.
pub(crate) async fn pass(activity: &dyn Fn() -> u64, length: Duration) {
    let never = std::future::pending::<()>();
    let _ = drive(activity, length, never).await;
}

/// The helper itself: a timeout does not fire while an answer is in transit, and does fire if there
/// is none.
#[test]
fn time_passes_only_when_nothing_else_happens() {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU64, Ordering};

    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::net::{TcpListener, TcpStream};
    with_virtual_time(|| async {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let bytes = Arc::new(AtomicU64::new(0));
        let counted = Arc::clone(&bytes);
        let echo = async move {
            let (mut stream, _) = listener.accept().await.unwrap();
            let mut byte = [0];
            while stream.read_exact(&mut byte).await.is_ok() && byte != *b"." {
                stream.write_all(&byte).await.unwrap();
                counted.fetch_add(1, Ordering::Relaxed);
            }
            stream
        };
        let echo = hermes_core::task::spawn("echo", echo);
        let work = async {
            let mut stream = TcpStream::connect(address).await.unwrap();
            for _ in 0..200 {
                let round = async {
                    stream.write_all(b"x").await.unwrap();
                    stream.read_exact(&mut [0]).await.unwrap();
                };
                let limit = Duration::from_millis(1);
                tokio::time::timeout(limit, round).await.unwrap();
            }
            stream.write_all(b".").await.unwrap();
            let began = Instant::now();
            let day = Duration::from_hours(24);
            let silence = tokio::time::timeout(day / 1000, stream.read_exact(&mut [0])).await;
            assert!(silence.is_err());
            began.elapsed()
        };
        let waited = drive(
            &|| bytes.load(Ordering::Relaxed),
            Duration::from_secs(1000),
            work,
        )
        .await
        .unwrap();
        assert!(waited >= Duration::from_millis(86_400), "{waited:?}");
        assert!(waited < Duration::from_secs(90), "{waited:?}");
        echo.abort();
    });
}

//! Accepts HTTP connections, with limits on their number and duration.

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use hermes_core::task;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

/// Clients at the same time; further ones wait to be accepted.
const MAX_CONNECTIONS: usize = 1024;
/// Timeout for the headers of a request.
const HEADER_TIMEOUT: Duration = Duration::from_secs(30);
/// Timeout for answers that are being written when the server stops.
const SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(5);
/// Pause after a failed accept, for example with too many open files.
const ACCEPT_RETRY_PAUSE: Duration = Duration::from_millis(100);

/// Serves until cancelled; answers that are being written are finished.
pub async fn serve(
    listener: TcpListener,
    router: Router,
    cancel: CancellationToken,
) -> std::io::Result<()> {
    let permits = Arc::new(Semaphore::new(MAX_CONNECTIONS));
    let tracker = TaskTracker::new();
    loop {
        let permit = tokio::select! {
            () = cancel.cancelled() => break,
            permit = Arc::clone(&permits).acquire_owned() => permit,
        };
        let Ok(permit) = permit else { break };
        let stream = tokio::select! {
            () = cancel.cancelled() => break,
            accepted = listener.accept() => match accepted {
                Ok((stream, _)) => stream,
                Err(error) => {
                    tracing::warn!("the API server cannot accept a connection: {error}");
                    tokio::time::sleep(ACCEPT_RETRY_PAUSE).await;
                    continue;
                }
            },
        };
        let serving = converse(stream, router.clone(), cancel.clone(), permit);
        task::spawn("api connection", tracker.track_future(serving));
    }
    drop(listener);
    tracker.close();
    if tokio::time::timeout(SHUTDOWN_TIMEOUT, tracker.wait())
        .await
        .is_err()
    {
        tracing::warn!("clients of the API server were cut off when it stopped");
    }
    Ok(())
}

async fn converse(
    stream: TcpStream,
    router: Router,
    cancel: CancellationToken,
    permit: OwnedSemaphorePermit,
) {
    // Deltas are small and must not wait for more.
    let _ = stream.set_nodelay(true);
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEADER_TIMEOUT)
        .serve_connection(TokioIo::new(stream), TowerToHyperService::new(router));
    let mut connection = std::pin::pin!(connection);
    let ended = tokio::select! {
        ended = &mut connection => ended,
        () = cancel.cancelled() => {
            connection.as_mut().graceful_shutdown();
            connection.await
        }
    };
    if let Err(error) = ended {
        // Clients go away in the middle of things: that is their right.
        tracing::debug!("a connection of the API server ended: {error}");
    }
    drop(permit);
}

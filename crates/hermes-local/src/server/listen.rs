//! Accepts connections, limits their number and the time a client may take to send a request, and closes them.

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

/// Maximum number of concurrent clients, including those with leases.
const MAX_CONNECTIONS: usize = 256;
const HEADER_TIMEOUT: Duration = Duration::from_secs(30);
/// Pause after a failed accept, for example with too many open files.
const ACCEPT_RETRY_PAUSE: Duration = Duration::from_millis(100);

pub(super) async fn run(listener: TcpListener, router: Router, cancel: CancellationToken) {
    let permits = Arc::new(Semaphore::new(MAX_CONNECTIONS));
    loop {
        let Ok(permit) = Arc::clone(&permits).acquire_owned().await else {
            return;
        };
        let stream = tokio::select! {
            () = cancel.cancelled() => return,
            accepted = listener.accept() => match accepted {
                Ok((stream, _)) => stream,
                Err(error) => {
                    tracing::warn!("a connection cannot be accepted: {error}");
                    tokio::time::sleep(ACCEPT_RETRY_PAUSE).await;
                    continue;
                }
            },
        };
        task::spawn(
            "connection",
            serve(stream, router.clone(), cancel.clone(), permit),
        );
    }
}

async fn serve(
    stream: TcpStream,
    router: Router,
    cancel: CancellationToken,
    permit: OwnedSemaphorePermit,
) {
    // Deltas are small and must not be delayed.
    let _ = stream.set_nodelay(true);
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEADER_TIMEOUT)
        .serve_connection(TokioIo::new(stream), TowerToHyperService::new(router));
    tokio::select! {
        // Clients may disconnect at any time.
        _ = connection => {}
        () = cancel.cancelled() => {}
    }
    drop(permit);
}

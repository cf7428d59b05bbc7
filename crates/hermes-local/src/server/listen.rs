//! Connections: accepted, bounded in number and in how long a client may take to ask, and ended.

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

/// Clients at the same time, those with leases among them.
const CONNECTIONS: usize = 256;
const HEADERS: Duration = Duration::from_secs(30);
/// After an accept that failed: too many open files, say.
const PAUSE: Duration = Duration::from_millis(100);

pub(super) async fn run(listener: TcpListener, router: Router, cancel: CancellationToken) {
    let places = Arc::new(Semaphore::new(CONNECTIONS));
    loop {
        let Ok(place) = Arc::clone(&places).acquire_owned().await else {
            return;
        };
        let stream = tokio::select! {
            () = cancel.cancelled() => return,
            accepted = listener.accept() => match accepted {
                Ok((stream, _)) => stream,
                Err(error) => {
                    tracing::warn!("a connection cannot be accepted: {error}");
                    tokio::time::sleep(PAUSE).await;
                    continue;
                }
            },
        };
        task::spawn(
            "connection",
            serve(stream, router.clone(), cancel.clone(), place),
        );
    }
}

async fn serve(
    stream: TcpStream,
    router: Router,
    cancel: CancellationToken,
    place: OwnedSemaphorePermit,
) {
    // Deltas are small and must not wait for more.
    let _ = stream.set_nodelay(true);
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEADERS)
        .serve_connection(TokioIo::new(stream), TowerToHyperService::new(router));
    tokio::select! {
        // Clients go away in the middle of things: that is their right.
        _ = connection => {}
        () = cancel.cancelled() => {}
    }
    drop(place);
}

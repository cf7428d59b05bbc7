//! A thread with a runtime of its own for a fake server, so that tests with and without a runtime
//! can use it.

use std::net::SocketAddr;
use std::sync::mpsc::{Sender, channel};
use std::thread::JoinHandle;

use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::Builder;
use tokio_util::sync::CancellationToken;

/// Stopped and joined when dropped.
pub(crate) struct ServerThread {
    stop: CancellationToken,
    thread: Option<JoinHandle<()>>,
}

impl ServerThread {
    /// Runs `serve` until its token is cancelled, and waits for what it sends once it is ready.
    pub(crate) fn start<T, F>(
        name: &'static str,
        serve: impl FnOnce(Sender<T>, CancellationToken) -> F + Send + 'static,
    ) -> (Self, T)
    where
        T: Send + 'static,
        F: Future<Output = ()>,
    {
        let stop = CancellationToken::new();
        let (ready, started) = channel();
        let stopped = stop.clone();
        let thread = std::thread::Builder::new()
            .name(name.to_owned())
            .spawn(move || {
                let runtime = Builder::new_current_thread().enable_all().build();
                let runtime = runtime.unwrap_or_else(|error| panic!("{name}: {error}"));
                runtime.block_on(serve(ready, stopped));
            })
            .unwrap_or_else(|error| panic!("{name}: {error}"));
        let started = started
            .recv()
            .unwrap_or_else(|_| panic!("{name} does not start"));
        let this = Self {
            stop,
            thread: Some(thread),
        };
        (this, started)
    }

    /// For a server that runs as a task of the caller: it ends with this value too.
    pub(crate) fn task(stop: CancellationToken) -> Self {
        Self { stop, thread: None }
    }
}

impl Drop for ServerThread {
    fn drop(&mut self) {
        self.stop.cancel();
        if let Some(thread) = self.thread.take() {
            // A panic of the thread was already printed; dropping must not panic again.
            let _ = thread.join();
        }
    }
}

/// Listens on an address, of which the port may be 0.
pub(crate) async fn listen(address: SocketAddr) -> (TcpListener, SocketAddr) {
    let listener = TcpListener::bind(address)
        .await
        .unwrap_or_else(|error| panic!("cannot listen on {address}: {error}"));
    let bound = listener.local_addr().expect("the listener has an address");
    (listener, bound)
}

/// Serves each connection in a task until `stop`.
pub(crate) async fn accept<F>(
    name: &'static str,
    listener: TcpListener,
    stop: CancellationToken,
    serve: impl Fn(TcpStream) -> F,
) where
    F: Future<Output = ()> + Send + 'static,
{
    loop {
        let accepted = tokio::select! {
            () = stop.cancelled() => return,
            accepted = listener.accept() => accepted,
        };
        let Ok((stream, _)) = accepted else { continue };
        let (stop, serving) = (stop.clone(), serve(stream));
        // Dropping the handle detaches the task; `stop` ends it.
        drop(hermes_core::task::spawn(name, async move {
            tokio::select! {
                () = stop.cancelled() => {}
                () = serving => {}
            }
        }));
    }
}

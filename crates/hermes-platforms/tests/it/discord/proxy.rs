//! A SOCKS proxy that takes every name for this machine, and remembers which ones it was asked for.

use std::sync::{Arc, Mutex};

use hermes_core::task;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

pub(super) struct Proxy {
    port: u16,
    asked: Arc<Mutex<Vec<String>>>,
}

impl Proxy {
    pub(super) async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let asked: Arc<Mutex<Vec<String>>> = Arc::default();
        let log = Arc::clone(&asked);
        // Ends with the test's runtime.
        drop(task::spawn("proxy", async move {
            while let Ok((stream, _)) = listener.accept().await {
                drop(task::spawn("tunnel", tunnel(stream, Arc::clone(&log))));
            }
        }));
        Self { port, asked }
    }

    /// Names are resolved by the proxy.
    pub(super) fn url(&self) -> String {
        format!("socks5h://127.0.0.1:{}", self.port)
    }

    pub(super) fn asked(&self) -> Vec<String> {
        self.asked.lock().unwrap().clone()
    }
}

/// RFC 1928, as far as a client without a password goes.
async fn tunnel(mut client: TcpStream, log: Arc<Mutex<Vec<String>>>) {
    let mut greeting = [0; 2];
    client.read_exact(&mut greeting).await.unwrap();
    let mut methods = vec![0; greeting[1].into()];
    client.read_exact(&mut methods).await.unwrap();
    client.write_all(&[5, 0]).await.unwrap();
    let mut head = [0; 5];
    client.read_exact(&mut head).await.unwrap();
    assert_eq!(head[..4], [5, 1, 0, 3], "a connection to a name");
    let mut rest = vec![0; usize::from(head[4]) + 2];
    client.read_exact(&mut rest).await.unwrap();
    let port = rest.split_off(head[4].into());
    log.lock().unwrap().push(String::from_utf8(rest).unwrap());
    let port = u16::from_be_bytes([port[0], port[1]]);
    let mut server = TcpStream::connect(("127.0.0.1", port)).await.unwrap();
    client
        .write_all(&[5, 0, 0, 1, 0, 0, 0, 0, 0, 0])
        .await
        .unwrap();
    // Whoever ends it first is right.
    let _ = tokio::io::copy_bidirectional(&mut client, &mut server).await;
}

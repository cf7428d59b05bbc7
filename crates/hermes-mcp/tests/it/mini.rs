//! A minimal HTTP server, for answers that no proper server gives.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use hermes_core::task;
use serde_json::Value;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

#[derive(Clone, Debug)]
pub(crate) struct MiniRequest {
    pub(crate) method: String,
    /// Header lines, lower case.
    pub(crate) head: String,
    pub(crate) body: Value,
}

/// The response: status line and head after "HTTP/1.1 ", body, and whether the connection stays
/// open in silence.
#[derive(Clone)]
pub(crate) struct MiniResponse {
    pub(crate) head: String,
    pub(crate) body: Vec<u8>,
    pub(crate) silent: bool,
    /// Number of announced bytes that are never sent.
    pub(crate) missing: usize,
}

impl MiniResponse {
    pub(crate) fn json(body: &Value) -> Self {
        Self::typed("application/json", &body.to_string())
    }

    pub(crate) fn typed(content_type: &str, body: &str) -> Self {
        Self {
            head: format!("200 OK\r\ncontent-type: {content_type}"),
            body: body.into(),
            silent: false,
            missing: 0,
        }
    }

    /// With these bytes and another status line and head.
    pub(crate) fn bytes(head: &str, body: impl Into<Vec<u8>>) -> Self {
        Self {
            body: body.into(),
            ..Self::status(head)
        }
    }

    pub(crate) fn status(status: &str) -> Self {
        Self {
            head: status.to_owned(),
            body: Vec::new(),
            silent: false,
            missing: 0,
        }
    }

    /// The head of an event stream, one comment, and nothing more.
    pub(crate) fn silence() -> Self {
        Self {
            head: "200 OK\r\ncontent-type: text/event-stream".to_owned(),
            body: b": hello\n\n".to_vec(),
            silent: true,
            missing: 0,
        }
    }
}

pub(crate) struct MiniServer {
    pub(crate) address: SocketAddr,
    requests: Arc<Mutex<Vec<MiniRequest>>>,
}

impl MiniServer {
    pub(crate) async fn start(
        respond: impl Fn(&MiniRequest) -> MiniResponse + Send + Sync + 'static,
    ) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let requests = Arc::new(Mutex::new(Vec::new()));
        let seen = Arc::clone(&requests);
        let respond = Arc::new(respond);
        task::spawn("mini", async move {
            while let Ok((stream, _)) = listener.accept().await {
                let serving = serve(stream, Arc::clone(&seen), Arc::clone(&respond));
                task::spawn("mini-connection", serving);
            }
        });
        Self { address, requests }
    }

    pub(crate) fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }

    pub(crate) fn requests(&self) -> Vec<MiniRequest> {
        self.requests.lock().unwrap().clone()
    }
}

async fn serve(
    mut stream: TcpStream,
    seen: Arc<Mutex<Vec<MiniRequest>>>,
    respond: Arc<impl Fn(&MiniRequest) -> MiniResponse + Send + Sync + 'static>,
) {
    let Some(request) = read(&mut stream).await else {
        return;
    };
    let response = respond(&request);
    seen.lock().unwrap().push(request);
    let length = if response.silent {
        String::new()
    } else {
        let length = response.body.len() + response.missing;
        format!("content-length: {length}\r\n")
    };
    let head = format!(
        "HTTP/1.1 {}\r\n{length}connection: close\r\n\r\n",
        response.head
    );
    let bytes = [head.as_bytes(), &response.body].concat();
    let _ = stream.write_all(&bytes).await;
    if response.silent {
        // Until the other side closes.
        let _ = stream.read(&mut [0; 1]).await;
    }
}

async fn read(stream: &mut TcpStream) -> Option<MiniRequest> {
    let mut bytes = Vec::new();
    let mut chunk = [0; 4096];
    let (head, start) = loop {
        let count = stream
            .read(&mut chunk)
            .await
            .ok()
            .filter(|count| *count > 0)?;
        bytes.extend_from_slice(&chunk[..count]);
        let text = String::from_utf8_lossy(&bytes).into_owned();
        if let Some(end) = text.find("\r\n\r\n") {
            break (text[..end].to_ascii_lowercase(), end + 4);
        }
    };
    let length: usize = head
        .lines()
        .find_map(|line| line.strip_prefix("content-length: ")?.trim().parse().ok())
        .unwrap_or(0);
    while bytes.len() < start + length {
        let count = stream
            .read(&mut chunk)
            .await
            .ok()
            .filter(|count| *count > 0)?;
        bytes.extend_from_slice(&chunk[..count]);
    }
    Some(MiniRequest {
        method: head.split(' ').next()?.to_owned(),
        body: serde_json::from_slice(&bytes[start..start + length]).unwrap_or(Value::Null),
        head,
    })
}

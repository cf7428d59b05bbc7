//! An HTTP server of a few lines, for answers that no proper server gives.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use hermes_core::task;
use serde_json::Value;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

#[derive(Clone, Debug)]
pub(crate) struct Asked {
    pub(crate) method: String,
    /// Head lines, lower case.
    pub(crate) head: String,
    pub(crate) body: Value,
}

/// What is sent back: status line and head after "HTTP/1.1 ", body, and whether the connection
/// stays open in silence.
#[derive(Clone)]
pub(crate) struct Say {
    pub(crate) head: String,
    pub(crate) body: Vec<u8>,
    pub(crate) silent: bool,
    /// Bytes that the head promises and that never come.
    pub(crate) missing: usize,
}

impl Say {
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

pub(crate) struct Mini {
    pub(crate) address: SocketAddr,
    asked: Arc<Mutex<Vec<Asked>>>,
}

impl Mini {
    pub(crate) async fn start(say: impl Fn(&Asked) -> Say + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let asked = Arc::new(Mutex::new(Vec::new()));
        let seen = Arc::clone(&asked);
        let say = Arc::new(say);
        task::spawn("mini", async move {
            while let Ok((stream, _)) = listener.accept().await {
                let serving = serve(stream, Arc::clone(&seen), Arc::clone(&say));
                task::spawn("mini-connection", serving);
            }
        });
        Self { address, asked }
    }

    pub(crate) fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }

    pub(crate) fn asked(&self) -> Vec<Asked> {
        self.asked.lock().unwrap().clone()
    }
}

async fn serve(
    mut stream: TcpStream,
    seen: Arc<Mutex<Vec<Asked>>>,
    say: Arc<impl Fn(&Asked) -> Say + Send + Sync + 'static>,
) {
    let Some(asked) = read(&mut stream).await else {
        return;
    };
    let said = say(&asked);
    seen.lock().unwrap().push(asked);
    let length = if said.silent {
        String::new()
    } else {
        let length = said.body.len() + said.missing;
        format!("content-length: {length}\r\n")
    };
    let head = format!(
        "HTTP/1.1 {}\r\n{length}connection: close\r\n\r\n",
        said.head
    );
    let bytes = [head.as_bytes(), &said.body].concat();
    let _ = stream.write_all(&bytes).await;
    if said.silent {
        // Until the other side leaves.
        let _ = stream.read(&mut [0; 1]).await;
    }
}

async fn read(stream: &mut TcpStream) -> Option<Asked> {
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
    Some(Asked {
        method: head.split(' ').next()?.to_owned(),
        body: serde_json::from_slice(&bytes[start..start + length]).unwrap_or(Value::Null),
        head,
    })
}

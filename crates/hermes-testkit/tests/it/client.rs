//! A client that shows the bytes as they are.

use std::io::{Read, Write};
use std::net::TcpStream;

use hermes_testkit::model_server::ModelServer;
use serde_json::{Value, json};

pub(crate) struct Answer {
    pub(crate) head: String,
    /// The body after chunks are joined.
    pub(crate) body: String,
    /// The body ended as HTTP says it must.
    pub(crate) complete: bool,
}

impl Answer {
    pub(crate) fn status(&self) -> &str {
        self.head.split(' ').nth(1).unwrap()
    }

    /// The data of each event that is JSON.
    pub(crate) fn data(&self) -> Vec<Value> {
        self.body
            .lines()
            .filter_map(|line| line.strip_prefix("data: "))
            .filter_map(|text| serde_json::from_str(text).ok())
            .collect()
    }

    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap()
    }
}

pub(crate) fn open(server: &ModelServer, method: &str, path: &str, body: &str) -> TcpStream {
    let mut stream = TcpStream::connect(server.address()).unwrap();
    let length = body.len();
    let request = format!(
        "{method} {path} HTTP/1.1\r\nhost: x\r\nauthorization: Bearer key-1\r\n\
         connection: close\r\ncontent-length: {length}\r\n\r\n{body}"
    );
    stream.write_all(request.as_bytes()).unwrap();
    stream
}

pub(crate) fn send(server: &ModelServer, method: &str, path: &str, body: &str) -> Answer {
    read(open(server, method, path, body))
}

pub(crate) fn read(mut stream: TcpStream) -> Answer {
    let mut bytes = Vec::new();
    // A reset is how a cut looks now and then.
    let _ = stream.read_to_end(&mut bytes);
    let end = bytes.windows(4).position(|four| four == b"\r\n\r\n");
    let (head, raw) = bytes.split_at(end.map_or(bytes.len(), |at| at + 4));
    let head = String::from_utf8(head.to_vec()).unwrap();
    let (body, complete) = if head.contains("transfer-encoding: chunked") {
        unchunk(raw)
    } else {
        (String::from_utf8(raw.to_vec()).unwrap(), true)
    };
    Answer {
        head,
        body,
        complete,
    }
}

fn unchunk(mut raw: &[u8]) -> (String, bool) {
    let mut body = Vec::new();
    while let Some(at) = raw.windows(2).position(|pair| pair == b"\r\n") {
        let size = usize::from_str_radix(std::str::from_utf8(&raw[..at]).unwrap(), 16).unwrap();
        if size == 0 {
            return (String::from_utf8(body).unwrap(), true);
        }
        raw = &raw[at + 2..];
        body.extend_from_slice(&raw[..size]);
        raw = &raw[size + 2..];
    }
    (String::from_utf8_lossy(&body).into_owned(), false)
}

/// A streaming chat request with one tool.
pub(crate) fn chat(server: &ModelServer, text: &str) -> Answer {
    send(server, "POST", "/v1/chat/completions", &chat_body(text))
}

pub(crate) fn chat_body(text: &str) -> String {
    json!({
        "model": "m", "stream": true,
        "messages": [{"role": "system", "content": "be good"}, {"role": "user", "content": text}],
        "tools": [{"type": "function", "function": {"name": "read_file"}}],
    })
    .to_string()
}

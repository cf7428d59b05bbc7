//! HTTP/1.1 by hand: nothing between the script and the wire, so that every fault can be played.

use std::io;
use std::time::SystemTime;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// The largest request a test may send.
const MAX_REQUEST: usize = 64 * 1024 * 1024;

/// A request before it is recorded.
pub(crate) struct ArrivedRequest {
    pub method: String,
    pub path: String,
    pub headers: Vec<(String, String)>,
    pub body: Vec<u8>,
    pub keep_alive: bool,
    pub arrived_ns: u128,
}

pub(crate) struct HttpConnection {
    stream: TcpStream,
    buffer: Vec<u8>,
}

struct RequestHead {
    method: String,
    path: String,
    headers: Vec<(String, String)>,
    length: usize,
}

impl HttpConnection {
    pub(crate) fn new(stream: TcpStream) -> Self {
        Self {
            stream,
            buffer: Vec::new(),
        }
    }

    /// The next request. `None`: the client closed the connection.
    pub(crate) async fn next(&mut self) -> io::Result<Option<ArrivedRequest>> {
        let mut arrived_ns = if self.buffer.is_empty() { 0 } else { now_ns() };
        let head = loop {
            if let Some(head) = parse_head(&self.buffer)? {
                break head;
            }
            if self.fill().await? == 0 {
                return Ok(None);
            }
            if arrived_ns == 0 {
                arrived_ns = now_ns();
            }
        };
        let header = |name: &str| {
            head.headers
                .iter()
                .find(|(key, _)| key == name)
                .map(|(_, value)| value.to_ascii_lowercase())
        };
        let chunked = header("transfer-encoding").is_some();
        if header("expect").is_some() {
            self.stream
                .write_all(b"HTTP/1.1 100 Continue\r\n\r\n")
                .await?;
        }
        let length: usize = match header("content-length") {
            Some(text) => text.parse().map_err(|_| invalid("bad content-length"))?,
            None => 0,
        };
        let body = if chunked {
            self.chunked_body(head.length).await?
        } else {
            self.need(head.length + length).await?;
            let rest = self.buffer.split_off(head.length + length);
            let mut whole = std::mem::replace(&mut self.buffer, rest);
            whole.split_off(head.length)
        };
        let keep_alive = header("connection").is_none_or(|value| value != "close");
        Ok(Some(ArrivedRequest {
            method: head.method,
            path: head.path,
            headers: head.headers,
            body,
            keep_alive,
            arrived_ns,
        }))
    }

    /// Reads until this many bytes are there.
    async fn need(&mut self, bytes: usize) -> io::Result<()> {
        while self.buffer.len() < bytes {
            if self.buffer.len() > MAX_REQUEST || self.fill().await? == 0 {
                return Err(invalid("the request ended before its body did"));
            }
        }
        Ok(())
    }

    /// A body that comes in chunks, without its trailers.
    async fn chunked_body(&mut self, from: usize) -> io::Result<Vec<u8>> {
        let mut body = Vec::new();
        let mut at = from;
        loop {
            let (head, length) = loop {
                match httparse::parse_chunk_size(&self.buffer[at..]) {
                    Ok(httparse::Status::Complete((head, length))) => break (head, length),
                    Ok(httparse::Status::Partial) => self.need(self.buffer.len() + 1).await?,
                    Err(_) => return Err(invalid("bad chunk size")),
                }
            };
            let end = at + head + length as usize;
            self.need(end + 2).await?;
            body.extend_from_slice(&self.buffer[at + head..end]);
            at = end + 2;
            if length == 0 {
                self.buffer.drain(..at);
                return Ok(body);
            }
        }
    }

    async fn fill(&mut self) -> io::Result<usize> {
        self.stream.read_buf(&mut self.buffer).await
    }

    pub(crate) async fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.stream.write_all(bytes).await
    }

    /// Ends the connection with a reset: the client sees an error and not an end.
    pub(crate) fn reset(self) {
        // Where it cannot be set the client has gone already.
        let _ = self.stream.set_zero_linger();
    }

    /// Returns when the client has gone away. Bytes of a next request are kept.
    pub(crate) async fn gone(&mut self) {
        while !matches!(self.fill().await, Ok(0) | Err(_)) {}
    }
}

fn parse_head(buffer: &[u8]) -> io::Result<Option<RequestHead>> {
    let mut headers = [httparse::EMPTY_HEADER; 96];
    let mut request = httparse::Request::new(&mut headers);
    let status = request
        .parse(buffer)
        .map_err(|error| invalid(&format!("not an HTTP request: {error}")))?;
    let httparse::Status::Complete(length) = status else {
        return Ok(None);
    };
    Ok(Some(RequestHead {
        method: request.method.unwrap_or_default().to_owned(),
        path: request.path.unwrap_or_default().to_owned(),
        headers: request
            .headers
            .iter()
            .map(|header| {
                let value = String::from_utf8_lossy(header.value).into_owned();
                (header.name.to_ascii_lowercase(), value)
            })
            .collect(),
        length,
    }))
}

fn invalid(message: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, message)
}

/// Status line and headers. `length` `None`: the body is chunked.
pub(crate) fn head(
    status: u16,
    content_type: &str,
    headers: &[(String, String)],
    length: Option<usize>,
) -> String {
    let reason = match status {
        200 => "OK",
        202 => "Accepted",
        400 => "Bad Request",
        401 => "Unauthorized",
        402 => "Payment Required",
        403 => "Forbidden",
        404 => "Not Found",
        413 => "Payload Too Large",
        429 => "Too Many Requests",
        500 => "Internal Server Error",
        502 => "Bad Gateway",
        503 => "Service Unavailable",
        _ => "Scripted",
    };
    let given = |name: &str| {
        headers
            .iter()
            .any(|(key, _)| key.eq_ignore_ascii_case(name))
    };
    let mut lines = vec![format!("HTTP/1.1 {status} {reason}")];
    if !given("content-type") {
        lines.push(format!("content-type: {content_type}"));
    }
    lines.extend(
        headers
            .iter()
            .map(|(name, value)| format!("{name}: {value}")),
    );
    lines.push(match length {
        Some(length) => format!("content-length: {length}"),
        None => "transfer-encoding: chunked".to_owned(),
    });
    lines.join("\r\n") + "\r\n\r\n"
}

/// `bytes` as one HTTP chunk.
pub(crate) fn chunk(bytes: &[u8]) -> Vec<u8> {
    let mut out = format!("{:x}\r\n", bytes.len()).into_bytes();
    out.extend_from_slice(bytes);
    out.extend_from_slice(b"\r\n");
    out
}

pub(crate) const LAST_CHUNK: &[u8] = b"0\r\n\r\n";

pub(crate) fn now_ns() -> u128 {
    SystemTime::now()
        .duration_since(SystemTime::UNIX_EPOCH)
        .map_or(0, |time| time.as_nanos())
}

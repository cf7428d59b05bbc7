//! As little of a client as tests need.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::time::Duration;

use serde_json::Value;

/// Nothing here takes so long; a test that hangs ends by this.
const PATIENCE: Duration = Duration::from_mins(2);

#[derive(Clone, Debug)]
pub(crate) struct Client {
    pub(crate) port: u16,
    pub(crate) token: String,
    pub(crate) host: Option<String>,
}

pub(crate) struct Response {
    pub(crate) status: u16,
    pub(crate) headers: String,
    reader: BufReader<TcpStream>,
    chunked: bool,
    length: usize,
}

impl Client {
    /// Sends a request and reads the head of the answer.
    pub(crate) fn send(&self, method: &str, path: &str, body: &str) -> Response {
        let mut stream = self.ask(method, path, body);
        stream.flush().unwrap();
        Response::read(stream)
    }

    /// Says how long the request is, and sends nothing of it.
    pub(crate) fn announce(&self, path: &str, length: usize) -> Response {
        Response::read(self.begin("POST", path, length))
    }

    /// Sends a request and waits for nothing.
    pub(crate) fn ask(&self, method: &str, path: &str, body: &str) -> TcpStream {
        let mut stream = self.begin(method, path, body.len());
        stream.write_all(body.as_bytes()).unwrap();
        stream
    }

    fn begin(&self, method: &str, path: &str, length: usize) -> TcpStream {
        let mut stream = TcpStream::connect(("127.0.0.1", self.port)).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        let host = self
            .host
            .clone()
            .unwrap_or_else(|| format!("127.0.0.1:{}", self.port));
        let request = format!(
            "{method} {path} HTTP/1.1\r\nhost: {host}\r\nauthorization: Bearer {}\r\n\
             content-type: application/json\r\ncontent-length: {length}\r\n\
             connection: close\r\n\r\n",
            self.token,
        );
        stream.write_all(request.as_bytes()).unwrap();
        stream
    }

    pub(crate) fn get(&self, path: &str) -> Value {
        let response = self.send("GET", path, "");
        assert_eq!(response.status, 200, "{path}");
        response.json()
    }

    pub(crate) fn chat(&self, body: &Value) -> Value {
        let response = self.send("POST", "/v1/chat/completions", &body.to_string());
        let status = response.status;
        let json = response.json();
        assert_eq!(status, 200, "{json}");
        json
    }

    /// The status and the error of a request that fails.
    pub(crate) fn refused(&self, body: &str) -> (u16, Value) {
        let response = self.send("POST", "/v1/chat/completions", body);
        let status = response.status;
        (status, response.json()["error"].clone())
    }

    /// All chunks of a streamed answer, whose last word is `[DONE]`.
    pub(crate) fn chunks(&self, body: &Value) -> Vec<Value> {
        let mut body = body.clone();
        body["stream"] = true.into();
        let response = self.send("POST", "/v1/chat/completions", &body.to_string());
        assert_eq!(response.status, 200);
        let text = response.text();
        let mut events: Vec<&str> = text
            .split("\n\n")
            .filter_map(|event| event.strip_prefix("data: "))
            .collect();
        assert_eq!(events.pop(), Some("[DONE]"), "{text}");
        events
            .iter()
            .map(|event| serde_json::from_str(event).unwrap())
            .collect()
    }
}

impl Response {
    fn read(stream: TcpStream) -> Self {
        let mut reader = BufReader::new(stream);
        let mut headers = String::new();
        while !headers.ends_with("\r\n\r\n") {
            assert!(
                reader.read_line(&mut headers).unwrap() > 0,
                "no answer: {headers}"
            );
        }
        let headers = headers.to_lowercase();
        let length = headers
            .lines()
            .find_map(|line| line.strip_prefix("content-length: "));
        Self {
            status: headers[9..12].parse().unwrap(),
            chunked: headers.contains("transfer-encoding: chunked"),
            length: length.map_or(0, |length| length.trim().parse().unwrap()),
            headers,
            reader,
        }
    }

    /// The next piece of a streamed answer; none at its end.
    pub(crate) fn piece(&mut self) -> Option<String> {
        assert!(self.chunked);
        let mut size = String::new();
        self.reader.read_line(&mut size).ok()?;
        let size = usize::from_str_radix(size.trim(), 16).ok()?;
        let mut bytes = vec![0; size + 2];
        self.reader.read_exact(&mut bytes).ok()?;
        bytes.truncate(size);
        (size > 0).then(|| String::from_utf8(bytes).unwrap())
    }

    pub(crate) fn text(mut self) -> String {
        if self.chunked {
            return std::iter::from_fn(|| self.piece()).collect();
        }
        let mut bytes = vec![0; self.length];
        self.reader.read_exact(&mut bytes).unwrap();
        String::from_utf8(bytes).unwrap()
    }

    pub(crate) fn json(self) -> Value {
        serde_json::from_str(&self.text()).unwrap()
    }
}

/// Waits for what must come. Only the failure takes time.
pub(crate) fn eventually(what: &str, mut happened: impl FnMut() -> bool) {
    let deadline = std::time::Instant::now() + PATIENCE;
    while !happened() {
        assert!(
            std::time::Instant::now() < deadline,
            "this never came: {what}"
        );
        std::thread::sleep(Duration::from_millis(5));
    }
}

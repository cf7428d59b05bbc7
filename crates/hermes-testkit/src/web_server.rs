//! A web server on loopback that answers as the test says, with the faults that pages have.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

/// What somebody asked for.
#[derive(Clone, Debug)]
pub struct WebRequest {
    pub method: String,
    /// Path and query.
    pub path: String,
    /// Names in lower case.
    pub headers: Vec<(String, String)>,
    pub body: Vec<u8>,
}

impl WebRequest {
    pub fn header(&self, name: &str) -> Option<&str> {
        let found = self.headers.iter().find(|(key, _)| key == name);
        found.map(|(_, value)| value.as_str())
    }

    /// The body as JSON; ends the test when it is none.
    pub fn json(&self) -> serde_json::Value {
        serde_json::from_slice(&self.body).expect("a JSON body")
    }
}

/// What comes back.
#[derive(Clone, Debug)]
pub struct Page {
    status: u16,
    headers: Vec<(String, String)>,
    body: PageBody,
}

#[derive(Clone, Debug)]
enum PageBody {
    Whole(Vec<u8>),
    /// These bytes again and again, until the client has enough.
    Endless(Vec<u8>),
    /// The beginning, then silence.
    Stalls(Vec<u8>),
    /// No answer at all.
    Silence,
    /// Hangs up before the promised length.
    Cut(Vec<u8>, usize),
}

impl Page {
    pub fn new(content_type: &str, body: impl Into<Vec<u8>>) -> Self {
        Self {
            status: 200,
            headers: vec![("content-type".to_owned(), content_type.to_owned())],
            body: PageBody::Whole(body.into()),
        }
    }

    pub fn html(body: &str) -> Self {
        Self::new("text/html; charset=utf-8", body)
    }

    pub fn json(body: &serde_json::Value) -> Self {
        Self::new("application/json", body.to_string())
    }

    pub fn redirect(to: &str) -> Self {
        Self::new("text/plain", "moved")
            .status(302)
            .header("location", to)
    }

    pub fn endless(content_type: &str, piece: impl Into<Vec<u8>>) -> Self {
        let body = PageBody::Endless(piece.into());
        Self {
            body,
            ..Self::new(content_type, "")
        }
    }

    pub fn stalls(content_type: &str, beginning: impl Into<Vec<u8>>) -> Self {
        let body = PageBody::Stalls(beginning.into());
        Self {
            body,
            ..Self::new(content_type, "")
        }
    }

    /// Promises `length` bytes and hangs up after `beginning`.
    pub fn cut(content_type: &str, beginning: impl Into<Vec<u8>>, length: usize) -> Self {
        let body = PageBody::Cut(beginning.into(), length);
        Self {
            body,
            ..Self::new(content_type, "")
        }
    }

    pub fn silence() -> Self {
        Self {
            body: PageBody::Silence,
            ..Self::new("text/plain", "")
        }
    }

    #[must_use]
    pub fn status(self, status: u16) -> Self {
        Self { status, ..self }
    }

    #[must_use]
    pub fn header(mut self, name: &str, value: &str) -> Self {
        self.headers.push((name.to_owned(), value.to_owned()));
        self
    }
}

type PageAnswer = dyn Fn(&WebRequest) -> Page + Send + Sync;

/// A running server; it ends when it is dropped.
pub struct WebServer {
    address: SocketAddr,
    asked: Arc<Mutex<Vec<WebRequest>>>,
    closed: Arc<AtomicBool>,
}

impl WebServer {
    /// Answers every request with what `answer` returns.
    pub fn start(answer: impl Fn(&WebRequest) -> Page + Send + Sync + 'static) -> Self {
        Self::on("127.0.0.1:0", answer)
    }

    fn on(address: &str, answer: impl Fn(&WebRequest) -> Page + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind(address).expect("a port on loopback");
        let address = listener.local_addr().expect("the port's number");
        let asked = Arc::new(Mutex::new(Vec::new()));
        let closed = Arc::new(AtomicBool::new(false));
        let (log, end): (_, Arc<AtomicBool>) = (Arc::clone(&asked), Arc::clone(&closed));
        let answer: Arc<PageAnswer> = Arc::new(answer);
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                if end.load(Ordering::SeqCst) {
                    break;
                }
                let (log, answer) = (Arc::clone(&log), Arc::clone(&answer));
                let end = Arc::clone(&end);
                thread::spawn(move || {
                    // A client that goes away is none of our business.
                    drop(serve(stream, &log, answer.as_ref(), &end));
                });
            }
        });
        Self {
            address,
            asked,
            closed,
        }
    }

    pub fn port(&self) -> u16 {
        self.address.port()
    }

    /// `http://127.0.0.1:<port>` and `path`.
    pub fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }

    /// What was asked so far.
    pub fn asked(&self) -> Vec<WebRequest> {
        self.asked
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }
}

impl Drop for WebServer {
    fn drop(&mut self) {
        self.closed.store(true, Ordering::SeqCst);
        // Wakes the listener.
        drop(TcpStream::connect(self.address));
    }
}

fn serve(
    mut stream: TcpStream,
    log: &Mutex<Vec<WebRequest>>,
    answer: &PageAnswer,
    closed: &AtomicBool,
) -> std::io::Result<()> {
    let Some(asked) = read(&mut stream)? else {
        return Ok(());
    };
    log.lock()
        .unwrap_or_else(PoisonError::into_inner)
        .push(asked.clone());
    let page = answer(&asked);
    let mut head = format!("HTTP/1.1 {} Scripted\r\nconnection: close\r\n", page.status);
    for (name, value) in &page.headers {
        head.extend([name, ": ", value, "\r\n"]);
    }
    if let PageBody::Whole(body) = &page.body {
        head.extend(["content-length: ", &body.len().to_string(), "\r\n"]);
    }
    if let PageBody::Cut(_, length) = &page.body {
        head.extend(["content-length: ", &length.to_string(), "\r\n"]);
    }
    head += "\r\n";
    let wait = || {
        while !closed.load(Ordering::SeqCst) {
            thread::sleep(Duration::from_millis(20));
        }
    };
    match page.body {
        PageBody::Silence => wait(),
        PageBody::Whole(body) => {
            stream.write_all(head.as_bytes())?;
            stream.write_all(&body)?;
        }
        PageBody::Cut(beginning, _) => {
            stream.write_all(head.as_bytes())?;
            stream.write_all(&beginning)?;
        }
        PageBody::Stalls(beginning) => {
            stream.write_all(head.as_bytes())?;
            stream.write_all(&beginning)?;
            stream.flush()?;
            wait();
        }
        PageBody::Endless(piece) => {
            stream.write_all(head.as_bytes())?;
            while !closed.load(Ordering::SeqCst) {
                stream.write_all(&piece)?;
            }
        }
    }
    Ok(())
}

fn read(stream: &mut TcpStream) -> std::io::Result<Option<WebRequest>> {
    let mut bytes = Vec::new();
    let mut piece = [0; 8192];
    loop {
        let mut headers = [httparse::EMPTY_HEADER; 64];
        let mut request = httparse::Request::new(&mut headers);
        let parsed = request.parse(&bytes).expect("an HTTP request");
        if let httparse::Status::Complete(length) = parsed {
            let headers: Vec<(String, String)> = request
                .headers
                .iter()
                .map(|header| {
                    let value = String::from_utf8_lossy(header.value).into_owned();
                    (header.name.to_ascii_lowercase(), value)
                })
                .collect();
            let size = headers.iter().find(|(name, _)| name == "content-length");
            let size: usize = size.map_or(0, |(_, value)| value.parse().expect("a length"));
            if bytes.len() >= length + size {
                return Ok(Some(WebRequest {
                    method: request.method.unwrap_or_default().to_owned(),
                    path: request.path.unwrap_or_default().to_owned(),
                    headers,
                    body: bytes[length..length + size].to_vec(),
                }));
            }
        }
        match stream.read(&mut piece)? {
            0 => return Ok(None),
            count => bytes.extend_from_slice(&piece[..count]),
        }
    }
}

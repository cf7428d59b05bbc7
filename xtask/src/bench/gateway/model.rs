//! A model that costs next to nothing: prepared bytes over connections that stay open. What is
//! measured is who asks it.

use std::io::{self, BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

/// What every answer says.
pub(super) const ANSWER: &str = "pong";

/// Ends with the process: its connections belong to programs that come and go.
pub(super) struct BenchModel {
    address: SocketAddr,
    calls: Arc<AtomicUsize>,
    over: Arc<AtomicBool>,
}

impl BenchModel {
    pub(super) fn start() -> io::Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let model = Self {
            address: listener.local_addr()?,
            calls: Arc::default(),
            over: Arc::default(),
        };
        let (calls, over) = (Arc::clone(&model.calls), Arc::clone(&model.over));
        let answers = Arc::new(Answers::new());
        std::thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                if over.load(Ordering::Relaxed) {
                    return;
                }
                let (calls, answers) = (Arc::clone(&calls), Arc::clone(&answers));
                std::thread::spawn(move || {
                    // A client opens a broken connection again.
                    let _ = serve(stream, &calls, &answers);
                });
            }
        });
        Ok(model)
    }

    pub(super) fn base_url(&self) -> String {
        format!("http://{}/v1", self.address)
    }

    /// How often it was asked for an answer.
    pub(super) fn calls(&self) -> usize {
        self.calls.load(Ordering::Relaxed)
    }
}

impl Drop for BenchModel {
    fn drop(&mut self) {
        self.over.store(true, Ordering::Relaxed);
        // Wakes who waits for connections.
        let _ = TcpStream::connect(self.address);
    }
}

/// All that it ever says, as it goes over the wire.
struct Answers {
    streamed: Vec<u8>,
    whole: Vec<u8>,
    models: Vec<u8>,
}

impl Answers {
    fn new() -> Self {
        let head = r#""id":"chatcmpl-1","created":1700000000,"model":"scripted-model""#;
        let usage = r#""usage":{"prompt_tokens":10,"completion_tokens":1,"total_tokens":11}"#;
        let chunk = |delta: &str, finish: &str| {
            format!(
                "data: {{{head},\"object\":\"chat.completion.chunk\",\"choices\":[{{\"index\":0,\
                 \"delta\":{delta},\"finish_reason\":{finish}}}]}}\n\n"
            )
        };
        let events = [
            chunk(
                &format!(r#"{{"role":"assistant","content":"{ANSWER}"}}"#),
                "null",
            ),
            chunk("{}", r#""stop""#),
            format!(
                "data: {{{head},\"object\":\"chat.completion.chunk\",\"choices\":[],{usage}}}\n\n"
            ),
            "data: [DONE]\n\n".to_owned(),
        ];
        let whole = format!(
            r#"{{{head},"object":"chat.completion","choices":[{{"index":0,"message":{{"role":"assistant","content":"{ANSWER}"}},"finish_reason":"stop"}}],{usage}}}"#
        );
        let models = r#"{"object":"list","data":[{"id":"scripted-model","object":"model"}]}"#;
        Self {
            streamed: response("text/event-stream", &events.concat()),
            whole: response("application/json", &whole),
            models: response("application/json", models),
        }
    }
}

fn response(kind: &str, body: &str) -> Vec<u8> {
    format!(
        "HTTP/1.1 200 OK\r\ncontent-type: {kind}\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    )
    .into_bytes()
}

fn serve(stream: TcpStream, calls: &AtomicUsize, answers: &Answers) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let mut stream = BufReader::with_capacity(128 * 1024, stream);
    let mut line = Vec::new();
    let mut body = Vec::new();
    loop {
        line.clear();
        if stream.read_until(b'\n', &mut line)? == 0 {
            return Ok(());
        }
        let asks = line.starts_with(b"POST ");
        let length = headers(&mut stream, &mut line)?;
        body.resize(length, 0);
        stream.read_exact(&mut body)?;
        let answer = if !asks {
            &answers.models
        } else if wants_stream(&body) {
            &answers.streamed
        } else {
            &answers.whole
        };
        calls.fetch_add(usize::from(asks), Ordering::Relaxed);
        stream.get_mut().write_all(answer)?;
    }
}

/// Reads to the end of the head; the length of what follows.
fn headers(stream: &mut BufReader<TcpStream>, line: &mut Vec<u8>) -> io::Result<usize> {
    let mut length = 0;
    loop {
        line.clear();
        if stream.read_until(b'\n', line)? <= 2 {
            return Ok(length);
        }
        let text = String::from_utf8_lossy(line);
        if let Some((name, value)) = text.split_once(':')
            && name.eq_ignore_ascii_case("content-length")
        {
            length = value.trim().parse().map_err(io::Error::other)?;
        }
    }
}

/// Programs write it first or last; only one that does neither costs a search of everything.
fn wants_stream(body: &[u8]) -> bool {
    const EDGE: usize = 256;
    let found = |part: &[u8]| {
        let text = String::from_utf8_lossy(part);
        text.find("\"stream\":")
            .map(|at| text[at + 9..].trim_start().starts_with("true"))
    };
    let first = &body[..body.len().min(EDGE)];
    let last = &body[body.len().saturating_sub(EDGE)..];
    found(first)
        .or_else(|| found(last))
        .or_else(|| found(body))
        .unwrap_or(false)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_asked_for_is_found_wherever_it_is_written() {
        let filling = "x".repeat(1000);
        for (body, stream) in [
            (r#"{"stream": true, "messages": []}"#.to_owned(), true),
            (format!(r#"{{"messages":"{filling}","stream":true}}"#), true),
            (
                format!(r#"{{"a":"{filling}","stream":false,"b":"{filling}"}}"#),
                false,
            ),
            (r#"{"messages":[]}"#.to_owned(), false),
        ] {
            assert_eq!(wants_stream(body.as_bytes()), stream, "{body}");
        }
    }
}

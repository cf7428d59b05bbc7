//! What a forgotten session is answered with: any status, any body, any framing.
//!
//! Servers and the proxies in front of them answer for a session that they no longer know in an
//! open set of ways. A [`Shape`] is one of them; [`Shape::draw`] makes any number. Every shape has
//! a text form (`404/rpc:null:-32001:s0/gzip/none`) by which a failing one can be run again.

mod text;

use hermes_core::clock::Rng;
use serde_json::{Value, json};

use super::gzip;
use crate::clock::SeqRng;
use crate::model_server::http::{LAST_CHUNK, chunk};

pub(super) use text::number;

/// Statuses that servers, proxies and clouds are known to use.
pub const FAMOUS: [u16; 86] = [
    200, 201, 202, 203, 204, 206, 300, 301, 302, 303, 304, 305, 306, 307, 308, 400, 401, 402, 403,
    404, 405, 406, 407, 408, 409, 410, 411, 412, 413, 414, 415, 416, 417, 418, 421, 422, 423, 424,
    425, 426, 427, 428, 429, 430, 431, 440, 444, 449, 450, 451, 460, 494, 495, 496, 497, 498, 499,
    500, 501, 502, 503, 504, 505, 506, 507, 508, 509, 510, 511, 520, 521, 522, 523, 524, 525, 526,
    527, 529, 530, 540, 561, 598, 599, 403, 404, 200,
];

const SESSION: [&str; 10] = [
    "Session not found",
    "Invalid or expired session",
    "Session has expired",
    "Session terminated",
    "Bad Request: No valid session ID provided",
    "No such session: 17",
    "The session is no longer active, please reconnect",
    "Unknown Mcp-Session-Id",
    "STALE SESSION",
    "could not find a transport for this session",
];
const HANDSHAKE: [&str; 4] = [
    "Server not initialized",
    "Bad Request: Server not initialized",
    "Received request before initialization was complete",
    "Client must send an initialize request first",
];
const OTHER: [&str; 8] = [
    "Internal error",
    "Bad gateway",
    "upstream connect error or disconnect/reset before headers",
    "no healthy upstream",
    "Not Found",
    "Invalid Request",
    "The requested URL was rejected. Please consult with your administrator.",
    "undefined",
];
const FOREIGN: [&str; 4] = [
    "Sitzung abgelaufen",
    "セッションの有効期限が切れました",
    "会话已过期",
    "Сеанс завершён",
];

const CODES: [i64; 12] = [
    -32700, -32600, -32601, -32602, -32603, -32000, -32001, -32002, -32042, -32099, 0, 404,
];

/// A number generator with the questions that a generator asks.
pub struct ShapeRng(SeqRng);

impl ShapeRng {
    pub fn new(seed: u64) -> Self {
        // Neighbouring seeds must not give neighbouring sequences.
        Self(SeqRng::new(seed.wrapping_mul(0xd134_2543_de82_ef95)))
    }

    pub fn below(&self, limit: usize) -> usize {
        (self.0.next_u64() % limit.max(1) as u64) as usize
    }

    pub fn pick<T: Copy>(&self, items: &[T]) -> T {
        items[self.below(items.len())]
    }

    /// True in so many of a hundred cases.
    pub fn percent(&self, share: usize) -> bool {
        self.below(100) < share
    }
}

/// What a message is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Words {
    /// Names the session.
    Session(usize),
    /// Says that a handshake is missing.
    Handshake(usize),
    /// About something else.
    Other(usize),
    /// About the session, in another language.
    Foreign(usize),
    /// About something else, and not the same for the next request.
    Changing,
    Empty,
}

impl Words {
    fn draw(dice: &ShapeRng) -> Self {
        match dice.below(11) {
            0..=3 => Self::Session(dice.below(SESSION.len())),
            4 => Self::Handshake(dice.below(HANDSHAKE.len())),
            5..=7 => Self::Other(dice.below(OTHER.len())),
            8 => Self::Foreign(dice.below(FOREIGN.len())),
            9 => Self::Changing,
            _ => Self::Empty,
        }
    }

    /// In answer to the request with this id.
    fn text(self, id: &Value) -> &'static str {
        match self {
            Self::Session(at) => SESSION[at % SESSION.len()],
            Self::Handshake(at) => HANDSHAKE[at % HANDSHAKE.len()],
            Self::Other(at) => OTHER[at % OTHER.len()],
            Self::Foreign(at) => FOREIGN[at % FOREIGN.len()],
            Self::Changing => OTHER[id.as_u64().unwrap_or_default() as usize % OTHER.len()],
            Self::Empty => "",
        }
    }

    /// Whether a reader of English learns that the session or the handshake is the problem.
    pub fn name_the_session(self) -> bool {
        matches!(self, Self::Session(_) | Self::Handshake(_))
    }
}

/// The id of a JSON-RPC error.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ErrorId {
    /// That of the request.
    Right,
    Null,
    Missing,
    /// `"server-error"`, as the Python SDK has it.
    Other,
}

/// What the answer carries, before framing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Body {
    Empty,
    Text(Words),
    Html(Words),
    /// A JSON object that is not JSON-RPC.
    Json(Words),
    Error {
        id: ErrorId,
        code: i64,
        words: Words,
    },
    /// A JSON-RPC result of no use: `null`.
    NullResult,
    /// A JSON-RPC result of no use: `{}`.
    EmptyResult,
    /// A tool result with `isError`.
    ToolError(Words),
}

impl Body {
    fn draw(dice: &ShapeRng) -> Self {
        let words = Words::draw(dice);
        match dice.below(20) {
            0..=2 => Self::Empty,
            3..=4 => Self::Text(words),
            5..=6 => Self::Html(words),
            7..=8 => Self::Json(words),
            9..=16 => Self::Error {
                id: dice.pick(&[
                    ErrorId::Right,
                    ErrorId::Right,
                    ErrorId::Null,
                    ErrorId::Missing,
                    ErrorId::Other,
                ]),
                code: dice.pick(&CODES),
                words,
            },
            17 => Self::NullResult,
            18 => Self::EmptyResult,
            _ => Self::ToolError(Words::Session(dice.below(SESSION.len()))),
        }
    }

    /// Content type and text in answer to the request with this id.
    fn text(self, id: &Value) -> (&'static str, String) {
        let json = |value: Value| ("application/json", value.to_string());
        match self {
            Self::Empty => ("text/plain", String::new()),
            // As many servers do, with a number that is another one each time.
            Self::Text(words) => ("text/plain", format!("{} (request {id})\n", words.text(id))),
            Self::Html(words) => (
                "text/html",
                format!("<html><body><h1>{}</h1></body></html>", words.text(id)),
            ),
            Self::Json(words) => json(json!({"error": words.text(id), "status": "failed"})),
            Self::Error {
                id: which,
                code,
                words,
            } => {
                let mut error =
                    json!({"jsonrpc": "2.0", "error": {"code": code, "message": words.text(id)}});
                match which {
                    ErrorId::Right => error["id"] = id.clone(),
                    ErrorId::Null => error["id"] = Value::Null,
                    ErrorId::Missing => {}
                    ErrorId::Other => error["id"] = json!("server-error"),
                }
                json(error)
            }
            Self::NullResult => json(json!({"jsonrpc": "2.0", "id": id, "result": null})),
            Self::EmptyResult => json(json!({"jsonrpc": "2.0", "id": id, "result": {}})),
            Self::ToolError(words) => json(json!({"jsonrpc": "2.0", "id": id, "result": {
                "content": [{"type": "text", "text": words.text(id)}], "isError": true}})),
        }
    }
}

/// How the body is put on the wire.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Framing {
    Plain,
    /// As one event of an event stream.
    Events,
    /// An event stream without an event.
    EndsAtOnce,
    /// Fewer bytes than announced, then the end of the connection.
    Cut,
    /// Compressed, with `content-encoding`.
    Gzip,
    /// Compressed, without a word about it.
    RawGzip,
    /// A byte order mark before the text.
    Bom,
    WrongType,
    NoType,
}

const FRAMINGS: [Framing; 9] = [
    Framing::Plain,
    Framing::Events,
    Framing::EndsAtOnce,
    Framing::Cut,
    Framing::Gzip,
    Framing::RawGzip,
    Framing::Bom,
    Framing::WrongType,
    Framing::NoType,
];

/// One more header.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Extra {
    None,
    RetryAfter(u32),
    /// `www-authenticate: Bearer`.
    Challenge,
    /// A redirect to another host.
    Elsewhere,
    /// A redirect to a page for people on the same host.
    Login,
}

/// Where redirected people end up; see [`Extra::Login`].
pub const LOGIN_PATH: &str = "/login";

/// An answer. See the module.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Shape {
    pub status: u16,
    pub body: Body,
    pub framing: Framing,
    pub extra: Extra,
}

impl Shape {
    /// A shape with this status, or with any.
    pub fn draw(dice: &ShapeRng, status: Option<u16>) -> Self {
        let status = status.unwrap_or_else(|| 200 + dice.below(400) as u16);
        let framing = if dice.percent(50) {
            Framing::Plain
        } else {
            dice.pick(&FRAMINGS)
        };
        let extra = match status {
            300..=399 => dice.pick(&[Extra::None, Extra::Elsewhere, Extra::Login]),
            401 => dice.pick(&[Extra::None, Extra::Challenge]),
            429 | 503 => dice.pick(&[Extra::None, Extra::RetryAfter(1), Extra::RetryAfter(3600)]),
            _ => Extra::None,
        };
        let shape = Self {
            status,
            body: Body::draw(dice),
            framing,
            extra,
        };
        shape.possible()
    }

    /// The nearest shape that HTTP can carry.
    fn possible(mut self) -> Self {
        if matches!(self.status, 204 | 205 | 304) {
            self.framing = Framing::Plain;
        }
        if matches!(self.status, 204 | 205 | 304) || self.framing == Framing::EndsAtOnce {
            self.body = Body::Empty;
        }
        self
    }

    pub fn is_success(&self) -> bool {
        (200..300).contains(&self.status)
    }

    pub fn is_client_error(&self) -> bool {
        (400..500).contains(&self.status)
    }

    /// Whether any reader finds the whole body.
    fn is_legible(&self) -> bool {
        !matches!(self.framing, Framing::Cut | Framing::EndsAtOnce)
            && !matches!(self.status, 202 | 204 | 205)
    }

    /// Whether the answer says by itself that the request was not carried out, on a transport
    /// whose answers come as answers to the POST.
    pub fn refuses(&self) -> bool {
        let readable = matches!(
            self.framing,
            Framing::Plain | Framing::Events | Framing::Bom | Framing::Gzip
        );
        let named = matches!(self.body, Body::Error { id, words, .. }
            if id != ErrorId::Other && words.name_the_session());
        self.is_client_error() || (self.is_success() && self.is_legible() && readable && named)
    }

    /// Whether a tool on a healthy session could have answered exactly this.
    pub fn is_like_a_tools_own_error(&self) -> bool {
        let error = matches!(
            self.body,
            Body::Error {
                id: ErrorId::Right,
                ..
            } | Body::ToolError(_)
        );
        self.is_success() && self.is_legible() && error
    }

    /// Whether it can come after the request was carried out without being a lie: it neither
    /// refuses the request nor reports its own outcome. A gateway's 5xx may quote anything.
    pub fn can_come_late(&self) -> bool {
        if matches!(self.extra, Extra::RetryAfter(_)) {
            return false;
        }
        let silent = match self.body {
            // What an error under another id refuses is not this request.
            Body::Empty
            | Body::NullResult
            | Body::EmptyResult
            | Body::Error {
                id: ErrorId::Other, ..
            } => true,
            Body::Text(words)
            | Body::Html(words)
            | Body::Json(words)
            | Body::Error { words, .. } => !words.name_the_session(),
            Body::ToolError(_) => false,
        };
        (500..600).contains(&self.status) || (self.is_success() && silent)
    }

    /// An error beside a successful status. As the answer to a POST of HTTP+SSE, whose status says that
    /// the request was accepted, it may come whatever became of the request.
    pub fn is_error_in_acceptance(&self) -> bool {
        self.is_success() && matches!(self.body, Body::Error { .. })
    }

    /// Whether the next request gets another error, which could be a tool's own.
    pub fn changes_words_of_errors(&self) -> bool {
        matches!(
            self.body,
            Body::Error {
                id: ErrorId::Right,
                words: Words::Changing,
                ..
            }
        )
    }

    /// The bytes that answer the request with this id, and whether the connection ends with them.
    pub fn bytes(&self, id: &Value, closes: bool) -> (Vec<u8>, bool) {
        let (content_type, text) = self.body.text(id);
        let bodiless = matches!(self.status, 204 | 304);
        let ends = closes || self.framing == Framing::Cut;
        let mut head = format!("HTTP/1.1 {} Scripted\r\n", self.status);
        let mut add = |name: &str, value: &str| {
            head.push_str(name);
            head.push_str(": ");
            head.push_str(value);
            head.push_str("\r\n");
        };
        match self.extra {
            Extra::None => {}
            Extra::RetryAfter(seconds) => add("retry-after", &seconds.to_string()),
            Extra::Challenge => add("www-authenticate", "Bearer realm=\"tools\""),
            Extra::Elsewhere => add("location", "https://login.invalid/start"),
            Extra::Login => add("location", LOGIN_PATH),
        }
        if ends {
            add("connection", "close");
        }
        match self.framing {
            Framing::Events | Framing::EndsAtOnce => add("content-type", "text/event-stream"),
            Framing::WrongType => add("content-type", "application/x-www-form-urlencoded"),
            Framing::NoType => {}
            _ if bodiless => {}
            _ => add("content-type", content_type),
        }
        if self.framing == Framing::Gzip {
            add("content-encoding", "gzip");
        }
        let body = self.framed(text);
        match self.framing {
            Framing::Events | Framing::EndsAtOnce => add("transfer-encoding", "chunked"),
            Framing::Cut => add("content-length", &(body.len() + 64).to_string()),
            _ if bodiless => {}
            _ => add("content-length", &body.len().to_string()),
        }
        let mut bytes = head.into_bytes();
        bytes.extend_from_slice(b"\r\n");
        bytes.extend_from_slice(&body);
        (bytes, ends)
    }

    fn framed(&self, text: String) -> Vec<u8> {
        match self.framing {
            Framing::Events => {
                let event = format!("event: message\ndata: {}\n\n", text.trim_end());
                let mut body = chunk(event.as_bytes());
                body.extend_from_slice(LAST_CHUNK);
                body
            }
            Framing::EndsAtOnce => LAST_CHUNK.to_vec(),
            Framing::Gzip | Framing::RawGzip => gzip::stored(text.as_bytes()),
            Framing::Bom => format!("\u{feff}{text}").into_bytes(),
            _ => text.into_bytes(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shape_is_read_back_from_its_text() {
        let dice = ShapeRng::new(1);
        for _ in 0..2000 {
            let shape = Shape::draw(&dice, None);
            assert_eq!(shape.to_string().parse(), Ok(shape));
        }
        assert!("404/rpc:null:-32001/plain/none".parse::<Shape>().is_err());
    }

    #[test]
    fn every_shape_is_http_with_the_length_it_names() {
        let dice = ShapeRng::new(2);
        for status in FAMOUS.into_iter().chain(200..600) {
            let shape = Shape::draw(&dice, Some(status));
            let (bytes, ends) = shape.bytes(&json!(7), false);
            let mut headers = [httparse::EMPTY_HEADER; 16];
            let mut response = httparse::Response::new(&mut headers);
            let httparse::Status::Complete(head) = response.parse(&bytes).unwrap() else {
                panic!("{shape}: half a head");
            };
            assert_eq!(response.code, Some(status));
            let length = response
                .headers
                .iter()
                .find(|header| header.name == "content-length")
                .map(|header| {
                    String::from_utf8_lossy(header.value)
                        .parse::<usize>()
                        .unwrap()
                });
            let sent = bytes.len() - head;
            match length {
                Some(length) if shape.framing == Framing::Cut => assert!(ends && length > sent),
                Some(length) => assert_eq!(length, sent, "{shape}"),
                None if matches!(status, 204 | 304) => assert_eq!(sent, 0, "{shape}"),
                None => assert!(bytes.ends_with(LAST_CHUNK), "{shape}"),
            }
        }
    }

    #[test]
    fn what_an_answer_says_about_the_request() {
        let shape = |text: &str| text.parse::<Shape>().unwrap();
        assert!(shape("404/empty/cut/none").refuses());
        assert!(shape("200/rpc:null:-32000:s2/gzip/none").refuses());
        assert!(!shape("200/rpc:null:-32000:o0/plain/none").refuses());
        assert!(!shape("202/rpc:right:-32000:s2/plain/none").refuses());
        assert!(!shape("500/rpc:right:-32000:s2/plain/none").refuses());
        assert!(shape("200/rpc:right:-32000:o0/plain/none").is_like_a_tools_own_error());
        assert!(!shape("200/rpc:null:-32000:o0/plain/none").is_like_a_tools_own_error());
        assert!(shape("502/html:o0/plain/none").can_come_late());
        assert!(!shape("404/html:o0/plain/none").can_come_late());
    }
}

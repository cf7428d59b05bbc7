//! What a test can ask of the server: shapes of a lost session, faults, odd habits.

use serde_json::{Value, json};

use crate::model_server::ReplyGate;

/// What the server speaks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Wire {
    /// Streamable HTTP with handshake and sessions, up to 2025-11-25.
    #[default]
    Legacy,
    /// Stateless streamable HTTP, 2026-07-28.
    Modern,
    /// HTTP+SSE of 2024-11-05.
    Sse,
}

/// How a request with a forgotten session is answered. Every one was seen on a real server.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Loss {
    /// 404, -32001, id null: the specification's way.
    #[default]
    NotFound,
    /// 404, -32600, id `"server-error"`: the Python SDK.
    NotFoundServerError,
    /// 404, -32000 "Unknown Mcp-Session-Id", the right id.
    NotFoundUnknownId,
    /// 404 with nothing in it.
    NotFoundBare,
    /// 404 with the page of a proxy.
    NotFoundHtml,
    /// 404 with a line of text.
    NotFoundText,
    /// 400, -32000 "No valid session ID provided", no id: server-everything, supergateway 3.
    BadRequestNoId,
    /// The same with id null.
    BadRequestNullId,
    /// 400 with id `"server-error"`.
    BadRequestServerError,
    /// 400, -32602 "Invalid or expired session", the right id.
    BadRequestExpired,
    /// 200 with the same error.
    OkExpired,
    /// 200 with the same error and id null.
    OkExpiredNullId,
    /// 200 and the error as an event.
    OkEventExpired,
    /// 200 and the error as an event with id null.
    OkEventNullId,
    /// 401 "Unauthorized: Session not found", without a challenge.
    Unauthorized,
    /// 410 "session expired".
    Gone,
    /// 503 "unknown session".
    Unavailable,
    /// 200, 32600 "Session terminated".
    OkTerminated,
}

impl Loss {
    pub const ALL: [Self; 18] = [
        Self::NotFound,
        Self::NotFoundServerError,
        Self::NotFoundUnknownId,
        Self::NotFoundBare,
        Self::NotFoundHtml,
        Self::NotFoundText,
        Self::BadRequestNoId,
        Self::BadRequestNullId,
        Self::BadRequestServerError,
        Self::BadRequestExpired,
        Self::OkExpired,
        Self::OkExpiredNullId,
        Self::OkEventExpired,
        Self::OkEventNullId,
        Self::Unauthorized,
        Self::Gone,
        Self::Unavailable,
        Self::OkTerminated,
    ];

    /// Whether the answer is a JSON-RPC error that says that the request was refused. The others
    /// could come from anything between client and server.
    pub fn is_spoken(self) -> bool {
        !matches!(
            self,
            Self::NotFoundBare | Self::NotFoundHtml | Self::NotFoundText
        )
    }

    /// The answer to the request with this id.
    pub(super) fn answer(self, id: &Value) -> PlannedAnswer {
        let right = Some(id.clone());
        let null = Some(Value::Null);
        let named = Some(json!("server-error"));
        let expired = "Invalid params: Invalid or expired session";
        let missing = "Bad Request: No valid session ID provided";
        match self {
            Self::NotFound => PlannedAnswer::error(404, null, -32001, "Session not found"),
            Self::NotFoundServerError => {
                PlannedAnswer::error(404, named, -32600, "Session not found")
            }
            Self::NotFoundUnknownId => {
                PlannedAnswer::error(404, right, -32000, "Unknown Mcp-Session-Id")
            }
            Self::NotFoundBare => PlannedAnswer::plain(404, "text/plain", ""),
            Self::NotFoundHtml => PlannedAnswer::plain(
                404,
                "text/html",
                "<html><body><h1>404 Not Found</h1></body></html>",
            ),
            Self::NotFoundText => PlannedAnswer::plain(404, "text/plain", "Session not found\n"),
            Self::BadRequestNoId => PlannedAnswer::error(400, None, -32000, missing),
            Self::BadRequestNullId => PlannedAnswer::error(400, null, -32000, missing),
            Self::BadRequestServerError => PlannedAnswer::error(400, named, -32000, missing),
            Self::BadRequestExpired => PlannedAnswer::error(400, right, -32602, expired),
            Self::OkExpired => PlannedAnswer::error(200, right, -32602, expired),
            Self::OkExpiredNullId => PlannedAnswer::error(200, null, -32602, expired),
            Self::OkEventExpired => PlannedAnswer::events(&[error_body(right, -32602, expired)]),
            Self::OkEventNullId => PlannedAnswer::events(&[error_body(null, -32602, expired)]),
            Self::Unauthorized => {
                PlannedAnswer::error(401, null, -32000, "Unauthorized: Session not found")
            }
            Self::Gone => PlannedAnswer::error(410, null, -32000, "Session expired"),
            Self::Unavailable => PlannedAnswer::error(503, null, -32000, "Unknown session"),
            Self::OkTerminated => PlannedAnswer::error(200, right, 32600, "Session terminated"),
        }
    }
}

/// What goes wrong with one request. "After" means that it was executed.
#[derive(Clone, Debug)]
pub enum Fault {
    /// Answered without executing it.
    Status {
        status: u16,
        headers: Vec<(String, String)>,
        content_type: String,
        body: String,
    },
    ResetBefore,
    /// Executed, half of the answer, reset.
    ResetDuring,
    ResetAfter,
    /// Executed, then an orderly end without an answer.
    CloseAfter,
    /// Executed, answered as an event stream that ends after so many bytes of its body.
    CutEvents(usize),
    /// Executed, answered as an event stream that ends before the answer and can be resumed by
    /// GET; of what comes then the first so many messages are lost.
    CutResumable {
        lost: usize,
    },
    /// Never answered, never executed.
    Silence,
    /// Executed, never answered.
    SilenceAfter,
    /// Executed, the head of an event stream, then nothing.
    SilenceAfterHead,
    /// Executed, answered one byte at a time with this pause in milliseconds.
    Trickle(u64),
    /// Waits here before it is executed.
    Hold(ReplyGate),
    /// Executed, waits here before the answer.
    HoldAfter(ReplyGate),
    /// Executed, with a text of so many bytes in one event.
    Oversized(usize),
    /// Executed, the answer twice in one stream.
    Twice,
    /// Executed, an answer with a foreign id first.
    ForeignIdFirst,
    /// Executed, and then the JSON-RPC error replaces the result.
    RpcError {
        code: i64,
        message: String,
    },
    /// These bytes and an end, instead of HTTP.
    Raw(Vec<u8>),
}

impl Fault {
    pub fn status(status: u16, body: &str) -> Self {
        Self::Status {
            status,
            headers: Vec::new(),
            content_type: "text/plain".to_owned(),
            body: body.to_owned(),
        }
    }

    /// A JSON-RPC error with this status; `{id}` is not replaced, so it has none.
    pub fn status_error(status: u16, code: i64, message: &str) -> Self {
        Self::Status {
            status,
            headers: Vec::new(),
            content_type: "application/json".to_owned(),
            body: error_body(None, code, message).to_string(),
        }
    }

    /// 429, 503 and the like.
    pub fn throttled(status: u16, retry_after: Option<&str>) -> Self {
        let headers = retry_after
            .map(|value| ("retry-after".to_owned(), value.to_owned()))
            .into_iter()
            .collect();
        Self::Status {
            status,
            headers,
            content_type: "text/plain".to_owned(),
            body: "try again later".to_owned(),
        }
    }

    pub fn redirect(status: u16, to: &str) -> Self {
        Self::Status {
            status,
            headers: vec![("location".to_owned(), to.to_owned())],
            content_type: "text/plain".to_owned(),
            body: String::new(),
        }
    }

    /// 401 with this challenge.
    pub fn challenge(header: &str) -> Self {
        Self::Status {
            status: 401,
            headers: vec![("www-authenticate".to_owned(), header.to_owned())],
            content_type: "application/json".to_owned(),
            body: r#"{"error":"invalid_token"}"#.to_owned(),
        }
    }

    /// Another status, 404 say, with the code for an unknown method.
    pub fn unknown_method() -> Self {
        Self::status_error(404, -32601, "Method not found")
    }
}

/// What a GET is answered with.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum GetStream {
    #[default]
    Open,
    /// 404, 405, 409, 400 …
    Status(u16),
    /// Opened and ended at once, as balancers with short limits do.
    EndsAtOnce,
}

/// What a ping is answered with.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Ping {
    #[default]
    Answered,
    /// -32601.
    Unknown,
    /// Nothing ever.
    Mute,
}

/// Counts since the start; nothing resets them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    pub connections: usize,
    /// POST requests of any kind.
    pub posts: usize,
    pub initializes: usize,
    /// `server/discover` of the modern era.
    pub discovers: usize,
    /// Session ids given out.
    pub sessions: usize,
    /// `tools/call` that arrived, executed or not.
    pub calls: usize,
    /// Times the `bump` tool ran.
    pub effects: usize,
    pub pings: usize,
    pub tool_lists: usize,
    pub gets: usize,
    pub deletes: usize,
    /// Listening streams open now.
    pub listening: usize,
    /// `notifications/cancelled` that arrived.
    pub cancelled: usize,
    /// Requests refused because of their session.
    pub refused: usize,
    /// Tools running now, and the most at once so far.
    pub running: usize,
    pub peak: usize,
    /// Handshakes in progress now, and the most at once so far.
    pub shaking: usize,
    pub peak_shaking: usize,
}

/// A request as it arrived.
#[derive(Clone, Debug)]
pub struct Seen {
    pub verb: String,
    pub path: String,
    pub headers: Vec<(String, String)>,
    pub body: Value,
    /// Whether a balancer sent it to the second instance.
    pub second: bool,
}

impl Seen {
    pub fn method(&self) -> &str {
        self.body["method"].as_str().unwrap_or_default()
    }

    pub fn header(&self, name: &str) -> Option<&str> {
        let (_, value) = self.headers.iter().find(|(key, _)| key == name)?;
        Some(value)
    }
}

/// An HTTP answer before it is written.
#[derive(Clone, Debug)]
pub(super) struct PlannedAnswer {
    pub status: u16,
    pub content_type: String,
    pub headers: Vec<(String, String)>,
    pub body: String,
}

impl PlannedAnswer {
    pub(super) fn plain(status: u16, content_type: &str, body: &str) -> Self {
        Self {
            status,
            content_type: content_type.to_owned(),
            headers: Vec::new(),
            body: body.to_owned(),
        }
    }

    pub(super) fn json(status: u16, body: &Value) -> Self {
        Self::plain(status, "application/json", &body.to_string())
    }

    pub(super) fn error(status: u16, id: Option<Value>, code: i64, message: &str) -> Self {
        Self::json(status, &error_body(id, code, message))
    }

    pub(super) fn events(messages: &[Value]) -> Self {
        let body: String = messages.iter().map(event).collect();
        Self::plain(200, "text/event-stream", &body)
    }
}

pub(super) fn event(message: &Value) -> String {
    format!("event: message\ndata: {message}\n\n")
}

pub(super) fn error_body(id: Option<Value>, code: i64, message: &str) -> Value {
    let mut body = json!({"jsonrpc": "2.0", "error": {"code": code, "message": message}});
    if let Some(id) = id {
        body["id"] = id;
    }
    body
}

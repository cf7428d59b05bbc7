//! Server messages from one stream (stdio, HTTP+SSE), matched with pending requests.

use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use regex::bytes::Regex;
use rmcp::model::{
    ClientJsonRpcMessage, ClientNotification, ClientRequest, ErrorData, RequestId,
    ServerJsonRpcMessage, ServerResult,
};
use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::{Value, json};

use super::ConnectionShared;
use crate::failure::classify::{self, TransportBreak};
use crate::failure::{Certainty, FailureClass, McpFailure};
use crate::transport::http::{is_keepalive_text, without_bom};
use crate::transport::link::LinkEvent;

/// Reads messages that rmcp would drop, so that no request waits for an answer that was already
/// sent.
pub(crate) struct PeerInbox {
    shared: Arc<ConnectionShared>,
    /// Requests without an answer, oldest first.
    waiting: Mutex<Vec<Waiting>>,
    /// The highest id that was sent. An unexpected answer to a lower id is late or a duplicate; one
    /// to a higher id refers to a request that was never sent.
    last_id: AtomicI64,
}

struct Waiting {
    id: RequestId,
    /// A tool call: its result is not parsed by rmcp.
    call: bool,
    /// The byte offset at which its line ended, once it is written.
    end: Option<u64>,
}

impl PeerInbox {
    pub(crate) fn new(shared: &Arc<ConnectionShared>) -> Arc<Self> {
        Arc::new(Self {
            shared: Arc::clone(shared),
            waiting: Mutex::default(),
            last_id: AtomicI64::new(i64::MIN),
        })
    }

    /// Records an outgoing message.
    pub(crate) fn sending(&self, message: &ClientJsonRpcMessage) {
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        match message {
            ClientJsonRpcMessage::Request(request) => {
                if let RequestId::Number(number) = request.id {
                    self.last_id.fetch_max(number, Ordering::Relaxed);
                }
                waiting.push(Waiting {
                    id: request.id.clone(),
                    call: is_call(&request.request),
                    end: None,
                });
            }
            ClientJsonRpcMessage::Notification(notification) => {
                if let ClientNotification::CancelledNotification(cancelled) =
                    &notification.notification
                {
                    let id = cancelled.params.request_id.as_ref();
                    waiting.retain(|one| Some(&one.id) != id);
                }
            }
            _ => {}
        }
    }

    /// The request could not be sent: no answer is expected.
    pub(crate) fn not_sent(&self, id: &RequestId) {
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        waiting.retain(|one| one.id != *id);
    }

    /// The request was written completely; its line ended at this byte.
    pub(crate) fn sent(&self, id: &RequestId, end: u64) {
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(one) = waiting.iter_mut().find(|one| one.id == *id) {
            one.end = Some(end);
        }
    }

    /// Requests that the server cannot know, having read this many bytes.
    pub(crate) fn unread(&self, read: u64) -> Vec<RequestId> {
        let waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        let unread = waiting
            .iter()
            .filter(|one| one.end.is_some_and(|end| end > read));
        unread.map(|one| one.id.clone()).collect()
    }

    /// The messages in `text`; `None` if it is something else, e.g. a log line.
    pub(crate) fn read(&self, text: &[u8]) -> Option<Vec<ServerJsonRpcMessage>> {
        let text = without_bom(text);
        if let Some(message) = self.answer_of_call(text) {
            return Some(vec![message]);
        }
        let messages = match serde_json::from_slice::<ServerJsonRpcMessage>(text) {
            Ok(ServerJsonRpcMessage::Error(error))
                if error.id.as_ref().is_some_and(|id| !self.is_known(id)) =>
            {
                self.refused_under_another_id(error.error)
            }
            Ok(message) if !is_lost(&message) => {
                if let Some(stray) = self.stray(&message) {
                    return Some(self.unreadable(&stray));
                }
                if let ServerJsonRpcMessage::Response(response) = &message {
                    store_raw_result(&self.shared, &response.id, text);
                }
                vec![message]
            }
            _ => match serde_json::from_slice::<Value>(text) {
                Ok(Value::Array(parts)) => self.odd_ones(parts),
                Ok(single) => self.odd_ones(vec![single]),
                Err(error) if is_message_like(text) => {
                    self.unreadable(&format!("the server sent broken JSON ({error})"))
                }
                Err(_) => return None,
            },
        };
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        for id in messages.iter().filter_map(answered).map(plain_id) {
            waiting.retain(|one| one.id != id);
        }
        Some(messages)
    }

    fn odd_ones(&self, parts: Vec<Value>) -> Vec<ServerJsonRpcMessage> {
        let mut messages = Vec::new();
        for part in parts {
            let answers = part.get("method").is_none() && part.get("result").is_some();
            let id = part.get("id").cloned();
            if let Some(waiting) = self.answered_with_nothing(&part) {
                let why = "the answer holds neither a result nor an error";
                messages.push(self.fail(waiting, why));
                continue;
            }
            match self.odd(part) {
                Some(message) if self.stray(&message).is_none() => messages.push(message),
                _ if answers => {
                    let id = id.unwrap_or_default();
                    messages.extend(self.unreadable(&format!(
                        "the server answered something that was not asked (id {id})"
                    )));
                }
                _ => {}
            }
        }
        messages
    }

    /// The messages of an event. Servers do not log to an event stream: anything else was sent in
    /// place of an answer.
    pub(crate) fn read_event(&self, text: &str) -> Vec<ServerJsonRpcMessage> {
        if text.trim().is_empty() {
            return Vec::new();
        }
        match self.read(text.as_bytes()) {
            Some(messages) if !messages.is_empty() => messages,
            None if is_keepalive_text(text) && !text.trim_start().starts_with('[') => Vec::new(),
            _ => {
                let start: String = text.chars().take(200).collect();
                self.unreadable(&format!("the server sent something else than MCP: {start}"))
            }
        }
    }

    /// The answer to the request `id`, where a server sends it in reply to the POST instead of on
    /// the stream. Other replies are ignored.
    pub(crate) fn read_reply(&self, body: &[u8], id: &RequestId) -> Vec<ServerJsonRpcMessage> {
        #[derive(Deserialize)]
        struct Reply {
            #[serde(default)]
            id: Option<RequestId>,
            #[serde(default)]
            error: Option<IgnoredAny>,
            #[serde(default)]
            result: Option<IgnoredAny>,
        }
        let Ok(reply) = serde_json::from_slice::<Reply>(body) else {
            return Vec::new();
        };
        let own = reply.id.is_some_and(|found| plain_id(&found) == *id);
        if !own || (reply.error.is_none() && reply.result.is_none()) {
            return Vec::new();
        }
        self.read(body).unwrap_or_default()
    }

    /// Describes a message that answers a request which was never sent.
    fn stray(&self, message: &ServerJsonRpcMessage) -> Option<String> {
        let ServerJsonRpcMessage::Response(response) = message else {
            return None;
        };
        let id = &response.id;
        (!self.is_known(id))
            .then(|| format!("the server answered something that was not asked (id {id})"))
    }

    /// Whether a request with this id was ever sent.
    fn is_known(&self, id: &RequestId) -> bool {
        match plain_id(id) {
            RequestId::Number(number) => number <= self.last_id.load(Ordering::Relaxed),
            RequestId::String(_) => false,
        }
    }

    /// An error with an id that was never sent, e.g. `"server-error"`: it refers to the only
    /// waiting request, like an error without an id.
    fn refused_under_another_id(&self, error: ErrorData) -> Vec<ServerJsonRpcMessage> {
        match self.only_waiting() {
            Some(id) => {
                let situation = self.shared.situation(self.shared.has_session());
                let mut failure =
                    classify::rpc(i64::from(error.code.0), &error.message, &situation);
                // According to its id another request was refused.
                failure.certainty = Certainty::MaybeExecuted;
                self.shared.set_request_failure(id.clone(), failure);
                vec![ServerJsonRpcMessage::error(error, Some(id))]
            }
            None => self.unreadable(&format!("the server refused something: {}", error.message)),
        }
    }

    /// An answer that cannot be parsed or matched. It belongs to the only waiting request; if there
    /// are several, the link is reported as suspect instead.
    fn unreadable(&self, why: &str) -> Vec<ServerJsonRpcMessage> {
        tracing::debug!(server = self.shared.server(), "{why}");
        let Some(id) = self.only_waiting() else {
            let waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
            if !waiting.is_empty() {
                self.shared.send_event(LinkEvent::Suspect(why.to_owned()));
            }
            return Vec::new();
        };
        vec![self.fail(id, why)]
    }

    /// Fails a request whose answer cannot be read. It may have been executed.
    fn fail(&self, id: RequestId, why: &str) -> ServerJsonRpcMessage {
        self.not_sent(&id);
        let failure = self
            .shared
            .transport_failure(TransportBreak::AfterSend, why);
        let error = ErrorData::internal_error(failure.text.clone(), None);
        self.shared.set_request_failure(id.clone(), failure);
        ServerJsonRpcMessage::error(error, Some(id))
    }

    /// The waiting request that this message answers with neither a result nor an error.
    fn answered_with_nothing(&self, part: &Value) -> Option<RequestId> {
        let has = |member: &str| part.get(member).is_some();
        let is_empty = has("jsonrpc") && !has("method") && !has("result");
        let is_error = part.get("error").is_some_and(|error| !error.is_null());
        let id = part.get("id").filter(|_| is_empty && !is_error)?;
        let id = plain_id(&RequestId::deserialize(id).ok()?);
        let waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        waiting.iter().any(|one| one.id == id).then_some(id)
    }

    /// The usual case: the result of a tool, stored unchanged and parsed only once.
    fn answer_of_call(&self, text: &[u8]) -> Option<ServerJsonRpcMessage> {
        let expected = {
            let waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
            waiting.iter().any(|one| one.call)
        };
        let answer = expected.then(|| PlainAnswer::read(text))??;
        {
            let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
            let at = waiting
                .iter()
                .position(|one| one.call && one.id == answer.id)?;
            waiting.remove(at);
        }
        answer
            .deliver(&self.shared)
            .or_else(|| serde_json::from_slice(text).ok())
    }

    /// Handles a message that rmcp cannot parse.
    fn odd(&self, mut part: Value) -> Option<ServerJsonRpcMessage> {
        if let Some(error) = part.get("error").filter(|error| !error.is_null()) {
            let id = part.get("id").cloned();
            let id = id.and_then(|id| serde_json::from_value(id).ok());
            let id = id.or_else(|| self.only_waiting())?;
            let code = error.get("code").and_then(Value::as_i64);
            let code = code.and_then(|code| i32::try_from(code).ok());
            let text = match error.get("message").unwrap_or(error) {
                Value::String(text) => text.clone(),
                other => other.to_string(),
            };
            let error = json!({ "code": code.unwrap_or(-32603), "message": text });
            let error: ErrorData = serde_json::from_value(error).ok()?;
            return Some(ServerJsonRpcMessage::error(error, Some(id)));
        }
        let members = part.as_object_mut()?;
        members.insert("jsonrpc".to_owned(), json!("2.0"));
        serde_json::from_value(part).ok()
    }

    /// The waiting request, if there is exactly one: then an error without an id can only refer to
    /// it.
    fn only_waiting(&self) -> Option<RequestId> {
        let waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        match waiting.as_slice() {
            [one] => Some(one.id.clone()),
            _ => None,
        }
    }

    /// Fails the call whose answer is too large; all others continue. `head` and `tail` are the
    /// ends of that answer.
    pub(crate) fn too_large(
        &self,
        head: &[u8],
        tail: &[u8],
        length: usize,
    ) -> Option<ServerJsonRpcMessage> {
        let mebibytes = length.div_ceil(1 << 20);
        let text = format!("the answer is too large: one message of {mebibytes} MiB");
        tracing::warn!(server = self.shared.server(), "{text}");
        let found = {
            let waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
            id_in(head, tail, &waiting)
        };
        let id = found.or_else(|| self.only_waiting())?;
        let mut failure = McpFailure::new(
            FailureClass::Ambiguous,
            Certainty::MaybeExecuted,
            text.clone(),
        );
        failure.rpc_code = Some(-32603);
        self.shared.set_request_failure(id.clone(), failure);
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        waiting.retain(|one| one.id != id);
        let error = ErrorData::internal_error(text, None);
        Some(ServerJsonRpcMessage::error(error, Some(id)))
    }
}

/// Whether a request calls a tool. rmcp passes the result on without parsing it.
pub(crate) fn is_call(request: &ClientRequest) -> bool {
    matches!(request, ClientRequest::CustomRequest(custom) if custom.method == "tools/call")
}

/// A plain answer to a request.
#[derive(Deserialize)]
pub(crate) struct PlainAnswer {
    pub(crate) id: RequestId,
    result: Value,
    #[serde(default)]
    method: Option<IgnoredAny>,
    #[serde(default)]
    error: Option<Value>,
}

impl PlainAnswer {
    pub(crate) fn read(text: &[u8]) -> Option<Self> {
        let answer: Self = serde_json::from_slice(text).ok()?;
        (answer.method.is_none() && answer.error.is_none()).then_some(answer)
    }

    /// Stores the result for its caller and returns a placeholder for rmcp. `None`: no caller waits
    /// for it.
    pub(crate) fn deliver(self, shared: &ConnectionShared) -> Option<ServerJsonRpcMessage> {
        let notice = ServerJsonRpcMessage::response(ServerResult::empty(()), self.id.clone());
        shared.store_result(self.id, self.result).then_some(notice)
    }
}

/// Stores the raw result beside rmcp's parsed one.
pub(crate) fn store_raw_result(shared: &ConnectionShared, id: &RequestId, message: &[u8]) {
    #[derive(Deserialize)]
    struct PlainAnswer {
        result: Value,
    }
    if let Ok(answer) = serde_json::from_slice::<PlainAnswer>(message) {
        shared.store_result(plain_id(id), answer.result);
    }
}

/// Some servers answer 7 with "7".
pub(crate) fn plain_id(id: &RequestId) -> RequestId {
    match id {
        RequestId::String(text) => text.parse().map_or_else(|_| id.clone(), RequestId::Number),
        RequestId::Number(_) => id.clone(),
    }
}

/// Whether a line that is not JSON was meant as a message. Servers print log lines to the same
/// pipe: many with `[INFO]` in front, and some print objects, over several lines (`{`) or in the
/// syntax of their language (`{ a: 1 }`, `{'a': 1}`).
fn is_message_like(text: &[u8]) -> bool {
    match text.trim_ascii() {
        [b'{', rest @ ..] => match (rest.first(), rest.trim_ascii_start().first()) {
            (_, Some(b'"')) => true,
            (Some(first), _) if first.is_ascii_whitespace() || *first == b'\'' => false,
            // `{name} logged in` is a log line.
            (Some(_), _) => rest.ends_with(b"}") || !rest.contains(&b'}'),
            (None, _) => false,
        },
        [b'[', rest @ ..] => {
            let rest = rest.trim_ascii_start();
            rest.starts_with(b"{") && is_message_like(rest)
        }
        _ => false,
    }
}

fn is_lost(message: &ServerJsonRpcMessage) -> bool {
    matches!(message, ServerJsonRpcMessage::Error(error) if error.id.is_none())
}

fn answered(message: &ServerJsonRpcMessage) -> Option<&RequestId> {
    match message {
        ServerJsonRpcMessage::Response(response) => Some(&response.id),
        ServerJsonRpcMessage::Error(error) => error.id.as_ref(),
        _ => None,
    }
}

/// The id of a message of which only the ends are known: the id is near one of them.
fn id_in(head: &[u8], tail: &[u8], waiting: &[Waiting]) -> Option<RequestId> {
    let first = Regex::new(r#"^\s*\{\s*(?:"jsonrpc"\s*:\s*"2\.0"\s*,\s*)?"id"\s*:\s*"?(\d+)"#);
    let last = Regex::new(r#""id"\s*:\s*"?(\d+)"?\s*\}\s*$"#);
    for (pattern, end) in [(first, head), (last, tail)] {
        let found = pattern.ok().and_then(|pattern| {
            let found = pattern.captures(end)?;
            std::str::from_utf8(&found[1]).ok()?.parse::<i64>().ok()
        });
        let id = found.map(RequestId::Number);
        if let Some(id) = id.filter(|id| waiting.iter().any(|one| one.id == *id)) {
            return Some(id);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn broken_messages_are_told_from_log_lines() {
        for broken in [
            r#"{"jsonrpc":"2.0","id":1,"resu"#,
            r#"{ "half":"#,
            "{nonsense",
            r#"[{"jsonrpc":"#,
        ] {
            assert!(is_message_like(broken.as_bytes()), "{broken}");
        }
        for log in [
            "",
            "hello",
            "[INFO] {ready}",
            "[1, 2",
            "{",
            "{ a: 1 }",
            "{'a': 1}",
            "  }",
        ] {
            assert!(!is_message_like(log.as_bytes()), "{log}");
        }
    }

    #[test]
    fn the_id_of_a_cut_message_is_found_at_either_end() {
        let waiting = [4, 5].map(|number| Waiting {
            id: RequestId::Number(number),
            call: false,
            end: None,
        });
        let find = |head: &str, tail: &str| id_in(head.as_bytes(), tail.as_bytes(), &waiting);
        let five = Some(RequestId::Number(5));
        assert_eq!(
            find(r#"{"jsonrpc":"2.0","id":5,"result":{"x"#, "xx\"}}"),
            five
        );
        assert_eq!(
            find(r#"{"result":{"x"#, r#"x"},"jsonrpc":"2.0","id":5}"#),
            five
        );
        assert_eq!(find(r#"{"result":{"id":4,"x"#, r#"x"}}"#), None);
        assert_eq!(find(r#"{"jsonrpc":"2.0","id":9,"result":"#, "}"), None);
    }
}

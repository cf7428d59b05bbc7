//! Repairs answers for rmcp, which drops whatever it cannot match with a request and so leaves the
//! request waiting forever.

use futures_util::StreamExt;
use futures_util::stream::{self, BoxStream};
use rmcp::model::{ErrorData, RequestId, ServerJsonRpcMessage};
use rmcp::transport::streamable_http_client::SseError;
use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::{Value, json};
use sse_stream::Sse;

use super::Refused;
use super::body::events_in;
use crate::failure::classify::{self, TransportBreak};
use crate::failure::{Certainty, FailureClass, McpFailure};
use crate::transport::peer::{ConnectionShared, PlainAnswer, plain_id, store_raw_result};

/// The status of an answer whose content contradicts it.
const HTTP_OK: u16 = 200;

/// The request that an answer belongs to.
#[derive(Clone, Debug)]
pub(crate) struct PendingRequest {
    pub(crate) id: RequestId,
    /// A tool call: its result is not parsed by rmcp.
    pub(crate) call: bool,
    /// Whether an answer is awaited. A subscription has none: its stream is the purpose.
    pub(crate) awaited: bool,
}

impl PendingRequest {
    /// The result of a tool is parsed once, here; rmcp gets a placeholder.
    fn notice(
        &self,
        text: &[u8],
        shared: Option<&ConnectionShared>,
    ) -> Option<ServerJsonRpcMessage> {
        let shared = shared.filter(|_| self.call)?;
        let answer = PlainAnswer::read(text).filter(|answer| answer.id == self.id)?;
        answer.deliver(shared)
    }
}

/// The messages of a JSON body. Any answer in it belongs to the request.
pub(crate) fn messages(
    body: &[u8],
    pending: &PendingRequest,
    shared: Option<&ConnectionShared>,
) -> Result<Vec<ServerJsonRpcMessage>, String> {
    if let Some(notice) = pending.notice(body, shared) {
        return Ok(vec![notice]);
    }
    let id = &pending.id;
    // The usual case needs no repair.
    if let Ok(message) = serde_json::from_slice::<ServerJsonRpcMessage>(body)
        && answered_id(&message) == Some(id)
    {
        if let Some(shared) = shared {
            store_raw_result(shared, id, body);
        }
        return Ok(vec![message]);
    }
    let parsed: Value =
        serde_json::from_slice(body).map_err(|error| format!("the answer is not JSON: {error}"))?;
    let parts = match parsed {
        Value::Array(parts) => parts,
        single => vec![single],
    };
    let mut messages = Vec::new();
    let mut answered = false;
    for mut part in parts {
        answered |= part.get("method").is_none();
        if let Some(shared) = shared {
            note_stray_error(&part, pending, shared);
        }
        if answers_another(&part, pending) {
            return Err("the answer belongs to another request".to_owned());
        }
        repair(&mut part, id, true);
        let message = serde_json::from_value(part)
            .map_err(|error| format!("the answer is not JSON-RPC: {error}"))?;
        messages.push(message);
    }
    if answered {
        Ok(messages)
    } else {
        Err("the answer holds no result and no error".to_owned())
    }
}

/// A result with the id of another request does not belong to this one. An error does, whatever its
/// id.
fn answers_another(part: &Value, pending: &PendingRequest) -> bool {
    let id = part.get("id").filter(|id| !id.is_null());
    part.get("result").is_some()
        && id.is_some_and(|id| {
            RequestId::deserialize(id).is_ok_and(|id| plain_id(&id) != pending.id)
        })
}

/// The error in a body whose status does not allow one: a JSON-RPC error, or that of a tool.
pub(crate) fn failure_in(body: &[u8], shared: &ConnectionShared) -> Option<McpFailure> {
    let message: Value = serde_json::from_slice(body).ok()?;
    if let Some(error) = message.get("error").filter(|error| !error.is_null()) {
        let error = plain_error(error);
        let code = error["code"].as_i64().unwrap_or_default();
        let message = error["message"].as_str().unwrap_or_default();
        let situation = shared.situation(shared.has_session());
        let mut failure = classify::rpc(code, message, &situation);
        // By its status the request was accepted, so it may have been executed despite the error.
        failure.certainty = Certainty::MaybeExecuted;
        return Some(failure);
    }
    let is_error = message.pointer("/result/isError") == Some(&Value::Bool(true));
    is_error.then(|| {
        shared.transport_failure(
            TransportBreak::AfterSend,
            "the error of a tool without an answer",
        )
    })
}

/// A tool's own error has the id of its call. One that does not was made by a component before the
/// tools, and indicates a problem of the session rather than the call.
fn note_stray_error(part: &Value, pending: &PendingRequest, shared: &ConnectionShared) {
    let Some(error) = part.get("error").filter(|error| !error.is_null()) else {
        return;
    };
    let id = part
        .get("id")
        .and_then(|id| RequestId::deserialize(id).ok());
    let own_id = id.as_ref().is_some_and(|id| plain_id(id) == pending.id);
    if own_id && part.get("jsonrpc").is_some() {
        return;
    }
    let error = plain_error(error);
    let code = error["code"].as_i64().unwrap_or_default();
    let message = error["message"].as_str().unwrap_or_default();
    let situation = shared.situation(shared.has_session());
    let mut failure = classify::rpc(code, message, &situation);
    if failure.class == FailureClass::Rpc && part.get("jsonrpc").is_none() {
        failure = shared.transport_failure(TransportBreak::NotMcp, message);
    }
    if id.is_some() && !own_id {
        // According to its id another request was refused.
        failure.certainty = Certainty::MaybeExecuted;
    }
    failure.http_status = Some(HTTP_OK);
    shared.set_request_failure(pending.id.clone(), failure);
}

pub(crate) fn as_stream(
    messages: &[ServerJsonRpcMessage],
) -> BoxStream<'static, Result<Sse, SseError>> {
    stream::iter(to_events(messages).into_iter().map(Ok)).boxed()
}

/// Whether a body contains an answer to exactly this request, whatever its content type.
pub(crate) fn answers(body: &[u8], pending: &PendingRequest) -> bool {
    let parts = match serde_json::from_slice(body) {
        Ok(Value::Array(parts)) => parts,
        Ok(single) => vec![single],
        Err(_) => return false,
    };
    parts.iter().any(|part| {
        let id = part
            .get("id")
            .and_then(|id| RequestId::deserialize(id).ok());
        id.is_some_and(|id| plain_id(&id) == pending.id)
            && (part.get("result").is_some() || part.get("error").is_some())
    })
}

/// The messages up to the answer in a body of events with another content type.
pub(crate) async fn in_events(
    body: Vec<u8>,
    pending: &PendingRequest,
    shared: &ConnectionShared,
) -> Option<Vec<ServerJsonRpcMessage>> {
    const FIELDS: [&[u8]; 4] = [b"data:", b"event:", b"id:", b":"];
    let start = body.trim_ascii_start();
    if !FIELDS.iter().any(|field| start.starts_with(field)) {
        return None;
    }
    let mut events = events_in(body);
    let mut texts = Vec::new();
    loop {
        match read_event(&events.next().await?.ok()?, pending, Some(shared)) {
            EventContent::Others(more) => texts.extend(more),
            EventContent::Nothing => {}
            EventContent::Broken(_) => return None,
            EventContent::Answer(more, _) => {
                texts.extend(more);
                break;
            }
        }
    }
    let texts = texts.iter().filter_map(|event| event.data.as_deref());
    let messages = texts.filter_map(|text| serde_json::from_str(text).ok());
    Some(messages.collect())
}

/// The members that distinguish an answer from other messages, without parsing all of it.
#[derive(Deserialize)]
struct Outline {
    method: Option<IgnoredAny>,
    id: Option<Value>,
    error: Option<IgnoredAny>,
    #[serde(default)]
    result: Present,
}

/// Whether a member is present, even as null.
#[derive(Default)]
struct Present(bool);

impl<'de> Deserialize<'de> for Present {
    fn deserialize<D: serde::Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        IgnoredAny::deserialize(from).map(|_| Self(true))
    }
}

/// The relation of an event to the request whose answer is streamed.
#[derive(Debug)]
pub(crate) enum EventContent {
    /// Messages other than the answer.
    Others(Vec<Sse>),
    /// The answer, possibly with other messages; whether it is a result.
    Answer(Vec<Sse>, bool),
    Nothing,
    /// An answer that cannot be read, and why.
    Broken(String),
}

/// Reads an event, repaired if necessary. An answer to another request is dropped: rmcp would take
/// it for the end of this stream.
pub(crate) fn read_event(
    event: &Sse,
    pending: &PendingRequest,
    shared: Option<&ConnectionShared>,
) -> EventContent {
    let is_message = matches!(event.event.as_deref(), None | Some("" | "message"));
    let data = event.data.as_deref().filter(|_| is_message);
    let data = data
        .unwrap_or_default()
        .trim_start_matches('\u{feff}')
        .trim();
    if data.is_empty() {
        return EventContent::Nothing;
    }
    if let Some(notice) = pending.notice(data.as_bytes(), shared) {
        return EventContent::Answer(to_events(&[notice]), true);
    }
    if data.starts_with('[') {
        return read_batch(data, pending, shared);
    }
    let outline = match serde_json::from_str::<Outline>(data) {
        Ok(outline) => outline,
        Err(_) if is_keepalive_text(data) => return EventContent::Nothing,
        Err(error) => return EventContent::Broken(format!("an event is not JSON-RPC: {error}")),
    };
    if outline.method.is_some() {
        return EventContent::Others(vec![Sse::default().data(data)]);
    }
    if outline.error.is_none() && !outline.result.0 {
        return EventContent::Broken("an event holds neither a result nor an error".to_owned());
    }
    let named = outline.id.filter(|id| !id.is_null());
    let own = named.is_none_or(|found| {
        RequestId::deserialize(&found).is_ok_and(|found| plain_id(&found) == pending.id)
    });
    // An error with another id on this stream can only refer to this request.
    if !own && outline.error.is_none() {
        tracing::debug!("dropped an answer to another request on this stream");
        return EventContent::Nothing;
    }
    match messages(data.as_bytes(), pending, shared) {
        Ok(messages) => EventContent::Answer(to_events(&messages), outline.error.is_none()),
        Err(cause) => EventContent::Broken(cause),
    }
}

/// Whether an event that is not JSON only keeps the stream open: some servers send a word
/// (`keep-alive`) or a log line (`[INFO] …`). Any other text was sent in place of an answer.
pub(crate) fn is_keepalive_text(data: &str) -> bool {
    let data = data.trim();
    let is_word = !data.starts_with(['{', '<']) && !data.contains(char::is_whitespace);
    is_word || (data.starts_with('[') && serde_json::from_str::<IgnoredAny>(data).is_err())
}

fn read_batch(
    data: &str,
    pending: &PendingRequest,
    shared: Option<&ConnectionShared>,
) -> EventContent {
    match messages(data.as_bytes(), pending, shared) {
        Ok(messages) => {
            let result = messages.iter().any(is_result);
            EventContent::Answer(to_events(&messages), result)
        }
        // Not JSON, e.g. a log line.
        Err(_) if serde_json::from_str::<IgnoredAny>(data).is_err() => EventContent::Nothing,
        Err(cause) => EventContent::Broken(cause),
    }
}

pub(crate) fn is_result(message: &ServerJsonRpcMessage) -> bool {
    matches!(message, ServerJsonRpcMessage::Response(_))
}

fn to_events(messages: &[ServerJsonRpcMessage]) -> Vec<Sse> {
    let texts = messages
        .iter()
        .filter_map(|message| serde_json::to_string(message).ok());
    texts.map(|data| Sse::default().data(data)).collect()
}

/// Gives an answer the id of its request, and an error the members that rmcp requires. With `only`,
/// the message can answer no other request. Returns whether anything changed.
fn repair(message: &mut Value, id: &RequestId, only: bool) -> bool {
    let Some(members) = message.as_object_mut() else {
        return false;
    };
    if members.contains_key("method") {
        return false;
    }
    let before = members.clone();
    let is_error = members.get("error").is_some_and(|error| !error.is_null());
    let id_missing = members.get("id").is_none_or(Value::is_null);
    if is_error || id_missing || only {
        members.insert("id".to_owned(), json!(id));
    }
    members.insert("jsonrpc".to_owned(), json!("2.0"));
    if is_error {
        members.remove("result");
        let error = members.get("error").cloned().unwrap_or_default();
        members.insert("error".to_owned(), plain_error(&error));
    }
    *members != before
}

fn plain_error(error: &Value) -> Value {
    let code = error
        .get("code")
        .and_then(Value::as_i64)
        .and_then(|code| i32::try_from(code).ok())
        .unwrap_or(-32603);
    let message = match error.get("message").unwrap_or(error) {
        Value::String(message) => message.clone(),
        other => other.to_string(),
    };
    match error.get("data") {
        Some(data) => json!({ "code": code, "message": message, "data": data }),
        None => json!({ "code": code, "message": message }),
    }
}

fn answered_id(message: &ServerJsonRpcMessage) -> Option<&RequestId> {
    match message {
        ServerJsonRpcMessage::Response(response) => Some(&response.id),
        ServerJsonRpcMessage::Error(error) => error.id.as_ref(),
        _ => None,
    }
}

/// A refused `server/discover` reveals the era: converts it into an error that rmcp can match.
/// Refusals unrelated to the protocol (login, throttling, server errors) are left unchanged.
pub(crate) fn discover_refused(refused: &Refused, id: RequestId) -> Option<ServerJsonRpcMessage> {
    let status = refused.status?;
    if !(400..500).contains(&status) || matches!(status, 401 | 403 | 407 | 408 | 425 | 429) {
        return None;
    }
    let pending = PendingRequest {
        id,
        call: false,
        awaited: true,
    };
    if let Ok(mut messages) = messages(&refused.body, &pending, None)
        && matches!(messages.first(), Some(ServerJsonRpcMessage::Error(_)))
    {
        return Some(messages.remove(0));
    }
    let error = ErrorData::invalid_request(refused.failure.text.clone(), None);
    Some(ServerJsonRpcMessage::error(error, Some(pending.id)))
}

/// The same for a server that accepted it without an answer.
pub(crate) fn discover_unanswered(why: &McpFailure, id: RequestId) -> ServerJsonRpcMessage {
    let error = ErrorData::invalid_request(why.text.clone(), None);
    ServerJsonRpcMessage::error(error, Some(id))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pending(number: i64) -> PendingRequest {
        PendingRequest {
            id: RequestId::Number(number),
            call: false,
            awaited: true,
        }
    }

    fn one(body: &str) -> Value {
        let messages = messages(body.as_bytes(), &pending(7), None).unwrap();
        assert_eq!(messages.len(), 1);
        serde_json::to_value(&messages[0]).unwrap()
    }

    #[test]
    fn errors_without_their_id_get_it() {
        for id in ["", "\"id\":null,", "\"id\":\"server-error\",", "\"id\":99,"] {
            let body =
                format!(r#"{{"jsonrpc":"2.0",{id}"error":{{"code":-32000,"message":"gone"}}}}"#);
            let message = one(&body);
            assert_eq!(message["id"], 7, "{body}");
            assert_eq!(message["error"]["message"], "gone");
        }
    }

    #[test]
    fn odd_errors_are_made_plain() {
        assert_eq!(one(r#"{"error":"no"}"#)["error"]["message"], "no");
        let odd = one(r#"{"id":7,"error":{"code":"x","message":{"a":1}}}"#);
        assert_eq!(
            odd["error"],
            json!({"code": -32603, "message": "{\"a\":1}"})
        );
    }

    #[test]
    fn results_pass_and_batches_are_taken_apart() {
        let id = pending(7);
        assert_eq!(
            one(r#"{"jsonrpc":"2.0","id":7,"result":{"a":1}}"#)["result"]["a"],
            1
        );
        let batch = br#"[{"jsonrpc":"2.0","method":"notifications/tools/list_changed"},
                         {"jsonrpc":"2.0","id":7,"result":{}}]"#;
        assert_eq!(messages(batch, &id, None).unwrap().len(), 2);
        assert!(messages(b"<html>", &id, None).is_err());
        assert!(messages(b"{}", &id, None).is_err());
        assert!(messages(b"[]", &id, None).is_err());
    }

    #[test]
    fn an_error_on_the_stream_is_the_answer_whatever_its_id() {
        for id in ["null", "99", "\"server-error\"", "3"] {
            let error =
                format!(r#"{{"jsonrpc":"2.0","id":{id},"error":{{"code":1,"message":"m"}}}}"#);
            let read = read_event(&Sse::default().data(error), &pending(3), None);
            let EventContent::Answer(events, false) = read else {
                panic!("{id}: {read:?}")
            };
            let data = events[0].data.as_deref().unwrap();
            let message: Value = serde_json::from_str(data).unwrap();
            assert_eq!(message["id"], 3);
        }
    }

    #[test]
    fn results_messages_and_noise_are_told_apart() {
        let read = |data: &str| read_event(&Sse::default().data(data), &pending(3), None);
        for text in [
            r#"{"jsonrpc":"2.0","id":3,"result":{"content":[{"text":"\"error\""}]}}"#,
            r#"{"jsonrpc":"2.0","id":"3","result":{}}"#,
            r#"{"jsonrpc":"2.0","result":{}}"#,
            "\u{feff}{\"jsonrpc\":\"2.0\",\"id\":3,\"result\":{}}",
            r#"[{"jsonrpc":"2.0","id":3,"result":{}}]"#,
        ] {
            assert!(
                matches!(read(text), EventContent::Answer(_, true)),
                "{text}"
            );
        }
        let request = r#"{"jsonrpc":"2.0","id":9,"method":"ping"}"#;
        assert!(matches!(read(request), EventContent::Others(_)));
        let foreign = r#"{"jsonrpc":"2.0","id":4,"result":{}}"#;
        for text in [foreign, "", "keep-alive", "[INFO] working"] {
            assert!(matches!(read(text), EventContent::Nothing), "{text}");
        }
        let control = Sse::default().event("ping").data("{");
        assert!(matches!(
            read_event(&control, &pending(3), None),
            EventContent::Nothing
        ));
        for text in [
            r#"{"jsonrpc":"2.0","id":3,"resu"#,
            r#"{"jsonrpc":"2.0","id":3}"#,
            "{}",
            "[]",
            "<html>",
            "[7]",
            "not json at all",
        ] {
            assert!(matches!(read(text), EventContent::Broken(_)), "{text}");
        }
    }

    #[test]
    fn only_our_own_id_answers_for_a_body_of_another_type() {
        assert!(answers(br#"{"id":7,"result":{}}"#, &pending(7)));
        assert!(answers(br#"{"id":"7","error":{}}"#, &pending(7)));
        for other in [r#"{"id":8,"result":{}}"#, r#"{"id":7}"#, "7", "<html>"] {
            assert!(!answers(other.as_bytes(), &pending(7)), "{other}");
        }
    }
}

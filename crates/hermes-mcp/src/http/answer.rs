//! Making answers readable for rmcp: it drops what it cannot match with a request, and then the
//! request waits for ever.

use std::sync::Arc;

use futures_util::stream::{self, BoxStream};
use futures_util::{Stream, StreamExt};
use rmcp::model::{ErrorData, RequestId, ServerJsonRpcMessage};
use rmcp::transport::streamable_http_client::SseError;
use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::{Value, json};
use sse_stream::Sse;

use super::Refused;
use super::body::chain;
use crate::classify::Break;
use crate::peer::{Answer, Shared, keep};

/// The request that an answer belongs to.
#[derive(Clone, Debug)]
pub(crate) struct Asked {
    pub(crate) id: RequestId,
    /// It calls a tool: rmcp need not understand the result.
    pub(crate) call: bool,
}

impl Asked {
    /// The result of a tool is read once, by us; rmcp gets a notice that it is there.
    fn notice(&self, text: &[u8], shared: Option<&Shared>) -> Option<ServerJsonRpcMessage> {
        let shared = shared.filter(|_| self.call)?;
        let answer = Answer::read(text).filter(|answer| answer.id == self.id)?;
        answer.hand_over(shared)
    }
}

/// The messages of a JSON body. Whatever answers in it answers the request.
pub(crate) fn messages(
    body: &[u8],
    asked: &Asked,
    shared: Option<&Shared>,
) -> Result<Vec<ServerJsonRpcMessage>, String> {
    if let Some(notice) = asked.notice(body, shared) {
        return Ok(vec![notice]);
    }
    let id = &asked.id;
    // The usual case needs no second look.
    if let Ok(message) = serde_json::from_slice::<ServerJsonRpcMessage>(body)
        && answered_id(&message) == Some(id)
    {
        if let Some(shared) = shared {
            keep(shared, id, body);
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

pub(crate) fn as_stream(
    messages: Vec<ServerJsonRpcMessage>,
) -> BoxStream<'static, Result<Sse, SseError>> {
    let events = messages
        .into_iter()
        .filter_map(|message| serde_json::to_string(&message).ok())
        .map(|data| Ok(Sse::default().data(data)));
    stream::iter(events).boxed()
}

/// The stream that answers the request `id`: errors without its id get it, and why the stream
/// ended is kept for the link.
pub(crate) fn repaired(
    events: impl Stream<Item = Result<Sse, SseError>> + Send + 'static,
    asked: Option<Asked>,
    shared: &Arc<Shared>,
) -> BoxStream<'static, Result<Sse, SseError>> {
    let Some(asked) = asked else {
        return events.boxed();
    };
    let shared = Arc::clone(shared);
    events
        .filter_map(move |event| {
            let event = match event {
                Ok(event) => own_event(event, &asked, Some(&shared)).map(Ok),
                Err(error) => {
                    let why = shared.broke(Break::AfterSend, &chain(&error));
                    shared.fault(asked.id.clone(), why);
                    Some(Err(error))
                }
            };
            std::future::ready(event)
        })
        .boxed()
}

/// What tells an answer from other messages, without reading all of it.
#[derive(Deserialize)]
struct Outline {
    method: Option<IgnoredAny>,
    id: Option<Value>,
    error: Option<IgnoredAny>,
}

/// The event, repaired if need be. An answer to somebody else's request is dropped: rmcp would
/// take it for the end of this stream.
fn own_event(mut event: Sse, asked: &Asked, shared: Option<&Shared>) -> Option<Sse> {
    let id = &asked.id;
    let Some(data) = &event.data else {
        return Some(event);
    };
    if let Some(notice) = asked.notice(data.as_bytes(), shared)
        && let Ok(notice) = serde_json::to_string(&notice)
    {
        event.data = Some(notice);
        return Some(event);
    }
    let Ok(outline) = serde_json::from_str::<Outline>(data) else {
        return Some(event);
    };
    if outline.method.is_some() {
        return Some(event);
    }
    let own = match &outline.id {
        None | Some(Value::Null) => outline.error.is_some(),
        Some(found) => RequestId::deserialize(found).is_ok_and(|found| found == *id),
    };
    if own && outline.error.is_none() {
        if let Some(shared) = shared {
            keep(shared, id, data.as_bytes());
        }
        return Some(event);
    }
    if outline.error.is_none() {
        tracing::debug!("dropped an answer to another request on this stream");
        // What it tells about the stream stays.
        event.data = None;
        return (event.id.is_some() || event.retry.is_some()).then_some(event);
    }
    if let Ok(mut message) = serde_json::from_str::<Value>(data)
        && repair(&mut message, id, false)
    {
        event.data = Some(message.to_string());
    }
    Some(event)
}

/// Gives an answer the id of its request, and an error the members that rmcp insists on. With
/// `only` there is nothing else that it could answer. Says whether anything changed.
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

/// A refused `server/discover` tells the era: the error as rmcp can match it. Refusals that say
/// nothing about the protocol (login, throttling, a broken server) stay what they are.
pub(crate) fn discover_refused(refused: &Refused, id: RequestId) -> Option<ServerJsonRpcMessage> {
    let status = refused.status?;
    if !(400..500).contains(&status) || matches!(status, 401 | 403 | 407 | 408 | 425 | 429) {
        return None;
    }
    let asked = Asked { id, call: false };
    if let Ok(mut messages) = messages(&refused.body, &asked, None)
        && matches!(messages.first(), Some(ServerJsonRpcMessage::Error(_)))
    {
        return Some(messages.remove(0));
    }
    let error = ErrorData::invalid_request(refused.failure.text.clone(), None);
    Some(ServerJsonRpcMessage::error(error, Some(asked.id)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(number: i64) -> Asked {
        Asked {
            id: RequestId::Number(number),
            call: false,
        }
    }

    fn one(body: &str) -> Value {
        let messages = messages(body.as_bytes(), &asked(7), None).unwrap();
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
        let id = asked(7);
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
    fn events_with_errors_are_repaired_and_others_left_alone() {
        let id = asked(3);
        let event = |data: &str| Sse::default().data(data);
        let error = r#"{"jsonrpc":"2.0","id":null,"error":{"code":1,"message":"m"}}"#;
        let repaired = own_event(event(error), &id, None).unwrap();
        let message: Value = serde_json::from_str(repaired.data.as_deref().unwrap()).unwrap();
        assert_eq!(message["id"], 3);
        for text in [
            r#"{"jsonrpc":"2.0","id":3,"result":{"content":[{"text":"\"error\""}]}}"#,
            r#"{"jsonrpc":"2.0","id":9,"method":"ping"}"#,
            "not json",
        ] {
            let same = own_event(event(text), &id, None).unwrap();
            assert_eq!(same.data.as_deref(), Some(text));
        }
        let foreign = r#"{"jsonrpc":"2.0","id":4,"result":{}}"#;
        assert!(own_event(event(foreign), &id, None).is_none());
        let kept = own_event(event(foreign).id("e1"), &id, None).unwrap();
        assert_eq!((kept.data, kept.id.as_deref()), (None, Some("e1")));
    }
}

use super::*;
use pretty_assertions::assert_eq;
use serde_json::json;

fn read_all(list: &Value) -> Result<ClientConversation, ApiError> {
    messages(Some(list))
}

#[test]
fn system_messages_are_layered_and_the_last_message_is_now() {
    let said = read_all(&json!([
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "one"},
        {"role": "assistant", "content": "two"},
        {"role": "developer", "content": [{"type": "text", "text": "And kind."}]},
        {"role": "user", "content": [{"type": "text", "text": "three"}]},
    ]))
    .unwrap();
    assert_eq!(said.system.as_deref(), Some("Be brief.\nAnd kind."));
    assert_eq!(
        said.history,
        [Message::user("one"), Message::assistant("two")]
    );
    assert_eq!(said.now, Content::Text("three".to_owned()));
}

#[test]
fn images_are_read_in_both_shapes() {
    let data = "data:image/png;base64,AAAA";
    for part in [
        json!({"type": "image_url", "image_url": {"url": data, "detail": "low"}}),
        json!({"type": "input_image", "image_url": data, "detail": "low"}),
    ] {
        let list = json!([{"role": "user", "content": [{"type": "text", "text": "see"}, part]}]);
        let input = user_input(read_all(&list).unwrap().now);
        assert_eq!(input.text, "see");
        let [Part::Image { image_url, .. }] = &input.images[..] else {
            panic!("{:?}", input.images);
        };
        assert_eq!(image_url.url, data);
        assert_eq!(image_url.detail.as_deref(), Some("low"));
    }
}

#[test]
fn what_cannot_be_read_is_refused_with_its_place() {
    let user = |part: Value| json!([{"role": "user", "content": [part]}]);
    let cases = [
        (json!([]), "invalid_request_error"),
        (json!("hello"), "invalid_request_error"),
        (json!([{"role": "user", "content": "  "}]), "empty"),
        (
            json!([{"role": "assistant", "content": "x"}]),
            "of the user",
        ),
        (json!([{"role": "wizard", "content": "x"}]), "messages[0]"),
        (
            user(json!({"type": "file", "file": {}})),
            "unsupported_content_type",
        ),
        (
            user(json!({"type": "hologram"})),
            "unsupported_content_type",
        ),
        (
            user(json!({"type": "image_url", "image_url": "file:///etc/passwd"})),
            "invalid_image_url",
        ),
        (
            user(json!({"type": "image_url", "image_url": {}})),
            "invalid_image_url",
        ),
        (
            user(json!({"type": "image_url", "image_url": "data:text/html,x"})),
            "unsupported_content_type",
        ),
        (
            user(json!({"type": "text", "text": 5})),
            "invalid_content_part",
        ),
    ];
    for (list, expected) in cases {
        let error = read_all(&list).unwrap_err();
        assert_eq!(error.status(), axum::http::StatusCode::BAD_REQUEST);
        let told = error.to_json().to_string();
        assert!(told.contains(expected), "{list}: {told}");
    }
}

#[test]
fn only_calls_with_results_are_kept() {
    let call = |id: &str| json!({"id": id, "type": "function", "function": {"name": "f", "arguments": "{}"}});
    let said = read_all(&json!([
        {"role": "user", "content": "go"},
        {"role": "assistant", "content": null, "tool_calls": [call("a"), call("lost")]},
        {"role": "tool", "tool_call_id": "a", "content": "done"},
        {"role": "tool", "tool_call_id": "stray", "content": "?"},
        {"role": "assistant", "content": "It is done."},
        {"role": "user", "content": "thanks"},
    ]))
    .unwrap();
    let roles: Vec<&str> = said.history.iter().map(Message::role).collect();
    assert_eq!(roles, ["user", "assistant", "tool", "assistant"]);
    let (Message::Assistant(asked), Message::Tool(result)) = (&said.history[1], &said.history[2])
    else {
        panic!("{:?}", said.history);
    };
    assert_eq!(asked.tool_calls.len(), 1);
    assert_eq!((result.name.as_str(), result.call_id.as_str()), ("f", "a"));
}

#[test]
fn items_of_the_responses_format_are_messages_too() {
    let list = json!([
        {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "go"}]},
        {"type": "reasoning", "summary": []},
        {"type": "function_call", "call_id": "a", "name": "f", "arguments": "{}"},
        {"type": "function_call", "call_id": "b", "name": "g", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "b", "output": "2"},
        {"type": "function_call_output", "call_id": "a", "output": [{"type": "input_text", "text": "1"}]},
        "and now?",
    ]);
    let said = read(list.as_array().unwrap(), "input").unwrap();
    let roles: Vec<&str> = said.history.iter().map(Message::role).collect();
    assert_eq!(roles, ["user", "assistant", "tool", "tool"]);
    assert_eq!(said.now, Content::Text("and now?".to_owned()));
}

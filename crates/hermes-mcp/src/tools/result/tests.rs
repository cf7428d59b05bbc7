use std::path::PathBuf;
use std::time::Duration;

use pretty_assertions::assert_eq;
use serde_json::json;

use super::*;
use crate::failure::{Certainty, FailureClass, McpFailure};

struct TestMedia {
    dir: tempfile::TempDir,
    media: MediaStore,
}

fn store() -> TestMedia {
    let dir = tempfile::tempdir().unwrap();
    let media = MediaStore::new(dir.path().join("mcp"));
    TestMedia { dir, media }
}

async fn called(result: Value) -> ToolOutcome {
    call_outcome(&result, &store().media).await
}

fn text(outcome: &ToolOutcome) -> String {
    match outcome {
        ToolOutcome::Done(content) => content.text().into_owned(),
        ToolOutcome::Error { text, .. } => text.clone(),
    }
}

#[tokio::test]
async fn text_is_joined() {
    let outcome = called(json!({"content": [
        {"type": "text", "text": "one"}, {"type": "text", "text": "two"}]}))
    .await;
    assert_eq!(
        outcome,
        ToolOutcome::Done(Content::Text("one\ntwo".to_owned()))
    );
}

#[tokio::test]
async fn an_error_of_the_tool_is_the_tools() {
    let outcome = called(json!({"isError": true, "content": [
        {"type": "text", "text": "bad key sk-abcdefghijklmnopqrst"}]}))
    .await;
    assert_eq!(
        outcome,
        ToolOutcome::error(ToolErrorKind::Failed, "bad key sk-a…")
    );
    let silent = called(json!({"isError": true})).await;
    assert_eq!(text(&silent), "the tool failed and gave no reason");
}

#[tokio::test]
async fn an_empty_result_is_described() {
    assert_eq!(
        text(&called(json!({"content": []})).await),
        "(the tool ran and returned nothing)"
    );
    assert_eq!(
        text(&called(json!(null)).await),
        "(the tool ran and returned nothing)"
    );
}

#[tokio::test]
async fn structured_content_is_not_repeated() {
    let twice = called(
        json!({"content": [{"type": "text", "text": "{\"a\": 1}"}], "structuredContent": {"a": 1}}),
    )
    .await;
    assert_eq!(text(&twice), "{\"a\": 1}");
    let besides = called(
        json!({"content": [{"type": "text", "text": "sum"}], "structuredContent": {"a": 1}}),
    )
    .await;
    assert_eq!(text(&besides), "sum\n{\"a\":1}");
}

#[tokio::test]
async fn links_and_unknown_blocks_are_described() {
    let outcome = called(json!({"content": [
        {"type": "resource_link", "uri": "file:///a", "name": "A", "description": "d"},
        {"type": "resource", "resource": {"uri": "x:y", "text": "inside"}},
        {"type": "hologram", "depth": 3}]}))
    .await;
    assert_eq!(
        text(&outcome),
        "[link to A file:///a: d; read_resource reads it]\ninside\n{\"type\":\"hologram\",\"depth\":3}"
    );
}

#[tokio::test]
async fn images_are_saved_and_shown() {
    let test = store();
    let result = json!({"content": [
        {"type": "text", "text": "a picture"},
        {"type": "image", "mimeType": "image/png", "data": "aGVsbG8="}]});
    let ToolOutcome::Done(Content::Parts(parts)) = call_outcome(&result, &test.media).await else {
        panic!("parts expected");
    };
    assert_eq!(parts.len(), 2);
    assert_eq!(parts[1], Part::image("data:image/png;base64,aGVsbG8="));
    let files: Vec<PathBuf> = std::fs::read_dir(test.dir.path().join("mcp"))
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .collect();
    assert_eq!(files.len(), 1);
    assert_eq!(std::fs::read(&files[0]).unwrap(), b"hello");
    assert_eq!(
        parts[0].as_text().unwrap(),
        format!(
            "a picture\n[image, image/png, 5 bytes, saved as {}]",
            files[0].display()
        )
    );
}

#[tokio::test]
async fn too_large_and_broken_pieces_are_left_out_without_decoding() {
    let huge = "!".repeat(68 * 1024 * 1024);
    let outcome = called(json!({"content": [
        {"type": "audio", "mimeType": "audio/wav", "data": huge},
        {"type": "image", "mimeType": "image/png", "data": "%%%"},
        {"type": "image", "mimeType": "image/png"},
        {"type": "text", "text": "rest"}]}))
    .await;
    let text = text(&outcome);
    assert!(
        text.starts_with("[audio, audio/wav, left out: 51 MiB are more than the 50 MiB taken]\n"),
        "{text}"
    );
    assert!(text.contains("the data is not base64"), "{text}");
    assert!(text.ends_with("[image without data]\nrest"), "{text}");
}

#[tokio::test]
async fn one_result_has_one_budget() {
    let part = "A".repeat(40 * 1024 * 1024 / 3 * 4);
    let outcome = called(json!({"content": [
        {"type": "audio", "mimeType": "audio/wav", "data": part},
        {"type": "audio", "mimeType": "audio/wav", "data": part}]}))
    .await;
    assert!(text(&outcome).contains("all of this result is more than the 64 MiB taken"));
}

#[tokio::test]
async fn resources_and_prompts() {
    let test = store();
    let resource = json!({"contents": [{"uri": "a:b", "text": "body"}, {"uri": "c:d", "mimeType": "application/pdf", "blob": "aGk"}]});
    let shown = text(&resource_outcome(&resource, &test.media).await);
    assert!(
        shown.starts_with("body\n[resource c:d, application/pdf, 2 bytes, saved as "),
        "{shown}"
    );
    assert!(shown.ends_with(".pdf]"));
    let prompt = json!({"description": "Greets", "messages": [
        {"role": "user", "content": {"type": "text", "text": "Hi"}},
        {"role": "assistant", "content": [{"type": "text", "text": "Ho"}]}]});
    assert_eq!(
        text(&prompt_outcome(&prompt, &test.media).await),
        "Greets\n[user]\nHi\n[assistant]\nHo"
    );
}

#[test]
fn listings_keep_what_matters() {
    let result =
        json!({"resources": [{"uri": "a:b", "name": "A", "_meta": {"x": 1}, "description": null}]});
    assert_eq!(
        text(&listing_outcome(&result, "resources")),
        r#"{"resources":[{"uri":"a:b","name":"A"}]}"#
    );
}

#[test]
fn every_failure_has_advice() {
    use FailureClass as C;
    let rows = [
        (C::Cancelled, ToolErrorKind::Cancelled, ""),
        (C::TimedOut, ToolErrorKind::TimedOut, "Ask for less"),
        (C::NeedsAuth, ToolErrorKind::Failed, "Only the person"),
        (C::ToolGone, ToolErrorKind::Failed, "offered now"),
        (
            C::ScopeNeeded,
            ToolErrorKind::Failed,
            "hermes mcp login srv",
        ),
        (C::Rpc, ToolErrorKind::BadArguments, ""),
        (C::Throttled, ToolErrorKind::Failed, "in 7 s"),
        (C::Permanent, ToolErrorKind::Failed, "settings must change"),
        (C::NotSent, ToolErrorKind::Failed, "did not run"),
        (C::SessionLost, ToolErrorKind::Failed, "did not run"),
        (C::AuthExpired, ToolErrorKind::Failed, "did not run"),
        (C::Ambiguous, ToolErrorKind::Failed, "did not run"),
        (C::Unavailable, ToolErrorKind::Failed, "did not run"),
    ];
    for (class, kind, part) in rows {
        let mut failure = McpFailure::new(class, Certainty::Rejected, "it broke");
        failure.rpc_code = Some(-32602);
        failure.retry_after = Some(Duration::from_secs(7));
        let ToolOutcome::Error { kind: found, text } = refusal_outcome("srv", &failure, false)
        else {
            panic!("an error expected");
        };
        assert_eq!(found, kind, "{class:?}");
        assert!(
            text.starts_with("srv: it broke.") && text.contains(part),
            "{class:?}: {text}"
        );
    }
}

/// This also holds for a call that is safe to repeat.
#[test]
fn a_call_that_may_have_run_is_never_reported_as_not_run() {
    use FailureClass as C;
    for class in [
        C::NotSent,
        C::SessionLost,
        C::AuthExpired,
        C::Ambiguous,
        C::Unavailable,
        C::ToolGone,
    ] {
        let failure = McpFailure::new(class, Certainty::MaybeExecuted, "it broke");
        let ToolOutcome::Error { text, .. } = refusal_outcome("srv", &failure, false) else {
            panic!("an error expected");
        };
        assert!(text.contains("may have run"), "{class:?}: {text}");
        assert!(!text.contains("did not run"), "{class:?}: {text}");
    }
}

#[test]
fn an_unknown_outcome_is_to_be_checked_by_reading() {
    let failure = McpFailure::new(FailureClass::Ambiguous, Certainty::MaybeExecuted, "reset");
    let ToolOutcome::Error { kind, text } = refusal_outcome("srv", &failure, true) else {
        panic!("an error expected");
    };
    assert_eq!(kind, ToolErrorKind::OutcomeUnknown);
    assert!(text.contains("may or may not have taken effect"), "{text}");
}

#[tokio::test]
async fn images_are_shown_whatever_the_server_calls_them() {
    let dir = tempfile::tempdir().unwrap();
    let media = MediaStore::new(dir.path());
    // The first bytes of a PNG and of a JPEG.
    let (png, jpeg) = ("iVBORw0KGgo=", "/9j/4AAQ");
    for (mime, data, shown) in [
        ("image/png; charset=binary", png, "data:image/png;base64,"),
        ("application/octet-stream", png, "data:image/png;base64,"),
        ("image/jpg", jpeg, "data:image/jpeg;base64,"),
        ("", jpeg, "data:image/jpeg;base64,"),
    ] {
        let result = json!({"content": [{"type": "image", "mimeType": mime, "data": data}]});
        let ToolOutcome::Done(Content::Parts(parts)) = call_outcome(&result, &media).await else {
            panic!("no parts: {mime}");
        };
        let image = parts.iter().find_map(|part| match part {
            Part::Image { image_url, .. } => Some(image_url.url.clone()),
            _ => None,
        });
        assert!(image.is_some_and(|url| url.starts_with(shown)), "{mime}");
    }
}

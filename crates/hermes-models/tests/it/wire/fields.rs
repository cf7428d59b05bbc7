//! An endpoint that refuses any one of our optional fields, in any of the usual wordings: the call
//! succeeds with one more request, and the next one needs none.

use std::sync::Arc;

use futures_util::StreamExt;
use hermes_config::home::Home;
use hermes_core::message::{
    AssistantMessage, BlobKind, Content, Message, Part, ToolCall, UserMessage, WireBlob,
};
use hermes_core::model::{
    Collector, ErrorClass, ModelClient, ModelError, ModelRequest, ReasoningEffort, WireFormat,
};
use hermes_core::tool::{Effects, ToolSpec};
use hermes_models::quirks::{
    CacheLayout, CacheTtl, MINIMAL_TO_XHIGH, Quirks, ReasoningEcho, ReasoningShape, ThinkingToggle,
};
use hermes_models::{FieldRuleCache, HttpModelClient};
use hermes_testkit::model_server::{ModelServer, RecordedRequest, Reply};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use super::{FORMATS, parts, request};

/// Without these there is no request.
const ESSENTIAL: &[&str] = &[
    "model",
    "messages",
    "input",
    "instructions",
    "system",
    "tools",
];

/// Everything an endpoint could be asked for at once.
fn everything(format: WireFormat, variant: usize) -> Quirks {
    let mut quirks = Quirks::new(format);
    quirks.parallel_tool_calls = true;
    quirks.prompt_cache_key = true;
    quirks.max_tokens.default = Some(32_000);
    quirks.extra_body =
        json!({"tags": ["a"], "session_id": "{session}", "usage": {"include": true}})
            .as_object()
            .cloned()
            .unwrap();
    let levels = MINIMAL_TO_XHIGH;
    match format {
        WireFormat::ChatCompletions => {
            quirks.cache = CacheLayout::Envelope;
            quirks.cache_ttl = CacheTtl::OneHour;
            quirks.developer_role = true;
            quirks.echo = ReasoningEcho::Required;
            quirks.ollama_num_ctx = Some(65_536);
            quirks.provider_preferences = Some(json!({"sort": "price"}));
            quirks.thought_signatures = true;
            quirks.reasoning = match variant {
                0 => ReasoningShape::Effort { levels },
                1 => ReasoningShape::Object {
                    omit_when_off: false,
                },
                2 => ReasoningShape::Thinking(ThinkingToggle {
                    always: true,
                    levels,
                    exclusive: false,
                }),
                3 => ReasoningShape::Verbosity,
                _ => ReasoningShape::Google,
            };
        }
        WireFormat::AnthropicMessages => {
            quirks.cache = CacheLayout::AnthropicNative;
            quirks.cache_ttl = CacheTtl::OneHour;
            quirks.reasoning = match variant {
                0 => ReasoningShape::AnthropicAdaptive { xhigh: true },
                _ => ReasoningShape::AnthropicBudget,
            };
        }
        WireFormat::Responses => quirks.reasoning = ReasoningShape::Responses { levels },
    }
    quirks
}

fn asked() -> ModelRequest {
    let call = ToolCall {
        id: "c1".into(),
        name: "look".into(),
        arguments: "{}".into(),
        extra: Some(json!({"google": {"thought_signature": "s"}})),
        ..ToolCall::default()
    };
    let mut image = Part::image("data:image/png;base64,AAAA");
    if let Part::Image { image_url, .. } = &mut image {
        image_url.detail = Some("high".into());
    }
    let log = [
        Message::User(UserMessage {
            content: Content::Parts(vec![Part::text("see"), image]),
            wire_text: None,
        }),
        Message::Assistant(AssistantMessage {
            text: "I look.".into(),
            tool_calls: vec![call.clone()],
            blobs: vec![WireBlob {
                kind: BlobKind::ReasoningContent,
                issuer: Some("prov".into()),
                value: json!("hm"),
            }],
            ..AssistantMessage::default()
        }),
        Message::tool(&call, "seen"),
        Message::user("and now?"),
    ];
    let tool = ToolSpec {
        name: "look".into(),
        description: "To look.".into(),
        parameters: Arc::new(json!({"type": "object", "properties": {}})),
        toolset: "files",
        effects: Effects::ReadOnly,
        untrusted: false,
    };
    ModelRequest {
        tools: vec![tool].into(),
        temperature: Some(0.7),
        reasoning: Some(ReasoningEffort::Xhigh),
        ..request(log)
    }
}

fn client(
    server: &ModelServer,
    format: WireFormat,
    variant: usize,
    home: &Home,
) -> HttpModelClient {
    client_of("gemini-3-flash", server, format, variant, home)
}

fn client_of(
    model: &str,
    server: &ModelServer,
    format: WireFormat,
    variant: usize,
    home: &Home,
) -> HttpModelClient {
    let mut parts = parts(&server.base_url(), format);
    parts.route.model = model.into();
    parts.quirks = everything(format, variant);
    parts.fields = Arc::new(FieldRuleCache::new(home));
    HttpModelClient::new(parts)
}

async fn ask(client: &HttpModelClient) -> Result<String, ModelError> {
    let mut stream = client.stream(asked(), CancellationToken::new());
    let mut collector = Collector::default();
    while let Some(event) = stream.next().await {
        collector.push(&event?);
    }
    Ok(collector.finish().0.text)
}

/// The paths of the optional fields in a body, with `*` for positions.
fn optional_paths(body: &Value) -> Vec<String> {
    fn below(path: String, value: &Value, out: &mut Vec<String>) {
        for (key, inner) in value.as_object().into_iter().flatten() {
            below(format!("{path}.{key}"), inner, out);
        }
        out.push(path);
    }
    let mut out = Vec::new();
    for (key, value) in body.as_object().unwrap() {
        if !ESSENTIAL.contains(&key.as_str()) {
            below(key.clone(), value, &mut out);
        }
    }
    for path in [
        "messages.*.name",
        "messages.*.reasoning_content",
        "messages.*.content.*.cache_control",
        "messages.*.content.*.cache_control.ttl",
        "messages.*.content.*.image_url.detail",
        "messages.*.tool_calls.*.extra_content",
        "system.*.cache_control",
        "tools.*.strict",
        "input.*.content.*.detail",
    ] {
        if found(body, &path.split('.').collect::<Vec<_>>()).is_some() {
            out.push(path.to_owned());
        }
    }
    out
}

fn found<'a>(node: &'a Value, path: &[&str]) -> Option<&'a Value> {
    match path {
        [] => Some(node),
        ["*", rest @ ..] => node.as_array()?.iter().find_map(|item| found(item, rest)),
        [key, rest @ ..] => found(node.get(key)?, rest),
    }
}

/// How vendors say that they do not take a field.
fn wordings(path: &str) -> Vec<Value> {
    let place = path.replace(".*", "[0]");
    let dotted = path.replace('*', "0");
    let leaf = path.rsplit('.').next().unwrap();
    let mut loc = vec![json!("body")];
    loc.extend(dotted.split('.').map(|part| match part.parse::<u64>() {
        Ok(number) => json!(number),
        Err(_) => json!(part),
    }));
    let mut all = vec![
        json!({"error": {"message": format!("Unknown parameter: '{place}'."), "type": "invalid_request_error", "param": place, "code": "unknown_parameter"}}),
        json!({"error": {"message": format!("Unsupported parameter: '{place}' is not supported with this model."), "param": null, "code": "unsupported_parameter"}}),
        json!({"type": "error", "error": {"type": "invalid_request_error", "message": format!("{dotted}: Extra inputs are not permitted")}}),
        json!({"detail": [{"type": "extra_forbidden", "loc": loc, "msg": "Extra inputs are not permitted"}]}),
        json!({"error": {"message": "Provider returned error", "code": 400, "metadata": {"provider_name": "Acme", "raw": format!("{{\"error\":{{\"message\":\"`{place}` is not allowed\"}}}}")}}}),
    ];
    // Google and some others name the last part only; where that is a common word, it could be any.
    if leaf.contains('_') {
        all.push(json!([{"error": {"code": 400, "message": format!("Invalid JSON payload received. Unknown name \"{leaf}\": Cannot find field."), "status": "INVALID_ARGUMENT"}}]));
        all.push(json!({"error": {"message": format!("Unrecognized request argument supplied: {leaf}")}}));
    }
    all
}

/// What is refused now, and how.
type Refused = Arc<std::sync::Mutex<(String, Value)>>;

fn refuses(what: Refused) -> impl Fn(&RecordedRequest) -> Reply + Send + 'static {
    move |request| {
        let (path, wording) = &*what.lock().unwrap();
        let segments: Vec<&str> = path.split('.').collect();
        if found(&request.body, &segments).is_some() {
            return Reply::json(400, wording);
        }
        let reply = Reply::text("fine");
        if request.streams() {
            reply
        } else {
            reply.json_answer()
        }
    }
}

#[tokio::test]
async fn a_refused_field_costs_one_request_once() {
    let variants = |format| match format {
        WireFormat::ChatCompletions => 5,
        WireFormat::AnthropicMessages => 2,
        WireFormat::Responses => 1,
    };
    let mut tried = 0;
    for format in FORMATS {
        for variant in 0..variants(format) {
            let probe = ModelServer::start();
            probe.push(Reply::text("fine"));
            let home = tempfile::tempdir().unwrap();
            let asked = client(&probe, format, variant, &Home::at(home.path()));
            ask(&asked).await.unwrap();
            let paths = optional_paths(&probe.last_request().body);
            assert!(paths.len() > 8, "{format:?} {paths:?}");
            let what = Refused::default();
            let server = ModelServer::start();
            server.answer_with(refuses(Arc::clone(&what)));
            for path in paths {
                // The Anthropic format demands it, and would lower it.
                if format == WireFormat::AnthropicMessages && path == "max_tokens" {
                    continue;
                }
                for (nth, wording) in wordings(&path).into_iter().enumerate() {
                    // A second variant differs in its reasoning only.
                    if variant > 0 && !is_reasoning(&path) {
                        continue;
                    }
                    tried += 1;
                    let case = format!("{format:?} {variant} {path} wording {nth}: {wording}");
                    *what.lock().unwrap() = (path.clone(), wording);
                    server.forget_requests();
                    let home = tempfile::tempdir().unwrap();
                    let home = Home::at(home.path());
                    let model = format!("gemini-3-flash-{tried}");
                    let first = client_of(&model, &server, format, variant, &home);
                    let said = ask(&first)
                        .await
                        .unwrap_or_else(|error| panic!("{case}: {error}"));
                    assert_eq!(said, "fine", "{case}");
                    assert_eq!(server.model_requests().len(), 2, "{case}");
                    // As after a restart: nothing but the home is the same.
                    let second = client_of(&model, &server, format, variant, &home);
                    ask(&second)
                        .await
                        .unwrap_or_else(|error| panic!("{case}: {error}"));
                    assert_eq!(server.model_requests().len(), 3, "{case}");
                }
            }
        }
    }
    assert!(tried > 100, "{tried}");
}

fn is_reasoning(path: &str) -> bool {
    [
        "reasoning",
        "thinking",
        "verbosity",
        "effort",
        "output_config",
        "extra_body",
    ]
    .iter()
    .any(|word| path.starts_with(word))
}

/// A refusal in words that name no field: one attempt without all of them, kept for the next start.
#[tokio::test]
async fn a_refusal_that_names_nothing_costs_one_request_once() {
    let wordings = [
        json!({"error": {"message": "リクエストに対応していない項目があります"}}),
        json!({"error": {"message": "Bad Request", "code": null, "param": null}}),
        json!({"fehler": "Diese Angabe wird hier nicht verstanden."}),
    ];
    for format in FORMATS {
        let probe = ModelServer::start();
        probe.push(Reply::text("fine"));
        let home = tempfile::tempdir().unwrap();
        ask(&client(&probe, format, 0, &Home::at(home.path())))
            .await
            .unwrap();
        let what = Refused::default();
        let server = ModelServer::start();
        server.answer_with(refuses(Arc::clone(&what)));
        for path in optional_paths(&probe.last_request().body) {
            let demanded = format == WireFormat::AnthropicMessages && path == "max_tokens";
            // Who cannot stream says so.
            if demanded || path == "stream" {
                continue;
            }
            for wording in &wordings {
                let case = format!("{format:?} {path}: {wording}");
                *what.lock().unwrap() = (path.clone(), wording.clone());
                server.forget_requests();
                let home = tempfile::tempdir().unwrap();
                let home = Home::at(home.path());
                let first = client(&server, format, 0, &home);
                let said = ask(&first).await.map_err(|error| error.to_string());
                assert_eq!(said.as_deref(), Ok("fine"), "{case}");
                assert_eq!(server.model_requests().len(), 2, "{case}");
                let second = client(&server, format, 0, &home);
                let said = ask(&second).await.map_err(|error| error.to_string());
                assert_eq!(said.as_deref(), Ok("fine"), "{case}");
                assert_eq!(server.model_requests().len(), 3, "{case}");
            }
        }
    }
}

/// Efforts that are refused by value: with a list of what is taken, or without one.
#[tokio::test]
async fn an_effort_steps_down_to_what_is_taken() {
    let listed = [
        json!({"error": {"message": "Unsupported value: 'reasoning.effort' does not support 'xhigh' with this model. Supported values are: 'low', 'medium', and 'high'.", "param": "reasoning.effort", "code": "unsupported_value"}}),
        json!({"error": {"message": "unsupported value 'xhigh' for reasoning effort; supported: low, medium, high"}}),
        json!({"error": {"message": "Invalid value: 'xhigh'. Supported values are: 'low', 'medium', 'high'."}}),
        json!({"detail": [{"loc": ["body", "reasoning_effort"], "msg": "Input should be 'low', 'medium' or 'high'", "input": "xhigh"}]}),
        json!({"error": {"message": "reasoning_effort=xhigh is not available for this model"}}),
    ];
    let effort = |request: &RecordedRequest| {
        ["/reasoning/effort", "/reasoning_effort"]
            .iter()
            .find_map(|path| request.body.pointer(path)?.as_str().map(str::to_owned))
    };
    for format in [WireFormat::ChatCompletions, WireFormat::Responses] {
        for wording in &listed {
            let server = ModelServer::start();
            let refusal = wording.clone();
            server.answer_with(move |request| match effort(request).as_deref() {
                Some("low" | "medium" | "high") => Reply::text("fine"),
                _ => Reply::json(400, &refusal),
            });
            let home = tempfile::tempdir().unwrap();
            let home = Home::at(home.path());
            ask(&client(&server, format, 0, &home))
                .await
                .unwrap_or_else(|error| panic!("{format:?} {wording}: {error}"));
            assert_eq!(server.model_requests().len(), 2, "{format:?} {wording}");
            assert_eq!(effort(&server.last_request()).as_deref(), Some("high"));
            ask(&client(&server, format, 0, &home)).await.unwrap();
            assert_eq!(server.model_requests().len(), 3, "{format:?} {wording}");
        }
    }
}

#[tokio::test]
async fn a_limit_is_lowered_or_renamed_and_kept() {
    let cases = [
        (
            json!({"error": {"message": "max_tokens is too large: 32000. This model supports at most 16384 completion tokens"}}),
            "max_tokens",
            16_384,
        ),
        (
            json!({"error": {"message": "Unsupported parameter: 'max_tokens' is not supported with this model. Use 'max_completion_tokens' instead.", "param": "max_tokens", "code": "unsupported_parameter"}}),
            "max_completion_tokens",
            32_000,
        ),
        (
            json!({"message": "max_tokens (32000) exceeds the limit of 4096"}),
            "max_tokens",
            4_096,
        ),
        (
            json!({"error": {"message": "`max_tokens` must be less than or equal to `8192`, the maximum value for this model"}}),
            "max_tokens",
            8_192,
        ),
        (
            json!({"code": "InvalidParameter", "message": "Range of max_tokens should be [1, 8192]"}),
            "max_tokens",
            8_192,
        ),
    ];
    for (wording, name, limit) in cases {
        let server = ModelServer::start();
        let refusal = wording.clone();
        server.answer_with(move |request| {
            let taken = request.body[name].as_u64() == Some(limit);
            if taken {
                Reply::text("fine")
            } else {
                Reply::json(400, &refusal)
            }
        });
        let home = tempfile::tempdir().unwrap();
        let home = Home::at(home.path());
        for requests in [2, 3] {
            ask(&client(&server, WireFormat::ChatCompletions, 0, &home))
                .await
                .unwrap_or_else(|error| panic!("{wording}: {error}"));
            assert_eq!(server.model_requests().len(), requests, "{wording}");
        }
    }
}

#[tokio::test]
async fn a_role_of_its_own_for_the_prompt_is_given_up() {
    let server = ModelServer::start();
    server.answer_with(|request| {
        if request.body["messages"][0]["role"] == "developer" {
            let message = "Unsupported value: 'messages[0].role' does not support 'developer' with this model.";
            let error = json!({"error": {"message": message, "param": "messages[0].role", "code": "unsupported_value"}});
            return Reply::json(400, &error);
        }
        Reply::text("fine")
    });
    let home = tempfile::tempdir().unwrap();
    ask(&client(
        &server,
        WireFormat::ChatCompletions,
        0,
        &Home::at(home.path()),
    ))
    .await
    .unwrap();
    assert_eq!(server.last_request().body["messages"][0]["role"], "system");
}

/// Servers that want reasoning back say so; a wish that lacks something is given up.
#[tokio::test]
async fn what_is_missed_is_sent_or_given_up() {
    let server = ModelServer::start();
    server.answer_with(|request| {
        let missing = |message: &Value| {
            message["role"] == "assistant" && message.get("reasoning_content").is_none()
        };
        if request.body["messages"]
            .as_array()
            .unwrap()
            .iter()
            .any(missing)
        {
            let message =
                "The reasoning_content in the thinking mode must be passed back to the API.";
            return Reply::error(400, message);
        }
        Reply::text("fine")
    });
    let home = tempfile::tempdir().unwrap();
    for requests in [2, 3] {
        let mut parts = parts(&server.base_url(), WireFormat::ChatCompletions);
        parts.fields = Arc::new(FieldRuleCache::new(&Home::at(home.path())));
        ask(&HttpModelClient::new(parts)).await.unwrap();
        assert_eq!(server.model_requests().len(), requests);
        assert_eq!(
            server.last_request().body["messages"][2]["reasoning_content"],
            "hm"
        );
    }
    let server = ModelServer::start();
    server.answer_with(|request| {
        if request.body["messages"][2]["tool_calls"][0]
            .get("extra_content")
            .is_none()
        {
            let message =
                "Function call `look` in the 2. content block is missing a `thought_signature`.";
            return Reply::error(400, message);
        }
        Reply::text("fine")
    });
    let home = tempfile::tempdir().unwrap();
    for requests in [2, 3] {
        let mut parts = parts(&server.base_url(), WireFormat::ChatCompletions);
        parts.fields = Arc::new(FieldRuleCache::new(&Home::at(home.path())));
        ask(&HttpModelClient::new(parts)).await.unwrap();
        assert_eq!(server.model_requests().len(), requests);
    }
    let server = ModelServer::start();
    server.answer_with(|request| {
        if request.body.get("thinking").is_some() {
            return Reply::error(400, "thinking.enabled.budget_tokens: Field required");
        }
        Reply::text("fine")
    });
    let home = tempfile::tempdir().unwrap();
    ask(&client(
        &server,
        WireFormat::AnthropicMessages,
        0,
        &Home::at(home.path()),
    ))
    .await
    .unwrap();
    assert_eq!(server.model_requests().len(), 2);
}

/// A beta that an endpoint does not know is not asked for again; the others are.
#[tokio::test]
async fn a_refused_beta_is_left_out() {
    let server = ModelServer::start();
    server.answer_with(|request| match request.header("anthropic-beta") {
        Some(list) if list.contains("one-2025") => Reply::error(
            400,
            "Unexpected value(s) `one-2025` for the `anthropic-beta` header.",
        ),
        Some("two-2025") => Reply::text("fine"),
        other => Reply::error(400, &format!("{other:?}")),
    });
    let home = tempfile::tempdir().unwrap();
    for requests in [2, 3] {
        let mut parts = parts(&server.base_url(), WireFormat::AnthropicMessages);
        let header = ("anthropic-beta".to_owned(), "one-2025,two-2025".to_owned());
        parts.quirks.headers.push(header);
        parts.fields = Arc::new(FieldRuleCache::new(&Home::at(home.path())));
        ask(&HttpModelClient::new(parts)).await.unwrap();
        assert_eq!(server.model_requests().len(), requests);
    }
}

/// What is not about a field of ours is not answered by taking fields away.
#[tokio::test]
async fn other_refusals_stay_what_they_are() {
    let errors = [
        json!({"error": {"message": "messages: roles must alternate between \"user\" and \"assistant\"", "param": "messages"}}),
        json!({"error": {"message": "Missing required parameter: 'tools[0].name'.", "param": "tools[0].name"}}),
        json!({"error": {"message": "This model does not exist in your region.", "param": "model"}}),
    ];
    for format in FORMATS {
        for error in &errors {
            let server = ModelServer::start();
            server.push_default(Reply::json(400, error));
            let home = tempfile::tempdir().unwrap();
            let failed = ask(&client(&server, format, 0, &Home::at(home.path()))).await;
            assert!(failed.is_err(), "{error}");
            assert_eq!(server.model_requests().len(), 1, "{format:?} {error}");
            assert!(!home.path().join("model_fields.json").exists());
        }
    }
}

/// If the request is refused without anything optional as well, the first reason is shown and
/// nothing is kept.
#[tokio::test]
async fn an_unexplained_refusal_is_reported_as_it_was() {
    for format in FORMATS {
        let server = ModelServer::start();
        server.push_all([
            Reply::error(400, "The request could not be processed."),
            Reply::error(400, "Neither could this one."),
        ]);
        let home = tempfile::tempdir().unwrap();
        let failed = ask(&client(&server, format, 0, &Home::at(home.path()))).await;
        let failed = failed.unwrap_err();
        assert_eq!(failed.class, ErrorClass::Format);
        assert!(
            failed.message.contains("could not be processed"),
            "{failed}"
        );
        assert_eq!(server.model_requests().len(), 2, "{format:?}");
        assert!(!home.path().join("model_fields.json").exists());
    }
}

/// A field that the person wrote into the config is theirs: the error is shown.
#[tokio::test]
async fn a_field_that_the_person_set_stays() {
    let server = ModelServer::start();
    let error = json!({"error": {"message": "Unknown parameter: 'tags'.", "param": "tags"}});
    server.push_default(Reply::json(400, &error));
    let mut parts = parts(&server.base_url(), WireFormat::ChatCompletions);
    parts.quirks = everything(WireFormat::ChatCompletions, 0);
    parts.quirks.set_by_person.insert("tags".into());
    let failed = ask(&HttpModelClient::new(parts)).await.unwrap_err();
    assert_eq!(failed.class, ErrorClass::Format);
    assert_eq!(server.model_requests().len(), 1);
}

/// Several refusals in a row, each naming another field, and one inside a stream.
#[tokio::test]
async fn one_field_after_the_other() {
    let server = ModelServer::start();
    server.answer_with(|request| {
        for name in ["stream_options", "parallel_tool_calls", "tags"] {
            if request.body.get(name).is_some() {
                let error = json!({"error": {"message": format!("Unknown parameter: '{name}'."), "code": 400}});
                return if name == "tags" {
                    Reply::http(200, &format!("data: {error}\n\n"))
                        .header("content-type", "text/event-stream")
                } else {
                    Reply::json(400, &error)
                };
            }
        }
        Reply::text("fine")
    });
    let home = tempfile::tempdir().unwrap();
    let home = Home::at(home.path());
    ask(&client(&server, WireFormat::ChatCompletions, 0, &home))
        .await
        .unwrap();
    assert_eq!(server.model_requests().len(), 4);
    ask(&client(&server, WireFormat::ChatCompletions, 0, &home))
        .await
        .unwrap();
    assert_eq!(server.model_requests().len(), 5);
}

#[tokio::test]
async fn an_oversized_image_is_made_smaller_and_stays_so() {
    let noise: Vec<u8> = (0..600 * 600 * 3_u32)
        .map(|n| (n.wrapping_mul(2_654_435_761) >> 13) as u8)
        .collect();
    let picture = image::RgbImage::from_raw(600, 600, noise).unwrap();
    let mut png = std::io::Cursor::new(Vec::new());
    picture.write_to(&mut png, image::ImageFormat::Png).unwrap();
    let data = base64::Engine::encode(&base64::engine::general_purpose::STANDARD, png.into_inner());
    let url = format!("data:image/png;base64,{data}");
    assert!(url.len() > 600_000);
    let sent = |request: &RecordedRequest| {
        let url = request.body["messages"][1]["content"][1]["image_url"]["url"].as_str();
        url.map(str::len)
    };
    for message in ["image exceeds 300 KB maximum", "the image is too large"] {
        let server = ModelServer::start();
        let text = message.to_owned();
        let enough = url.len() * 6 / 10;
        server.answer_with(move |request| match sent(request) {
            Some(length) if length <= enough => Reply::text("fine"),
            Some(_) => Reply::error(400, &text),
            None => Reply::error(400, "where is it?"),
        });
        let home = tempfile::tempdir().unwrap();
        for requests in [2, 3] {
            let mut parts = parts(&server.base_url(), WireFormat::ChatCompletions);
            parts.fields = Arc::new(FieldRuleCache::new(&Home::at(home.path())));
            let question = request([Message::User(UserMessage {
                content: Content::Parts(vec![Part::text("see"), Part::image(url.clone())]),
                wire_text: None,
            })]);
            let client = HttpModelClient::new(parts);
            let events: Vec<_> = client
                .stream(question, CancellationToken::new())
                .collect()
                .await;
            assert!(events.iter().all(Result::is_ok), "{message}: {events:?}");
            assert_eq!(server.model_requests().len(), requests, "{message}");
        }
    }
}

/// Nothing explains the refusal, not even the optional fields: then it is the size, if that may be.
#[tokio::test]
async fn what_nothing_else_explains_is_the_size_of_a_large_call() {
    for (window, source, words, class) in [
        (200_000, "config", 90_000, ErrorClass::ContextOverflow),
        (200_000, "config", 40_000, ErrorClass::Format),
        (256_000, "default", 40_000, ErrorClass::ContextOverflow),
        (256_000, "default", 4_000, ErrorClass::Format),
    ] {
        let server = ModelServer::start();
        server.push_default(Reply::error(
            400,
            "Запрос отклонён сервером без объяснения причин",
        ));
        let mut parts = parts(&server.base_url(), WireFormat::ChatCompletions);
        parts.info.context_length = window;
        parts.info.context_source = source;
        let client = HttpModelClient::new(parts);
        // Four bytes a token.
        let prompt = request([Message::user("abc ".repeat(words))]);
        let mut stream = client.stream(prompt, CancellationToken::new());
        let failed = loop {
            match stream.next().await.unwrap() {
                Ok(_) => {}
                Err(error) => break error,
            }
        };
        assert_eq!(failed.class, class, "{window} {source} {words}");
    }
}

//! The client against a wire that the test controls, under virtual time.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use futures_util::{FutureExt, StreamExt, stream};
use hermes_core::BoxFuture;
use hermes_core::clock::SystemClock;
use hermes_core::message::FinishReason;
use hermes_core::model::{ErrorClass, ModelClient, ModelError, ModelEvent, WireFormat};
use pretty_assertions::assert_eq;
use reqwest::header::HeaderMap;
use secrecy::SecretString;
use serde_json::{Value, json};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::wire::{HttpAnswer, HttpTransport, OutgoingRequest};
use super::{ClientParts, HttpModelClient, PhaseTimeouts};
use crate::classify::{TransportError, TransportErrorKind};
use crate::codec::samples::Sample;

/// What happens on the wire, in order.
#[derive(Clone)]
enum Act {
    Wait(u64),
    Bytes(String),
    /// The same bytes many times over.
    Shared(Bytes),
    Break,
    Silence,
}

struct FakeWire {
    head_after: u64,
    status: u16,
    acts: Vec<Act>,
    taken: Arc<AtomicUsize>,
    seen: Arc<Mutex<Option<OutgoingRequest>>>,
    /// Lives as long as the answer is held.
    alive: Arc<()>,
}

impl FakeWire {
    fn new(acts: impl IntoIterator<Item = Act>) -> Self {
        Self {
            head_after: 0,
            status: 200,
            acts: acts.into_iter().collect(),
            taken: Arc::default(),
            seen: Arc::default(),
            alive: Arc::default(),
        }
    }
}

impl HttpTransport for FakeWire {
    fn send(
        &self,
        request: OutgoingRequest,
    ) -> BoxFuture<'static, Result<HttpAnswer, TransportError>> {
        *self.seen.lock().unwrap() = Some(request);
        let (head_after, status) = (self.head_after, self.status);
        let taken = Arc::clone(&self.taken);
        let alive = Arc::clone(&self.alive);
        let acts = self.acts.clone().into_iter();
        let body = stream::unfold(
            (acts, taken, alive),
            |(mut acts, taken, alive)| async move {
                loop {
                    let act = acts.next()?;
                    taken.fetch_add(1, Ordering::Relaxed);
                    let item = match act {
                        Act::Wait(seconds) => {
                            tokio::time::sleep(Duration::from_secs(seconds)).await;
                            continue;
                        }
                        Act::Silence => std::future::pending().await,
                        Act::Bytes(text) => Ok(Bytes::from(text)),
                        Act::Shared(bytes) => Ok(bytes),
                        Act::Break => Err(TransportError {
                            kind: TransportErrorKind::Broken,
                            message: "connection reset".into(),
                        }),
                    };
                    return Some((item, (acts, taken, alive)));
                }
            },
        );
        async move {
            tokio::time::sleep(Duration::from_secs(head_after)).await;
            Ok(HttpAnswer {
                status,
                headers: HeaderMap::new(),
                body: body.boxed(),
            })
        }
        .boxed()
    }
}

fn said(text: &str) -> Act {
    let chunk = json!({"choices": [{"delta": {"content": text}}]});
    Act::Bytes(format!("data: {chunk}\n\n"))
}

fn ended() -> Act {
    let chunk = json!({"choices": [{"delta": {}, "finish_reason": "stop"}]});
    Act::Bytes(format!("data: {chunk}\n\ndata: [DONE]\n\n"))
}

fn client(sample: &Sample, wire: FakeWire) -> HttpModelClient {
    let parts = ClientParts {
        route: sample.route.clone(),
        info: sample.info.clone(),
        quirks: sample.quirks.clone(),
        other: None,
        credential: Some(SecretString::from("key-of-this-route")),
        http: reqwest::Client::builder()
            .tls_backend_preconfigured(tls_free())
            .build()
            .unwrap(),
        timeouts: PhaseTimeouts::for_model(false, "m"),
        clock: Arc::new(SystemClock),
        fields: Arc::default(),
        windows: None,
    };
    let wire: Arc<dyn HttpTransport> = Arc::new(wire);
    HttpModelClient::with_wire(parts, &wire)
}

/// The client that the fake wire replaces never connects.
fn tls_free() -> rustls::ClientConfig {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(rustls::RootCertStore::empty())
        .with_no_client_auth()
}

async fn run_sample(sample: &Sample, wire: FakeWire) -> (Vec<ModelEvent>, Option<ModelError>, u64) {
    let start = Instant::now();
    let client = client(sample, wire);
    let mut stream = client.stream(sample.request.clone(), CancellationToken::new());
    let mut events = Vec::new();
    while let Some(item) = stream.next().await {
        match item {
            Ok(event) => events.push(event),
            Err(error) => {
                assert!(stream.next().await.is_none(), "nothing follows an error");
                return (events, Some(error), start.elapsed().as_secs());
            }
        }
    }
    (events, None, start.elapsed().as_secs())
}

async fn run(wire: FakeWire) -> (Vec<ModelEvent>, Option<ModelError>, u64) {
    run_sample(&Sample::chat(), wire).await
}

fn class(error: Option<&ModelError>) -> Option<ErrorClass> {
    error.map(|error| error.class)
}

#[tokio::test(start_paused = true)]
async fn an_answer() {
    let wire = FakeWire::new([said("a"), Act::Wait(100), said("b"), ended()]);
    let seen = Arc::clone(&wire.seen);
    let (events, error, _) = run(wire).await;
    assert_eq!(error, None);
    assert_eq!(
        events,
        [
            ModelEvent::Started,
            ModelEvent::Text("a".into()),
            ModelEvent::Text("b".into()),
            ModelEvent::Finished(FinishReason::Stop),
        ]
    );
    let sent = seen.lock().unwrap().take().unwrap();
    assert_eq!(sent.url, "https://x.test/v1/chat/completions");
    assert_eq!(sent.headers["authorization"], "Bearer key-of-this-route");
    assert!(sent.headers["authorization"].is_sensitive());
}

#[tokio::test(start_paused = true)]
async fn the_first_byte_must_come_in_time() {
    for wire in [
        FakeWire {
            head_after: 100_000,
            ..FakeWire::new([])
        },
        FakeWire {
            head_after: 100,
            ..FakeWire::new([Act::Silence])
        },
    ] {
        let (events, error, seconds) = run(wire).await;
        assert_eq!(events, []);
        assert_eq!(class(error.as_ref()), Some(ErrorClass::Timeout));
        assert_eq!(error.unwrap().message, "no answer within 180 s");
        assert_eq!(seconds, 180);
    }
}

#[tokio::test(start_paused = true)]
async fn local_servers_get_time() {
    let mut sample = Sample::chat();
    sample.info.local = true;
    let wire = FakeWire {
        head_after: 3_000,
        ..FakeWire::new([said("a"), Act::Wait(800), ended()])
    };
    let mut parts = client(&sample, FakeWire::new([]));
    let shared = Arc::get_mut(&mut parts.shared).unwrap();
    shared.timeouts = PhaseTimeouts::for_model(true, "m");
    shared.wire = Arc::new(wire);
    let stream = parts.stream(sample.request.clone(), CancellationToken::new());
    let last = stream.collect::<Vec<_>>().await.pop();
    assert_eq!(last, Some(Ok(ModelEvent::Finished(FinishReason::Stop))));
}

#[tokio::test(start_paused = true)]
async fn silence_before_any_content_is_a_timeout() {
    let heartbeat = Act::Bytes(": still here\n\n".into());
    let (events, error, seconds) = run(FakeWire::new([heartbeat, Act::Silence])).await;
    assert_eq!(events, [ModelEvent::Started]);
    assert_eq!(class(error.as_ref()), Some(ErrorClass::Timeout));
    assert_eq!(seconds, 180);
}

#[tokio::test(start_paused = true)]
async fn what_was_said_stands_when_the_rest_does_not_come() {
    for (end, after) in [(Act::Silence, 180), (Act::Break, 0)] {
        let (events, error, seconds) = run(FakeWire::new([said("half"), end])).await;
        assert_eq!(error, None);
        assert_eq!(
            events.last(),
            Some(&ModelEvent::Finished(FinishReason::Cut))
        );
        assert_eq!(seconds, after);
    }
}

#[tokio::test(start_paused = true)]
async fn a_break_after_the_end_is_no_cut() {
    let finished = json!({"choices": [{"delta": {"content": "x"}, "finish_reason": "stop"}]});
    let wire = FakeWire::new([Act::Bytes(format!("data: {finished}\n\n")), Act::Break]);
    let (events, error, _) = run(wire).await;
    assert_eq!(error, None);
    assert_eq!(
        events.last(),
        Some(&ModelEvent::Finished(FinishReason::Stop))
    );
}

#[tokio::test(start_paused = true)]
async fn a_connection_that_stays_open_does_not_hold_up_the_answer() {
    let event = |value: serde_json::Value| format!("data: {value}\n\n");
    let chat = event(json!({"choices": [{"delta": {"content": "x"}, "finish_reason": "stop"}]}));
    let anthropic = [
        json!({"type": "message_start", "message": {"usage": {"input_tokens": 1}}}),
        json!({"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}}),
        json!({"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "x"}}),
        json!({"type": "message_delta", "delta": {"stop_reason": "end_turn"}}),
        json!({"type": "message_stop"}),
    ]
    .map(event)
    .concat();
    let responses = [
        json!({"type": "response.output_text.delta", "output_index": 0, "delta": "x"}),
        json!({"type": "response.completed", "response": {"status": "completed", "output": []}}),
    ]
    .map(event)
    .concat();
    for (sample, bytes) in [
        (Sample::chat(), format!("{chat}data: [DONE]\n\n")),
        (Sample::new(WireFormat::AnthropicMessages), anthropic),
        (Sample::new(WireFormat::Responses), responses),
    ] {
        // Some proxies go on with heartbeats.
        let heartbeat = Act::Bytes(": still here\n\n".into());
        for rest in [vec![], vec![heartbeat]] {
            let acts = [vec![Act::Bytes(bytes.clone())], rest, vec![Act::Silence]].concat();
            let (events, error, seconds) = run_sample(&sample, FakeWire::new(acts)).await;
            assert_eq!(error, None);
            assert_eq!(
                events.last(),
                Some(&ModelEvent::Finished(FinishReason::Stop))
            );
            assert_eq!(seconds, 0);
        }
    }
}

#[tokio::test(start_paused = true)]
async fn the_whole_call_has_a_limit() {
    let drip = std::iter::repeat_with(|| [Act::Wait(170), said("x")]).take(100);
    let (_, error, seconds) = run(FakeWire::new(drip.flatten())).await;
    assert_eq!(class(error.as_ref()), Some(ErrorClass::Timeout));
    assert_eq!(seconds, 1_800);
}

#[tokio::test(start_paused = true)]
async fn a_lost_connection_hints_at_size_only_when_the_window_is_full() {
    let mut sample = Sample::chat();
    sample.info.context_length = 1_000_000;
    let (_, error, _) = run_sample(&sample, FakeWire::new([Act::Break])).await;
    assert_eq!(class(error.as_ref()), Some(ErrorClass::Timeout));
    sample.info.context_length = 100;
    let (_, error, _) = run_sample(&sample, FakeWire::new([Act::Break])).await;
    assert_eq!(class(error.as_ref()), Some(ErrorClass::ContextOverflow));
    sample.route.model = "openai/o3".into();
    let (_, error, _) = run_sample(&sample, FakeWire::new([Act::Break])).await;
    assert_eq!(class(error.as_ref()), Some(ErrorClass::Timeout));
}

#[tokio::test(start_paused = true)]
async fn nothing_at_all_is_an_empty_stream() {
    let role = json!({"choices": [{"delta": {"role": "assistant"}}]});
    for acts in [
        vec![],
        vec![Act::Bytes(": hello\n\n".into())],
        vec![Act::Bytes("data: [DONE]\n\n".into())],
        vec![Act::Bytes(format!("data: {role}\n\n"))],
    ] {
        let (_, error, _) = run(FakeWire::new(acts)).await;
        assert_eq!(class(error.as_ref()), Some(ErrorClass::EmptyStream));
    }
    // A proper end without content is the agent's business.
    let (events, error, _) = run(FakeWire::new([ended()])).await;
    assert_eq!(error, None);
    assert_eq!(
        events.last(),
        Some(&ModelEvent::Finished(FinishReason::Stop))
    );
}

#[tokio::test(start_paused = true)]
async fn what_cannot_be_read_is_said() {
    for text in ["<html>sign in</html>", "data: {broken\n\n", "{\"a\":"] {
        let (_, error, _) = run(FakeWire::new([Act::Bytes(text.into())])).await;
        assert_eq!(
            class(error.as_ref()),
            Some(ErrorClass::BadResponse),
            "{text}"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn an_error_inside_the_answer_is_classified() {
    let error = json!({"error": {"message": "busy: key-of-this-route", "code": 503}});
    let wire = FakeWire::new([said("x"), Act::Bytes(format!("data: {error}\n\n"))]);
    let (events, error, _) = run(wire).await;
    let error = error.unwrap();
    assert_eq!(events, [ModelEvent::Started, ModelEvent::Text("x".into())]);
    assert_eq!(error.class, ErrorClass::Overloaded);
    assert_eq!(error.message, "busy: [key]");
}

#[tokio::test(start_paused = true)]
async fn error_answers_are_read_within_bounds() {
    let endless = std::iter::repeat_n(Act::Bytes("x".repeat(10_000)), 1_000);
    let wire = FakeWire {
        status: 500,
        ..FakeWire::new(endless)
    };
    let taken = Arc::clone(&wire.taken);
    let (_, error, _) = run(wire).await;
    assert_eq!(class(error.as_ref()), Some(ErrorClass::Server));
    assert!(error.unwrap().message.chars().count() <= 501);
    assert_eq!(taken.load(Ordering::Relaxed), 7);

    let wire = FakeWire {
        status: 429,
        ..FakeWire::new([Act::Bytes("{\"error\":".into()), Act::Silence])
    };
    let (_, error, seconds) = run(wire).await;
    assert_eq!(class(error.as_ref()), Some(ErrorClass::RateLimit));
    assert_eq!(error.unwrap().status, Some(429));
    assert_eq!(seconds, 10);
}

#[tokio::test(start_paused = true)]
async fn a_redirect_is_explained() {
    let wire = FakeWire {
        status: 302,
        ..FakeWire::new([])
    };
    let (_, error, _) = run(wire).await;
    let error = error.unwrap();
    assert_eq!(error.class, ErrorClass::Format);
    assert!(error.message.contains("base_url"), "{}", error.message);
}

#[tokio::test(start_paused = true)]
async fn cancelling_ends_the_call_at_once() {
    let sample = Sample::chat();
    for head_after in [0, 60] {
        let wire = FakeWire {
            head_after,
            ..FakeWire::new([said("x"), Act::Silence])
        };
        let alive = Arc::downgrade(&wire.alive);
        let cancel = CancellationToken::new();
        let client = client(&sample, wire);
        let stream = client.stream(sample.request.clone(), cancel.clone());
        let start = Instant::now();
        let later = async {
            tokio::time::sleep(Duration::from_secs(5)).await;
            cancel.cancel();
        };
        let (items, ()) = tokio::join!(stream.collect::<Vec<_>>(), later);
        let last = items.last().unwrap().as_ref().unwrap_err();
        assert_eq!(last.class, ErrorClass::Cancelled);
        assert_eq!(start.elapsed(), Duration::from_secs(5));
        drop(client);
        assert!(alive.upgrade().is_none(), "the connection is let go");
    }
}

#[tokio::test(start_paused = true)]
async fn a_cancelled_call_sends_nothing() {
    let sample = Sample::chat();
    let wire = FakeWire::new([said("x")]);
    let seen = Arc::clone(&wire.seen);
    let cancel = CancellationToken::new();
    cancel.cancel();
    let stream = client(&sample, wire).stream(sample.request.clone(), cancel);
    assert_eq!(stream.collect::<Vec<_>>().await.len(), 1);
    assert!(seen.lock().unwrap().is_none());
}

#[tokio::test(start_paused = true)]
async fn bytes_are_pulled_and_dropping_lets_go() {
    let sample = Sample::chat();
    let wire = FakeWire::new(std::iter::repeat_n(said("x"), 50));
    let (taken, alive) = (Arc::clone(&wire.taken), Arc::downgrade(&wire.alive));
    let client = client(&sample, wire);
    let mut stream = client.stream(sample.request.clone(), CancellationToken::new());
    assert_eq!(taken.load(Ordering::Relaxed), 0);
    assert_eq!(stream.next().await, Some(Ok(ModelEvent::Started)));
    assert_eq!(stream.next().await, Some(Ok(ModelEvent::Text("x".into()))));
    assert_eq!(stream.next().await, Some(Ok(ModelEvent::Text("x".into()))));
    assert_eq!(taken.load(Ordering::Relaxed), 2);
    drop(stream);
    drop(client);
    assert!(alive.upgrade().is_none());
}

#[tokio::test(start_paused = true)]
async fn a_key_that_cannot_be_sent_is_no_panic() {
    let sample = Sample::chat();
    let mut client = client(&sample, FakeWire::new([]));
    let shared = Arc::get_mut(&mut client.shared).unwrap();
    shared.credential = Some(SecretString::from("line\nbreak"));
    let stream = client.stream(sample.request.clone(), CancellationToken::new());
    let items = stream.collect::<Vec<_>>().await;
    assert_eq!(items[0].as_ref().unwrap_err().class, ErrorClass::Auth);
}

/// An answer without end, in every kind of content.
#[tokio::test(start_paused = true)]
async fn an_endless_answer_is_stopped_with_a_reason() {
    let piece = "x".repeat(256 << 10);
    let deltas = [
        json!({"content": piece}),
        json!({"reasoning_content": piece}),
        json!({"tool_calls": [{"index": 0, "id": "c", "function": {"name": "f", "arguments": piece}}]}),
        json!({"content": "", "padding": piece}),
    ];
    for delta in deltas {
        let chunk = json!({"choices": [{"delta": delta}]});
        let act = Act::Bytes(format!("data: {chunk}\n\n"));
        let wire = FakeWire::new(std::iter::repeat_n(act, 200));
        let taken = Arc::clone(&wire.taken);
        let sample = Sample::chat();
        let client = client(&sample, wire);
        let events: Vec<_> = client
            .stream(sample.request.clone(), CancellationToken::new())
            .collect()
            .await;
        let Some(Err(error)) = events.last() else {
            panic!("it was read to its end");
        };
        assert_eq!(error.class, ErrorClass::Format);
        assert!(error.message.contains("stopped"), "{}", error.message);
        assert!(taken.load(Ordering::Relaxed) < 190);
    }
}

/// What is kept beside the text, and what is nothing at all, has an end as well.
#[tokio::test(start_paused = true)]
async fn what_comes_beside_the_text_has_an_end() {
    let sealed = "s".repeat(64 << 10);
    let chat = |delta: Value| format!("data: {}\n\n", json!({"choices": [{"delta": delta}]}));
    let named = |event: Value| {
        let name = event["type"].as_str().unwrap().to_owned();
        format!("event: {name}\ndata: {event}\n\n")
    };
    let letter = |text: &str| chat(json!({"content": text}));
    let messages = WireFormat::AnthropicMessages;
    let streams = [
        // A letter for every sealed piece, so that the answer seems to go on.
        (
            messages,
            named(
                json!({"type": "content_block_delta", "index": 0, "delta": {"type": "signature_delta", "signature": sealed}}),
            ) + &named(
                json!({"type": "content_block_delta", "index": 1, "delta": {"type": "text_delta", "text": "x".repeat(100)}}),
            ),
        ),
        (
            WireFormat::ChatCompletions,
            chat(json!({"reasoning_details": [{"type": "reasoning.encrypted", "data": sealed}]}))
                + &letter(&"x".repeat(100)),
        ),
        (
            WireFormat::ChatCompletions,
            chat(json!({"reasoning_details": vec![json!({}); 10_000]})) + &letter("xxxxxxxx"),
        ),
        (
            WireFormat::Responses,
            named(
                json!({"type": "response.output_item.done", "output_index": 0,
                "item": {"type": "reasoning", "id": "r", "encrypted_content": sealed, "summary": []}}),
            ) + &named(
                json!({"type": "response.output_text.delta", "output_index": 1, "delta": "x".repeat(100)}),
            ),
        ),
        (messages, named(json!({"type": "ping"})).repeat(2_000)),
        (
            WireFormat::ChatCompletions,
            ": keep-alive\n\n".repeat(4_000),
        ),
        (WireFormat::Responses, "\n\n\n\n".repeat(16_000)),
        (WireFormat::ChatCompletions, " ".repeat(64 << 10)),
        (WireFormat::ChatCompletions, format!("data: {sealed}")),
        (WireFormat::ChatCompletions, format!("{{\"a\": \"{sealed}")),
    ];
    for (at, (format, piece)) in streams.into_iter().enumerate() {
        let wire = FakeWire::new(std::iter::repeat_n(Act::Shared(piece.into()), 2_000));
        let taken = Arc::clone(&wire.taken);
        let sample = Sample::new(format);
        let client = client(&sample, wire);
        let mut stream = client.stream(sample.request.clone(), CancellationToken::new());
        let mut last = None;
        while let Some(event) = stream.next().await {
            last = Some(event.err());
        }
        assert!(last.flatten().is_some(), "stream {at} was read to its end");
        assert!(taken.load(Ordering::Relaxed) < 1_000, "stream {at}");
    }
}

//! What the scripted model answers, said once for all three wire formats.

use std::time::Duration;

use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

/// One answer of the server. Build it with [`Reply::text`], [`Reply::tool_call`], [`Reply::error`]
/// and refine it with the chained methods.
#[derive(Clone, Debug)]
pub struct Reply {
    pub(super) body: ReplyBody,
    pub(super) headers: Vec<(String, String)>,
    pub(super) pace: ReplyPace,
    pub(super) faults: ReplyFaults,
}

#[derive(Clone, Debug)]
pub(super) enum ReplyBody {
    Answer(ModelAnswer),
    /// Sent as it is.
    Http {
        status: u16,
        body: String,
    },
    /// The connection is closed without a byte of answer.
    Hangup,
}

/// What the model says, before it is put into a wire format.
#[derive(Clone, Debug)]
pub(super) struct ModelAnswer {
    pub blocks: Vec<AnswerBlock>,
    pub finish: ReplyFinish,
    pub usage: UsageReport,
    pub usage_place: UsagePlace,
    pub reasoning_field: ReasoningField,
    pub quirks: ReplyQuirks,
}

#[derive(Clone, Debug)]
pub(super) enum AnswerBlock {
    Text(Vec<String>),
    Reasoning {
        deltas: Vec<String>,
        signature: Option<String>,
    },
    Call(ScriptedCall),
}

/// Deviations of real servers from their format.
#[derive(Clone, Debug, Default)]
pub(super) struct ReplyQuirks {
    /// The tool's name comes again with every chunk of its arguments (NVIDIA NIM).
    pub repeat_names: bool,
    /// Every call has index 0 and its own id (Ollama).
    pub index_zero: bool,
    /// `stream: true` is answered with one JSON object.
    pub json_answer: bool,
    /// No `[DONE]` at the end.
    pub no_done: bool,
    pub crlf: bool,
}

#[derive(Clone, Debug, Default)]
pub(super) struct ReplyPace {
    pub before_first: Option<Duration>,
    pub between: Option<Duration>,
    /// Events in a second, kept on average however coarse the timer is.
    pub per_second: Option<u32>,
    pub holds: Vec<(HoldAt, ReplyGate)>,
    /// Bytes are written in pieces of this size, whatever they cut.
    pub piece: Option<usize>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum HoldAt {
    /// Before the status line.
    Head,
    /// Before this event (0: after the head, before any event).
    Event(usize),
}

#[derive(Clone, Debug, Default)]
pub(super) struct ReplyFaults {
    pub cut_after_events: Option<usize>,
    pub cut_after_bytes: Option<usize>,
    pub end_after_events: Option<usize>,
    /// Raw text put in front of the event with this number.
    pub inserts: Vec<(usize, String)>,
    /// The stream ends here with an error event of the format.
    pub error_at: Option<(usize, Value)>,
}

impl ModelAnswer {
    /// Puts the number of the request where ids of calls say `{request}`.
    pub(super) fn number_calls(&mut self, request: usize) {
        for block in &mut self.blocks {
            if let AnswerBlock::Call(call) = block
                && let Value::String(id) = &mut call.id
            {
                *id = id.replace("{request}", &request.to_string());
            }
        }
    }
}

/// A tool call as the model writes it. `{request}` in its id becomes the number of the request, so
/// that one reply given again and again has a new id each time.
#[derive(Clone, Debug)]
pub struct ScriptedCall {
    pub id: Value,
    pub name: String,
    /// JSON text, possibly broken on purpose.
    pub arguments: String,
    /// In how many deltas the arguments come.
    pub chunks: usize,
    pub extra_content: Option<Value>,
}

impl ScriptedCall {
    pub fn new(id: &str, name: &str, arguments: &Value) -> Self {
        Self::raw(id, name, &arguments.to_string())
    }

    /// With arguments exactly as given, valid JSON or not.
    pub fn raw(id: &str, name: &str, arguments: &str) -> Self {
        Self {
            id: json!(id),
            name: name.to_owned(),
            arguments: arguments.to_owned(),
            chunks: 1,
            extra_content: None,
        }
    }

    /// An id that is a number, a null, an empty string, …
    #[must_use]
    pub fn id(mut self, id: Value) -> Self {
        self.id = id;
        self
    }

    #[must_use]
    pub fn chunks(mut self, chunks: usize) -> Self {
        self.chunks = chunks.max(1);
        self
    }

    #[must_use]
    pub fn extra_content(mut self, extra: Value) -> Self {
        self.extra_content = Some(extra);
        self
    }

    pub(super) fn id_text(&self) -> String {
        match &self.id {
            Value::String(text) => text.clone(),
            other => other.to_string(),
        }
    }
}

/// Why the model says it stopped.
#[derive(Clone, Debug)]
pub(super) enum ReplyFinish {
    /// `tool_calls` with calls, else `stop`.
    Auto,
    /// In OpenAI's words (`stop`, `length`, `tool_calls`, `content_filter`); translated.
    Reason(String),
    /// Put on the wire as it is.
    Raw(Value),
    Missing,
}

/// Tokens as the provider reports them. `prompt` includes the cached ones, as OpenAI counts.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct ReplyUsage {
    pub prompt: u64,
    pub completion: u64,
    pub cached: u64,
    pub cache_write: u64,
    pub reasoning: u64,
    pub cost: Option<f64>,
}

#[derive(Clone, Copy, Debug)]
pub(super) enum UsageReport {
    None,
    Fixed(ReplyUsage),
    /// Four bytes of request to a token.
    FromRequest,
}

/// Where the chat format puts usage.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UsagePlace {
    /// In a last chunk without choices.
    OwnChunk,
    /// In the chunk with the finish reason.
    WithFinish,
    /// Cumulative in every chunk.
    EveryChunk,
}

/// How the chat format spells reasoning.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReasoningField {
    ReasoningContent,
    Reasoning,
    /// `reasoning` together with `reasoning_details`.
    Details,
}

/// Holds a reply back until the test lets it go. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub struct ReplyGate {
    reached: CancellationToken,
    open: CancellationToken,
}

impl ReplyGate {
    pub fn new() -> Self {
        Self::default()
    }

    /// Lets the reply continue, now and forever.
    pub fn release(&self) {
        self.open.cancel();
    }

    /// Waits until a reply stands at this gate.
    pub async fn reached(&self) {
        self.reached.cancelled().await;
    }

    pub fn is_reached(&self) -> bool {
        self.reached.is_cancelled()
    }

    pub(crate) async fn pass(&self) {
        self.reached.cancel();
        self.open.cancelled().await;
    }
}

impl Reply {
    fn answer(blocks: Vec<AnswerBlock>) -> Self {
        Self {
            body: ReplyBody::Answer(ModelAnswer {
                blocks,
                finish: ReplyFinish::Auto,
                usage: UsageReport::Fixed(ReplyUsage {
                    prompt: 10,
                    completion: 5,
                    ..ReplyUsage::default()
                }),
                usage_place: UsagePlace::OwnChunk,
                reasoning_field: ReasoningField::ReasoningContent,
                quirks: ReplyQuirks::default(),
            }),
            headers: Vec::new(),
            pace: ReplyPace::default(),
            faults: ReplyFaults::default(),
        }
    }

    fn of_body(body: ReplyBody) -> Self {
        Self {
            body,
            ..Self::answer(Vec::new())
        }
    }

    /// A plain answer in one delta.
    pub fn text(text: &str) -> Self {
        Self::answer(vec![AnswerBlock::Text(vec![text.to_owned()])])
    }

    /// Exactly these text deltas.
    pub fn text_deltas<S: Into<String>>(deltas: impl IntoIterator<Item = S>) -> Self {
        let deltas = deltas.into_iter().map(Into::into).collect();
        Self::answer(vec![AnswerBlock::Text(deltas)])
    }

    pub fn tool_call(id: &str, name: &str, arguments: &Value) -> Self {
        Self::tool_calls([ScriptedCall::new(id, name, arguments)])
    }

    /// Parallel calls.
    pub fn tool_calls(calls: impl IntoIterator<Item = ScriptedCall>) -> Self {
        Self::answer(calls.into_iter().map(AnswerBlock::Call).collect())
    }

    /// Reasoning and nothing else.
    pub fn reasoning_only(text: &str) -> Self {
        Self::answer(Vec::new()).reasoning(text)
    }

    /// An answer without content that still finishes properly.
    pub fn empty() -> Self {
        Self::answer(Vec::new())
    }

    /// A stream that closes in good order without any event.
    pub fn empty_stream() -> Self {
        Self::answer(Vec::new()).end_after_events(0)
    }

    /// An HTTP error in the usual shape `{"error": {"message", "type", "code"}}`.
    pub fn error(status: u16, message: &str) -> Self {
        let kind = match status {
            401 | 403 => "authentication_error",
            402 => "insufficient_credits",
            404 => "not_found_error",
            413 => "request_too_large",
            429 => "rate_limit_error",
            529 => "overloaded_error",
            400..=499 => "invalid_request_error",
            _ => "server_error",
        };
        Self::http(
            status,
            &json!({"type": "error", "error": {"message": message, "type": kind, "code": status}})
                .to_string(),
        )
    }

    /// A rate limit with `Retry-After`.
    pub fn rate_limited(retry_after_seconds: u64) -> Self {
        Self::error(429, "Rate limit exceeded")
            .header("retry-after", retry_after_seconds.to_string())
    }

    /// Status and body exactly as given.
    pub fn http(status: u16, body: &str) -> Self {
        Self::of_body(ReplyBody::Http {
            status,
            body: body.to_owned(),
        })
    }

    pub fn json(status: u16, body: &Value) -> Self {
        Self::http(status, &body.to_string())
    }

    /// Closes the connection without answering.
    pub fn hangup() -> Self {
        Self::of_body(ReplyBody::Hangup)
    }

    fn edit(mut self, change: impl FnOnce(&mut ModelAnswer)) -> Self {
        match &mut self.body {
            ReplyBody::Answer(answer) => change(answer),
            other => panic!("only an answer can be refined like this, not {other:?}"),
        }
        self
    }

    /// Cuts all text into `count` deltas of about the same size.
    #[must_use]
    pub fn deltas(self, count: usize) -> Self {
        self.edit(|answer| {
            for block in &mut answer.blocks {
                if let AnswerBlock::Text(deltas) | AnswerBlock::Reasoning { deltas, .. } = block {
                    *deltas = split(&deltas.concat(), count);
                }
            }
        })
    }

    /// Thinks before everything else.
    #[must_use]
    pub fn reasoning(self, text: &str) -> Self {
        self.signed_reasoning(text, None)
    }

    /// Thinks with a signature (messages format) or encrypted content (responses format).
    #[must_use]
    pub fn signed_reasoning(self, text: &str, signature: Option<&str>) -> Self {
        let block = AnswerBlock::Reasoning {
            deltas: vec![text.to_owned()],
            signature: signature.map(str::to_owned),
        };
        self.edit(|answer| answer.blocks.insert(0, block))
    }

    /// Thinks again after what there is.
    #[must_use]
    pub fn and_reasoning(self, text: &str, signature: Option<&str>) -> Self {
        let block = AnswerBlock::Reasoning {
            deltas: vec![text.to_owned()],
            signature: signature.map(str::to_owned),
        };
        self.edit(|answer| answer.blocks.push(block))
    }

    /// Says more text after what there is.
    #[must_use]
    pub fn and_text(self, text: &str) -> Self {
        self.edit(|answer| answer.blocks.push(AnswerBlock::Text(vec![text.to_owned()])))
    }

    #[must_use]
    pub fn and_tool_call(self, id: &str, name: &str, arguments: &Value) -> Self {
        self.and_call(ScriptedCall::new(id, name, arguments))
    }

    #[must_use]
    pub fn and_call(self, call: ScriptedCall) -> Self {
        self.edit(|answer| answer.blocks.push(AnswerBlock::Call(call)))
    }

    /// `stop`, `tool_calls`, `length` or `content_filter`; translated into the request's format.
    #[must_use]
    pub fn finish(self, reason: &str) -> Self {
        self.edit(|answer| answer.finish = ReplyFinish::Reason(reason.to_owned()))
    }

    /// Any JSON value as finish reason, untranslated.
    #[must_use]
    pub fn finish_raw(self, reason: Value) -> Self {
        self.edit(|answer| answer.finish = ReplyFinish::Raw(reason))
    }

    #[must_use]
    pub fn no_finish(self) -> Self {
        self.edit(|answer| answer.finish = ReplyFinish::Missing)
    }

    #[must_use]
    pub fn usage(self, usage: ReplyUsage) -> Self {
        self.edit(|answer| answer.usage = UsageReport::Fixed(usage))
    }

    /// Prompt tokens as the request's bytes over four: grows with the conversation.
    #[must_use]
    pub fn usage_from_request(self) -> Self {
        self.edit(|answer| answer.usage = UsageReport::FromRequest)
    }

    #[must_use]
    pub fn no_usage(self) -> Self {
        self.edit(|answer| answer.usage = UsageReport::None)
    }

    #[must_use]
    pub fn usage_place(self, place: UsagePlace) -> Self {
        self.edit(|answer| answer.usage_place = place)
    }

    #[must_use]
    pub fn reasoning_field(self, field: ReasoningField) -> Self {
        self.edit(|answer| answer.reasoning_field = field)
    }

    /// The name of a call comes again with every chunk of its arguments.
    #[must_use]
    pub fn repeat_names(self) -> Self {
        self.edit(|answer| answer.quirks.repeat_names = true)
    }

    /// All calls have index 0 and differ by id only.
    #[must_use]
    pub fn index_zero(self) -> Self {
        self.edit(|answer| answer.quirks.index_zero = true)
    }

    /// Answers `stream: true` with one JSON object.
    #[must_use]
    pub fn json_answer(self) -> Self {
        self.edit(|answer| answer.quirks.json_answer = true)
    }

    /// The stream ends without `data: [DONE]`.
    #[must_use]
    pub fn no_done(self) -> Self {
        self.edit(|answer| answer.quirks.no_done = true)
    }

    /// Lines end with CR LF.
    #[must_use]
    pub fn crlf(self) -> Self {
        self.edit(|answer| answer.quirks.crlf = true)
    }

    #[must_use]
    pub fn header(mut self, name: &str, value: impl Into<String>) -> Self {
        self.headers.push((name.to_owned(), value.into()));
        self
    }

    /// Real time passes before the head of the answer. Prefer [`Reply::hold`] in tests.
    #[must_use]
    pub fn delay(mut self, delay: Duration) -> Self {
        self.pace.before_first = Some(delay);
        self
    }

    /// Real time passes between events. Prefer [`Reply::hold_at`] in tests.
    #[must_use]
    pub fn delay_between(mut self, delay: Duration) -> Self {
        self.pace.between = Some(delay);
        self
    }

    /// So many events come in a second of real time, on average. For benchmarks.
    #[must_use]
    pub fn per_second(mut self, events: u32) -> Self {
        self.pace.per_second = Some(events);
        self
    }

    /// Nothing of the answer is sent before the gate opens.
    #[must_use]
    pub fn hold(mut self, gate: &ReplyGate) -> Self {
        self.pace.holds.push((HoldAt::Head, gate.clone()));
        self
    }

    /// The head and the first `event` events are sent, the rest waits for the gate.
    #[must_use]
    pub fn hold_at(mut self, event: usize, gate: &ReplyGate) -> Self {
        self.pace.holds.push((HoldAt::Event(event), gate.clone()));
        self
    }

    /// Writes in pieces of `bytes`, so that characters and events are torn.
    #[must_use]
    pub fn torn(mut self, bytes: usize) -> Self {
        self.pace.piece = Some(bytes.max(1));
        self
    }

    /// The connection breaks after this many events.
    #[must_use]
    pub fn cut_after_events(mut self, events: usize) -> Self {
        self.faults.cut_after_events = Some(events);
        self
    }

    /// The body ends in good order after this many events, whatever is missing.
    #[must_use]
    pub fn end_after_events(mut self, events: usize) -> Self {
        self.faults.end_after_events = Some(events);
        self
    }

    /// The connection breaks after this many bytes of the stream.
    #[must_use]
    pub fn cut_after_bytes(mut self, bytes: usize) -> Self {
        self.faults.cut_after_bytes = Some(bytes);
        self
    }

    /// Puts raw text in front of event number `event`: comments, broken JSON, other events.
    #[must_use]
    pub fn insert(mut self, event: usize, raw: &str) -> Self {
        self.faults.inserts.push((event, raw.to_owned()));
        self
    }

    /// An event whose data is not JSON, in front of event number `event`.
    #[must_use]
    pub fn malformed_event(self, event: usize) -> Self {
        self.insert(event, "data: {\"choices\": [{\"delta\": {\"content\n\n")
    }

    /// Instead of event number `event` an error event comes, then the end.
    #[must_use]
    pub fn error_event(mut self, event: usize, error: Value) -> Self {
        self.faults.error_at = Some((event, error));
        self
    }
}

/// `text` in `count` pieces (fewer when it is shorter), at character borders.
pub(super) fn split(text: &str, count: usize) -> Vec<String> {
    let chars: Vec<char> = text.chars().collect();
    let size = chars.len().div_ceil(count.max(1)).max(1);
    chars
        .chunks(size)
        .map(|piece| piece.iter().collect())
        .collect()
}

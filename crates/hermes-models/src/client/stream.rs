//! One call as a stream of events, with a timeout for each phase.

use std::collections::VecDeque;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::StreamExt;
use futures_util::stream::{self, BoxStream};
use hermes_core::message::FinishReason;
use hermes_core::model::{ErrorClass, ModelError, ModelEvent, ModelRequest, ModelStream};
use reqwest::header::HeaderMap;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::ClientShared;
use super::bound::AnswerBound;
use super::timeouts::PhaseTimeouts;
use super::wire::HttpAnswer;
use crate::classify::{self, CallContext, ErrorVerdict, TransportError};
use crate::codec::{AnswerReader, EncodedRequest, WireFault};
use crate::optional::{self, FieldRules, FormatDemand, RuleCertainty};

/// How often a call adapts to refused fields. Each refusal must name another one.
const MAX_ADAPTATIONS: u32 = 6;

/// Maximum bytes of an error body that are read.
const MAX_ERROR_BYTES: usize = 64 * 1024;

/// How long the connection of a complete answer may take to end. Waiting for it lets the next call
/// use the connection again; a server that never closes it must not hold up the answer.
const CLOSE_TIMEOUT: Duration = Duration::from_millis(250);

/// How long the rest of an error body may take.
const ERROR_BODY_TIMEOUT: Duration = Duration::from_secs(10);

type ByteStream = BoxStream<'static, Result<Bytes, TransportError>>;
type EventResult = Result<ModelEvent, ModelError>;

pub(super) fn start(
    shared: Arc<ClientShared>,
    other: Option<Arc<ClientShared>>,
    request: ModelRequest,
    cancel: CancellationToken,
) -> ModelStream {
    let call = StreamingCall {
        known: shared.known_rules(),
        frame: CallFrame {
            situation: shared.situation(&request),
            shared,
            cancel,
        },
        request: Box::new(request),
        tried: FieldRules::default(),
        adaptations: 0,
        other,
        first: None,
        plain: None,
        sent: None,
        ready: VecDeque::new(),
        content: false,
        bound: AnswerBound::default(),
        phase: CallPhase::Idle,
    };
    Box::pin(stream::unfold(call, |mut call| async move {
        let item = call.next().await?;
        Some((item, call))
    }))
}

struct StreamingCall {
    frame: CallFrame,
    request: Box<ModelRequest>,
    /// What was known of the endpoint before this call.
    known: FieldRules,
    /// What this call tries after refusals; kept if it succeeds.
    tried: FieldRules,
    adaptations: u32,
    /// The same model in another wire format, until it is tried.
    other: Option<Arc<ClientShared>>,
    /// The refusal of the first format, while the other is tried.
    first: Option<Box<FirstFormat>>,
    /// The attempt without optional fields, once it was made.
    plain: Option<PlainAttempt>,
    /// The last request sent.
    sent: Option<EncodedRequest>,
    ready: VecDeque<EventResult>,
    /// Text, reasoning or a call was emitted.
    content: bool,
    bound: AnswerBound,
    phase: CallPhase,
}

/// A refused format, with everything needed to return to it.
struct FirstFormat {
    shared: Arc<ClientShared>,
    known: FieldRules,
    tried: FieldRules,
    sent: Option<EncodedRequest>,
    verdict: ErrorVerdict,
    status: Option<u16>,
}

/// The request without optional fields, after a refusal that named none.
struct PlainAttempt {
    /// The refusal, until the attempt succeeds.
    refusal: Option<Box<(ErrorVerdict, Option<u16>)>>,
    /// What the attempt leaves out.
    rules: FieldRules,
}

enum CallPhase {
    Idle,
    Reading(Box<ReadState>),
    Over,
}

struct ReadState {
    body: ByteStream,
    reader: AnswerReader,
    limits: PhaseTimeouts,
    /// Deadline of the whole call.
    end: Instant,
    /// Deadline of the first byte; `None` once it arrived.
    first_byte: Option<Instant>,
}

/// State that is constant during a call.
struct CallFrame {
    shared: Arc<ClientShared>,
    cancel: CancellationToken,
    situation: CallContext,
}

/// Why a wait ended without a result.
enum WaitEnd {
    Cancelled,
    TimedOut,
}

impl StreamingCall {
    async fn next(&mut self) -> Option<EventResult> {
        loop {
            if self.frame.cancel.is_cancelled() && !matches!(self.phase, CallPhase::Over) {
                self.fail(self.frame.cancelled());
            }
            if let Some(item) = self.ready.pop_front() {
                return Some(item);
            }
            match std::mem::replace(&mut self.phase, CallPhase::Over) {
                CallPhase::Over => return None,
                CallPhase::Idle => self.send().await,
                CallPhase::Reading(reading) => self.read(reading).await,
            }
        }
    }

    /// Sends the request, adapted to the endpoint.
    async fn send(&mut self) {
        let mut rules = self.known.clone();
        rules.extend(&self.tried);
        if let Some(attempt) = &self.plain {
            rules.extend(&attempt.rules);
        }
        let mut limits = self
            .frame
            .shared
            .timeouts
            .for_prompt(self.frame.situation.prompt_tokens);
        if rules.drops("stream") {
            // The answer then arrives in one piece, when it is complete.
            limits.first_byte = limits.total;
            limits.idle = limits.total;
        }
        let encoded = match self.frame.shared.encoded(&self.request, &rules) {
            Ok(encoded) => encoded,
            Err(error) => return self.fail(error),
        };
        let opened = self.frame.open(&self.request, &encoded, limits).await;
        self.sent = Some(encoded);
        match opened {
            Ok(reading) => self.phase = CallPhase::Reading(Box::new(reading)),
            Err(OpenFailure::Final(error)) => self.fail(*error),
            Err(OpenFailure::Judged(verdict, status)) => self.refused(*verdict, status),
        }
    }

    /// The endpoint refused the call: adapts if it names a field that is not needed, and changes
    /// the format if it asks for another.
    fn refused(&mut self, verdict: ErrorVerdict, status: Option<u16>) {
        let shared = &self.frame.shared;
        if self.content || self.adaptations >= MAX_ADAPTATIONS {
            let error = shared.judged(verdict, status);
            return self.fail(error);
        }
        let asked = optional::asks_for_other_format(&verdict, shared.quirks.format);
        let other = self
            .other
            .take_if(|_| asked == Some(FormatDemand::Outright));
        if let Some(other) = other {
            self.change_format(other, verdict, status);
        } else if self.adapt_to_refusal(&verdict) {
            self.send_again();
        } else if let Some(other) = self.other.take_if(|_| asked.is_some()) {
            self.change_format(other, verdict, status);
        } else if let Some(first) = self.first.take_if(|_| is_about_the_request(&verdict)) {
            // Neither format worked. The first refusal is reported.
            let FirstFormat {
                shared,
                known,
                tried,
                sent,
                verdict,
                status,
            } = *first;
            self.frame.shared = shared;
            (self.known, self.tried, self.sent) = (known, tried, sent);
            self.refused(verdict, status);
        } else if self.begin_plain_attempt(&verdict, status) {
            self.send_again();
        } else {
            let (verdict, status) = self.reported(verdict, status);
            let error = self.frame.shared.judged(verdict, status);
            self.fail(error);
        }
    }

    /// Leaves everything optional out, once, if the refusal does not say what it is about.
    fn begin_plain_attempt(&mut self, verdict: &ErrorVerdict, status: Option<u16>) -> bool {
        let (None, Some(sent)) = (&self.plain, &self.sent) else {
            return false;
        };
        let quirks = &self.frame.shared.quirks;
        let rules: FieldRules =
            optional::without_options(verdict, sent, &quirks.set_by_person, quirks.format)
                .into_iter()
                .collect();
        if rules.is_empty() {
            return false;
        }
        tracing::info!(
            model = self.frame.shared.route.model,
            said = verdict.message,
            "refused for an unknown reason; trying again without optional fields"
        );
        self.plain = Some(PlainAttempt {
            refusal: Some(Box::new((verdict.clone(), status))),
            rules,
        });
        true
    }

    /// The refusal to report: the first one, if leaving everything optional out did not help. The
    /// size of the call remains as the reason if it is large.
    fn reported(
        &mut self,
        verdict: ErrorVerdict,
        status: Option<u16>,
    ) -> (ErrorVerdict, Option<u16>) {
        let (mut verdict, status) = self
            .plain
            .as_mut()
            .and_then(|attempt| attempt.refusal.take_if(|_| is_about_the_request(&verdict)))
            .map_or((verdict, status), |refusal| *refusal);
        let fixed = &self.frame.shared.quirks.set_by_person;
        let unexplained = self
            .sent
            .as_ref()
            .is_some_and(|sent| optional::is_unexplained(&verdict, sent, fixed));
        if unexplained && self.frame.situation.may_overflow() {
            verdict.class = ErrorClass::ContextOverflow;
        }
        (verdict, status)
    }

    fn send_again(&mut self) {
        self.adaptations += 1;
        self.ready.clear();
        self.phase = CallPhase::Idle;
    }

    fn change_format(
        &mut self,
        other: Arc<ClientShared>,
        verdict: ErrorVerdict,
        status: Option<u16>,
    ) {
        tracing::info!(
            model = other.route.model,
            said = verdict.message,
            format = ?other.route.format,
            "the format was refused; trying another"
        );
        let known = other.known_rules();
        self.first = Some(Box::new(FirstFormat {
            shared: std::mem::replace(&mut self.frame.shared, other),
            known: std::mem::replace(&mut self.known, known),
            tried: std::mem::take(&mut self.tried),
            sent: self.sent.take(),
            verdict,
            status,
        }));
        self.send_again();
    }

    fn adapt_to_refusal(&mut self, verdict: &ErrorVerdict) -> bool {
        let Some(sent) = &self.sent else {
            return false;
        };
        let images = optional::has_images(&self.request);
        let rules = if verdict.class == ErrorClass::ImageTooLarge && images {
            super::images::smaller(
                &verdict.report.text,
                &self.request,
                &self.known,
                &self.tried,
            )
        } else if let Some(rule) =
            optional::refused_shape(verdict, &self.request, self.frame.shared.quirks.format)
            && !self
                .known
                .iter()
                .chain(self.tried.iter())
                .any(|old| *old == rule)
        {
            vec![rule]
        } else if let Some(error) = verdict.field_complaint(images) {
            optional::refused(&error, sent, &self.frame.shared.quirks.set_by_person)
        } else {
            Vec::new()
        };
        let mut changed = false;
        for rule in rules {
            tracing::info!(
                model = self.frame.shared.route.model,
                said = verdict.message,
                "refused; trying again: {}",
                rule.describe()
            );
            let new = !self.known.iter().any(|known| *known == rule);
            changed |= self.tried.add(rule) && new;
        }
        changed
    }

    /// Ends the call with an error. Events that were ready but not taken are dropped when
    /// cancelled.
    fn fail(&mut self, error: ModelError) {
        if error.class == ErrorClass::Cancelled {
            self.ready.clear();
        }
        self.phase = CallPhase::Over;
        self.ready.push_back(Err(error));
    }

    /// Reads the next piece of the answer.
    async fn read(&mut self, mut reading: Box<ReadState>) {
        let patience = if reading.reader.is_complete() {
            CLOSE_TIMEOUT
        } else {
            reading.limits.idle
        };
        let limit = reading
            .first_byte
            .unwrap_or_else(|| Instant::now() + patience);
        let piece = match self
            .frame
            .guard(limit.min(reading.end), reading.body.next())
            .await
        {
            Ok(piece) => piece,
            Err(WaitEnd::Cancelled) => return self.fail(self.frame.cancelled()),
            Err(WaitEnd::TimedOut) => return self.silence(*reading),
        };
        match piece {
            Some(Ok(bytes)) => {
                if bytes.is_empty() {
                    self.phase = CallPhase::Reading(reading);
                    return;
                }
                if reading.first_byte.take().is_some() {
                    self.ready.push_back(Ok(ModelEvent::Started));
                }
                let mut events = Vec::new();
                self.bound.receive(bytes.len());
                let read = reading.reader.push(&bytes, &mut events);
                self.bound.count(&events);
                if let Some(why) = self.bound.exceeded() {
                    // A retry would get the same.
                    tracing::warn!(why, "an answer was stopped");
                    return self.fail(self.frame.shared.error(ErrorClass::Format, why));
                }
                self.take(events);
                match read {
                    Ok(()) => self.phase = CallPhase::Reading(reading),
                    Err(fault) => self.fault(fault),
                }
            }
            Some(Err(failure)) if self.content || reading.reader.is_complete() => {
                tracing::warn!(
                    error = failure.message,
                    "the connection broke inside an answer"
                );
                self.end(reading.reader);
            }
            Some(Err(failure)) => {
                let error = self.frame.shared.broken(&failure, &self.frame.situation);
                self.fail(error);
            }
            None => self.end(reading.reader),
        }
    }

    /// Timeout while reading. What arrived so far is reported as a truncated answer.
    fn silence(&mut self, reading: ReadState) {
        let limits = reading.limits;
        if reading.reader.is_complete() {
            self.end(reading.reader);
        } else if Instant::now() >= reading.end {
            self.fail(self.frame.late("no complete answer", limits.total));
        } else if reading.first_byte.is_some() {
            self.fail(self.frame.late("no answer", limits.first_byte));
        } else if self.content {
            tracing::warn!(
                seconds = limits.idle.as_secs(),
                "the answer stopped in the middle"
            );
            self.end(reading.reader);
        } else {
            self.fail(self.frame.late("nothing more of the answer", limits.idle));
        }
    }

    /// The answer is complete.
    fn end(&mut self, reader: AnswerReader) {
        let mut events = Vec::new();
        let read = reader.finish(&mut events);
        let has_content = self.content || events.iter().any(is_content);
        let cut = Some(&ModelEvent::Finished(FinishReason::Cut));
        let empty = events.is_empty() || (events.last() == cut && !has_content);
        match read {
            Ok(()) if empty => {
                let message = "the answer ended before it began".to_owned();
                self.fail(self.frame.shared.error(ErrorClass::EmptyStream, message));
            }
            Ok(()) => self.take(events),
            Err(fault) => {
                self.take(events);
                self.fault(fault);
            }
        }
    }

    fn take(&mut self, events: Vec<ModelEvent>) {
        if self.first.is_some()
            && events.iter().any(is_progress)
            && let Some(first) = self.first.take()
        {
            let (refused, used) = (first.shared.route.format, self.frame.shared.route.format);
            let rule = FieldRules::for_format(refused, used);
            first.shared.learn(&rule, RuleCertainty::Named);
        }
        if !self.tried.is_empty() && events.iter().any(is_progress) {
            let rules = std::mem::take(&mut self.tried);
            self.frame.shared.learn(&rules, RuleCertainty::Named);
            self.known.extend(&rules);
        }
        if events.iter().any(is_progress)
            && let Some(attempt) = &mut self.plain
            && attempt.refusal.take().is_some()
        {
            let shared = &self.frame.shared;
            shared.learn(&attempt.rules, RuleCertainty::Guessed);
        }
        self.content |= events.iter().any(is_content);
        self.ready.extend(events.into_iter().map(Ok));
    }

    fn fault(&mut self, fault: WireFault) {
        match fault {
            WireFault::Provider(value) => {
                let now = self.frame.shared.clock.now();
                let verdict = classify::inline(&value, &self.frame.situation, now);
                self.refused(verdict, None);
            }
            WireFault::Malformed(message) => {
                let message = hermes_core::redact::secrets(&message).into_owned();
                let error = self.frame.shared.error(ErrorClass::BadResponse, message);
                self.fail(error);
            }
        }
    }
}

impl CallFrame {
    fn cancelled(&self) -> ModelError {
        self.shared
            .error(ErrorClass::Cancelled, "the call was cancelled".to_owned())
    }

    fn late(&self, what: &str, limit: Duration) -> ModelError {
        let message = format!("{what} within {} s", limit.as_secs());
        self.shared.error(ErrorClass::Timeout, message)
    }

    async fn guard<F: Future>(&self, deadline: Instant, future: F) -> Result<F::Output, WaitEnd> {
        tokio::select! {
            biased;
            () = self.cancel.cancelled() => Err(WaitEnd::Cancelled),
            output = future => Ok(output),
            () = tokio::time::sleep_until(deadline) => Err(WaitEnd::TimedOut),
        }
    }

    /// Sends the request and reads the response head.
    async fn open(
        &self,
        request: &ModelRequest,
        encoded: &EncodedRequest,
        limits: PhaseTimeouts,
    ) -> Result<ReadState, OpenFailure> {
        let outgoing = self.shared.outgoing(encoded)?;
        let start = Instant::now();
        let end = start + limits.total;
        let first_byte = start + limits.first_byte;
        let sending = self.shared.wire.send(outgoing);
        let answer = match self.guard(first_byte.min(end), sending).await {
            Ok(Ok(answer)) => answer,
            Ok(Err(failure)) => return Err(self.shared.broken(&failure, &self.situation).into()),
            Err(WaitEnd::Cancelled) => return Err(self.cancelled().into()),
            Err(WaitEnd::TimedOut) => return Err(self.late("no answer", limits.first_byte).into()),
        };
        if !(200..300).contains(&answer.status) {
            return Err(self.refused(answer).await);
        }
        if header(&answer.headers, "content-type").is_some_and(|kind| kind.starts_with("text/html"))
        {
            // A portal or a wrong address: a retry would get the same page.
            let message = "the answer is a web page, not a model's; is the base URL right, and is \
                           the network open?";
            let error = self.shared.error(ErrorClass::Format, message.to_owned());
            return Err(error.into());
        }
        Ok(ReadState {
            body: answer.body,
            reader: self.shared.reader(request),
            limits,
            end,
            first_byte: Some(first_byte),
        })
    }

    /// The error of an unsuccessful response.
    async fn refused(&self, mut answer: HttpAnswer) -> OpenFailure {
        let status = answer.status;
        if (300..400).contains(&status) {
            let target = header(&answer.headers, "location").unwrap_or_default();
            let message = format!(
                "the server redirects to {:?}; set base_url to where the API is",
                hermes_core::redact::secrets(&target)
            );
            let mut error = self.shared.error(ErrorClass::Format, message);
            error.status = Some(status);
            return error.into();
        }
        let mut body = Vec::new();
        let deadline = Instant::now() + ERROR_BODY_TIMEOUT;
        while body.len() < MAX_ERROR_BYTES {
            // If the rest does not arrive, what has arrived must do.
            match self.guard(deadline, answer.body.next()).await {
                Ok(Some(Ok(chunk))) => body.extend_from_slice(&chunk),
                Err(WaitEnd::Cancelled) => return self.cancelled().into(),
                Ok(Some(Err(_)) | None) | Err(WaitEnd::TimedOut) => break,
            }
        }
        body.truncate(MAX_ERROR_BYTES);
        let headers = |name: &str| header(&answer.headers, name);
        let now = self.shared.clock.now();
        let verdict = classify::answer(Some(status), &headers, &body, &self.situation, now);
        tracing::debug!(status, rule = verdict.rule, "the provider refused the call");
        OpenFailure::Judged(Box::new(verdict), Some(status))
    }
}

/// Why no answer began.
enum OpenFailure {
    /// No change of the request can help.
    Final(Box<ModelError>),
    /// The provider responded with an error, with its status.
    Judged(Box<ErrorVerdict>, Option<u16>),
}

impl From<ModelError> for OpenFailure {
    fn from(error: ModelError) -> Self {
        Self::Final(Box::new(error))
    }
}

/// Whether the request as such was refused, not the account, the load or the content.
fn is_about_the_request(verdict: &ErrorVerdict) -> bool {
    matches!(
        verdict.class,
        ErrorClass::Format | ErrorClass::Unknown | ErrorClass::ModelNotFound
    )
}

/// Whether an event shows that the request was accepted.
fn is_progress(event: &ModelEvent) -> bool {
    !matches!(event, ModelEvent::Preparing(_) | ModelEvent::Started)
}

fn is_content(event: &ModelEvent) -> bool {
    matches!(
        event,
        ModelEvent::Text(_) | ModelEvent::Reasoning(_) | ModelEvent::ToolStarted { .. }
    )
}

fn header(headers: &HeaderMap, name: &str) -> Option<String> {
    let value = headers.get(name)?.to_str().ok()?;
    Some(value.to_owned())
}

//! One call as a stream of events, with a limit on each phase.

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

use super::Shared;
use super::bound::Bound;
use super::timeouts::PhaseTimeouts;
use super::wire::Answer;
use crate::classify::{self, Situation, Transport};
use crate::codec::{AnswerReader, WireFault};

/// Most of an error answer that is read.
const MAX_ERROR_BYTES: usize = 64 * 1024;

/// How long the connection of a complete answer may take to end. Waiting for it lets the next call
/// use the connection again; a server that never closes it must not hold up the answer.
const CLOSING_TIME: Duration = Duration::from_millis(250);

/// How long the rest of an error answer may take.
const ERROR_BODY_TIME: Duration = Duration::from_secs(10);

type Body = BoxStream<'static, Result<Bytes, Transport>>;
type Item = Result<ModelEvent, ModelError>;

pub(super) fn start(
    shared: Arc<Shared>,
    request: ModelRequest,
    cancel: CancellationToken,
) -> ModelStream {
    let call = Call {
        frame: Frame {
            situation: shared.situation(&request),
            shared,
            cancel,
        },
        ready: VecDeque::new(),
        content: false,
        bound: Bound::default(),
        phase: Phase::Idle(Box::new(request)),
    };
    Box::pin(stream::unfold(call, |mut call| async move {
        let item = call.next().await?;
        Some((item, call))
    }))
}

struct Call {
    frame: Frame,
    ready: VecDeque<Item>,
    /// Text, reasoning or a call was handed out.
    content: bool,
    bound: Bound,
    phase: Phase,
}

enum Phase {
    Idle(Box<ModelRequest>),
    Reading(Box<Reading>),
    Over,
}

struct Reading {
    body: Body,
    reader: AnswerReader,
    limits: PhaseTimeouts,
    /// When the whole call must be over.
    end: Instant,
    /// When the first byte must be there; `None`: it is.
    first_byte: Option<Instant>,
}

/// What stays the same during a call.
struct Frame {
    shared: Arc<Shared>,
    cancel: CancellationToken,
    situation: Situation,
}

/// Why a wait ended without its result.
enum Stop {
    Cancelled,
    Late,
}

impl Call {
    async fn next(&mut self) -> Option<Item> {
        loop {
            if self.frame.cancel.is_cancelled() && !matches!(self.phase, Phase::Over) {
                self.fail(self.frame.cancelled());
            }
            if let Some(item) = self.ready.pop_front() {
                return Some(item);
            }
            match std::mem::replace(&mut self.phase, Phase::Over) {
                Phase::Over => return None,
                Phase::Idle(request) => {
                    let limits = self
                        .frame
                        .shared
                        .timeouts
                        .for_prompt(self.frame.situation.prompt_tokens);
                    match self.frame.open(&request, limits).await {
                        Ok(reading) => self.phase = Phase::Reading(Box::new(reading)),
                        Err(error) => self.fail(error),
                    }
                }
                Phase::Reading(reading) => self.read(reading).await,
            }
        }
    }

    /// Ends the call with an error. What was ready but not taken is dropped when cancelled.
    fn fail(&mut self, error: ModelError) {
        if error.class == ErrorClass::Cancelled {
            self.ready.clear();
        }
        self.phase = Phase::Over;
        self.ready.push_back(Err(error));
    }

    /// Reads the next piece of the answer.
    async fn read(&mut self, mut reading: Box<Reading>) {
        let patience = if reading.reader.is_complete() {
            CLOSING_TIME
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
            Err(Stop::Cancelled) => return self.fail(self.frame.cancelled()),
            Err(Stop::Late) => return self.silence(*reading),
        };
        match piece {
            Some(Ok(bytes)) => {
                if bytes.is_empty() {
                    self.phase = Phase::Reading(reading);
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
                    // Asking again would get the same.
                    tracing::warn!(why, "an answer was stopped");
                    return self.fail(self.frame.shared.error(ErrorClass::Format, why));
                }
                self.take(events);
                match read {
                    Ok(()) => self.phase = Phase::Reading(reading),
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

    /// Nothing came in time. What was said so far stands, as an answer that was cut.
    fn silence(&mut self, reading: Reading) {
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

    /// The answer is over.
    fn end(&mut self, reader: AnswerReader) {
        let mut events = Vec::new();
        let read = reader.finish(&mut events);
        let said = self.content || events.iter().any(is_content);
        let cut = Some(&ModelEvent::Finished(FinishReason::Cut));
        let empty = events.is_empty() || (events.last() == cut && !said);
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
        self.content |= events.iter().any(is_content);
        self.ready.extend(events.into_iter().map(Ok));
    }

    fn fault(&mut self, fault: WireFault) {
        let error = match fault {
            WireFault::Provider(value) => {
                let now = self.frame.shared.clock.now();
                let verdict = classify::inline(&value, &self.frame.situation, now);
                self.frame.shared.judged(verdict, None)
            }
            WireFault::Malformed(message) => {
                let message = hermes_core::redact::secrets(&message).into_owned();
                self.frame.shared.error(ErrorClass::BadResponse, message)
            }
        };
        self.fail(error);
    }
}

impl Frame {
    fn cancelled(&self) -> ModelError {
        self.shared
            .error(ErrorClass::Cancelled, "the call was cancelled".to_owned())
    }

    fn late(&self, what: &str, limit: Duration) -> ModelError {
        let message = format!("{what} within {} s", limit.as_secs());
        self.shared.error(ErrorClass::Timeout, message)
    }

    async fn guard<F: Future>(&self, deadline: Instant, future: F) -> Result<F::Output, Stop> {
        tokio::select! {
            biased;
            () = self.cancel.cancelled() => Err(Stop::Cancelled),
            output = future => Ok(output),
            () = tokio::time::sleep_until(deadline) => Err(Stop::Late),
        }
    }

    /// Sends the request and reads the head of the answer.
    async fn open(
        &self,
        request: &ModelRequest,
        limits: PhaseTimeouts,
    ) -> Result<Reading, ModelError> {
        let outgoing = self.shared.outgoing(request)?;
        let start = Instant::now();
        let end = start + limits.total;
        let first_byte = start + limits.first_byte;
        let sending = self.shared.wire.send(outgoing);
        let answer = match self.guard(first_byte.min(end), sending).await {
            Ok(Ok(answer)) => answer,
            Ok(Err(failure)) => return Err(self.shared.broken(&failure, &self.situation)),
            Err(Stop::Cancelled) => return Err(self.cancelled()),
            Err(Stop::Late) => return Err(self.late("no answer", limits.first_byte)),
        };
        if !(200..300).contains(&answer.status) {
            return Err(self.refused(answer).await);
        }
        if header(&answer.headers, "content-type").is_some_and(|kind| kind.starts_with("text/html"))
        {
            // A portal or the wrong address: asking again would get the same page.
            let message = "the answer is a web page, not a model's; is the base URL right, and is \
                           the network open?";
            return Err(self.shared.error(ErrorClass::Format, message.to_owned()));
        }
        Ok(Reading {
            body: answer.body,
            reader: self.shared.reader(request),
            limits,
            end,
            first_byte: Some(first_byte),
        })
    }

    /// The error that an answer without success means.
    async fn refused(&self, mut answer: Answer) -> ModelError {
        let status = answer.status;
        if (300..400).contains(&status) {
            let target = header(&answer.headers, "location").unwrap_or_default();
            let message = format!(
                "the server redirects to {:?}; set base_url to where the API is",
                hermes_core::redact::secrets(&target)
            );
            let mut error = self.shared.error(ErrorClass::Format, message);
            error.status = Some(status);
            return error;
        }
        let mut body = Vec::new();
        let deadline = Instant::now() + ERROR_BODY_TIME;
        while body.len() < MAX_ERROR_BYTES {
            // What has arrived must do when the rest does not come.
            match self.guard(deadline, answer.body.next()).await {
                Ok(Some(Ok(chunk))) => body.extend_from_slice(&chunk),
                Err(Stop::Cancelled) => return self.cancelled(),
                Ok(Some(Err(_)) | None) | Err(Stop::Late) => break,
            }
        }
        body.truncate(MAX_ERROR_BYTES);
        let headers = |name: &str| header(&answer.headers, name);
        let now = self.shared.clock.now();
        let verdict = classify::answer(Some(status), &headers, &body, &self.situation, now);
        tracing::debug!(status, rule = verdict.rule, "the provider refused the call");
        self.shared.judged(verdict, Some(status))
    }
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

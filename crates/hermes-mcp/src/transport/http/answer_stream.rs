//! The event stream that answers one request: read up to the answer, resumed after an interruption
//! if the server supports it, and failed as soon as no answer can arrive any more.
//!
//! rmcp's own resumption has no limit and skips events that it cannot parse, so it gets neither
//! event ids nor broken events.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::stream::{self, BoxStream};
use reqwest::header::HeaderMap;
use rmcp::transport::streamable_http_client::SseError;
use sse_stream::Sse;

use super::answer::{self, EventContent, PendingRequest};
use super::body::{BodyError, body_error, describe_error, events};
use super::{Exchange, listen};
use crate::failure::McpFailure;
use crate::failure::classify::TransportBreak;

/// Number of resumptions without new events before the call counts as lost.
const MAX_RESUMES: u32 = 5;

/// The wait before the first resumption if the server names none; doubled each time.
const INITIAL_WAIT: Duration = Duration::from_millis(100);
const MAX_WAIT: Duration = Duration::from_secs(5);

type Events = BoxStream<'static, Result<Sse, SseError>>;

pub(super) struct AnswerStream {
    pub(super) exchange: Arc<Exchange>,
    pub(super) pending: PendingRequest,
    /// Headers of a request that resumes the stream.
    pub(super) session: Option<Arc<str>>,
    pub(super) headers: HeaderMap,
    status: u16,
    current: Option<Events>,
    ready: VecDeque<Sse>,
    last_id: Option<String>,
    retry: Option<Duration>,
    /// Resumptions since the last new event.
    resumes: u32,
    answered: bool,
}

impl AnswerStream {
    pub(super) fn new(
        exchange: &Arc<Exchange>,
        pending: PendingRequest,
        session: Option<Arc<str>>,
        headers: HeaderMap,
        response: reqwest::Response,
    ) -> Self {
        Self {
            exchange: Arc::clone(exchange),
            pending,
            session,
            headers,
            status: response.status().as_u16(),
            current: Some(events(response)),
            ready: VecDeque::new(),
            last_id: None,
            retry: None,
            resumes: 0,
            answered: false,
        }
    }

    pub(super) fn stream(self) -> Events {
        stream::unfold(self, |mut state| async move {
            let event = state.next().await?;
            Some((Ok(event), state))
        })
        .boxed()
    }

    async fn next(&mut self) -> Option<Sse> {
        loop {
            if let Some(event) = self.ready.pop_front() {
                return Some(event);
            }
            let next = self.current.as_mut()?.next().await;
            let cut = match next {
                // Read to its end, so that the connection can be reused.
                _ if self.answered => match next {
                    Some(Ok(_)) => continue,
                    _ => return None,
                },
                Some(Ok(event)) => match self.handle_event(&event) {
                    Ok(()) => continue,
                    Err(broken) => {
                        self.fail(&broken);
                        return None;
                    }
                },
                Some(Err(error)) => {
                    if matches!(body_error(&error), Some(BodyError::TooLarge)) {
                        self.last_id = None;
                    }
                    describe_error(&error)
                }
                None => "the stream ended before the answer came".to_owned(),
            };
            self.current = None;
            match self.resume(cut).await {
                Ok(events) => self.current = Some(events),
                Err(why) => {
                    self.fail(&why);
                    return None;
                }
            }
        }
    }

    fn handle_event(&mut self, event: &Sse) -> Result<(), String> {
        if let Some(retry) = event.retry {
            self.retry = Some(Duration::from_millis(retry));
        }
        if event.id.is_some() && event.id != self.last_id {
            self.last_id.clone_from(&event.id);
            self.resumes = 0;
        }
        let shared = &self.exchange.shared;
        match answer::read_event(event, &self.pending, Some(shared)) {
            EventContent::Nothing => {}
            EventContent::Broken(why) => return Err(why),
            EventContent::Others(events) => {
                shared.record_activity();
                self.resumes = 0;
                self.ready.extend(events);
            }
            EventContent::Answer(events, result) => {
                if result {
                    shared.record_activity();
                }
                if matches!(self.status, 202 | 204)
                    && let Some(data) = &event.data
                    && let Some(failure) = answer::failure_in(data.as_bytes(), shared)
                {
                    // Tool errors have status 200.
                    let http_status = Some(self.status);
                    let failure = McpFailure {
                        http_status,
                        ..failure
                    };
                    shared.set_request_failure(self.pending.id.clone(), failure);
                }
                self.answered = true;
                self.ready.extend(events);
            }
        }
        Ok(())
    }

    /// Reopens the stream after the last event, or returns why the answer is lost.
    async fn resume(&mut self, cut: String) -> Result<Events, String> {
        loop {
            let Some(last) = self.last_id.clone() else {
                return Err(cut);
            };
            if self.resumes >= MAX_RESUMES {
                return Err(format!(
                    "{cut}; resumed {MAX_RESUMES} times without an answer"
                ));
            }
            let wait = INITIAL_WAIT.saturating_mul(1 << self.resumes);
            let wait = self.retry.take().unwrap_or(wait.min(MAX_WAIT));
            self.resumes += 1;
            tokio::time::sleep(wait).await;
            let headers = self.headers.clone();
            let session = self.session.as_deref();
            match listen::open(&self.exchange, headers, session, Some(&last)).await {
                Ok(response) => return Ok(events(response)),
                Err(refused) if refused.status.is_some() => {
                    return Err(format!("{cut}; it cannot be resumed: {}", refused.failure));
                }
                Err(refused) => tracing::debug!("not resumed: {}", refused.failure),
            }
        }
    }

    /// Records the reason for the caller: rmcp only reports that there is no answer.
    fn fail(&self, why: &str) {
        let shared = &self.exchange.shared;
        if self.pending.awaited {
            let mut failure = shared.transport_failure(TransportBreak::AfterSend, why);
            failure.http_status = Some(self.status);
            shared.set_request_failure(self.pending.id.clone(), failure);
        }
    }
}

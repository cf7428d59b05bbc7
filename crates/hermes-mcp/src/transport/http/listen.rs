//! The listening stream (GET) for messages that the server sends by itself. It is optional: no
//! failure of it ends the link.

use std::sync::Arc;
use std::time::Duration;

use futures_util::stream::{self, BoxStream};
use futures_util::{Stream, StreamExt};
use hermes_core::clock::Rng;
use reqwest::Method;
use reqwest::header::{HeaderMap, HeaderValue};
use rmcp::transport::streamable_http_client::SseError;
use sse_stream::Sse;
use tokio::sync::watch;

use super::body::{BodyError, body_error};
use super::{
    EVENT_STREAM, Exchange, LAST_EVENT_ID, MessageKind, Outgoing, Refused, content_type,
    watched_events,
};
use crate::failure::FailureClass;
use crate::failure::classify::TransportBreak;
use crate::transport::link::LinkEvent;

const INITIAL_WAIT: Duration = Duration::from_secs(1);
const MAX_WAIT: Duration = Duration::from_secs(30);

/// How long to wait after a refusal (405, 409, 400...).
const REFUSED_WAIT: Duration = Duration::from_mins(5);

/// A server may consider a broken stream still open and refuse another one (409, 400) until it
/// notices: the wait before the next attempt, doubled each time.
const OCCUPIED_WAIT: Duration = Duration::from_secs(30);

pub(crate) struct Listener {
    pub(crate) exchange: Arc<Exchange>,
    pub(crate) rng: Arc<dyn Rng>,
    pub(crate) session: Option<Arc<str>>,
    pub(crate) headers: HeaderMap,
}

struct State {
    listener: Listener,
    current: Option<BoxStream<'static, Result<Sse, SseError>>>,
    last_id: Option<String>,
    /// The wait requested by the server.
    retry: Option<Duration>,
    /// Attempts since the last event.
    attempt: u32,
    /// Whether the link was already reported as suspect; reset by the next event.
    suspected: bool,
    /// Whether it was open before on this link.
    was_open: bool,
    /// Refusals since it was last open.
    refusals: u32,
    resumes: watch::Receiver<u64>,
}

impl Listener {
    /// Never ends.
    pub(crate) fn stream(self) -> impl Stream<Item = Result<Sse, SseError>> + Send {
        let state = State {
            resumes: self.exchange.shared.resumes(),
            listener: self,
            current: None,
            last_id: None,
            retry: None,
            attempt: 0,
            suspected: false,
            was_open: false,
            refusals: 0,
        };
        stream::unfold(state, |mut state| async move {
            let event = state.next().await;
            Some((Ok(event), state))
        })
    }
}

impl State {
    async fn next(&mut self) -> Sse {
        loop {
            let Some(current) = &mut self.current else {
                self.connect().await;
                continue;
            };
            let next = tokio::select! {
                next = current.next() => next,
                // The socket may be dead without notice; a new one is cheap.
                _ = self.resumes.changed() => {
                    self.close();
                    continue;
                }
            };
            match next {
                Some(Ok(event)) => {
                    self.attempt = 0;
                    self.suspected = false;
                    if event.id.is_some() {
                        self.last_id.clone_from(&event.id);
                    }
                    if let Some(retry) = event.retry {
                        self.retry = Some(Duration::from_millis(retry));
                    }
                    return self.answer(event);
                }
                Some(Err(error)) => {
                    tracing::debug!("listening stream: {error}");
                    if matches!(body_error(&error), Some(BodyError::Silent(_))) {
                        // The socket may be dead without notice; a new one is cheap.
                        self.close();
                        continue;
                    }
                }
                None => {}
            }
            self.close();
            let wait = self.wait();
            tokio::time::sleep(wait).await;
        }
    }

    fn close(&mut self) {
        self.current = None;
        self.listener.exchange.shared.stream.set_open(false);
    }

    /// Replaces an answer that is awaited on this stream by rmcp's placeholder, its result being stored.
    fn answer(&self, mut event: Sse) -> Sse {
        let shared = &self.listener.exchange.shared;
        if let Some(data) = &event.data
            && let Some(notice) = shared.take_from_stream(data.as_bytes())
            && let Ok(notice) = serde_json::to_string(&notice)
        {
            event.data = Some(notice);
        }
        event
    }

    async fn connect(&mut self) {
        let exchange = Arc::clone(&self.listener.exchange);
        let headers = self.listener.headers.clone();
        let session = self.listener.session.as_deref();
        let opening = open(&exchange, headers, session, self.last_id.as_deref());
        let opened = tokio::select! {
            opened = opening => opened,
            // Tried again if the server does not begin to answer.
            _ = self.resumes.changed() => return,
            () = silence(exchange.shared.stream.options().silence) => return,
        };
        exchange.shared.stream.set_open(opened.is_ok());
        exchange.shared.stream.settle();
        match opened {
            Ok(response) => {
                // A server that numbers its events tells again what was missed.
                if self.was_open && self.last_id.is_none() {
                    exchange.shared.send_event(LinkEvent::StreamReopened);
                }
                self.was_open = true;
                self.refusals = 0;
                self.current = Some(watched_events(response, &exchange.shared));
            }
            Err(refused) => {
                let wait = self.refused(&refused);
                tracing::debug!(
                    server = exchange.shared.server(),
                    "no listening stream for {wait:?}: {}",
                    refused.failure
                );
                tokio::time::sleep(wait).await;
            }
        }
    }

    fn refused(&mut self, refused: &Refused) -> Duration {
        match refused.status {
            Some(404) => {
                self.suspect("the listening stream got 404: the session may be gone".to_owned());
                self.wait()
            }
            Some(400 | 409) if self.was_open => {
                let wait = OCCUPIED_WAIT.saturating_mul(1 << self.refusals.min(4));
                self.refusals += 1;
                wait.min(REFUSED_WAIT)
            }
            Some(400..=499) => REFUSED_WAIT,
            // The server is unreachable, which should be noticed before the next call.
            None if refused.failure.class == FailureClass::NotSent => {
                self.suspect(format!("the listening stream: {}", refused.failure.text));
                self.wait()
            }
            _ => self.wait(),
        }
    }

    fn suspect(&mut self, why: String) {
        if !self.suspected {
            self.suspected = true;
            self.listener
                .exchange
                .shared
                .send_event(LinkEvent::Suspect(why));
        }
    }

    /// The wait requested by the server, or 1, 2, 4... 30 s, varied by a fifth.
    fn wait(&mut self) -> Duration {
        if let Some(retry) = self.retry.take() {
            return retry.min(REFUSED_WAIT);
        }
        let wait = INITIAL_WAIT
            .saturating_mul(1 << self.attempt.min(5))
            .min(MAX_WAIT);
        self.attempt = self.attempt.saturating_add(1);
        wait.mul_f64(0.8 + 0.4 * self.listener.rng.unit())
    }
}

async fn silence(allowed: Option<Duration>) {
    match allowed {
        Some(allowed) => tokio::time::sleep(allowed).await,
        None => std::future::pending().await,
    }
}

/// Opens a stream by GET.
pub(crate) async fn open(
    exchange: &Exchange,
    mut headers: HeaderMap,
    session: Option<&str>,
    last_id: Option<&str>,
) -> Result<reqwest::Response, Refused> {
    if let Some(value) = last_id.and_then(|id| HeaderValue::from_str(id).ok()) {
        headers.insert(LAST_EVENT_ID, value);
    }
    let request = Outgoing {
        session,
        ..Outgoing::new(Method::GET, headers, MessageKind::Listen)
    };
    let response = exchange.send(request).await?;
    let content_type = content_type(response.headers());
    if content_type.starts_with(EVENT_STREAM) {
        return Ok(response);
    }
    let failure = exchange.shared.transport_failure(
        TransportBreak::NotMcp,
        &format!("{content_type} instead of a stream"),
    );
    // Treated as "not offered here".
    Err(Refused {
        failure,
        status: Some(405),
        body: Vec::new(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::failure::classify::SessionMarkers;
    use crate::transport::connect::{HttpClients, HttpTarget};
    use crate::transport::link::TransportKind;
    use crate::transport::peer::ConnectionShared;
    use tokio::sync::mpsc;

    struct Middle;

    impl Rng for Middle {
        fn next_u64(&self) -> u64 {
            u64::MAX / 2
        }
    }

    fn state() -> (State, mpsc::Receiver<LinkEvent>) {
        let _ = rustls::crypto::ring::default_provider().install_default();
        let (sender, events) = mpsc::channel(8);
        let markers = SessionMarkers::default();
        let shared = ConnectionShared::new("listen", 1, TransportKind::Http, markers, sender);
        let target = HttpTarget {
            url: "http://127.0.0.1:9/".parse().unwrap(),
            headers: HeaderMap::new(),
            clients: Arc::new(HttpClients::new(reqwest::Client::new)),
            tokens: None,
        };
        let resumes = shared.resumes();
        let listener = Listener {
            exchange: Arc::new(Exchange::new(&target, &shared)),
            rng: Arc::new(Middle),
            session: None,
            headers: HeaderMap::new(),
        };
        let state = State {
            listener,
            current: None,
            last_id: None,
            retry: None,
            attempt: 0,
            suspected: false,
            was_open: false,
            refusals: 0,
            resumes,
        };
        (state, events)
    }

    fn refused(state: &State, status: Option<u16>) -> Refused {
        let shared = &state.listener.exchange.shared;
        Refused {
            failure: shared.transport_failure(TransportBreak::AfterSend, ""),
            status,
            body: Vec::new(),
        }
    }

    #[tokio::test]
    async fn waits_grow_to_half_a_minute_and_the_wish_of_the_server_is_kept() {
        let (mut state, _events) = state();
        let waits: Vec<u64> = (0..8)
            .map(|_| state.wait().as_secs_f64().round() as u64)
            .collect();
        assert_eq!(waits, [1, 2, 4, 8, 16, 30, 30, 30]);
        state.retry = Some(Duration::from_millis(500));
        assert_eq!(state.wait(), Duration::from_millis(500));
    }

    #[tokio::test]
    async fn a_refusal_is_respected_and_404_is_told_once() {
        let (mut state, mut events) = state();
        for status in [400, 405, 409] {
            let refusal = refused(&state, Some(status));
            assert_eq!(state.refused(&refusal), REFUSED_WAIT, "{status}");
        }
        state.was_open = true;
        let occupied: Vec<u64> = (0..5)
            .map(|_| {
                let refusal = refused(&state, Some(409));
                state.refused(&refusal).as_secs()
            })
            .collect();
        assert_eq!(occupied, [30, 60, 120, 240, 300]);
        for status in [None, Some(500), Some(404), Some(404)] {
            let refusal = refused(&state, status);
            assert!(state.refused(&refusal) < MAX_WAIT * 2, "{status:?}");
        }
        assert!(matches!(events.try_recv(), Ok(LinkEvent::Suspect(_))));
        assert!(events.try_recv().is_err());
    }
}

//! The listening stream (GET): what the server says unasked. It is a courtesy: whatever happens to
//! it never ends the link.

use std::sync::Arc;
use std::time::Duration;

use futures_util::stream::{self, BoxStream};
use futures_util::{Stream, StreamExt};
use hermes_core::clock::Rng;
use reqwest::Method;
use reqwest::header::{HeaderMap, HeaderValue};
use rmcp::transport::streamable_http_client::SseError;
use sse_stream::Sse;

use super::{Exchange, Kind, LAST_EVENT_ID, Outgoing, Refused, events, header};
use crate::classify::Break;
use crate::link::LinkEvent;

const FIRST_WAIT: Duration = Duration::from_secs(1);
const LONGEST_WAIT: Duration = Duration::from_secs(30);

/// A server that says no (405, 409, 400...) is asked again after this time.
const REFUSED_WAIT: Duration = Duration::from_mins(5);

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
    /// What the server asked us to wait before we come back.
    retry: Option<Duration>,
    /// Attempts since something was heard.
    attempt: u32,
    /// 404 was reported; once is enough until something is heard.
    suspected: bool,
}

impl Listener {
    /// Never ends.
    pub(crate) fn stream(self) -> impl Stream<Item = Result<Sse, SseError>> + Send {
        let state = State {
            listener: self,
            current: None,
            last_id: None,
            retry: None,
            attempt: 0,
            suspected: false,
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
            match current.next().await {
                Some(Ok(event)) => {
                    self.attempt = 0;
                    self.suspected = false;
                    if event.id.is_some() {
                        self.last_id.clone_from(&event.id);
                    }
                    if let Some(retry) = event.retry {
                        self.retry = Some(Duration::from_millis(retry));
                    }
                    return event;
                }
                Some(Err(error)) => tracing::debug!("listening stream: {error}"),
                None => {}
            }
            self.current = None;
            let wait = self.wait();
            tokio::time::sleep(wait).await;
        }
    }

    async fn connect(&mut self) {
        let exchange = Arc::clone(&self.listener.exchange);
        let headers = self.listener.headers.clone();
        let session = self.listener.session.as_deref();
        match open(&exchange, headers, session, self.last_id.as_deref()).await {
            Ok(response) => self.current = Some(events(response, &exchange.shared)),
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
                if !self.suspected {
                    self.suspected = true;
                    self.listener.exchange.shared.tell(LinkEvent::Suspect(
                        "the listening stream got 404: the session may be gone".to_owned(),
                    ));
                }
                self.wait()
            }
            Some(400..=499) => REFUSED_WAIT,
            _ => self.wait(),
        }
    }

    /// The server's own wish, or 1, 2, 4... 30 s give or take a fifth.
    fn wait(&mut self) -> Duration {
        if let Some(retry) = self.retry.take() {
            return retry.min(REFUSED_WAIT);
        }
        let wait = FIRST_WAIT
            .saturating_mul(1 << self.attempt.min(5))
            .min(LONGEST_WAIT);
        self.attempt = self.attempt.saturating_add(1);
        wait.mul_f64(0.8 + 0.4 * self.listener.rng.unit())
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
        ..Outgoing::new(Method::GET, headers, Kind::Listen)
    };
    let response = exchange.send(request).await?;
    let content_type = header(response.headers(), "content-type").unwrap_or_default();
    if content_type.starts_with("text/event-stream") {
        return Ok(response);
    }
    let failure = exchange.shared.broke(
        Break::NotMcp,
        &format!("{content_type} instead of a stream"),
    );
    // As good as "not offered here".
    Err(Refused {
        failure,
        status: Some(405),
        body: Vec::new(),
    })
}

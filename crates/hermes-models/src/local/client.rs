//! The client of the built-in model: it starts the server when a call is made.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures_util::{StreamExt as _, stream};
use hermes_core::BoxFuture;
use hermes_core::model::{
    ErrorClass, ModelClient, ModelError, ModelEvent, ModelInfo, ModelRequest, ModelStream, Route,
};
use tokio::sync::mpsc;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::server::{LocalService, ServerLease, StartError};
use crate::client::{ClientParts, HttpModelClient};

/// A start that takes longer is reported.
const NOTICE_AFTER: Duration = Duration::from_secs(1);
/// Minimum interval between further notices.
const NOTICE_INTERVAL: Duration = Duration::from_secs(5);

/// The built-in model behind its route. Address and token are filled in per call.
pub(crate) struct LocalClient {
    parts: ClientParts,
    service: Arc<LocalService>,
}

impl LocalClient {
    pub(crate) fn new(parts: ClientParts, service: Arc<LocalService>) -> Self {
        Self { parts, service }
    }
}

impl ModelClient for LocalClient {
    fn route(&self) -> &Route {
        &self.parts.route
    }

    fn info(&self) -> &ModelInfo {
        &self.parts.info
    }

    fn stream(&self, request: ModelRequest, cancel: CancellationToken) -> ModelStream {
        let (tell, notices) = mpsc::channel(4);
        let call = LocalCall {
            parts: self.parts.clone(),
            service: Arc::clone(&self.service),
            start_notices: StartNotices::new(tell),
        };
        let phase = LocalCallPhase::Starting {
            answer: Box::pin(call.begin(request, cancel)),
            notices,
        };
        Box::pin(stream::unfold(phase, LocalCallPhase::next))
    }
}

enum LocalCallPhase {
    Starting {
        answer: BoxFuture<'static, Result<ModelStream, ModelError>>,
        notices: mpsc::Receiver<String>,
    },
    /// The lease is held while the answer is streamed.
    Answering(ModelStream),
    Over,
}

impl LocalCallPhase {
    async fn next(mut self) -> Option<(Result<ModelEvent, ModelError>, Self)> {
        loop {
            match self {
                Self::Over => return None,
                Self::Answering(mut answer) => {
                    let item = answer.next().await?;
                    return Some((item, Self::Answering(answer)));
                }
                Self::Starting {
                    mut answer,
                    mut notices,
                } => {
                    let begun = tokio::select! {
                        begun = &mut answer => begun,
                        Some(text) = notices.recv() => {
                            let phase = Self::Starting { answer, notices };
                            return Some((Ok(ModelEvent::Preparing(text)), phase));
                        }
                    };
                    match begun {
                        Ok(answer) => self = Self::Answering(answer),
                        Err(error) => return Some((Err(error), Self::Over)),
                    }
                }
            }
        }
    }
}

struct LocalCall {
    parts: ClientParts,
    service: Arc<LocalService>,
    start_notices: StartNotices,
}

impl LocalCall {
    async fn begin(
        mut self,
        request: ModelRequest,
        cancel: CancellationToken,
    ) -> Result<ModelStream, ModelError> {
        let held = {
            let tell = |text: &str| self.start_notices.tell(text);
            tokio::select! {
                biased;
                () = cancel.cancelled() => Err(self.error(
                    ErrorClass::Cancelled,
                    "the call was cancelled".to_owned(),
                )),
                held = self.service.ensure(&tell) => held.map_err(|error| {
                    self.error(class(&error), error.to_string())
                }),
            }?
        };
        self.parts.route.base_url.clone_from(&held.base_url);
        self.parts.credential = Some(held.token.clone());
        let answer = HttpModelClient::new(self.parts).stream(request, cancel);
        Ok(with_lease(held, answer))
    }

    fn error(&self, class: ErrorClass, message: String) -> ModelError {
        ModelError {
            class,
            provider: self.parts.route.provider.clone(),
            model: self.parts.route.model.clone(),
            status: None,
            message,
            retry_after: None,
            limit: None,
        }
    }
}

/// The answer, with the server's lease held until it ends.
fn with_lease(held: Arc<ServerLease>, answer: ModelStream) -> ModelStream {
    Box::pin(answer.map(move |item| {
        let _held = &held;
        item
    }))
}

/// A retry helps only if the server died.
fn class(error: &StartError) -> ErrorClass {
    match error {
        StartError::NoProgram | StartError::NoWeights { .. } => ErrorClass::ModelNotFound,
        StartError::Refused(_) | StartError::Setting(_) | StartError::Silent { .. } => {
            ErrorClass::Format
        }
        StartError::Died(_) => ErrorClass::Server,
    }
}

/// Notices about the start for the waiting person: not every line, and none for a quick start.
struct StartNotices {
    tell: mpsc::Sender<String>,
    state: Mutex<(Instant, String)>,
}

impl StartNotices {
    fn new(tell: mpsc::Sender<String>) -> Self {
        Self {
            tell,
            state: Mutex::new((Instant::now() + NOTICE_AFTER, String::new())),
        }
    }

    fn tell(&self, words: &str) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let (due, last) = &mut *state;
        let mut text = "starting the local model …".to_owned();
        if !words.is_empty() {
            text = format!("{text} {words}");
        }
        if Instant::now() < *due || text == *last {
            return;
        }
        *due = Instant::now() + NOTICE_INTERVAL;
        last.clone_from(&text);
        // A missing receiver is no reason to wait.
        let _ = self.tell.try_send(text);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn only_a_slow_start_is_told_of() {
        let (tell, mut notices) = mpsc::channel(4);
        let start_notices = StartNotices::new(tell);
        start_notices.tell("reading");
        tokio::time::advance(Duration::from_millis(1_100)).await;
        start_notices.tell("reading");
        start_notices.tell("converting 10 %");
        tokio::time::advance(NOTICE_INTERVAL).await;
        start_notices.tell("converting 90 %");
        start_notices.tell("converting 91 %");
        drop(start_notices);
        let mut heard = Vec::new();
        while let Some(text) = notices.recv().await {
            heard.push(text);
        }
        assert_eq!(
            heard,
            [
                "starting the local model … reading",
                "starting the local model … converting 90 %"
            ]
        );
    }
}

//! The model client of the built-in model: the server is made to be there when the call is made.

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

use super::server::{Held, Service, StartError};
use crate::client::{ClientParts, HttpModelClient};

/// A start that takes longer is told of.
const NOTICED: Duration = Duration::from_secs(1);
/// Further news come no faster than this.
const AGAIN: Duration = Duration::from_secs(5);

/// The built-in model behind its route. Address and token of the parts are filled in per call.
pub struct LocalClient {
    parts: ClientParts,
    service: Arc<Service>,
}

impl LocalClient {
    pub fn new(parts: ClientParts, service: Arc<Service>) -> Self {
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
        let (tell, told) = mpsc::channel(4);
        let call = Call {
            parts: self.parts.clone(),
            service: Arc::clone(&self.service),
            news: News::new(tell),
        };
        let phase = Phase::Starting {
            answer: Box::pin(call.begin(request, cancel)),
            told,
        };
        Box::pin(stream::unfold(phase, Phase::next))
    }
}

enum Phase {
    Starting {
        answer: BoxFuture<'static, Result<ModelStream, ModelError>>,
        told: mpsc::Receiver<String>,
    },
    /// The lease is held as long as the answer comes.
    Answering(ModelStream),
    Over,
}

impl Phase {
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
                    mut told,
                } => {
                    let begun = tokio::select! {
                        begun = &mut answer => begun,
                        Some(text) = told.recv() => {
                            let phase = Self::Starting { answer, told };
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

struct Call {
    parts: ClientParts,
    service: Arc<Service>,
    news: News,
}

impl Call {
    async fn begin(
        mut self,
        request: ModelRequest,
        cancel: CancellationToken,
    ) -> Result<ModelStream, ModelError> {
        let held = {
            let tell = |text: &str| self.news.tell(text);
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
        Ok(holding(held, answer))
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

/// The answer, with the server held until it is over.
fn holding(held: Arc<Held>, answer: ModelStream) -> ModelStream {
    Box::pin(answer.map(move |item| {
        let _held = &held;
        item
    }))
}

/// Another attempt helps where the server died, and nowhere else.
fn class(error: &StartError) -> ErrorClass {
    match error {
        StartError::NoProgram | StartError::NoWeights { .. } => ErrorClass::ModelNotFound,
        StartError::Refused(_) | StartError::Setting(_) | StartError::Silent { .. } => {
            ErrorClass::Format
        }
        StartError::Died(_) => ErrorClass::Server,
    }
}

/// What the person who waits hears of the start: not every line, and nothing of a quick one.
struct News {
    tell: mpsc::Sender<String>,
    state: Mutex<(Instant, String)>,
}

impl News {
    fn new(tell: mpsc::Sender<String>) -> Self {
        Self {
            tell,
            state: Mutex::new((Instant::now() + NOTICED, String::new())),
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
        *due = Instant::now() + AGAIN;
        last.clone_from(&text);
        // Nobody who waits is a reason to wait.
        let _ = self.tell.try_send(text);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn only_a_slow_start_is_told_of() {
        let (tell, mut told) = mpsc::channel(4);
        let news = News::new(tell);
        news.tell("reading");
        tokio::time::advance(Duration::from_millis(1_100)).await;
        news.tell("reading");
        news.tell("converting 10 %");
        tokio::time::advance(AGAIN).await;
        news.tell("converting 90 %");
        news.tell("converting 91 %");
        drop(news);
        let mut heard = Vec::new();
        while let Some(text) = told.recv().await {
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

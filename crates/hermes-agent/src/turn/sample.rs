//! One model call, from request to collected answer.

use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt;
use hermes_core::event::{AgentEvent, NoticeLevel};
use hermes_core::message::{AssistantMessage, FinishReason, WrittenBy};
use hermes_core::model::{
    Collector, ErrorClass, ModelClient, ModelError, ModelEvent, ModelRequest,
};
use hermes_core::usage::Usage;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::unfinished::PartialAnswerWriter;
use crate::events::EventSink;
use crate::scrub::{AnswerPiece, Scrubber};

/// What came of a call. A failed or cancelled one may still hold text.
#[derive(Debug)]
pub(super) struct SampleResult {
    pub message: AssistantMessage,
    pub usage: Option<Usage>,
    pub error: Option<ModelError>,
    /// Whether the person has seen text of it.
    pub shown: bool,
    pub elapsed: Duration,
}

/// Makes the call. `goes_on`: the answer continues one that was cut, so its first blank counts.
pub(super) async fn sample(
    client: &Arc<dyn ModelClient>,
    request: ModelRequest,
    (goes_on, keeper): (bool, &mut PartialAnswerWriter<'_>),
    cancel: &CancellationToken,
    events: &EventSink,
) -> SampleResult {
    let began = Instant::now();
    let call = cancel.child_token();
    // Whatever ends this function ends the call too.
    let _guard = call.clone().drop_guard();
    let mut stream = client.stream(request, call);
    let mut answer = AnswerCollector::new(events, goes_on);
    let mut error = None;
    loop {
        let next = tokio::select! {
            biased;
            () = cancel.cancelled() => {
                error = Some(cancelled(client));
                break;
            }
            () = keeper.due() => {
                keeper.keep(answer.collector.text()).await;
                continue;
            }
            next = stream.next() => next,
        };
        match next {
            None => break,
            Some(Ok(event)) => {
                // Nothing follows it, even if the connection stays open.
                let last = matches!(event, ModelEvent::Finished(_));
                answer.take(event).await;
                keeper.grew(answer.collector.text().len());
                if last {
                    break;
                }
            }
            Some(Err(failure)) => {
                error = Some(failure);
                break;
            }
        }
    }
    answer.flush().await;
    let shown = answer.shown;
    let (mut message, usage) = answer.collector.finish();
    if message.finish.is_none() {
        message.finish = Some(FinishReason::Cut);
    }
    let route = client.route();
    message.written_by = Some(Box::new(WrittenBy {
        provider: route.provider.clone(),
        model: route.model.clone(),
    }));
    if matches!(
        message.finish,
        Some(FinishReason::Stop | FinishReason::ToolCalls)
    ) {
        message.text.truncate(message.text.trim_end().len());
    }
    SampleResult {
        message,
        usage,
        error,
        shown,
        elapsed: began.elapsed(),
    }
}

fn cancelled(client: &Arc<dyn ModelClient>) -> ModelError {
    ModelError {
        class: ErrorClass::Cancelled,
        provider: client.route().provider.clone(),
        model: client.route().model.clone(),
        status: None,
        message: "stopped".into(),
        retry_after: None,
        limit: None,
    }
}

/// Collects an answer and shows it as it grows.
struct AnswerCollector<'a> {
    collector: Collector,
    scrubber: Scrubber,
    events: &'a EventSink,
    shown: bool,
    goes_on: bool,
}

impl<'a> AnswerCollector<'a> {
    fn new(events: &'a EventSink, goes_on: bool) -> Self {
        Self {
            collector: Collector::default(),
            scrubber: Scrubber::default(),
            events,
            shown: false,
            goes_on,
        }
    }

    async fn take(&mut self, event: ModelEvent) {
        match event {
            ModelEvent::Text(chunk) => {
                let pieces = self.scrubber.push(&chunk);
                self.show(pieces).await;
            }
            ModelEvent::Reasoning(text) => self.show(vec![AnswerPiece::Reasoning(text)]).await,
            ModelEvent::Preparing(what) => self.events.notice(NoticeLevel::Info, what).await,
            other => self.collector.push(&other),
        }
    }

    async fn flush(&mut self) {
        let pieces = self.scrubber.finish();
        self.show(pieces).await;
    }

    async fn show(&mut self, pieces: Vec<AnswerPiece>) {
        for piece in pieces {
            match piece {
                AnswerPiece::Reasoning(text) => {
                    self.collector.push(&ModelEvent::Reasoning(text.clone()));
                    self.events.emit(AgentEvent::ReasoningDelta { text }).await;
                }
                AnswerPiece::Text(text) => {
                    // Blank lines between thoughts and answer belong to neither.
                    let text = if self.shown || self.goes_on {
                        text
                    } else {
                        text.trim_start().to_owned()
                    };
                    if text.is_empty() {
                        continue;
                    }
                    self.shown = true;
                    self.collector.push(&ModelEvent::Text(text.clone()));
                    self.events.emit(AgentEvent::TextDelta { text }).await;
                }
            }
        }
    }
}

//! Asks a model for the summary.

use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt;
use hermes_core::ids::SessionId;
use hermes_core::message::{FinishReason, Message};
use hermes_core::model::{
    Collector, ErrorClass, ModelClient, ModelError, ModelRequest, Route, ToolChoice,
};
use hermes_core::redact;
use hermes_core::usage::Usage;
use tokio_util::sync::CancellationToken;

use super::plan::SummaryPlan;
use super::request;
use crate::scrub;

/// What the attempts to get a summary came to.
pub(super) struct SummaryAttempts {
    pub result: Result<String, ModelError>,
    pub usage: Vec<(Route, Usage)>,
    /// Told to the person when the first choice failed.
    pub notices: Vec<String>,
}

pub(super) struct SummaryRequest<'a> {
    pub session: &'a SessionId,
    pub plan: &'a SummaryPlan,
    pub focus: Option<&'a str>,
    pub date: String,
    pub timeout: Duration,
}

/// Tries the clients in turn, each route once.
pub(super) async fn write(
    request: &SummaryRequest<'_>,
    clients: &[Arc<dyn ModelClient>],
    cancel: &CancellationToken,
) -> Option<SummaryAttempts> {
    let mut written: Option<SummaryAttempts> = None;
    let mut tried: Vec<&Route> = Vec::new();
    for client in clients {
        if tried.contains(&client.route()) {
            continue;
        }
        tried.push(client.route());
        let mut usage = Vec::new();
        let result = attempt(request, client.as_ref(), cancel, &mut usage).await;
        let failed_before = written.take();
        let mut notices = Vec::new();
        if let Some(before) = failed_before {
            usage.splice(0..0, before.usage);
            notices = before.notices;
        }
        let stop = match &result {
            Ok(_) => true,
            Err(error) => {
                notices.push(format!("The summary could not be written: {error}"));
                error.class == ErrorClass::Cancelled
            }
        };
        written = Some(SummaryAttempts {
            result,
            usage,
            notices,
        });
        if stop {
            break;
        }
    }
    written
}

async fn attempt(
    request: &SummaryRequest<'_>,
    client: &dyn ModelClient,
    cancel: &CancellationToken,
    usage: &mut Vec<(Route, Usage)>,
) -> Result<String, ModelError> {
    let scope = cancel.child_token();
    let _stop = scope.clone().drop_guard();
    let text = request::prompt(
        request.plan,
        request.focus,
        &request.date,
        available_chars(request, client),
    );
    let stream = client.stream(
        ModelRequest {
            session: request.session.clone(),
            system: Arc::from(""),
            messages: vec![Arc::new(Message::user(text))],
            tools: Arc::from([]),
            tool_choice: ToolChoice::Auto,
            max_tokens: None,
            temperature: None,
            reasoning: None,
        },
        scope.clone(),
    );
    let collected = tokio::select! {
        biased;
        () = cancel.cancelled() => Err(failure(client, ErrorClass::Cancelled, "cancelled")),
        outcome = tokio::time::timeout(request.timeout, collect(stream)) => match outcome {
            Ok(outcome) => outcome,
            Err(_) => Err(failure(
                client,
                ErrorClass::Timeout,
                &format!("no summary within {} s", request.timeout.as_secs()),
            )),
        },
    }?;
    let (message, used) = collected.finish();
    usage.extend(used.map(|used| (client.route().clone(), used)));
    if message.finish == Some(FinishReason::ContentFilter) {
        return Err(failure(
            client,
            ErrorClass::ContentPolicy,
            "the summary was filtered",
        ));
    }
    // Half a summary would replace the conversation as if it were a whole one.
    if message.finish.as_ref().is_none_or(FinishReason::is_cut) {
        return Err(failure(
            client,
            ErrorClass::BadResponse,
            "the summary was cut off",
        ));
    }
    let (shown, _) = scrub::scrub(&message.text);
    let summary = redact::secrets(shown.trim()).into_owned();
    if summary.is_empty() {
        return Err(failure(
            client,
            ErrorClass::EmptyStream,
            "the summary was empty",
        ));
    }
    Ok(summary)
}

async fn collect(mut stream: hermes_core::model::ModelStream) -> Result<Collector, ModelError> {
    let mut collector = Collector::default();
    while let Some(event) = stream.next().await {
        collector.push(&event?);
    }
    Ok(collector)
}

/// Characters that the summarising model can take: its window without the summary and a margin.
/// Three to a token, as its tokens may be smaller than we think.
fn available_chars(request: &SummaryRequest<'_>, client: &dyn ModelClient) -> usize {
    let window = u64::from(client.info().context_length);
    let answer = (request.plan.budget * 2).min(window / 4);
    (window.saturating_sub(answer) * 9 / 10) as usize * 3
}

fn failure(client: &dyn ModelClient, class: ErrorClass, message: &str) -> ModelError {
    let route = client.route();
    ModelError {
        class,
        provider: route.provider.clone(),
        model: route.model.clone(),
        status: None,
        message: message.to_owned(),
        retry_after: None,
        limit: None,
    }
}

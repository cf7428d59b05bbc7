//! `hermes model test`: a real call, and a real call with a tool.

use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_util::StreamExt as _;
use hermes_config::redact;
use hermes_core::ids::SessionId;
use hermes_core::message::{AssistantMessage, Message};
use hermes_core::model::{
    Collector, ErrorClass, ModelClient, ModelError, ModelRequest, ModelRouter, Route, ToolChoice,
};
use hermes_core::tool::{Effects, ToolSpec};
use hermes_core::usage::Usage;
use hermes_models::Overrides;
use serde_json::json;
use tokio_util::sync::CancellationToken;

use super::router;
use crate::commands::Context;
use crate::exit::{Exit, Failure, Outcome};
use crate::wiring;

#[derive(Debug, clap::Args)]
pub(super) struct ModelTestArgs {
    /// Model, or provider/model (default: the model in use)
    model: Option<String>,
    /// Provider of the model
    #[arg(long)]
    provider: Option<String>,
    /// Print as JSON
    #[arg(long)]
    json: bool,
}

/// The answer to a test call.
struct TestAnswer {
    message: AssistantMessage,
    usage: Option<Usage>,
    first_ms: u128,
    total_ms: u128,
}

pub(super) fn run(args: ModelTestArgs, cx: &Context) -> Outcome {
    let overrides = Overrides {
        model: args.model,
        provider: args.provider,
        ..Overrides::default()
    };
    let (_, router) = router(cx, overrides)?;
    let client = router.primary()?;
    let route = Route {
        base_url: redact::url(&client.route().base_url),
        ..client.route().clone()
    };
    cx.out
        .remark(format!("asking {} at {} …", route.model, route.base_url));
    let runtime = wiring::runtime()?;
    let word = runtime
        .block_on(ask(&client, one_word()))
        .map_err(|error| failed(&error))?;
    let called = if client.info().tools {
        let answer = runtime
            .block_on(ask(&client, with_tool()))
            .map_err(|error| failed(&error))?;
        Some((calls_tool(&answer.message), answer))
    } else {
        None
    };
    if args.json {
        let part = |answer: &TestAnswer| json!({"first_ms": answer.first_ms, "total_ms": answer.total_ms, "usage": answer.usage});
        cx.out.json(&json!({
            "route": route,
            "text": word.message.text.trim(),
            "answer": part(&word),
            "tool_call": called.as_ref().map(|(made, answer)| json!({"made": made, "answer": part(answer)})),
        }))?;
    } else {
        let text: String = word.message.text.trim().chars().take(60).collect();
        cx.out
            .line(format!("answer     {text:?} {}", figures(&word)))?;
        match &called {
            Some((true, answer)) => cx
                .out
                .line(format!("tool call  made {}", figures(answer)))?,
            Some((false, answer)) => cx
                .out
                .line(format!("tool call  not made {}", figures(answer)))?,
            None => cx
                .out
                .line("tool call  not tested: the model is listed as having no tools")?,
        }
    }
    if matches!(called, Some((false, _))) {
        return Err(Failure::new(
            Exit::TurnFailed,
            format!(
                "{} answers but does not call tools: it can chat, but not act",
                route.model
            ),
        ));
    }
    Ok(())
}

/// One short question, for `doctor`. What the model said, shortened, or what is wrong.
pub(crate) async fn probe(client: Arc<dyn ModelClient>) -> Result<String, String> {
    let answer = ask(&client, one_word())
        .await
        .map_err(|error| with_hint(&error))?;
    let text: String = answer.message.text.trim().chars().take(60).collect();
    Ok(format!("{text:?} {}", figures(&answer)))
}

/// The same, and whether it calls a tool when it should: an agent needs more than answers.
pub(crate) async fn probe_with_tools(
    client: Arc<dyn ModelClient>,
) -> Result<(String, Result<bool, String>), String> {
    let result = probe(Arc::clone(&client)).await?;
    if !client.info().tools {
        return Ok((result, Ok(false)));
    }
    let called = ask(&client, with_tool()).await;
    let called = called
        .map(|answer| calls_tool(&answer.message))
        .map_err(|error| with_hint(&error));
    Ok((result, called))
}

/// The result of testing a model.
pub(crate) struct ModelTestResult {
    /// Whether it called a tool; `None`: it is said to have none.
    pub(crate) tools: Option<bool>,
    /// Both calls together.
    pub(crate) elapsed: Duration,
}

/// A real call, and a real call with a tool, as long as both are done in time.
pub(crate) async fn attempt(
    client: Arc<dyn ModelClient>,
    within: Duration,
) -> Result<ModelTestResult, String> {
    let started = Instant::now();
    let calls = async {
        ask(&client, one_word()).await?;
        if !client.info().tools {
            return Ok(None);
        }
        let answer = ask(&client, with_tool()).await?;
        Ok(Some(calls_tool(&answer.message)))
    };
    match tokio::time::timeout(within, calls).await {
        Ok(Ok(tools)) => Ok(ModelTestResult {
            tools,
            elapsed: started.elapsed(),
        }),
        Ok(Err(error)) => Err(with_hint(&error)),
        Err(_) => Err(format!("no answer within {} s", within.as_secs())),
    }
}

fn failed(error: &ModelError) -> Failure {
    let exit = match error.class {
        ErrorClass::Unreachable => Exit::Unreachable,
        _ => Exit::TurnFailed,
    };
    Failure::new(exit, with_hint(error))
}

/// The error with what to look at next.
fn with_hint(error: &ModelError) -> String {
    let hint = match error.class {
        ErrorClass::Unreachable => "; is the server running? (hermes model list --live)",
        ErrorClass::Auth => "; is the key right? (hermes model show)",
        ErrorClass::ModelNotFound => "; hermes model list --live shows what there is",
        _ => "",
    };
    format!("{error}{hint}")
}

fn figures(answer: &TestAnswer) -> String {
    let tokens = answer.usage.map_or_else(
        || "tokens not reported".to_owned(),
        |usage| format!("{} in, {} out", usage.prompt_tokens(), usage.output),
    );
    format!(
        "· first byte {} ms, all {} ms · {tokens}",
        answer.first_ms, answer.total_ms
    )
}

async fn ask(
    client: &Arc<dyn ModelClient>,
    request: ModelRequest,
) -> Result<TestAnswer, ModelError> {
    let started = Instant::now();
    let mut stream = client.stream(request, CancellationToken::new());
    let mut collector = Collector::default();
    let mut first = None;
    while let Some(event) = stream.next().await {
        let event = event?;
        first.get_or_insert_with(|| started.elapsed());
        collector.push(&event);
    }
    let total = started.elapsed();
    let (message, usage) = collector.finish();
    Ok(TestAnswer {
        message,
        usage,
        first_ms: first.unwrap_or(total).as_millis(),
        total_ms: total.as_millis(),
    })
}

fn request(text: &str, tools: Vec<ToolSpec>) -> ModelRequest {
    ModelRequest {
        session: SessionId::new("model-test"),
        system: "You are being tested for reachability. Do exactly what is asked.".into(),
        messages: vec![Arc::new(Message::user(text))],
        tools: tools.into(),
        tool_choice: ToolChoice::Auto,
        max_tokens: None,
        temperature: None,
        reasoning: None,
    }
}

fn one_word() -> ModelRequest {
    request("Answer with the single word: ready", Vec::new())
}

const TOOL: &str = "report_number";

fn with_tool() -> ModelRequest {
    let tool = ToolSpec {
        name: TOOL.to_owned(),
        description: "Reports a number to the person who asked for it.".to_owned(),
        parameters: Arc::new(json!({
            "type": "object",
            "properties": {"number": {"type": "integer", "description": "The number"}},
            "required": ["number"],
        })),
        toolset: "test",
        effects: Effects::ReadOnly,
        untrusted: false,
    };
    request(
        "Call the tool report_number with the number 7. Do not answer in words.",
        vec![tool],
    )
}

/// Whether the tool was called with arguments that can be read.
fn calls_tool(message: &AssistantMessage) -> bool {
    message.tool_calls.iter().any(|call| {
        call.name == TOOL
            && serde_json::from_str::<serde_json::Value>(&call.arguments)
                .is_ok_and(|arguments| arguments.is_object())
    })
}

//! The protocol of all bench drivers: one JSON object per line, answered by another.
//!
//! `{"id", "server", "tool" | "op", "arguments", "count", "parallel"}` makes `count` calls, at most
//! `parallel` at once. The answer: `{"id", "ms": [of each], "wall_ms", "ok", "failed": [{"text",
//! "unknown"}]}`. Lines are processed concurrently; the driver exits at the end of its standard
//! input.
#![expect(
    clippy::print_stdout,
    reason = "a program of the bench talks to whoever started it"
)]

use std::error::Error;
use std::sync::Arc;
use std::time::Instant;

use futures_util::StreamExt as _;
use hermes_core::task;
use serde_json::{Map, Value, json};
use tokio::io::{AsyncBufReadExt as _, BufReader, stdin};

pub(crate) type Outcome = Result<(), Box<dyn Error>>;

/// One call of a batch.
#[derive(Clone)]
pub(crate) struct Call {
    pub(crate) server: String,
    /// Of the protocol: `call_tool`, `list_resources`, …
    pub(crate) op: String,
    pub(crate) tool: String,
    pub(crate) arguments: Map<String, Value>,
}

/// Why a call failed.
pub(crate) struct Failed {
    pub(crate) text: String,
    /// It may have been executed.
    pub(crate) unknown: bool,
}

/// Announces that it is ready and serves batches until standard input ends.
pub(crate) async fn serve<F, R>(about: Value, call: F) -> Outcome
where
    F: Fn(Call) -> R + Send + Sync + 'static,
    R: Future<Output = Result<(), Failed>> + Send + 'static,
{
    println!("{about}");
    let call = Arc::new(call);
    let mut lines = BufReader::new(stdin()).lines();
    while let Some(line) = lines.next_line().await? {
        let batch: Value = serde_json::from_str(&line)?;
        let call = Arc::clone(&call);
        // The task prints its own result.
        drop(task::spawn("batch", async move {
            println!("{}", run(&batch, &*call).await);
        }));
    }
    Ok(())
}

async fn run<F, R>(batch: &Value, call: &F) -> Value
where
    F: Fn(Call) -> R,
    R: Future<Output = Result<(), Failed>>,
{
    let text = |key: &str, default: &str| batch[key].as_str().unwrap_or(default).to_owned();
    let number = |key: &str| batch[key].as_u64().unwrap_or(1) as usize;
    let one = Call {
        server: text("server", "bench"),
        op: text("op", "call_tool"),
        tool: text("tool", "echo"),
        arguments: batch["arguments"].as_object().cloned().unwrap_or_default(),
    };
    let started = Instant::now();
    let results: Vec<_> = futures_util::stream::iter(0..number("count"))
        .map(|_| {
            let one = one.clone();
            async move {
                let started = Instant::now();
                let result = call(one).await;
                (started.elapsed().as_secs_f64() * 1e3, result)
            }
        })
        .buffered(number("parallel"))
        .collect()
        .await;
    let wall_ms = started.elapsed().as_secs_f64() * 1e3;
    let ms: Vec<f64> = results.iter().map(|(ms, _)| *ms).collect();
    let failed: Vec<Value> = results
        .iter()
        .filter_map(|(_, result)| result.as_ref().err())
        .map(|failed| json!({"text": failed.text, "unknown": failed.unknown}))
        .collect();
    json!({"id": batch["id"], "ms": ms, "wall_ms": wall_ms, "ok": ms.len() - failed.len(),
           "failed": failed})
}

//! `hermes mcp serve`: our conversations as an MCP server over stdio.
//!
//! One JSON-RPC message per line. Calls run beside each other, so that a client which waits for
//! events can still ask something else; answers go out through one writer.

mod conversations;
mod events;
mod tools;

use std::collections::HashMap;
use std::sync::Arc;

use hermes_core::task;
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::sync::{Semaphore, mpsc};
use tokio_util::sync::CancellationToken;

use crate::commands::Context;
use crate::exit::{Failure, Outcome};
use crate::wiring;

/// Versions of the protocol that this server speaks, newest first.
const VERSIONS: &[&str] = &["2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05"];
/// Longest message that is read.
const MAX_MESSAGE_BYTES: usize = 4 * 1024 * 1024;
/// Calls at once.
const MAX_CONCURRENT_CALLS: usize = 16;

const PARSE_ERROR: i64 = -32700;
const INVALID_REQUEST: i64 = -32600;
const METHOD_NOT_FOUND: i64 = -32601;
const INVALID_PARAMS: i64 = -32602;

#[derive(Debug, clap::Args)]
pub(super) struct ServeArgs {
    /// Accepted for compatibility; see the log instead
    #[arg(short, long, hide = true)]
    verbose: bool,
}

pub(super) fn run(_: &ServeArgs, cx: &Context) -> Outcome {
    crate::logging::start(cx);
    wiring::runtime()?.block_on(async {
        let desk = Arc::new(tools::ServeTools::open(cx).await);
        let (answers, lines) = mpsc::channel(64);
        let writer = task::spawn("mcp-serve-writer", write(lines));
        let mut server = ServeLoop {
            desk,
            answers,
            running: HashMap::new(),
            call_permits: Arc::new(Semaphore::new(MAX_CONCURRENT_CALLS)),
        };
        let read = server.serve().await;
        drop(server);
        // The client went away or was answered: nothing is left to write.
        let _ = writer.await;
        read
    })
}

struct ServeLoop {
    desk: Arc<tools::ServeTools>,
    answers: mpsc::Sender<Value>,
    /// Calls under way, by the text of their id.
    running: HashMap<String, CancellationToken>,
    call_permits: Arc<Semaphore>,
}

impl Drop for ServeLoop {
    fn drop(&mut self) {
        for cancel in self.running.values() {
            cancel.cancel();
        }
    }
}

impl ServeLoop {
    /// Reads until the client closes the pipe.
    async fn serve(&mut self) -> Outcome {
        let mut input = BufReader::new(tokio::io::stdin());
        let mut line = Vec::new();
        loop {
            line.clear();
            let read = input.read_until(b'\n', &mut line).await?;
            if read == 0 {
                return Ok(());
            }
            if line.len() > MAX_MESSAGE_BYTES {
                self.fail(&Value::Null, INVALID_REQUEST, "the message is too long")
                    .await;
                continue;
            }
            if line.iter().all(u8::is_ascii_whitespace) {
                continue;
            }
            match serde_json::from_slice::<Value>(&line) {
                Ok(message) => self.message(message).await,
                Err(error) => {
                    let text = format!("not JSON: {error}");
                    self.fail(&Value::Null, PARSE_ERROR, &text).await;
                }
            }
            self.running.retain(|_, cancel| !cancel.is_cancelled());
        }
    }

    async fn message(&mut self, message: Value) {
        let id = message.get("id").cloned();
        let Some(method) = message.get("method").and_then(Value::as_str) else {
            // An answer to something we never asked, or nonsense.
            if id.is_none() || message.get("result").or(message.get("error")).is_none() {
                self.fail(&id.unwrap_or_default(), INVALID_REQUEST, "no method")
                    .await;
            }
            return;
        };
        let params = message.get("params").cloned().unwrap_or_default();
        let Some(id) = id else {
            if method == "notifications/cancelled"
                && let Some(cancel) = params
                    .get("requestId")
                    .and_then(|id| self.running.remove(&id.to_string()))
            {
                cancel.cancel();
            }
            return;
        };
        match method {
            "initialize" => self.answer(&id, initialize(&params)).await,
            "ping" => self.answer(&id, json!({})).await,
            "tools/list" => self.answer(&id, json!({"tools": tools::listing()})).await,
            "tools/call" => self.call(id, params).await,
            other => {
                let text = format!("no method {other}");
                self.fail(&id, METHOD_NOT_FOUND, &text).await;
            }
        }
    }

    async fn call(&mut self, id: Value, params: Value) {
        let name = params
            .get("name")
            .and_then(Value::as_str)
            .unwrap_or_default();
        if !tools::is_known(name) {
            let text = format!("no tool {name:?}");
            self.fail(&id, INVALID_PARAMS, &text).await;
            return;
        }
        let cancel = CancellationToken::new();
        self.running.insert(id.to_string(), cancel.clone());
        let (desk, answers) = (Arc::clone(&self.desk), self.answers.clone());
        let call_permits = Arc::clone(&self.call_permits);
        let name = name.to_owned();
        task::spawn("mcp-serve-call", async move {
            let work = async {
                // The semaphore is never closed.
                let _place = call_permits.acquire().await;
                let arguments = params.get("arguments").cloned().unwrap_or_default();
                desk.call(&name, &arguments).await
            };
            tokio::select! {
                // A cancelled call gets no answer.
                () = cancel.cancelled() => {}
                result = work => {
                    // Without a reader there is nobody to tell.
                    let _ = answers.send(message_of(&id, &result)).await;
                    cancel.cancel();
                }
            }
        });
    }

    async fn answer(&self, id: &Value, result: Value) {
        let _ = self.answers.send(message_of(id, &result)).await;
    }

    async fn fail(&self, id: &Value, code: i64, text: &str) {
        let error = json!({"code": code, "message": text});
        let message = json!({"jsonrpc": "2.0", "id": id, "error": error});
        let _ = self.answers.send(message).await;
    }
}

fn message_of(id: &Value, result: &Value) -> Value {
    json!({"jsonrpc": "2.0", "id": id, "result": result})
}

fn initialize(params: &Value) -> Value {
    let wanted = params.get("protocolVersion").and_then(Value::as_str);
    let version = VERSIONS
        .iter()
        .find(|version| Some(**version) == wanted)
        .or(VERSIONS.first());
    json!({
        "protocolVersion": version,
        "capabilities": {"tools": {}},
        "serverInfo": {"name": "hermes", "version": env!("CARGO_PKG_VERSION")},
        "instructions": "Conversations that Hermes has had: list them, read their messages, wait for new ones.",
    })
}

async fn write(mut lines: mpsc::Receiver<Value>) -> Result<(), Failure> {
    let mut out = tokio::io::stdout();
    while let Some(message) = lines.recv().await {
        let mut line = message.to_string();
        line.push('\n');
        out.write_all(line.as_bytes()).await?;
        out.flush().await?;
    }
    Ok(())
}

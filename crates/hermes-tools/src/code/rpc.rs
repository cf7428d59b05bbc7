//! Calls of a program: checked, counted, executed by the session's own tools.

use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use futures_util::StreamExt as _;
use futures_util::stream::FuturesUnordered;
use hermes_core::task;
use hermes_core::tool::{ToolArgs, ToolContext, ToolErrorKind, ToolOutcome};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::{UnixListener, UnixStream};

/// A longer request is not one of ours.
const MAX_REQUEST: u64 = 16 << 20;
/// Maximum number of concurrent connections of a program.
const MAX_CONNECTIONS: usize = 64;

/// Parameters of `terminal` that would outlive the program.
const STRIPPED: [&str; 4] = ["background", "pty", "notify_on_complete", "watch_patterns"];

#[derive(Deserialize)]
struct RpcRequest {
    id: u64,
    #[serde(default)]
    token: String,
    tool: String,
    #[serde(default)]
    args: ToolArgs,
}

#[derive(Serialize)]
struct RpcReply<'a> {
    id: u64,
    ok: bool,
    result: &'a str,
}

/// The calls of one program.
pub(super) struct ProgramCalls {
    cx: ToolContext,
    helpers: Vec<&'static str>,
    token: String,
    max_calls: u32,
    made: AtomicU32,
    outside: AtomicBool,
    fetches: AtomicBool,
}

impl ProgramCalls {
    pub(super) fn new(
        cx: ToolContext,
        helpers: Vec<&'static str>,
        token: String,
        max_calls: u32,
    ) -> Self {
        Self {
            cx,
            helpers,
            token,
            max_calls,
            made: AtomicU32::new(0),
            outside: AtomicBool::new(false),
            fetches: AtomicBool::new(false),
        }
    }

    pub(super) fn helpers(&self) -> &[&'static str] {
        &self.helpers
    }

    pub(super) fn made(&self) -> u32 {
        self.made.load(Ordering::Relaxed).min(self.max_calls)
    }

    /// Whether the program received external content.
    pub(super) fn read_outside(&self) -> bool {
        self.outside.load(Ordering::Relaxed)
    }

    /// The program itself can access the network: its output may be external.
    pub(super) fn note_network(&self) {
        self.fetches.store(true, Ordering::Relaxed);
        self.cx.taint.mark();
    }

    pub(super) fn may_fetch(&self) -> bool {
        self.fetches.load(Ordering::Relaxed)
    }

    /// One request, one reply. `None`: it is not from the program and gets no reply.
    pub(super) async fn answer(&self, line: &[u8]) -> Option<Vec<u8>> {
        let request: RpcRequest = match serde_json::from_slice(line) {
            Ok(request) => request,
            Err(error) => {
                tracing::debug!(%error, "an unreadable call of a program");
                return None;
            }
        };
        if request.token != self.token {
            tracing::warn!("a call without the program's token was refused");
            return None;
        }
        let id = request.id;
        let outcome = self.call(request).await;
        let (ok, text) = match &outcome {
            ToolOutcome::Done(content) => (true, content.text()),
            ToolOutcome::Error { text, .. } => (false, text.into()),
        };
        let answer = RpcReply {
            id,
            ok,
            result: &text,
        };
        let mut bytes = serde_json::to_vec(&answer).ok()?;
        bytes.push(b'\n');
        Some(bytes)
    }

    async fn call(&self, request: RpcRequest) -> ToolOutcome {
        let RpcRequest {
            tool: name,
            mut args,
            ..
        } = request;
        let known = self.helpers.iter().find(|helper| **helper == name);
        let Some((name, tool)) = known.and_then(|name| Some((*name, self.cx.registry.get(name)?)))
        else {
            let have = match self.helpers.join(", ") {
                have if have.is_empty() => "there are none".to_owned(),
                have => format!("there are: {have}"),
            };
            return ToolOutcome::error(
                ToolErrorKind::UnknownTool,
                format!("no helper {name:?}; {have}"),
            );
        };
        let number = self.made.fetch_add(1, Ordering::Relaxed) + 1;
        if number > self.max_calls {
            return ToolOutcome::error(
                ToolErrorKind::Denied,
                format!(
                    "the limit of {} calls is reached (code_execution.max_tool_calls); finish with what you have",
                    self.max_calls
                ),
            );
        }
        if name == "terminal" {
            args.retain(|field, _| !STRIPPED.contains(&field.as_str()));
        }
        self.cx
            .progress
            .report(format!("{number}: {name} {}", gist(&args)));
        let mut cx = self.cx.clone();
        cx.call_id = format!("{}.{number}", self.cx.call_id);
        cx.cancel = self.cx.cancel.child_token();
        let outcome = match task::catch(name, tool.call(args, &cx)).await {
            Ok(outcome) => outcome,
            Err(panicked) => ToolOutcome::error(
                ToolErrorKind::Panicked,
                format!("{name} broke: {}", panicked.message),
            ),
        };
        if tool.spec().untrusted && !outcome.is_error() {
            self.outside.store(true, Ordering::Relaxed);
            self.cx.taint.mark();
        }
        outcome
    }
}

/// The first argument, shortened, for display.
fn gist(args: &ToolArgs) -> String {
    let text = args.values().find_map(Value::as_str).unwrap_or_default();
    text.chars()
        .map(|c| if c.is_control() { ' ' } else { c })
        .take(60)
        .collect()
}

/// A socket that only this user can access. Its directory must be private already.
pub(super) fn listen(path: &Path) -> std::io::Result<UnixListener> {
    let listener = UnixListener::bind(path)?;
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o600))?;
    Ok(listener)
}

/// Serves the program until this is dropped.
pub(super) async fn serve(listener: UnixListener, calls: &ProgramCalls) {
    let mut connections = FuturesUnordered::new();
    loop {
        tokio::select! {
            accepted = listener.accept(), if connections.len() < MAX_CONNECTIONS => {
                match accepted {
                    Ok((stream, _)) => connections.push(converse(stream, calls)),
                    Err(error) => {
                        tracing::warn!(%error, "a program could not connect");
                        return;
                    }
                }
            }
            Some(()) = connections.next() => {}
        }
    }
}

/// Serves one thread of the program. Ends with it, or with the first invalid request.
async fn converse(stream: UnixStream, calls: &ProgramCalls) {
    let (reader, mut writer) = stream.into_split();
    let mut reader = BufReader::with_capacity(64 * 1024, reader);
    let mut line = Vec::new();
    loop {
        line.clear();
        let mut bounded = (&mut reader).take(MAX_REQUEST);
        let read = bounded.read_until(b'\n', &mut line).await;
        if read.is_err() || line.last() != Some(&b'\n') {
            return;
        }
        let Some(answer) = calls.answer(&line).await else {
            return;
        };
        if writer.write_all(&answer).await.is_err() {
            return;
        }
    }
}

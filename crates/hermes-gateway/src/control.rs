//! How other programs of the same home reach a running gateway: one JSON object per line over
//! loopback, with a token from a file that only the owner can read and that sandboxed commands
//! cannot see.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use hermes_config::fs::write_atomic;
use hermes_core::bytes::{hex, same};
use hermes_core::store::StoreError;
use hermes_core::task;
use hermes_platforms::{MirrorRole, PostError, Posting};
use hermes_store::delivery::Target;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::gateway::Gateway;
use crate::turn::OwnerDecision;

const FILE: &str = "gateway_control.json";
/// Maximum size of a request or an answer.
const MAX_MESSAGE_BYTES: u64 = 1 << 20;
/// Concurrent requests.
const MAX_CONCURRENT_REQUESTS: usize = 16;
/// Timeout for receiving a request and for sending the answer.
const IO_TIMEOUT: Duration = Duration::from_secs(10);
/// Timeout for an answer of the gateway.
const ANSWER_TIMEOUT: Duration = Duration::from_mins(1);
/// How long a message waits for a running turn of its chat.
const MIRROR_TIMEOUT: Duration = Duration::from_secs(2);

/// The port of a home's gateway and the token that authorizes requests.
#[derive(Clone, Serialize, Deserialize)]
struct ControlAddress {
    port: u16,
    token: String,
    pid: u32,
}

/// A request to a gateway.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "op", rename_all = "snake_case")]
pub enum ControlRequest {
    /// A message to a chat; `target` as `send_message` takes it.
    Send { target: String, message: String },
    /// Permissions that turns wait for.
    Permissions,
    /// `allow-once`, `allow-always` or `deny`.
    Decide { id: String, decision: String },
}

#[derive(Serialize, Deserialize)]
struct ControlEnvelope {
    token: String,
    #[serde(flatten)]
    request: ControlRequest,
}

/// Why there is no answer from a gateway.
#[derive(Debug, thiserror::Error)]
pub enum ControlError {
    #[error("no gateway is running on this home: hermes gateway start")]
    NoGateway,
    /// The gateway refused the request.
    #[error("{0}")]
    Refused(String),
    #[error("the gateway cannot be asked: {0}")]
    Broken(String),
}

/// Sends a request to the gateway of a home.
pub async fn ask(home: &Path, request: ControlRequest) -> Result<Value, ControlError> {
    let text = match tokio::fs::read(home.join(FILE)).await {
        Ok(text) => text,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            return Err(ControlError::NoGateway);
        }
        Err(error) => return Err(ControlError::Broken(format!("{FILE}: {error}"))),
    };
    // A starting gateway writes the file atomically.
    let address: ControlAddress = serde_json::from_slice(&text)
        .map_err(|error| ControlError::Broken(format!("{FILE}: {error}")))?;
    let asking = async {
        let mut stream = TcpStream::connect(("127.0.0.1", address.port)).await?;
        let envelope = ControlEnvelope {
            token: address.token,
            request,
        };
        let mut line = serde_json::to_vec(&envelope)?;
        line.push(b'\n');
        stream.write_all(&line).await?;
        let mut answer = Vec::new();
        stream
            .take(MAX_MESSAGE_BYTES)
            .read_to_end(&mut answer)
            .await?;
        std::io::Result::Ok(answer)
    };
    let answer = match tokio::time::timeout(ANSWER_TIMEOUT, asking).await {
        Ok(Ok(answer)) => answer,
        // The gateway was killed and left its file behind.
        Ok(Err(error)) if error.kind() == std::io::ErrorKind::ConnectionRefused => {
            return Err(ControlError::NoGateway);
        }
        Ok(Err(error)) => return Err(ControlError::Broken(error.to_string())),
        Err(_) => return Err(ControlError::Broken("it does not answer".to_owned())),
    };
    let mut answer: Value = serde_json::from_slice(&answer)
        .map_err(|error| ControlError::Broken(format!("its answer is unreadable: {error}")))?;
    match answer.get("error").and_then(Value::as_str) {
        Some(why) => Err(ControlError::Refused(why.to_owned())),
        None => Ok(answer["ok"].take()),
    }
}

/// The server side. Its address file exists until this is dropped.
pub struct GatewayControl {
    listener: TcpListener,
    token: String,
    path: std::path::PathBuf,
}

impl GatewayControl {
    pub async fn bind(home: &Path) -> std::io::Result<Self> {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await?;
        let token = hex(&rand::random::<[u8; 32]>());
        let address = ControlAddress {
            port: listener.local_addr()?.port(),
            token: token.clone(),
            pid: std::process::id(),
        };
        let path = home.join(FILE);
        // Never keep the permissions of a file that was there before.
        let _ = std::fs::remove_file(&path);
        write_atomic(&path, &serde_json::to_vec(&address)?, 0o600)?;
        Ok(Self {
            listener,
            token,
            path,
        })
    }

    /// Serves until cancelled; requests in progress are completed.
    pub async fn serve(self, gateway: Gateway, cancel: CancellationToken) {
        let request_permits = Arc::new(Semaphore::new(MAX_CONCURRENT_REQUESTS));
        let tasks = TaskTracker::new();
        loop {
            let accepted = tokio::select! {
                () = cancel.cancelled() => break,
                accepted = self.listener.accept() => accepted,
            };
            let stream = match accepted {
                Ok((stream, _)) => stream,
                Err(error) => {
                    tracing::warn!("control: {error}");
                    tokio::time::sleep(Duration::from_millis(100)).await;
                    continue;
                }
            };
            // Connections over the limit are dropped: a client without a token must not block
            // others for long.
            let Ok(permit) = Arc::clone(&request_permits).try_acquire_owned() else {
                continue;
            };
            let (gateway, token) = (gateway.clone(), self.token.clone());
            let answering = async move {
                let _permit = permit;
                if let Err(error) = answer(stream, &token, &gateway).await {
                    tracing::debug!("control: {error}");
                }
            };
            drop(task::spawn(
                "control request",
                tasks.track_future(answering),
            ));
        }
        tasks.close();
        let _ = tokio::time::timeout(IO_TIMEOUT, tasks.wait()).await;
    }
}

impl Drop for GatewayControl {
    fn drop(&mut self) {
        // Another gateway may have written the file since.
        let ours = std::fs::read(&self.path)
            .ok()
            .and_then(|text| serde_json::from_slice::<ControlAddress>(&text).ok())
            .is_some_and(|address| address.token == self.token);
        if ours {
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

async fn answer(stream: TcpStream, token: &str, gateway: &Gateway) -> Result<(), std::io::Error> {
    let (input, mut output) = stream.into_split();
    let mut line = Vec::new();
    let mut input = BufReader::new(input.take(MAX_MESSAGE_BYTES));
    let read = input.read_until(b'\n', &mut line);
    tokio::time::timeout(IO_TIMEOUT, read).await??;
    let answer = match serde_json::from_slice::<ControlEnvelope>(&line) {
        // Clients without a valid token get no answer.
        Ok(envelope) if !same(envelope.token.as_bytes(), token.as_bytes()) => return Ok(()),
        Err(_) => return Ok(()),
        Ok(envelope) => match execute(envelope.request, gateway).await {
            Ok(value) => json!({ "ok": value }),
            Err(why) => json!({ "error": why }),
        },
    };
    let bytes = serde_json::to_vec(&answer)?;
    tokio::time::timeout(IO_TIMEOUT, output.write_all(&bytes)).await??;
    output.shutdown().await
}

async fn execute(request: ControlRequest, gateway: &Gateway) -> Result<Value, String> {
    match request {
        ControlRequest::Send { target, message } => send(&target, message, gateway).await,
        ControlRequest::Permissions => {
            let open = gateway.open_permissions().await;
            let open = open.map_err(|error| error.to_string())?;
            let approvals: Vec<Value> = open
                .iter()
                .map(|one| {
                    json!({
                        "id": one.id,
                        "tool": one.tool,
                        "text": one.text,
                        "session_key": one.session_key,
                        "target": target_text(&one.target),
                        "expires_at": one.expires_at,
                        "decisions": ["allow-once", "allow-always", "deny"],
                    })
                })
                .collect();
            Ok(json!({"count": approvals.len(), "approvals": approvals}))
        }
        ControlRequest::Decide { id, decision } => {
            let wanted = match decision.as_str() {
                "allow-once" => OwnerDecision::AllowOnce,
                "allow-always" => OwnerDecision::AllowAlways,
                "deny" => OwnerDecision::Deny,
                other => {
                    return Err(format!(
                        "{other:?} is not a decision: allow-once, allow-always or deny"
                    ));
                }
            };
            let by = "a program on the gateway's machine";
            let decided = gateway.decide_permission(&id, wanted, by).await;
            let decided = decided.map_err(|error| error.to_string())?;
            Ok(json!({"resolved": true, "id": id, "decision": decision, "tool": decided.tool}))
        }
    }
}

async fn send(target: &str, message: String, gateway: &Gateway) -> Result<Value, String> {
    if message.trim().is_empty() {
        return Err("the message is empty".to_owned());
    }
    let post = gateway.post();
    let found = post.target(target, None);
    let target = found.map_err(|error| error.to_string())?;
    let posting = Posting {
        id: format!("control-{:016x}", rand::random::<u64>()),
        target: target.clone(),
        text: message,
        // The text of a program is untrusted, so it must not refer to files of this machine.
        files: false,
        mirror: Some(MirrorRole::Assistant),
    };
    // The message is added to the chat's transcript unless a turn is running, which may be waiting
    // for a person.
    let sent =
        if let Ok(sent) = tokio::time::timeout(MIRROR_TIMEOUT, post.send(posting.clone())).await {
            sent
        } else {
            let bare = Posting {
                mirror: None,
                ..posting
            };
            match post.send(bare).await {
                // The first attempt stored it.
                Err(PostError::Store(StoreError::Ended(_))) => Ok(1),
                sent => sent,
            }
        };
    let chunks = sent.map_err(|error| error.to_string())?;
    // It is stored and will be delivered, perhaps later.
    Ok(json!({"success": true, "target": target_text(&target), "messages": chunks}))
}

/// In the syntax of `send_message`.
fn target_text(target: &Target) -> String {
    let thread = target.thread_id.as_ref().map(|id| format!(":{id}"));
    format!(
        "{}:{}{}",
        target.platform,
        target.chat_id,
        thread.unwrap_or_default()
    )
}

//! One connection of Socket Mode.

use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use futures_util::{SinkExt as _, StreamExt as _};
use reqwest::header::{
    CONNECTION, SEC_WEBSOCKET_ACCEPT, SEC_WEBSOCKET_KEY, SEC_WEBSOCKET_VERSION, UPGRADE,
};
use serde_json::{Value, json};
use tokio::sync::mpsc;
use tokio_websockets::{ClientBuilder, Limits, Message, WebSocketStream};

use super::SlackShared;
use super::api::{SlackCallError, plain};
use super::intake::SlackEnvelope;

/// No envelope is larger.
const MAX_ENVELOPE: usize = 4 << 20;

/// Acknowledgements that wait to be written.
const ACK_QUEUE_CAPACITY: usize = 256;

pub(super) struct SlackSocket {
    stream: WebSocketStream<reqwest::Upgraded>,
}

/// An event of a connection.
pub(super) enum SlackSocketEvent {
    Envelope(SlackEnvelope),
    /// It will end soon.
    Goodbye(String),
    /// A sign of life.
    Sign,
}

/// Ids of envelopes that may be acknowledged.
pub(super) type EnvelopeAcks = mpsc::Sender<String>;

pub(super) fn acks() -> (EnvelopeAcks, mpsc::Receiver<String>) {
    mpsc::channel(ACK_QUEUE_CAPACITY)
}

impl SlackShared {
    /// Opens a connection and waits for its hello.
    pub(super) async fn connect(&self) -> Result<SlackSocket, SlackCallError> {
        let opened = self
            .api
            .call(
                &self.settings.app_token,
                "apps.connections.open",
                &json!({}),
            )
            .await?;
        let url = opened["url"].as_str().unwrap_or_default();
        let greeted = tokio::time::timeout(self.timing.hello, self.connect_once(url)).await;
        greeted.unwrap_or_else(|_| Err(later("the connection said no hello".to_owned())))
    }

    async fn connect_once(&self, url: &str) -> Result<SlackSocket, SlackCallError> {
        let mut stream = self.upgrade(url).await?;
        loop {
            match stream.next().await {
                Some(Ok(message)) => {
                    let Some(text) = message.as_text() else {
                        continue;
                    };
                    let hello: Value = serde_json::from_str(text).unwrap_or_default();
                    if hello["type"] == "hello" {
                        return Ok(SlackSocket { stream });
                    }
                    return Err(later(
                        "the connection did not begin with a hello".to_owned(),
                    ));
                }
                Some(Err(error)) => return Err(later(error.to_string())),
                None => return Err(later("the connection ended before its hello".to_owned())),
            }
        }
    }

    /// By the HTTP client, so that proxies and trusted roots are the same everywhere. A client of
    /// its own: nothing of an earlier connection is used again.
    async fn upgrade(
        &self,
        url: &str,
    ) -> Result<WebSocketStream<reqwest::Upgraded>, SlackCallError> {
        let address = match url.split_once("://") {
            Some(("wss", rest)) => format!("https://{rest}"),
            // Unencrypted only if the API server is unencrypted, too.
            Some(("ws", rest)) if self.api.base().starts_with("http://") => {
                format!("http://{rest}")
            }
            _ => return Err(later("Slack gave no address to connect to".to_owned())),
        };
        let client = self.http.upgradable();
        let client = client.map_err(|error| later(error.to_string()))?;
        let mut key = [0; 16];
        key[..8].copy_from_slice(&self.rng.next_u64().to_le_bytes());
        key[8..].copy_from_slice(&self.rng.next_u64().to_le_bytes());
        let key = STANDARD.encode(key);
        let answer = client
            .get(address)
            .header(CONNECTION, "Upgrade")
            .header(UPGRADE, "websocket")
            .header(SEC_WEBSOCKET_VERSION, "13")
            .header(SEC_WEBSOCKET_KEY, &key)
            .send()
            .await
            .map_err(|error| later(plain(&error)))?;
        let accepted = answer.headers().get(SEC_WEBSOCKET_ACCEPT);
        let accepted = accepted.and_then(|value| value.to_str().ok());
        if answer.status() != reqwest::StatusCode::SWITCHING_PROTOCOLS
            || accepted != Some(proof(&key).as_str())
        {
            let status = answer.status();
            return Err(later(format!("no WebSocket there (status {status})")));
        }
        let stream = answer.upgrade().await;
        let stream = stream.map_err(|error| later(plain(&error)))?;
        let limits = Limits::default().max_payload_len(Some(MAX_ENVELOPE));
        Ok(ClientBuilder::new().limits(limits).take_over(stream))
    }
}

/// The expected handshake response (RFC 6455, 4.2.2).
fn proof(key: &str) -> String {
    let text = format!("{key}258EAFA5-E914-47DA-95CA-C5AB0DC85B11");
    let digest = ring::digest::digest(&ring::digest::SHA1_FOR_LEGACY_USE_ONLY, text.as_bytes());
    STANDARD.encode(digest.as_ref())
}

fn later(error: String) -> SlackCallError {
    SlackCallError::NotDone {
        error,
        retry_after: None,
    }
}

impl SlackSocket {
    /// The next event; acknowledgements and pings are sent meanwhile. `Err`: it ended or is dead.
    pub(super) async fn next(
        &mut self,
        acks: &mut mpsc::Receiver<String>,
        ping: &mut tokio::time::Interval,
        silence: Duration,
        last_received: &mut tokio::time::Instant,
    ) -> Result<SlackSocketEvent, String> {
        loop {
            tokio::select! {
                message = self.stream.next() => {
                    *last_received = tokio::time::Instant::now();
                    return match message {
                        Some(Ok(message)) => Ok(understand(&message)),
                        Some(Err(error)) => Err(error.to_string()),
                        None => Err("the connection ended".to_owned()),
                    };
                }
                () = tokio::time::sleep_until(*last_received + silence) => {
                    return Err(format!("nothing for {silence:?}"));
                }
                ack = acks.recv() => if let Some(id) = ack {
                    let text = json!({"envelope_id": id}).to_string();
                    self.write(Message::text(text), silence).await?;
                },
                _ = ping.tick() => self.write(Message::ping("hermes"), silence).await?,
            }
        }
    }

    /// Writing to a dead connection must not block.
    async fn write(&mut self, message: Message, deadline: Duration) -> Result<(), String> {
        match tokio::time::timeout(deadline, self.stream.send(message)).await {
            Ok(Ok(())) => Ok(()),
            Ok(Err(error)) => Err(error.to_string()),
            Err(_) => Err(format!("nothing could be written for {deadline:?}")),
        }
    }

    pub(super) async fn close(&mut self, deadline: Duration) {
        // The receiver may be gone.
        let _ = tokio::time::timeout(deadline, self.stream.close()).await;
    }
}

fn understand(message: &Message) -> SlackSocketEvent {
    let Some(text) = message.as_text() else {
        return SlackSocketEvent::Sign;
    };
    let Ok(mut frame_json) = serde_json::from_str::<Value>(text) else {
        tracing::warn!("slack: a frame that is not JSON");
        return SlackSocketEvent::Sign;
    };
    let field = |name: &str| frame_json[name].as_str().unwrap_or_default().to_owned();
    let (kind, id) = (field("type"), field("envelope_id"));
    if kind == "disconnect" {
        return SlackSocketEvent::Goodbye(field("reason"));
    }
    if id.is_empty() {
        return SlackSocketEvent::Sign;
    }
    SlackSocketEvent::Envelope(SlackEnvelope {
        id,
        kind,
        payload: frame_json["payload"].take(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_proves_that_it_understood() {
        // The example of RFC 6455.
        assert_eq!(
            proof("dGhlIHNhbXBsZSBub25jZQ=="),
            "s3pPLMBiTxaQ9kYGzzhZRbK+xOo="
        );
    }
}

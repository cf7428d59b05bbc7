//! One connection to Discord's gateway.
//!
//! Every wait has a timeout: for the connection, the hello, the acknowledgement of a heartbeat. An
//! open socket without data is considered dead.

use std::time::Duration;

use base64::Engine as _;
use futures_util::{SinkExt as _, StreamExt as _};
use reqwest::header::{CONNECTION, UPGRADE};
use serde_json::{Value, json};
use tokio::time::Instant;
use tokio_websockets::{ClientBuilder, Message, WebSocketStream};

use crate::http::PlatformHttp;

/// Servers, messages, direct messages, their content.
pub(super) const INTENTS: u64 = 1 | 1 << 9 | 1 << 12 | 1 << 15;

/// Frames larger than this are not Discord's.
const MAX_FRAME: usize = 16 << 20;

/// Why a connection ended.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum DisconnectReason {
    #[error("{0}")]
    Transport(String),
    #[error("nothing came for {0:?}")]
    Silent(Duration),
    /// Discord closed it, with this code.
    #[error("Discord closed the connection (code {0})")]
    Closed(u16),
    /// Discord requests a reconnect with the same session.
    #[error("Discord asked for a new connection")]
    Reconnect,
    /// The session is over; whether it can be resumed after all.
    #[error("the session is not valid any more")]
    Invalid { resumable: bool },
}

/// A frame from Discord.
#[derive(Debug)]
pub(super) enum GatewayFrame {
    /// An event, in its order.
    Event { seq: u64, name: String, data: Value },
    /// A heartbeat acknowledgement.
    Ack,
}

pub(super) struct DiscordSocket {
    stream: WebSocketStream<reqwest::Upgraded>,
    every: Duration,
    next_beat: Instant,
    /// A heartbeat was sent then and is not acknowledged.
    unanswered: Option<Instant>,
}

impl DiscordSocket {
    /// Opens a connection and waits for the hello. `jitter`, in `[0, 1)`, is for the first
    /// heartbeat.
    pub(super) async fn open(
        http: &PlatformHttp,
        url: &str,
        within: Duration,
        jitter: f64,
    ) -> Result<Self, DisconnectReason> {
        let opening = async {
            let mut stream = connect(http, url).await?;
            let hello = next(&mut stream).await?;
            let every = hello["d"]["heartbeat_interval"].as_u64();
            match (hello["op"].as_u64(), every) {
                (Some(10), Some(every)) => Ok((stream, Duration::from_millis(every.max(1)))),
                _ => Err(DisconnectReason::Transport(
                    "the first message was not a hello".to_owned(),
                )),
            }
        };
        let (stream, every) = tokio::time::timeout(within, opening)
            .await
            .unwrap_or(Err(DisconnectReason::Silent(within)))?;
        Ok(Self {
            stream,
            every,
            next_beat: Instant::now() + every.mul_f64(jitter),
            unanswered: None,
        })
    }

    pub(super) async fn identify(&mut self, token: &str) -> Result<(), DisconnectReason> {
        self.send(json!({"op": 2, "d": {
            "token": token, "intents": INTENTS,
            "properties": {"os": std::env::consts::OS, "browser": "hermes", "device": "hermes"},
        }}))
        .await
    }

    pub(super) async fn resume(
        &mut self,
        token: &str,
        session: &str,
        seq: u64,
    ) -> Result<(), DisconnectReason> {
        self.send(json!({"op": 6, "d": {"token": token, "session_id": session, "seq": seq}}))
            .await
    }

    async fn send(&mut self, what: Value) -> Result<(), DisconnectReason> {
        let sending = self.stream.send(Message::text(what.to_string()));
        match tokio::time::timeout(self.every, sending).await {
            Ok(Ok(())) => Ok(()),
            Ok(Err(error)) => Err(DisconnectReason::Transport(error.to_string())),
            Err(_) => Err(DisconnectReason::Silent(self.every)),
        }
    }

    /// The next frame; keeps the connection alive meanwhile. `seq` returns the number up to which
    /// everything is stored. Cancel-safe.
    pub(super) async fn receive(
        &mut self,
        seq: impl Fn() -> Option<u64>,
    ) -> Result<GatewayFrame, DisconnectReason> {
        loop {
            // An acknowledgement that is one interval late will not come.
            let dead = self.unanswered.map(|at| at + self.every);
            tokio::select! {
                biased;
                frame = next(&mut self.stream) => {
                    if let Some(event) = self.take(frame?, &seq).await? {
                        return Ok(event);
                    }
                }
                () = until(dead) => return Err(DisconnectReason::Silent(self.every)),
                () = tokio::time::sleep_until(self.next_beat) => self.beat(&seq).await?,
            }
        }
    }

    async fn beat(&mut self, seq: &impl Fn() -> Option<u64>) -> Result<(), DisconnectReason> {
        let now = Instant::now();
        self.next_beat = now + self.every;
        self.unanswered.get_or_insert(now);
        self.send(json!({"op": 1, "d": seq()})).await
    }

    async fn take(
        &mut self,
        mut frame: Value,
        seq: &impl Fn() -> Option<u64>,
    ) -> Result<Option<GatewayFrame>, DisconnectReason> {
        match frame["op"].as_u64() {
            Some(0) => {
                let (Some(seq), Some(name)) = (frame["s"].as_u64(), frame["t"].as_str()) else {
                    return Ok(None);
                };
                let name = name.to_owned();
                let data = frame["d"].take();
                Ok(Some(GatewayFrame::Event { seq, name, data }))
            }
            Some(1) => {
                self.beat(seq).await?;
                Ok(None)
            }
            Some(7) => Err(DisconnectReason::Reconnect),
            Some(9) => Err(DisconnectReason::Invalid {
                resumable: frame["d"] == Value::Bool(true),
            }),
            Some(11) => {
                self.unanswered = None;
                Ok(Some(GatewayFrame::Ack))
            }
            _ => Ok(None),
        }
    }

    /// Keeps the connection alive without reading it, until it fails.
    pub(super) async fn keep_alive(&mut self, seq: impl Fn() -> Option<u64>) -> DisconnectReason {
        loop {
            tokio::time::sleep_until(self.next_beat).await;
            if let Err(broken) = self.beat(&seq).await {
                return broken;
            }
        }
    }

    /// There was no reading for a while, so a missing acknowledgement means nothing.
    pub(super) fn forgive(&mut self) {
        if self.unanswered.is_some() {
            self.unanswered = Some(Instant::now());
        }
    }
}

async fn until(at: Option<Instant>) {
    match at {
        Some(at) => tokio::time::sleep_until(at).await,
        None => std::future::pending().await,
    }
}

type DiscordStream = WebSocketStream<reqwest::Upgraded>;

/// The next frame with JSON in it.
async fn next(stream: &mut DiscordStream) -> Result<Value, DisconnectReason> {
    loop {
        let frame = match stream.next().await {
            Some(Ok(frame)) => frame,
            Some(Err(error)) => return Err(DisconnectReason::Transport(error.to_string())),
            None => return Err(DisconnectReason::Transport("it ended".to_owned())),
        };
        if let Some((code, _)) = frame.as_close() {
            return Err(DisconnectReason::Closed(code.into()));
        }
        let Some(text) = frame.as_text() else {
            continue;
        };
        return serde_json::from_str(text)
            .map_err(|error| DisconnectReason::Transport(format!("not JSON: {error}")));
    }
}

/// A connection of its own, by the proxies and roots of the home.
async fn connect(http: &PlatformHttp, url: &str) -> Result<DiscordStream, DisconnectReason> {
    let broken = |error: &reqwest::Error| DisconnectReason::Transport(super::api::plain(error));
    let client = http
        .upgradable()
        .map_err(|error| DisconnectReason::Transport(error.to_string()))?;
    let address = address(url).map_err(DisconnectReason::Transport)?;
    let key = base64::engine::general_purpose::STANDARD.encode(rand::random::<[u8; 16]>());
    let request = client
        .get(address)
        .header(CONNECTION, "Upgrade")
        .header(UPGRADE, "websocket")
        .header("sec-websocket-version", "13")
        .header("sec-websocket-key", &key);
    let answer = request.send().await.map_err(|error| broken(&error))?;
    if answer.status() != reqwest::StatusCode::SWITCHING_PROTOCOLS {
        let status = answer.status();
        return Err(DisconnectReason::Transport(format!(
            "no WebSocket: {status}"
        )));
    }
    let accept = answer.headers().get("sec-websocket-accept");
    if accept.is_none_or(|value| value.as_bytes() != accept_of(&key).as_bytes()) {
        return Err(DisconnectReason::Transport(
            "no WebSocket: it answered another question".to_owned(),
        ));
    }
    let upgraded = answer.upgrade().await.map_err(|error| broken(&error))?;
    let limits = tokio_websockets::Limits::default().max_payload_len(Some(MAX_FRAME));
    Ok(ClientBuilder::new().limits(limits).take_over(upgraded))
}

/// The WebSocket address: Discord's, including path and query, with our version and encoding.
fn address(given: &str) -> Result<url::Url, String> {
    let wrong = |why: &str| format!("Discord named {given:?} as its gateway, which {why}");
    let named =
        url::Url::parse(given.trim()).map_err(|error| wrong(&format!("is none: {error}")))?;
    let scheme = match named.scheme() {
        "wss" | "https" => "https",
        "ws" | "http" => "http",
        _ => return Err(wrong("is not a WebSocket address")),
    };
    // Between these kinds of schemes a parsed address cannot be changed, so its text is.
    let rest = &named[url::Position::BeforeUsername..url::Position::AfterPath];
    let mut address = url::Url::parse(&format!("{scheme}://{rest}"))
        .map_err(|error| wrong(&format!("is none: {error}")))?;
    // Compressed streams are not read here.
    let ours = ["v", "encoding", "compress"];
    let parameters: Vec<(String, String)> = named
        .query_pairs()
        .filter(|(name, _)| !ours.contains(&name.as_ref()))
        .map(|(name, value)| (name.into_owned(), value.into_owned()))
        .collect();
    address
        .query_pairs_mut()
        .extend_pairs(parameters)
        .append_pair("v", "10")
        .append_pair("encoding", "json");
    Ok(address)
}

fn accept_of(key: &str) -> String {
    let text = format!("{key}258EAFA5-E914-47DA-95CA-C5AB0DC85B11");
    let hash = ring::digest::digest(&ring::digest::SHA1_FOR_LEGACY_USE_ONLY, text.as_bytes());
    base64::engine::general_purpose::STANDARD.encode(hash)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_and_queries_of_the_gateway_are_kept() {
        let cases = [
            (
                "wss://gateway.discord.gg",
                "https://gateway.discord.gg/?v=10&encoding=json",
            ),
            (
                "wss://gateway.discord.gg/",
                "https://gateway.discord.gg/?v=10&encoding=json",
            ),
            (
                "ws://127.0.0.1:80/a/b",
                "http://127.0.0.1/a/b?v=10&encoding=json",
            ),
            ("wss://p.test/gw/", "https://p.test/gw/?v=10&encoding=json"),
            (
                "wss://p.test/gw?token=a%2Bb&v=9&compress=zlib-stream#x",
                "https://p.test/gw?token=a%2Bb&v=10&encoding=json",
            ),
            (
                "WSS://P.test:444?x",
                "https://p.test:444/?x=&v=10&encoding=json",
            ),
            ("wss://wss//x", "https://wss//x?v=10&encoding=json"),
        ];
        for (given, asked) in cases {
            assert_eq!(
                address(given).map(String::from).as_deref(),
                Ok(asked),
                "{given}"
            );
        }
        for given in ["", "gateway.discord.gg", "ftp://x", "wss://"] {
            assert!(address(given).is_err(), "{given}");
        }
    }

    #[test]
    fn the_answer_of_the_rfc() {
        assert_eq!(
            accept_of("dGhlIHNhbXBsZSBub25jZQ=="),
            "s3pPLMBiTxaQ9kYGzzhZRbK+xOo="
        );
    }
}

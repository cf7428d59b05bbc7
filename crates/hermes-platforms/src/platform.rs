//! The interface of a platform: a task that receives messages, a way to send, and data about its
//! capabilities.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use hermes_core::BoxFuture;
use hermes_store::delivery::Target;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use tokio::sync::{mpsc, oneshot, watch};
use tokio_util::sync::CancellationToken;

use crate::source::MessageSource;

/// A command for a platform's menu.
pub use hermes_core::front_end::CommandInfo as Offer;

/// One account on one platform, ready to run.
pub struct Platform {
    /// `telegram`, `slack`, …: the original's name.
    pub name: &'static str,
    /// Which of several accounts; empty if there is one.
    pub account: String,
    /// An identity that only one process of this machine may use at a time: a token, a phone
    /// number.
    pub exclusive: Option<String>,
    pub inbound: Box<dyn InboundAdapter>,
    pub outbound: Arc<dyn OutboundAdapter>,
}

/// Receives messages. Runs until cancelled and recovers from failures by itself; returns only when
/// retrying is pointless.
pub trait InboundAdapter: Send {
    fn run(
        self: Box<Self>,
        link: AdapterLink,
    ) -> BoxFuture<'static, Result<(), FatalPlatformError>>;
}

/// The connection of an adapter to the gateway.
#[derive(Clone)]
pub struct AdapterLink {
    pub arrivals: mpsc::Sender<Arrival>,
    pub health: HealthReporter,
    pub cancel: CancellationToken,
}

impl AdapterLink {
    /// Delivers a message and waits until it is stored. `false`: not stored; it must not be
    /// acknowledged, so that it is delivered again.
    pub async fn deliver(&self, message: IncomingMessage) -> bool {
        self.hand_over(message).await.is_some()
    }

    /// The same, with a flag for new messages: `false` for duplicates.
    pub async fn hand_over(&self, message: IncomingMessage) -> Option<bool> {
        let (stored, done) = oneshot::channel();
        let arrival = Arrival { message, stored };
        tokio::select! {
            () = self.cancel.cancelled() => None,
            sent = self.arrivals.send(arrival) => match sent {
                Ok(()) => done.await.ok(),
                Err(_) => None,
            },
        }
    }
}

/// Publishes the condition of a platform. Cheap to clone.
#[derive(Clone)]
pub struct HealthReporter(Arc<watch::Sender<PlatformCondition>>);

/// The condition of a platform.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct PlatformCondition {
    pub state: PlatformState,
    /// The last error, for display; kept until it is connected again.
    pub error: Option<String>,
    /// When the receiving side last made progress (a poll returned, an acknowledgement), in seconds
    /// since the epoch.
    pub received_at: Option<f64>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PlatformState {
    #[default]
    Connecting,
    Connected,
    Retrying,
    /// For good: [`FatalPlatformError`].
    Fatal,
    Paused,
}

impl HealthReporter {
    pub fn new() -> (Self, watch::Receiver<PlatformCondition>) {
        let (sender, receiver) = watch::channel(PlatformCondition::default());
        (Self(Arc::new(sender)), receiver)
    }

    /// The receiving side made progress at `now` (seconds since the epoch).
    pub fn received(&self, now: f64) {
        self.0.send_if_modified(|condition| {
            let is_change =
                condition.state != PlatformState::Connected || condition.error.is_some();
            *condition = PlatformCondition {
                state: PlatformState::Connected,
                error: None,
                received_at: Some(now),
            };
            is_change
        });
    }

    pub fn is(&self, state: PlatformState, error: Option<String>) {
        self.0.send_modify(|condition| {
            condition.state = state;
            condition.error = error.or_else(|| condition.error.take());
        });
    }
}

/// Why a platform stopped permanently, for example a revoked token.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct FatalPlatformError(pub String);

/// Tells an adapter in advance whether the gateway will admit a sender, so that it does nothing
/// visible (such as creating a thread) for others. The gateway still checks every message.
pub trait Admission: Send + Sync {
    fn admits<'a>(&'a self, applicant: Applicant<'a>) -> BoxFuture<'a, bool>;
}

/// The sender of a message, as far as the platform knows.
#[derive(Clone, Copy, Debug)]
pub struct Applicant<'a> {
    pub source: &'a MessageSource,
    pub is_bot: bool,
    /// The platform found a right of its own: a role, a name on a list.
    pub has_role: bool,
}

/// An incoming message. The platform acknowledges it (offset, ack, `\Seen`, 2xx, sync token) after
/// `stored` is sent. If the sender is dropped instead, it was not stored, and the platform must
/// deliver it again.
#[derive(Debug)]
pub struct Arrival {
    pub message: IncomingMessage,
    /// Whether it is new.
    pub stored: oneshot::Sender<bool>,
}

/// A message as a platform gave it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct IncomingMessage {
    /// The receiving account; empty if there is only one.
    #[serde(default)]
    pub account: String,
    /// The platform's id, stable across repeated deliveries.
    pub message_id: String,
    pub source: MessageSource,
    pub text: String,
    #[serde(default)]
    pub media: Vec<MediaRef>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reply_to: Option<ReplyTo>,
    /// One of our buttons was pressed: its [`Button::data`]. `text` is its label then.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pressed: Option<ButtonPress>,
    /// Context for the model that the person did not write (earlier replies of a thread).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub context: Option<String>,
    /// Seconds since the epoch, by the platform's clock.
    pub sent_at: f64,
    /// Platform-specific data that is needed for the answer.
    #[serde(default, skip_serializing_if = "Value::is_null")]
    pub native: Value,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReplyTo {
    pub message_id: String,
    pub text: Option<String>,
    /// Whether the replied message is ours.
    pub own: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ButtonPress {
    pub data: String,
    /// Our message with the button.
    pub message_id: Option<String>,
}

/// A file that a message refers to, not fetched yet.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MediaRef {
    pub kind: MediaKind,
    /// The platform's id.
    pub id: String,
    pub name: Option<String>,
    pub mime: Option<String>,
    pub bytes: Option<u64>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum MediaKind {
    Image,
    Audio,
    Voice,
    Video,
    Document,
    Sticker,
}

impl MediaKind {
    /// By the beginning of a MIME type.
    pub fn of_mime(mime: &str) -> Self {
        match mime.split('/').next() {
            Some("image") => Self::Image,
            Some("audio") => Self::Audio,
            Some("video") => Self::Video,
            _ => Self::Document,
        }
    }
}

/// The result of a call to a platform.
pub type SendFuture<'a, T> = BoxFuture<'a, Result<T, SendError>>;

/// Sends messages. Each call is one request to the platform; retrying is up to the caller.
pub trait OutboundAdapter: Send + Sync {
    fn capabilities(&self) -> &Capabilities;

    /// Sends a message and returns the platform's id of it.
    fn send<'a>(&'a self, message: &'a OutgoingMessage) -> SendFuture<'a, Option<String>>;

    /// Replaces the text of one of our messages ([`Capabilities::edit`]).
    fn edit<'a>(&'a self, id: &'a str, message: &'a OutgoingMessage) -> SendFuture<'a, ()> {
        let _ = (id, message);
        let never = SendError::Refused("messages of this platform cannot be changed".to_owned());
        Box::pin(std::future::ready(Err(never)))
    }

    /// Shows that an answer is being written. Failure is of no consequence.
    fn typing<'a>(&'a self, target: &'a Target) -> BoxFuture<'a, ()> {
        let _ = target;
        Box::pin(std::future::ready(()))
    }

    /// Deletes one of our messages (a replaced preview).
    fn delete<'a>(&'a self, target: &'a Target, id: &'a str) -> SendFuture<'a, ()> {
        let _ = (target, id);
        Box::pin(std::future::ready(Ok(())))
    }

    /// Sets or removes our reaction on a message. Failures do not matter.
    fn react<'a>(
        &'a self,
        target: &'a Target,
        id: &'a str,
        emoji: Option<&'a str>,
    ) -> BoxFuture<'a, ()> {
        let _ = (target, id, emoji);
        Box::pin(std::future::ready(()))
    }

    /// Shows the text of an unfinished answer as a draft ([`Capabilities::drafts`]); the same
    /// `draft` replaces it. Drafts are not stored.
    fn draft<'a>(&'a self, target: &'a Target, draft: u64, text: &'a str) -> SendFuture<'a, ()> {
        let _ = (target, draft, text);
        Box::pin(std::future::ready(Ok(())))
    }

    /// Acknowledges a button press with its outcome. `press` is the message of the press. Failures
    /// do not matter.
    fn pressed<'a>(
        &'a self,
        press: &'a IncomingMessage,
        note: Option<&'a str>,
    ) -> BoxFuture<'a, ()> {
        let _ = (press, note);
        Box::pin(std::future::ready(()))
    }

    /// Offers these commands in the platform's own menu.
    fn offer<'a>(&'a self, commands: &'a [Offer]) -> SendFuture<'a, ()> {
        let _ = commands;
        Box::pin(std::future::ready(Ok(())))
    }

    /// Fetches a file into a directory, up to a number of bytes.
    fn fetch_media<'a>(
        &'a self,
        media: &'a MediaRef,
        into: &'a std::path::Path,
        max_bytes: u64,
    ) -> SendFuture<'a, PathBuf> {
        let _ = (media, into, max_bytes);
        let never = SendError::Refused("messages of this platform bring no files".to_owned());
        Box::pin(std::future::ready(Err(never)))
    }

    /// Whether one of our messages arrived, for platforms with [`Recourse::History`].
    fn look_up<'a>(&'a self, message: &'a OutgoingMessage) -> SendFuture<'a, DeliveryLookup> {
        let _ = message;
        Box::pin(std::future::ready(Ok(DeliveryLookup::Unknown)))
    }
}

/// An outgoing message.
#[derive(Clone, Debug, PartialEq)]
pub struct OutgoingMessage {
    /// The same for every attempt at this message: 24 hex digits.
    pub key: String,
    pub target: Target,
    pub text: String,
    /// The markup of the text: the platform's, or plain after a refusal.
    pub markup: Markup,
    pub reply_to: Option<String>,
    pub media: Option<OutMedia>,
    /// Rows of buttons below the text.
    pub buttons: Vec<Vec<Button>>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Button {
    pub label: String,
    /// Returned in [`ButtonPress::data`]; at most 60 bytes of ASCII.
    pub data: String,
    #[serde(default)]
    pub tone: Tone,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Tone {
    #[default]
    Neutral,
    Good,
    Danger,
}

/// A file to send.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct OutMedia {
    pub path: PathBuf,
    pub kind: MediaKind,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DeliveryLookup {
    /// It arrived, with this id.
    Yes(Option<String>),
    No,
    Unknown,
}

/// The meaning of a failed call. The difference between the first and the last decides whether a
/// person may see a duplicate.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum SendError {
    /// It certainly did not arrive, and may later: no connection, a rate limit.
    #[error("not sent: {error}")]
    NotSent {
        error: String,
        retry_after: Option<Duration>,
    },
    /// The platform could not read the markup; plain text may work.
    #[error("the markup was refused: {0}")]
    Markup(String),
    /// It certainly did not arrive and never will: unknown chat, no permission.
    #[error("refused: {0}")]
    Refused(String),
    /// It may have arrived: the connection failed after the request was written.
    #[error("no answer: {0}")]
    Unclear(String),
}

/// The capabilities of a platform.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Capabilities {
    pub edit: bool,
    pub typing: bool,
    pub threads: bool,
    pub buttons: bool,
    pub reactions: bool,
    /// Text of an answer in the making can be shown without a message.
    pub drafts: bool,
    pub markup: Markup,
    pub limits: PlatformLimits,
    pub recourse: Recourse,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PlatformLimits {
    /// The longest text of one message.
    pub text: usize,
    /// The unit of the limit.
    pub unit: TextUnit,
    /// The largest file, both ways.
    pub file_bytes: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TextUnit {
    Utf16,
    Chars,
    Bytes,
}

impl TextUnit {
    pub fn len(self, text: &str) -> usize {
        match self {
            Self::Utf16 => text.chars().map(char::len_utf16).sum(),
            Self::Chars => text.chars().count(),
            Self::Bytes => text.len(),
        }
    }

    pub fn measure(self, ch: char) -> usize {
        match self {
            Self::Utf16 => ch.len_utf16(),
            Self::Chars => 1,
            Self::Bytes => ch.len_utf8(),
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Markup {
    Plain,
    /// Markdown as it is.
    Discord,
    TelegramV2,
    TelegramHtml,
    SlackMrkdwn,
}

/// What to do about a message with an uncertain outcome.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Recourse {
    /// Sending it again with the same key is harmless this long after the first attempt.
    Idempotent { window: Duration },
    /// The platform can be queried, once a request in flight has certainly ended.
    History { grace: Duration },
    /// Nothing: it is sent again with a mark that it may be a duplicate.
    Mark,
}

//! What a platform is to the rest: a task that brings messages in, a way to send, and data about
//! what it can do.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use hermes_core::BoxFuture;
use hermes_store::db::delivery::Target;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use tokio::sync::{mpsc, oneshot, watch};
use tokio_util::sync::CancellationToken;

use crate::source::MessageSource;

/// A command for a platform's menu.
pub use hermes_core::front_end::CommandInfo as Offer;

/// One account on one platform, ready to run: what `platforms::all` makes from the settings.
pub struct Platform {
    /// `telegram`, `slack`, …: the original's word.
    pub name: &'static str,
    /// Which of several accounts; empty where there is one.
    pub account: String,
    /// What no other process on this machine may use at the same time: a token, a phone number.
    pub exclusive: Option<String>,
    pub inbound: Box<dyn InboundAdapter>,
    pub outbound: Arc<dyn OutboundAdapter>,
}

/// Brings messages. Runs until cancelled; whatever breaks on the way it mends itself, and it
/// returns only when trying again is pointless.
pub trait InboundAdapter: Send {
    fn run(
        self: Box<Self>,
        link: AdapterLink,
    ) -> BoxFuture<'static, Result<(), FatalPlatformError>>;
}

/// What a platform is given to run with.
#[derive(Clone)]
pub struct AdapterLink {
    pub arrivals: mpsc::Sender<Arrival>,
    pub health: HealthReporter,
    pub cancel: CancellationToken,
}

impl AdapterLink {
    /// Hands a message over and waits until it is stored. `false`: it was not; it must not be
    /// acknowledged, and comes again later.
    pub async fn deliver(&self, message: IncomingMessage) -> bool {
        self.hand_over(message).await.is_some()
    }

    /// The same, and says whether it is new: `false` for one that was stored before.
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

/// Where a platform says how it is. Cheap to clone; whoever wants to know has the other end.
#[derive(Clone)]
pub struct HealthReporter(Arc<watch::Sender<PlatformCondition>>);

/// How a platform is.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct PlatformCondition {
    pub state: PlatformState,
    /// The last trouble, for people; kept until it is connected again.
    pub error: Option<String>,
    /// When the receiving side last made progress (a poll came back, an acknowledgement): seconds
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
            let news = condition.state != PlatformState::Connected || condition.error.is_some();
            *condition = PlatformCondition {
                state: PlatformState::Connected,
                error: None,
                received_at: Some(now),
            };
            news
        });
    }

    pub fn is(&self, state: PlatformState, error: Option<String>) {
        self.0.send_modify(|condition| {
            condition.state = state;
            condition.error = error.or_else(|| condition.error.take());
        });
    }
}

/// Why a platform stopped for good: a token that was revoked, say.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct FatalPlatformError(pub String);

/// Tells an adapter in advance whether the gateway will admit somebody, so that nothing visible
/// (a thread, say) is done for others. The gateway decides about every message all the same.
pub trait Admission: Send + Sync {
    fn admits<'a>(&'a self, applicant: Applicant<'a>) -> BoxFuture<'a, bool>;
}

/// A person who wrote, as far as the platform knows them.
#[derive(Clone, Copy, Debug)]
pub struct Applicant<'a> {
    pub source: &'a MessageSource,
    pub is_bot: bool,
    /// The platform found a right of its own: a role, a name on a list.
    pub has_role: bool,
}

/// A message on its way in. The platform acknowledges it (offset, ack, `\Seen`, 2xx, sync token)
/// after `stored` says so. When the other end is dropped instead, it was not stored: the platform
/// must bring it again.
#[derive(Debug)]
pub struct Arrival {
    pub message: IncomingMessage,
    /// Whether it is new.
    pub stored: oneshot::Sender<bool>,
}

/// A message as a platform gave it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct IncomingMessage {
    /// Which account of the platform it came to; empty where there is one.
    #[serde(default)]
    pub account: String,
    /// The platform's id: the same message has the same id, however often it comes.
    pub message_id: String,
    pub source: MessageSource,
    pub text: String,
    #[serde(default)]
    pub media: Vec<MediaRef>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reply_to: Option<ReplyTo>,
    /// A button of ours was pressed: its [`Button::data`]. `text` is its label then.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pressed: Option<ButtonPress>,
    /// What was said around it that the model should know (earlier replies of a thread), and the
    /// person did not say.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub context: Option<String>,
    /// Seconds since the epoch, by the platform's clock.
    pub sent_at: f64,
    /// What only this platform understands and needs for the answer.
    #[serde(default, skip_serializing_if = "Value::is_null")]
    pub native: Value,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReplyTo {
    pub message_id: String,
    pub text: Option<String>,
    /// Whether the message replied to is ours.
    pub own: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ButtonPress {
    pub data: String,
    /// The message of ours that carries the button.
    pub message_id: Option<String>,
}

/// A file that a message refers to, not fetched yet.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MediaRef {
    pub kind: MediaKind,
    /// What the platform calls it.
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

/// Sends. Each call is one request to the platform; trying again is the caller's business.
pub trait OutboundAdapter: Send + Sync {
    fn capabilities(&self) -> &Capabilities;

    /// Sends a message and returns the platform's id of it.
    fn send<'a>(
        &'a self,
        message: &'a OutgoingMessage,
    ) -> BoxFuture<'a, Result<Option<String>, SendError>>;

    /// Replaces the text of a message of ours.
    fn edit<'a>(
        &'a self,
        id: &'a str,
        message: &'a OutgoingMessage,
    ) -> BoxFuture<'a, Result<(), SendError>>;

    /// Shows that an answer is being written. Failure is of no consequence.
    fn typing<'a>(&'a self, target: &'a Target) -> BoxFuture<'a, ()>;

    /// Removes a message of ours (a preview that became something else).
    fn delete<'a>(
        &'a self,
        target: &'a Target,
        id: &'a str,
    ) -> BoxFuture<'a, Result<(), SendError>> {
        let _ = (target, id);
        Box::pin(std::future::ready(Ok(())))
    }

    /// Puts a sign on a message, or takes ours away. Failure is of no consequence.
    fn react<'a>(
        &'a self,
        target: &'a Target,
        id: &'a str,
        emoji: Option<&'a str>,
    ) -> BoxFuture<'a, ()> {
        let _ = (target, id, emoji);
        Box::pin(std::future::ready(()))
    }

    /// Shows the text of an answer that is being written where the platform has a place for
    /// that ([`Capabilities::drafts`]); the same `draft` again replaces it. Nothing stays of it.
    fn draft<'a>(
        &'a self,
        target: &'a Target,
        draft: u64,
        text: &'a str,
    ) -> BoxFuture<'a, Result<(), SendError>> {
        let _ = (target, draft, text);
        Box::pin(std::future::ready(Ok(())))
    }

    /// Tells the person who pressed a button that it was seen, and what came of it. `press` is
    /// the message of the press. Failure is of no consequence.
    fn pressed<'a>(
        &'a self,
        press: &'a IncomingMessage,
        note: Option<&'a str>,
    ) -> BoxFuture<'a, ()> {
        let _ = (press, note);
        Box::pin(std::future::ready(()))
    }

    /// Offers these commands in the platform's own menu.
    fn offer<'a>(&'a self, commands: &'a [Offer]) -> BoxFuture<'a, Result<(), SendError>> {
        let _ = commands;
        Box::pin(std::future::ready(Ok(())))
    }

    /// Fetches a file into a directory, up to a number of bytes.
    fn fetch_media<'a>(
        &'a self,
        media: &'a MediaRef,
        into: &'a std::path::Path,
        max_bytes: u64,
    ) -> BoxFuture<'a, Result<PathBuf, SendError>>;

    /// Whether a message of ours is there, for platforms with [`Recourse::History`].
    fn look_up<'a>(
        &'a self,
        message: &'a OutgoingMessage,
    ) -> BoxFuture<'a, Result<DeliveryLookup, SendError>> {
        let _ = message;
        Box::pin(std::future::ready(Ok(DeliveryLookup::Unknown)))
    }
}

/// A message on its way out.
#[derive(Clone, Debug, PartialEq)]
pub struct OutgoingMessage {
    /// The same for every attempt at this message: 24 hex digits.
    pub key: String,
    pub target: Target,
    pub text: String,
    /// What the text is written in: the platform's markup, or plain after that was refused.
    pub markup: Markup,
    pub reply_to: Option<String>,
    pub media: Option<OutMedia>,
    /// Rows of buttons below the text.
    pub buttons: Vec<Vec<Button>>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Button {
    pub label: String,
    /// Comes back in [`ButtonPress::data`]; at most 60 bytes of ASCII.
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
    /// It is there, under this id.
    Yes(Option<String>),
    No,
    Unknown,
}

/// What a failed call means. The difference between the first and the last decides whether a
/// person may see something twice.
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
    /// It certainly did not arrive and never will: no such chat, no right to write.
    #[error("refused: {0}")]
    Refused(String),
    /// Perhaps it arrived: the connection broke after the request was written.
    #[error("no answer: {0}")]
    Unclear(String),
}

/// What a platform can do, as data.
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
    /// What the limit counts.
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

    pub fn of(self, ch: char) -> usize {
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

/// What can be done about a message of which nobody knows whether it arrived.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Recourse {
    /// Sending it again with the same key is harmless this long after the first attempt.
    Idempotent { window: Duration },
    /// The platform can be asked, once a request in flight has surely ended.
    History { grace: Duration },
    /// Nothing: it is sent again, and says that it may have been seen.
    Mark,
}

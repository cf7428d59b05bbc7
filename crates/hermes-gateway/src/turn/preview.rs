//! The visible progress of a turn: typing, and a message that is edited until the final answer
//! replaces it. Nothing depends on it; it may stop at any time.

use std::sync::Arc;
use std::time::Duration;

use hermes_core::clock::Rng;
use hermes_core::{BoxFuture, task};
use hermes_platforms::{OutboundAdapter, OutgoingMessage, SendError, render};
use hermes_store::delivery::Target;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::render::pieces;
use crate::settings::{StreamTransport, StreamingSettings};

const TYPING_INTERVAL: Duration = Duration::from_secs(4);
const CALL_TIMEOUT: Duration = Duration::from_secs(10);
const LONGEST_INTERVAL: Duration = Duration::from_secs(10);
const MAX_FAILURES: u32 = 3;

/// The current content of the preview.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct PreviewContent {
    pub(super) text: String,
    /// A question is open: no typing indicator.
    pub(super) quiet: bool,
}

pub(super) struct PreviewDeps {
    pub(super) outbound: Arc<dyn OutboundAdapter>,
    pub(super) target: Target,
    pub(super) reply_to: Option<String>,
    pub(super) streaming: StreamingSettings,
    pub(super) typing: bool,
    pub(super) rng: Arc<dyn Rng>,
    /// The preview message of an earlier process.
    pub(super) earlier: Option<String>,
    /// Whether all earlier messages were sent: a preview must not overtake them.
    pub(super) clear: Box<dyn Fn() -> BoxFuture<'static, bool> + Send + Sync>,
    /// Stores the id of the message before anything else is done with it.
    pub(super) store: Box<dyn Fn(String) -> BoxFuture<'static, ()> + Send + Sync>,
}

/// The result of a preview.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct PreviewResult {
    /// The message that the final answer completes.
    pub(super) message: Option<String>,
    /// When it was sent.
    pub(super) at: Option<Instant>,
}

/// Shows a preview until stopped.
pub(super) struct Preview {
    view: watch::Sender<PreviewContent>,
    stop: CancellationToken,
    running: Option<JoinHandle<Result<PreviewResult, task::Panicked>>>,
    earlier: Option<String>,
}

impl Preview {
    pub(super) fn begin(stage: PreviewDeps) -> Self {
        let (view, seen) = watch::channel(PreviewContent::default());
        let stop = CancellationToken::new();
        let earlier = stage.earlier.clone();
        let running = task::spawn("preview", run(stage, seen, stop.clone()));
        Self {
            view,
            stop,
            running: Some(running),
            earlier,
        }
    }

    pub(super) fn set(&self, change: impl FnOnce(&mut PreviewContent)) {
        self.view.send_if_modified(|view| {
            let before = view.clone();
            change(view);
            *view != before
        });
    }

    /// Ends it, after the call in flight.
    pub(super) async fn end(mut self) -> PreviewResult {
        self.stop.cancel();
        let earlier = PreviewResult {
            message: self.earlier.take(),
            at: None,
        };
        match self.running.take() {
            Some(running) => match running.await {
                Ok(Ok(shown)) => shown,
                _ => earlier,
            },
            None => earlier,
        }
    }
}

impl Drop for Preview {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

struct PreviewTask {
    deps: PreviewDeps,
    interval: Duration,
    failures: u32,
    draft: Option<u64>,
    message: Option<String>,
    at: Option<Instant>,
    shown: String,
    disabled: bool,
}

async fn run(
    stage: PreviewDeps,
    mut seen: watch::Receiver<PreviewContent>,
    stop: CancellationToken,
) -> PreviewResult {
    let capabilities = stage.outbound.capabilities();
    let drafts = capabilities.drafts
        && stage.target.thread_id.is_none()
        && matches!(
            stage.streaming.transport,
            StreamTransport::Auto | StreamTransport::Draft
        );
    let edits = capabilities.edit && stage.streaming.transport != StreamTransport::Draft;
    let mut player = PreviewTask {
        interval: stage.streaming.edit_interval,
        failures: 0,
        draft: drafts.then(|| stage.rng.next_u64() >> 33 | 1),
        message: stage.earlier.clone(),
        at: None,
        shown: String::new(),
        disabled: !drafts && !edits,
        deps: stage,
    };
    let mut typed = None::<Instant>;
    let mut next = Instant::now();
    while !stop.is_cancelled() {
        let view = seen.borrow_and_update().clone();
        let now = Instant::now();
        let due = typed.is_none_or(|at| now.duration_since(at) >= TYPING_INTERVAL);
        if player.deps.typing && !view.quiet && due {
            typed = Some(now);
            let typing = player.deps.outbound.typing(&player.deps.target);
            let _ = tokio::time::timeout(CALL_TIMEOUT, typing).await;
        }
        if !player.disabled && now >= next && player.needs_update(&view) {
            player.show(&view.text).await;
            next = Instant::now() + player.interval;
        }
        let pending = !player.disabled && player.needs_update(&view);
        let wake = if pending {
            next
        } else {
            Instant::now() + TYPING_INTERVAL
        };
        tokio::select! {
            () = stop.cancelled() => break,
            changed = seen.changed() => if changed.is_err() { break },
            () = tokio::time::sleep_until(wake) => {}
        }
        // Deltas arrive in bursts; the interval collects them.
        if !player.disabled && Instant::now() < next {
            tokio::select! {
                () = stop.cancelled() => break,
                () = tokio::time::sleep_until(next) => {}
            }
        }
    }
    PreviewResult {
        message: player.message,
        at: player.at,
    }
}

impl PreviewTask {
    fn needs_update(&self, view: &PreviewContent) -> bool {
        let text = view.text.trim();
        let enough = self.message.is_some()
            || self.draft.is_some()
            || text.chars().count() >= self.deps.streaming.buffer;
        !text.is_empty() && text != self.shown && enough
    }

    async fn show(&mut self, text: &str) {
        let text = text.trim();
        if self.message.is_none() && self.draft.is_none() && !(self.deps.clear)().await {
            return;
        }
        let result = tokio::time::timeout(CALL_TIMEOUT, self.call(text)).await;
        match result {
            Ok(Ok(())) => {
                text.clone_into(&mut self.shown);
                self.failures = 0;
            }
            // Not every chat supports drafts; editing messages works everywhere.
            Ok(Err(SendError::Refused(_))) if self.draft.is_some() => {
                self.draft = None;
                self.disabled = !self.deps.outbound.capabilities().edit;
            }
            Ok(Err(SendError::NotSent { retry_after, .. })) => {
                self.failures += 1;
                let doubled = self.interval.saturating_mul(2);
                let asked = retry_after.unwrap_or_default();
                self.interval = doubled.max(asked).min(LONGEST_INTERVAL);
                self.disabled = self.failures >= MAX_FAILURES;
            }
            // A first message with an uncertain outcome is not sent again.
            Ok(Err(_)) | Err(_) => self.disabled = true,
        }
    }

    async fn call(&mut self, text: &str) -> Result<(), SendError> {
        let PreviewDeps {
            outbound, target, ..
        } = &self.deps;
        if let Some(draft) = self.draft {
            return outbound.draft(target, draft, text).await;
        }
        let message = self.outgoing(text);
        if let Some(id) = &self.message {
            return outbound.edit(id, &message).await;
        }
        let Some(id) = outbound.send(&message).await? else {
            self.disabled = true;
            return Ok(());
        };
        (self.deps.store)(id.clone()).await;
        self.message = Some(id);
        self.at = Some(Instant::now());
        Ok(())
    }

    /// As much of the text as fits one message; the cursor at the end shows that more follows.
    fn outgoing(&self, text: &str) -> OutgoingMessage {
        let capabilities = self.deps.outbound.capabilities();
        let cursor = &self.deps.streaming.cursor;
        let mut pieces = pieces(text, capabilities).into_iter();
        let first = pieces.next().unwrap_or_default();
        let text = format!("{}{cursor}", first.trim_end());
        OutgoingMessage {
            key: key(&*self.deps.rng),
            target: self.deps.target.clone(),
            text: render(capabilities.markup, &text),
            markup: capabilities.markup,
            reply_to: self.deps.reply_to.clone(),
            media: None,
            buttons: Vec::new(),
        }
    }
}

/// 24 hex digits.
pub(super) fn key(rng: &dyn Rng) -> String {
    format!("{:016x}{:08x}", rng.next_u64(), rng.next_u64() >> 32)
}

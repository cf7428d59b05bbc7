//! Maintains the connection and reconnects.
//!
//! A connection that is about to close stays open alongside its replacement until it ends or times
//! out, so that nothing is lost. Duplicates are stored once, because a message has the same id in
//! every envelope.

use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::sync::Arc;
use std::time::Duration;

use hermes_core::{BoxFuture, task};
use tokio::sync::{mpsc, oneshot};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::SlackShared;
use super::api::SlackCallError;
use super::intake::SlackEnvelope;
use super::socket::{EnvelopeAcks, SlackSocket, SlackSocketEvent, acks};
use super::team::TeamsError;
use crate::platform::{AdapterLink, FatalPlatformError, InboundAdapter, PlatformState};

/// Number of lanes.
const LANE_COUNT: usize = 8;

/// Capacity of a lane.
const LANE_CAPACITY: usize = 64;

/// How often changed state is written.
const SAVE_INTERVAL: Duration = Duration::from_secs(5);

pub(super) struct SlackReceiver {
    shared: Arc<SlackShared>,
}

impl SlackReceiver {
    pub(super) fn new(shared: Arc<SlackShared>) -> Self {
        Self { shared }
    }
}

impl InboundAdapter for SlackReceiver {
    fn run(
        self: Box<Self>,
        link: AdapterLink,
    ) -> BoxFuture<'static, Result<(), FatalPlatformError>> {
        Box::pin(run(self.shared, link))
    }
}

/// An incoming envelope, and what to do once it is stored.
pub(super) struct EnvelopeJob {
    pub envelope: SlackEnvelope,
    pub then: EnvelopeFollowUp,
}

pub(super) enum EnvelopeFollowUp {
    Acknowledge(EnvelopeAcks),
    /// It did not arrive in an envelope, so it would not be sent again.
    Tell(oneshot::Sender<()>),
}

/// In order for each conversation.
#[derive(Clone)]
pub(super) struct SlackLanes(Arc<Vec<mpsc::Sender<EnvelopeJob>>>);

impl SlackLanes {
    /// Waits while the lane is full: then nothing more is read, and Slack waits too.
    pub(super) async fn enqueue(&self, job: EnvelopeJob) {
        let mut hasher = DefaultHasher::new();
        job.envelope.conversation().hash(&mut hasher);
        let lane = hasher.finish() as usize % self.0.len();
        // The lanes outlive every connection.
        let _ = self.0[lane].send(job).await;
    }
}

/// A notice of a connection to its supervisor.
enum ConnectionNotice {
    Retiring(u64),
    Ended(u64, String),
}

async fn run(shared: Arc<SlackShared>, link: AdapterLink) -> Result<(), FatalPlatformError> {
    // Dropping this cancels the tasks below.
    let cancel = link.cancel.child_token();
    let _end = cancel.clone().drop_guard();
    let link = AdapterLink { cancel, ..link };
    let tasks = TaskTracker::new();
    let lanes = open_lanes(&shared, &link, &tasks);
    let saving = keep(Arc::clone(&shared), link.cancel.clone());
    drop(task::spawn("slack-memory", tasks.track_future(saving)));
    let result = supervise(&shared, &link, &lanes, &tasks).await;
    link.cancel.cancel();
    tasks.close();
    tasks.wait().await;
    shared.memory.save_now().await;
    result
}

fn open_lanes(shared: &Arc<SlackShared>, link: &AdapterLink, tasks: &TaskTracker) -> SlackLanes {
    let mut lanes = Vec::new();
    for _ in 0..LANE_COUNT {
        let (sender, mut receiver) = mpsc::channel(LANE_CAPACITY);
        lanes.push(sender);
        let (shared, link) = (Arc::clone(shared), link.clone());
        let work = async move {
            // A panic over one message must not block a lane forever.
            while !link.cancel.is_cancelled() {
                let lane = lane(&shared, &link, &mut receiver);
                if task::catch("slack-lane", lane).await.is_ok() {
                    return;
                }
            }
        };
        drop(task::spawn("slack-lane", tasks.track_future(work)));
    }
    SlackLanes(Arc::new(lanes))
}

async fn lane(shared: &SlackShared, link: &AdapterLink, jobs: &mut mpsc::Receiver<EnvelopeJob>) {
    loop {
        let job = tokio::select! {
            () = link.cancel.cancelled() => return,
            job = jobs.recv() => job,
        };
        let Some(EnvelopeJob { envelope, then }) = job else {
            return;
        };
        match then {
            EnvelopeFollowUp::Acknowledge(acks) => {
                if shared.take(&envelope, link).await {
                    // Its connection may be gone; Slack sends it again over another one, and the
                    // duplicate is recognised.
                    let _ = acks.send(envelope.id).await;
                }
            }
            EnvelopeFollowUp::Tell(done) => {
                let mut failures = 0;
                while !link.cancel.is_cancelled() && !shared.take(&envelope, link).await {
                    wait(shared.pause(failures), &link.cancel).await;
                    failures += 1;
                }
                // The receiver may be gone.
                let _ = done.send(());
            }
        }
    }
}

/// Writes changed state periodically.
async fn keep(shared: Arc<SlackShared>, cancel: CancellationToken) {
    loop {
        tokio::select! {
            () = cancel.cancelled() => return,
            () = tokio::time::sleep(SAVE_INTERVAL) => shared.memory.save().await,
        }
    }
}

/// Keeps one connection open. Returns when cancelled, or when retrying is pointless.
async fn supervise(
    shared: &Arc<SlackShared>,
    link: &AdapterLink,
    lanes: &SlackLanes,
    tasks: &TaskTracker,
) -> Result<(), FatalPlatformError> {
    let (notices, mut hear) = mpsc::channel::<ConnectionNotice>(16);
    let mut failures = 0;
    let mut number = 0;
    while !link.cancel.is_cancelled() {
        let opened = tokio::select! {
            () = link.cancel.cancelled() => break,
            opened = open(shared) => opened,
        };
        let socket = match opened {
            Ok(socket) => socket,
            Err(TeamsError::Never(hopeless)) => {
                link.health
                    .is(PlatformState::Fatal, Some(hopeless.to_string()));
                return Err(hopeless);
            }
            Err(TeamsError::Later(error)) => {
                tracing::warn!(failures, "slack: no connection: {error}");
                link.health.is(PlatformState::Retrying, Some(error));
                let pause = shared.pause(failures);
                failures += 1;
                // A connection in retirement may still bring something.
                wait(pause, &link.cancel).await;
                continue;
            }
        };
        link.health.received(shared.clock.epoch_seconds());
        number += 1;
        let started_at = Instant::now();
        shared.fill_gap(link, lanes, tasks);
        let connection = SlackConnection {
            number,
            shared: Arc::clone(shared),
            link: link.clone(),
            lanes: lanes.clone(),
            notices: notices.clone(),
        };
        let connection = tasks.track_future(connection.run(socket));
        drop(task::spawn("slack-socket", connection));
        let ended = tokio::select! {
            () = link.cancel.cancelled() => break,
            ended = current_ended(&mut hear, number) => ended,
        };
        if let Some(error) = ended {
            tracing::warn!("slack: the connection ended: {error}");
            link.health.is(PlatformState::Retrying, Some(error));
            // A server that disconnects immediately also gets a pause.
            let lived = started_at.elapsed() > shared.timing.silence;
            failures = if lived { 0 } else { failures + 1 };
            if failures > 1 {
                wait(shared.pause(failures), &link.cancel).await;
            }
            shared.api.renew();
        } else {
            failures = 0;
        }
    }
    Ok(())
}

/// Waits until a connection ends or announces its end. `Some`: how it ended.
async fn current_ended(hear: &mut mpsc::Receiver<ConnectionNotice>, number: u64) -> Option<String> {
    loop {
        match hear.recv().await {
            Some(ConnectionNotice::Retiring(one)) if one == number => return None,
            Some(ConnectionNotice::Ended(one, error)) if one == number => return Some(error),
            Some(_) => {}
            // We hold a sender ourselves, so this cannot happen.
            None => return std::future::pending().await,
        }
    }
}

async fn wait(pause: Duration, cancel: &CancellationToken) {
    tokio::select! {
        () = cancel.cancelled() => {}
        () = tokio::time::sleep(pause) => {}
    }
}

async fn open(shared: &SlackShared) -> Result<SlackSocket, TeamsError> {
    shared.teams.identify(&shared.api).await?;
    shared.connect().await.map_err(|error| match error {
        error if error.is_hopeless() => TeamsError::Never(FatalPlatformError(format!(
            "{error} to the app token: check SLACK_APP_TOKEN (xapp-…, with connections:write), and that Socket Mode is on"
        ))),
        SlackCallError::NotDone { error, .. } | SlackCallError::Unclear(error) => TeamsError::Later(error),
        SlackCallError::Refused(word) => TeamsError::Later(format!("Slack says {word}")),
    })
}

struct SlackConnection {
    number: u64,
    shared: Arc<SlackShared>,
    link: AdapterLink,
    lanes: SlackLanes,
    notices: mpsc::Sender<ConnectionNotice>,
}

impl SlackConnection {
    async fn run(self, mut socket: SlackSocket) {
        let ended = match task::catch("slack-socket", self.read(&mut socket)).await {
            Ok(ended) => ended,
            Err(panicked) => panicked.to_string(),
        };
        socket.close(Duration::from_secs(1)).await;
        // The receiver is gone during shutdown.
        let _ = self
            .notices
            .send(ConnectionNotice::Ended(self.number, ended))
            .await;
    }

    /// Reads until it ends; returns why.
    async fn read(&self, socket: &mut SlackSocket) -> String {
        let timing = self.shared.timing;
        let (sender, mut waiting) = acks();
        let mut ping = tokio::time::interval_at(Instant::now() + timing.ping, timing.ping);
        ping.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        let mut last_received = Instant::now();
        let mut until: Option<Instant> = None;
        loop {
            let next = socket.next(&mut waiting, &mut ping, timing.silence, &mut last_received);
            let notice = tokio::select! {
                () = self.link.cancel.cancelled() => return "cancelled".to_owned(),
                () = at(until) => return "retired".to_owned(),
                notice = next => notice,
            };
            let now = self.shared.clock.epoch_seconds();
            match notice {
                Err(error) => return error,
                Ok(SlackSocketEvent::Sign) => self.alive(now),
                Ok(SlackSocketEvent::Goodbye(reason)) => {
                    tracing::info!("slack: the connection will end: {reason}");
                    if until.is_none() {
                        until = Some(Instant::now() + timing.retire);
                        let _ = self
                            .notices
                            .send(ConnectionNotice::Retiring(self.number))
                            .await;
                    }
                }
                Ok(SlackSocketEvent::Envelope(envelope)) => {
                    self.alive(now);
                    let job = EnvelopeJob {
                        envelope,
                        then: EnvelopeFollowUp::Acknowledge(sender.clone()),
                    };
                    tokio::select! {
                        () = self.link.cancel.cancelled() => return "cancelled".to_owned(),
                        () = self.lanes.enqueue(job) => {}
                    }
                }
            }
        }
    }

    fn alive(&self, now: f64) {
        self.link.health.received(now);
        self.shared.memory.alive(now);
    }
}

async fn at(when: Option<Instant>) {
    match when {
        Some(when) => tokio::time::sleep_until(when).await,
        None => std::future::pending().await,
    }
}

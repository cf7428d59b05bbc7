//! Maintains the gateway connection and reconnects.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use serde::Deserialize;
use serde_json::Value;
use tokio::time::Instant;

use super::DiscordShared;
use super::api::DiscordCallError;
use super::intake::{DiscordIntake, DiscordLanes, DiscordWork};
use super::missed::DiscordOutage;
use super::progress::EventProgress;
use super::socket::{DisconnectReason, DiscordSocket, GatewayFrame};
use super::wire::{DiscordChannel, DiscordInteraction, DiscordMessage, Guild, ReadyEvent};
use crate::platform::{AdapterLink, FatalPlatformError, PlatformState};

/// Timeout for the shutdown.
const SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(2);
/// Tolerated clock difference.
const MAX_CLOCK_SKEW: f64 = 60.0;

/// A session that can be resumed.
struct ResumableSession {
    id: String,
    url: Option<String>,
}

#[derive(Deserialize)]
struct GatewayAddress {
    url: String,
    #[serde(default)]
    session_start_limit: StartLimit,
}

#[derive(Default, Deserialize)]
struct StartLimit {
    remaining: Option<u64>,
    #[serde(default)]
    reset_after: u64,
}

/// Why a connection ended.
enum GatewayConnectionEnd {
    Cancelled,
    Hopeless(String),
    /// Reconnect. `worked`: it had been established.
    Broken {
        why: DisconnectReason,
        worked: bool,
    },
}

impl From<DisconnectReason> for GatewayConnectionEnd {
    fn from(why: DisconnectReason) -> Self {
        Self::Broken { why, worked: false }
    }
}

pub(super) async fn run(
    shared: &DiscordShared,
    link: &AdapterLink,
) -> Result<(), FatalPlatformError> {
    let (lanes, ends) = DiscordLanes::new();
    let (progress, me) = (EventProgress::default(), AtomicU64::new(0));
    let intake = DiscordIntake {
        shared,
        link,
        progress: &progress,
        me: &me,
    };
    let working = futures_util::future::join_all(ends.into_iter().map(|end| intake.lane(end)));
    let mut connections = GatewayConnections {
        shared,
        link,
        lanes: &lanes,
        progress: &progress,
        me: &me,
        session: None,
        gap: None,
    };
    let mut working = std::pin::pin!(working);
    let ended = tokio::select! {
        ended = connections.run() => ended,
        // Lanes end when all senders are dropped, which happens below.
        _ = &mut working => Ok(()),
    };
    drop(lanes);
    // Messages being stored now may still be recorded as seen.
    if tokio::time::timeout(SHUTDOWN_TIMEOUT, working)
        .await
        .is_err()
    {
        tracing::debug!("discord: something was still worked on");
    }
    shared.memory.save().await;
    ended
}

struct GatewayConnections<'a> {
    shared: &'a DiscordShared,
    link: &'a AdapterLink,
    lanes: &'a DiscordLanes,
    progress: &'a EventProgress,
    me: &'a AtomicU64,
    session: Option<ResumableSession>,
    /// The outage to catch up with.
    gap: Option<DiscordOutage>,
}

impl GatewayConnections<'_> {
    async fn run(&mut self) -> Result<(), FatalPlatformError> {
        let timing = self.shared.timing;
        let mut failures = 0_u32;
        loop {
            let began = Instant::now();
            let (why, worked) = match self.one().await {
                GatewayConnectionEnd::Cancelled => return Ok(()),
                GatewayConnectionEnd::Hopeless(why) => return Err(FatalPlatformError(why)),
                GatewayConnectionEnd::Broken { why, worked } => (why, worked),
            };
            let settled = worked && began.elapsed() >= timing.settled;
            failures = if settled { 0 } else { failures + 1 };
            tracing::info!("discord: {why}; connecting again");
            self.link
                .health
                .is(PlatformState::Retrying, Some(why.to_string()));
            self.shared.api.renew();
            let jitter = self.shared.rng.unit();
            let doubled = timing.pause.saturating_mul(1 << failures.min(17) >> 1);
            let pause = doubled
                .min(timing.longest_pause)
                .mul_f64(0.5 + jitter / 2.0);
            let pause = match why {
                // Discord requires between one and five seconds here.
                DisconnectReason::Invalid { resumable: false } => {
                    pause.max(timing.anew.mul_f64(1.0 + 4.0 * jitter))
                }
                _ => pause,
            };
            tokio::select! {
                () = self.link.cancel.cancelled() => return Ok(()),
                () = tokio::time::sleep(pause) => {}
            }
        }
    }

    /// One connection, from its beginning to its end.
    async fn one(&mut self) -> GatewayConnectionEnd {
        let cancel = self.link.cancel.clone();
        let (end, session) = tokio::select! {
            () = cancel.cancelled() => return GatewayConnectionEnd::Cancelled,
            end = self.connected() => (end, self.session.is_some()),
        };
        let end = end.err().unwrap_or(GatewayConnectionEnd::Cancelled);
        if let GatewayConnectionEnd::Broken { why, worked } = &end {
            match why {
                DisconnectReason::Invalid { resumable: false } => self.session = None,
                DisconnectReason::Closed(code) => {
                    if let Some(why) = hopeless(*code) {
                        return GatewayConnectionEnd::Hopeless(why);
                    }
                    // The session is gone or never existed.
                    if matches!(code, 1000 | 1001 | 4003 | 4007 | 4009) {
                        self.session = None;
                    }
                }
                // The resume address may be of a host that is gone.
                _ if session && !worked => {
                    if let Some(session) = &mut self.session {
                        session.url = None;
                    }
                }
                _ => {}
            }
        }
        end
    }

    async fn connected(&mut self) -> Result<(), GatewayConnectionEnd> {
        let shared = self.shared;
        let resumed = self
            .session
            .as_ref()
            .and_then(|session| session.url.clone());
        let url = match resumed {
            Some(url) => url,
            None => self.address().await?,
        };
        let (http, timing) = (shared.api.http(), shared.timing);
        let mut socket = DiscordSocket::open(http, &url, timing.hello, shared.rng.unit()).await?;
        let token = &shared.settings.token;
        match (&self.session, self.progress.stored()) {
            (Some(session), Some(seq)) => socket.resume(token, &session.id, seq).await?,
            _ => socket.identify(token).await?,
        }
        let mut worked = false;
        loop {
            let received = socket.receive(|| self.progress.stored()).await;
            let received = received.map_err(|why| GatewayConnectionEnd::Broken { why, worked })?;
            match received {
                GatewayFrame::Ack => {
                    if worked {
                        self.link.health.received(shared.now());
                        shared.memory.alive(shared.now() - MAX_CLOCK_SKEW);
                        shared
                            .memory
                            .keep(timing.remember, timing.remember_news)
                            .await;
                    }
                }
                GatewayFrame::Event { seq, name, data } => {
                    worked |= matches!(name.as_str(), "READY" | "RESUMED");
                    if worked {
                        self.link.health.received(shared.now());
                    }
                    let works = self.event(seq, &name, data);
                    if name == "READY" {
                        // From now on, messages that are not stored are found again, even after a
                        // crash.
                        shared.memory.save().await;
                    }
                    self.push(&mut socket, works)
                        .await
                        .map_err(|why| GatewayConnectionEnd::Broken { why, worked })?;
                }
            }
        }
    }

    /// The address to connect to. Also validates the token.
    async fn address(&self) -> Result<String, GatewayConnectionEnd> {
        let broken = |why: String| GatewayConnectionEnd::from(DisconnectReason::Transport(why));
        let address: GatewayAddress = match self.shared.api.get("/gateway/bot").await {
            Ok(address) => address,
            Err(error @ DiscordCallError::Unauthorized) => {
                return Err(GatewayConnectionEnd::Hopeless(error.to_string()));
            }
            Err(DiscordCallError::NotDone {
                error,
                retry_after: Some(pause),
            }) => {
                tokio::time::sleep(pause).await;
                return Err(broken(error));
            }
            Err(error) => return Err(broken(error.to_string())),
        };
        let limit = &address.session_start_limit;
        if self.session.is_none() && limit.remaining == Some(0) {
            let pause = Duration::from_millis(limit.reset_after);
            let why = format!("Discord allows no new session for {pause:?}");
            self.link
                .health
                .is(PlatformState::Retrying, Some(why.clone()));
            tokio::time::sleep(pause).await;
            return Err(broken(why));
        }
        // The token will be sent there.
        if self.shared.api.base().starts_with("https://") && !address.url.starts_with("wss://") {
            let why = format!(
                "Discord named an address without encryption: {}",
                address.url
            );
            return Err(broken(why));
        }
        Ok(address.url)
    }

    /// The work for an event. `None`: nothing to do.
    fn event(&mut self, seq: u64, name: &str, data: Value) -> Vec<DiscordWork> {
        if name == "READY" {
            return self.ready(seq, data);
        }
        let ticket = self.progress.came(seq);
        let done = || {
            self.progress.done(ticket);
            Vec::new()
        };
        match name {
            "MESSAGE_CREATE" => match serde_json::from_value::<DiscordMessage>(data) {
                Ok(message) => vec![DiscordWork::Message(ticket, Box::new(message))],
                Err(error) => {
                    tracing::error!("discord: a message is not understood: {error}");
                    done()
                }
            },
            "INTERACTION_CREATE" => match serde_json::from_value::<DiscordInteraction>(data) {
                Ok(used) => vec![DiscordWork::Interaction(ticket, Box::new(used))],
                Err(error) => {
                    tracing::error!("discord: an interaction is not understood: {error}");
                    done()
                }
            },
            "GUILD_CREATE" => {
                self.progress.done(ticket);
                self.guild(data)
            }
            "CHANNEL_CREATE" | "CHANNEL_UPDATE" | "THREAD_CREATE" | "THREAD_UPDATE" => {
                if let Ok(channel) = serde_json::from_value::<DiscordChannel>(data) {
                    self.shared.places.remember(channel);
                }
                done()
            }
            "CHANNEL_DELETE" | "THREAD_DELETE" => {
                if let Ok(channel) = serde_json::from_value::<DiscordChannel>(data) {
                    self.shared.places.forget(channel.id);
                }
                done()
            }
            _ => done(),
        }
    }

    fn ready(&mut self, seq: u64, data: Value) -> Vec<DiscordWork> {
        self.progress.begin();
        let ticket = self.progress.came(seq);
        self.progress.done(ticket);
        let ready: ReadyEvent = match serde_json::from_value(data) {
            Ok(ready) => ready,
            Err(error) => {
                tracing::error!("discord: READY is not understood: {error}");
                return Vec::new();
            }
        };
        self.me.store(ready.user.id.0, Ordering::Relaxed);
        tracing::info!(
            "discord: here as {}, in {} servers",
            ready.user.username,
            ready.guilds.len()
        );
        let encrypted = ready.resume_gateway_url.starts_with("wss://");
        let wanted = self.shared.api.base().starts_with("https://");
        self.session = Some(ResumableSession {
            id: ready.session_id,
            url: Some(ready.resume_gateway_url).filter(|_| encrypted || !wanted),
        });
        self.gap = DiscordOutage::new(self.shared);
        let works = self.gap.as_ref().map(|gap| gap.direct(self.shared));
        self.shared.memory.begin(self.shared.now());
        works.unwrap_or_default()
    }

    fn guild(&self, data: Value) -> Vec<DiscordWork> {
        let Ok(guild) = serde_json::from_value::<Guild>(data) else {
            return Vec::new();
        };
        self.shared.places.learn_guild(&guild);
        let gap = self.gap.as_ref();
        gap.map_or_else(Vec::new, |gap| gap.in_guild(self.shared, &guild))
    }

    /// Passes work to the lanes. While a lane is full, the socket is kept alive but not read.
    async fn push(
        &self,
        socket: &mut DiscordSocket,
        works: Vec<DiscordWork>,
    ) -> Result<(), DisconnectReason> {
        for work in works {
            let Err(work) = self.lanes.try_push(work) else {
                continue;
            };
            tokio::select! {
                () = self.lanes.push(work) => {}
                broken = socket.keep_alive(|| self.progress.stored()) => return Err(broken),
            }
            socket.forgive();
        }
        Ok(())
    }
}

/// Instructions for close codes after which retrying is pointless.
fn hopeless(code: u16) -> Option<String> {
    let what = match code {
        4004 => {
            "Discord does not know the token. Make a new one on the page \"Bot\" of your application \
             (https://discord.com/developers/applications) and set DISCORD_BOT_TOKEN"
        }
        4013 | 4014 => {
            "Discord does not let the bot read messages. Switch on \"Message Content Intent\" on the \
             page \"Bot\" of your application (https://discord.com/developers/applications)"
        }
        4010 | 4011 => "Discord says that the bot is in too many servers for one connection",
        4012 => "Discord does not speak this version of its protocol any more: update hermes",
        _ => return None,
    };
    Some(what.to_owned())
}

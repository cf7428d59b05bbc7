//! What was said while no event could tell us.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use reqwest::Method;
use serde_json::Value;

use super::Shared;
use super::api::CallError;
use super::intake::{Intake, Taken, Work};
use super::wire::{Channel, Guild, Id, Message};

/// Direct channels that are looked into.
const DIRECT: usize = 50;
/// What one request brings.
const PAGE: usize = 100;

/// One outage: since when, and how much more may be taken.
#[derive(Clone, Debug)]
pub(super) struct Gap {
    since: Id,
    take: Arc<AtomicUsize>,
}

impl Gap {
    /// `None`: nobody wants to know, or we were never here before.
    pub(super) fn of(shared: &Shared) -> Option<Self> {
        let missed = &shared.settings.missed;
        let since = shared.memory.alive_at().filter(|_| missed.on)?;
        Some(Self {
            since: Id::at(since),
            take: Arc::new(AtomicUsize::new(missed.take)),
        })
    }

    /// Direct channels, of which nobody tells whether there is news.
    pub(super) fn direct(&self, shared: &Shared) -> Vec<Work> {
        let known = shared.memory.direct(DIRECT);
        known
            .into_iter()
            .map(|(channel, _)| self.work(shared, channel))
            .collect()
    }

    /// The channels of a server that have news.
    pub(super) fn in_guild(&self, shared: &Shared, guild: &Guild) -> Vec<Work> {
        (guild.channels.iter().chain(&guild.threads))
            .filter(|channel| channel.has_messages() && Self::wanted(shared, channel))
            .filter(|channel| channel.last_message_id > Some(self.floor(shared, channel.id)))
            .map(|channel| self.work(shared, channel.id))
            .collect()
    }

    fn wanted(shared: &Shared, channel: &Channel) -> bool {
        let parent = channel.parent_id.and_then(|id| shared.places.get(id));
        let only = &shared.settings.missed.channels;
        let named = |channel: &Channel| only.contains(&channel.id.to_string());
        let rules = &shared.settings.rules;
        rules.refuses(channel, parent.as_ref()).is_none()
            && (only.is_empty() || named(channel) || parent.as_ref().is_some_and(named))
    }

    /// What is not later than this was seen, or is too old.
    fn floor(&self, shared: &Shared, channel: Id) -> Id {
        let seen = shared.memory.seen(channel).unwrap_or(self.since);
        let window = shared.settings.missed.window.as_secs_f64();
        seen.max(Id::at(shared.now() - window))
    }

    fn work(&self, shared: &Shared, channel: Id) -> Work {
        shared.memory.falls_behind();
        Work::Missed {
            channel,
            after: self.floor(shared, channel),
            take: Arc::clone(&self.take),
        }
    }
}

/// Reads what a channel has after a message, and takes what is meant for us, oldest first.
pub(super) async fn read(intake: &Intake<'_>, channel: Id, after: Id, take: &AtomicUsize) {
    let shared = intake.shared;
    match history(shared, channel, after).await {
        Ok(messages) => {
            let guild = shared
                .places
                .get(channel)
                .and_then(|channel| channel.guild_id);
            if take_all(intake, guild, messages, take).await == Taken::Stopped {
                // What is left is found again by the next life.
                return;
            }
        }
        // A channel that we may not read any more has nothing for us.
        Err(CallError::Refused { .. }) => {}
        Err(error) => {
            // Nor is it forgotten: as long as one channel is behind, so is the moment that the next
            // life begins with.
            tracing::warn!("discord: what was missed in channel {channel} is not known: {error}");
            return;
        }
    }
    shared.memory.caught_up();
}

async fn take_all(
    intake: &Intake<'_>,
    guild: Option<Id>,
    messages: Vec<Message>,
    take: &AtomicUsize,
) -> Taken {
    let me = intake.me();
    let mut found = 0;
    for at in 0..messages.len() {
        let mut message = messages[at].clone();
        // History does not name the server of a message.
        message.guild_id = message.guild_id.or(guild);
        if is_answered(&message, &messages[at..], me) {
            let direct = message.guild_id.is_none();
            intake
                .shared
                .memory
                .saw(message.channel_id, message.id, direct);
            continue;
        }
        if take.load(Ordering::Relaxed) == 0 {
            tracing::warn!(
                channel = %message.channel_id,
                "discord: more was missed than is made good (DISCORD_MISSED_MESSAGE_BACKFILL_MAX_DISPATCHES)"
            );
            return Taken::Ignored;
        }
        match intake.message(&message).await {
            Taken::Stored => {
                found += 1;
                take.fetch_sub(1, Ordering::Relaxed);
            }
            Taken::Ignored => {}
            Taken::Stopped => return Taken::Stopped,
        }
    }
    if found > 0 {
        tracing::info!("discord: {found} messages came while we were not here");
    }
    Taken::Stored
}

/// Whether we dealt with a message that our own records do not know: another program on the same
/// bot did. Only an answer to it, or the sign that it is done, proves that.
fn is_answered(message: &Message, later: &[Message], me: Id) -> bool {
    let replied = later.iter().any(|other| {
        let to = other.refers.as_ref();
        other.author.id == me && to.is_some_and(|to| to.message_id == Some(message.id))
    });
    let done = message
        .reactions
        .iter()
        .any(|one| one.me && one.emoji.name.as_deref() == Some("✅"));
    replied || done
}

/// The newest messages after one, oldest first, as many as the settings allow.
async fn history(shared: &Shared, channel: Id, after: Id) -> Result<Vec<Message>, CallError> {
    let limit = shared.settings.missed.limit;
    let mut newest_first: Vec<Message> = Vec::new();
    while newest_first.len() < limit {
        let count = PAGE.min(limit - newest_first.len());
        let before = newest_first
            .last()
            .map(|last| format!("&before={}", last.id));
        let path = format!(
            "/channels/{channel}/messages?limit={count}{}",
            before.unwrap_or_default()
        );
        let within = shared.timing.details * 6;
        let page = shared
            .api
            .patiently(Method::GET, &path, None, within)
            .await?;
        let page: Vec<Value> = serde_json::from_value(page).unwrap_or_default();
        let full = page.len() == count;
        let read = page
            .into_iter()
            .filter_map(|one| serde_json::from_value(one).ok());
        let new: Vec<Message> = read.filter(|one: &Message| one.id > after).collect();
        let all_new = new.len() == count;
        newest_first.extend(new);
        if !full || !all_new {
            break;
        }
    }
    newest_first.reverse();
    Ok(newest_first)
}

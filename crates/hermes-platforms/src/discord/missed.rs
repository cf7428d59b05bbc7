//! Catches up with messages missed during an outage.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use reqwest::Method;
use serde::Deserialize as _;
use serde_json::Value;
use tokio::sync::{Semaphore, SemaphorePermit};
use tokio::time::Instant;

use super::api::DiscordCallError;
use super::intake::{DiscordIntake, DiscordWork, IntakeResult};
use super::wire::{DiscordChannel, DiscordMessage, Guild, Snowflake};
use super::{DiscordShared, DiscordTiming};

/// Maximum number of direct channels checked.
const MAX_DIRECT_CHANNELS: usize = 50;
/// Messages per request.
const PAGE_SIZE: usize = 100;

/// Maximum number of channels per lane that are retried; others wait for the next session.
const MAX_DEFERRED_CHANNELS: usize = 256;
/// Factor of the longest connection pause between retries of an unreadable channel.
const UNREADABLE_PAUSE_FACTOR: u32 = 15;

/// The messages of a channel after a known one.
pub(super) struct MissedMessages {
    pub(super) channel: Snowflake,
    after: Snowflake,
    take: Arc<CatchUpAllowance>,
    /// How often it could not be read.
    failures: u32,
}

/// The number of messages that may be read after one outage, for all channels together.
#[derive(Debug)]
struct CatchUpAllowance {
    permits: Semaphore,
    left: AtomicUsize,
}

impl CatchUpAllowance {
    fn new(max: usize) -> Self {
        let max = max.min(Semaphore::MAX_PERMITS);
        let permits = Semaphore::new(max);
        if max == 0 {
            permits.close();
        }
        Self {
            permits,
            left: AtomicUsize::new(max),
        }
    }

    /// Reserves one message. Waits while others may return theirs. `None`: exhausted.
    async fn one(&self) -> Option<SemaphorePermit<'_>> {
        self.permits.acquire().await.ok()
    }

    fn spend(&self, one: SemaphorePermit<'_>) {
        one.forget();
        // As often as there were permits, so that it ends at nothing.
        if self.left.fetch_sub(1, Ordering::Relaxed) == 1 {
            self.permits.close();
        }
    }
}

/// Failed reads that are retried later.
#[derive(Default)]
pub(super) struct DeferredReads(Vec<(Instant, MissedMessages)>);

impl DeferredReads {
    pub(super) fn add(&mut self, mut missed: MissedMessages, timing: &DiscordTiming) {
        if self.0.len() >= MAX_DEFERRED_CHANNELS {
            return;
        }
        let max_pause = timing.longest_pause.saturating_mul(UNREADABLE_PAUSE_FACTOR);
        let pause = timing.pause.saturating_mul(1 << missed.failures.min(16));
        missed.failures += 1;
        self.0.push((Instant::now() + pause.min(max_pause), missed));
    }

    /// Removes a channel that is being read again by a newer session.
    pub(super) fn forget(&mut self, channel: Snowflake) {
        self.0.retain(|(_, one)| one.channel != channel);
    }

    /// The next due read. Cancel-safe.
    pub(super) async fn due(&mut self) -> MissedMessages {
        let times = self.0.iter().map(|(at, _)| *at).enumerate();
        let Some((oldest_channel, at)) = times.min_by_key(|(_, at)| *at) else {
            return std::future::pending().await;
        };
        tokio::time::sleep_until(at).await;
        self.0.swap_remove(oldest_channel).1
    }
}

/// One outage: its start and the remaining allowance.
#[derive(Clone, Debug)]
pub(super) struct DiscordOutage {
    since: Snowflake,
    take: Arc<CatchUpAllowance>,
}

impl DiscordOutage {
    /// `None`: disabled, or there was no earlier connection.
    pub(super) fn new(shared: &DiscordShared) -> Option<Self> {
        let missed = &shared.settings.missed;
        let since = shared.memory.alive_at().filter(|_| missed.on)?;
        Some(Self {
            since: Snowflake::at(since),
            take: Arc::new(CatchUpAllowance::new(missed.take)),
        })
    }

    /// Direct channels, which Discord does not list.
    pub(super) fn direct(&self, shared: &DiscordShared) -> Vec<DiscordWork> {
        let known = shared.memory.direct(MAX_DIRECT_CHANNELS);
        known
            .into_iter()
            .map(|(channel, _)| self.work(shared, channel))
            .collect()
    }

    /// The channels of a server with new messages.
    pub(super) fn in_guild(&self, shared: &DiscordShared, guild: &Guild) -> Vec<DiscordWork> {
        (guild.channels.iter().chain(&guild.threads))
            .filter(|channel| channel.has_messages() && Self::wanted(shared, channel))
            .filter(|channel| channel.last_message_id > Some(self.floor(shared, channel.id)))
            .map(|channel| self.work(shared, channel.id))
            .collect()
    }

    fn wanted(shared: &DiscordShared, channel: &DiscordChannel) -> bool {
        let parent = channel.parent_id.and_then(|id| shared.places.get(id));
        let only = &shared.settings.missed.channels;
        let named = |channel: &DiscordChannel| only.contains(&channel.id.to_string());
        let rules = &shared.settings.rules;
        rules.refuses(channel, parent.as_ref()).is_none()
            && (only.is_empty() || named(channel) || parent.as_ref().is_some_and(named))
    }

    /// Messages up to this one were seen or are too old.
    fn floor(&self, shared: &DiscordShared, channel: Snowflake) -> Snowflake {
        let seen = shared.memory.seen(channel).unwrap_or(self.since);
        let window = shared.settings.missed.window.as_secs_f64();
        seen.max(Snowflake::at(shared.now() - window))
    }

    fn work(&self, shared: &DiscordShared, channel: Snowflake) -> DiscordWork {
        shared.memory.falls_behind(channel);
        DiscordWork::Missed(MissedMessages {
            channel,
            after: self.floor(shared, channel),
            take: Arc::clone(&self.take),
            failures: 0,
        })
    }
}

/// Reads the messages after a known one and handles those for us, oldest first. `false`: not
/// readable now.
pub(super) async fn read(intake: &DiscordIntake<'_>, missed: &MissedMessages) -> bool {
    let (shared, channel) = (intake.shared, missed.channel);
    let details = shared.timing.details;
    // Other channels share the lane and must not be delayed repeatedly.
    let within = if missed.failures == 0 {
        details * 6
    } else {
        details
    };
    match history(shared, channel, missed.after, within).await {
        Ok(messages) => {
            let guild = shared
                .places
                .get(channel)
                .and_then(|channel| channel.guild_id);
            if take_all(intake, guild, messages, &missed.take).await == IntakeResult::Stopped {
                // The rest is found again by the next process.
                return true;
            }
        }
        // A channel that we may no longer read is skipped.
        Err(DiscordCallError::Refused { .. }) => {}
        Err(error) => {
            // It is not forgotten: the next session starts there again.
            tracing::warn!("discord: what was missed in channel {channel} is not known: {error}");
            return false;
        }
    }
    if shared.memory.caught_up(channel) {
        // After a crash now, catching up does not have to go further back than this.
        shared.memory.save().await;
    }
    true
}

async fn take_all(
    intake: &DiscordIntake<'_>,
    guild: Option<Snowflake>,
    messages: Vec<DiscordMessage>,
    take: &CatchUpAllowance,
) -> IntakeResult {
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
        let Some(one) = take.one().await else {
            tracing::warn!(
                channel = %message.channel_id,
                "discord: more was missed than is made good (DISCORD_MISSED_MESSAGE_BACKFILL_MAX_DISPATCHES)"
            );
            return IntakeResult::Ignored;
        };
        match intake.message(&message).await {
            IntakeResult::Stored => {
                found += 1;
                take.spend(one);
            }
            // Messages handled by an earlier process do not count, because it may have crashed
            // before recording them.
            IntakeResult::Known | IntakeResult::Ignored => {}
            IntakeResult::Stopped => return IntakeResult::Stopped,
        }
    }
    if found > 0 {
        tracing::info!("discord: {found} messages came while we were not here");
    }
    IntakeResult::Stored
}

/// Whether another program with the same bot handled a message that is not in our records. Only a
/// reply to it or the done reaction proves that.
fn is_answered(message: &DiscordMessage, later: &[DiscordMessage], me: Snowflake) -> bool {
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
async fn history(
    shared: &DiscordShared,
    channel: Snowflake,
    after: Snowflake,
    within: Duration,
) -> Result<Vec<DiscordMessage>, DiscordCallError> {
    let limit = shared.settings.missed.limit;
    let mut newest_first: Vec<DiscordMessage> = Vec::new();
    let (mut read, mut before) = (0, None);
    while read < limit {
        let count = PAGE_SIZE.min(limit - read);
        let from = before.map(|id: Snowflake| format!("&before={id}"));
        let path = format!(
            "/channels/{channel}/messages?limit={count}{}",
            from.unwrap_or_default()
        );
        let page = shared
            .api
            .patiently(Method::GET, &path, None, within)
            .await?;
        let Value::Array(page) = page else {
            return Err(DiscordCallError::Unclear(
                "a list of messages is none".to_owned(),
            ));
        };
        read += page.len();
        let (new, next) = sift(page, count, after);
        newest_first.extend(new);
        before = next;
        if before.is_none() {
            break;
        }
    }
    newest_first.reverse();
    Ok(newest_first)
}

/// The messages of a page after a given one, and the start of the next page. All entries of the
/// page count for that, readable or not; unreadable ones are logged, because no later attempt would
/// succeed.
fn sift(
    page: Vec<Value>,
    asked: usize,
    after: Snowflake,
) -> (Vec<DiscordMessage>, Option<Snowflake>) {
    let full = page.len() >= asked;
    let mut oldest = None;
    let mut new = Vec::new();
    for one in page {
        let id = Snowflake::deserialize(&one["id"]).ok();
        oldest = [oldest, id].into_iter().flatten().min();
        if id.is_some_and(|id| id <= after) {
            continue;
        }
        match DiscordMessage::deserialize(&one) {
            Ok(message) => new.push(message),
            Err(error) => {
                let id = id.map_or_else(|| "without an id".to_owned(), |id| id.to_string());
                tracing::warn!("discord: missed message {id} cannot be read: {error}");
            }
        }
    }
    (new, oldest.filter(|oldest| full && *oldest > after))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_message_that_cannot_be_read_neither_hides_others_nor_ends_the_search() {
        let message = |id: u64| json!({"id": id.to_string(), "channel_id": "7", "content": "x"});
        let mut page: Vec<Value> = (11..=20).rev().map(message).collect();
        page[3]["channel_id"] = json!({"not": "an id"});
        let ids = |(new, next): (Vec<DiscordMessage>, Option<Snowflake>)| {
            let ids: Vec<u64> = new.iter().map(|one| one.id.0).collect();
            (ids, next.map(|id| id.0))
        };
        let (new, next) = ids(sift(page.clone(), 10, Snowflake(5)));
        assert_eq!(new, [20, 19, 18, 16, 15, 14, 13, 12, 11]);
        assert_eq!(next, Some(11), "a full page of news: there may be more");
        let (new, next) = ids(sift(page.clone(), 10, Snowflake(15)));
        assert_eq!((new, next), (vec![20, 19, 18, 16], None));
        assert_eq!(
            ids(sift(page, 100, Snowflake(5))).1,
            None,
            "that was the last page"
        );
    }
}

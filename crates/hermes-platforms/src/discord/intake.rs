//! Converts events to messages: an event is done only after its message is stored.
//!
//! Events of one channel are processed in order in one of a few lanes; a slow channel delays only
//! those in the same lane. Commands and button presses have separate lanes, because Discord expects
//! a reaction within three seconds.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use reqwest::Method;
use serde_json::{Value, json};
use tokio::sync::mpsc;

use super::missed::{DeferredReads, MissedMessages};
use super::progress::{EventProgress, EventTicket};
use super::read::{self, MessageLocation};
use super::rules::{MessageCase, MessageDecision};
use super::settings::DiscordBots;
use super::wire::{
    DiscordChannel, DiscordInteraction, DiscordMessage, DiscordUser, GuildMember, Snowflake,
};
use super::{DiscordShared, channels, missed};
use crate::platform::{AdapterLink, Applicant, IncomingMessage};
use crate::source::MessageSource;

/// Lanes for messages, and behind them lanes for commands and presses.
const MESSAGE_LANES: u64 = 8;
const INTERACTION_LANES: u64 = 4;
/// Capacity of a lane; a full lane stops reading the socket.
const LANE_CAPACITY: usize = 256;
/// Discord's patience with an interaction.
const INTERACTION_TIMEOUT: Duration = Duration::from_secs(3);

pub(super) enum DiscordWork {
    Message(EventTicket, Box<DiscordMessage>),
    Interaction(EventTicket, Box<DiscordInteraction>),
    Missed(MissedMessages),
}

impl DiscordWork {
    fn lane(&self) -> usize {
        let lane = match self {
            Self::Message(_, message) => message.channel_id.0 % MESSAGE_LANES,
            Self::Missed(missed) => missed.channel.0 % MESSAGE_LANES,
            Self::Interaction(_, used) => {
                MESSAGE_LANES + used.channel_id.unwrap_or_default().0 % INTERACTION_LANES
            }
        };
        lane as usize
    }
}

/// The entrances of the lanes.
pub(super) struct DiscordLanes(Vec<mpsc::Sender<DiscordWork>>);

impl DiscordLanes {
    pub(super) fn new() -> (Self, Vec<mpsc::Receiver<DiscordWork>>) {
        let lanes = (0..MESSAGE_LANES + INTERACTION_LANES).map(|_| mpsc::channel(LANE_CAPACITY));
        let (entrances, ends) = lanes.unzip();
        (Self(entrances), ends)
    }

    /// Waits while the lane is full. The receiver lives as long as this sender.
    pub(super) async fn push(&self, work: DiscordWork) {
        let _ = self.0[work.lane()].send(work).await;
    }

    pub(super) fn try_push(&self, work: DiscordWork) -> Result<(), DiscordWork> {
        let full = self.0[work.lane()].try_send(work);
        full.map_err(mpsc::error::TrySendError::into_inner)
    }
}

/// The result for a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum IntakeResult {
    Stored,
    /// It was stored before.
    Known,
    Ignored,
    /// Not stored, because the adapter is stopping.
    Stopped,
}

pub(super) struct DiscordIntake<'a> {
    pub shared: &'a DiscordShared,
    pub link: &'a AdapterLink,
    pub progress: &'a EventProgress,
    /// Our own id, once known.
    pub me: &'a AtomicU64,
}

impl DiscordIntake<'_> {
    pub(super) async fn lane(&self, mut works: mpsc::Receiver<DiscordWork>) {
        let mut later = DeferredReads::default();
        loop {
            let work = tokio::select! {
                work = works.recv() => match work {
                    Some(work) => work,
                    None => return,
                },
                missed = later.due() => DiscordWork::Missed(missed),
            };
            match work {
                DiscordWork::Message(ticket, message) => {
                    if self.message(&message).await != IntakeResult::Stopped {
                        self.progress.done(ticket);
                    }
                }
                DiscordWork::Interaction(ticket, used) => {
                    if self.interaction(&used).await != IntakeResult::Stopped {
                        self.progress.done(ticket);
                    }
                }
                DiscordWork::Missed(missed) => {
                    later.forget(missed.channel);
                    if !missed::read(self, &missed).await {
                        later.add(missed, &self.shared.timing);
                    }
                }
            }
        }
    }

    pub(super) fn me(&self) -> Snowflake {
        Snowflake(self.me.load(Ordering::Relaxed))
    }

    /// A message, live or missed.
    pub(super) async fn message(&self, message: &DiscordMessage) -> IntakeResult {
        let channel = self.channel(message.channel_id, message.guild_id).await;
        if channel.is_direct() {
            self.shared.memory.meet(channel.id, message.id).await;
        }
        let decision = self.judge(message, &channel).await;
        if decision != IntakeResult::Stopped {
            let memory = &self.shared.memory;
            memory.saw(message.channel_id, message.id, channel.is_direct());
        }
        decision
    }

    async fn channel(&self, id: Snowflake, guild: Option<Snowflake>) -> DiscordChannel {
        let (api, within) = (&self.shared.api, self.shared.timing.details);
        self.shared.places.channel(api, id, guild, within).await
    }

    async fn parent(&self, channel: &DiscordChannel) -> Option<DiscordChannel> {
        let parent = channel.parent_id.filter(|_| channel.is_thread())?;
        Some(self.channel(parent, channel.guild_id).await)
    }

    async fn judge(&self, message: &DiscordMessage, channel: &DiscordChannel) -> IntakeResult {
        let (shared, me) = (self.shared, self.me());
        let parent = self.parent(channel).await;
        let rules = &shared.settings.rules;
        let verdict = rules.judge(&MessageCase {
            message,
            me,
            channel,
            parent: parent.as_ref(),
            our_thread: channel.is_thread() && shared.memory.is_our_thread(&channel.id.to_string()),
        });
        let (thread, gap) = match verdict {
            MessageDecision::Ignore(why) => {
                tracing::trace!(message = %message.id, "discord: left alone: {why}");
                return IntakeResult::Ignored;
            }
            MessageDecision::Take { thread, gap } => (thread, gap),
        };
        let origin = self.location(channel, parent.as_ref(), message.guild_id);
        let mut source = origin.source(&message.author, message.member.as_ref(), message.id);
        let (member, bot) = (message.member.as_ref(), message.author.bot);
        let has_role = self.has_right(&message.author, member, &origin).await;
        let applicant = Applicant {
            source: &source,
            is_bot: bot,
            has_role,
        };
        let admitted = self.shared.admission.admits(applicant).await;
        let (text, media) = (read::text(message, me), read::media(message, me));
        // Nothing visible is done for unknown people; the gateway decides about them.
        let context = if gap && admitted {
            self.context(message).await
        } else {
            None
        };
        if text.is_empty() && media.is_empty() && context.is_none() {
            return IntakeResult::Ignored;
        }
        if thread && admitted && self.make_thread(message, &text).await {
            in_thread(&mut source, message.id, &text);
        }
        if let Some(thread) = source.thread_id.as_ref().filter(|_| admitted) {
            shared.memory.join(thread).await;
        }
        let incoming = IncomingMessage {
            account: String::new(),
            message_id: message.id.to_string(),
            source,
            text: if text.is_empty() && media.is_empty() {
                "(I was mentioned without a text; the earlier messages are meant.)".to_owned()
            } else {
                text
            },
            media,
            reply_to: read::reply_to(message, me),
            pressed: None,
            context,
            sent_at: message.id.epoch_seconds(),
            native: json!({"is_bot": bot, "has_role": has_role}),
        };
        self.store(incoming).await
    }

    fn location<'b>(
        &self,
        channel: &'b DiscordChannel,
        parent: Option<&'b DiscordChannel>,
        guild: Option<Snowflake>,
    ) -> MessageLocation<'b> {
        let guild = guild.or(channel.guild_id);
        MessageLocation {
            channel,
            parent,
            guild,
            guild_name: guild.and_then(|guild| self.shared.places.guild_name(guild)),
        }
    }

    /// Whether roles, a name on the list or the channel let this person in.
    async fn has_right(
        &self,
        user: &DiscordUser,
        member: Option<&GuildMember>,
        origin: &MessageLocation<'_>,
    ) -> bool {
        let rules = &self.shared.settings.rules;
        // Names without a discriminator are unique.
        if user.discriminator == "0" && rules.names.contains(&user.username.to_lowercase()) {
            return true;
        }
        if rules.place_admits(origin.channel, origin.parent) {
            return true;
        }
        if rules.roles.is_empty() || user.bot {
            return false;
        }
        let (api, within) = (&self.shared.api, self.shared.timing.details);
        let roles = match (member, origin.guild.filter(|_| !origin.channel.is_direct())) {
            (Some(member), Some(_)) => member.roles.clone(),
            (None, Some(guild)) => {
                channels::roles_of(api, &guild.to_string(), user.id, within).await
            }
            // A role on another server does not count unless that server is configured.
            (_, None) => match &rules.dm_role_guild {
                Some(guild) => channels::roles_of(api, guild, user.id, within).await,
                None => Vec::new(),
            },
        };
        roles
            .iter()
            .any(|role| rules.roles.contains(&role.to_string()))
    }

    /// Earlier messages since our last one.
    async fn context(&self, message: &DiscordMessage) -> Option<String> {
        let shared = self.shared;
        let limit = shared.settings.history;
        if limit == 0 {
            return None;
        }
        let (channel, before) = (message.channel_id, message.id);
        let path = format!("/channels/{channel}/messages?before={before}&limit={limit}");
        let within = shared.timing.details;
        let asked = shared.api.patiently(Method::GET, &path, None, within).await;
        let earlier: Vec<DiscordMessage> = match asked {
            Ok(value) => serde_json::from_value(value).unwrap_or_default(),
            Err(error) => {
                tracing::debug!("discord: what was said before: {error}");
                return None;
            }
        };
        let bots = shared.settings.rules.bots != DiscordBots::Ignored;
        read::context(&earlier, self.me(), bots)
    }

    /// Creates the thread for the answer. `false`: not possible, and the answer goes to the
    /// channel, so that no message is lost.
    async fn make_thread(&self, message: &DiscordMessage, text: &str) -> bool {
        let path = format!(
            "/channels/{}/messages/{}/threads",
            message.channel_id, message.id
        );
        let body = json!({"name": read::thread_name(text), "auto_archive_duration": 1440});
        let within = self.shared.timing.thread;
        let made = (self.shared.api)
            .patiently(Method::POST, &path, Some(&body), within)
            .await;
        match made {
            Ok(_) => true,
            // It exists already: an earlier process created it.
            Err(error) if error.code() == 160_004 => true,
            Err(error) => {
                tracing::warn!(
                    "discord: no thread for message {} (the answer goes into the channel): {error}",
                    message.id
                );
                false
            }
        }
    }

    /// Hands a message over until it is stored.
    async fn store(&self, incoming: IncomingMessage) -> IntakeResult {
        let mut pause = Duration::from_millis(200);
        loop {
            match self.link.hand_over(incoming.clone()).await {
                Some(true) => return IntakeResult::Stored,
                Some(false) => return IntakeResult::Known,
                None => {}
            }
            tokio::select! {
                () = self.link.cancel.cancelled() => return IntakeResult::Stopped,
                () = tokio::time::sleep(pause) => {}
            }
            pause = (pause * 2).min(Duration::from_secs(10));
        }
    }

    /// A command or a press.
    async fn interaction(&self, used: &DiscordInteraction) -> IntakeResult {
        let member = used.member.as_ref();
        let user = used.user.as_ref();
        let Some(user) = user.or_else(|| member?.user.as_ref()) else {
            return IntakeResult::Ignored;
        };
        let Some(id) = used.channel_id.or(used.channel.as_ref().map(|one| one.id)) else {
            return IntakeResult::Ignored;
        };
        if let Some(channel) = used.channel.clone().filter(|one| one.name.is_some()) {
            self.shared.places.remember(DiscordChannel {
                guild_id: used.guild_id,
                ..channel
            });
        }
        let channel = self.channel(id, used.guild_id).await;
        let parent = self.parent(&channel).await;
        let rules = &self.shared.settings.rules;
        if used.guild_id.is_some() && rules.refuses(&channel, parent.as_ref()).is_some() {
            self.answer(used, &note("I do not answer in this channel."))
                .await;
            return IntakeResult::Ignored;
        }
        let origin = self.location(&channel, parent.as_ref(), used.guild_id);
        let source = origin.source(user, member, used.id);
        let has_role = self.has_right(user, member, &origin).await;
        let native = json!({"is_bot": user.bot, "has_role": has_role});
        let Some(incoming) = read::interaction(used, source, &native) else {
            return IntakeResult::Ignored;
        };
        let answer = match &incoming.pressed {
            Some(_) => json!({"type": 6}),
            None => note(&format!("`{}`", incoming.text.replace('`', "'"))),
        };
        let decision = self.store(incoming).await;
        if decision == IntakeResult::Stored {
            self.answer(used, &answer).await;
        }
        decision
    }

    /// Acknowledges an interaction. A stored one is answered in the chat even if this fails.
    async fn answer(&self, used: &DiscordInteraction, answer: &Value) {
        let path = format!("/interactions/{}/{}/callback", used.id, used.token);
        let call = self.shared.api.call(Method::POST, &path, Some(answer));
        match tokio::time::timeout(INTERACTION_TIMEOUT, call).await {
            Ok(Ok(_)) => {}
            // Too late, or acknowledged by an earlier process.
            Ok(Err(error)) => tracing::debug!("discord: an interaction: {error}"),
            Err(_) => tracing::debug!("discord: an interaction: no answer in time"),
        }
    }
}

/// A message that only the person sees.
fn note(text: &str) -> Value {
    let text: String = text.chars().take(1900).collect();
    json!({"type": 4, "data": {
        "content": text, "flags": 64, "allowed_mentions": {"parse": []},
    }})
}

/// A thread created for a message has the message's id.
fn in_thread(source: &mut MessageSource, message: Snowflake, text: &str) {
    let thread = message.to_string();
    let name = read::thread_name(text);
    source.parent_chat_id = Some(std::mem::replace(&mut source.chat_id, thread.clone()));
    source.thread_id = Some(thread);
    "thread".clone_into(&mut source.chat_type);
    let parent = source.chat_name.take().unwrap_or_default();
    source.chat_name = Some(format!("{parent} / {name}"));
    source.auto_thread_created = true;
    source.auto_thread_initial_name = Some(name);
}

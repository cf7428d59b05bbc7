//! Selects and parses the events that are for us.

use serde_json::Value;

use super::memory::{SlackMemory, ThreadRole};
use super::rich;
use super::settings::{SlackBots, SlackSettings};
use super::team::SlackTeam;

/// A message for us, before its details are looked up.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct SlackMessage {
    pub channel: String,
    /// `im`, `mpim`, `channel` or `group`.
    pub kind: String,
    /// Empty for some programs.
    pub user: String,
    pub ts: String,
    /// The thread that it is in.
    pub thread: Option<String>,
    /// The thread of its session, to which answers go.
    pub session: Option<String>,
    /// In Slack's notation, without the mention of us.
    pub text: String,
    /// Earlier replies are unknown.
    pub wants_context: bool,
    pub event: Value,
}

impl SlackMessage {
    pub(super) fn is_dm(&self) -> bool {
        matches!(self.kind.as_str(), "im" | "mpim")
    }

    /// Written by another program.
    pub(super) fn is_program(&self) -> bool {
        is_program(&self.event)
    }
}

fn is_program(event: &Value) -> bool {
    event["bot_id"].as_str().is_some_and(|id| !id.is_empty()) || event["subtype"] == "bot_message"
}

/// `Err`: why it is not for us.
pub(super) fn read_message(
    event: &Value,
    team: &SlackTeam,
    settings: &SlackSettings,
    memory: &SlackMemory,
) -> Result<SlackMessage, &'static str> {
    let field = |name: &str| event[name].as_str().unwrap_or_default();
    if !matches!(field("type"), "message" | "app_mention") {
        return Err("another kind of event");
    }
    if !matches!(
        field("subtype"),
        "" | "file_share" | "thread_broadcast" | "bot_message" | "me_message"
    ) {
        return Err("a notice");
    }
    let (channel, ts, user) = (field("channel"), field("ts"), field("user"));
    if channel.is_empty() || ts.is_empty() {
        return Err("not a message");
    }
    let raw = &*rich::message_text(event, is_program(event));
    let named = raw.contains(&format!("<@{}>", team.bot_user)) || {
        let labelled = format!("<@{}|", team.bot_user);
        raw.contains(&labelled)
    };
    let mentioned = named
        || settings
            .mention_patterns
            .iter()
            .any(|pattern| pattern.is_match(raw));
    programs(event, team, settings, named)?;
    let kind = kind(event, channel, memory);
    let thread = Some(field("thread_ts")).filter(|thread| !thread.is_empty() && *thread != ts);
    let part = thread.and_then(|thread| memory.thread(channel, thread));
    if kind != "im" {
        gate(settings, channel, mentioned, part)?;
    }
    let session = match (thread, kind.as_str()) {
        (Some(thread), _) => Some(thread),
        (None, "im" | "mpim") => settings.dm_threads.then_some(ts),
        (None, _) => settings.reply_in_thread.then_some(ts),
    };
    Ok(SlackMessage {
        channel: channel.to_owned(),
        kind,
        user: user.to_owned(),
        ts: ts.to_owned(),
        thread: thread.map(str::to_owned),
        session: session.map(str::to_owned),
        text: without_mention(raw, &team.bot_user),
        wants_context: thread.is_some() && part != Some(ThreadRole::Joined),
        event: event.clone(),
    })
}

/// Messages of other programs are accepted only if configured, our own never.
fn programs(
    event: &Value,
    team: &SlackTeam,
    settings: &SlackSettings,
    named: bool,
) -> Result<(), &'static str> {
    let field = |name: &str| event[name].as_str().unwrap_or_default();
    let user = field("user");
    if user == team.bot_user || (!team.bot_id.is_empty() && field("bot_id") == team.bot_id) {
        return Err("our own");
    }
    if user == "USLACKBOT" {
        return Err("Slackbot");
    }
    match settings.bots {
        _ if !is_program(event) => Ok(()),
        SlackBots::All => Ok(()),
        SlackBots::Mentions if named => Ok(()),
        SlackBots::None | SlackBots::Mentions => Err("of another program"),
    }
}

/// In channels we only react when addressed.
fn gate(
    settings: &SlackSettings,
    channel: &str,
    mentioned: bool,
    part: Option<ThreadRole>,
) -> Result<(), &'static str> {
    if !settings.allowed_channels.is_empty() && !settings.allowed_channels.contains(channel) {
        return Err("a conversation that is not allowed");
    }
    let free = settings.free_channels.contains(channel) || !settings.require_mention;
    let known = part.is_some() && !settings.strict_mention;
    if free || mentioned || known {
        return Ok(());
    }
    Err("not to us")
}

/// Mention events lack it: taken from earlier messages, else derived from the first letter.
fn kind(event: &Value, channel: &str, memory: &SlackMemory) -> String {
    if let Some(kind) = event["channel_type"].as_str() {
        return kind.to_owned();
    }
    if let Some(known_conversation) = memory.conversation(channel) {
        return known_conversation.kind;
    }
    let kind = if channel.starts_with('D') {
        "im"
    } else {
        "channel"
    };
    kind.to_owned()
}

fn without_mention(text: &str, bot_user: &str) -> String {
    let mut out = text.replace(&format!("<@{bot_user}>"), "");
    let labelled = format!("<@{bot_user}|");
    while let Some(at) = out.find(&labelled) {
        let end = out[at..].find('>').map_or(out.len(), |end| at + end + 1);
        out.replace_range(at..end, "");
    }
    out.trim().to_owned()
}

/// `!name rest` for commands: Slack reserves slashes in threads.
pub(super) fn command(text: &str, known: impl Fn(&str) -> bool) -> Option<String> {
    let rest = text.strip_prefix('!')?;
    let word = rest.split_whitespace().next()?;
    let name = word.split('@').next()?.to_ascii_lowercase();
    (!rest.starts_with(char::is_whitespace) && known(&name)).then(|| format!("/{rest}"))
}

#[cfg(test)]
#[path = "message_tests.rs"]
mod tests;

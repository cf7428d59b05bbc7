//! Which messages are addressed to us. Pure functions.

use super::settings::{DiscordBots, DiscordRules};
use super::wire::{DiscordChannel, DiscordMessage, Snowflake};

/// The inputs of the decision.
pub(super) struct MessageCase<'a> {
    pub message: &'a DiscordMessage,
    pub me: Snowflake,
    pub channel: &'a DiscordChannel,
    /// The channel that a thread belongs to.
    pub parent: Option<&'a DiscordChannel>,
    /// We have written in this thread, or it was created for us.
    pub our_thread: bool,
}

/// The decision about a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum MessageDecision {
    /// Ignored, with the reason.
    Ignore(&'static str),
    Take {
        /// The answer goes to a new thread.
        thread: bool,
        /// There may be earlier messages that we have not seen.
        gap: bool,
    },
}

impl DiscordRules {
    pub(super) fn judge(&self, case: &MessageCase<'_>) -> MessageDecision {
        let message = case.message;
        if message.author.id == case.me {
            return MessageDecision::Ignore("our own");
        }
        if !message.is_talk() {
            return MessageDecision::Ignore("not a user message");
        }
        // The starter message is announced again as the first message of its thread.
        if message.id == message.channel_id {
            return MessageDecision::Ignore("the beginning of a thread");
        }
        let written = is_written(&message.content, case.me);
        let mentioned = written || message.mentions.iter().any(|user| user.id == case.me);
        if message.author.bot || message.webhook_id.is_some() {
            let is_allowed = match self.bots {
                DiscordBots::Ignored => false,
                DiscordBots::Mentions => mentioned,
                DiscordBots::All => true,
            };
            if !is_allowed || (self.bots_inline && !written) {
                return MessageDecision::Ignore("a bot");
            }
        }
        if case.channel.is_direct() || message.guild_id.is_none() {
            return MessageDecision::Take {
                thread: false,
                gap: false,
            };
        }
        self.in_a_server(case, mentioned)
    }

    fn in_a_server(&self, case: &MessageCase<'_>, mentioned: bool) -> MessageDecision {
        let message = case.message;
        if let Some(refused) = self.refuses(case.channel, case.parent) {
            return MessageDecision::Ignore(refused);
        }
        let free = names_any(&self.free_channels, case.channel, case.parent);
        if !mentioned && !message.mentions.is_empty() {
            let others = message.mentions.iter().any(|user| user.bot);
            if others || (self.ignore_no_mention && !free) {
                return MessageDecision::Ignore("for someone else");
            }
        }
        let ours = case.our_thread && !self.thread_require_mention;
        let gated = self.require_mention && !free && !ours;
        if gated && !mentioned {
            return MessageDecision::Ignore("we are not mentioned");
        }
        let is_thread = case.channel.is_thread();
        let thread = self.auto_thread
            && !is_thread
            && !free
            // Threads can be created in text and announcement channels.
            && matches!(case.channel.kind, 0 | 5)
            && message.kind != 19
            && !names_any(&self.no_thread_channels, case.channel, None);
        MessageDecision::Take {
            thread,
            gap: !thread && (gated || is_thread || message.refers.is_some()),
        }
    }

    /// Whether messages of a channel are ignored.
    pub(super) fn refuses(
        &self,
        channel: &DiscordChannel,
        parent: Option<&DiscordChannel>,
    ) -> Option<&'static str> {
        if names_any(&self.ignored_channels, channel, parent) {
            return Some("a channel that is ignored");
        }
        let allowed =
            self.allowed_channels.is_empty() || names_any(&self.allowed_channels, channel, parent);
        (!allowed).then_some("not a channel that is allowed")
    }

    /// Whether the channel alone admits people: no users are listed, but this channel is.
    pub(super) fn place_admits(
        &self,
        channel: &DiscordChannel,
        parent: Option<&DiscordChannel>,
    ) -> bool {
        !self.anybody_listed
            && !channel.is_direct()
            && (names(&self.allowed_channels, channel)
                || parent.is_some_and(|parent| names(&self.allowed_channels, parent)))
    }
}

fn names_any(
    list: &std::collections::HashSet<String>,
    channel: &DiscordChannel,
    parent: Option<&DiscordChannel>,
) -> bool {
    list.contains("*") || names(list, channel) || parent.is_some_and(|parent| names(list, parent))
}

/// By id, or by name.
fn names(list: &std::collections::HashSet<String>, channel: &DiscordChannel) -> bool {
    if list.is_empty() {
        return false;
    }
    list.contains(&channel.id.to_string())
        || channel
            .name
            .as_ref()
            .is_some_and(|name| list.contains(name))
}

/// Whether a text mentions us.
fn is_written(text: &str, me: Snowflake) -> bool {
    text.contains(&format!("<@{me}>")) || text.contains(&format!("<@!{me}>"))
}

/// The text without mentions of us.
pub(super) fn without_mention(text: &str, me: Snowflake) -> String {
    let text = text.replace(&format!("<@{me}>"), "");
    text.replace(&format!("<@!{me}>"), "").trim().to_owned()
}

#[cfg(test)]
mod tests {
    use super::super::wire::{DiscordUser, MessageReference};
    use super::*;

    const ME: Snowflake = Snowflake(1);

    fn rules() -> DiscordRules {
        DiscordRules {
            require_mention: true,
            ignore_no_mention: true,
            auto_thread: true,
            ..DiscordRules::default()
        }
    }

    fn said(content: &str) -> DiscordMessage {
        let mention = content.contains("<@1>");
        let other = content.contains("<@5>");
        let user = |id| DiscordUser {
            id: Snowflake(id),
            ..DiscordUser::default()
        };
        let mut mentions = Vec::new();
        mentions.extend(mention.then(|| user(1)));
        mentions.extend(other.then(|| user(5)));
        DiscordMessage {
            id: Snowflake(100),
            channel_id: Snowflake(20),
            guild_id: Some(Snowflake(30)),
            author: user(2),
            content: content.to_owned(),
            mentions,
            ..DiscordMessage::default()
        }
    }

    fn room(kind: u64) -> DiscordChannel {
        DiscordChannel {
            id: Snowflake(20),
            kind,
            name: Some("general".to_owned()),
            ..DiscordChannel::default()
        }
    }

    fn judge(
        rules: &DiscordRules,
        message: &DiscordMessage,
        kind: u64,
        our_thread: bool,
    ) -> MessageDecision {
        rules.judge(&MessageCase {
            message,
            me: ME,
            channel: &room(kind),
            parent: None,
            our_thread,
        })
    }

    fn taken(verdict: MessageDecision) -> bool {
        matches!(verdict, MessageDecision::Take { .. })
    }

    #[test]
    fn a_channel_wants_a_mention_and_gets_a_thread() {
        let rules = rules();
        assert!(!taken(judge(&rules, &said("hello"), 0, false)));
        let mention = judge(&rules, &said("<@1> hello"), 0, false);
        assert_eq!(
            mention,
            MessageDecision::Take {
                thread: true,
                gap: false
            }
        );
        let mut answer = said("<@1> hello");
        answer.kind = 19;
        answer.refers = Some(MessageReference::default());
        let verdict = judge(&rules, &answer, 0, false);
        assert_eq!(
            verdict,
            MessageDecision::Take {
                thread: false,
                gap: true
            }
        );
        let mut private = said("hello");
        private.guild_id = None;
        assert_eq!(
            judge(&rules, &private, 1, false),
            MessageDecision::Take {
                thread: false,
                gap: false
            }
        );
    }

    #[test]
    fn threads_that_are_ours_need_no_mention() {
        let mut rules = rules();
        assert!(!taken(judge(&rules, &said("more"), 11, false)));
        assert!(taken(judge(&rules, &said("more"), 11, true)));
        rules.thread_require_mention = true;
        assert!(!taken(judge(&rules, &said("more"), 11, true)));
    }

    #[test]
    fn lists_of_channels_go_by_id_and_name() {
        let mut rules = rules();
        rules.free_channels.insert("general".to_owned());
        let free = judge(&rules, &said("hello"), 0, false);
        assert_eq!(
            free,
            MessageDecision::Take {
                thread: false,
                gap: false
            }
        );
        rules.ignored_channels.insert("20".to_owned());
        assert!(!taken(judge(&rules, &said("<@1> hello"), 0, false)));
        rules.ignored_channels.clear();
        rules.allowed_channels.insert("21".to_owned());
        assert!(!taken(judge(&rules, &said("<@1> hello"), 0, false)));
        rules.allowed_channels.insert("*".to_owned());
        assert!(taken(judge(&rules, &said("<@1> hello"), 0, false)));
        assert!(!rules.place_admits(&room(0), None));
        rules.allowed_channels.insert("20".to_owned());
        assert!(rules.place_admits(&room(0), None));
        rules.anybody_listed = true;
        assert!(!rules.place_admits(&room(0), None));
    }

    #[test]
    fn what_is_for_others_is_left_to_them() {
        let mut rules = rules();
        rules.require_mention = false;
        assert!(!taken(judge(&rules, &said("<@5> hello"), 0, false)));
        assert!(taken(judge(&rules, &said("<@5> <@1> hello"), 0, false)));
        rules.ignore_no_mention = false;
        assert!(taken(judge(&rules, &said("<@5> hello"), 0, false)));
        let mut bot = said("<@1> hello");
        bot.author.bot = true;
        assert!(!taken(judge(&rules, &bot, 0, false)));
        rules.bots = DiscordBots::Mentions;
        assert!(taken(judge(&rules, &bot, 0, false)));
        rules.bots_inline = true;
        bot.content = "hello".to_owned();
        assert!(!taken(judge(&rules, &bot, 0, false)));
    }

    #[test]
    fn a_mention_is_not_part_of_the_text() {
        assert_eq!(without_mention("<@1> do <@!1> it", ME), "do  it");
    }
}

//! Which messages are meant for us. Pure: what is decided depends on nothing else.

use super::settings::{Bots, Rules};
use super::wire::{Channel, Id, Message};

/// What a message is decided by.
pub(super) struct Case<'a> {
    pub message: &'a Message,
    pub me: Id,
    pub channel: &'a Channel,
    /// The channel that a thread belongs to.
    pub parent: Option<&'a Channel>,
    /// We have spoken in this thread, or it was made for us.
    pub our_thread: bool,
}

/// What becomes of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// It is not for us, and why.
    Ignore(&'static str),
    Take {
        /// Its answer goes into a thread that is made for it.
        thread: bool,
        /// Others may have said things here that we did not hear.
        gap: bool,
    },
}

impl Rules {
    pub(super) fn judge(&self, case: &Case<'_>) -> Verdict {
        let message = case.message;
        if message.author.id == case.me {
            return Verdict::Ignore("our own");
        }
        if !message.is_talk() {
            return Verdict::Ignore("not something that somebody says");
        }
        // What begins a thread is announced a second time as the thread's first message.
        if message.id == message.channel_id {
            return Verdict::Ignore("the beginning of a thread");
        }
        let written = is_written(&message.content, case.me);
        let mentioned = written || message.mentions.iter().any(|user| user.id == case.me);
        if message.author.bot || message.webhook_id.is_some() {
            let heard = match self.bots {
                Bots::Ignored => false,
                Bots::Mentions => mentioned,
                Bots::All => true,
            };
            if !heard || (self.bots_inline && !written) {
                return Verdict::Ignore("a bot");
            }
        }
        if case.channel.is_direct() || message.guild_id.is_none() {
            return Verdict::Take {
                thread: false,
                gap: false,
            };
        }
        self.in_a_server(case, mentioned)
    }

    fn in_a_server(&self, case: &Case<'_>, mentioned: bool) -> Verdict {
        let message = case.message;
        if let Some(refused) = self.refuses(case.channel, case.parent) {
            return Verdict::Ignore(refused);
        }
        let free = names_any(&self.free_channels, case.channel, case.parent);
        if !mentioned && !message.mentions.is_empty() {
            let others = message.mentions.iter().any(|user| user.bot);
            if others || (self.ignore_no_mention && !free) {
                return Verdict::Ignore("for somebody else");
            }
        }
        let ours = case.our_thread && !self.thread_require_mention;
        let gated = self.require_mention && !free && !ours;
        if gated && !mentioned {
            return Verdict::Ignore("we are not mentioned");
        }
        let is_thread = case.channel.is_thread();
        let thread = self.auto_thread
            && !is_thread
            && !free
            // Threads can be made in channels for text and for announcements.
            && matches!(case.channel.kind, 0 | 5)
            && message.kind != 19
            && !names_any(&self.no_thread_channels, case.channel, None);
        Verdict::Take {
            thread,
            gap: !thread && (gated || is_thread || message.refers.is_some()),
        }
    }

    /// Channels that nothing is taken from.
    pub(super) fn refuses(
        &self,
        channel: &Channel,
        parent: Option<&Channel>,
    ) -> Option<&'static str> {
        if names_any(&self.ignored_channels, channel, parent) {
            return Some("a channel that is ignored");
        }
        let allowed =
            self.allowed_channels.is_empty() || names_any(&self.allowed_channels, channel, parent);
        (!allowed).then_some("not a channel that is allowed")
    }

    /// Whether the place alone lets people in: nobody is listed, and this channel is.
    pub(super) fn place_admits(&self, channel: &Channel, parent: Option<&Channel>) -> bool {
        !self.anybody_listed
            && !channel.is_direct()
            && (names(&self.allowed_channels, channel)
                || parent.is_some_and(|parent| names(&self.allowed_channels, parent)))
    }
}

fn names_any(
    list: &std::collections::HashSet<String>,
    channel: &Channel,
    parent: Option<&Channel>,
) -> bool {
    list.contains("*") || names(list, channel) || parent.is_some_and(|parent| names(list, parent))
}

/// By id, or by name.
fn names(list: &std::collections::HashSet<String>, channel: &Channel) -> bool {
    if list.is_empty() {
        return false;
    }
    list.contains(&channel.id.to_string())
        || channel
            .name
            .as_ref()
            .is_some_and(|name| list.contains(name))
}

/// Whether a text has our name in it.
fn is_written(text: &str, me: Id) -> bool {
    text.contains(&format!("<@{me}>")) || text.contains(&format!("<@!{me}>"))
}

/// A text without our name.
pub(super) fn without_mention(text: &str, me: Id) -> String {
    let text = text.replace(&format!("<@{me}>"), "");
    text.replace(&format!("<@!{me}>"), "").trim().to_owned()
}

#[cfg(test)]
mod tests {
    use super::super::wire::{Reference, User};
    use super::*;

    const ME: Id = Id(1);

    fn rules() -> Rules {
        Rules {
            require_mention: true,
            ignore_no_mention: true,
            auto_thread: true,
            ..Rules::default()
        }
    }

    fn said(content: &str) -> Message {
        let mention = content.contains("<@1>");
        let other = content.contains("<@5>");
        let user = |id| User {
            id: Id(id),
            ..User::default()
        };
        let mut mentions = Vec::new();
        mentions.extend(mention.then(|| user(1)));
        mentions.extend(other.then(|| user(5)));
        Message {
            id: Id(100),
            channel_id: Id(20),
            guild_id: Some(Id(30)),
            author: user(2),
            content: content.to_owned(),
            mentions,
            ..Message::default()
        }
    }

    fn room(kind: u64) -> Channel {
        Channel {
            id: Id(20),
            kind,
            name: Some("general".to_owned()),
            ..Channel::default()
        }
    }

    fn judge(rules: &Rules, message: &Message, kind: u64, our_thread: bool) -> Verdict {
        rules.judge(&Case {
            message,
            me: ME,
            channel: &room(kind),
            parent: None,
            our_thread,
        })
    }

    fn taken(verdict: Verdict) -> bool {
        matches!(verdict, Verdict::Take { .. })
    }

    #[test]
    fn a_channel_wants_a_mention_and_gets_a_thread() {
        let rules = rules();
        assert!(!taken(judge(&rules, &said("hello"), 0, false)));
        let mention = judge(&rules, &said("<@1> hello"), 0, false);
        assert_eq!(
            mention,
            Verdict::Take {
                thread: true,
                gap: false
            }
        );
        let mut answer = said("<@1> hello");
        answer.kind = 19;
        answer.refers = Some(Reference::default());
        let verdict = judge(&rules, &answer, 0, false);
        assert_eq!(
            verdict,
            Verdict::Take {
                thread: false,
                gap: true
            }
        );
        let mut private = said("hello");
        private.guild_id = None;
        assert_eq!(
            judge(&rules, &private, 1, false),
            Verdict::Take {
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
            Verdict::Take {
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
        rules.bots = Bots::Mentions;
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

//! A message from the database.

use hermes_core::slash::{self, Parsed, Verb};
use hermes_platforms::{IncomingMessage, MessageSource, definition, webhook};
use hermes_store::delivery::{Target, WaitingMessage};

use crate::session::SessionSharing;

#[derive(Clone, Debug)]
pub(super) struct InboxMessage {
    pub(super) id: i64,
    /// The turn that claimed it.
    pub(super) turn: Option<String>,
    /// How often it was claimed.
    pub(super) claims: u32,
    pub(super) received_at: f64,
    pub(super) incoming: IncomingMessage,
}

impl InboxMessage {
    /// `Err`: it cannot be read.
    pub(super) fn read(waiting: WaitingMessage) -> Result<Self, (i64, u32, serde_json::Error)> {
        let (id, claims) = (waiting.id, waiting.claims);
        match serde_json::from_value(waiting.message.payload) {
            Ok(incoming) => Ok(Self {
                id,
                turn: waiting.turn,
                claims,
                received_at: waiting.received_at,
                incoming,
            }),
            Err(error) => Err((id, claims, error)),
        }
    }

    /// Without the command prefix that only selects how the text is handled.
    pub(super) fn unwrapped(mut self) -> Self {
        let line = self.command_line();
        let arguments = line.as_deref().and_then(|line| match slash::parse(line) {
            Parsed::Command(def, rest) => {
                matches!(def.verb, Verb::Queue | Verb::Steer).then(|| rest.to_owned())
            }
            _ => None,
        });
        if let Some(arguments) = arguments.filter(|arguments| !arguments.is_empty()) {
            self.incoming.text = arguments;
        }
        self
    }

    pub(super) fn source(&self) -> &MessageSource {
        &self.incoming.source
    }

    /// The target of its answer.
    pub(super) fn target(&self) -> Target {
        if let Some(target) = webhook::answer_to(&self.incoming) {
            return target;
        }
        let source = self.source();
        Target {
            platform: source.platform.clone(),
            account: self.incoming.account.clone(),
            chat_id: source.chat_id.clone(),
            thread_id: source.thread_id.clone(),
        }
    }

    /// The id of the next attempt: unique, because every attempt is counted.
    pub(super) fn attempt(&self, kind: &str) -> String {
        format!("{kind}-{}-{}", self.id, self.claims + 1)
    }

    /// The text for the model, prefixed with the sender's name in shared conversations.
    pub(super) fn text_with_sender(&self, sharing: SessionSharing) -> String {
        let text = self.incoming.text.trim();
        let source = self.source();
        let mut words = match &self.incoming.reply_to {
            Some(reply) => match &reply.text {
                Some(quoted) if !quoted.trim().is_empty() => {
                    let quoted: String = quoted.trim().chars().take(500).collect();
                    let quoted = serde_json::Value::from(quoted);
                    format!("[replying to: {quoted}]\n{text}")
                }
                _ => text.to_owned(),
            },
            None => text.to_owned(),
        };
        if sharing.shares(source)
            && let Some(name) = source.user_name.as_ref().or(source.user_id.as_ref())
        {
            let name: String = name
                .chars()
                .filter(|ch| !ch.is_control())
                .take(64)
                .collect();
            words = format!("[{name}] {words}");
        }
        words
    }

    /// The command line: `/name rest`. On platforms whose clients reserve the slash, an exclamation
    /// mark works instead.
    pub(super) fn command_line(&self) -> Option<String> {
        if !self.incoming.media.is_empty() || self.incoming.pressed.is_some() {
            return None;
        }
        let text = self.incoming.text.trim();
        let rest = match text.strip_prefix('/') {
            Some(rest) => rest,
            None if has_bang_commands(&self.source().platform) => {
                let rest = text.strip_prefix('!')?;
                // "!!" and "! wow" are normal text.
                rest.starts_with(|ch: char| ch.is_ascii_alphabetic())
                    .then_some(rest)?
            }
            None => return None,
        };
        let (name, args) = rest.split_once(char::is_whitespace).unwrap_or((rest, ""));
        // `/cmd@bot`
        let name = name.split('@').next().unwrap_or(name);
        // Phone keyboards turn two dashes into one.
        let args = args.trim().replace('—', "--");
        let line = format!("/{name} {args}");
        let line = line.trim().to_owned();
        (!matches!(slash::parse(&line), Parsed::Text)).then_some(line)
    }
}

/// Whether `!name` is a command; Matrix exists in the original only.
fn has_bang_commands(platform: &str) -> bool {
    platform == "matrix" || definition(platform).is_some_and(|one| one.bang_commands)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn msg(platform: &str, text: &str) -> InboxMessage {
        let incoming = serde_json::json!({
            "message_id": "1", "text": text, "sent_at": 0.0,
            "source": {"platform": platform, "chat_id": "c", "chat_type": "group",
                "user_id": "7", "user_name": "Ann\n"},
        });
        InboxMessage {
            id: 5,
            turn: None,
            claims: 1,
            received_at: 0.0,
            incoming: serde_json::from_value(incoming).unwrap(),
        }
    }

    #[test]
    fn commands_are_told_from_talk() {
        let cases = [
            ("telegram", "/stop@my_bot", Some("/stop")),
            ("telegram", " /model x —global", Some("/model x --global")),
            ("telegram", "/etc/hosts is odd", None),
            ("telegram", "!stop", None),
            ("slack", "!stop", Some("/stop")),
            ("slack", "!!", None),
            ("slack", "hello", None),
        ];
        for (platform, text, line) in cases {
            assert_eq!(
                msg(platform, text).command_line().as_deref(),
                line,
                "{text}"
            );
        }
    }

    #[test]
    fn names_stand_before_words_where_several_talk() {
        let msg = msg("slack", "hi");
        let together = SessionSharing {
            group_per_user: false,
            ..SessionSharing::default()
        };
        assert_eq!(msg.text_with_sender(together), "[Ann] hi");
        assert_eq!(msg.text_with_sender(SessionSharing::default()), "hi");
        assert_eq!(msg.attempt("turn"), "turn-5-2");
    }
}

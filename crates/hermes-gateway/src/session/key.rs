//! The key of the conversation that a message belongs to.

use std::fmt;

use hermes_platforms::MessageSource;
use serde::{Deserialize, Serialize};

/// Whether people in groups and threads share a conversation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SessionSharing {
    /// `group_sessions_per_user`: each person in a group talks alone.
    pub group_per_user: bool,
    /// `thread_sessions_per_user`: each person in a thread talks alone.
    pub thread_per_user: bool,
}

impl Default for SessionSharing {
    fn default() -> Self {
        Self {
            group_per_user: true,
            thread_per_user: false,
        }
    }
}

impl SessionSharing {
    /// Whether several people talk in this conversation.
    pub fn shares(self, source: &MessageSource) -> bool {
        if source.chat_type == "dm" {
            return false;
        }
        // Threads are separated by user only where groups are, too.
        if non_empty(source.thread_id.as_ref()).is_some() && !self.thread_per_user {
            return true;
        }
        !self.group_per_user
    }
}

/// The key of a conversation: `agent:<main|profile>:<platform>:<chat type>[:chat][:thread][:user]`.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct SessionKey(String);

/// The parts of a key. Ids may contain colons, so the rest is not split.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeyParts<'a> {
    /// `None`: the default profile.
    pub profile: Option<&'a str>,
    pub platform: &'a str,
    pub chat_type: &'a str,
    pub rest: &'a str,
}

impl SessionKey {
    pub fn new(key: impl Into<String>) -> Self {
        Self(key.into())
    }

    /// The key of the conversation, for platforms with unique ids. WhatsApp ids must be
    /// canonicalized first with [`canonical_whatsapp_id`](super::canonical_whatsapp_id)
    /// ([`SessionKey::of_canonical`]).
    pub fn new_for(source: &MessageSource, sharing: SessionSharing) -> Self {
        Self::of_canonical(source, sharing, str::to_owned)
    }

    /// The same, with the ids of people normalized by `canonical`.
    pub fn of_canonical(
        source: &MessageSource,
        sharing: SessionSharing,
        canonical: impl Fn(&str) -> String,
    ) -> Self {
        let whatsapp = source.platform == "whatsapp";
        let person = |id: &str| {
            let one = if whatsapp {
                canonical(id)
            } else {
                id.to_owned()
            };
            if one.is_empty() { id.to_owned() } else { one }
        };
        let participant =
            non_empty(source.user_id_alt.as_ref()).or_else(|| non_empty(source.user_id.as_ref()));
        let thread = non_empty(source.thread_id.as_ref());
        let mut parts = vec![
            "agent".to_owned(),
            source
                .profile
                .as_deref()
                .filter(|profile| !profile.is_empty() && *profile != "default")
                .unwrap_or("main")
                .to_owned(),
            source.platform.clone(),
            source.chat_type.clone(),
        ];
        if source.chat_type == "dm" {
            let chat = if whatsapp {
                canonical(&source.chat_id)
            } else {
                source.chat_id.clone()
            };
            if !chat.is_empty() {
                parts.push(chat);
            } else if let Some(participant) = participant {
                parts.push(person(participant));
            }
            parts.extend(thread.map(str::to_owned));
            return Self(parts.join(":"));
        }
        parts.extend(Some(source.chat_id.clone()).filter(|id| !id.is_empty()));
        parts.extend(thread.map(str::to_owned));
        if !sharing.shares(source) {
            parts.extend(participant.map(person));
        }
        Self(parts.join(":"))
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }

    pub fn into_string(self) -> String {
        self.0
    }

    /// `None`: not a key of a chat.
    pub fn parts(&self) -> Option<KeyParts<'_>> {
        let mut parts = self.0.splitn(5, ':');
        if parts.next()? != "agent" {
            return None;
        }
        Some(KeyParts {
            profile: parts.next().filter(|name| *name != "main"),
            platform: parts.next()?,
            chat_type: parts.next()?,
            rest: parts.next().unwrap_or_default(),
        })
    }

    /// Whether the key could lead out of a directory if it were ever used as a path. Slashes
    /// inside are part of some platforms' ids.
    pub fn is_safe(&self) -> bool {
        let key = self.0.as_bytes();
        !(self.0.contains("..")
            || self.0.starts_with(['/', '\\'])
            || (key.len() >= 2 && key[0].is_ascii_alphabetic() && key[1] == b':'))
    }
}

impl fmt::Display for SessionKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

fn non_empty(text: Option<&String>) -> Option<&str> {
    text.map(String::as_str).filter(|text| !text.is_empty())
}

#[cfg(test)]
mod tests {
    use pretty_assertions::assert_eq;

    use super::*;

    fn source(platform: &str, chat_type: &str, chat: &str) -> MessageSource {
        MessageSource {
            platform: platform.to_owned(),
            chat_type: chat_type.to_owned(),
            chat_id: chat.to_owned(),
            user_id: Some("7".to_owned()),
            ..MessageSource::default()
        }
    }

    fn with(mut source: MessageSource, change: impl Fn(&mut MessageSource)) -> MessageSource {
        change(&mut source);
        source
    }

    #[test]
    fn keys_follow_the_kind_of_chat() {
        let thread = |source: &mut MessageSource| source.thread_id = Some("t".to_owned());
        let alt = |source: &mut MessageSource| source.user_id_alt = Some("alt".to_owned());
        let alone = SessionSharing {
            thread_per_user: true,
            ..SessionSharing::default()
        };
        let together = SessionSharing {
            group_per_user: false,
            ..SessionSharing::default()
        };
        let default = SessionSharing::default();
        let dm = source("telegram", "dm", "5");
        let group = source("discord", "group", "-9");
        let cases = [
            (dm.clone(), default, "agent:main:telegram:dm:5"),
            (
                with(dm.clone(), thread),
                default,
                "agent:main:telegram:dm:5:t",
            ),
            (
                source("telegram", "dm", ""),
                default,
                "agent:main:telegram:dm:7",
            ),
            (
                with(source("telegram", "dm", ""), alt),
                default,
                "agent:main:telegram:dm:alt",
            ),
            (group.clone(), default, "agent:main:discord:group:-9:7"),
            (group.clone(), together, "agent:main:discord:group:-9"),
            (
                with(group.clone(), alt),
                default,
                "agent:main:discord:group:-9:alt",
            ),
            (
                with(group.clone(), thread),
                default,
                "agent:main:discord:group:-9:t",
            ),
            (
                with(group.clone(), thread),
                alone,
                "agent:main:discord:group:-9:t:7",
            ),
            (
                with(group, |s| s.profile = Some("coder".to_owned())),
                default,
                "agent:coder:discord:group:-9:7",
            ),
        ];
        for (source, sharing, key) in cases {
            assert_eq!(
                SessionKey::new_for(&source, sharing).as_str(),
                key,
                "{source:?}"
            );
        }
    }

    #[test]
    fn a_key_names_its_place() {
        let key = SessionKey::new("agent:coder:matrix:group:!room:server:@me:server");
        assert_eq!(
            key.parts(),
            Some(KeyParts {
                profile: Some("coder"),
                platform: "matrix",
                chat_type: "group",
                rest: "!room:server:@me:server",
            })
        );
        assert_eq!(
            SessionKey::new("agent:main:x:dm").parts().unwrap().profile,
            None
        );
        assert_eq!(SessionKey::new("cron:x").parts(), None);
        assert!(key.is_safe());
        assert!(SessionKey::new("agent:main:google_chat:group:spaces/x").is_safe());
        for bad in ["/etc/passwd", "a/../b", "C:\\x"] {
            assert!(!SessionKey::new(bad).is_safe(), "{bad}");
        }
    }
}

//! Where a message came from, and the key of its conversation.

use std::fmt;

use serde::{Deserialize, Serialize};

/// Where a message came from, in the original's shape and order of keys.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Source {
    pub platform: String,
    pub chat_id: String,
    #[serde(default)]
    pub chat_name: Option<String>,
    /// `dm`, `group`, `channel`, `thread`, …
    #[serde(default = "dm")]
    pub chat_type: String,
    #[serde(default)]
    pub user_id: Option<String>,
    #[serde(default)]
    pub user_name: Option<String>,
    #[serde(default)]
    pub thread_id: Option<String>,
    #[serde(default)]
    pub chat_topic: Option<String>,
    /// A second id of the same person that changes less often.
    #[serde(default, skip_serializing_if = "empty")]
    pub user_id_alt: Option<String>,
    #[serde(default, skip_serializing_if = "empty")]
    pub chat_id_alt: Option<String>,
    /// Server or workspace.
    #[serde(default, skip_serializing_if = "empty")]
    pub scope_id: Option<String>,
    /// The old name of `scope_id`; written beside it.
    #[serde(default, skip_serializing_if = "empty")]
    pub guild_id: Option<String>,
    #[serde(default, skip_serializing_if = "empty")]
    pub parent_chat_id: Option<String>,
    #[serde(default, skip_serializing_if = "empty")]
    pub message_id: Option<String>,
    #[serde(default, skip_serializing_if = "empty")]
    pub profile: Option<String>,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub auto_thread_created: bool,
    #[serde(default, skip_serializing_if = "empty")]
    pub auto_thread_initial_name: Option<String>,
}

fn dm() -> String {
    "dm".to_owned()
}

#[expect(clippy::ref_option, reason = "serde calls it with the field")]
fn empty(text: &Option<String>) -> bool {
    text.as_deref().is_none_or(str::is_empty)
}

/// Who shares a conversation in groups and threads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sharing {
    /// `group_sessions_per_user`: each person in a group talks alone.
    pub group_per_user: bool,
    /// `thread_sessions_per_user`: each person in a thread talks alone.
    pub thread_per_user: bool,
}

impl Default for Sharing {
    fn default() -> Self {
        Self {
            group_per_user: true,
            thread_per_user: false,
        }
    }
}

/// The key of a conversation: `agent:<main|profile>:<platform>:<chat type>[:chat][:thread][:user]`.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct SessionKey(String);

/// What a key says about its place. Ids may hold colons, so that the rest stays one text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place<'a> {
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

    pub fn as_str(&self) -> &str {
        &self.0
    }

    pub fn into_string(self) -> String {
        self.0
    }

    /// `None`: not a key of a chat.
    pub fn place(&self) -> Option<Place<'_>> {
        let mut parts = self.0.splitn(5, ':');
        if parts.next()? != "agent" {
            return None;
        }
        Some(Place {
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

impl Source {
    /// The key of the conversation, for every platform whose ids mean what they say. WhatsApp ids
    /// go through [`canonical_whatsapp_id`](super::canonical_whatsapp_id) first
    /// ([`Source::session_key_with`]).
    pub fn session_key(&self, sharing: Sharing) -> SessionKey {
        self.session_key_with(sharing, str::to_owned)
    }

    /// The same, with the ids of persons put into one form by `canonical`.
    pub fn session_key_with(
        &self,
        sharing: Sharing,
        canonical: impl Fn(&str) -> String,
    ) -> SessionKey {
        let whatsapp = self.platform == "whatsapp";
        let person = |id: &str| {
            let one = if whatsapp {
                canonical(id)
            } else {
                id.to_owned()
            };
            if one.is_empty() { id.to_owned() } else { one }
        };
        let participant = given(self.user_id_alt.as_ref()).or_else(|| given(self.user_id.as_ref()));
        let thread = given(self.thread_id.as_ref());
        let mut parts = vec![
            "agent".to_owned(),
            self.profile
                .as_deref()
                .filter(|profile| !profile.is_empty() && *profile != "default")
                .unwrap_or("main")
                .to_owned(),
            self.platform.clone(),
            self.chat_type.clone(),
        ];
        if self.chat_type == "dm" {
            let chat = if whatsapp {
                canonical(&self.chat_id)
            } else {
                self.chat_id.clone()
            };
            if !chat.is_empty() {
                parts.push(chat);
            } else if let Some(participant) = participant {
                parts.push(person(participant));
            }
            parts.extend(thread.map(str::to_owned));
            return SessionKey(parts.join(":"));
        }
        parts.extend(Some(self.chat_id.clone()).filter(|id| !id.is_empty()));
        parts.extend(thread.map(str::to_owned));
        if !self.is_shared(sharing) {
            parts.extend(participant.map(person));
        }
        SessionKey(parts.join(":"))
    }

    /// Server and workspace have two names in stored sources; both are kept the same.
    pub fn mirror_scope(&mut self) {
        self.scope_id = self.scope_id.take().or_else(|| self.guild_id.take());
        self.guild_id = self.scope_id.clone();
    }

    /// Whether several people talk in this conversation.
    pub fn is_shared(&self, sharing: Sharing) -> bool {
        if self.chat_type == "dm" {
            return false;
        }
        // A thread is told apart per person only where groups are as well.
        if given(self.thread_id.as_ref()).is_some() && !sharing.thread_per_user {
            return true;
        }
        !sharing.group_per_user
    }
}

fn given(text: Option<&String>) -> Option<&str> {
    text.map(String::as_str).filter(|text| !text.is_empty())
}

#[cfg(test)]
mod tests {
    use pretty_assertions::assert_eq;

    use super::*;

    fn source(platform: &str, chat_type: &str, chat: &str) -> Source {
        Source {
            platform: platform.to_owned(),
            chat_type: chat_type.to_owned(),
            chat_id: chat.to_owned(),
            user_id: Some("7".to_owned()),
            ..Source::default()
        }
    }

    fn with(mut source: Source, change: impl Fn(&mut Source)) -> Source {
        change(&mut source);
        source
    }

    #[test]
    fn keys_follow_the_kind_of_chat() {
        let thread = |source: &mut Source| source.thread_id = Some("t".to_owned());
        let alt = |source: &mut Source| source.user_id_alt = Some("alt".to_owned());
        let alone = Sharing {
            thread_per_user: true,
            ..Sharing::default()
        };
        let together = Sharing {
            group_per_user: false,
            ..Sharing::default()
        };
        let default = Sharing::default();
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
            assert_eq!(source.session_key(sharing).as_str(), key, "{source:?}");
        }
    }

    #[test]
    fn a_key_names_its_place() {
        let key = SessionKey::new("agent:coder:matrix:group:!room:server:@me:server");
        assert_eq!(
            key.place(),
            Some(Place {
                profile: Some("coder"),
                platform: "matrix",
                chat_type: "group",
                rest: "!room:server:@me:server",
            })
        );
        assert_eq!(
            SessionKey::new("agent:main:x:dm").place().unwrap().profile,
            None
        );
        assert_eq!(SessionKey::new("cron:x").place(), None);
        assert!(key.is_safe());
        assert!(SessionKey::new("agent:main:google_chat:group:spaces/x").is_safe());
        for bad in ["/etc/passwd", "a/../b", "C:\\x"] {
            assert!(!SessionKey::new(bad).is_safe(), "{bad}");
        }
    }
}

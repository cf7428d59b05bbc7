//! Sends unsolicited messages to chats: jobs, webhooks, `send_message`.

mod closing;

use std::sync::Arc;
use std::time::Duration;

use hermes_core::ids::SessionId;
use hermes_core::message::Message;
use hermes_core::store::NewItem;
use hermes_platforms::{MirrorRole, PostError, Posting};
use hermes_store::delivery::{Final, NewReply, Target};

use super::session::target_of;
use super::shared::GatewayShared;

/// How long to wait for a running turn before a message is sent without being added to its
/// conversation.
const TURN_WAIT_TIMEOUT: Duration = Duration::from_mins(2);

/// Posts messages to chats. A message is stored when a call returns, and delivered eventually.
#[derive(Clone)]
pub struct MessagePoster {
    shared: Arc<GatewayShared>,
}

impl MessagePoster {
    pub(crate) fn new(shared: Arc<GatewayShared>) -> Self {
        Self { shared }
    }

    /// Stores a message and returns its number of chunks.
    pub async fn send(&self, posting: Posting) -> Result<usize, PostError> {
        let shared = &self.shared;
        let chunks = if posting.files {
            shared.chunks_with_files(&posting.target, &posting.text)
        } else {
            shared.chunks(&posting.target, &posting.text)
        };
        let entry = self.entry(&posting.target);
        let session_key = entry
            .as_ref()
            .map_or_else(|| posting.id.clone(), |entry| entry.session_key.to_string());
        let mirror = posting.mirror.zip(entry);
        // An open conversation would not notice a row written by others, and a running turn must
        // not get one.
        let still = match &mirror {
            None => None,
            Some((_, entry)) => {
                let still = shared.pool.close_exclusively(&entry.session_id);
                tokio::time::timeout(TURN_WAIT_TIMEOUT, still)
                    .await
                    .ok()
                    .flatten()
            }
        };
        let mirror = mirror.filter(|_| still.is_some());
        let transcript = mirror.map(|(voice, entry)| {
            let message = match voice {
                MirrorRole::Assistant => Message::assistant(posting.text.clone()),
                MirrorRole::User => Message::user(posting.text.clone()),
            };
            let item = NewItem {
                message,
                at: shared.clock.epoch_seconds(),
                token_count: None,
                platform_message_id: None,
            };
            (SessionId::new(entry.session_id), vec![item])
        });
        let end = Final {
            turn: posting.id,
            answers: Vec::new(),
            transcript,
            replies: vec![NewReply {
                session_key,
                target: posting.target,
                chunks,
            }],
            ..Final::default()
        };
        let owed = shared.delivery.finish(end).await?;
        drop(still);
        shared.wake.notify_one();
        Ok(owed)
    }

    /// Resolves a target: `telegram` (its home channel), `telegram:123`, `telegram:123:7`,
    /// `slack:#general` (by name), `origin`.
    pub fn target(&self, text: &str, origin: Option<&Target>) -> Result<Target, PostError> {
        let text = text.trim();
        if text.eq_ignore_ascii_case("origin") {
            return origin.cloned().ok_or_else(|| {
                PostError::Target("there is no origin here: name a platform".to_owned())
            });
        }
        let (platform, rest) = match text.split_once(':') {
            Some((platform, rest)) => (platform.trim().to_lowercase(), Some(rest.trim())),
            None => (text.to_lowercase(), None),
        };
        let known = self.shared.settings.platform(&platform).is_some();
        let candidates = self.shared.status().platforms.into_iter();
        if !known && !candidates.into_iter().any(|one| one.name == platform) {
            return Err(PostError::Target(format!("{platform:?} is not connected")));
        }
        let target_for = |chat_id: String, thread_id: Option<String>| Target {
            platform: platform.clone(),
            account: self.shared.account(&platform, &chat_id),
            chat_id,
            thread_id,
        };
        match rest.filter(|rest| !rest.is_empty()) {
            None => self.home(&platform).ok_or_else(|| {
                PostError::Target(format!(
                    "{platform} has no home channel: /sethome in the chat that shall be it"
                ))
            }),
            Some(rest) => Ok(self.named(&platform, rest).unwrap_or_else(|| {
                // Ids of some platforms contain colons.
                match rest.rsplit_once(':') {
                    Some((chat, thread)) if !rest.starts_with(['!', '@']) => {
                        target_for(chat.to_owned(), Some(thread.to_owned()))
                    }
                    _ => target_for(rest.to_owned(), None),
                }
            })),
        }
    }

    /// The home channel of a platform.
    pub fn home(&self, platform: &str) -> Option<Target> {
        let (chat_id, thread_id) = self.shared.home_channel(platform)?;
        Some(Target {
            platform: platform.to_owned(),
            account: self.shared.account(platform, &chat_id),
            chat_id,
            thread_id,
        })
    }

    /// Known chats, by platform and name.
    pub fn known(&self) -> Vec<KnownChat> {
        let mut known: Vec<KnownChat> = self
            .shared
            .index
            .entries()
            .into_iter()
            .filter_map(|entry| {
                let target = target_of(&entry)?;
                let source = entry.origin?;
                let name = source.chat_name.or(source.user_name);
                Some(KnownChat {
                    name: name.unwrap_or_else(|| source.chat_id.clone()),
                    kind: source.chat_type,
                    target,
                })
            })
            .collect();
        known.sort_by(|a, b| {
            let key = |one: &KnownChat| {
                let target = &one.target;
                (
                    target.platform.clone(),
                    one.name.clone(),
                    target.chat_id.clone(),
                )
            };
            key(a).cmp(&key(b))
        });
        known.dedup_by(|a, b| a.target == b.target);
        known
    }

    /// A chat by its name: `#general`, `Mum`.
    fn named(&self, platform: &str, name: &str) -> Option<Target> {
        let name = name.strip_prefix('#').unwrap_or(name);
        let mut fits = self.known().into_iter().filter(|one| {
            one.target.platform == platform
                && one.name.trim_start_matches('#').eq_ignore_ascii_case(name)
        });
        let found = fits.next()?;
        // Ambiguous name: only an id works.
        fits.next().is_none().then_some(found.target)
    }

    /// The conversation of a chat that everyone in it shares.
    fn entry(&self, target: &Target) -> Option<crate::session::SessionEntry> {
        let sharing = self.shared.settings.sharing;
        let chat = self
            .shared
            .index
            .entries_of(&target.platform, &target.chat_id);
        let mut candidates = chat.into_iter().filter(|entry| {
            let common = entry
                .origin
                .as_ref()
                .is_some_and(|source| source.chat_type == "dm" || sharing.shares(source));
            common && target_of(entry).as_ref() == Some(target)
        });
        let found = candidates.next()?;
        candidates.next().is_none().then_some(found)
    }
}

/// A chat that can be written to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KnownChat {
    pub name: String,
    /// `dm`, `group`, …
    pub kind: String,
    pub target: Target,
}

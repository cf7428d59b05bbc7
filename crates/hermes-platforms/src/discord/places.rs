//! Channels and servers, as the socket tells of them or REST does when asked.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use reqwest::Method;

use super::api::Api;
use super::wire::{Channel, Guild, Id, Member};

/// Beyond this everything is forgotten, and asked for again when it matters.
const MOST: usize = 20_000;

#[derive(Default)]
pub(super) struct Places(Mutex<Known>);

#[derive(Default)]
struct Known {
    channels: HashMap<Id, Channel>,
    guilds: HashMap<Id, String>,
}

impl Places {
    fn known(&self) -> MutexGuard<'_, Known> {
        // A panic while holding this lock cannot leave it half changed.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn learn(&self, channel: Channel) {
        let mut known = self.known();
        if known.channels.len() >= MOST {
            known.channels.clear();
        }
        known.channels.insert(channel.id, channel);
    }

    pub(super) fn learn_guild(&self, guild: &Guild) {
        let mut known = self.known();
        if known.guilds.len() >= MOST {
            known.guilds.clear();
        }
        known.guilds.insert(guild.id, guild.name.clone());
        drop(known);
        for channel in guild.channels.iter().chain(&guild.threads) {
            let mut channel = channel.clone();
            // Channels inside a server do not name it again.
            channel.guild_id = Some(guild.id);
            self.learn(channel);
        }
    }

    pub(super) fn forget(&self, channel: Id) {
        self.known().channels.remove(&channel);
    }

    pub(super) fn guild_name(&self, guild: Id) -> Option<String> {
        let name = self.known().guilds.get(&guild).cloned();
        name.filter(|name| !name.is_empty())
    }

    pub(super) fn get(&self, channel: Id) -> Option<Channel> {
        self.known().channels.get(&channel).cloned()
    }

    /// A channel, asked for where it is not known. When Discord does not say, it is taken for a
    /// plain one.
    pub(super) async fn channel(
        &self,
        api: &Api,
        id: Id,
        guild: Option<Id>,
        within: Duration,
    ) -> Channel {
        if let Some(channel) = self.get(id) {
            return channel;
        }
        let asked = api
            .patiently(Method::GET, &format!("/channels/{id}"), None, within)
            .await
            .map_err(|error| error.to_string())
            .and_then(|value| {
                serde_json::from_value::<Channel>(value).map_err(|error| error.to_string())
            });
        match asked {
            Ok(channel) => {
                self.learn(channel.clone());
                channel
            }
            Err(error) => {
                tracing::warn!("discord: channel {id}: {error}");
                Channel {
                    id,
                    kind: u64::from(guild.is_none()),
                    guild_id: guild,
                    ..Channel::default()
                }
            }
        }
    }
}

/// The roles of a person in a server. Nobody has any where that cannot be found out.
pub(super) async fn roles_of(api: &Api, guild: &str, user: Id, within: Duration) -> Vec<Id> {
    let path = format!("/guilds/{guild}/members/{user}");
    match api.patiently(Method::GET, &path, None, within).await {
        Ok(value) => serde_json::from_value::<Member>(value)
            .map(|member| member.roles)
            .unwrap_or_default(),
        Err(error) => {
            tracing::debug!("discord: roles of {user}: {error}");
            Vec::new()
        }
    }
}

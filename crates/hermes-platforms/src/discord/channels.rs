//! A cache of channels and servers, from socket events or REST.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use reqwest::Method;

use super::api::DiscordApi;
use super::wire::{DiscordChannel, Guild, GuildMember, Snowflake};

/// Maximum size; beyond it the cache is cleared.
const MAX_CHANNELS: usize = 20_000;

#[derive(Default)]
pub(super) struct ChannelDirectory(Mutex<KnownChannels>);

#[derive(Default)]
struct KnownChannels {
    channels: HashMap<Snowflake, DiscordChannel>,
    guilds: HashMap<Snowflake, String>,
}

impl ChannelDirectory {
    fn known(&self) -> MutexGuard<'_, KnownChannels> {
        // A panic while holding this lock cannot leave it half changed.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn remember(&self, channel: DiscordChannel) {
        let mut known = self.known();
        if known.channels.len() >= MAX_CHANNELS {
            known.channels.clear();
        }
        known.channels.insert(channel.id, channel);
    }

    pub(super) fn learn_guild(&self, guild: &Guild) {
        let mut known = self.known();
        if known.guilds.len() >= MAX_CHANNELS {
            known.guilds.clear();
        }
        known.guilds.insert(guild.id, guild.name.clone());
        drop(known);
        for channel in guild.channels.iter().chain(&guild.threads) {
            let mut channel = channel.clone();
            // Channels inside a server do not name it again.
            channel.guild_id = Some(guild.id);
            self.remember(channel);
        }
    }

    pub(super) fn forget(&self, channel: Snowflake) {
        self.known().channels.remove(&channel);
    }

    pub(super) fn guild_name(&self, guild: Snowflake) -> Option<String> {
        let name = self.known().guilds.get(&guild).cloned();
        name.filter(|name| !name.is_empty())
    }

    pub(super) fn get(&self, channel: Snowflake) -> Option<DiscordChannel> {
        self.known().channels.get(&channel).cloned()
    }

    /// A channel, fetched if unknown. If that fails, a plain text channel is assumed.
    pub(super) async fn channel(
        &self,
        api: &DiscordApi,
        id: Snowflake,
        guild: Option<Snowflake>,
        within: Duration,
    ) -> DiscordChannel {
        if let Some(channel) = self.get(id) {
            return channel;
        }
        let asked = api
            .patiently(Method::GET, &format!("/channels/{id}"), None, within)
            .await
            .map_err(|error| error.to_string())
            .and_then(|value| {
                serde_json::from_value::<DiscordChannel>(value).map_err(|error| error.to_string())
            });
        match asked {
            Ok(channel) => {
                self.remember(channel.clone());
                channel
            }
            Err(error) => {
                tracing::warn!("discord: channel {id}: {error}");
                DiscordChannel {
                    id,
                    kind: u64::from(guild.is_none()),
                    guild_id: guild,
                    ..DiscordChannel::default()
                }
            }
        }
    }
}

/// The roles of a person in a server; none if they cannot be fetched.
pub(super) async fn roles_of(
    api: &DiscordApi,
    guild: &str,
    user: Snowflake,
    within: Duration,
) -> Vec<Snowflake> {
    let path = format!("/guilds/{guild}/members/{user}");
    match api.patiently(Method::GET, &path, None, within).await {
        Ok(value) => serde_json::from_value::<GuildMember>(value)
            .map(|member| member.roles)
            .unwrap_or_default(),
        Err(error) => {
            tracing::debug!("discord: roles of {user}: {error}");
            Vec::new()
        }
    }
}

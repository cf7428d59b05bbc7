//! Workspaces: our identity, the workspaces of conversations, names of people.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use serde_json::{Value, json};

use super::SlackShared;
use super::api::{SlackApi, SlackCallError};
use crate::platform::FatalPlatformError;

/// Maximum number of cached names.
const MAX_NAMES: usize = 4000;

/// A workspace with our identity in it.
#[derive(Clone, Debug)]
pub(super) struct SlackTeam {
    pub id: String,
    pub name: String,
    pub token: String,
    pub bot_user: String,
    pub bot_id: String,
}

pub(super) struct SlackTeams {
    slots: Mutex<Vec<TeamSlot>>,
    names: Mutex<HashMap<(String, String), String>>,
}

struct TeamSlot {
    token: String,
    team: Option<Arc<SlackTeam>>,
    /// Why its token is of no use.
    failure: Option<String>,
}

/// A channel and the token for it.
pub(super) struct ChannelAccess {
    pub token: String,
    pub channel: String,
}

impl ChannelAccess {
    fn new(token: &str, channel: &str) -> Self {
        Self {
            token: token.to_owned(),
            channel: channel.to_owned(),
        }
    }
}

fn not_done(error: String) -> SlackCallError {
    SlackCallError::NotDone {
        error,
        retry_after: None,
    }
}

/// Not every workspace could be queried.
pub(super) enum TeamsError {
    /// Retry later.
    Later(String),
    Never(FatalPlatformError),
}

impl SlackTeams {
    pub(super) fn new(tokens: &[String]) -> Self {
        let slot = |token: &String| TeamSlot {
            token: token.clone(),
            team: None,
            failure: None,
        };
        Self {
            slots: Mutex::new(tokens.iter().map(slot).collect()),
            names: Mutex::default(),
        }
    }

    fn slots(&self) -> MutexGuard<'_, Vec<TeamSlot>> {
        self.slots.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The direct conversation with a person.
    fn direct(&self, user: &str) -> Option<String> {
        let key = (String::new(), user.to_owned());
        self.names().get(&key).cloned()
    }

    fn note_direct(&self, user: &str, channel: &str) {
        self.note_name((String::new(), user.to_owned()), channel);
    }

    fn note_name(&self, key: (String, String), name: &str) {
        let mut names = self.names();
        if names.len() >= MAX_NAMES {
            names.clear();
        }
        names.insert(key, name.to_owned());
    }

    fn names(&self) -> MutexGuard<'_, HashMap<(String, String), String>> {
        self.names.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn all(&self) -> Vec<Arc<SlackTeam>> {
        let slots = self.slots();
        slots.iter().filter_map(|slot| slot.team.clone()).collect()
    }

    pub(super) fn get(&self, id: &str) -> Option<Arc<SlackTeam>> {
        self.all().into_iter().find(|team| team.id == id)
    }

    /// Queries our identity in every new workspace. Invalid tokens are skipped; if all are invalid,
    /// it fails.
    pub(super) async fn identify(&self, api: &SlackApi) -> Result<(), TeamsError> {
        let open: Vec<String> = {
            let slots = self.slots();
            let open = slots
                .iter()
                .filter(|slot| slot.team.is_none() && slot.failure.is_none());
            open.map(|slot| slot.token.clone()).collect()
        };
        for token in open {
            let answer = api.call(&token, "auth.test", &json!({})).await;
            let mut slots = self.slots();
            let Some(slot) = slots.iter_mut().find(|slot| slot.token == token) else {
                continue;
            };
            match answer {
                Ok(fields) => {
                    let team = identity(&fields, &token);
                    tracing::info!(team = team.id, "slack: at home in {}", team.name);
                    slot.team = Some(Arc::new(team));
                }
                Err(error) if error.is_hopeless() => {
                    tracing::error!("slack: a bot token is of no use: {error}");
                    slot.failure = Some(error.to_string());
                }
                Err(error) => return Err(TeamsError::Later(error.to_string())),
            }
        }
        let slots = self.slots();
        let reasons: Vec<&str> = slots
            .iter()
            .filter_map(|slot| slot.failure.as_deref())
            .collect();
        if reasons.len() == slots.len() {
            let why = reasons.join("; ");
            return Err(TeamsError::Never(FatalPlatformError(format!(
                "no bot token of Slack is of use ({why}): check SLACK_BOT_TOKEN"
            ))));
        }
        Ok(())
    }
}

fn identity(fields: &Value, token: &str) -> SlackTeam {
    let text = |name: &str| fields[name].as_str().unwrap_or_default().to_owned();
    SlackTeam {
        id: text("team_id"),
        name: text("team"),
        token: token.to_owned(),
        bot_user: text("user_id"),
        bot_id: text("bot_id"),
    }
}

impl SlackShared {
    /// The channel of a conversation and its token. The id of a person means the direct
    /// conversation.
    pub(super) async fn desk(&self, chat: &str) -> Result<ChannelAccess, SlackCallError> {
        let person = chat.starts_with(['U', 'W']);
        if !person && let [token] = self.settings.bot_tokens.as_slice() {
            return Ok(ChannelAccess::new(token, chat));
        }
        let teams = self.teams.all();
        let channel = self.teams.direct(chat);
        let channel = channel.as_deref().or((!person).then_some(chat));
        if let Some(channel) = channel
            && let Some(known_conversation) = self.memory.conversation(channel)
            && let Some(team) = teams.iter().find(|team| team.id == known_conversation.team)
        {
            return Ok(ChannelAccess::new(&team.token, channel));
        }
        if teams.is_empty() {
            return Err(not_done("no workspace is known yet".to_owned()));
        }
        for team in teams {
            let (method, args) = if person {
                ("conversations.open", json!({"users": chat}))
            } else {
                ("conversations.info", json!({"channel": chat}))
            };
            match self.api.call(&team.token, method, &args).await {
                Ok(fields) => {
                    let channel = fields["channel"]["id"].as_str().unwrap_or(chat);
                    let kind = if person {
                        self.teams.note_direct(chat, channel);
                        "im"
                    } else {
                        kind_of(&fields["channel"])
                    };
                    self.memory.remember(channel, &team.id, kind);
                    return Ok(ChannelAccess::new(&team.token, channel));
                }
                Err(SlackCallError::Refused(_)) => {}
                // Nothing was visible yet.
                Err(SlackCallError::Unclear(error)) => return Err(not_done(error)),
                Err(error) => return Err(error),
            }
        }
        Err(SlackCallError::Refused("channel_not_found".to_owned()))
    }

    /// The name of a person, if it can be found quickly.
    pub(super) async fn user_name(&self, team: &SlackTeam, user: &str) -> Option<String> {
        let known = (team.id.clone(), user.to_owned());
        if let Some(name) = self.teams.names().get(&known) {
            return Some(name.clone());
        }
        let args = json!({"user": user});
        let fields = self.ask(&team.token, "users.info", &args).await?;
        let person = &fields["user"];
        let name = [
            &person["profile"]["display_name"],
            &person["profile"]["real_name"],
            &person["real_name"],
            &person["name"],
        ]
        .into_iter()
        .find_map(|name| name.as_str().filter(|name| !name.is_empty()))?
        .to_owned();
        self.teams.note_name(known, &name);
        Some(name)
    }

    /// The name of a conversation.
    pub(super) async fn channel_name(&self, team: &SlackTeam, channel: &str) -> Option<String> {
        let known = (team.id.clone(), channel.to_owned());
        if let Some(name) = self.teams.names().get(&known) {
            return Some(name.clone()).filter(|name| !name.is_empty());
        }
        let args = json!({"channel": channel});
        let fields = self.ask(&team.token, "conversations.info", &args).await?;
        let name = fields["channel"]["name"].as_str().unwrap_or_default();
        self.teams.note_name(known, name);
        Some(name.to_owned()).filter(|name| !name.is_empty())
    }

    /// Optional details: the message matters more.
    async fn ask(&self, token: &str, method: &str, args: &Value) -> Option<Value> {
        match self.api.call(token, method, args).await {
            Ok(fields) => Some(fields),
            Err(error) => {
                tracing::debug!("slack: {method}: {error}");
                None
            }
        }
    }

    /// A jittered pause that doubles with every failure.
    pub(super) fn pause(&self, failures: u32) -> Duration {
        let doubled = self.timing.pause.saturating_mul(1 << failures.min(16));
        doubled
            .min(self.timing.longest_pause)
            .mul_f64(0.5 + self.rng.unit() / 2.0)
    }
}

/// `im`, `mpim`, `channel` or `group`, from a conversation's description.
pub(super) fn kind_of(channel: &Value) -> &'static str {
    if channel["is_im"] == true {
        "im"
    } else if channel["is_mpim"] == true {
        "mpim"
    } else if channel["is_private"] == true {
        "group"
    } else {
        "channel"
    }
}

//! The chats and the model that jobs use, read when needed because the configuration can change
//! while the gateway runs.

use std::sync::Arc;

use hermes_config::{Config, Env, Home, ProcessEnv};
use hermes_platforms::{HomeChannel, definition};
use serde_json::Value;

use crate::settings::GatewaySettings;

/// The chats that a job can report to, and the model that runs it.
pub trait JobEnvironment: Send + Sync {
    /// Platforms with a home channel, in their order.
    fn homes(&self) -> Vec<(String, HomeChannel)>;
    /// Whether this home is set up for a platform.
    fn serves(&self, platform: &str) -> bool;
    /// The id of a chat by its name.
    fn find(&self, platform: &str, name: &str) -> Option<String>;
    /// Provider and model of jobs that name none.
    fn route(&self) -> Option<(String, String)>;
}

type RouteLookup = Arc<dyn Fn() -> Option<(String, String)> + Send + Sync>;

/// The files of a home.
#[derive(Clone)]
pub struct HomeJobEnvironment {
    home: Home,
    process: ProcessEnv,
    route: RouteLookup,
}

impl HomeJobEnvironment {
    pub fn new(home: Home, process: ProcessEnv, route: RouteLookup) -> Self {
        Self {
            home,
            process,
            route,
        }
    }

    /// `None` (and a log entry) while a file cannot be read.
    fn settings(&self) -> Option<GatewaySettings> {
        let read = || {
            let env = Env::load(&self.home, &self.process).map_err(|error| error.to_string())?;
            let loaded = Config::load(&self.home, &env).map_err(|error| error.to_string())?;
            GatewaySettings::load(&self.home, loaded, &env).map_err(|error| error.to_string())
        };
        read()
            .map_err(|error: String| tracing::warn!("jobs: {error}"))
            .ok()
    }

    fn directory(&self, platform: &str) -> Vec<Value> {
        let path = self.home.join("channel_directory.json");
        let text = std::fs::read_to_string(path).unwrap_or_default();
        let mut all: Value = serde_json::from_str(&text).unwrap_or_default();
        match all["platforms"][platform].take() {
            Value::Array(chats) => chats,
            _ => Vec::new(),
        }
    }
}

impl JobEnvironment for HomeJobEnvironment {
    fn homes(&self) -> Vec<(String, HomeChannel)> {
        let Some(settings) = self.settings() else {
            return Vec::new();
        };
        let homes = settings.platforms.iter().filter_map(|platform| {
            let mut home = platform.home_channel.clone()?;
            let var = definition(&platform.name).and_then(|one| one.job_thread_var);
            if let Some(topic) = var.and_then(|var| platform.var(var)) {
                home.thread_id = Some(topic.to_owned());
            }
            Some((platform.name.clone(), home))
        });
        homes.collect()
    }

    fn serves(&self, platform: &str) -> bool {
        let settings = self.settings();
        settings.is_some_and(|settings| settings.enabled().any(|known| known.name == platform))
    }

    fn find(&self, platform: &str, name: &str) -> Option<String> {
        find(&self.directory(platform), name)
    }

    fn route(&self) -> Option<(String, String)> {
        (self.route)()
    }
}

/// By id, then by name, by name within a server, and by a unique prefix of a name.
fn find(chats: &[Value], wanted: &str) -> Option<String> {
    let id = |chat: &Value| chat["id"].as_str().map(str::to_owned);
    let plain = |name: &str| name.trim().trim_start_matches('#').trim().to_lowercase();
    let name = |chat: &Value| plain(chat["name"].as_str().unwrap_or_default());
    if let Some(chat) = chats.iter().find(|chat| chat["id"] == wanted) {
        return id(chat);
    }
    let wanted = plain(wanted);
    if wanted.is_empty() {
        return None;
    }
    let within = |chat: &Value| {
        wanted.rsplit_once('/').is_some_and(|(server, rest)| {
            plain(chat["guild"].as_str().unwrap_or_default()) == server && name(chat) == plain(rest)
        })
    };
    let exact = chats
        .iter()
        .find(|chat| name(chat) == wanted || within(chat));
    let mut matching = chats.iter().filter(|chat| name(chat).starts_with(&wanted));
    let only = match (matching.next(), matching.next()) {
        (Some(chat), None) => Some(chat),
        _ => None,
    };
    exact.or(only).and_then(id)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn chats_are_found_as_people_call_them() {
        let chats = [
            json!({"id": "1", "name": "general", "guild": "Home"}),
            json!({"id": "2", "name": "general", "guild": "Work"}),
            json!({"id": "3", "name": "#Random talk"}),
        ];
        let find = |name: &str| find(&chats, name);
        assert_eq!(find("3").as_deref(), Some("3"));
        assert_eq!(find("#GENERAL").as_deref(), Some("1"));
        assert_eq!(find("work/#general").as_deref(), Some("2"));
        assert_eq!(find("rand").as_deref(), Some("3"));
        assert_eq!(find("gen"), None, "two begin so");
        assert_eq!(find("#"), None);
    }
}

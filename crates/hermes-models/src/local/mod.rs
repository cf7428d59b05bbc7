//! The built-in model: a small open model that a second program, `hermes-local`, runs on the CPU.
//!
//! | module | what it does |
//! |---|---|
//! | [`table`] | the models that can be fetched, with size, memory and licence |
//! | [`weights`] | which file a name means, what is there, what is known of it |
//! | [`pull`] | fetching weights: the hub, with resume; the Python package index |
//! | [`program`] | where `hermes-local` is, or how to get it |
//! | [`server`] | one server for all processes: found, started, held, looked at |
//! | [`probe`] | whether a model can call tools, tried once per file |
//! | [`client`] | the model client: the server is there when the call is made |
//!
//! The two programs share only a file with the server's address, and HTTP on loopback.

pub(crate) mod client;
mod gguf;
pub mod machine;
pub mod probe;
pub mod program;
pub mod pull;
pub mod server;
pub mod table;
pub mod weights;

use std::path::PathBuf;
use std::time::Duration;

use hermes_config::Config;
use hermes_config::env::Env;
use hermes_config::home::Home;

use crate::providers::custom::set;

/// The id of the provider.
pub const PROVIDER: &str = "local";
/// Placeholder for the server's address, which is known only while it runs.
pub const ADDRESS: &str = "http://hermes-local";

/// A server that exits sooner may be gone before its starter has connected.
const MIN_IDLE: Duration = Duration::from_secs(5);
/// Maximum idle time of a server: one year.
const MAX_IDLE: Duration = Duration::from_hours(365 * 24);

/// Settings of the built-in model from the home and its config.
#[derive(Clone, Debug)]
pub struct LocalModelSettings {
    /// Directory of weights and derived files, shared by profiles.
    pub cache: PathBuf,
    /// Where a running server publishes its address.
    pub run: PathBuf,
    pub logs: PathBuf,
    /// `local.model`: a name of the table or a path.
    pub model: Option<String>,
    /// 0: one per core.
    pub threads: u32,
    pub context: u32,
    /// `None`: as determined by the probe.
    pub tools: Option<bool>,
    /// The server exits after this long without a request.
    pub idle: Duration,
    /// The server exits after this long without a client.
    pub grace: Duration,
    home: Home,
}

impl LocalModelSettings {
    pub fn new(home: &Home, config: &Config) -> Self {
        let own = config.local.clone().unwrap_or_default();
        let root = home.profiles_root();
        Self {
            cache: root.join("cache").join("local"),
            run: root.join("run"),
            logs: root.join("logs"),
            model: set(&own.model),
            threads: own.threads,
            context: own.context,
            tools: match own.tools.as_str() {
                "on" | "true" | "always" => Some(true),
                "off" | "false" | "never" => Some(false),
                _ => None,
            },
            idle: match own.idle_seconds {
                0 => MAX_IDLE,
                seconds => Duration::from_secs(seconds).clamp(MIN_IDLE, MAX_IDLE),
            },
            grace: Duration::from_secs(own.grace_seconds).clamp(MIN_IDLE, MAX_IDLE),
            home: home.clone(),
        }
    }
}

/// Where weights are downloaded from.
#[derive(Clone, Debug)]
pub struct WeightsHub {
    pub endpoint: String,
    /// `HF_TOKEN`; sent to the hub's own host only.
    pub token: Option<secrecy::SecretString>,
}

impl WeightsHub {
    /// `HF_ENDPOINT` names a mirror.
    pub fn from_env(env: &Env) -> Self {
        let endpoint = env
            .get("HF_ENDPOINT")
            .and_then(set)
            .unwrap_or_else(|| "https://huggingface.co".to_owned());
        Self {
            endpoint: endpoint.trim_end_matches('/').to_owned(),
            token: env.credential("HF_TOKEN").map(|(secret, _)| secret),
        }
    }
}

#[cfg(test)]
mod tests {
    use hermes_config::schema::Local;

    use super::*;

    fn times(idle: u64, grace: u64) -> (u64, u64) {
        let config = Config {
            local: Some(Local {
                idle_seconds: idle,
                grace_seconds: grace,
                ..Local::default()
            }),
            ..Config::default()
        };
        let settings = LocalModelSettings::new(&Home::at("/h/.hermes"), &config);
        (settings.idle.as_secs(), settings.grace.as_secs())
    }

    #[test]
    fn a_server_lives_long_enough_to_be_joined() {
        assert_eq!(times(600, 30), (600, 30));
        // Nothing would be left of it the moment it is ready; for idling, 0 means never.
        assert_eq!(times(0, 0), (31_536_000, 5));
        assert_eq!(times(1, 1), (5, 5));
        // The server refuses more than a year.
        assert_eq!(times(u64::MAX, u64::MAX), (31_536_000, 31_536_000));
    }
}

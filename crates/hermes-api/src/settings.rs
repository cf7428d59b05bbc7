//! Settings of the API server.

use std::collections::BTreeMap;
use std::fmt;

use hermes_config::Config;
use hermes_config::env::is_usable_secret;
use serde_json::Value;

use hermes_platforms::PlatformSettings;

const HOST: &str = "127.0.0.1";
const DEFAULT_PORT: u16 = 8642;
/// The key gives access to commands on this machine, so it must not be guessable.
const MIN_KEY_CHARS: usize = 16;
const MODEL: &str = "hermes-agent";
const MAX_RUNS: usize = 10;

/// Address and limits of the server.
#[derive(Clone)]
pub struct ApiSettings {
    pub host: String,
    pub port: u16,
    pub(super) key: String,
    pub cors_origins: Vec<String>,
    /// The name that clients see.
    pub model_name: String,
    /// Aliases by which a client selects another model.
    pub routes: BTreeMap<String, ModelRoute>,
    /// Turns at the same time; 0: no bound.
    pub max_runs: usize,
    /// Request fields that are ignored; `*`: all.
    pub ignore_fields: Vec<String>,
}

impl fmt::Debug for ApiSettings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ApiSettings")
            .field("host", &self.host)
            .field("port", &self.port)
            .field("cors_origins", &self.cors_origins)
            .field("model_name", &self.model_name)
            .field("max_runs", &self.max_runs)
            .finish_non_exhaustive()
    }
}

/// A model behind a configured alias.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ModelRoute {
    pub model: String,
    pub provider: Option<String>,
}

/// Why the server is not started.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ApiSettingsError {
    #[error(
        "it needs a key, also on this machine alone. \
         Set API_SERVER_KEY in .env, for example to the output of: openssl rand -hex 32"
    )]
    NoKey,
    #[error(
        "its key is a placeholder or shorter than {MIN_KEY_CHARS} \
         characters, and anyone who guesses it can run commands here. Set API_SERVER_KEY in .env, for \
         example to the output of: openssl rand -hex 32"
    )]
    WeakKey,
    #[error("{0:?} is not a port (1 to 65535; API_SERVER_PORT)")]
    Port(String),
    #[error("max_concurrent_runs is {0:?}, not a number")]
    MaxRuns(String),
    #[error("model_routes.{name}: {why}")]
    Route { name: String, why: String },
}

impl ApiSettings {
    /// `Ok(None)`: not enabled.
    pub(super) fn read(
        settings: &PlatformSettings,
        config: &Config,
        profile: Option<&str>,
    ) -> Result<Option<Self>, ApiSettingsError> {
        let key = settings.text("key").or_else(|| settings.api_key.clone());
        let wanted = settings.flag("enabled").or(settings.enabled);
        if !wanted.unwrap_or(key.is_some()) {
            return Ok(None);
        }
        let key = key.ok_or(ApiSettingsError::NoKey)?;
        if key.chars().count() < MIN_KEY_CHARS || !is_usable_secret(&key) {
            return Err(ApiSettingsError::WeakKey);
        }
        let port = match settings.text("port") {
            None => DEFAULT_PORT,
            Some(text) => text.parse().map_err(|_| ApiSettingsError::Port(text))?,
        };
        let named = settings.text("model_name");
        let profile = profile.filter(|profile| !matches!(*profile, "default" | "custom"));
        Ok(Some(Self {
            host: settings.text("host").unwrap_or_else(|| HOST.to_owned()),
            port,
            key,
            cors_origins: settings.list("cors_origins"),
            model_name: named
                .or_else(|| profile.map(str::to_owned))
                .unwrap_or_else(|| MODEL.to_owned()),
            routes: routes(settings.extra.get("model_routes"))?,
            max_runs: max_runs(settings, config)?,
            ignore_fields: settings.list("ignore_fields"),
        }))
    }

    /// The model behind a name; `None`: the default.
    pub(super) fn route(&self, name: Option<&str>) -> Option<&ModelRoute> {
        self.routes.get(name?)
    }
}

fn max_runs(settings: &PlatformSettings, config: &Config) -> Result<usize, ApiSettingsError> {
    const NAME: &str = "max_concurrent_runs";
    let general = config.gateway.api_server.get(NAME);
    let text = settings.text(NAME).or_else(|| match general? {
        Value::String(text) => Some(text.clone()),
        Value::Null => None,
        other => Some(other.to_string()),
    });
    let Some(text) = text else {
        return Ok(MAX_RUNS);
    };
    match text.trim().parse::<i64>() {
        Ok(number) => Ok(usize::try_from(number).unwrap_or(0)),
        Err(_) => Err(ApiSettingsError::MaxRuns(text)),
    }
}

/// A route that cannot be followed must not quietly become the usual model.
fn routes(value: Option<&Value>) -> Result<BTreeMap<String, ModelRoute>, ApiSettingsError> {
    let Some(value) = value.filter(|value| !value.is_null()) else {
        return Ok(BTreeMap::new());
    };
    let wrong = |name: &str, why: &str| ApiSettingsError::Route {
        name: name.to_owned(),
        why: why.to_owned(),
    };
    let Value::Object(routes) = value else {
        return Err(wrong("*", "not a mapping of names to models"));
    };
    let text = |route: &Value, field: &str| {
        let text = route.get(field).and_then(Value::as_str).map(str::trim);
        text.filter(|text| !text.is_empty()).map(str::to_owned)
    };
    let read = |(name, route): (&String, &Value)| {
        for field in ["api_key", "base_url"] {
            if text(route, field).is_some() {
                let why = format!(
                    "{field} belongs to a provider: put it under custom_providers and name that \
                     provider here"
                );
                return Err(wrong(name, &why));
            }
        }
        let model = text(route, "model").ok_or_else(|| wrong(name, "it names no model"))?;
        let provider = text(route, "provider");
        Ok((name.trim().to_owned(), ModelRoute { model, provider }))
    };
    routes.iter().map(read).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn read(env: &[(&str, &str)], extra: &Value) -> Result<Option<ApiSettings>, ApiSettingsError> {
        let pair = |(name, value): &(&str, &str)| ((*name).to_owned(), (*value).to_owned());
        let settings = PlatformSettings {
            name: "api_server".to_owned(),
            extra: extra.as_object().cloned().unwrap_or_default(),
            env: env.iter().map(pair).collect(),
            ..PlatformSettings::default()
        };
        ApiSettings::read(&settings, &Config::default(), None)
    }

    const KEY: (&str, &str) = ("API_SERVER_KEY", "0123456789abcdef");

    #[test]
    fn a_key_starts_it_and_a_weak_one_does_not() {
        assert!(read(&[], &json!({})).unwrap().is_none());
        let on = ("API_SERVER_ENABLED", "true");
        assert_eq!(
            read(&[on], &json!({})).unwrap_err(),
            ApiSettingsError::NoKey
        );
        for key in [
            "short",
            "***************************",
            "<your-api-key-here>",
        ] {
            let error = read(&[("API_SERVER_KEY", key)], &json!({})).unwrap_err();
            assert_eq!(error, ApiSettingsError::WeakKey, "{key}");
        }
        let settings = read(&[KEY], &json!({})).unwrap().unwrap();
        assert_eq!((settings.host.as_str(), settings.port), ("127.0.0.1", 8642));
        assert_eq!(settings.max_runs, 10);
        assert!(!format!("{settings:?}").contains("0123456789abcdef"));
        let off = ("API_SERVER_ENABLED", "off");
        assert!(read(&[KEY, off], &json!({})).unwrap().is_none());
    }

    #[test]
    fn what_cannot_be_meant_is_said() {
        let port = ("API_SERVER_PORT", "eighty");
        assert!(matches!(
            read(&[KEY, port], &json!({})),
            Err(ApiSettingsError::Port(_))
        ));
        let extra = json!({"model_routes": {"fast": {"model": "m", "base_url": "http://x"}}});
        assert!(matches!(
            read(&[KEY], &extra),
            Err(ApiSettingsError::Route { .. })
        ));
        let extra = json!({"model_routes": {"fast": {"model": "m", "provider": "p"}},
                           "max_concurrent_runs": 0});
        let settings = read(&[KEY], &extra).unwrap().unwrap();
        assert_eq!(settings.route(Some("fast")).unwrap().model, "m");
        assert_eq!(settings.route(Some("other")), None);
        assert_eq!(settings.max_runs, 0);
    }
}

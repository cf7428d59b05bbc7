//! Webhook routes: parsed from the settings and the file of subscriptions, and checked.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// In the home; written by `hermes webhook` and by the original.
pub(crate) const SUBSCRIPTIONS: &str = "webhook_subscriptions.json";
/// The secret value that disables signatures. Only allowed on loopback.
pub(super) const NO_SECRET: &str = "INSECURE_NO_AUTH";

/// One route. Unknown keys are preserved.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct WebhookRoute {
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub description: String,
    /// Empty: all.
    #[serde(default)]
    pub events: Vec<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub secret: Option<String>,
    #[serde(default)]
    pub prompt: String,
    #[serde(default)]
    pub skills: Vec<String>,
    /// `log`, `github_comment` or a platform.
    #[serde(default = "log")]
    pub deliver: String,
    #[serde(default, skip_serializing_if = "Map::is_empty")]
    pub deliver_extra: Map<String, Value>,
    /// No model: the filled template is the message.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub deliver_only: bool,
    #[serde(default, skip_serializing_if = "Value::is_null")]
    pub filters: Value,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub script: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub enabled: Option<bool>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub created_at: Option<String>,
    #[serde(flatten)]
    pub rest: Map<String, Value>,
}

fn log() -> String {
    "log".to_owned()
}

/// Validates the name of a route. `Err`: why it is invalid.
pub fn parse_name(text: &str) -> Result<String, String> {
    let name = text.trim().to_lowercase().replace(' ', "-");
    let word = |ch: char| ch.is_ascii_lowercase() || ch.is_ascii_digit();
    let good = name.starts_with(word) && name.chars().all(|ch| word(ch) || "-_".contains(ch));
    if good {
        return Ok(name);
    }
    Err(format!(
        "{text:?} cannot be the name of a route: letters, digits, - and _, beginning with a letter or digit"
    ))
}

/// The routes, with those of the file as it last was.
#[derive(Debug)]
pub(super) struct WebhookRoutes {
    fixed: BTreeMap<String, WebhookRoute>,
    changing: BTreeMap<String, WebhookRoute>,
    file: PathBuf,
    seen: Option<(SystemTime, u64)>,
    secret: Option<String>,
    /// Only this machine can call.
    loopback: bool,
}

impl WebhookRoutes {
    /// `Err`: an invalid route.
    pub(super) fn new(
        home: &Path,
        routes: Option<&Value>,
        secret: Option<String>,
        loopback: bool,
    ) -> Result<Self, String> {
        let mut made = Self {
            fixed: BTreeMap::new(),
            changing: BTreeMap::new(),
            file: home.join(SUBSCRIPTIONS),
            seen: None,
            secret,
            loopback,
        };
        for (name, value) in routes.and_then(Value::as_object).into_iter().flatten() {
            let route: WebhookRoute = WebhookRoute::deserialize(value)
                .map_err(|error| format!("route {name}: {error}"))?;
            made.check(name, &route)?;
            made.fixed.insert(name.clone(), route);
        }
        made.refresh();
        Ok(made)
    }

    fn check(&self, name: &str, route: &WebhookRoute) -> Result<(), String> {
        match self.secret_of(route) {
            None => {
                return Err(format!(
                    "route {name} has no secret: set `secret` for it or for all (WEBHOOK_SECRET)"
                ));
            }
            Some(NO_SECRET) if !self.loopback => {
                return Err(format!(
                    "route {name} has the secret {NO_SECRET}, which lets everybody call: only with a host of this machine (127.0.0.1)"
                ));
            }
            Some(_) => {}
        }
        if route.deliver_only && matches!(route.deliver.as_str(), "" | "log") {
            return Err(format!(
                "route {name} only delivers (deliver_only), and says not where: `deliver` must be a platform or github_comment"
            ));
        }
        Ok(())
    }

    pub(super) fn secret_of<'a>(&'a self, route: &'a WebhookRoute) -> Option<&'a str> {
        let secret = route.secret.as_deref().or(self.secret.as_deref());
        secret.filter(|secret| !secret.is_empty())
    }

    pub(super) fn get(&self, name: &str) -> Option<&WebhookRoute> {
        self.fixed.get(name).or_else(|| self.changing.get(name))
    }

    pub(super) fn names(&self) -> impl Iterator<Item = &str> {
        self.fixed
            .keys()
            .chain(self.changing.keys())
            .map(String::as_str)
    }

    /// Reloads the file if it changed. An unreadable one is ignored.
    pub(super) fn refresh(&mut self) {
        let now = std::fs::metadata(&self.file)
            .ok()
            .and_then(|meta| Some((meta.modified().ok()?, meta.len())));
        if now == self.seen {
            return;
        }
        self.seen = now;
        if now.is_none() {
            self.changing.clear();
            return;
        }
        let read = std::fs::read(&self.file)
            .map_err(|error| error.to_string())
            .and_then(|bytes| {
                serde_json::from_slice::<Map<String, Value>>(&bytes)
                    .map_err(|error| error.to_string())
            });
        let read = match read {
            Ok(read) => read,
            Err(error) => {
                tracing::error!(
                    "webhook: {}: {error}; the routes stay as they were",
                    self.file.display()
                );
                return;
            }
        };
        let mut changing = BTreeMap::new();
        for (name, value) in read {
            if self.fixed.contains_key(&name) {
                continue;
            }
            let route =
                WebhookRoute::deserialize(&value).map_err(|error| format!("route {name}: {error}"));
            match route.and_then(|route| self.check(&name, &route).map(|()| route)) {
                Ok(route) => {
                    changing.insert(name, route);
                }
                Err(why) => tracing::warn!("webhook: a route is left out: {why}"),
            }
        }
        self.changing = changing;
        tracing::info!("webhook: {} routes", self.names().count());
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_file_that_changes_is_read_again_and_a_broken_one_is_not() {
        let home = tempfile::tempdir().unwrap();
        let fixed = json!({"ci": {"secret": "s", "events": ["push"]}});
        let mut routes = WebhookRoutes::new(home.path(), Some(&fixed), None, false).unwrap();
        let file = home.path().join(SUBSCRIPTIONS);
        let write = |text: &str| std::fs::write(&file, text).unwrap();
        write(
            r#"{"a": {"secret": "x"}, "b": {}, "c": {"secret": "INSECURE_NO_AUTH"}, "ci": {"secret": "other"}}"#,
        );
        routes.refresh();
        assert_eq!(routes.names().collect::<Vec<_>>(), ["ci", "a"]);
        assert_eq!(routes.get("ci").unwrap().secret.as_deref(), Some("s"));
        write("{");
        routes.refresh();
        assert!(routes.get("a").is_some());
        std::fs::remove_file(&file).unwrap();
        routes.refresh();
        assert!(routes.get("a").is_none());
    }

    #[test]
    fn what_cannot_be_meant_is_refused() {
        let home = tempfile::tempdir().unwrap();
        for (route, about) in [
            (json!({}), "no secret"),
            (json!({"secret": "INSECURE_NO_AUTH"}), "everybody"),
            (
                json!({"secret": "s", "deliver_only": true}),
                "says not where",
            ),
            (json!({"secret": "s", "events": 3}), "route r"),
        ] {
            let error = WebhookRoutes::new(home.path(), Some(&json!({"r": route})), None, false)
                .unwrap_err();
            assert!(error.contains(about), "{error}");
        }
        WebhookRoutes::new(
            home.path(),
            Some(&json!({"r": {"secret": "INSECURE_NO_AUTH"}})),
            None,
            true,
        )
        .unwrap();
        WebhookRoutes::new(
            home.path(),
            Some(&json!({"r": {}})),
            Some("all".to_owned()),
            false,
        )
        .unwrap();
        assert_eq!(parse_name(" My Route ").unwrap(), "my-route");
        for bad in ["", "-x", "a/b", "ä"] {
            assert!(parse_name(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn what_the_original_wrote_stays() {
        let text = json!({"description": "d", "events": [], "secret": "s", "prompt": "", "skills": [],
            "deliver": "log", "created_at": "2026-01-01T00:00:00Z", "future": {"x": 1}});
        let route = WebhookRoute::deserialize(&text).unwrap();
        assert_eq!(serde_json::to_value(route).unwrap(), text);
    }
}

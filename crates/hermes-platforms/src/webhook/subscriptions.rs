//! The file of routes that are created while the gateway runs.

use std::path::{Path, PathBuf};
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde::Deserialize as _;
use serde_json::{Map, Value};

use super::routes::{SUBSCRIPTIONS, WebhookRoute};
use super::sign_github;
use crate::http::PlatformHttp;

/// `webhook_subscriptions.json` of a home. Unreadable entries are preserved.
#[derive(Debug)]
pub struct Subscriptions {
    path: PathBuf,
    entries: Map<String, Value>,
}

impl Subscriptions {
    /// `Err`: the file exists but is unreadable; it is not overwritten.
    pub fn open(home: &Path) -> Result<Self, String> {
        let path = home.join(SUBSCRIPTIONS);
        let entries = match std::fs::read(&path) {
            Ok(bytes) => serde_json::from_slice(&bytes)
                .map_err(|error| format!("{}: {error}", path.display()))?,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Map::new(),
            Err(error) => return Err(format!("{}: {error}", path.display())),
        };
        Ok(Self { path, entries })
    }

    /// Those that can be read, in the order of the file.
    pub fn routes(&self) -> Vec<(&str, WebhookRoute)> {
        let entries = self.entries.iter();
        entries
            .filter_map(|(name, value)| {
                Some((name.as_str(), WebhookRoute::deserialize(value).ok()?))
            })
            .collect()
    }

    pub fn get(&self, name: &str) -> Option<WebhookRoute> {
        WebhookRoute::deserialize(self.entries.get(name)?).ok()
    }

    /// Returns whether one with that name existed.
    pub fn put(&mut self, name: &str, route: &WebhookRoute) -> Result<bool, String> {
        let value = serde_json::to_value(route).map_err(|error| error.to_string())?;
        let replaced = self.entries.insert(name.to_owned(), value).is_some();
        self.save().map(|()| replaced)
    }

    /// Returns whether one with that name existed.
    pub fn remove(&mut self, name: &str) -> Result<bool, String> {
        let there = self.entries.shift_remove(name).is_some();
        if there {
            self.save()?;
        }
        Ok(there)
    }

    /// Readable by the owner only: it contains secrets.
    fn save(&self) -> Result<(), String> {
        let failed = |error: std::io::Error| format!("{}: {error}", self.path.display());
        let text = serde_json::to_vec_pretty(&self.entries).map_err(|error| error.to_string())?;
        hermes_config::fs::write_atomic(&self.path, &text, 0o600).map_err(failed)
    }
}

/// A random secret.
pub fn new_secret() -> String {
    URL_SAFE_NO_PAD.encode(rand::random::<[u8; 32]>())
}

/// Calls a route like GitHub. Returns status and body.
pub async fn call(
    http: &PlatformHttp,
    url: &str,
    secret: &str,
    body: &str,
) -> Result<(u16, String), String> {
    let client = http.client().map_err(|error| error.to_string())?;
    let sent = client
        .post(url)
        .timeout(Duration::from_secs(10))
        .header("content-type", "application/json")
        .header("x-hub-signature-256", sign_github(secret, body.as_bytes()))
        .header("x-github-event", "test")
        .body(body.to_owned())
        .send()
        .await
        .map_err(|error| error.without_url().to_string())?;
    let status = sent.status().as_u16();
    let text = sent
        .text()
        .await
        .map_err(|error| error.without_url().to_string())?;
    Ok((status, text))
}

//! Refuses packages that the OSV database lists as malware.
//!
//! `npx`, `uvx` and similar tools fetch a package from a registry and run it. Before that, the
//! public advisory database (OSV) is queried for the package: an advisory `MAL-…` stops the server.
//! Ordinary vulnerabilities and a missing answer do not.

mod package;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use chrono::{DateTime, TimeDelta, Utc};
use hermes_core::clock::Clock;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

pub(crate) use package::Package;

pub const OSV_ENDPOINT: &str = "https://api.osv.dev/v1/query";

/// For the whole query, including all pages.
const QUERY_TIMEOUT: Duration = Duration::from_secs(10);
/// How long an answer is valid.
const RETENTION: TimeDelta = TimeDelta::hours(24);
const MAX_ENTRIES: usize = 500;
const MAX_BODY_BYTES: usize = 4 << 20;
const MAX_PAGES: usize = 5;

/// Makes the client on first use: most servers are not packages.
pub(crate) type MakeClient = Box<dyn Fn() -> Result<reqwest::Client, String> + Send + Sync>;

/// Queries the database for packages.
pub struct MalwareCheck {
    endpoint: String,
    client: MakeClient,
    clock: Arc<dyn Clock>,
    cache: PathBuf,
    /// One writer at a time.
    known: Mutex<Option<BTreeMap<String, Finding>>>,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
struct Finding {
    at: DateTime<Utc>,
    malware: Vec<String>,
}

impl MalwareCheck {
    /// `cache`: a file for answers.
    pub fn new(
        endpoint: impl Into<String>,
        client: MakeClient,
        clock: Arc<dyn Clock>,
        cache: PathBuf,
    ) -> Self {
        Self {
            endpoint: endpoint.into(),
            client,
            clock,
            cache,
            known: Mutex::default(),
        }
    }

    /// Why this command line must not be started, if so.
    pub async fn objection(&self, command: &str, args: &[String]) -> Option<String> {
        let package = Package::of(command, args)?;
        let malware = match self.remembered(&package) {
            Some(malware) => malware,
            None => self.look_up(&package).await?,
        };
        (!malware.is_empty()).then(|| {
            format!(
                "{package} is listed as malware ({}); not started. See https://osv.dev/{}",
                malware.join(", "),
                malware.first().map_or("", String::as_str)
            )
        })
    }

    /// `None`: no answer.
    async fn look_up(&self, package: &Package) -> Option<Vec<String>> {
        match tokio::time::timeout(QUERY_TIMEOUT, self.query(package)).await {
            Ok(Ok(malware)) => {
                self.remember(package, &malware);
                Some(malware)
            }
            Ok(Err(why)) => {
                tracing::warn!("{package} was not checked for malware: {why}");
                None
            }
            Err(_) => {
                tracing::warn!("{package} was not checked for malware: no answer in time");
                None
            }
        }
    }

    async fn query(&self, package: &Package) -> Result<Vec<String>, String> {
        let client = (self.client)()?;
        let mut malware = Vec::new();
        let mut page: Option<String> = None;
        for _ in 0..MAX_PAGES {
            let mut question = json!({
                "package": {"name": package.name, "ecosystem": package.ecosystem.name()},
            });
            if let Some(version) = &package.version {
                question["version"] = json!(version);
            }
            if let Some(page) = &page {
                question["page_token"] = json!(page);
            }
            let answer = self.post(&client, &question).await?;
            let found = answer["vulns"].as_array().into_iter().flatten();
            malware.extend(
                found
                    .filter_map(|advisory| advisory["id"].as_str())
                    .filter(|id| id.starts_with("MAL-"))
                    .map(str::to_owned),
            );
            page = answer["next_page_token"].as_str().map(str::to_owned);
            if page.is_none() {
                break;
            }
        }
        Ok(malware)
    }

    async fn post(&self, client: &reqwest::Client, question: &Value) -> Result<Value, String> {
        let sending = client
            .post(&self.endpoint)
            .header("content-type", "application/json")
            .body(question.to_string())
            .send();
        let mut response = sending.await.map_err(|error| error.to_string())?;
        if !response.status().is_success() {
            return Err(format!("HTTP {}", response.status().as_u16()));
        }
        let mut body = Vec::new();
        while let Some(chunk) = response.chunk().await.map_err(|error| error.to_string())? {
            body.extend_from_slice(&chunk);
            if body.len() > MAX_BODY_BYTES {
                return Err("the answer is too long".to_owned());
            }
        }
        serde_json::from_slice(&body).map_err(|error| error.to_string())
    }

    fn remembered(&self, package: &Package) -> Option<Vec<String>> {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let known = known.get_or_insert_with(|| read(&self.cache));
        let finding = known.get(&package.to_string())?;
        let age = self.clock.now() - finding.at;
        (age >= TimeDelta::zero() && age < RETENTION).then(|| finding.malware.clone())
    }

    fn remember(&self, package: &Package, malware: &[String]) {
        let now = self.clock.now();
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        // Other processes may have written since we read.
        let mut all = read(&self.cache);
        all.retain(|_, finding| now - finding.at < RETENTION);
        while all.len() >= MAX_ENTRIES {
            all.pop_first();
        }
        all.insert(
            package.to_string(),
            Finding {
                at: now,
                malware: malware.to_vec(),
            },
        );
        let written = serde_json::to_vec_pretty(&all)
            .map_err(|error| error.to_string())
            .and_then(|text| {
                crate::tools::remembered::write_file(&self.cache, &text)
                    .map_err(|error| error.to_string())
            });
        if let Err(error) = written {
            tracing::warn!("the answer about {package} is not remembered: {error}");
        }
        *known = Some(all);
    }
}

/// An unreadable file counts as empty.
fn read(path: &std::path::Path) -> BTreeMap<String, Finding> {
    std::fs::read(path)
        .ok()
        .and_then(|text| serde_json::from_slice(&text).ok())
        .unwrap_or_default()
}

//! What is known of endpoints, in this process and on disk (`model_fields.json` of the home).

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Mutex, OnceLock, PoisonError};

use chrono::{DateTime, TimeDelta, Utc};
use hermes_config::fs::write_atomic;
use hermes_config::home::Home;
use hermes_core::model::Route;
use serde::{Deserialize, Serialize};

use super::format::format_name;
use super::{FieldRule, FieldRules};
use crate::providers::endpoint;

/// Endpoints learn, too: after this time a field is tried again, which costs one refused call.
const KEPT_FOR: TimeDelta = TimeDelta::days(30);
/// Models that are kept; the longest unchanged go first.
const MOST_MODELS: usize = 200;
/// A larger file is not ours.
const LARGEST_FILE: u64 = 4 << 20;

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Entry {
    #[serde(flatten)]
    rule: FieldRule,
    learned: DateTime<Utc>,
}

type Entries = BTreeMap<String, Vec<Entry>>;

#[derive(Default, Serialize, Deserialize)]
struct File {
    #[serde(default)]
    models: Entries,
}

/// The book of all models.
#[derive(Debug, Default)]
pub struct FieldBook {
    /// `None`: kept in this process only.
    path: Option<PathBuf>,
    known: OnceLock<Mutex<Entries>>,
}

impl FieldBook {
    /// Nothing is read before the first question.
    pub fn new(home: &Home) -> Self {
        Self {
            path: Some(home.join("model_fields.json")),
            known: OnceLock::new(),
        }
    }

    pub(crate) fn recall(&self, route: &Route, now: DateTime<Utc>) -> FieldRules {
        let known = self.known().lock().unwrap_or_else(PoisonError::into_inner);
        known
            .get(&key(route))
            .into_iter()
            .flatten()
            .filter(|entry| now - entry.learned < KEPT_FOR)
            .map(|entry| entry.rule.clone())
            .collect()
    }

    /// Keeps rules that made a call succeed. A file that cannot be written costs a refused call
    /// after the next start, nothing more.
    pub(crate) fn learn(&self, route: &Route, rules: &FieldRules, now: DateTime<Utc>) {
        let key = key(route);
        add(
            &mut self.known().lock().unwrap_or_else(PoisonError::into_inner),
            &key,
            rules,
            now,
        );
        let Some(path) = &self.path else {
            return;
        };
        // Another process may have learnt something meanwhile: add to what is there now.
        let Some(mut models) = self.read() else {
            return;
        };
        add(&mut models, &key, rules, now);
        let saved = serde_json::to_vec_pretty(&File { models })
            .map_err(std::io::Error::other)
            .and_then(|bytes| write_atomic(path, &bytes, 0o600));
        if let Err(error) = saved {
            tracing::warn!(%error, path = %path.display(), "what the model's endpoint takes was not stored");
        }
    }

    fn known(&self) -> &Mutex<Entries> {
        self.known
            .get_or_init(|| Mutex::new(self.read().unwrap_or_default()))
    }

    /// `None`: the file is there but cannot be read, so it must not be written either.
    fn read(&self) -> Option<Entries> {
        let Some(path) = &self.path else {
            return Some(Entries::new());
        };
        match std::fs::metadata(path) {
            Ok(meta) if meta.len() > LARGEST_FILE => return None,
            Ok(_) => {}
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                return Some(Entries::new());
            }
            Err(_) => return None,
        }
        let read = std::fs::read(path)
            .map_err(|error| error.to_string())
            .and_then(|bytes| {
                serde_json::from_slice::<File>(&bytes).map_err(|error| error.to_string())
            });
        match read {
            Ok(file) => Some(file.models),
            Err(error) => {
                tracing::warn!(%error, path = %path.display(), "this file is not understood; delete it to let Hermes learn again what models accept");
                None
            }
        }
    }
}

fn add(models: &mut Entries, key: &str, rules: &FieldRules, now: DateTime<Utc>) {
    let entries = models.entry(key.to_owned()).or_default();
    let mut all: FieldRules = entries
        .iter()
        .filter(|entry| now - entry.learned < KEPT_FOR)
        .map(|entry| entry.rule.clone())
        .collect();
    all.extend(rules);
    let old = std::mem::take(entries);
    *entries = all
        .iter()
        .map(|rule| {
            let before = old.iter().find(|entry| entry.rule == *rule);
            let again = rules.iter().any(|new| new == rule);
            Entry {
                rule: rule.clone(),
                learned: before.filter(|_| !again).map_or(now, |entry| entry.learned),
            }
        })
        .collect();
    let newest = |entries: &[Entry]| entries.iter().map(|entry| entry.learned).max();
    while models.len() > MOST_MODELS {
        let oldest = models
            .iter()
            .min_by_key(|(_, entries)| newest(entries))
            .map(|(key, _)| key.clone());
        match oldest {
            Some(oldest) => models.remove(&oldest),
            None => break,
        };
    }
}

fn key(route: &Route) -> String {
    let format = format_name(route.format);
    let address = hermes_config::redact::url(endpoint::tidy(&route.base_url));
    format!("{}@{address} {format}", route.model)
}

//! Remembers which fields an endpoint refuses, in this process and on disk (`model_fields.json` of
//! the home).

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

/// Endpoints change: after this time a field is tried again, which costs one refused call.
const RULE_LIFETIME: TimeDelta = TimeDelta::days(30);
/// The same for a field that was dropped with others without having been named.
const GUESS_LIFETIME: TimeDelta = TimeDelta::days(1);
/// Maximum number of models; the longest unchanged are removed first.
const MAX_MODELS: usize = 200;
/// A larger file is not ours.
const MAX_FILE_BYTES: u64 = 4 << 20;

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct LearnedRules {
    #[serde(flatten)]
    rule: FieldRule,
    learned: DateTime<Utc>,
    #[serde(default, skip_serializing_if = "RuleCertainty::is_named")]
    certainty: RuleCertainty,
}

impl LearnedRules {
    fn is_current(&self, now: DateTime<Utc>) -> bool {
        let lifetime = match self.certainty {
            RuleCertainty::Named => RULE_LIFETIME,
            RuleCertainty::Guessed => GUESS_LIFETIME,
        };
        now - self.learned < lifetime
    }
}

/// How a rule was found.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum RuleCertainty {
    /// The endpoint named the field.
    #[default]
    Named,
    /// The request was accepted without several fields, one of which was the reason.
    Guessed,
}

impl RuleCertainty {
    #[expect(
        clippy::trivially_copy_pass_by_ref,
        reason = "serde passes a reference"
    )]
    fn is_named(&self) -> bool {
        *self == Self::Named
    }
}

type Entries = BTreeMap<String, Vec<LearnedRules>>;

#[derive(Default, Serialize, Deserialize)]
struct FieldCacheFile {
    #[serde(default)]
    models: Entries,
}

/// The rules of all models.
#[derive(Debug, Default)]
pub struct FieldRuleCache {
    /// `None`: kept in this process only.
    path: Option<PathBuf>,
    known: OnceLock<Mutex<Entries>>,
}

impl FieldRuleCache {
    /// Nothing is read before the first lookup.
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
            .filter(|entry| entry.is_current(now))
            .map(|entry| entry.rule.clone())
            .collect()
    }

    /// Stores rules that made a call succeed. If the file cannot be written, the next start costs
    /// one refused call.
    pub(crate) fn learn(
        &self,
        route: &Route,
        rules: &FieldRules,
        certainty: RuleCertainty,
        now: DateTime<Utc>,
    ) {
        let key = key(route);
        let learned = (rules, certainty);
        add(
            &mut self.known().lock().unwrap_or_else(PoisonError::into_inner),
            &key,
            learned,
            now,
        );
        let Some(path) = &self.path else {
            return;
        };
        // Another process may have learned something meanwhile: merge with the current file.
        let Some(mut models) = self.read() else {
            return;
        };
        add(&mut models, &key, learned, now);
        let saved = serde_json::to_vec_pretty(&FieldCacheFile { models })
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

    /// `None`: the file exists but cannot be read, so it must not be written either.
    fn read(&self) -> Option<Entries> {
        let Some(path) = &self.path else {
            return Some(Entries::new());
        };
        match std::fs::metadata(path) {
            Ok(meta) if meta.len() > MAX_FILE_BYTES => return None,
            Ok(_) => {}
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                return Some(Entries::new());
            }
            Err(_) => return None,
        }
        let read = std::fs::read(path)
            .map_err(|error| error.to_string())
            .and_then(|bytes| {
                serde_json::from_slice::<FieldCacheFile>(&bytes).map_err(|error| error.to_string())
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

fn add(
    models: &mut Entries,
    key: &str,
    (rules, certainty): (&FieldRules, RuleCertainty),
    now: DateTime<Utc>,
) {
    let entries = models.entry(key.to_owned()).or_default();
    let mut all: FieldRules = entries
        .iter()
        .filter(|entry| entry.is_current(now))
        .map(|entry| entry.rule.clone())
        .collect();
    all.extend(rules);
    let old = std::mem::take(entries);
    *entries = all
        .iter()
        .map(|rule| {
            let before = old.iter().find(|entry| entry.rule == *rule);
            let again = rules.iter().any(|new| new == rule);
            match before.filter(|_| !again) {
                Some(entry) => entry.clone(),
                None => LearnedRules {
                    rule: rule.clone(),
                    learned: now,
                    certainty,
                },
            }
        })
        .collect();
    let newest = |entries: &[LearnedRules]| entries.iter().map(|entry| entry.learned).max();
    while models.len() > MAX_MODELS {
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

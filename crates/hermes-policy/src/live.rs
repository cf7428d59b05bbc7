//! The current rules of config.yaml: a revoked rule stops applying at once, in every process.

use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::SystemTime;

use hermes_config::edit::{ConfigDoc, EditError, KeyPath};
use hermes_core::approval::Rule;
use serde_json::{Value, json};

const KEY: &str = "command_allowlist";

#[derive(Debug)]
pub(crate) struct LiveRules {
    file: Option<PathBuf>,
    /// Rules that are not from the file: an administrator's, or those of this process.
    rules: Mutex<Vec<String>>,
    deny: Vec<String>,
    cache: Mutex<Option<CachedRules>>,
}

#[derive(Clone, Debug)]
struct CachedRules {
    stamp: ConfigStamp,
    rules: Vec<String>,
    deny: Vec<String>,
}

type ConfigStamp = Option<(SystemTime, u64)>;

impl LiveRules {
    pub(crate) fn new(file: Option<PathBuf>, rules: &[String], deny: &[String]) -> Self {
        let live = Self {
            file,
            rules: Mutex::new(Vec::new()),
            deny: deny.to_vec(),
            cache: Mutex::new(None),
        };
        let written = live.read_file_rules();
        let others = rules
            .iter()
            .filter(|rule| !written.rules.contains(rule))
            .cloned()
            .collect();
        *live.rules.lock().unwrap_or_else(PoisonError::into_inner) = others;
        live
    }

    pub(crate) fn rules(&self) -> Vec<String> {
        let mut rules = self.read_file_rules().rules;
        rules.extend(
            self.rules
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .iter()
                .cloned(),
        );
        rules
    }

    /// The initial ones stay: nothing that runs here can remove them.
    pub(crate) fn deny(&self) -> Vec<String> {
        let mut deny = self.deny.clone();
        for glob in self.read_file_rules().deny {
            if !deny.contains(&glob) {
                deny.push(glob);
            }
        }
        deny
    }

    pub(crate) fn add(&self, rule: &Rule) -> Result<(), EditError> {
        if let Some(file) = &self.file {
            add(file, rule).map(drop)
        } else {
            self.rules
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .push(rule.0.clone());
            Ok(())
        }
    }

    fn read_file_rules(&self) -> CachedRules {
        let Some(file) = &self.file else {
            return CachedRules {
                stamp: None,
                rules: Vec::new(),
                deny: Vec::new(),
            };
        };
        let stamp = stamp(file);
        let mut cache = self.cache.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(cached) = &*cache
            && cached.stamp == stamp
        {
            return cached.clone();
        }
        let fresh = match ConfigDoc::open(file) {
            Ok(doc) => CachedRules {
                stamp,
                rules: string_list(doc.tree().get(KEY)),
                deny: string_list(doc.tree().get("approvals").and_then(|at| at.get("deny"))),
            },
            Err(error) => {
                // An unreadable file allows nothing.
                tracing::warn!(%error, "stored rules cannot be read");
                CachedRules {
                    stamp,
                    rules: Vec::new(),
                    deny: Vec::new(),
                }
            }
        };
        *cache = Some(fresh.clone());
        fresh
    }
}

fn stamp(file: &Path) -> ConfigStamp {
    let meta = std::fs::metadata(file).ok()?;
    Some((meta.modified().ok()?, meta.len()))
}

fn string_list(value: Option<&Value>) -> Vec<String> {
    match value {
        Some(Value::String(text)) => vec![text.clone()],
        Some(Value::Array(items)) => items
            .iter()
            .filter_map(|item| item.as_str().map(str::to_owned))
            .collect(),
        _ => Vec::new(),
    }
}

/// The entries of config.yaml in order.
pub fn stored(file: &Path) -> Result<Vec<String>, EditError> {
    Ok(string_list(ConfigDoc::open(file)?.tree().get(KEY)))
}

/// Adds an entry. `false`: it existed.
pub fn add(file: &Path, rule: &Rule) -> Result<bool, EditError> {
    let mut doc = ConfigDoc::open(file)?;
    if string_list(doc.tree().get(KEY)).contains(&rule.0) {
        return Ok(false);
    }
    doc.push(&KeyPath::new([KEY]), &json!(rule.0))?;
    doc.save()
}

/// Removes an entry. `false`: it did not exist.
pub fn remove(file: &Path, entry: &str) -> Result<bool, EditError> {
    let mut doc = ConfigDoc::open(file)?;
    let at = match doc.tree().get(KEY) {
        Some(Value::Array(items)) => match items.iter().position(|item| item == entry) {
            Some(at) => (items.len() > 1).then_some(at),
            None => return Ok(false),
        },
        Some(Value::String(text)) if text == entry => None,
        _ => return Ok(false),
    };
    match at {
        Some(at) => doc.unset_keeping_comments(&KeyPath::new([KEY.to_owned(), at.to_string()]))?,
        None => doc.set(&KeyPath::new([KEY]), &json!([]))?,
    };
    doc.save()
}

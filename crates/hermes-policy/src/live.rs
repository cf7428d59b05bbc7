//! Rules as they stand in config.yaml now: one that is revoked stops counting at once, in every
//! process.

use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::SystemTime;

use hermes_config::edit::{ConfigDoc, EditError, KeyPath};
use hermes_core::approval::Rule;
use serde_json::{Value, json};

const KEY: &str = "command_allowlist";

#[derive(Debug)]
pub(crate) struct Live {
    file: Option<PathBuf>,
    /// What does not come from the file: an administrator's, or of this process alone.
    rules: Mutex<Vec<String>>,
    deny: Vec<String>,
    cache: Mutex<Option<Cached>>,
}

#[derive(Clone, Debug)]
struct Cached {
    stamp: Stamp,
    rules: Vec<String>,
    deny: Vec<String>,
}

type Stamp = Option<(SystemTime, u64)>;

impl Live {
    pub(crate) fn new(file: Option<PathBuf>, rules: &[String], deny: &[String]) -> Self {
        let live = Self {
            file,
            rules: Mutex::new(Vec::new()),
            deny: deny.to_vec(),
            cache: Mutex::new(None),
        };
        let written = live.written();
        let others = rules
            .iter()
            .filter(|rule| !written.rules.contains(rule))
            .cloned()
            .collect();
        *live.rules.lock().unwrap_or_else(PoisonError::into_inner) = others;
        live
    }

    pub(crate) fn rules(&self) -> Vec<String> {
        let mut rules = self.written().rules;
        rules.extend(
            self.rules
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .iter()
                .cloned(),
        );
        rules
    }

    /// Those of the start stay: nothing that runs here can lift them.
    pub(crate) fn deny(&self) -> Vec<String> {
        let mut deny = self.deny.clone();
        for glob in self.written().deny {
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

    fn written(&self) -> Cached {
        let Some(file) = &self.file else {
            return Cached {
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
            Ok(doc) => Cached {
                stamp,
                rules: texts(doc.tree().get(KEY)),
                deny: texts(doc.tree().get("approvals").and_then(|at| at.get("deny"))),
            },
            Err(error) => {
                // A file that cannot be read allows nothing.
                tracing::warn!(%error, "stored rules cannot be read");
                Cached {
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

fn stamp(file: &Path) -> Stamp {
    let meta = std::fs::metadata(file).ok()?;
    Some((meta.modified().ok()?, meta.len()))
}

fn texts(value: Option<&Value>) -> Vec<String> {
    match value {
        Some(Value::String(text)) => vec![text.clone()],
        Some(Value::Array(items)) => items
            .iter()
            .filter_map(|item| item.as_str().map(str::to_owned))
            .collect(),
        _ => Vec::new(),
    }
}

/// The entries of config.yaml, in its order.
pub fn stored(file: &Path) -> Result<Vec<String>, EditError> {
    Ok(texts(ConfigDoc::open(file)?.tree().get(KEY)))
}

/// Adds an entry. `false`: it was there.
pub fn add(file: &Path, rule: &Rule) -> Result<bool, EditError> {
    let mut doc = ConfigDoc::open(file)?;
    if texts(doc.tree().get(KEY)).contains(&rule.0) {
        return Ok(false);
    }
    doc.push(&KeyPath::new([KEY]), &json!(rule.0))?;
    doc.save()
}

/// Removes an entry. `false`: it was not there.
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

//! Context window of a model: from the config, the cache, the server itself, the catalogue, or a
//! default.
//!
//! Learned values are stored in `context_length_cache.yaml`, which the Python original shares.

use std::collections::{BTreeMap, HashMap};
use std::path::PathBuf;
use std::sync::{Mutex, OnceLock, PoisonError};
use std::time::Duration;

use hermes_config::fs::write_atomic;
use hermes_config::home::Home;
use hermes_config::yaml;
use hermes_http::HttpSettings;
use secrecy::SecretString;
use serde_json::{Map, Value, json};

use crate::live::{self, CONNECT_TIMEOUT, LocalProbe, PROBE_TIMEOUT};
use crate::providers::{LocalServer, endpoint};

/// Assumed for an unknown model.
pub(crate) const DEFAULT_CONTEXT: u32 = 256_000;
/// The source of that value.
pub(crate) const DEFAULT_SOURCE: &str = "default";

/// A smaller window is a parsing error, not a limit.
const MIN_CONTEXT: u32 = 1024;

/// Known windows, in this process and on disk.
#[derive(Debug)]
pub struct ContextCache {
    path: PathBuf,
    /// The file as read when first needed, and what was learned since.
    known: OnceLock<Mutex<BTreeMap<String, u32>>>,
    probes: Mutex<HashMap<String, Option<LocalProbe>>>,
}

/// A server to query, and the model.
#[derive(Clone, Copy, Debug)]
pub struct ProbeRequest<'a> {
    pub base_url: &'a str,
    pub model: &'a str,
    pub server: Option<LocalServer>,
    pub key: Option<&'a SecretString>,
    pub http: &'a HttpSettings,
    /// Whether a model may be loaded to learn its window.
    pub load: bool,
}

impl ContextCache {
    /// Nothing is read before the first lookup.
    pub fn new(home: &Home) -> Self {
        Self {
            path: home.join("context_length_cache.yaml"),
            known: OnceLock::new(),
            probes: Mutex::default(),
        }
    }

    /// The known window of a model at an address.
    pub fn recall(&self, model: &str, base_url: &str) -> Option<u32> {
        let known = self.known().lock().unwrap_or_else(PoisonError::into_inner);
        let key = key(model, base_url);
        known
            .get(&key)
            .or_else(|| known.get(&format!("{key}/")))
            .copied()
    }

    /// Stores a value, in this process and on disk. If the file cannot be written, the server is
    /// queried again next time.
    pub fn learn(&self, model: &str, base_url: &str, tokens: u32) {
        if tokens < MIN_CONTEXT {
            return;
        }
        let key = key(model, base_url);
        {
            let mut known = self.known().lock().unwrap_or_else(PoisonError::into_inner);
            if known.insert(key.clone(), tokens) == Some(tokens) {
                return;
            }
        }
        // Another process may have learned something meanwhile: merge with the current file.
        let Some(mut rows) = self.read() else {
            return;
        };
        rows.insert(key, tokens);
        let rows: Map<String, Value> = rows.into_iter().map(|(k, v)| (k, json!(v))).collect();
        let mut text = yaml::to_block(&json!({ "context_lengths": rows }));
        if !text.ends_with('\n') {
            text.push('\n');
        }
        if let Err(error) = write_atomic(&self.path, text.as_bytes(), 0o600) {
            tracing::debug!(%error, path = %self.path.display(), "the learnt window was not stored");
        }
    }

    /// Records a limit stated in an error, if it is lower than what was assumed.
    pub fn learn_limit(&self, model: &str, base_url: &str, assumed: u32, stated: u32) {
        if stated < assumed {
            self.learn(model, base_url, stated);
        }
    }

    /// Queries the server, once per process. Blocks for at most [`PROBE_TIMEOUT`] and a little, or
    /// until the model is loaded if requested.
    pub fn ask(&self, question: &ProbeRequest<'_>) -> Option<LocalProbe> {
        let key = key(question.model, question.base_url);
        if let Some(known) = self
            .probes
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .get(&key)
        {
            return *known;
        }
        let probe = blocking_probe(question);
        // Once the model runs, its window is known: queried again then.
        if probe.is_some_and(|probe| probe.may_shrink) {
            return probe;
        }
        if let Some(tokens) = probe.and_then(|probe| probe.context_length) {
            self.learn(question.model, question.base_url, tokens);
        }
        self.probes
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .insert(key, probe);
        probe
    }

    fn known(&self) -> &Mutex<BTreeMap<String, u32>> {
        self.known
            .get_or_init(|| Mutex::new(self.read().unwrap_or_default()))
    }

    /// The rows of the file. `None`: it exists but cannot be read, so it must not be written
    /// either.
    fn read(&self) -> Option<BTreeMap<String, u32>> {
        let text = match std::fs::read_to_string(&self.path) {
            Ok(text) => text,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                return Some(BTreeMap::new());
            }
            Err(_) => return None,
        };
        let (tree, _) = yaml::parse(&text).ok()?;
        let rows = match tree.get("context_lengths") {
            Some(Value::Object(rows)) => rows,
            None | Some(Value::Null) => return Some(BTreeMap::new()),
            Some(_) => return None,
        };
        Some(
            rows.iter()
                .filter_map(|(key, tokens)| {
                    let tokens = u32::try_from(tokens.as_u64()?).ok()?;
                    Some((key.clone(), tokens))
                })
                .collect(),
        )
    }
}

fn key(model: &str, base_url: &str) -> String {
    format!("{model}@{}", endpoint::tidy(base_url))
}

/// Runs the query on its own thread: callers may or may not be inside a runtime, and a runtime must
/// not be entered twice.
fn blocking_probe(question: &ProbeRequest<'_>) -> Option<LocalProbe> {
    let settings = HttpSettings {
        connect_timeout: if endpoint::is_local(question.base_url) {
            CONNECT_TIMEOUT
        } else {
            // Over the internet a handshake alone takes longer than that.
            PROBE_TIMEOUT.saturating_sub(Duration::from_millis(300))
        },
        ..question.http.clone()
    };
    let ask = || -> Option<LocalProbe> {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .ok()?;
        let client = hermes_http::client(&settings).ok()?;
        let (server, base_url) = (question.server, question.base_url);
        let (model, key) = (question.model, question.key);
        let probe = if question.load {
            runtime.block_on(live::probe_loaded(&client, server, base_url, model, key))
        } else {
            runtime.block_on(live::probe(&client, server, base_url, model, key))
        };
        // A connection in progress must not delay the caller.
        runtime.shutdown_background();
        probe
    };
    let on_thread = || {
        std::thread::scope(|scope| {
            std::thread::Builder::new()
                .name("context-probe".to_owned())
                .spawn_scoped(scope, ask)
                .ok()?
                .join()
                .ok()?
        })
    };
    match tokio::runtime::Handle::try_current().map(|handle| handle.runtime_flavor()) {
        // Lets the runtime move its other tasks to another thread meanwhile.
        Ok(tokio::runtime::RuntimeFlavor::MultiThread) => tokio::task::block_in_place(on_thread),
        _ => on_thread(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn book(text: Option<&str>) -> (tempfile::TempDir, ContextCache) {
        let dir = tempfile::tempdir().unwrap();
        if let Some(text) = text {
            std::fs::write(dir.path().join("context_length_cache.yaml"), text).unwrap();
        }
        let book = ContextCache::new(&Home::at(dir.path()));
        (dir, book)
    }

    const FILE: &str = "context_lengths:\n  mock@http://127.0.0.1:1/v1: 131072\n  \
                        old@http://h.test/v1/: 9000\n  qwen3:8b@http://h.test/v1: 40960\n";

    #[test]
    fn rows_of_the_original_are_found_with_and_without_slash() {
        let (_dir, book) = book(Some(FILE));
        assert_eq!(book.recall("mock", "http://127.0.0.1:1/v1/"), Some(131_072));
        assert_eq!(book.recall("old", "http://h.test/v1"), Some(9000));
        assert_eq!(book.recall("qwen3:8b", "http://h.test/v1"), Some(40_960));
        assert_eq!(book.recall("other", "http://h.test/v1"), None);
    }

    #[test]
    fn what_is_learnt_joins_the_file() {
        let (dir, book) = book(Some(FILE));
        let path = dir.path().join("context_length_cache.yaml");
        assert_eq!(book.recall("mock", "http://127.0.0.1:1/v1"), Some(131_072));
        // Another process writes between our reading and our writing.
        std::fs::write(&path, format!("{FILE}  new@http://h.test/v1: 5000\n")).unwrap();
        book.learn_limit("mock", "http://127.0.0.1:1/v1", 131_072, 32_768);
        let again = ContextCache::new(&Home::at(dir.path()));
        assert_eq!(again.recall("mock", "http://127.0.0.1:1/v1"), Some(32_768));
        assert_eq!(again.recall("new", "http://h.test/v1"), Some(5000));
        assert_eq!(again.recall("qwen3:8b", "http://h.test/v1"), Some(40_960));
    }

    #[test]
    fn limits_are_only_lowered_and_misreadings_ignored() {
        let (dir, book) = book(None);
        book.learn_limit("m", "http://h.test", 10_000, 20_000);
        book.learn_limit("m", "http://h.test", 10_000, 7);
        assert_eq!(book.recall("m", "http://h.test"), None);
        assert!(!dir.path().join("context_length_cache.yaml").exists());
    }

    #[test]
    fn a_file_that_cannot_be_read_is_not_overwritten() {
        let (dir, book) = book(Some("context_lengths: [1, 2\n"));
        book.learn("m", "http://h.test", 8192);
        let path = dir.path().join("context_length_cache.yaml");
        assert_eq!(
            std::fs::read_to_string(path).unwrap(),
            "context_lengths: [1, 2\n"
        );
        assert_eq!(book.recall("m", "http://h.test"), Some(8192));
    }
}

//! Servers that run as child processes and communicate over pipes.
//!
//! A child leads its own process group, which is ended as a whole. If this process is killed
//! without a chance to clean up, the [`guard`] ends the groups; if even that fails, the
//! [`registry`](crate::status::child_registry) lets the next process end them.

mod child;
mod env;
mod guard;
mod lines;
mod pipe_writer;
mod stderr;
mod transport;

use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError, Weak};

use crate::status::child_registry::{ChildRegistry, ReapReport};

pub(crate) use child::Child;
#[cfg(any(test, fuzzing))]
pub(crate) use lines::fuzz;
use stderr::StderrLog;
pub(crate) use stderr::StderrRing;
pub(crate) use transport::spawn;

/// State shared by all stdio servers of this process.
pub struct Children {
    home: PathBuf,
    /// Our own environment, read at process start.
    env: BTreeMap<String, String>,
    registry: ChildRegistry,
    guard: guard::Guard,
    log: StderrLog,
    /// The current or last child of each server.
    current: Mutex<HashMap<String, Weak<child::Inner>>>,
}

impl Children {
    /// `env` is the environment of this process; children get the allow-listed part of it.
    pub fn new(home: &Path, env: impl IntoIterator<Item = (String, String)>) -> Arc<Self> {
        Arc::new(Self {
            home: home.to_owned(),
            env: env.into_iter().collect(),
            registry: ChildRegistry::new(home.join("mcp-children.json")),
            guard: guard::Guard::default(),
            log: StderrLog::new(home.join("logs").join("mcp-stderr.log")),
            current: Mutex::default(),
        })
    }

    /// Ends the children left running by crashed processes. Call once at start.
    pub async fn reap_orphans(&self) -> ReapReport {
        self.registry.reap_orphans().await
    }

    fn previous(&self, server: &str) -> Option<Arc<child::Inner>> {
        let current = self.current.lock().unwrap_or_else(PoisonError::into_inner);
        current.get(server).and_then(Weak::upgrade)
    }

    fn remember(&self, server: &str, child: &Arc<child::Inner>) {
        let mut current = self.current.lock().unwrap_or_else(PoisonError::into_inner);
        current.retain(|_, child| child.strong_count() > 0);
        current.insert(server.to_owned(), Arc::downgrade(child));
    }
}

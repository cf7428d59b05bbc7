//! The home, its environment, and the process that holds the conversations.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use hermes_config::env::{Env, ProcessEnv};
use hermes_config::home::Home;
use hermes_config::schema::Logging;
use hermes_config::{Config, Loaded};

use crate::failure::{Failure, Outcome};

/// Set for the child processes of a gateway.
pub const IN_GATEWAY: &str = "_HERMES_GATEWAY";

/// The common context of all conversations.
#[derive(Clone)]
pub struct AppContext {
    pub home: Home,
    pub env: Env,
    /// Hooks of config.yaml run without having been approved.
    pub accept_hooks: bool,
    /// This process is the gateway; its child processes get a variable for that.
    pub is_gateway: bool,
    pub process: Arc<dyn HostProcess>,
}

/// The process that runs the conversations: its output outside of them, its log files, its memory.
pub trait HostProcess: Send + Sync {
    /// Shows a remark that belongs to no conversation.
    fn remark(&self, text: &str);

    /// Who reads remarks.
    fn audience(&self) -> Audience;

    /// Whether [`Self::transient`] can replace a line that was shown.
    fn replaces_lines(&self) -> bool;

    /// Shows a line that is replaced by the next one; an empty text removes it.
    fn transient(&self, text: &str);

    /// Starts logging into `dir`. A second call changes nothing.
    fn start_logging(&self, dir: &Path, logging: &Logging);

    /// Settings were read, and the first conversation is opened next: memory that only the start needed
    /// can be returned to the system.
    fn settings_read(&self);
}

/// Who reads remarks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Audience {
    Nobody,
    Person,
    Program,
}

impl AppContext {
    /// The configured time after which an unanswered approval is denied. `None`: it waits, because
    /// a person should not be rushed.
    pub fn approval_limit(&self) -> Option<Duration> {
        let loaded = self.load_config().ok()?;
        loaded.file_tree.get("approvals")?.get("timeout")?;
        let seconds = loaded.config.approvals.timeout;
        (seconds > 0).then(|| Duration::from_secs(seconds))
    }

    /// The environment variables of this process and its children.
    pub fn process_env(&self) -> ProcessEnv {
        let process = ProcessEnv::current();
        if !self.is_gateway {
            return process;
        }
        let guard = (IN_GATEWAY, "1");
        ProcessEnv::from_vars(process.iter().chain([guard]))
    }

    /// The same home with `.env` reloaded.
    pub fn reread(&self) -> Result<Self, Failure> {
        let env = Env::load(&self.home, &self.process_env())
            .map_err(|error| Failure::failed(error.to_string()))?;
        hermes_config::secrets::remember(&self.home, &env);
        Ok(Self {
            env,
            ..self.clone()
        })
    }

    /// The configuration. Settings without effect are remarked on; mere remarks are left to
    /// `config check`.
    pub fn config(&self) -> Result<Config, Failure> {
        let loaded = self.load_config()?;
        hermes_config::secrets::remember_config(&loaded.tree);
        for warning in loaded
            .warnings
            .iter()
            .filter(|warning| warning.is_problem())
        {
            self.process.remark(&format!("config: {warning}"));
        }
        refuse_foreign_backend(&loaded)?;
        Ok(loaded.config)
    }

    pub fn load_config(&self) -> Result<Loaded, Failure> {
        Config::load(&self.home, &self.env)
            .map_err(|error| Failure::failed(format!("{error}\nto fix it: hermes config edit")))
    }
}

/// The original can store its state in PostgreSQL; such a home must not be written here.
fn refuse_foreign_backend(loaded: &Loaded) -> Outcome {
    let backend = loaded
        .tree
        .pointer("/database/backend")
        .and_then(|value| value.as_str());
    match backend {
        None | Some("" | "sqlite") => Ok(()),
        Some(other) => Err(Failure::failed(format!(
            "this home keeps its state in {other} (database.backend); only sqlite is supported"
        ))),
    }
}

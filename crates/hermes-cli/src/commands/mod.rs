//! One module per command. Each has its arguments and a `run` that takes the [`Context`].

pub(crate) mod acp;
pub(crate) mod approvals;
pub(crate) mod auth;
pub(crate) mod backup;
pub(crate) mod bundles;
pub(crate) mod checkpoints;
pub(crate) mod completion;
pub(crate) mod config;
pub(crate) mod conformance;
pub(crate) mod cron;
pub(crate) mod doctor;
pub(crate) mod fallback;
pub(crate) mod gateway;
pub(crate) mod help;
pub(crate) mod hooks;
pub(crate) mod import;
pub(crate) mod insights;
pub(crate) mod logs;
pub(crate) mod man;
pub(crate) mod mcp;
pub(crate) mod memory;
pub(crate) mod model;
pub(crate) mod original;
pub(crate) mod pairing;
pub(crate) mod profile;
pub(crate) mod sessions;
pub(crate) mod setup;
pub(crate) mod skills;
pub(crate) mod status;
pub(crate) mod tools;
pub(crate) mod uninstall;
pub(crate) mod update;
pub(crate) mod version;
pub(crate) mod waiting;
pub(crate) mod webhook;

use hermes_config::env::{Env, ProcessEnv};
use hermes_config::home::{Home, HomeError};
use hermes_config::{Config, Loaded};

use crate::args::GlobalArgs;
use crate::exit::{Exit, Failure, Outcome};
use crate::output::Output;

/// Set for what a gateway starts.
pub(crate) const IN_GATEWAY: &str = "_HERMES_GATEWAY";

/// What every command starts from: the home, the environment, the streams.
#[derive(Clone)]
pub(crate) struct Context {
    pub(crate) home: Home,
    pub(crate) env: Env,
    pub(crate) out: Output,
    pub(crate) no_input: bool,
    /// Nobody need agree to the hooks of config.yaml.
    pub(crate) accept_hooks: bool,
    /// This process is the gateway: what it starts is told so.
    pub(crate) is_gateway: bool,
}

impl Context {
    pub(crate) fn open(global: &GlobalArgs, out: Output) -> Result<Self, Failure> {
        let process = ProcessEnv::current();
        let home = Home::resolve(&process, global.profile.as_deref()).map_err(|error| {
            let exit = match &error {
                HomeError::InvalidProfile(_) => Exit::Usage,
                HomeError::MissingProfile { .. } => Exit::NotFound,
                HomeError::NoHome | HomeError::Io { .. } => Exit::Failed,
            };
            Failure::new(exit, error.to_string())
        })?;
        let env = Env::load(&home, &process).map_err(|error| Failure::failed(error.to_string()))?;
        hermes_config::secrets::remember(&home, &env);
        Ok(Self {
            home,
            env,
            out,
            no_input: global.no_input,
            accept_hooks: global.accept_hooks,
            is_gateway: false,
        })
    }

    /// After how long an approval that nobody answers is denied: as config.yaml says. `None`: it
    /// waits, because a person who is asked has no reason to hurry.
    pub(crate) fn approval_limit(&self) -> Option<std::time::Duration> {
        let loaded = self.load_config().ok()?;
        loaded.file_tree.get("approvals")?.get("timeout")?;
        let seconds = loaded.config.approvals.timeout;
        (seconds > 0).then(|| std::time::Duration::from_secs(seconds))
    }

    /// The variables that this process and what it starts have.
    pub(crate) fn process(&self) -> ProcessEnv {
        let process = ProcessEnv::current();
        if !self.is_gateway {
            return process;
        }
        let guard = (IN_GATEWAY, "1");
        ProcessEnv::from_vars(process.iter().chain([guard]))
    }

    /// The same home, with what .env says by now.
    pub(crate) fn reread(&self) -> Result<Self, Failure> {
        let env = Env::load(&self.home, &self.process())
            .map_err(|error| Failure::failed(error.to_string()))?;
        hermes_config::secrets::remember(&self.home, &env);
        Ok(Self {
            env,
            ..self.clone()
        })
    }

    /// The configuration. Settings without effect are said on stderr; mere remarks are left to
    /// `config check`.
    pub(crate) fn config(&self) -> Result<Config, Failure> {
        let loaded = self.load_config()?;
        hermes_config::secrets::remember_config(&loaded.tree);
        for warning in loaded
            .warnings
            .iter()
            .filter(|warning| warning.is_problem())
        {
            self.out.remark(format!("config: {warning}"));
        }
        refuse_foreign_backend(&loaded)?;
        Ok(loaded.config)
    }

    pub(crate) fn load_config(&self) -> Result<Loaded, Failure> {
        Config::load(&self.home, &self.env)
            .map_err(|error| Failure::failed(format!("{error}\nto fix it: hermes config edit")))
    }
}

/// "1 session", "2 sessions".
pub(crate) fn counted(count: usize, noun: &str) -> String {
    let plural = if count == 1 { "" } else { "s" };
    format!("{count} {noun}{plural}")
}

/// The original can keep its state in PostgreSQL; such a home is not ours to write.
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

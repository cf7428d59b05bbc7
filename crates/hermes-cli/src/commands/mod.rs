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

use std::ops::{Deref, DerefMut};
use std::sync::Arc;

use hermes_app::AppContext;
use hermes_config::env::{Env, ProcessEnv};
use hermes_config::home::{Home, HomeError};

use crate::args::GlobalArgs;
use crate::exit::{Exit, Failure};
use crate::output::Output;

pub(crate) use hermes_app::IN_GATEWAY;
pub(crate) use hermes_core::figures::count as counted;

/// The context of every command: that of conversations, and the streams.
#[derive(Clone)]
pub(crate) struct Context {
    pub(crate) app: AppContext,
    pub(crate) out: Output,
    pub(crate) no_input: bool,
}

impl Deref for Context {
    type Target = AppContext;

    fn deref(&self) -> &AppContext {
        &self.app
    }
}

impl DerefMut for Context {
    fn deref_mut(&mut self) -> &mut AppContext {
        &mut self.app
    }
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
        let app = AppContext {
            home,
            env,
            accept_hooks: global.accept_hooks,
            is_gateway: false,
            process: Arc::new(out),
        };
        Ok(Self {
            app,
            out,
            no_input: global.no_input,
        })
    }

    /// The same with other streams.
    pub(crate) fn with_output(mut self, out: Output) -> Self {
        self.app.process = Arc::new(out);
        self.out = out;
        self
    }

    /// The same home with `.env` reloaded.
    pub(crate) fn reread(&self) -> Result<Self, Failure> {
        Ok(Self {
            app: self.app.reread()?,
            ..self.clone()
        })
    }
}

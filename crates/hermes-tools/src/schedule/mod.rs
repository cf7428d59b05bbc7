//! `cronjob`: the schedule of a home.
//!
//! Jobs are changed here and executed by the scheduler in the gateway. A job acts later and unattended, so its
//! prompt is scanned, its script must be in one directory, and the user is asked after the conversation has
//! read external content.

mod change;
mod check;
mod request;
mod tool;

use std::path::PathBuf;
use std::sync::Arc;

use hermes_config::{Config, Home, Zone};
use hermes_core::clock::Clock;
use hermes_core::tool::Tool;
use hermes_store::jobs::JobTable;
use serde_json::Value;

pub use change::ChangeRefused;
pub use request::JobFields;

/// Dependencies of the tool.
#[derive(Clone)]
pub struct ScheduleDeps {
    pub jobs: JobTable,
    /// `<home>/scripts`: a job runs nothing else.
    pub scripts: PathBuf,
    /// `<home>/cron`
    pub dir: PathBuf,
    pub zone: Zone,
    /// The chat of this conversation; results go there unless a job says otherwise.
    pub origin: Option<Value>,
    /// The current provider and model, recorded in jobs that name none: such a job does not run if they have
    /// changed.
    pub route: Option<(String, String)>,
}

impl ScheduleDeps {
    pub fn from_config(home: &Home, config: &Config, clock: Arc<dyn Clock>) -> Self {
        let rng = Arc::new(hermes_core::clock::SystemRng);
        Self {
            jobs: JobTable::with_sources(home.cron_dir(), clock, rng),
            scripts: home.join("scripts"),
            dir: home.cron_dir(),
            zone: Zone::named(&config.timezone),
            origin: None,
            route: None,
        }
    }
}

/// `cronjob`
pub fn tools(deps: ScheduleDeps) -> Vec<Arc<dyn Tool>> {
    vec![Arc::new(tool::CronJob::new(deps))]
}

#[cfg(test)]
mod tests;

//! `cronjob`: the schedule of a home.
//!
//! Jobs are changed here and carried out by the scheduler, which lives in the gateway. A job acts
//! later and unseen, so its prompt is scanned, its script must lie in one directory, and after the
//! conversation has read from outside a person is asked.

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

pub use change::Refused;
pub use request::Fields;

/// What the tool works on.
#[derive(Clone)]
pub struct ScheduleDeps {
    pub jobs: JobTable,
    /// `<home>/scripts`: nothing else is run by a job.
    pub scripts: PathBuf,
    /// `<home>/cron`
    pub dir: PathBuf,
    pub zone: Zone,
    /// Where this conversation is held; results go there unless a job says otherwise.
    pub origin: Option<Value>,
    /// Provider and model in use, noted in jobs that name none: such a job does not run when
    /// they have changed.
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

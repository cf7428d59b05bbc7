//! `cronjob`: the schedule of a home.
//!
//! Jobs are changed here and carried out by the scheduler, which lives in the gateway. A job acts
//! later and unseen, so its prompt is scanned, its script must lie in one directory, and after the
//! conversation has read from outside a person is asked.

mod check;
mod request;
mod tool;

use std::path::PathBuf;
use std::sync::Arc;

use chrono::{DateTime, FixedOffset, Utc};
use hermes_config::{Config, Home};
use hermes_core::clock::Clock;
use hermes_core::tool::Tool;
use hermes_store::jobs::JobTable;
use serde_json::Value;

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

/// The time zone of schedules.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Zone {
    /// `timezone` of config.yaml.
    Named(chrono_tz::Tz),
    /// This machine's.
    Local,
}

impl Zone {
    /// A name that means nothing is the machine's own zone.
    pub fn named(name: &str) -> Self {
        name.trim().parse().map_or(Self::Local, Self::Named)
    }

    fn parse(self, text: &str, now: DateTime<Utc>) -> Result<Parsed, ScheduleError> {
        match self {
            Self::Named(zone) => schedule::parse(text, &now.with_timezone(&zone)),
            Self::Local => schedule::parse(text, &now.with_timezone(&chrono::Local)),
        }
    }

    fn next(self, schedule: &Schedule, now: DateTime<Utc>) -> Option<String> {
        match self {
            Self::Named(zone) => schedule.next_after(&now.with_timezone(&zone)),
            Self::Local => schedule.next_after(&now.with_timezone(&chrono::Local)),
        }
    }

    fn stamp(self, now: DateTime<Utc>) -> String {
        let at: DateTime<FixedOffset> = match self {
            Self::Named(zone) => now.with_timezone(&zone).fixed_offset(),
            Self::Local => now.with_timezone(&chrono::Local).fixed_offset(),
        };
        schedule::iso(&at)
    }
}

use hermes_store::jobs::schedule::{self, Parsed, Schedule, ScheduleError};

/// `cronjob`
pub fn tools(deps: ScheduleDeps) -> Vec<Arc<dyn Tool>> {
    vec![Arc::new(tool::CronJob::new(deps))]
}

#[cfg(test)]
mod tests;

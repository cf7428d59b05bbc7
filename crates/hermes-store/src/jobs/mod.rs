//! The job table: `<home>/cron/jobs.json`, shared with the original.
//!
//! A job is kept as the JSON object it is: fields that we do not know survive every write, in
//! their order. What older programs or hands left behind (a byte order mark, a bare list, raw
//! control characters, jobs without an id, a list as `deliver`) is read, and put right by the
//! next write.
//!
//! Beside it lie `executions.db` (the history), `output/` (what runs came to) and `finished/` (runs
//! whose end is not recorded everywhere yet).

mod claim;
mod cron_fields;
mod executions;
mod finished;
#[cfg(any(test, fuzzing))]
pub(crate) mod fuzz;
mod json;
mod next;
mod output;
mod record;
pub mod schedule;

use std::fs::Permissions;
use std::io;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use hermes_config::fs::{self, FileLock, LockError};
use hermes_core::clock::{Clock, Rng, SystemClock, SystemRng};
use serde_json::{Map, Value, json};

pub use claim::{After, ClaimError, Claimant, EndedRun, RunEnd, Taken};
pub use executions::{Execution, Executions, ExecutionsError};
pub use finished::{Finished, FinishedRuns};
pub use next::GRACE;
pub use output::Outputs;
pub use record::Job;
pub use schedule::{Schedule, ScheduleError};

/// Another writer holds the lock for milliseconds; longer than this is a fault.
const LOCK_WAIT: Duration = Duration::from_secs(30);

#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum JobError {
    #[error("no job {0:?}; see the list of jobs for ids and names")]
    NotFound(String),
    #[error("{name:?} names {} jobs ({}); use the id", ids.len(), ids.join(", "))]
    Ambiguous { name: String, ids: Vec<String> },
    #[error("the id of a job cannot be changed")]
    IdChanged,
    #[error("there is already a job {0}")]
    IdTaken(String),
    #[error("{} is damaged: {why}. Nothing was written; repair or move the file", path.display())]
    Damaged { path: PathBuf, why: String },
    #[error("{0}; try again")]
    Locked(#[from] LockError),
    #[error("{what}: {source}")]
    Io { what: String, source: io::Error },
    #[error(transparent)]
    Schedule(#[from] ScheduleError),
}

/// The jobs of one home.
#[derive(Clone)]
pub struct JobTable {
    dir: PathBuf,
    clock: Arc<dyn Clock>,
    rng: Arc<dyn Rng>,
    /// How often the file was written, by clones too.
    writes: Arc<AtomicU64>,
}

/// The file as read: the jobs, and whatever else its object holds.
struct Contents {
    jobs: Vec<Value>,
    other: Map<String, Value>,
}

impl Contents {
    /// What a file holds; the error says what is wrong with it.
    fn parse(bytes: &[u8]) -> Result<Self, String> {
        let mut other = match json::parse_lenient(bytes)? {
            Value::Object(object) => object,
            Value::Array(jobs) => {
                return Ok(Self {
                    jobs,
                    other: Map::new(),
                });
            }
            _ => return Err("it holds neither an object nor a list".to_owned()),
        };
        match other.shift_remove("jobs") {
            Some(Value::Array(jobs)) => Ok(Self { jobs, other }),
            None => Ok(Self {
                jobs: Vec::new(),
                other,
            }),
            Some(_) => Err("its jobs are not a list".to_owned()),
        }
    }

    /// Puts right what other programs left behind.
    fn repair(&mut self, new_id: impl Fn() -> String) {
        for job in &mut self.jobs {
            record::repair(job, &new_id);
        }
    }

    fn into_text(self, updated_at: &str) -> String {
        let mut object = Map::new();
        object.insert("jobs".to_owned(), Value::Array(self.jobs));
        object.insert("updated_at".to_owned(), Value::Null);
        object.extend(self.other);
        object["updated_at"] = json!(updated_at);
        json::pretty_ascii(&Value::Object(object))
    }
}

impl JobTable {
    /// `dir` is `<home>/cron`.
    pub fn new(dir: impl Into<PathBuf>) -> Self {
        Self::with_sources(dir, Arc::new(SystemClock), Arc::new(SystemRng))
    }

    pub fn with_sources(dir: impl Into<PathBuf>, clock: Arc<dyn Clock>, rng: Arc<dyn Rng>) -> Self {
        Self {
            dir: dir.into(),
            clock,
            rng,
            writes: Arc::default(),
        }
    }

    /// How often this table and its clones wrote the file: each time all of it.
    pub fn writes(&self) -> u64 {
        self.writes.load(Ordering::Relaxed)
    }

    pub fn path(&self) -> PathBuf {
        self.dir.join("jobs.json")
    }

    /// Every job, in file order. Reading takes no lock: the file is only ever replaced whole.
    pub fn list(&self) -> Result<Vec<Job>, JobError> {
        let contents = self.read()?;
        Ok(contents.jobs.iter().filter_map(Job::from_stored).collect())
    }

    /// The job of that id, else the only one of that name (case does not matter).
    pub fn get(&self, reference: &str) -> Result<Job, JobError> {
        let mut jobs = self.list()?;
        let at = position(&jobs, reference)?;
        Ok(jobs.swap_remove(at))
    }

    /// Appends a job. Without an id it gets one; the stored job is returned.
    pub fn add(&self, mut job: Job) -> Result<Job, JobError> {
        self.change(|contents| {
            if job.id().is_empty() {
                job.set_id(&self.new_id());
            }
            let taken = |stored: &Value| stored["id"] == job.id();
            if contents.jobs.iter().any(taken) {
                return Err(JobError::IdTaken(job.id().to_owned()));
            }
            contents.jobs.push(Value::Object(job.fields().clone()));
            Ok(job)
        })
    }

    /// Changes one job under the lock; the closure sees what is on disk now.
    pub fn update(
        &self,
        reference: &str,
        edit: impl FnOnce(&mut Job) -> Result<(), JobError>,
    ) -> Result<Job, JobError> {
        self.change(|contents| {
            let (at, mut job) = find(&contents.jobs, reference)?;
            let id = job.id().to_owned();
            edit(&mut job)?;
            if job.id() != id {
                return Err(JobError::IdChanged);
            }
            contents.jobs[at] = Value::Object(job.fields().clone());
            Ok(job)
        })
    }

    pub fn remove(&self, reference: &str) -> Result<Job, JobError> {
        self.change(|contents| {
            let (at, job) = find(&contents.jobs, reference)?;
            contents.jobs.remove(at);
            Ok(job)
        })
    }

    fn change<T>(
        &self,
        edit: impl FnOnce(&mut Contents) -> Result<T, JobError>,
    ) -> Result<T, JobError> {
        fs::create_private_dir(&self.dir)
            .map_err(|source| failed("cannot make", &self.dir, source))?;
        let _lock = FileLock::acquire(&self.dir.join(".jobs.lock"), LOCK_WAIT)?;
        let mut contents = self.read()?;
        contents.repair(|| self.new_id());
        let result = edit(&mut contents)?;
        self.write(contents)?;
        Ok(result)
    }

    fn read(&self) -> Result<Contents, JobError> {
        let path = self.path();
        let bytes = match std::fs::read(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                return Ok(Contents {
                    jobs: Vec::new(),
                    other: Map::new(),
                });
            }
            bytes => bytes.map_err(|source| failed("cannot read", &path, source))?,
        };
        Contents::parse(&bytes).map_err(|why| JobError::Damaged { path, why })
    }

    fn write(&self, contents: Contents) -> Result<(), JobError> {
        let text = contents.into_text(&schedule::iso(&self.clock.now().fixed_offset()));
        let path = self.path();
        self.writes.fetch_add(1, Ordering::Relaxed);
        fs::write_atomic(&path, text.as_bytes(), 0o600)
            .and_then(|()| std::fs::set_permissions(&path, Permissions::from_mode(0o600)))
            .map_err(|source| failed("cannot write", &path, source))
    }

    fn new_id(&self) -> String {
        format!("{:012x}", self.rng.next_u64() >> 16)
    }
}

fn failed(what: &str, path: &Path, source: io::Error) -> JobError {
    JobError::Io {
        what: format!("{what} {}", path.display()),
        source,
    }
}

fn find(stored: &[Value], reference: &str) -> Result<(usize, Job), JobError> {
    let (places, mut jobs): (Vec<usize>, Vec<Job>) = stored
        .iter()
        .enumerate()
        .filter_map(|(at, value)| Some((at, Job::from_stored(value)?)))
        .unzip();
    let at = position(&jobs, reference)?;
    Ok((places[at], jobs.swap_remove(at)))
}

fn position(jobs: &[Job], reference: &str) -> Result<usize, JobError> {
    if let Some(at) = jobs.iter().position(|job| job.id() == reference) {
        return Ok(at);
    }
    let wanted = reference.to_lowercase();
    let named: Vec<usize> = (0..jobs.len())
        .filter(|&at| jobs[at].name().to_lowercase() == wanted)
        .collect();
    match named[..] {
        [at] => Ok(at),
        [] => Err(JobError::NotFound(reference.to_owned())),
        _ => Err(JobError::Ambiguous {
            name: reference.to_owned(),
            ids: named.iter().map(|&at| jobs[at].id().to_owned()).collect(),
        }),
    }
}

#[cfg(test)]
mod tests;

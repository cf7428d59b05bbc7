//! The job table: `<home>/cron/jobs.json`, shared with the original.
//!
//! A job is kept as its JSON object: unknown fields survive every write, in their order.
//! Irregularities left by older programs or manual edits (a byte order mark, a bare list, raw
//! control characters, jobs without an id, a list as `deliver`) are accepted and corrected by the
//! next write.
//!
//! Next to it are `executions.db` (the history), `output/` (results of runs) and `finished/` (runs
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
mod schedule;

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

pub use claim::{Claimant, ClaimedJobs, EndedRun, JobAfterRun, JobClaimError, RunResult};
pub use executions::{Execution, Executions};
pub use finished::{FinishedRun, FinishedRuns};
pub use output::JobOutputs;
pub use record::Job;
pub use schedule::{JobSchedule, ParsedSchedule, ScheduleError, iso_time, parse_schedule};

/// Other writers hold the lock for milliseconds; waiting longer than this is an error.
const LOCK_TIMEOUT: Duration = Duration::from_secs(30);

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
    /// How often the file was written, including by clones.
    writes: Arc<AtomicU64>,
}

/// The parsed file: the jobs, and the other fields of its object.
struct JobFile {
    jobs: Vec<Value>,
    other: Map<String, Value>,
}

impl JobFile {
    /// Parses the file; the error describes what is wrong with it.
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

    /// Corrects irregularities left by other programs.
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

    /// How often this table and its clones wrote the file.
    pub fn writes(&self) -> u64 {
        self.writes.load(Ordering::Relaxed)
    }

    pub fn path(&self) -> PathBuf {
        self.dir.join("jobs.json")
    }

    /// Every job, in file order. Reading takes no lock, because the file is always replaced
    /// atomically.
    pub fn list(&self) -> Result<Vec<Job>, JobError> {
        let contents = self.read()?;
        Ok(contents.jobs.iter().filter_map(Job::from_stored).collect())
    }

    /// The job with this id, otherwise the only one with this name (ignoring case).
    pub fn get(&self, reference: &str) -> Result<Job, JobError> {
        let mut jobs = self.list()?;
        let at = position(&jobs, reference)?;
        Ok(jobs.swap_remove(at))
    }

    /// Appends a job, assigning an id if it has none. Returns the stored job.
    pub fn add(&self, mut job: Job) -> Result<Job, JobError> {
        self.change(|contents| {
            if job.id().is_empty() {
                job.set_id(&self.new_id());
            }
            let has_same_id = |stored: &Value| stored["id"] == job.id();
            if contents.jobs.iter().any(has_same_id) {
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
        edit: impl FnOnce(&mut JobFile) -> Result<T, JobError>,
    ) -> Result<T, JobError> {
        fs::create_private_dir(&self.dir)
            .map_err(|source| io_error("cannot make", &self.dir, source))?;
        let _lock = FileLock::acquire(&self.dir.join(".jobs.lock"), LOCK_TIMEOUT)?;
        let mut contents = self.read()?;
        contents.repair(|| self.new_id());
        let result = edit(&mut contents)?;
        self.write(contents)?;
        Ok(result)
    }

    fn read(&self) -> Result<JobFile, JobError> {
        let path = self.path();
        let bytes = match std::fs::read(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                return Ok(JobFile {
                    jobs: Vec::new(),
                    other: Map::new(),
                });
            }
            bytes => bytes.map_err(|source| io_error("cannot read", &path, source))?,
        };
        JobFile::parse(&bytes).map_err(|why| JobError::Damaged { path, why })
    }

    fn write(&self, contents: JobFile) -> Result<(), JobError> {
        let text = contents.into_text(&iso_time(&self.clock.now().fixed_offset()));
        let path = self.path();
        self.writes.fetch_add(1, Ordering::Relaxed);
        fs::write_atomic(&path, text.as_bytes(), 0o600)
            .and_then(|()| std::fs::set_permissions(&path, Permissions::from_mode(0o600)))
            .map_err(|source| io_error("cannot write", &path, source))
    }

    fn new_id(&self) -> String {
        format!("{:012x}", self.rng.next_u64() >> 16)
    }
}

fn io_error(what: &str, path: &Path, source: io::Error) -> JobError {
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

//! `output/<job>/<time>.md`: the result of each run of a job, at the original's path.

use std::io::{self, Read as _};
use std::path::{Path, PathBuf};

use chrono::{DateTime, TimeZone};
use hermes_config::fs;

/// The directory with the results of a home's jobs.
#[derive(Clone, Debug)]
pub struct JobOutputs {
    dir: PathBuf,
    /// Files per job; 0 keeps all.
    keep: usize,
}

impl JobOutputs {
    /// `dir` is `<home>/cron`.
    pub fn new(dir: &Path, keep: usize) -> Self {
        Self {
            dir: dir.join("output"),
            keep,
        }
    }

    /// Writes the result of a run. Saving the same run again replaces its file.
    pub fn save<Tz: TimeZone>(
        &self,
        job: &str,
        at: &DateTime<Tz>,
        document: &str,
    ) -> io::Result<PathBuf> {
        let dir = self.job_dir(job)?;
        fs::create_private_dir(&self.dir)?;
        fs::create_private_dir(&dir)?;
        let name = at.naive_local().format("%Y-%m-%d_%H-%M-%S.md").to_string();
        let path = dir.join(name);
        fs::write_atomic(&path, document.as_bytes(), 0o600)?;
        self.prune(&dir);
        Ok(path)
    }

    /// The newest result, up to `limit` bytes.
    pub fn latest(&self, job: &str, limit: u64) -> io::Result<Option<String>> {
        let Some(path) = documents(&self.job_dir(job)?)?.pop() else {
            return Ok(None);
        };
        let mut bytes = Vec::new();
        std::fs::File::open(path)?
            .take(limit)
            .read_to_end(&mut bytes)?;
        Ok(Some(String::from_utf8_lossy(&bytes).into_owned()))
    }

    /// Deletes the results of a job.
    pub fn forget(&self, job: &str) -> io::Result<()> {
        match std::fs::remove_dir_all(self.job_dir(job)?) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            result => result,
        }
    }

    /// Ids come from a shared file: none may escape the directory.
    fn job_dir(&self, job: &str) -> io::Result<PathBuf> {
        if job.is_empty() || job.starts_with('.') || job.contains(['/', '\\', '\0']) {
            let text = format!("the id {job:?} cannot name a directory");
            return Err(io::Error::new(io::ErrorKind::InvalidInput, text));
        }
        Ok(self.dir.join(job))
    }

    /// Errors are ignored: an extra file is no reason to lose a result.
    fn prune(&self, dir: &Path) {
        if self.keep == 0 {
            return;
        }
        let Ok(mut all) = documents(dir) else { return };
        all.truncate(all.len().saturating_sub(self.keep));
        for old in all {
            if let Err(error) = std::fs::remove_file(&old) {
                tracing::debug!("{}: {error}", old.display());
            }
        }
    }
}

/// Oldest first: the names are times.
fn documents(dir: &Path) -> io::Result<Vec<PathBuf>> {
    let entries = match std::fs::read_dir(dir) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries?,
    };
    let mut files: Vec<PathBuf> = entries
        .flatten()
        .map(|entry| entry.path())
        .filter(|path| path.extension().is_some_and(|ext| ext == "md") && path.is_file())
        .collect();
    files.sort();
    Ok(files)
}

#[cfg(test)]
mod tests {
    use chrono::{TimeDelta, Utc};
    use pretty_assertions::assert_eq;

    use super::*;

    #[test]
    fn the_newest_are_kept_and_ids_stay_inside() {
        let dir = tempfile::tempdir().unwrap();
        let outputs = JobOutputs::new(dir.path(), 2);
        let first = Utc.with_ymd_and_hms(2027, 1, 2, 3, 4, 5).unwrap();
        for minute in 0..4 {
            let at = first + TimeDelta::minutes(minute);
            outputs.save("a1", &at, &format!("run {minute}")).unwrap();
        }
        let kept = documents(&dir.path().join("output/a1")).unwrap();
        let names: Vec<_> = kept.iter().map(|path| path.file_name().unwrap()).collect();
        assert_eq!(names, ["2027-01-02_03-06-05.md", "2027-01-02_03-07-05.md"]);
        assert_eq!(outputs.latest("a1", 3).unwrap().as_deref(), Some("run"));
        assert_eq!(outputs.latest("b2", 9).unwrap(), None);
        for bad in ["", ".", "..", "../a1", "a/b", "a\\b"] {
            assert!(outputs.save(bad, &first, "x").is_err(), "{bad:?}");
            assert!(outputs.forget(bad).is_err(), "{bad:?}");
        }
        outputs.forget("a1").unwrap();
        outputs.forget("a1").unwrap();
        assert_eq!(outputs.latest("a1", 9).unwrap(), None);
    }
}

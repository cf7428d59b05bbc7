//! File access on this machine or in the environment.

mod pinned;

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;
use hermes_core::open_texts::{OpenTexts, SaveOutcome};
use hermes_exec::{Environment, ExecError, FileKind, FileStat, WriteOptions};

use super::ledger::FileVersion;
use super::open;

pub(super) use pinned::{OpenedFile, PathProbe, PinnedFile, probe, real_path};

/// Larger files are not loaded for editing.
pub(super) const MAX_EDIT: usize = 64 * 1024 * 1024;

/// What went wrong with a file.
#[derive(Debug, thiserror::Error)]
pub(super) enum FileError {
    #[error("it is a directory")]
    Directory,
    #[error("it is larger than {} MB", MAX_EDIT / 1024 / 1024)]
    TooLarge,
    #[error("it exists already")]
    Exists,
    #[error("{0}")]
    Io(io::Error),
    #[error("{0}")]
    Environment(ExecError),
    #[error("the work broke off: {0}")]
    Broken(String),
}

impl From<io::Error> for FileError {
    fn from(error: io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::IsADirectory => Self::Directory,
            io::ErrorKind::AlreadyExists => Self::Exists,
            _ => Self::Io(error),
        }
    }
}

impl From<ExecError> for FileError {
    fn from(error: ExecError) -> Self {
        match error {
            ExecError::File { source, .. } => source.into(),
            other => Self::Environment(other),
        }
    }
}

/// The files of a session.
#[derive(Clone)]
pub(super) enum SessionFiles {
    Local,
    Remote(Arc<dyn Environment>),
}

impl SessionFiles {
    pub(super) fn of(environment: &Arc<dyn Environment>) -> Self {
        if environment.info().kind == "local" {
            Self::Local
        } else {
            Self::Remote(Arc::clone(environment))
        }
    }

    /// The file that `path` means relative to `cwd`. It need not exist.
    pub(super) async fn target(&self, path: &Path, cwd: &Path) -> Result<FileTarget, FileError> {
        match self {
            Self::Local => {
                let path = cwd.join(path);
                let pinned = blocking(move || Ok(PinnedFile::new(&path)?)).await?;
                Ok(FileTarget {
                    path: pinned.path(),
                    place: FileLocation::Local(Arc::new(pinned)),
                    open: None,
                })
            }
            Self::Remote(environment) => Ok(FileTarget {
                path: environment.files().resolve(path, cwd).await?,
                place: FileLocation::Remote(Arc::clone(environment)),
                open: None,
            }),
        }
    }
}

/// One resolved file.
#[derive(Clone)]
pub(super) struct FileTarget {
    /// Absolute and without links.
    pub(super) path: PathBuf,
    place: FileLocation,
    /// The editor that may have the file open.
    open: Option<Arc<dyn OpenTexts>>,
}

#[derive(Clone)]
enum FileLocation {
    Local(Arc<PinnedFile>),
    Remote(Arc<dyn Environment>),
}

/// The content of a file.
pub(super) struct LoadedFile {
    pub(super) bytes: Vec<u8>,
    pub(super) mode: u32,
    pub(super) stamp: FileVersion,
}

impl FileTarget {
    pub(super) fn with_open(mut self, open: Option<&Arc<dyn OpenTexts>>) -> Self {
        self.open = open.cloned();
        self
    }

    /// The file's content, as an editor has it if it is open there; `None` if the file does not exist.
    pub(super) async fn load(&self) -> Result<Option<LoadedFile>, FileError> {
        let Some(mut loaded) = self.load_stored().await? else {
            return Ok(None);
        };
        if let Some(open) = &self.open
            && let Some(text) = open.text(&self.path).await
            && text.len() <= MAX_EDIT
            && let Some(bytes) = open::unsaved(&loaded.bytes, &text)
        {
            loaded.bytes = bytes;
        }
        Ok(Some(loaded))
    }

    async fn load_stored(&self) -> Result<Option<LoadedFile>, FileError> {
        match &self.place {
            FileLocation::Local(pinned) => {
                let pinned = Arc::clone(pinned);
                blocking(move || {
                    let Some(opened) = pinned.open()? else {
                        return Ok(None);
                    };
                    Ok(Some(LoadedFile {
                        bytes: whole(&opened)?,
                        mode: opened.mode,
                        stamp: opened.stamp,
                    }))
                })
                .await
            }
            FileLocation::Remote(environment) => {
                let files = environment.files();
                let Some(stat) = files.stat(&self.path).await? else {
                    return Ok(None);
                };
                match stat.kind {
                    FileKind::Directory => return Err(FileError::Directory),
                    _ if stat.size > MAX_EDIT as u64 => return Err(FileError::TooLarge),
                    _ => {}
                }
                let bytes = files.read(&self.path, 0, MAX_EDIT).await?;
                Ok(Some(LoadedFile {
                    bytes: bytes.to_vec(),
                    mode: stat.mode & 0o7777,
                    stamp: remote_stamp(&stat),
                }))
            }
        }
    }

    pub(super) async fn stamp(&self) -> Result<Option<FileVersion>, FileError> {
        match &self.place {
            FileLocation::Local(pinned) => {
                let pinned = Arc::clone(pinned);
                blocking(move || Ok(pinned.stamp()?)).await
            }
            FileLocation::Remote(environment) => {
                let stat = environment.files().stat(&self.path).await?;
                Ok(stat.as_ref().map(remote_stamp))
            }
        }
    }

    /// Writes the file atomically. Returns whether directories were created.
    pub(super) async fn write(
        &self,
        bytes: Vec<u8>,
        mode: Option<u32>,
        create_new: bool,
    ) -> Result<bool, FileError> {
        let parent = self.path.parent().unwrap_or(Path::new("/"));
        let makes_parent = self.open.is_some() && !parent.exists();
        if self.save_open(&bytes, create_new).await? {
            return Ok(makes_parent);
        }
        match &self.place {
            FileLocation::Local(pinned) => {
                let pinned = Arc::clone(pinned);
                blocking(move || Ok(pinned.write(&bytes, mode, create_new)?)).await
            }
            FileLocation::Remote(environment) => {
                let files = environment.files();
                let made = files.stat(parent).await?.is_none();
                let options = WriteOptions {
                    mode,
                    create_parents: true,
                    create_new,
                };
                files.write(&self.path, Bytes::from(bytes), options).await?;
                Ok(made)
            }
        }
    }

    /// Lets the editor save the file. `false`: we have to write it.
    async fn save_open(&self, bytes: &[u8], create_new: bool) -> Result<bool, FileError> {
        // An editor has no binary files.
        let (Some(open), Ok(text)) = (&self.open, std::str::from_utf8(bytes)) else {
            return Ok(false);
        };
        let before = self.load_stored().await?;
        if create_new && before.is_some() {
            return Ok(false);
        }
        match open.save(&self.path, text.to_owned()).await {
            SaveOutcome::Declined => Ok(false),
            SaveOutcome::Unknown(why) => Err(FileError::Broken(why)),
            // Commands read the disk: an editor that keeps the text to itself has not saved it.
            SaveOutcome::Done => {
                let after = self.load_stored().await?.map(|after| after.bytes);
                let changed = after != before.map(|before| before.bytes);
                Ok(after.is_some_and(|after| changed || after == bytes))
            }
        }
    }

    pub(super) async fn remove(&self) -> Result<(), FileError> {
        match &self.place {
            FileLocation::Local(pinned) => {
                let pinned = Arc::clone(pinned);
                blocking(move || Ok(pinned.remove()?)).await
            }
            FileLocation::Remote(environment) => Ok(environment.files().remove(&self.path).await?),
        }
    }
}

fn whole(opened: &OpenedFile) -> Result<Vec<u8>, FileError> {
    use std::io::Read as _;
    let mut bytes = Vec::new();
    let max_bytes = MAX_EDIT as u64 + 1;
    (&opened.file).take(max_bytes).read_to_end(&mut bytes)?;
    if bytes.len() > MAX_EDIT {
        return Err(FileError::TooLarge);
    }
    Ok(bytes)
}

fn remote_stamp(stat: &FileStat) -> FileVersion {
    FileVersion {
        modified_ns: stat.modified_ns,
        size: stat.size,
        inode: 0,
    }
}

/// Runs file operations outside of the async threads.
pub(super) async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, FileError> + Send + 'static,
) -> Result<T, FileError> {
    tokio::task::spawn_blocking(work)
        .await
        .unwrap_or_else(|error| Err(FileError::Broken(error.to_string())))
}

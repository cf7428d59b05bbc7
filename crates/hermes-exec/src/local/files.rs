//! Files of this machine.

use std::fs;
use std::io::{self, Read as _, Seek as _, SeekFrom};
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use bytes::Bytes;
use hermes_core::BoxFuture;
use hermes_core::paths::lexically_normal;

use crate::environment::{ExecError, FileKind, FileStat, Files, WriteOptions};

/// File access through the operating system.
#[derive(Clone, Debug)]
pub(crate) struct LocalFiles {
    /// The expansion of `~`.
    home: Option<PathBuf>,
}

impl LocalFiles {
    pub(crate) fn new(home: Option<PathBuf>) -> Self {
        Self { home }
    }

    fn absolute(&self, path: &Path, cwd: &Path) -> PathBuf {
        match (path.strip_prefix("~"), &self.home) {
            (Ok(rest), Some(home)) => home.join(rest),
            _ => cwd.join(path),
        }
    }
}

impl Files for LocalFiles {
    fn resolve<'a>(
        &'a self,
        path: &'a Path,
        cwd: &'a Path,
    ) -> BoxFuture<'a, Result<PathBuf, ExecError>> {
        let absolute = self.absolute(path, cwd);
        run_blocking(path, move |_| Ok(resolve_existing(&absolute)))
    }

    fn stat<'a>(&'a self, path: &'a Path) -> BoxFuture<'a, Result<Option<FileStat>, ExecError>> {
        run_blocking(path, |path| match fs::metadata(path) {
            Ok(meta) => Ok(Some(FileStat {
                kind: kind(meta.file_type()),
                size: meta.len(),
                mode: meta.mode() & 0o7777,
                modified_ns: i128::from(meta.mtime()) * 1_000_000_000
                    + i128::from(meta.mtime_nsec()),
            })),
            Err(error) if is_not_found(&error) => Ok(None),
            Err(error) => Err(error),
        })
    }

    fn read<'a>(
        &'a self,
        path: &'a Path,
        offset: u64,
        max: usize,
    ) -> BoxFuture<'a, Result<Bytes, ExecError>> {
        run_blocking(path, move |path| {
            let mut file = fs::File::open(path)?;
            file.seek(SeekFrom::Start(offset))?;
            let mut bytes = Vec::new();
            file.take(max as u64).read_to_end(&mut bytes)?;
            Ok(Bytes::from(bytes))
        })
    }

    fn write<'a>(
        &'a self,
        path: &'a Path,
        content: Bytes,
        options: WriteOptions,
    ) -> BoxFuture<'a, Result<(), ExecError>> {
        run_blocking(path, move |path| write(path, &content, options))
    }

    fn list<'a>(
        &'a self,
        path: &'a Path,
    ) -> BoxFuture<'a, Result<Vec<(String, FileKind)>, ExecError>> {
        run_blocking(path, |path| {
            let mut names = Vec::new();
            for entry in fs::read_dir(path)? {
                let entry = entry?;
                let name = entry.file_name().to_string_lossy().into_owned();
                names.push((name, kind(entry.file_type()?)));
            }
            names.sort_by(|a, b| a.0.cmp(&b.0));
            Ok(names)
        })
    }

    fn remove<'a>(&'a self, path: &'a Path) -> BoxFuture<'a, Result<(), ExecError>> {
        run_blocking(path, |path| {
            if fs::symlink_metadata(path)?.is_dir() {
                fs::remove_dir(path)
            } else {
                fs::remove_file(path)
            }
        })
    }

    fn rename<'a>(&'a self, from: &'a Path, to: &'a Path) -> BoxFuture<'a, Result<(), ExecError>> {
        let to = to.to_owned();
        run_blocking(from, move |from| fs::rename(from, to))
    }
}

/// Disk access is slow, so it runs outside of the runtime's threads.
fn run_blocking<R: Send + 'static>(
    path: &Path,
    work: impl FnOnce(&Path) -> io::Result<R> + Send + 'static,
) -> BoxFuture<'_, Result<R, ExecError>> {
    let path = path.to_owned();
    Box::pin(async move {
        let of_work = path.clone();
        match tokio::task::spawn_blocking(move || work(&of_work)).await {
            Ok(result) => result.map_err(|error| ExecError::file(&path, error)),
            Err(error) => Err(ExecError::file(&path, io::Error::other(error))),
        }
    })
}

/// Writes a temporary file and renames it. A link is kept: its target is written.
fn write(path: &Path, content: &[u8], options: WriteOptions) -> io::Result<()> {
    let target = resolve_existing(path);
    let dir = target.parent().unwrap_or(Path::new("/"));
    if options.create_parents {
        fs::create_dir_all(dir)?;
    }
    let before = fs::metadata(&target).ok();
    if before.as_ref().is_some_and(fs::Metadata::is_dir) {
        return Err(io::ErrorKind::IsADirectory.into());
    }
    let mode = match (options.mode, &before) {
        (Some(mode), _) => mode,
        (None, Some(meta)) => meta.mode() & 0o7777,
        (None, None) => 0o644,
    };
    let mut file = tempfile::Builder::new()
        .prefix(".hermes-write-")
        .tempfile_in(dir)?;
    io::Write::write_all(&mut file, content)?;
    file.as_file()
        .set_permissions(fs::Permissions::from_mode(mode))?;
    file.as_file().sync_data()?;
    if options.create_new {
        file.persist_noclobber(&target)
    } else {
        file.persist(&target)
    }
    .map(drop)
    .map_err(|error| error.error)
}

/// The canonical path of the existing part, with the rest of `path` appended.
fn resolve_existing(path: &Path) -> PathBuf {
    let mut rest = Vec::new();
    let mut here = path.to_owned();
    loop {
        if let Ok(real) = fs::canonicalize(&here) {
            let whole = rest.iter().rev().fold(real, |dir, name| dir.join(name));
            return lexically_normal(&whole);
        }
        let (Some(parent), Some(name)) = (here.parent(), here.components().next_back()) else {
            return lexically_normal(path);
        };
        rest.push(name.as_os_str().to_owned());
        here = parent.to_owned();
    }
}

fn kind(of: fs::FileType) -> FileKind {
    if of.is_file() {
        FileKind::File
    } else if of.is_dir() {
        FileKind::Directory
    } else if of.is_symlink() {
        FileKind::Link
    } else {
        FileKind::Other
    }
}

fn is_not_found(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::NotFound | io::ErrorKind::NotADirectory
    )
}

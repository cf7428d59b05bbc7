//! `hermes backup`: the home in one file. Databases are copied by SQLite, so that the copy is of
//! one moment even while a gateway writes.

mod choose;

pub(crate) use choose::{is_database, is_of_the_moment};

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Read as _};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use chrono::{DateTime, Datelike as _, Local, Timelike as _, Utc};
use hermes_core::figures::size;
use hermes_store::copy_database;
use serde::Serialize;
use serde_json::json;
use zip::write::SimpleFileOptions;
use zip::{CompressionMethod, ZipWriter};

use super::{Context, counted};
use crate::exit::{Exit, Failure, Outcome};
use choose::BackupFiles;

#[derive(Debug, clap::Args)]
pub(crate) struct BackupArgs {
    /// Zip file to write, or a directory for it (default: your home directory)
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Copy only what changes daily (sessions, config, keys, jobs), to a directory in the home
    #[arg(short, long, conflicts_with = "output")]
    quick: bool,
    /// Label for the file name
    #[arg(short, long)]
    label: Option<String>,
    /// Report as JSON
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Serialize)]
struct BackupReport {
    path: PathBuf,
    files: usize,
    bytes: u64,
    /// Size of what was written.
    written: u64,
    /// Directories that are not part of a backup: caches, snapshots, programs.
    left_out: Vec<String>,
    /// What could not be read; the backup lacks it.
    failed: Vec<String>,
}

pub(crate) fn run(args: &BackupArgs, cx: &Context) -> Outcome {
    let label = args.label.as_deref().map(clean_label).transpose()?;
    let root = cx.home.profiles_root();
    if !root.is_dir() {
        return Err(Failure::not_found(format!(
            "there is no home at {}",
            root.display()
        )));
    }
    let report = if args.quick {
        quick(cx.home.root(), label.as_deref())?
    } else {
        whole(
            root,
            &target(args.output.as_deref(), label.as_deref(), cx)?,
            cx,
        )?
    };
    if args.json {
        cx.out.json(&report)?;
    } else {
        cx.out.line(format!(
            "{}\n{}, {} ({} written)",
            report.path.display(),
            counted(report.files, "file"),
            size(report.bytes),
            size(report.written)
        ))?;
        if !report.left_out.is_empty() {
            cx.out
                .remark(format!("left out: {}", report.left_out.join(", ")));
        }
        if report.failed.is_empty() && !args.quick {
            cx.out.remark(format!(
                "to bring it back: hermes import {}",
                report.path.display()
            ));
        }
    }
    if report.failed.is_empty() {
        return Ok(());
    }
    let shown: Vec<&str> = report.failed.iter().take(10).map(String::as_str).collect();
    Err(Failure::new(
        Exit::Failed,
        format!(
            "the backup lacks {}:\n  {}",
            counted(report.failed.len(), "file"),
            shown.join("\n  ")
        ),
    ))
}

/// A label becomes part of a file name.
fn clean_label(label: &str) -> Result<String, Failure> {
    let fine = |ch: char| ch.is_alphanumeric() || matches!(ch, '-' | '_' | '.');
    if label.is_empty() || label.starts_with('.') || !label.chars().all(fine) || label.len() > 60 {
        return Err(Failure::usage(
            "a label is one word of letters, digits, - and _, at most 60 long",
        ));
    }
    Ok(label.to_owned())
}

fn target(output: Option<&Path>, label: Option<&str>, cx: &Context) -> Result<PathBuf, Failure> {
    let stamp = Local::now().format("%Y-%m-%d-%H%M%S");
    let name = match label {
        Some(label) => format!("hermes-backup-{stamp}-{label}.zip"),
        None => format!("hermes-backup-{stamp}.zip"),
    };
    let path = match output {
        None => cx.home.expand_user("~").join(name),
        Some(path) if path.is_dir() => path.join(name),
        Some(path)
            if path
                .extension()
                .is_some_and(|end| end.eq_ignore_ascii_case("zip")) =>
        {
            path.to_owned()
        }
        Some(path) => {
            let mut longer = path.as_os_str().to_owned();
            longer.push(".zip");
            longer.into()
        }
    };
    std::path::absolute(&path).map_err(|error| unwritable(&path, &error))
}

fn unwritable(path: &Path, error: &dyn std::fmt::Display) -> Failure {
    Failure::failed(format!("cannot write {}: {error}", path.display()))
}

fn whole(root: &Path, path: &Path, cx: &Context) -> Result<BackupReport, Failure> {
    let dir = path.parent().unwrap_or(Path::new("/"));
    std::fs::create_dir_all(dir).map_err(|error| unwritable(dir, &error))?;
    let found = choose::all(root);
    // Written beside its place, readable by nobody else, and moved there when it is complete.
    let mut file = tempfile::Builder::new()
        .prefix(".hermes-backup-")
        .tempfile_in(dir)
        .map_err(|error| unwritable(dir, &error))?;
    let mut writer = BackupWriter {
        zip: ZipWriter::new(ArchiveFile {
            file: file.as_file_mut(),
            failed: false,
        }),
        dir,
        report: BackupReport {
            path: path.to_owned(),
            files: 0,
            bytes: 0,
            written: 0,
            left_out: found.left_out.clone(),
            failed: found.unreadable.clone(),
        },
    };
    let mut last_report = std::time::Instant::now();
    for relative in &found.files {
        if cx.out.stderr_tty && last_report.elapsed().as_secs() >= 2 {
            cx.out.remark(format!(
                "{} of {} files …",
                writer.report.files,
                found.files.len()
            ));
            last_report = std::time::Instant::now();
        }
        writer
            .add(root, relative)
            .map_err(|error| unwritable(path, &error))?;
    }
    let report = writer.finish().map_err(|error| unwritable(path, &error))?;
    file.as_file()
        .sync_all()
        .map_err(|error| unwritable(path, &error))?;
    file.persist(path)
        .map_err(|error| unwritable(path, &error.error))?;
    Ok(BackupReport {
        written: std::fs::metadata(path).map_or(0, |meta| meta.len()),
        ..report
    })
}

/// The file of an archive. After a failure, which is reported once, it takes everything and keeps
/// nothing: the archive is given up, and its writer would complain on stderr when it is dropped.
struct ArchiveFile<'a> {
    file: &'a mut File,
    failed: bool,
}

impl ArchiveFile<'_> {
    fn noted<T>(&mut self, done: io::Result<T>) -> io::Result<T> {
        self.failed |= done.is_err();
        done.map_err(hermes_config::fs::explain_full)
    }
}

impl io::Write for ArchiveFile<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.failed {
            return Ok(bytes.len());
        }
        let written = self.file.write(bytes);
        self.noted(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        if self.failed {
            return Ok(());
        }
        let flushed = self.file.flush();
        self.noted(flushed)
    }
}

impl io::Seek for ArchiveFile<'_> {
    fn seek(&mut self, to: io::SeekFrom) -> io::Result<u64> {
        if self.failed {
            return Ok(0);
        }
        let moved = self.file.seek(to);
        self.noted(moved)
    }
}

struct BackupWriter<'a> {
    zip: ZipWriter<ArchiveFile<'a>>,
    /// Copies of databases lie beside the archive: temporary directories may be too small.
    dir: &'a Path,
    report: BackupReport,
}

impl BackupWriter<'_> {
    /// What cannot be read is noted, what cannot be written ends the backup.
    fn add(&mut self, root: &Path, relative: &str) -> io::Result<()> {
        let path = root.join(relative);
        let copy;
        let source = if is_database(&path) {
            copy = tempfile::Builder::new()
                .prefix(".hermes-backup-")
                .tempfile_in(self.dir)?;
            if let Err(error) = copy_database(&path, copy.path()) {
                self.report.failed.push(format!("{relative}: {error}"));
                return Ok(());
            }
            copy.path()
        } else {
            &path
        };
        let opened = File::open(source).and_then(|file| file.metadata().map(|meta| (file, meta)));
        let (file, _) = match opened {
            Ok(opened) => opened,
            // Gone since it was found: then it is no part of the home any more.
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            Err(error) => {
                self.report.failed.push(format!("{relative}: {error}"));
                return Ok(());
            }
        };
        let meta = std::fs::metadata(&path).or_else(|_| file.metadata())?;
        let length = file.metadata()?.len();
        let options = SimpleFileOptions::default()
            .compression_method(CompressionMethod::Deflated)
            .unix_permissions(meta.permissions().mode() & 0o777)
            .large_file(length >= u64::from(u32::MAX) / 2)
            .last_modified_time(stamp(&meta));
        self.zip
            .start_file(relative, options)
            .map_err(io::Error::other)?;
        // A log may grow while it is read.
        let copied = io::copy(&mut file.take(length), &mut self.zip)?;
        self.report.files += 1;
        self.report.bytes += copied;
        Ok(())
    }

    fn finish(mut self) -> io::Result<BackupReport> {
        let about = json!({
            "made_by": concat!("hermes ", env!("CARGO_PKG_VERSION")),
            "made_at": Utc::now().to_rfc3339(),
        });
        self.zip
            .set_comment(about.to_string())
            .map_err(io::Error::other)?;
        self.zip.finish().map_err(io::Error::other)?;
        Ok(self.report)
    }
}

fn stamp(meta: &std::fs::Metadata) -> zip::DateTime {
    let time: Option<DateTime<Local>> = meta.modified().ok().map(Into::into);
    time.and_then(|time| {
        zip::DateTime::from_date_and_time(
            u16::try_from(time.year()).ok()?,
            time.month() as u8,
            time.day() as u8,
            time.hour() as u8,
            time.minute() as u8,
            time.second() as u8,
        )
        .ok()
    })
    .unwrap_or_default()
}

/// The copy that the original program calls a snapshot, and can restore.
fn quick(root: &Path, label: Option<&str>) -> Result<BackupReport, Failure> {
    let stamp = Utc::now().format("%Y%m%d-%H%M%S").to_string();
    let id = match label {
        Some(label) => format!("{stamp}-{label}"),
        None => stamp.clone(),
    };
    let dir = root.join("state-snapshots").join(&id);
    let BackupFiles {
        files, unreadable, ..
    } = choose::state(root);
    let mut report = BackupReport {
        path: dir.clone(),
        files: 0,
        bytes: 0,
        written: 0,
        left_out: Vec::new(),
        failed: unreadable,
    };
    if files.is_empty() {
        return Err(Failure::not_found(format!(
            "nothing to copy in {}",
            root.display()
        )));
    }
    let mut sizes = BTreeMap::new();
    for relative in files {
        let target = dir.join(&relative);
        let parent = target.parent().unwrap_or(&dir);
        hermes_config::fs::create_private_dir(parent)
            .map_err(|error| unwritable(parent, &error))?;
        let source = root.join(&relative);
        let copied = if is_database(&source) {
            copy_database(&source, &target).map_err(|error| error.to_string())
        } else {
            std::fs::copy(&source, &target)
                .map(|_| ())
                .map_err(|error| error.to_string())
        };
        if let Err(error) = copied {
            report.failed.push(format!("{relative}: {error}"));
            continue;
        }
        let private = std::fs::Permissions::from_mode(0o600);
        std::fs::set_permissions(&target, private).map_err(|error| unwritable(&target, &error))?;
        let length = std::fs::metadata(&target).map_or(0, |meta| meta.len());
        report.files += 1;
        report.bytes += length;
        sizes.insert(relative, length);
    }
    report.written = report.bytes;
    let manifest = json!({
        "id": id,
        "timestamp": stamp,
        "label": label,
        "file_count": report.files,
        "total_size": report.bytes,
        "files": sizes,
    });
    let path = dir.join("manifest.json");
    hermes_config::fs::write_atomic(&path, format!("{manifest:#}").as_bytes(), 0o600)
        .map_err(|error| unwritable(&path, &error))?;
    Ok(report)
}

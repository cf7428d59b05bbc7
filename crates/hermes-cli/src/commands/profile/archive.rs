//! `hermes profile export` and `import`: a .tar.gz with one directory, as the original writes and
//! reads it.

use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Component, Path, PathBuf};

use flate2::Compression;
use flate2::read::GzDecoder;
use flate2::write::GzEncoder;
use hermes_config::fs::create_private_dir;

use super::create::is_leftover;
use super::strip::{SecretStripper, StrippedFile, is_secret_file};
use super::{DEFAULT, canonical, dir, existing, io_failure, new_name, profiles_dir};
use crate::commands::backup::is_database;
use crate::commands::{Context, counted};
use crate::exit::{Failure, Outcome};

#[derive(Debug, clap::Args)]
pub(super) struct ProfileExportArgs {
    /// Profile (default: the one in use)
    name: Option<String>,
    /// File to write (default: NAME.tar.gz)
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Include keys and logins
    #[arg(long)]
    with_secrets: bool,
    /// Overwrite an existing file
    #[arg(short, long)]
    force: bool,
}

#[derive(Debug, clap::Args)]
pub(super) struct ProfileImportArgs {
    archive: PathBuf,
    /// Name of the profile (default: the name in the archive)
    #[arg(long)]
    name: Option<String>,
}

/// What holds keys and logins.
const SECRETS: [&str; 4] = ["auth.json", ".env", ".op.env", "mcp-tokens"];
/// What a running program left behind, locks, logs, and what can be had again.
const RUNTIME: [&str; 14] = [
    "logs",
    "cache",
    "image_cache",
    "audio_cache",
    "sandboxes",
    "checkpoints",
    "auth.lock",
    "gateway.pid",
    "gateway_control.json",
    "gateway.lock",
    "gateway_state.json",
    "processes.json",
    "active_profile",
    "profiles",
];
/// What of the root home is part of the profile. It may be anybody's directory: the rest may be
/// anything.
const OF_ROOT: [&str; 19] = [
    "config.yaml",
    "SOUL.md",
    "MEMORY.md",
    "USER.md",
    "todo.json",
    "system_prompt.md",
    "AGENTS.md",
    "CLAUDE.md",
    ".cursorrules",
    "skills",
    "skill-bundles",
    "cron",
    "scripts",
    "sessions",
    "plugins",
    "memories",
    "knowledge",
    "preferences",
    "profile.yaml",
];
const DATABASE: &str = "state.db";

pub(super) fn export(args: &ProfileExportArgs, cx: &Context) -> Outcome {
    let name = args
        .name
        .as_deref()
        .or(cx.home.profile())
        .unwrap_or(DEFAULT);
    let id = existing(name, cx)?;
    let output = args
        .output
        .clone()
        .unwrap_or_else(|| PathBuf::from(format!("{id}.tar.gz")));
    if output.exists() && !args.force {
        return Err(Failure::failed(format!(
            "{} exists already (--force replaces it)",
            output.display()
        )));
    }
    let failed = |error: io::Error| io_failure(&output, &error);
    let parent = match output.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    };
    let file = tempfile::NamedTempFile::new_in(parent).map_err(failed)?;
    let packed = pack(file.as_file(), &id, &dir(cx, &id), args.with_secrets)?;
    let (files, links) = (packed.files, packed.links);
    file.as_file().sync_all().map_err(failed)?;
    // It is the owner's alone already; with secrets it must stay so.
    file.persist(&output).map_err(|error| failed(error.error))?;
    cx.out.line(format!(
        "wrote profile {id} to {} ({})",
        output.display(),
        counted(files, "file")
    ))?;
    if links > 0 {
        cx.out
            .remark(format!("{} left out", counted(links, "symbolic link")));
    }
    if args.with_secrets {
        cx.out.remark("it contains keys: do not share it");
    }
    if !packed.changed.is_empty() {
        let names = packed.changed.join(", ");
        cx.out.remark(format!("keys were removed from: {names}"));
    }
    if !packed.kept_back.is_empty() {
        let names = packed.kept_back.join(", ");
        cx.out
            .remark(format!("left out because they contain keys: {names}"));
    }
    Ok(())
}

/// What an archive came to.
struct PackedProfile {
    files: usize,
    /// Links that are not in it.
    links: usize,
    /// Files that keys were taken out of.
    changed: Vec<String>,
    /// Files that are not in it because of keys.
    kept_back: Vec<String>,
}

/// Writes the archive.
fn pack(file: &File, id: &str, from: &Path, secrets: bool) -> Result<PackedProfile, Failure> {
    let mut archive = ProfileArchive {
        tar: tar::Builder::new(GzEncoder::new(file, Compression::default())),
        links: 0,
        files: 0,
        stripper: (!secrets).then(|| SecretStripper::from_profile(from)),
        changed: Vec::new(),
        kept_back: Vec::new(),
    };
    archive.tar.follow_symlinks(false);
    archive.root(id, from, secrets)?;
    let ProfileArchive {
        tar,
        links,
        files,
        changed,
        kept_back,
        ..
    } = archive;
    tar.into_inner()
        .and_then(GzEncoder::finish)
        .map_err(|error| Failure::failed(format!("writing the archive: {error}")))?;
    Ok(PackedProfile {
        files,
        links,
        changed,
        kept_back,
    })
}

struct ProfileArchive<W: io::Write> {
    tar: tar::Builder<W>,
    links: usize,
    files: usize,
    /// `None`: keys go along.
    stripper: Option<SecretStripper>,
    changed: Vec<String>,
    kept_back: Vec<String>,
}

impl<W: io::Write> ProfileArchive<W> {
    fn root(&mut self, id: &str, from: &Path, secrets: bool) -> Outcome {
        let inside = PathBuf::from(id);
        self.tar
            .append_dir(&inside, from)
            .map_err(|error| io_failure(from, &error))?;
        for entry in sorted(from)? {
            let name = entry.file_name().unwrap_or_default().to_string_lossy();
            let wanted = if SECRETS.contains(&&*name) {
                secrets
            } else if name.starts_with(DATABASE) {
                if name == DATABASE && id != DEFAULT {
                    self.database(&entry, &inside.join(DATABASE))?;
                }
                false
            } else if id == DEFAULT {
                OF_ROOT.contains(&&*name)
            } else {
                !RUNTIME.contains(&&*name)
            };
            if wanted {
                self.add(&entry, &inside.join(&*name))?;
            }
        }
        Ok(())
    }

    fn add(&mut self, path: &Path, inside: &Path) -> Outcome {
        let failed = |error: io::Error| io_failure(path, &error);
        if is_leftover(&path.file_name().unwrap_or_default().to_string_lossy()) {
            return Ok(());
        }
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let kind = path.symlink_metadata().map_err(failed)?.file_type();
        if self.stripper.is_some() && is_secret_file(&name) && !kind.is_symlink() {
            self.kept_back.push(inside.display().to_string());
            return Ok(());
        }
        if kind.is_dir() {
            self.tar.append_dir(inside, path).map_err(failed)?;
            for entry in sorted(path)? {
                let name = entry.file_name().unwrap_or_default().to_owned();
                self.add(&entry, &inside.join(name))?;
            }
        } else if kind.is_file() && is_database(path) {
            self.database(path, inside)?;
        } else if kind.is_file() {
            self.file(path, inside)?;
        } else if kind.is_symlink() {
            // The original refuses archives with links.
            self.links += 1;
        }
        Ok(())
    }

    fn file(&mut self, path: &Path, inside: &Path) -> Outcome {
        let failed = |error: io::Error| io_failure(path, &error);
        let stripped = match &self.stripper {
            Some(stripper) => stripper.strip(path, &std::fs::read(path).map_err(failed)?),
            None => StrippedFile::Same,
        };
        match stripped {
            StrippedFile::Same => {
                let mut file = File::open(path).map_err(failed)?;
                self.tar.append_file(inside, &mut file).map_err(failed)?;
            }
            StrippedFile::Changed(bytes) => {
                let mut header = tar::Header::new_gnu();
                header.set_metadata(&path.metadata().map_err(failed)?);
                header.set_size(bytes.len() as u64);
                self.tar
                    .append_data(&mut header, inside, bytes.as_slice())
                    .map_err(failed)?;
                self.changed.push(inside.display().to_string());
            }
            StrippedFile::LeftOut => {
                self.kept_back.push(inside.display().to_string());
                return Ok(());
            }
        }
        self.files += 1;
        Ok(())
    }

    /// The database as SQLite sees it: the file alone may be half of it.
    fn database(&mut self, path: &Path, inside: &Path) -> Outcome {
        let staged = tempfile::tempdir().map_err(|error| io_failure(path, &error))?;
        let copied = staged.path().join(DATABASE);
        hermes_store::copy_database(path, &copied)?;
        if let Some(stripper) = &self.stripper
            && hermes_store::remove_texts(&copied, stripper.values())? > 0
        {
            self.changed.push(inside.display().to_string());
        }
        let mut file = File::open(&copied).map_err(|error| io_failure(path, &error))?;
        self.tar
            .append_file(inside, &mut file)
            .map_err(|error| io_failure(path, &error))?;
        self.files += 1;
        Ok(())
    }
}

fn sorted(path: &Path) -> Result<Vec<PathBuf>, Failure> {
    let mut entries = std::fs::read_dir(path)
        .and_then(|entries| {
            entries
                .map(|entry| entry.map(|entry| entry.path()))
                .collect::<io::Result<Vec<_>>>()
        })
        .map_err(|error| io_failure(path, &error))?;
    entries.sort();
    Ok(entries)
}

pub(super) fn import(args: &ProfileImportArgs, cx: &Context) -> Outcome {
    let wanted = match &args.name {
        Some(name) => Some(new_name(name, cx)?),
        None => None,
    };
    if !args.archive.is_file() {
        return Err(Failure::not_found(format!(
            "no file {}",
            args.archive.display()
        )));
    }
    let profiles = profiles_dir(cx);
    create_private_dir(&profiles).map_err(|error| io_failure(&profiles, &error))?;
    let staged = tempfile::Builder::new()
        .prefix(".import-")
        .tempdir_in(&profiles)
        .map_err(|error| io_failure(&profiles, &error))?;
    let root = unpack(&args.archive, staged.path())?;
    let id = match wanted {
        Some(id) => id,
        None if canonical(&root).is_ok_and(|id| id == DEFAULT) => {
            return Err(Failure::usage(
                "this is an archive of a root home: give the profile a name with --name",
            ));
        }
        None => new_name(&root, cx)?,
    };
    let from = staged.path().join(&root);
    for secret in SECRETS.iter().filter(|name| from.join(name).is_file()) {
        let mode = std::fs::Permissions::from_mode(0o600);
        std::fs::set_permissions(from.join(secret), mode)
            .map_err(|error| io_failure(&from, &error))?;
    }
    let path = dir(cx, &id);
    std::fs::rename(&from, &path).map_err(|error| io_failure(&path, &error))?;
    cx.out
        .line(format!("made profile {id} in {}", path.display()))?;
    if !path.join(".env").is_file() && !path.join("auth.json").is_file() {
        cx.out
            .remark(format!("it has no keys: hermes -p {id} setup model"));
    }
    Ok(())
}

/// Unpacks into `to` and returns the one directory at the top. Only plain files and directories that
/// stay inside are accepted.
fn unpack(archive: &Path, to: &Path) -> Result<String, Failure> {
    let broken = |what: String| Failure::failed(format!("{}: {what}", archive.display()));
    let unreadable = |error: io::Error| broken(format!("not a readable .tar.gz ({error})"));
    let file = File::open(archive).map_err(unreadable)?;
    let mut tar = tar::Archive::new(GzDecoder::new(file));
    let mut root: Option<String> = None;
    for member in tar.entries().map_err(unreadable)? {
        let mut member = member.map_err(unreadable)?;
        let name = member.path().map_err(unreadable)?.into_owned();
        let kind = member.header().entry_type();
        // Extensions of the format that say something of the next member.
        if kind.is_pax_global_extensions() {
            continue;
        }
        let parts = safe_parts(&name)
            .ok_or_else(|| broken(format!("{} would leave the profile", name.display())))?;
        let Some(first) = parts.first().cloned() else {
            continue;
        };
        if root.get_or_insert_with(|| first.clone()) != &first {
            return Err(broken(
                "there is more than one directory at the top".to_owned(),
            ));
        }
        let target = to.join(parts.iter().collect::<PathBuf>());
        let failed = |error: io::Error| io_failure(&target, &error);
        if kind.is_dir() {
            create_private_dir(&target).map_err(failed)?;
        } else if kind.is_file() && parts.len() > 1 {
            if let Some(parent) = target.parent() {
                create_private_dir(parent).map_err(failed)?;
            }
            let mode = member.header().mode().unwrap_or(0o600) & 0o777;
            write_member(&mut member, &target, mode).map_err(failed)?;
        } else {
            return Err(broken(format!(
                "{} is neither a file nor a directory in the profile",
                name.display()
            )));
        }
    }
    root.filter(|root| to.join(root).is_dir())
        .ok_or_else(|| broken("it contains no profile".to_owned()))
}

fn write_member(member: &mut impl Read, target: &Path, mode: u32) -> io::Result<()> {
    let mut file = File::create_new(target)?;
    io::copy(member, &mut file)?;
    file.set_permissions(std::fs::Permissions::from_mode(mode))
}

/// The parts of a path that stays below where it starts.
fn safe_parts(path: &Path) -> Option<Vec<String>> {
    let mut parts = Vec::new();
    for part in path.components() {
        match part {
            Component::CurDir => {}
            Component::Normal(name) => {
                let name = name.to_str()?;
                if name.contains('\\') {
                    return None;
                }
                parts.push(name.to_owned());
            }
            Component::RootDir | Component::ParentDir | Component::Prefix(_) => return None,
        }
    }
    Some(parts)
}

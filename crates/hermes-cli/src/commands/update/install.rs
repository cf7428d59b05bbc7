//! Replaces the program on disk in one step; checks who may do it.

use std::fmt::Write as _;
use std::fs::File;
use std::io::{self, Read as _};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use hermes_config::fs::sync_dir;
use sha2::{Digest as _, Sha256};
use tempfile::TempPath;

use crate::exit::{Exit, Failure};

/// Timeout for a program to print its version.
const VERSION_TIMEOUT: Duration = Duration::from_secs(10);

/// Places whose files belong to a package manager, and its name.
const MANAGED: &[(&str, &str)] = &[
    ("/usr/bin/", "the system's package manager"),
    ("/usr/sbin/", "the system's package manager"),
    ("/usr/lib/", "the system's package manager"),
    ("/bin/", "the system's package manager"),
    ("/nix/store/", "nix"),
    ("/gnu/store/", "guix"),
    ("/snap/", "snap"),
    ("/var/lib/flatpak/", "flatpak"),
    ("/opt/homebrew/", "homebrew"),
    ("/usr/local/Cellar/", "homebrew"),
    ("/home/linuxbrew/", "homebrew"),
];

/// Who takes care of the program at `path`, if not the person.
pub(crate) fn manager(path: &Path) -> Option<&'static str> {
    let path = path.to_str()?;
    MANAGED
        .iter()
        .find(|(prefix, _)| path.starts_with(prefix))
        .map(|(_, name)| *name)
}

/// Where the program that was replaced is kept.
pub(crate) fn previous_of(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".previous");
    name.into()
}

/// The program that runs.
pub(crate) struct InstalledProgram(PathBuf);

impl InstalledProgram {
    pub(crate) fn current() -> Result<Self, Failure> {
        std::env::current_exe()
            .and_then(std::fs::canonicalize)
            .map(Self)
            .map_err(|error| Failure::failed(format!("cannot tell where this program is: {error}")))
    }

    pub(crate) fn path(&self) -> &Path {
        &self.0
    }

    pub(super) fn dir(&self) -> Result<&Path, Failure> {
        self.0
            .parent()
            .ok_or_else(|| Failure::failed("this program is in no directory"))
    }

    /// Fails with what to do where the program cannot or should not be replaced by us.
    pub(super) fn writable(&self) -> Result<(), Failure> {
        if let Some(manager) = manager(&self.0) {
            return Err(Failure::new(
                Exit::Refused,
                format!(
                    "{} belongs to {manager}: update it there, or install hermes in a directory of your own",
                    self.0.display()
                ),
            ));
        }
        let dir = self.dir()?;
        tempfile::Builder::new()
            .prefix(".hermes-update-")
            .tempfile_in(dir)
            .map(drop)
            .map_err(|error| {
                Failure::failed(format!(
                    "cannot write to {}, where this program is: {error}\nrun it as who owns that directory, or install hermes elsewhere",
                    dir.display()
                ))
            })
    }

    pub(super) fn is_same(&self, sha256: &str) -> bool {
        File::open(&self.0)
            .and_then(hash)
            .is_ok_and(|own| own == sha256)
    }

    pub(super) fn previous(&self) -> Result<PathBuf, Failure> {
        let previous = previous_of(&self.0);
        if previous.is_file() {
            Ok(previous)
        } else {
            Err(Failure::not_found(format!(
                "there is no version to roll back to: {} does not exist",
                previous.display()
            )))
        }
    }

    /// Keeps this program and puts the new one in its place. At every moment there is a whole one.
    pub(super) fn replace(&self, new: TempPath) -> Result<PathBuf, Failure> {
        let previous = previous_of(&self.0);
        let steps = || -> io::Result<()> {
            self.keep_as(&previous)?;
            new.persist(&self.0).map_err(|error| error.error)?;
            sync_dir(self.0.parent().unwrap_or(Path::new("/")))
        };
        steps().map_err(|error| self.failed(&error))?;
        Ok(previous)
    }

    /// Changes places with the program that was kept.
    pub(super) fn exchange(&self, previous: &Path) -> Result<(), Failure> {
        let aside = previous_of(previous);
        let steps = || -> io::Result<()> {
            self.keep_as(&aside)?;
            std::fs::rename(previous, &self.0)?;
            std::fs::rename(&aside, previous)?;
            sync_dir(self.0.parent().unwrap_or(Path::new("/")))
        };
        steps().map_err(|error| self.failed(&error))
    }

    /// A second name for this program, or a copy where the disk knows no second names.
    fn keep_as(&self, target: &Path) -> io::Result<()> {
        let mut staged = target.as_os_str().to_owned();
        staged.push(".new");
        let staged = PathBuf::from(staged);
        match std::fs::remove_file(&staged) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        if std::fs::hard_link(&self.0, &staged).is_err() {
            std::fs::copy(&self.0, &staged)?;
        }
        std::fs::rename(&staged, target)?;
        // Two names of one file: renaming one over the other does nothing and leaves both.
        if staged.exists() {
            std::fs::remove_file(&staged)?;
        }
        Ok(())
    }

    fn failed(&self, error: &io::Error) -> Failure {
        Failure::failed(format!("cannot replace {}: {error}", self.0.display()))
    }
}

pub(super) fn hash(mut file: impl io::Read) -> io::Result<String> {
    let mut hasher = Sha256::new();
    let mut buffer = vec![0; 64 * 1024];
    loop {
        match file.read(&mut buffer)? {
            0 => break,
            count => hasher.update(&buffer[..count]),
        }
    }
    Ok(hex(&hasher.finalize()))
}

pub(super) fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        // Writing to a String cannot fail.
        let _ = write!(text, "{byte:02x}");
        text
    })
}

/// Runs the program with `--version` and returns its answer: it is for this machine, it is whole,
/// and it is hermes.
pub(super) fn version_of(path: &Path) -> Result<String, Failure> {
    let refused =
        |why: String| Failure::failed(format!("{} was not installed: {why}", path.display()));
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o755))
        .map_err(|error| refused(error.to_string()))?;
    let home = tempfile::tempdir().map_err(|error| refused(error.to_string()))?;
    let mut child = Command::new(path)
        .arg("--version")
        .env("HERMES_HOME", home.path())
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .map_err(|error| refused(format!("it cannot be run here ({error})")))?;
    let started_at = Instant::now();
    let status = loop {
        match child.try_wait() {
            Ok(Some(status)) => break status,
            Ok(None) if started_at.elapsed() < VERSION_TIMEOUT => {
                std::thread::sleep(Duration::from_millis(10));
            }
            other => {
                let _ = child.kill();
                let _ = child.wait();
                return Err(refused(match other {
                    Err(error) => error.to_string(),
                    Ok(_) => "it does not answer --version".to_owned(),
                }));
            }
        }
    };
    let mut answer = String::new();
    if let Some(out) = child.stdout.take() {
        // What is no text is no version either.
        let _ = out.take(4096).read_to_string(&mut answer);
    }
    let line = answer.lines().next().unwrap_or_default().trim();
    let version = line.strip_prefix("hermes ").unwrap_or_default();
    if status.success() && version.starts_with(|ch: char| ch.is_ascii_digit()) {
        Ok(line.to_owned())
    } else {
        Err(refused(format!(
            "its --version says {line:?}, so it is not hermes"
        )))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packages_are_left_to_their_managers() {
        assert!(manager(Path::new("/usr/bin/hermes")).is_some());
        assert_eq!(manager(Path::new("/nix/store/abc/bin/hermes")), Some("nix"));
        assert_eq!(manager(Path::new("/usr/local/bin/hermes")), None);
        assert_eq!(manager(Path::new("/home/ana/.local/bin/hermes")), None);
    }

    #[test]
    fn programs_change_places_and_back() {
        let dir = tempfile::tempdir().unwrap();
        let program = InstalledProgram(dir.path().join("hermes"));
        let read = |path: &Path| std::fs::read_to_string(path).unwrap();
        std::fs::write(program.path(), "one").unwrap();
        let new = tempfile::NamedTempFile::new_in(dir.path())
            .unwrap()
            .into_temp_path();
        std::fs::write(&new, "two").unwrap();
        let previous = program.replace(new).unwrap();
        assert_eq!(
            (read(program.path()).as_str(), read(&previous).as_str()),
            ("two", "one")
        );
        for (now, kept) in [("one", "two"), ("two", "one")] {
            program.exchange(&previous).unwrap();
            assert_eq!(
                (read(program.path()).as_str(), read(&previous).as_str()),
                (now, kept)
            );
        }
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 2);
    }
}

//! Projects: the directory that a file belongs to, and its entry in the store.

use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

use super::CheckpointError;

/// Files that mark the top of a project.
const MARKERS: &[&str] = &[
    ".git",
    ".hg",
    "pyproject.toml",
    "package.json",
    "Cargo.toml",
    "go.mod",
    "Makefile",
    "pom.xml",
    "Gemfile",
];

/// The project around `path`: the nearest directory with a marker, else the directory itself. `None` if that is
/// too broad for snapshots.
pub(super) fn root(path: &Path, user_dir: &Path) -> Option<PathBuf> {
    let existing = path.ancestors().find(|dir| dir.exists())?;
    let real = existing.canonicalize().ok()?;
    let start = if real.is_dir() {
        real
    } else {
        real.parent()?.to_owned()
    };
    let user_dir = user_dir
        .canonicalize()
        .unwrap_or_else(|_| user_dir.to_owned());
    let broad = |dir: &Path| is_broad(dir, &user_dir);
    start
        .ancestors()
        .take_while(|dir| !broad(dir))
        .find(|dir| MARKERS.iter().any(|marker| dir.join(marker).exists()))
        .map(Path::to_owned)
        .or_else(|| (!broad(&start)).then_some(start.clone()))
}

fn is_broad(dir: &Path, user_dir: &Path) -> bool {
    dir.parent().is_none()
        || user_dir.starts_with(dir)
        || [std::env::temp_dir().as_path(), Path::new("/tmp")].contains(&dir)
}

/// The name of a project in the store, derived from its canonical path.
pub(super) fn id(dir: &Path) -> String {
    use std::fmt::Write as _;
    use std::os::unix::ffi::OsStrExt as _;
    let digest = Sha256::digest(dir.as_os_str().as_bytes());
    digest.iter().take(8).fold(String::new(), |mut hex, byte| {
        let _ = write!(hex, "{byte:02x}");
        hex
    })
}

pub(super) fn meta_path(store: &Path, id: &str) -> PathBuf {
    store.join("projects").join(format!("{id}.json"))
}

/// Records that the project is in use. `now` in seconds since the epoch.
pub(super) fn touch(store: &Path, dir: &Path, now: f64) -> Result<(), CheckpointError> {
    let path = meta_path(store, &id(dir));
    let known = std::fs::read_to_string(&path)
        .ok()
        .and_then(|text| serde_json::from_str::<Value>(&text).ok());
    let created = known
        .as_ref()
        .and_then(|meta| meta.get("created_at")?.as_f64())
        .unwrap_or(now);
    let meta = json!({
        "workdir": dir.display().to_string(),
        "created_at": created,
        "last_touch": now,
    });
    hermes_config::fs::write_atomic(&path, meta.to_string().as_bytes(), 0o600)
        .map_err(|source| CheckpointError::Io { path, source })
}

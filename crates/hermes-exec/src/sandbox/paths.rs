//! Which directories a command may write to, and what of our homes it may read.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use super::{Settings, look};

/// What of a home is no secret: a list of what may be read, so that a credential store that appears
/// tomorrow is hidden too.
const SHARED: &[&str] = &[
    "SOUL.md",
    "audio_cache",
    "bin",
    "cache",
    "checkpoints",
    "cron",
    "document_cache",
    "hermes-agent",
    "hooks",
    "image_cache",
    "logs",
    "lsp",
    "memories",
    "node",
    "optional-skills",
    "plugins",
    "sandboxes",
    "scripts",
    "skills",
    "skins",
    "templates",
    "workspace",
];

/// Caches of common tools, relative to the person's directory. None of them is on a search path for
/// programs.
pub(super) const CACHES: &[&str] = &[
    ".cache",
    ".cargo/registry",
    ".cargo/git",
    ".cargo/.package-cache",
    ".cargo/.package-cache-mutate",
    ".cargo/.global-cache",
    ".npm",
    ".pnpm-store",
    ".local/share/pnpm/store",
    ".yarn/berry/cache",
    ".bun/install/cache",
    ".gradle/caches",
    ".m2/repository",
    ".ivy2",
    "go/pkg",
    ".nuget/packages",
];

/// A directory of which only some entries may be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Private {
    pub(super) dir: PathBuf,
    pub(super) shared: Vec<String>,
}

impl Private {
    /// A home of ours.
    pub(super) fn of(dir: &Path) -> Self {
        Self {
            dir: canonical(dir),
            shared: SHARED.iter().map(|&name| name.to_owned()).collect(),
        }
    }
}

/// The path with its links resolved as far as it exists.
pub(super) fn canonical(path: &Path) -> PathBuf {
    if let Ok(real) = look::real(path) {
        return real;
    }
    match (path.parent(), path.file_name()) {
        (Some(parent), Some(name)) => canonical(parent).join(name),
        _ => path.to_owned(),
    }
}

/// Where places led when they were first looked at. A command that may write to one must not decide what
/// the next may write to, by a link in its place.
#[derive(Clone, Debug, Default)]
pub(super) struct Known(Arc<Mutex<HashMap<PathBuf, PathBuf>>>);

/// Further places are looked at each time.
const KNOWN: usize = 4096;

impl Known {
    /// Where the place lies. `None`: it leads elsewhere than it did.
    fn real(&self, place: &Path) -> Option<PathBuf> {
        let real = canonical(place);
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        match known.get(place) {
            Some(was) if *was == real => {}
            Some(was) => {
                let (place, was) = (place.display(), was.display());
                tracing::warn!("{place} no longer leads to {was}: it cannot be written to");
                return None;
            }
            None if known.len() < KNOWN => {
                known.insert(place.to_owned(), real.clone());
            }
            None => {}
        }
        Some(real)
    }
}

/// Where a command that starts in `cwd` may write, sorted.
pub(super) fn writable(cwd: &Path, settings: &Settings, known: &Known) -> Vec<PathBuf> {
    let home = settings.user_home.as_deref().map(canonical);
    let workspace = known
        .real(cwd)
        .and_then(|cwd| workspace(&cwd, home.as_deref()));
    let mut places: Vec<PathBuf> = workspace.into_iter().collect();
    places.extend(["/tmp", "/var/tmp"].map(PathBuf::from));
    if let Some(dir) = std::env::var_os("TMPDIR").filter(|dir| Path::new(dir).is_absolute()) {
        places.push(dir.into());
    }
    if let Some(home) = &home {
        places.extend(CACHES.iter().map(|name| home.join(name)));
    }
    places.extend(settings.writable.iter().cloned());
    // Most caches do not exist: one look tells, where resolving their paths would take many.
    let mut places: Vec<PathBuf> = places
        .iter()
        .filter(|place| look::target(place).is_ok())
        .filter_map(|place| known.real(place))
        .filter(|place| place.parent().is_some())
        .collect();
    places.sort();
    places.dedup();
    places
}

/// Our own directories among writable places, which differ from call to call, and the others.
pub(super) fn split(writable: &[PathBuf]) -> (Vec<PathBuf>, Vec<PathBuf>) {
    let places = writable.iter().cloned();
    places.partition(|place| crate::scratch::is_in_ours(place))
}

/// Whether a place is a temporary directory, which everybody shares.
pub(super) fn is_temporary(place: &Path) -> bool {
    let named = std::env::var_os("TMPDIR");
    ["/tmp", "/var/tmp"].map(Path::new).contains(&place)
        || named.is_some_and(|named| place == canonical(Path::new(&named)))
}

/// The project around `cwd`: the nearest directory with a `.git`, else `cwd`. A directory that holds
/// everybody's (or everything) is nobody's workspace.
pub(super) fn workspace(cwd: &Path, home: Option<&Path>) -> Option<PathBuf> {
    let cwd = canonical(cwd);
    let too_wide = |dir: &Path| dir.parent().is_none() || home.is_some_and(|home| above(dir, home));
    if too_wide(&cwd) {
        return None;
    }
    let root = cwd
        .ancestors()
        .take_while(|dir| !too_wide(dir) && Some(*dir) != home)
        .find(|dir| look::target(&dir.join(".git")).is_ok());
    Some(root.map_or_else(|| cwd.clone(), Path::to_owned))
}

fn above(dir: &Path, home: &Path) -> bool {
    home != dir && home.starts_with(dir)
}

/// What cannot be read: what was named (without links in it), and where links in our homes lead that are not
/// shared.
pub(super) fn resolved(unreadable: &[PathBuf], private: &[Private]) -> Vec<PathBuf> {
    let mut paths = unreadable.to_vec();
    for home in private {
        for entry in look::list(&home.dir) {
            let is_link = entry.file_type().is_ok_and(|kind| kind.is_symlink());
            let shared = home
                .shared
                .iter()
                .any(|name| entry.file_name() == name.as_str());
            if is_link
                && !shared
                && let Ok(target) = look::real(&entry.path())
            {
                paths.push(target);
            }
        }
    }
    paths.sort();
    paths.dedup();
    paths
}

//! The directories that a command may write to, and the readable entries of Hermes homes.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use super::{SandboxSettings, tracked_fs};

/// The non-secret entries of a Hermes home. An allow-list, so that a credential store that is added later is
/// hidden too.
const READABLE_IN_AGENT_HOME: &[&str] = &[
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

/// Caches of common tools, relative to the user's home. None of them is on a program search path.
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
pub(super) struct PrivateDir {
    pub(super) dir: PathBuf,
    pub(super) shared: Vec<String>,
}

impl PrivateDir {
    /// A Hermes home.
    pub(super) fn agent_home(dir: &Path) -> Self {
        Self {
            dir: canonical(dir),
            shared: READABLE_IN_AGENT_HOME
                .iter()
                .map(|&name| name.to_owned())
                .collect(),
        }
    }
}

/// The path with links resolved as far as it exists.
pub(super) fn canonical(path: &Path) -> PathBuf {
    if let Ok(real) = tracked_fs::resolve(path) {
        return real;
    }
    match (path.parent(), path.file_name()) {
        (Some(parent), Some(name)) => canonical(parent).join(name),
        _ => path.to_owned(),
    }
}

/// Where paths pointed when first resolved. A command that may write to a directory must not change what the
/// next one may write to by replacing it with a link.
#[derive(Clone, Debug, Default)]
pub(super) struct PinnedPaths(Arc<Mutex<HashMap<PathBuf, PathBuf>>>);

/// Paths beyond this limit are resolved each time.
const MAX_PINNED: usize = 4096;

impl PinnedPaths {
    /// The canonical path. `None`: it now points elsewhere.
    fn resolve(&self, base: &Path) -> Option<PathBuf> {
        let real = canonical(base);
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        match known.get(base) {
            Some(was) if *was == real => {}
            Some(was) => {
                let (base, was) = (base.display(), was.display());
                tracing::warn!("{base} no longer leads to {was}: it cannot be written to");
                return None;
            }
            None if known.len() < MAX_PINNED => {
                known.insert(base.to_owned(), real.clone());
            }
            None => {}
        }
        Some(real)
    }
}

/// The directories that a command started in `cwd` may write to, sorted.
pub(super) fn writable_dirs(
    cwd: &Path,
    settings: &SandboxSettings,
    known: &PinnedPaths,
) -> Vec<PathBuf> {
    let home = settings.user_home.as_deref().map(canonical);
    let workspace = known
        .resolve(cwd)
        .and_then(|cwd| workspace(&cwd, home.as_deref()));
    let mut bases: Vec<PathBuf> = workspace.into_iter().collect();
    bases.extend(["/tmp", "/var/tmp"].map(PathBuf::from));
    if let Some(dir) = std::env::var_os("TMPDIR").filter(|dir| Path::new(dir).is_absolute()) {
        bases.push(dir.into());
    }
    if let Some(home) = &home {
        bases.extend(CACHES.iter().map(|name| home.join(name)));
    }
    bases.extend(settings.writable.iter().cloned());
    // Most caches do not exist: one `stat` is cheaper than resolving the path.
    let mut bases: Vec<PathBuf> = bases
        .iter()
        .filter(|base| tracked_fs::stat(base).is_ok())
        .filter_map(|base| known.resolve(base))
        .filter(|base| base.parent().is_some())
        .collect();
    bases.sort();
    bases.dedup();
    bases
}

/// Splits writable directories into our scratch directories, which differ per call, and the others.
pub(super) fn split_scratch(writable: &[PathBuf]) -> (Vec<PathBuf>, Vec<PathBuf>) {
    let bases = writable.iter().cloned();
    bases.partition(|base| crate::scratch::is_in_scratch(base))
}

/// Whether this is a shared temporary directory.
pub(super) fn is_temporary(base: &Path) -> bool {
    let named = std::env::var_os("TMPDIR");
    ["/tmp", "/var/tmp"].map(Path::new).contains(&base)
        || named.is_some_and(|named| base == canonical(Path::new(&named)))
}

/// The project around `cwd`: the nearest ancestor with a `.git`, else `cwd`. A directory above the user's home
/// is not a workspace.
pub(super) fn workspace(cwd: &Path, home: Option<&Path>) -> Option<PathBuf> {
    let cwd = canonical(cwd);
    let too_wide = |dir: &Path| {
        dir.parent().is_none() || home.is_some_and(|home| is_strict_ancestor(dir, home))
    };
    if too_wide(&cwd) {
        return None;
    }
    let root = cwd
        .ancestors()
        .take_while(|dir| !too_wide(dir) && Some(*dir) != home)
        .find(|dir| tracked_fs::stat(&dir.join(".git")).is_ok());
    Some(root.map_or_else(|| cwd.clone(), Path::to_owned))
}

fn is_strict_ancestor(dir: &Path, home: &Path) -> bool {
    home != dir && home.starts_with(dir)
}

/// Unreadable paths: the given ones (which contain no links) and the targets of unshared links in Hermes homes.
pub(super) fn resolve_unreadable(unreadable: &[PathBuf], private: &[PrivateDir]) -> Vec<PathBuf> {
    let mut paths = unreadable.to_vec();
    for home in private {
        for entry in tracked_fs::list(&home.dir) {
            let is_link = entry.file_type().is_ok_and(|kind| kind.is_symlink());
            let shared = home
                .shared
                .iter()
                .any(|name| entry.file_name() == name.as_str());
            if is_link
                && !shared
                && let Ok(target) = tracked_fs::resolve(&entry.path())
            {
                paths.push(target);
            }
        }
    }
    paths.sort();
    paths.dedup();
    paths
}

//! The front matter of all skills below a directory, cached in a file of the home.
//!
//! A large library is listed at every start and changes rarely. What was read is cached with the
//! stamps of its directories and files: an unchanged directory is not listed again, an unchanged
//! file not read again. A stamp younger than the resolution of file system timestamps is not
//! trusted.

use std::collections::BTreeMap;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use hermes_config::fs::write_atomic;
use serde::{Deserialize, Serialize};

use super::{Frontmatter, SkillLibrary, frontmatter, walk};

const SKILL: &str = "SKILL.md";
const CATEGORY: &str = "DESCRIPTION.md";
/// Format version of the cache file; others are not read.
const CACHE_VERSION: u32 = 1;
/// With fewer files, reading them costs less than caching them.
const MIN_CACHED_FILES: usize = 32;
/// Two changes within this time may leave the same stamp.
const STAMP_RESOLUTION: f64 = 2.0;

/// The data of a `SKILL.md` or `DESCRIPTION.md` that listings need.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct SkillHead {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) name: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) description: Option<String>,
    /// Used if there is no description.
    #[serde(skip_serializing_if = "Option::is_none")]
    first_line: Option<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    platforms: Vec<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    environments: Vec<String>,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    conditions: BTreeMap<String, Vec<String>>,
}

impl SkillHead {
    fn read(text: &str) -> Self {
        let (head, body) = Frontmatter::read(text);
        let description = head.description();
        let first_line = || {
            let mut lines = body.lines().map(str::trim);
            lines.find(|line| !line.is_empty() && !line.starts_with('#'))
        };
        let conditions = [
            "requires_tools",
            "requires_toolsets",
            "fallback_for_tools",
            "fallback_for_toolsets",
        ];
        Self {
            name: head.name(),
            first_line: match description {
                Some(_) => None,
                None => first_line().map(|line| super::shortened(line, super::MAX_DESCRIPTION)),
            },
            description,
            platforms: head.top_words("platforms"),
            environments: head.top_words("environments"),
            conditions: conditions
                .into_iter()
                .map(|field| (field.to_owned(), head.hermes_words(field)))
                .filter(|(_, words)| !words.is_empty())
                .collect(),
        }
    }

    /// The description, or the first line of the text.
    pub(super) fn display_description(&self) -> &str {
        let text = self.description.as_ref().or(self.first_line.as_ref());
        text.map(String::as_str).unwrap_or_default()
    }

    pub(super) fn condition(&self, field: &str) -> &[String] {
        self.conditions
            .get(field)
            .map(Vec::as_slice)
            .unwrap_or_default()
    }

    /// Whether the skill is useful on this system.
    pub(super) fn fits_system(&self, environments: &[String]) -> bool {
        frontmatter::fits_platform(&self.platforms)
            && frontmatter::fits_environment(&self.environments, environments)
    }
}

/// A file below a skills directory.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct SkillFile {
    pub(super) path: PathBuf,
    pub(super) head: SkillHead,
}

impl SkillFile {
    pub(super) fn is_skill(&self) -> bool {
        self.path.file_name().is_some_and(|name| name == SKILL)
    }
}

/// Device, inode, size, and modification and change time in nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct FileStamp(u64, u64, u64, i64, i64);

#[derive(Default, Serialize, Deserialize)]
struct HeadCache {
    format: u32,
    roots: BTreeMap<String, CachedRoot>,
}

#[derive(Clone, Default, PartialEq, Serialize, Deserialize)]
struct CachedRoot {
    /// Relative to the root.
    dirs: BTreeMap<String, Option<FileStamp>>,
    files: BTreeMap<String, CachedFile>,
    /// Something in it may appear without a change of the directory, such as the target of a
    /// dangling link.
    unsettled: bool,
}

#[derive(Clone, PartialEq, Serialize, Deserialize)]
struct CachedFile {
    stamp: Option<FileStamp>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    head: Option<SkillHead>,
}

/// How much work a listing did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct ListingStats {
    pub(super) listed: usize,
    pub(super) read: usize,
}

impl SkillLibrary {
    /// The files of every root, the home's own first, each root sorted by path.
    pub(super) fn heads(&self) -> Vec<(PathBuf, Vec<SkillFile>)> {
        self.heads_with(&mut ListingStats::default())
    }

    pub(super) fn heads_with(&self, effort: &mut ListingStats) -> Vec<(PathBuf, Vec<SkillFile>)> {
        let cache = self.settings.cache.as_deref().and_then(load_cache);
        let mut cache = cache.unwrap_or_default();
        let now = self.settings.clock.epoch_seconds();
        let mut next = HeadCache {
            format: CACHE_VERSION,
            roots: BTreeMap::new(),
        };
        let mut changed = false;
        let mut all = Vec::new();
        for root in self.roots() {
            let before = root.to_str().and_then(|name| cache.roots.remove(name));
            let before = before.unwrap_or_default();
            let (found, after) = scan_root(root, &before, now, effort);
            changed |= after != before;
            if let Some(name) = root.to_str() {
                next.roots.insert(name.to_owned(), after);
            }
            all.push((root.clone(), found));
        }
        let files: usize = all.iter().map(|(_, found)| found.len()).sum();
        if changed
            && files >= MIN_CACHED_FILES
            && let Some(path) = &self.settings.cache
        {
            save_cache(path, &next);
        }
        all
    }
}

fn load_cache(path: &Path) -> Option<HeadCache> {
    let bytes = std::fs::read(path).ok()?;
    let cache: HeadCache = serde_json::from_slice(&bytes).ok()?;
    (cache.format == CACHE_VERSION).then_some(cache)
}

/// Errors are ignored: a cache that cannot be written only costs time.
fn save_cache(path: &Path, cache: &HeadCache) {
    let stored = serde_json::to_vec(cache).map_err(std::io::Error::from);
    let stored = stored.and_then(|bytes| {
        if let Some(dir) = path.parent() {
            std::fs::create_dir_all(dir)?;
        }
        write_atomic(path, &bytes, 0o600).map_err(std::io::Error::other)
    });
    if let Err(error) = stored {
        tracing::debug!(path = %path.display(), %error, "the list of skills was not kept");
    }
}

fn scan_root(
    root: &Path,
    before: &CachedRoot,
    now: f64,
    effort: &mut ListingStats,
) -> (Vec<SkillFile>, CachedRoot) {
    let (files, mut after) = if is_unchanged(root, before, now) {
        let files = before.files.keys().map(|name| root.join(name)).collect();
        let same = CachedRoot {
            dirs: before.dirs.clone(),
            ..CachedRoot::default()
        };
        (files, same)
    } else {
        effort.listed += 1;
        list(root, now)
    };
    let mut found = Vec::new();
    for path in files {
        let name = relative(root, &path);
        let stamp = stamp(&path, now);
        let known = name.as_ref().and_then(|name| before.files.get(name));
        let known = known.filter(|known| stamp.is_some() && known.stamp == stamp);
        let known = known.and_then(|known| known.head.clone());
        let head = known.or_else(|| {
            effort.read += 1;
            read(&path)
        });
        if let Some(name) = name {
            let cache = CachedFile {
                stamp,
                head: head.clone().filter(|_| stamp.is_some()),
            };
            after.files.insert(name, cache);
        }
        found.extend(head.map(|head| SkillFile { path, head }));
    }
    found.sort_by(|one, two| one.path.as_os_str().cmp(two.path.as_os_str()));
    (found, after)
}

fn is_unchanged(root: &Path, before: &CachedRoot, now: f64) -> bool {
    !before.unsettled
        && !before.dirs.is_empty()
        && before
            .dirs
            .iter()
            .all(|(name, known)| known.is_some() && stamp(&root.join(name), now) == *known)
}

fn list(root: &Path, now: f64) -> (Vec<PathBuf>, CachedRoot) {
    // Taken before the listing: changes during it are seen by the next one.
    let tree = walk::walk_tree(
        root,
        |path| {
            path.file_name()
                .is_some_and(|name| name == SKILL || name == CATEGORY)
        },
        |dir| stamp(dir, now),
    );
    let mut after = CachedRoot {
        unsettled: tree.has_dangling_link,
        ..CachedRoot::default()
    };
    for (dir, stamp) in tree.dirs {
        match relative(root, &dir) {
            Some(name) => drop(after.dirs.insert(name, stamp)),
            None => after.unsettled = true,
        }
    }
    after.unsettled |= tree.files.iter().any(|path| relative(root, path).is_none());
    (tree.files, after)
}

fn relative(root: &Path, path: &Path) -> Option<String> {
    path.strip_prefix(root).ok()?.to_str().map(str::to_owned)
}

/// `None` if it cannot be determined or is too recent to be trusted.
fn stamp(path: &Path, now: f64) -> Option<FileStamp> {
    let meta = std::fs::metadata(path).ok()?;
    let nanos = |seconds: i64, nanos: i64| seconds.checked_mul(1_000_000_000)?.checked_add(nanos);
    let young = |seconds: i64| seconds as f64 > now - STAMP_RESOLUTION;
    if young(meta.mtime()) || young(meta.ctime()) {
        return None;
    }
    Some(FileStamp(
        meta.dev(),
        meta.ino(),
        meta.size(),
        nanos(meta.mtime(), meta.mtime_nsec())?,
        nanos(meta.ctime(), meta.ctime_nsec())?,
    ))
}

fn read(path: &Path) -> Option<SkillHead> {
    match std::fs::read_to_string(path) {
        Ok(text) => Some(SkillHead::read(&text)),
        Err(error) => {
            tracing::warn!(path = %path.display(), %error, "a skill cannot be read");
            None
        }
    }
}

#[cfg(test)]
mod tests;

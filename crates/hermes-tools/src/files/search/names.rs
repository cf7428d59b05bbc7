//! Finding files by name, newest first.

use std::path::{Path, PathBuf};
use std::time::SystemTime;

use super::query::SearchQuery;
use super::tree::{self, SearchDeadline};
use super::{SearchError, SearchResults, SearchRoot};
use crate::files::guard::FileGuard;

pub(super) fn search(
    query: &SearchQuery,
    root: &SearchRoot,
    guard: &FileGuard,
    watch: &SearchDeadline,
) -> Result<SearchResults, SearchError> {
    let globs = globs(&query.pattern, root);
    let globs: Vec<&str> = globs.iter().map(String::as_str).collect();
    let overrides = tree::overrides(&root.real, &globs)?;
    let all = tree::SharedResults::new(Vec::new());
    let omitted = tree::each_file(root, overrides, guard, watch, || {
        |entry: &ignore::DirEntry| {
            let modified = entry.metadata().ok().and_then(|meta| meta.modified().ok());
            let file = (modified, entry.path().to_owned());
            all.with(|all| all.push(file));
        }
    });
    let stopped = watch.verdict()?;
    let mut all: Vec<(Option<SystemTime>, PathBuf)> = all.into_inner();
    all.sort_by(|a, b| b.0.cmp(&a.0).then_with(|| a.1.cmp(&b.1)));
    let files = all
        .iter()
        .skip(query.offset)
        .take(query.limit)
        .map(|(_, path)| root.show(path))
        .collect();
    Ok(SearchResults {
        files,
        total: all.len() as u64,
        more: all.len() > query.end(),
        stopped,
        omitted,
        ..SearchResults::default()
    })
}

/// A bare name matches at any depth, also as the end of a name; a path from the searched root or from any
/// directory below it.
fn globs(pattern: &str, root: &SearchRoot) -> Vec<String> {
    let pattern = pattern.strip_prefix("./").unwrap_or(pattern);
    let below = Path::new(pattern).strip_prefix(&root.real).ok();
    let pattern = below.and_then(Path::to_str).unwrap_or(pattern);
    if pattern.starts_with('*') {
        return vec![pattern.to_owned()];
    }
    if !pattern.contains('/') {
        return vec![format!("*{pattern}")];
    }
    // A leading `!` would negate it.
    let rooted = pattern.trim_start_matches(['!', '/']);
    vec![format!("/{rooted}"), format!("**/{rooted}")]
}

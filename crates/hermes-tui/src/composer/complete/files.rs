//! Files of the project for `@` completion: walked on a thread, delivered in batches.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use ignore::WalkBuilder;
use tokio::sync::mpsc;

use super::rank::{Ranker, wanted};
use crate::composer::{ComposerResult, ThreadResult};

/// Maximum number of known files and directories.
const MAX_PATHS: usize = 40_000;
/// Maximum entries of one directory outside the project.
const MAX_LISTED: usize = 2_000;
/// A walk ends after this time, complete or not.
const WALK_TIMEOUT: Duration = Duration::from_secs(3);
/// Paths per batch.
const BATCH_SIZE: usize = 1_000;
/// Maximum number of rows offered.
const MAX_ROWS: usize = 50;

/// Paths that a thread found.
#[derive(Debug)]
pub(crate) struct FoundPaths {
    walk: u64,
    paths: Vec<String>,
    done: bool,
}

/// The known files.
#[derive(Default)]
pub(super) struct ProjectFiles {
    paths: Vec<String>,
    /// Paths of a running walk, while `paths` still holds those of the previous one.
    pending_paths: Option<Vec<String>>,
    walk: u64,
    running: Option<Arc<AtomicBool>>,
    /// The root of the walk: the project (empty), or a directory as it was typed.
    root: String,
    narrowed: Option<NarrowedSearch>,
}

/// The last search and its hits: a longer word can only match among these.
struct NarrowedSearch {
    word: String,
    /// Scores and indices into the list.
    hits: Vec<(u16, u32)>,
    /// How many paths of the list were searched.
    seen: u32,
}

impl ProjectFiles {
    /// Makes sure that the files for `word` are known or being walked.
    pub(super) fn request(
        &mut self,
        word: &str,
        anew: bool,
        project: &Path,
        arrivals: &mpsc::Sender<ComposerResult>,
    ) {
        let directory_part = outside(word).unwrap_or_default();
        if self.walk > 0 && directory_part == self.root && (!anew || self.running.is_some()) {
            return;
        }
        self.stop();
        let known = self.walk > 0 && directory_part == self.root;
        self.pending_paths = known.then(Vec::new);
        if !known {
            self.paths.clear();
        }
        self.narrowed = None;
        self.walk += 1;
        directory_part.clone_into(&mut self.root);
        let stop = Arc::new(AtomicBool::new(false));
        let walk = FileWalk {
            id: self.walk,
            stop: Arc::clone(&stop),
            arrivals: arrivals.clone(),
        };
        let (project, directory_part) = (project.to_path_buf(), directory_part.to_owned());
        let started = std::thread::Builder::new()
            .name("composer-files".to_owned())
            .spawn(move || {
                if directory_part.is_empty() {
                    walk.project(&project);
                } else {
                    walk.directory(&project, &directory_part);
                }
            });
        match started {
            Ok(_) => self.running = Some(stop),
            Err(error) => tracing::warn!(%error, "no thread to look for files"),
        }
    }

    pub(super) fn stop(&mut self) {
        if let Some(running) = self.running.take() {
            running.store(true, Ordering::Relaxed);
        }
    }

    /// Returns whether anything changed.
    pub(super) fn found(&mut self, found: FoundPaths) -> bool {
        if found.walk != self.walk {
            return false;
        }
        if found.done {
            self.running = None;
        }
        let Some(coming) = &mut self.pending_paths else {
            self.paths.extend(found.paths);
            return true;
        };
        coming.extend(found.paths);
        if found.done {
            self.paths = std::mem::take(coming);
            self.pending_paths = None;
            self.narrowed = None;
        }
        found.done
    }

    pub(super) fn is_running(&self) -> bool {
        self.running.is_some()
    }

    /// The best matching paths.
    pub(super) fn best(&mut self, word: &str, ranker: &mut Ranker) -> Vec<String> {
        let atom = wanted(word);
        let mut score = |index: u32| {
            let path = self.paths.get(index as usize)?;
            ranker.path_score(path, &atom).map(|score| (score, index))
        };
        let (mut scored, seen) = match self.narrowed.take() {
            Some(narrowed) if word == narrowed.word => (narrowed.hits, narrowed.seen),
            Some(narrowed) if word.starts_with(&narrowed.word) => {
                let hits = narrowed.hits.iter();
                let hits = hits.filter_map(|(_, index)| score(*index)).collect();
                (hits, narrowed.seen)
            }
            _ => (Vec::new(), 0),
        };
        let count = self.paths.len() as u32;
        scored.extend((seen..count).filter_map(score));
        self.narrowed = Some(NarrowedSearch {
            word: word.to_owned(),
            hits: scored.clone(),
            seen: count,
        });
        let path = |index: u32| self.paths.get(index as usize).map_or("", String::as_str);
        let depth = |path: &str| path.trim_end_matches('/').matches('/').count();
        let order = |a: &(u16, u32), b: &(u16, u32)| {
            let (one, other) = (path(a.1), path(b.1));
            b.0.cmp(&a.0)
                .then_with(|| depth(one).cmp(&depth(other)))
                .then_with(|| one.len().cmp(&other.len()))
                .then_with(|| one.cmp(other))
        };
        if scored.len() > MAX_ROWS {
            scored.select_nth_unstable_by(MAX_ROWS, order);
            scored.truncate(MAX_ROWS);
        }
        scored.sort_unstable_by(order);
        scored
            .into_iter()
            .map(|(_, index)| path(index).to_owned())
            .collect()
    }
}

impl Drop for ProjectFiles {
    fn drop(&mut self) {
        self.stop();
    }
}

/// The directory of a path outside the project, as it was typed: `~/`, `../x/`, `/etc/`.
fn outside(word: &str) -> Option<&str> {
    let leads = ["/", "~/", "./", "../"].iter().any(|s| word.starts_with(s));
    let end = word.rfind('/')? + 1;
    leads.then(|| &word[..end])
}

/// Resolves a typed path, which may contain `~`.
pub(in crate::composer) fn resolve(path: &str, project: &Path) -> PathBuf {
    match path.strip_prefix("~/") {
        Some(rest) => match std::env::home_dir() {
            Some(home) => home.join(rest),
            None => project.join(path),
        },
        None => project.join(path),
    }
}

struct FileWalk {
    id: u64,
    stop: Arc<AtomicBool>,
    arrivals: mpsc::Sender<ComposerResult>,
}

impl FileWalk {
    /// Sends a batch. `false`: nothing waits for it any more.
    fn send(&self, paths: Vec<String>, done: bool) -> bool {
        let found = FoundPaths {
            walk: self.id,
            paths,
            done,
        };
        !self.stop.load(Ordering::Relaxed)
            && self
                .arrivals
                .blocking_send(ComposerResult(ThreadResult::Files(found)))
                .is_ok()
    }

    /// Walks everything in the project that git would not ignore.
    fn project(&self, project: &Path) {
        let end = Instant::now() + WALK_TIMEOUT;
        let walk = WalkBuilder::new(project)
            .hidden(false)
            .require_git(false)
            .filter_entry(|entry| entry.file_name() != ".git")
            .build();
        let mut piece = Vec::new();
        let mut count = 0;
        for entry in walk.flatten() {
            let Some(path) = entry
                .path()
                .strip_prefix(project)
                .ok()
                .and_then(Path::to_str)
                .filter(|path| !path.is_empty() && !path.contains(char::is_control))
            else {
                continue;
            };
            let directory = entry.file_type().is_some_and(|kind| kind.is_dir());
            piece.push(if directory {
                format!("{path}/")
            } else {
                path.to_owned()
            });
            count += 1;
            if piece.len() == BATCH_SIZE && !self.send(std::mem::take(&mut piece), false) {
                return;
            }
            if count == MAX_PATHS || Instant::now() >= end {
                break;
            }
        }
        self.send(piece, true);
    }

    /// Lists one directory, anywhere.
    fn directory(&self, project: &Path, directory_part: &str) {
        let mut paths = Vec::new();
        if let Ok(entries) = std::fs::read_dir(resolve(directory_part, project)) {
            for entry in entries.flatten().take(MAX_LISTED) {
                let name = entry.file_name();
                let Some(name) = name
                    .to_str()
                    .filter(|name| !name.contains(char::is_control))
                else {
                    continue;
                };
                let directory = entry.path().is_dir();
                let end = if directory { "/" } else { "" };
                paths.push(format!("{directory_part}{name}{end}"));
            }
        }
        self.send(paths, true);
    }
}

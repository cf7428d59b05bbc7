//! Files of the project behind `@`: walked on a thread, handed over in pieces.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use ignore::WalkBuilder;
use tokio::sync::mpsc;

use super::rank::{Ranker, wanted};
use crate::composer::{Arrival, Arrived};

/// Files and directories that are known at most.
const MAX_PATHS: usize = 40_000;
/// Entries of one directory outside the project.
const MAX_LISTED: usize = 2_000;
/// A walk ends then, complete or not.
const WALK_TIME: Duration = Duration::from_secs(3);
/// Paths that are handed over together.
const PIECE: usize = 1_000;
/// Rows that are offered.
const ROWS: usize = 50;

/// Paths that a thread found.
#[derive(Debug)]
pub(crate) struct Found {
    walk: u64,
    paths: Vec<String>,
    done: bool,
}

/// What is known of the files.
#[derive(Default)]
pub(super) struct Files {
    paths: Vec<String>,
    /// Of a walk that has not ended while `paths` are those of an earlier one.
    coming: Option<Vec<String>>,
    walk: u64,
    running: Option<Arc<AtomicBool>>,
    /// What the walk is of: the project (empty), or a directory as it was typed.
    place: String,
    narrowed: Option<Narrowed>,
}

/// What was looked for last, and where it was found: what is typed behind it is found there too.
struct Narrowed {
    word: String,
    /// Scores and places in the list.
    hits: Vec<(u16, u32)>,
    /// So many paths of the list were looked at.
    seen: u32,
}

impl Files {
    /// Sees to it that the files for `word` are known or on their way.
    pub(super) fn want(
        &mut self,
        word: &str,
        anew: bool,
        project: &Path,
        arrivals: &mpsc::Sender<Arrived>,
    ) {
        let place = outside(word).unwrap_or_default();
        if self.walk > 0 && place == self.place && (!anew || self.running.is_some()) {
            return;
        }
        self.stop();
        let known = self.walk > 0 && place == self.place;
        self.coming = known.then(Vec::new);
        if !known {
            self.paths.clear();
        }
        self.narrowed = None;
        self.walk += 1;
        place.clone_into(&mut self.place);
        let stop = Arc::new(AtomicBool::new(false));
        let walk = Walk {
            id: self.walk,
            stop: Arc::clone(&stop),
            arrivals: arrivals.clone(),
        };
        let (project, place) = (project.to_path_buf(), place.to_owned());
        let started = std::thread::Builder::new()
            .name("composer-files".to_owned())
            .spawn(move || {
                if place.is_empty() {
                    walk.project(&project);
                } else {
                    walk.directory(&project, &place);
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

    /// Whether anything changed.
    pub(super) fn found(&mut self, found: Found) -> bool {
        if found.walk != self.walk {
            return false;
        }
        if found.done {
            self.running = None;
        }
        let Some(coming) = &mut self.coming else {
            self.paths.extend(found.paths);
            return true;
        };
        coming.extend(found.paths);
        if found.done {
            self.paths = std::mem::take(coming);
            self.coming = None;
            self.narrowed = None;
        }
        found.done
    }

    pub(super) fn is_running(&self) -> bool {
        self.running.is_some()
    }

    /// The paths that fit best.
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
        self.narrowed = Some(Narrowed {
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
        if scored.len() > ROWS {
            scored.select_nth_unstable_by(ROWS, order);
            scored.truncate(ROWS);
        }
        scored.sort_unstable_by(order);
        scored
            .into_iter()
            .map(|(_, index)| path(index).to_owned())
            .collect()
    }
}

impl Drop for Files {
    fn drop(&mut self) {
        self.stop();
    }
}

/// The directory of a path that leads out of the project, as it was typed: `~/`, `../x/`, `/etc/`.
fn outside(word: &str) -> Option<&str> {
    let leads = ["/", "~/", "./", "../"].iter().any(|s| word.starts_with(s));
    let end = word.rfind('/')? + 1;
    leads.then(|| &word[..end])
}

/// The path that a person means, who may write `~`.
pub(in crate::composer) fn resolve(path: &str, project: &Path) -> PathBuf {
    match path.strip_prefix("~/") {
        Some(rest) => match std::env::home_dir() {
            Some(home) => home.join(rest),
            None => project.join(path),
        },
        None => project.join(path),
    }
}

struct Walk {
    id: u64,
    stop: Arc<AtomicBool>,
    arrivals: mpsc::Sender<Arrived>,
}

impl Walk {
    /// Whether somebody still wants to know.
    fn tell(&self, paths: Vec<String>, done: bool) -> bool {
        let found = Found {
            walk: self.id,
            paths,
            done,
        };
        !self.stop.load(Ordering::Relaxed)
            && self
                .arrivals
                .blocking_send(Arrived(Arrival::Files(found)))
                .is_ok()
    }

    /// Everything in the project that git would not ignore.
    fn project(&self, project: &Path) {
        let end = Instant::now() + WALK_TIME;
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
            if piece.len() == PIECE && !self.tell(std::mem::take(&mut piece), false) {
                return;
            }
            if count == MAX_PATHS || Instant::now() >= end {
                break;
            }
        }
        self.tell(piece, true);
    }

    /// One directory, wherever it is.
    fn directory(&self, project: &Path, place: &str) {
        let mut paths = Vec::new();
        if let Ok(entries) = std::fs::read_dir(resolve(place, project)) {
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
                paths.push(format!("{place}{name}{end}"));
            }
        }
        self.tell(paths, true);
    }
}

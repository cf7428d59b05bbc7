//! Drafts: a few slots per project, each locked by the process that writes to it. An unlocked slot
//! belongs to a process that has ended, for whatever reason.

use std::collections::HashSet;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use hermes_config::fs::{FileLock, create_private_dir, write_atomic};
use serde::{Deserialize, Serialize};

use super::storage::hash;
use super::stored::{BodyStore, StoredText};
use super::text::RichText;

/// Drafts of a project.
const MAX_DRAFTS: usize = 8;
/// Larger paste bodies get a file of their own, which is written once.
const MAX_INLINE_BYTES: usize = 32 << 10;

#[derive(Debug)]
pub(super) struct SavedDraft {
    pub(super) session: String,
    pub(super) fresh: bool,
    pub(super) text: RichText,
}

#[derive(Serialize, Deserialize)]
struct StoredDraft {
    session: String,
    /// The session was still empty: its draft is restored in the next empty one.
    fresh: bool,
    draft: StoredText,
}

/// The drafts of a project.
#[derive(Debug)]
pub(super) struct DraftSlots {
    dir: PathBuf,
}

/// A slot owned by this process until dropped.
#[derive(Debug)]
pub(super) struct DraftSlot {
    path: PathBuf,
    _lock: FileLock,
}

impl DraftSlot {
    pub(super) fn path(&self) -> &Path {
        &self.path
    }
}

impl DraftSlots {
    pub(super) fn new(dir: PathBuf) -> Self {
        Self { dir }
    }

    fn path(&self, slot: usize) -> PathBuf {
        self.dir.join(format!("{slot}.json"))
    }

    fn hold(&self, slot: usize) -> Option<DraftSlot> {
        let path = self.path(slot);
        let lock = FileLock::try_acquire(&path.with_extension("lock")).ok()?;
        Some(DraftSlot { path, _lock: lock })
    }

    /// An unlocked slot: an empty one, or the one with the oldest draft.
    pub(super) fn free(&self) -> Option<DraftSlot> {
        if let Err(error) = create_private_dir(&self.dir) {
            tracing::warn!(dir = %self.dir.display(), %error, "drafts are not kept");
            return None;
        }
        let age = |slot: &usize| {
            fs::metadata(self.path(*slot))
                .and_then(|meta| meta.modified())
                .unwrap_or(SystemTime::UNIX_EPOCH)
        };
        let mut slots: Vec<usize> = (0..MAX_DRAFTS).collect();
        slots.sort_by_key(age);
        slots.into_iter().find_map(|slot| self.hold(slot))
    }

    /// Takes over the draft of a process that has ended: of this session, or of an empty session if
    /// this one is empty.
    pub(super) fn take_over(&self, session: &str, fresh: bool) -> Option<(DraftSlot, RichText)> {
        let mut found: Vec<(bool, SystemTime, usize)> = Vec::new();
        for slot in 0..MAX_DRAFTS {
            let path = self.path(slot);
            let Some(file) = read(&path) else {
                continue;
            };
            let same = file.session == session;
            if same || (fresh && file.fresh) {
                let written = fs::metadata(&path).and_then(|meta| meta.modified());
                found.push((same, written.unwrap_or(SystemTime::UNIX_EPOCH), slot));
            }
        }
        found.sort();
        found.into_iter().rev().find_map(|(_, _, slot)| {
            let slot = self.hold(slot)?;
            // Read again, now that no other process can take it.
            let file = read(&slot.path)?;
            let text = file.draft.into_rich(&BodyFiles::for_draft(&slot.path));
            (!text.is_empty()).then_some((slot, text))
        })
    }
}

fn read(path: &Path) -> Option<StoredDraft> {
    let bytes = fs::read(path).ok()?;
    match serde_json::from_slice(&bytes) {
        Ok(file) => Some(file),
        Err(error) => {
            tracing::warn!(path = %path.display(), %error, "a draft cannot be read");
            None
        }
    }
}

impl SavedDraft {
    pub(super) fn write(&self, path: &Path) -> io::Result<()> {
        let mut beside = BodyFiles::for_draft(path);
        let file = StoredDraft {
            session: self.session.clone(),
            fresh: self.fresh,
            draft: StoredText::from_rich(&self.text, MAX_INLINE_BYTES, &mut beside),
        };
        let text = serde_json::to_string(&file).map_err(io::Error::other)?;
        write_atomic(path, text.as_bytes(), 0o600)?;
        beside.sweep();
        Ok(())
    }

    pub(super) fn remove(path: &Path) -> io::Result<()> {
        match fs::remove_file(path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        BodyFiles::for_draft(path).sweep();
        Ok(())
    }
}

/// Files next to a draft with its long bodies, named by their content.
struct BodyFiles {
    dir: PathBuf,
    prefix: String,
    used: HashSet<String>,
}

impl BodyFiles {
    fn for_draft(draft: &Path) -> Self {
        let slot = draft.file_stem().unwrap_or_default().to_string_lossy();
        Self {
            dir: draft.parent().unwrap_or(Path::new(".")).to_path_buf(),
            prefix: format!("{slot}-"),
            used: HashSet::new(),
        }
    }

    /// Removes files that the draft no longer refers to.
    fn sweep(&self) {
        let Ok(entries) = fs::read_dir(&self.dir) else {
            return;
        };
        for entry in entries.flatten() {
            let name = entry.file_name().to_string_lossy().into_owned();
            if name.starts_with(&self.prefix)
                && !self.used.contains(&name)
                && let Err(error) = fs::remove_file(entry.path())
            {
                tracing::debug!(%name, %error, "a body stays");
            }
        }
    }
}

impl BodyStore for BodyFiles {
    fn keep(&mut self, body: &[u8]) -> Option<String> {
        let name = format!("{}{:016x}-{}.body", self.prefix, hash(body), body.len());
        let path = self.dir.join(&name);
        let there = fs::metadata(&path).is_ok_and(|meta| meta.len() == body.len() as u64);
        if !there && let Err(error) = write_atomic(&path, body, 0o600) {
            tracing::warn!(path = %path.display(), %error, "a long paste is missing in the draft");
            return None;
        }
        self.used.insert(name.clone());
        Some(name)
    }

    fn load(&self, name: &str) -> Option<Vec<u8>> {
        // Only a plain file name is accepted, not a path.
        let ours = name.starts_with(&self.prefix) && !name.contains('/');
        ours.then(|| fs::read(self.dir.join(name)).ok()).flatten()
    }
}

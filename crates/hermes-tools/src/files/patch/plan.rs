//! Computes a whole patch before anything is changed.

use std::collections::{BTreeMap, HashSet};
use std::path::PathBuf;

use super::apply;
use super::v4a::{PatchHunk, PatchOperation};
use crate::files::change::FileChange;
use crate::files::lint;
use crate::files::location::{FileTarget, LoadedFile};
use crate::files::text::{TextFile, plain};

/// The files of a patch, by the names it uses.
pub(super) type Targets = BTreeMap<String, FileTarget>;

pub(super) struct PatchPlan {
    pub(super) changes: Vec<FileChange>,
    pub(super) diffs: Vec<String>,
    pub(super) modified: Vec<String>,
    pub(super) created: Vec<String>,
    pub(super) deleted: Vec<String>,
}

pub(super) fn paths(operation: &PatchOperation) -> impl Iterator<Item = &str> {
    let (first, second) = match operation {
        PatchOperation::Update { path, move_to, .. } => (path, move_to.as_ref()),
        PatchOperation::Add { path, .. } | PatchOperation::Delete { path } => (path, None),
        PatchOperation::Move { from, to } => (from, Some(to)),
    };
    std::iter::once(first).chain(second).map(String::as_str)
}

/// A file during the computation.
struct FileDraft {
    target: FileTarget,
    before: Option<LoadedFile>,
    now: Option<Vec<u8>>,
    mode: Option<u32>,
}

#[derive(Default)]
struct FileDrafts {
    order: Vec<PathBuf>,
    by_path: BTreeMap<PathBuf, FileDraft>,
    diffs: Vec<String>,
}

/// All changes, or everything that does not apply.
pub(super) async fn plan(
    operations: &[PatchOperation],
    targets: &Targets,
) -> Result<PatchPlan, Vec<String>> {
    let mut drafts = FileDrafts::default();
    let mut problems = Vec::new();
    for operation in operations {
        for given in paths(operation) {
            if let Some(target) = targets.get(given)
                && let Err(problem) = drafts.load(given, target).await
            {
                problems.push(problem);
            }
        }
        if problems.is_empty()
            && let Err(problem) = drafts.apply(operation, targets)
        {
            problems.push(problem);
        }
    }
    if !problems.is_empty() {
        return Err(problems);
    }
    let plan = drafts.finish()?;
    if plan.changes.is_empty() {
        return Err(vec!["the patch changes nothing".to_owned()]);
    }
    Ok(plan)
}

impl FileDrafts {
    async fn load(&mut self, given: &str, target: &FileTarget) -> Result<(), String> {
        if self.by_path.contains_key(&target.path) {
            return Ok(());
        }
        let before = target
            .load()
            .await
            .map_err(|error| format!("{given}: {error}"))?;
        self.order.push(target.path.clone());
        self.by_path.insert(
            target.path.clone(),
            FileDraft {
                now: before.as_ref().map(|before| before.bytes.clone()),
                mode: None,
                target: target.clone(),
                before,
            },
        );
        Ok(())
    }

    fn draft<'a>(
        &'a mut self,
        given: &str,
        targets: &Targets,
    ) -> Result<&'a mut FileDraft, String> {
        targets
            .get(given)
            .and_then(|target| self.by_path.get_mut(&target.path))
            .ok_or_else(|| format!("{given}: it was not looked at"))
    }

    fn apply(&mut self, operation: &PatchOperation, targets: &Targets) -> Result<(), String> {
        match operation {
            PatchOperation::Add { path, content } => {
                let draft = self.draft(path, targets)?;
                if draft.now.is_some() {
                    return Err(format!(
                        "{path}: it exists already; use *** Update File, or delete it first"
                    ));
                }
                draft.now = Some(content.clone().into_bytes());
                self.diffs.push(named_diff(None, Some(path), "", content));
                Ok(())
            }
            PatchOperation::Delete { path } => {
                let draft = self.draft(path, targets)?;
                let Some(bytes) = draft.now.take() else {
                    return Err(format!("{path}: there is no such file to delete"));
                };
                let text = TextFile::decode(&bytes).map_or(String::new(), |text| text.plain());
                self.diffs.push(named_diff(Some(path), None, &text, ""));
                Ok(())
            }
            PatchOperation::Move { from, to } => self.rename(from, to, targets),
            PatchOperation::Update {
                path,
                move_to,
                hunks,
            } => {
                self.update(path, hunks, targets)?;
                match move_to {
                    Some(to) => self.rename(path, to, targets),
                    None => Ok(()),
                }
            }
        }
    }

    fn rename(&mut self, from: &str, to: &str, targets: &Targets) -> Result<(), String> {
        if self.draft(to, targets)?.now.is_some() {
            return Err(format!(
                "{to}: it exists already; {from} cannot be moved there"
            ));
        }
        let source = self.draft(from, targets)?;
        let mode = source.before.as_ref().map(|before| before.mode);
        let Some(bytes) = source.now.take() else {
            return Err(format!("{from}: there is no such file to move"));
        };
        let draft = self.draft(to, targets)?;
        draft.now = Some(bytes);
        draft.mode = mode;
        self.diffs.push(format!("# Moved: {from} -> {to}"));
        Ok(())
    }

    fn update(&mut self, path: &str, hunks: &[PatchHunk], targets: &Targets) -> Result<(), String> {
        let draft = self.draft(path, targets)?;
        let Some(bytes) = &draft.now else {
            return Err(format!("{path}: there is no such file; use *** Add File"));
        };
        let Some(text) = TextFile::decode(bytes) else {
            return Err(format!("{path}: it is not text"));
        };
        let content = text.plain();
        let edited = apply::apply(&content, hunks).map_err(|error| {
            let near = error
                .near
                .map(|near| format!("; places that look alike:\n{near}"))
                .unwrap_or_default();
            format!("{path}: hunk {}: {}{near}", error.number, error.what)
        })?;
        let after = text.with_line_ends(&edited);
        let encoded = text
            .encode(&after)
            .map_err(|c| format!("{path}: its encoding has no {c:?}"))?;
        draft.now = Some(encoded);
        let after = plain(&after);
        self.diffs
            .push(named_diff(Some(path), Some(path), &content, &after));
        Ok(())
    }

    fn finish(mut self) -> Result<PatchPlan, Vec<String>> {
        let mut plan = PatchPlan {
            changes: Vec::new(),
            diffs: self.diffs,
            modified: Vec::new(),
            created: Vec::new(),
            deleted: Vec::new(),
        };
        let mut problems = Vec::new();
        let mut seen = HashSet::new();
        for path in self.order {
            let Some(draft) = self
                .by_path
                .remove(&path)
                .filter(|_| seen.insert(path.clone()))
            else {
                continue;
            };
            let old = draft.before.as_ref().map(|before| &before.bytes[..]);
            if old == draft.now.as_deref() {
                continue;
            }
            let shown = path.display().to_string();
            match (&old, &draft.now) {
                (None, _) => plan.created.push(shown.clone()),
                (Some(_), None) => plan.deleted.push(shown.clone()),
                (Some(_), Some(_)) => plan.modified.push(shown.clone()),
            }
            let text = draft.now.as_deref().and_then(TextFile::decode);
            if let Some(why) = text.and_then(|text| lint::refusal(&path, old, &text.chars)) {
                problems.push(format!("{shown}: it would not parse: {why}"));
            }
            plan.changes.push(FileChange {
                target: draft.target,
                before: draft.before,
                after: draft.now,
                mode: draft.mode,
            });
        }
        if problems.is_empty() {
            Ok(plan)
        } else {
            Err(problems)
        }
    }
}

fn named_diff(from: Option<&str>, to: Option<&str>, before: &str, after: &str) -> String {
    let name = |side: &str, path: Option<&str>| {
        path.map_or("/dev/null".to_owned(), |path| {
            format!("{side}/{}", path.trim_start_matches('/'))
        })
    };
    similar::TextDiff::from_lines(before, after)
        .unified_diff()
        .header(&name("a", from), &name("b", to))
        .to_string()
}

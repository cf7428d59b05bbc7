//! File changes: what a call wants to change, whether the person is asked, what it changed.
//!
//! Tools do not know about editors, so the two that change files are wrapped: the text is read
//! before and after the call, which makes the diff exact.

mod proposal;

use std::collections::VecDeque;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use hermes_core::BoxFuture;
use hermes_core::approval::{ApprovalRequest, Presence, Verdict};
use hermes_core::open_texts::OpenTexts;
use hermes_core::redact;
use hermes_core::tool::{
    Registry, Tool, ToolArgs, ToolContext, ToolErrorKind, ToolOutcome, ToolSpec,
};
use hermes_core::tool_traits::{ToolKind, tool_traits};
use tokio::sync::watch;

use crate::editor_texts::EditorTexts;
use crate::mode::EditorMode;

pub use proposal::ProposedChange;
pub(crate) use proposal::{absolute, named, proposed};

/// Largest file that is shown as a diff.
const MAX_DIFF_FILE_BYTES: u64 = 512 * 1024;
/// Calls whose changes wait to be shown.
const MAX_PENDING_CHANGES: usize = 64;

/// The prefix of the question about a change.
pub(crate) const ACTION: &str = "change ";

/// Tools that change files.
pub(crate) fn is_edit(tool: &str) -> bool {
    tool_traits(tool).kind == ToolKind::Edit
}

/// The changes of one conversation. Cheap to clone.
#[derive(Clone)]
pub struct Edits(Arc<EditsInner>);

struct EditsInner {
    mode: watch::Sender<EditorMode>,
    pending: Mutex<VecDeque<(String, Vec<ProposedChange>)>>,
    /// The editor, where it shares its files.
    texts: OnceLock<Arc<EditorTexts>>,
}

impl Default for Edits {
    fn default() -> Self {
        Self::new(EditorMode::default())
    }
}

impl Edits {
    pub fn new(mode: EditorMode) -> Self {
        Self(Arc::new(EditsInner {
            mode: watch::Sender::new(mode),
            pending: Mutex::default(),
            texts: OnceLock::new(),
        }))
    }

    pub fn mode(&self) -> EditorMode {
        *self.0.mode.borrow()
    }

    pub fn set_mode(&self, mode: EditorMode) {
        self.0.mode.send_replace(mode);
    }

    pub(crate) fn modes(&self) -> watch::Receiver<EditorMode> {
        self.0.mode.subscribe()
    }

    /// From here on files are those that the editor has.
    pub(crate) fn share(&self, texts: Arc<EditorTexts>) {
        // Once per conversation, before it is opened.
        let _ = self.0.texts.set(texts);
    }

    /// The files that the editor has open.
    pub fn open_texts(&self) -> Option<Arc<dyn OpenTexts>> {
        let texts = Arc::clone(self.0.texts.get()?);
        Some(texts)
    }

    /// Wraps tools that change files. `local`: its files are on this machine.
    pub fn guard(&self, tool: Arc<dyn Tool>, local: bool) -> Arc<dyn Tool> {
        if !is_edit(&tool.spec().name) {
            return tool;
        }
        Arc::new(GuardedTool {
            tool,
            local,
            edits: self.clone(),
        })
    }

    /// The proposed or made changes of a call.
    pub(crate) fn of(&self, call: &str) -> Vec<ProposedChange> {
        let pending = self.pending();
        let found = pending.iter().find(|(id, _)| id == call);
        found
            .map(|(_, changes)| changes.clone())
            .unwrap_or_default()
    }

    pub(crate) fn take(&self, call: &str) -> Vec<ProposedChange> {
        let mut pending = self.pending();
        let at = pending.iter().position(|(id, _)| id == call);
        let found = at.and_then(|at| pending.remove(at));
        found.map(|(_, changes)| changes).unwrap_or_default()
    }

    fn keep(&self, call: &str, changes: Vec<ProposedChange>) {
        let mut pending = self.pending();
        pending.retain(|(id, _)| id != call);
        if pending.len() >= MAX_PENDING_CHANGES {
            pending.pop_front();
        }
        pending.push_back((call.to_owned(), changes));
    }

    fn pending(&self) -> MutexGuard<'_, VecDeque<(String, Vec<ProposedChange>)>> {
        self.0
            .pending
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}

struct GuardedTool {
    tool: Arc<dyn Tool>,
    local: bool,
    edits: Edits,
}

impl GuardedTool {
    async fn run(&self, args: ToolArgs, cx: &ToolContext) -> ToolOutcome {
        let name = self.tool.spec().name.clone();
        let paths = named(&name, &args, &cx.cwd);
        let before = self.read(&paths).await;
        self.edits
            .keep(&cx.call_id, proposed(&name, &args, &cx.cwd, &before));
        // Arguments without a file are the tool's to complain about.
        if !paths.is_empty()
            && self.edits.mode() == EditorMode::Default
            && cx.approver.presence() == Presence::Person
            && let Err(refused) = self.ask(&name, &paths, cx).await
        {
            return refused;
        }
        let outcome = self.tool.call(args, cx).await;
        if !outcome.is_error() && self.local {
            let after = self.read(&paths).await;
            let changes = changed(before, after);
            if !changes.is_empty() {
                self.edits.keep(&cx.call_id, changes);
            }
        }
        outcome
    }

    async fn ask(
        &self,
        name: &str,
        paths: &[PathBuf],
        cx: &ToolContext,
    ) -> Result<(), ToolOutcome> {
        let files: Vec<String> = paths
            .iter()
            .map(|path| path.display().to_string())
            .collect();
        let files = files.join(", ");
        let question = ApprovalRequest {
            kind: hermes_core::approval::ApprovalKind::Action,
            id: cx.call_id.clone(),
            tool: name.to_owned(),
            action: format!("{ACTION}{files}"),
            reasons: vec!["every change of a file is asked about in this mode".to_owned()],
            rule: None,
            posture: None,
        };
        match cx.decide(question).await? {
            Verdict::Once => Ok(()),
            Verdict::Session | Verdict::Always(_) => {
                self.edits.set_mode(EditorMode::AcceptEdits);
                Ok(())
            }
            Verdict::Deny { why } => {
                let why = why.map(|why| format!(" ({why})")).unwrap_or_default();
                Err(ToolOutcome::error(
                    ToolErrorKind::Denied,
                    format!(
                        "{name}: the person did not allow the change of {files}{why}; nothing was \
                         changed. Do not try another way; ask what they want instead"
                    ),
                ))
            }
        }
    }

    async fn read(&self, paths: &[PathBuf]) -> Vec<(PathBuf, FileText)> {
        let mut texts = Vec::new();
        for path in paths {
            let text = if self.local {
                self.as_open(path, read(path).await).await
            } else {
                FileText::Unknown
            };
            texts.push((path.clone(), text));
        }
        texts
    }
}

impl GuardedTool {
    /// The editor's text of an existing file.
    async fn as_open(&self, path: &Path, stored: FileText) -> FileText {
        let (FileText::Is(disk), Some(open)) = (&stored, self.edits.open_texts()) else {
            return stored;
        };
        let real = tokio::fs::canonicalize(path).await;
        match open.text(real.as_deref().unwrap_or(path)).await {
            Some(text) if text.len() as u64 <= MAX_DIFF_FILE_BYTES && text != *disk => {
                FileText::Is(redact::known(&text).into_owned())
            }
            _ => stored,
        }
    }
}

impl Tool for GuardedTool {
    fn spec(&self) -> &ToolSpec {
        self.tool.spec()
    }

    fn offered(&self, beside: &Registry) -> ToolSpec {
        self.tool.offered(beside)
    }

    fn call<'a>(&'a self, args: ToolArgs, cx: &'a ToolContext) -> BoxFuture<'a, ToolOutcome> {
        Box::pin(self.run(args, cx))
    }
}

/// The content of a file, for display.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum FileText {
    Is(String),
    /// The file does not exist.
    Missing,
    /// It is too large, no text, or not here.
    Unknown,
}

async fn read(path: &Path) -> FileText {
    match tokio::fs::metadata(path).await {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => FileText::Missing,
        // Reading a pipe would block.
        Ok(metadata) if metadata.is_file() && metadata.len() <= MAX_DIFF_FILE_BYTES => {
            match tokio::fs::read_to_string(path).await {
                Ok(text) => FileText::Is(redact::known(&text).into_owned()),
                Err(_) => FileText::Unknown,
            }
        }
        _ => FileText::Unknown,
    }
}

fn changed(
    before: Vec<(PathBuf, FileText)>,
    after: Vec<(PathBuf, FileText)>,
) -> Vec<ProposedChange> {
    let pairs = before.into_iter().zip(after);
    let change = |((path, old), (_, new)): ((PathBuf, FileText), (PathBuf, FileText))| {
        if old == new {
            return None;
        }
        let (old, new) = match (old, new) {
            (FileText::Is(old), FileText::Is(new)) => (Some(old), new),
            (FileText::Is(old), FileText::Missing) => (Some(old), String::new()),
            (FileText::Missing, FileText::Is(new)) => (None, new),
            (FileText::Missing, FileText::Missing)
            | (FileText::Unknown, _)
            | (_, FileText::Unknown) => {
                return None;
            }
        };
        Some(ProposedChange { path, old, new })
    };
    pairs.filter_map(change).collect()
}

#[cfg(test)]
mod tests;

//! Write permissions: never, without asking, or after asking.

use std::collections::{HashMap, HashSet};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use hermes_core::approval::{ApprovalRequest, Presence, Verdict};
use hermes_core::ids::SessionId;
use hermes_core::private::{runs_later, runs_later_in_home};
use hermes_core::taint::Lasting;
use hermes_core::tool::{ToolContext, ToolErrorKind, ToolOutcome};
use hermes_exec::{Confinement, ExecError};
use hermes_policy::{ApprovalMode, UnattendedMode};

use super::{FileToolsShared, failed};

/// Why a file needs approval wherever it is.
const RUNS_LATER: &str =
    "is run later by git, a shell, an editor or another program, without limits";

/// Maximum number of sessions whose permissions are remembered.
const MAX_SESSIONS: usize = 256;

/// Paths that the user opened for a session.
#[derive(Default)]
pub(super) struct WriteAccess {
    opened: Mutex<HashMap<SessionId, OpenedPaths>>,
}

#[derive(Default)]
struct OpenedPaths {
    directories: HashSet<PathBuf>,
    /// Files that are executed later are opened one by one.
    files: HashSet<PathBuf>,
}

/// A write that needs the user's approval.
struct RiskyWrite<'a> {
    path: &'a Path,
    is_outside: bool,
    runs_later: bool,
}

impl WriteAccess {
    fn is_open(&self, session: &SessionId, risky: &RiskyWrite<'_>) -> bool {
        let opened = self.opened.lock().unwrap_or_else(PoisonError::into_inner);
        opened.get(session).is_some_and(|opened| {
            let mut directories = opened.directories.iter();
            opened.files.contains(risky.path)
                || (!risky.runs_later && directories.any(|dir| risky.path.starts_with(dir)))
        })
    }

    fn open(&self, session: &SessionId, risky: &[RiskyWrite<'_>]) {
        let mut all = self.opened.lock().unwrap_or_else(PoisonError::into_inner);
        if all.len() >= MAX_SESSIONS && !all.contains_key(session) {
            // Forgetting costs one question.
            all.clear();
        }
        let opened = all.entry(session.clone()).or_default();
        for RiskyWrite {
            path, runs_later, ..
        } in risky
        {
            if *runs_later {
                opened.files.insert((*path).to_owned());
            } else {
                let dir = path.parent().unwrap_or(path);
                opened.directories.insert(dir.to_owned());
            }
        }
    }
}

impl FileToolsShared {
    /// Whether these files, whose paths contain no links, may be written by `tool` now. Asks the user about
    /// those outside the workspace and those that are executed later.
    pub(super) async fn may_write(
        &self,
        tool: &str,
        paths: &[&Path],
        cross_profile: bool,
        cx: &ToolContext,
    ) -> Result<(), ToolOutcome> {
        let mut risky = Vec::new();
        let roots = self
            .roots(cx)
            .await
            .map_err(|error| failed(ToolErrorKind::Failed, format!("{tool}: {error}")))?;
        for path in paths {
            let shown = path.display();
            if self.is_local() {
                if let Some(why) = self.guard.unwritable(path) {
                    let text = format!("{tool}: {shown} is not written: {why}");
                    return Err(failed(ToolErrorKind::Denied, text));
                }
                if let Some(profile) = self.guard.other_profile(path)
                    && !cross_profile
                {
                    let text = format!(
                        "{tool}: {shown} belongs to the profile {profile}, not to the one in use; \
                         if the person wants it changed, pass cross_profile=true"
                    );
                    return Err(failed(ToolErrorKind::Denied, text));
                }
            }
            let write = RiskyWrite {
                path,
                is_outside: !roots.iter().any(|root| self.covers(root, path)),
                runs_later: self.runs_later(path, &roots, cx),
            };
            let needs_person = write.is_outside || write.runs_later;
            if needs_person && !self.access.is_open(&cx.session, &write) {
                risky.push(write);
            }
        }
        if !risky.is_empty() && !self.deps.environment.info().isolated {
            self.ask(tool, &risky, &roots, cx).await?;
        }
        self.may_last(tool, paths, cx).await
    }

    /// Memory, skills and jobs are files too: after external content they need approval, whichever tool writes
    /// them.
    async fn may_last(
        &self,
        tool: &str,
        paths: &[&Path],
        cx: &ToolContext,
    ) -> Result<(), ToolOutcome> {
        let lasting: Vec<String> = paths
            .iter()
            .filter(|path| self.is_local() && self.guard.outlasts(path))
            .map(|path| path.display().to_string())
            .collect();
        if lasting.is_empty() {
            return Ok(());
        }
        let action = format!("write {}", lasting.join(", "));
        match cx.lasting(tool, &action).await {
            Lasting::Allowed => Ok(()),
            Lasting::Denied { why } | Lasting::Unattended { why } => {
                Err(failed(ToolErrorKind::Denied, why))
            }
        }
    }

    /// Whether `path` may be changed because of `root`. A broad one, such as a temporary directory, does not
    /// open a user's home below it, and none opens the Hermes home.
    fn covers(&self, root: &Path, path: &Path) -> bool {
        let person = self.guard.user_dir();
        path.starts_with(root)
            && (!path.starts_with(person) || root.starts_with(person))
            && (self.guard.home_of(path)).is_none_or(|home| root.starts_with(home))
    }

    /// Whether a file at `path` is executed by the user's shell, editor or git, later and without limits.
    fn runs_later(&self, path: &Path, roots: &[PathBuf], cx: &ToolContext) -> bool {
        let around = roots.iter().filter(|root| path.starts_with(root));
        let below = around.filter_map(|root| path.strip_prefix(root).ok());
        let in_project = below
            .max_by_key(|below| below.as_os_str().len())
            .unwrap_or(path)
            .to_string_lossy();
        let person = self.guard.user_dir();
        let first = path
            .strip_prefix(person)
            .ok()
            .and_then(|below| below.components().next());
        let in_home = first.is_some_and(|first| {
            let path_in_home = person.join(first);
            let is_project = roots
                .iter()
                .any(|root| root.starts_with(&path_in_home) && path.starts_with(root));
            !is_project && runs_later_in_home(&first.as_os_str().to_string_lossy())
        });
        runs_later(&in_project)
            || in_home
            || (self.is_local() && (self.deps.runs_later)(&cx.cwd, path))
    }

    /// Directories that may be changed without asking.
    async fn roots(&self, cx: &ToolContext) -> Result<Vec<PathBuf>, ExecError> {
        if self.deps.only_workspace {
            let start = self.deps.workspaces.start(&cx.cwd).await?;
            let real = self.is_local().then(|| start.canonicalize().ok()).flatten();
            return Ok(vec![real.unwrap_or(start)]);
        }
        if !self.is_local() {
            let start = self.deps.workspaces.start(&cx.cwd).await?;
            return Ok(vec![start, self.cwd(cx).await?, PathBuf::from("/tmp")]);
        }
        let mut roots = match (self.deps.confining)(&cx.cwd) {
            Confinement::Workspace { writable, .. } => writable,
            Confinement::Off => vec![
                cx.cwd.clone(),
                std::env::temp_dir(),
                PathBuf::from("/tmp"),
                PathBuf::from("/var/tmp"),
            ],
        };
        for root in &mut roots {
            if let Ok(real) = root.canonicalize() {
                *root = real;
            }
        }
        Ok(roots)
    }

    async fn ask(
        &self,
        tool: &str,
        risky: &[RiskyWrite<'_>],
        roots: &[PathBuf],
        cx: &ToolContext,
    ) -> Result<(), ToolOutcome> {
        let policy = self.deps.gate.config();
        let presence = cx.approver.presence();
        let outside = risky.iter().any(|write| write.is_outside);
        let runs_later = risky.iter().any(|write| write.runs_later);
        // Unattended commands cannot write files that are executed later either.
        let unasked = (policy.mode == ApprovalMode::Off && !self.deps.only_workspace)
            || presence == Presence::Standing
            || (presence == Presence::Nobody
                && policy.unattended == UnattendedMode::Allow
                && !runs_later);
        if unasked {
            return Ok(());
        }
        let names: Vec<String> = risky
            .iter()
            .map(|write| write.path.display().to_string())
            .collect();
        let action = format!("write {}", names.join(", "));
        let mut reasons = Vec::new();
        if runs_later {
            let later = risky.iter().filter(|write| write.runs_later);
            let later: Vec<String> = later
                .map(|write| write.path.display().to_string())
                .collect();
            reasons.push(format!("{} {RUNS_LATER}", later.join(", ")));
        }
        if outside {
            let workspace = roots.first().map(|root| root.display().to_string());
            let workspace = workspace.unwrap_or_default();
            reasons.push(format!("it is outside the workspace {workspace}"));
        }
        let refused = |why: Option<String>| {
            let why = why.map(|why| format!(" ({why})")).unwrap_or_default();
            let what = if runs_later {
                RUNS_LATER
            } else {
                "is outside the workspace"
            };
            let text = format!(
                "{tool}: {} {what}, and the write was not allowed{why}. Do not \
                 try another way; work inside the workspace or ask the person",
                names.join(", ")
            );
            failed(ToolErrorKind::Denied, text)
        };
        let decision = cx.approver.decide(ApprovalRequest {
            kind: hermes_core::approval::ApprovalKind::Action,
            id: cx.call_id.clone(),
            tool: tool.to_owned(),
            action,
            reasons,
            rule: None,
            posture: None,
        });
        let patience = policy.timeout;
        let waited = async {
            match patience {
                Some(patience) => tokio::time::timeout(patience, decision).await.ok(),
                None => Some(decision.await),
            }
        };
        let verdict = tokio::select! {
            verdict = waited => verdict,
            () = cx.cancel.cancelled() => {
                return Err(failed(ToolErrorKind::Cancelled, "cancelled"));
            }
        };
        match verdict {
            None => Err(refused(Some("nobody answered".to_owned()))),
            Some(Verdict::Deny { why }) => Err(refused(why)),
            Some(Verdict::Once) => Ok(()),
            Some(Verdict::Session | Verdict::Always(_)) => {
                self.access.open(&cx.session, risky);
                Ok(())
            }
        }
    }
}

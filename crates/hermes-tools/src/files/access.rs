//! Who may write where: never, without asking, or after asking.

use std::collections::{HashMap, HashSet};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use hermes_core::approval::{ApprovalRequest, Presence, Verdict};
use hermes_core::ids::SessionId;
use hermes_core::private::{runs_later, runs_later_in_home};
use hermes_core::taint::Lasting;
use hermes_core::tool::{ToolContext, ToolErrorKind, ToolOutcome};
use hermes_exec::{Confinement, ExecError};
use hermes_policy::{Mode, Unattended};

use super::{Shared, failed};

/// Sessions whose permissions are remembered.
const MAX_SESSIONS: usize = 256;

/// Directories that a person opened for a session.
#[derive(Default)]
pub(super) struct Access {
    opened: Mutex<HashMap<SessionId, HashSet<PathBuf>>>,
}

impl Access {
    fn is_open(&self, session: &SessionId, path: &Path) -> bool {
        let opened = self.opened.lock().unwrap_or_else(PoisonError::into_inner);
        opened
            .get(session)
            .is_some_and(|dirs| dirs.iter().any(|dir| path.starts_with(dir)))
    }

    fn open(&self, session: &SessionId, paths: &[&Path]) {
        let mut opened = self.opened.lock().unwrap_or_else(PoisonError::into_inner);
        if opened.len() >= MAX_SESSIONS && !opened.contains_key(session) {
            // Forgetting costs a question.
            opened.clear();
        }
        let dirs = opened.entry(session.clone()).or_default();
        dirs.extend(
            paths
                .iter()
                .map(|path| path.parent().unwrap_or(path).to_owned()),
        );
    }
}

impl Shared {
    /// Whether these files, whose paths have no links in them, may be written by `tool` now. Asks
    /// the person about those outside the workspace.
    pub(super) async fn may_write(
        &self,
        tool: &str,
        paths: &[&Path],
        cross_profile: bool,
        cx: &ToolContext,
    ) -> Result<(), ToolOutcome> {
        let mut outside = Vec::new();
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
            let inside = roots.iter().any(|root| self.covers(root, path));
            let hooks = self.runs_later(path, &roots);
            if (!inside || hooks) && !self.access.is_open(&cx.session, path) {
                outside.push((*path, hooks && inside));
            }
        }
        if !outside.is_empty() && !self.deps.environment.info().isolated {
            self.ask(tool, &outside, &roots, cx).await?;
        }
        self.may_last(tool, paths, cx).await
    }

    /// Memory, skills and jobs are files too: after material from outside they need the person,
    /// whichever tool writes them.
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

    /// Whether `path` may be changed because of `root`. A broad one, such as a temporary directory,
    /// does not open a person's directory that lies below it, and none opens our home.
    fn covers(&self, root: &Path, path: &Path) -> bool {
        let person = self.guard.user_dir();
        path.starts_with(root)
            && (!path.starts_with(person) || root.starts_with(person))
            && (self.guard.home_of(path)).is_none_or(|home| root.starts_with(home))
    }

    /// Whether what lies at `path` is run by a person's shell, editor or git, later and without limits.
    fn runs_later(&self, path: &Path, roots: &[PathBuf]) -> bool {
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
            let place = person.join(first);
            let is_project = roots
                .iter()
                .any(|root| root.starts_with(&place) && path.starts_with(root));
            !is_project && runs_later_in_home(&first.as_os_str().to_string_lossy())
        });
        runs_later(&in_project) || in_home
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
        outside: &[(&Path, bool)],
        roots: &[PathBuf],
        cx: &ToolContext,
    ) -> Result<(), ToolOutcome> {
        let policy = self.deps.gate.config();
        let presence = cx.approver.presence();
        let unasked = (policy.mode == Mode::Off && !self.deps.only_workspace)
            || presence == Presence::Standing
            || (presence == Presence::Nobody && policy.unattended == Unattended::Allow);
        if unasked {
            return Ok(());
        }
        let names: Vec<String> = outside
            .iter()
            .map(|(path, _)| path.display().to_string())
            .collect();
        let action = format!("write {}", names.join(", "));
        let refused = |why: Option<String>| {
            let why = why.map(|why| format!(" ({why})")).unwrap_or_default();
            let text = format!(
                "{tool}: {} is outside the workspace and the write was not allowed{why}. Do not \
                 try another way; work inside the workspace or ask the person",
                names.join(", ")
            );
            failed(ToolErrorKind::Denied, text)
        };
        let workspace = roots.first().map(|root| root.display().to_string());
        let reason = if outside.iter().all(|(_, hooks)| *hooks) {
            "it changes the inside of a git repository, where programs can be hidden".to_owned()
        } else {
            format!(
                "it is outside the workspace {}",
                workspace.unwrap_or_default()
            )
        };
        let decision = cx.approver.decide(ApprovalRequest {
            id: cx.call_id.clone(),
            tool: tool.to_owned(),
            action,
            reasons: vec![reason],
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
                let paths: Vec<&Path> = outside.iter().map(|(path, _)| *path).collect();
                self.access.open(&cx.session, &paths);
                Ok(())
            }
        }
    }
}

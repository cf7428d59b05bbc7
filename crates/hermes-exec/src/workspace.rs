//! What a session carries from command to command: its directory and its exported variables.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use hermes_core::ids::SessionId;

use crate::environment::{ShellState, Variables};

/// Sessions remembered; the one unused for longest is forgotten first.
const MAX_SESSIONS: usize = 256;
/// Larger environments are not carried: a command cannot be started with them anyway.
const MAX_EXPORT_BYTES: usize = 512 * 1024;

/// Where a session stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Workspace {
    pub cwd: PathBuf,
    /// `None` until the first command.
    pub exports: Option<Variables>,
}

/// The workspaces of all sessions of this process. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub struct Workspaces(Arc<Mutex<Table>>);

#[derive(Debug, Default)]
struct Table {
    rows: HashMap<SessionId, Row>,
    uses: u64,
}

#[derive(Debug)]
struct Row {
    workspace: Workspace,
    used: u64,
}

impl Workspaces {
    /// The workspace of `session`, which begins in `start`.
    pub fn get(&self, session: &SessionId, start: &Path) -> Workspace {
        self.with(|table| {
            let used = table.tick();
            match table.rows.get_mut(session) {
                Some(row) => {
                    row.used = used;
                    row.workspace.clone()
                }
                None => Workspace {
                    cwd: start.to_owned(),
                    exports: None,
                },
            }
        })
    }

    /// Only the directory: what relative paths are relative to.
    pub fn cwd(&self, session: &SessionId, start: &Path) -> PathBuf {
        self.with(|table| {
            table
                .rows
                .get(session)
                .map_or_else(|| start.to_owned(), |row| row.workspace.cwd.clone())
        })
    }

    /// Takes over what a command left.
    pub fn update(&self, session: &SessionId, state: ShellState) {
        let bytes: usize = state.exports.iter().map(|(k, v)| k.len() + v.len()).sum();
        self.with(|table| {
            let used = table.tick();
            let before = table.rows.remove(session);
            let exports = if bytes <= MAX_EXPORT_BYTES {
                Some(state.exports)
            } else {
                before.and_then(|row| row.workspace.exports)
            };
            table.make_room();
            let workspace = Workspace {
                cwd: state.cwd,
                exports,
            };
            table.rows.insert(session.clone(), Row { workspace, used });
        });
    }

    pub fn forget(&self, session: &SessionId) {
        self.with(|table| table.rows.remove(session));
    }

    fn with<R>(&self, act: impl FnOnce(&mut Table) -> R) -> R {
        act(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Table {
    fn tick(&mut self) -> u64 {
        self.uses += 1;
        self.uses
    }

    fn make_room(&mut self) {
        while self.rows.len() >= MAX_SESSIONS {
            let Some(oldest) = self
                .rows
                .iter()
                .min_by_key(|(_, row)| row.used)
                .map(|(session, _)| session.clone())
            else {
                return;
            };
            self.rows.remove(&oldest);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn state(cwd: &str, name: &str, value: &str) -> ShellState {
        ShellState {
            cwd: cwd.into(),
            exports: Variables::from([(name.to_owned(), value.to_owned())]),
        }
    }

    fn session(name: &str) -> SessionId {
        SessionId::from(name.to_owned())
    }

    #[test]
    fn sessions_do_not_see_each_other() {
        let workspaces = Workspaces::default();
        workspaces.update(&session("a"), state("/tmp", "X", "1"));
        let start = Path::new("/start");
        assert_eq!(workspaces.cwd(&session("b"), start), start);
        assert_eq!(workspaces.get(&session("b"), start).exports, None);
        assert_eq!(workspaces.cwd(&session("a"), start), Path::new("/tmp"));
    }

    #[test]
    fn the_longest_unused_session_is_forgotten_first() {
        let workspaces = Workspaces::default();
        let start = Path::new("/start");
        for n in 0..MAX_SESSIONS {
            workspaces.update(&session(&n.to_string()), state("/tmp", "N", "1"));
        }
        workspaces.get(&session("0"), start);
        workspaces.update(&session("new"), state("/tmp", "N", "1"));
        assert_eq!(workspaces.cwd(&session("0"), start), Path::new("/tmp"));
        assert_eq!(workspaces.cwd(&session("1"), start), start);
    }

    #[test]
    fn an_environment_too_large_to_start_anything_with_is_not_carried() {
        let workspaces = Workspaces::default();
        workspaces.update(&session("a"), state("/tmp", "X", "1"));
        let huge = "x".repeat(MAX_EXPORT_BYTES + 1);
        workspaces.update(&session("a"), state("/var", "HUGE", &huge));
        let workspace = workspaces.get(&session("a"), Path::new("/"));
        assert_eq!(workspace.cwd, Path::new("/var"));
        assert_eq!(
            workspace.exports.unwrap(),
            Variables::from([("X".to_owned(), "1".to_owned())])
        );
    }
}

//! What a session carries from command to command: its directory and its exported variables.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use hermes_config::{Config, Env};
use hermes_core::ids::SessionId;
use tokio::sync::OnceCell;

use crate::confinement::Confinement;
use crate::environment::{Environment, ExecError, ShellState, Variables};

/// Maximum number of remembered sessions; the least recently used one is removed first.
const MAX_SESSIONS: usize = 256;
/// Larger environments are not carried over: a command cannot be started with them anyway.
const MAX_EXPORT_BYTES: usize = 512 * 1024;

/// The state of a session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Workspace {
    pub cwd: PathBuf,
    /// `None` until the first command.
    pub exports: Option<Variables>,
    /// The same as left by unconfined commands: exports of a confined command must not decide which programs
    /// and libraries such a command loads.
    pub unconfined_exports: Option<Variables>,
}

impl Workspace {
    /// The initial state of a session.
    pub fn at(cwd: impl Into<PathBuf>) -> Self {
        Self {
            cwd: cwd.into(),
            exports: None,
            unconfined_exports: None,
        }
    }

    /// The variables of a command with these limits.
    pub fn exports_for(&self, confinement: &Confinement) -> Option<Variables> {
        if confinement.is_off() {
            self.unconfined_exports.clone()
        } else {
            self.exports.clone()
        }
    }

    /// The state after a command with these limits has left `exports`.
    fn with_exports(mut self, exports: Variables, confinement: &Confinement) -> Self {
        if confinement.is_off() {
            let before = self.unconfined_exports.take();
            let confined = self.exports.take().unwrap_or_default();
            self.exports = Some(merge_exports(confined, before.as_ref(), &exports));
            self.unconfined_exports = Some(exports);
        } else {
            self.exports = Some(exports);
        }
        self
    }
}

/// The exports of confined commands, with the changes that an unconfined command made since. If it is unknown
/// what that command started with, the exports are kept.
fn merge_exports(
    mut confined: Variables,
    before: Option<&Variables>,
    after: &Variables,
) -> Variables {
    if let Some(before) = before {
        confined.retain(|name, _| after.contains_key(name) || !before.contains_key(name));
    }
    for (name, value) in after {
        let is_changed = before.is_some_and(|before| before.get(name) != Some(value));
        if is_changed || !confined.contains_key(name) {
            confined.insert(name.clone(), value.clone());
        }
    }
    confined
}

/// The workspaces of all sessions of this process, shared by all tools. Cheap to clone.
#[derive(Clone, Default)]
pub struct Workspaces {
    table: Arc<Mutex<SessionTable>>,
    far: Option<Arc<RemoteStart>>,
}

/// The start directory of sessions on a remote machine or in a container: a local directory means nothing
/// there.
struct RemoteStart {
    environment: Arc<dyn Environment>,
    /// As configured; `~` is the remote home.
    wanted: PathBuf,
    found: OnceCell<PathBuf>,
}

#[derive(Debug, Default)]
struct SessionTable {
    rows: HashMap<SessionId, SessionRow>,
    uses: u64,
}

#[derive(Debug)]
struct SessionRow {
    workspace: Workspace,
    used: u64,
}

impl Workspaces {
    /// The workspaces of an environment. Remote sessions start in the configured directory or `TERMINAL_CWD`.
    pub fn for_environment(environment: &Arc<dyn Environment>, config: &Config, env: &Env) -> Self {
        let kind = environment.info().kind;
        let cwd = env.get("TERMINAL_CWD").unwrap_or(&config.terminal.cwd);
        let far = remote_start(kind, cwd.trim()).map(|wanted| {
            Arc::new(RemoteStart {
                environment: Arc::clone(environment),
                wanted,
                found: OnceCell::new(),
            })
        });
        Self {
            table: Arc::default(),
            far,
        }
    }

    /// The start directory of a session that was opened in `here` on this machine.
    pub async fn start(&self, here: &Path) -> Result<PathBuf, ExecError> {
        let Some(far) = &self.far else {
            return Ok(here.to_owned());
        };
        let files = far.environment.files();
        far.found
            .get_or_try_init(|| files.resolve(&far.wanted, Path::new("/")))
            .await
            .cloned()
    }

    /// The workspace of `session`, which was opened in `here` on this machine.
    pub async fn get(&self, session: &SessionId, here: &Path) -> Result<Workspace, ExecError> {
        let known = self.with(|table| {
            let used = table.tick();
            let row = table.rows.get_mut(session)?;
            row.used = used;
            Some(row.workspace.clone())
        });
        match known {
            Some(workspace) => Ok(workspace),
            None => Ok(Workspace::at(self.start(here).await?)),
        }
    }

    /// Only the directory that relative paths refer to.
    pub async fn cwd(&self, session: &SessionId, here: &Path) -> Result<PathBuf, ExecError> {
        let known = self.with(|table| Some(table.rows.get(session)?.workspace.cwd.clone()));
        match known {
            Some(cwd) => Ok(cwd),
            None => self.start(here).await,
        }
    }

    /// Stores the state that a command with these limits left.
    pub fn update(&self, session: &SessionId, state: ShellState, confinement: &Confinement) {
        let bytes: usize = state.exports.iter().map(|(k, v)| k.len() + v.len()).sum();
        self.with(|table| {
            let used = table.tick();
            let before = table.rows.remove(session);
            let mut workspace =
                before.map_or_else(|| Workspace::at(&state.cwd), |row| row.workspace);
            workspace.cwd = state.cwd;
            if bytes <= MAX_EXPORT_BYTES {
                workspace = workspace.with_exports(state.exports, confinement);
            }
            table.make_room();
            table
                .rows
                .insert(session.clone(), SessionRow { workspace, used });
        });
    }

    pub fn forget(&self, session: &SessionId) {
        self.with(|table| table.rows.remove(session));
    }

    fn with<R>(&self, act: impl FnOnce(&mut SessionTable) -> R) -> R {
        act(&mut self.table.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// The start directory in an environment of this kind; `None`: where the session was opened.
fn remote_start(kind: &str, cwd: &str) -> Option<PathBuf> {
    let usual = match kind {
        "local" => return None,
        "docker" => "/workspace",
        _ => "~",
    };
    Some(match cwd {
        "" | "." | "auto" | "cwd" => usual.into(),
        path if path.starts_with(['/', '~']) => path.into(),
        // Relative to the remote home, as after a login. In a container it would be relative to a local
        // directory.
        path if kind == "ssh" => Path::new("~").join(path),
        _ => usual.into(),
    })
}

impl SessionTable {
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

    #[tokio::test]
    async fn sessions_do_not_see_each_other() {
        let workspaces = Workspaces::default();
        workspaces.update(&session("a"), state("/tmp", "X", "1"), &Confinement::Off);
        let start = Path::new("/start");
        assert_eq!(workspaces.cwd(&session("b"), start).await.unwrap(), start);
        assert_eq!(
            workspaces.get(&session("b"), start).await.unwrap().exports,
            None
        );
        assert_eq!(
            workspaces.cwd(&session("a"), start).await.unwrap(),
            Path::new("/tmp")
        );
    }

    /// Exports of confined commands stay with confined commands; others are shared.
    #[tokio::test]
    async fn confined_exports_do_not_leave_the_sandbox() {
        let confined = Confinement::Workspace {
            writable: Vec::new(),
            unreadable: Vec::new(),
            network: true,
        };
        let off = Confinement::Off;
        let workspaces = Workspaces::default();
        let id = session("a");
        let left = |pairs: &[(&str, &str)]| ShellState {
            cwd: "/".into(),
            exports: pairs
                .iter()
                .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
                .collect(),
        };
        let seen = async |limits: &Confinement| {
            let workspace = workspaces.get(&id, Path::new("/")).await.unwrap();
            workspace.exports_for(limits)
        };
        let evil = ("BASH_ENV", "/tmp/evil");
        workspaces.update(&id, left(&[("PATH", "/tmp/bin:/bin"), evil]), &confined);
        assert_eq!(seen(&off).await, None);
        workspaces.update(&id, left(&[("PATH", "/bin"), ("OLD", "1")]), &off);
        let plain = left(&[("PATH", "/bin"), ("OLD", "1")]).exports;
        assert_eq!(seen(&off).await, Some(plain));
        let all = left(&[("PATH", "/tmp/bin:/bin"), evil, ("OLD", "1")]).exports;
        assert_eq!(seen(&confined).await, Some(all));
        // Changes and removals by unconfined commands apply to confined ones too.
        workspaces.update(&id, left(&[("PATH", "/sbin")]), &off);
        let all = left(&[("PATH", "/sbin"), evil]).exports;
        assert_eq!(seen(&confined).await, Some(all));
    }

    #[tokio::test]
    async fn the_longest_unused_session_is_forgotten_first() {
        let workspaces = Workspaces::default();
        let start = Path::new("/start");
        for n in 0..MAX_SESSIONS {
            let state = state("/tmp", "N", "1");
            workspaces.update(&session(&n.to_string()), state, &Confinement::Off);
        }
        workspaces.get(&session("0"), start).await.unwrap();
        let state = state("/tmp", "N", "1");
        workspaces.update(&session("new"), state, &Confinement::Off);
        assert_eq!(
            workspaces.cwd(&session("0"), start).await.unwrap(),
            Path::new("/tmp")
        );
        assert_eq!(workspaces.cwd(&session("1"), start).await.unwrap(), start);
    }

    #[tokio::test]
    async fn an_environment_too_large_to_start_anything_with_is_not_carried() {
        let workspaces = Workspaces::default();
        workspaces.update(&session("a"), state("/tmp", "X", "1"), &Confinement::Off);
        let huge = "x".repeat(MAX_EXPORT_BYTES + 1);
        workspaces.update(
            &session("a"),
            state("/var", "HUGE", &huge),
            &Confinement::Off,
        );
        let workspace = workspaces.get(&session("a"), Path::new("/")).await.unwrap();
        assert_eq!(workspace.cwd, Path::new("/var"));
        assert_eq!(
            workspace.exports.unwrap(),
            Variables::from([("X".to_owned(), "1".to_owned())])
        );
    }

    #[test]
    fn a_directory_of_this_machine_is_none_of_another() {
        let start = |kind, cwd| remote_start(kind, cwd).map(|path| path.display().to_string());
        assert_eq!(start("local", "/srv"), None);
        for unset in ["", ".", "auto", "cwd"] {
            assert_eq!(start("ssh", unset).as_deref(), Some("~"));
            assert_eq!(start("docker", unset).as_deref(), Some("/workspace"));
        }
        assert_eq!(start("ssh", "/srv/app").as_deref(), Some("/srv/app"));
        assert_eq!(start("ssh", "~/app").as_deref(), Some("~/app"));
        assert_eq!(start("ssh", "app").as_deref(), Some("~/app"));
        assert_eq!(start("docker", "app").as_deref(), Some("/workspace"));
    }
}

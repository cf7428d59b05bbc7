//! Commands on a remote machine, through the system's `ssh` over one shared connection.

mod master;
mod sync;

use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use hermes_config::{Config, Home};
use hermes_core::BoxFuture;
use hermes_core::programs::own_program;
use tokio::process::Command;
use tokio::sync::Mutex;

pub use sync::SkillSync;

use crate::environment::{
    Background, BackgroundRecord, BackgroundStart, Environment, EnvironmentInfo, Exec, ExecError,
    ExecOutcome, Files, OutputSink,
};
use crate::remote::{RemoteEnvironment, RemoteTransport};
use master::{LastUse, SshMasters};

/// Default idle time of the shared connection in seconds.
const PERSIST: u64 = 300;

#[derive(Clone, Debug, Default)]
pub struct SshSettings {
    pub host: String,
    pub user: Option<String>,
    pub port: Option<u16>,
    pub key: Option<PathBuf>,
    /// Idle time of the shared connection in seconds.
    pub idle: Option<u64>,
    /// Further `-o` options.
    pub options: Vec<String>,
}

impl SshSettings {
    pub fn from_config(home: &Home, config: &Config) -> Result<Self, ExecError> {
        let terminal = &config.terminal;
        let host = terminal.ssh_host.clone().unwrap_or_default();
        if host.trim().is_empty() {
            return Err(ExecError::Unavailable(
                "terminal.backend is ssh, but terminal.ssh_host is not set".to_owned(),
            ));
        }
        let port = match terminal.ssh_port {
            None => None,
            Some(port) => Some(u16::try_from(port).map_err(|_| {
                ExecError::Unavailable(format!("terminal.ssh_port: {port} is not a port"))
            })?),
        };
        let settings = Self {
            host: host.trim().to_owned(),
            user: terminal.ssh_user.clone().filter(|user| !user.is_empty()),
            port,
            key: terminal
                .ssh_key
                .as_deref()
                .filter(|key| !key.is_empty())
                .map(|key| home.expand_user(key)),
            idle: terminal.lifetime_seconds,
            options: Vec::new(),
        };
        settings.check()?;
        Ok(settings)
    }

    /// A name that ssh would parse as an option is refused.
    fn check(&self) -> Result<(), ExecError> {
        let names = [Some(&self.host), self.user.as_ref()];
        for name in names.into_iter().flatten() {
            let strange =
                |c: char| c.is_whitespace() || c.is_control() || "'\"`$;&|<>()".contains(c);
            if name.starts_with('-') || name.contains(strange) {
                let why = format!("{name:?} is not an ssh host or user");
                return Err(ExecError::Unavailable(why));
            }
        }
        Ok(())
    }

    /// Idle time after which a shared connection is closed.
    fn persist(&self) -> Duration {
        Duration::from_secs(self.idle.unwrap_or(PERSIST).max(1))
    }

    fn target(&self) -> String {
        match &self.user {
            Some(user) => format!("{user}@{}", self.host),
            None => self.host.clone(),
        }
    }
}

struct SshTransport {
    settings: SshSettings,
    /// Private directory of the control socket.
    dir: tempfile::TempDir,
    masters: Mutex<SshMasters>,
    /// Names the socket of the current connection.
    number: AtomicU32,
    uses: LastUse,
}

/// Connects on first use.
pub fn environment(
    settings: SshSettings,
    sync: SkillSync,
) -> Result<Arc<dyn Environment>, ExecError> {
    Ok(Arc::new(SyncedEnvironment {
        remote: RemoteEnvironment::new(transport(settings)?),
        sync,
    }))
}

/// The remote machine with our skills synchronized.
struct SyncedEnvironment {
    remote: RemoteEnvironment,
    sync: SkillSync,
}

impl Environment for SyncedEnvironment {
    fn info(&self) -> EnvironmentInfo {
        self.remote.info()
    }

    fn exec<'a>(
        &'a self,
        command: Exec,
        sink: &'a mut dyn OutputSink,
    ) -> BoxFuture<'a, Result<ExecOutcome, ExecError>> {
        Box::pin(async move {
            self.sync.push(&self.remote).await;
            self.remote.exec(command, sink).await
        })
    }

    fn spawn(
        &self,
        command: BackgroundStart,
    ) -> BoxFuture<'_, Result<Box<dyn Background>, ExecError>> {
        Box::pin(async move {
            self.sync.push(&self.remote).await;
            self.remote.spawn(command).await
        })
    }

    fn adopt(
        &self,
        record: BackgroundRecord,
    ) -> BoxFuture<'_, Result<Option<Box<dyn Background>>, ExecError>> {
        self.remote.adopt(record)
    }

    fn files(&self) -> &dyn Files {
        self.remote.files()
    }

    fn suspend(&self) -> BoxFuture<'_, Result<(), ExecError>> {
        self.remote.suspend()
    }

    fn close(&self) -> BoxFuture<'_, Result<(), ExecError>> {
        Box::pin(async {
            match self.sync.pull(&self.remote).await {
                Ok(report) if report.conflicts.is_empty() => {}
                Ok(report) => tracing::warn!(
                    "changed on both machines, ours were kept: {:?}",
                    report.conflicts
                ),
                Err(error) => tracing::warn!("skills were not brought back: {error}"),
            }
            self.remote.close().await
        })
    }
}

fn transport(settings: SshSettings) -> Result<Arc<SshTransport>, ExecError> {
    settings.check()?;
    // Short: a socket path has at most 107 bytes.
    let dir = tempfile::Builder::new()
        .prefix("hermes-ssh-")
        .permissions(Permissions::from_mode(0o700))
        .tempdir_in("/tmp")
        .map_err(ExecError::io("making a directory for the ssh connection"))?;
    Ok(Arc::new(SshTransport {
        settings,
        dir,
        masters: Mutex::default(),
        number: AtomicU32::new(0),
        uses: LastUse::default(),
    }))
}

impl SshTransport {
    fn socket(&self) -> PathBuf {
        let number = self.number.load(Ordering::Acquire);
        self.dir.path().join(format!("m{number}"))
    }

    fn base(&self, socket: &Path) -> Command {
        let mut command = Command::from(own_program("ssh"));
        let control = format!("ControlPath={}", socket.display());
        command.args(["-o", &control]);
        for option in [
            "BatchMode=yes",
            "StrictHostKeyChecking=accept-new",
            "ConnectTimeout=10",
            "ServerAliveInterval=15",
            "ServerAliveCountMax=3",
            // Nothing of ours is forwarded to the remote side.
            "ForwardAgent=no",
            "ForwardX11=no",
            "ClearAllForwardings=yes",
            "PermitLocalCommand=no",
        ] {
            command.args(["-o", option]);
        }
        for option in &self.settings.options {
            command.args(["-o", option]);
        }
        if let Some(port) = self.settings.port {
            command.args(["-p", &port.to_string()]);
        }
        if let Some(key) = &self.settings.key {
            command
                .arg("-i")
                .arg(key)
                .args(["-o", "IdentitiesOnly=yes"]);
        }
        command
    }

    async fn connect(&self) -> Result<(), ExecError> {
        let mut masters = self.masters.lock().await;
        self.uses.note();
        if masters.is_open() && self.socket().exists() {
            return Ok(());
        }
        // Never the name of the last one, which removes its socket when its last call is done.
        self.number.fetch_add(1, Ordering::AcqRel);
        let socket = self.socket();
        // Errors go to a file: a pipe that nobody reads would eventually block.
        let log = self.dir.path().join("log");
        let errors = std::fs::File::create(&log).map_err(ExecError::io("the log of ssh"))?;
        let mut command = self.base(&socket);
        command
            .args(["-o", "ControlMaster=yes", "-o", "ControlPersist=no", "-T"])
            .arg("--")
            .arg(self.settings.target())
            .arg(master::session())
            .stderr(errors);
        let idle = self.settings.persist();
        match masters.start(command, idle, self.uses.clone()).await {
            Ok(()) => Ok(()),
            Err(why) => {
                let said = std::fs::read_to_string(&log).unwrap_or_default();
                let said = said.trim();
                Err(ExecError::Unavailable(format!(
                    "{} cannot be reached by ssh: {}",
                    self.settings.target(),
                    if said.is_empty() { &why } else { said }
                )))
            }
        }
    }

    /// Asks the shared connection to exit.
    fn exit_command(&self) -> Option<Command> {
        let socket = self.socket();
        if !socket.exists() {
            return None;
        }
        let mut command = self.base(&socket);
        command
            .args(["-O", "exit", "--"])
            .arg(self.settings.target())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        Some(command)
    }
}

impl RemoteTransport for SshTransport {
    fn info(&self) -> EnvironmentInfo {
        EnvironmentInfo {
            kind: "ssh",
            isolated: false,
            posture: format!("on {} by ssh, not sandboxed there", self.settings.target()),
        }
    }

    fn ready(&self) -> BoxFuture<'_, Result<(), ExecError>> {
        Box::pin(self.connect())
    }

    fn command(&self, script: &str, terminal: bool) -> Command {
        self.uses.note();
        let mut command = self.base(&self.socket());
        command.args(["-o", "ControlMaster=no"]);
        command.arg(if terminal { "-tt" } else { "-T" });
        command.arg("--").arg(self.settings.target()).arg(script);
        command
    }

    fn lost(&self, said: &str) -> bool {
        // The shared connection broke; `ready` opens another.
        let gone = [
            "mux_client",
            "Control socket",
            "master process",
            "ControlSocket",
        ];
        let lost = gone.iter().any(|sign| said.contains(sign));
        if lost {
            let _ = std::fs::remove_file(self.socket());
        }
        lost
    }

    fn leave(&self, _close: bool) -> BoxFuture<'_, Result<(), ExecError>> {
        Box::pin(async move {
            let mut masters = self.masters.lock().await;
            let result = match self.exit_command() {
                Some(mut command) => command.status().await.map(drop),
                None => Ok(()),
            };
            masters.end().await;
            result.map_err(ExecError::io("ending the ssh connection"))
        })
    }
}

impl Drop for SshTransport {
    fn drop(&mut self) {
        if let Some(mut command) = self.exit_command() {
            // It also exits on its own: its input is closed when we are dropped.
            let _ = command.as_std_mut().status();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_idle_connection_lives_as_long_as_configured() {
        let persist = |life: Option<u64>| {
            let mut config = Config::default();
            config.terminal.ssh_host = Some("example.org".to_owned());
            config.terminal.lifetime_seconds = life;
            let settings = SshSettings::from_config(&Home::at("/nonexistent"), &config);
            settings.unwrap().persist()
        };
        assert_eq!(persist(None), Duration::from_mins(5));
        assert_eq!(persist(Some(42)), Duration::from_secs(42));
        assert_eq!(persist(Some(0)), Duration::from_secs(1));
    }
}

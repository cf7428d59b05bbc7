//! Commands on another machine, by the system's `ssh` over one shared connection.

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
use tokio::process::Command;
use tokio::sync::Mutex;

pub use sync::{Sync, SyncReport};

use crate::environment::{
    Background, BackgroundRecord, Environment, EnvironmentInfo, Exec, ExecError, Files, Finished,
    Sink, Start,
};
use crate::remote::{Remote, Transport};
use master::{Masters, Uses};

/// Seconds the shared connection stays after its last use, unless the configuration says so.
const PERSIST: u64 = 300;

#[derive(Clone, Debug, Default)]
pub struct SshSettings {
    pub host: String,
    pub user: Option<String>,
    pub port: Option<u16>,
    pub key: Option<PathBuf>,
    /// Seconds the shared connection stays after its last use.
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

    /// A name that ssh would take for an option never reaches it.
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

    /// A shared connection that nothing used for so long is ended.
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

struct Ssh {
    settings: SshSettings,
    /// Holds the control socket; nobody else may enter it.
    dir: tempfile::TempDir,
    masters: Mutex<Masters>,
    /// Names the socket of the connection in use.
    number: AtomicU32,
    uses: Uses,
}

/// Connects at the first use.
pub fn environment(settings: SshSettings, sync: Sync) -> Result<Arc<dyn Environment>, ExecError> {
    Ok(Arc::new(Synced {
        remote: Remote::new(transport(settings)?),
        sync,
    }))
}

/// The far machine, with our skills on it.
struct Synced {
    remote: Remote,
    sync: Sync,
}

impl Environment for Synced {
    fn info(&self) -> EnvironmentInfo {
        self.remote.info()
    }

    fn exec<'a>(
        &'a self,
        command: Exec,
        sink: &'a mut dyn Sink,
    ) -> BoxFuture<'a, Result<Finished, ExecError>> {
        Box::pin(async move {
            self.sync.push(&self.remote).await;
            self.remote.exec(command, sink).await
        })
    }

    fn spawn(&self, command: Start) -> BoxFuture<'_, Result<Box<dyn Background>, ExecError>> {
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

fn transport(settings: SshSettings) -> Result<Arc<Ssh>, ExecError> {
    settings.check()?;
    // Short: the path of a socket has at most 107 bytes.
    let dir = tempfile::Builder::new()
        .prefix("hermes-ssh-")
        .permissions(Permissions::from_mode(0o700))
        .tempdir_in("/tmp")
        .map_err(ExecError::io("making a directory for the ssh connection"))?;
    Ok(Arc::new(Ssh {
        settings,
        dir,
        masters: Mutex::default(),
        number: AtomicU32::new(0),
        uses: Uses::default(),
    }))
}

impl Ssh {
    fn socket(&self) -> PathBuf {
        let number = self.number.load(Ordering::Acquire);
        self.dir.path().join(format!("m{number}"))
    }

    fn base(&self, socket: &Path) -> Command {
        let mut command = Command::new("ssh");
        let control = format!("ControlPath={}", socket.display());
        command.args(["-o", &control]);
        for option in [
            "BatchMode=yes",
            "StrictHostKeyChecking=accept-new",
            "ConnectTimeout=10",
            "ServerAliveInterval=15",
            "ServerAliveCountMax=3",
            // Nothing of ours is lent to the far side.
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
        // Never the name of the last one, which removes it when its last call is done.
        self.number.fetch_add(1, Ordering::AcqRel);
        let socket = self.socket();
        // Its errors go to a file: a pipe that nobody reads would stop it one day.
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

    /// Tells the shared connection to end.
    fn farewell(&self) -> Option<Command> {
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

impl Transport for Ssh {
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
        // The shared connection ended under us; `ready` makes another.
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
            let told = match self.farewell() {
                Some(mut command) => command.status().await.map(drop),
                None => Ok(()),
            };
            masters.end().await;
            told.map_err(ExecError::io("ending the ssh connection"))
        })
    }
}

impl Drop for Ssh {
    fn drop(&mut self) {
        if let Some(mut command) = self.farewell() {
            // It ends by itself too: what keeps it open is dropped with us.
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

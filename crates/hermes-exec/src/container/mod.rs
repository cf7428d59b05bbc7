//! Commands in a docker or podman container, through the command line client.

mod create;

use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use hermes_config::{Config, Env, Home};
use hermes_core::BoxFuture;
use tokio::process::Command;

use crate::environment::{Environment, EnvironmentInfo, ExecError};
use crate::local::Declared;
use crate::remote::{RemoteEnvironment, RemoteTransport};

/// Settings of a container. All of them are part of its identity.
#[derive(Clone, Debug, Default, serde::Serialize)]
pub struct ContainerSettings {
    /// `docker`, `podman` or a path.
    #[serde(skip)]
    pub program: PathBuf,
    pub image: String,
    /// The agent it belongs to: containers of one task are shared.
    pub task: String,
    pub profile: String,
    pub cpu: f64,
    pub memory_mb: u64,
    pub network: bool,
    pub volumes: Vec<String>,
    pub env: Vec<(String, String)>,
    /// Names whose values come from our own environment.
    pub forward: Vec<(String, String)>,
    /// Mounted at `/workspace`.
    pub workspace: Option<PathBuf>,
    /// Stores `/root` and `/workspace` here; `None`: in memory.
    pub keep: Option<PathBuf>,
    /// Mounted read-only: skills, caches.
    pub shown: Vec<(PathBuf, PathBuf)>,
    pub extra_args: Vec<String>,
    pub host_user: Option<(u32, u32)>,
    /// Whether the container outlives this process.
    #[serde(skip)]
    pub persistent: bool,
    /// Variables for the client program itself (tests).
    #[serde(skip)]
    pub program_env: Vec<(String, String)>,
}

impl ContainerSettings {
    /// `cwd`: where the session started, for `docker_mount_cwd_to_workspace`.
    pub fn from_config(
        home: &Home,
        config: &Config,
        env: &Env,
        cwd: &std::path::Path,
    ) -> Result<Self, ExecError> {
        let terminal = &config.terminal;
        let forward = terminal
            .docker_forward_env
            .iter()
            .filter_map(|name| Some((name.clone(), env.get(name)?.to_owned())))
            .collect();
        let keep = terminal.container_persistent.then(|| {
            match terminal
                .sandbox_dir
                .as_deref()
                .filter(|dir| !dir.is_empty())
            {
                Some(dir) => home.expand_user(dir),
                None => home.join("sandboxes"),
            }
            .join("docker/default")
        });
        let skills = home.skills_dir();
        let shown = if skills.is_dir() {
            vec![(skills, PathBuf::from("/root/.hermes/skills"))]
        } else {
            Vec::new()
        };
        let user = || {
            (
                rustix::process::getuid().as_raw(),
                rustix::process::getgid().as_raw(),
            )
        };
        Ok(Self {
            program: create::find_program()?,
            image: terminal.docker_image.clone(),
            task: "default".to_owned(),
            profile: home.profile().unwrap_or("default").to_owned(),
            cpu: terminal.container_cpu,
            memory_mb: terminal.container_memory,
            network: terminal.docker_network,
            volumes: terminal.docker_volumes.clone(),
            env: terminal
                .docker_env
                .iter()
                .map(|(name, value)| (name.to_owned(), value.clone()))
                .collect(),
            forward,
            workspace: terminal
                .docker_mount_cwd_to_workspace
                .then(|| cwd.to_owned()),
            keep,
            shown,
            extra_args: terminal.docker_extra_args.clone(),
            host_user: terminal.docker_run_as_host_user.then(user),
            persistent: terminal.docker_persist_across_processes.unwrap_or(true),
            program_env: Vec::new(),
        })
    }
}

struct ContainerTransport {
    settings: ContainerSettings,
    /// Its id once it runs.
    id: Mutex<Option<String>>,
    creating: tokio::sync::Mutex<()>,
}

/// Creates or finds its container on first use.
pub fn environment(settings: ContainerSettings) -> Arc<dyn Environment> {
    Arc::new(remote(settings))
}

/// The same; commands get the variables that skills declare, with the values of `env`.
pub fn environment_with_declared(
    settings: ContainerSettings,
    declared: Declared,
    env: &Env,
) -> Arc<dyn Environment> {
    Arc::new(remote(settings).with_declared(declared, env.clone()))
}

fn remote(settings: ContainerSettings) -> RemoteEnvironment {
    RemoteEnvironment::new(Arc::new(ContainerTransport {
        settings,
        id: Mutex::new(None),
        creating: tokio::sync::Mutex::new(()),
    }))
}

/// Removes our containers that ended long ago and returns their number. For the start of a gateway.
pub async fn reap(
    settings: &ContainerSettings,
    older: std::time::Duration,
    clock: &dyn hermes_core::clock::Clock,
) -> Result<usize, ExecError> {
    create::reap(settings, older, clock.now()).await
}

impl ContainerTransport {
    fn id(&self) -> Option<String> {
        self.id
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    fn set_id(&self, id: Option<String>) {
        *self.id.lock().unwrap_or_else(PoisonError::into_inner) = id;
    }
}

impl RemoteTransport for ContainerTransport {
    fn info(&self) -> EnvironmentInfo {
        let settings = &self.settings;
        let network = if settings.network { "on" } else { "off" };
        // Local mounts can be changed from inside.
        let isolated = settings.volumes.is_empty()
            && settings.workspace.is_none()
            && settings.extra_args.is_empty();
        EnvironmentInfo {
            kind: "docker",
            isolated,
            posture: format!(
                "in a container of {}, network {network}{}",
                settings.image,
                if isolated {
                    ""
                } else {
                    ", with directories of this machine"
                }
            ),
        }
    }

    fn ready(&self) -> BoxFuture<'_, Result<(), ExecError>> {
        Box::pin(async {
            let _turn = self.creating.lock().await;
            if self.id().is_none() {
                self.set_id(Some(create::ensure(&self.settings).await?));
            }
            Ok(())
        })
    }

    fn command(&self, script: &str, terminal: bool) -> Command {
        let mut command = create::program(&self.settings);
        command.arg("exec");
        command.arg(if terminal { "-t" } else { "-i" });
        command.arg(self.id().unwrap_or_default());
        command.args(["bash", "--noprofile", "--norc", "-c", script]);
        command
    }

    fn lost(&self, said: &str) -> bool {
        let said = said.to_lowercase();
        let gone = [
            "no such container",
            "no container with",
            "is not running",
            "container state improper",
        ];
        let lost = gone.iter().any(|sign| said.contains(sign));
        if lost {
            self.set_id(None);
        }
        lost
    }

    fn leave(&self, close: bool) -> BoxFuture<'_, Result<(), ExecError>> {
        Box::pin(async move {
            let Some(id) = self.id() else {
                return Ok(());
            };
            let keep = self.settings.persistent;
            self.set_id(None);
            match (close, keep) {
                // Left running for the next process.
                (true, true) => Ok(()),
                (true, false) => create::remove(&self.settings, &id).await,
                (false, _) => create::stop(&self.settings, &id).await,
            }
        })
    }
}

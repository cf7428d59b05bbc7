//! Selects the configured environment. If it is not available, that is an error: nothing runs elsewhere
//! instead.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use hermes_config::{Config, Env, Home};
use hermes_core::clock::Clock;

use crate::container::{self, ContainerSettings};
use crate::environment::{Environment, ExecError};
use crate::local::Declared;
use crate::ssh::{self, SshSettings};

/// `terminal.lifetime_seconds` when it is not set.
const LIFETIME: u64 = 300;

/// The environment of `terminal.backend`; `None`: this machine. `cwd` is where the session started. Variables
/// declared by skills are passed to containers; a remote machine gets no values of the home.
pub fn select(
    home: &Home,
    config: &Config,
    env: &Env,
    cwd: &Path,
    declared: &Declared,
) -> Result<Option<Arc<dyn Environment>>, ExecError> {
    match configured_backend(config) {
        "" | "local" => Ok(None),
        "ssh" => {
            let settings = SshSettings::from_config(home, config)?;
            ssh::environment(settings, ssh::SkillSync::from_config(home, config)).map(Some)
        }
        "docker" | "podman" => {
            let settings = ContainerSettings::from_config(home, config, env, cwd)?;
            let declared = declared.clone();
            Ok(Some(container::environment_with_declared(
                settings, declared, env,
            )))
        }
        named @ ("singularity" | "modal" | "daytona" | "managed_modal" | "vercel_sandbox") => {
            Err(ExecError::Unavailable(format!(
                "terminal.backend {named} is not supported yet: use local, docker or ssh"
            )))
        }
        other => Err(ExecError::Unavailable(format!(
            "terminal.backend {other:?} is not one of local, docker, ssh"
        ))),
    }
}

fn configured_backend(config: &Config) -> &str {
    let terminal = &config.terminal;
    match &terminal.env_type {
        Some(legacy) if terminal.backend.as_str() == "local" => legacy.as_str(),
        _ => terminal.backend.as_str(),
    }
}

/// Removes containers of this profile that ended long ago, if `terminal.backend` uses containers and
/// `terminal.docker_orphan_reaper` is not off; returns their number. Twice the lifetime of an idle container
/// leaves those of other processes alone.
pub async fn reap(
    home: &Home,
    config: &Config,
    env: &Env,
    clock: &dyn Clock,
) -> Result<usize, ExecError> {
    let terminal = &config.terminal;
    let ours = matches!(configured_backend(config), "docker" | "podman");
    if !ours || !terminal.docker_orphan_reaper.unwrap_or(true) {
        return Ok(0);
    }
    let settings = ContainerSettings::from_config(home, config, env, home.root())?;
    let life = terminal.lifetime_seconds.unwrap_or(LIFETIME).max(60);
    let older = Duration::from_secs(life.saturating_mul(2));
    container::reap(&settings, older, clock).await
}

#[cfg(test)]
mod tests {
    use hermes_config::ProcessEnv;

    use super::*;

    fn selected(backend: &str, host: Option<&str>) -> Result<Option<&'static str>, String> {
        let home = Home::at("/nonexistent/home");
        let mut config = Config::default();
        config.terminal.backend = backend.into();
        config.terminal.ssh_host = host.map(str::to_owned);
        let env = Env::from_process(&ProcessEnv::from_vars::<String, String>([]));
        select(&home, &config, &env, Path::new("/"), &Declared::default())
            .map(|env| env.map(|env| env.info().kind))
            .map_err(|error| error.to_string())
    }

    #[test]
    fn what_is_not_there_is_refused_by_name() {
        assert_eq!(selected("local", None), Ok(None));
        for name in ["singularity", "modal", "daytona", "nonsense"] {
            let error = selected(name, None).unwrap_err();
            assert!(
                error.contains(name) && error.contains("local, docker"),
                "{error}"
            );
        }
        let error = selected("ssh", None).unwrap_err();
        assert!(error.contains("terminal.ssh_host"), "{error}");
        assert_eq!(selected("ssh", Some("example.org")), Ok(Some("ssh")));
        assert!(selected("ssh", Some("-oProxyCommand=x")).is_err());
    }
}

//! Creates, finds and removes containers.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use chrono::{DateTime, Utc};
use hermes_core::programs::is_own_directory;
use sha2::{Digest, Sha256};
use tokio::process::Command;

use super::ContainerSettings;
use crate::environment::ExecError;

/// An image may have to be pulled.
const SLOW: Duration = Duration::from_mins(10);
const QUICK: Duration = Duration::from_mins(1);

/// `HERMES_DOCKER_BINARY`, docker, podman: the first that exists.
pub(super) fn find_program() -> Result<PathBuf, ExecError> {
    if let Some(named) = std::env::var_os("HERMES_DOCKER_BINARY").filter(|name| !name.is_empty()) {
        let path = PathBuf::from(&named);
        if path.is_file() || on_path(&path).is_some() {
            return Ok(path);
        }
        // A configured program is not replaced by another.
        return Err(ExecError::Unavailable(format!(
            "HERMES_DOCKER_BINARY names {}, which does not exist",
            path.display()
        )));
    }
    ["docker", "podman"]
        .iter()
        .find_map(|name| on_path(Path::new(name)))
        .ok_or_else(|| {
            let why = "terminal.backend is docker, but neither docker nor podman is installed";
            ExecError::Unavailable(why.to_owned())
        })
}

fn on_path(name: &Path) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path)
        .filter(|dir| is_own_directory(dir))
        .map(|dir| dir.join(name))
        .find(|file| file.is_file())
}

pub(super) fn program(settings: &ContainerSettings) -> Command {
    let mut command = Command::new(&settings.program);
    for (name, value) in &settings.program_env {
        command.env(name, value);
    }
    // Values are passed by name, so that they do not show up in a process list.
    for (name, value) in &settings.forward {
        command.env(name, value);
    }
    command
}

/// Changes with everything the container is created from: image, mounts, limits, values.
pub(super) fn fingerprint(settings: &ContainerSettings) -> String {
    let text = serde_json::to_string(settings).unwrap_or_default();
    let digest = Sha256::digest(text.as_bytes());
    let first = digest.iter().take(16);
    first.fold(String::new(), |mut text, byte| {
        // Writing to a string cannot fail.
        let _ = write!(text, "{byte:02x}");
        text
    })
}

/// Label values are letters, digits, `_.-`, at most 63.
fn label(value: &str) -> String {
    let mut text: String = value
        .chars()
        .map(|c| {
            if c.is_ascii_alphanumeric() || "_.-".contains(c) {
                c
            } else {
                '_'
            }
        })
        .take(63)
        .collect();
    if text.is_empty() {
        text.push('_');
    }
    text
}

/// A running container: an existing one of ours, or a new one.
pub(super) async fn ensure(settings: &ContainerSettings) -> Result<String, ExecError> {
    if let Some((id, state)) = find(settings).await? {
        // Docker says "running", podman "Up 2 minutes ago".
        if ["running", "up"].contains(&state.to_lowercase().as_str()) {
            return Ok(id);
        }
        let started = output(settings, ["start", &id], QUICK).await;
        match started {
            Ok(_) => return Ok(id),
            // It cannot be started: replace it.
            Err(error) => {
                tracing::warn!("container {id} does not start again: {error}");
                remove(settings, &id).await?;
            }
        }
    }
    create(settings).await
}

async fn find(settings: &ContainerSettings) -> Result<Option<(String, String)>, ExecError> {
    let filters = [
        "label=hermes-agent=1".to_owned(),
        format!("label=hermes-task-id={}", label(&settings.task)),
        format!("label=hermes-profile={}", label(&settings.profile)),
        format!("label=hermes-config={}", fingerprint(settings)),
    ];
    let mut args = vec!["ps".to_owned(), "-a".to_owned()];
    for filter in filters {
        args.extend(["--filter".to_owned(), filter]);
    }
    args.extend(["--format".to_owned(), "{{.ID}} {{.State}}".to_owned()]);
    let text = output(settings, &args, QUICK).await?;
    Ok(text.lines().next().and_then(|line| {
        let (id, state) = line.trim().split_once(' ')?;
        Some((id.to_owned(), state.split(' ').next()?.to_owned()))
    }))
}

async fn create(settings: &ContainerSettings) -> Result<String, ExecError> {
    let limited = output(settings, &arguments(settings, true)?, SLOW).await;
    let text = match limited {
        Err(ExecError::Unavailable(why)) if lacks_cgroups(&why) => {
            tracing::warn!(
                "the container has no limits of memory, processors and processes: {why}"
            );
            output(settings, &arguments(settings, false)?, SLOW).await?
        }
        other => other?,
    };
    text.lines()
        .last()
        .map(|line| line.trim().to_owned())
        .filter(|id| !id.is_empty())
        .ok_or_else(|| ExecError::Unavailable("the container has no id".to_owned()))
}

/// Without control groups (rootless on old systems) limits cannot be set.
fn lacks_cgroups(why: &str) -> bool {
    let why = why.to_lowercase();
    ["cgroup", "cpu", "memory limit", "pids"]
        .iter()
        .any(|sign| why.contains(sign))
}

/// All arguments of `run`; the user's own come last and override the hardening.
pub(super) fn arguments(
    settings: &ContainerSettings,
    limited: bool,
) -> Result<Vec<String>, ExecError> {
    let mut args: Vec<String> = ["run", "-d", "--init"].map(str::to_owned).to_vec();
    let mut add = |words: &[&str]| args.extend(words.iter().map(|&word| word.to_owned()));
    add(&["--label", "hermes-agent=1"]);
    add(&[
        "--label",
        &format!("hermes-task-id={}", label(&settings.task)),
    ]);
    add(&[
        "--label",
        &format!("hermes-profile={}", label(&settings.profile)),
    ]);
    add(&[
        "--label",
        &format!("hermes-config={}", fingerprint(settings)),
    ]);
    add(&["--cap-drop", "ALL"]);
    for capability in ["DAC_OVERRIDE", "CHOWN", "FOWNER"] {
        add(&["--cap-add", capability]);
    }
    match settings.host_user {
        Some((user, group)) => add(&["--user", &format!("{user}:{group}")]),
        None => add(&["--cap-add", "SETUID", "--cap-add", "SETGID"]),
    }
    add(&["--security-opt", "no-new-privileges"]);
    add(&["--tmpfs", "/tmp:rw,nosuid,size=512m"]);
    add(&["--tmpfs", "/var/tmp:rw,noexec,nosuid,size=256m"]);
    add(&["--tmpfs", "/run:rw,noexec,nosuid,size=64m"]);
    if limited {
        add(&["--pids-limit", "256"]);
    }
    if limited && settings.cpu > 0.0 {
        add(&["--cpus", &settings.cpu.to_string()]);
    }
    if limited && settings.memory_mb > 0 {
        add(&["--memory", &format!("{}m", settings.memory_mb)]);
    }
    if !settings.network {
        add(&["--network=none"]);
    }
    mounts(settings, &mut args)?;
    for (name, value) in &settings.env {
        args.extend(["-e".to_owned(), format!("{name}={value}")]);
    }
    for (name, _) in &settings.forward {
        args.extend(["-e".to_owned(), name.clone()]);
    }
    args.extend(["-w".to_owned(), "/workspace".to_owned()]);
    args.extend(settings.extra_args.iter().cloned());
    args.push(settings.image.clone());
    args.extend(["sleep", "infinity"].map(str::to_owned));
    Ok(args)
}

fn mounts(settings: &ContainerSettings, args: &mut Vec<String>) -> Result<(), ExecError> {
    let mut bind = |from: &Path, to: &str| -> Result<(), ExecError> {
        // The argument separator cannot be part of a path.
        if from.to_string_lossy().contains(':') {
            let why = format!("{} cannot be mounted: it has a ':'", from.display());
            return Err(ExecError::Unavailable(why));
        }
        args.extend(["-v".to_owned(), format!("{}:{to}", from.display())]);
        Ok(())
    };
    if let Some(keep) = &settings.keep {
        for (name, to) in [("home", "/root"), ("workspace", "/workspace")] {
            if name == "workspace" && settings.workspace.is_some() {
                continue;
            }
            let dir = keep.join(name);
            std::fs::create_dir_all(&dir).map_err(|error| ExecError::file(&dir, error))?;
            bind(&dir, to)?;
        }
    }
    if let Some(workspace) = &settings.workspace {
        bind(workspace, "/workspace")?;
    }
    for (from, to) in &settings.shown {
        bind(from, &format!("{}:ro", to.display()))?;
    }
    if settings.keep.is_none() {
        args.extend(["--tmpfs".to_owned(), "/root:rw,exec,size=1g".to_owned()]);
        if settings.workspace.is_none() {
            args.extend([
                "--tmpfs".to_owned(),
                "/workspace:rw,exec,size=10g".to_owned(),
            ]);
        }
    }
    for volume in &settings.volumes {
        args.extend(["-v".to_owned(), volume.clone()]);
    }
    Ok(())
}

pub(super) async fn remove(settings: &ContainerSettings, id: &str) -> Result<(), ExecError> {
    output(settings, ["rm", "-f", id], QUICK).await.map(drop)
}

pub(super) async fn stop(settings: &ContainerSettings, id: &str) -> Result<(), ExecError> {
    output(settings, ["stop", "-t", "2", id], QUICK)
        .await
        .map(drop)
}

pub(super) async fn reap(
    settings: &ContainerSettings,
    older: Duration,
    now: DateTime<Utc>,
) -> Result<usize, ExecError> {
    let args = [
        "ps",
        "-a",
        "--filter",
        "label=hermes-agent=1",
        "--filter",
        &format!("label=hermes-profile={}", label(&settings.profile)),
        "--filter",
        "status=exited",
        "--format",
        "{{.ID}}",
    ];
    let mut reaped = 0;
    for id in output(settings, args, QUICK).await?.lines() {
        let format = "{{.State.FinishedAt}}";
        let ended = output(settings, ["inspect", "--format", format, id], QUICK).await?;
        // A container without a readable date is left alone.
        let Some(ended) = parse_time(ended.trim()) else {
            continue;
        };
        if (now - ended).to_std().is_ok_and(|age| age >= older) {
            remove(settings, id).await?;
            reaped += 1;
        }
    }
    Ok(reaped)
}

/// As docker writes it (RFC 3339), and as podman does (`2026-01-02 03:04:05.6 +0000 UTC`).
fn parse_time(text: &str) -> Option<DateTime<Utc>> {
    let podman = text.rsplit_once(' ').map_or(text, |(time, _)| time);
    DateTime::parse_from_rfc3339(text)
        .or_else(|_| DateTime::parse_from_str(podman, "%Y-%m-%d %H:%M:%S%.f %z"))
        .ok()
        .map(|time| time.to_utc())
}

/// Runs the program and returns its standard output.
async fn output<S: AsRef<std::ffi::OsStr>>(
    settings: &ContainerSettings,
    args: impl IntoIterator<Item = S>,
    limit: Duration,
) -> Result<String, ExecError> {
    let mut command = program(settings);
    command
        .args(args)
        .stdin(Stdio::null())
        .kill_on_drop(true)
        .process_group(0);
    let name = settings.program.display();
    let output = tokio::time::timeout(limit, command.output())
        .await
        .map_err(|_| ExecError::Unavailable(format!("{name} did not answer in time")))?
        .map_err(|error| ExecError::Unavailable(format!("{name} cannot be started: {error}")))?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    let said = String::from_utf8_lossy(&output.stderr).trim().to_owned();
    Err(ExecError::Unavailable(format!("{name}: {said}")))
}

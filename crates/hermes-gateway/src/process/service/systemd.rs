//! Units for systemd.

use std::path::{Path, PathBuf};

use super::{ServiceDefinition, exit};

/// Whether it is a user service or a system service.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ServiceScope {
    /// A service of the user.
    User,
    /// A service of the machine, run as a user.
    System(ServiceAccount),
}

/// The user that a system service runs as.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServiceAccount {
    pub user: String,
    pub group: String,
    pub home: PathBuf,
}

impl ServiceScope {
    pub fn is_system(&self) -> bool {
        matches!(self, Self::System(_))
    }
}

/// The path of the unit file. `config`: the user's configuration directory.
pub fn path(name: &str, system: bool, config: &Path) -> PathBuf {
    let file = format!("{name}.service");
    if system {
        Path::new("/etc/systemd/system").join(file)
    } else {
        config.join("systemd/user").join(file)
    }
}

/// The text of the unit.
pub fn unit(service: &ServiceDefinition, scope: &ServiceScope) -> String {
    let mut lines = vec![
        "[Unit]".to_owned(),
        "Description=Hermes gateway: the agent in your chats".to_owned(),
        "After=network-online.target".to_owned(),
        "Wants=network-online.target".to_owned(),
        "StartLimitIntervalSec=0".to_owned(),
        String::new(),
        "[Service]".to_owned(),
    ];
    // It reports readiness and reloads by itself.
    lines.push("Type=notify".to_owned());
    lines.push("NotifyAccess=main".to_owned());
    if let Some(watchdog) = service.watchdog {
        lines.push(format!("WatchdogSec={}s", watchdog.as_secs()));
    }
    if let ServiceScope::System(account) = scope {
        lines.push(format!("User={}", account.user));
        lines.push(format!("Group={}", account.group));
    }
    let command: Vec<String> = service.command().iter().map(|word| quoted(word)).collect();
    lines.push(format!("ExecStart={}", command.join(" ")));
    lines.push(format!("WorkingDirectory={}", path_text(&service.home)));
    if let ServiceScope::System(account) = scope {
        lines.push(variable("HOME", &account.home.display().to_string()));
        lines.push(variable("USER", &account.user));
        lines.push(variable("LOGNAME", &account.user));
    }
    lines.push(variable("PATH", &service.path));
    lines.push(variable("HERMES_HOME", &service.home.display().to_string()));
    lines.extend([
        "Restart=always".to_owned(),
        "RestartSec=5".to_owned(),
        format!("RestartForceExitStatus={}", exit::RESTART),
        format!("RestartPreventExitStatus={}", exit::CONFIG),
        "KillMode=mixed".to_owned(),
        "KillSignal=SIGTERM".to_owned(),
        "ExecReload=/bin/kill -USR1 $MAINPID".to_owned(),
        format!("TimeoutStopSec={}", service.patience().as_secs()),
        "StandardOutput=journal".to_owned(),
        "StandardError=journal".to_owned(),
        String::new(),
        "[Install]".to_owned(),
    ]);
    lines.push(match scope {
        ServiceScope::User => "WantedBy=default.target".to_owned(),
        ServiceScope::System(_) => "WantedBy=multi-user.target".to_owned(),
    });
    lines.push(String::new());
    lines.join("\n")
}

fn variable(name: &str, value: &str) -> String {
    format!("Environment={}", quoted(&format!("{name}={value}")))
}

/// Quotes an argument: percent and dollar signs have a meaning in units.
fn quoted(word: &str) -> String {
    let word = word.replace('\\', r"\\").replace('"', "\\\"");
    let word = word.replace('%', "%%").replace('$', "$$");
    format!("\"{word}\"")
}

/// A path in a setting that systemd does not split.
fn path_text(path: &Path) -> String {
    path.display().to_string().replace('%', "%%")
}

/// What of an installed unit is out of date, for people. `None`: nothing.
pub fn stale(installed: &str, service: &ServiceDefinition) -> Option<String> {
    let stop = installed
        .lines()
        .find_map(|line| line.trim().strip_prefix("TimeoutStopSec="));
    let seconds = stop.and_then(|text| text.trim_end_matches('s').parse::<u64>().ok());
    if seconds.is_some_and(|seconds| seconds < service.drain.as_secs()) {
        return Some(format!(
            "systemd kills the gateway after {} s, but it may drain for {} s: hermes gateway install --force",
            seconds.unwrap_or_default(),
            service.drain.as_secs()
        ));
    }
    let start = installed
        .lines()
        .find_map(|line| line.trim().strip_prefix("ExecStart="))?;
    let ours = service.program.display().to_string();
    (!start.contains(&ours)).then(|| {
        format!("the unit starts another program ({start}): hermes gateway install --force")
    })
}

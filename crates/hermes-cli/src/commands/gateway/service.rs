//! The gateway as a service of systemd or launchd.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use hermes_config::Home;
use hermes_gateway::GatewaySettings;
use hermes_gateway::process::service::systemd::{ServiceAccount, ServiceScope};
use hermes_gateway::process::service::{ServiceDefinition, launchd, systemd};

use super::control::program;
use super::{InstallArgs, UninstallArgs};
use crate::commands::Context;
use crate::exit::{Exit, Failure, Outcome};

/// The service manager of this machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum ServiceManagerKind {
    Systemd { system: bool },
    Launchd,
}

/// An installed or installable service.
#[derive(Clone, Debug)]
pub(super) struct ServiceManager {
    pub(super) kind: ServiceManagerKind,
    pub(super) path: PathBuf,
    service: ServiceDefinition,
}

/// The service of a home, where it is installed.
pub(super) fn installed(home: &Home, system: bool, cx: &Context) -> Option<ServiceManager> {
    let manager = ServiceManager::new(home, system, cx).ok()?;
    manager.path.exists().then_some(manager)
}

impl ServiceManager {
    fn new(home: &Home, system: bool, cx: &Context) -> Result<Self, Failure> {
        let search = std::env::var("PATH").unwrap_or_default();
        let mut service = ServiceDefinition::new(home, program()?, &search);
        // The settings for the service definition. An unreadable home has defaults.
        if let Ok(loaded) = cx.load_config()
            && let Ok(settings) = GatewaySettings::load(home, loaded, &cx.env)
        {
            service.drain = settings.drain;
            service.watchdog = settings.watchdog;
        }
        let person = cx.home.expand_user("~");
        if cfg!(target_os = "macos") {
            let path = launchd::path(&service, &person);
            return Ok(Self {
                kind: ServiceManagerKind::Launchd,
                path,
                service,
            });
        }
        let config = cx.env.get("XDG_CONFIG_HOME").filter(|dir| !dir.is_empty());
        let config = config.map_or_else(|| person.join(".config"), PathBuf::from);
        Ok(Self {
            path: systemd::path(&service.name, system, &config),
            kind: ServiceManagerKind::Systemd { system },
            service,
        })
    }

    /// For people.
    pub(super) fn label(&self) -> &'static str {
        match self.kind {
            ServiceManagerKind::Systemd { system: false } => "systemd --user",
            ServiceManagerKind::Systemd { system: true } => "systemd",
            ServiceManagerKind::Launchd => "launchd",
        }
    }

    /// What is out of date in the installed service.
    pub(super) fn stale(&self) -> Option<String> {
        let text = std::fs::read_to_string(&self.path).ok()?;
        match self.kind {
            ServiceManagerKind::Systemd { .. } => systemd::stale(&text, &self.service),
            ServiceManagerKind::Launchd => None,
        }
    }

    pub(super) fn is_active(&self) -> bool {
        match self.kind {
            ServiceManagerKind::Systemd { .. } => {
                let state = self.ask(&["is-active", &self.unit()]);
                state.is_ok_and(|word| matches!(word.trim(), "active" | "activating" | "reloading"))
            }
            ServiceManagerKind::Launchd => Self::launchctl(&["print", &self.target()]).is_ok(),
        }
    }

    /// The manager's status, for display.
    pub(super) fn report(&self) -> Option<String> {
        match self.kind {
            ServiceManagerKind::Systemd { .. } => self
                .ask(&["status", "--no-pager", "--lines=5", &self.unit()])
                .ok(),
            ServiceManagerKind::Launchd => Self::launchctl(&["print", &self.target()]).ok(),
        }
    }

    pub(super) fn start(&self) -> Outcome {
        match self.kind {
            ServiceManagerKind::Systemd { .. } => self.tell(&["start", &self.unit()]),
            ServiceManagerKind::Launchd => {
                let path = self.path.display().to_string();
                // It may be loaded already.
                let _ = Self::launchctl(&["bootstrap", &domain(), &path]);
                Self::launchctl(&["kickstart", &self.target()]).map(drop)
            }
        }
    }

    pub(super) fn stop(&self) -> Outcome {
        match self.kind {
            ServiceManagerKind::Systemd { .. } => self.tell(&["stop", &self.unit()]),
            // It would be started again as long as it is loaded.
            ServiceManagerKind::Launchd => Self::launchctl(&["bootout", &self.target()]).map(drop),
        }
    }

    pub(super) fn restart(&self) -> Outcome {
        match self.kind {
            ServiceManagerKind::Systemd { .. } => self.tell(&["restart", &self.unit()]),
            ServiceManagerKind::Launchd => {
                Self::launchctl(&["kickstart", "-k", &self.target()]).map(drop)
            }
        }
    }

    fn unit(&self) -> String {
        format!("{}.service", self.service.name)
    }

    fn target(&self) -> String {
        format!("{}/{}", domain(), launchd::label(&self.service))
    }

    fn systemctl(&self, words: &[&str]) -> Command {
        let mut command = Command::new("systemctl");
        if self.kind == (ServiceManagerKind::Systemd { system: false }) {
            command.arg("--user");
        }
        command.args(words);
        command
    }

    fn tell(&self, words: &[&str]) -> Outcome {
        output(self.systemctl(words)).map(drop)
    }

    /// The output, regardless of the exit code: `status` has several.
    fn ask(&self, words: &[&str]) -> Result<String, Failure> {
        let output = self
            .systemctl(words)
            .output()
            .map_err(|error| Failure::failed(format!("systemctl: {error}")))?;
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    }

    fn launchctl(words: &[&str]) -> Result<String, Failure> {
        let mut command = Command::new("launchctl");
        command.args(words);
        output(command)
    }

    /// The text of the definition.
    fn definition(&self, scope: &ServiceScope) -> String {
        match self.kind {
            ServiceManagerKind::Systemd { .. } => systemd::unit(&self.service, scope),
            ServiceManagerKind::Launchd => launchd::plist(&self.service),
        }
    }
}

fn domain() -> String {
    format!("gui/{}", rustix::process::getuid().as_raw())
}

fn output(mut command: Command) -> Result<String, Failure> {
    let name = command.get_program().to_string_lossy().into_owned();
    let output = command.output().map_err(|error| {
        let hint = if error.kind() == std::io::ErrorKind::NotFound {
            "; without it, run hermes gateway run under your own service manager"
        } else {
            ""
        };
        Failure::failed(format!("{name}: {error}{hint}"))
    })?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    let stderr = String::from_utf8_lossy(&output.stderr);
    Err(Failure::failed(format!("{name}: {}", stderr.trim())))
}

pub(super) fn install(args: &InstallArgs, cx: &Context) -> Outcome {
    let mut manager = ServiceManager::new(&cx.home, args.system, cx)?;
    if manager.path.exists() && !args.force {
        return Err(Failure::new(
            Exit::Usage,
            format!(
                "{} already exists; to replace it: hermes gateway install --force",
                manager.path.display()
            ),
        ));
    }
    let scope = if args.system {
        ServiceScope::System(account(args, &cx.home)?)
    } else {
        ServiceScope::User
    };
    warn_of_passing(cx, &manager.service);
    if let ServiceScope::System(account) = &scope {
        manager.service.path = format!(
            "{}/.local/bin:{}",
            account.home.display(),
            manager.service.path
        );
    }
    let text = manager.definition(&scope);
    let failed = |error: std::io::Error| {
        let hint = if args.system && error.kind() == std::io::ErrorKind::PermissionDenied {
            ": a system service needs root"
        } else {
            ""
        };
        Failure::failed(format!("{}: {error}{hint}", manager.path.display()))
    };
    if let Some(dir) = manager.path.parent() {
        std::fs::create_dir_all(dir).map_err(failed)?;
    }
    hermes_config::fs::write_atomic(&manager.path, text.as_bytes(), 0o644).map_err(failed)?;
    cx.out
        .line(format!("installed: {}", manager.path.display()))?;
    enable(&manager, args, cx)
}

fn enable(manager: &ServiceManager, args: &InstallArgs, cx: &Context) -> Outcome {
    match manager.kind {
        ServiceManagerKind::Systemd { system } => {
            manager.tell(&["daemon-reload"])?;
            if !args.no_start_on_login {
                manager.tell(&["enable", &manager.unit()])?;
            }
            if !system {
                linger(cx);
            }
        }
        ServiceManagerKind::Launchd => {
            // An old definition would stay loaded.
            let _ = ServiceManager::launchctl(&["bootout", &manager.target()]);
        }
    }
    if args.no_start_now {
        cx.out.line("to start it: hermes gateway start")?;
        return Ok(());
    }
    manager.start()?;
    cx.out
        .line("started; check it with: hermes gateway status")?;
    Ok(())
}

/// Without lingering, systemd stops user services at logout.
fn linger(cx: &Context) {
    let user = cx.env.get("USER").unwrap_or_default().to_owned();
    let marker = Path::new("/var/lib/systemd/linger").join(&user);
    if user.is_empty() || marker.exists() {
        return;
    }
    let mut command = Command::new("loginctl");
    command.args(["enable-linger", &user]);
    if output(command).is_err() {
        cx.out.remark(format!(
            "the service ends when you log out, unless: sudo loginctl enable-linger {user}"
        ));
    }
}

/// A service should outlive the build directory.
fn warn_of_passing(cx: &Context, service: &ServiceDefinition) {
    let passing = |path: &Path| path.starts_with("/tmp") || path.starts_with("/var/tmp");
    if passing(&service.program) {
        cx.out.remark(format!(
            "{} is in a temporary directory: if it is deleted, the service stops working; install \
             the program elsewhere first",
            service.program.display()
        ));
    }
}

/// The user of a system service: as given, else the user of sudo, else the owner of the home.
fn account(args: &InstallArgs, home: &Home) -> Result<ServiceAccount, Failure> {
    use std::os::unix::fs::MetadataExt as _;
    let users = std::fs::read_to_string("/etc/passwd").unwrap_or_default();
    let groups = std::fs::read_to_string("/etc/group").unwrap_or_default();
    let by_sudo = std::env::var("SUDO_USER")
        .ok()
        .filter(|name| name != "root");
    let owner = std::fs::metadata(home.root())
        .ok()
        .map(|meta| meta.uid().to_string());
    let wanted = args.run_as_user.clone().or(by_sudo);
    let row = users
        .lines()
        .map(|line| line.split(':').collect::<Vec<_>>())
        .find(|row| match (&wanted, &owner) {
            (Some(name), _) => row.first() == Some(&name.as_str()),
            (None, Some(uid)) => row.get(2) == Some(&uid.as_str()),
            (None, None) => false,
        });
    let Some(row) = row.filter(|row| row.len() > 5) else {
        return Err(Failure::not_found(
            "no such user; choose the user the service runs as: --run-as-user USER",
        ));
    };
    let group = groups
        .lines()
        .map(|line| line.split(':').collect::<Vec<_>>())
        .find(|group| group.get(2) == row.get(3))
        .and_then(|group| group.first().map(|name| (*name).to_owned()));
    Ok(ServiceAccount {
        user: row[0].to_owned(),
        group: group.unwrap_or_else(|| row[3].to_owned()),
        home: PathBuf::from(row[5]),
    })
}

pub(super) fn uninstall(args: UninstallArgs, cx: &Context) -> Outcome {
    let Some(manager) = installed(&cx.home, args.system, cx) else {
        return Err(Failure::not_found("no service is installed for this home"));
    };
    if manager.is_active()
        && let Some(running) = hermes_gateway::process::running(cx.home.root())
    {
        hermes_gateway::process::Marker::PlannedStop.leave(
            cx.home.root(),
            running.process,
            chrono::Utc::now(),
        )?;
    }
    match manager.kind {
        ServiceManagerKind::Systemd { .. } => {
            // A missing service needs no stopping.
            for words in [["disable", "--now"], ["reset-failed", "--quiet"]] {
                let _ = manager.tell(&[words[0], words[1], &manager.unit()]);
            }
        }
        ServiceManagerKind::Launchd => {
            let _ = manager.stop();
        }
    }
    std::fs::remove_file(&manager.path)
        .map_err(|error| Failure::failed(format!("{}: {error}", manager.path.display())))?;
    if matches!(manager.kind, ServiceManagerKind::Systemd { .. }) {
        let _ = manager.tell(&["daemon-reload"]);
    }
    cx.out
        .line(format!("removed: {}", manager.path.display()))?;
    Ok(())
}

/// How long something has been going on, for people.
pub(super) fn lasting(seconds: u64) -> String {
    let age = Duration::from_secs(seconds);
    let (days, hours) = (seconds / 86_400, seconds / 3_600 % 24);
    let (minutes, rest) = (seconds / 60 % 60, age.as_secs() % 60);
    match (days, hours, minutes) {
        (0, 0, 0) => format!("{rest}s"),
        (0, 0, minutes) => format!("{minutes}m"),
        (0, hours, minutes) => format!("{hours}h {minutes:02}m"),
        (days, hours, _) => format!("{days}d {hours:02}h"),
    }
}

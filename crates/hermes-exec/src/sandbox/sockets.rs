//! Sockets of the account outside a command's own places. Whoever answers at one of them is not confined: a
//! terminal multiplexer, a container engine or an agent for keys would run or sign what it is told.

use std::collections::HashMap;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};

use super::places::is_temporary;
use super::{Settings, look};

/// Name lookups and logs: they answer questions and take notes, and run nothing.
const HARMLESS: &[&str] = &[
    "/run/nscd",
    "/var/run/nscd",
    "/run/systemd/resolve",
    "/run/systemd/journal",
    "/run/systemd/userdb",
    "/run/systemd/io.system.ManagedOOM",
    "/run/avahi-daemon",
    "/dev/log",
];

/// Where sockets of programs that run commands lie, also of those that are started later or in another
/// network namespace.
const KNOWN: &[&str] = &[
    "/run/docker.sock",
    "/var/run/docker.sock",
    "/run/docker",
    "/run/podman",
    "/run/containerd",
    "/run/crio",
    "/run/k3s",
    "/run/libvirt",
    "/run/lxd",
    "/var/lib/lxd/unix.socket",
    "/var/snap/lxd",
    "/run/incus",
    "/run/snapd.socket",
    "/run/snapd-snap.socket",
    "/run/dbus",
    "/var/run/dbus",
    "/run/systemd/private",
    "/run/screen",
    "/var/run/screen",
    "/run/tmux",
    "/run/uuidd",
    "/run/pcscd",
    "/run/cups",
    "/run/gpsd.sock",
    "/run/php",
    "/run/at-spi",
    "/tmp/.X11-unix",
    "/tmp/.ICE-unix",
    "/tmp/.font-unix",
    "/tmp/.docker",
    "/tmp/podman-run",
];

/// Where services of the system put their sockets, whenever they start: closed as a whole.
const RUN: &str = "/run";

/// What else programs look for in there: names of machines, programs of the system, mounted disks.
const OPEN_IN_RUN: &[&str] = &[
    "/run/resolvconf",
    "/run/NetworkManager/resolv.conf",
    "/run/NetworkManager/no-stub-resolv.conf",
    "/run/connman/resolv.conf",
    "/run/systemd/system",
    "/run/systemd/container",
    "/run/.containerenv",
    "/run/current-system",
    "/run/booted-system",
    "/run/wrappers",
    "/run/opengl-driver",
    "/run/opengl-driver-32",
    "/run/nixos",
    "/run/host",
    "/run/media",
    "/run/mount",
    "/run/lock",
    "/run/shm",
    "/run/utmp",
    "/run/udev/data",
];

/// What of the directory of services is there and stays open.
pub(super) fn open_in_run(settings: &Settings) -> Vec<PathBuf> {
    let named = settings.sockets.iter().map(PathBuf::as_path);
    let known = HARMLESS.iter().chain(OPEN_IN_RUN).map(Path::new);
    known
        .chain(named)
        .filter(|path| path.starts_with(RUN))
        .filter(|path| look::entry(path).is_ok_and(|data| !data.is_symlink()))
        .map(Path::to_owned)
        .collect()
}

/// Where sockets of programs outside may be connected to, as far as it is there: in places where a person works, and
/// in temporary directories, through which programs of `execute_code` speak to ours.
pub(super) fn connectable(settings: &Settings, writable: &[PathBuf]) -> Vec<PathBuf> {
    let named = settings.sockets.iter().map(PathBuf::as_path);
    let known = HARMLESS.iter().map(Path::new).chain(named);
    let home = settings.user_home.as_deref();
    let places = writable.iter().map(PathBuf::as_path);
    let places = places
        .filter(|place| is_temporary(place) || !home.is_some_and(|home| home.starts_with(place)));
    known
        .chain(places)
        .filter(|path| look::target(path).is_ok())
        .map(Path::to_owned)
        .collect()
}

/// Below the person's directory: where programs that run commands put their sockets.
const IN_HOME: &[&str] = &[
    ".screen",
    ".docker/run",
    ".docker/desktop",
    ".colima",
    ".lima",
    ".rd",
    ".orbstack/run",
    ".1password",
    ".local/share/containers/podman/machine",
    ".gnupg",
    ".ssh/agent",
];

/// Sockets that are to be hidden, and directories that hold such.
pub(super) fn foreign(
    settings: &Settings,
    writable: &[PathBuf],
    bound: Vec<PathBuf>,
) -> Vec<PathBuf> {
    let home = settings.user_home.as_deref();
    let allowed = |path: &Path| {
        let open = settings.sockets.iter().any(|open| path.starts_with(open));
        open || HARMLESS.iter().any(|open| path.starts_with(open))
    };
    // A project's own socket is the project's; a temporary directory is everybody's.
    let is_own = |path: &Path| {
        writable
            .iter()
            .filter(|place| {
                !is_temporary(place) && home.is_none_or(|home| !home.starts_with(place))
            })
            .any(|place| path.starts_with(place))
    };
    let user = rustix::process::getuid().as_raw();
    // Covered before there is one: a server that is started later uses the directory it finds. That it cannot be
    // made means that it is there, or never will be.
    let servers = ["tmux-", "emacs", "zellij-"].map(|name| format!("/tmp/{name}{user}"));
    for dir in &servers {
        let _ = std::fs::DirBuilder::new().mode(0o700).create(dir);
    }
    let mut paths: Vec<PathBuf> = KNOWN.iter().map(PathBuf::from).collect();
    paths.extend(servers.map(PathBuf::from));
    paths.extend([
        RUN.into(),
        format!("/run/user/{user}").into(),
        format!("/tmp/uscreens/S-{user}").into(),
        "/tmp/uscreens".into(),
        "/tmp/screens".into(),
    ]);
    // Closed as a whole: what runs in there may be started while a command runs.
    paths.extend(
        home.into_iter()
            .flat_map(|home| IN_HOME.iter().map(|name| home.join(name))),
    );
    paths.extend(named());
    paths.extend(bound);
    let mut parents = HashMap::new();
    paths
        .into_iter()
        // Most of them do not exist: one look tells.
        .filter(|path| look::entry(path).is_ok_and(|data| !data.is_symlink()))
        .filter_map(|path| really(&path, &mut parents))
        .filter(|path| !allowed(path) && !is_own(path))
        .collect()
}

/// Those that programs have made, of which the kernel says no more than where they are.
pub(super) fn bound_now() -> Vec<PathBuf> {
    let table = std::fs::read_to_string("/proc/net/unix").unwrap_or_default();
    let mut paths = bound(&table);
    // Those of programs that call tools ask for a token, and come and go with each of them.
    paths.retain(|path| !path.to_string_lossy().starts_with("/tmp/hermes-code-"));
    paths
}

/// Where a path lies that is no link itself. Many sockets share a directory.
fn really(path: &Path, parents: &mut HashMap<PathBuf, Option<PathBuf>>) -> Option<PathBuf> {
    let (parent, name) = (path.parent()?, path.file_name()?);
    let real = parents
        .entry(parent.to_owned())
        .or_insert_with(|| look::real(parent).ok());
    Some(real.as_ref()?.join(name))
}

/// Named by variables of this process.
fn named() -> Vec<PathBuf> {
    let agents = [
        "SSH_AUTH_SOCK",
        "GPG_AGENT_INFO",
        "TMUX",
        "DOCKER_HOST",
        "DBUS_SESSION_BUS_ADDRESS",
    ];
    agents
        .into_iter()
        .filter_map(|name| std::env::var(name).ok())
        .filter_map(|value| {
            let value = value
                .rsplit_once("path=")
                .map_or(&*value, |(_, path)| path)
                .to_owned();
            let value = value.strip_prefix("unix://").unwrap_or(&value).to_owned();
            let path = value.split([',', ':', ';']).next()?.to_owned();
            path.starts_with('/').then(|| path.into())
        })
        .collect()
}

/// The paths in the kernel's table of sockets.
fn bound(table: &str) -> Vec<PathBuf> {
    let mut paths: Vec<PathBuf> = table
        .lines()
        .skip(1)
        .filter_map(|line| line.find(" /").map(|at| PathBuf::from(&line[at + 1..])))
        .collect();
    paths.sort();
    paths.dedup();
    paths
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_read_from_the_table_of_the_kernel() {
        let table = "Num       RefCount Protocol Flags    Type St Inode Path\n\
            0000000000000000: 00000002 00000000 00010000 0001 01 17 /run/with space.sock\n\
            0000000000000000: 00000003 00000000 00000000 0001 03 18\n\
            0000000000000000: 00000002 00000000 00010000 0001 01 19 @abstract\n";
        assert_eq!(bound(table), [PathBuf::from("/run/with space.sock")]);
    }
}

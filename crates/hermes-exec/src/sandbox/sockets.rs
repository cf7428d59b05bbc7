//! Sockets outside a command's own directories. Their servers are not confined: a terminal multiplexer,
//! container engine or key agent would run or sign anything.

use std::collections::HashMap;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};

use super::paths::is_temporary;
use super::{SandboxSettings, tracked_fs};

/// Name resolution and logging: these services run nothing.
const HARMLESS_SOCKETS: &[&str] = &[
    "/run/nscd",
    "/var/run/nscd",
    "/run/systemd/resolve",
    "/run/systemd/journal",
    "/run/systemd/userdb",
    "/run/systemd/io.system.ManagedOOM",
    "/run/avahi-daemon",
    "/dev/log",
];

/// Sockets of programs that run commands, including programs started later or in another network namespace.
const KNOWN_SOCKETS: &[&str] = &[
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

/// Runtime directory of system services: hidden as a whole.
const RUN: &str = "/run";

/// Other entries that programs need there: host names, system programs, mounted disks.
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

/// Existing entries of the runtime directory that stay visible.
pub(super) fn open_in_run(settings: &SandboxSettings) -> Vec<PathBuf> {
    let named = settings.sockets.iter().map(PathBuf::as_path);
    let known = HARMLESS_SOCKETS.iter().chain(OPEN_IN_RUN).map(Path::new);
    known
        .chain(named)
        .filter(|path| path.starts_with(RUN))
        .filter(|path| tracked_fs::lstat(path).is_ok_and(|data| !data.is_symlink()))
        .map(Path::to_owned)
        .collect()
}

/// Existing paths at which commands may connect to sockets: in work directories, and in temporary directories,
/// through which programs of `execute_code` call us.
pub(super) fn connectable(settings: &SandboxSettings, writable: &[PathBuf]) -> Vec<PathBuf> {
    let named = settings.sockets.iter().map(PathBuf::as_path);
    let known = HARMLESS_SOCKETS.iter().map(Path::new).chain(named);
    let home = settings.user_home.as_deref();
    let bases = writable.iter().map(PathBuf::as_path);
    let bases =
        bases.filter(|base| is_temporary(base) || !home.is_some_and(|home| home.starts_with(base)));
    known
        .chain(bases)
        .filter(|path| tracked_fs::stat(path).is_ok())
        .map(Path::to_owned)
        .collect()
}

/// Below the user's home: where programs that run commands put their sockets.
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

/// Sockets to hide, and directories that contain such.
pub(super) fn foreign_sockets(
    settings: &SandboxSettings,
    writable: &[PathBuf],
    bound: Vec<PathBuf>,
) -> Vec<PathBuf> {
    let home = settings.user_home.as_deref();
    let allowed = |path: &Path| {
        let open = settings.sockets.iter().any(|open| path.starts_with(open));
        open || HARMLESS_SOCKETS.iter().any(|open| path.starts_with(open))
    };
    // A socket in a project belongs to the project; a temporary directory is shared.
    let is_own = |path: &Path| {
        writable
            .iter()
            .filter(|base| !is_temporary(base) && home.is_none_or(|home| !home.starts_with(base)))
            .any(|base| path.starts_with(base))
    };
    let user = rustix::process::getuid().as_raw();
    // Created in advance, so that a server started later uses a hidden directory. A failure means that it
    // exists or never will.
    let servers = ["tmux-", "emacs", "zellij-"].map(|name| format!("/tmp/{name}{user}"));
    for dir in &servers {
        let _ = std::fs::DirBuilder::new().mode(0o700).create(dir);
    }
    let mut paths: Vec<PathBuf> = KNOWN_SOCKETS.iter().map(PathBuf::from).collect();
    paths.extend(servers.map(PathBuf::from));
    paths.extend([
        RUN.into(),
        format!("/run/user/{user}").into(),
        format!("/tmp/uscreens/S-{user}").into(),
        "/tmp/uscreens".into(),
        "/tmp/screens".into(),
    ]);
    // Hidden as a whole: a server may be started while a command runs.
    paths.extend(
        home.into_iter()
            .flat_map(|home| IN_HOME.iter().map(|name| home.join(name))),
    );
    paths.extend(named_by_variables());
    paths.extend(bound);
    let mut parents = HashMap::new();
    paths
        .into_iter()
        // Most of them do not exist; `lstat` is cheap.
        .filter(|path| tracked_fs::lstat(path).is_ok_and(|data| !data.is_symlink()))
        .filter_map(|path| resolve_parent(&path, &mut parents))
        .filter(|path| !allowed(path) && !is_own(path))
        .collect()
}

/// The paths of bound sockets, from the kernel's table.
pub(super) fn bound_sockets() -> Vec<PathBuf> {
    let table = std::fs::read_to_string("/proc/net/unix").unwrap_or_default();
    let mut paths = parse_bound(&table);
    // Sockets of `execute_code` require a token, and change with every call.
    paths.retain(|path| !path.to_string_lossy().starts_with("/tmp/hermes-code-"));
    paths
}

/// The canonical path of something that is no link itself. Many sockets share a directory.
fn resolve_parent(path: &Path, parents: &mut HashMap<PathBuf, Option<PathBuf>>) -> Option<PathBuf> {
    let (parent, name) = (path.parent()?, path.file_name()?);
    let real = parents
        .entry(parent.to_owned())
        .or_insert_with(|| tracked_fs::resolve(parent).ok());
    Some(real.as_ref()?.join(name))
}

/// Sockets named by our environment variables.
fn named_by_variables() -> Vec<PathBuf> {
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

/// Parses `/proc/net/unix`.
fn parse_bound(table: &str) -> Vec<PathBuf> {
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
        assert_eq!(parse_bound(table), [PathBuf::from("/run/with space.sock")]);
    }
}
